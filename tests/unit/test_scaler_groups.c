/* Several scalers together, and windows of micro-batches. */
#include "scaler_steps.h"

#include "gradscale/optim.h"

/* ---- groups ---- */

static FILE *csv(const char *name)
{
    char path[256], header[512];
    snprintf(path, sizeof path, "tests/traces/other/apex_amp_scale_loss__%s.csv", name);
    FILE *file = fopen(path, "r");
    CHECK_MSG(file && fgets(header, sizeof header, file), "%s", path);
    return file;
}

static void test_apex114_two_losses(void)
{
    gs_scaler s[2] = {make("apex", "interval=20 lowest=off highest=off"),
                      make("apex", "interval=20 lowest=off highest=off")};
    gs_scaler *const both[] = {&s[0], &s[1]};
    FILE *file = csv("two_losses_two_scalers");
    int step, f0, f1, n0, n1, skipped, rows = 0;
    double b0, b1, a0, a1;
    while (file && fscanf(file, "%d,%d,%d,%lf,%lf,%lf,%lf,%d,%d,%d", &step, &f0, &f1, &b0, &b1, &a0,
                          &a1, &n0, &n1, &skipped) == 10) {
        gs_step steps[2];
        gs_verdict v[2];
        for (int i = 0; i < 2; i++)
            gs_step_begin(&steps[i], both[i]);
        CHECK(steps[0].scale == b0 && steps[1].scale == b1);
        gs_step_flag(&steps[0], f0);
        gs_step_flag(&steps[1], f1);
        gs_group_end(v, steps, both, 2, GS_SKIP_TOGETHER);
        CHECK((v[0].action == GS_SKIP) == skipped && v[1].action == v[0].action);
        CHECK(gs_scaler_scale(&s[0]) == a0 && gs_scaler_scale(&s[1]) == a1);
        CHECK(s[0].machine.count == n0 && s[1].machine.count == n1);
        rows++;
    }
    CHECK(rows > 50);
    CHECK(s[0].counters.applied == s[1].counters.applied);
    if (file)
        fclose(file);
}

static void test_apex_two_backwards_one_scaler(void)
{
    gs_scaler s = make("apex", "interval=20 lowest=off highest=off");
    gs_scaler *const same[] = {&s, &s};
    FILE *file = csv("two_backwards_one_scaler");
    int step, f0, f1, n, skipped, rows = 0;
    double before, after;
    while (file && fscanf(file, "%d,%d,%d,%lf,%lf,%d,%d", &step, &f0, &f1, &before, &after, &n,
                          &skipped) == 7) {
        gs_step steps[2];
        gs_verdict v[2];
        gs_step_begin(&steps[0], &s);
        gs_step_begin(&steps[1], &s);
        CHECK(steps[0].scale == before);
        gs_step_flag(&steps[0], f0);
        gs_step_flag(&steps[1], f1);
        gs_group_end(v, steps, same, 2, GS_SKIP_TOGETHER);
        CHECK((v[0].action == GS_SKIP) == skipped);
        CHECK_MSG(gs_scaler_scale(&s) == after && s.machine.count == n, "step %d: %a %g", step,
                  gs_scaler_scale(&s), s.machine.count);
        rows++;
    }
    CHECK(rows > 50);
    if (file)
        fclose(file);
}

static void test_apex_delay_unscale(void)
{
    gs_scaler s = make("apex", "interval=20 lowest=off highest=off");
    FILE *file = csv("delay_unscale_accumulation");
    int step, f0, f1, n, skipped, rows = 0;
    double before, after;
    while (file && fscanf(file, "%d,%d,%d,%lf,%lf,%d,%d", &step, &f0, &f1, &before, &after, &n,
                          &skipped) == 7) {
        gs_window w; /* two backward passes, looked at once */
        gs_step all;
        gs_window_begin(&w, &s, GS_SKIP_WINDOW);
        CHECK(w.step.scale == before);
        gs_step_begin(&all, &s);
        gs_step_flag(&all, f0 || f1);
        gs_window_add(&w, &all);
        CHECK((gs_window_end(&w, &s).action == GS_SKIP) == skipped);
        CHECK(gs_scaler_scale(&s) == after && s.machine.count == n);
        rows++;
    }
    CHECK(rows > 50);
    if (file)
        fclose(file);
}

