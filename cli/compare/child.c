/* One `gradscale train` as a process of its own: a crash loses its trial and nothing else.
 *
 * (1) At most one child runs; it has died before run_child returns.
 * (2) The signals that end a job are blocked here and taken from the queue, so that there is no
 *     handler and no moment at which a child is started but unknown.
 * (3) A child dies with this process, whatever kills it. */
#include "cli/compare/compare.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

static const double patience = 10; /* s that a child has to end by itself */

/* ---- how far it is ---- */

/* The log from where it was last looked at; a line may be cut. The progress line needs no more than
 * the last step of what is new, ten times per second beside a child that wants the cores: so lines
 * are peeked at here, and one per look is parsed. gs_log_next parses all, and takes the line that
 * is being written for the last. When the child has ended, the library's reader reads its log. */
typedef struct tail {
    int fd; /* -1: not there yet */
    char line[1 << 16];
    size_t used;
    double steps; /* in all; 0: not known yet */
    uint64_t step;
    double loss;
} tail;

static void read_line(tail *t, const char *line, size_t length)
{
    json_t *row = json_loadb(line, length, 0, NULL);
    const json_t *step = json_object_get(row, "step");
    if (json_object_get(row, "event")) {
        const char *steps =
            json_string_value(json_object_get(json_object_get(row, "config"), "steps"));
        t->steps = steps ? strtod(steps, NULL) : t->steps;
    } else if (step) {
        t->step = (uint64_t)json_integer_value(step);
        t->loss = json_number_value(json_object_get(row, "loss"));
    }
    json_decref(row);
}

/* Of the lines that are new the last step tells how far it is; the first line of all, how far it
 * goes. */
static void read_lines(tail *t)
{
    static const char step[] = "{\"step\":";
    const char *start = t->line, *last = NULL;
    size_t length = 0;
    for (const char *c; (c = memchr(start, '\n', t->used - (size_t)(start - t->line)));
         start = c + 1) {
        if (t->steps == 0)
            read_line(t, start, (size_t)(c - start));
        else if (strncmp(start, step, sizeof step - 1) == 0) {
            last = start;
            length = (size_t)(c - start);
        }
    }
    if (last)
        read_line(t, last, length);
    t->used -= (size_t)(start - t->line);
    memmove(t->line, start, t->used);
}

static void follow(tail *t, const char *path)
{
    if (t->fd < 0)
        t->fd = cli_open(path, O_RDONLY);
    for (ssize_t got; t->fd >= 0;) {
        got = read(t->fd, t->line + t->used, sizeof t->line - t->used);
        if (got <= 0)
            return;
        t->used += (size_t)got;
        read_lines(t);
        if (t->used == sizeof t->line)
            t->used = 0; /* a line of histograms, longer than all of it: passed over in parts */
    }
}

static void show(const compare_all *c, size_t trial, const tail *t)
{
    const double total = (double)(c->n * c->seeds);
    const double part = t->steps > 0 ? fmin((double)t->step / t->steps, 1) : 0;
    if (t->step == 0)
        cli_progress((double)trial, total, "%s: it begins", c->trials[trial].name);
    else
        cli_progress((double)trial + part, total, "%s: step %" PRIu64 ", loss %.4g",
                     c->trials[trial].name, t->step, t->loss);
}

/* ---- its end ---- */

/* Its last error, without the name of the program; or the last line that it printed. */
static void last_words(char *text, size_t size, const char *path)
{
    static const char mark[] = "gradscale: ";
    const size_t skip = sizeof mark - 1;
    char line[1024];
    bool is_error = false;
    *text = 0;
    FILE *f = cli_read_begin(path);
    while (f && fgets(line, sizeof line, f)) {
        const bool error = strncmp(line, mark, skip) == 0;
        line[strcspn(line, "\n")] = 0;
        if (error || (!is_error && line[0]))
            snprintf(text, size, "%.1000s", line + (error ? skip : 0));
        is_error |= error;
    }
    if (f)
        fclose(f);
    cli_clean(text);
}

