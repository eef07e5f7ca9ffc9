/* GPT-2 (Radford et al. 2019): x + attention(norm(x)), x + mlp(norm(x)), and the head is the
 * embedding. Options make of it what Llama is (Touvron et al. 2023): the same blocks of other
 * parts. */
#include "train/infer.h"

#include <math.h>
#include <stdio.h>

/* The weights by name: those of GPT-2, and of Llama. k and v NULL: q holds all three. */
typedef struct names {
    const char *wte, *wpe, *block, *ln_1, *q, *k, *v, *proj, *ln_2, *gate, *fc, *mlp_proj, *ln_f;
    bool transposed, biases; /* of matrices: in files, see gs_layout; there are some */
} names;
static const names gpt2 = {.wte = "transformer.wte",
                           .wpe = "transformer.wpe",
                           .block = "transformer.h",
                           .ln_1 = "ln_1",
                           .q = "attn.c_attn",
                           .proj = "attn.c_proj",
                           .ln_2 = "ln_2",
                           .gate = "mlp.c_gate",
                           .fc = "mlp.c_fc",
                           .mlp_proj = "mlp.c_proj",
                           .ln_f = "transformer.ln_f",
                           .transposed = true,
                           .biases = true};
static const names llama = {.wte = "model.embed_tokens",
                            .block = "model.layers",
                            .ln_1 = "input_layernorm",
                            .q = "self_attn.q_proj",
                            .k = "self_attn.k_proj",
                            .v = "self_attn.v_proj",
                            .proj = "self_attn.o_proj",
                            .ln_2 = "post_attention_layernorm",
                            .gate = "mlp.gate_proj",
                            .fc = "mlp.up_proj",
                            .mlp_proj = "mlp.down_proj",
                            .ln_f = "model.norm"};

/* The weights in their order: one or two embeddings, the blocks, the last norm, the head's own.
 * Inside of a block, where each begins. */
typedef struct places {
    size_t blocks, ln_f, head; /* head 0: the embedding */
    size_t ln_1, q, k, v, proj, ln_2, gate, fc, mlp_proj, per_block;
} places;
enum { WTE, WPE };

typedef struct gpt {
    gs_model base;
    gs_gpt_config config;
    const names *names;
    places at;
    size_t d;           /* columns of a head */
    int32_t *positions; /* 0, 1, ... context - 1; NULL: rotary */
    float *angles;      /* [context, d]; NULL: not rotary */
} gpt;

static gs_value *norm(const gpt *m, gs_tape *t, gs_value *x, const gs_weight *w)
{
    gs_tape_set_layer(t, w[0].name);
    return m->config.rms ? gs_rmsnorm(t, x, gs_param(t, &w[0]))
                         : gs_layernorm(t, x, gs_param(t, &w[0]), gs_param(t, &w[1]));
}

static gs_value *linear(const gpt *m, gs_tape *t, gs_value *x, const gs_weight *w)
{
    gs_tape_set_layer(t, w[0].name);
    return gs_linear(t, x, gs_param(t, &w[0]), m->names->biases ? gs_param(t, &w[1]) : NULL);
}

/* Positions as angles, where they are that, of the first `heads` heads of x. */
static gs_value *turned(const gpt *m, gs_tape *t, gs_value *x, size_t heads, size_t past)
{
    return m->angles ? gs_rotary(t, x, heads, m->d, m->angles, past) : x;
}

/* kv NULL: x is all of its text. */
static gs_value *attend(const gpt *m, gs_tape *t, gs_value *x, const gs_weight *w, gs_kv *kv)
{
    const size_t heads = m->config.heads, kv_heads = m->config.kv_heads, past = kv ? kv->n : 0;
    const bool fused = !m->names->k;
    gs_value *k = fused ? NULL : linear(m, t, x, w + m->at.k);
    gs_value *v = fused ? NULL : linear(m, t, x, w + m->at.v);
    gs_value *q = linear(m, t, x, w + m->at.q);
    q = turned(m, t, q, fused ? heads + kv_heads : heads, past);
    k = fused ? NULL : turned(m, t, k, kv_heads, past);
    x = kv ? gs_attention_next(t, q, k, v, heads, kv_heads, kv)
           : gs_attention_grouped(t, q, k, v, heads, kv_heads);
    return gs_dropout(t, linear(m, t, x, w + m->at.proj), m->config.dropout);
}

static gs_value *feed_forward(const gpt *m, gs_tape *t, gs_value *x, const gs_weight *w)
{
    gs_value *y = linear(m, t, x, w + m->at.fc);
    if (m->config.swiglu)
        y = gs_mul(t, gs_silu(t, linear(m, t, x, w + m->at.gate)), y);
    else
        y = gs_gelu(t, y);
    return gs_dropout(t, linear(m, t, y, w + m->at.mlp_proj), m->config.dropout);
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
    x = gs_add(t, x, attend(m, t, norm(m, t, x, w + m->at.ln_1), w, b->kv));
    return gs_add(t, x, feed_forward(m, t, norm(m, t, x, w + m->at.ln_2), w));
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
    if (m->positions)
        x = gs_add(t, x, gs_embedding(t, gs_param(t, &w[WPE]), m->positions, batch->time));
    x = gs_dropout(t, x, c->dropout);
    part b = {m, w + m->at.blocks, NULL};
    for (size_t i = 0; i < c->layers; i++, b.w += m->at.per_block)
        x = gs_recompute(t, x, run_block, &b, sizeof b);
    x = norm(m, t, x, w + m->at.ln_f);
    gs_tape_set_layer(t, "lm_head");
    return gs_linear(t, x, gs_param(t, &w[m->at.head]), NULL);
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
    part b = {m, w + m->at.blocks, cache->layers};
    for (size_t i = 0; i < c->layers; i++, b.w += m->at.per_block, b.kv++)
        x = run_block(&b, t, x);
    if (gs_tape_status(t) != GS_OK)
        return x;
    x = gs_input(t, x->dtype, 3, (const size_t[]){1, 1, size},
                 gsi_at(x->data, x->dtype, (n - 1) * size));
    return gs_linear(t, norm(m, t, x, w + m->at.ln_f), gs_param(t, &w[m->at.head]), NULL);
}

