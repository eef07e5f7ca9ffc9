/* AVX2 with FMA and F16C: 32 elements a round. What is left of an array, or stands before an
 * aligned line of its destination, goes through a round on the stack, padded with zeros, which
 * change neither a maximum nor a sum. Why prefetch and non-temporal stores: see avx512.c. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,f16c,fma,popcnt")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { AHEAD = 4096, ROUND = 32 };

INLINE void prefetch(const void *p)
{
    _mm_prefetch((const char *)((uintptr_t)p + AHEAD), _MM_HINT_T0);
}

INLINE size_t size_of(gs_dtype type) { return type == GS_F32 ? 4 : 2; }

INLINE const void *at(const void *src, size_t i, gs_dtype type)
{
    return (const char *)src + i * size_of(type);
}

INLINE __m256i load(const void *p) { return _mm256_loadu_si256(p); }
INLINE __m256i all(uint32_t u) { return _mm256_set1_epi32((int)u); }
INLINE __m256i magnitude(__m256i u) { return _mm256_and_si256(u, all(0x7FFFFFFF)); }

/* ---- 8 elements in a register as f32 bits ---- */

INLINE __m256i load8(const void *src, gs_dtype type)
{
    if (type == GS_F32)
        return load(src);
    const __m128i h = _mm_loadu_si128(src);
    if (type == GS_F16)
        return _mm256_castps_si256(_mm256_cvtph_ps(h));
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
}

/* All ones where u is a NaN. */
INLINE __m256i is_nan(__m256i u) { return _mm256_cmpgt_epi32(magnitude(u), all(GSI_F32_INF)); }

INLINE __m256i quiet(__m256i u)
{
    return _mm256_or_si256(u, _mm256_and_si256(is_nan(u), all(0x400000)));
}

/* Codes in 32-bit lanes. */
INLINE __m256i to_bf16(__m256i u)
{
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), all(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, all(0x7FFF)), odd);
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet(u), is_nan(u)), 16);
}

/* The 16 codes of a and b, in order. */
INLINE __m256i pack(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
}

INLINE __m128i to_f16(__m256i u)
{
    return _mm256_cvtps_ph(_mm256_castsi256_ps(u), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE __m256i to_half(__m256i a, __m256i b, gs_dtype type)
{
    if (type == GS_BF16)
        return pack(to_bf16(a), to_bf16(b));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(to_f16(a)), to_f16(b), 1);
}

/* ---- the largest magnitude, in the lanes of the type itself ---- */

INLINE __m256i raise(__m256i top, __m256i stored, gs_dtype type)
{
    if (type == GS_F32)
        return _mm256_max_epu32(top, magnitude(stored));
    return _mm256_max_epu16(top, _mm256_and_si256(stored, _mm256_set1_epi16(0x7FFF)));
}

INLINE uint32_t highest(__m256i top, gs_dtype type)
{
    uint32_t lanes[8], best = 0;
    if (type != GS_F32) /* codes: the larger of each pair */
        top = _mm256_max_epu32(_mm256_and_si256(top, all(0xFFFF)), _mm256_srli_epi32(top, 16));
    _mm256_storeu_si256((void *)lanes, top);
    for (int i = 0; i < 8; i++)
        best = lanes[i] > best ? lanes[i] : best;
    if (type != GS_F32)
        best = gsi_widen(best, type == GS_F16 ? GSI_ROW_F16 : GSI_ROW_BF16);
    return gsi_top(best);
}

/* ---- elementwise: convert, scale, axpy ---- */

INLINE void store(void *dst, __m256i v, bool stream)
{
    if (stream)
        _mm256_stream_si256(dst, v);
    else
        _mm256_storeu_si256(dst, v);
}

/* 16 f32 in a and b. */
INLINE __m256i store16(void *dst, gs_dtype type, __m256i a, __m256i b, bool stream, __m256i top)
{
    if (type == GS_F32) {
        store(dst, a, stream);
        store((char *)dst + 32, b, stream);
        return raise(raise(top, a, type), b, type);
    }
    const __m256i h = to_half(a, b, type);
    store(dst, h, stream);
    return raise(top, h, type);
}

typedef enum map_op { CONVERT, SCALE } map_op;

INLINE __m256i map8(const void *src, gs_dtype from, gs_dtype to, map_op op, __m256 factor)
{
    const __m256i u = load8(src, from);
    if (op == SCALE)
        return _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(u), factor));
    return from == GS_BF16 && to == GS_F32 ? quiet(u) : u;
}

