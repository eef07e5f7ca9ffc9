/* Models without trainers in bad hands: arguments that are missing, owners that change, models of
 * one's own, files that lack a part, memory that ends. */
#include "memory.h"
#include "test.h"

#include "gradscale/infer.h"

#include <math.h>
#include <stdbool.h>
#include <unistd.h>

enum { VOCABULARY = 48, CONTEXT = 16, WIDTH = 32, SIDE = 16, CLASSES = 5, TIME = 6 };

static const gs_gpt_config gpt_sizes = {
    .size = sizeof gpt_sizes, VOCABULARY, CONTEXT, 2, 2, WIDTH, 0};
static const gs_cnn_config cnn_sizes = {sizeof cnn_sizes, SIDE, 8, 2, CLASSES, 4, 0};
static const char *const gpt_file = "tests/data/gpt2-hf.safetensors";
static const char *const cnn_file = "tests/data/convs-pt.safetensors";
static const int32_t ids[CONTEXT] = {7, 11, 0, 47, 3, 3, 1};
static const gs_batch text = {.n = 1, .time = TIME, .ids = ids, .targets = ids + 1};

static const char *temporary(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/gs_test_infer_bad_%ld.safetensors", (long)getpid());
    return path;
}

static gs_context *context_of(books *b)
{
    gs_context *ctx;
    gs_config config = {.size = sizeof config, .threads = 1};
    if (b)
        config.alloc = books_hook(b);
    CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
    return ctx;
}

static gs_infer *infer_of(gs_context *ctx, gs_model *m, gs_mode mode)
{
    gs_infer *f = NULL;
    const gs_infer_config config = {.size = sizeof config, .mode = mode, .half = GS_BF16};
    CHECK(gs_infer_create(&f, ctx, m, &config) == GS_OK);
    return f;
}

static gs_status trainer_of(gs_trainer **t, gs_context *ctx, gs_model *m, gs_mode mode)
{
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = mode, .half = GS_BF16},
        .seed = 7};
    CHECK(gs_optim_config_init(&config.optim, "sgd", NULL) == GS_OK);
    CHECK(gs_scaler_init(&config.scaler, "pytorch", NULL) == GS_OK);
    return gs_trainer_create(t, ctx, m, &config);
}

/* ---- arguments ---- */

static void test_missing(void)
{
    gs_context *ctx = context_of(NULL);
    gs_model *m;
    gs_infer *f;
    gs_kv_cache *cache;
    gs_trainer *t;
    gs_infer_result out;
    gs_error error;
    const float *logits;
    float *const all = malloc(VOCABULARY * WIDTH * sizeof *all);
    int rank;
    size_t shape[4];
    gs_infer_config config = {.size = sizeof config, .mode = GS_O0};
    CHECK(gs_gpt_create(&m, ctx, &gpt_sizes) == GS_OK);
    CHECK(gs_infer_create(NULL, ctx, m, &config) == GS_ENULL);
    CHECK(gs_infer_create(&f, NULL, m, &config) == GS_ENULL);
    CHECK(gs_infer_create(&f, ctx, NULL, &config) == GS_ENULL);
    CHECK(gs_infer_create(&f, ctx, m, NULL) == GS_ENULL);
    config.mode = GS_MODE_COUNT;
    CHECK(gs_infer_create(&f, ctx, m, &config) == GS_ERANGE && !f && !m->weights);
    config.mode = GS_O0;
    config.quantize = 1;
    CHECK(gs_infer_create(&f, ctx, m, &config) == GS_ESTATE && !f);
    config.size = 4;
    CHECK(gs_infer_create(&f, ctx, m, &config) == GS_EVERSION && !f);
    gs_infer_free(NULL);
    gs_kv_cache_free(NULL);

    f = infer_of(ctx, m, GS_O0);
    CHECK(gs_infer_load(NULL, gpt_file, &error) == GS_ENULL && error.status == GS_ENULL);
    CHECK(gs_infer_load(f, NULL, &error) == GS_ENULL && gs_infer_load(f, NULL, NULL) == GS_ENULL);
    CHECK(gs_infer_export(NULL, f, &error) == GS_ENULL);
    CHECK(gs_infer_export(temporary(), NULL, &error) == GS_ENULL);
    CHECK(gs_infer_run(NULL, f, &text) == GS_ENULL && gs_infer_run(&out, NULL, &text) == GS_ENULL);
    CHECK(gs_infer_run(&out, f, NULL) == GS_ENULL);
    CHECK(strstr(gs_context_error(ctx)->text, "gs_infer_run"));
    CHECK(gs_infer_calibrate(NULL, &text) == GS_ENULL);
    CHECK(gs_infer_calibrate(f, &text) == GS_ESTATE && !gs_infer_calibrated(f));
    CHECK(gs_kv_cache_create(NULL, f) == GS_ENULL && gs_kv_cache_create(&cache, NULL) == GS_ENULL);
    CHECK(gs_kv_cache_create(&cache, f) == GS_OK);
    CHECK(gs_infer_next(NULL, f, cache, ids, 1) == GS_ENULL);
    CHECK(gs_infer_next(&logits, NULL, cache, ids, 1) == GS_ENULL);
    CHECK(gs_infer_next(&logits, f, NULL, ids, 1) == GS_ENULL);
    CHECK(gs_infer_next(&logits, f, cache, NULL, 1) == GS_ENULL);
    CHECK(gs_infer_next(&logits, f, cache, ids, 2) == GS_OK);
    gs_kv_cache_truncate(cache, 5); /* it has not so many */
    CHECK(gs_kv_cache_length(cache) == 2);
    gs_kv_cache_free(cache);

    CHECK(gs_infer_weight(all, &rank, shape, NULL, 0) == GS_ERANGE);
    CHECK(gs_infer_weight(all, NULL, shape, f, 0) == GS_ERANGE);
    CHECK(gs_infer_weight(all, &rank, NULL, f, 0) == GS_ERANGE);
    CHECK(gs_infer_weight(all, &rank, shape, f, m->n) == GS_ERANGE);
    all[0] = 3;
    CHECK(gs_infer_weight(NULL, &rank, shape, f, 0) == GS_OK && rank == 2 && shape[1] == WIDTH);
    CHECK(gs_infer_weight(all, &rank, shape, f, 0) == GS_OK && all[0] == 0);
    gs_infer_free(f);

    CHECK(trainer_of(&t, ctx, m, GS_O0) == GS_OK);
    CHECK(gs_trainer_load_weights(NULL, gpt_file, &error) == GS_ENULL);
    CHECK(gs_trainer_load_weights(t, NULL, &error) == GS_ENULL);
    CHECK(gs_trainer_load_weights(t, "tests/data/none.safetensors", &error) == GS_EIO);
    CHECK(gs_trainer_load_weights(t, "tests/data/none.safetensors", NULL) == GS_EIO);
    gs_trainer_free(t);
    gs_model_free(m);
    gs_context_free(ctx);
    free(all);
}

