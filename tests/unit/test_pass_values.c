/* What the passes over lists of tensors compute, against plain loops. */
#include "memory.h"
#include "passes.h"
#include "test.h"

#include <math.h>

/* ---- what they compute ---- */

static float value_of(const gs_tensor *x, size_t i)
{
    const uint16_t *half = x->data;
    switch (x->dtype) {
    case GS_F32:
        return ((const float *)x->data)[i];
    case GS_F16:
        return gs_f16_to_f32(half[i]);
    default:
        return gs_bf16_to_f32(half[i]);
    }
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

/* The sum as it is defined: chunks of 65536; in them blocks of 512 in 32 lanes of f32, or of f64
 * where the block's largest is outside [2^-40, 2^60]; lanes folded in pairs. */
static double sum_of_squares(const gs_tensor *x)
{
    double sum = 0;
    for (size_t first = 0; first < x->count; first += 65536) {
        double lanes[32] = {0};
        const size_t end = x->count - first < 65536 ? x->count : first + 65536;
        for (size_t block = first; block < end; block += 512) {
            const size_t stop = end - block < 512 ? end : block + 512;
            float top = 0;
            for (size_t i = block; i < stop; i++) {
                const float v = fabsf(value_of(x, i));
                if (!isfinite(v))
                    return HUGE_VAL;
                top = v > top ? v : top;
            }
            for (size_t lane = 0; lane < 32; lane++) {
                volatile float few = 0; /* no wider than it says */
                for (size_t i = block + lane; i < stop; i += 32) {
                    const float v = value_of(x, i);
                    if (top >= 0x1p-40f && top <= 0x1p60f)
                        few += v * v;
                    else
                        lanes[lane] += (double)v * (double)v;
                }
                lanes[lane] += (double)few;
            }
        }
        for (size_t width = 32; width > 1; width /= 2)
            for (size_t k = 0; k < width / 2; k++)
                lanes[k] += lanes[k + width / 2];
        sum += lanes[0];
    }
    return sum;
}

static void count_naively(gs_stats *out, const gs_tensor *x, size_t t, gs_dtype half)
{
    gs_stats_init(out);
    out->elements = x->count;
    for (size_t i = 0; i < x->count; i++) {
        const float v = value_of(x, i);
        const unsigned code =
            half == GS_F16 ? gs_f32_to_f16(v) & 0x7FFF : gs_f32_to_bf16(v) & 0x7FFF;
        const unsigned normal = half == GS_F16 ? 0x0400 : 0x0080;
        out->inf += isinf(v) ? 1 : 0;
        out->nan += isnan(v) ? 1 : 0;
        out->zero += v == 0;
        out->underflow += v != 0 && code == 0;
        out->subnormal += code > 0 && code < normal;
        if (!isfinite(v) && out->bad_tensor == GS_NONE) {
            out->bad_tensor = t;
            out->bad_index = i;
        }
        if (isfinite(v) && fabsf(v) > out->amax)
            out->amax = fabsf(v);
    }
    out->sumsq = sum_of_squares(x);
}

static void test_counts(void)
{
    gs_context *ctx = context(NULL);
    for (int finite = 0; finite < 2; finite++)
        for (int k = 0; k < 2; k++) {
            const gs_dtype half = k ? GS_BF16 : GS_F16;
            pass_data d;
            gs_stats each[PASS_TENSORS], stats, want, all;
            pass_data_make(&d, finite, 5);
            gs_stats_init(&all);
            CHECK(gs_tensors_count(ctx, d.src, PASS_TENSORS, half, each) == GS_OK);
            for (size_t t = 0; t < PASS_TENSORS; t++) {
                count_naively(&want, &d.src[t], t, half);
                CHECK_MSG(same_stats(&each[t], &want), "tensor %zu", t);
                if (d.src[t].count > 1000)
                    CHECK(want.zero && (want.subnormal || (k && d.src[t].dtype == GS_F16)) &&
                          (want.inf == 0) == finite && (want.nan == 0) == finite);
                want.zero = want.subnormal = want.underflow = 0;
                /* a sum over the list is folded by chunks: the large tensors have several */
                const double before = all.sumsq;
                gs_stats_merge(&all, &want);
                all.sumsq = before;
                for (size_t first = 0; first < d.src[t].count; first += 65536) {
                    gs_tensor chunk = d.src[t];
                    chunk.data = (char *)chunk.data + first * (chunk.dtype == GS_F32 ? 4 : 2);
                    chunk.count = chunk.count - first < 65536 ? chunk.count - first : 65536;
                    all.sumsq += sum_of_squares(&chunk);
                }
            }
            CHECK(gs_tensors_scan(ctx, d.src, PASS_TENSORS, &stats) == GS_OK);
            CHECK(same_stats(&stats, &all));
            CHECK(gs_tensors_check(ctx, d.src, PASS_TENSORS, &stats) == GS_OK);
            all.sumsq = 0;
            CHECK(same_stats(&stats, &all));
            CHECK(gs_stats_finite(&stats) == finite);
            /* without an answer wanted */
            CHECK(gs_tensors_check(ctx, d.src, PASS_TENSORS, NULL) == GS_OK);
            CHECK(gs_tensors_count(ctx, d.src, PASS_TENSORS, half, NULL) == GS_OK);
            pass_data_free(&d);
        }
    gs_context_free(ctx);
}

/* The largest f32, squared and summed, is no infinity; the smallest is no zero. */
static void test_sum_of_squares_range(void)
{
    gs_context *ctx = context(NULL);
    enum { N = 100000 };
    float *x = malloc(N * sizeof *x);
    gs_stats stats;
    const gs_tensor list[] = {{x, N, GS_F32, "x", 0}};
    for (size_t i = 0; i < N; i++)
        x[i] = i % 2 ? 0x1.fffffep+127f : -0x1.fffffep+127f;
    CHECK(gs_tensors_scan(ctx, list, 1, &stats) == GS_OK);
    CHECK(isfinite(stats.sumsq) && fabs(stats.sumsq / (N * 0x1.fffffcp+255) - 1) < 1e-6);
    for (size_t i = 0; i < N; i++)
        x[i] = 0x1p-149f;
    CHECK(gs_tensors_scan(ctx, list, 1, &stats) == GS_OK);
    CHECK(stats.sumsq == N * 0x1p-298 && stats.amax == 0x1p-149f);
    free(x);
    gs_context_free(ctx);
}

/* The first offender is found wherever it is, in whatever company. */
static void test_first_offender(void)
{
    gs_context *ctx = context(NULL);
    enum { N = 131072 + 40 };
    static const size_t places[] = {0, 1, 31, 32, 33, 65535, 65536, 65537, 131071, 131072, N - 1};
    uint16_t *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b);
    const gs_tensor list[] = {{a, N, GS_F16, "a", 0}, {b, N, GS_BF16, "b", 0}};
    for (size_t k = 0; k < sizeof places / sizeof places[0]; k++)
        for (int nan = 0; nan < 2; nan++) {
            gs_stats stats;
            b[places[k]] = (uint16_t)(nan ? 0xFF81 : 0x7F80);
            b[N - 1] = 0x7F80;
            CHECK(gs_tensors_check(ctx, list, 2, &stats) == GS_OK);
            CHECK(stats.bad_tensor == 1 && stats.bad_index == places[k]);
            CHECK(stats.nan == (unsigned)(nan && places[k] != N - 1));
            CHECK(stats.inf + stats.nan == (places[k] == N - 1 ? 1 : 2));
            CHECK(!gs_stats_finite(&stats));
            a[N - 2] = 0xFC01;
            CHECK(gs_tensors_scan(ctx, list, 2, &stats) == GS_OK);
            CHECK(stats.bad_tensor == 0 && stats.bad_index == N - 2 && stats.nan >= 1);
            a[N - 2] = 0;
            b[places[k]] = 0;
            b[N - 1] = 0;
        }
    free(a);
    free(b);
    gs_context_free(ctx);
}

