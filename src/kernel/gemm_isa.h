/* The parts of a tile for one instruction set: a template. The including source has defined
 *
 *     #define WIDTH, TARGET                     and included kernel/vec.h, see there
 *     #define UNROLL                            before a loop of a constant number of turns
 *     #define MR, NR                            a micro-tile: MR * NR / WIDTH sums in registers
 *     #define MR_ROOM                           MR or more: from column to column of a panel of a
 *     #define FEW                               rows multiplied straight from b's memory
 *     #define FEW_WIDE                          1: of transposed halves, by panels (gemm_isa_few.h)
 *     #define STEP                              k in a turn of the loop: 4 or 8
 *     #define ASKS_A                            1: a's panels are asked for on their way from L2
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
 *     #define TURNED_HALVES                     columns of halves turned at once; of f32, WIDTH
 *     void turn_half(turned *t, src, stride, type, half)
 *                                               WIDTH / 2 rows from src on, of so many columns, the
 *                                               first half (0) or, after it, the second (1)
 *     vf turned_at(const turned *t, k, type)    column k of both as f32; k is a constant
 *
 *     #define CPU                               the flag of gs_cpu
 *     #define IN_PLACE                          see gemm.h
 *     #define SLAB                              panels of MR rows by blocks of k that L2 keeps
 *     #define TILE_PANELS, TILE_STRIPS          of MR rows, of NR columns: a tile, at most
 *     #define CHUNK                             see gemm.h
 *
 * n may be more than WIDTH, and then is taken as WIDTH. What is made of it is `isa`. */
#ifndef GSI_KERNEL_GEMM_ISA_H
#define GSI_KERNEL_GEMM_ISA_H

#include "kernel/gemm.h"
#include "kernel/tally.h"

enum {
    VECS = NR / WIDTH,
    ASKED = (MR + 3) / 4 * 4 /* lines to L1 every 16 k */
};
_Static_assert(16 % ASKED == 0, "as many every 16 / ASKED rows, see ask_a");
_Static_assert(MR == 6 || MR == 14, "as many cases as micro_m has");
_Static_assert(MR *NR <= GSI_MICRO && FEW <= MR, "sums have room");

INLINE vf load_whole(const float *p) { return load(p, 0, GS_F32, WIDTH); }
INLINE void store_whole(float *p, vf x) { store(p, GS_F32, (vi)x, WIDTH); }

#include "kernel/gemm_isa_few.h"
#include "kernel/gemm_isa_finish.h"
#include "kernel/gemm_isa_multiply.h"
#include "kernel/gemm_isa_pack.h"

static const gsi_gemm_isa isa = {
    .cpu = CPU,
    .mr = MR,
    .nr = NR,
    .mr_room = MR_ROOM,
    .m_tile = TILE_PANELS * MR,
    .n_tile = TILE_STRIPS * NR,
    .a_room = SLAB * MR_ROOM * GSI_KC,
    .chunk = CHUNK,
    .in_place = IN_PLACE,
    .asked = ASKED,
    .copy = copy,
    .collect = collect,
    .transpose = transpose,
    .multiply_rows = multiply_rows,
    .multiply_columns = multiply_columns,
    .multiply_few = multiply_few,
    .few = FEW,
    .few_width = {NR / 2, (1 + FEW_WIDE) * NR / 2},
    .finish = finish,
};

#endif
