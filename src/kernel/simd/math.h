/* Elementary functions of f32 vectors: a template; vec.h says how to include it.
 *
 * Without fma, without libm, the same operations at every width: the same bits on every CPU. NaN
 * gives NaN. The bits are the same with flush-to-zero and denormals-are-zero set, because no
 * subnormal is computed with; where that costs something, it is said. Round to nearest is assumed.
 *
 *             error, ulp    what else
 *   exp       1.0           below 2^-126 (x < -87.33655): 0
 *   log       0.9           subnormals too; 0: -Inf; below 0: NaN
 *   tanh      1.4
 *   erf       1.7           a subnormal counts as 0
 *   sigmoid   2.5           below 2^-126: 0
 *   gelu      see there; with gelu_erf and silu the only ones that expect the default mode
 *
 * Measured against f64 (tests/unit/test_math.c), over all f16 and one f32 in 17. Polynomials are
 * minimax in relative error; 2^-n in a comment is their error before rounding. */
#ifndef GSI_KERNEL_MATH_H
#define GSI_KERNEL_MATH_H

#include "kernel/simd/vec.h"

/* ln 2 in two parts; n * LN2_HIGH is exact for |n| < 512. */
#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW  0x1.7f7d1cp-20f
#define NEAREST  0x1.8p+23f /* adding it leaves the nearest integer in the low bits */

INLINE vf exp_f32(vf x)
{
    const vf t = x * 0x1.715476p+0f + NEAREST; /* n = nearest to x / ln 2 */
    const vf n = t - NEAREST;
    const vf r = x - n * LN2_HIGH - n * LN2_LOW; /* |r| < 0.35 */

    vf p = splat(0x1.6a1a8cp-10f); /* (e^r - 1 - r) / r^2, 2^-28 */
    p = p * r + 0x1.123fc6p-7f;
    p = p * r + 0x1.555916p-5f;
    p = p * r + 0x1.55548ap-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = p * (r * r) + r + 1.0f;

    /* times 2^n in the exponent: between the limits below it neither wraps nor reaches 0 */
    const vf scaled = (vf)((vu)p + ((vu)t << 23));
    const vf y = select(x < -0x1.5d589ep+6f, (vf){0}, scaled);
    return select(x <= 0x1.62e42ep+6f, y, x + gsi_float(GSI_F32_INF)); /* Inf, or NaN */
}

INLINE vf log_f32(vf x)
{
    /* A subnormal is the integer of its bits times 2^-149: converting it needs no subnormal. */
    const vi small = (vi)x < 0x00800000; /* negative too: overridden below */
    const vi u = (vi)select(small, __builtin_convertvector((vi)x, vf), x);
    /* x = m 2^e, m in [sqrt(1/2), sqrt(2)) */
    const vi shifted = u - 0x3F3504F3;
    const vf e = __builtin_convertvector((shifted >> 23) - (small & 149), vf);
    const vf f = (vf)((shifted & 0x7FFFFF) + 0x3F3504F3) - 1.0f;

    vf p = splat(0x1.1490cap-4f); /* (log(1 + f) - f + f^2 / 2) / f^3, 2^-30 */
    p = p * f - 0x1.de9dbep-4f;
    p = p * f + 0x1.e70c58p-4f;
    p = p * f - 0x1.fc14f2p-4f;
    p = p * f + 0x1.2334cep-3f;
    p = p * f - 0x1.555c8cp-3f;
    p = p * f + 0x1.99a4d6p-3f;
    p = p * f - 0x1.000006p-2f;
    p = p * f + 0x1.555548p-2f;
    const vf f2 = f * f;
    const vf low = p * (f2 * f) + e * LN2_LOW - f2 * 0.5f;
    vf y = low + f + e * LN2_HIGH;

    const vf inf = splat(gsi_float(GSI_F32_INF));
    y = select((vi)x == (int32_t)GSI_F32_INF, inf, y);
    y = select((vi)x < 0, splat(gsi_float(0x7FC00000)), y);
    y = select(((vi)x & 0x7FFFFFFF) == 0, -inf, y);
    return select(is_nan(x), x, y);
}

/* Of |x| too large for the polynomial, 1 - 2 / (e^2|x| + 1). */
INLINE vf tanh_f32(vf x)
{
    const vf a = magnitude(x), z = a * a;
    const vf large = 1.0f - 2.0f / (exp_f32(a + a) + 1.0f);

    vf p = splat(-0x1.75e1e4p-8f); /* (tanh x - x) / x^3 in x^2, |x| < 0.625, 2^-28 */
    p = p * z + 0x1.5226a2p-6f;
    p = p * z - 0x1.b83c5cp-5f;
    p = p * z + 0x1.110726p-3f;
    p = p * z - 0x1.555532p-2f;
    const vf small = p * z * a + a;

    vf y = select(a < 0.625f, small, large);
    y = select(a < 0x1p-12f, a, y); /* and keeps subnormals away from arithmetic that flushes */
    return select(is_nan(x), x, with_sign(y, x));
}

