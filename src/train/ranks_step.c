/* What several ranks do together in a step. With one rank no call does anything.
 *
 * (1) Every rank makes the same calls of the network in the same order, whatever goes wrong on it:
 *     allgather of the items, the buckets from the last to the first, allgather of the reports,
 *     shared weights. So a step takes no memory of its own but the scratch of passes.
 * (2) What leads to the verdict is gathered and folded in rank order on every rank.
 * (3) An overflow (inf, nan, amax) on any rank is one on all: merge_reports.
 *
 *   send_items ... items      overlaps with the first forward pass
 *   begin, overlap            buckets are summed while the last micro-batch runs backward
 *   merge                     sums end; scan of this rank's part; allgather of the reports
 *   share, compare            after the verdict */
#include "engine/engine.h"
#include "train/ranks.h"

#include <string.h>

/* ---- items ---- */

gs_status gsi_ranks_send_items(gs_trainer *t, const gs_batch *micro, size_t n)
{
    gsi_ranks *ranks = t->ranks;
    const gs_comm *c = &t->comm;
    const size_t size = sizeof *ranks->items;
    if (c->size == 1)
        return GS_OK;
    ranks->items[c->rank] = 0;
    for (size_t i = 0; i < n; i++)
        ranks->items[c->rank] += micro[i].n;
    gs_error said = {0};
    const gs_status status = c->allgather(c->user, ranks->items, (size_t)c->size * size, size,
                                          &ranks->items_request, &said);
    ranks->items_pending = status == GS_OK;
    return gsi_comm_status(c, status, &said, &t->ctx->error);
}

static gs_status wait_items(gs_trainer *t)
{
    if (!t->ranks->items_pending)
        return GS_OK;
    t->ranks->items_pending = false;
    return gsi_comm_wait(&t->comm, t->ranks->items_request, &t->ctx->error);
}

static double sum_items(const gs_trainer *t)
{
    uint64_t sum = 0;
    for (int r = 0; r < t->comm.size; r++)
        sum += t->ranks->items[r];
    return (double)sum;
}

gs_status gsi_ranks_items(gs_trainer *t, double *items, gs_train_row *row)
{
    if (t->comm.size == 1)
        return GS_OK;
    const gs_status status = wait_items(t);
    *items = status == GS_OK ? sum_items(t) : 0;
    gsi_phase_end(t, row, GS_PHASE_COMM);
    if (status == GS_OK && *items == 0)
        return gsi_fail(&t->ctx->error, GS_ESIZE, "the batch is empty on all ranks");
    return status;
}

/* ---- gradients ---- */

void gsi_ranks_begin(gs_trainer *t)
{
    if (t->ranks->reducer)
        gs_reducer_begin(t->ranks->reducer);
}

/* The gradient of a weight is complete; NULL: some operation has run. */
static void ready(void *user, const gs_weight *weight)
{
    const gs_trainer *t = user;
    gsi_ranks *ranks = t->ranks;
    if (!weight) {
        gs_reducer_poll(ranks->reducer);
        return;
    }
    for (size_t w = 0; w < t->model->n; w++) /* by its gradient: a model may have a copy of it */
        if (gsi_model_weights(t)[w].grad == weight->grad) {
            gsi_tape_zero_fill(t->tape, weight);
            gs_reducer_ready(ranks->reducer, ranks->starts[w],
                             ranks->starts[w + 1] - ranks->starts[w]);
        }
}

void gsi_ranks_overlap(gs_trainer *t, bool last)
{
    gsi_tape_watch(t->tape, last && t->ranks->reducer ? ready : NULL, t);
}

/* Waits for the sums of this rank's part. */
static gs_status sum_grads(gs_trainer *t)
{
    const gs_status status = wait_items(t); /* where an error came first */
    gsi_tape_zero_fill(t->tape, NULL);
    return status == GS_OK ? gs_reducer_sums(t->ranks->reducer) : status;
}

/* ---- reports ---- */

/* Every rank gets the first error of any, with its message; a rank with one keeps its own. */
static gs_status allgather_error(gs_trainer *t, gs_status mine, gs_error *error, const char *what)
{
    gs_error *all = t->gather_buffer;
    memset(&all[t->comm.rank], 0, sizeof *all);
    if (mine != GS_OK)
        all[t->comm.rank] = *error;
    all[t->comm.rank].status = mine;
    const gs_status status = gs_comm_allgather(&t->comm, all, sizeof *all, error);
    if (status != GS_OK)
        return status;
    int whose = 0;
    while (whose < t->comm.size && all[whose].status == GS_OK)
        whose++;
    if (whose == t->comm.size || mine != GS_OK)
        return mine;
    all[whose].text[sizeof all->text - 1] = 0;
    return gsi_fail(error, all[whose].status, "rank %d could not %s: %.180s", whose, what,
                    all[whose].text);
}

