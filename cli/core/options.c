/* Options, and the --help made from the same rows. */
#include "cli/core/cli.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEFT_MAX = 30, NAMES_MAX = 256 };

/* Every table ends with it. */
static bool help_wanted;
static int help_as; /* in text|man|words */
static const cli_option help_row[] = {
    {"help", NULL, "show this text", CLI_FLAG(&help_wanted), .letter = 'h'}, {0}};

/* ---- reading values ---- */

/* 1e3, 2.5e6: whole, and such that a double has it exactly. */
static bool read_power(uint64_t *out, const char *text)
{
    static const char digits[] = "0123456789";
    const char *rest = text + strspn(text, digits);
    if (rest > text && *rest == '.')
        rest += 1 + strspn(rest + 1, digits);
    if (rest == text || (*rest != 'e' && *rest != 'E'))
        return false;
    rest += rest[1] == '+' ? 2 : 1;
    if (!*rest || rest[strspn(rest, digits)])
        return false;
    const double value = strtod(text, NULL);
    if (!(value < 0x1p53) || value != floor(value))
        return false;
    *out = (uint64_t)value;
    return true;
}

bool cli_read_unsigned(uint64_t *out, const char *text)
{
    if (read_power(out, text))
        return true;
    if (!*text || text[strspn(text, "0123456789")])
        return false;
    errno = 0;
    const unsigned long long value = strtoull(text, NULL, 10);
    if (errno || value > UINT64_MAX)
        return false;
    *out = value;
    return true;
}

bool cli_read_double(double *out, const char *text)
{
    char *end;
    if (!*text || isspace((unsigned char)*text))
        return false;
    const double value = strtod(text, &end); /* too small a number becomes 0 or subnormal */
    if (*end || !isfinite(value))
        return false;
    *out = value;
    return true;
}

static const char suffixes[] = "KMGT";

bool cli_read_size(size_t *out, const char *text)
{
    char digits[24];
    const size_t n = strspn(text, "0123456789");
    if (n >= sizeof digits)
        return false;
    memcpy(digits, text, n);
    digits[n] = 0;
    unsigned shift = 0;
    if (text[n]) {
        const char *s = strchr(suffixes, toupper((unsigned char)text[n]));
        if (!s || text[n + 1])
            return false;
        shift = 10 * (unsigned)(s - suffixes + 1);
    }
    uint64_t value;
    if (!cli_read_unsigned(&value, digits) || value > SIZE_MAX >> shift)
        return false;
    *out = (size_t)value << shift;
    return true;
}

const char *cli_size_text(char buffer[32], size_t bytes)
{
    int i = -1;
    for (; bytes >= 1024 && bytes % 1024 == 0 && suffixes[i + 1]; i++)
        bytes /= 1024;
    snprintf(buffer, 32, "%zu%.*s", bytes, i >= 0, i >= 0 ? &suffixes[i] : "");
    return buffer;
}

int cli_read_choice(const char *choices, const char *text)
{
    const size_t length = strlen(text);
    for (int i = 0;; i++) {
        const size_t n = strcspn(choices, "|");
        if (n == length && memcmp(choices, text, n) == 0)
            return i;
        if (!choices[n])
            return -1;
        choices += n + 1;
    }
}

/* Item i of "this|that". */
static int choice_text(char *buffer, size_t size, const char *choices, int i)
{
    for (; i > 0 && *choices; i--) {
        choices += strcspn(choices, "|");
        choices += *choices == '|';
    }
    return snprintf(buffer, size, "%.*s", (int)strcspn(choices, "|"), choices);
}

int cli_next_item(const char **list, char *item, size_t size)
{
    if (!*list)
        return 0;
    const size_t n = strcspn(*list, ",");
    if (n == 0 || n >= size)
        return -1;
    memcpy(item, *list, n);
    item[n] = 0;
    *list = (*list)[n] ? *list + n + 1 : NULL;
    return 1;
}

/* ---- the nearest name ---- */

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b; names longer
 * than the rows are nobody's typing error. */
