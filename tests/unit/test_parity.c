/* SGD, Adam and AdamW against PyTorch 1.13 on recorded gradients: tests/data/make_optim_vectors.py.
 *
 * A step from the weights and moments that PyTorch had is within 2 units in the last place of where
 * PyTorch went, and 100 steps of our own are within 2 per step. They are not equal because
 * PyTorch's CPU kernels contract x + alpha * y to one fma, compute Adam's step as (-lr / correction
 * * m) / denominator where we multiply last, and divide by sqrt(correction2) where we multiply by
 * its reciprocal. */
#include "test.h"

#include "gradscale/optim.h"

#include <math.h>

enum { STEPS = 100, COUNT = 18 };

static const struct {
    const char *kind, *settings;
} optims[] = {
    {"sgd", "lr=0.1"},
    {"sgd", "lr=0.05 momentum=0.9 weight_decay=1e-2"},
    {"sgd", "lr=0.05 momentum=0.9 nesterov=yes weight_decay=1e-3"},
    {"sgd", "lr=0.05 momentum=0.8 dampening=0.3"},
    {"adam", "lr=1e-2"},
    {"adam", "lr=1e-2 beta1=0.8 beta2=0.95 eps=1e-6 weight_decay=1e-2"},
    {"adamw", "lr=1e-2"},
    {"adamw", "lr=3e-3 beta1=0.9 beta2=0.95 eps=1e-10 weight_decay=0.1"},
};
enum { CASES = sizeof optims / sizeof optims[0] };

static float grads[STEPS][COUNT], start[COUNT], theirs[CASES][STEPS][3][COUNT]; /* weights, m, v */

static void read_vectors(void)
{
    static int done;
    FILE *in = done ? NULL : fopen("tests/data/optim.bin", "rb");
    if (in) {
        done = fread(grads, sizeof grads, 1, in) == 1 && fread(start, sizeof start, 1, in) == 1 &&
               fread(theirs, sizeof theirs, 1, in) == 1 && fgetc(in) == EOF;
        fclose(in);
    }
    CHECK_MSG(done, "tests/data/optim.bin is not as its script writes it");
}

/* In units in the last place of `size`: the largest of the weight before and after the step and,
 * for Adam, of lr, the size of its steps. Where a weight crosses zero, or the terms of m nearly
 * cancel, the unit of the small number that is left says nothing of the rounding that made it. */
static double distance(float ours, float want, float size)
{
    const double unit = (double)(nextafterf(size, INFINITY) - size);
    return fabs((double)ours - (double)want) / unit;
}

/* One step with the scale 1024: a power of two changes nothing. */
static void step(gs_optim *optim, gs_scaler *scaler, float *grad, const float *recorded)
{
    gs_step s;
    gs_optim_report report;
    gs_step_begin(&s, scaler);
    for (size_t i = 0; i < COUNT; i++)
        grad[i] = recorded[i] * (float)s.scale;
    CHECK(gs_optim_step(optim, &s, scaler, &report) == GS_OK);
    CHECK(report.verdict.action == GS_APPLY);
}

/* What a state_dict of PyTorch's holds, into an optimizer that has seen nothing. */
static void take_over(gs_optim *optim, float *weight, float state[3][COUNT], uint64_t t)
{
    const size_t m = gs_optim_slot(optim, 0, GS_SLOT_M).count;
    const size_t v = gs_optim_slot(optim, 0, GS_SLOT_V).count;
    memcpy(weight, state[0], sizeof state[0]);
    CHECK(gs_optim_write_slot(optim, 0, GS_SLOT_M, state[1], m) == GS_OK);
    CHECK(gs_optim_write_slot(optim, 0, GS_SLOT_V, state[2], v) == GS_OK);
    CHECK(gs_optim_set_steps(optim, t) == GS_OK);
}

/* The largest distance of a step; with `again`, every step is the first of a new optimizer, from
 * PyTorch's state. */
static double run_case(size_t c, int again)
{
    float weight[COUNT], grad[COUNT], size[COUNT] = {0};
    double worst = 0;
    gs_context *ctx;
    gs_optim *optim;
    gs_scaler scaler;
    gs_optim_config config = {.size = sizeof config};
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_scaler_init(&scaler, "static:1024", NULL) == GS_OK);
    CHECK(gs_optim_config_init(&config, optims[c].kind, NULL) == GS_OK);
    CHECK(gs_optim_config_set(&config, optims[c].settings, NULL) == GS_OK);
    const gs_weight list[] = {{.name = "w",
                               .rows = 1,
                               .cols = COUNT,
                               .data = weight,
                               .dtype = GS_F32,
                               .grad = grad,
                               .grad_dtype = GS_F32}};
    CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_OK);
    memcpy(weight, start, sizeof weight);
    const float least = config.kind == GS_SGD ? 0 : (float)config.lr;
    for (int t = 0; t < STEPS; t++) {
        if (again && t > 0) {
            gs_optim_free(optim);
            CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_OK);
            take_over(optim, weight, theirs[c][t - 1], (uint64_t)t);
        }
        for (size_t i = 0; i < COUNT; i++)
            size[i] = fmaxf(again ? least : size[i], fabsf(weight[i]));
        step(optim, &scaler, grad, grads[t]);
        for (size_t i = 0; i < COUNT; i++) {
            const float want = theirs[c][t][0][i];
            const double d = distance(weight[i], want, fmaxf(size[i], fabsf(want)));
            worst = fmax(worst, d / (again ? 1 : t + 1));
        }
    }
    gs_optim_free(optim);
    gs_context_free(ctx);
    return worst;
}

static void test_steps(void)
{
    read_vectors();
    for (size_t c = 0; c < CASES; c++) {
        const double worst = run_case(c, 1);
        if (getenv("GS_SHOW"))
            printf("%-6s %-60s %.2f ulp a step\n", optims[c].kind, optims[c].settings, worst);
        CHECK_MSG(worst <= 2, "%s %s: %.2f units in the last place", optims[c].kind,
                  optims[c].settings, worst);
    }
}

static void test_runs(void)
{
    read_vectors();
    for (size_t c = 0; c < CASES; c++) {
        const double worst = run_case(c, 0);
        if (getenv("GS_SHOW"))
            printf("%-6s %-60s %.2f ulp a step, free\n", optims[c].kind, optims[c].settings, worst);
        CHECK_MSG(worst <= 2, "%s %s: %.2f units in the last place a step", optims[c].kind,
                  optims[c].settings, worst);
    }
}

TESTS({"steps", test_steps}, {"runs", test_runs})
