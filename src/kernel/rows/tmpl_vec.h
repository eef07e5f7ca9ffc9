/* What the row kernels are written in: 32 elements at a time as f32, whatever their type. A
 * template, see simd/vec.h. The including source has defined the name of a kernel and the
 * primitives that instruction sets do better than operators:
 *
 *     #define KERNEL(name) name##_avx2
 *     #define UNROLL _Pragma("GCC unroll 8")   or nothing: packs lie in memory, not in registers
 *     vf load_f16(const uint16_t *p)           WIDTH halves, exactly widened
 *     void store_f16(uint16_t *p, vf x)        rounded as gsi_narrow does
 *     void store_u16(uint16_t *p, vu x)        the low halves of the lanes
 *     vu load_u16(const uint16_t *p)
 *     void store_u8(uint8_t *p, vu x)          the low bytes of the lanes
 *     vu load_u8(const uint8_t *p)
 *     vf max_f32(vf a, vf b)                   a > b ? a : b, also for NaN and zeros
 *     vi max_i32(vi a, vi b)
 *     bool reaches(vi x, int32_t limit)        see tally.h
 *     vu64 mul_even(vu a, vu b)                lanes 0, 2, 4, ... to 64 bits
 *     #define HALF_CODES                       may be left out: half_codes, store_codes, codes_end
 *                                              store and count whole packs of halves
 *
 * The types of arrays are looked at every 32 elements: a branch that is always predicted, instead
 * of a copy of every kernel for every combination of types. */
#ifndef GSI_KERNEL_ROWS_VEC_H
#define GSI_KERNEL_ROWS_VEC_H

#include "kernel/simd/math.h"
#include "kernel/rows/rows.h"
#include "kernel/simd/tally.h"

enum { LANES = GSI_LANES, VECS = LANES / WIDTH };

typedef struct pack {
    vf v[VECS];
} pack;

#define EACH_VEC(k) UNROLL for (int k = 0; k < VECS; k++)

INLINE pack all(float x)
{
    pack p;
    EACH_VEC (k)
        p.v[k] = splat(x);
    return p;
}

/* Elements left from i on, at most a pack. */
INLINE size_t left(size_t n, size_t i) { return n - i < LANES ? n - i : LANES; }

