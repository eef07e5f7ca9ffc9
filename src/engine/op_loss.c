/* softmax and the losses. A loss is an f32 scalar, the mean over its rows. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

typedef struct loss_loop {
    const gsi_rows *k;
    gsi_out y; /* or d */
    gsi_in x, dy;
    const int32_t *targets;
    float *loss, *lse; /* [rows] */
    float seed;
    size_t cols;
} loss_loop;

/* ---- softmax ---- */

static uint32_t softmax_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const loss_loop *l = arg;
    const size_t at = first * l->cols;
    gsi_out y = gsi_out_at(l->y, at);
    y.counts = counts;
    if (l->dy.data)
        return l->k->softmax_backward(y, gsi_in_at(l->dy, at), gsi_in_at(l->x, at), count, l->cols);
    return l->k->softmax(y, gsi_in_at(l->x, at), count, l->cols);
}

gs_value *gs_softmax(gs_tape *tape, gs_value *x)
{
    if (!gsi_readable(tape, GS_OP_softmax, x))
        return &tape->poison.value;
    const size_t cols = x->rank ? x->shape[x->rank - 1] : 0;
    if (cols == 0)
        return gs_tape_fail(tape, GS_ESIZE, "softmax: x has no last axis");
    gs_value *y = gsi_value(tape, gsi_result_type(tape, GS_OP_softmax, x->dtype, x->dtype), x->rank,
                            x->shape);
    if (gsi_poisoned(y))
        return y;
    loss_loop l = {.k = tape->rows, .y = gsi_out_of(y), .x = gsi_data(x), .cols = cols};
    gsi_over_rows(tape, x->count / cols, cols, softmax_chunk, &l, false);
    if (gsi_record(tape, GS_OP_softmax, sizeof(gsi_op), y, x, NULL, NULL))
        gsi_keep(y);
    return y;
}

void gsi_softmax_backward(gs_tape *t, gsi_op *op)
{
    gs_value *y = op->out, *x = op->in[0];
    const size_t cols = x->shape[x->rank - 1];
    gsi_stage to;
    if (!gsi_stage_begin(t, x, &to))
        return;
    loss_loop l = {.k = t->rows, .y = to.out, .x = gsi_data(y), .dy = gsi_grad(y), .cols = cols};
    gsi_over_rows(t, x->count / cols, cols, softmax_chunk, &l, x->dtype != GS_F32);
    gsi_stage_end(t, x, &to);
}

/* ---- cross entropy: the logits stay in the type they have, and no f32 copy is made ---- */

typedef struct cross_entropy_op {
    gsi_op op;
    const int32_t *targets;
    float *lse;      /* [rows] */
    size_t counting; /* rows whose target is not negative */
    bool gone;       /* the gradient has taken the place of the logits */
} cross_entropy_op;

static uint32_t cross_entropy_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const loss_loop *l = arg;
    const size_t at = first * l->cols;
    if (!l->y.data) {
        l->k->cross_entropy(l->loss + first, l->lse + first, gsi_in_at(l->x, at),
                            l->targets + first, count, l->cols);
        return 0;
    }
    gsi_out d = gsi_out_at(l->y, at);
    d.counts = counts;
    return l->k->cross_entropy_backward(d, gsi_in_at(l->x, at), l->targets + first, l->lse + first,
                                        l->seed, count, l->cols);
}

gs_value *gs_cross_entropy(gs_tape *tape, gs_value *logits, const int32_t *targets)
{
    if (!gsi_readable(tape, GS_OP_cross_entropy, logits))
        return &tape->poison.value;
    const size_t cols = logits->rank ? logits->shape[logits->rank - 1] : 0;
    if (cols == 0 || !targets)
        return gs_tape_fail(tape, cols ? GS_ENULL : GS_ESIZE, "cross_entropy: %s",
                            cols ? "there are no targets" : "logits have no last axis");
    const size_t rows = logits->count / cols;
    const size_t wrong = gsi_check_index(targets, rows, cols, true);
    if (wrong < rows)
        return gs_tape_fail(tape, GS_ERANGE, "cross_entropy: target %zu is %d, of %zu classes",
                            wrong, targets[wrong], cols);
    gs_value *loss = gsi_value(tape, GS_F32, 0, NULL);
    float *lse = gsi_step_new(tape, 2 * rows, sizeof *lse);
    if (gsi_poisoned(loss) || !lse)
        return &tape->poison.value;
    loss_loop l = {.k = tape->rows,
                   .x = gsi_data(logits),
                   .targets = targets,
                   .loss = lse + rows,
                   .lse = lse,
                   .cols = cols};
    gsi_over_rows(tape, rows, cols, cross_entropy_chunk, &l, false);
    const uint64_t env = gsi_fpenv_enter();
    double sum = 0; /* in order, whatever ran where */
    size_t counting = 0;
    for (size_t i = 0; i < rows; i++) {
        sum += (double)l.loss[i];
        counting += targets[i] >= 0;
    }
    *(float *)loss->data = counting ? (float)(sum / (double)counting) : 0;
    gsi_fpenv_leave(env);
    cross_entropy_op *op =
        gsi_record(tape, GS_OP_cross_entropy, sizeof *op, loss, logits, NULL, NULL);
    if (op) {
        op->targets = targets;
        op->lse = lse;
        op->counting = counting;
        gsi_keep(logits);
    }
    return loss;
}

