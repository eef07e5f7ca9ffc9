/* Optimizer kernels for AVX2 with F16C, 8 floats per vector; fewer by way of the stack. SGD, Adam,
 * LAMB and Adafactor, their moments and master weights are in tmpl.h. */
#include "kernel/dispatch.h"

#if defined(__x86_64__)
#include "kernel/simd/avx2_random.h"

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

typedef uint64_t bit_keys;
typedef struct random_bits {
    __m256i w[2][4]; /* of blocks 0 to 7 and 8 to 15 */
} random_bits;

INLINE bit_keys keys_of(uint64_t key) { return key; }

INLINE void draw(random_bits r[2], const bit_keys k[2], uint64_t group)
{
    for (size_t i = 0; i < 4; i++)
        philox8(r[i / 2].w[i % 2], k[i / 2], group * 16 + i % 2 * 8);
}

INLINE vu store_random(uint16_t *p, vf a, vf b, const random_bits *r, size_t i, gs_dtype type,
                       vu top)
{
    const __m256i h = pack(round_sr((vu)a, type, r->w[0][i / 32], i / 16),
                           round_sr((vu)b, type, r->w[1][i / 32], i / 16));
    store(p, h, false);
    return raise(top, h, type);
}

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
