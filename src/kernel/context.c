#include "kernel/context.h"

/* Of a caller's parallel-for that does not say: scratch that no body touches costs little. */
enum { WORKERS_UNKNOWN = 16 };

gs_status gs_context_create(gs_context **out, const gs_config *config, gs_error *error)
{
    gs_config today = {.size = sizeof today};
    if (!out)
        return gsi_fail(error, GS_ENULL, "there is no place for a context");
    *out = NULL;
    gs_status status =
        config ? gsi_config(&today, sizeof today, config, "gs_config", error) : GS_OK;
    if (status != GS_OK)
        return status;
    config = &today;

    gsi_heap heap;
    gsi_heap_init(&heap, &config->alloc);
    gs_context *ctx = gsi_new(&heap, sizeof *ctx);
    if (!ctx)
        return gsi_fail(error, GS_ENOMEM, "no memory for a context");
    *ctx = (gs_context){.heap = heap, .parallel = config->parallel};
    gsi_arena_init(&ctx->scratch, &ctx->heap);
    ctx->cpu = gs_cpu_detect() & ~config->without_cpu;
    gsi_kernels_init(&ctx->kernels, ctx->cpu);
    if (!ctx->parallel.run) {
        status = gsi_pool_create(&ctx->pool, &ctx->heap, config->threads);
        if (status != GS_OK) {
            gs_context_free(ctx);
            return gsi_fail(error, status, "a pool of %u threads (0: one per CPU; at most %d): %s",
                            config->threads, GSI_MAX_THREADS, gs_status_meaning(status));
        }
        ctx->parallel = gsi_pool_parallel(ctx->pool);
    }
    ctx->workers = ctx->pool         ? gsi_pool_threads(ctx->pool)
                   : config->threads ? config->threads
                                     : WORKERS_UNKNOWN;
    *out = ctx;
    return GS_OK;
}

void gs_context_free(gs_context *ctx)
{
    if (!ctx)
        return;
    gsi_pool_free(ctx->pool);
    gsi_arena_free(&ctx->scratch);
    gsi_heap heap = ctx->heap; /* the context lies in its own heap */
    gsi_free(&heap, ctx);
}

unsigned gs_context_threads(const gs_context *ctx)
{
    return !ctx ? 0 : ctx->pool ? gsi_pool_threads(ctx->pool) : 1;
}

unsigned gs_context_cpu(const gs_context *ctx) { return ctx ? ctx->cpu : 0; }

gs_status gsi_missing(gs_context *ctx, const char *call)
{
    if (!ctx)
        return GS_ENULL;
    return gsi_fail(&ctx->error, GS_ENULL, "%s: %s", call, gs_status_meaning(GS_ENULL));
}

const gs_error *gs_context_error(const gs_context *ctx)
{
    static const gs_error none = {GS_ENULL, "there is no context"};
    return ctx ? &ctx->error : &none;
}
