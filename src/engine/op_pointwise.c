/* add, mul, relu, gelu, gelu_erf, silu: element by element. */
#include "engine/engine.h"

#include <string.h>

/* ---- relu, the gelus and silu ---- */

typedef struct unary {
    gsi_unary_fn *forward;
    gsi_unary_backward_fn *backward;
    gsi_out y; /* or dx */
    gsi_in x, dy;
} unary;

static uint32_t unary_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const unary *u = arg;
    gsi_out y = gsi_out_at(u->y, first);
    y.counts = counts;
    if (u->forward)
        return u->forward(y, gsi_in_at(u->x, first), count);
    return u->backward(y, gsi_in_at(u->dy, first), gsi_in_at(u->x, first), count);
}

static gs_value *unary_op(gs_tape *t, gs_op op, gs_value *x, gsi_unary_fn *forward)
{
    if (!gsi_readable(t, op, x))
        return &t->poison.value;
    gs_value *y = gsi_value(t, gsi_result_type(t, op, x->dtype, x->dtype), x->rank, x->shape);
    if (gsi_poisoned(y))
        return y;
    unary u = {.forward = forward, .y = gsi_out_of(y), .x = gsi_data(x)};
    gsi_over_rows(t, x->count, 1, unary_chunk, &u, false);
    if (gsi_record(t, op, sizeof(gsi_op), y, x, NULL, NULL))
        gsi_keep(x);
    return y;
}

static void unary_backward(gs_tape *t, gsi_op *op, gsi_unary_backward_fn *backward)
{
    gs_value *x = op->in[0];
    gsi_stage to;
    if (!gsi_stage_begin(t, x, &to))
        return;
    unary u = {.backward = backward, .y = to.out, .x = gsi_data(x), .dy = gsi_grad(op->out)};
    gsi_over_rows(t, x->count, 1, unary_chunk, &u, x->dtype != GS_F32);
    gsi_stage_end(t, x, &to);
}

gs_value *gs_relu(gs_tape *tape, gs_value *x)
{
    return unary_op(tape, GS_OP_relu, x, tape->rows->relu);
}

void gsi_relu_backward(gs_tape *t, gsi_op *op) { unary_backward(t, op, t->rows->relu_backward); }

gs_value *gs_gelu(gs_tape *tape, gs_value *x)
{
    return unary_op(tape, GS_OP_gelu, x, tape->rows->gelu);
}

void gsi_gelu_backward(gs_tape *t, gsi_op *op) { unary_backward(t, op, t->rows->gelu_backward); }

gs_value *gs_gelu_erf(gs_tape *tape, gs_value *x)
{
    return unary_op(tape, GS_OP_gelu_erf, x, tape->rows->gelu_erf);
}

void gsi_gelu_erf_backward(gs_tape *t, gsi_op *op)
{
    unary_backward(t, op, t->rows->gelu_erf_backward);
}

gs_value *gs_silu(gs_tape *tape, gs_value *x)
{
    return unary_op(tape, GS_OP_silu, x, tape->rows->silu);
}

void gsi_silu_backward(gs_tape *t, gsi_op *op) { unary_backward(t, op, t->rows->silu_backward); }

/* ---- add and mul: b may be a suffix of a's shape, repeated over rows ---- */

typedef struct binary {
    gsi_binary_fn *full;
    gsi_broadcast_fn *repeat; /* NULL: not repeated */
    gsi_out y;
    gsi_in a, b;
    size_t cols;
} binary;

static uint32_t binary_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const binary *p = arg;
    const size_t at = first * p->cols;
    gsi_out y = gsi_out_at(p->y, at);
    y.counts = counts;
    if (p->repeat)
        return p->repeat(y, gsi_in_at(p->a, at), p->b, count, p->cols);
    return p->full(y, gsi_in_at(p->a, at), gsi_in_at(p->b, at), count * p->cols);
}

