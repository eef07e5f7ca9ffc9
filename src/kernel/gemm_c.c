/* Plain C: for machines without a variant of their own, and to run the driver with other sizes. */
#include "kernel/gemm.h"

#include <math.h>

enum { MR = 4, NR = 8 };
_Static_assert(MR *NR <= GSI_MICRO, "sums have room");

static float widen(const void *src, size_t i, gs_dtype type)
{
    return gsi_float(gsi_element(src, type, i));
}

static void copy(float *dst, size_t dst_stride, const void *src, size_t src_stride, gs_dtype type,
                 size_t rows, size_t cols, size_t pad)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < pad; c++)
            dst[r * dst_stride + c] = c < cols ? widen(src, r * src_stride + c, type) : 0;
}

static void collect(float *dst, size_t dst_stride, const void *const *src, size_t at, gs_dtype type,
                    size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < n; c++)
            dst[r * dst_stride + c] = src[r] ? widen(src[r], at + c, type) : 0;
}

static void transpose(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                      gs_dtype type, size_t rows, size_t cols)
{
    for (size_t c = 0; c < cols; c++)
        for (size_t r = 0; r < dst_stride; r++)
            dst[c * dst_stride + r] = r < rows ? widen(src, r * src_stride + c, type) : 0;
}

static inline size_t in_rows(size_t i, size_t k, size_t step)
{
    (void)step;
    return k / GSI_LINE * MR * GSI_LINE + i * GSI_LINE + k % GSI_LINE;
}

static inline size_t in_columns(size_t i, size_t k, size_t step) { return k * step + i; }

static inline void multiply(float *sums, const float *before, const float *a, size_t a_step,
                            size_t place(size_t, size_t, size_t), const float *b, size_t m,
                            size_t n, size_t k)
{
    for (size_t i = 0; i < m; i++) {
        float sum[NR] = {0};
        for (size_t p = 0; p < k; p++)
            for (size_t j = 0; j < n; j++)
                sum[j] = fmaf(a[place(i, p, a_step)], b[p * NR + j], sum[j]);
        for (size_t j = 0; j < n; j++)
            sums[i * NR + j] = before ? before[i * NR + j] + sum[j] : sum[j];
    }
}

static void multiply_rows(float *sums, const float *before, const float *a, size_t a_step,
                          const float *b, size_t m, size_t n, size_t k, const gsi_ahead *ahead)
{
    (void)ahead;
    multiply(sums, before, a, a_step, in_rows, b, m, n, k);
}

static void multiply_columns(float *sums, const float *before, const float *a, size_t a_step,
                             const float *b, size_t m, size_t n, size_t k, const gsi_ahead *ahead)
{
    (void)ahead;
    multiply(sums, before, a, a_step, in_columns, b, m, n, k);
}

static void store(void *c, size_t i, float sum, const gsi_finish *f)
{
    const uint32_t u = gsi_bits(sum);
    uint32_t stored = u; /* as f32 */
    if (f->dtype == GS_F32) {
        ((float *)c)[i] = sum;
    } else {
        const gsi_row row = gsi_row_of(f->dtype);
        const uint32_t code = gsi_narrow(u, row, GSI_NEAREST, false);
        ((uint16_t *)c)[i] = (uint16_t)code;
        stored = gsi_widen(code, row);
    }
    if (!f->lanes)
        return;
    gsi_lanes *n = f->lanes;
    const uint32_t mag = gsi_magnitude(u), top = gsi_magnitude(stored);
    n->zeros[0] += mag == 0;
    n->low[0] += mag < f->limits.flushed;
    n->small[0] += mag < f->limits.subnormal;
    n->inf += top == GSI_F32_INF;
    n->nan += top > GSI_F32_INF;
    if (top < GSI_F32_INF && top > n->amax[0])
        n->amax[0] = top;
}

static void finish(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            const size_t at = i * f->stride + j;
            float sum = sums[i * NR + j];
            if (f->column)
                sum += f->column[j];
            if (f->row)
                sum += f->row[i];
            if (f->beta != 0)
                sum = fmaf(f->beta, widen(c, at, f->dtype), sum);
            if (gsi_magnitude(gsi_bits(sum)) > GSI_F32_INF)
                sum = gsi_float(GSI_F32_INF | 0x400000);
            store(c, at, sum, f);
        }
}

const gsi_gemm_isa gsi_gemm_c = {
    .mr = MR,
    .nr = NR,
    .mr_room = MR,
    .m_tile = 128,
    .n_tile = 512,
    .a_room = 1 << 16,
    .chunk = 3,
    .in_place = 12,
    .asked = 16,
    .copy = copy,
    .collect = collect,
    .transpose = transpose,
    .multiply_rows = multiply_rows,
    .multiply_columns = multiply_columns,
    .finish = finish,
};
