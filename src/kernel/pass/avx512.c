/* The passes with AVX-512, for Intel's cores: 2 to 4 KB of prefetch measure alike. */
#include "kernel/dispatch.h"
#include "kernel/pass/exponents.h"

#if defined(__x86_64__)
#include "kernel/simd/avx512_random.h"

#define KERNEL(name) name##_avx512
#define FAMILY(name) avx512_##name
#define FETCH_AHEAD  4096

#include "kernel/pass/tmpl_avx512.h"

#undef KERNEL
#undef FAMILY
#undef FETCH_AHEAD
#endif
