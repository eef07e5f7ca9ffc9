/* tokenizer.h: text as tokens: byte-level BPE, as GPT-2's.
 *
 *     gs_tokenizer *tokenizer;
 *     gs_tokenizer_open(&tokenizer, "gpt2", NULL, &error);     a folder, tokenizer.json, vocab.json
 *     gs_tokenizer_encode(ids, room, &n, tokenizer, text, length, &error);
 *     const char *bytes = gs_tokenizer_token(tokenizer, ids[0], &length);
 *
 * The ids are those of Hugging Face's tokenizers. Text is cut into words as GPT-2 does it, with the
 * letters, numbers and white space of Unicode 16; in a word the pair of tokens whose merge comes
 * first in the list is merged, the leftmost of equals, until no pair has a merge. Bytes that are
 * not UTF-8 count as neither letters nor numbers nor white space: any bytes can be encoded, and
 * their tokens give them back.
 *
 * A tokenizer is used by one thread at a time: it remembers words.
 */
#ifndef GRADSCALE_TOKENIZER_H
#define GRADSCALE_TOKENIZER_H

#include "gradscale/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GS_TOKENIZER_TOKENS = 1 << 18 }; /* the most that a tokenizer has */

typedef struct gs_tokenizer gs_tokenizer;

/* path: a tokenizer.json of Hugging Face, a vocab.json with a merges.txt beside it, or a folder
 * with either. Read is byte-level BPE without a normalizer; what else a tokenizer.json may ask for
 * is refused by name. alloc and error may be NULL. */
GS_API gs_status gs_tokenizer_open(gs_tokenizer **out, const char *path, const gs_alloc *alloc,
                                   gs_error *error);
/* The same from the text of a tokenizer.json. */
GS_API gs_status gs_tokenizer_read(gs_tokenizer **out, const char *text, size_t length,
                                   const gs_alloc *alloc, gs_error *error);
GS_API void gs_tokenizer_free(gs_tokenizer *tokenizer);

typedef struct gs_tokenizer_config {
    size_t size;    /* sizeof(gs_tokenizer_config) */
    size_t tokens;  /* of the vocabulary, at least 257: bytes, merges, <|endoftext|> as the last */
    uint64_t least; /* a pair that occurs less often is not merged; 0: 2 */
} gs_tokenizer_config;

typedef struct gs_text {
    const char *bytes; /* [length] */
    size_t length;
} gs_text;

/* Learns merges from texts: the pair that occurs most often in words, of equals the one with the
 * lower ids, again and again, as Hugging Face's BpeTrainer does it. Text that has too few pairs
 * gives fewer tokens. */
GS_API gs_status gs_tokenizer_train(gs_tokenizer **out, const gs_tokenizer_config *config,
                                    const gs_text *texts, size_t n, const gs_alloc *alloc,
                                    gs_error *error);

/* How many tokens there are: ids are 0 to size - 1. */
GS_API size_t gs_tokenizer_size(const gs_tokenizer *tokenizer);
/* The id of <|endoftext|>; -1: it has none. */
GS_API int32_t gs_tokenizer_end(const gs_tokenizer *tokenizer);
/* The bytes of a token, *length of them, as long as the tokenizer lives; NULL: there is no such id.
 * A token may end inside of a character. */
GS_API const char *gs_tokenizer_token(const gs_tokenizer *tokenizer, int32_t id, size_t *length);

/* ids[room]; *n is how many there are, whatever room there is: GS_ESIZE if they do not fit. Never
 * more than one per byte, and one more for each text between added tokens if a tokenizer.json asks
 * for a space before it (add_prefix_space). Added tokens in the text, such as <|endoftext|>, become
 * theirs. */
GS_API gs_status gs_tokenizer_encode(int32_t *ids, size_t room, size_t *n, gs_tokenizer *tokenizer,
                                     const char *text, size_t length, gs_error *error);

/* What a tokenizer is, as the text of these files. */
typedef enum gs_tokenizer_file {
    GS_TOKENIZER_JSON, /* tokenizer.json: all of it */
    GS_VOCAB_JSON,
    GS_MERGES_TXT
} gs_tokenizer_file;

/* text[room] with a 0 behind; *used is its length, whatever room there is: GS_ESIZE if it does not
 * fit. used may be NULL. */
GS_API gs_status gs_tokenizer_text(char *text, size_t room, size_t *used,
                                   const gs_tokenizer *tokenizer, gs_tokenizer_file file,
                                   gs_error *error);

#ifdef __cplusplus
}
#endif

#endif
