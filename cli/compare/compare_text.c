/* What a comparison came to: means over seeds, the table, the words. */
#include "cli/compare/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

const compare_run *compare_reference(const compare_all *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->runs[i].precision, "fp32") == 0)
            return &c->runs[i];
    return &c->runs[0];
}

/* Of a run and a seed; NULL: it did not end, or there is no log of it. */
static const compare_trial *find_done(const compare_all *c, const compare_run *run, uint64_t seed)
{
    for (size_t i = 0; i < c->n * c->seeds; i++) {
        const compare_trial *t = &c->trials[i];
        if (t->run == run && t->seed == seed && t->ending == COMPARE_DONE && t->is_read)
            return t;
    }
    return NULL;
}

compare_mean compare_mean_of(const compare_all *c, const compare_run *run)
{
    const double most = HUGE_VAL;
    compare_mean m = {.least = most, .most = -most, .ratio_least = most, .ratio_most = -most};
    const compare_run *reference = compare_reference(c);
    double *const sums[] = {&m.train, &m.valid, &m.accuracy, &m.underflow, &m.rate, &m.bytes};
    size_t ratios = 0;
    for (uint64_t seed = c->first; seed < c->first + c->seeds; seed++) {
        const compare_trial *t = find_done(c, run, seed), *r = find_done(c, reference, seed);
        if (!t)
            continue;
        const double row[] = {report_train_loss(&t->has), t->has.loss, t->has.accuracy,
                              t->has.underflow,           t->has.rate, t->has.bytes};
        for (size_t k = 0; k < sizeof sums / sizeof sums[0]; k++)
            *sums[k] += row[k];
        m.done++;
        m.skipped += t->has.skipped;
        m.retried += t->has.retried;
        m.least = fmin(m.least, t->has.loss);
        m.most = fmax(m.most, t->has.loss);
        const double ratio = r ? t->has.loss / r->has.loss : (double)NAN;
        if (isfinite(ratio)) {
            m.ratio += ratio;
            m.ratio_least = fmin(m.ratio_least, ratio);
            m.ratio_most = fmax(m.ratio_most, ratio);
            ratios++;
        }
    }
    for (size_t k = 0; k < sizeof sums / sizeof sums[0]; k++)
        *sums[k] /= (double)m.done; /* of none: NaN */
    m.ratio = m.done > 0 && ratios == m.done ? m.ratio / (double)ratios : (double)NAN;
    return m;
}

/* ---- the table ---- */

static void number_cell(cli_table *t, double value)
{
    if (isfinite(value))
        cli_table_cell(t, "%.4f", value);
    else
        cli_table_cell(t, "%s", "-");
}

static void percent_cell(cli_table *t, double share)
{
    if (isfinite(share))
        cli_table_cell(t, "%.1f%%", 100 * share);
    else
        cli_table_cell(t, "%s", "-");
}

/* "+0.08%", "16.3x" */
static void ratio_cell(cli_table *t, double ratio)
{
    if (!isfinite(ratio))
        cli_table_cell(t, "%s", "-");
    else if (ratio >= 2)
        cli_table_cell(t, "%.1fx", ratio);
    else if (fabs(ratio - 1) < 0.00005)
        cli_table_cell(t, "%s", "0.00%");
    else
        cli_table_cell(t, "%+.2f%%", 100 * (ratio - 1));
}

static void print_row(cli_table *t, const compare_all *c, const compare_run *run)
{
    const compare_mean m = compare_mean_of(c, run);
    char text[32];
    cli_table_cell(t, "%s", run->name);
    number_cell(t, m.train);
    if (m.done > 0 && !isfinite(m.valid))
        cli_table_cell(t, "%s", "not finite");
    else
        number_cell(t, m.valid);
    if (c->seeds > 1 && m.done > 0 && isfinite(m.valid))
        cli_table_cell(t, "%.4f-%.4f", m.least, m.most);
    else if (c->seeds > 1)
        cli_table_cell(t, "%s", "-");
    if (run == compare_reference(c))
        cli_table_cell(t, "%s", "");
    else
        ratio_cell(t, m.ratio);
    percent_cell(t, m.accuracy);
    if (m.done > 0) {
        cli_table_cell(t, "%" PRIu64, m.skipped);
        cli_table_cell(t, "%" PRIu64, m.retried);
    } else {
        cli_table_cell(t, "%s", "-");
        cli_table_cell(t, "%s", "-");
    }
    percent_cell(t, m.underflow);
    cli_table_cell(t, "%s", isfinite(m.rate) ? report_count(text, m.rate) : "-");
    cli_table_cell(t, "%s", isfinite(m.bytes) ? report_bytes(text, m.bytes) : "-");
}

