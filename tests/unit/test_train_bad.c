/* Training steps that cannot be: what is wrong is named, and nothing has changed. */
#include "train_rig.h"

#include <math.h>

/* ---- bad input ---- */

static void check_bad(job *j, const job *untouched, const gs_batch *batch, size_t n, gs_status want,
                      const char *says)
{
    gs_train_row row;
    const gs_status status = gs_trainer_step(j->trainer, batch, n, &row);
    const char *text = gs_context_error(j->ctx)->text;
    CHECK_MSG(status == want && strstr(text, says), "%s, \"%s\" has no \"%s\"",
              gs_status_name(status), text, says);
    CHECK(same_job(j, untouched));
}

static void test_bad_input(void)
{
    how h = {.kind = GPT, .mode = GS_O2, .half = GS_F16, .threads = 1};
    job j = job_new(&h), untouched = job_new(&h);
    gs_batch good = batch_of(GPT, 0), bad = good;
    int32_t ids[GPT_N * GPT_T], targets[GPT_N * GPT_T];
    memcpy(ids, good.ids, sizeof ids);
    memcpy(targets, good.targets, sizeof targets);
    bad.ids = ids;
    bad.targets = targets;
    check_bad(&j, &untouched, NULL, 1, GS_ESIZE, "empty");
    check_bad(&j, &untouched, &bad, 0, GS_ESIZE, "empty");
    bad.n = 0;
    check_bad(&j, &untouched, &bad, 1, GS_ESIZE, "micro-batch 0 is empty");
    bad.n = good.n;
    bad.time = 17;
    check_bad(&j, &untouched, &bad, 1, GS_ESIZE, "17 tokens, and the context is 16");
    bad.time = 0;
    check_bad(&j, &untouched, &bad, 1, GS_ESIZE, "embedding");
    bad.time = good.time;
    bad.n = SIZE_MAX / 2;
    check_bad(&j, &untouched, &bad, 1, GS_ESIZE, "gpt: 9223372036854775807 items of 10 tokens");
    bad.n = good.n;
    bad.ids = NULL;
    check_bad(&j, &untouched, &bad, 1, GS_ESIZE, "embedding");
    bad.ids = ids;
    bad.targets = NULL;
    check_bad(&j, &untouched, &bad, 1, GS_ENULL, "cross_entropy");
    bad.targets = targets;
    targets[7] = GPT_WORDS;
    check_bad(&j, &untouched, &bad, 1, GS_ERANGE, "cross_entropy: target 7 is 17, of 17");
    targets[7] = 0;
    ids[3] = -1;
    check_bad(&j, &untouched, &bad, 1, GS_ERANGE, "embedding: id 3 is -1, of 17");
    ids[3] = GPT_WORDS;
    check_bad(&j, &untouched, &bad, 1, GS_ERANGE, "embedding: id 3 is 17, of 17");
    const gs_batch pair[] = {good, bad}; /* the first is done, and undone */
    check_bad(&j, &untouched, pair, 2, GS_ERANGE, "embedding: id 3 is 17");
    step(&j, GPT, 1); /* and then as if nothing had been */
    step(&untouched, GPT, 1);
    CHECK(same_job(&j, &untouched));
    job_free(&j);
    job_free(&untouched);

    h.kind = CNN;
    j = job_new(&h);
    untouched = job_new(&h);
    bad = batch_of(CNN, 0);
    bad.x = NULL;
    check_bad(&j, &untouched, &bad, 1, GS_ENULL, "no data");
    job_free(&j);
    job_free(&untouched);
}

static gs_value *no_segment(const void *args, gs_tape *t, gs_value *x)
{
    (void)args, (void)t, (void)x;
    return NULL;
}

