/* Files that are there whole or not at all.
 *
 * (1) `path` is the old file or the new one at every moment, after a crash too: the new one is
 *     written as PATH.PID-N.tmp in the same folder with the old one's permissions, fsynced and
 *     renamed; then the folder is fsynced.
 * (2) Who writes a temporary holds a lock on it. One that can be locked is nobody's: its process
 *     was killed, and whoever comes next removes it.
 */
#if defined(__linux__)
#define _GNU_SOURCE /* sync_file_range */
#endif
#include "io/write.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

void gsi_folder_of(char folder[GSI_PATH], const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) : 0;
    memcpy(folder, path, n);
    folder[n] = 0;
    if (n == 0)
        strcpy(folder, slash ? "/" : ".");
}

static gs_status failed(const char *path, gs_error *error, const char *what)
{
    char shown[GSI_SHOWN_PATH];
    const int why = errno;
    return gsi_fail(error, GS_EIO, "%s: %s: %s", gsi_show_path(shown, path), what, strerror(why));
}

/* ---- temporaries ---- */

/* Length of PATH in "PATH.PID-N.tmp"; 0: it is no such name. */
static size_t head_of(const char *name)
{
    static const char tail[] = ".tmp";
    size_t n = strlen(name);
    if (n < sizeof tail || strcmp(name + n - (sizeof tail - 1), tail) != 0)
        return 0;
    n -= sizeof tail - 1;
    for (const char *before = "-."; *before; before++) {
        const size_t end = n;
        while (n > 0 && isdigit((unsigned char)name[n - 1]))
            n--;
        if (n == end || n < 2 || name[n - 1] != *before)
            return 0;
        n--;
    }
    return n;
}

static bool is_left_over(const char *name, const char *base)
{
    static const char suffix[] = ".safetensors";
    const size_t n = head_of(name), m = sizeof suffix - 1;
    if (base)
        return n > 0 && n == strlen(base) && memcmp(name, base, n) == 0;
    return n > m && memcmp(name + n - m, suffix, m) == 0;
}

void gsi_remove_temporaries(const char *folder, const char *base)
{
    DIR *dir = gsi_opendir(folder);
    if (!dir)
        return;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!is_left_over(e->d_name, base))
            continue;
        const int fd =
            openat(dirfd(dir), e->d_name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && gsi_flock(fd, LOCK_EX | LOCK_NB) == 0)
            unlinkat(dirfd(dir), e->d_name, 0);
        if (fd >= 0)
            close(fd);
    }
    closedir(dir);
}

/* A new one, locked. Another process may take it for a left-over in the moment before it is locked,
 * and remove it: then again. */
static bool open_temporary(gsi_replace *r)
{
    struct stat st;
    for (unsigned n = 0; n < 1000; n++) {
        const int length = snprintf(r->temporary, sizeof r->temporary, "%s.%ld-%u.tmp", r->path,
                                    (long)getpid(), n);
        if (length < 0 || (size_t)length >= sizeof r->temporary) {
            errno = ENAMETOOLONG;
            return false;
        }
        r->fd =
            gsi_open(r->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY);
        if (r->fd < 0 && errno != EEXIST)
            return false;
        if (r->fd < 0)
            continue;
        /* where there are no locks, nobody can hold one, and nothing is ever removed */
        gsi_flock(r->fd, LOCK_EX | LOCK_NB);
        if (fstat(r->fd, &st) != 0 || st.st_nlink > 0) /* one that is gone cannot be renamed */
            return true;
        close(r->fd);
    }
    return false;
}

/* ---- writing ---- */

enum { PIECE = 1 << 18 }; /* hashed, then written, while it is in the cache */
enum { CHUNK = 8 << 20 }; /* sent to the disk while the next one is hashed */

/* The disk begins with what is written so far; the fsync at the end then has little left to wait
 * for. */
static void start_disk(gsi_replace *r)
{
#if defined(__linux__)
    if (r->hash.length - r->sent < CHUNK)
        return;
    sync_file_range(r->fd, (off_t)r->sent, (off_t)(r->hash.length - r->sent),
                    SYNC_FILE_RANGE_WRITE);
    r->sent = r->hash.length;
#else
    (void)r;
#endif
}

static gs_status abandon(gsi_replace *r, gs_error *error, const char *what)
{
    const gs_status status = failed(r->path, error, what);
    unlink(r->temporary);
    close(r->fd);
    return status;
}

