/* ZeRO-1 (Rajbhandari et al. 2020): a rank keeps moments, and in O2 f32 weights, of its parts only.
 *
 * The optimizer is an ordinary one over parts as if they were weights: what it does to an element
 * does not depend on where its array begins. It writes the half weights, or where there are none
 * the f32 ones, into the flat block of all; the block is then gathered. */
#include "train/ranks.h"

#include <stdio.h>
#include <string.h>

static bool is_vector(const gs_trainer *t, size_t w) { return t->model->entries[w].rows == 1; }

/* Parts that each rank has for itself must not need the rest of a matrix, nor random bits that
 * count from its start. */
static gs_status check(gs_context *ctx, const gs_optim_config *c)
{
    if (c->kind != GS_SGD && c->kind != GS_ADAM && c->kind != GS_ADAMW)
        return gsi_fail(&ctx->error, GS_ERANGE,
                        "zero needs sgd, adam or adamw: others look at whole matrices");
    if (c->moments != GS_F32 || c->rounding == GS_ROUND_STOCHASTIC)
        return gsi_fail(&ctx->error, GS_ERANGE,
                        "zero needs moments in f32 and no stochastic rounding");
    return GS_OK;
}

/* ---- life ---- */

/* f32 weights: this rank's parts of matrices, everybody's vectors. */
static bool new_masters(gs_trainer *t)
{
    gsi_shard *s = &t->ranks->shard;
    gsi_heap *heap = &t->ctx->heap;
    size_t masters = 0, vectors = 0;
    s->vector_at = gsi_new(heap, (t->model->n + 1) * sizeof *s->vector_at);
    if (!s->vector_at)
        return false;
    for (size_t w = 0; w <= t->model->n; w++) {
        s->vector_at[w] = vectors;
        if (w < t->model->n && is_vector(t, w))
            vectors += t->model->entries[w].cols;
    }
    for (size_t i = 0; i < t->ranks->n_parts; i++)
        if (!is_vector(t, t->ranks->parts[i].weight))
            masters += t->ranks->parts[i].count;
    s->masters = gsi_new(heap, masters * sizeof *s->masters);
    s->vectors = gsi_new(heap, vectors * sizeof *s->vectors);
    s->weights = gsi_new(heap, t->model->n * sizeof *s->weights);
    return s->masters && s->vectors && s->weights;
}

/* Room to gather vectors, and for a list of their parts: for each rank as much as the one with
 * most of them needs. */
static bool new_packed(gs_trainer *t)
{
    gsi_shard *s = &t->ranks->shard;
    size_t most = 0;
    for (int r = 0; r < t->comm.size; r++)
        most = gsi_max_size(most, gsi_rank_parts(t, r, NULL));
    s->list = gsi_new(&t->ctx->heap, most * sizeof *s->list);
    for (int r = 0; s->list && r < t->comm.size; r++) {
        const size_t n = gsi_rank_parts(t, r, s->list);
        size_t count = 0;
        for (size_t i = 0; i < n; i++)
            count += is_vector(t, s->list[i].weight) ? s->list[i].count : 0;
        s->pack = gsi_max_size(s->pack, count);
    }
    s->packed = gsi_new(&t->ctx->heap, (size_t)t->comm.size * s->pack * sizeof *s->packed);
    return s->list && s->packed;
}

/* What the model reads: half matrices, f32 vectors. */
static void fill_weights(gs_trainer *t)
{
    gsi_shard *s = &t->ranks->shard;
    for (size_t w = 0; w < t->model->n; w++) {
        s->weights[w] = gs_store_weights(t->store, NULL)[w];
        if (!is_vector(t, w))
            continue;
        s->weights[w].copy = s->weights[w].data;
        s->weights[w].copy_dtype = s->weights[w].dtype;
        s->weights[w].data = s->vectors + s->vector_at[w];
        s->weights[w].dtype = GS_F32;
    }
}

static void fill_stepped(gs_trainer *t)
{
    gsi_shard *s = &t->ranks->shard;
    size_t master = 0;
    for (size_t i = 0; i < t->ranks->n_parts; i++) {
        const gsi_part p = t->ranks->parts[i];
        const gs_weight *w = &gs_store_weights(t->store, NULL)[p.weight];
        const size_t size = gsi_size_of(w->dtype);
        void *const data = (char *)w->data + p.first * size;
        snprintf(s->names[i], sizeof s->names[i], "%.56s[%zu]", w->name, p.first);
        s->stepped[i] = (gs_weight){.name = s->names[i],
                                    .rows = 1,
                                    .cols = p.count,
                                    .data = data,
                                    .dtype = w->dtype,
                                    .grad = (float *)w->grad + p.first,
                                    .grad_dtype = GS_F32,
                                    .flags = w->flags};
        if (w->copy) { /* O1 */
            s->stepped[i].copy = (uint16_t *)w->copy + p.first;
            s->stepped[i].copy_dtype = w->copy_dtype;
        }
        if (!s->apart)
            continue;
        s->stepped[i].copy = data;
        s->stepped[i].copy_dtype = w->dtype;
        s->stepped[i].dtype = GS_F32;
        s->stepped[i].data = is_vector(t, p.weight) ? s->vectors + s->vector_at[p.weight] + p.first
                                                    : s->masters + master;
        master += is_vector(t, p.weight) ? 0 : p.count;
    }
}

