#ifndef GSI_KERNEL_CONTEXT_H
#define GSI_KERNEL_CONTEXT_H

#include "kernel/dispatch.h"

#ifndef GSI_WITHOUT_ENGINE
#include <stdatomic.h>
#endif

struct gs_context {
    gsi_heap heap;
    gsi_kernels kernels;
    unsigned cpu;   /* what they were chosen from */
    gsi_pool *pool; /* NULL: the caller's parallel-for */
    gs_parallel parallel;
    size_t workers;    /* bodies of a loop that may run at once: what needs scratch for each */
    gsi_arena scratch; /* partial results of a pass */
    gs_error error;
#ifndef GSI_WITHOUT_ENGINE
    atomic_ullong pairs, exact_pairs; /* see gs_context_unit_use */
#endif
};

/* ---- what every pass checks before it touches anything; each leaves an error message ---- */

/* A tensor's name, or its number, for error messages. */
const char *gsi_tensor_name(char buffer[32], const gs_tensor *list, size_t t);

gs_status gsi_check_list(gs_context *ctx, const gs_tensor *list, size_t n);
gs_status gsi_check_list_f64(gs_context *ctx, const gs_tensor *list, size_t n); /* f64 too */

/* And that they pair up, and that nothing that is written is anything else in the call. */
gs_status gsi_check_pairs(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, size_t n);
gs_status gsi_check_pairs_f64(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                              size_t n);

gs_status gsi_check_factor(gs_context *ctx, float factor);

/* GS_ENULL of a call, and its message where there is a context for it. */
gs_status gsi_missing(gs_context *ctx, const char *call);

#endif
