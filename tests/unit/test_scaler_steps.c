/* The step protocol: verdicts, reruns, several optimizers, health. */
#include "scaler_steps.h"

/* ---- verdicts and reasons ---- */

static void test_reasons(void)
{
    gs_scaler s = make("pytorch", "");
    gs_step step;
    gs_stats stats;
    gs_verdict v;

    gs_step_begin(&step, &s);
    CHECK(step.scale == 65536 && step.inverse == 0x1p-16);
    v = gs_step_end(&step, &s);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_NO_GRADS && v.scale == 65536);

    gs_stats_init(&stats);
    stats.elements = 10;
    stats.nan = 2;
    gs_step_begin(&step, &s);
    gs_step_scan(&step, &stats);
    v = gs_step_end(&step, &s);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_NAN && v.scale == 32768);

    stats.inf = 1;
    gs_step_begin(&step, &s);
    gs_step_scan(&step, &stats);
    v = gs_step_end(&step, &s);
    CHECK(v.reason == GS_REASON_INF && v.scale == 16384);

    gs_step_begin(&step, &s);
    gs_step_loss(&step, (double)NAN);
    gs_step_scan(&step, &stats); /* the gradients of such a loss are no news */
    const gs_machine before = s.machine;
    v = gs_step_end(&step, &s);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_FORWARD && v.scale == 16384);
    CHECK(memcmp(&before, &s.machine, sizeof before) == 0);

    gs_step_begin(&step, &s);
    gs_step_loss(&step, 1.5);
    gs_step_flag(&step, 0);
    gs_step_reject(&step);
    v = gs_step_end(&step, &s);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_USER && v.scale == 16384);
    CHECK(s.machine.clean == 0);

    v = flag(&s, 0);
    CHECK(v.action == GS_APPLY && v.reason == GS_REASON_FINE && v.factor == 1);
    const gs_counters *c = &s.counters;
    CHECK(c->attempted == 6 && c->applied == 1 && c->skipped[GS_REASON_INF] == 1 &&
          c->skipped[GS_REASON_NAN] == 1 && c->skipped[GS_REASON_FORWARD] == 1 &&
          c->skipped[GS_REASON_NO_GRADS] == 1 && c->skipped[GS_REASON_USER] == 1);
    CHECK(strcmp(gs_reason_name(GS_REASON_NO_GRADS), "no_grads") == 0);
    CHECK(strcmp(gs_action_name(GS_RETRY), "retry") == 0);
    CHECK(strcmp(gs_health_name(GS_STUCK), "STUCK") == 0);
    CHECK(strcmp(gs_reason_name((gs_reason)99), "unknown") == 0);
}

static void test_end_twice_and_abandon(void)
{
    gs_scaler s = make("pytorch", "on_overflow=retry:3");
    gs_step step;
    gs_step_begin(&step, &s);
    gs_step_flag(&step, 1);
    CHECK(gs_step_end(&step, &s).action == GS_RETRY);
    const gs_scaler once = s;
    CHECK(gs_step_end(&step, &s).action == GS_RETRY && memcmp(&once, &s, sizeof s) == 0);
    gs_step_begin(&step, &s);
    CHECK(step.scale == 32768);
    gs_step_abandon(&step, &s);
    CHECK(gs_step_end(&step, &s).action == GS_SKIP && s.counters.attempted == 1);
    gs_step_begin(&step, &s);
    gs_step_flag(&step, 0);
    CHECK(gs_step_end(&step, &s).action == GS_APPLY && s.counters.attempted == 2);
}

static void test_disabled_and_guard(void)
{
    gs_scaler s = make("none", "");
    for (int i = 0; i < 5; i++)
        CHECK(flag(&s, 1).action == GS_APPLY);
    CHECK(gs_scaler_scale(&s) == 1 && s.counters.applied == 5);
    s = make("guard", "");
    CHECK(flag(&s, 1).action == GS_SKIP && flag(&s, 0).action == GS_APPLY);
    CHECK(gs_scaler_scale(&s) == 1);
    s = make("static:0.001", "");
    CHECK(flag(&s, 1).action == GS_SKIP && gs_scaler_scale(&s) == 0.001);
}

