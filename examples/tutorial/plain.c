/* Where doc/tutorial.md begins: a training loop in plain C and f32, without gradscale.
 *
 *     cc plain.c -lm && ./a.out
 */
#include <math.h>
#include <stdio.h>

/* A batch is 16.8 million pixels, 4096 tiles of 4096. The loss is a mean over all of them, so that
 * every pixel's gradient is divided by 2^24. The loop takes one tile per step. */
enum { TILE = 4096, BATCH = TILE * 4096, STEPS = 200 };

static float w, b; /* the model: is this pixel bright? p = sigmoid(w * x + b) */

/* Returns the mean loss of the tile; grad becomes the tile's part of the batch's gradient. */
static double forward_backward(float grad[2])
{
    double loss = 0;
    grad[0] = grad[1] = 0;
    for (int i = 0; i < TILE; i++) {
        const float x = (float)i / TILE, y = x > 0.4f;
        const float p = 1 / (1 + expf(-(w * x + b)));
        loss -= log((double)(y > 0 ? p : 1 - p)) / TILE;
        const float d = (p - y) / BATCH; /* gradient of the activation w * x + b */
        grad[0] += d * x;
        grad[1] += d;
    }
    return loss;
}

int main(void)
{
    double loss = 0;
    for (int i = 0; i < STEPS; i++) {
        float grad[2];
        loss = forward_backward(grad);
        const float rate = 40.0f * BATCH / TILE; /* one tile has to move the weights for all */
        w -= rate * grad[0];
        b -= rate * grad[1];
    }
    printf("loss %.4f: bright above %.3f\n", loss, (double)(-b / w));
    return 0;
}
