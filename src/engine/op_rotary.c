/* rotary: turns pairs of columns by angles of their position; backward turns them back.
 *
 * The table is made by additions, products and quotients of f64 alone, in a fixed order, because
 * the cosines and powers of libm differ from machine to machine. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

typedef struct rotary_op {
    gsi_op op;
    gsi_rotary how;
} rotary_op;

typedef struct rotary_loop {
    const gsi_rows *k;
    gsi_out y; /* or dx */
    gsi_in x;  /* or dy */
    const gsi_rotary *how;
} rotary_loop;

/* ---- the table ---- */

static double power(double x, size_t n)
{
    double y = 1;
    for (size_t i = 0; i < n; i++)
        y *= x;
    return y;
}

/* x^(1/n), of x >= 1, by bisection. */
static double root(double x, size_t n)
{
    double low = 1, high = x;
    for (int i = 0; i < 100; i++) {
        const double middle = low + (high - low) / 2;
        if (power(middle, n) <= x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Of an angle of 0 to 2^24, to 2^-40 or better: what is left of it after quarters of a turn, then
 * Taylor's series. */
static void turn(float *cosine, float *sine, double angle)
{
    const double high = 0x1.921fb54p+0, low = 0x1.10b4611a62633p-30; /* pi / 2: 26 bits, the rest */
    const uint64_t quarters = (uint64_t)(angle * 0x1.45f306dc9c883p-1 + 0.5);
    const double x = angle - (double)quarters * high - (double)quarters * low, z = x * x;
    double s = 0, c = 0;
    for (int i = 19; i >= 1; i -= 2) {
        s = 1 - z / (double)((i + 1) * (i + 2)) * s;
        c = 1 - z / (double)(i * (i + 1)) * c;
    }
    s *= x;
    const double turned[4][2] = {{c, s}, {-s, c}, {-c, -s}, {s, -c}};
    *cosine = (float)turned[quarters % 4][0];
    *sine = (float)turned[quarters % 4][1];
}

void gs_rotary_fill(float *table, size_t positions, size_t d, double theta)
{
    const uint64_t env = gsi_fpenv_enter();
    const size_t half = d / 2;
    const double step = root(theta, half ? half : 1);
    for (size_t i = 0; i < half; i++) {
        const double frequency = 1 / power(step, i);
        for (size_t p = 0; p < positions; p++)
            turn(&table[p * d + i], &table[p * d + half + i], (double)p * frequency);
    }
    gsi_fpenv_leave(env);
}

/* ---- the operation ---- */

static uint32_t rotary_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const rotary_loop *l = arg;
    gsi_out y = l->y;
    y.counts = counts;
    return l->k->rotary(y, l->x, l->how, first, count);
}

gs_value *gs_rotary(gs_tape *tape, gs_value *x, size_t heads, size_t d, const float *table,
                    size_t first)
{
    char shape[96];
    if (!gsi_readable(tape, GS_OP_rotary, x))
        return &tape->poison.value;
    if (x->rank != 3 || d == 0 || d % 2 != 0 || heads > x->shape[2] / d)
        return gs_tape_fail(tape, GS_ESIZE, "rotary: x is %s, for %zu heads of %zu",
                            gsi_shape(shape, x), heads, d);
    if (!table)
        return gs_tape_fail(tape, GS_ENULL, "rotary: there is no table");
    gs_value *y = gsi_value(tape, x->dtype, 3, x->shape);
    if (gsi_poisoned(y))
        return y;
    const gsi_rotary how = {.table = table,
                            .heads = heads,
                            .d = d,
                            .cols = x->shape[2],
                            .time = x->shape[1],
                            .first = first};
    rotary_loop l = {tape->rows, gsi_out_of(y), gsi_data(x), &how};
    gsi_over_rows(tape, x->shape[0] * x->shape[1], how.cols, rotary_chunk, &l, false);
    rotary_op *op = gsi_record(tape, GS_OP_rotary, sizeof *op, y, x, NULL, NULL);
    if (op) {
        op->how = how;
        op->how.inverse = true;
    }
    return y;
}

void gsi_rotary_backward(gs_tape *t, gsi_op *record)
{
    const rotary_op *op = (const rotary_op *)record;
    gs_value *x = record->in[0];
    gsi_stage to;
    if (!gsi_stage_begin(t, x, &to))
        return;
    rotary_loop l = {t->rows, to.out, gsi_grad(record->out), &op->how};
    gsi_over_rows(t, x->shape[0] * x->shape[1], op->how.cols, rotary_chunk, &l, x->dtype != GS_F32);
    gsi_stage_end(t, x, &to);
}
