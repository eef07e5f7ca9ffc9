#include "io/line.h"

#include "io/io.h"
#include "io/lines.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_text(gsi_line *l, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (l->lost || !gsi_grow(l->heap, &l->text, &l->room, l->n + n, 1)) {
        l->lost = true;
        return;
    }
    memcpy(l->text + l->n, text, n);
    l->n += n;
}

void gsi_put(gsi_line *l, const char *text) { put_text(l, text, strlen(text)); }

void gsi_put_name(gsi_line *l, const char *name)
{
    if (l->n > 0 && !strchr("{[:", l->text[l->n - 1]))
        gsi_put(l, ",");
    if (name) {
        gsi_put(l, "\"");
        gsi_put(l, name);
        gsi_put(l, "\":");
    }
}

void gsi_put_count(gsi_line *l, uint64_t x)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, x);
    gsi_put(l, text);
}

void gsi_put_real(gsi_line *l, double x, bool rough, const char *not_finite)
{
    char text[64];
    if (!isfinite(x)) {
        gsi_put(l, not_finite);
        return;
    }
    for (int digits = 6; digits <= 17; digits += digits < 15 ? 9 : 1) { /* 6, 15, 16, 17 */
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (rough || strtod(text, NULL) == x)
            break;
    }
    const char *point = localeconv()->decimal_point;
    const char *at = strcmp(point, ".") == 0 ? NULL : strstr(text, point);
    if (at) {
        put_text(l, text, (size_t)(at - text));
        gsi_put(l, ".");
        at += strlen(point);
    }
    gsi_put(l, at ? at : text);
}

/* What is not UTF-8 loses its bytes above 127. */
void gsi_put_string(gsi_line *l, const char *text)
{
    if (!text) {
        gsi_put(l, "null");
        return;
    }
    const bool utf8 = gsi_utf8(text, strlen(text));
    const char *from = text; /* of what is copied as it is */
    gsi_put(l, "\"");
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        char escaped[8];
        if (c == '"' || c == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)c);
        else if (c > 0x7F && !utf8)
            snprintf(escaped, sizeof escaped, "\\ufffd");
        else
            continue;
        put_text(l, from, (size_t)(text - from));
        gsi_put(l, escaped);
        from = text + 1;
    }
    put_text(l, from, (size_t)(text - from));
    gsi_put(l, "\"");
}

void gsi_add_string(gsi_line *l, const char *name, const char *value)
{
    gsi_put_name(l, name);
    gsi_put_string(l, value);
}

void gsi_add_count(gsi_line *l, const char *name, uint64_t value)
{
    gsi_put_name(l, name);
    gsi_put_count(l, value);
}

void gsi_add_real(gsi_line *l, const char *name, double value)
{
    gsi_put_name(l, name);
    gsi_put_real(l, value, false, "null");
}

void gsi_add_rough(gsi_line *l, const char *name, double value)
{
    gsi_put_name(l, name);
    gsi_put_real(l, value, true, "null");
}

void gsi_add_open(gsi_line *l, const char *name, const char *bracket)
{
    gsi_put_name(l, name);
    gsi_put(l, bracket);
}

gs_status gsi_line_copy(gsi_line *l, char *text, size_t room, size_t *used)
{
    const gs_status status = l->lost ? GS_ENOMEM : l->n + 1 > room ? GS_ESIZE : GS_OK;
    *used = l->lost ? 0 : l->n;
    if (status == GS_OK) {
        memcpy(text, l->text, l->n);
        text[l->n] = 0;
    }
    gsi_free(l->heap, l->text);
    return status;
}
