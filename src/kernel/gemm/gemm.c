/* gs_gemm_run: tiles over threads, or blocks of k where there are too few tiles. */
#include "kernel/context.h"
#include "kernel/fpenv.h"
#include "kernel/gemm/plan.h"

#include <stdatomic.h>

/* ---- tiles ---- */

/* What an element packed costs, in multiplications. */
enum { PACK = 10 };

typedef struct grid {
    size_t m, n;              /* of a tile */
    size_t rows, cols, tiles; /* of tiles; all of the batch */
} grid;

static grid make_grid(const gsi_gemm_isa *isa, const gs_gemm *g, size_t rows, size_t cols)
{
    grid x = {.m = gsi_ceil_div(g->m, rows), /* panels may differ in height: see tile.c */
              .n = gsi_ceil_div(gsi_ceil_div(g->n, isa->nr), cols) * isa->nr};
    x.rows = gsi_ceil_div(g->m, x.m);
    x.cols = gsi_ceil_div(g->n, x.n);
    x.tiles = x.rows * x.cols * g->batch;
    return x;
}

/* Of a tile and one k, in multiplications. */
static double tile_cost(const grid *x)
{
    const double m = (double)x->m, n = (double)x->n;
    return m * n + PACK * (m + n);
}

/* The grid that takes the least time if every worker gets as many tiles: large tiles pack less,
 * and their number should be a multiple of the workers. */
static grid choose_grid(const gsi_gemm_isa *isa, const gs_gemm *g, size_t workers)
{
    const size_t tile_n = gsi_is_skinny_nn(isa, g, g->m) ? GSI_SKINNY_COLUMNS : isa->tile_n;
    const size_t rows = gsi_ceil_div(g->m, isa->tile_m), cols = gsi_ceil_div(g->n, tile_n);
    const size_t tries = gsi_min_size(workers, 8) * 2 - 1;
    grid best = make_grid(isa, g, rows, cols);
    double least = -1;
    for (size_t r = rows; r < rows + tries; r++)
        for (size_t c = cols; c < cols + tries; c++) {
            const grid x = make_grid(isa, g, r, c);
            const double cost = (double)gsi_ceil_div(x.tiles, workers) * tile_cost(&x);
            if (least < 0 || cost < least) {
                least = cost;
                best = x;
            }
        }
    return best;
}

typedef struct job {
    gs_context *ctx;
    const gsi_gemm_isa *isa;
    const gs_gemm *g;
    grid grid;
    float *workspace;
    size_t workspace_each; /* floats per worker */
    atomic_size_t next;    /* tile */
    atomic_ullong inf, nan, zero, subnormal, underflow;
    atomic_uint amax;
} job;

static void add_pairs(job *j, const gsi_pair_counts *c)
{
    if (c->all > 0) {
        atomic_fetch_add(&j->ctx->pairs, c->all);
        atomic_fetch_add(&j->ctx->exact_pairs, c->exact);
    }
}

/* Whole numbers and a maximum: the order does not matter. */
static void add_counts(job *j, const gsi_counts *c)
{
    atomic_fetch_add(&j->inf, c->inf);
    atomic_fetch_add(&j->nan, c->nan);
    atomic_fetch_add(&j->zero, c->zero);
    atomic_fetch_add(&j->subnormal, c->subnormal);
    atomic_fetch_add(&j->underflow, c->underflow);
    unsigned seen = atomic_load(&j->amax);
    while (seen < c->amax && !atomic_compare_exchange_weak(&j->amax, &seen, c->amax))
        ;
}

static void work(void *arg, size_t worker)
{
    job *const j = arg;
    const grid *x = &j->grid;
    gsi_counts counts = {0};
    gsi_pair_counts pairs = {0};
    const uint64_t env = gsi_fpenv_enter();
    for (;;) {
        const size_t i = atomic_fetch_add(&j->next, 1);
        if (i >= x->tiles)
            break;
        const size_t i0 = i / x->cols % x->rows * x->m, j0 = i % x->cols * x->n;
        const gsi_tile tile = {.z = i / x->cols / x->rows,
                               .i0 = i0,
                               .m = gsi_min_size(x->m, j->g->m - i0),
                               .j0 = j0,
                               .n = gsi_min_size(x->n, j->g->n - j0),
                               .end = gsi_blocks(j->g)};
        gsi_tile_run(j->isa, j->g, tile, j->workspace + worker * j->workspace_each,
                     j->g->stats ? &counts : NULL, &pairs);
    }
    gsi_fpenv_leave(env);
    add_pairs(j, &pairs);
    if (j->g->stats)
        add_counts(j, &counts);
}

static void report(const job *j)
{
    gs_stats one;
    gs_stats_init(&one);
    one.elements = j->g->m * j->g->n * j->g->batch;
    one.inf = atomic_load(&j->inf);
    one.nan = atomic_load(&j->nan);
    one.zero = atomic_load(&j->zero);
    one.subnormal = atomic_load(&j->subnormal);
    one.underflow = atomic_load(&j->underflow);
    one.amax = gsi_float(atomic_load(&j->amax));
    gs_stats_merge(j->g->stats, &one);
}

