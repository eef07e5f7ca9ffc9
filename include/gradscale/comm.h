/* comm.h: ranks that train together: a transport of four entries to fill in, and what is built on
 * it.
 *
 *     gs_comm comm;                       gradscale/mpi.h fills one in
 *     gs_trainer_config config = {...};
 *     config.comm = &comm;                and the trainer does the rest
 *
 * Every rank calls the same functions with the same sizes in the same order. A transport only moves
 * bytes. All arithmetic is here, in the order of the ranks: ((rank 0 + rank 1) + rank 2) + ... in
 * f32, whatever the network and its timing. So the same number of ranks gives the same bits, and
 * every rank gets them. Ranks must agree in byte order and in the layout of a struct.
 */
#ifndef GRADSCALE_COMM_H
#define GRADSCALE_COMM_H

#include "gradscale/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the transport ---- */

/* `bytes` are cut into blocks of `block`, one per rank; the last ones may be shorter or empty. Both
 * are the same on every rank. alltoall and allgather are non-blocking: they return at once, and the
 * arrays stay with the transport until `done` says so. Those of a kind are started in the same
 * order everywhere; the two kinds are not ordered among each other. An entry that fails may fill in
 * `error`, which is never NULL. */
typedef struct gs_comm {
    void *user;
    int rank, size; /* 0 <= rank < size */
    /* Block r of `from` goes to rank r. `to` gets this rank's block of every rank, in order. */
    gs_status (*alltoall)(void *user, void *to, const void *from, size_t bytes, size_t block,
                          int *request, gs_error *error);
    /* Block r of `data`, which is rank r's, goes to all. */
    gs_status (*allgather)(void *user, void *data, size_t bytes, size_t block, int *request,
                           gs_error *error);
    /* Whether it has ended; with `wait`, returns when it has. A request that has ended, or failed,
     * is forgotten. A rank that does not answer is a failure in the end, never a wait for ever. */
    gs_status (*done)(void *user, int request, int wait, int *ended, gs_error *error);
    /* Returns when it is done. */
    gs_status (*bcast)(void *user, void *data, size_t bytes, int root, gs_error *error);
} gs_comm;

/* A process alone: rank 0 of 1. */
GS_API gs_comm gs_comm_single(void);

/* ---- small things, at once ---- */

/* One struct per rank: all is [size], of which [rank] is this one's. */
GS_API gs_status gs_comm_allgather(const gs_comm *comm, void *all, size_t bytes, gs_error *error);
/* Of each number over the ranks, on every rank; ctx lends memory. */
GS_API gs_status gs_comm_sum(const gs_comm *comm, gs_context *ctx, double *x, size_t n);
GS_API gs_status gs_comm_max(const gs_comm *comm, gs_context *ctx, double *x, size_t n);

/* ---- sums of gradients, while others are still being computed ---- */

/* An all-reduce in f32, or with `sharded` a reduce-scatter. The array is cut into buckets, a bucket
 * into one piece per rank. An all-to-all brings each rank all copies of its own piece; it sums them
 * and, unless `sharded`, an allgather distributes the sums. Buckets go from the end of the array to
 * its start, as a backward pass finishes them.
 *
 * `wire` f16 or bf16 sends half the bytes: each rank's values are rounded, added in f32 in rank
 * order and the sum is rounded once: not an operation of the network's own, which would round every
 * time and in an order of its choice. What is too large becomes Inf, in a message or in a sum, and
 * is found by whoever scans: an overflow of the step. */
typedef struct gs_reducer gs_reducer;

typedef struct gs_reducer_config {
    size_t size;   /* sizeof(gs_reducer_config) */
    size_t bucket; /* elements; 0: 2^20, or 2^14 per rank where that is more */
    gs_dtype wire; /* GS_F32, GS_F16, GS_BF16 */
    int sharded;   /* each rank keeps the sums of its own pieces; the others are undefined */
} gs_reducer_config;

/* ctx, comm and the array must outlive it. */
GS_API gs_status gs_reducer_create(gs_reducer **out, gs_context *ctx, const gs_comm *comm,
                                   float *data, size_t count, const gs_reducer_config *config);
GS_API void gs_reducer_free(gs_reducer *reducer);

/* One reduction: begin; `ready` for elements that will not change any more, which starts what can
 * be started; `poll` now and then, for what is under way to move on. `sums` waits for the sums of
 * this rank's pieces, `end` for everything. Elements never marked are ready at `sums`. Failures
 * show there: until then a reducer that has failed does nothing. */
GS_API void gs_reducer_begin(gs_reducer *reducer);
GS_API void gs_reducer_ready(gs_reducer *reducer, size_t first, size_t count);
GS_API void gs_reducer_poll(gs_reducer *reducer);
GS_API gs_status gs_reducer_sums(gs_reducer *reducer);
GS_API gs_status gs_reducer_end(gs_reducer *reducer);

GS_API size_t gs_reducer_bytes(const gs_reducer *reducer); /* of its buffers */
/* Bytes that this rank has sent to others since it was made. */
GS_API uint64_t gs_reducer_sent(const gs_reducer *reducer);

/* How an array is cut, for whoever shares out work or memory the same way. */
typedef struct gs_piece {
    size_t first, count;
} gs_piece;
GS_API size_t gs_reducer_buckets(const gs_reducer *reducer);
GS_API gs_piece gs_reducer_piece(const gs_reducer *reducer, size_t bucket, int rank);
/* Allgather of an array of `count` elements of `size` bytes: each rank has its own pieces. */
GS_API gs_status gs_reducer_allgather(gs_reducer *reducer, void *data, size_t size);

#ifdef __cplusplus
}
#endif

#endif
