/* A class for every pixel: convolutions that keep the size of the image, with relu between them. */
#include "train/train.h"

#include <math.h>

enum { KERNEL = 3 };

typedef struct fcn {
    gs_model base;
    gs_fcn_config config;
} fcn;

static gs_value *logits(void *model, gs_tape *t, const gs_batch *batch)
{
    const fcn *m = model;
    const gs_fcn_config *c = &m->config;
    const gs_weight *w = m->base.weights; /* weight, bias, weight, bias... */
    const size_t shape[] = {batch->n, c->height, c->width, c->channels};
    gs_value *x = gs_input(t, GS_F32, 4, shape, batch->x);
    for (size_t i = 0; i <= c->layers; i++, w += 2) {
        gs_tape_set_layer(t, w[0].name);
        x = gs_conv2d(t, x, gs_param(t, &w[0]), gs_param(t, &w[1]), KERNEL, 1, KERNEL / 2);
        if (i < c->layers)
            x = gs_relu(t, x);
    }
    return x;
}

gs_status gs_fcn_create(gs_model **out, gs_context *ctx, const gs_fcn_config *config)
{
    if (!out || !ctx || !config)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_fcn_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_fcn_config", &ctx->error);
    if (status != GS_OK)
        return status;
    config = &today;
    const gs_fcn_config *c = config;
    const size_t most = 1 << 16;
    if (c->height < 1 || c->width < 1 || c->height > most || c->width > most || c->channels < 1 ||
        c->channels > most)
        return gsi_fail(
            &ctx->error, GS_ERANGE,
            "an fcn takes images of 1 by 1 to %zu by %zu with 1 to %zu channels, not %zu "
            "by %zu with %zu",
            most, most, most, c->height, c->width, c->channels);
    if (c->layers < 1 || c->layers > 1000 || c->filters < 2 || c->filters > most ||
        c->classes < 2 || c->classes > 1 << 24)
        return gsi_fail(&ctx->error, GS_ERANGE,
                        "an fcn has 1 to 1000 layers, 2 to %zu filters and 2 to 2^24 classes, not "
                        "%zu, %zu and %zu",
                        most, c->layers, c->filters, c->classes);
    fcn *m = gsi_model_new(ctx, sizeof *m, 2 * (c->layers + 1), 0);
    if (!m)
        return GS_ENOMEM;
    m->base.logits = logits;
    m->config = *c;
    const double pixels = (double)c->height * (double)c->width;
    for (size_t i = 0; i <= c->layers; i++) {
        const size_t k = KERNEL * KERNEL * (i ? c->filters : c->channels);
        const bool last = i == c->layers;
        const size_t n = last ? c->classes : c->filters;
        const float he = sqrtf(2 / (float)k); /* the last half of it: no class is favoured yet */
        gsi_model_add(m, n, k, (gs_init){0, last ? he / 2 : he}, "conv%zu.weight", i + 1);
        gsi_model_layout(m, (gs_layout){.kh = KERNEL, .kw = KERNEL, .rank = 4});
        gsi_model_add(m, 1, n, (gs_init){0, 0}, "conv%zu.bias", i + 1);
        m->base.flops +=
            (i ? 6 : 4) * pixels * (double)k * (double)n; /* y, dw; dx but of the first */
    }
    *out = &m->base;
    return GS_OK;
}
