/* One tile of a product, on one thread.
 *
 *     for each chunk of k                      all of it, if a's rows then fit in L2
 *         pack a's rows                        -> L2
 *         for each panel of b's columns
 *             for each block of the chunk
 *                 pack b's panel               -> L1
 *                 for each panel of a's rows   multiply; after the last block, finish
 *
 * Every panel of b is used right after it is written. So a product with few rows, which is bound by
 * reading b, needs no path of its own: it reads b once, in its own width, in order. */
#include "kernel/gemm.h"

enum { CHUNK_OF_ROWS = 2 }; /* blocks: 768 pages, half of what a second-level TLB holds */

typedef struct plan {
    size_t panels;           /* of a's rows */
    size_t blocks, chunk;    /* of k; blocks a chunk */
    size_t strips;           /* of columns whose sums are kept: all, where there are chunks */
    size_t a, b, sums, bias; /* floats */
} plan;

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }
static size_t parts(size_t n, size_t size) { return n / size + (n % size > 0); }

static size_t panel_room(const gsi_gemm_isa *isa) { return isa->mr_room * GSI_KC; }

static plan make_plan(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n)
{
    plan p = {.panels = parts(m, isa->mr), .blocks = max_size(parts(g->k, GSI_KC), 1)};
    const size_t block = p.panels * panel_room(isa);
    p.chunk = min_size(max_size(isa->a_room / block, 1), p.blocks);
    if (!g->b.transposed) /* a panel has a row a k, most in a page of its own */
        p.chunk = min_size(p.chunk, CHUNK_OF_ROWS);
    p.strips = p.chunk == p.blocks ? 1 : parts(n, isa->nr);
    p.a = p.chunk * block;
    p.b = isa->nr * GSI_KC;
    p.sums = p.strips * p.panels * isa->mr * isa->nr;
    p.bias = parts(max_size(m, n), isa->nr) * isa->nr;
    return p;
}

size_t gsi_tile_scratch(const gsi_gemm_isa *isa, const gs_gemm *g, size_t m, size_t n)
{
    const plan p = make_plan(isa, g, m, n);
    const size_t line = GSI_ALIGN / sizeof(float);
    /* A smaller tile packs more blocks at once, up to a_room. */
    const size_t a = max_size(min_size(isa->a_room, p.blocks * p.panels * panel_room(isa)), p.a);
    return parts(a + p.b + p.sums + p.bias, line) * line;
}

/* ---- packing ---- */

/* Columns of patches that lie side by side in the array: those of a row of the filter, or of one
 * place of it where they are spread. Those outside of [begin, end) are zero. */
typedef struct line {
    ptrdiff_t at; /* where column 0 of the line lies, or would */
    size_t begin, end;
} line;

static size_t line_length(const gs_patches *p) { return p->spread ? p->c : p->kw * p->c; }

/* The place that position y of the grid and k of the filter read; -1: none. */
static ptrdiff_t place(size_t y, size_t k, size_t length, const gs_patches *p)
{
    ptrdiff_t at = (ptrdiff_t)(y + p->pad) - (ptrdiff_t)k;
    if (!p->spread)
        at = (ptrdiff_t)(y * p->stride + k) - (ptrdiff_t)p->pad;
    else if (at >= 0 && p->stride > 1)
        at = at % (ptrdiff_t)p->stride ? -1 : at / (ptrdiff_t)p->stride;
    return at < (ptrdiff_t)length ? at : -1;
}

/* Where a row of patches is on the grid: divisions are made once a row, not once a line. */
typedef struct spot {
    size_t image, y, x;
} spot;

static spot find_spot(const gs_patches *p, size_t row)
{
    const size_t above = row / p->rows_w, image = above / p->rows_h;
    return (spot){image, above - image * p->rows_h, row - above * p->rows_w};
}

