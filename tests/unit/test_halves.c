/* Every f32 to f16 and bf16: the reference, every variant and an independent opinion agree.
 * All 2^32 of them with GS_LONG=1 (half a minute per format); else one in 4099. */
#include "levels.h"
#include "test.h"

#include "reference.h"

#include <math.h>
#include <stdatomic.h>

enum { BLOCK = 1 << 12 }; /* floats at a time, within L1 */

typedef struct sweep {
    gs_dtype type;
    uint64_t step;    /* 1: all floats */
    gsi_kernels k[8]; /* one per instruction set, the reference first */
    size_t kernels;
    atomic_ullong wrong;
    atomic_ulong first_wrong; /* float bits */
} sweep;

/* By value, in f64, where a quotient by a power of two is exact and rint rounds to even. */
static uint16_t opinion(uint32_t u, gs_dtype type)
{
    const gs_format *f = gs_dtype_format(type);
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    const double x = fabs((double)gsi_float(u));
    if (x != x) { /* quiet, top of the payload */
        const int cut = 23 - f->mantissa_bits;
        return (uint16_t)(sign | (f->max_code + 1) | 1u << (f->mantissa_bits - 1) |
                          ((u & 0x7FFFFF) >> cut));
    }
    if (x > 2 * f->max) /* infinity among them */
        return (uint16_t)(sign | (f->max_code + 1));
    /* the power of two at or below x, then the step of the format there */
    uint64_t bits;
    double step;
    memcpy(&bits, &x, sizeof bits);
    bits &= (uint64_t)0x7FF << 52;
    memcpy(&step, &bits, sizeof step);
    step *= f->epsilon;
    const double least = f->min_subnormal, quantum = step > least ? step : least;
    const double r = rint(x / quantum) * quantum;
    if (r > f->max)
        return (uint16_t)(sign | (f->max_code + 1));
    if (r < f->min_normal)
        return (uint16_t)(sign | (uint16_t)(r / least));
    memcpy(&bits, &r, sizeof bits);
    const uint64_t bias = (uint64_t)(1023 - ((1 << (f->exponent_bits - 1)) - 1));
    return (uint16_t)(sign | ((bits - (bias << 52)) >> (52 - f->mantissa_bits)));
}

static void sweep_block(void *arg, size_t block)
{
    sweep *s = arg;
    uint32_t in[BLOCK];
    uint16_t want[BLOCK], got[BLOCK];
    for (size_t i = 0; i < BLOCK; i++) {
        in[i] = (uint32_t)((block * BLOCK + i) * s->step);
        want[i] = opinion(in[i], s->type);
    }
    for (size_t k = 0; k < s->kernels; k++) {
        s->k[k].pass.convert[s->type][GS_F32](got, in, BLOCK, false);
        for (size_t i = 0; i < BLOCK && memcmp(want, got, sizeof want) != 0; i++)
            if (want[i] != got[i]) {
                atomic_fetch_add(&s->wrong, 1);
                atomic_store(&s->first_wrong, in[i]);
            }
    }
}

static void sweep_type(gs_dtype type)
{
    static sweep s;
    const unsigned cpus = cpu_levels();
    memset(&s, 0, sizeof s);
    s.type = type;
    s.step = test_long() ? 1 : 4099;
    s.k[s.kernels++] = reference;
    for (unsigned cpu = 1; cpu < 1u << GS_CPU_COUNT; cpu <<= 1)
        if (cpus & cpu)
            gsi_kernels_init(&s.k[s.kernels++], cpu);

    gsi_heap heap;
    gsi_pool *pool;
    gsi_heap_init(&heap, NULL);
    CHECK(gsi_pool_create(&pool, &heap, 0) == GS_OK);
    const gs_parallel parallel = gsi_pool_parallel(pool);
    const size_t blocks = (size_t)(((uint64_t)1 << 32) / s.step / BLOCK) + (s.step > 1);
    parallel.run(parallel.user, blocks, sweep_block, &s);
    gsi_pool_free(pool);
    CHECK_MSG(atomic_load(&s.wrong) == 0, "%s: %llu wrong, one of them 0x%08lx",
              gs_dtype_format(type)->name, (unsigned long long)atomic_load(&s.wrong),
              atomic_load(&s.first_wrong));
}

static void test_f16(void) { sweep_type(GS_F16); }
static void test_bf16(void) { sweep_type(GS_BF16); }

/* A limit is the first magnitude that narrows to a code; the one below it does not reach it. */
static void check_limit(uint32_t limit, uint32_t code, gsi_row row)
{
    CHECK(gsi_narrow(limit, row, GSI_NEAREST, false) == code);
    CHECK(gsi_narrow(limit - 1, row, GSI_NEAREST, false) == code - 1);
}

static void test_limits(void)
{
    static const gs_dtype types[] = {GS_F16, GS_BF16};
    const gsi_row rows[] = {GSI_ROW_F16, GSI_ROW_BF16};
    for (int i = 0; i < 2; i++) {
        const gsi_limits limits = gsi_limits_of(types[i]);
        const uint32_t inf = gsi_narrow(GSI_F32_INF, rows[i], GSI_NEAREST, false);
        check_limit(limits.underflow, 1, rows[i]);
        check_limit(limits.subnormal, 1u << rows[i].mbits, rows[i]);
        check_limit(limits.overflow, inf, rows[i]);
    }
}

TESTS({"f16", test_f16}, {"bf16", test_bf16}, {"limits", test_limits})
