/* GEMM behind gs_gemm_run: who does what, in the words of BLIS.
 *
 * The definition is in gradscale/gemm.h and, as plain loops, in ref.c. It leaves tiles,
 * instruction sets and threads free, and this is how they are chosen:
 *
 *     check.c        whether the product can be made
 *     gemm.c         cuts c into tiles, or k into blocks, and shares them out among the threads
 *     tile.c         one tile: the loops around the micro-kernel
 *     prefetch.h     what the micro-kernel prefetches meanwhile
 *     skinny.c       one tile of a skinny product: b is read where it lies
 *     pack.c         packs micro-panels of a and b
 *     pairs.c        the same for a unit that multiplies pairs of bf16
 *     im2col.c       packs a convolution's operand
 *     portable.c, avx2.c, avx512.c, avx512bf16.c, neon.c
 *                    one gsi_gemm_isa each: packing, micro-kernels, epilogue, block sizes
 *     tmpl*.h        the template of the last four
 *
 * A micro-tile of c is MR by NR sums in registers; k is cut into blocks of KC. Packing widens f16
 * and bf16 to f32 and gathers im2col, so that the micro-kernel knows one type:
 *
 *     a micro-panel of a   rows:    [KC / 16][MR][16]  where k is contiguous in memory, or im2col
 *                          columns: [KC][a_ld]         where i is: no panel of a is ever transposed
 *     a micro-panel of b   [KC][NR]
 *
 * So a micro-kernel reads both from front to back, one cache line after the other. Columns of a may
 * also be read where they lie.
 *
 * A unit for bf16 takes words of two k each: its panels are the same with KC / 2 words for KC. */
#ifndef GSI_KERNEL_GEMM_H
#define GSI_KERNEL_GEMM_H

#include "kernel/kernel.h"

enum {
    GSI_KC = GS_GEMM_KC,
    GSI_LINE = 16,  /* words of a row side by side in a panel of rows: those of a cache line */
    GSI_MICRO = 512 /* floats of a micro-tile, at most */
};

/* dst[r][c] = src[r][c] as f32 for r < rows, c < cols; zeros for cols <= c < pad. */
typedef void gsi_copy_fn(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                         gs_dtype type, size_t rows, size_t cols, size_t pad);

/* dst[r][c] = src[r][at + c] as f32, for pairs as it is, for r < rows, c < n, at most a line's;
 * zeros if src[r] is NULL. */
typedef void gsi_pack_gather_fn(void *dst, size_t dst_stride, const void *const *src, size_t at,
                                gs_dtype type, size_t rows, size_t n);

/* dst[c][r] = src[r][c] as f32 for r < rows, c < cols; zeros for rows <= r < dst_stride, which is
 * at least rows and a multiple of nr. */
typedef void gsi_transpose_fn(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                              gs_dtype type, size_t rows, size_t cols);

/* What to prefetch while a micro-kernel runs: every 16 words, `lines` lines from base on, `stride`
 * bytes apart; then base moves on by `advance` bytes. Spread out, because a core stalls when more
 * than some 16 lines are under way. */
typedef struct gsi_prefetch {
    uintptr_t base;
    size_t stride, advance;
    size_t lines; /* of those to L2, at least 4; of those to L1 there are isa->l1_lines */
} gsi_prefetch;

/* The micro-kernel: sums[i][j] = before[i][j] + the sum over k of a[i][k] b[k][j], in the order of
 * the definition, for i < m <= MR and j < n rounded up as suits. sums and before are [MR][NR];
 * before NULL: no sums. k <= KC. a_step: from k to k + 1 in columns of a; a_ld, unless
 * isa->in_place. prefetch[2]: to L1, to L2. */
typedef void gsi_micro_fn(float *sums, const float *before, const float *a, size_t a_step,
                          const float *b, size_t m, size_t n, size_t k,
                          const gsi_prefetch *prefetch);

/* The same for a skinny product, straight from b's memory: packing would take longer than
 * multiplying. It prefetches what follows itself. Where b is transposed, n columns (skinny_nr or
 * NR / 2) times a block of k; else whole panels, whose sums follow each other, times a few k. */
typedef struct gsi_skinny {
    float *sums;         /* [MR][NR], or as many as there are panels */
    const float *before; /* as above */
    const float *so_far; /* sums of the block that go on, if b is not transposed; NULL: none */
    const float *a;      /* rows: a[i * KC + k] */
    const void *b;       /* as stored, transposed or not */
    size_t b_stride;
    size_t m, n, k; /* m <= skinny_mr */
    size_t left;    /* of g->k from here on */
} gsi_skinny;

typedef void gsi_skinny_fn(const gsi_skinny *x, gs_dtype type, bool transposed);

