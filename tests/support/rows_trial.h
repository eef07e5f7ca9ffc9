/* rows_trial.h: what a row kernel is tried on. Random numbers and hostile values; arrays between
 * unmapped pages, each twice; the trial that is set up. Sets of arrays are made by rows_families.h.
 * The source that includes it has defined _DEFAULT_SOURCE. */
#ifndef ROWS_TRIAL_H
#define ROWS_TRIAL_H

#include "kernel/dispatch.h"
#include "room.h"

#include <string.h>

/* ---- random numbers and hostile values ---- */

static uint64_t seed = 1, drawn;

static uint32_t draw(void) { return gs_random_u32(seed, drawn++); }
static uint32_t below(uint32_t n) { return (uint32_t)((uint64_t)draw() * n >> 32); }

/* f32 bits: where rounding, flushing, testing, exp and quantisation change their mind. */
static const uint32_t edges[] = {
    0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x00008000, 0x33000000,
    0x33000001, 0x32FFFFFF, 0x33800000, 0x33C00000, 0x387FDFFF, 0x387FE000, 0x387FE001, 0x38800000,
    0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FF001, 0x47800000, 0x7F7F0000, 0x7F7F7FFF, 0x7F7F8000,
    0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FC00000, 0xFFC00000, 0x3F800000,
    0xBF800000, 0x42B17217, 0x42B17218, 0xC2AEAC4F, 0xC2AEAC50, 0x41200000, 0xC1200000, 0x3F200000,
    0x3F1FFFFF, 0x40800000, 0x3F000000, 0xBF000000, 0x3F808000, 0x3F801000, 0xFF800001, 0x7F802000,
};

/* How an array is filled: numbers of a net, any bits, edges, or tame with one offender. */
typedef enum fill_kind { TAME, BITS, EDGES, ONE_BAD, FILLS } fill_kind;

static uint32_t any_f32(fill_kind kind)
{
    if (kind == BITS)
        return draw();
    if (kind == EDGES)
        return edges[below(GSI_COUNT(edges))];
    /* 2^-20 to 2^4, and now and then a zero */
    return below(16) == 0 ? 0 : (draw() & 0x807FFFFF) | (107 + below(24)) << 23;
}

static size_t size_of(gs_dtype type) { return gs_dtype_format(type)->bytes; }

static void fill(void *data, size_t n, gs_dtype type, fill_kind kind)
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

/* ---- arrays between unmapped pages, each twice: for the reference and for the variant ---- */

enum { ROOM = 1 << 20, MARGIN = 128, ARRAYS = 9, LONGEST = 5000 };
enum { WANT, GOT, SIDES };

typedef struct array {
    gs_dtype type;
    size_t at, n; /* bytes into the room; elements */
} array;

static unsigned char *rooms[ARRAYS][SIDES];

/* The trial that is set up: sizes, types, arrays by number. */
static struct trial {
    fill_kind kind;
    size_t n, rows, cols, stride, first;
    bool fixed; /* timing: all arrays of one type, none in place */
    gs_dtype fixed_type;
    array a[ARRAYS];
    bool used[ARRAYS], counted;
    gsi_counts counts[SIDES];
    float number;
    gsi_dropout dropout;
    gsi_quant quant;
    gsi_pool2d pool;
    gsi_rotary rotary;
    size_t lines;
    size_t images;
} t;

static gs_dtype any_type(void)
{
    static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
    return t.fixed ? t.fixed_type : types[below(3)];
}

static void *at(int k, int side) { return rooms[k][side] + t.a[k].at; }
static gsi_in in(int k, int side) { return (gsi_in){at(k, side), t.a[k].type}; }

static gsi_out out(int k, int side)
{
    return (gsi_out){at(k, side), t.a[k].type, t.counted ? &t.counts[side] : NULL};
}

/* The bytes of array k and MARGIN around it, inside the room. */
static void span(int k, size_t *first, size_t *end)
{
    const array *a = &t.a[k];
    const size_t last = a->at + a->n * size_of(a->type);
    *first = a->at < MARGIN ? 0 : a->at - MARGIN;
    *end = ROOM - last < MARGIN ? ROOM : last + MARGIN;
}

/* Array k: n elements at the start of its room, at the end or somewhere. */
static void place(int k, size_t n, gs_dtype type)
{
    const size_t bytes = n * size_of(type), spare = ROOM - bytes;
    const size_t where[] = {0, spare, below((uint32_t)(spare / size_of(type)) + 1) * size_of(type)};
    t.a[k] = (array){type, where[t.fixed ? 0 : below(3)], n};
    t.used[k] = true;
    size_t first, end;
    span(k, &first, &end);
    for (size_t i = first; i < end; i++)
        rooms[k][WANT][i] = (unsigned char)(i * 37 + 11);
}

static void twin(int k)
{
    size_t first, end;
    span(k, &first, &end);
    memcpy(rooms[k][GOT] + first, rooms[k][WANT] + first, end - first);
}

static void given(int k, size_t n, gs_dtype type, fill_kind kind)
{
    place(k, n, type);
    fill(at(k, WANT), n, type, kind);
    twin(k);
}

static void source(int k, size_t n) { given(k, n, any_type(), t.kind); }
static void wanted(int k, size_t n, gs_dtype type)
{
    place(k, n, type);
    twin(k);
}

/* A destination: sometimes source j itself, which the caller then names by the number returned. */
static int over(int k, int j, size_t n)
{
    if (!t.fixed && below(3) == 0)
        return j;
    wanted(k, n, any_type());
    return k;
}

static void indices(int k, size_t n, uint32_t limit, bool ignore)
{
    place(k, n, GS_F32);
    for (size_t i = 0; i < n; i++)
        ((int32_t *)at(k, WANT))[i] =
            ignore && below(4) == 0 ? -(int32_t)below(100) - 1 : (int32_t)below(limit);
    twin(k);
}

static int dst; /* of the trial */

#endif
