#define _DEFAULT_SOURCE /* madvise */
#include "memory.h"
#include "test.h"

#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#define SANITIZED 1
#elif defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* ---- status and errors ---- */

static void test_statuses(void)
{
    CHECK(GS_OK == 0);
    CHECK(strcmp(gs_status_name(GS_OK), "OK") == 0);
    CHECK(strcmp(gs_status_name(GS_ENOMEM), "NOMEM") == 0);
    CHECK(strcmp(gs_status_meaning(GS_ENOMEM), "out of memory") == 0);
    CHECK(strcmp(gs_status_name(GS_ETHREAD), "THREAD") == 0);
    for (unsigned i = 0; i < GS_STATUS_COUNT; i++) {
        CHECK(gs_status_meaning((gs_status)i)[0] != '\0');
        for (unsigned k = 0; k < i; k++)
            CHECK(strcmp(gs_status_name((gs_status)i), gs_status_name((gs_status)k)) != 0);
    }
    const gs_status strange[] = {GS_STATUS_COUNT, (gs_status)-1, (gs_status)1000000};
    for (size_t i = 0; i < GSI_COUNT(strange); i++) {
        CHECK(strcmp(gs_status_name(strange[i]), "UNKNOWN") == 0);
        CHECK(strcmp(gs_status_meaning(strange[i]), "an unknown status") == 0);
    }
}

static void test_version(void)
{
    char want[32];
    snprintf(want, sizeof want, "%d.%d.%d", GS_VERSION_MAJOR, GS_VERSION_MINOR, GS_VERSION_PATCH);
    CHECK(strcmp(gs_version(), want) == 0);
}

static void test_errors(void)
{
    gs_error error = {0};
    CHECK(gsi_fail(NULL, GS_EIO, "nobody hears %d", 1) == GS_EIO);
    CHECK(gsi_fail(&error, GS_ERANGE, "x is %d, not %s", 7, "less") == GS_ERANGE);
    CHECK(error.status == GS_ERANGE && strcmp(error.text, "x is 7, not less") == 0);

    char name[1000]; /* an error message that is too long is cut, not overrun */
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    struct {
        gs_error error;
        char after[16];
    } guarded;
    memset(&guarded, '#', sizeof guarded);
    CHECK(gsi_fail(&guarded.error, GS_ENAME, "no %s", name) == GS_ENAME);
    CHECK(strlen(guarded.error.text) == sizeof error.text - 1);
    CHECK(memcmp(guarded.after, "################", 16) == 0);
}

/* ---- memory ---- */

static void test_sizes(void)
{
    size_t out;
    CHECK(gsi_mul_size(&out, 3, 5) && out == 15);
    CHECK(gsi_mul_size(&out, 0, SIZE_MAX) && out == 0);
    CHECK(gsi_mul_size(&out, SIZE_MAX, 0) && out == 0);
    CHECK(gsi_mul_size(&out, SIZE_MAX, 1) && out == SIZE_MAX);
    CHECK(gsi_mul_size(&out, SIZE_MAX / 2, 2) && out == SIZE_MAX - 1);
    CHECK(!gsi_mul_size(&out, SIZE_MAX / 2 + 1, 2));
    CHECK(!gsi_mul_size(&out, 2, SIZE_MAX));
    CHECK(!gsi_mul_size(&out, (size_t)1 << 32, (size_t)1 << 32));
    CHECK(gsi_add_size(&out, SIZE_MAX - 4, 4) && out == SIZE_MAX);
    CHECK(!gsi_add_size(&out, SIZE_MAX - 4, 5));
    CHECK(!gsi_add_size(&out, SIZE_MAX, SIZE_MAX));
}

