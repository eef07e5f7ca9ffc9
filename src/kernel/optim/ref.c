/* The definition of every optimizer kernel, in plain C; see kernel/optim/optim.h for the rules on
 * what is tiny. Each operation is one IEEE operation, rounded once: nothing is contracted or
 * reordered. */
#include "kernel/dispatch.h"

#include <math.h>

static inline float keep(float x) { return gsi_bits(x) & GSI_KEEP ? x : 0; }
static inline float term(float x) { return gsi_bits(x) & GSI_TERM ? x : 0; }

static inline float load(const void *src, size_t i, gs_dtype type)
{
    return gsi_float(gsi_element(src, type, i));
}

/* The gradient in true units, clipped by value. */
static inline float gradient(const void *grad, size_t i, gs_dtype type, float unscale, float limit)
{
    float g = load(grad, i, type) * unscale;
    g = g > limit ? limit : g; /* a NaN stays */
    g = g < -limit ? -limit : g;
    return keep(g);
}

static inline uint32_t store(const gsi_slice *s, size_t i, float weight, uint32_t top)
{
    const uint32_t u = gsi_bits(weight), mag = gsi_magnitude(u);
    s->weight[i] = weight;
    if (s->copy)
        s->copy[i] = (uint16_t)gsi_narrow(u, gsi_row_of(s->copy_type), GSI_NEAREST, false);
    return mag > top ? mag : top;
}

/* ---- SGD ---- */

static inline uint32_t ref_sgd(const gsi_slice *s, size_t n, const gsi_sgd *set, gs_dtype type)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const float w = s->weight[i];
        float d = gradient(s->grad, i, type, set->unscale, set->limit);
        if (set->l2 != 0)
            d += set->l2 * w;
        if (s->m) {
            const float m = keep(set->momentum * s->m[i] + set->gain * d);
            s->m[i] = m;
            d = set->nesterov ? d + set->momentum * m : m;
        }
        top = store(s, i, keep(w - set->lr * keep(d)), top);
    }
    return gsi_amax_bits(top);
}

/* ---- Adam and LAMB ---- */

/* m / (sqrt(v) / correction + eps). An element whose v is zero has only seen gradients whose
 * squares are nothing: it stays where it is, also with eps 0. */
static inline float ratio(float m, float root, const gsi_adam *set)
{
    return root == 0 ? 0 : keep(m / (root * set->root + set->eps));
}

/* Both moments of element i, updated. Returns the root of v. */
static inline float moments(const gsi_slice *s, size_t i, float g, const gsi_adam *set)
{
    const float old = set->rooted ? s->v[i] * s->v[i] : s->v[i];
    const float v = term(set->beta2 * old) + term(set->rest2 * g * g);
    const float root = sqrtf(v);
    s->m[i] = keep(set->beta1 * s->m[i] + set->rest1 * g);
    s->v[i] = set->rooted ? root : v;
    return root;
}

static inline uint32_t ref_adam(const gsi_slice *s, size_t n, const gsi_adam *set, gs_dtype type)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const float w = s->weight[i];
        float g = gradient(s->grad, i, type, set->unscale, set->limit);
        if (set->l2 != 0)
            g += set->l2 * w;
        const float root = moments(s, i, g, set);
        top = store(s, i, keep(w * set->retain - set->lr * ratio(s->m[i], root, set)), top);
    }
    return gsi_amax_bits(top);
}

