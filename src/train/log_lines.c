/* The writer of logs: its lines.
 *
 * (1) A line is built in memory and written by one call: whole lines only, whenever we are killed.
 * (2) JSON, CSV and TensorBoard say the same of a step: the schema (log_schema.c) makes all three.
 */
#include "train/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The first error. */
static gs_status note(gs_logger *l, gs_status status, const gs_error *error)
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
    return note(l, status, &error);
}

/* ---- values, by their schema ---- */

static void put_pairs(gsi_line *line, const gs_log_pairs *pairs)
{
    gsi_put(line, "{");
    for (size_t i = 0; i < pairs->n; i++) {
        const gs_log_pair *p = &pairs->at[i];
        if (p->value)
            gsi_add_string(line, p->key, p->value);
        else if (p->number >= 0 && p->number < 0x1p53 && p->number == floor(p->number))
            gsi_add_count(line, p->key, (uint64_t)p->number);
        else
            gsi_add_rough(line, p->key, p->number);
    }
    gsi_put(line, "}");
}

static void put_counts(gsi_line *line, const gs_log_counts *counts)
{
    gsi_put(line, "[");
    for (size_t i = 0; i < counts->n; i++)
        gsi_add_count(line, NULL, counts->at[i]);
    gsi_put(line, "]");
}

/* In CSV a number that is not finite is an empty field, and a text has no quotes. */
static void put_value(gsi_line *line, gsi_log_type type, const void *value, bool json)
{
    char text[16];
    switch (type) {
    case GSI_LOG_COUNT:
        gsi_put_count(line, *(const uint64_t *)value);
        break;
    case GSI_LOG_INTEGER:
        snprintf(text, sizeof text, "%d", *(const int *)value);
        gsi_put(line, text);
        break;
    case GSI_LOG_REAL:
    case GSI_LOG_MAGNITUDE:
    case GSI_LOG_ROUGH:
        gsi_put_real(line, *(const double *)value, type == GSI_LOG_ROUGH, json ? "null" : "");
        break;
    case GSI_LOG_FLAG:
        gsi_put(line, *(const int *)value ? "true" : "false");
        break;
    case GSI_LOG_TEXT:
        (json ? gsi_put_string : gsi_put)(line, *(const char *const *)value);
        break;
    case GSI_LOG_PAIRS:
        put_pairs(line, value);
        break;
    case GSI_LOG_COUNTS:
        put_counts(line, value);
        break;
    default: /* LAYERS, HISTOGRAMS: opened here, and their items put one by one */
        gsi_put(line, "[");
    }
}

static const void *field(const void *line, const gsi_log_member *m)
{
    return (const char *)line + m->at;
}

static void put_members(gsi_line *line, int schema, const void *from)
{
    const gsi_log_schema *s = &gsi_log_schemas[schema];
    for (size_t i = 0; i < s->n; i++) {
        gsi_put_name(line, s->members[i].key);
        put_value(line, s->members[i].type, field(from, &s->members[i]), true);
    }
}

/* ---- lines ---- */

/* All but the closing brace. */
static void begin_line(gs_logger *l, gs_log_kind kind, const void *line)
{
    gsi_put(&l->line, "{");
    if (gsi_log_events[kind])
        gsi_add_string(&l->line, "event", gsi_log_events[kind]);
    put_members(&l->line, (int)kind, line);
}

gs_status gsi_log_line(gs_logger *l, gs_log_kind kind, const void *line)
{
    if (l->json.fd < 0)
        return GS_OK;
    begin_line(l, kind, line);
    gsi_put(&l->line, "}");
    return gsi_log_write(l, &l->json);
}

/* An item of the list that ends the line. */
static void put_item(gs_logger *l, int schema, const void *item)
{
    gsi_add_open(&l->line, NULL, "{");
    put_members(&l->line, schema, item);
    gsi_put(&l->line, "}");
}

static gs_status end_list(gs_logger *l)
{
    gsi_put(&l->line, "]}");
    return gsi_log_write(l, &l->json);
}

void gsi_log_header(gs_logger *l)
{
    const gsi_log_schema *s = &gsi_log_schemas[GS_LOG_STEP];
    for (size_t i = 0; i < s->n; i++) {
        gsi_put(&l->line, i > 0 ? "," : "");
        gsi_put(&l->line, s->members[i].key);
    }
}

static gs_status write_csv(gs_logger *l, const gs_log_step *step)
{
    const gsi_log_schema *s = &gsi_log_schemas[GS_LOG_STEP];
    if (l->csv.fd < 0)
        return GS_OK;
    for (size_t i = 0; i < s->n; i++) {
        gsi_put(&l->line, i > 0 ? "," : "");
        put_value(&l->line, s->members[i].type, field(step, &s->members[i]), false);
    }
    return gsi_log_write(l, &l->csv);
}

/* TensorBoard: a step's members by their names, an event's as event/member. */
static gs_status plot(gs_logger *l, gs_log_kind kind, uint64_t step, const void *line)
{
    enum { TAG = 32 };
    const gsi_log_schema *s = &gsi_log_schemas[kind];
    const char *event = gsi_log_events[kind];
    char tags[GSI_LOG_MEMBERS][TAG];
    gsi_scalar list[GSI_LOG_MEMBERS];
    size_t n = 0;
    gs_error error = {0};
    for (size_t i = 0; i < s->n; i++) {
        if (!s->members[i].plotted)
            continue;
        snprintf(tags[n], TAG, "%s%s%s", event ? event : "", event ? "/" : "", s->members[i].key);
        list[n] = (gsi_scalar){tags[n], *(const double *)field(line, &s->members[i])};
        n++;
    }
    return note(l, gsi_tfevents_scalars(&l->board, step, list, n, &error), &error);
}

