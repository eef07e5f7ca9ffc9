/* A run that goes on: its checkpoint, and which of the options that it was begun with may change.
 *
 *     kept   the state in the file means something else under another value: refused
 *     told   what is computed from here on changes, knowingly: the heading says so
 *     the rest changes no weight: files, intervals, threads
 *
 * Settings of the scaler are compared where it has been loaded, in job.c.
 *
 * Where there is no checkpoint yet, the options are those of the folder's job.conf, which a run
 * writes before its first step. Neither file may say where something is written: a path of an
 * output counts only if it lies in the folder of the run, wherever that is (doc/security.md). */
#include "cli/train/train.h"

#include "gradscale/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char kept[] =
    "|model|resize|tokenizer|normalize|hidden|filters|patch|layers|width|heads|"
    "context|positions|norm|mlp|"
    "head|kv-heads|mlp-width|rope-theta|precision|mode|"
    "scaler|wgrad|quantize|ranges|optimizer|batch|accumulate|seed|";
static const char told[] = "|data|labels|augment|dropout|loss-weight|lr|schedule|warmup|steps|clip|"
                           "compress|";

static train_options begun; /* the options in the checkpoint */

bool train_resume_again(char *checkpoint, size_t room)
{
    return access(checkpoint, F_OK) != 0 && errno == ENOENT &&
           gs_saver_newest(checkpoint, room, train_given.checkpoint, NULL) == GS_OK;
}

/* Whether something is there; why tells: 0, or an errno that says that there is nothing. */
static int look(struct stat *about, int *why, const char *path)
{
    *why = stat(path, about) == 0 ? 0 : errno;
    if (*why == 0 || *why == ENOENT || *why == ENOTDIR || *why == ELOOP || *why == ENAMETOOLONG)
        return CLI_GO;
    return cli_failed("--resume: %.120s cannot be looked at: %s", path, strerror(*why));
}

static int find_config(gs_checkpoint_text *text, const char *folder)
{
    char path[4096];
    struct stat about;
    int why = ENAMETOOLONG;
    const int code =
        train_config_path(path, sizeof path, folder) ? look(&about, &why, path) : CLI_GO;
    if (code != CLI_GO)
        return code;
    if (why)
        return cli_fail("--resume: %.120s holds neither a checkpoint nor the job.conf of a run: "
                        "begin it without --resume",
                        folder);
    if (!S_ISREG(about.st_mode)) /* a pipe would hang */
        return cli_fail("--resume: %.120s is no file", path);
    *text = (gs_checkpoint_text){0};
    return CLI_GO;
}

int train_resume_unread(const gs_error *error)
{
    const char *taken = strstr(error->text, "; an older one is taken");
    const size_t length = taken ? (size_t)(taken - error->text) : strlen(error->text);
    return cli_failed("--resume: %.*s: try again, or remove it to go on from an older one",
                      (int)length, error->text);
}

int train_resume_find(char *path, size_t room, gs_checkpoint_text *text)
{
    gs_error error = {0};
    const char *folder = train_given.checkpoint;
    *path = 0;
    if (!folder)
        return cli_fail("--resume needs the folder of the run: --resume DIR");
    struct stat s;
    int why;
    const int code = look(&s, &why, folder);
    if (code != CLI_GO)
        return code;
    if (!why && !S_ISDIR(s.st_mode))
        return cli_fail("--resume needs the folder of the run, and %.120s is a file", folder);
    gs_status status = why ? GS_ENAME : gs_saver_newest(path, room, folder, &error);
    if (status == GS_ENAME) /* not yet */
        return find_config(text, folder);
    if (status != GS_OK)
        return cli_fail_status(status, &error);
    if (error.status == GS_EIO)
        return train_resume_unread(&error);
    if (error.status != GS_OK)
        cli_warn("%s", error.text); /* a newer one is damaged */
    status = gs_checkpoint_peek(text, path, &error);
    for (int i = 0; status != GS_OK && i < TRAIN_TRIES && train_resume_again(path, room); i++)
        status = gs_checkpoint_peek(text, path, &error);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

/* ---- where its files are ---- */

bool train_config_path(char *path, size_t room, const char *folder)
{
    const int n = snprintf(path, room, "%s/job.conf", folder);
    return n > 0 && (size_t)n < room;
}

/* What follows "FOLDER/" in a path, "" of the folder itself; NULL: it lies elsewhere, or a part of
 * it is "..". */
static const char *part_below(const char *path, const char *folder)
{
    const size_t n = folder ? strlen(folder) : 0;
    if (n == 0 || strncmp(path, folder, n) != 0 ||
        (path[n] != '/' && path[n] != 0 && folder[n - 1] != '/'))
        return NULL;
    const char *rest = path + n + strspn(path + n, "/");
    for (const char *p = rest; *p; p += strcspn(p, "/"), p += strspn(p, "/"))
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == 0))
            return NULL;
    return rest;
}

