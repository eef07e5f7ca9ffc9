/* Writing safetensors (safetensors.c says what they are): the same list gives the same bytes. */
#include "io/write.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100000000, PREFIX = 8 };

static size_t size_of(gs_dtype dtype) { return gs_dtype_format(dtype)->bytes; }

/* ---- the order of the file ---- */

static int by_size_and_name(const void *pa, const void *pb)
{
    const gsi_tensor *a = pa, *b = pb;
    const size_t m = size_of(a->dtype), n = size_of(b->dtype);
    return m != n ? (m > n ? -1 : 1) : strcmp(a->name, b->name);
}

void gsi_sort_tensors(gsi_tensor *list, size_t n)
{
    if (n > 0)
        qsort(list, n, sizeof *list, by_size_and_name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static gs_status check_names(const gsi_tensor *list, size_t n, gsi_heap *heap, gs_error *error)
{
    char shown[GSI_SHOWN];
    for (size_t i = 0; i < n; i++) {
        const char *name = list[i].name;
        if (!name[0] || !gsi_utf8(name, strlen(name)) || strcmp(name, "__metadata__") == 0)
            return gsi_fail(error, GS_ENAME, "no file can hold a tensor with the name %s",
                            gsi_show(shown, name, strlen(name)));
    }
    const char **names = gsi_new(heap, (n + 1) * sizeof *names);
    if (!names)
        return gsi_fail(error, GS_ENOMEM, "no memory for the names of %zu tensors", n);
    for (size_t i = 0; i < n; i++)
        names[i] = list[i].name;
    names[n] = GSI_CHECKSUM_NAME;
    qsort(names, n + 1, sizeof *names, by_name);
    gs_status status = GS_OK;
    for (size_t i = 1; status == GS_OK && i <= n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = gsi_fail(error, GS_ENAME, "two tensors of the file would be called %s",
                              gsi_show(shown, names[i], strlen(names[i])));
    gsi_free(heap, names);
    return status;
}

/* ---- the header ---- */

/* Text that is written, or where there is no room yet only measured. */
typedef struct text {
    char *at;
    size_t length;
} text;

static void put(text *t, const char *format, ...) GS_PRINTF(2, 3);
static void put(text *t, const char *format, ...)
{
    char piece[128];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (t->at)
        memcpy(t->at + t->length, piece, (size_t)n);
    t->length += (size_t)n;
}

static void put_char(text *t, char c)
{
    if (t->at)
        t->at[t->length] = c;
    t->length++;
}

static void put_string(text *t, const char *s)
{
    put_char(t, '"');
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20) {
            put(t, "\\u%04x", (unsigned)*s);
            continue;
        }
        if (*s == '"' || *s == '\\')
            put_char(t, '\\');
        put_char(t, *s);
    }
    put_char(t, '"');
}

static void put_tensor(text *t, const char *name, const char *type, int rank, const uint64_t *shape,
                       uint64_t begin, uint64_t end)
{
    put_string(t, name);
    put(t, ":{\"dtype\":\"%s\",\"shape\":[", type);
    for (int d = 0; d < rank; d++)
        put(t, d ? ",%llu" : "%llu", (unsigned long long)shape[d]);
    put(t, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin, (unsigned long long)end);
}

static const char *type_of(gs_dtype dtype)
{
    static const char *const types[] = {
        [GS_F32] = "F32", [GS_F16] = "F16", [GS_BF16] = "BF16", [GS_F64] = "F64"};
    return types[dtype];
}

/* Padded with blanks, so that the data are aligned to 64 bytes in the file. */
static void put_header(text *t, gsi_tensor *list, size_t n, const gsi_text *texts, size_t n_texts,
                       bool checked)
{
    static const uint64_t checksum[] = {GSI_CHECKSUM_BYTES};
    uint64_t at = 0;
    t->length = PREFIX;
    put(t, "{\"__metadata__\":{");
    for (size_t i = 0; i < n_texts; i++) {
        put(t, i ? "," : "");
        put_string(t, texts[i].key);
        put(t, ":");
        put_string(t, texts[i].value);
    }
    put(t, "},");
    for (size_t i = 0; i < n; i++) {
        gsi_tensor *x = &list[i];
        x->at = at;
        at += x->count * size_of(x->dtype);
        put_tensor(t, x->name, type_of(x->dtype), x->rank, x->shape, x->at, at);
        put(t, checked || i + 1 < n ? "," : "");
    }
    if (checked)
        put_tensor(t, GSI_CHECKSUM_NAME, "U8", 1, checksum, at, at + GSI_CHECKSUM_BYTES);
    put(t, "}");
    while (t->length % GSI_ALIGN)
        put_char(t, ' ');
}

static void put_little(uint8_t out[8], uint64_t x)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(x >> 8 * i);
}

