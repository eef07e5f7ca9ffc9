/* linear and matmul. A product's row is the last axis; all axes before it are rows. */
#include "engine/engine.h"

static gs_matrix matrix(const gs_value *v, const void *data, size_t stride, int transposed)
{
    return (gs_matrix){.data = data, .dtype = v->dtype, .stride = stride, .transposed = transposed};
}

/* ---- linear: y [m, n] = x [m, k] w [n, k]^T + b [n] ---- */

typedef struct linear_op {
    gsi_op op;
    const void *w; /* as the product has read it: w's data, or what its integers stand for */
} linear_op;

gs_value *gs_linear(gs_tape *tape, gs_value *x, gs_value *w, gs_value *b)
{
    char sx[96], sw[96];
    const gs_weight *weight = w ? w->weight : NULL;
    x = gsi_operand(tape, GS_OP_linear, x);
    w = gsi_operand(tape, GS_OP_linear, w);
    b = b ? gsi_operand(tape, GS_OP_linear, b) : NULL;
    if (gsi_poisoned(x) || gsi_poisoned(w) || (b && gsi_poisoned(b)))
        return &tape->poison.value;
    if (x->rank < 1 || w->rank < 1 || w->rank > 2 || x->shape[x->rank - 1] != w->shape[w->rank - 1])
        return gs_tape_fail(tape, GS_ESIZE, "linear: x is %s and w is %s", gsi_shape(sx, x),
                            gsi_shape(sw, w));
    const size_t n = gsi_rows_of(w), k = w->count / n;
    if (b && (b->rank != 1 || b->shape[0] != n))
        return gs_tape_fail(tape, GS_ESIZE, "linear: w is %s and b is %s", gsi_shape(sw, w),
                            gsi_shape(sx, b));
    size_t shape[4] = {x->shape[0], x->shape[1], x->shape[2], x->shape[3]};
    shape[x->rank - 1] = n;
    gsi_quantized q;
    if (!gsi_quantize_operands(tape, weight, &x, w, &q))
        return &tape->poison.value;
    gs_value *y = gsi_value(tape, x->dtype, x->rank, shape);
    if (gsi_poisoned(y))
        return y;
    gs_gemm g = {.m = x->count / k,
                 .n = n,
                 .k = k,
                 .batch = 1,
                 .a = matrix(x, x->data, k, 0),
                 .b = matrix(w, w->data, k, 1),
                 .c = {gsi_node_of(y)->data, y->dtype, n, 0},
                 .bias = b ? b->data : NULL,
                 .bias_dtype = b ? b->dtype : GS_F32};
    const void *const panels = !q.on && g.m == 1 ? gsi_fixed_panels(tape, weight, w) : NULL;
    if (panels)
        g.b.data = panels;
    if (q.on)
        gsi_quantized_product(tape, &q, &g);
    else if (panels)
        gsi_demand(tape, gsi_gemm_panels(tape->ctx, &g));
    else
        gsi_product(tape, &g, false);
    linear_op *op = gsi_record(tape, GS_OP_linear, sizeof *op, y, x, w, b);
    if (op) {
        op->w = q.on ? q.w_value : w->data;
        gsi_keep(x);
        gsi_keep(w);
    }
    return y;
}

void gsi_linear_backward(gs_tape *t, gsi_op *record)
{
    const linear_op *op = (const linear_op *)record;
    gs_value *y = record->out, *x = record->in[0], *w = record->in[1], *b = record->in[2];
    const size_t n = gsi_rows_of(w), k = w->count / n, m = x->count / k;
    gs_gemm dx = {.m = m, /* dx [m, k] = dy [m, n] w [n, k] */
                  .n = k,
                  .k = n,
                  .batch = 1,
                  .a = matrix(y, y->grad, n, 0),
                  .b = matrix(w, op->w, k, 0)};
    gs_gemm dw = {.m = n, /* dw [n, k] = dy [m, n]^T x [m, k] */
                  .n = k,
                  .k = m,
                  .batch = 1,
                  .a = matrix(y, y->grad, n, 1),
                  .b = matrix(x, x->data, k, 0)};
    gsi_grad_product(t, x, &dx);
    gsi_grad_product(t, w, &dw);
    if (b)
        gsi_grad_columns(t, b, gsi_grad(y), (gsi_in){NULL, GS_F32}, m);
}

