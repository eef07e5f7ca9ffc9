/* What NEON kernels share: 8 elements of any type in two registers, as the bits of f32. */
#ifndef GSI_KERNEL_NEON_H
#define GSI_KERNEL_NEON_H

#include "kernel/kernel.h"

#include <arm_neon.h>

#define TARGET
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { ROUND = 32 };

INLINE const void *at(const void *src, size_t i, gs_dtype type)
{
    return (const char *)src + i * gsi_size_of(type);
}

/* By bytes: an array may be of any type, and aligned to its elements only. */
INLINE uint32x4_t load(const void *p) { return vreinterpretq_u32_u8(vld1q_u8(p)); }
INLINE void store(void *p, uint32x4_t v) { vst1q_u8(p, vreinterpretq_u8_u32(v)); }

INLINE uint32x4_t all(uint32_t u) { return vdupq_n_u32(u); }
INLINE uint32x4_t magnitude(uint32x4_t u) { return vandq_u32(u, all(0x7FFFFFFF)); }
INLINE float32x4_t floats(uint32x4_t u) { return vreinterpretq_f32_u32(u); }
INLINE uint32x4_t bits(float32x4_t x) { return vreinterpretq_u32_f32(x); }
INLINE uint16x8_t halves(uint32x4_t u) { return vreinterpretq_u16_u32(u); }
INLINE uint32x4_t words(uint16x8_t h) { return vreinterpretq_u32_u16(h); }

/* The low or the high half of each lane of a and b, in order. */
INLINE uint16x8_t low_halves(uint32x4_t a, uint32x4_t b)
{
    return vuzp1q_u16(halves(a), halves(b));
}

INLINE uint16x8_t high_halves(uint32x4_t a, uint32x4_t b)
{
    return vuzp2q_u16(halves(a), halves(b));
}

/* ---- 8 elements in two registers as f32 bits ---- */

typedef uint32x4x2_t f32x8;

INLINE f32x8 load8(const void *src, gs_dtype type)
{
    if (type == GS_F32)
        return (f32x8){{load(src), load((const char *)src + 16)}};
    const uint16x8_t h = halves(load(src));
    if (type == GS_F16) {
        const float16x8_t x = vreinterpretq_f16_u16(h);
        return (f32x8){{bits(vcvt_f32_f16(vget_low_f16(x))), bits(vcvt_high_f32_f16(x))}};
    }
    const uint16x8_t zero = vdupq_n_u16(0);
    return (f32x8){{words(vzip1q_u16(zero, h)), words(vzip2q_u16(zero, h))}};
}

/* All ones where u is a NaN. */
INLINE uint32x4_t is_nan(uint32x4_t u) { return vcgtq_u32(magnitude(u), all(GSI_F32_INF)); }

INLINE uint32x4_t quiet(uint32x4_t u) { return vorrq_u32(u, vandq_u32(is_nan(u), all(0x400000))); }

/* The code is the high half of each lane. */
INLINE uint32x4_t round_bf16(uint32x4_t u)
{
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), all(1));
    const uint32x4_t up = vaddq_u32(vaddq_u32(u, all(0x7FFF)), odd);
    return vbslq_u32(is_nan(u), vorrq_u32(u, all(0x400000)), up);
}

INLINE uint16x8_t to_half(f32x8 u, gs_dtype type)
{
    if (type == GS_BF16)
        return high_halves(round_bf16(u.val[0]), round_bf16(u.val[1]));
    const float16x4_t low = vcvt_f16_f32(floats(u.val[0]));
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(low, floats(u.val[1])));
}

/* ---- the largest magnitude, in the lanes of the type itself ---- */

INLINE uint32x4_t raise(uint32x4_t top, uint32x4_t stored, gs_dtype type)
{
    if (type == GS_F32)
        return vmaxq_u32(top, magnitude(stored));
    return words(vmaxq_u16(halves(top), vandq_u16(halves(stored), vdupq_n_u16(0x7FFF))));
}

INLINE uint32x4_t raise8(uint32x4_t top, f32x8 u)
{
    return vmaxq_u32(top, vmaxq_u32(magnitude(u.val[0]), magnitude(u.val[1])));
}

INLINE uint32_t highest(uint32x4_t top, gs_dtype type)
{
    if (type == GS_F32)
        return gsi_amax_bits(vmaxvq_u32(top));
    return gsi_amax_bits(gsi_widen(vmaxvq_u16(halves(top)), gsi_row_of(type)));
}

#endif
