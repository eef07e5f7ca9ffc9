/* The optimizer kernels in vectors: a template. A round is 32 elements; every stream is prefetched;
 * the half copy, the only one that is written without having been read, bypasses the caches where
 * it is large. The including source has included the header of its instruction set (avx2.h ...)
 * and defined
 *
 *     #define KERNEL(name), FAMILY(name)         the names of a kernel, and of what makes kernels
 *     enum { WIDTH }                             floats per vector
 *     typedef vf, vd, vu                         vectors of floats, of doubles, of bits
 *
 *     vf load_n(const void *p, gs_dtype type, size_t n)    n elements as f32, then zeros
 *     void store_n(float *p, vf x, size_t n)
 *     vd load_f64(const double *p, size_t n)
 *     void store_f64(double *p, vd x, size_t n)
 *     void store_copy(uint16_t *p, vf a, vf b, gs_dtype type, size_t n, bool stream)
 *                                                n halves, rounded to nearest; streams whole lines
 *     void fence(void)                           after streaming
 *
 *     typedef bit_keys; bit_keys keys_of(uint64_t key)
 *     typedef random_bits                        of the GSI_RANDOM_GROUP elements of a group
 *     void draw(random_bits r[2], const bit_keys k[2], uint64_t group)     of two keys
 *     vu store_random(uint16_t *p, vf a, vf b, const random_bits *r, size_t i, gs_dtype, vu top)
 *                                                halves, rounded with those of element i of the
 *                                                group and on; raises top
 *
 *     vf reaching(vf y, uint32_t mask, vf x)     x where y has a bit of the mask, else 0
 *     vf add_reaching(vf a, uint32_t mask, vf b) a + b where b has a bit of the mask, else a
 *     vf min_f32(vf a, vf b), max_f32            a < b ? a : b, a > b ? a : b, also for NaN
 *     vf sqrt_f32(vf x)
 *     vd low(vf x), high(vf x)                   half of the lanes as f64
 *     vd mul_add(vd x, vd y, vd s)               x y + s
 *
 * Fewer than all lanes, in what is left of a span or stands before an aligned line of its copy,
 * are padded with zeros: their weights are zero and stay so. All bits are those of ref.c. It
 * has no guard: the amalgamation includes it once per instruction set. */
#define EACH_VEC(k, step) _Pragma("GCC unroll 8") for (size_t k = 0; k < LANES; k += step)

enum { LANES = GSI_LANES, SUMS = 2 * LANES / WIDTH };

typedef enum step_op { SGD, ADAM, LAMB, LAMB_STEP, FACTOR_STEP } step_op;

INLINE vf splat(float x) { return x - (vf){0}; } /* keeps every x, -0 too */

/* What a step is told; it uses some of it. A copy on the stack: a store through a float pointer
 * could otherwise change what the loop keeps in registers. */
typedef struct settings {
    gsi_sgd sgd;
    gsi_adam adam;
    gsi_factor factor;
    const float *col;
    float row;
} settings;

INLINE vf keep(vf x) { return reaching(x, GSI_KEEP, x); }
INLINE vf term(vf x) { return reaching(x, GSI_TERM, x); }

/* Settings are compared as bits: comparing floats in the loop takes turns with its divisions. */
INLINE vf gradient(const void *grad, size_t i, size_t n, gs_dtype type, float unscale, float limit)
{
    vf g = load_n(at(grad, i, type), type, n) * unscale;
    if (gsi_bits(limit) < GSI_F32_INF)
        g = max_f32(splat(-limit), min_f32(splat(limit), g)); /* a NaN stays */
    return keep(g);
}

/* With the decay that is added to the gradient. Here and below gcc takes a splat out of the loop
 * only if it stands before the branch. */
INLINE vf decayed(vf g, vf w, float l2)
{
    const vf by = splat(l2);
    return gsi_magnitude(gsi_bits(l2)) ? g + by * w : g;
}

/* ---- a vector, n elements of it: from the weights to the new weights ---- */

