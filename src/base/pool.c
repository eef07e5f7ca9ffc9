/* A pool of threads that share out the indices of one loop at a time.
 *
 * (1) At most one loop runs in the pool. A second caller, or a body that calls run() again, finds
 *     the pool busy and runs its loop by itself: no deadlock, same results.
 * (2) A worker takes part in loop number g only between seeing `generation` g and adding itself to
 *     `done`; the caller leaves only when all workers have. So job fields change only while no
 *     worker reads them.
 * (3) Indices are taken in order from one counter: which thread runs an index is left to chance,
 *     so bodies must not let a result depend on it.
 *
 *   caller:   set busy -> write job -> generation++ -> share the indices -> wait for done -> clear
 *   worker:   wait for generation (spin, then sleep) -> share the indices -> done++ -> wait
 */
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

/* About 20 us: longer than the gap between two operations of a training step, shorter than what a
 * neighbour on the same core would feel. */
enum { SPINS = 2000 };

struct gsi_pool {
    gsi_heap *heap;
    unsigned workers; /* threads beside the caller */
    atomic_flag busy;

    gs_body *body; /* the job */
    void *arg;
    size_t count;
    atomic_size_t next;

    atomic_uint generation, done;
    atomic_bool quit;
    pthread_mutex_t lock; /* for sleeping on the two conditions only */
    pthread_cond_t wake, finished;
    pthread_t threads[];
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void share_indices(gsi_pool *pool)
{
    for (;;) {
        const size_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= pool->count)
            return;
        pool->body(pool->arg, i);
    }
}

/* Waits until *value differs from `old`. */
static unsigned await_change(gsi_pool *pool, atomic_uint *value, unsigned old, pthread_cond_t *cond)
{
    unsigned now = atomic_load(value);
    for (int spin = 0; now == old && spin < SPINS; spin++) {
        relax();
        now = atomic_load(value);
    }
    if (now != old)
        return now;
    pthread_mutex_lock(&pool->lock);
    while ((now = atomic_load(value)) == old)
        pthread_cond_wait(cond, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    return now;
}

static void change(gsi_pool *pool, atomic_uint *value, unsigned to, pthread_cond_t *cond)
{
    pthread_mutex_lock(&pool->lock);
    atomic_store(value, to);
    pthread_cond_broadcast(cond);
    pthread_mutex_unlock(&pool->lock);
}

static void *worker(void *arg)
{
    gsi_pool *pool = arg;
    for (unsigned seen = 0;;) {
        seen = await_change(pool, &pool->generation, seen, &pool->wake);
        if (atomic_load(&pool->quit))
            return NULL;
        share_indices(pool);
        pthread_mutex_lock(&pool->lock);
        atomic_fetch_add(&pool->done, 1);
        pthread_cond_signal(&pool->finished);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void run(void *user, size_t count, gs_body *body, void *arg)
{
    gsi_pool *pool = user;
    if (count <= 1 || pool->workers == 0 || atomic_flag_test_and_set(&pool->busy)) {
        for (size_t i = 0; i < count; i++)
            body(arg, i);
        return;
    }
    pool->body = body;
    pool->arg = arg;
    pool->count = count;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->done, 0);
    change(pool, &pool->generation, atomic_load(&pool->generation) + 1, &pool->wake);
    share_indices(pool);
    for (unsigned done = 0; done != pool->workers;)
        done = await_change(pool, &pool->done, done, &pool->finished);
    atomic_flag_clear(&pool->busy);
}

gs_status gsi_pool_create(gsi_pool **out, gsi_heap *heap, unsigned threads)
{
    *out = NULL;
    if (threads == 0) {
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        threads = online < 1 ? 1 : online < GSI_MAX_THREADS ? (unsigned)online : GSI_MAX_THREADS;
    }
    if (threads > GSI_MAX_THREADS)
        return GS_ERANGE;
    gsi_pool *pool = gsi_new(heap, sizeof *pool + (threads - 1) * sizeof pool->threads[0]);
    if (!pool)
        return GS_ENOMEM;
    pool->heap = heap;
    pool->workers = 0;
    atomic_flag_clear(&pool->busy);
    atomic_init(&pool->next, 0);
    atomic_init(&pool->generation, 0);
    atomic_init(&pool->done, 0);
    atomic_init(&pool->quit, false);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    while (pool->workers < threads - 1) {
        if (pthread_create(&pool->threads[pool->workers], NULL, worker, pool) != 0) {
            gsi_pool_free(pool);
            return GS_ETHREAD;
        }
        pool->workers++;
    }
    *out = pool;
    return GS_OK;
}

void gsi_pool_free(gsi_pool *pool)
{
    if (!pool)
        return;
    atomic_store(&pool->quit, true);
    change(pool, &pool->generation, atomic_load(&pool->generation) + 1, &pool->wake);
    for (unsigned i = 0; i < pool->workers; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    gsi_free(pool->heap, pool);
}

unsigned gsi_pool_threads(const gsi_pool *pool) { return pool->workers + 1; }

gs_parallel gsi_pool_parallel(gsi_pool *pool) { return (gs_parallel){run, pool}; }
