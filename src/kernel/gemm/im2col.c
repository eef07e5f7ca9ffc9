/* im2col: packs the matrix of a convolution's operand, which is never stored as a whole.
 *
 * A row of the matrix is a position of the filter over an image, its origin the filter's first tap,
 * which may lie outside. A column is a tap and a channel. For dgrad, the transposed convolution,
 * further taps lie before the first, and origins are dilated by the stride. */
#include "kernel/gemm/gemm.h"

typedef struct origin {
    const char *image;
    ptrdiff_t y, x;
} origin;

static void find_origins(origin *origins, const gs_matrix *of, const void *data, size_t first,
                         size_t rows)
{
    const gs_im2col *p = of->im2col;
    const ptrdiff_t pad = (ptrdiff_t)p->pad, stride = (ptrdiff_t)p->stride;
    const size_t above = first / p->rows_w, size = p->h * p->w * p->c * gsi_size_of(of->dtype);
    size_t image = above / p->rows_h, y = above % p->rows_h, x = first % p->rows_w;
    for (size_t r = 0; r < rows; r++) {
        origins[r].image = (const char *)data + image * size;
        origins[r].y = p->dgrad ? (ptrdiff_t)y + pad : (ptrdiff_t)y * stride - pad;
        origins[r].x = p->dgrad ? (ptrdiff_t)x + pad : (ptrdiff_t)x * stride - pad;
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

/* Between the elements of a dilated array there is nothing. */
static ptrdiff_t undilate(ptrdiff_t at, ptrdiff_t stride) { return at % stride ? -1 : at / stride; }

/* Where `taps` taps of a row of the filter, from tap ky, kx on, read in each row of the matrix;
 * NULL: not all of that is in the array. */
static void find_taps(const void **at, const gs_matrix *of, const origin *origins, size_t rows,
                      size_t ky, size_t kx, size_t taps)
{
    const gs_im2col *p = of->im2col;
    const ptrdiff_t down = p->dgrad ? -(ptrdiff_t)ky : (ptrdiff_t)ky;
    const ptrdiff_t right = p->dgrad ? -(ptrdiff_t)kx : (ptrdiff_t)kx;
    const ptrdiff_t last = (ptrdiff_t)p->w - (ptrdiff_t)taps;
    const size_t size = p->c * gsi_size_of(of->dtype);
    for (size_t r = 0; r < rows; r++) {
        ptrdiff_t y = origins[r].y + down, x = origins[r].x + right;
        if (p->dgrad && p->stride > 1) {
            y = undilate(y, (ptrdiff_t)p->stride);
            x = undilate(x, (ptrdiff_t)p->stride);
        }
        const bool inside = (size_t)y < p->h && x >= 0 && x <= last;
        at[r] = inside ? origins[r].image + ((size_t)y * p->w + (size_t)x) * size : NULL;
    }
}

/* The elements [begin, end) of a row of the filter that lie in the array, from `at` on. */
typedef struct clipped {
    const void *at;
    size_t begin, end;
} clipped;

static clipped clip_row(const gs_matrix *of, const origin *o, size_t ky)
{
    const gs_im2col *p = of->im2col;
    const ptrdiff_t y = o->y + (ptrdiff_t)ky, until = (ptrdiff_t)p->w - o->x;
    const size_t first = o->x < 0 ? (size_t)-o->x : 0;
    const size_t last = until < 0 ? 0 : gsi_min_size((size_t)until, p->kw);
    if ((size_t)y >= p->h || first >= last)
        return (clipped){0};
    const size_t pixel = (size_t)y * p->w + (size_t)(o->x + (ptrdiff_t)first);
    return (clipped){o->image + pixel * p->c * gsi_size_of(of->dtype), first * p->c, last * p->c};
}

/* It goes by runs of memory: what a tap reads, or, where channels are few, a row of the filter, of
 * which an image's edge may cut off a part. */
void gsi_pack_im2col(const gsi_gemm_isa *isa, void *dst, size_t row_step, size_t line_step,
                     const gs_matrix *x, const void *data, size_t i, size_t m, size_t j, size_t n)
{
    enum { AT_ONCE = 32 };
    const gs_im2col *p = x->im2col;
    const size_t line = GSI_LINE * gsi_depth(isa), size = sizeof(float) / gsi_depth(isa);
    const size_t taps = p->dgrad || p->c >= GSI_LINE ? 1 : p->kw, run = taps * p->c;
    origin origins[AT_ONCE];
    const void *at[AT_ONCE];
    for (size_t r0 = 0; r0 < m; r0 += AT_ONCE) {
        const size_t rows = gsi_min_size(m - r0, AT_ONCE);
        size_t number = j / run, from = j % run;
        find_origins(origins, x, data, i + r0, rows);
        for (size_t done = 0, take; done < n; done += take) {
            const size_t tap = number * taps, ky = tap / p->kw, kx = tap % p->kw;
            if (from == 0 || done == 0)
                find_taps(at, x, origins, rows, ky, kx, taps);
            take = gsi_min_size(line - done % line, n - done);
            take = gsi_min_size(take, run - from);
            char *const out =
                (char *)dst + (r0 * row_step + done / line * line_step + done % line) * size;
            isa->gather(out, row_step, at, from, x->dtype, rows, take);
            for (size_t r = 0; r < rows && taps > 1; r++) {
                if (at[r])
                    continue;
                const clipped edge = clip_row(x, &origins[r], ky);
                const size_t begin = gsi_max_size(edge.begin, from);
                const size_t end = gsi_min_size(edge.end, from + take);
                if (begin < end)
                    isa->gather(out + (r * row_step + begin - from) * size, 0, &edge.at,
                                begin - edge.begin, x->dtype, 1, end - begin);
            }
            from += take;
            if (from == run) {
                from = 0;
                number++;
            }
        }
    }
}
