/* Tables with aligned columns, in parts where they are wider than the terminal. */
#include "cli/core/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct cli_table {
    const char *const *titles;
    size_t keys, columns, cells, room;
    char **text; /* [cells], row after row; an empty line is a row of NULL */
};

cli_table *cli_table_new(const char *const *titles)
{
    cli_table *t = cli_resize(NULL, sizeof *t);
    *t = (cli_table){.titles = titles, .keys = 1};
    while (titles[t->columns])
        t->columns++;
    return t;
}

static void add_cell(cli_table *t, char *text)
{
    if (t->cells == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->text = cli_resize(t->text, t->room * sizeof *t->text);
    }
    t->text[t->cells++] = text;
}

void cli_table_cell(cli_table *t, const char *format, ...)
{
    va_list args;
    char text[512];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    cli_clean(text);
    add_cell(t, strcpy(cli_resize(NULL, strlen(text) + 1), text));
}

void cli_table_keys(cli_table *t, size_t keys) { t->keys = keys; }

void cli_table_line(cli_table *t)
{
    for (size_t c = 0; c < t->columns; c++)
        add_cell(t, NULL);
}

/* *gap is the room since the last text: written when more text follows, so lines end in none. */
static void print_cell(FILE *to, int *gap, const char *text, size_t width, bool right)
{
    const int pad = (int)(width - cli_text_width(text));
    *gap += right ? pad : 0;
    if (*text) {
        fprintf(to, "%*s%s", *gap, "", text);
        *gap = 0;
    }
    *gap += (right ? 0 : pad) + 2;
}

/* The keys, and the columns from `first` to before `last`. */
static void print_row(FILE *to, const cli_table *t, const size_t *widths, size_t row, size_t first,
                      size_t last)
{
    int gap = 0;
    for (size_t c = 0; c < last; c = c + 1 == t->keys ? first : c + 1) {
        const char *text = row == 0 ? t->titles[c] + 1 : t->text[(row - 1) * t->columns + c];
        if (text)
            print_cell(to, &gap, text, widths[c], t->titles[c][0] == '>');
    }
    fputc('\n', to);
}

/* COLUMNS wins, as elsewhere. */
static size_t width_for(FILE *to)
{
    const char *columns = getenv("COLUMNS");
    uint64_t given;
    if (columns && cli_read_unsigned(&given, columns) && given >= 20 && given < 10000)
        return (size_t)given;
    return cli_terminal_width(to);
}

/* How many of the columns from `first` on fit beside the keys: at least one. */
static size_t columns_that_fit(const cli_table *t, const size_t *widths, size_t first, size_t room)
{
    size_t used = widths[0], c = first;
    for (size_t k = 1; k < t->keys; k++)
        used += 2 + widths[k];
    while (c < t->columns && (c == first || used + 2 + widths[c] <= room))
        used += 2 + widths[c++];
    return c;
}

static void print_table(cli_table *t, FILE *to, size_t room)
{
    size_t *widths = cli_resize(NULL, t->columns * sizeof *widths);
    for (size_t c = 0; c < t->columns; c++)
        widths[c] = cli_text_width(t->titles[c] + 1);
    for (size_t i = 0; i < t->cells; i++) {
        const size_t width = t->text[i] ? cli_text_width(t->text[i]) : 0;
        if (width > widths[i % t->columns])
            widths[i % t->columns] = width;
    }
    for (size_t first = t->keys, last; first < t->columns || first == t->keys; first = last) {
        last = columns_that_fit(t, widths, first, room);
        fputs(first > t->keys ? "\n" : "", to);
        fputs(cli_style_of(to, CLI_BOLD), to);
        print_row(to, t, widths, 0, first, last);
        fputs(cli_style_of(to, CLI_PLAIN), to);
        for (size_t row = 1; row <= t->cells / t->columns; row++)
            print_row(to, t, widths, row, first, last);
        last += last == first; /* a table of one column */
    }
    for (size_t i = 0; i < t->cells; i++)
        free(t->text[i]);
    free(t->text);
    free(widths);
    free(t);
}

void cli_table_print(cli_table *t, FILE *to) { print_table(t, to, width_for(to)); }

void cli_table_print_narrow(cli_table *t, FILE *to)
{
    const size_t room = width_for(to);
    print_table(t, to, isatty(fileno(to)) || room < 80 ? room : 80);
}
