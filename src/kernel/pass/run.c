/* How a pass runs: one kernel over the chunks of a list of tensors, and the fold of their results.
 */
#include "kernel/pass/run.h"

#include "kernel/fpenv.h"

static size_t chunk_of(const gsi_cut *cut, size_t t)
{
    return cut->list[t].strided || cut->with[t].strided ? GSI_STRIDED_CHUNK : GSI_CHUNK;
}

void gsi_cut_into(gsi_cut *cut, const gs_tensor *list, const gs_tensor *with, size_t n,
                  size_t *starts)
{
    *cut = (gsi_cut){list, with, n, starts};
    starts[0] = 0;
    for (size_t t = 0; t < n; t++)
        starts[t + 1] = starts[t] + gsi_ceil_div(list[t].count, chunk_of(cut, t));
}

gsi_span gsi_cut_span(const gsi_cut *cut, size_t chunk)
{
    size_t t = 0; /* the last tensor that starts at or before the chunk */
    for (size_t end = cut->n; end - t > 1;) {
        const size_t mid = t + (end - t) / 2;
        if (cut->starts[mid] <= chunk)
            t = mid;
        else
            end = mid;
    }
    const size_t size = chunk_of(cut, t), first = (chunk - cut->starts[t]) * size;
    return (gsi_span){t, first, gsi_min_size(cut->list[t].count - first, size)};
}

/* ---- views ---- */

typedef enum direction { GATHER, SCATTER } direction;

/* Copies elements [first, first + count) of a tensor to a buffer, or back, a run of a row at a
 * time. */
static void copy_view(direction way, const gs_tensor *x, size_t first, size_t count, char *buffer)
{
    const size_t size = gsi_size_of(x->dtype);
    const gs_strided whole = {x->count, x->count}, *v = x->strided ? x->strided : &whole;
    for (size_t take; count > 0; first += take, count -= take, buffer += take * size) {
        const size_t row = first / v->cols, column = first % v->cols;
        char *const at = (char *)x->data + (row * v->stride + column) * size;
        take = gsi_min_size(v->cols - column, count);
        if (way == GATHER)
            memcpy(buffer, at, take * size);
        else
            memcpy(at, buffer, take * size);
    }
}

static void run_and_count(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                          gsi_chunk_result *out)
{
    const uint32_t amax = p->run(p, at, dst, src, out);
    const bool bad = amax >= GSI_F32_INF;
    if (!bad || !p->has_counted)
        out->counts.amax = amax;
    if (bad && !p->has_counted) {
        p->ctx->kernels.pass.count[p->dst[at.t].dtype](&out->counts, NULL, dst, at.count,
                                                       (gsi_limits){0});
        out->counts.zero = 0; /* counted only because something was not finite */
    }
}

static void run_strided(const gsi_pass_run *p, gsi_span at, gsi_chunk_result *out)
{
    const gs_tensor *dst = &p->dst[at.t], *src = &p->src[at.t];
    _Alignas(GSI_ALIGN) char from[GSI_STRIDED_CHUNK * sizeof(double)];
    _Alignas(GSI_ALIGN) char to[GSI_STRIDED_CHUNK * sizeof(double)];
    const bool in_place = dst->data == src->data;
    copy_view(GATHER, src, at.first, at.count, from);
    if (!in_place)
        copy_view(GATHER, dst, at.first, at.count, to); /* axpy adds to it */
    run_and_count(p, at, in_place ? from : to, from, out);
    if (p->writes)
        copy_view(SCATTER, dst, at.first, at.count, in_place ? from : to);
}

/* ---- chunks ---- */

static void run_chunk(void *arg, size_t i)
{
    const gsi_pass_run *p = arg;
    const gsi_span at = gsi_cut_span(&p->cut, i);
    const gs_tensor *dst = &p->dst[at.t], *src = &p->src[at.t];
    gsi_chunk_result out = {.counts = {.first_bad = at.count}};

    const uint64_t env = gsi_fpenv_enter();
    if (dst->strided || src->strided)
        run_strided(p, at, &out);
    else
        run_and_count(p, at, gsi_tensor_at(dst, at.first), gsi_tensor_at(src, at.first), &out);
    gsi_fpenv_leave(env);
    p->slots[i] = out;
}

static void add_slot(gs_stats *stats, const gsi_chunk_result *s, gsi_span at)
{
    const gsi_counts *c = &s->counts;
    const bool bad = c->first_bad < at.count;
    const gs_stats one = {.elements = at.count,
                          .inf = c->inf,
                          .nan = c->nan,
                          .zero = c->zero,
                          .subnormal = c->subnormal,
                          .underflow = c->underflow,
                          .amax = gsi_float(c->amax),
                          .sumsq = s->sumsq,
                          .bad_tensor = bad ? at.t : GS_NONE,
                          .bad_index = bad ? at.first + c->first_bad : GS_NONE};
    gs_stats_merge(stats, &one);
}

/* Chunks [first, end), group by group. */
static void fold_slots(gs_stats *stats, const gsi_pass_run *p, size_t first, size_t end)
{
    gs_stats_init(stats);
    for (size_t next; first < end; first = next) {
        gs_stats group;
        gs_stats_init(&group);
        for (next = gsi_min_size(first + GSI_FOLD_GROUP, end); first < next; first++)
            add_slot(&group, &p->slots[first], gsi_cut_span(&p->cut, first));
        gs_stats_merge(stats, &group);
    }
}

/* each[n], or all of the list in each[0] where `together`. */
gs_status gsi_run_pass(gsi_pass_run *p, gs_stats *each, bool together)
{
    gs_context *ctx = p->ctx;
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    gs_status status = GS_ENOMEM;
    size_t chunks, written = 0;

    size_t *starts = gsi_arena_new(&ctx->scratch, p->n + 1, sizeof *starts);
    if (!starts)
        goto out;
    gsi_cut_into(&p->cut, p->dst, p->src, p->n, starts);
    chunks = gsi_cut_chunks(&p->cut);
    p->slots = gsi_arena_new(&ctx->scratch, chunks, sizeof *p->slots);
    if (!p->slots)
        goto out;

    for (size_t t = 0; t < p->n; t++)
        if (p->dst[t].data != p->src[t].data)
            written += p->dst[t].count * gs_dtype_format(p->dst[t].dtype)->bytes;
    p->stream = written >= GSI_STREAM_FROM;

    ctx->parallel.run(ctx->parallel.user, chunks, run_chunk, p);

    if (each && together)
        fold_slots(each, p, 0, chunks);
    for (size_t t = 0; each && !together && t < p->n; t++)
        fold_slots(&each[t], p, p->cut.starts[t], p->cut.starts[t + 1]);
    status = GS_OK;
out:
    gsi_arena_reset(&ctx->scratch, mark);
    return status == GS_OK ? GS_OK
                           : gsi_fail(&ctx->error, status, "no memory for the results of a pass");
}