static inline uint32_t ref_adam_half(const gsi_slice *s, gsi_half_moments *h, size_t n,
                                     const gsi_adam *set, gs_dtype type, gs_dtype half)
{
    gsi_adam rooted = *set;
    rooted.rooted = true;
    h->top[0] = h->top[1] = 0;
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        float moment[2];
        for (int k = 0; k < 2; k++)
            moment[k] = load(h->at[k], i, half) * h->load[k];
        const gsi_slice one = {.weight = s->weight + i,
                               .copy = s->copy ? s->copy + i : NULL,
                               .copy_type = s->copy_type,
                               .m = &moment[0],
                               .v = &moment[1],
                               .grad = (const char *)s->grad + i * gsi_size_of(type)};
        const uint32_t mag = ref_adam(&one, 1, &rooted, type);
        top = mag > top ? mag : top;
        for (int k = 0; k < 2; k++) {
            const int random = gsi_random_u16(h->key[k], h->first + i);
            const uint32_t code =
                gsi_narrow(gsi_bits(moment[k] * h->save[k]), gsi_row_of(half), random, false);
            const uint32_t stored = gsi_magnitude(gsi_widen(code, gsi_row_of(half)));
            h->at[k][i] = (uint16_t)code;
            h->top[k] = stored > h->top[k] ? gsi_amax_bits(stored) : h->top[k];
        }
    }
    return top;
}

static inline float lamb_direction(float w, float m, float root, const gsi_adam *set)
{
    return keep(ratio(m, root, set) * set->unbias + set->l2 * w);
}

static inline void ref_lamb(gsi_norms *norms, const gsi_slice *s, size_t n, const gsi_adam *set,
                            gs_dtype type)
{
    double weight[GSI_LANES] = {0}, direction[GSI_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        const float g = gradient(s->grad, i, type, set->unscale, set->limit), w = s->weight[i];
        const float root = moments(s, i, g, set);
        const double u = (double)lamb_direction(w, s->m[i], root, set), x = (double)keep(w);
        weight[i % GSI_LANES] += x * x;
        direction[i % GSI_LANES] += u * u;
    }
    *norms = (gsi_norms){gsi_fold(weight, 0), gsi_fold(direction, 0)};
}

static inline uint32_t ref_lamb_step(const gsi_slice *s, size_t n, const gsi_adam *set, float step)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const float w = s->weight[i], m = keep(s->m[i]);
        const float root = set->rooted ? keep(s->v[i]) : sqrtf(term(s->v[i]));
        top = store(s, i, keep(w - step * lamb_direction(w, m, root, set)), top);
    }
    return gsi_amax_bits(top);
}

/* ---- Adafactor ---- */

static inline double ref_squares(double *cols, const void *grad, size_t n, const gsi_factor *set,
                                 gs_dtype type)
{
    double lanes[GSI_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        const double g = (double)gradient(grad, i, type, set->unscale, set->limit);
        const double square = g * g + set->eps;
        cols[i] += square;
        lanes[i % GSI_LANES] += square;
    }
    return gsi_fold(lanes, 0);
}

static inline float factor_direction(const void *grad, size_t i, float row, float col,
                                     const gsi_factor *set, gs_dtype type)
{
    return keep(keep(gradient(grad, i, type, set->unscale, set->limit) * row) * col);
}

static inline double ref_factored(const float *col, float row, const void *grad, size_t n,
                                  const gsi_factor *set, gs_dtype type)
{
    double lanes[GSI_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        const double u = (double)factor_direction(grad, i, row, col[i], set, type);
        lanes[i % GSI_LANES] += u * u;
    }
    return gsi_fold(lanes, 0);
}

static inline uint32_t ref_factor_step(const gsi_slice *s, const float *col, float row, size_t n,
                                       const gsi_factor *set, gs_dtype type)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const float u = factor_direction(s->grad, i, row, col[i], set, type);
        top = store(s, i, keep(s->weight[i] * set->retain - set->lr * u), top);
    }
    return gsi_amax_bits(top);
}

/* ---- averages ---- */

static inline void ref_ema(float *ema, const float *weight, size_t n, float decay, float rest)
{
    for (size_t i = 0; i < n; i++)
        ema[i] = keep(decay * ema[i] + rest * weight[i]);
}

/* ---- the kernels ---- */

#define X(name, family, from, to) \
    GSI_MAKE_##family(static, name##_ref, ref_##family, GS_##from, GS_##to)
GS_OPTIM_KERNELS(X)
#undef X

void gsi_optim_ref(gsi_kernels *k)
{
#define X(name, family, from, to) k->optim.GSI_SLOT_##family(from, to) = name##_ref;
    GS_OPTIM_KERNELS(X)
#undef X
}
