/* The parts of a tile for one instruction set: a template. The including source has defined
 *
 *     #define WIDTH, TARGET                     and included kernel/vec.h, see there
 *     #define UNROLL                            before a loop of a constant number of turns
 *     #define MR, NR                            a micro-tile: MR * NR / WIDTH sums in registers
 *     #define MR_ROOM                           MR or more: from column to column of a panel of a
 *     #define FEW                               rows multiplied straight from b's memory
 *     #define FEW_WIDE                          1: by whole panels of transposed halves, see below
 *     #define STEP                              k in a turn of the loop: 4 or 8
 *     #define ASKS_A                            1: a's panels are asked for on their way from L2
 *
 *     vf mul_add(vf x, vf y, vf s)              x y + s
 *     void add_row(vf *s, x, const vf *y, vecs, row)
 *                                               s[v] += *x y[v], in this row of a micro-tile; vecs
 *                                               and row are constants; if OWN_ADD_ROW is defined
 *     bool reaches(vi x, int32_t limit), vi max_i32(vi a, vi b)
 *                                               see tally.h
 *     vf load(src, i, type, n)                  n elements from element i, as f32, then zeros
 *     void store(dst, type, u, n)               n elements, u their bits, no NaN but the canonical
 *
 *     #define TURNED_HALVES                     columns of halves turned at once; of f32, WIDTH
 *     void turn_half(turned *t, src, stride, type, half)
 *                                               WIDTH / 2 rows from src on, of so many columns, the
 *                                               first half (0) or, after it, the second (1)
 *     vf turned_at(const turned *t, k, type)    column k of both as f32; k is a constant
 *
 *     #define CPU                               the flag of gs_cpu
 *     #define IN_PLACE                          see gemm.h
 *     #define SLAB                              panels of MR rows by blocks of k that L2 keeps
 *     #define TILE_PANELS, TILE_STRIPS          of MR rows, of NR columns: a tile, at most
 *     #define CHUNK                             see gemm.h
 *
 * n may be more than WIDTH, and then is taken as WIDTH. What is made of it is `isa`. */
#ifndef GSI_KERNEL_GEMM_ISA_H
#define GSI_KERNEL_GEMM_ISA_H

#include "kernel/gemm.h"
#include "kernel/tally.h"

enum {
    VECS = NR / WIDTH,
    ASKED = (MR + 3) / 4 * 4 /* lines to L1 every 16 k */
};
_Static_assert(16 % ASKED == 0, "as many every 16 / ASKED rows, see ask_a");

INLINE vf load_whole(const float *p) { return load(p, 0, GS_F32, WIDTH); }
INLINE void store_whole(float *p, vf x) { store(p, GS_F32, (vi)x, WIDTH); }

/* ---- packing ---- */

/* pad is a constant: what is asked of the lanes leaves the loop. */
INLINE void copy_narrow(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                        gs_dtype type, size_t rows, size_t cols, const size_t pad)
{
    for (size_t r = 0; r < rows; r++) {
        float *out = dst + r * dst_stride;
        const void *in = gsi_at(src, type, r * src_stride);
        UNROLL for (size_t c = 0; c < pad; c += WIDTH)
            store(out + c, GS_F32, (vi)load(in, c, type, c < cols ? cols - c : 0), pad - c);
    }
}

INLINE void copy_any(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                     gs_dtype type, size_t rows, size_t cols, size_t pad)
{
    if (pad == NR) {
        copy_narrow(dst, dst_stride, src, src_stride, type, rows, cols, NR);
        return;
    }
    if (pad == MR_ROOM) {
        copy_narrow(dst, dst_stride, src, src_stride, type, rows, cols, MR_ROOM);
        return;
    }
    for (size_t r = 0; r < rows; r++) {
        float *out = dst + r * dst_stride;
        const void *in = gsi_at(src, type, r * src_stride);
        size_t c = 0;
        for (; c + WIDTH <= cols; c += WIDTH)
            store_whole(out + c, load(in, c, type, WIDTH));
        for (; c < pad; c += WIDTH)
            (void)store(out + c, GS_F32, (vi)load(in, c, type, c < cols ? cols - c : 0), pad - c);
    }
}

static TARGET void copy(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                        gs_dtype type, size_t rows, size_t cols, size_t pad)
{
    if (type == GS_F32)
        copy_any(dst, dst_stride, src, src_stride, GS_F32, rows, cols, pad);
    else if (type == GS_F16)
        copy_any(dst, dst_stride, src, src_stride, GS_F16, rows, cols, pad);
    else
        copy_any(dst, dst_stride, src, src_stride, GS_BF16, rows, cols, pad);
}