/* Operations name themselves and both shapes. */
static void test_bad_shapes(void)
{
    gs_context *ctx;
    gs_tape *t, *others;
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    CHECK(gs_tape_create(
              &t, ctx,
              &(gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O0, .recompute = 1}) ==
          GS_OK);
    CHECK(gs_tape_create(&others, ctx,
                         &(gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O0}) ==
          GS_OK);
    gs_tape_begin(others, 1, 0);
    gs_value *const other = gs_relu(others, NULL);
    static const float zeros[256];
    double wide[4] = {0};
    gs_running running = {0};
#define IN(...)                                                                  \
    gs_input(t, GS_F32, (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), \
             (const size_t[]){__VA_ARGS__}, zeros)
#define BAD(call, ...)                                                                    \
    do {                                                                                  \
        const char *const says[] = {__VA_ARGS__};                                         \
        gs_tape_begin(t, 1, 0);                                                           \
        gs_value *v = (call);                                                             \
        CHECK(v);                                                                         \
        CHECK(gs_tape_status(t) != GS_OK);                                                \
        const gs_error error = *gs_context_error(ctx);                                    \
        for (size_t i = 0; i < sizeof says / sizeof says[0]; i++)                         \
            CHECK_MSG(strstr(error.text, says[i]), "\"%s\": no %s", error.text, says[i]); \
        CHECK(gs_tape_backward(t, gs_relu(t, v), 1) != GS_OK);                            \
    } while (0)
    BAD(gs_linear(t, IN(4, 5), IN(3, 6), NULL), "linear", "[4 5]", "[3 6]");
    BAD(gs_linear(t, IN(4, 5), IN(3, 5), IN(4)), "linear", "[3 5]", "[4]");
    BAD(gs_matmul(t, IN(2, 4, 5), IN(3, 5, 6), 0), "matmul", "[2 4 5]", "[3 5 6]");
    BAD(gs_matmul(t, IN(4, 5), IN(5, 6), 1), "matmul", "[4 5]", "[5 6]");
    BAD(gs_conv2d(t, IN(1, 4, 4, 2), IN(3, 17), NULL, 3, 1, 1), "conv2d", "[1 4 4 2]", "[3 17]");
    BAD(gs_attention(t, IN(1, 4, 10), 3), "attention", "[1 4 10]", "3 heads");
    BAD(gs_attention_grouped(t, IN(1, 4, 24), IN(1, 4, 8), IN(1, 4, 8), 6, 4), "attention",
        "6 heads");
    BAD(gs_attention_grouped(t, IN(1, 4, 24), IN(1, 4, 8), IN(1, 4, 9), 6, 2), "attention",
        "[1 4 9]");
    BAD(gs_attention_grouped(t, IN(1, 4, 24), IN(1, 5, 8), IN(1, 4, 8), 6, 2), "attention");
    BAD(gs_attention_grouped(t, IN(1, 4, 24), NULL, IN(1, 4, 8), 6, 2), "attention", "NULL");
    BAD(gs_rotary(t, IN(1, 4, 12), 2, 5, (const float *)zeros, 0), "rotary", "heads of 5");
    BAD(gs_rotary(t, IN(1, 4, 12), 4, 4, (const float *)zeros, 0), "rotary", "4 heads");
    BAD(gs_rotary(t, IN(1, 4, 12), 2, 6, NULL, 0), "rotary", "no table");
    BAD(gs_attention_unmasked(t, IN(1, 4, 10), NULL, NULL, 3, 3), "attention", "3 heads");
    BAD(gs_prepend(t, IN(2, 4, 5), IN(4)), "prepend", "[2 4 5]", "[4]");
    BAD(gs_prepend(t, IN(4, 5), IN(5)), "prepend", "[4 5]", "[5]");
    BAD(gs_select(t, IN(2, 4, 5), 4), "select", "[2 4 5]", "token 4");
    BAD(gs_select(t, IN(4, 5), 0), "select", "[4 5]");
    BAD(gs_layernorm_eps(t, IN(4, 5), IN(5), IN(5), 0), "layernorm", "eps");
    BAD(gs_rmsnorm(t, IN(4, 5), IN(4)), "rmsnorm", "[4 5]", "[4]");
    BAD(gs_add(t, IN(4, 5), IN(4)), "add", "[4 5]", "[4]");
    BAD(gs_mul(t, IN(4, 5), IN(5, 5)), "mul", "[4 5]", "[5 5]");
    BAD(gs_mse(t, IN(4, 5), IN(5, 4)), "mse", "[4 5]", "[5 4]");
    BAD(gs_layernorm(t, IN(4, 5), IN(4), IN(5)), "layernorm", "[4 5]", "[4]", "[5]");
    BAD(gs_batchnorm(t, IN(4, 5), IN(5), IN(6), running), "batchnorm", "[4 5]", "[5]", "[6]");
    BAD(gs_reshape(t, IN(4, 5), 2, (const size_t[]){3, 7}), "reshape", "[4 5]", "[3 7]");
    BAD(gs_max_pool(t, IN(1, 2, 2, 3), 3, 1, 0), "max_pool", "[1 2 2 3]");
    BAD(gs_avg_pool(t, IN(1, 2, 2, 3), 2, 0), "avg_pool", "[1 2 2 3]");
    BAD(gs_max_pool(t, IN(1, 8, 8, 3), 3, 2, 2), "max_pool", "the pad 2");
    BAD(gs_global_avg_pool(t, IN(4, 5)), "global_avg_pool", "[4 5]");
    BAD(gs_softmax(t, gs_input(t, GS_F32, 0, NULL, zeros)), "softmax");
    BAD(gs_dropout(t, IN(4), 1.5f), "dropout");
    BAD(gs_cast(t, IN(4), GS_F64), "cast");
    BAD(gs_conv2d(t, IN(1, 4, 4, 2), IN(3, 18), IN(4), 3, 1, 1), "conv2d", "[3 18]", "[4]");
    BAD(gs_conv2d(t, IN(1, 4, 4, 2), IN(3, 18), NULL, 3, 0, 1), "conv2d", "stride 0");
    BAD(gs_conv2d(t, IN(4, 8), IN(3, 18), NULL, 3, 1, 1), "conv2d", "[4 8]", "[3 18]");
    BAD(gs_conv2d(t, IN(1, 2, 2, 2), IN(3, 18), NULL, 3, 1, 0), "conv2d", "[1 2 2 2]");
    BAD(gs_linear(t, IN(4, 5), IN(6), NULL), "linear", "[4 5]", "[6]");
    BAD(gs_linear(t, IN(4, 5), IN(1, 1, 5), NULL), "linear", "[4 5]", "[1 1 5]");
    BAD(gs_conv2d(t, IN(1, 4, 4, 2), IN(17), NULL, 3, 1, 1), "conv2d", "[17]");
    BAD(gs_matmul(t, IN(5), IN(5), 0), "matmul", "[5]");
    BAD(gs_attention(t, IN(4, 12), 2), "attention", "[4 12]");
    BAD(gs_attention(t, IN(1, 4, 12), 0), "attention", "0 heads");
    BAD(gs_add(t, IN(5), IN(4, 5)), "add", "[5]", "[4 5]");
    BAD(gs_batchnorm(t, IN(4, 5), IN(5), IN(5), running), "batchnorm", "running statistics");
    BAD(gs_embedding(t, IN(4), (const int32_t[]){0}, 1), "embedding", "[4]");
    BAD(gs_embedding(t, IN(4, 5), (const int32_t[]){3, 4}, 2), "embedding", "id 1 is 4, of 4");
    BAD(gs_embedding(t, IN(4, 5), (const int32_t[]){0}, 0), "embedding", "0 ids");
    BAD(gs_embedding(t, IN(4, 5), NULL, 3), "embedding", "0 ids");
    BAD(gs_cross_entropy(t, IN(2, 5), (const int32_t[]){4, 5}), "cross_entropy", "target 1 is 5");
    BAD(gs_cross_entropy(t, IN(2, 5), NULL), "cross_entropy", "no targets");
    BAD(gs_cross_entropy(t, gs_input(t, GS_F32, 0, NULL, zeros), (const int32_t[]){0}),
        "cross_entropy", "no last axis");
    BAD(gs_fake_quant(t, IN(4), -1, 8, 0, 1), "fake_quant", "amax is -1");
    BAD(gs_fake_quant(t, IN(4), NAN, 8, 0, 1), "fake_quant", "nan");
    BAD(gs_fake_quant(t, IN(4), 1, 17, 0, 1), "fake_quant", "bits are 17");
    BAD(gs_dropout(t, IN(4), NAN), "dropout", "nan");
    BAD(gs_max_pool(t, IN(1, 16, 16, 1), 16, 1, 0), "max_pool", "kernel 16");
    BAD(gs_avg_pool(t, IN(4, 5), 2, 2), "avg_pool", "[4 5]");
    BAD(gs_reshape(t, IN(4, 5), 5, (const size_t[]){1, 1, 1, 4, 5}), "reshape", "5 dimensions");
    BAD(gs_param(t, NULL), "weight is missing");
    BAD(gs_param(t, &(gs_weight){"w1", 1, 4, (void *)wide, GS_F64, NULL, 0, NULL, 0, 0}), "w1",
        "f32");
    BAD(gs_param(t, &(gs_weight){"w2", 1, 4, (char *)wide + 1, GS_F32, NULL, 0, NULL, 0, 0}), "w2",
        "aligned");
    BAD(gs_param(t, &(gs_weight){"w3", 1, 4, wide, GS_F32, NULL, 0, wide, (gs_dtype)77, 0}), "w3");
    BAD(gs_param(t, &(gs_weight){"w4", 1, 4, wide, GS_F32, wide, GS_F64, NULL, 0, 0}), "w4");
    BAD(gs_attention(t, IN(1, 4, 12), SIZE_MAX / 3 * 2 + 1), "attention"); /* 3 * heads is 1 */
    BAD(gs_relu(t, NULL), "relu", "NULL");
    BAD(gs_softmax(t, NULL), "softmax", "NULL");
    BAD(gs_reshape(t, NULL, 0, NULL), "reshape", "NULL");
    BAD(gs_attention(t, NULL, 1), "attention", "NULL");
    BAD(gs_max_pool(t, NULL, 1, 1, 0), "max_pool", "NULL");
    BAD(gs_dropout(t, NULL, 0), "dropout", "NULL");
    BAD(gs_cast(t, NULL, GS_F16), "cast", "NULL");
    BAD(gs_cross_entropy(t, NULL, (const int32_t[]){0}), "cross_entropy", "NULL");
    BAD(gs_linear(t, NULL, NULL, NULL), "linear", "NULL");
    BAD(gs_linear(t, IN(4, 5), NULL, NULL), "linear", "NULL");
    BAD(gs_add(t, IN(4, 5), NULL), "add", "NULL");
    BAD(gs_embedding(t, NULL, (const int32_t[]){0}, 1), "embedding", "NULL");
    BAD(gs_recompute(t, IN(4, 5), no_segment, NULL, 0), "recompute", "NULL");
    BAD(gs_recompute(t, IN(4, 5), NULL, NULL, 0), "recompute");
    BAD(gs_recompute(t, IN(4, 5), no_segment, NULL, 8), "recompute");
    BAD(gs_relu(t, other), "relu", "another step");
    BAD(gs_reshape(t, IN(4, 5), 1, NULL), "reshape", "[4 5]");
    BAD(gs_input(t, GS_F32, 1, NULL, zeros), "input");
    BAD(gs_param(t, &(gs_weight){.name = "w0", .rows = 0, .cols = 4}), "w0", "empty");
    BAD(gs_input(t, GS_F32, 5, (const size_t[]){1, 1, 1, 1, 1}, zeros), "5 dimensions");
    BAD(gs_input(t, GS_F32, 1, (const size_t[]){4}, NULL), "no data");
    BAD(IN(4, 0), "input", "[4 0]", "empty");
    BAD(gs_input(t, GS_F64, 1, (const size_t[]){4}, zeros), "f32, f16 or bf16");
    BAD(gs_input(t, GS_F32, 1, (const size_t[]){4}, (const char *)zeros + 1), "aligned");
    BAD(gs_input(t, GS_F32, 4, (const size_t[]){SIZE_MAX, 2, 2, 2}, zeros),
        "[18446744073709551615 2 2 2]", "too large");
#undef BAD
#undef IN
    gs_tape_free(t);
    gs_tape_free(others);
    gs_context_free(ctx);
}

