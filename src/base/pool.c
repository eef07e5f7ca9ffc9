/* A pool of threads that share out the indices of one loop at a time.
 *
 * (1) At most one loop runs in the pool. A second caller, or a body that calls run() again, finds
 *     the pool busy and runs its loop by itself: no deadlock, same results.
 * (2) `crew` is OPEN while a loop has indices left, plus the number of workers inside it. A worker
 *     enters only while it is OPEN; the caller closes it, and leaves when nobody is inside. So job
 *     fields change only while no worker reads them, and no loop waits for a worker that has not
 *     even woken up.
 * (3) The indices are cut into one chunk per thread, so that each walks through memory of its
 *     own; who has ended his own helps with the others'. Which thread runs an index is left to
 *     chance, so bodies must not let a result depend on it.
 * (4) Workers belong to the process that started them. A child made by fork has their memory, and
 *     perhaps a lock that one of them held, but not the threads. There (`is_ours` is false) a loop
 *     runs in its caller alone, and free gives back memory only: nothing is awaited, locked or
 *     joined.
 *
 *   caller:   set busy -> write job -> open, generation++ -> share the indices -> close -> wait
 *             until nobody is inside -> clear busy
 *   worker:   wait for a new generation (spin, then sleep) -> enter -> share the indices -> leave
 */
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>
#if !defined(_WIN32)
#include <unistd.h>
#endif

/* About 20 us: longer than the gap between two operations of a training step, shorter than what a
 * neighbour on the same core would feel. */
enum { SPINS = 2000 };

#define OPEN (1u << 31)

typedef struct member {
    gsi_pool *pool;
    unsigned number;                        /* 0 is whoever calls run() */
    pthread_t thread;                       /* of the others */
    _Alignas(GSI_ALIGN) atomic_size_t next; /* index of its chunk: written by all */
} member;

struct gsi_pool {
    gsi_heap *heap;
    long process;     /* that has the workers */
    unsigned workers; /* threads beside the caller */
    atomic_flag busy;

    gs_body *body; /* the job */
    void *arg;
    size_t count;

    atomic_uint generation, crew;
    atomic_bool quit;
    pthread_mutex_t lock; /* for sleeping only */
    pthread_cond_t moved; /* generation or crew, while somebody sleeps */
    atomic_uint sleepers;
    member members[]; /* [workers + 1] */
};

static long this_process(void)
{
#if defined(_WIN32)
    return 0; /* no fork there */
#else
    return (long)getpid();
#endif
}

static bool is_ours(const gsi_pool *pool) { return pool->process == this_process(); }

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Where chunk m of the job begins. */
static size_t chunk_start(const gsi_pool *pool, unsigned m)
{
    const size_t threads = pool->workers + 1;
    return pool->count / threads * m + gsi_min_size(m, pool->count % threads);
}

static void share_indices(gsi_pool *pool, unsigned me)
{
    const unsigned threads = pool->workers + 1;
    for (unsigned k = 0; k < threads; k++) {
        const unsigned m = (me + k) % threads;
        const size_t end = chunk_start(pool, m + 1);
        for (;;) {
            const size_t i =
                atomic_fetch_add_explicit(&pool->members[m].next, 1, memory_order_relaxed);
            if (i >= end)
                break;
            pool->body(pool->arg, i);
        }
    }
}

typedef bool ready_fn(gsi_pool *pool, unsigned seen);

static bool has_work(gsi_pool *pool, unsigned seen)
{
    return atomic_load(&pool->generation) != seen;
}

static bool is_empty(gsi_pool *pool, unsigned seen)
{
    (void)seen;
    return atomic_load(&pool->crew) == 0;
}

static void await(gsi_pool *pool, ready_fn *ready, unsigned seen)
{
    for (int spin = 0; spin < SPINS; spin++) {
        if (ready(pool, seen))
            return;
        relax();
    }
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!ready(pool, seen))
        pthread_cond_wait(&pool->moved, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
}

