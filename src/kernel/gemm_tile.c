/* One tile of a product, on one thread.
 *
 *     for each chunk of k                          some blocks, or all if a's rows are few
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
 * Few rows are bound by reading b: it is multiplied where it lies, each element read once, in its
 * own width. */
#include "kernel/gemm.h"

typedef struct plan {
    size_t panels, height;   /* of a's rows, as alike as can be: mr of them or less */
    bool in_place;           /* a is multiplied where it lies */
    size_t group;            /* panels of a packed at a time */
    size_t chunk, slab;      /* blocks and panels packed at a time */
    size_t strips;           /* of columns whose sums are kept: all, where there are chunks */
    size_t bits;             /* 16 >> bits lines of b are asked for every 16 k */
    size_t parts;            /* of a panel of b in memory, of so many lines */
    size_t a, b, sums, bias; /* floats */
} plan;

/* Whether b is multiplied as it lies in memory. */
static bool is_few(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m)
{
    return m <= isa->few && g->k > 0 && !g->b.patches && !g->b.group;
}

bool gsi_reads_rows(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m)
{
    return is_few(isa, g, m) && !g->b.transposed;
}

/* Whether columns of a are read as they lie, a row of the stored matrix a k: if they are used too
 * few times to be worth packing, and rows share pages. */
static bool is_in_place(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n)
{
    enum { PAGE = 4096 };
    return g->a.transposed && g->a.dtype == GS_F32 && g->k > 0 && !is_few(isa, g, m) &&
           g->a.stride * sizeof(float) <= PAGE / 2 && gsi_parts(n, isa->nr) <= isa->in_place;
}

/* Room never grows when m, n or k become smaller, though a chunk may. */
static plan make_plan(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n, size_t blocks)
{
    plan p = {.panels = gsi_parts(m, isa->mr)};
    p.height = gsi_parts(m, p.panels);
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
    const bool rows = gsi_reads_rows(isa, g, m);
    p.strips = p.chunk == blocks && !rows ? 1 : gsi_parts(n, isa->nr);
    p.a = gsi_min_size(p.panels * blocks, room) * gsi_panel_room(isa);
    p.b = (slabs == 1 ? 1 : gsi_parts(n, isa->nr) * p.chunk) * isa->nr * GSI_KC;
    p.sums = gsi_max_size(p.strips * p.panels, 2 * gsi_parts(n, isa->nr)) * isa->mr * isa->nr;
    p.bias = gsi_parts(gsi_max_size(m, n), isa->nr) * isa->nr;
    return p;
}

size_t gsi_tile_scratch(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n)
{
    const plan p = make_plan(isa, g, m, n, gsi_blocks(g));
    const size_t line = GSI_ALIGN / sizeof(float);
    return gsi_parts(p.a + p.b + p.sums + p.bias + isa->mr * isa->nr, line) * line;
}

/* ---- asking for what comes next ---- */

/* Field by field, here and below: a struct copied in larger pieces than it was written in waits
 * until all stores before it have left the core, which took 200 cycles a multiplication. */
static inline void ask(gsi_ahead *x, const void *base, size_t inner, size_t outer)
{
    x->base = (uintptr_t)base;
    x->inner = inner;
    x->outer = outer;
}

/* Lines of the stored matrix to ask for in the course of a multiplication by k: rows `apart` from
 * each other at column c. */
static inline void ask_rows(gsi_ahead *x, const gs_matrix *of, const void *data, size_t r, size_t c,
                            size_t apart)
{
    const size_t row = of->stride * gsi_size_of(of->dtype);
    ask(x, gsi_at(data, of->dtype, r * of->stride + c), apart * row, 16 * row);
}

/* Where k runs along the rows: those from row r on abreast. */
static inline void ask_abreast(gsi_ahead *x, const gs_matrix *of, const void *data, size_t r,
                               size_t c)
{
    const size_t size = gsi_size_of(of->dtype);
    ask(x, gsi_at(data, of->dtype, r * of->stride + c), of->stride * size, 16 * size);
}

typedef struct run {
    const gsi_gemm_isa *isa;
    const gs_gemm *g;
    gsi_tile t;
    plan p;
    const void *a_data, *b_data; /* of the matrix of the batch */
    float *a, *b, *sums, *bias;  /* packed; [strips][panels][mr][nr]; as f32 */
    float *ends;                 /* sums that are finished at once, [mr][nr]: they stay in L1 */
    gsi_finish finish;
} run;

