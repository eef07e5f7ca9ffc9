/* engine.h: differentiation with automatic mixed precision.
 *
 *     gs_tape_begin(tape, 1, seed);
 *     gs_value *x = gs_input(tape, GS_F32, 2, (size_t[]){64, 784}, pixels);
 *     gs_value *h = gs_relu(tape, gs_linear(tape, x, w1, b1));
 *     gs_value *loss = gs_cross_entropy(tape, gs_linear(tape, h, w2, b2), labels);
 *     gs_tape_backward(tape, loss, scale);                    gradients of scale * loss
 *
 * A tape is a list of operations in the order they ran; backward is the loop run in reverse. All
 * that a step makes lies in the tape's arena and is gone with the next gs_tape_begin: a steady step
 * allocates nothing. Arrays are contiguous, row-major, images with their channels last. Threads,
 * instruction sets and the caller's floating-point mode change no bit of a result.
 *
 * Operations do not fail. One with bad shapes notes the first error on the tape and returns a
 * poisoned value, which poisons what is made of it; check gs_tape_status once per step. Backward of
 * a poisoned tape does nothing.
 */
#ifndef GRADSCALE_ENGINE_H
#define GRADSCALE_ENGINE_H

#include "gradscale/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- precision ---- */

/* What autocast does with an operation:
 *
 *             O0     O1      O2, O3
 *   LOW       f32    half    half         products: inputs are cast
 *   STORED    f32    f32     half         as the mode stores weights: a table that is looked up, a
 *                                         token that is prepended
 *   F32       f32    f32     as its input computed in f32 in any case
 *   WIDEST    the widest of its inputs
 *   AS_IS     the type of its input
 *
 * O1 reads f32 weights through a half copy that is made once per step: the weight's own, or else
 * one that the first use of each gs_value makes. In O2 all but the norms' weights are half with an
 * f32 master, in O3 all are half without one: see gs_weight.
 *
 * A weight's gradient is summed in f32, rounded to the type that the operation read the weight in,
 * and accumulated in f32: half for products and their biases, f32 for norms (O3: half) and, in O1,
 * embeddings. */
typedef enum gs_class {
    GS_CLASS_LOW,
    GS_CLASS_STORED,
    GS_CLASS_F32,
    GS_CLASS_WIDEST,
    GS_CLASS_AS_IS
} gs_class;

typedef enum gs_mode { GS_O0, GS_O1, GS_O2, GS_O3, GS_MODE_COUNT } gs_mode;

#define GS_OPS(X)         \
    X(cast, AS_IS)        \
    X(reshape, AS_IS)     \
    X(linear, LOW)        \
    X(matmul, LOW)        \
    X(conv2d, LOW)        \
    X(attention, LOW)     \
    X(embedding, STORED)  \
    X(prepend, STORED)    \
    X(select, AS_IS)      \
    X(recompute, AS_IS)   \
    X(add, WIDEST)        \
    X(mul, WIDEST)        \
    X(relu, AS_IS)        \
    X(gelu, AS_IS)        \
    X(gelu_erf, AS_IS)    \
    X(silu, AS_IS)        \
    X(rotary, AS_IS)      \
    X(dropout, AS_IS)     \
    X(fake_quant, AS_IS)  \
    X(max_pool, AS_IS)    \
    X(avg_pool, AS_IS)    \
    X(layernorm, F32)     \
    X(rmsnorm, F32)       \
    X(batchnorm, F32)     \
    X(softmax, F32)       \
    X(cross_entropy, F32) \
    X(mse, F32)

typedef enum gs_op {
#define X(name, class) GS_OP_##name,
    GS_OPS(X)
#undef X
        GS_OP_COUNT
} gs_op;

GS_API const char *gs_op_name(gs_op op);
GS_API gs_class gs_op_class(gs_op op);

/* ---- quantisation ----
 *
 * Products of an activation and a weight, gs_linear and gs_conv2d, can read both as integers from
 * -127 to 127: the weight's per row, in units of its row's largest magnitude / 127, the
 * activation's per tensor, in units of a range / 127. doc/quantize.md defines the result to the
 * last bit: with `int8` and without it is the same. Attention's products stay as they are.
 *
 *          training                                     else
 *   NONE   as it is                                     as it is
 *   PTQ    as it is; ranges move                        quantised
 *   QAT    quantised, with straight-through             quantised
 *          gradients; ranges move */
typedef enum gs_quantize { GS_QUANTIZE_NONE, GS_QUANTIZE_PTQ, GS_QUANTIZE_QAT } gs_quantize;