static void test_couplings(void)
{
    gs_scaler a = make("pytorch", ""), b = make("pytorch", "init=256");
    gs_scaler *const both[] = {&a, &b};
    gs_step steps[2];
    gs_verdict v[2];
    for (gs_coupling c = GS_INDEPENDENT; c <= GS_SCALE_TOGETHER; c++) {
        const double was[] = {gs_scaler_scale(&a), gs_scaler_scale(&b)};
        for (int i = 0; i < 2; i++)
            gs_step_begin(&steps[i], both[i]);
        gs_step_flag(&steps[0], 1);
        gs_step_flag(&steps[1], 0);
        gs_group_end(v, steps, both, 2, c);
        CHECK(v[0].action == GS_SKIP && gs_scaler_scale(&a) == was[0] / 2);
        CHECK(v[1].action == (c == GS_INDEPENDENT ? GS_APPLY : GS_SKIP));
        CHECK(gs_scaler_scale(&b) == (c == GS_SCALE_TOGETHER ? was[1] / 2 : was[1]));
        CHECK(steps[1].scale == was[1] && steps[1].inverse == 1 / was[1]);
        const gs_verdict again = gs_step_end(&steps[1], &b);
        CHECK(again.action == v[1].action && again.reason == v[1].reason);
        CHECK(v[1].reason == (c == GS_INDEPENDENT ? GS_REASON_FINE : GS_REASON_INF));
    }
    /* Scaled together they are one step, with everything seen once. */
    for (int i = 0; i < 2; i++) {
        gs_step_begin(&steps[i], both[i]);
        gs_step_scan(&steps[i], &(gs_stats){.elements = 10 + (uint64_t)i, .amax = 1, .sumsq = 2});
    }
    gs_group_end(v, steps, both, 2, GS_SCALE_TOGETHER);
    CHECK(steps[0].stats.elements == 21 && steps[0].stats.sumsq == 4);
    /* One batch, run again for all; who was clean is fed once, after the rerun. */
    a = make("pytorch", "on_overflow=retry:2");
    b = make("pytorch", "on_overflow=retry:2");
    for (int run = 0; run < 2; run++) {
        for (int i = 0; i < 2; i++)
            gs_step_begin(&steps[i], both[i]);
        gs_step_flag(&steps[0], run == 0);
        gs_step_flag(&steps[1], 0);
        gs_group_end(v, steps, both, 2, GS_SKIP_TOGETHER);
        CHECK(v[0].action == (run ? GS_APPLY : GS_RETRY) && v[1].action == v[0].action);
    }
    for (int i = 0; i < 2; i++) /* ended: the group's verdict again */
        CHECK(gs_step_end(&steps[i], both[i]).action == GS_APPLY);
    CHECK(a.machine.clean == 1 && b.machine.clean == 1);
    CHECK(gs_scaler_scale(&a) == 32768 && gs_scaler_scale(&b) == 65536);
    CHECK(b.counters.attempted == 1 && b.counters.applied == 1);
}

/* Two losses whose largest gradients are amax[i], run until nobody asks for a rerun: how many. */
static int group_batch(gs_verdict v[2], gs_scaler *const scalers[2], const double amax[2])
{
    gs_step steps[2];
    int runs = 0;
    do {
        for (int i = 0; i < 2; i++)
            gs_step_begin(&steps[i], scalers[i]);
        for (int i = 0; i < 2; i++) {
            const double scaled = amax[i] * steps[i].scale;
            gs_step_amax(&steps[i], scaled > 65504 ? (double)INFINITY : scaled);
        }
        gs_group_end(v, steps, scalers, 2, GS_SKIP_TOGETHER);
        CHECK(v[0].action == v[1].action);
    } while (v[0].action == GS_RETRY && ++runs < 20);
    return runs;
}