gs_status gsi_shard_create(gs_trainer *t, const gs_trainer_config *config)
{
    gsi_shard *s = &t->ranks->shard;
    const gs_status status = check(t->ctx, &config->optim);
    if (status != GS_OK)
        return status;
    s->apart = config->tape.mode == GS_O2;
    s->stepped = gsi_new(&t->ctx->heap, t->ranks->n_parts * sizeof *s->stepped);
    s->names = gsi_new(&t->ctx->heap, t->ranks->n_parts * sizeof *s->names);
    if (!s->stepped || !s->names || (s->apart && (!new_masters(t) || !new_packed(t))))
        return GS_ENOMEM;
    if (s->apart)
        fill_weights(t);
    fill_stepped(t);
    return GS_OK;
}

void gsi_shard_free(gs_trainer *t)
{
    gsi_shard *s = &t->ranks->shard;
    void *const all[] = {s->weights, s->stepped,   s->names,  s->masters,
                         s->vectors, s->vector_at, s->packed, s->list};
    for (size_t i = 0; i < GSI_COUNT(all); i++)
        gsi_free(&t->ctx->heap, all[i]);
}

void gsi_shard_init(gs_trainer *t)
{
    gsi_shard *s = &t->ranks->shard;
    if (!s->apart)
        return;
    for (size_t i = 0; i < t->ranks->n_parts; i++) {
        const gsi_part p = t->ranks->parts[i];
        gsi_init_fill(s->stepped[i].data, p.count, t->model->inits[p.weight], t->seed, p.weight,
                      p.first);
    }
    for (size_t w = 0; w < t->model->n; w++)
        if (is_vector(t, w))
            gsi_init_fill(s->vectors + s->vector_at[w], t->model->entries[w].cols,
                          t->model->inits[w], t->seed, w, 0);
}

/* ---- after a step ---- */

/* Between `vectors` and a rank's block of `packed`. */
static void move_vectors(gs_trainer *t, int rank, bool out)
{
    gsi_shard *s = &t->ranks->shard;
    const gsi_part *parts = s->list;
    const size_t n = gsi_rank_parts(t, rank, s->list);
    float *packed = s->packed + (size_t)rank * s->pack;
    for (size_t i = 0; i < n; i++) {
        if (!is_vector(t, parts[i].weight))
            continue;
        float *vector = s->vectors + s->vector_at[parts[i].weight] + parts[i].first;
        memcpy(out ? packed : vector, out ? vector : packed, parts[i].count * sizeof *packed);
        packed += parts[i].count;
    }
}

static gs_status gather_vectors(gs_trainer *t)
{
    gsi_shard *s = &t->ranks->shard;
    move_vectors(t, t->comm.rank, true);
    const gs_status status =
        gs_comm_allgather(&t->comm, s->packed, s->pack * sizeof *s->packed, &t->ctx->error);
    if (status != GS_OK)
        return status;
    for (int r = 0; r < t->comm.size; r++)
        move_vectors(t, r, false);
    return GS_OK;
}

gs_status gsi_shard_allgather(gs_trainer *t)
{
    const gs_tensor data = gs_store_data(t->store), copies = gs_store_copies(t->store);
    gs_status status = gs_reducer_allgather(t->ranks->reducer, data.data, gsi_size_of(data.dtype));
    if (status == GS_OK && copies.count > 0)
        status = gs_tensors_convert(t->ctx, &copies, &data, 1, NULL);
    if (status == GS_OK && t->ranks->shard.apart)
        status = gather_vectors(t);
    return status;
}

gs_status gsi_shard_sync(gs_trainer *t)
{
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && t->ranks->shard.apart && i < t->ranks->n_parts; i++) {
        const gs_weight *w = &t->ranks->shard.stepped[i];
        const gs_tensor from = {w->data, w->cols, GS_F32, w->name, 0};
        const gs_tensor to = {w->copy, w->cols, w->copy_dtype, w->name, 0};
        status = gs_tensors_convert(t->ctx, &to, &from, 1, NULL);
    }
    return status == GS_OK ? gsi_shard_allgather(t) : status;
}

gs_dtype gsi_trained_type(const gs_trainer *t)
{
    return t->ranks->shard.apart ? GS_F32 : gs_store_data(t->store).dtype;
}
