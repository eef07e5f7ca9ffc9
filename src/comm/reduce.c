/* Sums of an array over ranks, bucket by bucket.
 *
 * (1) Buckets start in one order on every rank: from the last to the first. A bucket that is ready
 *     waits for those before it.
 * (2) At most LANES are under way; bucket number k of that order has lane k % LANES, so that memory
 *     is bounded and allgathers start in order too.
 * (3) Sums are ((rank 0 + rank 1) + ...) in f32, each rank's values rounded to the wire's type
 *     before, the sum after.
 *
 *     READY --alltoall--> SCATTERING --sum--> SUMMED --allgather--> GATHERING --widen--> FREE
 *                                               +---- sharded ------------------------> FREE   */
#include "comm/comm.h"

#include <string.h>

enum { LANES = 4, ALIGN = 32, BUCKET = 1 << 20, PIECE = 1 << 14 };

typedef enum phase { FREE, SCATTERING, GATHERING } phase;

typedef struct lane {
    phase phase;
    int request;
    size_t bucket;
    void *from, *to; /* [bucket] of the wire's type; f32 is sent from where it lies: no `from` */
} lane;

struct gs_reducer {
    gs_context *ctx;
    const gs_comm *comm;
    float *data;
    size_t count, buckets;
    gs_reducer_config config;
    size_t *left; /* [buckets]: elements that are not ready */
    lane lanes[LANES];
    size_t oldest, summed, started; /* numbers in the order of (1): oldest <= summed <= started */
    uint64_t sent;
    gs_status status;
    gs_error error; /* of the first failure */
    size_t bytes;   /* of the lanes */
};

static size_t wire_size(const gs_reducer *r) { return gsi_size_of(r->config.wire); }

/* ---- buckets and pieces ---- */

static gs_piece bucket_at(const gs_reducer *r, size_t bucket)
{
    const size_t first = bucket * r->config.bucket, left = r->count - first;
    return (gs_piece){first, left < r->config.bucket ? left : r->config.bucket};
}

/* Elements of a piece: every rank's but the last ones'. */
static size_t piece_length(const gs_reducer *r, gs_piece bucket)
{
    const size_t ranks = (size_t)r->comm->size, length = (bucket.count + ranks - 1) / ranks;
    return (length + ALIGN - 1) / ALIGN * ALIGN;
}

size_t gs_reducer_buckets(const gs_reducer *r) { return r->buckets; }

gs_piece gs_reducer_piece(const gs_reducer *r, size_t bucket, int rank)
{
    const gs_piece all = bucket_at(r, bucket);
    const size_t length = piece_length(r, all), at = length * (size_t)rank;
    const size_t first = at < all.count ? at : all.count, left = all.count - first;
    return (gs_piece){all.first + first, left < length ? left : length};
}

/* ---- life ---- */

gs_status gs_reducer_create(gs_reducer **out, gs_context *ctx, const gs_comm *comm, float *data,
                            size_t count, const gs_reducer_config *config)
{
    if (!out || !ctx || !comm || !config || (count > 0 && !data))
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_reducer_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_reducer_config", &ctx->error);
    if (status != GS_OK)
        return status;
    config = &today;
    if (config->wire != GS_F32 && config->wire != GS_F16 && config->wire != GS_BF16)
        return gsi_fail(&ctx->error, GS_EDTYPE, "gradients are sent as f32, f16 or bf16");
    gs_reducer *r = gsi_new(&ctx->heap, sizeof *r);
    if (!r)
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for a reducer");
    *r = (gs_reducer){.ctx = ctx, .comm = comm, .data = data, .count = count, .config = *config};
    /* pieces long enough that their bytes take longer than their messages */
    const size_t least = (size_t)comm->size * PIECE, own = least > BUCKET ? least : BUCKET;
    const size_t bucket = config->bucket ? config->bucket : own;
    r->config.bucket = bucket < ALIGN ? ALIGN : bucket - bucket % ALIGN;
    r->buckets = count / r->config.bucket + (count % r->config.bucket > 0);
    const size_t room = count < r->config.bucket ? count : r->config.bucket;
    const size_t padded = piece_length(r, (gs_piece){0, room}) * (size_t)comm->size;
    bool fits = (r->left = gsi_new(&ctx->heap, r->buckets * sizeof *r->left)) != NULL;
    const size_t from = config->wire == GS_F32 ? 0 : room * wire_size(r);
    for (size_t i = 0; i < LANES && i < r->buckets; i++) {
        if (from > 0)
            fits &= (r->lanes[i].from = gsi_new(&ctx->heap, from)) != NULL;
        fits &= (r->lanes[i].to = gsi_new(&ctx->heap, padded * wire_size(r))) != NULL;
        r->bytes += from + padded * wire_size(r);
    }
    if (!fits) {
        gs_reducer_free(r);
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for buckets of %zu gradients", room);
    }
    gs_reducer_begin(r);
    r->started = r->summed = r->oldest = r->buckets; /* nothing is under way */
    *out = r;
    return GS_OK;
}

