/* The reference: complete, plain C, and the definition of every kernel.
 *
 * Each family is one function whose data types are arguments; the kernels at the end fix them, so
 * the compiler makes a loop for each pair of types. */
#include "kernel/dispatch.h"
#include "kernel/pass/exponents.h"

double gsi_fold(double lanes[GSI_LANES], uint32_t top)
{
    if (top >= GSI_F32_INF) /* not the NaN of whichever lane came last */
        return (double)gsi_float(GSI_F32_INF);
    for (int half = GSI_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lanes[i] += lanes[i + half];
    return lanes[0];
}

/* Stores f32 bits as element i and returns the magnitude of what is there now. */
static inline uint32_t store(void *dst, size_t i, uint32_t u, gs_dtype type, int random)
{
    if (type == GS_F32) {
        ((uint32_t *)dst)[i] = u;
        return gsi_magnitude(u);
    }
    const gsi_row row = gsi_row_of(type);
    const uint32_t code = gsi_narrow(u, row, random, false);
    ((uint16_t *)dst)[i] = (uint16_t)code;
    return gsi_magnitude(gsi_widen(code, row));
}

static inline uint32_t max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }

static inline uint32_t ref_convert(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                                   bool stream)
{
    (void)stream;
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++)
        top = max_u32(top, store(dst, i, gsi_element(src, from, i), to, GSI_NEAREST));
    return gsi_amax_bits(top);
}

static inline uint32_t ref_stochastic(void *dst, gs_dtype to, const void *src, gs_dtype from,
                                      size_t n, uint64_t seed, uint64_t first)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const int random = gsi_random_u16(seed, first + i);
        top = max_u32(top, store(dst, i, gsi_element(src, from, i), to, random));
    }
    return gsi_amax_bits(top);
}

static inline uint32_t ref_check(const void *src, size_t n, gs_dtype type)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++)
        top = max_u32(top, gsi_magnitude(gsi_element(src, type, i)));
    return gsi_amax_bits(top);
}

static inline uint32_t scan_block(double lanes[GSI_LANES], const void *src, size_t first,
                                  size_t end, gs_dtype type)
{
    float part[GSI_LANES] = {0};
    uint32_t top = 0;
    for (size_t i = first; i < end; i++) {
        const uint32_t u = gsi_element(src, type, i);
        part[i % GSI_LANES] += gsi_float(u) * gsi_float(u);
        top = max_u32(top, gsi_magnitude(u));
    }
    if (gsi_sums_in_f32(top)) {
        for (size_t l = 0; l < GSI_LANES; l++)
            lanes[l] += (double)part[l];
    } else {
        for (size_t i = first; i < end; i++) {
            const double x = (double)gsi_float(gsi_element(src, type, i));
            lanes[i % GSI_LANES] += x * x;
        }
    }
    return top;
}

static inline uint32_t ref_scan(double *sumsq, const void *src, size_t n, gs_dtype type)
{
    double lanes[GSI_LANES] = {0};
    uint32_t top = 0;
    for (size_t i = 0; i < n; i += GSI_BLOCK)
        top = max_u32(top, scan_block(lanes, src, i, n - i < GSI_BLOCK ? n : i + GSI_BLOCK, type));
    *sumsq = gsi_fold(lanes, top);
    return gsi_amax_bits(top);
}

static inline void ref_count(gsi_counts *out, double *sumsq, const void *src, size_t n,
                             gsi_limits limits, gs_dtype type)
{
    if (sumsq)
        ref_scan(sumsq, src, n, type);
    gsi_counts c = {.first_bad = n};
    for (size_t i = 0; i < n; i++) {
        const uint32_t mag = gsi_magnitude(gsi_element(src, type, i));
        if (mag >= GSI_F32_INF) {
            if (c.first_bad == n)
                c.first_bad = i;
            c.inf += mag == GSI_F32_INF;
            c.nan += mag > GSI_F32_INF;
            continue;
        }
        c.amax = max_u32(c.amax, mag);
        c.zero += mag == 0;
        c.underflow += mag > 0 && mag < limits.underflow;
        c.subnormal += mag >= limits.underflow && mag < limits.subnormal;
    }
    *out = c;
}

static inline uint32_t ref_scale(void *dst, gs_dtype to, const void *src, gs_dtype from, size_t n,
                                 float factor, bool stream)
{
    (void)stream;
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const float x = gsi_float(gsi_element(src, from, i)) * factor;
        top = max_u32(top, store(dst, i, gsi_bits(x), to, GSI_NEAREST));
    }
    return gsi_amax_bits(top);
}

static inline uint32_t ref_unscale(gsi_counts *bad, double *sumsq, void *dst, gs_dtype to,
                                   const void *src, gs_dtype from, size_t n, float factor,
                                   bool stream)
{
    const uint32_t amax = ref_scan(sumsq, src, n, from);
    if (amax >= GSI_F32_INF) {
        gsi_counts part;
        ref_count(&part, NULL, src, n, (gsi_limits){0}, from);
        gsi_add_bad(bad, &part, 0);
    }
    ref_scale(dst, to, src, from, n, factor, stream);
    return amax;
}

static inline uint32_t ref_axpy(void *dst, const void *src, gs_dtype from, size_t n, float factor)
{
    float *y = dst;
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        y[i] += factor * gsi_float(gsi_element(src, from, i));
        top = max_u32(top, gsi_magnitude(gsi_bits(y[i])));
    }
    return gsi_amax_bits(top);
}

static inline uint32_t ref_exponents(gs_exponents *sum, const void *src, size_t n, gs_dtype type)
{
    return gsi_exponents_each(sum, src, n, type);
}

/* ---- the kernels ---- */

#define X(name, family, from, to) \
    GSI_MAKE_##family(static, name##_ref, ref_##family, GS_##from, GS_##to)
GS_PASSES(X)
GS_EXPONENTS(X)
#undef X

void gsi_pass_ref(gsi_kernels *k)
{
#define X(name, family, from, to) k->pass.GSI_SLOT_##family(from, to) = name##_ref;
    GS_PASSES(X)
    GS_EXPONENTS(X)
#undef X
    gsi_pass_f64(k);
}