/* Row ky of the filter there, or place kx of it. */
static line find_line(const gs_patches *p, spot s, size_t ky, size_t kx)
{
    const ptrdiff_t iy = place(s.y, ky, p->h, p);
    if (iy < 0)
        return (line){0};
    const ptrdiff_t above = (ptrdiff_t)(s.image * p->h + (size_t)iy) * (ptrdiff_t)p->w;
    if (p->spread) {
        const ptrdiff_t ix = place(s.x, kx, p->w, p);
        return ix < 0 ? (line){0} : (line){(above + ix) * (ptrdiff_t)p->c, 0, p->c};
    }
    const ptrdiff_t left = (ptrdiff_t)(s.x * p->stride) - (ptrdiff_t)p->pad;
    const ptrdiff_t right = (ptrdiff_t)p->w - left; /* filter columns up to the array's end */
    const size_t first = left < 0 ? min_size((size_t)-left, p->kw) : 0;
    const size_t last = right < 0 ? 0 : min_size((size_t)right, p->kw);
    return (line){(above + left) * (ptrdiff_t)p->c, first * p->c, max_size(first, last) * p->c};
}

/* dst[0..n) = columns [first, first + n) of a row of patches. */
static void pack_patches(float *dst, const gs_matrix *x, const void *data, gsi_copy_fn *copy,
                         size_t row, size_t first, size_t n)
{
    const gs_patches *p = x->patches;
    const size_t length = line_length(p), lines = p->spread ? p->kw : 1;
    const size_t number = first / length;
    const spot s = find_spot(p, row);
    size_t ky = number / lines, kx = number - ky * lines, from = first - number * length;
    for (size_t done = 0; done < n; from = 0) {
        const size_t take = min_size(length - from, n - done);
        const line l = find_line(p, s, ky, kx);
        const size_t begin = min_size(max_size(l.begin, from), from + take);
        const size_t end = max_size(min_size(l.end, from + take), begin);
        float *out = dst + done;
        if (begin > from)
            memset(out, 0, (begin - from) * sizeof *out);
        if (end > begin)
            copy(out + (begin - from), 0, gsi_at(data, x->dtype, (size_t)(l.at + (ptrdiff_t)begin)),
                 0, x->dtype, 1, end - begin, end - begin);
        if (from + take > end)
            memset(out + (end - from), 0, (from + take - end) * sizeof *out);
        done += take;
        kx = kx + 1 == lines ? 0 : kx + 1;
        ky += kx == 0;
    }
}

/* Rows of the stored matrix a few at a time, several panels wide: 56 bytes of each are too little
 * for one walk through the pages. */
enum { GROUP = 4, ABREAST = 16 };

static void pack_columns(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                         size_t i, size_t m, size_t k0, size_t k)
{
    for (size_t r = 0; r < k; r += ABREAST)
        for (size_t c = 0; c < m; c += isa->mr)
            isa->copy(dst + c / isa->mr * panel_room(isa) + r * isa->mr_room, isa->mr_room,
                      gsi_at(data, x->dtype, (k0 + r) * x->stride + i + c), x->stride, x->dtype,
                      min_size(k - r, ABREAST), min_size(m - c, isa->mr), isa->mr_room);
}

/* Panels of m rows from row i, k from k0. */
static void pack_a(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                   size_t i, size_t m, size_t k0, size_t k)
{
    gsi_copy_fn *copy = isa->copy;
    if (x->patches)
        for (size_t r = 0; r < m; r++)
            pack_patches(dst + r * GSI_KC, x, data, copy, i + r, k0, k);
    else if (x->transposed)
        pack_columns(isa, dst, x, data, i, m, k0, k);
    else
        copy(dst, GSI_KC, gsi_at(data, x->dtype, i * x->stride + k0), x->stride, x->dtype, m, k, k);
}

/* A panel of n columns from column j, k from k0. */
static void pack_b(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                   size_t j, size_t n, size_t k0, size_t k)
{
    const size_t nr = isa->nr;
    gsi_copy_fn *copy = isa->copy;
    if (x->patches) {
        for (size_t r = 0; r < k; r++) {
            pack_patches(dst + r * nr, x, data, copy, k0 + r, j, n);
            memset(dst + r * nr + n, 0, (nr - n) * sizeof *dst);
        }
    } else if (x->transposed) {
        isa->transpose(dst, nr, gsi_at(data, x->dtype, j * x->stride + k0), x->stride, x->dtype, n,
                       k);
    } else if (x->group) {
        for (size_t r = k0, take; r < k0 + k; r += take, dst += take * nr) {
            const size_t in = r % x->group, at = r / x->group * x->group_step + in * x->stride;
            take = min_size(x->group - in, k0 + k - r);
            copy(dst, nr, gsi_at(data, x->dtype, at + j), x->stride, x->dtype, take, n, nr);
        }
    } else {
        copy(dst, nr, gsi_at(data, x->dtype, k0 * x->stride + j), x->stride, x->dtype, k, n, nr);
    }
}

