/* Tokenizers of files: Hugging Face's tokenizer.json, and GPT-2's vocab.json with merges.txt.
 *
 * What holds when a tokenizer has been read:
 *   1. ids are 0 to n - 1, each of one token, and no two tokens are equal;
 *   2. a merge makes a token that is the bytes of both its parts, so merges cannot go in circles;
 *   3. a pair has one merge, and no token of a merge is empty; each is a byte or made by a merge;
 *   4. added tokens are those of the vocabulary, or follow it in the order of the file, which is
 *      how Hugging Face's reader numbers them. */
#include "io/bpe/bpe.h"
#include "io/bpe/read.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = GSI_BPE_TOKEN, MOST_ADDED = 1 << 12 };

gs_status gsi_bpe_fail(const gsi_bpe_reader *r, gs_status status, const char *format, ...)
{
    char why[160];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return gsi_fail(r->error, status, "%s: %s", r->name, why);
}

static gs_status no_memory(const gsi_bpe_reader *r)
{
    return gsi_bpe_fail(r, GS_ENOMEM, "there is no memory for its tokens");
}

/* ---- the vocabulary ---- */

/* Its bytes in r->bytes. */
static gs_status decode(gsi_bpe_reader *r, const char *text, size_t n, size_t *length, bool *raw)
{
    if (n > MOST_BYTES)
        return gsi_bpe_fail(r, GS_ESIZE, "has a token of %zu bytes: at most %d", n, MOST_BYTES);
    *length = gsi_token_bytes(r->bytes, raw, text, n);
    return GS_OK;
}

static gs_status add_token(gsi_bpe_reader *r, const gsi_node *x, size_t count)
{
    gs_tokenizer *t = r->t;
    char shown[GSI_SHOWN];
    size_t n = 0;
    bool raw = false;
    gsi_show(shown, x->key, strlen(x->key));
    if (x->kind != GSI_JSON_NUMBER || !(x->number >= 0) || x->number != floor(x->number))
        return gsi_bpe_fail(r, GS_EFORMAT, "the id of its token %s is not a number from 0 on",
                            shown);
    if (x->number >= (double)count)
        return gsi_bpe_fail(r, GS_ERANGE,
                            "its token %s has the id %.0f, but there are %zu tokens: ids have "
                            "holes",
                            shown, x->number, count);
    const size_t id = (size_t)x->number;
    if (t->tokens[id].at != UINT32_MAX)
        return gsi_bpe_fail(r, GS_ERANGE, "two of its tokens have the id %zu: %s is the second", id,
                            shown);
    const gs_status status = decode(r, x->key, strlen(x->key), &n, &raw);
    if (status != GS_OK)
        return status;
    return gsi_vocab_set(t, id, r->bytes, n, raw) ? GS_OK : no_memory(r);
}

gs_status gsi_bpe_vocab(gsi_bpe_reader *r, const gsi_node *vocab, size_t more)
{
    gs_tokenizer *t = r->t;
    const size_t n = vocab && vocab->kind == GSI_JSON_OBJECT ? vocab->count : 0;
    if (n == 0)
        return gsi_bpe_fail(r, GS_EFORMAT, "has no vocabulary");
    if (n + more > GS_TOKENIZER_TOKENS)
        return gsi_bpe_fail(r, GS_ESIZE, "has %zu tokens: at most %d can be read", n + more,
                            GS_TOKENIZER_TOKENS);
    if (!gsi_vocab_reserve(t, n + more))
        return no_memory(r);
    gs_status status = GS_OK;
    for (const gsi_node *x = vocab->first; x && status == GS_OK; x = x->next)
        status = add_token(r, x, n);
    t->n = n;
    return status;
}

/* ---- merges ---- */

/* The id of a part of a merge. */
static gs_status part_of(gsi_bpe_reader *r, uint32_t *id, const char *text, size_t length)
{
    char shown[GSI_SHOWN];
    size_t n = 0;
    bool raw = false;
    const gs_status status = decode(r, text, length, &n, &raw);
    if (status != GS_OK)
        return status;
    const int32_t found = n > 0 ? gsi_vocab_find(r->t, r->bytes, n, raw) : GSI_NO_TOKEN;
    if (found < 0)
        return gsi_bpe_fail(r, GS_ENAME, "merge %zu is of %s, which is no token",
                            r->t->n_merges + 1, gsi_show(shown, text, length));
    *id = (uint32_t)found;
    return GS_OK;
}

