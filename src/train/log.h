/* What the writer of logs is made of. */
#ifndef GSI_TRAIN_LOG_H
#define GSI_TRAIN_LOG_H

#include "gradscale/log.h"
#include "io/line.h"
#include "io/tfevents.h"

struct gs_logger {
    gsi_heap heap;
    gsi_append json, csv, board;
    gsi_line line;
    bool fresh;
    gs_error error;
};

/* log_lines.c: notes the first error; writes the line that was built, and begins another. */
gs_status gsi_log_note(gs_logger *logger, gs_status status, const gs_error *error);
gs_status gsi_log_write(gs_logger *logger, gsi_append *file);
/* False: there is no JSON log. step UINT64_MAX: it has none. */
bool gsi_log_event(gs_logger *logger, const char *event, uint64_t step);
gs_status gsi_log_end_event(gs_logger *logger);
/* The names of the columns, as the first line of a CSV. */
void gsi_log_header(gs_logger *logger);

#endif
