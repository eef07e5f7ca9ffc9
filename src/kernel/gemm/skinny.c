/* A tile of a skinny product, which reading b bounds: b is multiplied where it lies, each element
 * read once, in its own width. What is left of columns at the right is a panel like any other. */
#include "kernel/gemm/plan.h"

/* Rows of panel p. */
static size_t rows_of(const gsi_job *r, size_t p)
{
    return gsi_min_size(r->t.m - p * r->p.height, r->p.height);
}

/* Panel p, packed at a, times n columns from j of rows [k0, k0 + k), straight from b's memory. */
static gsi_skinny skinny_of(const gsi_job *r, size_t p, const float *a, size_t k0, size_t k,
                            size_t j, size_t n)
{
    const gs_matrix *b = &r->g->b;
    const size_t at = b->transposed ? j * b->stride + k0 : k0 * b->stride + j;
    return (gsi_skinny){.a = a,
                        .b = gsi_at(r->b_data, b->dtype, at),
                        .b_stride = b->stride,
                        .m = rows_of(r, p),
                        .n = n,
                        .k = k,
                        .left = r->g->k - k0};
}

/* Panel p, n columns from j, whose sums are known. */
static void skinny_epilogue(const gsi_job *r, const float *sums, size_t p, size_t j, size_t n)
{
    const gs_gemm *g = r->g;
    const size_t i = p * r->p.height;
    const size_t at = r->t.z * g->c.batch_stride + (r->t.i0 + i) * g->c.stride + r->t.j0 + j;
    gsi_epilogue e = r->epilogue;
    e.row = g->bias && g->bias_per_row ? r->bias + i : NULL;
    e.column = g->bias && !g->bias_per_row ? r->bias + j : NULL;
    r->isa->epilogue((char *)g->c.data + at * gsi_size_of(g->c.dtype), sums, rows_of(r, p), n, &e);
}

/* skinny_nr columns at a time, and NR / 2 where that is too wide, of a chunk of k. */
static void run_chunk(const gsi_job *r, size_t chunk)
{
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    const gsi_tile t = r->t;
    const size_t end = gsi_min_size(chunk + r->p.kc_blocks, t.end);
    const size_t most = isa->skinny_nr[g->b.dtype != GS_F32];
    const size_t whole = t.n / (isa->nr / 2) * (isa->nr / 2);
    const size_t micro = isa->mr * isa->nr, panel = isa->mr * GSI_KC;
    for (size_t block = chunk; block < end && whole > 0; block++)
        gsi_pack_skinny(isa, r->a + (block - chunk) * panel, &g->a, r->a_data, t.i0, t.m,
                        block * GSI_KC, gsi_min_size(g->k - block * GSI_KC, GSI_KC));
    for (size_t j = 0, width; j < whole; j += width) {
        width = gsi_min_size(most, whole - j);
        float *const sums = r->sums + (r->p.strips == 1 ? 0 : j / isa->nr * micro) + j % isa->nr;
        for (size_t block = chunk; block < end; block++) {
            const size_t k0 = block * GSI_KC, k = gsi_min_size(g->k - k0, GSI_KC);
            gsi_skinny x = skinny_of(r, 0, r->a + (block - chunk) * panel, k0, k, t.j0 + j, width);
            x.sums = sums;
            x.before = block > t.block ? sums : NULL;
            isa->skinny_micro(&x, g->b.dtype, true);
        }
        if (end == t.end)
            skinny_epilogue(r, sums, 0, j, width);
    }
    for (size_t block = chunk; block < end && whole < t.n; block++)
        gsi_macro_kernel(r, (gsi_position){.chunk = block, .block = block, .j = whole});
}

void gsi_skinny_nt(const gsi_job *r)
{
    for (size_t chunk = r->t.block; chunk < r->t.end; chunk += r->p.kc_blocks)
        run_chunk(r, chunk);
}

/* A few rows of b at a time, more of a narrow b, all columns of the tile, so that memory is read in
 * long runs; every panel of a is multiplied by them before they leave L2. Sums lie
 * [panels][whole][mr][nr], those of the last columns behind them; in another such array those of a
 * block, until it ends. */
void gsi_skinny_nn(const gsi_job *r)
{
    enum { LEAST = 8, ELEMENTS = 4096 };
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    const gsi_tile t = r->t;
    const size_t micro = isa->mr * isa->nr, whole = t.n / isa->nr, panel = isa->mr * GSI_KC;
    const size_t at_once = gsi_max_size(LEAST, ELEMENTS / gsi_max_size(t.n, 1));
    float *const of_block = r->sums + r->p.strips * r->p.panels * micro;
    for (size_t block = t.block; block < t.end; block++) {
        const size_t k0 = block * GSI_KC, k = gsi_min_size(g->k - k0, GSI_KC);
        for (size_t p = 0; p < r->p.panels; p++)
            gsi_pack_skinny(isa, r->a + p * panel, &g->a, r->a_data, t.i0 + p * r->p.height,
                            rows_of(r, p), k0, k);
        for (size_t at = 0; at < k; at += at_once)
            for (size_t p = 0; p < r->p.panels; p++) {
                float *const sums = r->sums + p * whole * micro;
                float *const part = of_block + p * whole * micro;
                const bool ends = at + at_once >= k;
                gsi_skinny x = skinny_of(r, p, r->a + p * panel + at, k0 + at,
                                         gsi_min_size(k - at, at_once), t.j0, whole * isa->nr);
                x.so_far = at > 0 ? part : NULL;
                x.sums = ends ? sums : part;
                x.before = ends && block > t.block ? sums : NULL;
                isa->skinny_micro(&x, g->b.dtype, false);
            }
        if (t.n % isa->nr)
            gsi_macro_kernel(r,
                             (gsi_position){.chunk = block, .block = block, .j = whole * isa->nr});
    }
    for (size_t p = 0; p < r->p.panels; p++)
        for (size_t s = 0; s < whole; s++)
            skinny_epilogue(r, r->sums + (p * whole + s) * micro, p, s * isa->nr, isa->nr);
}