static void test_bad_models(void)
{
    gs_context *ctx;
    gs_model *m;
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    const gs_gpt_config gpts[] = {
        {.size = sizeof(gs_gpt_config), 0, 16, 2, 2, 24, 0},
        {.size = sizeof(gs_gpt_config), 17, 1, 2, 2, 24, 0},
        {.size = sizeof(gs_gpt_config), 17, 16, 0, 2, 24, 0},
        {.size = sizeof(gs_gpt_config), 17, 16, 2, 5, 24, 0},
        {.size = sizeof(gs_gpt_config), 17, 16, 2, 0, 24, 0},
        {.size = sizeof(gs_gpt_config), 17, 16, 2, 2, 0, 0},
        {.size = sizeof(gs_gpt_config), 17, 16, 2, 2, 24, 1},
        {.size = sizeof(gs_gpt_config), 17, 16, 2, 2, 24, NAN},
        {.size = sizeof(gs_gpt_config), 17, SIZE_MAX / 2, 2, 2, 24, 0},
        {.size = sizeof(gs_gpt_config), SIZE_MAX, 16, 2, 2, 24, 0},
        {.size = sizeof(gs_gpt_config), 17, 16, 2, 6, 24, 0, .kv_heads = 4},
        {.size = sizeof(gs_gpt_config), 17, 16, 2, 8, 24, 0, .rotary = 1},
        {.size = sizeof(gs_gpt_config), 17, 16, 2, 2, 24, 0, .theta = 0.5},
        {.size = sizeof(gs_gpt_config), 17, 16, 2, 2, 24, 0, .theta = (double)NAN},
        {.size = sizeof(gs_gpt_config), 17, 16, 2, 2, 24, 0, .mlp_width = SIZE_MAX}};
    for (size_t i = 0; i < sizeof gpts / sizeof gpts[0]; i++)
        CHECK_MSG(gs_gpt_create(&m, ctx, &gpts[i]) != GS_OK && !m, "gpt %zu", i);
    const gs_cnn_config cnns[] = {{sizeof(gs_cnn_config), 7, 8, 1, 10, 4, 0},
                                  {sizeof(gs_cnn_config), 8, 8, 0, 10, 4, 0},
                                  {sizeof(gs_cnn_config), 8, 8, 1, 1, 4, 0},
                                  {sizeof(gs_cnn_config), 8, 8, 1, 10, 0, 0},
                                  {sizeof(gs_cnn_config), 8, 9, 1, 10, 4, 1},
                                  {sizeof(gs_cnn_config), 0, 0, 1, 10, 4, 1},
                                  {sizeof(gs_cnn_config), SIZE_MAX, 8, 1, 10, 4, 0}};
    for (size_t i = 0; i < sizeof cnns / sizeof cnns[0]; i++)
        CHECK_MSG(gs_cnn_create(&m, ctx, &cnns[i]) != GS_OK && !m, "cnn %zu", i);
    CHECK(gs_mlp_create(&m, ctx,
                        &(gs_mlp_config){.size = sizeof(gs_mlp_config), (const size_t[]){4}, 1}) !=
              GS_OK &&
          !m);
    CHECK(gs_mlp_create(&m, ctx,
                        &(gs_mlp_config){
                            .size = sizeof(gs_mlp_config), (const size_t[]){0, 4}, 2}) != GS_OK &&
          !m);
    CHECK(gs_mlp_create(&m, ctx,
                        &(gs_mlp_config){
                            .size = sizeof(gs_mlp_config), (const size_t[]){4, 1}, 2}) != GS_OK &&
          !m);
    CHECK(gs_mlp_create(NULL, ctx, NULL) == GS_ENULL);
    gs_context_free(ctx);
}

