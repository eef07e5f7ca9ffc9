/* Products of bf16 on a unit that multiplies pairs: the unit is what tests/support/pairs.h says;
 * the rule where it falls back to fma, from both sides of its limit; every way to pack; counts. */
#include "levels.h"
#include "pairs.h"
#include "test.h"

#include "kernel/fpenv.h"

#include <math.h>

static uint64_t state = 1;

static uint32_t draw(void)
{
    state = state * 6364136223846793005 + 1442695040888963407;
    return (uint32_t)(state >> 33 ^ state >> 21);
}

static size_t below(size_t n) { return draw() % n; }

/* ---- contexts with a unit: this CPU's, if it has one, and the emulated one ---- */

static gs_context *units[2];
static size_t unit_count;

static void open_units(void)
{
    const gs_config emulated = {.size = sizeof emulated, .threads = 2, .without_cpu = ~0u};
    if (unit_count)
        return;
    if (gemm_levels() & GS_CPU_AVX512BF16)
        CHECK(gs_context_create(&units[unit_count++], NULL, NULL) == GS_OK);
    CHECK(gs_context_create(&units[unit_count++], &emulated, NULL) == GS_OK);
    pairs_use(units[unit_count - 1]);
}

/* ---- elements ---- */

enum { FIELD_MAX = 254 };

static uint16_t element(size_t field) /* of either sign, any mantissa */
{
    return (uint16_t)((draw() & 0x807F) | field << 7);
}

/* Fields from `least` on, a few of them: sums cancel, and their last bits count. */
static void fill(uint16_t *x, size_t n, size_t least)
{
    for (size_t i = 0; i < n; i++) {
        const size_t field = least + below(3);
        x[i] = below(16) == 0 ? (uint16_t)(draw() & 0x8000)
                              : element(field < FIELD_MAX ? field : FIELD_MAX);
    }
}

/* ---- the unit ---- */

/* One panel of a times one of b, straight from the table. */
static void test_unit(void)
{
    open_units();
    const gsi_gemm_isa *const isa = units[0]->kernels.gemm[GS_BF16][GS_BF16];
    if (isa->mr == PAIRS_MR)
        SKIP("this CPU has no unit for bf16");
    _Alignas(GSI_ALIGN) static uint32_t a[14 * GSI_LINE], b[32 * GSI_LINE];
    static float sums[14 * 32];
    const gsi_prefetch prefetch[2] = {{.base = (uintptr_t)a}, {.base = (uintptr_t)b, .lines = 4}};
    CHECK(isa->mr * isa->nr == GSI_COUNT(sums));
    const uint64_t env = gsi_fpenv_enter();
    for (int turn = 0; turn < 2000; turn++) {
        const size_t span = 1 + below(FIELD_MAX + 1), k = 2 + below(31);
        for (size_t i = 0; i < GSI_COUNT(a) + GSI_COUNT(b); i++) {
            const uint32_t word =
                (uint32_t)element(below(span)) << 16 | element(below(turn % 8 ? span : 256));
            *(i < GSI_COUNT(a) ? &a[i] : &b[i - GSI_COUNT(a)]) = word;
        }
        isa->micro_rows(sums, NULL, (const float *)a, 0, (const float *)b, 14, 32, k / 2 * 2,
                        prefetch);
        for (size_t i = 0; i < 14; i++)
            for (size_t j = 0; j < 32; j++) {
                float want = 0;
                for (size_t w = 0; w < k / 2; w++)
                    want = pairs_unit(want, a[i * GSI_LINE + w], b[w * 32 + j]);
                const float got = sums[i * 32 + j];
                CHECK_MSG(gsi_bits(got) == gsi_bits(want) || (got != got && want != want),
                          "turn %d: %08x is not %08x", turn, gsi_bits(got), gsi_bits(want));
            }
    }
    gsi_fpenv_leave(env);
}

/* ---- products ---- */

static gs_unit_use use_of(const gs_context *ctx)
{
    gs_unit_use use;
    gs_context_unit_use(&use, ctx);
    return use;
}

