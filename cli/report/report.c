/* gradscale report: logs of runs, finished or not, as one page. */
#include "cli/core/commands.h"
#include "cli/core/html.h"
#include "cli/report/report.h"

#include <stdlib.h>
#include <sys/stat.h>

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int report_write(const char *path, const char *const *logs, size_t n, const report_options *options)
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
    if (code == CLI_GO)
        code = html_write(option, path, report_page, &r);
    for (size_t i = 0; i < r.n; i++)
        report_free(&r.runs[i]);
    free(r.runs);
    return code == CLI_GO ? CLI_DONE : code;
}

int cmd_report(int argc, char **argv)
{
    const char *output = "report.html";
    report_options wanted = {0};
    const cli_option options[] = {
        {"output", "F.html", "the file to write", CLI_STRING(&output)},
        {"title", "TEXT", "the heading of the page", CLI_STRING(&wanted.title)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale report",
        .operands = "F.jsonl...",
        .about =
            "Reads logs that gradscale train wrote with --log, of jobs that have ended or "
            "still run, and writes one self-contained HTML page: the verdict in words, loss, "
            "scale, the underflow of gradients in each layer, their exponents, speed, memory and "
            "settings. Several logs are compared.\n\n"
            "Lines that cannot be read are counted and left out.",
        .options = options,
        .min_operands = 1,
        .max_operands = CLI_ANY};
    const int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    const int result = report_write(output, (const char *const *)argv, (size_t)argc, &wanted);
    if (result == CLI_DONE)
        printf("%s\n", output);
    return result;
}
