/* The row kernels: what an engine computes between its matrix products, forward and backward.
 *
 * Contract of every kernel:
 * - Arrays are f32, f16 or bf16, each argument of its own type; all arithmetic is f32; what is
 *   stored is rounded once, to nearest even. Rows lie one after the other, [rows][cols].
 * - Sizes may be 0; pointers are aligned to their element size and to nothing more; bytes outside
 *   the arrays are neither written nor needed.
 * - A destination may be one of its sources if it has the same type and shape; else nothing that
 *   is written overlaps anything.
 * - A kernel that stores returns the largest magnitude it stored, as the bits of an f32, and
 *   GSI_F32_INF if there was an Inf or a NaN. If the destination has `counts`, it adds what it
 *   stored to inf, nan, zero, subnormal and underflow (not 0 in f32, but stored as 0), and raises
 *   amax; first_bad is not touched.
 * - A row depends on nothing but itself, and a caller cuts rows (or, where it says so, columns)
 *   into chunks of fixed size for its threads.
 * - Sums over a row: element i goes to lane i % 32; a lane adds 16 elements, then that sum to the
 *   lane's total; at the end the 32 lanes fold pairwise (l += l + 16, then + 8, 4, 2, 1). All in
 *   f32: the error of a sum of n terms is below (16 + n / 512 + 5) 2^-24 of the sum of magnitudes.
 * - All variants store and return the same bits; only which NaN a NaN is, is not defined. They
 *   expect the default floating-point environment (kernel/fpenv.h). */
#ifndef GSI_KERNEL_ROWS_H
#define GSI_KERNEL_ROWS_H

#include "kernel/kernel.h"

typedef struct gsi_in {
    const void *data;
    gs_dtype type;
} gsi_in;

typedef struct gsi_out {
    void *data;
    gs_dtype type;
    gsi_counts *counts; /* NULL: not asked */
} gsi_out;

/* The same array from element i on. */
static inline gsi_in gsi_in_at(gsi_in x, size_t i)
{
    const size_t bytes = gsi_size_of(x.type);
    return (gsi_in){(const char *)x.data + i * bytes, x.type};
}

static inline gsi_out gsi_out_at(gsi_out y, size_t i)
{
    const size_t bytes = gsi_size_of(y.type);
    return (gsi_out){(char *)y.data + i * bytes, y.type, y.counts};
}

/* ---- elementwise ---- */

/* y = f(x);  dx = dy f'(x);  y = a op b;  y[r][c] = a[r][c] op row[c].
 * copy: y = x, a conversion. relu: -0 gives 0, NaN stays; its derivative is 0 at 0. gelu,
 * gelu_erf, silu and their accuracy: kernel/simd/math.h. */
typedef uint32_t gsi_unary_fn(gsi_out y, gsi_in x, size_t n);
typedef uint32_t gsi_unary_backward_fn(gsi_out dx, gsi_in dy, gsi_in x, size_t n);
typedef uint32_t gsi_binary_fn(gsi_out y, gsi_in a, gsi_in b, size_t n);
typedef uint32_t gsi_broadcast_fn(gsi_out y, gsi_in a, gsi_in row, size_t rows, size_t cols);

/* ---- sums over rows: gradients of what was broadcast ---- */

/* sum[c] = sum over r of a[r][c], or of a[r][c] b[r][c] where b has data. A row begins `stride`
 * elements after the one before: a caller cuts columns, or cuts rows and sums the partial sums.
 * Rows are added 4 at a time, (0 + 1) + (2 + 3), to the sum of a block of 64, blocks in order. */
typedef void gsi_colsum_fn(float *sum, gsi_in a, gsi_in b, size_t rows, size_t cols, size_t stride);

/* ---- layer normalisation ---- */

/* y = (x - mean) rstd gamma + beta, rstd = 1 / sqrt(variance + eps), both of the row, both kept:
 * mean[rows], rstd[rows]. The variance is that of x - mean, a second look at the row. */
typedef uint32_t gsi_layernorm_fn(gsi_out y, float *mean, float *rstd, gsi_in x, gsi_in gamma,
                                  gsi_in beta, size_t rows, size_t cols, float eps);

