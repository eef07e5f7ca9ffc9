/* gs_gemm_run: checks, then tiles over threads. */
#include "kernel/gemm.h"
#include "kernel/fpenv.h"

#include <stdatomic.h>

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
static size_t parts(size_t n, size_t size) { return n / size + (n % size > 0); }

/* ---- checking ---- */

static gs_status check_type(gs_error *error, const char *name, gs_dtype type, const void *data)
{
    const gs_format *f = gs_format_of(type);
    if (type != GS_F32 && type != GS_F16 && type != GS_BF16)
        return gsi_fail(error, GS_EDTYPE, "gemm: %s has %s%s: f32, f16 and bf16 can be used here",
                        name, f ? "data type " : "an unknown data type", f ? f->name : "");
    if (!data)
        return gsi_fail(error, GS_ENULL, "gemm: %s has no data", name);
    if ((uintptr_t)data % f->bytes != 0)
        return gsi_fail(error, GS_EALIGN,
                        "gemm: %s lies at an address that is not a multiple of its element size,"
                        " %zu",
                        name, f->bytes);
    return GS_OK;
}

/* *out = (n - 1) * step + more, for n > 0. */
static bool extent(size_t *out, size_t n, size_t step, size_t more)
{
    return gsi_mul_size(out, n - 1, step) && gsi_add_size(out, *out, more);
}

static bool fits(size_t *elements, size_t batch, size_t step, size_t one, gs_dtype type)
{
    size_t bytes;
    return extent(elements, batch, step, one) &&
           gsi_mul_size(&bytes, *elements, gsi_size_of(type)) && bytes <= PTRDIFF_MAX;
}

/* Patches make a matrix of rows by cols. */
static gs_status check_patches(gs_error *error, const char *name, const gs_matrix *x, size_t rows,
                               size_t cols, size_t *elements)
{
    const gs_patches *p = x->patches;
    const size_t limit = (size_t)1 << 30; /* of a side: sums of places do not overflow */
    size_t grid, line, area;
    if (x->transposed || x->group)
        return gsi_fail(error, GS_ERANGE,
                        "gemm: %s is of patches and cannot be transposed or grouped", name);
    if (!p->c || !p->kh || !p->kw || !p->stride || !p->rows_h || !p->rows_w || p->h > limit ||
        p->w > limit || p->kh > limit || p->kw > limit || p->rows_h > limit || p->rows_w > limit ||
        p->stride > limit || p->pad > limit)
        return gsi_fail(error, GS_ERANGE,
                        "gemm: the patches of %s have a side that is 0 or too large", name);
    if (!gsi_mul_size(&grid, p->rows_h, p->rows_w) || rows % grid != 0 ||
        !gsi_mul_size(&line, p->kw, p->c) || !gsi_mul_size(&area, line, p->kh) || area != cols)
        return gsi_fail(error, GS_ESIZE,
                        "gemm: %s is %zu by %zu, and patches of %zu by %zu places an image and"
                        " %zu x %zu x %zu elements do not make that",
                        name, rows, cols, p->rows_h, p->rows_w, p->kh, p->kw, p->c);
    if (!gsi_mul_size(&area, p->h, p->w) || !gsi_mul_size(&area, area, p->c) ||
        !gsi_mul_size(elements, area, rows / grid))
        return gsi_fail(error, GS_ESIZE, "gemm: the array of %s is too large", name);
    return GS_OK;
}

/* x multiplies as rows by cols, neither of which is 0. */
static gs_status check_matrix(gs_error *error, const char *name, const gs_matrix *x, size_t rows,
                              size_t cols, size_t batch)
{
    size_t one = 0, all = 0;
    const size_t r = x->transposed ? cols : rows, c = x->transposed ? rows : cols;
    gs_status status = check_type(error, name, x->dtype, x->data);
    if (status != GS_OK)
        return status;
    if (x->patches) {
        status = check_patches(error, name, x, rows, cols, &one);
        if (status != GS_OK)
            return status;
    } else {
        const size_t in = x->group && x->group < r ? x->group : r;
        if (x->group && x->transposed)
            return gsi_fail(error, GS_ERANGE, "gemm: %s is grouped and cannot be transposed", name);
        if (r > 1 && x->stride < c)
            return gsi_fail(error, GS_ESIZE,
                            "gemm: %s has rows of %zu elements and a stride of %zu", name, c,
                            x->stride);
        if (!extent(&one, in, x->stride, c) || !extent(&one, parts(r, in), x->group_step, one))
            return gsi_fail(error, GS_ESIZE, "gemm: %s is too large: %zu by %zu", name, rows, cols);
    }
    if (!fits(&all, batch, x->step, one, x->dtype))
        return gsi_fail(error, GS_ESIZE, "gemm: %s is too large: %zu times %zu by %zu", name, batch,
                        rows, cols);
    return GS_OK;
}

