#include "kernel/kernel.h"

#include <math.h>

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
    if (from->amax > into->amax)
        into->amax = from->amax;
    into->sumsq += from->sumsq;
    if (from->bad_tensor < into->bad_tensor ||
        (from->bad_tensor == into->bad_tensor && from->bad_index < into->bad_index)) {
        into->bad_tensor = from->bad_tensor;
        into->bad_index = from->bad_index;
    }
}

int gs_stats_finite(const gs_stats *stats) { return stats->inf == 0 && stats->nan == 0; }

/* With u the smallest subnormal, nearest even sends up to u / 2 to zero, and from half a step
 * below the smallest normal up to that normal. */
gsi_limits gsi_limits_of(gs_dtype half)
{
    const gs_format *f = gs_format_of(half);
    const float to_zero = (float)(f->min_subnormal / 2);
    const float to_normal = (float)(f->min_normal - f->min_subnormal / 2);
    return (gsi_limits){gsi_bits(to_zero) + 1, gsi_bits(to_normal)};
}
