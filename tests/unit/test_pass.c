/* The passes over lists of tensors, through the public API only: nothing but the input matters,
 * neither threads nor instruction sets nor the caller's floating-point modes. What they compute:
 * test_pass_values; what they say to bad input: test_pass_bad. */
#include "levels.h"
#include "passes.h"
#include "test.h"

#include <fenv.h>
#include <pthread.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

int fastmath_run_all(gs_context *ctx, const pass_data *d, digests *out);

static const char *const pass_names[] = {
#define X(name) #name,
    PASSES(X)
#undef X
};

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
        const gs_config config = {.size = sizeof config, .threads = 1, .without_cpu = ~0u};
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
        const gs_config config = {.size = sizeof config, .threads = threads[i]};
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
    const gs_config reversed = {.size = sizeof reversed, .parallel = {run_reversed, NULL}};
    const gs_config shuffled = {.size = sizeof shuffled, .parallel = {run_shuffled, &seed}};
    const gs_config fresh = {.size = sizeof fresh, .parallel = {run_on_new_threads, NULL}};
    compare(&reversed, pass_run_all, "reversed");
    compare(&shuffled, pass_run_all, "shuffled");
    compare(&fresh, pass_run_all, "new threads");
}

static void test_instruction_sets(void)
{
    for (unsigned without = 0; without < 1u << GS_CPU_COUNT; without++) {
        if (without & ~cpu_levels()) /* what is not there need not be left out */
            continue;
        const gs_config config = {.size = sizeof config, .threads = 2, .without_cpu = without};
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
        const gs_config plain = {.size = sizeof plain, .threads = 2, .without_cpu = ~0u};
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

/* Single conversions: every half there and back, quiet. */
static uint64_t convert_all(void)
{
    uint64_t h = 0;
    for (unsigned c = 0; c < 65536; c++) {
        const float x = gs_f16_to_f32((uint16_t)c), y = gs_bf16_to_f32((uint16_t)c);
        uint32_t bits[2];
        memcpy(&bits[0], &x, 4);
        memcpy(&bits[1], &y, 4);
        h = pass_mix(h, (uint64_t)bits[0] << 32 | bits[1]);
        h = pass_mix(h, (uint64_t)gs_f32_to_f16(x) << 16 | gs_f32_to_bf16(y));
        h = pass_mix(h, (uint64_t)gs_f32_to_f8e4m3(x, 0) << 8 | gs_f32_to_f8e5m2(y, 1));
        h = pass_mix(h, gs_f32_to_bf16_stochastic(x, (uint16_t)(c * 40503u)));
    }
    return h;
}

static void test_conversions_in_floating_point_modes(void)
{
    const uint64_t want = convert_all();
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        fesetround(modes[i].rounding);
        set_flush(modes[i].flush);
        const uint64_t got = convert_all();
        set_flush(0);
        fesetround(FE_TONEAREST);
        CHECK_MSG(got == want, "%s", modes[i].name);
    }
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

/* ---- contexts ---- */

static void test_contexts(void)
{
    gs_context *ctx = (gs_context *)(void *)&ctx;
    CHECK(gs_context_create(NULL, NULL, NULL) == GS_ENULL);
    const gs_config absurd = {.size = sizeof absurd, .threads = ~0u};
    CHECK(gs_context_create(&ctx, &absurd, NULL) == GS_ERANGE && ctx == NULL);
    gs_context_free(NULL);
    CHECK(gs_context_threads(NULL) == 0 && gs_context_cpu(NULL) == 0);
    CHECK(gs_context_error(NULL)->status == GS_ENULL);

    const gs_config three = {.size = sizeof three, .threads = 3, .without_cpu = ~0u};
    ctx = context(&three);
    CHECK(gs_context_threads(ctx) == 3 && gs_context_cpu(ctx) == 0);
    CHECK(gs_context_error(ctx)->status == GS_OK && gs_context_error(ctx)->text[0] == '\0');
    gs_context_free(ctx);
    const gs_config own = {.size = sizeof own, .parallel = {run_reversed, NULL}, .threads = 5};
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
      {"conversions_in_floating_point_modes", test_conversions_in_floating_point_modes},
      {"merge_in_floating_point_modes", test_merge_in_floating_point_modes},
      {"contexts", test_contexts})
