#include "io/folder.h"
#include "io/file.h"
#include "io/lines.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool gsi_path_replace(char out[GSI_PATH], const char *path, const char *from, const char *to)
{
    const char *name = strrchr(path, '/'), *at = NULL;
    for (const char *p = strstr(name ? name : path, from); p; p = strstr(p + 1, from))
        at = p;
    char copy[GSI_PATH];
    if (!at || snprintf(copy, sizeof copy, "%.*s%s%s", (int)(at - path), path, to,
                        at + strlen(from)) >= GSI_PATH)
        return false;
    strcpy(out, copy);
    return true;
}

bool gsi_is_nothing(int why)
{
    return why == ENOENT || why == ENOTDIR || why == ELOOP || why == ENAMETOOLONG;
}

bool gsi_may_be_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 || !gsi_is_nothing(errno);
}

static gs_status fail(const char *path, gs_error *error, gs_status status, const char *what)
{
    char shown[sizeof((gsi_file *)0)->path];
    gsi_show_path(shown, path);
    return gsi_fail(error, status, "%s: %s", shown, what);
}

/* folder/name; NULL: no memory */
static char *joined(gsi_heap *heap, const char *folder, const char *name)
{
    const size_t n = strlen(folder), m = strlen(name);
    const bool slash = folder[n - 1] != '/'; /* it was opened: it has a name */
    char *path = gsi_new(heap, n + slash + m + 1);
    if (path) {
        memcpy(path, folder, n);
        if (slash)
            path[n] = '/';
        memcpy(path + n + slash, name, m + 1);
    }
    return path;
}

/* A folder that is being read, and those above it. */
typedef struct opened {
    const struct opened *above;
    dev_t device;
    ino_t inode;
    int depth;
} opened;

static gs_status walk(gsi_paths *p, const char *folder, const opened *above, gs_error *error);

/* Keeps the path, or frees it. */
static gs_status take(gsi_paths *p, char *path, const opened *in, gs_error *error)
{
    struct stat st, target;
    gs_status status = GS_OK;
    bool file = false;
    if (lstat(path, &st) != 0) {
        status = fail(path, error, GS_EIO, strerror(errno));
    } else if (S_ISDIR(st.st_mode)) {
        status = walk(p, path, in, error);
    } else if (stat(path, &target) != 0) {
        file = p->all;
        if (!file && !gsi_is_nothing(errno))
            status = fail(path, error, GS_EIO, strerror(errno));
    } else if (S_ISDIR(target.st_mode) && p->all) {
        status = walk(p, path, in, error);
    } else {
        file = S_ISREG(target.st_mode) && (target.st_size > 0 || p->all);
    }
    if (file) {
        if (p->n == GSI_FOLDER_FILES)
            status = fail(path, error, GS_ESIZE, "there are too many files in the folder");
        else if (!gsi_grow(p->heap, &p->list, &p->room, p->n + 1, sizeof *p->list))
            status = fail(path, error, GS_ENOMEM, "there is no memory for its name");
        else {
            p->list[p->n++] = path;
            return GS_OK;
        }
    }
    gsi_free(p->heap, path);
    return status;
}

static bool is_above(const opened *o, const struct stat *st)
{
    while (o && (o->inode != st->st_ino || o->device != st->st_dev))
        o = o->above;
    return o;
}

/* A link may lead to a folder above: what is there has been taken, or will be. */
static gs_status walk(gsi_paths *p, const char *folder, const opened *above, gs_error *error)
{
    struct stat st;
    if (above && above->depth == GSI_FOLDER_DEPTH)
        return fail(folder, error, GS_ESIZE, "folders lie too deep in each other");
    if (p->folders++ == GSI_FOLDER_FOLDERS)
        return fail(folder, error, GS_ESIZE, "there are too many folders in the folder");
    if (stat(folder, &st) != 0)
        return fail(folder, error, GS_EIO, strerror(errno));
    if (is_above(above, &st))
        return GS_OK;
    const opened here = {above, st.st_dev, st.st_ino, above ? above->depth + 1 : 0};
    DIR *dir = gsi_opendir(folder);
    if (!dir)
        return fail(folder, error, GS_EIO, strerror(errno));
    gs_status status = GS_OK;
    const struct dirent *entry;
    errno = 0;
    while (status == GS_OK && (entry = readdir(dir))) {
        if (entry->d_name[0] != '.') {
            char *path = joined(p->heap, folder, entry->d_name);
            status = path ? take(p, path, &here, error)
                          : fail(folder, error, GS_ENOMEM, "there is no memory for its names");
        }
        errno = 0;
    }
    if (status == GS_OK && errno)
        status = fail(folder, error, GS_EIO, strerror(errno));
    closedir(dir);
    return status;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

gs_status gsi_paths_walk(gsi_paths *paths, const char *folder, gs_error *error)
{
    const size_t before = paths->n;
    const gs_status status = walk(paths, folder, NULL, error);
    if (paths->n > before)
        qsort(paths->list + before, paths->n - before, sizeof *paths->list, by_bytes);
    return status;
}

void gsi_paths_free(gsi_paths *paths)
{
    for (size_t i = 0; i < paths->n; i++)
        gsi_free(paths->heap, paths->list[i]);
    gsi_free(paths->heap, paths->list);
    *paths = (gsi_paths){.heap = paths->heap, .all = paths->all};
}
