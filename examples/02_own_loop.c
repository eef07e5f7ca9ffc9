/* A training loop of your own, over plain arrays, in f16, with an optimizer that keeps f32 master
 * weights. The model is small and its loops are naive; what gradscale needs of it is marked (1) to
 * (4). The task: tell which of two interleaved spirals a point is on.
 *
 *     cc 02_own_loop.c $(pkg-config --cflags --libs gradscale) -lm && ./a.out
 */
#include <gradscale/optim.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { POINTS = 200, HIDDEN = 48, STEPS = 1500 };

/* All weights in one array, as a model in C would have them: w1 (HIDDEN, 2), b1 (HIDDEN),
 * w2 (HIDDEN), b2 (1). The model computes with the halves; the masters are the optimizer's. */
enum { W1 = 0, B1 = W1 + 2 * HIDDEN, W2 = B1 + HIDDEN, B2 = W2 + HIDDEN, COUNT = B2 + 1 };
static float master[COUNT];
static uint16_t half[COUNT], grad[COUNT];

static float inputs[POINTS][2], labels[POINTS];

static void make_data(void)
{
    for (int i = 0; i < POINTS; i++) {
        const float turn = (float)(i / 2) / (POINTS / 2),
                    angle = 6.0f * turn + 3.14159265f * (float)(i % 2);
        inputs[i][0] = turn * cosf(angle);
        inputs[i][1] = turn * sinf(angle);
        labels[i] = i % 2 ? 1 : -1;
    }
    for (unsigned i = 0; i < COUNT; i++)
        master[i] = 2 * ((float)gs_random_u32(1, i) / 4294967296.0f - 0.5f);
}

static float w(int i) { return gs_f16_to_f32(half[i]); }

/* The mean of log(1 + exp(-label * score)). Gradients of loss * scale are left in `grad`, f16 as a
 * half-precision backward pass leaves them: too large for f16 is Inf there, too small is 0. */
static double forward_backward(float scale)
{
    float sums[COUNT] = {0};
    double loss = 0;
    for (int n = 0; n < POINTS; n++) {
        float hidden[HIDDEN], score = w(B2);
        for (int h = 0; h < HIDDEN; h++) {
            hidden[h] = tanhf(
                4 * (w(W1 + 2 * h) * inputs[n][0] + w(W1 + 2 * h + 1) * inputs[n][1]) + w(B1 + h));
            score += w(W2 + h) * hidden[h];
        }
        loss += log1p(exp((double)(-labels[n] * score))) / POINTS;
        /* (2) the loss is multiplied by the scale: here, where its gradient is born */
        const float dscore = -labels[n] / (1 + expf(labels[n] * score)) / POINTS * scale;
        sums[B2] += dscore;
        for (int h = 0; h < HIDDEN; h++) {
            const float dhidden = dscore * w(W2 + h) * (1 - hidden[h] * hidden[h]);
            sums[W2 + h] += dscore * hidden[h];
            sums[W1 + 2 * h] += 4 * dhidden * inputs[n][0];
            sums[W1 + 2 * h + 1] += 4 * dhidden * inputs[n][1];
            sums[B1 + h] += dhidden;
        }
    }
    for (int i = 0; i < COUNT; i++)
        grad[i] = gs_f32_to_f16(sums[i]);
    return loss;
}

int main(void)
{
    make_data();

    /* (1) once: a context, a scaler, and an optimizer that is told where the arrays are */
    gs_context *ctx;
    gs_scaler scaler;
    gs_optim *optim;
    gs_optim_config config = {.size = sizeof config};
    const gs_weight list[] = {{.name = "model",
                               .rows = 1,
                               .cols = COUNT,
                               .data = master,
                               .dtype = GS_F32,
                               .copy = half,
                               .copy_dtype = GS_F16,
                               .grad = grad,
                               .grad_dtype = GS_F16}};
    gs_error error; /* of calls without a context; GS_OK is 0 */
    if (gs_context_create(&ctx, NULL, &error) || gs_scaler_init(&scaler, "pytorch", &error) ||
        gs_scaler_set(&scaler, "interval=100", &error) ||
        gs_optim_config_init(&config, "adamw", &error) ||
        gs_optim_config_set(
            &config, "lr=0.01 weight_decay=0.01 clip_norm=1 schedule=cosine warmup=50 total=1500",
            &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    if (gs_optim_create(&optim, ctx, list, 1, &config)) /* the context has the message */
        return fprintf(stderr, "%s\n", gs_context_error(ctx)->text), 1;
    for (int i = 0; i < COUNT; i++)
        half[i] = gs_f32_to_f16(master[i]);

    double loss = 0;
    gs_optim_report report;
    for (int t = 0; t < STEPS; t++) {
        gs_step step;
        gs_step_begin(&step, &scaler); /* (3) which scale */
        loss = forward_backward((float)step.scale);
        gs_step_loss(&step, loss);
        if (gs_optim_step(optim, &step, &scaler, &report)) /* (4) judge, clip, apply */
            return fprintf(stderr, "%s\n", gs_context_error(ctx)->text), 1;
        if (report.verdict.action != GS_APPLY)
            printf("step %4d: an overflow at the scale %g: skipped\n", t, step.scale);
        else if (t % 250 == 0)
            printf("step %4d: loss %.4f, |gradient| %.4f, scale %g\n", t, loss, report.norm,
                   step.scale);
    }
    const gs_optim_state state = gs_optim_get_state(optim);
    printf("loss %.4f after %llu steps applied and %llu skipped\n", loss,
           (unsigned long long)state.applied, (unsigned long long)state.skipped);
    gs_optim_free(optim);
    gs_context_free(ctx);
    return loss < 0.1 ? 0 : 1;
}
