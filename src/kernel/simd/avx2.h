/* What AVX2 kernels share: 8 elements of any type in a register, as the bits of f32. */
#ifndef GSI_KERNEL_AVX2_H
#define GSI_KERNEL_AVX2_H

#include "kernel/kernel.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx2,f16c,fma,popcnt")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { AHEAD = 4096, ROUND = 32 };

INLINE void prefetch(const void *p)
{
    _mm_prefetch((const char *)((uintptr_t)p + AHEAD), _MM_HINT_T0);
}

/* Every line of so many bytes. */
INLINE void prefetch_all(const void *p, const size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        prefetch((const char *)p + i);
}

INLINE const void *at(const void *src, size_t i, gs_dtype type)
{
    return (const char *)src + i * gsi_size_of(type);
}

INLINE __m256i load(const void *p) { return _mm256_loadu_si256(p); }
INLINE __m256i all(uint32_t u) { return _mm256_set1_epi32((int)u); }
INLINE __m256i magnitude(__m256i u) { return _mm256_and_si256(u, all(0x7FFFFFFF)); }

/* ---- 8 elements in a register as f32 bits ---- */

INLINE __m256i load8(const void *src, gs_dtype type)
{
    if (type == GS_F32)
        return load(src);
    const __m128i h = _mm_loadu_si128(src);
    if (type == GS_F16)
        return _mm256_castps_si256(_mm256_cvtph_ps(h));
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
}

/* All ones where u is a NaN. */
INLINE __m256i is_nan(__m256i u) { return _mm256_cmpgt_epi32(magnitude(u), all(GSI_F32_INF)); }

INLINE __m256i quiet(__m256i u)
{
    return _mm256_or_si256(u, _mm256_and_si256(is_nan(u), all(0x400000)));
}

/* Codes in 32-bit lanes. */
INLINE __m256i to_bf16(__m256i u)
{
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), all(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, all(0x7FFF)), odd);
    return _mm256_srli_epi32(_mm256_blendv_epi8(up, quiet(u), is_nan(u)), 16);
}

/* The 16 codes of a and b, in order. */
INLINE __m256i pack(__m256i a, __m256i b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
}

INLINE __m128i to_f16(__m256i u)
{
    return _mm256_cvtps_ph(_mm256_castsi256_ps(u), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

INLINE __m256i to_half(__m256i a, __m256i b, gs_dtype type)
{
    if (type == GS_BF16)
        return pack(to_bf16(a), to_bf16(b));
    return _mm256_inserti128_si256(_mm256_castsi128_si256(to_f16(a)), to_f16(b), 1);
}

/* ---- the largest magnitude, in the lanes of the type itself ---- */

INLINE __m256i raise(__m256i top, __m256i stored, gs_dtype type)
{
    if (type == GS_F32)
        return _mm256_max_epu32(top, magnitude(stored));
    return _mm256_max_epu16(top, _mm256_and_si256(stored, _mm256_set1_epi16(0x7FFF)));
}

INLINE uint32_t highest(__m256i top, gs_dtype type)
{
    uint32_t lanes[8], best = 0;
    if (type != GS_F32) /* codes: the larger of each pair */
        top = _mm256_max_epu32(_mm256_and_si256(top, all(0xFFFF)), _mm256_srli_epi32(top, 16));
    _mm256_storeu_si256((void *)lanes, top);
    for (int i = 0; i < 8; i++)
        best = lanes[i] > best ? lanes[i] : best;
    if (type != GS_F32)
        best = gsi_widen(best, gsi_row_of(type));
    return gsi_amax_bits(best);
}

INLINE void store(void *dst, __m256i v, bool stream)
{
    if (stream)
        _mm256_stream_si256(dst, v);
    else
        _mm256_storeu_si256(dst, v);
}

#endif
