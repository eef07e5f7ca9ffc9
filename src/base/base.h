/* What the other layers use of base: errors, memory, arenas, threads, random bits. */
#ifndef GSI_BASE_H
#define GSI_BASE_H

#include "base/rounding.h"
#include "gradscale/base.h"

#include <stdbool.h>

#define GSI_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Notes the error message (error may be NULL) and returns the status: `return gsi_fail(...)`. */
gs_status gsi_fail(gs_error *error, gs_status status, const char *format, ...) GS_PRINTF(3, 4);

/* today = the caller's config, which may be of an older header: every config begins with its size,
 * and what is behind that counts as zero. GS_EVERSION, with a message: the size is not set, or is
 * of a newer header. */
gs_status gsi_config(void *today, size_t size, const void *given, const char *type,
                     gs_error *error);

/* ---- memory ---- */

enum { GSI_ALIGN = 64 }; /* a cache line and the widest vector */

/* Counts what passes the hook: the tests assert "no allocation in a steady step" with it. */
typedef struct gsi_heap {
    gs_alloc hook;
    size_t calls; /* allocations asked for, successful or not */
    size_t bytes; /* now held */
    size_t peak;  /* most ever held */
} gsi_heap;

void gsi_heap_init(gsi_heap *heap, const gs_alloc *hook /* NULL: malloc and free */);
void *gsi_new(gsi_heap *heap, size_t size); /* 64-byte aligned, not cleared; NULL: no memory */
void gsi_free(gsi_heap *heap, void *block); /* NULL is legal */

/* a * b and a + b, false when they do not fit in a size_t */
bool gsi_mul_size(size_t *out, size_t a, size_t b);
bool gsi_add_size(size_t *out, size_t a, size_t b);

static inline size_t gsi_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t gsi_max_size(size_t a, size_t b) { return a > b ? a : b; }
/* How many chunks of `size` cover n. */
static inline size_t gsi_ceil_div(size_t n, size_t size) { return n / size + (n % size > 0); }

/* A stack of blocks with one lifetime. Allocation moves a cursor; a mark remembers it; reset goes
 * back. Blocks stay with the arena, and a reset to the start joins them into one, so that a loop
 * that asks for the same each time touches the heap only in its first two rounds. */
typedef struct gsi_arena {
    gsi_heap *heap;
    struct gsi_arena_block *top;
    size_t used; /* bytes handed out, all blocks, padding included */
    size_t peak;
} gsi_arena;

typedef struct gsi_mark {
    struct gsi_arena_block *block;
    size_t cursor, used;
} gsi_mark;

void gsi_arena_init(gsi_arena *arena, gsi_heap *heap);
void gsi_arena_free(gsi_arena *arena);
void *gsi_arena_new(gsi_arena *arena, size_t count, size_t size); /* NULL: no memory or overflow */
gsi_mark gsi_arena_mark(const gsi_arena *arena);
void gsi_arena_reset(gsi_arena *arena, gsi_mark mark); /* the mark of an empty arena frees all */

/* ---- threads ---- */

typedef struct gsi_pool gsi_pool;

enum { GSI_MAX_THREADS = 4096 }; /* more than any machine has; a mistake above it */

/* threads counts the caller: 1 starts none, 0 takes as many as gs_cpus_usable. In a child made
 * by fork a pool has one thread, the caller, and may be freed. */
gs_status gsi_pool_create(gsi_pool **out, gsi_heap *heap, unsigned threads);
void gsi_pool_free(gsi_pool *pool);
unsigned gsi_pool_threads(const gsi_pool *pool);
gs_parallel gsi_pool_parallel(gsi_pool *pool);

/* The limit that a cgroup quota sets to the CPUs of this process; 0: none. root stands before
 * every path that is read, "" on a real system. */
unsigned gsi_cgroup_cpus(const char *root);

/* ---- random bits ---- */

/* Philox4x32-10 of Salmon et al. 2011: block `counter` of the stream `key`. */
void gsi_philox(uint32_t out[4], uint64_t key, uint64_t counter);

/* 16 random bits for element i. The layout lets 16 blocks run side by side in a vector: of a group
 * of 128 elements, element j takes half j / 16 of block j % 16. */
enum { GSI_RANDOM_GROUP = 128 };
uint16_t gsi_random_u16(uint64_t seed, uint64_t i);

#endif
