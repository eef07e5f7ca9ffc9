/* Config files: the rows of a command's options as lines `key = value`.
 *
 *     # a remark
 *     model = gpt                 # another
 *     name  = "a # that is none"  in quotes \" \\ \n \x1b stand for what they do in C
 *     set   = lr=1e-3             a list: one line per item */
#include "cli/core/cli.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MAX = 1 << 20, KEYS_MAX = 256, VALUE_MAX = 4096 };

/* Texts that were read: options point into them until the program ends. */
static struct text {
    struct text *before;
    char bytes[];
} * texts;

static char *new_text(size_t size)
{
    struct text *t = cli_resize(NULL, sizeof *t + size);
    t->before = texts;
    texts = t;
    return t->bytes;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/* What no line may have in it as it is. */
static bool is_control(char c)
{
    return ((unsigned char)c < ' ' && c != '\t' && c != '\r') || c == 0x7F;
}

static char *skip_blanks(char *s)
{
    while (is_blank(*s))
        s++;
    return s;
}

/* A value in quotes, unpacked in place. NULL: it does not end, or something follows it. */
static char *unquote(char *s)
{
    char *const out = s;
    char *to = s;
    for (s++; *s != '"'; s++) {
        const bool escaped = *s == '\\';
        s += escaped;
        if (!*s)
            return NULL;
        if (escaped && *s == 'x' && isxdigit((unsigned char)s[1]) &&
            isxdigit((unsigned char)s[2])) {
            *to++ = (char)strtol((const char[]){s[1], s[2], 0}, NULL, 16);
            s += 2;
        } else {
            *to++ = escaped && *s == 'n' ? '\n' : *s;
        }
    }
    s = skip_blanks(s + 1);
    *to = 0;
    return *s && *s != '#' ? NULL : out;
}

/* The value without the remark and the blanks behind it. */
static char *trim(char *s)
{
    size_t n = strlen(s);
    for (char *c = s; *c; c++)
        if (*c == '#' && (c == s || is_blank(c[-1]))) {
            n = (size_t)(c - s);
            break;
        }
    while (n > 0 && is_blank(s[n - 1]))
        n--;
    s[n] = 0;
    return s;
}

typedef struct reader {
    const cli_option *rows;
    const char *name;
    size_t line, keys;
    struct {
        const char *key;
        size_t line;
    } seen[KEYS_MAX];
} reader;

/* A key twice is a mistake that would go unnoticed; a list may have it often. */
static int check_twice(reader *r, const char *key, const char *where)
{
    for (size_t i = 0; i < r->keys; i++)
        if (strcmp(r->seen[i].key, key) == 0)
            return cli_fail("%s'%.60s' was already set on line %zu", where, key, r->seen[i].line);
    if (r->keys < KEYS_MAX) {
        r->seen[r->keys].key = key;
        r->seen[r->keys++].line = r->line;
    }
    return CLI_GO;
}

static bool is_list(const cli_option *rows, const char *key)
{
    for (; rows->name; rows++)
        if (rows->kind == CLI_KIND_SECTION
                ? is_list(rows->to.section, key)
                : rows->kind == CLI_KIND_LIST && strcmp(rows->name, key) == 0)
            return true;
    return false;
}

static int read_line(reader *r, char *s)
{
    char where[160];
    snprintf(where, sizeof where, "%.120s:%zu: ", r->name, r->line);
    s = skip_blanks(s);
    if (!*s || *s == '#')
        return CLI_GO;
    const size_t n = strcspn(s, " \t\r=");
    char *equals = skip_blanks(s + n);
    if (n == 0 || *equals != '=')
        return cli_fail("%s'%.60s' is not of the form key = value", where, trim(s));
    s[n] = 0;
    char *value = skip_blanks(equals + 1);
    value = *value == '"' ? unquote(value) : trim(value);
    if (!value)
        return cli_fail("%sthe quotes of %.60s do not end its line", where, s);
    if (strlen(value) >= VALUE_MAX)
        return cli_fail("%sthe value of %.60s is longer than %d bytes", where, s, VALUE_MAX - 1);
    const int code = is_list(r->rows, s) ? CLI_GO : check_twice(r, s, where);
    return code == CLI_GO ? cli_set(r->rows, s, value, where) : code;
}

/* text[length] is taken apart in place, and kept: strings point into it. */
static int read_lines(const cli_option *rows, char *text, size_t length, const char *name)
{
    reader r = {.rows = rows, .name = name};
    int code = CLI_GO;
    if (strncmp(text, "\xEF\xBB\xBF", 3) == 0) /* a byte order mark */
        text += 3, length -= 3;
    for (char *s = text, *const end = text + length; s < end && code == CLI_GO;) {
        char *const newline = memchr(s, '\n', (size_t)(end - s));
        char *const stop = newline ? newline : end;
        r.line++;
        *stop = 0;
        for (const char *c = s; c < stop; c++)
            if (is_control(*c))
                return cli_fail("%.120s:%zu: byte 0x%02x in it: this is not a text file", name,
                                r.line, (unsigned)(unsigned char)*c);
        code = read_line(&r, s);
        s = stop + 1;
    }
    return code;
}

int cli_config_read_text(const cli_option *rows, const char *text, const char *name)
{
    const size_t length = strlen(text);
    return read_lines(rows, strcpy(new_text(length + 1), text), length, name);
}

int cli_config_read(const cli_option *rows, const char *path, const char *option)
{
    int fd;
    do
        fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return cli_fail("%s: %.120s: cannot be opened: %s", option, path, strerror(errno));
    char *text = new_text(FILE_MAX + 2);
    size_t length = 0;
    ssize_t got = 1;
    while (length <= FILE_MAX && got != 0) {
        got = read(fd, text + length, FILE_MAX + 1 - length);
        if (got < 0 && errno != EINTR)
            break;
        length += got > 0 ? (size_t)got : 0;
    }
    const int why = errno;
    close(fd);
    if (got < 0)
        return cli_fail("%s: %.120s: %s", option, path, strerror(why));
    if (length > FILE_MAX)
        return cli_fail("%s: %.120s: larger than %d bytes: this is no config file", option, path,
                        FILE_MAX);
    text[length] = 0;
    return read_lines(rows, text, length, path);
}

/* ---- writing ---- */

void cli_config_each(const cli_option *rows, cli_pair_fn *each, void *user)
{
    for (; rows->name; rows++) {
        char text[VALUE_MAX];
        if (rows->kind == CLI_KIND_SECTION)
            cli_config_each(rows->to.section, each, user);
        else if (rows->kind == CLI_KIND_LIST)
            for (size_t i = 0; i < rows->to.list->count; i++)
                each(user, rows->name, rows->to.list->items[i]);
        else if (!rows->now && cli_value_text(text, sizeof text, rows))
            each(user, rows->name, text);
    }
}

static void write_pair(void *user, const char *key, const char *value)
{
    FILE *to = user;
    const size_t n = strlen(value);
    bool quotes = n == 0 || strchr("\" \t\r#", value[0]) || is_blank(value[n - 1]);
    for (const char *c = value; *c; c++)
        quotes |= is_control(*c) || (*c == '#' && c > value && is_blank(c[-1]));
    fprintf(to, "%s = %s", key, quotes ? "\"" : "");
    for (const char *c = value; *c; c++)
        if (*c == '\n')
            fputs("\\n", to);
        else if (is_control(*c))
            fprintf(to, "\\x%02x", (unsigned)*c);
        else
            fprintf(to, quotes && (*c == '"' || *c == '\\') ? "\\%c" : "%c", *c);
    fprintf(to, "%s\n", quotes ? "\"" : "");
}

void cli_config_write(FILE *to, const cli_option *rows) { cli_config_each(rows, write_pair, to); }
