/* What the CPU and the operating system offer. */
#include "kernel/dispatch.h"

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
    enum { VNNI = 1 << 11 }; /* 7: ecx */
    enum { BF16 = 1 << 5 };  /* 7.1: eax */
    unsigned a, b, c, d, ebx7, ecx7, last7;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need1) != need1)
        return 0;
    if (!__get_cpuid_count(7, 0, &last7, &ebx7, &ecx7, &d))
        return 0;
    const uint64_t saved = xcr0();
    unsigned cpu = 0;
    if ((ebx7 & AVX2) && (saved & YMM) == YMM)
        cpu |= GS_CPU_AVX2;
    if ((ebx7 & need512) == need512 && (saved & ZMM) == ZMM)
        cpu |= GS_CPU_AVX512;
    if ((cpu & GS_CPU_AVX512) && last7 >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
        (a & BF16))
        cpu |= GS_CPU_AVX512BF16;
    if ((cpu & GS_CPU_AVX512) && (ecx7 & VNNI))
        cpu |= GS_CPU_AVX512VNNI;
    return cpu;
}

bool gsi_cpu_is_amd(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0, &a, &b, &c, &d) && b == 0x68747541 && d == 0x69746E65 &&
           c == 0x444D4163; /* "AuthenticAMD" */
}
#elif defined(__aarch64__)
unsigned gs_cpu_detect(void) { return GS_CPU_NEON; }
bool gsi_cpu_is_amd(void) { return false; }
#else
unsigned gs_cpu_detect(void) { return 0; }
bool gsi_cpu_is_amd(void) { return false; }
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
