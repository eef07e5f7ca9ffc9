/* embedding: rows of a table. Its gradient is added row by row in f32, in the order of the ids,
 * whatever the number of threads: they share out columns. Where it is rounded, it is so row by row
 * too: a half copy of a vocabulary's gradient would be mostly zeros. */
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
    table = gsi_operand(tape, GS_OP_embedding, table);
    if (gsi_poisoned(table))
        return table;
    if (table->rank != 2 || rows == 0 || !ids)
        return gs_tape_fail(tape, GS_ESIZE, "embedding: the table is %s, and there are %zu ids",
                            gsi_shape(shape, table), ids ? rows : 0);
    const size_t wrong = gsi_check_index(ids, rows, table->shape[0], false);
    if (wrong < rows)
        return gs_tape_fail(tape, GS_ERANGE, "embedding: id %zu is %d, of %zu", wrong, ids[wrong],
                            table->shape[0]);
    const size_t cols = table->shape[1];
    gs_value *y = gsi_value(tape, table->dtype, 2, (const size_t[]){rows, cols});
    if (gsi_poisoned(y))
        return y;
    gather_loop l = {tape->rows, gsi_out_of(y), gsi_data(table), ids, cols};
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

/* table[ids[r]] += dy[r] */
static void scatter(gs_tape *t, float *table, gsi_in dy, const int32_t *ids, size_t rows,
                    size_t cols)
{
    scatter_loop l = {t->rows, table, dy, ids, rows, cols};
    /* by columns, so that no two threads add to one element; SIZE_MAX: one tile per chunk */
    gsi_over_rows(t, gsi_ceil_div(cols, TILE), SIZE_MAX, scatter_tile, &l, false);
}

/* Numbers the ids in the order of their first use: ids[i] is uses[slots[i]]. Returns how many
 * there are. slot_of[words] is workspace. */
static size_t number_ids(int32_t *slots, int32_t *uses, int32_t *slot_of, const int32_t *ids,
                         size_t rows, size_t words)
{
    size_t n = 0;
    memset(slot_of, -1, words * sizeof *slot_of);
    for (size_t i = 0; i < rows; i++) {
        int32_t *const slot = &slot_of[ids[i]];
        if (*slot < 0) {
            *slot = (int32_t)n;
            uses[n++] = ids[i];
        }
        slots[i] = *slot;
    }
    return n;
}

/* The rows that are used are summed, rounded, and then added. */
static void scatter_rounded(gs_tape *t, float *table_grad, const gs_value *table, gsi_in dy,
                            const int32_t *ids, size_t rows)
{
    const size_t words = table->shape[0], cols = table->shape[1];
    int32_t *slots = gsi_step_new(t, 2 * rows + words, sizeof *slots), *uses = slots + rows;
    if (!slots)
        return;
    const size_t n = number_ids(slots, uses, uses + rows, ids, rows, words);
    float *sums = gsi_step_new(t, n * cols, sizeof *sums);
    void *rounded = gsi_step_new(t, n * cols, gsi_size_of(table->dtype));
    if (!sums || !rounded)
        return;
    memset(sums, 0, n * cols * sizeof *sums);
    scatter(t, sums, dy, slots, rows, cols);
    gsi_copy_array(t, (gsi_out){rounded, table->dtype, NULL}, (gsi_in){sums, GS_F32}, n * cols);
    scatter(t, table_grad, (gsi_in){rounded, table->dtype}, uses, n, cols);
}

void gsi_embedding_backward(gs_tape *t, gsi_op *record)
{
    const embedding_op *op = (const embedding_op *)record;
    gs_value *y = record->out, *table = record->in[0];
    const gs_weight *w = table->weight;
    const bool direct = w && w->grad_dtype == GS_F32;
    float *sums = direct ? w->grad : gsi_step_new(t, table->count, sizeof *sums);
    if (!sums)
        return;
    if (!direct || gsi_take_fresh(t, w))
        memset(sums, 0, table->count * sizeof *sums);
    if (direct && gsi_rounds_wgrad(t, table))
        scatter_rounded(t, sums, table, gsi_grad(y), op->ids, y->shape[0]);
    else
        scatter(t, sums, gsi_grad(y), op->ids, y->shape[0], table->shape[1]);
    if (!direct)
        gsi_accumulate(t, table, sums, GS_F32);
}
