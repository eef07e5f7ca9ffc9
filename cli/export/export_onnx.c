/* The models as graphs of ONNX, in f32.
 *
 *     images  input "image" [n, channels, height, width], values as the files of images hold them:
 *             the normalisation is part of the graph
 *     text    input "ids" [n, time], int64
 *     output  "logits" [n, classes], [n, classes, height, width] or [n, time, vocabulary]
 */
#include "cli/core/html.h"
#include "cli/export/export.h"
#include "cli/export/onnx.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct walk {
    onnx *g;
    const use_model *u;
    size_t weight, state; /* the next of each list of the model */
    float *at;            /* of state */
} walk;

/* The next weight of the model, as PyTorch or Hugging Face have it. */
static const char *weight(walk *w)
{
    const size_t i = w->weight++;
    const char *name = w->u->model->entries[i].name;
    size_t shape[4];
    int rank;
    const size_t count = w->u->model->entries[i].rows * w->u->model->entries[i].cols;
    float *data = cli_resize(NULL, count * sizeof *data);
    if (gs_infer_weight(data, &rank, shape, w->u->infer, i) != GS_OK) {
        cli_failed("out of memory");
        exit(CLI_FAILED);
    }
    onnx_weight(w->g, name, data, shape, rank);
    free(data);
    return name;
}

static const char *state(walk *w)
{
    const gs_state_entry *e = &w->u->model->state_entries[w->state++];
    onnx_weight(w->g, e->name, w->at, &e->count, 1);
    w->at += e->count;
    return e->name;
}

/* ---- images ---- */

/* (x - mean) * inverse_std */
static const char *image(walk *w)
{
    const gs_data_info *info = w->u->info;
    const size_t shape[] = {1, info->channels, 1, 1};
    onnx_input(w->g, "image", ONNX_FLOAT,
               (const onnx_dim[]){
                   {"n", 0}, {NULL, info->channels}, {NULL, info->height}, {NULL, info->width}},
               4);
    if (!info->mean)
        return "image";
    float *row = cli_resize(NULL, info->channels * sizeof *row);
    for (size_t c = 0; c < info->channels; c++)
        row[c] = (float)info->mean[c];
    onnx_weight(w->g, "mean", row, shape, 4);
    for (size_t c = 0; c < info->channels; c++)
        row[c] = (float)info->inverse_std[c];
    onnx_weight(w->g, "inverse_std", row, shape, 4);
    free(row);
    return onnx_node(w->g, "Mul", onnx_node(w->g, "Sub", "image", "mean", NULL), "inverse_std",
                     NULL);
}

static const char *linear(walk *w, const char *x)
{
    const char *a = weight(w), *b = weight(w);
    onnx_int(w->g, "transB", 1);
    return onnx_node(w->g, "Gemm", x, a, b, NULL);
}

static const char *conv(walk *w, const char *x, int64_t kernel, int64_t stride, bool bias)
{
    const int64_t pad = kernel / 2, pads[] = {pad, pad, pad, pad};
    const char *filter = weight(w), *b = bias ? weight(w) : NULL;
    onnx_ints(w->g, "kernel_shape", (const int64_t[]){kernel, kernel}, 2);
    onnx_ints(w->g, "strides", (const int64_t[]){stride, stride}, 2);
    onnx_ints(w->g, "pads", pads, 4);
    return onnx_node(w->g, "Conv", x, filter, b, NULL);
}

static const char *conv_norm(walk *w, const char *x, int64_t kernel, int64_t stride)
{
    x = conv(w, x, kernel, stride, false);
    const char *gamma = weight(w), *beta = weight(w), *mean = state(w), *var = state(w);
    onnx_real(w->g, "epsilon", 1e-5f);
    return onnx_node(w->g, "BatchNormalization", x, gamma, beta, mean, var, NULL);
}

static const char *relu(walk *w, const char *x) { return onnx_node(w->g, "Relu", x, NULL); }

static const char *mlp(walk *w)
{
    const char *x = image(w);
    onnx_ints(w->g, "perm", (const int64_t[]){0, 2, 3, 1},
              4); /* channels last, as it was trained */
    x = onnx_node(w->g, "Flatten", onnx_node(w->g, "Transpose", x, NULL), NULL);
    while (w->weight + 2 < w->u->model->n)
        x = relu(w, linear(w, x));
    return linear(w, x);
}

