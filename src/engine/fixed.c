/* What is made once of weights that stay as they are: matrices turned, and their integers.
 *
 * A product of one row reads w once and does little with it: stored [k][n] that goes at the speed
 * of memory, stored [n][k], as weights are, at half of it. Quantising a matrix takes longer than
 * multiplying a few rows by it.
 *
 *  (1) Only weights that somebody promised not to change are kept in another form: gsi_tape_fix.
 *  (2) A product has the same bits either way; without memory for another form it is slower. */
#include "engine/engine.h"

#include <string.h>

enum { ROWS = 32 }; /* of w to a chunk: a cache line of the turned one, in half types */

struct gsi_fixed {
    void *turned;
    gsi_codes codes;
};

/* ---- which weights ---- */

void gsi_tape_fix(gs_tape *tape, const gs_weight *weights, size_t n)
{
    gsi_heap *heap = &tape->ctx->heap;
    for (size_t i = 0; tape->forms && i < tape->fixed_count; i++) {
        gsi_free(heap, tape->forms[i].turned);
        gsi_free(heap, tape->forms[i].codes.codes);
        gsi_free(heap, tape->forms[i].codes.units);
    }
    gsi_free(heap, tape->forms);
    tape->forms = NULL;
    tape->fixed = weights;
    tape->fixed_count = n;
}

/* NULL: the weight may change, or w is not the weight's own array; or there is no memory. */
static struct gsi_fixed *forms_of(gs_tape *tape, const gs_weight *weight, const gs_value *w)
{
    const size_t n = tape->fixed_count;
    const uintptr_t at = (uintptr_t)weight - (uintptr_t)tape->fixed;
    const size_t i = (size_t)at / sizeof *weight;
    if (!weight || i >= n || (w->data != weight->data && w->data != weight->copy)) /* a cast */
        return NULL;
    if (!tape->forms) {
        if (!(tape->forms = gsi_new(&tape->ctx->heap, n * sizeof *tape->forms)))
            return NULL;
        for (size_t k = 0; k < n; k++)
            tape->forms[k] = (struct gsi_fixed){0};
    }
    return &tape->forms[i];
}

/* ---- turned ---- */

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

const void *gsi_turned(gs_tape *tape, const gs_weight *weight, const gs_value *w)
{
    struct gsi_fixed *f = tape->turns ? forms_of(tape, weight, w) : NULL;
    if (!f || w->data != weight->data) /* of a copy there would be a third form */
        return NULL;
    if (!f->turned)
        f->turned = turn(tape, w);
    return f->turned;
}

/* ---- integers ---- */

gsi_codes *gsi_fixed_codes(gs_tape *tape, const gs_weight *weight, const gs_value *w, size_t bytes)
{
    struct gsi_fixed *f = forms_of(tape, weight, w);
    if (!f)
        return NULL;
    gsi_heap *heap = &tape->ctx->heap;
    gsi_codes *c = &f->codes;
    if (c->codes)
        return c;
    c->codes = gsi_new(heap, bytes);
    c->units = gsi_new(heap, gsi_rows_of(w) * sizeof *c->units);
    if (c->codes && c->units)
        return c;
    gsi_free(heap, c->codes);
    gsi_free(heap, c->units);
    *c = (gsi_codes){0};
    return NULL;
}
