/* prepend and select: tokens of every item are put in a row or taken out of it. Both, and their
 * gradients, are copies of rows from one array of items to another. */
#include "engine/engine.h"

#include <string.h>

/* Items of `tokens` rows each, from items of `from` rows: token i is token i + shift, modulo 2^64,
 * of the same item; where it has none, it is `other`. */
typedef struct copy_loop {
    const gsi_rows *k;
    gsi_out y;
    gsi_in x, other;
    size_t cols, tokens, from, shift;
} copy_loop;

static uint32_t copy_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const copy_loop *l = arg;
    uint32_t top = 0;
    for (size_t r = first; r < first + count; r++) {
        const size_t i = r % l->tokens + l->shift, item = r / l->tokens;
        gsi_out y = gsi_out_at(l->y, r * l->cols);
        y.counts = counts;
        const uint32_t row = l->k->copy(
            y, i < l->from ? gsi_in_at(l->x, (item * l->from + i) * l->cols) : l->other, l->cols);
        top = row > top ? row : top;
    }
    return top;
}

gs_value *gs_prepend(gs_tape *tape, gs_value *x, gs_value *row)
{
    char sx[96], sr[96];
    x = gsi_operand(tape, GS_OP_prepend, x);
    row = gsi_poisoned(x) ? x : gsi_operand(tape, GS_OP_prepend, row);
    if (gsi_poisoned(row))
        return row;
    if (x->rank != 3 || x->count == 0 || row->rank != 1 || row->count != x->shape[2])
        return gs_tape_fail(tape, GS_ESIZE, "prepend: x is %s and the row is %s", gsi_shape(sx, x),
                            gsi_shape(sr, row));
    const size_t batch = x->shape[0], tokens = x->shape[1] + 1, cols = x->shape[2];
    const gs_dtype type = x->dtype == row->dtype ? x->dtype : GS_F32; /* O1: a half x */
    gs_value *y = gsi_value(tape, type, 3, (const size_t[]){batch, tokens, cols});
    if (gsi_poisoned(y))
        return y;
    copy_loop l = {tape->rows, gsi_out_of(y), gsi_data(x), gsi_data(row),
                   cols,       tokens,        tokens - 1,  SIZE_MAX};
    gsi_over_rows(tape, batch * tokens, cols, copy_chunk, &l, false);
    gsi_record(tape, GS_OP_prepend, sizeof(gsi_op), y, x, row, NULL);
    return y;
}

void gsi_prepend_backward(gs_tape *t, gsi_op *op)
{
    gs_value *x = op->in[0], *row = op->in[1];
    const size_t batch = x->shape[0], tokens = x->shape[1] + 1, cols = x->shape[2];
    copy_loop l = {
        .k = t->rows, .x = gsi_grad(op->out), .cols = cols, .tokens = tokens - 1, .from = tokens};
    gsi_stage to;
    if (gsi_stage_begin(t, x, &to)) {
        l.y = to.out;
        l.shift = 1;
        gsi_over_rows(t, batch * l.tokens, cols, copy_chunk, &l, x->dtype != GS_F32);
        gsi_stage_end(t, x, &to);
    }
    const gs_dtype type = op->out->dtype;
    void *firsts = row->needs_grad ? gsi_step_new(t, batch * cols, gsi_size_of(type)) : NULL;
    if (!firsts)
        return;
    l.y = (gsi_out){firsts, type, NULL};
    l.tokens = 1;
    l.shift = 0;
    gsi_over_rows(t, batch, cols, copy_chunk, &l, false);
    gsi_grad_columns(t, row, (gsi_in){firsts, type}, (gsi_in){NULL, GS_F32}, batch);
}

typedef struct select_op {
    gsi_op op;
    size_t i;
} select_op;

gs_value *gs_select(gs_tape *tape, gs_value *x, size_t i)
{
    char shape[96];
    if (!gsi_readable(tape, GS_OP_select, x))
        return &tape->poison.value;
    if (x->rank != 3 || x->count == 0 || i >= x->shape[1])
        return gs_tape_fail(tape, GS_ESIZE, "select: x is %s, for token %zu", gsi_shape(shape, x),
                            i);
    const size_t batch = x->shape[0], cols = x->shape[2];
    gs_value *y = gsi_value(tape, x->dtype, 2, (const size_t[]){batch, cols});
    if (gsi_poisoned(y))
        return y;
    copy_loop l = {.k = tape->rows,
                   .y = gsi_out_of(y),
                   .x = gsi_data(x),
                   .cols = cols,
                   .tokens = 1,
                   .from = x->shape[1],
                   .shift = i};
    gsi_over_rows(tape, batch, cols, copy_chunk, &l, false);
    select_op *op = gsi_record(tape, GS_OP_select, sizeof *op, y, x, NULL, NULL);
    if (op)
        op->i = i;
    return y;
}

void gsi_select_backward(gs_tape *t, gsi_op *record)
{
    const select_op *op = (const select_op *)record;
    gs_value *x = record->in[0];
    const size_t cols = x->shape[2], row = cols * gsi_size_of(x->dtype);
    gsi_stage to;
    void *zeros = gsi_step_new(t, cols, gsi_size_of(x->dtype));
    if (!zeros || !gsi_stage_begin(t, x, &to))
        return;
    memset(zeros, 0, row);
    copy_loop l = {.k = t->rows,
                   .y = to.out,
                   .x = gsi_grad(record->out),
                   .other = {zeros, x->dtype},
                   .cols = cols,
                   .tokens = x->shape[1],
                   .from = 1,
                   .shift = 0 - op->i};
    gsi_over_rows(t, x->shape[0] * x->shape[1], cols, copy_chunk, &l, x->dtype != GS_F32);
    gsi_stage_end(t, x, &to);
}
