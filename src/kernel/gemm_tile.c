/* One tile of a product, on one thread.
 *
 *     for each chunk of k                          isa->chunk blocks or more
 *         for each slab of rows
 *             for each panel of b's columns
 *                 for each block of the chunk
 *                     pack b's panel, in the first slab
 *                     for each panel of a's rows   pack it, in the first column; multiply; after
 *                                                  the last block, finish
 *
 * A slab of a stays in L2. Every panel of b is used right after it is written; further slabs find
 * it where it was left, and ask for it a panel ahead. So b is packed once a tile.
 *
 * Columns of a that are used a few times are read where they lie, if isa->in_place says so.
 *
 * Few rows are made otherwise: gemm_few.c. */
#include "kernel/gemm_ask.h"

/* ---- planning ---- */

bool gsi_reads_rows(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m)
{
    return gsi_is_few(isa, g, m) && !g->b.transposed;
}

/* Whether columns of a are read as they lie, a row of the stored matrix a k: if they are used too
 * few times to be worth packing, and rows share pages. */
static bool is_in_place(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n)
{
    enum { PAGE = 4096 };
    return g->a.transposed && g->a.dtype == GS_F32 && g->k > 0 && !gsi_is_few(isa, g, m) &&
           g->a.stride * sizeof(float) <= PAGE / 2 && gsi_parts(n, isa->nr) <= isa->in_place;
}

/* Room never grows when m, n or k become smaller, though a chunk may. */
static gsi_plan make_plan(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n,
                          size_t blocks)
{
    const bool rows = gsi_reads_rows(isa, g, m);
    const size_t strips = gsi_parts(n, isa->nr);
    /* Of a smaller m, which has more panels if its rows are few. */
    const size_t few = isa->few ? gsi_parts(gsi_min_size(m, GSI_FEW_ROWS), isa->few) : 0;
    gsi_plan p = {.panels = rows ? few : gsi_parts(m, isa->mr)};
    p.height = rows ? isa->few : gsi_parts(m, p.panels); /* else as alike as can be */
    p.in_place = is_in_place(isa, g, m, n);
    p.group = g->a.transposed && !p.in_place ? GSI_GROUP : 1;
    const size_t room = isa->a_room / gsi_panel_room(isa);
    /* more where b is transposed and there is room: else each row of b is a page */
    p.chunk = g->b.transposed ? gsi_max_size(room / p.panels, isa->chunk) : isa->chunk;
    p.chunk = gsi_min_size(p.chunk, blocks);
    const size_t slabs = gsi_parts(p.panels, room / p.chunk);
    p.slab = gsi_parts(p.panels, slabs);
    for (p.bits = 2; p.bits > 0 && (16 >> p.bits) * p.slab < isa->nr;)
        p.bits--;
    p.parts = gsi_parts(isa->nr, g->b.transposed ? 16 : GSI_ALIGN / gsi_size_of(g->b.dtype))
              << p.bits;
    p.strips = p.chunk == blocks && !rows ? 1 : strips;
    p.a = gsi_min_size(gsi_max_size(p.panels, few) * blocks, room) * gsi_panel_room(isa);
    p.b = (slabs == 1 ? 1 : strips * p.chunk) * isa->nr * GSI_KC;
    p.sums = gsi_max_size(p.strips * p.panels, 2 * strips * few) * isa->mr * isa->nr;
    p.bias = gsi_parts(gsi_max_size(m, n), isa->nr) * isa->nr;
    return p;
}

size_t gsi_tile_scratch(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n)
{
    const gsi_plan p = make_plan(isa, g, m, n, gsi_blocks(g));
    const size_t line = GSI_ALIGN / sizeof(float);
    return gsi_parts(p.a + p.b + p.sums + p.bias + isa->mr * isa->nr, line) * line;
}

/* ---- finishing ---- */

