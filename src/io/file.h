/* A regular file, open for reading, and error messages that begin with its name. */
#ifndef GSI_IO_FILE_H
#define GSI_IO_FILE_H

#include "base/base.h"

#include <dirent.h>
#include <sys/types.h>

enum { GSI_SHOWN_PATH = 100 };

typedef struct gsi_file {
    int fd;
    uint64_t size;
    char path[GSI_SHOWN_PATH]; /* for error messages: the end of a long one */
} gsi_file;

/* Pipes, folders and devices are refused. After an error there is nothing to close. */
gs_status gsi_file_open(gsi_file *file, const char *path, gs_error *error);
void gsi_file_close(gsi_file *file);

/* Exactly n bytes from `offset`, or an error message. Any number of threads at once. */
gs_status gsi_file_read(const gsi_file *file, void *dst, size_t n, uint64_t offset,
                        gs_error *error);

/* open, opendir, read, fsync and flock that a signal does not end (EINTR). */
int gsi_open(const char *path, int flags); /* a new file: 0666 */
DIR *gsi_opendir(const char *path);
ssize_t gsi_read(int fd, void *bytes, size_t n); /* as much as there is; 0: the end */
int gsi_fsync(int fd);
int gsi_flock(int fd, int operation);

/* "path: error message", returns the status. */
gs_status gsi_file_fail(const gsi_file *file, gs_error *error, gs_status status, const char *format,
                        ...) GS_PRINTF(4, 5);

/* The end of a long path, fit for an error message; returns out. */
const char *gsi_show_path(char out[GSI_SHOWN_PATH], const char *path);

#endif
