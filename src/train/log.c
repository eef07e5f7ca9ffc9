/* The writer of logs.
 *
 * (1) A line is built in memory and written by one call: whole lines only, whenever we are killed.
 * (2) JSON, CSV and TensorBoard say the same of a step: one table of columns makes all three.
 * (3) Numbers are the shortest that read back to the same double, with a point in every locale. */
#include "gradscale/log.h"

#include "io/io.h"
#include "io/lines.h"
#include "io/tfevents.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct gs_logger {
    gsi_heap heap;
    gsi_append json, csv, board;
    char *line;
    size_t n, room;
    bool fresh, lost; /* lost: there was no memory for the line */
    gs_error error;
};

/* ---- building a line ---- */

static void put_text(gs_logger *l, const char *text, size_t n)
{
    if (l->lost || !gsi_grow(&l->heap, &l->line, &l->room, l->n + n, 1)) {
        l->lost = true;
        return;
    }
    memcpy(l->line + l->n, text, n);
    l->n += n;
}

static void put(gs_logger *l, const char *text) { put_text(l, text, strlen(text)); }

/* `name` and a comma where one is due; NULL: in an array. */
static void put_name(gs_logger *l, const char *name)
{
    if (l->n > 0 && !strchr("{[:", l->line[l->n - 1]))
        put(l, ",");
    if (name) {
        put(l, "\"");
        put(l, name);
        put(l, "\":");
    }
}

static void put_count(gs_logger *l, uint64_t x)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, x);
    put(l, text);
}

static void put_real(gs_logger *l, double x, const char *not_finite)
{
    char text[64];
    if (!isfinite(x)) {
        put(l, not_finite);
        return;
    }
    for (int digits = 6; digits <= 17; digits += digits < 15 ? 9 : 1) { /* 6, 15, 16, 17 */
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    const char *point = localeconv()->decimal_point;
    const char *at = strcmp(point, ".") == 0 ? NULL : strstr(text, point);
    if (at) {
        put_text(l, text, (size_t)(at - text));
        put(l, ".");
        at += strlen(point);
    }
    put(l, at ? at : text);
}

/* What is not UTF-8 loses its bytes above 127. */
static void put_string(gs_logger *l, const char *text)
{
    if (!text) {
        put(l, "null");
        return;
    }
    const bool utf8 = gsi_utf8(text, strlen(text));
    put(l, "\"");
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        char escaped[8];
        if (c == '"' || c == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)c);
        else if (c > 0x7F && !utf8)
            snprintf(escaped, sizeof escaped, "\\ufffd");
        else
            snprintf(escaped, sizeof escaped, "%c", c);
        put(l, escaped);
    }
    put(l, "\"");
}

static void add_string(gs_logger *l, const char *name, const char *value)
{
    put_name(l, name);
    put_string(l, value);
}

static void add_count(gs_logger *l, const char *name, uint64_t value)
{
    put_name(l, name);
    put_count(l, value);
}

static void add_real(gs_logger *l, const char *name, double value)
{
    put_name(l, name);
    put_real(l, value, "null");
}

static void add_open(gs_logger *l, const char *name, const char *bracket)
{
    put_name(l, name);
    put(l, bracket);
}

static gs_status note(gs_logger *l, gs_status status, const gs_error *error)
{
    if (status != GS_OK && l->error.status == GS_OK)
        l->error = *error;
    return status;
}

static gs_status write_line(gs_logger *l, gsi_append *file)
{
    gs_error error = {0};
    put(l, "\n");
    const gs_status status = l->lost
                                 ? gsi_fail(&error, GS_ENOMEM, "no memory for a line of the log")
                                 : gsi_append_write(file, l->line, l->n, &error);
    l->n = 0;
    l->lost = false;
    return note(l, status, &error);
}

