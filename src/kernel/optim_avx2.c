/* Optimizer kernels for AVX2: 32 elements a round. What is left of a stretch, or stands before an
 * aligned line of its copy, goes through a round on the stack. */
#include "kernel/optim.h"

#if defined(__x86_64__)
#include "kernel/avx2.h"

#include <float.h>

typedef enum step_op { SGD, ADAM, LAMB, LAMB_STEP, FACTOR_STEP } step_op;

/* The settings in registers; see optim_avx512.c. */
typedef struct settings {
    __m256 unscale, limit, lowest;
    __m256 lr, momentum, gain, l2;
    __m256 beta1, rest1, beta2, rest2, root, unbias, eps, retain;
    bool clips, decays, nesterov, rooted;
    __m256 row;
    const float *col;
} settings;

INLINE settings sgd_settings(const gsi_sgd *set)
{
    return (settings){.unscale = _mm256_set1_ps(set->unscale),
                      .limit = _mm256_set1_ps(set->limit),
                      .lowest = _mm256_set1_ps(-set->limit),
                      .clips = set->limit <= FLT_MAX,
                      .lr = _mm256_set1_ps(set->lr),
                      .momentum = _mm256_set1_ps(set->momentum),
                      .gain = _mm256_set1_ps(set->gain),
                      .l2 = _mm256_set1_ps(set->l2),
                      .decays = set->l2 != 0,
                      .nesterov = set->nesterov};
}

INLINE settings adam_settings(const gsi_adam *set)
{
    return (settings){.unscale = _mm256_set1_ps(set->unscale),
                      .limit = _mm256_set1_ps(set->limit),
                      .lowest = _mm256_set1_ps(-set->limit),
                      .clips = set->limit <= FLT_MAX,
                      .lr = _mm256_set1_ps(set->lr),
                      .l2 = _mm256_set1_ps(set->l2),
                      .decays = set->l2 != 0,
                      .beta1 = _mm256_set1_ps(set->beta1),
                      .rest1 = _mm256_set1_ps(set->rest1),
                      .beta2 = _mm256_set1_ps(set->beta2),
                      .rest2 = _mm256_set1_ps(set->rest2),
                      .root = _mm256_set1_ps(set->root),
                      .unbias = _mm256_set1_ps(set->unbias),
                      .eps = _mm256_set1_ps(set->eps),
                      .retain = _mm256_set1_ps(set->retain),
                      .rooted = set->rooted};
}

INLINE settings factor_settings(const gsi_factor *set, const float *col, float row)
{
    return (settings){.unscale = _mm256_set1_ps(set->unscale),
                      .limit = _mm256_set1_ps(set->limit),
                      .lowest = _mm256_set1_ps(-set->limit),
                      .clips = set->limit <= FLT_MAX,
                      .lr = _mm256_set1_ps(set->lr),
                      .retain = _mm256_set1_ps(set->retain),
                      .row = _mm256_set1_ps(row),
                      .col = col};
}

/* x where it has a bit of the exponent's, else 0. */
INLINE __m256 from(__m256 x, uint32_t exponent)
{
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(x), all(exponent));
    const __m256i tiny = _mm256_cmpeq_epi32(bits, _mm256_setzero_si256());
    return _mm256_andnot_ps(_mm256_castsi256_ps(tiny), x);
}

INLINE __m256 keep(__m256 x) { return from(x, GSI_KEEP); }
INLINE __m256 term(__m256 x) { return from(x, GSI_TERM); }

/* min and max give their second operand for a NaN, as the comparisons of the reference do. */
INLINE __m256 gradient(const void *grad, size_t i, gs_dtype type, const settings *c)
{
    __m256 g = _mm256_castsi256_ps(load8(at(grad, i, type), type));
    g = _mm256_mul_ps(g, c->unscale);
    if (c->clips)
        g = _mm256_max_ps(c->lowest, _mm256_min_ps(c->limit, g));
    return keep(g);
}

/* With the decay that is added to the gradient. */
INLINE __m256 decayed(__m256 g, __m256 w, const settings *c)
{
    return c->decays ? _mm256_add_ps(g, _mm256_mul_ps(c->l2, w)) : g;
}

/* ---- 8 elements: from the weights to the new weights ---- */

