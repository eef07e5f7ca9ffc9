/* Gradients: their memory, who shares it, how they accumulate into weights, and what is counted. */
#include "engine/engine.h"

#include <string.h>

static size_t bytes_of(const gs_value *v) { return v->count * gsi_size_of(v->dtype); }

static void set_buffer(gs_value *v, struct gsi_buffer *b)
{
    gsi_node_of(v)->buffer = b;
    v->grad = b ? b->data : NULL;
}

/* One user, the caller's. NULL: no memory, which is noted. */
static struct gsi_buffer *new_buffer(gs_tape *t, size_t bytes)
{
    const bool inside = t->where != GSI_OUTSIDE;
    for (struct gsi_buffer **s = &t->spares[inside]; *s; s = &(*s)->next)
        if ((*s)->bytes == bytes) {
            struct gsi_buffer *b = *s;
            *s = b->next;
            b->users = 1;
            return b;
        }
    struct gsi_buffer *b = gsi_step_new(t, 1, sizeof *b);
    void *data = b ? gsi_step_new(t, bytes, 1) : NULL;
    if (!data)
        return NULL;
    *b = (struct gsi_buffer){NULL, data, bytes, 1, inside};
    t->memory.gradients += bytes;
    return b;
}

static void drop_buffer(gs_tape *t, struct gsi_buffer *b)
{
    if (--b->users > 0)
        return;
    b->next = t->spares[b->inside];
    t->spares[b->inside] = b;
}

void gsi_release(gs_tape *t, gs_value *v)
{
    struct gsi_buffer *b = gsi_node_of(v)->buffer;
    set_buffer(v, NULL);
    if (b)
        drop_buffer(t, b);
}

void gsi_own(gs_tape *t, gs_value *v, void *data)
{
    struct gsi_buffer *b = gsi_step_new(t, 1, sizeof *b);
    if (!b)
        return;
    *b = (struct gsi_buffer){NULL, data, bytes_of(v), 1, t->where != GSI_OUTSIDE};
    set_buffer(v, b);
}

void gsi_promote(gs_tape *t, gs_value *v)
{
    const struct gsi_buffer *old = gsi_node_of(v)->buffer;
    if (!old || !old->inside)
        return;
    struct gsi_buffer *b = new_buffer(t, bytes_of(v));
    if (b)
        memcpy(b->data, v->grad, b->bytes);
    gsi_release(t, v);
    set_buffer(v, b);
}

/* Where to put d(v): data = beta * data + ..., beta 0 or 1. false: nowhere. */
typedef struct target {
    void *data;
    float beta;
} target;

static bool target_of(gs_tape *t, gs_value *v, target *out)
{
    if (!v || !v->needs_grad || v->weight || t->error.status != GS_OK)
        return false;
    const struct gsi_buffer *old = gsi_node_of(v)->buffer;
    *out = (target){old ? old->data : NULL, 1};
    if (old && old->users == 1)
        return true;
    struct gsi_buffer *b = new_buffer(t, bytes_of(v));
    if (!b)
        return false;
    if (old) {
        memcpy(b->data, v->grad, b->bytes);
        gsi_release(t, v);
    } else {
        out->beta = 0;
    }
    set_buffer(v, b);
    out->data = b->data;
    return true;
}

void gsi_share(gs_tape *t, gs_value *v, gs_value *from)
{
    if (!v->needs_grad)
        return;
    if (v->weight || gsi_node_of(v)->buffer || v->dtype != from->dtype) {
        gsi_accumulate(t, v, from->grad, from->dtype);
        return;
    }
    struct gsi_buffer *b = gsi_node_of(from)->buffer;
    b->users++;
    set_buffer(v, b);
}

