/* gemm.h: matrix products of f32, f16 and bf16, and convolutions as matrix products.
 *
 * The result is defined to the last bit: it depends neither on the number of threads nor on the
 * instruction set.
 */
#ifndef GRADSCALE_GEMM_H
#define GRADSCALE_GEMM_H

#include "gradscale/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A convolution's operand: im2col of an array [images][h][w][c], a matrix which is never stored.
 * Row (image, y, x), of a grid of rows_h by rows_w per image, and column (ky, kx, channel) is
 *
 *     array[image][y * stride + ky - pad][x * stride + kx - pad][channel]
 *
 * or, where `dgrad` (a transposed convolution), the element whose product with tap (ky, kx) went to
 * (y, x) of the image:
 *
 *     array[image][(y + pad - ky) / stride][(x + pad - kx) / stride][channel]
 *
 * and zero outside of the array and where the division leaves a remainder. With x
 * [images][h][w][ci] and filters w [co][kh][kw][ci], all channels last,
 *
 *     y  = im2col(x) w^T                   m images*yh*yw, n co, k kh*kw*ci
 *     dw = dy^T im2col(x)                  m co, n kh*kw*ci, k images*yh*yw
 *     dx = im2col(dy, dgrad) w'            m images*h*w, n ci, k kh*kw*co
 *
 * where w' is w with its first two axes swapped: {w, .stride = kh*kw*ci, .group = co,
 * .group_stride = ci}. */
typedef struct gs_im2col {
    size_t h, w, c;        /* of the array */
    size_t rows_h, rows_w; /* of the grid of rows */
    size_t kh, kw;         /* of the filter */
    size_t stride, pad;
    int dgrad;
} gs_im2col;

/* An operand: it is only read. Row i of the stored matrix begins at data + i * stride; matrix z of
 * a batch batch_stride * z further on. `transposed`: what is multiplied is the stored matrix's
 * transpose. */
typedef struct gs_matrix {
    const void *data;
    gs_dtype dtype;
    size_t stride;       /* elements, at least the length of a row */
    size_t batch_stride; /* elements; 0: the whole batch shares the matrix */
    int transposed;
    size_t group,
        group_stride;        /* b only: rows come in groups, group_stride elements apart; 0: no */
    const gs_im2col *im2col; /* data is the array; the stride is not used */
} gs_matrix;

/* What is written. */
typedef struct gs_matrix_out {
    void *data;
    gs_dtype dtype;
    size_t stride, batch_stride; /* as above */
} gs_matrix_out;

/* c = a b + bias + beta c for every matrix of a batch: c is m by n, a m by k, b k by n.
 *
 * For each element, k is cut into blocks of GS_GEMM_KC. The products of a block are summed in f32,
 * in order, with fma; the sums of the blocks are added in order; then the bias is added, then beta
 * * c by fma, each with one rounding; then the sum is rounded to the type of c. A NaN is written as
 * the quiet one without sign and payload. So the result is defined to the last bit. */
enum { GS_GEMM_KC = 384 };

typedef struct gs_gemm {
    size_t m, n, k;
    size_t batch; /* matrices, at least 1 */
    gs_matrix a, b;
    gs_matrix_out c;
    float beta;       /* finite; 0: c is not read */
    const void *bias; /* NULL: none; one per column, or one per row */
    gs_dtype bias_dtype;
    int bias_per_row;
    gs_stats *stats; /* NULL: none; of what is written, added to what is there */
} gs_gemm;

/* Types are f32, f16 and bf16 in any mixture. c overlaps neither a nor b nor itself. What the stats
 * count as subnormal and underflow is so in the type of c; they say nothing of sumsq and of where.
 */
GS_API gs_status gs_gemm_run(gs_context *ctx, const gs_gemm *gemm);

/* How products of two bf16 operands were made since the context was created, in products of
 * micro-panels, where the CPU has a unit for them (avx512bf16). It flushes subnormal numbers, which
 * the definition does not: products that may meet one fall back to f32 fma. Zeros: there is no
 * unit, or none of these. */
typedef struct gs_unit_use {
    uint64_t products, fallbacks; /* all, and those with fma */
} gs_unit_use;

GS_API void gs_context_unit_use(gs_unit_use *out, const gs_context *ctx);

/* ---- INT8 ----
 *
 * The sums of products of bytes are exact: a k of up to GS_INT8_K cannot overflow 32 bits.
 *
 *     sums[i][j] = the sum over k of a[i][k] b[j][k]
 *     y[i][j]    = (float)sums[i][j] * scale[j] + bias[j], rounded to its type
 *
 * where the conversion, the product and the sum each round to nearest even: doc/quantize.md. */
enum { GS_INT8_K = 131071 };

typedef struct gs_gemm_int8 {
    size_t m, n, k;
    const int8_t *a;         /* [m][k] */
    const gs_im2col *im2col; /* NULL: none; else a is the array, and no dgrad */
    const int8_t *b;         /* [n][k] */
    int32_t *sums;           /* [m][n]; NULL: not wanted */
    void *y;                 /* [m][n]; NULL: not wanted */
    gs_dtype dtype;          /* of y */
    const float *scale;      /* [n] */
    const void *bias;        /* [n]; NULL: none */
    gs_dtype bias_dtype;
} gs_gemm_int8;

GS_API gs_status gs_gemm_int8_run(gs_context *ctx, const gs_gemm_int8 *gemm);

#ifdef __cplusplus
}
#endif

#endif
