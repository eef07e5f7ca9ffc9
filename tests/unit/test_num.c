#include "test.h"

#include "num/convert.h"
#include "num/fma.h"

#include <math.h>

/* A second opinion: the nearest code by brute value, in f64, ties to the even code. */
static uint32_t nearest_by_value(double x, const double *values, uint32_t max_code)
{
    uint32_t best = 0;
    for (uint32_t lo = 0, hi = max_code + 1; lo < hi;) { /* first code with value >= |x| */
        const uint32_t mid = lo + (hi - lo) / 2;
        if (values[mid] < x)
            lo = mid + 1;
        else
            hi = mid;
        best = lo;
    }
    if (best == 0)
        return 0;
    const double below = values[best - 1], above = values[best];
    if (x - below == above - x)
        return best % 2 ? best - 1 : best;
    return x - below < above - x ? best - 1 : best;
}

/* values[c] of every positive code, and the first step beyond the largest as if it went on. */
static double *values_of(gs_dtype type)
{
    const gs_format *f = gs_dtype_format(type);
    const int bias = (1 << (f->exponent_bits - 1)) - 1;
    double *values = malloc((f->max_code + 2) * sizeof *values);
    for (uint32_t c = 0; c <= f->max_code + 1; c++) {
        const int e = (int)(c >> f->mantissa_bits);
        const double m = c & ((1u << f->mantissa_bits) - 1), one = 1 << f->mantissa_bits;
        values[c] = e ? ldexp(1 + m / one, e - bias) : ldexp(m / one, 1 - bias);
    }
    return values;
}

static uint32_t narrow(gs_dtype type, float x)
{
    switch (type) {
    case GS_F16:
        return gs_f32_to_f16(x);
    case GS_BF16:
        return gs_f32_to_bf16(x);
    case GS_F8E4M3:
        return gs_f32_to_f8e4m3(x, 0);
    default:
        return gs_f32_to_f8e5m2(x, 0);
    }
}

static float widen(gs_dtype type, uint32_t code)
{
    switch (type) {
    case GS_F16:
        return gs_f16_to_f32((uint16_t)code);
    case GS_BF16:
        return gs_bf16_to_f32((uint16_t)code);
    case GS_F8E4M3:
        return gs_f8e4m3_to_f32((uint8_t)code);
    default:
        return gs_f8e5m2_to_f32((uint8_t)code);
    }
}

static const gs_dtype narrow_types[] = {GS_F16, GS_BF16, GS_F8E4M3, GS_F8E5M2};

/* Every code widens to its value, and comes back; every midpoint and its neighbours round right. */
static void test_every_code(void)
{
    for (size_t k = 0; k < 4; k++) {
        const gs_dtype type = narrow_types[k];
        const gs_format *f = gs_dtype_format(type);
        const uint32_t top = (uint32_t)f->max_code;
        const uint32_t sign = 1u << (f->exponent_bits + f->mantissa_bits);
        double *values = values_of(type);
        CHECK(values[f->max_code] == f->max);
        CHECK(values[1] == f->min_subnormal);
        CHECK(values[1u << f->mantissa_bits] == f->min_normal);
        for (uint32_t c = 0; c <= f->max_code; c++) {
            const float x = widen(type, c);
            CHECK((double)x == values[c]);
            CHECK(narrow(type, x) == c);
            CHECK(gsi_bits(widen(type, c | sign)) == (gsi_bits(x) | 0x80000000));
            CHECK(narrow(type, -x) == (c | sign));
            const float mid = (float)((values[c] + values[c + 1]) / 2); /* exact in f32 */
            for (int step = -2; step <= 2; step++) {
                const float y = gsi_float(gsi_bits(mid) + (uint32_t)step);
                const uint32_t want = nearest_by_value((double)y, values, top);
                CHECK_MSG(narrow(type, y) == want, "%s of %a: %x, not %x", f->name, (double)y,
                          narrow(type, y), want);
            }
        }
        free(values);
    }
}

