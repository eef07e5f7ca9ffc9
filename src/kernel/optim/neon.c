/* Optimizer kernels for NEON, 4 floats per vector; fewer by way of the stack. As in pass/neon.c
 * nothing is streamed, and nothing prefetched: neither has been measured there. */
#include "kernel/dispatch.h"

#if defined(__aarch64__) && !defined(__AARCH64EB__)
#include "kernel/simd/neon_random.h"

#define KERNEL(name) name##_neon
#define FAMILY(name) neon_##name

enum { WIDTH = 4 };

typedef float32x4_t vf;
typedef float64x2_t vd;
typedef uint32x4_t vu;

INLINE void prefetch(const void *p) { (void)p; }
INLINE void fence(void) {}

INLINE vf load_n(const void *p, gs_dtype type, size_t n)
{
    if (type == GS_F32) {
        vf x = {0};
        memcpy(&x, p, n * sizeof(float));
        return x;
    }
    uint16x4_t h = {0};
    memcpy(&h, p, n * sizeof(uint16_t));
    return type == GS_F16 ? vcvt_f32_f16(vreinterpret_f16_u16(h)) : floats(vshll_n_u16(h, 16));
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
    const uint16x8_t h = to_half((f32x8){{bits(a), bits(b)}}, type);
    (void)stream;
    memcpy(p, &h, n * sizeof *p);
}

typedef uint64_t bit_keys;
typedef struct random_bits {
    uint32x4_t w[4][4]; /* of blocks 0 to 3, 4 to 7, .. */
} random_bits;

INLINE bit_keys keys_of(uint64_t key) { return key; }

INLINE void draw(random_bits r[2], const bit_keys k[2], uint64_t group)
{
    for (size_t i = 0; i < 8; i++)
        philox4(r[i / 4].w[i % 4], k[i / 4], group * 16 + i % 4 * 4);
}

INLINE vu store_random(uint16_t *p, vf a, vf b, const random_bits *r, size_t i, gs_dtype type,
                       vu top)
{
    const uint32x4_t *const w = r->w[i % 16 / 4], *const next = r->w[i % 16 / 4 + 1];
    const f32x8 random = {{take16(w[i / 32], i / 16), take16(next[i / 32], i / 16)}};
    const uint16x8_t h = to_half_sr((f32x8){{bits(a), bits(b)}}, random, type);
    store(p, words(h));
    return raise(top, words(h), type);
}

INLINE vf reaching(vf y, uint32_t mask, vf x)
{
    return floats(vandq_u32(vtstq_u32(bits(y), all(mask)), bits(x)));
}

INLINE vf add_reaching(vf a, uint32_t mask, vf b) { return a + reaching(b, mask, b); }
INLINE vf min_f32(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
INLINE vf max_f32(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE vf sqrt_f32(vf x) { return vsqrtq_f32(x); }
INLINE vd low(vf x) { return vcvt_f64_f32(vget_low_f32(x)); }
INLINE vd high(vf x) { return vcvt_high_f64_f32(x); }
INLINE vd mul_add(vd x, vd y, vd s) { return vfmaq_f64(s, x, y); }

#include "kernel/optim/tmpl.h"

#endif
