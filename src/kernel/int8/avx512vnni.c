/* INT8 products on AVX512_VNNI: VPDPBUSD adds four products of bytes to each sum and does not
 * saturate. */
#include "kernel/dispatch.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { MR = 12, VECS = 2, LANES = 16 };
typedef __m512i vec;

INLINE vec load(const void *p) { return _mm512_loadu_si512(p); }
INLINE void store(void *p, vec x) { _mm512_storeu_si512(p, x); }
INLINE vec every(uint32_t word) { return _mm512_set1_epi32((int)word); }
INLINE vec dot(vec sum, vec a, vec b) { return _mm512_dpbusd_epi32(sum, a, b); }

#include "kernel/int8/tmpl.h"

static const gsi_int8_isa isa = {
    .cpu = GS_CPU_AVX512VNNI, .mr = MR, .nr = NR, .depth = 4, .micro = micro};

void gsi_int8_avx512vnni(gsi_kernels *k) { k->int8 = &isa; }

#endif
