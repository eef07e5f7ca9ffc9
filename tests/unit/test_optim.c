/* The optimizers' steps: atomic, the same bits on any machine, clipped in true units; what they say
 * to bad input. Their rules: test_optim_rules; arithmetic of the kernels: checkoptim. */
#include "levels.h"
#include "optim_rig.h"

#include <fenv.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---- all or nothing ---- */

static void test_skip(void)
{
    for (size_t k = 0; k < KINDS; k++)
        for (size_t s = 0; s < STORAGES; s++) {
            rig r = {0};
            rig_spec spec;
            char settings[128];
            if (!spec_of(&spec, settings, k, s))
                continue;
            CHECK(rig_open(&r, &spec) == GS_OK);
            float also[100];
            for (int i = 0; i < 100; i++)
                also[i] = 1;
            const gs_tensor buffer = {also, 100, GS_F32, "sum", 0};
            CHECK(gs_optim_also_clear(r.optim, &buffer, 1) == GS_OK);
            rig_step(&r, 0, 0);
            rig_step(&r, 1, 0);
            const uint64_t before = rig_hash(&r);
            const gs_optim_state state = gs_optim_get_state(r.optim);
            const double scale = gs_scaler_scale(&r.scaler);
            gs_optim_report report = rig_step(&r, 2, INFINITY);
            CHECK(report.verdict.action == GS_SKIP && report.verdict.reason == GS_REASON_INF);
            CHECK(isinf(report.norm));
            report = rig_step(&r, 2, NAN);
            CHECK(report.verdict.action == GS_SKIP && report.verdict.reason == GS_REASON_NAN);
            CHECK(isnan(report.norm));
            CHECK_MSG(rig_hash(&r) == before, "%s %s", spec.kind, spec.settings);
            gs_optim_state after = gs_optim_get_state(r.optim);
            CHECK(after.skipped == state.skipped + 2 && after.applied == 2);
            after.skipped = state.skipped;
            CHECK(memcmp(&after, &state, sizeof after) == 0);
            CHECK(gs_scaler_scale(&r.scaler) == scale / 4);
            const gs_tensor grads = gs_store_grads(r.store);
            for (size_t i = 0; i < grads.count; i++)
                CHECK(get(grads.data, grads.dtype, i) == 0);
            CHECK(also[0] == 0 && also[99] == 0);
            report = rig_step(&r, 2, 0); /* and it goes on */
            CHECK(report.verdict.action == GS_APPLY && rig_hash(&r) != before);
            rig_close(&r);
        }
}

/* A run with skipped steps in it is the run without them. */
static void test_skips_leave_no_trace(void)
{
    for (size_t k = 0; k < KINDS; k++) {
        uint64_t ends[2];
        for (int spoiled = 0; spoiled < 2; spoiled++) {
            rig r = {0};
            const rig_spec spec = {.kind = kinds[k],
                                   .settings =
                                       "schedule=linear total=20 warmup=3 ema=0.9 clip_norm=0.05",
                                   .scaler = "static:1024",
                                   .types = {GS_F32, GS_F16, GS_F32}};
            CHECK(rig_open(&r, &spec) == GS_OK);
            for (unsigned turn = 0; turn < 6; turn++) {
                if (spoiled && turn % 2)
                    rig_step(&r, turn, turn == 1 ? INFINITY : NAN);
                rig_step(&r, turn, 0);
            }
            ends[spoiled] = rig_hash(&r);
            CHECK(gs_optim_get_state(r.optim).skipped == (spoiled ? 3 : 0));
            rig_close(&r);
        }
        CHECK_MSG(ends[0] == ends[1], "%s", kinds[k]);
    }
}

