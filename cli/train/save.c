/* The checkpoints of a run: which are on the disk, and what the record of the best says.
 *
 * (1) A checkpoint counts, in the log, in the summary and as the best, when it is on the disk.
 * (2) One that failed is written again from the saver's copy, after the next step and then with
 *     pauses that grow, until it is there or the next one needs its place.
 * (3) The record of the best goes back to what it was if the file of a new best is given up: the
 *     next validation that is better than the file on the disk is the best.
 * (4) Any failure is told once, and is in the exit code.
 *
 * Rank 0 writes. What the others believe of the best is what it tells them: train_save_settle. */
#include "cli/train/ranks.h"
#include "cli/train/train.h"

#include <math.h>
#include <time.h>

enum { PAUSE_MOST = 64 }; /* s between tries */

/* ---- what has become of the last one ---- */

static void note_written(train_job *j, train_result *r, const gs_saver_state *state)
{
    char path[4096];
    if (state->files == r->files)
        return;
    r->files = state->files;
    r->saved = state->step;
    r->pause = 0;
    if (state->best == j->about.best_step)
        r->unsaved.pending = false;
    snprintf(path, sizeof path, "%s/step-%08llu.safetensors", j->o.checkpoint,
             (unsigned long long)state->step);
    train_log_checkpoint(j, r, state->step, path);
}

static void note_failure(train_result *r, const gs_error *error)
{
    if (r->pause == 0)
        cli_warn("a checkpoint could not be written: %s: the run goes on, and it is tried again",
                 error->text);
    r->save_failed = true;
}

/* Looks, and tries again what failed; waits for nothing. */
void train_save_poll(train_job *j, train_result *r)
{
    gs_error error = {0};
    if (!j->saver)
        return;
    const gs_saver_state state = gs_saver_get_state(j->saver);
    if (state.busy)
        return;
    note_written(j, r, &state);
    const double time = gs_clock();
    if (state.failed && (r->pause == 0 || time >= r->next_try)) {
        gs_saver_wait(j->saver, &error);
        note_failure(r, &error);
        r->pause = r->pause == 0 ? 1 : fmin(2 * r->pause, PAUSE_MOST);
        r->next_try = time + r->pause;
        gs_saver_retry(j->saver, NULL);
    }
}

/* Until it is written or has failed; the other ranks hear that this one is alive. */
static void await(train_job *j, train_result *r)
{
    while (gs_saver_get_state(j->saver).busy) {
        ranks_alive();
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    const gs_saver_state state = gs_saver_get_state(j->saver);
    note_written(j, r, &state);
}

/* The record goes back to the best that has a file. */
static void forget_best(train_job *j, train_result *r)
{
    if (!r->unsaved.pending)
        return;
    cli_warn("the best so far, of step %llu, could not be written and is given up",
             (unsigned long long)j->about.best_step);
    r->unsaved.pending = false;
    j->about.best = r->unsaved.best;
    j->about.best_step = r->unsaved.best_step;
    j->about.waits = r->unsaved.waits + 1;
}

/* The last one is on the disk, after another try where it failed, or is given up. */
static gs_status finish(train_job *j, train_result *r, gs_error *error)
{
    gs_error again = {0};
    await(j, r);
    gs_status status = gs_saver_wait(j->saver, error);
    if (status == GS_OK)
        return GS_OK;
    note_failure(r, error);
    if (gs_saver_retry(j->saver, NULL) == GS_OK) {
        await(j, r);
        status = gs_saver_wait(j->saver, &again);
    }
    if (status != GS_OK)
        forget_best(j, r);
    r->pause = 0;
    return status;
}

/* ---- saving ---- */

/* Before a validation: whether there is a better one depends on what is on the disk. */
int train_save_settle(train_job *j, train_result *r)
{
    gs_error error = {0};
    if (j->saver && r->unsaved.pending)
        finish(j, r, &error);
    if (j->comm.size == 1 || !j->o.checkpoint)
        return CLI_GO;
    train_best best = {
        .best = j->about.best, .best_step = j->about.best_step, .waits = j->about.waits};
    if (j->comm.bcast(j->comm.user, &best, sizeof best, 0, &error) != GS_OK)
        return cli_fail_status(GS_ERANK, &error);
    j->about.best = best.best;
    j->about.best_step = best.best_step;
    j->about.waits = best.waits;
    return CLI_GO;
}

/* A new best: it becomes the record, and stays it if its file comes to the disk. */
void train_save_best(train_job *j, train_result *r, double value)
{
    if (!r->unsaved.pending)
        r->unsaved = (train_best){.pending = j->saver != NULL,
                                  .best = j->about.best,
                                  .best_step = j->about.best_step,
                                  .waits = j->about.waits};
    j->about.best = value;
    j->about.best_step = j->about.step;
    j->about.waits = 0;
}

/* Ranks other than 0 give what they alone have. */
int train_save(train_job *j, train_result *r, bool best)
{
    gs_error error = {0};
    if (!j->saver && !j->o.zero)
        return CLI_GO;
    const double start = gs_clock();
    if (j->saver) {
        const bool newer = best && r->unsaved.pending; /* not the one that may be given up */
        r->unsaved.pending &= !newer;
        finish(j, r, &error);
        r->unsaved.pending |= newer;
    }
    const gs_status status =
        gs_saver_save(j->saver, j->trainer, &j->about, best ? GS_SAVE_BEST : 0, &error);
    r->held = gs_clock() - start;
    if (status == GS_EIO && j->saver) { /* there was no memory for a copy: it was written at once */
        note_failure(r, &error);
        forget_best(j, r);
        return CLI_GO;
    }
    return status == GS_OK ? CLI_GO
                           : cli_failed("the checkpoint could not be written: %s", error.text);
}

int train_save_end(train_job *j, train_result *r)
{
    gs_error error = {0};
    if (!j->saver || finish(j, r, &error) == GS_OK)
        return CLI_GO;
    return cli_failed("the last checkpoint could not be written: %s", error.text);
}
