/* Random bits and stochastic rounding with AVX-512. */
#ifndef GSI_KERNEL_AVX512_RANDOM_H
#define GSI_KERNEL_AVX512_RANDOM_H

#include "kernel/simd/avx512.h"

/* The keys of the rounds. */
typedef struct round_keys {
    uint32_t round[10][2];
} round_keys;

INLINE round_keys philox_keys(uint64_t key)
{
    round_keys k;
    for (uint32_t i = 0; i < 10; i++) {
        k.round[i][0] = (uint32_t)key + i * 0x9E3779B9;
        k.round[i][1] = (uint32_t)(key >> 32) + i * 0xBB67AE85;
    }
    return k;
}

/* x ^ y ^ key; by asm, because compilers keep all keys in registers, or try to. */
INLINE __m512i xor_key(__m512i x, __m512i y, const uint32_t *key)
{
    __asm__("vpternlogd {$0x96, %2%{1to16%}, %1, %0|%0, %1, %2%{1to16%}, 0x96}"
            : "+v"(x)
            : "v"(y), "m"(*key));
    return x;
}

/* Words of 16 consecutive Philox blocks, w[k] holding word k of each, for `groups` (1 or 2) of
 * them, each with its own keys. Even and odd blocks go through the rounds apart, in lanes of 64
 * bits whose upper half is of no use: a product needs no blending. Two groups at once, because one
 * is a chain of 50 cycles. */
INLINE void philox16(__m512i (*w)[4], const size_t groups, const round_keys *const keys[],
                     const uint64_t blocks[])
{
    const __m512i m0 = _mm512_set1_epi64(0xD2511F53), m1 = _mm512_set1_epi64(0xCD9E8D57);
    const __m512i lane = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0), none = _mm512_setzero_si512();
    __m512i all[4][4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 2 * groups; i++) {
        const uint64_t from = blocks[i / 2] + i % 2;
        all[i][0] = _mm512_add_epi64(_mm512_set1_epi64((long long)from), lane);
        all[i][1] = _mm512_set1_epi64((long long)(from >> 32));
        all[i][2] = all[i][3] = none;
    }
#pragma GCC unroll 10
    for (size_t round = 0; round < 10; round++) {
#pragma GCC unroll 4
        for (size_t i = 0; i < 2 * groups; i++) {
            __m512i *const c = all[i];
            const __m512i p0 = _mm512_mul_epu32(c[0], m0), p1 = _mm512_mul_epu32(c[2], m1);
            c[0] = xor_key(_mm512_srli_epi64(p1, 32), c[1], &keys[i / 2]->round[round][0]);
            c[2] = xor_key(_mm512_srli_epi64(p0, 32), c[3], &keys[i / 2]->round[round][1]);
            c[1] = p1;
            c[3] = p0;
        }
    }
#pragma GCC unroll 2
    for (size_t g = 0; g < groups; g++) {
#pragma GCC unroll 4
        for (size_t k = 0; k < 4; k++)
            w[g][k] = _mm512_mask_blend_epi32(0xAAAA, all[2 * g][k],
                                              _mm512_slli_epi64(all[2 * g + 1][k], 32));
    }
}

