/* Copying rows as f32: a part of tmpl.h. */
#ifndef GSI_KERNEL_GEMM_TMPL_COPY_H
#define GSI_KERNEL_GEMM_TMPL_COPY_H

#include "kernel/gemm/tmpl_tile.h"

/* pad is a constant: the masks of lanes leave the loop. */
INLINE void copy_narrow(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                        gs_dtype type, size_t rows, size_t cols, const size_t pad)
{
    for (size_t r = 0; r < rows; r++) {
        float *out = dst + r * dst_stride;
        const void *in = gsi_at(src, type, r * src_stride);
        UNROLL for (size_t c = 0; c < pad; c += WIDTH)
            store(out + c, GS_F32, (vi)load(in, c, type, c < cols ? cols - c : 0), pad - c);
    }
}

INLINE void copy_any(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                     gs_dtype type, size_t rows, size_t cols, size_t pad)
{
    if (pad == NR) {
        copy_narrow(dst, dst_stride, src, src_stride, type, rows, cols, NR);
        return;
    }
    if (pad == A_LD) {
        copy_narrow(dst, dst_stride, src, src_stride, type, rows, cols, A_LD);
        return;
    }
    for (size_t r = 0; r < rows; r++) {
        float *out = dst + r * dst_stride;
        const void *in = gsi_at(src, type, r * src_stride);
        size_t c = 0;
        for (; c + WIDTH <= cols; c += WIDTH)
            store_whole(out + c, load(in, c, type, WIDTH));
        for (; c < pad; c += WIDTH)
            (void)store(out + c, GS_F32, (vi)load(in, c, type, c < cols ? cols - c : 0), pad - c);
    }
}

static TARGET void copy(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                        gs_dtype type, size_t rows, size_t cols, size_t pad)
{
    if (type == GS_F32)
        copy_any(dst, dst_stride, src, src_stride, GS_F32, rows, cols, pad);
    else if (type == GS_F16)
        copy_any(dst, dst_stride, src, src_stride, GS_F16, rows, cols, pad);
    else
        copy_any(dst, dst_stride, src, src_stride, GS_BF16, rows, cols, pad);
}

#endif
