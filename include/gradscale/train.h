/* train.h: one training step, and the models it runs.
 *
 *     gs_model *gpt;
 *     gs_gpt_config sizes = {.size = sizeof sizes, .vocabulary = 128, .context = 256, .layers = 6,
 *                            .heads = 6, .width = 384};
 *     gs_gpt_create(&gpt, ctx, &sizes);
 *     gs_trainer_config config = {
 *         .size = sizeof config,
 *         .tape = {.size = sizeof config.tape, .mode = GS_O2, .half = GS_F16},
 *         .optim.size = sizeof config.optim,
 *         .seed = 1};
 *     gs_optim_config_init(&config.optim, "adamw", NULL);
 *     gs_scaler_init(&config.scaler, "pytorch", NULL);
 *     gs_trainer *trainer;
 *     gs_trainer_create(&trainer, ctx, gpt, &config);
 *     for each batch
 *         gs_trainer_step(trainer, &batch, 1, &row);
 *
 * A step that is not applied leaves everything as it was, bit for bit: weights, moments, running
 * statistics, schedules. A batch that is retried sees the same dropout.
 */
#ifndef GRADSCALE_TRAIN_H
#define GRADSCALE_TRAIN_H

#include "gradscale/comm.h"
#include "gradscale/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- models ---- */

/* The caller's arrays, borrowed for the step. A model reads what it needs: images or features, or
 * tokens. */
typedef struct gs_batch {
    size_t n;               /* items */
    size_t time;            /* tokens of an item; 0: there are none */
    const float *x;         /* [n, ...] */
    const int32_t *ids;     /* [n, time] */
    const int32_t *targets; /* [n], [n, time] or [n, height, width]; a negative one is left out */
} gs_batch;

/* How a weight begins: mean + std * a number of variance 1, a function of seed, weight and
 * position alone, the same on every machine. */
typedef struct gs_init {
    float mean, std;
} gs_init;

/* A named array of a model's running statistics. */
typedef struct gs_state_entry {
    const char *name;
    size_t count;
} gs_state_entry;

/* How files of other makes hold a weight, where that is not [rows, cols] as here. All zero: so. */
typedef struct gs_layout {
    size_t kh,
        kw;   /* columns are [kh][kw][channels] here and [channels][kh][kw] in PyTorch; 0: no */
    int rank; /* there: 3: [1, rows, cols], 4: [rows, channels, kh, kw]; 0: that of here */
    int transposed; /* [cols, rows] in Hugging Face's files: GPT-2's Conv1D */
} gs_layout;

/* Keys and values of a text so far, of all layers: infer.h. */
typedef struct gs_kv_cache gs_kv_cache;

/* Make your own by filling one in, as the first member of a struct of yours. */
typedef struct gs_model {
    /* The loss, an f32 scalar, of a batch; `model` is this struct. Errors are the tape's. */
    gs_value *(*forward)(void *model, gs_tape *tape, const gs_batch *batch);
    /* The same up to the logits: classes, or the vocabulary, for each target. NULL: there are none.
     */
    gs_value *(*logits)(void *model, gs_tape *tape, const gs_batch *batch);
    void (*release)(void *model);  /* NULL: nothing is to be freed */
    size_t n;                      /* of weights */
    const gs_store_entry *entries; /* [n]: what is trained */
    const gs_init *inits;          /* [n] */
    const gs_weight *weights;      /* [n], of the entries in order: set by the trainer */
    float *state;                  /* [states]: what a forward pass moves, running statistics */
    size_t states;
    /* [n_states]: their names in checkpoints, in order; what they leave over is "state" there. */
    const gs_state_entry *state_entries;
    size_t n_states;
    double flops;             /* of the products of a step, an item of full length; 0: not known */
    const gs_layout *layouts; /* [n]; NULL: all zero */
    /* Logits [1, 1, vocabulary] of the last of n tokens that follow what the cache holds, to which
     * they are appended. NULL: the model does not go on with a text. */
    gs_value *(*next)(void *model, gs_tape *tape, const int32_t *ids, size_t n, gs_kv_cache *cache);
    size_t kv_layers, kv_heads, kv_width, context; /* of its cache: width is that of a head */
    size_t n_ranges; /* of the states, the last: ranges of quantised products; gs_model_quantize */
} gs_model;

/* Gives a model of this library, before it has a trainer, a range for each of its matrices, of what
 * is multiplied by it: among its states, "fc.input_amax" for "fc.weight". So they are a part of
 * checkpoints, go back with a step that is not applied, and agree between ranks. To be had before
 * gs_tape_config.quantize or gs_infer_config.quantize asks for it. */
GS_API gs_status gs_model_quantize(gs_model *model, gs_context *ctx);

GS_API void gs_model_free(gs_model *model);