gs_status gsi_ranks_first_error(gs_trainer *t, gs_status mine, gs_error *error)
{
    gs_error unread = {0};
    return t->comm.size == 1 ? mine : allgather_error(t, mine, error ? error : &unread, "go on");
}

gs_status gsi_ranks_exponents(gs_trainer *t, gs_status mine, gs_exponents *found)
{
    if (t->comm.size == 1)
        return mine;
    gs_exponents *all = t->ranks->exponents;
    all[t->comm.rank] = *found;
    gs_status status = gsi_ranks_first_error(t, mine, &t->ctx->error);
    if (status == GS_OK)
        status = gs_comm_allgather(&t->comm, all, sizeof *all, &t->ctx->error);
    memset(found, 0, sizeof *found);
    for (int r = 0; status == GS_OK && r < t->comm.size; r++)
        gs_exponents_merge(found, &all[r]);
    return status;
}

/* This rank's report becomes that of all. The result is the first error of any rank. */
static gs_status merge_reports(gs_trainer *t, gsi_rank_report *report)
{
    const gs_status mine = report->status;
    gsi_rank_report *all = t->gather_buffer;
    all[t->comm.rank] = *report;
    gs_status status = gs_comm_allgather(&t->comm, all, sizeof *all, &t->ctx->error);
    bool bad = false;
    *report = (gsi_rank_report){0};
    gs_stats_init(&report->stored);
    gs_stats_init(&report->grads);
    for (int r = 0; status == GS_OK && r < t->comm.size; r++) {
        bad |= all[r].status != GS_OK;
        report->forward |= all[r].forward;
        report->loss += all[r].loss;
        gs_stats_merge(&report->stored, &all[r].stored);
        gs_stats_merge(&report->grads, &all[r].grads);
    }
    if (status == GS_OK && bad)
        status = allgather_error(t, mine, &t->ctx->error, "run the step");
    return status;
}

gs_status gsi_ranks_merge(gs_trainer *t, gs_status mine, gs_step *step, gs_stats *grads,
                          gs_train_row *row)
{
    gsi_rank_report report = {mine, step->forward, row->loss, row->stored, {0}};
    gs_stats_init(&report.grads);
    gs_status status = sum_grads(t);
    gsi_phase_end(t, row, GS_PHASE_COMM);
    if (status == GS_OK && mine == GS_OK)
        report.status = gsi_grads_scan(t, &report.grads);
    gsi_phase_end(t, row, GS_PHASE_SCAN);
    if (status == GS_OK)
        status = merge_reports(t, &report);
    if (status == GS_OK)
        status = gsi_grads_exponents(t, step);
    const gs_status end = gs_reducer_end(t->ranks->reducer); /* the sums that others made */
    gsi_phase_end(t, row, GS_PHASE_COMM);
    row->loss = report.loss;
    row->stored = report.stored;
    step->forward = report.forward != 0;
    *grads = report.grads;
    return status == GS_OK ? end : status;
}

/* ---- after a step ---- */

/* Running statistics become the mean over ranks, weighted by items; ranges that are maxima become
 * the maximum. */
static gs_status mean_state(gs_trainer *t)
{
    const size_t n = t->model->states;
    double *all = t->ranks->states, *mine = all + (size_t)t->comm.rank * n;
    if (n == 0)
        return GS_OK;
    const double items = sum_items(t);
    const bool maxima = t->tape->config.range_rule == GS_RANGE_MAX;
    const size_t means = n - (maxima ? t->model->n_ranges : 0);
    for (size_t i = 0; i < n; i++)
        mine[i] = (double)t->model->state[i];
    for (size_t i = 0; i < means; i++)
        mine[i] = mine[i] * (double)t->ranks->items[t->comm.rank] / items;
    const gs_status status = gs_comm_allgather(&t->comm, all, n * sizeof *all, &t->ctx->error);
    if (status != GS_OK)
        return status;
    for (size_t i = 0; i < n; i++) {
        double sum = all[i];
        for (int r = 1; r < t->comm.size; r++) {
            const double other = all[(size_t)r * n + i];
            sum = i < means ? sum + other : other > sum ? other : sum;
        }
        t->model->state[i] = (float)sum;
    }
    return GS_OK;
}

gs_status gsi_ranks_share(gs_trainer *t, gs_train_row *row)
{
    if (t->comm.size == 1)
        return GS_OK;
    gs_status status = t->ranks->zero ? gsi_shard_allgather(t) : GS_OK;
    if (status == GS_OK)
        status = mean_state(t);
    gsi_phase_end(t, row, GS_PHASE_COMM);
    return status;
}
