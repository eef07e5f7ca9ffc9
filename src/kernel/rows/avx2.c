/* The row kernels on AVX2 with F16C, 8 floats per vector. */
#include "kernel/rows/rows.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDTH        8
#define TARGET       __attribute__((target("avx2,f16c,fma")))
#define KERNEL(name) name##_avx2
#define UNROLL       _Pragma("GCC unroll 8")

#include "kernel/simd/vec.h"

INLINE vf load_f16(const uint16_t *p)
{
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE void store_f16(uint16_t *p, vf x)
{
    const __m128i h = _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((__m128i *)(void *)p, h);
}

INLINE vu load_u16(const uint16_t *p)
{
    return (vu)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE void store_u16(uint16_t *p, vu x)
{
    const __m256i pairs = _mm256_packus_epi32((__m256i)x, (__m256i)x); /* lanes are below 65536 */
    const __m256i h = _mm256_permute4x64_epi64(pairs, 0x08);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(h));
}

INLINE vu load_u8(const uint8_t *p)
{
    return (vu)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

INLINE void store_u8(uint8_t *p, vu x) /* lanes are below 256 */
{
    const __m128i low = _mm256_castsi256_si128((__m256i)x);
    const __m128i h = _mm_packus_epi32(low, _mm256_extracti128_si256((__m256i)x, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packus_epi16(h, h));
}

INLINE vf max_f32(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vi max_i32(vi a, vi b) { return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b); }
INLINE bool reaches(vi x, int32_t limit) { return _mm256_movemask_ps((__m256)(x >= limit)) != 0; }
INLINE vu64 mul_even(vu a, vu b) { return (vu64)_mm256_mul_epu32((__m256i)a, (__m256i)b); }

#include "kernel/rows/tmpl.h"

#endif
