/* NEON, which every AArch64 has: 32 elements per round. What is left of an array goes through a
 * round on the stack, padded with zeros, which change neither a maximum nor a sum.
 *
 * FCVTN and FCVTL, between f16 and f32, obey FPCR: its rounding mode, default NaN, alternative
 * half. Conversions enter the default mode; the passes enter it for the kernels that calculate.
 * There is no portable intrinsic for a non-temporal store: `stream` is ignored. */
#include "kernel/fpenv.h"
#include "kernel/dispatch.h"

#if defined(__aarch64__) && !defined(__AARCH64EB__)
#include "kernel/simd/neon_random.h"

/* ---- elementwise: convert, scale, axpy ---- */

INLINE uint32x4_t store8(void *dst, gs_dtype type, f32x8 u, uint32x4_t top)
{
    if (type == GS_F32) {
        store(dst, u.val[0]);
        store((char *)dst + 16, u.val[1]);
        return raise8(top, u);
    }
    const uint32x4_t h = words(to_half(u, type));
    store(dst, h);
    return raise(top, h, type);
}

typedef enum map_op { CONVERT, SCALE } map_op;

INLINE uint32x4_t map4(uint32x4_t u, gs_dtype to, gs_dtype from, map_op op, float factor)
{
    if (op == SCALE)
        return bits(vmulq_n_f32(floats(u), factor));
    return from == GS_BF16 && to == GS_F32 ? quiet(u) : u;
}

INLINE uint32x4_t map32(void *dst, gs_dtype to, const void *src, gs_dtype from, map_op op,
                        float factor, uint32x4_t top)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < ROUND; i += 8) {
        f32x8 u = load8(at(src, i, from), from);
        u.val[0] = map4(u.val[0], to, from, op, factor);
        u.val[1] = map4(u.val[1], to, from, op, factor);
        top = store8((char *)dst + i * gsi_size_of(to), to, u, top);
    }
    return top;
}

INLINE uint32_t map(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n, map_op op,
                    float factor)
{
    uint32x4_t top = all(0);
    char *d = dst;
    const char *s = src;
    const size_t dsize = ROUND * gsi_size_of(to), ssize = ROUND * gsi_size_of(from);

    for (; n >= ROUND; n -= ROUND, d += dsize, s += ssize)
        top = map32(d, to, s, from, op, factor, top);
    if (n > 0) {
        uint32_t in[ROUND] = {0}, out[ROUND];
        memcpy(in, s, n * gsi_size_of(from));
        top = map32(out, to, in, from, op, factor, top);
        memcpy(d, out, n * gsi_size_of(to));
    }
    return highest(top, to);
}

INLINE uint32_t neon_convert(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                             bool stream)
{
    (void)stream;
    const uint64_t env = gsi_fpenv_enter();
    const uint32_t top = map(dst, to, src, from, n, CONVERT, 1);
    gsi_fpenv_leave(env);
    return top;
}

INLINE uint32_t neon_scale(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                           float factor, bool stream)
{
    (void)stream;
    return map(dst, to, src, from, n, SCALE, factor);
}

INLINE uint32x4_t axpy32(void *dst, const void *src, gs_dtype from, float factor, uint32x4_t top)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < ROUND; i += 8) {
        char *y = (char *)dst + i * 4;
        const f32x8 x = load8(at(src, i, from), from);
        f32x8 sum = load8(y, GS_F32);
        for (int k = 0; k < 2; k++)
            sum.val[k] = bits(vaddq_f32(floats(sum.val[k]), vmulq_n_f32(floats(x.val[k]), factor)));
        top = store8(y, GS_F32, sum, top);
    }
    return top;
}

