/* Packing: what is multiplied, as panels of f32, out of matrices of any type or of patches. */
#include "kernel/gemm.h"

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
    const size_t first = left < 0 ? gsi_min_size((size_t)-left, p->kw) : 0;
    const size_t last = right < 0 ? 0 : gsi_min_size((size_t)right, p->kw);
    return (line){(above + left) * (ptrdiff_t)p->c, first * p->c, gsi_max_size(first, last) * p->c};
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
        const size_t take = gsi_min_size(length - from, n - done);
        const line l = find_line(p, s, ky, kx);
        const size_t begin = gsi_min_size(gsi_max_size(l.begin, from), from + take);
        const size_t end = gsi_max_size(gsi_min_size(l.end, from + take), begin);
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

/* Rows of the stored matrix a few at a time, a group of panels wide: 56 bytes of each are too
 * little for one walk through the pages. */
enum { ABREAST = 16 };

static void pack_columns(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                         size_t i, size_t m, size_t height, size_t k0, size_t k)
{
    for (size_t r = 0; r < k; r += ABREAST)
        for (size_t c = 0; c < m; c += height)
            isa->copy(dst + c / height * gsi_panel_room(isa) + r * isa->mr_room, isa->mr_room,
                      gsi_at(data, x->dtype, (k0 + r) * x->stride + i + c), x->stride, x->dtype,
                      gsi_min_size(k - r, ABREAST), gsi_min_size(m - c, height), isa->mr_room);
}

/* A panel of rows, a line of each at a time. */
static void pack_rows(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                      size_t i, size_t m, size_t k0, size_t k)
{
    for (size_t c = 0; c < k; c += GSI_LINE)
        isa->copy(dst + c * isa->mr, GSI_LINE, gsi_at(data, x->dtype, i * x->stride + k0 + c),
                  x->stride, x->dtype, m, gsi_min_size(k - c, GSI_LINE), GSI_LINE);
}

static void pack_patch_rows(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x,
                            const void *data, size_t i, size_t m, size_t k0, size_t k)
{
    const size_t lines = gsi_parts(k, GSI_LINE);
    float row[GSI_KC];
    memset(row + k, 0, (lines * GSI_LINE - k) * sizeof *row);
    for (size_t r = 0; r < m; r++) {
        pack_patches(row, x, data, isa->copy, i + r, k0, k);
        isa->copy(dst + r * GSI_LINE, isa->mr * GSI_LINE, row, GSI_LINE, GS_F32, lines, GSI_LINE,
                  GSI_LINE);
    }
}

void gsi_pack_a(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data, size_t i,
                size_t m, size_t height, size_t k0, size_t k)
{
    if (x->patches)
        pack_patch_rows(isa, dst, x, data, i, m, k0, k);
    else if (x->transposed)
        pack_columns(isa, dst, x, data, i, m, height, k0, k);
    else
        pack_rows(isa, dst, x, data, i, m, k0, k);
}

void gsi_pack_few(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data,
                  size_t i, size_t m, size_t k0, size_t k)
{
    const size_t at = x->transposed ? k0 * x->stride + i : i * x->stride + k0;
    if (x->patches)
        for (size_t r = 0; r < m; r++)
            pack_patches(dst + r * GSI_KC, x, data, isa->copy, i + r, k0, k);
    else if (x->transposed)
        isa->transpose(dst, GSI_KC, gsi_at(data, x->dtype, at), x->stride, x->dtype, k, m);
    else
        isa->copy(dst, GSI_KC, gsi_at(data, x->dtype, at), x->stride, x->dtype, m, k, k);
}

/* A panel of n columns from column j, k from k0. */
void gsi_pack_b(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data, size_t j,
                size_t n, size_t k0, size_t k)
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
            take = gsi_min_size(x->group - in, k0 + k - r);
            copy(dst, nr, gsi_at(data, x->dtype, at + j), x->stride, x->dtype, take, n, nr);
        }
    } else {
        copy(dst, nr, gsi_at(data, x->dtype, k0 * x->stride + j), x->stride, x->dtype, k, n, nr);
    }
}
