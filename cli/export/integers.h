/* integers.h: the integers of quantised products: doc/quantize.md defines them to the last bit, and
 * the library makes the same. */
#ifndef INTEGERS_H
#define INTEGERS_H

#include <stddef.h>
#include <stdint.h>

/* What 1 stands for where amax is the largest magnitude. */
float integers_unit(float amax);
/* Of the n elements of a channel, which are `stride` apart in x and in codes. Returns what 1 stands
 * for; NaN: x is not finite, and nothing was written. */
float integers_of(int8_t *codes, const float *x, size_t n, size_t stride);

#endif
