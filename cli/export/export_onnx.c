/* The models as graphs of ONNX, in f32; quantised ones as QDQ graphs, as TensorRT reads QAT.
 *
 *     images  input "image" [n, channels, height, width], values as the files of images hold them:
 *             the normalisation is part of the graph
 *     text    input "ids" [n, time], int64
 *     output  "logits" [n, classes], [n, classes, height, width] or [n, time, vocabulary]
 */
#include "cli/core/html.h"
#include "cli/export/integers.h"
#include "cli/export/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* To be freed. */
static float *read_weight(const walk *w, size_t i, size_t shape[4], int *rank)
{
    const size_t count = w->u->model->entries[i].rows * w->u->model->entries[i].cols;
    float *data = cli_resize(NULL, count * sizeof *data);
    if (gs_infer_weight(data, rank, shape, w->u->infer, i) != GS_OK) {
        cli_failed("out of memory");
        exit(CLI_FAILED);
    }
    return data;
}

const char *walk_weight(walk *w)
{
    const size_t i = w->weight++;
    const char *name = w->u->model->entries[i].name;
    size_t shape[4];
    int rank;
    float *data = read_weight(w, i, shape, &rank);
    onnx_weight(w->g, name, data, shape, rank);
    free(data);
    return name;
}

/* ---- integers ---- */

/* What the integers of a matrix stand for, each output channel in units of its own. */
static const char *integer_weight(walk *w)
{
    const size_t i = w->weight++;
    const gs_store_entry *e = &w->u->model->entries[i];
    const bool turned = w->u->model->layouts[i].transposed; /* [cols, rows] */
    size_t shape[4];
    int rank;
    float *data = read_weight(w, i, shape, &rank);
    float *units = cli_resize(NULL, e->rows * sizeof *units);
    int8_t *codes = cli_resize(NULL, e->rows * e->cols);
    for (size_t r = 0; r < e->rows; r++) {
        const size_t at = turned ? r : r * e->cols;
        units[r] = integers_of(codes + at, data + at, e->cols, turned ? e->rows : 1);
        if (isnan(units[r]))
            w->infinite = e->name;
    }
    const char *name = onnx_name(w->g, e->name, ".int8");
    const char *scale = onnx_name(w->g, e->name, ".scale");
    const char *zero = onnx_name(w->g, e->name, ".zero");
    onnx_integers(w->g, name, codes, shape, rank);
    onnx_weight(w->g, scale, units, &e->rows, 1);
    memset(codes, 0, e->rows);
    onnx_integers(w->g, zero, codes, &e->rows, 1);
    free(data);
    free(units);
    free(codes);
    onnx_int(w->g, "axis", turned);
    return onnx_node(w->g, "DequantizeLinear", name, scale, zero, NULL);
}

/* ONNX clips integers at -128, and the library at -127: so x is clipped before. */
static const char *integer_input(walk *w, const char *x, float range, const char *weight)
{
    onnx *g = w->g;
    const float r = range > 0x1p-24f && range < INFINITY ? range : 0; /* 0: all integers are */
    const char *low = onnx_number(g, -r), *high = onnx_number(g, r);
    const char *unit = onnx_name(g, weight, ".input_scale");
    const char *zero = onnx_name(g, weight, ".input_zero");
    onnx_weight(g, unit, &(float){integers_unit(r)}, NULL, 0);
    onnx_integers(g, zero, &(int8_t){0}, NULL, 0);
    x = onnx_node(g, "Clip", x, low, high, NULL);
    x = onnx_node(g, "QuantizeLinear", x, unit, zero, NULL);
    return onnx_node(g, "DequantizeLinear", x, unit, zero, NULL);
}

const char *walk_matrix(walk *w, const char **x)
{
    const gs_model *m = w->u->model;
    const gs_store_entry *e = &m->entries[w->weight];
    if (!w->u->quantized || e->rows == 1)
        return walk_weight(w);
    const float *range = m->state + (m->states - m->n_ranges);
    for (size_t i = 0; i < w->weight; i++)
        range += m->entries[i].rows > 1;
    *x = integer_input(w, *x, *range, e->name);
    return integer_weight(w);
}

static const char *state(walk *w)
{
    const gs_state_entry *e = &w->u->model->state_entries[w->state++];
    onnx_weight(w->g, e->name, w->at, &e->count, 1);
    w->at += e->count;
    return e->name;
}

/* ---- images ---- */

const char *walk_image(walk *w)
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

const char *walk_linear(walk *w, const char *x)
{
    const char *a = walk_matrix(w, &x), *b = walk_weight(w);
    onnx_int(w->g, "transB", 1);
    return onnx_node(w->g, "Gemm", x, a, b, NULL);
}

