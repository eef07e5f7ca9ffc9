/* Softmax, losses, and the embedding that feeds them: a template, see tmpl_vec.h. */

INLINE float row_max(gsi_in x, size_t cols)
{
    const float low = -gsi_float(GSI_F32_INF);
    pack top = all(low);
    for (size_t i = 0; i < cols; i += LANES) {
        const size_t m = left(cols, i);
        const pack p = cut(load(x, i, m), m, low);
        EACH_VEC (k)
            top.v[k] = max_f32(p.v[k], top.v[k]);
    }
    return fold_max(top);
}

/* The sum of e^(x - top). */
INLINE float row_exp_sum(gsi_in x, float top, size_t cols)
{
    row_sum s = sum_none();
    for (size_t i = 0; i < cols; i += LANES) {
        const size_t m = left(cols, i);
        pack p = load(x, i, m);
        EACH_VEC (k)
            p.v[k] = exp_f32(p.v[k] - top);
        sum_add(&s, i, cut(p, m, 0));
    }
    return sum_fold(&s);
}

INLINE float log_one(float x) { return log_f32(splat(x))[0]; }

INLINE float row_logsumexp(gsi_in x, size_t cols)
{
    const float top = row_max(x, cols);
    return top + log_one(row_exp_sum(x, top, cols));
}

TARGET static uint32_t KERNEL(softmax)(gsi_out y, gsi_in x, size_t rows, size_t cols)
{
    tally counted;
    sink s = sink_of(y, &counted);
    for (size_t r = 0; r < rows; r++) {
        const gsi_in row = gsi_in_at(x, r * cols);
        const float top = row_max(row, cols), scale = 1.0f / row_exp_sum(row, top, cols);
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            pack p = load(row, i, m);
            EACH_VEC (k)
                p.v[k] = exp_f32(p.v[k] - top) * scale;
            store(&s, r * cols + i, m, p);
        }
    }
    return sink_end(&s);
}

TARGET static uint32_t KERNEL(softmax_backward)(gsi_out dx, gsi_in dy, gsi_in y, size_t rows,
                                                size_t cols)
{
    tally counted;
    sink s = sink_of(dx, &counted);
    for (size_t r = 0; r < rows; r++) {
        const gsi_in dyr = gsi_in_at(dy, r * cols), yr = gsi_in_at(y, r * cols);
        row_sum dot = sum_none();
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            const pack d = load(dyr, i, m);
            pack p = load(yr, i, m);
            EACH_VEC (k)
                p.v[k] *= d.v[k];
            sum_add(&dot, i, p);
        }
        const float mean = sum_fold(&dot); /* of dy, under the distribution y */
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            const pack d = load(dyr, i, m);
            pack p = load(yr, i, m);
            EACH_VEC (k)
                p.v[k] *= d.v[k] - mean;
            store(&s, r * cols + i, m, p);
        }
    }
    return sink_end(&s);
}

/* ---- causal attention: a row's past is cut out of packs that the row has in full ---- */

INLINE size_t past_of(size_t first, size_t r, size_t cols)
{
    return r < cols && first < cols - r ? first + r + 1 : cols;
}

/* Of a row of cols elements, those from i on that lie before `past`: the others are `fill`. */
INLINE pack load_past(const float *row, size_t i, size_t cols, size_t past, float fill)
{
    return cut(load((gsi_in){row, GS_F32}, i, left(cols, i)), left(past, i), fill);
}

/* Zeros for packs without a past. */
INLINE void store_future(sink *s, size_t at, size_t i, size_t cols)
{
    for (; i < cols; i += LANES)
        store(s, at + i, left(cols, i), all(0));
}

TARGET static uint32_t KERNEL(attend)(gsi_out p, float *s, size_t rows, size_t cols, size_t first,
                                      float scale)
{
    const float low = -gsi_float(GSI_F32_INF);
    tally counted;
    sink to = sink_of(p, &counted);
    for (size_t r = 0; r < rows; r++) {
        const size_t past = past_of(first, r, cols);
        float *row = s + r * cols;
        pack most = all(low);
        row_sum sum = sum_none();
        size_t i;
        for (i = 0; i < past; i += LANES) {
            const pack x = load_past(row, i, cols, past, low);
            EACH_VEC (k)
                most.v[k] = max_f32(x.v[k], most.v[k]);
        }
        const float top = fold_max(most) * scale; /* the largest product: rounding keeps order */
        sink keep = {.out = {row, GS_F32, NULL}};
        for (i = 0; i < past; i += LANES) {
            pack x = load_past(row, i, cols, past, 0);
            EACH_VEC (k)
                x.v[k] = exp_f32(x.v[k] * scale - top);
            x = cut(x, left(past, i), 0);
            sum_add(&sum, i, x);
            store(&keep, i, left(cols, i), x);
        }
        const float share = 1.0f / sum_fold(&sum);
        for (i = 0; i < past; i += LANES) {
            pack x = load_past(row, i, cols, past, 0);
            EACH_VEC (k)
                x.v[k] *= share;
            store(&to, r * cols + i, left(cols, i), cut(x, left(past, i), 0));
        }
        store_future(&to, r * cols, i, cols);
    }
    return sink_end(&to);
}

