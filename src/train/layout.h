/* Weights in files: where a model's weight lies in a file of any make, and in which order. */
#ifndef GSI_TRAIN_LAYOUT_H
#define GSI_TRAIN_LAYOUT_H

#include "io/io.h"
#include "train/train.h"

/* A file of weights for a model. */
typedef struct gsi_weights_file {
    gs_source *source;
    const gs_model *model;
    gs_context *ctx;
    bool ours;     /* a checkpoint: every weight is [rows, cols] */
    bool straight; /* matrices that Hugging Face transposes are not: nn.Linear has them so */
} gsi_weights_file;

gs_status gsi_weights_open(gsi_weights_file *f, const char *path, const gs_model *model,
                           gs_context *ctx, gs_error *error);
/* out[rows * cols] of weight i, as the model has it; out[count] of array i of its statistics. */
gs_status gsi_weights_read(float *out, const gsi_weights_file *f, size_t i, gs_error *error);
gs_status gsi_weights_read_state(float *out, const gsi_weights_file *f, size_t i, gs_error *error);
/* After all were read: that the file is of no larger model. Layers, biases and a head that it has
 * and the model has not are an error; other tensors are passed over. */
gs_status gsi_weights_check_rest(const gsi_weights_file *f, gs_error *error);
void gsi_weights_close(gsi_weights_file *f);

/* Weight i as other makes have it: rank and shape; and its elements, from those in[rows * cols]. */
int gsi_layout_shape(size_t shape[4], const gs_model *model, size_t i);
void gsi_layout_out(float *out, const float *in, const gs_model *model, size_t i);

#endif