static uint32_t rounded(float x, gs_dtype type)
{
    return type == GS_F32 ? bits_of(x) : type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
}

static uint32_t code_of(const gs_tensor *x, size_t i)
{
    uint32_t u;
    if (x->dtype != GS_F32)
        return ((const uint16_t *)x->data)[i];
    memcpy(&u, (const char *)x->data + 4 * i, 4);
    return u;
}

/* Bits equal, or both NaN: which of two NaN survives a sum is the machine's. */
static int agree(const gs_tensor *x, size_t i, float want)
{
    return code_of(x, i) == rounded(want, x->dtype) || (isnan(want) && isnan(value_of(x, i)));
}

static void check_written(const gs_tensor *dst, const gs_stats *stats)
{
    gs_stats want, all;
    gs_stats_init(&all);
    for (size_t t = 0; t < PASS_TENSORS; t++) {
        count_naively(&want, &dst[t], t, GS_F16);
        gs_stats_merge(&all, &want);
    }
    all.zero = all.subnormal = all.underflow = 0;
    all.sumsq = 0;
    CHECK(same_stats(&all, stats));
}

static void test_scale_and_convert(void)
{
    static const float factors[] = {0.5f, 1 / 65536.0f, 0x1.234p-101f, -3, 0, 0x1p127f};
    static const gs_dtype types[] = {GS_DTYPE_COUNT, GS_F32, GS_F16, GS_BF16};
    gs_context *ctx = context(NULL);
    gs_tensor dst[PASS_TENSORS];
    pass_data d;
    gs_stats stats;
    pass_data_make(&d, 0, 17);
    for (size_t k = 0; k < sizeof factors / sizeof factors[0]; k++)
        for (int how = 0; how < 3; how++) { /* in place, to the same type, to f32 */
            void *memory = pass_copies(dst, d.src, how == 2 ? GS_F32 : GS_DTYPE_COUNT);
            CHECK((how == 0 ? gs_tensors_scale(ctx, dst, PASS_TENSORS, factors[k], &stats)
                            : gs_tensors_scale_to(ctx, dst, d.src, PASS_TENSORS, factors[k],
                                                  &stats)) == GS_OK);
            for (size_t t = 0; t < PASS_TENSORS; t++)
                for (size_t i = 0; i < dst[t].count; i++)
                    CHECK_MSG(agree(&dst[t], i, value_of(&d.src[t], i) * factors[k]),
                              "tensor %zu [%zu] * %a", t, i, (double)factors[k]);
            check_written(dst, &stats);
            free(memory);
        }
    for (size_t k = 0; k < 4; k++) {
        void *memory = pass_copies(dst, d.src, types[k]);
        CHECK(gs_tensors_convert(ctx, dst, d.src, PASS_TENSORS, &stats) == GS_OK);
        for (size_t t = 0; t < PASS_TENSORS; t++)
            for (size_t i = 0; i < dst[t].count; i++)
                CHECK(agree(&dst[t], i, value_of(&d.src[t], i)));
        check_written(dst, &stats);
        free(memory);
    }
    pass_data_free(&d);
    gs_context_free(ctx);
}