static void test_retry_and_keep(void)
{
    rig r = {0};
    const rig_spec spec = {
        .kind = "adamw", .settings = "clear_grads=no", .types = {GS_F32, GS_F16, GS_F16}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    CHECK(gs_scaler_set(&r.scaler, "on_overflow=retry:2", NULL) == GS_OK);
    const gs_optim_report report = rig_step(&r, 0, INFINITY);
    CHECK(report.verdict.action == GS_RETRY);
    CHECK(gs_optim_get_state(r.optim).retried == 1 && gs_optim_get_state(r.optim).skipped == 0);
    CHECK(get(r.list[1].grad, GS_F16, 0) != 0); /* kept */
    CHECK(rig_step(&r, 0, 0).verdict.action == GS_APPLY);
    rig_close(&r);
}

/* ---- the same bits everywhere ---- */

static void test_same_bits(void)
{
    static const struct {
        unsigned threads, without;
    } machines[] = {{1, ~0u}, {3, ~0u}, {2, (unsigned)~GS_CPU_AVX2}, {4, 0}, {1, 0}};
    cpu_levels();
    for (size_t k = 0; k < KINDS; k++)
        for (size_t s = 0; s < STORAGES; s++) {
            uint64_t first = 0;
            for (size_t m = 0; m < sizeof machines / sizeof machines[0]; m++) {
                rig r = {0};
                rig_spec spec;
                char settings[128];
                if (!spec_of(&spec, settings, k, s))
                    continue;
                spec.threads = machines[m].threads;
                spec.without_cpu = machines[m].without;
                CHECK(rig_open(&r, &spec) == GS_OK);
                double norm = 0;
                for (unsigned turn = 0; turn < 4; turn++)
                    norm += rig_step(&r, turn, 0).norm;
                const uint64_t end = hash(rig_hash(&r), &norm, sizeof norm);
                first = m == 0 ? end : first;
                CHECK_MSG(end == first, "%s %s on machine %zu", spec.kind, spec.settings, m);
                rig_close(&r);
            }
        }
}

/* Several chunks per weight, and a list that ends in the middle of one. */
static void test_same_bits_large(void)
{
    enum { N = 200000 };
    static float w[N], g[N], ends[2][N];
    for (int m = 0; m < 2; m++) {
        const gs_config with = {
            .size = sizeof with, .threads = m ? 4 : 1, .without_cpu = m ? 0 : ~0u};
        gs_context *ctx;
        gs_optim *optim;
        gs_scaler scaler;
        gs_optim_config config = {.size = sizeof config};
        CHECK(gs_context_create(&ctx, &with, NULL) == GS_OK);
        CHECK(gs_scaler_init(&scaler, "static:1", NULL) == GS_OK);
        CHECK(gs_optim_config_init(&config, "lamb", NULL) == GS_OK);
        const gs_weight list[] = {{.name = "w", .rows = 1, .cols = N, .data = w, .grad = g}};
        for (size_t i = 0; i < N; i++) {
            w[i] = noise(1, i);
            g[i] = noise(2, i);
        }
        CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_OK);
        for (int t = 0; t < 3; t++) {
            gs_step step;
            gs_step_begin(&step, &scaler);
            CHECK(gs_optim_step(optim, &step, &scaler, NULL) == GS_OK);
        }
        memcpy(ends[m], w, sizeof w);
        gs_optim_free(optim);
        gs_context_free(ctx);
    }
    CHECK(memcmp(ends[0], ends[1], sizeof w) == 0);
}

