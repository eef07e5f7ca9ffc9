/* AVX2 with FMA and F16C: micro-tiles of 6 by 16, 12 sums in registers. */
#include "kernel/dispatch.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define WIDTH        8
#define TARGET       __attribute__((target("avx2,f16c,fma")))
#define MR           6
#define NR           16
#define A_LD         6
#define DEPTH        1
#define SKINNY_MR    4
#define SKINNY_WIDE  1
#define STEP         8
#define PREFETCH_A   0
#define IN_PLACE     0
#define HALF_COLUMNS 16
#define CPU          GS_CPU_AVX2
/* CPUs without AVX-512 have 256 KB to 1 MB of L2: a block of 32 panels takes 300 KB. Sums are small
 * beside what is multiplied for them, so that putting them by costs less than reading b again for
 * every 10 panels, as with three blocks. */
#define L2_PANELS   32
#define TILE_PANELS 86
#define TILE_STRIPS 64
#define KC_BLOCKS   1
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#include "kernel/simd/vec.h"

/* All ones in the first n of 8 lanes. */
INLINE __m256i first(size_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < WIDTH ? n : WIDTH)), lane);
}

INLINE __m256 widen(__m128i h, gs_dtype type)
{
    if (type == GS_F16)
        return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

INLINE vf mul_add(vf x, vf y, vf s) { return _mm256_fmadd_ps(x, y, s); }

/* Compilers that choose the registers themselves move sums about: 12 of them, two vectors of b and
 * the element of a leave one of 16. */
#define OWN_ADD_ROW
INLINE void add_row(vf *s, const float *x, const vf *y, const size_t vecs, const size_t row)
{
    vf a;
    (void)row;
    if (vecs == 1)
        s[0] = mul_add(splat(*x), y[0], s[0]);
    else
        __asm__("vbroadcastss {%3, %2|%2, %3}\n\t"
                "vfmadd231ps {%2, %4, %0|%0, %4, %2}\n\t"
                "vfmadd231ps {%2, %5, %1|%1, %5, %2}"
                : "+&x"(s[0]), "+x"(s[1]), "=&x"(a)
                : "m"(*x), "x"(y[0]), "x"(y[1]));
}

INLINE vi max_i32(vi a, vi b) { return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b); }
INLINE bool reaches(vi x, int32_t limit) { return _mm256_movemask_ps((__m256)(x >= limit)) != 0; }

INLINE vf load(const void *src, size_t i, gs_dtype type, size_t n)
{
    if (type == GS_F32) {
        const float *x = (const float *)src + i;
        return n >= WIDTH ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first(n));
    }
    const uint16_t *x = (const uint16_t *)src + i;
    if (n >= WIDTH)
        return widen(_mm_loadu_si128((const __m128i *)(const void *)x), type);
    if (n >= WIDTH / 2) { /* the first four, and of the last four those that are left */
        const __m128i four = _mm_loadl_epi64((const void *)x);
        const __m128i end = _mm_loadl_epi64((const void *)(x + n - 4));
        const __m128i left = _mm_srl_epi64(end, _mm_cvtsi32_si128(16 * (int)(WIDTH - n)));
        return widen(_mm_unpacklo_epi64(four, left), type);
    }
    uint16_t part[WIDTH] = {0};
    for (size_t k = 0; k < n; k++)
        part[k] = x[k];
    return widen(_mm_loadu_si128((const __m128i *)(const void *)part), type);
}