gs_status gsi_gemm_check(gs_error *error, const gs_gemm *g)
{
    if (g->batch == 0)
        return gsi_fail(error, GS_ERANGE, "gemm: the batch is 0 matrices");
    if ((gsi_bits(g->beta) & GSI_F32_INF) == GSI_F32_INF)
        return gsi_fail(error, GS_ERANGE, "gemm: beta is not a finite number");
    if (g->m == 0 || g->n == 0)
        return GS_OK;
    if (g->c.transposed || g->c.group || g->c.patches)
        return gsi_fail(error, GS_ERANGE, "gemm: c cannot be transposed, grouped or of patches");
    gs_status status = check_matrix(error, "c", &g->c, g->m, g->n, g->batch);
    if (status == GS_OK && g->k > 0)
        status = check_matrix(error, "a", &g->a, g->m, g->k, g->batch);
    if (status == GS_OK && g->k > 0 && g->a.group)
        status = gsi_fail(error, GS_ERANGE, "gemm: a cannot be grouped");
    if (status == GS_OK && g->k > 0)
        status = check_matrix(error, "b", &g->b, g->k, g->n, g->batch);
    if (status == GS_OK && g->bias)
        status = check_type(error, "the bias", g->bias_dtype, g->bias);
    if (status != GS_OK)
        return status;

    /* The matrices of the batch lie one after the other, or side by side within c's stride. */
    const size_t one = (g->m - 1) * g->c.stride + g->n;
    const bool after = g->c.step >= one;
    const bool beside = g->c.step >= g->n && (g->batch - 1) * g->c.step + g->n <= g->c.stride;
    if (g->batch > 1 && !after && !beside)
        return gsi_fail(error, GS_ERANGE,
                        "gemm: the matrices of c overlap: %zu by %zu with stride %zu, a step of"
                        " %zu apart",
                        g->m, g->n, g->c.stride, g->c.step);
    return GS_OK;
}

/* ---- tiles ---- */

/* What an element packed costs, in multiplications: a copy for a, a transposition for b. */
enum { PACK_A = 4, PACK_B = 10 };

typedef struct grid {
    size_t m, n;              /* of a tile */
    size_t rows, cols, tiles; /* of tiles; all of the batch */
} grid;

static grid make_grid(const gsi_gemm_isa *isa, const gs_gemm *g, size_t rows, size_t cols)
{
    grid x = {.m = parts(parts(g->m, isa->mr), rows) * isa->mr,
              .n = parts(parts(g->n, isa->nr), cols) * isa->nr};
    x.rows = parts(g->m, x.m);
    x.cols = parts(g->n, x.n);
    x.tiles = x.rows * x.cols * g->batch;
    return x;
}

/* The grid that takes the least time if every worker gets as many tiles: large tiles pack less,
 * and their number should be a multiple of the workers. */
static grid choose_grid(const gsi_gemm_isa *isa, const gs_gemm *g, size_t workers)
{
    const size_t rows = parts(g->m, isa->m_tile), cols = parts(g->n, isa->n_tile);
    const size_t tries = min_size(workers, 8) * 2 - 1;
    grid best = make_grid(isa, g, rows, cols);
    double least = -1;
    for (size_t r = rows; r < rows + tries; r++)
        for (size_t c = cols; c < cols + tries; c++) {
            const grid x = make_grid(isa, g, r, c);
            const double m = (double)x.m, n = (double)x.n;
            const double cost = (double)parts(x.tiles, workers) * (m * n + PACK_A * m + PACK_B * n);
            if (least < 0 || cost < least) {
                least = cost;
                best = x;
            }
        }
    return best;
}

