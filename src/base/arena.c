/* Invariants:
 * (1) blocks form a list from the newest to the oldest; only the newest has room handed out last.
 * (2) every pointer handed out is 64-byte aligned.
 * (3) resetting to the empty mark leaves at most one block, as large as all were together.
 *
 * Under AddressSanitizer everything not handed out is poisoned, and a 64-byte gap after each
 * allocation stays so: running off the end of an arena array is found as with malloc. */
#include "base/base.h"

#if defined(__SANITIZE_ADDRESS__)
#define GSI_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GSI_ASAN 1
#endif
#endif

#ifdef GSI_ASAN
#include <sanitizer/asan_interface.h>
enum { GAP = GSI_ALIGN };
#define POISON(p, n)   __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#else
enum { GAP = 0 };
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

enum { FIRST_BLOCK = 1 << 16 };

struct gsi_arena_block {
    struct gsi_arena_block *older;
    size_t size, cursor; /* of data */
    _Alignas(GSI_ALIGN) char data[];
};

void gsi_arena_init(gsi_arena *arena, gsi_heap *heap) { *arena = (gsi_arena){.heap = heap}; }

static void drop_top(gsi_arena *arena)
{
    struct gsi_arena_block *block = arena->top;
    arena->top = block->older;
    UNPOISON(block->data, block->size);
    gsi_free(arena->heap, block);
}

void gsi_arena_free(gsi_arena *arena)
{
    while (arena->top)
        drop_top(arena);
    arena->used = 0;
}

static bool push_block(gsi_arena *arena, size_t size)
{
    size_t total;
    if (!gsi_add_size(&total, size, sizeof(struct gsi_arena_block)))
        return false;
    struct gsi_arena_block *block = gsi_new(arena->heap, total);
    if (!block)
        return false;
    block->older = arena->top;
    block->size = size;
    block->cursor = 0;
    POISON(block->data, size);
    arena->top = block;
    return true;
}

void *gsi_arena_new(gsi_arena *arena, size_t count, size_t size)
{
    size_t bytes, room;
    if (!gsi_mul_size(&bytes, count, size) || !gsi_add_size(&room, bytes, GSI_ALIGN - 1 + GAP))
        return NULL;
    room -= room % GSI_ALIGN;

    struct gsi_arena_block *top = arena->top;
    if (!top || room > top->size - top->cursor) {
        /* Doubling keeps the number of blocks logarithmic in what a step needs. */
        const size_t least = top ? top->size * 2 : FIRST_BLOCK;
        if (!push_block(arena, gsi_max_size(room, least)) &&
            (room > least || !push_block(arena, room)))
            return NULL;
        top = arena->top;
    }
    char *p = top->data + top->cursor;
    top->cursor += room;
    arena->used += room;
    arena->peak = gsi_max_size(arena->peak, arena->used);
    UNPOISON(p, bytes);
    return p;
}

gsi_mark gsi_arena_mark(const gsi_arena *arena)
{
    return (gsi_mark){arena->top, arena->top ? arena->top->cursor : 0, arena->used};
}

void gsi_arena_reset(gsi_arena *arena, gsi_mark mark)
{
    size_t all = 0;
    for (const struct gsi_arena_block *b = arena->top; b; b = b->older)
        all += b->size;

    const bool empty = mark.used == 0; /* then its block may be gone: reset joins */
    while (arena->top && arena->top->older && (empty || arena->top != mark.block))
        drop_top(arena);
    arena->used = mark.used;
    if (!arena->top)
        return;
    if (empty && all > arena->top->size) {
        drop_top(arena);
        push_block(arena, all); /* no memory: the next allocation asks again */
        return;
    }
    const size_t cursor = empty ? 0 : mark.cursor;
    arena->top->cursor = cursor;
    POISON(arena->top->data + cursor, arena->top->size - cursor);
}
