/* AVX2 with FMA and F16C: micro-tiles of 6 by 16, 12 sums in registers. */
#include "kernel/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,f16c,fma,popcnt")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { MR = 6, NR = 16, MR_ROOM = 8, VEC = 8 };

INLINE __m256i all(uint32_t u) { return _mm256_set1_epi32((int)u); }

/* All ones in the first n of 8 lanes. */
INLINE __m256i first(size_t n)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < VEC ? n : VEC)), lane);
}

INLINE __m256 widen(__m128i h, gs_dtype type)
{
    if (type == GS_F16)
        return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* n elements from element i, n <= 8, then zeros. */
INLINE __m256 load(const void *src, size_t i, gs_dtype type, size_t n)
{
    if (type == GS_F32) {
        const float *x = (const float *)src + i;
        return n >= VEC ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, first(n));
    }
    const uint16_t *x = (const uint16_t *)src + i;
    if (n >= VEC)
        return widen(_mm_loadu_si128((const __m128i *)(const void *)x), type);
    uint16_t part[VEC] = {0};
    for (size_t k = 0; k < n; k++)
        part[k] = x[k];
    return widen(_mm_loadu_si128((const __m128i *)(const void *)part), type);
}

/* ---- packing ---- */

INLINE void copy_any(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                     gs_dtype type, size_t rows, size_t cols, size_t pad)
{
    for (size_t r = 0; r < rows; r++) {
        float *out = dst + r * dst_stride;
        const void *in = gsi_at(src, type, r * src_stride);
        size_t c = 0;
        for (; c + VEC <= cols; c += VEC)
            _mm256_storeu_ps(out + c, load(in, c, type, VEC));
        for (; c < pad; c += VEC) {
            const __m256 x = c < cols ? load(in, c, type, cols - c) : _mm256_setzero_ps();
            if (c + VEC <= pad)
                _mm256_storeu_ps(out + c, x);
            else
                _mm256_maskstore_ps(out + c, first(pad - c), x);
        }
    }
}

static TARGET void copy(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                        gs_dtype type, size_t rows, size_t cols, size_t pad)
{
    if (type == GS_F32)
        copy_any(dst, dst_stride, src, src_stride, GS_F32, rows, cols, pad);
    else if (type == GS_F16)
        copy_any(dst, dst_stride, src, src_stride, GS_F16, rows, cols, pad);
    else
        copy_any(dst, dst_stride, src, src_stride, GS_BF16, rows, cols, pad);
}

