/* Files that only grow: what a call writes is in the system's hands when it returns, whole or not
 * at all. */
#ifndef GSI_IO_APPEND_H
#define GSI_IO_APPEND_H

#include "io/file.h"

typedef struct gsi_append {
    int fd; /* -1: closed, and writing to it does nothing */
    char path[GSI_SHOWN_PATH];
} gsi_append;

/* keep: bytes of a file that is there which stay; the rest is cut. The file is locked until it is
 * closed: GS_ESTATE where another process or another of these has it. */
gs_status gsi_append_open(gsi_append *file, const char *path, uint64_t keep, gs_error *error);
/* An error closes the file: it is reported once. */
gs_status gsi_append_write(gsi_append *file, const void *bytes, size_t n, gs_error *error);
void gsi_append_close(gsi_append *file);

#endif
