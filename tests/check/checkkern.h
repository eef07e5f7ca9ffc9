/* What the programs that compare kernels with the reference share: random and hostile numbers, and
 * arrays between unmapped pages. To be included first: it asks for MAP_ANONYMOUS. */
#ifndef CHECKKERN_H
#define CHECKKERN_H

#define _DEFAULT_SOURCE

#include "levels.h"
#include "room.h"
#include "test.h"

#include "reference.h"

/* ---- random numbers and hostile values ---- */

static uint64_t seed = 1, drawn;
static bool thorough; /* GS_LONG=1 */

static inline uint32_t draw(void)
{
    static uint32_t words[4];
    if (drawn % 4 == 0)
        gsi_philox(words, seed, drawn / 4);
    return words[drawn++ % 4];
}

static inline uint32_t below(uint32_t n) { return (uint32_t)((uint64_t)draw() * n >> 32); }

/* Magnitudes, as f32 bits: the places where rounding, flushing and testing change their mind. */
static const uint32_t edges[] = {
    0x00000000, 0x00000001, 0x007FFFFF, 0x00800000, 0x00008000, 0x00018000,  0x007F8000,
    0x33000000, 0x33800000, 0x33C00000, 0x387FE000, 0x387FF000, 0x387FFFFF,  0x38800000,
    0x477FD000, 0x477FE000, 0x477FF000, 0x47800000, 0x7F7E8000, 0x7F7F0000,  0x7F7F8000,
    0x7F7FFFFF, 0x7F800000, 0x7F802000, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF,  0x3F800000,
    0x3F801000, 0x3F803000, 0x3F808000, 0x3F818000, 0x20000000, GSI_SUM_MIN, GSI_SUM_MAX,
};

/* How an array is filled: tame numbers, any bits, any finite ones, edges and their neighbours,
 * tame with one edge among them, an edge and nothing above it, or one among numbers that are normal
 * in every type. */
typedef enum fill_kind { TAME, BITS, FINITE, EDGES, ONE_EDGE, BELOW_EDGE, NORMAL, FILLS } fill_kind;

static inline uint32_t any_edge(void)
{
    const uint32_t around = edges[below(GSI_COUNT(edges))] + below(5) - 2;
    return below(2) ? around : around ^ 0x80000000;
}

/* Exponents 2^-30 to 2^14, so that halves are finite too, and now and then a zero. */
static inline uint32_t any_tame(void)
{
    return below(16) == 0 ? 0 : (draw() & 0x807FFFFF) | (97 + below(45)) << 23;
}

static inline uint32_t any_normal(void)
{
    return below(16) == 0 ? 0 : (draw() & 0x807FFFFF) | (114 + below(28)) << 23;
}

static inline uint32_t any_code(gs_dtype type, fill_kind kind)
{
    if (kind == BITS || kind == FINITE) {
        const unsigned width = type == GS_F32 ? 32 : 16;
        const uint32_t u = draw() >> (32 - width);
        const uint32_t inf = (uint32_t)gs_dtype_format(type)->max_code + 1;
        return kind == FINITE && (u & inf) == inf ? u ^ 1u << (width - 2) : u;
    }
    const uint32_t u = kind == EDGES ? any_edge() : kind == NORMAL ? any_normal() : any_tame();
    if (type == GS_F32)
        return u;
    const uint32_t code =
        gsi_narrow(u, type == GS_F16 ? GSI_ROW_F16 : GSI_ROW_BF16, GSI_NEAREST, false);
    return kind == EDGES ? code + below(3) - 1 : code;
}

static inline void put(void *data, size_t i, uint32_t code, gs_dtype type)
{
    if (type == GS_F32)
        ((uint32_t *)data)[i] = code;
    else
        ((uint16_t *)data)[i] = (uint16_t)code;
}

static inline void fill(void *data, size_t n, gs_dtype type, fill_kind kind)
{
    const uint32_t edge = any_code(type, EDGES), sign = type == GS_F32 ? 1u << 31 : 1u << 15;
    const uint32_t level = edge & (sign - 1);
    for (size_t i = 0; i < n; i++)
        put(data, i, kind == BELOW_EDGE ? below(level + 1) | (draw() & sign) : any_code(type, kind),
            type);
    if (n > 0 && (kind == ONE_EDGE || kind == BELOW_EDGE || kind == NORMAL))
        put(data, below((uint32_t)n), edge, type);
}

/* ---- arrays between unmapped pages ---- */

enum { ROOM = 1 << 16 /* the largest page there is */, LONGEST = 5000, MARGIN = 256 };

static inline size_t size_of(gs_dtype type) { return gs_dtype_format(type)->bytes; }

/* Where an array of `bytes` lies in its room: at the start, at the end or somewhere. */
static inline size_t place(size_t bytes, size_t element)
{
    const size_t free_bytes = ROOM - bytes;
    switch (below(3)) {
    case 0:
        return 0;
    case 1:
        return free_bytes;
    default:
        return below((uint32_t)(free_bytes / element) + 1) * element;
    }
}

#endif