const char *walk_conv(walk *w, const char *x, int64_t kernel, int64_t stride, int64_t pad,
                      bool bias)
{
    const int64_t pads[] = {pad, pad, pad, pad};
    const char *filter = walk_matrix(w, &x), *b = bias ? walk_weight(w) : NULL;
    onnx_ints(w->g, "kernel_shape", (const int64_t[]){kernel, kernel}, 2);
    onnx_ints(w->g, "strides", (const int64_t[]){stride, stride}, 2);
    onnx_ints(w->g, "pads", pads, 4);
    return onnx_node(w->g, "Conv", x, filter, b, NULL);
}

static const char *conv_norm(walk *w, const char *x, int64_t kernel, int64_t stride)
{
    x = walk_conv(w, x, kernel, stride, kernel / 2, false);
    const char *gamma = walk_weight(w), *beta = walk_weight(w), *mean = state(w), *var = state(w);
    onnx_real(w->g, "epsilon", 1e-5f);
    return onnx_node(w->g, "BatchNormalization", x, gamma, beta, mean, var, NULL);
}

static const char *relu(walk *w, const char *x) { return onnx_node(w->g, "Relu", x, NULL); }

static const char *mlp(walk *w)
{
    const char *x = walk_image(w);
    onnx_ints(w->g, "perm", (const int64_t[]){0, 2, 3, 1},
              4); /* channels last, as it was trained */
    x = onnx_node(w->g, "Flatten", onnx_node(w->g, "Transpose", x, NULL), NULL);
    while (w->weight + 2 < w->u->model->n)
        x = relu(w, walk_linear(w, x));
    return walk_linear(w, x);
}

static const char *cnn(walk *w)
{
    const char *x = walk_image(w);
    for (int i = 0; i < 3; i++) {
        x = relu(w, conv_norm(w, x, 3, 1));
        onnx_ints(w->g, "kernel_shape", (const int64_t[]){2, 2}, 2);
        onnx_ints(w->g, "strides", (const int64_t[]){2, 2}, 2);
        x = onnx_node(w->g, "MaxPool", x, NULL);
    }
    return walk_linear(w, onnx_node(w->g, "Flatten", x, NULL));
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
    const char *x = relu(w, conv_norm(w, walk_image(w), 3, 1));
    for (int stage = 0; stage < 3; stage++)
        for (int i = 0; i < 2; i++)
            x = block(w, x, stage > 0 && i == 0 ? 2 : 1);
    x = onnx_node(w->g, "GlobalAveragePool", x, NULL);
    return walk_linear(w, onnx_node(w->g, "Flatten", x, NULL));
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
    const char *x = relu(w, conv_norm(w, walk_image(w), 7, 2));
    onnx_ints(w->g, "kernel_shape", (const int64_t[]){3, 3}, 2);
    onnx_ints(w->g, "strides", (const int64_t[]){2, 2}, 2);
    onnx_ints(w->g, "pads", (const int64_t[]){1, 1, 1, 1}, 4);
    x = onnx_node(w->g, "MaxPool", x, NULL);
    for (int stage = 0; stage < 4; stage++)
        for (int i = 0; i < blocks[stage]; i++)
            x = torch_block(w, x, wide, stage > 0 && i == 0 ? 2 : 1, i == 0 && (stage > 0 || wide));
    x = onnx_node(w->g, "GlobalAveragePool", x, NULL);
    return walk_linear(w, onnx_node(w->g, "Flatten", x, NULL));
}

static const char *resnet18(walk *w) { return torch_resnet(w, (const int[]){2, 2, 2, 2}, false); }

static const char *resnet50(walk *w) { return torch_resnet(w, (const int[]){3, 4, 6, 3}, true); }

static const char *fcn(walk *w)
{
    const char *x = walk_image(w);
    while (w->weight + 2 < w->u->model->n)
        x = relu(w, walk_conv(w, x, 3, 1, 1, true));
    return walk_conv(w, x, 3, 1, 1, true);
}

/* ---- the file ---- */

static const struct {
    const char *model;
    const char *(*build)(walk *w);
} graphs[] = {{"mlp", mlp}, {"cnn", cnn},      {"resnet", resnet},     {"resnet18", resnet18},
              {"fcn", fcn}, {"gpt", walk_gpt}, {"resnet50", resnet50}, {"vit", walk_vit}};

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
    if (w.infinite) {
        onnx_free(&g);
        return cli_fail("%.120s: its weight %.80s holds an Inf or NaN, which integers cannot",
                        u->path, w.infinite);
    }
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
