/* The elementary functions of kernel/simd/math.h: their error against f64, over all f16 and one f32
 * in 4099 (GS_LONG=1: one in 17), special values, and the same bits from every instruction set,
 * with flush-to-zero and denormals-are-zero too. Prints the largest error of each. */
#include "levels.h"
#include "test.h"

#include "kernel/fpenv.h"
#include "reference.h"

#include <math.h>
#include <stdatomic.h>

/* ---- what they should be ---- */

static double exact_sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* 2 u of kernel/simd/math.h */
static double two_u(double x) { return 2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x); }
static double exact_gelu(double x) { return x / (1 + exp(-two_u(x))); }

static double exact_derivative(double x)
{
    const double slope = 2 * sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
    const double s = exact_sigmoid(two_u(x)), t = exact_sigmoid(-two_u(x));
    return s + (s * t > 0 ? x * s * t * slope : 0);
}

typedef void eval_fn(const gsi_rows *k, gsi_out y, gsi_in x, size_t n);

static void eval_exp(const gsi_rows *k, gsi_out y, gsi_in x, size_t n) { k->exp(y, x, n); }
static void eval_log(const gsi_rows *k, gsi_out y, gsi_in x, size_t n) { k->log(y, x, n); }
static void eval_tanh(const gsi_rows *k, gsi_out y, gsi_in x, size_t n) { k->tanh(y, x, n); }
static void eval_erf(const gsi_rows *k, gsi_out y, gsi_in x, size_t n) { k->erf(y, x, n); }
static void eval_sigmoid(const gsi_rows *k, gsi_out y, gsi_in x, size_t n) { k->sigmoid(y, x, n); }
static void eval_gelu(const gsi_rows *k, gsi_out y, gsi_in x, size_t n) { k->gelu(y, x, n); }

enum { BLOCK = 4096 };

static void eval_derivative(const gsi_rows *k, gsi_out y, gsi_in x, size_t n)
{
    float ones[BLOCK];
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    k->gelu_backward(y, (gsi_in){ones, GS_F32}, x, n);
}

static double exact_gelu_erf(double x) { return 0.5 * x * erfc(-x / sqrt(2)); }

static double exact_gelu_erf_derivative(double x)
{
    const double bell = exp(-x * x / 2) / sqrt(2 * acos(-1));
    return 0.5 * erfc(-x / sqrt(2)) + (bell > 0 ? x * bell : 0);
}

static void eval_gelu_erf(const gsi_rows *k, gsi_out y, gsi_in x, size_t n)
{
    k->gelu_erf(y, x, n);
}

static void eval_gelu_erf_derivative(const gsi_rows *k, gsi_out y, gsi_in x, size_t n)
{
    float ones[BLOCK];
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    k->gelu_erf_backward(y, (gsi_in){ones, GS_F32}, x, n);
}

static double exact_silu(double x) { return x / (1 + exp(-x)); }

static double exact_silu_derivative(double x)
{
    const double s = exact_sigmoid(x), t = exact_sigmoid(-x);
    return s + (s * t > 0 ? x * s * t : 0);
}

static void eval_silu(const gsi_rows *k, gsi_out y, gsi_in x, size_t n) { k->silu(y, x, n); }

static void eval_silu_derivative(const gsi_rows *k, gsi_out y, gsi_in x, size_t n)
{
    float ones[BLOCK];
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    k->silu_backward(y, (gsi_in){ones, GS_F32}, x, n);
}

/* The allowed error is ulps + more |2 u| units in the last place of the result; below `least`
 * (the error of e^-2u is relative, but that of the derivative's two terms is not), of that. */
typedef struct function {
    const char *name;
    eval_fn *eval;
    double (*exact)(double);
    double ulps, more, least;
    double tail;   /* results below it may be 0 */
    bool flushes;  /* results below 2^-126 are 0, and so may be those of subnormals */
    bool any_mode; /* same bits under FTZ and DAZ */
} function;

