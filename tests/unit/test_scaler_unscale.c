/* gs_step_unscale with several lists, and reports in other units or as plain sums. */
#include "scaler_steps.h"

typedef struct rig {
    gs_context *ctx;
    gs_scaler scaler;
    gs_step step;
} rig;

static rig begin(const char *spec, const char *set)
{
    rig r;
    CHECK(gs_context_create(&r.ctx, NULL, NULL) == GS_OK);
    r.scaler = make(spec, set);
    gs_step_begin(&r.step, &r.scaler);
    return r;
}

/* ---- several lists ---- */

static void test_lists_add_up(void)
{
    rig r = begin("static:64", "");
    float a[3] = {64, 128, -64}, b[2] = {640, INFINITY};
    uint16_t c[2] = {gs_f32_to_f16(192), gs_f32_to_f16(0)};
    const gs_tensor one[] = {{a, 2, GS_F32, "a", 0}, {a + 2, 1, GS_F32, "a'", 0}};
    const gs_tensor two[] = {{b, 2, GS_F32, "b", 0}}, three[] = {{c, 2, GS_F16, "c", 0}};
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, one, 2) == GS_OK);
    CHECK(r.step.stats.elements == 3 && r.step.stats.amax == 128);
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, three, 1) == GS_OK);
    CHECK(a[0] == 1 && a[1] == 2 && a[2] == -1 && gs_f16_to_f32(c[0]) == 3);
    CHECK(r.step.stats.elements == 5 && r.step.stats.amax == 192);
    CHECK(r.step.stats.sumsq == 64 * 64 * 2 + 128 * 128 + 192 * 192);
    CHECK(gs_step_decide(&r.step, &r.scaler).action == GS_APPLY);
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, two, 1) == GS_OK);
    CHECK(b[0] == 10 && isinf(b[1]) && r.step.stats.inf == 1);
    CHECK(r.step.stats.bad_tensor == 3 && r.step.stats.bad_index == 1); /* numbered through */
    /* each of them once more: nothing */
    const gs_step before = r.step;
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, two, 1) == GS_OK &&
          gs_step_unscale(&r.step, r.ctx, NULL, one, 2) == GS_OK &&
          gs_step_unscale(&r.step, r.ctx, NULL, three, 1) == GS_OK);
    CHECK(memcmp(&before, &r.step, sizeof before) == 0 && a[0] == 1 && b[0] == 10);
    CHECK(gs_step_end(&r.step, &r.scaler).reason == GS_REASON_INF);
    gs_context_free(r.ctx);
}

static void refused(rig *r, const gs_tensor *to, const gs_tensor *list, size_t n, gs_status status,
                    const char *message)
{
    const gs_step before = r->step;
    CHECK(gs_step_unscale(&r->step, r->ctx, to, list, n) == status);
    CHECK_MSG(strcmp(gs_context_error(r->ctx)->text, message) == 0, "%s",
              gs_context_error(r->ctx)->text);
    CHECK(memcmp(&before, &r->step, sizeof before) == 0);
}

