/* Batch normalisation over the rows of [rows][channels]: a template, see tmpl_vec.h. Columns are
 * taken a pack at a time, and summed in the order of colsum. */

/* What is summed over a column: x; (x - mean)^2; dy and dy (x - mean) rstd, two sums. */
typedef enum column_term { PLAIN, SQUARE, TIMES_HAT } column_term;

typedef struct columns {
    gsi_in x, dy;
    pack mean, rstd;
    size_t cols;
} columns;

typedef struct column_sums {
    pack a, b; /* b: of dy */
} column_sums;

/* Of m columns from element i on. */
INLINE column_sums column_value(column_term term, const columns *c, size_t i, size_t m)
{
    column_sums v;
    v.a = load(c->x, i, m);
    EACH_VEC (k)
        v.a.v[k] = term == PLAIN ? v.a.v[k] : v.a.v[k] - c->mean.v[k];
    if (term == SQUARE) {
        EACH_VEC (k)
            v.a.v[k] *= v.a.v[k];
    } else if (term == TIMES_HAT) {
        v.b = load(c->dy, i, m);
        EACH_VEC (k)
            v.a.v[k] = v.a.v[k] * c->rstd.v[k] * v.b.v[k];
    }
    return v;
}

/* The columns of one pack, in colsum's order. */
INLINE column_sums column_sum(column_term term, const columns *c, size_t first, size_t m,
                              size_t rows)
{
    column_sums total = {all(0), all(0)};
    for (size_t block = 0; block < rows; block += ROW_BLOCK) {
        const size_t end = rows - block < ROW_BLOCK ? rows : block + ROW_BLOCK;
        column_sums part = {all(0), all(0)};
        size_t r = block;
        for (; r + 4 <= end; r += 4) {
            const size_t i = first + r * c->cols;
            const column_sums p0 = column_value(term, c, i, m);
            const column_sums p1 = column_value(term, c, i + c->cols, m);
            const column_sums p2 = column_value(term, c, i + 2 * c->cols, m);
            const column_sums p3 = column_value(term, c, i + 3 * c->cols, m);
            EACH_VEC (k) {
                part.a.v[k] += (p0.a.v[k] + p1.a.v[k]) + (p2.a.v[k] + p3.a.v[k]);
                if (term == TIMES_HAT)
                    part.b.v[k] += (p0.b.v[k] + p1.b.v[k]) + (p2.b.v[k] + p3.b.v[k]);
            }
        }
        for (; r < end; r++) {
            const column_sums p = column_value(term, c, first + r * c->cols, m);
            EACH_VEC (k) {
                part.a.v[k] += p.a.v[k];
                if (term == TIMES_HAT)
                    part.b.v[k] += p.b.v[k];
            }
        }
        EACH_VEC (k) {
            total.a.v[k] += part.a.v[k];
            total.b.v[k] += part.b.v[k];
        }
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
    columns c = {.x = x, .cols = cols};
    for (size_t i = 0; i < cols; i += LANES) {
        const size_t m = left(cols, i);
        c.mean = column_sum(PLAIN, &c, i, m, rows).a;
        EACH_VEC (k)
            c.mean.v[k] /= (float)rows;
        store_floats(mean, i, m, c.mean);
        store_floats(m2, i, m, column_sum(SQUARE, &c, i, m, rows).a);
    }
}

TARGET static void KERNEL(batchnorm_sums)(float *dgamma, float *dbeta, gsi_in dy, gsi_in x,
                                          const float *mean, const float *rstd, size_t rows,
                                          size_t cols)
{
    columns c = {.x = x, .dy = dy, .cols = cols};
    for (size_t i = 0; i < cols; i += LANES) {
        const size_t m = left(cols, i);
        c.mean = load_floats(mean, i, m);
        c.rstd = load_floats(rstd, i, m);
        const column_sums sums = column_sum(TIMES_HAT, &c, i, m, rows);
        store_floats(dgamma, i, m, sums.a);
        store_floats(dbeta, i, m, sums.b);
    }
}

/* ---- elementwise, with numbers of the column: a pack of columns stays in registers ---- */

TARGET static uint32_t KERNEL(batchnorm)(gsi_out y, gsi_in x, const float *mean, const float *rstd,
                                         gsi_in gamma, gsi_in beta, size_t rows, size_t cols)
{
    tally counted;
    sink s = sink_of(y, &counted);
    for (size_t i = 0; i < cols; i += LANES) {
        const size_t m = left(cols, i);
        const pack center = load_floats(mean, i, m), b = load(beta, i, m);
        pack scale = load_floats(rstd, i, m);
        const pack g = load(gamma, i, m);
        EACH_VEC (k)
            scale.v[k] *= g.v[k];
        for (size_t r = 0; r < rows; r++) {
            pack p = load(x, r * cols + i, m);
            EACH_VEC (k)
                p.v[k] = (p.v[k] - center.v[k]) * scale.v[k] + b.v[k];
            store(&s, r * cols + i, m, p);
        }
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
    for (size_t i = 0; i < cols; i += LANES) {
        const size_t m = left(cols, i);
        const pack center = load_floats(mean, i, m), scale = load_floats(rstd, i, m);
        pack g = load(gamma, i, m), dg = load_floats(dgamma, i, m), db = load_floats(dbeta, i, m);
        EACH_VEC (k) {
            g.v[k] *= scale.v[k];
            dg.v[k] *= share;
            db.v[k] *= share;
        }
        for (size_t r = 0; r < rows; r++) {
            const pack p = load(x, r * cols + i, m);
            pack d = load(dy, r * cols + i, m);
            EACH_VEC (k) {
                const vf hat = (p.v[k] - center.v[k]) * scale.v[k];
                d.v[k] = (d.v[k] - (db.v[k] + hat * dg.v[k])) * g.v[k];
            }
            store(&s, r * cols + i, m, d);
        }
    }
    return sink_end(&s);
}
