/* gradscale advise: reads gradients of any framework and says which loss scale they need. */
#include "cli/advise/advise.h"
#include "cli/core/commands.h"
#include "cli/logs/logs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int open_file(advise_file *f, const char *path)
{
    gs_error error = {0};
    *f = (advise_file){.path = path};
    const int pickle = logs_refuse_pickle(
        path, "save the gradients with safetensors.torch.save_file or numpy.savez instead");
    if (pickle != CLI_GO)
        return pickle;
    const gs_status status = gs_source_open(&f->source, path, NULL, &error);
    if (status != GS_OK)
        return cli_fail_input("", status, &error);
    f->count = gs_source_count(f->source);
    f->tensors = cli_resize(NULL, f->count * sizeof *f->tensors);
    memset(f->tensors, 0, f->count * sizeof *f->tensors);
    for (size_t t = 0; t < f->count; t++)
        f->tensors[t].entry = gs_source_entry(f->source, t);
    return CLI_GO;
}

static void close_file(advise_file *f)
{
    for (size_t t = 0; t < f->count; t++) {
        survey_free(&f->tensors[t].s);
        free(f->tensors[t].sum);
    }
    free(f->tensors);
    gs_source_close(f->source);
}

/* The total, and where its largest value and its first offender are. */
static void sum_up(advise *a, const gs_exponents *total)
{
    gs_stats all;
    gs_stats_init(&all);
    for (size_t f = 0; f < a->count; f++)
        for (size_t t = 0; t < a->files[f].count; t++) {
            const advise_tensor *x = &a->files[f].tensors[t];
            if (!gs_entry_readable(x->entry))
                continue;
            if (x->stats.amax > all.amax) {
                a->max_file = &a->files[f];
                a->max_entry = x->entry;
            }
            if (x->stats.bad_index != GS_NONE && !a->bad_entry) {
                a->bad_file = &a->files[f];
                a->bad_entry = x->entry;
                a->bad_index = x->stats.bad_index;
            }
            gs_stats_merge(&all, &x->stats);
        }
    survey_finish(&a->total, total, &all);
}

static int run(advise *a, char **paths, const cli_machine *machine)
{
    gs_exponents *total = cli_resize(NULL, sizeof *total);
    memset(total, 0, sizeof *total);
    int code = CLI_GO;
    double bytes = 0, done = 0;
    size_t opened = 0;
    for (; opened < a->count && code == CLI_GO; opened++) {
        advise_file *f = &a->files[opened];
        code = open_file(f, paths[opened]);
        for (size_t t = 0; code == CLI_GO && t < f->count; t++)
            if (gs_entry_readable(f->tensors[t].entry))
                bytes += (double)f->tensors[t].entry->bytes;
    }
    for (size_t i = 0; i < a->count && code == CLI_GO; i++) {
        advise_file *f = &a->files[i];
        code = advise_read(f, total, a->scale, machine, done, bytes);
        a->tensors += f->count - f->skipped;
        a->skipped += f->skipped;
        a->bytes += gs_source_size(f->source);
        for (size_t t = 0; t < f->count; t++)
            if (gs_entry_readable(f->tensors[t].entry))
                done += (double)f->tensors[t].entry->bytes;
    }
    cli_progress_end();
    if (code == CLI_GO && a->tensors == 0)
        code = cli_fail("%s%s: no tensor of f16, bf16, f32 or f64 in it", paths[0],
                        a->count > 1 ? " and the other files" : "");
    if (code == CLI_GO) {
        sum_up(a, total);
        advise_decide(a);
    }
    a->count = opened; /* to close */
    free(total);
    return code;
}

static bool wants_ascii(void)
{
    const char *no_color = getenv("NO_COLOR");
    if (no_color && *no_color)
        return true;
    const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return !strstr(value, "UTF-8") && !strstr(value, "utf8") && !strstr(value, "UTF8") &&
                   !strstr(value, "utf-8");
    }
    return true;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int cmd_advise(int argc, char **argv)
{
    bool json = false, ascii = false;
    const char *report = NULL;
    uint64_t margin = 2;
    double scale = 1;
    cli_machine machine = {0};
    advise_style style = {.top = 20};
    const cli_option options[] = {
        {"margin", "BITS", "bits to leave between the largest value and 65504",
         CLI_UNSIGNED(&margin), .max = 15},
        {"scale", "S",
         "the loss scale at which the gradients were dumped: what is said is of them divided by S",
         CLI_DOUBLE(&scale), .min = 0x1p-60, .max = 0x1p60},
        {"top", "N", "rows in the table of tensors, the most underflow first; 0: none",
         CLI_UNSIGNED(&style.top)},
        {"per-tensor", NULL, "draw a histogram of every tensor in that table",
         CLI_FLAG(&style.each)},
        {"ascii", NULL, "draw with plain characters", CLI_FLAG(&ascii)},
        {"json", NULL, "print JSON; its schema is in doc/json-advise.md", CLI_FLAG(&json)},
        {"report", "F.html", "also write a report in HTML", CLI_STRING(&report)},
        CLI_MACHINE_ROWS(&machine),
        {0}};
    const cli_spec spec = {
        .name = "gradscale advise",
        .operands = "FILE...",
        .about =
            "Reads gradients from .npy, .npz and .safetensors files (f16, bf16, f32, f64; other "
            "types are skipped) and shows where their magnitudes lie, what FP16 and BF16 make "
            "of them at loss scales from 2^0 to 2^24, and which scale to use.\n\n"
            "Shares are exact: they count what rounding to nearest even makes of value times "
            "scale, in percent of the finite values that are not zero.",
        .options = options,
        .min_operands = 1,
        .max_operands = CLI_ANY};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    for (int i = 0; report && i < argc; i++)
        if (is_same_file(report, argv[i]))
            return cli_fail("--report %s would overwrite %s, which is to be read", report, argv[i]);
    style.ascii = ascii || wants_ascii();

    advise a = {.count = (size_t)argc, .margin = (int)margin, .scale = scale};
    a.files = cli_resize(NULL, a.count * sizeof *a.files);
    code = run(&a, argv, &machine);
    if (code == CLI_GO && report) /* first: one that cannot be written is no success half told */
        code = advise_html(&a, report);
    if (code == CLI_GO) {
        if (json)
            advise_json(&a);
        else {
            advise_print(&a, &style);
            if (report) {
                putchar('\n');
                cli_print("The report is %s.\n", report);
            }
        }
    }
    code = code == CLI_GO ? CLI_DONE : code;
    survey_free(&a.total);
    for (size_t f = 0; f < a.count; f++)
        close_file(&a.files[f]);
    free(a.files);
    return code;
}
