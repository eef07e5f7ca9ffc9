/* A tile of few rows, which reading b bounds: it is multiplied where it lies, each element read
 * once, in its own width. What is left of columns at the right is a panel like any other. */
#include "kernel/gemm_run.h"

/* n columns from j, of rows [k0, k0 + k), straight from b's memory. */
static gsi_few few_of(const gsi_run *r, float *sums, const float *a, size_t k0, size_t k, size_t j,
                      size_t n)
{
    const gs_matrix *b = &r->g->b;
    const size_t at = b->transposed ? j * b->stride + k0 : k0 * b->stride + j;
    return (gsi_few){.sums = sums,
                     .a = a,
                     .b = gsi_at(r->b_data, b->dtype, at),
                     .b_stride = b->stride,
                     .m = r->t.m,
                     .n = n,
                     .k = k,
                     .left = r->g->k - k0};
}

/* n columns from j, whose sums are known. */
static void finish_few(const gsi_run *r, const float *sums, size_t j, size_t n)
{
    const gs_gemm *g = r->g;
    const size_t at = r->t.z * g->c.step + r->t.i0 * g->c.stride + r->t.j0 + j;
    gsi_finish f = r->finish;
    f.row = g->bias && g->bias_per_row ? r->bias : NULL;
    f.column = g->bias && !g->bias_per_row ? r->bias + j : NULL;
    r->isa->finish((char *)g->c.data + at * gsi_size_of(g->c.dtype), sums, r->t.m, n, &f);
}

/* few_width columns at a time, and nr / 2 where that is too wide, of a chunk of k. */
static void run_chunk(const gsi_run *r, size_t first)
{
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    const gsi_tile t = r->t;
    const size_t end = gsi_min_size(first + r->p.chunk, t.end);
    const size_t most = isa->few_width[g->b.dtype != GS_F32];
    const size_t whole = t.n / (isa->nr / 2) * (isa->nr / 2);
    const size_t micro = isa->mr * isa->nr, room = isa->mr * GSI_KC;
    for (size_t block = first; block < end && whole > 0; block++)
        gsi_pack_few(isa, r->a + (block - first) * room, &g->a, r->a_data, t.i0, t.m,
                     block * GSI_KC, gsi_min_size(g->k - block * GSI_KC, GSI_KC));
    for (size_t j = 0, width; j < whole; j += width) {
        width = gsi_min_size(most, whole - j);
        float *const sums = r->sums + (r->p.strips == 1 ? 0 : j / isa->nr * micro) + j % isa->nr;
        for (size_t block = first; block < end; block++) {
            const size_t k0 = block * GSI_KC, k = gsi_min_size(g->k - k0, GSI_KC);
            gsi_few x = few_of(r, sums, r->a + (block - first) * room, k0, k, t.j0 + j, width);
            x.add = block > t.block;
            isa->multiply_few(&x, g->b.dtype, true);
        }
        if (end == t.end)
            finish_few(r, sums, j, width);
    }
    for (size_t block = first; block < end && whole < t.n; block++)
        gsi_run_panel(r, (gsi_place){.first = block, .block = block, .j = whole});
}

void gsi_run_columns(const gsi_run *r)
{
    for (size_t first = r->t.block; first < r->t.end; first += r->p.chunk)
        run_chunk(r, first);
}

/* A few rows of b at a time, all columns of the tile, so that memory is read in long runs. Sums of
 * a block lie behind those of all. */
void gsi_run_rows(const gsi_run *r)
{
    enum { AT_ONCE = 8 };
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    const gsi_tile t = r->t;
    const size_t micro = isa->mr * isa->nr, whole = t.n / isa->nr;
    float *const of_block = r->sums + r->p.strips * micro;
    for (size_t block = t.block; block < t.end; block++) {
        const size_t k0 = block * GSI_KC, k = gsi_min_size(g->k - k0, GSI_KC);
        gsi_pack_few(isa, r->a, &g->a, r->a_data, t.i0, t.m, k0, k);
        for (size_t p = 0; p < k; p += AT_ONCE) {
            gsi_few x = few_of(r, of_block, r->a + p, k0 + p, gsi_min_size(k - p, AT_ONCE), t.j0,
                               whole * isa->nr);
            x.add = p > 0;
            isa->multiply_few(&x, g->b.dtype, false);
        }
        for (size_t s = 0; s < whole * micro; s += micro)
            for (size_t i = s; i < s + t.m * isa->nr; i++)
                r->sums[i] = block > t.block ? r->sums[i] + of_block[i] : of_block[i];
        if (t.n % isa->nr)
            gsi_run_panel(r, (gsi_place){.first = block, .block = block, .j = whole * isa->nr});
    }
    for (size_t s = 0; s < whole; s++)
        finish_few(r, r->sums + s * micro, s * isa->nr, isa->nr);
}
