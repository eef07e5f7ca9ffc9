/* AVX-512 (F, BW, DQ, VL): 32 elements a round, the rest under masks.
 *
 * Software prefetch: the hardware's does not cross a 4 KB page, and one core cannot otherwise keep
 * enough lines in flight. Non-temporal stores skip reading the destination's lines first, which
 * makes a pass that leaves the caches up to twice as fast, and half as fast in one that does not.
 */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include "kernel/avx512.h"

/* ---- elementwise: convert, scale, axpy ---- */

/* 32 f32 in a and b, the first n of them, go to dst + i. */
INLINE __m512i store32(void *dst, gs_dtype type, __m512i a, __m512i b, size_t n, bool stream,
                       __m512i top)
{
    if (type == GS_F32) {
        char *const second = (char *)dst + 64;
        if (stream) {
            _mm512_stream_si512(dst, a);
            _mm512_stream_si512((void *)second, b);
        } else {
            _mm512_mask_storeu_epi32(dst, first16(n), a);
            _mm512_mask_storeu_epi32(second, first16(n < 16 ? 0 : n - 16), b);
        }
        return raise(raise(top, a, GS_F32), b, GS_F32);
    }
    const __m512i h =
        _mm512_inserti64x4(_mm512_castsi256_si512(to_half(a, type)), to_half(b, type), 1);
    if (stream)
        _mm512_stream_si512(dst, h);
    else
        _mm512_mask_storeu_epi16(dst, first32(n), h);
    return raise(top, h, type);
}

typedef enum map_op { CONVERT, SCALE } map_op;

INLINE __m512i map32(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n, map_op op,
                     __m512 factor, bool stream, __m512i top)
{
    __m512i a = load16(src, from, first16(n));
    __m512i b = load16(at(src, 16, from), from, first16(n < 16 ? 0 : n - 16));
    if (op == SCALE) {
        a = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(a), factor));
        b = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(b), factor));
    } else if (from == GS_BF16 && to == GS_F32) {
        a = quiet(a);
        b = quiet(b);
    }
    return store32(dst, to, a, b, n, stream, top);
}

INLINE uint32_t map(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n, map_op op,
                    float by, bool stream)
{
    const __m512 factor = _mm512_set1_ps(by);
    __m512i top = _mm512_setzero_si512();
    char *d = dst;
    const char *s = src;
    const size_t dsize = 32 * gsi_size_of(to), ssize = 32 * gsi_size_of(from);

    if (stream) { /* whole lines only: first up to a line's start */
        const size_t ahead = (64 - (uintptr_t)dst % 64) % 64 / gsi_size_of(to);
        const size_t head = ahead < n ? ahead : n;
        top = map32(d, to, s, from, head, op, factor, false, top);
        d += head * gsi_size_of(to);
        s += head * gsi_size_of(from);
        n -= head;
        for (; n >= 32; n -= 32, d += dsize, s += ssize) {
            prefetch(s);
            top = map32(d, to, s, from, 32, op, factor, true, top);
        }
        _mm_sfence();
    }
    for (; n >= 32; n -= 32, d += dsize, s += ssize) {
        prefetch(s);
        top = map32(d, to, s, from, 32, op, factor, false, top);
    }
    if (n > 0)
        top = map32(d, to, s, from, n, op, factor, false, top);
    return highest(top, to);
}

INLINE __m512i axpy32(float *y, const void *src, gs_dtype from, size_t n, __m512 factor,
                      __m512i top)
{
    const __mmask16 ma = first16(n), mb = first16(n < 16 ? 0 : n - 16);
    const __m512 xa = _mm512_castsi512_ps(load16(src, from, ma));
    const __m512 xb = _mm512_castsi512_ps(load16(at(src, 16, from), from, mb));
    const __m512 ya = _mm512_add_ps(_mm512_maskz_loadu_ps(ma, y), _mm512_mul_ps(factor, xa));
    const __m512 yb = _mm512_add_ps(_mm512_maskz_loadu_ps(mb, y + 16), _mm512_mul_ps(factor, xb));
    return store32(y, GS_F32, _mm512_castps_si512(ya), _mm512_castps_si512(yb), n, false, top);
}

INLINE uint32_t avx512_axpy(void *dst, const void *src, gs_dtype from, size_t n, float by)
{
    const __m512 factor = _mm512_set1_ps(by);
    __m512i top = _mm512_setzero_si512();
    float *y = dst;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        prefetch(y + i);
        prefetch(at(src, i, from));
        top = axpy32(y + i, at(src, i, from), from, 32, factor, top);
    }
    if (i < n)
        top = axpy32(y + i, at(src, i, from), from, n - i, factor, top);
    return highest(top, GS_F32);
}

/* ---- stochastic rounding ---- */

