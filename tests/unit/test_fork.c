/* A context after fork: a child has the memory of its parent's threads, but not the threads. */
#include "test.h"

#include "base/base.h"
#include "gradscale/kernel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 300000, ROUNDS = 60, SECONDS = 60 };

static float values[COUNT];
static double expected; /* sum of squares */

static gs_tensor list(void) { return (gs_tensor){values, COUNT, GS_F32, "values", 0}; }

static int scan_is_right(gs_context *ctx)
{
    const gs_tensor t = list();
    gs_stats stats;
    return gs_tensors_scan(ctx, &t, 1, &stats) == GS_OK && stats.sumsq == expected;
}

static gs_context *set_up(unsigned threads)
{
    gs_context *ctx = NULL, *alone = NULL;
    const gs_tensor t = list();
    gs_stats stats;
    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(i % 1000) * 0.125f;
    CHECK(gs_context_create(&alone, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    CHECK(gs_tensors_scan(alone, &t, 1, &stats) == GS_OK);
    expected = stats.sumsq;
    gs_context_free(alone);
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = threads},
                            NULL) == GS_OK);
    return ctx;
}

/* What a child does with the context; 0 is well. */
typedef int child_fn(gs_context *ctx);

static int frees(gs_context *ctx)
{
    gs_context_free(ctx);
    return 0;
}

static int uses_and_frees(gs_context *ctx)
{
    if (gs_context_threads(ctx) != 1)
        return 1;
    for (int i = 0; i < 3; i++)
        if (!scan_is_right(ctx))
            return 2;
    gs_context_free(ctx);
    return 0;
}

#ifndef __SANITIZE_THREAD__ /* it forbids threads in a child of threads */
static int makes_its_own(gs_context *ctx)
{
    gs_context *own;
    if (gs_context_create(&own, &(gs_config){.size = sizeof(gs_config), .threads = 3}, NULL) !=
        GS_OK)
        return 1;
    if (gs_context_threads(own) != 3 || !scan_is_right(own))
        return 2;
    gs_context_free(own);
    gs_context_free(ctx);
    return 0;
}
#endif

/* True if the child ended well and in time. */
static int runs(child_fn *child, gs_context *ctx)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(SECONDS);
        _exit(child(ctx));
    }
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_MSG(status == 0, "the child's status is %#x", (unsigned)status);
    return status == 0;
}

static int has_a_child(gs_context *ctx)
{
    return !runs(uses_and_frees, ctx) || uses_and_frees(ctx);
}

static void test_idle(void)
{
    static child_fn *const children[] = {frees, uses_and_frees,
#ifndef __SANITIZE_THREAD__
                                         makes_its_own,
#endif
                                         has_a_child};
    for (unsigned threads = 1; threads <= 4; threads += 3)
        for (size_t c = 0; c < GSI_COUNT(children); c++) {
            gs_context *ctx = set_up(threads);
            CHECK(scan_is_right(ctx));
            for (int i = 0; i < ROUNDS / 4; i++)
                if (!runs(children[c], ctx))
                    break;
            CHECK(gs_context_threads(ctx) == threads && scan_is_right(ctx)); /* the parent's */
            gs_context_free(ctx);
        }
}

/* A thread of the parent uses the context while another one forks. */
typedef struct traffic {
    gs_context *ctx;
    atomic_bool stop, wrong;
} traffic;

static void *scan_on(void *arg)
{
    traffic *t = arg;
    while (!atomic_load(&t->stop))
        if (!scan_is_right(t->ctx))
            atomic_store(&t->wrong, true);
    return NULL;
}

static void test_busy(void)
{
    traffic t = {.ctx = set_up(3)};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, scan_on, &t) == 0);
    for (int i = 0; i < ROUNDS; i++)
        if (!runs(frees, t.ctx))
            break;
    atomic_store(&t.stop, true);
    pthread_join(thread, NULL);
    CHECK(!t.wrong);
    gs_context_free(t.ctx);
}

/* ---- the pool alone: forks inside a loop, where workers are inside too ---- */

typedef struct forks {
    gsi_pool *pool;
    atomic_int inside, done;
} forks;

static void count(void *arg, size_t i)
{
    (void)i;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void fork_inside(void *arg, size_t i)
{
    forks *f = arg;
    atomic_fetch_add(&f->inside, 1);
    if (i > 0) { /* stays until the child is made and gone */
        while (!atomic_load(&f->done))
            sched_yield();
        return;
    }
    while (atomic_load(&f->inside) < 3)
        sched_yield();
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(SECONDS);
        atomic_int hits = 0;
        const gs_parallel parallel = gsi_pool_parallel(f->pool);
        parallel.run(parallel.user, 10, count, &hits);
        gsi_pool_free(f->pool);
        _exit(hits != 10);
    }
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    CHECK_MSG(status == 0, "the child's status is %#x", (unsigned)status);
    atomic_store(&f->done, 1);
}

static void test_inside(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        gsi_heap heap;
        forks f = {0};
        gsi_heap_init(&heap, NULL);
        CHECK(gsi_pool_create(&f.pool, &heap, 3) == GS_OK);
        const gs_parallel parallel = gsi_pool_parallel(f.pool);
        parallel.run(parallel.user, 3, fork_inside, &f);
        gsi_pool_free(f.pool);
        CHECK(heap.bytes == 0);
        if (test_failures)
            break;
    }
}

TESTS({"idle", test_idle}, {"busy", test_busy}, {"inside", test_inside})
