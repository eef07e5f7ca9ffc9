/* rows_families.h: for every family of row kernels what it takes, setup_FAMILY, and a call of it,
 * call_FAMILY. */
#ifndef ROWS_FAMILIES_H
#define ROWS_FAMILIES_H

#include "rows_trial.h"

typedef void any_fn(void);

static void setup_unary(void)
{
    source(0, t.n);
    dst = over(1, 0, t.n);
}

static uint32_t call_unary(any_fn *fn, int s)
{
    return ((gsi_unary_fn *)fn)(out(dst, s), in(0, s), t.n);
}

static void setup_unary_backward(void)
{
    source(0, t.n);
    source(1, t.n);
    dst = over(2, (int)below(2), t.n);
}

static uint32_t call_unary_backward(any_fn *fn, int s)
{
    return ((gsi_unary_backward_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.n);
}

static void setup_binary(void) { setup_unary_backward(); }

static uint32_t call_binary(any_fn *fn, int s)
{
    return ((gsi_binary_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.n);
}

static void setup_difference(void)
{
    setup_binary();
    t.number = gsi_float(any_f32(TAME));
}

static uint32_t call_difference(any_fn *fn, int s)
{
    return ((gsi_difference_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.n, t.number);
}

static void setup_square_error(void)
{
    source(0, t.n);
    source(1, t.n);
    wanted(2, 1, GS_F32);
}

static uint32_t call_square_error(any_fn *fn, int s)
{
    *(float *)at(2, s) = ((gsi_square_error_fn *)fn)(in(0, s), in(1, s), t.n);
    return 0;
}

static void setup_broadcast(void)
{
    source(0, t.rows * t.cols);
    source(1, t.cols);
    dst = over(2, 0, t.rows * t.cols);
}

static uint32_t call_broadcast(any_fn *fn, int s)
{
    return ((gsi_broadcast_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.rows, t.cols);
}

static size_t strided(void) { return t.rows ? (t.rows - 1) * t.stride + t.cols : 0; }

static void setup_colsum(void)
{
    source(0, strided());
    source(1, strided());
    wanted(2, t.cols, GS_F32);
    t.number = (float)(t.fixed ? 0 : below(2));
}

static uint32_t call_colsum(any_fn *fn, int s)
{
    const gsi_in none = {NULL, GS_F32};
    ((gsi_colsum_fn *)fn)(at(2, s), in(0, s), t.number > 0 ? in(1, s) : none, t.rows, t.cols,
                          t.stride);
    return 0;
}

static void setup_layernorm(void)
{
    source(0, t.rows * t.cols);
    source(1, t.cols);
    source(2, t.cols);
    wanted(3, t.rows, GS_F32);
    wanted(4, t.rows, GS_F32);
    dst = over(5, 0, t.rows * t.cols);
}

static uint32_t call_layernorm(any_fn *fn, int s)
{
    return ((gsi_layernorm_fn *)fn)(out(dst, s), at(3, s), at(4, s), in(0, s), in(1, s), in(2, s),
                                    t.rows, t.cols, 1e-5f);
}

static void setup_layernorm_backward(void)
{
    source(0, t.rows * t.cols);
    source(1, t.rows * t.cols);
    source(2, t.cols);
    given(3, t.rows, GS_F32, t.kind);
    given(4, t.rows, GS_F32, t.kind);
    given(5, t.cols, GS_F32, TAME);
    given(6, t.cols, GS_F32, TAME);
    dst = over(7, (int)below(2), t.rows * t.cols);
}

static uint32_t call_layernorm_backward(any_fn *fn, int s)
{
    return ((gsi_layernorm_backward_fn *)fn)(out(dst, s), at(5, s), at(6, s), in(0, s), in(1, s),
                                             at(3, s), at(4, s), in(2, s), t.rows, t.cols);
}

static void setup_rmsnorm(void)
{
    source(0, t.rows * t.cols);
    source(1, t.cols);
    wanted(2, t.rows, GS_F32);
    dst = over(3, 0, t.rows * t.cols);
}

static uint32_t call_rmsnorm(any_fn *fn, int s)
{
    return ((gsi_rmsnorm_fn *)fn)(out(dst, s), at(2, s), in(0, s), in(1, s), t.rows, t.cols, 1e-5f);
}

static void setup_rmsnorm_backward(void)
{
    source(0, t.rows * t.cols);
    source(1, t.rows * t.cols);
    source(2, t.cols);
    given(3, t.rows, GS_F32, t.kind);
    given(4, t.cols, GS_F32, TAME);
    dst = over(5, (int)below(2), t.rows * t.cols);
}

static uint32_t call_rmsnorm_backward(any_fn *fn, int s)
{
    return ((gsi_rmsnorm_backward_fn *)fn)(out(dst, s), at(4, s), in(0, s), in(1, s), at(3, s),
                                           in(2, s), t.rows, t.cols);
}

/* Heads of up to 140 columns, and some behind them. */
static void setup_rotary(void)
{
    gsi_rotary *r = &t.rotary;
    *r = (gsi_rotary){.heads = 1 + below(3), .d = 2 * (1 + t.n % 70), .time = 1 + below(4)};
    r->first = below(3);
    r->inverse = below(2);
    r->cols = r->heads * r->d + below(40);
    if (t.fixed)
        *r = (gsi_rotary){.heads = 12, .d = 64, .time = 16, .cols = 12 * 64};
    t.lines = t.fixed ? 16 : below(6);
    t.first = t.fixed ? 0 : below(3);
    source(0, (t.first + t.lines) * r->cols);
    given(1, (r->first + r->time) * r->d, GS_F32, t.kind);
    dst = over(2, 0, (t.first + t.lines) * r->cols);
}

static uint32_t call_rotary(any_fn *fn, int s)
{
    gsi_rotary how = t.rotary;
    how.table = at(1, s);
    return ((gsi_rotary_fn *)fn)(out(dst, s), in(0, s), &how, t.first, t.lines);
}

static void setup_softmax(void)
{
    source(0, t.rows * t.cols);
    dst = over(1, 0, t.rows * t.cols);
}

static uint32_t call_softmax(any_fn *fn, int s)
{
    return ((gsi_softmax_fn *)fn)(out(dst, s), in(0, s), t.rows, t.cols);
}

static void setup_softmax_backward(void)
{
    source(0, t.rows * t.cols);
    source(1, t.rows * t.cols);
    dst = over(2, (int)below(2), t.rows * t.cols);
}

static uint32_t call_softmax_backward(any_fn *fn, int s)
{
    return ((gsi_softmax_backward_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.rows, t.cols);
}

static void setup_attend(void)
{
    t.first = below(3) * below(200);
    given(0, t.rows * t.cols, GS_F32, t.kind);
    wanted(1, t.rows * t.cols, any_type());
    dst = 1;
}

static uint32_t call_attend(any_fn *fn, int s)
{
    return ((gsi_attend_fn *)fn)(out(1, s), at(0, s), t.rows, t.cols, t.first, 0.125f);
}

static void setup_attend_backward(void)
{
    t.first = below(3) * below(200);
    given(0, t.rows * t.cols, GS_F32, t.kind);
    source(1, t.rows * t.cols);
    dst = over(2, 1, t.rows * t.cols);
}

static uint32_t call_attend_backward(any_fn *fn, int s)
{
    return ((gsi_attend_backward_fn *)fn)(out(dst, s), at(0, s), in(1, s), t.rows, t.cols, t.first,
                                          0.125f);
}

static void setup_logsumexp(void)
{
    source(0, t.rows * t.cols);
    wanted(1, t.rows, GS_F32);
}

static uint32_t call_logsumexp(any_fn *fn, int s)
{
    ((gsi_logsumexp_fn *)fn)(at(1, s), in(0, s), t.rows, t.cols);
    return 0;
}

static void setup_cross_entropy(void)
{
    t.cols += t.cols == 0;
    source(0, t.rows * t.cols);
    indices(1, t.rows, (uint32_t)t.cols, true);
    wanted(2, t.rows, GS_F32);
    wanted(3, t.rows, GS_F32);
}

static uint32_t call_cross_entropy(any_fn *fn, int s)
{
    ((gsi_cross_entropy_fn *)fn)(at(2, s), at(3, s), in(0, s), at(1, s), t.rows, t.cols);
    return 0;
}

static void setup_cross_entropy_backward(void)
{
    t.cols += t.cols == 0;
    source(0, t.rows * t.cols);
    indices(1, t.rows, (uint32_t)t.cols, true);
    given(2, t.rows, GS_F32, t.kind);
    dst = over(3, 0, t.rows * t.cols);
    t.number = gsi_float(any_f32(TAME));
}

static uint32_t call_cross_entropy_backward(any_fn *fn, int s)
{
    return ((gsi_cross_entropy_backward_fn *)fn)(out(dst, s), in(0, s), at(1, s), at(2, s),
                                                 t.number, t.rows, t.cols);
}

static void setup_gather(void)
{
    const uint32_t words = 1 + below(20);
    source(0, words * t.cols);
    indices(1, t.rows, words, false);
    wanted(2, t.rows * t.cols, any_type());
    dst = 2;
}

static uint32_t call_gather(any_fn *fn, int s)
{
    return ((gsi_gather_fn *)fn)(out(dst, s), in(0, s), at(1, s), t.rows, t.cols);
}

static void setup_scatter(void)
{
    const uint32_t words = 1 + below(10);
    source(0, strided());
    indices(1, t.rows, words, false);
    given(2, (words - 1) * t.stride + t.cols, GS_F32, TAME);
}

static uint32_t call_scatter(any_fn *fn, int s)
{
    ((gsi_scatter_fn *)fn)(at(2, s), in(0, s), at(1, s), t.rows, t.cols, t.stride);
    return 0;
}

static void setup_dropout(void)
{
    setup_unary();
    const uint64_t group = below(2) ? below(1000) : ((uint64_t)1 << 36) - 2;
    t.dropout = gsi_dropout_of((float)below(17) / 16, (uint64_t)draw() << 32 | draw(),
                               group * GSI_RANDOM_GROUP);
}

static uint32_t call_dropout(any_fn *fn, int s)
{
    return ((gsi_dropout_fn *)fn)(out(dst, s), in(0, s), t.n, &t.dropout);
}

static void setup_fake_quant(void)
{
    setup_unary();
    t.quant = gsi_quant_of(gsi_float(gsi_magnitude(any_f32(TAME))), 2 + (int)below(15), below(2),
                           below(2));
}

static uint32_t call_fake_quant(any_fn *fn, int s)
{
    return ((gsi_fake_quant_fn *)fn)(out(dst, s), in(0, s), t.n, &t.quant);
}

static void setup_fake_quant_backward(void)
{
    setup_fake_quant();
    setup_unary_backward();
}

static uint32_t call_fake_quant_backward(any_fn *fn, int s)
{
    return ((gsi_fake_quant_backward_fn *)fn)(out(dst, s), in(0, s), in(1, s), t.n, &t.quant);
}

/* Bytes, in an array of floats; those it has too many stay as they are */
static void bytes(int k, size_t n)
{
    wanted(k, n / 4 + 1, GS_F32);
    memset(at(k, WANT), 0, n);
    memset(at(k, GOT), 0, n);
}

static void setup_quantize(void)
{
    source(0, t.n);
    bytes(1, t.n);
    t.quant =
        gsi_quant_of(gsi_float(gsi_magnitude(any_f32(TAME))), 2 + (int)below(7), false, below(2));
}

static uint32_t call_quantize(any_fn *fn, int s)
{
    ((gsi_quantize_fn *)fn)(at(1, s), in(0, s), t.n, &t.quant);
    return 0;
}

static void setup_requantize(void)
{
    given(0, strided(), GS_F32, BITS); /* int32_t */
    given(1, t.cols, GS_F32, t.kind);
    source(2, t.cols);
    wanted(3, strided(), any_type());
    dst = 3;
    t.first = below(2); /* with a bias or without */
}

static uint32_t call_requantize(any_fn *fn, int s)
{
    const gsi_in none = {NULL, GS_F32};
    return ((gsi_requantize_fn *)fn)(out(dst, s), t.stride, at(0, s), t.stride, at(1, s),
                                     t.first ? in(2, s) : none, t.rows, t.cols);
}

static void setup_moments(void)
{
    t.rows += t.rows == 0;
    source(0, t.rows * t.cols);
    wanted(1, t.cols, GS_F32);
    wanted(2, t.cols, GS_F32);
}

static uint32_t call_moments(any_fn *fn, int s)
{
    ((gsi_moments_fn *)fn)(at(1, s), at(2, s), in(0, s), t.rows, t.cols);
    return 0;
}

static void setup_batchnorm(void)
{
    source(0, t.rows * t.cols);
    given(1, t.cols, GS_F32, t.kind);
    given(2, t.cols, GS_F32, t.kind);
    source(3, t.cols);
    source(4, t.cols);
    dst = over(5, 0, t.rows * t.cols);
}

static uint32_t call_batchnorm(any_fn *fn, int s)
{
    return ((gsi_batchnorm_fn *)fn)(out(dst, s), in(0, s), at(1, s), at(2, s), in(3, s), in(4, s),
                                    t.rows, t.cols);
}

static void setup_batchnorm_sums(void)
{
    source(0, t.rows * t.cols);
    source(1, t.rows * t.cols);
    given(2, t.cols, GS_F32, t.kind);
    given(3, t.cols, GS_F32, t.kind);
    wanted(4, t.cols, GS_F32);
    wanted(5, t.cols, GS_F32);
}

static uint32_t call_batchnorm_sums(any_fn *fn, int s)
{
    ((gsi_batchnorm_sums_fn *)fn)(at(4, s), at(5, s), in(0, s), in(1, s), at(2, s), at(3, s),
                                  t.rows, t.cols);
    return 0;
}

static void setup_batchnorm_backward(void)
{
    setup_batchnorm_sums();
    given(4, t.cols, GS_F32, t.kind);
    given(5, t.cols, GS_F32, t.kind);
    source(6, t.cols);
    dst = over(7, (int)below(2), t.rows * t.cols);
}

static uint32_t call_batchnorm_backward(any_fn *fn, int s)
{
    return ((gsi_batchnorm_backward_fn *)fn)(out(dst, s), in(0, s), in(1, s), at(2, s), at(3, s),
                                             in(6, s), at(4, s), at(5, s), t.rows + 5, t.rows,
                                             t.cols);
}

/* Two images of at most 9 x 9; channels as the trial says. */
static void any_pool(void)
{
    gsi_pool2d *p = &t.pool;
    p->channels = 1 + t.n % 140;
    p->kh = 1 + below(3);
    p->kw = 1 + below(3);
    p->stride = 1 + below(3);
    p->pad = below((uint32_t)(p->kh < p->kw ? p->kh : p->kw) / 2 + 1);
    p->height = p->kh + below(6);
    p->width = p->kw + below(6);
    t.images = 1 + below(2);
    if (t.fixed) {
        *p = (gsi_pool2d){.height = 32, .width = 32, .channels = 64, .kh = 2, .kw = 2, .stride = 2};
        t.images = 1;
    }
    p->out_height = 1 + (p->height + 2 * p->pad - p->kh) / p->stride;
    p->out_width = 1 + (p->width + 2 * p->pad - p->kw) / p->stride;
}

static size_t in_size(void) { return t.images * t.pool.height * t.pool.width * t.pool.channels; }

static size_t out_size(void)
{
    return t.images * t.pool.out_height * t.pool.out_width * t.pool.channels;
}

static void setup_avgpool(void)
{
    any_pool();
    source(0, in_size());
    wanted(1, out_size(), any_type());
}

static void setup_avgpool_backward(void)
{
    any_pool();
    source(0, out_size());
    wanted(1, in_size(), any_type());
}

static void setup_maxpool(void)
{
    setup_avgpool();
    bytes(2, out_size());
}

static void setup_maxpool_backward(void)
{
    setup_avgpool_backward();
    bytes(2, out_size());
    for (size_t i = 0; i < out_size(); i++)
        ((uint8_t *)at(2, WANT))[i] = (uint8_t)below((uint32_t)(t.pool.kh * t.pool.kw));
    twin(2);
}

static uint32_t call_maxpool(any_fn *fn, int s)
{
    return ((gsi_maxpool_fn *)fn)(out(1, s), at(2, s), in(0, s), &t.pool, 0,
                                  t.images * t.pool.out_height);
}

static uint32_t call_maxpool_backward(any_fn *fn, int s)
{
    return ((gsi_maxpool_backward_fn *)fn)(out(1, s), in(0, s), at(2, s), &t.pool, 0,
                                           t.images * t.pool.height);
}

static uint32_t call_avgpool(any_fn *fn, int s)
{
    return ((gsi_avgpool_fn *)fn)(out(1, s), in(0, s), &t.pool, 0, t.images * t.pool.out_height);
}

static uint32_t call_avgpool_backward(any_fn *fn, int s)
{
    return ((gsi_avgpool_backward_fn *)fn)(out(1, s), in(0, s), &t.pool, 0,
                                           t.images * t.pool.height);
}

#endif