static void test_axpy(void)
{
    gs_context *ctx = context(NULL);
    gs_tensor dst[PASS_TENSORS], old[PASS_TENSORS];
    pass_data d;
    gs_stats stats;
    pass_data_make(&d, 0, 23);
    void *memory = pass_copies(dst, d.src, GS_F32), *copy = pass_copies(old, d.src, GS_F32);
    CHECK(gs_tensors_axpy(ctx, dst, d.src, PASS_TENSORS, 1 / 3.0f, &stats) == GS_OK);
    for (size_t t = 0; t < PASS_TENSORS; t++)
        for (size_t i = 0; i < dst[t].count; i++) {
            const volatile float product = 1 / 3.0f * value_of(&d.src[t], i); /* rounded */
            CHECK(agree(&dst[t], i, value_of(&old[t], i) + product));
        }
    check_written(dst, &stats);
    free(memory);
    free(copy);
    pass_data_free(&d);
    gs_context_free(ctx);
}

static void test_exponents(void)
{
    gs_context *ctx = context(NULL);
    pass_data d;
    static gs_exponents sum, want;
    gs_stats stats, same;
    pass_data_make(&d, 0, 29);
    memset(&sum, 1, sizeof sum); /* it adds */
    want = sum;
    for (size_t t = 0; t < PASS_TENSORS; t++)
        for (size_t i = 0; i < d.src[t].count; i++) {
            const float x = value_of(&d.src[t], i);
            want.zero += x == 0;
            want.inf += isinf(x) ? 1 : 0;
            want.nan += isnan(x) ? 1 : 0;
            if (x == 0 || !isfinite(x))
                continue;
            int e;
            const double m = 2 * frexp(fabs((double)x), &e); /* 1 <= m < 2, times 2^(e-1) */
            const int b = e - 1 + GS_BINADE_OF_ONE;
            const int bits = e - 1 < -126 ? 7 : e - 1 < -14 ? 10 : e - 1 < 100 ? 11 : 8;
            want.all[b]++;
            want.power[b] += m == 1 && e - 1 < -24;
            want.top[b] += m >= 2 - ldexp(1, -bits);
        }
    CHECK(gs_tensors_exponents(ctx, &sum, d.src, PASS_TENSORS, &stats) == GS_OK);
    CHECK(memcmp(&sum, &want, sizeof sum) == 0);
    CHECK(gs_tensors_check(ctx, d.src, PASS_TENSORS, &same) == GS_OK);
    CHECK(same_stats(&stats, &same));
    CHECK(gs_tensors_exponents(ctx, &sum, NULL, 0, NULL) == GS_OK);
    CHECK(memcmp(&sum, &want, sizeof sum) == 0);
    pass_data_free(&d);
    gs_context_free(ctx);
}

