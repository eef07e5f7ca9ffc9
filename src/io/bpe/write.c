/* A tokenizer as the text of files that others read, and gs_tokenizer_read. */
#include "io/bpe/bpe.h"
#include "io/line.h"

/* One that is not raw, in the alphabet of files, escaped for JSON or as it is. */
static void put_token(gsi_line *line, const gs_tokenizer *t, uint32_t id, bool json)
{
    const gsi_token *x = &t->tokens[id];
    const char *bytes = t->bytes + x->at;
    for (size_t i = 0; i < x->length; i++) {
        const uint32_t code = gsi_char_of_byte((uint8_t)bytes[i]);
        char out[4] = {0};
        size_t n = 0;
        if (json && (code == '"' || code == '\\'))
            out[n++] = '\\';
        if (code < 0x80) {
            out[n] = (char)code;
        } else {
            out[n++] = (char)(0xC0 | code >> 6);
            out[n] = (char)(0x80 | (code & 0x3F));
        }
        gsi_put(line, out);
    }
}

static void put_vocab(gsi_line *line, const gs_tokenizer *t)
{
    for (uint32_t id = 0; id < t->n; id++) {
        gsi_put_name(line, NULL);
        if (t->tokens[id].raw) {
            gsi_put_string(line, t->bytes + t->tokens[id].at);
        } else {
            gsi_put(line, "\"");
            put_token(line, t, id, true);
            gsi_put(line, "\"");
        }
        gsi_put(line, ":");
        gsi_put_count(line, id);
    }
}

static void put_merges(gsi_line *line, const gs_tokenizer *t, bool json)
{
    for (size_t i = 0; i < t->n_merges; i++) {
        gsi_put(line, !json ? "" : i ? ",\"" : "\"");
        put_token(line, t, t->merges[i].left, json);
        gsi_put(line, " ");
        put_token(line, t, t->merges[i].right, json);
        gsi_put(line, json ? "\"" : "\n");
    }
}

static void put_flag(gsi_line *line, const char *name, bool value)
{
    gsi_add_open(line, name, value ? "true" : "false");
}

/* In the order of their ids: Hugging Face's reader numbers by it. */
static void put_added(gsi_line *line, const gs_tokenizer *t)
{
    for (int32_t last = -1;;) {
        const gsi_added *next = NULL;
        for (size_t i = 0; i < t->n_added; i++)
            if (t->added[i].id > last && (!next || t->added[i].id < next->id))
                next = &t->added[i];
        if (!next)
            break;
        last = next->id;
        gsi_add_open(line, NULL, "{");
        gsi_add_count(line, "id", (uint64_t)next->id);
        gsi_add_string(line, "content", t->bytes + next->at);
        put_flag(line, "single_word", false);
        put_flag(line, "lstrip", next->lstrip);
        put_flag(line, "rstrip", next->rstrip);
        put_flag(line, "normalized", next->normalized);
        put_flag(line, "special", next->special);
        gsi_put(line, "}");
    }
}

static void put_json(gsi_line *line, const gs_tokenizer *t)
{
    gsi_put(line, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[");
    put_added(line, t);
    gsi_put(line, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\"");
    put_flag(line, "add_prefix_space", t->prefix_space);
    gsi_put(line, ",\"trim_offsets\":true,\"use_regex\":true},"
                  "\"post_processor\":null,"
                  "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,"
                  "\"trim_offsets\":true,\"use_regex\":true},"
                  "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
                  "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                  "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,"
                  "\"vocab\":{");
    put_vocab(line, t);
    gsi_put(line, "},\"merges\":[");
    put_merges(line, t, true);
    gsi_put(line, "]}}");
}

gs_status gs_tokenizer_text(char *text, size_t room, size_t *used, const gs_tokenizer *t,
                            gs_tokenizer_file file, gs_error *error)
{
    if (!t || (room > 0 && !text))
        return gsi_fail(error, GS_ENULL, "there is no tokenizer, or no place for its text");
    gsi_heap heap = t->heap; /* its hook, and counts of its own: the tokenizer is only read */
    gsi_line line = {.heap = &heap};
    if (file == GS_TOKENIZER_JSON) {
        put_json(&line, t);
    } else if (file == GS_VOCAB_JSON) {
        gsi_put(&line, "{");
        put_vocab(&line, t);
        gsi_put(&line, "}");
    } else {
        gsi_put(&line, "#version: 0.2\n");
        put_merges(&line, t, false);
    }
    size_t n;
    const gs_status status = gsi_line_copy(&line, text, room, &n);
    if (used)
        *used = n;
    if (status == GS_ENOMEM)
        return gsi_fail(error, status, "no memory for the text of a tokenizer");
    if (status == GS_ESIZE)
        return gsi_fail(error, status, "the text of the tokenizer has %zu bytes, more than %zu", n,
                        room);
    return status;
}
