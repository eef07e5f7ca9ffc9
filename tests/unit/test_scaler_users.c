/* What users of other scalers ran into, each test named after its thread. */
#include "scaler_steps.h"

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
    gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL);
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
    gs_step step;
    gs_step_begin(&step, &s);
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

TESTS({"pytorch98828_flax2547_ceiling", test_pytorch98828_flax2547_ceiling},
      {"apex834_nan_every_step", test_apex834_nan_every_step},
      {"keras16100_scale_below_one", test_keras16100_scale_below_one},
      {"pytorch96755_unscaled_overflow", test_pytorch96755_unscaled_overflow},
      {"burn5699_fairscale263_norm", test_burn5699_fairscale263_norm},
      {"deepspeed2686_fairchem617_scale_of_the_step",
       test_deepspeed2686_fairchem617_scale_of_the_step},
      {"pytorch44511_applied_is_counted", test_pytorch44511_applied_is_counted},
      {"gof2_no_grads_and_lvsm19_abandon", test_gof2_no_grads_and_lvsm19_abandon},
      {"fairscale180_ranks_agree", test_fairscale180_ranks_agree})
