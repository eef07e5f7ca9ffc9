/* What a CPU is taken to have. The table of kernels: every row of every list is there, and each
 * level of the ladder overrides what is below it. */
#include "levels.h"
#include "test.h"

#include "kernel/context.h"

#include <stdio.h>

static int differs(const void *a, const void *b, size_t bytes) { return memcmp(a, b, bytes) != 0; }

#if defined(__x86_64__)
/* Whether a word is in a line of them. */
static bool has(const char *line, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = line; (at = strstr(at, word)) != NULL; at += n)
        if (at > line && at[-1] == ' ' && (at[n] == ' ' || at[n] == '\n'))
            return true;
    return false;
}
#endif

/* A level is there if the kernel knows all that it needs, which it saves on a context switch. */
static void test_detected(void)
{
#if defined(__x86_64__)
#define F512 "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl"
    static const struct {
        unsigned cpu;
        const char *needs[9];
    } levels[] = {{GS_CPU_AVX2, {"avx2", "fma", "f16c"}},
                  {GS_CPU_AVX512, {F512}},
                  {GS_CPU_AVX512BF16, {F512, "avx512_bf16"}},
                  {GS_CPU_AVX512VNNI, {F512, "avx512_vnni"}}};
    static char line[16384];
    unsigned want = 0;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f) && strncmp(line, "flags", 5) != 0)
        ;
    if (f)
        fclose(f);
    if (strncmp(line, "flags", 5) != 0)
        SKIP("/proc/cpuinfo has no flags");
    for (size_t l = 0; l < GSI_COUNT(levels); l++) {
        bool all = true;
        for (size_t i = 0; levels[l].needs[i]; i++)
            all = all && has(line, levels[l].needs[i]);
        want |= all ? levels[l].cpu : 0;
    }
    CHECK_MSG(gs_cpu_detect() == want, "%#x, not %#x", gs_cpu_detect(), want);
#elif defined(__aarch64__)
    CHECK(gs_cpu_detect() == GS_CPU_NEON);
#else
    CHECK(gs_cpu_detect() == 0);
#endif
}

static void test_complete(void)
{
    for (unsigned cpu = 0; cpu < 1u << GS_CPU_COUNT; cpu++) {
        gsi_kernels k;
        if (((gemm_levels() | int8_levels()) & cpu) != cpu)
            continue;
        gsi_kernels_init(&k, cpu);
#define X(name, family, from, to) CHECK(k.pass.GSI_SLOT_##family(from, to) != NULL);
        GS_KERNELS(X)
#undef X
#define X(name, family, from, to) CHECK(k.optim.GSI_SLOT_##family(from, to) != NULL);
        GS_OPTIM_KERNELS(X)
#undef X
#define X(name, family) CHECK(k.rows.name != NULL);
        GS_ROW_KERNELS(X)
#undef X
        for (int a = 0; a < GSI_TYPES; a++)
            for (int b = 0; b < GSI_TYPES; b++)
                CHECK(k.gemm[a][b] && (k.gemm[a][b]->cpu & cpu) == k.gemm[a][b]->cpu);
        CHECK(k.int8 && (k.int8->cpu & cpu) == k.int8->cpu);
    }
}

static void test_levels(void)
{
    gsi_kernels below, one;
    gsi_kernels_init(&below, 0);
    for (unsigned cpu = 1; cpu < 1u << GS_CPU_COUNT; cpu <<= 1) {
        if (!(cpu_levels() & cpu))
            continue;
        gsi_kernels_init(&one, cpu);
        CHECK_MSG(differs(&one.pass, &below.pass, sizeof one.pass), "%s", gs_cpu_name(cpu));
        CHECK_MSG(differs(&one.optim, &below.optim, sizeof one.optim), "%s", gs_cpu_name(cpu));
        CHECK_MSG(differs(&one.rows, &below.rows, sizeof one.rows), "%s", gs_cpu_name(cpu));
        CHECK_MSG(one.gemm[GS_F32][GS_F16]->cpu == cpu, "%s", gs_cpu_name(cpu));
        CHECK_MSG(one.int8->cpu == cpu, "%s", gs_cpu_name(cpu));
        below = one;
    }
    gsi_kernels_init(&one, cpu_levels()); /* the highest has its say */
    CHECK(one.gemm[GS_F32][GS_F32] == below.gemm[GS_F32][GS_F32]);
    CHECK(!differs(&one.optim, &below.optim, sizeof one.optim));
}

/* One entry of one family is for pairs of bf16, on top of AVX-512 and not without it. */
static void test_bf16(void)
{
    gsi_kernels all, without;
    if (!(gemm_levels() & GS_CPU_AVX512BF16))
        SKIP("this CPU has no unit for bf16");
    gsi_kernels_init(&all, GS_CPU_AVX512 | GS_CPU_AVX512BF16);
    gsi_kernels_init(&without, GS_CPU_AVX512);
    CHECK(all.gemm[GS_BF16][GS_BF16]->cpu == GS_CPU_AVX512BF16);
    all.gemm[GS_BF16][GS_BF16] = without.gemm[GS_BF16][GS_BF16];
    CHECK(!differs(&all, &without, sizeof all));
    gsi_kernels_init(&all, GS_CPU_AVX512BF16);
    gsi_kernels_init(&without, 0);
    CHECK(!differs(&all, &without, sizeof all));
}

/* VNNI is for INT8 alone, and stands on AVX-512. */
static void test_vnni(void)
{
    gsi_kernels all, without;
    if (!(int8_levels() & GS_CPU_AVX512VNNI))
        SKIP("this CPU has no VNNI");
    gsi_kernels_init(&all, GS_CPU_AVX512 | GS_CPU_AVX512VNNI);
    gsi_kernels_init(&without, GS_CPU_AVX512);
    CHECK(all.int8->cpu == GS_CPU_AVX512VNNI && all.int8->depth == 4);
    all.int8 = without.int8;
    CHECK(!differs(&all, &without, sizeof all));
    gsi_kernels_init(&all, GS_CPU_AVX512VNNI);
    gsi_kernels_init(&without, 0);
    CHECK(!differs(&all, &without, sizeof all));
}

static void test_mask(void)
{
    gs_context *ctx;
    const gs_config config = {.size = sizeof config, .threads = 1, .without_cpu = ~0u};
    CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
    gsi_kernels reference;
    gsi_kernels_init(&reference, 0);
    CHECK(gs_context_cpu(ctx) == 0);
    CHECK(!differs(&ctx->kernels, &reference, sizeof reference));
    gs_context_free(ctx);
}

TESTS({"detected", test_detected}, {"complete", test_complete}, {"levels", test_levels},
      {"bf16", test_bf16}, {"vnni", test_vnni}, {"mask", test_mask})
