/* ResNet-18 and ResNet-50 (He et al. 2015), with the names and the strides of torchvision, whose
 * bottlenecks halve the image in their 3x3 convolution. One walk over the layers builds the list of
 * weights, and the same walk runs them. */
#include "train/train.h"

#include <math.h>
#include <stdio.h>

enum { STAGES = 4, STEM = 64 };

static const struct design {
    size_t depth, blocks[STAGES];
    size_t convs;     /* of a block: 2 of 3x3; or 1x1, 3x3, 1x1 */
    size_t expansion; /* of the channels in the last of them */
} designs[] = {{18, {2, 2, 2, 2}, 2, 1}, {50, {3, 4, 6, 3}, 3, 4}};

typedef struct resnet {
    gs_model base;
    gs_resnet_config config;
    const struct design *design;
} resnet;

/* ---- the shape of a block ---- */

/* Filters begin as torchvision's do, by their fan-out. */
static gsi_conv conv(size_t out, size_t kernel, size_t stride)
{
    return (gsi_conv){out, kernel, stride, sqrtf(2 / (float)(kernel * kernel * out))};
}

/* Convolution k of a block whose first one has `width` filters. */
static gsi_conv conv_of(const struct design *d, size_t k, size_t width, size_t stride)
{
    if (d->convs == 2)
        return conv(width, 3, k == 0 ? stride : 1);
    return conv(k == 2 ? width * d->expansion : width, k == 1 ? 3 : 1, k == 1 ? stride : 1);
}

/* A block that changes the shape of x projects it. */
static bool projects(const struct design *d, size_t channels, size_t width, size_t stride)
{
    return stride > 1 || channels != width * d->expansion;
}

/* ---- forward ---- */

static gs_value *block(gsi_walk *a, const struct design *d, gs_value *x, size_t channels,
                       size_t width, size_t stride)
{
    gs_value *y = x;
    for (size_t k = 0; k < d->convs; k++) {
        const gsi_conv c = conv_of(d, k, width, stride);
        y = gsi_conv_norm(a, y, c.kernel, c.stride);
        if (k + 1 < d->convs)
            y = gs_relu(a->t, y);
    }
    if (projects(d, channels, width, stride))
        x = gsi_conv_norm(a, x, 1, stride);
    return gs_relu(a->t, gs_add(a->t, y, x));
}

static gs_value *logits(void *model, gs_tape *t, const gs_batch *batch)
{
    const resnet *m = model;
    const gs_resnet_config *c = &m->config;
    const size_t shape[] = {batch->n, c->height, c->width, c->channels};
    gsi_walk a = {t, m->base.weights, m->base.state};
    gs_value *x = gs_input(t, GS_F32, 4, shape, batch->x);
    x = gs_relu(t, gsi_conv_norm(&a, x, 7, 2));
    x = gs_max_pool(t, x, 3, 2, 1);
    size_t channels = STEM;
    for (size_t stage = 0; stage < STAGES; stage++)
        for (size_t i = 0; i < m->design->blocks[stage]; i++) {
            const size_t width = (size_t)STEM << stage;
            x = block(&a, m->design, x, channels, width, stage > 0 && i == 0 ? 2 : 1);
            channels = width * m->design->expansion;
        }
    gs_tape_set_layer(t, a.w[0].name);
    x = gs_reshape(t, gs_global_avg_pool(t, x), 2, (const size_t[]){batch->n, channels});
    return gs_linear(t, x, gs_param(t, &a.w[0]), gs_param(t, &a.w[1]));
}

/* ---- weights ---- */

