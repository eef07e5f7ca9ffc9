/* The passes with AVX-512 (F, BW, DQ, VL): 32 elements per round, the rest under masks. A
 * template; the including source has defined
 *
 *     #define KERNEL(name)      the name of a kernel
 *     #define FAMILY(name)      the name of what makes kernels
 *     #define FETCH_AHEAD       bytes of software prefetch; 0: none
 *
 * Non-temporal stores skip reading the destination's lines first, which makes a pass that
 * leaves the caches up to twice as fast, and half as fast one that does not. It has no guard:
 * it is included once per source. */

/* Intel's hardware prefetcher does not cross a 4 KB page, and one core cannot otherwise keep enough
 * lines in flight. AMD's does, and prefetches of ours are in its way. */
INLINE void fetch(const void *p)
{
    if (FETCH_AHEAD > 0)
        _mm_prefetch((const char *)((uintptr_t)p + FETCH_AHEAD), _MM_HINT_T0);
}

/* Every line of so many bytes. */
INLINE void fetch_all(const void *p, const size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        fetch((const char *)p + i);
}

/* ---- elementwise: convert, scale, axpy ---- */

INLINE void store_halves(void *dst, __m512i h, size_t n, bool stream)
{
    if (stream)
        _mm512_stream_si512(dst, h);
    else
        _mm512_mask_storeu_epi16(dst, first32(n), h);
}

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
    store_halves(dst, h, n, stream);
    return raise(top, h, type);
}

typedef enum map_op { CONVERT, SCALE } map_op;

INLINE __m512i map32(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n, map_op op,
                     __m512 factor, bool stream, __m512i top)
{
    if (op == SCALE && from == GS_BF16 && to == GS_BF16) {
        const pair x = widen_bf16(_mm512_maskz_loadu_epi16(first32(n), src));
        const __m512i h = bf16_products((pair){x.a * factor, x.b * factor});
        store_halves(dst, h, n, stream);
        return raise(top, h, GS_BF16);
    }
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

/* memory: src comes from there, and is prefetched. After streaming, the caller has to fence. */
INLINE uint32_t map(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n, map_op op,
                    float by, bool stream, const bool memory)
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
            if (memory)
                fetch_all(s, ssize);
            top = map32(d, to, s, from, 32, op, factor, true, top);
        }
    }
    for (; n >= 32; n -= 32, d += dsize, s += ssize) {
        if (memory)
            fetch_all(s, ssize);
        top = map32(d, to, s, from, 32, op, factor, false, top);
    }
    if (n > 0)
        top = map32(d, to, s, from, n, op, factor, false, top);
    return highest(top, to);
}

INLINE uint32_t map_memory(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                           map_op op, float by, bool stream)
{
    const uint32_t amax = map(dst, to, src, from, n, op, by, stream, true);
    if (stream)
        _mm_sfence();
    return amax;
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

INLINE uint32_t FAMILY(axpy)(void *dst, const void *src, gs_dtype from, size_t n, float by)
{
    const __m512 factor = _mm512_set1_ps(by);
    __m512i top = _mm512_setzero_si512();
    float *y = dst;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        fetch(y + i);
        fetch(at(src, i, from));
        top = axpy32(y + i, at(src, i, from), from, 32, factor, top);
    }
    if (i < n)
        top = axpy32(y + i, at(src, i, from), from, n - i, factor, top);
    return highest(top, GS_F32);
}

/* ---- stochastic rounding ---- */

/* The keys of the rounds. */
typedef struct round_keys {
    uint32_t round[10][2];
} round_keys;

INLINE round_keys philox_keys(uint64_t key)
{
    round_keys k;
    for (uint32_t i = 0; i < 10; i++) {
        k.round[i][0] = (uint32_t)key + i * 0x9E3779B9;
        k.round[i][1] = (uint32_t)(key >> 32) + i * 0xBB67AE85;
    }
    return k;
}

/* x ^ y ^ key; by asm, because compilers keep all keys in registers, or try to. */
INLINE __m512i xor_key(__m512i x, __m512i y, const uint32_t *key)
{
    __asm__("vpternlogd {$0x96, %2%{1to16%}, %1, %0|%0, %1, %2%{1to16%}, 0x96}"
            : "+v"(x)
            : "v"(y), "m"(*key));
    return x;
}