/* Words of 16 consecutive Philox blocks, w[k] holding word k of each. */
INLINE void philox16(__m512i w[4], uint64_t key, uint64_t block)
{
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    __m512i c0 = _mm512_add_epi32(_mm512_set1_epi32((int)block), lane); /* block % 16 == 0 */
    __m512i c1 = _mm512_set1_epi32((int)(block >> 32));
    __m512i c2 = _mm512_setzero_si512(), c3 = c2;

    for (int round = 0; round < 10; round++) {
        const __mmask16 odd = 0xAAAA;
        const __m512i e0 = _mm512_mul_epu32(c0, m0),
                      o0 = _mm512_mul_epu32(_mm512_srli_epi64(c0, 32), m0);
        const __m512i e1 = _mm512_mul_epu32(c2, m1),
                      o1 = _mm512_mul_epu32(_mm512_srli_epi64(c2, 32), m1);
        const __m512i hi0 = _mm512_mask_blend_epi32(odd, _mm512_srli_epi64(e0, 32), o0);
        const __m512i hi1 = _mm512_mask_blend_epi32(odd, _mm512_srli_epi64(e1, 32), o1);
        c0 = _mm512_xor_si512(_mm512_xor_si512(hi1, c1), _mm512_set1_epi32((int)k0));
        c2 = _mm512_xor_si512(_mm512_xor_si512(hi0, c3), _mm512_set1_epi32((int)k1));
        c1 = _mm512_mask_blend_epi32(odd, e1, _mm512_slli_epi64(o1, 32));
        c3 = _mm512_mask_blend_epi32(odd, e0, _mm512_slli_epi64(o0, 32));
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    w[0] = c0;
    w[1] = c1;
    w[2] = c2;
    w[3] = c3;
}

/* gsi_narrow with 16 random bits, lane by lane; variable shifts by 32 and more give 0. */
INLINE __m256i to_f16_sr(__m512i u, __m512i random)
{
    const __m512i mag = magnitude(u), one = _mm512_set1_epi32(1), emin = _mm512_set1_epi32(113);
    const __m512i e = _mm512_max_epi32(_mm512_srli_epi32(mag, 23), one);
    const __mmask16 normal = _mm512_cmpge_epu32_mask(mag, _mm512_set1_epi32(0x800000));
    const __m512i fraction = _mm512_and_si512(mag, _mm512_set1_epi32(0x7FFFFF));
    const __m512i significand =
        _mm512_mask_or_epi32(fraction, normal, fraction, _mm512_set1_epi32(0x800000));
    const __m512i zero = _mm512_setzero_si512();
    const __m512i below = _mm512_max_epi32(_mm512_sub_epi32(emin, e), zero);
    const __m512i left = _mm512_sub_epi32(_mm512_set1_epi32(3), below); /* 16 - cut */
    const __m512i fixed =
        _mm512_or_si512(_mm512_sllv_epi32(significand, left),
                        _mm512_srlv_epi32(significand, _mm512_sub_epi32(zero, left)));
    const __m512i base = _mm512_slli_epi32(_mm512_max_epi32(_mm512_sub_epi32(e, emin), zero), 10);
    const __m512i code =
        _mm512_add_epi32(base, _mm512_srli_epi32(_mm512_add_epi32(fixed, random), 16));
    const __m512i sign = _mm512_srli_epi32(_mm512_xor_si512(u, mag), 16);
    const __mmask16 high = _mm512_cmpge_epu32_mask(mag, _mm512_set1_epi32(0x477FE000)); /* 65504 */
    return _mm256_mask_mov_epi16(_mm512_cvtepi32_epi16(_mm512_or_si512(code, sign)), high,
                                 to_half(u, GS_F16));
}

INLINE __m256i to_bf16_sr(__m512i u, __m512i random)
{
    const __mmask16 high = _mm512_cmpge_epu32_mask(magnitude(u), _mm512_set1_epi32(0x7F7F0000));
    const __m512i code = _mm512_srli_epi32(_mm512_add_epi32(u, random), 16);
    return _mm256_mask_mov_epi16(_mm512_cvtepi32_epi16(code), high, to_bf16(u));
}

/* The n elements of a random group from its element `skip` on: n + skip <= GSI_RANDOM_GROUP. */
INLINE __m256i stochastic_group(uint16_t *dst, gs_dtype to, const void *src, gs_dtype from,
                                size_t skip, size_t n, uint64_t seed, uint64_t group, __m256i top)
{
    __m512i w[4];
    philox16(w, seed, group * 16);
    for (size_t row = 0; row < 8; row++) { /* elements [16 row, 16 row + 16) of the group */
        const size_t lo = row * 16 > skip ? row * 16 : skip, end = skip + n;
        const size_t hi = row * 16 + 16 < end ? row * 16 + 16 : end;
        if (lo >= hi)
            continue;
        const __m512i r = row % 2 ? _mm512_srli_epi32(w[row / 2], 16)
                                  : _mm512_and_si512(w[row / 2], _mm512_set1_epi32(0xFFFF));
        const __mmask16 lanes = (__mmask16)(first16(hi - row * 16) & ~first16(lo - row * 16));
        /* Lane k of the row is src[16 row + k - skip]: the lanes before `skip` are masked. */
        const ptrdiff_t offset = (ptrdiff_t)(row * 16) - (ptrdiff_t)skip;
        const char *s =
            (const char *)((uintptr_t)src + (uintptr_t)(offset * (ptrdiff_t)gsi_size_of(from)));
        uint16_t *d = (uint16_t *)((uintptr_t)dst + (uintptr_t)(offset * 2));
        const __m512i u = load16(s, from, lanes);
        const __m256i h = to == GS_F16 ? to_f16_sr(u, r) : to_bf16_sr(u, r);
        _mm256_mask_storeu_epi16(d, lanes, h);
        top =
            _mm256_mask_max_epu16(top, lanes, top, _mm256_and_si256(h, _mm256_set1_epi16(0x7FFF)));
    }
    return top;
}

INLINE uint32_t avx512_stochastic(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                                  uint64_t seed, uint64_t first)
{
    __m256i top = _mm256_setzero_si256();
    for (size_t i = 0; i < n;) {
        const uint64_t group = (first + i) / GSI_RANDOM_GROUP;
        const size_t skip = (size_t)((first + i) % GSI_RANDOM_GROUP),
                     room = GSI_RANDOM_GROUP - skip;
        const size_t count = room < n - i ? room : n - i;
        prefetch(at(src, i, from));
        prefetch(at(src, i + 32, from));
        top = stochastic_group((uint16_t *)dst + i, to, at(src, i, from), from, skip, count, seed,
                               group, top);
        i += count;
    }
    return highest(_mm512_zextsi256_si512(top), to);
}

/* ---- reductions: check, scan, count ---- */

INLINE uint32_t avx512_check(const void *src, size_t n, gs_dtype type)
{
    const size_t per = 64 / gsi_size_of(type); /* elements a vector */
    __m512i t0 = _mm512_setzero_si512(), t1 = t0, t2 = t0, t3 = t0;
    size_t i = 0;
    for (; i + 4 * per <= n; i += 4 * per) {
        const char *p = at(src, i, type);
        prefetch(p);
        prefetch(p + 64);
        prefetch(p + 128);
        prefetch(p + 192);
        t0 = raise(t0, _mm512_loadu_si512(p), type);
        t1 = raise(t1, _mm512_loadu_si512(p + 64), type);
        t2 = raise(t2, _mm512_loadu_si512(p + 128), type);
        t3 = raise(t3, _mm512_loadu_si512(p + 192), type);
    }
    for (; i < n; i += 16) {
        const __mmask16 lanes = first16(n - i);
        const __m512i u =
            type == GS_F32
                ? _mm512_maskz_loadu_epi32(lanes, at(src, i, type))
                : _mm512_zextsi256_si512(_mm256_maskz_loadu_epi16(lanes, at(src, i, type)));
        t0 = raise(t0, u, type);
    }
    if (type == GS_F32)
        t0 = _mm512_max_epu32(_mm512_max_epu32(t0, t1), _mm512_max_epu32(t2, t3));
    else
        t0 = _mm512_max_epu16(_mm512_max_epu16(t0, t1), _mm512_max_epu16(t2, t3));
    return highest(t0, type);
}

/* acc[k] holds lanes 8k to 8k + 7. */
INLINE void add_f64(__m512d acc[2], __m512 x)
{
    acc[0] = _mm512_add_pd(acc[0], _mm512_cvtps_pd(_mm512_castps512_ps256(x)));
    acc[1] = _mm512_add_pd(acc[1], _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)));
}