void gs_reducer_free(gs_reducer *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < LANES; i++) {
        gsi_free(&r->ctx->heap, r->lanes[i].from);
        gsi_free(&r->ctx->heap, r->lanes[i].to);
    }
    gsi_free(&r->ctx->heap, r->left);
    gsi_free(&r->ctx->heap, r);
}

size_t gs_reducer_bytes(const gs_reducer *r) { return r->bytes; }
uint64_t gs_reducer_sent(const gs_reducer *r) { return r->sent; }

/* ---- one bucket ---- */

/* Keeps the first failure, and what was said of it. */
static bool failed(gs_reducer *r, gs_status status, const gs_error *said)
{
    if (status != GS_OK && r->status == GS_OK)
        r->status = gsi_comm_status(r->comm, status, said, &r->error);
    return r->status != GS_OK;
}

static gs_tensor as_tensor(void *data, size_t count, gs_dtype type)
{
    return (gs_tensor){data, count, type, "gradients", 0};
}

/* Between the array and the halves that are sent for it. */
static bool round_to(gs_reducer *r, void *wire, gs_piece at)
{
    const gs_tensor from = as_tensor(r->data + at.first, at.count, GS_F32);
    const gs_tensor to = as_tensor(wire, at.count, r->config.wire);
    return !failed(r, gs_tensors_convert(r->ctx, &to, &from, 1, NULL), &r->ctx->error);
}

static bool widen_from(gs_reducer *r, void *wire, gs_piece at)
{
    const gs_tensor from = as_tensor(wire, at.count, r->config.wire);
    const gs_tensor to = as_tensor(r->data + at.first, at.count, GS_F32);
    return !failed(r, gs_tensors_convert(r->ctx, &to, &from, 1, NULL), &r->ctx->error);
}

static void start(gs_reducer *r, size_t bucket, lane *l)
{
    const gs_comm *c = r->comm;
    const gs_piece all = bucket_at(r, bucket), mine = gs_reducer_piece(r, bucket, c->rank);
    const size_t size = wire_size(r);
    const void *from = r->data + all.first;
    l->bucket = bucket;
    if (r->config.wire != GS_F32) {
        from = l->from;
        if (!round_to(r, l->from, all))
            return;
    }
    gs_error said = {0};
    const gs_status status = c->alltoall(c->user, l->to, from, all.count * size,
                                         piece_length(r, all) * size, &l->request, &said);
    if (!failed(r, status, &said))
        l->phase = SCATTERING;
    r->sent += (all.count - mine.count) * size;
}

static void sum(gs_reducer *r, lane *l)
{
    const gs_comm *c = r->comm;
    const gs_piece mine = gs_reducer_piece(r, l->bucket, c->rank);
    const gs_tensor to = as_tensor(r->data + mine.first, mine.count, GS_F32);
    bool fine = widen_from(r, l->to, mine);
    for (int rank = 1; fine && rank < c->size; rank++) {
        void *block = (char *)l->to + (size_t)rank * mine.count * wire_size(r);
        const gs_tensor from = as_tensor(block, mine.count, r->config.wire);
        fine = !failed(r, gs_tensors_axpy(r->ctx, &to, &from, 1, 1, NULL), &r->ctx->error);
    }
    if (fine && r->config.wire != GS_F32 && round_to(r, l->to, mine))
        widen_from(r, l->to, mine);
}

static void allgather(gs_reducer *r, lane *l)
{
    const gs_comm *c = r->comm;
    const gs_piece all = bucket_at(r, l->bucket), mine = gs_reducer_piece(r, l->bucket, c->rank);
    const size_t size = wire_size(r);
    void *data = r->data + all.first;
    if (r->config.wire != GS_F32) {
        data = l->from;
        if (!round_to(r, (char *)data + (mine.first - all.first) * size, mine))
            return;
    }
    l->phase = GATHERING;
    gs_error said = {0};
    const gs_status status = c->allgather(c->user, data, all.count * size,
                                          piece_length(r, all) * size, &l->request, &said);
    if (failed(r, status, &said))
        l->phase = FREE;
    r->sent += mine.count * size * (size_t)(c->size - 1);
}