/* Ranks that cannot be. */
static void test_bad_ranks(void)
{
    const gs_comm alone = gs_comm_single();
    gs_comm bad[] = {alone, alone, alone, alone, alone, alone, alone, alone};
    const gs_mlp_config mlp = {.size = sizeof mlp, (const size_t[]){2, 2}, 2};
    gs_trainer_config config = {.size = sizeof config,
                                .optim.size = sizeof(gs_optim_config),
                                .tape = {.size = sizeof(gs_tape_config), .mode = GS_O0}};
    gs_context *ctx;
    gs_model *model;
    gs_trainer *trainer;
    bad[0].size = 0;
    bad[1].size = -2;
    bad[2].rank = 1;
    bad[3].rank = -1;
    bad[4].allgather = NULL;
    bad[5].alltoall = NULL;
    bad[6].done = NULL;
    bad[7].bcast = NULL;
    CHECK(gs_optim_config_init(&config.optim, "sgd", NULL) == GS_OK);
    CHECK(gs_scaler_init(&config.scaler, NULL, NULL) == GS_OK);
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_mlp_create(&model, ctx, &mlp) == GS_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        config.comm = &bad[i];
        CHECK(gs_trainer_create(&trainer, ctx, model, &config) == GS_ERANGE && !trainer);
        CHECK(strstr(gs_context_error(ctx)->text, "rank"));
    }
    gs_model_free(model);
    gs_context_free(ctx);
}

