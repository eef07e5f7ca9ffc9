/* Models of the library: the limits of their sizes, memory that ends, and the lists that they are
 * made of. */
#include "memory.h"
#include "test.h"

#include "gradscale/infer.h"
#include "train/train.h"

#include <math.h>
#include <stddef.h>

/* ---- sizes ---- */

#define KINDS(X) X(mlp) X(cnn) X(resnet) X(fcn) X(gpt) X(vit)

#define X(kind)                                                                       \
    static gs_status make_##kind(gs_model **out, gs_context *ctx, const void *config) \
    {                                                                                 \
        return gs_##kind##_create(out, ctx, config);                                  \
    }
KINDS(X)
#undef X

/* The smallest of each kind, of which a limit changes one field. */
static const size_t layers[] = {4, 3};
static const gs_mlp_config mlp = {.size = sizeof mlp, layers, 2};
static const gs_cnn_config cnn = {sizeof cnn, 8, 8, 1, 2, 2, 0};
static const gs_resnet_config resnet = {sizeof resnet, 1, 1, 1, 2, 18};
static const gs_fcn_config fcn = {sizeof fcn, 1, 1, 1, 2, 2, 1};
static const gs_gpt_config gpt = {.size = sizeof gpt, 2, 2, 1, 1, 2};
static const gs_vit_config vit = {.size = sizeof vit, 4, 4, 1, 2, 2, 1, 1, 2};

typedef union any_config {
    size_t size;
    gs_mlp_config mlp;
    gs_cnn_config cnn;
    gs_resnet_config resnet;
    gs_fcn_config fcn;
    gs_gpt_config gpt;
    gs_vit_config vit;
} any_config;

typedef struct kind {
    const char *name;
    gs_status (*make)(gs_model **out, gs_context *ctx, const void *config);
    const void *smallest;
    size_t size;
} kind;

enum {
#define X(kind) KIND_##kind,
    KINDS(X)
#undef X
        KIND_COUNT
};

static const kind kinds[] = {
#define X(kind) {#kind, make_##kind, &kind, sizeof kind},
    KINDS(X)
#undef X
};

enum { SIDE = 1 << 16, MOST_CLASSES = 1 << 24 };
#define HUGE_SIZE ((size_t)1 << 31)

/* A field of a kind, the last value that is too small, the first that is too large; whether those
 * between them are tried, which takes memory for some. 0 below: none is too small. */
#define LIMIT(kind, field, below, above, tried)                                       \
    {                                                                                 \
        KIND_##kind, #field, offsetof(gs_##kind##_config, field), below, above, tried \
    }

static const struct {
    int kind;
    const char *field;
    size_t at, below, above;
    int tried;
} limits[] = {
    LIMIT(cnn, height, 7, SIDE + 1, 1),
    LIMIT(cnn, width, 7, SIDE + 1, 1),
    LIMIT(cnn, channels, 0, SIDE + 1, 1),
    LIMIT(cnn, classes, 1, MOST_CLASSES + 1, 1),
    LIMIT(cnn, filters, 1, SIDE + 1, 1),
    LIMIT(resnet, height, 0, SIDE + 1, 1),
    LIMIT(resnet, width, 0, SIDE + 1, 1),
    LIMIT(resnet, channels, 0, SIDE + 1, 1),
    LIMIT(resnet, classes, 1, MOST_CLASSES + 1, 1),
    LIMIT(resnet, depth, 17, 51, 0),
    LIMIT(fcn, height, 0, SIDE + 1, 1),
    LIMIT(fcn, width, 0, SIDE + 1, 1),
    LIMIT(fcn, channels, 0, SIDE + 1, 1),
    LIMIT(fcn, classes, 1, MOST_CLASSES + 1, 1),
    LIMIT(fcn, filters, 1, SIDE + 1, 1),
    LIMIT(fcn, layers, 0, 1001, 1),
    LIMIT(gpt, vocabulary, 1, HUGE_SIZE + 1, 1),
    LIMIT(gpt, context, 1, HUGE_SIZE + 1, 0),
    LIMIT(gpt, layers, 0, (1 << 20) + 1, 0),
    LIMIT(gpt, width, 1, HUGE_SIZE / 4 + 1, 1),
    LIMIT(gpt, heads, 0, 3, 1),
    LIMIT(vit, height, 0, SIDE + 1, 0),
    LIMIT(vit, width, 0, SIDE + 1, 0),
    LIMIT(vit, channels, 0, SIDE + 1, 1),
    LIMIT(vit, classes, 1, MOST_CLASSES + 1, 1),
    LIMIT(vit, patch, 0, 3, 1),
    LIMIT(vit, layers, 0, (1 << 12) + 1, 1),
    LIMIT(vit, hidden, 1, (1 << 20) + 1, 1),
    LIMIT(vit, heads, 0, 3, 1),
};

