/* Making an optimizer: everything it will ever need is checked and allocated here, so that a step
 * can fail only before it changes anything. */
#include "optim/optim.h"

#include <math.h>
#include <string.h>

/* ---- checks ---- */

static gs_status check_weight(gs_context *ctx, const gs_weight *w, size_t t)
{
    size_t count;
    if (!w->name || !w->name[0])
        return gsi_fail(&ctx->error, GS_ENAME, "weight %zu has no name", t);
    if (!gsi_mul_size(&count, w->rows, w->cols))
        return gsi_fail(&ctx->error, GS_ESIZE, "weight %s is too large: %zu x %zu", w->name,
                        w->rows, w->cols);
    if (w->copy && w->copy_dtype != GS_F32 && !gsi_is_half(w->copy_dtype))
        return gsi_fail(&ctx->error, GS_EDTYPE, "the copy of weight %s is none of f32, f16, bf16",
                        w->name);
    if (w->copy && w->copy_dtype != GS_F32 && w->dtype != GS_F32)
        return gsi_fail(&ctx->error, GS_EDTYPE,
                        "weight %s has a copy: only f32 weights are copied to a half type",
                        w->name);
    if (count > 0 && !w->grad && !(w->flags & GS_LATE_GRAD))
        return gsi_fail(&ctx->error, GS_ENULL,
                        "weight %s has no gradient: GS_LATE_GRAD says that it comes later",
                        w->name);
    return GS_OK;
}

gs_status gsi_check_arrays(gs_context *ctx, const gs_weight *list, const gs_tensor *grads, size_t n)
{
    size_t total;
    if (!gsi_mul_size(&total, n, 3))
        return gsi_fail(&ctx->error, GS_ESIZE, "there are too many weights");
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    gs_tensor *arrays = gsi_arena_new(&ctx->scratch, total, sizeof *arrays);
    gs_status status = GS_OK;
    if (!arrays)
        status = gsi_fail(&ctx->error, GS_ENOMEM, "no memory to check the list");
    size_t k = 0;
    for (size_t t = 0; arrays && t < n; t++) {
        const gs_weight *w = &list[t];
        const size_t count = w->rows * w->cols;
        arrays[k++] = (gs_tensor){w->data, count, w->dtype, w->name, 0};
        const gs_tensor grad = grads ? grads[t] : (gs_tensor){w->grad, count, w->grad_dtype, 0, 0};
        if (grad.data || !grads)
            arrays[k++] = (gs_tensor){grad.data, grad.data ? count : 0, grad.dtype, w->name, 0};
        if (w->copy)
            arrays[k++] = (gs_tensor){w->copy, count, w->copy_dtype, w->name, 0};
    }
    if (status == GS_OK)
        status = gsi_check_pairs(ctx, arrays, arrays, k);
    gsi_arena_reset(&ctx->scratch, mark);
    return status;
}

gs_status gsi_check_contiguous(gs_context *ctx, const gs_tensor *x, const char *name)
{
    const gs_strided *v = x->strided;
    if (!v || v->stride == v->cols || x->count == v->cols)
        return GS_OK;
    return gsi_fail(&ctx->error, GS_ESIZE,
                    "%s is a view of rows of %zu, %zu apart: an optimizer needs it contiguous",
                    name, v->cols, v->stride);
}

