/* What all families of kernels share. A kernel is a pure function on arrays; dispatch.h has the
 * table of them that a context holds.
 *
 * Contract of every kernel:
 * - n may be 0; pointers are aligned to their element size and to nothing more; bytes outside
 *   [0, n) are neither written nor needed.
 * - dst is src itself or does not overlap it.
 * - A kernel that writes returns the largest magnitude it wrote, one that reads the largest it
 *   read, as the bits of an f32, and GSI_F32_INF if there was an Inf or a NaN. This is how every
 *   pass checks for free.
 * - `stream`: the destination is larger than the caches: bypass them. Ignored in place.
 * - All variants return and write the same bits as the reference, the ref.c of the family. */
#ifndef GSI_KERNEL_H
#define GSI_KERNEL_H

#include "gradscale/exponents.h"
#include "gradscale/gemm.h"
#include "num/convert.h"

enum {
    GSI_TYPES = 3
}; /* GS_F32, GS_F16, GS_BF16: what kernels compute with, and their tables' size */

/* Counts what full scans count. */
typedef struct gsi_counts {
    uint64_t inf, nan, zero, subnormal, underflow;
    uint32_t amax;    /* bits, finite elements */
    size_t first_bad; /* n if none */
} gsi_counts;

/* The magnitudes, as f32 bits, below which a value rounds to zero or to a subnormal of a format,
 * and from which on it rounds to Inf: 0 < underflow <= subnormal <= overflow <= GSI_F32_INF.
 * Kernels that count take underflow = subnormal = 0 too, to count neither. */
typedef struct gsi_limits {
    uint32_t underflow, subnormal; /* 0 < mag < underflow; underflow <= mag < subnormal */
    uint32_t overflow;
} gsi_limits;

gsi_limits gsi_limits_of(gs_dtype type); /* f32, f16 or bf16 */

/* What a kernel returns for the largest magnitude it met. */
static inline uint32_t gsi_amax_bits(uint32_t magnitude)
{
    return magnitude < GSI_F32_INF ? magnitude : GSI_F32_INF;
}

/* Sums of squares. Elements are cut into blocks of GSI_BLOCK. In a block, element i goes to lane
 * i % GSI_LANES, and each lane adds its squares in f32, in order; the lanes of the block are then
 * added to f64 lanes. Where f32 could overflow, or lose more than the rounding does, because the
 * block's largest magnitude is outside [GSI_SUM_MIN, GSI_SUM_MAX], the squares are added to the
 * f64 lanes one by one. At the end lanes fold pairwise: l += l + 16, then + 8, + 4, + 2, + 1.
 * So no finite input overflows, the relative error is below 2^-20, and it runs at the speed of
 * memory: f64 throughout costs three times the instructions. */
enum { GSI_LANES = 32, GSI_BLOCK = 512 };
#define GSI_SUM_MIN 0x2B800000u /* 2^-40: a square below 2^-126 is then lost in rounding anyway */
#define GSI_SUM_MAX 0x5D800000u /* 2^60: 16 squares stay below 2^125 */

/* A block of zeros adds zeros either way; in f32 in a third of the time. */
static inline bool gsi_sums_in_f32(uint32_t top)
{
    return top == 0 || (top >= GSI_SUM_MIN && top <= GSI_SUM_MAX);
}

/* Pairwise fold of the lanes, shared by all variants; Inf if `top` says that not all was finite. */
double gsi_fold(double lanes[GSI_LANES], uint32_t top);

#endif
