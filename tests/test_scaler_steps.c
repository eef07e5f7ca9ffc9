/* The step protocol: verdicts, reruns, groups, windows, health; and what users of other scalers
 * ran into, each test named after its thread. */
#include "test.h"

#include "gradscale/scaler.h"

#include <math.h>
#include <stdbool.h>

#define ROWS(array) (sizeof(array) / sizeof((array)[0]))
#define NOTHING     ((double)NAN) /* in place of an amax: the batch is NaN at every scale */

/* A batch whose largest gradient is `amax` in true units, in f16. Follows RETRY as a loop would;
 * the last verdict, and the number of runs if runs is given. */
static gs_verdict batch(gs_scaler *s, double amax, int *runs)
{
    gs_verdict v;
    int n = 0;
    do {
        gs_step step;
        gs_step_begin(&step, s);
        const double scaled = amax * step.scale;
        gs_step_amax(&step, isnan(amax) ? amax : scaled > 65504 ? (double)INFINITY : scaled);
        const gs_verdict plan = gs_step_decide(&step, s);
        v = gs_step_end(&step, s);
        CHECK(plan.action == v.action && plan.reason == v.reason && plan.scale == v.scale);
        n++;
    } while (v.action == GS_RETRY);
    if (runs)
        *runs = n;
    return v;
}

static gs_scaler make(const char *spec, const char *set)
{
    gs_scaler s;
    gs_error error = {0};
    CHECK_MSG(gs_scaler_init(&s, spec, &error) == GS_OK, "%s", error.text);
    CHECK_MSG(gs_scaler_set(&s, set, &error) == GS_OK, "%s", error.text);
    return s;
}

