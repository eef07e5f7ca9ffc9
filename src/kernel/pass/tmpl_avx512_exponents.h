/* Exponent histograms with AVX-512, counted in bit planes: a part of tmpl_avx512.h.
 *
 * An element becomes a word with one bit set: that of its exponent in a window of 32. Adding such
 * words bit by bit is a carry-save adder, two ternary instructions for a vector of them; the sums
 * stay spread over planes, plane j worth 2^j, and become numbers once per segment. No element is
 * stored or looked up by itself, so the speed does not depend on how often an exponent repeats.
 * What is outside of the window, and the edges, one f32 in a thousand, are added one by one. */

enum { SLOTS = 32, VECTORS = 16, GROUP = 16 * VECTORS }; /* elements per round of the adder */
enum { SEGMENT = 1 << 16 };                              /* elements, so 4096 words per lane: */
enum { PLANES = 13 };                                    /* hold up to 8191 */

typedef struct state {
    __m512i base;           /* the biased exponent of bit 0 */
    __m512i top;            /* largest magnitudes */
    __m512i planes[PLANES]; /* [j]: bits worth 2^j, a counter a bit and lane */
    uint16_t rare[VECTORS]; /* edges and what is outside, zeros apart */
} state;

/* The words of elements 16 v to 16 v + 15; zero where there is no bit for it. */
INLINE __m512i words(state *s, const void *src, gs_dtype type, int v, __m512i *top, __mmask16 *any)
{
    const void *const p = at(src, 16 * (size_t)v, type);
    if (type == GS_F32 || v % 2 == 0)
        fetch(p);
    const __m512i mag = magnitude(load16(p, type, 0xFFFF));
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
    *top = _mm512_max_epu32(*top, mag);
    return word;
}

/* *sum + a + b, of one bit each: the low bit stays in *sum, the high bit is returned. */
INLINE __m512i carry_save(__m512i *sum, __m512i a, __m512i b)
{
    const __m512i high = _mm512_ternarylogic_epi32(*sum, a, b, 0xE8); /* majority */
    *sum = _mm512_ternarylogic_epi32(*sum, a, b, 0x96);               /* parity */
    return high;
}

#define WORDS(v) words(s, src, type, v, &top, &any)

/* What 16 vectors carry into plane 4. */
INLINE void carry_on(__m512i *planes, __m512i carry, const int n)
{
    for (int j = 4; j < n; j++) {
        const __m512i next = _mm512_and_si512(planes[j], carry);
        planes[j] = _mm512_xor_si512(planes[j], carry);
        carry = next;
    }
}

/* A group of 256 elements; true if some of them are rare. The planes that change often are held in
 * registers. */
INLINE bool add_group(state *s, const void *src, gs_dtype type)
{
    __m512i p[4], fours[2], eights[2], top = s->top;
    __mmask16 any = 0;
    memcpy(p, s->planes, sizeof p);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
#pragma GCC unroll 2
        for (int quarter = 0; quarter < 2; quarter++) {
            const int v = 8 * half + 4 * quarter;
            const __m512i a = carry_save(&p[0], WORDS(v), WORDS(v + 1));
            const __m512i b = carry_save(&p[0], WORDS(v + 2), WORDS(v + 3));
            fours[quarter] = carry_save(&p[1], a, b);
        }
        eights[half] = carry_save(&p[2], fours[0], fours[1]);
    }
    carry_on(s->planes, carry_save(&p[3], eights[0], eights[1]), PLANES);
    memcpy(s->planes, p, sizeof p);
    s->top = top;
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
INLINE uint64_t fold_planes(gs_exponents *sum, const state *s, int base)
{
    uint64_t total = 0;
    for (int b = 0; b < SLOTS; b++) {
        const __m512i bit = _mm512_set1_epi32((int)(1u << b));
        uint64_t count = 0;
        for (int j = 0; j < PLANES; j++)
            count += (uint64_t)__builtin_popcount(_mm512_test_epi32_mask(s->planes[j], bit)) << j;
        sum->all[base + b - 127 + GS_BINADE_OF_ONE] += count;
        total += count;
    }
    return total;
}

/* ---- halves in lanes of their own ---- */

/* 32 at a time: each of two words of 16 bits has half of the window. */
enum { HALF_GROUP = 32 * VECTORS };
enum { HALF_PLANES = 12 }; /* for 2048 words per lane */

typedef struct half_state {
    __m512i base; /* the biased exponent of bit 0 of the first word */
    __m512i top;
    __m512i planes[2][HALF_PLANES];
    uint32_t rare[VECTORS];
} half_state;

typedef struct half_words {
    __m512i of[2];
} half_words;

INLINE half_words words_of_halves(half_state *s, const void *src, gs_dtype type, int v,
                                  __m512i *top, __mmask32 *any)
{
    const void *const p = at(src, 32 * (size_t)v, type);
    fetch(p);
    const __m512i mag = magnitudes(_mm512_loadu_si512(p), type);
    const __m512i one = _mm512_set1_epi16(1);
    const __m512i slot = _mm512_sub_epi16(_mm512_srli_epi16(mag, type == GS_F16 ? 10 : 7), s->base);
    const half_words w = {
        {_mm512_sllv_epi16(one, slot),
         _mm512_sllv_epi16(one, _mm512_sub_epi16(slot, _mm512_set1_epi16(SLOTS / 2)))}};
    const __m512i both = _mm512_or_si512(w.of[0], w.of[1]);
    const __mmask32 some = _mm512_test_epi16_mask(mag, mag);
    __mmask32 rare = _mm512_mask_testn_epi16_mask(some, both, both);
    if (type == GS_F16) {
        rare |= _mm512_cmpge_epu16_mask(mag, _mm512_set1_epi16(0x7C00));
    } else {
        const __m512i limit = _mm512_set1_epi16((short)(GSI_POWER_BELOW >> 16));
        const __mmask32 low = _mm512_mask_cmplt_epu16_mask(some, mag, limit);
        rare |= _mm512_mask_testn_epi16_mask(low, mag, _mm512_set1_epi16(0x7F));
    }
    s->rare[v] = rare;
    *any |= rare;
    *top = _mm512_max_epu16(*top, mag);
    return w;
}

