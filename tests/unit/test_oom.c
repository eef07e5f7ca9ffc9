/* Every allocation fails once: the call says NOMEM, nothing leaks, and the context works on. */
#include "memory.h"
#include "test.h"

#include "gradscale/exponents.h"

/* Enough chunks that a pass needs more than the first block of an arena. */
enum { TENSORS = 2000, COUNT = 16 };
static float *data;
static gs_tensor lists[2][TENSORS]; /* destinations, sources */

static void make_lists(void)
{
    data = calloc((size_t)2 * TENSORS * COUNT, sizeof *data);
    for (size_t k = 0; k < 2; k++)
        for (size_t t = 0; t < TENSORS; t++)
            lists[k][t] =
                (gs_tensor){data + (k * TENSORS + t) * COUNT, COUNT, GS_F32, "gradient", 0};
}

static gs_stats stats, each[TENSORS];
static gs_exponents exponents;

static gs_status run_check(gs_context *c) { return gs_tensors_check(c, lists[1], TENSORS, &stats); }
static gs_status run_scan(gs_context *c) { return gs_tensors_scan(c, lists[1], TENSORS, &stats); }
static gs_status run_count(gs_context *c)
{
    return gs_tensors_count(c, lists[1], TENSORS, GS_F16, each);
}
static gs_status run_scale(gs_context *c)
{
    return gs_tensors_scale(c, lists[0], TENSORS, 2, &stats);
}
static gs_status run_scale_to(gs_context *c)
{
    return gs_tensors_scale_to(c, lists[0], lists[1], TENSORS, 2, &stats);
}
static gs_status run_convert(gs_context *c)
{
    return gs_tensors_convert(c, lists[0], lists[1], TENSORS, &stats);
}
static gs_status run_stochastic(gs_context *c)
{
    return gs_tensors_convert_stochastic(c, lists[0], lists[1], TENSORS, 1, &stats);
}
static gs_status run_axpy(gs_context *c)
{
    return gs_tensors_axpy(c, lists[0], lists[1], TENSORS, 2, &stats);
}
static gs_status run_exponents(gs_context *c)
{
    return gs_tensors_exponents(c, &exponents, lists[1], TENSORS, &stats);
}

static gs_status (*const passes[])(gs_context *) = {run_check,      run_scan,     run_count,
                                                    run_scale,      run_scale_to, run_convert,
                                                    run_stochastic, run_axpy,     run_exponents};
enum { PASSES = sizeof passes / sizeof passes[0] };

/* Fails call k and no other, or k and all after it. */
static void fail_in_turn(gs_status (*pass)(gs_context *), int for_good)
{
    int failed = 0;
    for (size_t k = 1;; k++) {
        books b = {0};
        gs_context *ctx = NULL;
        const gs_config config = {.size = sizeof config, .alloc = books_hook(&b), .threads = 2};
        *(for_good ? &b.fail_from : &b.fail_at) = k;
        gs_status status = gs_context_create(&ctx, &config, NULL);
        CHECK((status == GS_OK) == (ctx != NULL));
        if (ctx && pass) {
            const gs_stats before = stats;
            status = pass(ctx);
            if (status != GS_OK) {
                CHECK(gs_context_error(ctx)->status == GS_ENOMEM);
                CHECK(strstr(gs_context_error(ctx)->text, "memory"));
                CHECK(memcmp(&before, &stats, sizeof stats) == 0);
                b.fail_at = b.fail_from = 0;
                CHECK(pass(ctx) == GS_OK); /* the context is as good as before */
            }
        }
        gs_context_free(ctx);
        CHECK(b.blocks == 0 && b.bytes == 0 && !b.wrong);
        CHECK(status == GS_OK || status == GS_ENOMEM);
        failed += status != GS_OK;
        if (b.calls < k || (for_good && status == GS_OK))
            break; /* there was no call k */
        CHECK_MSG(k < 1000, "it never succeeds");
        if (k == 1000)
            break;
    }
    CHECK_MSG(failed >= (pass ? 3 : 2), "only %d allocations failed", failed);
}

static void test_create(void)
{
    fail_in_turn(NULL, 0);
    fail_in_turn(NULL, 1);
}

static void test_passes(void)
{
    make_lists();
    for (int i = 0; i < PASSES; i++)
        fail_in_turn(passes[i], 1);
    free(data);
}

/* From the third identical call on, no pass asks for memory. */
static void test_steady(void)
{
    make_lists();
    for (int i = 0; i < PASSES; i++) {
        books b = {0};
        gs_context *ctx;
        const gs_config config = {.size = sizeof config, .alloc = books_hook(&b), .threads = 2};
        CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
        for (int warm = 0; warm < 2; warm++)
            CHECK(passes[i](ctx) == GS_OK);
        const size_t calls = b.calls;
        for (int again = 0; again < 20; again++)
            CHECK(passes[i](ctx) == GS_OK);
        CHECK(b.calls == calls);
        gs_context_free(ctx);
        CHECK(b.blocks == 0 && !b.wrong);
    }
    free(data);
}

TESTS({"create", test_create}, {"passes", test_passes}, {"steady", test_steady})
