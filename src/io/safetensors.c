/* safetensors: 8 bytes with the length of the header, the header in JSON, the data.
 *
 *     {"__metadata__": {"format": "pt"},
 *      "fc.weight": {"dtype": "BF16", "shape": [64, 128], "data_offsets": [0, 16384]}, ...}
 *
 * The header is read token by token, twice: to count the tensors, then into their entries. Besides
 * its bytes it takes sizeof(gsi_entry) per tensor, at most ten times its length in all.
 *
 * Offsets count from the end of the header. Sorted by them, the tensors must follow one another
 * without a hole or an overlap, from 0 to the end of the file. */
#include "io/io.h"

#include "io/json.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100000000 }; /* as the reference implementation */

/*    spelling  bits  what can be read */
#define TYPES(X)               \
    X("F64", 64, GS_F64)       \
    X("F32", 32, GS_F32)       \
    X("F16", 16, GS_F16)       \
    X("BF16", 16, GS_BF16)     \
    X("BOOL", 8, OTHER)        \
    X("U8", 8, OTHER)          \
    X("I8", 8, OTHER)          \
    X("U16", 16, OTHER)        \
    X("I16", 16, OTHER)        \
    X("U32", 32, OTHER)        \
    X("I32", 32, OTHER)        \
    X("U64", 64, OTHER)        \
    X("I64", 64, OTHER)        \
    X("C64", 64, OTHER)        \
    X("F8_E5M2", 8, OTHER)     \
    X("F8_E4M3", 8, OTHER)     \
    X("F8_E5M2FNUZ", 8, OTHER) \
    X("F8_E4M3FNUZ", 8, OTHER) \
    X("F8_E8M0", 8, OTHER)     \
    X("F6_E3M2", 6, OTHER)     \
    X("F6_E2M3", 6, OTHER)     \
    X("F4", 4, OTHER)

static const struct type {
    const char *name;
    unsigned bits;
    gs_dtype dtype;
} types[] = {
#define OTHER                GS_DTYPE_COUNT
#define X(name, bits, dtype) {name, bits, dtype},
    TYPES(X)
#undef X
#undef OTHER
};

/* ---- values ---- */

/* The header as it is read. */
typedef struct header {
    gs_source *s;
    gsi_json j;
    gs_error *error;
} header;

/* Of a header that has been read to its end before: it is JSON. */
static gsi_json_kind next(header *h)
{
    gsi_json_next(&h->j);
    return h->j.kind;
}

/* Numbers of the array that was opened, at most `most`; -1: something else is in it, or more. */
static int read_counts(header *h, uint64_t *out, int most)
{
    int n = 0;
    while (next(h) != GSI_JSON_CLOSE) {
        if (n == most)
            return most + 1;
        if (!gsi_json_count(&out[n++], &h->j))
            return -1;
    }
    return n;
}

static const struct type *type_of(const gsi_json *j)
{
    for (size_t i = 0; i < GSI_COUNT(types); i++)
        if (gsi_json_is(j, types[i].name))
            return &types[i];
    return NULL;
}

static gs_status check_tensor(gs_source *s, gsi_entry *e, const struct type *type,
                              const uint64_t offsets[2], const char *shown, gs_error *error)
{
    e->pub.type = type->name;
    e->pub.dtype = type->dtype;
    e->item = type->bits / 8;
    if (!gsi_set_count(&e->pub, type->bits))
        return gsi_bad_file(s, error, GS_ESIZE, "the shape of tensor %s overflows", shown);
    if (e->pub.count * type->bits % 8 != 0)
        return gsi_bad_file(s, error, GS_EFORMAT, "tensor %s does not end at a whole byte", shown);
    if (offsets[0] > offsets[1] || offsets[1] - offsets[0] != e->pub.bytes)
        return gsi_bad_file(s, error, GS_EFORMAT,
                            "tensor %s lies at %llu to %llu, but its shape and type ask for %llu"
                            " bytes",
                            shown, (unsigned long long)offsets[0], (unsigned long long)offsets[1],
                            (unsigned long long)e->pub.bytes);
    e->pub.offset = offsets[0];
    return GS_OK;
}

