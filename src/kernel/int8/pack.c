/* Packing: words of 2 or 4 k. Elements lie in memory in the order of k, so that a word is the same
 * on machines of either byte order. */
#include "kernel/int8/int8.h"

/* Row i of im2col: for each row of the filter a run of memory, with zeros where it leaves the
 * image. */
static void gather(int8_t *dst, const gs_gemm_int8 *g, size_t i)
{
    const gs_im2col *p = g->im2col;
    const size_t image = i / (p->rows_h * p->rows_w), line = p->kw * p->c;
    const size_t y = i / p->rows_w % p->rows_h * p->stride, x = i % p->rows_w * p->stride;
    const size_t before = x < p->pad ? gsi_min_size(p->pad - x, p->kw) : 0;
    const size_t first = x + before - p->pad; /* used if before < kw */
    const size_t inside =
        before < p->kw && first < p->w ? gsi_min_size(p->kw - before, p->w - first) : 0;
    for (size_t ky = 0; ky < p->kh; ky++, dst += line) {
        const size_t row = y + ky;
        if (row < p->pad || row - p->pad >= p->h || inside == 0) {
            memset(dst, 0, line);
            continue;
        }
        const int8_t *from = g->a + ((image * p->h + row - p->pad) * p->w + first) * p->c;
        memset(dst, 0, before * p->c);
        memcpy(dst + before * p->c, from, inside * p->c);
        memset(dst + (before + inside) * p->c, 0, (p->kw - before - inside) * p->c);
    }
}

void gsi_int8_pack_a(const gsi_int8_isa *isa, uint32_t *dst, const gs_gemm_int8 *g, size_t i,
                     size_t m, size_t words, int8_t *row)
{
    for (size_t r = 0; r < m; r++, dst += words) {
        const int8_t *from = row;
        if (g->im2col)
            gather(row, g, i + r);
        else
            from = g->a + (i + r) * g->k;
        if (words > 0)
            dst[words - 1] = 0;
        if (isa->depth == 4) {
            uint8_t *to = (uint8_t *)dst;
            for (size_t k = 0; k < g->k; k++)
                to[k] = (uint8_t)(from[k] ^ 0x80);
        } else {
            int16_t *to = (int16_t *)dst;
            for (size_t k = 0; k < g->k; k++)
                to[k] = from[k];
        }
    }
}

void gsi_int8_pack_b(const gsi_int8_isa *isa, uint32_t *dst, int32_t *start, const gs_gemm_int8 *g,
                     size_t j, size_t words)
{
    const size_t depth = isa->depth, nr = isa->nr, n = gsi_min_size(nr, g->n - j);
    memset(start, 0, nr * sizeof *start);
    if (n < nr)
        memset(dst, 0, words * nr * sizeof *dst);
    for (size_t c = 0; c < n; c++) {
        const int8_t *from = g->b + (j + c) * g->k;
        int32_t sum = 0; /* of less than 2^17 bytes */
        for (size_t w = 0; w < words; w++) {
            const size_t k = gsi_min_size(depth, g->k - w * depth);
            int8_t bytes[4] = {0};
            memcpy(bytes, from + w * depth, k);
            if (depth == 4) {
                memcpy(&dst[w * nr + c], bytes, 4);
            } else {
                const int16_t pair[] = {bytes[0], bytes[1]};
                memcpy(&dst[w * nr + c], pair, 4);
            }
            for (size_t t = 0; t < k; t++)
                sum += bytes[t];
        }
        if (depth == 4)
            start[c] = -128 * sum;
    }
}
