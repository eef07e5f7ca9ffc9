/* act: the optimizers over one chunk per block, all or nothing by state.apply. The arithmetic is
 * that of kernel/optim/ref.c, operation by operation; settings are made here from the row of the
 * step, in f64 as optim/pass.c makes them. Each array is touched once. */
#include "device/kernels/number.h"

/* A chunk, as each thread sees it. */
typedef struct gsd_span {
    GLOBAL uint8_t *grad, *weight, *copy;
    GLOBAL float *m, *v;
    uint64_t first;
    uint64_t key; /* of stochastic rounding */
    uint32_t n, grad_type, weight_type, copy_type;
    uint32_t random; /* the weights are halves, rounded stochastically */
    float unscale, limit;
    float lr, l2;
} gsd_span;

#define GSD_SPAN(at)                                                                            \
    const uint32_t c = BLOCK_ID;                                                                \
    const GLOBAL gsd_tensor *x = &tensors[chunks[c].tensor];                                    \
    gsd_span at;                                                                                \
    at.first = chunks[c].first;                                                                 \
    at.n = gsd_count(x->count, at.first);                                                       \
    at.grad_type = set->unscale == GSD_TO_F32 ? GS_F32 : x->grad_type;                          \
    at.weight_type = x->weight_type;                                                            \
    at.copy_type = x->copy_type;                                                                \
    at.grad = set->unscale == GSD_TO_F32                                                        \
                  ? AT(out_base, x->out + at.first * 4u)                                        \
                  : AT(grad_base, x->grad + at.first * gsd_size(x->grad_type));                 \
    at.weight = AT(weight_base, x->weight + at.first * gsd_size(at.weight_type));               \
    at.copy = AT(copy_base, x->copy + at.first * gsd_size(at.copy_type));                       \
    at.m = (GLOBAL float *)AT(m_base, x->m + at.first * 4u);                                    \
    at.v = (GLOBAL float *)AT(v_base, x->v + at.first * 4u);                                    \
    at.random = set->stochastic && at.weight_type != GS_F32;                                    \
    at.key =                                                                                    \
        at.random ? gsd_key(gsd_key(set->seed, state->t), (uint64_t)chunks[c].tensor * 3u) : 0; \
    at.unscale = state->unscale;                                                                \
    at.limit = set->limit;                                                                      \
    at.lr = 0;                                                                                  \
    at.l2 = 0

DEVICE float gsd_gradient(const gsd_span *s, uint32_t i)
{
    float g = gsd_load(s->grad, s->grad_type, i) * s->unscale;
    g = g > s->limit ? s->limit : g;
    g = g < -s->limit ? -s->limit : g;
    return gsd_keep(g);
}

/* Weight and copy. Returns the larger of top and the magnitude of the weight as it was computed. */
DEVICE uint32_t gsd_put(const gsd_span *s, uint32_t i, float w, uint32_t top)
{
    const float stored = s->random
                             ? gsd_store_random(s->weight, s->weight_type, i, w, s->key, s->first)
                             : gsd_store_nearest(s->weight, s->weight_type, i, w);
    if (s->copy_type != GSD_NO_COPY)
        gsd_store(s->copy, s->copy_type, i, stored);
    return gsd_max(top, gsd_magnitude(w));
}

/* Of a step that is not applied. */
DEVICE void gsd_clear(const GLOBAL gsd_tensor *x, GLOBAL uint8_t *grad_base, uint64_t first,
                      uint32_t n, uint32_t t)
{
    GLOBAL uint8_t *grad = AT(grad_base, x->grad + first * gsd_size(x->grad_type));
    for (uint32_t i = t; i < n; i += GSD_THREADS)
        if (x->grad_type == GS_F32)
            ((GLOBAL uint32_t *)grad)[i] = 0;
        else
            ((GLOBAL uint16_t *)grad)[i] = 0;
}

/* The largest weight of the block goes to the report; infinite, if not all are finite. */
#define GSD_REPORT_TOP                                                                         \
    BARRIER;                                                                                   \
    EACH_THREAD (t) {                                                                          \
        if (t == 0)                                                                            \
            GLOBAL_MAX(&reports[state->slot].weight_top, all[0] < GSD_INF ? all[0] : GSD_INF); \
    }

#define GSD_ACT_BEGIN                                       \
    if (!state->apply) {                                    \
        EACH_THREAD (t) {                                   \
            if (state->clear)                               \
                gsd_clear(x, grad_base, at.first, at.n, t); \
        }                                                   \
        return;                                             \
    }                                                       \
    EACH_THREAD (t) {                                       \
        if (t == 0)                                         \
            all[0] = 0;                                     \
    }                                                       \
    BARRIER

/* ---- SGD ---- */

