/* All row kernels for one instruction set: a template, see tmpl_vec.h. */
#include "kernel/dispatch.h"
#include "kernel/rows/tmpl_vec.h"

#include "kernel/rows/tmpl_map.h"
#include "kernel/rows/tmpl_norm.h"
#include "kernel/rows/tmpl_rotary.h"
#include "kernel/rows/tmpl_loss.h"
#include "kernel/rows/tmpl_noise.h"
#include "kernel/rows/tmpl_batch.h"
#include "kernel/rows/tmpl_pool.h"

void KERNEL(gsi_rows)(gsi_kernels *k)
{
#define X(name, family) k->rows.name = KERNEL(name);
    GS_ROW_KERNELS(X)
#undef X
}
