#include "io/json.h"

#include "io/io.h"

#include <limits.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What may come next. */
enum { VALUE, FIRST_ITEM, FIRST_KEY, AFTER, NOTHING };

gsi_json gsi_json_of(const char *text, size_t length)
{
    return (gsi_json){.text = text, .length = length, .expect = VALUE};
}

static bool fail(gsi_json *j, const char *why)
{
    j->wrong = why;
    return false;
}

static void skip_blanks(gsi_json *j)
{
    while (j->at < j->length && memchr(" \t\n\r", j->text[j->at], 4))
        j->at++;
}

static int peek(const gsi_json *j)
{
    return j->at < j->length ? (unsigned char)j->text[j->at] : -1;
}

/* ---- strings ---- */

static int hex_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The four digits behind \u; -1: there are none. */
static int32_t unit_at(const char *p, size_t left)
{
    int32_t unit = 0;
    for (int i = 0; i < 4; i++) {
        const int digit = left > (size_t)i ? hex_of(p[i]) : -1;
        if (digit < 0)
            return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

/* An escape at p, of `left` bytes; its length in the text, 0: it is none. */
static size_t escape_at(const char *p, size_t left, uint32_t *code)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *known = left > 1 && p[1] ? strchr(from, p[1]) : NULL;
    if (known) {
        *code = (uint8_t)to[known - from];
        return 2;
    }
    const int32_t high = left > 1 && p[1] == 'u' ? unit_at(p + 2, left - 2) : -1;
    if (high <= 0 || (high >= 0xDC00 && high <= 0xDFFF))
        return 0;
    *code = (uint32_t)high;
    if (high < 0xD800 || high > 0xDBFF)
        return 6;
    const int32_t low = left > 7 && p[6] == '\\' && p[7] == 'u' ? unit_at(p + 8, left - 8) : -1;
    *code = 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00);
    return low >= 0xDC00 && low <= 0xDFFF ? 12 : 0;
}

static bool read_string(gsi_json *j, gsi_json_kind kind)
{
    j->begin = ++j->at;
    for (;; j->at++) {
        const int c = peek(j);
        uint32_t code;
        if (c < 0)
            return fail(j, "a string does not end");
        if (c < 0x20)
            return fail(j, "a control character in a string");
        if (c == '"')
            break;
        if (c != '\\')
            continue;
        const size_t n = escape_at(j->text + j->at, j->length - j->at, &code);
        if (n == 0)
            return fail(j, "an escape that is none");
        j->at += n - 1;
    }
    j->size = j->at++ - j->begin;
    j->kind = kind;
    if (!gsi_utf8(j->text + j->begin, j->size))
        return fail(j, "a string that is not UTF-8");
    return true;
}

static size_t put_utf8(char *out, uint32_t code)
{
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t leads[] = {0, 0xC0, 0xE0, 0xF0};
    for (int i = more; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(leads[more] | code);
    return (size_t)more + 1;
}

size_t gsi_json_string(char *out, const gsi_json *j)
{
    const char *p = j->text + j->begin, *const end = p + j->size;
    size_t n = 0;
    while (p < end) {
        uint32_t code = 0;
        if (*p != '\\') {
            out[n++] = *p++;
            continue;
        }
        p += escape_at(p, (size_t)(end - p), &code); /* it was read before: it is one */
        n += put_utf8(out + n, code);
    }
    out[n] = 0;
    return n;
}

bool gsi_json_is(const gsi_json *j, const char *text)
{
    return j->size == strlen(text) && memcmp(j->text + j->begin, text, j->size) == 0;
}

/* ---- numbers ---- */

enum { LONGEST = 1200 }; /* a double has 767 digits at most; a longer number is none of ours */

bool gsi_number(double *out, const char *text, size_t size)
{
    const char *point = localeconv()->decimal_point;
    const size_t width = strlen(point);
    char copy[LONGEST + MB_LEN_MAX]; /* a number has one point at most */
    size_t n = 0, points = 0;
    char *end;
    if (size == 0 || size > LONGEST)
        return false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '.' && ++points == 1) {
            memcpy(copy + n, point, width);
            n += width;
        } else if (text[i] == '.' || text[i] == point[0]) {
            return false;
        } else {
            copy[n++] = text[i];
        }
    }
    copy[n] = 0;
    *out = strtod(copy, &end);
    return end == copy + n;
}

