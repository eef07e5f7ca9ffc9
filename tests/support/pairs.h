/* pairs.h: a unit for pairs of bf16 in plain C, for machines without one.
 *
 * It does what VDPBF16PS does, the flushing of subnormals included, in micro-tiles of other sizes.
 * So the packing of pairs, and the rule where they fall back to fma, are tested everywhere. */
#ifndef PAIRS_H
#define PAIRS_H

#include "kernel/context.h"
#include "num/fma.h"

#include <stdlib.h>

enum { PAIRS_MR = 4, PAIRS_NR = 8, PAIRS_LD = 5 };

/* Bits of an f32; a subnormal counts as zero. */
static inline float pairs_flushed(uint32_t bits)
{
    return gsi_float((bits & 0x7F800000) == 0 ? bits & 0x80000000 : bits);
}

/* What the unit makes of a sum and two words: the upper halves first. */
static inline float pairs_unit(float sum, uint32_t x, uint32_t y)
{
    for (int half = 0; half < 2; half++, x <<= 16, y <<= 16) {
        const float a = pairs_flushed(x & 0xFFFF0000), b = pairs_flushed(y & 0xFFFF0000);
        sum = pairs_flushed(gsi_bits(gsi_fma(a, b, pairs_flushed(gsi_bits(sum)))));
    }
    return sum;
}

static inline void pairs_find(gsi_least *least, uint16_t x)
{
    const uint16_t found = (uint16_t)((x & 0x7FFF) - 1);
    if (found < least->lanes[0])
        least->lanes[0] = found;
}

static inline uint32_t pairs_word(uint16_t upper, uint16_t lower, gsi_least *least)
{
    pairs_find(least, upper);
    pairs_find(least, lower);
    return (uint32_t)upper << 16 | lower;
}

static inline void pairs_rows(uint32_t *dst, const uint16_t *src, size_t row_step, size_t line_step,
                              size_t m, size_t k, gsi_least *least)
{
    for (size_t r = 0; r < m; r++)
        for (size_t p = 0; p < k; p += 2) {
            const uint16_t *const x =
                src + r * row_step + p / GSI_PAIRS_LINE * line_step + p % GSI_PAIRS_LINE;
            dst[p / GSI_PAIRS_LINE * PAIRS_MR * GSI_LINE + r * GSI_LINE + p % GSI_PAIRS_LINE / 2] =
                pairs_word(x[0], p + 1 < k ? x[1] : 0, least);
        }
}

static inline void pairs_columns(uint32_t *dst, size_t ld, const uint16_t *src, size_t stride,
                                 size_t k, size_t n, gsi_least *least)
{
    for (size_t r = 0; r < k; r += 2, src += 2 * stride)
        for (size_t c = 0; c < ld; c++)
            dst[r / 2 * ld + c] =
                c < n ? pairs_word(src[c], r + 1 < k ? src[stride + c] : 0, least) : 0;
}

static inline void pairs_transpose(uint32_t *dst, const uint16_t *src, size_t stride, size_t n,
                                   size_t k, gsi_least *least)
{
    for (size_t r = 0; r < PAIRS_NR; r++, src += stride)
        for (size_t c = 0; c < k; c += 2)
            dst[c / 2 * PAIRS_NR + r] =
                r < n ? pairs_word(src[c], c + 1 < k ? src[c + 1] : 0, least) : 0;
}

static inline void pairs_gather(void *dst, size_t dst_stride, const void *const *src, size_t at,
                                gs_dtype type, size_t rows, size_t n)
{
    (void)type;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < n; c++)
            ((uint16_t *)dst)[r * dst_stride + c] = src[r] ? ((const uint16_t *)src[r])[at + c] : 0;
}

/* exact: with fma, without the half of zeros that an odd k ends with. */
static inline void pairs_micro(float *sums, const float *before, const uint32_t *a, bool rows,
                               const uint32_t *b, size_t m, size_t n, size_t k, bool exact)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = 0;
            for (size_t p = 0; p < k; p += 2) {
                const size_t w = p / 2;
                const uint32_t x =
                    a[rows ? w / GSI_LINE * PAIRS_MR * GSI_LINE + i * GSI_LINE + w % GSI_LINE
                           : w * PAIRS_LD + i];
                const uint32_t y = b[w * PAIRS_NR + j];
                if (!exact) {
                    sum = pairs_unit(sum, x, y);
                    continue;
                }
                sum = gsi_fma(gsi_float(x & 0xFFFF0000), gsi_float(y & 0xFFFF0000), sum);
                if (p + 1 < k)
                    sum = gsi_fma(gsi_float(x << 16), gsi_float(y << 16), sum);
            }
            sums[i * PAIRS_NR + j] = before ? before[i * PAIRS_NR + j] + sum : sum;
        }
}

#define PAIRS_MICRO(name, rows, exact)                                                             \
    static inline void name(float *sums, const float *before, const float *a, size_t a_step,       \
                            const float *b, size_t m, size_t n, size_t k,                          \
                            const gsi_prefetch *prefetch)                                          \
    {                                                                                              \
        (void)a_step, (void)prefetch;                                                              \
        pairs_micro(sums, before, (const uint32_t *)a, rows, (const uint32_t *)b, m, n, k, exact); \
    }
PAIRS_MICRO(pairs_unit_rows, true, false)
PAIRS_MICRO(pairs_unit_columns, false, false)
PAIRS_MICRO(pairs_exact_rows, true, true)
PAIRS_MICRO(pairs_exact_columns, false, true)

/* The context has the unit from here on. Packing of other types and the epilogue are those of the
 * reference, whose micro-tiles are as large. */
static inline void pairs_use(gs_context *ctx)
{
    static const gsi_pairs pairs = {.rows = pairs_rows,
                                    .columns = pairs_columns,
                                    .transpose = pairs_transpose,
                                    .exact_rows = pairs_exact_rows,
                                    .exact_columns = pairs_exact_columns};
    static gsi_gemm_isa isa;
    gsi_kernels reference;
    gsi_kernels_init(&reference, 0);
    isa = *reference.gemm[GS_F32][GS_F32];
    if (isa.mr != PAIRS_MR || isa.nr != PAIRS_NR)
        abort();
    isa.a_ld = PAIRS_LD;
    isa.in_place = 0;
    isa.gather = pairs_gather;
    isa.micro_rows = pairs_unit_rows;
    isa.micro_columns = pairs_unit_columns;
    isa.pairs = &pairs;
    ctx->kernels.gemm[GS_BF16][GS_BF16] = &isa;
}

#endif
