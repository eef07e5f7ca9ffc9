/* What the programs that compare kernels with the reference share: random and hostile numbers, and
 * arrays between unmapped pages. To be included first: it asks for MAP_ANONYMOUS. */
#ifndef CHECKKERN_H
#define CHECKKERN_H

#define _DEFAULT_SOURCE

#include "kernel/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- random numbers and hostile values ---- */

static uint64_t seed = 1, drawn;

static inline uint32_t draw(void) { return gs_random_u32(seed, drawn++); }
static inline uint32_t below(uint32_t n) { return (uint32_t)((uint64_t)draw() * n >> 32); }

/* f32 bits: the places where rounding, flushing and testing change their mind. */
static const uint32_t edges[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x00800001, 0x00008000,
    0x00008001, 0x00018000, 0x33000000, 0x33000001, 0x32FFFFFF, 0x33800000, 0x33C00000, 0x387FDFFF,
    0x387FE000, 0x387FE001, 0x387FFFFF, 0x38800000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FF001,
    0x47800000, 0x7F7F0000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
    0x7F800001, 0xFF800001, 0x7FBFFFFF, 0x7FC00000, 0xFFC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F802000,
    0x3F800000, 0x3F801000, 0x3F803000, 0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0xBF800000,
};

/* How an array is filled: tame numbers, any bits, edges, or tame with one offender. */
typedef enum fill_kind { TAME, BITS, EDGES, ONE_BAD, FILLS } fill_kind;

static inline uint32_t any_f32(fill_kind kind)
{
    if (kind == BITS)
        return draw();
    if (kind == EDGES)
        return edges[below(GSI_COUNT(edges))];
    /* exponents 2^-30 to 2^17, and now and then a zero */
    return below(16) == 0 ? 0 : (draw() & 0x807FFFFF) | (97 + below(48)) << 23;
}

static inline void fill(void *data, size_t n, gs_dtype type, fill_kind kind)
{
    const size_t bad = kind == ONE_BAD && n ? below((uint32_t)n) : n;
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = any_f32(i == bad ? EDGES : kind);
        if (type == GS_F32)
            ((uint32_t *)data)[i] = u;
        else if (kind == BITS)
            ((uint16_t *)data)[i] = (uint16_t)u;
        else
            ((uint16_t *)data)[i] = (uint16_t)gsi_narrow(
                u, type == GS_F16 ? GSI_ROW_F16 : GSI_ROW_BF16, GSI_NEAREST, false);
    }
}

/* ---- arrays between unmapped pages ---- */

enum { ROOM = 1 << 16, LONGEST = 5000 };

static inline unsigned char *new_room(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *p = mmap(NULL, ROOM + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + page, ROOM, PROT_READ | PROT_WRITE) != 0) {
        perror("checkkern: mmap");
        exit(1);
    }
    return p + page;
}

static inline size_t size_of(gs_dtype type) { return gs_format_of(type)->bytes; }

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

/* ---- timing ---- */

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
