/* Passes over strided views, over f64, and the two passes that do two things at once: unscale,
 * round. */
#include "test.h"

#include "gradscale/kernel.h"

#include <math.h>
#include <stdbool.h>

enum { ROWS = 700, COLS = 37, STRIDE = 101, N = ROWS * COLS };

static gs_context *ctx;

static void open_context(void)
{
    const gs_config config = {.size = sizeof config, .threads = 3};
    CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
}

static float value(size_t i) /* in all binades of f16 and below, of both signs */
{
    return ldexpf(1 + (float)(i % 97) / 97, (int)(i * 7 % 45) - 30) * (i % 3 ? 1 : -1);
}

static bool same(const gs_stats *a, const gs_stats *b)
{
    return a->elements == b->elements && a->inf == b->inf && a->nan == b->nan &&
           a->zero == b->zero && a->subnormal == b->subnormal && a->underflow == b->underflow &&
           a->amax == b->amax && a->bad_tensor == b->bad_tensor && a->bad_index == b->bad_index;
}

/* Two views side by side in one matrix, and what lies between them. */
typedef struct views {
    float matrix[ROWS * STRIDE], left[N], right[N];
} views;

static const gs_strided shape = {COLS, STRIDE};

static void fill_views(views *v)
{
    for (size_t i = 0; i < ROWS * STRIDE; i++)
        v->matrix[i] = 4711;
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < COLS; c++) {
            v->left[r * COLS + c] = v->matrix[r * STRIDE + c] = value(r * COLS + c);
            v->right[r * COLS + c] = v->matrix[r * STRIDE + 50 + c] = value(N + r * COLS + c);
        }
}

static bool views_are(const views *v, const float *left, const float *right)
{
    bool ok = true;
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < STRIDE && r * STRIDE + c < ROWS * STRIDE; c++) {
            const float x = v->matrix[r * STRIDE + c];
            const float want = c < COLS                   ? left[r * COLS + c]
                               : c >= 50 && c < 50 + COLS ? right[r * COLS + c - 50]
                                                          : 4711;
            ok &= memcmp(&x, &want, sizeof x) == 0;
        }
    return ok;
}

static void test_strided(void)
{
    static views v;
    gs_stats got, want, each[2], want_each[2];
    open_context();
    fill_views(&v);
    const gs_tensor list[] = {{v.matrix, N, GS_F32, "left", &shape},
                              {v.matrix + 50, N, GS_F32, "right", &shape}};
    const gs_tensor copy[] = {{v.left, N, GS_F32, "left", 0}, {v.right, N, GS_F32, "right", 0}};

    CHECK(gs_tensors_check(ctx, list, 2, &got) == GS_OK);
    CHECK(gs_tensors_check(ctx, copy, 2, &want) == GS_OK);
    CHECK(same(&got, &want));
    CHECK(gs_tensors_scan(ctx, list, 2, &got) == GS_OK);
    CHECK(gs_tensors_scan(ctx, copy, 2, &want) == GS_OK);
    CHECK(same(&got, &want) && fabs(got.sumsq - want.sumsq) <= 1e-6 * want.sumsq);
    CHECK(gs_tensors_count(ctx, list, 2, GS_F16, each) == GS_OK);
    CHECK(gs_tensors_count(ctx, copy, 2, GS_F16, want_each) == GS_OK);
    CHECK(same(&each[0], &want_each[0]) && same(&each[1], &want_each[1]));
    static gs_exponents a, b;
    CHECK(gs_tensors_exponents(ctx, &a, list, 2, NULL) == GS_OK);
    CHECK(gs_tensors_exponents(ctx, &b, copy, 2, NULL) == GS_OK);
    CHECK(memcmp(&a, &b, sizeof a) == 0);

    CHECK(gs_tensors_scale(ctx, list, 2, 3, &got) == GS_OK);
    CHECK(gs_tensors_scale(ctx, copy, 2, 3, &want) == GS_OK);
    CHECK(same(&got, &want) && views_are(&v, v.left, v.right));
    CHECK(gs_tensors_unscale(ctx, list, list, 2, 0.25f, &got) == GS_OK);
    CHECK(gs_tensors_unscale(ctx, copy, copy, 2, 0.25f, &want) == GS_OK);
    CHECK(same(&got, &want) && views_are(&v, v.left, v.right));
    CHECK(gs_tensors_axpy(ctx, list, copy, 2, 0.5f, NULL) == GS_OK);
    CHECK(gs_tensors_axpy(ctx, copy, copy, 2, 0.5f, NULL) == GS_OK);
    CHECK(views_are(&v, v.left, v.right));

    /* to and from another type; the random bits are those of the position */
    static uint16_t halves[2][N], more[2][N];
    const gs_tensor to[] = {{halves[0], N, GS_BF16, NULL, 0}, {halves[1], N, GS_BF16, NULL, 0}};
    const gs_tensor to2[] = {{more[0], N, GS_BF16, NULL, 0}, {more[1], N, GS_BF16, NULL, 0}};
    CHECK(gs_tensors_convert_stochastic(ctx, to, list, 2, 5, NULL) == GS_OK);
    CHECK(gs_tensors_convert_stochastic(ctx, to2, copy, 2, 5, NULL) == GS_OK);
    CHECK(memcmp(halves, more, sizeof halves) == 0);
    CHECK(gs_tensors_convert(ctx, list, to, 2, NULL) == GS_OK);
    CHECK(gs_tensors_convert(ctx, copy, to, 2, NULL) == GS_OK);
    CHECK(views_are(&v, v.left, v.right));

    v.matrix[STRIDE * 600 + 50 + 3] = NAN;
    CHECK(gs_tensors_unscale(ctx, list, list, 2, 2, &got) == GS_OK);
    CHECK(got.nan == 1 && got.bad_tensor == 1 && got.bad_index == 600 * COLS + 3);
    gs_context_free(ctx);
}

