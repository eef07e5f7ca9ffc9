/* A ViT of two layers against torchvision's: logits, gradients of all weights, losses of ten steps
 * of AdamW. tests/data/make_vit_vectors.py made the vectors; as in test_gpt.c the truth is
 * PyTorch's f64, and a bound is how far PyTorch itself is from it:
 *
 *     f32         3 times as far as PyTorch's f32: other orders of the same sums
 *     bf16, O1    2 times as far as PyTorch's bf16 autocast, which casts the same operations
 *     f16, O1     an eighth of that: f16 has 3 bits more, and with the scale nothing underflows
 *     O2          2 times O1's: the residual stream is rounded too
 *
 * Of a gradient's error, 64 elements are a sample: one that happens to be small for a weight counts
 * as half of the largest of all. Measured (GS_SHOW=1): 2.3, 1.7, 0.16 and 3.1. */
#include "against_torchvision.h"

enum { SIDE = 36, PATCH = 4, LAYERS = 2, HEADS = 2, WIDTH = 32, HIDDEN = 80, CLASSES = 10 };
enum { BATCH = 3, SAMPLES = 64, STEPS = 10, WEIGHTS = 4 + 12 * LAYERS + 4 };

static struct {
    float logits[BATCH * CLASSES], logits_error;
    float grads[WEIGHTS][SAMPLES], f32_error[WEIGHTS], bf16_error[WEIGHTS];
    float losses[STEPS], f32_losses[STEPS], bf16_losses[STEPS];
} theirs;
static float x[BATCH * SIDE * SIDE * 3];
static const int32_t targets[BATCH] = {0, 3, 6};
static const gs_batch batch = {.n = BATCH, .x = x, .targets = targets};

static void fill(const gs_model *m, size_t t)
{
    const gs_weight *w = &m->weights[t];
    const int vector = w->rows == 1, gamma = strstr(w->name, ".ln") && strstr(w->name, "weight");
    const double spread = vector                    ? 0.3
                          : m->layouts[t].rank == 3 ? 0.5
                                                    : 1.7 / sqrt((double)w->cols);
    for (size_t i = 0; i < w->rows * w->cols; i++)
        ((float *)w->data)[place(m, t, i)] = (float)(gamma + spread * number(t, i));
}

static const gs_vit_config sizes = {.size = sizeof sizes,
                                    .height = SIDE,
                                    .width = SIDE,
                                    .channels = 3,
                                    .classes = CLASSES,
                                    .patch = PATCH,
                                    .layers = LAYERS,
                                    .heads = HEADS,
                                    .hidden = WIDTH,
                                    .mlp_width = HIDDEN};

static job job_new(gs_mode mode, gs_dtype half)
{
    job j = {0};
    CHECK(gs_context_create(&j.ctx, NULL, NULL) == GS_OK);
    CHECK(gs_vit_create(&j.model, j.ctx, &sizes) == GS_OK);
    CHECK(j.model->n == WEIGHTS);
    job_trainer(&j, mode, half, "lr=1e-3 beta2=0.95 weight_decay=0.1 eps=1e-5");
    for (size_t i = 0; i < j.model->n; i++)
        fill(j.model, i);
    CHECK(gs_trainer_sync(j.trainer) == GS_OK);
    return j;
}

static void read_vectors(void)
{
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = (float)(2 * number(1000, i));
    job j = job_new(GS_O0, GS_F16);
    FILE *f = fopen("tests/data/vit.bin", "rb");
    read_floats(f, theirs.logits, BATCH * CLASSES);
    read_floats(f, &theirs.logits_error, 1);
    for (size_t i = 0; i < WEIGHTS; i++)
        read_floats(f, theirs.grads[i], sample(NULL, j.model, i, SAMPLES));
    read_floats(f, theirs.f32_error, WEIGHTS);
    read_floats(f, theirs.bf16_error, WEIGHTS);
    read_floats(f, theirs.losses, STEPS);
    read_floats(f, theirs.f32_losses, STEPS);
    read_floats(f, theirs.bf16_losses, STEPS);
    CHECK_MSG(f && fgetc(f) == EOF, "tests/data/vit.bin is not as its script writes it");
    if (f)
        fclose(f);
    job_free(&j);
}

static void check_grads(const job *j, const float *error, double factor, const char *name)
{
    const gs_model *m = j->model;
    double least = 0, worst = 0;
    for (size_t t = 0; t < WEIGHTS; t++)
        least = fmax(least, (double)error[t] / 2);
    for (size_t t = 0; t < WEIGHTS; t++) {
        size_t at[SAMPLES];
        const size_t n = sample(at, m, t, SAMPLES);
        const double distance = distance_of(m->weights[t].grad, at, theirs.grads[t], n);
        const double most = fmax((double)error[t], least);
        worst = fmax(worst, distance / most);
        CHECK_MSG(distance <= factor * most, "%s, %s: %g, PyTorch %g", name, m->entries[t].name,
                  distance, (double)error[t]);
    }
    show(name, "gradients", worst);
}

static void check_run(gs_mode mode, gs_dtype half, const float *error, const float *losses,
                      double factor, const char *name)
{
    job j = job_new(mode, half);
    double worst = 0;
    for (size_t i = 0; i < STEPS; i++) {
        const torch_losses of_steps = {theirs.losses, losses, STEPS};
        worst = fmax(worst, check_step(&j, &batch, of_steps, i, factor, name));
        if (i == 0)
            check_grads(&j, error, factor, name);
    }
    show(name, "losses", worst);
    job_free(&j);
}

