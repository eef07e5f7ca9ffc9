/* IDX, the format of MNIST: two zeros, a type, a rank, big-endian sizes, big-endian elements. */
#ifndef GSI_IO_IDX_H
#define GSI_IO_IDX_H

#include "io/file.h"

enum { GSI_IDX_RANK = 4 }; /* more than any set of images has */

typedef struct gsi_idx {
    const struct gsi_idx_type *type;
    int rank; /* 1 to GSI_IDX_RANK */
    size_t shape[GSI_IDX_RANK];
    size_t count; /* elements, at least one */
    void *data;   /* in the machine's byte order */
    char path[sizeof((gsi_file *)0)->path];
} gsi_idx;

/* Packed by gzip or not. Memory is asked for once the file has been seen to hold exactly what its
 * header announces. */
gs_status gsi_idx_read(gsi_idx *idx, const char *path, gsi_heap *heap, gs_error *error);
/* The same of another origin: data is for the caller to fill. type: NumPy's, "u1", "f4", "i8". */
gs_status gsi_idx_new(gsi_idx *idx, const char *path, const char *type, int rank,
                      const size_t *shape, gsi_heap *heap, gs_error *error);
void gsi_idx_free(gsi_idx *idx, gsi_heap *heap);

/* Elements [first, first + count) as numbers: exact, whatever their type. */
void gsi_idx_values(double *dst, const gsi_idx *idx, size_t first, size_t count);

/* Whether a file that begins with these bytes is one. */
bool gsi_idx_begins(const uint8_t start[4]);

#endif
