/* Any bytes as a trace: refused, or every trace in it can be run and compared. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "gradscale/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const gs_alloc alloc = {limited, NULL};
    gs_error error = {0};
    gs_trace_file *file;
    const gs_trace *trace;
    int same;
    if (gs_trace_open(&file, file_of(data, n), &alloc, &error) != GS_OK)
        return 0;
    while (gs_trace_next(&trace, file, &error) == GS_OK && trace)
        gs_trace_compare(&same, trace, &error);
    gs_trace_close(file);
    return 0;
}
