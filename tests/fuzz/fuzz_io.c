/* Any bytes as a file of tensors (npy, npz, safetensors): refused, or read to the end. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "gradscale/io.h"

#include <string.h>

enum { PIECE = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *const path = file_of(data, n);
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
            status = gs_source_read(buffer, s, t, at, count, &error);
            at += count;
        }
        if (e->bytes > 1100 * n + 1100 && gs_entry_readable(e))
            abort(); /* more than deflate could make of the file */
    }
    gs_source_close(s);
    return 0;
}