/* lanes NULL: nothing is counted. */
static gsi_finish finish_of(const gs_gemm *g, gsi_lanes *lanes)
{
    return (gsi_finish){.dtype = g->c.dtype,
                        .stride = g->c.stride,
                        .beta = g->beta,
                        .limits = gsi_limits_of(g->c.dtype),
                        .lanes = lanes};
}

/* The largest is rounded as all were. */
static void add_lanes(gsi_counts *c, const gsi_lanes *lanes, gs_dtype type)
{
    uint64_t zeros = 0, low = 0, small = 0;
    uint32_t amax = 0;
    for (size_t i = 0; i < GSI_LINE; i++) {
        zeros += lanes->zeros[i];
        low += lanes->low[i];
        small += lanes->small[i];
        amax = lanes->amax[i] > amax ? lanes->amax[i] : amax;
    }
    if (type != GS_F32)
        amax = gsi_widen(gsi_narrow(amax, gsi_row_of(type), GSI_NEAREST, false), gsi_row_of(type));
    c->zero += zeros - lanes->spare;
    c->flushed += low - zeros;
    c->subnormal += small - low;
    c->inf += lanes->inf;
    c->nan += lanes->nan;
    c->amax = amax > c->amax ? amax : c->amax;
}

void gsi_tile_finish(const gsi_gemm_isa *isa, const gs_gemm *g, gsi_tile t, const float *sums,
                     gsi_counts *counts)
{
    gsi_lanes lanes = {0};
    gsi_finish f = finish_of(g, counts ? &lanes : NULL);
    float bias[GSI_MICRO];
    if (g->bias) {
        const size_t first = g->bias_per_row ? t.i0 : t.j0, n = g->bias_per_row ? t.m : t.n;
        isa->copy(bias, 0, gsi_at(g->bias, g->bias_dtype, first), 0, g->bias_dtype, 1, n, n);
        f.column = g->bias_per_row ? NULL : bias;
        f.row = g->bias_per_row ? bias : NULL;
    }
    const size_t at = t.z * g->c.step + t.i0 * g->c.stride + t.j0;
    isa->finish((char *)g->c.data + at * gsi_size_of(g->c.dtype), sums, t.m, t.n, &f);
    if (counts)
        add_lanes(counts, &lanes, g->c.dtype);
}

/* ---- the tile ---- */

