/* The reader of logs: one line at a time into its struct, by the schema (log_schema.c).
 *
 * (1) A member that is missing or of another type is "not there" in the struct; whether the line is
 *     of use without it is the caller's to say (gs_log_has).
 * (2) After a line that is refused the next call goes on behind it.
 * (3) What a line points to lies in `arena`, until the next call. */
#include "train/log.h"

#include "io/json.h"
#include "io/lines.h"

#include <limits.h>
#include <math.h>
#include <string.h>

struct gs_log_file {
    gsi_lines lines;
    const gsi_node *root; /* in the arena */
    gs_log_kind kind;
    gsi_arena arena;
    bool no_memory;
};

gs_status gs_log_open(gs_log_file **out, const char *path, const gs_alloc *alloc, gs_error *error)
{
    gsi_lines lines;
    const gs_status status = gsi_lines_open(&lines, path, alloc, error);
    *out = NULL;
    if (status != GS_OK)
        return status;
    gs_log_file *file = gsi_new(&lines.heap, sizeof *file);
    if (!file) {
        gsi_lines_close(&lines);
        return gsi_fail(error, GS_ENOMEM, "%s: out of memory", path);
    }
    *file = (gs_log_file){.lines = lines};
    gsi_arena_init(&file->arena, &file->lines.heap);
    *out = file;
    return GS_OK;
}

void gs_log_close(gs_log_file *file)
{
    if (!file)
        return;
    gsi_arena_free(&file->arena);
    gsi_lines_close(&file->lines);
    gsi_heap heap = file->lines.heap;
    gsi_free(&heap, file);
}

uint64_t gs_log_file_bytes(const gs_log_file *file) { return file->lines.bytes; }

/* ---- values: false if one is of another type; NULL is none ---- */

static bool is(const gsi_node *value, gsi_json_kind kind) { return value && value->kind == kind; }
static bool is_missing(const gsi_node *value) { return !value || is(value, GSI_JSON_NULL); }
static bool is_number(const gsi_node *value) { return is(value, GSI_JSON_NUMBER); }
static bool is_boolean(const gsi_node *value)
{
    return is(value, GSI_JSON_TRUE) || is(value, GSI_JSON_FALSE);
}
static const char *text_of(const gsi_node *value)
{
    return is(value, GSI_JSON_STRING) ? value->text : NULL;
}

