/* The dry run: model, disk, memory and time of a job, without doing it.
 *
 * What is known without a step is said at once. Memory and time are those of steps that are taken;
 * where a step is long, of one with fewer items: passes over items take their number times as
 * long, the tape as many times the memory, and the rest is the same. */
#include "cli/train/ranks.h"
#include "cli/train/train.h"

#include <math.h>

static const double enough = 2; /* s of steps */

typedef struct dry_step {
    double seconds; /* of all of it */
    double passes;  /* forward and backward */
    double forward;
    gs_memory tape;
    size_t batch, items; /* of the first micro-batch, and of all: the end of an epoch has fewer */
    size_t part;         /* items it was taken with; 0: all */
} dry_step;

/* part: of the first micro-batch, as many items; 0: all of all. */
static int take_step(train_job *j, size_t part, dry_step *s)
{
    const gs_batch *micro;
    size_t n;
    gs_error error = {0};
    gs_train_row row;
    const double start = gs_clock();
    gs_status status = gs_loader_next(&micro, &n, j->loader, &error);
    const int code =
        ranks_first_error(status == GS_OK ? CLI_GO : cli_fail_status(status, &error), NULL);
    if (code != CLI_GO)
        return code;
    size_t items = 0;
    for (size_t i = 0; i < n; i++)
        items += micro[i].n;
    gs_batch few = *micro;
    few.n = part < few.n ? part : few.n;
    status = gs_trainer_step(j->trainer, part ? &few : micro, part ? 1 : n, &row);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(j->ctx));
    *s = (dry_step){.seconds = gs_clock() - start,
                    .passes = row.seconds[GS_PHASE_FORWARD] + row.seconds[GS_PHASE_BACKWARD],
                    .forward = row.seconds[GS_PHASE_FORWARD],
                    .tape = row.memory,
                    .batch = micro->n,
                    .items = items,
                    .part = part ? few.n : 0};
    return CLI_GO;
}

/* A step of some items, as if it had been one of all. */
static void extend(dry_step *s)
{
    const double times = (double)s->items / (double)s->part;
    const double more = (double)s->batch / (double)s->part;
    s->seconds += s->passes * (times - 1);
    s->passes *= times;
    s->forward *= times;
    s->tape.activations = (size_t)((double)s->tape.activations * more);
    s->tape.gradients = (size_t)((double)s->tape.gradients * more);
}

/* The fastest of a few; or, if one of all items is long, one of as many as take a while. */
static int time_step(train_job *j, dry_step *best)
{
    enum { TRIES = 4 };
    const double began = gs_clock();
    *best = (dry_step){.seconds = HUGE_VAL};
    if (j->comm.size == 1 && j->o.batch * j->o.accumulate > 1) { /* ranks would not agree on it */
        int code = take_step(j, 1, best);
        const size_t fit = best->passes < enough ? (size_t)fmin(enough / best->passes, 1e6) : 1;
        const bool is_long = best->passes * (double)best->items > enough;
        const dry_step first = *best;
        if (code == CLI_GO && is_long && fit > 1)
            code = take_step(j, fit, best);
        if (code != CLI_GO)
            return code;
        if (best->items < first.items) { /* the end of an epoch */
            best->batch = first.batch;
            best->items = first.items;
        }
        extend(best);
        if (is_long && best->seconds > enough) /* a few items at once take less time than alone */
            return code;
        *best = (dry_step){.seconds = HUGE_VAL};
    }
    /* the first two make the arena */
    for (int i = 0; i < TRIES && (i == 0 || j->comm.size > 1 || gs_clock() - began < enough); i++) {
        dry_step s;
        const int code = take_step(j, 0, &s);
        if (code != CLI_GO)
            return code;
        if (s.items < best->items) /* the last of an epoch: others take more time and memory */
            continue;
        if (s.items == best->items)
            s.seconds = fmin(s.seconds, best->seconds);
        *best = s;
    }
    return CLI_GO;
}

/* Forward passes over the validation items, at the pace of the step's own. */
static double validation_seconds(const train_job *j, const dry_step *step)
{
    const uint64_t there = j->info->items[GS_SPLIT_VALID];
    const uint64_t items = there < j->o.valid_items ? there : j->o.valid_items;
    return step->items > 0 ? step->forward * (double)items / (double)step->items : 0;
}

int train_dry_run(train_job *j)
{
    if (j->about.step > 0) /* of a new run it has been said, before there were weights */
        train_show_job(j);
    train_show_folder(j);
    cli_flush();
    if (j->comm.rank == 0)
        cli_progress(0, 1, "taking a step, to time it");
    dry_step step;
    const int code = time_step(j, &step);
    if (code != CLI_GO)
        return code;
    const double validation = train_valid_possible(j) ? validation_seconds(j, &step) : 0;
    const uint64_t left = j->o.steps > j->about.step ? j->o.steps - j->about.step : 0;
    const double times = j->o.valid_every > 0 ? (double)(left / j->o.valid_every) : 0;
    const train_bytes b = train_job_bytes(j, step.tape);
    char took[48], sums[5][48], text[300];
    cli_progress_end();
    snprintf(text, sizeof text, "%s%s: weights %s, optimizer %s, gradients %s, activations %s",
             step.part ? "about " : "",
             cli_bytes_text(sums[0], b.weights + b.optimizer + b.gradients + b.activations),
             cli_bytes_text(sums[1], b.weights), cli_bytes_text(sums[2], b.optimizer),
             cli_bytes_text(sums[3], b.gradients), cli_bytes_text(sums[4], b.activations));
    printf("memory     ");
    cli_wrap(text, 11, 11);
    const int n = snprintf(text, sizeof text, "about %s: %.*f ms per step on %u thread%s",
                           train_time_text(took, step.seconds * (double)left + validation * times),
                           step.part ? 0 : 2, 1e3 * step.seconds, gs_context_threads(j->ctx),
                           cli_s(gs_context_threads(j->ctx)));
    if (step.part)
        snprintf(text + n, sizeof text - (size_t)n, ", worked out from a step of %zu item%s",
                 step.part, cli_s(step.part));
    printf("time       ");
    cli_wrap(text, 11, 11);
    return CLI_DONE;
}
