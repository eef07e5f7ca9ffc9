/* Packing: micro-panels of f32, out of matrices of any type or of im2col. */
#include "kernel/gemm/gemm.h"

/* Rows of the stored matrix a few at a time, a group of panels wide: a panel's width of each is too
 * little for one walk through the pages. */
enum { ABREAST = 16 };

static void pack_columns(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                         size_t i, size_t m, size_t height, size_t k0, size_t k)
{
    for (size_t r = 0; r < k; r += ABREAST)
        for (size_t c = 0; c < m; c += height)
            isa->copy(dst + c / height * gsi_a_size(isa, true) + r * isa->a_ld, isa->a_ld,
                      gsi_at(data, x->dtype, (k0 + r) * x->stride + i + c), x->stride, x->dtype,
                      gsi_min_size(k - r, ABREAST), gsi_min_size(m - c, height), isa->a_ld);
}

/* A panel of rows, a line of each at a time. */
static void pack_rows(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                      size_t i, size_t m, size_t k0, size_t k)
{
    for (size_t c = 0; c < k; c += GSI_LINE)
        isa->copy(dst + c * isa->mr, GSI_LINE, gsi_at(data, x->dtype, i * x->stride + k0 + c),
                  x->stride, x->dtype, m, gsi_min_size(k - c, GSI_LINE), GSI_LINE);
}

void gsi_pack_a(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data, size_t i,
                size_t m, size_t height, size_t k0, size_t k, uint32_t *least)
{
    if (isa->pairs)
        gsi_pack_a_pairs(isa, (uint32_t *)dst, x, data, i, m, height, k0, k, least);
    else if (x->im2col)
        gsi_pack_im2col(isa, dst, GSI_LINE, isa->mr * GSI_LINE, x, data, i, m, k0, k);
    else if (x->transposed)
        pack_columns(isa, dst, x, data, i, m, height, k0, k);
    else
        pack_rows(isa, dst, x, data, i, m, k0, k);
}

void gsi_pack_skinny(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                     size_t i, size_t m, size_t k0, size_t k)
{
    const size_t at = x->transposed ? k0 * x->stride + i : i * x->stride + k0;
    if (x->im2col)
        gsi_pack_im2col(isa, dst, GSI_KC, GSI_LINE, x, data, i, m, k0, k);
    else if (x->transposed)
        isa->transpose(dst, GSI_KC, gsi_at(data, x->dtype, at), x->stride, x->dtype, k, m);
    else
        isa->copy(dst, GSI_KC, gsi_at(data, x->dtype, at), x->stride, x->dtype, m, k, k);
}

void gsi_pack_b(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data, size_t j,
                size_t n, size_t k0, size_t k, uint32_t *least)
{
    const size_t nr = isa->nr;
    gsi_copy_fn *copy = isa->copy;
    if (isa->pairs) {
        gsi_pack_b_pairs(isa, (uint32_t *)dst, x, data, j, n, k0, k, least);
    } else if (x->im2col) {
        gsi_pack_im2col(isa, dst, nr, GSI_LINE, x, data, k0, k, j, n);
        for (size_t r = 0; n < nr && r < k; r++) /* what is multiplied in vain should be quick */
            memset(dst + r * nr + n, 0, (nr - n) * sizeof *dst);
    } else if (x->transposed) {
        isa->transpose(dst, nr, gsi_at(data, x->dtype, j * x->stride + k0), x->stride, x->dtype, n,
                       k);
    } else if (x->group) {
        for (size_t r = k0, take; r < k0 + k; r += take, dst += take * nr) {
            const size_t in = r % x->group, at = r / x->group * x->group_stride + in * x->stride;
            take = gsi_min_size(x->group - in, k0 + k - r);
            copy(dst, nr, gsi_at(data, x->dtype, at + j), x->stride, x->dtype, take, n, nr);
        }
    } else {
        copy(dst, nr, gsi_at(data, x->dtype, k0 * x->stride + j), x->stride, x->dtype, k, n, nr);
    }
}
