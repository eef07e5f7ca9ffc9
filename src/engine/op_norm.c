/* layernorm: over the last axis. Statistics and arithmetic are f32 whatever is stored. */
#include "engine/engine.h"

#include <string.h>

static const float eps = 1e-5f; /* PyTorch's and GPT-2's */

typedef struct layernorm_op {
    gsi_op op;
    float *mean, *rstd; /* [rows] */
} layernorm_op;

typedef struct norm_loop {
    const gsi_rows *k;
    gsi_out y; /* or dx */
    gsi_in x, dy, gamma, beta;
    float *mean, *rstd;
    float *parts; /* backward: [chunks][2][cols], d(gamma) and d(beta) */
    size_t cols, per_chunk;
} norm_loop;

static uint32_t forward_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const norm_loop *l = arg;
    const size_t at = first * l->cols;
    (void)counts;
    return l->k->layernorm(gsi_out_at(l->y, at), l->mean + first, l->rstd + first,
                           gsi_in_at(l->x, at), l->gamma, l->beta, count, l->cols, eps);
}

gs_value *gs_layernorm(gs_tape *tape, gs_value *x, gs_value *gamma, gs_value *beta)
{
    char sx[96], sg[96], sb[96];
    if (!gsi_readable(tape, GS_OP_layernorm, x) || !gsi_readable(tape, GS_OP_layernorm, gamma) ||
        !gsi_readable(tape, GS_OP_layernorm, beta))
        return &tape->poison.value;
    const size_t cols = x->rank ? x->shape[x->rank - 1] : 0;
    if (cols == 0 || gamma->rank != 1 || gamma->count != cols || beta->rank != 1 ||
        beta->count != cols)
        return gs_tape_fail(tape, GS_ESIZE, "layernorm: x is %s, gamma is %s and beta is %s",
                            gsi_shape(sx, x), gsi_shape(sg, gamma), gsi_shape(sb, beta));
    const size_t rows = x->count / cols;
    gs_value *y = gsi_value(tape, gsi_result_type(tape, GS_OP_layernorm, x->dtype, x->dtype),
                            x->rank, x->shape);
    float *mean = gsi_step_new(tape, 2 * rows, sizeof *mean);
    if (gsi_poisoned(y) || !mean)
        return &tape->poison.value;
    norm_loop l = {.k = tape->rows,
                   .y = gsi_out_of(y),
                   .x = gsi_data(x),
                   .gamma = gsi_data(gamma),
                   .beta = gsi_data(beta),
                   .mean = mean,
                   .rstd = mean + rows,
                   .cols = cols};
    gsi_over_rows(tape, rows, cols, forward_chunk, &l, false);
    layernorm_op *op = gsi_record(tape, GS_OP_layernorm, sizeof *op, y, x, gamma, beta);
    if (op) {
        op->mean = l.mean;
        op->rstd = l.rstd;
        gsi_keep(x);
        gsi_keep(gamma);
    }
    return y;
}

static uint32_t backward_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const norm_loop *l = arg;
    const size_t at = first * l->cols;
    float *part = l->parts + first / l->per_chunk * 2 * l->cols;
    gsi_out dx = gsi_out_at(l->y, at);
    dx.counts = counts;
    memset(part, 0, 2 * l->cols * sizeof *part);
    return l->k->layernorm_backward(dx, part, part + l->cols, gsi_in_at(l->dy, at),
                                    gsi_in_at(l->x, at), l->mean + first, l->rstd + first, l->gamma,
                                    count, l->cols);
}

void gsi_layernorm_backward(gs_tape *t, gsi_op *record)
{
    const layernorm_op *op = (const layernorm_op *)record;
    gs_value *y = record->out, *x = record->in[0], *gamma = record->in[1], *beta = record->in[2];
    const size_t cols = gamma->count, rows = x->count / cols, per_chunk = gsi_chunk_rows(cols);
    const size_t chunks = gsi_ceil_div(rows, per_chunk);
    gsi_stage to = {{NULL, x->dtype, NULL}, NULL};
    float *parts = gsi_step_new(t, (2 * chunks + 2) * cols, sizeof *parts);
    void *unused = NULL; /* dx is computed even where nobody needs it: the first layer's norm */
    if (!gsi_stage_begin(t, x, &to))
        to.out.data = unused = gsi_step_new(t, x->count, gsi_size_of(x->dtype));
    if (!parts || !to.out.data)
        return;
    norm_loop l = {.k = t->rows,
                   .y = to.out,
                   .x = gsi_data(x),
                   .dy = gsi_grad(y),
                   .gamma = gsi_data(gamma),
                   .mean = op->mean,
                   .rstd = op->rstd,
                   .parts = parts,
                   .cols = cols,
                   .per_chunk = per_chunk};
    gsi_over_rows(t, rows, cols, backward_chunk, &l, !unused && x->dtype != GS_F32);
    float *sums = parts + 2 * chunks * cols; /* [2][cols] */
    t->rows->colsum(sums, (gsi_in){parts, GS_F32}, (gsi_in){NULL, GS_F32}, chunks, 2 * cols,
                    2 * cols);
    if (!unused)
        gsi_stage_end(t, x, &to);
    gsi_accumulate(t, gamma, sums, GS_F32);
    gsi_accumulate(t, beta, sums + cols, GS_F32);
}