static gs_status add_merge(gsi_bpe_reader *r, const char *left, size_t left_length,
                           const char *right, size_t right_length)
{
    gs_tokenizer *t = r->t;
    uint32_t a = 0, b = 0;
    char shown[2][GSI_SHOWN];
    gs_status status = part_of(r, &a, left, left_length);
    if (status == GS_OK)
        status = part_of(r, &b, right, right_length);
    if (status != GS_OK)
        return status;
    const gsi_token *x = &t->tokens[a], *y = &t->tokens[b];
    const size_t n = (size_t)x->length + y->length;
    int32_t id = GSI_NO_TOKEN;
    if (n <= MOST_BYTES && !x->raw && !y->raw) {
        memcpy(r->bytes, t->bytes + x->at, x->length);
        memcpy(r->bytes + x->length, t->bytes + y->at, y->length);
        id = gsi_vocab_find(t, r->bytes, n, false);
    }
    gsi_show(shown[0], left, left_length);
    gsi_show(shown[1], right, right_length);
    if (id < 0)
        return gsi_bpe_fail(r, GS_ENAME, "merge %zu, %.40s %.40s, makes no token of the vocabulary",
                            t->n_merges + 1, shown[0], shown[1]);
    if (!gsi_merge_add(t, a, b, (uint32_t)id))
        return gsi_bpe_fail(r, GS_EFORMAT, "merge %zu, %.40s %.40s, is there twice",
                            t->n_merges + 1, shown[0], shown[1]);
    return GS_OK;
}

gs_status gsi_bpe_merge_line(gsi_bpe_reader *r, const char *line, size_t n)
{
    const char *blank = memchr(line, ' ', n);
    const char *right = blank ? blank + 1 : NULL;
    if (!blank || memchr(right, ' ', n - (size_t)(right - line)))
        return gsi_bpe_fail(r, GS_EFORMAT, "merge %zu is not two tokens with a blank between them",
                            r->t->n_merges + 1);
    return add_merge(r, line, (size_t)(blank - line), right, n - (size_t)(right - line));
}

/* "a b" or ["a", "b"]. */
static gs_status read_merge(gsi_bpe_reader *r, const gsi_node *x)
{
    if (x->kind == GSI_JSON_STRING)
        return gsi_bpe_merge_line(r, x->text, strlen(x->text));
    const gsi_node *a = x->first, *b = a ? a->next : NULL;
    if (x->kind != GSI_JSON_ARRAY || !b || b->next || a->kind != GSI_JSON_STRING ||
        b->kind != GSI_JSON_STRING)
        return gsi_bpe_fail(r, GS_EFORMAT, "merge %zu is not two tokens", r->t->n_merges + 1);
    return add_merge(r, a->text, strlen(a->text), b->text, strlen(b->text));
}

gs_status gsi_bpe_merges(gsi_bpe_reader *r, size_t n)
{
    if (n > GS_TOKENIZER_TOKENS)
        return gsi_bpe_fail(r, GS_ESIZE, "has %zu merges: at most %d can be read", n,
                            GS_TOKENIZER_TOKENS);
    return gsi_merges_reserve(r->t, n) ? GS_OK : no_memory(r);
}

/* As the file writes it; a long one is cut. */
static const char *show_token(gsi_bpe_reader *r, char shown[GSI_SHOWN], uint32_t id)
{
    const gsi_token *x = &r->t->tokens[id];
    size_t n = 0;
    for (size_t i = 0; i < x->length && i < 2 * GSI_SHOWN; i++) {
        const uint32_t code = gsi_char_of_byte((uint8_t)r->t->bytes[x->at + i]);
        if (code >= 0x80)
            r->bytes[n++] = (char)(0xC0 | code >> 6);
        r->bytes[n++] = (char)(code < 0x80 ? code : 0x80 | (code & 0x3F));
    }
    return gsi_show(shown, r->bytes, n);
}

/* A part of more than a byte must be made by a merge, before or after: else a line is missing. */
gs_status gsi_bpe_merges_whole(gsi_bpe_reader *r)
{
    gs_tokenizer *t = r->t;
    char shown[GSI_SHOWN];
    gs_status status = GS_OK;
    bool *made = gsi_new(&t->heap, t->n * sizeof *made);
    if (!made)
        return no_memory(r);
    for (size_t i = 0; i < t->n; i++)
        made[i] = t->tokens[i].length == 1;
    for (size_t i = 0; i < t->n_merges; i++)
        made[t->merges[i].id] = true;
    for (size_t i = 0; status == GS_OK && i < t->n_merges; i++) {
        const gsi_merge *m = &t->merges[i];
        if (!made[m->left] || !made[m->right])
            status = gsi_bpe_fail(r, GS_ENAME, "merge %zu is of %s, which no merge makes", i + 1,
                                  show_token(r, shown, made[m->left] ? m->right : m->left));
    }
    gsi_free(&t->heap, made);
    return status;
}

