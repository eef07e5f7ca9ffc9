/* The passes with AVX-512, for AMD's cores: on Zen 4 scaling in place gains a quarter without
 * software prefetch, a sum of squares two fifths. */
#include "kernel/dispatch.h"
#include "kernel/pass/exponents.h"

#if defined(__x86_64__)
#include "kernel/simd/avx512_random.h"

#define KERNEL(name) name##_avx512_amd
#define FAMILY(name) avx512_amd_##name
#define FETCH_AHEAD  0

#include "kernel/pass/tmpl_avx512.h"

#undef KERNEL
#undef FAMILY
#undef FETCH_AHEAD
#endif