/* n is a constant where it is GSI_LINE. */
INLINE void collect_any(float *dst, size_t dst_stride, const void *const *src, size_t at,
                        gs_dtype type, size_t rows, const size_t n)
{
    for (size_t r = 0; r < rows; r++, dst += dst_stride)
        for (size_t c = 0; c < n; c += WIDTH)
            store(dst + c, GS_F32, src[r] ? (vi)load(src[r], at + c, type, n - c) : (vi){0}, n - c);
}

INLINE void collect_type(float *dst, size_t dst_stride, const void *const *src, size_t at,
                         gs_dtype type, size_t rows, size_t n)
{
    if (n == GSI_LINE)
        collect_any(dst, dst_stride, src, at, type, rows, GSI_LINE);
    else
        collect_any(dst, dst_stride, src, at, type, rows, n);
}

static TARGET void collect(float *dst, size_t dst_stride, const void *const *src, size_t at,
                           gs_dtype type, size_t rows, size_t n)
{
    if (type == GS_F32)
        collect_type(dst, dst_stride, src, at, GS_F32, rows, n);
    else if (type == GS_F16)
        collect_type(dst, dst_stride, src, at, GS_F16, rows, n);
    else
        collect_type(dst, dst_stride, src, at, GS_BF16, rows, n);
}

INLINE size_t turned_at_once(gs_dtype type) { return type == GS_F32 ? WIDTH : TURNED_HALVES; }

/* WIDTH rows. */
INLINE void turn(turned *t, const void *src, size_t stride, gs_dtype type)
{
    turn_half(t, src, stride, type, 0);
    turn_half(t, gsi_at(src, type, WIDTH / 2 * stride), stride, type, 1);
}

/* The same for `rows` and `cols` of WIDTH of each, at most; turned as f32. */
INLINE void turn_edge(turned *t, const void *src, size_t stride, gs_dtype type, size_t rows,
                      size_t cols)
{
    float block[WIDTH * WIDTH];
    for (size_t i = 0; i < WIDTH; i++)
        store_whole(block + i * WIDTH, load(src, i * stride, type, i < rows ? cols : 0));
    turn(t, block, WIDTH, GS_F32);
}

INLINE void transpose_any(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                          gs_dtype type, size_t rows, size_t cols)
{
    turned t;
    for (size_t r = 0; r < dst_stride; r += WIDTH) {
        size_t c = 0;
        for (; r + WIDTH <= rows && c + turned_at_once(type) <= cols; c += turned_at_once(type)) {
            turn(&t, gsi_at(src, type, r * src_stride + c), src_stride, type);
            UNROLL for (size_t k = 0; k < turned_at_once(type); k++)
                store_whole(dst + (c + k) * dst_stride + r, turned_at(&t, k, type));
        }
        for (; c < cols; c += WIDTH) {
            turn_edge(&t, gsi_at(src, type, r * src_stride + c), src_stride, type,
                      r < rows ? rows - r : 0, cols - c);
            UNROLL for (size_t k = 0; k < WIDTH; k++) if (c + k < cols)
                store_whole(dst + (c + k) * dst_stride + r, turned_at(&t, k, GS_F32));
        }
    }
}

static TARGET void transpose(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                             gs_dtype type, size_t rows, size_t cols)
{
    if (type == GS_F32)
        transpose_any(dst, dst_stride, src, src_stride, GS_F32, rows, cols);
    else if (type == GS_F16)
        transpose_any(dst, dst_stride, src, src_stride, GS_F16, rows, cols);
    else
        transpose_any(dst, dst_stride, src, src_stride, GS_BF16, rows, cols);
}

/* ---- multiplying ---- */

typedef enum layout { ROWS, COLUMNS } layout;

INLINE void add_sums(float *sums, const float *before, vf (*s)[VECS], const size_t m,
                     const size_t vecs)
{
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < vecs; v++)
    {
        const size_t at = i * NR + v * WIDTH;
        store_whole(sums + at, before ? load_whole(before + at) + s[i][v] : s[i][v]);
    }
}

#ifndef OWN_ADD_ROW
INLINE void add_row(vf *s, const float *x, const vf *y, const size_t vecs, const size_t row)
{
    (void)row;
    UNROLL for (size_t v = 0; v < vecs; v++) s[v] = mul_add(splat(*x), y[v], s[v]);
}
#endif