/* A panel of b: columns from j, block number `block`, which is in the chunk from block `first`; for
 * the slab from panel `slab`. */
typedef struct place_b {
    size_t first, slab, block, j;
} place_b;

/* The panel that follows is of the chunk's next block or of the next columns; j reaches t.n after
 * the last. */
static inline place_b next_panel(const run *r, place_b at)
{
    if (++at.block == gsi_min_size(at.first + r->p.chunk, r->t.end)) {
        at.block = at.first;
        at.j += r->isa->nr;
    }
    return at;
}

/* Where a panel of b is packed. */
static inline float *slot_b(const run *r, const place_b *at)
{
    const size_t number = at->j / r->isa->nr * r->p.chunk + at->block - at->first;
    return r->b + (r->p.slab == r->p.panels ? 0 : number) * r->isa->nr * GSI_KC;
}

/* Part of the panel of b at `at`, which is multiplied next: some of its lines every 16 k, first of
 * memory, then of where it is packed. If there are none, x stays as it is. Without a division,
 * as it is done for every multiplication. */
static inline void ask_b(gsi_ahead *x, const run *r, const place_b *at, const float *packed,
                         size_t part)
{
    const gs_matrix *b = &r->g->b;
    const size_t bits = r->p.bits, apart = (size_t)1 << bits, each = 16 >> bits;
    const size_t wide = GSI_ALIGN / gsi_size_of(b->dtype);
    const size_t in_memory = at->slab > 0 ? 0 : r->p.parts, k0 = at->block * GSI_KC;
    const size_t j = at->j + (b->transposed ? part * each : (part >> bits) * wide);
    if (part >= in_memory) {
        part -= in_memory;
        if (r->p.slab == r->p.panels || part * each >= r->isa->nr)
            return;
        ask(x, packed + part * each * GSI_KC, GSI_ALIGN, each * GSI_ALIGN);
    } else {
        if (j >= r->t.n || b->patches || b->group)
            return;
        if (b->transposed)
            ask_abreast(x, b, r->b_data, r->t.j0 + j, k0);
        else
            ask_rows(x, b, r->b_data, k0 + (part & (apart - 1)), r->t.j0 + j, apart);
    }
    x->each = each;
}

/* Rows of a that are packed or read soon, while panel p is multiplied by the panel of b at `at`: in
 * the first column of panels those a group on, and in the last column the first ones of the next
 * slab. False if there are none. */
static inline bool ask_a(gsi_ahead *x, const run *r, const place_b *at, size_t p)
{
    const gs_matrix *a = &r->g->a;
    const size_t group = r->p.group, height = r->p.height;
    const size_t slab_end = gsi_min_size(at->slab + r->p.slab, r->p.panels);
    const size_t chunk_end = gsi_min_size(at->first + r->p.chunk, r->t.end);
    size_t block = at->block;
    if (at->j == 0) {
        p += group;
        if (p >= slab_end) {
            p -= slab_end - at->slab;
            block++;
        }
        if (block == chunk_end)
            return false;
    } else if (at->j + r->isa->nr >= r->t.n && block + 1 == chunk_end && p < at->slab + group) {
        p = slab_end < r->p.panels ? p + r->p.slab : p - at->slab;
        block = slab_end < r->p.panels ? at->first : chunk_end;
    } else {
        return false;
    }
    if (p >= r->p.panels || block == r->t.end || a->patches)
        return false;
    const size_t apart = 16 / r->isa->asked; /* panels share lines, and the rows they ask for */
    if (a->transposed)
        ask_rows(x, a, r->a_data, block * GSI_KC + p % apart,
                 r->t.i0 + gsi_min_size((p + 1) * height, r->t.m) - 1, apart);
    else
        ask_abreast(x, a, r->a_data, r->t.i0 + p * height, block * GSI_KC);
    return true;
}

/* Else what the multiplication ends with: c, again and again, so that it stays in L1, or its sums;
 * those of an earlier chunk have left L2, and are asked for a panel ahead. along: bytes of a row of
 * c by which asking goes on every 16 k. */
