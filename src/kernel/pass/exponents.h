/* One value into a gs_exponents: the definition for the kernels, and what their vectors leave. */
#ifndef GSI_KERNEL_EXPONENTS_H
#define GSI_KERNEL_EXPONENTS_H

#include "kernel/kernel.h"

/* e: the biased f32 exponent, below 1 for what f32 has as subnormals; m: the 23 bits after it.
 *
 * Scales are 2^0 to 2^24, so each binade is the edge of at most one thing:
 *     e <= 102          half of the smallest subnormal, f16's or bf16's: a tie becomes zero
 *     e <= 0            below bf16's smallest normal: 7 bits, and one for the half step
 *     1 <= e <= 112     below f16's smallest normal: 10 bits
 *     113 <= e <= 226   below f16's overflow, 2^16: 11 bits
 *     227 <= e          below bf16's overflow, 2^128: 8 bits */
static inline void gsi_exponents_edges(gs_exponents *sum, int e, uint32_t m)
{
    const uint32_t top = e <= 0 ? 0x7F0000 : e <= 112 ? 0x7FE000 : e <= 226 ? 0x7FF000 : 0x7F8000;
    const int i = e - 127 + GS_BINADE_OF_ONE;
    sum->power[i] += m == 0 && e <= 102;
    sum->top[i] += m >= top;
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

/* Every element by itself. */
static inline uint32_t gsi_exponents_each(gs_exponents *sum, const void *src, size_t n,
                                          gs_dtype type)
{
    uint32_t amax = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t mag = gsi_magnitude(gsi_element(src, type, i));
        gsi_exponents_add(sum, mag);
        amax = mag > amax ? mag : amax;
    }
    return gsi_amax_bits(amax);
}

/* ---- for the vector variants ----
 *
 * They count exponents in a window between 1 and 226, and add the rest one by one: values outside
 * of it, and those that may be edges inside. An f16 never is one; a bf16 only as a power of two. */

enum { GSI_TOP = 0x7FE000 };          /* no edge in the window has smaller bits, but powers */
enum { GSI_POWER_BELOW = 103 << 23 }; /* the magnitudes where powers are counted */

/* The biased exponent at which a window of `slots` exponents begins: its end is a little above the
 * largest of a sample. */
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