/* ---- weights: add_* return where in the list a part begins ---- */

static size_t add_norm(gpt *m, const char *name)
{
    const size_t at = m->base.n;
    gsi_model_add(m, 1, m->config.width, (gs_init){1, 0}, "%s.weight", name);
    if (!m->config.rms)
        gsi_model_add(m, 1, m->config.width, (gs_init){0, 0}, "%s.bias", name);
    return at;
}

static size_t add_linear(gpt *m, size_t block, const char *name, size_t n, size_t k, float std)
{
    const size_t at = m->base.n;
    gsi_model_add(m, n, k, (gs_init){0, std}, "%s.%zu.%s.weight", m->names->block, block, name);
    if (m->names->transposed)
        gsi_model_layout(m, (gs_layout){.transposed = 1});
    if (m->names->biases)
        gsi_model_add(m, 1, n, (gs_init){0, 0}, "%s.%zu.%s.bias", m->names->block, block, name);
    return at;
}

static places add_block(gpt *m, size_t i)
{
    const names *s = m->names;
    const size_t width = m->config.width, kv = m->config.kv_heads * m->d;
    const size_t hidden = m->config.mlp_width, start = m->base.n;
    const float std = 0.02f, residual = std / sqrtf(2 * (float)m->config.layers);
    places at = {0};
    char name[64];
    snprintf(name, sizeof name, "%s.%zu.%s", s->block, i, s->ln_1);
    at.ln_1 = add_norm(m, name) - start;
    at.q = add_linear(m, i, s->q, s->k ? width : width + 2 * kv, width, std) - start;
    if (s->k) {
        at.k = add_linear(m, i, s->k, kv, width, std) - start;
        at.v = add_linear(m, i, s->v, kv, width, std) - start;
    }
    at.proj = add_linear(m, i, s->proj, width, width, residual) - start;
    snprintf(name, sizeof name, "%s.%zu.%s", s->block, i, s->ln_2);
    at.ln_2 = add_norm(m, name) - start;
    if (m->config.swiglu)
        at.gate = add_linear(m, i, s->gate, hidden, width, std) - start;
    at.fc = add_linear(m, i, s->fc, hidden, width, std) - start;
    at.mlp_proj = add_linear(m, i, s->mlp_proj, width, hidden, residual) - start;
    at.per_block = m->base.n - start;
    return at;
}

static void add_weights(gpt *m)
{
    const gs_gpt_config *c = &m->config;
    const gs_init init = {0, 0.02f};
    gsi_model_add(m, c->vocabulary, c->width, init, "%s.weight", m->names->wte);
    if (!c->rotary)
        gsi_model_add(m, c->context, c->width, init, "%s.weight", m->names->wpe);
    const size_t blocks = m->base.n;
    for (size_t i = 0; i < c->layers; i++)
        m->at = add_block(m, i);
    m->at.blocks = blocks;
    m->at.ln_f = add_norm(m, m->names->ln_f);
    m->at.head = c->untied ? m->base.n : WTE;
    if (c->untied)
        gsi_model_add(m, c->vocabulary, c->width, init, "lm_head.weight");
}

/* Products of a step, forward and twice that backward; the whole of the attention's square is
 * counted, as everybody does. */
static double flops_of(const gpt *m)
{
    const gs_gpt_config *c = &m->config;
    const double l = (double)c->layers, w = (double)c->width, time = (double)c->context;
    const double attention = 2 * w * (w + (double)(c->kv_heads * m->d));
    const double mlp = (c->swiglu ? 3 : 2) * w * (double)c->mlp_width;
    return time * (6 * (l * (attention + mlp) + (double)c->vocabulary * w) + 12 * l * time * w);
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
    enum { MOST_OF_BLOCK = 14, OTHERS = 5 };
    const size_t d = c.width / c.heads;
    size_t extra, bytes;
    gpt *m = NULL;
    if (!gsi_mul_size(&extra, c.context, c.rotary ? d : 1) ||
        !gsi_mul_size(&extra, extra, sizeof(float)) || !gsi_add_size(&bytes, extra, sizeof *m))
        return gsi_fail(&ctx->error, GS_ESIZE, "a gpt of this size is too large");
    m = gsi_model_new(ctx, bytes, OTHERS + MOST_OF_BLOCK * c.layers, 0);
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
    m->d = d;
    m->positions = c.rotary ? NULL : (int32_t *)(void *)(m + 1);
    m->angles = c.rotary ? (float *)(void *)(m + 1) : NULL;
    for (size_t i = 0; !c.rotary && i < c.context; i++)
        m->positions[i] = (int32_t)i;
    if (c.rotary)
        gs_rotary_fill(m->angles, c.context, d, c.theta);
    add_weights(m);
    m->base.flops = flops_of(m);
    *out = &m->base;
    return GS_OK;
}
