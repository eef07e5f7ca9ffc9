/* The optimizers with AVX-512, for Intel's cores. */
#include "kernel/dispatch.h"

#if defined(__x86_64__)
#include "kernel/simd/avx512_random.h"

#define KERNEL(name) name##_avx512
#define FAMILY(name) avx512_##name
#define FETCH_AHEAD  4096

#include "kernel/optim/tmpl_avx512.h"
#include "kernel/optim/tmpl.h"

#undef KERNEL
#undef FAMILY
#undef FETCH_AHEAD
#endif
