/* Ranks: which parts of the weights each has, and the memory of what they do together.
 *
 * A bucket's sums are the work of the ranks in equal pieces: each sums and scans its own. So a step
 * reads the same numbers in the same order with ZeRO-1 and without. */
#include "train/ranks.h"

/* ---- life ---- */

/* The parts of a piece, appended to out[n]. */
static size_t parts_in(const gs_trainer *t, gs_piece piece, gsi_part *out, size_t n)
{
    const size_t *starts = t->ranks->starts, end = piece.first + piece.count;
    for (size_t w = 0; w < t->model->n && starts[w] < end; w++) {
        const size_t count = t->model->entries[w].rows * t->model->entries[w].cols;
        const size_t first = piece.first > starts[w] ? piece.first - starts[w] : 0;
        const size_t last = gsi_min_size(end - starts[w], count);
        if (first >= last)
            continue;
        if (out)
            out[n] = (gsi_part){w, first, last - first};
        n++;
    }
    return n;
}

size_t gsi_rank_parts(const gs_trainer *t, int rank, gsi_part *out)
{
    const gs_reducer *r = t->ranks->reducer;
    size_t n = 0;
    if (r)
        for (size_t b = 0; b < gs_reducer_buckets(r); b++)
            n = parts_in(t, gs_reducer_piece(r, b, rank), out, n);
    for (size_t w = 0; !r && w < t->model->n; w++, n++)
        if (out)
            out[n] = (gsi_part){w, 0, t->model->entries[w].rows * t->model->entries[w].cols};
    return n;
}

static gs_status create(gs_trainer *t, const gs_trainer_config *config)
{
    gsi_ranks *ranks = t->ranks;
    gsi_heap *heap = &t->ctx->heap;
    const size_t n = t->model->n, size = (size_t)t->comm.size;
    const gs_tensor grads = gs_store_grads(t->store);
    const gs_weight *weights = gs_store_weights(t->store, NULL);
    const gs_reducer_config reducer = {
        .size = sizeof reducer, ranks->config.bucket, ranks->config.wire, ranks->zero};
    ranks->starts = gsi_new(heap, (n + 1) * sizeof *ranks->starts);
    ranks->items = gsi_new(heap, size * sizeof *ranks->items);
    size_t bytes;
    if (!gsi_mul_size(&bytes, size > 1 ? t->model->states : 0, size * sizeof *ranks->states))
        return GS_ENOMEM;
    ranks->states = gsi_new(heap, bytes);
    ranks->exponents = gsi_new(heap, size * sizeof *ranks->exponents);
    if (!ranks->starts || !ranks->items || !ranks->states || !ranks->exponents)
        return GS_ENOMEM;
    for (size_t w = 0; w < n; w++)
        ranks->starts[w] = (size_t)((float *)weights[w].grad - (float *)grads.data);
    ranks->starts[n] = grads.count;
    if (size > 1) {
        const gs_status status =
            gs_reducer_create(&ranks->reducer, t->ctx, &t->comm, grads.data, grads.count, &reducer);
        if (status != GS_OK)
            return status;
    }
    ranks->n_parts = gsi_rank_parts(t, t->comm.rank, NULL);
    ranks->parts = gsi_new(heap, ranks->n_parts * sizeof *ranks->parts);
    ranks->grads = gsi_new(heap, ranks->n_parts * sizeof *ranks->grads);
    if (!ranks->parts || !ranks->grads)
        return GS_ENOMEM;
    gsi_rank_parts(t, t->comm.rank, ranks->parts);
    for (size_t i = 0; i < ranks->n_parts; i++) {
        const gsi_part p = ranks->parts[i];
        const gs_weight *w = &weights[p.weight];
        ranks->grads[i] = (gs_tensor){(float *)w->grad + p.first, p.count, GS_F32, w->name, 0};
    }
    return ranks->zero ? gsi_shard_create(t, config) : GS_OK;
}

gs_status gsi_ranks_create(gs_trainer *t, const gs_trainer_config *config)
{
    t->ranks = gsi_new(&t->ctx->heap, sizeof *t->ranks);
    if (t->ranks) {
        *t->ranks =
            (gsi_ranks){.config = config->ranks, .zero = config->ranks.zero && t->comm.size > 1};
        if (t->ranks->config.compare == 0)
            t->ranks->config.compare = 100;
    }
    const gs_status status = t->ranks ? create(t, config) : GS_ENOMEM;
    if (status == GS_ENOMEM)
        gsi_fail(&t->ctx->error, status, "no memory to train with %d ranks", t->comm.size);
    return status;
}

void gsi_ranks_free(gs_trainer *t)
{
    gsi_ranks *ranks = t->ranks;
    gsi_heap *heap = &t->ctx->heap;
    if (!ranks)
        return;
    gsi_shard_free(t);
    gs_reducer_free(ranks->reducer);
    gsi_free(heap, ranks->starts);
    gsi_free(heap, ranks->items);
    gsi_free(heap, ranks->states);
    gsi_free(heap, ranks->exponents);
    gsi_free(heap, ranks->parts);
    gsi_free(heap, ranks->grads);
    gsi_free(heap, ranks);
    t->ranks = NULL;
}

const gs_weight *gsi_model_weights(const gs_trainer *t)
{
    return t->ranks->shard.apart ? t->ranks->shard.weights : gs_store_weights(t->store, NULL);
}

const gs_weight *gsi_optim_weights(const gs_trainer *t, size_t *n)
{
    *n = t->ranks->zero ? t->ranks->n_parts : t->model->n;
    return t->ranks->zero ? t->ranks->shard.stepped : gs_store_weights(t->store, NULL);
}

uint64_t gsi_ranks_sent(const gs_trainer *t)
{
    return t->ranks->reducer ? gs_reducer_sent(t->ranks->reducer) : 0;
}

static uint64_t bytes_of(gs_tensor x) { return x.count * gsi_size_of(x.dtype); }

gs_held gs_trainer_held(const gs_trainer *t)
{
    const gsi_shard *s = &t->ranks->shard;
    size_t n;
    const gs_weight *stepped = gsi_optim_weights(t, &n);
    gs_held held = {.weights =
                        bytes_of(gs_store_data(t->store)) + bytes_of(gs_store_copies(t->store)),
                    .gradients = bytes_of(gs_store_grads(t->store))};
    if (t->ranks->reducer)
        held.gradients += gs_reducer_bytes(t->ranks->reducer);
    for (size_t i = 0; i < n; i++) {
        held.weights += s->apart ? stepped[i].cols * sizeof(float) : 0;
        for (int k = 0; k < GS_SLOT_COUNT; k++)
            held.optimizer += bytes_of(gs_optim_slot(t->optim, i, (gs_slot)k));
    }
    return held;
}