INLINE __m256i map32(void *dst, gs_dtype to, const void *src, gs_dtype from, map_op op,
                     __m256 factor, bool stream, __m256i top)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < ROUND; i += 16) {
        const __m256i a = map8(at(src, i, from), from, to, op, factor);
        const __m256i b = map8(at(src, i + 8, from), from, to, op, factor);
        top = store16((char *)dst + i * size_of(to), to, a, b, stream, top);
    }
    return top;
}

/* n < ROUND elements. */
INLINE __m256i map_rest(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n, map_op op,
                        __m256 factor, __m256i top)
{
    uint32_t in[ROUND] = {0}, out[ROUND];
    memcpy(in, src, n * size_of(from));
    top = map32(out, to, in, from, op, factor, false, top);
    memcpy(dst, out, n * size_of(to));
    return top;
}

INLINE uint32_t map(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n, map_op op,
                    float by, bool stream)
{
    const __m256 factor = _mm256_set1_ps(by);
    __m256i top = _mm256_setzero_si256();
    char *d = dst;
    const char *s = src;
    const size_t dsize = ROUND * size_of(to), ssize = ROUND * size_of(from);

    if (stream) {
        const size_t ahead = (32 - (uintptr_t)dst % 32) % 32 / size_of(to);
        const size_t head = ahead < n ? ahead : n;
        top = map_rest(d, to, s, from, head, op, factor, top);
        d += head * size_of(to);
        s += head * size_of(from);
        n -= head;
        for (; n >= ROUND; n -= ROUND, d += dsize, s += ssize) {
            prefetch(s);
            top = map32(d, to, s, from, op, factor, true, top);
        }
        _mm_sfence();
    }
    for (; n >= ROUND; n -= ROUND, d += dsize, s += ssize) {
        prefetch(s);
        top = map32(d, to, s, from, op, factor, false, top);
    }
    if (n > 0)
        top = map_rest(d, to, s, from, n, op, factor, top);
    return highest(top, to);
}

INLINE __m256i axpy32(float *y, const void *src, gs_dtype from, __m256 factor, __m256i top)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < ROUND; i += 8) {
        const __m256 x = _mm256_castsi256_ps(load8(at(src, i, from), from));
        const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_mul_ps(factor, x));
        _mm256_storeu_ps(y + i, sum);
        top = raise(top, _mm256_castps_si256(sum), GS_F32);
    }
    return top;
}

INLINE uint32_t axpy(void *dst, const void *src, gs_dtype from, size_t n, float by)
{
    const __m256 factor = _mm256_set1_ps(by);
    __m256i top = _mm256_setzero_si256();
    float *y = dst;
    size_t i = 0;
    for (; i + ROUND <= n; i += ROUND) {
        prefetch(y + i);
        prefetch(at(src, i, from));
        top = axpy32(y + i, at(src, i, from), from, factor, top);
    }
    if (i < n) {
        float rest[ROUND] = {0};
        uint32_t in[ROUND] = {0};
        memcpy(rest, y + i, (n - i) * sizeof *y);
        memcpy(in, at(src, i, from), (n - i) * size_of(from));
        top = axpy32(rest, in, from, factor, top);
        memcpy(y + i, rest, (n - i) * sizeof *y);
    }
    return highest(top, GS_F32);
}

/* ---- stochastic rounding ---- */

