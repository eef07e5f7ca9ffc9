/* Models without trainers: the bits of a trainer's, texts that go on, weights of other makes. */
#include "test.h"

#include "gradscale/checkpoint.h"
#include "gradscale/infer.h"
#include "gradscale/io.h"

#include <math.h>
#include <stdbool.h>
#include <unistd.h>

enum { VOCABULARY = 48, CONTEXT = 16, WIDTH = 32, LAYERS = 2, HEADS = 2, BATCH = 3, TIME = 12 };

static const gs_gpt_config gpt_sizes = {
    .size = sizeof gpt_sizes, VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH, 0};
static const gs_cnn_config cnn_sizes = {sizeof cnn_sizes, 16, 8, 2, 5, 4, 0};

typedef struct rig {
    gs_context *ctx;
    gs_model *model;
    gs_infer *infer;
} rig;

static rig rig_new(bool gpt, gs_mode mode, gs_dtype half)
{
    rig r = {0};
    const gs_infer_config config = {.size = sizeof config, .mode = mode, .half = half};
    CHECK(gs_context_create(&r.ctx, NULL, NULL) == GS_OK);
    CHECK((gpt ? gs_gpt_create(&r.model, r.ctx, &gpt_sizes)
               : gs_cnn_create(&r.model, r.ctx, &cnn_sizes)) == GS_OK);
    CHECK(gs_infer_create(&r.infer, r.ctx, r.model, &config) == GS_OK);
    return r;
}

static void rig_free(rig *r)
{
    gs_infer_free(r->infer);
    gs_model_free(r->model);
    gs_context_free(r->ctx);
}

static gs_trainer *trainer_of(gs_context *ctx, gs_model *model, gs_mode mode, gs_dtype half)
{
    gs_trainer *t = NULL;
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = mode, .half = half},
        .seed = 7};
    CHECK(gs_optim_config_init(&config.optim, "adamw", NULL) == GS_OK);
    CHECK(gs_scaler_init(&config.scaler, "pytorch", NULL) == GS_OK);
    CHECK(gs_trainer_create(&t, ctx, model, &config) == GS_OK);
    return t;
}

static const char *temporary(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/gs_test_infer_%ld.safetensors", (long)getpid());
    return path;
}

static float logit(const gs_value *v, size_t i)
{
    const uint16_t half = v->dtype == GS_F32 ? 0 : ((const uint16_t *)v->data)[i];
    return v->dtype == GS_F32    ? ((const float *)v->data)[i]
           : v->dtype == GS_BF16 ? gs_bf16_to_f32(half)
                                 : gs_f16_to_f32(half);
}

/* An f32 tensor of a file. */
static float *tensor(const char *path, const char *name, size_t *count)
{
    gs_source *s;
    float *data = NULL;
    *count = 0;
    if (gs_source_open(&s, path, NULL, NULL) != GS_OK)
        return NULL;
    for (size_t i = 0; i < gs_source_count(s); i++)
        if (strcmp(gs_source_entry(s, i)->name, name) == 0) {
            *count = (size_t)gs_source_entry(s, i)->count;
            data = malloc(*count * sizeof *data);
            CHECK(gs_source_read(data, s, i, 0, *count, NULL) == GS_OK);
        }
    gs_source_close(s);
    CHECK_MSG(data, "%s has no %s", path, name);
    return data;
}

static void text_of(int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)(gs_random_u32(3, i) % VOCABULARY);
}

/* ---- the same bits as a trainer's ---- */

static const struct {
    gs_mode mode;
    gs_dtype half;
    const char *name;
} modes[] = {{GS_O0, GS_F16, "O0"},       {GS_O1, GS_F16, "O1 f16"},   {GS_O2, GS_F16, "O2 f16"},
             {GS_O2, GS_BF16, "O2 bf16"}, {GS_O3, GS_BF16, "O3 bf16"}, {GS_O1, GS_BF16, "O1 bf16"}};

