/* Products of INT8: every instruction set gives the exact sums, and requantize is one function. */
#include "levels.h"
#include "test.h"

#include "kernel/context.h"

#include <math.h>
#include <stdlib.h>

static uint64_t drawn;
static uint32_t draw(void) { return gs_random_u32(7, drawn++); }

static gs_context *context(unsigned cpus, unsigned threads)
{
    gs_context *ctx = NULL;
    const gs_config config = {.size = sizeof config, .threads = threads, .without_cpu = ~cpus};
    CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
    return ctx;
}

typedef enum fill { ANY, LEAST, MOST, FILLS } fill;

static int8_t *bytes(size_t n, fill how)
{
    int8_t *x = malloc(n + !n);
    for (size_t i = 0; i < n; i++)
        x[i] = how == ANY ? (int8_t)draw() : how == LEAST ? -128 : 127;
    return x;
}

/* The sums of g on every level and with one and three threads are those of the definition. */
static void compare(gs_gemm_int8 g)
{
    const size_t n = g.m * g.n;
    int32_t *want = malloc((n + 1) * sizeof *want), *got = malloc((n + 1) * sizeof *got);
    gsi_int8_ref(want, &g);
    g.sums = got;
    unsigned levels = int8_levels();
    for (unsigned cpu = 0; cpu <= levels; cpu = cpu ? cpu << 1 : 1) {
        if ((levels & cpu) != cpu)
            continue;
        for (unsigned threads = 1; threads <= 3; threads += 2) {
            gs_context *ctx = context(cpu ? level_cpus(cpu) : 0, threads);
            memset(got, 0x55, (n + 1) * sizeof *got);
            CHECK(gs_gemm_int8_run(ctx, &g) == GS_OK);
            CHECK_MSG(memcmp(got, want, n * sizeof *got) == 0, "%zu by %zu by %zu, %s", g.m, g.n,
                      g.k, cpu ? gs_cpu_name(cpu) : "ref");
            CHECK(got[n] == 0x55555555);
            gs_context_free(ctx);
        }
    }
    free(want);
    free(got);
}

static void one_size(size_t m, size_t n, size_t k, fill of_a, fill of_b)
{
    int8_t *a = bytes(m * k, of_a), *b = bytes(n * k, of_b);
    compare((gs_gemm_int8){.m = m, .n = n, .k = k, .a = a, .b = b});
    free(a);
    free(b);
}

static void test_sums(void)
{
    static const size_t sizes[][3] = {{1, 1, 0},    {1, 1, 1},     {1, 2, 3},       {3, 5, 7},
                                      {12, 32, 64}, {13, 33, 65},  {11, 31, 63},    {97, 257, 130},
                                      {6, 16, 4},   {200, 10, 31}, {100, 300, 2051}};
    for (size_t i = 0; i < GSI_COUNT(sizes); i++)
        one_size(sizes[i][0], sizes[i][1], sizes[i][2], ANY, ANY);
    for (int i = 0; i < 40; i++)
        one_size(draw() % 50, draw() % 70, draw() % 90, ANY, ANY);
}

/* -128 and 127 in all places, and the longest k: sums reach 2^31 - 2^14 and -2^31 + ... */
static void test_edges(void)
{
    for (int a = 1; a < FILLS; a++)
        for (int b = 1; b < FILLS; b++) {
            one_size(13, 33, 67, (fill)a, (fill)b);
            one_size(2, 3, GS_INT8_K, (fill)a, (fill)b);
        }
    one_size(5, 40, GS_INT8_K, ANY, ANY);
}

static void test_im2col(void)
{
    for (int i = 0; i < 60; i++) {
        const size_t images = 1 + draw() % 3, kernel = 1 + draw() % 5, stride = 1 + draw() % 3;
        gs_im2col p = {.h = 1 + draw() % 9,
                       .w = 1 + draw() % 9,
                       .c = 1 + draw() % 20,
                       .kh = kernel,
                       .kw = kernel,
                       .stride = stride,
                       .pad = draw() % kernel};
        if (p.h + 2 * p.pad < kernel || p.w + 2 * p.pad < kernel)
            continue;
        p.rows_h = (p.h + 2 * p.pad - kernel) / stride + 1;
        p.rows_w = (p.w + 2 * p.pad - kernel) / stride + 1;
        const size_t k = kernel * kernel * p.c, n = 1 + draw() % 40;
        int8_t *a = bytes(images * p.h * p.w * p.c, ANY), *b = bytes(n * k, ANY);
        compare((gs_gemm_int8){
            .m = images * p.rows_h * p.rows_w, .n = n, .k = k, .a = a, .im2col = &p, .b = b});
        free(a);
        free(b);
    }
}

