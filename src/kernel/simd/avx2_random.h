/* Random bits and stochastic rounding with AVX2. */
#ifndef GSI_KERNEL_AVX2_RANDOM_H
#define GSI_KERNEL_AVX2_RANDOM_H

#include "kernel/simd/avx2.h"

/* Words of 8 consecutive Philox blocks, w[k] holding word k of each. */
INLINE void philox8(__m256i w[4], uint64_t key, uint64_t block)
{
    const __m256i m0 = _mm256_set1_epi64x(0xD2511F53), m1 = _mm256_set1_epi64x(0xCD9E8D57);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    __m256i c0 = _mm256_add_epi32(all((uint32_t)block), _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    __m256i c1 = all((uint32_t)(block >> 32)); /* block % 8 == 0: no carry */
    __m256i c2 = _mm256_setzero_si256(), c3 = c2;

    for (int round = 0; round < 10; round++) {
        const __m256i e0 = _mm256_mul_epu32(c0, m0);
        const __m256i o0 = _mm256_mul_epu32(_mm256_srli_epi64(c0, 32), m0);
        const __m256i e1 = _mm256_mul_epu32(c2, m1);
        const __m256i o1 = _mm256_mul_epu32(_mm256_srli_epi64(c2, 32), m1);
        const __m256i hi0 = _mm256_blend_epi32(_mm256_srli_epi64(e0, 32), o0, 0xAA);
        const __m256i hi1 = _mm256_blend_epi32(_mm256_srli_epi64(e1, 32), o1, 0xAA);
        c0 = _mm256_xor_si256(_mm256_xor_si256(hi1, c1), all(k0));
        c2 = _mm256_xor_si256(_mm256_xor_si256(hi0, c3), all(k1));
        c1 = _mm256_blend_epi32(e1, _mm256_slli_epi64(o1, 32), 0xAA);
        c3 = _mm256_blend_epi32(e0, _mm256_slli_epi64(o0, 32), 0xAA);
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    w[0] = c0;
    w[1] = c1;
    w[2] = c2;
    w[3] = c3;
}

/* gsi_narrow with 16 random bits, lane by lane; variable shifts by 32 and more give 0. */
INLINE __m256i to_f16_sr(__m256i u, __m256i random)
{
    const __m256i mag = magnitude(u), emin = all(113), zero = _mm256_setzero_si256();
    const __m256i e = _mm256_max_epi32(_mm256_srli_epi32(mag, 23), all(1));
    const __m256i hidden = _mm256_and_si256(_mm256_cmpgt_epi32(mag, all(0x7FFFFF)), all(0x800000));
    const __m256i significand = _mm256_or_si256(_mm256_and_si256(mag, all(0x7FFFFF)), hidden);
    const __m256i below = _mm256_max_epi32(_mm256_sub_epi32(emin, e), zero);
    const __m256i left = _mm256_sub_epi32(all(3), below); /* 16 - cut */
    const __m256i fixed =
        _mm256_or_si256(_mm256_sllv_epi32(significand, left),
                        _mm256_srlv_epi32(significand, _mm256_sub_epi32(zero, left)));
    const __m256i base = _mm256_slli_epi32(_mm256_max_epi32(_mm256_sub_epi32(e, emin), zero), 10);
    const __m256i part = _mm256_srli_epi32(_mm256_add_epi32(fixed, random), 16);
    const __m256i sign = _mm256_srli_epi32(_mm256_xor_si256(u, mag), 16);
    const __m256i code = _mm256_or_si256(_mm256_add_epi32(base, part), sign);
    const __m256i high = _mm256_cmpgt_epi32(mag, all(0x477FDFFF)); /* from 65504 */
    return _mm256_blendv_epi8(code, _mm256_cvtepu16_epi32(to_f16(u)), high);
}

INLINE __m256i to_bf16_sr(__m256i u, __m256i random)
{
    const __m256i high = _mm256_cmpgt_epi32(magnitude(u), all(0x7F7EFFFF));
    const __m256i code = _mm256_srli_epi32(_mm256_add_epi32(u, random), 16);
    return _mm256_blendv_epi8(code, to_bf16(u), high);
}

/* With the low halves of the words, or for an odd row of 16 elements with the high ones. */
INLINE __m256i round_sr(__m256i u, gs_dtype to, __m256i word, size_t row)
{
    const __m256i random =
        row % 2 ? _mm256_srli_epi32(word, 16) : _mm256_and_si256(word, all(0xFFFF));
    return to == GS_F16 ? to_f16_sr(u, random) : to_bf16_sr(u, random);
}

#endif
