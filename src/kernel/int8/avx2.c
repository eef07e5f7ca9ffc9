/* INT8 products on AVX2: PMADDWD of int16, which is exact. */
#include "kernel/dispatch.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { MR = 6, VECS = 2, LANES = 8 };
typedef __m256i vec;

INLINE vec load(const void *p) { return _mm256_loadu_si256(p); }
INLINE void store(void *p, vec x) { _mm256_storeu_si256(p, x); }
INLINE vec every(uint32_t word) { return _mm256_set1_epi32((int)word); }
INLINE vec dot(vec sum, vec a, vec b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }

#include "kernel/int8/tmpl.h"

static const gsi_int8_isa isa = {
    .cpu = GS_CPU_AVX2, .mr = MR, .nr = NR, .depth = 2, .micro = micro};

void gsi_int8_avx2(gsi_kernels *k) { k->int8 = &isa; }

#endif