/* The status of the smallest of a kind with one other number in it. */
static gs_status try_value(gs_context *ctx, const kind *k, size_t at, size_t value)
{
    any_config config;
    gs_model *m = (gs_model *)ctx; /* not NULL */
    memcpy(&config, k->smallest, k->size);
    memcpy((char *)&config + at, &value, sizeof value);
    const gs_status status = k->make(&m, ctx, &config);
    CHECK_MSG((status == GS_OK) == (m != NULL), "%s", k->name);
    gs_model_free(m);
    return status;
}

static void test_limits(void)
{
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        const kind *k = &kinds[limits[i].kind];
        const size_t at = limits[i].at, values[] = {limits[i].below, limits[i].above};
        for (int v = 0; v < 2; v++) {
            const gs_status status = try_value(ctx, k, at, values[v]);
            const char *text = gs_context_error(ctx)->text;
            char number[24];
            snprintf(number, sizeof number, "%zu", values[v]);
            CHECK_MSG(status == GS_ERANGE || status == GS_ESIZE, "%s of %s: %zu", limits[i].field,
                      k->name, values[v]);
            CHECK_MSG(status == GS_ESIZE || strstr(text, number), "%s", text);
        }
        for (int v = 0; limits[i].tried && v < 2; v++)
            CHECK_MSG(try_value(ctx, k, at, v ? values[1] - 1 : values[0] + 1) == GS_OK,
                      "%s of %s: %s", limits[i].field, k->name, gs_context_error(ctx)->text);
    }
    gs_context_free(ctx);
}

/* What no single field says. */
static void test_together(void)
{
    static const struct {
        int kind;
        any_config c;
        const char *says; /* NULL: it can be made */
    } cases[] = {
#define CNN(...) KIND_cnn, {.cnn = {sizeof(gs_cnn_config), __VA_ARGS__}}
#define GPT(...)                                                            \
    KIND_gpt,                                                               \
    {                                                                       \
        .gpt = {.size = sizeof(gs_gpt_config), 2, 2, 1, 2, 4, __VA_ARGS__ } \
    }
#define VIT(...)                                             \
    KIND_vit,                                                \
    {                                                        \
        .vit = {.size = sizeof(gs_vit_config), __VA_ARGS__ } \
    }
        {CNN(1020, 1020, 1, 2, 2, 1), NULL},
        {CNN(1021, 1021, 1, 2, 2, 1), "up to 1020, not 1021 by 1021"},
        {CNN(8, 9, 1, 2, 2, 1), "square images"},
        {CNN(1, 1, 1, 2, 2, 1), NULL},
        {GPT(-0.1f), "dropout"},
        {GPT(1), "dropout"},
        {GPT(NAN), "dropout"},
        {GPT(0, .kv_heads = 2), NULL},
        {GPT(0, .kv_heads = 3), "2 heads cannot share 3 heads"},
        {GPT(0, .mlp_width = 1 << 20), NULL},
        {GPT(0, .mlp_width = HUGE_SIZE + 1), "too large"},
        {GPT(0, .theta = 0.5), "theta"},
        {GPT(0, .theta = 2e12), "theta"},
        {GPT(0, .theta = (double)NAN), "theta"},
        {GPT(0, .theta = 1), NULL},
        {GPT(0, .theta = 1e12), NULL},
        {KIND_gpt,
         {.gpt = {.size = sizeof(gs_gpt_config), 2, (1 << 24) + 1, 1, 1, 2, .rotary = 1}},
         "too large"},
        {KIND_gpt,
         {.gpt = {.size = sizeof(gs_gpt_config), 2, 2, 1, 1, 3, .rotary = 1}},
         "an even number of columns, not 3"},
        {VIT(4, 6, 1, 2, 4, 1, 1, 2), "4 by 6 cannot be cut into patches of 4 by 4"},
        {VIT(1024, 1024, 1, 2, 1, 1, 1, 2), "1048576 patches"},
        {VIT(1024, 1023, 1, 2, 1, 1, 1, 2), NULL},
        {VIT(2048, 2048, 1, 2, 2048, 1, 1, 2), "too large"},
        {VIT(1024, 1024, 1, 2, 1024, 1, 1, 2), NULL},
        {VIT(4, 4, 1, 2, 4, 1, 1, 2, .mlp_width = 1 << 22), NULL},
        {VIT(4, 4, 1, 2, 4, 1, 1, 2, .mlp_width = (1 << 22) + 1), "hidden units"},
        {VIT(4, 4, 1, 2, 4, 1, 1, 2, .dropout = -0.1f), "dropout"},
        {VIT(4, 4, 1, 2, 4, 1, 1, 2, .dropout = NAN), "dropout"},
        {VIT(4, 4, 1, 2, 4, 1, 1, 2, .dropout = 1), "dropout"},
        {KIND_mlp, {.mlp = {sizeof(gs_mlp_config), NULL, 2}}, "no list of sizes"},
        {KIND_mlp, {.mlp = {sizeof(gs_mlp_config), layers, 1}}, "at least 2 sizes, not 1"},
#undef CNN
#undef GPT
#undef VIT
    };
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gs_model *m = (gs_model *)ctx;
        const gs_status status = kinds[cases[i].kind].make(&m, ctx, &cases[i].c);
        const char *text = gs_context_error(ctx)->text;
        CHECK_MSG((status == GS_OK) == !cases[i].says && (status == GS_OK) == (m != NULL),
                  "%zu: %s", i, text);
        CHECK_MSG(!cases[i].says || strstr(text, cases[i].says), "%zu: %s", i, text);
        gs_model_free(m);
    }
    gs_context_free(ctx);
}

