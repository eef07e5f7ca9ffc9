/* Which kernels run: what the CPU offers, and the table filled up to there. */
#include "kernel/kernel.h"

#if defined(__x86_64__)
#include <cpuid.h>

/* State the operating system saves on a context switch; without it the registers are not ours. */
static uint64_t xcr0(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

unsigned gs_cpu_detect(void)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, F16C = 1 << 29 };       /* 1: ecx */
    enum { AVX2 = 1 << 5, F = 1 << 16, DQ = 1 << 17, BW = 1 << 30 }; /* 7: ebx */
    const unsigned VL = 1u << 31, YMM = 0x06, ZMM = 0xE6;            /* xcr0 */
    const unsigned need1 = FMA | OSXSAVE | F16C, need512 = AVX2 | F | DQ | BW | VL;
    unsigned a, b, c, d, ebx7;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need1) != need1)
        return 0;
    if (!__get_cpuid_count(7, 0, &a, &ebx7, &c, &d))
        return 0;
    const uint64_t saved = xcr0();
    unsigned cpu = 0;
    if ((ebx7 & AVX2) && (saved & YMM) == YMM)
        cpu |= GS_CPU_AVX2;
    if ((ebx7 & need512) == need512 && (saved & ZMM) == ZMM)
        cpu |= GS_CPU_AVX512;
    return cpu;
}
#elif defined(__aarch64__)
unsigned gs_cpu_detect(void) { return GS_CPU_NEON; }
#else
unsigned gs_cpu_detect(void) { return 0; }
#endif

const char *gs_cpu_name(unsigned one_flag)
{
    static const char *const names[] = {
#define X(id, name) name,
        GS_CPUS(X)
#undef X
    };
    for (unsigned i = 0; i < GS_CPU_COUNT; i++)
        if (one_flag == 1u << i)
            return names[i];
    return NULL;
}

void gsi_kernels_init(gsi_kernels *k, unsigned cpu)
{
    *k = gsi_ref;
    if (cpu & GS_CPU_AVX2) {
        gsi_kernels_avx2(k);
        gsi_exponents_avx2(k);
    }
    if (cpu & GS_CPU_AVX512) {
        gsi_kernels_avx512(k);
        gsi_exponents_avx512(k);
    }
    if (cpu & GS_CPU_NEON)
        gsi_kernels_neon(k);
}

/* ---- rows by data type ---- */

gsi_check_fn *gsi_check_for(const gsi_kernels *k, gs_dtype dtype)
{
    return dtype == GS_F32 ? k->check_f32 : dtype == GS_F16 ? k->check_f16 : k->check_bf16;
}

gsi_scan_fn *gsi_scan_for(const gsi_kernels *k, gs_dtype dtype)
{
    return dtype == GS_F32 ? k->scan_f32 : dtype == GS_F16 ? k->scan_f16 : k->scan_bf16;
}

gsi_count_fn *gsi_count_for(const gsi_kernels *k, gs_dtype dtype)
{
    return dtype == GS_F32 ? k->count_f32 : dtype == GS_F16 ? k->count_f16 : k->count_bf16;
}

gsi_exponents_fn *gsi_exponents_for(const gsi_kernels *k, gs_dtype dtype)
{
    return dtype == GS_F32   ? k->exponents_f32
           : dtype == GS_F16 ? k->exponents_f16
                             : k->exponents_bf16;
}

gsi_axpy_fn *gsi_axpy_for(const gsi_kernels *k, gs_dtype from)
{
    return from == GS_F32 ? k->axpy_f32 : from == GS_F16 ? k->axpy_f16 : k->axpy_bf16;
}

gsi_scale_fn *gsi_scale_for(const gsi_kernels *k, gs_dtype to, gs_dtype from)
{
    gsi_scale_fn *const table[3][3] = {
        [GS_F32] =
            {[GS_F32] = k->scale_f32, [GS_F16] = k->scale_f16_f32, [GS_BF16] = k->scale_bf16_f32},
        [GS_F16] = {[GS_F16] = k->scale_f16},
        [GS_BF16] = {[GS_BF16] = k->scale_bf16},
    };
    return table[to][from];
}

gsi_convert_fn *gsi_convert_for(const gsi_kernels *k, gs_dtype to, gs_dtype from)
{
    gsi_convert_fn *const table[3][3] = {
        [GS_F32] = {[GS_F16] = k->f16_to_f32, [GS_BF16] = k->bf16_to_f32},
        [GS_F16] = {[GS_F32] = k->f32_to_f16, [GS_BF16] = k->bf16_to_f16},
        [GS_BF16] = {[GS_F32] = k->f32_to_bf16, [GS_F16] = k->f16_to_bf16},
    };
    return table[to][from];
}

gsi_stochastic_fn *gsi_stochastic_for(const gsi_kernels *k, gs_dtype to, gs_dtype from)
{
    gsi_stochastic_fn *const table[3][3] = {
        [GS_F16] = {[GS_F32] = k->f32_to_f16_sr, [GS_BF16] = k->bf16_to_f16_sr},
        [GS_BF16] = {[GS_F32] = k->f32_to_bf16_sr, [GS_F16] = k->f16_to_bf16_sr},
    };
    return table[to][from];
}