static void test_infinities_and_nans(void)
{
    CHECK(gs_f32_to_f16(INFINITY) == 0x7C00 && gs_f32_to_f16(-INFINITY) == 0xFC00);
    CHECK(gs_f32_to_bf16(INFINITY) == 0x7F80);
    CHECK(gs_f32_to_f16(65519.996f) == 0x7BFF && gs_f32_to_f16(65520) == 0x7C00);
    CHECK(gs_f32_to_f8e5m2(INFINITY, 0) == 0x7C && gs_f32_to_f8e5m2(INFINITY, 1) == 0x7B);
    CHECK(gs_f32_to_f8e4m3(INFINITY, 0) == 0x7F && gs_f32_to_f8e4m3(INFINITY, 1) == 0x7E);
    CHECK(gs_f32_to_f8e4m3(-1e9f, 1) == 0xFE && gs_f32_to_f8e4m3(1e9f, 0) == 0x7F);
    CHECK(gs_f32_to_f8e4m3(NAN, 1) == 0x7F && isnan(gs_f8e4m3_to_f32(0xFF)));
    /* as F16C: quiet, the top ten payload bits kept, the sign too */
    CHECK(gs_f32_to_f16(gsi_float(0x7F802000)) == 0x7E01);
    CHECK(gs_f32_to_f16(gsi_float(0xFFBFFFFF)) == 0xFFFF);
    CHECK(gs_f32_to_f16(gsi_float(0x7F800001)) == 0x7E00);
    CHECK(gs_f32_to_bf16(gsi_float(0x7F800001)) == 0x7FC0);
    CHECK(gs_f32_to_bf16(gsi_float(0xFF810000)) == 0xFFC1);
    CHECK(gsi_widen(0x7C01, GSI_ROW_F16) == 0x7FC02000);
    CHECK(gsi_widen(0xFF81, GSI_ROW_BF16) == 0xFFC10000);
    CHECK(gsi_widen(0x7C00, GSI_ROW_F16) == 0x7F800000);
}

/* Over all 65536 random values the codes above and below come out in proportion to the distance,
 * to the 2^-16 that the bits can express. */
static void test_stochastic_proportions(void)
{
    static const float samples[] = {1.0003f,  0.1f,     1 / 3.0f,   6e-8f,    5e-7f,
                                    3.1e-5f,  2e-8f,    65503.0f,   -0.7f,    1.5f,
                                    0x1p-24f, 0x1p-39f, 0x1.8p-25f, 2.9e-39f, 1e-41f};
    for (size_t s = 0; s < GSI_COUNT(samples); s++)
        for (int half = 0; half < 2; half++) {
            const float x = samples[s];
            double sum = 0;
            uint32_t least = UINT32_MAX, most = 0;
            for (uint32_t r = 0; r < 65536; r++) {
                const uint16_t c = half ? gs_f32_to_bf16_stochastic(x, (uint16_t)r)
                                        : gs_f32_to_f16_stochastic(x, (uint16_t)r);
                sum += (double)(half ? gs_bf16_to_f32(c) : gs_f16_to_f32(c));
                least = c < least ? c : least;
                most = c > most ? c : most;
            }
            CHECK(most - least <= 1);
            const double step = (double)(half ? gs_bf16_to_f32((uint16_t)(least + 1)) -
                                                    gs_bf16_to_f32((uint16_t)least)
                                              : gs_f16_to_f32((uint16_t)(least + 1)) -
                                                    gs_f16_to_f32((uint16_t)least));
            CHECK_MSG(fabs(sum / 65536 - (double)x) <= fabs(step) / 65536, "%a: mean %a", (double)x,
                      sum / 65536);
        }
    /* Above the largest finite value: nearest. Infinity and NaN stay. */
    CHECK(gs_f32_to_f16_stochastic(65504.0f, 0xFFFF) == 0x7BFF);
    CHECK(gs_f32_to_f16_stochastic(65519.0f, 0xFFFF) == 0x7BFF);
    CHECK(gs_f32_to_f16_stochastic(65520.0f, 0) == 0x7C00);
    CHECK(gs_f32_to_bf16_stochastic(0x1.fffffep+127f, 0) == 0x7F80);
    CHECK(gs_f32_to_bf16_stochastic(-INFINITY, 0xFFFF) == 0xFF80);
    CHECK(gs_f32_to_f16_stochastic(gsi_float(0x7F800001), 0xFFFF) == 0x7E00);
}

