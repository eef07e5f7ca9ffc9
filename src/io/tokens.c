#include "io/tokens.h"

#include <string.h>

enum { HEADER = 256 * 4, VERSION = 1, WIDE_MAGIC = 20240801 };

static uint32_t word(const uint8_t *p, size_t i)
{
    p += 4 * i;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

bool gsi_tokens_begin(const uint8_t start[4]) { return word(start, 0) == GSI_TOKENS_MAGIC; }

/* nanoGPT's files have no header and are known by their names. */
static bool is_bare(const gsi_file *f)
{
    static const char *const names[] = {"train.bin", "val.bin"};
    const size_t n = strlen(f->path);
    uint8_t start[4] = {0};
    bool named = false;
    for (size_t i = 0; i < GSI_COUNT(names); i++) {
        const size_t m = strlen(names[i]);
        named |= n >= m && strcmp(f->path + n - m, names[i]) == 0 &&
                 (n == m || f->path[n - m - 1] == '/');
    }
    return named && f->size % 2 == 0 &&
           (f->size < 4 || (gsi_file_read(f, start, sizeof start, 0, NULL) == GS_OK &&
                            word(start, 0) != GSI_TOKENS_MAGIC && word(start, 0) != WIDE_MAGIC));
}

static gs_status check_header(gsi_tokens *t, gs_error *error)
{
    const gsi_file *f = &t->file;
    uint8_t header[12];
    if (is_bare(f)) {
        t->count = f->size / 2;
        return GS_OK;
    }
    t->first = HEADER;
    if (f->size < HEADER)
        return gsi_file_fail(f, error, GS_EFORMAT,
                             "is not a token file: it is shorter than the header of %d bytes",
                             HEADER);
    const gs_status status = gsi_file_read(f, header, sizeof header, 0, error);
    if (status != GS_OK)
        return status;
    if (word(header, 0) == WIDE_MAGIC)
        return gsi_file_fail(f, error, GS_EVERSION,
                             "has tokens of 32 bits, as llm.c writes them for Llama 3: only those "
                             "of 16 bits can be read");
    if (word(header, 0) != GSI_TOKENS_MAGIC)
        return gsi_file_fail(f, error, GS_EFORMAT,
                             "is not a token file of llm.c: its magic is %u, not %d; nanoGPT's, "
                             "which have none, must be called train.bin or val.bin",
                             word(header, 0), GSI_TOKENS_MAGIC);
    if (word(header, 1) != VERSION)
        return gsi_file_fail(f, error, GS_EVERSION, "is a token file of version %u, not %d",
                             word(header, 1), VERSION);
    t->count = word(header, 2);
    if (f->size - HEADER != 2 * t->count)
        return gsi_file_fail(f, error, GS_EFORMAT,
                             "its header announces %llu tokens, but it has %llu bytes of them",
                             (unsigned long long)t->count, (unsigned long long)(f->size - HEADER));
    return GS_OK;
}

gs_status gsi_tokens_open(gsi_tokens *tokens, const char *path, gs_error *error)
{
    tokens->first = 0;
    gs_status status = gsi_file_open(&tokens->file, path, error);
    if (status != GS_OK)
        return status;
    status = check_header(tokens, error);
    if (status != GS_OK)
        gsi_tokens_close(tokens);
    return status;
}

void gsi_tokens_close(gsi_tokens *tokens) { gsi_file_close(&tokens->file); }

gs_status gsi_tokens_read(const gsi_tokens *tokens, int32_t *dst, uint64_t first, size_t n,
                          gs_error *error)
{
    /* The upper half of dst takes the bytes: a token is read before its place is written. */
    uint8_t *bytes = (uint8_t *)dst + 2 * n;
    const gs_status status =
        gsi_file_read(&tokens->file, bytes, 2 * n, tokens->first + 2 * first, error);
    for (size_t i = 0; status == GS_OK && i < n; i++)
        dst[i] = bytes[2 * i] | bytes[2 * i + 1] << 8;
    return status;
}
