#include "cli/core/json.h"
#include "cli/core/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Names come from files and may hold anything: what is not UTF-8 becomes U+FFFD, and controls are
 * spelled out. */
static void quote(FILE *to, const char *text)
{
    putc('"', to);
    while (*text) {
        const int length = utf8_length(text);
        const uint32_t code = length ? utf8_code(text, length) : 0xFFFD;
        if (code == '"' || code == '\\')
            fprintf(to, "\\%c", *text);
        else if (length == 0 || (utf8_is_control(code) && code <= 0xFFFF))
            fprintf(to, "\\u%04x", (unsigned)code);
        else
            fwrite(text, 1, (size_t)length, to);
        text += length ? length : 1;
    }
    putc('"', to);
}

static void newline(const json_writer *j)
{
    if (!j->pretty)
        return;
    putc('\n', j->to);
    for (int i = 0; i < j->depth; i++)
        fputs("  ", j->to);
}

/* What goes before a value. */
static void lead(json_writer *j, const char *key)
{
    const uint64_t level = (uint64_t)1 << j->depth;
    assert((key != NULL) == (j->depth > 0 && !(j->is_array & level)));
    if (j->depth > 0) {
        if (j->is_filled & level)
            fputs(j->pretty ? "," : ", ", j->to);
        newline(j);
    }
    j->is_filled |= level;
    if (key) {
        quote(j->to, key);
        fputs(": ", j->to);
    }
}

static void trail(const json_writer *j)
{
    if (j->depth == 0)
        putc('\n', j->to);
}

static void enter(json_writer *j, const char *key, bool is_array)
{
    lead(j, key);
    putc(is_array ? '[' : '{', j->to);
    j->depth++;
    assert(j->depth < 64);
    const uint64_t level = (uint64_t)1 << j->depth;
    j->is_filled &= ~level;
    j->is_array = is_array ? j->is_array | level : j->is_array & ~level;
}

void put_begin(json_writer *j, FILE *to, bool pretty)
{
    *j = (json_writer){.to = to, .pretty = pretty};
}

void put_object(json_writer *j, const char *key) { enter(j, key, false); }

void put_array(json_writer *j, const char *key) { enter(j, key, true); }

void put_end(json_writer *j)
{
    assert(j->depth > 0);
    const uint64_t level = (uint64_t)1 << j->depth;
    j->depth--;
    if (j->is_filled & level)
        newline(j);
    putc(j->is_array & level ? ']' : '}', j->to);
    trail(j);
}

void put_string(json_writer *j, const char *key, const char *value)
{
    lead(j, key);
    if (value)
        quote(j->to, value);
    else
        fputs("null", j->to);
    trail(j);
}

/* The shortest of 15, 16 and 17 digits that reads back to the same double; 17 always do. */
void put_double(json_writer *j, const char *key, double value)
{
    if (!isfinite(value)) {
        put_null(j, key);
        return;
    }
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    lead(j, key);
    fputs(text, j->to);
    trail(j);
}

void put_u64(json_writer *j, const char *key, uint64_t value)
{
    lead(j, key);
    fprintf(j->to, "%" PRIu64, value);
    trail(j);
}

void put_i64(json_writer *j, const char *key, int64_t value)
{
    lead(j, key);
    fprintf(j->to, "%" PRId64, value);
    trail(j);
}

void put_bool(json_writer *j, const char *key, bool value)
{
    lead(j, key);
    fputs(value ? "true" : "false", j->to);
    trail(j);
}

void put_null(json_writer *j, const char *key)
{
    lead(j, key);
    fputs("null", j->to);
    trail(j);
}
