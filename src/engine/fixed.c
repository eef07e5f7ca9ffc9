/* What is made once of weights that stay as they are: matrices in panels, and their integers.
 *
 * A product of one row reads w once and does little with it: in panels that goes at the speed of
 * memory (kernel/gemm/panels.c), stored [n][k], as weights are, at a third of it. Quantising a
 * matrix takes longer than multiplying a few rows by it.
 *
 *  (1) Only weights that somebody promised not to change are kept in another form: gsi_tape_fix.
 *  (2) A product has the same bits either way; without memory for another form it is slower. */
#include "engine/engine.h"

#include <string.h>

struct gsi_fixed {
    void *panels;
    gsi_codes codes;
};

/* ---- which weights ---- */

void gsi_tape_fix(gs_tape *tape, const gs_weight *weights, size_t n)
{
    gsi_heap *heap = &tape->ctx->heap;
    for (size_t i = 0; tape->forms && i < tape->fixed_count; i++) {
        gsi_free(heap, tape->forms[i].panels);
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

/* ---- panels ---- */

typedef struct panel_loop {
    const gs_value *w;
    char *to;
    size_t rows, cols, size, width;
} panel_loop;

/* Rows of w are columns of the panel; those that there are not are zeros. */
static void make_panel(void *user, size_t panel)
{
    const panel_loop *l = user;
    char *to = l->to + panel * l->width * l->cols * l->size;
    const size_t first = panel * l->width, n = gsi_min_size(l->width, l->rows - first);
    for (size_t c = 0; c < l->cols; c++, to += l->width * l->size) {
        for (size_t r = 0; r < n; r++)
            memcpy(to + r * l->size,
                   (const char *)l->w->data + ((first + r) * l->cols + c) * l->size, l->size);
        memset(to + n * l->size, 0, (l->width - n) * l->size);
    }
}

static void *make_panels(gs_tape *tape, const gs_value *w, size_t width)
{
    const size_t size = gsi_size_of(w->dtype), rows = gsi_rows_of(w), cols = w->count / rows;
    const size_t panels = gsi_ceil_div(rows, width);
    panel_loop l = {w,    gsi_new(&tape->ctx->heap, panels * width * cols * size), rows, cols, size,
                    width};
    const gs_parallel *parallel = &tape->ctx->parallel;
    if (l.to)
        parallel->run(parallel->user, panels, make_panel, &l);
    return l.to;
}

const void *gsi_fixed_panels(gs_tape *tape, const gs_weight *weight, const gs_value *w)
{
    const size_t width = gsi_panel_width(tape->ctx);
    struct gsi_fixed *f = tape->panels && width > 0 ? forms_of(tape, weight, w) : NULL;
    if (!f || w->data != weight->data) /* of a copy there would be a third form */
        return NULL;
    if (!f->panels)
        f->panels = make_panels(tape, w, width);
    return f->panels;
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