INLINE vf sgd_lanes(const gsi_slice *s, size_t i, size_t n, gs_dtype type, vf w, const gsi_sgd *set)
{
    const vf g = gradient(s->grad, i, n, type, set->unscale, set->limit);
    const vf momentum = splat(set->momentum), gain = splat(set->gain);
    vf d = decayed(g, w, set->l2);
    if (s->m) {
        const vf m = keep(momentum * load_n(s->m + i, GS_F32, n) + gain * d);
        store_n(s->m + i, m, n);
        d = set->nesterov ? d + momentum * m : m;
    }
    return keep(w - set->lr * keep(d));
}

/* A root is not tiny unless it is zero. */
INLINE vf ratio(vf m, vf root, const gsi_adam *set)
{
    return keep(reaching(root, GSI_KEEP, m / (root * set->root + set->eps)));
}

INLINE vf next_m(vf m, vf g, const gsi_adam *set) { return keep(set->beta1 * m + set->rest1 * g); }

INLINE vf next_v(vf v, vf g, const gsi_adam *set)
{
    return add_reaching(term(set->beta2 * v), GSI_TERM, set->rest2 * g * g);
}

/* Updates both moments; gives m and the root of v. */
INLINE vf moments(const gsi_slice *s, size_t i, size_t n, vf g, const gsi_adam *set, vf *root)
{
    const vf v0 = load_n(s->v + i, GS_F32, n);
    const vf m = next_m(load_n(s->m + i, GS_F32, n), g, set);
    const vf v = next_v(set->rooted ? v0 * v0 : v0, g, set);
    *root = sqrt_f32(v);
    store_n(s->m + i, m, n);
    store_n(s->v + i, set->rooted ? *root : v, n);
    return m;
}

INLINE vf adam_step(vf w, vf m, vf root, const gsi_adam *set)
{
    return keep(w * set->retain - set->lr * ratio(m, root, set));
}

INLINE vf adam_lanes(const gsi_slice *s, size_t i, size_t n, gs_dtype type, vf w,
                     const gsi_adam *set)
{
    const vf g = gradient(s->grad, i, n, type, set->unscale, set->limit);
    vf root;
    const vf m = moments(s, i, n, decayed(g, w, set->l2), set, &root);
    return adam_step(w, m, root, set);
}

INLINE vf lamb_direction(vf w, vf m, vf root, const gsi_adam *set)
{
    return keep(ratio(m, root, set) * set->unbias + set->l2 * w);
}

INLINE vf lamb_step_lanes(const gsi_slice *s, size_t i, size_t n, vf w, const gsi_adam *set)
{
    const vf m = keep(load_n(s->m + i, GS_F32, n)), v = load_n(s->v + i, GS_F32, n);
    const vf root = set->rooted ? keep(v) : sqrt_f32(term(v));
    return keep(w - set->lr * lamb_direction(w, m, root, set));
}

INLINE vf factor_direction(const void *grad, size_t i, size_t n, gs_dtype type, const settings *c)
{
    const vf g = gradient(grad, i, n, type, c->factor.unscale, c->factor.limit);
    return keep(keep(g * c->row) * load_n(c->col + i, GS_F32, n));
}

INLINE vf factor_step_lanes(const gsi_slice *s, size_t i, size_t n, gs_dtype type, vf w,
                            const settings *c)
{
    return keep(w * c->factor.retain - c->factor.lr * factor_direction(s->grad, i, n, type, c));
}

INLINE vf step_lanes(step_op op, const gsi_slice *s, size_t i, size_t n, gs_dtype type,
                     const settings *c)
{
    const vf w = load_n(s->weight + i, GS_F32, n);
    const vf next = op == SGD         ? sgd_lanes(s, i, n, type, w, &c->sgd)
                    : op == ADAM      ? adam_lanes(s, i, n, type, w, &c->adam)
                    : op == LAMB_STEP ? lamb_step_lanes(s, i, n, w, &c->adam)
                                      : factor_step_lanes(s, i, n, type, w, c);
    store_n(s->weight + i, next, n);
    return next;
}

/* ---- a span ---- */