/* Over random settings and reports: the scale is finite, positive and inside its bounds. */
static void test_bounds(void)
{
    uint64_t at = 0;
    size_t presets = 0, tried = 0;
    while (gs_preset_name(presets))
        presets++;
    for (int round = 0; round < 400; round++) {
        static const char *const sets[] = {
            "interval=1",           "interval=2 lowest=0x1p-3 highest=0x1p+20",
            "on_overflow=retry:2",  "on_overflow=attribute",
            "probe=yes interval=1", "state=f16 interval=1 init=3"};
        const char *name = gs_preset_name((size_t)round % presets);
        gs_scaler s;
        gs_error error;
        gs_scaler_init(&s, name, NULL);
        if (gs_scaler_set(&s, sets[(size_t)round / presets % ROWS(sets)], &error) != GS_OK)
            continue;
        tried++;
        const uint32_t share = 1 + gs_random_u32(3, at++) % 6;
        for (int i = 0; i < 300; i++) {
            const uint32_t r = gs_random_u32(3, at++);
            gs_step step;
            gs_step_begin(&step, &s);
            CHECK_MSG(isfinite(step.scale) && step.scale > 0 && step.scale >= s.rules.lowest &&
                          step.scale <= s.rules.highest,
                      "%s: %a", name, step.scale);
            CHECK(step.scale * step.inverse > 0.99 && step.scale * step.inverse < 1.01);
            if (r % 3)
                gs_step_amax(&step, r % share ? ldexp(1, (int)(r >> 8 & 31) - 20)
                                              : (double)(r & 16 ? NAN : INFINITY));
            else
                gs_step_flag(&step, r % share == 0);
            gs_step_end(&step, &s);
        }
    }
    CHECK_MSG(tried > 300, "%zu", tried);
}

static void test_merge_order(void)
{
    enum { PARTS = 7 };
    for (uint64_t round = 0; round < 300; round++) {
        gs_scaler s = make("headroom", "");
        gs_step parts[PARTS], forth, back;
        for (uint64_t i = 0; i < PARTS; i++) {
            const uint32_t r = gs_random_u32(11, round * PARTS + i);
            gs_stats stats;
            gs_stats_init(&stats);
            stats.elements = r % 100;
            stats.inf = r % 11 == 0;
            stats.nan = r % 13 == 0;
            stats.zero = r % 7;
            stats.amax = (float)(r % 1000) / 7;
            if (stats.inf || stats.nan) {
                stats.bad_tensor = r >> 8 & 3;
                stats.bad_index = r >> 10 & 7;
            }
            gs_step_begin(&parts[i], &s);
            gs_step_scan(&parts[i], &stats);
        }
        gs_step_begin(&forth, &s);
        gs_step_begin(&back, &s);
        for (int i = 0; i < PARTS; i++) {
            gs_step_merge(&forth, &parts[i]);
            gs_step_merge(&back, &parts[PARTS - 1 - i]);
        }
        CHECK(memcmp(&forth, &back, sizeof forth) == 0);
    }
}

/* ---- retry ---- */

