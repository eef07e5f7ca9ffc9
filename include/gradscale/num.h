/* num.h: number formats, and the conversions that define them.
 *
 * All rounding is integer work on the bits: the result does not depend on the rounding mode, on
 * flush-to-zero or on the caller's compiler flags. Subnormals and infinities are kept; a NaN comes
 * out quiet, with the top bits of its payload. Halves travel as their bits, in uint16_t.
 */
#ifndef GRADSCALE_NUM_H
#define GRADSCALE_NUM_H

#include "gradscale/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Columns: name; bytes; exponent and mantissa bits; the largest finite code; then, as numbers,
 * the largest finite, smallest normal, smallest subnormal, and the step from 1 to the next.
 * E4M3 (OCP "fn") has no infinity: what would be one is its only NaN. */
#define GS_FORMATS(X)                                                                           \
    X(F32, "f32", 4, 8, 23, 0x7F7FFFFF, 0x1.fffffep+127, 0x1p-126, 0x1p-149, 0x1p-23)           \
    X(F16, "f16", 2, 5, 10, 0x7BFF, 0x1.ffcp+15, 0x1p-14, 0x1p-24, 0x1p-10)                     \
    X(BF16, "bf16", 2, 8, 7, 0x7F7F, 0x1.fep+127, 0x1p-126, 0x1p-133, 0x1p-7)                   \
    X(F8E4M3, "f8e4m3", 1, 4, 3, 0x7E, 0x1.cp+8, 0x1p-6, 0x1p-9, 0x1p-3)                        \
    X(F8E5M2, "f8e5m2", 1, 5, 2, 0x7B, 0x1.cp+15, 0x1p-14, 0x1p-16, 0x1p-2)                     \
    X(F64, "f64", 8, 11, 52, 0x7FEFFFFFFFFFFFFF, 0x1.fffffffffffffp+1023, 0x1p-1022, 0x1p-1074, \
      0x1p-52)

typedef enum gs_dtype {
#define X(id, name, bytes, ebits, mbits, top, max, normal, subnormal, epsilon) GS_##id,
    GS_FORMATS(X)
#undef X
        GS_DTYPE_COUNT
} gs_dtype;

typedef struct gs_format {
    const char *name;
    size_t bytes;
    int exponent_bits, mantissa_bits;
    uint64_t max_code; /* the bits of the largest finite value */
    double max, min_normal, min_subnormal, epsilon;
} gs_format;

GS_API const gs_format *gs_dtype_format(gs_dtype dtype); /* NULL: no such type */
GS_API gs_status gs_dtype_parse(gs_dtype *out, const char *name,
                                gs_error *error); /* "f16", "bf16", ... */

/* To nearest, ties to even. */
GS_API uint16_t gs_f32_to_f16(float x);
GS_API uint16_t gs_f32_to_bf16(float x);
GS_API float gs_f16_to_f32(uint16_t code);
GS_API float gs_bf16_to_f32(uint16_t code);

/* Stochastic: away from zero with a probability equal to the part cut off, to 2^-16 of a unit in
 * the last place. `random` is uniform in 0..65535. Above the largest finite value: to nearest. */
GS_API uint16_t gs_f32_to_f16_stochastic(float x, uint16_t random);
GS_API uint16_t gs_f32_to_bf16_stochastic(float x, uint16_t random);

/* FP8 of the OCP specification 1.0. What is too large, infinity included, becomes the largest
 * finite value if `saturate`, else infinity (E5M2) or NaN (E4M3). */
GS_API uint8_t gs_f32_to_f8e4m3(float x, int saturate);
GS_API uint8_t gs_f32_to_f8e5m2(float x, int saturate);
GS_API float gs_f8e4m3_to_f32(uint8_t code);
GS_API float gs_f8e5m2_to_f32(uint8_t code);

#ifdef __cplusplus
}
#endif

#endif
