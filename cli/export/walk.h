/* walk.h: a model as a graph of ONNX: a walk over its weights, in the order of the model. */
#ifndef WALK_H
#define WALK_H

#include "cli/export/export.h"
#include "cli/export/onnx.h"

typedef struct walk {
    onnx *g;
    const use_model *u;
    size_t weight, state; /* the next of each list of the model */
    float *at;            /* of state */
    const char *infinite; /* a weight that integers cannot hold; NULL: none */
} walk;

/* The next weight of the model, as PyTorch or Hugging Face have it. */
const char *walk_weight(walk *w);
/* The same for a matrix that multiplies x. In a quantised model both are read as integers: x
 * becomes what its own stand for. */
const char *walk_matrix(walk *w, const char **x);
/* The input of a model of images, (image - mean) * inverse_std. */
const char *walk_image(walk *w);
/* Layers, with the weights that come next. */
const char *walk_linear(walk *w, const char *x);
const char *walk_conv(walk *w, const char *x, int64_t kernel, int64_t stride, int64_t pad,
                      bool bias);

/* Models that are made of blocks of a transformer. */
const char *walk_gpt(walk *w);
const char *walk_vit(walk *w);

#endif
