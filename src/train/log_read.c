/* The reader of logs: one line at a time into its struct, by the schema (log_schema.c).
 *
 * (1) A member that is missing or of another type is "not there" in the struct; whether the line is
 *     of use without it is the caller's to say (gs_log_has).
 * (2) After a line that is refused the next call goes on behind it.
 * (3) What a line points to lies in `root` and `arena`, until the next call. */
#include "train/log.h"

#include "io/lines.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <string.h>

struct gs_log_file {
    gsi_lines lines;
    char *plain; /* the line as JSON knows it */
    size_t room;
    json_t *root;
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
    json_decref(file->root);
    gsi_arena_free(&file->arena);
    gsi_free(&file->lines.heap, file->plain);
    gsi_lines_close(&file->lines);
    gsi_heap heap = file->lines.heap;
    gsi_free(&heap, file);
}

uint64_t gs_log_file_bytes(const gs_log_file *file) { return file->lines.bytes; }

/* ---- values: false if one is of another type; NULL is none ---- */

static bool is_missing(const json_t *value) { return !value || json_is_null(value); }

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
static bool read_real(double *out, const json_t *value)
{
    *out = json_is_number(value) ? json_number_value(value) : (double)NAN;
    return json_is_number(value) || is_missing(value) ||
           (json_is_string(value) && says_not_finite(json_string_value(value)));
}

static bool read_magnitude(double *out, const json_t *value)
{
    const bool is_real = read_real(out, value), is_negative = *out < 0;
    if (is_negative)
        *out = (double)NAN;
    return is_real && !is_negative;
}

static bool read_count(uint64_t *out, const json_t *value)
{
    const double x = json_is_number(value) ? json_number_value(value) : -1;
    const bool is_count = x >= 0 && x < 0x1p64 && x == floor(x);
    *out = is_count ? (uint64_t)x : GS_LOG_NONE;
    return is_count || !value;
}

static bool read_integer(int *out, const json_t *value)
{
    const double x = json_is_number(value) ? json_number_value(value) : (double)NAN;
    const bool is_integer = fabs(x) <= INT_MAX && x == floor(x);
    *out = is_integer ? (int)x : INT_MIN;
    return is_integer || !value;
}

static bool read_flag(int *out, const json_t *value)
{
    *out = json_is_boolean(value)  ? json_is_true(value)
           : json_is_number(value) ? json_number_value(value) != 0
                                   : -1;
    return *out >= 0 || is_missing(value);
}

