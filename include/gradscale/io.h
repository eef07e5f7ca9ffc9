/* io.h: tensors in files, from any framework: .npy, .npz and .safetensors.
 *
 *     gs_source *file;
 *     gs_error error;
 *     if (gs_source_open(&file, "grads.safetensors", NULL, &error) == GS_OK)
 *         for (size_t t = 0; t < gs_source_count(file); t++) {
 *             const gs_entry *e = gs_source_entry(file, t);
 *             if (gs_entry_readable(e))
 *                 gs_source_read(buffer, file, t, 0, piece, &error);
 *         }
 *     gs_source_close(file);
 *
 * Opening reads and checks the whole directory of a file, every size against the size of the file,
 * before anything is allocated that depends on it; the tensors themselves are read in pieces, so
 * a file may be larger than memory. A file that lies is refused with a message that names it.
 *
 * safetensors  header at most 100 MB, offsets cover the data exactly, no holes and no overlaps
 * .npy         versions 1.0 to 3.0, both byte orders, C or Fortran order (elements come as stored)
 * .npz         zip and zip64, members stored or deflated, checksums tested when the end is read
 */
#ifndef GRADSCALE_IO_H
#define GRADSCALE_IO_H

#include "gradscale/num.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GS_MAX_RANK = 8 };

/* Strings live as long as the source. */
typedef struct gs_entry {
    const char *name; /* "" for the one array of a .npy file; valid UTF-8 */
    const char *type; /* as the file spells it: "BF16", "<f4" */
    gs_dtype dtype;   /* F16, BF16, F32 or F64; GS_DTYPE_COUNT for integers and other types */
    int rank;         /* 0: a scalar */
    uint64_t shape[GS_MAX_RANK];
    uint64_t count;  /* elements, the product of the shape */
    uint64_t bytes;  /* of all elements, uncompressed */
    uint64_t offset; /* in the file: of the data, or of the zip member that holds it */
    int sequential;  /* a zip member: to be read from front to back, by one thread */
} gs_entry;

typedef struct gs_source gs_source;

/* alloc and error may be NULL. A source is used by one thread at a time, with one exception: see
 * gs_source_read. */
GS_API gs_status gs_source_open(gs_source **out, const char *path, const gs_alloc *alloc,
                                gs_error *error);
GS_API void gs_source_close(gs_source *source);
GS_API const char *gs_source_format(const gs_source *source); /* "safetensors", "npy", "npz" */
GS_API uint64_t gs_source_size(const gs_source *source);      /* bytes of the file */

/* Entries come in the order of their data in the file. i beyond the last gives NULL. */
GS_API size_t gs_source_count(const gs_source *source);
GS_API const gs_entry *gs_source_entry(const gs_source *source, size_t i);
/* A text of the __metadata__ of safetensors, as long as the source lives; NULL: there is none. */
GS_API const char *gs_source_metadata(const gs_source *source, const char *key);
GS_API int gs_entry_readable(const gs_entry *entry); /* its dtype is one that can be read */

/* Elements [first, first + count) of entry i, in the machine's byte order. Calls on entries that
 * are not `sequential` may run on any number of threads at once; on one that is, the next `first`
 * should be where the last call ended: going back unpacks from the start again. */
GS_API gs_status gs_source_read(void *dst, gs_source *source, size_t i, uint64_t first,
                                size_t count, gs_error *error);

/* All elements of entry i where they lie in the file, mapped until the source is closed: as fast as
 * memory, where reading copies. NULL where that cannot be: packed, of the other byte order, not
 * aligned to its element size, or the system refuses; then read. The first call must not run beside
 * another. If someone cuts the file meanwhile, touching what is gone raises SIGBUS: only a program
 * that can answer that should map. */
GS_API const void *gs_source_map(gs_source *source, size_t i);

#ifdef __cplusplus
}
#endif

#endif
