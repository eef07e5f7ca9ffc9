/* iofault: runs a program, and fails one of its system calls on files below a folder.
 *
 *     iofault --root DIR [--counts FILE] [--fail CALL:N:HOW[:MANY]] [--slow CALL:MS]
 *             [--record FILE] -- PROGRAM ...
 *
 * CALL is a row of `calls`; N counts from 1, over all threads and children; HOW is a name of an
 * errno, or "short": the call moves half of what was asked for. MANY calls fail from the Nth on.
 * --slow holds every such call for MS milliseconds. --counts writes how often each call came.
 * --record writes what changed files, for power.py: a line of JSON per call that succeeded, the
 *bytes of writes as hex.
 * A tracer and not LD_PRELOAD: stdio reads and writes inside of libc, where no symbol is looked up,
 * so a preloaded library would miss the very reads that this is about. And not a seam in src/io:
 * the program that is tested is the one that is shipped. seccomp stops only the calls of the table,
 * so a run is as fast as without, but for those.
 *
 * Linux on x86-64 and AArch64. Exit code: the program's, 128 + its signal; 125: this machine cannot
 * trace. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CANNOT = 125 };

/* What is counted, and what a fault may be. */
/* clang-format off */
#define CALLS(X)                                                                          \
    X(OPEN, "open")     X(OPENDIR, "opendir") X(READDIR, "readdir")   X(READ, "read")     \
    X(WRITE, "write")   X(FSYNC, "fsync")     X(RENAME, "rename")     X(CLOSE, "close")   \
    X(MMAP, "mmap")     X(STAT, "stat")       X(TRUNCATE, "truncate") X(LINK, "link")     \
    X(UNLINK, "unlink") X(MKDIR, "mkdir")     X(FLOCK, "flock")
/* clang-format on */

typedef enum call {
#define X(id, name) id,
    CALLS(X)
#undef X
        CALL_COUNT
} call;

static const char *const call_names[] = {
#define X(id, name) name,
    CALLS(X)
#undef X
};

/* Where the path or the descriptor is among the arguments; -1: none. */
typedef struct system_call {
    long number;
    call call;
    int fd, dirfd, path; /* path with dirfd -1: relative to the working folder */
    int length;          /* the argument that "short" halves */
} system_call;

static const system_call system_calls[] = {
    {__NR_openat, OPEN, -1, 0, 1, -1},         {__NR_getdents64, READDIR, 0, -1, -1, -1},
    {__NR_read, READ, 0, -1, -1, 2},           {__NR_pread64, READ, 0, -1, -1, 2},
    {__NR_write, WRITE, 0, -1, -1, 2},         {__NR_pwrite64, WRITE, 0, -1, -1, 2},
    {__NR_fsync, FSYNC, 0, -1, -1, -1},        {__NR_fdatasync, FSYNC, 0, -1, -1, -1},
    {__NR_renameat, RENAME, -1, 0, 1, -1},     {__NR_renameat2, RENAME, -1, 0, 1, -1},
    {__NR_close, CLOSE, 0, -1, -1, -1},        {__NR_mmap, MMAP, 4, -1, -1, -1},
    {__NR_faccessat, STAT, -1, 0, 1, -1},      {__NR_newfstatat, STAT, -1, 0, 1, -1},
    {__NR_ftruncate, TRUNCATE, 0, -1, -1, -1}, {__NR_linkat, LINK, -1, 0, 1, -1},
    {__NR_unlinkat, UNLINK, -1, 0, 1, -1},     {__NR_mkdirat, MKDIR, -1, 0, 1, -1},
    {__NR_flock, FLOCK, 0, -1, -1, -1},
#ifdef __x86_64__
    {__NR_open, OPEN, -1, -1, 0, -1},          {__NR_rename, RENAME, -1, -1, 0, -1},
    {__NR_access, STAT, -1, -1, 0, -1},        {__NR_stat, STAT, -1, -1, 0, -1},
    {__NR_lstat, STAT, -1, -1, 0, -1},         {__NR_fstat, STAT, 0, -1, -1, -1},
    {__NR_link, LINK, -1, -1, 0, -1},          {__NR_unlink, UNLINK, -1, -1, 0, -1},
    {__NR_mkdir, MKDIR, -1, -1, 0, -1},
#endif
};
enum { SYSTEM_CALLS = sizeof system_calls / sizeof system_calls[0] };

