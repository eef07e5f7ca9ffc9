/* What the memory of this machine can do: plain loops, and the threads that run them. */
#define _DEFAULT_SOURCE /* madvise */
#include "cli/bench/bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

/* ---- memory ---- */

/* Loads and stores that are equal modulo 4096 wait for each other, in limits and passes alike. */
enum { APART = 2048 };

static void *block_new(size_t bytes)
{
    const size_t rounded = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *const block = aligned_alloc(HUGE_PAGE, rounded);
#if defined(MADV_HUGEPAGE)
    if (block)
        madvise(block, rounded, MADV_HUGEPAGE); /* a hint: smaller pages do too */
#endif
    return block;
}

static void fill(void *block, size_t bytes)
{
    uint64_t *const words = block, state = 0x9E3779B97F4A7C15;
    for (size_t i = 0; i < (bytes + 7) / 8; i++) { /* blocks end on a huge page */
        state = state * 6364136223846793005 + 1442695040888963407;
        const uint64_t bits = state ^ state >> 29;
        words[i] = (bits & 0x87FF87FF87FF87FF) | 0x3800380038003800;
    }
}

bool bench_memory_new(bench_memory *m, size_t size)
{
    char text[32];
    const size_t src_bytes = size, dst_bytes = size / 3 * 2 + PAGE + APART;
    const double need = (double)src_bytes + (double)dst_bytes, have = cli_memory_free();
    *m = (bench_memory){.size = size};
    if (need <= have) {
        m->blocks[0] = block_new(src_bytes);
        m->blocks[1] = block_new(dst_bytes);
    }
    if (!m->blocks[0] || !m->blocks[1]) {
        bench_memory_free(m);
        cli_size_text(text, size);
        if (need > have)
            cli_warn("size %s is left out: it needs %.2f GB of memory, and %.2f GB are free", text,
                     need / 1e9, have / 1e9);
        else
            cli_warn("size %s is left out: its %.2f GB of memory are refused", text, need / 1e9);
        return false;
    }
    m->src = m->blocks[0];
    m->dst = (unsigned char *)m->blocks[1] + APART;
    fill(m->blocks[0], src_bytes);
    fill(m->blocks[1], dst_bytes);
    return true;
}

void bench_memory_free(bench_memory *m)
{
    free(m->blocks[0]);
    free(m->blocks[1]);
    *m = (bench_memory){0};
}

/* ---- loops ---- */

static atomic_ullong sink; /* what was read goes here, so that it is read */

/* A factor that no compiler knows. */
static float one(void)
{
    static volatile float value = 1;
    return value;
}

static void read_c(unsigned char *dst, unsigned char *src, size_t n)
{
    const uint64_t *const x = (const uint64_t *)(const void *)src;
    uint64_t a[8] = {0};
    (void)dst;
    for (size_t i = 0; i < n / 8; i += 8)
        for (size_t k = 0; k < 8; k++)
            a[k] |= x[i + k];
    atomic_store_explicit(&sink, a[0] | a[1] | a[2] | a[3] | a[4] | a[5] | a[6] | a[7],
                          memory_order_relaxed);
}

static void in_place_c(unsigned char *dst, unsigned char *src, size_t n)
{
    float *const x = (float *)(void *)src;
    const float c = one();
    (void)dst;
    for (size_t i = 0; i < n / 4; i++)
        x[i] *= c;
}

static void memcpy_c(unsigned char *dst, unsigned char *src, size_t n) { memcpy(dst, src, n); }

static void copy_c(unsigned char *restrict dst, unsigned char *restrict src, size_t n)
{
    uint64_t *const y = (uint64_t *)(void *)dst;
    const uint64_t *const x = (const uint64_t *)(const void *)src;
    for (size_t i = 0; i < n / 8; i++)
        y[i] = x[i] | 1; /* not a copy, or compilers would call memcpy */
}

static void add_c(unsigned char *restrict dst, unsigned char *restrict src, size_t n)
{
    float *const y = (float *)(void *)dst;
    const float *const x = (const float *)(const void *)src;
    for (size_t i = 0; i < n / 4; i++)
        y[i] += x[i];
}

