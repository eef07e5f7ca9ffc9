/* safetensors: 8 bytes with the length of the header, the header in JSON, the data.
 *
 *     {"__metadata__": {"format": "pt"},
 *      "fc.weight": {"dtype": "BF16", "shape": [64, 128], "data_offsets": [0, 16384]}, ...}
 *
 * Offsets count from the end of the header. Sorted by them, the tensors must follow one another
 * without a hole or an overlap, from 0 to the end of the file. */
#include "io/io.h"

#include <jansson.h>
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

/* A whole number, not negative. */
static bool get_number(const json_t *json, uint64_t *out)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0)
        return false;
    *out = (uint64_t)json_integer_value(json);
    return true;
}

static gs_status read_tensor(gs_source *s, gsi_entry *e, const char *name, const json_t *info,
                             gs_error *error)
{
    char shown[GSI_SHOWN];
    gsi_show(shown, name, strlen(name));
    const json_t *dtype = json_object_get(info, "dtype");
    const json_t *shape = json_object_get(info, "shape");
    const json_t *offsets = json_object_get(info, "data_offsets");
    if (!json_is_string(dtype) || !json_is_array(shape) || !json_is_array(offsets) ||
        json_object_size(info) != 3)
        return gsi_bad_file(s, error, GS_EFORMAT,
                            "tensor %s is not described by dtype, shape and data_offsets", shown);

    const struct type *type = NULL;
    for (size_t i = 0; i < GSI_COUNT(types); i++)
        if (strcmp(types[i].name, json_string_value(dtype)) == 0)
            type = &types[i];
    if (!type) {
        char spelled[GSI_SHOWN];
        return gsi_bad_file(s, error, GS_EDTYPE, "tensor %s is of an unknown type, %s", shown,
                            gsi_show(spelled, json_string_value(dtype), json_string_length(dtype)));
    }
    e->pub.type = type->name;
    e->pub.dtype = type->dtype;
    e->item = type->bits / 8;

    if (json_array_size(shape) > GS_MAX_RANK)
        return gsi_bad_file(s, error, GS_ESIZE, "tensor %s has more than %d dimensions", shown,
                            (int)GS_MAX_RANK);
    e->pub.rank = (int)json_array_size(shape);
    for (int d = 0; d < e->pub.rank; d++)
        if (!get_number(json_array_get(shape, (size_t)d), &e->pub.shape[d]))
            return gsi_bad_file(s, error, GS_EFORMAT,
                                "the shape of tensor %s is not made of whole numbers", shown);
    if (!gsi_set_count(&e->pub, type->bits))
        return gsi_bad_file(s, error, GS_ESIZE, "the shape of tensor %s overflows", shown);
    if (e->pub.count * type->bits % 8 != 0)
        return gsi_bad_file(s, error, GS_EFORMAT, "tensor %s does not end at a whole byte", shown);

    uint64_t begin, end;
    if (json_array_size(offsets) != 2 || !get_number(json_array_get(offsets, 0), &begin) ||
        !get_number(json_array_get(offsets, 1), &end))
        return gsi_bad_file(s, error, GS_EFORMAT,
                            "the data_offsets of tensor %s are not two whole numbers", shown);
    if (begin > end || end - begin != e->pub.bytes)
        return gsi_bad_file(s, error, GS_EFORMAT,
                            "tensor %s lies at %llu to %llu, but its shape and type ask for %llu"
                            " bytes",
                            shown, (unsigned long long)begin, (unsigned long long)end,
                            (unsigned long long)e->pub.bytes);
    e->pub.offset = begin;
    e->pub.name = gsi_keep_string(s, name, strlen(name));
    return e->pub.name ? GS_OK : gsi_no_memory(s, error);
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

static gs_status read_metadata(gs_source *s, json_t *info, gs_error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(info))
        return gsi_bad_file(s, error, GS_EFORMAT, "its __metadata__ is not an object");
    s->texts = gsi_arena_new(&s->arena, json_object_size(info), sizeof *s->texts);
    if (!s->texts)
        return gsi_no_memory(s, error);
    json_object_foreach(info, key, value)
    {
        if (!json_is_string(value))
            return gsi_bad_file(s, error, GS_EFORMAT,
                                "its __metadata__ holds something that is not a string");
        gsi_text *text = &s->texts[s->n_texts];
        text->key = gsi_keep_string(s, key, strlen(key));
        text->value = gsi_keep_string(s, json_string_value(value), json_string_length(value));
        if (!text->key || !text->value)
            return gsi_no_memory(s, error);
        s->n_texts++;
    }
    return GS_OK;
}

static gs_status read_header(gs_source *s, json_t *root, uint64_t start, gs_error *error)
{
    const char *name;
    json_t *info;
    if (!gsi_new_entries(s, json_object_size(root)))
        return gsi_no_memory(s, error);
    json_object_foreach(root, name, info)
    {
        const bool metadata = strcmp(name, "__metadata__") == 0;
        const gs_status status = metadata
                                     ? read_metadata(s, info, error)
                                     : read_tensor(s, &s->entries[s->count], name, info, error);
        if (status != GS_OK)
            return status;
        s->count += !metadata;
    }
    return check_layout(s, start, error);
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
    json_t *root = NULL;
    if (status == GS_OK) {
        json_error_t where;
        root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &where);
        if (!root) {
            char shown[GSI_SHOWN]; /* it quotes the file */
            status =
                json_error_code(&where) == json_error_out_of_memory
                    ? gsi_no_memory(s, error)
                    : gsi_bad_file(s, error, GS_EFORMAT, "its header is wrong at byte %d: %s",
                                   where.position, gsi_show(shown, where.text, strlen(where.text)));
        }
    }
    gsi_free(&s->heap, text);
    if (status == GS_OK)
        status = read_header(s, root, sizeof prefix + length, error);
    json_decref(root);
    return status;
}