/* ---- models of one's own ---- */

typedef struct odd_model {
    gs_model base;
    enum { NOTHING, WEIGHTS, HALF_LOSS, LOSS, REFUSED } result;
} odd_model;

static gs_value *odd_forward(void *model, gs_tape *t, const gs_batch *batch)
{
    static const float zeros[8];
    const odd_model *m = model;
    gs_value *w = gs_param(t, &m->base.weights[0]);
    gs_value *loss = gs_mse(t, w, gs_input(t, GS_F32, 1, (const size_t[]){8}, zeros));
    if (m->result == REFUSED)
        return gs_tape_fail(t, GS_ERANGE, "odd: %zu items are too few", batch->n);
    gs_value *const results[] = {NULL, w, gs_cast(t, loss, GS_F16), loss};
    return results[m->result];
}

/* What is no loss is an error of a step and of an evaluation; so is a model that another trainer
 * has taken. */
static void test_odd_models(void)
{
    const gs_store_entry entry = {"a", 1, 8, 0};
    const gs_init init = {1, 0};
    odd_model m = {.base = {.forward = odd_forward, .n = 1, .entries = &entry, .inits = &init}};
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16}};
    gs_context *ctx;
    gs_trainer *trainer, *other;
    double loss;
    const gs_batch batch = {.n = 1};
    CHECK(gs_optim_config_init(&config.optim, "sgd", NULL) == GS_OK);
    CHECK(gs_scaler_init(&config.scaler, NULL, NULL) == GS_OK);
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    CHECK(gs_trainer_create(&trainer, ctx, &m.base, &config) == GS_OK);
    for (m.result = NOTHING; m.result < LOSS; m.result++) {
        CHECK(gs_trainer_step(trainer, &batch, 1, NULL) == GS_ESTATE);
        CHECK(gs_trainer_evaluate(&loss, NULL, trainer, &batch) == GS_ESTATE);
    }
    m.result = REFUSED;
    CHECK(gs_trainer_step(trainer, &batch, 1, NULL) == GS_ERANGE);
    CHECK(strcmp(gs_context_error(ctx)->text, "odd: 1 items are too few") == 0);
    m.result = LOSS;
    CHECK(gs_trainer_evaluate(&loss, NULL, trainer, &batch) == GS_OK && loss == 1);
    CHECK(gs_trainer_create(&other, ctx, &m.base, &config) == GS_OK);
    CHECK(gs_trainer_step(trainer, &batch, 1, NULL) == GS_ESTATE);
    CHECK(strstr(gs_context_error(ctx)->text, "another trainer"));
    CHECK(gs_trainer_evaluate(&loss, NULL, trainer, &batch) == GS_ESTATE);
    gs_trainer_free(trainer);
    CHECK(gs_trainer_step(other, &batch, 1, NULL) == GS_OK);
    gs_trainer_free(other);
    gs_context_free(ctx);
}