/* ---- pairs of bf16 ----
 *
 * VDPBF16PS adds two products to each sum: fma with the upper halves of its words, then fma with
 * the lower ones. With k in the upper half and k + 1 in the lower one that is the definition, but
 * that it takes subnormal operands and sums for zero. It cannot meet any if no element other than 0
 * is subnormal, and if the least exponent fields of a's and of b's elements other than 0 add up to
 * GSI_PAIRS_LEAST: then all products, and so all sums, are multiples of 2^-126. Packing finds the
 * least of each panel; where two do not fit, `exact` micro-kernels make the sums with fma, from the
 * same words.
 *
 * An odd k ends with a half of zeros on both sides: the sum, which began as +0, is not -0, and
 * stays. (One made with fma may be -0: `exact` takes an odd k as it is.) */

enum { GSI_PAIRS_LEAST = 142, GSI_PAIRS_LINE = 2 * GSI_LINE }; /* bf16 of a line */

/* The least of (magnitude - 1) of bf16 codes, modulo 2^16: a zero counts as the largest. */
typedef struct gsi_least {
    _Alignas(GSI_ALIGN) uint16_t lanes[GSI_PAIRS_LINE];
} gsi_least;

/* Packing merges what it finds into `least`. */
typedef struct gsi_pairs {
    /* A panel of rows of a, m by k. src[r * row_step + k / 32 * line_step + k % 32]; it may be dst,
     * packed but not yet swapped. */
    void (*rows)(uint32_t *dst, const uint16_t *src, size_t row_step, size_t line_step, size_t m,
                 size_t k, gsi_least *least);
    /* dst[r / 2][c] of src[r][c] for r < k, c < n; zeros for n <= c < ld, which is NR or a_ld. */
    void (*columns)(uint32_t *dst, size_t ld, const uint16_t *src, size_t src_stride, size_t k,
                    size_t n, gsi_least *least);
    /* dst[c / 2][r] of src[r][c] for r < n, c < k; zeros for n <= r < NR. */
    void (*transpose)(uint32_t *dst, const uint16_t *src, size_t src_stride, size_t n, size_t k,
                      gsi_least *least);
    gsi_micro_fn *exact_rows, *exact_columns;
} gsi_pairs;

/* Whether the unit makes the product of two panels as defined; a and b are their least. */
static inline bool gsi_pairs_fit(uint32_t a, uint32_t b)
{
    const uint32_t normal = 1 << 7; /* the smallest code that is */
    return a + 1 >= normal && b + 1 >= normal && ((a + 1) >> 7) + ((b + 1) >> 7) >= GSI_PAIRS_LEAST;
}

/* ---- the epilogue ---- */

/* What the epilogue counts, lane by lane, over many micro-tiles. Vectors with fewer lanes take the
 * first. */
typedef struct gsi_lanes {
    uint32_t zeros[GSI_LINE], low[GSI_LINE], small[GSI_LINE]; /* 0, below the limits */
    uint32_t amax[GSI_LINE]; /* finite, as stored or not yet rounded */
    uint64_t inf, nan;
    uint64_t spare; /* zeros that are no elements */
} gsi_lanes;

typedef struct gsi_epilogue {
    gs_dtype dtype;
    size_t stride;             /* of c */
    float beta;                /* 0: c is not read */
    const float *column, *row; /* bias, one of them or none */
    gsi_limits limits;         /* of dtype */
    gsi_lanes *lanes;          /* NULL: nothing is counted */
} gsi_epilogue;

/* c = sums + bias + beta c, rounded, for m by n elements; sums is [MR][NR]. */
typedef void gsi_epilogue_fn(void *c, const float *sums, size_t m, size_t n, const gsi_epilogue *e);

typedef struct gsi_gemm_isa {
    unsigned cpu;          /* gs_cpu flag, 0: none */
    size_t mr, nr;         /* of a micro-tile */
    size_t a_ld;           /* leading dimension of a packed panel of a's columns, at least mr */
    size_t tile_m, tile_n; /* at most, of a tile */
    size_t l2_budget; /* floats of a's packed panels that L2 keeps: MC by KC, for some blocks */
    size_t kc_blocks; /* blocks of k after which sums are put by; see make_plan for more */
    size_t in_place;  /* columns of a are read where they lie for at most so many panels of b */
    size_t l1_lines;  /* lines prefetched to L1 every 16 k: 4, 8 or 16, at least one per row */
    gsi_copy_fn *copy;
    gsi_pack_gather_fn *gather;
    gsi_transpose_fn *transpose;
    gsi_micro_fn *micro_rows, *micro_columns; /* by the layout of a's panels */
    gsi_skinny_fn *skinny_micro;              /* NULL: there is none */
    size_t skinny_mr;                         /* rows it takes at a time, at most mr */
    size_t skinny_nr[2]; /* columns of a transposed b, nr / 2 or nr: of f32, of half types */
    gsi_epilogue_fn *epilogue;
    const gsi_pairs *pairs; /* of bf16 and nothing else; NULL: panels of f32, out of any types */
} gsi_gemm_isa;

