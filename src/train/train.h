/* What the files of the trainer share. */
#ifndef GSI_TRAIN_H
#define GSI_TRAIN_H

#include "comm/comm.h"
#include "gradscale/train.h"

typedef struct gsi_team gsi_team;

struct gs_trainer {
    gs_context *ctx;
    gs_model *model;
    gs_tape *tape;
    gs_store *store;
    gs_optim *optim;
    gs_scaler scaler;
    gs_comm comm;
    gsi_team *team;
    void *meet; /* room for a struct of each rank: those that are gathered in every step */
    uint64_t seed, steps;
    double loss_weight;
    float *kept; /* [model->states], as they were before the step */
    double lap;  /* when the phase began, in seconds */
};

/* ---- trainer.c: what would stand in the way of reading a step ---- */

/* That the model is this trainer's, that there are items, and a micro-batch without is named. A
 * rank among others may have none. */
gs_status gsi_check_batch(gs_trainer *t, const gs_batch *micro, size_t n);
/* Of the dropout of micro-batch i of this step on this rank. */
uint64_t gsi_dropout_seed(const gs_trainer *t, size_t i);
/* The time since the last call belongs to the phase; row NULL: to none. */
void gsi_lap(gs_trainer *t, gs_train_row *row, gs_phase phase);
/* What the tape tells of the micro-batch it has run. */
void gsi_note_tape(const gs_trainer *t, gs_train_row *row);
void gsi_keep_state(gs_trainer *t);
void gsi_restore_state(gs_trainer *t);
/* Puts back what the step moved. */
void gsi_give_up(gs_trainer *t, gs_step *step);

/* ---- team.c: what ranks do together in a step; alone, as little as it takes ---- */

/* Needs the store; says what the model reads and what the optimizer steps. */
gs_status gsi_team_create(gs_trainer *t, const gs_trainer_config *config);
void gsi_team_free(gs_trainer *t);
const gs_weight *gsi_team_weights(const gs_trainer *t);
const gs_weight *gsi_team_stepped(const gs_trainer *t, size_t *n);

/* Tells the others how many items this rank has, and does not wait. */
gs_status gsi_items_tell(gs_trainer *t, const gs_batch *micro, size_t n);
/* Waits for what the others told; none at all is an error. */
gs_status gsi_items_of_all(gs_trainer *t, double *items);

/* From here on gradients count as zero. */
void gsi_grads_begin(gs_trainer *t);
/* Sums over ranks begin while the last micro-batch runs backward. */
void gsi_grads_watch(gs_trainer *t, bool last);
/* Waits for the sums of this rank's part. */
gs_status gsi_grads_sum(gs_trainer *t);
/* Waits for the sums that others made, where this rank needs them. */
gs_status gsi_grads_end(gs_trainer *t);
/* Of its part. */
gs_status gsi_grads_scan(gs_trainer *t, gs_stats *stats);
/* For the one policy that counts large gradients. */
gs_status gsi_grads_exponents(gs_trainer *t, gs_step *step);

/* What a rank saw; after the call, what all saw. `status` is an error of its own, whose sentence is
 * in the context; the result is the first error of any rank, with a sentence everywhere. */
typedef struct gsi_seen {
    gs_status status;
    int32_t forward;
    double loss;
    gs_stats stored, grads;
} gsi_seen;
gs_status gsi_agree(gs_trainer *t, gsi_seen *seen);

/* After a step that was applied: sharded weights go to all, running statistics become a mean. */
gs_status gsi_team_share(gs_trainer *t);
/* Whether all ranks hold the same, every so many steps. */
gs_status gsi_team_compare(gs_trainer *t);
uint64_t gsi_team_sent(const gs_trainer *t);

/* ---- shard.c: ZeRO-1; without it, nothing ---- */

/* The first values of f32 weights that are not in the store. */
void gsi_shard_init(gs_trainer *t);
/* Half copies of f32 weights that were written to, on every rank. */
gs_status gsi_shard_sync(gs_trainer *t);

/* The type of what is trained: of the master weights, or of half ones without. */
gs_dtype gsi_trained_type(const gs_trainer *t);

/* ---- whole.c: all of a sharded state, for checkpoints ---- */

enum { GSI_FAMILIES = 1 + GS_SLOT_COUNT }; /* f32 weights, then the slots */

typedef struct gsi_whole {
    bool sharded; /* else there is nothing to it: every rank has all */
    bool there[GSI_FAMILIES];
    gs_dtype types[GSI_FAMILIES];
    size_t at[GSI_FAMILIES + 1]; /* bytes of the block before each; the last: of all */
} gsi_whole;

gsi_whole gsi_whole_of(const gs_trainer *t);
/* Every rank calls it. base NULL: this one has no use for it. */
gs_status gsi_whole_gather(gs_trainer *t, const gsi_whole *w, char *base);
/* Takes this rank's parts of the array that lies `at` in such a block. */
void gsi_whole_take(gs_trainer *t, const gsi_whole *w, size_t at, const void *bytes);

/* GS_OK if it is that on every rank; else an error on all, with the first one's sentence. */
gs_status gsi_team_agree(gs_trainer *t, gs_status mine, gs_error *error);
/* Whether all ranks hold the same, now. */
gs_status gsi_team_compare_now(gs_trainer *t);

/* ---- model.c: making models ---- */

/* A model of `size` bytes, which begins with a gs_model, with room for entries, for `states` floats
 * in no more stretches than entries, and for the names. Its loss is the cross-entropy of its
 * logits, which are to be set. NULL: no memory, and the context says so. */
void *gsi_model_new(gs_context *ctx, size_t size, size_t entries, size_t states);
/* Adds a weight. */
void gsi_model_add(void *model, size_t rows, size_t cols, gs_init init, const char *format, ...)
    GS_PRINTF(5, 6);
/* Names the next `count` of the states and returns where they lie. */
float *gsi_model_add_state(void *model, size_t count, const char *format, ...) GS_PRINTF(3, 4);

/* Initial values of weight t: `count` of them, from element `first` on. */
void gsi_init_fill(float *data, size_t count, gs_init init, uint64_t seed, size_t t, size_t first);

#endif
