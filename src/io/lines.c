#include "io/lines.h"

#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

char *gsi_copy_text(gsi_heap *heap, const char *text, size_t length)
{
    char *copy = gsi_new(heap, length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = 0;
    }
    return copy;
}

bool gsi_grow(gsi_heap *heap, void *block, size_t *room, size_t need, size_t size)
{
    void *old, *more;
    size_t bytes, next = *room < 64 ? 64 : *room;
    if (need <= *room)
        return true;
    while (next < need)
        if (!gsi_mul_size(&next, next, 2))
            return false;
    if (!gsi_mul_size(&bytes, next, size) || !(more = gsi_new(heap, bytes)))
        return false;
    memcpy(&old, block, sizeof old);
    if (old)
        memcpy(more, old, *room * size);
    gsi_free(heap, old);
    memcpy(block, &more, sizeof more);
    *room = next;
    return true;
}

enum { BUFFER = 1 << 16 };

gs_status gsi_lines_open(gsi_lines *lines, const char *path, const gs_alloc *alloc, gs_error *error)
{
    *lines = (gsi_lines){.fd = -1};
    gsi_heap_init(&lines->heap, alloc);
    lines->path = gsi_copy_text(&lines->heap, path, strlen(path));
    lines->buffer = lines->path ? gsi_new(&lines->heap, BUFFER) : NULL;
    if (!lines->buffer) {
        gsi_lines_close(lines);
        return gsi_fail(error, GS_ENOMEM, "%s: out of memory", path);
    }
    lines->fd = strcmp(path, "-") == 0 ? STDIN_FILENO : gsi_open(path, O_RDONLY | O_CLOEXEC);
    if (lines->fd < 0) {
        const int why = errno;
        gsi_lines_close(lines);
        return gsi_fail(error, GS_EIO, "%s: cannot be opened: %s", path, strerror(why));
    }
    return GS_OK;
}

void gsi_lines_close(gsi_lines *lines)
{
    if (lines->fd > STDIN_FILENO)
        close(lines->fd);
    gsi_free(&lines->heap, lines->text);
    gsi_free(&lines->heap, lines->buffer);
    gsi_free(&lines->heap, lines->path);
    lines->fd = -1;
    lines->text = lines->buffer = lines->path = NULL;
}

/* What the buffer has up to a newline, or to its end; *n is 0 at the end of the file. */
static gs_status next_piece(gsi_lines *l, const char **piece, size_t *n, gs_error *error)
{
    if (l->at == l->filled) {
        const ssize_t got = gsi_read(l->fd, l->buffer, BUFFER);
        l->at = 0;
        l->filled = got > 0 ? (size_t)got : 0;
        l->bytes += l->filled;
        if (got < 0)
            return gsi_fail(error, GS_EIO, "%.100s: cannot be read: %s", l->path, strerror(errno));
    }
    *piece = l->buffer + l->at;
    const char *newline = l->at < l->filled ? memchr(*piece, '\n', l->filled - l->at) : NULL;
    *n = newline ? (size_t)(newline + 1 - *piece) : l->filled - l->at;
    l->at += *n;
    l->is_whole = newline != NULL;
    return GS_OK;
}

/* Passes over the rest of a line that was too long. */
static gs_status pass_rest(gsi_lines *l, gs_error *error)
{
    const char *piece;
    size_t n = 1;
    for (size_t passed = 0; l->is_long; passed += n) {
        if (passed > GSI_LINE_MAX)
            return gsi_lines_fail(l, error, GS_ESIZE, "the line is longer than %d bytes",
                                  GSI_LINE_MAX);
        const gs_status status = next_piece(l, &piece, &n, error);
        if (status != GS_OK)
            return status;
        l->is_long = n > 0 && !l->is_whole;
    }
    return GS_OK;
}

static gs_status check_text(const gsi_lines *l, gs_error *error)
{
    for (size_t i = 0; i < l->length; i++) {
        const unsigned char c = (unsigned char)l->text[i];
        if ((c < ' ' && c != '\t' && c != '\r') || c == 0x7F)
            return gsi_lines_fail(l, error, GS_EFORMAT,
                                  "byte 0x%02x in it: this is not a text file", c);
    }
    return GS_OK;
}

gs_status gsi_lines_next(gsi_lines *l, bool *more, gs_error *error)
{
    const char *piece;
    size_t n = 1;
    *more = true;
    gs_status status = pass_rest(l, error);
    if (status != GS_OK)
        return status;
    l->length = 0;
    l->number++;
    l->is_whole = false;
    while (n > 0 && !l->is_whole) {
        status = next_piece(l, &piece, &n, error);
        if (status != GS_OK)
            return status;
        const size_t length = n - l->is_whole;
        if (length > GSI_LINE_MAX - l->length) {
            l->is_long = !l->is_whole;
            return gsi_lines_fail(l, error, GS_ESIZE, "the line is longer than %d bytes",
                                  GSI_LINE_MAX);
        }
        if (!gsi_grow(&l->heap, &l->text, &l->room, l->length + length + 1, 1))
            return gsi_lines_fail(l, error, GS_ENOMEM, "out of memory");
        memcpy(l->text + l->length, piece, length);
        l->length += length;
    }
    *more = l->is_whole || l->length > 0;
    while (l->length > 0 && strchr(" \t\r", l->text[l->length - 1]) && l->text[l->length - 1])
        l->length--;
    l->text[l->length] = 0;
    return check_text(l, error);
}

gs_status gsi_lines_fail(const gsi_lines *lines, gs_error *error, gs_status status,
                         const char *format, ...)
{
    if (error) {
        char why[200];
        va_list args;
        va_start(args, format);
        vsnprintf(why, sizeof why, format, args);
        va_end(args);
        gsi_fail(error, status, "%.*s:%llu: %s", 100, lines->path,
                 (unsigned long long)lines->number, why);
    }
    return status;
}
