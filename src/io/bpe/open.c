/* Which files a tokenizer is, and its life. */
#include "io/bpe/read.h"
#include "io/file.h"
#include "io/folder.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FILE = 64 << 20 }; /* bytes of a file */

/* ---- life ---- */

gs_status gsi_tokenizer_new(gs_tokenizer **out, const gs_alloc *alloc, gs_error *error)
{
    gsi_heap heap;
    gsi_heap_init(&heap, alloc);
    gs_tokenizer *t = gsi_new(&heap, sizeof *t);
    *out = t;
    if (!t)
        return gsi_fail(error, GS_ENOMEM, "there is no memory for a tokenizer");
    *t = (gs_tokenizer){.heap = heap};
    return GS_OK;
}

void gs_tokenizer_free(gs_tokenizer *t)
{
    if (!t)
        return;
    gsi_heap heap = t->heap; /* it lies in its own heap */
    void *const blocks[] = {t->tokens, t->bytes, t->slots, t->merges, t->table,
                            t->added,  t->cache, t->work,  t};
    for (size_t i = 0; i < GSI_COUNT(blocks); i++)
        gsi_free(&heap, blocks[i]);
}

/* ---- files ---- */

/* A file and its JSON, for as long as it is read. */
typedef struct source {
    gsi_heap *heap;
    gsi_arena arena;
    char shown[GSI_SHOWN_PATH];
    char *text;
    size_t length;
} source;

static gs_status load(source *s, const char *path, gs_error *error)
{
    gsi_file file;
    gsi_show_path(s->shown, path);
    gs_status status = gsi_file_open(&file, path, error);
    if (status != GS_OK)
        return status;
    if (file.size > MOST_FILE)
        status = gsi_file_fail(&file, error, GS_ESIZE, "has %llu bytes: a tokenizer has at most %d",
                               (unsigned long long)file.size, MOST_FILE);
    else if (!(s->text = gsi_new(s->heap, (size_t)file.size + 1)))
        status = gsi_file_fail(&file, error, GS_ENOMEM, "there is no memory to read it");
    if (status == GS_OK)
        status = gsi_file_read(&file, s->text, (size_t)file.size, 0, error);
    s->length = (size_t)file.size;
    gsi_file_close(&file);
    return status;
}

static void unload(source *s)
{
    gsi_arena_free(&s->arena);
    gsi_free(s->heap, s->text);
    s->text = NULL;
}

static gs_status parse(const gsi_node **root, source *s, gsi_bpe_reader *r)
{
    gsi_json j = gsi_json_of(s->text, s->length);
    const char *wrong;
    const gs_status status = gsi_json_tree(root, &j, &s->arena, &wrong);
    if (status == GS_ENOMEM)
        return gsi_bpe_fail(r, status, "there is no memory to read it");
    if (status == GS_ESIZE)
        return gsi_bpe_fail(r, status, "has more than %d values", GSI_JSON_NODES);
    if (status != GS_OK)
        return gsi_bpe_fail(r, status, "is no JSON at byte %zu: %s", j.at, wrong);
    return GS_OK;
}

/* Lines of two tokens; the first may be "#version: 0.2". */
static gs_status read_merges(gsi_bpe_reader *r, const source *s)
{
    const char *p = s->text, *const end = s->text + s->length;
    size_t lines = 0;
    if (!gsi_utf8(s->text, s->length))
        return gsi_bpe_fail(r, GS_EFORMAT, "is not UTF-8");
    for (const char *q = p; q < end; q++)
        lines += *q == '\n';
    gs_status status = gsi_bpe_merges(r, lines + 1);
    for (bool first = true; p < end && status == GS_OK; first = false) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop ? stop : end;
        const size_t n = (size_t)(stop - p) - (stop > p && stop[-1] == '\r');
        if (!(first && n >= 8 && memcmp(p, "#version", 8) == 0))
            status = gsi_bpe_merge_line(r, p, n);
        p = stop + 1;
    }
    return status == GS_OK ? gsi_bpe_merges_whole(r) : status;
}

/* The file of merges beside a vocabulary. transformers' GPT2Tokenizer takes <|endoftext|> for an
 * added token. */