static gs_status read_merges(gsi_bpe_reader *r, const gsi_node *list)
{
    if (!list || list->kind != GSI_JSON_ARRAY)
        return gsi_bpe_fail(r, GS_EFORMAT, "has no list of merges");
    gs_status status = gsi_bpe_merges(r, list->count);
    for (const gsi_node *x = list->first; x && status == GS_OK; x = x->next)
        status = read_merge(r, x);
    return status == GS_OK ? gsi_bpe_merges_whole(r) : status;
}

/* ---- added tokens ---- */

static bool is_true(const gsi_node *object, const char *key)
{
    const gsi_node *x = gsi_node_get(object, key);
    return x && x->kind == GSI_JSON_TRUE;
}

gs_status gsi_bpe_add(gsi_bpe_reader *r, const char *content, gsi_added added)
{
    gs_tokenizer *t = r->t;
    const size_t length = strlen(content);
    char shown[GSI_SHOWN];
    size_t n = 0;
    bool raw = false;
    gs_status status = decode(r, content, length, &n, &raw);
    if (status != GS_OK)
        return status;
    gsi_show(shown, content, length);
    const int32_t found = gsi_vocab_find(t, r->bytes, n, raw);
    const int32_t id = found < 0 ? (int32_t)t->n : found;
    if (added.id != id)
        return gsi_bpe_fail(r, GS_ERANGE, "its added token %s has the id %d, and %d is its turn",
                            shown, (int)added.id, (int)id);
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id)
            return gsi_bpe_fail(r, GS_EFORMAT, "its added token %s is there twice", shown);
    added.length = (uint32_t)length;
    added.first = (uint8_t)content[0];
    raw |= n != length; /* of ASCII alone the bytes are the characters */
    if (!gsi_bytes_keep(t, &added.at, content, length) ||
        (found < 0 && !gsi_vocab_add(t, content, length, raw)))
        return no_memory(r);
    t->added[t->n_added++] = added;
    return GS_OK;
}

static gs_status read_added(gsi_bpe_reader *r, const gsi_node *x)
{
    const gsi_node *id = gsi_node_get(x, "id"), *content = gsi_node_get(x, "content");
    char shown[GSI_SHOWN];
    if (!id || !content || id->kind != GSI_JSON_NUMBER || content->kind != GSI_JSON_STRING ||
        !content->text[0] || !(id->number >= 0 && id->number < GS_TOKENIZER_TOKENS) ||
        id->number != floor(id->number))
        return gsi_bpe_fail(r, GS_EFORMAT, "added token %zu has no legal id and content",
                            r->t->n_added + 1);
    if (is_true(x, "single_word"))
        return gsi_bpe_fail(r, GS_EVERSION,
                            "its added token %s asks for single_word, which is not read",
                            gsi_show(shown, content->text, strlen(content->text)));
    const gsi_added added = {.id = (int32_t)id->number,
                             .lstrip = is_true(x, "lstrip"),
                             .rstrip = is_true(x, "rstrip"),
                             .normalized = is_true(x, "normalized"),
                             .special = is_true(x, "special")};
    return gsi_bpe_add(r, content->text, added);
}

gs_status gsi_bpe_added(gsi_bpe_reader *r, const gsi_node *list, size_t more)
{
    const size_t n = list ? list->count : 0;
    r->t->added = gsi_new(&r->t->heap, (n + more + 1) * sizeof *r->t->added);
    if (!r->t->added)
        return no_memory(r);
    gs_status status = GS_OK;
    for (const gsi_node *x = list ? list->first : NULL; x && status == GS_OK; x = x->next)
        status = read_added(r, x);
    return status;
}

void gsi_bpe_finish(gsi_bpe_reader *r)
{
    gsi_vocab_finish(r->t);
    gsi_added_finish(r->t);
}

/* ---- tokenizer.json ---- */

typedef struct json_part {
    const char *key;
    bool byte_level, template; /* what it may be besides null */
    bool needed;               /* it may not be null */
} json_part;

/* A template puts tokens around a text. transformers writes one without any, too. */
static bool adds_nothing(const gsi_node *x)
{
    const gsi_node *tokens = gsi_node_get(x, "special_tokens");
    return tokens && tokens->kind == GSI_JSON_OBJECT && tokens->count == 0;
}

