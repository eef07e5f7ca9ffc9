/* What host and device share. Members of 8 bytes come first, so that all compilers agree.
 *
 * A step is scan, decide, act. All kernels have the same arguments, ARGUMENTS, so that the runtime
 * sets them once for a plan. */
#ifndef GSI_DEVICE_TYPES_H
#define GSI_DEVICE_TYPES_H

#include "device/kernels/lang.h"

#define GSD_CHUNK   65536u /* elements: GSI_CHUNK of libgradscale */
#define GSD_BLOCK   512u   /* GSI_BLOCK */
#define GSD_LANES   32u    /* GSI_LANES */
#define GSD_GROUP   4096u  /* chunks: GSI_FOLD_GROUP */
#define GSD_WARPS   (GSD_THREADS / GSD_LANES)
#define GSD_SLICE   (GSD_WARPS * GSD_BLOCK) /* elements of a chunk that are staged at a time */
#define GSD_STEPS   (GSD_BLOCK / GSD_LANES)
#define GSD_INF     0x7F800000u
#define GSD_NOWHERE 0xFFFFFFFFu
#define GSD_NO_COPY 15u /* in place of a type */
#define GSD_REPORTS 64u /* the ring of them */

/* gsd_settings.unscale: what scan writes. */
#define GSD_FUSED    0u /* nothing; act unscales as it reads */
#define GSD_IN_PLACE 1u
#define GSD_TO_F32   2u /* act reads what scan wrote */

typedef struct gsd_tensor {
    uint64_t grad, out, weight, copy, m, v; /* bytes from the base of each; addresses with CUDA */
    uint64_t count;
    double lr_factor, decay;
    uint32_t first_chunk, chunks;
    uint32_t grad_type, weight_type, copy_type; /* GS_F32, GS_F16, GS_BF16; GSD_NO_COPY */
    uint32_t reserved;
} gsd_tensor;

typedef struct gsd_chunk {
    uint64_t first; /* element of the tensor */
    uint32_t tensor, reserved;
} gsd_chunk;

/* What scan leaves of a chunk, besides its sum of squares. */
typedef struct gsd_found {
    uint32_t elements, inf, nan, zero, subnormal, underflow;
    uint32_t amax; /* bits */
    uint32_t bad;  /* the first element that is not finite, or GSD_NOWHERE */
} gsd_found;

/* Settings that depend on t, made by the host, whose libm knows pow and cos. */
typedef struct gsd_row {
    double lr, unbias;
    float root, gain;
} gsd_row;

/* LAMB: what a chunk leaves for the trust ratio. */
typedef struct gsd_norms {
    double weight, direction;
} gsd_norms;

typedef struct gsd_settings {
    double clip_norm;
    double headroom;    /* policy headroom: the largest scaled amax that it aims at */
    uint64_t seed;      /* of stochastic rounding */
    uint64_t first_row; /* `applied` of rows[0] */
    uint32_t rows, chunks, ranks, rank;
    float beta1, rest1, beta2, rest2, eps, momentum, limit;
    uint32_t kind, momentum_on, nesterov, stochastic, clear, unscale;
    uint32_t underflow, subnormal; /* magnitudes, as gsi_limits; 0: nothing is counted */
} gsd_settings;

/* What the caller's kernels and PyTorch's fused optimizers read. */
typedef struct gsd_words {
    float scale, inverse;   /* of the step that comes */
    float found_inf, apply; /* of the step that was */
} gsd_words;

typedef struct gsd_report {
    uint64_t step; /* number of the attempt, from 1; 0: none yet */
    double scale, next_scale, norm, clip, lr;
    gs_stats stats;
    uint32_t action, reason;
    uint32_t exhausted; /* the table of settings has no row for it: nothing was done */
    uint32_t reserved;
    uint64_t check;              /* hash of all before: the host sees whether it has all of it */
    uint32_t weight_top, unused; /* of act, and so no part of the hash */
} gsd_report;

typedef struct gsd_state {
    gsd_words words; /* first: gs_device_plan_words */
    gs_scaler scaler;
    double scale, inverse; /* of the step that comes */
    uint64_t attempted, applied, skipped;
    uint64_t t;     /* of the step that act takes, from 1 */
    uint32_t apply; /* what act does */
    uint32_t clear; /* act clears the gradients */
    uint32_t row, slot;
    float unscale;
    uint32_t reserved;
} gsd_state;

#define ARGUMENTS                                                                            \
    GLOBAL uint8_t *grad_base, GLOBAL uint8_t *out_base, GLOBAL uint8_t *weight_base,        \
        GLOBAL uint8_t *copy_base, GLOBAL uint8_t *m_base, GLOBAL uint8_t *v_base,           \
        const GLOBAL gsd_tensor *tensors, const GLOBAL gsd_chunk *chunks,                    \
        const GLOBAL gsd_settings *set, const GLOBAL gsd_row *rows, GLOBAL gsd_state *state, \
        GLOBAL double *sums, GLOBAL gsd_found *found, GLOBAL gsd_norms *norms,               \
        GLOBAL gs_stats *gathered, GLOBAL gsd_report *reports, uint64_t seed, uint32_t option

#endif
