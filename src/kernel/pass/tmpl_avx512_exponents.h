/* Exponent histograms with AVX-512, counted in bit planes: a part of tmpl_avx512.h.
 *
 * An element becomes a word with one bit set: that of its exponent in a window of 32. Adding such
 * words bit by bit is a carry-save adder, two ternary instructions for a vector of them; the sums
 * stay spread over planes, plane j worth 2^j, and become numbers once per segment. No element is
 * stored or looked up by itself, so the speed does not depend on how often an exponent repeats.
 * What is outside of the window, and the edges, one f32 in a thousand, are added one by one: a
 * group keeps its largest and smallest magnitude, and only one that may have such values is looked
 * through again. */

enum { SLOTS = 32, VECTORS = 16, GROUP = 16 * VECTORS }; /* elements per round of the adder */
enum { SEGMENT = 1 << 16 };                              /* elements, so 4096 words per lane: */
enum { PLANES = 13 };                                    /* hold up to 8191 */

typedef struct state {
    __m512i base;            /* the biased exponent of bit 0 */
    __m512i top;             /* largest magnitudes */
    __m512i planes[PLANES];  /* [j]: bits worth 2^j, a counter a bit and lane */
    __m512i waiting[PLANES]; /* [j]: a carry into plane j, until there are two */
} state;

/* What tells whether a group may have something rare. */
typedef struct extremes {
    __m512i top;  /* largest magnitudes */
    __m512i low;  /* smallest, less 1: zeros are the largest */
    __m512i edge; /* bit 23: a mantissa from GSI_TOP upwards, or 0 */
} extremes;

/* The words of elements 16 v to 16 v + 15; zero where there is no bit for it. */
INLINE __m512i words(const state *s, const void *src, gs_dtype type, int v, extremes *x)
{
    const void *const p = at(src, 16 * (size_t)v, type);
    if (type == GS_F32 || v % 2 == 0)
        fetch(p);
    const __m512i mag = magnitude(load16(p, type, 0xFFFF));
    const __m512i slot = _mm512_sub_epi32(_mm512_srli_epi32(mag, 23), s->base);
    const __m512i less = _mm512_sub_epi32(mag, _mm512_set1_epi32(1));
    x->top = _mm512_max_epu32(x->top, mag);
    x->low = _mm512_min_epu32(x->low, less);
    if (type == GS_F32) { /* edge | (less ^ more): a borrow from the exponent, or a carry into it */
        const __m512i more = _mm512_add_epi32(mag, _mm512_set1_epi32(0x800000 - GSI_TOP));
        x->edge = _mm512_ternarylogic_epi32(x->edge, less, more, 0xF6);
    }
    return _mm512_sllv_epi32(_mm512_set1_epi32(1), slot);
}

/* *sum + a + b, of one bit each: the low bit stays in *sum, the high bit is returned. */
INLINE __m512i carry_save(__m512i *sum, __m512i a, __m512i b)
{
    const __m512i high = _mm512_ternarylogic_epi32(*sum, a, b, 0xE8); /* majority */
    *sum = _mm512_ternarylogic_epi32(*sum, a, b, 0x96);               /* parity */
    return high;
}

#define WORDS(v) words(s, src, type, v, &x)

/* What round `round` of 16 vectors carries into plane 4. Carries meet in pairs, as in a binary
 * counter: plane j has one waiting where bit j - 4 of the rounds so far is set. */
INLINE void carry_on(__m512i *planes, __m512i *waiting, __m512i carry, size_t round)
{
    int j = 4;
    for (; round & 1; round >>= 1, j++)
        carry = carry_save(&planes[j], waiting[j], carry);
    waiting[j] = carry;
}

/* After the last round. */
INLINE void carry_rest(__m512i *planes, const __m512i *waiting, size_t rounds)
{
    for (int j = 4; rounds > 0; rounds >>= 1, j++) {
        __m512i carry = rounds & 1 ? waiting[j] : _mm512_setzero_si512();
        for (int k = j; _mm512_test_epi32_mask(carry, carry) != 0; k++)
            carry = carry_save(&planes[k], carry, _mm512_setzero_si512());
    }
}

/* Group number `round`, of 256 elements; true if some of them may be rare. The planes that change
 * often are held in registers. */