/* How a batch moves a range. EMA: a tenth of the way to its largest magnitude, from the first one
 * on. MAX: the largest so far. PERCENTILE: as EMA, to the magnitude below which so many percent of
 * the batch's elements are. */
typedef enum gs_range_rule { GS_RANGE_EMA, GS_RANGE_MAX, GS_RANGE_PERCENTILE } gs_range_rule;

/* ---- the tape ---- */

typedef struct gs_tape gs_tape;
typedef struct gs_value gs_value;

typedef struct gs_tape_config {
    size_t size; /* sizeof(gs_tape_config) */
    gs_mode mode;
    gs_dtype half; /* GS_F16 or GS_BF16; O0 does not look at it */
    int wgrad_f32; /* weight gradients keep the f32 sum, as Megatron's do: none is rounded */
    int telemetry; /* count what every layer's gradients lose; see gs_tape_set_layer */
    int recompute; /* trade time for memory: see gs_recompute */
    gs_quantize quantize;
    gs_range_rule range_rule;
    float percentile; /* of GS_RANGE_PERCENTILE: above 0, at most 100 */
    int int8;         /* quantised products in INT8 arithmetic; 0: of the same integers in floats */
} gs_tape_config;

/* The context must outlive the tape and serves it alone while a step runs. */
GS_API gs_status gs_tape_create(gs_tape **out, gs_context *ctx, const gs_tape_config *config);
GS_API void gs_tape_free(gs_tape *tape);
/* Another config from the next gs_tape_begin on: telemetry now and then. Mode and half type stay.
 */
GS_API gs_status gs_tape_set_config(gs_tape *tape, const gs_tape_config *config);

/* Where a tape that quantises finds its ranges: a float for each of weights[n] with more than one
 * row, in order, of what is multiplied by it; 0: nothing was seen yet. Training moves them, once a
 * product. Both arrays are the caller's. */
GS_API void gs_tape_set_ranges(gs_tape *tape, const gs_weight *weights, size_t n, float *ranges);
/* From the next gs_tape_begin on, passes that do not train move the ranges and do not quantise. */
GS_API void gs_tape_set_calibrating(gs_tape *tape, int on);

/* Forgets the last step. `training` 0: nothing is kept for a backward pass, dropout does nothing,
 * batchnorm uses its running statistics. `seed`: of this step's dropout, so that a batch that is
 * run again drops the same. */
GS_API void gs_tape_begin(gs_tape *tape, int training, uint64_t seed);

/* GS_OK, or the first error since gs_tape_begin; its message, in the context, names the operation.
 */
GS_API gs_status gs_tape_status(const gs_tape *tape);

/* For operations of your own: notes the error, if it is the first of the step, and returns the
 * poisoned value. */
GS_API gs_value *gs_tape_fail(gs_tape *tape, gs_status status, const char *format, ...)
    GS_PRINTF(3, 4);

/* Runs the list in reverse with d(loss) = seed. The weights' gradients are added to what their
 * `grad` holds. Several losses of a step may be run back one after the other, each once. */
GS_API gs_status gs_tape_backward(gs_tape *tape, gs_value *loss, float seed);

/* Of all half-stored gradients of the step, in scaled units: an overflow counted
 * here is a found overflow; amax is what `headroom` steers by. */
GS_API const gs_stats *gs_tape_stats(const gs_tape *tape);

/* Operations recorded from here on belong to this layer, until the next call. The name is not
 * copied. */
GS_API void gs_tape_set_layer(gs_tape *tape, const char *name);
typedef struct gs_layer {
    const char *name;
    gs_stats stats;                /* of what its operations stored as gradients, in half types */
    const gs_exponents *exponents; /* NULL unless gs_tape_set_exponents asked for them */
} gs_layer;
/* Of this step. NULL without telemetry or exponents. */
GS_API const gs_layer *gs_tape_layers(const gs_tape *tape, size_t *n);

/* From the next gs_tape_begin on, every layer gets a histogram of the gradients of its operations'
 * results as they were stored, in scaled units: those in the half type, or in O0 those in f32. It
 * reads each of them once more and takes 8 KB per layer, so ask for it now and then. */
GS_API void gs_tape_set_exponents(gs_tape *tape, int on);

typedef struct gs_memory {
    size_t activations, gradients; /* bytes of the last step, with those of the largest segment */
    size_t peak;                   /* of all it took, what operations keep for themselves too */
} gs_memory;
GS_API gs_memory gs_tape_memory(const gs_tape *tape);

/* Seconds that the step spent in operations of a kind, [GS_OP_COUNT], until now. An operation lasts
 * until the next call on the tape, without the casts that it asks for. What a segment runs again
 * counts as backward. */