static const char *cnn(walk *w)
{
    const char *x = image(w);
    for (int i = 0; i < 3; i++) {
        x = relu(w, conv_norm(w, x, 3, 1));
        onnx_ints(w->g, "kernel_shape", (const int64_t[]){2, 2}, 2);
        onnx_ints(w->g, "strides", (const int64_t[]){2, 2}, 2);
        x = onnx_node(w->g, "MaxPool", x, NULL);
    }
    return linear(w, onnx_node(w->g, "Flatten", x, NULL));
}

static const char *block(walk *w, const char *x, int64_t stride)
{
    const char *y = conv_norm(w, relu(w, conv_norm(w, x, 3, stride)), 3, 1);
    if (stride > 1)
        x = conv_norm(w, x, 1, stride);
    return relu(w, onnx_node(w->g, "Add", y, x, NULL));
}

static const char *resnet(walk *w)
{
    const char *x = relu(w, conv_norm(w, image(w), 3, 1));
    for (int stage = 0; stage < 3; stage++)
        for (int i = 0; i < 2; i++)
            x = block(w, x, stage > 0 && i == 0 ? 2 : 1);
    x = onnx_node(w->g, "GlobalAveragePool", x, NULL);
    return linear(w, onnx_node(w->g, "Flatten", x, NULL));
}

/* ResNet-18 and ResNet-50: see src/train/model_resnet.c. */
static const char *torch_block(walk *w, const char *x, bool wide, int64_t stride, bool projected)
{
    const char *y = conv_norm(w, x, wide ? 1 : 3, wide ? 1 : stride);
    y = conv_norm(w, relu(w, y), 3, wide ? stride : 1);
    if (wide)
        y = conv_norm(w, relu(w, y), 1, 1);
    if (projected)
        x = conv_norm(w, x, 1, stride);
    return relu(w, onnx_node(w->g, "Add", y, x, NULL));
}

static const char *torch_resnet(walk *w, const int blocks[4], bool wide)
{
    const char *x = relu(w, conv_norm(w, image(w), 7, 2));
    onnx_ints(w->g, "kernel_shape", (const int64_t[]){3, 3}, 2);
    onnx_ints(w->g, "strides", (const int64_t[]){2, 2}, 2);
    onnx_ints(w->g, "pads", (const int64_t[]){1, 1, 1, 1}, 4);
    x = onnx_node(w->g, "MaxPool", x, NULL);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < blocks[stage]; i++)
            x = torch_block(w, x, wide, stage > 0 && i == 0 ? 2 : 1, i == 0 && (stage > 0 || wide));
    x = onnx_node(w->g, "GlobalAveragePool", x, NULL);
    return linear(w, onnx_node(w->g, "Flatten", x, NULL));
}

static const char *resnet18(walk *w) { return torch_resnet(w, (const int[]){2, 2, 2, 2}, false); }

static const char *resnet50(walk *w) { return torch_resnet(w, (const int[]){3, 4, 6, 3}, true); }

static const char *fcn(walk *w)
{
    const char *x = image(w);
    while (w->weight + 2 < w->u->model->n)
        x = relu(w, conv(w, x, 3, 1, true));
    return conv(w, x, 3, 1, true);
}

/* ---- text ---- */

static const char *norm(walk *w, const char *x)
{
    const char *gamma = weight(w), *beta = weight(w);
    onnx_int(w->g, "axis", -1);
    onnx_real(w->g, "epsilon", 1e-5f);
    return onnx_node(w->g, "LayerNormalization", x, gamma, beta, NULL);
}

/* GPT-2's Conv1D: the matrix is [in, out]. */
static const char *conv1d(walk *w, const char *x)
{
    const char *a = weight(w), *b = weight(w);
    return onnx_node(w->g, "Add", onnx_node(w->g, "MatMul", x, a, NULL), b, NULL);
}

static const char *to_heads(walk *w, const char *x, const char *shape, const int64_t order[4])
{
    x = onnx_node(w->g, "Reshape", x, shape, NULL);
    onnx_ints(w->g, "perm", order, 4);
    return onnx_node(w->g, "Transpose", x, NULL);
}

static const char *attention(walk *w, const char *x, const char *mask)
{
    onnx *g = w->g;
    const int64_t heads = (int64_t)w->u->model->kv_heads, d = (int64_t)w->u->model->kv_width;
    const int64_t straight[] = {0, 2, 1, 3}, turned[] = {0, 2, 3, 1};
    const char *qkv[3], *shape = onnx_sizes(g, (const int64_t[]){0, 0, heads, d}, 4);
    x = conv1d(w, x);
    onnx_int(g, "axis", -1);
    onnx_split(g, "Split", x, qkv, 3);
    const char *q = to_heads(w, qkv[0], shape, straight), *k = to_heads(w, qkv[1], shape, turned);
    const char *v = to_heads(w, qkv[2], shape, straight);
    const char *s = onnx_node(g, "MatMul", q, k, NULL);
    s = onnx_node(g, "Mul", s, onnx_number(g, 1 / sqrtf((float)d)), NULL);
    s = onnx_node(g, "Add", s, mask, NULL);
    onnx_int(g, "axis", -1);
    const char *p = onnx_node(g, "Softmax", s, NULL), *o = onnx_node(g, "MatMul", p, v, NULL);
    onnx_ints(g, "perm", straight, 4);
    o = onnx_node(g, "Transpose", o, NULL);
    shape = onnx_sizes(g, (const int64_t[]){0, 0, heads * d}, 3);
    return conv1d(w, onnx_node(g, "Reshape", o, shape, NULL));
}

