/* A file from front to back, unpacked on the way if gzip packed it. */
#ifndef GSI_IO_STREAM_H
#define GSI_IO_STREAM_H

#include "io/file.h"

typedef struct gsi_stream gsi_stream;

/* The heap must outlive it. */
gs_status gsi_stream_open(gsi_stream **out, const char *path, gsi_heap *heap, gs_error *error);
void gsi_stream_close(gsi_stream *stream);

/* *size: unpacked bytes from here to the end, counted by unpacking them to nowhere, checksums
 * tested; counting ends at `most` + 1. To be followed by a rewind. */
gs_status gsi_stream_measure(gsi_stream *stream, uint64_t most, uint64_t *size, gs_error *error);
void gsi_stream_rewind(gsi_stream *stream);

/* Up to n bytes; fewer only at the end. */
gs_status gsi_stream_some(gsi_stream *stream, void *dst, size_t n, size_t *got, gs_error *error);
/* Exactly n bytes: the end is an error. */
gs_status gsi_stream_read(gsi_stream *stream, void *dst, size_t n, gs_error *error);

/* For error messages. */
const gsi_file *gsi_stream_file(const gsi_stream *stream);

#endif