/* What a trainer is made of, each part of it wrong in turn. */
static void test_bad_trainers(void)
{
    static float state[2];
    const gs_store_entry entry = {"a", 1, 8, 0};
    const gs_init init = {1, 0};
    const odd_model good = {
        .base = {.forward = odd_forward, .n = 1, .entries = &entry, .inits = &init},
        .result = LOSS};
    odd_model bad[] = {good, good, good, good, good};
    static const gs_status wants[] = {GS_ENULL, GS_ENULL, GS_ENULL, GS_ERANGE, GS_ENULL};
    static const double weights[] = {-1, 0x1p61, (double)NAN};
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16}};
    gs_context *ctx;
    gs_trainer *t;
    bad[0].base.forward = NULL;
    bad[1].base.entries = NULL;
    bad[2].base.inits = NULL;
    bad[3].base.state = state;
    bad[3].base.states = 1;
    bad[3].base.n_ranges = 2;
    bad[4].base.states = 2;
    CHECK(gs_optim_config_init(&config.optim, "sgd", NULL) == GS_OK);
    CHECK(gs_scaler_init(&config.scaler, NULL, NULL) == GS_OK);
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_MSG(gs_trainer_create(&t, ctx, &bad[i].base, &config) == wants[i] && !t, "%zu", i);
        CHECK_MSG(strstr(gs_context_error(ctx)->text, "the model"), "%s",
                  gs_context_error(ctx)->text);
    }
    odd_model m = good;
    m.base.n = 0; /* then there is nothing that could be missing */
    m.base.entries = NULL;
    CHECK(gs_trainer_create(&t, ctx, &m.base, &config) == GS_OK);
    gs_trainer_free(t);
    m = good;
    CHECK(gs_trainer_create(NULL, ctx, &m.base, &config) == GS_ENULL);
    CHECK(gs_trainer_create(&t, NULL, &m.base, &config) == GS_ENULL);
    CHECK(gs_trainer_create(&t, ctx, NULL, &config) == GS_ENULL);
    CHECK(gs_trainer_create(&t, ctx, &m.base, NULL) == GS_ENULL);
    for (int i = 0; i < 3; i++) {
        config.loss_weight = weights[i];
        CHECK(gs_trainer_create(&t, ctx, &m.base, &config) == GS_ERANGE && !t);
        CHECK(strstr(gs_context_error(ctx)->text, "cannot be weighted"));
    }
    config.loss_weight = 0x1p60;
    CHECK(gs_trainer_create(&t, ctx, &m.base, &config) == GS_OK);
    gs_trainer_free(t);
    /* a scale that the optimizer cannot undo is an error of the step, which changes nothing */
    config.loss_weight = 0;
    CHECK(gs_scaler_init(&config.scaler, "static:1e-9", NULL) == GS_OK);
    CHECK(gs_trainer_create(&t, ctx, &m.base, &config) == GS_OK);
    CHECK(gs_trainer_step(t, &(gs_batch){.n = 1}, 1, NULL) == GS_ERANGE);
    CHECK(strstr(gs_context_error(ctx)->text, "cannot be undone"));
    CHECK(*(const float *)m.base.weights[0].data == 1);
    gs_trainer_free(t);
    config.scaler.rules.lowest = -1; /* by hand, past gs_scaler_set */
    CHECK(gs_trainer_create(&t, ctx, &m.base, &config) == GS_ERANGE && !t && !m.base.weights);
    CHECK(strstr(gs_context_error(ctx)->text, "lowest=-1"));
    gs_context_free(ctx);
}