static const struct {
    const char *name;
    int number;
} errors[] = {{"EIO", EIO},       {"ENOSPC", ENOSPC}, {"EINTR", EINTR}, {"EACCES", EACCES},
              {"ENOMEM", ENOMEM}, {"EDQUOT", EDQUOT}, {"short", 0}};

static struct {
    const char *root, *counts, *record;
    int call, error; /* call -1: nothing fails */
    unsigned long at, many;
    int slow; /* call; -1: none */
    unsigned long slow_ms;
} o = {.call = -1, .many = 1, .slow = -1};

static unsigned long counts[CALL_COUNT];
static FILE *record;

static void die(const char *what)
{
    fprintf(stderr, "iofault: %s: %s\n", what, strerror(errno));
    exit(CANNOT);
}

/* ---- registers ---- */

typedef struct stopped {
    uint64_t args[6];
    long number;
    int64_t result;
} stopped;

#if defined(__x86_64__)
typedef struct user_regs_struct registers;
#elif defined(__aarch64__)
typedef struct user_regs_struct registers;
#endif

static void registers_of(pid_t task, registers *r)
{
    struct iovec v = {r, sizeof *r};
    ptrace(PTRACE_GETREGSET, task, (void *)NT_PRSTATUS, &v);
}

static void set_registers(pid_t task, registers *r)
{
    struct iovec v = {r, sizeof *r};
    ptrace(PTRACE_SETREGSET, task, (void *)NT_PRSTATUS, &v);
}

static stopped look(const registers *r)
{
#if defined(__x86_64__)
    return (stopped){
        {r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9}, (long)r->orig_rax, (int64_t)r->rax};
#else
    return (stopped){{r->regs[0], r->regs[1], r->regs[2], r->regs[3], r->regs[4], r->regs[5]},
                     (long)r->regs[8],
                     (int64_t)r->regs[0]};
#endif
}

/* The call is passed over and returns -error. */
static void refuse(pid_t task, registers *r, int error)
{
#if defined(__x86_64__)
    r->orig_rax = (unsigned long long)-1;
    r->rax = (unsigned long long)-error;
    set_registers(task, r);
#else
    int none = -1;
    struct iovec v = {&none, sizeof none};
    r->regs[0] = (uint64_t)-error;
    set_registers(task, r);
    ptrace(PTRACE_SETREGSET, task, (void *)NT_ARM_SYSTEM_CALL, &v);
#endif
}

static void shorten(pid_t task, registers *r, int argument)
{
#if defined(__x86_64__)
    unsigned long long *const arguments[] = {&r->rdi, &r->rsi, &r->rdx};
    *arguments[argument] = (*arguments[argument] + 1) / 2;
#else
    r->regs[argument] = (r->regs[argument] + 1) / 2;
#endif
    set_registers(task, r);
}

/* ---- files ---- */

static void text_at(char out[PATH_MAX], pid_t task, uint64_t address)
{
    size_t n = 0;
    out[0] = 0;
    while (n < PATH_MAX - 1) { /* to the end of a page at a time: the next may not be there */
        size_t piece = 4096 - (size_t)((address + n) & 4095);
        piece = piece < PATH_MAX - 1 - n ? piece : PATH_MAX - 1 - n;
        struct iovec to = {out + n, piece}, from = {(void *)(uintptr_t)(address + n), piece};
        const ssize_t got = process_vm_readv(task, &to, 1, &from, 1, 0);
        if (got <= 0)
            break;
        if (memchr(out + n, 0, (size_t)got))
            return;
        n += (size_t)got;
    }
    out[n] = 0;
}

