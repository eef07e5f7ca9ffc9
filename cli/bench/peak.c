/* How fast this machine multiplies and adds: independent sums in registers, nothing else. */
#include "cli/bench/bench.h"

#include <math.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Sums kept apart so that none waits for another: 2 units, 4 to 5 cycles each. */
enum { SUMS = 12, STEPS = 2000 };

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* A number that no compiler knows. */
static float one(void)
{
    static const volatile float value = 1;
    return value;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void fma_avx512(unsigned char *dst, unsigned char *src,
                                                          size_t n)
{
    __m512 s[SUMS];
    const __m512 x = _mm512_set1_ps(one()), y = _mm512_set1_ps(0x1p-20f);
    (void)dst, (void)src, (void)n;
    UNROLL for (int i = 0; i < SUMS; i++) s[i] = _mm512_set1_ps((float)i);
    for (int step = 0; step < STEPS; step++)
        UNROLL for (int i = 0; i < SUMS; i++) s[i] = _mm512_fmadd_ps(s[i], x, y);
    UNROLL for (int i = 1; i < SUMS; i++) s[0] = _mm512_add_ps(s[0], s[i]);
    const volatile float used = _mm512_reduce_max_ps(s[0]);
    (void)used;
}

/* By asm: not every compiler that builds the rest knows the intrinsic's types. */
__attribute__((target("avx512f"))) static void dp_avx512bf16(unsigned char *dst, unsigned char *src,
                                                             size_t n)
{
    __m512 s[SUMS];
    const __m512i x = _mm512_set1_epi32(0x00800080 * (int)one()), y = _mm512_set1_epi32(0x3F803F80);
    (void)dst, (void)src, (void)n;
    UNROLL for (int i = 0; i < SUMS; i++) s[i] = _mm512_set1_ps((float)i);
    for (int step = 0; step < STEPS; step++)
        UNROLL for (int i = 0; i < SUMS;
                    i++) __asm__("vdpbf16ps {%2, %1, %0|%0, %1, %2}" : "+v"(s[i]) : "v"(x), "v"(y));
    UNROLL for (int i = 1; i < SUMS; i++) s[0] = _mm512_add_ps(s[0], s[i]);
    const volatile float used = _mm512_reduce_max_ps(s[0]);
    (void)used;
}

__attribute__((target("avx2,fma"))) static void fma_avx2(unsigned char *dst, unsigned char *src,
                                                         size_t n)
{
    __m256 s[SUMS];
    const __m256 x = _mm256_set1_ps(one()), y = _mm256_set1_ps(0x1p-20f);
    (void)dst, (void)src, (void)n;
    UNROLL for (int i = 0; i < SUMS; i++) s[i] = _mm256_set1_ps((float)i);
    for (int step = 0; step < STEPS; step++)
        UNROLL for (int i = 0; i < SUMS; i++) s[i] = _mm256_fmadd_ps(s[i], x, y);
    UNROLL for (int i = 1; i < SUMS; i++) s[0] = _mm256_add_ps(s[0], s[i]);
    const volatile float used = _mm256_cvtss_f32(s[0]);
    (void)used;
}
#elif defined(__aarch64__)
static void fma_neon(unsigned char *dst, unsigned char *src, size_t n)
{
    float32x4_t s[SUMS];
    const float32x4_t x = vdupq_n_f32(one()), y = vdupq_n_f32(0x1p-20f);
    (void)dst, (void)src, (void)n;
    UNROLL for (int i = 0; i < SUMS; i++) s[i] = vdupq_n_f32((float)i);
    for (int step = 0; step < STEPS; step++)
        UNROLL for (int i = 0; i < SUMS; i++) s[i] = vfmaq_f32(y, s[i], x);
    UNROLL for (int i = 1; i < SUMS; i++) s[0] = vaddq_f32(s[0], s[i]);
    const volatile float used = vmaxvq_f32(s[0]);
    (void)used;
}
#endif

/* The fastest first. A loop as bench_team_run runs them; it needs no memory. */
struct bench_peak {
    bench_loop loop;
    unsigned lanes; /* multiply-adds of an instruction */
    bool bf16;      /* of bf16 only */
};

static const bench_peak peaks[] = {
#if defined(__x86_64__)
    {{BENCH_READ, "avx512bf16", GS_CPU_AVX512BF16, 0, dp_avx512bf16}, 32, true},
    {{BENCH_READ, "avx512", GS_CPU_AVX512, 0, fma_avx512}, 16, false},
    {{BENCH_READ, "avx2", GS_CPU_AVX2, 0, fma_avx2}, 8, false},
#elif defined(__aarch64__)
    {{BENCH_READ, "neon", GS_CPU_NEON, 0, fma_neon}, 4, false},
#endif
    {{0}, 0, false}};

const bench_peak *bench_peak_of(unsigned cpu, gs_dtype type)
{
    for (const bench_peak *p = peaks; p->lanes; p++)
        if ((cpu & p->loop.needs) && (type == GS_BF16 || !p->bf16))
            return p;
    return NULL;
}

/* It runs for about as long as the work would take, a fifth of a second or so at most: the clock
 * rises and falls with what else the machine does, and the best of a short run would be the clock's
 * best. */
double bench_peak_run(const bench_peak *peak, bench_team *team, unsigned threads, double work)
{
    enum { LEAST = 100, MOST = 50000 };
    const bench_memory none = {.size = (size_t)threads * 4096};
    const double each = 2.0 * SUMS * STEPS * peak->lanes * threads;
    const unsigned passes = (unsigned)fmin(fmax(work / each, LEAST), MOST);
    double traffic;
    return work * bench_team_run(team, &peak->loop, &none, passes, &traffic) / (each * passes);
}
