/* AVX-512: micro-tiles of 14 by 32, 28 sums in registers, two of b and one element of a. */
#include "kernel/gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,fma,popcnt")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { MR = 14, NR = 32, MR_ROOM = 16, VEC = 16 };

/* The first `n` of 16 lanes. */
INLINE __mmask16 first(size_t n) { return (__mmask16)(n < VEC ? (1u << n) - 1 : 0xFFFF); }

INLINE __m512 widen(__m256i h, gs_dtype type)
{
    if (type == GS_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE __m512 load(const void *src, size_t i, gs_dtype type, __mmask16 lanes)
{
    if (type == GS_F32)
        return _mm512_maskz_loadu_ps(lanes, (const float *)src + i);
    return widen(_mm256_maskz_loadu_epi16(lanes, (const uint16_t *)src + i), type);
}

/* ---- packing ---- */

INLINE void copy_any(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                     gs_dtype type, size_t rows, size_t cols, size_t pad)
{
    if (pad == VEC || pad == 2 * VEC) { /* panels of b, columns of a */
        const __mmask16 low = first(cols), high = first(cols > VEC ? cols - VEC : 0);
        for (size_t r = 0; r < rows; r++) {
            const void *in = gsi_at(src, type, r * src_stride);
            _mm512_storeu_ps(dst + r * dst_stride, load(in, 0, type, low));
            if (pad > VEC)
                _mm512_storeu_ps(dst + r * dst_stride + VEC, load(in, VEC, type, high));
        }
        return;
    }
    for (size_t r = 0; r < rows; r++) {
        float *out = dst + r * dst_stride;
        const void *in = gsi_at(src, type, r * src_stride);
        size_t c = 0;
        for (; c + VEC <= cols; c += VEC)
            _mm512_storeu_ps(out + c, load(in, c, type, 0xFFFF));
        for (; c < pad; c += VEC)
            _mm512_mask_storeu_ps(out + c, first(pad - c),
                                  load(in, c, type, first(c < cols ? cols - c : 0)));
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

/* 16 rows of 16 f32. Rows are read a whole line at a time: where they lie a multiple of 4096 bytes
 * apart, all their lines share one set of L1 and none stays. */
INLINE void transpose_f32(float *dst, size_t dst_stride, const float *src, size_t src_stride)
{
    __m512 x[VEC], y[VEC];
    UNROLL for (size_t i = 0; i < VEC; i++) x[i] = _mm512_loadu_ps(src + i * src_stride);
    UNROLL for (size_t i = 0; i < VEC; i += 2)
    {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    UNROLL for (size_t i = 0; i < VEC; i += 4) UNROLL for (size_t h = 0; h < 2; h++)
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
    float block[VEC * VEC];
    for (size_t r = 0; r < VEC; r++)
        _mm512_storeu_ps(block + r * VEC, load(src, r * src_stride, type, r < rows ? first(n) : 0));
    for (size_t c = 0; c < n; c++)
        _mm512_storeu_ps(dst + c * dst_stride,
                         _mm512_i32gather_ps(_mm512_slli_epi32(lane, 4), block + c, 4));
}

INLINE void transpose_any(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                          gs_dtype type, size_t rows, size_t cols)
{
    const size_t width = type == GS_F32 ? VEC : 2 * VEC; /* a line */
    for (size_t r = 0; r < dst_stride; r += VEC)
        for (size_t c = 0, take; c < cols; c += take) {
            float *out = dst + c * dst_stride + r;
            const void *in = gsi_at(src, type, r * src_stride + c);
            take = cols - c < VEC ? cols - c : VEC;
            if (r + VEC > rows || c + width > cols) {
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
    __m512 s[MR][2];
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < vecs; v++) s[i][v] =
        _mm512_setzero_ps();
    uintptr_t next0 = ahead[0].base, next1 = ahead[1].base;
    for (size_t begin = 0; begin < k; begin += 16) {
        const size_t end = begin + 16 < k ? begin + 16 : k;
        uintptr_t at0 = next0, at1 = next1;
#pragma GCC unroll 4
        for (size_t p = begin; p < end; p++) {
            __m512 y[2];
            UNROLL for (size_t v = 0; v < vecs; v++) y[v] = _mm512_loadu_ps(b + p * NR + v * VEC);
            UNROLL for (size_t i = 0; i < m; i++)
            {
                const __m512 x = _mm512_set1_ps(l == ROWS ? a[i * GSI_KC + p] : a[p * MR_ROOM + i]);
                UNROLL for (size_t v = 0; v < vecs; v++) s[i][v] =
                    _mm512_fmadd_ps(x, y[v], s[i][v]);
            }
            _mm_prefetch((const char *)at0, _MM_HINT_T0);
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
        _mm512_storeu_ps(out, add ? _mm512_add_ps(_mm512_loadu_ps(out), s[i][v]) : s[i][v]);
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
    case 6:
        micro(sums, a, l, b, 6, vecs, k, add, ahead);
        break;
    case 7:
        micro(sums, a, l, b, 7, vecs, k, add, ahead);
        break;
    case 8:
        micro(sums, a, l, b, 8, vecs, k, add, ahead);
        break;
    case 9:
        micro(sums, a, l, b, 9, vecs, k, add, ahead);
        break;
    case 10:
        micro(sums, a, l, b, 10, vecs, k, add, ahead);
        break;
    case 11:
        micro(sums, a, l, b, 11, vecs, k, add, ahead);
        break;
    case 12:
        micro(sums, a, l, b, 12, vecs, k, add, ahead);
        break;
    case 13:
        micro(sums, a, l, b, 13, vecs, k, add, ahead);
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

/* ---- few rows ---- */

enum { FEW = 8 };

/* m, type and transposed are constants where this is inlined. */
INLINE void few(float *sums, const float *a, size_t i_step, size_t k_step, const void *b,
                size_t b_stride, const gs_dtype type, const bool transposed, const size_t m,
                size_t k, bool add, const gsi_ahead *ahead)
{
    enum { STEP = 32 };
    float turned[STEP * NR];
    __m512 s[FEW][2];
    UNROLL for (size_t i = 0; i < m; i++) s[i][0] = s[i][1] = _mm512_setzero_ps();
    for (size_t begin = 0; begin < k; begin += STEP) {
        if (transposed)
            transpose_any(turned, NR, gsi_at(b, type, begin), b_stride, type, NR, STEP);
        for (size_t p = 0; p < STEP; p++) {
            const size_t at = (begin + p) * b_stride;
            const __m512 y0 =
                transposed ? _mm512_loadu_ps(turned + p * NR) : load(b, at, type, 0xFFFF);
            const __m512 y1 = transposed ? _mm512_loadu_ps(turned + p * NR + VEC)
                                         : load(b, at + VEC, type, 0xFFFF);
            UNROLL for (size_t i = 0; i < m; i++)
            {
                const __m512 x = _mm512_set1_ps(a[i * i_step + (begin + p) * k_step]);
                s[i][0] = _mm512_fmadd_ps(x, y0, s[i][0]);
                s[i][1] = _mm512_fmadd_ps(x, y1, s[i][1]);
            }
            for (size_t w = 0; w < 2; w++)
                _mm_prefetch((const char *)(ahead[w].base + (begin + p) / 16 * ahead[w].outer +
                                            p % 16 * ahead[w].inner),
                             _MM_HINT_T1);
        }
    }
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < 2; v++)
    {
        float *out = sums + i * NR + v * VEC;
        _mm512_storeu_ps(out, add ? _mm512_add_ps(_mm512_loadu_ps(out), s[i][v]) : s[i][v]);
    }
}

/* Rows beyond m are multiplied, too, up to 1, 2, 4 or 8: they lie in a's panel, whatever is there,
 * and their sums in the strip's, where nobody reads them. */
INLINE void few_type(float *sums, const float *a, size_t i_step, size_t k_step, const void *b,
                     size_t b_stride, const gs_dtype type, const bool transposed, size_t m,
                     size_t k, bool add, const gsi_ahead *ahead)
{
    if (m == 1)
        few(sums, a, i_step, k_step, b, b_stride, type, transposed, 1, k, add, ahead);
    else if (m == 2)
        few(sums, a, i_step, k_step, b, b_stride, type, transposed, 2, k, add, ahead);
    else if (m <= 4)
        few(sums, a, i_step, k_step, b, b_stride, type, transposed, 4, k, add, ahead);
    else
        few(sums, a, i_step, k_step, b, b_stride, type, transposed, FEW, k, add, ahead);
}

INLINE void few_form(float *sums, const float *a, size_t i_step, size_t k_step, const void *b,
                     size_t b_stride, gs_dtype type, const bool transposed, size_t m, size_t k,
                     bool add, const gsi_ahead *ahead)
{
    if (type == GS_F32)
        few_type(sums, a, i_step, k_step, b, b_stride, GS_F32, transposed, m, k, add, ahead);
    else if (type == GS_F16)
        few_type(sums, a, i_step, k_step, b, b_stride, GS_F16, transposed, m, k, add, ahead);
    else
        few_type(sums, a, i_step, k_step, b, b_stride, GS_BF16, transposed, m, k, add, ahead);
}

static TARGET void multiply_few(float *sums, const float *a, size_t i_step, size_t k_step,
                                const void *b, size_t b_stride, gs_dtype type, bool transposed,
                                size_t m, size_t k, bool add, const gsi_ahead *ahead)
{
    if (transposed)
        few_form(sums, a, i_step, k_step, b, b_stride, type, true, m, k, add, ahead);
    else
        few_form(sums, a, i_step, k_step, b, b_stride, type, false, m, k, add, ahead);
}

/* ---- finishing ---- */

INLINE __m512i magnitude(__m512i u) { return _mm512_and_si512(u, _mm512_set1_epi32(0x7FFFFFFF)); }

INLINE __m512i all(uint32_t u) { return _mm512_set1_epi32((int)u); }

/* u holds no NaN but the canonical one. */
INLINE __m256i to_bf16(__m512i u)
{
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), all(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, all(0x7FFF)), odd);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}

/* Stores the lanes and returns what was stored, as f32. */
INLINE __m512i store(void *dst, gs_dtype type, __m512i u, __mmask16 lanes)
{
    if (type == GS_F32) {
        if (lanes == 0xFFFF)
            _mm512_storeu_si512(dst, u);
        else
            _mm512_mask_storeu_epi32(dst, lanes, u);
        return u;
    }
    const __m256i h = type == GS_BF16
                          ? to_bf16(u)
                          : _mm512_cvtps_ph(_mm512_castsi512_ps(u),
                                            _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_mask_storeu_epi16(dst, lanes, h);
    return type == GS_F16 ? _mm512_castps_si512(_mm512_cvtph_ps(h))
                          : _mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16);
}

/* sum: before rounding; stored: after; both as f32. */
INLINE __m512i count(__m512i amax, __m512i sum, __m512i stored, __mmask16 lanes,
                     const gsi_finish *f)
{
    gsi_counts *n = f->counts;
    const __m512i mag = magnitude(sum), top = magnitude(stored), inf = all(GSI_F32_INF);
    const __mmask16 zero = _mm512_mask_cmpeq_epi32_mask(lanes, mag, _mm512_setzero_si512());
    const __mmask16 low = _mm512_mask_cmplt_epu32_mask(lanes, mag, all(f->limits.flushed));
    const __mmask16 sub = _mm512_mask_cmplt_epu32_mask(lanes, mag, all(f->limits.subnormal));
    const __mmask16 bad = _mm512_mask_cmpge_epu32_mask(lanes, top, inf);
    if (sub | bad) {
        const __mmask16 nan = _mm512_mask_cmpgt_epu32_mask(lanes, top, inf);
        n->zero += (unsigned)_mm_popcnt_u32(zero);
        n->flushed += (unsigned)_mm_popcnt_u32(low & (unsigned)~zero);
        n->subnormal += (unsigned)_mm_popcnt_u32(sub & (unsigned)~low);
        n->nan += (unsigned)_mm_popcnt_u32(nan);
        n->inf += (unsigned)_mm_popcnt_u32(bad & (unsigned)~nan);
    }
    return _mm512_mask_max_epu32(amax, lanes & (__mmask16)~bad, amax, top);
}

INLINE __m512i finish16(void *c, __m512 sum, size_t i, size_t j, __mmask16 lanes,
                        const gsi_finish *f, gs_dtype type, __m512i amax)
{
    if (f->column)
        sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, f->column + j));
    if (f->row)
        sum = _mm512_add_ps(sum, _mm512_set1_ps(f->row[i]));
    if (f->beta != 0)
        sum = _mm512_fmadd_ps(_mm512_set1_ps(f->beta), load(c, 0, type, lanes), sum);
    const __mmask16 nan = _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q);
    const __m512i u =
        _mm512_mask_mov_epi32(_mm512_castps_si512(sum), nan, all(GSI_F32_INF | 0x400000));
    const __m512i stored = store(c, type, u, lanes);
    return f->counts ? count(amax, u, stored, lanes, f) : amax;
}

INLINE void finish_any(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                       gs_dtype type)
{
    __m512i amax = _mm512_setzero_si512();
    const __mmask16 low = first(n), high = first(n > VEC ? n - VEC : 0);
    for (size_t i = 0; i < m; i++) {
        char *const row = (char *)c + i * f->stride * gsi_size_of(type);
        const float *sum = sums + i * NR;
        amax = finish16(row, _mm512_loadu_ps(sum), i, 0, low, f, type, amax);
        if (high)
            amax = finish16(row + VEC * gsi_size_of(type), _mm512_loadu_ps(sum + VEC), i, VEC, high,
                            f, type, amax);
    }
    if (f->counts) {
        const uint32_t top = _mm512_reduce_max_epu32(amax);
        f->counts->amax = f->counts->amax > top ? f->counts->amax : top;
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

/* Two blocks of a tile's rows of a take 0.9 MB, half of L2, so that a k of 768 needs no sums kept
 * for more than a strip. Tiles of 14 * 19 to 14 * 52 rows measure alike; the smaller leave more of
 * L2 to neighbours. */
static const gsi_gemm_isa isa = {
    .cpu = GS_CPU_AVX512,
    .mr = MR,
    .nr = NR,
    .mr_room = MR_ROOM,
    .m_tile = 76 * MR,
    .n_tile = 24 * NR,
    .a_room = 38 * MR_ROOM * GSI_KC,
    .copy = copy,
    .transpose = transpose,
    .multiply_rows = multiply_rows,
    .multiply_columns = multiply_columns,
    .multiply_few = multiply_few,
    .few = FEW,
    .finish = finish,
};

const gsi_gemm_isa *gsi_gemm_avx512(void) { return &isa; }
#else
const gsi_gemm_isa *gsi_gemm_avx512(void) { return NULL; }
#endif
