/* The passes over lists of tensors, through the public API only: what they compute, that nothing
 * but the input matters, and what they say to bad input. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "memory.h"
#include "passes.h"
#include "test.h"

#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

int fastmath_run_all(gs_context *ctx, const pass_data *d, digests *out);

static const char *const pass_names[] = {
#define X(name) #name,
    PASSES(X)
#undef X
};

static gs_context *context(const gs_config *config)
{
    gs_context *ctx = NULL;
    CHECK(gs_context_create(&ctx, config) == GS_OK);
    if (!ctx)
        exit(1);
    return ctx;
}

/* ---- nothing but the input matters ---- */

typedef int runner(gs_context *ctx, const pass_data *d, digests *out);

static void check_same(const digests *want, const digests *got, const char *how)
{
    for (int i = 0; i < PASS_COUNT; i++)
        CHECK_MSG(want->of[i] == got->of[i], "%s: %s differs", how, pass_names[i]);
}

/* The digests of the C reference on one thread: what all others must give. */
static void reference(pass_data *d, digests *want, int finite)
{
    static digests known[2];
    static int done[2];
    pass_data_make(d, finite, 99);
    if (!done[finite]) {
        const gs_config config = {.threads = 1, .without_cpu = ~0u};
        gs_context *ctx = context(&config);
        CHECK(pass_run_all(ctx, d, &known[finite]));
        gs_context_free(ctx);
        done[finite] = 1;
    }
    *want = known[finite];
}

static void compare(const gs_config *config, runner *run, const char *how)
{
    gs_context *ctx = context(config);
    for (int finite = 0; finite < 2; finite++) {
        pass_data d;
        digests want, got;
        reference(&d, &want, finite);
        CHECK(run(ctx, &d, &got));
        check_same(&want, &got, how);
        pass_data_free(&d);
    }
    gs_context_free(ctx);
}

static void test_threads(void)
{
    static const unsigned threads[] = {0, 1, 2, 3, 4, 8};
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        const gs_config config = {.threads = threads[i]};
        char how[32];
        snprintf(how, sizeof how, "%u threads", threads[i]);
        compare(&config, pass_run_all, how);
    }
}

static void run_reversed(void *user, size_t count, gs_body *body, void *arg)
{
    (void)user;
    while (count-- > 0)
        body(arg, count);
}

static void run_shuffled(void *user, size_t count, gs_body *body, void *arg)
{
    uint64_t *seed = user;
    size_t *order = malloc((count + 1) * sizeof *order);
    for (size_t i = 0; i < count; i++) {
        const size_t k = pass_random(seed) % (i + 1);
        order[i] = order[k];
        order[k] = i;
    }
    for (size_t i = 0; i < count; i++)
        body(arg, order[i]);
    free(order);
}

typedef struct part {
    gs_body *body;
    void *arg;
    size_t first, count;
} part;

static void *run_part(void *arg)
{
    const part *p = arg;
    for (size_t i = p->first; i < p->count; i += 3)
        p->body(p->arg, i);
    return NULL;
}

