/* The files that a run is to write: what keeps them from being written, perhaps at its end after
 * days, is said before it begins, and nothing is written over what it reads. */
#include "train.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Under two names, too, and where it does not exist yet. */
static bool is_same(const char *a, const char *b)
{
    struct stat x, y;
    while (strncmp(a, "./", 2) == 0)
        a += 2;
    while (strncmp(b, "./", 2) == 0)
        b += 2;
    if (stat(a, &x) == 0 && stat(b, &y) == 0)
        return S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    return strcmp(a, b) == 0;
}

/* Cuts "a/b" to "a", "a" to ".". */
static void to_parent(char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    strcpy(path + n, n ? "" : ".");
}

/* Each check: 0, or why it cannot be written. */

static int check_folder(const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return errno;
    if (!S_ISDIR(about.st_mode))
        return ENOTDIR;
    return access(path, W_OK | X_OK) == 0 ? 0 : errno;
}

/* It and those it is in are made where they are not there. */
static int check_new_folder(const char *path)
{
    struct stat about;
    char folder[4096];
    if (strlen(path) >= sizeof folder)
        return ENAMETOOLONG;
    strcpy(folder, path);
    while (stat(folder, &about) != 0 && errno == ENOENT && strcmp(folder, ".") != 0)
        to_parent(folder);
    return check_folder(folder);
}

static int check_file(const char *path)
{
    struct stat about;
    char folder[4096];
    if (strlen(path) >= sizeof folder)
        return ENAMETOOLONG;
    if (stat(path, &about) == 0)
        return S_ISDIR(about.st_mode) ? EISDIR : access(path, W_OK) == 0 ? 0 : errno;
    if (errno != ENOENT)
        return errno;
    strcpy(folder, path);
    to_parent(folder);
    return check_folder(folder);
}

int train_check_paths(const train_options *o)
{
    const struct {
        const char *option, *path;
        int (*check)(const char *path);           /* NULL: it is read */
    } all[] = {{"report", o->report, check_file}, /* first: --log may have been made of it */
               {"log", o->log, check_file},
               {"csv", o->csv, check_file},
               {"tensorboard", o->tensorboard, check_new_folder},
               {"checkpoint", o->checkpoint, check_new_folder},
               {"data", o->data, NULL},
               {"labels", o->labels, NULL},
               {"config", o->config, NULL}};
    const size_t n = sizeof all / sizeof all[0];
    for (size_t i = 0; i < n; i++) {
        if (!all[i].path || !all[i].check)
            continue;
        for (size_t k = i + 1; all[i].check == check_file && k < n; k++)
            if (all[k].path && is_same(all[i].path, all[k].path))
                return cli_fail("--%s and --%s are the same file", all[i].option, all[k].option);
        const int why = all[i].check(all[i].path);
        if (why != 0)
            return cli_fail("--%s %.120s cannot be written: %s", all[i].option, all[i].path,
                            strerror(why));
    }
    return CLI_GO;
}
