/* What all models are made of: a list of weights with names and beginnings. */
#include "train/train.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 96 };

/* Stands in memory before the model. */
typedef struct head {
    gs_context *ctx;
    gs_store_entry *entries;
    gs_init *inits;
    gs_layout *layouts;
    gs_state_entry *states;
    char (*names)[NAME]; /* of the entries, of the states, of the ranges */
    size_t room;         /* of entries; of states twice that */
    size_t filled;       /* states that have a name */
} head;

enum { HEAD = (sizeof(head) + GSI_ALIGN - 1) / GSI_ALIGN * GSI_ALIGN };

static head *head_of(void *model) { return (head *)(void *)((char *)model - HEAD); }

static void release(void *model)
{
    head *h = head_of(model);
    gsi_free(&h->ctx->heap, h);
}

void gs_model_free(gs_model *model)
{
    if (model && model->release)
        model->release(model);
}

static gs_value *cross_entropy(void *model, gs_tape *t, const gs_batch *batch)
{
    const gs_model *m = model;
    return gs_cross_entropy(t, m->logits(model, t, batch), batch->targets);
}

void *gsi_model_new(gs_context *ctx, size_t size, size_t entries, size_t states)
{
    const size_t each = sizeof(gs_store_entry) + 2 * sizeof(gs_state_entry) + sizeof(gs_layout) +
                        sizeof(gs_init) + 3 * NAME + sizeof(float);
    size_t lists, floats, bytes;
    char *base = NULL;
    size = (size + GSI_ALIGN - 1) / GSI_ALIGN * GSI_ALIGN;
    if (gsi_mul_size(&lists, entries, each) && gsi_mul_size(&floats, states, sizeof(float)) &&
        gsi_add_size(&bytes, lists, floats) && gsi_add_size(&bytes, bytes, HEAD + size))
        base = gsi_new(&ctx->heap, bytes);
    if (!base) {
        gsi_fail(&ctx->error, GS_ENOMEM, "no memory for a model of %zu weights", entries);
        return NULL;
    }
    memset(base, 0, bytes);
    head *h = (void *)base;
    char *at = base + HEAD + size; /* entries first: they are aligned most strictly */
    *h = (head){.ctx = ctx, .entries = (void *)at, .room = entries};
    at += entries * sizeof *h->entries;
    h->states = (void *)at;
    at += 2 * entries * sizeof *h->states;
    h->layouts = (void *)at;
    at += entries * sizeof *h->layouts;
    h->inits = (void *)at;
    at += entries * sizeof *h->inits;
    float *state = (void *)at;
    h->names = (void *)(at + floats + entries * sizeof *state); /* behind the ranges */
    gs_model *model = (void *)(base + HEAD);
    *model = (gs_model){.forward = cross_entropy,
                        .release = release,
                        .entries = h->entries,
                        .inits = h->inits,
                        .state = state,
                        .states = states,
                        .state_entries = h->states,
                        .layouts = h->layouts};
    return model;
}

void gsi_model_add(void *model, size_t rows, size_t cols, gs_init init, const char *format, ...)
{
    head *h = head_of(model);
    gs_model *m = model;
    va_list args;
    if (m->n == h->room)
        return;
    va_start(args, format);
    vsnprintf(h->names[m->n], NAME, format, args);
    va_end(args);
    h->inits[m->n] = init;
    /* biases and norms, the vectors, are not decayed */
    h->entries[m->n] = (gs_store_entry){h->names[m->n], rows, cols, rows == 1 ? GS_NO_DECAY : 0};
    m->n++;
}

void gsi_model_layout(void *model, gs_layout layout)
{
    const gs_model *m = model;
    if (m->n > 0)
        head_of(model)->layouts[m->n - 1] = layout;
}

float *gsi_model_add_state(void *model, size_t count, const char *format, ...)
{
    head *h = head_of(model);
    gs_model *m = model;
    va_list args;
    if (m->n_states == 2 * h->room || count > m->states - h->filled)
        return NULL;
    char *name = h->names[h->room + m->n_states];
    va_start(args, format);
    vsnprintf(name, NAME, format, args);
    va_end(args);
    float *state = m->state + h->filled;
    h->states[m->n_states++] = (gs_state_entry){name, count};
    h->filled += count;
    return state;
}

gs_status gs_model_quantize(gs_model *model, gs_context *ctx)
{
    if (!model || !ctx)
        return gsi_missing(ctx, __func__);
    if (model->release != release)
        return gsi_fail(&ctx->error, GS_ESTATE, "a model that is not the library's has no ranges");
    if (model->weights)
        return gsi_fail(&ctx->error, GS_ESTATE, "the model is in use: it cannot be quantised now");
    if (model->n_ranges > 0)
        return GS_OK;
    for (size_t i = 0; i < model->n; i++) {
        const gs_store_entry *e = &model->entries[i];
        const char *end = strrchr(e->name, '.'); /* "fc.weight" */
        if (e->rows == 1)
            continue;
        model->states++;
        model->n_ranges++;
        gsi_model_add_state(model, 1, "%.*s.input_amax",
                            end ? (int)(end - e->name) : (int)strlen(e->name), e->name);
    }
    return GS_OK;
}

float *gsi_model_ranges(const gs_model *m) { return m->state + (m->states - m->n_ranges); }

gs_status gsi_check_ranges(gs_context *ctx, const gs_model *m, gs_quantize how)
{
    if (how == GS_QUANTIZE_NONE || m->n_ranges > 0)
        return GS_OK;
    return gsi_fail(&ctx->error, GS_ESTATE,
                    "a model without ranges cannot be quantised: gs_model_quantize");
}

/* The sum of eight uniform numbers of 16 bits: close to normal, integer work, the same everywhere;
 * libm's logarithms differ in their last bits. */
void gsi_init_fill(float *data, size_t count, gs_init init, uint64_t seed, size_t t, size_t first)
{
    const double unit = sqrt(12.0 / 8) * 0x1p-16 * (double)init.std;
    for (size_t i = 0; i < count; i++) {
        int sum = 0;
        if (init.std != 0) {
            uint32_t block[4];
            gsi_philox(block, seed, (uint64_t)t << 40 | (first + i));
            for (int k = 0; k < 4; k++)
                sum += (int)(block[k] & 0xFFFF) + (int)(block[k] >> 16);
            sum -= 4 * 65535; /* the mean */
        }
        data[i] = (float)((double)init.mean + unit * sum);
    }
}
