/* The loop: steps, and between them validation, checkpoints, logs and signals.
 *
 * (1) What is saved after step n leads to the same step n + 1 that would have followed.
 * (2) A validation comes before the checkpoint of its step, which so knows whether it was the best.
 * (3) A signal is looked at between steps; the second one ends the process where it stands. */
#include "cli/train/ranks.h"
#include "cli/train/train.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const train_phase_names[TRAIN_PHASES] = {
#define X(id, name) name,
    GS_PHASES(X)
#undef X
        "data",
    "log", "valid", "save"};

const char *train_ending_name(train_ending ending)
{
    static const char *const names[] = {"done",   "interrupted", "early stop",
                                        "failed", "stuck",       "diverged"};
    return names[ending];
}

/* ---- signals ---- */

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    if (caught)
        _exit(128 + number);
    caught = number;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* nohup */
        sigaction(SIGHUP, &action, NULL);
}

/* ---- validation ---- */

static bool is_better(const train_job *j, double value)
{
    const bool high = j->info->task == GS_TASK_CLASSES; /* accuracy; else the loss */
    return isfinite(value) &&
           (isnan(j->about.best) || (high ? value > j->about.best : value < j->about.best));
}

static bool is_patient_no_more(const train_job *j)
{
    return j->o.patience > 0 && j->about.waits >= j->o.patience && j->about.step < j->o.steps;
}

static int validate(train_job *j, train_result *r, bool *best)
{
    int code = train_save_settle(j, r);
    if (code == CLI_GO)
        code = train_validate(j, &r->loss, &r->accuracy);
    if (code != CLI_GO)
        return code;
    const double value = j->info->task == GS_TASK_CLASSES ? r->accuracy : r->loss;
    *best = isfinite(r->loss) && is_better(j, value);
    if (*best)
        train_save_best(j, r, value);
    else
        j->about.waits++;
    train_log_valid(j, r, *best);
    if (!j->o.quiet)
        train_show_valid(j, r->loss, r->accuracy, *best);
    return CLI_GO;
}

/* ---- steps ---- */

static void lap(train_result *r, double *start, int phase)
{
    const double time = gs_clock();
    r->phases[phase] += time - *start;
    *start = time;
}

static double smooth(double mean, double x)
{
    return !isfinite(x) ? mean : isnan(mean) ? x : 0.95 * mean + 0.05 * x;
}

static int fail_step(train_job *j, train_result *r, gs_status status)
{
    r->ending = TRAIN_FAILED;
    return cli_fail_status(status, gs_context_error(j->ctx));
}

/* The scaler's explanation, with the weights by their names. */
static const char *explain(const train_job *j, char text[512])
{
    gs_tensor *list = cli_resize(NULL, j->model->n * sizeof *list);
    for (size_t i = 0; i < j->model->n; i++)
        list[i] = (gs_tensor){.name = j->model->entries[i].name};
    gs_scaler_explain(text, 512, gs_trainer_scaler(j->trainer), list, j->model->n);
    free(list);
    return text;
}

static int take_step(train_job *j, train_result *r)
{
    const gs_batch *micro;
    size_t n;
    gs_error error = {0};
    gs_train_row row;
    const double begin = gs_clock();
    double start = begin;
    gs_status status = gs_loader_next(&micro, &n, j->loader, &error);
    if (status != GS_OK) {
        r->ending = TRAIN_FAILED;
        if (j->comm.size > 1) /* the others wait for this rank, which has nothing */
            gs_trainer_step(j->trainer, NULL, 0, NULL);
        return cli_fail_status(status, &error);
    }
    lap(r, &start, TRAIN_DATA);
    gs_tape_set_exponents(gs_trainer_tape(j->trainer),
                          j->log && train_due(j->about.step + 1, j->o.telemetry_every));
    status = gs_trainer_step(j->trainer, micro, n, &row);
    if (status != GS_OK)
        return fail_step(j, r, status);
    start = gs_clock();

    const uint64_t before = j->about.items;
    j->about.items = gs_loader_position(j->loader);
    j->about.step++;
    const uint64_t items = (j->about.items - before) * j->items_each;
    const gs_log_step step = gs_log_step_from(&row, items, start - begin);
    for (int i = 0; i < GS_PHASE_COUNT; i++)
        r->phases[i] += row.seconds[i];
    r->items += items;
    r->sent += row.sent;
    r->scale = row.scale;
    r->loss = row.loss;
    if (row.report.verdict.action != GS_APPLY && r->first_skip == 0)
        r->first_skip = j->about.step;
    if (!isfinite(row.loss) && r->first_bad == 0)
        r->first_bad = j->about.step;
    r->accuracy = (double)NAN;
    r->shown = smooth(r->shown, row.loss);
    r->pace = smooth(r->pace, step.seconds / (double)items);
    train_log_step(j, r, &row, &step);
    if (!j->o.quiet)
        train_show_progress(j, r, &step);
    lap(r, &start, TRAIN_LOG);

    char why[512];
    if (row.report.verdict.action == GS_FAIL) {
        r->ending = TRAIN_FAILED;
        return cli_failed("step %llu: %s", (unsigned long long)j->about.step, explain(j, why));
    }
    const gs_health health = gs_scaler_health(gs_trainer_scaler(j->trainer));
    if (health == GS_STUCK && !r->stuck)
        cli_warn("step %llu: %s", (unsigned long long)j->about.step, explain(j, why));
    r->stuck = health == GS_STUCK;
    return CLI_GO;
}

