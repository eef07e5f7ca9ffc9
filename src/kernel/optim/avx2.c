/* Optimizer kernels for AVX2 with F16C, 8 floats per vector; fewer by way of the stack. SGD, Adam,
 * LAMB and Adafactor, their moments and master weights are in tmpl.h. */
#include "kernel/dispatch.h"

#if defined(__x86_64__)
#include "kernel/simd/avx2.h"

#define KERNEL(name) name##_avx2
#define FAMILY(name) avx2_##name

enum { WIDTH = 8 };

typedef float vf __attribute__((vector_size(4 * WIDTH)));
typedef double vd __attribute__((vector_size(4 * WIDTH)));
typedef __m256i vu;

INLINE vf load_n(const void *p, gs_dtype type, size_t n)
{
    __m256i x = {0};
    if (n == WIDTH)
        return (vf)load8(p, type);
    memcpy(&x, p, n * gsi_size_of(type));
    return (vf)load8(&x, type);
}

INLINE void store_n(float *p, vf x, size_t n) { memcpy(p, &x, n * sizeof *p); }

INLINE vd load_f64(const double *p, size_t n)
{
    vd x = {0};
    memcpy(&x, p, n * sizeof *p);
    return x;
}

INLINE void store_f64(double *p, vd x, size_t n) { memcpy(p, &x, n * sizeof *p); }

INLINE void store_copy(uint16_t *p, vf a, vf b, gs_dtype type, size_t n, bool stream)
{
    const __m256i h = to_half((vu)a, (vu)b, type);
    if (stream)
        _mm256_stream_si256((void *)p, h);
    else
        memcpy(p, &h, n * sizeof *p);
}

INLINE void fence(void) { _mm_sfence(); }

INLINE vf reaching(vf y, uint32_t mask, vf x)
{
    const __m256i none = _mm256_cmpeq_epi32((vu)y & all(mask), _mm256_setzero_si256());
    return _mm256_andnot_ps((vf)none, x);
}

INLINE vf add_reaching(vf a, uint32_t mask, vf b) { return a + reaching(b, mask, b); }
INLINE vf min_f32(vf a, vf b) { return _mm256_min_ps(a, b); }
INLINE vf max_f32(vf a, vf b) { return _mm256_max_ps(a, b); }
INLINE vf sqrt_f32(vf x) { return _mm256_sqrt_ps(x); }
INLINE vd low(vf x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
INLINE vd high(vf x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
INLINE vd mul_add(vd x, vd y, vd s) { return _mm256_fmadd_pd(x, y, s); }

#include "kernel/optim/tmpl.h"

#endif
