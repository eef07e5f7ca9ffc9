/* train_rig.h: small training jobs of every model, and whether two of them are the same. */
#ifndef TRAIN_RIG_H
#define TRAIN_RIG_H

#include "memory.h"
#include "test.h"

#include "gradscale/train.h"

#include <stdbool.h>

enum { GPT_N = 2, GPT_T = 10, GPT_WORDS = 17, CNN_N = 6, CNN_SIDE = 8, CNN_CLASSES = 3 };

typedef enum model_kind { GPT, CNN, RESNET, MLP } model_kind;

typedef struct job {
    gs_context *ctx;
    gs_model *model;
    gs_trainer *trainer;
    gs_status status; /* of making it */
} job;

typedef struct how {
    model_kind kind;
    gs_mode mode;
    gs_dtype half;
    const char *scaler, *rules; /* of gs_scaler_init and _set; NULL: pytorch's */
    const char *optim;          /* settings of adamw */
    unsigned threads, without_cpu;
    float dropout;
    int telemetry, recompute, wgrad_f32;
    double loss_weight;
    books *books;
} how;

static inline gs_status make_model(job *j, const how *h)
{
    const gs_gpt_config gpt = {.size = sizeof gpt, GPT_WORDS, 16, 2, 2, 24, h->dropout};
    const gs_cnn_config cnn = {
        .size = sizeof cnn, CNN_SIDE, CNN_SIDE, 2, CNN_CLASSES, 4, h->kind == RESNET};
    const gs_mlp_config mlp = {
        .size = sizeof mlp, (const size_t[]){CNN_SIDE * CNN_SIDE * 2, 20, CNN_CLASSES}, 3};
    return h->kind == GPT   ? gs_gpt_create(&j->model, j->ctx, &gpt)
           : h->kind == MLP ? gs_mlp_create(&j->model, j->ctx, &mlp)
                            : gs_cnn_create(&j->model, j->ctx, &cnn);
}

static inline job job_new(const how *h)
{
    job j = {0};
    gs_config config = {
        .size = sizeof config, .threads = h->threads, .without_cpu = h->without_cpu};
    if (h->books)
        config.alloc = books_hook(h->books);
    gs_trainer_config tc = {.size = sizeof tc,
                            .optim.size = sizeof(gs_optim_config),
                            .tape = {.size = sizeof(gs_tape_config),
                                     .mode = h->mode,
                                     .half = h->half,
                                     .wgrad_f32 = h->wgrad_f32,
                                     .telemetry = h->telemetry,
                                     .recompute = h->recompute},
                            .seed = 42,
                            .loss_weight = h->loss_weight};
    gs_error error = {0};
    const bool set = gs_optim_config_init(&tc.optim, "adamw", &error) == GS_OK &&
                     gs_optim_config_set(&tc.optim, h->optim ? h->optim : "lr=3e-3 clip_norm=1",
                                         &error) == GS_OK &&
                     gs_scaler_init(&tc.scaler, h->scaler, &error) == GS_OK &&
                     (!h->rules || gs_scaler_set(&tc.scaler, h->rules, &error) == GS_OK);
    CHECK_MSG(set, "%s", error.text);
    j.status = gs_context_create(&j.ctx, &config, NULL);
    if (j.status == GS_OK)
        j.status = make_model(&j, h);
    if (j.status == GS_OK)
        j.status = gs_trainer_create(&j.trainer, j.ctx, j.model, &tc);
    return j;
}

static inline void job_free(job *j)
{
    gs_trainer_free(j->trainer);
    gs_model_free(j->model);
    gs_context_free(j->ctx);
}

/* A task that can be learnt: a word follows from the last one; an image's class is where it is
 * brightest. Batch `which` of it. */
static inline gs_batch batch_of(model_kind kind, unsigned which)
{
    static int32_t ids[8 * GPT_T], targets[8 * GPT_T];
    static float x[8 * CNN_SIDE * CNN_SIDE * 2];
    const uint64_t seed = 1000 + which;
    if (kind == GPT) {
        for (int i = 0; i < GPT_N * GPT_T; i++) {
            const bool first = i % GPT_T == 0;
            ids[i] =
                first ? (int32_t)(gs_random_u32(seed, (uint64_t)i) % GPT_WORDS) : targets[i - 1];
            targets[i] = (ids[i] * 5 + 3) % GPT_WORDS;
        }
        return (gs_batch){.n = GPT_N, .time = GPT_T, .ids = ids, .targets = targets};
    }
    for (int i = 0; i < CNN_N; i++) {
        const int class = (int)(gs_random_u32(seed, (uint64_t)i) % CNN_CLASSES);
        targets[i] = class;
        for (int p = 0; p < CNN_SIDE * CNN_SIDE * 2; p++) {
            const int row = p / (2 * CNN_SIDE);
            const float noise = (float)gs_random_u32(seed + 500, (uint64_t)(i * 128 + p));
            x[i * CNN_SIDE * CNN_SIDE * 2 + p] =
                noise * 0x1p-31f - 1 + (row / 3 == class ? 1.5f : 0);
        }
    }
    return (gs_batch){.n = CNN_N, .x = x, .targets = targets};
}

static inline gs_train_row step(job *j, model_kind kind, unsigned which)
{
    gs_train_row row = {0};
    const gs_batch batch = batch_of(kind, which);
    const gs_status status = gs_trainer_step(j->trainer, &batch, 1, &row);
    CHECK_MSG(status == GS_OK, "%s", gs_context_error(j->ctx)->text);
    return row;
}

static inline bool same_tensor(gs_tensor a, gs_tensor b)
{
    const size_t size = a.dtype == GS_F32 ? 4 : 2;
    return a.count == b.count && a.dtype == b.dtype &&
           (a.count == 0 || memcmp(a.data, b.data, a.count * size) == 0);
}

/* Weights, copies, moments and running statistics, to the last bit. */
static inline bool same_job(const job *a, const job *b)
{
    bool same = same_tensor(gs_store_data(gs_trainer_store(a->trainer)),
                            gs_store_data(gs_trainer_store(b->trainer))) &&
                same_tensor(gs_store_copies(gs_trainer_store(a->trainer)),
                            gs_store_copies(gs_trainer_store(b->trainer)));
    for (size_t t = 0; t < a->model->n; t++)
        for (int s = 0; s < GS_SLOT_COUNT; s++)
            same &= same_tensor(gs_optim_slot(gs_trainer_optim(a->trainer), t, (gs_slot)s),
                                gs_optim_slot(gs_trainer_optim(b->trainer), t, (gs_slot)s));
    return same && (a->model->states == 0 || memcmp(a->model->state, b->model->state,
                                                    a->model->states * sizeof(float)) == 0);
}

#endif
