/* The kernels as loops against libgradscale: equal bits, and every preset. */
#include "device_corners.h"
#include "device_norms.h"
#include "device_rig.h"
#include "memory.h"

#include <dlfcn.h>

static gs_device *open_host(void)
{
    gs_device *device = NULL;
    const gs_device_config config = {.size = sizeof config, .kind = GS_DEVICE_HOST};
    CHECK(gs_device_create(&device, &config, NULL) == GS_OK);
    return device;
}

static void test_equal_bits(void)
{
    gs_device *device = open_host();
    for (int k = 0; k < DEVICE_CASES; k++) {
        device_case c = device_cases[k];
        c.steps = 40;
        c.every = 7;
        c.most = k % 3 == 0 ? 70000 : 9000;
        device_compare(device, &c);
    }
    gs_device_free(device);
}

static void test_presets(void)
{
    gs_device *device = open_host();
    device_presets(device, 8, 100);
    gs_device_free(device);
}

static void test_many_small(void)
{
    gs_device *device = open_host();
    device_many_small(device, 12, 4);
    gs_device_free(device);
}

/* Four ranks, three with a tensor each and one with none, decide as one that has all. */
static void test_ranks(void)
{
    enum { RANKS = 4, STEPS = 30, COUNT = 700 };
    gs_device *device = open_host();
    const device_case c = {.optim = "adamw", .settings = "lr=0.01 clip_norm=0.1"};
    const gs_optim_config optim = rig_optim(&c);
    gs_device_plan *plans[RANKS];
    static float grads[RANKS][COUNT], data[RANKS][COUNT];
    gs_scaler scaler;
    gs_context *ctx;
    gs_tensor all[RANKS];
    uint64_t random = 5;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_scaler_init(&scaler, NULL, NULL) == GS_OK);
    CHECK(gs_scaler_set(&scaler, "interval=5", NULL) == GS_OK);
    for (unsigned r = 0; r < RANKS; r++) {
        const size_t count = r == 1 ? 0 : COUNT;
        const gs_device_weight w = {.count = count,
                                    .data = {NULL, (uintptr_t)data[r]},
                                    .grad = {NULL, (uintptr_t)grads[r]}};
        const gs_device_plan_config config = {.size = sizeof config,
                                              .optim = &optim,
                                              .scaler = &scaler,
                                              .steps = STEPS,
                                              .rank = r,
                                              .ranks = RANKS};
        CHECK(gs_device_plan_create(&plans[r], device, &w, 1, &config, NULL) == GS_OK);
        CHECK(gs_device_step(plans[r], NULL, NULL) == GS_ESTATE);
        all[r] = (gs_tensor){grads[r], count, GS_F32, NULL, 0};
    }
    for (int i = 0; i < STEPS; i++) {
        gs_step step;
        gs_stats gathered[RANKS];
        gs_step_begin(&step, &scaler);
        for (int r = 0; r < RANKS; r++)
            for (int k = 0; k < COUNT; k++)
                grads[r][k] = (float)(rig_normal(&random) * step.scale);
        if (i % 3 == 1)
            grads[i % RANKS][13] = INFINITY;
        for (int r = 0; r < RANKS; r++) { /* in rank order */
            gs_stats one;
            CHECK(gs_tensors_scan(ctx, &all[r], 1, &one) == GS_OK);
            gs_step_scan(&step, &one);
            CHECK(gs_device_scan(plans[r], NULL, NULL) == GS_OK &&
                  gs_device_fold(plans[r], NULL, NULL) == GS_OK);
            gs_device_ptr own = gs_device_plan_gathered(plans[r]);
            own.offset += (unsigned)r * sizeof *gathered;
            CHECK(gs_device_read(&gathered[r], device, own, sizeof *gathered, NULL, NULL) == GS_OK);
        }
        const gs_verdict want = gs_step_end(&step, &scaler);
        for (int r = 0; r < RANKS; r++) {
            gs_device_report report = {0};
            gs_scaler own;
            CHECK(gs_device_write(device, gs_device_plan_gathered(plans[r]), gathered,
                                  sizeof gathered, NULL, NULL) == GS_OK);
            CHECK(gs_device_decide(plans[r], NULL, NULL) == GS_OK &&
                  gs_device_act(plans[r], NULL, NULL) == GS_OK);
            CHECK(gs_device_poll(&report, plans[r]) && !gs_device_poll(&report, plans[r]));
            CHECK(report.optim.verdict.action == want.action &&
                  report.stats.sumsq == step.stats.sumsq);
            CHECK(gs_device_save(&own, NULL, plans[r], NULL, NULL) == GS_OK);
            CHECK_MSG(memcmp(&own, &scaler, sizeof own) == 0, "step %d, rank %d", i, r);
        }
    }
    for (int r = 0; r < RANKS; r++)
        gs_device_plan_free(plans[r]);
    gs_context_free(ctx);
    gs_device_free(device);
}

