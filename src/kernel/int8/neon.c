/* INT8 products on NEON: int16 times int16 to int32, and sums of pairs. */
#include "kernel/dispatch.h"

#if defined(__aarch64__) && !defined(__AARCH64EB__)
#include <arm_neon.h>

#define TARGET
#define INLINE static inline __attribute__((always_inline))

enum { MR = 4, VECS = 4, LANES = 4 };
typedef int32x4_t vec;

INLINE vec load(const void *p) { return vld1q_s32(p); }
INLINE void store(void *p, vec x) { vst1q_s32(p, x); }
INLINE vec every(uint32_t word) { return vdupq_n_s32((int32_t)word); }
INLINE vec dot(vec sum, vec a, vec b)
{
    const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
    return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(x, y)));
}

#include "kernel/int8/tmpl.h"

static const gsi_int8_isa isa = {
    .cpu = GS_CPU_NEON, .mr = MR, .nr = NR, .depth = 2, .micro = micro};

void gsi_int8_neon(gsi_kernels *k) { k->int8 = &isa; }

#endif