static void test_overlaps(void)
{
    float g[64], f32[64];
    for (int i = 0; i < 64; i++)
        g[i] = (float)i;
    rig r = begin("static:2", "");
    const gs_tensor all[] = {{g, 16, GS_F32, "w0", 0}, {g + 16, 16, GS_F32, "w1", 0}};
    const gs_tensor again[] = {{g + 32, 8, GS_F32, "x", 0}, {g + 16, 16, GS_F32, "w1", 0}};
    const gs_tensor turned[] = {all[1], all[0]};
    const gs_tensor view[] = {{g + 31, 2, GS_F32, NULL, 0}};
    const gs_tensor rest[] = {{g + 32, 8, GS_F32, "x", 0}};
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, all, 2) == GS_OK && r.step.given.spans == 1);
    refused(&r, NULL, again, 2, GS_ESTATE,
            "tensor w1 overlaps what another list of this step has unscaled");
    refused(&r, NULL, turned, 2, GS_ESTATE,
            "tensor w1 overlaps what another list of this step has unscaled");
    refused(&r, NULL, view, 1, GS_ESTATE,
            "tensor 0 overlaps what another list of this step has unscaled");
    CHECK(g[16] == 8 && g[31] == 15.5f && g[32] == 32);
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, rest, 1) == GS_OK && g[32] == 16);

    /* out of place: neither the sources nor the destinations are unscaled once more */
    gs_step_begin(&r.step, &r.scaler);
    const gs_tensor to[] = {{f32, 16, GS_F32, "f0", 0}, {f32 + 32, 16, GS_F32, "f1", 0}};
    CHECK(gs_step_unscale(&r.step, r.ctx, to, all, 2) == GS_OK && f32[5] == g[5] / 2);
    CHECK(gs_step_unscale(&r.step, r.ctx, to, all, 2) == GS_OK && r.step.stats.elements == 32);
    refused(&r, NULL, all, 2, GS_ESTATE,
            "tensor w0 overlaps what another list of this step has unscaled");
    refused(&r, NULL, to + 1, 1, GS_ESTATE,
            "tensor f1 overlaps what another list of this step has unscaled");
    /* a buffer may take the results of several lists */
    CHECK(gs_step_unscale(&r.step, r.ctx, (gs_tensor[]){{f32, 8, GS_F32, "f0", 0}}, rest, 1) ==
          GS_OK);
    CHECK(f32[0] == 8);

    /* and a list that is refused by the pass leaves no trace */
    gs_step_begin(&r.step, &r.scaler);
    refused(&r, NULL, (gs_tensor[]){{NULL, 4, GS_F32, "n", 0}}, 1, GS_ENULL,
            "tensor n has 4 elements but no data");
    refused(&r, (gs_tensor[]){{f32, 9, GS_F32, "f", 0}}, rest, 1, GS_ESIZE,
            "tensor x has 8 elements and its destination 9");
    CHECK(g[32] == 16 && gs_step_unscale(&r.step, NULL, NULL, rest, 1) == GS_ENULL);
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, rest, 1) == GS_OK && g[32] == 8);
    gs_context_free(r.ctx);
}

/* Rows of a view are memory as any other; what lies between them is not given. */
static void test_views_overlap(void)
{
    float m[8][8];
    for (int i = 0; i < 64; i++)
        m[i / 8][i % 8] = 2;
    rig r = begin("static:2", "");
    const gs_strided three = {3, 8}, one = {1, 8};
    const gs_tensor left[] = {{&m[0][0], 24, GS_F32, "left", &three}};
    const gs_tensor middle[] = {{&m[0][3], 24, GS_F32, "middle", &three}};
    const gs_tensor across[] = {{&m[0][2], 24, GS_F32, "across", &three}};
    const gs_tensor column[] = {{&m[4][5], 4, GS_F32, "column", &one}};
    const gs_tensor row[] = {{&m[7][0], 8, GS_F32, "row", 0}};
    const gs_tensor last[] = {{&m[0][6], 8, GS_F32, "last", &one}};
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, left, 1) == GS_OK);
    refused(&r, NULL, across, 1, GS_ESTATE,
            "tensor across overlaps what another list of this step has unscaled");
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, middle, 1) == GS_OK);
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, left, 1) == GS_OK); /* a repeat */
    CHECK(r.step.given.spans == 8 && r.step.stats.elements == 48);  /* side by side */
    refused(&r, NULL, column, 1, GS_ESTATE,
            "tensor column overlaps what another list of this step has unscaled");
    refused(&r, NULL, row, 1, GS_ESTATE,
            "tensor row overlaps what another list of this step has unscaled");
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, last, 1) == GS_OK);
    for (int i = 0; i < 64; i++)
        CHECK(m[i / 8][i % 8] == (i % 8 == 7 ? 2 : 1));
    gs_context_free(r.ctx);
}

/* Whoever forgets to begin the next step would leave its gradients as they are, or take them for
 * those of the last one. */
static void test_after_the_end(void)
{
    rig r = begin("static:2", "");
    float g[2] = {2, 2}, h[2] = {2, 2};
    const gs_tensor list[] = {{g, 2, GS_F32, "g", 0}}, other[] = {{h, 2, GS_F32, "h", 0}};
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, list, 1) == GS_OK && g[0] == 1);
    CHECK(gs_step_decide(&r.step, &r.scaler).action == GS_APPLY);
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, other, 1) == GS_OK && h[0] == 1);
    CHECK(gs_step_end(&r.step, &r.scaler).action == GS_APPLY);
    g[0] = INFINITY;
    refused(&r, NULL, list, 1, GS_ESTATE, "the step has ended: begin another");
    refused(&r, NULL, other, 1, GS_ESTATE, "the step has ended: begin another");
    CHECK(h[0] == 1);
    gs_step_begin(&r.step, &r.scaler);
    gs_step_abandon(&r.step, &r.scaler);
    refused(&r, NULL, other, 1, GS_ESTATE, "the step has ended: begin another");
    gs_context_free(r.ctx);
}

