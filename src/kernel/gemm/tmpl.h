/* A gsi_gemm_isa for one instruction set: a template. The including source has defined
 *
 *     #define WIDTH, TARGET                     and included kernel/simd/vec.h, see there
 *     #define UNROLL                            before a loop of a constant number of turns
 *     #define MR, NR                            a micro-tile: MR * NR / WIDTH sums in registers
 *     #define A_LD                              MR or more: from column to column of a panel of a
 *     #define DEPTH                             k per word: 1
 *     #define SKINNY_MR                         rows multiplied straight from b's memory
 *     #define SKINNY_WIDE                       1: transposed half types, NR columns at a time
 *     #define STEP                              words in a turn of the loop: 4 or 8
 *     #define PREFETCH_A                        1: a's panels are prefetched on their way from L2
 *
 *     vf mul_add(vf x, vf y, vf s)              x y + s
 *     void add_row(vf *s, x, const vf *y, vecs, row)
 *                                               s[v] += *x y[v], in this row of a micro-tile; vecs
 *                                               and row are constants; if OWN_ADD_ROW is defined
 *     bool reaches(vi x, int32_t limit), vi max_i32(vi a, vi b)
 *                                               see tally.h
 *     vf load(src, i, type, n)                  n elements from element i, as f32, then zeros
 *     void store(dst, type, u, n)               n elements, u their bits, no NaN but the canonical
 *
 *     #define HALF_COLUMNS                      columns of half types transposed at once; of f32,
 *                                               WIDTH
 *     void transpose_part(transposed_block *t, src, stride, type, part)
 *                                               WIDTH / 2 rows from src on, of so many columns, the
 *                                               first part (0) or, after it, the second (1)
 *     vf transposed_column(const transposed_block *t, k, type)
 *                                               column k of both as f32; k is a constant
 *
 *     #define CPU                               the flag of gs_cpu
 *     #define IN_PLACE, KC_BLOCKS               see gemm.h
 *     #define L2_PANELS                         panels of a by blocks of k that L2 keeps
 *     #define TILE_PANELS, TILE_STRIPS          of MR rows, of NR columns: a tile, at most
 *
 * n may be more than WIDTH, and then is taken as WIDTH. What is made of it is `isa`. (avx512bf16.c
 * includes the parts that it shares.) */
#ifndef GSI_KERNEL_GEMM_TMPL_H
#define GSI_KERNEL_GEMM_TMPL_H

#include "kernel/gemm/tmpl_skinny.h"
#include "kernel/gemm/tmpl_epilogue.h"
#include "kernel/gemm/tmpl_micro.h"
#include "kernel/gemm/tmpl_pack.h"

static const gsi_gemm_isa isa = {
    .cpu = CPU,
    .mr = MR,
    .nr = NR,
    .a_ld = A_LD,
    .tile_m = TILE_PANELS * MR,
    .tile_n = TILE_STRIPS * NR,
    .l2_budget = L2_PANELS * A_LD * GSI_KC,
    .kc_blocks = KC_BLOCKS,
    .in_place = IN_PLACE,
    .l1_lines = L1_LINES,
    .copy = copy,
    .gather = gather,
    .transpose = transpose,
    .micro_rows = micro_rows,
    .micro_columns = micro_columns,
    .skinny_micro = skinny_micro,
    .skinny_mr = SKINNY_MR,
    .skinny_nr = {NR / 2, (1 + SKINNY_WIDE) * NR / 2},
    .epilogue = epilogue,
};

#endif
