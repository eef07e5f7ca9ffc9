/* Batch normalisation over the rows of [rows][channels]: a template, see tmpl_vec.h. Columns are
 * taken a pack at a time, and summed in the order of colsum. */

/* What is summed over a column, of x and of dy. */
typedef enum column_term { SQUARE, TIMES_HAT } column_term;

/* SQUARE: (x - mean)^2. TIMES_HAT: dy (x - mean) rstd. */
INLINE pack column_value(column_term term, gsi_in x, gsi_in dy, const pack *mean, const pack *rstd,
                         size_t i, size_t m)
{
    pack p = load(x, i, m);
    EACH_VEC (k)
        p.v[k] -= mean->v[k];
    if (term == SQUARE) {
        EACH_VEC (k)
            p.v[k] *= p.v[k];
        return p;
    }
    const pack d = load(dy, i, m);
    EACH_VEC (k)
        p.v[k] = p.v[k] * rstd->v[k] * d.v[k];
    return p;
}

/* The columns of one pack, in colsum's order. */
INLINE pack column_sum(column_term term, gsi_in x, gsi_in dy, const pack *mean, const pack *rstd,
                       size_t first, size_t m, size_t rows, size_t cols)
{
    pack total = all(0);
    for (size_t block = 0; block < rows; block += ROW_BLOCK) {
        const size_t end = rows - block < ROW_BLOCK ? rows : block + ROW_BLOCK;
        pack part = all(0);
        size_t r = block;
        for (; r + 4 <= end; r += 4) {
            const size_t i = first + r * cols;
            const pack p0 = column_value(term, x, dy, mean, rstd, i, m);
            const pack p1 = column_value(term, x, dy, mean, rstd, i + cols, m);
            const pack p2 = column_value(term, x, dy, mean, rstd, i + 2 * cols, m);
            const pack p3 = column_value(term, x, dy, mean, rstd, i + 3 * cols, m);
            EACH_VEC (k)
                part.v[k] += (p0.v[k] + p1.v[k]) + (p2.v[k] + p3.v[k]);
        }
        for (; r < end; r++) {
            const pack p = column_value(term, x, dy, mean, rstd, first + r * cols, m);
            EACH_VEC (k)
                part.v[k] += p.v[k];
        }
        EACH_VEC (k)
            total.v[k] += part.v[k];
    }
    return total;
}

INLINE pack load_floats(const float *data, size_t i, size_t m)
{
    return load((gsi_in){data, GS_F32}, i, m);
}

INLINE void store_floats(float *data, size_t i, size_t m, pack x)
{
    if (m == LANES)
        store_whole(data + i, GS_F32, x);
    else
        store_part((gsi_out){data + i, GS_F32, NULL}, &x, m);
}

TARGET static void KERNEL(moments)(float *mean, float *m2, gsi_in x, size_t rows, size_t cols)
{
    const gsi_in none = {NULL, GS_F32};
    KERNEL(colsum)(mean, x, none, rows, cols, cols);
    for (size_t i = 0; i < cols; i += LANES) {
        const size_t m = left(cols, i);
        pack center = load_floats(mean, i, m);
        EACH_VEC (k)
            center.v[k] /= (float)rows;
        store_floats(mean, i, m, center);
        store_floats(m2, i, m, column_sum(SQUARE, x, none, &center, NULL, i, m, rows, cols));
    }
}

TARGET static void KERNEL(batchnorm_sums)(float *dgamma, float *dbeta, gsi_in dy, gsi_in x,
                                          const float *mean, const float *rstd, size_t rows,
                                          size_t cols)
{
    const gsi_in none = {NULL, GS_F32};
    KERNEL(colsum)(dbeta, dy, none, rows, cols, cols);
    for (size_t i = 0; i < cols; i += LANES) {
        const size_t m = left(cols, i);
        const pack center = load_floats(mean, i, m), scale = load_floats(rstd, i, m);
        store_floats(dgamma, i, m, column_sum(TIMES_HAT, x, dy, &center, &scale, i, m, rows, cols));
    }
}

/* ---- elementwise, with numbers of the column ---- */

TARGET static uint32_t KERNEL(batchnorm)(gsi_out y, gsi_in x, const float *mean, const float *rstd,
                                         gsi_in gamma, gsi_in beta, size_t rows, size_t cols)
{
    tally counted;
    sink s = sink_of(y, &counted);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            pack p = load(x, r * cols + i, m);
            const pack center = load_floats(mean, i, m), scale = load_floats(rstd, i, m);
            const pack g = load(gamma, i, m), b = load(beta, i, m);
            EACH_VEC (k)
                p.v[k] = (p.v[k] - center.v[k]) * (scale.v[k] * g.v[k]) + b.v[k];
            store(&s, r * cols + i, m, p);
        }
    return sink_end(&s);
}

TARGET static uint32_t KERNEL(batchnorm_backward)(gsi_out dx, gsi_in dy, gsi_in x,
                                                  const float *mean, const float *rstd,
                                                  gsi_in gamma, const float *dgamma,
                                                  const float *dbeta, size_t count, size_t rows,
                                                  size_t cols)
{
    tally counted;
    sink s = sink_of(dx, &counted);
    const float share = 1.0f / (float)count;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            const pack p = load(x, r * cols + i, m), g = load(gamma, i, m);
            const pack center = load_floats(mean, i, m), scale = load_floats(rstd, i, m);
            const pack dg = load_floats(dgamma, i, m), db = load_floats(dbeta, i, m);
            pack d = load(dy, r * cols + i, m);
            EACH_VEC (k) {
                const vf hat = (p.v[k] - center.v[k]) * scale.v[k];
                const vf mean_part = db.v[k] * share + hat * (dg.v[k] * share);
                d.v[k] = (d.v[k] - mean_part) * (scale.v[k] * g.v[k]);
            }
            store(&s, r * cols + i, m, d);
        }
    return sink_end(&s);
}