/* The caller's floating-point mode is not the step's. */
static void test_modes(void)
{
    static const int rounding[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    for (size_t k = 0; k < KINDS; k++) {
        uint64_t first = 0;
        for (size_t m = 0; m < sizeof rounding / sizeof rounding[0]; m++) {
            rig r = {0};
            const rig_spec spec = {.kind = kinds[k],
                                   .settings = "schedule=cosine total=9 weight_decay=0.1 "
                                               "ema=0.9 clip_norm=0.05",
                                   .types = {GS_F32, GS_F16, GS_F32}};
            CHECK(rig_open(&r, &spec) == GS_OK);
            double sum = 0;
            for (unsigned turn = 0; turn < 3; turn++) {
                gs_step step;
                gs_optim_report report;
                gs_step_begin(&step, &r.scaler);
                rig_grads(&r, step.scale, turn);
                fesetround(rounding[m]);
#if defined(__x86_64__)
                const unsigned usual = _mm_getcsr(), flags = 0x3F;
                const unsigned mode = usual | (m ? 0x8040 : 0); /* flush to zero, both ways */
                _mm_setcsr(mode);
#endif
                CHECK(gs_optim_step(r.optim, &step, &r.scaler, &report) == GS_OK);
                CHECK(fegetround() == rounding[m]);
#if defined(__x86_64__)
                CHECK((_mm_getcsr() | flags) == (mode | flags));
                _mm_setcsr(usual);
#endif
                fesetround(FE_TONEAREST);
                sum += report.norm + report.clip + report.lr;
            }
            const uint64_t end = hash(rig_hash(&r), &sum, sizeof sum);
            first = m == 0 ? end : first;
            CHECK_MSG(end == first, "%s, mode %zu", kinds[k], m);
            rig_close(&r);
        }
    }
}

/* Saved in the middle and taken up elsewhere. */
static void test_restore(void)
{
    for (size_t k = 0; k < KINDS; k++)
        for (size_t s = 0; s < STORAGES; s++) {
            rig a = {0}, b = {0};
            rig_spec spec;
            char settings[128];
            if (!spec_of(&spec, settings, k, s))
                continue;
            CHECK(rig_open(&a, &spec) == GS_OK && rig_open(&b, &spec) == GS_OK);
            for (unsigned turn = 0; turn < 3; turn++)
                rig_step(&a, turn, 0);
            const gs_optim_state state = gs_optim_get_state(a.optim);
            const gs_tensor from = gs_store_data(a.store), to = gs_store_data(b.store);
            memcpy(to.data, from.data, from.count * gs_dtype_format(from.dtype)->bytes);
            for (size_t t = 0; t < WEIGHTS; t++)
                for (int slot = 0; slot < GS_SLOT_COUNT; slot++) {
                    const gs_tensor x = gs_optim_slot(a.optim, t, (gs_slot)slot);
                    const gs_tensor y = gs_optim_slot(b.optim, t, (gs_slot)slot);
                    CHECK(x.count == y.count && x.dtype == y.dtype);
                    if (x.count)
                        memcpy(y.data, x.data, x.count * gs_dtype_format(x.dtype)->bytes);
                }
            CHECK(gs_optim_set_state(b.optim, &state) == GS_OK);
            b.scaler = a.scaler;
            rig_step(&a, 3, 0);
            rig_step(&b, 3, 0);
            CHECK_MSG(rig_hash(&a) == rig_hash(&b), "%s %s", spec.kind, spec.settings);
            rig_close(&a);
            rig_close(&b);
        }
}

/* ---- clipping, in true units ---- */

static void test_clip(void)
{
    double norms[2], weights[3];
    for (int m = 0; m < 3; m++) {
        rig r = {0};
        const rig_spec spec = {.kind = "sgd",
                               .settings = m == 2 ? "lr=1" : "lr=1 clip_norm=0.25",
                               .scaler = m ? "static:65536" : "static:1",
                               .types = {GS_F32, GS_F32, GS_F32}};
        CHECK(rig_open(&r, &spec) == GS_OK);
        const double start = (double)((float *)r.list[0].data)[77];
        const gs_optim_report report = rig_step(&r, 0, 0);
        if (m < 2)
            norms[m] = report.norm;
        weights[m] = ((double)((float *)r.list[0].data)[77] - start) / (m == 2 ? 1 : report.clip);
        CHECK(m == 2 ? report.clip == 1 : fabs(report.clip * (report.norm + 1e-6) - 0.25) < 1e-12);
        rig_close(&r);
    }
    CHECK(norms[0] == norms[1] && fabs(norms[0] - 0.01 * sqrt(19201 / 3.0)) < 0.01);
    CHECK(weights[0] == weights[1]);
    CHECK_MSG(fabs(weights[0] / weights[2] - 1) < 1e-4, "%g %g", weights[0], weights[2]);
}

/* The growth of the scale at the end of a step changes nothing of that step's norm. */
static void test_norm_on_growth(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "sgd", .settings = "lr=0", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    CHECK(gs_scaler_set(&r.scaler, "interval=3", NULL) == GS_OK);
    const double scale = gs_scaler_scale(&r.scaler);
    double norms[4];
    for (int t = 0; t < 4; t++)
        norms[t] = rig_step(&r, 0, 0).norm;
    CHECK(gs_scaler_scale(&r.scaler) == 2 * scale);
    CHECK(norms[0] == norms[1] && norms[1] == norms[2] && norms[2] == norms[3]);
    rig_close(&r);
}

static void test_clip_value(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "sgd",
                           .settings = "lr=1 clip_value=0.004",
                           .scaler = "static:4096",
                           .types = {GS_F32, GS_F32, GS_F16}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    float before[1000];
    memcpy(before, r.list[1].data, sizeof before);
    rig_step(&r, 0, 0);
    const float *after = r.list[1].data;
    int at_limit = 0;
    for (size_t i = 0; i < 1000; i++) {
        const float g = gs_f16_to_f32(gs_f32_to_f16(0.01f * noise(101, i) * 4096)) / 4096;
        const float want = g > 0.004f ? 0.004f : g < -0.004f ? -0.004f : g;
        at_limit += want != g;
        CHECK(after[i] == before[i] - want);
    }
    CHECK(at_limit > 400);
    rig_close(&r);
}

/* Gradients unscaled by gs_step_unscale are not unscaled again. */
static void test_unscaled(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "sgd",
                           .settings = "lr=1 clip_norm=100",
                           .scaler = "static:1024",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    gs_step step;
    gs_optim_report report;
    gs_step_begin(&step, &r.scaler);
    rig_grads(&r, step.scale, 0);
    float *w = r.list[0].data, before = w[5];
    const gs_tensor grads = gs_store_grads(r.store);
    CHECK(gs_step_unscale(&step, r.ctx, NULL, &grads, 1) == GS_OK);
    const gs_verdict verdict = gs_step_end(&step, &r.scaler);
    CHECK(gs_optim_act(r.optim, &step, verdict, &report) == GS_OK);
    CHECK(w[5] == before - 0.01f * noise(100, 5));
    CHECK(fabs(report.norm - 0.01 * sqrt(19201 / 3.0)) < 0.01);
    rig_close(&r);
}

/* Nor are they scanned again. Unscaled in a pass of their own or in that of the update, gradients
 * give the same norm, skips, learning rate, t and bits, at scales above and below 1. */
static void test_accelerate4242_unfused(void)
{
    static const char *const scalers[] = {"static:1", "static:0.125", "static:1024"};
    for (size_t k = 0; k < KINDS * 3; k++) {
        rig a = {0}, b = {0};
        gs_optim_state ends[2];
        gs_optim_report reports[2];
        const rig_spec spec = {.kind = kinds[k / 3],
                               .settings = "clip_norm=0.1 warmup=3",
                               .scaler = scalers[k % 3],
                               .types = {GS_F32, GS_F16, GS_F32}};
        CHECK(rig_open(&a, &spec) == GS_OK && rig_open(&b, &spec) == GS_OK);
        for (unsigned turn = 0; turn < 3; turn++) {
            for (int unfused = 0; unfused < 2; unfused++) {
                rig *x = unfused ? &b : &a;
                gs_step step;
                gs_step_begin(&step, &x->scaler);
                rig_grads(x, step.scale, turn);
                if (turn == 1)
                    put(x->list[1].grad, GS_F32, 500, INFINITY);
                gs_tensor grads[WEIGHTS];
                for (size_t t = 0; t < WEIGHTS; t++)
                    grads[t] = (gs_tensor){x->list[t].grad, x->list[t].rows * x->list[t].cols,
                                           GS_F32, x->list[t].name, 0};
                if (unfused)
                    CHECK(gs_step_unscale(&step, x->ctx, NULL, grads, WEIGHTS) == GS_OK);
                CHECK(gs_optim_step(x->optim, &step, &x->scaler, &reports[unfused]) == GS_OK);
                ends[unfused] = gs_optim_get_state(x->optim);
            }
            CHECK(reports[0].verdict.action == (turn == 1 ? GS_SKIP : GS_APPLY));
            CHECK(reports[1].verdict.action == reports[0].verdict.action);
            CHECK_MSG(reports[1].norm == reports[0].norm, "%s %s: %g", spec.kind, spec.scaler,
                      reports[1].norm / reports[0].norm);
            CHECK(reports[1].lr == reports[0].lr);
            CHECK(ends[1].applied == ends[0].applied && ends[1].skipped == ends[0].skipped);
            CHECK_MSG(rig_hash(&a) == rig_hash(&b), "%s %s", spec.kind, spec.scaler);
        }
        CHECK(ends[0].applied == 2 && ends[0].skipped == 1);
        rig_close(&a);
        rig_close(&b);
    }
}

/* A list that was left out: its gradients are scaled still, and nobody has looked at them. */
static void test_partly_unscaled(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "sgd", .scaler = "static:8", .types = {GS_F32, GS_F16, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    gs_step step;
    gs_step_begin(&step, &r.scaler);
    rig_grads(&r, step.scale, 0);
    gs_tensor grads[WEIGHTS];
    for (size_t t = 0; t < WEIGHTS; t++)
        grads[t] = (gs_tensor){r.list[t].grad, r.list[t].rows * r.list[t].cols, GS_F32, NULL, 0};
    const uint64_t before = rig_hash(&r);
    CHECK(gs_step_unscale(&step, r.ctx, NULL, grads + 1, WEIGHTS - 1) == GS_OK);
    CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_ESTATE);
    CHECK_MSG(strstr(gs_context_error(r.ctx)->text, "unscale all of them or none"), "%s",
              gs_context_error(r.ctx)->text);
    CHECK(rig_hash(&r) == before && !step.ended);
    CHECK(gs_step_unscale(&step, r.ctx, NULL, grads, 1) == GS_OK);
    CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_OK && rig_hash(&r) != before);
    rig_close(&r);
}

