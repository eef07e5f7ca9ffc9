/* The shares that gs_exponents_at tells against counting after a real conversion, value by value.
 */
#include "levels.h"
#include "test.h"

#include "gradscale/exponents.h"
#include "num/convert.h"

#include <math.h>

static uint64_t drawn;
static uint32_t draw(void) { return gs_random_u32(11, drawn++); }

/* Around every place where rounding changes its mind, at every scale; and any bits. */
static float hostile(void)
{
    static const float at[] = {
        0x1p-25f,  0x1p-24f,         0x1p-14f,     65504.0f,     65520.0f,     0x1p-134f,
        0x1p-133f, 0x1p-126f,        0x1.fep+127f, 0x1.ffp+127f, 1.0f,         0x1.ffcp-1f,
        0x1p-149f, 0x1.fffffep+127f, 0x1.fcp-127f, 0x1.ffcp-15f, 0x1.ffep-15f, 0x1.ffep+15f};
    const uint32_t kind = draw() % 8;
    if (kind == 0)
        return gsi_float(draw());
    if (kind == 1)
        return 0;
    const float x = ldexpf(at[draw() % GSI_COUNT(at)], -(int)(draw() % 25));
    return gsi_float(gsi_bits(x) + draw() % 5 - 2);
}

static void classify(gs_rounded *r, float x, gs_dtype half, int k)
{
    const uint32_t mag = gsi_magnitude(gsi_bits(x));
    if (mag >= GSI_F32_INF)
        return;
    const float scaled = ldexpf(x, k);
    const uint32_t code =
        (half == GS_F16 ? gs_f32_to_f16(scaled) : gs_f32_to_bf16(scaled)) & 0x7FFF;
    const gs_format *f = gs_dtype_format(half);
    r->zero += mag == 0;
    r->underflow += mag > 0 && code == 0;
    r->subnormal += code > 0 && code < 1u << f->mantissa_bits;
    r->overflow += code > f->max_code;
}

static void check_at(const gs_exponents *sum, const gs_rounded *want, gs_dtype half, int k)
{
    gs_rounded got;
    CHECK(gs_exponents_at(&got, sum, half, k, NULL) == GS_OK);
    CHECK_MSG(memcmp(&got, want, sizeof got) == 0,
              "%s at 2^%d: zero %llu/%llu underflow %llu/%llu subnormal %llu/%llu over %llu/%llu",
              gs_dtype_format(half)->name, k, (unsigned long long)got.zero,
              (unsigned long long)want->zero, (unsigned long long)got.underflow,
              (unsigned long long)want->underflow, (unsigned long long)got.subnormal,
              (unsigned long long)want->subnormal, (unsigned long long)got.overflow,
              (unsigned long long)want->overflow);
}

enum { N = 20000 };
static float x[N];
static gs_context *context(unsigned without_cpu, unsigned threads)
{
    gs_context *ctx = NULL;
    const gs_config config = {
        .size = sizeof config, .without_cpu = without_cpu, .threads = threads};
    CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
    return ctx;
}