/* After a change that somebody may wait for. A sleeper counts itself before it looks, we look
 * after the change: one of the two sees the other. */
static void announce(gsi_pool *pool)
{
    if (atomic_load(&pool->sleepers) == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->moved);
    pthread_mutex_unlock(&pool->lock);
}

static bool enter(gsi_pool *pool)
{
    unsigned crew = atomic_load(&pool->crew);
    while (crew & OPEN)
        if (atomic_compare_exchange_weak(&pool->crew, &crew, crew + 1))
            return true;
    return false;
}

static void *worker(void *arg)
{
    const member *me = arg;
    gsi_pool *pool = me->pool;
    for (unsigned seen = 0;;) {
        await(pool, has_work, seen);
        seen = atomic_load(&pool->generation); /* before quit, which is set before the last one */
        if (atomic_load(&pool->quit))
            return NULL;
        if (!enter(pool))
            continue;
        share_indices(pool, me->number);
        if (atomic_fetch_sub(&pool->crew, 1) == 1)
            announce(pool);
    }
}

static void run(void *user, size_t count, gs_body *body, void *arg)
{
    gsi_pool *pool = user;
    if (count <= 1 || pool->workers == 0 || !is_ours(pool) ||
        atomic_flag_test_and_set(&pool->busy)) {
        for (size_t i = 0; i < count; i++)
            body(arg, i);
        return;
    }
    pool->body = body;
    pool->arg = arg;
    pool->count = count;
    for (unsigned m = 0; m <= pool->workers; m++)
        atomic_store_explicit(&pool->members[m].next, chunk_start(pool, m), memory_order_relaxed);
    atomic_store(&pool->crew, OPEN);
    atomic_fetch_add(&pool->generation, 1);
    announce(pool);
    share_indices(pool, 0);
    atomic_fetch_and(&pool->crew, ~OPEN);
    await(pool, is_empty, 0);
    atomic_flag_clear(&pool->busy);
}

gs_status gsi_pool_create(gsi_pool **out, gsi_heap *heap, unsigned threads)
{
    *out = NULL;
    if (threads == 0)
        threads = (unsigned)gsi_min_size(gs_cpus_usable(NULL), GSI_MAX_THREADS);
    if (threads > GSI_MAX_THREADS)
        return GS_ERANGE;
    gsi_pool *pool = gsi_new(heap, sizeof *pool + threads * sizeof pool->members[0]);
    if (!pool)
        return GS_ENOMEM;
    pool->heap = heap;
    pool->process = this_process();
    pool->workers = 0;
    atomic_flag_clear(&pool->busy);
    atomic_init(&pool->generation, 0);
    atomic_init(&pool->crew, 0);
    atomic_init(&pool->sleepers, 0);
    atomic_init(&pool->quit, false);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->moved, NULL);
    for (unsigned m = 0; m < threads; m++) {
        pool->members[m].pool = pool;
        pool->members[m].number = m;
        atomic_init(&pool->members[m].next, 0);
    }
    for (unsigned m = 1; m < threads; m++, pool->workers++)
        if (pthread_create(&pool->members[m].thread, NULL, worker, &pool->members[m]) != 0) {
            gsi_pool_free(pool);
            return GS_ETHREAD;
        }
    *out = pool;
    return GS_OK;
}

void gsi_pool_free(gsi_pool *pool)
{
    if (!pool)
        return;
    if (is_ours(pool)) {
        atomic_store(&pool->quit, true);
        atomic_fetch_add(&pool->generation, 1);
        announce(pool);
        for (unsigned m = 1; m <= pool->workers; m++)
            pthread_join(pool->members[m].thread, NULL);
        pthread_cond_destroy(&pool->moved);
        pthread_mutex_destroy(&pool->lock);
    }
    gsi_free(pool->heap, pool);
}

unsigned gsi_pool_threads(const gsi_pool *pool) { return is_ours(pool) ? pool->workers + 1 : 1; }

gs_parallel gsi_pool_parallel(gsi_pool *pool) { return (gs_parallel){run, pool}; }