static const function functions[] = {
    {"exp", eval_exp, exp, 1.0, 0, 0, 0, true, true},
    {"log", eval_log, log, 0.9, 0, 0, 0, false, true},
    {"tanh", eval_tanh, tanh, 1.4, 0, 0, 0, false, true},
    {"erf", eval_erf, erf, 1.7, 0, 0, 0, true, true},
    {"sigmoid", eval_sigmoid, exact_sigmoid, 2.5, 0, 0, 0, true, true},
    {"gelu", eval_gelu, exact_gelu, 2.0, 3.0, 0, 0x1p-120, false, false},
    {"gelu'", eval_derivative, exact_derivative, 4, 0, 0.25, 0, false, false},
    {"gelu_erf", eval_gelu_erf, exact_gelu_erf, 4.0, 0, 0.25, 0x1p-24, false, false},
    {"gelu_erf'", eval_gelu_erf_derivative, exact_gelu_erf_derivative, 4, 0, 0.25, 0, false, false},
    {"silu", eval_silu, exact_silu, 3.0, 0, 0, 0x1p-120, false, false},
    {"silu'", eval_silu_derivative, exact_silu_derivative, 4, 0, 0.25, 0, false, false},
};

/* The error as a fraction of the allowed one; above 1 is wrong. */
static double error_of(const function *f, float x, float y)
{
    const double want = f->exact((double)x), size = fabs(want);
    if (want != want)
        return y != y ? 0 : HUGE_VAL;
    if (size >= 0x1.ffffffp+127) /* rounds to Inf */
        return (double)y == copysign(HUGE_VAL, want) ? 0 : HUGE_VAL;
    if (y == 0 && size < (f->flushes ? 0x1.3p-126 : f->tail))
        return 0;
    if (f->flushes && size < 0x1p-126)
        return HUGE_VAL;
    int e;
    frexp(size > f->least ? size : f->least, &e);
    const double unit = ldexp(1, (e < -125 ? -125 : e) - 24);
    const double allowed = f->ulps + (f->more > 0 ? f->more * fabs(two_u((double)x)) : 0);
    return fabs((double)y - want) / unit / allowed;
}

/* ---- sweeps ---- */

typedef struct sweep {
    const function *f;
    uint64_t step;
    gsi_rows k[8]; /* the reference first */
    size_t kernels;
    atomic_ullong worst; /* a millionth of the allowed error << 32 | the bits of x */
    atomic_ullong differ;
} sweep;

static void all_kernels(sweep *s)
{
    s->kernels = 0;
    s->k[s->kernels++] = reference.rows;
    for (unsigned cpu = 1; cpu < 1u << GS_CPU_COUNT; cpu <<= 1)
        if (cpu_levels() & cpu) {
            gsi_kernels k;
            gsi_kernels_init(&k, cpu);
            s->k[s->kernels++] = k.rows;
        }
}

static bool same_float(float a, float b)
{
    return (a != a && b != b) || gsi_bits(a) == gsi_bits(b);
}

static void raise_worst(sweep *s, double error, float x)
{
    const uint64_t millionths = error < 4000 ? (uint64_t)(error * 1e6) : 4000000000;
    const unsigned long long mine = millionths << 32 | gsi_bits(x);
    unsigned long long seen = atomic_load(&s->worst);
    while (mine > seen && !atomic_compare_exchange_weak(&s->worst, &seen, mine))
        ;
}

static void sweep_block(void *arg, size_t block)
{
    sweep *s = arg;
    float x[BLOCK], y[BLOCK], other[BLOCK];
    for (size_t i = 0; i < BLOCK; i++)
        x[i] = gsi_float((uint32_t)((block * BLOCK + i) * s->step));
    const gsi_in from = {x, GS_F32};
    s->f->eval(&s->k[0], (gsi_out){y, GS_F32, NULL}, from, BLOCK);
    double worst = -1;
    float where = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        const double error = error_of(s->f, x[i], y[i]);
        if (error > worst) {
            worst = error;
            where = x[i];
        }
    }
    raise_worst(s, worst, where);
    for (size_t k = 1; k < s->kernels; k++) {
        s->f->eval(&s->k[k], (gsi_out){other, GS_F32, NULL}, from, BLOCK);
        for (size_t i = 0; i < BLOCK; i++)
            if (!same_float(y[i], other[i]))
                atomic_fetch_add(&s->differ, 1);
    }
}