/* y = a op b, where b has cols elements, or as many as a. */
static void run_binary(gs_tape *t, gsi_out y, gsi_in a, gsi_in b, size_t count, size_t cols,
                       gsi_binary_fn *full, gsi_broadcast_fn *repeat, bool gradient)
{
    const bool repeated = cols != count;
    binary p = {full, repeated ? repeat : NULL, y, a, b, repeated ? cols : 1};
    gsi_over_rows(t, count / p.cols, p.cols, binary_chunk, &p, gradient);
}

static bool is_suffix(const gs_value *a, const gs_value *b)
{
    const int skip = a->rank - b->rank;
    return skip >= 0 && b->count > 0 &&
           memcmp(a->shape + skip, b->shape, (size_t)b->rank * sizeof *b->shape) == 0;
}

static gs_value *binary_op(gs_tape *t, gs_op op, gs_value *a, gs_value *b, gsi_binary_fn *full,
                           gsi_broadcast_fn *repeat)
{
    char sa[96], sb[96];
    if (!gsi_readable(t, op, a) || !gsi_readable(t, op, b))
        return &t->poison.value;
    if (!is_suffix(a, b))
        return gs_tape_fail(t, GS_ESIZE, "%s: a is %s and b is %s", gs_op_name(op),
                            gsi_shape(sa, a), gsi_shape(sb, b));
    gs_value *y = gsi_value(t, gsi_result_type(t, op, a->dtype, b->dtype), a->rank, a->shape);
    if (gsi_poisoned(y))
        return y;
    run_binary(t, gsi_out_of(y), gsi_data(a), gsi_data(b), a->count, b->count, full, repeat, false);
    if (gsi_record(t, op, sizeof(gsi_op), y, a, b, NULL) && op == GS_OP_mul) {
        gsi_keep(a);
        gsi_keep(b);
    }
    return y;
}

gs_value *gs_add(gs_tape *tape, gs_value *a, gs_value *b)
{
    return binary_op(tape, GS_OP_add, a, b, tape->rows->add, tape->rows->add_row);
}

void gsi_add_backward(gs_tape *t, gsi_op *op)
{
    gs_value *y = op->out, *a = op->in[0], *b = op->in[1];
    gsi_share(t, a, y);
    if (a->count == b->count)
        gsi_share(t, b, y);
    else
        gsi_grad_columns(t, b, gsi_grad(y), (gsi_in){NULL, GS_F32}, a->count / b->count);
}

gs_value *gs_mul(gs_tape *tape, gs_value *a, gs_value *b)
{
    return binary_op(tape, GS_OP_mul, a, b, tape->rows->mul, tape->rows->mul_row);
}

void gsi_mul_backward(gs_tape *t, gsi_op *op)
{
    gs_value *y = op->out, *a = op->in[0], *b = op->in[1];
    gsi_stage to;
    if (gsi_stage_begin(t, a, &to)) {
        run_binary(t, to.out, gsi_grad(y), gsi_data(b), a->count, b->count, t->rows->mul,
                   t->rows->mul_row, a->dtype != GS_F32);
        gsi_stage_end(t, a, &to);
    }
    if (a->count != b->count) {
        gsi_grad_columns(t, b, gsi_grad(y), gsi_data(a), a->count / b->count);
    } else if (gsi_stage_begin(t, b, &to)) {
        run_binary(t, to.out, gsi_grad(y), gsi_data(a), b->count, b->count, t->rows->mul, NULL,
                   b->dtype != GS_F32);
        gsi_stage_end(t, b, &to);
    }
}

void gsi_copy_array(gs_tape *t, gsi_out dst, gsi_in src, size_t n)
{
    unary u = {.forward = t->rows->copy, .y = dst, .x = src};
    gsi_over_rows(t, n, 1, unary_chunk, &u, dst.type != GS_F32);
}

void gsi_add_arrays(gs_tape *t, gsi_out dst, gsi_in src, size_t n)
{
    run_binary(t, dst, (gsi_in){dst.data, dst.type}, src, n, n, t->rows->add, NULL,
               dst.type != GS_F32);
}