TARGET static uint32_t KERNEL(attend_backward)(gsi_out ds, const float *dp, gsi_in p, size_t rows,
                                               size_t cols, size_t first, float scale)
{
    tally counted;
    sink to = sink_of(ds, &counted);
    for (size_t r = 0; r < rows; r++) {
        const size_t past = past_of(first, r, cols);
        const float *d = dp + r * cols;
        const gsi_in y = gsi_in_at(p, r * cols);
        row_sum dot = sum_none();
        size_t i;
        for (i = 0; i < past; i += LANES) {
            pack x = load_past(d, i, cols, past, 0);
            const pack q = cut(load(y, i, left(cols, i)), left(past, i), 0);
            EACH_VEC (k)
                x.v[k] *= q.v[k];
            sum_add(&dot, i, x);
        }
        const float mean = sum_fold(&dot);
        for (i = 0; i < past; i += LANES) {
            pack x = load_past(d, i, cols, past, 0);
            const pack q = cut(load(y, i, left(cols, i)), left(past, i), 0);
            EACH_VEC (k)
                x.v[k] = q.v[k] * (x.v[k] - mean) * scale;
            store(&to, r * cols + i, left(cols, i), cut(x, left(past, i), 0));
        }
        store_future(&to, r * cols, i, cols);
    }
    return sink_end(&to);
}

TARGET static void KERNEL(logsumexp)(float *lse, gsi_in x, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        lse[r] = row_logsumexp(gsi_in_at(x, r * cols), cols);
}

/* ---- cross-entropy ---- */

INLINE float one(gsi_in x, size_t i) { return gsi_float(gsi_element(x.data, x.type, i)); }

TARGET static void KERNEL(cross_entropy)(float *loss, float *lse, gsi_in logits,
                                         const int32_t *target, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++) {
        const gsi_in row = gsi_in_at(logits, r * cols);
        lse[r] = row_logsumexp(row, cols);
        loss[r] = target[r] < 0 ? 0 : lse[r] - one(row, (size_t)target[r]);
    }
}

TARGET static uint32_t KERNEL(cross_entropy_backward)(gsi_out d, gsi_in logits,
                                                      const int32_t *target, const float *lse,
                                                      float seed, size_t rows, size_t cols)
{
    tally counted;
    sink s = sink_of(d, &counted);
    for (size_t r = 0; r < rows; r++) {
        const gsi_in row = gsi_in_at(logits, r * cols);
        const bool ignored = target[r] < 0;
        const size_t hot = ignored ? SIZE_MAX : (size_t)target[r];
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            pack p = all(0);
            if (!ignored) {
                p = load(row, i, m);
                EACH_VEC (k)
                    p.v[k] = exp_f32(p.v[k] - lse[r]);
            }
            if (hot - i < LANES) {
                float buffer[LANES];
                memcpy(buffer, &p, sizeof buffer);
                buffer[hot - i] -= 1.0f;
                memcpy(&p, buffer, sizeof buffer);
            }
            EACH_VEC (k)
                p.v[k] *= seed;
            store(&s, r * cols + i, m, p);
        }
    }
    return sink_end(&s);
}

TARGET static float KERNEL(square_error)(gsi_in a, gsi_in b, size_t n)
{
    row_sum s = sum_none();
    for (size_t i = 0; i < n; i += LANES) {
        const size_t m = left(n, i);
        pack p = load(a, i, m);
        const pack q = load(b, i, m);
        EACH_VEC (k)
            p.v[k] = (p.v[k] - q.v[k]) * (p.v[k] - q.v[k]);
        sum_add(&s, i, p);
    }
    return sum_fold(&s);
}

/* ---- embedding ---- */

TARGET static uint32_t KERNEL(gather)(gsi_out y, gsi_in table, const int32_t *index, size_t rows,
                                      size_t cols)
{
    tally counted;
    sink s = sink_of(y, &counted);
    for (size_t r = 0; r < rows; r++) {
        const gsi_in row = gsi_in_at(table, (size_t)index[r] * cols);
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            store(&s, r * cols + i, m, load(row, i, m));
        }
    }
    return sink_end(&s);
}

TARGET static void KERNEL(scatter)(float *table, gsi_in dy, const int32_t *index, size_t rows,
                                   size_t cols, size_t stride)
{
    for (size_t r = 0; r < rows; r++) {
        float *const to = table + (size_t)index[r] * stride;
        for (size_t i = 0; i < cols; i += LANES) {
            const size_t m = left(cols, i);
            add_to(to, i, m, load(dy, r * stride + i, m));
        }
    }
}