/* Each value goes to one of its two neighbours; the mean is right; an element's bits depend on
 * the seed, on the tensor's place in the list and on its index, and on nothing else. */
static void test_stochastic(void)
{
    enum { N = 200000 };
    static const float values[] = {1.0003f, -0.1f, 6.1e-7f, 3e-5f};
    gs_context *ctx = context(NULL);
    float *x = malloc(N * sizeof *x);
    uint16_t *y[4];
    for (int k = 0; k < 4; k++)
        y[k] = malloc(N * sizeof *y[k]);
    for (size_t v = 0; v < 4; v++)
        for (int half = 0; half < 2; half++) {
            const gs_dtype type = half ? GS_BF16 : GS_F16;
            for (size_t i = 0; i < N; i++)
                x[i] = values[v];
            const gs_tensor src[] = {{x, N, GS_F32, NULL, 0}, {x, N, GS_F32, NULL, 0}};
            const gs_tensor dst[] = {{y[0], N, type, NULL, 0}, {y[1], N, type, NULL, 0}};
            CHECK(gs_tensors_convert_stochastic(ctx, dst, src, 2, 5, NULL) == GS_OK);
            uint16_t least = 0xFFFF, most = 0;
            double sum = 0;
            size_t equal = 0;
            for (size_t i = 0; i < N; i++) {
                least = y[0][i] < least ? y[0][i] : least;
                most = y[0][i] > most ? y[0][i] : most;
                sum += (double)value_of(&dst[0], i);
                equal += y[0][i] == y[1][i];
            }
            const uint16_t codes[2] = {least, most};
            const gs_tensor pair = {(void *)(uintptr_t)codes, 2, type, NULL, 0};
            const double lo = (double)value_of(&pair, 0), hi = (double)value_of(&pair, 1);
            CHECK(most == least + 1 && fmin(lo, hi) < (double)values[v] &&
                  (double)values[v] < fmax(lo, hi));
            /* 5 sigma of a mean of N coins, and the 2^-16 of the bits */
            CHECK(fabs(sum / N - (double)values[v]) <
                  fabs(hi - lo) * (2.5 / sqrt((double)N) + 0x1p-16));
            CHECK(equal < N); /* another tensor, other bits; another chunk too */
            CHECK(memcmp(y[0], y[0] + 65536, 65536 * sizeof *y[0]) != 0);

            /* A part of it, alone at the same place, gives the same. */
            const gs_tensor less[] = {{NULL, 0, GS_F32, NULL, 0}, {x, 70001, GS_F32, NULL, 0}};
            const gs_tensor out[] = {{NULL, 0, type, NULL, 0}, {y[2], 70001, type, NULL, 0}};
            CHECK(gs_tensors_convert_stochastic(ctx, out, less, 2, 5, NULL) == GS_OK);
            CHECK(memcmp(y[2], y[1], 70001 * sizeof *y[2]) == 0);
            CHECK(gs_tensors_convert_stochastic(ctx, out, less, 2, 6, NULL) == GS_OK);
            CHECK(memcmp(y[2], y[1], 70001 * sizeof *y[2]) != 0);
        }
    for (int k = 0; k < 4; k++)
        free(y[k]);
    free(x);
    gs_context_free(ctx);
}