INLINE bool add_group(state *s, const void *src, gs_dtype type, int base, size_t round)
{
    const __m512i none = _mm512_setzero_si512(), all = _mm512_set1_epi32(-1);
    __m512i p[4], fours[2], eights[2];
    extremes x = {none, all, none};
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
    carry_on(s->planes, s->waiting, carry_save(&p[3], eights[0], eights[1]), round);
    memcpy(s->planes, p, sizeof p);
    s->top = _mm512_max_epu32(s->top, x.top);
    return (_mm512_cmplt_epu32_mask(x.low, _mm512_set1_epi32((base << 23) - 1)) |
            _mm512_cmpge_epu32_mask(x.top,
                                    _mm512_set1_epi32((int)((uint32_t)(base + SLOTS) << 23))) |
            _mm512_test_epi32_mask(x.edge, _mm512_set1_epi32(0x800000))) != 0;
}

/* Of 16 magnitudes as f32 bits those that are edges or outside of the window, zeros apart. */
INLINE __mmask16 rare16(__m512i mag, gs_dtype type, int base, int slots)
{
    const __m512i bits = _mm512_set1_epi32(0x7FFFFF), first = _mm512_set1_epi32(base << 23);
    const __mmask16 some = _mm512_test_epi32_mask(mag, mag);
    __mmask16 rare = _mm512_mask_cmpge_epu32_mask(some, _mm512_sub_epi32(mag, first),
                                                  _mm512_set1_epi32((int)((uint32_t)slots << 23)));
    if (type == GS_F16)
        return rare;
    const __mmask16 low =
        _mm512_mask_cmplt_epi32_mask(some, mag, _mm512_set1_epi32(GSI_POWER_BELOW));
    rare |= _mm512_mask_testn_epi32_mask(low, mag, bits);
    if (type == GS_F32)
        rare |= _mm512_cmpge_epi32_mask(_mm512_and_si512(mag, bits), _mm512_set1_epi32(GSI_TOP));
    return rare;
}

/* The rare ones of n elements, n a multiple of 16 and at most 512, one by one, after they have been
 * gathered: most vectors have none. Returns how many are outside. */