/* What follows a step: validation, then the checkpoint. `signal` is what any rank has caught: all
 * are to end after the same step. */
static int between_steps(train_job *j, train_result *r, int signal)
{
    const train_options *o = &j->o;
    const uint64_t step = j->about.step;
    const bool last = step >= o->steps;
    bool best = false, busy = false;
    int code = CLI_GO;
    double start = gs_clock();
    train_save_poll(j, r);
    if (train_valid_possible(j) && (train_due(step, o->valid_every) || last)) {
        code = validate(j, r, &best);
        busy = true;
        lap(r, &start, TRAIN_VALID);
    }
    if (busy && is_patient_no_more(j)) /* after a validation all ranks know the same */
        r->ending = TRAIN_EARLY;
    else if (!last && (r->signal = signal) != 0)
        r->ending = TRAIN_STOPPED;
    const bool ends = last || r->ending != TRAIN_DONE;
    if (code == CLI_GO && o->checkpoint && (best || ends || train_due(step, o->checkpoint_every))) {
        code = train_save(j, r, best);
        busy = true;
        lap(r, &start, TRAIN_SAVE);
    }
    return busy ? ranks_first_error(code, NULL) : code;
}

/* A run that goes on at its end takes no step: what it has come to is measured again. */
static int measure_end(train_job *j, train_result *r)
{
    const gs_batch *micro;
    size_t n;
    gs_error error = {0};
    if (train_valid_possible(j))
        return train_validate(j, &r->loss, &r->accuracy);
    gs_status status = gs_loader_next(&micro, &n, j->loader, &error);
    if (status == GS_OK && (status = gs_trainer_evaluate(&r->loss, NULL, j->trainer, micro)))
        error = *gs_context_error(j->ctx);
    const int code =
        ranks_first_error(status == GS_OK ? CLI_GO : cli_fail_status(status, &error), NULL);
    if (code == CLI_GO && gs_comm_sum(&j->comm, j->ctx, &r->loss, 1) != GS_OK)
        return cli_fail_status(GS_ERANK, gs_context_error(j->ctx));
    r->loss /= j->comm.size;
    return code;
}

/* A run that came to its last step may have come to nothing. CLI_GO, or the exit code. Steps count
 * that were taken before a resume, too: one that is left and skipped says nothing of the others. */
static int judge_end(const train_job *j, train_result *r)
{
    const unsigned long long applied = gs_trainer_scaler(j->trainer)->counters.applied,
                             all = applied + train_skipped(j);
    char why[64] = "";
    if (applied < all && applied * 10 < all) {
        r->ending = TRAIN_STUCK;
        if (r->first == 0)
            snprintf(why, sizeof why, ", and step %llu was the first to be skipped",
                     (unsigned long long)r->first_skip);
        return cli_failed("the run came to nothing: %llu of %llu step%s %s applied%s", applied, all,
                          cli_s(all), applied == 1 || all == 1 ? "was" : "were", why);
    }
    if (!isfinite(r->loss)) {
        const bool before = r->first > 0 && r->first_bad == r->first + 1; /* the resume, perhaps */
        if (r->first_bad > 0 && !before)
            snprintf(why, sizeof why, ", first at step %llu", (unsigned long long)r->first_bad);
        r->ending = TRAIN_DIVERGED;
        return cli_failed("the run came to nothing: the loss is not finite%s", why);
    }
    return CLI_GO;
}

int train_loop(train_job *j, train_result *r)
{
    *r = (train_result){.first = j->about.step,
                        .loss = (double)NAN,
                        .accuracy = (double)NAN,
                        .shown = (double)NAN,
                        .pace = (double)NAN,
                        .scale = gs_scaler_scale(gs_trainer_scaler(j->trainer))};
    const double start = gs_clock();
    int code = CLI_GO;
    catch_signals();
    /* a kill may have come between the checkpoint and its second name as the best */
    if (j->o.checkpoint && r->first > 0 && j->about.best_step == r->first)
        code = ranks_first_error(train_save(j, r, true), NULL);
    if (is_patient_no_more(j)) /* a run that has ended early */
        r->ending = TRAIN_EARLY;
    while (code == CLI_GO && j->about.step < j->o.steps && r->ending == TRAIN_DONE) {
        code = take_step(j, r);
        int signal = caught;
        code = ranks_first_error(code, &signal);
        if (code == CLI_GO)
            code = between_steps(j, r, signal);
    }
    if (code == CLI_GO && j->about.step > r->first && gs_trainer_compare(j->trainer) != GS_OK)
        code = fail_step(j, r, GS_ERANK);
    if (code == CLI_GO && j->about.step == r->first)
        code = measure_end(j, r);
    const double waits = gs_clock();
    const int saved = train_save_end(j, r);
    code = code == CLI_GO ? saved : code;
    r->phases[TRAIN_SAVE] += gs_clock() - waits;
    r->seconds = gs_clock() - start;
    if (code != CLI_GO)
        r->ending = TRAIN_FAILED;
    else if (r->ending == TRAIN_DONE || r->ending == TRAIN_EARLY)
        code = judge_end(j, r);
    train_log_end(j, r);
    if (code == CLI_GO && r->ending == TRAIN_STOPPED)
        code = 128 + r->signal;
    if (code == CLI_GO && (r->log_failed || r->save_failed))
        code = CLI_FAILED;
    return code;
}