/* What may stand in a part of the file; the first that does not is refused by name. */
static gs_status check_part(const gsi_bpe_reader *r, const gsi_node *root, const json_part *p)
{
    const gsi_node *x = gsi_node_get(root, p->key), *type = gsi_node_get(x, "type");
    char shown[GSI_SHOWN] = "";
    if (!x || x->kind == GSI_JSON_NULL)
        return p->needed
                   ? gsi_bpe_fail(r, GS_EVERSION, "has no %s: only byte-level BPE is read", p->key)
                   : GS_OK;
    if (type && type->kind == GSI_JSON_STRING)
        gsi_show(shown, type->text, strlen(type->text));
    if (p->template && strcmp(shown, "TemplateProcessing") == 0 && adds_nothing(x))
        return GS_OK;
    if (!p->byte_level || strcmp(shown, "ByteLevel") != 0)
        return gsi_bpe_fail(r, GS_EVERSION, "has a %s%s%s, which is not read: %s%s", p->key,
                            *shown ? " " : "", shown,
                            p->byte_level ? "only ByteLevel is" : "it must be null",
                            p->template ? ", or a template that adds no token" : "");
    const gsi_node *regex = gsi_node_get(x, "use_regex");
    if (p->needed && regex && regex->kind != GSI_JSON_TRUE)
        return gsi_bpe_fail(r, GS_EVERSION,
                            "its %s does without GPT-2's words (use_regex false), "
                            "which is not read",
                            p->key);
    return GS_OK;
}

static bool empty(const gsi_node *x)
{
    return !x || x->kind == GSI_JSON_NULL || x->kind == GSI_JSON_FALSE ||
           (x->kind == GSI_JSON_STRING && !*x->text) ||
           (x->kind == GSI_JSON_NUMBER && x->number == 0);
}

static gs_status check_model(const gsi_bpe_reader *r, const gsi_node *model)
{
    static const char *const options[] = {"dropout", "continuing_subword_prefix",
                                          "end_of_word_suffix", "byte_fallback", "ignore_merges"};
    const gsi_node *type = gsi_node_get(model, "type");
    char shown[GSI_SHOWN];
    if (!model || model->kind != GSI_JSON_OBJECT)
        return gsi_bpe_fail(r, GS_EFORMAT, "has no model: it is no tokenizer.json");
    if (type && type->kind == GSI_JSON_STRING && strcmp(type->text, "BPE") != 0)
        return gsi_bpe_fail(r, GS_EVERSION, "its model is %s, which is not read: only BPE is",
                            gsi_show(shown, type->text, strlen(type->text)));
    for (size_t i = 0; i < GSI_COUNT(options); i++)
        if (!empty(gsi_node_get(model, options[i])))
            return gsi_bpe_fail(r, GS_EVERSION, "its model asks for %s, which is not read",
                                options[i]);
    return GS_OK;
}

gs_status gsi_bpe_tokenizer_json(gsi_bpe_reader *r, const gsi_node *root)
{
    static const json_part parts[] = {
        {.key = "truncation"},
        {.key = "padding"},
        {.key = "normalizer"},
        {.key = "pre_tokenizer", .byte_level = true, .needed = true},
        {.key = "post_processor", .byte_level = true, .template = true},
        {.key = "decoder", .byte_level = true}};
    const gsi_node *model = gsi_node_get(root, "model"),
                   *added = gsi_node_get(root, "added_tokens");
    const bool list = added && added->kind == GSI_JSON_ARRAY;
    const size_t more = list ? added->count : 0;
    gs_status status = check_model(r, model);
    for (size_t i = 0; i < GSI_COUNT(parts) && status == GS_OK; i++)
        status = check_part(r, root, &parts[i]);
    if (status == GS_OK && more > MOST_ADDED)
        status = gsi_bpe_fail(r, GS_ESIZE, "has %zu added tokens: at most %d can be read", more,
                              MOST_ADDED);
    if (status == GS_OK)
        status = gsi_bpe_vocab(r, gsi_node_get(model, "vocab"), more);
    if (status == GS_OK)
        status = read_merges(r, gsi_node_get(model, "merges"));
    if (status == GS_OK)
        status = gsi_bpe_added(r, list ? added : NULL, 0);
    if (status != GS_OK)
        return status;
    r->t->prefix_space = is_true(gsi_node_get(root, "pre_tokenizer"), "add_prefix_space");
    gsi_bpe_finish(r);
    return GS_OK;
}
