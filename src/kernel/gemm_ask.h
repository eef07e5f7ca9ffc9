/* What a multiplication asks of memory for those that follow. */
#ifndef GSI_KERNEL_GEMM_ASK_H
#define GSI_KERNEL_GEMM_ASK_H

#include "kernel/gemm_run.h"

/* Field by field, here and below: a struct copied in larger pieces than it was written in waits
 * until all stores before it have left the core, which took 200 cycles a multiplication. */
static inline void ask(gsi_ahead *x, const void *base, size_t inner, size_t outer)
{
    x->base = (uintptr_t)base;
    x->inner = inner;
    x->outer = outer;
}

/* Lines of the stored matrix to ask for in the course of a multiplication by k: rows `apart` from
 * each other at column c. */
static inline void ask_rows(gsi_ahead *x, const gs_matrix *of, const void *data, size_t r, size_t c,
                            size_t apart)
{
    const size_t row = of->stride * gsi_size_of(of->dtype);
    ask(x, gsi_at(data, of->dtype, r * of->stride + c), apart * row, 16 * row);
}

/* Where k runs along the rows: those from row r on abreast. */
static inline void ask_abreast(gsi_ahead *x, const gs_matrix *of, const void *data, size_t r,
                               size_t c)
{
    const size_t size = gsi_size_of(of->dtype);
    ask(x, gsi_at(data, of->dtype, r * of->stride + c), of->stride * size, 16 * size);
}

/* The panel that follows is of the chunk's next block or of the next columns; j reaches t.n after
 * the last. */
static inline gsi_place next_panel(const gsi_run *r, gsi_place at)
{
    if (++at.block == gsi_min_size(at.first + r->p.chunk, r->t.end)) {
        at.block = at.first;
        at.j += r->isa->nr;
    }
    return at;
}

/* Where a panel of b is packed. */
static inline float *slot_b(const gsi_run *r, const gsi_place *at)
{
    const size_t number = at->j / r->isa->nr * r->p.chunk + at->block - at->first;
    return r->b + (r->p.slab == r->p.panels ? 0 : number) * r->isa->nr * GSI_KC;
}

/* Part of the panel of b at `at`, which is multiplied next: some of its lines every 16 k, first of
 * memory, then of where it is packed. If there are none, x stays as it is. Without a division,
 * as it is done for every multiplication. */
static inline void ask_b(gsi_ahead *x, const gsi_run *r, const gsi_place *at, const float *packed,
                         size_t part)
{
    const gs_matrix *b = &r->g->b;
    const size_t bits = r->p.bits, apart = (size_t)1 << bits, each = 16 >> bits;
    const size_t wide = GSI_ALIGN / gsi_size_of(b->dtype);
    const size_t in_memory = at->slab > 0 ? 0 : r->p.parts, k0 = at->block * GSI_KC;
    const size_t j = at->j + (b->transposed ? part * each : (part >> bits) * wide);
    if (part >= in_memory) {
        part -= in_memory;
        if (r->p.slab == r->p.panels || part * each >= r->isa->nr)
            return;
        ask(x, packed + part * each * GSI_KC, GSI_ALIGN, each * GSI_ALIGN);
    } else {
        if (j >= r->t.n || b->patches || b->group)
            return;
        if (b->transposed)
            ask_abreast(x, b, r->b_data, r->t.j0 + j, k0);
        else
            ask_rows(x, b, r->b_data, k0 + (part & (apart - 1)), r->t.j0 + j, apart);
    }
    x->each = each;
}

/* Rows of a that are packed or read soon, while panel p is multiplied by the panel of b at `at`: in
 * the first column of panels those a group on, and in the last column the first ones of the next
 * slab. False if there are none. */
static inline bool ask_a(gsi_ahead *x, const gsi_run *r, const gsi_place *at, size_t p)
{
    const gs_matrix *a = &r->g->a;
    const size_t group = r->p.group, height = r->p.height;
    const size_t slab_end = gsi_min_size(at->slab + r->p.slab, r->p.panels);
    const size_t chunk_end = gsi_min_size(at->first + r->p.chunk, r->t.end);
    size_t block = at->block;
    if (at->j == 0) {
        p += group;
        if (p >= slab_end) {
            p -= slab_end - at->slab;
            block++;
        }
        if (block == chunk_end)
            return false;
    } else if (at->j + r->isa->nr >= r->t.n && block + 1 == chunk_end && p < at->slab + group) {
        p = slab_end < r->p.panels ? p + r->p.slab : p - at->slab;
        block = slab_end < r->p.panels ? at->first : chunk_end;
    } else {
        return false;
    }
    if (p >= r->p.panels || block == r->t.end || a->patches)
        return false;
    const size_t apart = 16 / r->isa->asked; /* panels share lines, and the rows they ask for */
    if (a->transposed)
        ask_rows(x, a, r->a_data, block * GSI_KC + p % apart,
                 r->t.i0 + gsi_min_size((p + 1) * height, r->t.m) - 1, apart);
    else
        ask_abreast(x, a, r->a_data, r->t.i0 + p * height, block * GSI_KC);
    return true;
}

/* Else what the multiplication ends with: c, again and again, so that it stays in L1, or its sums;
 * those of an earlier chunk have left L2, and are asked for a panel ahead. along: bytes of a row of
 * c by which asking goes on every 16 k. */
static inline void ask_end(gsi_ahead *x, const gsi_run *r, const gsi_place *at, const void *c,
                           const float *sums, size_t along)
{
    const size_t micro = r->isa->mr * r->isa->nr * sizeof(float);
    const bool far = at->first > r->t.block && at->block == at->first;
    if (at->block + 1 == r->t.end)
        ask(x, c, r->g->c.stride * gsi_size_of(r->g->c.dtype), along);
    else
        ask(x, (const char *)sums + (far ? micro : 0), micro / GSI_KC, micro * 16 / GSI_KC);
}

#endif
