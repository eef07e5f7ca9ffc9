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

/* ---- halves as codes of 16 bits, two registers in one: half the work of f32 lanes ---- */

#define HALF_CODES
typedef struct half_codes {
    __m512i top; /* the largest magnitude stored */
    size_t zero, subnormal, underflow;
} half_codes;

typedef struct rounded_codes {
    __m512i code, mag; /* a NaN has at least Inf's magnitude, and may have lost its code */
} rounded_codes;

INLINE rounded_codes to_bf16_codes(const vf *x)
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
    return (rounded_codes){_mm512_mask_add_epi16(code, up, code, one),
                           _mm512_mask_add_epi16(mag, up, mag, one)};
}

INLINE rounded_codes to_f16_codes(const vf *x)
{
    enum { HOW = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    const __m512i code =
        _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_maskz_cvtps_ph(0xFFFF, (__m512)x[0], HOW)),
                           _mm512_maskz_cvtps_ph(0xFFFF, (__m512)x[1], HOW), 1);
    return (rounded_codes){code, _mm512_and_si512(code, _mm512_set1_epi16(0x7FFF))};
}

INLINE size_t ones(__mmask32 x) { return (size_t)__builtin_popcount(x); }

/* What becomes 0 or subnormal: `small` is not empty. */
INLINE void count_small(half_codes *c, const vf *x, __m512i mag, __mmask32 small)
{
    const __m512i all_but_sign = _mm512_set1_epi32(0x7FFFFFFF);
    const __mmask32 zero = _mm512_kunpackw(_mm512_testn_epi32_mask((__m512i)x[1], all_but_sign),
                                           _mm512_testn_epi32_mask((__m512i)x[0], all_but_sign));
    c->zero += ones(zero);
    if (zero != small) {
        const __mmask32 lost = _mm512_testn_epi16_mask(mag, mag);
        c->underflow += ones(lost ^ zero);
        c->subnormal += ones(small ^ lost);
    }
}

/* Stores a pack; false: not done, for an Inf or a NaN among them. */
INLINE bool store_codes(half_codes *c, uint16_t *p, const vf *x, gs_dtype type, bool counts)
{
    const bool f16 = type == GS_F16;
    const rounded_codes r = f16 ? to_f16_codes(x) : to_bf16_codes(x);
    const __m512i normal = _mm512_set1_epi16(f16 ? 0x400 : 0x80),
                  inf = _mm512_set1_epi16(f16 ? 0x7C00 : 0x7F80);
    if (_mm512_cmpge_epu16_mask(r.mag, inf) != 0)
        return false;
    if (counts) {
        const __mmask32 small = _mm512_cmplt_epu16_mask(r.mag, normal);
        if (small != 0)
            count_small(c, x, r.mag, small);
    }
    c->top = _mm512_max_epu16(c->top, r.mag);
    _mm512_storeu_si512(p, r.code);
    return true;
}

/* Adds up and returns the largest magnitude, as f32. */
INLINE uint32_t codes_end(const half_codes *c, gsi_counts *counts, gs_dtype type)
{
    const __m512i even = _mm512_and_si512(c->top, _mm512_set1_epi32(0xFFFF));
    const __m512i odd = _mm512_srli_epi32(c->top, 16);
    const uint32_t code = _mm512_reduce_max_epu32(_mm512_max_epu32(even, odd));
    const uint32_t top = type == GS_F32 ? 0 : gsi_widen(code, gsi_row_of(type));
    if (counts) {
        counts->zero += c->zero;
        counts->underflow += c->underflow;
        counts->subnormal += c->subnormal;
        counts->amax = top > counts->amax ? top : counts->amax;
    }
    return top;
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