static bool begin_event(gs_logger *l, const char *event, uint64_t step)
{
    if (l->json.fd < 0)
        return false;
    put(l, "{");
    add_string(l, "event", event);
    if (step != UINT64_MAX)
        add_count(l, "step", step);
    return true;
}

static gs_status end_event(gs_logger *l)
{
    put(l, "}");
    return write_line(l, &l->json);
}

/* ---- steps ---- */

typedef enum kind { COUNT, REAL, FLAG, WORD } kind;

#define AT(member) offsetof(gs_log_step, member)
static const struct {
    const char *name;
    kind kind;
    size_t at;
    bool plotted; /* by TensorBoard */
} columns[] = {
    {"step", COUNT, AT(step), false},
    {"loss", REAL, AT(loss), true},
    {"scale", REAL, AT(scale), true},
    {"found_inf", FLAG, AT(found_inf), false},
    {"amax", REAL, AT(amax), false},
    {"verdict", WORD, AT(verdict), false},
    {"reason", WORD, AT(reason), false},
    {"reruns", COUNT, AT(reruns), false},
    {"grad_norm", REAL, AT(grad_norm), true},
    {"lr", REAL, AT(lr), true},
    {"underflow", REAL, AT(underflow), true},
    {"items_per_s", REAL, AT(items_per_s), true},
    {"seconds", REAL, AT(seconds), false},
    {"items", COUNT, AT(items), false},
};