/* One k. l, m and vecs, the vectors a row, are constants where these are inlined. */
INLINE void add_k(vf (*s)[VECS], const float *a, layout l, const float *b, const size_t m,
                  const size_t vecs)
{
    vf y[VECS];
    UNROLL for (size_t v = 0; v < vecs; v++) y[v] = load_whole(b + v * WIDTH);
    UNROLL for (size_t i = 0; i < m; i++)
        add_row(s[i], a + (l == ROWS ? i * GSI_LINE : i), y, vecs, i);
}

/* a comes from L2, asked for two lines of rows or 8 columns before it is used, if at all: a core
 * looks ahead no further than to some 100 multiplications. All asking is spread over them, and no
 * more than is of use: where another thread shares the core, every instruction counts. */
INLINE void micro(float *sums, const float *before, const float *a, size_t a_step, layout l,
                  const float *b, const size_t m, const size_t vecs, size_t k,
                  const gsi_ahead *ahead)
{
    const size_t step = (l == ROWS ? GSI_LINE : a_step) * sizeof *a; /* to the next line of a */
    const size_t to_l1 = ahead[0].inner, to_l2 = ahead[1].inner, each = ahead[1].each;
    uintptr_t line1 = ahead[0].base, line2 = ahead[1].base;
    vf s[MR][VECS];
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < vecs; v++) s[i][v] =
        splat(0);
    for (; k >= GSI_LINE; k -= GSI_LINE) {
        uintptr_t at1 = line1, at2 = line2;
        uintptr_t soon = (uintptr_t)a + (l == ROWS ? 2 * MR : 8) * step;
        for (const float *end = b + GSI_LINE * NR; b < end; b += STEP * NR) {
            UNROLL for (size_t i = 0; i < 4; i += GSI_LINE / STEP, at2 += to_l2)
                __builtin_prefetch((const void *)at2, 0, 2);
            for (size_t i = 4; i < each; i += GSI_LINE / STEP, at2 += to_l2)
                __builtin_prefetch((const void *)at2, 0, 2);
            UNROLL for (size_t p = 0; p < STEP; p++)
            {
                add_k(s, a, l, b + p * NR, m, vecs);
                a += l == ROWS ? 1 : a_step;
                if (ASKS_A)
                    __builtin_prefetch((const void *)soon, 0, 3);
                soon += step;
                if (p < ASKED * STEP / GSI_LINE) {
                    __builtin_prefetch((const void *)at1, 0, 3);
                    at1 += to_l1;
                }
            }
        }
        if (l == ROWS)
            a += (MR - 1) * GSI_LINE;
        line1 += ahead[0].outer;
        line2 += ahead[1].outer;
    }
    for (; k > 0; k--, b += NR, a += l == ROWS ? 1 : a_step)
        add_k(s, a, l, b, m, vecs);
    add_sums(sums, before, s, m, vecs);
}

INLINE void micro_m(float *sums, const float *before, const float *a, size_t a_step, layout l,
                    const float *b, size_t m, const size_t vecs, size_t k, const gsi_ahead *ahead)
{
    switch (m) {
    case 1:
        micro(sums, before, a, a_step, l, b, 1, vecs, k, ahead);
        break;
    case 2:
        micro(sums, before, a, a_step, l, b, 2, vecs, k, ahead);
        break;
    case 3:
        micro(sums, before, a, a_step, l, b, 3, vecs, k, ahead);
        break;
    case 4:
        micro(sums, before, a, a_step, l, b, 4, vecs, k, ahead);
        break;
    case 5:
        micro(sums, before, a, a_step, l, b, 5, vecs, k, ahead);
        break;
#if MR > 6
    case 6:
        micro(sums, before, a, a_step, l, b, 6, vecs, k, ahead);
        break;
    case 7:
        micro(sums, before, a, a_step, l, b, 7, vecs, k, ahead);
        break;
    case 8:
        micro(sums, before, a, a_step, l, b, 8, vecs, k, ahead);
        break;
    case 9:
        micro(sums, before, a, a_step, l, b, 9, vecs, k, ahead);
        break;
    case 10:
        micro(sums, before, a, a_step, l, b, 10, vecs, k, ahead);
        break;
    case 11:
        micro(sums, before, a, a_step, l, b, 11, vecs, k, ahead);
        break;
    case 12:
        micro(sums, before, a, a_step, l, b, 12, vecs, k, ahead);
        break;
    case 13:
        micro(sums, before, a, a_step, l, b, 13, vecs, k, ahead);
        break;
#endif
    default:
        micro(sums, before, a, a_step, l, b, MR, vecs, k, ahead);
    }
}

