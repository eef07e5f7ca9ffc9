/* Linear layers with relu between them. */
#include "train/train.h"

#include <math.h>

typedef struct mlp {
    gs_model base;
    size_t inputs, layers;
} mlp;

static gs_value *logits(void *model, gs_tape *t, const gs_batch *batch)
{
    const mlp *m = model;
    const gs_weight *w = m->base.weights; /* weight, bias, weight, bias... */
    gs_value *x = gs_input(t, GS_F32, 2, (const size_t[]){batch->n, m->inputs}, batch->x);
    for (size_t i = 0; i < m->layers; i++, w += 2) {
        gs_tape_set_layer(t, w[0].name);
        x = gs_linear(t, x, gs_param(t, &w[0]), gs_param(t, &w[1]));
        if (i + 1 < m->layers)
            x = gs_relu(t, x);
    }
    return x;
}

gs_status gs_mlp_create(gs_model **out, gs_context *ctx, const gs_mlp_config *config)
{
    if (!out || !ctx || !config)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_mlp_config today;
    const gs_status status = gsi_config(&today, sizeof today, config, "gs_mlp_config", &ctx->error);
    if (status != GS_OK)
        return status;
    config = &today;
    if (!config->sizes)
        return gsi_fail(&ctx->error, GS_ENULL, "an mlp has no list of sizes");
    if (config->count < 2)
        return gsi_fail(&ctx->error, GS_ESIZE, "an mlp has at least 2 sizes, not %zu",
                        config->count);
    for (size_t i = 0; i < config->count; i++)
        if (config->sizes[i] < 1 + (size_t)(i > 0))
            return gsi_fail(
                &ctx->error, GS_ERANGE,
                "an mlp has an input or more and layers of 2 or more, not %zu in layer %zu",
                config->sizes[i], i);
    mlp *m = gsi_model_new(ctx, sizeof *m, 2 * (config->count - 1), 0);
    if (!m)
        return GS_ENOMEM;
    m->base.logits = logits;
    m->inputs = config->sizes[0];
    m->layers = config->count - 1;
    for (size_t i = 0; i < m->layers; i++) {
        const size_t in = config->sizes[i], n = config->sizes[i + 1];
        const float gain = i + 1 < m->layers ? 2 : 1; /* He et al. 2015: relu halves the variance */
        gsi_model_add(m, n, in, (gs_init){0, sqrtf(gain / (float)in)}, "layers.%zu.weight", i);
        gsi_model_add(m, 1, n, (gs_init){0}, "layers.%zu.bias", i);
        m->base.flops += (i ? 6.0 : 4.0) * (double)in * (double)n; /* y, dw; dx but of the first */
    }
    *out = &m->base;
    return GS_OK;
}