/* Column i of the step, as JSON or as a field of CSV. */
static void put_column(gs_logger *l, size_t i, const gs_log_step *step, bool json)
{
    const char *const field = (const char *)step + columns[i].at;
    switch (columns[i].kind) {
    case COUNT:
        put_count(l, *(const uint64_t *)(const void *)field);
        break;
    case REAL:
        put_real(l, *(const double *)(const void *)field, json ? "null" : "");
        break;
    case FLAG:
        put(l, *(const int *)(const void *)field ? "true" : "false");
        break;
    case WORD:
        if (json)
            put_string(l, *(const char *const *)(const void *)field);
        else
            put(l, *(const char *const *)(const void *)field);
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
        .found_inf = row->reruns > 0 || overflow || s->inf + s->nan > 0 || !isfinite(row->report.norm),
        .amax = row->amax,
        .verdict = gs_action_name(v->action),
        .reason = gs_reason_name(v->reason),
        .reruns = row->reruns,
        .grad_norm = row->report.norm,
        .lr = row->report.lr,
        .underflow = row->telemetry && values > 0 ? (double)s->flushed / (double)values : (double)NAN,
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
            list[n++] = (gsi_scalar){columns[i].name, *(const double *)(const void *)((
                                                          const char *)step + columns[i].at)};
    return note(l, gsi_tfevents_scalars(&l->board, step->step, list, n, &error), &error);
}

gs_status gs_logger_step(gs_logger *l, const gs_log_step *step)
{
    gs_status first = GS_OK;
    if (l->json.fd >= 0) {
        put(l, "{");
        for (size_t i = 0; i < GSI_COUNT(columns); i++) {
            put_name(l, columns[i].name);
            put_column(l, i, step, true);
        }
        first = end_event(l);
    }
    if (l->csv.fd >= 0) {
        for (size_t i = 0; i < GSI_COUNT(columns); i++) {
            if (i > 0)
                put(l, ",");
            put_column(l, i, step, false);
        }
        const gs_status status = write_line(l, &l->csv);
        first = first == GS_OK ? status : first;
    }
    const gs_status status = plot(l, step);
    return first == GS_OK ? status : first;
}

/* ---- events ---- */

gs_status gs_logger_run(gs_logger *l, const gs_log_run *run)
{
    char when[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    if (!begin_event(l, "run", UINT64_MAX))
        return GS_OK;
    if (gmtime_r(&now, &utc))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    add_string(l, "version", gs_version());
    add_string(l, "time", when);
    add_string(l, "name", run->name);
    add_string(l, "model", run->model);
    add_string(l, "data", run->data);
    add_count(l, "parameters", run->parameters);
    add_open(l, "config", "{");
    for (size_t i = 0; i < run->configs; i++)
        add_string(l, run->config[i].key, run->config[i].value);
    put(l, "}");
    add_open(l, "machine", "{");
    add_string(l, "cpu", run->cpu);
    add_count(l, "threads", run->threads);
    add_string(l, "kernels", run->kernels);
    add_count(l, "ranks", (uint64_t)run->ranks);
    put(l, "}");
    add_open(l, "memory", "{");
    add_count(l, "weights", run->weights);
    add_count(l, "optimizer", run->optimizer);
    add_count(l, "activations", run->activations);
    add_count(l, "gradients", run->gradients);
    put(l, "}");
    l->fresh = false;
    return end_event(l);
}

gs_status gs_logger_valid(gs_logger *l, uint64_t step, double loss, double accuracy, int best)
{
    const gsi_scalar list[] = {{"valid/loss", loss}, {"valid/accuracy", accuracy}};
    gs_status first = GS_OK;
    if (begin_event(l, "valid", step)) {
        add_real(l, "loss", loss);
        add_real(l, "accuracy", accuracy);
        put_name(l, "best");
        put(l, best ? "true" : "false");
        first = end_event(l);
    }
    gs_error error = {0};
    const gs_status status =
        note(l, gsi_tfevents_scalars(&l->board, step, list, GSI_COUNT(list), &error), &error);
    return first == GS_OK ? status : first;
}

gs_status gs_logger_layers(gs_logger *l, uint64_t step, const gs_layer *layers, size_t n)
{
    if (!begin_event(l, "layers", step))
        return GS_OK;
    add_open(l, "layers", "[");
    for (size_t i = 0; i < n; i++) {
        const gs_stats *s = &layers[i].stats;
        const uint64_t values = s->elements - s->zero - s->inf - s->nan;
        if (s->elements == 0) /* nothing of it was stored in half */
            continue;
        add_open(l, NULL, "{");
        add_string(l, "name", layers[i].name);
        add_count(l, "elements", s->elements);
        add_real(l, "flushed", values ? (double)s->flushed / (double)values : 0);
        add_real(l, "subnormal", values ? (double)s->subnormal / (double)values : 0);
        add_count(l, "inf", s->inf + s->nan);
        add_real(l, "amax", (double)s->amax);
        put(l, "}");
    }
    put(l, "]");
    return end_event(l);
}

gs_status gs_logger_checkpoint(gs_logger *l, uint64_t step, const char *path, double seconds)
{
    if (!begin_event(l, "checkpoint", step))
        return GS_OK;
    add_string(l, "path", path);
    add_real(l, "seconds", seconds);
    return end_event(l);
}

gs_status gs_logger_end(gs_logger *l, const gs_log_end *end)
{
    if (!begin_event(l, "end", end->step))
        return GS_OK;
    add_real(l, "seconds", end->seconds);
    add_real(l, "loss", end->loss);
    add_real(l, "accuracy", end->accuracy);
    add_count(l, "applied", end->applied);
    add_count(l, "skipped", end->skipped);
    add_count(l, "retried", end->retried);
    add_string(l, "status", end->status);
    add_open(l, "phases", "{");
    for (size_t i = 0; i < end->n; i++)
        add_real(l, end->phases[i].name, end->phases[i].seconds);
    put(l, "}");
    return end_event(l);
}

/* ---- opening and closing ---- */

/* Bytes of the JSON log that are whole lines. */
static gs_status keep_json(uint64_t *keep, const char *path, gs_error *error)
{
    FILE *file = fopen(path, "r");
    *keep = 0;
    if (!file)
        return GS_OK;
    uint64_t at = 0;
    int c = getc(file);
    const bool ours = c == EOF || c == '{';
    for (; ours && c != EOF; c = getc(file)) {
        at++;
        if (c == '\n')
            *keep = at;
    }
    fclose(file);
    return ours ? GS_OK
                : gsi_fail(error, GS_EFORMAT, "%.120s: this is no log to go on with", path);
}

static void put_header(gs_logger *l)
{
    for (size_t i = 0; i < GSI_COUNT(columns); i++) {
        put(l, i > 0 ? "," : "");
        put(l, columns[i].name);
    }
}

/* Bytes of the CSV that are its header and whole rows of steps up to `step`. */
static gs_status keep_csv(gs_logger *l, uint64_t *keep, const char *path, uint64_t step,
                          gs_error *error)
{
    char row[1024];
    FILE *file = fopen(path, "r");
    *keep = 0;
    if (!file)
        return GS_OK;
    put_header(l);
    bool ours = !l->lost, header = true;
    while (ours && fgets(row, sizeof row, file)) {
        const size_t length = strlen(row);
        if (length == 0 || row[length - 1] != '\n')
            break;
        if (header)
            ours = length == l->n + 1 && memcmp(row, l->line, l->n) == 0;
        else if (strtoull(row, NULL, 10) > step)
            break;
        header = false;
        *keep += length;
    }
    fclose(file);
    l->n = 0;
    return ours ? GS_OK
                : gsi_fail(error, GS_EFORMAT, "%.120s: this is no CSV log to go on with", path);
}

static gs_status open_files(gs_logger *l, const gs_logger_config *config, gs_error *error)
{
    uint64_t json = 0, csv = 0;
    gs_status status = GS_OK;
    if (config->resume && config->json)
        status = keep_json(&json, config->json, error);
    if (status == GS_OK && config->resume && config->csv)
        status = keep_csv(l, &csv, config->csv, config->step, error);
    if (status == GS_OK && config->json)
        status = gsi_append_open(&l->json, config->json, json, error);
    if (status == GS_OK && config->csv)
        status = gsi_append_open(&l->csv, config->csv, csv, error);
    if (status == GS_OK && config->tensorboard)
        status = gsi_tfevents_open(&l->board, config->tensorboard, error);
    l->fresh = json == 0;
    if (status == GS_OK && config->csv && csv == 0) {
        put_header(l);
        status = write_line(l, &l->csv);
    }
    if (status == GS_OK && config->resume && json > 0 && begin_event(l, "resume", config->step)) {
        add_string(l, "from", config->from);
        status = end_event(l);
    }
    if (status == GS_OK && config->resume && l->board.fd >= 0)
        status = gsi_tfevents_resume(&l->board, config->step, error);
    if (l->error.status != GS_OK && error)
        *error = l->error;
    return status;
}

gs_status gs_logger_open(gs_logger **out, const gs_logger_config *config, const gs_alloc *alloc,
                         gs_error *error)
{
    if (!out || !config)
        return gsi_fail(error, GS_ENULL, "the settings of a log are NULL");
    *out = NULL;
    gsi_heap heap;
    gsi_heap_init(&heap, alloc);
    gs_logger *l = gsi_new(&heap, sizeof *l);
    if (!l)
        return gsi_fail(error, GS_ENOMEM, "no memory for a log");
    *l = (gs_logger){.heap = heap, .json.fd = -1, .csv.fd = -1, .board.fd = -1};
    const gs_status status = open_files(l, config, error);
    if (status != GS_OK) {
        gs_logger_close(l);
        return status;
    }
    *out = l;
    return GS_OK;
}

void gs_logger_close(gs_logger *l)
{
    if (!l)
        return;
    gsi_append_close(&l->json);
    gsi_append_close(&l->csv);
    gsi_append_close(&l->board);
    gsi_heap heap = l->heap;
    gsi_free(&heap, l->line);
    gsi_free(&heap, l);
}

const gs_error *gs_logger_error(const gs_logger *l) { return &l->error; }

int gs_logger_fresh(const gs_logger *l) { return l->fresh; }