/* Saved, loaded into a plan of its own with the moments, and gone on: as if it had not stopped. The
 * first plan's steps are used up then: it does nothing any more, and says so. */
static void test_save_and_load(void)
{
    enum { COUNT = 500, STEPS = 12 };
    gs_device *device = open_host();
    const device_case c = {.optim = "adamw",
                           .settings = "lr=0.01 schedule=linear total=40 clip_norm=1"};
    const gs_optim_config optim = rig_optim(&c);
    static float grads[2][COUNT], data[2][COUNT];
    gs_device_plan *plans[2];
    gs_scaler scaler;
    gs_optim_state state;
    uint64_t random = 8;
    CHECK(gs_scaler_init(&scaler, NULL, NULL) == GS_OK &&
          gs_scaler_set(&scaler, "interval=3", NULL) == GS_OK);
    for (int p = 0; p < 2; p++) {
        const gs_device_weight w = {.count = COUNT,
                                    .data = {NULL, (uintptr_t)data[p]},
                                    .grad = {NULL, (uintptr_t)grads[p]}};
        const gs_device_plan_config config = {.size = sizeof config,
                                              .optim = &optim,
                                              .scaler = &scaler,
                                              .steps = p ? STEPS : 2 * STEPS};
        CHECK(gs_device_plan_create(&plans[p], device, &w, 1, &config, NULL) == GS_OK);
    }
    gs_device_report report = {0};
    for (int i = 0; i < 2 * STEPS; i++) {
        for (int k = 0; k < COUNT; k++)
            grads[0][k] = grads[1][k] = (float)rig_normal(&random) * 1000;
        if (i == STEPS) {
            CHECK(gs_device_step(plans[1], NULL, NULL) == GS_OK &&
                  gs_device_poll(&report, plans[1]));
            CHECK(report.exhausted && report.optim.verdict.action == GS_FAIL);
            CHECK(memcmp(data[0], data[1], sizeof data[0]) == 0 && grads[1][0] == grads[0][0]);
            CHECK(gs_device_save(&scaler, &state, plans[1], NULL, NULL) == GS_OK &&
                  state.applied == STEPS);
            CHECK(gs_device_load(plans[1], &scaler, &state, NULL, NULL) == GS_OK);
        }
        for (int p = 0; p < 2; p++)
            CHECK(gs_device_step(plans[p], NULL, NULL) == GS_OK &&
                  gs_device_poll(&report, plans[p]) && !report.exhausted);
    }
    gs_scaler other;
    CHECK(memcmp(data[0], data[1], sizeof data[0]) == 0);
    CHECK(gs_device_save(&scaler, NULL, plans[0], NULL, NULL) == GS_OK);
    CHECK(gs_device_save(&other, NULL, plans[1], NULL, NULL) == GS_OK);
    CHECK(memcmp(&scaler, &other, sizeof other) == 0);
    gs_device_plan_free(plans[0]);
    gs_device_plan_free(plans[1]);
    gs_device_free(device);
}

/* Reports come late: 64 are kept, a later reader misses the oldest and nothing else. */
static void test_late_reports(void)
{
    gs_device *device = open_host();
    const device_case c = {.optim = "sgd", .settings = "lr=0.01"};
    const gs_optim_config optim = rig_optim(&c);
    float grad[4] = {1, 1, 1, 1}, data[4] = {0};
    gs_scaler scaler;
    gs_device_plan *plan;
    gs_device_report report;
    CHECK(gs_scaler_init(&scaler, "static:1", NULL) == GS_OK);
    const gs_device_weight w = {
        .count = 4, .data = {NULL, (uintptr_t)data}, .grad = {NULL, (uintptr_t)grad}};
    const gs_device_plan_config config = {
        .size = sizeof config, .optim = &optim, .scaler = &scaler};
    CHECK(gs_device_plan_create(&plan, device, &w, 1, &config, NULL) == GS_OK);
    CHECK(!gs_device_poll(&report, plan));
    for (int i = 0; i < 70; i++)
        CHECK(gs_device_step(plan, NULL, NULL) == GS_OK);
    for (uint64_t i = 7; i <= 70; i++)
        CHECK(gs_device_poll(&report, plan) && report.step == i);
    CHECK(!gs_device_poll(&report, plan));
    gs_device_plan_free(plan);
    gs_device_free(device);
}

