#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

const char *gsi_show_path(char out[GSI_SHOWN_PATH], const char *path)
{
    const size_t n = strlen(path), room = GSI_SHOWN_PATH - 1;
    memcpy(out, n > room ? path + n - room : path, (n > room ? room : n) + 1);
    if (n > room)
        memcpy(out, "...", 3);
    for (char *p = out; *p; p++)
        if ((uint8_t)*p < 0x20 || *p == 0x7F)
            *p = '?';
    return out;
}

int gsi_open(const char *path, int flags)
{
    int fd;
    do
        fd = open(path, flags, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

DIR *gsi_opendir(const char *path)
{
    DIR *dir;
    do
        dir = opendir(path);
    while (!dir && errno == EINTR);
    return dir;
}

ssize_t gsi_read(int fd, void *bytes, size_t n)
{
    ssize_t got;
    do
        got = read(fd, bytes, n);
    while (got < 0 && errno == EINTR);
    return got;
}

int gsi_fsync(int fd)
{
    int code;
    do
        code = fsync(fd);
    while (code != 0 && errno == EINTR);
    return code;
}

int gsi_flock(int fd, int operation)
{
    int code;
    do
        code = flock(fd, operation);
    while (code != 0 && errno == EINTR);
    return code;
}

gs_status gsi_file_fail(const gsi_file *file, gs_error *error, gs_status status, const char *format,
                        ...)
{
    char text[sizeof((gs_error *)0)->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return gsi_fail(error, status, "%s: %s", file->path, text);
}

static gs_status check_regular(gsi_file *f, gs_error *error)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0)
        return gsi_file_fail(f, error, GS_EIO, "cannot be examined: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return gsi_file_fail(f, error, GS_EIO, "is %s, not a regular file",
                             S_ISDIR(st.st_mode)    ? "a directory"
                             : S_ISFIFO(st.st_mode) ? "a pipe"
                                                    : "a device or socket");
    if (st.st_size == 0)
        return gsi_file_fail(f, error, GS_EFORMAT, "is empty");
    f->size = (uint64_t)st.st_size;
    return GS_OK;
}

gs_status gsi_file_open(gsi_file *file, const char *path, gs_error *error)
{
    gsi_show_path(file->path, path);
    /* Not blocking: a FIFO without a writer must not hang the caller. */
    file->fd = gsi_open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (file->fd < 0)
        return gsi_file_fail(file, error, GS_EIO, "cannot be opened: %s", strerror(errno));
    const gs_status status = check_regular(file, error);
    if (status != GS_OK)
        gsi_file_close(file);
    return status;
}

void gsi_file_close(gsi_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

gs_status gsi_file_read(const gsi_file *file, void *dst, size_t n, uint64_t offset, gs_error *error)
{
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(file->fd, (char *)dst + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return gsi_file_fail(file, error, GS_EIO, "reading failed: %s", strerror(errno));
        if (got == 0)
            return gsi_file_fail(file, error, GS_EIO, "the file became shorter while it was read");
        done += (size_t)got;
    }
    return GS_OK;
}
