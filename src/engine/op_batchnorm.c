/* batchnorm: over all but the last axis, channels last. Statistics and arithmetic are f32, joined
 * over chunks of rows in f64, in order. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

#include <math.h>
#include <string.h>

static const float eps = 1e-5f; /* PyTorch's */

typedef struct batchnorm_op {
    gsi_op op;
    float *mean, *rstd; /* [cols] */
} batchnorm_op;

typedef struct norm_loop {
    const gsi_rows *k;
    gsi_out y; /* or dx */
    gsi_in x, dy, gamma, beta;
    float *mean, *rstd;
    float *parts; /* [chunks][2][cols] */
    float *sums;  /* [2][cols]: d(gamma), d(beta) */
    size_t rows, cols, per_chunk;
} norm_loop;

static float *part_of(const norm_loop *l, size_t first)
{
    return l->parts + first / l->per_chunk * 2 * l->cols;
}

static uint32_t moments_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const norm_loop *l = arg;
    (void)counts;
    l->k->moments(part_of(l, first), part_of(l, first) + l->cols, gsi_in_at(l->x, first * l->cols),
                  count, l->cols);
    return 0;
}

static uint32_t forward_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const norm_loop *l = arg;
    (void)counts;
    return l->k->batchnorm(gsi_out_at(l->y, first * l->cols), gsi_in_at(l->x, first * l->cols),
                           l->mean, l->rstd, l->gamma, l->beta, count, l->cols);
}

/* The moments of this batch, which also move the running ones. */
static void measure(gs_tape *t, norm_loop *l, gs_running running)
{
    const size_t chunks = gsi_ceil_div(l->rows, l->per_chunk);
    l->parts = gsi_step_new(t, chunks * 2 * l->cols, sizeof *l->parts);
    double *joined = gsi_step_new(t, 2 * l->cols, sizeof *joined);
    if (!l->parts || !joined)
        return;
    gsi_over_rows(t, l->rows, l->cols, moments_chunk, l, false);
    memset(joined, 0, 2 * l->cols * sizeof *joined);
    for (size_t i = 0; i < chunks; i++) {
        const size_t first = i * l->per_chunk, left = l->rows - first;
        const float *part = part_of(l, first);
        gsi_moments_merge(joined, joined + l->cols, first, part, part + l->cols,
                          left < l->per_chunk ? left : l->per_chunk, l->cols);
    }
    for (size_t c = 0; c < l->cols; c++) {
        const double rows = (double)l->rows, mean = joined[c], m2 = joined[l->cols + c];
        l->mean[c] = (float)mean;
        l->rstd[c] = (float)(1 / sqrt(m2 / rows + (double)eps));
        /* as PyTorch: the running variance is the unbiased one */
        const float var = (float)(m2 / (rows > 1 ? rows - 1 : 1));
        if (t->where == GSI_SECOND_RUN) /* the first has moved them */
            continue;
        running.mean[c] += running.momentum * (l->mean[c] - running.mean[c]);
        running.var[c] += running.momentum * (var - running.var[c]);
    }
}

