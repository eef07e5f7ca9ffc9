/* What gs_gemm_run checks before it touches anything; a mistake leaves an error message. */
#include "kernel/gemm/gemm.h"

static gs_status check_type(gs_error *error, const char *name, gs_dtype type, const void *data)
{
    const gs_format *f = gs_dtype_format(type);
    if (type != GS_F32 && type != GS_F16 && type != GS_BF16)
        return gsi_fail(error, GS_EDTYPE, "gemm: %s has %s%s: f32, f16 and bf16 can be used here",
                        name, f ? "data type " : "an unknown data type", f ? f->name : "");
    if (!data)
        return gsi_fail(error, GS_ENULL, "gemm: %s has no data", name);
    if ((uintptr_t)data % f->bytes != 0)
        return gsi_fail(error, GS_EALIGN,
                        "gemm: %s lies at an address that is not a multiple of its element size,"
                        " %zu",
                        name, f->bytes);
    return GS_OK;
}

/* *out = (n - 1) * step + more, for n > 0. */
static bool extent(size_t *out, size_t n, size_t step, size_t more)
{
    return gsi_mul_size(out, n - 1, step) && gsi_add_size(out, *out, more);
}

static bool fits(size_t *elements, size_t batch, size_t step, size_t one, gs_dtype type)
{
    size_t bytes;
    return extent(elements, batch, step, one) &&
           gsi_mul_size(&bytes, *elements, gsi_size_of(type)) && bytes <= PTRDIFF_MAX;
}

gs_status gsi_check_im2col(gs_error *error, const char *name, const gs_im2col *p, size_t rows,
                           size_t cols, size_t *elements)
{
    const size_t limit = (size_t)1 << 30; /* of a side: sums of indices do not overflow */
    size_t grid, line, area;
    if (!p->c || !p->kh || !p->kw || !p->stride || !p->rows_h || !p->rows_w || p->h > limit ||
        p->w > limit || p->kh > limit || p->kw > limit || p->rows_h > limit || p->rows_w > limit ||
        p->stride > limit || p->pad > limit)
        return gsi_fail(error, GS_ERANGE,
                        "gemm: the im2col of %s has a side that is 0 or too large", name);
    if (!gsi_mul_size(&grid, p->rows_h, p->rows_w) || rows % grid != 0 ||
        !gsi_mul_size(&line, p->kw, p->c) || !gsi_mul_size(&area, line, p->kh) || area != cols)
        return gsi_fail(error, GS_ESIZE,
                        "gemm: %s is %zu by %zu, and im2col of %zu by %zu positions per image and"
                        " %zu x %zu x %zu elements does not make that",
                        name, rows, cols, p->rows_h, p->rows_w, p->kh, p->kw, p->c);
    if (!gsi_mul_size(&area, p->h, p->w) || !gsi_mul_size(&area, area, p->c) ||
        !gsi_mul_size(elements, area, rows / grid))
        return gsi_fail(error, GS_ESIZE, "gemm: the array of %s is too large", name);
    return GS_OK;
}

/* x multiplies as rows by cols, neither of which is 0. */
static gs_status check_matrix(gs_error *error, const char *name, const gs_matrix *x, size_t rows,
                              size_t cols, size_t batch)
{
    size_t one = 0, all = 0;
    const size_t r = x->transposed ? cols : rows, c = x->transposed ? rows : cols;
    gs_status status = check_type(error, name, x->dtype, x->data);
    if (status != GS_OK)
        return status;
    if (x->im2col) {
        if (x->transposed || x->group)
            return gsi_fail(error, GS_ERANGE,
                            "gemm: %s is im2col and cannot be transposed or grouped", name);
        status = gsi_check_im2col(error, name, x->im2col, rows, cols, &one);
        if (status != GS_OK)
            return status;
    } else {
        const size_t in = x->group && x->group < r ? x->group : r;
        if (x->group && x->transposed)
            return gsi_fail(error, GS_ERANGE, "gemm: %s is grouped and cannot be transposed", name);
        if (r > 1 && x->stride < c)
            return gsi_fail(error, GS_ESIZE,
                            "gemm: %s has rows of %zu elements and a stride of %zu", name, c,
                            x->stride);
        if (!extent(&one, in, x->stride, c) ||
            !extent(&one, gsi_ceil_div(r, in), x->group_stride, one))
            return gsi_fail(error, GS_ESIZE, "gemm: %s is too large: %zu by %zu", name, rows, cols);
    }
    if (!fits(&all, batch, x->batch_stride, one, x->dtype))
        return gsi_fail(error, GS_ESIZE, "gemm: %s is too large: %zu times %zu by %zu", name, batch,
                        rows, cols);
    return GS_OK;
}

gs_status gsi_gemm_check(gs_error *error, const gs_gemm *g)
{
    if (g->batch == 0)
        return gsi_fail(error, GS_ERANGE, "gemm: the batch is 0 matrices");
    if ((gsi_bits(g->beta) & GSI_F32_INF) == GSI_F32_INF)
        return gsi_fail(error, GS_ERANGE, "gemm: beta is not a finite number");
    if (g->m == 0 || g->n == 0)
        return GS_OK;
    const gs_matrix c = {.data = g->c.data,
                         .dtype = g->c.dtype,
                         .stride = g->c.stride,
                         .batch_stride = g->c.batch_stride};
    gs_status status = check_matrix(error, "c", &c, g->m, g->n, g->batch);
    if (status == GS_OK && g->k > 0)
        status = check_matrix(error, "a", &g->a, g->m, g->k, g->batch);
    if (status == GS_OK && g->k > 0 && g->a.group)
        status = gsi_fail(error, GS_ERANGE, "gemm: a cannot be grouped");
    if (status == GS_OK && g->k > 0)
        status = check_matrix(error, "b", &g->b, g->k, g->n, g->batch);
    if (status == GS_OK && g->bias)
        status = check_type(error, "the bias", g->bias_dtype, g->bias);
    if (status != GS_OK)
        return status;

    /* The matrices of the batch lie one after the other, or side by side within c's stride. */
    const size_t one = (g->m - 1) * g->c.stride + g->n;
    const bool after = g->c.batch_stride >= one;
    const bool beside =
        g->c.batch_stride >= g->n && (g->batch - 1) * g->c.batch_stride + g->n <= g->c.stride;
    if (g->batch > 1 && !after && !beside)
        return gsi_fail(error, GS_ERANGE,
                        "gemm: the matrices of c overlap: %zu by %zu with stride %zu, a batch"
                        " stride of %zu",
                        g->m, g->n, g->c.stride, g->c.batch_stride);
    return GS_OK;
}
