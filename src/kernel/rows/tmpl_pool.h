/* Pooling in windows over NHWC data: a template, see tmpl_vec.h. Channels run in the
 * vectors; forward loops over the elements of a window, backward over the windows of an element,
 * so that everything is written once. */

/* Where output o of one dimension begins; below 0 in the padding. */
INLINE ptrdiff_t window_start(const gsi_pool2d *p, size_t o)
{
    return (ptrdiff_t)(o * p->stride) - (ptrdiff_t)p->pad;
}

typedef struct range {
    size_t first, end;
} range;

/* The elements of a dimension of `extent` that lie in window o, which is `size` long. */
INLINE range inside(const gsi_pool2d *p, size_t o, size_t size, size_t extent)
{
    const ptrdiff_t start = window_start(p, o), end = start + (ptrdiff_t)size;
    return (range){start < 0 ? 0 : (size_t)start, end > (ptrdiff_t)extent ? extent : (size_t)end};
}

/* The windows, `count` of them and each `size` long, that element e of a dimension lies in. */
INLINE range windows_of(const gsi_pool2d *p, size_t e, size_t size, size_t count)
{
    const size_t at = e + p->pad;
    const size_t first = at < size ? 0 : (at - size) / p->stride + 1;
    const size_t end = at / p->stride + 1;
    return (range){first, end < count ? end : count};
}

INLINE size_t in_pixel(const gsi_pool2d *p, size_t image, size_t row, size_t col)
{
    return ((image * p->height + row) * p->width + col) * p->channels;
}

INLINE size_t out_pixel(const gsi_pool2d *p, size_t image, size_t row, size_t col)
{
    return ((image * p->out_height + row) * p->out_width + col) * p->channels;
}

/* The tap of window (oh, ow) that reads an element. */
INLINE int32_t tap_in(const gsi_pool2d *p, size_t h, size_t w, size_t oh, size_t ow)
{
    const ptrdiff_t down = (ptrdiff_t)h - window_start(p, oh);
    return (int32_t)(down * (ptrdiff_t)p->kw + (ptrdiff_t)w - window_start(p, ow));
}

typedef struct taps {
    vi v[VECS];
} taps;

INLINE void store_taps(uint8_t *to, size_t m, taps x)
{
    uint8_t buffer[LANES];
    uint8_t *const whole = m == LANES ? to : buffer;
    EACH_VEC (k)
        store_u8(whole + k * WIDTH, (vu)x.v[k]);
    if (m < LANES)
        memcpy(to, buffer, m);
}

INLINE taps load_taps(const uint8_t *from, size_t m)
{
    uint8_t buffer[LANES] = {0};
    if (m < LANES)
        memcpy(buffer, from, m);
    const uint8_t *const whole = m == LANES ? from : buffer;
    taps x;
    EACH_VEC (k)
        x.v[k] = (vi)load_u8(whole + k * WIDTH);
    return x;
}

/* ---- the largest ---- */

TARGET static uint32_t KERNEL(maxpool)(gsi_out y, uint8_t *from, gsi_in x, const gsi_pool2d *p,
                                       size_t first, size_t lines)
{
    tally counted;
    sink s = sink_of(y, &counted);
    for (size_t line = first; line < first + lines; line++) {
        const size_t image = line / p->out_height, oh = line % p->out_height;
        const range hs = inside(p, oh, p->kh, p->height);
        for (size_t ow = 0; ow < p->out_width; ow++) {
            const range ws = inside(p, ow, p->kw, p->width);
            const size_t to = out_pixel(p, image, oh, ow);
            for (size_t c = 0; c < p->channels; c += LANES) {
                const size_t m = left(p->channels, c);
                pack top = all(-gsi_float(GSI_F32_INF));
                taps where;
                EACH_VEC (k)
                    where.v[k] = (vi){0} + tap_in(p, hs.first, ws.first, oh, ow);
                for (size_t h = hs.first; h < hs.end; h++)
                    for (size_t w = ws.first; w < ws.end; w++) {
                        const pack e = load(x, in_pixel(p, image, h, w) + c, m);
                        const vi at = (vi){0} + tap_in(p, h, w, oh, ow);
                        EACH_VEC (k) { /* a NaN is taken, and nothing after it */
                            const vi more = ~(e.v[k] <= top.v[k]) & ~is_nan(top.v[k]);
                            top.v[k] = select(more, e.v[k], top.v[k]);
                            where.v[k] = (more & at) | (~more & where.v[k]);
                        }
                    }
                store(&s, to + c, m, top);
                store_taps(from + (to + c), m, where);
            }
        }
    }
    return sink_end(&s);
}

