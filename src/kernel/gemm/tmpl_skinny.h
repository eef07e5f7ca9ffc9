/* Skinny products: a part of tmpl.h. */
#ifndef GSI_KERNEL_GEMM_TMPL_SKINNY_H
#define GSI_KERNEL_GEMM_TMPL_SKINNY_H

#include "kernel/gemm/tmpl_micro.h"
#include "kernel/gemm/tmpl_pack.h"

_Static_assert(SKINNY_MR <= MR, "sums have room");

/* m, type, p, part and wide are constants where these are inlined. */

/* Column p of a half-panel that is transposed, times a[i * KC]; part: of the panel. */
INLINE void add_column(vf (*s)[VECS], const float *a, const transposed_block *t, const size_t p,
                       const gs_dtype type, const size_t m, const size_t part)
{
    UNROLL for (size_t v = 0; v < VECS / 2; v++)
    {
        const size_t to = part * (VECS / 2) + v;
        const vf y = transposed_column(&t[v], p, type);
        UNROLL for (size_t i = 0; i < m; i++) s[i][to] = mul_add(splat(a[i * GSI_KC]), y, s[i][to]);
    }
}

/* b is stored [n][k]. Columns are transposed in two parts while those before them are multiplied:
 * the core looks ahead no further than to some 100 sums that wait for those before them. A
 * half-panel at a time, because the hardware prefetcher follows 16 rows better than 32, and of rows
 * some pages apart L1 keeps 8.
 *
 * wide: a panel, of which the first half-panel is transposed beforehand. Both share what is read of
 * a, and short vectors need that many sums to keep up with memory. b is prefetched a block ahead,
 * to L2. */
INLINE void skinny_nt(const gsi_skinny *x, const gs_dtype type, const size_t m, const size_t wide)
{
    enum { PART_VECS = VECS / 2, AHEAD = 512 }; /* bytes: to L1, and soon enough */
    const size_t size = gsi_size_of(type), row = x->b_stride * size, rows = (1 + wide) * NR / 2;
    const size_t step = columns_at_once(type), part_step = step / 2,
                 vecs = PART_VECS + wide * PART_VECS;
    const char *const b =
        (const char *)x->b + wide * NR / 2 * row; /* what is transposed on the way */
    transposed_block first[GSI_KC / HALF_COLUMNS][PART_VECS], both[2][PART_VECS], *t = both[0],
                                                                                  *next = both[1];
    vf s[SKINNY_MR][VECS];
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < vecs; v++) s[i][v] =
        splat(0);
    size_t k = 0;
    for (; wide && k + step <= x->k; k += step)
        UNROLL for (size_t v = 0; v < PART_VECS; v++)
            transpose_block(&first[k / step][v], gsi_at(x->b, type, v * WIDTH * x->b_stride + k),
                            x->b_stride, type);
    UNROLL for (size_t v = 0; v < PART_VECS; v++) if (step <= x->k)
        transpose_block(&t[v], b + v * WIDTH * row, x->b_stride, type);
    for (k = 0; k + step <= x->k; k += step) {
        const size_t ahead = k * size + (wide ? GSI_KC * size : AHEAD);
        const char *const soon = /* behind the rows' end, those below them */
            (const char *)x->b + ahead + (ahead < x->left * size ? 0 : (rows - 1) * row);
        UNROLL for (size_t part = 0; part < 2; part++)
        {
            if (k + 2 * step <= x->k)
                UNROLL for (size_t v = 0; v < PART_VECS; v++) transpose_part(
                    &next[v], b + (k + step) * size + (2 * v + part) * (WIDTH / 2) * row,
                    x->b_stride, type, part);
            UNROLL for (size_t p = part * part_step; p < (part + 1) * part_step; p++)
            {
                if (wide)
                    add_column(s, x->a + k + p, first[k / step], p, type, m, 0);
                add_column(s, x->a + k + p, t, p, type, m, wide);
                UNROLL for (size_t r = p * rows / step; r < (p + 1) * rows / step; r++)
                {
                    if (wide)
                        __builtin_prefetch(soon + r * row, 0, 2);
                    else
                        __builtin_prefetch(soon + r * row, 0, 3);
                }
            }
        }
        transposed_block *const done = t;
        t = next;
        next = done;
    }
    for (; k < x->k; k += WIDTH)
        UNROLL for (size_t part = 0; part <= wide; part++)
        {
            UNROLL for (size_t v = 0; v < PART_VECS; v++) transpose_edge(
                &t[v], gsi_at(x->b, type, (part * NR / 2 + v * WIDTH) * x->b_stride + k),
                x->b_stride, type, WIDTH, x->k - k);
            UNROLL for (size_t p = 0; p < WIDTH; p++) if (k + p < x->k)
                add_column(s, x->a + k + p, t, p, GS_F32, m, part);
        }
    add_sums(x->sums, x->before, s, m, vecs);
}