static const char outside[] = "outside of its folder";

/* Why it cannot be written to unless the user says so: a link is on the way from the folder to it,
 * or it is neither a file nor a folder. NULL: it can. */
static int leads_away(const char **why, const char *path, size_t folder)
{
    struct stat about;
    char part[4096];
    *why = NULL;
    for (size_t i = folder + 1; i <= strlen(path) && i < sizeof part; i++)
        if (path[i] == '/' || path[i] == 0) {
            memcpy(part, path, i);
            part[i] = 0;
            if (lstat(part, &about) != 0) {
                if (errno != ENOENT)
                    return cli_failed("%.120s: %s", part, strerror(errno));
            } else if (S_ISLNK(about.st_mode)) {
                *why = outside;
            } else if (!S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) {
                *why = "and there is no file now";
            }
        }
    return CLI_GO;
}

/* The output becomes the same file of the folder as it is now, or none. */
static int confine(const char **output, const char *option, const char *was, const char *now,
                   const char *given)
{
    const char *rest = *output ? part_below(*output, was) : NULL;
    const size_t room = rest ? strlen(now) + strlen(rest) + 2 : 0;
    char *path = rest && room <= 4096 ? cli_resize(NULL, room) : NULL;
    if (path)
        snprintf(path, room, "%s/%s", now, rest);
    const char *why = *output && !path ? outside : NULL;
    const int code = path ? leads_away(&why, path, strlen(now)) : CLI_GO;
    if (why) {
        if (!given)
            cli_warn("the run wrote its %s to %.120s, %s: give --%s to go on with it", option,
                     *output, why, option);
        free(path);
        path = NULL;
    }
    *output = path; /* for as long as the program runs */
    return code;
}

/* ---- its options ---- */

int train_resume_read(const gs_checkpoint_text *text, const char *checkpoint, const char *folder,
                      const train_options *given)
{
    char path[4096];
    int code;
    if (*checkpoint)
        code = cli_config_read_text(train_rows, text->config, checkpoint);
    else
        code = train_config_path(path, sizeof path, folder)
                   ? cli_config_read(train_rows, path, "--resume")
                   : cli_fail("--checkpoint: the path is too long");
    if (code == CLI_GO && !*checkpoint &&
        train_given.model == 0) /* of an empty one all is default */
        code = cli_fail("--resume: %.120s is not that of a run: it names no model", path);
    train_options *g = &train_given;
    if (code == CLI_GO && !*checkpoint && !g->checkpoint) /* of a comparison */
        code = cli_fail("--resume: %.120s is not that of a run: it names no folder of checkpoints",
                        path);
    const char *was = g->checkpoint ? g->checkpoint : "";
    if (code == CLI_GO)
        code = confine(&g->log, "log", was, folder, given->log);
    if (code == CLI_GO)
        code = confine(&g->csv, "csv", was, folder, given->csv);
    if (code == CLI_GO)
        code = confine(&g->tensorboard, "tensorboard", was, folder, given->tensorboard);
    if (code == CLI_GO)
        code = confine(&g->report, "report", was, folder, given->report);
    g->checkpoint = folder;
    begun = train_given;
    return code;
}

int train_resume_refuse(const char *given, const char *checkpoint, const char *has)
{
    return cli_fail("%.100s does not go with %.120s, which has %.100s: begin a new run for that",
                    given, checkpoint, has);
}

/* Names of classes, where both know them: under others the numbers mean something else. */
static int compare_labels(const char *checkpoint, const gs_data_info *was, const gs_data_info *is)
{
    for (size_t c = 0; was->labels && is->labels && c < is->classes && c < was->classes; c++)
        if (strcmp(was->labels[c], is->labels[c]) != 0)
            return cli_fail("%.120s: its class %zu is %.60s, and that of %.100s is %.60s: begin a "
                            "new run for that",
                            checkpoint, c, was->labels[c], is->name, is->labels[c]);
    return CLI_GO;
}

