#include "cli/export/protobuf.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, BYTES = 2, FIXED32 = 5 };

static void *more(pb *to, size_t n)
{
    if (to->room - to->n < n) {
        while (to->room - to->n < n)
            to->room = to->room ? 2 * to->room : 256;
        to->data = cli_resize(to->data, to->room);
    }
    void *at = to->data + to->n;
    to->n += n;
    return at;
}

static void varint(pb *to, uint64_t x)
{
    for (; x >= 0x80; x >>= 7)
        *(unsigned char *)more(to, 1) = (unsigned char)(x | 0x80);
    *(unsigned char *)more(to, 1) = (unsigned char)x;
}

static void key(pb *to, unsigned field, unsigned wire) { varint(to, field << 3 | wire); }

void pb_int(pb *to, unsigned field, uint64_t value)
{
    key(to, field, VARINT);
    varint(to, value);
}

void pb_float(pb *to, unsigned field, float value)
{
    key(to, field, FIXED32);
    memcpy(more(to, sizeof value), &value, sizeof value);
}

void pb_bytes(pb *to, unsigned field, const void *data, size_t n)
{
    key(to, field, BYTES);
    varint(to, n);
    void *at = more(to, n);
    if (n > 0)
        memcpy(at, data, n);
}

void pb_text(pb *to, unsigned field, const char *text) { pb_bytes(to, field, text, strlen(text)); }

void pb_message(pb *to, unsigned field, pb *part)
{
    pb_bytes(to, field, part->data, part->n);
    pb_free(part);
}

void pb_join(pb *to, pb *part)
{
    void *at = more(to, part->n);
    if (part->n > 0)
        memcpy(at, part->data, part->n);
    pb_free(part);
}

void pb_free(pb *x)
{
    free(x->data);
    *x = (pb){0};
}