static void test_missing(void)
{
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    for (int i = 0; i < KIND_COUNT; i++) {
        const kind *k = &kinds[i];
        gs_model *m = NULL;
        any_config config;
        memcpy(&config, k->smallest, k->size);
        CHECK(k->make(NULL, ctx, &config) == GS_ENULL);
        CHECK(k->make(&m, NULL, &config) == GS_ENULL);
        CHECK(k->make(&m, ctx, NULL) == GS_ENULL);
        CHECK_MSG(strstr(gs_context_error(ctx)->text, k->name), "%s", gs_context_error(ctx)->text);
        config.size = k->size + 8;
        CHECK(k->make(&m, ctx, &config) == GS_EVERSION && !m);
    }
    gs_context_free(ctx);
}

static void test_no_memory(void)
{
    for (int i = 0; i < KIND_COUNT; i++) {
        books b = {0};
        gs_context *ctx;
        gs_model *m = NULL;
        const gs_config config = {.size = sizeof config, .alloc = books_hook(&b), .threads = 1};
        CHECK(gs_context_create(&ctx, &config, NULL) == GS_OK);
        const size_t before = b.calls;
        b.fail_at = before + 1;
        CHECK(kinds[i].make(&m, ctx, kinds[i].smallest) == GS_ENOMEM && !m);
        CHECK(strstr(gs_context_error(ctx)->text, "no memory for a model of"));
        CHECK(kinds[i].make(&m, ctx, kinds[i].smallest) == GS_OK && m);
        CHECK(b.calls == before + 2); /* a model is one block */
        gs_model_free(m);
        gs_context_free(ctx);
        CHECK(b.blocks == 0 && !b.wrong);
    }
}

/* ---- what they are made of ---- */

