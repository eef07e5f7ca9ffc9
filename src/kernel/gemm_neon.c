/* NEON: micro-tiles of 6 by 16, 24 sums in registers. */
#include "kernel/gemm.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

enum { MR = 6, NR = 16, MR_ROOM = 8, VEC = 4, VECS = NR / VEC };

INLINE float32x4_t widen(uint16x4_t h, gs_dtype type)
{
    if (type == GS_F16)
        return vcvt_f32_f16(vreinterpret_f16_u16(h));
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}

/* n elements from element i, n <= 4, then zeros. */
INLINE float32x4_t load(const void *src, size_t i, gs_dtype type, size_t n)
{
    if (type == GS_F32) {
        const float *x = (const float *)src + i;
        float part[VEC] = {0};
        if (n >= VEC)
            return vld1q_f32(x);
        for (size_t k = 0; k < n; k++)
            part[k] = x[k];
        return vld1q_f32(part);
    }
    const uint16_t *x = (const uint16_t *)src + i;
    uint16_t part[VEC] = {0};
    if (n >= VEC)
        return widen(vld1_u16(x), type);
    for (size_t k = 0; k < n; k++)
        part[k] = x[k];
    return widen(vld1_u16(part), type);
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
            vst1q_f32(out + c, load(in, c, type, VEC));
        for (; c < pad; c += VEC) {
            float part[VEC];
            vst1q_f32(part, c < cols ? load(in, c, type, cols - c) : vdupq_n_f32(0));
            for (size_t k = 0; k < VEC && c + k < pad; k++)
                out[c + k] = part[k];
        }
    }
}

static void copy(float *dst, size_t dst_stride, const void *src, size_t src_stride, gs_dtype type,
                 size_t rows, size_t cols, size_t pad)
{
    if (type == GS_F32)
        copy_any(dst, dst_stride, src, src_stride, GS_F32, rows, cols, pad);
    else if (type == GS_F16)
        copy_any(dst, dst_stride, src, src_stride, GS_F16, rows, cols, pad);
    else
        copy_any(dst, dst_stride, src, src_stride, GS_BF16, rows, cols, pad);
}

INLINE void transpose_any(float *dst, size_t dst_stride, const void *src, size_t src_stride,
                          gs_dtype type, size_t rows, size_t cols)
{
    for (size_t r = 0; r < dst_stride; r += VEC)
        for (size_t c = 0; c < cols; c += VEC) {
            float32x4_t x[VEC];
            float *out = dst + c * dst_stride + r;
            const size_t n = cols - c < VEC ? cols - c : VEC;
            UNROLL for (size_t i = 0; i < VEC; i++) x[i] =
                r + i < rows ? load(src, (r + i) * src_stride + c, type, n) : vdupq_n_f32(0);
            const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(x[0], x[1]));
            const float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(x[0], x[1]));
            const float64x2_t d = vreinterpretq_f64_f32(vtrn1q_f32(x[2], x[3]));
            const float64x2_t e = vreinterpretq_f64_f32(vtrn2q_f32(x[2], x[3]));
            x[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, d));
            x[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, e));
            x[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, d));
            x[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, e));
            for (size_t i = 0; i < n; i++)
                vst1q_f32(out + i * dst_stride, x[i]);
        }
}

static void transpose(float *dst, size_t dst_stride, const void *src, size_t src_stride,
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

/* m is a constant where this is inlined. */
INLINE void micro(float *sums, const float *a, layout l, const float *b, const size_t m, size_t k,
                  bool add, const gsi_ahead *ahead)
{
    float32x4_t s[MR][VECS];
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < VECS; v++) s[i][v] =
        vdupq_n_f32(0);
    uintptr_t next0 = ahead[0].base, next1 = ahead[1].base;
    for (size_t begin = 0; begin < k; begin += 16) {
        const size_t end = begin + 16 < k ? begin + 16 : k;
        uintptr_t at0 = next0, at1 = next1;
        for (size_t p = begin; p < end; p++) {
            float32x4_t y[VECS];
            UNROLL for (size_t v = 0; v < VECS; v++) y[v] = vld1q_f32(b + p * NR + v * VEC);
            UNROLL for (size_t i = 0; i < m; i++)
            {
                const float32x4_t x =
                    vld1q_dup_f32(l == ROWS ? &a[i * GSI_KC + p] : &a[p * MR_ROOM + i]);
                UNROLL for (size_t v = 0; v < VECS; v++) s[i][v] = vfmaq_f32(s[i][v], x, y[v]);
            }
            __builtin_prefetch((const void *)at0, 0, 2);
            __builtin_prefetch((const void *)at1, 0, 2);
            at0 += ahead[0].inner;
            at1 += ahead[1].inner;
        }
        next0 += ahead[0].outer;
        next1 += ahead[1].outer;
    }
    UNROLL for (size_t i = 0; i < m; i++) UNROLL for (size_t v = 0; v < VECS; v++)
    {
        float *out = sums + i * NR + v * VEC;
        vst1q_f32(out, add ? vaddq_f32(vld1q_f32(out), s[i][v]) : s[i][v]);
    }
}

INLINE void micro_m(float *sums, const float *a, layout l, const float *b, size_t m, size_t k,
                    bool add, const gsi_ahead *ahead)
{
    switch (m) {
    case 1:
        micro(sums, a, l, b, 1, k, add, ahead);
        break;
    case 2:
        micro(sums, a, l, b, 2, k, add, ahead);
        break;
    case 3:
        micro(sums, a, l, b, 3, k, add, ahead);
        break;
    case 4:
        micro(sums, a, l, b, 4, k, add, ahead);
        break;
    case 5:
        micro(sums, a, l, b, 5, k, add, ahead);
        break;
    default:
        micro(sums, a, l, b, MR, k, add, ahead);
    }
}

