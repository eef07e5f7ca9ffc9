/* What a tokenizer is read with: read.c has the parts, open.c the files. */
#ifndef GSI_IO_BPE_READ_H
#define GSI_IO_BPE_READ_H

#include "io/bpe/bpe.h"
#include "io/io.h"
#include "io/json.h"

enum { GSI_BPE_TOKEN = 1 << 16 }; /* bytes of a token in a file, at most */

typedef struct gsi_bpe_reader {
    gs_tokenizer *t;
    const char *name;          /* of the file, for error messages */
    char bytes[GSI_BPE_TOKEN]; /* of the token that is looked at */
    gs_error *error;
} gsi_bpe_reader;

gs_status gsi_bpe_fail(const gsi_bpe_reader *r, gs_status status, const char *format, ...)
    GS_PRINTF(3, 4);

/* All of a tokenizer.json. */
gs_status gsi_bpe_tokenizer_json(gsi_bpe_reader *r, const gsi_node *root);

/* Part by part: tokens with room for `more` of them, merges by lines, added tokens, the end. */
gs_status gsi_bpe_vocab(gsi_bpe_reader *r, const gsi_node *vocab, size_t more);
gs_status gsi_bpe_merges(gsi_bpe_reader *r, size_t n);
gs_status gsi_bpe_merge_line(gsi_bpe_reader *r, const char *line, size_t n);
gs_status gsi_bpe_merges_whole(gsi_bpe_reader *r); /* when all are there */
gs_status gsi_bpe_added(gsi_bpe_reader *r, const gsi_node *list, size_t more);
gs_status gsi_bpe_add(gsi_bpe_reader *r, const char *content, gsi_added added);
void gsi_bpe_finish(gsi_bpe_reader *r);

#endif
