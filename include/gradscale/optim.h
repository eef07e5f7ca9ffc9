/* optim.h: optimizers with master weights, over your own arrays or a store of ours.
 *
 *     gs_weight list[] = {{.name = "fc", .rows = 64, .cols = 128,
 *                          .data = master, .dtype = GS_F32,      what is stepped
 *                          .copy = half, .copy_dtype = GS_F16,   what the model reads
 *                          .grad = grad, .grad_dtype = GS_F16}}; scaled gradients
 *     gs_optim_config config = {.size = sizeof config};
 *     gs_optim_config_init(&config, "adamw", NULL);
 *     gs_optim_config_set(&config, "lr=3e-4 weight_decay=0.1 clip_norm=1 schedule=cosine", NULL);
 *     gs_optim *optim;
 *     gs_optim_create(&optim, ctx, list, 1, &config);
 *     for each batch
 *         gs_step_begin(&step, &scaler);
 *         ... forward; backward of loss * step.scale into grad ...
 *         gs_optim_step(optim, &step, &scaler, &report);
 *
 * A step is all or nothing. The gradients are read once to be judged; then either every weight,
 * moment, average and counter moves, or none does, bit for bit. Gradients are unscaled, clipped
 * and used in the same pass. Threads and instruction sets change no bit of it.
 *
 * Numbers below 2.5e-29 (2^-95) count as zero in everything the optimizer stores: doc/optim.md.
 */
#ifndef GRADSCALE_OPTIM_H
#define GRADSCALE_OPTIM_H

#include "gradscale/scaler.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- weights ---- */

enum {
    GS_NO_DECAY = 1,  /* weight decay leaves it alone: biases, norms */
    GS_LATE_GRAD = 2, /* grad may be NULL: gs_optim_set_grads brings it */
};

/* A named array that is trained, wherever it lies. The arrays stay the caller's and must outlive
 * the optimizer; the name is copied. */
typedef struct gs_weight {
    const char *name;
    size_t rows, cols; /* row-major; a vector has 1 row */
    void *data;        /* stepped: f32, a master; or f16, bf16, trained without one */
    gs_dtype dtype;
    void *copy; /* of the data, written every step: f32 data to f16, bf16 or f32, half data to f32;
                   NULL: none */
    gs_dtype copy_dtype;
    void *grad; /* scaled */
    gs_dtype grad_dtype;
    unsigned flags; /* GS_NO_DECAY, GS_LATE_GRAD */
} gs_weight;

/* The same memory as flat blocks of ours: data, copies and gradients, each one array in which every
 * weight starts at the same, 32-element-aligned place. What lies between is zero and stays so. */
typedef struct gs_store gs_store;

typedef struct gs_store_types {
    gs_dtype data, copy, grad; /* copy equal to data: none */
} gs_store_types;

typedef struct gs_store_entry {
    const char *name;
    size_t rows, cols;
    unsigned flags;
} gs_store_entry;

/* All zero at first. Errors leave their message in the context, which must outlive the store. */
GS_API gs_status gs_store_create(gs_store **out, gs_context *ctx, const gs_store_entry *entries,
                                 size_t n, gs_store_types types);
GS_API void gs_store_free(gs_store *store);
GS_API const gs_weight *gs_store_weights(const gs_store *store, size_t *n);
GS_API const gs_weight *gs_store_find(const gs_store *store, const char *name); /* or NULL */
/* The blocks, each as one tensor: for one cast, one reduction over ranks, one write. */
GS_API gs_tensor gs_store_data(const gs_store *store);
GS_API gs_tensor gs_store_copies(const gs_store *store); /* count 0: there are none */
GS_API gs_tensor gs_store_grads(const gs_store *store);

/* ---- learning rates ---- */

/* Factors on lr as a function of t, the number of steps applied before: a skipped step does not
 * move the schedule. All rise linearly over `warmup` steps first. */
#define GS_SCHEDULES(X)                                             \
    X(CONSTANT, "constant")                                         \
    X(LINEAR, "linear")     /* falls to `final` at `total` */       \
    X(COSINE, "cosine")     /* the same along half a cosine */      \
    X(STEP, "step")         /* times `gamma` every `every` steps */ \
    X(ONECYCLE, "onecycle") /* `warmup` is the rise, along a cosine from 1/25; then cosine */

typedef enum gs_schedule_kind {
#define X(id, name) GS_SCHEDULE_##id,
    GS_SCHEDULES(X)
#undef X
        GS_SCHEDULE_COUNT
} gs_schedule_kind;

