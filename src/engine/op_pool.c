/* max_pool, avg_pool and global_avg_pool: windows of images [images, h, w, c]. */
#include "engine/engine.h"

typedef struct pool_op {
    gsi_op op;
    gsi_pool2d how;
    uint8_t *from; /* max: which element of each window was the largest */
} pool_op;

typedef struct pool_loop {
    const gsi_rows *k;
    gsi_out y; /* or dx */
    gsi_in x;  /* or dy */
    uint8_t *from;
    const gsi_pool2d *how;
    bool backward;
} pool_loop;

static uint32_t pool_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const pool_loop *l = arg;
    gsi_out y = l->y;
    y.counts = counts;
    if (l->from)
        return l->backward ? l->k->maxpool_backward(y, l->x, l->from, l->how, first, count)
                           : l->k->maxpool(y, l->from, l->x, l->how, first, count);
    return l->backward ? l->k->avgpool_backward(y, l->x, l->how, first, count)
                       : l->k->avgpool(y, l->x, l->how, first, count);
}

/* Windows of kh x kw, x being images. */
static gs_value *run_pool(gs_tape *t, gs_op kind, gs_value *x, size_t kh, size_t kw, size_t stride,
                          size_t pad)
{
    const gsi_pool2d how = {.height = x->shape[1],
                            .width = x->shape[2],
                            .channels = x->shape[3],
                            .out_height = 1 + (x->shape[1] + 2 * pad - kh) / stride,
                            .out_width = 1 + (x->shape[2] + 2 * pad - kw) / stride,
                            .kh = kh,
                            .kw = kw,
                            .stride = stride,
                            .pad = pad};
    gs_value *y = gsi_value(
        t, x->dtype, 4, (const size_t[]){x->shape[0], how.out_height, how.out_width, x->shape[3]});
    if (gsi_poisoned(y))
        return y;
    uint8_t *from = NULL;
    if (kind == GS_OP_max_pool && !(from = gsi_step_new(t, y->count, 1)))
        return &t->poison.value;
    pool_loop l = {t->rows, gsi_out_of(y), gsi_data(x), from, &how, false};
    gsi_over_rows(t, x->shape[0] * how.out_height, how.out_width * how.channels, pool_chunk, &l,
                  false);
    pool_op *op = gsi_record(t, kind, sizeof *op, y, x, NULL, NULL);
    if (op) {
        op->how = how;
        op->from = from;
    }
    return y;
}

static void pool_backward(gs_tape *t, gsi_op *record)
{
    const pool_op *op = (const pool_op *)record;
    gs_value *x = record->in[0];
    gsi_stage to;
    if (!gsi_stage_begin(t, x, &to))
        return;
    pool_loop l = {t->rows, to.out, gsi_grad(record->out), op->from, &op->how, true};
    gsi_over_rows(t, x->shape[0] * op->how.height, op->how.width * op->how.channels, pool_chunk, &l,
                  x->dtype != GS_F32);
    gsi_stage_end(t, x, &to);
}

static gs_value *pool(gs_tape *t, gs_op kind, gs_value *x, size_t kernel, size_t stride, size_t pad)
{
    char shape[96];
    if (!gsi_readable(t, kind, x))
        return &t->poison.value;
    const size_t most = kind == GS_OP_max_pool ? 15 : 255;
    if (x->rank != 4 || kernel == 0 || kernel > most || stride == 0 || pad > kernel / 2 ||
        x->shape[1] + 2 * pad < kernel || x->shape[2] + 2 * pad < kernel)
        return gs_tape_fail(t, GS_ESIZE, "%s: x is %s, the kernel %zu, the stride %zu, the pad %zu",
                            gs_op_name(kind), gsi_shape(shape, x), kernel, stride, pad);
    return run_pool(t, kind, x, kernel, kernel, stride, pad);
}

gs_value *gs_max_pool(gs_tape *tape, gs_value *x, size_t kernel, size_t stride, size_t pad)
{
    return pool(tape, GS_OP_max_pool, x, kernel, stride, pad);
}

void gsi_max_pool_backward(gs_tape *t, gsi_op *op) { pool_backward(t, op); }

gs_value *gs_avg_pool(gs_tape *tape, gs_value *x, size_t kernel, size_t stride)
{
    return pool(tape, GS_OP_avg_pool, x, kernel, stride, 0);
}

gs_value *gs_global_avg_pool(gs_tape *tape, gs_value *x)
{
    char shape[96];
    if (!gsi_readable(tape, GS_OP_avg_pool, x))
        return &tape->poison.value;
    if (x->rank != 4)
        return gs_tape_fail(tape, GS_ESIZE, "global_avg_pool: x is %s", gsi_shape(shape, x));
    return run_pool(tape, GS_OP_avg_pool, x, x->shape[1], x->shape[2], 1, 0);
}

void gsi_avg_pool_backward(gs_tape *t, gsi_op *op) { pool_backward(t, op); }
