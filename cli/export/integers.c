#include "cli/export/integers.h"

#include <math.h>

/* 0: too small to be divided by, and all integers are 0. */
static float multiplier(float amax) { return amax > 0x1p-24f ? 127 / amax : 0; }

float integers_unit(float amax) { return amax > 0x1p-24f ? 1 / multiplier(amax) : 1; }

float integers_of(int8_t *codes, const float *x, size_t n, size_t stride)
{
    float amax = 0;
    for (size_t i = 0; i < n * stride; i += stride) {
        if (!(fabsf(x[i]) < INFINITY))
            return NAN;
        amax = fmaxf(amax, fabsf(x[i]));
    }
    const float m = multiplier(amax); /* x m is 127 and a rounding at most: nothing to clamp */
    for (size_t i = 0; i < n * stride; i += stride)
        codes[i] = (int8_t)rintf(x[i] * m);
    return integers_unit(amax);
}