static void refused(const gs_tensor *dst, const gs_tensor *src, size_t n, gs_status status,
                    const char *words)
{
    CHECK_MSG(gs_tensors_scale_to(ctx, dst, src, n, 2, NULL) == status, "%s",
              gs_context_error(ctx)->text);
    CHECK_MSG(strstr(gs_context_error(ctx)->text, words) != NULL, "%s",
              gs_context_error(ctx)->text);
}

static void test_bad_views(void)
{
    static views v;
    open_context();
    fill_views(&v);
    const gs_strided none = {0, 5}, narrow = {38, 37}, odd = {36, STRIDE}, huge = {1, SIZE_MAX / 4},
                     other = {COLS, 2 * STRIDE};
    const gs_strided *const bad[] = {&none, &narrow, &odd};
    for (size_t i = 0; i < 3; i++) {
        const gs_tensor x = {v.matrix, N, GS_F32, "w", bad[i]};
        refused(&x, &x, 1, GS_ESIZE, "tensor w of 25900 elements cannot be a view");
    }
    const gs_tensor large = {v.matrix, N, GS_F32, "w", &huge};
    refused(&large, &large, 1, GS_ESIZE, "tensor w ");

    const gs_tensor close[] = {{v.matrix, N, GS_F32, "a", &shape},
                               {v.matrix + 36, N, GS_F32, "b", &shape}};
    refused(close, close, 2, GS_ERANGE, "tensors a and b overlap");
    const gs_tensor across[] = {{v.matrix, N, GS_F32, "a", &shape},
                                {v.matrix + STRIDE - 5, N / 2, GS_F32, "b", &other}};
    refused(across, across, 2, GS_ERANGE, "overlap");
    const gs_tensor inside[] = {{v.matrix, N, GS_F32, "a", &shape},
                                {v.matrix + STRIDE + COLS, STRIDE - COLS, GS_F32, "gap", 0}};
    CHECK(gs_tensors_scale(ctx, inside, 2, 1, NULL) == GS_OK);
    const gs_tensor too_wide[] = {{v.matrix, N, GS_F32, "a", &shape},
                                  {v.matrix + STRIDE + COLS, STRIDE, GS_F32, "b", 0}};
    refused(too_wide, too_wide, 2, GS_ERANGE, "overlap");
    /* a view between two others, which only the third meets */
    const gs_tensor three[] = {{v.matrix, N, GS_F32, "a", &shape},
                               {v.matrix + 50, COLS, GS_F32, "b", &shape},
                               {v.matrix + 30 * STRIDE + 1, COLS, GS_F32, "c", &shape}};
    refused(three, three, 3, GS_ERANGE, "tensors a and c overlap");
    const gs_tensor moved = {v.matrix + 1, N, GS_F32, "w", &shape},
                    from = {v.matrix, N, GS_F32, "w", &shape};
    refused(&moved, &from, 1, GS_ERANGE, "tensor w overlaps its destination");
    /* beside a view too, a source may begin where a destination ends */
    float row[40];
    memcpy(row + 20, v.matrix + STRIDE, 20 * sizeof *row);
    const gs_tensor to[] = {{v.matrix, N, GS_F32, "a", &shape}, {row, 20, GS_F32, "b", 0}};
    const gs_tensor next[] = {{v.matrix, N, GS_F32, "a", &shape}, {row + 20, 20, GS_F32, "b", 0}};
    CHECK(gs_tensors_scale_to(ctx, to, next, 2, 1, NULL) == GS_OK &&
          memcmp(row, row + 20, 20 * sizeof *row) == 0);
    gs_context_free(ctx);
}

