/* The row kernels on NEON, 4 floats per vector, a pack in 8 registers. */
#include "kernel/rows/rows.h"

#if defined(__aarch64__) && !defined(__AARCH64EB__)
#include <arm_neon.h>

#define WIDTH 4
#define TARGET
#define KERNEL(name) name##_neon
#define UNROLL       _Pragma("GCC unroll 8")

#include "kernel/simd/vec.h"

INLINE vf load_f16(const uint16_t *p)
{
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

INLINE void store_f16(uint16_t *p, vf x)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x)));
}

INLINE vu load_u16(const uint16_t *p) { return (vu)vmovl_u16(vld1_u16(p)); }
INLINE void store_u16(uint16_t *p, vu x) { vst1_u16(p, vmovn_u32((uint32x4_t)x)); }

INLINE vu load_u8(const uint8_t *p)
{
    uint32_t bytes;
    memcpy(&bytes, p, sizeof bytes);
    return (vu)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes))));
}

INLINE void store_u8(uint8_t *p, vu x)
{
    const uint16x4_t h = vmovn_u32((uint32x4_t)x);
    const uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vmovn_u16(vcombine_u16(h, h))), 0);
    memcpy(p, &bytes, sizeof bytes);
}

/* (FMAX would prefer numbers to NaN, and 0 to -0.) */
INLINE vf max_f32(vf a, vf b)
{
    return (vf)vbslq_f32(vcgtq_f32((float32x4_t)a, (float32x4_t)b), (float32x4_t)a, (float32x4_t)b);
}

INLINE vi max_i32(vi a, vi b) { return (vi)vmaxq_s32((int32x4_t)a, (int32x4_t)b); }
INLINE bool reaches(vi x, int32_t limit) { return vmaxvq_s32((int32x4_t)x) >= limit; }

INLINE vu64 mul_even(vu a, vu b)
{
    const uint32x2_t x = vmovn_u64(vreinterpretq_u64_u32((uint32x4_t)a));
    return (vu64)vmull_u32(x, vmovn_u64(vreinterpretq_u64_u32((uint32x4_t)b)));
}

#include "kernel/rows/tmpl.h"

#endif
