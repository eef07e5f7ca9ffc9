/* mpi.h: a gs_comm over MPI, in a library of its own, libgradscale_mpi. No other part needs MPI.
 *
 *     gs_mpi *mpi;
 *     gs_mpi_open(&mpi, NULL, &error);              calls MPI_Init_thread if nobody has
 *     gs_trainer_config config = {...};
 *     config.comm = gs_mpi_comm(mpi);
 *     ... train; on an error: gs_mpi_abort(mpi, 1) ...
 *     gs_mpi_close(mpi);
 *
 * All calls are non-blocking collectives that are tested again and again until they end or until
 * time is up: a rank that died or hangs makes the others fail with an error message that names it.
 * Use it from one thread, the one that called MPI_Init_thread where that is FUNNELED.
 */
#ifndef GRADSCALE_MPI_H
#define GRADSCALE_MPI_H

#include "gradscale/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gs_mpi gs_mpi;

typedef struct gs_mpi_config {
    size_t size;      /* sizeof(gs_mpi_config) */
    double timeout;   /* seconds without an answer; 0: 300 */
    const void *comm; /* an MPI_Comm whose ranks take part, duplicated; NULL: MPI_COMM_WORLD */
    gs_alloc alloc;   /* resize NULL: malloc */
} gs_mpi_config;

/* config may be NULL. */
GS_API gs_status gs_mpi_open(gs_mpi **out, const gs_mpi_config *config, gs_error *error);
GS_API const gs_comm *gs_mpi_comm(const gs_mpi *mpi);
/* A call of the gs_comm has failed: the ranks cannot go on together. */
GS_API int gs_mpi_failed(const gs_mpi *mpi);

/* Says to the others that this rank is busy and not dead, say with a slow disk: those who wait for
 * it begin to count their timeout anew. Call it as often as you like; it speaks once per second, or
 * eight times per timeout where that is more often. */
GS_API void gs_mpi_alive(gs_mpi *mpi);

/* Waits for the others, and ends MPI if gs_mpi_open began it. After a failure it waits for nobody,
 * and MPI is left as it is: what is left to do is to exit, best with gs_mpi_abort. */
GS_API void gs_mpi_close(gs_mpi *mpi);

/* Ends all ranks, this one included, with an exit code. */
GS_API void gs_mpi_abort(gs_mpi *mpi, int code);

#ifdef __cplusplus
}
#endif

#endif