INLINE __m128i to_half(vu u, gs_dtype type)
{
    if (type == GS_F16)
        return _mm256_cvtps_ph((__m256)u, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i code = (__m256i)((u + 0x7FFF + (u >> 16 & 1)) >> 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
}

/* Masked stores take AMD's cores some 20 cycles. */
INLINE void store_some(float *dst, __m256i u, size_t n)
{
    __m128i part = _mm256_castsi256_si128(u);
    if (n >= 4) {
        _mm_storeu_si128((__m128i *)(void *)dst, part);
        part = _mm256_extracti128_si256(u, 1);
        dst += 4;
    }
    if (n & 2) {
        _mm_storel_epi64((__m128i *)(void *)dst, part);
        part = _mm_unpackhi_epi64(part, part);
        dst += 2;
    }
    if (n & 1)
        _mm_store_ss(dst, _mm_castsi128_ps(part));
}

INLINE void store(void *dst, gs_dtype type, vi u, size_t n)
{
    if (type == GS_F32) {
        if (n >= WIDTH)
            _mm256_storeu_si256(dst, (__m256i)u);
        else
            store_some(dst, (__m256i)u, n);
        return;
    }
    const __m128i h = to_half((vu)u, type);
    if (n >= WIDTH) {
        _mm_storeu_si128(dst, h);
    } else {
        uint16_t part[WIDTH];
        _mm_storeu_si128((__m128i *)(void *)part, h);
        for (size_t k = 0; k < n; k++)
            ((uint16_t *)dst)[k] = part[k];
    }
}

/* ---- transposing ---- */

typedef struct transposed_block {
    __m256i v[WIDTH];
} transposed_block;

/* Of 4 rows of words, y[c], 128-bit lane l: columns 4l + c. */
INLINE void transpose_words(__m256i y[4], const void *src, size_t row)
{
    __m256i x[4];
    UNROLL for (size_t i = 0; i < 4; i += 2)
    {
        const __m256i even = _mm256_loadu_si256((const void *)((const char *)src + i * row));
        const __m256i odd = _mm256_loadu_si256((const void *)((const char *)src + (i + 1) * row));
        x[i] = _mm256_unpacklo_epi32(even, odd);
        x[i + 1] = _mm256_unpackhi_epi32(even, odd);
    }
    UNROLL for (size_t h = 0; h < 2; h++)
    {
        y[2 * h] = _mm256_unpacklo_epi64(x[h], x[h + 2]);
        y[2 * h + 1] = _mm256_unpackhi_epi64(x[h], x[h + 2]);
    }
}

/* Of 4 rows of f16, y[c], 128-bit lane l: columns 8l + 2c and 8l + 2c + 1. */
INLINE void transpose_halves(__m256i y[4], const uint16_t *src, size_t stride)
{
    __m256i x[4];
    UNROLL for (size_t i = 0; i < 4; i += 2)
    {
        const __m256i even = _mm256_loadu_si256((const void *)(src + i * stride));
        const __m256i odd = _mm256_loadu_si256((const void *)(src + (i + 1) * stride));
        x[i] = _mm256_unpacklo_epi16(even, odd);
        x[i + 1] = _mm256_unpackhi_epi16(even, odd);
    }
    UNROLL for (size_t h = 0; h < 2; h++)
    {
        y[2 * h] = _mm256_unpacklo_epi32(x[h], x[h + 2]);
        y[2 * h + 1] = _mm256_unpackhi_epi32(x[h], x[h + 2]);
    }
}

/* Half types are transposed as they are, and widened when a column is taken: bf16 in pairs, which a
 * shift and a mask separate. Of f16, v[c] has columns c and 8 + c. */
INLINE void transpose_part(transposed_block *t, const void *src, size_t stride, gs_dtype type,
                           const size_t half)
{
    __m256i x[4];
    if (type == GS_F16)
        transpose_halves(x, src, stride);
    else
        transpose_words(x, src, stride * gsi_size_of(type));
    UNROLL for (size_t c = 4; c-- > 0;) /* down: v[2c] and v[2c + 1] are made of v[c] */
    {
        if (half == 0) {
            t->v[c] = x[c];
            continue;
        }
        const __m256i above = t->v[c];
        if (type == GS_F16) {
            t->v[2 * c] = _mm256_unpacklo_epi64(above, x[c]);
            t->v[2 * c + 1] = _mm256_unpackhi_epi64(above, x[c]);
        } else {
            t->v[c] = _mm256_permute2x128_si256(above, x[c], 0x20);
            t->v[4 + c] = _mm256_permute2x128_si256(above, x[c], 0x31);
        }
    }
}

INLINE vf transposed_column(const transposed_block *t, const size_t k, gs_dtype type)
{
    if (type == GS_F32)
        return (vf)t->v[k];
    if (type == GS_BF16)
        return k % 2 ? (vf)((vi)t->v[k / 2] & (int32_t)0xFFFF0000) : (vf)((vi)t->v[k / 2] << 16);
    return _mm256_cvtph_ps(((const __m128i *)t->v)[k % 8 * 2 + k / 8]);
}

#include "kernel/gemm/tmpl.h"

void gsi_gemm_avx2(gsi_kernels *k) { gsi_gemm_use(k, &isa); }
#endif
