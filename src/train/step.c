/* One training step, top to bottom.
 *
 * (1) Weights, moments, copies and running statistics change iff the verdict is APPLY.
 * (2) The verdict is the same on every rank: it is made of summed gradients and merged reports.
 * (3) A rerun sees the batch, the dropout and the running statistics that the first run saw.
 * (4) An error on one rank is an error on all: none waits for another. `mine` is an error of this
 *     rank that the others do not know yet; `status` is the same on all.
 *
 *     clear -> forward, backward of every micro-batch -> scan -> decide -> apply
 *       ^                                                           |
 *       +------------------------ RETRY ----------------------------+
 *
 * gsi_ranks_* (ranks_step.c) is what several ranks do together. With one rank these calls do
 * nothing but pass on the status they are given: a first reading can skip them. */
#include "engine/engine.h"
#include "kernel/fpenv.h"
#include "train/train.h"

/* ---- phases: each ends with gsi_phase_end, which takes its time ---- */

static void clear(gs_trainer *t, gs_train_row *row)
{
    row->loss = 0;
    gs_stats_init(&row->stored);
    gsi_tape_fresh(t->tape, gsi_model_weights(t), t->model->n); /* the trainer has the memory */
    gsi_ranks_begin(t);
    gsi_phase_end(t, row, GS_PHASE_CLEAR);
}

static gs_value *forward(gs_trainer *t, const gs_batch *micro, uint64_t seed, gs_train_row *row)
{
    gs_tape_begin(t->tape, 1, seed);
    gs_value *loss = t->model->forward(t->model, t->tape, micro);
    gsi_phase_end(t, row, GS_PHASE_FORWARD);
    return loss;
}

static gs_status backward(gs_trainer *t, gs_value *loss, float seed, gs_train_row *row)
{
    const gs_status status = gs_tape_backward(t->tape, loss, seed);
    gsi_phase_end(t, row, GS_PHASE_BACKWARD);
    return status == GS_OK ? GS_OK : gs_tape_status(t->tape);
}

static gs_status scan(gs_trainer *t, gs_step *step, gs_stats *grads, gs_train_row *row)
{
    gsi_tape_zero_fill(t->tape, NULL); /* weights that the batch did not use */
    gs_status status = gsi_grads_scan(t, grads);
    if (status == GS_OK)
        status = gsi_grads_exponents(t, step);
    gsi_phase_end(t, row, GS_PHASE_SCAN);
    return status;
}

static gs_verdict decide(gs_trainer *t, gs_step *step, gs_train_row *row)
{
    const gs_verdict verdict = gs_step_decide(step, &t->scaler);
    gsi_phase_end(t, row, GS_PHASE_DECIDE);
    return verdict;
}

static gs_status apply(gs_trainer *t, const gs_step *step, gs_verdict verdict, gs_train_row *row)
{
    gs_step given = *step;
    if (given.stats.sumsq ==
        0) /* all weight gradients are 0, what was stored in half need not be */
        given.stats.amax = 0;
    const gs_status status = gs_optim_act(t->optim, &given, verdict, &row->report);
    gsi_phase_end(t, row, GS_PHASE_APPLY);
    return status;
}

static void end(gs_trainer *t, gs_step *step, gs_verdict verdict, gs_train_row *row)
{
    if (verdict.action != GS_APPLY)
        gsi_restore_state(t);
    gs_step_end(step, &t->scaler);
    row->reruns += verdict.action == GS_RETRY;
    gsi_phase_end(t, row, GS_PHASE_DECIDE);
}

/* ---- the step ---- */

static double count_items(const gs_batch *micro, size_t n)
{
    uint64_t items = 0;
    for (size_t i = 0; i < n; i++)
        items += micro[i].n;
    return (double)items;
}

