/* A byte-level BPE tokenizer, in parts:
 *
 *     unicode.h  classes of characters          vocab.c   tokens and merges, looked up by hashes
 *     words.c    text into words                open.c    files; the life of a tokenizer
 *     merge.c    a word into tokens             read.c    tokenizer.json, vocab.json, merges.txt
 *     added.c    tokens that are found first    write.c   the same back
 *     encode.c   all, with words remembered     train.c   merges learned from text
 *
 * In files a token is written in an alphabet of 256 printable characters, one per byte. A token
 * with any other character in it stands for its own UTF-8: it is `raw`. */
#ifndef GSI_IO_BPE_BPE_H
#define GSI_IO_BPE_BPE_H

#include "base/base.h"
#include "gradscale/tokenizer.h"

#include <string.h>

enum { GSI_NO_TOKEN = -1 };
static const uint32_t GSI_NO_RANK = UINT32_MAX;

typedef struct gsi_token {
    uint32_t at; /* its bytes: vocab.bytes + at */
    uint32_t length : 31, raw : 1;
} gsi_token;

typedef struct gsi_merge {
    uint32_t left, right; /* ids */
    uint32_t rank;        /* the lowest is merged first; GSI_NO_RANK: an empty slot */
    uint32_t id;          /* what they become */
} gsi_merge;

/* A token that is found in the text before it is cut into words. */
typedef struct gsi_added {
    int32_t id;
    uint32_t at, length; /* what is looked for: bytes + at */
    bool lstrip, rstrip; /* white space before or after it belongs to it */
    bool normalized;     /* looked for after all that are not */
    bool special;
    uint8_t first; /* of its bytes */
} gsi_added;

typedef struct gsi_cached gsi_cached;

struct gs_tokenizer {
    gsi_heap heap;

    gsi_token *tokens; /* [n] */
    size_t n;
    char *bytes;
    size_t bytes_used, bytes_room;
    uint32_t *slots; /* [slots_mask + 1]: id + 1 by the hash of a token; 0: empty */
    size_t slots_mask;
    int32_t of_byte[256];

    gsi_merge *merges; /* [n_merges], by rank */
    size_t n_merges;
    gsi_merge *table; /* [table_mask + 1], by the hash of a pair */
    size_t table_mask;

    gsi_added *added; /* [n_added], by normalized, first byte, then the longest first */
    size_t n_added;
    uint32_t added_from[2][257]; /* by normalized, byte: added[from[b]] up to added[from[b + 1]] */
    bool prefix_space;           /* before each text between added tokens, unless it has one */

    gsi_cached *cache; /* [cache_lines] */
    size_t cache_lines;
    size_t encoded; /* bytes so far, counted up to the most lines that there can be */
    void *work;     /* of merge.c */
    size_t work_room;
};

/* ---- vocab.c ---- */

/* The character of a byte in files, and the byte of a character: -1, it is none of them. */
uint32_t gsi_char_of_byte(uint8_t byte);
int gsi_byte_of_char(uint32_t code);

/* Room for n tokens and as many merges as said; all empty. */
bool gsi_vocab_reserve(gs_tokenizer *t, size_t tokens);
bool gsi_merges_reserve(gs_tokenizer *t, size_t merges);

/* The bytes that a token of a file stands for, in out[n]; their number. */
size_t gsi_token_bytes(char *out, bool *raw, const char *text, size_t n);
/* A copy among t->bytes, with a 0 behind. False: no memory. */
bool gsi_bytes_keep(gs_tokenizer *t, uint32_t *at, const char *bytes, size_t n);
/* By its bytes: an id, or GSI_NO_TOKEN. */
int32_t gsi_vocab_find(const gs_tokenizer *t, const char *bytes, size_t n, bool raw);
/* The next id. There must be room; false: no memory for its bytes. */
bool gsi_vocab_add(gs_tokenizer *t, const char *bytes, size_t n, bool raw);
/* Sets tokens[id], which is not yet there. */
bool gsi_vocab_set(gs_tokenizer *t, size_t id, const char *bytes, size_t n, bool raw);
/* The next rank; false: the pair has one. */
bool gsi_merge_add(gs_tokenizer *t, uint32_t left, uint32_t right, uint32_t id);
/* When all tokens are there. */
void gsi_vocab_finish(gs_tokenizer *t);

/* The low bits and those from 40 on are good. */
static inline uint64_t gsi_bytes_hash(const char *bytes, size_t n)
{
    static const uint64_t MIX = 0x9E3779B97F4A7C15;
    uint64_t h = n, x;
    for (; n > 8; bytes += 8, n -= 8) {
        memcpy(&x, bytes, 8);
        h = (h ^ x) * MIX;
        h ^= h >> 32;
    }
    x = 0;
    memcpy(&x, bytes, n);
    h = (h ^ x) * MIX;
    return h ^ h >> 32;
}

static inline uint64_t gsi_pair_hash(uint32_t left, uint32_t right)
{
    const uint64_t x = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15;
    return x ^ x >> 29;
}

/* The merge of a pair; its rank is GSI_NO_RANK if there is none. */
static inline const gsi_merge *gsi_merge_find(const gs_tokenizer *t, uint32_t left, uint32_t right)
{
    size_t i = (size_t)gsi_pair_hash(left, right) & t->table_mask;
    while (t->table[i].rank != GSI_NO_RANK &&
           (t->table[i].left != left || t->table[i].right != right))
        i = (i + 1) & t->table_mask;
    return &t->table[i];
}

/* ---- words.c ---- */

/* The length of the word that begins at p < end. */
size_t gsi_word(const uint8_t *p, const uint8_t *end);

/* ---- merge.c ---- */

/* Up to this many a word needs no memory. */
enum { GSI_SHORT_WORD = 128 };
/* Merges ids[n] in place; *n becomes how many are left. False: no memory. */
bool gsi_merge_word(gs_tokenizer *t, int32_t *ids, size_t *n);

/* ---- added.c ---- */

/* A part of a text: an added token, or with GSI_NO_TOKEN what lies between them. */
typedef gs_status gsi_part_fn(void *user, const uint8_t *p, const uint8_t *end, int32_t id);
/* Divides [p, end) by those that are normalized, or by those that are not. */
gs_status gsi_added_split(const gs_tokenizer *t, bool normalized, const uint8_t *p,
                          const uint8_t *end, gsi_part_fn *part, void *user);
/* Sorts them: once, when all are there. */
void gsi_added_finish(gs_tokenizer *t);

/* ---- open.c ---- */

#define GSI_END_OF_TEXT "<|endoftext|>"
gs_status gsi_tokenizer_new(gs_tokenizer **out, const gs_alloc *alloc, gs_error *error);

#endif
