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

/* The n elements of a random group from its element `skip` on: n + skip <= GSI_RANDOM_GROUP. */
INLINE __m256i stochastic_group(uint16_t *dst, gs_dtype to, const void *src, gs_dtype from,
                                size_t skip, size_t n, const round_keys *keys, uint64_t group,
                                __m256i top)
{
    __m512i words[1][4];
    const __m512i *const w = words[0];
    const uint64_t block = group * 16;
    philox16(words, 1, &keys, &block);
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

/* So many whole groups, 1 or 2. */
INLINE __m512i stochastic_whole(uint16_t *dst, gs_dtype to, const void *src, gs_dtype from,
                                const size_t groups, const round_keys *keys, uint64_t group,
                                __m512i top)
{
    __m512i w[2][4];
    const round_keys *const both[] = {keys, keys};
    const uint64_t blocks[] = {group * 16, group * 16 + 16};
    philox16(w, groups, both, blocks);
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
