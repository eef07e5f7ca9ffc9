/* exchange.c: a list of Python tensors as gs_tensor entries, in one call.
 *
 * Asking a tensor from Python for its pointer, size, type and strides takes 0.25 us, which for a
 * thousand small gradients is longer than unscaling them. DLPack's exchange table (dlpack.h 1.3)
 * has a function in the framework's own C that tells all of it for an object. Objects stay opaque
 * here: nothing is linked against Python.
 */
#include <stdint.h>

#include "gradscale/tensor.h"

/* ---- as DLPack lays them out ---- */

typedef struct {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    const int64_t *shape;
    const int64_t *strides; /* in elements; NULL: contiguous */
    uint64_t byte_offset;
} dl_tensor;

typedef struct {
    uint32_t major, minor;
    void *previous;
    void *allocate, *from_object, *to_object;
    int (*view)(void *object, dl_tensor *out); /* 0, or a Python error is set; may be NULL */
    void *stream;
} dl_exchange;

enum { CPU = 1, FLOAT = 2, BFLOAT = 4 };

static int dtype_of(const dl_tensor *t)
{
    if (t->lanes != 1)
        return -1;
    if (t->code == BFLOAT)
        return t->bits == 16 ? GS_BF16 : -1;
    if (t->code != FLOAT)
        return -1;
    return t->bits == 32 ? GS_F32 : t->bits == 16 ? GS_F16 : t->bits == 64 ? GS_F64 : -1;
}

/* The axis whose elements lie `step` apart, looked for from `i` down and around; -1: none. */
static int32_t axis_of(const dl_tensor *t, int32_t i, int64_t step)
{
    for (int32_t tries = 0; tries < t->ndim; tries++, i = (i > 0 ? i : t->ndim) - 1)
        if (t->strides[i] == step && t->shape[i] > 1)
            return i;
    return -1;
}

/* The number of elements; -1 unless they are one run of memory, in any order of the axes. */
static int64_t count_of(const dl_tensor *t)
{
    int64_t count = 1, step = 1;
    for (int32_t i = 0; i < t->ndim; i++)
        count *= t->shape[i];
    if (!t->strides)
        return count;
    for (int32_t i = t->ndim - 1; step < count; step *= t->shape[i])
        if ((i = axis_of(t, i, step)) < 0)
            return -1;
    return count;
}

/* ---- what _exchange.py calls ---- */

typedef void *get_item(void *list, ptrdiff_t i); /* PyList_GetItem */

typedef struct {
    uint64_t elements;
    uint64_t dtypes; /* a bit each */
} gsp_list;

GS_API int gsp_exchange_usable(const void *table);
GS_API size_t gsp_describe(gs_tensor *out, gsp_list *about, const void *table, void *list,
                           get_item *get, size_t n);

int gsp_exchange_usable(const void *table)
{
    const dl_exchange *exchange = table;
    return exchange->major == 1 && exchange->view != NULL;
}

/* Fills out[n] from a list of n objects. Stops at the first that is not one run of memory on the
 * CPU of a type that the passes take; returns how many were filled. Called with the interpreter's
 * lock. */
size_t gsp_describe(gs_tensor *out, gsp_list *about, const void *table, void *list, get_item *get,
                    size_t n)
{
    const dl_exchange *exchange = table;
    *about = (gsp_list){0, 0};
    for (size_t i = 0; i < n; i++) {
        dl_tensor t;
        void *object = get(list, (ptrdiff_t)i);
        if (!object || exchange->view(object, &t) != 0 || t.device_type != CPU)
            return i;
        const int dtype = dtype_of(&t);
        const int64_t count = count_of(&t);
        if (dtype < 0 || count < 0)
            return i;
        char *data = t.data ? (char *)t.data + t.byte_offset : NULL;
        out[i] = (gs_tensor){data, (size_t)count, (gs_dtype)dtype, NULL, NULL};
        about->elements += (uint64_t)count;
        about->dtypes |= UINT64_C(1) << dtype;
    }
    return n;
}
