/* The writer of logs: its lines.
 *
 * (1) A line is built in memory and written by one call: whole lines only, whenever we are killed.
 * (2) JSON, CSV and TensorBoard say the same of a step: one table of columns makes all three. */
#include "train/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

gs_status gsi_log_note(gs_logger *l, gs_status status, const gs_error *error)
{
    if (status != GS_OK && l->error.status == GS_OK)
        l->error = *error;
    return status;
}

gs_status gsi_log_write(gs_logger *l, gsi_append *file)
{
    gs_error error = {0};
    gsi_put(&l->line, "\n");
    const gs_status status = l->line.lost
                                 ? gsi_fail(&error, GS_ENOMEM, "no memory for a line of the log")
                                 : gsi_append_write(file, l->line.text, l->line.n, &error);
    l->line.n = 0;
    l->line.lost = false;
    return gsi_log_note(l, status, &error);
}

bool gsi_log_event(gs_logger *l, const char *event, uint64_t step)
{
    if (l->json.fd < 0)
        return false;
    gsi_put(&l->line, "{");
    gsi_add_string(&l->line, "event", event);
    if (step != UINT64_MAX)
        gsi_add_count(&l->line, "step", step);
    return true;
}

gs_status gsi_log_end_event(gs_logger *l)
{
    gsi_put(&l->line, "}");
    return gsi_log_write(l, &l->json);
}

/* ---- steps ---- */

typedef enum kind { COUNT, REAL, ROUGH, FLAG, WORD } kind; /* ROUGH: 6 digits say it */

#define AT(member) offsetof(gs_log_step, member)
static const struct {
    const char *name;
    kind kind;
    size_t at;
    bool plotted; /* by TensorBoard */
} columns[] = {
    {"step", COUNT, AT(step), false},         {"loss", REAL, AT(loss), true},
    {"scale", REAL, AT(scale), true},         {"found_inf", FLAG, AT(found_inf), false},
    {"amax", REAL, AT(amax), false},          {"verdict", WORD, AT(verdict), false},
    {"reason", WORD, AT(reason), false},      {"reruns", COUNT, AT(reruns), false},
    {"grad_norm", REAL, AT(grad_norm), true}, {"lr", REAL, AT(lr), true},
    {"underflow", REAL, AT(underflow), true}, {"items_per_s", ROUGH, AT(items_per_s), true},
    {"seconds", ROUGH, AT(seconds), false},   {"items", COUNT, AT(items), false},
};

/* Column i of the step, as JSON or as a field of CSV. */
static void put_column(gs_logger *l, size_t i, const gs_log_step *step, bool json)
{
    const char *const field = (const char *)step + columns[i].at;
    switch (columns[i].kind) {
    case COUNT:
        gsi_put_count(&l->line, *(const uint64_t *)(const void *)field);
        break;
    case REAL:
    case ROUGH:
        gsi_put_real(&l->line, *(const double *)(const void *)field, columns[i].kind == ROUGH,
                     json ? "null" : "");
        break;
    case FLAG:
        gsi_put(&l->line, *(const int *)(const void *)field ? "true" : "false");
        break;
    case WORD:
        if (json)
            gsi_put_string(&l->line, *(const char *const *)(const void *)field);
        else
            gsi_put(&l->line, *(const char *const *)(const void *)field);
        break;
    }
}

gs_log_step gs_log_step_of(const gs_train_row *row, uint64_t items, double seconds)
{
    const gs_stats *s = &row->stored;
    const gs_verdict *v = &row->report.verdict;
    const uint64_t values = s->elements - s->zero - s->inf - s->nan;
    const bool overflow = v->reason == GS_REASON_INF || v->reason == GS_REASON_NAN;
    return (gs_log_step){
        .step = row->step + 1,
        .loss = row->loss,
        .scale = row->scale,
        .found_inf =
            row->reruns > 0 || overflow || s->inf + s->nan > 0 || !isfinite(row->report.norm),
        .amax = row->amax,
        .verdict = gs_action_name(v->action),
        .reason = gs_reason_name(v->reason),
        .reruns = row->reruns,
        .grad_norm = row->report.norm,
        .lr = row->report.lr,
        .underflow =
            row->telemetry && values > 0 ? (double)s->flushed / (double)values : (double)NAN,
        .items_per_s = seconds > 0 ? (double)items / seconds : (double)NAN,
        .seconds = seconds,
        .items = items,
    };
}