static void test_retry(void)
{
    int runs;
    gs_scaler s = make("pytorch", "on_overflow=retry:3");
    gs_verdict v = batch(&s, 2, &runs); /* needs 2^14 */
    CHECK(v.action == GS_APPLY && runs == 3 && gs_scaler_scale(&s) == 0x1p+14);
    CHECK(s.counters.attempted == 1 && s.counters.applied == 1 && s.counters.retried == 2);
    v = batch(&s, NOTHING, &runs);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_NAN && runs == 4);
    CHECK(gs_scaler_scale(&s) == 0x1p+10 && s.counters.retried == 5);

    /* Hysteresis keeps the scale, not the batch from being saved. */
    s = make("megatron", "init=0x1p+16 on_overflow=retry:1");
    v = batch(&s, 1, &runs);
    CHECK(v.action == GS_APPLY && runs == 2 && gs_scaler_scale(&s) == 0x1p+16);
    v = batch(&s, 1, &runs);
    CHECK(v.action == GS_APPLY && runs == 2 && gs_scaler_scale(&s) == 0x1p+15);

    /* the rerun alone has half the scale */
    gs_step step;
    s = make("megatron", "init=0x1p+16 on_overflow=retry:2");
    gs_step_begin(&step, &s);
    gs_step_flag(&step, 1);
    v = gs_step_end(&step, &s);
    CHECK(v.action == GS_RETRY && v.scale == 0x1p+15 && gs_scaler_scale(&s) == 0x1p+16);
    gs_step_begin(&step, &s);
    CHECK(step.scale == 0x1p+15);
    s = make("pytorch", "init=0x1.8p-24 on_overflow=retry:2");
    v = flag(&s, 1);
    CHECK(v.action == GS_RETRY && v.scale == 0x1p-24); /* not below the bound */

    s = make("static:65536", "on_overflow=retry:2");
    v = batch(&s, 1, &runs);
    CHECK(v.action == GS_APPLY && runs == 2 && gs_scaler_scale(&s) == 65536);

    s = make("pytorch", "init=0x1p-24 on_overflow=retry:5");
    v = batch(&s, NOTHING, &runs);
    CHECK(v.action == GS_SKIP && runs == 1); /* there is nothing below the floor */
}

/* ---- attribution ---- */

static void test_attribute(void)
{
    int runs;
    gs_scaler s = make("pytorch", "on_overflow=attribute");
    gs_verdict v = batch(&s, 1.2, &runs); /* fits 2^15 */
    CHECK(v.action == GS_APPLY && runs == 2 && gs_scaler_scale(&s) == 0x1p+15);

    /* From there the growth is counted anew. */
    s = make("pytorch", "on_overflow=attribute interval=3");
    batch(&s, 0.1, NULL);
    batch(&s, 1.2, NULL);
    for (int i = 0; i < 3; i++) {
        CHECK(gs_scaler_scale(&s) == 0x1p+15);
        batch(&s, 0.1, NULL);
    }
    CHECK(gs_scaler_scale(&s) == 0x1p+16);
    s = make("pytorch", "on_overflow=attribute");
    batch(&s, 1.2, NULL);

    /* The batch is to blame: the scale and the way to the next growth stay. */
    for (int i = 0; i < 100; i++)
        batch(&s, 0.1, NULL);
    const gs_machine before = s.machine;
    v = batch(&s, NOTHING, &runs);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_NAN && runs == 3);
    CHECK(memcmp(&before, &s.machine, sizeof before) == 0 && s.counters.blamed == 1);

    /* Far too high: three reruns, and the amax found at the floor gives the scale. */
    s = make("pytorch", "init=0x1p+40 on_overflow=attribute");
    v = batch(&s, 1, &runs);
    CHECK(v.action == GS_APPLY && runs == 4 && s.counters.retried == 3);
    CHECK(gs_scaler_scale(&s) <= 0x1p+15 && gs_scaler_scale(&s) >= 0x1p+13);

    /* Even if f16 flushes everything to zero down there. */
    s = make("pytorch", "init=0x1p+40 on_overflow=attribute");
    for (runs = 0, v.action = GS_RETRY; v.action == GS_RETRY; runs++) {
        gs_step step;
        gs_step_begin(&step, &s);
        const double scaled = 0x1p-3 * step.scale;
        gs_step_amax(&step, scaled > 65504 ? (double)INFINITY : scaled < 0x1p-25 ? 0 : scaled);
        v = gs_step_end(&step, &s);
    }
    CHECK(v.action == GS_APPLY && runs == 4 && gs_scaler_scale(&s) >= 0x1p+14);

    /* And never above a quarter of what overflowed, with half of it tried. */
    s = make("pytorch", "init=0x1p+10 on_overflow=attribute");
    for (runs = 0, v.action = GS_RETRY; v.action == GS_RETRY; runs++) {
        gs_step step;
        gs_step_begin(&step, &s);
        gs_step_amax(&step, step.scale > 0x1p+8 ? (double)INFINITY : step.scale < 1 ? 0 : 9);
        v = gs_step_end(&step, &s);
    }
    CHECK(v.action == GS_APPLY && runs == 4 && gs_scaler_scale(&s) == 0x1p+8);

    /* Only a flag: the exponents are halved until it fits. */
    s = make("pytorch", "init=0x1p+40 on_overflow=attribute");
    int applied = 0, reruns = 0;
    for (int i = 0; i < 6; i++)
        do {
            gs_step step;
            gs_step_begin(&step, &s);
            gs_step_flag(&step, step.scale > 0x1p+3);
            v = gs_step_end(&step, &s);
            applied += v.action == GS_APPLY;
            reruns += v.action == GS_RETRY;
        } while (v.action == GS_RETRY);
    CHECK(applied >= 5 && reruns <= 6 && gs_scaler_scale(&s) <= 8);
    s = make("pytorch", "init=0x1p+16 lowest=1 on_overflow=attribute");
    v.scale = 0x1p+16;
    do /* between 1, which fits, and 2^15, which does not */
        v = flag(&s, v.scale > 0x1p+7);
    while (v.action == GS_RETRY);
    CHECK(v.action == GS_APPLY && gs_scaler_scale(&s) == 0x1p+7);

    /* Hysteresis does not delay what is known. */
    s = make("megatron", "init=0x1p+16 on_overflow=attribute");
    batch(&s, 1, &runs);
    CHECK(runs == 2 && gs_scaler_scale(&s) == 0x1p+15);
    /* A constant scale stays, the batch is saved. */
    s = make("static:65536", "on_overflow=attribute");
    v = batch(&s, 8, &runs);
    CHECK(v.action == GS_APPLY && runs == 4 && gs_scaler_scale(&s) == 65536);
    /* The policies that read amax are given it. */
    s = make("headroom", "on_overflow=attribute");
    v = batch(&s, 1.5, &runs);
    CHECK(v.action == GS_APPLY && runs == 2 && gs_scaler_scale(&s) == 0x1p+9);
    v = batch(&s, 1e6, &runs);
    CHECK(v.action == GS_APPLY && runs == 4 && gs_scaler_scale(&s) == 0x1p-10);
    /* At the floor there is nobody else to blame; deepspeed does not raise. */
    s = make("deepspeed", "init=1 on_overflow=attribute");
    v = batch(&s, NOTHING, &runs);
    CHECK(v.action == GS_SKIP && runs == 1 && s.counters.blamed == 1);
    s = make("deepspeed", "init=2 on_overflow=attribute");
    v = batch(&s, NOTHING, &runs);
    CHECK(v.action == GS_SKIP && runs == 2 && gs_scaler_scale(&s) == 2);
}

