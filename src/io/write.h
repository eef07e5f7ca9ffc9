/* What writing files takes: a hash of their bytes, a file that is there whole or not at all, and
 * tensors in it. Nothing here allocates but gsi_safetensors_header, so that a thread which may not
 * call the allocation hook can write. */
#ifndef GSI_IO_WRITE_H
#define GSI_IO_WRITE_H

#include "io/folder.h"
#include "io/io.h"

/* ---- hash.c ---- */

/* XXH64 with seed 0, over any number of pieces. */
typedef struct gsi_hash {
    uint64_t lanes[4];
    uint64_t length;
    uint8_t rest[32]; /* length % 32 bytes that no lane has seen */
} gsi_hash;

void gsi_hash_init(gsi_hash *hash);
void gsi_hash_add(gsi_hash *hash, const void *data, size_t n);
uint64_t gsi_hash_end(const gsi_hash *hash);

/* ---- replace.c ---- */

/* A file that is written beside `path` under a temporary name and takes its place at the end. */
typedef struct gsi_replace {
    int fd;
    char path[GSI_PATH], temporary[GSI_PATH];
    gsi_hash hash; /* of what was written */
    uint64_t sent; /* bytes that the disk has been told to take */
} gsi_replace;

/* begin, any number of writes, then end. A call that fails leaves its error message, removes the
 * temporary file, and no other is to follow. */
gs_status gsi_replace_begin(gsi_replace *r, const char *path, gs_error *error);
gs_status gsi_replace_write(gsi_replace *r, const void *data, size_t n, gs_error *error);
gs_status gsi_replace_end(gsi_replace *r, gs_error *error); /* on the disk when it returns */

/* Makes `path` another name of the file `from`, at once. False: this file system cannot. */
bool gsi_replace_by_link(const char *path, const char *from);

/* Removes what killed processes left: temporaries of base, or where base is NULL of any
 * .safetensors, that nobody is writing. */
void gsi_remove_temporaries(const char *folder, const char *base);

/* Makes it, and those it is in, where it is not there; and that files can be made in it. */
gs_status gsi_make_folder(const char *path, gs_error *error);

/* The folder that `path` is in. The path must be shorter than GSI_PATH. */
void gsi_folder_of(char folder[GSI_PATH], const char *path);

/* ---- safetensors_write.c ---- */

typedef struct gsi_tensor {
    const char *name;
    void *data;
    gs_dtype dtype;
    int rank;
    uint64_t shape[4], count;
    uint64_t at; /* of its first byte among the data; set by gsi_safetensors_header */
    size_t tag;  /* the caller's own: sorting leaves it with the tensor */
} gsi_tensor;

/* The last tensor of every file, type U8: the hash of all bytes before it, little-endian. */
#define GSI_CHECKSUM_NAME "gradscale.xxh64"
enum { GSI_CHECKSUM_BYTES = 8 };

/* Sorts the list into the order of the file, wide elements first, so that each tensor is aligned to
 * its own; then by name. */
void gsi_sort_tensors(gsi_tensor *list, size_t n);

/* All that precedes the data, as a block of `heap`; the list must be sorted. */
gs_status gsi_safetensors_header(char **header, size_t *length, gsi_tensor *list, size_t n,
                                 const gsi_text *texts, size_t n_texts, gsi_heap *heap,
                                 gs_error *error);

/* Writes it, what the tensors hold now, and the checksum. */
gs_status gsi_safetensors_write(const char *path, const char *header, size_t length,
                                const gsi_tensor *list, size_t n, gs_error *error);

/* The same for readers of other makes, at once and without the checksum, which would be a tensor to
 * them. Sorts the list. */
gs_status gsi_safetensors_export(const char *path, gsi_tensor *list, size_t n,
                                 const gsi_text *texts, size_t n_texts, gsi_heap *heap,
                                 gs_error *error);

#endif
