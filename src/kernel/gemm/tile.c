/* One tile of a product, on one thread: the loops around the micro-kernel.
 *
 *     for each chunk of k                              kc_blocks blocks
 *         for each MC rows of a                        mc_panels micro-panels
 *             for each micro-panel of b's columns
 *                 for each block of the chunk          the macro-kernel:
 *                     pack b's panel                     in the first MC rows
 *                     for each micro-panel of a          pack it, in the first column of panels;
 *                                                        micro-kernel; after the last block of k,
 *                                                        the epilogue
 *
 * MC rows of a stay in L2. Every panel of b is used right after it is packed; further MC rows find
 * it where it was left, and prefetch it a panel ahead. So b is packed once per tile.
 *
 * Columns of a that are used a few times are read where they lie, if isa->in_place says so.
 *
 * Skinny products are made otherwise: skinny.c. */
#include "kernel/gemm/prefetch.h"

/* ---- planning ---- */

bool gsi_is_skinny_nn(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m)
{
    return gsi_is_skinny(isa, g, m) && !g->b.transposed;
}

/* Whether columns of a are read as they lie, one row of the stored matrix per k: if they are used
 * too few times to be worth packing, and rows share pages. */
static bool is_in_place(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n)
{
    enum { PAGE = 4096 };
    return g->a.transposed && g->a.dtype == GS_F32 && g->k > 0 && !gsi_is_skinny(isa, g, m) &&
           g->a.stride * sizeof(float) <= PAGE / 2 && gsi_ceil_div(n, isa->nr) <= isa->in_place;
}

/* The workspace never grows when m, n or k become smaller, though a chunk may. */
static gsi_plan make_plan(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n,
                          size_t blocks)
{
    const bool nn = gsi_is_skinny_nn(isa, g, m);
    const size_t strips = gsi_ceil_div(n, isa->nr);
    /* Of a smaller m, which has more panels if it is skinny. */
    const size_t skinny =
        isa->skinny_mr ? gsi_ceil_div(gsi_min_size(m, GSI_SKINNY_ROWS), isa->skinny_mr) : 0;
    gsi_plan p = {.panels = nn ? skinny : gsi_ceil_div(m, isa->mr)};
    p.height = nn ? isa->skinny_mr : gsi_ceil_div(m, p.panels); /* else as alike as can be */
    p.in_place = is_in_place(isa, g, m, n);
    p.group = g->a.transposed && !p.in_place ? GSI_GROUP : 1;
    const size_t budget = isa->l2_budget / gsi_a_size(isa, true);
    /* more where b is transposed and there is room: else each row of b is a page */
    p.kc_blocks =
        g->b.transposed ? gsi_max_size(budget / p.panels, isa->kc_blocks) : isa->kc_blocks;
    p.kc_blocks = gsi_min_size(p.kc_blocks, blocks);
    const size_t passes = gsi_ceil_div(p.panels, budget / p.kc_blocks);
    p.mc_panels = gsi_ceil_div(p.panels, passes);
    for (p.l2_shift = 2; p.l2_shift > 0 && (16 >> p.l2_shift) * p.mc_panels < isa->nr;)
        p.l2_shift--;
    p.b_parts = gsi_ceil_div(isa->nr, g->b.transposed ? 16 : GSI_ALIGN / gsi_size_of(g->b.dtype))
                << (g->b.transposed ? p.l2_shift : p.l2_shift + gsi_depth(isa) - 1);
    p.strips = p.kc_blocks == blocks && !nn ? 1 : strips;
    const size_t a = gsi_min_size(gsi_max_size(p.panels, skinny) * blocks, budget);
    const size_t b = passes == 1 ? 1 : strips * p.kc_blocks;
    p.a = a * gsi_a_size(isa, true);
    p.b = b * gsi_b_size(isa);
    p.a_least = isa->pairs ? a : 0;
    p.b_least = isa->pairs ? b : 0;
    p.sums = gsi_max_size(p.strips * p.panels, 2 * strips * skinny) * isa->mr * isa->nr;
    p.bias = gsi_ceil_div(gsi_max_size(m, n), isa->nr) * isa->nr;
    return p;
}

size_t gsi_tile_workspace(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n)
{
    const gsi_plan p = make_plan(isa, g, m, n, gsi_blocks(g));
    const size_t line = GSI_ALIGN / sizeof(float);
    const size_t all = p.a + p.b + p.sums + p.bias + isa->mr * isa->nr + p.a_least + p.b_least;
    return gsi_ceil_div(all, line) * line;
}

/* ---- the epilogue ---- */