static TARGET void multiply_rows(float *sums, const float *before, const float *a, size_t a_step,
                                 const float *b, size_t m, size_t n, size_t k,
                                 const gsi_ahead *ahead)
{
    if (n > NR / 2)
        micro_m(sums, before, a, a_step, ROWS, b, m, VECS, k, ahead);
    else
        micro_m(sums, before, a, a_step, ROWS, b, m, VECS / 2, k, ahead);
}

static TARGET void multiply_columns(float *sums, const float *before, const float *a, size_t a_step,
                                    const float *b, size_t m, size_t n, size_t k,
                                    const gsi_ahead *ahead)
{
    if (!IN_PLACE)
        a_step = MR_ROOM;
    if (n > NR / 2)
        micro_m(sums, before, a, a_step, COLUMNS, b, m, VECS, k, ahead);
    else
        micro_m(sums, before, a, a_step, COLUMNS, b, m, VECS / 2, k, ahead);
}

/* ---- few rows ---- */

/* m, type, p, half and wide are constants where these are inlined. */

/* Column p of half a panel that is turned, times a[i * KC]. */
INLINE void add_column(vf (*s)[VECS], const float *a, const turned *t, const size_t p,
                       const gs_dtype type, const size_t m, const size_t half)
{
    UNROLL for (size_t v = 0; v < VECS / 2; v++)
    {
        const size_t to = half * (VECS / 2) + v;
        const vf y = turned_at(&t[v], p, type);
        UNROLL for (size_t i = 0; i < m; i++) s[i][to] = mul_add(splat(a[i * GSI_KC]), y, s[i][to]);
    }
}

/* Columns are turned while those before them are multiplied, by halves: the core looks ahead no
 * further than to some 100 sums that wait for those before them. Half a panel at a time, because
 * the prefetcher follows 16 rows better than 32, and of rows some pages apart L1 keeps 8.
 *
 * wide: a panel, of which the first half is turned beforehand. Both share what is read of a, and
 * short vectors need that many sums to keep up with memory. b is asked for a block ahead, to L2. */
INLINE void few_columns(const gsi_few *x, const gs_dtype type, const size_t m, const size_t wide)
{
    enum { HALF = VECS / 2, AHEAD = 512 }; /* bytes: to L1, and soon enough */
    const size_t size = gsi_size_of(type), row = x->b_stride * size, rows = (1 + wide) * NR / 2;
    const size_t step = turned_at_once(type), half_step = step / 2, vecs = HALF + wide * HALF;
    const char *const b = (const char *)x->b + wide * NR / 2 * row; /* what is turned on the way */
    turned first[GSI_KC / TURNED_HALVES][HALF], both[2][HALF], *t = both[0], *next = both[1];
    vf s[FEW][VECS];
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < vecs; v++) s[i][v] =
        splat(0);
    size_t k = 0;
    for (; wide && k + step <= x->k; k += step)
        UNROLL for (size_t v = 0; v < HALF; v++)
            turn(&first[k / step][v], gsi_at(x->b, type, v * WIDTH * x->b_stride + k), x->b_stride,
                 type);
    UNROLL for (size_t v = 0; v < HALF; v++) if (step <= x->k)
        turn(&t[v], b + v * WIDTH * row, x->b_stride, type);
    for (k = 0; k + step <= x->k; k += step) {
        const size_t ahead = k * size + (wide ? GSI_KC * size : AHEAD);
        const char *const soon = /* behind the rows' end, those below them */
            (const char *)x->b + ahead + (ahead < x->left * size ? 0 : (rows - 1) * row);
        UNROLL for (size_t half = 0; half < 2; half++)
        {
            if (k + 2 * step <= x->k)
                UNROLL for (size_t v = 0; v < HALF; v++)
                    turn_half(&next[v], b + (k + step) * size + (2 * v + half) * (WIDTH / 2) * row,
                              x->b_stride, type, half);
            UNROLL for (size_t p = half * half_step; p < (half + 1) * half_step; p++)
            {
                if (wide)
                    add_column(s, x->a + k + p, first[k / step], p, type, m, 0);
                add_column(s, x->a + k + p, t, p, type, m, wide);
                UNROLL for (size_t r = p * rows / step; r < (p + 1) * rows / step; r++)
                {
                    if (wide)
                        __builtin_prefetch(soon + r * row, 0, 2);
                    else
                        __builtin_prefetch(soon + r * row, 0, 3);
                }
            }
        }
        turned *const done = t;
        t = next;
        next = done;
    }
    for (; k < x->k; k += WIDTH)
        UNROLL for (size_t half = 0; half <= wide; half++)
        {
            UNROLL for (size_t v = 0; v < HALF; v++)
                turn_edge(&t[v], gsi_at(x->b, type, (half * NR / 2 + v * WIDTH) * x->b_stride + k),
                          x->b_stride, type, WIDTH, x->k - k);
            UNROLL for (size_t p = 0; p < WIDTH; p++) if (k + p < x->k)
                add_column(s, x->a + k + p, t, p, GS_F32, m, half);
        }
    add_sums(x->sums, x->add ? x->sums : NULL, s, m, vecs);
}

