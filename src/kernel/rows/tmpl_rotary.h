/* Rotary embedding, of Llama: a template, see tmpl_vec.h. */

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