/* Row c of x becomes column c. Pairs, then quadruples within 128 bits, then these. */
INLINE void transpose8(__m256 x[VEC])
{
    __m256 y[VEC];
    UNROLL for (size_t i = 0; i < VEC; i += 2)
    {
        y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    UNROLL for (size_t i = 0; i < VEC; i += 4) UNROLL for (size_t h = 0; h < 2; h++)
    {
        const __m256d lo = _mm256_castps_pd(y[i + h]), hi = _mm256_castps_pd(y[i + h + 2]);
        x[i + 2 * h] = _mm256_castpd_ps(_mm256_unpacklo_pd(lo, hi));
        x[i + 2 * h + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(lo, hi));
    }
    UNROLL for (size_t i = 0; i < 4; i++)
    {
        const __m256 lo = x[i], hi = x[i + 4];
        x[i] = _mm256_permute2f128_ps(lo, hi, 0x20);
        x[i + 4] = _mm256_permute2f128_ps(lo, hi, 0x31);
    }
}

INLINE void transpose_any(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                          gs_dtype type, size_t rows, size_t cols)
{
    for (size_t r = 0; r < dst_stride; r += VEC)
        for (size_t c = 0; c < cols; c += VEC) {
            __m256 x[VEC];
            float *out = dst + c * dst_stride + r;
            const size_t n = cols - c < VEC ? cols - c : VEC;
            UNROLL for (size_t i = 0; i < VEC; i++) x[i] =
                r + i < rows ? load(src, (r + i) * src_stride + c, type, n) : _mm256_setzero_ps();
            transpose8(x);
            if (n == VEC)
                UNROLL for (size_t i = 0; i < VEC; i++)
                    _mm256_storeu_ps(out + i * dst_stride, x[i]);
            else
                for (size_t i = 0; i < n; i++)
                    _mm256_storeu_ps(out + i * dst_stride, x[i]);
        }
}

static TARGET void transpose(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                             gs_dtype type, size_t rows, size_t cols)
{
    if (type == GS_F32)
        transpose_any(dst, dst_stride, src, src_stride, GS_F32, rows, cols);
    else if (type == GS_F16)
        transpose_any(dst, dst_stride, src, src_stride, GS_F16, rows, cols);
    else
        transpose_any(dst, dst_stride, src, src_stride, GS_BF16, rows, cols);
}

/* ---- multiplying ---- */

typedef enum layout { ROWS, COLUMNS } layout;

/* m and vecs, the vectors a row, are constants where this is inlined. */
INLINE void micro(float *sums, const float *a, layout l, const float *b, const size_t m,
                  const size_t vecs, size_t k, bool add, const gsi_ahead *ahead)
{
    __m256 s[MR][2];
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < vecs; v++) s[i][v] =
        _mm256_setzero_ps();
    uintptr_t next0 = ahead[0].base, next1 = ahead[1].base;
    for (size_t begin = 0; begin < k; begin += 16) {
        const size_t end = begin + 16 < k ? begin + 16 : k;
        uintptr_t at0 = next0, at1 = next1;
#pragma GCC unroll 4
        for (size_t p = begin; p < end; p++) {
            __m256 y[2];
            UNROLL for (size_t v = 0; v < vecs; v++) y[v] = _mm256_loadu_ps(b + p * NR + v * VEC);
            UNROLL for (size_t i = 0; i < m; i++)
            {
                const __m256 x = _mm256_set1_ps(l == ROWS ? a[i * GSI_KC + p] : a[p * MR_ROOM + i]);
                UNROLL for (size_t v = 0; v < vecs; v++) s[i][v] =
                    _mm256_fmadd_ps(x, y[v], s[i][v]);
            }
            _mm_prefetch((const char *)at0, _MM_HINT_T1);
            _mm_prefetch((const char *)at1, _MM_HINT_T1);
            at0 += ahead[0].inner;
            at1 += ahead[1].inner;
        }
        next0 += ahead[0].outer;
        next1 += ahead[1].outer;
    }
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < vecs; v++)
    {
        float *out = sums + i * NR + v * VEC;
        _mm256_storeu_ps(out, add ? _mm256_add_ps(_mm256_loadu_ps(out), s[i][v]) : s[i][v]);
    }
}

INLINE void micro_m(float *sums, const float *a, layout l, const float *b, size_t m,
                    const size_t vecs, size_t k, bool add, const gsi_ahead *ahead)
{
    switch (m) {
    case 1:
        micro(sums, a, l, b, 1, vecs, k, add, ahead);
        break;
    case 2:
        micro(sums, a, l, b, 2, vecs, k, add, ahead);
        break;
    case 3:
        micro(sums, a, l, b, 3, vecs, k, add, ahead);
        break;
    case 4:
        micro(sums, a, l, b, 4, vecs, k, add, ahead);
        break;
    case 5:
        micro(sums, a, l, b, 5, vecs, k, add, ahead);
        break;
    default:
        micro(sums, a, l, b, MR, vecs, k, add, ahead);
    }
}

static TARGET void multiply_rows(float *sums, const float *a, const float *b, size_t m, size_t n,
                                 size_t k, bool add, const gsi_ahead *ahead)
{
    if (n > VEC)
        micro_m(sums, a, ROWS, b, m, 2, k, add, ahead);
    else
        micro_m(sums, a, ROWS, b, m, 1, k, add, ahead);
}

static TARGET void multiply_columns(float *sums, const float *a, const float *b, size_t m, size_t n,
                                    size_t k, bool add, const gsi_ahead *ahead)
{
    if (n > VEC)
        micro_m(sums, a, COLUMNS, b, m, 2, k, add, ahead);
    else
        micro_m(sums, a, COLUMNS, b, m, 1, k, add, ahead);
}

/* ---- finishing ---- */

INLINE __m256i magnitude(__m256i u) { return _mm256_and_si256(u, all(0x7FFFFFFF)); }

/* u holds no NaN but the canonical one. */
INLINE __m128i to_half(__m256i u, gs_dtype type)
{
    if (type == GS_F16)
        return _mm256_cvtps_ph(_mm256_castsi256_ps(u),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), all(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, all(0x7FFF)), odd);
    const __m256i code = _mm256_srli_epi32(up, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
}

/* Stores n elements and returns what was stored, as f32. */
INLINE __m256i store(void *dst, gs_dtype type, __m256i u, size_t n)
{
    if (type == GS_F32) {
        if (n >= VEC)
            _mm256_storeu_si256(dst, u);
        else
            _mm256_maskstore_epi32(dst, first(n), u);
        return u;
    }
    const __m128i h = to_half(u, type);
    if (n >= VEC) {
        _mm_storeu_si128(dst, h);
    } else {
        uint16_t part[VEC];
        _mm_storeu_si128((__m128i *)(void *)part, h);
        for (size_t k = 0; k < n; k++)
            ((uint16_t *)dst)[k] = part[k];
    }
    return _mm256_castps_si256(widen(h, type));
}

