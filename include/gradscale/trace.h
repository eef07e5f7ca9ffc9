/* trace.h: recordings of loss scalers and logs of runs, as files.
 *
 * A trace says which machine ran, on which pattern of overflows, and where its scale went; the
 * format is in doc/scaler.md. A log has a JSON object a line, a line a step.
 *
 * Both are read a line at a time; a line or a number of steps beyond any sense is refused. Every
 * sentence begins with file and line.
 */
#ifndef GRADSCALE_TRACE_H
#define GRADSCALE_TRACE_H

#include "gradscale/scaler.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GS_TRACE_STEPS_MAX 1000000000 /* of one trace: ten seconds or so */

typedef struct gs_trace {
    const char *name, *preset;
    const char *set, *found;    /* the text of the line; set is "" if there is none */
    const char *scale, *raised; /* as recorded; NULL: no such line */
    gs_params params;           /* preset and set, checked */
    uint64_t steps;
    const uint64_t *runs; /* [run_count]: clean, overflowing, clean, ... steps */
    size_t run_count;
    const char *path;
    uint64_t line; /* on which it begins */
} gs_trace;

typedef struct gs_trace_file gs_trace_file;

/* alloc and error may be NULL. path "-" is standard input. */
GS_API gs_status gs_trace_open(gs_trace_file **out, const char *path, const gs_alloc *alloc,
                               gs_error *error);
/* *out lives until the next call; NULL at the end of the file. */
GS_API gs_status gs_trace_next(const gs_trace **out, gs_trace_file *file, gs_error *error);
GS_API void gs_trace_close(gs_trace_file *file);

/* Runs the machine and writes the trace with the lines it computed. GS_EIO: could not be written.
 */
GS_API gs_status gs_trace_write(FILE *to, const gs_trace *trace);

/* Runs the machine and compares with what was recorded. *same is 0 if it differs, and then error
 * has the first difference. GS_EFORMAT: what was recorded cannot be read. */
GS_API gs_status gs_trace_compare(int *same, const gs_trace *trace, gs_error *error);

/* A step of a log. JSON members found_inf (true, false or a number; null: not there) and amax (true
 * units; null, NaN, Infinity, or a string that says so: not finite); at least one. scale, if it is
 * there, tells whether the amax explains an overflow. Others are not looked at. */
typedef struct gs_log_row {
    uint64_t line;
    int found;    /* 1, 0, or -1: not in the log */
    double amax;  /* NaN: not in the log, or not finite */
    double scale; /* at which it was seen; NaN: not in the log */
} gs_log_row;

typedef struct gs_log_file gs_log_file;

GS_API gs_status gs_log_open(gs_log_file **out, const char *path, const gs_alloc *alloc,
                             gs_error *error);
/* *more is 0 at the end of the file. Blank lines and objects with a member "event" are passed
 * over. */
GS_API gs_status gs_log_next(gs_log_row *row, int *more, gs_log_file *file, gs_error *error);
GS_API void gs_log_close(gs_log_file *file);

#ifdef __cplusplus
}
#endif

#endif