/* Who made the model's weights last has it. */
static void test_owners(void)
{
    gs_context *ctx = context_of(NULL);
    gs_model *m;
    gs_infer_result out;
    gs_kv_cache *cache;
    const float *logits;
    CHECK(gs_gpt_create(&m, ctx, &gpt_sizes) == GS_OK);
    gs_infer *first = infer_of(ctx, m, GS_O0);
    CHECK(gs_kv_cache_create(&cache, first) == GS_OK);
    gs_infer *second = infer_of(ctx, m, GS_O2);
    CHECK(gs_infer_run(&out, first, &text) == GS_ESTATE);
    CHECK(strstr(gs_context_error(ctx)->text, "another owner"));
    CHECK(gs_infer_next(&logits, first, cache, ids, 1) == GS_ESTATE);
    CHECK(gs_kv_cache_length(cache) == 0);
    gs_kv_cache_free(cache);
    gs_infer_free(first); /* the model stays the other's */
    CHECK(gs_infer_run(&out, second, &text) == GS_OK && out.loss > 0);
    CHECK(gs_infer_run(&out, second, &(gs_batch){.n = 1, .time = CONTEXT + 1, .ids = ids}) ==
          GS_ESIZE);
    CHECK(!out.logits && isnan(out.loss));
    gs_infer_free(second);
    CHECK(!m->weights);
    gs_model_free(m);
    gs_context_free(ctx);
}

/* ---- ranges ---- */

static void test_calibrated(void)
{
    gs_context *ctx = context_of(NULL);
    gs_model *m;
    gs_infer *f;
    gs_infer_config config = {.size = sizeof config, .mode = GS_O0, .quantize = 1};
    CHECK(gs_gpt_create(&m, ctx, &gpt_sizes) == GS_OK && gs_model_quantize(m, ctx) == GS_OK);
    CHECK(gs_infer_create(&f, ctx, m, &config) == GS_OK);
    CHECK(gs_infer_load(f, gpt_file, NULL) == GS_OK);
    CHECK(!gs_infer_calibrated(f)); /* the file has no ranges */
    CHECK(gs_infer_calibrate(f, &text) == GS_OK && gs_infer_calibrated(f));
    gs_infer_free(f);
    gs_model_free(m);
    gs_context_free(ctx);
}

/* ---- models of one's own ---- */

static gs_value *own_forward(void *model, gs_tape *t, const gs_batch *batch)
{
    static const float zeros[8];
    const gs_model *m = model;
    if (batch->time == 99)
        return gs_tape_fail(t, GS_ERANGE, "own: 99");
    return gs_mse(t,
                  gs_add(t, gs_param(t, m->weights), gs_input(t, GS_F32, 1, (size_t[]){8}, zeros)),
                  gs_input(t, GS_F32, 1, (size_t[]){8}, batch->x));
}