static inline void ask_end(gsi_ahead *x, const run *r, const place_b *at, const void *c,
                           const float *sums, size_t along)
{
    const size_t micro = r->isa->mr * r->isa->nr * sizeof(float);
    const bool far = at->first > r->t.block && at->block == at->first;
    if (at->block + 1 == r->t.end)
        ask(x, c, r->g->c.stride * gsi_size_of(r->g->c.dtype), along);
    else
        ask(x, (const char *)sums + (far ? micro : 0), micro / GSI_KC, micro * 16 / GSI_KC);
}

/* ---- the tile ---- */

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
    if (type != GS_F32) {
        const gsi_row row = type == GS_F16 ? GSI_ROW_F16 : GSI_ROW_BF16;
        amax = gsi_widen(gsi_narrow(amax, row, GSI_NEAREST, false), row);
    }
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

/* A slab of rows times a panel of b. */
static void run_panel(const run *r, place_b at)
{
    const place_b next = next_panel(r, at);
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    const gsi_tile t = r->t;
    const bool last = at.block + 1 == r->t.end;
    const size_t k0 = at.block * GSI_KC, k = gsi_min_size(g->k - k0, GSI_KC);
    const size_t n = gsi_min_size(t.n - at.j, isa->nr);
    const bool columns = g->a.transposed;
    /* The last columns of few rows want a in another layout than those before. */
    const bool pack = k > 0 && !r->p.in_place && (at.j == 0 || is_few(isa, g, t.m));
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

static void run_panels(const run *r)
{
    const gsi_tile t = r->t;
    for (size_t first = t.block; first < t.end; first += r->p.chunk)
        for (size_t slab = 0; slab < r->p.panels; slab += r->p.slab)
            for (place_b at = {first, slab, first, 0}; at.j < t.n; at = next_panel(r, at))
                run_panel(r, at);
}

/* ---- few rows ---- */

/* n columns from j, of rows [k0, k0 + k), straight from b's memory. */
static gsi_few few_of(const run *r, float *sums, const float *a, size_t k0, size_t k, size_t j,
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
static void finish_few(const run *r, const float *sums, size_t j, size_t n)
{
    const gs_gemm *g = r->g;
    const size_t at = r->t.z * g->c.step + r->t.i0 * g->c.stride + r->t.j0 + j;
    gsi_finish f = r->finish;
    f.row = g->bias && g->bias_per_row ? r->bias : NULL;
    f.column = g->bias && !g->bias_per_row ? r->bias + j : NULL;
    r->isa->finish((char *)g->c.data + at * gsi_size_of(g->c.dtype), sums, r->t.m, n, &f);
}

/* few_width columns at a time, of a chunk of k. */
static void run_chunk(const run *r, size_t first)
{
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    const gsi_tile t = r->t;
    const size_t end = gsi_min_size(first + r->p.chunk, t.end);
    const size_t width = isa->few_width[g->b.dtype != GS_F32], whole = t.n / width * width;
    const size_t micro = isa->mr * isa->nr, room = isa->mr * GSI_KC;
    for (size_t block = first; block < end; block++)
        gsi_pack_few(isa, r->a + (block - first) * room, &g->a, r->a_data, t.i0, t.m,
                     block * GSI_KC, gsi_min_size(g->k - block * GSI_KC, GSI_KC));
    for (size_t j = 0; j < whole; j += width) {
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
        run_panel(r, (place_b){.first = block, .block = block, .j = whole});
}

/* Few rows times a b that is stored column by column. */
static void run_columns(const run *r)
{
    for (size_t first = r->t.block; first < r->t.end; first += r->p.chunk)
        run_chunk(r, first);
}

/* Few rows times a b that is stored row by row: a few rows of b at a time, all columns of the tile,
 * so that memory is read in long runs. Sums of a block lie behind those of all. */
static void run_rows(const run *r)
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
            run_panel(r, (place_b){.first = block, .block = block, .j = whole * isa->nr});
    }
    for (size_t s = 0; s < whole; s++)
        finish_few(r, r->sums + s * micro, s * isa->nr, isa->nr);
}

void gsi_tile_run(const gsi_gemm_isa *isa, const gs_gemm *g, gsi_tile t, float *scratch,
                  gsi_counts *counts)
{
    gsi_lanes lanes = {0};
    run r = {.isa = isa,
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
    const bool few = is_few(isa, g, t.m);
    if (few && g->b.transposed)
        run_columns(&r);
    else if (few && t.n >= isa->nr)
        run_rows(&r);
    else
        run_panels(&r);
    if (counts)
        add_lanes(counts, &lanes, g->c.dtype);
}