/* k per word, words of a k, and of a panel of a and of b. */
static inline size_t gsi_depth(const gsi_gemm_isa *isa) { return isa->pairs ? 2 : 1; }
static inline size_t gsi_words(const gsi_gemm_isa *isa, size_t k)
{
    return gsi_ceil_div(k, gsi_depth(isa));
}
static inline size_t gsi_a_size(const gsi_gemm_isa *isa, bool transposed)
{
    return (transposed ? isa->a_ld : isa->mr) * gsi_words(isa, GSI_KC);
}
static inline size_t gsi_b_size(const gsi_gemm_isa *isa)
{
    return isa->nr * gsi_words(isa, GSI_KC);
}

enum { GSI_GROUP = 4 }; /* panels of a transposed a that are best packed at once */

/* m rows from row i, k from k0: a panel, or of a transposed x panels of `height` rows; data is x's,
 * of the matrix of the batch. least[panels]: of pairs only. */
void gsi_pack_a(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data, size_t i,
                size_t m, size_t height, size_t k0, size_t k, uint32_t *least);

/* A panel of a skinny product, transposed or not: rows KC apart. */
void gsi_pack_skinny(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                     size_t i, size_t m, size_t k0, size_t k);

/* A panel of n columns from column j, k from k0. */
void gsi_pack_b(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data, size_t j,
                size_t n, size_t k0, size_t k, uint32_t *least);

/* The same two for pairs. */
void gsi_pack_a_pairs(const gsi_gemm_isa *isa, uint32_t *dst, const gs_matrix *x, const void *data,
                      size_t i, size_t m, size_t height, size_t k0, size_t k, uint32_t *least);
void gsi_pack_b_pairs(const gsi_gemm_isa *isa, uint32_t *dst, const gs_matrix *x, const void *data,
                      size_t j, size_t n, size_t k0, size_t k, uint32_t *least);

/* Columns [j, j + n) of rows [i, i + m) of im2col(x), as isa->gather leaves them. From a row to the
 * next it is `row_step` elements, from a line of columns to the next `line_step`. */
void gsi_pack_im2col(const gsi_gemm_isa *isa, void *dst, size_t row_step, size_t line_step,
                     const gs_matrix *x, const void *data, size_t i, size_t m, size_t j, size_t n);

/* A part of a product: rows [i0, i0 + m), columns [j0, j0 + n) of matrix z of the batch, of k the
 * blocks from `block` up to `end`. */
typedef struct gsi_tile {
    size_t z, i0, m, j0, n, block, end;
} gsi_tile;

/* Blocks of a product's k: one of no k, too. */
static inline size_t gsi_blocks(const gs_gemm *g) { return g->k > 0 ? (g->k - 1) / GSI_KC + 1 : 1; }

/* Whether m rows make the product skinny and b is stored [k][n]: then b is read in runs as long as
 * a tile is wide, at most GSI_SKINNY_COLUMNS, a page of half types or two of f32. */
enum { GSI_SKINNY_ROWS = 32, GSI_SKINNY_COLUMNS = 2048 };
bool gsi_is_skinny_nn(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m);

/* Floats of workspace for tiles of m by n at most. */
size_t gsi_tile_workspace(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n);

/* Products of two panels of pairs, and how many of them were made with fma. */
typedef struct gsi_pair_counts {
    uint64_t all, exact;
} gsi_pair_counts;

/* counts are added to; NULL: not asked for. pairs is added to. The caller has set the
 * floating-point mode. */
void gsi_tile_run(const gsi_gemm_isa *isa, const gs_gemm *g, gsi_tile tile, float *workspace,
                  gsi_counts *counts, gsi_pair_counts *pairs);

/* The epilogue of a micro-tile whose sums, [MR][NR], are known. */
void gsi_tile_epilogue(const gsi_gemm_isa *isa, const gs_gemm *g, gsi_tile tile, const float *sums,
                       gsi_counts *counts);

/* ---- for other layers ---- */

gs_status gsi_gemm_check(gs_error *error, const gs_gemm *g);
/* Whether im2col makes a matrix of rows by cols; *elements: of its array. */
gs_status gsi_check_im2col(gs_error *error, const char *name, const gs_im2col *p, size_t rows,
                           size_t cols, size_t *elements);

/* The product on the caller's thread, for use inside a parallel loop: nothing is checked, nothing
 * allocated; workspace[gsi_gemm_workspace()] is aligned to GSI_ALIGN, and does for products with a
 * smaller m, n or k, too, and for transposed matrices where g's are not. */
size_t gsi_gemm_workspace(const gs_context *ctx, const gs_gemm *g); /* floats */
void gsi_gemm_serial(gs_context *ctx, const gs_gemm *g, float *workspace);

/* c [1, n] = a b + bias of a b that is kept in panels, see panels.c: b.data is
 * [n / width][k][width], the last columns anything; there are neither a stride nor beta nor stats.
 * Width 0: there is no such product on this CPU. */
size_t gsi_panel_width(const gs_context *ctx);
gs_status gsi_gemm_panels(gs_context *ctx, const gs_gemm *g);

/* The definition in plain loops. */
void gsi_gemm_ref(const gs_gemm *g);

/* Element i of an array of `type`. */
static inline const void *gsi_at(const void *data, gs_dtype type, size_t i)
{
    return (const char *)data + i * gsi_size_of(type);
}

#endif
