/* Exponent histograms with AVX-512, counted in bit planes.
 *
 * An element becomes a word with one bit set: that of its exponent in a window of 32. Adding such
 * words bit by bit is a carry-save adder, two ternary instructions for 16 elements; the sums stay
 * spread over planes, plane j worth 2^j, and become numbers once per segment. No element is stored
 * or looked up by itself, so the speed does not depend on how often an exponent repeats. What is
 * outside of the window, and the edges, one f32 in a thousand, are added one by one. */
#include "kernel/dispatch.h"
#include "kernel/pass/exponents.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,popcnt")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { SLOTS = 32, VECTORS = 16, GROUP = 16 * VECTORS }; /* elements per round of the adder */
enum { AHEAD = 2048 };      /* bytes to prefetch: the hardware stops at the end of a page */
enum { SEGMENT = 1 << 16 }; /* elements, so 4096 words per lane: */
enum { PLANES = 13 };       /* hold up to 8191 */

typedef struct state {
    __m512i base;           /* the biased exponent of bit 0 */
    __m512i top;            /* largest magnitudes */
    __m512i planes[PLANES]; /* [j]: bits worth 2^j, a counter a bit and lane */
    uint16_t rare[VECTORS]; /* edges and what is outside, zeros apart */
} state;

INLINE __m512i load16(const void *src, gs_dtype type)
{
    if (type == GS_F32)
        return _mm512_and_si512(_mm512_loadu_si512(src), _mm512_set1_epi32(0x7FFFFFFF));
    const __m256i h = _mm256_and_si256(_mm256_loadu_si256(src), _mm256_set1_epi16(0x7FFF));
    if (type == GS_F16)
        return _mm512_castps_si512(_mm512_cvtph_ps(h));
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
}

/* The words of elements 16 v to 16 v + 15; zero where there is no bit for it. */
INLINE __m512i words(state *s, const void *src, gs_dtype type, int v, __mmask16 *any)
{
    const size_t size = gsi_size_of(type);
    const char *at = (const char *)src + 16 * size * (size_t)v;
    if (type == GS_F32 || v % 2 == 0)
        _mm_prefetch((const char *)((uintptr_t)at + AHEAD), _MM_HINT_T0);
    const __m512i mag = load16(at, type);
    const __m512i slot = _mm512_sub_epi32(_mm512_srli_epi32(mag, 23), s->base);
    const __m512i word = _mm512_sllv_epi32(_mm512_set1_epi32(1), slot);
    const __mmask16 some = _mm512_test_epi32_mask(mag, mag);
    __mmask16 rare = _mm512_mask_testn_epi32_mask(some, word, word);
    if (type != GS_F16) {
        const __m512i bits = _mm512_set1_epi32(0x7FFFFF);
        const __mmask16 low =
            _mm512_mask_cmplt_epi32_mask(some, mag, _mm512_set1_epi32(GSI_POWER_BELOW));
        rare |= _mm512_mask_testn_epi32_mask(low, mag, bits);
        if (type == GS_F32)
            rare |=
                _mm512_cmpge_epi32_mask(_mm512_and_si512(mag, bits), _mm512_set1_epi32(GSI_TOP));
    }
    s->rare[v] = rare;
    *any |= rare;
    s->top = _mm512_max_epu32(s->top, mag);
    return word;
}

/* *sum + a + b, of one bit each: the low bit stays in *sum, the high bit is returned. */
INLINE __m512i add(__m512i *sum, __m512i a, __m512i b)
{
    const __m512i high = _mm512_ternarylogic_epi32(*sum, a, b, 0xE8); /* majority */
    *sum = _mm512_ternarylogic_epi32(*sum, a, b, 0x96);               /* parity */
    return high;
}

#define WORDS(v) words(s, src, type, v, &any)