/* ---- statistics ---- */

/* More chunks than a group has: 4096 in order, then the groups in order. One element is a chunk. */
static void test_groups_of_chunks(void)
{
    enum { N = 10000, GROUP = 4096 };
    static float x[N];
    static gs_tensor list[N];
    gs_context *ctx;
    gs_stats stats;
    uint64_t seed = 11;
    double want = 0, in_order = 0, group = 0;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    for (int i = 0; i < N; i++) {
        x[i] = ldexpf((float)(pass_random(&seed) % 1000003), -(int)(pass_random(&seed) % 50));
        list[i] = (gs_tensor){&x[i], 1, GS_F32, NULL, 0};
        const double square = (double)(x[i] * x[i]); /* a block is summed in f32 */
        group += square;
        in_order += square;
        if (i % GROUP == GROUP - 1 || i == N - 1) {
            want += group;
            group = 0;
        }
    }
    CHECK(gs_tensors_scan(ctx, list, N, &stats) == GS_OK);
    CHECK_MSG(stats.sumsq == want, "%a, not %a", stats.sumsq, want);
    CHECK(want != in_order); /* or this would prove nothing */
    gs_context_free(ctx);
}

static void test_merge(void)
{
    enum { N = 12 };
    gs_stats s[N], want, got;
    uint64_t seed = 3;
    gs_stats_init(&want);
    CHECK(gs_stats_finite(&want) && want.bad_tensor == GS_NONE && want.bad_index == GS_NONE);
    CHECK(want.elements == 0 && want.amax == 0 && want.sumsq == 0);
    for (int i = 0; i < N; i++) {
        gs_stats_init(&s[i]);
        s[i].elements = pass_random(&seed) % 1000;
        s[i].zero = pass_random(&seed) % 100;
        s[i].subnormal = pass_random(&seed) % 100;
        s[i].underflow = pass_random(&seed) % 100;
        s[i].amax = (float)(pass_random(&seed) % 1000) * 0x1p-140f;
        s[i].sumsq = (double)(pass_random(&seed) % 1000); /* whole: any order */
        if (i % 3 == 0) {
            s[i].inf = pass_random(&seed) % 3;
            s[i].nan = 1;
            s[i].bad_tensor = pass_random(&seed) % 3;
            s[i].bad_index = pass_random(&seed) % 10;
        }
        gs_stats before = s[i], none; /* nothing added is nothing changed, either way */
        gs_stats_init(&none);
        gs_stats_merge(&before, &none);
        gs_stats_merge(&none, &s[i]);
        CHECK(same_stats(&before, &s[i]) && same_stats(&none, &s[i]));
    }
    for (int i = 0; i < N; i++)
        gs_stats_merge(&want, &s[i]);
    CHECK(!gs_stats_finite(&want));
    for (int round = 0; round < 50; round++) {
        gs_stats_init(&got);
        for (int i = 0; i < N; i++) { /* a random one of those left */
            const int k = i + (int)(pass_random(&seed) % (uint64_t)(N - i));
            const gs_stats swap = s[i];
            s[i] = s[k];
            s[k] = swap;
            gs_stats_merge(&got, &s[i]);
        }
        CHECK(same_stats(&got, &want));
    }
    gs_stats only_inf, only_nan;
    gs_stats_init(&only_inf);
    gs_stats_init(&only_nan);
    only_inf.inf = only_nan.nan = 1;
    CHECK(!gs_stats_finite(&only_inf) && !gs_stats_finite(&only_nan));
}

TESTS({"counts", test_counts}, {"sum_of_squares_range", test_sum_of_squares_range},
      {"first_offender", test_first_offender}, {"scale_and_convert", test_scale_and_convert},
      {"axpy", test_axpy}, {"exponents", test_exponents}, {"stochastic", test_stochastic},
      {"groups_of_chunks", test_groups_of_chunks}, {"merge", test_merge})