/* The rare block: squares in f64. The square of an f32 is exact there, so fma is as good. */
TARGET static void squares_f64(__m512d acc[4], const void *src, gs_dtype type)
{
    for (size_t i = 0; i < GSI_BLOCK; i += 8) {
        const __m256 x =
            _mm512_castps512_ps256(_mm512_castsi512_ps(load16(at(src, i, type), type, 0xFF)));
        const __m512d d = _mm512_cvtps_pd(x);
        acc[i / 8 % 4] = _mm512_fmadd_pd(d, d, acc[i / 8 % 4]);
    }
}

/* A whole block. Returns its largest magnitude, lane by lane of the type. */
INLINE __m512i scan_block(__m512d acc[4], const void *src, gs_dtype type)
{
    __m512 lo = _mm512_setzero_ps(), hi = lo;
    __m512i top = _mm512_setzero_si512();
    for (size_t i = 0; i < GSI_BLOCK; i += GSI_LANES) {
        const void *p = at(src, i, type);
        prefetch(p);
        if (type == GS_F32)
            prefetch(at(p, 16, type));
        const __m512i a = load16(p, type, 0xFFFF), b = load16(at(p, 16, type), type, 0xFFFF);
        const __m512 x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
        lo = _mm512_add_ps(lo, _mm512_mul_ps(x, x));
        hi = _mm512_add_ps(hi, _mm512_mul_ps(y, y));
        if (type == GS_F32)
            top = raise(raise(top, a, type), b, type);
        else
            top = raise(top, _mm512_loadu_si512(p), type);
    }
    if (gsi_sums_in_f32(highest(top, type))) {
        add_f64(acc, lo);
        add_f64(acc + 2, hi);
    } else {
        squares_f64(acc, src, type);
    }
    return top;
}