typedef struct gs_op_seconds {
    double forward, backward;
} gs_op_seconds;
GS_API const gs_op_seconds *gs_tape_op_seconds(const gs_tape *tape);

/* ---- values ---- */

/* Made by the calls below, on a tape, and read by the caller; it lives until gs_tape_begin. */
struct gs_value {
    gs_dtype dtype;
    int rank; /* 0: a scalar */
    size_t shape[4];
    size_t count;
    const void *data;
    const void *grad;        /* of the type of data, once backward has been here; NULL: none */
    const gs_weight *weight; /* NULL: not a weight */
    int needs_grad;
};

/* The caller's array, borrowed for the step. */
GS_API gs_value *gs_input(gs_tape *tape, gs_dtype dtype, int rank, const size_t *shape,
                          const void *data);
/* A weight, [rows, cols], or [cols] where there is one row. The struct is borrowed for the step. */
GS_API gs_value *gs_param(gs_tape *tape, const gs_weight *weight);

/* ---- operations ---- */

GS_API gs_value *gs_cast(gs_tape *tape, gs_value *x, gs_dtype dtype);
GS_API gs_value *gs_reshape(gs_tape *tape, gs_value *x, int rank, const size_t *shape);

/* x [..., k] w [n, k], or [k] where n is 1, b [n] or NULL -> [..., n]: x w^T + b */
GS_API gs_value *gs_linear(gs_tape *tape, gs_value *x, gs_value *w, gs_value *b);
/* a [..., m, k] b [..., k, n], or with `transposed` [..., n, k] -> [..., m, n] */
GS_API gs_value *gs_matmul(gs_tape *tape, gs_value *a, gs_value *b, int transposed);
/* x [images, h, w, ci] w [co, kernel * kernel * ci] b [co] or NULL -> [images, h', w', co] */
GS_API gs_value *gs_conv2d(gs_tape *tape, gs_value *x, gs_value *w, gs_value *b, size_t kernel,
                           size_t stride, size_t pad);
/* qkv [batch, t, 3 * heads * d] -> [batch, t, heads * d]: causal, scaled by 1 / sqrt(d) */
GS_API gs_value *gs_attention(gs_tape *tape, gs_value *qkv, size_t heads);
/* The same where groups of heads share keys and values: q [batch, t, heads * d], k and v [batch, t,
 * kv_heads * d], heads a multiple of kv_heads. k and v NULL: q holds all three, side by side. */
GS_API gs_value *gs_attention_grouped(gs_tape *tape, gs_value *q, gs_value *k, gs_value *v,
                                      size_t heads, size_t kv_heads);
/* The same without a mask: every token attends to all, as in an encoder. */
GS_API gs_value *gs_attention_unmasked(gs_tape *tape, gs_value *q, gs_value *k, gs_value *v,
                                       size_t heads, size_t kv_heads);
/* Keys and values of the n tokens before, of one layer: k [kv_heads, d, room], v [kv_heads, room,
 * d], of one type, in the caller's memory. */
typedef struct gs_kv {
    void *k, *v;
    gs_dtype dtype;
    size_t room, n;
} gs_kv;
/* gs_attention_grouped of a text whose last t tokens, q [1, t, heads * d], follow those of kv:
 * their part of the result, to the same bits. Their keys and values are written behind kv's; n
 * stays, for the caller to move. The dtype of kv is that of products. Not in training. */
GS_API gs_value *gs_attention_next(gs_tape *tape, gs_value *q, gs_value *k, gs_value *v,
                                   size_t heads, size_t kv_heads, const gs_kv *kv);
/* Rotary embedding (Su et al. 2021), as Llama has it: in each of the first `heads` heads of d
 * columns of x [batch, t, ...] the pairs i and i + d / 2 are rotated by the angles of their token,
 * the first one's being those of position `first` of the table. What is behind them is copied.
 * gs_rotary_fill makes a table [positions, d], the same on every machine, to be borrowed for the
 * step: angles position * theta^(-2 i / d), d even, theta at least 1. */
GS_API gs_value *gs_rotary(gs_tape *tape, gs_value *x, size_t heads, size_t d, const float *table,
                           size_t first);
GS_API void gs_rotary_fill(float *table, size_t positions, size_t d, double theta);
/* table [vocabulary, c], ids[rows] below vocabulary -> [rows, c]. ids are borrowed for the step. */
GS_API gs_value *gs_embedding(gs_tape *tape, gs_value *table, const int32_t *ids, size_t rows);