typedef struct job {
    const gsi_gemm_isa *isa;
    const gs_gemm *g;
    grid grid;
    float *scratch;
    size_t scratch_each; /* floats a worker */
    atomic_size_t next;  /* tile */
    atomic_ullong inf, nan, zero, subnormal, flushed;
    atomic_uint amax;
} job;

/* Whole numbers and a maximum: the order does not matter. */
static void add_counts(job *j, const gsi_counts *c)
{
    atomic_fetch_add(&j->inf, c->inf);
    atomic_fetch_add(&j->nan, c->nan);
    atomic_fetch_add(&j->zero, c->zero);
    atomic_fetch_add(&j->subnormal, c->subnormal);
    atomic_fetch_add(&j->flushed, c->flushed);
    unsigned seen = atomic_load(&j->amax);
    while (seen < c->amax && !atomic_compare_exchange_weak(&j->amax, &seen, c->amax))
        ;
}

static void work(void *arg, size_t worker)
{
    job *const j = arg;
    const grid *x = &j->grid;
    gsi_counts counts = {0};
    const uint64_t env = gsi_fpenv_enter();
    for (;;) {
        const size_t i = atomic_fetch_add(&j->next, 1);
        if (i >= x->tiles)
            break;
        const size_t i0 = i / x->cols % x->rows * x->m, j0 = i % x->cols * x->n;
        const gsi_tile tile = {.z = i / x->cols / x->rows,
                               .i0 = i0,
                               .m = min_size(x->m, j->g->m - i0),
                               .j0 = j0,
                               .n = min_size(x->n, j->g->n - j0)};
        gsi_tile_run(j->isa, j->g, tile, j->scratch + worker * j->scratch_each,
                     j->g->stats ? &counts : NULL);
    }
    gsi_fpenv_write(env);
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
    one.flushed = atomic_load(&j->flushed);
    one.amax = gsi_float(atomic_load(&j->amax));
    gs_stats_merge(j->g->stats, &one);
}

static void init_job(job *j, const gs_context *ctx, const gs_gemm *g, size_t workers)
{
    const gsi_gemm_isa *isa = gsi_gemm_isa_for(ctx->cpu);
    *j = (job){.isa = isa, .g = g, .grid = choose_grid(isa, g, workers)};
    j->scratch_each = gsi_tile_scratch(isa, g, j->grid.m, j->grid.n);
}

size_t gsi_gemm_scratch(const gs_context *ctx, const gs_gemm *g)
{
    const gsi_gemm_isa *isa = gsi_gemm_isa_for(ctx->cpu);
    return gsi_tile_scratch(isa, g, min_size(g->m, isa->m_tile), min_size(g->n, isa->n_tile));
}

void gsi_gemm_serial(const gs_context *ctx, const gs_gemm *g, float *scratch)
{
    job j;
    if (g->m == 0 || g->n == 0)
        return;
    init_job(&j, ctx, g, 1);
    j.scratch = scratch;
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
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    init_job(&j, ctx, g, count_workers(ctx, g));
    const size_t workers = min_size(count_workers(ctx, g), j.grid.tiles);
    j.scratch = gsi_arena_new(&ctx->scratch, workers, j.scratch_each * sizeof *j.scratch);
    if (!j.scratch)
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for a product of %zu by %zu by %zu",
                        g->m, g->n, g->k);
    ctx->parallel.run(ctx->parallel.user, workers, work, &j);
    gsi_arena_reset(&ctx->scratch, mark);
    if (g->stats)
        report(&j);
    return GS_OK;
}

const gsi_gemm_isa *gsi_gemm_isa_for(unsigned cpu)
{
    const gsi_gemm_isa *const ladder[] = {gsi_gemm_avx2(), gsi_gemm_avx512(), gsi_gemm_neon()};
    const gsi_gemm_isa *best = &gsi_gemm_c;
    for (size_t i = 0; i < GSI_COUNT(ladder); i++)
        if (ladder[i] && (cpu & ladder[i]->cpu))
            best = ladder[i];
    return best;
}
