/* AVX512_BF16: products of bf16, two k per instruction, in the micro-tiles of avx512.c. Gemm.h says
 * when VDPBF16PS does as defined, and how pairs lie in words. */
#include "kernel/dispatch.h"

#if defined(__x86_64__)
#define MR         14
#define NR         32
#define A_LD       16
#define DEPTH      2
#define STEP       4
#define PREFETCH_A 1
#define IN_PLACE   0
#define CPU        GS_CPU_AVX512BF16
/* Panels are half as large as avx512.c's, and as many of them serve: on Zen 4, with 1 MB of L2, 36
 * or 76 panels, tiles of 152 panels or 48 strips, chunks of 2 or 6 blocks are within 1%. */
#define L2_PANELS   54
#define TILE_PANELS 76
#define TILE_STRIPS 24
#define KC_BLOCKS   3
#include "kernel/gemm/avx512.h"

/* As in avx512.c. By asm, because it is the only instruction that needs more than AVX-512. */
#define OWN_ADD_ROW
INLINE void add_row(vf *s, const float *x, const vf *y, const size_t vecs, const size_t row)
{
    enum { READ_TWICE = 10 };
    const __m512i word = _mm512_set1_epi32((int32_t)gsi_bits(*x));
    UNROLL for (size_t v = 0; v < vecs; v++)
    {
        if (row >= READ_TWICE)
            __asm__("vdpbf16ps {%2, %1, %0|%0, %1, %2}" : "+v"(s[v]) : "v"(y[v]), "v"(word));
        else
            __asm__("vdpbf16ps {%2%{1to16%}, %1, %0|%0, %1, %2%{1to16%}}"
                    : "+v"(s[v])
                    : "v"(y[v]), "m"(*x));
    }
}

#include "kernel/gemm/tmpl_copy.h"
#include "kernel/gemm/tmpl_epilogue.h"
#include "kernel/gemm/tmpl_micro.h"

/* ---- packing ---- */

INLINE __mmask32 first32(size_t n) { return n < 32 ? (1u << n) - 1 : 0xFFFFFFFF; }

/* k and k + 1 change places in each word. */
INLINE __m512i swapped(__m512i x) { return _mm512_rol_epi32(x, 16); }

INLINE __m512i load_least(const gsi_least *x) { return _mm512_load_si512(x->lanes); }
INLINE void store_least(gsi_least *x, __m512i least) { _mm512_store_si512(x->lanes, least); }

/* The least of magnitudes - 1: zeros wrap around to the largest. */
INLINE __m512i lesser(__m512i least, __m512i x)
{
    const __m512i magnitude = _mm512_and_si512(x, _mm512_set1_epi16(0x7FFF));
    return _mm512_min_epu16(least, _mm512_add_epi16(magnitude, _mm512_set1_epi16(-1)));
}

static TARGET void pack_rows(uint32_t *dst, const uint16_t *src, size_t row_step, size_t line_step,
                             size_t m, size_t k, gsi_least *found)
{
    __m512i least = load_least(found);
    const size_t whole = k / GSI_PAIRS_LINE, last = k % GSI_PAIRS_LINE;
    for (size_t r = 0; r < m; r++) {
        const uint16_t *in = src + r * row_step;
        uint32_t *out = dst + r * GSI_LINE;
        for (size_t l = 0; l < whole; l++, in += line_step, out += MR * GSI_LINE) {
            const __m512i x = _mm512_loadu_si512(in);
            least = lesser(least, x);
            _mm512_storeu_si512(out, swapped(x));
        }
        if (last) {
            const __m512i x = _mm512_maskz_loadu_epi16(first32(last), in);
            least = lesser(least, x);
            _mm512_storeu_si512(out, swapped(x));
        }
    }
    store_least(found, least);
}

/* Words of the rows x and y, the upper one of which is x: 16 from column 16 * half on. */
INLINE __m512i paired(__m512i x, __m512i y, const uint32_t half)
{
    vu index; /* of y[c], x[c] */
    UNROLL for (uint32_t c = 0; c < WIDTH; c++) index[c] =
        (WIDTH * half + c) << 16 | (2 * WIDTH + WIDTH * half + c);
    return _mm512_permutex2var_epi16(x, (__m512i)index, y);
}