INLINE uint32_t neon_axpy(void *dst, const void *src, gs_dtype from, size_t n, float factor)
{
    uint32x4_t top = all(0);
    float *y = dst;
    size_t i = 0;
    for (; i + ROUND <= n; i += ROUND)
        top = axpy32(y + i, at(src, i, from), from, factor, top);
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

/* A whole random group: rows of 16 elements, of which each turn takes 8. */
INLINE uint32x4_t stochastic_group(uint16_t *dst, gs_dtype to, const void *src, gs_dtype from,
                                   uint64_t seed, uint64_t group, uint32x4_t top)
{
    for (size_t turn = 0; turn < 16; turn += 8) {
        uint32x4_t a[4], b[4];
        philox4(a, seed, group * 16 + turn);
        philox4(b, seed, group * 16 + turn + 4);
#pragma GCC unroll 8
        for (size_t row = 0; row < 8; row++) {
            const size_t i = row * 16 + turn;
            const f32x8 random = {{take16(a[row / 2], row), take16(b[row / 2], row)}};
            const uint16x8_t h = to_half_sr(load8(at(src, i, from), from), random, to);
            store(dst + i, words(h));
            top = raise(top, words(h), to);
        }
    }
    return top;
}

INLINE uint32_t neon_stochastic(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                                uint64_t seed, uint64_t first)
{
    const uint64_t env = gsi_fpenv_enter();
    uint32x4_t top = all(0);
    uint16_t *d = dst;
    for (size_t i = 0; i < n;) {
        const uint64_t group = (first + i) / GSI_RANDOM_GROUP;
        const size_t skip = (size_t)((first + i) % GSI_RANDOM_GROUP);
        const size_t room = GSI_RANDOM_GROUP - skip, count = room < n - i ? room : n - i;
        const void *s = at(src, i, from);
        if (count == GSI_RANDOM_GROUP) {
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
    gsi_fpenv_leave(env);
    return highest(top, to);
}

/* ---- reductions: check, scan, count ---- */

INLINE uint32_t neon_check(const void *src, size_t n, gs_dtype type)
{
    const size_t per = 16 / gsi_size_of(type); /* elements per vector */
    uint32x4_t t0 = all(0), t1 = t0, t2 = t0, t3 = t0;
    size_t i = 0;
    for (; i + 4 * per <= n; i += 4 * per) {
        const char *p = at(src, i, type);
        t0 = raise(t0, load(p), type);
        t1 = raise(t1, load(p + 16), type);
        t2 = raise(t2, load(p + 32), type);
        t3 = raise(t3, load(p + 48), type);
    }
    while (i < n) {
        uint32_t rest[4] = {0};
        const size_t count = n - i < per ? n - i : per;
        memcpy(rest, at(src, i, type), count * gsi_size_of(type));
        t0 = raise(t0, load(rest), type);
        i += count;
    }
    t0 = raise(raise(raise(t0, t1, type), t2, type), t3, type);
    return highest(t0, type);
}

/* The rare block: squares in f64, where they are exact. acc[k] holds lanes 2k and 2k + 1. */
static void squares_f64(float64x2_t acc[16], const void *src, gs_dtype type)
{
    for (size_t i = 0; i < GSI_BLOCK; i += 8) {
        const f32x8 u = load8(at(src, i, type), type);
        float64x2_t *lanes = acc + i / 2 % 16;
        for (int k = 0; k < 2; k++) {
            const float32x4_t x = floats(u.val[k]);
            const float64x2_t lo = vcvt_f64_f32(vget_low_f32(x)), hi = vcvt_high_f64_f32(x);
            lanes[2 * k] = vfmaq_f64(lanes[2 * k], lo, lo);
            lanes[2 * k + 1] = vfmaq_f64(lanes[2 * k + 1], hi, hi);
        }
    }
}

/* A whole block. Returns its largest magnitude, lane by lane, as f32. */
INLINE uint32x4_t scan_block(float64x2_t acc[16], const void *src, gs_dtype type)
{
    float32x4_t part[8];
    uint32x4_t top = all(0);
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++)
        part[k] = vdupq_n_f32(0);
    for (size_t i = 0; i < GSI_BLOCK; i += GSI_LANES) {
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++) {
            const f32x8 u = load8(at(src, i + 8 * k, type), type);
            const float32x4_t x = floats(u.val[0]), y = floats(u.val[1]);
            part[2 * k] = vaddq_f32(part[2 * k], vmulq_f32(x, x));
            part[2 * k + 1] = vaddq_f32(part[2 * k + 1], vmulq_f32(y, y));
            top = raise8(top, u);
        }
    }
    if (!gsi_sums_in_f32(highest(top, GS_F32))) {
        squares_f64(acc, src, type);
        return top;
    }
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        acc[2 * k] = vaddq_f64(acc[2 * k], vcvt_f64_f32(vget_low_f32(part[k])));
        acc[2 * k + 1] = vaddq_f64(acc[2 * k + 1], vcvt_high_f64_f32(part[k]));
    }
    return top;
}

/* Counts what is not finite among 8 magnitudes, the first of them element i, and returns the rest,
 * zero in its place. */
