/* faults.h: system calls that fail when told to, within the program: its own definitions stand
 * before those of the C library. (tests/fault/iofault.c does it from outside, to whole programs.)
 *
 *     fault_plan(FAULT_READ, 3, EIO);      the third read or pread fails
 *     fault_plan(FAULT_STAT, 1, 0);        the first fstat finds a file that has lost its name
 *     ... fault_struck() says whether it came to that; fault_plan(FAULT_NONE, 0, 0) ends it */
#ifndef FAULTS_H
#define FAULTS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef enum fault_call {
    FAULT_OPEN,
    FAULT_READ,
    FAULT_WRITE,
    FAULT_SYNC,
    FAULT_STAT,
    FAULT_RENAME,
    FAULT_UNLINK,
    FAULT_MKDIR,
    FAULT_FOLDER, /* opendir */
    FAULT_LIST,   /* every readdir of a folder that could be opened; errno is ENOTDIR */
    FAULT_TRUNCATE,
    FAULT_LINK,
    FAULT_LOCK,
    FAULT_ACCESS,
    FAULT_MAP,
    FAULT_OWNER, /* fchown */
    FAULT_MODE,  /* fchmod */
    FAULT_NONE   /* how many there are */
} fault_call;

static struct {
    fault_call call;
    unsigned at, seen;
    int error;          /* an errno; 0: half of the bytes */
    void (*then)(void); /* what happens as well, at that moment; NULL: nothing */
} fault = {.call = FAULT_NONE};

static inline void fault_plan(fault_call call, unsigned at, int error)
{
    fault.call = call;
    fault.at = at;
    fault.error = error;
    fault.seen = 0;
    fault.then = NULL;
}

static inline int fault_struck(void) { return fault.call != FAULT_NONE && fault.seen >= fault.at; }

static inline int fault_now(fault_call call)
{
    if (call != fault.call || ++fault.seen != fault.at)
        return 0;
    if (fault.then)
        fault.then();
    errno = fault.error;
    return 1;
}

static inline size_t fault_bytes(size_t n) { return n > 1 ? n / 2 : n; }

long syscall(long number, ...); /* not in POSIX */

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    const int mode = flags & O_CREAT ? va_arg(list, int) : 0;
    va_end(list);
    return fault_now(FAULT_OPEN) ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int openat(int folder_fd, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    const int mode = flags & O_CREAT ? va_arg(list, int) : 0;
    va_end(list);
    return fault_now(FAULT_OPEN) ? -1 : (int)syscall(SYS_openat, folder_fd, path, flags, mode);
}

ssize_t read(int fd, void *buffer, size_t n)
{
    const int now = fault_now(FAULT_READ);
    return now && fault.error ? -1 : syscall(SYS_read, fd, buffer, now ? fault_bytes(n) : n);
}

ssize_t pread(int fd, void *buffer, size_t n, off_t at)
{
    const int now = fault_now(FAULT_READ);
    return now && fault.error ? -1 : syscall(SYS_pread64, fd, buffer, now ? fault_bytes(n) : n, at);
}

ssize_t write(int fd, const void *buffer, size_t n)
{
    const int now = fd > STDERR_FILENO && fault_now(FAULT_WRITE);
    return now && fault.error ? -1 : syscall(SYS_write, fd, buffer, now ? fault_bytes(n) : n);
}

/* No power fails here, and waiting for the disk takes long. */
int fsync(int fd) { return (void)fd, fault_now(FAULT_SYNC) ? -1 : 0; }

int fstat(int fd, struct stat *st)
{
    const int now = fault_now(FAULT_STAT);
    const int code = now && fault.error ? -1 : fstatat(fd, "", st, 0x1000 /* AT_EMPTY_PATH */);
    if (now && code == 0)
        st->st_nlink = 0;
    return code;
}

int stat(const char *path, struct stat *st)
{
    return fault_now(FAULT_STAT) ? -1 : fstatat(AT_FDCWD, path, st, 0);
}

int lstat(const char *path, struct stat *st)
{
    return fault_now(FAULT_STAT) ? -1 : fstatat(AT_FDCWD, path, st, AT_SYMLINK_NOFOLLOW);
}

int rename(const char *from, const char *to)
{
    return fault_now(FAULT_RENAME) ? -1 : renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int unlink(const char *path) { return fault_now(FAULT_UNLINK) ? -1 : unlinkat(AT_FDCWD, path, 0); }

int mkdir(const char *path, mode_t mode)
{
    return fault_now(FAULT_MKDIR) ? -1 : mkdirat(AT_FDCWD, path, mode);
}

DIR *opendir(const char *path)
{
    if (fault_now(FAULT_FOLDER))
        return NULL;
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir && fault_now(FAULT_LIST)) { /* what is read is no folder */
        const int other = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC, 0);
        dup2(other, fd);
        close(other);
    }
    return dir;
}

int ftruncate(int fd, off_t length)
{
    return fault_now(FAULT_TRUNCATE) ? -1 : (int)syscall(SYS_ftruncate, fd, length);
}

int link(const char *from, const char *to)
{
    return fault_now(FAULT_LINK) ? -1 : linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int flock(int fd, int operation)
{
    return fault_now(FAULT_LOCK) ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int access(const char *path, int mode)
{
    return fault_now(FAULT_ACCESS) ? -1 : faccessat(AT_FDCWD, path, mode, 0);
}

int fchown(int fd, uid_t owner, gid_t group)
{
    return fault_now(FAULT_OWNER) ? -1 : (int)syscall(SYS_fchown, fd, owner, group);
}

int fchmod(int fd, mode_t mode)
{
    return fault_now(FAULT_MODE) ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && fault_now(FAULT_MAP))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, length, protection, flags, fd, offset);
}

#endif