static gs_verdict flag(gs_scaler *s, int found)
{
    gs_step step;
    gs_step_begin(&step, s);
    gs_step_flag(&step, found);
    return gs_step_end(&step, s);
}

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
    for (int round = 0; round < 400; round++) {
        static const char *const sets[] = {
            "interval=1",           "interval=2 lowest=0x1p-3 highest=0x1p+20",
            "on_overflow=retry:2",  "on_overflow=attribute",
            "probe=yes interval=1", "state=f16 interval=1 init=3"};
        const char *name = gs_preset_name((size_t)round % 35);
        gs_scaler s;
        gs_error error;
        gs_scaler_init(&s, name, NULL);
        if (gs_scaler_set(&s, sets[(size_t)round / 35 % ROWS(sets)], &error) != GS_OK)
            continue;
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

static void test_unscale_is_idempotent(void)
{
    float grad[3] = {65536, 2 * 65536, -65536}, half_as_f32[2];
    uint16_t half[2] = {0x7BFF, 0x3C00};
    gs_context *ctx;
    gs_context_create(&ctx, &(gs_config){.threads = 1});
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

/* ---- threads of users ---- */

static void test_pytorch98828_flax2547_ceiling(void)
{
    static const char *const presets[] = {"pytorch", "flax", "keras", "pytorch-mps", "megatron"};
    for (size_t k = 0; k < ROWS(presets); k++) {
        gs_scaler s = make(presets[k], "interval=1");
        for (int i = 0; i < 1000; i++)
            CHECK(flag(&s, 0).action == GS_APPLY);
        CHECK(gs_scaler_scale(&s) == 0x1p+40 && gs_scaler_health(&s) == GS_AT_CEILING);
        flag(&s, 1);
        flag(&s, 1);
        CHECK(gs_scaler_scale(&s) < 0x1p+40 && gs_scaler_health(&s) == GS_HEALTHY);
    }
}

static void test_apex834_nan_every_step(void)
{
    char text[240];
    gs_tensor list[] = {{NULL, 0, GS_F32, "stem", 0}, {NULL, 0, GS_F32, "layer4.weight", 0}};
    gs_scaler s = make("apex", "stuck=20 lowest=1");
    for (int i = 0; i < 60; i++) {
        gs_stats stats;
        gs_stats_init(&stats);
        stats.elements = 5000;
        stats.nan = 1;
        stats.bad_tensor = 1;
        stats.bad_index = 1203;
        gs_step step;
        gs_step_begin(&step, &s);
        gs_step_scan(&step, &stats);
        CHECK(gs_step_end(&step, &s).action == GS_SKIP);
        CHECK(isfinite(1 / step.scale) && step.scale >= 1);
        CHECK((gs_scaler_health(&s) == GS_STUCK) == (i >= 19));
    }
    CHECK(gs_scaler_scale(&s) == 1);
    gs_scaler_explain(text, sizeof text, &s, list, 2);
    CHECK_MSG(strstr(text, "layer4.weight[1203] is NaN at every scale from 65536 to 1: loss scaling"
                           " is not the cause") == text,
              "%s", text);
}

static void test_keras16100_scale_below_one(void)
{
    gs_scaler s = make("pytorch", "");
    int applied = 0;
    for (int i = 0; i < 60; i++)
        applied += batch(&s, 65504 * 32.0, NULL).action == GS_APPLY;
    CHECK(gs_scaler_scale(&s) == 0x1p-5 && applied == 60 - 21);
    s = make("keras", "floor=1"); /* and where the floor does not allow it, that is said */
    for (int i = 0; i < 60; i++)
        CHECK(batch(&s, 65504 * 32.0, NULL).action == GS_SKIP);
    CHECK(gs_scaler_health(&s) == GS_STUCK);
}

static void test_pytorch96755_unscaled_overflow(void)
{
    gs_scaler s = make("pytorch", "lowest=off highest=off init=0x1p-100");
    gs_step step;
    gs_step_begin(&step, &s);
    gs_step_amax(&step, 0x1p+40); /* finite, but 2^140 in true units */
    const gs_verdict v = gs_step_end(&step, &s);
    CHECK(v.action == GS_SKIP && v.reason == GS_REASON_INF);
    CHECK(gs_scaler_scale(&s) == 0x1p-100); /* a lower one would make it worse */
    for (int i = 0; i < 60; i++)
        gs_scaler_update(&s, 1);
    gs_step_begin(&step, &s);
    CHECK(step.scale == 0); /* raw parity was asked for; but what 1 / 0 makes is not applied */
    gs_step_amax(&step, 0);
    CHECK(gs_step_end(&step, &s).action == GS_SKIP);
}

/* The norm is taken in true units and in a type that holds it; a clip to 1 gives 1, not 0. */
static void test_burn5699_fairscale263_norm(void)
{
    gs_context *ctx;
    gs_context_create(&ctx, &(gs_config){.threads = 1});
    gs_scaler s = make("static:128", "");
    uint16_t half = gs_f32_to_f16(300 * 128);
    float grad;
    gs_tensor list[] = {{&half, 1, GS_F16, "w", 0}}, to[] = {{&grad, 1, GS_F32, "w", 0}};
    gs_step step, shards;
    gs_step_begin(&step, &s);
    CHECK(gs_step_unscale(&step, ctx, to, list, 1) == GS_OK && grad == 300);
    const double norm = sqrt(step.stats.sumsq) * step.inverse;
    CHECK(norm == 300 && fabs((double)grad * (1 / norm) - 1) < 1e-6);
    CHECK(gs_step_end(&step, &s).action == GS_APPLY);

    gs_step_begin(&shards, &s); /* eight of them, each of norm 5000 */
    for (int i = 0; i < 8; i++) {
        gs_stats stats;
        gs_stats_init(&stats);
        stats.elements = 1;
        stats.amax = 60000;
        stats.sumsq = (5000.0 * 128) * (5000.0 * 128);
        gs_step_scan(&shards, &stats);
    }
    CHECK(fabs(sqrt(shards.stats.sumsq) * shards.inverse - 5000 * sqrt(8)) < 1e-6);
    CHECK(gs_step_end(&shards, &s).action == GS_APPLY);
    gs_context_free(ctx);
}

static void test_deepspeed2686_fairchem617_scale_of_the_step(void)
{
    gs_scaler s = make("pytorch", "interval=1");
    gs_step step;
    gs_step_begin(&step, &s);
    gs_step_amax(&step, 65536 * 0.5);
    const gs_verdict v = gs_step_end(&step, &s);
    CHECK(v.action == GS_APPLY && v.scale == 131072);
    /* after the growth the step still divides by the scale that multiplied its loss */
    CHECK(step.scale == 65536 && (double)step.stats.amax * step.inverse == 0.5);
}

static void test_pytorch44511_applied_is_counted(void)
{
    gs_scaler s = make("pytorch", "");
    const int pattern[] = {1, 1, 0, 1, 0, 0};
    for (size_t i = 0; i < ROWS(pattern); i++)
        flag(&s, pattern[i]);
    CHECK(s.counters.attempted == 6 && s.counters.applied == 3 &&
          s.counters.skipped[GS_REASON_INF] == 3);
}

static void test_gof2_no_grads_and_lvsm19_abandon(void)
{
    gs_scaler s = make("pytorch", "");
    gs_stats empty;
    gs_step step;
    gs_stats_init(&empty);
    gs_step_begin(&step, &s);
    gs_step_scan(&step, &empty);
    CHECK(!step.amax_known && gs_step_end(&step, &s).reason == GS_REASON_NO_GRADS);
    gs_step_begin(&step, &s);
    gs_step_flag(&step, 1);
    gs_step_abandon(&step, &s);
    const gs_verdict v = flag(&s, 0);
    CHECK(v.action == GS_APPLY && v.scale == 65536);
}

/* Ranks that merge decide alike, whatever each saw. */
static void test_fairscale180_ranks_agree(void)
{
    enum { RANKS = 4 };
    static const char *const specs[] = {"pytorch", "megatron", "headroom", "logmax"};
    for (size_t k = 0; k < ROWS(specs); k++) {
        gs_scaler s[RANKS];
        for (int r = 0; r < RANKS; r++)
            s[r] = make(specs[k], k < 2 ? "on_overflow=attribute interval=7" : "");
        for (uint64_t i = 0; i < 400; i++) {
            gs_step local[RANKS];
            gs_verdict first = {0};
            for (int r = 0; r < RANKS; r++) {
                const uint32_t x = gs_random_u32(5, i * RANKS + (uint64_t)r);
                gs_step_begin(&local[r], &s[r]);
                gs_step_amax(&local[r], x % 40 == 0 ? (double)INFINITY : (double)(x % 60000));
            }
            for (int r = 0; r < RANKS; r++) {
                gs_step all;
                gs_step_begin(&all, &s[r]);
                for (int q = 0; q < RANKS; q++) /* each in its own order */
                    gs_step_merge(&all, &local[(r + q) % RANKS]);
                const gs_verdict v = gs_step_end(&all, &s[r]);
                if (r == 0)
                    first = v;
                CHECK(v.action == first.action && v.reason == first.reason &&
                      v.scale == first.scale);
            }
            CHECK(memcmp(&s[0].machine, &s[3].machine, sizeof s[0].machine) == 0);
        }
    }
}

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

/* ---- health and sentences ---- */

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
    CHECK(gs_context_create(&ctx, NULL) == GS_OK);
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
        CHECK(gs_tensors_exponents(ctx, list, 1, &x, NULL) == GS_OK);
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
      {"unscale_is_idempotent", test_unscale_is_idempotent},
      {"pytorch98828_flax2547_ceiling", test_pytorch98828_flax2547_ceiling},
      {"apex834_nan_every_step", test_apex834_nan_every_step},
      {"keras16100_scale_below_one", test_keras16100_scale_below_one},
      {"pytorch96755_unscaled_overflow", test_pytorch96755_unscaled_overflow},
      {"burn5699_fairscale263_norm", test_burn5699_fairscale263_norm},
      {"deepspeed2686_fairchem617_scale_of_the_step",
       test_deepspeed2686_fairchem617_scale_of_the_step},
      {"pytorch44511_applied_is_counted", test_pytorch44511_applied_is_counted},
      {"gof2_no_grads_and_lvsm19_abandon", test_gof2_no_grads_and_lvsm19_abandon},
      {"fairscale180_ranks_agree", test_fairscale180_ranks_agree},
      {"apex114_two_losses", test_apex114_two_losses},
      {"apex_two_backwards_one_scaler", test_apex_two_backwards_one_scaler},
      {"apex_delay_unscale", test_apex_delay_unscale}, {"couplings", test_couplings},
      {"liger830_dropped_microbatch", test_liger830_dropped_microbatch},
      {"pytorch90057_unequal_microbatches", test_pytorch90057_unequal_microbatches},
      {"health", test_health}, {"histogram_step", test_histogram_step})