static void test_f32(void)
{
    static sweep s;
    gsi_heap heap;
    gsi_pool *pool;
    gsi_heap_init(&heap, NULL);
    CHECK(gsi_pool_create(&pool, &heap, 0) == GS_OK);
    const gs_parallel parallel = gsi_pool_parallel(pool);
    all_kernels(&s);
    for (size_t i = 0; i < GSI_COUNT(functions); i++) {
        s.f = &functions[i];
        s.step = test_long() ? 17 : 4099;
        atomic_store(&s.worst, 0);
        atomic_store(&s.differ, 0);
        const size_t blocks = (size_t)(((uint64_t)1 << 32) / s.step / BLOCK) + (s.step > 1);
        parallel.run(parallel.user, blocks, sweep_block, &s);
        const unsigned long long worst = atomic_load(&s.worst), differ = atomic_load(&s.differ);
        const double error = (double)(worst >> 32) * 1e-6;
        const double x = (double)gsi_float((uint32_t)worst);
        printf("%-8s %.4f of the allowed error, at %a\n", s.f->name, error, x);
        CHECK_MSG(error <= 1, "%s(%a): %g times the allowed error", s.f->name, x, error);
        CHECK_MSG(differ == 0, "%s: %llu results depend on the CPU", s.f->name, differ);
    }
    gsi_pool_free(pool);
}

/* All halves in; f32 out, and rounded to a half: the same as rounding the f32. */
static void test_f16(void)
{
    static sweep s;
    static uint16_t x[65536], y16[65536];
    static float y[65536], other[65536];
    all_kernels(&s);
    for (size_t i = 0; i < 65536; i++)
        x[i] = (uint16_t)i;
    for (size_t i = 0; i < GSI_COUNT(functions); i++) {
        const function *f = &functions[i];
        for (size_t k = 0; k < s.kernels; k++) {
            for (size_t at = 0; at < 65536; at += BLOCK) {
                const gsi_in from = {x + at, GS_F16};
                f->eval(&s.k[k], (gsi_out){other + at, GS_F32, NULL}, from, BLOCK);
                f->eval(&s.k[k], (gsi_out){y16 + at, GS_F16, NULL}, from, BLOCK);
            }
            if (k == 0)
                memcpy(y, other, sizeof y);
            for (size_t j = 0; j < 65536; j++) {
                const float value = gs_f16_to_f32(x[j]);
                CHECK_MSG(error_of(f, value, y[j]) <= 1, "%s(%a) is %a", f->name, (double)value,
                          (double)y[j]);
                CHECK(same_float(y[j], other[j]));
                CHECK(same_float(gs_f16_to_f32(y16[j]), gs_f16_to_f32(gs_f32_to_f16(y[j]))));
            }
        }
    }
}

/* ---- special values ---- */

static float one(eval_fn *eval, float x)
{
    float y;
    eval(&reference.rows, (gsi_out){&y, GS_F32, NULL}, (gsi_in){&x, GS_F32}, 1);
    return y;
}

