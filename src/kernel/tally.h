/* What numbers lose when they are stored, counted lane by lane: a template, after kernel/vec.h and
 *
 *     bool reaches(vi x, int32_t limit)         whether a lane is at least that
 *
 * Counts are of all below a limit; what lies between two limits is their difference. */
#ifndef GSI_KERNEL_TALLY_H
#define GSI_KERNEL_TALLY_H

#include "kernel/kernel.h"

typedef struct tally {
    vi zeros, low, small; /* lanes below 1 and the limits, as f32 */
    vi inf, nan;          /* stored as such */
    vi amax;              /* of what stays finite */
    size_t spare;         /* lanes that held no element but 0, as the caller counts them */
} tally;

/* mag: magnitudes before rounding. */
INLINE void tally_add(tally *t, vi mag, const gsi_limits *limits)
{
    const int32_t overflow = (int32_t)limits->overflow;
    t->zeros -= mag < 1;
    t->low -= mag < (int32_t)limits->flushed;
    t->small -= mag < (int32_t)limits->subnormal;
    if (__builtin_expect(reaches(mag, overflow), 0)) {
        const vi nan = mag > (int32_t)GSI_F32_INF, finite = mag < overflow;
        t->nan -= nan;
        t->inf -= ~(nan | finite);
        mag &= finite;
    }
    const vi more = mag > t->amax;
    t->amax = (mag & more) | (t->amax & ~more);
}

INLINE uint32_t lanes_sum(vi x)
{
    uint32_t total = 0;
    for (int l = 0; l < WIDTH; l++)
        total += (uint32_t)x[l];
    return total;
}

INLINE uint32_t lanes_max(vi x)
{
    uint32_t top = 0;
    for (int l = 0; l < WIDTH; l++)
        top = (uint32_t)x[l] > top ? (uint32_t)x[l] : top;
    return top;
}

/* The magnitude that is stored for one. It grows with it: the largest stored is the largest,
 * rounded. */
INLINE uint32_t rounded(uint32_t mag, gs_dtype type)
{
    if (type == GS_F32)
        return mag;
    const gsi_row row = type == GS_F16 ? GSI_ROW_F16 : GSI_ROW_BF16;
    return gsi_widen(gsi_narrow(mag, row, GSI_NEAREST, false), row);
}

INLINE void tally_end(const tally *t, gsi_counts *c, gs_dtype type)
{
    const uint32_t zeros = lanes_sum(t->zeros), low = lanes_sum(t->low);
    const uint32_t amax = rounded(lanes_max(t->amax), type);
    c->zero += zeros - t->spare;
    c->flushed += low - zeros;
    c->subnormal += lanes_sum(t->small) - low;
    c->inf += lanes_sum(t->inf);
    c->nan += lanes_sum(t->nan);
    c->amax = amax > c->amax ? amax : c->amax;
}

#endif
