/* A model without a trainer.
 *
 * (1) A weight is held in the types in which its mode reads it: in O2 a matrix in half alone, which
 *     is what products and tables read; a vector in f32, which norms read, and in half.
 * (2) Weights change in gs_infer_load alone; so the tape keeps other forms of them.
 * (3) A failed gs_trainer_load_weights has changed nothing: all is read before any is taken. */
#include "train/infer.h"
#include "io/write.h"
#include "train/layout.h"
#include "train/ranks.h"

#include <math.h>
#include <string.h>

struct gs_infer {
    gs_context *ctx;
    gs_model *model;
    gs_tape *tape;
    gs_dtype half;      /* of products: f32 in O0 */
    gs_weight *weights; /* [model->n] */
    gsi_arena arena;    /* their arrays */
    uint64_t bytes;
    float *logits; /* [vocabulary], of gs_infer_next; NULL: not yet */
};

/* ---- life ---- */

static bool add_weight(gs_infer *f, size_t i, gs_mode mode)
{
    const gs_store_entry *e = &f->model->entries[i];
    const bool half = mode == GS_O3 || (mode == GS_O2 && e->rows > 1);
    const bool copy = !half && mode != GS_O0;
    gs_weight *w = &f->weights[i];
    size_t count;
    if (!gsi_mul_size(&count, e->rows, e->cols))
        return false;
    *w = (gs_weight){.name = e->name,
                     .rows = e->rows,
                     .cols = e->cols,
                     .dtype = half ? f->half : GS_F32,
                     .copy_dtype = f->half,
                     .grad_dtype = GS_F32,
                     .flags = e->flags};
    w->data = gsi_arena_new(&f->arena, count, gsi_size_of(w->dtype));
    w->copy = copy ? gsi_arena_new(&f->arena, count, gsi_size_of(f->half)) : NULL;
    if (!w->data || (copy && !w->copy))
        return false;
    memset(w->data, 0, count * gsi_size_of(w->dtype));
    if (copy)
        memset(w->copy, 0, count * gsi_size_of(f->half));
    f->bytes += count * gsi_size_of(f->half);
    return true;
}

static gs_status make_parts(gs_infer *f, const gs_infer_config *config)
{
    gs_context *ctx = f->ctx;
    const gs_tape_config tape = {.size = sizeof tape,
                                 .mode = config->mode,
                                 .half = config->half,
                                 .quantize = config->quantize ? GS_QUANTIZE_QAT : GS_QUANTIZE_NONE,
                                 .range_rule = config->range_rule,
                                 .percentile = config->percentile,
                                 .int8 = config->int8};
    gs_status status = gsi_check_ranges(ctx, f->model, tape.quantize);
    if (status == GS_OK)
        status = gs_tape_create(&f->tape, ctx, &tape);
    size_t bytes;
    if (status != GS_OK)
        return status;
    f->half = config->mode == GS_O0 ? GS_F32 : config->half;
    if (gsi_mul_size(&bytes, f->model->n, sizeof *f->weights))
        f->weights = gsi_new(&ctx->heap, bytes);
    bool done = f->weights;
    for (size_t i = 0; done && i < f->model->n; i++)
        done = add_weight(f, i, config->mode);
    if (!done)
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for the weights of a model");
    f->model->weights = f->weights;
    gsi_tape_fix(f->tape, f->weights, f->model->n);
    if (f->model->n_ranges > 0)
        gs_tape_set_ranges(f->tape, f->weights, f->model->n, gsi_model_ranges(f->model));
    return GS_OK;
}

gs_status gs_infer_create(gs_infer **out, gs_context *ctx, gs_model *model,
                          const gs_infer_config *config)
{
    if (!out || !ctx || !model || !config)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_infer_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_infer_config", &ctx->error);
    if (status != GS_OK)
        return status;
    gs_infer *f = gsi_new(&ctx->heap, sizeof *f);
    if (!f)
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for a model");
    *f = (gs_infer){.ctx = ctx, .model = model};
    gsi_arena_init(&f->arena, &ctx->heap);
    status = make_parts(f, &today);
    if (status == GS_OK)
        *out = f;
    else
        gs_infer_free(f);
    return status;
}

void gs_infer_free(gs_infer *f)
{
    if (!f)
        return;
    if (f->weights && f->model->weights == f->weights)
        f->model->weights = NULL;
    gs_tape_free(f->tape);
    gsi_arena_free(&f->arena);
    gsi_free(&f->ctx->heap, f->weights);
    gsi_free(&f->ctx->heap, f->logits);
    gsi_free(&f->ctx->heap, f);
}

