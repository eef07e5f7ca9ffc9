/* gs_gemm_int8_run.
 *
 * (1) A tile is one thread's work, in a workspace of its own; b is packed before, once.
 * (2) What is written depends on the exact sums alone: neither on tiles nor on threads. */
#include "kernel/context.h"
#include "kernel/fpenv.h"
#include "kernel/gemm/gemm.h"
#include "kernel/int8/int8.h"

enum { TILE_ROWS = 96, TILE_COLUMNS = 256, BLOCK_WORDS = 512 };

typedef struct job {
    const gsi_int8_isa *isa;
    const gsi_rows *rows;
    const gs_gemm_int8 *g;
    uint32_t *b;    /* packed panels */
    int32_t *start; /* [panels * nr] */
    size_t words;   /* of k */
    size_t tiles, across;
    char *workspace;
    size_t workspace_each;
    atomic_size_t next_panel, next_tile;
} job;

/* ---- checks ---- */

static gs_status check_im2col(gs_error *error, const gs_gemm_int8 *g)
{
    size_t elements;
    if (g->im2col->dgrad)
        return gsi_fail(error, GS_ERANGE, "gemm: the im2col of INT8 is dgrad");
    const gs_status status = gsi_check_im2col(error, "a", g->im2col, g->m, g->k, &elements);
    if (status == GS_OK && elements > PTRDIFF_MAX)
        return gsi_fail(error, GS_ESIZE, "gemm: the array of a is too large");
    return status;
}

static gs_status check(gs_error *error, const gs_gemm_int8 *g)
{
    size_t sizes[3];
    if (g->k > GS_INT8_K)
        return gsi_fail(error, GS_ERANGE,
                        "gemm: a k of %zu: sums of more than %d products of INT8 may not fit 32 "
                        "bits",
                        g->k, (int)GS_INT8_K);
    if (g->y && (!g->scale || (g->dtype != GS_F32 && g->dtype != GS_F16 && g->dtype != GS_BF16)))
        return gsi_fail(error, g->scale ? GS_EDTYPE : GS_ENULL,
                        "gemm: y of an INT8 product has no scales, or is not f32, f16 or bf16");
    if (g->bias && g->bias_dtype != GS_F32 && g->bias_dtype != GS_F16 && g->bias_dtype != GS_BF16)
        return gsi_fail(error, GS_EDTYPE, "gemm: the bias is not f32, f16 or bf16");
    if (g->m == 0 || g->n == 0)
        return GS_OK;
    if (!g->sums && !g->y)
        return gsi_fail(error, GS_ENULL, "gemm: an INT8 product has no place for its result");
    if (g->k > 0 && (!g->a || !g->b))
        return gsi_fail(error, GS_ENULL, "gemm: an operand of INT8 has no data");
    if (!gsi_mul_size(&sizes[0], g->m, g->k) || !gsi_mul_size(&sizes[1], g->n, g->k) ||
        !gsi_mul_size(&sizes[2], g->m, g->n) || sizes[2] > PTRDIFF_MAX / 4 ||
        (!g->im2col && sizes[0] > PTRDIFF_MAX) || sizes[1] > PTRDIFF_MAX / 4)
        return gsi_fail(error, GS_ESIZE, "gemm: %zu by %zu by %zu is too large", g->m, g->n, g->k);
    return g->im2col && g->k > 0 ? check_im2col(error, g) : GS_OK;
}

/* ---- work ---- */

static size_t panels_of(const job *j) { return gsi_ceil_div(j->g->n, j->isa->nr); }

static void pack_panels(void *arg, size_t worker)
{
    job *const j = arg;
    const size_t nr = j->isa->nr;
    (void)worker;
    for (;;) {
        const size_t p = atomic_fetch_add(&j->next_panel, 1);
        if (p >= panels_of(j))
            return;
        gsi_int8_pack_b(j->isa, j->b + p * nr * j->words, j->start + p * nr, j->g, p * nr,
                        j->words);
    }
}

/* The sums of m rows, from row `a` of the packed ones on, and the panels of columns [j0, j0 + n);
 * sums has rows of TILE_COLUMNS. */
static void multiply(const job *j, int32_t *sums, const uint32_t *a, size_t m, size_t j0, size_t n)
{
    const gsi_int8_isa *isa = j->isa;
    const size_t nr = isa->nr;
    for (size_t i = 0; i < m; i++)
        memcpy(sums + i * TILE_COLUMNS, j->start + j0, gsi_ceil_div(n, nr) * nr * sizeof *sums);
    for (size_t w = 0; w < j->words; w += BLOCK_WORDS) {
        const size_t words = gsi_min_size(BLOCK_WORDS, j->words - w);
        for (size_t c = 0; c < n; c += nr)
            for (size_t i = 0; i < m; i += isa->mr)
                isa->micro(sums + i * TILE_COLUMNS + c, TILE_COLUMNS, a + i * j->words + w,
                           j->words, j->b + (j0 + c) * j->words + w * nr,
                           gsi_min_size(isa->mr, m - i), words);
    }
}