/* Compares with the definition; the share of micro-panels that fell back. */
static double check(const gs_gemm *given, const char *what)
{
    static float want[300 * 300], got[300 * 300];
    gs_gemm g = *given;
    double share = -1;
    CHECK(g.m * g.n <= GSI_COUNT(want));
    g.c = (gs_matrix_out){.data = want, .stride = g.n};
    gsi_gemm_ref(&g);
    g.c.data = got;
    for (size_t i = 0; i < unit_count; i++) {
        const gs_unit_use before = use_of(units[i]);
        CHECK(gs_gemm_run(units[i], &g) == GS_OK);
        const gs_unit_use after = use_of(units[i]);
        CHECK_MSG(memcmp(want, got, g.m * g.n * sizeof *got) == 0,
                  "%s: %zu by %zu by %zu, unit %zu", what, g.m, g.n, g.k, i);
        CHECK_MSG(after.products > before.products, "%s: the unit is not used", what);
        const double now = (double)(after.fallbacks - before.fallbacks) /
                           (double)(after.products - before.products);
        CHECK_MSG(share < 0 || (share == 0) == (now == 0), "%s: units differ in falling back",
                  what);
        share = now;
    }
    return share;
}

enum { M_MAX = 60, N_MAX = 80, K_MAX = 2 * GSI_KC };
static uint16_t data_a[M_MAX * K_MAX], data_b[N_MAX * K_MAX];

/* m is more than what is skinny. */
static gs_gemm draw_product(void)
{
    gs_gemm g = {.m = 33 + below(M_MAX - 32), .n = 1 + below(N_MAX), .batch = 1};
    g.k = 1 + below(below(3) ? 70 : K_MAX);
    g.a = (gs_matrix){.data = data_a, .dtype = GS_BF16, .transposed = (int)below(2)};
    g.b = (gs_matrix){.data = data_b, .dtype = GS_BF16, .transposed = (int)below(2)};
    g.a.stride = g.a.transposed ? g.m : g.k;
    g.b.stride = g.b.transposed ? g.k : g.n;
    return g;
}

/* A sum of two products that is the least there is: from the limit on it is what fma makes of it,
 * below it is subnormal, and lost. */
static void test_edge(void)
{
    enum { ROWS = 33, FIELD_B = 70, LEAST_B = FIELD_B << 7 };
    open_units();
    for (uint16_t sum = GSI_PAIRS_LEAST - 3; sum < GSI_PAIRS_LEAST + 3; sum++) {
        const uint16_t least_a = (uint16_t)((sum - FIELD_B) << 7);
        const uint16_t a[2] = {least_a | 1, least_a | 0x8002}, b[2] = {LEAST_B | 1, LEAST_B};
        const uint32_t words[2] = {(uint32_t)a[0] << 16 | a[1], (uint32_t)b[0] << 16 | b[1]};
        const float want = gsi_fma(gs_bf16_to_f32(a[1]), gs_bf16_to_f32(b[1]),
                                   gs_bf16_to_f32(a[0]) * gs_bf16_to_f32(b[0]));
        const bool same = gsi_bits(pairs_unit(0, words[0], words[1])) == gsi_bits(want);
        CHECK_MSG(same == (sum >= GSI_PAIRS_LEAST), "fields add up to %d", sum);
        CHECK(gsi_pairs_fit(least_a, LEAST_B - 1u) == same);
        for (size_t i = 0; i < (size_t)2 * ROWS; i++)
            data_a[i] = a[i % 2];
        memcpy(data_b, b, sizeof b);
        gs_gemm g = {.m = ROWS, .n = 1, .k = 2, .batch = 1};
        g.a = (gs_matrix){.data = data_a, .dtype = GS_BF16, .stride = 2};
        g.b = (gs_matrix){.data = data_b, .dtype = GS_BF16, .stride = 1};
        CHECK((check(&g, "edge") == 0) == same);
    }
}

