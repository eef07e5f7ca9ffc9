/* Compiled kernels on disk. A file is a header (magic, hash of the key, length, hash of the data)
 * and the data. Its name is the hash of the key; nothing that is read decides what is written. A
 * file is replaced by rename, so that two programs that compile at once leave a whole one. */
#include "device/device.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 64 << 20 }; /* bytes: no kernels are larger */

typedef struct header {
    char magic[8];
    uint64_t key, bytes, data;
} header;

uint64_t gsi_cache_hash(const void *data, size_t bytes)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001B3);
    return h;
}

static bool path_of(char *path, size_t size, const char *folder, const char *key, const char *end)
{
    const int n = snprintf(path, size, "%s/gradscale-%016llx.bin%s", folder,
                           (unsigned long long)gsi_cache_hash(key, strlen(key)), end);
    return n > 0 && (size_t)n < size;
}

/* What is in it is run: it must be ours, and no one else's to write. */
static FILE *open_own(const char *path)
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    const bool own = fd >= 0 && fstat(fd, &about) == 0 && S_ISREG(about.st_mode) &&
                     about.st_uid == geteuid() && (about.st_mode & (S_IWGRP | S_IWOTH)) == 0;
    FILE *f = own ? fdopen(fd, "rb") : NULL;
    if (fd >= 0 && !f)
        close(fd);
    return f;
}

char *gsi_cache_load(gs_device *d, const char *folder, const char *key, size_t *bytes)
{
    char path[4096];
    header h;
    if (!folder || !path_of(path, sizeof path, folder, key, ""))
        return NULL;
    FILE *f = open_own(path);
    if (!f)
        return NULL;
    char *data = NULL;
    if (fread(&h, sizeof h, 1, f) == 1 && memcmp(h.magic, "gsdcache", 8) == 0 &&
        h.key == gsi_cache_hash(key, strlen(key)) && h.bytes > 0 && h.bytes <= MOST)
        data = gsi_device_new(d, (size_t)h.bytes + 1);
    if (data && (fread(data, 1, (size_t)h.bytes, f) != h.bytes || getc(f) != EOF ||
                 gsi_cache_hash(data, (size_t)h.bytes) != h.data)) {
        gsi_free(&d->heap, data);
        data = NULL;
    }
    fclose(f);
    if (data)
        *bytes = (size_t)h.bytes;
    return data;
}

void gsi_cache_store(const char *folder, const char *key, const void *data, size_t bytes)
{
    char path[4096], temporary[4096], end[32];
    header h = {"", gsi_cache_hash(key, strlen(key)), bytes, gsi_cache_hash(data, bytes)};
    snprintf(end, sizeof end, ".%ld.tmp", (long)getpid());
    if (!folder || bytes == 0 || bytes > MOST || !path_of(path, sizeof path, folder, key, "") ||
        !path_of(temporary, sizeof temporary, folder, key, end))
        return;
    memcpy(h.magic, "gsdcache", 8);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (!f) {
        if (fd >= 0)
            close(fd);
        return;
    }
    const bool written = fwrite(&h, sizeof h, 1, f) == 1 && fwrite(data, 1, bytes, f) == bytes;
    if (fclose(f) != 0 || !written || rename(temporary, path) != 0)
        remove(temporary);
}
