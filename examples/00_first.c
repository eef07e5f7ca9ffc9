/* The scaler alone: no context, no tensors. Three policies learn one weight from gradients kept in
 * f16. `none` shows what happens without scaling.
 *
 *     cc 00_first.c $(pkg-config --cflags --libs gradscale) && ./a.out
 */
#include <gradscale/scaler.h>
#include <math.h>
#include <stdio.h>

int main(void) /* learns y = 3 x by gradients of about 1e-9, which f16 rounds to zero */
{
    static const char *const policies[] = {"none", "pytorch", "headroom"};
    for (int p = 0; p < 3; p++) {
        float w = 0;
        gs_scaler scaler;
        if (gs_scaler_init(&scaler, policies[p], NULL) != GS_OK)
            return 1;
        for (int i = 0; i < 1000; i++) {
            gs_step step;
            gs_step_begin(&step, &scaler);
            const float x = (float)(i % 5), dloss = 1e-10f * (w * x - 3 * x) * (float)step.scale;
            const float grad = gs_f16_to_f32(gs_f32_to_f16(dloss * x)); /* kept in half precision */
            gs_step_amax(&step, fabs((double)grad));
            if (gs_step_end(&step, &scaler).action == GS_APPLY)
                w -= 1e8f * grad * (float)step.inverse;
        }
        printf("%-8s w = %.4f at scale %.0f, %d steps skipped\n", policies[p], (double)w,
               gs_scaler_scale(&scaler), (int)(1000 - scaler.counters.applied));
    }
    return 0;
}
