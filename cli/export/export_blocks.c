/* Models that are made of blocks of a transformer, as graphs of ONNX. */
#include "cli/export/walk.h"

#include <math.h>

/* ---- blocks ---- */

static const char *norm(walk *w, const char *x, float eps)
{
    const char *gamma = walk_weight(w), *beta = walk_weight(w);
    onnx_int(w->g, "axis", -1);
    onnx_real(w->g, "epsilon", eps);
    return onnx_node(w->g, "LayerNormalization", x, gamma, beta, NULL);
}

/* x [n, time, in] times a matrix, and a bias: GPT-2's are [in, out], others are turned. */
static const char *product(walk *w, const char *x)
{
    const bool turn = !w->u->model->layouts[w->weight].transposed;
    const char *a = walk_matrix(w, &x), *b = walk_weight(w);
    if (turn) {
        onnx_ints(w->g, "perm", (const int64_t[]){1, 0}, 2);
        a = onnx_node(w->g, "Transpose", a, NULL);
    }
    return onnx_node(w->g, "Add", onnx_node(w->g, "MatMul", x, a, NULL), b, NULL);
}

static const char *to_heads(walk *w, const char *x, const char *shape, const int64_t order[4])
{
    x = onnx_node(w->g, "Reshape", x, shape, NULL);
    onnx_ints(w->g, "perm", order, 4);
    return onnx_node(w->g, "Transpose", x, NULL);
}

/* mask NULL: there is none. */
static const char *attention(walk *w, const char *x, const char *mask)
{
    onnx *g = w->g;
    const int64_t heads = (int64_t)w->u->o.heads, d = (int64_t)w->u->o.width / heads;
    const int64_t straight[] = {0, 2, 1, 3}, turned[] = {0, 2, 3, 1};
    const char *qkv[3], *shape = onnx_sizes(g, (const int64_t[]){0, 0, heads, d}, 4);
    x = product(w, x);
    onnx_int(g, "axis", -1);
    onnx_split(g, "Split", x, qkv, 3);
    const char *q = to_heads(w, qkv[0], shape, straight), *k = to_heads(w, qkv[1], shape, turned);
    const char *v = to_heads(w, qkv[2], shape, straight);
    const char *s = onnx_node(g, "MatMul", q, k, NULL);
    s = onnx_node(g, "Mul", s, onnx_number(g, 1 / sqrtf((float)d)), NULL);
    if (mask)
        s = onnx_node(g, "Add", s, mask, NULL);
    onnx_int(g, "axis", -1);
    const char *p = onnx_node(g, "Softmax", s, NULL), *o = onnx_node(g, "MatMul", p, v, NULL);
    onnx_ints(g, "perm", straight, 4);
    o = onnx_node(g, "Transpose", o, NULL);
    shape = onnx_sizes(g, (const int64_t[]){0, 0, heads * d}, 3);
    return product(w, onnx_node(g, "Reshape", o, shape, NULL));
}

/* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
static const char *gelu_tanh(walk *w, const char *x)
{
    onnx *g = w->g;
    const char *cube = onnx_node(g, "Mul", onnx_node(g, "Mul", x, x, NULL), x, NULL);
    const char *y = onnx_node(g, "Mul", cube, onnx_number(g, 0.044715f), NULL);
    y = onnx_node(g, "Mul", onnx_node(g, "Add", x, y, NULL), onnx_number(g, 0.7978845608f), NULL);
    y = onnx_node(g, "Add", onnx_node(g, "Tanh", y, NULL), onnx_number(g, 1), NULL);
    return onnx_node(g, "Mul", onnx_node(g, "Mul", x, onnx_number(g, 0.5f), NULL), y, NULL);
}

/* x / 2 (1 + erf(x / sqrt 2)) */
static const char *gelu_erf(walk *w, const char *x)
{
    onnx *g = w->g;
    const char *y = onnx_node(g, "Mul", x, onnx_number(g, 0x1.6a09e6p-1f), NULL);
    y = onnx_node(g, "Add", onnx_node(g, "Erf", y, NULL), onnx_number(g, 1), NULL);
    return onnx_node(g, "Mul", onnx_node(g, "Mul", x, onnx_number(g, 0.5f), NULL), y, NULL);
}

