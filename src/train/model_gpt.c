/* GPT-2 (Radford et al. 2019): an embedding, blocks, a norm, and the head is the embedding. Options
 * make of it what Llama is (Touvron et al. 2023): the same blocks of other parts. */
#include "train/transformer.h"
#include "train/infer.h"

#include <math.h>

/* The weights by name: those of GPT-2, and of Llama. */
typedef struct names {
    const char *wte, *wpe, *ln_f;
    gsi_block_names blocks;
} names;
static const names gpt2 = {.wte = "transformer.wte",
                           .wpe = "transformer.wpe",
                           .ln_f = "transformer.ln_f.",
                           .blocks = {.block = "transformer.h.",
                                      .ln_1 = "ln_1.",
                                      .q = "attn.c_attn.",
                                      .proj = "attn.c_proj.",
                                      .ln_2 = "ln_2.",
                                      .gate = "mlp.c_gate.",
                                      .fc = "mlp.c_fc.",
                                      .mlp_proj = "mlp.c_proj.",
                                      .transposed = true,
                                      .biases = true}};
static const names llama = {.wte = "model.embed_tokens",
                            .ln_f = "model.norm.",
                            .blocks = {.block = "model.layers.",
                                       .ln_1 = "input_layernorm.",
                                       .q = "self_attn.q_proj.",
                                       .k = "self_attn.k_proj.",
                                       .v = "self_attn.v_proj.",
                                       .proj = "self_attn.o_proj.",
                                       .ln_2 = "post_attention_layernorm.",
                                       .gate = "mlp.gate_proj.",
                                       .fc = "mlp.up_proj.",
                                       .mlp_proj = "mlp.down_proj."}};

enum { WTE, WPE }; /* the first weights; then the blocks, the last norm, the head's own */

typedef struct gpt {
    gs_model base;
    gs_gpt_config config;
    const names *names;
    gsi_transformer blocks;
    size_t ln_f, head;  /* head 0: the embedding */
    int32_t *positions; /* 0, 1, ... context - 1; NULL: rotary */
} gpt;

static gs_value *logits(void *model, gs_tape *t, const gs_batch *batch)
{
    const gpt *m = model;
    const gs_gpt_config *c = &m->config;
    const gs_weight *w = m->base.weights;
    const size_t shape[] = {batch->n, batch->time, c->width};
    size_t rows;
    if (!gsi_mul_size(&rows, batch->n, batch->time))
        return gs_tape_fail(t, GS_ESIZE, "gpt: %zu items of %zu tokens are too many", batch->n,
                            batch->time);
    if (batch->time > c->context)
        return gs_tape_fail(t, GS_ESIZE, "gpt: items have %zu tokens, and the context is %zu",
                            batch->time, c->context);
    gs_tape_set_layer(t, w[WTE].name);
    gs_value *x = gs_reshape(t, gs_embedding(t, gs_param(t, &w[WTE]), batch->ids, rows), 3, shape);
    if (m->positions)
        x = gs_add(t, x, gs_embedding(t, gs_param(t, &w[WPE]), m->positions, batch->time));
    x = gs_dropout(t, x, c->dropout);
    x = gsi_transformer_run(&m->blocks, t, x, w);
    x = gsi_transformer_norm(&m->blocks, t, x, w + m->ln_f);
    gs_tape_set_layer(t, "lm_head");
    return gs_linear(t, x, gs_param(t, &w[m->head]), NULL);
}

/* The same operations as above on the last n tokens alone: of what is theirs, the same bits. */
static gs_value *next(void *model, gs_tape *t, const int32_t *ids, size_t n, gs_kv_cache *cache)
{
    const gpt *m = model;
    const gs_gpt_config *c = &m->config;
    const gs_weight *w = m->base.weights;
    const size_t past = cache->n, size = c->width;
    if (n > c->context || past > c->context - n)
        return gs_tape_fail(t, GS_ESIZE, "gpt: %zu tokens after %zu, and the context is %zu", n,
                            past, c->context);
    gs_value *x = gs_embedding(t, gs_param(t, &w[WTE]), ids, n);
    if (m->positions)
        x = gs_add(t, x, gs_embedding(t, gs_param(t, &w[WPE]), m->positions + past, n));
    x = gs_reshape(t, x, 3, (const size_t[]){1, n, size});
    x = gsi_transformer_next(&m->blocks, t, x, w, cache->layers);
    if (gs_tape_status(t) != GS_OK)
        return x;
    x = gs_input(t, x->dtype, 3, (const size_t[]){1, 1, size},
                 gsi_at(x->data, x->dtype, (n - 1) * size));
    x = gsi_transformer_norm(&m->blocks, t, x, w + m->ln_f);
    return gs_linear(t, x, gs_param(t, &w[m->head]), NULL);
}

/* ---- weights ---- */

static void add_weights(gpt *m)
{
    const gs_gpt_config *c = &m->config;
    const gs_init init = {0, 0.02f};
    gsi_model_add(m, c->vocabulary, c->width, init, "%s.weight", m->names->wte);
    if (!c->rotary)
        gsi_model_add(m, c->context, c->width, init, "%s.weight", m->names->wpe);
    gsi_transformer_add(&m->blocks, m);
    m->ln_f = gsi_transformer_add_norm(&m->blocks, m, m->names->ln_f);
    m->head = c->untied ? m->base.n : WTE;
    if (c->untied)
        gsi_model_add(m, c->vocabulary, c->width, init, "lm_head.weight");
}