/* ld is a constant: NR or A_LD. */
INLINE void pack_columns_to(uint32_t *dst, const size_t ld, const uint16_t *src, size_t stride,
                            size_t k, size_t n, gsi_least *found)
{
    const __mmask32 lanes = first32(n);
    __m512i least = load_least(found);
    for (; k > 0; k -= k > 1 ? 2 : 1, src += 2 * stride, dst += ld) {
        const __m512i x = _mm512_maskz_loadu_epi16(lanes, src);
        const __m512i y = _mm512_maskz_loadu_epi16(k > 1 ? lanes : 0, src + stride);
        least = lesser(lesser(least, x), y);
        UNROLL for (size_t h = 0; h < ld / WIDTH; h++)
            _mm512_storeu_si512(dst + h * WIDTH, paired(x, y, (uint32_t)h));
    }
    store_least(found, least);
}

static TARGET void pack_columns(uint32_t *dst, size_t ld, const uint16_t *src, size_t stride,
                                size_t k, size_t n, gsi_least *found)
{
    if (ld == NR)
        pack_columns_to(dst, NR, src, stride, k, n, found);
    else
        pack_columns_to(dst, A_LD, src, stride, k, n, found);
}

/* 16 rows by a line of k each. */
INLINE __m512i pack_block(uint32_t *dst, const uint16_t *src, size_t stride, const size_t words,
                          __m512i least)
{
    transposed_block t;
    transpose_part(&t, src, stride, GS_BF16, 0);
    transpose_part(&t, src + WIDTH / 2 * stride, stride, GS_BF16, 1);
    UNROLL for (size_t w = 0; w < GSI_LINE; w++)
    {
        if (w >= words)
            continue;
        least = lesser(least, t.v[w]);
        _mm512_storeu_si512(dst + w * NR, swapped(t.v[w]));
    }
    return least;
}

static TARGET void pack_transposed(uint32_t *dst, const uint16_t *src, size_t stride, size_t n,
                                   size_t k, gsi_least *found)
{
    __m512i least = load_least(found);
    for (size_t r = 0; r < NR; r += WIDTH) {
        const size_t rows = r < n ? gsi_min_size(n - r, WIDTH) : 0;
        size_t c = 0;
        for (; rows == WIDTH && c + GSI_PAIRS_LINE <= k; c += GSI_PAIRS_LINE)
            least = pack_block(dst + c / 2 * NR + r, src + r * stride + c, stride, GSI_LINE, least);
        for (; c < k; c += GSI_PAIRS_LINE) {
            uint16_t block[WIDTH * GSI_PAIRS_LINE];
            const size_t left = gsi_min_size(k - c, GSI_PAIRS_LINE);
            for (size_t i = 0; i < WIDTH; i++)
                _mm512_storeu_si512(block + i * GSI_PAIRS_LINE,
                                    _mm512_maskz_loadu_epi16(i < rows ? first32(left) : 0,
                                                             src + (r + i) * stride + c));
            least = pack_block(dst + c / 2 * NR + r, block, GSI_PAIRS_LINE, (left + 1) / 2, least);
        }
    }
    store_least(found, least);
}

/* Zeros are read where there is nothing: a masked load from an address that is none takes some
 * hundred cycles. n is a constant where it is GSI_PAIRS_LINE. */
INLINE void gather_n(uint16_t *dst, size_t dst_stride, const void *const *src, size_t at,
                     size_t rows, const size_t n)
{
    static const gsi_least zeros; /* a line of them */
    for (size_t r = 0; r < rows; r++, dst += dst_stride) {
        const uint16_t *const in = src[r] ? (const uint16_t *)src[r] + at : zeros.lanes;
        if (n == GSI_PAIRS_LINE)
            _mm512_storeu_si512(dst, _mm512_loadu_si512(in));
        else
            _mm512_mask_storeu_epi16(dst, first32(n), _mm512_maskz_loadu_epi16(first32(n), in));
    }
}

