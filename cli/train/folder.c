/* The folder of a run that was given none: runs/NAME-DATE, with its options, log, report and
 * checkpoints.
 *
 * (1) It is new: mkdir makes it or fails, and then the next name is tried, NAME-DATE-2, -3, ..
 * (2) It is made when the run begins to write, not before: a run that cannot begin leaves nothing.
 * (3) Rank 0 makes it and writes there. What the others have is a name that says: there is one. */
#include "cli/train/train.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

static const char parent[] = "runs";
enum { NAME = 160, PATH = 512, TRIES = 10000 };

/* ---- its name ---- */

/* Letters and digits stay, a dot or an underscore behind them too; the rest becomes '-', once. */
static void to_file_name(char *name)
{
    size_t n = 0;
    for (const char *c = name; *c; c++)
        if (isalnum((unsigned char)*c) || (n > 0 && name[n - 1] != '-' && strchr("._", *c)))
            name[n++] = *c;
        else if (n > 0 && name[n - 1] != '-')
            name[n++] = '-';
    while (n > 0 && name[n - 1] == '-')
        n--;
    name[n] = 0;
}

static void name_folder(char path[PATH], const train_job *j)
{
    char name[NAME], date[32] = "";
    struct tm now;
    const time_t t = time(NULL);
    if (localtime_r(&t, &now))
        strftime(date, sizeof date, "%Y%m%d-%H%M%S", &now);
    if (j->own_name) /* of several runs a folder says more by its model */
        snprintf(name, sizeof name, "%s %.100s", j->kind->name, j->o.name);
    else
        snprintf(name, sizeof name, "%.120s", j->o.name);
    to_file_name(name);
    snprintf(path, PATH, "%s/%s%s%s", parent, name, *name ? "-" : "", date);
}

/* The options follow: those that the user did not name lie in the folder. */
static void use_folder(train_job *j, const char *path)
{
    static char folder[PATH], log[PATH + 16], report[PATH + 16];
    snprintf(folder, sizeof folder, "%s", path);
    snprintf(log, sizeof log, "%s/log.jsonl", path);
    snprintf(report, sizeof report, "%s/report.html", path);
    const bool logs = j->o.checkpoint ? j->o.log == log : !j->o.log && !j->o.report;
    j->o.checkpoint = folder;
    if (logs) {
        j->o.log = log;
        j->o.report = report;
    }
    train_job_config(j);
}

int train_folder_name(train_job *j)
{
    char path[PATH];
    if (j->o.checkpoint || j->o.no_save || j->o.print_config)
        return CLI_GO;
    name_folder(path, j);
    const int why = j->comm.rank == 0 ? train_check_new_folder(path) : 0;
    if (why != 0)
        return cli_fail("%s cannot be made for this run: %s: name a folder with --checkpoint, or "
                        "add --no-save",
                        path, strerror(why));
    j->new_folder = true;
    use_folder(j, path);
    return CLI_GO;
}

/* ---- it is made ---- */

static void to_disk(const char *folder)
{
    const int fd = cli_open(folder, O_RDONLY | O_DIRECTORY);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

static int make_new(train_job *j)
{
    char first[PATH], path[PATH + 8];
    snprintf(first, sizeof first, "%s", j->o.checkpoint);
    snprintf(path, sizeof path, "%s", first);
    if (mkdir(parent, 0777) == 0)
        to_disk(".");
    for (int i = 2; mkdir(path, 0777) != 0; i++) {
        if (errno != EEXIST || i > TRIES)
            return cli_fail("%s cannot be made for this run: %s: name a folder with --checkpoint, "
                            "or add --no-save",
                            path, strerror(errno));
        snprintf(path, sizeof path, "%s-%d", first, i);
    }
    to_disk(parent);
    if (strcmp(path, first) != 0)
        use_folder(j, path);
    return CLI_GO;
}

int train_folder_make(train_job *j)
{
    const int code = j->new_folder ? make_new(j) : CLI_GO;
    struct statvfs disk;
    char need[48], have[48];
    if (code == CLI_GO && statvfs(j->o.checkpoint, &disk) == 0) {
        const uint64_t bytes = train_disk_of(j).all, free = (uint64_t)disk.f_bavail * disk.f_frsize;
        if (bytes > free)
            cli_warn("the checkpoints may take %s, and the disk of %.120s has %s left: --keep 1 "
                     "takes less",
                     cli_bytes_text(need, bytes), j->o.checkpoint, cli_bytes_text(have, free));
    }
    return code;
}

/* ---- what it takes ---- */

/* The f32 weights (of O3, the half ones) and what the optimizer keeps; and as many files as there
 * are occasions, or those that are kept and the best. */
train_disk train_disk_of(const train_job *j)
{
    const train_options *o = &j->o;
    const gs_held held = gs_trainer_held(j->trainer);
    const uint64_t bytes = o->mode - 1 == GS_O3 ? 2 : 4;
    const uint64_t ranks = o->zero ? (uint64_t)j->comm.size : 1;
    const uint64_t every[] = {o->checkpoint_every, o->valid_every};
    uint64_t n = 1; /* at the end */
    for (int i = 0; i < 2; i++)
        if (every[i] > 0 && (i == 0 || every[1] != every[0]))
            n += (o->steps - 1) / every[i];
    const uint64_t header = strlen(j->config) + strlen(j->about_data) + 4096 + 600 * j->model->n;
    train_disk d = {.one = bytes * train_job_parameters(j) + ranks * held.optimizer + header};
    d.files = o->keep > 0 && n > o->keep ? o->keep + 1 : n;
    d.all = d.files * d.one;
    return d;
}

/* What is there, each file once: the best is as a rule a second name of another. */
uint64_t train_folder_bytes(const char *folder)
{
    struct stat about;
    char path[4096];
    uint64_t sum = 0;
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        const int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        const bool second = strcmp(e->d_name, "best.safetensors") == 0;
        if (n < (int)sizeof path && lstat(path, &about) == 0 && S_ISREG(about.st_mode) &&
            !(second && about.st_nlink > 1))
            sum += (uint64_t)about.st_size;
    }
    if (dir)
        closedir(dir);
    return sum;
}
