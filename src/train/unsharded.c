/* The unsharded form of a sharded state, for checkpoints: families (f32 weights, then each slot of
 * the optimizer) one after another in a block, each flat as the store is. So files know nothing of
 * ranks and shards. */
#include "train/ranks.h"

#include <string.h>

/* Part i of a family, as this rank has it. */
static void *part_of(const gs_trainer *t, int family, size_t i)
{
    return family > 0 ? gs_optim_slot(t->optim, i, (gs_slot)(family - 1)).data
                      : t->ranks->shard.stepped[i].data;
}

/* The same on every rank, whether it has parts or not. */
gsi_unsharded gsi_unsharded_of(const gs_trainer *t)
{
    const gs_optim_config *c = gs_optim_get_config(t->optim);
    const gs_dtype trained = gsi_trained_type(t);
    const size_t total = gs_store_grads(t->store).count;
    const bool kahan = c->rounding == GS_ROUND_KAHAN && trained != GS_F32;
    gsi_unsharded u = {.sharded = t->ranks->zero,
                       .there = {[0] = t->ranks->shard.apart,
                                 [1 + GS_SLOT_M] = c->kind != GS_SGD || c->momentum != 0,
                                 [1 + GS_SLOT_V] = c->kind != GS_SGD,
                                 [1 + GS_SLOT_REST] = kahan,
                                 [1 + GS_SLOT_EMA] = c->ema > 0},
                       .types = {[1 + GS_SLOT_REST] = trained}}; /* the others are f32 */
    for (int f = 0; f < GSI_FAMILIES; f++) {
        u.there[f] &= u.sharded;
        u.at[f + 1] = u.at[f] + (u.there[f] ? total * gsi_size_of(u.types[f]) : 0);
    }
    return u;
}

size_t gsi_unsharded_offset(const gs_trainer *t, const gsi_unsharded *u, int family, size_t weight)
{
    return u->at[family] + t->ranks->starts[weight] * gsi_size_of(u->types[family]);
}

gs_status gsi_unsharded_allgather(gs_trainer *t, const gsi_unsharded *u, char *block)
{
    const gsi_ranks *ranks = t->ranks;
    gs_status status = GS_OK;
    for (int f = 0; status == GS_OK && f < GSI_FAMILIES; f++) {
        const size_t size = gsi_size_of(u->types[f]);
        /* Gradients are of no use between steps: the others' parts can pass through there. */
        char *flat = block ? block + u->at[f] : gs_store_grads(t->store).data;
        for (size_t i = 0; u->there[f] && i < ranks->n_parts; i++) {
            const gsi_part p = ranks->parts[i];
            memcpy(flat + (ranks->starts[p.weight] + p.first) * size, part_of(t, f, i),
                   p.count * size);
        }
        if (u->there[f])
            status = gs_reducer_allgather(ranks->reducer, flat, size);
    }
    return status;
}

void gsi_unsharded_take(gs_trainer *t, const gsi_unsharded *u, int family, size_t weight,
                        const void *array)
{
    const gsi_ranks *ranks = t->ranks;
    const size_t size = gsi_size_of(u->types[family]);
    for (size_t i = 0; i < ranks->n_parts; i++) {
        const gsi_part p = ranks->parts[i];
        if (p.weight == weight)
            memcpy(part_of(t, family, i), (const char *)array + p.first * size, p.count * size);
    }
}
