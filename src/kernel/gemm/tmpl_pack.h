/* Packing: a part of tmpl.h. */
#ifndef GSI_KERNEL_GEMM_TMPL_PACK_H
#define GSI_KERNEL_GEMM_TMPL_PACK_H

#include "kernel/gemm/tmpl_copy.h"

/* n is a constant where it is GSI_LINE. */
INLINE void gather_any(float *dst, size_t dst_stride, const void *const *src, size_t at,
                       gs_dtype type, size_t rows, const size_t n)
{
    for (size_t r = 0; r < rows; r++, dst += dst_stride)
        for (size_t c = 0; c < n; c += WIDTH)
            store(dst + c, GS_F32, src[r] ? (vi)load(src[r], at + c, type, n - c) : (vi){0}, n - c);
}

INLINE void gather_type(float *dst, size_t dst_stride, const void *const *src, size_t at,
                        gs_dtype type, size_t rows, size_t n)
{
    if (n == GSI_LINE)
        gather_any(dst, dst_stride, src, at, type, rows, GSI_LINE);
    else
        gather_any(dst, dst_stride, src, at, type, rows, n);
}

static TARGET void gather(void *dst, size_t dst_stride, const void *const *src, size_t at,
                          gs_dtype type, size_t rows, size_t n)
{
    if (type == GS_F32)
        gather_type(dst, dst_stride, src, at, GS_F32, rows, n);
    else if (type == GS_F16)
        gather_type(dst, dst_stride, src, at, GS_F16, rows, n);
    else
        gather_type(dst, dst_stride, src, at, GS_BF16, rows, n);
}

INLINE size_t columns_at_once(gs_dtype type) { return type == GS_F32 ? WIDTH : HALF_COLUMNS; }

/* WIDTH rows. */
INLINE void transpose_block(transposed_block *t, const void *src, size_t stride, gs_dtype type)
{
    transpose_part(t, src, stride, type, 0);
    transpose_part(t, gsi_at(src, type, WIDTH / 2 * stride), stride, type, 1);
}

/* The same for `rows` and `cols` of WIDTH of each, at most; transposed as f32. */
INLINE void transpose_edge(transposed_block *t, const void *src, size_t stride, gs_dtype type,
                           size_t rows, size_t cols)
{
    float block[WIDTH * WIDTH];
    for (size_t i = 0; i < WIDTH; i++)
        store_whole(block + i * WIDTH, load(src, i * stride, type, i < rows ? cols : 0));
    transpose_block(t, block, WIDTH, GS_F32);
}

INLINE void transpose_any(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                          gs_dtype type, size_t rows, size_t cols)
{
    transposed_block t;
    for (size_t r = 0; r < dst_stride; r += WIDTH) {
        size_t c = 0;
        for (; r + WIDTH <= rows && c + columns_at_once(type) <= cols; c += columns_at_once(type)) {
            transpose_block(&t, gsi_at(src, type, r * src_stride + c), src_stride, type);
            UNROLL for (size_t k = 0; k < columns_at_once(type); k++)
                store_whole(dst + (c + k) * dst_stride + r, transposed_column(&t, k, type));
        }
        for (; c < cols; c += WIDTH) {
            transpose_edge(&t, gsi_at(src, type, r * src_stride + c), src_stride, type,
                           r < rows ? rows - r : 0, cols - c);
            UNROLL for (size_t k = 0; k < WIDTH; k++) if (c + k < cols)
                store_whole(dst + (c + k) * dst_stride + r, transposed_column(&t, k, GS_F32));
        }
    }
}

static TARGET void transpose(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                             gs_dtype type, size_t rows, size_t cols)
{
    if (type == GS_F32)
        transpose_any(dst, dst_stride, src, src_stride, GS_F32, rows, cols);
    else if (type == GS_F16)
        transpose_any(dst, dst_stride, src, src_stride, GS_F16, rows, cols);
    else
        transpose_any(dst, dst_stride, src, src_stride, GS_BF16, rows, cols);
}

#endif
