/* Exponent histograms with AVX-512. See exponents.h for the scheme. */
#include "kernel/exponents.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,popcnt")))
#define INLINE static inline __attribute__((always_inline)) TARGET

/* 16 magnitudes as f32 bits to slots in 32-bit lanes; *rare gets those that are edges or outside,
 * zeros apart. */
INLINE __m512i slots16(__mmask16 *rare, __m512i mag, __m512i base)
{
    const __m512i outside = _mm512_set1_epi32(GSI_OUTSIDE);
    const __m512i slot =
        _mm512_min_epu32(_mm512_sub_epi32(_mm512_srli_epi32(mag, 23), base), outside);
    /* m - 1 >= 0x7FDFFF modulo 2^23: m is 0, or at least 0x7FE000 */
    const __m512i below =
        _mm512_and_si512(_mm512_sub_epi32(mag, _mm512_set1_epi32(1)), _mm512_set1_epi32(0x7FFFFF));
    const __mmask16 some = _mm512_test_epi32_mask(mag, mag);
    const __mmask16 edge = _mm512_mask_cmpge_epu32_mask(some, below, _mm512_set1_epi32(0x7FDFFF));
    *rare = edge | _mm512_mask_cmpeq_epi32_mask(some, slot, outside);
    return slot;
}

INLINE uint64_t add_rare(gs_exponents *sum, const gsi_pairs *p, __m512i mag, unsigned rare)
{
    uint32_t lanes[16];
    uint64_t outside = 0;
    _mm512_storeu_si512(lanes, mag);
    for (; rare; rare &= rare - 1)
        outside += gsi_pairs_rare(sum, p, lanes[__builtin_ctz(rare)]);
    return outside;
}

/* 32 slots of 16 bits, in any order. */
INLINE void count_pairs(gsi_pairs *p, __m512i slots)
{
    uint32_t pair[16];
    const __m512i weights = _mm512_set1_epi32(GSI_SLOTS << 16 | 1);
    _mm512_storeu_si512(pair, _mm512_madd_epi16(slots, weights));
    for (int i = 0; i < 16; i += 2) {
        p->table[0][pair[i]]++;
        p->table[1][pair[i + 1]]++;
    }
}

INLINE __m512i load16(const void *src, gs_dtype type)
{
    const __m512i bits = type == GS_F32
                             ? _mm512_loadu_si512(src)
                             : _mm512_castps_si512(_mm512_cvtph_ps(_mm256_loadu_si256(src)));
    return _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
}

/* 32 elements; returns the larger of top and their magnitudes, as f32 bits or, of bf16, codes. */
INLINE __m512i step(gs_exponents *sum, gsi_pairs *p, const void *src, gs_dtype type, __m512i top,
                    uint64_t *outside)
{
    if (type == GS_BF16) {
        const __m512i mag = _mm512_and_si512(_mm512_loadu_si512(src), _mm512_set1_epi16(0x7FFF));
        const __m512i base = _mm512_set1_epi16((short)p->base);
        const __m512i last = _mm512_set1_epi16(GSI_OUTSIDE);
        const __m512i slots =
            _mm512_min_epu16(_mm512_sub_epi16(_mm512_srli_epi16(mag, 7), base), last);
        const __mmask32 some = _mm512_test_epi16_mask(mag, mag);
        const __mmask32 rare = _mm512_mask_testn_epi16_mask(some, mag, _mm512_set1_epi16(0x7F)) |
                               _mm512_mask_cmpeq_epi16_mask(some, slots, last);
        if (rare) {
            const __m512i a = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(mag));
            const __m512i b = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(mag, 1));
            *outside += add_rare(sum, p, _mm512_slli_epi32(a, 16), (__mmask16)rare);
            *outside += add_rare(sum, p, _mm512_slli_epi32(b, 16), rare >> 16);
        }
        count_pairs(p, slots);
        return _mm512_max_epu16(top, mag);
    }
    const __m512i base = _mm512_set1_epi32(p->base);
    const __m512i a = load16(src, type);
    const __m512i b = load16((const char *)src + 16 * (type == GS_F32 ? 4 : 2), type);
    __mmask16 rare_a, rare_b;
    const __m512i slots_a = slots16(&rare_a, a, base), slots_b = slots16(&rare_b, b, base);
    if (rare_a | rare_b) {
        *outside += add_rare(sum, p, a, rare_a);
        *outside += add_rare(sum, p, b, rare_b);
    }
    count_pairs(p, _mm512_packs_epi32(slots_a, slots_b));
    return _mm512_max_epu32(top, _mm512_max_epu32(a, b));
}

INLINE uint32_t highest(__m512i top, gs_dtype type)
{
    if (type != GS_BF16)
        return _mm512_reduce_max_epu32(top);
    const __m512i even = _mm512_slli_epi32(top, 16);
    const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32((int)0xFFFF0000));
    return _mm512_reduce_max_epu32(_mm512_max_epu32(even, odd));
}

INLINE uint32_t exponents(gs_exponents *sum, const void *src, size_t n, gs_dtype type,
                          gsi_exponents_fn *ref)
{
    const size_t size = type == GS_F32 ? 4 : 2;
    const char *s = src;
    uint32_t most = 0;
    while (n >= GSI_PAIRS_MIN) {
        const size_t count = (n < GSI_PAIRS_MAX ? n : GSI_PAIRS_MAX) & ~(size_t)31;
        gsi_pairs pairs;
        uint64_t outside = 0;
        __m512i top = _mm512_setzero_si512();
        gsi_pairs_init(&pairs, s, count, type);
        for (const char *end = s + count * size; s < end; s += 32 * size)
            top = step(sum, &pairs, s, type, top, &outside);
        gsi_pairs_fold(sum, &pairs, outside);
        const uint32_t high = highest(top, type);
        most = high > most ? high : most;
        n -= count;
    }
    const uint32_t rest = ref(sum, s, n);
    return gsi_top(rest > most ? rest : most);
}

TARGET static uint32_t exponents_f32_avx512(gs_exponents *sum, const void *src, size_t n)
{
    return exponents(sum, src, n, GS_F32, gsi_ref.exponents_f32);
}

TARGET static uint32_t exponents_f16_avx512(gs_exponents *sum, const void *src, size_t n)
{
    return exponents(sum, src, n, GS_F16, gsi_ref.exponents_f16);
}

TARGET static uint32_t exponents_bf16_avx512(gs_exponents *sum, const void *src, size_t n)
{
    return exponents(sum, src, n, GS_BF16, gsi_ref.exponents_bf16);
}

void gsi_exponents_avx512(gsi_kernels *k)
{
    k->exponents_f32 = exponents_f32_avx512;
    k->exponents_f16 = exponents_f16_avx512;
    k->exponents_bf16 = exponents_bf16_avx512;
}

#else
void gsi_exponents_avx512(gsi_kernels *k) { (void)k; }
#endif
