/* device_corners.h: steps that no list of random gradients makes, on any kind of device. */
#ifndef DEVICE_CORNERS_H
#define DEVICE_CORNERS_H

#include "device_rig.h"

enum { CORNER = 100 }; /* elements */

typedef struct device_corner {
    gs_device *device;
    gs_device_ptr data, grad;
    gs_device_plan *plan;
    gs_scaler scaler;
} device_corner;

static inline void corner_fill(const device_corner *c, gs_device_ptr to, float x)
{
    float all[CORNER];
    for (int i = 0; i < CORNER; i++)
        all[i] = x;
    CHECK(gs_device_write(c->device, to, all, sizeof all, NULL, NULL) == GS_OK);
}

/* SGD with lr=0.5 from weights 1; its gradients are `count` f32. */
static inline gs_status corner_open(device_corner *c, gs_device *device, const char *scaler,
                                    const char *rules, gs_device_plan_config config, size_t count,
                                    gs_error *error)
{
    const device_case sgd = {.optim = "sgd", .settings = "lr=0.5"};
    const gs_optim_config optim = rig_optim(&sgd);
    *c = (device_corner){.device = device};
    CHECK(gs_scaler_init(&c->scaler, scaler, NULL) == GS_OK &&
          (!rules || gs_scaler_set(&c->scaler, rules, NULL) == GS_OK));
    CHECK(gs_device_alloc(&c->data, device, CORNER * 4, NULL) == GS_OK &&
          gs_device_alloc(&c->grad, device, CORNER * 4, NULL) == GS_OK);
    corner_fill(c, c->data, 1);
    corner_fill(c, c->grad, 0);
    const gs_device_weight w = {.count = count, .data = c->data, .grad = c->grad};
    config.size = sizeof config;
    config.optim = &optim;
    config.scaler = &c->scaler;
    return gs_device_plan_create(&c->plan, device, &w, 1, &config, error);
}

static inline void corner_close(device_corner *c)
{
    gs_device_plan_free(c->plan);
    gs_device_release(c->device, c->data);
    gs_device_release(c->device, c->grad);
}

static inline float corner_read(const device_corner *c, gs_device_ptr from)
{
    float x = NAN;
    CHECK(gs_device_read(&x, c->device, from, sizeof x, NULL, NULL) == GS_OK);
    return x;
}

static inline float corner_word(const device_corner *c, int i)
{
    gs_device_ptr p = gs_device_plan_words(c->plan);
    p.offset += (unsigned)i * sizeof(float);
    return corner_read(c, p);
}

/* An optimizer that looks at found_inf alone steps exactly when act does. */
static inline void corner_found_inf(gs_device *device)
{
    static const struct {
        const char *scaler;
        float grad, found;
    } steps[] = {{"static:4", 1, 0},
                 {"static:4", INFINITY, 1},
                 {"static:4", NAN, 1},
                 {"static:1e-6", 3e38f, 1}}; /* finite until it is unscaled */
    device_corner c;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        CHECK(corner_open(&c, device, steps[i].scaler, NULL, (gs_device_plan_config){.steps = 1},
                          CORNER, NULL) == GS_OK);
        corner_fill(&c, c.grad, steps[i].grad);
        CHECK(gs_device_step(c.plan, NULL, NULL) == GS_OK);
        CHECK_MSG(corner_word(&c, 2) == steps[i].found && corner_word(&c, 3) == 1 - steps[i].found,
                  "%s, gradients %g: found_inf %g, applied %g", steps[i].scaler,
                  (double)steps[i].grad, (double)corner_word(&c, 2), (double)corner_word(&c, 3));
        corner_close(&c);
    }
}

/* A plan whose steps are used up leaves all as it is, gradients that it would unscale, too. */
static inline void corner_exhausted(gs_device *device)
{
    device_corner c;
    CHECK(corner_open(&c, device, "static:16", NULL,
                      (gs_device_plan_config){.steps = 1, .unscale = GS_UNSCALE_IN_PLACE}, CORNER,
                      NULL) == GS_OK);
    for (int i = 0; i < 2; i++) {
        corner_fill(&c, c.grad, 16);
        CHECK(gs_device_step(c.plan, NULL, NULL) == GS_OK);
        CHECK_MSG(corner_read(&c, c.grad) == (i ? 16 : 1) && corner_read(&c, c.data) == 0.5f,
                  "step %d: gradient %g, weight %g", i, (double)corner_read(&c, c.grad),
                  (double)corner_read(&c, c.data));
        CHECK(corner_word(&c, 2) == (float)i && corner_word(&c, 3) == (float)(1 - i));
    }
    corner_close(&c);
}

