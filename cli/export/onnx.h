/* onnx.h: a graph of ONNX, node by node.
 *
 *     onnx g;
 *     onnx_begin(&g);
 *     onnx_input(&g, "x", ONNX_FLOAT, (onnx_dim[]){{"n", 0}, {NULL, 10}}, 2);
 *     const char *y = onnx_node(&g, "Relu", "x", NULL);         the name of what it makes
 *     onnx_output(&g, "logits", y, ...);
 *
 * Names that nodes make live as long as the graph. */
#ifndef ONNX_H
#define ONNX_H

#include "cli/export/protobuf.h"

enum { ONNX_FLOAT = 1, ONNX_INT8 = 3, ONNX_INT64 = 7 };
enum { ONNX_OPSET = 17, ONNX_IR = 8 };

typedef struct onnx {
    pb graph, attributes; /* attributes: of the next node */
    char (*names)[128];
    size_t n;
} onnx;

typedef struct onnx_dim {
    const char *name; /* NULL: a number */
    size_t size;
} onnx_dim;

void onnx_begin(onnx *g);
void onnx_free(onnx *g);
void onnx_input(onnx *g, const char *name, int type, const onnx_dim *dims, size_t rank);
/* `value` under the name `name`, an output of the graph. */
void onnx_output(onnx *g, const char *name, const char *value, const onnx_dim *dims, size_t rank);

/* Of the node that comes next. */
void onnx_int(onnx *g, const char *name, int64_t value);
void onnx_real(onnx *g, const char *name, float value);
void onnx_ints(onnx *g, const char *name, const int64_t *list, size_t n);

/* A node with these inputs, up to NULL, and one result. */
const char *onnx_node(onnx *g, const char *type, ...);
/* One with `n` results. */
void onnx_split(onnx *g, const char *type, const char *input, const char **results, size_t n);

/* A name of one's own: two texts in one. */
const char *onnx_name(onnx *g, const char *stem, const char *end);

/* Constants. Their elements are copied. */
void onnx_weight(onnx *g, const char *name, const float *data, const size_t *shape, int rank);
void onnx_integers(onnx *g, const char *name, const int8_t *data, const size_t *shape, int rank);
const char *onnx_number(onnx *g, float x);
const char *onnx_sizes(onnx *g, const int64_t *list, size_t n); /* n 0: a scalar of list[0] */

/* The whole file. The graph is used up. */
void onnx_end(onnx *g, FILE *to);

#endif
