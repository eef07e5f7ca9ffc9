/* doc/tutorial.md, second half: a PyTorch loop with GradScaler, clipping, a schedule and
 * state_dict, call by call in C. The marks (1) to (7) are those of the Python listing there.
 *
 *     cc from_pytorch.c $(pkg-config --cflags --libs gradscale) -lm && ./a.out
 */
#include <gradscale/optim.h>
#include <math.h>
#include <stdio.h>

enum { TILE = 4096, STEPS = 300 };

static float master[2];           /* f32 weights, which the optimizer steps */
static uint16_t half[2], grad[2]; /* what the model reads, what backward leaves */

/* p = sigmoid(w * x + b) for every pixel of a tile; the mean loss, its scaled gradients in f16. */
static double forward_backward(float scale)
{
    const float w = gs_f16_to_f32(half[0]), b = gs_f16_to_f32(half[1]);
    float sum[2] = {0, 0};
    double loss = 0;
    for (int i = 0; i < TILE; i++) {
        const float x = (float)i / TILE, y = x > 0.4f;
        const float p = 1 / (1 + expf(-(w * x + b)));
        loss -= log((double)(y > 0 ? p : 1 - p)) / TILE;
        const uint16_t d = gs_f32_to_f16((p - y) / TILE * scale); /* (3) */
        sum[0] += gs_f16_to_f32(d) * x;
        sum[1] += gs_f16_to_f32(d);
    }
    grad[0] = gs_f32_to_f16(sum[0]);
    grad[1] = gs_f32_to_f16(sum[1]);
    return loss;
}

int main(void)
{
    gs_context *ctx;
    gs_optim *optim;
    gs_optim_config config = {.size = sizeof config};
    gs_scaler scaler, loaded;
    gs_error error;
    const gs_weight list[] = {{.name = "w, b",
                               .rows = 1,
                               .cols = 2,
                               .data = master,
                               .dtype = GS_F32,
                               .copy = half,
                               .copy_dtype = GS_F16,
                               .grad = grad,
                               .grad_dtype = GS_F16}};
    if (gs_context_create(&ctx, NULL, &error) != GS_OK ||
        gs_scaler_init(&scaler, "pytorch", &error) != GS_OK || /* (1) */
        gs_scaler_set(&scaler, "init=0x1p+20 interval=100", &error) != GS_OK ||
        gs_optim_config_init(&config, "adamw", &error) != GS_OK ||
        gs_optim_config_set(&config, "lr=0.3 clip_norm=1 schedule=cosine total=300", &error) !=
            GS_OK)
        return fprintf(stderr, "%s\n", error.text), 1;
    if (gs_optim_create(&optim, ctx, list, 1, &config) != GS_OK)
        return fprintf(stderr, "%s\n", gs_context_error(ctx)->text), 1;

    double loss = 0;
    for (int i = 0; i < STEPS; i++) {
        gs_step step;
        gs_optim_report report;
        gs_step_begin(&step, &scaler); /* (2) */
        loss = forward_backward((float)step.scale);
        gs_step_loss(&step, loss);
        if (gs_optim_step(optim, &step, &scaler, &report) != GS_OK) /* (4) (5) (6) */
            return fprintf(stderr, "%s\n", gs_context_error(ctx)->text), 1;
        if (report.verdict.action != GS_APPLY)
            printf("step %3d: %s (%s) at scale %.0f\n", i, gs_action_name(report.verdict.action),
                   gs_reason_name(report.verdict.reason), step.scale);
        else if (i % 100 == 99)
            printf("step %3d: loss %.4f, norm %.4f, lr %.3f, scale %.0f\n", i, loss, report.norm,
                   report.lr, step.scale);
    }

    char text[GS_STATE_TEXT_MAX]; /* (7) */
    size_t length;
    if (gs_scaler_save_text(text, sizeof text, &length, &scaler, &error) != GS_OK ||
        gs_scaler_load_text(&loaded, text, length, &error) != GS_OK)
        return fprintf(stderr, "%s\n", error.text), 1;
    printf("%d applied, %d skipped; loaded at scale %.0f\n", (int)loaded.counters.applied,
           (int)(loaded.counters.attempted - loaded.counters.applied), gs_scaler_scale(&loaded));
    gs_optim_free(optim);
    gs_context_free(ctx);
    return 0;
}