INLINE __m256 sgd8(const gsi_slice *s, size_t i, gs_dtype type, __m256 w, const settings *c)
{
    __m256 d = decayed(gradient(s->grad, i, type, c), w, c);
    if (s->m) {
        const __m256 old = _mm256_loadu_ps(s->m + i);
        const __m256 m =
            keep(_mm256_add_ps(_mm256_mul_ps(c->momentum, old), _mm256_mul_ps(c->gain, d)));
        _mm256_storeu_ps(s->m + i, m);
        d = c->nesterov ? _mm256_add_ps(d, _mm256_mul_ps(c->momentum, m)) : m;
    }
    return keep(_mm256_sub_ps(w, _mm256_mul_ps(c->lr, keep(d))));
}

INLINE __m256 ratio(__m256 m, __m256 root, const settings *c)
{
    const __m256 seen = _mm256_cmp_ps(root, _mm256_setzero_ps(), _CMP_NEQ_UQ);
    const __m256 below = _mm256_add_ps(_mm256_mul_ps(root, c->root), c->eps);
    return keep(_mm256_and_ps(seen, _mm256_div_ps(m, below)));
}

/* Updates both moments; gives m and the root of v. */
INLINE __m256 moments8(const gsi_slice *s, size_t i, __m256 g, const settings *c, __m256 *root)
{
    const __m256 m0 = _mm256_loadu_ps(s->m + i);
    __m256 v0 = _mm256_loadu_ps(s->v + i);
    if (c->rooted)
        v0 = _mm256_mul_ps(v0, v0);
    const __m256 m = keep(_mm256_add_ps(_mm256_mul_ps(c->beta1, m0), _mm256_mul_ps(c->rest1, g)));
    const __m256 v = _mm256_add_ps(term(_mm256_mul_ps(c->beta2, v0)),
                                   term(_mm256_mul_ps(_mm256_mul_ps(c->rest2, g), g)));
    *root = _mm256_sqrt_ps(v);
    _mm256_storeu_ps(s->m + i, m);
    _mm256_storeu_ps(s->v + i, c->rooted ? *root : v);
    return m;
}

INLINE __m256 adam8(const gsi_slice *s, size_t i, gs_dtype type, __m256 w, const settings *c)
{
    const __m256 g = decayed(gradient(s->grad, i, type, c), w, c);
    __m256 root;
    const __m256 m = moments8(s, i, g, c, &root);
    return keep(
        _mm256_sub_ps(_mm256_mul_ps(w, c->retain), _mm256_mul_ps(c->lr, ratio(m, root, c))));
}

INLINE __m256 lamb_direction(__m256 w, __m256 m, __m256 root, const settings *c)
{
    return keep(
        _mm256_add_ps(_mm256_mul_ps(ratio(m, root, c), c->unbias), _mm256_mul_ps(c->l2, w)));
}

INLINE __m256 lamb_step8(const gsi_slice *s, size_t i, __m256 w, const settings *c)
{
    const __m256 m = keep(_mm256_loadu_ps(s->m + i)), v = _mm256_loadu_ps(s->v + i);
    const __m256 root = c->rooted ? keep(v) : _mm256_sqrt_ps(term(v));
    return keep(_mm256_sub_ps(w, _mm256_mul_ps(c->lr, lamb_direction(w, m, root, c))));
}

INLINE __m256 factor_direction(const void *grad, size_t i, gs_dtype type, const settings *c)
{
    const __m256 g = gradient(grad, i, type, c), col = _mm256_loadu_ps(c->col + i);
    return keep(_mm256_mul_ps(keep(_mm256_mul_ps(g, c->row)), col));
}

INLINE __m256 factor_step8(const gsi_slice *s, size_t i, gs_dtype type, __m256 w, const settings *c)
{
    const __m256 u = factor_direction(s->grad, i, type, c);
    return keep(_mm256_sub_ps(_mm256_mul_ps(w, c->retain), _mm256_mul_ps(c->lr, u)));
}

INLINE __m256i step8(step_op op, const gsi_slice *s, size_t i, gs_dtype type, const settings *c)
{
    const __m256 w = _mm256_loadu_ps(s->weight + i);
    const __m256 next = op == SGD         ? sgd8(s, i, type, w, c)
                        : op == ADAM      ? adam8(s, i, type, w, c)
                        : op == LAMB_STEP ? lamb_step8(s, i, w, c)
                                          : factor_step8(s, i, type, w, c);
    _mm256_storeu_ps(s->weight + i, next);
    return _mm256_castps_si256(next);
}

/* ---- a stretch ---- */

