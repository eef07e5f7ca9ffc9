/* One training step, top to bottom.
 *
 * (1) Weights, moments, copies and running statistics change iff the verdict is APPLY.
 * (2) The verdict is the same on every rank: it is made of summed gradients and agreed statistics.
 * (3) A rerun sees the batch, the dropout and the running statistics that the first run saw.
 * (4) An error on one rank is an error on all: none waits for another. */
#include "train/train.h"

#include <math.h>
#include <string.h>

/* Runs every micro-batch; the gradients of scale * loss add up in the store. */
static gs_status run_batch(gs_trainer *t, gs_step *step, const gs_batch *micro, size_t n,
                           gs_train_row *row)
{
    double items = 0;
    for (size_t i = 0; i < n; i++)
        items += (double)micro[i].n;
    row->loss = 0;
    gs_stats_init(&row->stored);
    for (size_t i = 0; i < n; i++) {
        const double share = (double)micro[i].n / items / t->comm.size;
        gs_tape_begin(t->tape, 1, gsi_dropout_seed(t, i));
        gs_value *loss = t->model->forward(t->model, t->tape, &micro[i]);
        gsi_lap(t, row, GS_PHASE_FORWARD);
        const gs_status status =
            gs_tape_backward(t->tape, loss, (float)(step->scale * share * t->loss_weight));
        gsi_lap(t, row, GS_PHASE_BACKWARD);
        if (status != GS_OK)
            return gs_tape_status(t->tape, &t->ctx->error);
        row->loss += share * (double)*(const float *)loss->data;
        gs_step_loss(step, (double)*(const float *)loss->data);
        gs_stats_merge(&row->stored, gs_tape_stats(t->tape));
        gsi_note_memory(&row->memory, gs_tape_memory(t->tape));
    }
    return GS_OK;
}

/* Sums the gradients over the ranks and agrees on what each saw of its own, errors included. */
static gs_status join_ranks(gs_trainer *t, gs_step *step, gs_train_row *row, gs_status mine)
{
    double seen[] = {mine, step->forward, row->stored.inf > 0, row->stored.nan > 0,
                     (double)row->stored.amax};
    gs_status status = t->comm.max(t->comm.user, seen, GSI_COUNT(seen));
    if (status == GS_OK)
        status = (gs_status)seen[0];
    const gs_tensor grads = gs_store_grads(t->store);
    float loss = (float)row->loss;
    if (status == GS_OK && t->comm.size > 1)
        status = t->comm.sum(t->comm.user, grads.data, grads.count);
    if (status == GS_OK && t->comm.size > 1) {
        status = t->comm.sum(t->comm.user, &loss, 1);
        row->loss = (double)loss;
    }
    const gs_stats all = {.elements = row->stored.elements,
                          .inf = seen[2] > 0,
                          .nan = seen[3] > 0,
                          .amax = (float)seen[4],
                          .bad_tensor = GS_NONE,
                          .bad_index = GS_NONE};
    step->forward = seen[1] > 0;
    gs_step_scan(step, &all);
    return status;
}

gs_status gs_trainer_step(gs_trainer *t, const gs_batch *micro, size_t n, gs_train_row *row)
{
    gs_train_row unread;
    gs_step step;
    t->ctx->error = (gs_error){0};
    gs_status status = gsi_check_batch(t, micro, n);
    if (!row)
        row = &unread;
    *row = (gs_train_row){.step = t->steps, .telemetry = t->telemetry};
    gsi_keep_state(t);
    gsi_lap(t, NULL, GS_PHASE_CLEAR);
    do {
        gs_step_begin(&step, &t->scaler);
        gs_optim_clear_grads(t->optim);
        gsi_lap(t, row, GS_PHASE_CLEAR);
        if (status == GS_OK)
            status = run_batch(t, &step, micro, n, row);
        status = join_ranks(t, &step, row, status);
        gsi_lap(t, row, GS_PHASE_COMM);
        if (status == GS_OK)
            status = gs_optim_scan(t->optim, &step);
        gsi_lap(t, row, GS_PHASE_SCAN);
        if (status == GS_OK)
            status = gsi_scan_exponents(t, &step);
        if (status != GS_OK)
            break;
        const gs_verdict verdict = gs_step_decide(&step, &t->scaler);
        gsi_lap(t, row, GS_PHASE_DECIDE);
        status = gs_optim_act(t->optim, &step, verdict, &row->report);
        gsi_lap(t, row, GS_PHASE_APPLY);
        if (status != GS_OK)
            break;
        if (verdict.action != GS_APPLY)
            gsi_restore_state(t);
        gs_step_end(&step, &t->scaler);
        row->reruns += verdict.action == GS_RETRY;
        gsi_lap(t, row, GS_PHASE_DECIDE);
    } while (row->report.verdict.action == GS_RETRY);

    if (status != GS_OK)
        return gsi_give_up(t, &step, status);
    row->scale = step.scale;
    row->amax = (double)step.stats.amax * step.inverse;
    t->steps++;
    return GS_OK;
}