static size_t distance(const char *a, const char *b)
{
    enum { MAX = 48 };
    size_t rows[3][MAX + 1];
    const size_t n = strlen(a), m = strlen(b);
    if (n > MAX || m > MAX)
        return MAX;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t d = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < d)
                d = above[j] + 1;
            if (row[j - 1] + 1 < d)
                d = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                above2[j - 2] + 1 < d)
                d = above2[j - 2] + 1;
            row[j] = d;
        }
    }
    return rows[n % 3][m];
}

const char *cli_nearest(const char *wrong, const char *const *names, size_t n)
{
    const size_t length = strlen(wrong);
    size_t best = (length < 6 ? 1 : length / 3) + 1; /* a third of it may be wrong */
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        const size_t d = distance(wrong, names[i]);
        if (d < best) {
            best = d;
            nearest = names[i];
        }
    }
    for (size_t i = 0; !nearest && length > 1 && i < n; i++)
        if (strncmp(wrong, names[i], length) == 0)
            nearest = names[i];
    return nearest;
}

static size_t option_names(const char **names, size_t n, const cli_option *rows)
{
    for (; rows && rows->name && n < NAMES_MAX; rows++)
        if (rows->kind == CLI_KIND_SECTION)
            n = option_names(names, n, rows->to.section);
        else {
            names[n++] = rows->name;
            if (rows->alias && n < NAMES_MAX)
                names[n++] = rows->alias;
        }
    return n;
}

static int unknown_option(const cli_spec *spec, const char *name)
{
    const char *names[NAMES_MAX];
    size_t n = option_names(names, 0, help_row);
    n = option_names(names, n, spec->options);
    const char *nearest = cli_nearest(name, names, n);
    if (nearest)
        return cli_fail("unknown option --%.60s, did you mean --%s?", name, nearest);
    return cli_fail("unknown option --%.60s: %s --help lists them", name, spec->name);
}

static int unknown_command(const cli_spec *spec, const char *name)
{
    const char *names[NAMES_MAX];
    size_t n = 0;
    for (const cli_command *c = spec->commands; c->name && n < NAMES_MAX; c++)
        names[n++] = c->name;
    const char *nearest = cli_nearest(name, names, n);
    if (nearest)
        return cli_fail("unknown command '%.60s', did you mean '%s %s'?", name, spec->name,
                        nearest);
    return cli_fail("unknown command '%.60s': %s --help lists them", name, spec->name);
}

/* ---- --help ---- */

/* "--name VALUE", "-q, --quiet" */
static int left_text(char *buffer, size_t size, const cli_option *row)
{
    const char letter[] = {'-', row->letter, ',', ' ', 0};
    return snprintf(buffer, size, "%s--%s%s%s", row->letter ? letter : "", row->name,
                    row->value ? " " : "", row->value ? row->value : "");
}

bool cli_value_text(char *text, size_t size, const cli_option *row)
{
    *text = 0;
    switch (row->kind) {
    case CLI_KIND_FLAG:
        snprintf(text, size, "%s", *row->to.flag ? "yes" : "no");
        break;
    case CLI_KIND_STRING:
        if (*row->to.string)
            snprintf(text, size, "%s", *row->to.string);
        break;
    case CLI_KIND_UNSIGNED:
        if (*row->to.u64 != CLI_AUTO)
            snprintf(text, size, "%" PRIu64, *row->to.u64);
        break;
    case CLI_KIND_DOUBLE:
        for (int digits = 15; digits <= 17 && isfinite(*row->to.real); digits++) {
            snprintf(text, size, "%.*g", digits, *row->to.real);
            if (strtod(text, NULL) == *row->to.real)
                break;
        }
        break;
    case CLI_KIND_SIZE:
        cli_size_text(text, *row->to.size);
        break;
    case CLI_KIND_CHOICE:
        choice_text(text, size, row->value, *row->to.choice);
        break;
    default:
        break;
    }
    return *text != 0;
}

void cli_row_text(char *buffer, size_t size, const cli_option *row)
{
    char text[128], other[80] = "";
    const bool any = row->kind != CLI_KIND_FLAG && cli_value_text(text, sizeof text, row);
    if (row->alias)
        snprintf(other, sizeof other, "; also --%s", row->alias);
    snprintf(buffer, size, "%s%s%s%s%s", row->help, other, any ? " (default " : "", any ? text : "",
             any ? ")" : "");
}