/* A panel: rows of b, and x->sums, from column j. */
INLINE void few_rows_panel(const gsi_few *x, size_t j, const gs_dtype type, const size_t m)
{
    const size_t row = x->b_stride * gsi_size_of(type);
    const char *b = (const char *)x->b + j * gsi_size_of(type);
    float *const sums = x->sums + j * MR;
    vf s[FEW][VECS];
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < VECS; v++) s[i][v] =
        x->add ? load_whole(sums + i * NR + v * WIDTH) : splat(0);
#pragma GCC unroll 4
    for (size_t p = 0; p < x->k; p++, b += row) {
        vf y[VECS];
        UNROLL for (size_t v = 0; v < VECS; v++) y[v] = load(b, v * WIDTH, type, WIDTH);
        UNROLL for (size_t at = 0; at < NR * gsi_size_of(type); at += GSI_ALIGN)
            __builtin_prefetch(b + x->k * row + at, 0, 2); /* the rows after these */
        UNROLL for (size_t i = 0; i < m; i++)
        {
            const vf a = splat(x->a[i * GSI_KC + p]);
            UNROLL for (size_t v = 0; v < VECS; v++) s[i][v] = mul_add(a, y[v], s[i][v]);
        }
    }
    add_sums(sums, NULL, s, m, VECS);
}

INLINE void few_rows(const gsi_few *x, const gs_dtype type, const size_t m)
{
    for (size_t j = 0; j < x->n; j += NR)
        few_rows_panel(x, j, type, m);
}

INLINE void few(const gsi_few *x, const gs_dtype type, const bool transposed, const size_t m)
{
    if (transposed)
        few_columns(x, type, m, type != GS_F32 && FEW_WIDE);
    else
        few_rows(x, type, m);
}

/* Rows beyond m are multiplied, too, up to 1, 2, 4 or 8: they lie in a's panel, whatever is there,
 * and their sums in the strip's, where nobody reads them. */
INLINE void few_m(const gsi_few *x, const gs_dtype type, const bool transposed)
{
    if (x->m == 1)
        few(x, type, transposed, 1);
    else if (x->m == 2)
        few(x, type, transposed, 2);
#if FEW > 4
    else if (x->m > 4)
        few(x, type, transposed, FEW);
#endif
    else
        few(x, type, transposed, 4);
}

static TARGET void multiply_few(const gsi_few *x, gs_dtype type, bool transposed)
{
    if (type == GS_F32)
        transposed ? few_m(x, GS_F32, true) : few_m(x, GS_F32, false);
    else if (type == GS_F16)
        transposed ? few_m(x, GS_F16, true) : few_m(x, GS_F16, false);
    else
        transposed ? few_m(x, GS_BF16, true) : few_m(x, GS_BF16, false);
}

/* ---- finishing ---- */

/* All ones in the first n lanes. */
INLINE vi first_lanes(size_t n)
{
    vi lane;
    UNROLL for (int i = 0; i < WIDTH; i++) lane[i] = i;
    return lane < (int32_t)(n < WIDTH ? n : WIDTH);
}

INLINE vi take(const uint32_t *lanes)
{
    vi x;
    memcpy(&x, lanes, sizeof x);
    return x;
}

INLINE void put(uint32_t *lanes, vi x) { memcpy(lanes, &x, sizeof x); }

/* Inf and NaN among what has been stored, and the largest of the rest. */
static TARGET void count_large(const void *c, size_t m, size_t n, const gsi_finish *f)
{
    tally t = {0};
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j += WIDTH) {
            const vi u = (vi)load(c, i * f->stride + j, f->dtype, n - j);
            tally_large(&t, u & INT32_MAX, &f->limits);
        }
    f->lanes->inf += lanes_sum(t.inf);
    f->lanes->nan += lanes_sum(t.nan);
    put(f->lanes->amax, max_i32(take(f->lanes->amax), t.amax));
}

