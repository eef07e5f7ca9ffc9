#include "io/bpe/bpe.h"
#include "io/lines.h"
#include "io/utf8.h"

#include <string.h>

/* ---- the alphabet of files ---- */

/* Bytes that are printable in Latin-1 stand for themselves; the others are numbered from 256 on. */
static bool printable(uint32_t byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

uint32_t gsi_char_of_byte(uint8_t byte)
{
    if (printable(byte))
        return byte;
    /* 0 to 32, 127 to 160, 173 */
    return 256u + (byte <= ' ' ? byte : byte <= 0xA0 ? byte - 0x7Fu + 33 : 67);
}

int gsi_byte_of_char(uint32_t code)
{
    if (code < 256)
        return printable(code) ? (int)code : -1;
    const uint32_t k = code - 256;
    return k <= ' ' ? (int)k : k < 67 ? (int)(k - 33 + 0x7F) : k == 67 ? 0xAD : -1;
}

size_t gsi_token_bytes(char *out, bool *raw, const char *text, size_t n)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + n;
    size_t used = 0;
    *raw = false;
    while (p < end) {
        uint32_t code;
        const size_t length = gsi_utf8_char(&code, p, end);
        const int byte = gsi_byte_of_char(code);
        if (length == 0 || byte < 0) {
            *raw = true;
            memcpy(out, text, n);
            return n;
        }
        out[used++] = (char)byte;
        p += length;
    }
    return used;
}

/* ---- tokens ---- */

static size_t slots_for(size_t n)
{
    size_t slots = 16;
    while (slots < 2 * n)
        slots *= 2;
    return slots;
}

bool gsi_vocab_reserve(gs_tokenizer *t, size_t tokens)
{
    const size_t slots = slots_for(tokens);
    t->tokens = gsi_new(&t->heap, (tokens + 1) * sizeof *t->tokens);
    t->slots = gsi_new(&t->heap, slots * sizeof *t->slots);
    if (!t->tokens || !t->slots)
        return false;
    memset(t->slots, 0, slots * sizeof *t->slots);
    for (size_t i = 0; i < tokens; i++)
        t->tokens[i] = (gsi_token){.at = UINT32_MAX};
    t->slots_mask = slots - 1;
    return true;
}

/* The slot of a token, or the empty one where it would be. */
static uint32_t *slot_of(const gs_tokenizer *t, const char *bytes, size_t n, bool raw)
{
    size_t i = (size_t)(gsi_bytes_hash(bytes, n) ^ raw) & t->slots_mask;
    for (; t->slots[i]; i = (i + 1) & t->slots_mask) {
        const gsi_token *x = &t->tokens[t->slots[i] - 1];
        if (x->length == n && x->raw == raw && memcmp(t->bytes + x->at, bytes, n) == 0)
            break;
    }
    return &t->slots[i];
}

int32_t gsi_vocab_find(const gs_tokenizer *t, const char *bytes, size_t n, bool raw)
{
    return (int32_t)*slot_of(t, bytes, n, raw) - 1;
}

bool gsi_bytes_keep(gs_tokenizer *t, uint32_t *at, const char *bytes, size_t n)
{
    if (t->bytes_used + n + 1 > INT32_MAX || /* uncovered: of gigabytes of text */
        !gsi_grow(&t->heap, &t->bytes, &t->bytes_room, t->bytes_used + n + 1, 1))
        return false;
    *at = (uint32_t)t->bytes_used;
    memcpy(t->bytes + t->bytes_used, bytes, n);
    t->bytes_used += n;
    t->bytes[t->bytes_used++] = 0;
    return true;
}

bool gsi_vocab_set(gs_tokenizer *t, size_t id, const char *bytes, size_t n, bool raw)
{
    uint32_t at;
    if (!gsi_bytes_keep(t, &at, bytes, n))
        return false;
    t->tokens[id] = (gsi_token){.at = at, .length = n & INT32_MAX, .raw = raw};
    *slot_of(t, bytes, n, raw) = (uint32_t)id + 1;
    return true;
}

bool gsi_vocab_add(gs_tokenizer *t, const char *bytes, size_t n, bool raw)
{
    const bool set = gsi_vocab_set(t, t->n, bytes, n, raw);
    t->n += set;
    return set;
}

void gsi_vocab_finish(gs_tokenizer *t)
{
    for (int byte = 0; byte < 256; byte++) {
        const char c = (char)byte;
        t->of_byte[byte] = gsi_vocab_find(t, &c, 1, false);
    }
}

size_t gs_tokenizer_size(const gs_tokenizer *t) { return t ? t->n : 0; }

int32_t gs_tokenizer_end(const gs_tokenizer *t)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (strcmp(t->bytes + t->added[i].at, GSI_END_OF_TEXT) == 0)
            return t->added[i].id;
    return GSI_NO_TOKEN;
}

const char *gs_tokenizer_token(const gs_tokenizer *t, int32_t id, size_t *length)
{
    *length = 0;
    if (id < 0 || (size_t)id >= t->n)
        return NULL;
    *length = t->tokens[id].length;
    return t->bytes + t->tokens[id].at;
}

/* ---- merges ---- */

bool gsi_merges_reserve(gs_tokenizer *t, size_t merges)
{
    const size_t slots = slots_for(merges);
    t->merges = gsi_new(&t->heap, (merges + 1) * sizeof *t->merges);
    t->table = gsi_new(&t->heap, slots * sizeof *t->table);
    if (!t->merges || !t->table)
        return false;
    for (size_t i = 0; i < slots; i++)
        t->table[i].rank = GSI_NO_RANK;
    t->table_mask = slots - 1;
    return true;
}

bool gsi_merge_add(gs_tokenizer *t, uint32_t left, uint32_t right, uint32_t id)
{
    gsi_merge *slot = &t->table[gsi_merge_find(t, left, right) - t->table];
    if (slot->rank != GSI_NO_RANK)
        return false;
    *slot = (gsi_merge){left, right, (uint32_t)t->n_merges, id};
    t->merges[t->n_merges++] = *slot;
    return true;
}
