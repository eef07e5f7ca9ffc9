/* against_torchvision.h: what the vectors of torchvision's models share: the numbers that the
 * scripts draw, the layout of filters, and which elements of a gradient are looked at. */
#ifndef AGAINST_TORCHVISION_H
#define AGAINST_TORCHVISION_H

#include "against_torch.h"

/* As the scripts have it. */
static inline double number(size_t tensor, size_t i)
{
    uint32_t u = (uint32_t)i * 2654435761u;
    u ^= (uint32_t)tensor * 2246822519u;
    u ^= u >> 15;
    u *= 2246822519u;
    u ^= u >> 13;
    return (double)(u >> 8) / (1 << 23) - 1;
}

/* Where element i of PyTorch's [out, in, kh, kw] lies in [out, kh, kw, in]. */
static inline size_t place(const gs_model *m, size_t t, size_t i)
{
    const gs_layout *l = &m->layouts[t];
    if (l->rank != 4)
        return i;
    const size_t taps = l->kh * l->kw, in = m->entries[t].cols / taps;
    return (i / taps / in * taps + i % taps) * in + i / taps % in;
}

/* How many elements of weight t the vectors have, `most` at most; and where, if at is not NULL. */
static inline size_t sample(size_t *at, const gs_model *m, size_t t, size_t most)
{
    const size_t count = m->entries[t].rows * m->entries[t].cols, n = count < most ? count : most;
    for (size_t k = 0; at && k < n; k++)
        at[k] = place(m, t, (k * count / n + 7 * k) % count);
    return n;
}

static inline void read_floats(FILE *f, float *to, size_t n)
{
    CHECK(f && fread(to, sizeof *to, n, f) == n);
}

#endif
