/* One value into a gs_exponents: the definition for the kernels, and what their vectors leave. */
#ifndef GSI_KERNEL_EXPONENTS_H
#define GSI_KERNEL_EXPONENTS_H

#include "kernel/kernel.h"

/* e: the biased f32 exponent, below 1 for what f32 has as subnormals; m: the 23 bits after it. */
static inline void gsi_exponents_edges(gs_exponents *sum, int e, uint32_t m)
{
    const int i = e - 127 + GS_BINADE_OF_ONE;
    sum->power[i] += m == 0;
    sum->top10[i] += m >= 0x7FE000;
    sum->top11[i] += m >= 0x7FF000;
    if (e < 1 || e >= 227) {
        sum->top7[i] += m >= 0x7F0000;
        sum->top8[i] += m >= 0x7F8000;
    }
}

/* mag: the bits of a magnitude. */
static inline void gsi_exponents_add(gs_exponents *sum, uint32_t mag)
{
    if (mag == 0 || mag >= GSI_F32_INF) {
        sum->zero += mag == 0;
        sum->inf += mag == GSI_F32_INF;
        sum->nan += mag > GSI_F32_INF;
        return;
    }
    int e = (int)(mag >> 23);
    if (e == 0)
        for (e = 1; mag < 0x800000; e--)
            mag <<= 1;
    sum->all[e - 127 + GS_BINADE_OF_ONE]++;
    gsi_exponents_edges(sum, e, mag & 0x7FFFFF);
}

/* ---- for the vector variants ----
 *
 * They count exponents in a window, and add the rest one by one: values outside of it, and edges,
 * of which only `power`, `top10` and `top11` can be inside. */

/* The biased exponent at which a window of `slots` exponents begins: its end is a little above the
 * largest of a sample. It stays between 1 and 226, where top7 and top8 are not counted. */
int gsi_exponents_window(const void *src, size_t n, gs_dtype type, int slots);

/* A value that is an edge, or outside of the window, or both. Returns 1 if it is outside. */
static inline uint64_t gsi_exponents_rare(gs_exponents *sum, uint32_t mag, int base, int slots)
{
    const int e = (int)(mag >> 23);
    if (e >= base && e < base + slots) {
        gsi_exponents_edges(sum, e, mag & 0x7FFFFF);
        return 0;
    }
    gsi_exponents_add(sum, mag);
    return 1;
}

#endif
