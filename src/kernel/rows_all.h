/* All row kernels for one instruction set: a template, see rows_vec.h. */
#include "kernel/rows_vec.h"

#include "kernel/rows_map.h"
#include "kernel/rows_norm.h"
#include "kernel/rows_loss.h"
#include "kernel/rows_noise.h"
#include "kernel/rows_batch.h"
#include "kernel/rows_pool.h"

const gsi_rows KERNEL(gsi_rows) = {
#define X(name, family) .name = KERNEL(name),
    GS_ROW_KERNELS(X)
#undef X
};
