/* Any bytes as JSON: what our reader accepts and refuses is what jansson does. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "io/json.h"

#include <jansson.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    gsi_heap heap;
    gsi_arena arena;
    const gs_alloc alloc = {limited, NULL};
    const gsi_node *root;
    const char *wrong;
    json_error_t why;
    if (memchr(data, 0, n)) /* jansson takes one behind a number for the end */
        return 0;
    gsi_heap_init(&heap, &alloc);
    gsi_arena_init(&arena, &heap);
    gsi_json j = gsi_json_of((const char *)data, n);
    const gs_status status = gsi_json_tree(&root, &j, &arena, &wrong);
    json_t *theirs =
        json_loadb((const char *)data, n,
                   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &why);
    const int limits = wrong && (strstr(wrong, "too deep") || strstr(wrong, "too long"));
    if ((status == GS_OK) != (theirs != NULL) && !limits)
        abort();
    json_decref(theirs);
    gsi_arena_free(&arena);
    return 0;
}