/* gsi_narrow with 16 random bits, lane by lane; variable shifts by 32 and more give 0. */
INLINE __m256i to_f16_sr(__m512i u, __m512i random)
{
    const __m512i mag = magnitude(u), one = _mm512_set1_epi32(1), emin = _mm512_set1_epi32(113);
    const __m512i e = _mm512_max_epi32(_mm512_srli_epi32(mag, 23), one);
    const __mmask16 normal = _mm512_cmpge_epu32_mask(mag, _mm512_set1_epi32(0x800000));
    const __m512i fraction = _mm512_and_si512(mag, _mm512_set1_epi32(0x7FFFFF));
    const __m512i significand =
        _mm512_mask_or_epi32(fraction, normal, fraction, _mm512_set1_epi32(0x800000));
    const __m512i zero = _mm512_setzero_si512();
    const __m512i below = _mm512_max_epi32(_mm512_sub_epi32(emin, e), zero);
    const __m512i left = _mm512_sub_epi32(_mm512_set1_epi32(3), below); /* 16 - cut */
    const __m512i fixed =
        _mm512_or_si512(_mm512_sllv_epi32(significand, left),
                        _mm512_srlv_epi32(significand, _mm512_sub_epi32(zero, left)));
    const __m512i base = _mm512_slli_epi32(_mm512_max_epi32(_mm512_sub_epi32(e, emin), zero), 10);
    const __m512i code =
        _mm512_add_epi32(base, _mm512_srli_epi32(_mm512_add_epi32(fixed, random), 16));
    const __m512i sign = _mm512_srli_epi32(_mm512_xor_si512(u, mag), 16);
    const __mmask16 high = _mm512_cmpge_epu32_mask(mag, _mm512_set1_epi32(0x477FE000)); /* 65504 */
    return _mm256_mask_mov_epi16(_mm512_cvtepi32_epi16(_mm512_or_si512(code, sign)), high,
                                 to_half(u, GS_F16));
}

INLINE __m256i to_bf16_sr(__m512i u, __m512i random)
{
    const __mmask16 high = _mm512_cmpge_epu32_mask(magnitude(u), _mm512_set1_epi32(0x7F7F0000));
    const __m512i code = _mm512_srli_epi32(_mm512_add_epi32(u, random), 16);
    return _mm256_mask_mov_epi16(_mm512_cvtepi32_epi16(code), high, to_bf16(u));
}

/* What is kept of 16 magnitudes, above what is cut off, as 16.16 fixed point: of f16 below 2^16. */
INLINE __m512i fixed_f16(__m512i mag)
{
    const __mmask16 normal = _mm512_cmpge_epu32_mask(mag, _mm512_set1_epi32(0x38800000));
    const __m512i small = _mm512_cvttps_epi32(
        _mm512_mul_ps(_mm512_castsi512_ps(mag), _mm512_set1_ps(0x1p+40f))); /* of 2^-24 */
    const __m512i from_zero = _mm512_sub_epi32(mag, _mm512_set1_epi32(112 << 23));
    return _mm512_mask_slli_epi32(small, normal, from_zero, 3);
}

/* The upper halves of the lanes of two registers. */
INLINE __m512i upper_halves(__m512i a, __m512i b)
{
    const __m512i odd =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(a, odd, b);
}

/* 32 elements, a and b, rounded. Large ones, Inf and NaN are rare. */
INLINE __m512i stochastic32(__m512i a, __m512i b, __m512i random, gs_dtype to)
{
    const __m512i low = _mm512_and_si512(random, _mm512_set1_epi32(0xFFFF));
    const __m512i high = _mm512_srli_epi32(random, 16), raw = upper_halves(a, b);
    const __m512i large = _mm512_set1_epi16(to == GS_F16 ? 0x477F : 0x7F7F);
    const __m512i mag = _mm512_and_si512(raw, _mm512_set1_epi16(0x7FFF));
    if (__builtin_expect(_mm512_cmpge_epu16_mask(mag, large) != 0, 0))
        return _mm512_inserti64x4(
            _mm512_castsi256_si512(to == GS_F16 ? to_f16_sr(a, low) : to_bf16_sr(a, low)),
            to == GS_F16 ? to_f16_sr(b, high) : to_bf16_sr(b, high), 1);
    if (to == GS_BF16)
        return upper_halves(_mm512_add_epi32(a, low), _mm512_add_epi32(b, high));
    const __m512i code = upper_halves(_mm512_add_epi32(fixed_f16(magnitude(a)), low),
                                      _mm512_add_epi32(fixed_f16(magnitude(b)), high));
    return _mm512_or_si512(code, _mm512_xor_si512(raw, mag)); /* the sign */
}

#endif