static gs_value *own_next(void *model, gs_tape *t, const int32_t *list, size_t n,
                          gs_kv_cache *cache)
{
    (void)model, (void)list, (void)cache;
    return gs_tape_fail(t, GS_ESIZE, "own: %zu tokens", n);
}

static void test_own(void)
{
    static const float x[8] = {2, 2, 2, 2, 2, 2, 2, 2};
    gs_context *ctx = context_of(NULL);
    gs_infer *f;
    gs_infer_result out;
    gs_kv_cache *cache;
    const gs_store_entry entry = {"a", 1, 8, 0}, large[] = {{"a", 1, 8, 0}, {"b", SIZE_MAX, 2, 0}};
    gs_model m = {.forward = own_forward, .n = 1, .entries = &entry};
    const gs_infer_config config = {.size = sizeof config, .mode = GS_O2, .half = GS_BF16};

    /* a loss without logits */
    f = infer_of(ctx, &m, GS_O0);
    CHECK(gs_infer_run(&out, f, &(gs_batch){.n = 1, .x = x, .targets = ids}) == GS_OK);
    CHECK(!out.logits && out.loss == 4);
    CHECK(gs_infer_run(&out, f, &(gs_batch){.n = 1, .x = x}) == GS_OK);
    CHECK(!out.logits && isnan(out.loss));
    CHECK(gs_infer_run(&out, f, &(gs_batch){.n = 1, .time = 99, .targets = ids}) == GS_ERANGE);
    CHECK(gs_kv_cache_create(&cache, f) == GS_ESTATE && !cache);

    /* a cache too large to count its bytes */
    static const size_t caches[][4] = {{SIZE_MAX / 4, 1, 8, 1},
                                       {SIZE_MAX / 4, 1, 4, 1},
                                       {SIZE_MAX / 4, 1, 1, 1},
                                       {SIZE_MAX / 16, 1, 1, 4}};
    m.next = own_next;
    for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
        m.context = caches[i][0];
        m.kv_heads = caches[i][1];
        m.kv_width = caches[i][2];
        m.kv_layers = caches[i][3];
        CHECK(gs_kv_cache_create(&cache, f) == GS_ENOMEM && !cache);
        CHECK(strstr(gs_context_error(ctx)->text, "no memory for keys and values"));
    }
    const float *logits = x;
    m.context = m.kv_heads = m.kv_width = m.kv_layers = 1;
    CHECK(gs_kv_cache_create(&cache, f) == GS_OK);
    CHECK(gs_infer_next(&logits, f, cache, ids, 3) == GS_ESIZE && logits == x);
    CHECK(gs_kv_cache_length(cache) == 0);
    gs_kv_cache_free(cache);
    gs_infer_free(f);

    /* weights that cannot be */
    m.n = SIZE_MAX / 8;
    CHECK(gs_infer_create(&f, ctx, &m, &config) == GS_ENOMEM && !f && !m.weights);
    m.n = 2;
    m.entries = large;
    CHECK(gs_infer_create(&f, ctx, &m, &config) == GS_ENOMEM && !f && !m.weights);
    gs_context_free(ctx);
}

/* A file that has all weights and not all running statistics. */
static void test_no_state(void)
{
    gs_context *ctx = context_of(NULL);
    gs_model *m;
    gs_trainer *t;
    gs_error error = {0};
    CHECK(gs_cnn_create(&m, ctx, &cnn_sizes) == GS_OK);
    gs_model other = *m;
    gs_state_entry entries[2] = {m->state_entries[0], {"bn1.running_skew", 4}};
    other.state_entries = entries;
    other.n_states = 2;
    gs_infer *f = infer_of(ctx, &other, GS_O0);
    CHECK(gs_infer_load(f, cnn_file, &error) == GS_ENAME);
    CHECK_MSG(strstr(error.text, "has no tensor bn1.running_skew"), "%s", error.text);
    gs_infer_free(f);
    CHECK(trainer_of(&t, ctx, &other, GS_O0) == GS_OK);
    const float before = *(const float *)other.weights[0].data;
    CHECK(gs_trainer_load_weights(t, cnn_file, &error) == GS_ENAME);
    CHECK(*(const float *)other.weights[0].data == before);
    gs_trainer_free(t);
    gs_model_free(m);
    gs_context_free(ctx);
}

/* ---- memory ends ---- */

typedef struct outcome {
    double loss;
    float logits[VOCABULARY];
    size_t failed; /* calls */
} outcome;

