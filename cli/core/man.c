/* --help for other readers: a man page, and the words that shells complete. Both are made of the
 * rows that parse the command line, so they cannot say something else. */
#include "cli/core/cli.h"

#include "gradscale/base.h"

#include <ctype.h>
#include <string.h>

/* Text for roff: no line begins with a dot or an apostrophe, minus signs and backslashes are
 * themselves, and a line of the text that begins with blanks is kept. */
static void roff(const char *text)
{
    bool start = true;
    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '\n' && text[1] == '\n')
            fputs("\n.PP", stdout);
        else
            putchar(*text);
        start = *text == '\n';
    }
}

static void upper(const char *text)
{
    for (; *text; text++)
        putchar(*text == ' ' ? '-' : toupper((unsigned char)*text));
}

static void man_rows(const cli_option *rows)
{
    for (; rows && rows->name; rows++) {
        char text[1024];
        if (rows->kind == CLI_KIND_SECTION) {
            fputs(".SS ", stdout);
            roff(rows->name);
            putchar('\n');
            man_rows(rows->to.section);
            continue;
        }
        fputs(".TP\n", stdout);
        if (rows->letter)
            printf("\\fB\\-%c\\fR, ", rows->letter);
        fputs("\\fB\\-\\-", stdout);
        roff(rows->name);
        fputs("\\fR", stdout);
        if (rows->value) {
            fputs(" \\fI", stdout);
            roff(rows->value);
            fputs("\\fR", stdout);
        }
        putchar('\n');
        cli_row_text(text, sizeof text, rows);
        roff(text);
        putchar('\n');
    }
}

void cli_print_man(const cli_spec *spec, const cli_option *help)
{
    fputs(".TH ", stdout);
    upper(spec->name);
    printf(" 1 \"\" \"gradscale %s\" \"User Commands\"\n.SH NAME\n", gs_version());
    for (const char *c = spec->name; *c; c++)
        fputs(*c == ' ' ? "\\-" : (const char[]){*c, 0}, stdout);
    fputs(" \\- ", stdout);
    const size_t n = strcspn(spec->about, "\n");
    const char *stop = strstr(spec->about, ". ");
    const size_t first =
        stop && (size_t)(stop - spec->about) < n ? (size_t)(stop - spec->about) : n;
    char line[512];
    snprintf(line, sizeof line, "%.*s", (int)(first < 500 ? first : 500), spec->about);
    if (line[0] && line[strlen(line) - 1] == '.')
        line[strlen(line) - 1] = 0;
    roff(line);
    fputs("\n.SH SYNOPSIS\n\\fB", stdout);
    roff(spec->name);
    fputs("\\fR [\\fIoptions\\fR]", stdout);
    if (spec->operands) {
        putchar(' ');
        roff(spec->operands);
    }
    fputs("\n.SH DESCRIPTION\n", stdout);
    roff(spec->about);
    putchar('\n');
    if (spec->commands) {
        fputs(".SH COMMANDS\n", stdout);
        for (const cli_command *c = spec->commands; c->name; c++) {
            printf(".TP\n\\fB%s\\fR\n", c->name);
            roff(c->summary);
            putchar('\n');
        }
    }
    fputs(".SH OPTIONS\n", stdout);
    man_rows(help);
    man_rows(spec->options);
    fputs(".SH \"EXIT STATUS\"\n0: done; 1: it failed; 2: bad usage or input.\n", stdout);
    if (spec->commands) {
        fputs(".SH \"SEE ALSO\"\n", stdout);
        for (const cli_command *c = spec->commands; c->name; c++) {
            fputs("\\fB", stdout);
            for (const char *s = spec->name; *s; s++)
                fputs(*s == ' ' ? "\\-" : (const char[]){*s, 0}, stdout);
            printf("\\-%s\\fR(1)%s\n", c->name, c[1].name ? "," : "");
        }
    } else {
        fputs(".SH \"SEE ALSO\"\n\\fBgradscale\\fR(1)\n", stdout);
    }
}

static void word_rows(const cli_option *rows)
{
    for (; rows && rows->name; rows++)
        if (rows->kind == CLI_KIND_SECTION)
            word_rows(rows->to.section);
        else
            printf("--%s\t%s\t%s\n", rows->name, rows->value ? rows->value : "", rows->help);
}

void cli_print_words(const cli_spec *spec, const cli_option *help)
{
    for (const cli_command *c = spec->commands; c && c->name; c++)
        printf("%s\t\t%s\n", c->name, c->summary);
    word_rows(help);
    word_rows(spec->options);
}
