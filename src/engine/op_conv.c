/* conv2d as implicit GEMM: the im2col matrix is gathered while it is packed, never stored.
 *
 *     y  [images * yh * yw, co] = im2col(x) w^T + b
 *     dx [images * h * w, ci]   = im2col(dy), in its dgrad form (transposed convolution), times w
 *     dw [co, kh * kw * ci]     = dy^T im2col(x) */
#include "engine/engine.h"

typedef struct conv_op {
    gsi_op op;
    size_t kernel, stride, pad;
    const void *w; /* as the product has read it: w's data, or what its integers stand for */
} conv_op;

/* The im2col view of `array` with one row per pixel of `grid`: x for y, or for dgrad y for x. */
static gs_im2col im2col_of(const gs_value *array, const gs_value *grid, const conv_op *op,
                           int dgrad)
{
    return (gs_im2col){.h = array->shape[1],
                       .w = array->shape[2],
                       .c = array->shape[3],
                       .rows_h = grid->shape[1],
                       .rows_w = grid->shape[2],
                       .kh = op->kernel,
                       .kw = op->kernel,
                       .stride = op->stride,
                       .pad = op->pad,
                       .dgrad = dgrad};
}

gs_value *gs_conv2d(gs_tape *tape, gs_value *x, gs_value *w, gs_value *b, size_t kernel,
                    size_t stride, size_t pad)
{
    char sx[96], sw[96];
    const gs_weight *weight = w ? w->weight : NULL;
    x = gsi_operand(tape, GS_OP_conv2d, x);
    w = gsi_operand(tape, GS_OP_conv2d, w);
    b = b ? gsi_operand(tape, GS_OP_conv2d, b) : NULL;
    if (gsi_poisoned(x) || gsi_poisoned(w) || (b && gsi_poisoned(b)))
        return &tape->poison.value;
    if (kernel == 0 || stride == 0 || kernel > UINT16_MAX || stride > UINT16_MAX || pad >= kernel)
        return gs_tape_fail(tape, GS_ERANGE, "conv2d: kernel %zu, stride %zu, pad %zu", kernel,
                            stride, pad);
    if (x->rank != 4 || w->rank < 1 || w->rank > 2 ||
        w->shape[w->rank - 1] != kernel * kernel * x->shape[3] || x->shape[1] + 2 * pad < kernel ||
        x->shape[2] + 2 * pad < kernel)
        return gs_tape_fail(tape, GS_ESIZE, "conv2d: x is %s and w is %s, with a kernel of %zu",
                            gsi_shape(sx, x), gsi_shape(sw, w), kernel);
    const size_t co = gsi_rows_of(w), k = w->count / co;
    if (b && (b->rank != 1 || b->shape[0] != co))
        return gs_tape_fail(tape, GS_ESIZE, "conv2d: w is %s and b is %s", gsi_shape(sw, w),
                            gsi_shape(sx, b));
    const size_t shape[] = {x->shape[0], (x->shape[1] + 2 * pad - kernel) / stride + 1,
                            (x->shape[2] + 2 * pad - kernel) / stride + 1, co};
    gsi_quantized q;
    if (!gsi_quantize_operands(tape, weight, &x, w, &q))
        return &tape->poison.value;
    gs_value *y = gsi_value(tape, x->dtype, 4, shape);
    if (gsi_poisoned(y))
        return y;
    const conv_op how = {.kernel = kernel, .stride = stride, .pad = pad};
    const gs_im2col im2col = im2col_of(x, y, &how, 0);
    gs_gemm g = {.m = y->count / co,
                 .n = co,
                 .k = k,
                 .batch = 1,
                 .a = {.data = x->data, .dtype = x->dtype, .im2col = &im2col},
                 .b = {.data = w->data, .dtype = w->dtype, .stride = k, .transposed = 1},
                 .c = {.data = gsi_node_of(y)->data, .dtype = y->dtype, .stride = co},
                 .bias = b ? b->data : NULL,
                 .bias_dtype = b ? b->dtype : GS_F32};
    if (q.on)
        gsi_quantized_product(tape, &q, &g);
    else
        gsi_product(tape, &g, false);
    conv_op *op = gsi_record(tape, GS_OP_conv2d, sizeof *op, y, x, w, b);
    if (op) {
        op->kernel = kernel;
        op->stride = stride;
        op->pad = pad;
        op->w = q.on ? q.w_value : w->data;
        gsi_keep(x);
        gsi_keep(w);
    }
    return y;
}

void gsi_conv2d_backward(gs_tape *t, gsi_op *record)
{
    const conv_op *op = (const conv_op *)record;
    gs_value *y = record->out, *x = record->in[0], *w = record->in[1], *b = record->in[2];
    const size_t co = gsi_rows_of(w), k = w->count / co, ci = x->shape[3], rows = y->count / co;
    const gs_im2col of_x = im2col_of(x, y, op, 0), of_dy = im2col_of(y, x, op, 1);
    gs_gemm dx = {
        .m = x->count / ci,
        .n = ci,
        .k = op->kernel * op->kernel * co,
        .batch = 1,
        .a = {.data = y->grad, .dtype = y->dtype, .im2col = &of_dy},
        .b = {.data = op->w, .dtype = w->dtype, .stride = k, .group = co, .group_stride = ci}};
    gs_gemm dw = {.m = co,
                  .n = k,
                  .k = rows,
                  .batch = 1,
                  .a = {.data = y->grad, .dtype = y->dtype, .stride = co, .transposed = 1},
                  .b = {.data = x->data, .dtype = x->dtype, .im2col = &of_x}};
    gsi_grad_product(t, x, &dx); /* dgrad */
    gsi_grad_product(t, w, &dw); /* wgrad */
    if (b)
        gsi_grad_columns(t, b, gsi_grad(y), (gsi_in){NULL, GS_F32}, rows);
}