/* dgamma[cols] and dbeta[cols] are added to, row after row: a caller clears them for each of its
 * chunks and sums the chunks with colsum. */
typedef uint32_t gsi_layernorm_backward_fn(gsi_out dx, float *dgamma, float *dbeta, gsi_in dy,
                                           gsi_in x, const float *mean, const float *rstd,
                                           gsi_in gamma, size_t rows, size_t cols);

/* y = x rstd gamma, rstd = 1 / sqrt(mean of x^2 + eps), kept: rstd[rows]. Backward as above. */
typedef uint32_t gsi_rmsnorm_fn(gsi_out y, float *rstd, gsi_in x, gsi_in gamma, size_t rows,
                                size_t cols, float eps);
typedef uint32_t gsi_rmsnorm_backward_fn(gsi_out dx, float *dgamma, gsi_in dy, gsi_in x,
                                         const float *rstd, gsi_in gamma, size_t rows, size_t cols);

/* ---- rotary embedding ---- */

/* Of a row of `cols` elements the first `heads` times d are rotated, in pairs i and i + d / 2 of a
 * head, by the angles of the row's position; the others are copied. Row r has position
 * first + r % time. The table is [positions][2][d / 2]: cosines, then sines. d is even. */
typedef struct gsi_rotary {
    const float *table;
    size_t heads, d, cols, time, first;
    bool inverse; /* by the negative angles: backward */
} gsi_rotary;
/* Rows [row, row + rows) of x and y, which are whole arrays. */
typedef uint32_t gsi_rotary_fn(gsi_out y, gsi_in x, const gsi_rotary *how, size_t row, size_t rows);

/* ---- batch normalisation: [rows][channels], the view of NHWC data ---- */

/* mean[c] = the mean of the column over these rows, m2[c] = sum of (x - mean)^2, in colsum's
 * order: two looks at a chunk of rows that fits a cache. gsi_moments_merge joins chunks. rows > 0
 * where cols > 0. */
typedef void gsi_moments_fn(float *mean, float *m2, gsi_in x, size_t rows, size_t cols);

/* y = (x - mean) (rstd gamma) + beta, each of the column. */
typedef uint32_t gsi_batchnorm_fn(gsi_out y, gsi_in x, const float *mean, const float *rstd,
                                  gsi_in gamma, gsi_in beta, size_t rows, size_t cols);

/* dgamma[c] = sum of dy (x - mean) rstd, dbeta[c] = sum of dy, over these rows, in colsum's order:
 * colsum joins chunks. */
typedef void gsi_batchnorm_sums_fn(float *dgamma, float *dbeta, gsi_in dy, gsi_in x,
                                   const float *mean, const float *rstd, size_t rows, size_t cols);

/* dx = rstd gamma (dy - dbeta / count - (x - mean) rstd dgamma / count); count: all rows. */
typedef uint32_t gsi_batchnorm_backward_fn(gsi_out dx, gsi_in dy, gsi_in x, const float *mean,
                                           const float *rstd, gsi_in gamma, const float *dgamma,
                                           const float *dbeta, size_t count, size_t rows,
                                           size_t cols);

/* ---- softmax and losses ---- */

/* softmax: y = e^(x - max) / sum. A row with a NaN or an Inf, or all -Inf, is NaN.
 * backward: dx = y (dy - sum of y dy). */
typedef uint32_t gsi_softmax_fn(gsi_out y, gsi_in x, size_t rows, size_t cols);
typedef uint32_t gsi_softmax_backward_fn(gsi_out dx, gsi_in dy, gsi_in y, size_t rows, size_t cols);

/* Attention: of row r the first past = min(first + r + 1, cols) elements count: causal, or with
 * first = cols all of them.
 * attend: p = softmax(scale s) over the past, zero after it; s is used up. 0 < scale.
 * backward: ds = p (dp - sum of p dp) scale over the past, zero after it; ds may be p. */
typedef uint32_t gsi_attend_fn(gsi_out p, float *s, size_t rows, size_t cols, size_t first,
                               float scale);
typedef uint32_t gsi_attend_backward_fn(gsi_out ds, const float *dp, gsi_in p, size_t rows,
                                        size_t cols, size_t first, float scale);