static void print_table(const compare_all *c)
{
    char against[8 + sizeof c->runs[0].name];
    snprintf(against, sizeof against, ">vs %s", compare_reference(c)->name);
    const char *titles[12];
    size_t n = 0;
    titles[n++] = "<run";
    titles[n++] = ">train";
    titles[n++] = ">valid";
    if (c->seeds > 1)
        titles[n++] = ">least-most";
    titles[n++] = against;
    titles[n++] = ">accuracy";
    titles[n++] = ">skipped";
    titles[n++] = ">retried";
    titles[n++] = ">underflow";
    titles[n++] = ">items/s";
    titles[n++] = ">memory";
    titles[n] = NULL;
    cli_table *t = cli_table_new(titles);
    for (size_t i = 0; i < c->n; i++)
        print_row(t, c, &c->runs[i]);
    cli_table_print(t, stdout);
}

/* ---- the words ---- */

bool compare_words(const compare_all *c, report_words *words)
{
    const size_t all = c->n * c->seeds;
    report_run *ended = cli_resize(NULL, all * sizeof *ended); /* copies that are not freed twice */
    size_t n = 0, runs = 0;
    for (size_t i = 0; i < all; i++)
        if (c->trials[i].ending == COMPARE_DONE && c->trials[i].is_read)
            ended[n++] = c->trials[i].has;
    for (size_t i = 0; i < c->n; i++)
        runs += compare_mean_of(c, &c->runs[i]).done > 0;
    if (runs > 1)
        report_verdict(words, ended, n, c->config);
    free(ended);
    return runs > 1;
}

/* What is missing from the table, and why. */
static size_t print_losses(const compare_all *c)
{
    size_t missing = 0, waiting = 0;
    for (size_t i = 0; i < c->n * c->seeds; i++) {
        const compare_trial *t = &c->trials[i];
        missing += t->ending != COMPARE_DONE;
        waiting += t->ending == COMPARE_WAITING;
        if (t->ending == COMPARE_FAILED)
            printf("%s: %s\n", t->name, t->reason);
        else if (t->ending == COMPARE_STOPPED)
            printf("%s: interrupted after step %zu\n", t->name, t->is_read ? t->has.n : 0);
        else if (t->ending == COMPARE_DONE && !t->is_read)
            printf("%s: its log cannot be read\n", t->name);
    }
    if (waiting > 0)
        printf("%zu %s not begun: --resume goes on with the rest\n", waiting,
               waiting == 1 ? "run was" : "runs were");
    return missing;
}

/* Lines of the verdict, some of which are "label<tab>what is said of it". */
static void print_words(const char *title, char *text)
{
    enum { INDENT = 11 };
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const size_t label = strcspn(line, "\t"), room = strlen(line) + 2;
        char *whole = cli_resize(NULL, room);
        snprintf(whole, room, "%.*s%s%s", (int)label, line, line[label] ? ": " : "",
                 line[label] ? line + label + 1 : "");
        printf("%-*s", INDENT, title);
        cli_wrap(whole, INDENT, INDENT);
        free(whole);
        title = "";
    }
}

static void print_headline(const char *text)
{
    const size_t size = strlen(text) + 2;
    char *whole = cli_resize(NULL, size);
    snprintf(whole, size, "%s.", text);
    cli_wrap(whole, 0, 0);
    putchar('\n');
    free(whole);
}

void compare_show(const compare_all *c)
{
    static const char *const titles[WORDS_COMMAND] = {"", "Underflow", "Cost", "Use"};
    report_words words;
    print_table(c);
    putchar('\n');
    if (print_losses(c) > 0)
        putchar('\n');
    const bool any = compare_words(c, &words);
    for (int i = 0; any && i < WORDS_COUNT; i++) {
        if (i == WORDS_HEADLINE)
            print_headline(words.text[i]);
        else if (i == WORDS_COMMAND && words.text[i][0])
            printf("\nTo train with it:\n    %s\n", words.text[i]); /* whole, to be copied */
        else if (i != WORDS_COMMAND)
            print_words(titles[i], words.text[i]);
        free(words.text[i]);
    }
    if (c->report[0])
        printf("%sThe report is %s, the logs lie beside it.\n", any ? "\n" : "", c->report);
}
