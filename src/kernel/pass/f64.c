/* The passes for f64, in plain C: gradients of a framework that trains in double. What they say of
 * magnitudes is rounded up to f32, and what is finite stays so. */
#include "kernel/dispatch.h"

#define F64_INF 0x7FF0000000000000u

static uint64_t magnitude(const double *x)
{
    uint64_t u;
    memcpy(&u, x, sizeof u);
    return u & ~((uint64_t)1 << 63);
}

static uint32_t amax_bits(uint64_t mag)
{
    const double most = 0x1.fffffep+127;
    double x;
    if (mag >= F64_INF)
        return GSI_F32_INF;
    memcpy(&x, &mag, sizeof x);
    const uint32_t u = gsi_bits((float)(x < most ? x : most));
    return (double)gsi_float(u) < x && x < most ? u + 1 : u;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint32_t check_f64_ref(const void *src, size_t n)
{
    const double *x = src;
    uint64_t amax = 0;
    for (size_t i = 0; i < n; i++)
        amax = max_u64(amax, magnitude(&x[i]));
    return amax_bits(amax);
}

/* Element i goes to lane i % GSI_LANES, as in the other types. */
static uint32_t scan_f64_ref(double *sumsq, const void *src, size_t n)
{
    const double *x = src;
    double lanes[GSI_LANES] = {0};
    size_t i = 0;
    for (; i + GSI_LANES <= n; i += GSI_LANES)
        for (size_t l = 0; l < GSI_LANES; l++)
            lanes[l] += x[i + l] * x[i + l];
    for (size_t l = 0; i + l < n; l++)
        lanes[l] += x[i + l] * x[i + l];
    const uint32_t amax = check_f64_ref(src, n);
    *sumsq = gsi_fold(lanes, amax);
    return amax;
}

/* The limit of underflow is the f32 after a tie that rounds to zero: what lies between does not. */
static void count_f64_ref(gsi_counts *out, double *sumsq, const void *src, size_t n,
                          gsi_limits limits)
{
    if (sumsq)
        scan_f64_ref(sumsq, src, n);
    const double *x = src;
    const double under = limits.underflow ? (double)gsi_float(limits.underflow - 1) : 0;
    const double sub = (double)gsi_float(limits.subnormal);
    gsi_counts c = {.first_bad = n};
    uint64_t amax = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t mag = magnitude(&x[i]);
        double size;
        memcpy(&size, &mag, sizeof size);
        if (mag >= F64_INF) {
            if (c.first_bad == n)
                c.first_bad = i;
            c.inf += mag == F64_INF;
            c.nan += mag > F64_INF;
            continue;
        }
        amax = max_u64(amax, mag);
        c.zero += mag == 0;
        c.underflow += mag > 0 && size <= under;
        c.subnormal += size > under && size < sub;
    }
    c.amax = amax_bits(amax);
    *out = c;
}

static uint32_t scale_f64_ref(void *dst, const void *src, size_t n, float factor, bool stream)
{
    const double *x = src;
    double *y = dst;
    uint64_t amax = 0;
    (void)stream;
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] * (double)factor;
        amax = max_u64(amax, magnitude(&y[i]));
    }
    return amax_bits(amax);
}

static uint32_t unscale_f64_ref(gsi_counts *bad, double *sumsq, void *dst, const void *src,
                                size_t n, float factor, bool stream)
{
    const uint32_t amax = scan_f64_ref(sumsq, src, n);
    if (amax >= GSI_F32_INF) {
        gsi_counts part;
        count_f64_ref(&part, NULL, src, n, (gsi_limits){0});
        gsi_add_bad(bad, &part, 0);
    }
    scale_f64_ref(dst, src, n, factor, stream);
    return amax;
}

void gsi_pass_f64(gsi_kernels *k)
{
#define X(name, family, from, to) k->pass.GSI_SLOT_##family(from, to) = name##_ref;
    GS_DOUBLES(X)
#undef X
}
