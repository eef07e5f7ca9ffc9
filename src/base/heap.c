#if !defined(_GNU_SOURCE) && defined(__linux__)
#define _GNU_SOURCE /* madvise */
#endif
#include "base/base.h"

#include <stdlib.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

/* Sits in the 64 bytes before every block, so that the hook is told true sizes and may align as
 * it likes. */
typedef struct header {
    void *raw;
    size_t size; /* as asked of the hook */
} header;

/* Asks for huge pages where a block has room for them: weights that are read once per token or
 * step cost a miss of the TLB every 4 KB otherwise. Without them the block does as it is. */
static void ask_huge_pages(void *block, size_t size)
{
#if defined(MADV_HUGEPAGE)
    const uintptr_t huge = 2 << 20, start = (uintptr_t)block;
    const uintptr_t first = (start + huge - 1) / huge * huge, end = (start + size) / huge * huge;
    if (block && first < end)
        madvise((void *)first, end - first, MADV_HUGEPAGE);
#else
    (void)block, (void)size;
#endif
}

static void *libc_resize(void *user, void *block, size_t old_size, size_t size)
{
    (void)user;
    (void)old_size;
    if (size == 0) {
        free(block);
        return NULL;
    }
    block = realloc(block, size);
    ask_huge_pages(block, size);
    return block;
}

void gsi_heap_init(gsi_heap *heap, const gs_alloc *hook)
{
    const gs_alloc libc = {libc_resize, NULL};
    *heap = (gsi_heap){.hook = hook && hook->resize ? *hook : libc};
}

bool gsi_mul_size(size_t *out, size_t a, size_t b)
{
    *out = a * b;
    return b == 0 || a <= SIZE_MAX / b;
}

bool gsi_add_size(size_t *out, size_t a, size_t b)
{
    *out = a + b;
    return a <= SIZE_MAX - b;
}

void *gsi_new(gsi_heap *heap, size_t size)
{
    size_t total;
    if (!gsi_add_size(&total, size, 2 * GSI_ALIGN))
        return NULL;
    heap->calls++;
    char *raw = heap->hook.resize(heap->hook.user, NULL, 0, total);
    if (!raw)
        return NULL;
    heap->bytes += total;
    heap->peak = gsi_max_size(heap->peak, heap->bytes);
    /* Between one and two lines after raw: there is always room for the header before it. */
    char *block = raw + 2 * GSI_ALIGN - (uintptr_t)raw % GSI_ALIGN;
    ((header *)(void *)block)[-1] = (header){raw, total};
    return block;
}

void gsi_free(gsi_heap *heap, void *block)
{
    if (!block)
        return;
    const header h = ((header *)block)[-1];
    heap->bytes -= h.size;
    heap->hook.resize(heap->hook.user, h.raw, h.size, 0);
}
