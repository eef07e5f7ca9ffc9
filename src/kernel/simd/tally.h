/* What becomes of numbers that are stored (underflow, subnormal, infinite), counted lane by lane: a
 * template, after kernel/simd/vec.h and
 *
 *     bool reaches(vi x, int32_t limit)         whether a lane is at least that
 *     vi max_i32(vi a, vi b)
 *
 * Counts are of all below a limit; what lies between two limits is their difference. */
#ifndef GSI_KERNEL_TALLY_H
#define GSI_KERNEL_TALLY_H

#include "kernel/kernel.h"

typedef struct tally {
    vi zeros, low, small; /* lanes that are 0 and below the limits, as f32 */
    vi inf, nan;          /* stored as such */
    vi amax;              /* of what stays finite */
    size_t spare;         /* lanes that held no element but 0, as the caller counts them */
} tally;

INLINE void tally_small(tally *t, vi mag, const gsi_limits *limits)
{
    t->zeros -= mag == 0;
    t->low -= mag < (int32_t)limits->underflow;
    t->small -= mag < (int32_t)limits->subnormal;
}

/* Where some may be Inf or NaN: magnitudes before rounding, or as they are stored. */
INLINE void tally_large(tally *t, vi mag, const gsi_limits *limits)
{
    const vi nan = mag > (int32_t)GSI_F32_INF, finite = mag < (int32_t)limits->overflow;
    t->nan -= nan;
    t->inf -= ~(nan | finite);
    t->amax = max_i32(t->amax, mag & finite);
}

/* mag: magnitudes before rounding. */
INLINE void tally_add(tally *t, vi mag, const gsi_limits *limits)
{
    tally_small(t, mag, limits);
    if (__builtin_expect(reaches(mag, (int32_t)limits->overflow), 0))
        tally_large(t, mag, limits);
    else
        t->amax = max_i32(t->amax, mag);
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

/* The bits of what is stored for a magnitude. It grows with it: the largest stored is the largest,
 * rounded. */
INLINE uint32_t rounded(uint32_t mag, gs_dtype type)
{
    if (type == GS_F32)
        return mag;
    return gsi_widen(gsi_narrow(mag, gsi_row_of(type), GSI_NEAREST, false), gsi_row_of(type));
}

/* c->amax is of this type. */
INLINE void tally_end(const tally *t, gsi_counts *c, gs_dtype type)
{
    const uint32_t zeros = lanes_sum(t->zeros), low = lanes_sum(t->low);
    const uint32_t amax = rounded(lanes_max(t->amax), type);
    c->zero += zeros - t->spare;
    c->underflow += low - zeros;
    c->subnormal += lanes_sum(t->small) - low;
    c->inf += lanes_sum(t->inf);
    c->nan += lanes_sum(t->nan);
    c->amax = amax > c->amax ? amax : c->amax;
}

#endif
