/* embedding: rows of a table. Its gradient is added row by row in f32, in the order of the ids,
 * whatever the number of threads: they share out columns. */
#include "engine/engine.h"

#include <string.h>

enum { TILE = 64 }; /* columns a thread takes at a time: a few lines of each row */

typedef struct embedding_op {
    gsi_op op;
    const int32_t *ids;
} embedding_op;

typedef struct gather_loop {
    const gsi_rows *k;
    gsi_out y;
    gsi_in table;
    const int32_t *ids;
    size_t cols;
} gather_loop;

static uint32_t gather_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const gather_loop *l = arg;
    (void)counts;
    return l->k->gather(gsi_out_at(l->y, first * l->cols), l->table, l->ids + first, count,
                        l->cols);
}

gs_value *gs_embedding(gs_tape *tape, gs_value *table, const int32_t *ids, size_t rows)
{
    char shape[96];
    if (!gsi_poisoned(tape, table) && tape->config.mode >= GS_O2)
        table = gsi_low(tape, table);
    if (gsi_poisoned(tape, table))
        return table;
    if (table->rank != 2 || rows == 0 || !ids)
        return gsi_poison(tape, GS_ESIZE, "embedding: the table is %s, and there are %zu ids",
                          gsi_shape(shape, table), ids ? rows : 0);
    const size_t wrong = gsi_check_index(ids, rows, table->shape[0], false);
    if (wrong < rows)
        return gsi_poison(tape, GS_ERANGE, "embedding: id %zu is %d, of %zu", wrong, ids[wrong],
                          table->shape[0]);
    const size_t cols = table->shape[1];
    gs_value *y = gsi_value(tape, table->dtype, 2, (const size_t[]){rows, cols});
    if (gsi_poisoned(tape, y))
        return y;
    gather_loop l = {&tape->rows, {y->data, y->dtype, NULL}, gsi_data(table), ids, cols};
    gsi_over_rows(tape, rows, cols, gather_chunk, &l, false);
    embedding_op *op = gsi_record(tape, GS_OP_embedding, sizeof *op, y, table, NULL, NULL);
    if (op)
        op->ids = ids;
    return y;
}

typedef struct scatter_loop {
    const gsi_rows *k;
    float *table;
    gsi_in dy;
    const int32_t *ids;
    size_t rows, cols;
} scatter_loop;

/* Columns, not rows, are cut here. */
static uint32_t scatter_tile(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const scatter_loop *l = arg;
    const size_t column = first * TILE, left = l->cols - column;
    (void)counts;
    l->k->scatter(l->table + column, gsi_in_at(l->dy, column), l->ids, l->rows,
                  left < count * TILE ? left : count * TILE, l->cols);
    return 0;
}

void gsi_embedding_backward(gs_tape *t, gsi_op *record)
{
    const embedding_op *op = (const embedding_op *)record;
    gs_value *y = record->out, *table = record->in[0];
    const gs_weight *w = table->weight;
    const size_t cols = table->shape[1], tiles = (cols + TILE - 1) / TILE;
    const bool direct = w && w->grad_dtype == GS_F32;
    float *sums = direct ? w->grad : gsi_step_new(t, table->count, sizeof *sums);
    if (!sums)
        return;
    if (!direct || gsi_take_fresh(t, w))
        memset(sums, 0, table->count * sizeof *sums);
    scatter_loop l = {&t->rows, sums, gsi_grad(y), op->ids, y->shape[0], cols};
    gsi_over_rows(t, tiles, SIZE_MAX, scatter_tile, &l, false);
    if (!direct)
        gsi_give(t, table, sums, GS_F32);
}
