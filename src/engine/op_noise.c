/* dropout and fake quantisation: element by element, with parameters. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

#include <math.h>

/* ---- dropout: what backward drops is found again, not stored ---- */

typedef struct dropout_op {
    gsi_op op;
    gsi_dropout how;
} dropout_op;

typedef struct dropout_loop {
    const gsi_rows *k;
    gsi_out y;
    gsi_in x;
    const gsi_dropout *how;
} dropout_loop;

/* Rows are random groups here: a chunk begins where one does. */
static uint32_t dropout_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const dropout_loop *l = arg;
    gsi_dropout how = *l->how;
    gsi_out y = gsi_out_at(l->y, first);
    y.counts = counts;
    how.first += first;
    return l->k->dropout(y, gsi_in_at(l->x, first), count, &how);
}

gs_value *gs_dropout(gs_tape *tape, gs_value *x, float p)
{
    if (!gsi_readable(tape, GS_OP_dropout, x))
        return &tape->poison.value;
    if (!(p >= 0 && p <= 1))
        return gs_tape_fail(tape, GS_ERANGE, "dropout: p is %g, and must be from 0 to 1",
                            (double)p);
    if (!tape->training || p == 0)
        return x;
    gs_value *y = gsi_value(tape, x->dtype, x->rank, x->shape);
    if (gsi_poisoned(y))
        return y;
    uint32_t key[4]; /* a stream of its own for every dropout of every step */
    gsi_philox(key, tape->seed, tape->dropouts++);
    const uint64_t env = gsi_fpenv_enter();
    const gsi_dropout how = gsi_dropout_of(p, (uint64_t)key[1] << 32 | key[0], 0);
    gsi_fpenv_leave(env);
    dropout_loop l = {tape->rows, gsi_out_of(y), gsi_data(x), &how};
    gsi_over_rows(tape, x->count, 1, dropout_chunk, &l, false);
    dropout_op *op = gsi_record(tape, GS_OP_dropout, sizeof *op, y, x, NULL, NULL);
    if (op)
        op->how = how;
    return y;
}

void gsi_dropout_backward(gs_tape *t, gsi_op *record)
{
    const dropout_op *op = (const dropout_op *)record;
    gs_value *x = record->in[0];
    gsi_stage to;
    if (!gsi_stage_begin(t, x, &to))
        return;
    dropout_loop l = {t->rows, to.out, gsi_grad(record->out), &op->how};
    gsi_over_rows(t, x->count, 1, dropout_chunk, &l, x->dtype != GS_F32);
    gsi_stage_end(t, x, &to);
}

/* ---- fake quantisation: gradients pass straight through ---- */

typedef struct quant_op {
    gsi_op op;
    gsi_quant how;
} quant_op;

typedef struct quant_loop {
    const gsi_rows *k;
    gsi_out y;
    gsi_in x, dy; /* dy without data: forward */
    const gsi_quant *how;
} quant_loop;

static uint32_t quant_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const quant_loop *l = arg;
    gsi_out y = gsi_out_at(l->y, first);
    const gsi_in x = gsi_in_at(l->x, first);
    y.counts = counts;
    if (!l->dy.data)
        return l->k->fake_quant(y, x, count, l->how);
    return l->k->fake_quant_backward(y, gsi_in_at(l->dy, first), x, count, l->how);
}

gs_value *gsi_fake_quant(gs_tape *tape, gs_value *x, const gsi_quant *how)
{
    gs_value *y = gsi_value(tape, x->dtype, x->rank, x->shape);
    if (gsi_poisoned(y))
        return y;
    quant_loop l = {tape->rows, gsi_out_of(y), gsi_data(x), {NULL, x->dtype}, how};
    gsi_over_rows(tape, x->count, 1, quant_chunk, &l, false);
    quant_op *op = gsi_record(tape, GS_OP_fake_quant, sizeof *op, y, x, NULL, NULL);
    if (op) {
        op->how = *how;
        gsi_keep(x);
    }
    return y;
}

gs_value *gs_fake_quant(gs_tape *tape, gs_value *x, float amax, int bits, int is_unsigned,
                        int narrow)
{
    if (!gsi_readable(tape, GS_OP_fake_quant, x))
        return &tape->poison.value;
    if (!(amax >= 0) || isinf(amax) || bits < 2 || bits > 16)
        return gs_tape_fail(tape, GS_ERANGE, "fake_quant: amax is %g and bits are %d", (double)amax,
                            bits);
    const uint64_t env = gsi_fpenv_enter();
    const gsi_quant how = gsi_quant_of(amax, bits, is_unsigned, narrow);
    gsi_fpenv_leave(env);
    return gsi_fake_quant(tape, x, &how);
}

void gsi_fake_quant_backward(gs_tape *t, gsi_op *record)
{
    const quant_op *op = (const quant_op *)record;
    gs_value *x = record->in[0];
    gsi_stage to;
    if (!gsi_stage_begin(t, x, &to))
        return;
    quant_loop l = {t->rows, to.out, gsi_data(x), gsi_grad(record->out), &op->how};
    gsi_over_rows(t, x->count, 1, quant_chunk, &l, x->dtype != GS_F32);
    gsi_stage_end(t, x, &to);
}
