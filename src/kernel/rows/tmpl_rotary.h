/* RMS normalisation and rotary embedding, of Llama: a template, see tmpl_vec.h. */

/* ---- RMS normalisation ---- */

INLINE float row_mean_square(gsi_in x, size_t cols)
{
    row_sum s = sum_none();
    for (size_t i = 0; i < cols; i += LANES) {
        pack p = load(x, i, left(cols, i));
        EACH_VEC (k)
            p.v[k] *= p.v[k];
        sum_add(&s, i, p);
    }
    return sum_fold(&s) / (float)cols;
}

TARGET static uint32_t KERNEL(rmsnorm)(gsi_out y, float *rstd, gsi_in x, gsi_in gamma, size_t rows,
                                       size_t cols, float eps)
{
    tally counted;
    sink s = sink_of(y, &counted);
    for (size_t r = 0; r < rows && cols > 0; r++) {
        const gsi_in row = gsi_in_at(x, r * cols);
        const float scale = 1.0f / sqrtf(row_mean_square(row, cols) + eps);
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

/* ---- rotary embedding ---- */

INLINE void rotate_head(sink *s, gsi_in x, size_t at, const float *cosines, size_t half,
                        bool inverse)
{
    const gsi_in c = {cosines, GS_F32}, n = {cosines + half, GS_F32};
    for (size_t i = 0; i < half; i += LANES) {
        const size_t m = left(half, i);
        const pack cosine = load(c, i, m), sine = load(n, i, m);
        const pack a = load(x, at + i, m), b = load(x, at + half + i, m);
        pack low, high;
        EACH_VEC (k) {
            const vf turn = inverse ? -sine.v[k] : sine.v[k];
            low.v[k] = a.v[k] * cosine.v[k] - b.v[k] * turn;
            high.v[k] = b.v[k] * cosine.v[k] + a.v[k] * turn;
        }
        store(s, at + i, m, low);
        store(s, at + half + i, m, high);
    }
}

TARGET static uint32_t KERNEL(rotary)(gsi_out y, gsi_in x, const gsi_rotary *how, size_t row,
                                      size_t rows)
{
    tally counted;
    sink s = sink_of(y, &counted);
    const size_t d = how->d, turned = how->heads * d;
    for (size_t r = row; r < row + rows; r++) {
        const float *angles = how->table + (how->first + r % how->time) * d;
        const size_t at = r * how->cols;
        for (size_t h = 0; h < how->heads; h++)
            rotate_head(&s, x, at + h * d, angles, d / 2, how->inverse);
        for (size_t i = turned; i < how->cols; i += LANES) {
            const size_t m = left(how->cols, i);
            store(&s, at + i, m, load(x, at + i, m));
        }
    }
    return sink_end(&s);
}