static void test_f64(void)
{
    enum { LONG = 70001 };
    static double x[LONG], y[LONG];
    gs_stats stats;
    open_context();
    double sum = 0, amax = 0;
    for (size_t i = 0; i < LONG; i++) {
        x[i] = (double)value(i) * 1e-3;
        sum += x[i] * x[i];
        amax = fmax(amax, fabs(x[i]));
    }
    const gs_tensor list = {x, LONG, GS_F64, "x", 0}, to = {y, LONG, GS_F64, "y", 0};
    CHECK(gs_tensors_check(ctx, &list, 1, &stats) == GS_OK);
    CHECK((double)stats.amax >= amax && (double)stats.amax <= amax * (1 + 0x1p-22));
    CHECK(gs_tensors_scan(ctx, &list, 1, &stats) == GS_OK);
    CHECK(fabs(stats.sumsq - sum) <= 1e-12 * sum && stats.elements == LONG);
    CHECK(gs_tensors_unscale(ctx, &to, &list, 1, 0.5f, &stats) == GS_OK);
    CHECK(fabs(stats.sumsq - sum) <= 1e-12 * sum);
    bool halved = true;
    for (size_t i = 0; i < LONG; i++)
        halved &= y[i] == x[i] * 0.5;
    CHECK(halved);
    x[66000] = (double)INFINITY;
    x[66001] = (double)NAN;
    CHECK(gs_tensors_scale(ctx, &list, 1, 2, &stats) == GS_OK);
    CHECK(stats.inf == 1 && stats.nan == 1 && stats.bad_index == 66000);
    CHECK(gs_tensors_unscale(ctx, &list, &list, 1, 0.5f, &stats) == GS_OK);
    CHECK(stats.inf == 1 && stats.nan == 1 && stats.bad_index == 66000 && isinf(stats.sumsq));
    x[66000] = 1e300; /* finite, and beyond f32 */
    x[66001] = 0;
    CHECK(gs_tensors_check(ctx, &list, 1, &stats) == GS_OK);
    CHECK(stats.inf == 0 && stats.nan == 0 && stats.amax == 0x1.fffffep+127f);

    const gs_tensor f32 = {y, LONG, GS_F32, "y", 0};
    CHECK(gs_tensors_count(ctx, &list, 1, GS_F16, &stats) == GS_EDTYPE);
    CHECK(gs_tensors_convert(ctx, &f32, &list, 1, NULL) == GS_EDTYPE);
    CHECK(gs_tensors_scale_to(ctx, &f32, &list, 1, 1, NULL) == GS_EDTYPE);
    CHECK(gs_tensors_axpy(ctx, &f32, &list, 1, 1, NULL) == GS_EDTYPE);
    CHECK(gs_tensors_round(ctx, &list, 1, GS_F16, &stats) == GS_EDTYPE);
    gs_context_free(ctx);
}

