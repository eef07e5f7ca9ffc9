/* Sums over rows, and normalisation: a template, see tmpl_vec.h. */
#include <math.h>

/* ---- columns ---- */

enum { ROW_BLOCK = 64, TILE = 256 }; /* rows and columns whose sums are under way at a time */

INLINE pack load_product(gsi_in a, gsi_in b, size_t i, size_t m)
{
    pack p = load(a, i, m);
    if (b.data) {
        const pack q = load(b, i, m);
        EACH_VEC (k)
            p.v[k] *= q.v[k];
    }
    return p;
}

/* part[c] += the sum of a block of rows, `cols` columns of it. */
INLINE void colsum_block(float part[TILE], gsi_in a, gsi_in b, size_t rows, size_t cols,
                         size_t stride)
{
    size_t r = 0;
    for (; r + 4 <= rows; r += 4)
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i), at = r * stride + i;
            const pack p0 = load_product(a, b, at, m), p1 = load_product(a, b, at + stride, m);
            const pack p2 = load_product(a, b, at + 2 * stride, m);
            const pack p3 = load_product(a, b, at + 3 * stride, m);
            EACH_VEC (k) {
                float *to = part + i + k * WIDTH;
                store_f32v(to, load_f32v(to) + ((p0.v[k] + p1.v[k]) + (p2.v[k] + p3.v[k])));
            }
        }
    for (; r < rows; r++)
        for (size_t i = 0; i < cols; i += LANES) {
            const pack p = load_product(a, b, r * stride + i, left(cols, i));
            EACH_VEC (k) {
                float *to = part + i + k * WIDTH;
                store_f32v(to, load_f32v(to) + p.v[k]);
            }
        }
}

TARGET static void KERNEL(colsum)(float *sum, gsi_in a, gsi_in b, size_t rows, size_t cols,
                                  size_t stride)
{
    for (size_t c = 0; c < cols; c += TILE) {
        const size_t width = cols - c < TILE ? cols - c : TILE;
        float total[TILE] = {0};
        for (size_t r = 0; r < rows; r += ROW_BLOCK) {
            const size_t count = rows - r < ROW_BLOCK ? rows - r : ROW_BLOCK;
            const size_t at = r * stride + c;
            float part[TILE] = {0};
            colsum_block(part, gsi_in_at(a, at), b.data ? gsi_in_at(b, at) : b, count, width,
                         stride);
            for (size_t i = 0; i < width; i += WIDTH)
                store_f32v(total + i, load_f32v(total + i) + load_f32v(part + i));
        }
        memcpy(sum + c, total, width * sizeof *sum);
    }
}

/* ---- layer normalisation ---- */

INLINE float row_mean(gsi_in x, size_t cols)
{
    row_sum s = sum_none();
    for (size_t i = 0; i < cols; i += LANES)
        sum_add(&s, i, load(x, i, left(cols, i)));
    return sum_fold(&s) / (float)cols;
}

INLINE float row_variance(gsi_in x, float mean, size_t cols)
{
    row_sum s = sum_none();
    for (size_t i = 0; i < cols; i += LANES) {
        const size_t m = left(cols, i);
        pack p = load(x, i, m);
        EACH_VEC (k)
            p.v[k] = (p.v[k] - mean) * (p.v[k] - mean);
        sum_add(&s, i, cut(p, m, 0));
    }
    return sum_fold(&s) / (float)cols;
}

TARGET static uint32_t KERNEL(layernorm)(gsi_out y, float *mean, float *rstd, gsi_in x,
                                         gsi_in gamma, gsi_in beta, size_t rows, size_t cols,
                                         float eps)
{
    tally counted;
    sink s = sink_of(y, &counted);
    for (size_t r = 0; r < rows && cols > 0; r++) {
        const gsi_in row = gsi_in_at(x, r * cols);
        const float center = row_mean(row, cols);
        const float scale = 1.0f / sqrtf(row_variance(row, center, cols) + eps);
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            pack p = load(row, i, m);
            const pack g = load(gamma, i, m), b = load(beta, i, m);
            EACH_VEC (k)
                p.v[k] = (p.v[k] - center) * scale * g.v[k] + b.v[k];
            store(&s, r * cols + i, m, p);
        }
        mean[r] = center;
        rstd[r] = scale;
    }
    return sink_end(&s);
}

