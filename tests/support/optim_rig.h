/* optim_rig.h: what the suites of the optimizers train: a model of three weights in every storage,
 * its steps, and a hash of all that a step may move. */
#ifndef OPTIM_RIG_H
#define OPTIM_RIG_H

#include "memory.h"
#include "test.h"

#include "gradscale/optim.h"

#include <math.h>

/* ---- a model to train: one matrix that Adafactor factors, one vector, one number ---- */

static const gs_store_entry entries[] = {
    {"matrix", 130, 140, 0}, {"bias", 1, 1000, GS_NO_DECAY}, {"number", 1, 1, 0}};
enum { WEIGHTS = 3 };

typedef struct rig {
    books memory;
    gs_context *ctx;
    gs_store *store;
    gs_optim *optim;
    gs_scaler scaler;
    const gs_weight *list;
} rig;

typedef struct rig_spec {
    const char *kind, *settings, *scaler;
    gs_store_types types;
    unsigned threads, without_cpu;
} rig_spec;

static inline float noise(uint64_t stream, uint64_t i)
{
    return (float)((double)gs_random_u32(stream, i) / 0x1p+31 - 1);
}

static inline void put(void *data, gs_dtype type, size_t i, float x)
{
    if (type == GS_F32)
        ((float *)data)[i] = x;
    else
        ((uint16_t *)data)[i] = type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
}

static inline float get(const void *data, gs_dtype type, size_t i)
{
    if (type == GS_F32)
        return ((const float *)data)[i];
    const uint16_t code = ((const uint16_t *)data)[i];
    return type == GS_F16 ? gs_f16_to_f32(code) : gs_bf16_to_f32(code);
}

static inline gs_status rig_open(rig *r, const rig_spec *spec)
{
    gs_optim_config config = {.size = sizeof config};
    const gs_config with = {.size = sizeof with,
                            .alloc = {books_resize, &r->memory},
                            .threads = spec->threads ? spec->threads : 1,
                            .without_cpu = spec->without_cpu};
    gs_status status = gs_context_create(&r->ctx, &with, NULL);
    if (status != GS_OK)
        return status;
    CHECK(gs_scaler_init(&r->scaler, spec->scaler ? spec->scaler : "pytorch", NULL) == GS_OK);
    CHECK(gs_optim_config_init(&config, spec->kind, NULL) == GS_OK);
    if (spec->settings)
        CHECK(gs_optim_config_set(&config, spec->settings, NULL) == GS_OK);
    status = gs_store_create(&r->store, r->ctx, entries, WEIGHTS, spec->types);
    if (status != GS_OK)
        return status;
    size_t n;
    r->list = gs_store_weights(r->store, &n);
    CHECK(n == WEIGHTS);
    for (size_t t = 0; t < n; t++)
        for (size_t i = 0; i < r->list[t].rows * r->list[t].cols; i++)
            put(r->list[t].data, r->list[t].dtype, i, noise(7 + t, i));
    return gs_optim_create(&r->optim, r->ctx, r->list, n, &config);
}

static inline void rig_close(rig *r)
{
    gs_optim_free(r->optim);
    gs_store_free(r->store);
    gs_context_free(r->ctx);
    CHECK(r->memory.blocks == 0 && !r->memory.wrong);
}

/* Gradients of step number `turn`, scaled: 0.01 * noise. */
static inline void rig_grads(rig *r, double scale, unsigned turn)
{
    for (size_t t = 0; t < WEIGHTS; t++)
        for (size_t i = 0; i < r->list[t].rows * r->list[t].cols; i++)
            put(r->list[t].grad, r->list[t].grad_dtype, i,
                0.01f * noise(100 + 10 * turn + t, i) * (float)scale);
}

static inline gs_optim_report rig_step(rig *r, unsigned turn, float spoil)
{
    gs_step step;
    gs_optim_report report;
    gs_step_begin(&step, &r->scaler);
    rig_grads(r, step.scale, turn);
    if (spoil != 0)
        put(r->list[1].grad, r->list[1].grad_dtype, 500, spoil);
    CHECK(gs_optim_step(r->optim, &step, &r->scaler, &report) == GS_OK);
    return report;
}

/* A number for every bit of weights, copies and state. */
static inline uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * 0x100000001B3;
    return h;
}

static inline uint64_t hash_tensor(uint64_t h, gs_tensor x)
{
    return hash(h, x.data, x.count * gs_dtype_format(x.dtype)->bytes);
}

static inline uint64_t rig_hash(const rig *r)
{
    uint64_t h = hash_tensor(0xCBF29CE484222325, gs_store_data(r->store));
    h = hash_tensor(h, gs_store_copies(r->store));
    for (size_t t = 0; t < WEIGHTS; t++)
        for (int k = 0; k < GS_SLOT_COUNT; k++)
            h = hash_tensor(h, gs_optim_slot(r->optim, t, (gs_slot)k));
    return h;
}

/* Every way of storing things, each with every optimizer. */
static const char *const kinds[] = {"sgd", "adam", "adamw", "lamb", "adafactor"};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static const struct storage {
    gs_store_types types;
    const char *settings;
} storages[] = {
    {{GS_F32, GS_F32, GS_F32}, "weight_decay=0.1 lr=0.01"},
    {{GS_F32, GS_F16, GS_F16}, "weight_decay=0.1 lr=0.01 clip_norm=0.1 ema=0.9"},
    {{GS_F32, GS_BF16, GS_BF16}, "lr=0.01 clip_value=0.005 schedule=cosine total=10 warmup=2"},
    {{GS_BF16, GS_BF16, GS_BF16}, "lr=0.01 rounding=stochastic seed=5"},
    {{GS_BF16, GS_BF16, GS_F32}, "lr=0.01 rounding=kahan ema=0.99"},
    {{GS_F16, GS_F16, GS_F16}, "lr=0.01 rounding=nearest"},
    {{GS_F32, GS_F16, GS_F16}, "lr=0.01 moments=f16 weight_decay=0.01"},
    {{GS_BF16, GS_BF16, GS_BF16}, "lr=0.01 moments=bf16 rounding=stochastic"},
};
enum { STORAGES = sizeof storages / sizeof storages[0] };

/* Adafactor takes no half moments; SGD is tested with momentum. */
static inline int spec_of(rig_spec *spec, char settings[128], size_t kind, size_t storage)
{
    const struct storage *s = &storages[storage];
    if (strcmp(kinds[kind], "adafactor") == 0 && strstr(s->settings, "moments"))
        return 0;
    snprintf(settings, 128, "%s %s", s->settings,
             strcmp(kinds[kind], "sgd") == 0 ? "momentum=0.9 nesterov=yes" : "");
    *spec = (rig_spec){.kind = kinds[kind], .settings = settings, .types = s->types};
    return 1;
}

#endif
