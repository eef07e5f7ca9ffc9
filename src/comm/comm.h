/* What the files of comm share with each other and with the trainer. */
#ifndef GSI_COMM_H
#define GSI_COMM_H

#include "gradscale/comm.h"
#include "kernel/context.h"

gs_status gsi_comm_wait(const gs_comm *comm, int request, gs_error *error);

/* The status that an entry of the transport returned. If it failed, *error (which may be NULL) gets
 * what the entry said, or else a message of ours. */
gs_status gsi_comm_status(const gs_comm *comm, gs_status status, const gs_error *said,
                          gs_error *error);

#endif