static void path_of_fd(char out[PATH_MAX], pid_t task, int fd)
{
    char link[64];
    if (fd == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/%d/cwd", (int)task);
    else
        snprintf(link, sizeof link, "/proc/%d/fd/%d", (int)task, fd);
    const ssize_t n = readlink(link, out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = 0;
}

static void path_at(char out[PATH_MAX], pid_t task, int dirfd, uint64_t address)
{
    char name[PATH_MAX], folder[PATH_MAX];
    text_at(name, task, address);
    if (name[0] == '/' || name[0] == 0) {
        if (name[0])
            strcpy(out, name);
        else
            path_of_fd(out, task, dirfd); /* AT_EMPTY_PATH */
        return;
    }
    path_of_fd(folder, task, dirfd);
    const char *rest = name;
    while (strncmp(rest, "./", 2) == 0)
        rest += 2;
    if (snprintf(out, PATH_MAX, "%.*s/%s", PATH_MAX / 2, folder, rest) >= PATH_MAX)
        out[0] = 0;
}

static int is_below(const char *path)
{
    const size_t n = strlen(o.root);
    return strncmp(path, o.root, n) == 0 && (path[n] == '/' || path[n] == 0);
}

static void path_of(char out[PATH_MAX], pid_t task, const system_call *c, const stopped *s)
{
    if (c->fd >= 0)
        path_of_fd(out, task, (int)s->args[c->fd]);
    else
        path_at(out, task, c->dirfd >= 0 ? (int)s->args[c->dirfd] : AT_FDCWD, s->args[c->path]);
}

/* ---- the record ---- */

static void put_text(const char *key, const char *text)
{
    fprintf(record, ",\"%s\":\"", key);
    for (; *text; text++)
        fprintf(record, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    fputc('"', record);
}

static void put_bytes(pid_t task, uint64_t address, size_t n)
{
    unsigned char *bytes = malloc(n + 1);
    struct iovec to = {bytes, n}, from = {(void *)(uintptr_t)address, n};
    if (!bytes || process_vm_readv(task, &to, 1, &from, 1, 0) != (ssize_t)n)
        die("reading what was written");
    fputs(",\"bytes\":\"", record);
    for (size_t i = 0; i < n; i++)
        fprintf(record, "%02x", bytes[i]);
    fputc('"', record);
    free(bytes);
}

/* After a call that succeeded; the path is what it was before. */
static void write_record(pid_t task, const system_call *c, const stopped *s, const char *path,
                         int64_t result)
{
    static const call changes[] = {OPEN, WRITE, FSYNC, RENAME, TRUNCATE, LINK, UNLINK, MKDIR};
    int changing = 0;
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        changing |= changes[i] == c->call;
    if (!changing || result < 0)
        return;
    const uint64_t flags = c->dirfd >= 0 ? s->args[2] : s->args[1];
    if (c->call == OPEN && !(flags & (O_CREAT | O_TRUNC)))
        return;
    fprintf(record, "{\"call\":\"%s\"", call_names[c->call]);
    put_text("path", path);
    if (c->call == OPEN)
        fprintf(record, ",\"truncate\":%s", flags & O_TRUNC ? "true" : "false");
    if (c->call == TRUNCATE)
        fprintf(record, ",\"length\":%llu", (unsigned long long)s->args[1]);
    if (c->call == WRITE) {
        char name[64], line[64];
        unsigned long long at = s->args[3];
        if (c->number == __NR_write) { /* where the descriptor stands now */
            snprintf(name, sizeof name, "/proc/%d/fdinfo/%d", (int)task, (int)s->args[0]);
            FILE *f = fopen(name, "r");
            at = 0;
            while (f && fgets(line, sizeof line, f))
                sscanf(line, "pos: %llu", &at);
            if (f)
                fclose(f);
            at -= (unsigned long long)result;
        }
        fprintf(record, ",\"at\":%llu", at);
        put_bytes(task, s->args[1], (size_t)result);
    }
    if (c->call == RENAME || c->call == LINK) {
        char to[PATH_MAX];
        const int at = c->dirfd >= 0 ? 2 : -1;
        path_at(to, task, at >= 0 ? (int)s->args[at] : AT_FDCWD, s->args[at >= 0 ? 3 : 1]);
        put_text("to", to);
    }
    fputs("}\n", record);
}

/* ---- tracing ---- */

enum { TASKS = 1024, HELD = 64 };

/* Tasks that are not continued before their time; the others of the program go on meanwhile. */
static struct {
    pid_t task;
    int go;
    uint64_t until; /* ms */
} held[HELD];
static int held_count;

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void hold(pid_t task)
{
    if (held_count < HELD) {
        held[held_count].task = task;
        held[held_count++].until = now_ms() + o.slow_ms;
    }
}

/* True: it is held, and will go on as it would now. */
static int is_held(pid_t task, int go)
{
    for (int i = 0; i < held_count; i++)
        if (held[i].task == task) {
            held[i].go = go;
            return 1;
        }
    return 0;
}

static void release_due(void)
{
    for (int i = 0; i < held_count;)
        if (now_ms() >= held[i].until) {
            ptrace((enum __ptrace_request)held[i].go, held[i].task, NULL, NULL);
            held[i] = held[--held_count];
        } else {
            i++;
        }
}

/* A call that runs in a task: its result is awaited, for the record. */
static struct pending {
    pid_t task;
    const system_call *call;
    stopped before;
    char path[PATH_MAX];
} pending[TASKS];

static struct pending *slot_of(pid_t task)
{
    struct pending *free_one = NULL;
    for (int i = 0; i < TASKS; i++) {
        if (pending[i].task == task)
            return &pending[i];
        if (!pending[i].task && !free_one)
            free_one = &pending[i];
    }
    if (!free_one)
        die("too many tasks");
    return free_one;
}

/* A call of the table is about to be made: counts it, and lets it fail. Returns how to go on. */
static int on_call(pid_t task)
{
    char path[PATH_MAX];
    registers r;
    registers_of(task, &r);
    const stopped s = look(&r);
    const system_call *c = system_calls;
    while (c < system_calls + SYSTEM_CALLS && c->number != s.number)
        c++;
    if (c == system_calls + SYSTEM_CALLS)
        return PTRACE_CONT;
    if (c->call == MMAP && (int)s.args[4] < 0)
        return PTRACE_CONT;
    path_of(path, task, c, &s);
    if (!is_below(path))
        return PTRACE_CONT;
    const uint64_t flags = c->dirfd >= 0 ? s.args[2] : s.args[1];
    const call what = c->call == OPEN && flags & O_DIRECTORY ? OPENDIR : c->call;
    const unsigned long n = ++counts[what];
    if ((int)what == o.slow)
        hold(task);
    if ((int)what == o.call && n >= o.at && n - o.at < o.many) {
        if (o.error)
            refuse(task, &r, o.error);
        else if (c->length >= 0)
            shorten(task, &r, c->length);
        if (o.error)
            return PTRACE_CONT;
    }
    if (!record)
        return PTRACE_CONT;
    struct pending *p = slot_of(task);
    p->task = task;
    p->call = c;
    p->before = s;
    strcpy(p->path, path);
    return PTRACE_SYSCALL;
}

static void on_return(pid_t task)
{
    struct pending *p = slot_of(task);
    if (p->task != task)
        return;
    registers r;
    registers_of(task, &r);
    write_record(task, p->call, &p->before, p->path, look(&r).result);
    p->task = 0;
}

static void filter_calls(void)
{
    struct sock_filter code[SYSTEM_CALLS * 2 + 2];
    size_t n = 0;
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < SYSTEM_CALLS; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
                                                 (uint32_t)system_calls[i].number, 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {(unsigned short)n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        die("seccomp");
}

static pid_t start(char **argv)
{
    const pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            die("ptrace");
        raise(SIGSTOP);
        filter_calls();
        execvp(argv[0], argv);
        die(argv[0]);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        die("the program did not start");
    const long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                         PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD;
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)options) != 0)
        die("ptrace");
    ptrace(PTRACE_CONT, child, NULL, NULL);
    return child;
}

static int trace(pid_t child)
{
    int status, code = CANNOT;
    for (pid_t task; (task = waitpid(-1, &status, held_count ? __WALL | WNOHANG : __WALL)) >= 0;) {
        release_due();
        if (task == 0) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            continue;
        }
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            slot_of(task)->task = 0;
            if (task == child)
                code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            continue;
        }
        int go = PTRACE_CONT, signal = 0;
        const int stop = WSTOPSIG(status), event = status >> 16;
        if (event == PTRACE_EVENT_SECCOMP)
            go = on_call(task);
        else if (stop == (SIGTRAP | 0x80))
            on_return(task);
        else if (event == 0 && stop != SIGSTOP && stop != SIGTRAP)
            signal = stop;
        if (!is_held(task, go))
            ptrace((enum __ptrace_request)go, task, NULL, (void *)(long)signal);
    }
    return code;
}