static double to_double(const gsi_json *j)
{
    double x = (double)NAN;
    gsi_number(&x, j->text + j->begin, j->size);
    return x;
}

static size_t skip_digits(gsi_json *j)
{
    const size_t from = j->at;
    while (peek(j) >= '0' && peek(j) <= '9')
        j->at++;
    return j->at - from;
}

static bool read_number(gsi_json *j)
{
    j->begin = j->at;
    j->kind = GSI_JSON_NUMBER;
    j->at += peek(j) == '-';
    const bool zero = peek(j) == '0';
    const size_t digits = skip_digits(j);
    bool fine = digits == 1 || (digits > 1 && !zero);
    if (peek(j) == '.') {
        j->at++;
        fine &= skip_digits(j) > 0;
    }
    if (peek(j) == 'e' || peek(j) == 'E') {
        j->at++;
        j->at += peek(j) == '+' || peek(j) == '-';
        fine &= skip_digits(j) > 0;
    }
    j->size = j->at - j->begin;
    if (!fine || j->size > LONGEST)
        return fail(j, fine ? "a number that is too long" : "a number that is none");
    if (!isfinite(to_double(j)))
        return fail(j, "real number overflow");
    return true;
}

bool gsi_json_count(uint64_t *out, const gsi_json *j)
{
    uint64_t x = 0;
    for (size_t i = 0; i < j->size; i++) {
        const unsigned digit = (unsigned)(unsigned char)j->text[j->begin + i] - '0';
        if (digit > 9 || x > ((uint64_t)INT64_MAX - digit) / 10)
            return false;
        x = 10 * x + digit;
    }
    *out = x;
    return j->kind == GSI_JSON_NUMBER;
}

/* ---- tokens ---- */

static bool read_word(gsi_json *j)
{
    static const struct {
        const char *word;
        gsi_json_kind kind;
        bool lenient;
    } words[] = {{"true", GSI_JSON_TRUE, false},    {"false", GSI_JSON_FALSE, false},
                 {"null", GSI_JSON_NULL, false},    {"NaN", GSI_JSON_NULL, true},
                 {"Infinity", GSI_JSON_NULL, true}, {"-NaN", GSI_JSON_NULL, true},
                 {"-Infinity", GSI_JSON_NULL, true}};
    for (size_t i = 0; i < GSI_COUNT(words); i++) {
        const size_t n = strlen(words[i].word);
        if (j->length - j->at >= n && memcmp(j->text + j->at, words[i].word, n) == 0 &&
            (!words[i].lenient || j->lenient)) {
            j->begin = j->at;
            j->size = n;
            j->at += n;
            j->kind = words[i].kind;
            return true;
        }
    }
    return fail(j, "neither a value nor its end");
}

static bool open_it(gsi_json *j, char bracket)
{
    if (j->depth == GSI_JSON_DEPTH)
        return fail(j, "values lie too deep in each other");
    j->open[j->depth++] = bracket;
    j->at++;
    j->kind = bracket == '{' ? GSI_JSON_OBJECT : GSI_JSON_ARRAY;
    j->expect = bracket == '{' ? FIRST_KEY : FIRST_ITEM;
    return true;
}

static bool close_it(gsi_json *j)
{
    j->at++;
    j->depth--;
    j->kind = GSI_JSON_CLOSE;
    j->expect = j->depth > 0 ? AFTER : NOTHING;
    return true;
}

static bool read_value(gsi_json *j)
{
    const int c = peek(j);
    if (c == '{' || c == '[')
        return open_it(j, (char)c);
    const bool word = j->lenient && c == '-' && j->length - j->at > 1 &&
                      (j->text[j->at + 1] == 'I' || j->text[j->at + 1] == 'N');
    const bool read = c == '"' ? read_string(j, GSI_JSON_STRING)
                      : !word && (c == '-' || (c >= '0' && c <= '9')) ? read_number(j)
                                                                      : read_word(j);
    j->expect = j->depth > 0 ? AFTER : NOTHING;
    return read;
}

static bool read_key(gsi_json *j)
{
    if (peek(j) != '"')
        return fail(j, "a key in quotes is expected");
    if (!read_string(j, GSI_JSON_KEY))
        return false;
    skip_blanks(j);
    if (peek(j) != ':')
        return fail(j, "a colon is expected");
    j->at++;
    j->expect = VALUE;
    return true;
}

