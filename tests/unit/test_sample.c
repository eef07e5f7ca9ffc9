/* Drawing tokens: what is refused, what runs out of memory, and the limits of top_k and top_p. */
#include "memory.h"
#include "test.h"

#include "gradscale/infer.h"

#include <math.h>
#include <stdbool.h>

enum { N = 5 };
static const float logits[N] = {0, 2, 1, 2, -3};

static void test_refused(void)
{
    static const struct {
        double temperature, top_p;
    } bad[] = {{-1, 0}, {(double)NAN, 0}, {2e6, 0}, {1, -0.5}, {1, 1.5}, {1, (double)NAN}};
    gs_context *ctx;
    int32_t token = 77;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const gs_sampling_config c = {
            .size = sizeof c, .temperature = bad[i].temperature, .top_p = bad[i].top_p};
        CHECK_MSG(gs_sample(&token, ctx, logits, N, &c, 0) == GS_ERANGE && token == 77, "%zu", i);
        CHECK(strstr(gs_context_error(ctx)->text, "top_p from 0 to 1"));
    }
    const gs_sampling_config c = {.size = sizeof c, .temperature = 1};
    CHECK(gs_sample(NULL, ctx, logits, N, &c, 0) == GS_ENULL);
    CHECK(gs_sample(&token, NULL, logits, N, &c, 0) == GS_ENULL);
    CHECK(gs_sample(&token, ctx, NULL, N, &c, 0) == GS_ENULL);
    CHECK(gs_sample(&token, ctx, logits, N, NULL, 0) == GS_ENULL);
    CHECK(token == 77);
    gs_context_free(ctx);
}

/* A share of 1 keeps all, the smallest only the first; so do the largest k and a k of 1. */
static void test_limits(void)
{
    static const struct {
        double top_p;
        size_t top_k;
        unsigned drawn; /* which of the tokens */
    } cases[] = {{1, 0, 31},        {0, 0, 31},        {5e-324, 0, 1u << 1},
                 {0.3, 0, 1u << 1}, {0.999999, 0, 31}, {0, 1, 1u << 1},
                 {0, 2, 0x0A},      {0, 99, 31},       {0.5, 3, 0x0A}};
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned drawn = 0;
        const gs_sampling_config c = {.size = sizeof c,
                                      .temperature = 2,
                                      .top_p = cases[i].top_p,
                                      .top_k = cases[i].top_k,
                                      .seed = 5};
        for (uint64_t k = 0; k < 3000; k++) {
            int32_t token = 0;
            CHECK(gs_sample(&token, ctx, logits, N, &c, k) == GS_OK);
            drawn |= 1u << token;
        }
        CHECK_MSG(drawn == cases[i].drawn, "case %zu: %x", i, drawn);
    }
    gs_context_free(ctx);
}

/* The n-th allocation fails: said so, and the context works on. */
static void test_memory(void)
{
    for (size_t n = 1000; n < 40000; n *= 3) {
        float *many = calloc(n, sizeof *many);
        for (size_t k = 1;; k++) {
            books b = {0};
            gs_context *ctx;
            const gs_config config = {.size = sizeof config, .alloc = books_hook(&b), .threads = 1};
            const gs_sampling_config c = {.size = sizeof c, .temperature = 1};
            CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
            const size_t before = b.calls;
            int32_t token = -1;
            b.fail_from = before + k;
            const gs_status status = gs_sample(&token, ctx, many, n, &c, 0);
            b.fail_from = 0;
            const bool struck = b.calls >= before + k;
            CHECK(status == GS_OK || (status == GS_ENOMEM && struck));
            CHECK((token >= 0) == (status == GS_OK));
            if (status != GS_OK) {
                CHECK(strstr(gs_context_error(ctx)->text, "no memory to draw"));
                CHECK(gs_sample(&token, ctx, many, n, &c, 0) == GS_OK && token >= 0);
            }
            gs_context_free(ctx);
            CHECK(b.blocks == 0 && !b.wrong);
            if (!struck)
                break;
        }
        free(many);
    }
}

TESTS({"refused", test_refused}, {"limits", test_limits}, {"memory", test_memory})