static void test_fail(void)
{
    gs_scaler s = make("deepspeed", "init=1 hyst=1");
    CHECK(flag(&s, 1).action == GS_FAIL);
    s = make("pytorch", "fail_after=3");
    CHECK(flag(&s, 1).action == GS_SKIP && flag(&s, 1).action == GS_SKIP);
    CHECK(flag(&s, 1).action == GS_FAIL && flag(&s, 0).action == GS_APPLY);
    CHECK(flag(&s, 1).action == GS_SKIP);
}

/* ---- several optimizers, one update ---- */

static void test_gradscaler_two_optimizers(void)
{
    gs_scaler s = make("pytorch", "interval=2");
    gs_step two[2];
    gs_error error;
    for (int i = 0; i < 2; i++)
        gs_step_begin(&two[i], &s);
    gs_step_flag(&two[0], 1);
    gs_step_flag(&two[1], 0);
    CHECK(gs_step_decide(&two[0], &s).action == GS_SKIP);
    CHECK(gs_step_decide(&two[1], &s).action == GS_APPLY);
    CHECK(gs_steps_end(two, 2, &s, &error) == GS_OK);
    CHECK(two[0].ended == 1 && two[1].ended == 1);
    CHECK(gs_scaler_scale(&s) == 32768 && s.counters.attempted == 1);
    CHECK(gs_step_end(&two[0], &s).action == GS_SKIP); /* ended: the verdict, nothing more */
    CHECK(gs_step_end(&two[1], &s).action == GS_APPLY && gs_scaler_scale(&s) == 32768);
    CHECK(gs_steps_end(two, 2, &s, &error) == GS_OK && s.counters.attempted == 1);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2; i++) {
            gs_step_begin(&two[i], &s);
            gs_step_flag(&two[i], 0);
        }
        CHECK(gs_steps_end(two, 2, &s, &error) == GS_OK);
    }
    CHECK(gs_scaler_scale(&s) == 65536);

    /* One that the caller or its own loss takes out says nothing of the other. */
    for (int how = 0; how < 3; how++)
        for (int found = 0; found < 2; found++) {
            s = make("pytorch", "interval=1");
            for (int i = 0; i < 2; i++)
                gs_step_begin(&two[i], &s);
            if (how == 0)
                gs_step_reject(&two[0]);
            else if (how == 1)
                gs_step_loss(&two[0], (double)NAN);
            gs_step_flag(&two[1], found);
            CHECK(gs_steps_end(two, 2, &s, &error) == GS_OK);
            CHECK(gs_scaler_scale(&s) == (found ? 32768 : 131072) && s.counters.attempted == 1);
            CHECK(s.counters.skipped[GS_REASON_INF] == (uint64_t)found);
            CHECK(gs_step_end(&two[0], &s).action == GS_SKIP);
        }
    s = make("pytorch", "interval=2");
    /* update(new_scale) keeps the tracker; every factor can be set and read. */
    flag(&s, 0);
    CHECK(gs_scaler_set_scale(&s, 128, NULL) == GS_OK && s.machine.count == 1);
    flag(&s, 0);
    CHECK(gs_scaler_scale(&s) == 256);
    CHECK(gs_scaler_set(&s, "growth=3 backoff=0.25 interval=1", NULL) == GS_OK);
    flag(&s, 0);
    CHECK(gs_scaler_scale(&s) == 768 && s.params.growth == 3);
    flag(&s, 1);
    CHECK(gs_scaler_scale(&s) == 192);
    /* an interval lowered below the tracker is never met, until an overflow */
    s = make("pytorch", "");
    for (int i = 0; i < 10; i++)
        flag(&s, 0);
    gs_scaler_set(&s, "interval=5", NULL);
    for (int i = 0; i < 10; i++)
        flag(&s, 0);
    CHECK(gs_scaler_scale(&s) == 65536);
    gs_scaler_set(&s, "on_overflow=attribute", NULL);
    CHECK(gs_steps_end(two, 2, &s, &error) == GS_ESTATE &&
          strstr(error.text, "only with on_overflow=skip"));
}

