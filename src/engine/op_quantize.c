/* Quantised products: integers in place of both operands.
 *
 * (1) What a quantised product is, follows from integers alone: exact sums of products of codes,
 *     then rows->requantize. So INT8 arithmetic and floats give the same bits: doc/quantize.md.
 * (2) A range moves once a pass: in the first run of a segment, not in the second.
 * (3) What is not finite is never clipped away: the product is NaN, and the range stays. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

#include <math.h>
#include <string.h>

/* ---- operands ---- */

static size_t code_size(const gs_tape *t) { return t->config.int8 ? 1 : sizeof(uint16_t); }

/* Integers are exact in bf16. */
static void make_codes(const gs_tape *t, void *codes, gsi_in x, size_t n, const gsi_quant *how)
{
    gsi_quant integers = *how;
    integers.divisor = 1;
    if (t->config.int8)
        t->rows->quantize(codes, x, n, how);
    else
        t->rows->fake_quant((gsi_out){codes, GS_BF16, NULL}, x, n, &integers);
}

typedef struct code_loop {
    gs_tape *t;
    gsi_in x;
    gsi_quant how;
    char *codes;
    gsi_out value;  /* without data: not wanted */
    float *units;   /* of weights: [rows], what 1 in a row stands for */
    uint32_t *tops; /* of weights: [rows], magnitudes; then sums of the codes' */
    size_t cols;
} code_loop;

static uint32_t code_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const code_loop *l = arg;
    (void)counts;
    make_codes(l->t, l->codes + first * code_size(l->t), gsi_in_at(l->x, first), count, &l->how);
    return 0;
}

/* The sum of magnitudes of bf16 integers. */
static uint32_t sum_codes(const uint16_t *codes, size_t n)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (uint32_t)gsi_float((uint32_t)(codes[i] & 0x7FFF) << 16);
    return sum;
}

/* Rows of a weight: each has a unit of its own. */
static uint32_t weight_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const code_loop *l = arg;
    const gs_tape *t = l->t;
    (void)counts;
    for (size_t r = first; r < first + count; r++) {
        const gsi_in row = gsi_in_at(l->x, r * l->cols);
        char *codes = l->codes + r * l->cols * code_size(t);
        const uint32_t top = t->ctx->kernels.pass.check[row.type](row.data, l->cols);
        const gsi_quant how = gsi_quant_of(gsi_float(top < GSI_F32_INF ? top : 0), 8, false, true);
        make_codes(t, codes, row, l->cols, &how);
        if (l->value.data)
            t->rows->fake_quant(gsi_out_at(l->value, r * l->cols), row, l->cols, &how);
        l->units[r] = 1 / how.divisor;
        l->tops[r] = top >= GSI_F32_INF ? UINT32_MAX
                     : t->config.int8   ? 0
                                        : sum_codes((const uint16_t *)(void *)codes, l->cols);
    }
    return 0;
}

/* Fills in c, for which there is room. value NULL: what the integers stand for is not wanted. */
static void make_weight(gs_tape *t, const gs_value *w, gsi_codes *c, void *value)
{
    const size_t rows = gsi_rows_of(w), cols = w->count / rows;
    code_loop l = {.t = t,
                   .x = gsi_data(w),
                   .codes = c->codes,
                   .value = {value, w->dtype, NULL},
                   .units = c->units,
                   .tops = gsi_step_new(t, rows, sizeof *l.tops),
                   .cols = cols};
    if (!l.tops)
        return;
    gsi_over_rows(t, rows, cols, weight_chunk, &l, false);
    for (size_t r = 0; r < rows; r++) {
        c->bad |= l.tops[r] == UINT32_MAX;
        c->most = gsi_max_size(c->most, l.tops[r]);
    }
    c->made = true;
}