static gs_status read_pair(gsi_bpe_reader *r, const gsi_node *vocab, const char *path, source *s)
{
    char merges[GSI_PATH];
    gs_status status = gsi_bpe_vocab(r, vocab, 0);
    if (status != GS_OK)
        return status;
    if (!gsi_path_replace(merges, path, "vocab.json", "merges.txt"))
        return gsi_bpe_fail(r, GS_EFORMAT,
                            "has a vocabulary alone: call it vocab.json, with merges.txt beside");
    unload(s);
    status = load(s, merges, r->error);
    if (status == GS_OK)
        status = read_merges(r, s);
    if (status == GS_OK)
        status = gsi_bpe_added(r, NULL, 1);
    if (status != GS_OK)
        return status;
    const int32_t end = gsi_vocab_find(r->t, GSI_END_OF_TEXT, strlen(GSI_END_OF_TEXT), false);
    if (end >= 0)
        status = gsi_bpe_add(r, GSI_END_OF_TEXT, (gsi_added){.id = end, .special = true});
    gsi_bpe_finish(r);
    return status;
}

/* A vocabulary is an object of numbers; a tokenizer.json has a model. */
static gs_status read_source(gs_tokenizer *t, source *s, const char *path, gs_error *error)
{
    const gsi_node *root = NULL;
    gsi_bpe_reader *r = gsi_new(s->heap, sizeof *r);
    if (!r)
        return gsi_fail(error, GS_ENOMEM, "%s: there is no memory to read it", s->shown);
    r->t = t;
    r->name = s->shown;
    r->error = error;
    gs_status status = parse(&root, s, r);
    const bool pair = path && root && root->kind == GSI_JSON_OBJECT && root->first &&
                      root->first->kind == GSI_JSON_NUMBER;
    if (status == GS_OK)
        status = pair ? read_pair(r, root, path, s) : gsi_bpe_tokenizer_json(r, root);
    gsi_free(s->heap, r);
    return status;
}

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* The file of a folder that says most. */
static gs_status find(char file[GSI_PATH], const char *path, gs_error *error)
{
    static const char *const names[] = {"tokenizer.json", "vocab.json"};
    struct stat st;
    char shown[GSI_SHOWN_PATH];
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const size_t count = folder ? GSI_COUNT(names) : 1;
    for (size_t i = 0; i < count; i++) {
        if (snprintf(file, GSI_PATH, "%s%s%s", path, folder ? "/" : "", folder ? names[i] : "") >=
            GSI_PATH)
            return gsi_fail(error, GS_ESIZE, "%s: the path is too long",
                            gsi_show_path(shown, path));
        if (!folder || is_there(file))
            return GS_OK;
    }
    return gsi_fail(error, GS_EIO, "%s: has no tokenizer.json and no vocab.json",
                    gsi_show_path(shown, path));
}

static gs_status make(gs_tokenizer **out, const char *path, const char *text, size_t length,
                      const gs_alloc *alloc, gs_error *error)
{
    gs_tokenizer *t;
    gs_status status = gsi_tokenizer_new(&t, alloc, error);
    if (status != GS_OK)
        return status;
    source s = {.heap = &t->heap, .shown = "the tokenizer"};
    gsi_arena_init(&s.arena, &t->heap);
    if (path) {
        status = load(&s, path, error);
    } else if (length > MOST_FILE) {
        status =
            gsi_fail(error, GS_ESIZE, "the tokenizer has %zu bytes: at most %d", length, MOST_FILE);
    } else if ((s.text = gsi_new(s.heap, length + 1))) {
        memcpy(s.text, text, length);
        s.length = length;
    } else {
        status = gsi_fail(error, GS_ENOMEM, "there is no memory to read the tokenizer");
    }
    if (status == GS_OK)
        status = read_source(t, &s, path, error);
    unload(&s);
    if (status == GS_OK)
        *out = t;
    else
        gs_tokenizer_free(t);
    return status;
}

gs_status gs_tokenizer_open(gs_tokenizer **out, const char *path, const gs_alloc *alloc,
                            gs_error *error)
{
    char file[GSI_PATH];
    if (!out || !path)
        return gsi_fail(error, GS_ENULL, "there is no tokenizer to read");
    *out = NULL;
    const gs_status status = find(file, path, error);
    return status == GS_OK ? make(out, file, NULL, 0, alloc, error) : status;
}

gs_status gs_tokenizer_read(gs_tokenizer **out, const char *text, size_t length,
                            const gs_alloc *alloc, gs_error *error)
{
    if (!out || !text)
        return gsi_fail(error, GS_ENULL, "there is no tokenizer to read");
    *out = NULL;
    return make(out, NULL, text, length, alloc, error);
}
