/* What the files of the trainer share. */
#ifndef GSI_TRAIN_H
#define GSI_TRAIN_H

#include "gradscale/train.h"
#include "kernel/context.h"

struct gs_trainer {
    gs_context *ctx;
    gs_model *model;
    gs_tape *tape;
    gs_store *store;
    gs_optim *optim;
    gs_scaler scaler;
    gs_comm comm;
    uint64_t seed, steps;
    double loss_weight;
    int telemetry;
    float *kept; /* [model->states], as they were before the step */
    double lap;  /* when the phase began, in seconds */
};

/* ---- trainer.c: what the step is not to be read with ---- */

/* That there are items, and a micro-batch without is named. */
gs_status gsi_check_batch(gs_trainer *t, const gs_batch *micro, size_t n);
/* Of the dropout of micro-batch i of this step on this rank. */
uint64_t gsi_dropout_seed(const gs_trainer *t, size_t i);
/* The time since the last call belongs to the phase; row NULL: to none. */
void gsi_lap(gs_trainer *t, gs_train_row *row, gs_phase phase);
void gsi_note_memory(gs_memory *most, gs_memory memory);
/* For the one policy that counts large gradients. */
gs_status gsi_scan_exponents(gs_trainer *t, gs_step *step);
void gsi_keep_state(gs_trainer *t);
void gsi_restore_state(gs_trainer *t);
/* Puts back what the step moved and leaves the sentence in the context. */
gs_status gsi_give_up(gs_trainer *t, gs_step *step, gs_status status);

/* ---- model.c: making models ---- */

/* A model of `size` bytes, which begins with a gs_model, with room for entries, for `states` floats
 * in no more stretches than entries, and for the names. NULL: no memory, and the context says so.
 */
void *gsi_model_new(gs_context *ctx, size_t size, size_t entries, size_t states);
/* Adds a weight. */
void gsi_model_add(void *model, size_t rows, size_t cols, gs_init init, const char *format, ...)
    GSI_PRINTF(5, 6);
/* Names the next `count` of the states and returns where they lie. */
float *gsi_model_add_state(void *model, size_t count, const char *format, ...) GSI_PRINTF(3, 4);

/* Initial values of weight t: `count` of them, from element `first` on. */
void gsi_init_fill(float *data, size_t count, gs_init init, uint64_t seed, size_t t, size_t first);

#endif
