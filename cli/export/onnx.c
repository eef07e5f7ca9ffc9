/* Numbers of fields are those of onnx.proto, ONNX 1.12. */
#include "cli/export/onnx.h"

#include "gradscale/base.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_IR = 1, MODEL_PRODUCER = 2, MODEL_VERSION = 3, MODEL_GRAPH = 7, MODEL_OPSET = 8 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_TYPE = 4, NODE_ATTRIBUTE = 5 };
enum {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_F = 2,
    ATTRIBUTE_I = 3,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_TYPE = 20
};
enum { TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_INTS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };

void onnx_begin(onnx *g)
{
    *g = (onnx){0};
    pb_text(&g->graph, GRAPH_NAME, "gradscale");
}

void onnx_free(onnx *g)
{
    pb_free(&g->graph);
    pb_free(&g->attributes);
    free(g->names);
    *g = (onnx){0};
}

/* ---- names ---- */

/* Names stay where they are: a graph has far fewer than this. */
enum { NAMES = 1 << 17 };

static char *next_name(onnx *g)
{
    if (!g->names)
        g->names = cli_resize(NULL, NAMES * sizeof *g->names);
    if (g->n == NAMES) { /* 1024 layers have some 30000 */
        cli_failed("the model has too many layers for one graph");
        exit(CLI_FAILED);
    }
    return g->names[g->n++];
}

static const char *new_name(onnx *g)
{
    char *name = next_name(g);
    snprintf(name, sizeof g->names[0], "v%zu", g->n - 1);
    return name;
}

const char *onnx_name(onnx *g, const char *stem, const char *end)
{
    char *name = next_name(g);
    snprintf(name, sizeof g->names[0], "%s%s", stem, end);
    return name;
}

/* ---- what goes in and out ---- */

static pb value_info(const char *name, int type, const onnx_dim *dims, size_t rank)
{
    pb shape = {0}, tensor = {0}, of = {0}, info = {0};
    for (size_t i = 0; i < rank; i++) {
        pb dim = {0};
        if (dims[i].name)
            pb_text(&dim, 2, dims[i].name);
        else
            pb_int(&dim, 1, dims[i].size);
        pb_message(&shape, 1, &dim);
    }
    pb_int(&tensor, 1, (uint64_t)type);
    pb_message(&tensor, 2, &shape);
    pb_message(&of, 1, &tensor);
    pb_text(&info, 1, name);
    pb_message(&info, 2, &of);
    return info;
}

void onnx_input(onnx *g, const char *name, int type, const onnx_dim *dims, size_t rank)
{
    pb info = value_info(name, type, dims, rank);
    pb_message(&g->graph, GRAPH_INPUT, &info);
}

static void put_node(onnx *g, const char *type, const char *const *inputs, size_t n_inputs,
                     const char *const *results, size_t n_results)
{
    pb node = {0};
    for (size_t i = 0; i < n_inputs; i++)
        pb_text(&node, NODE_INPUT, inputs[i]);
    for (size_t i = 0; i < n_results; i++)
        pb_text(&node, NODE_OUTPUT, results[i]);
    pb_text(&node, NODE_TYPE, type);
    pb_join(&node, &g->attributes);
    pb_message(&g->graph, GRAPH_NODE, &node);
}

void onnx_output(onnx *g, const char *name, const char *value, const onnx_dim *dims, size_t rank)
{
    put_node(g, "Identity", &value, 1, &name, 1);
    pb info = value_info(name, ONNX_FLOAT, dims, rank);
    pb_message(&g->graph, GRAPH_OUTPUT, &info);
}

/* ---- nodes ---- */

static pb attribute(const char *name, int type)
{
    pb a = {0};
    pb_text(&a, ATTRIBUTE_NAME, name);
    pb_int(&a, ATTRIBUTE_TYPE, (uint64_t)type);
    return a;
}

void onnx_int(onnx *g, const char *name, int64_t value)
{
    pb a = attribute(name, TYPE_INT);
    pb_int(&a, ATTRIBUTE_I, (uint64_t)value);
    pb_message(&g->attributes, NODE_ATTRIBUTE, &a);
}

void onnx_real(onnx *g, const char *name, float value)
{
    pb a = attribute(name, TYPE_FLOAT);
    pb_float(&a, ATTRIBUTE_F, value);
    pb_message(&g->attributes, NODE_ATTRIBUTE, &a);
}

void onnx_ints(onnx *g, const char *name, const int64_t *list, size_t n)
{
    pb a = attribute(name, TYPE_INTS);
    for (size_t i = 0; i < n; i++)
        pb_int(&a, ATTRIBUTE_INTS, (uint64_t)list[i]);
    pb_message(&g->attributes, NODE_ATTRIBUTE, &a);
}

const char *onnx_node(onnx *g, const char *type, ...)
{
    const char *inputs[8], *result = new_name(g);
    size_t n = 0;
    va_list args;
    va_start(args, type);
    while (n < 8 && (inputs[n] = va_arg(args, const char *)))
        n++;
    va_end(args);
    put_node(g, type, inputs, n, &result, 1);
    return result;
}

void onnx_split(onnx *g, const char *type, const char *input, const char **results, size_t n)
{
    for (size_t i = 0; i < n; i++)
        results[i] = new_name(g);
    put_node(g, type, &input, 1, results, n);
}

/* ---- constants: raw data is little-endian, as the machines are that this is built for ---- */

static const size_t sizes[] = {
    [ONNX_FLOAT] = sizeof(float), [ONNX_INT8] = 1, [ONNX_INT64] = sizeof(int64_t)};

static void constant(onnx *g, const char *name, int type, const void *data, const size_t *shape,
                     int rank)
{
    pb tensor = {0};
    size_t bytes = sizes[type];
    for (int i = 0; i < rank; i++) {
        pb_int(&tensor, TENSOR_DIMS, shape[i]);
        bytes *= shape[i];
    }
    pb_int(&tensor, TENSOR_TYPE, (uint64_t)type);
    pb_text(&tensor, TENSOR_NAME, name);
    pb_bytes(&tensor, TENSOR_RAW, data, bytes);
    pb_message(&g->graph, GRAPH_INITIALIZER, &tensor);
}

void onnx_weight(onnx *g, const char *name, const float *data, const size_t *shape, int rank)
{
    constant(g, name, ONNX_FLOAT, data, shape, rank);
}

void onnx_integers(onnx *g, const char *name, const int8_t *data, const size_t *shape, int rank)
{
    constant(g, name, ONNX_INT8, data, shape, rank);
}

const char *onnx_number(onnx *g, float x)
{
    const char *name = new_name(g);
    onnx_weight(g, name, &x, NULL, 0);
    return name;
}

const char *onnx_sizes(onnx *g, const int64_t *list, size_t n)
{
    const char *name = new_name(g);
    constant(g, name, ONNX_INT64, list, &n, n > 0);
    return name;
}

/* ---- the file ---- */

void onnx_end(onnx *g, FILE *to)
{
    pb opset = {0}, model = {0};
    pb_text(&opset, 1, "");
    pb_int(&opset, 2, ONNX_OPSET);
    pb_int(&model, MODEL_IR, ONNX_IR);
    pb_text(&model, MODEL_PRODUCER, "gradscale");
    pb_text(&model, MODEL_VERSION, gs_version());
    pb_message(&model, MODEL_OPSET, &opset);
    pb_message(&model, MODEL_GRAPH, &g->graph);
    fwrite(model.data, 1, model.n, to);
    pb_free(&model);
}
