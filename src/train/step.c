/* One training step, top to bottom.
 *
 * (1) Weights, moments, copies and running statistics change iff the verdict is APPLY.
 * (2) The verdict is the same on every rank: it is made of summed gradients and agreed statistics.
 * (3) A rerun sees the batch, the dropout and the running statistics that the first run saw.
 * (4) An error on one rank is an error on all: none waits for another. `mine` is this rank's,
 *     which the others have yet to be told; `status` is everybody's. */
#include "kernel/fpenv.h"
#include "train/train.h"

/* Runs every micro-batch; the gradients of scale * loss add up in the store. */
static gs_status run_batch(gs_trainer *t, gs_step *step, const gs_batch *micro, size_t n,
                           gs_train_row *row)
{
    double items = 0;
    gs_status status = n == 0 ? gsi_items_of_all(t, &items) : GS_OK;
    for (size_t i = 0; status == GS_OK && i < n; i++) {
        gsi_grads_watch(t, i + 1 == n);
        gs_tape_begin(t->tape, 1, gsi_dropout_seed(t, i));
        gs_value *loss = t->model->forward(t->model, t->tape, &micro[i]);
        gsi_lap(t, row, GS_PHASE_FORWARD);
        status = gsi_items_of_all(t, &items);
        gsi_lap(t, row, GS_PHASE_COMM);
        if (status != GS_OK)
            break;
        const double share = (double)micro[i].n / items;
        status = gs_tape_backward(t->tape, loss, (float)(step->scale * share * t->loss_weight));
        gsi_lap(t, row, GS_PHASE_BACKWARD);
        if (status != GS_OK)
            return gs_tape_status(t->tape, &t->ctx->error);
        row->loss += share * (double)*(const float *)loss->data;
        gs_step_loss(step, (double)*(const float *)loss->data);
        gsi_note_tape(t, row);
    }
    row->items = (uint64_t)items;
    return status;
}

/* Sums the gradients over the ranks, each looks at its part, and all agree on what was seen, errors
 * included. */
static gs_status judge(gs_trainer *t, gs_step *step, gs_train_row *row, gs_status mine)
{
    gsi_seen seen = {mine, step->forward, row->loss, row->stored, {0}};
    gs_stats_init(&seen.grads);
    gs_status status = gsi_grads_sum(t);
    gsi_lap(t, row, GS_PHASE_COMM);
    if (status == GS_OK && mine == GS_OK)
        seen.status = gsi_grads_scan(t, &seen.grads);
    gsi_lap(t, row, GS_PHASE_SCAN);
    if (status == GS_OK)
        status = gsi_agree(t, &seen);
    if (status == GS_OK)
        status = gsi_grads_exponents(t, step);
    const gs_status end = gsi_grads_end(t);
    status = status == GS_OK ? end : status;
    gsi_lap(t, row, GS_PHASE_COMM);
    row->loss = seen.loss;
    row->stored = seen.stored;
    step->forward = seen.forward != 0;
    /* Of what was stored in half the step is to know that it overflowed and how large it was, not
     * how often: weight gradients are in seen.grads, too. */
    const gs_stats stored = {.elements = seen.stored.elements,
                             .inf = seen.stored.inf > 0,
                             .nan = seen.stored.nan > 0,
                             .amax = seen.stored.amax,
                             .bad_tensor = GS_NONE,
                             .bad_index = GS_NONE};
    gs_step_scan(step, &stored);
    gs_step_scan(step, &seen.grads);
    return status;
}

gs_status gs_trainer_step(gs_trainer *t, const gs_batch *micro, size_t n, gs_train_row *row)
{
    gs_train_row unread;
    gs_step step;
    const uint64_t env = gsi_fpenv_enter(); /* the caller's rounding is not ours */
    t->ctx->error = (gs_error){0};
    gs_status mine = gsi_check_batch(t, micro, n);
    if (!row)
        row = &unread;
    *row = (gs_train_row){.step = t->steps};
    const uint64_t sent = gsi_team_sent(t);
    gsi_keep_state(t);
    gsi_lap(t, NULL, GS_PHASE_CLEAR);
    gs_status status = gsi_items_tell(t, micro, mine == GS_OK ? n : 0);
    do {
        gs_step_begin(&step, &t->scaler);
        row->loss = 0;
        gs_stats_init(&row->stored);
        gsi_grads_begin(t);
        gsi_lap(t, row, GS_PHASE_CLEAR);
        if (status == GS_OK && mine == GS_OK)
            mine = run_batch(t, &step, micro, n, row);
        if (status == GS_OK)
            status = judge(t, &step, row, mine);
        if (status != GS_OK)
            break;
        const gs_verdict verdict = gs_step_decide(&step, &t->scaler);
        gsi_lap(t, row, GS_PHASE_DECIDE);
        status = gs_optim_act(t->optim, &step, verdict, &row->report);
        gsi_lap(t, row, GS_PHASE_APPLY);
        if (status == GS_OK && verdict.action == GS_APPLY)
            status = gsi_team_share(t);
        gsi_lap(t, row, GS_PHASE_COMM);
        if (status != GS_OK)
            break;
        if (verdict.action != GS_APPLY)
            gsi_restore_state(t);
        gs_step_end(&step, &t->scaler);
        row->reruns += verdict.action == GS_RETRY;
        gsi_lap(t, row, GS_PHASE_DECIDE);
    } while (row->report.verdict.action == GS_RETRY);

    if (status == GS_OK) {
        row->scale = step.scale;
        row->amax = (double)step.stats.amax * step.inverse;
        t->steps++;
        status = gsi_team_compare(t);
        gsi_lap(t, row, GS_PHASE_COMM);
        row->sent = gsi_team_sent(t) - sent;
    } else {
        gsi_give_up(t, &step);
    }
    gsi_fpenv_leave(env);
    return status;
}