static void test_heap(void)
{
    books b = {0};
    const gs_alloc hook = books_hook(&b);
    gsi_heap heap;
    gsi_heap_init(&heap, &hook);
    void *block[300];
    for (size_t size = 0; size < 300; size++) {
        block[size] = gsi_new(&heap, size);
        CHECK(block[size] && (uintptr_t)block[size] % GSI_ALIGN == 0);
        memset(block[size], (int)size, size);
        CHECK(heap.calls == size + 1 && b.calls == size + 1);
        CHECK(heap.bytes == b.bytes && heap.peak == heap.bytes);
    }
    const size_t most = heap.bytes;
    for (size_t size = 0; size < 300; size++) {
        for (size_t i = 0; i < size; i++)
            CHECK(((unsigned char *)block[size])[i] == (unsigned char)size);
        gsi_free(&heap, block[size]);
        CHECK(heap.bytes == b.bytes);
    }
    CHECK(heap.bytes == 0 && b.blocks == 0 && b.bytes == 0 && heap.peak == most && !b.wrong);
    gsi_free(&heap, gsi_new(&heap, 10));
    CHECK(heap.peak == most && heap.calls == 301);
    gsi_free(&heap, NULL);

    /* What does not fit is refused before the hook is asked. */
    for (size_t less = 0; less < 2 * GSI_ALIGN; less++)
        CHECK(gsi_new(&heap, SIZE_MAX - less) == NULL);
    CHECK(b.calls == 301 && heap.calls == 301);

    b.fail_at = 302;
    CHECK(gsi_new(&heap, 100) == NULL);
    CHECK(heap.calls == 302 && heap.bytes == 0 && b.blocks == 0);
}

static void test_heap_of_libc(void)
{
    gsi_heap heap;
    const gs_alloc none = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        gsi_heap_init(&heap, i ? &none : NULL);
        char *p = gsi_new(&heap, 1000);
        CHECK(p && (uintptr_t)p % GSI_ALIGN == 0);
        memset(p, 1, 1000);
        gsi_free(&heap, p);
        CHECK(heap.bytes == 0 && heap.calls == 1);
    }
}

/* The flags of the mapping that an address lies in, as smaps tells them; "": it does not. */
static void mapping_flags(char flags[512], const void *address)
{
    char line[512];
    unsigned long first, end;
    bool here = false;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    flags[0] = '\0';
    while (smaps && fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
            here = first <= (uintptr_t)address && (uintptr_t)address < end;
        else if (here && strncmp(line, "VmFlags:", 8) == 0)
            memcpy(flags, line, sizeof line);
    }
    if (smaps)
        fclose(smaps);
}

static bool asks_huge(const void *address)
{
    char flags[512];
    mapping_flags(flags, address);
    return strstr(flags, " hg") != NULL;
}

/* Whether it can be seen here that huge pages are asked for: an emulator may pass over it. */
static bool shows_huge(size_t bytes)
{
    bool shown = false;
#if defined(MADV_HUGEPAGE)
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    shown = p != MAP_FAILED && madvise(p, bytes, MADV_HUGEPAGE) == 0 && asks_huge(p);
    if (p != MAP_FAILED)
        munmap(p, bytes);
#endif
    return shown;
}

/* A large block asks for huge pages; what a caller allocates is his. */
static void test_heap_huge_pages(void)
{
    enum { LARGE = 8 << 20 };
    books b = {0};
    const gs_alloc own = books_hook(&b);
    if (!shows_huge(LARGE))
        SKIP("huge pages cannot be seen here");
    for (int i = 0; i < 2; i++) {
        gsi_heap heap;
        gsi_heap_init(&heap, i == 0 ? NULL : &own);
        char *p = gsi_new(&heap, LARGE);
        CHECK(p);
        CHECK_MSG(asks_huge(p + LARGE / 2) == (i == 0), "%s", i == 0 ? "libc's" : "the caller's");
        gsi_free(&heap, p);
    }
}

typedef struct fixture {
    books b;
    gs_alloc hook;
    gsi_heap heap;
    gsi_arena arena;
} fixture;

