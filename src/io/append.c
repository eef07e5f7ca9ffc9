#include "io/append.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static gs_status failed(const char *path, const char *what, gs_error *error)
{
    const int why = errno;
    return gsi_fail(error, GS_EIO, "%.120s: %s%s", path, what, strerror(why));
}

gs_status gsi_append_open(gsi_append *file, const char *path, gs_error *error)
{
    *file = (gsi_append){.fd = -1};
    gsi_show_path(file->path, path);
    struct stat about;
    gs_status status = GS_OK;
    const int fd = gsi_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0)
        status = failed(path, "", error);
    else if (S_ISREG(about.st_mode) && gsi_flock(fd, LOCK_EX | LOCK_NB) != 0 &&
             errno == EWOULDBLOCK)
        status = gsi_fail(error, GS_ESTATE, "%s: another run is writing to it", file->path);
    else
        file->fd = fd;
    if (fd >= 0 && file->fd < 0)
        close(fd);
    return status;
}

/* Where it has that length already, nothing is asked of the system: logs on pipes and terminals. */
gs_status gsi_append_cut(gsi_append *file, uint64_t keep, gs_error *error)
{
    struct stat about;
    if (file->fd < 0)
        return GS_OK;
    if (fstat(file->fd, &about) == 0 &&
        (!S_ISREG(about.st_mode) || (uint64_t)about.st_size == keep ||
         ftruncate(file->fd, (off_t)keep) == 0))
        return GS_OK;
    return failed(file->path, "", error);
}

/* Pipes and terminals have nothing to bring to a disk: EINVAL, EROFS. */
gs_status gsi_append_sync(gsi_append *file, gs_error *error)
{
    if (file->fd < 0 || gsi_fsync(file->fd) == 0 || errno == EINVAL || errno == EROFS)
        return GS_OK;
    failed(file->path, "cannot be brought to the disk: ", error);
    gsi_append_close(file);
    return GS_EIO;
}

void gsi_append_close(gsi_append *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

gs_status gsi_append_write(gsi_append *file, const void *bytes, size_t n, gs_error *error)
{
    if (file->fd < 0)
        return GS_OK;
    size_t done = 0;
    while (done < n) {
        const ssize_t wrote = write(file->fd, (const char *)bytes + done, n - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            break;
        done += (size_t)wrote;
    }
    if (done == n)
        return GS_OK;
    failed(file->path, "writing failed: ", error);
    struct stat about;
    if (done > 0 && fstat(file->fd, &about) == 0 && S_ISREG(about.st_mode) &&
        ftruncate(file->fd, about.st_size - (off_t)done) != 0)
        gsi_fail(error, GS_EIO, "%s: a part of a line was written, then writing failed",
                 file->path);
    gsi_append_close(file);
    return GS_EIO;
}
