#define _XOPEN_SOURCE 700 /* setitimer */
#include "cli/train/ranks.h"

#include "gradscale/mpi.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* What mpirun tells: Open MPI's, MPICH's and its relatives', PMIx under srun. */
static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", NULL};
static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
static const char *const here[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                   "SLURM_NTASKS_PER_NODE", NULL};

/* The first that is set; -1: none is. */
static long number_of(const char *const *names)
{
    for (; *names; names++)
        if (getenv(*names))
            return strtol(getenv(*names), NULL, 10);
    return -1;
}

unsigned ranks_here(void)
{
    const long n = number_of(here);
    return n > 1 && n < 1 << 16 ? (unsigned)n : 1;
}

/* ---- the library ---- */

static struct {
    gs_mpi *mpi; /* NULL: alone */
    gs_comm comm;
    gs_status (*open)(gs_mpi **out, const gs_mpi_config *config, gs_error *error);
    const gs_comm *(*comm_of)(const gs_mpi *mpi);
    int (*failed)(const gs_mpi *mpi);
    void (*alive)(gs_mpi *mpi);
    void (*close)(gs_mpi *mpi);
    void (*abort)(gs_mpi *mpi, int code);
} net;

/* Where it is built, where it is installed, where the system looks. */
static void *find_library(void)
{
    static const char *const places[] = {"", "../lib/", NULL};
    char path[4096 + 64], name[64];
#if GS_VERSION_MAJOR == 0 /* the Makefile's SOVERSION */
    snprintf(name, sizeof name, "libgradscale_mpi.so.0.%d", GS_VERSION_MINOR);
#else
    snprintf(name, sizeof name, "libgradscale_mpi.so.%d", GS_VERSION_MAJOR);
#endif
    const ssize_t n = readlink("/proc/self/exe", path, 4096);
    size_t folder = n > 0 ? (size_t)n : 0;
    while (folder > 0 && path[folder - 1] != '/')
        folder--;
    void *library = NULL;
    for (int i = 0; places[i] && folder > 0 && !library; i++) {
        snprintf(path + folder, 64, "%s%s", places[i], name);
        if (access(path, R_OK) == 0) /* MPI's own plugins look for its symbols: global */
            library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    }
    return library ? library : dlopen(name, RTLD_NOW | RTLD_GLOBAL);
}

static bool find_calls(void *library)
{
    const struct {
        const char *name;
        void *to;
    } calls[] = {{"gs_mpi_open", &net.open},     {"gs_mpi_comm", &net.comm_of},
                 {"gs_mpi_failed", &net.failed}, {"gs_mpi_alive", &net.alive},
                 {"gs_mpi_close", &net.close},   {"gs_mpi_abort", &net.abort}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *call = dlsym(library, calls[i].name);
        if (!call)
            return false;
        memcpy(calls[i].to, &call, sizeof call);
    }
    return true;
}

/* MPI has no deadline for ranks that never start: a timer ends those that wait for them. What it
 * says is made before, because a handler of signals may only write. */
static char late[160];

static void on_late(int number)
{
    (void)number;
    if (write(STDERR_FILENO, late, strlen(late)) < 0)
        _exit(CLI_FAILED);
    _exit(CLI_FAILED);
}

