/* THE definition of every conversion: one function that narrows an f32, to nearest even or with
 * stochastic rounding, one that widens to it, and the rows that make a format of them. Everything
 * else, SIMD above all, must agree bit for bit. Inline, so that a constant row leaves straight-line
 * integer code. */
#ifndef GSI_NUM_CONVERT_H
#define GSI_NUM_CONVERT_H

#include "base/base.h"
#include "gradscale/num.h"

#include <string.h>

#define GSI_F32_INF 0x7F800000u /* bits; a larger magnitude is a NaN */

static inline uint32_t gsi_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float gsi_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* The bits of |x| order as the values do; Inf and NaN come last. */
static inline uint32_t gsi_magnitude(uint32_t u) { return u & 0x7FFFFFFF; }

typedef struct gsi_row {
    int ebits, mbits;
    uint32_t max_code; /* max_code + 1 is Inf, or in E4M3 the NaN */
} gsi_row;

#define GSI_ROW_F16    ((gsi_row){5, 10, 0x7BFF})
#define GSI_ROW_BF16   ((gsi_row){8, 7, 0x7F7F})
#define GSI_ROW_F8E4M3 ((gsi_row){4, 3, 0x7E})
#define GSI_ROW_F8E5M2 ((gsi_row){5, 2, 0x7B})

enum { GSI_NEAREST = -1 }; /* in place of 16 random bits */

/* u: the bits of an f32. random: GSI_NEAREST or 0..65535. Returns the code with its sign. */
static inline uint32_t gsi_narrow(uint32_t u, gsi_row f, int random, bool saturate)
{
    const uint32_t mag = gsi_magnitude(u), sign = u >> 31 << (f.ebits + f.mbits);
    const uint32_t beyond = f.max_code + (saturate ? 0 : 1);

    if (mag > GSI_F32_INF) { /* NaN: quiet bit and top of the payload */
        const uint32_t payload = mag >> (23 - f.mbits) & ((1u << f.mbits) - 1);
        return sign | (f.max_code + 1) | 1u << (f.mbits - 1) | payload;
    }
    /* value = significand * 2^(e - 150); an f32 subnormal has e = 1 and no hidden bit */
    const int e = mag < 0x00800000 ? 1 : (int)(mag >> 23);
    const uint32_t significand = (mag & 0x7FFFFF) | (mag < 0x00800000 ? 0 : 0x800000);

    /* Below emin, the target's smallest normal exponent, more bits are cut off instead. The
     * hidden bit, added to `base`, makes the exponent field. */
    const int emin = 129 - (1 << (f.ebits - 1));
    const int cut = 23 - f.mbits + (e < emin ? emin - e : 0);
    const uint32_t base = (uint32_t)(e > emin ? e - emin : 0) << f.mbits;

    const int shift = cut < 26 ? cut : 26; /* 26 and more: below half of the smallest subnormal */
    const uint32_t kept = significand >> shift, rest = significand & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);

    uint32_t code;
    if (random != GSI_NEAREST && base + kept < f.max_code) {
        /* stochastic rounding: add 16 random bits below the cut */
        const uint32_t fixed =
            cut <= 16 ? significand << (16 - cut) : significand >> (cut < 47 ? cut - 16 : 31);
        code = base + ((fixed + (uint32_t)random) >> 16);
    } else {
        code = base + kept + (rest > half || (rest == half && (kept & 1)));
    }
    return sign | (code > f.max_code ? beyond : code);
}

/* The exact f32 of a code, as bits. */
static inline uint32_t gsi_widen(uint32_t code, gsi_row f)
{
    const uint32_t mag = code & ((1u << (f.ebits + f.mbits)) - 1);
    const uint32_t sign = code >> (f.ebits + f.mbits) << 31;
    const int lift = 23 - f.mbits, emin = 129 - (1 << (f.ebits - 1));

    if (mag > f.max_code) { /* Inf keeps its mantissa 0; a NaN, as E4M3's code of all ones, not */
        const uint32_t payload = mag << lift & 0x7FFFFF;
        return sign | GSI_F32_INF | payload | (payload ? 0x400000 : 0);
    }
    if (mag >> f.mbits) /* normal */
        return sign | ((mag << lift) + ((uint32_t)(emin - 1) << 23));
    if (mag == 0)
        return sign;
    if (emin == 1) /* bf16: subnormal here, subnormal there */
        return sign | mag << lift;
    /* subnormal: shift the leading one to the hidden place */
    int e = emin;
    uint32_t m = mag << lift;
    for (; m < 0x800000; e--)
        m <<= 1;
    return sign | (uint32_t)e << 23 | (m & 0x7FFFFF);
}

/* ---- arrays of f32, f16 or bf16 ---- */

/* f64, too: some passes take it. */
static inline size_t gsi_size_of(gs_dtype type)
{
    return type == GS_F32 ? 4 : type == GS_F64 ? 8 : 2;
}

static inline gsi_row gsi_row_of(gs_dtype half)
{
    return half == GS_F16 ? GSI_ROW_F16 : GSI_ROW_BF16;
}

/* Element i, as the bits of an f32. */
static inline uint32_t gsi_element(const void *data, gs_dtype type, size_t i)
{
    uint32_t u;
    uint16_t code;
    if (type == GS_F32) {
        memcpy(&u, (const char *)data + i * sizeof u, sizeof u);
        return u;
    }
    memcpy(&code, (const char *)data + i * sizeof code, sizeof code);
    return gsi_widen(code, gsi_row_of(type));
}

#endif
