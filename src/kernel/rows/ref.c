/* The row kernels in plain operators: the definition, and what SSE2 runs. */
#define WIDTH 4
#define TARGET
#define KERNEL(name) name##_ref
#define UNROLL

#include "kernel/simd/vec.h"

typedef uint16_t vh __attribute__((vector_size(2 * WIDTH)));

INLINE vu load_u16(const uint16_t *p)
{
    vh h;
    memcpy(&h, p, sizeof h);
    return __builtin_convertvector(h, vu);
}

INLINE void store_u16(uint16_t *p, vu x)
{
    const vh h = __builtin_convertvector(x, vh);
    memcpy(p, &h, sizeof h);
}

INLINE vu load_u8(const uint8_t *p)
{
    vu x;
    for (int l = 0; l < WIDTH; l++)
        x[l] = p[l];
    return x;
}

INLINE void store_u8(uint8_t *p, vu x)
{
    for (int l = 0; l < WIDTH; l++)
        p[l] = (uint8_t)x[l];
}

INLINE vu select_u(vu mask, vu yes, vu no) { return (mask & yes) | (~mask & no); }

INLINE vf load_f16(const uint16_t *p)
{
    const vu code = load_u16(p), mag = code & 0x7FFF, sign = (code & 0x8000) << 16;
    const vu normal = (mag << 13) + (112u << 23);
    const vu special = (mag << 13) | GSI_F32_INF | ((vu)((vi)mag > 0x7C00) & 0x400000);
    const vu small = (vu)(__builtin_convertvector((vi)mag, vf) * 0x1p-24f); /* exact, normal */
    vu u = select_u((vu)((vi)mag < 0x0400), small, normal);
    u = select_u((vu)((vi)mag >= 0x7C00), special, u);
    return (vf)(u | sign);
}

INLINE void store_f16(uint16_t *p, vf x)
{
    const vu u = (vu)x, mag = u & 0x7FFFFFFF, sign = u >> 16 & 0x8000;
    const vu down = mag - (112u << 23);
    const vu normal = (down + 0xFFF + (down >> 13 & 1)) >> 13;
    /* the last bit of a number in [0.5, 1) is worth 2^-24: the sum rounds as the half does */
    const vu small = (vu)((vf)mag + 0.5f) - 0x3F000000;
    vu code = select_u((vu)((vi)mag < 0x38800000), small, normal);
    code = select_u((vu)((vi)mag >= 0x477FF000), (vu){0} + 0x7C00, code);
    code = select_u((vu)((vi)mag > (int32_t)GSI_F32_INF), (mag >> 13 & 0x3FF) | 0x7E00, code);
    store_u16(p, code | sign);
}

INLINE vf max_f32(vf a, vf b) { return select(a > b, a, b); }
INLINE vi max_i32(vi a, vi b) { return (vi)select(a > b, (vf)a, (vf)b); }

INLINE bool reaches(vi x, int32_t limit)
{
    int32_t any = 0;
    for (int l = 0; l < WIDTH; l++)
        any |= x[l] >= limit;
    return any;
}

INLINE vu64 mul_even(vu a, vu b)
{
    const vu64 low = (vu64){0} + 0xFFFFFFFF;
    return ((vu64)a & low) * ((vu64)b & low);
}

#include "kernel/rows/tmpl.h"