uint64_t gs_infer_bytes(const gs_infer *infer) { return infer->bytes; }

/* ---- weights ---- */

/* An f32 array takes the values as they are; the half one, of which a weight has at most one,
 * rounded. */
static gs_status take(gs_infer *f, size_t i, float *values)
{
    const gs_weight *w = &f->weights[i];
    const bool full = w->dtype == GS_F32;
    const size_t count = w->rows * w->cols;
    const gs_tensor from = {values, count, GS_F32, w->name, 0};
    const gs_tensor to = {full ? w->copy : w->data, count, f->half, w->name, 0};
    if (full)
        memcpy(w->data, values, count * sizeof *values);
    return to.data ? gs_tensors_convert(f->ctx, &to, &from, 1, NULL) : GS_OK;
}

static size_t largest(const gs_model *m)
{
    size_t most = 1;
    for (size_t i = 0; i < m->n; i++)
        most = gsi_max_size(most, m->entries[i].rows * m->entries[i].cols);
    return most;
}

static gs_status read_states(float *to, const gsi_weights_file *file, gs_error *error)
{
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < file->model->n_states; i++) {
        status = gsi_weights_read_state(to, file, i, error);
        to += file->model->state_entries[i].count;
    }
    return status;
}

gs_status gs_infer_load(gs_infer *f, const char *path, gs_error *error)
{
    gsi_weights_file file;
    if (!f || !path)
        return gsi_fail(error, GS_ENULL, "there is no model or no file of its weights");
    gs_status status = gsi_weights_open(&file, path, f->model, f->ctx, error);
    if (status != GS_OK)
        return status;
    float *values = gsi_new(&f->ctx->heap, largest(f->model) * sizeof *values);
    if (!values)
        status = gsi_fail(error, GS_ENOMEM, "no memory to read weights");
    gsi_tape_fix(f->tape, f->weights, f->model->n); /* forgets the forms of others */
    for (size_t i = 0; status == GS_OK && i < f->model->n; i++) {
        status = gsi_weights_read(values, &file, i, error);
        if (status == GS_OK && (status = take(f, i, values)) != GS_OK)
            gsi_fail(error, status, "%s", f->ctx->error.text);
    }
    if (status == GS_OK)
        status = read_states(f->model->state, &file, error);
    if (status == GS_OK)
        status = gsi_weights_check_rest(&file, error);
    gsi_free(&f->ctx->heap, values);
    gsi_weights_close(&file);
    return status;
}

/* All of a file, in the order of the model: weights, then states. NULL: no memory. */
static float *read_all(const gsi_weights_file *file, gs_status *status, gs_error *error)
{
    const gs_model *m = file->model;
    size_t count = m->states;
    for (size_t i = 0; i < m->n; i++)
        count += m->entries[i].rows * m->entries[i].cols;
    float *all = gsi_new(&file->ctx->heap, count * sizeof *all); /* the trainer holds as much */
    if (!all) {
        *status = gsi_fail(error, GS_ENOMEM, "no memory for %zu weights", count);
        return NULL;
    }
    float *at = all;
    for (size_t i = 0; *status == GS_OK && i < m->n; i++) {
        *status = gsi_weights_read(at, file, i, error);
        at += m->entries[i].rows * m->entries[i].cols;
    }
    if (*status == GS_OK)
        *status = read_states(at, file, error);
    if (*status == GS_OK)
        *status = gsi_weights_check_rest(file, error);
    return all;
}

gs_status gs_trainer_load_weights(gs_trainer *t, const char *path, gs_error *error)
{
    gsi_weights_file file;
    if (!t || !path)
        return gsi_fail(error, GS_ENULL, "there is no trainer or no file of its weights");
    gs_status status = gsi_weights_open(&file, path, t->model, t->ctx, error);
    float *all = status == GS_OK ? read_all(&file, &status, error) : NULL;
    gsi_weights_close(&file);
    status = gsi_ranks_first_error(t, status, error);
    const gsi_unsharded u = gsi_unsharded_of(t);
    const float *at = all;
    for (size_t i = 0; status == GS_OK && i < t->model->n; i++) {
        const gs_weight *w = &gs_store_weights(t->store, NULL)[i];
        const size_t count = w->rows * w->cols;
        const gs_tensor from = gs_tensor_source(at, count, GS_F32, w->name);
        const gs_tensor to = {w->data, count, w->dtype, w->name, 0};
        if (u.there[0])
            gsi_unsharded_take(t, &u, 0, i, at);
        else if (w->dtype == GS_F32)
            memcpy(w->data, at, count * sizeof *at);
        else
            status = gs_tensors_convert(t->ctx, &to, &from, 1, NULL);
        at += count;
    }
    if (status == GS_OK && t->model->states > 0)
        memcpy(t->model->state, at, t->model->states * sizeof *at);
    gsi_free(&t->ctx->heap, all);
    if (status != GS_OK)
        return status;
    status = gs_trainer_sync(t);
    if (status == GS_OK)
        status = gsi_ranks_compare_now(t); /* or did each find a file of its own? */
    return status == GS_OK ? status : gsi_fail(error, status, "%s", t->ctx->error.text);
}