/* That of f32 takes operands of any types. */
static const gsi_gemm_isa *isa_of_any(const gs_context *ctx)
{
    return ctx->kernels.gemm[GS_F32][GS_F32];
}

/* Without a k there is neither a nor b, and their types may be anything. */
static const gsi_gemm_isa *isa_of(const gs_context *ctx, const gs_gemm *g)
{
    return g->k > 0 ? ctx->kernels.gemm[g->a.dtype][g->b.dtype] : isa_of_any(ctx);
}

static void init_job(job *j, gs_context *ctx, const gs_gemm *g, size_t workers)
{
    const gsi_gemm_isa *isa = isa_of(ctx, g);
    if (isa->pairs && gsi_is_skinny(isa_of_any(ctx), g, g->m)) /* memory bounds it */
        isa = isa_of_any(ctx);
    *j = (job){.ctx = ctx, .isa = isa, .g = g, .grid = choose_grid(isa, g, workers)};
    j->workspace_each = gsi_tile_workspace(isa, g, j->grid.m, j->grid.n);
}

static size_t workspace_of(const gsi_gemm_isa *isa, const gs_gemm *g)
{
    const size_t of_tiles = gsi_tile_workspace(isa, g, gsi_min_size(g->m, isa->tile_m),
                                               gsi_min_size(g->n, isa->tile_n));
    const size_t of_runs = gsi_tile_workspace(isa, g, gsi_min_size(g->m, GSI_SKINNY_ROWS),
                                              gsi_min_size(g->n, GSI_SKINNY_COLUMNS));
    return gsi_max_size(of_tiles, of_runs); /* a smaller product may be skinny */
}

size_t gsi_gemm_workspace(const gs_context *ctx, const gs_gemm *g)
{
    const gsi_gemm_isa *isa = isa_of(ctx, g);
    const size_t all = workspace_of(isa, g);
    return isa->pairs ? gsi_max_size(all, workspace_of(isa_of_any(ctx), g)) : all;
}

void gsi_gemm_serial(gs_context *ctx, const gs_gemm *g, float *workspace)
{
    job j;
    if (g->m == 0 || g->n == 0)
        return;
    init_job(&j, ctx, g, 1);
    j.workspace = workspace;
    work(&j, 0);
    if (g->stats)
        report(&j);
}

/* Below, other threads take longer to wake than the product takes. */
static const double ALONE = 64.0 * 64 * 64;

static size_t count_workers(const gs_context *ctx, const gs_gemm *g)
{
    const double size = (double)g->m * (double)g->n * ((double)g->k + 1) * (double)g->batch;
    return size < ALONE ? 1 : ctx->workers;
}

/* ---- blocks of k over threads ----
 *
 * A small c with a long k, the gradient of a filter, has too few tiles for the threads. Then blocks
 * are what they share: the sums of a block are a product of their own, kept in a slot; then the
 * slots are added in order. Rounds bound the slots: so much memory does whatever k. */

enum { SLOTS_EACH = 4 }; /* of a worker */

typedef struct split {
    job *j;
    gs_gemm of_block;    /* c is the slots: [slots][m][n] */
    float *total;        /* [m][n]: the sums of the rounds before */
    size_t first, count; /* blocks of the round */
    atomic_size_t next_block, next_panel;
} split;

/* Whether that is faster. A slot costs a tenth of a multiplication by one k to be added. */
static bool is_split(const job *j, size_t workers)
{
    const gs_gemm *g = j->g;
    const grid all = make_grid(j->isa, g, 1, 1);
    const size_t blocks = gsi_blocks(g);
    if (workers < 2 || g->batch > 1 || all.m > j->isa->tile_m || all.n > j->isa->tile_n)
        return false;
    const double fold = 0.1 * (double)blocks * (double)all.m * (double)all.n / (double)workers;
    const double ours = (double)gsi_ceil_div(blocks, workers) * tile_cost(&all) + fold;
    return 1.1 * ours <
           (double)(gsi_ceil_div(j->grid.tiles, workers) * blocks) * tile_cost(&j->grid);
}

static void multiply_blocks(void *arg, size_t worker)
{
    split *const s = arg;
    const gs_gemm *g = s->j->g;
    gsi_pair_counts pairs = {0};
    const uint64_t env = gsi_fpenv_enter();
    for (;;) {
        const size_t slot = atomic_fetch_add(&s->next_block, 1), block = s->first + slot;
        if (slot >= s->count)
            break;
        const gsi_tile tile = {.z = slot, .m = g->m, .n = g->n, .block = block, .end = block + 1};
        gsi_tile_run(s->j->isa, &s->of_block, tile, s->j->workspace + worker * s->j->workspace_each,
                     NULL, &pairs);
    }
    gsi_fpenv_leave(env);
    add_pairs(s->j, &pairs);
}

static void add_floats(float *sum, const float *x, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t k = i; k < i + 16; k++)
            sum[k] += x[k];
    for (; i < n; i++)
        sum[i] += x[i];
}