/* Words of 8 consecutive Philox blocks, w[k] holding word k of each. */
INLINE void philox8(__m256i w[4], uint64_t key, uint64_t block)
{
    const __m256i m0 = _mm256_set1_epi64x(0xD2511F53), m1 = _mm256_set1_epi64x(0xCD9E8D57);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    __m256i c0 = _mm256_add_epi32(all((uint32_t)block), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    __m256i c1 = all((uint32_t)(block >> 32)); /* block % 8 == 0: no carry */
    __m256i c2 = _mm256_setzero_si256(), c3 = c2;

    for (int round = 0; round < 10; round++) {
        const __m256i e0 = _mm256_mul_epu32(c0, m0);
        const __m256i o0 = _mm256_mul_epu32(_mm256_srli_epi64(c0, 32), m0);
        const __m256i e1 = _mm256_mul_epu32(c2, m1);
        const __m256i o1 = _mm256_mul_epu32(_mm256_srli_epi64(c2, 32), m1);
        const __m256i hi0 = _mm256_blend_epi32(_mm256_srli_epi64(e0, 32), o0, 0xAA);
        const __m256i hi1 = _mm256_blend_epi32(_mm256_srli_epi64(e1, 32), o1, 0xAA);
        c0 = _mm256_xor_si256(_mm256_xor_si256(hi1, c1), all(k0));
        c2 = _mm256_xor_si256(_mm256_xor_si256(hi0, c3), all(k1));
        c1 = _mm256_blend_epi32(e1, _mm256_slli_epi64(o1, 32), 0xAA);
        c3 = _mm256_blend_epi32(e0, _mm256_slli_epi64(o0, 32), 0xAA);
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    w[0] = c0;
    w[1] = c1;
    w[2] = c2;
    w[3] = c3;
}

/* gsi_narrow with 16 random bits, lane by lane; variable shifts by 32 and more give 0. */
INLINE __m256i to_f16_sr(__m256i u, __m256i random)
{
    const __m256i mag = magnitude(u), emin = all(113), zero = _mm256_setzero_si256();
    const __m256i e = _mm256_max_epi32(_mm256_srli_epi32(mag, 23), all(1));
    const __m256i hidden = _mm256_and_si256(_mm256_cmpgt_epi32(mag, all(0x7FFFFF)), all(0x800000));
    const __m256i significand = _mm256_or_si256(_mm256_and_si256(mag, all(0x7FFFFF)), hidden);
    const __m256i below = _mm256_max_epi32(_mm256_sub_epi32(emin, e), zero);
    const __m256i left = _mm256_sub_epi32(all(3), below); /* 16 - cut */
    const __m256i fixed =
        _mm256_or_si256(_mm256_sllv_epi32(significand, left),
                        _mm256_srlv_epi32(significand, _mm256_sub_epi32(zero, left)));
    const __m256i base = _mm256_slli_epi32(_mm256_max_epi32(_mm256_sub_epi32(e, emin), zero), 10);
    const __m256i part = _mm256_srli_epi32(_mm256_add_epi32(fixed, random), 16);
    const __m256i sign = _mm256_srli_epi32(_mm256_xor_si256(u, mag), 16);
    const __m256i code = _mm256_or_si256(_mm256_add_epi32(base, part), sign);
    const __m256i high = _mm256_cmpgt_epi32(mag, all(0x477FDFFF)); /* from 65504 */
    return _mm256_blendv_epi8(code, _mm256_cvtepu16_epi32(to_f16(u)), high);
}

INLINE __m256i to_bf16_sr(__m256i u, __m256i random)
{
    const __m256i high = _mm256_cmpgt_epi32(magnitude(u), all(0x7F7EFFFF));
    const __m256i code = _mm256_srli_epi32(_mm256_add_epi32(u, random), 16);
    return _mm256_blendv_epi8(code, to_bf16(u), high);
}

INLINE __m256i round_sr(const void *src, gs_dtype from, gs_dtype to, __m256i word, size_t row)
{
    const __m256i random =
        row % 2 ? _mm256_srli_epi32(word, 16) : _mm256_and_si256(word, all(0xFFFF));
    const __m256i u = load8(src, from);
    return to == GS_F16 ? to_f16_sr(u, random) : to_bf16_sr(u, random);
}

/* A whole random group. */
INLINE __m256i stochastic_group(uint16_t *dst, gs_dtype to, const void *src, gs_dtype from,
                                uint64_t seed, uint64_t group, __m256i top)
{
    __m256i lo[4], hi[4]; /* blocks 0 to 7 and 8 to 15 */
    philox8(lo, seed, group * 16);
    philox8(hi, seed, group * 16 + 8);
    for (size_t row = 0; row < 8; row++) {
        const char *s = at(src, row * 16, from);
        const __m256i a = round_sr(s, from, to, lo[row / 2], row);
        const __m256i b = round_sr(at(s, 8, from), from, to, hi[row / 2], row);
        const __m256i h = pack(a, b);
        store(dst + row * 16, h, false);
        top = raise(top, h, to);
    }
    return top;
}

INLINE uint32_t stochastic(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                           uint64_t seed, uint64_t first)
{
    __m256i top = _mm256_setzero_si256();
    uint16_t *d = dst;
    for (size_t i = 0; i < n;) {
        const uint64_t group = (first + i) / GSI_RANDOM_GROUP;
        const size_t skip = (size_t)((first + i) % GSI_RANDOM_GROUP);
        const size_t room = GSI_RANDOM_GROUP - skip, count = room < n - i ? room : n - i;
        const void *s = at(src, i, from);
        if (count == GSI_RANDOM_GROUP) {
            prefetch(s);
            top = stochastic_group(d + i, to, s, from, seed, group, top);
        } else {
            uint32_t in[GSI_RANDOM_GROUP] = {0};
            uint16_t out[GSI_RANDOM_GROUP];
            memcpy((char *)in + skip * size_of(from), s, count * size_of(from));
            top = stochastic_group(out, to, in, from, seed, group, top);
            memcpy(d + i, out + skip, count * sizeof *d);
        }
        i += count;
    }
    return highest(top, to);
}

/* ---- reductions: check, scan, count ---- */

INLINE uint32_t check(const void *src, size_t n, gs_dtype type)
{
    const size_t per = 32 / size_of(type); /* elements a vector */
    __m256i t0 = _mm256_setzero_si256(), t1 = t0, t2 = t0, t3 = t0;
    size_t i = 0;
    for (; i + 4 * per <= n; i += 4 * per) {
        const char *p = at(src, i, type);
        prefetch(p);
        prefetch(p + 64);
        t0 = raise(t0, load(p), type);
        t1 = raise(t1, load(p + 32), type);
        t2 = raise(t2, load(p + 64), type);
        t3 = raise(t3, load(p + 96), type);
    }
    while (i < n) {
        uint32_t rest[8] = {0};
        const size_t count = n - i < per ? n - i : per;
        memcpy(rest, at(src, i, type), count * size_of(type));
        t0 = raise(t0, load(rest), type);
        i += count;
    }
    t0 = raise(raise(raise(t0, t1, type), t2, type), t3, type);
    return highest(t0, type);
}

/* acc[k] holds lanes 4k to 4k + 3. */
INLINE void add_f64(__m256d acc[2], __m256 x)
{
    acc[0] = _mm256_add_pd(acc[0], _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
    acc[1] = _mm256_add_pd(acc[1], _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
}

/* The rare block: squares in f64, where they are exact. */
TARGET static void squares_f64(__m256d acc[8], const void *src, gs_dtype type)
{
    for (size_t i = 0; i < GSI_BLOCK; i += 8) {
        const __m256 x = _mm256_castsi256_ps(load8(at(src, i, type), type));
        const __m256d lo = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
        const __m256d hi = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
        __m256d *lanes = acc + i / 4 % 8;
        lanes[0] = _mm256_fmadd_pd(lo, lo, lanes[0]);
        lanes[1] = _mm256_fmadd_pd(hi, hi, lanes[1]);
    }
}

/* A whole block. Returns its largest magnitude, lane by lane, as f32. */
INLINE __m256i scan_block(__m256d acc[8], const void *src, gs_dtype type)
{
    __m256 part[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                      _mm256_setzero_ps()};
    __m256i top = _mm256_setzero_si256();
    for (size_t i = 0; i < GSI_BLOCK; i += GSI_LANES) {
        prefetch(at(src, i, type));
        if (type == GS_F32)
            prefetch(at(src, i + 16, type));
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++) {
            const __m256i u = load8(at(src, i + 8 * k, type), type);
            const __m256 x = _mm256_castsi256_ps(u);
            part[k] = _mm256_add_ps(part[k], _mm256_mul_ps(x, x));
            top = raise(top, u, GS_F32);
        }
    }
    if (gsi_sums_in_f32(highest(top, GS_F32))) {
        for (size_t k = 0; k < 4; k++)
            add_f64(acc + 2 * k, part[k]);
    } else {
        squares_f64(acc, src, type);
    }
    return top;
}

INLINE uint32_t scan(double *sumsq, const void *src, size_t n, gs_dtype type)
{
    __m256d acc[8];
    __m256i top = _mm256_setzero_si256();
    size_t i = 0;
    for (int k = 0; k < 8; k++)
        acc[k] = _mm256_setzero_pd();
    for (; i + GSI_BLOCK <= n; i += GSI_BLOCK)
        top = raise(top, scan_block(acc, at(src, i, type), type), GS_F32);
    if (i < n) {
        uint32_t rest[GSI_BLOCK] = {0};
        memcpy(rest, at(src, i, type), (n - i) * size_of(type));
        top = raise(top, scan_block(acc, rest, type), GS_F32);
    }
    double lanes[GSI_LANES];
    for (int k = 0; k < 8; k++)
        _mm256_storeu_pd(lanes + 4 * k, acc[k]);
    *sumsq = gsi_fold(lanes, highest(top, GS_F32));
    return highest(top, GS_F32);
}

INLINE unsigned lanes_of(__m256i test)
{
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(test));
}

INLINE uint64_t ones(unsigned lanes) { return (uint64_t)__builtin_popcount(lanes); }

/* Counts of 8 elements; first_bad is the caller's. Returns the lanes that are not finite. */
INLINE unsigned count8(gsi_counts *c, __m256i mag, gsi_limits limits, __m256i *top)
{
    const __m256i bad = _mm256_cmpgt_epi32(mag, all(GSI_F32_INF - 1));
    const __m256i zero = _mm256_cmpeq_epi32(mag, _mm256_setzero_si256());
    const __m256i low = _mm256_cmpgt_epi32(all(limits.flushed), mag);
    const __m256i sub = _mm256_cmpgt_epi32(all(limits.subnormal), mag);
    c->zero += ones(lanes_of(zero));
    c->flushed += ones(lanes_of(_mm256_andnot_si256(zero, low)));
    c->subnormal += ones(lanes_of(_mm256_andnot_si256(low, sub)));
    *top = _mm256_max_epu32(*top, _mm256_andnot_si256(bad, mag));
    if (lanes_of(bad)) {
        const unsigned nan = lanes_of(_mm256_cmpgt_epi32(mag, all(GSI_F32_INF)));
        c->nan += ones(nan);
        c->inf += ones(lanes_of(bad) & ~nan);
    }
    return lanes_of(bad);
}

INLINE void count32(gsi_counts *c, const void *src, size_t i, size_t n, gsi_limits limits,
                    gs_dtype type, __m256i *top)
{
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++) {
        const __m256i mag = magnitude(load8(at(src, 8 * k, type), type));
        const unsigned bad = count8(c, mag, limits, top);
        if (bad && c->first_bad == n)
            c->first_bad = i + 8 * k + (size_t)__builtin_ctz(bad);
    }
}

INLINE void count(gsi_counts *out, const void *src, size_t n, gsi_limits limits, gs_dtype type)
{
    __m256i top = _mm256_setzero_si256();
    gsi_counts c = {.first_bad = n};
    size_t i = 0;
    for (; i + ROUND <= n; i += ROUND) {
        prefetch(at(src, i, type));
        count32(&c, at(src, i, type), i, n, limits, type, &top);
    }
    if (i < n) {
        uint32_t rest[ROUND] = {0};
        memcpy(rest, at(src, i, type), (n - i) * size_of(type));
        count32(&c, rest, i, n, limits, type, &top);
        c.zero -= ROUND - (n - i); /* the padding */
    }
    c.amax = highest(top, GS_F32);
    *out = c;
}

/* ---- the kernels ---- */

TARGET static uint32_t f32_to_f16_avx2(void *dst, const void *src, size_t n, bool stream)
{
    return map(dst, GS_F16, src, GS_F32, n, CONVERT, 1, stream);
}

TARGET static uint32_t f32_to_bf16_avx2(void *dst, const void *src, size_t n, bool stream)
{
    return map(dst, GS_BF16, src, GS_F32, n, CONVERT, 1, stream);
}

TARGET static uint32_t f16_to_f32_avx2(void *dst, const void *src, size_t n, bool stream)
{
    return map(dst, GS_F32, src, GS_F16, n, CONVERT, 1, stream);
}

TARGET static uint32_t bf16_to_f32_avx2(void *dst, const void *src, size_t n, bool stream)
{
    return map(dst, GS_F32, src, GS_BF16, n, CONVERT, 1, stream);
}

TARGET static uint32_t f16_to_bf16_avx2(void *dst, const void *src, size_t n, bool stream)
{
    return map(dst, GS_BF16, src, GS_F16, n, CONVERT, 1, stream);
}

TARGET static uint32_t bf16_to_f16_avx2(void *dst, const void *src, size_t n, bool stream)
{
    return map(dst, GS_F16, src, GS_BF16, n, CONVERT, 1, stream);
}

TARGET static uint32_t f32_to_f16_sr_avx2(void *dst, const void *src, size_t n, uint64_t seed,
                                          uint64_t first)
{
    return stochastic(dst, GS_F16, src, GS_F32, n, seed, first);
}

TARGET static uint32_t f32_to_bf16_sr_avx2(void *dst, const void *src, size_t n, uint64_t seed,
                                           uint64_t first)
{
    return stochastic(dst, GS_BF16, src, GS_F32, n, seed, first);
}

TARGET static uint32_t f16_to_bf16_sr_avx2(void *dst, const void *src, size_t n, uint64_t seed,
                                           uint64_t first)
{
    return stochastic(dst, GS_BF16, src, GS_F16, n, seed, first);
}

TARGET static uint32_t bf16_to_f16_sr_avx2(void *dst, const void *src, size_t n, uint64_t seed,
                                           uint64_t first)
{
    return stochastic(dst, GS_F16, src, GS_BF16, n, seed, first);
}

TARGET static uint32_t check_f32_avx2(const void *src, size_t n) { return check(src, n, GS_F32); }

TARGET static uint32_t check_f16_avx2(const void *src, size_t n) { return check(src, n, GS_F16); }

TARGET static uint32_t check_bf16_avx2(const void *src, size_t n) { return check(src, n, GS_BF16); }

TARGET static uint32_t scan_f32_avx2(double *sumsq, const void *src, size_t n)
{
    return scan(sumsq, src, n, GS_F32);
}

TARGET static uint32_t scan_f16_avx2(double *sumsq, const void *src, size_t n)
{
    return scan(sumsq, src, n, GS_F16);
}

TARGET static uint32_t scan_bf16_avx2(double *sumsq, const void *src, size_t n)
{
    return scan(sumsq, src, n, GS_BF16);
}

TARGET static void count_f32_avx2(gsi_counts *out, const void *src, size_t n, gsi_limits limits)
{
    count(out, src, n, limits, GS_F32);
}

TARGET static void count_f16_avx2(gsi_counts *out, const void *src, size_t n, gsi_limits limits)
{
    count(out, src, n, limits, GS_F16);
}

TARGET static void count_bf16_avx2(gsi_counts *out, const void *src, size_t n, gsi_limits limits)
{
    count(out, src, n, limits, GS_BF16);
}

TARGET static uint32_t scale_f32_avx2(void *dst, const void *src, size_t n, float factor,
                                      bool stream)
{
    return map(dst, GS_F32, src, GS_F32, n, SCALE, factor, stream);
}

TARGET static uint32_t scale_f16_avx2(void *dst, const void *src, size_t n, float factor,
                                      bool stream)
{
    return map(dst, GS_F16, src, GS_F16, n, SCALE, factor, stream);
}

TARGET static uint32_t scale_bf16_avx2(void *dst, const void *src, size_t n, float factor,
                                       bool stream)
{
    return map(dst, GS_BF16, src, GS_BF16, n, SCALE, factor, stream);
}

TARGET static uint32_t scale_f16_f32_avx2(void *dst, const void *src, size_t n, float factor,
                                          bool stream)
{
    return map(dst, GS_F32, src, GS_F16, n, SCALE, factor, stream);
}

TARGET static uint32_t scale_bf16_f32_avx2(void *dst, const void *src, size_t n, float factor,
                                           bool stream)
{
    return map(dst, GS_F32, src, GS_BF16, n, SCALE, factor, stream);
}

TARGET static uint32_t axpy_f32_avx2(void *dst, const void *src, size_t n, float factor)
{
    return axpy(dst, src, GS_F32, n, factor);
}

TARGET static uint32_t axpy_f16_avx2(void *dst, const void *src, size_t n, float factor)
{
    return axpy(dst, src, GS_F16, n, factor);
}

TARGET static uint32_t axpy_bf16_avx2(void *dst, const void *src, size_t n, float factor)
{
    return axpy(dst, src, GS_BF16, n, factor);
}

void gsi_kernels_avx2(gsi_kernels *k)
{
    k->f32_to_f16 = f32_to_f16_avx2;
    k->f32_to_bf16 = f32_to_bf16_avx2;
    k->f16_to_f32 = f16_to_f32_avx2;
    k->bf16_to_f32 = bf16_to_f32_avx2;
    k->f16_to_bf16 = f16_to_bf16_avx2;
    k->bf16_to_f16 = bf16_to_f16_avx2;
    k->f32_to_f16_sr = f32_to_f16_sr_avx2;
    k->f32_to_bf16_sr = f32_to_bf16_sr_avx2;
    k->f16_to_bf16_sr = f16_to_bf16_sr_avx2;
    k->bf16_to_f16_sr = bf16_to_f16_sr_avx2;
    k->check_f32 = check_f32_avx2;
    k->check_f16 = check_f16_avx2;
    k->check_bf16 = check_bf16_avx2;
    k->scan_f32 = scan_f32_avx2;
    k->scan_f16 = scan_f16_avx2;
    k->scan_bf16 = scan_bf16_avx2;
    k->count_f32 = count_f32_avx2;
    k->count_f16 = count_f16_avx2;
    k->count_bf16 = count_bf16_avx2;
    k->scale_f32 = scale_f32_avx2;
    k->scale_f16 = scale_f16_avx2;
    k->scale_bf16 = scale_bf16_avx2;
    k->scale_f16_f32 = scale_f16_f32_avx2;
    k->scale_bf16_f32 = scale_bf16_f32_avx2;
    k->axpy_f32 = axpy_f32_avx2;
    k->axpy_f16 = axpy_f16_avx2;
    k->axpy_bf16 = axpy_bf16_avx2;
}

#else
void gsi_kernels_avx2(gsi_kernels *k) { (void)k; }
#endif