/* Linear layers with relu between them; x is [n, sizes[0]]. */
typedef struct gs_mlp_config {
    size_t size;         /* sizeof(gs_mlp_config) */
    const size_t *sizes; /* [count], at least 2: inputs, hidden..., classes */
    size_t count;
} gs_mlp_config;
GS_API gs_status gs_mlp_create(gs_model **out, gs_context *ctx, const gs_mlp_config *config);

/* Images x [n, height, width, channels].
 *   plain     3 blocks of convolution 3x3, batchnorm, relu, max pooling; a linear layer
 *   residual  a stem and 3 stages of two residual blocks (He et al. 2015, as for CIFAR), an average
 *             over the image, which must be square; a linear layer
 * Filters are [out, 3 * 3 * in], channels last: PyTorch's [out, in, 3, 3] permuted. */
typedef struct gs_cnn_config {
    size_t size; /* sizeof(gs_cnn_config) */
    size_t height, width, channels, classes;
    size_t filters; /* of the first block; the others have 2 and 4 times as many */
    int residual;
} gs_cnn_config;
GS_API gs_status gs_cnn_create(gs_model **out, gs_context *ctx, const gs_cnn_config *config);

/* ResNet-18 or ResNet-50 (He et al. 2015), as torchvision builds and names them: a convolution 7x7
 * and max pooling, each of which halves the image, four stages of residual blocks, an average over
 * the image, a linear layer. Images x [n, height, width, channels] of any size. */
typedef struct gs_resnet_config {
    size_t size; /* sizeof(gs_resnet_config) */
    size_t height, width, channels, classes;
    size_t depth; /* 18 or 50 */
} gs_resnet_config;
GS_API gs_status gs_resnet_create(gs_model **out, gs_context *ctx, const gs_resnet_config *config);

/* A class for every pixel of images x [n, height, width, channels]: convolutions 3x3 with bias and
 * relu, `layers` of them with `filters` each, and a last one to the classes. */
typedef struct gs_fcn_config {
    size_t size; /* sizeof(gs_fcn_config) */
    size_t height, width, channels, classes;
    size_t filters, layers;
} gs_fcn_config;
GS_API gs_status gs_fcn_create(gs_model **out, gs_context *ctx, const gs_fcn_config *config);

/* GPT-2 (Radford et al. 2019), its head tied to the embedding. Weights are named as GPT-2's, and
 * matrices are [out, in], as nn.Linear has them: GPT-2's own files hold the transposes.
 *
 * With rotary, rms and swiglu together it is a Llama (Touvron et al. 2023): its weights have the
 * names of Hugging Face's LlamaForCausalLM, and there are no biases. */
typedef struct gs_gpt_config {
    size_t size; /* sizeof(gs_gpt_config) */
    size_t vocabulary, context, layers, heads, width;
    float dropout;
    int rotary;       /* positions by rotation of queries and keys, instead of a learned table */
    int rms;          /* RMSNorm, instead of LayerNorm */
    int swiglu;       /* silu(gate(x)) up(x), instead of gelu */
    int untied;       /* the head has a matrix of its own */
    size_t kv_heads;  /* heads of keys and values, which divide the heads; 0: as many */
    size_t mlp_width; /* hidden units; 0: 4 width, with swiglu 8/3 width, up to a multiple of 32 */
    double theta;     /* of rotary, at least 1; 0: 10000 */
} gs_gpt_config;
GS_API gs_status gs_gpt_create(gs_model **out, gs_context *ctx, const gs_gpt_config *config);

/* ViT (Dosovitskiy et al. 2020), as torchvision builds and names it: the blocks of a GPT without a
 * mask, with the exact gelu and norms that add 1e-6, over the patches of an image and a class token
 * before them, with learned positions; a norm and a linear layer read the classes from that token.
 * Images x [n, height, width, channels]. Dropout is where a GPT has it. */
typedef struct gs_vit_config {
    size_t size; /* sizeof(gs_vit_config) */
    size_t height, width, channels, classes;
    size_t patch; /* its side, which divides those of the image */
    size_t layers, heads;
    size_t hidden;    /* columns of a token */
    size_t mlp_width; /* hidden units; 0: 4 hidden */
    float dropout;
} gs_vit_config;
GS_API gs_status gs_vit_create(gs_model **out, gs_context *ctx, const gs_vit_config *config);

/* ---- the trainer ---- */

typedef struct gs_trainer gs_trainer;

/* Data-parallel training. Every rank has the whole model and its own part of each batch; gradients
 * are summed while the backward pass still runs. All zero is a good choice. */
typedef struct gs_ranks {
    gs_dtype wire;    /* what gradients are sent as: f32; or f16, bf16, half the bytes, scaled */
    int zero;         /* 1: ZeRO-1: each rank keeps and steps its part of moments and, in O2, of the
                         f32 weights of matrices; the results are those of 0, bit for bit. SGD, Adam
                         and AdamW with moments in f32 */
    size_t bucket;    /* gradients that are sent together; 0: as gs_reducer_config */
    uint64_t compare; /* weights, scaler and running statistics after the first step and every so
                         many; 0: 100 */
} gs_ranks;