/* ---- matmul: y [.., m, n] = a [.., m, k] b [.., k, n] ---- */

typedef struct matmul_op {
    gsi_op op;
    int transposed;
    size_t m, n, k, batch;
} matmul_op;

static gs_matrix batched(const gs_value *v, const void *data, size_t rows, size_t cols,
                         int transposed)
{
    gs_matrix x = matrix(v, data, cols, transposed);
    x.batch_stride = rows * cols;
    return x;
}

gs_value *gs_matmul(gs_tape *tape, gs_value *a, gs_value *b, int transposed)
{
    char sa[96], sb[96];
    a = gsi_operand(tape, GS_OP_matmul, a);
    b = gsi_operand(tape, GS_OP_matmul, b);
    if (gsi_poisoned(a) || gsi_poisoned(b))
        return &tape->poison.value;
    const int r = a->rank;
    bool fits = r >= 2 && b->rank == r && a->shape[r - 1] == b->shape[r - 1 - !transposed];
    for (int i = 0; fits && i < r - 2; i++)
        fits = a->shape[i] == b->shape[i];
    if (!fits)
        return gs_tape_fail(tape, GS_ESIZE, "matmul: a is %s and b is %s%s", gsi_shape(sa, a),
                            gsi_shape(sb, b), transposed ? ", transposed" : "");
    const size_t m = a->shape[r - 2], k = a->shape[r - 1];
    const size_t n = b->shape[r - 1 - !!transposed];
    size_t shape[4] = {a->shape[0], a->shape[1], a->shape[2], a->shape[3]};
    shape[r - 1] = n;
    gs_value *y = gsi_value(tape, a->dtype, r, shape);
    if (gsi_poisoned(y))
        return y;
    const size_t b_rows = transposed ? n : k, b_cols = transposed ? k : n;
    gs_gemm g = {.m = m,
                 .n = n,
                 .k = k,
                 .batch = a->count / (m * k),
                 .a = batched(a, a->data, m, k, 0),
                 .b = batched(b, b->data, b_rows, b_cols, transposed),
                 .c = {gsi_node_of(y)->data, y->dtype, n, m * n}};
    gsi_product(tape, &g, false);
    matmul_op *op = gsi_record(tape, GS_OP_matmul, sizeof *op, y, a, b, NULL);
    if (op) {
        op->transposed = transposed;
        op->m = m;
        op->n = n;
        op->k = k;
        op->batch = g.batch;
        gsi_keep(a);
        gsi_keep(b);
    }
    return y;
}

void gsi_matmul_backward(gs_tape *t, gsi_op *record)
{
    const matmul_op *op = (const matmul_op *)record;
    gs_value *y = record->out, *a = record->in[0], *b = record->in[1];
    const size_t m = op->m, n = op->n, k = op->k;
    const size_t b_rows = op->transposed ? n : k, b_cols = op->transposed ? k : n;
    gs_gemm da = {.m = m, /* da [m, k] = dy [m, n] b^T */
                  .n = k,
                  .k = n,
                  .batch = op->batch,
                  .a = batched(y, y->grad, m, n, 0),
                  .b = batched(b, b->data, b_rows, b_cols, !op->transposed)};
    gsi_grad_product(t, a, &da);

    /* db = a^T dy, or dy^T a where b is transposed */
    const gs_matrix ma = batched(a, a->data, m, k, !op->transposed);
    const gs_matrix md = batched(y, y->grad, m, n, op->transposed);
    gs_gemm db = {.m = b_rows,
                  .n = b_cols,
                  .k = m,
                  .batch = op->batch,
                  .a = op->transposed ? md : ma,
                  .b = op->transposed ? ma : md};
    gsi_grad_product(t, b, &db);
}