INLINE __m256i step32(step_op op, const gsi_slice *s, size_t i, gs_dtype type, const settings *c,
                      bool stream, __m256i top)
{
    for (size_t j = i; j < i + ROUND; j += 16) {
        const __m256i a = step8(op, s, j, type, c), b = step8(op, s, j + 8, type, c);
        if (s->copy)
            store(s->copy + j, to_half(a, b, s->copy_type), stream);
        top = raise(raise(top, a, GS_F32), b, GS_F32);
    }
    return top;
}

/* A round on the stack. What lies beyond n there is zero and stays so; nothing of it comes back. */
typedef struct stage {
    gsi_slice slice;
    float weight[ROUND], m[ROUND], v[ROUND], col[ROUND];
    uint32_t grad[ROUND];
    uint16_t copy[ROUND];
} stage;

INLINE void stage_in(stage *to, const gsi_slice *s, size_t i, size_t n, gs_dtype type,
                     const float *col)
{
    memset(to, 0, sizeof *to);
    to->slice = (gsi_slice){.weight = to->weight,
                            .copy = s->copy ? to->copy : NULL,
                            .copy_type = s->copy_type,
                            .m = s->m ? to->m : NULL,
                            .v = s->v ? to->v : NULL,
                            .grad = to->grad};
    memcpy(to->weight, s->weight + i, n * sizeof(float));
    if (s->m)
        memcpy(to->m, s->m + i, n * sizeof(float));
    if (s->v)
        memcpy(to->v, s->v + i, n * sizeof(float));
    if (s->grad)
        memcpy(to->grad, at(s->grad, i, type), n * size_of(type));
    if (col)
        memcpy(to->col, col + i, n * sizeof(float));
}

INLINE void stage_out(const gsi_slice *s, const stage *from_stage, size_t i, size_t n)
{
    memcpy(s->weight + i, from_stage->weight, n * sizeof(float));
    if (s->copy)
        memcpy(s->copy + i, from_stage->copy, n * sizeof(uint16_t));
    if (s->m)
        memcpy(s->m + i, from_stage->m, n * sizeof(float));
    if (s->v)
        memcpy(s->v + i, from_stage->v, n * sizeof(float));
}

INLINE __m256i step_part(step_op op, const gsi_slice *s, size_t i, size_t n, gs_dtype type,
                         const settings *c, __m256i top)
{
    stage on;
    settings there = *c;
    stage_in(&on, s, i, n, type, c->col);
    there.col = c->col ? on.col : NULL;
    top = step32(op, &on.slice, 0, type, &there, false, top);
    stage_out(s, &on, i, n);
    return top;
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
    __m256i top = _mm256_setzero_si256();
    size_t i = 0;
    if (s.copy && s.stream) { /* whole lines only: first up to a line's start */
        const size_t ahead = (64 - (uintptr_t)s.copy % 64) % 64 / 2;
        i = ahead < n ? ahead : n;
        if (i > 0)
            top = step_part(op, &s, 0, i, type, &c, top);
        for (; i + ROUND <= n; i += ROUND) {
            prefetch_streams(op, &s, i, type);
            top = step32(op, &s, i, type, &c, true, top);
        }
        _mm_sfence();
    }
    for (; i + ROUND <= n; i += ROUND) {
        prefetch_streams(op, &s, i, type);
        top = step32(op, &s, i, type, &c, false, top);
    }
    if (i < n)
        top = step_part(op, &s, i, n - i, type, &c, top);
    return highest(top, GS_F32);
}

/* ---- sums in f64: acc[k] holds lanes 4k to 4k + 3 ---- */