/* Lines of the stored matrix to ask for in the course of a multiplication by k: either row after
 * row at column c, or, where k runs along the rows, 16 rows from row r abreast. */
static gsi_ahead look_ahead(const gs_matrix *x, const void *data, size_t r, size_t c, bool abreast)
{
    const size_t row = x->stride * gsi_size_of(x->dtype);
    return (gsi_ahead){.base = (uintptr_t)gsi_at(data, x->dtype, r * x->stride + c),
                       .inner = row,
                       .outer = abreast ? 16 * gsi_size_of(x->dtype) : 16 * row};
}

/* ---- the tile ---- */

typedef struct run {
    const gsi_gemm_isa *isa;
    const gs_gemm *g;
    gsi_tile t;
    plan p;
    const void *a_data, *b_data; /* of the matrix of the batch */
    float *a, *b, *sums, *bias;  /* packed; [strips][panels][mr][nr]; as f32 */
    gsi_finish finish;
} run;

/* A panel of b: columns from j, block number `block`, which is in the chunk from block `first`. */
typedef struct place_b {
    size_t first, block, j;
} place_b;

/* The panel that follows is of the chunk's next block or of the next columns; j reaches t.n after
 * the last. */
static place_b next_panel(const run *r, place_b at)
{
    if (at.block + 1 < min_size(at.first + r->p.chunk, r->p.blocks))
        return (place_b){at.first, at.block + 1, at.j};
    return (place_b){at.first, at.first, at.j + r->isa->nr};
}

/* Part of a panel of b: 16 of its columns, or a line of each of its rows. `idle` if there is none.
 */
static gsi_ahead ahead_b(const run *r, place_b at, size_t part, gsi_ahead idle)
{
    const gs_matrix *b = &r->g->b;
    const size_t a_line = GSI_ALIGN / gsi_size_of(b->dtype), k0 = at.block * GSI_KC;
    const size_t j = at.j + part * (b->transposed ? 16 : a_line);
    if (j >= min_size(at.j + r->isa->nr, r->t.n) || b->patches || b->group)
        return idle;
    return b->transposed ? look_ahead(b, r->b_data, r->t.j0 + j, k0, true)
                         : look_ahead(b, r->b_data, k0, r->t.j0 + j, false);
}

/* What to ask for while rows [i, i + mr) are multiplied by the panel at `at`: the rows of a that
 * are packed next, in the first column of panels; else c, which is written soon; a part of b's next
 * panel. `idle` is a place that costs nothing. */
static void set_ahead(gsi_ahead ahead[2], const run *r, place_b at, size_t i, const void *c,
                      const void *idle)
{
    const gs_gemm *g = r->g;
    const gs_matrix *a = &g->a;
    const size_t ahead_rows = a->transposed ? GROUP * r->isa->mr : r->isa->mr;
    const size_t k0 = at.block * GSI_KC;
    ahead[0] = ahead[1] = (gsi_ahead){(uintptr_t)idle, 0, 0};
    if (at.j == 0 && i + ahead_rows < r->t.m && !a->patches) {
        const size_t row = r->t.i0 + i + ahead_rows;
        const size_t last = min_size(row + r->isa->mr, r->t.i0 + r->t.m) - 1;
        ahead[0] = a->transposed ? look_ahead(a, r->a_data, k0, last, false)
                                 : look_ahead(a, r->a_data, row, k0, true);
    } else if (at.j > 0 && at.block + 1 == r->p.blocks) {
        ahead[0] = (gsi_ahead){(uintptr_t)c, g->c.stride * gsi_size_of(g->c.dtype), GSI_ALIGN};
    }

    const size_t part = i / r->isa->mr;
    ahead[1] = ahead_b(r, next_panel(r, at), part, ahead[1]);
    if (r->p.panels == 1) /* few rows: all of the panel while there is time */
        ahead[0] = ahead_b(r, next_panel(r, at), part + 1, ahead[0]);
}

