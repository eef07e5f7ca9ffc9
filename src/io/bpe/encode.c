/* Text into tokens: added tokens first, then words. Short words are remembered, because text
 * repeats them: a table of lines of 64 bytes, one word per place, the newest wins. It grows with
 * what has been tokenized, so that a prompt does not pay for the table of a book. */
#include "io/bpe/bpe.h"

#include <string.h>

enum { KEY = 22, IDS = 10, FEWEST_LINES = 1 << 6, LINES = 1 << 15 };

struct gsi_cached {
    uint8_t length, n; /* length 0: empty */
    char key[KEY];
    int32_t ids[IDS];
};

typedef struct output {
    gs_tokenizer *t;
    int32_t *ids; /* [room] */
    size_t room, n;
    int32_t *word; /* of a long one */
    size_t word_room;
    gs_error *error;
} output;

static void put(output *out, const int32_t *ids, size_t n)
{
    const size_t left = out->n < out->room ? out->room - out->n : 0;
    for (size_t i = 0; i < gsi_min_size(n, left); i++)
        out->ids[out->n + i] = ids[i];
    out->n += n;
}

/* ---- words ---- */

/* n is 1 to KEY. */
static gsi_cached *line_of(const gs_tokenizer *t, const uint8_t *p, size_t n)
{
    return &t->cache[gsi_bytes_hash((const char *)p, n) >> 40 & (t->cache_lines - 1)];
}

/* As many lines as bytes have been tokenized; an old table that is too small is forgotten. */
static bool reserve_lines(gs_tokenizer *t, size_t length)
{
    t->encoded += gsi_min_size(length, LINES - t->encoded);
    if (t->cache && t->cache_lines >= t->encoded)
        return true;
    size_t lines = FEWEST_LINES;
    while (lines < t->encoded)
        lines *= 2;
    gsi_cached *cache = gsi_new(&t->heap, lines * sizeof *cache);
    if (!cache)
        return t->cache != NULL;
    memset(cache, 0, lines * sizeof *cache);
    gsi_free(&t->heap, t->cache);
    t->cache = cache;
    t->cache_lines = lines;
    return true;
}

static gs_status no_byte(const output *out, uint8_t byte)
{
    return gsi_fail(out->error, GS_ENAME,
                    "the text has the byte 0x%02x, and the tokenizer has no token for it", byte);
}

/* ids[n] of the bytes p[n], merged. */
static gs_status merge(output *out, int32_t *ids, size_t *n, const uint8_t *p)
{
    for (size_t i = 0; i < *n; i++) {
        ids[i] = out->t->of_byte[p[i]];
        if (ids[i] < 0)
            return no_byte(out, p[i]);
    }
    if (gsi_merge_word(out->t, ids, n))
        return GS_OK;
    return gsi_fail(out->error, GS_ENOMEM, "no memory to tokenize a word of %zu bytes", *n);
}

static gs_status put_long(output *out, const uint8_t *p, size_t n)
{
    if (n > out->word_room) {
        gsi_free(&out->t->heap, out->word);
        out->word_room = n;
        out->word = gsi_new(&out->t->heap, n * sizeof *out->word);
    }
    if (!out->word) {
        out->word_room = 0;
        return gsi_fail(out->error, GS_ENOMEM, "no memory to tokenize a word of %zu bytes", n);
    }
    const gs_status status = merge(out, out->word, &n, p);
    if (status == GS_OK)
        put(out, out->word, n);
    return status;
}

static gs_status put_word(output *out, const uint8_t *p, size_t n)
{
    int32_t ids[GSI_SHORT_WORD];
    if (n > GSI_SHORT_WORD)
        return put_long(out, p, n);
    const bool kept = n <= KEY;
    gsi_cached *line = kept ? line_of(out->t, p, n) : NULL;
    if (kept && line->length == n && memcmp(line->key, p, n) == 0) {
        put(out, line->ids, line->n);
        return GS_OK;
    }
    size_t left = n;
    const gs_status status = merge(out, ids, &left, p);
    if (status != GS_OK)
        return status;
    if (kept && left <= IDS) {
        line->length = (uint8_t)n;
        line->n = (uint8_t)left;
        memcpy(line->key, p, n);
        memcpy(line->ids, ids, left * sizeof *ids);
    }
    put(out, ids, left);
    return GS_OK;
}

static gs_status put_words(output *out, const uint8_t *p, const uint8_t *end)
{
    gs_status status = GS_OK;
    while (p < end && status == GS_OK) {
        const size_t n = gsi_word(p, end);
        status = put_word(out, p, n);
        p += n;
    }
    return status;
}

/* ---- text ---- */

/* Between added tokens of both kinds; not empty. */
static gs_status put_text(void *user, const uint8_t *p, const uint8_t *end, int32_t id)
{
    output *out = user;
    if (id != GSI_NO_TOKEN) {
        put(out, &id, 1);
        return GS_OK;
    }
    if (!out->t->prefix_space || *p == ' ')
        return put_words(out, p, end);
    const size_t n = (size_t)(end - p);
    uint8_t *copy = gsi_new(&out->t->heap, n + 1);
    if (!copy)
        return gsi_fail(out->error, GS_ENOMEM, "no memory to tokenize a text of %zu bytes", n);
    copy[0] = ' ';
    memcpy(copy + 1, p, n);
    const gs_status status = put_words(out, copy, copy + n + 1);
    gsi_free(&out->t->heap, copy);
    return status;
}

/* Between those that are not normalized. */
static gs_status put_part(void *user, const uint8_t *p, const uint8_t *end, int32_t id)
{
    output *out = user;
    if (id != GSI_NO_TOKEN)
        return put_text(user, p, end, id);
    return gsi_added_split(out->t, true, p, end, put_text, user);
}

gs_status gs_tokenizer_encode(int32_t *ids, size_t room, size_t *n, gs_tokenizer *t,
                              const char *text, size_t length, gs_error *error)
{
    if (!t || !n || (room > 0 && !ids) || (length > 0 && !text))
        return gsi_fail(error, GS_ENULL, "there is no tokenizer, no text or no array for its ids");
    *n = 0;
    if (length > INT32_MAX)
        return gsi_fail(error, GS_ESIZE, "a text of %zu bytes: at most %d are tokenized at a time",
                        length, INT32_MAX);
    if (!reserve_lines(t, length))
        return gsi_fail(error, GS_ENOMEM, "no memory to tokenize");
    output out = {.t = t, .ids = ids, .room = room, .error = error};
    const uint8_t *p = (const uint8_t *)text;
    const gs_status status =
        length ? gsi_added_split(t, false, p, p + length, put_part, &out) : GS_OK;
    gsi_free(&t->heap, out.word);
    *n = out.n;
    if (status == GS_OK && out.n > room)
        return gsi_fail(error, GS_ESIZE, "the text has %zu tokens, and there is room for %zu",
                        out.n, room);
    return status;
}
