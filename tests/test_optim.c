/* The optimizers: atomic steps, the same bits on any machine, clipping, schedules, averages,
 * against f64 oracles. Arithmetic of the kernels: checkoptim; PyTorch's numbers: test_parity. */
#include "memory.h"
#include "test.h"

#include "gradscale/optim.h"

#include <math.h>

/* ---- a model to train: one matrix that Adafactor factors, one vector, one number ---- */

static const gs_store_entry entries[] = {
    {"matrix", 130, 140, 0}, {"bias", 1, 1000, GS_NO_DECAY}, {"number", 1, 1, 0}};
enum { WEIGHTS = 3 };

typedef struct rig {
    books memory;
    gs_context *ctx;
    gs_store *store;
    gs_optim *optim;
    gs_scaler scaler;
    const gs_weight *list;
} rig;

typedef struct rig_spec {
    const char *kind, *settings, *scaler;
    gs_store_types types;
    unsigned threads, without_cpu;
} rig_spec;

static float noise(uint64_t stream, uint64_t i)
{
    return (float)((double)gs_random_u32(stream, i) / 0x1p+31 - 1);
}

static void put(void *data, gs_dtype type, size_t i, float x)
{
    if (type == GS_F32)
        ((float *)data)[i] = x;
    else
        ((uint16_t *)data)[i] = type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
}

static float get(const void *data, gs_dtype type, size_t i)
{
    if (type == GS_F32)
        return ((const float *)data)[i];
    const uint16_t code = ((const uint16_t *)data)[i];
    return type == GS_F16 ? gs_f16_to_f32(code) : gs_bf16_to_f32(code);
}

static gs_status rig_open(rig *r, const rig_spec *spec)
{
    gs_optim_config config;
    const gs_config with = {.alloc = {books_resize, &r->memory},
                            .threads = spec->threads ? spec->threads : 1,
                            .without_cpu = spec->without_cpu};
    gs_status status = gs_context_create(&r->ctx, &with);
    if (status != GS_OK)
        return status;
    CHECK(gs_scaler_init(&r->scaler, spec->scaler ? spec->scaler : "pytorch", NULL) == GS_OK);
    CHECK(gs_optim_config_init(&config, spec->kind, NULL) == GS_OK);
    if (spec->settings)
        CHECK(gs_optim_config_set(&config, spec->settings, NULL) == GS_OK);
    status = gs_store_create(&r->store, r->ctx, entries, WEIGHTS, spec->types);
    if (status != GS_OK)
        return status;
    size_t n;
    r->list = gs_store_weights(r->store, &n);
    CHECK(n == WEIGHTS);
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < r->list[t].rows * r->list[t].cols; i++)
            put(r->list[t].data, r->list[t].dtype, i, noise(7 + t, i));
    return gs_optim_create(&r->optim, r->ctx, r->list, n, &config);
}

static void rig_close(rig *r)
{
    gs_optim_free(r->optim);
    gs_store_free(r->store);
    gs_context_free(r->ctx);
    CHECK(r->memory.blocks == 0 && !r->memory.wrong);
}

/* Gradients of step number `turn`, scaled: 0.01 * noise. */
static void rig_grads(rig *r, double scale, unsigned turn)
{
    for (size_t t = 0; t < WEIGHTS; t++)
        for (size_t i = 0; i < r->list[t].rows * r->list[t].cols; i++)
            put(r->list[t].grad, r->list[t].grad_dtype, i,
                0.01f * noise(100 + 10 * turn + t, i) * (float)scale);
}

static gs_optim_report rig_step(rig *r, unsigned turn, float spoil)
{
    gs_step step;
    gs_optim_report report;
    gs_step_begin(&step, &r->scaler);
    rig_grads(r, step.scale, turn);
    if (spoil != 0)
        put(r->list[1].grad, r->list[1].grad_dtype, 500, spoil);
    CHECK(gs_optim_step(r->optim, &step, &r->scaler, &report) == GS_OK);
    return report;
}

/* A number for every bit of weights, copies and state. */
static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001B3;
    return h;
}

static uint64_t hash_tensor(uint64_t h, gs_tensor x)
{
    return hash(h, x.data, x.count * gs_format_of(x.dtype)->bytes);
}