/* Parameter groups lie between each other: not refused, however many spans there are. What is
 * large is still known. */
static void test_interleaved_groups(void)
{
    enum { GROUPS = GS_STEP_LISTS, EACH = 20, WIDE = 64 };
    static float g[GROUPS * EACH][8], wide[WIDE];
    gs_tensor list[EACH], large[] = {{wide, WIDE, GS_F32, "wide", 0}};
    rig r = begin("static:2", "");
    for (size_t i = 0; i < sizeof g / sizeof g[0]; i++)
        for (int k = 0; k < 8; k++)
            g[i][k] = 2;
    for (size_t i = 0; i < WIDE; i++)
        wide[i] = 2;
    for (size_t group = 0; group < GROUPS - 1; group++) {
        for (size_t i = 0; i < EACH; i++) /* with gaps */
            list[i] = (gs_tensor){g[i * GROUPS + group], 7, GS_F32, NULL, 0};
        CHECK(gs_step_unscale(&r.step, r.ctx, NULL, list, EACH) == GS_OK);
    }
    CHECK(r.step.given.spans == GS_STEP_SPANS);
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, large, 1) == GS_OK && wide[0] == 1);
    CHECK(r.step.stats.elements == (GROUPS - 1) * EACH * 7 + WIDE);
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, list, EACH) == GS_OK); /* a repeat, still */
    for (size_t i = 0; i < EACH; i++)
        list[i] = (gs_tensor){g[i * GROUPS + GROUPS - 1], 8, GS_F32, NULL, 0};
    refused(&r, NULL, list, EACH, GS_ESTATE,
            "a step can unscale at most 16 lists: put the tensors into fewer");
    gs_step_begin(&r.step, &r.scaler);
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, list, EACH) == GS_OK);
    CHECK(r.step.given.spans == GS_STEP_SPANS); /* full: the largest takes the place of another */
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, large, 1) == GS_OK);
    large[0].count = 3;
    refused(&r, NULL, large, 1, GS_ESTATE,
            "tensor wide overlaps what another list of this step has unscaled");
    gs_context_free(r.ctx);
}

/* What lies side by side is one span, from whichever end it is given. */
static void test_spans_that_join(void)
{
    enum { ALL = 2 * GS_STEP_SPANS };
    for (int down = 0; down < 2; down++) {
        float g[ALL];
        gs_tensor list[ALL];
        rig r = begin("static:2", "");
        for (size_t i = 0; i < ALL; i++) {
            g[i] = 2;
            list[i] = (gs_tensor){&g[down ? ALL - 1 - i : i], 1, GS_F32, "g", 0};
        }
        CHECK(gs_step_unscale(&r.step, r.ctx, NULL, list, ALL) == GS_OK);
        CHECK(r.step.given.spans == 1);
        refused(&r, NULL, &list[ALL - 1], 1, GS_ESTATE,
                "tensor g overlaps what another list of this step has unscaled");
        gs_context_free(r.ctx);
    }
}

/* ---- other units ---- */

