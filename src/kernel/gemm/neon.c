/* NEON: micro-tiles of 6 by 16, 24 sums in registers. */
#include "kernel/dispatch.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define WIDTH 4
#define TARGET
#define MR           6
#define NR           16
#define A_LD         8
#define DEPTH        1
#define SKINNY_MR    4
#define SKINNY_WIDE  0
#define STEP         4
#define PREFETCH_A   1
#define IN_PLACE     0
#define HALF_COLUMNS 4
#define CPU          GS_CPU_NEON
#define L2_PANELS    32
#define TILE_PANELS  128
#define TILE_STRIPS  32
#define KC_BLOCKS    3
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#include "kernel/simd/vec.h"

INLINE float32x4_t widen(uint16x4_t h, gs_dtype type)
{
    if (type == GS_F16)
        return vcvt_f32_f16(vreinterpret_f16_u16(h));
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}

INLINE vf mul_add(vf x, vf y, vf s)
{
    return (vf)vfmaq_f32((float32x4_t)s, (float32x4_t)x, (float32x4_t)y);
}

INLINE vi max_i32(vi a, vi b) { return (vi)vmaxq_s32((int32x4_t)a, (int32x4_t)b); }
INLINE bool reaches(vi x, int32_t limit) { return vmaxvq_s32((int32x4_t)x) >= limit; }

INLINE vf load(const void *src, size_t i, gs_dtype type, size_t n)
{
    if (type == GS_F32) {
        const float *x = (const float *)src + i;
        float part[WIDTH] = {0};
        if (n >= WIDTH)
            return (vf)vld1q_f32(x);
        memcpy(part, x, n % WIDTH * sizeof *part);
        return (vf)vld1q_f32(part);
    }
    const uint16_t *x = (const uint16_t *)src + i;
    uint16_t part[WIDTH] = {0};
    if (n >= WIDTH)
        return (vf)widen(vld1_u16(x), type);
    memcpy(part, x, n % WIDTH * sizeof *part);
    return (vf)widen(vld1_u16(part), type);
}

INLINE uint16x4_t to_half(vu u, gs_dtype type)
{
    if (type == GS_F16)
        return vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)u));
    return vmovn_u32((uint32x4_t)((u + 0x7FFF + (u >> 16 & 1)) >> 16));
}

INLINE void store(void *dst, gs_dtype type, vi u, size_t n)
{
    if (type == GS_F32) {
        uint32_t part[WIDTH];
        if (n >= WIDTH) {
            vst1q_f32(dst, (float32x4_t)u);
            return;
        }
        vst1q_u32(part, (uint32x4_t)u);
        for (size_t k = 0; k < n; k++)
            ((float *)dst)[k] = gsi_float(part[k]);
        return;
    }
    const uint16x4_t h = to_half((vu)u, type);
    uint16_t part[WIDTH];
    vst1_u16(part, h);
    for (size_t k = 0; k < WIDTH && k < n; k++)
        ((uint16_t *)dst)[k] = part[k];
}

/* ---- transposing ---- */

typedef struct transposed_block {
    float64x2_t v[WIDTH];
} transposed_block;

INLINE void transpose_part(transposed_block *t, const void *src, size_t stride, gs_dtype type,
                           const size_t half)
{
    const float32x4_t x = (float32x4_t)load(src, 0, type, WIDTH);
    const float32x4_t y = (float32x4_t)load(src, stride, type, WIDTH);
    const float64x2_t even = vreinterpretq_f64_f32(vtrn1q_f32(x, y));
    const float64x2_t odd = vreinterpretq_f64_f32(vtrn2q_f32(x, y));
    if (half == 0) {
        t->v[0] = even;
        t->v[1] = odd;
        return;
    }
    t->v[2] = vtrn2q_f64(t->v[0], even);
    t->v[3] = vtrn2q_f64(t->v[1], odd);
    t->v[0] = vtrn1q_f64(t->v[0], even);
    t->v[1] = vtrn1q_f64(t->v[1], odd);
}

INLINE vf transposed_column(const transposed_block *t, const size_t k, gs_dtype type)
{
    (void)type;
    return (vf)t->v[k];
}

#include "kernel/gemm/tmpl.h"

void gsi_gemm_neon(gsi_kernels *k) { gsi_gemm_use(k, &isa); }
#endif
