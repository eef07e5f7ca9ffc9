/* The micro-kernel: a part of tmpl.h. */
#ifndef GSI_KERNEL_GEMM_TMPL_MICRO_H
#define GSI_KERNEL_GEMM_TMPL_MICRO_H

#include "kernel/gemm/tmpl_tile.h"

typedef enum layout { ROWS, COLUMNS } layout;

INLINE void add_sums(float *sums, const float *before, vf (*s)[VECS], const size_t m,
                     const size_t vecs)
{
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < vecs; v++)
    {
        const size_t at = i * NR + v * WIDTH;
        store_whole(sums + at, before ? load_whole(before + at) + s[i][v] : s[i][v]);
    }
}

#ifndef OWN_ADD_ROW
INLINE void add_row(vf *s, const float *x, const vf *y, const size_t vecs, const size_t row)
{
    (void)row;
    UNROLL for (size_t v = 0; v < vecs; v++) s[v] = mul_add(splat(*x), y[v], s[v]);
}
#endif

/* One word of each row. l, m and vecs, the vectors per row, are constants where these are inlined.
 */
INLINE void add_k(vf (*s)[VECS], const float *a, layout l, const float *b, const size_t m,
                  const size_t vecs)
{
    vf y[VECS];
    UNROLL for (size_t v = 0; v < vecs; v++) y[v] = load_whole(b + v * WIDTH);
    UNROLL for (size_t i = 0; i < m; i++)
        add_row(s[i], a + (l == ROWS ? i * GSI_LINE : i), y, vecs, i);
}

/* a comes from L2, prefetched two lines of rows or 8 columns before it is used, if at all: a core
 * looks ahead no further than to some 100 fma. Prefetches are spread over them, and there are no
 * more than is of use: where another thread shares the core, every instruction counts. */
INLINE void micro(float *sums, const float *before, const float *a, size_t a_step, layout l,
                  const float *b, const size_t m, const size_t vecs, size_t words,
                  const gsi_prefetch *prefetch)
{
    const size_t step = (l == ROWS ? GSI_LINE : a_step) * sizeof *a; /* to the next line of a */
    const size_t to_l1 = prefetch[0].stride, to_l2 = prefetch[1].stride, lines = prefetch[1].lines;
    uintptr_t line1 = prefetch[0].base, line2 = prefetch[1].base;
    vf s[MR][VECS];
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < vecs; v++) s[i][v] =
        splat(0);
    for (; words >= GSI_LINE; words -= GSI_LINE) {
        uintptr_t at1 = line1, at2 = line2;
        uintptr_t soon = (uintptr_t)a + (l == ROWS ? 2 * MR : 8) * step;
        for (const float *end = b + GSI_LINE * NR; b < end; b += STEP * NR) {
            UNROLL for (size_t i = 0; i < 4; i += GSI_LINE / STEP, at2 += to_l2)
                __builtin_prefetch((const void *)at2, 0, 2);
            for (size_t i = 4; i < lines; i += GSI_LINE / STEP, at2 += to_l2)
                __builtin_prefetch((const void *)at2, 0, 2);
            UNROLL for (size_t p = 0; p < STEP; p++)
            {
                add_k(s, a, l, b + p * NR, m, vecs);
                a += l == ROWS ? 1 : a_step;
                if (PREFETCH_A)
                    __builtin_prefetch((const void *)soon, 0, 3);
                soon += step;
                if (p < L1_LINES * STEP / GSI_LINE) {
                    __builtin_prefetch((const void *)at1, 0, 3);
                    at1 += to_l1;
                }
            }
        }
        if (l == ROWS)
            a += (MR - 1) * GSI_LINE;
        line1 += prefetch[0].advance;
        line2 += prefetch[1].advance;
    }
    for (; words > 0; words--, b += NR, a += l == ROWS ? 1 : a_step)
        add_k(s, a, l, b, m, vecs);
    add_sums(sums, before, s, m, vecs);
}

INLINE void micro_m(float *sums, const float *before, const float *a, size_t a_step, layout l,
                    const float *b, size_t m, const size_t vecs, size_t k,
                    const gsi_prefetch *prefetch)
{
    k = (k + DEPTH - 1) / DEPTH;
    switch (m) {
    case 1:
        micro(sums, before, a, a_step, l, b, 1, vecs, k, prefetch);
        break;
    case 2:
        micro(sums, before, a, a_step, l, b, 2, vecs, k, prefetch);
        break;
    case 3:
        micro(sums, before, a, a_step, l, b, 3, vecs, k, prefetch);
        break;
    case 4:
        micro(sums, before, a, a_step, l, b, 4, vecs, k, prefetch);
        break;
    case 5:
        micro(sums, before, a, a_step, l, b, 5, vecs, k, prefetch);
        break;
#if MR > 6
    case 6:
        micro(sums, before, a, a_step, l, b, 6, vecs, k, prefetch);
        break;
    case 7:
        micro(sums, before, a, a_step, l, b, 7, vecs, k, prefetch);
        break;
    case 8:
        micro(sums, before, a, a_step, l, b, 8, vecs, k, prefetch);
        break;
    case 9:
        micro(sums, before, a, a_step, l, b, 9, vecs, k, prefetch);
        break;
    case 10:
        micro(sums, before, a, a_step, l, b, 10, vecs, k, prefetch);
        break;
    case 11:
        micro(sums, before, a, a_step, l, b, 11, vecs, k, prefetch);
        break;
    case 12:
        micro(sums, before, a, a_step, l, b, 12, vecs, k, prefetch);
        break;
    case 13:
        micro(sums, before, a, a_step, l, b, 13, vecs, k, prefetch);
        break;
#endif
    default:
        micro(sums, before, a, a_step, l, b, MR, vecs, k, prefetch);
    }
}

static TARGET void micro_rows(float *sums, const float *before, const float *a, size_t a_step,
                              const float *b, size_t m, size_t n, size_t k,
                              const gsi_prefetch *prefetch)
{
    if (n > NR / 2)
        micro_m(sums, before, a, a_step, ROWS, b, m, VECS, k, prefetch);
    else
        micro_m(sums, before, a, a_step, ROWS, b, m, VECS / 2, k, prefetch);
}

static TARGET void micro_columns(float *sums, const float *before, const float *a, size_t a_step,
                                 const float *b, size_t m, size_t n, size_t k,
                                 const gsi_prefetch *prefetch)
{
    if (!IN_PLACE)
        a_step = A_LD;
    if (n > NR / 2)
        micro_m(sums, before, a, a_step, COLUMNS, b, m, VECS, k, prefetch);
    else
        micro_m(sums, before, a, a_step, COLUMNS, b, m, VECS / 2, k, prefetch);
}

#endif