/* Raw updates and update(new_scale) are not counted as steps: a factor set after them must not
 * start the machine again. */
static void test_set_keeps_where_the_machine_is(void)
{
    gs_error error;
    gs_scaler s = make("pytorch", "init=0x1p+20 state=f64 interval=7");
    for (int i = 0; i < 10; i++)
        gs_scaler_update(&s, 1);
    for (int i = 0; i < 3; i++)
        gs_scaler_update(&s, 0);
    CHECK(gs_scaler_set(&s, "growth=4 interval=5", &error) == GS_OK);
    CHECK(gs_scaler_scale(&s) == 1024 && s.machine.count == 3);
    gs_scaler_update(&s, 0);
    gs_scaler_update(&s, 0);
    CHECK(gs_scaler_scale(&s) == 4096);
    CHECK(gs_scaler_set(&s, "init=8", &error) == GS_ESTATE &&
          strcmp(error.text, "init can only be set before the first step") == 0);

    s = make("pytorch", "");
    CHECK(gs_scaler_set_scale(&s, 128, NULL) == GS_OK);
    CHECK(gs_scaler_set(&s, "interval=1", NULL) == GS_OK && gs_scaler_scale(&s) == 128);
    flag(&s, 0);
    CHECK(gs_scaler_scale(&s) == 256);

    s = make("headroom", "");
    gs_scaler_update_with(&s, &(gs_finding){.amax = 1});
    const double scale = gs_scaler_scale(&s);
    CHECK(scale == 512 && gs_scaler_set(&s, "history=4", NULL) == GS_OK);
    CHECK(gs_scaler_scale(&s) == scale && s.seen == 1);

    /* An amax that the scale fits already, and gradients all zero, are remembered as well. */
    for (int zero = 0; zero < 2; zero++) {
        s = make("headroom", "init=512");
        const gs_machine before = s.machine;
        gs_scaler_update_with(&s, &(gs_finding){.amax = zero ? 0 : 1});
        CHECK(memcmp(&s.machine, &before, sizeof before) == 0);
        CHECK(gs_scaler_set(&s, "init=8", NULL) == GS_ESTATE && gs_scaler_scale(&s) == 512);
    }
}