/* lse[rows] = max + log(sum of e^(x - max)) */
typedef void gsi_logsumexp_fn(float *lse, gsi_in x, size_t rows, size_t cols);

/* loss[rows] = lse - logits[target]; lse is kept for backward. A negative target is ignored: loss
 * 0. Targets are below cols: gsi_check_index. cols > 0. */
typedef void gsi_cross_entropy_fn(float *loss, float *lse, gsi_in logits, const int32_t *target,
                                  size_t rows, size_t cols);

/* d = (e^(logits - lse) - onehot(target)) seed; 0 in an ignored row. One exp per element, and no
 * f32 copy: in place over the logits if the type is theirs. */
typedef uint32_t gsi_cross_entropy_backward_fn(gsi_out d, gsi_in logits, const int32_t *target,
                                               const float *lse, float seed, size_t rows,
                                               size_t cols);

/* The sum of (a - b)^2 as one row, and dx = (a - b) factor: factor is 2 seed / n. */
typedef float gsi_square_error_fn(gsi_in a, gsi_in b, size_t n);
typedef uint32_t gsi_difference_fn(gsi_out dx, gsi_in a, gsi_in b, size_t n, float factor);

/* ---- embedding ---- */

/* y[r] = table[index[r]];  table[index[r]][c] += dy[r][c] for increasing r. Rows of table and dy
 * begin `stride` elements apart in scatter: a caller cuts columns, never rows. */
typedef uint32_t gsi_gather_fn(gsi_out y, gsi_in table, const int32_t *index, size_t rows,
                               size_t cols);
typedef void gsi_scatter_fn(float *table, gsi_in dy, const int32_t *index, size_t rows, size_t cols,
                            size_t stride);

/* ---- dropout and fake quantisation ---- */

/* Element i is kept, times `scale`, where gsi_random_u16(seed, first + i) >= threshold, else 0.
 * Backward is the same call on the gradient: the mask is made again, not stored. */
typedef struct gsi_dropout {
    uint64_t seed, first; /* first: a multiple of GSI_RANDOM_GROUP */
    uint32_t threshold;   /* of 65536: the nearest to 65536 p */
    float scale;          /* 1 / (1 - p) */
} gsi_dropout;
typedef uint32_t gsi_dropout_fn(gsi_out y, gsi_in x, size_t n, const gsi_dropout *how);

/* y = clamp(nearest even integer to x multiplier, low, high) / divisor;
 * dx = dy where |x| <= amax, else 0: the straight-through gradient. */
typedef struct gsi_quant {
    float amax;
    float multiplier, divisor; /* high / amax; 0 and 1 where amax <= 2^-24: all zeros */
    float low, high;
} gsi_quant;
typedef uint32_t gsi_fake_quant_fn(gsi_out y, gsi_in x, size_t n, const gsi_quant *how);
typedef uint32_t gsi_fake_quant_backward_fn(gsi_out dx, gsi_in dy, gsi_in x, size_t n,
                                            const gsi_quant *how);

/* The integers alone, of at most 8 bits; a NaN is 0. */
typedef void gsi_quantize_fn(int8_t *codes, gsi_in x, size_t n, const gsi_quant *how);

/* What a product of integers stands for: y[r][c] = (float)sums[r][c] scale[c] + bias[c]. The
 * conversion, the product and the sum are rounded each, then y is to its type. Rows of y and sums
 * begin `y_stride` and `stride` elements apart. bias without data: none is added. This is the one
 * definition: doc/quantize.md. */
typedef uint32_t gsi_requantize_fn(gsi_out y, size_t y_stride, const int32_t *sums, size_t stride,
                                   const float *scale, gsi_in bias, size_t rows, size_t cols);

/* ---- pooling in windows: NHWC ---- */

/* A window of kh x kw begins at stride * o - pad. kh kw <= 255 for max. All are > 0 but pad, which
 * is at most half of kh and of kw; every window meets the image. */
typedef struct gsi_pool2d {
    size_t height, width, channels; /* of an image */
    size_t out_height, out_width;   /* 1 + (height + 2 pad - kh) / stride */
    size_t kh, kw, stride, pad;
} gsi_pool2d;

