/* What export writes of a quantised model: the integers that eval multiplies, on every level. */
#include "cli/export/integers.c"

#include "levels.h"
#include "test.h"

#include "kernel/context.h"

#include <stdlib.h>

enum { N = 1000, ROWS = 64 };

static uint64_t drawn;

/* Ties and zeros among them; rows from subnormal to near FLT_MAX. */
static void fill(float *x, int row)
{
    for (int i = 0; i < N; i++) {
        x[i] = (float)(int32_t)gs_random_u32(7, drawn++) * 0x1p-31f;
        if (i % 3 == 0)
            x[i] = rintf(x[i] * 254) / 254;
        x[i] = ldexpf(x[i], 4 * row - ROWS * 2);
    }
    memset(x, 0, (size_t)row * 4);
}

static void compare(unsigned cpus)
{
    float x[N], turned[3 * N];
    int8_t want[N], ours[N], apart[3 * N];
    gs_context *ctx = NULL;
    const gs_config machine = {.size = sizeof machine, .threads = 1, .without_cpu = ~cpus};
    CHECK(gs_context_create(&ctx, &machine, NULL) == GS_OK);
    for (int row = 0; row < ROWS; row++) {
        fill(x, row);
        float amax = 0;
        for (int i = 0; i < N; i++) {
            amax = fmaxf(amax, fabsf(x[i]));
            turned[3 * i] = x[i];
        }
        const gsi_quant how = gsi_quant_of(amax, 8, false, true);
        ctx->kernels.rows.quantize(want, (gsi_in){x, GS_F32}, N, &how);
        CHECK(integers_of(ours, x, N, 1) == 1 / how.divisor &&
              integers_unit(amax) == 1 / how.divisor);
        CHECK(memcmp(ours, want, N) == 0);
        CHECK(integers_of(apart, turned, N, 3) == 1 / how.divisor);
        for (int i = 0; i < N; i++)
            CHECK(apart[3 * i] == want[i]);
    }
    gs_context_free(ctx);
}

static void test_integers(void)
{
    const unsigned levels = cpu_levels();
    compare(0);
    for (unsigned cpu = 1; cpu && cpu <= levels; cpu <<= 1)
        if (levels & cpu)
            compare(level_cpus(cpu));
}

static void test_ranges(void)
{
    /* too small to be divided by, and not finite */
    static const float none[] = {0, 0x1p-149f, 0x1p-24f}, bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < GSI_COUNT(none); i++) {
        int8_t code = 1;
        CHECK(integers_unit(none[i]) == 1);
        CHECK(integers_of(&code, &none[i], 1, 1) == 1 && code == 0);
    }
    for (size_t i = 0; i < GSI_COUNT(bad); i++) {
        int8_t codes[2] = {5, 5};
        CHECK(isnan(integers_of(codes, (const float[]){1, bad[i]}, 2, 1)) && codes[0] == 5);
    }
}

TESTS({"integers", test_integers}, {"ranges", test_ranges})
