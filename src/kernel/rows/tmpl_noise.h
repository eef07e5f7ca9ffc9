/* Dropout and fake quantisation: a template, see tmpl_vec.h. */

enum { BLOCKS = 16, WORDS = BLOCKS / WIDTH }; /* Philox blocks of a random group; vectors of them */

typedef struct word {
    vu v[WORDS]; /* one of the four words of each block */
} word;

/* a * b as 64 bits, lane by lane. */
INLINE void mul_wide(vu *high, vu *low, vu a, uint32_t b)
{
    const vu by = (vu){0} + b;
    const vu64 even = mul_even(a, by), odd = mul_even((vu)((vu64)a >> 32), by);
    const vu64 upper = (vu64){0} + 0xFFFFFFFF00000000;
    *high = (vu)(even >> 32 | (odd & upper));
    *low = (vu)((even & ~upper) | odd << 32);
}

/* gsi_philox of blocks 16 group to 16 group + 15: base/rng.c says what the numbers are. */
INLINE void philox_group(word out[4], uint64_t seed, uint64_t group)
{
    uint32_t first[BLOCKS];
    for (uint32_t b = 0; b < BLOCKS; b++)
        first[b] = (uint32_t)(group * BLOCKS) + b; /* a group never crosses 2^32 */
    for (int w = 0; w < WORDS; w++) {
        vu c0, c1 = (vu){0} + (uint32_t)(group * BLOCKS >> 32), c2 = {0}, c3 = {0};
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        memcpy(&c0, first + w * WIDTH, sizeof c0);
        for (int round = 0; round < 10; round++) {
            vu high0, low0, high1, low1;
            mul_wide(&high0, &low0, c0, 0xD2511F53);
            mul_wide(&high1, &low1, c2, 0xCD9E8D57);
            c0 = high1 ^ c1 ^ k0;
            c1 = low1;
            c2 = high0 ^ c3 ^ k1;
            c3 = low0;
            k0 += 0x9E3779B9;
            k1 += 0xBB67AE85;
        }
        out[0].v[w] = c0;
        out[1].v[w] = c1;
        out[2].v[w] = c2;
        out[3].v[w] = c3;
    }
}

/* Of the 32 elements that share a word, the first 16 take the low halves. */
TARGET static uint32_t KERNEL(dropout)(gsi_out y, gsi_in x, size_t n, const gsi_dropout *how)
{
    tally counted;
    sink s = sink_of(y, &counted);
    const int32_t threshold = (int32_t)how->threshold;
    const float scale = how->scale;
    word words[4];
    for (size_t i = 0; i < n; i += LANES) {
        const size_t quarter = i / LANES % 4, m = left(n, i);
        if (quarter == 0)
            philox_group(words, how->seed, (how->first + i) / GSI_RANDOM_GROUP);
        pack p = load(x, i, m);
        EACH_VEC (k) {
            const vu bits = words[quarter].v[k % WORDS];
            const vu random = k < WORDS ? bits & 0xFFFF : bits >> 16;
            p.v[k] = select((vi)random < threshold, (vf){0}, p.v[k] * scale);
        }
        store(&s, i, m, p);
    }
    return sink_end(&s);
}

/* ---- fake quantisation ---- */

TARGET static uint32_t KERNEL(fake_quant)(gsi_out y, gsi_in x, size_t n, const gsi_quant *how)
{
    tally counted;
    sink s = sink_of(y, &counted);
    const gsi_quant q = *how;
    for (size_t i = 0; i < n; i += LANES) {
        const size_t m = left(n, i);
        pack p = load(x, i, m);
        EACH_VEC (k) {
            vf t = p.v[k] * q.multiplier;
            t = select(t < q.low, splat(q.low), select(t > q.high, splat(q.high), t));
            /* the sign of a zero stays that of the number, as rint keeps it */
            p.v[k] = with_sign(t + NEAREST - NEAREST, t) / q.divisor;
        }
        store(&s, i, m, p);
    }
    return sink_end(&s);
}

TARGET static uint32_t KERNEL(fake_quant_backward)(gsi_out dx, gsi_in dy, gsi_in x, size_t n,
                                                   const gsi_quant *how)
{
    tally counted;
    sink s = sink_of(dx, &counted);
    for (size_t i = 0; i < n; i += LANES) {
        const size_t m = left(n, i);
        const pack p = load(x, i, m);
        pack d = load(dy, i, m);
        EACH_VEC (k)
            d.v[k] = select(magnitude(p.v[k]) <= how->amax, d.v[k], (vf){0});
        store(&s, i, m, d);
    }
    return sink_end(&s);
}

/* ---- integers ---- */

TARGET static void KERNEL(quantize)(int8_t *codes, gsi_in x, size_t n, const gsi_quant *how)
{
    const gsi_quant q = *how;
    for (size_t i = 0; i < n; i += LANES) {
        const size_t m = left(n, i);
        uint8_t bytes[LANES], *to = m == LANES ? (uint8_t *)codes + i : bytes;
        const pack p = load(x, i, m);
        EACH_VEC (k) {
            vf t = p.v[k] * q.multiplier;
            t = select(t < q.low, splat(q.low), select(t > q.high, splat(q.high), t));
            t = select(is_nan(t), (vf){0}, t + NEAREST - NEAREST);
            store_u8(to + k * WIDTH, (vu) __builtin_convertvector(t, vi) & 0xFF);
        }
        if (m < LANES)
            memcpy(codes + i, bytes, m);
    }
}

INLINE pack load_sums(const int32_t *sums, size_t m)
{
    int32_t whole[LANES] = {0};
    pack p;
    if (m < LANES)
        memcpy(whole, sums, m * sizeof *sums);
    EACH_VEC (k) {
        vi x;
        memcpy(&x, (m < LANES ? whole : sums) + k * WIDTH, sizeof x);
        p.v[k] = __builtin_convertvector(x, vf);
    }
    return p;
}

TARGET static uint32_t KERNEL(requantize)(gsi_out y, size_t y_stride, const int32_t *sums,
                                          size_t stride, const float *scale, gsi_in bias,
                                          size_t rows, size_t cols)
{
    tally counted;
    sink s = sink_of(y, &counted);
    const gsi_in scales = {scale, GS_F32};
    for (size_t r = 0; r < rows; r++, sums += stride) {
        for (size_t c = 0; c < cols; c += LANES) {
            const size_t m = left(cols, c);
            const pack by = load(scales, c, m);
            pack p = load_sums(sums + c, m);
            EACH_VEC (k)
                p.v[k] *= by.v[k];
            if (bias.data) {
                const pack b = load(bias, c, m);
                EACH_VEC (k)
                    p.v[k] += b.v[k];
            }
            store(&s, c, m, p);
        }
        s.out = gsi_out_at(s.out, y_stride);
    }
    return sink_end(&s);
}