bool gsi_stage_begin(gs_tape *t, gs_value *v, gsi_stage *stage)
{
    if (!v || !v->needs_grad || t->error.status != GS_OK)
        return false;
    const gs_dtype dtype = v->weight ? GS_F32 : v->dtype;
    struct gsi_buffer *b = new_buffer(t, v->count * gsi_size_of(dtype));
    if (!b)
        return false;
    *stage = (gsi_stage){{b->data, dtype, NULL}, b};
    if (!v->weight && !gsi_node_of(v)->buffer) {
        set_buffer(v, b);
        stage->buffer = NULL;
    }
    return true;
}

void gsi_stage_end(gs_tape *t, gs_value *v, const gsi_stage *stage)
{
    if (!stage->buffer)
        return;
    gsi_accumulate(t, v, stage->out.data, stage->out.type);
    drop_buffer(t, stage->buffer);
}

void gsi_demand(gs_tape *t, gs_status status)
{
    if (status != GS_OK)
        gs_tape_fail(t, status, "%s", t->ctx->error.text);
}

void gsi_note(gs_tape *t, const gs_stats *stats)
{
    gs_stats_merge(&t->stats, stats);
    if (t->layer != SIZE_MAX)
        gs_stats_merge(&t->layers[t->layer].stats, stats);
}

void gsi_product(gs_tape *t, gs_gemm *g, bool gradient)
{
    gs_stats stats;
    gs_stats_init(&stats);
    g->stats = gradient && g->c.dtype != GS_F32 ? &stats : NULL;
    gsi_demand(t, gs_gemm_run(t->ctx, g));
    if (g->stats)
        gsi_note(t, &stats);
}

/* ---- fresh gradients ---- */

gs_status gsi_tape_fresh(gs_tape *t, const gs_weight *list, size_t n)
{
    if (n > t->fresh_room) {
        bool *fresh = gsi_new(&t->ctx->heap, n * sizeof *fresh);
        if (!fresh)
            return gsi_fail(&t->ctx->error, GS_ENOMEM, "no memory for the marks of %zu weights", n);
        gsi_free(&t->ctx->heap, t->fresh);
        t->fresh = fresh;
        t->fresh_room = n;
    }
    t->fresh_list = list;
    t->fresh_count = n;
    if (n > 0)
        memset(t->fresh, true, n * sizeof *t->fresh);
    return GS_OK;
}

/* By its gradient: a model may have a copy of the gs_weight. */
bool gsi_take_fresh(gs_tape *t, const gs_weight *w)
{
    size_t low = 0, high = t->fresh_count;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if ((uintptr_t)t->fresh_list[mid].grad < (uintptr_t)w->grad)
            low = mid + 1;
        else
            high = mid;
    }
    const bool fresh = low < t->fresh_count && t->fresh_list[low].grad == w->grad && t->fresh[low];
    if (fresh)
        t->fresh[low] = false;
    return fresh;
}

void gsi_tape_zero_fill(gs_tape *t, const gs_weight *weight)
{
    for (size_t i = 0; !weight && i < t->fresh_count; i++)
        gsi_tape_zero_fill(t, &t->fresh_list[i]);
    if (weight && gsi_take_fresh(t, weight))
        memset(weight->grad, 0, weight->rows * weight->cols * gsi_size_of(weight->grad_dtype));
}

/* ---- weights ---- */

bool gsi_rounds_wgrad(const gs_tape *t, const gs_value *v)
{
    return v->dtype != GS_F32 && !t->config.wgrad_f32;
}

/* w->grad += d, or = where it is fresh */
static void add_to_weight(gs_tape *t, const gs_weight *w, const void *d, gs_dtype dtype, size_t n)
{
    const gs_tensor src = gs_tensor_source(d, n, dtype, w->name);
    const gs_tensor dst = {w->grad, n, w->grad_dtype, w->name, 0};
    if (gsi_take_fresh(t, w))
        gsi_demand(t, gs_tensors_convert(t->ctx, &dst, &src, 1, NULL));
    else if (w->grad_dtype == GS_F32)
        gsi_demand(t, gs_tensors_axpy(t->ctx, &dst, &src, 1, 1, NULL));
    else
        gsi_add_arrays(t, (gsi_out){w->grad, w->grad_dtype, NULL}, (gsi_in){d, dtype}, n);
}

