/* What the files of comm share with each other and with the trainer. */
#ifndef GSI_COMM_H
#define GSI_COMM_H

#include "gradscale/comm.h"
#include "kernel/context.h"

gs_status gsi_comm_wait(const gs_comm *comm, int request);

/* Leaves the transport's sentence, if it has one, in the context. */
gs_status gsi_comm_fail(const gs_comm *comm, gs_context *ctx, gs_status status);

#endif
