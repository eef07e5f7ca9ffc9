/* What the products of AVX-512 share: what tmpl.h asks of an instruction set. */
#ifndef GSI_KERNEL_GEMM_AVX512_H
#define GSI_KERNEL_GEMM_AVX512_H

#include <immintrin.h>

#define WIDTH  16
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,fma")))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#include "kernel/gemm/gemm.h"
#include "kernel/simd/vec.h"

/* The first `n` of 16 lanes. */
INLINE __mmask16 first(size_t n) { return (__mmask16)(n < WIDTH ? (1u << n) - 1 : 0xFFFF); }

INLINE __m512 widen(__m256i h, gs_dtype type)
{
    if (type == GS_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE vf mul_add(vf x, vf y, vf s) { return _mm512_fmadd_ps(x, y, s); }

INLINE vi max_i32(vi a, vi b) { return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b); }
INLINE bool reaches(vi x, int32_t limit)
{
    return _mm512_cmpge_epi32_mask((__m512i)x, _mm512_set1_epi32(limit)) != 0;
}

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
    const __m256i h = type == GS_BF16
                          ? to_bf16((vu)u)
                          : _mm512_maskz_cvtps_ph(0xFFFF, (__m512)u,
                                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(dst, first(n), h);
}

/* ---- transposing ---- */

/* Rows are read a whole line at a time: where they lie a multiple of 4096 bytes apart, all their
 * lines share one set of L1 and none stays. */
typedef struct transposed_block {
    __m512i v[WIDTH];
} transposed_block;

/* Of 8 rows of f32 or of pairs of bf16, x[c], quarters: rows 0..3, then 4..7, of columns c and
 * 8 + c; x[4 + c]: of 4 + c and 12 + c. */
INLINE void transpose_words(__m512i x[8], const char *src, size_t row)
{
    __m512i y[8];
    UNROLL for (size_t i = 0; i < 8; i++, src += row) x[i] = _mm512_loadu_si512(src);
    UNROLL for (size_t i = 0; i < 8; i += 2)
    {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    UNROLL for (size_t i = 0; i < 8; i += 4) UNROLL for (size_t h = 0; h < 2; h++)
    {
        x[i + 2 * h] = _mm512_unpacklo_epi64(y[i + h], y[i + h + 2]);
        x[i + 2 * h + 1] = _mm512_unpackhi_epi64(y[i + h], y[i + h + 2]);
    }
    UNROLL for (size_t c = 0; c < 4; c++)
    {
        y[c] = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x88);
        y[4 + c] = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xDD);
    }
    UNROLL for (size_t c = 0; c < 8; c++) x[c] = y[c];
}

/* Of 8 rows of f16, y[c], quarter l: column 8l + c. */
INLINE void transpose_halves(__m512i y[8], const uint16_t *src, size_t stride)
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

/* Half types are transposed as they are, and widened when a column is taken: bf16 in pairs, which a
 * shift and a mask separate. Of f16, v[c] has columns c and 8 + c, and v[8 + c] has 16 + c and 24 +
 * c. */
INLINE void transpose_part(transposed_block *t, const void *src, size_t stride, gs_dtype type,
                           const size_t half)
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512i x[8];
    if (type == GS_F16)
        transpose_halves(x, src, stride);
    else
        transpose_words(x, src, stride * gsi_size_of(type));
    UNROLL for (size_t c = 0; c < 8; c++)
    {
        if (half == 0) {
            t->v[c] = x[c];
            continue;
        }
        const __m512i above = t->v[c];
        if (type == GS_F16) {
            t->v[c] = _mm512_permutex2var_epi64(above, low, x[c]);
            t->v[8 + c] = _mm512_permutex2var_epi64(above, high, x[c]);
        } else {
            t->v[c] = _mm512_shuffle_i32x4(above, x[c], 0x88);
            t->v[8 + c] = _mm512_shuffle_i32x4(above, x[c], 0xDD);
        }
    }
}

INLINE vf transposed_column(const transposed_block *t, const size_t k, gs_dtype type)
{
    if (type == GS_F32)
        return (vf)t->v[k];
    if (type == GS_BF16)
        return k % 2 ? (vf)((vi)t->v[k / 2] & (int32_t)0xFFFF0000) : (vf)((vi)t->v[k / 2] << 16);
    /* read from memory: to get at the upper half of a register takes one more shuffle */
    return _mm512_cvtph_ps(((const __m256i *)t->v)[k / 16 * 16 + k % 8 * 2 + k % 16 / 8]);
}

#endif