void gsi_run_panel(const gsi_run *r, gsi_place at)
{
    const gsi_place next = next_panel(r, at);
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    const gsi_tile t = r->t;
    const bool last = at.block + 1 == r->t.end;
    const size_t k0 = at.block * GSI_KC, k = gsi_min_size(g->k - k0, GSI_KC);
    const size_t n = gsi_min_size(t.n - at.j, isa->nr);
    const bool columns = g->a.transposed;
    /* The last columns of few rows want a in another layout than those before. */
    const bool pack = k > 0 && !r->p.in_place && (at.j == 0 || gsi_is_few(isa, g, t.m));
    const size_t group = r->p.group, height = r->p.height;
    const size_t end = gsi_min_size(at.slab + r->p.slab, r->p.panels);
    const size_t strip = r->p.strips == 1 ? 0 : at.j / isa->nr;
    float *const sums = r->sums + strip * r->p.panels * isa->mr * isa->nr + at.j % isa->nr;
    const size_t room = columns ? gsi_panel_room(isa) : isa->mr * GSI_KC;
    const size_t step = r->p.in_place ? g->a.stride : isa->mr_room;
    float *const rows = r->a + (at.block - at.first) * r->p.slab * room;
    float *const b = slot_b(r, &at), *const next_b = next.j < t.n ? slot_b(r, &next) : r->b;
    const size_t c0 = t.z * g->c.step + t.i0 * g->c.stride + t.j0 + at.j;
    const size_t along = isa->nr * gsi_size_of(g->c.dtype) * 16 / gsi_max_size(k, 16);
    /* One panel of a, in whose time more of b is to be asked for than goes to L2. */
    const bool alone = (16 >> r->p.bits) * r->p.panels < isa->nr;
    gsi_multiply_fn *multiply = columns ? isa->multiply_columns : isa->multiply_rows;
    gsi_finish f = r->finish;
    f.column = g->bias && !g->bias_per_row ? r->bias + at.j : NULL;

    if (k > 0 && at.slab == 0)
        gsi_pack_b(isa, b, &g->b, r->b_data, t.j0 + at.j, n, k0, k);
    for (size_t p = at.slab; p < end; p++) {
        const size_t i = p * height, m = gsi_min_size(t.m - i, height);
        char *const c = (char *)g->c.data + (c0 + i * g->c.stride) * gsi_size_of(g->c.dtype);
        float *const sum = sums + p * isa->mr * isa->nr;
        float *const out = last ? r->ends : sum;
        float *const packed = rows + (p - at.slab) * room;
        const float *const panel =
            r->p.in_place ? (const float *)r->a_data + k0 * g->a.stride + t.i0 + i : packed;
        gsi_ahead ahead[2] = {{0}, {.base = (uintptr_t)b}}; /* which is there, if all else is */
        if (pack && (p - at.slab) % group == 0)
            gsi_pack_a(isa, packed, &g->a, r->a_data, t.i0 + i,
                       gsi_min_size(t.m - i, gsi_min_size(group, end - p) * height), height, k0, k);
        if (k > 0) {
            if (!ask_a(&ahead[0], r, &at, p))
                ask_end(&ahead[0], r, &at, c, sum, along);
            if (alone)
                ask_b(&ahead[0], r, &next, next_b, 1);
            ask_b(&ahead[1], r, &next, next_b, p - at.slab);
        }
        multiply(out, at.block > t.block ? sum : NULL, panel, step, b, m, n, k, ahead);
        if (last) {
            f.row = g->bias && g->bias_per_row ? r->bias + i : NULL;
            isa->finish(c, out, m, n, &f);
        }
    }
}

static void run_panels(const gsi_run *r)
{
    const gsi_tile t = r->t;
    for (size_t first = t.block; first < t.end; first += r->p.chunk)
        for (size_t slab = 0; slab < r->p.panels; slab += r->p.slab)
            for (gsi_place at = {first, slab, first, 0}; at.j < t.n; at = next_panel(r, at))
                gsi_run_panel(r, at);
}

void gsi_tile_run(const gsi_gemm_isa *isa, const gs_gemm *g, gsi_tile t, float *scratch,
                  gsi_counts *counts)
{
    gsi_lanes lanes = {0};
    gsi_run r = {.isa = isa,
                 .g = g,
                 .t = t,
                 .p = make_plan(isa, g, t.m, t.n, t.end - t.block),
                 .a = scratch,
                 .finish = finish_of(g, counts ? &lanes : NULL)};
    if (g->k > 0) { /* else they may be anything */
        r.a_data = gsi_at(g->a.data, g->a.dtype, t.z * g->a.step);
        r.b_data = gsi_at(g->b.data, g->b.dtype, t.z * g->b.step);
    }
    r.b = r.a + r.p.a;
    r.sums = r.b + r.p.b;
    r.bias = r.sums + r.p.sums;
    r.ends = r.bias + r.p.bias;
    if (g->bias) {
        const size_t first = g->bias_per_row ? t.i0 : t.j0, n = g->bias_per_row ? t.m : t.n;
        isa->copy(r.bias, 0, gsi_at(g->bias, g->bias_dtype, first), 0, g->bias_dtype, 1, n, n);
    }
    const bool few = gsi_is_few(isa, g, t.m);
    if (few && g->b.transposed)
        gsi_run_columns(&r);
    else if (few && t.n >= isa->nr)
        gsi_run_rows(&r);
    else
        run_panels(&r);
    if (counts)
        add_lanes(counts, &lanes, g->c.dtype);
}