static void multiply_few(const run *r, float *sum, const float *panel, place_b at,
                         const gsi_ahead *ahead)
{
    const gs_matrix *b = &r->g->b;
    const bool columns = r->g->a.transposed;
    const size_t k0 = at.block * GSI_KC, j = r->t.j0 + at.j;
    const size_t first = b->transposed ? j * b->stride + k0 : k0 * b->stride + j;
    r->isa->multiply_few(sum, panel, columns ? 1 : GSI_KC, columns ? r->isa->mr_room : 1,
                         gsi_at(r->b_data, b->dtype, first), b->stride, b->dtype, b->transposed,
                         r->t.m, min_size(r->g->k - k0, GSI_KC), at.block > 0, ahead);
}

/* All rows of the tile times a panel of b. */
static void run_panel(const run *r, place_b at)
{
    const gsi_gemm_isa *isa = r->isa;
    const gs_gemm *g = r->g;
    const gsi_tile t = r->t;
    const bool last = at.block + 1 == r->p.blocks;
    const size_t k0 = at.block * GSI_KC, k = min_size(g->k - k0, GSI_KC);
    const size_t n = min_size(t.n - at.j, isa->nr), group = (g->a.transposed ? GROUP : 1) * isa->mr;
    const size_t strip = r->p.strips == 1 ? 0 : at.j / isa->nr;
    float *const sums = r->sums + strip * r->p.panels * isa->mr * isa->nr;
    float *const rows = r->a + (at.block - at.first) * r->p.panels * panel_room(isa);
    gsi_multiply_fn *multiply = g->a.transposed ? isa->multiply_columns : isa->multiply_rows;

    const bool few =
        t.m <= isa->few && n == isa->nr && k > 0 && k % 32 == 0 && !g->b.patches && !g->b.group;
    if (!few)
        pack_b(isa, r->b, &g->b, r->b_data, t.j0 + at.j, n, k0, k);
    for (size_t i = 0; i < t.m; i += isa->mr) {
        const size_t m = min_size(t.m - i, isa->mr);
        const size_t element = t.z * g->c.step + (t.i0 + i) * g->c.stride + t.j0 + at.j;
        char *const c = (char *)g->c.data + element * gsi_size_of(g->c.dtype);
        float *const sum = sums + i * isa->nr, *const panel = rows + i / isa->mr * panel_room(isa);
        gsi_ahead ahead[2];
        if (at.j == 0 && i % group == 0)
            pack_a(isa, panel, &g->a, r->a_data, t.i0 + i, min_size(t.m - i, group), k0, k);
        set_ahead(ahead, r, at, i, c, panel);
        if (few)
            multiply_few(r, sum, panel, at, ahead);
        else
            multiply(sum, panel, r->b, m, n, k, at.block > 0, ahead);
        if (last) {
            gsi_finish f = r->finish;
            f.column = g->bias && !g->bias_per_row ? r->bias + at.j : NULL;
            f.row = g->bias && g->bias_per_row ? r->bias + i : NULL;
            isa->finish(c, sum, m, n, &f);
        }
    }
}

void gsi_tile_run(const gsi_gemm_isa *isa, const gs_gemm *g, gsi_tile t, float *scratch,
                  gsi_counts *counts)
{
    run r = {.isa = isa,
             .g = g,
             .t = t,
             .p = make_plan(isa, g, t.m, t.n),
             .a_data = gsi_at(g->a.data, g->a.dtype, t.z * g->a.step),
             .b_data = gsi_at(g->b.data, g->b.dtype, t.z * g->b.step),
             .a = scratch,
             .finish = {.dtype = g->c.dtype,
                        .stride = g->c.stride,
                        .beta = g->beta,
                        .limits = g->c.dtype == GS_F32 ? (gsi_limits){1, 0x00800000}
                                                       : gsi_limits_of(g->c.dtype),
                        .counts = counts}};
    r.b = r.a + r.p.a;
    r.sums = r.b + r.p.b;
    r.bias = r.sums + r.p.sums;
    if (g->bias) {
        const size_t first = g->bias_per_row ? t.i0 : t.j0, n = g->bias_per_row ? t.m : t.n;
        isa->copy(r.bias, 0, gsi_at(g->bias, g->bias_dtype, first), 0, g->bias_dtype, 1, n, n);
    }
    for (size_t first = 0; first < r.p.blocks; first += r.p.chunk)
        for (place_b at = {first, first, 0}; at.j < t.n; at = next_panel(&r, at))
            run_panel(&r, at);
}