/* Philox4x32-10 in lanes of 64 bits, a block in each: the even ones and the odd ones of a group in
 * turn, whose words then share a lane. A lane of PRODUCT is the product of two low halves. */
#define PHILOX_LOOP(name, target, vector, PRODUCT)                                         \
    target static void name(unsigned char *dst, unsigned char *src, size_t n)              \
    {                                                                                      \
        enum { LANES = sizeof(vector) / sizeof(uint64_t) };                                \
        const vector none = {0}, m0 = none + 0xD2511F53, m1 = none + 0xCD9E8D57;           \
        vector first = none, all = none;                                                   \
        (void)dst, (void)src;                                                              \
        for (uint64_t l = 0; l < LANES; l++)                                               \
            first[l] = 2 * l;                                                              \
        for (uint64_t block = 0; block < n / 16; block += 2 * LANES) {                     \
            vector c[2][4] = {{first + block, none, none, none},                           \
                              {first + block + 1, none, none, none}};                      \
            uint32_t k0 = 1, k1 = 2;                                                       \
            _Pragma("GCC unroll 10") for (int round = 0; round < 10; round++)              \
            {                                                                              \
                _Pragma("GCC unroll 2") for (int odd = 0; odd < 2; odd++)                  \
                {                                                                          \
                    const vector p0 = PRODUCT(c[odd][0], m0), p1 = PRODUCT(c[odd][2], m1); \
                    c[odd][0] = (p1 >> 32) ^ c[odd][1] ^ k0;                               \
                    c[odd][2] = (p0 >> 32) ^ c[odd][3] ^ k1;                               \
                    c[odd][1] = p1;                                                        \
                    c[odd][3] = p0;                                                        \
                }                                                                          \
                k0 += 0x9E3779B9;                                                          \
                k1 += 0xBB67AE85;                                                          \
            }                                                                              \
            _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) all ^=                     \
                (c[0][k] & 0xFFFFFFFF) | c[1][k] << 32;                                    \
        }                                                                                  \
        atomic_store_explicit(&sink, all[0] ^ all[LANES - 1], memory_order_relaxed);       \
    }

typedef uint64_t v2 __attribute__((vector_size(16)));
#define PRODUCT_C(a, b) (((a)&0xFFFFFFFF) * (b))
PHILOX_LOOP(philox_c, , v2, PRODUCT_C)

#if defined(__x86_64__)
#define AVX2   __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f")))

AVX2 static void read_avx2(unsigned char *dst, unsigned char *src, size_t n)
{
    const __m256i *x = (const __m256i *)(const void *)src;
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    (void)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 8) {
        a = _mm256_or_si256(a, _mm256_or_si256(x[i], x[i + 1]));
        b = _mm256_or_si256(b, _mm256_or_si256(x[i + 2], x[i + 3]));
        c = _mm256_or_si256(c, _mm256_or_si256(x[i + 4], x[i + 5]));
        d = _mm256_or_si256(d, _mm256_or_si256(x[i + 6], x[i + 7]));
    }
    a = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
    atomic_store_explicit(&sink, (uint64_t)_mm256_extract_epi64(a, 0), memory_order_relaxed);
}

AVX2 static void in_place_avx2(unsigned char *dst, unsigned char *src, size_t n)
{
    __m256 *x = (__m256 *)(void *)src;
    const __m256 c = _mm256_set1_ps(one());
    (void)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 4) {
        x[i] = _mm256_mul_ps(x[i], c);
        x[i + 1] = _mm256_mul_ps(x[i + 1], c);
        x[i + 2] = _mm256_mul_ps(x[i + 2], c);
        x[i + 3] = _mm256_mul_ps(x[i + 3], c);
    }
}

AVX2 static void copy_avx2(unsigned char *dst, unsigned char *src, size_t n)
{
    const __m256i *x = (const __m256i *)(const void *)src;
    __m256i *y = (__m256i *)(void *)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 4) {
        _mm256_store_si256(y + i, _mm256_load_si256(x + i));
        _mm256_store_si256(y + i + 1, _mm256_load_si256(x + i + 1));
        _mm256_store_si256(y + i + 2, _mm256_load_si256(x + i + 2));
        _mm256_store_si256(y + i + 3, _mm256_load_si256(x + i + 3));
    }
}