/* x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
static const char *gelu(walk *w, const char *x)
{
    onnx *g = w->g;
    const char *cube = onnx_node(g, "Mul", onnx_node(g, "Mul", x, x, NULL), x, NULL);
    const char *y = onnx_node(g, "Mul", cube, onnx_number(g, 0.044715f), NULL);
    y = onnx_node(g, "Mul", onnx_node(g, "Add", x, y, NULL), onnx_number(g, 0.7978845608f), NULL);
    y = onnx_node(g, "Add", onnx_node(g, "Tanh", y, NULL), onnx_number(g, 1), NULL);
    return onnx_node(g, "Mul", onnx_node(g, "Mul", x, onnx_number(g, 0.5f), NULL), y, NULL);
}

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

static const char *gpt(walk *w)
{
    onnx *g = w->g;
    onnx_input(g, "ids", ONNX_INT64, (const onnx_dim[]){{"n", 0}, {"time", 0}}, 2);
    const char *wte = weight(w), *wpe = weight(w);
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
    for (size_t i = 0; i < w->u->model->kv_layers; i++) {
        x = onnx_node(g, "Add", x, attention(w, norm(w, x), mask), NULL);
        x = onnx_node(g, "Add", x, conv1d(w, gelu(w, conv1d(w, norm(w, x)))), NULL);
    }
    x = norm(w, x);
    const char *head = w->weight < w->u->model->n ? weight(w) : wte; /* untied */
    onnx_ints(g, "perm", (const int64_t[]){1, 0}, 2);
    return onnx_node(g, "MatMul", x, onnx_node(g, "Transpose", head, NULL), NULL);
}

/* ---- the file ---- */

static const struct {
    const char *model;
    const char *(*build)(walk *w);
} graphs[] = {{"mlp", mlp}, {"cnn", cnn}, {"resnet", resnet},    {"resnet18", resnet18},
              {"fcn", fcn}, {"gpt", gpt}, {"resnet50", resnet50}};

static void write_graph(FILE *f, const void *graph)
{
    onnx g = *(const onnx *)graph;
    onnx_end(&g, f);
}

int export_onnx(const char *path, const use_model *u)
{
    const gs_data_info *info = u->info;
    size_t i = 0, floats = 0;
    const size_t kinds = sizeof graphs / sizeof graphs[0];
    while (i < kinds && strcmp(graphs[i].model, u->kind->name) != 0)
        i++;
    if (info->task == GS_TASK_TOKENS && !train_is_gpt2(&u->o))
        return cli_fail("%.120s: there is an ONNX form of GPT-2 alone: leave .onnx out for weights "
                        "and config.json",
                        path);
    if (i == kinds)
        return cli_fail("%.120s: there is no ONNX form of %s", path, u->kind->name);
    for (size_t k = 0; k < u->model->n; k++)
        floats += u->model->entries[k].rows * u->model->entries[k].cols;
    if (floats > ((size_t)1 << 29) - (1 << 20))
        return cli_fail("%.120s: an ONNX file holds 2 GB, and the weights take %.1f", path,
                        4e-9 * (double)floats);
    onnx g;
    onnx_begin(&g);
    walk w = {.g = &g, .u = u, .at = u->model->state};
    const char *logits = graphs[i].build(&w);
    const onnx_dim classes = {NULL, info->classes};
    if (info->task == GS_TASK_TOKENS)
        onnx_output(&g, "logits", logits, (const onnx_dim[]){{"n", 0}, {"time", 0}, classes}, 3);
    else
        onnx_output(
            &g, "logits", logits,
            (const onnx_dim[]){{"n", 0}, classes, {NULL, info->height}, {NULL, info->width}},
            info->task == GS_TASK_PIXELS ? 4 : 2);
    const int code = html_write("", path, write_graph, &g);
    g.graph = (pb){0}; /* written and used up */
    onnx_free(&g);
    return code;
}
