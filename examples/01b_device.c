/* The gradients live on a device: only a flag, or the largest magnitude, comes back to the host.
 * No context, no kernels of ours, nothing allocated.
 *
 *     cc 01b_device.c $(pkg-config --cflags --libs gradscale) -lm && ./a.out
 *
 * `device_backward` stands for your CUDA or Metal kernels. The bad batch shows `attribute`: the
 * scaler asks for reruns, finds that no scale helps, and blames the batch instead of the scale. */
#include <gradscale/scaler.h>
#include <math.h>
#include <stdio.h>

/* Runs batch i with the loss times scale. Returns the largest |gradient|, Inf or NaN included. */
static double device_backward(int i, double scale)
{
    if (i == 500)
        return (double)NAN; /* a corrupt sample: NaN at any scale */
    const double amax = 0.37 * scale * (1 + 0.5 * sin(i));
    return amax > 65504 ? (double)INFINITY : amax;
}

/* The optimizer multiplies each gradient by `inverse` as it reads it. */
static void device_optimizer(double inverse) { (void)inverse; }

int main(void)
{
    gs_scaler scaler;
    gs_error error;
    if (gs_scaler_init(&scaler, "megatron", &error) != GS_OK ||
        gs_scaler_set(&scaler, "on_overflow=attribute", &error) != GS_OK)
        return fprintf(stderr, "%s\n", error.text), 1;

    for (int i = 0; i < 1000; i++) {
        gs_verdict verdict;
        do {
            gs_step step;
            gs_step_begin(&step, &scaler);
            gs_step_amax(&step, device_backward(i, step.scale)); /* or gs_step_flag(&step, found) */
            verdict = gs_step_end(&step, &scaler);
            if (verdict.action == GS_APPLY)
                device_optimizer(step.inverse);
        } while (verdict.action == GS_RETRY);
        if (verdict.action != GS_APPLY) {
            char why[240];
            printf("batch %d: %s\n", i, gs_scaler_explain(why, sizeof why, &scaler, NULL, 0));
        }
    }
    printf("scale %g, %llu applied, %llu reruns, %llu batches to blame\n", gs_scaler_scale(&scaler),
           (unsigned long long)scaler.counters.applied, (unsigned long long)scaler.counters.retried,
           (unsigned long long)scaler.counters.blamed);
    return scaler.counters.applied != 999;
}