/* What T makes of the scale must be finite and > 0 too: 0 would stay for ever. */
static void test_set_scale_in_state(void)
{
    static const struct {
        const char *set;
        double scale;
        gs_status status;
    } rows[] = {
        {"", 1e300, GS_ERANGE},
        {"", 1e-300, GS_ERANGE},
        {"state=f16 init=1", 65536, GS_ERANGE},
        {"state=f16 init=1", 0x1p-26, GS_ERANGE},
        {"state=f16 init=1", 65504, GS_OK},
        {"state=f64 highest=off", 1e300, GS_OK},
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        gs_scaler s = make("pytorch", rows[i].set);
        const gs_scaler before = s;
        CHECK(gs_scaler_set_scale(&s, rows[i].scale, NULL) == rows[i].status);
        CHECK(rows[i].status == GS_OK ? gs_scaler_scale(&s) == rows[i].scale
                                      : memcmp(&s, &before, sizeof s) == 0);
    }
}

static void test_unscale_is_idempotent(void)
{
    float grad[3] = {65536, 2 * 65536, -65536}, half_as_f32[2];
    uint16_t half[2] = {0x7BFF, 0x3C00};
    gs_context *ctx;
    gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL);
    gs_tensor list[] = {{grad, 3, GS_F32, "w", 0}};
    gs_tensor halves[] = {{half, 2, GS_F16, "h", 0}}, to[] = {{half_as_f32, 2, GS_F32, "h", 0}};
    gs_scaler s = make("pytorch", "");
    gs_step step;
    gs_step_begin(&step, &s);
    CHECK(gs_step_unscale(&step, ctx, NULL, list, 1) == GS_OK);
    CHECK(gs_step_unscale(&step, ctx, NULL, list, 1) == GS_OK);
    CHECK(grad[0] == 1 && grad[1] == 2 && grad[2] == -1 && step.stats.amax == 131072);
    CHECK(gs_step_end(&step, &s).action == GS_APPLY);
    /* pytorch74739: FP16 gradients are unscaled into f32 */
    gs_step_begin(&step, &s);
    CHECK(gs_step_unscale(&step, ctx, to, halves, 1) == GS_OK);
    CHECK(half_as_f32[0] == 65504.0f / 65536 && half_as_f32[1] == 1 / 65536.0f);
    gs_context_free(ctx);
}

/* ---- health and messages ---- */

static void says(const gs_scaler *s, gs_health health, const char *begin)
{
    char text[240];
    CHECK_MSG(gs_scaler_health(s) == health, "%s", gs_health_name(gs_scaler_health(s)));
    gs_scaler_explain(text, sizeof text, s, NULL, 0);
    CHECK_MSG(strstr(text, begin) == text, "%s", text);
}

