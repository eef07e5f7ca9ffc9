/* The files that a run is to write: what keeps them from being written, perhaps at its end after
 * days, is said before it begins, and nothing is written over what it reads. */
#include "cli/train/train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096 };

/* Cuts "a/b" to "a/", "a" to ".". */
static void to_parent(char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    strcpy(path + n, n ? "" : ".");
}

/* The folder it is in; false: too long. */
static bool parent_of(char folder[PATH], const char *path)
{
    if (strlen(path) >= PATH)
        return false;
    strcpy(folder, path);
    to_parent(folder);
    return true;
}

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Under two names, too, and where it does not exist yet. What is not a file can be shared. */
static bool is_same(const char *a, const char *b)
{
    struct stat x, y;
    char in[2][PATH];
    const bool here = stat(a, &x) == 0, there = stat(b, &y) == 0;
    if (here != there || (here && !S_ISREG(x.st_mode)))
        return false;
    if (!here && (strcmp(name_in(a), name_in(b)) != 0 || !parent_of(in[0], a) ||
                  !parent_of(in[1], b) || stat(in[0], &x) != 0 || stat(in[1], &y) != 0))
        return false;
    return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
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
int train_check_new_folder(const char *path)
{
    struct stat about;
    char folder[PATH];
    if (strlen(path) >= sizeof folder)
        return ENAMETOOLONG;
    strcpy(folder, path);
    while (stat(folder, &about) != 0 && errno == ENOENT && strcmp(folder, ".") != 0)
        to_parent(folder);
    return check_folder(folder);
}

/* The folder of the checkpoints, which is made first; NULL: there is none. */
static const char *run_folder;

static bool is_run_folder(const char *folder)
{
    size_t n = strlen(folder), m = run_folder ? strlen(run_folder) : 0;
    while (n > 1 && folder[n - 1] == '/')
        n--;
    while (m > 1 && run_folder[m - 1] == '/')
        m--;
    return m > 0 && n == m && memcmp(folder, run_folder, n) == 0;
}

/* Its own: checkpoints, and the options that it began with. */
static bool is_of_run(const char *path)
{
    struct stat x, y;
    char folder[PATH];
    const char *name = name_in(path), *end = strrchr(name, '.');
    if (!run_folder || !parent_of(folder, path) ||
        (!is_run_folder(folder) && (stat(folder, &x) != 0 || stat(run_folder, &y) != 0 ||
                                    x.st_dev != y.st_dev || x.st_ino != y.st_ino)))
        return false;
    return strcmp(name, "job.conf") == 0 || (end && strcmp(end, ".safetensors") == 0);
}

int train_check_file(const char *path)
{
    struct stat about;
    char folder[PATH];
    if (stat(path, &about) == 0)
        return S_ISDIR(about.st_mode) ? EISDIR : access(path, W_OK) == 0 ? 0 : errno;
    if (errno != ENOENT)
        return errno;
    if (!parent_of(folder, path))
        return ENAMETOOLONG;
    return is_run_folder(folder) ? train_check_new_folder(folder) : check_folder(folder);
}

/* What an earlier run has logged is not to be lost by a command that was given again, nor by an
 * error of the system. */
static bool has_content(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? S_ISREG(about.st_mode) && about.st_size > 0 : errno != ENOENT;
}

/* Whether nobody named the log: it is the one that --report makes. */
static bool is_beside(const train_options *o)
{
    char *beside = o->report ? train_log_beside(o->report) : NULL;
    const bool same = beside && strcmp(beside, o->log) == 0;
    free(beside);
    return same;
}

int train_check_paths(const train_options *o)
{
    const struct {
        const char *option, *path;
        int (*check)(const char *path);                 /* NULL: it is read */
    } all[] = {{"report", o->report, train_check_file}, /* first: --log may have been made of it */
               {"log", o->log, train_check_file},
               {"csv", o->csv, train_check_file},
               {"tensorboard", o->tensorboard, train_check_new_folder},
               {"checkpoint", o->checkpoint, train_check_new_folder},
               {"data", o->data, NULL},
               {"labels", o->labels, NULL},
               {"tokenizer", o->tokenizer, NULL},
               {"init", o->init, NULL},
               {"config", o->config, NULL}};
    const size_t n = sizeof all / sizeof all[0];
    run_folder = o->checkpoint;
    for (size_t i = 0; i < n; i++) {
        if (!all[i].path || !all[i].check)
            continue;
        for (size_t k = i + 1; all[i].check == train_check_file && k < n; k++)
            if (all[k].path && is_same(all[i].path, all[k].path))
                return cli_fail("--%s and --%s are the same file", all[i].option, all[k].option);
        if (strcmp(all[i].path, "-") == 0) /* standard output has the summary */
            return cli_fail("--%s - is no name of a file or folder here: write ./- if it is meant",
                            all[i].option);
        if (is_of_run(all[i].path))
            return cli_fail("--%s %.120s is a file of the run itself: name another one",
                            all[i].option, all[i].path);
        const int why = all[i].check(all[i].path);
        if (why != 0) /* the disk's fault, or the user's */
            return (why == EIO ? cli_failed : cli_fail)("--%s %.120s cannot be written: %s",
                                                        all[i].option, all[i].path, strerror(why));
        if ((all[i].path == o->log || all[i].path == o->csv) && !o->overwrite && !o->resume &&
            !o->dry_run && has_content(all[i].path))
            return cli_fail("--%s %.120s is there already: name another file, or add --overwrite "
                            "to begin it anew",
                            all[i].path == o->csv ? "csv:"
                            : is_beside(o)        ? "report: its log"
                                                  : "log:",
                            all[i].path);
    }
    return CLI_GO;
}