/* erf(a), 0 <= a < 1. */
INLINE vf erf_small_f32(vf a)
{
    const vf z = a * a;
    vf p = splat(0x1.496a5ep-14f); /* erf(x) / x - 1 in x^2, |x| < 1, 2^-29 */
    p = p * z - 0x1.a3f710p-11f;
    p = p * z + 0x1.5405b4p-8f;
    p = p * z - 0x1.b7f90ep-6f;
    p = p * z + 0x1.ce2cf8p-4f;
    p = p * z - 0x1.81273ep-2f;
    p = p * z + 0x1.06eba8p-3f;
    return (p + 1.0f) * a; /* no subnormal product, unlike p a + a */
}

/* 1 - erf(a), 1 <= a < 4. */
INLINE vf erfc_large_f32(vf a)
{
    vf q = splat(-0x1.86db4ap-13f); /* -log(1 - erf x), 1 <= x < 4, 2^-29 */
    q = q * a + 0x1.8259a0p-9f;
    q = q * a - 0x1.65cacep-6f;
    q = q * a + 0x1.a652ecp-4f;
    q = q * a + 0x1.46baf8p-1f;
    q = q * a + 0x1.2088e8p+0f;
    q = q * a + 0x1.662b2ap-12f;
    return exp_f32(-q);
}

INLINE vf erf_f32(vf x)
{
    const vf a = magnitude(x), large = 1.0f - erfc_large_f32(a);
    vf y = select(a < 1.0f, erf_small_f32(a), select(a < 4.0f, large, splat(1)));
    y = select((vi)a < 0x00800000, (vf){0}, y);
    return select(is_nan(x), x, with_sign(y, x));
}

INLINE vf sigmoid_f32(vf x)
{
    const vf y = 1.0f / (1.0f + exp_f32(-x));
    return select(x < -0x1.5d589ep+6f, (vf){0}, y); /* a subnormal, some would flush it */
}

/* The GELU of GPT-2, x / 2 (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), is
 * x sigmoid(2 u): one exp, one division, and no cancellation where x is negative. The error is
 * that of 2 u under the exp: 3 |2 u| ulp and 2 more. -Inf gives NaN, as the formula does. */
#define GELU_1 0x1.988454p+0f /* 2 sqrt(2 / pi) */
#define GELU_3 0x1.2444f2p-4f /* and times 0.044715 */

INLINE vf gelu_f32(vf x) { return x / (1.0f + exp_f32(-(x * (GELU_1 + GELU_3 * (x * x))))); }

/* Its derivative, s + x s (1 - s) (2 u)', to 4 ulp, below 1/4 to 4 ulp of that; 0 or 1 beyond
 * |x| = 10. */
INLINE vf gelu_derivative_f32(vf x)
{
    x = select(x > 10.0f, splat(10), select(x < -10.0f, splat(-10), x));
    const vf z = x * x;
    const vf e = exp_f32(-(x * (GELU_1 + GELU_3 * z)));
    const vf s = 1.0f / (1.0f + e);
    return s + x * (GELU_1 + 3.0f * GELU_3 * z) * (s * (s * e));
}

/* The part of a normal distribution that lies below x, (1 + erf(x / sqrt 2)) / 2; 0 below
 * x = -5.66. */
INLINE vf normal_cdf_f32(vf x)
{
    const vf a = magnitude(x) * 0x1.6a09e6p-1f;
    const vf tail = select(a < 4.0f, 0.5f * erfc_large_f32(a), (vf){0});
    const vf inside = 0.5f + with_sign(0.5f * erf_small_f32(a), x);
    return select(a < 1.0f, inside, select(x < 0.0f, tail, 1.0f - tail));
}

/* x cdf(x), what tanh approximates, to 4 ulp, below 1/4 to 4 ulp of that. -Inf gives NaN, as the
 * formula does. */
INLINE vf gelu_erf_f32(vf x) { return x * normal_cdf_f32(x); }

/* Its derivative, cdf(x) + x e^(-x^2 / 2) / sqrt(2 pi), to 4 ulp, below 1/4 to 4 ulp of that; 0 or
 * 1 beyond |x| = 10. */
INLINE vf gelu_erf_derivative_f32(vf x)
{
    x = select(x > 10.0f, splat(10), select(x < -10.0f, splat(-10), x));
    return normal_cdf_f32(x) + x * (0x1.988454p-2f * exp_f32(-0.5f * x * x));
}

/* x sigmoid(x), to 3 ulp. -Inf gives NaN, as the formula does. */
INLINE vf silu_f32(vf x) { return x / (1.0f + exp_f32(-x)); }

/* Its derivative, s (1 + x (1 - s)), to 4 ulp, below 1/4 to 4 ulp of that; 0 or 1 beyond
 * |x| = 80. */
INLINE vf silu_derivative_f32(vf x)
{
    x = select(x > 80.0f, splat(80), select(x < -80.0f, splat(-80), x));
    const vf e = exp_f32(-x);
    const vf s = 1.0f / (1.0f + e);
    return s + x * (s * (s * e));
}

#endif