/* A step is applied once. */
static void test_ended_step(void)
{
    rig r = {0};
    const rig_spec spec = {
        .kind = "adamw", .settings = "clip_norm=1", .types = {GS_F32, GS_F16, GS_F16}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    gs_step step;
    gs_step_begin(&step, &r.scaler);
    rig_grads(&r, step.scale, 0);
    CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_OK);
    const uint64_t before = rig_hash(&r);
    CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_ESTATE);
    CHECK(rig_hash(&r) == before && gs_optim_get_state(r.optim).applied == 1);
    rig_close(&r);
}

/* One that fails has not been scanned either: it can be tried again. */
static void test_failed_step(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "sgd", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    gs_step step;
    gs_step_begin(&step, &r.scaler);
    rig_grads(&r, step.scale, 0);
    step.inverse = 0x1p+40;
    CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_ERANGE);
    CHECK(!step.ended && !step.looked && step.stats.elements == 0 && step.stats.sumsq == 0);
    rig_close(&r);
}

/* The square of 300 is beyond f16, its norm is not. */
static void test_burn5699_clip(void)
{
    gs_context *ctx;
    gs_optim *optim;
    gs_optim_config config = {.size = sizeof config};
    gs_scaler scaler;
    gs_step step;
    gs_optim_report report;
    float weight = 0;
    uint16_t grad = gs_f32_to_f16(300);
    const gs_weight w = {.name = "w",
                         .rows = 1,
                         .cols = 1,
                         .data = &weight,
                         .dtype = GS_F32,
                         .grad = &grad,
                         .grad_dtype = GS_F16};
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_scaler_init(&scaler, "static:1", NULL) == GS_OK);
    CHECK(gs_optim_config_init(&config, "sgd", NULL) == GS_OK);
    CHECK(gs_optim_config_set(&config, "lr=1 clip_norm=1", NULL) == GS_OK);
    CHECK(gs_optim_create(&optim, ctx, &w, 1, &config) == GS_OK);
    gs_step_begin(&step, &scaler);
    CHECK(gs_optim_step(optim, &step, &scaler, &report) == GS_OK);
    CHECK(report.norm == 300 && fabs((double)weight + 1) < 1e-6);
    grad = 0; /* a norm of 0 divides nothing */
    const float before = weight;
    gs_step_begin(&step, &scaler);
    CHECK(gs_optim_step(optim, &step, &scaler, &report) == GS_OK);
    CHECK(report.norm == 0 && report.clip == 1 && weight == before);
    gs_optim_free(optim);
    gs_context_free(ctx);
}

