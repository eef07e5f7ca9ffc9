/* Token files of llm.c: 256 int32 (magic, version, tokens, zeros), then 16 bits per token, all
 * little-endian. nanoGPT's are the tokens alone. They may be larger than memory: tokens are read
 * where they are asked for. */
#ifndef GSI_IO_TOKENS_H
#define GSI_IO_TOKENS_H

#include "io/file.h"

enum { GSI_TOKENS_MAGIC = 20240520 };

typedef struct gsi_tokens {
    gsi_file file;
    uint64_t first; /* where tokens begin, in bytes */
    uint64_t count; /* what the header says and the size of the file confirms */
} gsi_tokens;

gs_status gsi_tokens_open(gsi_tokens *tokens, const char *path, gs_error *error);
void gsi_tokens_close(gsi_tokens *tokens);

/* Tokens [first, first + n), which must be there. Any number of threads at once. */
gs_status gsi_tokens_read(const gsi_tokens *tokens, int32_t *dst, uint64_t first, size_t n,
                          gs_error *error);

/* Whether a file that begins with these bytes is one. */
bool gsi_tokens_begin(const uint8_t start[4]);

#endif
