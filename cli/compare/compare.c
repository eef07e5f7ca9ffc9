/* gradscale compare: one job in several precisions and policies. Schema: doc/json-compare.md. */
#include "cli/core/commands.h"
#include "cli/compare/compare.h"
#include "cli/train/train.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- options ---- */

enum { SECTIONS_MAX = 8, ROWS_MAX = 32 };

static struct {
    const char *runs, *output;
    uint64_t seeds;
    bool json, resume;
} given = {.output = "comparison", .seeds = 1};

static const cli_option own_rows[] = {
    {"runs", "A,B,..",
     "PRECISION[:SCALER][:MODE][:ON-OVERFLOW][:int8|:ptq] each, such as fp16:static:1024:O1, "
     "fp16:pytorch:attribute or fp16:int8; not given: fp32, and fp16 with none, static:1024, "
     "pytorch and "
     "headroom, and bf16 with guard",
     CLI_STRING(&given.runs)},
    {"seeds", "N", "take every run so often, with --seed and the seeds after it",
     CLI_UNSIGNED(&given.seeds), .min = 1, .max = 1000},
    {"output", "DIR", "folder for logs and report; what is in it from before is replaced",
     CLI_STRING(&given.output)},
    {"resume", NULL, "go on: what DIR has whole logs of is not repeated", CLI_FLAG(&given.resume)},
    {"quiet", NULL, "print nothing but errors, and what --json asks for",
     CLI_FLAG(&train_given.quiet), .letter = 'q'},
    {"json", NULL, "print JSON; its schema is in doc/json-compare.md", CLI_FLAG(&given.json)},
    {0}};

/* What of train's table is not for all runs alike. */
static const char not_here[] =
    "|precision|scaler|quantize|log|csv|tensorboard|report|checkpoint|"
    "checkpoint-every|keep|name|print-config|dry-run|resume|overwrite|no-save|quiet|";

static bool is_here(const char *name)
{
    char item[64];
    snprintf(item, sizeof item, "|%s|", name);
    return !strstr(not_here, item);
}

/* rows[] becomes own_rows and, a section each, what is left of train's. */
static void share_rows(cli_option *rows, cli_option sections[][ROWS_MAX])
{
    size_t n = 0, s = 0;
    while (own_rows[n].name) {
        rows[n] = own_rows[n];
        n++;
    }
    for (const cli_option *from = train_rows; from->name && s < SECTIONS_MAX; from++, s++) {
        size_t k = 0;
        for (const cli_option *row = from->to.section; row->name && k + 1 < ROWS_MAX; row++)
            if (is_here(row->name))
                sections[s][k++] = *row;
        sections[s][k] = (cli_option){0};
        rows[n++] = (cli_option){from->name, NULL, NULL, CLI_SECTION(sections[s])};
    }
    rows[n] = (cli_option){0};
}

static int parse(int argc, char **argv)
{
    static cli_option sections[SECTIONS_MAX][ROWS_MAX], rows[SECTIONS_MAX + ROWS_MAX];
    share_rows(rows, sections);
    const cli_spec spec = {
        .name = "gradscale compare",
        .about = "Trains one model on the same data in the same order, in several precisions and "
                 "with several policies of loss scaling, each in a process of its own, and says "
                 "what underflowed, what it cost and what to use.\n\n"
                 "The reference is the first run in fp32. SIGINT and SIGTERM end it with what is "
                 "done. The exit code is 1 if a run is missing.",
        .options = rows};
    char checkpoint[2]; /* there is none: --resume is not here */
    const int code = train_parse_as(&spec, argc, argv, checkpoint, sizeof checkpoint);
    if (code != CLI_GO)
        return code;
    /* what a config file of train's may say of one run alone */
    train_options *const o = &train_given;
    o->log = o->csv = o->tensorboard = o->checkpoint = o->report = o->name = o->scaler = NULL;
    o->precision = TRAIN_FP16;
    o->quantize = 0;
    if (o->mode == GS_O0 + 1)
        o->mode = 0;
    return train_check(o);
}

/* ---- can it be? ---- */

/* The options of all runs, with those of this one in their place. */
static int check_run(train_job *job, const train_options *all, const compare_run *run)
{
    const char *const own[][2] = {{"precision", run->precision},
                                  {"mode", run->mode},
                                  {"scaler", run->scaler},
                                  {"on-overflow", run->how},
                                  {"quantize", *run->quantize ? run->quantize : "none"}};
    gs_trainer_config config = {.size = sizeof config, .optim.size = sizeof(gs_optim_config)};
    int code = CLI_GO;
    train_given = job->o;
    train_given.mode = all->mode;
    train_given.on_overflow = all->on_overflow;
    for (size_t i = 0; i < sizeof own / sizeof own[0] && code == CLI_GO; i++)
        if (*own[i][1])
            code = cli_set(train_rows, own[i][0], own[i][1], "--");
    job->o = train_given;
    if (code == CLI_GO)
        code = train_check(&job->o);
    return code == CLI_GO ? train_job_settings(job, &config) : code;
}

