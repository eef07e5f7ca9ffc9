/* What the files of the trainer share. */
#ifndef GSI_TRAIN_H
#define GSI_TRAIN_H

#include "comm/comm.h"
#include "gradscale/train.h"

typedef struct gsi_ranks gsi_ranks;

struct gs_trainer {
    gs_context *ctx;
    gs_model *model;
    gs_tape *tape;
    gs_store *store;
    gs_optim *optim;
    gs_scaler scaler;
    gs_comm comm;
    gsi_ranks *ranks;
    void *gather_buffer; /* one struct per rank: reports, errors, fingerprints */
    uint64_t seed, steps;
    double loss_weight;
    float *kept;        /* [model->states], as they were before the step */
    double phase_start; /* gs_clock */
};

/* ---- trainer.c: what would stand in the way of reading a step ---- */

/* That the model is this trainer's, that there are items, and a micro-batch without is named. A
 * rank among others may have none. */
gs_status gsi_check_batch(gs_trainer *t, const gs_batch *micro, size_t n);
/* Of the dropout of micro-batch i of this step on this rank. */
uint64_t gsi_dropout_seed(const gs_trainer *t, size_t i);
/* The time since the last call belongs to the phase that ends; row NULL: to none. */
void gsi_phase_end(gs_trainer *t, gs_train_row *row, gs_phase phase);
/* Adds what the tape counted in the micro-batch it has run. */
void gsi_note_tape(const gs_trainer *t, gs_train_row *row);
/* Statistics of this rank's part of the gradients: of all, with one rank. */
gs_status gsi_grads_scan(gs_trainer *t, gs_stats *stats);
/* Their histogram, of all ranks, for the one policy that counts large gradients. */
gs_status gsi_grads_exponents(gs_trainer *t, gs_step *step);
void gsi_keep_state(gs_trainer *t);
void gsi_restore_state(gs_trainer *t);
/* Puts back what the step moved. */
void gsi_give_up(gs_trainer *t, gs_step *step);

/* ---- ranks.c, ranks_step.c, ranks_compare.c: what several ranks do together ---- */

/* Needs the store; says what the model reads and what the optimizer steps. */
gs_status gsi_ranks_create(gs_trainer *t, const gs_trainer_config *config);
void gsi_ranks_free(gs_trainer *t);
const gs_weight *gsi_model_weights(const gs_trainer *t);
const gs_weight *gsi_optim_weights(const gs_trainer *t, size_t *n); /* with ZeRO-1, parts */

/* A step, in the order of the calls. Where a row is passed, the call ends the phase COMM. With one
 * rank they do nothing. */

/* Starts the allgather of the number of items and does not wait. */
gs_status gsi_ranks_send_items(gs_trainer *t, const gs_batch *micro, size_t n);
/* Gradients are not yet summed. */
void gsi_ranks_begin(gs_trainer *t);
/* Sums over ranks begin while the last micro-batch runs backward. */
void gsi_ranks_overlap(gs_trainer *t, bool last);
/* *items, those of this rank, becomes the sum over ranks; none at all is an error. */
gs_status gsi_ranks_items(gs_trainer *t, double *items, gs_train_row *row);
/* For several ranks: sums the gradients, scans this rank's part and merges the rank reports. grads,
 * row->loss, row->stored and step->forward become those of all ranks. `mine` is this rank's error,
 * whose message is in the context; the result is the first error of any rank, with a message
 * everywhere. */
gs_status gsi_ranks_merge(gs_trainer *t, gs_status mine, gs_step *step, gs_stats *grads,
                          gs_train_row *row);
/* `found`, the histogram of this rank's part of the gradients, becomes that of all. */
gs_status gsi_ranks_exponents(gs_trainer *t, gs_status mine, gs_exponents *found);
/* After a step that was applied: sharded weights go to all, running statistics become a mean. */
gs_status gsi_ranks_share(gs_trainer *t, gs_train_row *row);
/* Whether all ranks hold the same, every so many steps. */
gs_status gsi_ranks_compare(gs_trainer *t, gs_train_row *row);
uint64_t gsi_ranks_sent(const gs_trainer *t);