/* The sum of the least fields decides, and subnormals do whatever the sum. */
static void test_limit(void)
{
    static const struct {
        size_t sum;
        bool subnormal;
        double share;
    } cases[] = {{142, false, 0}, {143, false, 0}, {141, false, 1}, {140, false, 1},
                 {202, false, 0}, {300, false, 0}, {300, true, 1}};
    open_units();
    for (size_t c = 0; c < GSI_COUNT(cases); c++)
        for (int turn = 0; turn < 40; turn++) {
            const size_t sum = cases[c].sum, most = gsi_min_size(sum - 1, 250);
            const size_t of_a = sum - most + below(2 * most - sum + 1), of_b = sum - of_a;
            const gs_gemm g = draw_product();
            fill(data_a, g.m * g.k, of_a);
            fill(data_b, g.k * g.n, of_b);
            /* every panel of each gets the least */
            for (size_t i = 0; i < g.m * g.k && !cases[c].subnormal; i += 1 + below(2))
                data_a[i] = element(of_a);
            for (size_t i = 0; i < g.k * g.n && !cases[c].subnormal; i += 1 + below(2))
                data_b[i] = element(of_b);
            uint16_t *const x = turn % 2 ? data_a : data_b;
            const size_t n = (turn % 2 ? g.m : g.n) * g.k;
            for (size_t i = 0; i < n && cases[c].subnormal; i++)
                if (draw() % 2 || g.k < 20)
                    x[i] = (uint16_t)(1 + below(0x7F));
            const double share = check(&g, "limit");
            CHECK_MSG(share == cases[c].share, "fields add up to %zu: %g fall back", sum, share);
        }
}

/* A subnormal times infinity is infinity, not NaN; Inf and NaN alone need no fallback. */
static void test_infinite(void)
{
    static const uint16_t odd[] = {0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFFF};
    open_units();
    for (int turn = 0; turn < 60; turn++) {
        const gs_gemm g = draw_product();
        fill(data_a, g.m * g.k, 120);
        fill(data_b, g.k * g.n, 120);
        for (size_t i = 0; i < 1 + g.m * g.k / 300; i++)
            data_a[below(g.m * g.k)] = odd[below(GSI_COUNT(odd))];
        data_b[below(g.k * g.n)] = odd[below(GSI_COUNT(odd))];
        CHECK(check(&g, "Inf and NaN") == 0);
        data_b[below(g.k * g.n)] = 0x8001;
        CHECK(check(&g, "Inf times a subnormal") > 0);
    }
}

/* One element far down: only the panels that it is in fall back. The sum of an odd k may be -0. */
static void test_some_panels(void)
{
    open_units();
    for (int turn = 0; turn < 60; turn++) {
        gs_gemm g = draw_product();
        g.m = M_MAX;
        g.n = N_MAX;
        g.a.stride = g.a.transposed ? g.m : g.k;
        g.b.stride = g.b.transposed ? g.k : g.n;
        fill(data_a, g.m * g.k, 110);
        fill(data_b, g.k * g.n, 110);
        data_a[below(g.m * g.k)] = element(3);
        const double share = check(&g, "one small element");
        CHECK_MSG(share > 0 && share <= 0.5, "%g of the panels fall back", share);
        memset(data_a, 0, sizeof data_a); /* all zero: always fits */
        CHECK(check(&g, "zeros") == 0);
        for (size_t i = 0; i < g.m * g.k; i++)
            data_a[i] = (uint16_t)(0x8000 | 1 << 7);
        for (size_t i = 0; i < g.k * g.n; i++)
            data_b[i] = 1 << 7;
        CHECK(check(&g, "-0") == 1);
    }
}

/* Rows of a, or columns of b, with k along them or across; `each` of them, a block of k long, are
 * zeros, or one magnitude. */
static void fill_parts(uint16_t *x, size_t rows, size_t k, bool along, size_t each)
{
    static const size_t fields[] = {0, 60, 100};
    for (size_t r = 0; r < rows; r += each)
        for (size_t p = 0; p < k; p += GSI_KC) {
            const size_t least = fields[below(GSI_COUNT(fields))];
            for (size_t i = r; i < gsi_min_size(rows, r + each); i++)
                for (size_t q = p; q < gsi_min_size(k, p + GSI_KC); q++)
                    x[along ? i * k + q : q * rows + i] =
                        least ? element(least + below(3)) : (uint16_t)(draw() & 0x8000);
        }
}

/* Two panels are judged by their own least, in every block and chunk of k and every pass over a's
 * panels: where tiny ones meet and all else is zero, a sum that was flushed would show. */
static void test_own_least(void)
{
    enum { M = 600, N = 40, K = 3 * GSI_KC + 9 }; /* two threads make two passes of each tile */
    static uint16_t a[M * K], b[N * K];
    open_units();
    for (int turn = 0; turn < 2; turn++) {
        gs_gemm g = {.m = M, .n = N, .k = K, .batch = 1};
        g.a = (gs_matrix){.data = a, .dtype = GS_BF16, .stride = turn ? M : K, .transposed = turn};
        g.b = (gs_matrix){.data = b, .dtype = GS_BF16, .stride = turn ? K : N, .transposed = turn};
        fill_parts(a, M, K, !turn, 28);
        fill_parts(b, N, K, turn, 16);
        const double share = check(&g, "panels of their own");
        CHECK_MSG(share > 0 && share < 1, "%g of the panels fall back", share);
    }
}

