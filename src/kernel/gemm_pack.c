/* Packing: what is multiplied, as panels of f32, out of matrices of any type or of patches. */
#include "kernel/gemm.h"

/* ---- patches ---- */

/* A row of patches: its image, and where the filter's first place lies in it, which may be outside.
 * Of spread patches further places lie before the first. */
typedef struct spot {
    const char *image;
    ptrdiff_t y, x;
} spot;

static void find_spots(spot *spots, const gs_matrix *of, const void *data, size_t first,
                       size_t rows)
{
    const gs_patches *p = of->patches;
    const ptrdiff_t pad = (ptrdiff_t)p->pad, stride = (ptrdiff_t)p->stride;
    const size_t above = first / p->rows_w, size = p->h * p->w * p->c * gsi_size_of(of->dtype);
    size_t image = above / p->rows_h, y = above % p->rows_h, x = first % p->rows_w;
    for (size_t r = 0; r < rows; r++) {
        spots[r].image = (const char *)data + image * size;
        spots[r].y = p->spread ? (ptrdiff_t)y + pad : (ptrdiff_t)y * stride - pad;
        spots[r].x = p->spread ? (ptrdiff_t)x + pad : (ptrdiff_t)x * stride - pad;
        if (++x == p->rows_w) {
            x = 0;
            y++;
        }
        if (y == p->rows_h) {
            y = 0;
            image++;
        }
    }
}

/* Spread patches lie `stride` apart, with nothing between them. */
static ptrdiff_t unspread(ptrdiff_t at, ptrdiff_t stride) { return at % stride ? -1 : at / stride; }

/* What some places of a row of the filter read, from place ky, kx on, in each row of patches; NULL:
 * not all of that is in the array. */
static void find_whole(const void **whole, const gs_matrix *of, const spot *spots, size_t rows,
                       size_t ky, size_t kx, size_t places)
{
    const gs_patches *p = of->patches;
    const ptrdiff_t down = p->spread ? -(ptrdiff_t)ky : (ptrdiff_t)ky;
    const ptrdiff_t right = p->spread ? -(ptrdiff_t)kx : (ptrdiff_t)kx;
    const ptrdiff_t last = (ptrdiff_t)p->w - (ptrdiff_t)places;
    const size_t size = p->c * gsi_size_of(of->dtype);
    for (size_t r = 0; r < rows; r++) {
        ptrdiff_t y = spots[r].y + down, x = spots[r].x + right;
        if (p->spread && p->stride > 1) {
            y = unspread(y, (ptrdiff_t)p->stride);
            x = unspread(x, (ptrdiff_t)p->stride);
        }
        const bool inside = (size_t)y < p->h && x >= 0 && x <= last;
        whole[r] = inside ? spots[r].image + ((size_t)y * p->w + (size_t)x) * size : NULL;
    }
}

/* The elements [begin, end) of a row of the filter that lie in the array, from `at` on. */
typedef struct part {
    const void *at;
    size_t begin, end;
} part;

static part find_part(const gs_matrix *of, const spot *s, size_t ky)
{
    const gs_patches *p = of->patches;
    const ptrdiff_t y = s->y + (ptrdiff_t)ky, until = (ptrdiff_t)p->w - s->x;
    const size_t first = s->x < 0 ? (size_t)-s->x : 0;
    const size_t last = until < 0 ? 0 : gsi_min_size((size_t)until, p->kw);
    if ((size_t)y >= p->h || first >= last)
        return (part){0};
    const size_t place = (size_t)y * p->w + (size_t)(s->x + (ptrdiff_t)first);
    return (part){s->image + place * p->c * gsi_size_of(of->dtype), first * p->c, last * p->c};
}

/* Columns [j, j + n) of rows [i, i + m) of patches. From a row to the next it is `row_step`, from a
 * line of GSI_LINE columns to the next `line_step`.
 *
 * It goes by runs of memory: what a place of the filter reads, or, where channels are few, a row of
 * it, of which an image's edge may cut off a part. */
static void pack_patches(const gsi_gemm_isa *isa, float *dst, size_t row_step, size_t line_step,
                         const gs_matrix *x, const void *data, size_t i, size_t m, size_t j,
                         size_t n)
{
    enum { AT_ONCE = 32 };
    const gs_patches *p = x->patches;
    const size_t places = p->spread || p->c >= GSI_LINE ? 1 : p->kw, length = places * p->c;
    spot spots[AT_ONCE];
    const void *whole[AT_ONCE];
    for (size_t r0 = 0; r0 < m; r0 += AT_ONCE) {
        const size_t rows = gsi_min_size(m - r0, AT_ONCE);
        size_t number = j / length, from = j % length;
        find_spots(spots, x, data, i + r0, rows);
        for (size_t done = 0, take; done < n; done += take) {
            const size_t place = number * places, ky = place / p->kw, kx = place % p->kw;
            if (from == 0 || done == 0)
                find_whole(whole, x, spots, rows, ky, kx, places);
            take = gsi_min_size(GSI_LINE - done % GSI_LINE, n - done);
            take = gsi_min_size(take, length - from);
            float *const out = dst + r0 * row_step + done / GSI_LINE * line_step + done % GSI_LINE;
            isa->collect(out, row_step, whole, from, x->dtype, rows, take);
            for (size_t r = 0; r < rows && places > 1; r++) {
                if (whole[r])
                    continue;
                const part edge = find_part(x, &spots[r], ky);
                const size_t begin = gsi_max_size(edge.begin, from);
                const size_t end = gsi_min_size(edge.end, from + take);
                if (begin < end)
                    isa->collect(out + r * row_step + begin - from, 0, &edge.at, begin - edge.begin,
                                 x->dtype, 1, end - begin);
            }
            from += take;
            if (from == length) {
                from = 0;
                number++;
            }
        }
    }
}

/* ---- panels ---- */

/* Rows of the stored matrix a few at a time, a group of panels wide: a panel's width of each is too
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

void gsi_pack_a(const gsi_gemm_isa *isa, float *dst, const gs_matrix *x, const void *data, size_t i,
                size_t m, size_t height, size_t k0, size_t k)
{
    if (x->patches)
        pack_patches(isa, dst, GSI_LINE, isa->mr * GSI_LINE, x, data, i, m, k0, k);
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
        pack_patches(isa, dst, GSI_KC, GSI_LINE, x, data, i, m, k0, k);
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
        pack_patches(isa, dst, nr, GSI_LINE, x, data, k0, k, j, n);
        for (size_t r = 0; n < nr && r < k; r++) /* what is multiplied in vain should be quick */
            memset(dst + r * nr + n, 0, (nr - n) * sizeof *dst);
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
