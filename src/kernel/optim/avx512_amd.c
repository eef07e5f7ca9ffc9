/* The optimizers with AVX-512, for AMD's cores: on Zen 4 AdamW gains a sixth without software
 * prefetch. */
#include "kernel/dispatch.h"

#if defined(__x86_64__)
#include "kernel/simd/avx512_random.h"

#define KERNEL(name) name##_avx512_amd
#define FAMILY(name) avx512_amd_##name
#define FETCH_AHEAD  0

#include "kernel/optim/tmpl_avx512.h"
#include "kernel/optim/tmpl.h"

#undef KERNEL
#undef FAMILY
#undef FETCH_AHEAD
#endif
