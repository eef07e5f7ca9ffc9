/* Optimizer kernels for AVX-512: 32 elements a round, the rest under masks. Every stream is
 * prefetched; the half copy, the only one that is written without having been read, bypasses the
 * caches where it is large. */
#include "kernel/optim.h"

#if defined(__x86_64__)
#include "kernel/avx512.h"

#include <float.h>

typedef enum step_op { SGD, ADAM, LAMB, LAMB_STEP, FACTOR_STEP } step_op;

/* The settings in registers; a step uses some of them. Copied before the loop: a store through a
 * float pointer could otherwise change them. */
typedef struct settings {
    __m512 unscale, limit, lowest;
    __m512 lr, momentum, gain, l2;
    __m512 beta1, rest1, beta2, rest2, root, unbias, eps, retain;
    bool clips, decays, nesterov, rooted;
    __m512 row;
    const float *col;
} settings;

INLINE settings sgd_settings(const gsi_sgd *set)
{
    return (settings){.unscale = _mm512_set1_ps(set->unscale),
                      .limit = _mm512_set1_ps(set->limit),
                      .lowest = _mm512_set1_ps(-set->limit),
                      .clips = set->limit <= FLT_MAX,
                      .lr = _mm512_set1_ps(set->lr),
                      .momentum = _mm512_set1_ps(set->momentum),
                      .gain = _mm512_set1_ps(set->gain),
                      .l2 = _mm512_set1_ps(set->l2),
                      .decays = set->l2 != 0,
                      .nesterov = set->nesterov};
}

INLINE settings adam_settings(const gsi_adam *set)
{
    return (settings){.unscale = _mm512_set1_ps(set->unscale),
                      .limit = _mm512_set1_ps(set->limit),
                      .lowest = _mm512_set1_ps(-set->limit),
                      .clips = set->limit <= FLT_MAX,
                      .lr = _mm512_set1_ps(set->lr),
                      .l2 = _mm512_set1_ps(set->l2),
                      .decays = set->l2 != 0,
                      .beta1 = _mm512_set1_ps(set->beta1),
                      .rest1 = _mm512_set1_ps(set->rest1),
                      .beta2 = _mm512_set1_ps(set->beta2),
                      .rest2 = _mm512_set1_ps(set->rest2),
                      .root = _mm512_set1_ps(set->root),
                      .unbias = _mm512_set1_ps(set->unbias),
                      .eps = _mm512_set1_ps(set->eps),
                      .retain = _mm512_set1_ps(set->retain),
                      .rooted = set->rooted};
}

INLINE settings factor_settings(const gsi_factor *set, const float *col, float row)
{
    return (settings){.unscale = _mm512_set1_ps(set->unscale),
                      .limit = _mm512_set1_ps(set->limit),
                      .lowest = _mm512_set1_ps(-set->limit),
                      .clips = set->limit <= FLT_MAX,
                      .lr = _mm512_set1_ps(set->lr),
                      .retain = _mm512_set1_ps(set->retain),
                      .row = _mm512_set1_ps(row),
                      .col = col};
}

/* The lanes that are not tiny. */
INLINE __mmask16 reaches(__m512 x, uint32_t exponent)
{
    return _mm512_test_epi32_mask(_mm512_castps_si512(x), _mm512_set1_epi32((int)exponent));
}

INLINE __m512 keep(__m512 x) { return _mm512_maskz_mov_ps(reaches(x, GSI_KEEP), x); }
INLINE __m512 term(__m512 x) { return _mm512_maskz_mov_ps(reaches(x, GSI_TERM), x); }

/* min and max give their second operand for a NaN, as the comparisons of the reference do. */
INLINE __m512 gradient(const void *grad, size_t i, gs_dtype type, __mmask16 lanes,
                       const settings *c)
{
    __m512 g = _mm512_castsi512_ps(load16(at(grad, i, type), type, lanes));
    g = _mm512_mul_ps(g, c->unscale);
    if (c->clips)
        g = _mm512_max_ps(c->lowest, _mm512_min_ps(c->limit, g));
    return keep(g);
}