static int left_width(const cli_option *rows)
{
    int width = 0;
    for (; rows && rows->name; rows++) {
        char left[256];
        const int n = rows->kind == CLI_KIND_SECTION ? left_width(rows->to.section)
                                                     : left_text(left, sizeof left, rows);
        if (n > width && n <= LEFT_MAX)
            width = n;
    }
    return width;
}

static void heading(const char *text)
{
    printf("\n%s%s:%s\n", cli_style_of(stdout, CLI_BOLD), text, cli_style_of(stdout, CLI_PLAIN));
}

static void pair(const char *left, const char *right, int width)
{
    const int indent = 2 + width + 2;
    if ((int)strlen(left) > width)
        printf("  %s\n%*s", left, indent, "");
    else
        printf("  %-*s  ", width, left);
    cli_wrap(right, indent, indent);
}

static void print_rows(const cli_option *rows, int width)
{
    for (; rows && rows->name; rows++) {
        if (rows->kind == CLI_KIND_SECTION) {
            heading(rows->name);
            print_rows(rows->to.section, width);
            continue;
        }
        char left[256], right[1024];
        left_text(left, sizeof left, rows);
        cli_row_text(right, sizeof right, rows);
        pair(left, right, width);
    }
}

static void print_help(const cli_spec *spec)
{
    printf("usage: %s [options]%s%s\n\n", spec->name, spec->operands ? " " : "",
           spec->operands ? spec->operands : "");
    cli_wrap(spec->about, 0, 0);
    if (spec->commands) {
        int width = 0;
        for (const cli_command *c = spec->commands; c->name; c++)
            width = (int)strlen(c->name) > width ? (int)strlen(c->name) : width;
        heading("commands");
        for (const cli_command *c = spec->commands; c->name; c++)
            pair(c->name, c->summary, width);
    }
    const int width = left_width(spec->options), least = left_width(help_row);
    heading("options");
    print_rows(help_row, width > least ? width : least);
    print_rows(spec->options, width > least ? width : least);
    if (spec->commands)
        printf("\n%s COMMAND --help tells more.\n", spec->name);
}

static void print_help_with(const cli_spec *spec, const cli_option *help)
{
    (void)help;
    print_help(spec);
}

/* ---- parsing ---- */

static const cli_option *find(const cli_option *rows, const char *name, size_t length)
{
    for (; rows && rows->name; rows++) {
        if (rows->kind == CLI_KIND_SECTION) {
            const cli_option *row = find(rows->to.section, name, length);
            if (row)
                return row;
        } else if ((strlen(rows->name) == length && memcmp(rows->name, name, length) == 0) ||
                   (rows->alias && strlen(rows->alias) == length &&
                    memcmp(rows->alias, name, length) == 0)) {
            return rows;
        }
    }
    return NULL;
}

static const cli_option *find_letter(const cli_option *rows, char letter)
{
    const cli_option *row = NULL;
    for (; rows && rows->name && !row; rows++)
        row = rows->kind == CLI_KIND_SECTION ? find_letter(rows->to.section, letter)
              : rows->letter == letter       ? rows
                                             : NULL;
    return row;
}

/* "fp16|bf16|fp32": the one that may be meant; "": none. */
static const char *nearest_choice(char text[64], const char *choices, const char *wrong)
{
    char names[32][64];
    const char *list[32];
    size_t n = 0;
    for (; n < 32 && *choices; n++) {
        choice_text(names[n], sizeof names[n], choices, 0);
        list[n] = names[n];
        choices += strcspn(choices, "|");
        choices += *choices == '|';
    }
    const char *nearest = cli_nearest(wrong, list, n);
    snprintf(text, 64, "%s", nearest ? nearest : "");
    return text;
}

/* 2^60 is no number to spell out. */
static const char *bound_text(char out[32], double bound)
{
    int e;
    if (frexp(fabs(bound), &e) == 0.5 && abs(e - 1) >= 40)
        snprintf(out, 32, "%s2^%d", bound < 0 ? "-" : "", e - 1);
    else
        snprintf(out, 32, "%.15g", bound);
    return out;
}