/* The micro-tile at row i, column j: what rounds before summed, then slot after slot. */
static void add_slots(const split *s, size_t i, size_t j, size_t m, size_t n, float *sums)
{
    const size_t width = s->j->g->n, nr = s->j->isa->nr, at = i * width + j;
    const float *slots = s->of_block.c.data;
    const bool first = s->first == 0;
    for (size_t r = 0; r < m; r++)
        memcpy(sums + r * nr, (first ? slots : s->total) + at + r * width, n * sizeof *sums);
    for (size_t slot = first; slot < s->count; slot++)
        for (size_t r = 0; r < m; r++)
            add_floats(sums + r * nr, slots + slot * s->of_block.c.batch_stride + at + r * width,
                       n);
}

static void fold_panels(void *arg, size_t worker)
{
    split *const s = arg;
    job *const j = s->j;
    const gs_gemm *g = j->g;
    const gsi_gemm_isa *isa = j->isa;
    const bool last = s->first + s->count == gsi_blocks(g);
    gsi_counts counts = {0};
    const uint64_t env = gsi_fpenv_enter();
    (void)worker;
    for (;;) {
        const size_t i = atomic_fetch_add(&s->next_panel, 1) * isa->mr;
        if (i >= g->m)
            break;
        const size_t m = gsi_min_size(isa->mr, g->m - i);
        for (size_t c = 0; c < g->n; c += isa->nr) {
            const size_t n = gsi_min_size(isa->nr, g->n - c);
            float sums[GSI_MICRO];
            add_slots(s, i, c, m, n, sums);
            if (last)
                gsi_tile_epilogue(isa, g, (gsi_tile){.i0 = i, .m = m, .j0 = c, .n = n}, sums,
                                  g->stats ? &counts : NULL);
            for (size_t r = 0; r < m && !last; r++)
                memcpy(s->total + (i + r) * g->n + c, sums + r * isa->nr, n * sizeof *sums);
        }
    }
    gsi_fpenv_leave(env);
    if (g->stats)
        add_counts(j, &counts);
}

static gs_status run_split(gs_context *ctx, job *j, size_t workers)
{
    const gs_gemm *g = j->g;
    const size_t blocks = gsi_blocks(g), slots = gsi_min_size(blocks, workers * SLOTS_EACH);
    split s = {.j = j, .of_block = *g};
    float *const c = gsi_arena_new(&ctx->scratch, (slots + 1) * g->m, g->n * sizeof *c);
    j->workspace_each = gsi_tile_workspace(j->isa, g, g->m, g->n);
    j->workspace = gsi_arena_new(&ctx->scratch, workers, j->workspace_each * sizeof *c);
    if (!c || !j->workspace)
        return GS_ENOMEM;
    s.of_block.c =
        (gs_matrix_out){.data = c, .dtype = GS_F32, .stride = g->n, .batch_stride = g->m * g->n};
    s.of_block.a.batch_stride = s.of_block.b.batch_stride = 0;
    s.of_block.bias = NULL;
    s.of_block.beta = 0;
    s.total = c + slots * g->m * g->n;
    for (; s.first < blocks; s.first += s.count) {
        s.count = gsi_min_size(slots, blocks - s.first);
        atomic_store(&s.next_block, 0);
        atomic_store(&s.next_panel, 0);
        ctx->parallel.run(ctx->parallel.user, workers, multiply_blocks, &s);
        ctx->parallel.run(ctx->parallel.user, workers, fold_panels, &s);
    }
    return GS_OK;
}

static gs_status run_tiles(gs_context *ctx, job *j, size_t workers)
{
    workers = gsi_min_size(workers, j->grid.tiles);
    j->workspace = gsi_arena_new(&ctx->scratch, workers, j->workspace_each * sizeof *j->workspace);
    if (!j->workspace)
        return GS_ENOMEM;
    ctx->parallel.run(ctx->parallel.user, workers, work, j);
    return GS_OK;
}

gs_status gs_gemm_run(gs_context *ctx, const gs_gemm *g)
{
    if (!ctx)
        return GS_ENULL;
    if (!g)
        return gsi_fail(&ctx->error, GS_ENULL, "gemm: no product is given");
    const gs_status status = gsi_gemm_check(&ctx->error, g);
    if (status != GS_OK || g->m == 0 || g->n == 0)
        return status;

    job j;
    const size_t workers = count_workers(ctx, g);
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    init_job(&j, ctx, g, workers);
    const gs_status ran =
        is_split(&j, workers) ? run_split(ctx, &j, workers) : run_tiles(ctx, &j, workers);
    gsi_arena_reset(&ctx->scratch, mark);
    if (ran != GS_OK)
        return gsi_fail(&ctx->error, ran, "no memory for a product of %zu by %zu by %zu", g->m,
                        g->n, g->k);
    if (g->stats)
        report(&j);
    return GS_OK;
}

void gs_context_unit_use(gs_unit_use *out, const gs_context *ctx)
{
    *out = (gs_unit_use){0};
    if (ctx) {
        out->products = atomic_load(&ctx->pairs);
        out->fallbacks = atomic_load(&ctx->exact_pairs);
    }
}
