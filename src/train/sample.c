/* Drawing a token. The exponentials are the library's own kernel and sums run in a fixed order, so
 * that a seed gives the same text on every machine. */
#include "base/base.h"
#include "gradscale/infer.h"
#include "kernel/context.h"
#include "kernel/fpenv.h"

#include <stdlib.h>

typedef struct candidate {
    float p; /* its logit, then its probability times a common factor */
    int32_t token;
} candidate;

/* The likely ones first; of equals the one with the smaller number. */
static int by_logit(const void *pa, const void *pb)
{
    const candidate *a = pa, *b = pb;
    return a->p != b->p ? (a->p > b->p ? -1 : 1) : (a->token > b->token) - (a->token < b->token);
}

static int32_t most_likely(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return (int32_t)best;
}

/* Keeps the fewest of the first k that have the share top_p of their sum. */
static size_t cut(const candidate *list, size_t k, double top_p)
{
    double sum = 0, so_far = 0;
    size_t kept = 0;
    for (size_t i = 0; i < k; i++)
        sum += (double)list[i].p;
    do /* all of them have more than that share: the sums are the same */
        so_far += (double)list[kept++].p;
    while (so_far < top_p * sum);
    return kept;
}

static int32_t draw(const candidate *list, size_t k, double u)
{
    double sum = 0, so_far = 0;
    for (size_t i = 0; i < k; i++)
        sum += (double)list[i].p;
    for (size_t i = 0; i + 1 < k; i++) {
        so_far += (double)list[i].p;
        if (u * sum < so_far)
            return list[i].token;
    }
    return list[k - 1].token;
}

static int32_t sample(gs_context *ctx, const float *logits, size_t n, const gs_sampling_config *c,
                      uint64_t index, candidate *list, float *row)
{
    for (size_t i = 0; i < n; i++)
        list[i] = (candidate){logits[i], (int32_t)i};
    qsort(list, n, sizeof *list, by_logit);
    size_t k = c->top_k > 0 && c->top_k < n ? c->top_k : n;
    const float top = list[0].p;
    for (size_t i = 0; i < k; i++)
        row[i] = (float)((double)(list[i].p - top) / c->temperature);
    ctx->kernels.rows.exp((gsi_out){row, GS_F32, NULL}, (gsi_in){row, GS_F32}, k);
    for (size_t i = 0; i < k; i++)
        list[i].p = row[i];
    if (c->top_p > 0 && c->top_p < 1)
        k = cut(list, k, c->top_p);
    return draw(list, k, (double)gs_random_u32(c->seed, index) * 0x1p-32);
}

gs_status gs_sample(int32_t *token, gs_context *ctx, const float *logits, size_t n,
                    const gs_sampling_config *config, uint64_t index)
{
    if (!token || !ctx || !logits || !config)
        return gsi_missing(ctx, __func__);
    gs_sampling_config c;
    const gs_status status = gsi_config(&c, sizeof c, config, "gs_sampling_config", &ctx->error);
    if (status != GS_OK)
        return status;
    if (!(c.temperature >= 0 && c.temperature <= 1e6) || !(c.top_p >= 0 && c.top_p <= 1))
        return gsi_fail(&ctx->error, GS_ERANGE,
                        "a temperature is at least 0, and top_p from 0 to 1, not %g and %g",
                        c.temperature, c.top_p);
    for (size_t i = 0; i < n; i++)
        if ((gsi_bits(logits[i]) & 0x7F800000u) == 0x7F800000u)
            return gsi_fail(&ctx->error, GS_ERANGE, "the logit of token %zu is not finite", i);
    if (n == 0 || n > INT32_MAX)
        return gsi_fail(&ctx->error, GS_ESIZE, "there are %zu tokens to draw from", n);
    if (c.temperature == 0) {
        *token = most_likely(logits, n);
        return GS_OK;
    }
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    candidate *list = gsi_arena_new(&ctx->scratch, n, sizeof *list);
    float *row = gsi_arena_new(&ctx->scratch, n, sizeof *row);
    if (list && row) {
        const uint64_t env = gsi_fpenv_enter();
        *token = sample(ctx, logits, n, &c, index, list, row);
        gsi_fpenv_leave(env);
    }
    gsi_arena_reset(&ctx->scratch, mark);
    return list && row ? GS_OK : gsi_fail(&ctx->error, GS_ENOMEM, "no memory to draw a token");
}
