/* What AVX-512 kernels share: 16 elements of any type in a register, as the bits of f32. */
#ifndef GSI_KERNEL_AVX512_H
#define GSI_KERNEL_AVX512_H

#include "kernel/kernel.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

INLINE const void *at(const void *src, size_t i, gs_dtype type)
{
    return (const char *)src + i * gsi_size_of(type);
}

/* The first `n` of 16 or 32 lanes. */
INLINE __mmask16 first16(size_t n) { return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xFFFF); }
INLINE __mmask32 first32(size_t n) { return n < 32 ? (1u << n) - 1 : 0xFFFFFFFF; }

INLINE __m512i magnitude(__m512i u) { return _mm512_and_si512(u, _mm512_set1_epi32(0x7FFFFFFF)); }

/* ---- 16 elements in registers as f32 bits ---- */

INLINE __m512i load16(const void *src, gs_dtype type, __mmask16 lanes)
{
    if (type == GS_F32)
        return _mm512_maskz_loadu_epi32(lanes, src);
    const __m256i h = _mm256_maskz_loadu_epi16(lanes, src);
    if (type == GS_F16)
        return _mm512_castps_si512(_mm512_cvtph_ps(h));
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
}

INLINE __m512i quiet(__m512i u)
{
    const __mmask16 nan =
        _mm512_cmpgt_epu32_mask(magnitude(u), _mm512_set1_epi32((int)GSI_F32_INF));
    return _mm512_mask_or_epi32(u, nan, u, _mm512_set1_epi32(0x400000));
}

INLINE __m256i to_bf16(__m512i u)
{
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
    const __mmask16 nan =
        _mm512_cmpgt_epu32_mask(magnitude(u), _mm512_set1_epi32((int)GSI_F32_INF));
    const __m512i r = _mm512_mask_or_epi32(up, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(r, 16));
}

/* (The mask of ones: gcc's unmasked intrinsic warns at -O0.) */
INLINE __m256i to_half(__m512i u, gs_dtype type)
{
    if (type == GS_BF16)
        return to_bf16(u);
    return _mm512_maskz_cvtps_ph(0xFFFF, _mm512_castsi512_ps(u),
                                 _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* ---- 32 elements in two registers ---- */

/* a and b are elements 0..15 and 16..31 or, of bf16, the even ones and the odd ones: so a shift and
 * a mask widen them, and `in_order` puts sums in order once per block. */
typedef struct pair {
    __m512 a, b;
} pair;

INLINE pair widen_bf16(__m512i raw)
{
    return (pair){_mm512_castsi512_ps(_mm512_slli_epi32(raw, 16)),
                  _mm512_castsi512_ps(_mm512_and_si512(raw, _mm512_set1_epi32(-65536)))};
}

INLINE pair in_order(pair x, gs_dtype type)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    if (type != GS_BF16)
        return x;
    return (pair){_mm512_permutex2var_ps(x.a, low, x.b), _mm512_permutex2var_ps(x.a, high, x.b)};
}

/* To nearest even, of products of bf16: where they are NaN, what is cut off is 0, as it was in the
 * operand. 32 codes are rounded at once: up if what is cut off is above the middle, or is the
 * middle and the code is odd. */
INLINE __m512i bf16_products(pair x)
{
    const __mmask32 odd = 0xAAAAAAAA;
    const __m512i even = _mm512_castps_si512(x.a), other = _mm512_castps_si512(x.b);
    const __m512i one = _mm512_set1_epi16(1);
    const __m512i code = _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), odd, other);
    const __m512i cut = _mm512_mask_mov_epi16(even, odd, _mm512_slli_epi32(other, 16));
    const __m512i tie = _mm512_adds_epu16(cut, _mm512_and_si512(code, one));
    const __mmask32 up = _mm512_cmpgt_epu16_mask(tie, _mm512_set1_epi16((short)0x8000));
    return _mm512_mask_add_epi16(code, up, code, one);
}

/* ---- the largest magnitude, in the lanes of the type itself ---- */

INLINE __m512i raise(__m512i top, __m512i stored, gs_dtype type)
{
    if (type == GS_F32)
        return _mm512_max_epu32(top, magnitude(stored));
    return _mm512_max_epu16(top, _mm512_and_si512(stored, _mm512_set1_epi16(0x7FFF)));
}

INLINE uint32_t highest(__m512i top, gs_dtype type)
{
    if (type == GS_F32)
        return gsi_amax_bits(_mm512_reduce_max_epu32(top));
    const __m512i even = _mm512_and_si512(top, _mm512_set1_epi32(0xFFFF));
    const __m512i odd = _mm512_srli_epi32(top, 16);
    const uint32_t code = _mm512_reduce_max_epu32(_mm512_max_epu32(even, odd));
    return gsi_amax_bits(gsi_widen(code, gsi_row_of(type)));
}

#endif