#define HALVES(v) words_of_halves(s, src, type, v, &top, &any)

/* A group of 512; true if some of them are rare. */
INLINE bool add_halves(half_state *s, const void *src, gs_dtype type)
{
    __m512i p[2][4], fours[2][2], eights[2][2], top = s->top;
    __mmask32 any = 0;
    memcpy(p[0], s->planes[0], sizeof p[0]);
    memcpy(p[1], s->planes[1], sizeof p[1]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
#pragma GCC unroll 2
        for (int quarter = 0; quarter < 2; quarter++) {
            const int v = 8 * half + 4 * quarter;
            const half_words x[4] = {HALVES(v), HALVES(v + 1), HALVES(v + 2), HALVES(v + 3)};
#pragma GCC unroll 2
            for (int w = 0; w < 2; w++) {
                const __m512i a = carry_save(&p[w][0], x[0].of[w], x[1].of[w]);
                const __m512i b = carry_save(&p[w][0], x[2].of[w], x[3].of[w]);
                fours[w][quarter] = carry_save(&p[w][1], a, b);
            }
        }
#pragma GCC unroll 2
        for (int w = 0; w < 2; w++)
            eights[w][half] = carry_save(&p[w][2], fours[w][0], fours[w][1]);
    }
#pragma GCC unroll 2
    for (int w = 0; w < 2; w++) {
        carry_on(s->planes[w], carry_save(&p[w][3], eights[w][0], eights[w][1]), HALF_PLANES);
        memcpy(s->planes[w], p[w], sizeof p[w]);
    }
    s->top = top;
    return any != 0;
}

INLINE uint64_t fold_halves(gs_exponents *sum, const half_state *s, int base, int slots)
{
    uint64_t total = 0;
    for (int b = 0; b < slots; b++) {
        const __m512i bit = _mm512_set1_epi16((short)(1u << b % 16));
        uint64_t count = 0;
        for (int j = 0; j < HALF_PLANES; j++)
            count += (uint64_t)__builtin_popcount(_mm512_test_epi16_mask(s->planes[b / 16][j], bit))
                     << j;
        sum->all[base + b - 127 + GS_BINADE_OF_ONE] += count;
        total += count;
    }
    return total;
}

/* count elements of a half type, whole groups. f16 has its 30 exponents of normal numbers in the
 * window: subnormals are outside, so that this is for where there are few. */
INLINE uint32_t exponents_of_halves(gs_exponents *sum, const void *src, size_t count, gs_dtype type)
{
    const int slots = type == GS_F16 ? 30 : SLOTS;
    const int base = type == GS_F16 ? 113 : gsi_exponents_window(src, count, type, SLOTS);
    half_state s = {.base = _mm512_set1_epi16((short)(type == GS_F16 ? 1 : base))};
    uint64_t outside = 0;
    for (size_t i = 0; i < count; i += HALF_GROUP) {
        const void *const p = at(src, i, type);
        if (!add_halves(&s, p, type))
            continue;
        for (size_t v = 0; v < VECTORS; v++)
            for (uint32_t rare = s.rare[v]; rare; rare &= rare - 1) {
                const size_t k = 32 * v + (size_t)__builtin_ctz(rare);
                outside += gsi_exponents_rare(sum, element(p, k, type), base, slots);
            }
    }
    sum->zero += count - fold_halves(sum, &s, base, slots) - outside;
    return highest(s.top, type);
}

/* Of a sample, one in 64 and more. */
INLINE bool has_many_subnormals(const void *src, size_t n)
{
    enum { SAMPLES = 64 };
    const uint16_t *const code = src;
    unsigned many = 0;
    for (size_t k = 0; k < SAMPLES; k++)
        many += ((code[k * (n / SAMPLES)] & 0x7FFFu) - 1) < 0x3FF;
    return many > 0;
}

/* ---- the pass ---- */

INLINE uint32_t exponents_of_words(gs_exponents *sum, const void *src, size_t count, gs_dtype type)
{
    const int base = gsi_exponents_window(src, count, type, SLOTS);
    state s = {.base = _mm512_set1_epi32(base)};
    uint64_t outside = 0;
    for (size_t i = 0; i < count; i += GROUP)
        if (add_group(&s, at(src, i, type), type))
            outside += add_rare(sum, &s, at(src, i, type), type, base);
    sum->zero += count - fold_planes(sum, &s, base) - outside;
    return _mm512_reduce_max_epu32(s.top);
}

INLINE uint32_t FAMILY(exponents)(gs_exponents *sum, const void *src, size_t n, gs_dtype type)
{
    const size_t group = (type == GS_F32 ? 16 : 32) * VECTORS;
    uint32_t most = 0;
    size_t i = 0;
    while (n - i >= group) {
        const size_t left = n - i, count = (left < SEGMENT ? left : SEGMENT) / group * group;
        const void *const p = at(src, i, type);
        const bool words = type == GS_F32 || (type == GS_F16 && has_many_subnormals(p, count));
        const uint32_t top = words ? exponents_of_words(sum, p, count, type)
                                   : exponents_of_halves(sum, p, count, type);
        most = top > most ? top : most;
        i += count;
    }
    const uint32_t rest = gsi_exponents_each(sum, at(src, i, type), n - i, type);
    return gsi_amax_bits(rest > most ? rest : most);
}