static void test_bits(void)
{
    int32_t ids[BATCH * TIME], targets[BATCH * TIME];
    float x[2 * 16 * 8 * 2];
    const int32_t classes[] = {1, 4};
    text_of(ids, BATCH * TIME);
    text_of(targets, BATCH * TIME);
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = (float)(gs_random_u32(5, i) % 1000) / 500 - 1;
    const gs_batch text = {.n = BATCH, .time = TIME, .ids = ids, .targets = targets};
    const gs_batch images = {.n = 2, .x = x, .targets = classes};
    for (size_t m = 0; m < 2 * sizeof modes / sizeof modes[0]; m++) {
        const bool gpt = m % 2;
        const gs_mode mode = modes[m / 2].mode;
        const gs_dtype half = modes[m / 2].half;
        rig a = rig_new(gpt, mode, half), b = rig_new(gpt, mode, half);
        const gs_batch *batch = gpt ? &text : &images;
        gs_trainer *t = trainer_of(b.ctx, b.model, mode, half);
        gs_checkpoint about = {.best = (double)NAN};
        gs_error error = {0};
        double loss;
        gs_infer_result found;
        CHECK(gs_trainer_step(t, batch, 1, NULL) == GS_OK); /* statistics move */
        CHECK(gs_checkpoint_save(temporary(), t, &about, &error) == GS_OK);
        CHECK(gs_trainer_evaluate(&loss, NULL, t, batch) == GS_OK);
        CHECK_MSG(gs_infer_load(a.infer, temporary(), &error) == GS_OK, "%s", error.text);
        CHECK(gs_infer_run(&found, a.infer, batch) == GS_OK);
        CHECK_MSG(found.loss == loss, "%s, %s: %.9g, the trainer's %.9g", gpt ? "gpt" : "cnn",
                  modes[m / 2].name, found.loss, loss);
        gs_trainer_free(t);
        rig_free(&a);
        rig_free(&b);
    }
    unlink(temporary());
}

/* In whatever pieces a text comes: the logits of its last token are those of the whole text. */
static void test_next(void)
{
    static const size_t pieces[][5] = {{16}, {1, 1, 1, 1, 1}, {5, 1, 7, 1, 2}, {15, 1}};
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++) {
        rig r = rig_new(true, modes[m].mode, modes[m].half);
        gs_error error = {0};
        CHECK_MSG(gs_infer_load(r.infer, "tests/data/gpt2-hf.safetensors", &error) == GS_OK, "%s",
                  error.text);
        int32_t ids[CONTEXT];
        text_of(ids, CONTEXT);
        for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
            gs_kv_cache *cache = NULL;
            CHECK(gs_kv_cache_create(&cache, r.infer) == GS_OK);
            size_t n = 0;
            for (size_t k = 0; k < 5 && pieces[p][k]; k++) {
                const float *logits = NULL;
                float kept[VOCABULARY];
                gs_infer_result whole;
                CHECK(gs_infer_next(&logits, r.infer, cache, ids + n, pieces[p][k]) == GS_OK);
                n += pieces[p][k];
                CHECK(gs_kv_cache_length(cache) == n);
                memcpy(kept, logits, sizeof kept);
                CHECK(gs_infer_run(&whole, r.infer, &(gs_batch){.n = 1, .time = n, .ids = ids}) ==
                      GS_OK);
                int same = 1;
                for (size_t i = 0; i < VOCABULARY; i++)
                    same &= kept[i] == logit(whole.logits, (n - 1) * VOCABULARY + i);
                CHECK_MSG(same, "%s: token %zu in pieces %zu", modes[m].name, n, p);
            }
            gs_kv_cache_free(cache);
        }
        rig_free(&r);
    }
}

/* What a tape keeps of weights for one token at a time is not that of weights before. */
static void test_load_again(void)
{
    static const float scales[] = {1, 3};
    float seen[2][VOCABULARY];
    rig r = rig_new(true, GS_O2, GS_BF16), fresh = rig_new(true, GS_O2, GS_BF16);
    const int32_t ids[] = {7, 11};
    for (int k = 0; k < 2; k++) {
        gs_kv_cache *cache;
        const float *logits = NULL;
        gs_trainer *t = trainer_of(fresh.ctx, fresh.model, GS_O2, GS_BF16);
        gs_checkpoint about = {.best = (double)NAN};
        const gs_weight *w = fresh.model->weights;
        for (size_t i = 0; i < w[2].rows * w[2].cols; i++)
            ((float *)w[2].data)[i] *= scales[k];
        CHECK(gs_checkpoint_save(temporary(), t, &about, NULL) == GS_OK);
        gs_trainer_free(t);
        CHECK(gs_infer_load(r.infer, temporary(), NULL) == GS_OK);
        CHECK(gs_kv_cache_create(&cache, r.infer) == GS_OK);
        for (int i = 0; i < 2; i++)
            CHECK(gs_infer_next(&logits, r.infer, cache, &ids[i], 1) == GS_OK);
        memcpy(seen[k], logits, sizeof seen[k]);
        gs_infer_result whole;
        CHECK(gs_infer_run(&whole, r.infer, &(gs_batch){.n = 1, .time = 2, .ids = ids}) == GS_OK);
        for (size_t i = 0; i < VOCABULARY; i++)
            CHECK(seen[k][i] == logit(whole.logits, VOCABULARY + i));
        gs_kv_cache_free(cache);
    }
    CHECK(memcmp(seen[0], seen[1], sizeof seen[0]) != 0);
    unlink(temporary());
    rig_free(&r);
    rig_free(&fresh);
}