static void set_up(fixture *f)
{
    f->b = (books){0};
    f->hook = books_hook(&f->b);
    gsi_heap_init(&f->heap, &f->hook);
    gsi_arena_init(&f->arena, &f->heap);
}

static void tear_down(fixture *f)
{
    gsi_arena_free(&f->arena);
    CHECK(f->arena.used == 0);
    CHECK(f->b.blocks == 0 && f->b.bytes == 0 && !f->b.wrong);
}

/* Aligned, apart from each other, and kept until the reset. */
static void test_arena_blocks(void)
{
    enum { N = 2000 };
    static unsigned char *p[N];
    fixture f;
    set_up(&f);
    for (size_t i = 0; i < N; i++) {
        p[i] = gsi_arena_new(&f.arena, i % 37, 1 + i % 11);
        CHECK(p[i] && (uintptr_t)p[i] % GSI_ALIGN == 0);
        memset(p[i], (int)(i * 31), i % 37 * (1 + i % 11));
    }
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < i % 37 * (1 + i % 11); k++)
            CHECK(p[i][k] == (unsigned char)(i * 31));
    CHECK(f.arena.used % GSI_ALIGN == 0 && f.arena.used == f.arena.peak);
    tear_down(&f);
}

static void test_arena_marks(void)
{
    fixture f;
    set_up(&f);
    const gsi_mark start = gsi_arena_mark(&f.arena);
    char *a = gsi_arena_new(&f.arena, 100, 1);
    memset(a, 'a', 100);
    const gsi_mark inner = gsi_arena_mark(&f.arena);
    const size_t used = f.arena.used;
    char *first = gsi_arena_new(&f.arena, 1000, 4);
    for (int i = 0; i < 5; i++) /* into other blocks */
        CHECK(gsi_arena_new(&f.arena, 50000, 3) != NULL);
    const size_t peak = f.arena.used;
    CHECK(f.b.blocks > 1);
    gsi_arena_reset(&f.arena, inner);
    CHECK(f.b.blocks == 1 && f.arena.used == used && f.arena.peak == peak);
    CHECK(gsi_arena_new(&f.arena, 1000, 4) == first);
    for (int i = 0; i < 100; i++)
        CHECK(a[i] == 'a');
    gsi_arena_reset(&f.arena, start);
    CHECK(f.arena.used == 0 && f.arena.peak == peak);
    CHECK(gsi_arena_new(&f.arena, 1, 1) == a);
    tear_down(&f);
    set_up(&f);
    gsi_arena_reset(&f.arena, gsi_arena_mark(&f.arena)); /* nothing to do */
    CHECK(f.b.calls == 0);
    tear_down(&f);
}

/* A loop that asks for the same each time is served from one block from the third round on. */
static void test_arena_joins(void)
{
    fixture f;
    set_up(&f);
    const gsi_mark start = gsi_arena_mark(&f.arena);
    size_t calls = 0;
    for (int round = 0; round < 6; round++) {
        for (size_t i = 0; i < 40; i++)
            memset(gsi_arena_new(&f.arena, 1000 + 777 * i, 8), 1, 8 * (1000 + 777 * i));
        gsi_arena_reset(&f.arena, start);
        CHECK(f.b.blocks == 1);
        if (round >= 1)
            CHECK_MSG(round == 1 || f.b.calls == calls, "round %d asks %zu times", round,
                      f.b.calls - calls);
        calls = f.b.calls;
    }
    CHECK(f.arena.used == 0);
    tear_down(&f);
}

static void test_arena_overflow(void)
{
    fixture f;
    set_up(&f);
    char *p = gsi_arena_new(&f.arena, 10, 10);
    const size_t calls = f.b.calls, used = f.arena.used;
    CHECK(gsi_arena_new(&f.arena, SIZE_MAX, 2) == NULL);
    CHECK(gsi_arena_new(&f.arena, SIZE_MAX / 2 + 1, 2) == NULL);
    for (size_t less = 0; less < 250; less++) /* too much with what comes on top of it */
        CHECK(gsi_arena_new(&f.arena, SIZE_MAX - less, 1) == NULL);
    CHECK(f.b.calls == calls && f.arena.used == used && f.b.blocks == 1);
    CHECK(gsi_arena_new(&f.arena, 0, SIZE_MAX) != NULL); /* nothing of anything */
    CHECK((char *)gsi_arena_new(&f.arena, 1, 1) > p);
    tear_down(&f);
}