KERNEL gsd_sgd(ARGUMENTS)
{
    SHARED uint32_t all[1];
    GSD_SPAN(at);
    const gsd_row row = rows[state->row];
    const float momentum = set->momentum, gain = row.gain;
    const uint32_t has_m = set->momentum_on, nesterov = set->nesterov;
    at.lr = gsd_setting(row.lr * x->lr_factor);
    at.l2 = gsd_setting(x->decay);
    GSD_ACT_BEGIN;
    EACH_THREAD (t) {
        uint32_t top = 0;
        for (uint32_t i = t; i < at.n; i += GSD_THREADS) {
            const float w = gsd_load(at.weight, at.weight_type, i);
            float d = gsd_gradient(&at, i);
            if (at.l2 != 0)
                d += at.l2 * w;
            if (has_m) {
                const float m = gsd_keep(momentum * at.m[i] + gain * d);
                at.m[i] = m;
                d = nesterov ? d + momentum * m : m;
            }
            top = gsd_put(&at, i, gsd_keep(w - at.lr * gsd_keep(d)), top);
        }
        SHARED_MAX(&all[0], top);
    }
    GSD_REPORT_TOP
}

/* ---- Adam, AdamW, LAMB ---- */

typedef struct gsd_adam_set {
    float beta1, rest1, beta2, rest2, root, eps;
} gsd_adam_set;

DEVICE gsd_adam_set gsd_adam_of(const GLOBAL gsd_settings *set, float root)
{
    gsd_adam_set a;
    a.beta1 = set->beta1;
    a.rest1 = set->rest1;
    a.beta2 = set->beta2;
    a.rest2 = set->rest2;
    a.root = root;
    a.eps = set->eps;
    return a;
}

/* m / (root * correction + eps); 0 where v is. */
DEVICE float gsd_ratio(float m, float root, gsd_adam_set a)
{
    return root == 0 ? 0.0f : gsd_keep(m / (root * a.root + a.eps));
}

/* Both moments of element i, updated. Returns the ratio. */
DEVICE float gsd_moments(const gsd_span *s, uint32_t i, float g, gsd_adam_set a, float *m)
{
    const float v = gsd_term(a.beta2 * s->v[i]) + gsd_term(a.rest2 * g * g);
    *m = gsd_keep(a.beta1 * s->m[i] + a.rest1 * g);
    s->m[i] = *m;
    s->v[i] = v;
    return gsd_ratio(*m, gsd_sqrtf(v), a);
}

KERNEL gsd_adam(ARGUMENTS)
{
    SHARED uint32_t all[1];
    GSD_SPAN(at);
    const gsd_row row = rows[state->row];
    const double lr = row.lr * x->lr_factor;
    const gsd_adam_set a = gsd_adam_of(set, row.root);
    const int decoupled = set->kind == GS_ADAMW;
    const float retain = decoupled ? gsd_setting(1 - lr * x->decay) : 1.0f;
    at.lr = gsd_setting(lr * row.unbias);
    at.l2 = decoupled ? 0.0f : gsd_setting(x->decay);
    GSD_ACT_BEGIN;
    EACH_THREAD (t) {
        uint32_t top = 0;
        for (uint32_t i = t; i < at.n; i += GSD_THREADS) {
            const float w = gsd_load(at.weight, at.weight_type, i);
            float g = gsd_gradient(&at, i), m;
            if (at.l2 != 0)
                g += at.l2 * w;
            {
                const float ratio = gsd_moments(&at, i, g, a, &m);
                top = gsd_put(&at, i, gsd_keep(w * retain - at.lr * ratio), top);
            }
        }
        SHARED_MAX(&all[0], top);
    }
    GSD_REPORT_TOP
}

DEVICE float gsd_lamb_direction(float ratio, float w, float unbias, float l2)
{
    return gsd_keep(ratio * unbias + l2 * w);
}

/* LAMB's first half: moments, and the norms of weight and direction. 32 threads are 32 lanes of f64
 * sums, each in the order of its elements; the other threads bring what they add. Lanes are folded
 * at the end of the chunk or, where weights are halves, of every 1024 elements: optim/pass.c. */
