/* AVX-512: micro-tiles of 14 by 32, 28 sums in registers, two of b and one element of a. */
#include "kernel/dispatch.h"

#if defined(__x86_64__)
#define MR           14
#define NR           32
#define A_LD         16
#define DEPTH        1
#define SKINNY_MR    8
#define SKINNY_WIDE  0
#define STEP         4
#define PREFETCH_A   1
#define IN_PLACE     12
#define HALF_COLUMNS 32
#define CPU          GS_CPU_AVX512
/* Three blocks of 18 panels take 1.3 MB of the 2 MB of L2: then a k of 1024, the rows of a usual
 * batch, needs no sums kept for more than a strip, which cost 5%. */
#define L2_PANELS   54
#define TILE_PANELS 76
#define TILE_STRIPS 24
#define KC_BLOCKS   3
#include "kernel/gemm/avx512.h"

/* A multiplication that reads its element of a itself is one instruction less, and one read more
 * for the second vector of b. Alone on a core either will do; where another thread shares it, which
 * takes half of the instructions per cycle and some of the reads, this mixture gains 12%.
 * (Compilers make one read of two, hence the asm.) */
#define OWN_ADD_ROW
INLINE void add_row(vf *s, const float *x, const vf *y, const size_t vecs, const size_t row)
{
    enum { READ_TWICE = 10 };
    UNROLL for (size_t v = 0; v < vecs; v++)
    {
        if (row >= READ_TWICE)
            s[v] = mul_add(splat(*x), y[v], s[v]);
        else
            __asm__("vfmadd231ps {%2%{1to16%}, %1, %0|%0, %1, %2%{1to16%}}"
                    : "+v"(s[v])
                    : "v"(y[v]), "m"(*x));
    }
}

#include "kernel/gemm/tmpl.h"

void gsi_gemm_avx512(gsi_kernels *k) { gsi_gemm_use(k, &isa); }
#endif
