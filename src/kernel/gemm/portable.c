/* Plain C: for machines without a variant of their own, and to run the driver with other sizes. */
#include "kernel/dispatch.h"
#include "num/fma.h"

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

static void gather(void *dst, size_t dst_stride, const void *const *src, size_t at, gs_dtype type,
                   size_t rows, size_t n)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < n; c++)
            ((float *)dst)[r * dst_stride + c] = src[r] ? widen(src[r], at + c, type) : 0;
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
                            size_t index(size_t, size_t, size_t), const float *b, size_t m,
                            size_t n, size_t k)
{
    for (size_t i = 0; i < m; i++) {
        float sum[NR] = {0};
        for (size_t p = 0; p < k; p++)
            for (size_t j = 0; j < n; j++)
                sum[j] = gsi_fma(a[index(i, p, a_step)], b[p * NR + j], sum[j]);
        for (size_t j = 0; j < n; j++)
            sums[i * NR + j] = before ? before[i * NR + j] + sum[j] : sum[j];
    }
}

static void micro_rows(float *sums, const float *before, const float *a, size_t a_step,
                       const float *b, size_t m, size_t n, size_t k, const gsi_prefetch *prefetch)
{
    (void)prefetch;
    multiply(sums, before, a, a_step, in_rows, b, m, n, k);
}

static void micro_columns(float *sums, const float *before, const float *a, size_t a_step,
                          const float *b, size_t m, size_t n, size_t k,
                          const gsi_prefetch *prefetch)
{
    (void)prefetch;
    multiply(sums, before, a, a_step, in_columns, b, m, n, k);
}

static void store(void *c, size_t i, float sum, const gsi_epilogue *e)
{
    const uint32_t u = gsi_bits(sum);
    uint32_t stored = u; /* as f32 */
    if (e->dtype == GS_F32) {
        ((float *)c)[i] = sum;
    } else {
        const gsi_row row = gsi_row_of(e->dtype);
        const uint32_t code = gsi_narrow(u, row, GSI_NEAREST, false);
        ((uint16_t *)c)[i] = (uint16_t)code;
        stored = gsi_widen(code, row);
    }
    if (!e->lanes)
        return;
    gsi_lanes *n = e->lanes;
    const uint32_t mag = gsi_magnitude(u), top = gsi_magnitude(stored);
    n->zeros[0] += mag == 0;
    n->low[0] += mag < e->limits.underflow;
    n->small[0] += mag < e->limits.subnormal;
    n->inf += top == GSI_F32_INF;
    n->nan += top > GSI_F32_INF;
    if (top < GSI_F32_INF && top > n->amax[0])
        n->amax[0] = top;
}

static void epilogue(void *c, const float *sums, size_t m, size_t n, const gsi_epilogue *e)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            const size_t at = i * e->stride + j;
            float sum = sums[i * NR + j];
            if (e->column)
                sum += e->column[j];
            if (e->row)
                sum += e->row[i];
            if (e->beta != 0)
                sum = gsi_fma(e->beta, widen(c, at, e->dtype), sum);
            if (gsi_magnitude(gsi_bits(sum)) > GSI_F32_INF)
                sum = gsi_float(GSI_F32_INF | 0x400000);
            store(c, at, sum, e);
        }
}

static const gsi_gemm_isa isa = {
    .mr = MR,
    .nr = NR,
    .a_ld = MR,
    .tile_m = 128,
    .tile_n = 512,
    .l2_budget = 1 << 16,
    .kc_blocks = 3,
    .in_place = 12,
    .l1_lines = 16,
    .copy = copy,
    .gather = gather,
    .transpose = transpose,
    .micro_rows = micro_rows,
    .micro_columns = micro_columns,
    .epilogue = epilogue,
};

void gsi_gemm_portable(gsi_kernels *k) { gsi_gemm_use(k, &isa); }
