/* Products that cannot be made: memory that ends, steady calls that ask for none, and bad input,
 * each named in an error message with nothing touched. */
#include "memory.h"
#include "test.h"

#include "gradscale/gemm.h"

#include <math.h>
#include <stdbool.h>

/* ---- memory ---- */

static gs_status run_with(books *p, gs_context **out)
{
    static float a[70 * 800], b[800 * 90], c[70 * 90];
    const gs_config config = {.size = sizeof config, .alloc = books_hook(p), .threads = 2};
    const gs_gemm g = {.m = 70,
                       .n = 90,
                       .k = 800,
                       .batch = 1,
                       .a = {.data = a, .stride = 800},
                       .b = {.data = b, .stride = 90},
                       .c = {.data = c, .stride = 90}};
    gs_status status = *out ? GS_OK : gs_context_create(out, &config, NULL);
    return status == GS_OK ? gs_gemm_run(*out, &g) : status;
}

static void test_memory(void)
{
    books p = {0};
    gs_context *ctx = NULL;
    for (int i = 0; i < 3; i++)
        CHECK(run_with(&p, &ctx) == GS_OK);
    const size_t warm = p.calls;
    for (int i = 0; i < 20; i++)
        CHECK(run_with(&p, &ctx) == GS_OK);
    CHECK(p.calls == warm);
    gs_context_free(ctx);
    CHECK(p.blocks == 0 && !p.wrong);

    for (size_t k = 1;; k++) {
        books q = {.fail_at = k};
        ctx = NULL;
        const gs_status status = run_with(&q, &ctx);
        const bool failed = q.calls >= k;
        CHECK(status == (failed ? GS_ENOMEM : GS_OK));
        CHECK(!failed || run_with(&q, &ctx) == GS_OK); /* and nothing is broken by it */
        gs_context_free(ctx);
        CHECK(q.blocks == 0 && !q.wrong);
        if (!failed)
            break;
    }
}

/* ---- bad input ---- */

static float room[4096];
static gs_context *ctx;

static gs_gemm good(void)
{
    return (gs_gemm){.m = 4,
                     .n = 5,
                     .k = 6,
                     .batch = 1,
                     .a = {.data = room, .stride = 6},
                     .b = {.data = room + 100, .stride = 5},
                     .c = {.data = room + 200, .stride = 5}};
}

static void refused(const gs_gemm *g, gs_status status, const char *word)
{
    float before[sizeof room / sizeof room[0]];
    memcpy(before, room, sizeof room);
    const gs_status got = gs_gemm_run(ctx, g);
    const char *text = gs_context_error(ctx)->text;
    CHECK_MSG(got == status, "%s, not %s: %s", gs_status_name(got), gs_status_name(status), text);
    CHECK_MSG(strstr(text, word), "\"%s\" does not say \"%s\"", text, word);
    CHECK(memcmp(before, room, sizeof room) == 0);
}

static void test_refusals(void)
{
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    const gs_im2col im2col = {
        .h = 4, .w = 4, .c = 2, .rows_h = 2, .rows_w = 2, .kh = 1, .kw = 3, .stride = 1};
    gs_im2col flat = im2col;
    flat.stride = 0;
    gs_gemm g = good();
    CHECK(gs_gemm_run(ctx, &g) == GS_OK);
    CHECK(gs_gemm_run(NULL, &g) == GS_ENULL);
    refused(NULL, GS_ENULL, "no product");
#define REFUSE(change, status, word) (g = good(), (change), refused(&g, status, word))
    REFUSE(g.batch = 0, GS_ERANGE, "batch");
    REFUSE(g.beta = NAN, GS_ERANGE, "beta");
    REFUSE(g.a.dtype = GS_F64, GS_EDTYPE, "a has data type f64");
    REFUSE(g.b.dtype = (gs_dtype)77, GS_EDTYPE, "b has an unknown");
    REFUSE(g.c.data = NULL, GS_ENULL, "c has no data");
    REFUSE(g.a.data = (char *)room + 2, GS_EALIGN, "a lies");
    REFUSE(g.a.stride = 5, GS_ESIZE, "a has rows of 6");
    REFUSE((g.b.transposed = 1), GS_ESIZE, "b has rows of 6");
    REFUSE(g.c.stride = 4, GS_ESIZE, "c has rows of 5");
    REFUSE(g.m = SIZE_MAX / 2, GS_ESIZE, "c is too large");
    REFUSE(g.k = SIZE_MAX / 2, GS_ESIZE, "stride");
    REFUSE((g.k = SIZE_MAX / 16, g.a.stride = g.k), GS_ESIZE, "a is too large");
    REFUSE(g.a.group = 2, GS_ERANGE, "a cannot be grouped");
    REFUSE((g.b.group = 2, g.b.transposed = 1), GS_ERANGE, "b is grouped");
    REFUSE((g.bias = room, g.bias_dtype = GS_F64), GS_EDTYPE, "bias");
    REFUSE((g.bias = (char *)room + 1), GS_EALIGN, "bias");
    REFUSE((g.batch = 3, g.c.batch_stride = 4), GS_ERANGE, "overlap");
    REFUSE((g.batch = 3, g.c.batch_stride = 0), GS_ERANGE, "overlap");
    REFUSE((g.batch = SIZE_MAX / 8, g.c.batch_stride = 20), GS_ESIZE, "too large");
    REFUSE((g.a.im2col = &im2col, g.k = 7), GS_ESIZE, "a is 4 by 7");
    REFUSE((g.a.im2col = &im2col, g.m = 5), GS_ESIZE, "a is 5 by 6");
    REFUSE((g.a.im2col = &flat), GS_ERANGE, "side");
    REFUSE((g.a.im2col = &im2col, g.a.transposed = 1), GS_ERANGE, "transposed");
#undef REFUSE
    g = good();
    g.a.im2col = &im2col;
    CHECK(gs_gemm_run(ctx, &g) == GS_OK);
    gs_context_free(ctx);
}

TESTS({"memory", test_memory}, {"refusals", test_refusals})