static void test_shares(void)
{
    static uint16_t h[N];
    static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
    gs_context *ctx = context(0, 1);
    for (size_t t = 0; t < 3; t++) {
        for (size_t i = 0; i < N; i++) {
            x[i] = hostile();
            h[i] = types[t] == GS_F16 ? gs_f32_to_f16(x[i]) : gs_f32_to_bf16(x[i]);
            if (types[t] != GS_F32)
                x[i] = types[t] == GS_F16 ? gs_f16_to_f32(h[i]) : gs_bf16_to_f32(h[i]);
        }
        const gs_tensor tensor = {t ? (void *)h : (void *)x, N, types[t], "x", 0};
        gs_exponents sum = {0};
        gs_stats stats, other;
        CHECK(gs_tensors_exponents(ctx, &sum, &tensor, 1, &stats) == GS_OK);
        CHECK(gs_tensors_check(ctx, &tensor, 1, &other) == GS_OK);
        CHECK(stats.amax == other.amax && stats.nan == other.nan && stats.inf == other.inf);
        CHECK(stats.bad_index == other.bad_index && stats.elements == N);
        CHECK(sum.nan == stats.nan && sum.inf == stats.inf);
        for (int k = 0; k <= GS_MAX_LOG2_SCALE; k++)
            for (int bf16 = 0; bf16 < 2; bf16++) {
                const gs_dtype half = bf16 ? GS_BF16 : GS_F16;
                gs_rounded want = {0};
                for (size_t i = 0; i < N; i++)
                    classify(&want, x[i], half, k);
                check_at(&sum, &want, half, k);
            }
        gs_exponents twice = sum;
        gs_exponents_merge(&twice, &sum);
        CHECK(twice.zero == 2 * sum.zero && twice.all[100] == 2 * sum.all[100]);
    }
    gs_context_free(ctx);
}

/* By thresholds: an f64 must not be rounded to f32 first. */
static void classify_f64(gs_rounded *r, double y, double smallest_half, double normal,
                         double overflow)
{
    r->zero += y == 0;
    r->underflow += y > 0 && y <= smallest_half;
    r->subnormal += y > smallest_half && y < normal;
    r->overflow += y >= overflow;
}

static void test_f64(void)
{
    static double d[N];
    for (size_t i = 0; i < N; i++) {
        d[i] = (double)hostile();
        if (draw() % 3 == 0 && isfinite(d[i])) /* a hair beside: f32 could not tell */
            d[i] = draw() % 2 ? nextafter(d[i], HUGE_VAL) : nextafter(d[i], -HUGE_VAL);
        if (draw() % 50 == 0)
            d[i] = ldexp(1 + draw() / 0x1p32, (int)(draw() % 2200) - 1100);
    }
    d[7] = nan("");
    gs_exponents sum = {0};
    gs_stats stats;
    gs_exponents_add_f64(&sum, d, N, &stats);
    double amax = 0;
    size_t bad = N;
    for (size_t i = N; i-- > 0;) {
        if (!isfinite(d[i]))
            bad = i;
        else
            amax = fmax(amax, fabs(d[i]));
    }
    CHECK(stats.bad_index == bad && stats.bad_tensor == 0 && stats.nan == sum.nan);
    CHECK((double)stats.amax >= amax && stats.elements == N);
    for (int k = 0; k <= GS_MAX_LOG2_SCALE; k++) {
        gs_rounded f16 = {0}, bf16 = {0};
        for (size_t i = 0; i < N; i++)
            if (isfinite(d[i])) {
                const double y = ldexp(fabs(d[i]), k);
                classify_f64(&f16, y, 0x1p-25, 0x1p-14 - 0x1p-25, 65520);
                classify_f64(&bf16, y, 0x1p-134, 0x1p-126 - 0x1p-134, 0x1.ffp+127);
            }
        check_at(&sum, &f16, GS_F16, k);
        check_at(&sum, &bf16, GS_BF16, k);
    }
    const double one = 1 + 0x1p-30;
    gs_exponents_add_f64(&sum, &one, 1, &stats);
    CHECK((double)stats.amax == 1 + 0x1p-23); /* up */
}

