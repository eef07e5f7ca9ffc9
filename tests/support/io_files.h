/* io_files.h: files of tensors made byte by byte, with every field open to lies. */
#ifndef IO_FILES_H
#define IO_FILES_H

#include "bytes.h"

#include <stdbool.h>
#include <zlib.h>

/* header and then `data` bytes that count up */
static inline bytes *safetensors(bytes *b, const char *header, size_t data)
{
    b->n = 0;
    add_little(b, strlen(header), 8);
    add_text(b, header);
    for (size_t i = 0; i < data; i++)
        add_little(b, i, 1);
    return b;
}

static inline bytes *npy(bytes *b, int major, const char *dictionary, size_t data)
{
    b->n = 0;
    add_text(b, "\x93NUMPY");
    add_little(b, (uint64_t)major, 1);
    add_little(b, 0, 1);
    add_little(b, strlen(dictionary), major == 1 ? 2 : 4);
    add_text(b, dictionary);
    for (size_t i = 0; i < data; i++)
        add_little(b, i, 1);
    return b;
}

/* ---- zip files, with every field open to lies ---- */

typedef struct member {
    const char *name;
    const uint8_t *data;
    size_t n;
    int method;
    unsigned flags;
    uint64_t crc_xor, packed_add, unpacked_add, local_add; /* lies */
    bool zip64;
    const uint8_t *packed; /* NULL, or n_packed bytes that stand for the packed data */
    size_t n_packed;
} member;

static inline member member_of(const char *name, const void *data, size_t n, int method)
{
    return (member){.name = name, .data = data, .n = n, .method = method};
}

static inline void add_member(bytes *zip, bytes *directory, const member *m)
{
    uint8_t room[4096];
    const uint8_t *packed = room;
    size_t np = m->n;
    if (m->packed) {
        packed = m->packed;
        np = m->n_packed;
    } else if (m->method == 8) {
        z_stream z = {0};
        deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
        z.next_in = (uint8_t *)(uintptr_t)m->data;
        z.avail_in = (unsigned)m->n;
        z.next_out = room;
        z.avail_out = sizeof room;
        if (deflate(&z, Z_FINISH) != Z_STREAM_END)
            abort();
        np = sizeof room - z.avail_out;
        deflateEnd(&z);
    } else {
        packed = m->data;
    }
    const uint64_t local = zip->n + m->local_add, un = m->n + m->unpacked_add;
    const uint64_t pa = np + m->packed_add;
    const uint64_t crc = (crc32(0, m->data, (unsigned)m->n) ^ m->crc_xor) & 0xFFFFFFFF;
    add_text(zip, "PK\3\4");
    add_little(zip, 20, 2);
    add_little(zip, m->flags, 2);
    add_little(zip, (uint64_t)m->method, 2);
    add_little(zip, 0, 4);
    add_little(zip, crc, 4);
    add_little(zip, pa, 4);
    add_little(zip, un, 4);
    add_little(zip, strlen(m->name), 2);
    add_little(zip, 0, 2);
    add_text(zip, m->name);
    add(zip, packed, np);

    add_text(directory, "PK\1\2");
    add_little(directory, 0x14, 4);
    add_little(directory, m->flags, 2);
    add_little(directory, (uint64_t)m->method, 2);
    add_little(directory, 0, 4);
    add_little(directory, crc, 4);
    add_little(directory, m->zip64 ? UINT32_MAX : pa, 4);
    add_little(directory, m->zip64 ? UINT32_MAX : un, 4);
    add_little(directory, strlen(m->name), 2);
    add_little(directory, m->zip64 ? 28 : 0, 2);
    add_little(directory, 0, 10);
    add_little(directory, m->zip64 ? UINT32_MAX : local, 4);
    add_text(directory, m->name);
    if (m->zip64) {
        add_little(directory, 1, 2);
        add_little(directory, 24, 2);
        add_little(directory, un, 8);
        add_little(directory, pa, 8);
        add_little(directory, local, 8);
    }
}

static inline bytes *zip_of(bytes *zip, const member *members, size_t n)
{
    static bytes directory;
    bool zip64 = false;
    zip->n = directory.n = 0;
    for (size_t i = 0; i < n; i++) {
        add_member(zip, &directory, &members[i]);
        zip64 |= members[i].zip64;
    }
    const uint64_t start = zip->n;
    add(zip, directory.data, directory.n);
    if (zip64) {
        const uint64_t at = zip->n;
        add_text(zip, "PK\6\6");
        add_little(zip, 44, 8);
        add_little(zip, 45 | 45 << 16, 4);
        add_little(zip, 0, 8);
        add_little(zip, n, 8);
        add_little(zip, n, 8);
        add_little(zip, directory.n, 8);
        add_little(zip, start, 8);
        add_text(zip, "PK\6\7");
        add_little(zip, 0, 4);
        add_little(zip, at, 8);
        add_little(zip, 1, 4);
    }
    add_text(zip, "PK\5\6");
    add_little(zip, 0, 4);
    add_little(zip, zip64 ? 0xFFFF : n, 2);
    add_little(zip, zip64 ? 0xFFFF : n, 2);
    add_little(zip, zip64 ? UINT32_MAX : directory.n, 4);
    add_little(zip, zip64 ? UINT32_MAX : start, 4);
    add_little(zip, 0, 2);
    return zip;
}

#endif
