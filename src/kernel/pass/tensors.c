/* The passes: each is a kernel, and what its list has to be. */
#include "kernel/pass/run.h"

static gs_dtype type_of(const gs_tensor *list, gsi_span at) { return list[at.t].dtype; }

/* ---- reading ---- */

static uint32_t check_chunk(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                            gsi_chunk_result *out)
{
    (void)dst, (void)out;
    return p->ctx->kernels.pass.check[type_of(p->src, at)](src, at.count);
}

gs_status gs_tensors_check(gs_context *ctx, const gs_tensor *list, size_t n, gs_stats *stats)
{
    const gs_status status = gsi_check_list_f64(ctx, list, n);
    gsi_pass_run p = {.ctx = ctx, .run = check_chunk, .dst = list, .src = list, .n = n};
    return status == GS_OK ? gsi_run_pass(&p, stats, true) : status;
}

static uint32_t scan_chunk(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                           gsi_chunk_result *out)
{
    (void)dst;
    return p->ctx->kernels.pass.scan[type_of(p->src, at)](&out->sumsq, src, at.count);
}

gs_status gs_tensors_scan(gs_context *ctx, const gs_tensor *list, size_t n, gs_stats *stats)
{
    const gs_status status = gsi_check_list_f64(ctx, list, n);
    gsi_pass_run p = {.ctx = ctx, .run = scan_chunk, .dst = list, .src = list, .n = n};
    return status == GS_OK ? gsi_run_pass(&p, stats, true) : status;
}

static uint32_t count_chunk(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                            gsi_chunk_result *out)
{
    gsi_counts *const c = &out->counts;
    (void)dst;
    p->ctx->kernels.pass.count[type_of(p->src, at)](c, &out->sumsq, src, at.count, p->limits);
    return c->inf + c->nan > 0 ? GSI_F32_INF : c->amax;
}

static gs_status check_half(gs_context *ctx, gs_dtype half)
{
    return half == GS_F16 || half == GS_BF16
               ? GS_OK
               : gsi_fail(&ctx->error, GS_EDTYPE, "values are counted with respect to f16 or bf16");
}

gs_status gs_tensors_count(gs_context *ctx, const gs_tensor *list, size_t n, gs_dtype half,
                           gs_stats *each)
{
    gs_status status = gsi_check_list(ctx, list, n);
    if (status == GS_OK)
        status = check_half(ctx, half);
    if (status != GS_OK)
        return status;
    gsi_pass_run p = {.ctx = ctx,
                      .run = count_chunk,
                      .dst = list,
                      .src = list,
                      .n = n,
                      .has_counted = true,
                      .limits = gsi_limits_of(half)};
    return gsi_run_pass(&p, each, false);
}

/* ---- scaling ---- */

static uint32_t scale_chunk(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                            gsi_chunk_result *out)
{
    (void)out;
    return p->ctx->kernels.pass.scale[type_of(p->dst, at)][type_of(p->src, at)](
        dst, src, at.count, p->factor, p->stream && dst != src);
}

static gs_status check_scale(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n,
                             float factor)
{
    gs_status status = gsi_check_factor(ctx, factor);
    if (status == GS_OK)
        status = gsi_check_pairs_f64(ctx, dst, src, n);
    for (size_t t = 0; status == GS_OK && t < n; t++)
        if (!ctx->kernels.pass.scale[dst[t].dtype][src[t].dtype]) {
            char number[32];
            status = gsi_fail(&ctx->error, GS_EDTYPE, "tensor %s cannot be scaled from %s to %s",
                              gsi_tensor_name(number, src, t), gs_dtype_format(src[t].dtype)->name,
                              gs_dtype_format(dst[t].dtype)->name);
        }
    return status;
}

gs_status gs_tensors_scale_to(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n,
                              float factor, gs_stats *stats)
{
    const gs_status status = check_scale(ctx, dst, src, n, factor);
    gsi_pass_run p = {.ctx = ctx,
                      .run = scale_chunk,
                      .dst = dst,
                      .src = src,
                      .n = n,
                      .writes = true,
                      .factor = factor};
    return status == GS_OK ? gsi_run_pass(&p, stats, true) : status;
}

gs_status gs_tensors_scale(gs_context *ctx, const gs_tensor *list, size_t n, float factor,
                           gs_stats *stats)
{
    return gs_tensors_scale_to(ctx, list, list, n, factor, stats);
}

static uint32_t unscale_chunk(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                              gsi_chunk_result *out)
{
    return p->ctx->kernels.pass.unscale[type_of(p->dst, at)][type_of(p->src, at)](
        &out->counts, &out->sumsq, dst, src, at.count, p->factor, p->stream && dst != src);
}

gs_status gs_tensors_unscale(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n,
                             float factor, gs_stats *stats)
{
    const gs_status status = check_scale(ctx, dst, src, n, factor);
    gsi_pass_run p = {.ctx = ctx,
                      .run = unscale_chunk,
                      .dst = dst,
                      .src = src,
                      .n = n,
                      .writes = true,
                      .factor = factor,
                      .has_counted = true};
    return status == GS_OK ? gsi_run_pass(&p, stats, true) : status;
}

/* ---- converting ---- */

static uint32_t convert_chunk(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                              gsi_chunk_result *out)
{
    const gs_dtype to = type_of(p->dst, at), from = type_of(p->src, at);
    if (to == from) /* p->factor is 1 */
        return scale_chunk(p, at, dst, src, out);
    return p->ctx->kernels.pass.convert[to][from](dst, src, at.count, p->stream);
}

