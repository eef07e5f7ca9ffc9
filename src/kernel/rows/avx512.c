/* The row kernels on AVX-512, 16 floats per vector. */
#include "kernel/rows/rows.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDTH        16
#define TARGET       __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,fma")))
#define KERNEL(name) name##_avx512
#define UNROLL       _Pragma("GCC unroll 8")

#include "kernel/simd/vec.h"

INLINE vf load_f16(const uint16_t *p)
{
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE void store_f16(uint16_t *p, vf x)
{
    const __m256i h =
        _mm512_maskz_cvtps_ph(0xFFFF, (__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)(void *)p, h);
}

INLINE vu load_u16(const uint16_t *p)
{
    return (vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE void store_u16(uint16_t *p, vu x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16((__m512i)x));
}

INLINE vu load_u8(const uint8_t *p)
{
    return (vu)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE void store_u8(uint8_t *p, vu x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8((__m512i)x));
}

/* On codes of 16 bits, of which two registers make one: half the work of rounding f32 lanes. */
INLINE bool store_bf16_pair(uint16_t *p, const vf *x)
{
    const __m512i low = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34,
                                         32, 30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2,
                                         0),
                  high = _mm512_add_epi16(low, _mm512_set1_epi16(1));
    const __m512i one = _mm512_set1_epi16(1);
    const __m512i code = _mm512_permutex2var_epi16((__m512i)x[0], high, (__m512i)x[1]);
    const __m512i cut = _mm512_permutex2var_epi16((__m512i)x[0], low, (__m512i)x[1]);
    const __m512i tie = _mm512_adds_epu16(cut, _mm512_and_si512(code, one));
    const __mmask32 up = _mm512_cmpgt_epu16_mask(tie, _mm512_set1_epi16((short)0x8000));
    const __m512i mag = _mm512_and_si512(code, _mm512_set1_epi16(0x7FFF));
    const __mmask32 top = _mm512_cmpge_epu16_mask(mag, _mm512_set1_epi16(0x7F80));
    _mm512_storeu_si512(p, _mm512_mask_add_epi16(code, up, code, one));
    return top == 0; /* Inf or NaN */
}
#define STORE_BF16 store_bf16_pair

INLINE vf max_f32(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vi max_i32(vi a, vi b) { return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b); }
INLINE bool reaches(vi x, int32_t limit)
{
    return _mm512_cmpge_epi32_mask((__m512i)x, _mm512_set1_epi32(limit)) != 0;
}
INLINE vu64 mul_even(vu a, vu b) { return (vu64)_mm512_mul_epu32((__m512i)a, (__m512i)b); }

#include "kernel/rows/tmpl.h"

#endif