INLINE f32x8 drop_bad(gsi_counts *c, f32x8 mag, size_t i, size_t n)
{
    uint32_t lanes[8];
    store(lanes, mag.val[0]);
    store(lanes + 4, mag.val[1]);
    for (size_t k = 0; k < 8; k++) {
        c->inf += lanes[k] == GSI_F32_INF;
        c->nan += lanes[k] > GSI_F32_INF;
        if (lanes[k] >= GSI_F32_INF && c->first_bad == n)
            c->first_bad = i + k;
    }
    for (int k = 0; k < 2; k++)
        mag.val[k] = vandq_u32(mag.val[k], vcltq_u32(mag.val[k], all(GSI_F32_INF)));
    return mag;
}

/* What adds up over the rounds: less[t] counts the magnitudes below limit[t]. */
typedef struct tally {
    uint32x4_t top, limit[3];
    uint64x2_t less[3];
} tally;

INLINE void count32(gsi_counts *c, tally *t, const void *src, size_t i, size_t n, gs_dtype type)
{
    uint32x4_t less[3] = {all(0), all(0), all(0)};
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; k++) {
        const f32x8 u = load8(at(src, 8 * k, type), type);
        const f32x8 mag = {{magnitude(u.val[0]), magnitude(u.val[1])}};
        f32x8 finite = mag;
        if (vmaxvq_u32(vmaxq_u32(mag.val[0], mag.val[1])) >= GSI_F32_INF)
            finite = drop_bad(c, mag, i + 8 * k, n);
#pragma GCC unroll 3
        for (int l = 0; l < 3; l++) { /* a true comparison is -1 */
            less[l] = vsubq_u32(less[l], vcltq_u32(mag.val[0], t->limit[l]));
            less[l] = vsubq_u32(less[l], vcltq_u32(mag.val[1], t->limit[l]));
        }
        t->top = vmaxq_u32(t->top, vmaxq_u32(finite.val[0], finite.val[1]));
    }
#pragma GCC unroll 3
    for (int l = 0; l < 3; l++)
        t->less[l] = vpadalq_u32(t->less[l], less[l]);
}

INLINE uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

INLINE void count_all(gsi_counts *out, const void *src, size_t n, gsi_limits limits, gs_dtype type)
{
    const uint32_t underflow = max_u32(limits.underflow, 1),
                   sub = max_u32(limits.subnormal, underflow);
    gsi_counts c = {.first_bad = n};
    size_t i = 0, padding = 0;
    tally t = {.top = all(0), .limit = {all(1), all(underflow), all(sub)}};
    for (int l = 0; l < 3; l++)
        t.less[l] = vdupq_n_u64(0);

    for (; i + ROUND <= n; i += ROUND)
        count32(&c, &t, at(src, i, type), i, n, type);
    if (i < n) {
        uint32_t rest[ROUND] = {0};
        memcpy(rest, at(src, i, type), (n - i) * gsi_size_of(type));
        count32(&c, &t, rest, i, n, type);
        padding = ROUND - (n - i);
    }
    c.zero = vaddvq_u64(t.less[0]) - padding;
    c.underflow = vaddvq_u64(t.less[1]) - vaddvq_u64(t.less[0]);
    c.subnormal = vaddvq_u64(t.less[2]) - vaddvq_u64(t.less[1]);
    c.amax = highest(t.top, GS_F32);
    *out = c;
}

/* ---- scan, unscale ---- */

#define FAMILY(name) neon_##name
typedef uint32x4_t vector; /* of f32 bits, whatever the type */
typedef float64x2_t f64s;

INLINE vector larger(vector a, vector b, gs_dtype type)
{
    (void)type;
    return vmaxq_u32(a, b);
}

INLINE uint32_t top_of(vector x, gs_dtype type)
{
    (void)type;
    return highest(x, GS_F32);
}

INLINE void scale_block(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                        float factor, bool stream)
{
    (void)stream;
    map(dst, to, src, from, n, SCALE, factor);
}

INLINE void fence(void) {}

#include "kernel/pass/tmpl_scan.h"

#undef FAMILY

INLINE void neon_count(gsi_counts *out, double *sumsq, const void *src, size_t n, gsi_limits limits,
                       gs_dtype type)
{
    if (sumsq)
        neon_scan(sumsq, src, n, type);
    count_all(out, src, n, limits, type);
}

/* ---- the kernels ---- */

#define X(name, family, from, to) \
    GSI_MAKE_##family(static, name##_neon, neon_##family, GS_##from, GS_##to)
GS_PASSES(X)
#undef X

void gsi_pass_neon(gsi_kernels *k)
{
#define X(name, family, from, to) k->pass.GSI_SLOT_##family(from, to) = name##_neon;
    GS_PASSES(X)
#undef X
}

#endif
