/* The passes with AVX-512 that add up: scan, unscale, count, by blocks of GSI_BLOCK elements. A
 * part of tmpl_avx512.h. */

/* ---- sums of squares ---- */

typedef __m512i vector;
typedef __m512d f64s;

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

/* ---- blocks of GSI_BLOCK elements ---- */

/* Magnitudes, in the lanes of the type. */
INLINE __m512i magnitudes(__m512i raw, gs_dtype type)
{
    return type == GS_F32 ? magnitude(raw) : _mm512_and_si512(raw, _mm512_set1_epi16(0x7FFF));
}

INLINE vector larger(vector a, vector b, gs_dtype type)
{
    return type == GS_F32 ? _mm512_max_epu32(a, b) : _mm512_max_epu16(a, b);
}

INLINE uint32_t top_of(vector x, gs_dtype type) { return highest(x, type); }

/* Whether any lane is at least that, a magnitude as f32 bits. */
INLINE bool reaches(vector x, uint32_t limit, gs_dtype type)
{
    if (type == GS_F32)
        return _mm512_cmpge_epu32_mask(x, _mm512_set1_epi32((int)limit)) != 0;
    const uint32_t code = type == GS_BF16 ? limit >> 16 : 0x7C00; /* of f16, only Inf */
    return _mm512_cmpge_epu16_mask(x, _mm512_set1_epi16((short)code)) != 0;
}

INLINE bool is_finite(vector top, gs_dtype type) { return !reaches(top, GSI_F32_INF, type); }

/* gsi_sums_in_f32 of the largest lane. */
INLINE bool sums_in_f32(vector top, gs_dtype type)
{
    if (type == GS_F16) /* whose numbers are all in the range */
        return is_finite(top, type);
    const uint32_t step = type == GS_BF16 ? 1 << 16 : 1;
    return !reaches(top, GSI_SUM_MAX + step, type) &&
           (reaches(top, GSI_SUM_MIN, type) || _mm512_test_epi32_mask(top, top) == 0);
}

/* 32 elements as f32. */
INLINE pair load32(const void *p, gs_dtype type)
{
    if (type == GS_BF16)
        return widen_bf16(_mm512_loadu_si512(p));
    if (type == GS_F16) { /* from memory: a half of a register would take a shuffle */
        const __m256i *const h = p;
        return (pair){_mm512_cvtph_ps(_mm256_loadu_si256(h)),
                      _mm512_cvtph_ps(_mm256_loadu_si256(h + 1))};
    }
    const float *const f = p;
    return (pair){_mm512_loadu_ps(f), _mm512_loadu_ps(f + 16)};
}

/* exact: squares are exact in f32, so that fma rounds as a product and a sum do. */
INLINE pair add_squares(pair sums, pair x, const bool exact)
{
    if (exact)
        return (pair){_mm512_fmadd_ps(x.a, x.a, sums.a), _mm512_fmadd_ps(x.b, x.b, sums.b)};
    return (pair){sums.a + x.a * x.a, sums.b + x.b * x.b};
}

INLINE void add_sums(f64s acc[4], pair sums, gs_dtype type)
{
    const pair z = in_order(sums, type);
    add_f64(acc, z.a);
    add_f64(acc + 2, z.b);
}

/* A limit in the lanes of the type: the codes below it are those of the values below it. */
INLINE __m512i limit_in(uint32_t limit, gs_dtype type)
{
    if (type == GS_F32)
        return _mm512_set1_epi32((int)limit);
    uint32_t code = 0;
    for (uint32_t bit = 0x4000; bit > 0; bit >>= 1)
        if (gsi_widen(code + bit - 1, gsi_row_of(type)) < limit)
            code += bit;
    return _mm512_set1_epi16((short)code);
}

/* Per lane of the type: elements that are not zero, and those below two limits. */
typedef struct tally {
    __m512i limit[2];
    __m512i some, below[2];
} tally;

INLINE void add_tally(tally *t, __m512i mag, gs_dtype type)
{
    t->some = type == GS_F32
                  ? _mm512_add_epi32(t->some, _mm512_min_epu32(mag, _mm512_set1_epi32(1)))
                  : _mm512_add_epi16(t->some, _mm512_min_epu16(mag, _mm512_set1_epi16(1)));
#pragma GCC unroll 2
    for (int l = 0; l < 2; l++)
        t->below[l] =
            type == GS_F32
                ? _mm512_mask_sub_epi32(t->below[l], _mm512_cmplt_epu32_mask(mag, t->limit[l]),
                                        t->below[l], _mm512_set1_epi32(-1))
                : _mm512_mask_sub_epi16(t->below[l], _mm512_cmplt_epu16_mask(mag, t->limit[l]),
                                        t->below[l], _mm512_set1_epi16(-1));
}

