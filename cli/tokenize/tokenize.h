/* tokenize.h: `gradscale tokenize`: text into tokens, tokens into text, and a tokenizer from text.
 *
 * Token files are those of llm.c, which `train --data` reads: 256 int32 (magic, version, count,
 * zeros), then 16 bits per token, little-endian. */
#ifndef TOKENIZE_H
#define TOKENIZE_H

#include "cli/core/cli.h"
#include "cli/use/use.h"

int tokenize_train(int argc, char **argv);
int tokenize_encode(int argc, char **argv);
int tokenize_decode(int argc, char **argv);

enum { TOKENS_HEADER = 1024, TOKENS_MAGIC = 20240520, TOKENS_VERSION = 1, TOKENS_MOST = 1 << 16 };
static const size_t TOKENIZE_TEXT = INT32_MAX; /* bytes of a file, at most */

/* CLI_GO, or the exit code after an error. */
int tokenize_open(gs_tokenizer **out, const char *path);

#endif