static gsi_hwc add_block(resnet *m, gsi_hwc x, size_t stage, size_t i, size_t stride)
{
    const struct design *d = m->design;
    const size_t width = (size_t)STEM << stage;
    char name[80], norm[80];
    gsi_hwc y = x;
    for (size_t k = 0; k < d->convs; k++) {
        snprintf(name, sizeof name, "layer%zu.%zu.conv%zu", stage + 1, i, k + 1);
        snprintf(norm, sizeof norm, "layer%zu.%zu.bn%zu", stage + 1, i, k + 1);
        y = gsi_model_add_conv_norm(m, y, conv_of(d, k, width, stride), name, norm);
    }
    snprintf(name, sizeof name, "layer%zu.%zu.downsample.0", stage + 1, i);
    snprintf(norm, sizeof norm, "layer%zu.%zu.downsample.1", stage + 1, i);
    if (projects(d, x.c, width, stride))
        gsi_model_add_conv_norm(m, x, conv(width * d->expansion, 1, stride), name, norm);
    return y;
}

static void add_weights(resnet *m)
{
    const gs_resnet_config *c = &m->config;
    gsi_hwc x = {c->height, c->width, c->channels};
    x = gsi_model_add_conv_norm(m, x, conv(STEM, 7, 2), "conv1", "bn1");
    x = (gsi_hwc){(x.h - 1) / 2 + 1, (x.w - 1) / 2 + 1, x.c};
    for (size_t stage = 0; stage < STAGES; stage++)
        for (size_t i = 0; i < m->design->blocks[stage]; i++)
            x = add_block(m, x, stage, i, stage > 0 && i == 0 ? 2 : 1);
    gsi_model_add(m, c->classes, x.c, (gs_init){0, sqrtf(1 / (3 * (float)x.c))}, "fc.weight");
    gsi_model_add(m, 1, c->classes, (gs_init){0, 0}, "fc.bias");
    m->base.flops += 6 * (double)x.c * (double)c->classes;
}

/* Norms, and the channels of them all. */
static void count_norms(const struct design *d, size_t *norms, size_t *channels)
{
    size_t in = STEM;
    *norms = 1;
    *channels = STEM;
    for (size_t stage = 0; stage < STAGES; stage++)
        for (size_t i = 0; i < d->blocks[stage]; i++) {
            const size_t width = (size_t)STEM << stage, stride = stage > 0 && i == 0 ? 2 : 1;
            const bool more = projects(d, in, width, stride);
            *norms += d->convs + more;
            *channels += (d->convs - 1 + (1 + more) * d->expansion) * width;
            in = width * d->expansion;
        }
}

gs_status gs_resnet_create(gs_model **out, gs_context *ctx, const gs_resnet_config *config)
{
    if (!out || !ctx || !config)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_resnet_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_resnet_config", &ctx->error);
    if (status != GS_OK)
        return status;
    const gs_resnet_config *c = &today;
    const struct design *design = NULL;
    for (size_t i = 0; i < sizeof designs / sizeof designs[0]; i++)
        if (designs[i].depth == c->depth)
            design = &designs[i];
    if (!design)
        return gsi_fail(&ctx->error, GS_ERANGE, "a resnet has 18 or 50 layers, not %zu", c->depth);
    const size_t most = 1 << 16;
    if (c->height < 1 || c->width < 1 || c->height > most || c->width > most || c->channels < 1 ||
        c->channels > most)
        return gsi_fail(&ctx->error, GS_ERANGE,
                        "a resnet takes images of 1 by 1 to %zu by %zu with 1 to %zu channels, not "
                        "%zu by %zu with %zu",
                        most, most, most, c->height, c->width, c->channels);
    if (c->classes < 2 || c->classes > 1 << 24)
        return gsi_fail(&ctx->error, GS_ERANGE, "a resnet has 2 to 2^24 classes, not %zu",
                        c->classes);
    size_t norms, channels;
    count_norms(design, &norms, &channels);
    resnet *m = gsi_model_new(ctx, sizeof *m, 3 * norms + 2, 2 * channels);
    if (!m)
        return GS_ENOMEM;
    m->base.logits = logits;
    m->config = *c;
    m->design = design;
    add_weights(m);
    *out = &m->base;
    return GS_OK;
}