/* One pass of one's own: unscale with statistics, then report them. */
static void test_true_units(void)
{
    for (int through = 0; through < 2; through++) {
        rig r = begin("headroom", "");
        for (int i = 0; i < 40; i++) {
            gs_step_begin(&r.step, &r.scaler);
            float g[2] = {0.5f * (float)r.step.scale, -0.25f * (float)r.step.scale};
            const gs_tensor list[] = {{g, 2, GS_F32, "g", 0}};
            gs_stats stats;
            if (through) {
                CHECK(gs_step_unscale(&r.step, r.ctx, NULL, list, 1) == GS_OK);
            } else {
                CHECK(gs_tensors_scale(r.ctx, list, 1, (float)r.step.inverse, &stats) == GS_OK);
                stats.sumsq = 0.3125; /* which that pass does not take */
                gs_step_scan_unscaled(&r.step, &stats);
            }
            CHECK(r.step.unscaled && r.step.amax_known && g[0] == 0.5f);
            CHECK((double)r.step.stats.amax == 0.5 * r.step.scale);
            CHECK(r.step.stats.sumsq == 0.3125 * r.step.scale * r.step.scale);
            CHECK(gs_step_end(&r.step, &r.scaler).action == GS_APPLY);
        }
        CHECK_MSG(gs_scaler_scale(&r.scaler) == 0x1p+10, "%a", gs_scaler_scale(&r.scaler));
        gs_context_free(r.ctx);
    }
    rig r = begin("static:1099511627776", ""); /* 2^40: the amax does not fit f32 any more */
    gs_stats stats;
    gs_stats_init(&stats);
    stats.elements = 1;
    stats.amax = 1e38f;
    stats.sumsq = 1e76;
    gs_step_scan_unscaled(&r.step, &stats);
    CHECK(isfinite(r.step.stats.amax) && isfinite(r.step.stats.sumsq));
    CHECK(gs_step_decide(&r.step, &r.scaler).action == GS_APPLY);
    stats.nan = 1;
    stats.sumsq = (double)INFINITY;
    gs_step_scan_unscaled(&r.step, &stats);
    CHECK(gs_step_end(&r.step, &r.scaler).reason == GS_REASON_NAN);
    gs_context_free(r.ctx);
}

static void test_plain_sums(void)
{
    static const struct {
        uint64_t elements, nonfinite;
        double amax, sumsq;
        gs_reason reason;
    } rows[] = {
        {10, 0, 3, 20, GS_REASON_FINE},
        {0, 0, 0, 0, GS_REASON_FINE},
        {10, 2, 3, 20, GS_REASON_INF},
        {10, 0, (double)INFINITY, 20, GS_REASON_INF},
        {10, 0, (double)NAN, 20, GS_REASON_INF},
        {10, 0, 3, (double)NAN, GS_REASON_INF},
        {10, 0, 3, (double)INFINITY, GS_REASON_INF},
        {10, 1, (double)NAN, (double)NAN, GS_REASON_INF},
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        gs_scaler s = make("headroom", "");
        gs_step step;
        gs_step_begin(&step, &s);
        gs_step_sums(&step, rows[i].elements, rows[i].nonfinite, rows[i].amax, rows[i].sumsq);
        const bool fine = rows[i].reason == GS_REASON_FINE;
        CHECK(step.looked && step.flagged == !fine && step.amax_known == (rows[i].elements > 0));
        CHECK(step.stats.elements == rows[i].elements && isfinite(step.stats.amax));
        CHECK(fine ? step.stats.sumsq == rows[i].sumsq : isinf(step.stats.sumsq));
        CHECK_MSG(gs_step_end(&step, &s).reason == rows[i].reason, "row %zu", i);
    }
    gs_scaler s = make("headroom", "init=0x1p+10");
    gs_step step;
    gs_step_begin(&step, &s);
    gs_step_sums(&step, 4, 0, 512, 1);
    gs_step_sums(&step, 4, 0, -256, 2);
    CHECK(step.stats.elements == 8 && step.stats.amax == 512 && step.stats.sumsq == 3);
    CHECK(gs_step_end(&step, &s).scale == 0x1p+10);
}

/* ---- nothing, and next to nothing ---- */

/* torch.amp.GradScaler records a check for a gradient without elements, and applies. */
static void test_empty_gradients(void)
{
    rig r = begin("pytorch", "interval=2");
    const gs_tensor empty[] = {{NULL, 0, GS_F16, "e", 0}};
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, NULL, 0) == GS_OK && !r.step.looked);
    CHECK(gs_step_end(&r.step, &r.scaler).reason == GS_REASON_NO_GRADS);
    for (int i = 0; i < 2; i++) {
        gs_step_begin(&r.step, &r.scaler);
        CHECK(gs_step_unscale(&r.step, r.ctx, NULL, empty, 1) == GS_OK && r.step.looked);
        CHECK(!r.step.amax_known && gs_step_end(&r.step, &r.scaler).action == GS_APPLY);
    }
    CHECK(gs_scaler_scale(&r.scaler) == 131072); /* they were clean steps */
    gs_context_free(r.ctx);
    r = begin("headroom", "history=1");
    for (int i = 0; i < 5; i++) {
        gs_stats stats;
        gs_stats_init(&stats);
        gs_step_begin(&r.step, &r.scaler);
        gs_step_scan(&r.step, &stats);
        CHECK(gs_step_end(&r.step, &r.scaler).action == GS_APPLY);
    }
    CHECK(gs_scaler_scale(&r.scaler) == 65536); /* no gradients are not gradients of zero */
    gs_context_free(r.ctx);
}