static bool says_not_finite(const char *text)
{
    static const char *const words[] = {"nan", "NaN", "NAN",      "inf",
                                        "Inf", "INF", "infinity", "Infinity"};
    text += *text == '-' || *text == '+';
    for (size_t i = 0; i < GSI_COUNT(words); i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

/* A number; or null or a string that says so, for one that is not finite: NaN. */
static bool read_real(double *out, const gsi_node *value)
{
    *out = is_number(value) ? value->number : (double)NAN;
    return is_number(value) || is_missing(value) ||
           (text_of(value) && says_not_finite(text_of(value)));
}

static bool read_magnitude(double *out, const gsi_node *value)
{
    const bool is_real = read_real(out, value), is_negative = *out < 0;
    if (is_negative)
        *out = (double)NAN;
    return is_real && !is_negative;
}

static bool read_count(uint64_t *out, const gsi_node *value)
{
    const double x = is_number(value) ? value->number : -1;
    const bool is_count = x >= 0 && x < 0x1p64 && x == floor(x);
    *out = is_count ? (uint64_t)x : GS_LOG_NONE;
    return is_count || !value;
}

static bool read_integer(int *out, const gsi_node *value)
{
    const double x = is_number(value) ? value->number : (double)NAN;
    const bool is_integer = fabs(x) <= INT_MAX && x == floor(x);
    *out = is_integer ? (int)x : INT_MIN;
    return is_integer || !value;
}

static bool read_flag(int *out, const gsi_node *value)
{
    *out = is_boolean(value)  ? is(value, GSI_JSON_TRUE)
           : is_number(value) ? value->number != 0
                              : -1;
    return *out >= 0 || is_missing(value);
}

static bool read_text(const char **out, const gsi_node *value)
{
    *out = text_of(value);
    return *out || is_missing(value);
}

/* ---- lists ---- */

/* [n] of the arena, or with n 0 something that is not NULL. */
static void *new_list(gs_log_file *file, size_t n, size_t size)
{
    void *list = gsi_arena_new(&file->arena, n > 0 ? n : 1, size);
    file->no_memory |= !list;
    return list;
}

static gs_log_pair pair_of(const char *key, const gsi_node *value)
{
    gs_log_pair pair = {key, text_of(value), (double)NAN};
    if (is_number(value))
        pair.number = value->number;
    else if (is_boolean(value))
        pair.value = is(value, GSI_JSON_TRUE) ? "true" : "false";
    else if (!pair.value)
        pair.value = "";
    return pair;
}

static bool read_pairs(gs_log_file *file, gs_log_pairs *out, const gsi_node *value)
{
    *out = (gs_log_pairs){0};
    if (!is(value, GSI_JSON_OBJECT))
        return is_missing(value);
    gs_log_pair *list = new_list(file, value->count, sizeof *list);
    out->at = list;
    for (const gsi_node *item = value->first; list && item; item = item->next)
        list[out->n++] = pair_of(item->key, item);
    return true;
}

static bool read_counts(gs_log_file *file, gs_log_counts *out, const gsi_node *value)
{
    *out = (gs_log_counts){0};
    if (!is(value, GSI_JSON_ARRAY))
        return is_missing(value);
    uint64_t *list = new_list(file, value->count, sizeof *list);
    out->at = list;
    for (const gsi_node *item = value->first; list && item; item = item->next) {
        uint64_t *count = &list[out->n++];
        if (!read_count(count, item))
            *count = 0;
    }
    return true;
}

static void read_members(gs_log_file *file, int schema, void *out, const gsi_node *object);

/* What is not an object in the array becomes one without members. */
static bool read_layers(gs_log_file *file, gs_log_layer_list *out, const gsi_node *value)
{
    *out = (gs_log_layer_list){0};
    if (!is(value, GSI_JSON_ARRAY))
        return is_missing(value);
    gs_log_layer *list = new_list(file, value->count, sizeof *list);
    out->at = list;
    for (const gsi_node *item = value->first; list && item; item = item->next)
        read_members(file, GSI_LOG_LAYER, &list[out->n++], item);
    return true;
}

static bool read_histograms(gs_log_file *file, gs_log_histogram_list *out, const gsi_node *value)
{
    *out = (gs_log_histogram_list){0};
    if (!is(value, GSI_JSON_ARRAY))
        return is_missing(value);
    gs_log_histogram *list = new_list(file, value->count, sizeof *list);
    out->at = list;
    for (const gsi_node *item = value->first; list && item; item = item->next)
        read_members(file, GSI_LOG_HISTOGRAM, &list[out->n++], item);
    return true;
}

static bool read_value(gs_log_file *file, gsi_log_type type, void *out, const gsi_node *value)
{
    switch (type) {
    case GSI_LOG_COUNT:
        return read_count(out, value);
    case GSI_LOG_INTEGER:
        return read_integer(out, value);
    case GSI_LOG_REAL:
    case GSI_LOG_ROUGH:
        return read_real(out, value);
    case GSI_LOG_MAGNITUDE:
        return read_magnitude(out, value);
    case GSI_LOG_FLAG:
        return read_flag(out, value);
    case GSI_LOG_TEXT:
        return read_text(out, value);
    case GSI_LOG_PAIRS:
        return read_pairs(file, out, value);
    case GSI_LOG_COUNTS:
        return read_counts(file, out, value);
    case GSI_LOG_LAYERS:
        return read_layers(file, out, value);
    default:
        return read_histograms(file, out, value);
    }
}

static void read_members(gs_log_file *file, int schema, void *out, const gsi_node *object)
{
    const gsi_log_schema *s = &gsi_log_schemas[schema];
    for (size_t i = 0; i < s->n; i++)
        read_value(file, s->members[i].type, (char *)out + s->members[i].at,
                   gsi_node_get(object, s->members[i].key));
}

/* ---- lines ---- */

/* Python and others write NaN and Infinity, which JSON does not have: they are null. */
static gs_status parse(gs_log_file *file, gs_error *error)
{
    gsi_json j = gsi_json_of(file->lines.text, file->lines.length);
    const char *wrong;
    j.lenient = true;
    const gs_status status = gsi_json_tree(&file->root, &j, &file->arena, &wrong);
    if (status == GS_ENOMEM)
        return gsi_lines_fail(&file->lines, error, status, "out of memory");
    if (status == GS_ESIZE)
        return gsi_lines_fail(&file->lines, error, status, "it has more than %d values",
                              GSI_JSON_NODES);
    if (status != GS_OK)
        return gsi_lines_fail(&file->lines, error, status, "not JSON: %s", wrong);
    if (!is(file->root, GSI_JSON_OBJECT))
        return gsi_lines_fail(&file->lines, error, GS_EFORMAT, "not a JSON object");
    return GS_OK;
}

static gs_status read_kind(gs_log_file *file, gs_error *error)
{
    const gsi_node *event = gsi_node_get(file->root, "event");
    int kind = GS_LOG_STEP;
    if (event && !text_of(event))
        return gsi_lines_fail(&file->lines, error, GS_EFORMAT, "event is not a string");
    if (event)
        for (kind++; kind < GS_LOG_OTHER; kind++)
            if (strcmp(event->text, gsi_log_events[kind]) == 0)
                break;
    file->kind = (gs_log_kind)kind;
    return GS_OK;
}

gs_status gs_log_next(gs_log_line *line, int *more, gs_log_file *file, gs_error *error)
{
    bool any;
    file->root = NULL;
    file->no_memory = false;
    gsi_arena_reset(&file->arena, (gsi_mark){0});
    gs_status status;
    do
        status = gsi_lines_next(&file->lines, &any, error);
    while (status == GS_OK && any && file->lines.length == 0);
    *more = any;
    *line = (gs_log_line){.number = file->lines.number, .is_whole = file->lines.is_whole};
    if (status == GS_OK && any)
        status = parse(file, error);
    if (status == GS_OK && any)
        status = read_kind(file, error);
    if (status != GS_OK || !any)
        return status;
    line->kind = file->kind;
    if (file->kind != GS_LOG_OTHER)
        read_members(file, (int)file->kind, &line->u, file->root);
    if (file->no_memory)
        return gsi_lines_fail(&file->lines, error, GS_ENOMEM, "out of memory");
    return GS_OK;
}

gs_status gs_log_has(gs_log_file *file, const char *key, gs_error *error)
{
    static const char *const wrong[] = {
#define X(id, json, text) text,
        GSI_LOG_TYPES(X)
#undef X
    };
    const gsi_node *value = gsi_node_get(file->root, key);
    if (!value)
        return gsi_lines_fail(&file->lines, error, GS_ENAME, "it has no %s", key);
    if (file->kind == GS_LOG_OTHER)
        return GS_OK;
    const gsi_log_schema *s = &gsi_log_schemas[file->kind];
    for (size_t i = 0; i < s->n; i++) {
        union {
            gs_log_step step;
            gs_log_run run;
            gs_log_exponents exponents;
        } ignored;
        const gsi_log_type type = s->members[i].type;
        if (strcmp(s->members[i].key, key) == 0 && !read_value(file, type, &ignored, value))
            return gsi_lines_fail(&file->lines, error, GS_EFORMAT, "%s is %s", key, wrong[type]);
    }
    return GS_OK;
}
