/* What the passes over lists of tensors say to bad input: nothing is read, nothing written. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "passes.h"
#include "test.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

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
    return gs_tensors_exponents(ctx, &untouched_sum, list, n, &untouched);
}

static list_call *const calls[] = {call_check,      call_scan,     call_count,
                                   call_scale,      call_scale_to, call_convert,
                                   call_stochastic, call_axpy,     call_exponents};
enum { CALLS = sizeof calls / sizeof calls[0] };

/* The call fails with this status and an error message that has these words in it, and the first
 * tensor, good but out of reach, was not touched. */
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
    CHECK(gs_tensors_exponents(ctx, NULL, &src, 1, NULL) == GS_ENULL);
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

TESTS({"bad_tensors", test_bad_tensors}, {"bad_pairs", test_bad_pairs},
      {"overlaps_in_a_list", test_overlaps_in_a_list}, {"nothing_to_do", test_nothing_to_do})
