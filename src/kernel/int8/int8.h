/* Products of INT8 behind gs_gemm_int8_run: exact sums, so any order of additions gives the same.
 *
 *     ref.c          the definition in plain loops
 *     int8.c         checks, cuts the sums into tiles, shares them out among the threads
 *     pack.c         packs rows of a, panels of b
 *     portable.c, avx2.c, avx512.c, avx512vnni.c, neon.c
 *                    one gsi_int8_isa each; tmpl.h is the template of the last four
 *
 * A word is what an instruction multiplies at once, 4 bytes of either kind:
 *
 *     depth 2   two k as int16: PMADDWD and SMULL, which are exact. (PMADDUBSW saturates.)
 *     depth 4   four k as bytes, those of a plus 128: VPDPBUSD multiplies bytes without a sign by
 *               bytes with one. The sum begins at -128 times that of the column of b instead of 0.
 *
 * Sums wrap modulo 2^32 on the way; the result is in range, so it is exact. */
#ifndef GSI_KERNEL_INT8_H
#define GSI_KERNEL_INT8_H

#include "kernel/kernel.h"

/* sums[i * stride + j] += the sum over words of a[i * a_stride + w] b[w * nr + j], for i < m, which
 * is at most mr, and j < nr. */
typedef void gsi_int8_micro_fn(int32_t *sums, size_t stride, const uint32_t *a, size_t a_stride,
                               const uint32_t *b, size_t m, size_t words);

typedef struct gsi_int8_isa {
    unsigned cpu;  /* gs_cpu flag, 0: none */
    size_t mr, nr; /* of a micro-tile */
    size_t depth;  /* k of a word */
    gsi_int8_micro_fn *micro;
} gsi_int8_isa;

/* Rows [i, i + m) of a, `words` words each; row[k] is room for one of im2col. */
void gsi_int8_pack_a(const gsi_int8_isa *isa, uint32_t *dst, const gs_gemm_int8 *g, size_t i,
                     size_t m, size_t words, int8_t *row);
/* Columns [j, j + nr) of b^T, zeros beyond n, [words][nr]; start[nr]: where their sums begin. */
void gsi_int8_pack_b(const gsi_int8_isa *isa, uint32_t *dst, int32_t *start, const gs_gemm_int8 *g,
                     size_t j, size_t words);

/* The definition: sums[m][n]. */
void gsi_int8_ref(int32_t *sums, const gs_gemm_int8 *g);

#endif