/* The copies anew, to nearest and stochastically. */
static void test_cast(void)
{
    gs_device *device = open_host();
    device_case c = device_cases[0];
    device_rig r;
    c.most = 70000;
    CHECK(device_rig_open(&r, device, &c));
    for (int stochastic = 0; stochastic < 2; stochastic++) {
        for (size_t t = 0; t < r.n; t++) {
            const gs_weight *w = &r.weights[t];
            if (!w->copy)
                continue;
            /* of a list whose tensors before it are empty: its number makes its stream */
            gs_tensor *to = calloc(r.n, sizeof *to), *from = calloc(r.n, sizeof *from);
            to[t] = (gs_tensor){w->copy, w->cols, w->copy_dtype, NULL, 0};
            from[t] = gs_tensor_source(w->data, w->cols, GS_F32, NULL);
            for (size_t i = 0; i < t; i++)
                to[i].dtype = w->copy_dtype;
            CHECK((stochastic ? gs_tensors_convert_stochastic(r.ctx, to, from, t + 1, 77, NULL)
                              : gs_tensors_convert(r.ctx, to, from, t + 1, NULL)) == GS_OK);
            free(to);
            free(from);
        }
        CHECK((stochastic ? gs_device_cast_stochastic(r.plan, 77, NULL, NULL)
                          : gs_device_cast(r.plan, NULL, NULL)) == GS_OK);
        rig_compare_arrays(&r, stochastic, &c);
    }
    device_rig_close(&r);
    gs_device_free(device);
}

static void test_norms(void)
{
    gs_device *device = open_host();
    device_norms(device);
    gs_device_free(device);
}

static void test_corners(void)
{
    gs_device *device = open_host();
    device_corners(device);
    gs_device_free(device);
}

/* ---- bad input ---- */

/* All memory is asked for through the caller's hook; every allocation fails once. */
static void test_out_of_memory(void)
{
    const device_case c = {.optim = "lamb", .settings = "lr=0.01"};
    books b = {0};
    gs_error error = {0};
    const gs_device_config config = {
        .size = sizeof config, .kind = GS_DEVICE_HOST, .alloc = books_hook(&b)};
    CHECK_MSG(rig_every_call(&config, &c, NULL, &error) == GS_OK && b.blocks == 0 && !b.wrong, "%s",
              error.text);
    const size_t calls = b.calls;
    for (size_t n = 1; n <= calls; n++) {
        b = (books){.fail_at = n};
        error = (gs_error){0};
        CHECK_MSG(rig_every_call(&config, &c, NULL, &error) == GS_ENOMEM && error.text[0],
                  "allocation %zu", n);
        CHECK_MSG(b.blocks == 0 && !b.wrong, "allocation %zu: %zu are left", n, b.blocks);
    }
    CHECK_MSG(calls > 20, "only %zu allocations", calls);
}

/* Listed, and refused before anything else is done with it. */
static void test_no_f64(void)
{
    char path[512];
    gs_device_info info;
    gs_device *device = NULL;
    gs_error error = {0};
    size_t n = 0;
    int (*contexts)(void) = NULL;
    snprintf(path, sizeof path, "%s/tests/libno_f64.so",
             getenv("BUILD") ? getenv("BUILD") : "build");
    const gs_device_config config = {
        .size = sizeof config, .kind = GS_DEVICE_OPENCL, .library = path};
    CHECK_MSG(gs_device_list(&info, 1, &n, &config, &error) == GS_OK && n == 1, "%s", error.text);
    CHECK(!info.has_f64 && strcmp(info.name, "Small GPU") == 0);
    CHECK(gs_device_create(&device, &config, &error) == GS_EVERSION && !device);
    CHECK_MSG(strcmp(error.text, "Small GPU has no fp64, which sums and the scale need") == 0, "%s",
              error.text);
    void *library = dlopen(path, RTLD_NOW),
         *call = library ? dlsym(library, "fake_opencl_contexts") : NULL;
    CHECK(call);
    memcpy(&contexts, &call, sizeof call);
    CHECK(contexts && contexts() == 0); /* the context that was made is released */
    if (library)
        dlclose(library);
}

