/* levels.h: the instruction sets that a suite can run here. */
#ifndef LEVELS_H
#define LEVELS_H

#include "test.h"

#include "gradscale/exponents.h"

/* Those of `levels` that this build has kernels for and gs_cpu_detect() finds. One that this CPU
 * lacks is a skip, named once per suite. */
static inline unsigned levels_among(unsigned levels)
{
#if defined(__x86_64__)
    const unsigned built =
        levels & (GS_CPU_AVX2 | GS_CPU_AVX512 | GS_CPU_AVX512BF16 | GS_CPU_AVX512VNNI);
#elif defined(__aarch64__)
    const unsigned built = levels & GS_CPU_NEON;
#else
    const unsigned built = levels & 0;
#endif
    static unsigned named;
    const unsigned have = gs_cpu_detect(), absent = built & ~have & ~named;
    named |= absent;
    for (unsigned cpu = 1; cpu <= absent; cpu <<= 1)
        if (absent & cpu)
            test_skip_part(gs_cpu_name(cpu), "this CPU has no such instructions");
    return have & built;
}

/* Every family has kernels for these, matrix products for one more, those of INT8 for another. */
static inline unsigned cpu_levels(void)
{
    return levels_among(~(unsigned)(GS_CPU_AVX512BF16 | GS_CPU_AVX512VNNI));
}
static inline unsigned gemm_levels(void) { return levels_among(~(unsigned)GS_CPU_AVX512VNNI); }
static inline unsigned int8_levels(void) { return levels_among(~(unsigned)GS_CPU_AVX512BF16); }

/* A level, and those it stands on. */
static inline unsigned level_cpus(unsigned flag)
{
    return flag & (GS_CPU_AVX512BF16 | GS_CPU_AVX512VNNI) ? flag | GS_CPU_AVX512 : flag;
}

#endif