static void test_special(void)
{
    const float inf = gsi_float(GSI_F32_INF), nan = gsi_float(0x7FC12345);
    for (size_t i = 0; i < GSI_COUNT(functions); i++) {
        const float y = one(functions[i].eval, nan), z = one(functions[i].eval, -nan);
        CHECK_MSG(y != y && z != z, "%s(NaN)", functions[i].name);
        const float low_payload = one(functions[i].eval, gsi_float(0x7F8001FF));
        CHECK_MSG(low_payload != low_payload, "%s(NaN)", functions[i].name);
    }
    const struct {
        eval_fn *eval;
        float x, y;
    } cases[] = {
        {eval_exp, 0, 1},
        {eval_exp, -0.0f, 1},
        {eval_exp, 0x1p-149f, 1},
        {eval_exp, inf, inf},
        {eval_exp, -inf, 0},
        {eval_exp, 0x1.62e43p+6f, inf},
        {eval_exp, -0x1.5d58ap+6f, 0},
        {eval_log, 0, -inf},
        {eval_log, -0.0f, -inf},
        {eval_log, 1, 0},
        {eval_log, inf, inf},
        {eval_tanh, 0, 0},
        {eval_tanh, -0.0f, -0.0f},
        {eval_tanh, inf, 1},
        {eval_tanh, -inf, -1},
        {eval_tanh, 0x1p-149f, 0x1p-149f},
        {eval_tanh, -0x1p-127f, -0x1p-127f},
        {eval_erf, 0, 0},
        {eval_erf, -0.0f, -0.0f},
        {eval_erf, inf, 1},
        {eval_erf, -inf, -1},
        {eval_erf, 0x1p-127f, 0},
        {eval_sigmoid, 0, 0.5f},
        {eval_sigmoid, inf, 1},
        {eval_sigmoid, -inf, 0},
        {eval_gelu, 0, 0},
        {eval_gelu, -0.0f, -0.0f},
        {eval_gelu, inf, inf},
        {eval_gelu, -1e30f, -0.0f},
        {eval_gelu, 1e30f, 1e30f},
        {eval_gelu_erf, 0, 0},
        {eval_gelu_erf, -0.0f, -0.0f},
        {eval_gelu_erf, inf, inf},
        {eval_gelu_erf, -1e30f, -0.0f},
        {eval_gelu_erf, 1e30f, 1e30f},
        {eval_gelu_erf_derivative, 0, 0.5f},
        {eval_gelu_erf_derivative, inf, 1},
        {eval_gelu_erf_derivative, 1e30f, 1},
        {eval_derivative, 0, 0.5f},
        {eval_derivative, inf, 1},
        {eval_derivative, 1e30f, 1},
        {eval_derivative, 12, 1},
    };
    for (size_t i = 0; i < GSI_COUNT(cases); i++) {
        const float y = one(cases[i].eval, cases[i].x);
        CHECK_MSG(gsi_bits(y) == gsi_bits(cases[i].y), "case %zu: f(%a) is %a, not %a", i,
                  (double)cases[i].x, (double)y, (double)cases[i].y);
    }
    CHECK(one(eval_exp, 0x1.62e42ep+6f) < inf && one(eval_exp, -0x1.5d589ep+6f) >= 0x1p-126f);
    CHECK(one(eval_log, -1) != one(eval_log, -1) && one(eval_log, -inf) != one(eval_log, -inf));
    CHECK(fabsf(one(eval_derivative, -inf)) < 1e-30f && fabsf(one(eval_derivative, -12)) < 1e-30f);
}

/* ---- the caller's mode ---- */

static void test_modes(void)
{
#if defined(__x86_64__)
    const uint64_t mode = 0x9FC0; /* FTZ and DAZ */
#elif defined(__aarch64__)
    const uint64_t mode = 1 << 24;
#else
    const uint64_t mode = 0;
#endif
    static sweep s;
    all_kernels(&s);
    for (size_t i = 0; i < GSI_COUNT(functions); i++) {
        const function *f = &functions[i];
        for (uint64_t at = 0; at < ((uint64_t)1 << 32) && f->any_mode; at += 4099 * BLOCK) {
            float x[BLOCK], y[BLOCK], other[BLOCK];
            for (size_t j = 0; j < BLOCK; j++) /* and all that is subnormal, every 8191st */
                x[j] = gsi_float(j % 4 ? (uint32_t)(at + j * 4099)
                                       : (uint32_t)((at / 512 + j * 8191) & 0x807FFFFF));
            f->eval(&s.k[0], (gsi_out){y, GS_F32, NULL}, (gsi_in){x, GS_F32}, BLOCK);
            for (size_t k = 0; k < s.kernels; k++) {
                const uint64_t saved = gsi_fpenv_enter();
                gsi_fpenv_write(mode);
                f->eval(&s.k[k], (gsi_out){other, GS_F32, NULL}, (gsi_in){x, GS_F32}, BLOCK);
                gsi_fpenv_write(saved);
                size_t differ = 0;
                for (size_t j = 0; j < BLOCK; j++)
                    differ += !same_float(y[j], other[j]);
                CHECK_MSG(differ == 0, "%s: %zu of a block depend on the mode", f->name, differ);
            }
        }
    }
}

TESTS({"f32", test_f32}, {"f16", test_f16}, {"special", test_special}, {"modes", test_modes})
