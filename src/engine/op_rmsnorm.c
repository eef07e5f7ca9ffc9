/* rmsnorm (Zhang and Sennrich 2019): layernorm without a mean and without beta. Arithmetic is f32
 * whatever is stored. */
#include "engine/engine.h"

#include <string.h>

static const float eps = 1e-5f; /* that of Llama 2 and 3 */

typedef struct rmsnorm_op {
    gsi_op op;
    float *rstd; /* [rows] */
} rmsnorm_op;

typedef struct norm_loop {
    const gsi_rows *k;
    gsi_out y; /* or dx */
    gsi_in x, dy, gamma;
    float *rstd;
    float *parts; /* backward: [chunks][cols], d(gamma) */
    size_t cols, per_chunk;
} norm_loop;

static uint32_t forward_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const norm_loop *l = arg;
    const size_t at = first * l->cols;
    (void)counts;
    return l->k->rmsnorm(gsi_out_at(l->y, at), l->rstd + first, gsi_in_at(l->x, at), l->gamma,
                         count, l->cols, eps);
}

gs_value *gs_rmsnorm(gs_tape *tape, gs_value *x, gs_value *gamma)
{
    char sx[96], sg[96];
    if (!gsi_readable(tape, GS_OP_rmsnorm, x) || !gsi_readable(tape, GS_OP_rmsnorm, gamma))
        return &tape->poison.value;
    const size_t cols = x->rank ? x->shape[x->rank - 1] : 0;
    if (cols == 0 || gamma->rank != 1 || gamma->count != cols)
        return gs_tape_fail(tape, GS_ESIZE, "rmsnorm: x is %s and gamma is %s", gsi_shape(sx, x),
                            gsi_shape(sg, gamma));
    const size_t rows = x->count / cols;
    gs_value *y = gsi_value(tape, gsi_result_type(tape, GS_OP_rmsnorm, x->dtype, x->dtype), x->rank,
                            x->shape);
    float *rstd = gsi_step_new(tape, rows, sizeof *rstd);
    if (gsi_poisoned(y) || !rstd)
        return &tape->poison.value;
    norm_loop l = {.k = tape->rows,
                   .y = gsi_out_of(y),
                   .x = gsi_data(x),
                   .gamma = gsi_data(gamma),
                   .rstd = rstd,
                   .cols = cols};
    gsi_over_rows(tape, rows, cols, forward_chunk, &l, false);
    rmsnorm_op *op = gsi_record(tape, GS_OP_rmsnorm, sizeof *op, y, x, gamma, NULL);
    if (op) {
        op->rstd = rstd;
        gsi_keep(x);
        gsi_keep(gamma);
    }
    return y;
}

static uint32_t backward_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const norm_loop *l = arg;
    const size_t at = first * l->cols;
    float *part = l->parts + first / l->per_chunk * l->cols;
    gsi_out dx = gsi_out_at(l->y, at);
    dx.counts = counts;
    memset(part, 0, l->cols * sizeof *part);
    return l->k->rmsnorm_backward(dx, part, gsi_in_at(l->dy, at), gsi_in_at(l->x, at),
                                  l->rstd + first, l->gamma, count, l->cols);
}

void gsi_rmsnorm_backward(gs_tape *t, gsi_op *record)
{
    const rmsnorm_op *op = (const rmsnorm_op *)record;
    gs_value *y = record->out, *x = record->in[0], *gamma = record->in[1];
    const size_t cols = gamma->count, rows = x->count / cols, per_chunk = gsi_chunk_rows(cols);
    const size_t chunks = gsi_ceil_div(rows, per_chunk);
    gsi_stage to = {{NULL, x->dtype, NULL}, NULL};
    float *parts = gsi_step_new(t, (chunks + 1) * cols, sizeof *parts);
    void *unused = NULL; /* dx is computed even where nobody needs it */
    if (!gsi_stage_begin(t, x, &to))
        to.out.data = unused = gsi_step_new(t, x->count, gsi_size_of(x->dtype));
    if (!parts || !to.out.data)
        return;
    norm_loop l = {.k = t->rows,
                   .y = to.out,
                   .x = gsi_data(x),
                   .dy = gsi_grad(y),
                   .gamma = gsi_data(gamma),
                   .rstd = op->rstd,
                   .parts = parts,
                   .cols = cols,
                   .per_chunk = per_chunk};
    gsi_over_rows(t, rows, cols, backward_chunk, &l, !unused && x->dtype != GS_F32);
    float *sum = parts + chunks * cols;
    t->rows->colsum(sum, (gsi_in){parts, GS_F32}, (gsi_in){NULL, GS_F32}, chunks, cols, cols);
    if (!unused)
        gsi_stage_end(t, x, &to);
    gsi_accumulate(t, gamma, sum, GS_F32);
}
