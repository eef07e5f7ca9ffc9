/* job.h: small training runs of every kind, and whether two of them are the same to the last bit.
 */
#ifndef JOB_H
#define JOB_H

#include "memory.h"
#include "test.h"

#include "gradscale/checkpoint.h"

#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum model_kind { MLP, CNN, RESNET, GPT, TINY } model_kind;

typedef struct how {
    model_kind kind;
    gs_mode mode;
    gs_dtype half;
    const char *optim, *settings; /* NULL: adamw, lr=1e-2 */
    const char *scaler, *rules;   /* NULL: pytorch's */
    unsigned threads;
    uint64_t seed;
    books *books;
} how;

typedef struct job {
    gs_context *ctx;
    gs_model *model;
    gs_trainer *trainer;
    model_kind kind;
    gs_status status; /* of making it */
} job;

enum { SIDE = 8, IMAGES = 4, CLASSES = 3, WORDS = 11, TIME = 6 };

static gs_status job_model(job *j, model_kind kind)
{
    const gs_gpt_config gpt = {.size = sizeof gpt, WORDS, 8, 1, 2, 8, 0.2f};
    const gs_cnn_config cnn = {.size = sizeof cnn, SIDE, SIDE, 1, CLASSES, 4, kind == RESNET};
    const gs_mlp_config mlp = {.size = sizeof mlp, (const size_t[]){SIDE * SIDE, 20, CLASSES}, 3};
    const gs_mlp_config tiny = {.size = sizeof tiny, (const size_t[]){SIDE * SIDE, CLASSES}, 2};
    return kind == GPT    ? gs_gpt_create(&j->model, j->ctx, &gpt)
           : kind == MLP  ? gs_mlp_create(&j->model, j->ctx, &mlp)
           : kind == TINY ? gs_mlp_create(&j->model, j->ctx, &tiny)
                          : gs_cnn_create(&j->model, j->ctx, &cnn);
}

static job job_new(const how *h)
{
    job j = {.kind = h->kind};
    gs_error error = {0};
    gs_config config = {.size = sizeof config, .threads = h->threads ? h->threads : 1};
    if (h->books)
        config.alloc = books_hook(h->books);
    gs_trainer_config tc = {
        .size = sizeof tc,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = h->mode, .half = h->half},
        .seed = h->seed};
    const bool set =
        gs_optim_config_init(&tc.optim, h->optim ? h->optim : "adamw", &error) == GS_OK &&
        gs_optim_config_set(&tc.optim, h->settings ? h->settings : "lr=1e-2", &error) == GS_OK &&
        gs_scaler_init(&tc.scaler, h->scaler, &error) == GS_OK &&
        (!h->rules || gs_scaler_set(&tc.scaler, h->rules, &error) == GS_OK);
    CHECK_MSG(set, "%s", error.text);
    j.status = gs_context_create(&j.ctx, &config, NULL);
    if (j.status == GS_OK)
        j.status = job_model(&j, h->kind);
    if (j.status == GS_OK)
        j.status = gs_trainer_create(&j.trainer, j.ctx, j.model, &tc);
    return j;
}

static void job_free(job *j)
{
    gs_trainer_free(j->trainer);
    gs_model_free(j->model);
    gs_context_free(j->ctx);
}

/* Batch `which`, a function of its number alone. */
static inline void job_step(job *j, uint64_t which)
{
    int32_t ids[2 * TIME], targets[2 * TIME];
    float x[IMAGES * SIDE * SIDE];
    gs_batch batch = {.n = IMAGES, .x = x, .targets = targets};
    if (j->kind == GPT)
        batch = (gs_batch){.n = 2, .time = TIME, .ids = ids, .targets = targets};
    for (uint64_t i = 0; i < 2 * TIME; i++) {
        ids[i] = (int32_t)(gs_random_u32(which, i) % WORDS);
        targets[i] = j->kind == GPT ? (ids[i] * 5 + 3) % WORDS : (int32_t)(i + which) % CLASSES;
    }
    for (uint64_t i = 0; i < IMAGES * SIDE * SIDE; i++)
        x[i] = (float)gs_random_u32(which + 7, i) * 0x1p-31f - 1;
    const gs_status status = gs_trainer_step(j->trainer, &batch, 1, NULL);
    CHECK_MSG(status == GS_OK, "%s", gs_context_error(j->ctx)->text);
}

static bool same_tensor(gs_tensor a, gs_tensor b)
{
    return a.count == b.count && a.dtype == b.dtype &&
           (a.count == 0 || memcmp(a.data, b.data, a.count * gs_dtype_format(a.dtype)->bytes) == 0);
}

/* Weights, copies, moments, running statistics, scaler and counters. */
static inline bool same_job(const job *a, const job *b)
{
    gs_optim *oa = gs_trainer_optim(a->trainer), *ob = gs_trainer_optim(b->trainer);
    const gs_optim_state sa = gs_optim_get_state(oa), sb = gs_optim_get_state(ob);
    const gs_store *wa = gs_trainer_store(a->trainer), *wb = gs_trainer_store(b->trainer);
    bool same = same_tensor(gs_store_data(wa), gs_store_data(wb)) &&
                same_tensor(gs_store_copies(wa), gs_store_copies(wb)) &&
                memcmp(gs_trainer_scaler(a->trainer), gs_trainer_scaler(b->trainer),
                       sizeof(gs_scaler)) == 0 &&
                memcmp(&sa, &sb, sizeof sa) == 0;
    for (size_t t = 0; t < a->model->n; t++)
        for (int s = 0; s < GS_SLOT_COUNT; s++)
            same &= same_tensor(gs_optim_slot(oa, t, (gs_slot)s), gs_optim_slot(ob, t, (gs_slot)s));
    return same && (a->model->states == 0 || memcmp(a->model->state, b->model->state,
                                                    a->model->states * sizeof(float)) == 0);
}

/* ---- files ---- */

typedef struct content {
    unsigned char *data;
    size_t n;
} content;

static content read_bytes(const char *path)
{
    content b = {0};
    struct stat st;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &st) != 0)
        return b;
    b.n = (size_t)st.st_size;
    b.data = malloc(b.n + 1);
    CHECK(fread(b.data, 1, b.n, f) == b.n);
    fclose(f);
    return b;
}

static inline bool same_file(const char *a, const char *b)
{
    content x = read_bytes(a), y = read_bytes(b);
    const bool same = x.data && y.data && x.n == y.n && memcmp(x.data, y.data, x.n) == 0;
    free(x.data);
    free(y.data);
    return same;
}

static inline void write_bytes(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(data, 1, n, f) == n);
    if (f)
        fclose(f);
}

/* A folder of the test's own, in memory where that can be: bringing thousands of files to a disk
 * takes its time. And a path in it, in one of a few buffers. */
static char job_folder[64];

static inline void make_folder(void)
{
    const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(job_folder, sizeof job_folder, "%s/gradscale-XXXXXX", tmp);
    CHECK(mkdtemp(job_folder));
}

static inline void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", job_folder);
    CHECK(system(command) == 0);
}

static inline const char *in_folder(const char *name)
{
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", job_folder, name);
    return path;
}

#endif
