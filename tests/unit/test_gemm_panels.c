/* One row times a matrix in panels: the definition's bits on every level, of any types, with and
 * without a bias; the columns that a last panel lacks are neither read into c nor written. */
#include "levels.h"
#include "test.h"

#include "kernel/context.h"
#include "kernel/gemm/gemm.h"

#include <string.h>

static uint64_t state = 1;

static uint32_t draw(void)
{
    state = state * 6364136223846793005 + 1442695040888963407;
    return (uint32_t)(state >> 33 ^ state >> 21);
}

/* Any numbers, among them subnormal and infinite ones and NaN. */
static void fill(void *x, gs_dtype type, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = draw() << 16 ^ draw();
        const float near = (float)(int32_t)bits * 0x1p-31f;
        const uint32_t f32 = draw() % 64 ? gsi_bits(near) : bits;
        const uint16_t half =
            (uint16_t)(type == GS_F32 ? 0 : gsi_narrow(f32, gsi_row_of(type), GSI_NEAREST, false));
        if (type == GS_F32)
            ((uint32_t *)x)[i] = f32;
        else
            ((uint16_t *)x)[i] = half;
    }
}

/* [n][k] to panels of `width` columns. */
static char *panels_of(const char *b, size_t n, size_t k, size_t size, size_t width)
{
    const size_t panels = (n + width - 1) / width;
    char *const to = malloc(panels * width * k * size + 1);
    memset(to, 0x7F, panels * width * k * size);
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < k; i++)
            memcpy(to + ((j / width * k + i) * width + j % width) * size, b + (j * k + i) * size,
                   size);
    return to;
}

enum { MOST_N = 300, MOST_K = 1000 };

static void check_product(gs_context *ctx, size_t n, size_t k)
{
    static float a[MOST_K], b[MOST_N * MOST_K], bias[MOST_N], c[2][MOST_N + 1];
    gs_dtype types[4];
    for (int i = 0; i < 4; i++)
        types[i] = (gs_dtype)(draw() % 3); /* f32, f16, bf16 */
    fill(a, types[0], k);
    fill(b, types[1], n * k);
    fill(bias, types[2], n);
    memset(c, 0x55, sizeof c);
    gs_gemm g = {.m = 1,
                 .n = n,
                 .k = k,
                 .batch = 1,
                 .a = {.data = a, .dtype = types[0], .stride = k},
                 .b = {.data = b, .dtype = types[1], .stride = k, .transposed = 1},
                 .c = {c[0], types[3], n, 0},
                 .bias = draw() % 2 ? bias : NULL,
                 .bias_dtype = types[2]};
    gsi_gemm_ref(&g);
    char *panels = panels_of((const char *)b, n, k, gsi_size_of(types[1]), gsi_panel_width(ctx));
    g.b.data = panels;
    g.c.data = c[1];
    CHECK(gsi_gemm_panels(ctx, &g) == GS_OK);
    CHECK_MSG(memcmp(c[0], c[1], sizeof c[0]) == 0, "%zu by %zu, types %d %d %d %d", n, k,
              (int)types[0], (int)types[1], (int)types[2], (int)types[3]);
    free(panels);
}

static void test_levels(void)
{
    const unsigned levels = gemm_levels();
    for (unsigned level = 1; level <= levels; level <<= 1) {
        const gs_config config = {
            .size = sizeof config, .threads = 2, .without_cpu = ~level_cpus(level)};
        gs_context *ctx;
        if (!(level & levels))
            continue;
        CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
        CHECK_MSG(gsi_panel_width(ctx) > 0, "%s", gs_cpu_name(level));
        for (int i = 0; i < 400; i++)
            check_product(ctx, 1 + draw() % MOST_N, 1 + draw() % MOST_K);
        check_product(ctx, 64, 384);
        check_product(ctx, 65, 385);
        gs_context_free(ctx);
    }
}

/* The reference has no such product, and says so. */
static void test_none(void)
{
    const gs_config config = {.size = sizeof config, .threads = 1, .without_cpu = ~0u};
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
    CHECK(gsi_panel_width(ctx) == 0);
    gs_context_free(ctx);
}

TESTS({"levels", test_levels}, {"none", test_none})