/* The value of a tensor's name: {"dtype": .., "shape": .., "data_offsets": ..}, each once. */
static gs_status read_tensor(header *h, gsi_entry *e)
{
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4, ALL = 7 };
    gs_source *s = h->s;
    gsi_json *j = &h->j;
    char shown[GSI_SHOWN], spelled[GSI_SHOWN];
    uint64_t offsets[2] = {0};
    const struct type *type = NULL;
    unsigned seen = 0;
    gsi_show(shown, e->pub.name, strlen(e->pub.name));
    bool described = j->kind == GSI_JSON_OBJECT;
    while (described && next(h) != GSI_JSON_CLOSE) {
        const unsigned member = gsi_json_is(j, "dtype")          ? DTYPE
                                : gsi_json_is(j, "shape")        ? SHAPE
                                : gsi_json_is(j, "data_offsets") ? OFFSETS
                                                                 : 0;
        const gsi_json_kind want = member == DTYPE ? GSI_JSON_STRING : GSI_JSON_ARRAY;
        described = next(h) == want && member && !(seen & member);
        seen |= member;
        if (!described)
            break;
        if (member == DTYPE) {
            type = type_of(j);
            if (!type)
                return gsi_bad_file(s, h->error, GS_EDTYPE, "tensor %s is of an unknown type, %s",
                                    shown, gsi_show(spelled, j->text + j->begin, j->size));
            continue;
        }
        const int most = member == SHAPE ? GS_MAX_RANK : 2;
        const int n = read_counts(h, member == SHAPE ? e->pub.shape : offsets, most);
        if (member == SHAPE && n > most)
            return gsi_bad_file(s, h->error, GS_ESIZE, "tensor %s has more than %d dimensions",
                                shown, (int)GS_MAX_RANK);
        if (member == SHAPE && n < 0)
            return gsi_bad_file(s, h->error, GS_EFORMAT,
                                "the shape of tensor %s is not made of whole numbers", shown);
        if (member == OFFSETS && n != 2)
            return gsi_bad_file(s, h->error, GS_EFORMAT,
                                "the data_offsets of tensor %s are not two whole numbers", shown);
        if (member == SHAPE)
            e->pub.rank = n;
    }
    if (!described || seen != ALL)
        return gsi_bad_file(s, h->error, GS_EFORMAT,
                            "tensor %s is not described by dtype, shape and data_offsets", shown);
    return check_tensor(s, e, type, offsets, shown, h->error);
}

static int by_offset(const void *pa, const void *pb)
{
    const gs_entry *a = &((const gsi_entry *)pa)->pub, *b = &((const gsi_entry *)pb)->pub;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) /* an empty one before that which starts at the same place */
        return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Data from `start` in the file on. Makes offsets count from the start of the file. */
static gs_status check_layout(gs_source *s, uint64_t start, gs_error *error)
{
    char shown[GSI_SHOWN];
    uint64_t at = 0;
    const uint64_t data = s->file.size - start;
    qsort(s->entries, s->count, sizeof *s->entries, by_offset);
    for (size_t i = 0; i < s->count; i++) {
        gs_entry *e = &s->entries[i].pub;
        gsi_show(shown, e->name, strlen(e->name));
        if (e->offset > data || e->bytes > data - e->offset)
            return gsi_bad_file(s, error, GS_EFORMAT,
                                "tensor %s lies at %llu to %llu, but the file has %llu bytes of"
                                " data",
                                shown, (unsigned long long)e->offset,
                                (unsigned long long)(e->offset + e->bytes),
                                (unsigned long long)data);
        if (e->offset != at)
            return gsi_bad_file(s, error, GS_EFORMAT,
                                e->offset < at ? "tensor %s overlaps the one before it"
                                               : "there is a hole before tensor %s",
                                shown);
        at += e->bytes;
        e->offset += start;
    }
    if (at != data)
        return gsi_bad_file(s, error, GS_EFORMAT, "%llu bytes at its end belong to no tensor",
                            (unsigned long long)(data - at));
    return GS_OK;
}

/* ---- the header ---- */

static const char *keep_string(header *h)
{
    char *text = gsi_arena_new(&h->s->arena, h->j.size + 1, 1);
    if (text)
        gsi_json_string(text, &h->j);
    return text;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const gsi_text *)a)->key, ((const gsi_text *)b)->key);
}

