/* A pass while it runs: what tensors.c describes and run.c does. */
#ifndef GSI_KERNEL_PASS_RUN_H
#define GSI_KERNEL_PASS_RUN_H

#include "kernel/pass/chunks.h"

#include <stdatomic.h>

typedef struct gsi_pass_run gsi_pass_run;

/* What a chunk leaves. */
typedef struct gsi_chunk_result {
    gsi_counts counts;
    double sumsq;
} gsi_chunk_result;

/* Runs the kernel on a chunk, which lies at dst and src, and returns the largest magnitude read or
 * written. A pass that takes the sum of squares sets it; one that overwrites what it is asked about
 * counts, at least where something is not finite. */
typedef uint32_t gsi_chunk_fn(const gsi_pass_run *p, gsi_span at, void *dst, const void *src,
                              gsi_chunk_result *out);

struct gsi_pass_run {
    gs_context *ctx;
    gsi_chunk_fn *run;
    const gs_tensor *dst; /* what is checked: written or, in a pass that only reads, src */
    const gs_tensor *src;
    size_t n;
    bool writes;
    float factor;
    uint64_t seed;
    gs_dtype half;
    bool stream;
    bool has_counted; /* run has: of all elements, or of what it has overwritten */
    gsi_limits limits;
    atomic_ullong *words; /* those of a gs_exponents */

    gsi_cut cut;             /* of dst */
    gsi_chunk_result *slots; /* one per chunk */
};

/* each[n], or all of the list in each[0] where `together`. */
gs_status gsi_run_pass(gsi_pass_run *p, gs_stats *each, bool together);

#endif
