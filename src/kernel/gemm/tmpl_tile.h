/* What all parts of tmpl.h share. */
#ifndef GSI_KERNEL_GEMM_TMPL_TILE_H
#define GSI_KERNEL_GEMM_TMPL_TILE_H

#include "kernel/gemm/gemm.h"
#include "kernel/simd/tally.h"

enum {
    VECS = NR / WIDTH,
    L1_LINES = (MR + 3) / 4 * 4 /* prefetched every 16 k */
};
_Static_assert(16 % L1_LINES == 0, "as many every 16 / L1_LINES rows, see prefetch_a");
_Static_assert(MR == 6 || MR == 14, "as many cases as micro_m has");
_Static_assert(MR *NR <= GSI_MICRO, "sums have room");

INLINE vf load_whole(const float *p) { return load(p, 0, GS_F32, WIDTH); }
INLINE void store_whole(float *p, vf x) { store(p, GS_F32, (vi)x, WIDTH); }

#endif
