/* ranks.h: this process as one of several that mpirun has started.
 *
 * The program does not link MPI: where the environment says that it is a rank, it opens
 * libgradscale_mpi, which lies beside it or with the other libraries.
 *
 * People hear of a job once: rank 0 speaks, and another only of what it alone knows. */
#ifndef RANKS_H
#define RANKS_H

#include "cli/core/cli.h"

#include "gradscale/comm.h"

/* Before anything is printed: ranks other than 0 fall silent. */
void ranks_begin(void);

/* Fills in the comm, of a process alone where nobody started several. CLI_GO or the exit code.
 * Where not all ranks have come after `timeout` seconds, the process ends. */
int ranks_open(gs_comm *comm, double timeout);

/* CLI_GO if that is everybody's code; else everybody gets the first other one, and its error
 * message is printed once. `flag`, if it is not NULL, becomes the largest of all. */
int ranks_first_error(int code, int *flag);

/* The last call: returns the code, or ends all ranks with it if they cannot communicate. */
int ranks_end(int code);

/* This rank is busy, and lives: the others go on waiting for it. */
void ranks_alive(void);
/* Runs what may be held by slow storage, in a thread of its own, and says so meanwhile. Returns
 * what it returns. */
int ranks_busy(int (*work)(void *user), void *user);

unsigned ranks_here(void); /* on this machine, at least 1 */

#endif
