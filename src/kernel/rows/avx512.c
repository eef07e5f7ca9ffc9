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

INLINE vf max_f32(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vi max_i32(vi a, vi b) { return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b); }
INLINE bool reaches(vi x, int32_t limit)
{
    return _mm512_cmpge_epi32_mask((__m512i)x, _mm512_set1_epi32(limit)) != 0;
}
INLINE vu64 mul_even(vu a, vu b) { return (vu64)_mm512_mul_epu32((__m512i)a, (__m512i)b); }

#include "kernel/rows/tmpl.h"

#endif
