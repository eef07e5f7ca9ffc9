/* AVX-512: micro-tiles of 14 by 32, 28 sums in registers, two of b and one element of a. */
#include "kernel/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDTH   16
#define TARGET  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,fma,popcnt")))
#define MR      14
#define NR      32
#define MR_ROOM 16
#define FEW     8
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
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

INLINE vi store(void *dst, gs_dtype type, vi u, size_t n)
{
    if (type == GS_F32) {
        if (n >= WIDTH)
            _mm512_storeu_si512(dst, (__m512i)u);
        else
            _mm512_mask_storeu_epi32(dst, first(n), (__m512i)u);
        return u;
    }
    const __m256i h =
        type == GS_BF16 ? to_bf16((vu)u)
                        : _mm512_cvtps_ph((__m512)u, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(dst, first(n), h);
    return (vi)widen(h, type);
}

INLINE unsigned count_lanes(vi mask)
{
    return (unsigned)_mm_popcnt_u32(_mm512_movepi32_mask((__m512i)mask));
}

/* ---- transposing ---- */

/* 16 rows of 16 f32. Rows are read a whole line at a time: where they lie a multiple of 4096 bytes
 * apart, all their lines share one set of L1 and none stays. */
INLINE void transpose_f32(float *dst, size_t dst_stride, const float *src, size_t src_stride)
{
    __m512 x[WIDTH], y[WIDTH];
    UNROLL for (size_t i = 0; i < WIDTH; i++) x[i] = _mm512_loadu_ps(src + i * src_stride);
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
        float *out = dst + c * dst_stride;
        _mm512_storeu_ps(out, _mm512_shuffle_f32x4(even, even2, 0x88));
        _mm512_storeu_ps(out + 4 * dst_stride, _mm512_shuffle_f32x4(odd, odd2, 0x88));
        _mm512_storeu_ps(out + 8 * dst_stride, _mm512_shuffle_f32x4(even, even2, 0xDD));
        _mm512_storeu_ps(out + 12 * dst_stride, _mm512_shuffle_f32x4(odd, odd2, 0xDD));
    }
}

/* Of 8 rows of 32 halves, y[c], quarter l: column 8l + c. */
INLINE void turn8(__m512i y[8], const uint16_t *src, size_t stride)
{
    __m512i x[8];
    UNROLL for (size_t i = 0; i < 8; i++) y[i] = _mm512_loadu_si512(src + i * stride);
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

/* 16 rows of 32 halves: turned as they are, then widened. */
INLINE void transpose_halves(float *dst, size_t dst_stride, const uint16_t *src, size_t src_stride,
                             gs_dtype type)
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i x[8], y[8];
    turn8(x, src, src_stride);
    turn8(y, src + 8 * src_stride, src_stride);
    UNROLL for (size_t c = 0; c < 8; c++)
    {
        const __m512i a = _mm512_permutex2var_epi64(x[c], low, y[c]);  /* columns c, 8 + c */
        const __m512i b = _mm512_permutex2var_epi64(x[c], high, y[c]); /* 16 + c, 24 + c */
        float *out = dst + c * dst_stride;
        _mm512_storeu_ps(out, widen(_mm512_castsi512_si256(a), type));
        _mm512_storeu_ps(out + 8 * dst_stride, widen(_mm512_extracti64x4_epi64(a, 1), type));
        _mm512_storeu_ps(out + 16 * dst_stride, widen(_mm512_castsi512_si256(b), type));
        _mm512_storeu_ps(out + 24 * dst_stride, widen(_mm512_extracti64x4_epi64(b, 1), type));
    }
}

/* The edges: n columns of 16 rows, of which the last may be missing. */
INLINE void transpose_part(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                           gs_dtype type, size_t rows, size_t n)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    float block[WIDTH * WIDTH];
    for (size_t r = 0; r < WIDTH; r++)
        _mm512_storeu_ps(block + r * WIDTH, load(src, r * src_stride, type, r < rows ? n : 0));
    for (size_t c = 0; c < n; c++)
        _mm512_storeu_ps(dst + c * dst_stride,
                         _mm512_i32gather_ps(_mm512_slli_epi32(lane, 4), block + c, 4));
}

INLINE void transpose_any(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                          gs_dtype type, size_t rows, size_t cols)
{
    const size_t width = type == GS_F32 ? WIDTH : 2 * WIDTH; /* a line */
    for (size_t r = 0; r < dst_stride; r += WIDTH)
        for (size_t c = 0, take; c < cols; c += take) {
            float *out = dst + c * dst_stride + r;
            const void *in = gsi_at(src, type, r * src_stride + c);
            take = cols - c < WIDTH ? cols - c : WIDTH;
            if (r + WIDTH > rows || c + width > cols) {
                transpose_part(out, dst_stride, in, src_stride, type, r < rows ? rows - r : 0,
                               take);
            } else if (type == GS_F32) {
                transpose_f32(out, dst_stride, in, src_stride);
            } else {
                transpose_halves(out, dst_stride, in, src_stride, type);
                take = width;
            }
        }
}

#include "kernel/gemm_isa.h"

/* Three blocks of a slab of 18 panels take 1.3 MB of the 2 MB of L2, so that a k of 1024, and the
 * rows of a usual batch are that, needs no sums kept for more than a strip: 5% of such a product.
 */
static const gsi_gemm_isa isa = GSI_GEMM_ISA(GS_CPU_AVX512, 54, 76, 24);

const gsi_gemm_isa *gsi_gemm_avx512(void) { return &isa; }
#else
const gsi_gemm_isa *gsi_gemm_avx512(void) { return NULL; }
#endif
