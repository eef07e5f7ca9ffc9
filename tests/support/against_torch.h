/* against_torch.h: a model beside PyTorch's. The truth is PyTorch's f64, and a bound is a multiple
 * of how far PyTorch itself is from it, so that no tolerance is invented. GS_SHOW=1 prints the
 * multiples that were measured. */
#ifndef AGAINST_TORCH_H
#define AGAINST_TORCH_H

#include "test.h"

#include "gradscale/train.h"

#include <math.h>

typedef struct job {
    gs_context *ctx;
    gs_model *model;
    gs_trainer *trainer;
} job;

/* Makes the trainer of a job whose context and model are there: AdamW, at a scale of 1024. */
static inline void job_trainer(job *j, gs_mode mode, gs_dtype half, const char *settings)
{
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = mode, .half = half}};
    CHECK(gs_optim_config_init(&config.optim, "adamw", NULL) == GS_OK);
    CHECK(gs_optim_config_set(&config.optim, settings, NULL) == GS_OK);
    CHECK(gs_scaler_init(&config.scaler, "static:1024", NULL) == GS_OK);
    CHECK(gs_trainer_create(&j->trainer, j->ctx, j->model, &config) == GS_OK);
}

static inline void job_free(job *j)
{
    gs_trainer_free(j->trainer);
    gs_model_free(j->model);
    gs_context_free(j->ctx);
}

static inline void show(const char *name, const char *what, double worst)
{
    if (getenv("GS_SHOW"))
        printf("%s: %s at most %.3f times as far as PyTorch's\n", name, what, worst);
}

/* The norm of the difference over the norm of the truth. A gradient lies in the store as it was
 * scaled; element k is at at[k], or where it is if `at` is NULL. */
static inline double distance_of(const float *grad, const size_t *at, const float *truth, size_t n)
{
    double off = 0, norm = 0;
    for (size_t k = 0; k < n; k++) {
        const double want = (double)truth[k];
        off += pow((double)grad[at ? at[k] : k] / 1024 - want, 2);
        norm += want * want;
    }
    CHECK(norm > 0);
    return sqrt(off / norm);
}

typedef struct torch_losses {
    const float *truth, *pytorch; /* [steps] */
    size_t steps;
} torch_losses;

/* Step i. Returns how many times as far its loss is as the farthest of PyTorch's. */
static inline double check_step(job *j, const gs_batch *batch, torch_losses losses, size_t i,
                                double factor, const char *name)
{
    double most = 0x1p-22; /* of a loss of 4: a unit in the last place */
    for (size_t k = 0; k < losses.steps; k++)
        most = fmax(most, fabs((double)losses.pytorch[k] - (double)losses.truth[k]));
    gs_train_row row;
    CHECK(gs_trainer_step(j->trainer, batch, 1, &row) == GS_OK);
    CHECK(row.report.verdict.action == GS_APPLY);
    const double off = fabs(row.loss - (double)losses.truth[i]);
    CHECK_MSG(off <= factor * most, "%s, step %zu: loss %.9g, not %.9g", name, i, row.loss,
              (double)losses.truth[i]);
    return off / most;
}

/* logits[n] without training; error: PyTorch's. */
static inline void check_logits(job *j, const gs_batch *batch, const float *truth, size_t n,
                                double factor, double error)
{
    gs_tape *t = gs_trainer_tape(j->trainer);
    gs_tape_begin(t, 0, 0);
    const float *logits = j->model->logits(j->model, t, batch)->data;
    CHECK(gs_tape_status(t) == GS_OK);
    double worst = 0;
    for (size_t i = 0; logits && i < n; i++)
        worst = fmax(worst, fabs((double)logits[i] - (double)truth[i]));
    CHECK_MSG(logits && worst <= factor * error, "off by %g, PyTorch by %g", worst, error);
}

#endif