/* With the decay that is added to the gradient. */
INLINE __m512 decayed(__m512 g, __m512 w, const settings *c)
{
    return c->decays ? _mm512_add_ps(g, _mm512_mul_ps(c->l2, w)) : g;
}

/* ---- 16 elements: from the weights to the new weights ---- */

INLINE __m512 sgd16(const gsi_slice *s, size_t i, gs_dtype type, __mmask16 lanes, __m512 w,
                    const settings *c)
{
    __m512 d = decayed(gradient(s->grad, i, type, lanes, c), w, c);
    if (s->m) {
        const __m512 old = _mm512_maskz_loadu_ps(lanes, s->m + i);
        const __m512 m =
            keep(_mm512_add_ps(_mm512_mul_ps(c->momentum, old), _mm512_mul_ps(c->gain, d)));
        _mm512_mask_storeu_ps(s->m + i, lanes, m);
        d = c->nesterov ? _mm512_add_ps(d, _mm512_mul_ps(c->momentum, m)) : m;
    }
    return keep(_mm512_sub_ps(w, _mm512_mul_ps(c->lr, keep(d))));
}

INLINE __m512 ratio(__m512 m, __m512 root, const settings *c)
{
    const __mmask16 seen = _mm512_cmp_ps_mask(root, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __m512 below = _mm512_add_ps(_mm512_mul_ps(root, c->root), c->eps);
    return keep(_mm512_maskz_div_ps(seen, m, below));
}

/* Updates both moments; gives m and the root of v. */
INLINE __m512 moments16(const gsi_slice *s, size_t i, __m512 g, __mmask16 lanes, const settings *c,
                        __m512 *root)
{
    const __m512 m0 = _mm512_maskz_loadu_ps(lanes, s->m + i);
    __m512 v0 = _mm512_maskz_loadu_ps(lanes, s->v + i);
    if (c->rooted)
        v0 = _mm512_mul_ps(v0, v0);
    const __m512 m = keep(_mm512_add_ps(_mm512_mul_ps(c->beta1, m0), _mm512_mul_ps(c->rest1, g)));
    const __m512 faded = term(_mm512_mul_ps(c->beta2, v0));
    const __m512 square = _mm512_mul_ps(_mm512_mul_ps(c->rest2, g), g);
    const __m512 v = _mm512_mask_add_ps(faded, reaches(square, GSI_TERM), faded, square);
    *root = _mm512_sqrt_ps(v);
    _mm512_mask_storeu_ps(s->m + i, lanes, m);
    _mm512_mask_storeu_ps(s->v + i, lanes, c->rooted ? *root : v);
    return m;
}

INLINE __m512 adam16(const gsi_slice *s, size_t i, gs_dtype type, __mmask16 lanes, __m512 w,
                     const settings *c)
{
    const __m512 g = decayed(gradient(s->grad, i, type, lanes, c), w, c);
    __m512 root;
    const __m512 m = moments16(s, i, g, lanes, c, &root);
    return keep(
        _mm512_sub_ps(_mm512_mul_ps(w, c->retain), _mm512_mul_ps(c->lr, ratio(m, root, c))));
}

INLINE __m512 lamb_direction(__m512 w, __m512 m, __m512 root, const settings *c)
{
    return keep(
        _mm512_add_ps(_mm512_mul_ps(ratio(m, root, c), c->unbias), _mm512_mul_ps(c->l2, w)));
}

INLINE __m512 lamb_step16(const gsi_slice *s, size_t i, __mmask16 lanes, __m512 w,
                          const settings *c)
{
    const __m512 m = keep(_mm512_maskz_loadu_ps(lanes, s->m + i));
    const __m512 v = _mm512_maskz_loadu_ps(lanes, s->v + i);
    const __m512 root = c->rooted ? keep(v) : _mm512_sqrt_ps(term(v));
    return keep(_mm512_sub_ps(w, _mm512_mul_ps(c->lr, lamb_direction(w, m, root, c))));
}

INLINE __m512 factor_direction(const void *grad, size_t i, gs_dtype type, __mmask16 lanes,
                               const settings *c)
{
    const __m512 g = gradient(grad, i, type, lanes, c);
    const __m512 col = _mm512_maskz_loadu_ps(lanes, c->col + i);
    return keep(_mm512_mul_ps(keep(_mm512_mul_ps(g, c->row)), col));
}

INLINE __m512 factor_step16(const gsi_slice *s, size_t i, gs_dtype type, __mmask16 lanes, __m512 w,
                            const settings *c)
{
    const __m512 u = factor_direction(s->grad, i, type, lanes, c);
    return keep(_mm512_sub_ps(_mm512_mul_ps(w, c->retain), _mm512_mul_ps(c->lr, u)));
}

INLINE __m512i step16(step_op op, const gsi_slice *s, size_t i, gs_dtype type, __mmask16 lanes,
                      const settings *c)
{
    const __m512 w = _mm512_maskz_loadu_ps(lanes, s->weight + i);
    const __m512 next = op == SGD         ? sgd16(s, i, type, lanes, w, c)
                        : op == ADAM      ? adam16(s, i, type, lanes, w, c)
                        : op == LAMB_STEP ? lamb_step16(s, i, lanes, w, c)
                                          : factor_step16(s, i, type, lanes, w, c);
    _mm512_mask_storeu_ps(s->weight + i, lanes, next);
    return _mm512_castps_si512(next);
}

/* ---- a stretch ---- */

INLINE __m512i step32(step_op op, const gsi_slice *s, size_t i, size_t n, gs_dtype type,
                      const settings *c, bool stream, __m512i top)
{
    const __mmask16 lo = first16(n), hi = first16(n < 16 ? 0 : n - 16);
    const __m512i a = step16(op, s, i, type, lo, c), b = step16(op, s, i + 16, type, hi, c);
    if (s->copy) {
        const __m512i h = _mm512_inserti64x4(_mm512_castsi256_si512(to_half(a, s->copy_type)),
                                             to_half(b, s->copy_type), 1);
        if (stream)
            _mm512_stream_si512((void *)(s->copy + i), h);
        else
            _mm512_mask_storeu_epi16(s->copy + i, first32(n), h);
    }
    top = _mm512_mask_max_epu32(top, lo, top, magnitude(a));
    return _mm512_mask_max_epu32(top, hi, top, magnitude(b));
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
    __m512i top = _mm512_setzero_si512();
    size_t i = 0;
    if (s.copy && s.stream) { /* whole lines only: first up to a line's start */
        const size_t ahead = (64 - (uintptr_t)s.copy % 64) % 64 / 2;
        i = ahead < n ? ahead : n;
        top = step32(op, &s, 0, i, type, &c, false, top);
        for (; i + 32 <= n; i += 32) {
            prefetch_streams(op, &s, i, type);
            top = step32(op, &s, i, 32, type, &c, true, top);
        }
        _mm_sfence();
    }
    for (; i + 32 <= n; i += 32) {
        prefetch_streams(op, &s, i, type);
        top = step32(op, &s, i, 32, type, &c, false, top);
    }
    if (i < n)
        top = step32(op, &s, i, n - i, type, &c, false, top);
    return gsi_top(_mm512_reduce_max_epu32(top));
}

/* ---- sums in f64: acc[k] holds lanes 8k to 8k + 7 ---- */

INLINE __m512d low8(__m512 x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
INLINE __m512d high8(__m512 x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }

/* The square of an f32 is exact in f64: fma or not is the same. */
INLINE void add_squares(__m512d acc[2], __m512 x)
{
    acc[0] = _mm512_fmadd_pd(low8(x), low8(x), acc[0]);
    acc[1] = _mm512_fmadd_pd(high8(x), high8(x), acc[1]);
}

INLINE void clear(__m512d acc[4])
{
    for (int k = 0; k < 4; k++)
        acc[k] = _mm512_setzero_pd();
}

INLINE double sum(const __m512d acc[4])
{
    double lanes[GSI_LANES];
    for (int k = 0; k < 4; k++)
        _mm512_storeu_pd(lanes + 8 * k, acc[k]);
    return gsi_fold(lanes, 0);
}

INLINE void lamb(gsi_norms *norms, const gsi_slice *slice, size_t n, const gsi_adam *set,
                 gs_dtype type)
{
    const gsi_slice s = *slice;
    const settings c = adam_settings(set);
    __m512d weight[4], direction[4];
    clear(weight);
    clear(direction);
    for (size_t i = 0; i < n; i += 32) {
        prefetch_streams(LAMB, &s, i, type);
        for (size_t k = 0; k < 2 && i + 16 * k < n; k++) {
            const size_t j = i + 16 * k;
            const __mmask16 lanes = first16(n - j);
            const __m512 w = _mm512_maskz_loadu_ps(lanes, s.weight + j);
            const __m512 g = gradient(s.grad, j, type, lanes, &c);
            __m512 root;
            const __m512 m = moments16(&s, j, g, lanes, &c, &root);
            add_squares(direction + 2 * k, lamb_direction(w, m, root, &c));
            add_squares(weight + 2 * k, keep(w));
        }
    }
    *norms = (gsi_norms){sum(weight), sum(direction)};
}

INLINE double squares(double *cols, const void *grad, size_t n, const gsi_factor *set,
                      gs_dtype type)
{
    const settings c = factor_settings(set, NULL, 1);
    const __m512d eps = _mm512_set1_pd(set->eps);
    __m512d acc[4];
    clear(acc);
    for (size_t i = 0; i < n; i += 32) {
        prefetch(at(grad, i, type));
        for (size_t k = 0; k < 4 && i + 8 * k < n; k++) {
            const size_t j = i + 8 * k, left = n - j;
            const __mmask8 lanes = (__mmask8)first16(left < 8 ? left : 8);
            const __m512d g = low8(gradient(grad, j, type, lanes, &c));
            const __m512d square = _mm512_maskz_fmadd_pd(lanes, g, g, eps);
            const __m512d old = _mm512_maskz_loadu_pd(lanes, cols + j);
            _mm512_mask_storeu_pd(cols + j, lanes, _mm512_add_pd(old, square));
            acc[k] = _mm512_add_pd(acc[k], square);
        }
    }
    return sum(acc);
}

INLINE double factored(const float *col, float row, const void *grad, size_t n,
                       const gsi_factor *set, gs_dtype type)
{
    const settings c = factor_settings(set, col, row);
    __m512d acc[4];
    clear(acc);
    for (size_t i = 0; i < n; i += 32) {
        prefetch(at(grad, i, type));
        for (size_t k = 0; k < 2 && i + 16 * k < n; k++) {
            const size_t j = i + 16 * k;
            add_squares(acc + 2 * k, factor_direction(grad, j, type, first16(n - j), &c));
        }
    }
    return sum(acc);
}

/* ---- the kernels ---- */

TARGET static uint32_t sgd_f32_avx512(const gsi_slice *s, size_t n, const gsi_sgd *set)
{
    return steps(SGD, s, n, GS_F32, sgd_settings(set));
}

TARGET static uint32_t sgd_f16_avx512(const gsi_slice *s, size_t n, const gsi_sgd *set)
{
    return steps(SGD, s, n, GS_F16, sgd_settings(set));
}

TARGET static uint32_t sgd_bf16_avx512(const gsi_slice *s, size_t n, const gsi_sgd *set)
{
    return steps(SGD, s, n, GS_BF16, sgd_settings(set));
}

TARGET static uint32_t adam_f32_avx512(const gsi_slice *s, size_t n, const gsi_adam *set)
{
    return steps(ADAM, s, n, GS_F32, adam_settings(set));
}

TARGET static uint32_t adam_f16_avx512(const gsi_slice *s, size_t n, const gsi_adam *set)
{
    return steps(ADAM, s, n, GS_F16, adam_settings(set));
}

TARGET static uint32_t adam_bf16_avx512(const gsi_slice *s, size_t n, const gsi_adam *set)
{
    return steps(ADAM, s, n, GS_BF16, adam_settings(set));
}

TARGET static void lamb_f32_avx512(gsi_norms *norms, const gsi_slice *s, size_t n,
                                   const gsi_adam *set)
{
    lamb(norms, s, n, set, GS_F32);
}

TARGET static void lamb_f16_avx512(gsi_norms *norms, const gsi_slice *s, size_t n,
                                   const gsi_adam *set)
{
    lamb(norms, s, n, set, GS_F16);
}

TARGET static void lamb_bf16_avx512(gsi_norms *norms, const gsi_slice *s, size_t n,
                                    const gsi_adam *set)
{
    lamb(norms, s, n, set, GS_BF16);
}

TARGET static uint32_t lamb_step_avx512(const gsi_slice *s, size_t n, const gsi_adam *set,
                                        float step)
{
    settings c = adam_settings(set);
    c.lr = _mm512_set1_ps(step);
    return steps(LAMB_STEP, s, n, GS_F32, c);
}

TARGET static double squares_f32_avx512(double *cols, const void *grad, size_t n,
                                        const gsi_factor *set)
{
    return squares(cols, grad, n, set, GS_F32);
}

TARGET static double squares_f16_avx512(double *cols, const void *grad, size_t n,
                                        const gsi_factor *set)
{
    return squares(cols, grad, n, set, GS_F16);
}

TARGET static double squares_bf16_avx512(double *cols, const void *grad, size_t n,
                                         const gsi_factor *set)
{
    return squares(cols, grad, n, set, GS_BF16);
}

TARGET static double factored_f32_avx512(const float *col, float row, const void *grad, size_t n,
                                         const gsi_factor *set)
{
    return factored(col, row, grad, n, set, GS_F32);
}

TARGET static double factored_f16_avx512(const float *col, float row, const void *grad, size_t n,
                                         const gsi_factor *set)
{
    return factored(col, row, grad, n, set, GS_F16);
}

TARGET static double factored_bf16_avx512(const float *col, float row, const void *grad, size_t n,
                                          const gsi_factor *set)
{
    return factored(col, row, grad, n, set, GS_BF16);
}

TARGET static uint32_t factor_step_f32_avx512(const gsi_slice *s, const float *col, float row,
                                              size_t n, const gsi_factor *set)
{
    return steps(FACTOR_STEP, s, n, GS_F32, factor_settings(set, col, row));
}

TARGET static uint32_t factor_step_f16_avx512(const gsi_slice *s, const float *col, float row,
                                              size_t n, const gsi_factor *set)
{
    return steps(FACTOR_STEP, s, n, GS_F16, factor_settings(set, col, row));
}

TARGET static uint32_t factor_step_bf16_avx512(const gsi_slice *s, const float *col, float row,
                                               size_t n, const gsi_factor *set)
{
    return steps(FACTOR_STEP, s, n, GS_BF16, factor_settings(set, col, row));
}

TARGET static void ema_f32_avx512(float *ema, const float *weight, size_t n, float decay,
                                  float rest)
{
    const __m512 d = _mm512_set1_ps(decay), r = _mm512_set1_ps(rest);
    for (size_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first16(n - i);
        const __m512 e = _mm512_maskz_loadu_ps(lanes, ema + i);
        const __m512 w = _mm512_maskz_loadu_ps(lanes, weight + i);
        prefetch(ema + i);
        _mm512_mask_storeu_ps(ema + i, lanes,
                              keep(_mm512_add_ps(_mm512_mul_ps(d, e), _mm512_mul_ps(r, w))));
    }
}

void gsi_optim_kernels_avx512(gsi_optim_kernels *k)
{
    *k = (gsi_optim_kernels){
#define X(name, family, from, to) .name = name##_avx512,
        GS_OPTIM_KERNELS(X)
#undef X
    };
}

#else
void gsi_optim_kernels_avx512(gsi_optim_kernels *k) { (void)k; }
#endif
