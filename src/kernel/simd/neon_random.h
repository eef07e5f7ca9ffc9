/* Random bits and stochastic rounding with NEON. */
#ifndef GSI_KERNEL_NEON_RANDOM_H
#define GSI_KERNEL_NEON_RANDOM_H

#include "kernel/simd/neon.h"

/* m * c in 64 bits, its high and low words apart. */
INLINE void multiply(uint32x4_t *high, uint32x4_t *low, uint32x4_t c, uint32_t m)
{
    const uint32x4_t p01 = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32(c), m));
    const uint32x4_t p23 = vreinterpretq_u32_u64(vmull_high_n_u32(c, m));
    *high = vuzp2q_u32(p01, p23);
    *low = vuzp1q_u32(p01, p23);
}

/* Words of 4 consecutive Philox blocks, w[k] holding word k of each. */
INLINE void philox4(uint32x4_t w[4], uint64_t key, uint64_t block)
{
    static const uint32_t lane[4] = {0, 1, 2, 3};
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32x4_t c0 = vaddq_u32(all((uint32_t)block), vld1q_u32(lane));
    uint32x4_t c1 = all((uint32_t)(block >> 32)); /* block % 4 == 0: no carry */
    uint32x4_t c2 = all(0), c3 = all(0);

    for (int round = 0; round < 10; round++) {
        uint32x4_t hi0, lo0, hi1, lo1;
        multiply(&hi0, &lo0, c0, 0xD2511F53);
        multiply(&hi1, &lo1, c2, 0xCD9E8D57);
        c0 = veorq_u32(veorq_u32(hi1, c1), all(k0));
        c1 = lo1;
        c2 = veorq_u32(veorq_u32(hi0, c3), all(k1));
        c3 = lo0;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    w[0] = c0;
    w[1] = c1;
    w[2] = c2;
    w[3] = c3;
}

/* gsi_narrow with 16 random bits; the code is the low half of each lane. VSHL by a negative number
 * shifts to the right, by 32 or more either way gives 0. */
INLINE uint32x4_t round_f16_sr(uint32x4_t u, uint32x4_t random)
{
    const uint32x4_t mag = magnitude(u), emin = all(113);
    const uint32x4_t e = vmaxq_u32(vshrq_n_u32(mag, 23), all(1));
    const uint32x4_t hidden = vandq_u32(vcgeq_u32(mag, all(0x800000)), all(0x800000));
    const uint32x4_t significand = vorrq_u32(vandq_u32(mag, all(0x7FFFFF)), hidden);
    const uint32x4_t below = vqsubq_u32(emin, e);                           /* 0 from emin on */
    const int32x4_t left = vreinterpretq_s32_u32(vsubq_u32(all(3), below)); /* 16 - cut */
    const uint32x4_t fixed = vshlq_u32(significand, left);
    const uint32x4_t base = vshlq_n_u32(vqsubq_u32(e, emin), 10);
    const uint32x4_t part = vshrq_n_u32(vaddq_u32(fixed, random), 16);
    const uint32x4_t sign = vshrq_n_u32(veorq_u32(u, mag), 16);
    return vorrq_u32(vaddq_u32(base, part), sign);
}

INLINE uint16x8_t to_half_sr(f32x8 u, f32x8 random, gs_dtype type)
{
    /* from the largest finite magnitude on, to nearest */
    const uint32x4_t most = all(type == GS_F16 ? 0x477FE000 : 0x7F7F0000);
    const uint16x8_t high =
        low_halves(vcgeq_u32(magnitude(u.val[0]), most), vcgeq_u32(magnitude(u.val[1]), most));
    const uint16x8_t code = type == GS_F16 ? low_halves(round_f16_sr(u.val[0], random.val[0]),
                                                        round_f16_sr(u.val[1], random.val[1]))
                                           : high_halves(vaddq_u32(u.val[0], random.val[0]),
                                                         vaddq_u32(u.val[1], random.val[1]));
    return vbslq_u16(high, to_half(u, type), code);
}

/* 16 of the 32 random bits of each word. */
INLINE uint32x4_t take16(uint32x4_t word, size_t row)
{
    return row % 2 ? vshrq_n_u32(word, 16) : vandq_u32(word, all(0xFFFF));
}

#endif
