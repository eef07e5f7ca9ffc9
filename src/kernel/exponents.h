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
 * They count exponents inside a window, two elements at a time: slot a of one and slot b of the
 * next make one counter of 64 x 64. That halves the loads and stores a histogram is made of, and
 * 8 KB of counters stay in L1. The last slot is for all that is outside of the window: zeros, and
 * what is then added one by one, as are the edges. Two tables take turns, so that equal pairs in a
 * row do not wait for each other. */

enum { GSI_SLOTS = 64, GSI_OUTSIDE = GSI_SLOTS - 1 };
enum { GSI_PAIRS_MAX = 1 << 16 }; /* elements before the 16-bit counters could overflow */
enum { GSI_PAIRS_MIN = 1 << 10 }; /* elements below which clearing and folding costs more */

typedef struct gsi_pairs {
    int base; /* the biased exponent of slot 0; base + 62 < 227, base >= 1 */
    uint16_t table[2][GSI_SLOTS * GSI_SLOTS]; /* [a + 64 b] */
} gsi_pairs;

/* Picks the window by a sample, from a little above its largest magnitude downwards, and clears. */
void gsi_pairs_init(gsi_pairs *p, const void *src, size_t n, gs_dtype type);

/* Adds the counters; `outside` of those in the last slot were no zeros. */
void gsi_pairs_fold(gs_exponents *sum, const gsi_pairs *p, uint64_t outside);

/* A value that is an edge, or outside of the window, or both. Returns 1 if it is outside. */
static inline uint64_t gsi_pairs_rare(gs_exponents *sum, const gsi_pairs *p, uint32_t mag)
{
    const int e = (int)(mag >> 23);
    if (e >= p->base && e < p->base + GSI_OUTSIDE) {
        gsi_exponents_edges(sum, e, mag & 0x7FFFFF);
        return 0;
    }
    gsi_exponents_add(sum, mag);
    return 1;
}

#endif