/* Squares are added to acc, magnitudes to t; where one is NULL, they are not. */
INLINE vector scan_and_tally(f64s acc[4], tally *t, const void *src, gs_dtype type)
{
    const size_t size = gsi_size_of(type);
    const char *s = src;
    pair sums = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    vector top = _mm512_setzero_si512();
    for (size_t i = 0; i < GSI_BLOCK; i += GSI_LANES, s += GSI_LANES * size) {
        fetch_all(s, GSI_LANES * size);
        for (size_t k = 0; k < GSI_LANES * size; k += 64) {
            const __m512i mag = magnitudes(_mm512_loadu_si512(s + k), type);
            top = larger(top, mag, type);
            if (t)
                add_tally(t, mag, type);
        }
        if (acc)
            sums = add_squares(sums, load32(s, type), type == GS_F16);
    }
    if (acc && sums_in_f32(top, type))
        add_sums(acc, sums, type);
    else if (acc)
        squares_f64(acc, src, type);
    return top;
}

INLINE vector scan_block(f64s acc[4], const void *src, gs_dtype type)
{
    return scan_and_tally(acc, NULL, src, type);
}

INLINE void scale_block(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                        float factor, bool stream)
{
    map(dst, to, src, from, n, SCALE, factor, stream, false);
}

/* ---- unscaling a block in one go ---- */

/* The magnitudes of a block: the largest, and of bf16 the smallest but zero, less one. */
typedef struct range {
    vector top, low;
} range;

INLINE range range_of(const void *src, gs_dtype type)
{
    const char *s = src;
    range x = {_mm512_setzero_si512(), _mm512_set1_epi32(-1)};
    for (size_t i = 0; i < GSI_BLOCK * gsi_size_of(type); i += 64) {
        fetch(s + i);
        const __m512i mag = magnitudes(_mm512_loadu_si512(s + i), type);
        x.top = larger(x.top, mag, type);
        if (type == GS_BF16)
            x.low = _mm512_min_epu16(x.low, _mm512_sub_epi16(mag, _mm512_set1_epi16(1)));
    }
    return x;
}

/* 2^-63 and 2^60 as bf16: between them squares are exact in f32. A factor of 2^k, -60 <= k <= 60,
 * moves them to another number of bf16 by adding k to the exponent. */
enum { BF16_LOW = 0x2000, BF16_HIGH = 0x5D80, MOST = 60 };

INLINE bool is_plain(range x, gs_dtype type)
{
    if (!sums_in_f32(x.top, type))
        return false;
    return type != GS_BF16 || _mm512_cmplt_epu16_mask(x.low, _mm512_set1_epi16(BF16_LOW - 1)) == 0;
}

INLINE bool moves_exponents(float factor)
{
    const uint32_t u = gsi_bits(factor);
    return (u & 0x7FFFFF) == 0 && u >> 23 >= 127 - MOST && u >> 23 <= 127 + MOST;
}

/* moves: the factor does, and both types are bf16. */
INLINE void unscale_plain(f64s acc[4], void *dst, gs_dtype to, const void *src, gs_dtype type,
                          float by, const bool moves)
{
    const __m512 factor = _mm512_set1_ps(by);
    const __m512i k = _mm512_set1_epi16((short)((gsi_bits(by) >> 16) - (127 << 7)));
    const size_t size = gsi_size_of(type);
    pair sums = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (size_t i = 0; i < GSI_BLOCK; i += GSI_LANES) {
        const char *const s = (const char *)src + i * size;
        char *const d = (char *)dst + i * gsi_size_of(to);
        const pair x = load32(s, type);
        sums = add_squares(sums, x, type != GS_F32);
        if (moves) {
            const __m512i raw = _mm512_loadu_si512(s);
            const __mmask32 some = _mm512_test_epi16_mask(raw, _mm512_set1_epi16(0x7FFF));
            _mm512_storeu_si512(d, _mm512_mask_add_epi16(raw, some, raw, k));
            continue;
        }
        const pair y = {x.a * factor, x.b * factor};
        if (to == GS_F16) {
            _mm256_storeu_si256((void *)d, to_half(_mm512_castps_si512(y.a), to));
            _mm256_storeu_si256((void *)(d + 32), to_half(_mm512_castps_si512(y.b), to));
        } else if (to == GS_BF16) {
            _mm512_storeu_si512(d, bf16_products(y));
        } else {
            const pair z = in_order(y, type);
            _mm512_storeu_ps(d, z.a);
            _mm512_storeu_ps(d + 64, z.b);
        }
    }
    add_sums(acc, sums, type);
}

