/* What a pass checks of its lists before it touches anything: the first mistake is named. */
#include "kernel/context.h"

#include <stdio.h>

const char *gsi_tensor_name(char buffer[32], const gs_tensor *list, size_t t)
{
    if (list[t].name)
        return list[t].name;
    snprintf(buffer, 32, "%zu", t);
    return buffer;
}

/* Elements from the first of a tensor to behind its last; false: a view that cannot be. */
static bool extent_of(size_t *out, const gs_tensor *x)
{
    const gs_strided *v = x->strided;
    *out = x->count;
    if (!v || x->count == 0)
        return true;
    return v->cols > 0 && v->stride >= v->cols && x->count % v->cols == 0 &&
           gsi_mul_size(out, x->count / v->cols - 1, v->stride) && gsi_add_size(out, *out, v->cols);
}

static gs_status check_list(gs_context *ctx, const gs_tensor *list, size_t n, bool f64)
{
    char number[32];
    if (!ctx)
        return GS_ENULL;
    if (n > 0 && !list)
        return gsi_fail(&ctx->error, GS_ENULL, "the list of %zu tensors is NULL", n);
    for (size_t t = 0; t < n; t++) {
        const gs_tensor *x = &list[t];
        const gs_format *f = gs_dtype_format(x->dtype);
        if (x->dtype != GS_F32 && x->dtype != GS_F16 && x->dtype != GS_BF16 &&
            !(f64 && x->dtype == GS_F64))
            return gsi_fail(&ctx->error, GS_EDTYPE,
                            "tensor %s has %s%s: %sf32, f16 and bf16 can be "
                            "used here",
                            gsi_tensor_name(number, list, t),
                            f ? "data type " : "an unknown data type", f ? f->name : "",
                            f64 ? "f64, " : "");
        if (x->count == 0)
            continue;
        size_t bytes, end, extent;
        if (!extent_of(&extent, x))
            return gsi_fail(&ctx->error, GS_ESIZE,
                            "tensor %s of %zu elements cannot be a view of rows of %zu, %zu apart",
                            gsi_tensor_name(number, list, t), x->count, x->strided->cols,
                            x->strided->stride);
        if (!gsi_mul_size(&bytes, extent, f->bytes) || bytes > PTRDIFF_MAX ||
            !gsi_add_size(&end, (uintptr_t)x->data, bytes))
            return gsi_fail(&ctx->error, GS_ESIZE,
                            "tensor %s is too large: %zu elements of %zu bytes",
                            gsi_tensor_name(number, list, t), x->count, f->bytes);
        if (!x->data)
            return gsi_fail(&ctx->error, GS_ENULL, "tensor %s has %zu elements but no data",
                            gsi_tensor_name(number, list, t), x->count);
        if ((uintptr_t)x->data % f->bytes != 0)
            return gsi_fail(&ctx->error, GS_EALIGN,
                            "tensor %s lies at an address that is not a multiple of its element"
                            " size, %zu",
                            gsi_tensor_name(number, list, t), f->bytes);
    }
    return GS_OK;
}

gs_status gsi_check_list(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return check_list(ctx, list, n, false);
}

gs_status gsi_check_list_f64(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return check_list(ctx, list, n, true);
}

/* ---- what is written lies apart ---- */

/* Bytes. Views of one matrix may share [begin, end) and yet lie apart, side by side. */
typedef struct span {
    uintptr_t begin, end;
    size_t cols, stride; /* 0: contiguous */
    size_t t;
} span;

static span span_of(const gs_tensor *list, size_t t)
{
    const gs_tensor *x = &list[t];
    const size_t size = gs_dtype_format(x->dtype)->bytes;
    const uintptr_t begin = (uintptr_t)x->data;
    size_t extent = 0;
    extent_of(&extent, x);
    span s = {.begin = begin, .end = begin + extent * size, .t = t};
    if (x->strided && x->count > x->strided->cols) {
        s.cols = x->strided->cols * size;
        s.stride = x->strided->stride * size;
    }
    return s;
}

/* Whether two spans share a byte; if their strides differ, whether they might. */
static bool overlap(const span *a, const span *b)
{
    if (a->begin > b->begin)
        return overlap(b, a);
    if (a->end <= b->begin)
        return false;
    if (!a->stride || (b->stride && b->stride != a->stride))
        return true;
    const size_t offset = (b->begin - a->begin) % a->stride;
    const size_t cols = b->stride ? b->cols : b->end - b->begin;
    return offset < a->cols || offset + cols > a->stride;
}

