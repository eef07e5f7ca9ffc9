/* Softmax, losses, and the embedding that feeds them: a template, see rows_vec.h. */

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

TARGET static void KERNEL(logsumexp)(float *lse, gsi_in x, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        lse[r] = row_logsumexp(gsi_in_at(x, r * cols), cols);
}

/* ---- cross-entropy ---- */

INLINE float one(gsi_in x, size_t i)
{
    const gsi_in at = gsi_in_at(x, i);
    uint32_t u = 0;
    memcpy(&u, at.data, at.type == GS_F32 ? 4 : 2);
    if (at.type != GS_F32)
        u = gsi_widen(u, at.type == GS_F16 ? GSI_ROW_F16 : GSI_ROW_BF16);
    return gsi_float(u);
}

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
                float room[LANES];
                memcpy(room, &p, sizeof room);
                room[hot - i] -= 1.0f;
                memcpy(&p, room, sizeof room);
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
