/* A line of JSON, built in memory. Text that does not fit in memory is lost, and `lost` says so. */
#ifndef GSI_IO_LINE_H
#define GSI_IO_LINE_H

#include "base/base.h"

typedef struct gsi_line {
    gsi_heap *heap;
    char *text;
    size_t n, room;
    bool lost;
} gsi_line;

/* Pieces of text, numbers and strings as they are. */
void gsi_put(gsi_line *line, const char *text);
void gsi_put_count(gsi_line *line, uint64_t x);
/* The shortest number that reads back to the same double, or with `rough` one of 6 digits; with a
 * point in every locale. */
void gsi_put_real(gsi_line *line, double x, bool rough, const char *not_finite);
void gsi_put_string(gsi_line *line, const char *text); /* quoted; NULL: null */

/* A member of an object, or with name NULL an item of an array; the comma comes by itself. */
void gsi_put_name(gsi_line *line, const char *name);
void gsi_add_string(gsi_line *line, const char *name, const char *value);
void gsi_add_count(gsi_line *line, const char *name, uint64_t value);
void gsi_add_real(gsi_line *line, const char *name, double value); /* not finite: null */
void gsi_add_rough(gsi_line *line, const char *name, double value);
void gsi_add_open(gsi_line *line, const char *name, const char *bracket);

/* The text and a 0 behind it, in text[room], which stays as it is if they do not fit: GS_ESIZE; or
 * GS_ENOMEM, some is lost. *used: without the 0. The line is freed. */
gs_status gsi_line_copy(gsi_line *line, char *text, size_t room, size_t *used);

#endif