/* x [batch, t, c], row [c] -> [batch, t + 1, c]: a token that comes before those of every item.
 * Both are read as the mode stores weights; the result has the wider type. */
GS_API gs_value *gs_prepend(gs_tape *tape, gs_value *x, gs_value *row);
/* x [batch, t, c] -> [batch, c]: token i, below t, of every item. */
GS_API gs_value *gs_select(gs_tape *tape, gs_value *x, size_t i);

/* run(args, tape, x). A part of a model that, on a tape whose config says `recompute`, keeps
 * nothing but its x and its result: backward runs it again for what else it needs, to the same
 * bits, dropout included (in O1 with an f32 x that is cast outside, too, its gradients are rounded
 * in another order). Of values it may use x and what it makes itself, weights and inputs too.
 * args[size] is copied. A segment inside a segment is a part of it. */
typedef gs_value *gs_segment(const void *args, gs_tape *tape, gs_value *x);
GS_API gs_value *gs_recompute(gs_tape *tape, gs_value *x, gs_segment *run, const void *args,
                              size_t size);

/* Equal shapes; or b is a suffix of a's shape and is repeated. */
GS_API gs_value *gs_add(gs_tape *tape, gs_value *a, gs_value *b);
GS_API gs_value *gs_mul(gs_tape *tape, gs_value *a, gs_value *b);
GS_API gs_value *gs_relu(gs_tape *tape, gs_value *x);
GS_API gs_value *gs_gelu(gs_tape *tape, gs_value *x); /* the form with tanh, as GPT-2 has it */
GS_API gs_value *gs_gelu_erf(gs_tape *tape,
                             gs_value *x);            /* what that approximates, as ViT has it */
GS_API gs_value *gs_silu(gs_tape *tape, gs_value *x); /* x sigmoid(x) */
/* An element is 0 with probability p, 0 <= p < 1, and else x / (1 - p). */
GS_API gs_value *gs_dropout(gs_tape *tape, gs_value *x, float p);
/* Rounded to integers of 2 to 16 bits (8: INT8) that stand for -amax to amax, or 0 to amax, and
 * back, with a straight-through gradient: quantization-aware training. narrow: as many negative
 * ones as positive ones, -127 to 127. */
GS_API gs_value *gs_fake_quant(gs_tape *tape, gs_value *x, float amax, int bits, int is_unsigned,
                               int narrow);

/* [images, h, w, c] -> [images, h', w', c]: windows of at most 15 by 15, or 255 by 255 for means.
 * pad, at most half of the kernel: the windows of max_pool reach that far over the edges, where
 * there is nothing. */
GS_API gs_value *gs_max_pool(gs_tape *tape, gs_value *x, size_t kernel, size_t stride, size_t pad);
GS_API gs_value *gs_avg_pool(gs_tape *tape, gs_value *x, size_t kernel, size_t stride);
/* [images, h, w, c] -> [images, 1, 1, c]: the mean over each image, of any size. */
GS_API gs_value *gs_global_avg_pool(gs_tape *tape, gs_value *x);

/* Over the last axis; gamma and beta [c]. 1e-5 is added to the variance; or eps, above 0. */
GS_API gs_value *gs_layernorm(gs_tape *tape, gs_value *x, gs_value *gamma, gs_value *beta);
GS_API gs_value *gs_layernorm_eps(gs_tape *tape, gs_value *x, gs_value *gamma, gs_value *beta,
                                  float eps);

/* Over the last axis: x / sqrt(mean of x^2 + 1e-5) gamma, gamma [c]. */
GS_API gs_value *gs_rmsnorm(gs_tape *tape, gs_value *x, gs_value *gamma);

/* Over all but the last axis. mean[c] and var[c] are the running statistics, the caller's; a
 * training step moves them by `momentum`. */
typedef struct gs_running {
    float *mean, *var;
    float momentum;
} gs_running;
GS_API gs_value *gs_batchnorm(gs_tape *tape, gs_value *x, gs_value *gamma, gs_value *beta,
                              gs_running running);
GS_API gs_value *gs_softmax(gs_tape *tape, gs_value *x);

/* logits [..., classes], targets[rows], borrowed for the step, a negative one is left out -> the
 * mean over the rows that count, a scalar in f32. Backward may leave d(logits) in the place of the
 * logits: read them before. */
GS_API gs_value *gs_cross_entropy(gs_tape *tape, gs_value *logits, const int32_t *targets);
/* The mean of (x - y)^2. */
GS_API gs_value *gs_mse(gs_tape *tape, gs_value *x, gs_value *y);

#ifdef __cplusplus
}
#endif

#endif