/* Of n elements, those from k on that a vector takes. */
INLINE size_t lanes(size_t n, size_t k) { return n < k ? 0 : n - k < WIDTH ? n - k : WIDTH; }

INLINE vu step_round(step_op op, const gsi_slice *s, size_t i, size_t n, gs_dtype type,
                     const settings *c, bool stream, vu top)
{
    EACH_VEC (k, 2 * WIDTH) {
        const size_t j = i + k, na = lanes(n, k), nb = lanes(n, k + WIDTH);
        const vf a = step_lanes(op, s, j, na, type, c);
        const vf b = step_lanes(op, s, j + WIDTH, nb, type, c);
        if (s->copy)
            store_copy(s->copy + j, a, b, s->copy_type, na + nb, stream);
        top = raise(raise(top, (vu)a, GS_F32), (vu)b, GS_F32);
    }
    return top;
}

/* Less than a round. By reference, once for all kernels: their settings stay in registers. */
TARGET static __attribute__((noinline)) void step_part(step_op op, const gsi_slice *s, size_t i,
                                                       size_t n, gs_dtype type, const settings *c,
                                                       vu *top)
{
    *top = step_round(op, s, i, n, type, c, false, *top);
}

/* 32 elements are two lines of f32 or one of halves. */
INLINE void prefetch_f32(const float *p)
{
    prefetch(p);
    prefetch(p + 16);
}

INLINE void prefetch_streams(step_op op, const gsi_slice *s, size_t i, gs_dtype type)
{
    prefetch_f32(s->weight + i);
    if (op != LAMB_STEP) {
        prefetch(at(s->grad, i, type));
        if (type == GS_F32)
            prefetch(at(s->grad, i + 16, type));
    }
    if (op != FACTOR_STEP && s->m)
        prefetch_f32(s->m + i);
    if (op != FACTOR_STEP && op != SGD)
        prefetch_f32(s->v + i);
}

INLINE uint32_t steps(step_op op, const gsi_slice *slice, size_t n, gs_dtype type, settings c)
{
    const gsi_slice s = *slice;
    const settings there = c;
    vu top = {0}, parts = {0};
    size_t i = 0;
    if (s.copy && s.stream) { /* whole lines only: first up to a line's start */
        const size_t ahead = (64 - (uintptr_t)s.copy % 64) % 64 / 2;
        i = ahead < n ? ahead : n;
        if (i > 0)
            step_part(op, slice, 0, i, type, &there, &parts);
        for (; i + LANES <= n; i += LANES) {
            prefetch_streams(op, &s, i, type);
            top = step_round(op, &s, i, LANES, type, &c, true, top);
        }
        fence();
    }
    for (; i + LANES <= n; i += LANES) {
        prefetch_streams(op, &s, i, type);
        top = step_round(op, &s, i, LANES, type, &c, false, top);
    }
    if (i < n)
        step_part(op, slice, i, n - i, type, &there, &parts);
    return highest(raise(top, parts, GS_F32), GS_F32);
}

INLINE uint32_t FAMILY(sgd)(const gsi_slice *s, size_t n, const gsi_sgd *set, gs_dtype type)
{
    return steps(SGD, s, n, type, (settings){.sgd = *set});
}

INLINE uint32_t FAMILY(adam)(const gsi_slice *s, size_t n, const gsi_adam *set, gs_dtype type)
{
    return steps(ADAM, s, n, type, (settings){.adam = *set});
}

/* ---- moments in half types ---- */

/* A vector from element i on. m and the root of v come back as they are to be rounded. */
INLINE vf adam_half_lanes(const gsi_slice *s, const gsi_half_moments *h, size_t i, gs_dtype type,
                          gs_dtype half, const gsi_adam *set, vf *m, vf *root)
{
    const vf w = load_n(s->weight + i, GS_F32, WIDTH);
    const vf g = decayed(gradient(s->grad, i, WIDTH, type, set->unscale, set->limit), w, set->l2);
    const vf v0 = load_n(h->at[1] + i, half, WIDTH) * h->load[1];
    *m = next_m(load_n(h->at[0] + i, half, WIDTH) * h->load[0], g, set);
    *root = sqrt_f32(next_v(v0 * v0, g, set));
    const vf next = adam_step(w, *m, *root, set);
    store_n(s->weight + i, next, WIDTH);
    *m *= h->save[0];
    *root *= h->save[1];
    return next;
}