static bool read_text(const char **out, const json_t *value)
{
    *out = json_string_value(value);
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

static gs_log_pair pair_of(const char *key, const json_t *value)
{
    gs_log_pair pair = {key, json_string_value(value), (double)NAN};
    if (json_is_number(value))
        pair.number = json_number_value(value);
    else if (json_is_boolean(value))
        pair.value = json_is_true(value) ? "true" : "false";
    else if (!pair.value)
        pair.value = "";
    return pair;
}

static bool read_pairs(gs_log_file *file, gs_log_pairs *out, json_t *value)
{
    const char *key;
    json_t *item;
    *out = (gs_log_pairs){0};
    if (!json_is_object(value))
        return is_missing(value);
    gs_log_pair *list = new_list(file, json_object_size(value), sizeof *list);
    out->at = list;
    if (list)
        json_object_foreach(value, key, item) list[out->n++] = pair_of(key, item);
    return true;
}

static bool read_counts(gs_log_file *file, gs_log_counts *out, const json_t *value)
{
    *out = (gs_log_counts){0};
    if (!json_is_array(value))
        return is_missing(value);
    uint64_t *list = new_list(file, json_array_size(value), sizeof *list);
    out->at = list;
    for (size_t i = 0; list && i < json_array_size(value); i++)
        if (!read_count(&list[out->n++], json_array_get(value, i)) || list[i] == GS_LOG_NONE)
            list[i] = 0;
    return true;
}

static void read_members(gs_log_file *file, int schema, void *out, json_t *object);

/* What is not an object in the array becomes one without members. */
static bool read_layers(gs_log_file *file, gs_log_layer_list *out, const json_t *value)
{
    *out = (gs_log_layer_list){0};
    if (!json_is_array(value))
        return is_missing(value);
    gs_log_layer *list = new_list(file, json_array_size(value), sizeof *list);
    out->at = list;
    for (; list && out->n < json_array_size(value); out->n++)
        read_members(file, GSI_LOG_LAYER, &list[out->n], json_array_get(value, out->n));
    return true;
}

static bool read_histograms(gs_log_file *file, gs_log_histogram_list *out, const json_t *value)
{
    *out = (gs_log_histogram_list){0};
    if (!json_is_array(value))
        return is_missing(value);
    gs_log_histogram *list = new_list(file, json_array_size(value), sizeof *list);
    out->at = list;
    for (; list && out->n < json_array_size(value); out->n++)
        read_members(file, GSI_LOG_HISTOGRAM, &list[out->n], json_array_get(value, out->n));
    return true;
}

static bool read_value(gs_log_file *file, gsi_log_type type, void *out, json_t *value)
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

static void read_members(gs_log_file *file, int schema, void *out, json_t *object)
{
    const gsi_log_schema *s = &gsi_log_schemas[schema];
    for (size_t i = 0; i < s->n; i++)
        read_value(file, s->members[i].type, (char *)out + s->members[i].at,
                   json_object_get(object, s->members[i].key));
}

/* ---- lines ---- */

/* Python and others write NaN and Infinity, which JSON does not have: outside strings they become
 * null. */
static bool make_plain(gs_log_file *file)
{
    static const char *const words[] = {"-Infinity", "Infinity", "-NaN", "NaN"};
    const char *p = file->lines.text;
    bool in_string = false;
    size_t n = 0;
    if (!gsi_grow(&file->lines.heap, &file->plain, &file->room, 2 * file->lines.length + 8, 1))
        return false;
    while (*p) {
        size_t w = 0;
        while (!in_string && w < GSI_COUNT(words) && strncmp(p, words[w], strlen(words[w])) != 0)
            w++;
        if (!in_string && w < GSI_COUNT(words)) {
            memcpy(file->plain + n, "null", 4);
            n += 4;
            p += strlen(words[w]);
            continue;
        }
        if (in_string && *p == '\\' && p[1])
            file->plain[n++] = *p++;
        else if (*p == '"')
            in_string = !in_string;
        file->plain[n++] = *p++;
    }
    file->plain[n] = 0;
    return true;
}

static gs_status parse(gs_log_file *file, gs_error *error)
{
    /* as reals: no integer is too large */
    static const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL;
    json_error_t why;
    file->root = json_loads(file->lines.text, flags, &why);
    if (!file->root && strpbrk(file->lines.text, "NI")) {
        if (!make_plain(file))
            return gsi_lines_fail(&file->lines, error, GS_ENOMEM, "out of memory");
        file->root = json_loads(file->plain, flags, &why);
    }
    if (!file->root)
        return gsi_lines_fail(&file->lines, error, GS_EFORMAT, "not JSON: %.100s", why.text);
    if (!json_is_object(file->root))
        return gsi_lines_fail(&file->lines, error, GS_EFORMAT, "not a JSON object");
    return GS_OK;
}

static gs_status read_kind(gs_log_file *file, gs_error *error)
{
    const json_t *event = json_object_get(file->root, "event");
    int kind = GS_LOG_STEP;
    if (event && !json_is_string(event))
        return gsi_lines_fail(&file->lines, error, GS_EFORMAT, "event is not a string");
    if (event)
        for (kind++; kind < GS_LOG_OTHER; kind++)
            if (strcmp(json_string_value(event), gsi_log_events[kind]) == 0)
                break;
    file->kind = (gs_log_kind)kind;
    return GS_OK;
}

gs_status gs_log_next(gs_log_line *line, int *more, gs_log_file *file, gs_error *error)
{
    bool any;
    json_decref(file->root);
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
    json_t *value = json_object_get(file->root, key);
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
