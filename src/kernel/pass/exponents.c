/* gs_exponents: what is not a pass. */
#include "kernel/pass/exponents.h"

void gs_exponents_merge(gs_exponents *into, const gs_exponents *from)
{
    into->zero += from->zero;
    into->inf += from->inf;
    into->nan += from->nan;
    for (int i = 0; i < GS_BINADES; i++) {
        into->all[i] += from->all[i];
        into->power[i] += from->power[i];
        into->top[i] += from->top[i];
    }
}

/* f64 bits of a magnitude, cut to 23 mantissa bits with the last one set if any cut bit was: no
 * test of gsi_exponents_edges can tell the difference. */
static void add_f64(gs_exponents *sum, uint64_t mag)
{
    enum { BIAS = 1023 - 127 };
    const int e = (int)(mag >> 52) - BIAS;
    const uint32_t m = (uint32_t)(mag >> 29 & 0x7FFFFF) | ((mag & 0x1FFFFFFF) != 0);
    const int lowest = 127 - GS_BINADE_OF_ONE;
    if (e < lowest) { /* f64 subnormals too */
        sum->all[0]++;
    } else if (e > 254) {
        sum->all[GS_BINADES - 1]++;
        gsi_exponents_edges(sum, 254, 0x7FFFFF);
    } else {
        sum->all[e - lowest]++;
        gsi_exponents_edges(sum, e, m);
    }
}

static float rounded_up(double x)
{
    const float f = (float)x;
    return (double)f < x ? gsi_float(gsi_bits(f) + 1) : f;
}

void gs_exponents_add_f64(gs_exponents *sum, const double *src, size_t n, gs_stats *stats)
{
    const uint64_t inf = (uint64_t)0x7FF << 52;
    uint64_t top = 0;
    gs_stats s;
    gs_stats_init(&s);
    s.elements = n;
    for (size_t i = 0; i < n; i++) {
        uint64_t mag;
        memcpy(&mag, &src[i], sizeof mag);
        mag &= INT64_MAX;
        if (mag >= inf) {
            if (gs_stats_finite(&s)) {
                s.bad_tensor = 0;
                s.bad_index = i;
            }
            s.inf += mag == inf;
            s.nan += mag > inf;
        } else if (mag == 0) {
            sum->zero++;
        } else {
            add_f64(sum, mag);
            top = mag > top ? mag : top;
        }
    }
    sum->inf += s.inf;
    sum->nan += s.nan;
    double amax;
    memcpy(&amax, &top, sizeof amax);
    s.amax = rounded_up(amax);
    if (stats)
        *stats = s;
}

/* Of the values in binade e, scaled, these do what those at the edge do:
 *   emin - mbits - 1   half of the smallest subnormal: an exact tie goes to zero, the rest up
 *   emin - 1           the last half step below the smallest normal rounds up to it
 *   emax               the last half step below the next power rounds up to infinity */
gs_status gs_exponents_at(gs_rounded *out, const gs_exponents *x, gs_dtype half, int log2_scale,
                          gs_error *error)
{
    if (!x || !out)
        return gsi_fail(error, GS_ENULL, "the histogram or its result is NULL");
    if (half != GS_F16 && half != GS_BF16)
        return gsi_fail(error, GS_EDTYPE, "gradients are rounded to f16 or bf16 here");
    if (log2_scale < 0 || log2_scale > GS_MAX_LOG2_SCALE)
        return gsi_fail(error, GS_ERANGE, "a scale of 2^%d: 2^0 to 2^%d are possible", log2_scale,
                        GS_MAX_LOG2_SCALE);
    const gs_format *f = gs_dtype_format(half);
    const int emax = (1 << (f->exponent_bits - 1)) - 1, emin = 1 - emax;
    *out = (gs_rounded){.zero = x->zero};
    for (int i = 0; i < GS_BINADES; i++) {
        const int e = i - GS_BINADE_OF_ONE + log2_scale;
        if (e < emin - f->mantissa_bits - 1) {
            out->underflow += x->all[i];
        } else if (e == emin - f->mantissa_bits - 1) {
            out->underflow += x->power[i];
            out->subnormal += x->all[i] - x->power[i];
        } else if (e < emin - 1) {
            out->subnormal += x->all[i];
        } else if (e == emin - 1) {
            out->subnormal += x->all[i] - x->top[i];
        } else if (e == emax) {
            out->overflow += x->top[i];
        } else if (e > emax) {
            out->overflow += x->all[i];
        }
    }
    return GS_OK;
}

/* ---- windows ---- */

int gsi_exponents_window(const void *src, size_t n, gs_dtype type, int slots)
{
    enum { SAMPLES = 64, ABOVE = 5, LOWEST = 1, HIGHEST = 226 };
    int top = 0;
    for (size_t k = 0; k < SAMPLES; k++) {
        const size_t i = k * (n / SAMPLES);
        const uint32_t u = type == GS_F32   ? ((const uint32_t *)src)[i]
                           : type == GS_F16 ? gsi_widen(((const uint16_t *)src)[i], GSI_ROW_F16)
                                            : (uint32_t)((const uint16_t *)src)[i] << 16;
        const int e = (int)(gsi_magnitude(u) >> 23);
        top = e > top && e < 255 ? e : top;
    }
    const int last = top + ABOVE < HIGHEST ? top + ABOVE : HIGHEST;
    return last - (slots - 1) > LOWEST ? last - (slots - 1) : LOWEST;
}
