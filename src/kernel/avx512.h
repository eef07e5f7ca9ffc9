/* What AVX-512 kernels share: 16 elements of any type in a register, as the bits of f32. */
#ifndef GSI_KERNEL_AVX512_H
#define GSI_KERNEL_AVX512_H

#include "kernel/kernel.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { AHEAD = 4096 }; /* bytes; 2 to 4 KB measure alike */

INLINE void prefetch(const void *p)
{
    _mm_prefetch((const char *)((uintptr_t)p + AHEAD), _MM_HINT_T0);
}

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

INLINE __m256i to_half(__m512i u, gs_dtype type)
{
    if (type == GS_BF16)
        return to_bf16(u);
    return _mm512_cvtps_ph(_mm512_castsi512_ps(u), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
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
        return gsi_top(_mm512_reduce_max_epu32(top));
    const __m512i even = _mm512_and_si512(top, _mm512_set1_epi32(0xFFFF));
    const __m512i odd = _mm512_srli_epi32(top, 16);
    const uint32_t code = _mm512_reduce_max_epu32(_mm512_max_epu32(even, odd));
    return gsi_top(gsi_widen(code, gsi_row_of(type)));
}

#endif
