/* ViT (Dosovitskiy et al. 2020), with the parts, names and first values of torchvision's
 * VisionTransformer: patches become tokens, one more of them gathers what the classes are read
 * from, and blocks of a GPT attend without a mask. */
#include "train/transformer.h"

#include <math.h>

static const gsi_block_names names = {.block = "encoder.layers.encoder_layer_",
                                      .ln_1 = "ln_1.",
                                      .q = "self_attention.in_proj_",
                                      .proj = "self_attention.out_proj.",
                                      .ln_2 = "ln_2.",
                                      .fc = "mlp.0.",
                                      .mlp_proj = "mlp.3.",
                                      .biases = true};

enum { CLASS_TOKEN, PATCHES, PATCHES_BIAS, POSITIONS, OTHERS = 8 };

typedef struct vit {
    gs_model base;
    gs_vit_config config;
    gsi_transformer blocks;
    size_t patches; /* of an image */
    size_t ln, head;
    int32_t *positions; /* 0, 1, ... patches */
} vit;

static gs_value *logits(void *model, gs_tape *t, const gs_batch *batch)
{
    const vit *m = model;
    const gs_vit_config *c = &m->config;
    const gs_weight *w = m->base.weights;
    gs_tape_set_layer(t, w[PATCHES].name);
    gs_value *x = gs_input(t, GS_F32, 4,
                           (const size_t[]){batch->n, c->height, c->width, c->channels}, batch->x);
    x = gs_conv2d(t, x, gs_param(t, &w[PATCHES]), gs_param(t, &w[PATCHES_BIAS]), c->patch, c->patch,
                  0);
    x = gs_reshape(t, x, 3, (const size_t[]){batch->n, m->patches, c->hidden});
    x = gs_prepend(t, x, gs_param(t, &w[CLASS_TOKEN]));
    x = gs_add(t, x, gs_embedding(t, gs_param(t, &w[POSITIONS]), m->positions, m->patches + 1));
    x = gs_dropout(t, x, c->dropout);
    x = gsi_transformer_run(&m->blocks, t, x, w);
    /* a norm is of each token alone: the others' would not be read */
    x = gsi_transformer_norm(&m->blocks, t, gs_select(t, x, 0), w + m->ln);
    gs_tape_set_layer(t, w[m->head].name);
    return gs_linear(t, x, gs_param(t, &w[m->head]), gs_param(t, &w[m->head + 1]));
}

static void add_weights(vit *m)
{
    const gs_vit_config *c = &m->config;
    const size_t pixels = c->patch * c->patch * c->channels;
    const double tokens = (double)m->patches + 1, hidden = (double)c->hidden;
    gsi_model_add(m, 1, c->hidden, (gs_init){0, 0}, "class_token");
    gsi_model_layout(m, (gs_layout){.rank = 3});
    gsi_model_add(m, c->hidden, pixels, (gs_init){0, sqrtf(1 / (float)pixels)}, "conv_proj.weight");
    gsi_model_layout(m, (gs_layout){.kh = c->patch, .kw = c->patch, .rank = 4});
    gsi_model_add(m, 1, c->hidden, (gs_init){0, 0}, "conv_proj.bias");
    gsi_model_add(m, m->patches + 1, c->hidden, (gs_init){0, 0.02f}, "encoder.pos_embedding");
    gsi_model_layout(m, (gs_layout){.rank = 3});
    gsi_transformer_add(&m->blocks, m);
    m->ln = gsi_transformer_add_norm(&m->blocks, m, "encoder.ln.");
    m->head = m->base.n;
    gsi_model_add(m, c->classes, c->hidden, (gs_init){0, 0}, "heads.head.weight");
    gsi_model_add(m, 1, c->classes, (gs_init){0, 0}, "heads.head.bias");
    m->base.flops = 4 * (double)m->patches * (double)pixels * hidden + /* y, dw; no dx */
                    gsi_transformer_flops(&m->blocks, tokens) + 6 * hidden * (double)c->classes;
}

