/* levels.h: the instruction sets that a suite can run here. */
#ifndef LEVELS_H
#define LEVELS_H

#include "test.h"

#include "gradscale/exponents.h"

/* Those of gs_cpu_detect(). One that this build has kernels for and this CPU lacks is a skip, named
 * once per suite. */
static inline unsigned cpu_levels(void)
{
#if defined(__x86_64__)
    const unsigned built = GS_CPU_AVX2 | GS_CPU_AVX512;
#elif defined(__aarch64__)
    const unsigned built = GS_CPU_NEON;
#else
    const unsigned built = 0;
#endif
    static unsigned named;
    const unsigned have = gs_cpu_detect(), absent = built & ~have & ~named;
    named |= absent;
    for (unsigned cpu = 1; cpu <= absent; cpu <<= 1)
        if (absent & cpu)
            test_skip_part(gs_cpu_name(cpu), "this CPU has no such instructions");
    return have;
}

#endif