gs_value *gs_batchnorm(gs_tape *tape, gs_value *x, gs_value *gamma, gs_value *beta,
                       gs_running running)
{
    char sx[96], sg[96], sb[96];
    if (!gsi_readable(tape, GS_OP_batchnorm, x) || !gsi_readable(tape, GS_OP_batchnorm, gamma) ||
        !gsi_readable(tape, GS_OP_batchnorm, beta))
        return &tape->poison.value;
    const size_t cols = x->rank ? x->shape[x->rank - 1] : 0;
    if (cols == 0 || gamma->rank != 1 || gamma->count != cols || beta->rank != 1 ||
        beta->count != cols)
        return gs_tape_fail(tape, GS_ESIZE, "batchnorm: x is %s, gamma is %s and beta is %s",
                            gsi_shape(sx, x), gsi_shape(sg, gamma), gsi_shape(sb, beta));
    if (!running.mean || !running.var)
        return gs_tape_fail(tape, GS_ENULL, "batchnorm: there are no running statistics");
    gs_value *y = gsi_value(tape, gsi_result_type(tape, GS_OP_batchnorm, x->dtype, x->dtype),
                            x->rank, x->shape);
    float *mean = gsi_step_new(tape, 2 * cols, sizeof *mean);
    if (gsi_poisoned(y) || !mean)
        return &tape->poison.value;
    norm_loop l = {.k = tape->rows,
                   .y = gsi_out_of(y),
                   .x = gsi_data(x),
                   .gamma = gsi_data(gamma),
                   .beta = gsi_data(beta),
                   .mean = mean,
                   .rstd = mean + cols,
                   .rows = x->count / cols,
                   .cols = cols,
                   .per_chunk = gsi_chunk_rows(cols)};
    const uint64_t env = gsi_fpenv_enter();
    if (tape->training) {
        measure(tape, &l, running);
    } else {
        memcpy(l.mean, running.mean, cols * sizeof *l.mean);
        for (size_t c = 0; c < cols; c++)
            l.rstd[c] = 1 / sqrtf(running.var[c] + eps);
    }
    gsi_fpenv_leave(env);
    gsi_over_rows(tape, l.rows, cols, forward_chunk, &l, false);
    batchnorm_op *op = gsi_record(tape, GS_OP_batchnorm, sizeof *op, y, x, gamma, beta);
    if (op) {
        op->mean = l.mean;
        op->rstd = l.rstd;
        gsi_keep(x);
        gsi_keep(gamma);
    }
    return y;
}

static uint32_t sums_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const norm_loop *l = arg;
    const size_t at = first * l->cols;
    (void)counts;
    l->k->batchnorm_sums(part_of(l, first), part_of(l, first) + l->cols, gsi_in_at(l->dy, at),
                         gsi_in_at(l->x, at), l->mean, l->rstd, count, l->cols);
    return 0;
}

static uint32_t backward_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const norm_loop *l = arg;
    const size_t at = first * l->cols;
    gsi_out dx = gsi_out_at(l->y, at);
    dx.counts = counts;
    return l->k->batchnorm_backward(dx, gsi_in_at(l->dy, at), gsi_in_at(l->x, at), l->mean, l->rstd,
                                    l->gamma, l->sums, l->sums + l->cols, l->rows, count, l->cols);
}

void gsi_batchnorm_backward(gs_tape *t, gsi_op *record)
{
    const batchnorm_op *op = (const batchnorm_op *)record;
    gs_value *y = record->out, *x = record->in[0], *gamma = record->in[1], *beta = record->in[2];
    const size_t cols = gamma->count, rows = x->count / cols, per_chunk = gsi_chunk_rows(cols);
    const size_t chunks = gsi_ceil_div(rows, per_chunk);
    float *parts = gsi_step_new(t, (chunks + 1) * 2 * cols, sizeof *parts);
    if (!parts)
        return;
    norm_loop l = {.k = t->rows,
                   .x = gsi_data(x),
                   .dy = gsi_grad(y),
                   .gamma = gsi_data(gamma),
                   .mean = op->mean,
                   .rstd = op->rstd,
                   .parts = parts,
                   .sums = parts + chunks * 2 * cols,
                   .rows = rows,
                   .cols = cols,
                   .per_chunk = per_chunk};
    gsi_over_rows(t, rows, cols, sums_chunk, &l, false);
    t->rows->colsum(l.sums, (gsi_in){parts, GS_F32}, (gsi_in){NULL, GS_F32}, chunks, 2 * cols,
                    2 * cols);
    gsi_stage to;
    if (gsi_stage_begin(t, x, &to)) {
        l.y = to.out;
        gsi_over_rows(t, rows, cols, backward_chunk, &l, x->dtype != GS_F32);
        gsi_stage_end(t, x, &to);
    }
    gsi_accumulate(t, gamma, l.sums, GS_F32);
    gsi_accumulate(t, beta, l.sums + cols, GS_F32);
}
