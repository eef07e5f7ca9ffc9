/* ranks.h: the ranks of a gs_comm as threads of one process.
 *
 *     static void body(const gs_comm *comm, void *arg) { ... }
 *     ranks_run(4, body, arg);
 *
 * A message is copied when it is sent, so that a rank never waits for one that is busy elsewhere.
 */
#ifndef RANKS_H
#define RANKS_H

#include "gradscale/comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 8, RANKS_CALLS = 1 << 14, RANKS_EXCHANGE = 0, RANKS_GATHER = 1 };

typedef struct ranks_call {
    int sent, taken;
    char *from[RANKS_MOST];
} ranks_call;

typedef struct ranks_net {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int size, broken; /* broken: nothing arrives any more */
    ranks_call calls[2][RANKS_CALLS];
} ranks_net;

typedef struct ranks_rank {
    ranks_net *net;
    gs_comm comm;
    int next[2];
    struct {
        void *to;
        size_t bytes, block;
    } asked[2][RANKS_CALLS];
    void (*body)(const gs_comm *comm, void *arg);
    void *arg;
    pthread_t thread;
} ranks_rank;

static size_t ranks_from(size_t bytes, size_t block, int r)
{
    return (size_t)r * block < bytes ? (size_t)r * block : bytes;
}

static gs_status ranks_send(ranks_rank *me, int kind, void *to, const void *from, size_t bytes,
                            size_t block, int *request)
{
    const int call = me->next[kind]++;
    ranks_call *c = &me->net->calls[kind][call];
    char *copy = malloc(bytes + 1);
    if (call >= RANKS_CALLS || !copy)
        abort();
    /* An allgather has only its own block to send. */
    const size_t first = kind == RANKS_GATHER ? ranks_from(bytes, block, me->comm.rank) : 0;
    const size_t last = kind == RANKS_GATHER ? ranks_from(bytes, block, me->comm.rank + 1) : bytes;
    if (last > first)
        memcpy(copy + first, (const char *)from + first, last - first);
    me->asked[kind][call].to = to;
    me->asked[kind][call].bytes = bytes;
    me->asked[kind][call].block = block;
    pthread_mutex_lock(&me->net->lock);
    c->from[me->comm.rank] = copy;
    c->sent++;
    pthread_cond_broadcast(&me->net->moved);
    pthread_mutex_unlock(&me->net->lock);
    *request = 2 * call + kind;
    return GS_OK;
}

static gs_status ranks_alltoall(void *user, void *to, const void *from, size_t bytes, size_t block,
                                int *request, gs_error *error)
{
    (void)error;
    return ranks_send(user, RANKS_EXCHANGE, to, from, bytes, block, request);
}

static gs_status ranks_allgather(void *user, void *data, size_t bytes, size_t block, int *request,
                                 gs_error *error)
{
    (void)error;
    return ranks_send(user, RANKS_GATHER, data, data, bytes, block, request);
}

static gs_status ranks_done(void *user, int request, int wait, int *ended, gs_error *error)
{
    ranks_rank *me = user;
    const int kind = request % 2, call = request / 2;
    ranks_call *c = &me->net->calls[kind][call];
    const size_t bytes = me->asked[kind][call].bytes, block = me->asked[kind][call].block;
    char *to = me->asked[kind][call].to;
    pthread_mutex_lock(&me->net->lock);
    while (wait && c->sent < me->net->size && !me->net->broken)
        pthread_cond_wait(&me->net->moved, &me->net->lock);
    *ended = c->sent == me->net->size && !me->net->broken;
    const int broken = me->net->broken;
    pthread_mutex_unlock(&me->net->lock);
    if (broken) {
        error->status = GS_ERANK;
        strcpy(error->text, "the wire was cut");
        return GS_ERANK;
    }
    for (int r = 0; *ended && r < me->net->size; r++) {
        const int whose = kind == RANKS_GATHER ? r : me->comm.rank;
        const size_t first = ranks_from(bytes, block, whose);
        const size_t count = ranks_from(bytes, block, whose + 1) - first;
        if (kind == RANKS_GATHER && r == me->comm.rank)
            continue;
        if (count > 0)
            memcpy(kind == RANKS_GATHER ? to + first : to + (size_t)r * count, c->from[r] + first,
                   count);
    }
    pthread_mutex_lock(&me->net->lock);
    if (*ended && ++c->taken == me->net->size)
        for (int r = 0; r < me->net->size; r++) {
            free(c->from[r]);
            c->from[r] = NULL;
        }
    pthread_mutex_unlock(&me->net->lock);
    return GS_OK;
}

static gs_status ranks_bcast(void *user, void *data, size_t bytes, int root, gs_error *error)
{
    ranks_rank *me = user;
    char *all = malloc((size_t)me->net->size * bytes + 1);
    memcpy(all + (size_t)me->comm.rank * bytes, data, bytes);
    const gs_status status = gs_comm_allgather(&me->comm, all, bytes, error);
    memcpy(data, all + (size_t)root * bytes, bytes);
    free(all);
    return status;
}

static void *ranks_thread(void *arg)
{
    ranks_rank *me = arg;
    me->body(&me->comm, me->arg);
    return NULL;
}

/* A body of the tests' own may do this to its network. */
static inline void ranks_break(const gs_comm *comm)
{
    ranks_net *net = ((ranks_rank *)comm->user)->net;
    pthread_mutex_lock(&net->lock);
    net->broken = 1;
    pthread_cond_broadcast(&net->moved);
    pthread_mutex_unlock(&net->lock);
}

static inline void ranks_run(int size, void (*body)(const gs_comm *comm, void *arg), void *arg)
{
    ranks_net *net = calloc(1, sizeof *net);
    ranks_rank *all = calloc((size_t)size, sizeof *all);
    pthread_mutex_init(&net->lock, NULL);
    pthread_cond_init(&net->moved, NULL);
    net->size = size;
    for (int r = 0; r < size; r++) {
        all[r].net = net;
        all[r].comm =
            (gs_comm){&all[r], r, size, ranks_alltoall, ranks_allgather, ranks_done, ranks_bcast};
        all[r].body = body;
        all[r].arg = arg;
        if (pthread_create(&all[r].thread, NULL, ranks_thread, &all[r]) != 0)
            abort();
    }
    for (int r = 0; r < size; r++)
        pthread_join(all[r].thread, NULL);
    for (int kind = 0; kind < 2; kind++)
        for (int call = 0; call < RANKS_CALLS; call++)
            for (int r = 0; r < size; r++)
                free(net->calls[kind][call].from[r]);
    free(all);
    free(net);
}

#endif
