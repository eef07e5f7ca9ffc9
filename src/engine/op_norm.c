/* layernorm and rmsnorm: over the last axis. Arithmetic is f32 whatever is stored.
 *
 * rmsnorm (Zhang and Sennrich 2019) is layernorm without a mean and without beta: both are NULL. */
#include "engine/engine.h"

#include <math.h>
#include <string.h>

static const float usual_eps = 1e-5f; /* that of PyTorch, of GPT-2 and of Llama 2 and 3 */

typedef struct norm_op {
    gsi_op op;
    float *mean, *rstd; /* [rows] */
} norm_op;

typedef struct norm_loop {
    const gsi_rows *k;
    gsi_out y; /* or dx */
    gsi_in x, dy, gamma, beta;
    float *mean, *rstd;
    float *parts; /* backward: [chunks][width], d(gamma), then d(beta) if there is one */
    size_t cols, width, per_chunk;
    float eps;
} norm_loop;

static uint32_t forward_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const norm_loop *l = arg;
    const size_t at = first * l->cols;
    const gsi_out y = gsi_out_at(l->y, at);
    const gsi_in x = gsi_in_at(l->x, at);
    float *rstd = l->rstd + first;
    (void)counts;
    if (!l->mean)
        return l->k->rmsnorm(y, rstd, x, l->gamma, count, l->cols, l->eps);
    return l->k->layernorm(y, l->mean + first, rstd, x, l->gamma, l->beta, count, l->cols, l->eps);
}

/* The shapes have been checked. */
static gs_value *norm(gs_tape *tape, gs_op kind, gs_value *x, gs_value *gamma, gs_value *beta,
                      float eps)
{
    const size_t cols = gamma->count, rows = x->count / cols;
    gs_value *y =
        gsi_value(tape, gsi_result_type(tape, kind, x->dtype, x->dtype), x->rank, x->shape);
    float *rstd = gsi_step_new(tape, (beta ? 2 : 1) * rows, sizeof *rstd);
    if (gsi_poisoned(y) || !rstd)
        return &tape->poison.value;
    norm_loop l = {.k = tape->rows,
                   .y = gsi_out_of(y),
                   .x = gsi_data(x),
                   .gamma = gsi_data(gamma),
                   .rstd = rstd,
                   .cols = cols,
                   .eps = eps};
    if (beta) {
        l.beta = gsi_data(beta);
        l.mean = rstd + rows;
    }
    gsi_over_rows(tape, rows, cols, forward_chunk, &l, false);
    norm_op *op = gsi_record(tape, kind, sizeof *op, y, x, gamma, beta);
    if (op) {
        op->mean = l.mean;
        op->rstd = l.rstd;
        gsi_keep(x);
        gsi_keep(gamma);
    }
    return y;
}

static bool is_row(const gs_value *v, size_t cols) { return v->rank == 1 && v->count == cols; }

gs_value *gs_layernorm_eps(gs_tape *tape, gs_value *x, gs_value *gamma, gs_value *beta, float eps)
{
    char sx[96], sg[96], sb[96];
    if (!gsi_readable(tape, GS_OP_layernorm, x) || !gsi_readable(tape, GS_OP_layernorm, gamma) ||
        !gsi_readable(tape, GS_OP_layernorm, beta))
        return &tape->poison.value;
    const size_t cols = x->rank ? x->shape[x->rank - 1] : 0;
    if (cols == 0 || !is_row(gamma, cols) || !is_row(beta, cols))
        return gs_tape_fail(tape, GS_ESIZE, "layernorm: x is %s, gamma is %s and beta is %s",
                            gsi_shape(sx, x), gsi_shape(sg, gamma), gsi_shape(sb, beta));
    if (!(eps > 0 && eps < INFINITY))
        return gs_tape_fail(tape, GS_ERANGE, "layernorm: eps is above 0, not %g", (double)eps);
    return norm(tape, GS_OP_layernorm, x, gamma, beta, eps);
}

gs_value *gs_layernorm(gs_tape *tape, gs_value *x, gs_value *gamma, gs_value *beta)
{
    return gs_layernorm_eps(tape, x, gamma, beta, usual_eps);
}

gs_value *gs_rmsnorm(gs_tape *tape, gs_value *x, gs_value *gamma)
{
    char sx[96], sg[96];
    if (!gsi_readable(tape, GS_OP_rmsnorm, x) || !gsi_readable(tape, GS_OP_rmsnorm, gamma))
        return &tape->poison.value;
    const size_t cols = x->rank ? x->shape[x->rank - 1] : 0;
    if (cols == 0 || !is_row(gamma, cols))
        return gs_tape_fail(tape, GS_ESIZE, "rmsnorm: x is %s and gamma is %s", gsi_shape(sx, x),
                            gsi_shape(sg, gamma));
    return norm(tape, GS_OP_rmsnorm, x, gamma, NULL, usual_eps);
}

static uint32_t backward_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const norm_loop *l = arg;
    const size_t at = first * l->cols;
    const gsi_in dy = gsi_in_at(l->dy, at), x = gsi_in_at(l->x, at);
    const float *rstd = l->rstd + first;
    float *dgamma = l->parts + first / l->per_chunk * l->width;
    gsi_out dx = gsi_out_at(l->y, at);
    dx.counts = counts;
    memset(dgamma, 0, l->width * sizeof *dgamma);
    if (!l->mean)
        return l->k->rmsnorm_backward(dx, dgamma, dy, x, rstd, l->gamma, count, l->cols);
    return l->k->layernorm_backward(dx, dgamma, dgamma + l->cols, dy, x, l->mean + first, rstd,
                                    l->gamma, count, l->cols);
}

static void norm_backward(gs_tape *t, gsi_op *record)
{
    const norm_op *op = (const norm_op *)record;
    gs_value *y = record->out, *x = record->in[0], *gamma = record->in[1], *beta = record->in[2];
    const size_t cols = gamma->count, rows = x->count / cols, per_chunk = gsi_chunk_rows(cols);
    const size_t chunks = gsi_ceil_div(rows, per_chunk), width = (beta ? 2 : 1) * cols;
    gsi_stage to = {{NULL, x->dtype, NULL}, NULL};
    float *parts = gsi_step_new(t, (chunks + 1) * width, sizeof *parts);
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
                   .width = width,
                   .per_chunk = per_chunk};
    gsi_over_rows(t, rows, cols, backward_chunk, &l, !unused && x->dtype != GS_F32);
    float *sums = parts + chunks * width;
    t->rows->colsum(sums, (gsi_in){parts, GS_F32}, (gsi_in){NULL, GS_F32}, chunks, width, width);
    if (!unused)
        gsi_stage_end(t, x, &to);
    gsi_accumulate(t, gamma, sums, GS_F32);
    if (beta)
        gsi_accumulate(t, beta, sums + cols, GS_F32);
}

void gsi_layernorm_backward(gs_tape *t, gsi_op *op) { norm_backward(t, op); }
void gsi_rmsnorm_backward(gs_tape *t, gsi_op *op) { norm_backward(t, op); }