/* Without memory for a comfortable block it asks for just enough; without that it says so, and
 * goes on to serve what fits. */
static void test_arena_out_of_memory(void)
{
    fixture f;
    set_up(&f);
    const gsi_mark start = gsi_arena_mark(&f.arena);
    f.b.fail_at = 1;
    char *p = gsi_arena_new(&f.arena, 100, 1);
    CHECK(p && f.b.calls == 2 && f.b.bytes < 1024);
    memset(p, 'p', 100);
    f.b.fail_from = 3;
    CHECK(gsi_arena_new(&f.arena, 1000000, 1) == NULL);
    CHECK(gsi_arena_new(&f.arena, 1000000, 8) == NULL);
    for (int i = 0; i < 100; i++)
        CHECK(p[i] == 'p');
    f.b.fail_from = 0;
    CHECK(gsi_arena_new(&f.arena, 1000000, 1) != NULL);
    f.b.fail_from = 1; /* the join fails */
    gsi_arena_reset(&f.arena, start);
    CHECK(f.arena.used == 0 && f.b.blocks == 0);
    f.b.fail_from = 0;
    CHECK(gsi_arena_new(&f.arena, 1000, 1) != NULL);
    tear_down(&f);
}

static void test_arena_poison(void)
{
#ifdef WITH_ASAN
    fixture f;
    set_up(&f);
    const gsi_mark start = gsi_arena_mark(&f.arena);
    for (size_t size = 1; size < 200; size++) {
        char *p = gsi_arena_new(&f.arena, size, 1);
        CHECK(!__asan_region_is_poisoned(p, size));
        for (size_t i = 0; i < GSI_ALIGN; i++)
            CHECK(__asan_address_is_poisoned(p + size + i));
    }
    const gsi_mark mark = gsi_arena_mark(&f.arena);
    char *p = gsi_arena_new(&f.arena, 100, 1);
    gsi_arena_reset(&f.arena, mark);
    CHECK(__asan_address_is_poisoned(p) && __asan_address_is_poisoned(p + 99));
    gsi_arena_reset(&f.arena, start);
    CHECK(__asan_address_is_poisoned(p));
    tear_down(&f);
#endif
}

/* ---- threads ---- */

typedef struct loop {
    atomic_int *hits; /* [count] */
    int *plain;       /* [count], written without atomics: a race is found by TSan */
    gs_parallel inner;
    atomic_size_t arrived;
    size_t awaited;
    atomic_bool late;
} loop;

static void hit(void *arg, size_t i)
{
    loop *l = arg;
    atomic_fetch_add(&l->hits[i], 1);
    l->plain[i] += (int)i + 1;
}

static void run_and_check(gs_parallel parallel, size_t count)
{
    loop l = {.hits = calloc(count + 1, sizeof *l.hits), .plain = calloc(count + 1, sizeof(int))};
    parallel.run(parallel.user, count, hit, &l);
    for (size_t i = 0; i < count; i++)
        CHECK(l.hits[i] == 1 && l.plain[i] == (int)i + 1);
    CHECK(l.hits[count] == 0);
    free(l.hits);
    free(l.plain);
}

static void test_pool_indices(void)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 8, 9, 64, 1000, 20000};
    for (unsigned threads = 1; threads <= 8; threads++) {
        fixture f;
        gsi_pool *pool;
        set_up(&f);
        CHECK(gsi_pool_create(&pool, &f.heap, threads) == GS_OK);
        CHECK(gsi_pool_threads(pool) == threads);
        for (size_t i = 0; i < GSI_COUNT(counts); i++)
            run_and_check(gsi_pool_parallel(pool), counts[i]);
        for (int i = 0; i < 500; i++)
            run_and_check(gsi_pool_parallel(pool), 5);
        gsi_pool_free(pool);
        tear_down(&f);
    }
}

