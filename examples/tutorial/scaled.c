/* doc/tutorial.md, third step: half.c with a loss scaler. The loop in main is the README's.
 *
 *     cc scaled.c $(pkg-config --cflags --libs gradscale) -lm && ./a.out
 */
#include <gradscale/scaler.h>
#include <math.h>
#include <stdio.h>

enum { TILE = 4096, BATCH = TILE * 4096, STEPS = 200 }; /* as in plain.c */

static float w, b; /* the model: is this pixel bright? p = sigmoid(w * x + b) */

/* Gradients of loss * scale: the scale goes in where the first gradient is made. */
static double forward_backward(uint16_t grad[2], float scale)
{
    double loss = 0;
    float sum[2] = {0, 0};
    for (int i = 0; i < TILE; i++) {
        const float x = (float)i / TILE, y = x > 0.4f;
        const float p = 1 / (1 + expf(-(w * x + b)));
        loss -= log((double)(y > 0 ? p : 1 - p)) / TILE;
        const uint16_t d = gs_f32_to_f16((p - y) / BATCH * scale);
        sum[0] += gs_f16_to_f32(d) * x;
        sum[1] += gs_f16_to_f32(d);
    }
    grad[0] = gs_f32_to_f16(sum[0]);
    grad[1] = gs_f32_to_f16(sum[1]);
    return loss;
}

/* Gradient descent, with gradients / scale. */
static void update(const uint16_t grad[2], float inverse)
{
    const float rate = 40.0f * BATCH / TILE * inverse;
    w -= rate * gs_f16_to_f32(grad[0]);
    b -= rate * gs_f16_to_f32(grad[1]);
}

int main(void)
{
    double loss = 0;
    uint16_t grad[2];
    const gs_tensor list[] = {{grad, 2, GS_F16, "w, b", 0}};
    gs_context *ctx;
    if (gs_context_create(&ctx, NULL, NULL) != GS_OK)
        return 1;

    gs_scaler scaler;
    gs_scaler_init(&scaler, "pytorch", NULL); /* or any other preset */
    for (int i = 0; i < STEPS; i++) {
        gs_step step;
        gs_step_begin(&step, &scaler);
        loss = forward_backward(grad, (float)step.scale); /* loss * scale */
        gs_stats stats;
        gs_tensors_scan(ctx, list, 1, &stats); /* Inf, NaN, largest, norm */
        gs_step_scan(&step, &stats);
        if (gs_step_end(&step, &scaler).action == GS_APPLY)
            update(grad, (float)step.inverse); /* gradients / scale */
    }

    printf("loss %.4f: bright above %.3f; scale %.0f, %d of %d steps applied\n", loss,
           (double)(-b / w), gs_scaler_scale(&scaler), (int)scaler.counters.applied, STEPS);
    gs_context_free(ctx);
    return 0;
}
