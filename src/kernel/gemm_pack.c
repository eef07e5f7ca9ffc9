/* Packing: what is multiplied, as panels of f32, out of matrices of any type or of patches. */
#include "kernel/gemm.h"

/* ---- patches ---- */

/* What a row of patches begins with: the array of its image, and where the filter's first place
 * lies in it; outside of it, too. Where patches are spread, further places lie before it. */
typedef struct spot {
    const char *image;
    ptrdiff_t y, x;
} spot;

/* Of `rows` rows from row `first` on. */
static void find_spots(spot *spots, const gs_matrix *m, const void *data, size_t first, size_t rows)
{
    const gs_patches *p = m->patches;
    const ptrdiff_t pad = (ptrdiff_t)p->pad, stride = (ptrdiff_t)p->stride;
    const size_t above = first / p->rows_w, size = p->h * p->w * p->c * gsi_size_of(m->dtype);
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

/* Where spread patches lie `stride` apart, there is nothing in between. */
static ptrdiff_t narrow(ptrdiff_t at, ptrdiff_t stride)
{
    return at >= 0 && at % stride == 0 ? at / stride : -1;
}

/* The channels that place ky, kx of the filter reads; NULL: it is outside, and they are zero. */
static void find_channels(const void **channels, const spot *spots, size_t rows, const gs_matrix *m,
                          size_t ky, size_t kx)
{
    const gs_patches *p = m->patches;
    const ptrdiff_t sign = p->spread ? -1 : 1, stride = (ptrdiff_t)p->stride;
    const ptrdiff_t dy = sign * (ptrdiff_t)ky, dx = sign * (ptrdiff_t)kx;
    const size_t size = p->c * gsi_size_of(m->dtype);
    for (size_t r = 0; r < rows; r++) {
        ptrdiff_t y = spots[r].y + dy, x = spots[r].x + dx;
        if (p->spread && stride > 1) {
            y = narrow(y, stride);
            x = narrow(x, stride);
        }
        const bool inside = (size_t)y < p->h && (size_t)x < p->w;
        channels[r] = inside ? spots[r].image + ((size_t)y * p->w + (size_t)x) * size : NULL;
    }
}

/* Columns [j, j + n) of rows [i, i + m) of patches: rows are `step` apart, a row's lines of
 * GSI_LINE columns `lines`. */
static void pack_patches(const gsi_gemm_isa *isa, float *dst, size_t step, size_t lines,
                         const gs_matrix *x, const void *data, size_t i, size_t m, size_t j,
                         size_t n)
{
    enum { AT_ONCE = 32 };
    const gs_patches *p = x->patches;
    spot spots[AT_ONCE];
    const void *channels[AT_ONCE];
    for (size_t r = 0; r < m; r += AT_ONCE) {
        const size_t rows = gsi_min_size(m - r, AT_ONCE);
        size_t ky = j / p->c / p->kw, kx = j / p->c % p->kw, from = j % p->c;
        find_spots(spots, x, data, i + r, rows);
        for (size_t done = 0, take; done < n; done += take) {
            if (from == 0 || done == 0)
                find_channels(channels, spots, rows, x, ky, kx);
            take = gsi_min_size(GSI_LINE - done % GSI_LINE, n - done);
            take = gsi_min_size(take, p->c - from);
            isa->collect(dst + r * step + done / GSI_LINE * lines + done % GSI_LINE, step, channels,
                         from, x->dtype, rows, take);
            from += take;
            if (from == p->c) {
                from = 0;
                kx = kx + 1 == p->kw ? 0 : kx + 1;
                ky += kx == 0;
            }
        }
    }
}

/* ---- panels ---- */

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
        for (size_t r = 0; r < k && n < nr; r++)
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