/* GS_OK if `mine` is that on every rank; else an error on all, with the first one's message. */
gs_status gsi_ranks_first_error(gs_trainer *t, gs_status mine, gs_error *error);
/* Whether all ranks hold the same, now. */
gs_status gsi_ranks_compare_now(gs_trainer *t);

/* ---- shard.c: ZeRO-1; without it, nothing ---- */

/* The first values of f32 weights that are not in the store. */
void gsi_shard_init(gs_trainer *t);
/* Half copies of f32 weights that were written to, on every rank. */
gs_status gsi_shard_sync(gs_trainer *t);

/* The type of what is trained: of the master weights, or of half ones without. */
gs_dtype gsi_trained_type(const gs_trainer *t);

/* ---- unsharded.c: the unsharded form of a sharded state, for checkpoints ---- */

enum { GSI_FAMILIES = 1 + GS_SLOT_COUNT }; /* f32 weights, then the slots */

/* The layout of a block that holds the arrays of all ranks. */
typedef struct gsi_unsharded {
    bool sharded;             /* false: every rank has all, and the block is empty */
    bool there[GSI_FAMILIES]; /* in the block */
    gs_dtype types[GSI_FAMILIES];
    size_t at[GSI_FAMILIES + 1]; /* offset of each in bytes; the last: the size */
} gsi_unsharded;

gsi_unsharded gsi_unsharded_of(const gs_trainer *t);
/* In the block, in bytes, of a weight's array of a family. */
size_t gsi_unsharded_offset(const gs_trainer *t, const gsi_unsharded *u, int family, size_t weight);
/* Every rank calls it. block NULL: this one does not keep the result. */
gs_status gsi_unsharded_allgather(gs_trainer *t, const gsi_unsharded *u, char *block);
/* Takes this rank's parts of a weight's unsharded array. */
void gsi_unsharded_take(gs_trainer *t, const gsi_unsharded *u, int family, size_t weight,
                        const void *array);

/* ---- model.c: making models ---- */

/* A model of `size` bytes, which begins with a gs_model, with room for entries, for `states` floats
 * in no more arrays than entries, and for the names. Its loss is the cross-entropy of its
 * logits, which are to be set. NULL: no memory, and the context says so. */
void *gsi_model_new(gs_context *ctx, size_t size, size_t entries, size_t states);
/* Adds a weight. */
void gsi_model_add(void *model, size_t rows, size_t cols, gs_init init, const char *format, ...)
    GS_PRINTF(5, 6);
/* How other makes hold the weight that was added last. */
void gsi_model_layout(void *model, gs_layout layout);
/* Names the next `count` of the states and returns where they lie. */
float *gsi_model_add_state(void *model, size_t count, const char *format, ...) GS_PRINTF(3, 4);

/* Where the ranges lie, n_ranges of them; whether there are some for a tape that quantises. */
float *gsi_model_ranges(const gs_model *m);
gs_status gsi_check_ranges(gs_context *ctx, const gs_model *m, gs_quantize how);

/* Initial values of weight t: `count` of them, from element `first` on. */
void gsi_init_fill(float *data, size_t count, gs_init init, uint64_t seed, size_t t, size_t first);

/* ---- conv_norm.c: a convolution without a bias, then batchnorm ---- */

typedef struct gsi_hwc { /* the size of an image */
    size_t h, w, c;
} gsi_hwc;

typedef struct gsi_conv {
    size_t out, kernel, stride;
    float std; /* of its first values */
} gsi_conv;

/* Adds the filters, gamma, beta and the running statistics of the layer that reads x; returns the
 * size of what it makes. */
gsi_hwc gsi_model_add_conv_norm(void *model, gsi_hwc x, gsi_conv c, const char *conv,
                                const char *norm);

/* Where a forward pass stands in the lists of a model, which it walks in the order in which they
 * were made. */
typedef struct gsi_walk {
    gs_tape *t;
    const gs_weight *w;
    float *state;
} gsi_walk;

gs_value *gsi_conv_norm(gsi_walk *at, gs_value *x, size_t kernel, size_t stride);

#endif
