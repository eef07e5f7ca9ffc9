/* gs_comm over MPI's non-blocking collectives.
 *
 * (1) All-to-alls, allgathers, the roll call and signs of life have a communicator each: MPI orders
 *     the collectives of one, and how the two kinds are interleaved depends on time.
 * (2) Nothing blocks inside MPI: waiting is MPI_Test again and again until the deadline.
 * (3) The first failure stays: every later call fails at once with the same error message. */
#include "gradscale/mpi.h"

#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ALLTOALLS, ALLGATHERS, ROLL, ALIVE, LINES };
enum { SLOTS = 32 }; /* requests at a time; the reducer has 4 of each kind */

/* The lists of a collective must stay until it ends. */
typedef struct slot {
    MPI_Request request;
    int used;
    int *counts, *starts;       /* [size]: the blocks of the array */
    int *to_counts, *to_starts; /* [size]: the receiving side of an all-to-all */
} slot;

struct gs_mpi {
    gs_comm comm;
    gs_error error;
    gs_alloc alloc;
    size_t bytes; /* of this allocation */
    double timeout;
    double spoke; /* when this rank said that it is alive */
    int began;    /* MPI was initialized here */
    MPI_Comm lines[LINES];
    slot slots[SLOTS];
    int lists[];
};

/* A monotonic clock, which MPI_Wtime need not be; gs_clock is in a library that is not linked. */
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static gs_status fail(gs_error *error, gs_status status, const char *format, ...)
{
    va_list args;
    if (!error)
        return status;
    va_start(args, format);
    error->status = status;
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return status;
}

static gs_status check(gs_mpi *m, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return GS_OK;
    MPI_Error_string(code, text, &length);
    return fail(&m->error, GS_ERANK, "MPI failed in %s on rank %d: %.160s", what, m->comm.rank,
                text);
}

/* ---- silent ranks ---- */

/* Everyone who waits in vain ends here within seconds of the others: those who do not are named. */
static gs_status call_the_roll(gs_mpi *m)
{
    enum { MOST = 1024, NAMED = 12 };
    const double grace = m->timeout < 5 ? m->timeout : 5, end = now() + grace;
    const int size = m->comm.size < MOST ? m->comm.size : MOST;
    MPI_Request sends[MOST], answers[MOST];
    char here = 1, heard[MOST];
    int open = size, silent = 0, used = 0;
    for (int r = 0; r < size; r++) {
        MPI_Isend(&here, 1, MPI_CHAR, r, 0, m->lines[ROLL], &sends[r]);
        MPI_Irecv(&heard[r], 1, MPI_CHAR, r, 0, m->lines[ROLL], &answers[r]);
    }
    while (open > 0 && now() < end) {
        int index, flag;
        if (MPI_Testany(size, answers, &index, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
        open -= flag && index != MPI_UNDEFINED;
        sched_yield();
    }
    char names[160] = "";
    for (int r = 0; r < size; r++)
        if (answers[r] != MPI_REQUEST_NULL && silent++ < NAMED)
            used +=
                snprintf(names + used, sizeof names - (size_t)used, silent > 1 ? ", %d" : " %d", r);
    if (silent == 0)
        return fail(&m->error, GS_ERANK, "nothing has moved between the ranks for %g s",
                    m->timeout);
    return fail(&m->error, GS_ERANK, "rank%s%s%s not answered for %g s", silent > 1 ? "s" : "",
                names,
                silent > NAMED ? ", ... have"
                : silent > 1   ? " have"
                               : " has",
                m->timeout);
}

/* ---- signs of life ---- */

void gs_mpi_alive(gs_mpi *m)
{
    static const char here = 1;
    const double interval = m->timeout < 8 ? m->timeout / 8 : 1, time = now();
    if (m->error.status != GS_OK || time - m->spoke < interval)
        return;
    m->spoke = time;
    for (int r = 0; r < m->comm.size; r++) {
        MPI_Request request;
        if (r != m->comm.rank &&
            MPI_Isend(&here, 1, MPI_CHAR, r, 0, m->lines[ALIVE], &request) == MPI_SUCCESS)
            MPI_Request_free(&request); /* nobody waits for it */
    }
}

/* Whether any rank has said so since the last call. */
static int heard_of_any(gs_mpi *m)
{
    int any = 0, flag = 1;
    while (flag) {
        MPI_Status from;
        char heard;
        if (MPI_Iprobe(MPI_ANY_SOURCE, 0, m->lines[ALIVE], &flag, &from) != MPI_SUCCESS || !flag ||
            MPI_Recv(&heard, 1, MPI_CHAR, from.MPI_SOURCE, 0, m->lines[ALIVE], MPI_STATUS_IGNORE) !=
                MPI_SUCCESS)
            break;
        any = 1;
    }
    return any;
}

/* ---- the four entries ---- */

/* The first failure is the last: every call after it says the same. */
static gs_status tell(const gs_mpi *m, gs_status status, gs_error *error)
{
    if (status != GS_OK)
        *error = m->error;
    return status;
}

static gs_status take_slot(gs_mpi *m, int *request, size_t bytes, size_t block)
{
    if (m->error.status != GS_OK)
        return m->error.status;
    if (bytes > INT_MAX || block > INT_MAX)
        return fail(&m->error, GS_ESIZE, "a message of %zu bytes is too long for MPI", bytes);
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &m->slots[i];
        if (s->used)
            continue;
        for (int r = 0; r < m->comm.size; r++) {
            const size_t at = (size_t)r * block, first = at < bytes ? at : bytes;
            s->starts[r] = (int)first;
            s->counts[r] = (int)(bytes - first < block ? bytes - first : block);
        }
        s->used = 1;
        *request = i;
        return GS_OK;
    }
    return fail(&m->error, GS_ESTATE, "more than %d messages are under way", SLOTS);
}

static gs_status mpi_alltoall(void *user, void *to, const void *from, size_t bytes, size_t block,
                              int *request, gs_error *error)
{
    gs_mpi *m = user;
    const gs_status status = take_slot(m, request, bytes, block);
    if (status != GS_OK)
        return tell(m, status, error);
    slot *s = &m->slots[*request];
    const int mine = s->counts[m->comm.rank];
    for (int r = 0; r < m->comm.size; r++) {
        s->to_counts[r] = mine;
        s->to_starts[r] = r * mine;
    }
    const int code = MPI_Ialltoallv(from, s->counts, s->starts, MPI_BYTE, to, s->to_counts,
                                    s->to_starts, MPI_BYTE, m->lines[ALLTOALLS], &s->request);
    return tell(m, check(m, code, "an all-to-all"), error);
}

static gs_status mpi_allgather(void *user, void *data, size_t bytes, size_t block, int *request,
                               gs_error *error)
{
    gs_mpi *m = user;
    const gs_status status = take_slot(m, request, bytes, block);
    if (status != GS_OK)
        return tell(m, status, error);
    slot *s = &m->slots[*request];
    const int code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, data, s->counts, s->starts,
                                     MPI_BYTE, m->lines[ALLGATHERS], &s->request);
    return tell(m, check(m, code, "an allgather"), error);
}

