/* AVX-512: micro-tiles of 14 by 32, 28 sums in registers, two of b and one element of a. */
#include "kernel/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDTH         16
#define TARGET        __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,fma")))
#define MR            14
#define NR            32
#define MR_ROOM       16
#define FEW           8
#define TURNED_HALVES 32
#define CPU           GS_CPU_AVX512
/* Three blocks of 18 panels take 1.3 MB of the 2 MB of L2: then a k of 1024, the rows of a usual
 * batch, needs no sums kept for more than a strip, which cost 5%. */
#define SLAB        54
#define TILE_PANELS 76
#define TILE_STRIPS 24
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#include "kernel/vec.h"

/* The first `n` of 16 lanes. */
INLINE __mmask16 first(size_t n) { return (__mmask16)(n < WIDTH ? (1u << n) - 1 : 0xFFFF); }

INLINE __m512 widen(__m256i h, gs_dtype type)
{
    if (type == GS_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE vf mul_add(vf x, vf y, vf s) { return _mm512_fmadd_ps(x, y, s); }

INLINE vf load(const void *src, size_t i, gs_dtype type, size_t n)
{
    if (type == GS_F32)
        return _mm512_maskz_loadu_ps(first(n), (const float *)src + i);
    return widen(_mm256_maskz_loadu_epi16(first(n), (const uint16_t *)src + i), type);
}

INLINE __m256i to_bf16(vu u)
{
    return _mm512_cvtepi32_epi16((__m512i)((u + 0x7FFF + (u >> 16 & 1)) >> 16));
}

INLINE void store(void *dst, gs_dtype type, vi u, size_t n)
{
    if (type == GS_F32) {
        if (n >= WIDTH)
            _mm512_storeu_si512(dst, (__m512i)u);
        else
            _mm512_mask_storeu_epi32(dst, first(n), (__m512i)u);
        return;
    }
    const __m256i h =
        type == GS_BF16 ? to_bf16((vu)u)
                        : _mm512_cvtps_ph((__m512)u, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(dst, first(n), h);
}

/* ---- transposing ---- */

/* Rows are read a whole line at a time: where they lie a multiple of 4096 bytes apart, all their
 * lines share one set of L1 and none stays. */
typedef struct turned {
    __m512i v[WIDTH];
} turned;

INLINE void turn_f32(turned *t, const float *src, size_t stride)
{
    __m512 x[WIDTH], y[WIDTH];
    UNROLL for (size_t i = 0; i < WIDTH; i++, src += stride) x[i] = _mm512_loadu_ps(src);
    UNROLL for (size_t i = 0; i < WIDTH; i += 2)
    {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    UNROLL for (size_t i = 0; i < WIDTH; i += 4) UNROLL for (size_t h = 0; h < 2; h++)
    {
        const __m512d lo = _mm512_castps_pd(y[i + h]), hi = _mm512_castps_pd(y[i + h + 2]);
        x[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(lo, hi));
        x[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(lo, hi));
    }
    /* x[4q + c], quarter l: rows 4q..4q+3 of column 4l + c */
    UNROLL for (size_t c = 0; c < 4; c++)
    {
        const __m512 even = _mm512_shuffle_f32x4(x[c], x[c + 4], 0x88);
        const __m512 odd = _mm512_shuffle_f32x4(x[c], x[c + 4], 0xDD);
        const __m512 even2 = _mm512_shuffle_f32x4(x[c + 8], x[c + 12], 0x88);
        const __m512 odd2 = _mm512_shuffle_f32x4(x[c + 8], x[c + 12], 0xDD);
        t->v[c] = _mm512_castps_si512(_mm512_shuffle_f32x4(even, even2, 0x88));
        t->v[4 + c] = _mm512_castps_si512(_mm512_shuffle_f32x4(odd, odd2, 0x88));
        t->v[8 + c] = _mm512_castps_si512(_mm512_shuffle_f32x4(even, even2, 0xDD));
        t->v[12 + c] = _mm512_castps_si512(_mm512_shuffle_f32x4(odd, odd2, 0xDD));
    }
}

/* Of 8 rows of 32 halves, y[c], quarter l: column 8l + c. */
INLINE void turn8(__m512i y[8], const uint16_t *src, size_t stride)
{
    __m512i x[8];
    UNROLL for (size_t i = 0; i < 8; i++, src += stride) y[i] = _mm512_loadu_si512(src);
    UNROLL for (size_t i = 0; i < 8; i += 2)
    {
        x[i] = _mm512_unpacklo_epi16(y[i], y[i + 1]);
        x[i + 1] = _mm512_unpackhi_epi16(y[i], y[i + 1]);
    }
    UNROLL for (size_t i = 0; i < 8; i += 4) UNROLL for (size_t h = 0; h < 2; h++)
    {
        y[i + 2 * h] = _mm512_unpacklo_epi32(x[i + h], x[i + h + 2]);
        y[i + 2 * h + 1] = _mm512_unpackhi_epi32(x[i + h], x[i + h + 2]);
    }
    UNROLL for (size_t c = 0; c < 4; c++)
    {
        x[2 * c] = _mm512_unpacklo_epi64(y[c], y[c + 4]);
        x[2 * c + 1] = _mm512_unpackhi_epi64(y[c], y[c + 4]);
    }
    UNROLL for (size_t c = 0; c < 8; c++) y[c] = x[c];
}

/* Halves are turned as they are: v[c] has columns c and 8 + c, v[8 + c] has 16 + c and 24 + c. */
INLINE void turn_halves(turned *t, const uint16_t *src, size_t stride)
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i x[8], y[8];
    turn8(x, src, stride);
    turn8(y, src + 8 * stride, stride);
    UNROLL for (size_t c = 0; c < 8; c++)
    {
        t->v[c] = _mm512_permutex2var_epi64(x[c], low, y[c]);
        t->v[8 + c] = _mm512_permutex2var_epi64(x[c], high, y[c]);
    }
}

INLINE void turn(turned *t, const void *src, size_t stride, gs_dtype type)
{
    if (type == GS_F32)
        turn_f32(t, src, stride);
    else
        turn_halves(t, src, stride);
}

INLINE vf turned_at(const turned *t, const size_t k, gs_dtype type)
{
    if (type == GS_F32)
        return _mm512_castsi512_ps(t->v[k]);
    const __m512i two = t->v[k / 16 * 8 + k % 8];
    return widen(k % 16 < 8 ? _mm512_castsi512_si256(two) : _mm512_extracti64x4_epi64(two, 1),
                 type);
}

#include "kernel/gemm_isa.h"

const gsi_gemm_isa *gsi_gemm_avx512(void) { return &isa; }
#else
const gsi_gemm_isa *gsi_gemm_avx512(void) { return NULL; }
#endif
