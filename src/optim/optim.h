/* What the files of the optimizer share. */
#ifndef GSI_OPTIM_H
#define GSI_OPTIM_H

#include "gradscale/optim.h"
#include "kernel/pass/chunks.h"

#include <float.h>

enum { GSI_EXPONENT = 60 }; /* moments in f16 are scaled by 2^-60 to 2^60 */

/* Their names, as settings and checkpoints have them. */
extern const char *const gsi_optim_kinds[GS_OPTIM_COUNT];
extern const char *const gsi_roundings[GS_ROUNDING_COUNT];

/* What a chunk of a pass leaves; sums are folded in order. */
typedef struct gsi_result {
    gsi_norms norms;
    uint32_t top;        /* bits of the largest |weight| written */
    uint32_t moments[2]; /* and of moments in half types, as stored */
} gsi_result;

/* Adafactor cuts a matrix into tiles: see adafactor.c. */
typedef struct gsi_tiles {
    size_t first;        /* number of its first tile */
    size_t down, across; /* 0: a vector, or too narrow */
} gsi_tiles;

/* What a weight has of its own. */
typedef struct gsi_weight_own {
    double lr_factor, decay;
    uint64_t steps; /* in which it had a gradient: t before the step */
    /* of the step under way, from its t */
    double unbias; /* Adam, LAMB */
    float root;
    float beta2, rest2; /* Adafactor */
} gsi_weight_own;

struct gs_optim {
    gs_context *ctx;
    gs_optim_config config;
    gs_optim_state state;

    size_t n;
    gs_weight *weights;
    gs_tensor *data, *grads; /* of the weights, as lists; a gradient that is missing has count 0 */
    bool missing;            /* some gradient is */
    gsi_weight_own *own;     /* [n] */
    double most_decay;       /* the largest of any weight */
    gsi_cut cut;             /* of data */
    gsi_result *results;     /* one per chunk */
    float *alpha;            /* [n]: LAMB's and Adafactor's learning rate of each weight */
    gs_tensor *clear;        /* gs_optim_also_clear */
    size_t n_clear;

    gs_tensor *slots;            /* [n][GS_SLOT_COUNT] */
    void *blocks[GS_SLOT_COUNT]; /* flat, one per slot */

    struct {              /* Adafactor */
        gsi_tiles *tiles; /* one per weight */
        size_t *owner;    /* of a tile: its weight */
        size_t n_tiles;
        double *sums;            /* of squares, for every tile: of its rows, of its columns */
        float *row, *col;        /* 1 / sqrt of the factors, of all weights */
        size_t *row_at, *col_at; /* where those of a weight start */
        float *shrink;           /* [n]: what clipping leaves of a direction */
    } factor;
};

/* One applied step, decided. */
typedef struct gsi_update {
    gs_optim *optim;
    double unscale; /* clip / scale */
    double lr;
    double amax; /* no gradient is larger, in true units and clipped by value */
    uint64_t t;  /* 1 in the first */
    float limit; /* clip_value, or infinite */
    bool stream;
    float load[2], save[2]; /* what half moments are multiplied by; m and the root of v */
    gsi_sgd sgd;
    gsi_adam adam;
    gsi_factor factor;
} gsi_update;

static inline gs_tensor *gsi_slot_of(const gs_optim *o, size_t t, gs_slot slot)
{
    return &o->slots[t * GS_SLOT_COUNT + slot];
}

/* A setting as the kernels take it: what f32 has no normal number for is zero. */
static inline float gsi_setting(double x)
{
    const float f = (float)x;
    return f < FLT_MIN && f > -FLT_MIN ? 0 : f;
}

static inline bool gsi_has_grad(const gs_optim *o, size_t t)
{
    return o->grads[t].count == o->data[t].count;
}

static inline double gsi_lr_of(const gsi_update *u, size_t t)
{
    return u->lr * u->optim->own[t].lr_factor;
}

static inline bool gsi_is_half(gs_dtype type) { return type == GS_F16 || type == GS_BF16; }

/* Everything the list holds, and `grads` in place of its gradients unless NULL: sound, and none of
 * it any part of another. */
gs_status gsi_check_arrays(gs_context *ctx, const gs_weight *list, const gs_tensor *grads,
                           size_t n);

/* No gaps between rows: the kernels of an optimizer take plain arrays. */
gs_status gsi_check_contiguous(gs_context *ctx, const gs_tensor *x, const char *name);

/* A base learning rate, for every weight. */
gs_status gsi_check_lr(const gs_optim *o, double lr);

/* The exponent of the scale at which f16 holds magnitudes up to `most`. */
int gsi_moment_exponent(double most);

/* ---- pass.c ---- */

/* The kernel's work on a span: `slice` points to f32 arrays. */
typedef void gsi_kernel_fn(const gsi_update *u, const gsi_slice *slice, gsi_span at,
                           gsi_result *result);

enum { GSI_MOMENTS = 1, GSI_WEIGHTS = 2 }; /* what a pass writes */

/* Brings a chunk to f32, block by block where it is stored otherwise, runs the kernel, stores what
 * it wrote and leaves the chunk's result. */
void gsi_run_chunk(void *update, size_t chunk, int writes, gsi_kernel_fn *kernel);

/* Runs body(u, i) for every chunk. */
void gsi_for_chunks(gsi_update *u, gs_body *body);

/* The sums of weight t, folded by groups as those of a pass are. */
gsi_norms gsi_fold_norms(const gs_optim *o, size_t t);

/* Everything of the step but the counters. Cannot fail. */
void gsi_apply(gsi_update *u);

/* ---- adafactor.c ---- */

gs_status gsi_adafactor_create(gs_optim *o);
void gsi_adafactor_free(gs_optim *o);
void gsi_adafactor_apply(gsi_update *u);
bool gsi_is_factored(const gs_weight *w);

#endif
