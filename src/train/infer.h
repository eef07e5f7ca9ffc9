/* What a model without a trainer is made of. */
#ifndef GSI_TRAIN_INFER_H
#define GSI_TRAIN_INFER_H

#include "engine/engine.h"
#include "gradscale/infer.h"
#include "train/train.h"

struct gs_kv_cache {
    gs_context *ctx;
    size_t n; /* tokens it holds, of every layer */
    size_t n_layers;
    gs_kv *layers;
    size_t row;  /* bytes of a token in all layers */
    void *block; /* keys and values */
};

#endif