/* No index ends before all have begun. */
static void meet(void *arg, size_t i)
{
    loop *l = arg;
    (void)i;
    atomic_fetch_add(&l->arrived, 1);
    for (const double start = gs_clock(); atomic_load(&l->arrived) < l->awaited; sched_yield())
        if (gs_clock() - start > 10) {
            atomic_store(&l->late, true);
            return;
        }
}

/* A pool of n threads really runs n bodies at a time. */
static void test_pool_is_parallel(void)
{
    for (unsigned threads = 1; threads <= 8; threads++) {
        gsi_heap heap;
        gsi_pool *pool;
        gsi_heap_init(&heap, NULL);
        CHECK(gsi_pool_create(&pool, &heap, threads) == GS_OK);
        const gs_parallel parallel = gsi_pool_parallel(pool);
        for (int again = 0; again < 3; again++) {
            loop l = {.awaited = threads};
            parallel.run(parallel.user, threads, meet, &l);
            CHECK_MSG(!l.late, "%u threads", threads);
        }
        gsi_pool_free(pool);
    }
}

static void nest(void *arg, size_t i)
{
    loop *l = arg;
    atomic_fetch_add(&l->hits[i], 1);
    run_and_check(l->inner, 20);
}

static void test_pool_nested(void)
{
    for (unsigned threads = 1; threads <= 4; threads++) {
        gsi_heap heap;
        gsi_pool *pool;
        gsi_heap_init(&heap, NULL);
        CHECK(gsi_pool_create(&pool, &heap, threads) == GS_OK);
        atomic_int hits[50] = {0};
        loop l = {.hits = hits, .inner = gsi_pool_parallel(pool)};
        l.inner.run(l.inner.user, 50, nest, &l);
        for (int i = 0; i < 50; i++)
            CHECK(hits[i] == 1);
        run_and_check(l.inner, 1000); /* and it works on */
        gsi_pool_free(pool);
    }
}

static void *call_often(void *arg)
{
    const gs_parallel *parallel = arg;
    for (size_t i = 0; i < 300; i++)
        run_and_check(*parallel, i % 40);
    return NULL;
}

static void test_pool_shared_by_callers(void)
{
    gsi_heap heap;
    gsi_pool *pool;
    gsi_heap_init(&heap, NULL);
    CHECK(gsi_pool_create(&pool, &heap, 3) == GS_OK);
    gs_parallel parallel = gsi_pool_parallel(pool);
    pthread_t callers[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&callers[i], NULL, call_often, &parallel) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(callers[i], NULL);
    gsi_pool_free(pool);
}

static void test_pool_many_small_loops(void)
{
    gsi_heap heap;
    gsi_pool *pool;
    gsi_heap_init(&heap, NULL);
    CHECK(gsi_pool_create(&pool, &heap, 2) == GS_OK);
    const gs_parallel parallel = gsi_pool_parallel(pool);
    atomic_int hits[3] = {0};
    int plain[3] = {0};
    loop l = {.hits = hits, .plain = plain};
    enum { LOOPS = 20000 };
    for (int i = 0; i < LOOPS; i++)
        parallel.run(parallel.user, 3, hit, &l);
    for (int i = 0; i < 3; i++)
        CHECK(hits[i] == LOOPS && plain[i] == LOOPS * (i + 1));
    gsi_pool_free(pool);
}