/* What a child would refuse is refused here, once, before anything is written or begun. */
static int check_runs(const compare_all *c)
{
    const train_options all = train_given;
    train_job job = {.o = all, .comm = gs_comm_single()};
    int code = train_job_open(&job, "");
    for (size_t i = 0; i < c->n && code == CLI_GO; i++) {
        cli_hold(true);
        code = check_run(&job, &all, &c->runs[i]);
        cli_hold(false);
        if (code != CLI_GO)
            cli_warn("run %s: %s", c->runs[i].name, cli_held());
    }
    if (code == CLI_GO)
        code = train_job_model(&job);
    train_job_close(&job);
    train_given = all;
    return code;
}

/* ---- the folder ---- */

/* What is gone on with has been begun: a name that was mistyped is not to begin another job. */
static int check_begun(const char *folder, const char *config)
{
    if (!given.resume || access(config, F_OK) == 0)
        return CLI_GO;
    return cli_fail("--resume: %.120s holds no job.conf of a comparison: begin it without --resume",
                    folder);
}

/* It stays locked until this process ends. */
static int make_folder(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return cli_fail("--output %.120s: %s", path, strerror(errno));
    const int fd = cli_open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return cli_fail("--output %.120s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return cli_fail("--output %.120s: another comparison is writing there", path);
    return CLI_GO;
}

/* Names in the folder may be anybody's: a pipe would hang. What the system cannot examine may be a
 * file: reading it tells. */
static bool may_be_file(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? S_ISREG(about.st_mode) : errno != ENOENT;
}

/* Up to n bytes of it. -1: errno. */
static ssize_t read_start(const char *path, char *to, size_t n)
{
    const int fd = cli_open(path, O_RDONLY);
    ssize_t got = fd < 0 ? -1 : 1;
    size_t all = 0;
    while (got > 0 && all < n) {
        do
            got = read(fd, to + all, n - all);
        while (got < 0 && errno == EINTR);
        all += got > 0 ? (size_t)got : 0;
    }
    const int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return got < 0 ? -1 : (ssize_t)all;
}

/* CLI_GO where the file holds this text. */
static int check_same(const char *path, const char *text, size_t length)
{
    char *have = cli_resize(NULL, length + 1);
    const ssize_t got = may_be_file(path) ? read_start(path, have, length + 1) : 0;
    const int code = got < 0
                         ? cli_failed("--resume: %.120s cannot be read: %s", path, strerror(errno))
                     : got == (ssize_t)length && memcmp(have, text, length) == 0
                         ? CLI_GO
                         : cli_fail("--resume: %.120s is of a job with other options", path);
    free(have);
    return code;
}

/* A run of train goes on by its own job.conf. */
static int check_other(const char *path)
{
    static char have[GS_CHECKPOINT_CONFIG];
    const ssize_t got = may_be_file(path) ? read_start(path, have, sizeof have - 1) : 0;
    if (got < 0)
        return cli_failed("%.120s cannot be read: %s", path, strerror(errno));
    return strstr(have, "\ncheckpoint = ")
               ? cli_fail("--output: %.120s is that of a run: name another folder", path)
               : CLI_GO;
}

/* The options of all runs, as a file that train reads: a run can be repeated by hand. */
static int write_config(const char *path)
{
    char *text;
    size_t length;
    FILE *f = cli_text_begin(&text, &length);
    cli_config_write(f, train_rows);
    cli_text_end(f);
    int code = given.resume ? check_same(path, text, length) : check_other(path);
    bool opened = true;
    const int why =
        given.resume || code != CLI_GO ? 0 : cli_write_here(path, text, length, &opened);
    if (why != 0)
        code = opened ? cli_failed("%.120s: %s", path, strerror(why))
                      : cli_fail("%.120s: %s", path, strerror(why));
    free(text);
    return code;
}

/* "fp16 static:1024" -> "fp16-static-1024" */
static void file_name(char *out, size_t size, const char *folder, const compare_trial *t,
                      const char *ending)
{
    const size_t at = (size_t)snprintf(out, size, "%s/", folder);
    snprintf(out + at, size - at, "%s seed %llu%s", t->run->name, (unsigned long long)t->seed,
             ending);
    for (char *c = out + at; *c; c++)
        if (*c == ' ' || *c == ':')
            *c = '-';
}

static void make_trials(compare_all *c)
{
    c->trials = cli_resize(NULL, c->n * c->seeds * sizeof *c->trials);
    for (size_t i = 0; i < c->n * c->seeds; i++) {
        compare_trial *t = &c->trials[i];
        *t = (compare_trial){.run = &c->runs[i % c->n], .seed = c->first + i / c->n};
        snprintf(t->name, sizeof t->name, c->seeds > 1 ? "%s seed %llu" : "%s", t->run->name,
                 (unsigned long long)t->seed);
        file_name(t->log, sizeof t->log, c->output, t, ".jsonl");
        file_name(t->out, sizeof t->out, c->output, t, ".txt");
    }
}

/* ---- the work ---- */

static void read_log(compare_trial *t)
{
    if (may_be_file(t->log))
        t->is_read = report_read(&t->has, t->log) == CLI_GO;
}

/* What an earlier comparison has brought to its end is DONE. A log that cannot be read may be one
 * of those: it is not to be begun anew. */
static int find_done(compare_all *c)
{
    for (size_t i = 0; i < c->n * c->seeds; i++) {
        compare_trial *t = &c->trials[i];
        read_log(t);
        if (t->has.unread)
            return CLI_FAILED;
        if (t->is_read && t->has.status &&
            cli_read_choice("done|early stop|stuck|diverged", t->has.status) >= 0) {
            t->ending = COMPARE_DONE;
            t->seconds = t->has.seconds;
        } else {
            report_free(&t->has);
            t->has = (report_run){0};
            t->is_read = false;
        }
    }
    return CLI_GO;
}

static void trial_ended(const compare_all *c, compare_trial *t)
{
    read_log(t);
    /* a run that came to nothing is what a comparison is to find out, and no failure of it */
    if (t->ending == COMPARE_FAILED && t->is_read && t->has.status &&
        cli_read_choice("stuck|diverged", t->has.status) >= 0)
        t->ending = COMPARE_DONE;
    if (t->ending == COMPARE_DONE && !c->quiet && !cli_has_progress())
        fprintf(stderr, "%s: loss %.4f, %.1f s\n", t->name, t->has.loss, t->seconds);
    else if (t->ending == COMPARE_FAILED)
        cli_warn("%s: %s", t->name, t->reason);
}

static void write_report(compare_all *c)
{
    const size_t all = c->n * c->seeds;
    const char **logs = cli_resize(NULL, all * sizeof *logs);
    size_t n = 0;
    for (size_t i = 0; i < all; i++)
        if (c->trials[i].is_read && c->trials[i].has.n > 0)
            logs[n++] = c->trials[i].log;
    snprintf(c->report, sizeof c->report, "%s/report.html", c->output);
    struct stat about;
    if (lstat(c->report, &about) == 0 && !S_ISREG(about.st_mode))
        unlink(c->report); /* a folder stays, and is told of */
    if (n == 0 ||
        report_write(c->report, logs, n, &(report_options){.config = c->config}) != CLI_DONE)
        c->report[0] = 0;
    free(logs);
}

static void free_trials(compare_all *c)
{
    for (size_t i = 0; i < c->n * c->seeds; i++)
        report_free(&c->trials[i].has);
    free(c->trials);
}

int cmd_compare(int argc, char **argv)
{
    int code = parse(argc, argv);
    if (code != CLI_GO)
        return code;
    compare_all c = {.output = given.output,
                     .seeds = given.seeds,
                     .first = train_given.seed,
                     .quiet = train_given.quiet};
    char config[COMPARE_TEXT];
    if (c.quiet)
        cli_progress_off();
    if (strlen(c.output) > COMPARE_TEXT / 2)
        return cli_fail("--output is longer than %d bytes", COMPARE_TEXT / 2);
    snprintf(config, sizeof config, "%s/job.conf", c.output);
    c.config = config;
    if ((code = compare_set_read(&c, given.runs ? given.runs : COMPARE_DEFAULT)) != CLI_GO ||
        (code = check_begun(c.output, config)) != CLI_GO || (code = check_runs(&c)) != CLI_GO ||
        (code = make_folder(c.output)) != CLI_GO || (code = write_config(config)) != CLI_GO)
        return code;
    make_trials(&c);
    if (given.resume && (code = find_done(&c)) != CLI_GO) {
        free_trials(&c);
        return code;
    }
    bool complete = compare_children(&c, trial_ended);
    write_report(&c);
    complete &= c.report[0] != 0;
    if (given.json)
        compare_json(&c, stdout);
    else if (!c.quiet)
        compare_show(&c);
    for (size_t i = 0; i < c.n * c.seeds; i++)
        complete &= c.trials[i].ending == COMPARE_DONE && c.trials[i].is_read;
    free_trials(&c);
    return complete ? CLI_DONE : CLI_FAILED;
}
