#ifndef GSI_KERNEL_CONTEXT_H
#define GSI_KERNEL_CONTEXT_H

#include "kernel/kernel.h"

struct gs_context {
    gsi_heap heap;
    gsi_kernels kernels;
    unsigned cpu;
    gsi_pool *pool; /* NULL: the caller's parallel-for */
    gs_parallel parallel;
    size_t workers; /* bodies of a loop that may run at once: what needs scratch for each */
    gsi_arena scratch; /* partial results of a pass */
    gs_error error;
};

#endif
