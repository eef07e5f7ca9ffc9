/* The epilogue: a part of tmpl.h. */
#ifndef GSI_KERNEL_GEMM_TMPL_EPILOGUE_H
#define GSI_KERNEL_GEMM_TMPL_EPILOGUE_H

#include "kernel/gemm/tmpl_tile.h"

/* All ones in the first n lanes. */
INLINE vi first_lanes(size_t n)
{
    vi lane;
    UNROLL for (int i = 0; i < WIDTH; i++) lane[i] = i;
    return lane < (int32_t)n;
}

_Static_assert(WIDTH <= GSI_LINE, "gsi_lanes has room for a vector");

INLINE vi take(const uint32_t *lanes)
{
    vi x;
    memcpy(&x, lanes, sizeof x);
    return x;
}

INLINE void put(uint32_t *lanes, vi x) { memcpy(lanes, &x, sizeof x); }

/* Inf and NaN among what has been stored, and the largest of the rest. */
static TARGET void count_large(const void *c, size_t m, size_t n, const gsi_epilogue *e)
{
    tally t = {0};
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j += WIDTH) {
            const vi u = (vi)load(c, i * e->stride + j, e->dtype, n - j);
            tally_large(&t, u & INT32_MAX, &e->limits);
        }
    e->lanes->inf += lanes_sum(t.inf);
    e->lanes->nan += lanes_sum(t.nan);
    put(e->lanes->amax, max_i32(take(e->lanes->amax), t.amax));
}

/* -0 is what changes no number when it is added. n is a constant where it is NR. */
INLINE void epilogue_any(void *c, const float *sums, size_t m, size_t n, const gsi_epilogue *e,
                         const gs_dtype type, const bool beta, const bool counted)
{
    const float none = -0.0f;
    const gsi_limits limits = e->limits; /* else read again after every store */
    const float *const row = e->row ? e->row : &none;
    const size_t row_step = e->row != NULL, stride = e->stride * gsi_size_of(type);
    char *row_of_c = c;
    gsi_lanes *const lanes = e->lanes;
    tally t = {0};
    if (counted) {
        t.zeros = take(lanes->zeros);
        t.low = take(lanes->low);
        t.small = take(lanes->small);
    }
    vf column[VECS];
    UNROLL for (size_t j = 0; j < NR; j += WIDTH) column[j / WIDTH] =
        e->column && j < n ? load(e->column, j, GS_F32, n - j) : splat(-0.0f);
    for (size_t i = 0; i < m; i++, row_of_c += stride) {
        const vf of_row = splat(row[i * row_step]);
        UNROLL for (size_t j = 0; j < NR; j += WIDTH)
        {
            if (j >= n)
                continue;
            char *const out = row_of_c + j * gsi_size_of(type);
            vf sum = load_whole(sums + i * NR + j) + column[j / WIDTH] + of_row;
            if (beta)
                sum = mul_add(splat(e->beta), load(out, 0, type, n - j), sum);
            const vi nan = is_nan(sum);
            const vi u = ((vi)sum & ~nan) | (nan & (int32_t)(GSI_F32_INF | 0x400000));
            store(out, type, u, n - j);
            if (counted) {
                const vi mag = u & first_lanes(n - j) & INT32_MAX;
                tally_small(&t, mag, &limits);
                t.amax = max_i32(t.amax, mag);
            }
        }
    }
    if (!counted)
        return;
    put(lanes->zeros, t.zeros);
    put(lanes->low, t.low);
    put(lanes->small, t.small);
    lanes->spare += (gsi_ceil_div(n, WIDTH) * WIDTH - n) * m;
    if (__builtin_expect(reaches(t.amax, (int32_t)limits.overflow), 0))
        count_large(c, m, n, e);
    else
        put(lanes->amax, max_i32(take(lanes->amax), t.amax));
}

INLINE void epilogue_n(void *c, const float *sums, size_t m, size_t n, const gsi_epilogue *e,
                       const gs_dtype type, const bool beta, const bool counted)
{
    if (n == NR)
        epilogue_any(c, sums, m, NR, e, type, beta, counted);
    else
        epilogue_any(c, sums, m, n, e, type, beta, counted);
}

INLINE void epilogue_type(void *c, const float *sums, size_t m, size_t n, const gsi_epilogue *e,
                          const gs_dtype type, const bool counted)
{
    if (e->beta != 0)
        epilogue_n(c, sums, m, n, e, type, true, counted);
    else
        epilogue_n(c, sums, m, n, e, type, false, counted);
}

INLINE void epilogue_any_type(void *c, const float *sums, size_t m, size_t n, const gsi_epilogue *e,
                              const bool counted)
{
    if (e->dtype == GS_F32)
        epilogue_type(c, sums, m, n, e, GS_F32, counted);
    else if (e->dtype == GS_F16)
        epilogue_type(c, sums, m, n, e, GS_F16, counted);
    else
        epilogue_type(c, sums, m, n, e, GS_BF16, counted);
}

/* On its own, so that the other one keeps little on the stack. */
static TARGET __attribute__((noinline)) void epilogue_counted(void *c, const float *sums, size_t m,
                                                              size_t n, const gsi_epilogue *e)
{
    epilogue_any_type(c, sums, m, n, e, true);
}

static TARGET void epilogue(void *c, const float *sums, size_t m, size_t n, const gsi_epilogue *e)
{
    if (e->lanes)
        epilogue_counted(c, sums, m, n, e);
    else
        epilogue_any_type(c, sums, m, n, e, false);
}

#endif