static void test_group_reruns(void)
{
    static const char *const modes[] = {"on_overflow=attribute", "on_overflow=retry:3"};
    const double none = (double)NAN;
    const struct {
        double amax[2];
        gs_action action; /* of attribute; retry:3 may end at SKIP where this is APPLY */
        double scale[2];  /* of attribute */
        double one;       /* of attribute, if one scaler stands for both */
        int blamed;
    } rows[] = {
        {{1.5, 1e-3}, GS_APPLY, {0x1p+15, 0x1p+16}, 0x1p+15, 0},
        {{1e-3, 1.5}, GS_APPLY, {0x1p+16, 0x1p+15}, 0x1p+15, 0},
        {{1.5, 1.5}, GS_APPLY, {0x1p+15, 0x1p+15}, 0x1p+15, 0},
        {{1.5, 1000}, GS_APPLY, {0x1p+15, 0x1p+5}, 0x1p+5, 0}, /* cured, then waits for the other */
        {{1000, 1.5}, GS_APPLY, {0x1p+5, 0x1p+15}, 0x1p+5, 0},
        {{none, none}, GS_SKIP, {0x1p+16, 0x1p+16}, 0x1p+16, 2},
        {{1e-3, none}, GS_SKIP, {0x1p+16, 0x1p+16}, 0x1p+16, 1},
        {{none, 1.5},
         GS_SKIP,
         {0x1p+16, 0x1p+15},
         0x1p+16,
         1}, /* the batch is lost, the finding is not */
    };
    for (size_t i = 0; i < ROWS(rows); i++)
        for (size_t m = 0; m < ROWS(modes); m++) {
            gs_scaler a = make("pytorch", modes[m]), b = a;
            gs_scaler *const both[] = {&a, &b};
            gs_verdict v[2];
            const int runs = group_batch(v, both, rows[i].amax);
            CHECK_MSG(runs <= 3, "row %zu, %s: %d reruns", i, modes[m], runs);
            CHECK(a.counters.attempted == 1 && b.counters.attempted == 1);
            CHECK(a.event.phase == 0 && b.event.phase == 0);
            CHECK(a.counters.applied == (v[0].action == GS_APPLY) &&
                  b.counters.applied == a.counters.applied);
            if (m == 0) {
                CHECK_MSG(v[0].action == rows[i].action, "row %zu: %d", i, v[0].action);
                CHECK_MSG(gs_scaler_scale(&a) == rows[i].scale[0] &&
                              gs_scaler_scale(&b) == rows[i].scale[1],
                          "row %zu: %g %g", i, gs_scaler_scale(&a), gs_scaler_scale(&b));
                CHECK(a.counters.blamed + b.counters.blamed == (uint64_t)rows[i].blamed);
            }
        }
    /* One scaler for both losses. */
    for (size_t i = 0; i < ROWS(rows); i++)
        for (size_t m = 0; m < ROWS(modes); m++) {
            gs_scaler a = make("pytorch", modes[m]);
            gs_scaler *const both[] = {&a, &a};
            gs_verdict v[2];
            const int runs = group_batch(v, both, rows[i].amax);
            CHECK_MSG(runs <= 3, "row %zu, %s: %d reruns", i, modes[m], runs);
            CHECK(a.event.phase == 0 && a.counters.retried == (uint64_t)runs);
            if (m == 0)
                CHECK_MSG(v[0].action == rows[i].action && gs_scaler_scale(&a) == rows[i].one,
                          "row %zu: %d, %g", i, v[0].action, gs_scaler_scale(&a));
        }
}

/* Who is skipped because of another is not well either. */
static void test_group_streak(void)
{
    gs_scaler a = make("pytorch", ""), b = a;
    gs_scaler *const both[] = {&a, &b};
    gs_verdict v[2];
    for (int i = 0; i < 50; i++)
        group_batch(v, both, (const double[]){1e-3, (double)NAN});
    CHECK(gs_scaler_health(&a) == GS_STUCK && gs_scaler_health(&b) == GS_STUCK);
    group_batch(v, both, (const double[]){1e-3, 1e-3});
    CHECK(gs_scaler_health(&a) == GS_HEALTHY);
}

/* A rerun that one wants and the group does not make is not counted. */
static void test_rerun_that_is_not_made(void)
{
    gs_scaler a = make("pytorch", "on_overflow=retry:2"), b = a;
    gs_scaler *const both[] = {&a, &b};
    gs_step steps[2];
    gs_verdict v[2];
    for (int i = 0; i < 2; i++)
        gs_step_begin(&steps[i], both[i]);
    gs_step_flag(&steps[0], 1);
    gs_step_reject(&steps[1]);
    CHECK(gs_step_decide(&steps[0], &a).action == GS_RETRY);
    gs_group_end(v, steps, both, 2, GS_SKIP_TOGETHER);
    CHECK(v[0].action == GS_SKIP && v[1].action == GS_SKIP);
    CHECK(a.counters.retried == 0 && b.counters.retried == 0 && a.event.phase == 0);
    CHECK(a.counters.skipped[GS_REASON_USER] == 1 && gs_scaler_scale(&a) == 0x1p+15);
}

