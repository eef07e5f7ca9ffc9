/* Every recording in tests/traces, written again, byte for byte; and files that lie. */
#include "test.h"

#include "memory.h"

#include "gradscale/trace.h"

#include <dirent.h>
#include <unistd.h>
#include <math.h>
#include <stdbool.h>

#ifndef TRACES
#define TRACES "tests/traces"
#endif

static char *read_all(FILE *file, size_t *length)
{
    size_t room = 1 << 16, n = 0, got;
    char *text = malloc(room);
    while ((got = fread(text + n, 1, room - n, file)) > 0)
        if ((n += got) == room)
            text = realloc(text, room *= 2);
    *length = n;
    return text;
}

static void test_recordings(void)
{
    DIR *dir = opendir(TRACES);
    CHECK(dir != NULL);
    size_t files = 0, traces = 0;
    uint64_t steps = 0;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!strstr(e->d_name, ".trace"))
            continue;
        char path[512];
        snprintf(path, sizeof path, "%s/%s", TRACES, e->d_name);
        gs_error error = {0};
        gs_trace_file *file;
        const gs_trace *trace;
        CHECK(gs_trace_open(&file, path, NULL, &error) == GS_OK);
        FILE *again = tmpfile();
        int first = 1;
        for (;;) {
            const gs_status status = gs_trace_next(&trace, file, &error);
            CHECK_MSG(status == GS_OK, "%s", error.text);
            if (status != GS_OK || !trace)
                break;
            if (!first)
                fputc('\n', again);
            first = 0;
            CHECK(gs_trace_write(again, trace, NULL) == GS_OK);
            int same;
            CHECK(gs_trace_compare(&same, trace, &error) == GS_OK);
            CHECK_MSG(same, "%s", error.text);
            traces++;
            steps += trace->steps;
        }
        gs_trace_close(file);
        files++;

        FILE *original = fopen(path, "r");
        rewind(again);
        size_t na, nb;
        char *a = read_all(original, &na), *b = read_all(again, &nb);
        CHECK_MSG(na == nb && memcmp(a, b, na) == 0, "%s", path);
        free(a);
        free(b);
        fclose(original);
        fclose(again);
    }
    closedir(dir);
    CHECK(files > 0 && gs_preset_name(files - 1) && !gs_preset_name(files)); /* one per preset */
    CHECK_MSG(traces == 417 && steps == 190543, "%zu traces, %llu steps", traces,
              (unsigned long long)steps); /* as doc/scaler.md says */
}

/* presets.txt and the table say the same. */
static void test_presets_file(void)
{
    FILE *file = fopen(TRACES "/presets.txt", "r");
    CHECK(file != NULL);
    char line[1024];
    size_t presets = 0;
    while (file && fgets(line, sizeof line, file)) {
        char *rest = strchr(line, ' ');
        gs_params a, b;
        if (line[0] == '#' || !rest)
            continue;
        *rest++ = 0;
        gs_params_default(&a);
        gs_params_default(&b);
        CHECK(gs_params_set(&a, rest, NULL) == GS_OK);
        if (strcmp(line, "defaults") != 0) {
            CHECK(gs_params_preset(&b, line, NULL) == GS_OK);
            CHECK(gs_preset_name(presets) && strcmp(gs_preset_name(presets), line) == 0);
            presets++;
        }
        for (size_t i = 0; gs_param_key(i); i++) {
            char va[64], vb[64];
            CHECK(gs_params_get(va, sizeof va, &a, gs_param_key(i), NULL) == GS_OK);
            CHECK(gs_params_get(vb, sizeof vb, &b, gs_param_key(i), NULL) == GS_OK);
            CHECK_MSG(strcmp(va, vb) == 0, "%s: %s %s %s", line, gs_param_key(i), va, vb);
        }
    }
    if (file)
        fclose(file);
    CHECK(presets > 0 && gs_preset_name(presets) == NULL);
}

/* Reads a whole file; the first error, or GS_OK. */
static gs_status read_file(const char *path, const gs_alloc *alloc)
{
    gs_error error = {0};
    gs_trace_file *file;
    const gs_trace *trace;
    gs_status status = gs_trace_open(&file, path, alloc, &error);
    do
        status = status == GS_OK ? gs_trace_next(&trace, file, &error) : status;
    while (status == GS_OK && trace);
    gs_trace_close(file);
    CHECK(status == GS_OK || (error.status == status && strstr(error.text, "out of memory")));
    return status;
}

/* Every allocation fails once: NOMEM with an error message, and nothing is left. */
static void test_no_memory(void)
{
    size_t k = 1;
    for (;; k++) {
        books b = {.fail_at = k};
        const gs_alloc hook = books_hook(&b);
        const gs_status status = read_file(TRACES "/deepspeed-fused.trace", &hook);
        CHECK(b.blocks == 0 && b.bytes == 0 && !b.wrong);
        CHECK(status == (b.calls < k ? GS_OK : GS_ENOMEM));
        if (b.calls < k || k > 1000)
            break;
    }
    CHECK_MSG(k > 4, "%zu", k);
}

TESTS({"no_memory", test_no_memory}, {"recordings", test_recordings},
      {"presets_file", test_presets_file})
