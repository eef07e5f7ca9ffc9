/* Traces: read, run, written, compared. */
#include "gradscale/trace.h"

#include "io/lines.h"
#include "scaler/scaler.h"

#include <inttypes.h>
#include <string.h>

/* The lines of a trace, in the order they are written. `end` is what is left. */
enum { TRACE, PRESET, SET, STEPS, FOUND, SCALE, RAISED, WORDS };
static const char *const words[WORDS] = {"trace", "preset", "set",  "steps",
                                         "found", "scale",  "error"};

struct gs_trace_file {
    gsi_lines lines;
    gs_trace trace;
    char *text[WORDS];  /* of the line, without its word; NULL: no such line */
    uint64_t at[WORDS]; /* its number */
    uint64_t *runs;
    size_t run_room;
    bool any;
};

/* ---- reading ---- */

gs_status gs_trace_open(gs_trace_file **out, const char *path, const gs_alloc *alloc,
                        gs_error *error)
{
    gsi_lines lines;
    const gs_status status = gsi_lines_open(&lines, path, alloc, error);
    *out = NULL;
    if (status != GS_OK)
        return status;
    gs_trace_file *file = gsi_new(&lines.heap, sizeof *file);
    if (!file) {
        gsi_lines_close(&lines);
        return gsi_fail(error, GS_ENOMEM, "%s: out of memory", path);
    }
    *file = (gs_trace_file){.lines = lines};
    *out = file;
    return GS_OK;
}

static void forget(gs_trace_file *file)
{
    for (int i = 0; i < WORDS; i++) {
        gsi_free(&file->lines.heap, file->text[i]);
        file->text[i] = NULL;
    }
}

void gs_trace_close(gs_trace_file *file)
{
    if (!file)
        return;
    forget(file);
    gsi_free(&file->lines.heap, file->runs);
    gsi_lines_close(&file->lines);
    gsi_heap heap = file->lines.heap;
    gsi_free(&heap, file);
}

/* Where an error message is about another line than the one that was read last. */
static gsi_lines line_of(const gs_trace_file *file, int word)
{
    gsi_lines lines = file->lines;
    lines.number = file->at[word];
    return lines;
}

/* The next number of a list, 0 or more digits in *text; false: none, or beyond any sense. */
static bool next_count(const char **text, uint64_t *out)
{
    const char *p = *text + strspn(*text, " \t");
    const char *const first = p;
    *out = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (*out > GS_TRACE_STEPS_MAX)
            return false;
        *out = *out * 10 + (uint64_t)(*p - '0');
    }
    *text = p;
    return p > first && (*p == 0 || *p == ' ' || *p == '\t') && *out <= GS_TRACE_STEPS_MAX;
}

static gs_status read_runs(gs_trace_file *file, gs_error *error)
{
    gs_trace *t = &file->trace;
    const gsi_lines steps = line_of(file, STEPS), found = line_of(file, FOUND);
    const char *at = file->text[STEPS];
    uint64_t run, sum = 0;
    if (!next_count(&at, &t->steps) || *at)
        return gsi_lines_fail(&steps, error, GS_ERANGE,
                              "trace %.60s: 'steps %.40s' is not a number from 0 to %d", t->name,
                              file->text[STEPS], GS_TRACE_STEPS_MAX);
    t->run_count = 0;
    for (at = file->text[FOUND]; at[strspn(at, " \t")];) {
        if (!next_count(&at, &run))
            return gsi_lines_fail(&found, error, GS_ERANGE,
                                  "trace %.60s: number %zu of found is not one from 0 to %d",
                                  t->name, t->run_count + 1, GS_TRACE_STEPS_MAX);
        if (!gsi_grow(&file->lines.heap, &file->runs, &file->run_room, t->run_count + 1,
                      sizeof *file->runs))
            return gsi_lines_fail(&file->lines, error, GS_ENOMEM, "out of memory");
        file->runs[t->run_count++] = run;
        sum += run; /* at most 2^23 runs per line, of 2^30 each */
    }
    t->runs = file->runs;
    if (sum != t->steps)
        return gsi_lines_fail(&steps, error, GS_EFORMAT,
                              "trace %.60s: steps is %" PRIu64 ", but found adds up to %" PRIu64,
                              t->name, t->steps, sum);
    return GS_OK;
}

/* At `end`: all there, and it makes sense. */
static gs_status finish(gs_trace_file *file, gs_error *error)
{
    static const int needed[] = {PRESET, STEPS, FOUND};
    gs_trace *t = &file->trace;
    gs_error why;
    for (size_t i = 0; i < GSI_COUNT(needed); i++)
        if (!file->text[needed[i]])
            return gsi_lines_fail(&file->lines, error, GS_EFORMAT, "trace %.60s has no '%s' line",
                                  file->text[TRACE], words[needed[i]]);
    t->name = file->text[TRACE];
    t->preset = file->text[PRESET];
    t->set = file->text[SET] ? file->text[SET] : "";
    t->found = file->text[FOUND];
    t->scale = file->text[SCALE];
    t->raised = file->text[RAISED];
    t->path = file->lines.path;
    int word = PRESET;
    gs_status status = gs_params_preset(&t->params, t->preset, &why);
    if (status == GS_OK && file->text[SET]) {
        word = SET;
        status = gs_params_set(&t->params, t->set, &why);
    }
    if (status == GS_OK)
        status = gs_params_check(&t->params, &why);
    if (status != GS_OK) {
        const gsi_lines at = line_of(file, word);
        return gsi_lines_fail(&at, error, status, "trace %.60s: %s", t->name, why.text);
    }
    return read_runs(file, error);
}

