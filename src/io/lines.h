/* A text file, one line at a time. */
#ifndef GSI_IO_LINES_H
#define GSI_IO_LINES_H

#include "base/base.h"

enum { GSI_LINE_MAX = 16 << 20 }; /* bytes: a longer line is not text */

typedef struct gsi_lines {
    gsi_heap heap;
    int fd; /* -1: closed; 0: standard input */
    char *path;
    char *text; /* the line, without its end */
    size_t length, room;
    uint64_t number; /* from 1 */
    bool is_whole;   /* the line ended with a newline */
    bool is_long;    /* the rest of a line that is too long has not been read yet */
    uint64_t bytes;  /* read so far */
    char *buffer;    /* of the file */
    size_t at, filled;
} gsi_lines;

gs_status gsi_lines_open(gsi_lines *lines, const char *path, const gs_alloc *alloc,
                         gs_error *error);
/* *more is false at the end. GS_EFORMAT, GS_ESIZE: the line has a control character but tab, or is
 * too long; the next call goes on behind it, or where it has no end with the next GSI_LINE_MAX
 * bytes of it. */
gs_status gsi_lines_next(gsi_lines *lines, bool *more, gs_error *error);
void gsi_lines_close(gsi_lines *lines);

/* The same as gsi_fail with "path:number: " in front. */
gs_status gsi_lines_fail(const gsi_lines *lines, gs_error *error, gs_status status,
                         const char *format, ...) GS_PRINTF(4, 5);

/* A copy with a 0 behind; NULL: no memory. */
char *gsi_copy_text(gsi_heap *heap, const char *text, size_t length);

/* block[count * size] grown to hold at least `need` of them; *room is their number. */
bool gsi_grow(gsi_heap *heap, void *block, size_t *room, size_t need, size_t size);

#endif
