/* What passes over lists of tensors share, here and in the layers above: the cut into chunks.
 *
 * A list is cut into chunks of GSI_CHUNK elements, the last of a tensor shorter; a strided
 * tensor into smaller ones, GSI_STRIDED_CHUNK, which are gathered on the stack. Chunks run on
 * any thread; each leaves its results in its own slot. The slots are folded afterwards:
 * GSI_FOLD_GROUP consecutive ones in order, then the groups in order, so that a device can fold
 * groups side by side. So a result depends on these constants of the library, and on nothing else.
 * */
#ifndef GSI_KERNEL_CHUNKS_H
#define GSI_KERNEL_CHUNKS_H

#include "kernel/context.h"

enum {
    GSI_CHUNK = 1 << 16,        /* 128 or 256 KB; a multiple of GSI_RANDOM_GROUP */
    GSI_STRIDED_CHUNK = 1 << 12 /* up to 32 KB; the same */
};
enum { GSI_FOLD_GROUP = 1 << 12 };          /* chunks: 268M elements */
enum { GSI_STREAM_FROM = 8 * 1024 * 1024 }; /* bytes written: above, no cache keeps them */

typedef struct gsi_cut {
    const gs_tensor *list;
    const gs_tensor *with; /* goes with it, and may be strided; or list itself */
    size_t n;
    size_t *starts; /* [n + 1]: the number of the first chunk of tensor t */
} gsi_cut;

/* Elements [first, first + count) of tensor t. */
typedef struct gsi_span {
    size_t t, first, count;
} gsi_span;

/* starts: room for n + 1. */
void gsi_cut_into(gsi_cut *cut, const gs_tensor *list, const gs_tensor *with, size_t n,
                  size_t *starts);
static inline size_t gsi_cut_chunks(const gsi_cut *cut) { return cut->starts[cut->n]; }
gsi_span gsi_cut_span(const gsi_cut *cut, size_t chunk);

static inline void *gsi_tensor_at(const gs_tensor *x, size_t i)
{
    return (char *)x->data + i * gsi_size_of(x->dtype);
}

#endif