static void test_formats(void)
{
    static const gs_dtype stored[] = {GS_F16, GS_BF16, GS_F32, GS_F64};
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++)
        CHECK(gsi_size_of(stored[i]) == (size_t)gs_dtype_format(stored[i])->bytes);
    gs_dtype type;
    CHECK(gs_dtype_format(GS_DTYPE_COUNT) == NULL && gs_dtype_format((gs_dtype)-1) == NULL);
    CHECK(gs_dtype_parse(&type, "bf16", NULL) == GS_OK && type == GS_BF16);
    CHECK(gs_dtype_parse(&type, "half", NULL) == GS_ENAME &&
          gs_dtype_parse(&type, NULL, NULL) == GS_ENAME);
    for (unsigned i = 0; i < GS_DTYPE_COUNT; i++) {
        const gs_format *f = gs_dtype_format((gs_dtype)i);
        CHECK(1 + (size_t)(f->exponent_bits + f->mantissa_bits) == 8 * f->bytes);
        CHECK(f->epsilon == ldexp(1, -f->mantissa_bits));
        CHECK(f->min_subnormal == f->min_normal * f->epsilon);
    }
}

/* fma of our own where the C library's rounds twice: random bits, near ties, cancellation,
 * subnormals. */
static void test_fma(void)
{
    const int count = test_long() ? 100000000 : 1000000;
    for (int i = 0; i < count; i++) {
        const uint64_t at = 4 * (uint64_t)i;
        uint32_t u[3];
        for (unsigned k = 0; k < 3; k++)
            u[k] = gs_random_u32(21, at + k);
        const uint32_t how = gs_random_u32(21, at + 3);
        if (how % 4 > 0) /* magnitudes that meet */
            for (int k = 0; k < 3; k++)
                u[k] = (u[k] & 0x807FFFFF) | (100 + u[k] % 50) << 23;
        if (how % 4 == 2) /* few bits: ties */
            for (int k = 0; k < 3; k++)
                u[k] &= 0xFFFFF000 | how >> 24;
        const float a = gsi_float(u[0]), b = gsi_float(u[1]);
        float c = gsi_float(u[2]);
        if (how % 4 ==
            3) /* the sum cancels but for what the product's rounding lost, or a tiny part */
            c = how & 16 ? -(a * b) : a * b * 0x1p-24f * (how & 32 ? 1.0f : 0x1.000002p0f);
        const float got = gsi_fma_in_f64(a, b, c), want = fmaf(a, b, c);
        CHECK_MSG(gsi_bits(got) == gsi_bits(want) || (isnan(got) && isnan(want)),
                  "%a * %a + %a: %a, not %a", (double)a, (double)b, (double)c, (double)got,
                  (double)want);
    }
    CHECK(gsi_fma_in_f64(0x1p-100f, 0x1p-49f, 0) == 0x1p-149f); /* the smallest number */
    CHECK(gsi_fma_in_f64(0x1p-75f, 0x1p-75f, 0) == 0);          /* a tie: to even */
    CHECK(gsi_fma_in_f64(0x1p-75f, 0x1p-75f, 0x1p-149f) == 0x1p-148f);
    CHECK(isinf(gsi_fma_in_f64(0x1p127f, 2, 0)) && gsi_fma_in_f64(0x1p127f, 2, -INFINITY) < 0);
    CHECK(gsi_bits(gsi_fma_in_f64(-0.0f, 1, -0.0f)) == 0x80000000);
}

TESTS({"every_code", test_every_code}, {"infinities_and_nans", test_infinities_and_nans},
      {"stochastic_proportions", test_stochastic_proportions}, {"formats", test_formats},
      {"fma", test_fma})
