#ifndef GSI_KERNEL_CONTEXT_H
#define GSI_KERNEL_CONTEXT_H

#include "kernel/kernel.h"
#include "kernel/optim.h"

struct gs_context {
    gsi_heap heap;
    gsi_kernels kernels;
    gsi_optim_kernels optim;
    unsigned cpu;
    gsi_pool *pool; /* NULL: the caller's parallel-for */
    gs_parallel parallel;
    gsi_arena scratch; /* partial results of a pass */
    gs_error error;
};

#endif