static void run_on_new_threads(void *user, size_t count, gs_body *body, void *arg)
{
    pthread_t threads[3];
    part parts[3];
    (void)user;
    for (size_t i = 0; i < 3; i++) {
        parts[i] = (part){body, arg, i, count};
        CHECK(pthread_create(&threads[i], NULL, run_part, &parts[i]) == 0);
    }
    for (size_t i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

static void test_callers_threads(void)
{
    uint64_t seed = 7;
    const gs_config reversed = {.parallel = {run_reversed, NULL}};
    const gs_config shuffled = {.parallel = {run_shuffled, &seed}};
    const gs_config fresh = {.parallel = {run_on_new_threads, NULL}};
    compare(&reversed, pass_run_all, "reversed");
    compare(&shuffled, pass_run_all, "shuffled");
    compare(&fresh, pass_run_all, "new threads");
}

static void test_instruction_sets(void)
{
    for (unsigned without = 0; without < 1u << GS_CPU_COUNT; without++) {
        if (without & ~gs_cpu_detect()) /* what is not there need not be left out */
            continue;
        const gs_config config = {.threads = 2, .without_cpu = without};
        char how[32];
        snprintf(how, sizeof how, "without %x", without);
        compare(&config, pass_run_all, how);
        gs_context *ctx = context(&config);
        CHECK(gs_context_cpu(ctx) == (gs_cpu_detect() & ~without));
        gs_context_free(ctx);
    }
}

static void test_fast_math_caller(void) { compare(NULL, fastmath_run_all, "-ffast-math"); }

/* Flush to zero and denormals are zero, of this thread. */
static void set_flush(int on)
{
#if defined(__x86_64__)
    _mm_setcsr(on ? _mm_getcsr() | 0x8040 : _mm_getcsr() & ~0x8040u);
#elif defined(__aarch64__)
    uint64_t env;
    __asm__ volatile("mrs %0, fpcr" : "=r"(env));
    env = on ? env | 1u << 24 : env & ~(uint64_t)(1u << 24);
    __asm__ volatile("msr fpcr, %0" : : "r"(env));
#else
    (void)on;
#endif
}

/* Is 2^-126 / 2 a number? Through memory, so that no compiler answers. */
static int flushes(void)
{
    volatile float x = 0x1p-126f;
    x *= 0.5f;
    return x == 0;
}

static const struct {
    const char *name;
    int rounding, flush;
} modes[] = {
    {"flush to zero", FE_TONEAREST, 1}, {"upward", FE_UPWARD, 0},      {"downward", FE_DOWNWARD, 0},
    {"toward zero", FE_TOWARDZERO, 0},  {"all at once", FE_UPWARD, 1},
};

/* The caller's mode changes no bit, and is the caller's again afterwards. */
static void test_floating_point_modes(void)
{
    pass_data d[2];
    digests want[2], got;
    for (int finite = 0; finite < 2; finite++)
        reference(&d[finite], &want[finite], finite);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        const gs_config plain = {.threads = 2, .without_cpu = ~0u};
        gs_context *before = context(NULL);
        fesetround(modes[i].rounding);
        set_flush(modes[i].flush);
        /* the threads of these two begin in this mode */
        gs_context *ctx[3] = {before, context(NULL), context(&plain)};
        for (int k = 0; k < 3; k++) {
            const int finite = k == 1, good = pass_run_all(ctx[k], &d[finite], &got);
            const int rounding = fegetround(), flush = flushes();
            CHECK(good);
            CHECK(rounding == modes[i].rounding && flush == modes[i].flush);
            check_same(&want[finite], &got, modes[i].name);
        }
        set_flush(0);
        fesetround(FE_TONEAREST);
        for (int k = 0; k < 3; k++)
            gs_context_free(ctx[k]);
    }
    for (int finite = 0; finite < 2; finite++)
        pass_data_free(&d[finite]);
}

/* Merging is a pass too. */
static void test_merge_in_floating_point_modes(void)
{
    gs_stats a, b, want, got;
    gs_stats_init(&a);
    gs_stats_init(&b);
    a.amax = 0x1p-140f;
    b.amax = 0x1p-139f;
    a.sumsq = 1;
    b.sumsq = 0x1.8p-53;
    want = a;
    gs_stats_merge(&want, &b);
    CHECK(want.amax == 0x1p-139f && want.sumsq == 1 + 0x1p-52);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        got = a;
        fesetround(modes[i].rounding);
        set_flush(modes[i].flush);
        gs_stats_merge(&got, &b);
        set_flush(0);
        fesetround(FE_TONEAREST);
        CHECK_MSG(pass_stats(0, &got) == pass_stats(0, &want), "%s", modes[i].name);
    }
}

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
        out->flushed += v != 0 && code == 0;
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

