/* A tile while it is made: what gemm_tile.c and gemm_few.c share. */
#ifndef GSI_KERNEL_GEMM_RUN_H
#define GSI_KERNEL_GEMM_RUN_H

#include "kernel/gemm.h"

/* How a tile is cut, and the room that takes. */
typedef struct gsi_plan {
    size_t panels, height;   /* of a's rows: mr of them or less */
    bool in_place;           /* a is multiplied where it lies */
    size_t group;            /* panels of a packed at a time */
    size_t chunk, slab;      /* blocks and panels packed at a time */
    size_t strips;           /* of columns whose sums are kept: all, if one is come back to */
    size_t bits;             /* 16 >> bits lines of b are asked for every 16 k */
    size_t parts;            /* of a panel of b in memory, of so many lines */
    size_t a, b, sums, bias; /* floats */
} gsi_plan;

/* A tile, where its data are, and its scratch. */
typedef struct gsi_run {
    const gsi_gemm_isa *isa;
    const gs_gemm *g;
    gsi_tile t;
    gsi_plan p;
    const void *a_data, *b_data; /* of the matrix of the batch */
    float *a, *b, *sums, *bias;  /* packed; [strips][panels][mr][nr]; as f32 */
    float *ends;                 /* sums that are finished at once, [mr][nr]: they stay in L1 */
    gsi_finish finish;
} gsi_run;

/* A panel of b: columns from j, block number `block`, which is in the chunk from block `first`; for
 * the slab from panel `slab`. */
typedef struct gsi_place {
    size_t first, slab, block, j;
} gsi_place;

/* Whether b is multiplied as it lies in memory, see gemm_few.c. */
static inline bool gsi_is_few(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m)
{
    const size_t most = g->b.transposed || isa->few == 0 ? isa->few : GSI_FEW_ROWS;
    return m <= most && g->k > 0 && !g->b.patches && !g->b.group;
}

/* A slab of rows times a panel of b. */
void gsi_run_panel(const gsi_run *r, gsi_place at);

/* Few rows times a b that is stored column by column, row by row; the latter has nr columns at
 * least. */
void gsi_run_columns(const gsi_run *r);
void gsi_run_rows(const gsi_run *r);

#endif