INLINE vf load_f32v(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void store_f32v(float *p, vf x) { memcpy(p, &x, sizeof x); }

INLINE vf load_bf16v(const uint16_t *p) { return (vf)(load_u16(p) << 16); }

INLINE void store_bf16v(uint16_t *p, vf x)
{
    const vu u = (vu)x;
    const vu nan = (vu)is_nan(x);
    const vu up = u + 0x7FFF + (u >> 16 & 1);
    store_u16(p, ((up & ~nan) | ((u | 0x400000) & nan)) >> 16);
}

/* ---- loads ---- */

INLINE pack load_whole(const void *data, gs_dtype type)
{
    pack p;
    if (type == GS_F32) {
        EACH_VEC (k)
            p.v[k] = load_f32v((const float *)data + k * WIDTH);
    } else if (type == GS_F16) {
        EACH_VEC (k)
            p.v[k] = load_f16((const uint16_t *)data + k * WIDTH);
    } else {
        EACH_VEC (k)
            p.v[k] = load_bf16v((const uint16_t *)data + k * WIDTH);
    }
    return p;
}

/* m < LANES elements and zeros */
TARGET static __attribute__((noinline)) void load_part(pack *p, gsi_in x, size_t m)
{
    float buffer[LANES] = {0};
    memcpy(buffer, x.data, m * gsi_size_of(x.type));
    *p = load_whole(buffer, x.type);
}

/* Elements i to i + m, and zeros up to a pack. */
INLINE pack load(gsi_in x, size_t i, size_t m)
{
    const gsi_in from = gsi_in_at(x, i);
    if (m == LANES)
        return load_whole(from.data, from.type);
    pack p;
    load_part(&p, from, m);
    return p;
}

static const int32_t lane_numbers[LANES] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                            11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                            22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

/* Lanes from m on become `fill`. */
INLINE pack cut(pack x, size_t m, float fill)
{
    if (m == LANES)
        return x;
    EACH_VEC (k) {
        vi lane;
        memcpy(&lane, lane_numbers + k * WIDTH, sizeof lane);
        x.v[k] = select(lane < (int32_t)m, x.v[k], splat(fill));
    }
    return x;
}

/* ---- stores ---- */

/* A destination, and the largest magnitude before rounding. The tally, if anything is counted, is
 * a pointer so that the rest can live in registers. */
typedef struct sink {
    gsi_out out;
    vi top;
    tally *tally;
    gsi_limits limits;
#ifdef HALF_CODES
    half_codes codes; /* of what they have stored, instead */
#endif
} sink;

INLINE sink sink_of(gsi_out out, tally *t)
{
    if (out.counts)
        *t = (tally){0};
    return (sink){.out = out, .top = (vi){0}, .tally = t, .limits = gsi_limits_of(out.type)};
}

/* Adds up and returns what the kernel returns. */
INLINE uint32_t sink_end(const sink *s)
{
    uint32_t top = rounded(lanes_max(s->top), s->out.type);
    if (s->out.counts)
        tally_end(s->tally, s->out.counts, s->out.type);
#ifdef HALF_CODES
    const uint32_t stored = codes_end(&s->codes, s->out.counts, s->out.type);
    top = stored > top ? stored : top;
#endif
    return gsi_amax_bits(top);
}

INLINE void store_whole(void *data, gs_dtype type, pack x)
{
    if (type == GS_F32) {
        EACH_VEC (k)
            store_f32v((float *)data + k * WIDTH, x.v[k]);
    } else if (type == GS_F16) {
        EACH_VEC (k)
            store_f16((uint16_t *)data + k * WIDTH, x.v[k]);
    } else {
        EACH_VEC (k)
            store_bf16v((uint16_t *)data + k * WIDTH, x.v[k]);
    }
}

TARGET static __attribute__((noinline)) void store_part(gsi_out y, const pack *x, size_t m)
{
    float buffer[LANES];
    store_whole(buffer, y.type, *x);
    memcpy(y.data, buffer, m * gsi_size_of(y.type));
}

/* The first m lanes go to elements i to i + m. */
INLINE void store(sink *s, size_t i, size_t m, pack x)
{
    const gsi_out to = gsi_out_at(s->out, i);
#ifdef HALF_CODES
    const bool codes = to.type == GS_BF16 || (to.type == GS_F16 && to.counts); /* where faster */
    if (m == LANES && codes && store_codes(&s->codes, to.data, x.v, to.type, to.counts != NULL))
        return;
#endif
    if (m == LANES) {
        store_whole(to.data, to.type, x);
    } else {
        x = cut(x, m, 0);
        const pack copy = x; /* x itself stays in registers */
        store_part(to, &copy, m);
    }
    EACH_VEC (k)
        s->top = max_i32(s->top, (vi)magnitude(x.v[k]));
    if (to.counts) {
        EACH_VEC (k)
            tally_add(s->tally, (vi)magnitude(x.v[k]), &s->limits);
        s->tally->spare += LANES - m;
    }
}

/* ---- sums over a row, in the order rows.h gives ---- */

typedef struct row_sum {
    pack part, total;
} row_sum;

INLINE row_sum sum_none(void) { return (row_sum){all(0), all(0)}; }

/* The elements from i on: i tells when a block ends. */
INLINE void sum_add(row_sum *s, size_t i, pack x)
{
    EACH_VEC (k)
        s->part.v[k] += x.v[k];
    if ((i + LANES) % GSI_BLOCK == 0) {
        EACH_VEC (k) {
            s->total.v[k] += s->part.v[k];
            s->part.v[k] = (vf){0};
        }
    }
}

INLINE float sum_fold(const row_sum *s)
{
    float lanes[LANES];
    EACH_VEC (k)
        store_f32v(lanes + k * WIDTH, s->total.v[k] + s->part.v[k]);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] += lanes[l + half];
    return lanes[0];
}

INLINE float fold_max(pack x)
{
    float lanes[LANES];
    memcpy(lanes, &x, sizeof lanes);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lanes[l] = lanes[l] > lanes[l + half] ? lanes[l] : lanes[l + half];
    return lanes[0];
}

#endif