/* ---- the average ---- */

TARGET static uint32_t KERNEL(avgpool)(gsi_out y, gsi_in x, const gsi_pool2d *p, size_t first,
                                       size_t lines)
{
    tally counted;
    sink s = sink_of(y, &counted);
    const float share = 1.0f / (float)(p->kh * p->kw);
    for (size_t line = first; line < first + lines; line++) {
        const size_t image = line / p->out_height, oh = line % p->out_height;
        const range hs = inside(p, oh, p->kh, p->height);
        for (size_t ow = 0; ow < p->out_width; ow++) {
            const range ws = inside(p, ow, p->kw, p->width);
            for (size_t c = 0; c < p->channels; c += LANES) {
                const size_t m = left(p->channels, c);
                pack sum = all(0);
                for (size_t h = hs.first; h < hs.end; h++)
                    for (size_t w = ws.first; w < ws.end; w++) {
                        const pack e = load(x, in_pixel(p, image, h, w) + c, m);
                        EACH_VEC (k)
                            sum.v[k] += e.v[k];
                    }
                EACH_VEC (k)
                    sum.v[k] *= share;
                store(&s, out_pixel(p, image, oh, ow) + c, m, sum);
            }
        }
    }
    return sink_end(&s);
}

/* ---- backward ---- */

/* Every input takes a share of the gradients of the windows it lies in, or with `from` the whole of
 * those that chose it. */
INLINE uint32_t scatter(gsi_out dx, gsi_in dy, const uint8_t *from, const gsi_pool2d *p,
                        size_t first, size_t lines)
{
    tally counted;
    sink s = sink_of(dx, &counted);
    const float share = from ? 1 : 1.0f / (float)(p->kh * p->kw);
    for (size_t line = first; line < first + lines; line++) {
        const size_t image = line / p->height, h = line % p->height;
        const range ohs = windows_of(p, h, p->kh, p->out_height);
        for (size_t w = 0; w < p->width; w++) {
            const range ows = windows_of(p, w, p->kw, p->out_width);
            for (size_t c = 0; c < p->channels; c += LANES) {
                const size_t m = left(p->channels, c);
                pack sum = all(0);
                for (size_t oh = ohs.first; oh < ohs.end; oh++)
                    for (size_t ow = ows.first; ow < ows.end; ow++) {
                        const size_t at = out_pixel(p, image, oh, ow) + c;
                        pack d = load(dy, at, m);
                        if (from) {
                            const taps chosen = load_taps(from + at, m);
                            const vi here = (vi){0} + tap_in(p, h, w, oh, ow);
                            EACH_VEC (k)
                                d.v[k] = select(chosen.v[k] == here, d.v[k], (vf){0});
                        }
                        EACH_VEC (k)
                            sum.v[k] += d.v[k];
                    }
                EACH_VEC (k)
                    sum.v[k] *= share;
                store(&s, in_pixel(p, image, h, w) + c, m, sum);
            }
        }
    }
    return sink_end(&s);
}

TARGET static uint32_t KERNEL(maxpool_backward)(gsi_out dx, gsi_in dy, const uint8_t *from,
                                                const gsi_pool2d *p, size_t first, size_t lines)
{
    return scatter(dx, dy, from, p, first, lines);
}

TARGET static uint32_t KERNEL(avgpool_backward)(gsi_out dx, gsi_in dy, const gsi_pool2d *p,
                                                size_t first, size_t lines)
{
    return scatter(dx, dy, NULL, p, first, lines);
}