gs_status gs_tensors_convert(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n,
                             gs_stats *stats)
{
    const gs_status status = gsi_check_pairs(ctx, dst, src, n);
    gsi_pass_run p = {.ctx = ctx,
                      .run = convert_chunk,
                      .dst = dst,
                      .src = src,
                      .n = n,
                      .writes = true,
                      .factor = 1};
    return status == GS_OK ? gsi_run_pass(&p, stats, true) : status;
}

static uint32_t stochastic_chunk(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                                 gsi_chunk_result *out)
{
    gsi_stochastic_fn *kernel =
        p->ctx->kernels.pass.stochastic[type_of(p->dst, at)][type_of(p->src, at)];
    if (!kernel) /* nothing is cut off */
        return convert_chunk(p, at, dst, src, out);
    uint32_t key[4]; /* a stream of its own for every tensor */
    gsi_philox(key, p->seed, at.t);
    return kernel(dst, src, at.count, (uint64_t)key[1] << 32 | key[0], at.first);
}

gs_status gs_tensors_convert_stochastic(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                                        size_t n, uint64_t seed, gs_stats *stats)
{
    const gs_status status = gsi_check_pairs(ctx, dst, src, n);
    gsi_pass_run p = {.ctx = ctx,
                      .run = stochastic_chunk,
                      .dst = dst,
                      .src = src,
                      .n = n,
                      .writes = true,
                      .factor = 1,
                      .seed = seed};
    return status == GS_OK ? gsi_run_pass(&p, stats, true) : status;
}

/* Counts before it rounds, a piece at a time, which stays in L1. */
static uint32_t round_chunk(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                            gsi_chunk_result *out)
{
    enum { PIECE = 2048 };
    const gsi_pass *k = &p->ctx->kernels.pass;
    uint16_t half[PIECE];
    gsi_counts *const all = &out->counts;
    uint32_t amax = 0;
    (void)src; /* is dst */
    for (size_t i = 0; i < at.count; i += PIECE) {
        const size_t n = gsi_min_size(at.count - i, PIECE);
        float *const x = (float *)dst + i;
        gsi_counts before, after;
        k->count[GS_F32](&before, NULL, x, n, p->limits);
        k->convert[p->half][GS_F32](half, x, n, false);
        k->convert[GS_F32][p->half](x, half, n, false);
        k->count[GS_F32](&after, NULL, x, n, (gsi_limits){0});
        all->zero += before.zero;
        all->underflow += before.underflow;
        all->subnormal += before.subnormal;
        if (after.inf + after.nan > 0)
            gsi_add_bad(all, &after, i);
        amax = after.amax > amax ? after.amax : amax;
    }
    all->amax = amax;
    return all->inf + all->nan > 0 ? GSI_F32_INF : amax;
}

gs_status gs_tensors_round(gs_context *ctx, const gs_tensor *list, size_t n, gs_dtype half,
                           gs_stats *each)
{
    gs_status status = gsi_check_pairs(ctx, list, list, n);
    if (status == GS_OK)
        status = check_half(ctx, half);
    for (size_t t = 0; status == GS_OK && t < n; t++)
        if (list[t].dtype != GS_F32) {
            char number[32];
            status =
                gsi_fail(&ctx->error, GS_EDTYPE, "tensor %s is %s, and f32 can be rounded",
                         gsi_tensor_name(number, list, t), gs_dtype_format(list[t].dtype)->name);
        }
    gsi_pass_run p = {.ctx = ctx,
                      .run = round_chunk,
                      .dst = list,
                      .src = list,
                      .n = n,
                      .writes = true,
                      .half = half,
                      .has_counted = true,
                      .limits = gsi_limits_of(half)};
    return status == GS_OK ? gsi_run_pass(&p, each, false) : status;
}

/* ---- adding ---- */

static uint32_t axpy_chunk(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                           gsi_chunk_result *out)
{
    (void)out;
    return p->ctx->kernels.pass.axpy[type_of(p->src, at)](dst, src, at.count, p->factor);
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
                              gsi_tensor_name(number, src, t), gs_dtype_format(dst[t].dtype)->name);
        }
    gsi_pass_run p = {.ctx = ctx,
                      .run = axpy_chunk,
                      .dst = dst,
                      .src = src,
                      .n = n,
                      .writes = true,
                      .factor = factor};
    return status == GS_OK ? gsi_run_pass(&p, stats, true) : status;
}

/* ---- exponents ---- */

enum { WORDS = sizeof(gs_exponents) / sizeof(uint64_t) };

static uint32_t exponents_chunk(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                                gsi_chunk_result *out)
{
    gs_exponents part = {0};
    uint64_t words[WORDS];
    (void)dst, (void)out;
    const uint32_t amax = p->ctx->kernels.pass.exponents[type_of(p->src, at)](&part, src, at.count);
    memcpy(words, &part, sizeof words);
    for (size_t w = 0; w < WORDS; w++) /* whole numbers: the order does not matter */
        if (words[w])
            atomic_fetch_add_explicit(&p->words[w], words[w], memory_order_relaxed);
    return amax;
}

gs_status gs_tensors_exponents(gs_context *ctx, gs_exponents *sum, const gs_tensor *list, size_t n,
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
    gsi_pass_run p = {
        .ctx = ctx, .run = exponents_chunk, .dst = list, .src = list, .n = n, .words = shared};
    status = gsi_run_pass(&p, stats, true);
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