/* Divisions and roots leave room beside them for the products that make random bits. */
INLINE uint32_t FAMILY(adam_half)(const gsi_slice *slice, gsi_half_moments *moments, size_t n,
                                  const gsi_adam *adam, gs_dtype type, gs_dtype half)
{
    const gsi_slice s = *slice;
    const gsi_half_moments h = *moments;
    const gsi_adam set = *adam;
    const bit_keys keys[2] = {keys_of(h.key[0]), keys_of(h.key[1])};
    const bool stream = s.stream && (uintptr_t)s.copy % 64 == 0;
    vu top = {0}, tops[2] = {{0}, {0}};
    for (size_t first = 0; first < n; first += GSI_RANDOM_GROUP) {
        random_bits r[2];
        draw(r, keys, (h.first + first) / GSI_RANDOM_GROUP);
        for (size_t i = 0; i < GSI_RANDOM_GROUP; i += 2 * WIDTH) {
            const size_t j = first + i;
            vf m[2], root[2], w[2];
            if (i % LANES == 0) {
                prefetch_streams(SGD, &s, j, type);
                prefetch(h.at[0] + j);
                prefetch(h.at[1] + j);
            }
            for (size_t k = 0; k < 2; k++)
                w[k] = adam_half_lanes(&s, &h, j + k * WIDTH, type, half, &set, &m[k], &root[k]);
            tops[0] = store_random(h.at[0] + j, m[0], m[1], &r[0], i, half, tops[0]);
            tops[1] = store_random(h.at[1] + j, root[0], root[1], &r[1], i, half, tops[1]);
            if (s.copy)
                store_copy(s.copy + j, w[0], w[1], s.copy_type, 2 * WIDTH, stream);
            top = raise(raise(top, (vu)w[0], GS_F32), (vu)w[1], GS_F32);
        }
    }
    if (stream)
        fence();
    for (size_t k = 0; k < 2; k++)
        moments->top[k] = highest(tops[k], half);
    return highest(top, GS_F32);
}

INLINE uint32_t FAMILY(lamb_step)(const gsi_slice *s, size_t n, const gsi_adam *set, float by)
{
    settings c = {.adam = *set};
    c.adam.lr = by;
    return steps(LAMB_STEP, s, n, GS_F32, c);
}

INLINE uint32_t FAMILY(factor_step)(const gsi_slice *s, const float *col, float row, size_t n,
                                    const gsi_factor *set, gs_dtype type)
{
    return steps(FACTOR_STEP, s, n, type, (settings){.factor = *set, .col = col, .row = row});
}

INLINE void FAMILY(ema)(float *ema, const float *weight, size_t n, float decay, float rest)
{
    size_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        prefetch(ema + i);
        const vf e = load_n(ema + i, GS_F32, WIDTH), w = load_n(weight + i, GS_F32, WIDTH);
        store_n(ema + i, keep(decay * e + rest * w), WIDTH);
    }
    if (i < n) {
        const vf e = load_n(ema + i, GS_F32, n - i), w = load_n(weight + i, GS_F32, n - i);
        store_n(ema + i, keep(decay * e + rest * w), n - i);
    }
}

/* ---- sums in f64: vector k of them holds the lanes from k * WIDTH / 2 on ---- */

/* The square of an f32 is exact in f64: fma or not is the same. */
INLINE void add_squares(vd sums[2], vf x)
{
    sums[0] = mul_add(low(x), low(x), sums[0]);
    sums[1] = mul_add(high(x), high(x), sums[1]);
}

INLINE double sum(const vd sums[SUMS])
{
    double each[LANES];
    EACH_VEC (k, WIDTH / 2)
        store_f64(each + k, sums[2 * k / WIDTH], WIDTH / 2);
    return gsi_fold(each, 0);
}

