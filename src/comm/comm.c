/* The transport of a process alone, and small blocking collectives. */
#include "comm/comm.h"

#include <string.h>

/* ---- alone ---- */

static gs_status alltoall_alone(void *user, void *to, const void *from, size_t bytes, size_t block,
                                int *request, gs_error *error)
{
    (void)user, (void)error;
    *request = 0;
    if (bytes > 0 && block > 0)
        memcpy(to, from, bytes < block ? bytes : block);
    return GS_OK;
}

static gs_status allgather_alone(void *user, void *data, size_t bytes, size_t block, int *request,
                                 gs_error *error)
{
    (void)user, (void)data, (void)bytes, (void)block, (void)error;
    *request = 0;
    return GS_OK;
}

static gs_status done_alone(void *user, int request, int wait, int *ended, gs_error *error)
{
    (void)user, (void)request, (void)wait, (void)error;
    *ended = 1;
    return GS_OK;
}

static gs_status bcast_alone(void *user, void *data, size_t bytes, int root, gs_error *error)
{
    (void)user, (void)data, (void)bytes;
    return root == 0 ? GS_OK
                     : gsi_fail(error, GS_ERANGE, "there is no rank %d: rank 0 is alone", root);
}

gs_comm gs_comm_single(void)
{
    return (gs_comm){NULL, 0, 1, alltoall_alone, allgather_alone, done_alone, bcast_alone};
}

/* ---- small things ---- */

gs_status gsi_comm_status(const gs_comm *comm, gs_status status, const gs_error *said,
                          gs_error *error)
{
    if (status == GS_OK || !error)
        return status;
    if (said->status == status)
        *error = *said;
    else
        gsi_fail(error, status, "the network of %d ranks failed: %s", comm->size,
                 gs_status_meaning(status));
    return status;
}

gs_status gsi_comm_wait(const gs_comm *comm, int request, gs_error *error)
{
    int ended;
    gs_error said = {0};
    return gsi_comm_status(comm, comm->done(comm->user, request, 1, &ended, &said), &said, error);
}

gs_status gs_comm_allgather(const gs_comm *comm, void *all, size_t bytes, gs_error *error)
{
    int request;
    gs_error said = {0};
    const gs_status status =
        comm->allgather(comm->user, all, (size_t)comm->size * bytes, bytes, &request, &said);
    return status == GS_OK ? gsi_comm_wait(comm, request, error)
                           : gsi_comm_status(comm, status, &said, error);
}

static double added(double a, double b) { return a + b; }
static double larger(double a, double b) { return b > a || b != b ? b : a; }

static gs_status fold(const gs_comm *comm, gs_context *ctx, double *x, size_t n,
                      double (*of)(double, double))
{
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    double *all = gsi_arena_new(&ctx->scratch, (size_t)comm->size, n * sizeof *all);
    if (!all)
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for %zu numbers of %d ranks", n,
                        comm->size);
    memcpy(all + (size_t)comm->rank * n, x, n * sizeof *x);
    const gs_status status = gs_comm_allgather(comm, all, n * sizeof *x, &ctx->error);
    for (size_t i = 0; status == GS_OK && i < n; i++) {
        x[i] = all[i];
        for (int r = 1; r < comm->size; r++)
            x[i] = of(x[i], all[(size_t)r * n + i]);
    }
    gsi_arena_reset(&ctx->scratch, mark);
    return status;
}

gs_status gs_comm_sum(const gs_comm *comm, gs_context *ctx, double *x, size_t n)
{
    return fold(comm, ctx, x, n, added);
}

gs_status gs_comm_max(const gs_comm *comm, gs_context *ctx, double *x, size_t n)
{
    return fold(comm, ctx, x, n, larger);
}