/* ---- windows ---- */

static gs_step micro(const gs_window *w, const gs_scaler *s, double amax)
{
    gs_step m;
    gs_step_begin(&m, s);
    CHECK(m.scale == w->step.scale);
    gs_step_amax(&m, amax);
    return m;
}

static void test_liger830_dropped_microbatch(void)
{
    gs_scaler s = make("pytorch", "");
    gs_window w;
    gs_step m;
    gs_window_begin(&w, &s, GS_DROP_MICROBATCH);
    for (int i = 0; i < 4; i++) {
        m = micro(&w, &s, i == 2 ? (double)INFINITY : 100);
        CHECK(gs_window_add(&w, &m) == (i != 2));
    }
    gs_verdict v = gs_window_end(&w, &s);
    CHECK(v.action == GS_APPLY && v.factor == 4.0 / 3);
    CHECK(gs_scaler_scale(&s) == 32768 && s.counters.applied == 1); /* the overflow was seen */
    CHECK(gs_window_end(&w, &s).action == GS_APPLY && s.counters.applied == 1);

    gs_window_begin(&w, &s, GS_SKIP_WINDOW);
    for (int i = 0; i < 4; i++) {
        m = micro(&w, &s, i == 2 ? (double)NAN : 100);
        CHECK(gs_window_add(&w, &m) == 1);
    }
    v = gs_window_end(&w, &s);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_NAN && gs_scaler_scale(&s) == 16384);

    gs_window_begin(&w, &s, GS_DROP_MICROBATCH);
    for (int i = 0; i < 3; i++) {
        m = micro(&w, &s, (double)INFINITY);
        CHECK(gs_window_add(&w, &m) == 0);
    }
    v = gs_window_end(&w, &s);
    CHECK(v.action == GS_SKIP && v.factor == 1 && gs_scaler_scale(&s) == 8192);

    /* a forward fault in one micro-batch is dropped too, and is not the scale's */
    gs_window_begin(&w, &s, GS_DROP_MICROBATCH);
    m = micro(&w, &s, 1);
    gs_window_add(&w, &m);
    gs_step_begin(&m, &s);
    gs_step_loss(&m, (double)INFINITY);
    CHECK(gs_window_add(&w, &m) == 0);
    v = gs_window_end(&w, &s);
    CHECK(v.action == GS_APPLY && v.factor == 2 && gs_scaler_scale(&s) == 8192);

    gs_window_begin(&w, &s, GS_DROP_MICROBATCH); /* skipped for another reason: no factor */
    m = micro(&w, &s, 1);
    gs_window_add(&w, &m);
    m = micro(&w, &s, (double)NAN);
    gs_window_add(&w, &m);
    gs_step_reject(&w.step);
    v = gs_window_end(&w, &s);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_USER && v.factor == 1);

    gs_window_begin(&w, &s, GS_SKIP_WINDOW);
    CHECK(gs_window_end(&w, &s).reason == GS_REASON_NO_GRADS);
}

static void test_pytorch90057_unequal_microbatches(void)
{
    gs_scaler s[2] = {make("pytorch", "interval=3"), make("pytorch", "interval=3")};
    for (uint64_t i = 0; i < 200; i++) {
        gs_window w[2], all[2];
        gs_verdict v[2];
        for (int r = 0; r < 2; r++) {
            gs_window_begin(&w[r], &s[r], GS_DROP_MICROBATCH);
            for (int k = 0; k < 2 + 3 * r; k++) {
                const uint32_t x = gs_random_u32(9, i * 16 + (uint64_t)(8 * r + k));
                const gs_step m = micro(&w[r], &s[r], x % 20 ? 3 : (double)INFINITY);
                gs_window_add(&w[r], &m);
            }
        }
        for (int r = 0; r < 2; r++) {
            all[r] = w[r];
            gs_window_merge(&all[r], &w[1 - r]);
            v[r] = gs_window_end(&all[r], &s[r]);
        }
        CHECK(v[0].action == v[1].action && v[0].factor == v[1].factor && v[0].scale == v[1].scale);
        CHECK(memcmp(&s[0].machine, &s[1].machine, sizeof s[0].machine) == 0);
    }
}