/* unit: of x. In training weights change, and are quantised anew. */
static void quantize_weight(gs_tape *t, const gs_weight *weight, const gs_value *w, float unit,
                            gsi_quantized *out)
{
    const size_t rows = gsi_rows_of(w), bytes = w->count * code_size(t);
    float *scale = gsi_step_new(t, rows, sizeof *scale);
    gsi_codes *kept = t->training ? NULL : gsi_fixed_codes(t, weight, w, bytes), once = {0};
    gsi_codes *c = kept ? kept : &once;
    void *value = NULL;
    if (!kept) {
        once.codes = gsi_step_new(t, bytes, 1);
        once.units = gsi_step_new(t, rows, sizeof *once.units);
        value = t->training ? gsi_step_new(t, w->count, gsi_size_of(w->dtype)) : NULL;
    }
    if (!scale || !c->codes || !c->units || (t->training && !value))
        return;
    if (!c->made)
        make_weight(t, w, c, value);
    for (size_t r = 0; c->made && r < rows; r++)
        scale[r] = unit * c->units[r];
    out->bad |= c->bad;
    out->most = c->most;
    out->w = c->codes;
    out->scale = scale;
    out->w_value = value;
}

/* x as integers; in training it becomes what they stand for, through which gradients pass. */
static void quantize_input(gs_tape *t, gs_value **x, float range, gsi_quantized *out)
{
    code_loop l = {.t = t, .x = gsi_data(*x), .how = gsi_quant_of(range, 8, false, true)};
    l.codes = gsi_step_new(t, (*x)->count, code_size(t));
    if (!l.codes)
        return;
    gsi_over_rows(t, (*x)->count, 1, code_chunk, &l, false);
    out->x = l.codes;
    if (t->training)
        *x = gsi_fake_quant(t, *x, &l.how);
}

bool gsi_quantize_operands(gs_tape *t, const gs_weight *weight, gs_value **x, const gs_value *w,
                           gsi_quantized *out)
{
    *out = (gsi_quantized){0};
    if (t->config.quantize == GS_QUANTIZE_NONE || !weight || weight->rows < 2)
        return true;
    float *range = gsi_range_of(t, weight);
    const bool moves = (t->training || t->calibrating) && t->where != GSI_SECOND_RUN;
    const size_t k = w->count / gsi_rows_of(w);
    if (!range) {
        gs_tape_fail(t, GS_ESTATE, "%s: there is no range for what is multiplied by weight %s",
                     t->doing, weight->name ? weight->name : "without a name");
        return false;
    }
    if (k > GS_INT8_K) {
        gs_tape_fail(t, GS_ERANGE, "%s: weight %s has rows of %zu, and INT8 takes up to %d",
                     t->doing, weight->name ? weight->name : "without a name", k, (int)GS_INT8_K);
        return false;
    }
    out->on = !t->calibrating && (t->config.quantize == GS_QUANTIZE_QAT || !t->training);
    const uint64_t env = gsi_fpenv_enter();
    const uint32_t top = gsi_range_amax(t, gsi_data(*x), (*x)->count);
    out->bad = top >= GSI_F32_INF;
    if (moves && !out->bad)
        gsi_range_move(t, range, gsi_data(*x), (*x)->count, gsi_float(top));
    if (out->on) {
        const float now = *range < INFINITY ? *range : 0; /* a file may say anything */
        quantize_weight(t, weight, w, 1 / gsi_quant_of(now, 8, false, true).divisor, out);
        quantize_input(t, x, now, out);
    }
    gsi_fpenv_leave(env);
    return t->error.status == GS_OK;
}

/* ---- products ---- */

/* Sums of rows [first, first + rows), which floats make: exact, because no partial sum of the
 * products of a part of k reaches 2^24. */
typedef struct sum_loop {
    const gs_tape *t;
    const gs_gemm *g;
    const float *part; /* [rows][n] */
    int32_t *sums;     /* [rows][n] */
    bool first, last;
    gsi_out y;
    const float *scale;
} sum_loop;

static uint32_t sum_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const sum_loop *l = arg;
    const size_t n = l->g->n;
    (void)counts;
    for (size_t i = first * n; i < (first + count) * n; i++)
        l->sums[i] = (l->first ? 0 : l->sums[i]) + (int32_t)l->part[i];
    if (l->last)
        l->t->rows->requantize(gsi_out_at(l->y, first * n), n, l->sums + first * n, n, l->scale,
                               (gsi_in){l->g->bias, l->g->bias_dtype}, count, n);
    return 0;
}

enum { HIGH = 127, EXACT = 1 << 24, WHOLE_K = EXACT / (HIGH * HIGH), BLOCK = 1 << 22 };

/* to[rows][k] = from where [first, end) of k are, else 0. */
static void mask_codes(uint16_t *to, const uint16_t *from, size_t rows, size_t k, size_t first,
                       size_t end)
{
    memset(to, 0, rows * k * sizeof *to);
    for (size_t r = 0; r < rows; r++)
        memcpy(to + r * k + first, from + r * k + first, (end - first) * sizeof *to);
}

