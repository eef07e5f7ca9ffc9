#include "io/lines.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

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

gs_status gsi_lines_open(gsi_lines *lines, const char *path, const gs_alloc *alloc, gs_error *error)
{
    *lines = (gsi_lines){0};
    gsi_heap_init(&lines->heap, alloc);
    lines->path = gsi_copy_text(&lines->heap, path, strlen(path));
    if (!lines->path)
        return gsi_fail(error, GS_ENOMEM, "%s: out of memory", path);
    lines->file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!lines->file) {
        const int why = errno;
        gsi_lines_close(lines);
        return gsi_fail(error, GS_EIO, "%s: %s", path, strerror(why));
    }
    return GS_OK;
}

void gsi_lines_close(gsi_lines *lines)
{
    if (lines->file && lines->file != stdin)
        fclose(lines->file);
    gsi_free(&lines->heap, lines->text);
    gsi_free(&lines->heap, lines->path);
    lines->file = NULL;
    lines->text = lines->path = NULL;
}

gs_status gsi_lines_next(gsi_lines *lines, bool *more, gs_error *error)
{
    int c;
    lines->length = 0;
    lines->number++;
    while ((c = getc(lines->file)) != EOF && c != '\n') {
        if (lines->length >= GSI_LINE_MAX)
            return gsi_lines_fail(lines, error, GS_ESIZE, "the line is longer than %d bytes",
                                  GSI_LINE_MAX);
        if ((c < ' ' && c != '\t' && c != '\r') || c == 0x7F)
            return gsi_lines_fail(lines, error, GS_EFORMAT,
                                  "byte 0x%02x in it: this is not a text file", c);
        if (!gsi_grow(&lines->heap, &lines->text, &lines->room, lines->length + 2, 1))
            return gsi_lines_fail(lines, error, GS_ENOMEM, "out of memory");
        lines->text[lines->length++] = (char)c;
    }
    if (ferror(lines->file))
        return gsi_lines_fail(lines, error, GS_EIO, "cannot be read: %s", strerror(errno));
    *more = c != EOF || lines->length > 0;
    if (!gsi_grow(&lines->heap, &lines->text, &lines->room, lines->length + 2, 1))
        return gsi_lines_fail(lines, error, GS_ENOMEM, "out of memory");
    while (lines->length > 0 && strchr(" \t\r", lines->text[lines->length - 1]))
        lines->length--;
    lines->text[lines->length] = 0;
    return GS_OK;
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