/* Names by a sorted list of them: thousands of weights are usual. */
static void sort_names(const char **names, size_t n)
{
    size_t gap = 1;
    while (gap < n / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (size_t i = gap; i < n; i++) {
            const char *moved = names[i];
            size_t k = i;
            for (; k >= gap && strcmp(names[k - gap], moved) > 0; k -= gap)
                names[k] = names[k - gap];
            names[k] = moved;
        }
}

static gs_status check_names(gs_context *ctx, const gs_weight *list, size_t n)
{
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    const char **names = gsi_arena_new(&ctx->scratch, n, sizeof *names);
    gs_status status = GS_OK;
    if (!names)
        status = gsi_fail(&ctx->error, GS_ENOMEM, "no memory to check the list");
    for (size_t t = 0; names && t < n; t++)
        names[t] = list[t].name;
    if (names)
        sort_names(names, n);
    for (size_t t = 1; names && status == GS_OK && t < n; t++)
        if (strcmp(names[t - 1], names[t]) == 0)
            status = gsi_fail(&ctx->error, GS_ENAME, "two weights are called %s", names[t]);
    gsi_arena_reset(&ctx->scratch, mark);
    return status;
}

static gs_status check_all(gs_context *ctx, const gs_weight *list, size_t n,
                           const gs_optim_config *config)
{
    if (n > 0 && !list)
        return gsi_fail(&ctx->error, GS_ENULL, "the list of %zu weights is NULL", n);
    gs_status status = gs_optim_config_check(config, &ctx->error);
    for (size_t t = 0; status == GS_OK && t < n; t++)
        status = check_weight(ctx, &list[t], t);
    if (status == GS_OK)
        status = check_names(ctx, list, n);
    if (status == GS_OK)
        status = gsi_check_arrays(ctx, list, NULL, n);
    return status;
}

/* ---- memory ---- */

/* Elements and type of a slot of weight t. */
static size_t slot_count(const gs_optim *o, size_t t, gs_slot slot, gs_dtype *type)
{
    const gs_optim_config *c = &o->config;
    const gs_weight *w = &o->weights[t];
    const size_t count = w->rows * w->cols;
    const bool adafactor = c->kind == GS_ADAFACTOR, factored = adafactor && gsi_is_factored(w);
    *type = slot == GS_SLOT_M || slot == GS_SLOT_V ? c->moments
            : slot == GS_SLOT_REST                 ? w->dtype
                                                   : GS_F32;
    switch (slot) {
    case GS_SLOT_M:
        return (c->kind == GS_SGD && c->momentum == 0) || factored ? 0 : count;
    case GS_SLOT_V:
        return c->kind == GS_SGD || factored ? 0 : count;
    case GS_SLOT_REST:
        return c->rounding == GS_ROUND_KAHAN && gsi_is_half(w->dtype) ? count : 0;
    case GS_SLOT_EMA:
        return c->ema > 0 ? count : 0;
    case GS_SLOT_ROW:
        return factored ? w->rows : 0;
    case GS_SLOT_COL:
        return factored ? w->cols : 0;
    default:
        return 0;
    }
}

/* One block per slot, in which every weight starts at a cache line. */
static gs_status new_slots(gs_optim *o)
{
    enum { STEP = 32 };
    for (int k = 0; k < GS_SLOT_COUNT; k++) {
        size_t bytes = 0;
        for (size_t t = 0; t < o->n; t++) {
            gs_dtype type;
            const size_t count = slot_count(o, t, (gs_slot)k, &type);
            *gsi_slot_of(o, t, (gs_slot)k) =
                (gs_tensor){(void *)(uintptr_t)bytes, count, type, o->weights[t].name, 0};
            /* no larger than the weight itself, which is there, twice */
            bytes += gsi_ceil_div(count, STEP) * STEP * gsi_size_of(type);
        }
        if (bytes == 0)
            continue;
        o->blocks[k] = gsi_new(&o->ctx->heap, bytes);
        if (!o->blocks[k])
            return gsi_fail(&o->ctx->error, GS_ENOMEM, "no memory for %zu bytes of state", bytes);
        memset(o->blocks[k], 0, bytes);
        for (size_t t = 0; t < o->n; t++) {
            gs_tensor *x = gsi_slot_of(o, t, (gs_slot)k);
            x->data = x->count ? (char *)o->blocks[k] + (uintptr_t)x->data : NULL;
        }
    }
    return GS_OK;
}

static double decay_of(const gs_optim_config *c, const gs_weight *w)
{
    return w->flags & GS_NO_DECAY ? 0 : c->weight_decay;
}

static bool new_lists(gs_optim *o, const gs_weight *list)
{
    gsi_heap *heap = &o->ctx->heap;
    size_t names = 0, chunks = 0, bytes;
    for (size_t t = 0; t < o->n; t++) {
        const size_t count = list[t].rows * list[t].cols;
        names += strlen(list[t].name) + 1;
        chunks += count / GSI_CHUNK + (count % GSI_CHUNK > 0);
    }
    if (!gsi_mul_size(&bytes, o->n, sizeof(gs_weight)) || !gsi_add_size(&bytes, bytes, names))
        return false;
    o->weights = gsi_new(heap, bytes);
    o->data = gsi_new(heap, o->n * sizeof *o->data);
    o->grads = gsi_new(heap, o->n * sizeof *o->grads);
    o->slots = gsi_new(heap, o->n * GS_SLOT_COUNT * sizeof *o->slots);
    o->cut.starts = gsi_new(heap, (o->n + 1) * sizeof *o->cut.starts);
    o->results = gsi_new(heap, chunks * sizeof *o->results);
    o->alpha = gsi_new(heap, o->n * sizeof *o->alpha);
    o->own = gsi_new(heap, o->n * sizeof *o->own);
    if (!o->weights || !o->alpha || !o->own || !o->data || !o->grads || !o->slots ||
        !o->cut.starts || !o->results)
        return false;

    char *name = (char *)(o->weights + o->n);
    for (size_t t = 0; t < o->n; t++) {
        const size_t length = strlen(list[t].name) + 1, count = list[t].rows * list[t].cols;
        memcpy(name, list[t].name, length);
        o->weights[t] = list[t];
        o->weights[t].name = name;
        o->data[t] = (gs_tensor){list[t].data, count, list[t].dtype, name, 0};
        o->grads[t] =
            (gs_tensor){list[t].grad, list[t].grad ? count : 0, list[t].grad_dtype, name, 0};
        o->missing |= !gsi_has_grad(o, t);
        o->own[t] = (gsi_weight_own){.lr_factor = 1, .decay = decay_of(&o->config, &list[t])};
        name += length;
    }
    o->most_decay = o->config.weight_decay;
    gsi_cut_into(&o->cut, o->data, o->data, o->n, o->cut.starts);
    memset(o->slots, 0, o->n * GS_SLOT_COUNT * sizeof *o->slots);
    return true;
}

gs_status gs_optim_create(gs_optim **out, gs_context *ctx, const gs_weight *list, size_t n,
                          const gs_optim_config *config)
{
    if (!out || !ctx)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_status status = check_all(ctx, list, n, config);
    if (status != GS_OK)
        return status;
    gs_optim *o = gsi_new(&ctx->heap, sizeof *o);
    if (!o)
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for an optimizer");
    *o = (gs_optim){.ctx = ctx, .n = n};
    gsi_config(&o->config, sizeof o->config, config, "gs_optim_config", NULL); /* it was checked */
    if (!new_lists(o, list))
        status = gsi_fail(&ctx->error, GS_ENOMEM, "no memory for a list of %zu weights", n);
    if (status == GS_OK)
        status = new_slots(o);
    if (status == GS_OK && o->config.kind == GS_ADAFACTOR)
        status = gsi_adafactor_create(o);
    if (status != GS_OK) {
        gs_optim_free(o);
        return status;
    }
    *out = o;
    return GS_OK;
}

void gs_optim_free(gs_optim *o)
{
    if (!o)
        return;
    gsi_heap *heap = &o->ctx->heap;
    for (int k = 0; k < GS_SLOT_COUNT; k++)
        gsi_free(heap, o->blocks[k]);
    void *const rest[] = {o->weights, o->data,  o->grads, o->slots, o->cut.starts,
                          o->results, o->alpha, o->own,   o->clear};
    for (size_t i = 0; i < GSI_COUNT(rest); i++)
        gsi_free(heap, rest[i]);
    gsi_adafactor_free(o);
    gsi_free(heap, o);
}

/* ---- accessors ---- */

const gs_optim_config *gs_optim_get_config(const gs_optim *optim) { return &optim->config; }

gs_status gs_optim_also_clear(gs_optim *o, const gs_tensor *list, size_t n)
{
    char number[32];
    gs_status status = gsi_check_list(o->ctx, list, n);
    for (size_t t = 0; status == GS_OK && t < n; t++)
        status = gsi_check_contiguous(o->ctx, &list[t], gsi_tensor_name(number, list, t));
    if (status != GS_OK)
        return status;
    size_t bytes;
    gs_tensor *copy = NULL;
    if (gsi_mul_size(&bytes, n, sizeof *copy))
        copy = gsi_new(&o->ctx->heap, bytes);
    if (!copy)
        return gsi_fail(&o->ctx->error, GS_ENOMEM, "no memory for a list of %zu tensors", n);
    if (n > 0)
        memcpy(copy, list, bytes);
    gsi_free(&o->ctx->heap, o->clear);
    o->clear = copy;
    o->n_clear = n;
    return GS_OK;
}

static void clear_list(const gs_tensor *list, size_t n)
{
    for (size_t t = 0; t < n; t++)
        if (list[t].count > 0)
            memset(list[t].data, 0, list[t].count * gsi_size_of(list[t].dtype));
}

void gs_optim_clear_grads(gs_optim *o)
{
    clear_list(o->grads, o->n);
    clear_list(o->clear, o->n_clear);
}