/* One pass gives the bits of two. */
static void test_unscale(void)
{
    enum { LONG = 200003 };
    static uint32_t a[LONG], b[LONG];
    static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
    open_context();
    for (int t = 0; t < 3; t++)
        for (int kind = 0; kind < 4; kind++) {
            const size_t size = types[t] == GS_F32 ? 4 : 2;
            for (size_t i = 0; i < LONG; i++) {
                const float x = kind == 3 ? ldexpf(value(i), 60) : value(i);
                const uint32_t half = types[t] == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
                if (size == 4)
                    memcpy(&a[i], &x, 4);
                else
                    memcpy((char *)a + 2 * i, &half, 2); /* little-endian */
            }
            if (kind == 1)
                memset((char *)a + size * 77777, 0xFF, size); /* NaN */
            if (kind == 2)
                memset(a, 0, sizeof a);
            memcpy(b, a, sizeof a);
            const gs_tensor one = {a, LONG, types[t], "a", 0}, two = {b, LONG, types[t], "b", 0};
            gs_stats got, want;
            CHECK(gs_tensors_unscale(ctx, &one, &one, 1, 0x1p-3f, &got) == GS_OK);
            CHECK(gs_tensors_scan(ctx, &two, 1, &want) == GS_OK);
            CHECK(gs_tensors_scale(ctx, &two, 1, 0x1p-3f, NULL) == GS_OK);
            CHECK(same(&got, &want) && memcmp(&got.sumsq, &want.sumsq, sizeof got.sumsq) == 0);
            CHECK(memcmp(a, b, sizeof a) == 0);
        }
    gs_context_free(ctx);
}

static void test_round(void)
{
    enum { LONG = 70001 };
    static float x[LONG], before[LONG];
    gs_stats got, want;
    open_context();
    for (int h = 0; h < 2; h++) {
        const gs_dtype half = h ? GS_BF16 : GS_F16;
        const gs_tensor list = {x, LONG, GS_F32, "x", 0};
        for (size_t i = 0; i < LONG; i++)
            before[i] = x[i] = value(i);
        x[5] = before[5] = 0;
        x[9] = before[9] = 1e6f; /* overflows f16 */
        x[60000] = before[60000] = 3e38f;
        CHECK(gs_tensors_count(ctx, &list, 1, half, &want) == GS_OK);
        CHECK(gs_tensors_round(ctx, &list, 1, half, &got) == GS_OK);
        CHECK(got.zero == want.zero && got.underflow == want.underflow &&
              got.subnormal == want.subnormal);
        CHECK(got.underflow > 0 || half == GS_BF16);
        CHECK(got.inf == (half == GS_F16 ? 2 : 0) && got.nan == 0);
        CHECK(got.bad_index == (half == GS_F16 ? 9 : GS_NONE));
        bool ok = true;
        for (size_t i = 0; i < LONG; i++) {
            const float r = h ? gs_bf16_to_f32(gs_f32_to_bf16(before[i]))
                              : gs_f16_to_f32(gs_f32_to_f16(before[i]));
            ok &= memcmp(&r, &x[i], sizeof r) == 0;
        }
        CHECK(ok);
    }
    const gs_tensor f16 = {x, 8, GS_F16, "x", 0}, f32 = {x, 8, GS_F32, "x", 0};
    CHECK(gs_tensors_round(ctx, &f16, 1, GS_F16, &got) == GS_EDTYPE);
    CHECK(gs_tensors_round(ctx, &f32, 1, GS_F32, &got) == GS_EDTYPE);
    CHECK(gs_tensors_round(ctx, &f32, 1, GS_F16, NULL) == GS_OK);
    gs_context_free(ctx);
}

TESTS({"strided", test_strided}, {"bad_views", test_bad_views}, {"f64", test_f64},
      {"unscale", test_unscale}, {"round", test_round})
