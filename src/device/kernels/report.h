/* The hash of a report: the host sees by it whether all of one has arrived. */
#ifndef GSI_DEVICE_REPORT_H
#define GSI_DEVICE_REPORT_H

#include "device/kernels/types.h"

DEVICE uint64_t gsd_mix(uint64_t h, uint64_t x) { return (h ^ x) * UINT64_C(0x100000001B3); }

DEVICE uint64_t gsd_report_hash(const GLOBAL gsd_report *r)
{
    uint64_t h = gsd_mix(UINT64_C(0xCBF29CE484222325), r->step);
    h = gsd_mix(h, gsd_bits64(r->scale));
    h = gsd_mix(h, gsd_bits64(r->next_scale));
    h = gsd_mix(h, gsd_bits64(r->norm));
    h = gsd_mix(h, gsd_bits64(r->clip));
    h = gsd_mix(h, gsd_bits64(r->lr));
    h = gsd_mix(h, r->stats.elements);
    h = gsd_mix(h, r->stats.inf);
    h = gsd_mix(h, r->stats.nan);
    h = gsd_mix(h, r->stats.zero);
    h = gsd_mix(h, r->stats.subnormal);
    h = gsd_mix(h, r->stats.underflow);
    h = gsd_mix(h, gsd_bits(r->stats.amax));
    h = gsd_mix(h, gsd_bits64(r->stats.sumsq));
    h = gsd_mix(h, r->stats.bad_tensor);
    h = gsd_mix(h, r->stats.bad_index);
    return gsd_mix(h, (uint64_t)r->action << 32 | r->reason << 8 | r->exhausted);
}

#endif