/* ---- the command line ---- */

static void read_fault(const char *text)
{
    char name[32], how[32];
    if (sscanf(text, "%31[a-z]:%lu:%31[A-Za-z]:%lu", name, &o.at, how, &o.many) < 3)
        goto wrong;
    for (int i = 0; i < CALL_COUNT; i++)
        if (strcmp(name, call_names[i]) == 0)
            o.call = i;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (strcmp(how, errors[i].name) == 0) {
            o.error = errors[i].number;
            if (o.call >= 0)
                return;
        }
wrong:
    fprintf(stderr, "iofault: --fail %s: want CALL:N:HOW\n", text);
    exit(2);
}

static void read_slow(const char *text)
{
    char name[32];
    if (sscanf(text, "%31[a-z]:%lu", name, &o.slow_ms) == 2)
        for (int i = 0; i < CALL_COUNT; i++)
            if (strcmp(name, call_names[i]) == 0)
                o.slow = i;
}

int main(int argc, char **argv)
{
    int i = 1;
    for (; i + 1 < argc && strcmp(argv[i], "--") != 0; i += 2) {
        if (strcmp(argv[i], "--root") == 0)
            o.root = argv[i + 1];
        else if (strcmp(argv[i], "--counts") == 0)
            o.counts = argv[i + 1];
        else if (strcmp(argv[i], "--record") == 0)
            o.record = argv[i + 1];
        else if (strcmp(argv[i], "--fail") == 0)
            read_fault(argv[i + 1]);
        else if (strcmp(argv[i], "--slow") == 0)
            read_slow(argv[i + 1]);
        else
            break;
    }
    if (i + 1 >= argc || strcmp(argv[i], "--") != 0 || !o.root) {
        fprintf(stderr, "iofault --root DIR [--counts FILE] [--fail CALL:N:HOW[:MANY]] "
                        "[--slow CALL:MS] [--record FILE] -- PROGRAM ...\n");
        return 2;
    }
    if (o.record && !(record = fopen(o.record, "we")))
        die(o.record);
    const int code = trace(start(argv + i + 1));
    if (record && fclose(record) != 0)
        die(o.record);
    FILE *f = o.counts ? fopen(o.counts, "w") : NULL;
    for (int k = 0; f && k < CALL_COUNT; k++)
        fprintf(f, "%s %lu\n", call_names[k], counts[k]);
    if (f && fclose(f) != 0)
        die(o.counts);
    return code;
}