static void test_lists(void)
{
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    /* sizes of which a product or a sum is no size_t */
    static const struct {
        size_t size, entries, states;
    } large[] = {{64, SIZE_MAX / 64, 0},
                 {64, 0, SIZE_MAX / 2},
                 {64, SIZE_MAX / 1024, SIZE_MAX / 4},
                 {64, 0, SIZE_MAX / 4}};
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        CHECK(!gsi_model_new(ctx, large[i].size, large[i].entries, large[i].states));
        CHECK(gs_context_error(ctx)->status == GS_ENOMEM);
    }
    /* no list is written beyond its room */
    gs_model *m = gsi_model_new(ctx, sizeof *m, 1, 3);
    gsi_model_layout(m, (gs_layout){.rank = 4});
    CHECK(m->n == 0 && m->layouts[0].rank == 0);
    for (int i = 0; i < 2; i++)
        gsi_model_add(m, 2, 5, (gs_init){0, 1}, "w%d", i);
    CHECK(m->n == 1 && strcmp(m->entries[0].name, "w0") == 0);
    gsi_model_layout(m, (gs_layout){.rank = 4});
    CHECK(m->layouts[0].rank == 4);
    CHECK(!gsi_model_add_state(m, 4, "large"));
    CHECK(gsi_model_add_state(m, 2, "a") == m->state);
    CHECK(!gsi_model_add_state(m, 2, "large"));
    CHECK(gsi_model_add_state(m, 0, "b") == m->state + 2);
    CHECK(!gsi_model_add_state(m, 0, "more"));
    CHECK(m->n_states == 2 && strcmp(m->state_entries[1].name, "b") == 0);
    gs_model_free(m);
    gs_context_free(ctx);
}

static void test_ranges(void)
{
    gs_context *ctx;
    gs_model own = {0}, *m;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_model_quantize(NULL, ctx) == GS_ENULL && gs_model_quantize(&own, NULL) == GS_ENULL);
    CHECK(gs_model_quantize(&own, ctx) == GS_ESTATE);
    CHECK(strstr(gs_context_error(ctx)->text, "not the library's"));
    gs_model_free(&own); /* nothing is to be freed */
    gs_model_free(NULL);

    m = gsi_model_new(ctx, sizeof *m, 3, 0);
    gsi_model_add(m, 2, 5, (gs_init){0, 1}, "plain");
    gsi_model_add(m, 1, 5, (gs_init){0, 1}, "fc.bias");
    gsi_model_add(m, 2, 5, (gs_init){0, 1}, "a.fc.weight");
    for (int twice = 0; twice < 2; twice++) {
        CHECK(gs_model_quantize(m, ctx) == GS_OK && m->n_ranges == 2 && m->states == 2);
        CHECK(strcmp(m->state_entries[0].name, "plain.input_amax") == 0);
        CHECK(strcmp(m->state_entries[1].name, "a.fc.input_amax") == 0);
    }
    gs_model_free(m);
    gs_context_free(ctx);
}

/* The base of rotary positions: 10000 if none is given, and another one turns otherwise. */
static void test_theta(void)
{
    static const double thetas[] = {0, 10000, 500};
    double losses[3] = {0};
    const int32_t ids[] = {1, 0, 2, 2, 1, 0}, targets[] = {0, 2, 2, 1, 0, 1};
    for (int i = 0; i < 3; i++) {
        const gs_gpt_config sizes = {
            .size = sizeof sizes, 3, 6, 1, 1, 8, .rotary = 1, .theta = thetas[i]};
        gs_trainer_config config = {.size = sizeof config,
                                    .optim.size = sizeof(gs_optim_config),
                                    .tape = {.size = sizeof(gs_tape_config), .mode = GS_O0},
                                    .seed = 1};
        gs_context *ctx;
        gs_model *m;
        gs_trainer *t;
        CHECK(gs_optim_config_init(&config.optim, "sgd", NULL) == GS_OK);
        CHECK(gs_scaler_init(&config.scaler, NULL, NULL) == GS_OK);
        CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
        CHECK(gs_gpt_create(&m, ctx, &sizes) == GS_OK);
        CHECK(gs_trainer_create(&t, ctx, m, &config) == GS_OK);
        const gs_tensor all = gs_store_data(gs_trainer_store(t));
        for (size_t k = 0; k < all.count; k++)
            ((float *)all.data)[k] *= 20; /* so that attention has something to say */
        CHECK(gs_trainer_sync(t) == GS_OK);
        const gs_batch batch = {.n = 1, .time = 6, .ids = ids, .targets = targets};
        CHECK(gs_trainer_evaluate(&losses[i], NULL, t, &batch) == GS_OK);
        gs_trainer_free(t);
        gs_model_free(m);
        gs_context_free(ctx);
    }
    CHECK(losses[0] == losses[1] && losses[0] > 0);
    CHECK_MSG(losses[2] != losses[1], "%.9g", losses[2]);
}

TESTS({"limits", test_limits}, {"together", test_together}, {"missing", test_missing},
      {"no_memory", test_no_memory}, {"lists", test_lists}, {"ranges", test_ranges},
      {"theta", test_theta})