static gsi_transformer blocks_of(const gs_gpt_config *c, const names *s, const float *angles)
{
    const float std = 0.02f, residual = std / sqrtf(2 * (float)c->layers);
    return (gsi_transformer){.names = &s->blocks,
                             .std = {std, residual, std, residual},
                             .layers = c->layers,
                             .width = c->width,
                             .heads = c->heads,
                             .kv_heads = c->kv_heads,
                             .mlp_width = c->mlp_width,
                             .dropout = c->dropout,
                             .eps = 1e-5f,
                             .rms = c->rms,
                             .swiglu = c->swiglu,
                             .angles = angles};
}

static gs_status check_sizes(const gs_gpt_config *c, gs_error *error)
{
    if (c->vocabulary < 2 || c->context < 2 || c->layers < 1 || c->width < 2)
        return gsi_fail(error, GS_ERANGE,
                        "a gpt has 2 or more words, positions and columns, and a layer, not "
                        "%zu, %zu, %zu and %zu",
                        c->vocabulary, c->context, c->width, c->layers);
    if (c->heads < 1 || c->width % c->heads != 0)
        return gsi_fail(error, GS_ERANGE, "a width of %zu cannot be shared by %zu heads", c->width,
                        c->heads);
    if (c->kv_heads > 0 && c->heads % c->kv_heads != 0)
        return gsi_fail(error, GS_ERANGE, "%zu heads cannot share %zu heads of keys and values",
                        c->heads, c->kv_heads);
    if (c->rotary && c->width / c->heads % 2 != 0)
        return gsi_fail(error, GS_ERANGE,
                        "rotary positions need heads of an even number of columns, not %zu",
                        c->width / c->heads);
    if (c->theta != 0 && !(c->theta >= 1 && c->theta <= 1e12))
        return gsi_fail(error, GS_ERANGE, "theta of rotary positions is 1 to 1e12, not %g",
                        c->theta);
    if (!(c->dropout >= 0 && c->dropout < 1))
        return gsi_fail(error, GS_ERANGE, "dropout is 0 to below 1, not %g", (double)c->dropout);
    const size_t most = (size_t)1 << 31; /* of each: far from where products overflow */
    if (c->vocabulary > most || c->context > most || c->width > most / 4 || c->layers > 1 << 20 ||
        c->mlp_width > most || (c->rotary && c->context > 1 << 24))
        return gsi_fail(error, GS_ESIZE, "a gpt of this size is too large");
    return GS_OK;
}

static void set_defaults(gs_gpt_config *c)
{
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->mlp_width == 0)
        c->mlp_width = c->swiglu ? gsi_ceil_div(8 * c->width, 96) * 32 : 4 * c->width;
    if (c->theta == 0)
        c->theta = 10000;
}

gs_status gs_gpt_create(gs_model **out, gs_context *ctx, const gs_gpt_config *config)
{
    if (!out || !ctx || !config)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_gpt_config c;
    gs_status status = gsi_config(&c, sizeof c, config, "gs_gpt_config", &ctx->error);
    if (status == GS_OK)
        status = check_sizes(&c, &ctx->error);
    if (status != GS_OK)
        return status;
    set_defaults(&c);
    enum { OTHERS = 5 };
    const size_t d = c.width / c.heads;
    const uint64_t extra = (uint64_t)c.context * (c.rotary ? d : 1) * sizeof(float);
    if (extra > SIZE_MAX / 2) /* uncovered: fits where size_t has 64 bits, by check_sizes */
        return gsi_fail(&ctx->error, GS_ESIZE, "a gpt of this size is too large");
    gpt *m =
        gsi_model_new(ctx, sizeof *m + (size_t)extra, OTHERS + GSI_BLOCK_WEIGHTS * c.layers, 0);
    if (!m)
        return GS_ENOMEM;
    m->base.logits = logits;
    m->base.next = next;
    m->base.kv_layers = c.layers;
    m->base.kv_heads = c.kv_heads;
    m->base.kv_width = d;
    m->base.context = c.context;
    m->config = c;
    m->names = c.rotary && c.rms && c.swiglu ? &llama : &gpt2;
    float *angles = c.rotary ? (float *)(void *)(m + 1) : NULL;
    m->positions = c.rotary ? NULL : (int32_t *)(void *)(m + 1);
    for (size_t i = 0; !c.rotary && i < c.context; i++)
        m->positions[i] = (int32_t)i;
    if (c.rotary)
        gs_rotary_fill(angles, c.context, d, c.theta);
    m->blocks = blocks_of(&c, m->names, angles);
    add_weights(m);
    const double head = 6 * (double)c.vocabulary * (double)c.width;
    m->base.flops = gsi_transformer_flops(&m->blocks, (double)c.context) + (double)c.context * head;
    *out = &m->base;
    return GS_OK;
}
