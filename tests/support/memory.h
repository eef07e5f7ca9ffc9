/* memory.h: an allocation hook that keeps the books, and fails when told to. */
#ifndef MEMORY_H
#define MEMORY_H

#include "gradscale/base.h"

#include <stdlib.h>
#include <string.h>

typedef struct books {
    size_t calls;     /* allocations asked for */
    size_t blocks;    /* now held */
    size_t bytes;     /* now held */
    size_t most;      /* bytes held at once so far */
    size_t fail_at;   /* this call fails: 1 is the first, 0 is none */
    size_t fail_from; /* this call and all after it fail; 0: none */
    int wrong;        /* a size told did not match, or what is outside a block was written */
} books;

enum { BOOKS_EDGE = 67, BOOKS_FILL = 0xA5 }; /* odd: blocks are aligned to nothing */

/* In memory: the size, filled up to BOOKS_EDGE; the block; BOOKS_EDGE bytes of fill. */
static void *books_resize(void *user, void *block, size_t old_size, size_t size)
{
    books *b = user;
    if (block) {
        unsigned char *raw = (unsigned char *)block - BOOKS_EDGE;
        size_t held;
        memcpy(&held, raw, sizeof held);
        b->wrong |= held != old_size;
        for (size_t i = sizeof held; i < BOOKS_EDGE; i++)
            b->wrong |= raw[i] != BOOKS_FILL;
        for (size_t i = 0; i < BOOKS_EDGE; i++)
            b->wrong |= raw[BOOKS_EDGE + held + i] != BOOKS_FILL;
    } else {
        b->wrong |= old_size != 0;
    }
    unsigned char *raw = NULL;
    if (size > 0) {
        b->calls++;
        if (b->calls == b->fail_at || (b->fail_from && b->calls >= b->fail_from))
            return NULL;
        raw = size < PTRDIFF_MAX ? malloc(size + 2 * BOOKS_EDGE) : NULL;
        if (!raw)
            return NULL;
        memset(raw, BOOKS_FILL, size + 2 * BOOKS_EDGE); /* what is new is not zero */
        memcpy(raw, &size, sizeof size);
        if (block)
            memcpy(raw + BOOKS_EDGE, block, old_size < size ? old_size : size);
        b->blocks++;
        b->bytes += size;
        b->most = b->bytes > b->most ? b->bytes : b->most;
    }
    if (block) {
        b->blocks--;
        b->bytes -= old_size;
        free((unsigned char *)block - BOOKS_EDGE);
    }
    return raw ? raw + BOOKS_EDGE : NULL;
}

static inline gs_alloc books_hook(books *b) { return (gs_alloc){books_resize, b}; }

#endif
