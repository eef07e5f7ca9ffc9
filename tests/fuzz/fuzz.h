/* fuzz.h: what the targets share: a file in memory, and an allocator that catches greed.
 *
 *     make fuzz [SECONDS=10]      every target so long, with ASan and UBSan; clang and Linux
 *     make fuzz ONLY=fuzz_log     one of them
 *
 * A target is fuzz_NAME.c. It begins with corpus/NAME and what tests/fuzz/run.sh adds to it; what
 * it finds new stays in build-.../fuzz/corpus. */
#ifndef FUZZ_H
#define FUZZ_H

#include "gradscale/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 1 << 24 }; /* a small file that asks for more than 16 MB has won */

static inline void *limited(void *user, void *block, size_t old_size, size_t size)
{
    (void)user;
    (void)old_size;
    if (size > MOST)
        abort();
    if (size == 0) {
        free(block);
        return NULL;
    }
    return realloc(block, size);
}

/* The path of a file with these bytes, until the next call. */
static inline const char *file_of(const uint8_t *data, size_t n)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (pwrite(fd, data, n, 0) != (ssize_t)n || ftruncate(fd, (off_t)n) != 0)
        abort();
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#endif