static void watch_start(double seconds) /* 0: it is over */
{
    const struct sigaction action = {.sa_handler = on_late};
    const struct itimerval timer = {
        .it_value = {.tv_sec = (time_t)seconds,
                     .tv_usec = (suseconds_t)(1e6 * (seconds - floor(seconds)))}};
    snprintf(late, sizeof late, "gradscale: rank %ld: not all ranks have started within %g s\n",
             number_of(ranks), seconds);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

int ranks_open(gs_comm *comm, double timeout)
{
    const long size = number_of(sizes);
    gs_error error = {0};
    net.comm = *comm = gs_comm_single();
    if (size == 1 || (size < 0 && number_of(ranks) < 0))
        return CLI_GO;
    void *library = find_library();
    if (!library || !find_calls(library)) {
        const char *why = dlerror();
        return cli_failed(
            "this is one of several ranks, and they need libgradscale_mpi, which make "
            "builds where mpicc is: %s",
            why ? why : "it is another one");
    }
    const gs_mpi_config config = {.size = sizeof config, .timeout = timeout};
    watch_start(timeout);
    const gs_status status = net.open(&net.mpi, &config, &error);
    watch_start(0);
    if (status != GS_OK)
        return cli_fail_status(status, &error);
    net.comm = *comm = *net.comm_of(net.mpi);
    if (size > 0 && comm->size != size)
        return cli_failed(
            "mpirun has started %ld ranks, and libgradscale_mpi sees %d: it was built "
            "for another MPI (make MPICC=...)",
            size, comm->size);
    return CLI_GO;
}

void ranks_alive(void)
{
    if (net.mpi)
        net.alive(net.mpi);
}

/* A thread that works while this one speaks: MPI is called from one thread alone. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool begun, busy;
    int (*work)(void *user);
    void *user;
    int code;
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *help(void *unused)
{
    pthread_mutex_lock(&helper.lock);
    for (;;) {
        while (!helper.busy)
            pthread_cond_wait(&helper.changed, &helper.lock);
        pthread_mutex_unlock(&helper.lock);
        const int code = helper.work(helper.user);
        pthread_mutex_lock(&helper.lock);
        helper.code = code;
        helper.busy = false;
        pthread_cond_broadcast(&helper.changed);
    }
    return unused;
}

/* Once; it ends with the process. */
static bool begin_helper(void)
{
    pthread_t thread;
    pthread_condattr_t clock;
    if (helper.begun)
        return true;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&helper.changed, &clock);
    pthread_condattr_destroy(&clock);
    helper.begun = pthread_create(&thread, NULL, help, NULL) == 0;
    if (helper.begun)
        pthread_detach(thread);
    else
        pthread_cond_destroy(&helper.changed);
    return helper.begun;
}

int ranks_busy(int (*work)(void *user), void *user)
{
    enum { PAUSE = 10000000 }; /* ns: gs_mpi_alive says it as often as is needed */
    if (!net.mpi || !begin_helper())
        return work(user);
    pthread_mutex_lock(&helper.lock);
    helper.work = work;
    helper.user = user;
    helper.busy = true;
    pthread_cond_broadcast(&helper.changed);
    while (helper.busy) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += PAUSE;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_cond_timedwait(&helper.changed, &helper.lock, &until) == ETIMEDOUT) {
            pthread_mutex_unlock(&helper.lock);
            ranks_alive();
            pthread_mutex_lock(&helper.lock);
        }
    }
    const int code = helper.code;
    pthread_mutex_unlock(&helper.lock);
    return code;
}

/* ---- speaking ---- */

void ranks_begin(void)
{
    if (number_of(ranks) <= 0)
        return;
    cli_hold(true);
    if (!freopen("/dev/null", "w", stdout))
        _exit(CLI_FAILED);
}

static void speak(void)
{
    char text[1024];
    snprintf(text, sizeof text, "%s", cli_held());
    if (!*text)
        return;
    cli_hold(false);
    cli_warn("rank %ld: %.1000s", net.mpi ? net.comm.rank : number_of(ranks), text);
    cli_hold(true);
}

int ranks_first_error(int code, int *flag)
{
    typedef struct said {
        int code, flag;
    } said;
    const gs_comm *c = &net.comm;
    if (c->size == 1)
        return code;
    said *all = cli_resize(NULL, (size_t)c->size * sizeof *all);
    all[c->rank] = (said){code, flag ? *flag : 0};
    gs_error error = {0};
    if (gs_comm_allgather(c, all, sizeof *all, &error) != GS_OK) {
        free(all);
        return code == CLI_GO ? cli_fail_status(GS_ERANK, &error) : code;
    }
    for (int r = 0; r < c->size; r++)
        if (flag && all[r].flag > *flag)
            *flag = all[r].flag;
    int whose = 0;
    while (whose < c->size && all[whose].code == CLI_GO)
        whose++;
    code = whose < c->size ? all[whose].code : CLI_GO;
    if (whose > 0 && whose == c->rank)
        speak();
    free(all);
    return code;
}

int ranks_end(int code)
{
    if (!net.mpi) { /* no communication yet: each speaks, unless rank 0 has ended all before */
        if (code > 0 && number_of(ranks) > 0) {
            sleep(2);
            speak();
        }
        return code;
    }
    if (net.failed(net.mpi)) {
        if (net.comm.rank > 0) {
            speak();
            sleep(2); /* rank 0, if it is there, ends its log and then the others */
        }
        cli_end(code);
        net.abort(net.mpi, code > 0 ? code : CLI_FAILED);
    }
    net.close(net.mpi);
    return code;
}
