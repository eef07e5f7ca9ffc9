/* The whole of a sharded state, for checkpoints: families (f32 weights, then each slot of the
 * optimizer) one after another in a block, each flat as the store is. Files so know nothing of
 * ranks and shards. */
#include "train/team.h"

#include <string.h>

/* Part i of a family, as this rank has it. */
static void *part_of(const gs_trainer *t, int family, size_t i)
{
    return family > 0 ? gs_optim_slot(t->optim, i, (gs_slot)(family - 1)).data
                      : t->team->shard.stepped[i].data;
}

/* The same on every rank, whether it has parts or not. */
gsi_whole gsi_whole_of(const gs_trainer *t)
{
    const gs_optim_config *c = gs_optim_config_of(t->optim);
    const gs_dtype trained = gsi_trained_type(t);
    const size_t total = gs_store_grads(t->store).count;
    const bool kahan = c->rounding == GS_ROUND_KAHAN && trained != GS_F32;
    gsi_whole w = {.sharded = t->team->zero,
                   .there = {[0] = t->team->shard.apart,
                             [1 + GS_SLOT_M] = c->kind != GS_SGD || c->momentum != 0,
                             [1 + GS_SLOT_V] = c->kind != GS_SGD,
                             [1 + GS_SLOT_REST] = kahan,
                             [1 + GS_SLOT_EMA] = c->ema > 0},
                   .types = {[1 + GS_SLOT_REST] = trained}}; /* the others are f32 */
    for (int f = 0; f < GSI_FAMILIES; f++) {
        w.there[f] &= w.sharded;
        w.at[f + 1] = w.at[f] + (w.there[f] ? total * gsi_size_of(w.types[f]) : 0);
    }
    return w;
}

gs_status gsi_whole_gather(gs_trainer *t, const gsi_whole *w, char *base)
{
    const gsi_team *team = t->team;
    gs_status status = GS_OK;
    for (int f = 0; status == GS_OK && f < GSI_FAMILIES; f++) {
        const size_t size = gsi_size_of(w->types[f]);
        /* Gradients are of no use between steps: there the others' parts can pass. */
        char *flat = base ? base + w->at[f] : gs_store_grads(t->store).data;
        for (size_t i = 0; w->there[f] && i < team->n_parts; i++) {
            const gsi_part p = team->parts[i];
            memcpy(flat + (team->starts[p.weight] + p.first) * size, part_of(t, f, i),
                   p.count * size);
        }
        if (w->there[f])
            status = gs_reducer_gather(team->reducer, flat, size);
    }
    return status;
}

void gsi_whole_take(gs_trainer *t, const gsi_whole *w, size_t at, const void *bytes)
{
    const gsi_team *team = t->team;
    int f = 0;
    while (at >= w->at[f + 1])
        f++;
    const size_t size = gsi_size_of(w->types[f]), first = (at - w->at[f]) / size;
    for (size_t i = 0; i < team->n_parts; i++) {
        const gsi_part p = team->parts[i];
        if (team->starts[p.weight] == first)
            memcpy(part_of(t, f, i), (const char *)bytes + p.first * size, p.count * size);
    }
}