AVX2 static void stream_avx2(unsigned char *dst, unsigned char *src, size_t n)
{
    const __m256i *x = (const __m256i *)(const void *)src;
    __m256i *y = (__m256i *)(void *)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 4) {
        _mm256_stream_si256(y + i, _mm256_load_si256(x + i));
        _mm256_stream_si256(y + i + 1, _mm256_load_si256(x + i + 1));
        _mm256_stream_si256(y + i + 2, _mm256_load_si256(x + i + 2));
        _mm256_stream_si256(y + i + 3, _mm256_load_si256(x + i + 3));
    }
    _mm_sfence();
}

AVX2 static void add_avx2(unsigned char *dst, unsigned char *src, size_t n)
{
    const __m256 *x = (const __m256 *)(const void *)src;
    __m256 *y = (__m256 *)(void *)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 4) {
        y[i] = _mm256_add_ps(y[i], x[i]);
        y[i + 1] = _mm256_add_ps(y[i + 1], x[i + 1]);
        y[i + 2] = _mm256_add_ps(y[i + 2], x[i + 2]);
        y[i + 3] = _mm256_add_ps(y[i + 3], x[i + 3]);
    }
}

AVX512 static __m512i or4(__m512i a, const __m512i *x)
{
    return _mm512_or_si512(_mm512_or_si512(a, _mm512_or_si512(x[0], x[1])),
                           _mm512_or_si512(x[2], x[3]));
}

AVX512 static void sink_avx512(__m512i a, __m512i b, __m512i c, __m512i d)
{
    a = _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d));
    atomic_store_explicit(&sink, (uint64_t)_mm512_reduce_or_epi64(a), memory_order_relaxed);
}

AVX512 static void read_avx512(unsigned char *dst, unsigned char *src, size_t n)
{
    const __m512i *x = (const __m512i *)(const void *)src;
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    (void)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 16) {
        a = or4(a, x + i);
        b = or4(b, x + i + 4);
        c = or4(c, x + i + 8);
        d = or4(d, x + i + 12);
    }
    sink_avx512(a, b, c, d);
}

/* With the lines of the next page prefetched. */
AVX512 static void read_prefetch_avx512(unsigned char *dst, unsigned char *src, size_t n)
{
    const __m512i *x = (const __m512i *)(const void *)src;
    __m512i a = _mm512_setzero_si512(), b = a;
    (void)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 8) {
        for (size_t k = 0; k < 8; k++)
            _mm_prefetch((const char *)(x + i + k) + PAGE, _MM_HINT_T0);
        a = or4(a, x + i);
        b = or4(b, x + i + 4);
    }
    sink_avx512(a, b, a, b);
}

/* Four places at a time. */
AVX512 static void read_four_avx512(unsigned char *dst, unsigned char *src, size_t n)
{
    const size_t quarter = n / sizeof(__m512i) / 4;
    const __m512i *x = (const __m512i *)(const void *)src, *y = x + quarter, *z = y + quarter,
                  *w = z + quarter;
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    (void)dst;
    for (size_t i = 0; i < quarter; i += 2) {
        a = _mm512_or_si512(a, _mm512_or_si512(x[i], x[i + 1]));
        b = _mm512_or_si512(b, _mm512_or_si512(y[i], y[i + 1]));
        c = _mm512_or_si512(c, _mm512_or_si512(z[i], z[i + 1]));
        d = _mm512_or_si512(d, _mm512_or_si512(w[i], w[i + 1]));
    }
    sink_avx512(a, b, c, d);
}

AVX512 static void in_place_avx512(unsigned char *dst, unsigned char *src, size_t n)
{
    __m512 *x = (__m512 *)(void *)src;
    const __m512 c = _mm512_set1_ps(one());
    (void)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 4) {
        x[i] = _mm512_mul_ps(x[i], c);
        x[i + 1] = _mm512_mul_ps(x[i + 1], c);
        x[i + 2] = _mm512_mul_ps(x[i + 2], c);
        x[i + 3] = _mm512_mul_ps(x[i + 3], c);
    }
}