/* y of a product is (float)sum * scale + bias, rounded once each, in every type. */
static void test_requantize(void)
{
    enum { M = 5, N = 37, K = 5000 };
    static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
    int8_t *a = bytes(M * K, MOST), *b = bytes(N * K, ANY);
    float scale[N], bias[N], y[M * N];
    int32_t sums[M * N];
    gs_context *ctx = context(~0u, 2);
    for (int j = 0; j < N; j++) {
        scale[j] = (float)(draw() >> 8) * 0x1p-40f;
        bias[j] = (float)(draw() >> 8) * 0x1p-24f - 0.5f;
        memset(b + j * K, 127, (size_t)(j % 5) * 1000); /* some sums are beyond 2^24 */
    }
    bool beyond = false;
    for (size_t type = 0; type < GSI_COUNT(types); type++) {
        const gs_gemm_int8 g = {.m = M,
                                .n = N,
                                .k = K,
                                .a = a,
                                .b = b,
                                .sums = sums,
                                .y = y,
                                .dtype = types[type],
                                .scale = scale,
                                .bias = bias};
        CHECK(gs_gemm_int8_run(ctx, &g) == GS_OK);
        for (int i = 0; i < M * N; i++) {
            volatile float x = (float)sums[i];
            x = x * scale[i % N];
            x = x + bias[i % N];
            beyond |= abs(sums[i]) > 1 << 24 && (sums[i] & 1);
            const uint16_t *half = (const uint16_t *)y;
            if (types[type] == GS_F32)
                CHECK(y[i] == x);
            else
                CHECK(half[i] == (types[type] == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x)));
        }
    }
    CHECK(beyond); /* the conversion to float was rounded somewhere */
    gs_context_free(ctx);
    free(a);
    free(b);
}

static void test_bad(void)
{
    gs_context *ctx = context(~0u, 1);
    int8_t a[4] = {0};
    int32_t sums[4];
    float scale[2] = {1, 1}, y[4];
    const gs_gemm_int8 good = {.m = 2, .n = 2, .k = 2, .a = a, .b = a, .sums = sums};
    gs_gemm_int8 g = good;
#define BAD(change, status, words)                                          \
    do {                                                                    \
        g = good;                                                           \
        change;                                                             \
        CHECK(gs_gemm_int8_run(ctx, &g) == (status));                       \
        CHECK_MSG(strstr(gs_context_error(ctx)->text, words) != NULL, "%s", \
                  gs_context_error(ctx)->text);                             \
    } while (0)
    CHECK(gs_gemm_int8_run(NULL, &good) == GS_ENULL);
    CHECK(gs_gemm_int8_run(ctx, NULL) == GS_ENULL);
    CHECK(gs_gemm_int8_run(ctx, &good) == GS_OK);
    BAD(g.k = GS_INT8_K + 1, GS_ERANGE, "131072");
    BAD(g.a = NULL, GS_ENULL, "no data");
    BAD(g.sums = NULL, GS_ENULL, "no place");
    BAD(g.y = y, GS_ENULL, "no scales");
    BAD((g.y = y, g.scale = scale, g.dtype = GS_F64), GS_EDTYPE, "f32, f16 or bf16");
    BAD((g.bias = scale, g.bias_dtype = GS_F64), GS_EDTYPE, "bias");
    BAD(g.m = SIZE_MAX / 4, GS_ESIZE, "too large");
    const gs_im2col p = {
        .h = 2, .w = 2, .c = 1, .rows_h = 2, .rows_w = 1, .kh = 1, .kw = 1, .stride = 1};
    BAD(g.im2col = &p, GS_ESIZE, "im2col");
    gs_im2col zero = p;
    zero.stride = 0;
    BAD(g.im2col = &zero, GS_ERANGE, "im2col");
    gs_context_free(ctx);
}

TESTS({"sums", test_sums}, {"edges", test_edges}, {"im2col", test_im2col},
      {"requantize", test_requantize}, {"bad", test_bad})
