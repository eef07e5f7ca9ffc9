/* Convolutions with batchnorm, plain and residual. Building and running walk the same list of
 * weights in the same order. */
#include "train/train.h"

#include <math.h>
#include <stdio.h>

typedef struct cnn {
    gs_model base;
    gs_cnn_config config;
} cnn;

enum { STAGES = 3, BLOCKS_PER_STAGE = 2, KERNEL = 3 };

/* ---- forward ---- */

static gs_value *plain(gsi_walk *a, gs_value *x)
{
    for (int i = 0; i < STAGES; i++)
        x = gs_max_pool(a->t, gs_relu(a->t, gsi_conv_norm(a, x, KERNEL, 1)), 2, 2, 0);
    return x;
}

/* He et al. 2015, figure 2: relu(x + f(x)); a block that halves the image projects its x. */
static gs_value *block(gsi_walk *a, gs_value *x, size_t stride)
{
    gs_value *y = gs_relu(a->t, gsi_conv_norm(a, x, KERNEL, stride));
    y = gsi_conv_norm(a, y, KERNEL, 1);
    if (stride > 1)
        x = gsi_conv_norm(a, x, 1, stride);
    return gs_relu(a->t, gs_add(a->t, y, x));
}

static gs_value *residual(gsi_walk *a, gs_value *x)
{
    x = gs_relu(a->t, gsi_conv_norm(a, x, KERNEL, 1));
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < BLOCKS_PER_STAGE; i++)
            x = block(a, x, stage > 0 && i == 0 ? 2 : 1);
    return gs_avg_pool(a->t, x, x->shape[1] ? x->shape[1] : 1, 1);
}

static gs_value *logits(void *model, gs_tape *t, const gs_batch *batch)
{
    const cnn *m = model;
    const gs_cnn_config *c = &m->config;
    const size_t shape[] = {batch->n, c->height, c->width, c->channels};
    gsi_walk a = {t, m->base.weights, m->base.state};
    gs_value *x = gs_input(t, GS_F32, 4, shape, batch->x);
    x = c->residual ? residual(&a, x) : plain(&a, x);
    gs_tape_set_layer(t, a.w[0].name);
    x = gs_reshape(t, x, 2, (const size_t[]){batch->n, a.w[0].cols});
    return gs_linear(t, x, gs_param(t, &a.w[0]), gs_param(t, &a.w[1]));
}

/* ---- weights ---- */

static gsi_hwc add_conv(cnn *m, gsi_hwc x, size_t out, size_t kernel, size_t stride,
                        const char *conv, const char *norm)
{
    const float he = sqrtf(2 / (float)(kernel * kernel * x.c));
    return gsi_model_add_conv_norm(m, x, (gsi_conv){out, kernel, stride, he}, conv, norm);
}

static gsi_hwc add_plain(cnn *m, gsi_hwc x)
{
    for (size_t i = 0; i < STAGES; i++) {
        char conv[16], norm[16];
        snprintf(conv, sizeof conv, "conv%zu", i + 1);
        snprintf(norm, sizeof norm, "bn%zu", i + 1);
        x = add_conv(m, x, m->config.filters << i, KERNEL, 1, conv, norm);
        x = (gsi_hwc){x.h / 2, x.w / 2, x.c};
    }
    return x;
}

static gsi_hwc add_residual(cnn *m, gsi_hwc x)
{
    char conv[48], norm[48];
    x = add_conv(m, x, m->config.filters, KERNEL, 1, "conv1", "bn1");
    for (size_t stage = 0; stage < STAGES; stage++)
        for (size_t i = 0; i < BLOCKS_PER_STAGE; i++) {
            const size_t out = m->config.filters << stage, stride = stage > 0 && i == 0 ? 2 : 1;
            const gsi_hwc in = x;
            for (size_t k = 1; k <= 2; k++) {
                snprintf(conv, sizeof conv, "layer%zu.%zu.conv%zu", stage + 1, i, k);
                snprintf(norm, sizeof norm, "layer%zu.%zu.bn%zu", stage + 1, i, k);
                x = add_conv(m, x, out, KERNEL, k == 1 ? stride : 1, conv, norm);
            }
            snprintf(conv, sizeof conv, "layer%zu.%zu.downsample.0", stage + 1, i);
            snprintf(norm, sizeof norm, "layer%zu.%zu.downsample.1", stage + 1, i);
            if (stride > 1)
                add_conv(m, in, out, 1, stride, conv, norm);
        }
    return (gsi_hwc){1, 1, x.c};
}

gs_status gs_cnn_create(gs_model **out, gs_context *ctx, const gs_cnn_config *config)
{
    if (!out || !ctx || !config)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_cnn_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_cnn_config", &ctx->error);
    if (status != GS_OK)
        return status;
    config = &today;
    const gs_cnn_config *c = config;
    const size_t most = 1 << 16, halvings = c->residual ? 1 : 1 << STAGES;
    if (c->height < halvings || c->width < halvings || c->height > most || c->width > most ||
        c->channels < 1 || c->channels > most)
        return gsi_fail(
            &ctx->error, GS_ERANGE,
            "a cnn takes images of %zu by %zu to %zu by %zu with 1 to %zu channels, not "
            "%zu by %zu with %zu",
            halvings, halvings, most, most, most, c->height, c->width, c->channels);
    if (c->filters < 2 || c->filters > most || c->classes < 2 || c->classes > 1 << 24)
        return gsi_fail(&ctx->error, GS_ERANGE,
                        "a cnn has 2 to %zu filters and 2 to 2^24 classes, not %zu and %zu", most,
                        c->filters, c->classes);
    if (c->residual && (c->height != c->width || c->height > 1020))
        return gsi_fail(&ctx->error, GS_ERANGE,
                        "the residual cnn takes square images up to 1020, not %zu by %zu",
                        c->height, c->width);
    /* Norms, and their channels in units of filters, which a stage doubles: one per stage; or the
     * stem, two per block, and the projections of all stages but the first. */
    const size_t each = 2 * BLOCKS_PER_STAGE, of_stages = (1 << STAGES) - 1;
    const size_t norms = c->residual ? 1 + each * STAGES + STAGES - 1 : STAGES;
    const size_t widths = c->residual ? 1 + each * of_stages + of_stages - 1 : of_stages;
    const size_t channels = widths * c->filters;
    cnn *m = gsi_model_new(ctx, sizeof *m, 3 * norms + 2, 2 * channels);
    if (!m)
        return GS_ENOMEM;
    m->base.logits = logits;
    m->config = *c;
    const gsi_hwc x = {c->height, c->width, c->channels};
    const gsi_hwc y = c->residual ? add_residual(m, x) : add_plain(m, x);
    const size_t k = y.h * y.w * y.c;
    gsi_model_add(m, c->classes, k, (gs_init){0, sqrtf(1 / (float)k)}, "fc.weight");
    gsi_model_layout(m, (gs_layout){.kh = y.h, .kw = y.w});
    gsi_model_add(m, 1, c->classes, (gs_init){0, 0}, "fc.bias");
    m->base.flops += 6 * (double)k * (double)c->classes;
    *out = &m->base;
    return GS_OK;
}
