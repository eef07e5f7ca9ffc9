/* Elements of arrays, random bits, and what counts as zero: kernel/optim/optim.h has the rules. */
#ifndef GSI_DEVICE_NUMBER_H
#define GSI_DEVICE_NUMBER_H

#include "device/kernels/types.h"

DEVICE float gsd_keep(float x) { return gsd_bits(x) & 0x70000000u ? x : 0.0f; }
DEVICE float gsd_term(float x) { return gsd_bits(x) & 0x7F000000u ? x : 0.0f; }
DEVICE uint32_t gsd_magnitude(float x) { return gsd_bits(x) & 0x7FFFFFFFu; }
DEVICE uint32_t gsd_max(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* gsi_setting */
DEVICE float gsd_setting(double x)
{
    const float f = (float)x;
    return f < 0x1p-126f && f > -0x1p-126f ? 0.0f : f;
}

DEVICE gsi_row gsd_format(uint32_t type)
{
    gsi_row row;
    row.ebits = type == GS_F16 ? 5 : 8;
    row.mbits = type == GS_F16 ? 10 : 7;
    row.max_code = type == GS_F16 ? 0x7BFF : 0x7F7F;
    return row;
}

DEVICE float gsd_load(const GLOBAL uint8_t *p, uint32_t type, uint32_t i)
{
    if (type == GS_F32)
        return ((const GLOBAL float *)p)[i];
    if (type == GS_F16)
        return GSD_LOAD_F16(p, i);
    {
        const uint32_t u = (uint32_t)((const GLOBAL uint16_t *)p)[i] << 16;
        return gsd_float((u & 0x7FFFFFFFu) > GSD_INF ? u | 0x400000u : u);
    }
}

DEVICE void gsd_store(GLOBAL uint8_t *p, uint32_t type, uint32_t i, float x)
{
    if (type == GS_F32)
        ((GLOBAL float *)p)[i] = x;
    else if (type == GS_F16)
        GSD_STORE_F16(p, i, x);
    else
        ((GLOBAL uint16_t *)p)[i] =
            (uint16_t)gsi_narrow(gsd_bits(x), gsd_format(type), GSI_NEAREST, false);
}

DEVICE uint32_t gsd_size(uint32_t type) { return type == GS_F32 ? 4u : 2u; }

/* gsi_random_u16: the bits of element i of a stream. */
DEVICE uint32_t gsd_random(uint64_t key, uint64_t i)
{
    const uint32_t j = (uint32_t)(i % 128u);
    uint32_t block[4];
    gsi_philox(block, key, i / 128u * 16u + j % 16u);
    {
        const uint32_t pair =
            j < 64u ? (j < 32u ? block[0] : block[1]) : (j < 96u ? block[2] : block[3]);
        return pair >> (j / 16u % 2u * 16u) & 0xFFFFu;
    }
}

DEVICE uint64_t gsd_key(uint64_t key, uint64_t counter)
{
    uint32_t w[4];
    gsi_philox(w, key, counter);
    return (uint64_t)w[1] << 32 | w[0];
}

/* Stochastic; `first` is the number of p[0] in its stream. Halves only. Returns what is stored. */
DEVICE float gsd_store_random(GLOBAL uint8_t *p, uint32_t type, uint32_t i, float x, uint64_t key,
                              uint64_t first)
{
    const uint32_t code =
        gsi_narrow(gsd_bits(x), gsd_format(type), (int)gsd_random(key, first + i), false);
    ((GLOBAL uint16_t *)p)[i] = (uint16_t)code;
    return gsd_float(gsi_widen(code, gsd_format(type)));
}

/* To nearest; returns what is stored. */
DEVICE float gsd_store_nearest(GLOBAL uint8_t *p, uint32_t type, uint32_t i, float x)
{
    uint32_t code;
    if (type == GS_F32) {
        ((GLOBAL float *)p)[i] = x;
        return x;
    }
    code = gsi_narrow(gsd_bits(x), gsd_format(type), GSI_NEAREST, false);
    ((GLOBAL uint16_t *)p)[i] = (uint16_t)code;
    return gsd_float(gsi_widen(code, gsd_format(type)));
}

/* The table of settings has no row for the step that comes. */
DEVICE int gsd_exhausted(const GLOBAL gsd_settings *set, const GLOBAL gsd_state *state)
{
    return state->applied - set->first_row >= set->rows;
}

/* Elements of the chunk that begins at `first`. */
DEVICE uint32_t gsd_count(uint64_t count, uint64_t first)
{
    const uint64_t left = count - first;
    return left < GSD_CHUNK ? (uint32_t)left : GSD_CHUNK;
}

#endif