/* A flag alone says neither what to clip by nor how to scale moments in f16. */
static void test_flag_only(void)
{
    static const char *const settings[] = {"clip_norm=1", "moments=f16", ""};
    for (size_t k = 0; k < sizeof settings / sizeof settings[0]; k++) {
        rig r = {0};
        const rig_spec spec = {
            .kind = "adamw", .settings = settings[k], .types = {GS_F32, GS_F16, GS_F32}};
        CHECK(rig_open(&r, &spec) == GS_OK);
        const uint64_t before = rig_hash(&r);
        gs_step step;
        gs_step_begin(&step, &r.scaler);
        rig_grads(&r, step.scale, 0);
        gs_step_flag(&step, 0);
        const gs_verdict verdict = gs_step_decide(&step, &r.scaler);
        CHECK(verdict.action == GS_APPLY);
        CHECK(gs_optim_act(r.optim, &step, verdict, NULL) == (k < 2 ? GS_ESTATE : GS_OK));
        CHECK((rig_hash(&r) == before) == (k < 2));
        CHECK(gs_optim_get_state(r.optim).applied == (k < 2 ? 0 : 1));
        rig_close(&r);
    }
}

/* ---- bad input ---- */

static void test_bad_settings(void)
{
    static const struct {
        const char *kind, *settings, *says;
    } table[] = {
        {"adam", "lr=nan", "lr=nan: lr must be from 0 to 1e+06"},
        {"adam", "lr=inf", "lr=inf: lr must be"},
        {"adam", "lr=-1", "lr=-1: lr must be"},
        {"adam", "beta1=1", "beta1=1: beta1 must be from 0 to below 1"},
        {"adam", "beta2=1.5", "beta2=1.5: beta2 must be"},
        {"adam", "eps=1e-40", "eps=1e-40: eps must be 0 or"},
        {"adam", "lr=fast", "lr=fast: lr must be a number"},
        {"adam", "lr", "'lr' is not key=value"},
        {"adam", "lr=1e7", "lr=1e+07: lr must be from 0 to 1e+06"},
        {"adam", "warmup=2.5", "warmup=2.5: warmup must be a whole number"},
        {"adam", "learning_rate=1", "no setting learning_rate"},
        {"adam", "momentum=0.9", "momentum is a setting of sgd"},
        {"adam", "schedule=cosine warmup=3",
         "warmup=3 total=0: the schedule cosine needs a total above its warmup"},
        {"adam", "schedule=step every=0", "every=0: every must be at least 1"},
        {"adam", "schedule=wavy",
         "schedule=wavy: constant, linear, cosine, step and onecycle exist"},
        {"sgd", "nesterov=yes", "nesterov needs a momentum"},
        {"sgd", "momentum=0.9 dampening=0.5 nesterov=yes", "no dampening"},
        {"sgd", "clip_norm=-1", "clip_norm=-1: clip_norm must be"},
        {"sgd", "rounding=up", "rounding=up: nearest"},
        {"sgd", "lr=10 weight_decay=1", "change sign"},
        {"adafactor", "moments=f16", "keeps it in f32"},
        {"adafactor", "factor_eps=0", "factor_eps"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        gs_optim_config config = {.size = sizeof config}, before;
        gs_error error = {0};
        CHECK(gs_optim_config_init(&config, table[i].kind, &error) == GS_OK);
        before = config;
        CHECK(gs_optim_config_set(&config, table[i].settings, &error) != GS_OK);
        CHECK_MSG(strstr(error.text, table[i].says), "%s: %s", table[i].settings, error.text);
        CHECK(memcmp(&config, &before, sizeof config) == 0);
    }
    gs_optim_config config = {.size = sizeof config};
    gs_error error;
    CHECK(gs_optim_config_init(&config, "sdg", &error) == GS_ENAME && strstr(error.text, "sdg"));
    CHECK(gs_optim_config_init(&config, "adam", NULL) == GS_OK);
    config.lr = (double)NAN; /* set past the parser */
    CHECK(gs_optim_config_check(&config, &error) == GS_ERANGE && strstr(error.text, "lr"));
    for (size_t i = 0; gs_optim_key(i); i++)
        CHECK(gs_optim_key(i)[0] != 0);
}

static void test_bad_weights(void)
{
    gs_context *ctx;
    gs_optim *optim;
    gs_optim_config config = {.size = sizeof config};
    float w[8] = {0}, g[8] = {0};
    uint16_t half[8] = {0};
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_optim_config_init(&config, "adamw", NULL) == GS_OK);
    const gs_weight good = {.name = "w", .rows = 1, .cols = 4, .data = w, .grad = g};
    gs_weight bad[10];
    for (int i = 0; i < 10; i++)
        bad[i] = good;
    bad[0].name = NULL;
    bad[1].data = NULL;
    bad[2].grad = NULL;
    bad[3].dtype = GS_F64;
    bad[4].grad_dtype = (gs_dtype)99;
    bad[5].rows = SIZE_MAX;
    bad[6].data = (char *)w + 1;
    bad[7].copy = half;
    bad[7].copy_dtype = GS_F64;
    bad[8].dtype = GS_F16;
    bad[8].copy = half;
    bad[8].copy_dtype = GS_F16;
    bad[9].grad = w + 2;
    static const gs_status want[10] = {GS_ENAME, GS_ENULL,  GS_ENULL,  GS_EDTYPE, GS_EDTYPE,
                                       GS_ESIZE, GS_EALIGN, GS_EDTYPE, GS_EDTYPE, GS_ERANGE};
    for (int i = 0; i < 10; i++) {
        CHECK_MSG(gs_optim_create(&optim, ctx, &bad[i], 1, &config) == want[i], "row %d: %s", i,
                  gs_context_error(ctx)->text);
        CHECK(optim == NULL && gs_context_error(ctx)->text[0]);
    }
    const gs_weight twice[] = {good,
                               {.name = "w", .rows = 1, .cols = 4, .data = w + 4, .grad = g + 4}};
    CHECK(gs_optim_create(&optim, ctx, twice, 2, &config) == GS_ENAME);
    CHECK(strstr(gs_context_error(ctx)->text, "two weights are called w"));
    const gs_weight tied[] = {good, {.name = "x", .rows = 1, .cols = 4, .data = w, .grad = g + 4}};
    CHECK(gs_optim_create(&optim, ctx, tied, 2, &config) == GS_ERANGE);
    CHECK(strstr(gs_context_error(ctx)->text, "overlap"));
    CHECK(gs_optim_create(&optim, ctx, NULL, 2, &config) == GS_ENULL);
    CHECK(gs_optim_create(NULL, ctx, &good, 1, &config) == GS_ENULL);
    CHECK(gs_optim_create(&optim, ctx, &good, 1, NULL) == GS_ENULL);

    gs_store *store;
    const gs_store_entry same[] = {{"a", 1, 4, 0}, {"a", 1, 4, 0}};
    const gs_store_types types = {GS_F32, GS_F32, GS_F32}, wrong = {GS_F16, GS_BF16, GS_F32};
    const gs_store_entry huge[] = {{"a", SIZE_MAX / 2, 3, 0}};
    const gs_store_entry large[] = {{"a", SIZE_MAX / 8, 1, 0}};
    CHECK(gs_store_create(&store, ctx, same, 2, types) == GS_ENAME);
    CHECK(gs_store_create(&store, ctx, same, 1, wrong) == GS_EDTYPE);
    CHECK(gs_store_create(&store, ctx, huge, 1, types) == GS_ESIZE);
    CHECK(gs_store_create(&store, ctx, large, 1, types) == GS_ESIZE && store == NULL);
    gs_context_free(ctx);
}

