/* Opening a file, telling its kind, and what the three readers share. */
#include "io/io.h"
#include "io/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- error messages ---- */

gs_status gsi_bad_file(const gs_source *s, gs_error *error, gs_status status, const char *format,
                       ...)
{
    char text[sizeof((gs_error *)0)->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return gsi_fail(error, status, "%s: %s", s->file.path, text);
}

gs_status gsi_no_memory(const gs_source *s, gs_error *error)
{
    return gsi_bad_file(s, error, GS_ENOMEM, "there is no memory to read it");
}

bool gsi_utf8(const char *text, size_t length)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + length;
    for (size_t n; p < end; p += n) {
        uint32_t code;
        n = gsi_utf8_char(&code, p, end);
        if (n == 0 || code == 0)
            return false;
    }
    return true;
}

const char *gsi_show(char out[GSI_SHOWN], const char *name, size_t length)
{
    const bool cut = length >= GSI_SHOWN;
    size_t n = cut ? GSI_SHOWN - 4 : length;
    while (cut && n > 0 && ((uint8_t)name[n] & 0xC0) == 0x80) /* not inside a character */
        n--;
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)name[i] < 0x20 || name[i] == 0x7F ? '?' : name[i];
    strcpy(out + n, cut ? "..." : "");
    return out;
}

/* ---- bytes and entries ---- */

gs_status gsi_read_at(const gs_source *s, void *dst, size_t n, uint64_t offset, gs_error *error)
{
    return gsi_file_read(&s->file, dst, n, offset, error);
}

bool gsi_new_entries(gs_source *s, size_t n)
{
    s->entries = gsi_arena_new(&s->arena, n, sizeof *s->entries);
    if (s->entries)
        memset(s->entries, 0, n * sizeof *s->entries);
    return s->entries != NULL;
}