/* Shell's sort: lists come in order or nearly so, and the library has no memory to give to qsort.
 * A thousand tensors take 13 us in order, 40 in none. */
static void sort_spans(span *spans, size_t n)
{
    size_t gap = 1;
    while (gap < n / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (size_t i = gap; i < n; i++) {
            const span moved = spans[i];
            size_t k = i;
            for (; k >= gap && spans[k - gap].begin > moved.begin; k -= gap)
                spans[k] = spans[k - gap];
            spans[k] = moved;
        }
}

/* The first written span that shares something with x; n: none. Where all are contiguous they lie
 * apart, and so do their ends. */
static size_t find_overlap(const span *spans, size_t n, bool views, const span *x)
{
    size_t lo = 0, hi = views ? 0 : n;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (spans[mid].end <= x->begin)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (; lo < n && spans[lo].begin < x->end; lo++)
        if (overlap(&spans[lo], x))
            return lo;
    return n;
}

static bool is_in_place(const gs_tensor *dst, const gs_tensor *src)
{
    const gs_strided none = {0}, *d = dst->strided ? dst->strided : &none;
    const gs_strided *s = src->strided ? src->strided : &none;
    return dst->data == src->data && dst->dtype == src->dtype && d->cols == s->cols &&
           d->stride == s->stride;
}

static gs_status check_spans(gs_context *ctx, span *spans, const gs_tensor *dst,
                             const gs_tensor *src, size_t n)
{
    char number[2][32];
    size_t written = 0;
    bool views = false;
    for (size_t t = 0; t < n; t++)
        if (dst[t].count > 0) {
            spans[written++] = span_of(dst, t);
            views |= dst[t].strided != NULL;
        }
    sort_spans(spans, written);
    for (size_t i = 0; i < written; i++)
        for (size_t k = i + 1; k < written && spans[k].begin < spans[i].end; k++)
            if (overlap(&spans[i], &spans[k])) {
                const size_t a = spans[i].t, b = spans[k].t;
                return gsi_fail(&ctx->error, GS_ERANGE, "tensors %s and %s overlap",
                                gsi_tensor_name(number[0], dst, a < b ? a : b),
                                gsi_tensor_name(number[1], dst, a < b ? b : a));
            }
    for (size_t t = 0; dst != src && t < n; t++) {
        if (is_in_place(&dst[t], &src[t]) || src[t].count == 0)
            continue;
        const span from = span_of(src, t);
        const size_t i = find_overlap(spans, written, views, &from);
        if (i == written)
            continue;
        const char *name = gsi_tensor_name(number[0], src, t);
        if (spans[i].t == t)
            return gsi_fail(&ctx->error, GS_ERANGE, "tensor %s overlaps its destination", name);
        return gsi_fail(&ctx->error, GS_ERANGE, "tensor %s overlaps the destination of tensor %s",
                        name, gsi_tensor_name(number[1], dst, spans[i].t));
    }
    return GS_OK;
}

static gs_status check_pairs(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n,
                             bool f64)
{
    char number[32];
    gs_status status = check_list(ctx, src, n, f64);
    if (status == GS_OK && dst != src)
        status = check_list(ctx, dst, n, f64);
    for (size_t t = 0; status == GS_OK && t < n; t++)
        if (dst[t].count != src[t].count)
            status = gsi_fail(&ctx->error, GS_ESIZE,
                              "tensor %s has %zu elements and its destination %zu",
                              gsi_tensor_name(number, src, t), src[t].count, dst[t].count);
    if (status != GS_OK)
        return status;

    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    span *spans = gsi_arena_new(&ctx->scratch, n, sizeof *spans);
    status = spans ? check_spans(ctx, spans, dst, src, n)
                   : gsi_fail(&ctx->error, GS_ENOMEM, "no memory to check the list");
    gsi_arena_reset(&ctx->scratch, mark);
    return status;
}

gs_status gsi_check_pairs(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n)
{
    return check_pairs(ctx, dst, src, n, false);
}

gs_status gsi_check_pairs_f64(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n)
{
    return check_pairs(ctx, dst, src, n, true);
}

gs_status gsi_check_factor(gs_context *ctx, float factor)
{
    if (!ctx)
        return GS_ENULL;
    if ((gsi_bits(factor) & GSI_F32_INF) == GSI_F32_INF)
        return gsi_fail(&ctx->error, GS_ERANGE, "the factor is not a finite number");
    return GS_OK;
}