/* A group of 256 elements; true if some of them are rare. */
INLINE bool add_group(state *s, const void *src, gs_dtype type)
{
    __m512i *p = s->planes;
    __mmask16 any = 0;
    __m512i eights[2];
    for (int half = 0; half < 2; half++) {
        __m512i fours[2];
        for (int quarter = 0; quarter < 2; quarter++) {
            const int v = 8 * half + 4 * quarter;
            const __m512i a = add(&p[0], WORDS(v), WORDS(v + 1));
            const __m512i b = add(&p[0], WORDS(v + 2), WORDS(v + 3));
            fours[quarter] = add(&p[1], a, b);
        }
        eights[half] = add(&p[2], fours[0], fours[1]);
    }
    __m512i carry = add(&p[3], eights[0], eights[1]);
    for (int j = 4; j < PLANES; j++) {
        const __m512i next = _mm512_and_si512(p[j], carry);
        p[j] = _mm512_xor_si512(p[j], carry);
        carry = next;
    }
    return any != 0;
}

static uint32_t element(const void *src, size_t i, gs_dtype type)
{
    if (type == GS_F32)
        return gsi_magnitude(((const uint32_t *)src)[i]);
    const uint32_t code = ((const uint16_t *)src)[i] & 0x7FFF;
    return type == GS_F16 ? gsi_widen(code, GSI_ROW_F16) : code << 16;
}

/* Returns how many are outside of the window. */
static uint64_t add_rare(gs_exponents *sum, const state *s, const void *src, gs_dtype type,
                         int base)
{
    uint64_t outside = 0;
    for (size_t v = 0; v < VECTORS; v++)
        for (unsigned rare = s->rare[v]; rare; rare &= rare - 1) {
            const size_t i = 16 * v + (size_t)__builtin_ctz(rare);
            outside += gsi_exponents_rare(sum, element(src, i, type), base, SLOTS);
        }
    return outside;
}

/* Counters to numbers; returns their sum. */
INLINE uint64_t fold(gs_exponents *sum, const state *s, int base)
{
    uint64_t total = 0;
    for (int b = 0; b < SLOTS; b++) {
        const __m512i bit = _mm512_set1_epi32((int)(1u << b));
        uint64_t count = 0;
        for (int j = 0; j < PLANES; j++)
            count += (uint64_t)_mm_popcnt_u32(_mm512_test_epi32_mask(s->planes[j], bit)) << j;
        sum->all[base + b - 127 + GS_BINADE_OF_ONE] += count;
        total += count;
    }
    return total;
}

INLINE uint32_t avx512_exponents(gs_exponents *sum, const void *src, size_t n, gs_dtype type)
{
    const size_t size = gsi_size_of(type);
    const char *p = src;
    uint32_t most = 0;
    while (n >= GROUP) {
        const size_t count = (n < SEGMENT ? n : SEGMENT) / GROUP * GROUP;
        const int base = gsi_exponents_window(p, count, type, SLOTS);
        state s = {.base = _mm512_set1_epi32(base)};
        uint64_t outside = 0;
        for (const char *end = p + count * size; p < end; p += GROUP * size)
            if (add_group(&s, p, type))
                outside += add_rare(sum, &s, p, type, base);
        sum->zero += count - fold(sum, &s, base) - outside;
        const uint32_t top = _mm512_reduce_max_epu32(s.top);
        most = top > most ? top : most;
        n -= count;
    }
    const uint32_t rest = gsi_exponents_each(sum, p, n, type);
    return gsi_amax_bits(rest > most ? rest : most);
}

#define X(name, family, from, to) \
    GSI_MAKE_##family(static TARGET, name##_avx512, avx512_##family, GS_##from, GS_##to)
GS_EXPONENTS(X)
#undef X

void gsi_exponents_avx512(gsi_kernels *k)
{
#define X(name, family, from, to) k->pass.GSI_SLOT_##family(from, to) = name##_avx512;
    GS_EXPONENTS(X)
#undef X
}

#endif
