/* Vectors of a width, in plain operators: a template.
 *
 *     #define WIDTH  8                                     floats per vector: 4, 8 or 16
 *     #define TARGET __attribute__((target("avx2")))       the instruction set, or nothing
 *     #include "kernel/simd/vec.h"
 *     #include "kernel/simd/math.h"
 *
 * A source that includes it has one width and one instruction set. All of it is inlined into
 * functions of the same target, so that no vector is ever passed by anyone's calling convention.
 * Comparisons give -1 or 0 in each lane. Nothing here rounds twice or contracts: every width and
 * every compiler computes the same bits. */
#ifndef GSI_KERNEL_VEC_H
#define GSI_KERNEL_VEC_H

#include "num/convert.h"

#define INLINE static inline __attribute__((always_inline)) TARGET

typedef float vf __attribute__((vector_size(4 * WIDTH)));
typedef int32_t vi __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t vu __attribute__((vector_size(4 * WIDTH)));
typedef uint64_t vu64 __attribute__((vector_size(4 * WIDTH)));

/* (x - 0 keeps every x, -0 too.) */
INLINE vf splat(float x) { return x - (vf){0}; }

INLINE vf select(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
INLINE vi is_nan(vf x) { return x != x; }
INLINE vf magnitude(vf x) { return (vf)((vi)x & 0x7FFFFFFF); }
INLINE vf with_sign(vf x, vf sign) { return (vf)((vi)x | ((vi)sign & INT32_MIN)); }

#endif