bool gsi_json_next(gsi_json *j)
{
    if (j->wrong)
        return false;
    skip_blanks(j);
    const bool object = j->depth > 0 && j->open[j->depth - 1] == '{';
    const int close = object ? '}' : ']';
    switch (j->expect) {
    case NOTHING:
        j->kind = GSI_JSON_END;
        if (j->at < j->length)
            return fail(j, "something follows the value");
        return true;
    case VALUE:
        return read_value(j);
    case FIRST_ITEM:
        return peek(j) == close ? close_it(j) : read_value(j);
    case FIRST_KEY:
        return peek(j) == close ? close_it(j) : read_key(j);
    default: /* AFTER */
        if (peek(j) == close)
            return close_it(j);
        if (peek(j) != ',')
            return fail(j, "a comma or an end is expected");
        j->at++;
        skip_blanks(j);
        return object ? read_key(j) : read_value(j);
    }
}

/* ---- a tree ---- */

const gsi_node *gsi_node_get(const gsi_node *object, const char *key)
{
    const gsi_node *n = object && object->kind == GSI_JSON_OBJECT ? object->first : NULL;
    while (n && strcmp(n->key, key) != 0)
        n = n->next;
    return n;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* False: no memory. */
static bool look_for_twins(bool *found, const gsi_node *object, gsi_arena *arena)
{
    enum { FEW = 16 };
    *found = false;
    if (object->count <= FEW) {
        for (const gsi_node *a = object->first; a; a = a->next)
            for (const gsi_node *b = a->next; b; b = b->next)
                *found |= strcmp(a->key, b->key) == 0;
        return true;
    }
    const char **keys = gsi_arena_new(arena, object->count, sizeof *keys);
    if (!keys)
        return false;
    size_t n = 0;
    for (const gsi_node *a = object->first; a; a = a->next)
        keys[n++] = a->key;
    qsort(keys, n, sizeof *keys, by_text);
    for (size_t i = 1; i < n; i++)
        *found |= strcmp(keys[i - 1], keys[i]) == 0;
    return true;
}

static const char *keep_string(gsi_arena *arena, const gsi_json *j)
{
    char *text = gsi_arena_new(arena, j->size + 1, 1);
    if (text)
        gsi_json_string(text, j);
    return text;
}

gs_status gsi_json_tree(const gsi_node **root, gsi_json *j, gsi_arena *arena, const char **wrong)
{
    gsi_node *inside[GSI_JSON_DEPTH], *last[GSI_JSON_DEPTH]; /* by depth; NULL: none yet */
    const char *key = NULL;
    size_t nodes = 0;
    *root = NULL;
    *wrong = NULL;
    while (gsi_json_next(j) && j->kind != GSI_JSON_END) {
        if (j->kind == GSI_JSON_KEY) {
            key = keep_string(arena, j);
            if (!key)
                return GS_ENOMEM;
            continue;
        }
        if (j->kind == GSI_JSON_CLOSE) {
            bool twins = false;
            if (inside[j->depth]->kind == GSI_JSON_OBJECT &&
                !look_for_twins(&twins, inside[j->depth], arena))
                return GS_ENOMEM;
            *wrong = twins ? "duplicate object key" : NULL;
            if (twins)
                return GS_EFORMAT;
            continue;
        }
        gsi_node *n = nodes++ < GSI_JSON_NODES ? gsi_arena_new(arena, 1, sizeof *n) : NULL;
        if (!n)
            return nodes > GSI_JSON_NODES ? GS_ESIZE : GS_ENOMEM;
        *n = (gsi_node){.kind = j->kind, .key = key, .number = (double)NAN};
        key = NULL;
        const bool opened = j->kind == GSI_JSON_OBJECT || j->kind == GSI_JSON_ARRAY;
        const int level = j->depth - opened; /* it lies in inside[level - 1] */
        if (opened) {
            inside[level] = n;
            last[level] = NULL;
        }
        if (level == 0) {
            *root = n;
        } else {
            if (last[level - 1])
                last[level - 1]->next = n;
            else
                inside[level - 1]->first = n;
            last[level - 1] = n;
            inside[level - 1]->count++;
        }
        if (j->kind == GSI_JSON_NUMBER)
            n->number = to_double(j);
        else if (j->kind == GSI_JSON_STRING && !(n->text = keep_string(arena, j)))
            return GS_ENOMEM;
    }
    *wrong = j->wrong;
    return j->wrong ? GS_EFORMAT : GS_OK;
}