/* Tests a request until it ends or time is up. At first without a pause, for answers that are on
 * their way, but never so that a rank on the same core waits for this one. */
static gs_status wait_for(gs_mpi *m, MPI_Request *request)
{
    double start = now();
    for (;;) {
        int ended;
        const gs_status status = check(m, MPI_Test(request, &ended, MPI_STATUS_IGNORE), "a wait");
        if (status != GS_OK || ended)
            return status;
        const double waited = now() - start;
        if (waited > m->timeout / 16 && heard_of_any(m))
            start = now();
        else if (waited > m->timeout)
            return call_the_roll(m);
        if (waited < 2e-3)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = waited < 0.1 ? 50000 : 500000}, NULL);
    }
}

static gs_status mpi_done(void *user, int request, int wait, int *ended, gs_error *error)
{
    gs_mpi *m = user;
    slot *s = &m->slots[request];
    *ended = 0;
    if (m->error.status != GS_OK)
        return tell(m, m->error.status, error);
    gs_status status;
    if (wait) {
        status = wait_for(m, &s->request);
        *ended = status == GS_OK;
    } else {
        status = check(m, MPI_Test(&s->request, ended, MPI_STATUS_IGNORE), "a test");
    }
    if (*ended)
        s->used = 0;
    return tell(m, status, error);
}

static gs_status mpi_bcast(void *user, void *data, size_t bytes, int root, gs_error *error)
{
    enum { MOST = 1 << 30 };
    gs_mpi *m = user;
    gs_status status = m->error.status;
    for (size_t at = 0; status == GS_OK && at < bytes; at += MOST) {
        const int count = bytes - at < MOST ? (int)(bytes - at) : MOST;
        MPI_Request request;
        status = check(
            m, MPI_Ibcast((char *)data + at, count, MPI_BYTE, root, m->lines[ALLGATHERS], &request),
            "a broadcast");
        if (status == GS_OK)
            status = wait_for(m, &request);
    }
    return tell(m, status, error);
}

