/* What the files of ranks share: ranks.c, ranks_step.c, ranks_compare.c, shard.c, unsharded.c. */
#ifndef GSI_TRAIN_RANKS_H
#define GSI_TRAIN_RANKS_H

#include "train/train.h"

/* Elements [first, first + count) of a weight: a rank has the parts of all weights that lie in its
 * pieces of the buckets. With one rank, the weights themselves. */
typedef struct gsi_part {
    size_t weight, first, count;
} gsi_part;

/* ZeRO-1. Where O2 has half copies, the store holds those alone, as its data; f32 weights are here.
 * Vectors (norms, biases) are read in f32, so every rank has all of them. */
typedef struct gsi_shard {
    bool apart;         /* f32 weights are here */
    gs_weight *weights; /* [model->n], apart: what the model reads */
    gs_weight *stepped; /* [parts] */
    char (*names)[80];  /* [parts]: "weight[first]" */
    float *masters;     /* of this rank's parts of matrices, in order */
    float *vectors;     /* all of them, in order */
    size_t *vector_at;  /* [model->n]: where each begins */
    float *packed;      /* [size][pack]: each rank's parts of vectors */
    size_t pack;
    gsi_part *list; /* room for any rank's parts */
} gsi_shard;

struct gsi_ranks {
    gs_ranks config;
    bool zero;
    gs_reducer *reducer; /* NULL: one rank */
    size_t n_parts;
    gsi_part *parts;         /* of this rank; with one rank, the weights */
    gs_tensor *grads;        /* [n_parts]: their gradients */
    size_t *starts;          /* [model->n + 1]: of the weights, in the flat arrays */
    uint64_t *items;         /* [size]: of the batch, on each rank */
    int items_request;       /* of their allgather */
    bool items_pending;      /* it has not ended */
    double *states;          /* [size][model->states]: each rank's share of the mean */
    gs_exponents *exponents; /* [size]: of each rank's part of the gradients */
    bool compared;           /* after the first step */
    gsi_shard shard;
};

/* What a rank found in a step. */
typedef struct gsi_rank_report {
    gs_status status; /* an error of its own, whose message is in the context */
    int32_t forward;
    double loss;
    gs_stats stored, grads;
} gsi_rank_report;

/* The parts of a rank, in order; returns how many. out may be NULL. */
size_t gsi_rank_parts(const gs_trainer *t, int rank, gsi_part *out);

gs_status gsi_shard_create(gs_trainer *t, const gs_trainer_config *config);
void gsi_shard_free(gs_trainer *t);
gs_status gsi_shard_allgather(gs_trainer *t);

#endif