static gs_status plot(gs_logger *l, const gs_log_step *step)
{
    gsi_scalar list[GSI_COUNT(columns)];
    size_t n = 0;
    gs_error error = {0};
    for (size_t i = 0; i < GSI_COUNT(columns); i++)
        if (columns[i].plotted)
            list[n++] =
                (gsi_scalar){columns[i].name,
                             *(const double *)(const void *)((const char *)step + columns[i].at)};
    return gsi_log_note(l, gsi_tfevents_scalars(&l->board, step->step, list, n, &error), &error);
}

gs_status gs_logger_step(gs_logger *l, const gs_log_step *step)
{
    gs_status first = GS_OK;
    if (l->json.fd >= 0) {
        gsi_put(&l->line, "{");
        for (size_t i = 0; i < GSI_COUNT(columns); i++) {
            gsi_put_name(&l->line, columns[i].name);
            put_column(l, i, step, true);
        }
        first = gsi_log_end_event(l);
    }
    if (l->csv.fd >= 0) {
        for (size_t i = 0; i < GSI_COUNT(columns); i++) {
            if (i > 0)
                gsi_put(&l->line, ",");
            put_column(l, i, step, false);
        }
        const gs_status status = gsi_log_write(l, &l->csv);
        first = first == GS_OK ? status : first;
    }
    const gs_status status = plot(l, step);
    return first == GS_OK ? status : first;
}

void gsi_log_header(gs_logger *l)
{
    for (size_t i = 0; i < GSI_COUNT(columns); i++) {
        gsi_put(&l->line, i > 0 ? "," : "");
        gsi_put(&l->line, columns[i].name);
    }
}

/* ---- events ---- */