/* Runs every micro-batch; the gradients of scale * loss accumulate in the store. */
static gs_status run_batch(gs_trainer *t, gs_step *step, const gs_batch *micro, size_t n,
                           gs_train_row *row)
{
    double items = count_items(micro, n); /* on this rank; gsi_ranks_items: on all */
    gs_status status = n == 0 ? gsi_ranks_items(t, &items, row) : GS_OK;
    for (size_t i = 0; i < n; i++) {
        gsi_ranks_overlap(t, i + 1 == n);
        gs_value *loss = forward(t, &micro[i], gsi_dropout_seed(t, i), row);
        status = gsi_ranks_items(t, &items, row);
        if (status != GS_OK)
            return status;
        const double share = (double)micro[i].n / items;
        status = backward(t, loss, (float)(step->scale * share * t->loss_weight), row);
        if (status != GS_OK)
            return status;
        row->loss += share * (double)*(const float *)loss->data;
        gs_step_loss(step, (double)*(const float *)loss->data);
        gsi_note_tape(t, row);
    }
    row->items = (uint64_t)items;
    return status;
}

/* Computes the gradients of the batch at the step's scale, and what the verdict is made of. */
static gs_status compute(gs_trainer *t, gs_step *step, const gs_batch *micro, size_t n,
                         gs_status mine, gs_train_row *row)
{
    gs_stats grads;
    gs_stats_init(&grads);
    clear(t, row);
    if (mine == GS_OK)
        mine = run_batch(t, step, micro, n, row);
    gs_status status = mine;
    if (t->comm.size > 1)
        status = gsi_ranks_merge(t, mine, step, &grads, row);
    else if (mine == GS_OK)
        status = scan(t, step, &grads, row);
    /* Of what was stored in half the step is to know that it overflowed and how large it was, not
     * how often: weight gradients are in grads, too. */
    const gs_stats stored = {.elements = row->stored.elements,
                             .inf = row->stored.inf > 0,
                             .nan = row->stored.nan > 0,
                             .amax = row->stored.amax,
                             .bad_tensor = GS_NONE,
                             .bad_index = GS_NONE};
    gs_step_scan(step, &stored);
    gs_step_scan(step, &grads);
    return status;
}

/* Decides, and does what the verdict says: all or nothing. */
static gs_status act(gs_trainer *t, gs_step *step, gs_train_row *row)
{
    const gs_verdict verdict = decide(t, step, row);
    gs_status status = apply(t, step, verdict, row);
    if (status == GS_OK && verdict.action == GS_APPLY)
        status = gsi_ranks_share(t, row);
    if (status == GS_OK)
        end(t, step, verdict, row);
    return status;
}

gs_status gs_trainer_step(gs_trainer *t, const gs_batch *micro, size_t n, gs_train_row *row)
{
    gs_train_row unread;
    gs_step step;
    const uint64_t env = gsi_fpenv_enter(); /* the caller's rounding is not ours */
    t->ctx->error = (gs_error){0};
    const gs_status mine = gsi_check_batch(t, micro, n);
    if (!row)
        row = &unread;
    *row = (gs_train_row){.step = t->steps};
    const uint64_t sent = gsi_ranks_sent(t);
    gsi_keep_state(t);
    gsi_phase_end(t, NULL, GS_PHASE_CLEAR); /* time begins here */
    gs_status status = gsi_ranks_send_items(t, micro, mine == GS_OK ? n : 0);
    do {
        gs_step_begin(&step, &t->scaler);
        if (status == GS_OK)
            status = compute(t, &step, micro, n, mine, row);
        if (status == GS_OK)
            status = act(t, &step, row);
    } while (status == GS_OK && row->report.verdict.action == GS_RETRY);

    if (status == GS_OK) {
        row->scale = step.scale;
        row->amax = (double)step.stats.amax * step.inverse;
        t->steps++;
        status = gsi_ranks_compare(t, row);
        row->sent = gsi_ranks_sent(t) - sent;
    } else {
        gsi_give_up(t, &step);
    }
    gsi_fpenv_leave(env);
    return status;
}
