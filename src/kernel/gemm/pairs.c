/* Packing for a unit that multiplies pairs of bf16: see gemm.h for what it takes and when. */
#include "kernel/gemm/gemm.h"

/* Rows of the stored matrix at a time, as in pack.c; an even number. */
enum { ABREAST = 16 };

static gsi_least nothing_yet(void)
{
    gsi_least x;
    memset(&x, 0xFF, sizeof x);
    return x;
}

static uint32_t fold(const gsi_least *x)
{
    uint16_t least = UINT16_MAX;
    for (size_t i = 0; i < GSI_PAIRS_LINE; i++)
        least = x->lanes[i] < least ? x->lanes[i] : least;
    return least;
}

static void pack_columns(const gsi_gemm_isa *isa, uint32_t *dst, const gs_matrix *x,
                         const uint16_t *src, size_t m, size_t height, size_t k, gsi_least *least)
{
    for (size_t r = 0; r < k; r += ABREAST)
        for (size_t c = 0, p = 0; c < m; c += height, p++)
            isa->pairs->columns(dst + p * gsi_a_size(isa, true) + r / 2 * isa->a_ld, isa->a_ld,
                                src + r * x->stride + c, x->stride, gsi_min_size(k - r, ABREAST),
                                gsi_min_size(m - c, height), &least[p]);
}

void gsi_pack_a_pairs(const gsi_gemm_isa *isa, uint32_t *dst, const gs_matrix *x, const void *data,
                      size_t i, size_t m, size_t height, size_t k0, size_t k, uint32_t *least)
{
    const uint16_t *const src = data;
    const size_t panels = x->transposed ? gsi_ceil_div(m, height) : 1;
    gsi_least found[GSI_GROUP];
    for (size_t p = 0; p < panels; p++)
        found[p] = nothing_yet();
    if (x->im2col) {
        const size_t line = GSI_PAIRS_LINE, lines = isa->mr * line;
        gsi_pack_im2col(isa, dst, line, lines, x, data, i, m, k0, k);
        isa->pairs->rows(dst, (const uint16_t *)dst, line, lines, m, k, found);
    } else if (x->transposed) {
        pack_columns(isa, dst, x, src + k0 * x->stride + i, m, height, k, found);
    } else {
        isa->pairs->rows(dst, src + i * x->stride + k0, x->stride, GSI_PAIRS_LINE, m, k, found);
    }
    for (size_t p = 0; p < panels; p++)
        least[p] = fold(&found[p]);
}

/* Rows [r, r + rows) of n columns from j, which come in groups. */
static void gather_groups(const gsi_gemm_isa *isa, uint16_t *dst, const gs_matrix *x,
                          const uint16_t *src, size_t j, size_t n, size_t r, size_t rows)
{
    const void *at[ABREAST];
    for (size_t i = 0; i < rows; i++)
        at[i] = src + (r + i) / x->group * x->group_stride + (r + i) % x->group * x->stride + j;
    isa->gather(dst, GSI_PAIRS_LINE, at, 0, GS_BF16, rows, n);
}

/* What is not rows of a matrix becomes some first. */
static void pack_gathered(const gsi_gemm_isa *isa, uint32_t *dst, const gs_matrix *x,
                          const void *data, size_t j, size_t n, size_t k0, size_t k,
                          gsi_least *least)
{
    uint16_t rows[ABREAST * GSI_PAIRS_LINE];
    for (size_t r = 0; r < k; r += ABREAST) {
        const size_t take = gsi_min_size(k - r, ABREAST);
        if (x->im2col)
            gsi_pack_im2col(isa, rows, GSI_PAIRS_LINE, 0, x, data, k0 + r, take, j, n);
        else
            gather_groups(isa, rows, x, data, j, n, k0 + r, take);
        isa->pairs->columns(dst + r / 2 * isa->nr, isa->nr, rows, GSI_PAIRS_LINE, take, n, least);
    }
}

void gsi_pack_b_pairs(const gsi_gemm_isa *isa, uint32_t *dst, const gs_matrix *x, const void *data,
                      size_t j, size_t n, size_t k0, size_t k, uint32_t *least)
{
    const uint16_t *const src = data;
    gsi_least found = nothing_yet();
    if (x->im2col || x->group)
        pack_gathered(isa, dst, x, data, j, n, k0, k, &found);
    else if (x->transposed)
        isa->pairs->transpose(dst, src + j * x->stride + k0, x->stride, n, k, &found);
    else
        isa->pairs->columns(dst, isa->nr, src + k0 * x->stride + j, x->stride, k, n, &found);
    *least = fold(&found);
}
