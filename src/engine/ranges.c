/* Ranges of what is quantised: the largest magnitude of an activation, or a percentile of all, as
 * they move from batch to batch. */
#include "engine/engine.h"

#include <string.h>

enum { PARTS = 32, COARSE = 1 << 11, FINE = 1 << 8 }; /* magnitudes by 8 + 3 bits, then 8 more */

typedef struct range_loop {
    const gs_context *ctx;
    gsi_in x;
    size_t n;
    uint32_t tops[PARTS];
    uint32_t *counts; /* [PARTS][COARSE] */
    uint32_t within;  /* the coarse bin that is looked into; COARSE: all of them are counted */
} range_loop;

static void part_of(const range_loop *l, size_t part, size_t *first, size_t *count)
{
    const size_t each = gsi_ceil_div(gsi_ceil_div(l->n, PARTS), GSI_BLOCK) * GSI_BLOCK;
    *first = gsi_min_size(part * each, l->n);
    *count = gsi_min_size(each, l->n - *first);
}

static void amax_part(void *arg, size_t part)
{
    range_loop *const l = arg;
    size_t first, count;
    part_of(l, part, &first, &count);
    l->tops[part] = l->ctx->kernels.pass.check[l->x.type](gsi_in_at(l->x, first).data, count);
}

uint32_t gsi_range_amax(const gs_tape *t, gsi_in x, size_t n)
{
    range_loop l = {.ctx = t->ctx, .x = x, .n = n};
    uint32_t top = 0;
    t->ctx->parallel.run(t->ctx->parallel.user, PARTS, amax_part, &l);
    for (int i = 0; i < PARTS; i++)
        top = l.tops[i] > top ? l.tops[i] : top;
    return top;
}

static void count_part(void *arg, size_t part)
{
    const range_loop *l = arg;
    uint32_t *counts = l->counts + part * COARSE;
    size_t first, count;
    part_of(l, part, &first, &count);
    memset(counts, 0, COARSE * sizeof *counts);
    for (size_t i = first; i < first + count; i++) {
        const uint32_t mag = gsi_magnitude(gsi_element(l->x.data, l->x.type, i));
        if (l->within == COARSE)
            counts[mag >> 20]++;
        else if (mag >> 20 == l->within)
            counts[mag >> 12 & (FINE - 1)]++;
    }
}

/* The first of `bins` bins with which *rank elements are reached; *rank loses those before it. */
static uint32_t find_bin(range_loop *l, uint32_t bins, uint64_t *rank)
{
    l->ctx->parallel.run(l->ctx->parallel.user, PARTS, count_part, l);
    for (uint32_t bin = 0; bin < bins; bin++) {
        uint64_t here = 0;
        for (int part = 0; part < PARTS; part++)
            here += l->counts[(size_t)part * COARSE + bin];
        if (here >= *rank)
            return bin;
        *rank -= here;
    }
    return bins - 1;
}

/* The magnitude up to which so many percent of the elements are, to 2^-11 of itself. Counts are
 * integers: no order matters. */
static float percentile_of(range_loop *l, float percent)
{
    uint64_t rank = (uint64_t)((double)percent / 100 * (double)l->n + 0.5);
    rank += rank == 0;
    l->within = COARSE;
    const uint32_t coarse = find_bin(l, COARSE, &rank);
    l->within = coarse;
    const uint32_t fine = find_bin(l, FINE, &rank);
    return gsi_float(coarse << 20 | fine << 12 | 0xFFF);
}

void gsi_range_move(gs_tape *t, float *range, gsi_in x, size_t n, float amax)
{
    const float momentum = 0.1f; /* batchnorm's */
    float seen = amax;
    if (t->config.range_rule == GS_RANGE_PERCENTILE && n > 0) {
        const gsi_mark mark = gsi_arena_mark(&t->ctx->scratch);
        range_loop l = {.ctx = t->ctx, .x = x, .n = n};
        l.counts = gsi_arena_new(&t->ctx->scratch, PARTS * COARSE, sizeof *l.counts);
        if (!l.counts) {
            gs_tape_fail(t, GS_ENOMEM, "no memory for the histogram of a range");
            return;
        }
        seen = percentile_of(&l, t->config.percentile);
        seen = seen < amax ? seen : amax;
        gsi_arena_reset(&t->ctx->scratch, mark);
    }
    if (t->config.range_rule == GS_RANGE_MAX || *range == 0)
        *range = seen > *range ? seen : *range;
    else
        *range += momentum * (seen - *range);
}

float *gsi_range_of(const gs_tape *t, const gs_weight *w)
{
    size_t at = 0;
    for (size_t i = 0; t->ranges && i < t->ranged_count; i++) {
        const gs_weight *r = &t->ranged[i];
        if (r == w || r->data == w->data) /* a model may have a copy of it */
            return r->rows > 1 ? t->ranges + at : NULL;
        at += r->rows > 1;
    }
    return NULL;
}