/* headroom goes on with what flags alone had told it. */
static inline void corner_flags(gs_device *device)
{
    static const float grads[] = {INFINITY, INFINITY, 0, 1, NAN, 2};
    const gs_optim_state state = {0};
    device_corner c;
    gs_scaler got;
    gs_step step;
    for (int from = 0; from < 3; from++) { /* with an overflow first, zeros first, a gradient */
        CHECK(corner_open(&c, device, "headroom", "history=2", (gs_device_plan_config){.steps = 9},
                          CORNER, NULL) == GS_OK);
        for (int i = 0; i < 3; i++) {
            gs_step_begin(&step, &c.scaler);
            gs_step_flag(&step, i == 0);
            gs_step_end(&step, &c.scaler);
        }
        CHECK(gs_device_load(c.plan, &c.scaler, &state, NULL, NULL) == GS_OK);
        for (int i = from + 1; i < 6; i++) {
            gs_stats stats;
            gs_stats_init(&stats);
            stats.elements = CORNER;
            stats.nan = isnan(grads[i]) ? CORNER : 0;
            stats.inf = isinf(grads[i]) ? CORNER : 0;
            stats.amax = isfinite(grads[i]) ? grads[i] : 0;
            if (!isfinite(grads[i]))
                stats.bad_tensor = stats.bad_index = 0;
            gs_step_begin(&step, &c.scaler);
            gs_step_scan(&step, &stats);
            gs_step_end(&step, &c.scaler);
            corner_fill(&c, c.grad, grads[i]);
            CHECK(gs_device_step(c.plan, NULL, NULL) == GS_OK &&
                  gs_device_save(&got, NULL, c.plan, NULL, NULL) == GS_OK);
            CHECK_MSG(memcmp(&got, &c.scaler, sizeof got) == 0,
                      "from %d, step %d: scale %g, not %g", from, i, gs_scaler_scale(&got),
                      gs_scaler_scale(&c.scaler));
        }
        corner_close(&c);
    }
}

/* A scale that f32 cannot hold would give the caller's kernels Inf. */
static inline void corner_scales(gs_device *device)
{
    static const struct {
        const char *scaler, *rules;
        gs_status status;
    } scalers[] = {{"static:1e38", NULL, GS_OK},
                   {"static:1024", "highest=off", GS_OK},
                   {"static:1e39", NULL, GS_ERANGE},
                   {"headroom", "highest=1e38", GS_OK},
                   {"headroom", "highest=off", GS_ERANGE},
                   {"pytorch", "highest=off", GS_OK}, /* its state is f32 */
                   {"static:1e-9", NULL, GS_ERANGE}};
    device_corner c;
    gs_error error = {0};
    for (size_t i = 0; i < sizeof scalers / sizeof scalers[0]; i++) {
        const gs_status status = corner_open(&c, device, scalers[i].scaler, scalers[i].rules,
                                             (gs_device_plan_config){.steps = 1}, CORNER, &error);
        CHECK_MSG(status == scalers[i].status && !c.plan == (status != GS_OK), "%s %s: %d",
                  scalers[i].scaler, scalers[i].rules ? scalers[i].rules : "", (int)status);
        corner_close(&c);
    }
    CHECK(corner_open(&c, device, "headroom", NULL, (gs_device_plan_config){.steps = 1}, 0,
                      &error) == GS_ESTATE &&
          strstr(error.text, "headroom needs gradients")); /* and none would move the scale */
    corner_close(&c);
}

/* Nothing is copied, from and to nowhere; something is not. */
static inline void corner_nowhere(gs_device *device)
{
    const gs_device_ptr nowhere = {0};
    char x[4] = {0};
    CHECK(gs_device_write(device, nowhere, NULL, 0, NULL, NULL) == GS_OK &&
          gs_device_read(NULL, device, nowhere, 0, NULL, NULL) == GS_OK &&
          gs_device_copy(device, nowhere, nowhere, 0, NULL, NULL) == GS_OK);
    CHECK(gs_device_write(device, nowhere, x, sizeof x, NULL, NULL) == GS_ENULL &&
          gs_device_read(x, device, nowhere, sizeof x, NULL, NULL) == GS_ENULL &&
          gs_device_copy(device, nowhere, nowhere, sizeof x, NULL, NULL) == GS_ENULL);
}

static inline void device_corners(gs_device *device)
{
    corner_found_inf(device);
    corner_exhausted(device);
    corner_flags(device);
    corner_scales(device);
    corner_nowhere(device);
}

#endif
