/* `gradscale advise` in the terminal. */
#include "cli/advise/advise.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAR = 36, LINES = 44, SPARK = 24, NAME = 40 };

/* ---- drawing ---- */

/* part of BAR cells, in eighths; what is not zero is always seen. */
static const char *bar(char out[3 * BAR + 1], double part, bool ascii)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const int n = part > 0 ? (int)fmax(round(part * BAR * 8), 1) : 0;
    out[0] = 0;
    if (ascii) {
        const int whole = (n + 4) / 8;
        memset(out, '#', (size_t)whole);
        strcpy(out + whole, n > 0 && whole == 0 ? "." : "");
        return out;
    }
    for (int i = 0; i < n / 8; i++)
        strcat(out, "█");
    return strcat(out, eighths[n % 8]);
}

/* Counts of exponents low + i * step and the step - 1 after it; 0 outside of what there is. */
static uint64_t count_in(const survey *s, int from, int step)
{
    uint64_t sum = 0;
    for (int e = from; s->counts && e < from + step; e++)
        sum += e >= s->low && e <= s->high ? s->counts[e - s->low] : 0;
    return sum;
}

static const char *spark(char out[4 * SPARK + 1], const survey *s, int low, int high, bool ascii)
{
    static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const marks[] = {" ", ".", ":", "-", "=", "+", "*", "#", "@"};
    const int step = (high - low + SPARK) / SPARK, columns = (high - low + step) / step;
    uint64_t most = 1;
    for (int c = 0; c < columns; c++) {
        const uint64_t n = count_in(s, low + c * step, step);
        most = n > most ? n : most;
    }
    out[0] = 0;
    for (int c = 0; c < columns; c++) {
        const double part = (double)count_in(s, low + c * step, step) / (double)most;
        const int level = part > 0 ? (int)fmax(round(part * 8), 1) : 0;
        strcat(out, (ascii ? marks : blocks)[level]);
    }
    return out;
}

/* What FP16 makes of 2^e times 2^k, in a word. */
static const char *fate(int e, int k)
{
    return e + k > 15     ? "overflow"
           : e + k >= -14 ? "normal"
           : e + k >= -25 ? "subnormal"
                          : "underflow";
}

/* Of the powers from low to e. */
static const char *fate_of_all(int low, int e, int k)
{
    return strcmp(fate(low, k), fate(e, k)) == 0 ? fate(e, k) : "mixed";
}

static void print_histogram(const survey *s, int scale, bool ascii)
{
    char at[48], title[64], cells[3 * BAR + 1], share[24];
    if (s->nonzero == 0) {
        printf("No finite value but zero.\n");
        return;
    }
    snprintf(title, sizeof title, "<at %s", advise_scale(at, scale, false));
    const char *titles[6] = {"<magnitude", "<", ">share", "<in FP16", NULL, NULL};
    if (scale != 0)
        titles[4] = title;
    const int step = (s->high - s->low + LINES) / LINES;
    const int first = s->high - (s->high - s->low) / step * step; /* of the last, lowest line */
    uint64_t most = 1;
    for (int e = s->high; e >= first; e -= step) {
        const uint64_t n = count_in(s, e - step + 1, step);
        most = n > most ? n : most;
    }
    cli_table *t = cli_table_new(titles);
    for (int e = s->high; e >= first; e -= step) {
        const uint64_t n = count_in(s, e - step + 1, step);
        if (step == 1)
            cli_table_cell(t, "2^%d", e);
        else
            cli_table_cell(t, "2^%d..%d", e - step + 1, e);
        cli_table_cell(t, "%s", bar(cells, (double)n / (double)most, ascii));
        cli_table_cell(t, "%s", advise_percent(share, survey_share(s, n)));
        cli_table_cell(t, "%s", fate_of_all(e - step + 1, e, 0));
        if (scale != 0)
            cli_table_cell(t, "%s", fate_of_all(e - step + 1, e, scale));
    }
    cli_table_print(t, stdout);
}

/* ---- tables ---- */