/* ---- which gradients are in true units ---- */

/* Scales that move together say nothing of whose gradients are unscaled. */
static void test_group_of_unscaled(void)
{
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    gs_scaler s[2] = {make("static:8", ""), make("static:8", "")};
    gs_scaler *const both[] = {&s[0], &s[1]};
    for (int first = 0; first < 2; first++) {
        float g[2][3] = {{8, 16, 24}, {8, 16, 24}};
        gs_step steps[2];
        gs_verdict v[2];
        for (int i = 0; i < 2; i++) {
            const gs_tensor list = {g[i], 3, GS_F32, NULL, NULL};
            gs_stats stats;
            gs_step_begin(&steps[i], both[i]);
            CHECK(gs_tensors_scan(ctx, &list, 1, &stats) == GS_OK);
            if (i == first)
                CHECK(gs_step_unscale(&steps[i], ctx, NULL, &list, 1) == GS_OK);
            else
                gs_step_scan(&steps[i], &stats);
        }
        gs_group_end(v, steps, both, 2, GS_SCALE_TOGETHER);
        CHECK(v[0].action == GS_APPLY && v[1].action == GS_APPLY);
        for (int i = 0; i < 2; i++) {
            CHECK(steps[i].stats.elements == 6);
            CHECK(steps[i].unscaled == (i == first) && steps[i].given.lists == (i == first));
        }
    }
    gs_context_free(ctx);
}

/* The sum of unscaled micro-batches is in true units: an optimizer must not unscale it again. */
static void test_window_of_unscaled(void)
{
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    for (int unscale = 0; unscale < 2; unscale++) {
        gs_scaler s = make("static:8", "");
        float w = 0, sum = 0;
        const gs_weight weight = {.name = "w",
                                  .rows = 1,
                                  .cols = 1,
                                  .data = &w,
                                  .dtype = GS_F32,
                                  .grad = &sum,
                                  .grad_dtype = GS_F32};
        gs_optim_config config = {.size = sizeof config};
        gs_optim *optim;
        CHECK(gs_optim_config_init(&config, "sgd", NULL) == GS_OK);
        CHECK(gs_optim_config_set(&config, "lr=1", NULL) == GS_OK);
        CHECK(gs_optim_create(&optim, ctx, &weight, 1, &config) == GS_OK);
        gs_window window;
        gs_window_begin(&window, &s, GS_SKIP_WINDOW);
        for (int i = 0; i < 2; i++) {
            float g = 8;
            const gs_tensor list = {&g, 1, GS_F32, NULL, NULL};
            gs_stats stats;
            gs_step micro;
            gs_step_begin(&micro, &s);
            CHECK(gs_tensors_scan(ctx, &list, 1, &stats) == GS_OK);
            if (unscale)
                CHECK(gs_step_unscale(&micro, ctx, NULL, &list, 1) == GS_OK);
            else
                gs_step_scan(&micro, &stats);
            CHECK(gs_window_add(&window, &micro) == 1);
            sum += g;
        }
        const gs_verdict v = gs_window_end(&window, &s);
        CHECK(gs_optim_act(optim, &window.step, v, NULL) == GS_OK);
        CHECK_MSG(w == -2, "%s: %g", unscale ? "unscaled" : "scaled", (double)w);
        gs_optim_free(optim);
    }
    gs_context_free(ctx);
}

TESTS({"apex114_two_losses", test_apex114_two_losses},
      {"apex_two_backwards_one_scaler", test_apex_two_backwards_one_scaler},
      {"apex_delay_unscale", test_apex_delay_unscale}, {"couplings", test_couplings},
      {"group_of_unscaled", test_group_of_unscaled},
      {"window_of_unscaled", test_window_of_unscaled}, {"group_reruns", test_group_reruns},
      {"group_streak", test_group_streak}, {"rerun_that_is_not_made", test_rerun_that_is_not_made},
      {"liger830_dropped_microbatch", test_liger830_dropped_microbatch},
      {"pytorch90057_unequal_microbatches", test_pytorch90057_unequal_microbatches})
