/* A pass: one kernel over a list of tensors.
 *
 * The list is cut into chunks of CHUNK elements, the last of a tensor shorter. Chunks run on any
 * thread; each leaves its counts in its own slot, and the slots are folded in order afterwards. So
 * the result depends on CHUNK, a constant of the library, and on nothing else. */
#include "kernel/context.h"
#include "kernel/fpenv.h"

#include <stdatomic.h>

enum { CHUNK = 1 << 16 };               /* 128 or 256 KB; a multiple of GSI_RANDOM_GROUP */
enum { STREAM_FROM = 8 * 1024 * 1024 }; /* bytes written by a pass: above, no cache keeps them */

typedef struct pass pass;

/* Runs the kernel on elements [first, first + count) of tensor t and returns the largest magnitude
 * read or written; a pass that takes the sum of squares sets it. */
typedef uint32_t chunk_fn(const pass *p, size_t t, size_t first, size_t count, double *sumsq);

/* What a chunk leaves. */
typedef struct slot {
    gsi_counts counts;
    double sumsq;
} slot;

struct pass {
    gs_context *ctx;
    chunk_fn *run;
    const gs_tensor *dst; /* what is checked: written or, in a pass that only reads, src */
    const gs_tensor *src;
    size_t n;
    float factor;
    uint64_t seed;
    bool stream;
    bool want_counts; /* count everything, in every chunk */
    gsi_limits limits;
    atomic_ullong *words; /* those of a gs_exponents */

    size_t *starts; /* [n + 1]: the number of the first chunk of tensor t */
    slot *slots;    /* [starts[n]] */
};

static void *at(const gs_tensor *x, size_t i)
{
    return (char *)x->data + i * gs_format_of(x->dtype)->bytes;
}

static void run_chunk(void *arg, size_t i)
{
    const pass *p = arg;
    size_t t = 0; /* the last tensor that starts at or before chunk i */
    for (size_t end = p->n; end - t > 1;) {
        const size_t mid = t + (end - t) / 2;
        if (p->starts[mid] <= i)
            t = mid;
        else
            end = mid;
    }
    const size_t first = (i - p->starts[t]) * CHUNK, left = p->dst[t].count - first;
    const size_t count = left < CHUNK ? left : CHUNK;
    slot out = {.counts.first_bad = count};

    const uint64_t env = gsi_fpenv_enter();
    out.counts.amax = p->run(p, t, first, count, &out.sumsq);
    if (p->want_counts || out.counts.amax >= GSI_F32_INF)
        gsi_count_for(&p->ctx->kernels, p->dst[t].dtype)(&out.counts, at(&p->dst[t], first), count,
                                                         p->limits);
    if (!p->want_counts)
        out.counts.zero = 0; /* counted only because something was not finite */
    gsi_fpenv_leave(env);
    p->slots[i] = out;
}

static void add_slot(gs_stats *stats, const slot *s, size_t t, size_t first, size_t count)
{
    const gsi_counts *c = &s->counts;
    const bool bad = c->first_bad < count;
    const gs_stats one = {.elements = count,
                          .inf = c->inf,
                          .nan = c->nan,
                          .zero = c->zero,
                          .subnormal = c->subnormal,
                          .flushed = c->flushed,
                          .amax = gsi_float(c->amax),
                          .sumsq = s->sumsq,
                          .bad_tensor = bad ? t : GS_NONE,
                          .bad_index = bad ? first + c->first_bad : GS_NONE};
    gs_stats_merge(stats, &one);
}

/* each[n], or all of the list in each[0] where `together`. */
static gs_status run_pass(pass *p, gs_stats *each, bool together)
{
    gs_context *ctx = p->ctx;
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    gs_status status = GS_ENOMEM;

    p->starts = gsi_arena_new(&ctx->scratch, p->n + 1, sizeof *p->starts);
    if (!p->starts)
        goto out;
    p->starts[0] = 0;
    for (size_t t = 0; t < p->n; t++)
        p->starts[t + 1] = p->starts[t] + p->dst[t].count / CHUNK + (p->dst[t].count % CHUNK > 0);
    p->slots = gsi_arena_new(&ctx->scratch, p->starts[p->n], sizeof *p->slots);
    if (!p->slots)
        goto out;

    size_t written = 0;
    for (size_t t = 0; t < p->n; t++)
        if (p->dst[t].data != p->src[t].data)
            written += p->dst[t].count * gs_format_of(p->dst[t].dtype)->bytes;
    p->stream = written >= STREAM_FROM;

    ctx->parallel.run(ctx->parallel.user, p->starts[p->n], run_chunk, p);

    for (size_t t = 0; each && t < p->n; t++) {
        gs_stats *stats = together ? each : &each[t];
        if (t == 0 || !together)
            gs_stats_init(stats);
        for (size_t i = p->starts[t]; i < p->starts[t + 1]; i++) {
            const size_t first = (i - p->starts[t]) * CHUNK, left = p->dst[t].count - first;
            add_slot(stats, &p->slots[i], t, first, left < CHUNK ? left : CHUNK);
        }
    }
    if (each && together && p->n == 0)
        gs_stats_init(each);
    status = GS_OK;
out:
    gsi_arena_reset(&ctx->scratch, mark);
    return status == GS_OK ? GS_OK
                           : gsi_fail(&ctx->error, status, "no memory for the results of a pass");
}