static void share_cells(cli_table *t, const survey *s, const gs_rounded *r)
{
    char text[24];
    cli_table_cell(t, "%s", advise_percent(text, survey_share(s, r->underflow)));
    cli_table_cell(t, "%s", advise_percent(text, survey_share(s, r->subnormal)));
    cli_table_cell(t, "%s", advise_percent(text, survey_share(s, r->overflow)));
}

static void print_scales(const advise *a)
{
    const survey *s = &a->total;
    char text[48];
    cli_table *t =
        cli_table_new((const char *const[]){">scale", ">FP16: zero", ">subnormal", ">overflow",
                                            ">BF16: zero", ">subnormal", ">overflow", "<", NULL});
    for (int k = 0; k < SCALES; k++) {
        cli_table_cell(t, "%s", advise_scale(text, k, false));
        share_cells(t, s, &s->f16[k]);
        share_cells(t, s, &s->bf16[k]);
        cli_table_cell(t, "%s",
                       k == a->advice.log2_scale ? "< use"
                       : k == s->safe            ? "< limit"
                                                 : "");
    }
    cli_table_print(t, stdout);
}

static const char *short_name(char *out)
{
    const size_t n = strlen(out);
    if (n > NAME) {
        char *from = out + n - (NAME - 3);
        while (((unsigned char)*from & 0xC0) == 0x80) /* not inside a character */
            from++;
        memmove(out + 3, from, strlen(from) + 1);
        memcpy(out, "...", 3);
    }
    return out;
}

static void print_tensors(const advise *a, const advise_style *style)
{
    const survey *all = &a->total;
    const int scale = a->advice.log2_scale;
    char at[64], scale_text[48], name[256], text[48], line[4 * SPARK + 1], range[64];
    const char *titles[11] = {"<tensor",   "<type",    ">values",     ">zero",
                              ">Inf, NaN", ">largest", ">safe scale", ">underflow at 2^0"};
    size_t columns = 8;
    snprintf(at, sizeof at, ">at %s", advise_scale(scale_text, scale, false));
    snprintf(range, sizeof range, "<2^%d to 2^%d", all->low, all->high);
    if (scale > 0)
        titles[columns++] = at;
    if (all->nonzero)
        titles[columns++] = range;
    advise_ref *refs = advise_sorted(a);
    const uint64_t rows = style->top < a->tensors ? style->top : a->tensors;
    cli_table *t = cli_table_new(titles);
    for (uint64_t i = 0; i < rows; i++) {
        const survey *s = &refs[i].tensor->s;
        const gs_entry *e = refs[i].tensor->entry;
        const double zero = s->elements ? (double)s->zero / (double)s->elements : 0;
        cli_table_cell(t, "%s", short_name(advise_name(name, a, refs[i].file, e)));
        cli_table_cell(t, "%s", gs_dtype_format(e->dtype)->name);
        cli_table_cell(t, "%" PRIu64, s->elements);
        cli_table_cell(t, "%s", advise_percent(text, zero));
        cli_table_cell(t, "%" PRIu64, s->inf + s->nan);
        cli_table_cell(t, "%s", advise_amax(text, s, 3));
        cli_table_cell(t, "%s",
                       survey_has_safe(s) ? advise_scale(text, s->safe, false)
                       : s->nonzero       ? "none"
                                          : "any");
        cli_table_cell(t, "%s", advise_percent(text, survey_share(s, s->f16[0].underflow)));
        if (scale > 0)
            cli_table_cell(t, "%s", advise_percent(text, survey_share(s, s->f16[scale].underflow)));
        if (all->nonzero)
            cli_table_cell(t, "%s", spark(line, s, all->low, all->high, style->ascii));
    }
    cli_table_print(t, stdout);
    if (rows < a->tensors)
        printf("and %zu more; --top %zu shows all\n", a->tensors - (size_t)rows, a->tensors);
    for (uint64_t i = 0; style->each && i < rows; i++) {
        printf("\n%s%s%s\n", cli_style_of(stdout, CLI_BOLD),
               advise_name(name, a, refs[i].file, refs[i].tensor->entry),
               cli_style_of(stdout, CLI_PLAIN));
        print_histogram(&refs[i].tensor->s, scale, style->ascii);
    }
    free(refs);
}