static void test_pool_comes_and_goes(void)
{
    fixture f;
    set_up(&f);
    for (unsigned i = 0; i < 200; i++) {
        gsi_pool *pool;
        CHECK(gsi_pool_create(&pool, &f.heap, 1 + i % 8) == GS_OK);
        if (i % 3)
            run_and_check(gsi_pool_parallel(pool), i % 16);
        gsi_pool_free(pool);
    }
    gsi_pool *pool; /* one per CPU that may be used */
    CHECK(gsi_pool_create(&pool, &f.heap, 0) == GS_OK);
    CHECK(gsi_pool_threads(pool) == gs_cpus_usable(NULL));
    gsi_pool_free(pool);
    gsi_pool_free(NULL);

    f.b.fail_from = 1;
    CHECK(gsi_pool_create(&pool, &f.heap, 2) == GS_ENOMEM && pool == NULL);
    f.b.fail_from = 0;
    const size_t calls = f.b.calls; /* nobody means that many: nothing is asked for */
    CHECK(gsi_pool_create(&pool, &f.heap, GSI_MAX_THREADS + 1) == GS_ERANGE && pool == NULL);
    CHECK(gsi_pool_create(&pool, &f.heap, ~0u) == GS_ERANGE && pool == NULL);
    CHECK(f.b.calls == calls);
    tear_down(&f);
}

/* A worker that is late for its last loop meets the end of the pool there. */
static void test_pool_ends_while_workers_wake(void)
{
    gsi_heap heap;
    gsi_heap_init(&heap, NULL);
    for (unsigned i = 0; i < 3000; i++) {
        gsi_pool *pool;
        CHECK(gsi_pool_create(&pool, &heap, 2 + i % 3) == GS_OK);
        run_and_check(gsi_pool_parallel(pool), 2);
        gsi_pool_free(pool);
    }
}