/* ---- the passes ---- */

static uint32_t check_chunk(const pass *p, size_t t, size_t first, size_t count, double *sumsq)
{
    (void)sumsq;
    return gsi_check_for(&p->ctx->kernels, p->src[t].dtype)(at(&p->src[t], first), count);
}

gs_status gs_tensors_check(gs_context *ctx, const gs_tensor *list, size_t n, gs_stats *stats)
{
    const gs_status status = gsi_check_list(ctx, list, n);
    pass p = {.ctx = ctx, .run = check_chunk, .dst = list, .src = list, .n = n};
    return status == GS_OK ? run_pass(&p, stats, true) : status;
}

static uint32_t scan_chunk(const pass *p, size_t t, size_t first, size_t count, double *sumsq)
{
    return gsi_scan_for(&p->ctx->kernels, p->src[t].dtype)(sumsq, at(&p->src[t], first), count);
}

gs_status gs_tensors_scan(gs_context *ctx, const gs_tensor *list, size_t n, gs_stats *stats)
{
    const gs_status status = gsi_check_list(ctx, list, n);
    pass p = {.ctx = ctx, .run = scan_chunk, .dst = list, .src = list, .n = n};
    return status == GS_OK ? run_pass(&p, stats, true) : status;
}

gs_status gs_tensors_count(gs_context *ctx, const gs_tensor *list, size_t n, gs_dtype half,
                           gs_stats *each)
{
    gs_status status = gsi_check_list(ctx, list, n);
    if (status == GS_OK && half != GS_F16 && half != GS_BF16)
        status = gsi_fail(&ctx->error, GS_EDTYPE, "values are counted with respect to f16 or bf16");
    if (status != GS_OK)
        return status;
    pass p = {.ctx = ctx,
              .run = scan_chunk,
              .dst = list,
              .src = list,
              .n = n,
              .want_counts = true,
              .limits = gsi_limits_of(half)};
    return run_pass(&p, each, false);
}

static uint32_t scale_chunk(const pass *p, size_t t, size_t first, size_t count, double *sumsq)
{
    const gs_tensor *dst = &p->dst[t], *src = &p->src[t];
    (void)sumsq;
    return gsi_scale_for(&p->ctx->kernels, dst->dtype, src->dtype)(
        at(dst, first), at(src, first), count, p->factor, p->stream && dst->data != src->data);
}

gs_status gs_tensors_scale_to(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n,
                              float factor, gs_stats *stats)
{
    gs_status status = gsi_check_factor(ctx, factor);
    if (status == GS_OK)
        status = gsi_check_pairs(ctx, dst, src, n);
    for (size_t t = 0; status == GS_OK && t < n; t++)
        if (!gsi_scale_for(&ctx->kernels, dst[t].dtype, src[t].dtype)) {
            char number[32];
            status = gsi_fail(&ctx->error, GS_EDTYPE, "tensor %s cannot be scaled from %s to %s",
                              gsi_tensor_name(number, src, t), gs_format_of(src[t].dtype)->name,
                              gs_format_of(dst[t].dtype)->name);
        }
    pass p = {.ctx = ctx, .run = scale_chunk, .dst = dst, .src = src, .n = n, .factor = factor};
    return status == GS_OK ? run_pass(&p, stats, true) : status;
}

gs_status gs_tensors_scale(gs_context *ctx, const gs_tensor *list, size_t n, float factor,
                           gs_stats *stats)
{
    return gs_tensors_scale_to(ctx, list, list, n, factor, stats);
}

static uint32_t convert_chunk(const pass *p, size_t t, size_t first, size_t count, double *sumsq)
{
    const gs_tensor *dst = &p->dst[t], *src = &p->src[t];
    if (dst->dtype == src->dtype) /* p->factor is 1 */
        return scale_chunk(p, t, first, count, sumsq);
    return gsi_convert_for(&p->ctx->kernels, dst->dtype, src->dtype)(at(dst, first), at(src, first),
                                                                     count, p->stream);
}

