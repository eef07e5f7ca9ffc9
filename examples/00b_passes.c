/* What a scale does to four gradients in f16, and one pass that unscales and checks them. Too low
 * loses the small ones, too high overflows the large one; in between all survive.
 *
 *     cc 00b_passes.c $(pkg-config --cflags --libs gradscale) && ./a.out
 */
#include <gradscale/tensor.h>
#include <stdio.h>

int main(void)
{
    const float grad[4] = {3e-9f, -2e-8f, 1e-6f, 0.5f}; /* f16 ends at 6e-8 and at 65504 */
    float x[4];
    uint16_t h[4];
    const gs_tensor f32 = {x, 4, GS_F32, "fc.weight", 0}, f16 = {h, 4, GS_F16, "fc.weight", 0};
    gs_context *ctx;
    gs_stats stats;
    if (gs_context_create(&ctx, NULL, NULL) != GS_OK)
        return 1;
    for (float scale = 1; scale <= 0x1p24f; scale *= 256) {
        for (int i = 0; i < 4; i++)
            x[i] = grad[i] * scale;                   /* the gradient of loss * scale, */
        gs_tensors_convert(ctx, &f16, &f32, 1, NULL); /* as a half-precision backward stores it */
        gs_tensors_scale_to(ctx, &f32, &f16, 1, 1 / scale,
                            &stats); /* unscale and check: one pass */
        printf("scale %8.0f: %9.3g %9.3g %9.3g %9.3g  %s\n", (double)scale, (double)x[0],
               (double)x[1], (double)x[2], (double)x[3],
               gs_stats_finite(&stats) ? "" : "overflow: skip this step, halve the scale");
    }
    gs_context_free(ctx);
    return 0;
}