void gsi_accumulate(gs_tape *t, gs_value *v, const void *d, gs_dtype dtype)
{
    const gsi_in src = {d, dtype};
    target to;
    if (!v->needs_grad || t->error.status != GS_OK)
        return;
    if (v->weight && dtype == GS_F32 && gsi_rounds_wgrad(t, v)) {
        struct gsi_buffer *b = new_buffer(t, bytes_of(v));
        if (!b)
            return;
        gsi_copy_array(t, (gsi_out){b->data, v->dtype, NULL}, src, v->count);
        add_to_weight(t, v->weight, b->data, v->dtype, v->count);
        drop_buffer(t, b);
    } else if (v->weight) {
        add_to_weight(t, v->weight, d, dtype, v->count);
    } else if (target_of(t, v, &to)) {
        (to.beta == 0 ? gsi_copy_array : gsi_add_arrays)(t, (gsi_out){to.data, v->dtype, NULL}, src,
                                                         v->count);
    }
}

/* The product is rounded into a buffer of its own before it is accumulated. */
static void rounded_product(gs_tape *t, gs_value *v, gs_gemm *g)
{
    struct gsi_buffer *b = new_buffer(t, bytes_of(v));
    if (!b)
        return;
    g->c.data = b->data;
    gsi_product(t, g, true);
    if (t->error.status == GS_OK)
        add_to_weight(t, v->weight, b->data, v->dtype, v->count);
    drop_buffer(t, b);
}

void gsi_grad_product(gs_tape *t, gs_value *v, gs_gemm *g)
{
    const gs_weight *w = v->weight;
    if (!v->needs_grad || t->error.status != GS_OK)
        return;
    g->c = (gs_matrix_out){.dtype = v->dtype, .stride = g->n, .batch_stride = g->m * g->n};
    if (w && w->grad_dtype == GS_F32 && gsi_rounds_wgrad(t, v)) {
        rounded_product(t, v, g);
        return;
    }
    target to = {0};
    if (w) {
        to = (target){w->grad, gsi_take_fresh(t, w) ? 0 : 1};
        g->c.dtype = w->grad_dtype;
    } else if (!target_of(t, v, &to))
        return;
    g->c.data = to.data;
    g->beta = to.beta;
    gsi_product(t, g, true);
}

/* ---- sums over rows ---- */

typedef struct columns {
    gs_tape *t;
    gsi_in d, e;
    size_t cols, per_chunk;
    float *parts; /* [chunks][cols] */
} columns;

static uint32_t columns_chunk(void *arg, size_t first, size_t count, gsi_counts *counts)
{
    const columns *c = arg;
    const gsi_in e = c->e.data ? gsi_in_at(c->e, first * c->cols) : c->e;
    (void)counts;
    c->t->rows->colsum(c->parts + first / c->per_chunk * c->cols, gsi_in_at(c->d, first * c->cols),
                       e, count, c->cols, c->cols);
    return 0;
}

void gsi_grad_columns(gs_tape *t, gs_value *v, gsi_in d, gsi_in e, size_t rows)
{
    columns c = {t, d, e, v->count, gsi_chunk_rows(v->count), NULL};
    const size_t chunks = gsi_ceil_div(rows, c.per_chunk);
    if (!v->needs_grad || t->error.status != GS_OK)
        return;
    struct gsi_buffer *b = new_buffer(t, (chunks + 1) * v->count * sizeof(float));
    if (!b)
        return;
    float *const sums = b->data;
    c.parts = sums + v->count;
    gsi_over_rows(t, rows, v->count, columns_chunk, &c, false);
    t->rows->colsum(sums, (gsi_in){c.parts, GS_F32}, (gsi_in){NULL, GS_F32}, chunks, v->count,
                    v->count);
    gsi_accumulate(t, v, sums, GS_F32);
    drop_buffer(t, b);
}
