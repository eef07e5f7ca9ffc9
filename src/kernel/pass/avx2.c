/* AVX2 with FMA and F16C: 32 elements per round. What is left of an array, or stands before an
 * aligned line of its destination, goes through a round on the stack, padded with zeros, which
 * change neither a maximum nor a sum. Why prefetch and non-temporal stores: see avx512.c. */
#include "kernel/dispatch.h"

#if defined(__x86_64__)
#include "kernel/simd/avx2_random.h"

/* ---- elementwise: convert, scale, axpy ---- */

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
        top = store16((char *)dst + i * gsi_size_of(to), to, a, b, stream, top);
    }
    return top;
}

/* n < ROUND elements. */
INLINE __m256i map_rest(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n, map_op op,
                        __m256 factor, __m256i top)
{
    uint32_t in[ROUND] = {0}, out[ROUND];
    memcpy(in, src, n * gsi_size_of(from));
    top = map32(out, to, in, from, op, factor, false, top);
    memcpy(dst, out, n * gsi_size_of(to));
    return top;
}

/* memory: src comes from there, and is prefetched. After streaming, the caller has to fence. */
INLINE uint32_t map(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n, map_op op,
                    float by, bool stream, const bool memory)
{
    const __m256 factor = _mm256_set1_ps(by);
    __m256i top = _mm256_setzero_si256();
    char *d = dst;
    const char *s = src;
    const size_t dsize = ROUND * gsi_size_of(to), ssize = ROUND * gsi_size_of(from);

    if (stream) {
        const size_t ahead = (32 - (uintptr_t)dst % 32) % 32 / gsi_size_of(to);
        const size_t head = ahead < n ? ahead : n;
        top = map_rest(d, to, s, from, head, op, factor, top);
        d += head * gsi_size_of(to);
        s += head * gsi_size_of(from);
        n -= head;
        for (; n >= ROUND; n -= ROUND, d += dsize, s += ssize) {
            if (memory)
                prefetch_all(s, ssize);
            top = map32(d, to, s, from, op, factor, true, top);
        }
    }
    for (; n >= ROUND; n -= ROUND, d += dsize, s += ssize) {
        if (memory)
            prefetch_all(s, ssize);
        top = map32(d, to, s, from, op, factor, false, top);
    }
    if (n > 0)
        top = map_rest(d, to, s, from, n, op, factor, top);
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

INLINE uint32_t avx2_axpy(void *dst, const void *src, gs_dtype from, size_t n, float by)
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
        memcpy(in, at(src, i, from), (n - i) * gsi_size_of(from));
        top = axpy32(rest, in, from, factor, top);
        memcpy(y + i, rest, (n - i) * sizeof *y);
    }
    return highest(top, GS_F32);
}

/* ---- stochastic rounding ---- */

/* A whole random group. */
INLINE __m256i stochastic_group(uint16_t *dst, gs_dtype to, const void *src, gs_dtype from,
                                uint64_t seed, uint64_t group, __m256i top)
{
    __m256i lo[4], hi[4]; /* blocks 0 to 7 and 8 to 15 */
    philox8(lo, seed, group * 16);
    philox8(hi, seed, group * 16 + 8);
    for (size_t row = 0; row < 8; row++) {
        const char *s = at(src, row * 16, from);
        const __m256i a = round_sr(load8(s, from), to, lo[row / 2], row);
        const __m256i b = round_sr(load8(at(s, 8, from), from), to, hi[row / 2], row);
        const __m256i h = pack(a, b);
        store(dst + row * 16, h, false);
        top = raise(top, h, to);
    }
    return top;
}

INLINE uint32_t avx2_stochastic(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
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
            memcpy((char *)in + skip * gsi_size_of(from), s, count * gsi_size_of(from));
            top = stochastic_group(out, to, in, from, seed, group, top);
            memcpy(d + i, out + skip, count * sizeof *d);
        }
        i += count;
    }
    return highest(top, to);
}

/* ---- reductions: check, scan, count ---- */

INLINE uint32_t avx2_check(const void *src, size_t n, gs_dtype type)
{
    const size_t per = 32 / gsi_size_of(type); /* elements per vector */
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
        memcpy(rest, at(src, i, type), count * gsi_size_of(type));
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
    const __m256i low = _mm256_cmpgt_epi32(all(limits.underflow), mag);
    const __m256i sub = _mm256_cmpgt_epi32(all(limits.subnormal), mag);
    c->zero += ones(lanes_of(zero));
    c->underflow += ones(lanes_of(_mm256_andnot_si256(zero, low)));
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

INLINE void count_all(gsi_counts *out, const void *src, size_t n, gsi_limits limits, gs_dtype type)
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
        memcpy(rest, at(src, i, type), (n - i) * gsi_size_of(type));
        count32(&c, rest, i, n, limits, type, &top);
        c.zero -= ROUND - (n - i); /* the padding */
    }
    c.amax = highest(top, GS_F32);
    *out = c;
}

/* ---- scan, unscale ---- */

#define FAMILY(name) avx2_##name
typedef __m256i vector; /* of f32 bits, whatever the type */
typedef __m256d f64s;

INLINE vector larger(vector a, vector b, gs_dtype type)
{
    (void)type;
    return _mm256_max_epu32(a, b);
}

INLINE uint32_t top_of(vector x, gs_dtype type)
{
    (void)type;
    return highest(x, GS_F32);
}

INLINE void scale_block(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                        float factor, bool stream)
{
    map(dst, to, src, from, n, SCALE, factor, stream, false);
}

INLINE void fence(void) { _mm_sfence(); }

#include "kernel/pass/tmpl_scan.h"

#undef FAMILY

INLINE void avx2_count(gsi_counts *out, double *sumsq, const void *src, size_t n, gsi_limits limits,
                       gs_dtype type)
{
    if (sumsq)
        avx2_scan(sumsq, src, n, type);
    count_all(out, src, n, limits, type);
}

INLINE uint32_t avx2_convert(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                             bool stream)
{
    return map_memory(dst, to, src, from, n, CONVERT, 1, stream);
}

INLINE uint32_t avx2_scale(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                           float factor, bool stream)
{
    return map_memory(dst, to, src, from, n, SCALE, factor, stream);
}

/* ---- the kernels ---- */

#define X(name, family, from, to) \
    GSI_MAKE_##family(static TARGET, name##_avx2, avx2_##family, GS_##from, GS_##to)
GS_PASSES(X)
#undef X

void gsi_pass_avx2(gsi_kernels *k)
{
#define X(name, family, from, to) k->pass.GSI_SLOT_##family(from, to) = name##_avx2;
    GS_PASSES(X)
#undef X
    gsi_exponents_avx2(k);
}

#endif