void gsi_cross_entropy_backward(gs_tape *t, gsi_op *record)
{
    cross_entropy_op *op = (cross_entropy_op *)record;
    gs_value *logits = record->in[0];
    const size_t cols = logits->shape[logits->rank - 1];
    const float seed = *(const float *)record->out->grad;
    gsi_node *root = gsi_node_of(gsi_root(logits));
    gsi_stage to = {{root->data, logits->dtype, NULL}, NULL};
    /* Logits that the step made and no other backward reads. */
    const bool in_place = root->kept == 1 && !root->value.weight && !gsi_node_of(logits)->buffer;
    if (op->gone) {
        gs_tape_fail(t, GS_ESTATE, "cross_entropy: its backward has run, and its logits are gone");
        return;
    }
    op->gone = in_place;
    if (in_place)
        gsi_own(t, logits, root->data);
    else if (!gsi_stage_begin(t, logits, &to))
        return;
    loss_loop l = {.k = t->rows,
                   .y = to.out,
                   .x = gsi_data(logits),
                   .targets = op->targets,
                   .lse = op->lse,
                   .seed = op->counting ? seed / (float)op->counting : 0,
                   .cols = cols};
    gsi_over_rows(t, logits->count / cols, cols, cross_entropy_chunk, &l, logits->dtype != GS_F32);
    if (!in_place)
        gsi_stage_end(t, logits, &to);
}

/* ---- mean squared error ---- */

typedef struct mse_loop {
    const gsi_rows *k;
    gsi_out dx; /* data NULL: forward */
    gsi_in a, b;
    float factor;
    float *parts; /* [chunks] */
    size_t per_chunk;
} mse_loop;

static uint32_t mse_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const mse_loop *l = arg;
    const gsi_in a = gsi_in_at(l->a, first), b = gsi_in_at(l->b, first);
    if (!l->dx.data) {
        l->parts[first / l->per_chunk] = l->k->square_error(a, b, count);
        return 0;
    }
    gsi_out dx = gsi_out_at(l->dx, first);
    dx.counts = counts;
    return l->k->difference(dx, a, b, count, l->factor);
}

gs_value *gs_mse(gs_tape *tape, gs_value *x, gs_value *y)
{
    char sx[96], sy[96];
    if (!gsi_readable(tape, GS_OP_mse, x) || !gsi_readable(tape, GS_OP_mse, y))
        return &tape->poison.value;
    bool fits = x->rank == y->rank && x->count > 0;
    for (int i = 0; fits && i < x->rank; i++)
        fits = x->shape[i] == y->shape[i];
    if (!fits)
        return gs_tape_fail(tape, GS_ESIZE, "mse: x is %s and y is %s", gsi_shape(sx, x),
                            gsi_shape(sy, y));
    const size_t per_chunk = gsi_chunk_rows(1), chunks = gsi_ceil_div(x->count, per_chunk);
    gs_value *loss = gsi_value(tape, GS_F32, 0, NULL);
    float *parts = gsi_step_new(tape, chunks, sizeof *parts);
    if (gsi_poisoned(loss) || !parts)
        return &tape->poison.value;
    mse_loop l = {.k = tape->rows,
                  .a = gsi_data(x),
                  .b = gsi_data(y),
                  .parts = parts,
                  .per_chunk = per_chunk};
    gsi_over_rows(tape, x->count, 1, mse_chunk, &l, false);
    const uint64_t env = gsi_fpenv_enter();
    double sum = 0;
    for (size_t i = 0; i < chunks; i++)
        sum += (double)parts[i];
    *(float *)loss->data = (float)(sum / (double)x->count);
    gsi_fpenv_leave(env);
    if (gsi_record(tape, GS_OP_mse, sizeof(gsi_op), loss, x, y, NULL)) {
        gsi_keep(x);
        gsi_keep(y);
    }
    return loss;
}

void gsi_mse_backward(gs_tape *t, gsi_op *op)
{
    gs_value *x = op->in[0], *y = op->in[1];
    const float factor = *(const float *)op->out->grad * (2 / (float)x->count);
    gs_value *const ends[] = {x, y};
    for (int i = 0; i < 2; i++) {
        gsi_stage to;
        if (!gsi_stage_begin(t, ends[i], &to))
            continue;
        mse_loop l = {.k = t->rows,
                      .dx = to.out,
                      .a = gsi_data(x),
                      .b = gsi_data(y),
                      .factor = i ? -factor : factor};
        gsi_over_rows(t, x->count, 1, mse_chunk, &l, ends[i]->dtype != GS_F32);
        gsi_stage_end(t, ends[i], &to);
    }
}