static gs_status read_info(gs_data_info **out, const char *checkpoint, gs_error *error)
{
    gs_source *file = NULL;
    *out = NULL;
    gs_status status = gs_source_open(&file, checkpoint, NULL, error);
    const char *about = status == GS_OK ? gs_source_metadata(file, "data") : NULL;
    if (about && *about)
        status = gs_data_info_read(out, about, NULL, error);
    gs_source_close(file);
    return status;
}

/* The file may have gone since it was loaded: a newer one of the run has the same names. */
int train_resume_labels(const char *checkpoint, const gs_data_info *is)
{
    char path[4096];
    gs_data_info *was;
    gs_error error = {0};
    snprintf(path, sizeof path, "%s", checkpoint);
    gs_status status = read_info(&was, path, &error);
    for (int i = 0; status != GS_OK && i < TRAIN_TRIES && train_resume_again(path, sizeof path);
         i++)
        status = read_info(&was, path, &error);
    const int code = status != GS_OK ? cli_fail_status(status, &error)
                     : was           ? compare_labels(checkpoint, was, is)
                                     : CLI_GO;
    gs_data_info_free(was);
    return code;
}

/* ---- each option, then and now ---- */

enum { TEXT = 4096 };

typedef struct change {
    const cli_option *row;
    char was[TEXT], is[TEXT]; /* "": has no value */
} change;

typedef int on_change(void *user, const change *c);

/* Calls back for every option of the list whose value is not what it was; not of lists. */
static int each_change(const cli_option *rows, const char *list, on_change *call, void *user)
{
    static change c; /* the rows point to train_given, which takes turns */
    int code = CLI_GO;
    for (; rows->name && code == CLI_GO; rows++) {
        char item[64];
        if (rows->kind == CLI_KIND_SECTION) {
            code = each_change(rows->to.section, list, call, user);
            continue;
        }
        snprintf(item, sizeof item, "|%s|", rows->name);
        if (!strstr(list, item))
            continue;
        const train_options now = train_given;
        c.row = rows;
        cli_value_text(c.is, sizeof c.is, rows);
        train_given = begun;
        cli_value_text(c.was, sizeof c.was, rows);
        train_given = now;
        if (strcmp(c.was, c.is) != 0)
            code = call(user, &c);
    }
    return code;
}

/* An option that the model does not have is another mistake, and told as such. */
static int judge(void *user, const change *c)
{
    char given[128];
    if (!c->was[0])
        return CLI_GO;
    if (strcmp(c->is, "auto") == 0)
        return cli_set(train_rows, c->row->name, c->was, "--");
    snprintf(given, sizeof given, "--%s %.90s", c->row->name, c->is);
    return train_resume_refuse(given, user, c->was);
}

int train_resume_check(const char *checkpoint)
{
    char path[TEXT];
    snprintf(path, sizeof path, "%s", checkpoint);
    return each_change(train_rows, kept, judge, path);
}

/* ---- what is told ---- */

typedef struct line {
    char *text;
    size_t size, used;
} line;

static void add(line *l, const char *key, const char *is, const char *was)
{
    if (l->used < l->size)
        l->used += (size_t)snprintf(l->text + l->used, l->size - l->used, "%s%s %.60s (%s%.60s)",
                                    l->used ? ", " : "", key, is, *was ? "was " : "new", was);
}

static int tell(void *user, const change *c)
{
    add(user, c->row->name, c->is[0] ? c->is : "none", c->was);
    return CLI_GO;
}

/* Its value in the list; "": it is not there. */
static const char *value_in(const cli_list *set, const char *item, size_t key)
{
    const char *value = "";
    for (size_t i = 0; i < set->count; i++)
        if (strncmp(set->items[i], item, key) == 0)
            value = set->items[i] + key;
    return value;
}

void train_resume_changes(char *text, size_t size)
{
    line l = {text, size, 0};
    *text = 0;
    each_change(train_rows, told, tell, &l);
    for (size_t i = 0; i < train_given.set.count; i++) {
        const char *item = train_given.set.items[i];
        const size_t n = strcspn(item, "="), key = n + (item[n] == '=');
        const char *was = value_in(&begun.set, item, key);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)n, item);
        if (strcmp(was, item + key) != 0)
            add(&l, name, item + key, was);
    }
}
