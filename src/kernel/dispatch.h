/* The table of kernels that a context holds: one of each, for this CPU and any data type.
 *
 * It is filled once, from the reference up the ladder of instruction sets in dispatch.c: each level
 * overrides what it has. A new level is a file per family and a row of the ladder; a new kernel is
 * a row of its family's list (pass/pass.h, optim/optim.h, rows/rows.h). */
#ifndef GSI_KERNEL_DISPATCH_H
#define GSI_KERNEL_DISPATCH_H

#include "kernel/optim/optim.h"
#include "kernel/pass/pass.h"
#ifndef GSI_WITHOUT_ENGINE /* the amalgamation has passes and optimizers only */
#include "kernel/gemm/gemm.h"
#include "kernel/int8/int8.h"
#include "kernel/rows/rows.h"
#endif

typedef struct gsi_kernels {
    gsi_pass pass;
    gsi_optim_kernels optim;
#ifndef GSI_WITHOUT_ENGINE
    gsi_rows rows;
    const gsi_gemm_isa *gemm[GSI_TYPES][GSI_TYPES]; /* by the types of a and b */
    const gsi_int8_isa *int8;
#endif
} gsi_kernels;

/* Tuning, not results: whether this is a core of AMD's. */
bool gsi_cpu_is_amd(void);

/* cpu: gs_cpu flags; 0: the reference. */
void gsi_kernels_init(gsi_kernels *k, unsigned cpu);

#ifndef GSI_WITHOUT_ENGINE
/* For operands of any types. */
static inline void gsi_gemm_use(gsi_kernels *k, const gsi_gemm_isa *isa)
{
    for (int a = 0; a < GSI_TYPES; a++)
        for (int b = 0; b < GSI_TYPES; b++)
            k->gemm[a][b] = isa;
}
#endif

/* ---- what a family has for an instruction set; not there on other architectures ---- */

typedef void gsi_fill_fn(gsi_kernels *k);

gsi_fill_fn gsi_pass_ref, gsi_pass_avx2, gsi_pass_avx512, gsi_pass_neon;
gsi_fill_fn gsi_pass_avx512_amd;              /* in place of gsi_pass_avx512 */
gsi_fill_fn gsi_pass_f64, gsi_exponents_avx2; /* parts of the passes */
gsi_fill_fn gsi_optim_ref, gsi_optim_avx2, gsi_optim_avx512, gsi_optim_neon;
gsi_fill_fn gsi_optim_avx512_amd; /* in place of gsi_optim_avx512 */
gsi_fill_fn gsi_rows_ref, gsi_rows_avx2, gsi_rows_avx512, gsi_rows_neon;
gsi_fill_fn gsi_gemm_portable, gsi_gemm_avx2, gsi_gemm_avx512, gsi_gemm_avx512bf16, gsi_gemm_neon;
gsi_fill_fn gsi_int8_portable, gsi_int8_avx2, gsi_int8_avx512, gsi_int8_avx512vnni, gsi_int8_neon;

#endif
