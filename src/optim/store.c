/* Weights in flat blocks. One allocation holds the entries, their names and the three blocks. */
#include "optim/optim.h"

#include <string.h>

enum { STEP = 32 }; /* elements: 64 bytes of halves, so that every view is a line's start */

struct gs_store {
    gs_context *ctx;
    size_t n, total; /* elements, padding included */
    gs_store_types types;
    gs_weight *weights;
    void *data, *copies, *grads;
};

static bool is_stored(gs_dtype type) { return type == GS_F32 || type == GS_F16 || type == GS_BF16; }

/* Where everything goes, counted in bytes from the start of the allocation. */
typedef struct plan {
    size_t weights, names, data, copies, grads, bytes;
    size_t total; /* elements */
} plan;

static bool add_part(plan *p, size_t *at, size_t count, size_t size)
{
    size_t bytes, end;
    if (!gsi_mul_size(&bytes, count, size) || !gsi_add_size(&end, bytes, GSI_ALIGN - 1) ||
        !gsi_add_size(&end, end, p->bytes))
        return false;
    *at = p->bytes;
    p->bytes = end - end % GSI_ALIGN;
    return true;
}

static gs_status make_plan(plan *p, gs_context *ctx, const gs_store_entry *entries, size_t n,
                           gs_store_types types)
{
    const size_t copy_bytes = types.copy == types.data ? 0 : gsi_size_of(types.copy);
    size_t names = 0;
    *p = (plan){0};
    for (size_t t = 0; t < n; t++) {
        size_t count, padded;
        if (!entries[t].name || !entries[t].name[0])
            return gsi_fail(&ctx->error, GS_ENAME, "weight %zu has no name", t);
        if (!gsi_mul_size(&count, entries[t].rows, entries[t].cols) ||
            !gsi_add_size(&padded, count, STEP - 1) ||
            !gsi_add_size(&p->total, p->total, padded - padded % STEP))
            return gsi_fail(&ctx->error, GS_ESIZE, "weight %s is too large: %zu x %zu",
                            entries[t].name, entries[t].rows, entries[t].cols);
        names += strlen(entries[t].name) + 1;
    }
    size_t self;
    if (add_part(p, &self, 1, sizeof(gs_store)) && add_part(p, &p->weights, n, sizeof(gs_weight)) &&
        add_part(p, &p->names, names, 1) &&
        add_part(p, &p->data, p->total, gsi_size_of(types.data)) &&
        add_part(p, &p->copies, p->total, copy_bytes) &&
        add_part(p, &p->grads, p->total, gsi_size_of(types.grad)) && p->bytes < PTRDIFF_MAX)
        return GS_OK;
    return gsi_fail(&ctx->error, GS_ESIZE, "%zu weights are too large together", n);
}

gs_status gs_store_create(gs_store **out, gs_context *ctx, const gs_store_entry *entries, size_t n,
                          gs_store_types types)
{
    if (!out || !ctx)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    if (n > 0 && !entries)
        return gsi_fail(&ctx->error, GS_ENULL, "the list of %zu weights is NULL", n);
    if (!is_stored(types.data) || !is_stored(types.copy) || !is_stored(types.grad) ||
        (types.copy != types.data && types.data != GS_F32 && types.copy != GS_F32))
        return gsi_fail(&ctx->error, GS_EDTYPE,
                        "a store holds f32, f16 or bf16, and copies of f32 in a half type or of"
                        " those in f32");
    plan p;
    gs_status status = make_plan(&p, ctx, entries, n, types);
    if (status != GS_OK)
        return status;
    char *const base = gsi_new(&ctx->heap, p.bytes);
    if (!base)
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for a store of %zu bytes", p.bytes);
    memset(base, 0, p.bytes);

    gs_store *s = (void *)base;
    const bool copies = types.copy != types.data;
    *s = (gs_store){ctx,
                    n,
                    p.total,
                    types,
                    (gs_weight *)(void *)(base + p.weights),
                    base + p.data,
                    copies ? base + p.copies : NULL,
                    base + p.grads};
    char *name = base + p.names;
    size_t at = 0;
    const size_t data_size = gsi_size_of(types.data), grad_size = gsi_size_of(types.grad);
    const size_t copy_size = gsi_size_of(types.copy);
    for (size_t t = 0; t < n; t++) {
        const gs_store_entry *e = &entries[t];
        const size_t length = strlen(e->name) + 1, count = e->rows * e->cols;
        if (gs_store_find(s, e->name)) {
            gs_store_free(s);
            return gsi_fail(&ctx->error, GS_ENAME, "two weights are called %s", e->name);
        }
        memcpy(name, e->name, length);
        s->weights[t] = (gs_weight){.name = name,
                                    .rows = e->rows,
                                    .cols = e->cols,
                                    .data = base + p.data + at * data_size,
                                    .dtype = types.data,
                                    .copy = copies ? base + p.copies + at * copy_size : NULL,
                                    .copy_dtype = types.copy,
                                    .grad = base + p.grads + at * grad_size,
                                    .grad_dtype = types.grad,
                                    .flags = e->flags};
        name += length;
        at += gsi_ceil_div(count, STEP) * STEP;
    }
    *out = s;
    return GS_OK;
}

void gs_store_free(gs_store *store)
{
    if (store)
        gsi_free(&store->ctx->heap, store);
}

const gs_weight *gs_store_weights(const gs_store *store, size_t *n)
{
    if (n)
        *n = store->n;
    return store->weights;
}

const gs_weight *gs_store_find(const gs_store *store, const char *name)
{
    for (size_t t = 0; t < store->n; t++)
        if (store->weights[t].name && strcmp(store->weights[t].name, name) == 0)
            return &store->weights[t];
    return NULL;
}

gs_tensor gs_store_data(const gs_store *store)
{
    return (gs_tensor){store->data, store->total, store->types.data, "weights", 0};
}

gs_tensor gs_store_copies(const gs_store *store)
{
    return (gs_tensor){store->copies, store->copies ? store->total : 0, store->types.copy, "copies",
                       0};
}

gs_tensor gs_store_grads(const gs_store *store)
{
    return (gs_tensor){store->grads, store->total, store->types.grad, "gradients", 0};
}
