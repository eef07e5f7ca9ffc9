/* GPT-2 (Radford et al. 2019): x + attention(norm(x)), x + mlp(norm(x)), and the head is the
 * embedding. */
#include "train/infer.h"

#include <math.h>
#include <stdio.h>

typedef struct gpt {
    gs_model base;
    gs_gpt_config config;
    int32_t positions[]; /* 0, 1, ... context - 1 */
} gpt;

/* The weights in their order: two embeddings, the blocks, the last norm. */
enum { WTE, WPE, BLOCKS };
enum { LN_1, C_ATTN = 2, ATTN_PROJ = 4, LN_2 = 6, C_FC = 8, MLP_PROJ = 10, PER_BLOCK = 12 };

static gs_value *norm(gs_tape *t, gs_value *x, const gs_weight *w)
{
    gs_tape_set_layer(t, w[0].name);
    return gs_layernorm(t, x, gs_param(t, &w[0]), gs_param(t, &w[1]));
}

static gs_value *linear(gs_tape *t, gs_value *x, const gs_weight *w)
{
    gs_tape_set_layer(t, w[0].name);
    return gs_linear(t, x, gs_param(t, &w[0]), gs_param(t, &w[1]));
}

/* kv NULL: x is all of its text. */
static gs_value *attend(const gpt *m, gs_tape *t, gs_value *x, const gs_weight *w, gs_kv *kv)
{
    x = linear(t, x, w + C_ATTN);
    x = kv ? gs_attention_next(t, x, m->config.heads, kv) : gs_attention(t, x, m->config.heads);
    return gs_dropout(t, linear(t, x, w + ATTN_PROJ), m->config.dropout);
}

static gs_value *feed_forward(const gpt *m, gs_tape *t, gs_value *x, const gs_weight *w)
{
    x = gs_gelu(t, linear(t, x, w + C_FC));
    return gs_dropout(t, linear(t, x, w + MLP_PROJ), m->config.dropout);
}

typedef struct part {
    const gpt *m;
    const gs_weight *w;
    gs_kv *kv;
} part;

static gs_value *run_block(const void *args, gs_tape *t, gs_value *x)
{
    const part *b = args;
    const gpt *m = b->m;
    const gs_weight *w = b->w;
    x = gs_add(t, x, attend(m, t, norm(t, x, w + LN_1), w, b->kv));
    return gs_add(t, x, feed_forward(m, t, norm(t, x, w + LN_2), w));
}

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
    x = gs_add(t, x, gs_embedding(t, gs_param(t, &w[WPE]), m->positions, batch->time));
    x = gs_dropout(t, x, c->dropout);
    part b = {m, w + BLOCKS, NULL};
    for (size_t i = 0; i < c->layers; i++, b.w += PER_BLOCK)
        x = gs_recompute(t, x, run_block, &b, sizeof b);
    x = norm(t, x, b.w);
    gs_tape_set_layer(t, "lm_head");
    return gs_linear(t, x, gs_param(t, &w[WTE]), NULL);
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
    x = gs_add(t, x, gs_embedding(t, gs_param(t, &w[WPE]), m->positions + past, n));
    x = gs_reshape(t, x, 3, (const size_t[]){1, n, size});
    part b = {m, w + BLOCKS, cache->layers};
    for (size_t i = 0; i < c->layers; i++, b.w += PER_BLOCK, b.kv++)
        x = run_block(&b, t, x);
    if (gs_tape_status(t) != GS_OK)
        return x;
    x = gs_input(t, x->dtype, 3, (const size_t[]){1, 1, size},
                 gsi_at(x->data, x->dtype, (n - 1) * size));
    return gs_linear(t, norm(t, x, b.w), gs_param(t, &w[WTE]), NULL);
}

/* ---- weights ---- */

static void add_norm(gpt *m, const char *name)
{
    gsi_model_add(m, 1, m->config.width, (gs_init){1, 0}, "%s.weight", name);
    gsi_model_add(m, 1, m->config.width, (gs_init){0, 0}, "%s.bias", name);
}