static void test_cache(void)
{
    rig r = rig_new(true, GS_O2, GS_BF16);
    int32_t ids[CONTEXT + 1];
    const float *logits;
    float before[VOCABULARY];
    gs_kv_cache *cache;
    text_of(ids, CONTEXT + 1);
    CHECK(gs_infer_load(r.infer, "tests/data/gpt2-hf.safetensors", NULL) == GS_OK);
    CHECK(gs_kv_cache_create(&cache, r.infer) == GS_OK);
    CHECK(gs_infer_next(&logits, r.infer, cache, ids, CONTEXT + 1) == GS_ESIZE);
    CHECK(gs_infer_next(&logits, r.infer, cache, ids, 0) == GS_ESIZE);
    CHECK(gs_infer_next(&logits, r.infer, cache, (const int32_t[]){VOCABULARY}, 1) == GS_ERANGE);
    CHECK(gs_kv_cache_length(cache) == 0 && gs_kv_cache_bytes(cache) == 0);
    CHECK(gs_infer_next(&logits, r.infer, cache, ids, 9) == GS_OK);
    CHECK(gs_kv_cache_bytes(cache) == 9 * LAYERS * 2 * WIDTH * 2);
    memcpy(before, logits, sizeof before);
    CHECK(gs_infer_next(&logits, r.infer, cache, ids + 2, 5) == GS_OK); /* another way on */
    gs_kv_cache_truncate(cache, 8);
    CHECK(gs_infer_next(&logits, r.infer, cache, ids + 8, 1) == GS_OK); /* and back */
    CHECK(memcmp(before, logits, sizeof before) == 0);
    CHECK(gs_infer_next(&logits, r.infer, cache, ids, 8) == GS_ESIZE);
    gs_kv_cache_free(cache);
    rig_free(&r);
    r = rig_new(false, GS_O0, GS_F16);
    CHECK(gs_kv_cache_create(&cache, r.infer) == GS_ESTATE && !cache);
    rig_free(&r);
}

/* ---- files of other makes ---- */

static void check_logits(rig *r, const gs_batch *batch, const char *path)
{
    size_t n;
    float *want = tensor(path, "test.logits", &n);
    gs_infer_result found;
    double worst = 0, largest = 0;
    CHECK(gs_infer_run(&found, r->infer, batch) == GS_OK && found.logits->count == n);
    for (size_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs((double)logit(found.logits, i) - (double)want[i]));
        largest = fmax(largest, fabs((double)want[i]));
    }
    CHECK_MSG(worst <= 0x1p-20 * largest, "%s: off by %g of %g", path, worst, largest);
    free(want);
}

static void check_file(bool gpt, const char *path, const char *from)
{
    rig r = rig_new(gpt, GS_O0, GS_F16);
    gs_error error = {0};
    size_t n;
    CHECK_MSG(gs_infer_load(r.infer, from, &error) == GS_OK, "%s", error.text);
    float *x = tensor(path, gpt ? "test.ids" : "test.x", &n);
    int32_t ids[BATCH * TIME];
    for (size_t i = 0; gpt && i < n; i++)
        ids[i] = (int32_t)x[i];
    check_logits(&r, &(gs_batch){.n = BATCH, .time = gpt ? TIME : 0, .ids = ids, .x = x}, path);
    free(x);
    rig_free(&r);
}

/* Read, written in the layout of others, read again; and through a trainer and its checkpoint. */
static void check_round(bool gpt, const char *path)
{
    rig r = rig_new(gpt, GS_O0, GS_F16);
    gs_error error = {0};
    check_file(gpt, path, path);
    CHECK(gs_infer_load(r.infer, path, NULL) == GS_OK);
    CHECK_MSG(gs_infer_export(temporary(), r.infer, &error) == GS_OK, "%s", error.text);
    check_file(gpt, path, temporary());
    gs_source *s = NULL;
    CHECK(gs_source_open(&s, temporary(), NULL, NULL) == GS_OK);
    CHECK(gs_source_count(s) == r.model->n + r.model->n_states); /* no checksum among them */
    gs_source_close(s);
    gs_trainer *t = trainer_of(r.ctx, r.model, GS_O2, GS_BF16);
    CHECK(gs_trainer_load_weights(t, path, &error) == GS_OK);
    CHECK(gs_checkpoint_save(temporary(), t, NULL, &error) == GS_OK);
    gs_trainer_free(t);
    check_file(gpt, path, temporary());
    rig_free(&r);
    unlink(temporary());
}