AVX512 static void copy_avx512(unsigned char *dst, unsigned char *src, size_t n)
{
    const __m512i *x = (const __m512i *)(const void *)src;
    __m512i *y = (__m512i *)(void *)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 4) {
        _mm512_store_si512(y + i, _mm512_load_si512(x + i));
        _mm512_store_si512(y + i + 1, _mm512_load_si512(x + i + 1));
        _mm512_store_si512(y + i + 2, _mm512_load_si512(x + i + 2));
        _mm512_store_si512(y + i + 3, _mm512_load_si512(x + i + 3));
    }
}

AVX512 static void stream_avx512(unsigned char *dst, unsigned char *src, size_t n)
{
    const __m512i *x = (const __m512i *)(const void *)src;
    __m512i *y = (__m512i *)(void *)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 4) {
        _mm512_stream_si512(y + i, _mm512_load_si512(x + i));
        _mm512_stream_si512(y + i + 1, _mm512_load_si512(x + i + 1));
        _mm512_stream_si512(y + i + 2, _mm512_load_si512(x + i + 2));
        _mm512_stream_si512(y + i + 3, _mm512_load_si512(x + i + 3));
    }
    _mm_sfence();
}

AVX512 static void add_avx512(unsigned char *dst, unsigned char *src, size_t n)
{
    const __m512 *x = (const __m512 *)(const void *)src;
    __m512 *y = (__m512 *)(void *)dst;
    for (size_t i = 0; i < n / sizeof *x; i += 4) {
        y[i] = _mm512_add_ps(y[i], x[i]);
        y[i + 1] = _mm512_add_ps(y[i + 1], x[i + 1]);
        y[i + 2] = _mm512_add_ps(y[i + 2], x[i + 2]);
        y[i + 3] = _mm512_add_ps(y[i + 3], x[i + 3]);
    }
}
#endif

#if defined(__x86_64__)
typedef uint64_t v4 __attribute__((vector_size(32)));
typedef uint64_t v8 __attribute__((vector_size(64)));
#define PRODUCT_AVX2(a, b)   (v4) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#define PRODUCT_AVX512(a, b) (v8) _mm512_mul_epu32((__m512i)(a), (__m512i)(b))
PHILOX_LOOP(philox_avx2, AVX2, v4, PRODUCT_AVX2)
PHILOX_LOOP(philox_avx512, AVX512, v8, PRODUCT_AVX512)
#endif

/* A slower set is left out where a faster one is there, but for reading: it is not always slower.
 */
const bench_loop bench_loops[] = {
#if defined(__x86_64__)
    {BENCH_READ, "avx512", GS_CPU_AVX512, 0, read_avx512},
    {BENCH_READ, "avx512, prefetch", GS_CPU_AVX512, 0, read_prefetch_avx512},
    {BENCH_READ, "avx512, 4 places", GS_CPU_AVX512, 0, read_four_avx512},
    {BENCH_READ, "avx2", GS_CPU_AVX2, 0, read_avx2},
    {BENCH_IN_PLACE, "avx512", GS_CPU_AVX512, 0, in_place_avx512},
    {BENCH_IN_PLACE, "avx2", GS_CPU_AVX2, GS_CPU_AVX512, in_place_avx2},
    {BENCH_COPY, "avx512", GS_CPU_AVX512, 0, copy_avx512},
    {BENCH_COPY, "avx2", GS_CPU_AVX2, GS_CPU_AVX512, copy_avx2},
    {BENCH_STREAM, "avx512", GS_CPU_AVX512, 0, stream_avx512},
    {BENCH_STREAM, "avx2", GS_CPU_AVX2, GS_CPU_AVX512, stream_avx2},
    {BENCH_ADD, "avx512", GS_CPU_AVX512, 0, add_avx512},
    {BENCH_ADD, "avx2", GS_CPU_AVX2, GS_CPU_AVX512, add_avx2},
    {BENCH_PHILOX, "avx512", GS_CPU_AVX512, 0, philox_avx512},
    {BENCH_PHILOX, "avx2", GS_CPU_AVX2, GS_CPU_AVX512, philox_avx2},
#endif
    {BENCH_READ, "c", 0, GS_CPU_AVX2, read_c},
    {BENCH_IN_PLACE, "c", 0, GS_CPU_AVX2, in_place_c},
    {BENCH_MEMCPY, "libc", 0, 0, memcpy_c},
    {BENCH_COPY, "c", 0, GS_CPU_AVX2, copy_c},
    {BENCH_ADD, "c", 0, GS_CPU_AVX2, add_c},
    {BENCH_PHILOX, "c", 0, GS_CPU_AVX2, philox_c},
    {0}};

