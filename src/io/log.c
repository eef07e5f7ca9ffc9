/* Logs of runs: JSON lines. */
#include "gradscale/trace.h"

#include "io/lines.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

struct gs_log_file {
    gsi_lines lines;
    char *plain; /* the line as JSON knows it */
    size_t room;
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
    *out = file;
    return GS_OK;
}

void gs_log_close(gs_log_file *file)
{
    if (!file)
        return;
    gsi_free(&file->lines.heap, file->plain);
    gsi_lines_close(&file->lines);
    gsi_heap heap = file->lines.heap;
    gsi_free(&heap, file);
}

/* Python and others write NaN and Infinity, which JSON has not: outside strings they become null.
 */
static gs_status make_plain(gs_log_file *file, gs_error *error)
{
    static const char *const words[] = {"-Infinity", "Infinity", "-NaN", "NaN"};
    const char *p = file->lines.text;
    bool in_string = false;
    size_t n = 0;
    if (!gsi_grow(&file->lines.heap, &file->plain, &file->room, 2 * file->lines.length + 8, 1))
        return gsi_lines_fail(&file->lines, error, GS_ENOMEM, "out of memory");
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
    return GS_OK;
}

/* found_inf: true, false or a number; null: not in the log. False: it is something else. */
static bool read_found(int *out, const json_t *value)
{
    *out = -1;
    if (!value || json_is_null(value))
        return true;
    if (json_is_boolean(value))
        *out = json_is_true(value);
    else if (json_is_number(value))
        *out = json_number_value(value) != 0;
    return *out >= 0;
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

/* A number >= 0; or null or a string that says so, for one that is not finite: NaN. */
static bool read_amax(double *out, bool *there, const json_t *value)
{
    *out = (double)NAN;
    *there = value != NULL;
    if (!value || json_is_null(value))
        return true;
    if (json_is_string(value))
        return says_not_finite(json_string_value(value));
    *out = json_number_value(value);
    return json_is_number(value) && *out >= 0;
}

/* The next line that is not blank, as JSON; NULL at the end. */
static gs_status next_object(json_t **out, gs_log_file *file, gs_error *error)
{
    gsi_lines *lines = &file->lines;
    bool any;
    *out = NULL;
    do {
        const gs_status status = gsi_lines_next(lines, &any, error);
        if (status != GS_OK)
            return status;
    } while (any && lines->length == 0);
    if (!any)
        return GS_OK;
    const gs_status status = make_plain(file, error);
    if (status != GS_OK)
        return status;
    json_error_t why;
    *out = json_loads(file->plain, JSON_REJECT_DUPLICATES, &why);
    if (!*out)
        return gsi_lines_fail(lines, error, GS_EFORMAT, "not JSON: %.100s", why.text);
    return GS_OK;
}

gs_status gs_log_next(gs_log_row *row, int *more, gs_log_file *file, gs_error *error)
{
    gsi_lines *lines = &file->lines;
    bool has_amax;
    json_t *root = NULL;
    gs_status status;
    do {
        json_decref(root); /* an event: doc/log.md */
        status = next_object(&root, file, error);
        if (status != GS_OK)
            return status;
    } while (root && json_object_get(root, "event"));
    *more = root != NULL;
    if (!root)
        return GS_OK;
    *row = (gs_log_row){.line = lines->number};
    const json_t *scale = json_object_get(root, "scale");
    if (!json_is_object(root))
        status = gsi_lines_fail(lines, error, GS_EFORMAT, "not a JSON object");
    else if (!read_found(&row->found, json_object_get(root, "found_inf")))
        status = gsi_lines_fail(lines, error, GS_EFORMAT,
                                "found_inf is neither true, false nor a number");
    else if (!read_amax(&row->amax, &has_amax, json_object_get(root, "amax")))
        status = gsi_lines_fail(lines, error, GS_EFORMAT, "amax is neither a number >= 0 nor null");
    else if (!has_amax && row->found < 0)
        status = gsi_lines_fail(lines, error, GS_EFORMAT, "it has neither found_inf nor amax");
    else
        row->scale = json_is_number(scale) ? json_number_value(scale) : (double)NAN;
    json_decref(root);
    return status;
}
