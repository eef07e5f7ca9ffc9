/* The definition of an INT8 product's sums, as plain loops. */
#include "kernel/int8/int8.h"

static int32_t element(const gs_gemm_int8 *g, size_t row, size_t column)
{
    const gs_im2col *p = g->im2col;
    if (!p)
        return g->a[row * g->k + column];
    const size_t image = row / (p->rows_h * p->rows_w);
    const size_t y = row / p->rows_w % p->rows_h * p->stride + column / (p->kw * p->c);
    const size_t x = row % p->rows_w * p->stride + column / p->c % p->kw;
    if (y < p->pad || y - p->pad >= p->h || x < p->pad || x - p->pad >= p->w)
        return 0;
    return g->a[((image * p->h + y - p->pad) * p->w + x - p->pad) * p->c + column % p->c];
}

void gsi_int8_ref(int32_t *sums, const gs_gemm_int8 *g)
{
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++) {
            int32_t sum = 0;
            for (size_t k = 0; k < g->k; k++)
                sum += element(g, i, k) * g->b[j * g->k + k];
            sums[i * g->n + j] = sum;
        }
}