/* The status of a call, and its first message. */
static gs_status told(const gs_logger *l, gs_status status, gs_error *error)
{
    if (status != GS_OK && error)
        *error = l->error;
    return status;
}

static gs_status first_of(gs_status a, gs_status b) { return a != GS_OK ? a : b; }

/* ---- steps ---- */

gs_log_step gs_log_step_from(const gs_train_row *row, uint64_t items, double seconds)
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
            row->telemetry && values > 0 ? (double)s->underflow / (double)values : (double)NAN,
        .items_per_s = seconds > 0 ? (double)items / seconds : (double)NAN,
        .seconds = seconds,
        .items = items,
    };
}

gs_status gs_logger_step(gs_logger *l, const gs_log_step *step, gs_error *error)
{
    l->error = (gs_error){0};
    const gs_status json = gsi_log_line(l, GS_LOG_STEP, step), csv = write_csv(l, step);
    return told(l, first_of(first_of(json, csv), plot(l, GS_LOG_STEP, step->step, step)), error);
}

/* ---- events ---- */

gs_status gs_logger_run(gs_logger *l, const gs_log_run *run, gs_error *error)
{
    l->error = (gs_error){0};
    char when[32] = "";
    const time_t now = time(NULL);
    struct tm utc;
    gs_log_run line = *run;
    if (l->json.fd < 0)
        return GS_OK;
    if (gmtime_r(&now, &utc))
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    line.version = gs_version();
    line.time = when;
    l->fresh = false;
    return told(l, gsi_log_line(l, GS_LOG_RUN, &line), error);
}

gs_status gs_logger_valid(gs_logger *l, uint64_t step, double loss, double accuracy, int best,
                          gs_error *error)
{
    l->error = (gs_error){0};
    const gs_log_valid line = {step, loss, accuracy, best};
    const gs_status json = gsi_log_line(l, GS_LOG_VALID, &line);
    return told(l, first_of(json, plot(l, GS_LOG_VALID, step, &line)), error);
}

static gs_log_layer layer_of(const gs_layer *layer)
{
    const gs_stats *s = &layer->stats;
    const uint64_t values = s->elements - s->zero - s->inf - s->nan;
    return (gs_log_layer){.name = layer->name,
                          .elements = s->elements,
                          .underflow = values ? (double)s->underflow / (double)values : 0,
                          .subnormal = values ? (double)s->subnormal / (double)values : 0,
                          .inf = s->inf + s->nan,
                          .amax = (double)s->amax};
}

gs_status gs_logger_layers(gs_logger *l, uint64_t step, const gs_layer *layers, size_t n,
                           gs_error *error)
{
    l->error = (gs_error){0};
    const gs_log_layers line = {.step = step};
    if (l->json.fd < 0)
        return GS_OK;
    begin_line(l, GS_LOG_LAYERS, &line);
    for (size_t i = 0; i < n; i++) {
        const gs_log_layer layer = layer_of(&layers[i]);
        if (layer.elements > 0) /* else nothing of it was stored in half */
            put_item(l, GSI_LOG_LAYER, &layer);
    }
    return told(l, end_list(l), error);
}

/* From the first binade that is not empty to the last one. */
static gs_log_histogram histogram_of(const gs_layer *layer)
{
    const gs_exponents *x = layer->exponents;
    int first = 0, last = GS_BINADES - 1;
    while (first < last && x->all[first] == 0)
        first++;
    while (last > first && x->all[last] == 0)
        last--;
    return (gs_log_histogram){
        .name = layer->name,
        .first = first - GS_BINADE_OF_ONE,
        .counts = {x->all + first, x->all[first] > 0 ? (size_t)(last - first + 1) : 0},
        .zero = x->zero,
        .bad = x->inf + x->nan};
}

gs_status gs_logger_exponents(gs_logger *l, uint64_t step, gs_dtype half, double scale,
                              const gs_layer *layers, size_t n, gs_error *error)
{
    l->error = (gs_error){0};
    const gs_log_exponents line = {
        .step = step, .half = gs_dtype_format(half)->name, .scale = scale};
    if (l->json.fd < 0)
        return GS_OK;
    begin_line(l, GS_LOG_EXPONENTS, &line);
    for (size_t i = 0; i < n; i++)
        if (layers[i].exponents) {
            const gs_log_histogram histogram = histogram_of(&layers[i]);
            put_item(l, GSI_LOG_HISTOGRAM, &histogram);
        }
    return told(l, end_list(l), error);
}

gs_status gs_logger_checkpoint(gs_logger *l, uint64_t step, const char *path, double seconds,
                               gs_error *error)
{
    l->error = (gs_error){0};
    return told(l, gsi_log_line(l, GS_LOG_CHECKPOINT, &(gs_log_checkpoint){step, path, seconds}),
                error);
}

gs_status gs_logger_end(gs_logger *l, const gs_log_end *end, gs_error *error)
{
    l->error = (gs_error){0};
    gsi_log_line(l, GS_LOG_END, end);
    gsi_append *const files[] = {&l->json, &l->csv, &l->board};
    for (size_t i = 0; i < GSI_COUNT(files); i++) {
        gs_error lost = {0};
        note(l, gsi_append_sync(files[i], &lost), &lost);
    }
    return told(l, l->error.status, error);
}
