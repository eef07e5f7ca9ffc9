/* Whether all ranks hold the same: a fingerprint of each is gathered and compared. */
#include "train/ranks.h"

#include <stdio.h>
#include <string.h>

/* Four lanes that a processor runs side by side; no defence against anybody. */
static uint64_t hash(uint64_t seed, const void *data, size_t bytes)
{
    enum { HASH_LANES = 4 };
    const uint64_t prime = 0x9E3779B97F4A7C15u;
    uint64_t lanes[HASH_LANES] = {seed, seed + 1, seed + 2, seed + 3}, words[HASH_LANES];
    const char *p = data;
    for (size_t i = 0; i < bytes; i += sizeof words) {
        const size_t n = gsi_min_size(bytes - i, sizeof words);
        if (n < sizeof words)
            memset(words, 0, sizeof words);
        memcpy(words, p + i, n);
        for (int k = 0; k < HASH_LANES; k++) {
            lanes[k] = (lanes[k] ^ words[k]) * prime;
            lanes[k] ^= lanes[k] >> 29;
        }
    }
    uint64_t h = bytes;
    for (int k = 0; k < HASH_LANES; k++)
        h = (h ^ lanes[k]) * prime, h ^= h >> 32;
    return h;
}

static uint64_t hash_tensor(uint64_t seed, gs_tensor x)
{
    return hash(seed, x.data, x.count * gsi_size_of(x.dtype));
}

/* "ranks 1, 4 and 6 differ" */
static void name_ranks(char *text, size_t room, const uint64_t *all, int size)
{
    int others = 0, said = 0, used = 0;
    for (int r = 1; r < size; r++)
        others += all[r] != all[0];
    used = snprintf(text, room, others == 1 ? "rank" : "ranks");
    for (int r = 1; r < size && said < others; r++) {
        if (all[r] == all[0])
            continue;
        const char *between = said == 0 ? " " : said + 1 == others ? " and " : ", ";
        if (said == 12 && others > 13) {
            used += snprintf(text + used, room - (size_t)used, " and %d others", others - said);
            break;
        }
        used += snprintf(text + used, room - (size_t)used, "%s%d", between, r);
        said++;
    }
    snprintf(text + used, room - (size_t)used, others == 1 ? " differs" : " differ");
}

/* Of all that must be the same on every rank. */
static uint64_t fingerprint(const gs_trainer *t)
{
    const gsi_shard *shard = &t->ranks->shard;
    char scaler[GS_STATE_BINARY_MAX]; /* its saved form: the struct has padding */
    size_t used = 0;
    gs_scaler_save(scaler, sizeof scaler, &used, &t->scaler, NULL); /* has room for any */
    uint64_t h = hash(t->steps, scaler, used);
    h = hash_tensor(h, gs_store_data(t->store));
    h = hash_tensor(h, gs_store_copies(t->store));
    h = hash(h, t->model->state, t->model->states * sizeof(float));
    if (shard->apart)
        h = hash(h, shard->vectors, shard->vector_at[t->model->n] * sizeof(float));
    return h;
}

gs_status gsi_ranks_compare(gs_trainer *t, gs_train_row *row)
{
    const bool first = !t->ranks->compared;
    if (t->comm.size == 1 || (!first && t->steps % t->ranks->config.compare != 0))
        return GS_OK;
    t->ranks->compared = true;
    const gs_status status = gsi_ranks_compare_now(t);
    gsi_phase_end(t, row, GS_PHASE_COMM);
    return status;
}

gs_status gs_trainer_compare(gs_trainer *t) { return gsi_ranks_compare_now(t); }

gs_status gsi_ranks_compare_now(gs_trainer *t)
{
    if (t->comm.size == 1)
        return GS_OK;
    uint64_t *all = t->gather_buffer;
    all[t->comm.rank] = fingerprint(t);
    gs_status status = gs_comm_allgather(&t->comm, all, sizeof *all, &t->ctx->error);
    for (int r = 1; status == GS_OK && r < t->comm.size; r++)
        if (all[r] != all[0]) {
            char ranks[160];
            name_ranks(ranks, sizeof ranks, all, t->comm.size);
            status = gsi_fail(&t->ctx->error, GS_ERANK,
                              "after %llu steps %s from rank 0 in weights or scaler",
                              (unsigned long long)t->steps, ranks);
        }
    return status;
}