static void test_bad_input(void)
{
    gs_device *device = open_host();
    float data[8] = {0}, grad[8] = {0};
    gs_device_plan *plan = NULL;
    gs_error error = {0};
    gs_scaler scaler;
    const device_case c = {.optim = "adamw", .settings = "lr=0.01"};
    const gs_optim_config good = rig_optim(&c);
    const gs_device_weight weight = {
        .name = "fc", .count = 8, .data = {NULL, (uintptr_t)data}, .grad = {NULL, (uintptr_t)grad}};
    static const struct {
        const char *scaler, *rules, *optim, *settings, *says;
    } cases[] = {
        {"logmax", NULL, "adamw", "lr=1e-3", "logmax needs the host"},
        {"adaptive", NULL, "adamw", "lr=1e-3", "adaptive needs the host"},
        {"histogram", NULL, "adamw", "lr=1e-3", "histogram needs the host"},
        {"pytorch", "on_overflow=retry:2", "adamw", "lr=1e-3", "on_overflow=skip"},
        {"pytorch", "on_overflow=attribute", "adamw", "lr=1e-3", "on_overflow=skip"},
        {"pytorch", "probe=yes", "adamw", "lr=1e-3", "probe=no"},
        {"pytorch", "lowest=off", "adamw", "lr=1e-3", "2^-28"},
        {"pytorch", NULL, "adafactor", "lr=1e-3", "adafactor"},
        {"pytorch", NULL, "adamw", "moments=bf16", "moments"},
        {"pytorch", NULL, "adamw", "ema=0.9", "ema=0"},
        {"pytorch", NULL, "adamw", "rounding=kahan", "kahan"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const device_case other = {.optim = cases[i].optim, .settings = cases[i].settings};
        const gs_optim_config optim = rig_optim(&other);
        CHECK(gs_scaler_init(&scaler, cases[i].scaler, NULL) == GS_OK);
        CHECK(!cases[i].rules || gs_scaler_set(&scaler, cases[i].rules, NULL) == GS_OK);
        const gs_device_plan_config config = {
            .size = sizeof config, .optim = &optim, .scaler = &scaler};
        CHECK(gs_device_plan_create(&plan, device, &weight, 1, &config, &error) != GS_OK && !plan);
        CHECK_MSG(strstr(error.text, cases[i].says), "%s", error.text);
    }
    CHECK(gs_scaler_init(&scaler, NULL, NULL) == GS_OK);
    const gs_device_plan_config config = {.size = sizeof config, .optim = &good, .scaler = &scaler};
    gs_device_weight w[2] = {weight, weight};
    CHECK(gs_device_plan_create(&plan, device, w, 2, &config, &error) == GS_ESTATE &&
          strstr(error.text, "overlaps"));
    w[0].data.offset += 2;
    CHECK(gs_device_plan_create(&plan, device, w, 1, &config, &error) == GS_EALIGN);
    w[0] = weight;
    w[0].grad = (gs_device_ptr){0};
    CHECK(gs_device_plan_create(&plan, device, w, 1, &config, &error) == GS_ENULL &&
          strstr(error.text, "the gradient of weight fc is missing"));
    w[0] = weight;
    w[0].count = SIZE_MAX / 2;
    CHECK(gs_device_plan_create(&plan, device, w, 1, &config, &error) == GS_ESIZE);
    w[0] = weight;
    w[0].grad_dtype = GS_F64;
    CHECK(gs_device_plan_create(&plan, device, w, 1, &config, &error) == GS_EDTYPE);
    w[0] = weight;
    w[0].lr_factor = -1;
    CHECK(gs_device_plan_create(&plan, device, w, 1, &config, &error) == GS_ERANGE);
    gs_device_plan_config other = config;
    other.size = 0;
    CHECK(gs_device_plan_create(&plan, device, &weight, 1, &other, &error) == GS_EVERSION);
    other = config;
    other.rank = 2;
    CHECK(gs_device_plan_create(&plan, device, &weight, 1, &other, &error) == GS_ERANGE);
    other = config;
    other.unscale = GS_UNSCALE_COUNT;
    CHECK(gs_device_plan_create(&plan, device, &weight, 1, &other, &error) == GS_ERANGE);
    other = config;
    other.unscale = GS_UNSCALE_TO_F32;
    CHECK(gs_device_plan_create(&plan, device, &weight, 1, &other, &error) == GS_ENULL);
    CHECK(gs_device_plan_create(&plan, device, &weight, 1, NULL, &error) == GS_ENULL);
    gs_device *none = device;
    gs_device_config kind = {.size = sizeof kind, .kind = GS_DEVICE_KIND_COUNT};
    CHECK(gs_device_create(&none, &kind, &error) == GS_ERANGE && !none);
    kind.kind = GS_DEVICE_OPENCL;
    kind.library = "libno_such_thing.so.1";
    CHECK(gs_device_create(&none, &kind, &error) == GS_EIO &&
          strstr(error.text, "libno_such_thing"));
    kind.library = "libm.so.6";
    CHECK(gs_device_create(&none, &kind, &error) == GS_EVERSION && !none);
    CHECK(gs_device_create(&none, NULL, &error) == GS_ENULL);
    gs_device_free(device);
}

TESTS({"equal_bits", test_equal_bits}, {"presets", test_presets}, {"many_small", test_many_small},
      {"ranks", test_ranks}, {"save_and_load", test_save_and_load},
      {"late_reports", test_late_reports}, {"cast", test_cast}, {"norms", test_norms},
      {"corners", test_corners}, {"no_f64", test_no_f64}, {"out_of_memory", test_out_of_memory},
      {"bad_input", test_bad_input})