/* Takes one line; *done at `end`. */
static gs_status take(gs_trace_file *file, bool *done, gs_error *error)
{
    const gsi_lines *l = &file->lines;
    const size_t length = strcspn(l->text, " \t");
    const char *rest = l->text + length + strspn(l->text + length, " \t");
    int w = 0;
    while (w < WORDS && (strlen(words[w]) != length || memcmp(words[w], l->text, length) != 0))
        w++;
    if (!file->text[TRACE] && w != TRACE)
        return gsi_lines_fail(l, error, GS_EFORMAT, "'%.40s' outside a trace", l->text);
    if (strcmp(l->text, "end") == 0) {
        *done = true;
        return finish(file, error);
    }
    if (w == WORDS)
        return gsi_lines_fail(l, error, GS_EFORMAT, "unknown line '%.40s'", l->text);
    if (w == TRACE && file->text[TRACE])
        return gsi_lines_fail(l, error, GS_EFORMAT, "trace %.60s has no 'end'", file->text[TRACE]);
    if (file->text[w])
        return gsi_lines_fail(l, error, GS_EFORMAT, "a second '%s' line in trace %.60s", words[w],
                              file->text[TRACE]);
    if (w == TRACE && !*rest)
        return gsi_lines_fail(l, error, GS_EFORMAT, "a trace without a name");
    if (w == TRACE)
        file->trace = (gs_trace){.line = l->number};
    file->at[w] = l->number;
    file->text[w] = gsi_copy_text(&file->lines.heap, rest, strlen(rest));
    return file->text[w] ? GS_OK : gsi_lines_fail(l, error, GS_ENOMEM, "out of memory");
}

gs_status gs_trace_next(const gs_trace **out, gs_trace_file *file, gs_error *error)
{
    bool more, done = false;
    *out = NULL;
    forget(file);
    while (!done) {
        gs_status status = gsi_lines_next(&file->lines, &more, error);
        if (status != GS_OK)
            return status;
        if (!more && file->text[TRACE])
            return gsi_lines_fail(&file->lines, error, GS_EFORMAT, "trace %.60s has no 'end'",
                                  file->text[TRACE]);
        if (!more && !file->any)
            return gsi_fail(error, GS_EFORMAT, "%.100s: there is no trace in it", file->lines.path);
        if (!more)
            return GS_OK;
        if (file->lines.length == 0 || file->lines.text[0] == '#')
            continue;
        status = take(file, &done, error);
        if (status != GS_OK)
            return status;
    }
    file->any = true;
    *out = &file->trace;
    return GS_OK;
}

/* ---- running ---- */

/* Walks the steps of a trace. */
typedef struct walk {
    const gs_trace *trace;
    gs_scaler scaler;
    uint64_t step; /* the one that was taken last */
    uint64_t left; /* of this run */
    size_t run;
    double before; /* the scale shown before that step */
    bool raised;
} walk;

static void walk_begin(walk *w, const gs_trace *trace)
{
    *w = (walk){.trace = trace, .step = UINT64_MAX};
    gs_scaler_init_params(&w->scaler, &trace->params, NULL);
    w->scaler.rules.lowest = w->scaler.rules.highest = (double)NAN; /* the machine as it is */
    w->left = trace->run_count ? trace->runs[0] : 0;
}

static bool walk_next(walk *w)
{
    while (w->left == 0)
        if (++w->run < w->trace->run_count)
            w->left = w->trace->runs[w->run];
        else
            return false;
    w->left--;
    w->step++;
    w->before = gs_scaler_scale(&w->scaler);
    w->raised = gs_scaler_update(&w->scaler, w->run % 2 == 1);
    return true;
}

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static bool walk_moved(const walk *w) { return !same(w->before, gs_scaler_scale(&w->scaler)); }

gs_status gs_trace_write(FILE *to, const gs_trace *trace, gs_error *error)
{
    walk w;
    char number[GSI_WORD];
    bool raises = false;
    fprintf(to, "trace %s\npreset %s\n", trace->name, trace->preset);
    if (*trace->set)
        fprintf(to, "set %s\n", trace->set);
    fprintf(to, "steps %" PRIu64 "\nfound%s%s\n", trace->steps, *trace->found ? " " : "",
            trace->found);

    walk_begin(&w, trace);
    fprintf(to, "scale start:%s", gsi_write_double(number, gs_scaler_scale(&w.scaler)));
    while (walk_next(&w)) {
        raises |= w.raised;
        if (walk_moved(&w))
            fprintf(to, " %" PRIu64 ":%s", w.step,
                    gsi_write_double(number, gs_scaler_scale(&w.scaler)));
    }
    fputc('\n', to);
    if (raises) { /* a second run instead of a list that could be as long as the trace */
        fputs("error", to);
        for (walk_begin(&w, trace); walk_next(&w);)
            if (w.raised)
                fprintf(to, " %" PRIu64, w.step);
        fputc('\n', to);
    }
    fputs("end\n", to);
    return ferror(to) ? gsi_fail(error, GS_EIO, "trace %.60s could not be written", trace->name)
                      : GS_OK;
}