/* b is stored [k][n]: `panels` panels of rows of b, and all their sums, from column j. A single
 * panel of one row has VECS sums that wait for those before them: two panels keep up with memory.
 * What is read from one end to the other is prefetched 4 KB ahead: on Zen 5 a token of GPT-2 124M
 * took 6.4 ms beside busy neighbours and takes 6.0. */
INLINE void skinny_nn_panels(const gsi_skinny *x, size_t j, const gs_dtype type, const size_t m,
                             const size_t panels)
{
    const size_t row = x->b_stride * gsi_size_of(type);
    const bool apart = x->b_stride > panels * NR;
    const size_t ahead = apart ? x->k * row : 4096; /* apart: the rows after these */
    const char *b = (const char *)x->b + j * gsi_size_of(type);
    const float *const so_far = x->so_far ? x->so_far + j * MR : NULL;
    vf s[2][SKINNY_MR][VECS];
    UNROLL for (size_t c = 0; c < panels; c++) UNROLL for (size_t i = 0; i < m; i++)
        UNROLL for (size_t v = 0; v < VECS; v++) s[c][i][v] =
            so_far ? load_whole(so_far + c * MR * NR + i * NR + v * WIDTH) : splat(0);
#pragma GCC unroll 4
    for (size_t p = 0; p < x->k; p++, b += row) {
        vf y[2][VECS];
        UNROLL for (size_t c = 0; c < panels; c++) UNROLL for (size_t v = 0; v < VECS; v++)
            y[c][v] = load(b, c * NR + v * WIDTH, type, WIDTH);
        UNROLL for (size_t at = 0; at < panels * NR * gsi_size_of(type); at += GSI_ALIGN)
        {
            if (apart)
                __builtin_prefetch(b + ahead + at, 0, 2);
            else
                __builtin_prefetch(b + ahead + at, 0, 3);
        }
        UNROLL for (size_t i = 0; i < m; i++)
        {
            const vf a = splat(x->a[i * GSI_KC + p]);
            UNROLL for (size_t c = 0; c < panels; c++) UNROLL for (size_t v = 0; v < VECS; v++)
                s[c][i][v] = mul_add(a, y[c][v], s[c][i][v]);
        }
    }
    UNROLL for (size_t c = 0; c < panels; c++)
    {
        const size_t at = (j + c * NR) * MR;
        add_sums(x->sums + at, x->before ? x->before + at : NULL, s[c], m, VECS);
    }
}

INLINE void skinny_nn(const gsi_skinny *x, const gs_dtype type, const size_t m)
{
    size_t j = 0;
    for (; m == 1 && j + 2 * NR <= x->n; j += 2 * NR)
        skinny_nn_panels(x, j, type, m, 2);
    for (; j < x->n; j += NR)
        skinny_nn_panels(x, j, type, m, 1);
}

INLINE void skinny(const gsi_skinny *x, const gs_dtype type, const bool transposed, const size_t m)
{
    if (!transposed)
        skinny_nn(x, type, m);
    else if (SKINNY_WIDE && type != GS_F32 && x->n == NR)
        skinny_nt(x, type, m, 1);
    else
        skinny_nt(x, type, m, 0);
}

/* Rows beyond m are multiplied, too, up to 1, 2, 4 or 8: they lie in a's panel, whatever is there,
 * and their sums in the strip's, where nobody else reads them. */
INLINE void skinny_m(const gsi_skinny *x, const gs_dtype type, const bool transposed)
{
    if (x->m == 1)
        skinny(x, type, transposed, 1);
    else if (x->m == 2)
        skinny(x, type, transposed, 2);
#if SKINNY_MR > 4
    else if (x->m > 4)
        skinny(x, type, transposed, SKINNY_MR);
#endif
    else
        skinny(x, type, transposed, 4);
}

static TARGET void skinny_micro(const gsi_skinny *x, gs_dtype type, bool transposed)
{
    if (type == GS_F32)
        transposed ? skinny_m(x, GS_F32, true) : skinny_m(x, GS_F32, false);
    else if (type == GS_F16)
        transposed ? skinny_m(x, GS_F16, true) : skinny_m(x, GS_F16, false);
    else
        transposed ? skinny_m(x, GS_BF16, true) : skinny_m(x, GS_BF16, false);
}

#endif