static TARGET void gather(void *dst, size_t dst_stride, const void *const *src, size_t at,
                          gs_dtype type, size_t rows, size_t n)
{
    (void)type;
    if (n == GSI_PAIRS_LINE)
        gather_n(dst, dst_stride, src, at, rows, GSI_PAIRS_LINE);
    else
        gather_n(dst, dst_stride, src, at, rows, n);
}

/* ---- where the unit would round otherwise ---- */

enum { EXACT_ROWS = MR / 2 }; /* with a vector of b: two would need more registers than there are */

/* Rows beyond m are multiplied, too: they lie in a's panel, whatever is there. */
INLINE void exact_part(float *sums, const float *before, const uint32_t *a, layout l,
                       const uint32_t *b, size_t k)
{
    const int32_t upper = (int32_t)0xFFFF0000;
    vf s[EXACT_ROWS];
    UNROLL for (size_t i = 0; i < EXACT_ROWS; i++) s[i] = splat(0);
    for (size_t w = 0; w < (k + 1) / 2; w++) {
        const uint32_t *const at =
            a + (l == ROWS ? w / GSI_LINE * MR * GSI_LINE + w % GSI_LINE : w * A_LD);
        const vi y = (vi)_mm512_loadu_si512(b + w * NR);
        UNROLL for (size_t i = 0; i < EXACT_ROWS; i++)
        {
            const vi x = (vi)_mm512_set1_epi32((int32_t)at[l == ROWS ? i * GSI_LINE : i]);
            s[i] = mul_add((vf)(x & upper), (vf)(y & upper), s[i]);
            if (2 * w + 1 < k)
                s[i] = mul_add((vf)(x << 16), (vf)(y << 16), s[i]);
        }
    }
    UNROLL for (size_t i = 0; i < EXACT_ROWS; i++)
        store_whole(sums + i * NR, before ? load_whole(before + i * NR) + s[i] : s[i]);
}

INLINE void exact(float *sums, const float *before, const float *a, layout l, const float *b,
                  size_t m, size_t n, size_t k)
{
    for (size_t i = 0; i < m; i += EXACT_ROWS)
        for (size_t j = 0; j < n; j += WIDTH)
            exact_part(sums + i * NR + j, before ? before + i * NR + j : NULL,
                       (const uint32_t *)a + (l == ROWS ? i * GSI_LINE : i), l,
                       (const uint32_t *)b + j, k);
}

static TARGET void exact_rows(float *sums, const float *before, const float *a, size_t a_step,
                              const float *b, size_t m, size_t n, size_t k,
                              const gsi_prefetch *prefetch)
{
    (void)a_step, (void)prefetch;
    exact(sums, before, a, ROWS, b, m, n, k);
}

static TARGET void exact_columns(float *sums, const float *before, const float *a, size_t a_step,
                                 const float *b, size_t m, size_t n, size_t k,
                                 const gsi_prefetch *prefetch)
{
    (void)a_step, (void)prefetch;
    exact(sums, before, a, COLUMNS, b, m, n, k);
}

static const gsi_pairs pairs = {
    .rows = pack_rows,
    .columns = pack_columns,
    .transpose = pack_transposed,
    .exact_rows = exact_rows,
    .exact_columns = exact_columns,
};

static const gsi_gemm_isa isa = {
    .cpu = CPU,
    .mr = MR,
    .nr = NR,
    .a_ld = A_LD,
    .tile_m = TILE_PANELS * MR,
    .tile_n = TILE_STRIPS * NR,
    .l2_budget = L2_PANELS * A_LD * GSI_KC / DEPTH,
    .kc_blocks = KC_BLOCKS,
    .l1_lines = L1_LINES,
    .copy = copy,
    .gather = gather,
    .micro_rows = micro_rows,
    .micro_columns = micro_columns,
    .epilogue = epilogue,
    .pairs = &pairs,
};

void gsi_gemm_avx512bf16(gsi_kernels *k) { k->gemm[GS_BF16][GS_BF16] = &isa; }
#endif