/* im2col of either operand, and the groups of dgrad, with channels that make pairs of two taps; of
 * several blocks of k, too. */
static void test_convolution(void)
{
    static const size_t channels[] = {1, 2, 3, 5, 16, 17, 32, 33, 48};
    open_units();
    for (int turn = 0; turn < 60; turn++) {
        const size_t c = channels[below(GSI_COUNT(channels))];
        const size_t co = channels[below(GSI_COUNT(channels))];
        const gs_im2col p = {.h = 7,
                             .w = 6,
                             .c = c,
                             .rows_h = 7,
                             .rows_w = 6,
                             .kh = 3,
                             .kw = 3,
                             .stride = 1,
                             .pad = 1,
                             .dgrad = (int)below(2)};
        const size_t pixels = (turn % 20 ? 2 : 10) * 42, taps = 9 * c, low = below(2) ? 100 : 40;
        fill(data_a, GSI_COUNT(data_a), low);
        fill(data_b, GSI_COUNT(data_b), 90);
        gs_gemm g = {.m = pixels, .n = co, .k = taps, .batch = 1};
        g.a = (gs_matrix){.data = data_a, .dtype = GS_BF16, .im2col = &p};
        g.b = (gs_matrix){.data = data_b, .dtype = GS_BF16, .stride = taps, .transposed = 1};
        CHECK((check(&g, "im2col of a") > 0) == (low == 40));
        g.b = (gs_matrix){
            .data = data_b, .dtype = GS_BF16, .stride = 9 * co, .group = c, .group_stride = co};
        CHECK((check(&g, "groups of b") > 0) == (low == 40));
        g.m = 40; /* of pixels */
        g.n = taps;
        g.k = pixels;
        g.a = (gs_matrix){.data = data_b, .dtype = GS_BF16, .stride = 40, .transposed = 1};
        g.b = (gs_matrix){.data = data_a, .dtype = GS_BF16, .im2col = &p};
        CHECK((check(&g, "im2col of b") > 0) == (low == 40));
    }
}

/* Blocks of k over threads, other types beside bf16, and skinny products have nothing of it. */
static void test_ways(void)
{
    open_units();
    static uint16_t long_a[40 * 40 * GSI_KC], long_b[40 * 20 * GSI_KC];
    gs_gemm g = {.m = 40, .n = 20, .k = 40 * GSI_KC - 1, .batch = 1};
    fill(long_a, GSI_COUNT(long_a), 100);
    fill(long_b, GSI_COUNT(long_b), 100);
    long_b[GSI_COUNT(long_b) / 2] = 1;
    g.a = (gs_matrix){.data = long_a, .dtype = GS_BF16, .stride = 40, .transposed = 1};
    g.b = (gs_matrix){.data = long_b, .dtype = GS_BF16, .stride = 20};
    const double share = check(&g, "split k");
    CHECK(share > 0 && share < 0.1);
    for (size_t i = 0; i < unit_count; i++) {
        float c[40 * 20];
        gs_gemm other = g;
        other.c = (gs_matrix_out){.data = c, .stride = 20};
        other.k = 100;
        const gs_unit_use before = use_of(units[i]);
        other.b.dtype = GS_F16;
        CHECK(gs_gemm_run(units[i], &other) == GS_OK);
        other.b.dtype = GS_BF16;
        other.m = 1;
        if (units[i]->kernels.gemm[GS_F32][GS_F32]->skinny_mr)
            CHECK(gs_gemm_run(units[i], &other) == GS_OK);
        CHECK(use_of(units[i]).products == before.products);
    }
    gs_unit_use none = {1, 1};
    gs_context_unit_use(&none, NULL);
    CHECK(none.products == 0 && none.fallbacks == 0);
}

TESTS({"unit", test_unit}, {"edge", test_edge}, {"limit", test_limit}, {"infinite", test_infinite},
      {"some-panels", test_some_panels}, {"own-least", test_own_least},
      {"convolution", test_convolution}, {"ways", test_ways})