/* Repeats a call that had no memory. */
#define TRY(call)                                               \
    do {                                                        \
        gs_status tried = (call);                               \
        if (tried == GS_ENOMEM) {                               \
            b->fail_at = b->fail_from = 0;                      \
            out.failed++;                                       \
            tried = (call);                                     \
        }                                                       \
        CHECK_MSG(tried == GS_OK, "%s: %s", #call, error.text); \
    } while (0)

static outcome life(bool gpt, gs_mode mode, books *b)
{
    static float x[SIDE * 8 * 2];
    static const int32_t class[] = {2};
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = (float)(i % 17) / 8 - 1;
    const gs_batch image = {.n = 1, .x = x, .targets = class};
    const gs_infer_config config = {.size = sizeof config, .mode = mode, .half = GS_BF16};
    gs_context *ctx;
    gs_model *m = NULL;
    gs_infer *f = NULL;
    gs_kv_cache *cache = NULL;
    gs_infer_result run;
    gs_error error = {0};
    outcome out = {0};
    const size_t fail_at = b->fail_at, fail_from = b->fail_from;
    b->fail_at = b->fail_from = 0;
    ctx = context_of(b);
    b->fail_at = fail_at ? b->calls + fail_at : 0;
    b->fail_from = fail_from ? b->calls + fail_from : 0;
    if (gpt)
        TRY(gs_gpt_create(&m, ctx, &gpt_sizes));
    else
        TRY(gs_cnn_create(&m, ctx, &cnn_sizes));
    TRY(gs_infer_create(&f, ctx, m, &config));
    TRY(gs_infer_load(f, gpt ? gpt_file : cnn_file, &error));
    TRY(gs_infer_export(temporary(), f, &error));
    TRY(gs_infer_load(f, temporary(), &error));
    TRY(gs_infer_run(&run, f, gpt ? &text : &image));
    out.loss = run.loss;
    const float *logits = NULL;
    if (gpt) {
        TRY(gs_kv_cache_create(&cache, f));
        TRY(gs_infer_next(&logits, f, cache, ids, TIME));
        TRY(gs_infer_next(&logits, f, cache, ids + TIME, 1));
        CHECK(gs_kv_cache_length(cache) == TIME + 1);
        memcpy(out.logits, logits, sizeof out.logits);
    }
    gs_kv_cache_free(cache);
    gs_infer_free(f);
    gs_model_free(m);
    gs_context_free(ctx);
    CHECK(b->blocks == 0 && !b->wrong);
    return out;
}

static void test_no_memory(void)
{
    for (int mode = GS_O0; mode < GS_MODE_COUNT; mode++)
        for (int gpt = mode % 3 > 0, done = 0; !done; done = 1) {
            books none = {0};
            const outcome want = life(gpt, (gs_mode)mode, &none);
            for (int from = 0; from < 2; from++) {
                size_t k = 1, failed = 0;
                for (bool more = true; more && k < 2000 && !test_failures; k++) {
                    books b = {0};
                    *(from ? &b.fail_from : &b.fail_at) = k;
                    const outcome got = life(gpt, (gs_mode)mode, &b);
                    CHECK_MSG(got.loss == want.loss &&
                                  memcmp(got.logits, want.logits, sizeof got.logits) == 0,
                              "O%d, allocation %zu", mode, k);
                    failed += got.failed;
                    more = from ? got.failed > 0 : k < none.calls;
                }
                CHECK_MSG(failed > 10 && k > 10, "only %zu allocations failed", failed);
            }
        }
    unlink(temporary());
}

/* A weight larger than the blocks of an arena: its two arrays are blocks of their own. */
static void test_large_weight(void)
{
    const gs_mlp_config sizes = {.size = sizeof sizes, (const size_t[]){200, 200}, 2};
    const gs_infer_config config = {.size = sizeof config, .mode = GS_O1, .half = GS_BF16};
    gs_status status = GS_ENOMEM;
    size_t k = 0;
    while (status == GS_ENOMEM && k < 20) {
        books b = {0};
        gs_context *ctx = context_of(&b);
        gs_model *m;
        gs_infer *f;
        CHECK(gs_mlp_create(&m, ctx, &sizes) == GS_OK);
        b.fail_from = b.calls + ++k;
        status = gs_infer_create(&f, ctx, m, &config);
        CHECK((status == GS_OK) == (f != NULL) && (status == GS_OK) == (m->weights != NULL));
        gs_infer_free(f);
        gs_model_free(m);
        gs_context_free(ctx);
        CHECK(b.blocks == 0 && !b.wrong);
    }
    CHECK_MSG(status == GS_OK && k >= 6, "%zu", k); /* itself, tape, list, two arrays, no more */
}

TESTS({"missing", test_missing}, {"owners", test_owners}, {"calibrated", test_calibrated},
      {"own", test_own}, {"no_state", test_no_state}, {"no_memory", test_no_memory},
      {"large_weight", test_large_weight})