/* Its range, an integer pass that leaves the block in L1, says whether the squares need f64 or
 * something is not finite, before anything is overwritten. */
INLINE bool unscale_block(f64s acc[4], vector *top, void *dst, gs_dtype to, const void *src,
                          gs_dtype from, float factor)
{
    const range x = range_of(src, from);
    if (__builtin_expect(!is_plain(x, from), 0))
        return false;
    *top = larger(*top, x.top, from);
    if (to == GS_BF16 && moves_exponents(factor))
        unscale_plain(acc, dst, to, src, from, factor, true);
    else
        unscale_plain(acc, dst, to, src, from, factor, false);
    return true;
}

/* ---- scan, unscale ---- */

INLINE void fence(void) { _mm_sfence(); }

INLINE void count_all(gsi_counts *out, const void *src, size_t n, gsi_limits limits, gs_dtype type);

#define HAS_UNSCALE_BLOCK
#include "kernel/pass/tmpl_scan.h"
#undef HAS_UNSCALE_BLOCK

/* ---- count ---- */

/* Counts of 16 elements, among which some may not be finite. */
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
    const unsigned low = _mm512_cmplt_epu32_mask(mag, _mm512_set1_epi32((int)limits.underflow));
    const unsigned sub = _mm512_cmplt_epu32_mask(mag, _mm512_set1_epi32((int)limits.subnormal));
    c->zero += (uint64_t)__builtin_popcount(zero);
    c->underflow += (uint64_t)__builtin_popcount(low & ~zero & lanes);
    c->subnormal += (uint64_t)__builtin_popcount(sub & ~low & lanes);

    return _mm512_max_epu32(top, _mm512_mask_mov_epi32(mag, (__mmask16)bad, none));
}

INLINE uint64_t sum_lanes(__m512i x, gs_dtype type)
{
    if (type == GS_F32)
        return (uint64_t)_mm512_reduce_add_epi32(x);
    const __m512i even = _mm512_and_si512(x, _mm512_set1_epi32(0xFFFF));
    return (uint64_t)_mm512_reduce_add_epi32(_mm512_add_epi32(even, _mm512_srli_epi32(x, 16)));
}

INLINE void tally_end(gsi_counts *c, tally *t, size_t blocks, gsi_limits limits, gs_dtype type)
{
    const uint64_t zeros = blocks * GSI_BLOCK - sum_lanes(t->some, type);
    const uint64_t low = sum_lanes(t->below[0], type), sub = sum_lanes(t->below[1], type);
    const uint64_t under = low > zeros ? low - zeros : 0;
    c->zero += zeros;
    c->underflow += under;
    c->subnormal += limits.subnormal ? sub - zeros - under : 0;
    t->some = t->below[0] = t->below[1] = _mm512_setzero_si512();
}

/* Block by block, so that it is scanned and counted while it is in L1. */
INLINE void FAMILY(count)(gsi_counts *out, double *sumsq, const void *src, size_t n,
                          gsi_limits limits, gs_dtype type)
{
    enum { MANY = 1 << 10 }; /* blocks: no 16-bit lane overflows */
    uint32_t rest[GSI_BLOCK];
    f64s acc[F64S] = {0};
    vector top = {0};
    tally t = {.limit = {limit_in(limits.underflow, type), limit_in(limits.subnormal, type)}};
    gsi_counts c = {.first_bad = n};
    size_t blocks = 0; /* in t */
    for (size_t i = 0, count; i < n; i += count) {
        const void *block = block_at(rest, src, i, n, &count, type);
        tally next = t;
        const vector one = scan_and_tally(sumsq ? acc : NULL, &next, block, type);
        if (count == GSI_BLOCK && __builtin_expect(is_finite(one, type), 1)) {
            top = larger(top, one, type);
            t = next;
            if (++blocks == MANY) {
                tally_end(&c, &t, blocks, limits, type);
                blocks = 0;
            }
            continue;
        }
        __m512i finite = _mm512_setzero_si512();
        for (size_t k = 0; k < count; k += 16)
            finite = count16(&c, src, i + k, n, limits, type, finite);
        const uint32_t amax = _mm512_reduce_max_epu32(finite);
        c.amax = amax > c.amax ? amax : c.amax;
    }
    tally_end(&c, &t, blocks, limits, type);
    const uint32_t amax = top_of(top, type);
    c.amax = amax > c.amax ? amax : c.amax;
    if (sumsq)
        *sumsq = fold(acc, c.inf + c.nan > 0 ? GSI_F32_INF : c.amax);
    *out = c;
}

INLINE void count_all(gsi_counts *out, const void *src, size_t n, gsi_limits limits, gs_dtype type)
{
    FAMILY(count)(out, NULL, src, n, limits, type);
}