/* The owner only where the system lets it be given away. */
static bool keep_permissions(int fd, const struct stat *old)
{
    struct stat now;
    if (fchown(fd, old->st_uid, old->st_gid) != 0)
        errno = 0;
    return fstat(fd, &now) == 0 && ((now.st_mode & 07777) == (old->st_mode & 07777) ||
                                    fchmod(fd, old->st_mode & 07777) == 0);
}

gs_status gsi_replace_begin(gsi_replace *r, const char *path, gs_error *error)
{
    char folder[GSI_PATH], shown[GSI_SHOWN_PATH];
    struct stat st;
    const bool there = stat(path, &st) == 0;
    const char *slash = strrchr(path, '/');
    if (strlen(path) >= sizeof r->path)
        return gsi_fail(error, GS_ESIZE, "%s: the path is too long", gsi_show_path(shown, path));
    if (path[0] == 0 || (slash && slash[1] == 0) || (there && S_ISDIR(st.st_mode)))
        return gsi_fail(error, GS_EIO, "%s: is a folder, not a file to write",
                        gsi_show_path(shown, path));
    strcpy(r->path, path);
    gsi_folder_of(folder, path);
    gsi_remove_temporaries(folder, slash ? slash + 1 : path);
    if (!open_temporary(r))
        return failed(path, error, "cannot be written");
    if (there && S_ISREG(st.st_mode) && !keep_permissions(r->fd, &st))
        return abandon(r, error, "its permissions cannot be kept");
    gsi_hash_init(&r->hash);
    r->sent = 0;
    return GS_OK;
}

gs_status gsi_replace_write(gsi_replace *r, const void *data, size_t n, gs_error *error)
{
    for (const char *p = data; n > 0;) {
        const size_t piece = n < PIECE ? n : PIECE;
        gsi_hash_add(&r->hash, p, piece);
        for (size_t done = 0; done < piece;) {
            const ssize_t put = write(r->fd, p + done, piece - done);
            if (put < 0 && errno == EINTR)
                continue;
            if (put <= 0)
                return abandon(r, error, "writing failed");
            done += (size_t)put;
        }
        start_disk(r);
        p += piece;
        n -= piece;
    }
    return GS_OK;
}

/* Some file systems have nothing to bring to the disk here and say EINVAL. */
static bool sync_folder(const char *path)
{
    char folder[GSI_PATH];
    gsi_folder_of(folder, path);
    const int fd = gsi_open(folder, O_RDONLY | O_CLOEXEC);
    const bool done = fd >= 0 && (gsi_fsync(fd) == 0 || errno == EINVAL);
    if (fd >= 0)
        close(fd);
    return done;
}

gs_status gsi_replace_end(gsi_replace *r, gs_error *error)
{
    if (gsi_fsync(r->fd) != 0)
        return abandon(r, error, "cannot be brought to the disk");
    if (rename(r->temporary, r->path) != 0)
        return abandon(r, error, "cannot take its place");
    close(r->fd); /* it is on the disk: nothing can be lost here */
    return sync_folder(r->path)
               ? GS_OK
               : failed(r->path, error, "its folder cannot be brought to the disk");
}

bool gsi_replace_by_link(const char *path, const char *from)
{
    char temporary[GSI_PATH];
    const int length = snprintf(temporary, sizeof temporary, "%s.%ld-0.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary)
        return false;
    unlink(temporary);
    const bool done = link(from, temporary) == 0 && rename(temporary, path) == 0;
    unlink(temporary); /* rename leaves it where both are the same file */
    return done && sync_folder(path);
}

gs_status gsi_make_folder(const char *path, gs_error *error)
{
    char part[GSI_PATH], shown[GSI_SHOWN_PATH];
    struct stat st;
    const size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return gsi_fail(error, GS_ESIZE, "%s: is no name of a folder", gsi_show_path(shown, path));
    strcpy(part, path);
    for (size_t i = 1; i <= n; i++) {
        if (part[i] != '/' && part[i] != 0)
            continue;
        part[i] = 0;
        const bool made = mkdir(part, 0777) == 0;
        const int why = errno;
        if (made)
            sync_folder(part);
        else if (why != EEXIST && stat(part, &st) != 0) {
            errno = why; /* not that it is not there */
            return failed(part, error, "cannot be made");
        }
        part[i] = i < n ? '/' : 0;
    }
    if (stat(path, &st) != 0)
        return failed(path, error, "cannot be examined");
    if (!S_ISDIR(st.st_mode))
        return gsi_fail(error, GS_EIO, "%s: is not a folder", gsi_show_path(shown, path));
    if (access(path, W_OK | X_OK) != 0)
        return failed(path, error, "cannot be written to");
    return GS_OK;
}