/* ---- writing ---- */

gs_status gs_infer_weight(float *dst, int *rank, size_t shape[4], const gs_infer *f, size_t i)
{
    if (!f || !rank || !shape || i >= f->model->n)
        return GS_ERANGE;
    const gs_weight *w = &f->weights[i];
    const size_t count = w->rows * w->cols;
    *rank = gsi_layout_shape(shape, f->model, i);
    if (!dst)
        return GS_OK;
    float *values = gsi_new(&f->ctx->heap, count * sizeof *values);
    if (!values)
        return gsi_fail(&f->ctx->error, GS_ENOMEM, "no memory for weight %s", w->name);
    for (size_t k = 0; k < count; k++)
        values[k] = gsi_float(gsi_element(w->data, w->dtype, k));
    gsi_layout_out(dst, values, f->model, i);
    gsi_free(&f->ctx->heap, values);
    return GS_OK;
}

static void describe(gsi_tensor *x, const char *name, float *data, int rank, const size_t *shape)
{
    *x = (gsi_tensor){.name = name, .data = data, .dtype = GS_F32, .rank = rank, .count = 1};
    for (int d = 0; d < rank; d++) {
        x->shape[d] = shape[d];
        x->count *= shape[d];
    }
}

gs_status gs_infer_export(const char *path, const gs_infer *f, gs_error *error)
{
    if (!path || !f)
        return gsi_fail(error, GS_ENULL, "there is no path or no model to export");
    const gs_model *m = f->model;
    gsi_arena arena;
    gsi_arena_init(&arena, &f->ctx->heap);
    gsi_tensor *list = gsi_arena_new(&arena, m->n + m->n_states, sizeof *list);
    gs_status status = list ? GS_OK : GS_ENOMEM;
    for (size_t i = 0; status == GS_OK && i < m->n; i++) {
        size_t shape[4];
        int rank;
        float *data = gsi_arena_new(&arena, m->entries[i].rows * m->entries[i].cols, sizeof *data);
        status = data ? gs_infer_weight(data, &rank, shape, f, i) : GS_ENOMEM;
        if (status == GS_OK)
            describe(&list[i], m->entries[i].name, data, rank, shape);
    }
    float *state = m->state;
    for (size_t i = 0; status == GS_OK && i < m->n_states; i++) {
        describe(&list[m->n + i], m->state_entries[i].name, state, 1, &m->state_entries[i].count);
        state += m->state_entries[i].count;
    }
    if (status == GS_ENOMEM)
        gsi_fail(error, status, "no memory for the weights of a model");
    const gsi_text texts[] = {{"format", "pt"}};
    if (status == GS_OK)
        status =
            gsi_safetensors_export(path, list, m->n + m->n_states, texts, 1, &f->ctx->heap, error);
    gsi_arena_free(&arena);
    return status;
}

/* ---- running ---- */

static gs_status check_model(const gs_infer *f)
{
    return f->model->weights == f->weights
               ? GS_OK
               : gsi_fail(&f->ctx->error, GS_ESTATE, "the model serves another owner now");
}

gs_status gs_infer_run(gs_infer_result *out, gs_infer *f, const gs_batch *batch)
{
    if (!out || !f || !batch)
        return gsi_missing(f ? f->ctx : NULL, __func__);
    *out = (gs_infer_result){.loss = (double)NAN};
    gs_status status = check_model(f);
    if (status == GS_OK && batch->n == 0)
        status = gsi_fail(&f->ctx->error, GS_ESIZE, "the batch is empty");
    if (status != GS_OK)
        return status;
    gs_model *m = f->model;
    gs_tape_begin(f->tape, 0, 0);
    gs_value *logits = m->logits ? m->logits(m, f->tape, batch) : NULL;
    gs_value *loss = !batch->targets ? NULL
                     : logits        ? gs_cross_entropy(f->tape, logits, batch->targets)
                                     : m->forward(m, f->tape, batch);
    status = gs_tape_status(f->tape);
    if (status != GS_OK)
        return status;
    out->logits = logits;
    if (loss)
        out->loss = (double)*(const float *)loss->data;
    return GS_OK;
}