typedef struct gs_trainer_config {
    size_t size; /* sizeof(gs_trainer_config) */
    gs_tape_config tape;
    gs_optim_config optim;
    gs_scaler scaler;    /* its `half` becomes the tape's */
    const gs_comm *comm; /* copied; NULL: a process alone */
    gs_ranks ranks;      /* how they share the work */
    uint64_t seed;       /* of the weights and of dropout */
    double loss_weight;  /* multiplies the gradients, not the loss of the row; 0: 1 */
} gs_trainer_config;

/* Makes tape, weights and optimizer, all from ctx, which must outlive it as must the model, whose
 * `weights` it sets: a model serves one trainer at a time, the newest. Ranks that do not begin with
 * the same weights and the same scaler are an error on all of them. Errors leave their message in
 * the context. */
GS_API gs_status gs_trainer_create(gs_trainer **out, gs_context *ctx, gs_model *model,
                                   const gs_trainer_config *config);
GS_API void gs_trainer_free(gs_trainer *trainer);

/* Its parts, for checkpoints and curious users. What is written to the weights' data is to be
 * followed by gs_trainer_sync, which rounds the half copies anew. */
GS_API gs_tape *gs_trainer_tape(gs_trainer *trainer);
GS_API gs_store *gs_trainer_store(gs_trainer *trainer);
GS_API gs_optim *gs_trainer_optim(gs_trainer *trainer);
GS_API gs_scaler *gs_trainer_scaler(gs_trainer *trainer);
GS_API gs_status gs_trainer_sync(gs_trainer *trainer);

/* Bytes that this rank holds between steps; of buckets to send the gradients in, too. */
typedef struct gs_held {
    uint64_t weights, gradients, optimizer;
} gs_held;
GS_API gs_held gs_trainer_held(const gs_trainer *trainer);

/* What a step does, in order. Times are summed over micro-batches and reruns. */
#define GS_PHASES(X)                                             \
    X(CLEAR, "clear")       /* gradients count as zero */        \
    X(FORWARD, "forward")   /* */                                \
    X(BACKWARD, "backward") /* */                                \
    X(COMM, "comm")         /* sums over ranks */                \
    X(SCAN, "scan")         /* Inf, NaN, amax, norm: one read */ \
    X(DECIDE, "decide")     /* the scaler: what it costs */      \
    X(APPLY, "apply")       /* unscale, clip, step: one pass */

typedef enum gs_phase {
#define X(id, name) GS_PHASE_##id,
    GS_PHASES(X)
#undef X
        GS_PHASE_COUNT
} gs_phase;
GS_API const char *gs_phase_name(gs_phase phase);

/* A row of the log. */
typedef struct gs_train_row {
    uint64_t step; /* batches seen before */
    double loss;   /* the mean over micro-batches and ranks, before scaling */
    double scale;  /* of the last run of the batch */
    unsigned reruns;
    gs_optim_report report; /* verdict, norm, clip, lr */
    double amax;            /* of all gradients seen, in true units */
    gs_stats stored;        /* of gradients stored in half, of activations and weights, on all
                               ranks, in scaled units; only with telemetry are zero, subnormal
                               and underflow complete */
    uint64_t items;         /* of all ranks */
    uint64_t sent;          /* bytes, by this rank to others */
    int telemetry;          /* the tape's, in this step */
    gs_memory memory;       /* of the tape, the largest micro-batch */
    double seconds[GS_PHASE_COUNT];
} gs_train_row;

/* One step over n micro-batches, each weighted by its items: scan, decide, then all or nothing.
 * GS_OK says that the step was run; row->report.verdict, whether it was applied. On an error, whose
 * message is in the context, nothing has changed. row may be NULL.
 *
 * Of several ranks each brings what it has, some of them nothing (n 0): an item counts the same
 * wherever it is. An error of one is an error of all, and the message names the rank. GS_ERANK:
 * one does not answer, or they have diverged; the trainer is not to be used again. */
GS_API gs_status gs_trainer_step(gs_trainer *trainer, const gs_batch *micro, size_t n,
                                 gs_train_row *row);

/* Whether all ranks hold the same weights, scaler and running statistics: every rank calls it.
 * GS_ERANK: they do not, and the message in the context names those that differ from rank 0.
 * gs_trainer_step does it after the first step and after every gs_ranks.compare of them. */
GS_API gs_status gs_trainer_compare(gs_trainer *trainer);

/* The loss without training, and where right is not NULL and the model has logits, how many of the
 * targets have the largest one. */
GS_API gs_status gs_trainer_evaluate(double *loss, size_t *right, gs_trainer *trainer,
                                     const gs_batch *batch);

#ifdef __cplusplus
}
#endif

#endif