static gs_value *no_logits(void *model, gs_tape *t, const gs_batch *batch)
{
    (void)model;
    return batch->time ? NULL : gs_tape_fail(t, GS_ESIZE, "odd: no logits of %zu items", batch->n);
}

/* What is right of an evaluation, and what is asked of it. */
static void test_evaluate(void)
{
    enum { ITEMS = 4 };
    const gs_mlp_config sizes = {.size = sizeof sizes, (const size_t[]){3, 3}, 2};
    const float x[3 * ITEMS] = {5, 0, 0, 0, 5, 0, 0, 0, 5, 1, 1, 1};
    int32_t targets[ITEMS] = {0, 1, 0, 0}; /* the last: the first of equals */
    const gs_batch batch = {.n = ITEMS, .x = x, .targets = targets};
    gs_trainer_config config = {.size = sizeof config,
                                .optim.size = sizeof(gs_optim_config),
                                .tape = {.size = sizeof(gs_tape_config), .mode = GS_O0}};
    gs_context *ctx;
    gs_model *m;
    gs_trainer *t;
    double loss = -1, same = -1;
    size_t right = 99;
    CHECK(gs_optim_config_init(&config.optim, "sgd", NULL) == GS_OK);
    CHECK(gs_scaler_init(&config.scaler, NULL, NULL) == GS_OK);
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_mlp_create(&m, ctx, &sizes) == GS_OK);
    CHECK(gs_trainer_create(&t, ctx, m, &config) == GS_OK);
    for (size_t i = 0; i < 9; i++) /* the logits are x */
        ((float *)m->weights[0].data)[i] = i % 4 == 0;
    CHECK(gs_trainer_evaluate(&loss, &right, t, &batch) == GS_OK && right == 3);
    CHECK(gs_trainer_evaluate(&same, NULL, t, &batch) == GS_OK && same == loss);
    right = 99;
    CHECK(gs_trainer_evaluate(NULL, &right, t, &batch) == GS_OK && right == 3);
    targets[1] = -1; /* left out: neither right nor wrong */
    CHECK(gs_trainer_evaluate(NULL, &right, t, &batch) == GS_OK && right == 2);
    targets[1] = 3;
    CHECK(gs_trainer_evaluate(&loss, &right, t, &batch) == GS_ERANGE);
    CHECK(loss == same && right == 2);
    targets[1] = 1;
    gs_trainer_free(t);
    gs_model_free(m);

    /* a model that has a loss and no logits */
    const gs_store_entry entry = {"a", 1, 8, 0};
    const gs_init init = {1, 0};
    odd_model odd = {.base = {.forward = odd_forward, .n = 1, .entries = &entry, .inits = &init},
                     .result = LOSS};
    CHECK(gs_trainer_create(&t, ctx, &odd.base, &config) == GS_OK);
    CHECK(gs_trainer_evaluate(&loss, &right, t, &batch) == GS_OK && loss == 1 && right == 0);
    odd.base.logits = no_logits;
    CHECK(gs_trainer_evaluate(&loss, &right, t, &batch) == GS_ESIZE);
    CHECK(strcmp(gs_context_error(ctx)->text, "odd: no logits of 4 items") == 0);
    loss = 9;
    right = 9;
    CHECK(gs_trainer_evaluate(&loss, &right, t, &(gs_batch){.n = 1, .time = 1}) == GS_OK);
    CHECK(loss == 1 && right == 0); /* none of this batch */
    gs_trainer_free(t);
    gs_context_free(ctx);
    CHECK(strcmp(gs_phase_name(GS_PHASE_COUNT), "unknown") == 0);
    CHECK(strcmp(gs_phase_name((gs_phase)-1), "unknown") == 0);
}

