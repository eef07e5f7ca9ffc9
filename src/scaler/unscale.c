/* gs_step_unscale: lists of gradients, each unscaled once.
 *
 *  (1) A list is known by a 64-bit hash over data, count and type of its tensors and destinations.
 *  (2) given.begin..end are memory of the tensors given so far, row by row of a view, and nothing
 *      else: a list that meets it would be scanned or unscaled twice. Where there are more than
 *      fit, the largest are kept; so an overlap may be missed, but interleaved parameter groups are
 *      never refused.
 *  (3) A call that fails has changed nothing: a list is checked as a whole before it is touched. */
#include "scaler/scaler.h"

#include "kernel/context.h"

#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

/* ---- which lists ---- */

static uint64_t mix(uint64_t hash, uint64_t x)
{
    hash = (hash ^ x) * 0x9E3779B97F4A7C15;
    return hash ^ hash >> 32;
}

static uint64_t mix_tensor(uint64_t hash, const gs_tensor *x)
{
    hash = mix(mix(hash, ADDRESS(x->data)), (uint64_t)x->dtype);
    return x->strided ? mix(mix(hash, x->strided->cols), x->strided->stride) : hash;
}

static uint64_t hash_of(const gs_tensor *to, const gs_tensor *list, size_t n)
{
    uint64_t hash = mix(to != NULL, n);
    for (size_t t = 0; t < n; t++) {
        hash = mix(mix_tensor(hash, &list[t]), list[t].count);
        hash = to ? mix_tensor(hash, &to[t]) : hash;
    }
    return hash;
}

static bool is_repeat(const gs_step *step, uint64_t hash)
{
    for (uint32_t i = 0; i < step->given.lists; i++)
        if (step->given.list[i] == hash)
            return true;
    return false;
}

/* ---- which memory ---- */

/* Memory without gaps: a tensor, or a row of a view. */
typedef struct span {
    uint64_t begin, end;
} span;

static size_t spans_in(const gs_tensor *x)
{
    return x->count == 0 ? 0 : x->strided ? x->count / x->strided->cols : 1;
}

static span span_of(const gs_tensor *x, size_t row)
{
    const uint64_t size = gs_dtype_format(x->dtype)->bytes;
    const gs_strided whole = {x->count, x->count}, *v = x->strided ? x->strided : &whole;
    const uint64_t begin = ADDRESS(x->data) + row * v->stride * size;
    return (span){begin, begin + v->cols * size};
}

static bool overlaps(const gs_step *step, const gs_tensor *x)
{
    for (size_t row = 0; row < spans_in(x); row++) {
        const span s = span_of(x, row);
        for (uint32_t i = 0; i < step->given.spans; i++)
            if (s.begin < step->given.end[i] && s.end > step->given.begin[i])
                return true;
    }
    return false;
}

static void keep_span(gs_step *step, span s)
{
    const uint64_t begin = s.begin, end = s.end;
    uint64_t *const b = step->given.begin, *const e = step->given.end;
    uint32_t smallest = 0;
    for (uint32_t i = 0; i < step->given.spans; i++) {
        if (begin <= e[i] && end >= b[i]) { /* side by side, or a destination used again */
            b[i] = begin < b[i] ? begin : b[i];
            e[i] = end > e[i] ? end : e[i];
            return;
        }
        smallest = e[i] - b[i] < e[smallest] - b[smallest] ? i : smallest;
    }
    if (step->given.spans < GS_STEP_SPANS)
        smallest = step->given.spans++;
    else if (end - begin <= e[smallest] - b[smallest])
        return;
    b[smallest] = begin;
    e[smallest] = end;
}

static void keep_spans(gs_step *step, const gs_tensor *list, size_t n)
{
    for (size_t t = 0; t < n; t++)
        for (size_t row = 0; row < spans_in(&list[t]); row++)
            keep_span(step, span_of(&list[t], row));
}

/* ---- the call ---- */

static gs_status check(const gs_step *step, gs_context *ctx, const gs_tensor *list, size_t n)
{
    char number[32];
    if (step->given.lists == GS_STEP_LISTS)
        return gsi_fail(&ctx->error, GS_ESTATE,
                        "a step can unscale at most %d lists: put the tensors into fewer",
                        GS_STEP_LISTS);
    for (size_t t = 0; t < n; t++)
        if (overlaps(step, &list[t]))
            return gsi_fail(&ctx->error, GS_ESTATE,
                            "tensor %.100s overlaps what another list of this step has unscaled",
                            gsi_tensor_name(number, list, t));
    if (!gsi_can_unscale(step))
        return gsi_fail(&ctx->error, GS_ERANGE, "a scale of %g cannot be undone: 1 / scale %s f32",
                        step->scale, step->scale < 1 ? "overflows" : "underflows");
    return GS_OK;
}

gs_status gs_step_unscale(gs_step *step, gs_context *ctx, const gs_tensor *to,
                          const gs_tensor *list, size_t n)
{
    gs_stats stats;
    gs_status status = gsi_check_list_f64(ctx, list, n);
    if (status == GS_OK && to)
        status = gsi_check_list_f64(ctx, to, n);
    if (status == GS_OK)
        status = gsi_step_version(step, &ctx->error);
    if (status == GS_OK && step->ended) /* else the next batch would be taken for a repeat */
        status = gsi_fail(&ctx->error, GS_ESTATE, "the step has ended: begin another");
    if (status != GS_OK)
        return status;

    const uint64_t hash = hash_of(to, list, n);
    if (n == 0 || is_repeat(step, hash))
        return GS_OK;
    status = check(step, ctx, list, n);
    if (status == GS_OK)
        status = gs_tensors_unscale(ctx, to ? to : list, list, n, (float)step->inverse, &stats);
    if (status != GS_OK)
        return status;

    if (stats.bad_tensor != GS_NONE)
        stats.bad_tensor += step->given.tensors;
    gs_step_scan(step, &stats);
    step->unscaled = 1;
    step->given.list[step->given.lists++] = hash;
    step->given.tensors += n;
    keep_spans(step, list, n);
    if (to)
        keep_spans(step, to, n);
    return GS_OK;
}
