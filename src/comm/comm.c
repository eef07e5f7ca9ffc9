#include "gradscale/comm.h"

static gs_status sum_alone(void *user, float *data, size_t n)
{
    (void)user, (void)data, (void)n;
    return GS_OK;
}

static gs_status max_alone(void *user, double *data, size_t n)
{
    (void)user, (void)data, (void)n;
    return GS_OK;
}

static gs_status bcast_alone(void *user, void *data, size_t bytes, int root)
{
    (void)user, (void)data, (void)bytes;
    return root == 0 ? GS_OK : GS_ERANGE;
}

static gs_status barrier_alone(void *user)
{
    (void)user;
    return GS_OK;
}

gs_comm gs_comm_single(void)
{
    return (gs_comm){NULL, 0, 1, sum_alone, max_alone, bcast_alone, barrier_alone};
}