INLINE uint64_t add_rare(gs_exponents *sum, const void *src, size_t n, gs_dtype type, int base,
                         int slots)
{
    uint32_t found[2 * GROUP + 16];
    size_t count = 0;
    for (size_t i = 0; i < n; i += 16) {
        const __m512i mag = magnitude(load16(at(src, i, type), type, 0xFFFF));
        const __mmask16 rare = rare16(mag, type, base, slots);
        if (rare == 0)
            continue;
        _mm512_storeu_si512(found + count, _mm512_maskz_compress_epi32(rare, mag));
        count += (size_t)__builtin_popcount(rare);
    }
    uint64_t outside = 0;
    for (size_t i = 0; i < count; i++)
        outside += gsi_exponents_rare(sum, found[i], base, slots);
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

/* How many elements of a segment a sample is drawn from: its first ones. They are read next; lines
 * from all over it would be read twice, and each waited for. */
INLINE size_t sampled(size_t count) { return count < 1 << 12 ? count : 1 << 12; }

/* ---- halves in lanes of their own ---- */

/* 32 at a time: each of two words of 16 bits has half of the window. */
enum { HALF_GROUP = 32 * VECTORS };
enum { HALF_PLANES = 12 }; /* for 2048 words per lane */

typedef struct half_state {
    __m512i base; /* the biased exponent of bit 0 of the first word */
    __m512i top;
    __m512i planes[2][HALF_PLANES];
    __m512i waiting[2][HALF_PLANES];
} half_state;

typedef struct half_words {
    __m512i of[2];
} half_words;

INLINE half_words words_of_halves(const half_state *s, const void *src, gs_dtype type, int v,
                                  extremes *x)
{
    const void *const p = at(src, 32 * (size_t)v, type);
    fetch(p);
    const __m512i mag = magnitudes(_mm512_loadu_si512(p), type);
    const __m512i one = _mm512_set1_epi16(1);
    const __m512i slot = _mm512_sub_epi16(_mm512_srli_epi16(mag, type == GS_F16 ? 10 : 7), s->base);
    x->top = _mm512_max_epu16(x->top, mag);
    x->low = _mm512_min_epu16(x->low, _mm512_sub_epi16(mag, one));
    return (half_words){
        {_mm512_sllv_epi16(one, slot),
         _mm512_sllv_epi16(one, _mm512_sub_epi16(slot, _mm512_set1_epi16(SLOTS / 2)))}};
}

#define HALVES(v) words_of_halves(s, src, type, v, &x)

/* Group number `round`, of 512; true if some of them may be rare. */
INLINE bool add_halves(half_state *s, const void *src, gs_dtype type, int base, int slots,
                       size_t round)
{
    __m512i p[2][4], fours[2][2], eights[2][2];
    extremes x = {_mm512_setzero_si512(), _mm512_set1_epi16(-1), _mm512_setzero_si512()};
    memcpy(p[0], s->planes[0], sizeof p[0]);
    memcpy(p[1], s->planes[1], sizeof p[1]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
#pragma GCC unroll 2
        for (int quarter = 0; quarter < 2; quarter++) {
            const int v = 8 * half + 4 * quarter;
            const half_words w4[4] = {HALVES(v), HALVES(v + 1), HALVES(v + 2), HALVES(v + 3)};
#pragma GCC unroll 2
            for (int w = 0; w < 2; w++) {
                const __m512i a = carry_save(&p[w][0], w4[0].of[w], w4[1].of[w]);
                const __m512i b = carry_save(&p[w][0], w4[2].of[w], w4[3].of[w]);
                fours[w][quarter] = carry_save(&p[w][1], a, b);
            }
        }
#pragma GCC unroll 2
        for (int w = 0; w < 2; w++)
            eights[w][half] = carry_save(&p[w][2], fours[w][0], fours[w][1]);
    }
#pragma GCC unroll 2
    for (int w = 0; w < 2; w++) {
        carry_on(s->planes[w], s->waiting[w], carry_save(&p[w][3], eights[w][0], eights[w][1]),
                 round);
        memcpy(s->planes[w], p[w], sizeof p[w]);
    }
    s->top = _mm512_max_epu16(s->top, x.top);
    /* As codes of the type; in bf16 powers below GSI_POWER_BELOW are edges. */
    const int shift = type == GS_F16 ? 10 : 7, field = type == GS_F16 ? base - 112 : base;
    int first = field << shift;
    if (type == GS_BF16 && first < GSI_POWER_BELOW >> 16)
        first = GSI_POWER_BELOW >> 16;
    return (_mm512_cmplt_epu16_mask(x.low, _mm512_set1_epi16((short)(first - 1))) |
            _mm512_cmpge_epu16_mask(x.top, _mm512_set1_epi16((short)((field + slots) << shift)))) !=
           0;
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
    const int base = type == GS_F16 ? 113 : gsi_exponents_window(src, sampled(count), type, SLOTS);
    half_state s = {.base = _mm512_set1_epi16((short)(type == GS_F16 ? 1 : base))};
    uint64_t outside = 0;
    for (size_t i = 0; i < count; i += HALF_GROUP) {
        const void *const p = at(src, i, type);
        if (add_halves(&s, p, type, base, slots, i / HALF_GROUP))
            outside += add_rare(sum, p, HALF_GROUP, type, base, slots);
    }
    for (int w = 0; w < 2; w++)
        carry_rest(s.planes[w], s.waiting[w], count / HALF_GROUP);
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
    const int base = gsi_exponents_window(src, sampled(count), type, SLOTS);
    state s = {.base = _mm512_set1_epi32(base)};
    uint64_t outside = 0;
    for (size_t i = 0; i < count; i += GROUP)
        if (add_group(&s, at(src, i, type), type, base, i / GROUP))
            outside += add_rare(sum, at(src, i, type), GROUP, type, base, SLOTS);
    carry_rest(s.planes, s.waiting, count / GROUP);
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
        const bool words =
            type == GS_F32 || (type == GS_F16 && has_many_subnormals(p, sampled(count)));
        const uint32_t top = words ? exponents_of_words(sum, p, count, type)
                                   : exponents_of_halves(sum, p, count, type);
        most = top > most ? top : most;
        i += count;
    }
    const uint32_t rest = gsi_exponents_each(sum, at(src, i, type), n - i, type);
    return gsi_amax_bits(rest > most ? rest : most);
}