INLINE __m256d low4(__m256 x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
INLINE __m256d high4(__m256 x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }

/* The square of an f32 is exact in f64: fma or not is the same. */
INLINE void square_lanes(__m256d acc[2], __m256 x)
{
    acc[0] = _mm256_fmadd_pd(low4(x), low4(x), acc[0]);
    acc[1] = _mm256_fmadd_pd(high4(x), high4(x), acc[1]);
}

INLINE void clear(__m256d acc[8])
{
    for (int k = 0; k < 8; k++)
        acc[k] = _mm256_setzero_pd();
}

INLINE double sum(const __m256d acc[8])
{
    double lanes[GSI_LANES];
    for (int k = 0; k < 8; k++)
        _mm256_storeu_pd(lanes + 4 * k, acc[k]);
    return gsi_fold(lanes, 0);
}

INLINE void lamb32(const gsi_slice *s, size_t i, gs_dtype type, const settings *c,
                   __m256d weight[8], __m256d direction[8])
{
    for (size_t k = 0; k < 4; k++) {
        const size_t j = i + 8 * k;
        const __m256 w = _mm256_loadu_ps(s->weight + j);
        __m256 root;
        const __m256 m = moments8(s, j, gradient(s->grad, j, type, c), c, &root);
        square_lanes(direction + 2 * k, lamb_direction(w, m, root, c));
        square_lanes(weight + 2 * k, keep(w));
    }
}

INLINE void lamb(gsi_norms *norms, const gsi_slice *slice, size_t n, const gsi_adam *set,
                 gs_dtype type)
{
    const gsi_slice s = *slice;
    const settings c = adam_settings(set);
    __m256d weight[8], direction[8];
    size_t i = 0;
    clear(weight);
    clear(direction);
    for (; i + ROUND <= n; i += ROUND) {
        prefetch_streams(LAMB, &s, i, type);
        lamb32(&s, i, type, &c, weight, direction);
    }
    if (i < n) { /* zeros have no direction and add nothing */
        stage on;
        stage_in(&on, &s, i, n - i, type, NULL);
        lamb32(&on.slice, 0, type, &c, weight, direction);
        memcpy(s.m + i, on.m, (n - i) * sizeof(float));
        memcpy(s.v + i, on.v, (n - i) * sizeof(float));
    }
    *norms = (gsi_norms){sum(weight), sum(direction)};
}

/* 32 elements of a row. What is beyond n is padding: its squares are not to be eps but nothing. */
INLINE void squares32(double *cols, const void *grad, size_t n, gs_dtype type, const settings *c,
                      double eps, __m256d acc[8])
{
    for (size_t k = 0; k < 8; k++) {
        double each[4];
        for (size_t j = 0; j < 4; j++)
            each[j] = 4 * k + j < n ? eps : 0;
        const __m256 g8 = gradient(grad, k / 2 * 8, type, c);
        const __m256d g = k % 2 ? high4(g8) : low4(g8);
        const __m256d square = _mm256_fmadd_pd(g, g, _mm256_loadu_pd(each));
        _mm256_storeu_pd(cols + 4 * k, _mm256_add_pd(_mm256_loadu_pd(cols + 4 * k), square));
        acc[k] = _mm256_add_pd(acc[k], square);
    }
}

INLINE double squares(double *cols, const void *grad, size_t n, const gsi_factor *set,
                      gs_dtype type)
{
    const settings c = factor_settings(set, NULL, 1);
    __m256d acc[8];
    size_t i = 0;
    clear(acc);
    for (; i + ROUND <= n; i += ROUND) {
        prefetch(at(grad, i, type));
        squares32(cols + i, at(grad, i, type), ROUND, type, &c, set->eps, acc);
    }
    if (i < n) {
        uint32_t rest[ROUND] = {0};
        double there[ROUND] = {0};
        memcpy(rest, at(grad, i, type), (n - i) * size_of(type));
        memcpy(there, cols + i, (n - i) * sizeof(double));
        squares32(there, rest, n - i, type, &c, set->eps, acc);
        memcpy(cols + i, there, (n - i) * sizeof(double));
    }
    return sum(acc);
}

INLINE double factored(const float *col, float row, const void *grad, size_t n,
                       const gsi_factor *set, gs_dtype type)
{
    settings c = factor_settings(set, col, row);
    uint32_t rest[ROUND] = {0};
    float rest_col[ROUND] = {0};
    __m256d acc[8];
    size_t i = 0;
    clear(acc);
    for (; i + ROUND <= n; i += ROUND) {
        prefetch(at(grad, i, type));
        for (size_t k = 0; k < 4; k++)
            square_lanes(acc + 2 * k, factor_direction(grad, i + 8 * k, type, &c));
    }
    if (i < n) {
        memcpy(rest, at(grad, i, type), (n - i) * size_of(type));
        memcpy(rest_col, col + i, (n - i) * sizeof(float));
        c.col = rest_col;
        for (size_t k = 0; k < 4; k++)
            square_lanes(acc + 2 * k, factor_direction(rest, 8 * k, type, &c));
    }
    return sum(acc);
}

/* ---- the kernels ---- */

TARGET static uint32_t sgd_f32_avx2(const gsi_slice *s, size_t n, const gsi_sgd *set)
{
    return steps(SGD, s, n, GS_F32, sgd_settings(set));
}

TARGET static uint32_t sgd_f16_avx2(const gsi_slice *s, size_t n, const gsi_sgd *set)
{
    return steps(SGD, s, n, GS_F16, sgd_settings(set));
}

TARGET static uint32_t sgd_bf16_avx2(const gsi_slice *s, size_t n, const gsi_sgd *set)
{
    return steps(SGD, s, n, GS_BF16, sgd_settings(set));
}

TARGET static uint32_t adam_f32_avx2(const gsi_slice *s, size_t n, const gsi_adam *set)
{
    return steps(ADAM, s, n, GS_F32, adam_settings(set));
}

TARGET static uint32_t adam_f16_avx2(const gsi_slice *s, size_t n, const gsi_adam *set)
{
    return steps(ADAM, s, n, GS_F16, adam_settings(set));
}

TARGET static uint32_t adam_bf16_avx2(const gsi_slice *s, size_t n, const gsi_adam *set)
{
    return steps(ADAM, s, n, GS_BF16, adam_settings(set));
}

TARGET static void lamb_f32_avx2(gsi_norms *norms, const gsi_slice *s, size_t n,
                                 const gsi_adam *set)
{
    lamb(norms, s, n, set, GS_F32);
}

TARGET static void lamb_f16_avx2(gsi_norms *norms, const gsi_slice *s, size_t n,
                                 const gsi_adam *set)
{
    lamb(norms, s, n, set, GS_F16);
}

TARGET static void lamb_bf16_avx2(gsi_norms *norms, const gsi_slice *s, size_t n,
                                  const gsi_adam *set)
{
    lamb(norms, s, n, set, GS_BF16);
}

TARGET static uint32_t lamb_step_avx2(const gsi_slice *s, size_t n, const gsi_adam *set, float step)
{
    settings c = adam_settings(set);
    gsi_slice without = *s;
    without.grad = NULL; /* it is not read, whatever its type */
    c.lr = _mm256_set1_ps(step);
    return steps(LAMB_STEP, &without, n, GS_F32, c);
}

TARGET static double squares_f32_avx2(double *cols, const void *grad, size_t n,
                                      const gsi_factor *set)
{
    return squares(cols, grad, n, set, GS_F32);
}

TARGET static double squares_f16_avx2(double *cols, const void *grad, size_t n,
                                      const gsi_factor *set)
{
    return squares(cols, grad, n, set, GS_F16);
}

TARGET static double squares_bf16_avx2(double *cols, const void *grad, size_t n,
                                       const gsi_factor *set)
{
    return squares(cols, grad, n, set, GS_BF16);
}

TARGET static double factored_f32_avx2(const float *col, float row, const void *grad, size_t n,
                                       const gsi_factor *set)
{
    return factored(col, row, grad, n, set, GS_F32);
}

TARGET static double factored_f16_avx2(const float *col, float row, const void *grad, size_t n,
                                       const gsi_factor *set)
{
    return factored(col, row, grad, n, set, GS_F16);
}

TARGET static double factored_bf16_avx2(const float *col, float row, const void *grad, size_t n,
                                        const gsi_factor *set)
{
    return factored(col, row, grad, n, set, GS_BF16);
}

TARGET static uint32_t factor_step_f32_avx2(const gsi_slice *s, const float *col, float row,
                                            size_t n, const gsi_factor *set)
{
    return steps(FACTOR_STEP, s, n, GS_F32, factor_settings(set, col, row));
}

TARGET static uint32_t factor_step_f16_avx2(const gsi_slice *s, const float *col, float row,
                                            size_t n, const gsi_factor *set)
{
    return steps(FACTOR_STEP, s, n, GS_F16, factor_settings(set, col, row));
}

TARGET static uint32_t factor_step_bf16_avx2(const gsi_slice *s, const float *col, float row,
                                             size_t n, const gsi_factor *set)
{
    return steps(FACTOR_STEP, s, n, GS_BF16, factor_settings(set, col, row));
}

TARGET static void ema_f32_avx2(float *ema, const float *weight, size_t n, float decay, float rest)
{
    const __m256 d = _mm256_set1_ps(decay), r = _mm256_set1_ps(rest);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 e = _mm256_loadu_ps(ema + i), w = _mm256_loadu_ps(weight + i);
        prefetch(ema + i);
        _mm256_storeu_ps(ema + i, keep(_mm256_add_ps(_mm256_mul_ps(d, e), _mm256_mul_ps(r, w))));
    }
    gsi_optim_ref.ema_f32(ema + i, weight + i, n - i, decay, rest);
}

void gsi_optim_kernels_avx2(gsi_optim_kernels *k)
{
    *k = (gsi_optim_kernels){
#define X(name, family, from, to) .name = name##_avx2,
        GS_OPTIM_KERNELS(X)
#undef X
    };
}

#else
void gsi_optim_kernels_avx2(gsi_optim_kernels *k) { (void)k; }
#endif