/* ---- all ---- */

static const char *size_text(char out[32], double bytes)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    int u = 0;
    for (; bytes >= 1000 && u < 4; u++)
        bytes /= 1000;
    snprintf(out, 32, u ? "%.1f %s" : "%.0f %s", bytes, units[u]);
    return out;
}

/* The first three. */
static void print_skipped(FILE *to, const advise_file *f)
{
    char name[256];
    for (size_t t = 0, shown = 0; t < f->count && shown <= 3; t++) {
        const gs_entry *e = f->tensors[t].entry;
        if (gs_entry_readable(e))
            continue;
        snprintf(name, sizeof name, "%s", e->name[0] ? e->name : f->path);
        cli_clean(name);
        if (shown == 3)
            fprintf(to, ", and %zu more", f->skipped - 3);
        else
            fprintf(to, "%s %s (%s)", shown ? "," : "; skipped:", short_name(name), e->type);
        shown++;
    }
}

static void print_files(const advise *a)
{
    char size[32], path[256], *line;
    size_t length;
    for (size_t i = 0; i < a->count; i++) {
        const advise_file *f = &a->files[i];
        uint64_t values = 0;
        for (size_t t = 0; t < f->count; t++)
            values += f->tensors[t].s.elements;
        snprintf(path, sizeof path, "%s", f->path);
        cli_clean(path);
        FILE *to = cli_text_begin(&line, &length);
        fprintf(to, "%s, %s, %zu tensor%s with %" PRIu64 " value%s", gs_source_format(f->source),
                size_text(size, (double)gs_source_size(f->source)), f->count - f->skipped,
                cli_s(f->count - f->skipped), values, cli_s(values));
        print_skipped(to, f);
        cli_text_end(to);
        printf("%s%s%s: ", cli_style_of(stdout, CLI_BOLD), path, cli_style_of(stdout, CLI_PLAIN));
        cli_wrap(line, (int)strlen(path) + 2, 4);
        free(line);
    }
}

static void print_advice(const char *text, cli_style style)
{
    fputs(cli_style_of(stdout, style), stdout);
    cli_wrap(text, 0, 0);
    fputs(cli_style_of(stdout, CLI_PLAIN), stdout);
}

void advise_print(const advise *a, const advise_style *style)
{
    const survey *s = &a->total;
    char text[48], name[256], line[400];
    print_files(a);
    if (a->scale != 1)
        printf("dumped at a scale of %.10g: magnitudes are those of the values divided by it\n",
               a->scale);
    const int n =
        snprintf(line, sizeof line, "zero: %s of all values",
                 advise_percent(text, s->elements ? (double)s->zero / (double)s->elements : 0));
    if (a->max_entry)
        snprintf(line + n, sizeof line - (size_t)n, "; largest magnitude: %s in %s",
                 advise_amax(text, s, 6), advise_name(name, a, a->max_file, a->max_entry));
    cli_wrap(line, 0, 4);
    putchar('\n');
    if (s->nonzero) {
        print_histogram(s, survey_has_safe(s) ? a->advice.log2_scale : 0, style->ascii);
        putchar('\n');
        print_scales(a);
        const bool has_limit = s->safe >= 0 && s->safe < SCALES && s->safe != a->advice.log2_scale;
        printf("In percent of the %" PRIu64 " finite non-zero values%s\n\n", s->nonzero,
               has_limit ? "; limit: the largest safe scale" : "");
    }
    if (style->top > 0) {
        print_tensors(a, style);
        putchar('\n');
    }
    if (a->advice.bad[0])
        print_advice(a->advice.bad, CLI_RED);
    print_advice(a->advice.f16, CLI_BOLD);
    if (a->advice.zeros[0])
        print_advice(a->advice.zeros, CLI_YELLOW);
    print_advice(a->advice.bf16, CLI_PLAIN);
}