INLINE uint32_t avx512_scan(double *sumsq, const void *src, size_t n, gs_dtype type)
{
    __m512d acc[4] = {_mm512_setzero_pd(), _mm512_setzero_pd(), _mm512_setzero_pd(),
                      _mm512_setzero_pd()};
    __m512i top = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + GSI_BLOCK <= n; i += GSI_BLOCK)
        top = raise(top, scan_block(acc, at(src, i, type), type), type);
    if (i < n) { /* zeros add nothing, in any lane */
        uint32_t rest[GSI_BLOCK] = {0};
        memcpy(rest, at(src, i, type), (n - i) * gsi_size_of(type));
        top = raise(top, scan_block(acc, rest, type), type);
    }
    double lanes[GSI_LANES];
    for (int k = 0; k < 4; k++)
        _mm512_storeu_pd(lanes + 8 * k, acc[k]);
    *sumsq = gsi_fold(lanes, highest(top, type));
    return highest(top, type);
}

/* Counts of 16 elements. */
INLINE __m512i count16(gsi_counts *c, const void *src, size_t i, size_t n, gsi_limits limits,
                       gs_dtype type, __m512i top)
{
    const __m512i inf = _mm512_set1_epi32((int)GSI_F32_INF), none = _mm512_setzero_si512();
    const __mmask16 lanes = first16(i < n ? n - i : 0);
    const __m512i mag = magnitude(load16(at(src, i, type), type, lanes));
    const unsigned bad = _mm512_cmpge_epu32_mask(mag, inf);
    if (bad) {
        const unsigned is_inf = _mm512_cmpeq_epu32_mask(mag, inf);
        c->inf += (uint64_t)__builtin_popcount(is_inf);
        c->nan += (uint64_t)__builtin_popcount(bad & ~is_inf);
        if (c->first_bad == n)
            c->first_bad = i + (size_t)__builtin_ctz(bad);
    }
    const unsigned zero = _mm512_mask_cmpeq_epu32_mask(lanes, mag, none);
    const unsigned low = _mm512_cmplt_epu32_mask(mag, _mm512_set1_epi32((int)limits.flushed));
    const unsigned sub = _mm512_cmplt_epu32_mask(mag, _mm512_set1_epi32((int)limits.subnormal));
    c->zero += (uint64_t)__builtin_popcount(zero);
    c->flushed += (uint64_t)__builtin_popcount(low & ~zero & lanes);
    c->subnormal += (uint64_t)__builtin_popcount(sub & ~low & lanes);

    return _mm512_max_epu32(top, _mm512_mask_mov_epi32(mag, (__mmask16)bad, none));
}

INLINE void avx512_count(gsi_counts *out, const void *src, size_t n, gsi_limits limits,
                         gs_dtype type)
{
    __m512i top = _mm512_setzero_si512();
    gsi_counts c = {.first_bad = n};
    for (size_t i = 0; i < n; i += 16) {
        prefetch(at(src, i, type));
        top = count16(&c, src, i, n, limits, type, top);
    }
    c.amax = _mm512_reduce_max_epu32(top);
    *out = c;
}

INLINE uint32_t avx512_convert(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                               bool stream)
{
    return map(dst, to, src, from, n, CONVERT, 1, stream);
}

INLINE uint32_t avx512_scale(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                             float factor, bool stream)
{
    return map(dst, to, src, from, n, SCALE, factor, stream);
}

/* ---- the kernels ---- */

#define X(name, family, from, to) \
    GSI_MAKE_##family(static TARGET, name##_avx512, avx512_##family, GS_##from, GS_##to)
GS_PASSES(X)
#undef X

void gsi_kernels_avx512(gsi_kernels *k)
{
#define X(name, family, from, to) k->name = name##_avx512;
    GS_PASSES(X)
#undef X
}

#else
void gsi_kernels_avx512(gsi_kernels *k) { (void)k; }
#endif