/* lanes NULL: nothing is counted. */
static gsi_epilogue epilogue_of(const gs_gemm *g, gsi_lanes *lanes)
{
    return (gsi_epilogue){.dtype = g->c.dtype,
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
    c->underflow += low - zeros;
    c->subnormal += small - low;
    c->inf += lanes->inf;
    c->nan += lanes->nan;
    c->amax = amax > c->amax ? amax : c->amax;
}

void gsi_tile_epilogue(const gsi_gemm_isa *isa, const gs_gemm *g, gsi_tile t, const float *sums,
                       gsi_counts *counts)
{
    gsi_lanes lanes = {0};
    gsi_epilogue e = epilogue_of(g, counts ? &lanes : NULL);
    float bias[GSI_MICRO];
    if (g->bias) {
        const size_t first = g->bias_per_row ? t.i0 : t.j0, n = g->bias_per_row ? t.m : t.n;
        isa->copy(bias, 0, gsi_at(g->bias, g->bias_dtype, first), 0, g->bias_dtype, 1, n, n);
        e.column = g->bias_per_row ? NULL : bias;
        e.row = g->bias_per_row ? bias : NULL;
    }
    const size_t at = t.z * g->c.batch_stride + t.i0 * g->c.stride + t.j0;
    isa->epilogue((char *)g->c.data + at * gsi_size_of(g->c.dtype), sums, t.m, t.n, &e);
    if (counts)
        add_lanes(counts, &lanes, g->c.dtype);
}

/* ---- the macro-kernel ---- */

/* What stays the same from panel to panel of a. */
typedef struct macro {
    size_t k0, k, n; /* of the panel of b */
    bool last;       /* block of k: the epilogue follows */
    float *b;
    gsi_position next; /* panel of b, and where it is packed */
    float *next_b;
    float *a;      /* packed panels, from panel at.mc on */
    size_t a_size; /* words of one */
    uint32_t *a_least, *b_least;
    bool pack_a;
    float *sums;      /* [panels][MR][NR] of the strip */
    size_t c0;        /* element of c of the tile's first row */
    size_t c_advance; /* see prefetch_c */
} macro;

static macro macro_at(const gsi_job *r, const gsi_position *at)
{
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    const gsi_position next = next_panel(r, *at);
    const size_t k0 = at->block * GSI_KC, k = gsi_min_size(g->k - k0, GSI_KC);
    const size_t a_size = gsi_a_size(isa, g->a.transposed), b_size = gsi_b_size(isa);
    const size_t a_number = (at->block - at->chunk) * r->p.mc_panels, b_number = number_of_b(r, at);
    const size_t strip = r->p.strips == 1 ? 0 : at->j / isa->nr;
    return (macro){
        .k0 = k0,
        .k = k,
        .n = gsi_min_size(r->t.n - at->j, isa->nr),
        .last = at->block + 1 == r->t.end,
        .b = r->b + b_number * b_size,
        .next = next,
        .next_b = r->b + (next.j < r->t.n ? number_of_b(r, &next) * b_size : 0),
        .a = r->a + a_number * a_size,
        .a_size = a_size,
        .a_least = r->a_least + a_number,
        .b_least = r->b_least + b_number,
        /* The last columns of a skinny product want a in another layout than those before. */
        .pack_a = k > 0 && !r->p.in_place && (at->j == 0 || gsi_is_skinny(isa, g, r->t.m)),
        .sums = r->sums + strip * r->p.panels * isa->mr * isa->nr + at->j % isa->nr,
        .c0 = r->t.z * g->c.batch_stride + r->t.i0 * g->c.stride + r->t.j0 + at->j,
        .c_advance = isa->nr * gsi_size_of(g->c.dtype) * 16 / gsi_max_size(gsi_words(isa, k), 16),
    };
}

/* Panel p of a, and the rest of its group, is packed where it is met first. */
static const float *panel_of_a(const gsi_job *r, const macro *x, size_t mc, size_t mc_end, size_t p)
{
    const gs_matrix *a = &r->g->a;
    const size_t i = r->t.i0 + p * r->p.height, group = gsi_min_size(r->p.group, mc_end - p);
    float *const packed = x->a + (p - mc) * x->a_size;
    if (r->p.in_place)
        return (const float *)r->a_data + x->k0 * a->stride + i;
    if (x->pack_a && (p - mc) % r->p.group == 0)
        gsi_pack_a(r->isa, packed, a, r->a_data, i,
                   gsi_min_size(r->t.m - p * r->p.height, group * r->p.height), r->p.height, x->k0,
                   x->k, x->a_least + (p - mc));
    return packed;
}

/* The micro-kernel for panel p of a; of pairs the unit's, if it makes them as defined. */
static inline gsi_micro_fn *micro_for(const gsi_job *r, const macro *x, size_t p)
{
    const gsi_gemm_isa *isa = r->isa;
    const bool columns = r->g->a.transposed;
    if (isa->pairs && x->k > 0) {
        r->pairs->all++;
        if (!gsi_pairs_fit(x->a_least[p], *x->b_least)) {
            r->pairs->exact++;
            return columns ? isa->pairs->exact_columns : isa->pairs->exact_rows;
        }
    }
    return columns ? isa->micro_columns : isa->micro_rows;
}

/* To L1, a or c; to L2, b. */
static inline void prefetch_for(gsi_prefetch *to, const gsi_job *r, const gsi_position *at,
                                const macro *x, size_t p, const void *c, const float *sums)
{
    /* One panel of a, in whose time more of b is to be prefetched than goes to L2. */
    const bool alone = (16 >> r->p.l2_shift) * r->p.panels < r->isa->nr;
    if (!prefetch_a(&to[0], r, at, p))
        prefetch_c(&to[0], r, at, c, sums, x->c_advance);
    if (alone)
        prefetch_b(&to[0], r, &x->next, x->next_b, 1);
    prefetch_b(&to[1], r, &x->next, x->next_b, p - at->mc);
}

void gsi_macro_kernel(const gsi_job *r, gsi_position at)
{
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    const macro x = macro_at(r, &at);
    const size_t mc_end = gsi_min_size(at.mc + r->p.mc_panels, r->p.panels);
    const size_t a_step = r->p.in_place ? g->a.stride : isa->a_ld;
    gsi_epilogue e = r->epilogue;
    e.column = g->bias && !g->bias_per_row ? r->bias + at.j : NULL;

    if (x.k > 0 && at.mc == 0)
        gsi_pack_b(isa, x.b, &g->b, r->b_data, r->t.j0 + at.j, x.n, x.k0, x.k, x.b_least);
    for (size_t p = at.mc; p < mc_end; p++) {
        const size_t i = p * r->p.height, m = gsi_min_size(r->t.m - i, r->p.height);
        char *const c = (char *)g->c.data + (x.c0 + i * g->c.stride) * gsi_size_of(g->c.dtype);
        float *const sums = x.sums + p * isa->mr * isa->nr;
        float *const out = x.last ? r->last_sums : sums;
        const float *const a = panel_of_a(r, &x, at.mc, mc_end, p);
        gsi_prefetch prefetch[2] = {{0}, {.base = (uintptr_t)x.b}}; /* which is there anyway */
        if (x.k > 0)
            prefetch_for(prefetch, r, &at, &x, p, c, sums);
        micro_for(r, &x, p - at.mc)(out, at.block > r->t.block ? sums : NULL, a, a_step, x.b, m,
                                    x.n, x.k, prefetch);
        if (x.last) {
            e.row = g->bias && g->bias_per_row ? r->bias + i : NULL;
            isa->epilogue(c, out, m, x.n, &e);
        }
    }
}

/* ---- the tile ---- */

static void run_panels(const gsi_job *r)
{
    const gsi_tile t = r->t;
    for (size_t chunk = t.block; chunk < t.end; chunk += r->p.kc_blocks)
        for (size_t mc = 0; mc < r->p.panels; mc += r->p.mc_panels)
            for (gsi_position at = {chunk, mc, chunk, 0}; at.j < t.n; at = next_panel(r, at))
                gsi_macro_kernel(r, at);
}

void gsi_tile_run(const gsi_gemm_isa *isa, const gs_gemm *g, gsi_tile t, float *workspace,
                  gsi_counts *counts, gsi_pair_counts *pairs)
{
    gsi_lanes lanes = {0};
    gsi_job r = {.isa = isa,
                 .g = g,
                 .t = t,
                 .p = make_plan(isa, g, t.m, t.n, t.end - t.block),
                 .a = workspace,
                 .pairs = pairs,
                 .epilogue = epilogue_of(g, counts ? &lanes : NULL)};
    if (g->k > 0) { /* else they may be anything */
        r.a_data = gsi_at(g->a.data, g->a.dtype, t.z * g->a.batch_stride);
        r.b_data = gsi_at(g->b.data, g->b.dtype, t.z * g->b.batch_stride);
    }
    r.b = r.a + r.p.a;
    r.sums = r.b + r.p.b;
    r.bias = r.sums + r.p.sums;
    r.last_sums = r.bias + r.p.bias;
    r.a_least = (uint32_t *)(r.last_sums + isa->mr * isa->nr);
    r.b_least = r.a_least + r.p.a_least;
    if (g->bias) {
        const size_t first = g->bias_per_row ? t.i0 : t.j0, n = g->bias_per_row ? t.m : t.n;
        isa->copy(r.bias, 0, gsi_at(g->bias, g->bias_dtype, first), 0, g->bias_dtype, 1, n, n);
    }
    const bool skinny = gsi_is_skinny(isa, g, t.m);
    if (skinny && g->b.transposed)
        gsi_skinny_nt(&r);
    else if (skinny && t.n >= isa->nr)
        gsi_skinny_nn(&r);
    else
        run_panels(&r);
    if (counts)
        add_lanes(counts, &lanes, g->c.dtype);
}
