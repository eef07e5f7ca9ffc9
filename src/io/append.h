/* Files that only grow: what a call writes is in the system's hands when it returns, whole or not
 * at all. */
#ifndef GSI_IO_APPEND_H
#define GSI_IO_APPEND_H

#include "io/file.h"

typedef struct gsi_append {
    int fd; /* -1: closed, and writing to it does nothing */
    char path[GSI_SHOWN_PATH];
} gsi_append;

/* Nothing of a file that is there changes yet. It is locked until it is closed: GS_ESTATE where
 * another process or another of these has it. */
gs_status gsi_append_open(gsi_append *file, const char *path, gs_error *error);
/* `keep` bytes of what is there stay, the rest goes. */
gs_status gsi_append_cut(gsi_append *file, uint64_t keep, gs_error *error);
/* An error closes the file: it is reported once. */
gs_status gsi_append_write(gsi_append *file, const void *bytes, size_t n, gs_error *error);
/* Until it is on the disk. What a close could tell, of a quota or a network, this tells. */
gs_status gsi_append_sync(gsi_append *file, gs_error *error);
void gsi_append_close(gsi_append *file);

#endif
