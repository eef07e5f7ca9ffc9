/* What a micro-kernel prefetches for those that follow. */
#ifndef GSI_KERNEL_GEMM_PREFETCH_H
#define GSI_KERNEL_GEMM_PREFETCH_H

#include "kernel/gemm/plan.h"

/* Field by field, here and below: a struct copied in larger pieces than it was written in waits
 * until all stores before it have left the core, which took 200 cycles per micro-kernel. */
static inline void set_prefetch(gsi_prefetch *x, const void *base, size_t stride, size_t advance)
{
    x->base = (uintptr_t)base;
    x->stride = stride;
    x->advance = advance;
}

/* Where k runs down the rows of the stored matrix: column c of rows `apart` from each other, from
 * row r on; k16: k of 16 words. */
static inline void prefetch_down(gsi_prefetch *x, const gs_matrix *of, const void *data, size_t r,
                                 size_t c, size_t apart, size_t k16)
{
    const size_t row = of->stride * gsi_size_of(of->dtype);
    set_prefetch(x, gsi_at(data, of->dtype, r * of->stride + c), apart * row, k16 * row);
}

/* Where k runs along the rows: all of them side by side, from row r on. */
static inline void prefetch_along(gsi_prefetch *x, const gs_matrix *of, const void *data, size_t r,
                                  size_t c, size_t k16)
{
    const size_t size = gsi_size_of(of->dtype);
    set_prefetch(x, gsi_at(data, of->dtype, r * of->stride + c), of->stride * size, k16 * size);
}

/* The panel of b that follows is of the chunk's next block or of the next columns; j reaches t.n
 * after the last. */
static inline gsi_position next_panel(const gsi_job *r, gsi_position at)
{
    if (++at.block == gsi_min_size(at.chunk + r->p.kc_blocks, r->t.end)) {
        at.block = at.chunk;
        at.j += r->isa->nr;
    }
    return at;
}

/* As the how-manieth a panel of b is packed. */
static inline size_t number_of_b(const gsi_job *r, const gsi_position *at)
{
    const size_t number = at->j / r->isa->nr * r->p.kc_blocks + at->block - at->chunk;
    return r->p.mc_panels == r->p.panels ? 0 : number;
}

/* Part of the panel of b at `at`, which is multiplied next: some of its lines every 16 words, first
 * of memory, then of where it is packed. If there are none, x stays as it is. Without a division,
 * as it is done for every micro-kernel. */
static inline void prefetch_b(gsi_prefetch *x, const gsi_job *r, const gsi_position *at,
                              const float *packed, size_t part)
{
    const gs_matrix *b = &r->g->b;
    const size_t depth = gsi_depth(r->isa), shift = r->p.l2_shift, lines = 16 >> shift;
    const size_t parts = shift + depth - 1, apart = (size_t)1 << parts; /* of a column of lines */
    const size_t per_line = GSI_ALIGN / gsi_size_of(b->dtype);
    const size_t in_memory = at->mc > 0 ? 0 : r->p.b_parts, k0 = at->block * GSI_KC;
    const size_t j = at->j + (b->transposed ? part * lines : (part >> parts) * per_line);
    if (part >= in_memory) {
        part -= in_memory;
        if (r->p.mc_panels == r->p.panels || part * lines >= r->isa->nr)
            return;
        set_prefetch(x, packed + part * lines * gsi_words(r->isa, GSI_KC), GSI_ALIGN,
                     lines * GSI_ALIGN);
    } else {
        if (j >= r->t.n || b->im2col || b->group)
            return;
        if (b->transposed)
            prefetch_along(x, b, r->b_data, r->t.j0 + j, k0, 16 * depth);
        else
            prefetch_down(x, b, r->b_data, k0 + (part & (apart - 1)), r->t.j0 + j, apart,
                          16 * depth);
    }
    x->lines = lines;
}

/* Rows of a that are packed or read soon, while panel p is multiplied by the panel of b at `at`: in
 * the first column of panels those a group on, and in the last column the first ones of the next
 * mc_panels. False if there are none. */
static inline bool prefetch_a(gsi_prefetch *x, const gsi_job *r, const gsi_position *at, size_t p)
{
    const gs_matrix *a = &r->g->a;
    const size_t group = r->p.group, height = r->p.height;
    const size_t mc_end = gsi_min_size(at->mc + r->p.mc_panels, r->p.panels);
    const size_t chunk_end = gsi_min_size(at->chunk + r->p.kc_blocks, r->t.end);
    size_t block = at->block;
    if (at->j == 0) {
        p += group;
        if (p >= mc_end) {
            p -= mc_end - at->mc;
            block++;
        }
        if (block == chunk_end)
            return false;
    } else if (at->j + r->isa->nr >= r->t.n && block + 1 == chunk_end && p < at->mc + group) {
        p = mc_end < r->p.panels ? p + r->p.mc_panels : p - at->mc;
        block = mc_end < r->p.panels ? at->chunk : chunk_end;
    } else {
        return false;
    }
    if (p >= r->p.panels || block == r->t.end || a->im2col)
        return false;
    const size_t k16 = 16 * gsi_depth(r->isa);
    const size_t apart =
        k16 / r->isa->l1_lines; /* panels share lines, and the rows they prefetch */
    if (a->transposed)
        prefetch_down(x, a, r->a_data, block * GSI_KC + p % apart,
                      r->t.i0 + gsi_min_size((p + 1) * height, r->t.m) - 1, apart, k16);
    else
        prefetch_along(x, a, r->a_data, r->t.i0 + p * height, block * GSI_KC, k16);
    return true;
}

/* Else what the micro-kernel ends with: c, again and again, so that it stays in L1, or its sums;
 * those of an earlier chunk have left L2, and are prefetched a panel ahead. c_advance: bytes of a
 * row of c to go on every 16 words. */
static inline void prefetch_c(gsi_prefetch *x, const gsi_job *r, const gsi_position *at,
                              const void *c, const float *sums, size_t c_advance)
{
    const size_t micro = r->isa->mr * r->isa->nr * sizeof(float);
    const size_t words = gsi_words(r->isa, GSI_KC);
    const bool next_chunk = at->chunk > r->t.block && at->block == at->chunk;
    if (at->block + 1 == r->t.end)
        set_prefetch(x, c, r->g->c.stride * gsi_size_of(r->g->c.dtype), c_advance);
    else
        set_prefetch(x, (const char *)sums + (next_chunk ? micro : 0), micro / words,
                     micro * 16 / words);
}

#endif