static int same_stats(const gs_stats *a, const gs_stats *b)
{
    return pass_stats(0, a) == pass_stats(0, b);
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
                want.zero = want.subnormal = want.flushed = 0;
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
    all.zero = all.subnormal = all.flushed = 0;
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
    CHECK(gs_tensors_exponents(ctx, d.src, PASS_TENSORS, &sum, &stats) == GS_OK);
    CHECK(memcmp(&sum, &want, sizeof sum) == 0);
    CHECK(gs_tensors_check(ctx, d.src, PASS_TENSORS, &same) == GS_OK);
    CHECK(same_stats(&stats, &same));
    CHECK(gs_tensors_exponents(ctx, NULL, 0, &sum, NULL) == GS_OK);
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
        s[i].flushed = pass_random(&seed) % 100;
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

/* ---- bad input ---- */

/* Memory that may not be touched. */
static void *forbidden(void)
{
    static void *page;
    if (!page)
        page = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page;
}

typedef gs_status list_call(gs_context *ctx, const gs_tensor *list, size_t n);

static gs_stats untouched; /* must stay as it is */
static gs_exponents untouched_sum;

static gs_status call_check(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return gs_tensors_check(ctx, list, n, &untouched);
}
static gs_status call_scan(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return gs_tensors_scan(ctx, list, n, &untouched);
}
static gs_status call_count(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return gs_tensors_count(ctx, list, n, GS_F16, &untouched);
}
static gs_status call_scale(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return gs_tensors_scale(ctx, list, n, 2, &untouched);
}
static gs_status call_scale_to(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return gs_tensors_scale_to(ctx, list, list, n, 2, &untouched);
}
static gs_status call_convert(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return gs_tensors_convert(ctx, list, list, n, &untouched);
}
static gs_status call_stochastic(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return gs_tensors_convert_stochastic(ctx, list, list, n, 1, &untouched);
}
static gs_status call_axpy(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return gs_tensors_axpy(ctx, list, list, n, 2, &untouched);
}
static gs_status call_exponents(gs_context *ctx, const gs_tensor *list, size_t n)
{
    return gs_tensors_exponents(ctx, list, n, &untouched_sum, &untouched);
}

static list_call *const calls[] = {call_check,      call_scan,     call_count,
                                   call_scale,      call_scale_to, call_convert,
                                   call_stochastic, call_axpy,     call_exponents};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* The call fails with this status and a sentence that has these words in it, and the first tensor,
 * good but out of reach, was not touched. */
static void refuses(gs_context *ctx, list_call *call, const gs_tensor *bad, gs_status status,
                    const char *words)
{
    const gs_tensor list[] = {{forbidden(), 1000, GS_F32, "good", 0}, *bad};
    const gs_stats before = untouched;
    const gs_status got = call(ctx, list, 2);
    const gs_error *error = gs_context_error(ctx);
    CHECK_MSG(got == status, "%s, not %s", gs_status_name(got), gs_status_name(status));
    CHECK(error->status == status);
    CHECK_MSG(strstr(error->text, words), "'%s' does not say '%s'", error->text, words);
    CHECK(same_stats(&before, &untouched));
}

static void test_bad_tensors(void)
{
    gs_context *ctx = context(NULL);
    char *place = forbidden();
    gs_stats_init(&untouched);
    untouched.elements = 4711;
    const struct {
        gs_tensor bad;
        gs_status status;
        const char *words;
    } cases[] = {
        {{NULL, 1, GS_F32, "w", 0}, GS_ENULL, "tensor w has 1 elements but no data"},
        {{NULL, 7, GS_F16, NULL, 0}, GS_ENULL, "tensor 1 "},
        {{place + 1, 8, GS_F32, "w", 0}, GS_EALIGN, "tensor w "},
        {{place + 2, 8, GS_F32, "w", 0}, GS_EALIGN, "tensor w "},
        {{place + 3, 8, GS_F16, "w", 0}, GS_EALIGN, "tensor w "},
        {{place + 1, 8, GS_BF16, "w", 0}, GS_EALIGN, "tensor w "},
        {{place, 8, GS_F64, "w", 0}, GS_EDTYPE, "tensor w has data type f64"},
        {{place, 8, GS_F8E4M3, "w", 0}, GS_EDTYPE, "tensor w has data type f8e4m3"},
        {{place, 8, GS_F8E5M2, NULL, 0}, GS_EDTYPE, "tensor 1 has data type f8e5m2"},
        {{place, 8, GS_DTYPE_COUNT, "w", 0}, GS_EDTYPE, "tensor w has an unknown data type"},
        {{place, 8, (gs_dtype)-1, "w", 0}, GS_EDTYPE, "tensor w has an unknown data type"},
        {{place, SIZE_MAX, GS_F32, "w", 0}, GS_ESIZE, "tensor w is too large"},
        {{place, SIZE_MAX / 4 + 1, GS_F32, "w", 0}, GS_ESIZE, "tensor w is too large"},
        {{place, SIZE_MAX / 8 + 1, GS_F32, "w", 0}, GS_ESIZE, "tensor w is too large"},
        {{place, SIZE_MAX / 2, GS_F16, "w", 0}, GS_ESIZE, "tensor w is too large"},
        {{(void *)(UINTPTR_MAX - 63), 1000, GS_F32, "w", 0}, GS_ESIZE, "tensor w is too large"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        for (int c = 0; c < CALLS; c++)
            refuses(ctx, calls[c], &cases[k].bad, cases[k].status, cases[k].words);

    for (int c = 0; c < CALLS; c++) {
        CHECK(calls[c](ctx, NULL, 3) == GS_ENULL);
        CHECK(strstr(gs_context_error(ctx)->text, "3 tensors") != NULL);
        CHECK(calls[c](NULL, NULL, 0) == GS_ENULL); /* no context */
        const gs_tensor one = {forbidden(), 1, GS_F32, "w", 0};
        CHECK(calls[c](NULL, &one, 1) == GS_ENULL);
    }
    static const gs_exponents nothing;
    CHECK(memcmp(&untouched_sum, &nothing, sizeof nothing) == 0);

    char name[500]; /* a long name: cut */
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    const gs_tensor bad = {NULL, 1, GS_F32, name, 0};
    CHECK(gs_tensors_check(ctx, &bad, 1, NULL) == GS_ENULL);
    CHECK(strlen(gs_context_error(ctx)->text) == sizeof gs_context_error(ctx)->text - 1);
    gs_context_free(ctx);
}

static void test_bad_pairs(void)
{
    gs_context *ctx = context(NULL);
    char *a = forbidden(), *b = a + 4096;
    gs_stats_init(&untouched);
    const gs_tensor src = {a, 100, GS_F32, "w", 0};
    const struct {
        gs_tensor dst, src;
        gs_status status;
        const char *words;
    } both[] = {
        /* for every pass with a destination */
        {{b, 99, GS_F32, "v", 0}, src, GS_ESIZE, "tensor w has 100 elements"},
        {{b, 0, GS_F32, "v", 0}, src, GS_ESIZE, "tensor w has 100 elements"},
        {{a + 4, 100, GS_F32, "v", 0}, src, GS_ERANGE, "tensor w overlaps"},
        {{a + 396, 100, GS_F32, "v", 0}, src, GS_ERANGE, "tensor w overlaps"},
        {{a, 100, GS_F32, "v", 0}, {a, 100, GS_F16, "w", 0}, GS_ERANGE, "tensor w overlaps"},
        {{a, 100, GS_F32, "v", 0}, {a + 398, 100, GS_BF16, "w", 0}, GS_ERANGE, "tensor w overlaps"},
        {{b, 100, GS_F64, "v", 0}, src, GS_EDTYPE, "tensor v has data type f64"},
        {{NULL, 100, GS_F32, "v", 0}, src, GS_ENULL, "tensor v has 100 elements"},
        {{b + 1, 100, GS_F32, NULL, 0}, src, GS_EALIGN, "tensor 0 "},
    };
    for (size_t k = 0; k < sizeof both / sizeof both[0]; k++) {
        const gs_tensor *d = &both[k].dst, *s = &both[k].src;
        const gs_status got[] = {
            gs_tensors_scale_to(ctx, d, s, 1, 2, &untouched),
            gs_tensors_convert(ctx, d, s, 1, &untouched),
            gs_tensors_axpy(ctx, d, s, 1, 2, &untouched),
            gs_tensors_convert_stochastic(ctx, d, s, 1, 1, &untouched),
        };
        for (int i = 0; i < 4; i++)
            CHECK_MSG(got[i] == both[k].status, "case %zu: %s", k, gs_status_name(got[i]));
        CHECK_MSG(strstr(gs_context_error(ctx)->text, both[k].words), "'%s' does not say '%s'",
                  gs_context_error(ctx)->text, both[k].words);
    }
    /* Side by side is not overlapping: the reach is wrong, not the list (nothing is there). */
    float edge[200];
    memset(edge, 0, sizeof edge);
    const gs_tensor low = {edge, 100, GS_F32, NULL, 0}, high = {edge + 100, 100, GS_F32, NULL, 0};
    CHECK(gs_tensors_convert(ctx, &low, &high, 1, NULL) == GS_OK);
    CHECK(gs_tensors_convert(ctx, &high, &low, 1, NULL) == GS_OK);

    /* what there is no kernel for */
    const gs_tensor f16 = {b, 100, GS_F16, "v", 0}, bf16 = {a, 100, GS_BF16, "w", 0};
    CHECK(gs_tensors_scale_to(ctx, &f16, &src, 1, 2, NULL) == GS_EDTYPE);
    CHECK(strstr(gs_context_error(ctx)->text, "tensor w cannot be scaled from f32 to f16"));
    CHECK(gs_tensors_scale_to(ctx, &f16, &bf16, 1, 2, NULL) == GS_EDTYPE);
    CHECK(gs_tensors_axpy(ctx, &f16, &src, 1, 2, NULL) == GS_EDTYPE);
    CHECK(strstr(gs_context_error(ctx)->text, "tensor w can be added to f32 only, not f16"));
    CHECK(gs_tensors_count(ctx, &src, 1, GS_F32, &untouched) == GS_EDTYPE);
    CHECK(gs_tensors_count(ctx, &src, 1, (gs_dtype)-1, &untouched) == GS_EDTYPE);
    CHECK(gs_tensors_exponents(ctx, &src, 1, NULL, NULL) == GS_ENULL);
    CHECK(gs_tensors_scale_to(ctx, NULL, &src, 1, 2, NULL) == GS_ENULL);
    CHECK(gs_tensors_scale_to(ctx, &src, NULL, 1, 2, NULL) == GS_ENULL);

    static const float factors[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 3; i++) {
        const gs_tensor dst = {b, 100, GS_F32, "v", 0};
        CHECK(gs_tensors_scale(ctx, &src, 1, factors[i], &untouched) == GS_ERANGE);
        CHECK(strstr(gs_context_error(ctx)->text, "factor"));
        CHECK(gs_tensors_scale_to(ctx, &dst, &src, 1, factors[i], &untouched) == GS_ERANGE);
        CHECK(gs_tensors_axpy(ctx, &dst, &src, 1, factors[i], &untouched) == GS_ERANGE);
        CHECK(gs_tensors_scale(NULL, &src, 1, factors[i], NULL) == GS_ENULL);
    }
    gs_stats fresh;
    gs_stats_init(&fresh);
    CHECK(same_stats(&fresh, &untouched));
    gs_context_free(ctx);
}

/* What is written may be nothing else in the call, or the threads' order would show. */
static void test_overlaps_in_a_list(void)
{
    gs_context *ctx = context(NULL);
    char *p = forbidden();
    enum { N = 300 };
    gs_tensor dst[N], src[N];
    for (size_t t = 0; t < N; t++) { /* in no order: 7 and N have no common factor */
        dst[t] = (gs_tensor){p + t * 7 % N * 100, 25, GS_F32, NULL, 0};
        src[t] = (gs_tensor){p + 32768 + t * 7 % N * 100, 25, GS_F32, NULL, 0};
    }
    static const struct {
        size_t t, with;
        int of_src; /* tensor t's source is moved, not its destination */
        const char *words;
    } cases[] = {
        {5, 200, 0, "tensors 5 and 200 overlap"},
        {299, 0, 0, "tensors 0 and 299 overlap"},
        {17, 16, 1, "tensor 17 overlaps the destination of tensor 16"},
        {0, 299, 1, "tensor 0 overlaps the destination of tensor 299"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        for (int shift = -96; shift <= 96; shift += 48) {
            gs_tensor *moved = cases[k].of_src ? &src[cases[k].t] : &dst[cases[k].t];
            const gs_tensor kept = *moved;
            moved->data = (char *)dst[cases[k].with].data + shift;
            const gs_status status = gs_tensors_scale_to(ctx, dst, src, N, 2, NULL);
            CHECK_MSG(status == GS_ERANGE, "%s", gs_status_name(status));
            if (shift == 0)
                CHECK_MSG(strstr(gs_context_error(ctx)->text, cases[k].words), "%s",
                          gs_context_error(ctx)->text);
            *moved = kept;
        }
    const gs_tensor twice[] = {{p, 100, GS_F16, "tied", 0}, {p, 100, GS_F16, "to it", 0}};
    CHECK(gs_tensors_scale(ctx, twice, 2, 2, NULL) == GS_ERANGE);
    CHECK(strstr(gs_context_error(ctx)->text, "tensors tied and to it overlap"));

    /* Reading the same twice is legal, and so is no element in the midst of others. */
    float x[64], y[64];
    for (int i = 0; i < 64; i++)
        x[i] = (float)i;
    gs_stats stats;
    const gs_tensor in[] = {{x, 64, GS_F32, NULL, 0}, {x, 32, GS_F32, NULL, 0}};
    const gs_tensor out[] = {{y, 64, GS_F32, NULL, 0}, {x + 32, 32, GS_F32, NULL, 0}};
    CHECK(gs_tensors_check(ctx, in, 2, &stats) == GS_OK && stats.elements == 96);
    CHECK(gs_tensors_convert(ctx, out, in, 1, NULL) == GS_OK && y[63] == 63);
    CHECK(gs_tensors_convert(ctx, out, in, 2, NULL) == GS_ERANGE);
    const gs_tensor with_none[] = {{x, 64, GS_F32, NULL, 0}, {x + 3, 0, GS_F32, NULL, 0}};
    CHECK(gs_tensors_scale(ctx, with_none, 2, 2, NULL) == GS_OK && x[63] == 126);
    gs_context_free(ctx);
}

static void test_nothing_to_do(void)
{
    gs_context *ctx = context(NULL);
    const gs_tensor empty[] = {{NULL, 0, GS_F32, NULL, 0}, {(void *)1, 0, GS_BF16, NULL, 0}};
    gs_stats none, stats;
    gs_stats_init(&none);
    for (size_t n = 0; n <= 2; n++)
        for (int c = 0; c < CALLS; c++) {
            if (calls[c] == call_axpy && n == 2)
                continue; /* to f32 only */
            gs_stats more[2];
            memset(&untouched, 1, sizeof untouched);
            if (calls[c] == call_count)
                CHECK(gs_tensors_count(ctx, empty, n, GS_F16, more) == GS_OK);
            else
                CHECK(calls[c](ctx, n ? empty : NULL, n) == GS_OK);
            if (calls[c] != call_count)
                CHECK(same_stats(&untouched, &none));
        }
    memset(&stats, 1, sizeof stats);
    CHECK(gs_tensors_count(ctx, empty, 1, GS_F16, &stats) == GS_OK && same_stats(&stats, &none));
    gs_context_free(ctx);
}

/* ---- contexts ---- */

static void test_contexts(void)
{
    gs_context *ctx = (gs_context *)(void *)&ctx;
    CHECK(gs_context_create(NULL, NULL) == GS_ENULL);
    const gs_config absurd = {.threads = ~0u};
    CHECK(gs_context_create(&ctx, &absurd) == GS_ERANGE && ctx == NULL);
    gs_context_free(NULL);
    CHECK(gs_context_threads(NULL) == 0 && gs_context_cpu(NULL) == 0);
    CHECK(gs_context_error(NULL)->status == GS_ENULL);

    const gs_config three = {.threads = 3, .without_cpu = ~0u};
    ctx = context(&three);
    CHECK(gs_context_threads(ctx) == 3 && gs_context_cpu(ctx) == 0);
    CHECK(gs_context_error(ctx)->status == GS_OK && gs_context_error(ctx)->text[0] == '\0');
    gs_context_free(ctx);
    const gs_config own = {.parallel = {run_reversed, NULL}, .threads = 5};
    ctx = context(&own);
    CHECK(gs_context_threads(ctx) == 1); /* we start none */
    gs_context_free(ctx);

    CHECK(strcmp(gs_cpu_name(GS_CPU_AVX2), "avx2") == 0);
    CHECK(strcmp(gs_cpu_name(GS_CPU_NEON), "neon") == 0);
    CHECK(!gs_cpu_name(0) && !gs_cpu_name(3) && !gs_cpu_name(1u << GS_CPU_COUNT));
}

TESTS({"threads", test_threads}, {"callers_threads", test_callers_threads},
      {"instruction_sets", test_instruction_sets}, {"fast_math_caller", test_fast_math_caller},
      {"floating_point_modes", test_floating_point_modes},
      {"merge_in_floating_point_modes", test_merge_in_floating_point_modes},
      {"counts", test_counts}, {"sum_of_squares_range", test_sum_of_squares_range},
      {"first_offender", test_first_offender}, {"scale_and_convert", test_scale_and_convert},
      {"axpy", test_axpy}, {"exponents", test_exponents}, {"stochastic", test_stochastic},
      {"merge", test_merge}, {"bad_tensors", test_bad_tensors}, {"bad_pairs", test_bad_pairs},
      {"overlaps_in_a_list", test_overlaps_in_a_list}, {"nothing_to_do", test_nothing_to_do},
      {"contexts", test_contexts})