/* ---- all of them ---- */

/* Number k of the order of (1). */
static lane *lane_of(gs_reducer *r, size_t k) { return &r->lanes[k % LANES]; }

void gs_reducer_begin(gs_reducer *r)
{
    for (size_t b = 0; b < r->buckets; b++)
        r->left[b] = bucket_at(r, b).count;
    r->oldest = r->summed = r->started = 0;
    r->status = GS_OK;
}

/* Whether the lane's request has ended. */
static bool ended(gs_reducer *r, lane *l, bool wait)
{
    int is = 0;
    gs_error said = {0};
    if (failed(r, r->comm->done(r->comm->user, l->request, wait, &is, &said), &said))
        l->phase = FREE;
    return is != 0;
}

/* What can be done, in order; with `wait`, something is. */
static void advance(gs_reducer *r, bool wait)
{
    while (r->status == GS_OK && r->summed < r->started) {
        lane *l = lane_of(r, r->summed);
        if (!ended(r, l, wait && r->oldest == r->summed))
            break;
        l->phase = FREE;
        sum(r, l);
        if (!r->config.sharded && r->status == GS_OK)
            allgather(r, l);
        r->summed++;
        wait = false;
    }
    for (; r->status == GS_OK && r->oldest < r->summed; r->oldest++) {
        lane *l = lane_of(r, r->oldest);
        if (l->phase != GATHERING)
            continue;
        if (!ended(r, l, wait))
            break;
        l->phase = FREE;
        wait = false;
        if (r->config.wire != GS_F32)
            widen_from(r, l->from, bucket_at(r, l->bucket));
    }
    while (r->status == GS_OK && r->started < r->buckets && r->started < r->oldest + LANES) {
        const size_t bucket = r->buckets - 1 - r->started;
        if (r->left[bucket] > 0)
            break;
        start(r, bucket, lane_of(r, r->started));
        r->started++;
    }
}

void gs_reducer_poll(gs_reducer *r) { advance(r, false); }

void gs_reducer_ready(gs_reducer *r, size_t first, size_t count)
{
    while (count > 0) {
        const size_t bucket = first / r->config.bucket;
        const size_t end = (bucket + 1) * r->config.bucket;
        const size_t n = end - first < count ? end - first : count;
        r->left[bucket] -= n < r->left[bucket] ? n : r->left[bucket];
        first += n;
        count -= n;
    }
    advance(r, false);
}

/* A failure leaves nothing under way: memory that a transport still writes to is not to be freed.
 */
static gs_status drain(gs_reducer *r)
{
    for (size_t i = 0; r->status != GS_OK && i < LANES; i++)
        if (r->lanes[i].phase != FREE) {
            gsi_comm_wait(r->comm, r->lanes[i].request, NULL);
            r->lanes[i].phase = FREE;
        }
    if (r->status != GS_OK)
        r->ctx->error = r->error;
    return r->status;
}

gs_status gs_reducer_sums(gs_reducer *r)
{
    memset(r->left, 0, r->buckets * sizeof *r->left);
    advance(r, false);
    while (r->status == GS_OK && r->summed < r->buckets)
        advance(r, true);
    return drain(r);
}

gs_status gs_reducer_end(gs_reducer *r)
{
    gs_status status = gs_reducer_sums(r);
    while (status == GS_OK && r->status == GS_OK && r->oldest < r->buckets)
        advance(r, true);
    return status == GS_OK ? drain(r) : status;
}

gs_status gs_reducer_allgather(gs_reducer *r, void *data, size_t size)
{
    const gs_comm *c = r->comm;
    int requests[LANES];
    gs_status status = GS_OK;
    for (size_t b = 0; b < r->buckets + LANES; b++) {
        if (b >= LANES && status == GS_OK)
            status = gsi_comm_wait(c, requests[b % LANES], &r->ctx->error);
        if (b >= r->buckets || status != GS_OK)
            continue;
        const gs_piece all = bucket_at(r, b), mine = gs_reducer_piece(r, b, c->rank);
        gs_error said = {0};
        status = c->allgather(c->user, (char *)data + all.first * size, all.count * size,
                              piece_length(r, all) * size, &requests[b % LANES], &said);
        gsi_comm_status(c, status, &said, &r->ctx->error);
        r->sent += mine.count * size * (size_t)(c->size - 1);
    }
    return status;
}