/* Errors of a step change nothing. */
static void test_bad_steps(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "adamw",
                           .settings = "clip_norm=1",
                           .scaler = "static:1",
                           .types = {GS_F32, GS_F16, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    const uint64_t before = rig_hash(&r);
    gs_step step;
    gs_step_begin(&step, &r.scaler);
    rig_grads(&r, 1, 0);
    CHECK(gs_optim_step(r.optim, &step, NULL, NULL) == GS_ENULL);
    CHECK(gs_optim_scan(r.optim, NULL) == GS_ENULL);
    step.inverse = 0x1p+70; /* and the norm clips some of it away again */
    CHECK(gs_optim_scan(r.optim, &step) == GS_OK);
    step.stats.sumsq = 1e-60;
    gs_verdict verdict = gs_step_decide(&step, &r.scaler);
    CHECK(verdict.action == GS_APPLY);
    CHECK(gs_optim_act(r.optim, &step, verdict, NULL) == GS_ERANGE);
    gs_step_begin(&step, &r.scaler);
    gs_step_amax(&step, 0.5); /* no sum of squares to clip by */
    verdict = gs_step_decide(&step, &r.scaler);
    CHECK(gs_optim_act(r.optim, &step, verdict, NULL) == GS_ESTATE);
    gs_optim_state state = gs_optim_get_state(r.optim);
    CHECK(state.applied == 0 && state.skipped == 0 && rig_hash(&r) == before);
    state.applied = UINT64_MAX; /* t would be 0 */
    CHECK(gs_optim_set_state(r.optim, &state) == GS_ERANGE);
    state.applied = 0;
    state.bound[0] = (double)NAN;
    CHECK(gs_optim_set_state(r.optim, &state) == GS_ERANGE);
    state.bound[0] = 0;
    state.exponent[1] = 1000;
    CHECK(gs_optim_set_state(r.optim, &state) == GS_ERANGE);
    rig_close(&r);
}

/* ---- memory ---- */

static void test_store(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "sgd", .types = {GS_F32, GS_BF16, GS_F16}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    CHECK(gs_store_find(r.store, "bias") == &r.list[1] && !gs_store_find(r.store, "bia"));
    const gs_tensor data = gs_store_data(r.store), copies = gs_store_copies(r.store);
    CHECK(data.count == copies.count && data.count == 18208 + 1024 + 32);
    for (size_t t = 0; t < WEIGHTS; t++) {
        CHECK((uintptr_t)r.list[t].data % 64 == 0 && (uintptr_t)r.list[t].grad % 64 == 0);
        CHECK((uintptr_t)r.list[t].copy % 64 == 0);
    }
    rig_step(&r, 0, 0);
    for (size_t i = 18208 + 1000; i < 18208 + 1024; i++) /* between two weights */
        CHECK(((float *)data.data)[i] == 0 && ((uint16_t *)copies.data)[i] == 0);
    for (size_t i = 0; i < data.count; i++)
        CHECK(((uint16_t *)copies.data)[i] == gs_f32_to_bf16(((float *)data.data)[i]));
    rig_close(&r);
}

static void test_no_memory_in_a_step(void)
{
    for (size_t k = 0; k < KINDS; k++) {
        rig r = {0};
        const rig_spec spec = {.kind = kinds[k], .types = {GS_F32, GS_F16, GS_F16}};
        CHECK(rig_open(&r, &spec) == GS_OK);
        rig_step(&r, 0, 0);
        rig_step(&r, 1, 0);
        const size_t calls = r.memory.calls;
        for (unsigned turn = 2; turn < 6; turn++)
            rig_step(&r, turn, turn == 4 ? INFINITY : 0);
        CHECK_MSG(r.memory.calls == calls, "%s", kinds[k]);
        rig_close(&r);
    }
}

static void test_out_of_memory(void)
{
    for (size_t k = 0; k < KINDS; k++)
        for (size_t fail = 1; fail < 200; fail++) {
            rig r = {.memory = {.fail_at = fail}};
            const rig_spec spec = {.kind = kinds[k],
                                   .settings = "ema=0.9 rounding=kahan",
                                   .types = {GS_BF16, GS_BF16, GS_F16}};
            const gs_status status = rig_open(&r, &spec);
            CHECK(status == GS_OK || status == GS_ENOMEM);
            if (!r.ctx)
                continue;
            rig_close(&r);
            if (status == GS_OK)
                break;
        }
}

TESTS({"skip", test_skip}, {"skips_leave_no_trace", test_skips_leave_no_trace},
      {"retry_and_keep", test_retry_and_keep}, {"same_bits", test_same_bits},
      {"same_bits_large", test_same_bits_large}, {"modes", test_modes}, {"restore", test_restore},
      {"clip", test_clip}, {"norm_on_growth", test_norm_on_growth}, {"clip_value", test_clip_value},
      {"unscaled", test_unscaled}, {"partly_unscaled", test_partly_unscaled},
      {"accelerate4242_unfused", test_accelerate4242_unfused}, {"ended_step", test_ended_step},
      {"failed_step", test_failed_step}, {"burn5699_clip", test_burn5699_clip},
      {"flag_only", test_flag_only}, {"bad_settings", test_bad_settings},
      {"bad_weights", test_bad_weights}, {"bad_steps", test_bad_steps}, {"store", test_store},
      {"no_memory_in_a_step", test_no_memory_in_a_step}, {"out_of_memory", test_out_of_memory})
