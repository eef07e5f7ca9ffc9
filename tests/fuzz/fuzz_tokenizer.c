/* Any bytes as a tokenizer, and as a text for it: refused, or its tokens give the text back and
 * what is written of it reads back to the same. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "gradscale/tokenizer.h"

#include <string.h>

static char *text_of(const gs_tokenizer *t, size_t *n)
{
    gs_tokenizer_text(NULL, 0, n, t, GS_TOKENIZER_JSON, NULL);
    char *text = malloc(*n + 1);
    if (!text || gs_tokenizer_text(text, *n + 1, NULL, t, GS_TOKENIZER_JSON, NULL) != GS_OK)
        abort();
    return text;
}

/* What the tokens stand for; longer than the text where a blank comes before it, shorter where
 * white space is stripped. */
static void check_text(gs_tokenizer *t, const char *text, size_t n)
{
    const size_t room = 2 * n + 1;
    int32_t *ids = malloc(room * sizeof *ids);
    size_t count, length;
    if (ids && gs_tokenizer_encode(ids, room, &count, t, text, n, NULL) == GS_OK) {
        if (count > room)
            abort();
        for (size_t i = 0; i < count; i++)
            if (!gs_tokenizer_token(t, ids[i], &length))
                abort();
    }
    free(ids);
}

/* Of a tokenizer that learned from them, all bytes come back. */
static void check_trained(const char *text, size_t n)
{
    const gs_tokenizer_config config = {
        .size = sizeof config, .tokens = 257 + n % 64, .least = 1 + n % 3};
    const gs_alloc alloc = {limited, NULL};
    const gs_text learned = {text, n};
    gs_tokenizer *t;
    if (gs_tokenizer_train(&t, &config, &learned, 1, &alloc, NULL) != GS_OK)
        return;
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    size_t count = 0, used = 0, length;
    if (!ids || gs_tokenizer_encode(ids, n, &count, t, text, n, NULL) != GS_OK)
        abort();
    for (size_t i = 0; i < count; i++) {
        const char *token = gs_tokenizer_token(t, ids[i], &length);
        if (!token || used + length > n || memcmp(text + used, token, length) != 0)
            abort();
        used += length;
    }
    if (used != n)
        abort();
    free(ids);
    gs_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const gs_alloc alloc = {limited, NULL};
    const char *text = (const char *)data;
    gs_error error = {0};
    gs_tokenizer *t, *again;
    if (n == 0)
        return 0;
    check_trained(text, n);
    if (gs_tokenizer_open(&t, file_of(data, n), &alloc, &error) != GS_OK) {
        if (t || !error.text[0])
            abort();
        return 0;
    }
    check_text(t, text, n);
    size_t first, second;
    char *a = text_of(t, &first);
    if (gs_tokenizer_read(&again, a, first, &alloc, &error) != GS_OK)
        abort();
    char *b = text_of(again, &second);
    if (first != second || memcmp(a, b, first) != 0)
        abort();
    free(a);
    free(b);
    gs_tokenizer_free(again);
    gs_tokenizer_free(t);
    return 0;
}