static gs_status make_header(char **header, size_t *length, gsi_tensor *list, size_t n,
                             const gsi_text *texts, size_t n_texts, bool checked, gsi_heap *heap,
                             gs_error *error)
{
    *header = NULL;
    const gs_status status = check_names(list, n, heap, error);
    if (status != GS_OK)
        return status;
    for (size_t i = 0; i < n_texts; i++)
        if (!gsi_utf8(texts[i].value, strlen(texts[i].value)))
            return gsi_fail(error, GS_EFORMAT, "the text %s is not valid UTF-8", texts[i].key);
    text t = {0};
    put_header(&t, list, n, texts, n_texts, checked);
    if (t.length > MAX_HEADER)
        return gsi_fail(error, GS_ESIZE, "the names of %zu tensors are too long for one file", n);
    t.at = gsi_new(heap, t.length);
    if (!t.at)
        return gsi_fail(error, GS_ENOMEM, "no memory for the header of a file of %zu tensors", n);
    put_header(&t, list, n, texts, n_texts, checked);
    put_little((uint8_t *)t.at, t.length - PREFIX);
    *header = t.at;
    *length = t.length;
    return GS_OK;
}

gs_status gsi_safetensors_header(char **header, size_t *length, gsi_tensor *list, size_t n,
                                 const gsi_text *texts, size_t n_texts, gsi_heap *heap,
                                 gs_error *error)
{
    return make_header(header, length, list, n, texts, n_texts, true, heap, error);
}

/* ---- the file ---- */

/* In the file's order of bytes; on most machines that is the one in memory. */
static gs_status write_tensor(gsi_replace *file, const gsi_tensor *x, gs_error *error)
{
    enum { PIECE = 1 << 13 }; /* bytes: a multiple of every element */
    const size_t item = size_of(x->dtype), bytes = (size_t)x->count * item;
    char piece[PIECE];
    if (!gsi_big_endian()) /* uncovered: the machine has one order of bytes */
        return gsi_replace_write(file, x->data, bytes, error);
    gs_status status = GS_OK;
    for (size_t at = 0; at < bytes && status == GS_OK; at += PIECE) { /* uncovered: big-endian */
        const size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        memcpy(piece, (const char *)x->data + at, n);
        gsi_swap_bytes(piece, n / item, item);
        status = gsi_replace_write(file, piece, n, error);
    }
    return status;
}

static gs_status write_file(const char *path, const char *header, size_t length,
                            const gsi_tensor *list, size_t n, bool checked, gs_error *error)
{
    gsi_replace file;
    uint8_t checksum[GSI_CHECKSUM_BYTES];
    gs_status status = gsi_replace_begin(&file, path, error);
    if (status == GS_OK)
        status = gsi_replace_write(&file, header, length, error);
    for (size_t i = 0; status == GS_OK && i < n; i++)
        status = write_tensor(&file, &list[i], error);
    if (status == GS_OK && checked) {
        put_little(checksum, gsi_hash_end(&file.hash));
        status = gsi_replace_write(&file, checksum, sizeof checksum, error);
    }
    return status == GS_OK ? gsi_replace_end(&file, error) : status;
}

gs_status gsi_safetensors_write(const char *path, const char *header, size_t length,
                                const gsi_tensor *list, size_t n, gs_error *error)
{
    return write_file(path, header, length, list, n, true, error);
}

gs_status gsi_safetensors_export(const char *path, gsi_tensor *list, size_t n,
                                 const gsi_text *texts, size_t n_texts, gsi_heap *heap,
                                 gs_error *error)
{
    char *header;
    size_t length;
    gsi_sort_tensors(list, n);
    gs_status status = make_header(&header, &length, list, n, texts, n_texts, false, heap, error);
    if (status == GS_OK)
        status = write_file(path, header, length, list, n, false, error);
    gsi_free(heap, header);
    return status;
}