gs_status gs_logger_run(gs_logger *l, const gs_log_run *run)
{
    char when[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (!gsi_log_event(l, "run", UINT64_MAX))
        return GS_OK;
    if (gmtime_r(&now, &utc))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    gsi_add_string(&l->line, "version", gs_version());
    gsi_add_string(&l->line, "time", when);
    gsi_add_string(&l->line, "name", run->name);
    gsi_add_string(&l->line, "model", run->model);
    gsi_add_string(&l->line, "data", run->data);
    gsi_add_count(&l->line, "parameters", run->parameters);
    gsi_add_open(&l->line, "config", "{");
    for (size_t i = 0; i < run->configs; i++)
        gsi_add_string(&l->line, run->config[i].key, run->config[i].value);
    gsi_put(&l->line, "}");
    gsi_add_open(&l->line, "machine", "{");
    gsi_add_string(&l->line, "cpu", run->cpu);
    gsi_add_count(&l->line, "threads", run->threads);
    gsi_add_string(&l->line, "kernels", run->kernels);
    gsi_add_count(&l->line, "ranks", (uint64_t)run->ranks);
    gsi_put(&l->line, "}");
    gsi_add_open(&l->line, "memory", "{");
    gsi_add_count(&l->line, "weights", run->weights);
    gsi_add_count(&l->line, "optimizer", run->optimizer);
    gsi_add_count(&l->line, "activations", run->activations);
    gsi_add_count(&l->line, "gradients", run->gradients);
    gsi_put(&l->line, "}");
    l->fresh = false;
    return gsi_log_end_event(l);
}

gs_status gs_logger_valid(gs_logger *l, uint64_t step, double loss, double accuracy, int best)
{
    const gsi_scalar list[] = {{"valid/loss", loss}, {"valid/accuracy", accuracy}};
    gs_status first = GS_OK;
    if (gsi_log_event(l, "valid", step)) {
        gsi_add_real(&l->line, "loss", loss);
        gsi_add_real(&l->line, "accuracy", accuracy);
        gsi_put_name(&l->line, "best");
        gsi_put(&l->line, best ? "true" : "false");
        first = gsi_log_end_event(l);
    }
    gs_error error = {0};
    const gs_status status = gsi_log_note(
        l, gsi_tfevents_scalars(&l->board, step, list, GSI_COUNT(list), &error), &error);
    return first == GS_OK ? status : first;
}

gs_status gs_logger_layers(gs_logger *l, uint64_t step, const gs_layer *layers, size_t n)
{
    if (!gsi_log_event(l, "layers", step))
        return GS_OK;
    gsi_add_open(&l->line, "layers", "[");
    for (size_t i = 0; i < n; i++) {
        const gs_stats *s = &layers[i].stats;
        const uint64_t values = s->elements - s->zero - s->inf - s->nan;
        if (s->elements == 0) /* nothing of it was stored in half */
            continue;
        gsi_add_open(&l->line, NULL, "{");
        gsi_add_string(&l->line, "name", layers[i].name);
        gsi_add_count(&l->line, "elements", s->elements);
        gsi_add_rough(&l->line, "flushed", values ? (double)s->flushed / (double)values : 0);
        gsi_add_rough(&l->line, "subnormal", values ? (double)s->subnormal / (double)values : 0);
        gsi_add_count(&l->line, "inf", s->inf + s->nan);
        gsi_add_real(&l->line, "amax", (double)s->amax);
        gsi_put(&l->line, "}");
    }
    gsi_put(&l->line, "]");
    return gsi_log_end_event(l);
}

/* From the first binade that is not empty to the last one. */
static void put_binades(gs_logger *l, const gs_exponents *x)
{
    int first = 0, last = GS_BINADES - 1;
    while (first < last && x->all[first] == 0)
        first++;
    while (last > first && x->all[last] == 0)
        last--;
    char exponent[16];
    snprintf(exponent, sizeof exponent, "%d", first - GS_BINADE_OF_ONE);
    gsi_put_name(&l->line, "first");
    gsi_put(&l->line, exponent);
    gsi_add_open(&l->line, "counts", "[");
    for (int i = first; i <= last && x->all[first] > 0; i++)
        gsi_add_count(&l->line, NULL, x->all[i]);
    gsi_put(&l->line, "]");
    gsi_add_count(&l->line, "zero", x->zero);
    gsi_add_count(&l->line, "bad", x->inf + x->nan);
}

gs_status gs_logger_exponents(gs_logger *l, uint64_t step, gs_dtype half, double scale,
                              const gs_layer *layers, size_t n)
{
    if (!gsi_log_event(l, "exponents", step))
        return GS_OK;
    gsi_add_string(&l->line, "half", gs_format_of(half)->name);
    gsi_add_real(&l->line, "scale", scale);
    gsi_add_open(&l->line, "layers", "[");
    for (size_t i = 0; i < n; i++) {
        if (!layers[i].exponents)
            continue;
        gsi_add_open(&l->line, NULL, "{");
        gsi_add_string(&l->line, "name", layers[i].name);
        put_binades(l, layers[i].exponents);
        gsi_put(&l->line, "}");
    }
    gsi_put(&l->line, "]");
    return gsi_log_end_event(l);
}

gs_status gs_logger_checkpoint(gs_logger *l, uint64_t step, const char *path, double seconds)
{
    if (!gsi_log_event(l, "checkpoint", step))
        return GS_OK;
    gsi_add_string(&l->line, "path", path);
    gsi_add_rough(&l->line, "seconds", seconds);
    return gsi_log_end_event(l);
}

gs_status gs_logger_end(gs_logger *l, const gs_log_end *end)
{
    if (!gsi_log_event(l, "end", end->step))
        return GS_OK;
    gsi_add_rough(&l->line, "seconds", end->seconds);
    gsi_add_real(&l->line, "loss", end->loss);
    gsi_add_real(&l->line, "accuracy", end->accuracy);
    gsi_add_count(&l->line, "applied", end->applied);
    gsi_add_count(&l->line, "skipped", end->skipped);
    gsi_add_count(&l->line, "retried", end->retried);
    gsi_add_string(&l->line, "status", end->status);
    gsi_add_open(&l->line, "phases", "{");
    for (size_t i = 0; i < end->n; i++)
        gsi_add_rough(&l->line, end->phases[i].name, end->phases[i].seconds);
    gsi_put(&l->line, "}");
    return gsi_log_end_event(l);
}