/* In a process with no room for stacks the threads that did start end again. */
static void test_pool_without_threads(void)
{
#ifndef SANITIZED /* they need address space themselves */
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        fixture f;
        gsi_pool *pool;
        set_up(&f);
        const struct rlimit limit = {(rlim_t)100 << 20, (rlim_t)100 << 20};
        setrlimit(RLIMIT_AS, &limit);
        if (malloc((size_t)200 << 20)) /* an emulator has no such limit */
            _exit(0);
        alarm(20);
        const gs_status status = gsi_pool_create(&pool, &f.heap, 200);
        _exit(status == GS_ETHREAD && !pool && f.b.blocks == 0 && !f.b.wrong ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
#endif
}

/* ---- random bits ---- */

/* A second writing of Philox4x32-10, with the whole 128-bit counter, to be held against the
 * published vectors of Random123 (kat_vectors). */
static void philox_by_the_paper(uint32_t c[4], const uint32_t key[2])
{
    for (uint32_t round = 0; round < 10; round++) {
        const uint64_t left = (uint64_t)c[0] * 0xD2511F53, right = (uint64_t)c[2] * 0xCD9E8D57;
        const uint32_t next[4] = {
            (uint32_t)(right >> 32) ^ c[1] ^ (key[0] + round * 0x9E3779B9), (uint32_t)right,
            (uint32_t)(left >> 32) ^ c[3] ^ (key[1] + round * 0xBB67AE85), (uint32_t)left};
        memcpy(c, next, sizeof next);
    }
}

static void test_philox(void)
{
    static const uint32_t vectors[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {~0u, ~0u, ~0u, ~0u, ~0u, ~0u, 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (size_t i = 0; i < GSI_COUNT(vectors); i++) {
        uint32_t c[4];
        memcpy(c, vectors[i], sizeof c);
        philox_by_the_paper(c, &vectors[i][4]);
        CHECK(memcmp(c, &vectors[i][6], sizeof c) == 0);
    }
    uint32_t out[4];
    gsi_philox(out, 0, 0);
    CHECK(memcmp(out, &vectors[0][6], sizeof out) == 0);

    uint64_t key = 0x0123456789ABCDEF, counter = 3;
    for (int i = 0; i < 1000; i++) {
        const uint32_t k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
        uint32_t c[4] = {(uint32_t)counter, (uint32_t)(counter >> 32), 0, 0};
        philox_by_the_paper(c, k);
        gsi_philox(out, key, counter);
        CHECK(memcmp(out, c, sizeof out) == 0);
        CHECK(gs_random_u32(key, counter) == c[0]);
        key = key * 6364136223846793005u + 1442695040888963407u;
        counter = counter * 2862933555777941757u + 3037000493u;
    }
}

/* Element j of a group of 128 takes half j / 16 of block j % 16. */
static void test_random_u16(void)
{
    static const uint64_t groups[] = {0, 1, 511, (uint64_t)1 << 40};
    for (size_t g = 0; g < GSI_COUNT(groups); g++)
        for (unsigned j = 0; j < GSI_RANDOM_GROUP; j++) {
            uint32_t block[4];
            gsi_philox(block, 42, groups[g] * 16 + j % 16);
            const unsigned half = j / 16;
            const uint32_t want = half % 2 ? block[half / 2] >> 16 : block[half / 2] & 0xFFFF;
            CHECK(gsi_random_u16(42, groups[g] * GSI_RANDOM_GROUP + j) == want);
        }
}

/* Chi-squared over 256 bins, of the high and of the low byte: 255 +- 100 is beyond 4 sigma. And
 * neighbours in index and in seed do not go together. */
static void test_random_is_uniform(void)
{
    enum { N = 1 << 18 };
    static const uint64_t seeds[] = {0, 1, 0xFFFFFFFF00000000};
    for (size_t s = 0; s < GSI_COUNT(seeds); s++) {
        double bins[2][256] = {{0}}, with_next = 0, with_seed = 0;
        for (uint64_t i = 0; i < N; i++) {
            const double x = gsi_random_u16(seeds[s], i), half = 32767.5;
            const uint16_t bits = gsi_random_u16(seeds[s], i);
            bins[0][bits >> 8]++;
            bins[1][bits & 0xFF]++;
            with_next += (x - half) * ((double)gsi_random_u16(seeds[s], i + 1) - half);
            with_seed += (x - half) * ((double)gsi_random_u16(seeds[s] + 1, i) - half);
        }
        for (int byte = 0; byte < 2; byte++) {
            double chi = 0;
            for (int i = 0; i < 256; i++)
                chi += (bins[byte][i] - N / 256.0) * (bins[byte][i] - N / 256.0) / (N / 256.0);
            CHECK_MSG(chi > 155 && chi < 355, "seed %d: chi-squared %g", (int)s, chi);
        }
        const double unit = 65536.0 * 65536.0 / 12 * N; /* variance; 1/sqrt(N) is one sigma */
        CHECK(with_next / unit < 0.01 && with_next / unit > -0.01);
        CHECK(with_seed / unit < 0.01 && with_seed / unit > -0.01);
    }
}

TESTS({"statuses", test_statuses}, {"version", test_version}, {"errors", test_errors},
      {"sizes", test_sizes}, {"heap", test_heap}, {"heap_of_libc", test_heap_of_libc},
      {"heap_huge_pages", test_heap_huge_pages}, {"arena_blocks", test_arena_blocks},
      {"arena_marks", test_arena_marks}, {"arena_joins", test_arena_joins},
      {"arena_overflow", test_arena_overflow}, {"arena_out_of_memory", test_arena_out_of_memory},
      {"arena_poison", test_arena_poison}, {"pool_indices", test_pool_indices},
      {"pool_is_parallel", test_pool_is_parallel}, {"pool_nested", test_pool_nested},
      {"pool_shared_by_callers", test_pool_shared_by_callers},
      {"pool_many_small_loops", test_pool_many_small_loops},
      {"pool_comes_and_goes", test_pool_comes_and_goes},
      {"pool_ends_while_workers_wake", test_pool_ends_while_workers_wake},
      {"pool_without_threads", test_pool_without_threads}, {"philox", test_philox},
      {"random_u16", test_random_u16}, {"random_is_uniform", test_random_is_uniform})
