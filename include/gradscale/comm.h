/* comm.h: what data-parallel training asks of a network, as five entries to fill in.
 *
 * Every rank calls the same functions with the same sizes in the same order. sum, max and bcast
 * work in place and leave the same bits on every rank: the step decides on each rank for itself,
 * and they must agree.
 */
#ifndef GRADSCALE_COMM_H
#define GRADSCALE_COMM_H

#include "gradscale/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gs_comm {
    void *user;
    int rank, size; /* 0 <= rank < size */
    gs_status (*sum)(void *user, float *data, size_t n);
    gs_status (*max)(void *user, double *data, size_t n);
    gs_status (*bcast)(void *user, void *data, size_t bytes, int root);
    gs_status (*barrier)(void *user);
} gs_comm;

/* A process alone: rank 0 of 1, and nothing to do. */
GS_API gs_comm gs_comm_single(void);

#ifdef __cplusplus
}
#endif

#endif