gs_status gs_tensors_convert(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n,
                             gs_stats *stats)
{
    const gs_status status = gsi_check_pairs(ctx, dst, src, n);
    pass p = {.ctx = ctx, .run = convert_chunk, .dst = dst, .src = src, .n = n, .factor = 1};
    return status == GS_OK ? run_pass(&p, stats, true) : status;
}

static uint32_t stochastic_chunk(const pass *p, size_t t, size_t first, size_t count, double *sumsq)
{
    const gs_tensor *dst = &p->dst[t], *src = &p->src[t];
    gsi_stochastic_fn *kernel = gsi_stochastic_for(&p->ctx->kernels, dst->dtype, src->dtype);
    if (!kernel) /* nothing is cut off */
        return convert_chunk(p, t, first, count, sumsq);
    uint32_t key[4]; /* a stream of its own for every tensor */
    gsi_philox(key, p->seed, t);
    return kernel(at(dst, first), at(src, first), count, (uint64_t)key[1] << 32 | key[0], first);
}

gs_status gs_tensors_convert_stochastic(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                                        size_t n, uint64_t seed, gs_stats *stats)
{
    const gs_status status = gsi_check_pairs(ctx, dst, src, n);
    pass p = {.ctx = ctx,
              .run = stochastic_chunk,
              .dst = dst,
              .src = src,
              .n = n,
              .factor = 1,
              .seed = seed};
    return status == GS_OK ? run_pass(&p, stats, true) : status;
}

static uint32_t axpy_chunk(const pass *p, size_t t, size_t first, size_t count, double *sumsq)
{
    (void)sumsq;
    return gsi_axpy_for(&p->ctx->kernels, p->src[t].dtype)(at(&p->dst[t], first),
                                                           at(&p->src[t], first), count, p->factor);
}

gs_status gs_tensors_axpy(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n,
                          float factor, gs_stats *stats)
{
    gs_status status = gsi_check_factor(ctx, factor);
    if (status == GS_OK)
        status = gsi_check_pairs(ctx, dst, src, n);
    for (size_t t = 0; status == GS_OK && t < n; t++)
        if (dst[t].dtype != GS_F32) {
            char number[32];
            status = gsi_fail(&ctx->error, GS_EDTYPE, "tensor %s can be added to f32 only, not %s",
                              gsi_tensor_name(number, src, t), gs_format_of(dst[t].dtype)->name);
        }
    pass p = {.ctx = ctx, .run = axpy_chunk, .dst = dst, .src = src, .n = n, .factor = factor};
    return status == GS_OK ? run_pass(&p, stats, true) : status;
}

enum { WORDS = sizeof(gs_exponents) / sizeof(uint64_t) };

static uint32_t exponents_chunk(const pass *p, size_t t, size_t first, size_t count, double *sumsq)
{
    gs_exponents part = {0};
    uint64_t words[WORDS];
    (void)sumsq;
    const uint32_t top =
        gsi_exponents_for(&p->ctx->kernels, p->src[t].dtype)(&part, at(&p->src[t], first), count);
    memcpy(words, &part, sizeof words);
    for (size_t w = 0; w < WORDS; w++) /* whole numbers: the order does not matter */
        if (words[w])
            atomic_fetch_add_explicit(&p->words[w], words[w], memory_order_relaxed);
    return top;
}

gs_status gs_tensors_exponents(gs_context *ctx, const gs_tensor *list, size_t n, gs_exponents *sum,
                               gs_stats *stats)
{
    atomic_ullong shared[WORDS];
    gs_status status = gsi_check_list(ctx, list, n);
    if (status == GS_OK && !sum)
        status = gsi_fail(&ctx->error, GS_ENULL, "there is nothing to add the exponents to");
    if (status != GS_OK)
        return status;
    for (size_t w = 0; w < WORDS; w++)
        atomic_init(&shared[w], 0);
    pass p = {
        .ctx = ctx, .run = exponents_chunk, .dst = list, .src = list, .n = n, .words = shared};
    status = run_pass(&p, stats, true);
    if (status == GS_OK) {
        uint64_t words[WORDS];
        gs_exponents part;
        for (size_t w = 0; w < WORDS; w++)
            words[w] = atomic_load(&shared[w]);
        memcpy(&part, words, sizeof part);
        gs_exponents_merge(sum, &part);
    }
    return status;
}