static gs_status read_metadata(header *h, size_t most)
{
    gs_source *s = h->s;
    if (h->j.kind != GSI_JSON_OBJECT)
        return gsi_bad_file(s, h->error, GS_EFORMAT, "its __metadata__ is not an object");
    s->texts = gsi_arena_new(&s->arena, most > 0 ? most : 1, sizeof *s->texts);
    if (!s->texts)
        return gsi_no_memory(s, h->error);
    while (next(h) != GSI_JSON_CLOSE) {
        gsi_text *text = &s->texts[s->n_texts];
        text->key = keep_string(h);
        if (next(h) != GSI_JSON_STRING)
            return gsi_bad_file(s, h->error, GS_EFORMAT,
                                "its __metadata__ holds something that is not a string");
        text->value = keep_string(h);
        if (!text->key || !text->value)
            return gsi_no_memory(s, h->error);
        s->n_texts++;
    }
    qsort(s->texts, s->n_texts, sizeof *s->texts, by_key);
    for (size_t i = 1; i < s->n_texts; i++)
        if (strcmp(s->texts[i - 1].key, s->texts[i].key) == 0)
            return gsi_bad_file(s, h->error, GS_EFORMAT, "its __metadata__ has a key twice");
    return GS_OK;
}

/* Tensors, and texts of the metadata; and that it is JSON to its end. It starts with {. */
static gs_status count_entries(header h, size_t *tensors, size_t *texts, size_t *metadata)
{
    gsi_json *j = &h.j;
    *tensors = *texts = *metadata = 0;
    bool in_metadata = false;
    while (gsi_json_next(j) && j->kind != GSI_JSON_END) {
        if (j->kind != GSI_JSON_KEY)
            continue;
        if (j->depth == 1) {
            in_metadata = gsi_json_is(j, "__metadata__");
            *metadata += in_metadata;
            *tensors += !in_metadata;
        }
        *texts += j->depth == 2 && in_metadata;
    }
    if (j->wrong)
        return gsi_bad_file(h.s, h.error, GS_EFORMAT, "its header is wrong at byte %zu: %s", j->at,
                            j->wrong);
    return *metadata > 1 ? gsi_bad_file(h.s, h.error, GS_EFORMAT, "it has two __metadata__")
                         : GS_OK;
}

static gs_status read_header(header *h, uint64_t start)
{
    gs_source *s = h->s;
    size_t tensors, texts, metadata;
    gs_status status = count_entries(*h, &tensors, &texts, &metadata);
    if (status != GS_OK)
        return status;
    if (!gsi_new_entries(s, tensors))
        return gsi_no_memory(s, h->error);
    next(h);
    while (status == GS_OK && next(h) == GSI_JSON_KEY) {
        const bool is_metadata = gsi_json_is(&h->j, "__metadata__");
        gsi_entry *e = &s->entries[s->count];
        if (!is_metadata && !(e->pub.name = keep_string(h)))
            return gsi_no_memory(s, h->error);
        next(h);
        status = is_metadata ? read_metadata(h, texts) : read_tensor(h, e);
        s->count += !is_metadata;
    }
    if (status == GS_OK)
        status = gsi_check_names(s, h->error);
    return status == GS_OK ? check_layout(s, start, h->error) : status;
}

gs_status gsi_open_safetensors(gs_source *s, gs_error *error)
{
    uint8_t prefix[8];
    if (s->file.size < sizeof prefix)
        return gsi_bad_file(s, error, GS_EFORMAT, "ends within the length of its header");
    gs_status status = gsi_read_at(s, prefix, sizeof prefix, 0, error);
    if (status != GS_OK)
        return status;
    const uint64_t length = gsi_little(prefix, 8);
    if (length > MAX_HEADER)
        return gsi_bad_file(s, error, GS_ESIZE,
                            "says that its header has %llu bytes; %d are"
                            " read at most",
                            (unsigned long long)length, (int)MAX_HEADER);
    if (length > s->file.size - sizeof prefix)
        return gsi_bad_file(s, error, GS_EFORMAT, "ends within its header");
    char *text = gsi_new(&s->heap, (size_t)length);
    if (!text)
        return gsi_no_memory(s, error);
    status = gsi_read_at(s, text, (size_t)length, sizeof prefix, error);
    if (status == GS_OK && (length == 0 || text[0] != '{'))
        status = gsi_bad_file(s, error, GS_EFORMAT, "its header does not start with {");
    if (status == GS_OK && !gsi_utf8(text, (size_t)length))
        status = gsi_bad_file(s, error, GS_EFORMAT, "its header is not valid UTF-8");
    if (status == GS_OK) {
        header h = {.s = s, .j = gsi_json_of(text, (size_t)length), .error = error};
        status = read_header(&h, sizeof prefix + length);
    }
    gsi_free(&s->heap, text);
    return status;
}