static uint64_t rig_hash(const rig *r)
{
    uint64_t h = hash_tensor(0xCBF29CE484222325, gs_store_data(r->store));
    h = hash_tensor(h, gs_store_copies(r->store));
    for (size_t t = 0; t < WEIGHTS; t++)
        for (int k = 0; k < GS_SLOT_COUNT; k++)
            h = hash_tensor(h, gs_optim_slot(r->optim, t, (gs_slot)k));
    return h;
}

/* Every way of storing things, each with every optimizer. */
static const char *const kinds[] = {"sgd", "adam", "adamw", "lamb", "adafactor"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const struct storage {
    gs_store_types types;
    const char *settings;
} storages[] = {
    {{GS_F32, GS_F32, GS_F32}, "weight_decay=0.1 lr=0.01"},
    {{GS_F32, GS_F16, GS_F16}, "weight_decay=0.1 lr=0.01 clip_norm=0.1 ema=0.9"},
    {{GS_F32, GS_BF16, GS_BF16}, "lr=0.01 clip_value=0.005 schedule=cosine total=10 warmup=2"},
    {{GS_BF16, GS_BF16, GS_BF16}, "lr=0.01 rounding=stochastic seed=5"},
    {{GS_BF16, GS_BF16, GS_F32}, "lr=0.01 rounding=kahan ema=0.99"},
    {{GS_F16, GS_F16, GS_F16}, "lr=0.01 rounding=nearest"},
    {{GS_F32, GS_F16, GS_F16}, "lr=0.01 moments=f16 weight_decay=0.01"},
    {{GS_BF16, GS_BF16, GS_BF16}, "lr=0.01 moments=bf16 rounding=stochastic"},
};
enum { STORAGES = sizeof storages / sizeof storages[0] };

/* Adafactor takes no half moments; SGD is tested with momentum. */
static int spec_of(rig_spec *spec, char settings[128], size_t kind, size_t storage)
{
    const struct storage *s = &storages[storage];
    if (strcmp(kinds[kind], "adafactor") == 0 && strstr(s->settings, "moments"))
        return 0;
    snprintf(settings, 128, "%s %s", s->settings,
             strcmp(kinds[kind], "sgd") == 0 ? "momentum=0.9 nesterov=yes" : "");
    *spec = (rig_spec){.kind = kinds[kind], .settings = settings, .types = s->types};
    return 1;
}

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

/* Several chunks a weight, and a list that ends in the middle of one. */
static void test_same_bits_large(void)
{
    enum { N = 200000 };
    static float w[N], g[N], ends[2][N];
    for (int m = 0; m < 2; m++) {
        const gs_config with = {.threads = m ? 4 : 1, .without_cpu = m ? 0 : ~0u};
        gs_context *ctx;
        gs_optim *optim;
        gs_scaler scaler;
        gs_optim_config config;
        CHECK(gs_context_create(&ctx, &with) == GS_OK);
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
            memcpy(to.data, from.data, from.count * gs_format_of(from.dtype)->bytes);
            for (size_t t = 0; t < WEIGHTS; t++)
                for (int slot = 0; slot < GS_SLOT_COUNT; slot++) {
                    const gs_tensor x = gs_optim_slot(a.optim, t, (gs_slot)slot);
                    const gs_tensor y = gs_optim_slot(b.optim, t, (gs_slot)slot);
                    CHECK(x.count == y.count && x.dtype == y.dtype);
                    if (x.count)
                        memcpy(y.data, x.data, x.count * gs_format_of(x.dtype)->bytes);
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
    gs_optim_config config;
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
    CHECK(gs_context_create(&ctx, NULL) == GS_OK);
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

/* ---- schedules and averages ---- */

static void test_schedules(void)
{
    const gs_schedule constant = {.warmup = 3};
    const gs_schedule linear = {GS_SCHEDULE_LINEAR, 0, 10, 1, 0.1, 1};
    const gs_schedule cosine = {GS_SCHEDULE_COSINE, 2, 12, 1, 0, 1};
    const gs_schedule step = {GS_SCHEDULE_STEP, 0, 0, 30, 0, 0.1};
    const gs_schedule cycle = {GS_SCHEDULE_ONECYCLE, 4, 20, 1, 1e-4, 1};
    const struct {
        const gs_schedule *schedule;
        uint64_t t;
        double want;
    } table[] = {{&constant, 0, 0.25},    {&constant, 2, 0.75}, {&constant, 3, 1},
                 {&constant, 1000000, 1}, {&linear, 0, 1},      {&linear, 5, 0.55},
                 {&linear, 10, 0.1},      {&linear, 999, 0.1},  {&cosine, 0, 1.0 / 3},
                 {&cosine, 2, 1},         {&cosine, 7, 0.5},    {&cosine, 12, 0},
                 {&step, 29, 1},          {&step, 30, 0.1},     {&step, 90, 1e-3},
                 {&cycle, 4, 1},          {&cycle, 20, 1e-4},   {&cycle, 12, 0.50005}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const double f = gs_schedule_factor(table[i].schedule, table[i].t);
        CHECK_MSG(fabs(f - table[i].want) < 1e-12, "row %zu: %g, not %g", i, f, table[i].want);
    }
    CHECK(gs_schedule_factor(&cycle, 0) > 0.04 && gs_schedule_factor(&cycle, 0) < 0.3);
    const gs_schedule endless = {.warmup = UINT64_MAX};
    CHECK(gs_schedule_factor(&endless, 0) > 0 && gs_schedule_factor(&endless, 0) < 1e-18);
}

static void test_schedule_counts_applied(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "sgd",
                           .settings = "lr=2 schedule=linear total=10",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    CHECK(rig_step(&r, 0, 0).lr == 2);
    CHECK(fabs(rig_step(&r, 0, INFINITY).lr - 1.8) < 1e-12);
    CHECK(fabs(rig_step(&r, 0, 0).lr - 1.8) < 1e-12);
    CHECK(fabs(rig_step(&r, 0, 0).lr - 1.6) < 1e-12);
    rig_close(&r);
}

static void test_ema(void)
{
    rig r = {0};
    const rig_spec spec = {
        .kind = "sgd", .settings = "lr=0.5 ema=0.75", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    const float *w = r.list[1].data, *ema = gs_optim_slot(r.optim, 1, GS_SLOT_EMA).data;
    rig_step(&r, 0, 0);
    CHECK(memcmp(w, ema, 1000 * sizeof *w) == 0);
    float want = ema[3];
    for (unsigned t = 1; t < 5; t++) {
        rig_step(&r, t, 0);
        want = 0.75f * want + 0.25f * w[3];
        CHECK(ema[3] == want);
    }
    rig_close(&r);
}

static void test_no_decay(void)
{
    rig r = {0};
    const rig_spec spec = {
        .kind = "adamw", .settings = "lr=0.1 weight_decay=1", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    const gs_tensor grads = gs_store_grads(r.store);
    gs_step step;
    gs_step_begin(&step, &r.scaler);
    memset(grads.data, 0, grads.count * sizeof(float));
    CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_OK);
    CHECK(((float *)r.list[0].data)[9] == 0.9f * noise(7, 9));
    CHECK(((float *)r.list[1].data)[9] == noise(8, 9));
    rig_close(&r);
}

/* ---- against f64 ---- */

typedef struct oracle {
    double *w, *m, *v;
    size_t n;
} oracle;

static double worst_of(const rig *r, const oracle *o)
{
    double worst = 0;
    for (size_t t = 0; t < WEIGHTS; t++)
        for (size_t i = 0; i < o[t].n; i++)
            worst = fmax(worst, fabs(o[t].w[i] - (double)((float *)r->list[t].data)[i]));
    return worst;
}

static void oracle_open(oracle *o, const rig *r)
{
    for (size_t t = 0; t < WEIGHTS; t++) {
        o[t].n = r->list[t].rows * r->list[t].cols;
        o[t].w = calloc(o[t].n, sizeof(double));
        o[t].m = calloc(o[t].n, sizeof(double));
        o[t].v = calloc(o[t].n, sizeof(double));
        for (size_t i = 0; i < o[t].n; i++)
            o[t].w[i] = (double)((float *)r->list[t].data)[i];
    }
}

static void oracle_close(oracle *o)
{
    for (size_t t = 0; t < WEIGHTS; t++) {
        free(o[t].w);
        free(o[t].m);
        free(o[t].v);
    }
}

static double grad_of(size_t t, size_t i, unsigned turn)
{
    return (double)(0.01f * noise(100 + 10 * turn + t, i));
}

static void lamb_step(oracle *o, size_t t, unsigned turn, double lr, double decay)
{
    const double c1 = 1 - pow(0.9, turn + 1), c2 = 1 - pow(0.999, turn + 1);
    double ww = 0, uu = 0;
    double *u = malloc(o->n * sizeof *u);
    for (size_t i = 0; i < o->n; i++) {
        const double g = grad_of(t, i, turn);
        o->m[i] = 0.9 * o->m[i] + 0.1 * g;
        o->v[i] = 0.999 * o->v[i] + 0.001 * g * g;
        u[i] = o->m[i] / c1 / (sqrt(o->v[i] / c2) + 1e-6) + decay * o->w[i];
        ww += o->w[i] * o->w[i];
        uu += u[i] * u[i];
    }
    for (size_t i = 0; i < o->n; i++)
        o->w[i] -= lr * sqrt(ww / uu) * u[i];
    free(u);
}

static void test_lamb(void)
{
    rig r = {0};
    oracle o[WEIGHTS];
    const rig_spec spec = {.kind = "lamb",
                           .settings = "lr=0.01 weight_decay=0.1",
                           .scaler = "static:1024",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    oracle_open(o, &r);
    for (unsigned turn = 0; turn < 10; turn++) {
        rig_step(&r, turn, 0);
        for (size_t t = 0; t < WEIGHTS; t++)
            lamb_step(&o[t], t, turn, 0.01, t == 1 ? 0 : 0.1);
    }
    CHECK_MSG(worst_of(&r, o) < 2e-6, "%g", worst_of(&r, o));
    oracle_close(o);
    rig_close(&r);
}

/* m holds the row means, v the column means of a matrix; v the second moment of a vector. */
static void adafactor_step(oracle *o, size_t t, unsigned turn, size_t rows, size_t cols, double lr)
{
    const double rest = pow(turn + 1, -0.8), n = (double)o->n;
    double ww = 0, uu = 0, mean = 0;
    double *u = malloc(o->n * sizeof *u);
    if (rows > 1) {
        for (size_t i = 0; i < rows; i++) {
            double sum = 0;
            for (size_t j = 0; j < cols; j++)
                sum += pow(grad_of(t, i * cols + j, turn), 2) + 1e-30;
            o->m[i] = (1 - rest) * o->m[i] + rest * sum / (double)cols;
            mean += o->m[i] / (double)rows;
        }
        for (size_t j = 0; j < cols; j++) {
            double sum = 0;
            for (size_t i = 0; i < rows; i++)
                sum += pow(grad_of(t, i * cols + j, turn), 2) + 1e-30;
            o->v[j] = (1 - rest) * o->v[j] + rest * sum / (double)rows;
        }
    }
    for (size_t i = 0; i < o->n; i++) {
        const double g = grad_of(t, i, turn);
        if (rows == 1)
            o->v[i] = (1 - rest) * o->v[i] + rest * (g * g + 1e-30);
        u[i] = g / sqrt(rows > 1 ? o->m[i / cols] * o->v[i % cols] / mean : o->v[i]);
        ww += o->w[i] * o->w[i];
        uu += u[i] * u[i];
    }
    const double alpha = lr * fmax(1e-3, sqrt(ww / n)), shrink = fmax(1, sqrt(uu / n));
    for (size_t i = 0; i < o->n; i++)
        o->w[i] -= alpha * u[i] / shrink;
    free(u);
}

static void test_adafactor(void)
{
    rig r = {0};
    oracle o[WEIGHTS];
    const rig_spec spec = {
        .kind = "adafactor", .scaler = "static:1024", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    oracle_open(o, &r);
    CHECK(gs_optim_slot(r.optim, 0, GS_SLOT_ROW).count == 130);
    CHECK(gs_optim_slot(r.optim, 0, GS_SLOT_COL).count == 140);
    CHECK(gs_optim_slot(r.optim, 0, GS_SLOT_V).count == 0);
    CHECK(gs_optim_slot(r.optim, 1, GS_SLOT_V).count == 1000);
    for (unsigned turn = 0; turn < 10; turn++) {
        rig_step(&r, turn, 0);
        for (size_t t = 0; t < WEIGHTS; t++)
            adafactor_step(&o[t], t, turn, r.list[t].rows, r.list[t].cols, 0.01);
    }
    CHECK_MSG(worst_of(&r, o) < 2e-6, "%g", worst_of(&r, o));
    oracle_close(o);
    rig_close(&r);
}

/* More than one tile down and across: the means, and the same weights with any threads. */
static void test_adafactor_tiles(void)
{
    enum { ROWS = 1100, COLS = 1030 };
    static float w[ROWS * COLS], g[ROWS * COLS];
    uint64_t ends[2];
    for (int k = 0; k < 2; k++) {
        gs_context *ctx;
        gs_optim *optim;
        gs_scaler scaler;
        gs_step step;
        gs_optim_config config;
        CHECK(gs_context_create(&ctx, &(gs_config){.threads = k ? 3 : 1}) == GS_OK);
        CHECK(gs_scaler_init(&scaler, "static:1", NULL) == GS_OK);
        CHECK(gs_optim_config_init(&config, "adafactor", NULL) == GS_OK);
        const gs_weight list[] = {{.name = "w", .rows = ROWS, .cols = COLS, .data = w, .grad = g}};
        for (size_t i = 0; i < ROWS * COLS; i++) {
            w[i] = 1;
            g[i] = noise(3, i) * (float)(1 + i / COLS) * (float)(1 + i % COLS);
        }
        CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_OK);
        gs_step_begin(&step, &scaler);
        CHECK(gs_optim_step(optim, &step, &scaler, NULL) == GS_OK);
        const float *row = gs_optim_slot(optim, 0, GS_SLOT_ROW).data;
        const float *col = gs_optim_slot(optim, 0, GS_SLOT_COL).data;
        for (size_t r = 0; r < ROWS; r += 13) {
            double sum = 0;
            for (size_t c = 0; c < COLS; c++)
                sum += (double)g[r * COLS + c] * (double)g[r * COLS + c];
            CHECK(fabs((double)row[r] / (sum / COLS) - 1) < 1e-6);
        }
        for (size_t c = 0; c < COLS; c += 13) {
            double sum = 0;
            for (size_t r = 0; r < ROWS; r++)
                sum += (double)g[r * COLS + c] * (double)g[r * COLS + c];
            CHECK(fabs((double)col[c] / (sum / ROWS) - 1) < 1e-6);
        }
        ends[k] = hash(0, w, sizeof w);
        gs_optim_free(optim);
        gs_context_free(ctx);
    }
    CHECK(ends[0] == ends[1]);
}

/* ---- weights and moments in half types ---- */

/* The mean of the weights after many steps of +1e-4, of weights of 1 whose spacing is 2^-7. */
static double drift(const char *rounding, double *unmoved)
{
    enum { N = 1 << 16, STEPS = 100 };
    static uint16_t w[N];
    static float g[N];
    char settings[64];
    double mean = 0;
    gs_context *ctx;
    gs_optim *optim;
    gs_scaler scaler;
    gs_optim_config config;
    CHECK(gs_context_create(&ctx, NULL) == GS_OK);
    CHECK(gs_scaler_init(&scaler, "static:1", NULL) == GS_OK);
    CHECK(gs_optim_config_init(&config, "sgd", NULL) == GS_OK);
    snprintf(settings, sizeof settings, "lr=1 rounding=%s", rounding);
    CHECK(gs_optim_config_set(&config, settings, NULL) == GS_OK);
    const gs_weight list[] = {
        {.name = "w", .rows = 1, .cols = N, .data = w, .dtype = GS_BF16, .grad = g}};
    for (size_t i = 0; i < N; i++) {
        w[i] = gs_f32_to_bf16(1);
        g[i] = -1e-4f;
    }
    CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_OK);
    for (int t = 0; t < STEPS; t++) {
        gs_step step;
        gs_step_begin(&step, &scaler);
        CHECK(gs_optim_step(optim, &step, &scaler, NULL) == GS_OK);
    }
    *unmoved = 0;
    for (size_t i = 0; i < N; i++) {
        mean += (double)gs_bf16_to_f32(w[i]) / N;
        *unmoved += (gs_bf16_to_f32(w[i]) == 1) / (double)N;
    }
    gs_optim_free(optim);
    gs_context_free(ctx);
    return mean;
}

static void test_rounding(void)
{
    double unmoved;
    CHECK(drift("nearest", &unmoved) == 1 && unmoved == 1);
    const double mean = drift("stochastic", &unmoved);
    CHECK_MSG(fabs(mean - 1.01) < 1.5e-4, "%g", mean); /* 4 sigma */
    /* every step draws anew: each moves a weight with probability 1e-4 / 2^-7 */
    CHECK_MSG(fabs(unmoved - pow(1 - 1e-4 * 128, 100)) < 0.01, "%g", unmoved);
    /* the nearest to 1.01, and the rest is not lost */
    CHECK(drift("kahan", &unmoved) == 1.0078125 && unmoved == 0);
}

static void test_half_moments(void)
{
    const char *const types[] = {"f16", "bf16"};
    const double limits[] = {2e-4, 2e-3};
    for (int k = 0; k < 2; k++)
        for (size_t kind = 0; kind < 4; kind++) {
            rig exact = {0}, half = {0};
            char settings[128];
            snprintf(settings, sizeof settings, "lr=0.01 weight_decay=0 moments=%s %s", types[k],
                     kind == 0 ? "momentum=0.9" : "");
            const rig_spec a = {.kind = kinds[kind],
                                .settings =
                                    kind == 0 ? "lr=0.01 momentum=0.9" : "lr=0.01 weight_decay=0",
                                .types = {GS_F32, GS_F32, GS_F32}};
            const rig_spec b = {
                .kind = kinds[kind], .settings = settings, .types = {GS_F32, GS_F32, GS_F32}};
            CHECK(rig_open(&exact, &a) == GS_OK && rig_open(&half, &b) == GS_OK);
            for (unsigned turn = 0; turn < 30; turn++) {
                rig_step(&exact, turn, 0);
                rig_step(&half, turn, 0);
            }
            const gs_tensor m = gs_optim_slot(half.optim, 0, GS_SLOT_M);
            CHECK(gs_format_of(m.dtype)->bytes == 2);
            double square = 0;
            for (size_t i = 0; i < m.count; i++) {
                const double d = (double)((float *)exact.list[0].data)[i] -
                                 (double)((float *)half.list[0].data)[i];
                square += d * d;
                CHECK(isfinite(get(m.data, m.dtype, i)));
            }
            const double rms = sqrt(square / (double)m.count);
            CHECK_MSG(rms > 0 && rms < limits[k], "%s %s: %g", kinds[kind], types[k], rms);
            rig_close(&exact);
            rig_close(&half);
        }
}

/* Gradients that grow and shrink by 2^50 do not overflow moments in f16. */
static void test_moment_scale(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "adamw",
                           .settings = "moments=f16",
                           .scaler = "static:1",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    static const float sizes[] = {1e-6f, 1e-3f, 1, 1e9f, 1, 1e-4f, 1e-12f};
    for (size_t t = 0; t < sizeof sizes / sizeof sizes[0]; t++) {
        gs_step step;
        gs_step_begin(&step, &r.scaler);
        rig_grads(&r, (double)sizes[t], (unsigned)t);
        CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_OK);
        for (int slot = GS_SLOT_M; slot <= GS_SLOT_V; slot++) {
            const gs_tensor x = gs_optim_slot(r.optim, 0, (gs_slot)slot);
            float most = 0;
            for (size_t i = 0; i < x.count; i++)
                most = fmaxf(most, fabsf(get(x.data, x.dtype, i)));
            CHECK_MSG(most > 256 && most <= 65504, "step %zu: %g", t, (double)most);
        }
    }
    for (size_t i = 0; i < 130 * 140; i++)
        CHECK(isfinite(((float *)r.list[0].data)[i]));
    rig_close(&r);
}

/* ---- what is tiny ---- */

static void test_tiny(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "adamw",
                           .settings = "weight_decay=0 eps=0",
                           .scaler = "static:1",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    float *w = r.list[1].data, *g = r.list[1].grad;
    float *m = gs_optim_slot(r.optim, 1, GS_SLOT_M).data;
    float *v = gs_optim_slot(r.optim, 1, GS_SLOT_V).data;
    gs_step step;
    gs_step_begin(&step, &r.scaler);
    rig_grads(&r, 1, 0);
    m[0] = 0x1p-149f; /* subnormal moments */
    v[0] = 0x1p-130f;
    g[0] = 0;
    g[1] = 0;         /* no gradient and no eps */
    g[2] = 0x1p-100f; /* a gradient below the threshold */
    g[3] = 0x1p-70f;  /* one whose square is nothing */
    w[4] = 0x1p-149f;
    g[4] = 0;
    CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_OK);
    CHECK(m[0] == 0 && v[0] == 0 && w[0] == noise(8, 0));
    CHECK(w[1] == noise(8, 1) && w[2] == noise(8, 2) && m[2] == 0);
    CHECK(w[3] == noise(8, 3) && m[3] != 0 && v[3] == 0);
    CHECK(w[4] == 0);
    rig_close(&r);
}

/* ---- bad input ---- */

static void test_bad_settings(void)
{
    static const struct {
        const char *kind, *settings, *says;
    } table[] = {
        {"adam", "lr=nan", "lr is nan"},
        {"adam", "lr=inf", "lr is inf"},
        {"adam", "lr=-1", "lr is -1"},
        {"adam", "beta1=1", "beta1 is 1"},
        {"adam", "beta2=1.5", "beta2 is 1.5"},
        {"adam", "eps=1e-40", "eps is 1e-40"},
        {"adam", "lr=fast", "lr is not a number"},
        {"adam", "warmup=2.5", "warmup is not a whole number"},
        {"adam", "learning_rate=1", "no setting learning_rate"},
        {"adam", "lr", "no setting lr"},
        {"adam", "momentum=0.9", "momentum is a setting of sgd"},
        {"adam", "schedule=cosine", "total above its warmup"},
        {"adam", "schedule=step every=0", "every is 0"},
        {"adam", "schedule=wavy", "schedule cannot be wavy"},
        {"sgd", "nesterov=yes", "nesterov needs a momentum"},
        {"sgd", "momentum=0.9 dampening=0.5 nesterov=yes", "no dampening"},
        {"sgd", "clip_norm=-1", "clip_norm is -1"},
        {"sgd", "rounding=up", "rounding cannot be up"},
        {"sgd", "lr=10 weight_decay=1", "change sign"},
        {"adafactor", "moments=f16", "keeps it in f32"},
        {"adafactor", "factor_eps=0", "factor_eps"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        gs_optim_config config, before;
        gs_error error = {0};
        CHECK(gs_optim_config_init(&config, table[i].kind, &error) == GS_OK);
        before = config;
        CHECK(gs_optim_config_set(&config, table[i].settings, &error) != GS_OK);
        CHECK_MSG(strstr(error.text, table[i].says), "%s: %s", table[i].settings, error.text);
        CHECK(memcmp(&config, &before, sizeof config) == 0);
    }
    gs_optim_config config;
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
    gs_optim_config config;
    float w[8] = {0}, g[8] = {0};
    uint16_t half[8] = {0};
    CHECK(gs_context_create(&ctx, NULL) == GS_OK);
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
    bad[7].copy_dtype = GS_F32;
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
      {"same_bits_large", test_same_bits_large}, {"restore", test_restore}, {"clip", test_clip},
      {"norm_on_growth", test_norm_on_growth}, {"clip_value", test_clip_value},
      {"unscaled", test_unscaled}, {"accelerate4242_unfused", test_accelerate4242_unfused},
      {"ended_step", test_ended_step}, {"failed_step", test_failed_step},
      {"burn5699_clip", test_burn5699_clip}, {"flag_only", test_flag_only},
      {"schedules", test_schedules}, {"schedule_counts_applied", test_schedule_counts_applied},
      {"ema", test_ema}, {"no_decay", test_no_decay}, {"lamb", test_lamb},
      {"adafactor", test_adafactor}, {"adafactor_tiles", test_adafactor_tiles},
      {"rounding", test_rounding}, {"half_moments", test_half_moments},
      {"moment_scale", test_moment_scale}, {"tiny", test_tiny}, {"bad_settings", test_bad_settings},
      {"bad_weights", test_bad_weights}, {"bad_steps", test_bad_steps}, {"store", test_store},
      {"no_memory_in_a_step", test_no_memory_in_a_step}, {"out_of_memory", test_out_of_memory})
