/* Any bytes as a log, own or foreign: each line is read or refused, to the end of the file. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "gradscale/log.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const keys[] = {"step", "loss", "scale", "event", "config", "layers"};
    const gs_alloc alloc = {limited, NULL};
    gs_error error = {0};
    gs_log_file *file;
    gs_log_line line;
    int more = 1;
    if (gs_log_open(&file, file_of(data, n), &alloc, &error) != GS_OK)
        abort();
    for (size_t lines = 0; more && lines <= n + 1; lines++) {
        const gs_status status = gs_log_next(&line, &more, file, &error);
        if (status == GS_OK && more)
            for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
                gs_log_has(file, keys[i], &error);
        else if (status != GS_OK && !error.text[0])
            abort();
    }
    if (more)
        abort(); /* it does not end */
    gs_log_close(file);
    return 0;
}