/* Forward: output lines [first, first + lines) of the batch, a line being a row of out_width
 * pixels; line l is line l % out_height of image l / out_height. x and y, from and dy, are whole
 * batches. `from` keeps which element of the window was the largest, the first of equals or the
 * first NaN: [lines][out_width][channels].
 * Backward: input lines; every element of dx is written, the sum of what its windows send, in the
 * order of the windows. The average divides by kh kw, padding counted (as PyTorch does). */
typedef uint32_t gsi_maxpool_fn(gsi_out y, uint8_t *from, gsi_in x, const gsi_pool2d *p,
                                size_t first, size_t lines);
typedef uint32_t gsi_maxpool_backward_fn(gsi_out dx, gsi_in dy, const uint8_t *from,
                                         const gsi_pool2d *p, size_t first, size_t lines);
typedef uint32_t gsi_avgpool_fn(gsi_out y, gsi_in x, const gsi_pool2d *p, size_t first,
                                size_t lines);
typedef uint32_t gsi_avgpool_backward_fn(gsi_out dx, gsi_in dy, const gsi_pool2d *p, size_t first,
                                         size_t lines);

/*    name                    family */
#define GS_ROW_KERNELS(X)                             \
    X(copy, unary)                                    \
    X(relu, unary)                                    \
    X(gelu, unary)                                    \
    X(gelu_erf, unary)                                \
    X(silu, unary)                                    \
    X(exp, unary)                                     \
    X(log, unary)                                     \
    X(tanh, unary)                                    \
    X(erf, unary)                                     \
    X(sigmoid, unary)                                 \
    X(relu_backward, unary_backward)                  \
    X(gelu_backward, unary_backward)                  \
    X(gelu_erf_backward, unary_backward)              \
    X(silu_backward, unary_backward)                  \
    X(add, binary)                                    \
    X(mul, binary)                                    \
    X(add_row, broadcast)                             \
    X(mul_row, broadcast)                             \
    X(colsum, colsum)                                 \
    X(layernorm, layernorm)                           \
    X(layernorm_backward, layernorm_backward)         \
    X(rmsnorm, rmsnorm)                               \
    X(rmsnorm_backward, rmsnorm_backward)             \
    X(rotary, rotary)                                 \
    X(softmax, softmax)                               \
    X(softmax_backward, softmax_backward)             \
    X(attend, attend)                                 \
    X(attend_backward, attend_backward)               \
    X(logsumexp, logsumexp)                           \
    X(cross_entropy, cross_entropy)                   \
    X(cross_entropy_backward, cross_entropy_backward) \
    X(square_error, square_error)                     \
    X(difference, difference)                         \
    X(gather, gather)                                 \
    X(scatter, scatter)                               \
    X(dropout, dropout)                               \
    X(fake_quant, fake_quant)                         \
    X(fake_quant_backward, fake_quant_backward)       \
    X(quantize, quantize)                             \
    X(requantize, requantize)                         \
    X(moments, moments)                               \
    X(batchnorm, batchnorm)                           \
    X(batchnorm_sums, batchnorm_sums)                 \
    X(batchnorm_backward, batchnorm_backward)         \
    X(maxpool, maxpool)                               \
    X(maxpool_backward, maxpool_backward)             \
    X(avgpool, avgpool)                               \
    X(avgpool_backward, avgpool_backward)

typedef struct gsi_rows {
#define X(name, family) gsi_##family##_fn *name;
    GS_ROW_KERNELS(X)
#undef X
} gsi_rows;

/* Joins the moments of `more` rows to those of `rows`, in f64, as Chan, Golub and LeVeque do. A
 * caller starts from zeros and rows 0, and goes through its chunks in order. */
void gsi_moments_merge(double *mean, double *m2, size_t rows, const float *mean_more,
                       const float *m2_more, size_t more, size_t cols);

/* bits: 2 to 16. `narrow`: low is -high, else one less; without a sign it is 0. */
gsi_quant gsi_quant_of(float amax, int bits, bool is_unsigned, bool narrow);

/* p in [0, 1] */
gsi_dropout gsi_dropout_of(float p, uint64_t seed, uint64_t first);

/* The first i with index[i] outside [0, limit), n if there is none. Where `ignore`, a negative
 * index is inside. */
size_t gsi_check_index(const int32_t *index, size_t n, size_t limit, bool ignore);

#endif