static int check_range(const cli_option *row, double value, const char *text, const char *where)
{
    if ((row->min == 0 && row->max == 0) || (value >= row->min && value <= row->max))
        return CLI_GO;
    char low[32], high[32];
    bound_text(low, row->min);
    if (isinf(row->max))
        return cli_fail("%s%s must be at least %s, not %.60s", where, row->name, low, text);
    return cli_fail("%s%s must be from %s to %s, not %.60s", where, row->name, low,
                    bound_text(high, row->max), text);
}

static int fail_unsigned(const cli_option *row, const char *text, const char *where)
{
    char low[32], high[32];
    const bool is_open = isinf(row->max) || (row->min == 0 && row->max == 0);
    return cli_fail("%s%s needs a whole number from %s to %s, not '%.60s'", where, row->name,
                    bound_text(low, row->min), is_open ? "2^64 - 1" : bound_text(high, row->max),
                    text);
}

/* Stores the value, if it is one; a destination is written only with what is legal. `where` begins
 * the error messages: "--", or the line of a file. */
static int set_value(const cli_option *row, const char *text, const char *where)
{
    uint64_t u64;
    double real;
    size_t size;
    int code, index;
    char near[64];
    if (!*text)
        return cli_fail("%s%s needs a value (%s), not an empty one", where, row->name,
                        row->value ? row->value : "yes|no");
    switch (row->kind) {
    case CLI_KIND_FLAG:
        index = cli_read_choice("no|yes", text);
        if (index < 0)
            return cli_fail("%s%s is yes or no, not '%.60s'", where, row->name, text);
        *row->to.flag = index;
        return CLI_GO;
    case CLI_KIND_STRING:
        *row->to.string = text;
        return CLI_GO;
    case CLI_KIND_UNSIGNED:
        if (!cli_read_unsigned(&u64, text))
            return fail_unsigned(row, text, where);
        code = check_range(row, (double)u64, text, where);
        if (code == CLI_GO)
            *row->to.u64 = u64;
        return code;
    case CLI_KIND_DOUBLE:
        if (!cli_read_double(&real, text))
            return cli_fail("%s%s needs a finite number, not '%.60s'", where, row->name, text);
        code = check_range(row, real, text, where);
        if (code == CLI_GO)
            *row->to.real = real;
        return code;
    case CLI_KIND_SIZE:
        if (!cli_read_size(&size, text))
            return cli_fail("%s%s needs a size such as 4096, 64K, 32M or 1G, not '%.60s'", where,
                            row->name, text);
        code = check_range(row, (double)size, text, where);
        if (code == CLI_GO)
            *row->to.size = size;
        return code;
    case CLI_KIND_CHOICE:
        index = cli_read_choice(row->value, text);
        if (index < 0 && *nearest_choice(near, row->value, text))
            return cli_fail("%s%s is one of %s, not '%.60s': did you mean %s?", where, row->name,
                            row->value, text, near);
        if (index < 0)
            return cli_fail("%s%s is one of %s, not '%.60s'", where, row->name, row->value, text);
        *row->to.choice = index;
        return CLI_GO;
    case CLI_KIND_LIST:
        if (row->to.list->count == CLI_LIST_MAX)
            return cli_fail("%s%s is given more than %d times", where, row->name, CLI_LIST_MAX);
        row->to.list->items[row->to.list->count++] = text;
        return CLI_GO;
    default:
        return CLI_GO;
    }
}

int cli_set(const cli_option *rows, const char *name, const char *text, const char *where)
{
    const cli_option *row = find(rows, name, strlen(name));
    if (row && row->now)
        return cli_fail("%s%s is for the command line alone", where, row->name);
    if (row)
        return set_value(row, text, where);
    const char *names[NAMES_MAX];
    const char *nearest = cli_nearest(name, names, option_names(names, 0, rows));
    if (nearest)
        return cli_fail("%sunknown key '%.60s', did you mean '%s'?", where, name, nearest);
    return cli_fail("%sunknown key '%.60s'", where, name);
}