static void test_health(void)
{
    gs_scaler s = make("pytorch", "stuck=30");
    says(&s, GS_CALIBRATING, "the scale is 65536 and no step has confirmed it yet");
    flag(&s, 1);
    says(&s, GS_CALIBRATING,
         "a gradient is infinite at a scale of 65536: 1 step in a row not "
         "applied, the scale goes on at 32768");
    flag(&s, 0);
    says(&s, GS_HEALTHY, "the scale is 32768; 1 of 2 steps were applied");
    gs_step step;
    for (int i = 0; i < 2; i++) {
        gs_step_begin(&step, &s);
        gs_step_loss(&step, (double)INFINITY);
        gs_step_end(&step, &s);
    }
    says(&s, GS_HEALTHY,
         "the loss was not finite before scaling, 2 steps in a row: the forward "
         "pass is at fault and the scale stays at 32768");
    gs_step_begin(&step, &s);
    gs_step_end(&step, &s);
    says(&s, GS_HEALTHY, "no gradient was reported, 3 steps in a row");
    gs_step_begin(&step, &s);
    gs_step_reject(&step);
    gs_step_end(&step, &s);
    says(&s, GS_HEALTHY, "the caller rejected 4 steps in a row");
    flag(&s, 0);
    for (int i = 0; i < 60; i++) {
        gs_stats stats;
        gs_stats_init(&stats);
        stats.elements = 4;
        stats.inf = 1;
        stats.bad_tensor = 7;
        stats.bad_index = 12;
        gs_step_begin(&step, &s);
        gs_step_scan(&step, &stats);
        gs_step_end(&step, &s);
    }
    says(&s, GS_STUCK,
         "tensor 7[12] is not finite at any scale from 32768 to 5.96046e-08, the "
         "lowest allowed: ");
    flag(&s, 0);
    says(&s, GS_AT_FLOOR, "the scale is at its floor, 5.96046e-08: ");
    flag(&s, 1); /* who offended before is forgotten */
    says(&s, GS_AT_FLOOR, "a gradient is infinite at a scale of 5.96046e-08: 1 step");
    s = make("apex", "init=0x1p+24");
    flag(&s, 0);
    says(&s, GS_AT_CEILING, "the scale is at its ceiling, 1.67772e+07: ");
    s = make("none", "");
    flag(&s, 1);
    says(&s, GS_HEALTHY, "the scaler is disabled");
    char tiny[8];
    CHECK(strlen(gs_scaler_explain(tiny, sizeof tiny, &s, NULL, 0)) == 7);
}

/* The histogram policy, from gradients to verdict: gs_tensors_exponents feeds the step. */
static void test_histogram_step(void)
{
    enum { N = 1000 };
    float g[N];
    const gs_tensor list[] = {{g, N, GS_F32, "g", 0}};
    gs_scaler s = make("histogram", "band=1");
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    /* the largest, scaled; what the scale does then: doubles, holds in the band, halves, backs off
     */
    const struct {
        float top;
        double factor;
    } rows[] = {{0x1p+11f, 2}, {0x1p+12f, 1}, {0x1p+13f, 0.5}, {INFINITY, 0.5}};
    for (size_t i = 0; i < ROWS(rows); i++) {
        gs_exponents x = {0};
        gs_step step;
        for (int k = 0; k < N; k++)
            g[k] = k % 2 ? 0 : 1;
        g[N / 2] = rows[i].top;
        CHECK(gs_tensors_exponents(ctx, &x, list, 1, NULL) == GS_OK);
        gs_step_begin(&step, &s);
        gs_step_exponents(&step, &s, &x);
        CHECK(step.elements == (isinf(rows[i].top) ? N - 1u : N));
        const gs_verdict v = gs_step_end(&step, &s);
        CHECK(v.action == (isinf(rows[i].top) ? GS_SKIP : GS_APPLY));
        CHECK_MSG(v.scale == step.scale * rows[i].factor, "row %zu: %g to %g", i, step.scale,
                  v.scale);
    }
    gs_context_free(ctx);
}

TESTS({"reasons", test_reasons}, {"end_twice_and_abandon", test_end_twice_and_abandon},
      {"disabled_and_guard", test_disabled_and_guard}, {"bounds", test_bounds},
      {"merge_order", test_merge_order}, {"retry", test_retry}, {"attribute", test_attribute},
      {"fail", test_fail}, {"gradscaler_two_optimizers", test_gradscaler_two_optimizers},
      {"set_keeps_where_the_machine_is", test_set_keeps_where_the_machine_is},
      {"set_scale_in_state", test_set_scale_in_state},
      {"unscale_is_idempotent", test_unscale_is_idempotent}, {"health", test_health},
      {"histogram_step", test_histogram_step})
