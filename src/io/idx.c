#include "io/idx.h"
#include "gradscale/num.h"
#include "io/stream.h"

#include <string.h>

/* ---- types ---- */

typedef void values_fn(double *dst, const void *data, size_t first, size_t count);

static void values_u8(double *dst, const void *data, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = ((const uint8_t *)data)[first + i];
}

static void values_i8(double *dst, const void *data, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = ((const int8_t *)data)[first + i];
}

static void values_i16(double *dst, const void *data, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = ((const int16_t *)data)[first + i];
}

static void values_u16(double *dst, const void *data, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = ((const uint16_t *)data)[first + i];
}

static void values_f16(double *dst, const void *data, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = (double)gs_f16_to_f32(((const uint16_t *)data)[first + i]);
}

static void values_u32(double *dst, const void *data, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = ((const uint32_t *)data)[first + i];
}

/* Of 64 bits: those up to 2^53 are exact, and classes are. */
static void values_i64(double *dst, const void *data, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = (double)((const int64_t *)data)[first + i];
}

static void values_u64(double *dst, const void *data, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = (double)((const uint64_t *)data)[first + i];
}

static void values_i32(double *dst, const void *data, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = ((const int32_t *)data)[first + i];
}

static void values_f32(double *dst, const void *data, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = (double)((const float *)data)[first + i];
}

static void values_f64(double *dst, const void *data, size_t first, size_t count)
{
    memcpy(dst, (const double *)data + first, count * sizeof *dst);
}

static const struct gsi_idx_type {
    uint8_t code;     /* IDX's; 0: it has none */
    const char *name; /* NumPy's, without the byte order */
    size_t item;      /* bytes */
    values_fn *values;
} types[] = {
    {0x08, "u1", 1, values_u8},  {0x09, "i1", 1, values_i8},  {0x0B, "i2", 2, values_i16},
    {0x0C, "i4", 4, values_i32}, {0x0D, "f4", 4, values_f32}, {0x0E, "f8", 8, values_f64},
    {0, "b1", 1, values_u8},     {0, "u2", 2, values_u16},    {0, "f2", 2, values_f16},
    {0, "u4", 4, values_u32},    {0, "i8", 8, values_i64},    {0, "u8", 8, values_u64},
};

static const struct gsi_idx_type *type_of(uint8_t code)
{
    for (size_t i = 0; i < GSI_COUNT(types); i++)
        if (code != 0 && types[i].code == code)
            return &types[i];
    return NULL;
}

bool gsi_idx_begins(const uint8_t start[4])
{
    return start[0] == 0 && start[1] == 0 && type_of(start[2]) && start[3] >= 1;
}

void gsi_idx_values(double *dst, const gsi_idx *idx, size_t first, size_t count)
{
    idx->type->values(dst, idx->data, first, count);
}

/* ---- reading ---- */

static uint64_t big(const uint8_t *p, size_t bytes)
{
    uint64_t x = 0;
    for (size_t i = 0; i < bytes; i++)
        x = x << 8 | p[i];
    return x;
}

static gs_status read_header(gsi_idx *idx, gsi_stream *s, size_t *bytes, gs_error *error)
{
    const gsi_file *file = gsi_stream_file(s);
    uint8_t start[4], size[4];
    gs_status status = gsi_stream_read(s, start, sizeof start, error);
    if (status != GS_OK)
        return status;
    if (!gsi_idx_begins(start))
        return gsi_file_fail(file, error, GS_EFORMAT,
                             "is not an IDX file: it begins with %02x %02x %02x %02x", start[0],
                             start[1], start[2], start[3]);
    if (start[3] > GSI_IDX_RANK)
        return gsi_file_fail(file, error, GS_ESIZE, "has %d dimensions: at most %d can be read",
                             start[3], GSI_IDX_RANK);
    idx->type = type_of(start[2]);
    idx->rank = start[3];
    idx->count = 1;
    bool fits = true;
    for (int i = 0; i < idx->rank; i++) {
        status = gsi_stream_read(s, size, sizeof size, error);
        if (status != GS_OK)
            return status;
        idx->shape[i] = (size_t)big(size, sizeof size);
        if (idx->shape[i] == 0)
            return gsi_file_fail(file, error, GS_ESIZE, "is empty: its dimension %d is 0", i);
        fits = fits && gsi_mul_size(&idx->count, idx->count, idx->shape[i]);
    }
    if (!fits || !gsi_mul_size(bytes, idx->count, idx->type->item))
        return gsi_file_fail(file, error, GS_EFORMAT,
                             "its header announces more than any file can hold");
    return GS_OK;
}

