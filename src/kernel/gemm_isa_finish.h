/* Finishing: a part of gemm_isa.h. */
#ifndef GSI_KERNEL_GEMM_ISA_FINISH_H
#define GSI_KERNEL_GEMM_ISA_FINISH_H

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
static TARGET void count_large(const void *c, size_t m, size_t n, const gsi_finish *f)
{
    tally t = {0};
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j += WIDTH) {
            const vi u = (vi)load(c, i * f->stride + j, f->dtype, n - j);
            tally_large(&t, u & INT32_MAX, &f->limits);
        }
    f->lanes->inf += lanes_sum(t.inf);
    f->lanes->nan += lanes_sum(t.nan);
    put(f->lanes->amax, max_i32(take(f->lanes->amax), t.amax));
}

/* -0 is what changes no number when it is added. n is a constant where it is NR. */
INLINE void finish_any(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                       const gs_dtype type, const bool beta, const bool counted)
{
    const float none = -0.0f;
    const gsi_limits limits = f->limits; /* else read again after every store */
    const float *const row = f->row ? f->row : &none;
    const size_t row_step = f->row != NULL, stride = f->stride * gsi_size_of(type);
    char *row_of_c = c;
    gsi_lanes *const lanes = f->lanes;
    tally t = {0};
    if (counted) {
        t.zeros = take(lanes->zeros);
        t.low = take(lanes->low);
        t.small = take(lanes->small);
    }
    vf column[VECS];
    UNROLL for (size_t j = 0; j < NR; j += WIDTH) column[j / WIDTH] =
        f->column && j < n ? load(f->column, j, GS_F32, n - j) : splat(-0.0f);
    for (size_t i = 0; i < m; i++, row_of_c += stride) {
        const vf of_row = splat(row[i * row_step]);
        UNROLL for (size_t j = 0; j < NR; j += WIDTH)
        {
            if (j >= n)
                continue;
            char *const out = row_of_c + j * gsi_size_of(type);
            vf sum = load_whole(sums + i * NR + j) + column[j / WIDTH] + of_row;
            if (beta)
                sum = mul_add(splat(f->beta), load(out, 0, type, n - j), sum);
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
    lanes->spare += (gsi_parts(n, WIDTH) * WIDTH - n) * m;
    if (__builtin_expect(reaches(t.amax, (int32_t)limits.overflow), 0))
        count_large(c, m, n, f);
    else
        put(lanes->amax, max_i32(take(lanes->amax), t.amax));
}

INLINE void finish_n(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                     const gs_dtype type, const bool beta, const bool counted)
{
    if (n == NR)
        finish_any(c, sums, m, NR, f, type, beta, counted);
    else
        finish_any(c, sums, m, n, f, type, beta, counted);
}

INLINE void finish_type(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                        const gs_dtype type, const bool counted)
{
    if (f->beta != 0)
        finish_n(c, sums, m, n, f, type, true, counted);
    else
        finish_n(c, sums, m, n, f, type, false, counted);
}

INLINE void finish_any_type(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                            const bool counted)
{
    if (f->dtype == GS_F32)
        finish_type(c, sums, m, n, f, GS_F32, counted);
    else if (f->dtype == GS_F16)
        finish_type(c, sums, m, n, f, GS_F16, counted);
    else
        finish_type(c, sums, m, n, f, GS_BF16, counted);
}

/* On its own, so that the other one keeps little on the stack. */
static TARGET __attribute__((noinline)) void finish_counted(void *c, const float *sums, size_t m,
                                                            size_t n, const gsi_finish *f)
{
    finish_any_type(c, sums, m, n, f, true);
}

static TARGET void finish(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f)
{
    if (f->lanes)
        finish_counted(c, sums, m, n, f);
    else
        finish_any_type(c, sums, m, n, f, false);
}

#endif