static void test_f32(void)
{
    read_vectors();
    job j = job_new(GS_O0, GS_F16);
    check_logits(&j, &batch, theirs.logits, BATCH * CLASSES, 3, (double)theirs.logits_error);
    job_free(&j);
    check_run(GS_O0, GS_F16, theirs.f32_error, theirs.f32_losses, 3, "f32");
}

static void test_half(void)
{
    const float *error = theirs.bf16_error, *losses = theirs.bf16_losses;
    read_vectors();
    check_run(GS_O1, GS_BF16, error, losses, 2, "bf16 O1");
    check_run(GS_O2, GS_BF16, error, losses, 4, "bf16 O2");
    check_run(GS_O1, GS_F16, error, losses, 2.0 / 8, "f16 O1");
    check_run(GS_O2, GS_F16, error, losses, 4.0 / 8, "f16 O2");
}

/* Images that are not square, and one of a single patch; threads, instruction sets and running
 * blocks again change no bit of a step. */
static void test_sizes(void)
{
    static const size_t shapes[][4] = {{8, 8, 1, 8}, {6, 12, 3, 2}, {3, 5, 4, 1}, {36, 32, 1, 4}};
    static float image[2 * 36 * 36 * 4];
    for (size_t i = 0; i < sizeof image / sizeof image[0]; i++)
        image[i] = (float)number(7, i);
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        double losses[2];
        for (int way = 0; way < 2; way++) {
            job j = {0};
            gs_train_row row;
            gs_trainer_config config = {.size = sizeof config,
                                        .optim.size = sizeof(gs_optim_config),
                                        .tape = {.size = sizeof(gs_tape_config),
                                                 .mode = GS_O2,
                                                 .half = GS_F16,
                                                 .recompute = way}};
            gs_vit_config c = sizes;
            c.height = shapes[s][0], c.width = shapes[s][1], c.channels = shapes[s][2];
            c.patch = shapes[s][3], c.dropout = 0.1f, c.mlp_width = 0;
            CHECK(gs_optim_config_init(&config.optim, "adamw", NULL) == GS_OK);
            CHECK(gs_scaler_init(&config.scaler, "pytorch", NULL) == GS_OK);
            CHECK(gs_context_create(&j.ctx,
                                    &(gs_config){.size = sizeof(gs_config),
                                                 .threads = way ? 1 : 3,
                                                 .without_cpu = way ? GS_CPU_AVX512 : 0},
                                    NULL) == GS_OK);
            CHECK(gs_vit_create(&j.model, j.ctx, &c) == GS_OK);
            CHECK(gs_trainer_create(&j.trainer, j.ctx, j.model, &config) == GS_OK);
            const gs_batch two = {.n = 2, .x = image, .targets = (const int32_t[]){1, 2}};
            for (int i = 0; i < 4; i++) /* the head begins with zeros */
                CHECK(gs_trainer_step(j.trainer, &two, 1, &row) == GS_OK);
            losses[way] = row.loss;
            job_free(&j);
        }
        CHECK_MSG(losses[0] == losses[1] && losses[0] > 0 && losses[0] < 2.3, "%zu: %.9g, and %.9g",
                  s, losses[0], losses[1]);
    }
}

static void test_bad(void)
{
    static const struct {
        gs_vit_config c;
        const char *says;
    } cases[] = {
#define VIT(...) {.size = sizeof(gs_vit_config), __VA_ARGS__}
        {VIT(28, 28, 1, 10, 5, 2, 2, 32),
         "images of 28 by 28 cannot be cut into patches of 5 by 5"},
        {VIT(28, 28, 1, 10, 0, 2, 2, 32), "patches of 0 by 0"},
        {VIT(0, 28, 1, 10, 4, 2, 2, 32), "not 0 by 28 with 1"},
        {VIT(28, 28, 1, 1, 4, 2, 2, 32), "2 to 2^24 classes, not 1"},
        {VIT(28, 28, 1, 10, 4, 0, 2, 32), "not 0, 32 and 0"},
        {VIT(28, 28, 1, 10, 4, 1, 1, 1), "not 1, 1 and 0"},
        {VIT(28, 28, 1, 10, 4, 2, 3, 32), "a width of 32 cannot be shared by 3 heads"},
        {VIT(28, 28, 1, 10, 4, 2, 0, 32), "by 0 heads"},
        {VIT(28, 28, 1, 10, 4, 2, 2, 32, 0, 1), "dropout is 0 to below 1, not 1"},
        {VIT(65536, 65536, 1, 10, 1, 2, 2, 32), "patches of 1 by 1 pixels is too large"},
        {VIT(65536, 65536, 1, 10, 65536, 2, 2, 32), "1 patches of 65536 by 65536 pixels"},
        {{.size = 0}, "gs_vit_config"}};
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gs_model *m = (gs_model *)ctx;
        CHECK(gs_vit_create(&m, ctx, &cases[i].c) != GS_OK && !m);
        CHECK_MSG(strstr(gs_context_error(ctx)->text, cases[i].says), "%zu: %s", i,
                  gs_context_error(ctx)->text);
    }
    gs_context_free(ctx);
}

TESTS({"f32", test_f32}, {"half", test_half}, {"sizes", test_sizes}, {"bad", test_bad})