/* sum[i] += x */
INLINE void add_to(float *sum, size_t i, size_t m, pack x)
{
    const gsi_in now = {sum, GS_F32};
    pack p = load(now, i, m);
    EACH_VEC (k)
        p.v[k] += x.v[k];
    if (m == LANES)
        store_whole(sum + i, GS_F32, p);
    else
        store_part((gsi_out){sum + i, GS_F32, NULL}, &p, m);
}

/* With xhat = (x - mean) rstd and g = dy gamma:
 * dx = rstd (g - mean of g - xhat (mean of g xhat)). */
TARGET static uint32_t KERNEL(layernorm_backward)(gsi_out dx, float *dgamma, float *dbeta,
                                                  gsi_in dy, gsi_in x, const float *mean,
                                                  const float *rstd, gsi_in gamma, size_t rows,
                                                  size_t cols)
{
    tally counted;
    sink s = sink_of(dx, &counted);
    for (size_t r = 0; r < rows && cols > 0; r++) {
        const gsi_in xr = gsi_in_at(x, r * cols), dyr = gsi_in_at(dy, r * cols);
        const float center = mean[r], scale = rstd[r];
        row_sum of_g = sum_none(), of_gx = sum_none();
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            pack d = load(dyr, i, m), h = load(xr, i, m);
            const pack g = load(gamma, i, m);
            EACH_VEC (k)
                h.v[k] = (h.v[k] - center) * scale * d.v[k];
            add_to(dgamma, i, m, h);
            add_to(dbeta, i, m, d);
            EACH_VEC (k) {
                h.v[k] *= g.v[k]; /* (dy xhat) gamma, 0 in lanes past the end: dy is */
                d.v[k] *= g.v[k];
            }
            sum_add(&of_g, i, d);
            sum_add(&of_gx, i, h);
        }
        const float g_mean = sum_fold(&of_g) / (float)cols;
        const float gx_mean = sum_fold(&of_gx) / (float)cols;
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            pack d = load(dyr, i, m);
            const pack h = load(xr, i, m), g = load(gamma, i, m);
            EACH_VEC (k) {
                const vf hat = (h.v[k] - center) * scale;
                d.v[k] = (d.v[k] * g.v[k] - g_mean - hat * gx_mean) * scale;
            }
            store(&s, r * cols + i, m, d);
        }
    }
    return sink_end(&s);
}

/* ---- RMS normalisation ---- */

TARGET static uint32_t KERNEL(rmsnorm)(gsi_out y, float *rstd, gsi_in x, gsi_in gamma, size_t rows,
                                       size_t cols, float eps)
{
    tally counted;
    sink s = sink_of(y, &counted);
    for (size_t r = 0; r < rows && cols > 0; r++) {
        const gsi_in row = gsi_in_at(x, r * cols);
        const float scale = 1.0f / sqrtf(row_variance(row, 0, cols) + eps);
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            pack p = load(row, i, m);
            const pack g = load(gamma, i, m);
            EACH_VEC (k)
                p.v[k] = p.v[k] * scale * g.v[k];
            store(&s, r * cols + i, m, p);
        }
        rstd[r] = scale;
    }
    return sink_end(&s);
}

/* With xhat = x rstd and g = dy gamma: dx = rstd (g - xhat (mean of g xhat)). */
TARGET static uint32_t KERNEL(rmsnorm_backward)(gsi_out dx, float *dgamma, gsi_in dy, gsi_in x,
                                                const float *rstd, gsi_in gamma, size_t rows,
                                                size_t cols)
{
    tally counted;
    sink s = sink_of(dx, &counted);
    for (size_t r = 0; r < rows && cols > 0; r++) {
        const gsi_in xr = gsi_in_at(x, r * cols), dyr = gsi_in_at(dy, r * cols);
        const float scale = rstd[r];
        row_sum of_gx = sum_none();
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            const pack d = load(dyr, i, m), g = load(gamma, i, m);
            pack h = load(xr, i, m);
            EACH_VEC (k)
                h.v[k] = h.v[k] * scale * d.v[k];
            add_to(dgamma, i, m, h);
            EACH_VEC (k)
                h.v[k] *= g.v[k];
            sum_add(&of_gx, i, cut(h, m, 0)); /* 0 rstd is NaN where rstd is no number */
        }
        const float gx_mean = sum_fold(&of_gx) / (float)cols;
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            pack d = load(dyr, i, m);
            const pack h = load(xr, i, m), g = load(gamma, i, m);
            EACH_VEC (k)
                d.v[k] = (d.v[k] * g.v[k] - h.v[k] * scale * gx_mean) * scale;
            store(&s, r * cols + i, m, d);
        }
    }
    return sink_end(&s);
}