/* The lanes of a mask of all ones and zeros. */
INLINE unsigned lanes_of(__m256i mask)
{
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(mask));
}

/* sum: before rounding; stored: after; both as f32. Magnitudes are signed numbers, too. */
INLINE __m256i count(__m256i amax, __m256i sum, __m256i stored, size_t n, const gsi_finish *f)
{
    const __m256i mag = magnitude(sum), top = magnitude(stored), inf = all(GSI_F32_INF);
    const unsigned in = n < VEC ? (1u << n) - 1 : 0xFF;
    const unsigned low = lanes_of(_mm256_cmpgt_epi32(all(f->limits.flushed), mag)) & in;
    const unsigned sub = lanes_of(_mm256_cmpgt_epi32(all(f->limits.subnormal), mag)) & in;
    const __m256i finite = _mm256_cmpgt_epi32(inf, top);
    const unsigned bad = ~lanes_of(finite) & in;
    if (sub | bad) {
        gsi_counts *c = f->counts;
        const unsigned zero = lanes_of(_mm256_cmpeq_epi32(mag, _mm256_setzero_si256())) & in;
        const unsigned nan = lanes_of(_mm256_cmpgt_epi32(top, inf)) & in;
        c->zero += (unsigned)_mm_popcnt_u32(zero);
        c->flushed += (unsigned)_mm_popcnt_u32(low & ~zero);
        c->subnormal += (unsigned)_mm_popcnt_u32(sub & ~low);
        c->nan += (unsigned)_mm_popcnt_u32(nan);
        c->inf += (unsigned)_mm_popcnt_u32(bad & ~nan);
    }
    const __m256i seen = _mm256_and_si256(finite, first(n));
    return _mm256_max_epi32(amax, _mm256_and_si256(top, seen));
}

INLINE void finish_any(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                       gs_dtype type)
{
    __m256i amax = _mm256_setzero_si256();
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j += VEC) {
            const size_t in = n - j;
            void *const out = (char *)c + (i * f->stride + j) * gsi_size_of(type);
            __m256 sum = _mm256_loadu_ps(sums + i * NR + j);
            if (f->column)
                sum = _mm256_add_ps(sum, load(f->column, j, GS_F32, in));
            if (f->row)
                sum = _mm256_add_ps(sum, _mm256_set1_ps(f->row[i]));
            if (f->beta != 0)
                sum = _mm256_fmadd_ps(_mm256_set1_ps(f->beta), load(out, 0, type, in), sum);
            const __m256i u = _mm256_castps_si256(
                _mm256_blendv_ps(sum, _mm256_castsi256_ps(all(GSI_F32_INF | 0x400000)),
                                 _mm256_cmp_ps(sum, sum, _CMP_UNORD_Q)));
            const __m256i stored = store(out, type, u, in);
            if (f->counts)
                amax = count(amax, u, stored, in, f);
        }
    if (f->counts) {
        uint32_t lanes[VEC];
        _mm256_storeu_si256((__m256i *)(void *)lanes, amax);
        for (size_t i = 0; i < VEC; i++)
            f->counts->amax = f->counts->amax > lanes[i] ? f->counts->amax : lanes[i];
    }
}

static TARGET void finish(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f)
{
    if (f->dtype == GS_F32)
        finish_any(c, sums, m, n, f, GS_F32);
    else if (f->dtype == GS_F16)
        finish_any(c, sums, m, n, f, GS_F16);
    else
        finish_any(c, sums, m, n, f, GS_BF16);
}

/* CPUs without AVX-512 have 256 KB to 1 MB of L2. */
static const gsi_gemm_isa isa = {
    .cpu = GS_CPU_AVX2,
    .mr = MR,
    .nr = NR,
    .mr_room = MR_ROOM,
    .m_tile = 32 * MR,
    .n_tile = 32 * NR,
    .a_room = 32 * MR_ROOM * GSI_KC,
    .copy = copy,
    .transpose = transpose,
    .multiply_rows = multiply_rows,
    .multiply_columns = multiply_columns,
    .finish = finish,
};

const gsi_gemm_isa *gsi_gemm_avx2(void) { return &isa; }
#else
const gsi_gemm_isa *gsi_gemm_avx2(void) { return NULL; }
#endif