/* -0 is what changes no number when it is added. n is a constant where it is NR. */
INLINE void finish_any(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                       const gs_dtype type, const bool beta, const bool counted)
{
    const float none = -0.0f;
    const gsi_limits limits = f->limits; /* else read again after every store */
    const float *const row = f->row ? f->row : &none;
    const size_t row_step = f->row != NULL, stride = f->stride * gsi_size_of(type);
    char *row_of_c = c;
    gsi_lanes *const lanes = f->lanes;
    tally t = {0};
    if (counted) {
        t.zeros = take(lanes->zeros);
        t.low = take(lanes->low);
        t.small = take(lanes->small);
    }
    vf column[VECS];
    UNROLL for (size_t j = 0; j < NR; j += WIDTH) column[j / WIDTH] =
        f->column && j < n ? load(f->column, j, GS_F32, n - j) : splat(-0.0f);
    for (size_t i = 0; i < m; i++, row_of_c += stride) {
        const vf of_row = splat(row[i * row_step]);
        UNROLL for (size_t j = 0; j < NR; j += WIDTH)
        {
            if (j >= n)
                continue;
            char *const out = row_of_c + j * gsi_size_of(type);
            vf sum = load_whole(sums + i * NR + j) + column[j / WIDTH] + of_row;
            if (beta)
                sum = mul_add(splat(f->beta), load(out, 0, type, n - j), sum);
            const vi nan = is_nan(sum);
            const vi u = ((vi)sum & ~nan) | (nan & (int32_t)(GSI_F32_INF | 0x400000));
            store(out, type, u, n - j);
            if (counted) {
                const vi mag = u & first_lanes(n - j) & INT32_MAX;
                tally_small(&t, mag, &limits);
                t.amax = max_i32(t.amax, mag);
            }
        }
    }
    if (!counted)
        return;
    put(lanes->zeros, t.zeros);
    put(lanes->low, t.low);
    put(lanes->small, t.small);
    lanes->spare += (gsi_parts(n, WIDTH) * WIDTH - n) * m;
    if (__builtin_expect(reaches(t.amax, (int32_t)limits.overflow), 0))
        count_large(c, m, n, f);
    else
        put(lanes->amax, max_i32(take(lanes->amax), t.amax));
}

INLINE void finish_n(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                     const gs_dtype type, const bool beta, const bool counted)
{
    if (n == NR)
        finish_any(c, sums, m, NR, f, type, beta, counted);
    else
        finish_any(c, sums, m, n, f, type, beta, counted);
}

INLINE void finish_type(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                        const gs_dtype type, const bool counted)
{
    if (f->beta != 0)
        finish_n(c, sums, m, n, f, type, true, counted);
    else
        finish_n(c, sums, m, n, f, type, false, counted);
}

INLINE void finish_any_type(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                            const bool counted)
{
    if (f->dtype == GS_F32)
        finish_type(c, sums, m, n, f, GS_F32, counted);
    else if (f->dtype == GS_F16)
        finish_type(c, sums, m, n, f, GS_F16, counted);
    else
        finish_type(c, sums, m, n, f, GS_BF16, counted);
}

/* On its own, so that the other one keeps little on the stack. */
static TARGET __attribute__((noinline)) void finish_counted(void *c, const float *sums, size_t m,
                                                            size_t n, const gsi_finish *f)
{
    finish_any_type(c, sums, m, n, f, true);
}

static TARGET void finish(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f)
{
    if (f->lanes)
        finish_counted(c, sums, m, n, f);
    else
        finish_any_type(c, sums, m, n, f, false);
}

static const gsi_gemm_isa isa = {
    .cpu = CPU,
    .mr = MR,
    .nr = NR,
    .mr_room = MR_ROOM,
    .m_tile = TILE_PANELS * MR,
    .n_tile = TILE_STRIPS * NR,
    .a_room = SLAB * MR_ROOM * GSI_KC,
    .chunk = CHUNK,
    .in_place = IN_PLACE,
    .asked = ASKED,
    .copy = copy,
    .collect = collect,
    .transpose = transpose,
    .multiply_rows = multiply_rows,
    .multiply_columns = multiply_columns,
    .multiply_few = multiply_few,
    .few = FEW,
    .few_width = {NR / 2, (1 + FEW_WIDE) * NR / 2},
    .finish = finish,
};

#endif