/* Long and monotonous: no counter of a variant may overflow. */
static void test_variants(void)
{
    enum { LONG = 300001 };
    static float y[LONG];
    cpu_levels();
    static const float same[] = {0, 1, 1.5f, 0x1p-140f, 0x1.fffp-20f, 3e38f};
    for (size_t v = 0; v <= GSI_COUNT(same); v++) {
        for (size_t i = 0; i < LONG; i++)
            y[i] = v < GSI_COUNT(same) ? same[v]
                                       : ldexpf(1 + (float)draw() * 0x1p-33f, -(int)(i % 50));
        const gs_tensor tensor = {y, LONG, GS_F32, NULL, 0};
        gs_exponents want = {0};
        gs_context *ref = context(~0u, 1);
        CHECK(gs_tensors_exponents(ref, &want, &tensor, 1, NULL) == GS_OK);
        gs_context_free(ref);
        for (unsigned cpu = 0; cpu < 1u << GS_CPU_COUNT; cpu++) {
            gs_exponents got = {0};
            gs_context *ctx = context(~cpu, cpu % 3 + 1);
            CHECK(gs_tensors_exponents(ctx, &got, &tensor, 1, NULL) == GS_OK);
            CHECK_MSG(memcmp(&got, &want, sizeof got) == 0, "cpu %u, values %zu", cpu, v);
            gs_context_free(ctx);
        }
    }
}

/* One value of every exponent among ordinary ones: nothing but itself may betray it. */
static void test_one_among_many(void)
{
    enum { MANY = 1024 };
    static const uint32_t mantissas[] = {0, 1, 0x10000, 0x7FDFFF, 0x7FE000, 0x7FE001, 0x7FFFFF};
    static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
    static float y[MANY];
    static uint16_t h[MANY];
    gs_context *ref = context(~0u, 1), *best = context(0, 1), *avx2 = context(~1u, 1);
    for (uint32_t e = 0; e < 255; e++)
        for (size_t m = 0; m < GSI_COUNT(mantissas); m++)
            for (size_t t = 0; t < 3; t++) {
                const float others = e % 2 ? 0x1.8p-37f : 0x1.8p-3f;
                const size_t place = draw() % MANY;
                for (size_t i = 0; i < MANY; i++) {
                    y[i] = i == place ? gsi_float(e << 23 | mantissas[m]) : others;
                    h[i] = types[t] == GS_F16 ? gs_f32_to_f16(y[i]) : gs_f32_to_bf16(y[i]);
                }
                const gs_tensor tensor = {t ? (void *)h : (void *)y, MANY, types[t], NULL, 0};
                gs_exponents want = {0}, got[2] = {{0}};
                CHECK(gs_tensors_exponents(ref, &want, &tensor, 1, NULL) == GS_OK);
                CHECK(gs_tensors_exponents(best, &got[0], &tensor, 1, NULL) == GS_OK);
                CHECK(gs_tensors_exponents(avx2, &got[1], &tensor, 1, NULL) == GS_OK);
                CHECK_MSG(memcmp(&got[0], &want, sizeof want) == 0 &&
                              memcmp(&got[1], &want, sizeof want) == 0,
                          "%s: exponent %u, mantissa %x at %zu", gs_dtype_format(types[t])->name, e,
                          (unsigned)mantissas[m], place);
            }
    gs_context_free(ref);
    gs_context_free(best);
    gs_context_free(avx2);
}

static void test_refusals(void)
{
    gs_exponents sum = {0};
    gs_rounded r;
    CHECK(gs_exponents_at(&r, NULL, GS_F16, 0, NULL) == GS_ENULL);
    CHECK(gs_exponents_at(NULL, &sum, GS_F16, 0, NULL) == GS_ENULL);
    CHECK(gs_exponents_at(&r, &sum, GS_F32, 0, NULL) == GS_EDTYPE);
    CHECK(gs_exponents_at(&r, &sum, GS_F16, -1, NULL) == GS_ERANGE);
    CHECK(gs_exponents_at(&r, &sum, GS_F16, 25, NULL) == GS_ERANGE);
    gs_context *ctx = context(0, 1);
    CHECK(gs_tensors_exponents(ctx, NULL, NULL, 0, NULL) == GS_ENULL);
    CHECK(gs_tensors_exponents(ctx, &sum, NULL, 0, NULL) == GS_OK);
    gs_context_free(ctx);
}

TESTS({"shares", test_shares}, {"f64", test_f64}, {"variants", test_variants},
      {"one_among_many", test_one_among_many}, {"refusals", test_refusals})