/* argv[i] is "--name" or "--name=value". Returns CLI_GO and steps *i over what was used. */
static int parse_option(const cli_spec *spec, int argc, char **argv, int *i)
{
    const char *name = argv[*i] + 2;
    const size_t length = strcspn(name, "=");
    const char *value = name[length] ? name + length + 1 : NULL;
    const cli_option *row = find(help_row, name, length);
    if (!row)
        row = find(spec->options, name, length);
    if (!row) {
        argv[*i][2 + length] = 0;
        return unknown_option(spec, name);
    }
    if (row == help_row && value) {
        help_as = cli_read_choice("text|man|words", value);
        if (help_as < 0)
            return cli_fail("--help is one of text|man|words, not '%.60s'", value);
        help_wanted = true;
        return CLI_GO;
    }
    if (row->kind == CLI_KIND_FLAG) {
        if (value)
            return cli_fail("--%s takes no value", row->name);
        *row->to.flag = true;
        return CLI_GO;
    }
    if (value)
        return set_value(row, value, "--");
    if (*i + 1 >= argc)
        return cli_fail("--%s needs a value (%s)", row->name, row->value);
    if (strncmp(argv[*i + 1], "--", 2) == 0)
        return cli_fail("--%s needs a value (%s); write --%s=VALUE if it is '%.60s'", row->name,
                        row->value, row->name, argv[*i + 1]);
    return set_value(row, argv[++*i], "--");
}

static int check_operands(const cli_spec *spec, int argc, char **argv)
{
    const uint32_t n = (uint32_t)argc;
    if (spec->commands)
        return CLI_GO;
    if (n > spec->max_operands)
        return cli_fail("'%.60s' is one argument too many: %s --help shows the usage",
                        argv[spec->max_operands], spec->name);
    if (n < spec->min_operands)
        return cli_fail("an argument is missing (%s): %s --help shows the usage", spec->operands,
                        spec->name);
    return CLI_GO;
}

int cli_parse(const cli_spec *spec, int *argc, char **argv)
{
    int operands = 0, code = CLI_GO;
    bool ended = false;
    help_wanted = false;
    help_as = 0;
    for (int i = 0; i < *argc && code == CLI_GO && !help_wanted; i++) {
        if (ended || argv[i][0] != '-' || !argv[i][1]) { /* "-" alone is an operand */
            argv[operands++] = argv[i];
            ended |= spec->commands != NULL;
        } else if (strcmp(argv[i], "--") == 0) {
            ended = true;
        } else if (argv[i][1] != '-') {
            const cli_option *row = argv[i][2] ? NULL : find_letter(help_row, argv[i][1]);
            if (!row && !argv[i][2])
                row = find_letter(spec->options, argv[i][1]);
            if (row)
                *row->to.flag = true;
            else
                code = cli_fail("unknown option %.60s: options are written --name", argv[i]);
        } else {
            code = parse_option(spec, *argc, argv, &i);
        }
    }
    if (code == CLI_GO && help_wanted) {
        static void (*const print[])(const cli_spec *, const cli_option *) = {
            print_help_with, cli_print_man, cli_print_words};
        print[help_as](spec, help_row);
        return CLI_DONE;
    }
    *argc = operands;
    return code == CLI_GO ? check_operands(spec, operands, argv) : code;
}

int cli_run(const cli_spec *spec, int argc, char **argv)
{
    static char help[] = "--help";
    if (argc == 0)
        return cli_fail("a command is missing: %s --help lists them", spec->name);
    const bool is_help = strcmp(argv[0], "help") == 0;
    if (is_help && argc == 1) {
        print_help(spec);
        return CLI_DONE;
    }
    for (const cli_command *c = spec->commands; c->name; c++)
        if (strcmp(argv[is_help], c->name) == 0)
            return !is_help   ? c->run(argc - 1, argv + 1)
                   : argc > 2 ? c->run(2, (char *[]){argv[2], help, NULL})
                              : c->run(1, (char *[]){help, NULL});
    return unknown_command(spec, argv[is_help]);
}
