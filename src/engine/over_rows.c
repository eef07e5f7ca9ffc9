/* Loops over rows: the same chunks for any number of threads, and one place that counts. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

enum { CHUNK_ELEMENTS = 1 << 14 }; /* 32 or 64 KB: some 10 us of work */

size_t gsi_chunk_rows(size_t cols)
{
    return cols < CHUNK_ELEMENTS ? CHUNK_ELEMENTS / (cols + !cols) : 1;
}

typedef struct slot {
    gsi_counts counts;
    uint32_t top;
} slot;

typedef struct loop {
    gsi_chunk_fn *body;
    void *arg;
    size_t rows, per_chunk;
    slot *slots; /* NULL: what is stored are no gradients in half */
    bool counts; /* all that they lose; else only the largest is known */
} loop;

static void run_chunk(void *arg, size_t i)
{
    const loop *l = arg;
    const size_t first = i * l->per_chunk, left = l->rows - first;
    slot s = {0};
    const uint64_t env = gsi_fpenv_enter();
    s.top = l->body(l->arg, first, left < l->per_chunk ? left : l->per_chunk,
                    l->counts ? &s.counts : NULL);
    gsi_fpenv_leave(env);
    if (l->slots)
        l->slots[i] = s;
}

gs_stats gsi_stats_of(const gsi_counts *c, uint32_t top, bool counted)
{
    const bool bad = top >= GSI_F32_INF;
    return (gs_stats){.inf = counted ? c->inf : bad, /* uncounted, one stands for all */
                      .nan = c->nan,
                      .zero = c->zero,
                      .subnormal = c->subnormal,
                      .underflow = c->underflow,
                      .amax = gsi_float(bad ? c->amax : top),
                      .bad_tensor = GS_NONE,
                      .bad_index = GS_NONE};
}

static void note_slots(gs_tape *t, const loop *l, size_t chunks, size_t elements)
{
    gs_stats stats;
    gs_stats_init(&stats);
    for (size_t i = 0; i < chunks; i++) {
        const gs_stats one = gsi_stats_of(&l->slots[i].counts, l->slots[i].top, l->counts);
        gs_stats_merge(&stats, &one);
    }
    stats.elements = elements;
    gsi_note(t, &stats);
}

void gsi_over_rows(gs_tape *t, size_t rows, size_t cols, gsi_chunk_fn *body, void *arg,
                   bool gradient)
{
    if (t->error.status != GS_OK || rows == 0)
        return;
    gs_context *ctx = t->ctx;
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    loop l = {body, arg, rows, gsi_chunk_rows(cols), NULL, gradient && t->config.telemetry};
    const size_t chunks = gsi_ceil_div(rows, l.per_chunk);
    if (gradient) {
        l.slots = gsi_arena_new(&ctx->scratch, chunks, sizeof *l.slots);
        if (!l.slots) {
            gs_tape_fail(t, GS_ENOMEM, "no memory for the statistics of a gradient");
            return;
        }
    }
    ctx->parallel.run(ctx->parallel.user, chunks, run_chunk, &l);
    if (gradient)
        note_slots(t, &l, chunks, rows * cols);
    gsi_arena_reset(&ctx->scratch, mark);
}