static const char *blocks(walk *w, const char *x, const char *mask, float eps,
                          const char *(*gelu)(walk *w, const char *x))
{
    onnx *g = w->g;
    for (uint64_t i = 0; i < w->u->o.layers; i++) {
        x = onnx_node(g, "Add", x, attention(w, norm(w, x, eps), mask), NULL);
        x = onnx_node(g, "Add", x, product(w, gelu(w, product(w, norm(w, x, eps)))), NULL);
    }
    return x;
}

/* ---- text ---- */

/* [time, time]: far below zero where a key comes after its query. */
static const char *causal_mask(walk *w, const char *time)
{
    onnx *g = w->g;
    onnx_int(g, "axis", 0);
    const char *shape = onnx_node(g, "Concat", time, time, NULL);
    const char *all = onnx_node(g, "Expand", onnx_number(g, -1e30f), shape, NULL);
    onnx_int(g, "upper", 1);
    return onnx_node(g, "Trilu", all, onnx_sizes(g, (const int64_t[]){1}, 0), NULL);
}

const char *walk_gpt(walk *w)
{
    onnx *g = w->g;
    onnx_input(g, "ids", ONNX_INT64, (const onnx_dim[]){{"n", 0}, {"time", 0}}, 2);
    const char *wte = walk_weight(w), *wpe = walk_weight(w);
    const char *zero = onnx_sizes(g, (const int64_t[]){0}, 0);
    const char *one = onnx_sizes(g, (const int64_t[]){1}, 0);
    const char *first = onnx_sizes(g, (const int64_t[]){1}, 1);
    const char *time =
        onnx_node(g, "Gather", onnx_node(g, "Shape", "ids", NULL), first, NULL); /* [1] */
    const char *positions =
        onnx_node(g, "Range", zero, onnx_node(g, "Squeeze", time, NULL), one, NULL);
    const char *mask = causal_mask(w, time);
    const char *x = onnx_node(g, "Add", onnx_node(g, "Gather", wte, "ids", NULL),
                              onnx_node(g, "Gather", wpe, positions, NULL), NULL);
    x = blocks(w, x, mask, 1e-5f, gelu_tanh);
    x = norm(w, x, 1e-5f);
    const bool tied = w->weight == w->u->model->n;
    if (tied)
        w->weight = 0; /* the embedding, of which a quantised head has integers */
    const char *head = tied && !w->u->quantized ? wte : walk_matrix(w, &x);
    onnx_ints(g, "perm", (const int64_t[]){1, 0}, 2);
    return onnx_node(g, "MatMul", x, onnx_node(g, "Transpose", head, NULL), NULL);
}

/* ---- images ---- */

const char *walk_vit(walk *w)
{
    onnx *g = w->g;
    const int64_t patch = (int64_t)w->u->o.patch, width = (int64_t)w->u->o.width;
    const char *token = walk_weight(w); /* [1, 1, width] */
    const char *x = walk_conv(w, walk_image(w), patch, patch, 0, true);
    x = onnx_node(g, "Reshape", x, onnx_sizes(g, (const int64_t[]){0, width, -1}, 3), NULL);
    onnx_ints(g, "perm", (const int64_t[]){0, 2, 1}, 3);
    x = onnx_node(g, "Transpose", x, NULL);
    /* the class token for each image: [n, 1, width] */
    const char *n = onnx_node(g, "Gather", onnx_node(g, "Shape", x, NULL),
                              onnx_sizes(g, (const int64_t[]){0}, 1), NULL);
    onnx_int(g, "axis", 0);
    n = onnx_node(g, "Concat", n, onnx_sizes(g, (const int64_t[]){1, width}, 2), NULL);
    token = onnx_node(g, "Expand", token, n, NULL);
    onnx_int(g, "axis", 1);
    x = onnx_node(g, "Concat", token, x, NULL);
    x = onnx_node(g, "Add", x, walk_weight(w), NULL);
    x = blocks(w, x, NULL, 1e-6f, gelu_erf);
    onnx_int(g, "axis", 1);
    x = onnx_node(g, "Gather", x, onnx_sizes(g, (const int64_t[]){0}, 0), NULL);
    return walk_linear(w, norm(w, x, 1e-6f));
}
