/* What ranks do together in a step.
 *
 * (1) Every rank makes the same calls of the network in the same order, whatever goes wrong on it:
 *     told, the buckets from the last to the first, what was seen, shared weights.
 *     So a step takes no memory of its own but the scratch of passes.
 * (2) A bucket's sums are the work of the ranks in equal pieces: each scans its own. So a step
 *     reads the same numbers in the same order with ZeRO-1 and without.
 * (3) What leads to the verdict is gathered and folded in rank order on every rank. */
#include "train/team.h"

#include "engine/engine.h"

#include <stdio.h>
#include <string.h>

/* ---- life ---- */

/* The parts of a piece, appended to out[n]. */
static size_t parts_in(const gs_trainer *t, gs_piece piece, gsi_part *out, size_t n)
{
    const size_t *starts = t->team->starts, end = piece.first + piece.count;
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

size_t gsi_parts_of(const gs_trainer *t, int rank, gsi_part *out)
{
    const gs_reducer *r = t->team->reducer;
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
    gsi_team *team = t->team;
    gsi_heap *heap = &t->ctx->heap;
    const size_t n = t->model->n;
    const gs_tensor grads = gs_store_grads(t->store);
    const gs_weight *weights = gs_store_weights(t->store, NULL);
    const gs_reducer_config how = {team->how.bucket, team->how.wire, team->zero};
    team->starts = gsi_new(heap, (n + 1) * sizeof *team->starts);
    team->told = gsi_new(heap, (size_t)t->comm.size * sizeof *team->told);
    const size_t ranks = (size_t)t->comm.size, states = ranks > 1 ? t->model->states : 0;
    size_t bytes;
    if (!gsi_mul_size(&bytes, states, ranks * sizeof *team->states))
        return GS_ENOMEM;
    team->states = gsi_new(heap, bytes);
    team->counted = gsi_new(heap, (size_t)t->comm.size * sizeof *team->counted);
    if (!team->starts || !team->told || !team->states || !team->counted)
        return GS_ENOMEM;
    for (size_t w = 0; w < n; w++)
        team->starts[w] = (size_t)((float *)weights[w].grad - (float *)grads.data);
    team->starts[n] = grads.count;
    if (t->comm.size > 1) {
        const gs_status status =
            gs_reducer_create(&team->reducer, t->ctx, &t->comm, grads.data, grads.count, &how);
        if (status != GS_OK)
            return status;
    }
    team->n_parts = gsi_parts_of(t, t->comm.rank, NULL);
    team->parts = gsi_new(heap, team->n_parts * sizeof *team->parts);
    team->own = gsi_new(heap, team->n_parts * sizeof *team->own);
    if (!team->parts || !team->own)
        return GS_ENOMEM;
    gsi_parts_of(t, t->comm.rank, team->parts);
    for (size_t i = 0; i < team->n_parts; i++) {
        const gsi_part p = team->parts[i];
        const gs_weight *w = &weights[p.weight];
        team->own[i] = (gs_tensor){(float *)w->grad + p.first, p.count, GS_F32, w->name, 0};
    }
    return team->zero ? gsi_shard_create(t, config) : GS_OK;
}

gs_status gsi_team_create(gs_trainer *t, const gs_trainer_config *config)
{
    t->team = gsi_new(&t->ctx->heap, sizeof *t->team);
    if (t->team) {
        *t->team = (gsi_team){.how = config->ranks, .zero = config->ranks.zero && t->comm.size > 1};
        if (t->team->how.compare == 0)
            t->team->how.compare = 100;
    }
    const gs_status status = t->team ? create(t, config) : GS_ENOMEM;
    if (status == GS_ENOMEM)
        gsi_fail(&t->ctx->error, status, "no memory to train with %d ranks", t->comm.size);
    return status;
}

void gsi_team_free(gs_trainer *t)
{
    gsi_team *team = t->team;
    gsi_heap *heap = &t->ctx->heap;
    if (!team)
        return;
    gsi_shard_free(t);
    gs_reducer_free(team->reducer);
    gsi_free(heap, team->starts);
    gsi_free(heap, team->told);
    gsi_free(heap, team->states);
    gsi_free(heap, team->counted);
    gsi_free(heap, team->parts);
    gsi_free(heap, team->own);
    gsi_free(heap, team);
    t->team = NULL;
}

const gs_weight *gsi_team_weights(const gs_trainer *t)
{
    return t->team->shard.apart ? t->team->shard.weights : gs_store_weights(t->store, NULL);
}

const gs_weight *gsi_team_stepped(const gs_trainer *t, size_t *n)
{
    *n = t->team->zero ? t->team->n_parts : t->model->n;
    return t->team->zero ? t->team->shard.stepped : gs_store_weights(t->store, NULL);
}

uint64_t gsi_team_sent(const gs_trainer *t)
{
    return t->team->reducer ? gs_reducer_sent(t->team->reducer) : 0;
}

static uint64_t bytes_of(gs_tensor x) { return x.count * gsi_size_of(x.dtype); }

gs_held gs_trainer_held(const gs_trainer *t)
{
    const gsi_shard *s = &t->team->shard;
    size_t n;
    const gs_weight *stepped = gsi_team_stepped(t, &n);
    gs_held held = {.weights =
                        bytes_of(gs_store_data(t->store)) + bytes_of(gs_store_copies(t->store)),
                    .gradients = bytes_of(gs_store_grads(t->store))};
    if (t->team->reducer)
        held.gradients += gs_reducer_bytes(t->team->reducer);
    for (size_t i = 0; i < n; i++) {
        held.weights += s->apart ? stepped[i].cols * sizeof(float) : 0;
        for (int k = 0; k < GS_SLOT_COUNT; k++)
            held.optimizer += bytes_of(gs_optim_slot(t->optim, i, (gs_slot)k));
    }
    return held;
}

/* ---- items ---- */

gs_status gsi_items_tell(gs_trainer *t, const gs_batch *micro, size_t n)
{
    gsi_team *team = t->team;
    const gs_comm *c = &t->comm;
    uint64_t mine = 0;
    for (size_t i = 0; i < n; i++)
        mine += micro[i].n;
    team->told[c->rank] = mine;
    const size_t size = sizeof *team->told;
    const gs_status status =
        c->gather(c->user, team->told, (size_t)c->size * size, size, &team->request);
    team->asked = status == GS_OK;
    return status == GS_OK ? GS_OK : gsi_comm_fail(c, t->ctx, status);
}

static gs_status hear_items(gs_trainer *t)
{
    if (!t->team->asked)
        return GS_OK;
    t->team->asked = false;
    const gs_status status = gsi_comm_wait(&t->comm, t->team->request);
    return status == GS_OK ? GS_OK : gsi_comm_fail(&t->comm, t->ctx, status);
}

gs_status gsi_items_of_all(gs_trainer *t, double *items)
{
    const gs_status status = hear_items(t);
    uint64_t sum = 0;
    for (int r = 0; status == GS_OK && r < t->comm.size; r++)
        sum += t->team->told[r];
    *items = (double)sum;
    if (status == GS_OK && sum == 0)
        return gsi_fail(&t->ctx->error, GS_ESIZE, "the batch is empty on all ranks");
    return status;
}

/* ---- gradients ---- */

void gsi_grads_begin(gs_trainer *t)
{
    gsi_tape_fresh(t->tape, gsi_team_weights(t),
                   t->model->n); /* has memory since the trainer has */
    if (t->team->reducer)
        gs_reducer_begin(t->team->reducer);
}

static void passed(void *user, const gs_weight *weight)
{
    const gs_trainer *t = user;
    gsi_team *team = t->team;
    if (!weight) {
        gs_reducer_poll(team->reducer);
        return;
    }
    for (size_t w = 0; w < t->model->n; w++) /* by its gradient: a model may have a copy of it */
        if (gsi_team_weights(t)[w].grad == weight->grad) {
            gsi_tape_settle(t->tape, weight);
            gs_reducer_ready(team->reducer, team->starts[w], team->starts[w + 1] - team->starts[w]);
        }
}

void gsi_grads_watch(gs_trainer *t, bool last)
{
    gsi_tape_watch(t->tape, last && t->team->reducer ? passed : NULL, t);
}

gs_status gsi_grads_sum(gs_trainer *t)
{
    const gs_status status = hear_items(t); /* where an error came first */
    gsi_tape_settle(t->tape, NULL);
    return status == GS_OK && t->team->reducer ? gs_reducer_sums(t->team->reducer) : status;
}

gs_status gsi_grads_end(gs_trainer *t)
{
    return t->team->reducer ? gs_reducer_end(t->team->reducer) : GS_OK;
}

gs_status gsi_grads_scan(gs_trainer *t, gs_stats *stats)
{
    const gsi_team *team = t->team;
    const gs_status status = gs_tensors_scan(t->ctx, team->own, team->n_parts, stats);
    if (status == GS_OK && stats->bad_tensor != GS_NONE) {
        const gsi_part p = team->parts[stats->bad_tensor];
        stats->bad_tensor = p.weight;
        stats->bad_index += p.first;
    }
    return status;
}

gs_status gsi_grads_exponents(gs_trainer *t, gs_step *step)
{
    if (t->scaler.policy != GS_POLICY_HISTOGRAM)
        return GS_OK;
    gs_exponents *all = t->team->counted, *mine = &all[t->comm.rank], sum;
    memset(&sum, 0, sizeof sum);
    memset(mine, 0, sizeof *mine);
    gs_status status = gs_tensors_exponents(t->ctx, t->team->own, t->team->n_parts, mine, NULL);
    status = gsi_team_agree(t, status, &t->ctx->error);
    if (status == GS_OK && t->comm.size > 1) {
        status = gs_comm_gather(&t->comm, all, sizeof *all);
        if (status != GS_OK)
            gsi_comm_fail(&t->comm, t->ctx, status);
    }
    for (int r = 0; status == GS_OK && r < t->comm.size; r++)
        gs_exponents_merge(&sum, &all[r]);
    if (status == GS_OK)
        gs_step_exponents(step, &t->scaler, &sum);
    return status;
}

/* ---- agreeing ---- */

/* Everyone gets the first error of any rank, with its sentence; a rank with one keeps its own. */
static gs_status tell_error(gs_trainer *t, gs_status mine, gs_error *error, const char *what)
{
    gs_error *all = t->meet;
    memset(&all[t->comm.rank], 0, sizeof *all);
    if (mine != GS_OK)
        all[t->comm.rank] = *error;
    all[t->comm.rank].status = mine;
    const gs_status status = gs_comm_gather(&t->comm, all, sizeof *all);
    if (status != GS_OK)
        return gsi_comm_fail(&t->comm, t->ctx, status);
    int whose = 0;
    while (whose < t->comm.size && all[whose].status == GS_OK)
        whose++;
    if (whose == t->comm.size || mine != GS_OK)
        return mine;
    all[whose].text[sizeof all->text - 1] = 0;
    return gsi_fail(error, all[whose].status, "rank %d could not %s: %.180s", whose, what,
                    all[whose].text);
}

gs_status gsi_team_agree(gs_trainer *t, gs_status mine, gs_error *error)
{
    gs_error unread = {0};
    return t->comm.size == 1 ? mine : tell_error(t, mine, error ? error : &unread, "go on");
}

gs_status gsi_agree(gs_trainer *t, gsi_seen *seen)
{
    if (t->comm.size == 1)
        return seen->status;
    const gs_status mine = seen->status;
    gsi_seen *all = t->meet;
    all[t->comm.rank] = *seen;
    gs_status status = gs_comm_gather(&t->comm, all, sizeof *all);
    if (status != GS_OK)
        gsi_comm_fail(&t->comm, t->ctx, status);
    bool bad = false;
    *seen = (gsi_seen){0};
    gs_stats_init(&seen->stored);
    gs_stats_init(&seen->grads);
    for (int r = 0; status == GS_OK && r < t->comm.size; r++) {
        bad |= all[r].status != GS_OK;
        seen->forward |= all[r].forward;
        seen->loss += all[r].loss;
        gs_stats_merge(&seen->stored, &all[r].stored);
        gs_stats_merge(&seen->grads, &all[r].grads);
    }
    if (status == GS_OK && bad)
        status = tell_error(t, mine, &t->ctx->error, "run the step");
    return status;
}

/* Running statistics become the mean over ranks, weighted by items. */
static gs_status mean_state(gs_trainer *t)
{
    const size_t n = t->model->states;
    double items, *all = t->team->states, *mine = all + (size_t)t->comm.rank * n;
    if (n == 0 || t->comm.size == 1)
        return GS_OK;
    gs_status status = gsi_items_of_all(t, &items);
    if (status != GS_OK)
        return status;
    for (size_t i = 0; i < n; i++)
        mine[i] = (double)t->model->state[i] * (double)t->team->told[t->comm.rank] / items;
    status = gs_comm_gather(&t->comm, all, n * sizeof *all);
    if (status != GS_OK)
        return gsi_comm_fail(&t->comm, t->ctx, status);
    for (size_t i = 0; i < n; i++) {
        double sum = all[i];
        for (int r = 1; r < t->comm.size; r++)
            sum += all[(size_t)r * n + i];
        t->model->state[i] = (float)sum;
    }
    return GS_OK;
}

gs_status gsi_team_share(gs_trainer *t)
{
    const gs_status status = t->team->zero ? gsi_shard_gather(t) : GS_OK;
    return status == GS_OK ? mean_state(t) : status;
}

/* ---- comparing ---- */

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

gs_status gsi_team_compare(gs_trainer *t)
{
    return t->steps % t->team->how.compare == 0 ? gsi_team_compare_now(t) : GS_OK;
}

gs_status gsi_team_compare_now(gs_trainer *t)
{
    const gsi_shard *shard = &t->team->shard;
    if (t->comm.size == 1)
        return GS_OK;
    uint64_t h = hash(t->steps, &t->scaler, sizeof t->scaler);
    h = hash_tensor(h, gs_store_data(t->store));
    h = hash_tensor(h, gs_store_copies(t->store));
    h = hash(h, t->model->state, t->model->states * sizeof(float));
    if (shard->apart)
        h = hash(h, shard->vectors, shard->vector_at[t->model->n] * sizeof(float));

    uint64_t *all = t->meet;
    all[t->comm.rank] = h;
    gs_status status = gs_comm_gather(&t->comm, all, sizeof *all);
    if (status != GS_OK)
        gsi_comm_fail(&t->comm, t->ctx, status);
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