typedef struct gs_schedule {
    gs_schedule_kind kind;
    uint64_t warmup, total, every;
    double final, gamma;
} gs_schedule;

GS_API double gs_schedule_factor(const gs_schedule *schedule, uint64_t t); /* 0..1 */

/* ---- settings ---- */

#define GS_OPTIMS(X)                                 \
    X(SGD, "sgd")             /* one pass */         \
    X(ADAM, "adam")           /* one pass */         \
    X(ADAMW, "adamw")         /* one pass */         \
    X(LAMB, "lamb")           /* two: norms, step */ \
    X(ADAFACTOR, "adafactor") /* three, vectors two */

typedef enum gs_optim_kind {
#define X(id, name) GS_##id,
    GS_OPTIMS(X)
#undef X
        GS_OPTIM_COUNT
} gs_optim_kind;

/* How half weights that have no master take a step smaller than their spacing. */
#define GS_ROUNDINGS(X)                                                         \
    X(NEAREST, "nearest")       /* they do not: training stalls */              \
    X(STOCHASTIC, "stochastic") /* now and then, right on average; no memory */ \
    X(KAHAN, "kahan")           /* what was cut off is kept, 2 bytes per weight */

typedef enum gs_weight_rounding {
#define X(id, name) GS_ROUND_##id,
    GS_ROUNDINGS(X)
#undef X
        GS_ROUNDING_COUNT
} gs_weight_rounding;

/* The keys of gs_optim_config_set are the names here; those of the schedule are schedule, warmup,
 * total, every, final, gamma. */
typedef struct gs_optim_config {
    size_t size; /* sizeof(gs_optim_config) */
    gs_optim_kind kind;
    double lr;
    double momentum, dampening; /* SGD */
    int nesterov;
    double beta1, beta2, eps; /* Adam, AdamW, LAMB */
    double weight_decay;      /* added to the gradient by SGD and Adam, decoupled in the others */
    double factor_decay;      /* Adafactor: beta2 is 1 - t^-factor_decay */
    double factor_eps;        /* added to its squares */
    double factor_clip;       /* the largest root mean square of a direction */
    double factor_least;      /* lr is relative to the weights' root mean square, at least this */
    double clip_norm, clip_value; /* in true units, the norm first; 0: off */
    double ema;                   /* decay of an average of the weights; 0: none */
    gs_schedule schedule;
    gs_weight_rounding rounding;
    gs_dtype moments; /* f32; f16 or bf16: half the memory, rounded stochastically */
    uint64_t seed;    /* of stochastic rounding */
    int clear_grads;  /* after a step that was not applied: 1 */
} gs_optim_config;

/* The defaults of PyTorch for its three, of the papers for the others. */
GS_API gs_status gs_optim_config_init(gs_optim_config *config, const char *kind, gs_error *error);
/* "key=value key=value ...", all or nothing. */
GS_API gs_status gs_optim_config_set(gs_optim_config *config, const char *list, gs_error *error);
GS_API gs_status gs_optim_config_check(const gs_optim_config *config, gs_error *error);
GS_API const char *gs_optim_key(size_t i); /* NULL: no more */

/* ---- the optimizer ---- */

typedef struct gs_optim gs_optim;

/* The context must outlive it and serves it alone. */
GS_API gs_status gs_optim_create(gs_optim **out, gs_context *ctx, const gs_weight *list, size_t n,
                                 const gs_optim_config *config);
GS_API void gs_optim_free(gs_optim *optim);
GS_API const gs_optim_config *gs_optim_get_config(const gs_optim *optim);

/* What else is cleared with the gradients after a step that was not applied: buffers they are
 * accumulated in, contiguous. The list is copied. */
GS_API gs_status gs_optim_also_clear(gs_optim *optim, const gs_tensor *list, size_t n);
GS_API void gs_optim_clear_grads(gs_optim *optim);

typedef struct gs_optim_report {
    gs_verdict verdict;
    double norm; /* of all gradients, in true units, before clipping; Inf or NaN if they are */
    double clip; /* what clip_norm multiplied them by, at most 1 */
    double lr;   /* of this step, or of the step that was not taken */
    double weight_amax; /* the largest |weight| after an applied step; above 65504 an f16 copy is
                           Inf there */
} gs_optim_report;

/* One step: scan, gs_step_end, act. report may be NULL. Where gs_step_unscale was called it was for
 * all gradients, or this is GS_ESTATE. */
GS_API gs_status gs_optim_step(gs_optim *optim, gs_step *step, gs_scaler *scaler,
                               gs_optim_report *report);