static void add_linear(gpt *m, size_t block, const char *name, size_t n, size_t k, float std)
{
    gsi_model_add(m, n, k, (gs_init){0, std}, "transformer.h.%zu.%s.weight", block, name);
    gsi_model_layout(m, (gs_layout){.transposed = 1});
    gsi_model_add(m, 1, n, (gs_init){0, 0}, "transformer.h.%zu.%s.bias", block, name);
}

static void add_weights(gpt *m)
{
    const gs_gpt_config *c = &m->config;
    const size_t width = c->width;
    const float std = 0.02f, residual = std / sqrtf(2 * (float)c->layers);
    char name[48];
    gsi_model_add(m, c->vocabulary, width, (gs_init){0, std}, "transformer.wte.weight");
    gsi_model_add(m, c->context, width, (gs_init){0, std}, "transformer.wpe.weight");
    for (size_t i = 0; i < c->layers; i++) {
        snprintf(name, sizeof name, "transformer.h.%zu.ln_1", i);
        add_norm(m, name);
        add_linear(m, i, "attn.c_attn", 3 * width, width, std);
        add_linear(m, i, "attn.c_proj", width, width, residual);
        snprintf(name, sizeof name, "transformer.h.%zu.ln_2", i);
        add_norm(m, name);
        add_linear(m, i, "mlp.c_fc", 4 * width, width, std);
        add_linear(m, i, "mlp.c_proj", width, 4 * width, residual);
    }
    add_norm(m, "transformer.ln_f");
}

/* Products of a step, forward and twice that backward; the whole of the attention's square is
 * counted, as everybody does. */
static double flops_of(const gs_gpt_config *c)
{
    const double l = (double)c->layers, w = (double)c->width, time = (double)c->context;
    return time * (6 * (12 * l * w * w + (double)c->vocabulary * w) + 12 * l * time * w);
}

gs_status gs_gpt_create(gs_model **out, gs_context *ctx, const gs_gpt_config *config)
{
    if (!out || !ctx || !config)
        return GS_ENULL;
    *out = NULL;
    gs_gpt_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_gpt_config", &ctx->error);
    if (status != GS_OK)
        return status;
    config = &today;
    const gs_gpt_config *c = config;
    if (c->vocabulary < 2 || c->context < 2 || c->layers < 1 || c->width < 2)
        return gsi_fail(&ctx->error, GS_ERANGE,
                        "a gpt has 2 or more words, positions and columns, and a layer, not "
                        "%zu, %zu, %zu and %zu",
                        c->vocabulary, c->context, c->width, c->layers);
    if (c->heads < 1 || c->width % c->heads != 0)
        return gsi_fail(&ctx->error, GS_ERANGE, "a width of %zu cannot be shared by %zu heads",
                        c->width, c->heads);
    if (!(c->dropout >= 0 && c->dropout < 1))
        return gsi_fail(&ctx->error, GS_ERANGE, "dropout is 0 to below 1, not %g",
                        (double)c->dropout);
    const size_t most = (size_t)1 << 31; /* of each: far from where products overflow */
    if (c->vocabulary > most || c->context > most || c->width > most / 4 || c->layers > 1 << 20)
        return gsi_fail(&ctx->error, GS_ESIZE, "a gpt of this size is too large");
    const size_t entries = BLOCKS + PER_BLOCK * c->layers + 2;
    gpt *m = gsi_model_new(ctx, sizeof *m + c->context * sizeof *m->positions, entries, 0);
    if (!m)
        return GS_ENOMEM;
    m->base.logits = logits;
    m->base.next = next;
    m->base.kv_layers = c->layers;
    m->base.kv_heads = c->heads;
    m->base.kv_width = c->width / c->heads;
    m->base.context = c->context;
    m->base.flops = flops_of(c);
    m->config = *c;
    for (size_t i = 0; i < c->context; i++)
        m->positions[i] = (int32_t)i;
    add_weights(m);
    *out = &m->base;
    return GS_OK;
}