static void test_gpt2(void) { check_round(true, "tests/data/gpt2-hf.safetensors"); }
static void test_convs(void) { check_round(false, "tests/data/convs-pt.safetensors"); }

static void test_refused(void)
{
    rig gpt = rig_new(true, GS_O0, GS_F16), cnn = rig_new(false, GS_O0, GS_F16);
    gs_error error = {0};
    CHECK(gs_infer_load(gpt.infer, "tests/data/convs-pt.safetensors", &error) == GS_ENAME);
    CHECK_MSG(strstr(error.text, "has no tensor transformer.wte.weight"), "%s", error.text);
    CHECK(gs_infer_load(gpt.infer, "tests/data/none.safetensors", &error) == GS_EIO);
    CHECK(gs_infer_load(cnn.infer, "tests/data/i8.npy", &error) == GS_ENAME);
    gs_model *wide;
    gs_cnn_config sizes = cnn_sizes;
    sizes.filters = 8;
    CHECK(gs_cnn_create(&wide, cnn.ctx, &sizes) == GS_OK);
    gs_trainer *t = trainer_of(cnn.ctx, wide, GS_O2, GS_F16);
    float before = ((const float *)wide->weights[0].data)[0];
    CHECK(gs_trainer_load_weights(t, "tests/data/convs-pt.safetensors", &error) == GS_ESIZE);
    CHECK_MSG(strstr(error.text, "conv1.weight is [4 2 3 3], and the model's [8 2 3 3]"), "%s",
              error.text);
    CHECK(((const float *)wide->weights[0].data)[0] == before);
    gs_trainer_free(t);
    gs_model_free(wide);
    gs_infer_result found;
    CHECK(gs_infer_run(&found, cnn.infer, &(gs_batch){0}) == GS_ESIZE);
    rig_free(&gpt);
    rig_free(&cnn);
}

/* ---- drawing ---- */

static void test_sample(void)
{
    enum { N = 6, DRAWS = 20000 };
    static const float logits[N] = {0, 2, 1, 2, -1, 0.5f};
    gs_context *ctx;
    int32_t token, again;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    gs_sampling_config c = {.size = sizeof c};
    CHECK(gs_sample(&token, ctx, logits, N, &c, 0) == GS_OK && token == 1); /* first of equals */
    for (int how = 0; how < 3; how++) {
        c = (gs_sampling_config){.size = sizeof c, .temperature = 0.7, .seed = 11};
        c.top_k = how == 1 ? 3 : 0;
        c.top_p = how == 2 ? 0.75 : 0;
        /* e^2/T twice, then e^1/T...: 3/4 of it are the two */
        double p[N], sum = 0, seen[N] = {0};
        for (int i = 0; i < N; i++) {
            const bool in = how == 0 || (how == 1 ? i == 1 || i == 2 || i == 3 : i == 1 || i == 3);
            sum += p[i] = in ? exp((double)logits[i] / c.temperature) : 0;
        }
        for (uint64_t i = 0; i < DRAWS; i++) {
            CHECK(gs_sample(&token, ctx, logits, N, &c, i) == GS_OK);
            CHECK(gs_sample(&again, ctx, logits, N, &c, i) == GS_OK && again == token);
            seen[token]++;
        }
        for (int i = 0; i < N; i++) {
            const double want = DRAWS * p[i] / sum;
            CHECK_MSG(fabs(seen[i] - want) <= 4 * sqrt(want), "how %d, token %d: %g, not %g", how,
                      i, seen[i], want);
        }
    }
    c.top_p = 2;
    CHECK(gs_sample(&token, ctx, logits, N, &c, 0) == GS_ERANGE);
    c.top_p = 0;
    CHECK(gs_sample(&token, ctx, (const float[]){0, (float)INFINITY}, 2, &c, 0) == GS_ERANGE);
    CHECK(gs_sample(&token, ctx, logits, 0, &c, 0) == GS_ESIZE);
    c.size = 0;
    CHECK(gs_sample(&token, ctx, logits, N, &c, 0) == GS_EVERSION);
    gs_context_free(ctx);
}

TESTS({"bits", test_bits}, {"next", test_next}, {"load_again", test_load_again},
      {"cache", test_cache}, {"gpt2", test_gpt2}, {"convs", test_convs}, {"refused", test_refused},
      {"sample", test_sample})
