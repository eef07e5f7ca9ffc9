/* (1) Unpacking goes through a window of fixed size: what a file unpacks to costs time, and memory
 *     only where the caller gives it.
 * (2) The end is believed only where the file ends with the last packed member, whose length and
 *     checksum fit. Bytes after it, and a member cut short, are errors. */
#include "io/stream.h"

#include <zlib.h>

enum { PIECE = 1 << 16 };

struct gsi_stream {
    gsi_heap *heap;
    gsi_file file;
    uint64_t at; /* bytes of the file consumed */
    bool packed;
    bool between; /* no member is being unpacked */
    z_stream z;
    uint8_t piece[PIECE]; /* packed bytes, or what is measured */
};

static void *z_alloc(void *heap, unsigned n, unsigned size)
{
    return gsi_new(heap, (size_t)n * size); /* its state, or a window of 2^15 bytes */
}

static void z_free(void *heap, void *block) { gsi_free(heap, block); }

static gs_status no_memory(const gsi_stream *s, gs_error *error)
{
    return gsi_file_fail(&s->file, error, GS_ENOMEM, "there is no memory to read it");
}

static gs_status begin(gsi_stream *s, gs_error *error)
{
    uint8_t magic[2] = {0, 0};
    if (s->file.size >= sizeof magic) {
        const gs_status status = gsi_file_read(&s->file, magic, sizeof magic, 0, error);
        if (status != GS_OK)
            return status;
    }
    if (magic[0] != 0x1F || magic[1] != 0x8B)
        return GS_OK;
    s->z = (z_stream){.zalloc = z_alloc, .zfree = z_free, .opaque = s->heap};
    if (inflateInit2(&s->z, 16 + MAX_WBITS) != Z_OK) /* 16: gzip's wrapping, and no other */
        return no_memory(s, error);
    s->packed = s->between = true;
    return GS_OK;
}

gs_status gsi_stream_open(gsi_stream **out, const char *path, gsi_heap *heap, gs_error *error)
{
    *out = NULL;
    gsi_file file;
    gs_status status = gsi_file_open(&file, path, error);
    if (status != GS_OK)
        return status;
    gsi_stream *s = gsi_new(heap, sizeof *s);
    if (!s) {
        status = gsi_file_fail(&file, error, GS_ENOMEM, "there is no memory to read it");
        gsi_file_close(&file);
        return status;
    }
    s->heap = heap;
    s->file = file;
    s->at = 0;
    s->packed = s->between = false;
    status = begin(s, error);
    if (status == GS_OK)
        *out = s;
    else
        gsi_stream_close(s);
    return status;
}

void gsi_stream_close(gsi_stream *s)
{
    if (!s)
        return;
    if (s->packed)
        inflateEnd(&s->z);
    gsi_file_close(&s->file);
    gsi_free(s->heap, s);
}

void gsi_stream_rewind(gsi_stream *s)
{
    s->at = 0;
    if (s->packed) {
        inflateReset(&s->z);
        s->z.avail_in = 0;
        s->between = true;
    }
}

const gsi_file *gsi_stream_file(const gsi_stream *s) { return &s->file; }

/* The next piece of the file into s->piece, if there is none and the file has more. */
static gs_status feed(gsi_stream *s, gs_error *error)
{
    const uint64_t left = s->file.size - s->at;
    const size_t n = left < PIECE ? (size_t)left : PIECE;
    if (s->z.avail_in > 0 || n == 0)
        return GS_OK;
    const gs_status status = gsi_file_read(&s->file, s->piece, n, s->at, error);
    if (status != GS_OK)
        return status;
    s->at += n;
    s->z.next_in = s->piece;
    s->z.avail_in = (unsigned)n;
    return GS_OK;
}

static gs_status damaged(const gsi_stream *s, gs_error *error)
{
    return gsi_file_fail(&s->file, error, GS_EFORMAT,
                         "what gzip packed is damaged before byte %llu",
                         (unsigned long long)(s->at - s->z.avail_in));
}

/* At least one byte, unless the end is reached. */
static gs_status inflate_some(gsi_stream *s, void *dst, size_t n, size_t *got, gs_error *error)
{
    const unsigned room = n < PIECE ? (unsigned)n : PIECE;
    s->z.next_out = dst;
    s->z.avail_out = room;
    while (s->z.avail_out == room) {
        const gs_status status = feed(s, error);
        if (status != GS_OK)
            return status;
        if (s->z.avail_in == 0 && s->between)
            break;
        if (s->z.avail_in == 0)
            return gsi_file_fail(&s->file, error, GS_EFORMAT,
                                 "is cut short: it ends inside of what gzip packed");
        s->between = false;
        const int result = inflate(&s->z, Z_NO_FLUSH);
        if (result == Z_MEM_ERROR)
            return no_memory(s, error);
        if (result == Z_STREAM_END) {
            inflateReset(&s->z); /* files of several members are legal, and made by cat */
            s->between = true;
        } else if (result != Z_OK && result != Z_BUF_ERROR) {
            return damaged(s, error);
        }
    }
    *got = room - s->z.avail_out;
    return GS_OK;
}

gs_status gsi_stream_some(gsi_stream *s, void *dst, size_t n, size_t *got, gs_error *error)
{
    *got = 0;
    if (!s->packed) {
        const uint64_t left = s->file.size - s->at;
        *got = n < left ? n : (size_t)left;
        s->at += *got;
        return gsi_file_read(&s->file, dst, *got, s->at - *got, error);
    }
    for (size_t made = 1; made > 0 && *got < n; *got += made) {
        const gs_status status = inflate_some(s, (char *)dst + *got, n - *got, &made, error);
        if (status != GS_OK)
            return status;
    }
    return GS_OK;
}

gs_status gsi_stream_read(gsi_stream *s, void *dst, size_t n, gs_error *error)
{
    size_t got;
    const gs_status status = gsi_stream_some(s, dst, n, &got, error);
    if (status == GS_OK && got < n)
        return gsi_file_fail(&s->file, error, GS_EFORMAT, "is cut short: %zu bytes are missing",
                             n - got);
    return status;
}

gs_status gsi_stream_measure(gsi_stream *s, uint64_t most, uint64_t *size, gs_error *error)
{
    uint8_t nowhere[PIECE / 4];
    size_t got = 1;
    *size = 0;
    if (!s->packed) {
        *size = s->file.size - s->at;
        return GS_OK;
    }
    while (got > 0 && *size <= most) {
        const gs_status status = gsi_stream_some(s, nowhere, sizeof nowhere, &got, error);
        if (status != GS_OK)
            return status;
        *size += got;
    }
    return GS_OK;
}
