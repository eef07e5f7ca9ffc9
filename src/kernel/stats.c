#include "kernel/fpenv.h"
#include "kernel/kernel.h"

void gs_stats_init(gs_stats *stats)
{
    *stats = (gs_stats){.bad_tensor = GS_NONE, .bad_index = GS_NONE};
}

void gs_stats_merge(gs_stats *into, const gs_stats *from)
{
    into->elements += from->elements;
    into->inf += from->inf;
    into->nan += from->nan;
    into->zero += from->zero;
    into->subnormal += from->subnormal;
    into->flushed += from->flushed;
    const uint64_t env = gsi_fpenv_enter();
    if (from->amax > into->amax)
        into->amax = from->amax;
    into->sumsq += from->sumsq;
    gsi_fpenv_leave(env);
    if (from->bad_tensor < into->bad_tensor ||
        (from->bad_tensor == into->bad_tensor && from->bad_index < into->bad_index)) {
        into->bad_tensor = from->bad_tensor;
        into->bad_index = from->bad_index;
    }
}

int gs_stats_finite(const gs_stats *stats) { return stats->inf == 0 && stats->nan == 0; }

/* The smallest magnitude that narrows to this code or a larger one. */
static uint32_t first_to_reach(uint32_t code, gsi_row row)
{
    uint32_t lo = 0, hi = GSI_F32_INF;
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (gsi_narrow(mid, row, GSI_NEAREST, false) < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Asked of the conversion itself: no formula to go wrong, no floating point for a mode to bend. */
gsi_limits gsi_limits_of(gs_dtype half)
{
    const gsi_row row = half == GS_F16 ? GSI_ROW_F16 : GSI_ROW_BF16;
    return (gsi_limits){first_to_reach(1, row), first_to_reach(1u << row.mbits, row)};
}
