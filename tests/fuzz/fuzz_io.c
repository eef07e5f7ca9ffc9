/* Any bytes as a file: refused, or read to the end. Needs clang and Linux:
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc tests/fuzz/fuzz_io.c \
 *         src/base/[ahs]*.c src/num/num.c src/io/[!.]*.c -lz -ljansson -o fuzz_io
 *     ./fuzz_io -max_len=4096 -max_total_time=300 CORPUS tests/data */
#define _GNU_SOURCE
#include "gradscale/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PIECE = 64, MOST = 1 << 24 }; /* a small file that asks for more than 16 MB has won */

static void *limited(void *user, void *block, size_t old_size, size_t size)
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (pwrite(fd, data, n, 0) != (ssize_t)n || ftruncate(fd, (off_t)n) != 0)
        abort();
    const gs_alloc alloc = {limited, NULL};
    gs_error error = {0};
    gs_source *s;
    if (gs_source_open(&s, path, &alloc, &error) != GS_OK) {
        if (s || !error.text[0])
            abort();
        return 0;
    }
    for (size_t t = 0; t < gs_source_count(s); t++) {
        const gs_entry *e = gs_source_entry(s, t);
        double buffer[PIECE];
        gs_status status = GS_OK;
        uint64_t at = 0;
        /* a deflated member may unpack to a thousand times the file: its start is enough */
        while (gs_entry_readable(e) && status == GS_OK && at < e->count && at < 100 * PIECE) {
            const size_t count = e->count - at < PIECE ? (size_t)(e->count - at) : PIECE;
            status = gs_source_read(s, t, at, count, buffer, &error);
            at += count;
        }
        if (e->bytes > 1100 * n + 1100 && gs_entry_readable(e))
            abort(); /* more than deflate could make of the file */
    }
    gs_source_close(s);
    return 0;
}