/* 1 / scale must fit f32: below 2.9e-39 it is said, by the call and by gs_scaler_explain. */
static void test_scale_too_small(void)
{
    rig r = begin("static:2.5e-39", "lowest=off");
    char text[240];
    float g[1] = {1e-38f};
    const gs_tensor list[] = {{g, 1, GS_F32, "g", 0}};
    refused(&r, NULL, list, 1, GS_ERANGE,
            "a scale of 2.5e-39 cannot be undone: 1 / scale overflows f32");
    CHECK(g[0] == 1e-38f);
    gs_verdict v = gs_step_end(&r.step, &r.scaler);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_INF && v.scale == 2.5e-39);
    gs_step_begin(&r.step, &r.scaler);
    gs_step_amax(&r.step, 1e-39);
    v = gs_step_end(&r.step, &r.scaler);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_INF && r.scaler.counters.blamed == 2);
    gs_scaler_explain(text, sizeof text, &r.scaler, list, 1);
    CHECK_MSG(strcmp(text, "the scale is 2.5e-39, too small to be undone: 1 / scale overflows f32, "
                           "2 steps in a row not applied; set a higher scale, or lowest") == 0,
              "%s", text);
    gs_context_free(r.ctx);
    r = begin("static:3e-39", "lowest=off");
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, list, 1) == GS_OK && g[0] > 3.3f && g[0] < 3.4f);
    CHECK(gs_step_end(&r.step, &r.scaler).action == GS_APPLY);
    gs_context_free(r.ctx);
}

/* Nor may it be 0 in f32: all gradients would be zero, and the step applied. One that is subnormal
 * there is used as torch uses it. */
static void test_scale_too_large(void)
{
    char text[240];
    float g[1] = {3};
    const gs_tensor list[] = {{g, 1, GS_F32, "g", 0}};
    rig r = begin("static:1e+60", "");
    refused(&r, NULL, list, 1, GS_ERANGE,
            "a scale of 1e+60 cannot be undone: 1 / scale underflows f32");
    const gs_verdict v = gs_step_end(&r.step, &r.scaler);
    CHECK(g[0] == 3 && v.action == GS_SKIP && v.reason == GS_REASON_INF);
    gs_scaler_explain(text, sizeof text, &r.scaler, list, 1);
    CHECK_MSG(strcmp(text, "the scale is 1e+60, too large to be undone: 1 / scale underflows f32, "
                           "1 step in a row not applied; set a lower scale, or highest") == 0,
              "%s", text);
    gs_step_begin(&r.step, &r.scaler); /* who unscales in f64 may have any */
    gs_step_amax(&r.step, 3);
    CHECK(gs_step_end(&r.step, &r.scaler).action == GS_APPLY);
    gs_context_free(r.ctx);
    r = begin("pytorch", "highest=off init=1e+38");
    CHECK(gs_step_unscale(&r.step, r.ctx, NULL, list, 1) == GS_OK);
    CHECK(g[0] == 3 * (float)r.step.inverse && gs_step_end(&r.step, &r.scaler).action == GS_APPLY);
    gs_context_free(r.ctx);
}

TESTS({"lists_add_up", test_lists_add_up}, {"overlaps", test_overlaps},
      {"views_overlap", test_views_overlap}, {"after_the_end", test_after_the_end},
      {"interleaved_groups", test_interleaved_groups}, {"spans_that_join", test_spans_that_join},
      {"true_units", test_true_units}, {"plain_sums", test_plain_sums},
      {"empty_gradients", test_empty_gradients}, {"scale_too_small", test_scale_too_small},
      {"scale_too_large", test_scale_too_large})
