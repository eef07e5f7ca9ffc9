/* Blocks of a transformer: x + attention(norm(x)), then x + mlp(norm(x)). GPT-2, Llama and ViT
 * differ in their parts and in the names of their weights. */
#ifndef GSI_TRAIN_TRANSFORMER_H
#define GSI_TRAIN_TRANSFORMER_H

#include "train/train.h"

/* The weights by name: that of block 3 is `block`, "3.", one of these, and "weight" or "bias". k
 * and v NULL: q holds all three. */
typedef struct gsi_block_names {
    const char *block, *ln_1, *q, *k, *v, *proj, *ln_2, *gate, *fc, *mlp_proj;
    bool transposed, biases; /* of matrices: in files, see gs_layout; there are some */
} gsi_block_names;

/* Deviations of the first values of the matrices. */
typedef struct gsi_block_std {
    float q, proj, fc, mlp_proj;
} gsi_block_std;

typedef struct gsi_transformer {
    const gsi_block_names *names;
    gsi_block_std std;
    size_t layers, width, heads, kv_heads, mlp_width;
    float dropout;
    float eps;           /* of layernorm */
    bool rms;            /* RMSNorm, instead of LayerNorm */
    bool swiglu;         /* silu(gate(x)) up(x), instead of gelu */
    bool exact;          /* gelu with erf, instead of tanh */
    bool unmasked;       /* tokens attend to all, instead of to their past */
    const float *angles; /* [positions, width / heads]: rotary; NULL: not */

    /* Set by gsi_transformer_add: the first weight, and where in a block each part begins. */
    size_t first, ln_1, q, k, v, proj, ln_2, gate, fc, mlp_proj, per_block;
} gsi_transformer;

enum { GSI_BLOCK_WEIGHTS = 14 }; /* of a block, at most */

/* Adds the weights of all blocks to the model, which has room for them. */
void gsi_transformer_add(gsi_transformer *b, void *model);
/* Adds a norm's weights; returns where. `name` ends with a dot. */
size_t gsi_transformer_add_norm(const gsi_transformer *b, void *model, const char *name);

/* x [batch, time, width] through all blocks; w: the model's weights. b outlives the step. */
gs_value *gsi_transformer_run(const gsi_transformer *b, gs_tape *t, gs_value *x,
                              const gs_weight *w);
/* The same after the tokens of kv [layers]: see gs_attention_next. */
gs_value *gsi_transformer_next(const gsi_transformer *b, gs_tape *t, gs_value *x,
                               const gs_weight *w, gs_kv *kv);
gs_value *gsi_transformer_norm(const gsi_transformer *b, gs_tape *t, gs_value *x,
                               const gs_weight *w);

/* Products of a step and an item of `time` tokens, forward and twice that backward; the whole of
 * the attention's square is counted, as everybody does. */
double gsi_transformer_flops(const gsi_transformer *b, double time);

#endif
