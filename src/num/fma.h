/* a * b + c, rounded once: matrix products are defined by it. The fmaf of mingw-w64's C library
 * adds in a wider type and rounds twice, so Windows gets one of our own. */
#ifndef GSI_NUM_FMA_H
#define GSI_NUM_FMA_H

#include "base/rounding.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* The product is exact in f64. The sum is rounded to odd there: of the two f64 around an
 * inexact sum, the one whose last bit is 1. That keeps what rounding to f32 has to know (Boldo
 * and Melquiond 2008). */
static inline float gsi_fma_in_f64(float a, float b, float c)
{
    const double product = (double)a * (double)b, addend = (double)c, sum = product + addend;
    const double part = sum - product;
    const double error =
        (product - (sum - part)) + (addend - part); /* exact; NaN unless all are finite */
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (!(error > 0 || error < 0) || (bits & 1))
        return (float)sum;
    bits = (error > 0) == (sum > 0) ? bits + 1 : bits - 1;
    double odd;
    memcpy(&odd, &bits, sizeof odd);
    return (float)odd;
}

static inline float gsi_fma(float a, float b, float c)
{
#if defined(_WIN32)
    return gsi_fma_in_f64(a, b, c);
#else
    return fmaf(a, b, c);
#endif
}

#endif
