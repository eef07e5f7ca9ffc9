/* Blocks of a transformer: see transformer.h. */
#include "train/transformer.h"

#include <stdio.h>

/* ---- forward ---- */

gs_value *gsi_transformer_norm(const gsi_transformer *b, gs_tape *t, gs_value *x,
                               const gs_weight *w)
{
    gs_tape_set_layer(t, w[0].name);
    return b->rms ? gs_rmsnorm(t, x, gs_param(t, &w[0]))
                  : gs_layernorm_eps(t, x, gs_param(t, &w[0]), gs_param(t, &w[1]), b->eps);
}

static gs_value *linear(const gsi_transformer *b, gs_tape *t, gs_value *x, const gs_weight *w)
{
    gs_tape_set_layer(t, w[0].name);
    return gs_linear(t, x, gs_param(t, &w[0]), b->names->biases ? gs_param(t, &w[1]) : NULL);
}

/* Positions as angles, where they are that, of the first `heads` heads of x. */
static gs_value *turned(const gsi_transformer *b, gs_tape *t, gs_value *x, size_t heads,
                        size_t past)
{
    return b->angles ? gs_rotary(t, x, heads, b->width / b->heads, b->angles, past) : x;
}

/* kv NULL: x is all of its text. */
static gs_value *attend(const gsi_transformer *b, gs_tape *t, gs_value *x, const gs_weight *w,
                        gs_kv *kv)
{
    const size_t heads = b->heads, kv_heads = b->kv_heads, past = kv ? kv->n : 0;
    const bool fused = !b->names->k;
    gs_value *k = fused ? NULL : linear(b, t, x, w + b->k);
    gs_value *v = fused ? NULL : linear(b, t, x, w + b->v);
    gs_value *q = linear(b, t, x, w + b->q);
    q = turned(b, t, q, fused ? heads + kv_heads : heads, past);
    k = fused ? NULL : turned(b, t, k, kv_heads, past);
    x = kv            ? gs_attention_next(t, q, k, v, heads, kv_heads, kv)
        : b->unmasked ? gs_attention_unmasked(t, q, k, v, heads, kv_heads)
                      : gs_attention_grouped(t, q, k, v, heads, kv_heads);
    return gs_dropout(t, linear(b, t, x, w + b->proj), b->dropout);
}

static gs_value *feed_forward(const gsi_transformer *b, gs_tape *t, gs_value *x, const gs_weight *w)
{
    gs_value *y = linear(b, t, x, w + b->fc);
    if (b->swiglu)
        y = gs_mul(t, gs_silu(t, linear(b, t, x, w + b->gate)), y);
    else
        y = b->exact ? gs_gelu_erf(t, y) : gs_gelu(t, y);
    return gs_dropout(t, linear(b, t, y, w + b->mlp_proj), b->dropout);
}

typedef struct part {
    const gsi_transformer *b;
    const gs_weight *w;
    gs_kv *kv;
} part;

static gs_value *run_block(const void *args, gs_tape *t, gs_value *x)
{
    const part *p = args;
    const gsi_transformer *b = p->b;
    const gs_weight *w = p->w;
    x = gs_add(t, x, attend(b, t, gsi_transformer_norm(b, t, x, w + b->ln_1), w, p->kv));
    return gs_add(t, x, feed_forward(b, t, gsi_transformer_norm(b, t, x, w + b->ln_2), w));
}

gs_value *gsi_transformer_run(const gsi_transformer *b, gs_tape *t, gs_value *x, const gs_weight *w)
{
    part p = {b, w + b->first, NULL};
    for (size_t i = 0; i < b->layers; i++, p.w += b->per_block)
        x = gs_recompute(t, x, run_block, &p, sizeof p);
    return x;
}

gs_value *gsi_transformer_next(const gsi_transformer *b, gs_tape *t, gs_value *x,
                               const gs_weight *w, gs_kv *kv)
{
    part p = {b, w + b->first, kv};
    for (size_t i = 0; i < b->layers; i++, p.w += b->per_block, p.kv++)
        x = run_block(&p, t, x);
    return x;
}

/* ---- weights: add_* return where in the list a part begins ---- */

size_t gsi_transformer_add_norm(const gsi_transformer *b, void *model, const char *name)
{
    const size_t at = ((const gs_model *)model)->n;
    gsi_model_add(model, 1, b->width, (gs_init){1, 0}, "%sweight", name);
    if (!b->rms)
        gsi_model_add(model, 1, b->width, (gs_init){0, 0}, "%sbias", name);
    return at;
}

static size_t add_norm(const gsi_transformer *b, void *model, size_t block, const char *name)
{
    char full[96];
    snprintf(full, sizeof full, "%s%zu.%s", b->names->block, block, name);
    return gsi_transformer_add_norm(b, model, full);
}

static size_t add_linear(const gsi_transformer *b, void *model, size_t block, const char *name,
                         size_t n, size_t k, float std)
{
    const size_t at = ((const gs_model *)model)->n;
    const gsi_block_names *s = b->names;
    gsi_model_add(model, n, k, (gs_init){0, std}, "%s%zu.%sweight", s->block, block, name);
    if (s->transposed)
        gsi_model_layout(model, (gs_layout){.transposed = 1});
    if (s->biases)
        gsi_model_add(model, 1, n, (gs_init){0, 0}, "%s%zu.%sbias", s->block, block, name);
    return at;
}

static void add_block(gsi_transformer *b, void *model, size_t i)
{
    const gsi_block_names *s = b->names;
    const gsi_block_std *std = &b->std;
    const size_t width = b->width, kv = b->kv_heads * (width / b->heads), hidden = b->mlp_width;
    const size_t start = ((const gs_model *)model)->n;
    b->ln_1 = add_norm(b, model, i, s->ln_1) - start;
    b->q = add_linear(b, model, i, s->q, s->k ? width : width + 2 * kv, width, std->q) - start;
    if (s->k) {
        b->k = add_linear(b, model, i, s->k, kv, width, std->q) - start;
        b->v = add_linear(b, model, i, s->v, kv, width, std->q) - start;
    }
    b->proj = add_linear(b, model, i, s->proj, width, width, std->proj) - start;
    b->ln_2 = add_norm(b, model, i, s->ln_2) - start;
    if (b->swiglu)
        b->gate = add_linear(b, model, i, s->gate, hidden, width, std->fc) - start;
    b->fc = add_linear(b, model, i, s->fc, hidden, width, std->fc) - start;
    b->mlp_proj = add_linear(b, model, i, s->mlp_proj, width, hidden, std->mlp_proj) - start;
    b->per_block = ((const gs_model *)model)->n - start;
}

void gsi_transformer_add(gsi_transformer *b, void *model)
{
    b->first = ((const gs_model *)model)->n;
    for (size_t i = 0; i < b->layers; i++)
        add_block(b, model, i);
}

double gsi_transformer_flops(const gsi_transformer *b, double time)
{
    const double l = (double)b->layers, w = (double)b->width;
    const double attention = 2 * w * (w + (double)(b->kv_heads * (b->width / b->heads)));
    const double mlp = (b->swiglu ? 3 : 2) * w * (double)b->mlp_width;
    return time * (6 * l * (attention + mlp) + 12 * l * time * w);
}