const char *gsi_keep_string(gs_source *s, const char *text, size_t length)
{
    char *copy = gsi_arena_new(&s->arena, length + 1, 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = 0;
    }
    return copy;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

gs_status gsi_check_names(gs_source *s, gs_error *error)
{
    const char **names = gsi_new(&s->heap, s->count * sizeof *names);
    if (!names)
        return gsi_no_memory(s, error);
    for (size_t i = 0; i < s->count; i++)
        names[i] = s->entries[i].pub.name;
    qsort(names, s->count, sizeof *names, by_name);
    gs_status status = GS_OK;
    for (size_t i = 1; status == GS_OK && i < s->count; i++)
        if (strcmp(names[i - 1], names[i]) == 0) {
            char shown[GSI_SHOWN];
            status = gsi_bad_file(s, error, GS_EFORMAT, "two tensors are named %s",
                                  gsi_show(shown, names[i], strlen(names[i])));
        }
    gsi_free(&s->heap, names);
    return status;
}

/* A zero anywhere makes the product 0, however large the other numbers are: as numpy has it, the
 * rest must still be representable, or the strides of such an array would not be. */
bool gsi_set_count(gs_entry *e, uint64_t bits)
{
    uint64_t count = 1, product = 1;
    for (int i = 0; i < e->rank; i++) {
        const uint64_t n = e->shape[i];
        if (n > INT64_MAX || (n > 0 && product > INT64_MAX / n))
            return false;
        count *= n;
        product *= n > 0 ? n : 1;
    }
    if (bits > 0 && product > INT64_MAX / bits)
        return false;
    e->count = count;
    e->bytes = count * bits / 8;
    return true;
}

/* ---- opening ---- */

typedef gs_status open_fn(gs_source *s, gs_error *error);

static const struct kind {
    const char *name, *suffix;
    open_fn *open;
} kinds[] = {
    {"npy", ".npy", gsi_open_npy},
    {"npz", ".npz", gsi_open_npz},
    {"safetensors", ".safetensors", gsi_open_safetensors},
};

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The content decides; where it says nothing the name does, so that a damaged file is told what is
 * wrong with it. */
static const struct kind *kind_of(const char *path, const uint8_t *start, size_t n)
{
    if (n >= 6 && memcmp(start, "\x93NUMPY", 6) == 0)
        return &kinds[0];
    if (n >= 4 && (memcmp(start, "PK\3\4", 4) == 0 || memcmp(start, "PK\5\6", 4) == 0))
        return &kinds[1];
    if (n >= 9 && start[8] == '{')
        return &kinds[2];
    for (size_t i = 0; i < GSI_COUNT(kinds); i++)
        if (ends_with(path, kinds[i].suffix))
            return &kinds[i];
    return NULL;
}

static gs_status open_file(gs_source *s, const char *path, gs_error *error)
{
    gs_status status = gsi_file_open(&s->file, path, error);
    if (status != GS_OK)
        return status;
    uint8_t start[9];
    const size_t n = s->file.size < sizeof start ? (size_t)s->file.size : sizeof start;
    status = gsi_read_at(s, start, n, 0, error);
    if (status != GS_OK)
        return status;
    const struct kind *kind = kind_of(path, start, n);
    if (!kind)
        return gsi_bad_file(s, error, GS_EFORMAT, "is not a .npy, .npz or .safetensors file");
    s->format = kind->name;
    return kind->open(s, error);
}

gs_status gs_source_open(gs_source **out, const char *path, const gs_alloc *alloc, gs_error *error)
{
    if (!out || !path)
        return gsi_fail(error, GS_ENULL, "the path of the file is missing");
    *out = NULL;
    gsi_heap heap;
    gsi_heap_init(&heap, alloc);
    gs_source *s = gsi_new(&heap, sizeof *s);
    if (!s)
        return gsi_fail(error, GS_ENOMEM, "there is no memory to open a file");
    *s = (gs_source){.heap = heap, .file.fd = -1};
    gsi_arena_init(&s->arena, &s->heap);
    const gs_status status = open_file(s, path, error);
    if (status == GS_OK)
        *out = s;
    else
        gs_source_close(s);
    return status;
}

void gs_source_close(gs_source *s)
{
    if (!s)
        return;
    gsi_close_npz(s);
    if (s->map)
        munmap(s->map, (size_t)s->file.size);
    gsi_file_close(&s->file);
    gsi_arena_free(&s->arena);
    gsi_heap heap = s->heap; /* the source lies in its own heap */
    gsi_free(&heap, s);
}

const char *gs_source_format(const gs_source *s) { return s->format; }

uint64_t gs_source_size(const gs_source *s) { return s->file.size; }

size_t gs_source_count(const gs_source *s) { return s->count; }

const gs_entry *gs_source_entry(const gs_source *s, size_t i)
{
    return i < s->count ? &s->entries[i].pub : NULL;
}

const char *gs_source_metadata(const gs_source *s, const char *key)
{
    for (size_t i = 0; i < s->n_texts; i++)
        if (strcmp(s->texts[i].key, key) == 0)
            return s->texts[i].value;
    return NULL;
}

int gs_entry_readable(const gs_entry *e) { return e->dtype != GS_DTYPE_COUNT; }

const void *gs_source_map(gs_source *s, size_t i)
{
    if (i >= s->count)
        return NULL;
    const gsi_entry *e = &s->entries[i];
    if (!gs_entry_readable(&e->pub) || s->read || e->swap != gsi_big_endian() ||
        e->pub.offset % e->item != 0 || s->file.size > SIZE_MAX)
        return NULL;
    if (!s->map) {
        void *map = mmap(NULL, (size_t)s->file.size, PROT_READ, MAP_SHARED, s->file.fd, 0);
        if (map == MAP_FAILED)
            return NULL;
        posix_madvise(map, (size_t)s->file.size, POSIX_MADV_SEQUENTIAL);
        s->map = map;
    }
    return (const char *)s->map + e->pub.offset;
}

gs_status gsi_source_raw(void *dst, gs_source *s, size_t i, uint64_t first, size_t count,
                         gs_error *error)
{
    const gsi_entry *e = &s->entries[i];
    size_t bytes;
    if (!gsi_mul_size(&bytes, count, (size_t)e->item)) /* uncovered: where size_t has 32 bits */
        return gsi_bad_file(s, error, GS_ESIZE, "%zu elements do not fit in memory", count);
    return s->read ? s->read(s, e, first, count, dst, error)
                   : gsi_read_at(s, dst, bytes, e->pub.offset + first * e->item, error);
}

void gsi_swap_bytes(void *items, size_t count, size_t item)
{
    for (uint8_t *p = items; count > 0; count--, p += item)
        for (size_t a = 0, b = item - 1; a < b; a++, b--) {
            const uint8_t t = p[a];
            p[a] = p[b];
            p[b] = t;
        }
}

gs_status gs_source_read(void *dst, gs_source *s, size_t i, uint64_t first, size_t count,
                         gs_error *error)
{
    if (i >= s->count)
        return gsi_bad_file(s, error, GS_ERANGE, "has no tensor %zu", i);
    const gsi_entry *e = &s->entries[i];
    char shown[GSI_SHOWN];
    if (!gs_entry_readable(&e->pub))
        return gsi_bad_file(s, error, GS_EDTYPE,
                            "tensor %s is of type %s: f16, bf16, f32 and f64"
                            " can be read",
                            gsi_show(shown, e->pub.name, strlen(e->pub.name)), e->pub.type);
    if (first > e->pub.count || count > e->pub.count - first)
        return gsi_bad_file(s, error, GS_ERANGE, "tensor %s has only %llu elements",
                            gsi_show(shown, e->pub.name, strlen(e->pub.name)),
                            (unsigned long long)e->pub.count);
    if (count > 0 && !dst)
        return gsi_bad_file(s, error, GS_ENULL, "there is no buffer to read into");
    const gs_status status = gsi_source_raw(dst, s, i, first, count, error);
    if (status == GS_OK && e->swap != gsi_big_endian())
        gsi_swap_bytes(dst, count, (size_t)e->item);
    return status;
}