/* Words of 16 consecutive Philox blocks, w[k] holding word k of each, for `groups` (1 or 2) times
 * 16. Even and odd blocks go through the rounds apart, in lanes of 64 bits whose upper half is of
 * no use: a product needs no blending. Two groups at once, because one is a chain of 50 cycles. */
INLINE void philox16(__m512i (*w)[4], const size_t groups, const round_keys *keys, uint64_t block)
{
    const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
    const __m512i lane = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0), none = _mm512_setzero_si512();
    __m512i all[4][4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 2 * groups; i++) {
        const uint64_t from = block + i / 2 * 16 + i % 2;
        all[i][0] = _mm512_add_epi64(_mm512_set1_epi64((long long)from), lane);
        all[i][1] = _mm512_set1_epi64((long long)(from >> 32));
        all[i][2] = all[i][3] = none;
    }
#pragma GCC unroll 10
    for (size_t round = 0; round < 10; round++) {
#pragma GCC unroll 4
        for (size_t i = 0; i < 2 * groups; i++) {
            __m512i *const c = all[i];
            const __m512i p0 = _mm512_mul_epu32(c[0], m0), p1 = _mm512_mul_epu32(c[2], m1);
            c[0] = xor_key(_mm512_srli_epi64(p1, 32), c[1], &keys->round[round][0]);
            c[2] = xor_key(_mm512_srli_epi64(p0, 32), c[3], &keys->round[round][1]);
            c[1] = p1;
            c[3] = p0;
        }
    }