/* Its parts, for what must happen in between: merging ranks, windows, groups. `act` does what the
 * verdict says, with the scale, statistics and unscaled flag of the step. On an error nothing has
 * changed. */
GS_API gs_status gs_optim_scan(gs_optim *optim, gs_step *step);
GS_API gs_status gs_optim_act(gs_optim *optim, const gs_step *step, gs_verdict verdict,
                              gs_optim_report *report);

/* ---- under another loop ---- */

/* The base learning rate from the next step on, in place of the setting `lr`: a step takes it times
 * the schedule's factor. Where the caller has a schedule of its own, ours is `constant`, and the
 * step takes exactly this. gs_optim_state carries it. */
GS_API gs_status gs_optim_set_lr(gs_optim *optim, double lr);
GS_API double gs_optim_lr(const gs_optim *optim);

/* Parameter groups: what weight t has for itself, in place of a factor of 1 on lr, and of the
 * setting weight_decay, or 0 with GS_NO_DECAY. They are settings and no part of the state. */
GS_API gs_status gs_optim_set_lr_factor(gs_optim *optim, size_t t, double factor);
GS_API gs_status gs_optim_set_weight_decay(gs_optim *optim, size_t t, double decay);

/* The gradients of the next steps: one tensor per weight, in their order and as long as they are,
 * contiguous, in any of the three types. Data NULL: no gradient. Such a weight is left alone by a
 * step: no decay, no moments, no average, and its own t stands still, as with PyTorch's
 * set_to_none. The list is copied; the arrays must stay until the step is over. On an error the
 * old ones stay. */
GS_API gs_status gs_optim_set_grads(gs_optim *optim, const gs_tensor *grads, size_t n);

/* ---- state, for checkpoints ---- */

/* What it keeps for each weight. */
#define GS_SLOTS(X)                                                       \
    X(M, "m")       /* first moment or momentum */                        \
    X(V, "v")       /* second moment; in half types its square root */    \
    X(REST, "rest") /* what rounding cut off, for kahan */                \
    X(EMA, "ema")                                                         \
    X(ROW, "row") /* Adafactor: means of squares over rows and columns */ \
    X(COL, "col")

typedef enum gs_slot {
#define X(id, name) GS_SLOT_##id,
    GS_SLOTS(X)
#undef X
        GS_SLOT_COUNT
} gs_slot;

GS_API const char *gs_slot_name(gs_slot slot);
/* The array of weight t, named as the weight; count 0: there is none. Write to it to restore. */
GS_API gs_tensor gs_optim_slot(gs_optim *optim, size_t t, gs_slot slot);

/* The same in true units, f32, whatever it is stored in: v is v, not its root, and no scale is left
 * on moments in f16. `count` is that of the slot. What is written is rounded to nearest; below
 * 2^-95 (m) or 2^-125 (v) it is zero. Refused: Inf, NaN, and a v below 0. Read and written back
 * into an optimizer made the same way, with its t, training goes on bit for bit. */
GS_API gs_status gs_optim_read_slot(float *out, const gs_optim *optim, size_t t, gs_slot slot,
                                    size_t count);
GS_API gs_status gs_optim_write_slot(gs_optim *optim, size_t t, gs_slot slot, const float *values,
                                     size_t count);

typedef struct gs_optim_state {
    uint64_t applied, skipped, retried;
    double bound[2];     /* of |m| and sqrt(v), from which moments in f16 take their scale */
    int32_t exponent[2]; /* of those scales */
    int32_t lr_set;      /* 1: lr is what gs_optim_set_lr set; 0: lr is that of the settings */
    int32_t reserved;
    double lr;
} gs_optim_state;

GS_API gs_optim_state gs_optim_get_state(const gs_optim *optim);
/* t of every weight becomes `applied`. */
GS_API gs_status gs_optim_set_state(gs_optim *optim, const gs_optim_state *state);

/* Adam's t. The first two are `applied`, which the schedule runs on; to set it sets t of every
 * weight. A weight's own t counts the steps in which it had a gradient. SGD and the average ask
 * only whether it is 0: then m and ema start from this step. */
GS_API uint64_t gs_optim_steps(const gs_optim *optim);
GS_API gs_status gs_optim_set_steps(gs_optim *optim, uint64_t steps);
GS_API uint64_t gs_optim_weight_steps(const gs_optim *optim, size_t t);
GS_API gs_status gs_optim_set_weight_steps(gs_optim *optim, size_t t, uint64_t steps);

#ifdef __cplusplus
}
#endif

#endif