/* ---- comparing ---- */

/* One "i:S" of the recorded scales. Steps begin at 0; `start` comes out as UINT64_MAX. */
typedef struct mark {
    uint64_t step;
    double scale;
    bool there;
} mark;

static bool next_mark(const char **text, mark *m)
{
    const char *at = *text + strspn(*text, " \t");
    const size_t length = strcspn(at, " \t"), left = strcspn(at, ":");
    char value[GSI_WORD];
    *text = at + length;
    m->there = length > 0;
    if (length == 0)
        return true;
    if (left >= length || length - left - 1 >= GSI_WORD)
        return false;
    memcpy(value, at + left + 1, length - left - 1);
    value[length - left - 1] = 0;
    m->step = 0;
    for (size_t i = 0; i < left; i++)
        if (at[i] >= '0' && at[i] <= '9' && m->step <= GS_TRACE_STEPS_MAX)
            m->step = m->step * 10 + (uint64_t)(at[i] - '0');
        else if (left == 5 && memcmp(at, "start", 5) == 0)
            m->step = UINT64_MAX;
        else
            return false;
    return left > 0 && gsi_read_double(&m->scale, value);
}

static gs_status unreadable(const gs_trace *t, const char *what, gs_error *error)
{
    return gsi_fail(error, GS_EFORMAT,
                    "%.100s:%" PRIu64 ": trace %.60s: its '%s' line is malformed", t->path, t->line,
                    t->name, what);
}

static gs_status differs(const gs_trace *t, uint64_t step, const char *what, gs_error *error)
{
    char when[32] = "at the start";
    if (step != UINT64_MAX)
        snprintf(when, sizeof when, "step %" PRIu64, step);
    gsi_fail(error, GS_EFORMAT, "%.70s:%" PRIu64 ": trace %.50s: %s: %s", t->path, t->line, t->name,
             when, what);
    return GS_OK;
}

static gs_status compare_scale(int *equal, const gs_trace *t, gs_error *error)
{
    const char *text = t->scale;
    char what[2 * GSI_WORD + 32], a[GSI_WORD], b[GSI_WORD];
    double recorded;
    mark m;
    walk w;
    walk_begin(&w, t);
    if (!next_mark(&text, &m) || !m.there || m.step != UINT64_MAX)
        return unreadable(t, "scale", error);
    recorded = m.scale;
    if (!next_mark(&text, &m))
        return unreadable(t, "scale", error);
    do {
        const double scale = gs_scaler_scale(&w.scaler);
        if (m.there && m.step == w.step && w.step != UINT64_MAX) {
            const uint64_t last = m.step;
            recorded = m.scale;
            if (!next_mark(&text, &m) || (m.there && m.step <= last))
                return unreadable(t, "scale", error);
        }
        if (!same(scale, recorded)) {
            *equal = 0;
            snprintf(what, sizeof what, "the scale is %s, recorded %s", gsi_write_double(a, scale),
                     gsi_write_double(b, recorded));
            return differs(t, w.step, what, error);
        }
    } while (walk_next(&w));
    if (m.there) {
        *equal = 0;
        return differs(t, m.step, "recorded, but the trace has no such step", error);
    }
    return GS_OK;
}

static gs_status compare_raised(int *equal, const gs_trace *t, gs_error *error)
{
    const char *text = t->raised ? t->raised : "";
    uint64_t next = UINT64_MAX;
    bool there = text[strspn(text, " \t")] != 0;
    walk w;
    if (there && !next_count(&text, &next))
        return unreadable(t, "error", error);
    for (walk_begin(&w, t); walk_next(&w);) {
        const bool recorded = there && next == w.step;
        if (recorded) {
            there = text[strspn(text, " \t")] != 0;
            if (there && (!next_count(&text, &next) || next <= w.step))
                return unreadable(t, "error", error);
        }
        if (recorded != w.raised) {
            *equal = 0;
            return differs(t, w.step,
                           w.raised ? "an error that was not recorded"
                                    : "no error, but one was recorded",
                           error);
        }
    }
    if (there) {
        *equal = 0;
        return differs(t, next, "recorded, but the trace has no such step", error);
    }
    return GS_OK;
}

gs_status gs_trace_compare(int *equal, const gs_trace *trace, gs_error *error)
{
    *equal = 1;
    if (trace->scale) {
        const gs_status status = compare_scale(equal, trace, error);
        if (status != GS_OK || !*equal)
            return status;
    }
    return trace->scale || trace->raised ? compare_raised(equal, trace, error) : GS_OK;
}
