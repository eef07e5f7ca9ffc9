/* GEMM behind gs_gemm_run: who does what.
 *
 * The definition is in gradscale/kernel.h and, as plain loops, in gemm_ref.c. It leaves tiles,
 * instruction sets and threads free, and this is how they are chosen:
 *
 *     gemm_check.c  that the product can be made
 *     gemm.c        cuts c into tiles, or k, shares them out among the threads
 *     gemm_tile.c   one tile: a's rows in slabs for L2, b a panel at a time
 *     gemm_ask.h    what that asks of memory meanwhile
 *     gemm_few.c    one tile of few rows: b where it lies
 *     gemm_pack.c   packs both
 *     gemm_c.c, gemm_avx2.c, gemm_avx512.c, gemm_neon.c
 *                   what a tile is made of: copy, collect, transpose, multiply, finish
 *     gemm_isa*.h   the template of the last three
 *
 * Packing turns f16 and bf16 into f32 and gathers patches, so that multiply knows one type:
 *
 *     a panel of a   rows:    [k / 16][mr][16]  where k is contiguous in memory, or patches
 *                    columns: [k][mr_room]      where i is: no panel of a is ever transposed
 *     a panel of b   [k][nr]
 *
 * So a multiplication reads both from front to back, a line after the other. Columns of a may also
 * be read where they lie. */
#ifndef GSI_KERNEL_GEMM_H
#define GSI_KERNEL_GEMM_H

#include "kernel/context.h"

enum {
    GSI_KC = GS_GEMM_BLOCK,
    GSI_LINE = 16, /* k of a row that lie side by side in a panel of rows; floats of a cache line */
    GSI_MICRO = 512 /* floats of a micro-tile, at most */
};

/* dst[r][c] = src[r][c] as f32 for r < rows, c < cols; zeros for cols <= c < pad. */
typedef void gsi_copy_fn(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                         gs_dtype type, size_t rows, size_t cols, size_t pad);

/* dst[r][c] = src[r][at + c] as f32 for r < rows, c < n <= GSI_LINE; zeros if src[r] is NULL. */
typedef void gsi_collect_fn(float *dst, size_t dst_stride, const void *const *src, size_t at,
                            gs_dtype type, size_t rows, size_t n);

/* dst[c][r] = src[r][c] as f32 for r < rows, c < cols; zeros for rows <= r < dst_stride, which is
 * at least rows and a multiple of nr. */
typedef void gsi_transpose_fn(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                              gs_dtype type, size_t rows, size_t cols);

/* What to ask of memory while multiplying: every 16 k, `each` lines from base + k / 16 * outer on,
 * `inner` bytes apart. Spread out, because a core waits when more than some 16 lines are under
 * way. */
typedef struct gsi_ahead {
    uintptr_t base;
    size_t inner, outer;
    size_t each; /* of what is asked to L2, at least 4; to L1 it is isa->asked */
} gsi_ahead;

/* sums[i][j] = before[i][j] + the sum over k of a[i][k] b[k][j], in the order of the definition,
 * for i < m <= mr and j < n rounded up as suits; sums and before are [mr][nr], before may be NULL:
 * no sums. k <= KC. a_step: from k to k + 1 in columns of a; mr_room, unless isa->in_place.
 * ahead[2]: to L1, to L2. */
typedef void gsi_multiply_fn(float *sums, const float *before, const float *a, size_t a_step,
                             const float *b, size_t m, size_t n, size_t k, const gsi_ahead *ahead);

/* The same for few rows, straight from b's memory: packing would take longer than multiplying. It
 * asks for what follows itself. Where b is transposed, n columns, few_width or nr / 2, times a
 * block of k; else whole panels, whose sums follow each other, times a few k. */
typedef struct gsi_few {
    float *sums;         /* [mr][nr], or as many as there are panels */
    const float *before; /* as above */
    const float *so_far; /* sums of the block that go on, if b is not transposed; NULL: none */
    const float *a;      /* rows: a[i * KC + k] */
    const void *b;       /* as stored, transposed or not */
    size_t b_stride;
    size_t m, n, k; /* m <= few */
    size_t left;    /* of g->k from here on */
} gsi_few;

typedef void gsi_few_fn(const gsi_few *x, gs_dtype type, bool transposed);

/* What finishing counts, lane by lane, over many micro-tiles. Vectors with fewer lanes take the
 * first. */
typedef struct gsi_lanes {
    uint32_t zeros[GSI_LINE], low[GSI_LINE], small[GSI_LINE]; /* 0, below the limits */
    uint32_t amax[GSI_LINE]; /* finite, as stored or not yet rounded */
    uint64_t inf, nan;
    uint64_t spare; /* zeros that are no elements */
} gsi_lanes;

