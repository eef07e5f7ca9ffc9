/* Exponent histograms with AVX2, two elements at a time.
 *
 * The slot a of one element in the window and b of the next make one counter of 64 x 64, which
 * halves the loads and stores that a histogram is made of. The last slot is for what is outside:
 * zeros, and what is added one by one. Two tables take turns, so that equal pairs in a row do not
 * wait for each other. */
#include "kernel/dispatch.h"
#include "kernel/pass/exponents.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,f16c,popcnt")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { SLOTS = 64, OUTSIDE = SLOTS - 1 };
enum { SEGMENT = 1 << 16 };    /* elements before a 16-bit counter could overflow */
enum { WORTHWHILE = 1 << 10 }; /* elements; below, clearing and folding costs more */

typedef uint16_t table[SLOTS * SLOTS]; /* [a + 64 b] */

INLINE __m256i all(uint32_t u) { return _mm256_set1_epi32((int)u); }
INLINE unsigned mask8(__m256i lanes)
{
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
}

/* 8 magnitudes as f32 bits to slots in 32-bit lanes; *rare gets those that are edges or outside,
 * zeros apart. */
INLINE __m256i slots8(unsigned *rare, __m256i mag, __m256i base)
{
    const __m256i outside = all(OUTSIDE), zero = _mm256_setzero_si256();
    const __m256i slot =
        _mm256_min_epu32(_mm256_sub_epi32(_mm256_srli_epi32(mag, 23), base), outside);
    const __m256i bits = _mm256_and_si256(mag, all(0x7FFFFF));
    const __m256i top = _mm256_cmpgt_epi32(bits, all(GSI_TOP - 1));
    const __m256i power = _mm256_and_si256(_mm256_cmpeq_epi32(bits, zero),
                                           _mm256_cmpgt_epi32(all(GSI_POWER_BELOW), mag));
    const __m256i odd =
        _mm256_or_si256(_mm256_or_si256(top, power), _mm256_cmpeq_epi32(slot, outside));
    *rare = mask8(_mm256_andnot_si256(_mm256_cmpeq_epi32(mag, zero), odd));
    return slot;
}

INLINE uint64_t add_rare(gs_exponents *sum, __m256i mag, unsigned rare, int base)
{
    uint32_t lanes[8];
    uint64_t outside = 0;
    _mm256_storeu_si256((__m256i *)(void *)lanes, mag);
    for (; rare; rare &= rare - 1)
        outside += gsi_exponents_rare(sum, lanes[__builtin_ctz(rare)], base, OUTSIDE);
    return outside;
}

/* 16 slots of 16 bits, in any order. */
INLINE void count_pairs(table t[2], __m256i slots)
{
    uint32_t pair[8];
    _mm256_storeu_si256((__m256i *)(void *)pair, _mm256_madd_epi16(slots, all(SLOTS << 16 | 1)));
    for (int i = 0; i < 8; i += 2) {
        t[0][pair[i]]++;
        t[1][pair[i + 1]]++;
    }
}

INLINE __m256i load8(const void *src, gs_dtype type)
{
    if (type == GS_F32)
        return _mm256_and_si256(_mm256_loadu_si256(src), all(0x7FFFFFFF));
    const __m128i h = _mm_loadu_si128(src);
    const __m256i bits = type == GS_F16 ? _mm256_castps_si256(_mm256_cvtph_ps(h))
                                        : _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
    return _mm256_and_si256(bits, all(0x7FFFFFFF));
}

INLINE uint32_t highest(__m256i top)
{
    const __m128i four =
        _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    const __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4E));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xB1)));
}

/* `outside` of those in the last slot were no zeros. */
static void fold(gs_exponents *sum, table t[2], int base, uint64_t outside)
{
    uint32_t slots[SLOTS] = {0};
    for (int b = 0; b < SLOTS; b++) {
        const uint16_t *r0 = t[0] + SLOTS * b, *r1 = t[1] + SLOTS * b;
        uint32_t row = 0;
        for (int a = 0; a < SLOTS; a++) {
            const uint32_t both = (uint32_t)r0[a] + r1[a];
            slots[a] += both;
            row += both;
        }
        slots[b] += row;
    }
    for (int a = 0; a < OUTSIDE; a++)
        sum->all[base + a - 127 + GS_BINADE_OF_ONE] += slots[a];
    sum->zero += slots[OUTSIDE] - outside;
}

INLINE uint32_t avx2_exponents(gs_exponents *sum, const void *src, size_t n, gs_dtype type)
{
    const size_t size = gsi_size_of(type);
    const char *s = src;
    __m256i top = _mm256_setzero_si256();
    while (n >= WORTHWHILE) {
        const size_t count = (n < SEGMENT ? n : SEGMENT) & ~(size_t)15;
        table tables[2] = {{0}};
        uint64_t outside = 0;
        const int first = gsi_exponents_window(s, count, type, OUTSIDE);
        const __m256i base = all((uint32_t)first);
        for (const char *end = s + count * size; s < end; s += 16 * size) {
            unsigned rare_a, rare_b;
            const __m256i a = load8(s, type), b = load8(s + 8 * size, type);
            const __m256i slots_a = slots8(&rare_a, a, base), slots_b = slots8(&rare_b, b, base);
            if (rare_a | rare_b) {
                outside += add_rare(sum, a, rare_a, first);
                outside += add_rare(sum, b, rare_b, first);
            }
            count_pairs(tables, _mm256_packs_epi32(slots_a, slots_b));
            top = _mm256_max_epu32(top, _mm256_max_epu32(a, b));
        }
        fold(sum, tables, first, outside);
        n -= count;
    }
    const uint32_t rest = gsi_exponents_each(sum, s, n, type), most = highest(top);
    return gsi_amax_bits(rest > most ? rest : most);
}

#define X(name, family, from, to) \
    GSI_MAKE_##family(static TARGET, name##_avx2, avx2_##family, GS_##from, GS_##to)
GS_EXPONENTS(X)
#undef X

void gsi_exponents_avx2(gsi_kernels *k)
{
#define X(name, family, from, to) k->pass.GSI_SLOT_##family(from, to) = name##_avx2;
    GS_EXPONENTS(X)
#undef X
}

#endif
