/* gradscale report: logs of runs, finished or not, as one page. */
#include "cli/core/commands.h"
#include "cli/core/html.h"
#include "cli/report/groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int report_write(const char *path, const char *const *logs, size_t n, const report_options *options)
{
    return report_write_live(path, logs, n, options, NULL);
}

/* The log in the folder of a run. */
static const char folder_log[] = "log.jsonl";

/* The last part of the path; of a folder's log, the name of the folder. */
enum { FILE_LABEL = 256 };
static const char *file_label(char label[FILE_LABEL], const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t end = strlen(path);
    if (slash && strcmp(slash + 1, folder_log) == 0)
        for (end = (size_t)(slash - path); end > 1 && path[end - 1] == '/';)
            end--;
    size_t first = end;
    while (first > 0 && path[first - 1] != '/')
        first--;
    snprintf(label, FILE_LABEL, "%.*s", (int)(end - first), path + first);
    return label;
}

/* Runs of one name get their seeds behind it, or the names of their files. */
static void tell_apart(report_run *runs, size_t n)
{
    bool *shares = cli_resize(NULL, (n + 1) * sizeof *shares);
    for (size_t i = 0; i < n; i++) {
        shares[i] = false;
        for (size_t k = 0; k < n; k++)
            shares[i] |=
                k != i && runs[i].name && runs[k].name && strcmp(runs[i].name, runs[k].name) == 0;
    }
    for (size_t i = 0; i < n; i++) {
        const char *seed = report_value(&runs[i].config, "seed");
        char file[FILE_LABEL];
        const char *more = group_has_seeds(runs, n, i) ? seed : file_label(file, runs[i].path);
        if (!shares[i] || strcmp(runs[i].name, more) == 0)
            continue;
        const size_t room = strlen(runs[i].name) + strlen(more) + 8;
        runs[i].name = cli_resize(runs[i].name, room);
        snprintf(strchr(runs[i].name, 0), room - strlen(runs[i].name),
                 more == seed ? " seed %s" : ", %s", more);
    }
    free(shares);
}

int report_write_live(const char *path, const char *const *logs, size_t n,
                      const report_options *options, bool *ended)
{
    static const report_options none = {0};
    report r = {.options = options ? options : &none};
    const char *option = r.options->option ? r.options->option : "--output";
    for (size_t i = 0; i < n; i++)
        if (is_same_file(path, logs[i]))
            return cli_fail("%s %s would overwrite %s, which is to be read", option, path, logs[i]);
    r.runs = cli_resize(NULL, n * sizeof *r.runs);
    int code = CLI_GO;
    for (; r.n < n && code == CLI_GO; r.n++)
        code = report_read(&r.runs[r.n], logs[r.n]);
    cli_progress_end();
    tell_apart(r.runs, r.n);
    bool all = true;
    for (size_t i = 0; i < r.n; i++)
        all &= r.runs[i].status != NULL;
    report_options last = *r.options;
    if (all)
        last.refresh = 0;
    r.options = &last;
    if (code == CLI_GO)
        code = html_write(option, path, report_page, &r);
    if (ended)
        *ended = all;
    for (size_t i = 0; i < r.n; i++)
        report_free(&r.runs[i]);
    free(r.runs);
    return code == CLI_GO ? CLI_DONE : code;
}

/* The file that is meant, to be freed: of the folder of a run, its log. NULL after an error. */
static char *find_log(const char *path)
{
    struct stat about;
    size_t n = strlen(path);
    char *file = cli_resize(NULL, n + sizeof folder_log + 1);
    strcpy(file, path);
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode))
        return file;
    while (n > 1 && path[n - 1] == '/')
        n--;
    sprintf(file + n, "/%s", folder_log);
    if (stat(file, &about) == 0 && S_ISREG(about.st_mode)) /* a pipe is read by its name alone */
        return file;
    free(file);
    cli_fail("%.120s: is a folder without a %s: name the log", path, folder_log);
    return NULL;
}

/* Writes the page, and with --live again and again. */
static int follow(const char *output, const char *const *logs, size_t n, double live,
                  const report_options *wanted)
{
    bool ended = false, shown = false;
    int result;
    do {
        result = report_write_live(output, logs, n, wanted, &ended);
        if (result == CLI_DONE && !shown)
            printf("%s\n", output);
        shown = true;
        cli_flush();
        if (result == CLI_DONE && !isnan(live) && !ended)
            nanosleep(&(struct timespec){(time_t)live, (long)(fmod(live, 1) * 1e9)}, NULL);
    } while (result == CLI_DONE && !isnan(live) && !ended);
    return result;
}

int cmd_report(int argc, char **argv)
{
    const char *output = "report.html";
    double live = (double)NAN;
    report_options wanted = {0};
    const cli_option options[] = {
        {"output", "F.html", "the file to write", CLI_STRING(&output)},
        {"live", "S",
         "write the page again every S seconds until the runs have ended; a browser that shows it "
         "follows",
         CLI_DOUBLE(&live), .min = 0.1, .max = 86400},
        {"title", "TEXT", "the heading of the page", CLI_STRING(&wanted.title)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale report",
        .operands = "LOG...",
        .about =
            "Reads logs that gradscale train wrote with --log or --csv (or takes the log of a "
            "run's "
            "folder), of jobs that have ended or still run, and those of Megatron-LM, DeepSpeed, "
            "Apex, fairseq, Lightning (CSV) and "
            "Hugging Face (trainer_state.json), and writes one self-contained HTML page: the "
            "verdict in words, loss, "
            "scale, the underflow of gradients in each layer, their exponents, speed, memory and "
            "settings. Several logs are compared.\n\n"
            "Lines that cannot be read are counted and left out.",
        .options = options,
        .min_operands = 1,
        .max_operands = CLI_ANY};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    wanted.refresh = isnan(live) ? 0 : live;
    char **logs = cli_resize(NULL, (size_t)argc * sizeof *logs);
    int n = 0;
    while (n < argc && (logs[n] = find_log(argv[n])))
        n++;
    code = n < argc ? CLI_BAD : follow(output, (const char *const *)logs, (size_t)n, live, &wanted);
    while (n > 0)
        free(logs[--n]);
    free(logs);
    return code;
}
