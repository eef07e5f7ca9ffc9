/* Matrices turned for products of one row. Such a product reads w once and does little with it:
 * stored [k][n] that goes at the speed of memory, stored [n][k], as weights are, at half of it.
 *
 *  (1) Only weights that somebody promised not to change are turned: gsi_tape_turn.
 *  (2) A product has the same bits either way; without memory for a turned matrix it is slower. */
#include "engine/engine.h"

#include <string.h>

enum { ROWS = 32 }; /* of w to a chunk: a cache line of the turned one, in half types */

typedef struct turning {
    const gs_value *w;
    char *to;
    size_t rows, cols, size;
} turning;

static void turn_rows(void *user, size_t chunk)
{
    const turning *t = user;
    const size_t first = chunk * ROWS, end = gsi_min_size(first + ROWS, t->rows);
    for (size_t c = 0; c < t->cols; c++)
        for (size_t r = first; r < end; r++)
            memcpy(t->to + (c * t->rows + r) * t->size,
                   (const char *)t->w->data + (r * t->cols + c) * t->size, t->size);
}

static void *turn(gs_tape *tape, const gs_value *w)
{
    const size_t size = gsi_size_of(w->dtype), rows = gsi_rows_of(w);
    turning t = {w, gsi_new(&tape->ctx->heap, w->count * size), rows, w->count / rows, size};
    const gs_parallel *parallel = &tape->ctx->parallel;
    if (t.to)
        parallel->run(parallel->user, gsi_ceil_div(rows, ROWS), turn_rows, &t);
    return t.to;
}

void gsi_tape_turn(gs_tape *tape, const gs_weight *weights, size_t n)
{
    gsi_heap *heap = &tape->ctx->heap;
    for (size_t i = 0; tape->turned && i < tape->turnable_count; i++)
        gsi_free(heap, tape->turned[i]);
    gsi_free(heap, tape->turned);
    tape->turned = NULL;
    tape->turnable = weights;
    tape->turnable_count = n;
}

const void *gsi_turned(gs_tape *tape, const gs_weight *weight, const gs_value *w)
{
    const size_t n = tape->turnable_count;
    const uintptr_t at = (uintptr_t)weight - (uintptr_t)tape->turnable;
    const size_t i = (size_t)at / sizeof *weight;
    if (!weight || i >= n || w->data != weight->data) /* a copy, or a cast */
        return NULL;
    if (!tape->turned) {
        if (!(tape->turned = gsi_new(&tape->ctx->heap, n * sizeof *tape->turned)))
            return NULL;
        for (size_t k = 0; k < n; k++)
            tape->turned[k] = NULL;
    }
    if (!tape->turned[i])
        tape->turned[i] = turn(tape, w);
    return tape->turned[i];
}
