/* What the loop tells the log. */
#include "cli/train/ranks.h"
#include "cli/train/train.h"

#include <stdlib.h>
#include <string.h>

typedef struct pairs {
    gs_log_pair list[128];
    size_t n;
} pairs;

static char *copy_of(const char *text) { return strcpy(cli_resize(NULL, strlen(text) + 1), text); }

/* A list is one member, its items with spaces between them. */
static void add_pair(void *user, const char *key, const char *value)
{
    pairs *p = user;
    gs_log_pair *last = p->n > 0 ? &p->list[p->n - 1] : NULL;
    if (last && strcmp(last->key, key) == 0) {
        char *both = cli_resize(NULL, strlen(last->value) + strlen(value) + 2);
        sprintf(both, "%s %s", last->value, value);
        free((void *)(uintptr_t)last->value);
        last->value = both;
    } else if (p->n < sizeof p->list / sizeof p->list[0]) {
        p->list[p->n++] = (gs_log_pair){.key = key, .value = copy_of(value)};
    }
}

static gs_status log_run(train_job *j, const gs_train_row *row)
{
    char cpu[128];
    pairs config = {.n = 0};
    cli_config_each(train_rows, add_pair, &config);
    const train_bytes bytes = train_job_bytes(j, row->memory);
    const gs_log_pair machine[] = {
        {.key = "cpu", .value = cli_cpu_model(cpu)},
        {.key = "threads", .number = gs_context_threads(j->ctx)},
        {.key = "kernels", .value = cli_kernels(gs_context_cpu(j->ctx))},
        {.key = "ranks", .number = j->comm.size},
    };
    const gs_log_pair memory[] = {
        {.key = "weights", .number = (double)bytes.weights},
        {.key = "optimizer", .number = (double)bytes.optimizer},
        {.key = "activations", .number = (double)bytes.activations},
        {.key = "gradients", .number = (double)bytes.gradients},
    };
    const gs_log_run run = {.name = j->o.name,
                            .model = j->line,
                            .data = j->info->name,
                            .parameters = train_job_parameters(j),
                            .config = {config.list, config.n},
                            .machine = {machine, sizeof machine / sizeof machine[0]},
                            .memory = {memory, sizeof memory / sizeof memory[0]}};
    const gs_status status = gs_logger_run(j->log, &run, &j->log_error);
    for (size_t i = 0; i < config.n; i++)
        free((void *)(uintptr_t)config.list[i].value);
    return status;
}

/* Training goes on without a log that cannot be written: says so once of each, and the exit code
 * will tell. */
static void note(train_job *j, train_result *r, gs_status status)
{
    const unsigned lost = gs_logger_lost(j->log);
    if (status != GS_OK && (!r->log_failed || lost != r->lost_logs))
        cli_warn("%s: the run goes on without it", j->log_error.text);
    r->lost_logs = lost;
    r->log_failed |= status != GS_OK;
}

/* ---- what happened: on slow storage it may take its time, and other ranks wait ---- */

typedef struct entry {
    train_job *j;
    train_result *r;
    const gs_train_row *row; /* of a step */
    const gs_log_step *step;
    bool best;      /* of a validation */
    uint64_t saved; /* of a checkpoint */
    const char *path;
} entry;

static void enter(entry *e, int (*write)(void *user))
{
    if (e->j->log)
        ranks_busy(write, e);
}

static int write_step(void *user)
{
    const entry *e = user;
    train_job *j = e->j;
    train_result *r = e->r;
    const gs_train_row *row = e->row;
    const gs_log_step *step = e->step;
    if (gs_logger_fresh(j->log))
        note(j, r, log_run(j, row));
    note(j, r, gs_logger_step(j->log, step, &j->log_error));
    size_t n;
    const gs_layer *layers = gs_tape_layers(gs_trainer_tape(j->trainer), &n);
    if (!layers || !train_due(step->step, j->o.telemetry_every))
        return CLI_GO;
    const gs_dtype half = j->o.precision == TRAIN_FP32 ? GS_F32 : j->half;
    note(j, r, gs_logger_layers(j->log, step->step, layers, n, &j->log_error));
    note(j, r, gs_logger_exponents(j->log, step->step, half, row->scale, layers, n, &j->log_error));
    return CLI_GO;
}

void train_log_step(train_job *j, train_result *r, const gs_train_row *row, const gs_log_step *step)
{
    enter(&(entry){.j = j, .r = r, .row = row, .step = step}, write_step);
}

static int write_valid(void *user)
{
    const entry *e = user;
    train_job *j = e->j;
    note(
        j, e->r,
        gs_logger_valid(j->log, j->about.step, e->r->loss, e->r->accuracy, e->best, &j->log_error));
    return CLI_GO;
}

void train_log_valid(train_job *j, train_result *r, bool best)
{
    enter(&(entry){.j = j, .r = r, .best = best}, write_valid);
}

static int write_checkpoint(void *user)
{
    const entry *e = user;
    train_job *j = e->j;
    note(j, e->r, gs_logger_checkpoint(j->log, e->saved, e->path, e->r->held, &j->log_error));
    return CLI_GO;
}

void train_log_checkpoint(train_job *j, train_result *r, uint64_t step, const char *path)
{
    enter(&(entry){.j = j, .r = r, .saved = step, .path = path}, write_checkpoint);
}

static int write_end(void *user)
{
    const entry *e = user;
    train_job *j = e->j;
    train_result *r = e->r;
    gs_log_pair phases[TRAIN_PHASES];
    const gs_counters *c = &gs_trainer_scaler(j->trainer)->counters;
    for (int i = 0; i < TRAIN_PHASES; i++)
        phases[i] = (gs_log_pair){.key = train_phase_names[i], .number = r->phases[i]};
    const gs_log_end end = {.step = j->about.step,
                            .seconds = r->seconds,
                            .loss = r->loss,
                            .accuracy = r->accuracy,
                            .applied = c->applied,
                            .skipped = train_skipped(j),
                            .retried = c->retried,
                            .status = train_ending_name(r->ending),
                            .phases = {phases, TRAIN_PHASES}};
    note(j, r, gs_logger_end(j->log, &end, &j->log_error));
    return CLI_GO;
}

void train_log_end(train_job *j, train_result *r) { enter(&(entry){.j = j, .r = r}, write_end); }
