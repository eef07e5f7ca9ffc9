/* array_files.h: arrays of NumPy, alone and in archives, as NumPy writes them. */
#ifndef ARRAY_FILES_H
#define ARRAY_FILES_H

#include "data_files.h"

#include <stdio.h>
#include <zlib.h>

static inline size_t npy(uint8_t *to, const char *type, const char *shape, const void *data,
                         size_t n)
{
    char header[128];
    snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type,
             shape);
    memcpy(to, "\x93NUMPY\1\0", 8);
    to[8] = (uint8_t)strlen(header);
    to[9] = 0;
    memcpy(to + 10, header, strlen(header));
    memcpy(to + 10 + strlen(header), data, n);
    return 10 + strlen(header) + n;
}

static inline size_t little(uint8_t *to, uint32_t x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(x >> 8 * i);
    return n;
}

/* A zip of stored members, as numpy.savez writes it. */
typedef struct zip {
    uint8_t bytes[8192], directory[1024];
    size_t n, listed, members;
} zip;

static inline void zip_add(zip *z, const char *name, const uint8_t *content, size_t n)
{
    const uint32_t crc = (uint32_t)crc32(0, content, (uInt)n), at = (uint32_t)z->n;
    uint8_t common[26], *to = z->directory + z->listed;
    size_t k = little(common, 20, 2);
    k += little(common + k, 0, 4); /* flags, stored */
    k += little(common + k, 0x210000, 4);
    k += little(common + k, crc, 4);
    k += little(common + k, (uint32_t)n, 4);
    k += little(common + k, (uint32_t)n, 4);
    k += little(common + k, (uint32_t)strlen(name), 4); /* no extra field */
    z->n += little(z->bytes + z->n, 0x04034B50, 4);
    memcpy(z->bytes + z->n, common, k);
    memcpy(z->bytes + z->n + k, name, strlen(name));
    z->n += k + strlen(name);
    memcpy(z->bytes + z->n, content, n);
    z->n += n;
    to += little(to, 0x02014B50, 4);
    to += little(to, 20, 2);
    memcpy(to, common, k);
    memset(to + k, 0, 10);
    to += k + 10;
    to += little(to, at, 4);
    memcpy(to, name, strlen(name));
    z->listed = (size_t)(to - z->directory) + strlen(name);
    z->members++;
}

static inline void zip_write(zip *z, const char *name)
{
    const uint32_t at = (uint32_t)z->n, members = (uint32_t)z->members;
    memcpy(z->bytes + z->n, z->directory, z->listed);
    z->n += z->listed;
    z->n += little(z->bytes + z->n, 0x06054B50, 4);
    z->n += little(z->bytes + z->n, 0, 4);
    z->n += little(z->bytes + z->n, members, 2);
    z->n += little(z->bytes + z->n, members, 2);
    z->n += little(z->bytes + z->n, (uint32_t)z->listed, 4);
    z->n += little(z->bytes + z->n, at, 4);
    z->n += little(z->bytes + z->n, 0, 2);
    write_file(name, z->bytes, z->n);
}

#endif