static gsi_transformer blocks_of(const gs_vit_config *c)
{
    const float width = (float)c->hidden;
    const float xavier = sqrtf(2 / (width + (float)c->mlp_width));
    return (gsi_transformer){
        .names = &names,
        .std = {sqrtf(1 / (2 * width)), sqrtf(1 / (3 * width)), xavier, xavier},
        .layers = c->layers,
        .width = c->hidden,
        .heads = c->heads,
        .kv_heads = c->heads,
        .mlp_width = c->mlp_width,
        .dropout = c->dropout,
        .eps = 1e-6f,
        .exact = true,
        .unmasked = true};
}

static gs_status check_sizes(const gs_vit_config *c, gs_error *error)
{
    enum { SIDE = 1 << 16, TOKENS = 1 << 20, WIDEST = 1 << 20, LAYERS = 1 << 12 };
    if (c->height < 1 || c->width < 1 || c->height > SIDE || c->width > SIDE || c->channels < 1 ||
        c->channels > SIDE)
        return gsi_fail(error, GS_ERANGE,
                        "a vit takes images of 1 by 1 to %d by %d with 1 to %d channels, not %zu "
                        "by %zu with %zu",
                        SIDE, SIDE, SIDE, c->height, c->width, c->channels);
    if (c->patch < 1 || c->height % c->patch != 0 || c->width % c->patch != 0)
        return gsi_fail(error, GS_ERANGE,
                        "images of %zu by %zu cannot be cut into patches of %zu by %zu", c->height,
                        c->width, c->patch, c->patch);
    if (c->classes < 2 || c->classes > 1 << 24)
        return gsi_fail(error, GS_ERANGE, "a vit has 2 to 2^24 classes, not %zu", c->classes);
    if (c->layers < 1 || c->layers > LAYERS || c->hidden < 2 || c->hidden > WIDEST ||
        c->mlp_width > 4 * WIDEST)
        return gsi_fail(error, GS_ERANGE,
                        "a vit has 1 to %d layers, 2 to %d columns and up to %d hidden units, not "
                        "%zu, %zu and %zu",
                        LAYERS, WIDEST, 4 * WIDEST, c->layers, c->hidden, c->mlp_width);
    if (c->heads < 1 || c->hidden % c->heads != 0)
        return gsi_fail(error, GS_ERANGE, "a width of %zu cannot be shared by %zu heads", c->hidden,
                        c->heads);
    if (!(c->dropout >= 0 && c->dropout < 1))
        return gsi_fail(error, GS_ERANGE, "dropout is 0 to below 1, not %g", (double)c->dropout);
    const size_t patches = (c->height / c->patch) * (c->width / c->patch);
    if (patches >= TOKENS || c->patch * c->patch > TOKENS)
        return gsi_fail(error, GS_ESIZE, "a vit of %zu patches of %zu by %zu pixels is too large",
                        patches, c->patch, c->patch);
    return GS_OK;
}

gs_status gs_vit_create(gs_model **out, gs_context *ctx, const gs_vit_config *config)
{
    if (!out || !ctx || !config)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_vit_config c;
    gs_status status = gsi_config(&c, sizeof c, config, "gs_vit_config", &ctx->error);
    if (status == GS_OK)
        status = check_sizes(&c, &ctx->error);
    if (status != GS_OK)
        return status;
    if (c.mlp_width == 0)
        c.mlp_width = 4 * c.hidden;
    const size_t patches = (c.height / c.patch) * (c.width / c.patch);
    vit *m = gsi_model_new(ctx, sizeof *m + (patches + 1) * sizeof(int32_t),
                           OTHERS + GSI_BLOCK_WEIGHTS * c.layers, 0);
    if (!m)
        return GS_ENOMEM;
    m->base.logits = logits;
    m->config = c;
    m->patches = patches;
    m->positions = (int32_t *)(void *)(m + 1);
    for (size_t i = 0; i <= patches; i++)
        m->positions[i] = (int32_t)i;
    m->blocks = blocks_of(&c);
    add_weights(m);
    *out = &m->base;
    return GS_OK;
}