/* By the matrix product of floats, on the integers as bf16. Where a row of w is so large that a sum
 * may pass 2^24, k is taken in parts: what is left of w is zero in the others. */
static void product_in_floats(gs_tape *t, const gsi_quantized *q, const gs_gemm *g)
{
    const gs_im2col *p = g->a.im2col;
    const size_t unit = p ? p->rows_h * p->rows_w : 1, step = p ? p->h * p->w * p->c : g->k;
    const size_t block = gsi_max_size(BLOCK / (unit * g->n), 1) * unit;
    const size_t most = gsi_min_size(block, g->m);
    const bool whole = q->most * HIGH < EXACT;
    const gsi_mark mark = gsi_arena_mark(&t->ctx->scratch);
    float *part = gsi_arena_new(&t->ctx->scratch, most * g->n, sizeof *part);
    int32_t *sums = gsi_arena_new(&t->ctx->scratch, most * g->n, sizeof *sums);
    uint16_t *masked = whole ? NULL : gsi_arena_new(&t->ctx->scratch, g->n * g->k, sizeof *masked);
    if (!part || !sums || (!whole && !masked)) {
        gs_tape_fail(t, GS_ENOMEM, "no memory for the sums of a quantised product");
        gsi_arena_reset(&t->ctx->scratch, mark);
        return;
    }
    for (size_t i = 0; i < g->m; i += block) {
        const size_t rows = gsi_min_size(block, g->m - i);
        gs_gemm floats = {
            .m = rows,
            .n = g->n,
            .k = g->k,
            .batch = 1,
            .a = {.data = (const uint16_t *)q->x + i / unit * step,
                  .dtype = GS_BF16,
                  .stride = g->k,
                  .im2col = p},
            .b = {.data = whole ? q->w : masked, .dtype = GS_BF16, .stride = g->k, .transposed = 1},
            .c = {part, GS_F32, g->n, 0}};
        for (size_t k = 0; k < g->k; k += whole ? g->k : WHOLE_K) {
            const size_t end = whole ? g->k : gsi_min_size(k + WHOLE_K, g->k);
            if (!whole)
                mask_codes(masked, q->w, g->n, g->k, k, end);
            gsi_demand(t, gs_gemm_run(t->ctx, &floats));
            sum_loop l = {.t = t,
                          .g = g,
                          .part = part,
                          .sums = sums,
                          .first = k == 0,
                          .last = end == g->k,
                          .y = gsi_out_at((gsi_out){g->c.data, g->c.dtype, NULL}, i * g->n),
                          .scale = q->scale};
            gsi_over_rows(t, rows, g->n, sum_chunk, &l, false);
        }
    }
    gsi_arena_reset(&t->ctx->scratch, mark);
}

static uint32_t nan_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const gs_gemm *g = arg;
    const gsi_out y = gsi_out_at((gsi_out){g->c.data, g->c.dtype, NULL}, first * g->n);
    const float nan = NAN;
    const uint16_t half = y.type == GS_F16 ? gs_f32_to_f16(nan) : gs_f32_to_bf16(nan);
    (void)counts;
    for (size_t i = 0; i < count * g->n; i++)
        memcpy((char *)y.data + i * gsi_size_of(y.type),
               y.type == GS_F32 ? (const void *)&nan : &half, gsi_size_of(y.type));
    return 0;
}

void gsi_quantized_product(gs_tape *t, const gsi_quantized *q, const gs_gemm *g)
{
    if (t->error.status != GS_OK)
        return;
    gs_gemm all = *g;
    if (q->bad) {
        gsi_over_rows(t, g->m, g->n, nan_chunk, &all, false);
    } else if (t->config.int8) {
        const gs_gemm_int8 product = {.m = g->m,
                                      .n = g->n,
                                      .k = g->k,
                                      .a = q->x,
                                      .im2col = g->a.im2col,
                                      .b = q->w,
                                      .y = g->c.data,
                                      .dtype = g->c.dtype,
                                      .scale = q->scale,
                                      .bias = g->bias,
                                      .bias_dtype = g->bias_dtype};
        gsi_demand(t, gs_gemm_int8_run(t->ctx, &product));
    } else {
        product_in_floats(t, q, g);
    }
}