#pragma GCC unroll 2
    for (size_t g = 0; g < groups; g++) {
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++)
            w[g][k] = _mm512_mask_blend_epi32(0xAAAA, all[2 * g][k],
                                              _mm512_slli_epi64(all[2 * g + 1][k], 32));
    }
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
                                size_t skip, size_t n, const round_keys *keys, uint64_t group,
                                __m256i top)
{
    __m512i words[1][4];
    const __m512i *const w = words[0];
    philox16(words, 1, keys, group * 16);
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

/* What is kept of 16 magnitudes, above what is cut off, as 16.16 fixed point: of f16 below 2^16. */
INLINE __m512i fixed_f16(__m512i mag)
{
    const __mmask16 normal = _mm512_cmpge_epu32_mask(mag, _mm512_set1_epi32(0x38800000));
    const __m512i small = _mm512_cvttps_epi32(
        _mm512_mul_ps(_mm512_castsi512_ps(mag), _mm512_set1_ps(0x1p+40f))); /* of 2^-24 */
    const __m512i from_zero = _mm512_sub_epi32(mag, _mm512_set1_epi32(112 << 23));
    return _mm512_mask_slli_epi32(small, normal, from_zero, 3);
}

/* The upper halves of the lanes of two registers. */
INLINE __m512i upper_halves(__m512i a, __m512i b)
{
    const __m512i odd =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(a, odd, b);
}

/* 32 elements, a and b, rounded. Large ones, Inf and NaN are rare. */
INLINE __m512i stochastic32(__m512i a, __m512i b, __m512i random, gs_dtype to)
{
    const __m512i low = _mm512_and_si512(random, _mm512_set1_epi32(0xFFFF));
    const __m512i high = _mm512_srli_epi32(random, 16), raw = upper_halves(a, b);
    const __m512i large = _mm512_set1_epi16(to == GS_F16 ? 0x477F : 0x7F7F);
    const __m512i mag = _mm512_and_si512(raw, _mm512_set1_epi16(0x7FFF));
    if (__builtin_expect(_mm512_cmpge_epu16_mask(mag, large) != 0, 0))
        return _mm512_inserti64x4(
            _mm512_castsi256_si512(to == GS_F16 ? to_f16_sr(a, low) : to_bf16_sr(a, low)),
            to == GS_F16 ? to_f16_sr(b, high) : to_bf16_sr(b, high), 1);
    if (to == GS_BF16)
        return upper_halves(_mm512_add_epi32(a, low), _mm512_add_epi32(b, high));
    const __m512i code = upper_halves(_mm512_add_epi32(fixed_f16(magnitude(a)), low),
                                      _mm512_add_epi32(fixed_f16(magnitude(b)), high));
    return _mm512_or_si512(code, _mm512_xor_si512(raw, mag)); /* the sign */
}

/* So many whole groups, 1 or 2. */
INLINE __m512i stochastic_whole(uint16_t *dst, gs_dtype to, const void *src, gs_dtype from,
                                const size_t groups, const round_keys *keys, uint64_t group,
                                __m512i top)
{
    __m512i w[2][4];
    philox16(w, groups, keys, group * 16);
#pragma GCC unroll 8
    for (size_t i = 0; i < 4 * groups; i++) {
        const void *p = at(src, 32 * i, from);
        const __m512i a = load16(p, from, 0xFFFF), b = load16(at(p, 16, from), from, 0xFFFF);
        const __m512i h = stochastic32(a, b, w[i / 4][i % 4], to);
        _mm512_storeu_si512(dst + 32 * i, h);
        top = raise(top, h, to);
    }
    return top;
}

INLINE uint32_t FAMILY(stochastic)(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                                   uint64_t seed, uint64_t first)
{
    enum { GROUP = GSI_RANDOM_GROUP };
    const round_keys keys = philox_keys(seed);
    __m256i top = _mm256_setzero_si256();
    __m512i whole = _mm512_setzero_si512();
    for (size_t i = 0, count; i < n; i += count) {
        const uint64_t group = (first + i) / GROUP;
        const size_t skip = (size_t)((first + i) % GROUP), left = n - i;
        const void *const s = at(src, i, from);
        uint16_t *const d = (uint16_t *)dst + i;
        fetch_all(s, GROUP * gsi_size_of(from));
        if (skip == 0 && left >= 2 * GROUP) {
            fetch_all(at(s, GROUP, from), GROUP * gsi_size_of(from));
            count = 2 * GROUP;
            whole = stochastic_whole(d, to, s, from, 2, &keys, group, whole);
        } else if (skip == 0 && left >= GROUP) {
            count = GROUP;
            whole = stochastic_whole(d, to, s, from, 1, &keys, group, whole);
        } else {
            count = GROUP - skip < left ? GROUP - skip : left;
            top = stochastic_group(d, to, s, from, skip, count, &keys, group, top);
        }
    }
    return highest(raise(whole, _mm512_zextsi256_si512(top), to), to);
}

/* ---- check ---- */

INLINE uint32_t FAMILY(check)(const void *src, size_t n, gs_dtype type)
{
    const size_t per = 64 / gsi_size_of(type); /* elements per vector */
    __m512i t0 = _mm512_setzero_si512(), t1 = t0, t2 = t0, t3 = t0;
    size_t i = 0;
    for (; i + 4 * per <= n; i += 4 * per) {
        const char *p = at(src, i, type);
        fetch(p);
        fetch(p + 64);
        fetch(p + 128);
        fetch(p + 192);
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

#include "kernel/pass/tmpl_avx512_sums.h"
#include "kernel/pass/tmpl_avx512_exponents.h"

/* ---- the kernels ---- */

INLINE uint32_t FAMILY(convert)(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                                bool stream)
{
    return map_memory(dst, to, src, from, n, CONVERT, 1, stream);
}

INLINE uint32_t FAMILY(scale)(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                              float factor, bool stream)
{
    return map_memory(dst, to, src, from, n, SCALE, factor, stream);
}

#define X(name, family, from, to) \
    GSI_MAKE_##family(static TARGET, KERNEL(name), FAMILY(family), GS_##from, GS_##to)
GS_PASSES(X)
GS_EXPONENTS(X)
#undef X

void KERNEL(gsi_pass)(gsi_kernels *k)
{
#define X(name, family, from, to) k->pass.GSI_SLOT_##family(from, to) = KERNEL(name);
    GS_PASSES(X)
    GS_EXPONENTS(X)
#undef X
}
