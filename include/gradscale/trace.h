/* trace.h: recordings of loss scalers, as files.
 *
 * A trace says which machine ran, on which pattern of overflows, and where its scale went; the
 * format is in doc/scaler.md. Logs of runs are in log.h.
 *
 * A trace is read line by line; a line or a number of steps beyond any sense is refused. Every
 * error message begins with file and line.
 */
#ifndef GRADSCALE_TRACE_H
#define GRADSCALE_TRACE_H

#include "gradscale/scaler.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GS_TRACE_STEPS_MAX = 1000000000 }; /* of one trace: ten seconds or so */

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
GS_API gs_status gs_trace_write(FILE *to, const gs_trace *trace, gs_error *error);

/* Runs the machine and compares with what was recorded. *same is 0 if it differs, and then error
 * has the first difference. GS_EFORMAT: what was recorded cannot be read. */
GS_API gs_status gs_trace_compare(int *same, const gs_trace *trace, gs_error *error);

#ifdef __cplusplus
}
#endif

#endif