static void write_tile(const job *j, const int32_t *sums, size_t i0, size_t m, size_t j0, size_t n)
{
    const gs_gemm_int8 *g = j->g;
    for (size_t i = 0; g->sums && i < m; i++)
        memcpy(g->sums + (i0 + i) * g->n + j0, sums + i * TILE_COLUMNS, n * sizeof *sums);
    if (!g->y)
        return;
    const gsi_out y = gsi_out_at((gsi_out){g->y, g->dtype, NULL}, i0 * g->n + j0);
    gsi_in bias = {NULL, g->bias_dtype};
    if (g->bias)
        bias = gsi_in_at((gsi_in){g->bias, g->bias_dtype}, j0);
    j->rows->requantize(y, g->n, sums, TILE_COLUMNS, g->scale + j0, bias, m, n);
}

static void run_tiles(void *arg, size_t worker)
{
    job *const j = arg;
    const gs_gemm_int8 *g = j->g;
    int32_t *sums = (int32_t *)(void *)(j->workspace + worker * j->workspace_each);
    uint32_t *a = (uint32_t *)sums + TILE_ROWS * TILE_COLUMNS;
    int8_t *row = (int8_t *)(a + TILE_ROWS * j->words);
    const uint64_t env = gsi_fpenv_enter();
    for (;;) {
        const size_t tile = atomic_fetch_add(&j->next_tile, 1);
        if (tile >= j->tiles)
            break;
        const size_t i0 = tile / j->across * TILE_ROWS, j0 = tile % j->across * TILE_COLUMNS;
        const size_t m = gsi_min_size(TILE_ROWS, g->m - i0);
        const size_t n = gsi_min_size(TILE_COLUMNS, g->n - j0);
        gsi_int8_pack_a(j->isa, a, g, i0, m, j->words, row);
        multiply(j, sums, a, m, j0, n);
        write_tile(j, sums, i0, m, j0, n);
    }
    gsi_fpenv_leave(env);
}

static gs_status run(gs_context *ctx, job *j)
{
    const size_t nr = j->isa->nr, columns = panels_of(j) * nr;
    const size_t words = gsi_max_size(j->words, 1);
    const double work = (double)j->g->m * (double)j->g->n * (double)j->g->k;
    const size_t workers =
        work < 64.0 * 64 * 64 ? 1 : gsi_min_size(ctx->workers, j->tiles); /* others wake slowly */
    const size_t line = gsi_ceil_div(j->g->k, GSI_ALIGN) * GSI_ALIGN;
    j->workspace_each = TILE_ROWS * (TILE_COLUMNS + words) * sizeof(uint32_t) + line;
    j->b = gsi_arena_new(&ctx->scratch, columns, words * sizeof *j->b);
    j->start = gsi_arena_new(&ctx->scratch, columns, sizeof *j->start);
    j->workspace = gsi_arena_new(&ctx->scratch, workers, j->workspace_each);
    if (!j->b || !j->start || !j->workspace)
        return GS_ENOMEM;
    const bool large = (double)j->g->n * (double)j->g->k > 65536;
    ctx->parallel.run(ctx->parallel.user, large ? ctx->workers : 1, pack_panels, j);
    ctx->parallel.run(ctx->parallel.user, workers, run_tiles, j);
    return GS_OK;
}

gs_status gs_gemm_int8_run(gs_context *ctx, const gs_gemm_int8 *g)
{
    if (!ctx)
        return GS_ENULL;
    if (!g)
        return gsi_fail(&ctx->error, GS_ENULL, "gemm: no product is given");
    const gs_status status = check(&ctx->error, g);
    if (status != GS_OK || g->m == 0 || g->n == 0)
        return status;
    const gsi_int8_isa *isa = ctx->kernels.int8;
    job j = {.isa = isa,
             .rows = &ctx->kernels.rows,
             .g = g,
             .words = gsi_ceil_div(g->k, isa->depth),
             .across = gsi_ceil_div(g->n, TILE_COLUMNS)};
    j.tiles = gsi_ceil_div(g->m, TILE_ROWS) * j.across;
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    const gs_status ran = run(ctx, &j);
    gsi_arena_reset(&ctx->scratch, mark);
    return ran == GS_OK
               ? ran
               : gsi_fail(&ctx->error, ran, "no memory for an INT8 product of %zu by %zu by %zu",
                          g->m, g->n, g->k);
}