static void multiply_rows(float *sums, const float *a, const float *b, size_t m, size_t n, size_t k,
                          bool add, const gsi_ahead *ahead)
{
    (void)n; /* a panel of b is full of zeros where it has no columns */
    micro_m(sums, a, ROWS, b, m, k, add, ahead);
}

static void multiply_columns(float *sums, const float *a, const float *b, size_t m, size_t n,
                             size_t k, bool add, const gsi_ahead *ahead)
{
    (void)n;
    micro_m(sums, a, COLUMNS, b, m, k, add, ahead);
}

/* ---- finishing ---- */

INLINE uint32x4_t magnitude(uint32x4_t u) { return vandq_u32(u, vdupq_n_u32(0x7FFFFFFF)); }

/* u holds no NaN but the canonical one. */
INLINE uint16x4_t to_half(uint32x4_t u, gs_dtype type)
{
    if (type == GS_F16)
        return vreinterpret_u16_f16(vcvt_f16_f32(vreinterpretq_f32_u32(u)));
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(u, 16), vdupq_n_u32(1));
    return vshrn_n_u32(vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7FFF)), odd), 16);
}

/* Stores n elements and returns what was stored, as f32. */
INLINE uint32x4_t store(void *dst, gs_dtype type, uint32x4_t u, size_t n)
{
    if (type == GS_F32) {
        uint32_t part[VEC];
        if (n >= VEC) {
            vst1q_f32(dst, vreinterpretq_f32_u32(u));
            return u;
        }
        vst1q_u32(part, u);
        for (size_t k = 0; k < n; k++)
            ((float *)dst)[k] = gsi_float(part[k]);
        return u;
    }
    const uint16x4_t h = to_half(u, type);
    uint16_t part[VEC];
    vst1_u16(part, h);
    for (size_t k = 0; k < VEC && k < n; k++)
        ((uint16_t *)dst)[k] = part[k];
    return vreinterpretq_u32_f32(widen(h, type));
}

/* How many lanes of a mask of all ones and zeros. */
INLINE unsigned lanes_of(uint32x4_t mask) { return vaddvq_u32(vshrq_n_u32(mask, 31)); }

/* sum: before rounding; stored: after; both as f32. */
INLINE uint32x4_t count(uint32x4_t amax, uint32x4_t sum, uint32x4_t stored, size_t n,
                        const gsi_finish *f)
{
    static const uint32_t numbers[VEC] = {0, 1, 2, 3};
    const uint32x4_t in = vcltq_u32(vld1q_u32(numbers), vdupq_n_u32((uint32_t)(n < VEC ? n : VEC)));
    const uint32x4_t mag = magnitude(sum), top = magnitude(stored), inf = vdupq_n_u32(GSI_F32_INF);
    const uint32x4_t low = vandq_u32(vcltq_u32(mag, vdupq_n_u32(f->limits.flushed)), in);
    const uint32x4_t sub = vandq_u32(vcltq_u32(mag, vdupq_n_u32(f->limits.subnormal)), in);
    const uint32x4_t bad = vandq_u32(vcgeq_u32(top, inf), in);
    if (vmaxvq_u32(vorrq_u32(sub, bad))) {
        gsi_counts *c = f->counts;
        const uint32x4_t zero = vandq_u32(vceqzq_u32(mag), in);
        const uint32x4_t nan = vandq_u32(vcgtq_u32(top, inf), in);
        c->zero += lanes_of(zero);
        c->flushed += lanes_of(vbicq_u32(low, zero));
        c->subnormal += lanes_of(vbicq_u32(sub, low));
        c->nan += lanes_of(nan);
        c->inf += lanes_of(vbicq_u32(bad, nan));
    }
    return vmaxq_u32(amax, vbicq_u32(vandq_u32(top, in), bad));
}

INLINE void finish_any(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f,
                       gs_dtype type)
{
    uint32x4_t amax = vdupq_n_u32(0);
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j += VEC) {
            const size_t in = n - j;
            void *const out = (char *)c + (i * f->stride + j) * gsi_size_of(type);
            float32x4_t sum = vld1q_f32(sums + i * NR + j);
            if (f->column)
                sum = vaddq_f32(sum, load(f->column, j, GS_F32, in));
            if (f->row)
                sum = vaddq_f32(sum, vdupq_n_f32(f->row[i]));
            if (f->beta != 0)
                sum = vfmaq_f32(sum, vdupq_n_f32(f->beta), load(out, 0, type, in));
            const uint32x4_t u = vbslq_u32(vceqq_f32(sum, sum), vreinterpretq_u32_f32(sum),
                                           vdupq_n_u32(GSI_F32_INF | 0x400000));
            const uint32x4_t stored = store(out, type, u, in);
            if (f->counts)
                amax = count(amax, u, stored, in, f);
        }
    if (f->counts) {
        const uint32_t top = vmaxvq_u32(amax);
        f->counts->amax = f->counts->amax > top ? f->counts->amax : top;
    }
}

static void finish(void *c, const float *sums, size_t m, size_t n, const gsi_finish *f)
{
    if (f->dtype == GS_F32)
        finish_any(c, sums, m, n, f, GS_F32);
    else if (f->dtype == GS_F16)
        finish_any(c, sums, m, n, f, GS_F16);
    else
        finish_any(c, sums, m, n, f, GS_BF16);
}

static const gsi_gemm_isa isa = {
    .cpu = GS_CPU_NEON,
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

const gsi_gemm_isa *gsi_gemm_neon(void) { return &isa; }
#else
const gsi_gemm_isa *gsi_gemm_neon(void) { return NULL; }
#endif
