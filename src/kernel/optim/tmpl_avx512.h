/* Optimizer kernels for AVX-512, 16 floats per vector; fewer under a mask. SGD, Adam, LAMB and
 * Adafactor, their moments and master weights are in tmpl.h. A template; the including source has
 * defined KERNEL, FAMILY and FETCH_AHEAD, as for kernel/pass/tmpl_avx512.h, and includes tmpl.h
 * next. */

INLINE void prefetch(const void *p)
{
    if (FETCH_AHEAD > 0)
        _mm_prefetch((const char *)((uintptr_t)p + FETCH_AHEAD), _MM_HINT_T0);
}

enum { WIDTH = 16 };

typedef float vf __attribute__((vector_size(4 * WIDTH)));
typedef double vd __attribute__((vector_size(4 * WIDTH)));
typedef __m512i vu;

INLINE vf load_n(const void *p, gs_dtype type, size_t n)
{
    return _mm512_castsi512_ps(load16(p, type, first16(n)));
}

INLINE void store_n(float *p, vf x, size_t n) { _mm512_mask_storeu_ps(p, first16(n), x); }

INLINE vd load_f64(const double *p, size_t n)
{
    return _mm512_maskz_loadu_pd((__mmask8)first16(n), p);
}

INLINE void store_f64(double *p, vd x, size_t n)
{
    _mm512_mask_storeu_pd(p, (__mmask8)first16(n), x);
}

INLINE void store_copy(uint16_t *p, vf a, vf b, gs_dtype type, size_t n, bool stream)
{
    const __m256i low = to_half((vu)a, type), high = to_half((vu)b, type);
    const __m512i h = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    if (stream)
        _mm512_stream_si512((void *)p, h);
    else
        _mm512_mask_storeu_epi16(p, first32(n), h);
}

INLINE void fence(void) { _mm_sfence(); }

typedef round_keys bit_keys;
typedef struct random_bits {
    __m512i w[4];
} random_bits;

INLINE bit_keys keys_of(uint64_t key) { return philox_keys(key); }

INLINE void draw(random_bits r[2], const bit_keys k[2], uint64_t group)
{
    const round_keys *const keys[] = {&k[0], &k[1]};
    const uint64_t blocks[] = {group * 16, group * 16};
    __m512i w[2][4];
    philox16(w, 2, keys, blocks);
    memcpy(r, w, sizeof w);
}

INLINE vu store_random(uint16_t *p, vf a, vf b, const random_bits *r, size_t i, gs_dtype type,
                       vu top)
{
    const __m512i h = stochastic32((vu)a, (vu)b, r->w[i / 32], type);
    _mm512_storeu_si512(p, h);
    return raise(top, h, type);
}

INLINE vf reaching(vf y, uint32_t mask, vf x)
{
    return _mm512_maskz_mov_ps(_mm512_test_epi32_mask((vu)y, _mm512_set1_epi32((int)mask)), x);
}

INLINE vf add_reaching(vf a, uint32_t mask, vf b)
{
    return _mm512_mask_add_ps(a, _mm512_test_epi32_mask((vu)b, _mm512_set1_epi32((int)mask)), a, b);
}

INLINE vf min_f32(vf a, vf b) { return _mm512_min_ps(a, b); }
INLINE vf max_f32(vf a, vf b) { return _mm512_max_ps(a, b); }
INLINE vf sqrt_f32(vf x) { return _mm512_sqrt_ps(x); }
INLINE vd low(vf x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
INLINE vd high(vf x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
INLINE vd mul_add(vd x, vd y, vd s) { return _mm512_fmadd_pd(x, y, s); }
