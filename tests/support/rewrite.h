/* rewrite.h: checkpoints that lie, with a right checksum, so that only their reader can see it. */
#ifndef REWRITE_H
#define REWRITE_H

#include "job.h"

#include "io/write.h"

static inline uint64_t hash_of(const void *data, size_t n)
{
    gsi_hash hash;
    gsi_hash_init(&hash);
    gsi_hash_add(&hash, data, n);
    return gsi_hash_end(&hash);
}

/* The file with one text in its header changed, its length and its checksum made right again. */
static inline void rewrite(const char *path, const char *from, const char *to)
{
    content b = read_bytes(path);
    char *place = NULL;
    for (size_t i = 0; i + strlen(from) < b.n && !place; i++)
        place = memcmp(b.data + i, from, strlen(from)) == 0 ? (char *)b.data + i : NULL;
    CHECK_MSG(place, "%s is not in the file", from);
    if (place) {
        const size_t at = (size_t)(place - (char *)b.data), n = b.n - strlen(from) + strlen(to);
        unsigned char *out = malloc(n);
        uint64_t length;
        memcpy(out, b.data, at);
        memcpy(out + at, to, strlen(to));
        memcpy(out + at + strlen(to), b.data + at + strlen(from), b.n - at - strlen(from));
        memcpy(&length, out, sizeof length);
        length += strlen(to) - strlen(from);
        memcpy(out, &length, sizeof length);
        const uint64_t hash = hash_of(out, n - 8);
        memcpy(out + n - 8, &hash, sizeof hash);
        write_bytes(path, out, n);
        free(out);
    }
    free(b.data);
}

#endif