INLINE void lamb_round(const gsi_slice *s, size_t i, size_t n, gs_dtype type, const gsi_adam *set,
                       vd weight[SUMS], vd direction[SUMS])
{
    EACH_VEC (k, WIDTH) {
        const size_t j = i + k, some = lanes(n, k);
        const vf w = load_n(s->weight + j, GS_F32, some);
        const vf g = gradient(s->grad, j, some, type, set->unscale, set->limit);
        vf root;
        const vf m = moments(s, j, some, g, set, &root);
        add_squares(direction + 2 * k / WIDTH, lamb_direction(w, m, root, set));
        add_squares(weight + 2 * k / WIDTH, keep(w));
    }
}

INLINE void FAMILY(lamb)(gsi_norms *norms, const gsi_slice *slice, size_t n, const gsi_adam *set,
                         gs_dtype type)
{
    const gsi_slice s = *slice;
    const gsi_adam c = *set;
    vd weight[SUMS] = {{0}}, direction[SUMS] = {{0}};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        prefetch_streams(LAMB, &s, i, type);
        lamb_round(&s, i, LANES, type, &c, weight, direction);
    }
    if (i < n) /* zeros have no direction and add nothing */
        lamb_round(&s, i, n - i, type, &c, weight, direction);
    *norms = (gsi_norms){sum(weight), sum(direction)};
}

/* What is beyond n is padding: its squares are not to be eps but nothing. */
INLINE vd square(double *cols, vd g, double eps, size_t n)
{
    const vd all_eps = eps - (vd){0};
    vd each = {0};
    memcpy(&each, &all_eps, n * sizeof eps);
    each = mul_add(g, g, each);
    store_f64(cols, load_f64(cols, n) + each, n);
    return each;
}

INLINE void squares_round(double *cols, const void *grad, size_t n, gs_dtype type,
                          const gsi_factor *set, vd sums[SUMS])
{
    const size_t half = WIDTH / 2;
    EACH_VEC (k, WIDTH) {
        const size_t some = lanes(n, k), first = some < half ? some : half;
        const vf g = gradient(grad, k, some, type, set->unscale, set->limit);
        sums[k / half] += square(cols + k, low(g), set->eps, first);
        sums[k / half + 1] += square(cols + k + half, high(g), set->eps, some - first);
    }
}

INLINE double FAMILY(squares)(double *cols, const void *grad, size_t n, const gsi_factor *set,
                              gs_dtype type)
{
    const gsi_factor c = *set;
    vd sums[SUMS] = {{0}};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        prefetch(at(grad, i, type));
        squares_round(cols + i, at(grad, i, type), LANES, type, &c, sums);
    }
    if (i < n)
        squares_round(cols + i, at(grad, i, type), n - i, type, &c, sums);
    return sum(sums);
}

INLINE void factored_round(const void *grad, size_t i, size_t n, gs_dtype type, const settings *c,
                           vd sums[SUMS])
{
    EACH_VEC (k, WIDTH)
        add_squares(sums + 2 * k / WIDTH, factor_direction(grad, i + k, lanes(n, k), type, c));
}

INLINE double FAMILY(factored)(const float *col, float row, const void *grad, size_t n,
                               const gsi_factor *set, gs_dtype type)
{
    const settings c = {.factor = *set, .col = col, .row = row};
    vd sums[SUMS] = {{0}};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        prefetch(at(grad, i, type));
        factored_round(grad, i, LANES, type, &c, sums);
    }
    if (i < n)
        factored_round(grad, i, n - i, type, &c, sums);
    return sum(sums);
}

/* ---- the kernels ---- */

#define X(name, family, from, to) \
    GSI_MAKE_##family(static TARGET, KERNEL(name), FAMILY(family), GS_##from, GS_##to)
GS_OPTIM_KERNELS(X)
#undef X

void KERNEL(gsi_optim)(gsi_kernels *k)
{
#define X(name, family, from, to) k->optim.GSI_SLOT_##family(from, to) = KERNEL(name);
    GS_OPTIM_KERNELS(X)
#undef X
}