typedef struct gsi_finish {
    gs_dtype dtype;
    size_t stride;             /* of c */
    float beta;                /* 0: c is not read */
    const float *column, *row; /* bias, one of them or none */
    gsi_limits limits;         /* of dtype */
    gsi_lanes *lanes;          /* NULL: nothing is counted */
} gsi_finish;

/* c = sums + bias + beta c, rounded, for m by n elements; sums is [mr][nr]. */
typedef void gsi_finish_fn(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f);

typedef struct gsi_gemm_isa {
    unsigned cpu;           /* gs_cpu flag, 0: none */
    size_t mr, nr, mr_room; /* of a micro-tile; mr_room >= mr */
    size_t m_tile, n_tile;  /* at most, of a tile */
    size_t a_room;          /* floats of a tile's packed rows that L2 keeps */
    size_t chunk;           /* blocks of k after which sums are put by; see make_plan for more */
    size_t in_place;        /* columns of a are read where they lie for at most so many panels */
    size_t asked;           /* lines to L1 every 16 k: 4, 8 or 16, one a row at least */
    gsi_copy_fn *copy;
    gsi_collect_fn *collect;
    gsi_transpose_fn *transpose;
    gsi_multiply_fn *multiply_rows, *multiply_columns; /* by the layout of a's panels */
    gsi_few_fn *multiply_few;                          /* NULL: there is none */
    size_t few;                                        /* rows it takes at a time, at most mr */
    size_t few_width[2]; /* columns of a transposed b, nr / 2 or nr: of f32, of halves */
    gsi_finish_fn *finish;
} gsi_gemm_isa;

extern const gsi_gemm_isa gsi_gemm_c;
/* NULL where the compiler's target has no such instructions */
const gsi_gemm_isa *gsi_gemm_avx2(void);
const gsi_gemm_isa *gsi_gemm_avx512(void);
const gsi_gemm_isa *gsi_gemm_neon(void);

/* The highest of the ladder that `cpu` allows. */
const gsi_gemm_isa *gsi_gemm_isa_for(unsigned cpu);

static inline size_t gsi_panel_room(const gsi_gemm_isa *isa) { return isa->mr_room * GSI_KC; }

enum { GSI_GROUP = 4 }; /* panels of a transposed a that are best packed at once */

/* m rows from row i, k from k0: a panel, or of a transposed x panels of `height` rows; data is x's,
 * of the matrix of the batch. */
void gsi_pack_a(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data, size_t i,
                size_t m, size_t height, size_t k0, size_t k);

/* A panel for few rows, transposed or not. */
void gsi_pack_few(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                  size_t i, size_t m, size_t k0, size_t k);

/* A panel of n columns from column j, k from k0. */
void gsi_pack_b(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data, size_t j,
                size_t n, size_t k0, size_t k);

/* A part of a product: rows [i0, i0 + m), columns [j0, j0 + n) of matrix z of the batch, of k the
 * blocks from `block` up to `end`. */
typedef struct gsi_tile {
    size_t z, i0, m, j0, n, block, end;
} gsi_tile;

/* Blocks of a product's k: one of no k, too. */
static inline size_t gsi_blocks(const gs_gemm *g) { return g->k > 0 ? (g->k - 1) / GSI_KC + 1 : 1; }

/* Whether m rows are few and b lies row by row: then it is read in runs as long as a tile is wide,
 * at most GSI_RUN columns, a page of halves or two of f32. */
enum { GSI_FEW_ROWS = 32, GSI_RUN = 2048 };
bool gsi_reads_rows(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m);

/* Floats of scratch for tiles of m by n at most. */
size_t gsi_tile_scratch(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n);

/* counts are added to; NULL: not asked for. The caller has set the floating-point mode. */
void gsi_tile_run(const gsi_gemm_isa *isa, const gs_gemm *g, gsi_tile tile, float *scratch,
                  gsi_counts *counts);

/* The end of a micro-tile whose sums, [mr][nr], are known. */
void gsi_tile_finish(const gsi_gemm_isa *isa, const gs_gemm *g, gsi_tile tile, const float *sums,
                     gsi_counts *counts);

/* ---- for other layers ---- */

gs_status gsi_gemm_check(gs_error *error, const gs_gemm *g);

/* The product on the caller's thread, for use inside a parallel loop: nothing is checked, nothing
 * allocated; scratch[gsi_gemm_scratch()] is aligned to GSI_ALIGN, and does for products with a
 * smaller m, n or k, too, and for transposed matrices where g's are not. */
size_t gsi_gemm_scratch(const gs_context *ctx, const gs_gemm *g); /* floats */
void gsi_gemm_serial(const gs_context *ctx, const gs_gemm *g, float *scratch);

/* The definition in plain loops. */
void gsi_gemm_ref(const gs_gemm *g);

/* Element i of an array of `type`. */
static inline const void *gsi_at(const void *data, gs_dtype type, size_t i)
{
    return (const char *)data + i * gsi_size_of(type);
}

#endif
