/* doc/tutorial.md, second step: plain.c with gradients kept in f16, as half-precision backward
 * passes keep them. It learns nothing: scaled.c does.
 *
 *     cc half.c $(pkg-config --cflags --libs gradscale) -lm && ./a.out
 */
#include <gradscale/num.h>
#include <math.h>
#include <stdio.h>

enum { TILE = 4096, BATCH = TILE * 4096, STEPS = 200 }; /* as in plain.c */

static float w, b; /* the model: is this pixel bright? p = sigmoid(w * x + b) */

static double forward_backward(uint16_t grad[2])
{
    double loss = 0;
    float sum[2] = {0, 0};
    for (int i = 0; i < TILE; i++) {
        const float x = (float)i / TILE, y = x > 0.4f;
        const float p = 1 / (1 + expf(-(w * x + b)));
        loss -= log((double)(y > 0 ? p : 1 - p)) / TILE;
        const uint16_t d = gs_f32_to_f16((p - y) / BATCH); /* 2^-25 or less: rounds to zero */
        sum[0] += gs_f16_to_f32(d) * x;
        sum[1] += gs_f16_to_f32(d);
    }
    grad[0] = gs_f32_to_f16(sum[0]);
    grad[1] = gs_f32_to_f16(sum[1]);
    return loss;
}

int main(void)
{
    double loss = 0;
    for (int i = 0; i < STEPS; i++) {
        uint16_t grad[2];
        loss = forward_backward(grad);
        const float rate = 40.0f * BATCH / TILE;
        w -= rate * gs_f16_to_f32(grad[0]);
        b -= rate * gs_f16_to_f32(grad[1]);
    }
    printf("loss %.4f: w = %g, b = %g\n", loss, (double)w, (double)b);
    return 0;
}