KERNEL gsd_lamb(ARGUMENTS)
{
    SHARED float ws[GSD_SLICE], us[GSD_SLICE]; /* 32 KB */
    SHARED double weight[GSD_LANES], direction[GSD_LANES], total[2];
    GSD_SPAN(at);
    const gsd_row row = rows[state->row];
    const gsd_adam_set a = gsd_adam_of(set, row.root);
    const float unbias = gsd_setting(row.unbias);
    const uint32_t slice = at.weight_type == GS_F32 ? GSD_SLICE : 1024u;
    at.l2 = gsd_setting(x->decay);
    if (!state->apply)
        return;
    EACH_THREAD (t) {
        if (t < GSD_LANES)
            weight[t] = direction[t] = 0;
        if (t < 2u)
            total[t] = 0;
    }
    BARRIER;
    for (uint32_t begin = 0; begin < at.n; begin += slice) {
        const uint32_t left = at.n - begin < slice ? at.n - begin : slice;
        EACH_THREAD (t) {
            for (uint32_t i = t; i < left; i += GSD_THREADS) {
                const float w = gsd_load(at.weight, at.weight_type, begin + i);
                float m;
                const float ratio =
                    gsd_moments(&at, begin + i, gsd_gradient(&at, begin + i), a, &m);
                ws[i] = gsd_keep(w);
                us[i] = gsd_lamb_direction(ratio, w, unbias, at.l2);
            }
        }
        BARRIER; /* weights and directions are staged */
        EACH_THREAD (t) {
            if (t < 2u * GSD_LANES) { /* a warp for each */
                const uint32_t lane = t % GSD_LANES;
                SHARED_PTR const float *from = t < GSD_LANES ? ws : us;
                SHARED_PTR double *to = t < GSD_LANES ? weight : direction;
                double sum = to[lane];
                for (uint32_t i = lane; i < left; i += GSD_LANES) {
                    const double y = (double)from[i];
                    sum += y * y;
                }
                to[lane] = sum;
            }
        }
        BARRIER;
        if (at.weight_type == GS_F32 && begin + slice < at.n)
            continue;
        for (uint32_t width = GSD_LANES / 2u; width > 0; width /= 2u) {
            EACH_THREAD (t) {
                if (t < width) {
                    weight[t] += weight[t + width];
                    direction[t] += direction[t + width];
                }
            }
            BARRIER;
        }
        EACH_THREAD (t) {
            if (t == 0) {
                total[0] += weight[0];
                total[1] += direction[0];
            }
            if (t < GSD_LANES)
                weight[t] = direction[t] = 0;
        }
        BARRIER;
    }
    EACH_THREAD (t) {
        if (t == 0) {
            norms[c].weight = total[0];
            norms[c].direction = total[1];
        }
    }
}

/* The tensor's norms, folded as its chunks are: groups, then their sums. */
DEVICE double gsd_fold_norms(const GLOBAL gsd_norms *norms, uint32_t n, int direction)
{
    double sum = 0;
    for (uint32_t i = 0; i < n;) {
        const uint32_t end = n - i < GSD_GROUP ? n : i + GSD_GROUP;
        double group = 0;
        for (; i < end; i++)
            group += direction ? norms[i].direction : norms[i].weight;
        sum += group;
    }
    return sum;
}

/* The second half: the direction again, from the moments, times the trust ratio. */
KERNEL gsd_lamb_step(ARGUMENTS)
{
    SHARED uint32_t all[1];
    SHARED double folded[2];
    GSD_SPAN(at);
    const gsd_row row = rows[state->row];
    const gsd_adam_set a = gsd_adam_of(set, row.root);
    const float unbias = gsd_setting(row.unbias);
    at.l2 = gsd_setting(x->decay);
    GSD_ACT_BEGIN;
    EACH_THREAD (t) {
        if (t % GSD_LANES == 0 && t / GSD_LANES < 2u)
            folded[t / GSD_LANES] =
                gsd_fold_norms(norms + x->first_chunk, x->chunks, t / GSD_LANES == 1u);
    }
    BARRIER; /* both norms are folded */
    {
        const int both = folded[0] > 0 && folded[1] > 0;
        at.lr = gsd_setting(row.lr * x->lr_factor * (both ? gsd_sqrt(folded[0] / folded[1]) : 1.0));
    }
    EACH_THREAD (t) {
        uint32_t top = 0;
        for (uint32_t i = t; i < at.n; i += GSD_THREADS) {
            const float w = gsd_load(at.weight, at.weight_type, i), m = gsd_keep(at.m[i]);
            const float ratio = gsd_ratio(m, gsd_sqrtf(gsd_term(at.v[i])), a);
            const float u = gsd_lamb_direction(ratio, w, unbias, at.l2);
            top = gsd_put(&at, i, gsd_keep(w - at.lr * u), top);
        }
        SHARED_MAX(&all[0], top);
    }
    GSD_REPORT_TOP
}

/* ---- copies ---- */

/* The copies anew from the weights: to nearest or, with option 1, stochastically, with the bits of
 * gs_tensors_convert_stochastic. */
KERNEL gsd_cast(ARGUMENTS)
{
    GSD_SPAN(at);
    const uint64_t key = gsd_key(seed, chunks[c].tensor);
    EACH_THREAD (t) {
        for (uint32_t i = t; i < at.n && at.copy_type != GSD_NO_COPY; i += GSD_THREADS) {
            const float w = gsd_load(at.weight, at.weight_type, i);
            if (option && at.copy_type != GS_F32)
                gsd_store_random(at.copy, at.copy_type, i, w, key, at.first);
            else
                gsd_store(at.copy, at.copy_type, i, w);
        }
    }
}
