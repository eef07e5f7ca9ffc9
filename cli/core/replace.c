/* Files that people asked for: there as a whole or not at all.
 *
 * (1) The new file is written beside the old one under a name of its own, which must not exist
 *     (O_EXCL, and no link is followed), brought to the disk, and renamed.
 * (2) The bytes are complete before anything is made: no memory is asked for while a temporary is
 *     there, and signals wait. So nothing but SIGKILL or a power loss leaves one.
 * (3) The old file's permissions and, where the system allows it, its owner are the new one's. */
#define _GNU_SOURCE /* fopencookie */
#include "cli/core/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- text in memory ---- */

/* Not open_memstream: the GNU C library's forgets that it had no memory for a part of the text. */
typedef struct memory {
    char **text;
    size_t *length, room;
} memory;

static ssize_t add_text(void *cookie, const char *bytes, size_t n)
{
    memory *m = cookie;
    if (n >= m->room - *m->length) {
        char *more = realloc(*m->text, 2 * (m->room + n));
        if (!more)
            return 0; /* the stream keeps the error */
        *m->text = more;
        m->room = 2 * (m->room + n);
    }
    memcpy(*m->text + *m->length, bytes, n);
    (*m->text)[ *m->length += n] = 0;
    return (ssize_t)n;
}

static int free_memory(void *cookie)
{
    free(cookie);
    return 0;
}

FILE *cli_text_begin(char **text, size_t *length)
{
    memory *m = cli_resize(NULL, sizeof *m);
    *m = (memory){text, length, 1};
    *text = cli_resize(NULL, m->room);
    **text = 0;
    *length = 0;
    FILE *to =
        fopencookie(m, "w", (cookie_io_functions_t){.write = add_text, .close = free_memory});
    if (!to)
        exit(cli_end(cli_failed("out of memory: a text cannot be begun")));
    return to;
}

void cli_text_end(FILE *to)
{
    const bool failed = fflush(to) != 0 || ferror(to) != 0;
    if (fclose(to) != 0 || failed)
        exit(cli_end(cli_failed("out of memory: a text cannot be completed")));
}

/* ---- files ---- */

int cli_open(const char *path, int flags)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC | O_NOCTTY, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

static ssize_t read_some(void *cookie, char *bytes, size_t n)
{
    ssize_t got;
    do
        got = read(*(int *)cookie, bytes, n);
    while (got < 0 && errno == EINTR);
    return got;
}

static int close_read(void *cookie)
{
    close(*(int *)cookie);
    free(cookie);
    return 0;
}

FILE *cli_read_begin(const char *path)
{
    const int fd = cli_open(path, O_RDONLY);
    if (fd < 0)
        return NULL;
    int *cookie = cli_resize(NULL, sizeof *cookie);
    *cookie = fd;
    FILE *from =
        fopencookie(cookie, "r", (cookie_io_functions_t){.read = read_some, .close = close_read});
    if (!from)
        exit(cli_end(cli_failed("out of memory: %.120s cannot be read", path)));
    return from;
}

static bool write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t put = write(fd, bytes, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        bytes += put;
        n -= (size_t)put;
    }
    return true;
}

static bool sync_fd(int fd)
{
    while (fsync(fd) != 0)
        if (errno != EINTR)
            return errno == EINVAL || errno == EROFS; /* there is nothing to sync */
    return true;
}

static bool close_fd(int fd) { return close(fd) == 0 || errno == EINTR; }

/* Errors that come after its rename are no longer its own: the file is there. */
static void sync_folder_of(const char *path, char *folder)
{
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    strcpy(slash ? slash + (slash == folder) : folder, slash ? "" : ".");
    const int fd = cli_open(folder, O_RDONLY | O_DIRECTORY);
    if (fd >= 0) {
        sync_fd(fd);
        close(fd);
    }
}

/* What is there and not a file, a device or a pipe, cannot be replaced: it is written to. */
static int write_through(const char *path, const char *bytes, size_t n, bool *opened)
{
    const int fd = cli_open(path, O_WRONLY);
    *opened = fd >= 0;
    if (fd < 0)
        return errno;
    const int why = write_all(fd, bytes, n) ? 0 : errno;
    return close_fd(fd) || why ? why : errno;
}

static int open_temporary(char *temporary, size_t room, const char *path)
{
    int fd = -1;
    for (unsigned i = 0; i < 1000 && fd < 0; i++) {
        snprintf(temporary, room, "%s.%ld-%u.part", path, (long)getpid(), i);
        fd = cli_open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

static int replace(const char *path, const struct stat *old, char *temporary, size_t room,
                   const char *bytes, size_t n, bool *opened)
{
    const int fd = open_temporary(temporary, room, path);
    *opened = fd >= 0;
    if (fd < 0)
        return errno;
    bool done = true;
    if (old) {
        if (fchown(fd, old->st_uid, old->st_gid) != 0)
            errno = 0; /* only root may give files away */
        done = fchmod(fd, old->st_mode & 07777) == 0;
    }
    done = done && write_all(fd, bytes, n) && sync_fd(fd);
    int why = done ? 0 : errno;
    if (!close_fd(fd) && done)
        why = errno;
    if (why == 0 && rename(temporary, path) != 0)
        why = errno;
    if (why != 0)
        unlink(temporary);
    else
        sync_folder_of(path, temporary);
    return why;
}

/* Signals wait for the end of it. */
static int replace_whole(const char *path, const struct stat *old, const char *bytes, size_t n,
                         bool *opened)
{
    const size_t room = strlen(path) + 64;
    char *temporary = cli_resize(NULL, room);
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    const int why = replace(path, old, temporary, room, bytes, n, opened);
    sigprocmask(SIG_SETMASK, &before, NULL);
    free(temporary);
    return why;
}

static int write_file(const char *path, bool follow, const void *bytes, size_t n, bool *opened)
{
    struct stat about;
    char *real = follow ? realpath(path, NULL) : NULL; /* a link stays one */
    const char *to = real ? real : path;
    const bool there = (follow ? stat : lstat)(to, &about) == 0;
    const bool file = there && S_ISREG(about.st_mode);
    const int why = follow && there && !file
                        ? write_through(to, bytes, n, opened)
                        : replace_whole(to, file ? &about : NULL, bytes, n, opened);
    free(real);
    return why;
}

int cli_write_file(const char *path, const void *bytes, size_t n, bool *opened)
{
    return write_file(path, true, bytes, n, opened);
}

int cli_write_here(const char *path, const void *bytes, size_t n, bool *opened)
{
    return write_file(path, false, bytes, n, opened);
}

int cli_save(const char *path, const void *bytes, size_t n)
{
    bool opened;
    const int why = cli_write_file(path, bytes, n, &opened);
    if (why == 0)
        return CLI_GO;
    return (opened ? cli_failed : cli_fail)("%.120s cannot be written: %s", path, strerror(why));
}
