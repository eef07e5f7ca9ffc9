/* infer.h: a model that is used and not trained: weights of a file, logits, text that goes on.
 *
 *     gs_infer *infer;
 *     gs_infer_config config = {.size = sizeof config, .mode = GS_O2, .half = GS_BF16};
 *     gs_infer_create(&infer, ctx, gpt, &config);
 *     gs_infer_load(infer, "run/best.safetensors", &error);
 *     gs_infer_run(&result, infer, &batch);                     logits, and the loss
 *
 *     gs_kv_cache *cache;
 *     gs_kv_cache_create(&cache, infer);
 *     gs_infer_next(&logits, infer, cache, prompt, n);          then one token at a time:
 *     gs_sample(&token, ctx, logits, vocabulary, &sampling, i);
 *     gs_infer_next(&logits, infer, cache, &token, 1);
 *
 * There are no gradients and no masters: in O2 a matrix is held in the half type alone. The bits of
 * logits and loss are those of a trainer of the same mode and half type.
 *
 * Weights come from checkpoints of gradscale, and from safetensors in the layout of PyTorch and of
 * Hugging Face's GPT-2: transposition happens in reading them. The same layouts are written by
 * gs_infer_export.
 */
#ifndef GRADSCALE_INFER_H
#define GRADSCALE_INFER_H

#include "gradscale/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gs_infer gs_infer;

typedef struct gs_infer_config {
    size_t size; /* sizeof(gs_infer_config) */
    gs_mode mode;
    gs_dtype half; /* GS_F16 or GS_BF16; O0 does not look at it */
    int quantize;  /* products of integers: gs_model_quantize first; ranges of the file, or of
                      gs_infer_calibrate */
    int int8;      /* in INT8 arithmetic; 0: in floats, to the same bits */
    gs_range_rule range_rule; /* of gs_infer_calibrate */
    float percentile;
} gs_infer_config;

/* The weights are zero until they are loaded. ctx must outlive it as must the model, whose
 * `weights` it sets. Errors leave their message in the context. */
GS_API gs_status gs_infer_create(gs_infer **out, gs_context *ctx, gs_model *model,
                                 const gs_infer_config *config);
GS_API void gs_infer_free(gs_infer *infer);
GS_API uint64_t gs_infer_bytes(const gs_infer *infer); /* of the weights, as products read them */

/* Weights and running statistics of a file, into a model or into a trainer that is to go on with
 * them (fine-tuning: moments, scaler and step stay those of a beginning). Every weight must be
 * there, in its shape. Layers, biases and an untied head that the model does not have are an error;
 * other tensors are passed over: an optimizer's, GPT-2's masks. After an error a trainer has not
 * changed. Every rank loads the file. */
GS_API gs_status gs_infer_load(gs_infer *infer, const char *path, gs_error *error);
GS_API gs_status gs_trainer_load_weights(gs_trainer *trainer, const char *path, gs_error *error);

/* Writes them as f32 in the layout of PyTorch, or where the model has such weights (a GPT's) of
 * Hugging Face. The file is replaced atomically. */
GS_API gs_status gs_infer_export(const char *path, const gs_infer *infer, gs_error *error);

/* Weight i in f32, in that layout: rank, shape and, where dst is not NULL, its elements. For
 * writers of other formats. */
GS_API gs_status gs_infer_weight(float *dst, int *rank, size_t shape[4], const gs_infer *infer,
                                 size_t i);

typedef struct gs_infer_result {
    const gs_value *logits; /* until the next call; NULL: the model has none */
    double loss;            /* NaN: the batch has no targets */
} gs_infer_result;
GS_API gs_status gs_infer_run(gs_infer_result *out, gs_infer *infer, const gs_batch *batch);

/* Post-training quantisation: runs the batch without quantising and moves the ranges by what is
 * multiplied. */
GS_API gs_status gs_infer_calibrate(gs_infer *infer, const gs_batch *batch);
/* Whether a range other than 0 is there: of the file, or by calibration. */
GS_API int gs_infer_calibrated(const gs_infer *infer);

/* ---- text ---- */

/* Of a model that has `next`, for one text of up to its context. */
GS_API gs_status gs_kv_cache_create(gs_kv_cache **out, gs_infer *infer);
GS_API void gs_kv_cache_free(gs_kv_cache *cache);
GS_API size_t gs_kv_cache_length(const gs_kv_cache *cache);
/* Forgets all but the first n tokens. */
GS_API void gs_kv_cache_truncate(gs_kv_cache *cache, size_t n);
GS_API uint64_t gs_kv_cache_bytes(const gs_kv_cache *cache); /* of the tokens it holds */

/* Appends ids[n] and gives the logits [vocabulary] of the token after them, in f32, until the next
 * call. The bits are those of gs_infer_run on the whole text. After an error the cache is as it
 * was. */
GS_API gs_status gs_infer_next(const float **logits, gs_infer *infer, gs_kv_cache *cache,
                               const int32_t *ids, size_t n);

/* How a token is drawn. All zero but size: the most likely one. */
typedef struct gs_sampling_config {
    size_t size;        /* sizeof(gs_sampling_config) */
    double temperature; /* divides the logits; 0: the most likely token, the first of equals */
    size_t top_k;       /* of the k most likely tokens; 0: of all */
    double top_p;       /* of the fewest most likely tokens that have this probability; 0: of all */
    uint64_t seed;
} gs_sampling_config;

/* Token number `index` of a text: a function of its arguments, the same on every machine. The
 * logits are finite. */
GS_API gs_status gs_sample(int32_t *token, gs_context *ctx, const float *logits, size_t n,
                           const gs_sampling_config *config, uint64_t index);

#ifdef __cplusplus
}
#endif

#endif