static void judge(compare_trial *t, int status, uint64_t step, bool stopped)
{
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        t->ending = COMPARE_DONE;
    } else if (stopped) {
        t->ending = COMPARE_STOPPED;
    } else if (WIFSIGNALED(status)) {
        t->ending = COMPARE_FAILED;
        snprintf(t->reason, sizeof t->reason, "killed by signal %d (%s) after step %" PRIu64,
                 WTERMSIG(status), strsignal(WTERMSIG(status)), step);
    } else {
        t->ending = COMPARE_FAILED;
        last_words(t->reason, sizeof t->reason, t->out);
        if (!t->reason[0])
            snprintf(t->reason, sizeof t->reason, "ended with exit code %d", WEXITSTATUS(status));
    }
}

/* ---- its life ---- */

/* Never returns. What it prints goes to a file: the terminal is the parent's. */
static void become(const compare_all *c, const compare_trial *t, const sigset_t *mask, pid_t parent)
{
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, t->seed);
    const compare_run *run = t->run;
    const char *argv[32] = {"gradscale", "train", "--no-save"};
    const char *const options[][2] = {
        {"--config", c->config},   {"--name", t->name},   {"--precision", run->precision},
        {"--scaler", run->scaler}, {"--mode", run->mode}, {"--on-overflow", run->how},
        {"--seed", seed},          {"--log", t->log},     {"--quantize", run->quantize}};
    size_t n = 3;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (*options[i][1]) {
            argv[n++] = options[i][0];
            argv[n++] = options[i][1];
        }
    const int out = cli_open(t->out, O_WRONLY | O_CREAT | O_EXCL);
    const int in = open("/dev/null", O_RDONLY);
    if (out < 0 || in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(127);
    setpgid(0, 0); /* Ctrl-C is for the parent, which passes it on */
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127);
#endif
    (void)parent;
    sigprocmask(SIG_SETMASK, mask, NULL);
    /* not by its name: what lies there may have been built anew */
    execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    fprintf(stderr, "the program cannot be started again: %s\n", strerror(errno));
    _exit(127);
}

/* Waits for the next signal or a moment. True: it asks for an end. */
static bool pause_for(const sigset_t *set)
{
    const int got = sigtimedwait(set, NULL, &(struct timespec){.tv_nsec = 100000000});
    return got > 0 && got != SIGCHLD;
}

/* False: the user wants an end to all. */
static bool run_child(const compare_all *c, size_t trial, const sigset_t *set,
                      const sigset_t *before)
{
    compare_trial *t = &c->trials[trial];
    tail *log = cli_resize(NULL, sizeof *log);
    *log = (tail){.fd = -1};
    unlink(t->log); /* what an earlier comparison left is not to be followed, nor is a link */
    unlink(t->out);
    const double began = gs_clock();
    const pid_t self = getpid(), child = fork();
    if (child == 0)
        become(c, t, before, self);
    int status = 0;
    double asked = 0; /* when it was told to end */
    while (child > 0 && waitpid(child, &status, WNOHANG) == 0) {
        follow(log, t->log);
        show(c, trial, log);
        if (pause_for(set)) {
            kill(child, asked > 0 ? SIGKILL : SIGTERM); /* a second time: at once */
            asked = asked > 0 ? asked : gs_clock();
        }
        if (asked > 0 && gs_clock() - asked > patience)
            kill(child, SIGKILL);
    }
    follow(log, t->log);
    t->seconds = gs_clock() - began;
    if (child > 0) {
        judge(t, status, log->step, asked > 0);
    } else {
        t->ending = COMPARE_FAILED;
        snprintf(t->reason, sizeof t->reason, "no process for it: %s", strerror(errno));
    }
    if (log->fd >= 0)
        close(log->fd);
    free(log);
    return asked == 0;
}

bool compare_children(compare_all *c, void (*ended)(const compare_all *, compare_trial *))
{
    static const int wanted[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
    sigset_t set, before;
    bool go_on = true;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        sigaddset(&set, wanted[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    for (size_t i = 0; i < c->n * c->seeds && go_on; i++) {
        if (c->trials[i].ending == COMPARE_DONE)
            continue;
        go_on = run_child(c, i, &set, &before);
        ended(c, &c->trials[i]);
    }
    while (sigtimedwait(&set, NULL, &(struct timespec){0}) > 0)
        ; /* too late to end anything */
    sigprocmask(SIG_SETMASK, &before, NULL);
    cli_progress_end();
    return go_on;
}