static void to_machine_order(void *data, size_t count, size_t item)
{
    uint8_t *p = data;
    for (size_t i = 0; item > 1 && i < count; i++, p += item) {
        const uint64_t x = big(p, item);
        if (item == 2)
            memcpy(p, &(uint16_t){(uint16_t)x}, item);
        else if (item == 4)
            memcpy(p, &(uint32_t){(uint32_t)x}, item);
        else
            memcpy(p, &x, item);
    }
}

static gs_status read_all(gsi_idx *idx, gsi_stream *s, gsi_heap *heap, gs_error *error)
{
    const gsi_file *file = gsi_stream_file(s);
    size_t bytes;
    uint64_t there;
    gs_status status = read_header(idx, s, &bytes, error);
    if (status == GS_OK)
        status = gsi_stream_measure(s, bytes, &there, error);
    if (status != GS_OK)
        return status;
    if (there < bytes)
        return gsi_file_fail(file, error, GS_EFORMAT,
                             "is cut short: its header announces %zu bytes, of which it has %llu",
                             bytes, (unsigned long long)there);
    if (there > bytes)
        return gsi_file_fail(file, error, GS_EFORMAT,
                             "is longer than the %zu bytes that its header announces", bytes);
    idx->data = gsi_new(heap, bytes);
    if (!idx->data)
        return gsi_file_fail(file, error, GS_ENOMEM, "there is no memory for its %zu bytes", bytes);
    uint8_t header[4 + 4 * GSI_IDX_RANK]; /* known, and not to be believed a second time */
    gsi_stream_rewind(s);
    status = gsi_stream_read(s, header, 4 + 4 * (size_t)idx->rank, error);
    if (status == GS_OK)
        status = gsi_stream_read(s, idx->data, bytes, error);
    if (status == GS_OK)
        to_machine_order(idx->data, idx->count, idx->type->item);
    return status;
}

gs_status gsi_idx_read(gsi_idx *idx, const char *path, gsi_heap *heap, gs_error *error)
{
    gsi_stream *s;
    *idx = (gsi_idx){0};
    gsi_show_path(idx->path, path);
    gs_status status = gsi_stream_open(&s, path, heap, error);
    if (status == GS_OK)
        status = read_all(idx, s, heap, error);
    gsi_stream_close(s);
    if (status != GS_OK)
        gsi_idx_free(idx, heap);
    return status;
}

gs_status gsi_idx_new(gsi_idx *idx, const char *path, const char *type, int rank,
                      const size_t *shape, gsi_heap *heap, gs_error *error)
{
    size_t bytes = 0;
    bool fits = true;
    *idx = (gsi_idx){.rank = rank, .count = 1};
    gsi_show_path(idx->path, path);
    for (size_t i = 0; i < GSI_COUNT(types); i++)
        if (strcmp(types[i].name, type) == 0)
            idx->type = &types[i];
    if (!idx->type)
        return gsi_fail(error, GS_EDTYPE, "%s: has elements of type %s", idx->path, type);
    for (int i = 0; i < rank; i++) {
        idx->shape[i] = shape[i];
        fits = fits && gsi_mul_size(&idx->count, idx->count, shape[i]);
    }
    if (fits && idx->count == 0)
        return gsi_fail(error, GS_ESIZE, "%s: is empty: one of its dimensions is 0", idx->path);
    if (fits && gsi_mul_size(&bytes, idx->count, idx->type->item))
        idx->data = gsi_new(heap, bytes);
    return idx->data ? GS_OK
                     : gsi_fail(error, GS_ENOMEM, "%s: there is no memory for its %zu elements",
                                idx->path, idx->count);
}

void gsi_idx_free(gsi_idx *idx, gsi_heap *heap)
{
    gsi_free(heap, idx->data);
    idx->data = NULL;
}