static const struct {
    const char *name;
    size_t src, dst, traffic;
} limits[] = {
#define X(id, name, src, dst, traffic, what) {name, src, dst, traffic},
    BENCH_LIMITS(X)
#undef X
};

const char *bench_limit_name(bench_limit limit) { return limits[limit].name; }

/* ---- threads ---- */

typedef struct member {
    bench_team *team;
    unsigned number;
    pthread_t thread;
    double start, end; /* of its part */
} member;

struct bench_team {
    unsigned threads; /* the caller counted */
    pthread_barrier_t ready, done;
    const bench_loop *loop; /* NULL: go home */
    unsigned char *dst, *src;
    size_t pages; /* of the source, and of the destination if the loop has one */
    unsigned passes;
    member members[];
};

static void run_part(member *m)
{
    const bench_team *t = m->team;
    const size_t first = t->pages * m->number / t->threads * PAGE;
    const size_t end = t->pages * (m->number + 1) / t->threads * PAGE;
    m->start = gs_clock();
    for (unsigned i = 0; i < t->passes; i++)
        t->loop->run(t->dst + first, t->src + first, end - first);
    m->end = gs_clock();
}

static void *live(void *arg)
{
    member *m = arg;
    for (;;) {
        pthread_barrier_wait(&m->team->ready);
        if (!m->team->loop)
            return NULL;
        run_part(m);
        pthread_barrier_wait(&m->team->done);
    }
}

/* The barriers count the caller and `threads` - 1 others. */
bench_team *bench_team_new(unsigned threads)
{
    bench_team *t = cli_resize(NULL, sizeof *t + threads * sizeof t->members[0]);
    *t = (bench_team){.threads = threads};
    pthread_barrier_init(&t->ready, NULL, threads);
    pthread_barrier_init(&t->done, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        t->members[i] = (member){.team = t, .number = i};
        if (i > 0 && pthread_create(&t->members[i].thread, NULL, live, &t->members[i]) != 0)
            return NULL; /* those started wait for good: the program ends soon */
    }
    return t;
}

void bench_team_free(bench_team *t)
{
    if (!t)
        return;
    t->loop = NULL;
    pthread_barrier_wait(&t->ready);
    for (unsigned i = 1; i < t->threads; i++)
        pthread_join(t->members[i].thread, NULL);
    pthread_barrier_destroy(&t->done);
    pthread_barrier_destroy(&t->ready);
    free(t);
}

double bench_team_run(bench_team *t, const bench_loop *loop, const bench_memory *memory,
                      unsigned passes, double *traffic)
{
    t->loop = loop;
    t->dst = memory->dst;
    t->src = memory->src;
    t->pages = memory->size / (limits[loop->limit].src + limits[loop->limit].dst) / PAGE;
    t->passes = passes;
    *traffic = (double)(t->pages * PAGE * limits[loop->limit].traffic);

    pthread_barrier_wait(&t->ready);
    run_part(&t->members[0]);
    pthread_barrier_wait(&t->done);
    double start = t->members[0].start, end = t->members[0].end;
    for (unsigned i = 1; i < t->threads; i++) {
        start = t->members[i].start < start ? t->members[i].start : start;
        end = t->members[i].end > end ? t->members[i].end : end;
    }
    return end - start;
}