/* ---- life ---- */

static void *libc_resize(void *user, void *block, size_t old_size, size_t size)
{
    (void)user, (void)old_size;
    if (size > 0)
        return realloc(block, size);
    free(block);
    return NULL;
}

static gs_status begin(int *began, gs_error *error)
{
    int initialized = 0, finalized = 0, level;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized)
        return fail(error, GS_ESTATE, "MPI has ended already");
    *began = !initialized;
    if (!initialized && MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return fail(error, GS_ERANK, "MPI could not be started");
    return GS_OK;
}

gs_status gs_mpi_open(gs_mpi **out, const gs_mpi_config *config, gs_error *error)
{
    gs_mpi_config today = {.size = sizeof today};
    int rank, size, began;
    if (!out)
        return GS_ENULL;
    *out = NULL;
    if (config && (config->size <= sizeof config->size || config->size > sizeof today))
        return fail(error, GS_EVERSION, "gs_mpi_config.size is %zu: set it to sizeof, %zu here",
                    config->size, sizeof today);
    if (config)
        memcpy(&today, config, config->size);
    config = &today;
    if (!(config->timeout >= 0 && config->timeout <= 1e6))
        return fail(error, GS_ERANGE, "a timeout is 0 to 1e6 seconds, not %g", config->timeout);
    gs_status status = begin(&began, error);
    if (status != GS_OK)
        return status;
    const MPI_Comm all = config->comm ? *(const MPI_Comm *)config->comm : MPI_COMM_WORLD;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);

    const gs_alloc libc = {libc_resize, NULL};
    const gs_alloc alloc = config->alloc.resize ? config->alloc : libc;
    const size_t n = (size_t)size, bytes = sizeof(gs_mpi) + SLOTS * 4 * n * sizeof(int);
    gs_mpi *m = alloc.resize(alloc.user, NULL, 0, bytes);
    if (!m)
        return fail(error, GS_ENOMEM, "no memory for a network of %d ranks", size);
    memset(m, 0, bytes);
    m->comm = (gs_comm){m, rank, size, mpi_alltoall, mpi_allgather, mpi_done, mpi_bcast};
    m->alloc = alloc;
    m->bytes = bytes;
    m->timeout = config->timeout > 0 ? config->timeout : 300;
    m->began = began;
    for (size_t i = 0; i < SLOTS; i++) {
        int *list = m->lists + i * 4 * n;
        m->slots[i] = (slot){.request = MPI_REQUEST_NULL,
                             .counts = list,
                             .starts = list + n,
                             .to_counts = list + 2 * n,
                             .to_starts = list + 3 * n};
    }
    for (int i = 0; status == GS_OK && i < LINES; i++) {
        m->lines[i] = MPI_COMM_NULL;
        status = check(m, MPI_Comm_dup(all, &m->lines[i]), "opening a line");
        if (status == GS_OK)
            status = check(m, MPI_Comm_set_errhandler(m->lines[i], MPI_ERRORS_RETURN), "a setting");
    }
    if (status != GS_OK) {
        if (error)
            *error = m->error;
        alloc.resize(alloc.user, m, bytes, 0);
        return status;
    }
    *out = m;
    return GS_OK;
}

const gs_comm *gs_mpi_comm(const gs_mpi *mpi) { return &mpi->comm; }

int gs_mpi_failed(const gs_mpi *mpi) { return mpi->error.status != GS_OK; }

void gs_mpi_close(gs_mpi *m)
{
    if (!m)
        return;
    MPI_Request request;
    if (m->error.status == GS_OK && MPI_Ibarrier(m->lines[ALLGATHERS], &request) == MPI_SUCCESS)
        wait_for(m, &request);
    if (m->error.status == GS_OK)
        heard_of_any(m); /* MPI ends with nothing under way */
    const gs_alloc alloc = m->alloc;
    const int fine = m->error.status == GS_OK, began = m->began;
    for (int i = 0; fine && i < LINES; i++)
        MPI_Comm_free(&m->lines[i]);
    if (fine) /* else a message may still arrive there */
        alloc.resize(alloc.user, m, m->bytes, 0);
    if (fine && began)
        MPI_Finalize();
}

void gs_mpi_abort(gs_mpi *m, int code)
{
    (void)m;
    /* A launcher forwards what was said, but MPICH's not after the end: let it read first. */
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    MPI_Abort(MPI_COMM_WORLD, code);
    exit(code); /* where MPI_Abort returns */
}
