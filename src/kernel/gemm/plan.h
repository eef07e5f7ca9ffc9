/* A tile while it is made: what tile.c, prefetch.h and skinny.c share. */
#ifndef GSI_KERNEL_GEMM_PLAN_H
#define GSI_KERNEL_GEMM_PLAN_H

#include "kernel/gemm/gemm.h"

/* How a tile is cut, and the workspace that takes. */
typedef struct gsi_plan {
    size_t panels, height; /* micro-panels of a, and their rows: MR or less */
    bool in_place;         /* a is multiplied where it lies */
    size_t group;          /* panels of a packed at a time */
    size_t kc_blocks;      /* blocks of k packed at a time: a chunk */
    size_t mc_panels;      /* panels of a packed at a time: what stays in L2 is these by a chunk */
    size_t strips;         /* of NR columns whose sums are kept: all, if one is come back to */
    size_t l2_shift;       /* 16 >> l2_shift lines of b are prefetched to L2 every 16 k */
    size_t b_parts;        /* of so many lines in a panel of b in memory */
    size_t a, b, sums, bias; /* words */
    size_t a_least, b_least; /* of pairs: one per panel */
} gsi_plan;

/* A tile, where its data are, and its workspace. */
typedef struct gsi_job {
    const gsi_gemm_isa *isa;
    const gs_gemm *g;
    gsi_tile t;
    gsi_plan p;
    const void *a_data, *b_data; /* of the matrix of the batch */
    float *a, *b, *sums, *bias;  /* packed; [strips][panels][MR][NR]; as f32 */
    float *last_sums;            /* those of the last block, [MR][NR]: they stay in L1 */
    uint32_t *a_least, *b_least; /* of pairs, as a and b are packed */
    gsi_pair_counts *pairs;
    gsi_epilogue epilogue;
} gsi_job;

/* Where the loops of tile.c are: the chunk of k from block `chunk`, the panels of a from `mc`, the
 * panel of b of block number `block` and the columns from j. */
typedef struct gsi_position {
    size_t chunk, mc, block, j;
} gsi_position;

/* Whether b is multiplied as it lies in memory, see skinny.c. */
static inline bool gsi_is_skinny(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m)
{
    const size_t most = g->b.transposed || isa->skinny_mr == 0 ? isa->skinny_mr : GSI_SKINNY_ROWS;
    return m <= most && g->k > 0 && !g->b.im2col && !g->b.group;
}

/* mc_panels of a times a panel of b. */
void gsi_macro_kernel(const gsi_job *r, gsi_position at);

/* A skinny product whose b is stored [n][k], and [k][n]; the latter has NR columns at least. */
void gsi_skinny_nt(const gsi_job *r);
void gsi_skinny_nn(const gsi_job *r);

#endif
