/* Any bytes as a log, own or foreign: each line is read or refused, to the end of the file. And as
 * the old log of a run that goes on: refused as a whole, or no line of it is lost. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "gradscale/log.h"

#include <stdbool.h>
#include <string.h>

static void go_on(const uint8_t *data, size_t n, bool csv)
{
    static uint8_t now[1 << 17];
    const gs_alloc alloc = {limited, NULL};
    const char *path = file_of(data, n);
    const gs_logger_config config = {.size = sizeof config,
                                     .json = csv ? NULL : path,
                                     .csv = csv ? path : NULL,
                                     .resume = 1,
                                     .step = UINT64_MAX};
    gs_error error = {0};
    gs_logger *log;
    const gs_status status = gs_logger_open(&log, &config, &alloc, &error);
    gs_logger_close(log);
    FILE *f = fopen(path, "rb");
    const size_t length = f ? fread(now, 1, sizeof now, f) : 0;
    if (!f || fclose(f) != 0 || (status != GS_OK && (length != n || !error.text[0])))
        abort();
    size_t whole = n;
    while (status == GS_OK && whole > 0 && data[whole - 1] != '\n')
        whole--;
    if (length < whole || (whole > 0 && memcmp(now, data, whole) != 0))
        abort();
}

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
    go_on(data, n, false);
    go_on(data, n, true);
    return 0;
}