gs_status gs_infer_calibrate(gs_infer *f, const gs_batch *batch)
{
    gs_infer_result unread;
    if (!f)
        return GS_ENULL;
    if (f->tape->config.quantize == GS_QUANTIZE_NONE)
        return gsi_fail(&f->ctx->error, GS_ESTATE, "the model is not to be quantised");
    gs_tape_set_calibrating(f->tape, 1);
    const gs_status status = gs_infer_run(&unread, f, batch);
    gs_tape_set_calibrating(f->tape, 0);
    return status;
}

int gs_infer_calibrated(const gs_infer *f)
{
    for (size_t i = 0; i < f->model->n_ranges; i++)
        if (gsi_model_ranges(f->model)[i] > 0)
            return 1;
    return 0;
}

/* ---- text ---- */

gs_status gs_kv_cache_create(gs_kv_cache **out, gs_infer *f)
{
    if (!out || !f)
        return gsi_missing(f ? f->ctx : NULL, __func__);
    *out = NULL;
    const gs_model *m = f->model;
    gsi_heap *heap = &f->ctx->heap;
    if (!m->next)
        return gsi_fail(&f->ctx->error, GS_ESTATE, "the model does not go on with a text");
    const size_t size = gsi_size_of(f->half);
    size_t half, both, bytes;
    gs_kv_cache *c = gsi_new(heap, sizeof *c + m->kv_layers * sizeof *c->layers);
    char *rows = NULL;
    if (gsi_mul_size(&half, m->kv_heads * m->kv_width, m->context) &&
        gsi_mul_size(&half, half, size) && gsi_mul_size(&both, half, 2) &&
        gsi_mul_size(&bytes, both, m->kv_layers))
        rows = gsi_new(heap, bytes);
    if (!c || !rows) {
        gsi_free(heap, c);
        gsi_free(heap, rows);
        return gsi_fail(&f->ctx->error, GS_ENOMEM, "no memory for keys and values of %zu tokens",
                        m->context);
    }
    *c = (gs_kv_cache){.ctx = f->ctx,
                       .n_layers = m->kv_layers,
                       .row = 2 * m->kv_layers * m->kv_heads * m->kv_width * size};
    c->block = rows;
    c->layers = (gs_kv *)(c + 1);
    for (size_t i = 0; i < m->kv_layers; i++)
        c->layers[i] = (gs_kv){.k = rows + i * both,
                               .v = rows + i * both + half,
                               .dtype = f->half,
                               .room = m->context};
    *out = c;
    return GS_OK;
}

void gs_kv_cache_free(gs_kv_cache *c)
{
    if (!c)
        return;
    gsi_free(&c->ctx->heap, c->block);
    gsi_free(&c->ctx->heap, c);
}

size_t gs_kv_cache_length(const gs_kv_cache *cache) { return cache->n; }
uint64_t gs_kv_cache_bytes(const gs_kv_cache *cache) { return cache->n * cache->row; }

static void set_length(gs_kv_cache *c, size_t n)
{
    c->n = n;
    for (size_t i = 0; i < c->n_layers; i++)
        c->layers[i].n = n;
}

void gs_kv_cache_truncate(gs_kv_cache *c, size_t n)
{
    if (n < c->n)
        set_length(c, n);
}

gs_status gs_infer_next(const float **logits, gs_infer *f, gs_kv_cache *cache, const int32_t *ids,
                        size_t n)
{
    if (!logits || !f || !cache || !ids)
        return gsi_missing(f ? f->ctx : NULL, __func__);
    gs_status status = check_model(f);
    if (status == GS_OK && n == 0)
        status = gsi_fail(&f->ctx->error, GS_ESIZE, "there is no token to go on with");
    if (status != GS_OK)
        return status;
    f->tape->panels = true; /* a token at a time, it pays */
    gs_tape_begin(f->tape, 0, 0);
    const gs_value *last = f->model->next(f->model, f->tape, ids, n, cache);
    status = gs_tape_status(f->tape);
    if (status != GS_OK)
        return status;
    if (!f->logits && !(f->logits = gsi_new(&f->ctx->heap, last->count * sizeof *f->logits)))
        return gsi_fail(&f->ctx->error, GS_ENOMEM, "no memory for logits");
    for (size_t i = 0; i < last->count; i++)
        f->logits[i] = gsi_float(gsi_element(last->data, last->dtype, i));
    set_length(cache, cache->n + n);
    *logits = f->logits;
    return GS_OK;
}
