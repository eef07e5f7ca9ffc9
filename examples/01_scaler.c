/* Your loop, your optimizer, our scaler.
 *
 *     cc 01_scaler.c $(pkg-config --cflags --libs gradscale) && ./a.out
 *
 * Fits y = a x + b with gradients kept in f16. They are about 1e-8, which f16 rounds to zero:
 * without the scale nothing is learnt. */
#include <gradscale/scaler.h>
#include <math.h>
#include <stdio.h>

int main(void)
{
    const float unit = 1e-8f; /* of the loss */
    float a = 0, b = 0;
    gs_context *ctx;
    gs_scaler scaler;
    gs_error error;
    if (gs_context_create(&ctx, NULL, &error) != GS_OK ||
        gs_scaler_init(&scaler, "pytorch", &error) != GS_OK ||
        gs_scaler_set(&scaler, "init=0x1p+40 interval=200", &error) != GS_OK)
        return fprintf(stderr, "%s\n", error.text), 1;

    for (int i = 0; i < 2000; i++) {
        const float x = (float)(i % 7) - 3, y = 2 * x + 1;
        gs_step step;
        gs_step_begin(&step, &scaler);

        const float dloss = unit * 2 * (a * x + b - y) * (float)step.scale; /* of loss * scale */
        uint16_t grad[2] = {gs_f32_to_f16(dloss * x), gs_f32_to_f16(dloss)};

        const gs_tensor list[] = {{grad, 2, GS_F16, "a, b", 0}};
        gs_stats stats;
        gs_tensors_check(ctx, list, 1, &stats);
        gs_step_scan(&step, &stats);
        if (gs_step_end(&step, &scaler).action != GS_APPLY)
            continue; /* the scale was too high: it is lower now */

        const float rate = 0.02f / unit * (float)step.inverse;
        a -= rate * gs_f16_to_f32(grad[0]);
        b -= rate * gs_f16_to_f32(grad[1]);
    }
    printf("y = %.3f x + %.3f, scale %g, %llu of %llu steps applied\n", (double)a, (double)b,
           gs_scaler_scale(&scaler), (unsigned long long)scaler.counters.applied,
           (unsigned long long)scaler.counters.attempted);
    gs_context_free(ctx);
    return fabsf(a - 2) > 0.01f || fabsf(b - 1) > 0.01f;
}