/* ---- gradients of zero ---- */

static gs_value *dark_forward(void *model, gs_tape *t, const gs_batch *batch)
{
    const gs_model *m = model;
    gs_value *x = gs_input(t, GS_F32, 2, (const size_t[]){batch->n, 4}, batch->x);
    return gs_cross_entropy(t, gs_linear(t, x, gs_param(t, m->weights), NULL), batch->targets);
}

/* Images that are black: gradients of the logits, in half, are not zero, and those of the weights
 * are. That is a step like any other, and the norm that is clipped is 0. */
static void test_dark(void)
{
    static const float black[8];
    static const int32_t targets[2] = {0, 1};
    const gs_store_entry entry = {"a", 3, 4, 0};
    const gs_init init = {0, 1};
    gs_model m = {.forward = dark_forward, .n = 1, .entries = &entry, .inits = &init};
    const gs_batch batch = {.n = 2, .x = black, .targets = targets};
    for (int mode = GS_O0; mode < GS_MODE_COUNT; mode++) {
        gs_trainer_config config = {
            .size = sizeof config,
            .optim.size = sizeof(gs_optim_config),
            .tape = {.size = sizeof(gs_tape_config), .mode = (gs_mode)mode, .half = GS_F16}};
        gs_context *ctx;
        gs_trainer *trainer;
        gs_train_row row;
        CHECK(gs_optim_config_init(&config.optim, "sgd", NULL) == GS_OK);
        CHECK(gs_optim_config_set(&config.optim, "clip_norm=1", NULL) == GS_OK);
        CHECK(gs_scaler_init(&config.scaler, NULL, NULL) == GS_OK);
        CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
        CHECK(gs_trainer_create(&trainer, ctx, &m, &config) == GS_OK);
        CHECK_MSG(gs_trainer_step(trainer, &batch, 1, &row) == GS_OK, "O%d: %s", mode,
                  gs_context_error(ctx)->text);
        CHECK(row.report.verdict.action == GS_APPLY && row.report.norm == 0);
        CHECK((row.amax > 0) == (mode != GS_O0)); /* of the logits */
        gs_trainer_free(trainer);
        gs_context_free(ctx);
    }
}

TESTS({"bad_input", test_bad_input}, {"bad_shapes", test_bad_shapes},
      {"bad_models", test_bad_models}, {"bad_ranks", test_bad_ranks},
      {"odd_models", test_odd_models}, {"bad_trainers", test_bad_trainers},
      {"evaluate", test_evaluate}, {"dark", test_dark})
