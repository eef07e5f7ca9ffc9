/* threads.c: the loops of a context on the OpenMP threads that a framework has already.
 *
 * Threads of libgomp spin for milliseconds after each of the framework's loops, and a pool of our
 * own would have to share the cores with them. So the framework's runtime is asked to run the loop:
 * by GOMP_parallel, which gcc's, LLVM's and Intel's have, and whose address is given. Nothing is
 * linked against OpenMP.
 */
#include <stdatomic.h>

#include "gradscale/context.h"

enum { PARTS = 64, LINE = 64 };

typedef struct {
    void (*parallel)(void (*body)(void *), void *arg, unsigned threads, unsigned flags);
    unsigned threads;
} gsp_openmp;

typedef struct {
    _Alignas(LINE) atomic_size_t next; /* index of a part */
} part;

typedef struct {
    gs_body *body;
    void *arg;
    size_t count;
    unsigned parts;
    atomic_uint threads; /* that have come */
    part part[PARTS];
} loop;

static size_t part_start(const loop *l, unsigned p)
{
    const size_t more = l->count % l->parts;
    return l->count / l->parts * p + (p < more ? p : more);
}

/* A part for each thread, so that it walks through memory of its own; then the rest of others. */
static void share(void *arg)
{
    loop *l = arg;
    const unsigned me = atomic_fetch_add_explicit(&l->threads, 1, memory_order_relaxed);
    for (unsigned k = 0; k < l->parts; k++) {
        const unsigned p = (me + k) % l->parts;
        const size_t end = part_start(l, p + 1);
        for (;;) {
            const size_t i = atomic_fetch_add_explicit(&l->part[p].next, 1, memory_order_relaxed);
            if (i >= end)
                break;
            l->body(l->arg, i);
        }
    }
}

GS_API void gsp_run_openmp(void *user, size_t count, gs_body *body, void *arg);

/* gs_parallel.run; `user` is a gsp_openmp. */
void gsp_run_openmp(void *user, size_t count, gs_body *body, void *arg)
{
    const gsp_openmp *openmp = user;
    const unsigned threads = count < openmp->threads ? (unsigned)count : openmp->threads;
    if (threads <= 1) {
        for (size_t i = 0; i < count; i++)
            body(arg, i);
        return;
    }
    loop l = {.body = body, .arg = arg, .count = count, .parts = threads < PARTS ? threads : PARTS};
    atomic_init(&l.threads, 0);
    for (unsigned p = 0; p < l.parts; p++)
        atomic_init(&l.part[p].next, part_start(&l, p));
    openmp->parallel(share, &l, threads, 0);
}
