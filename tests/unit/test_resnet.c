/* ResNet-18 and ResNet-50 against torchvision's: logits, gradients of all weights, losses of steps
 * of AdamW, running statistics. tests/data/make_resnet_vectors.py made the vectors; as in
 * test_gpt.c the truth is PyTorch's f64, and a bound is how far PyTorch itself is from it:
 *
 *     f32         3 times as far as PyTorch's f32: other orders of the same sums
 *     bf16, O1    2 times as far as PyTorch's bf16 autocast
 *     f16, O1     as far as PyTorch's bf16
 *
 * In f32 that holds for every weight; an error that happens to be small for one counts as a quarter
 * of the largest of all. In half types a rounding may turn a relu on or off, and a batchnorm over
 * 16 numbers makes much of that: the root mean square over all weights is compared.
 * Measured (GS_SHOW=1): 2.3, 0.9 and 0.4. */
#include "against_torchvision.h"

#include <stdbool.h>

enum { BATCH = 4, SIDE = 64, CLASSES = 10, SAMPLES = 32, WEIGHTS = 200, STEPS = 10, LAST = 2048 };

static struct {
    size_t depth, last; /* last: channels of the last norm */
    float logits[BATCH * CLASSES], logits_error;
    float grads[WEIGHTS][SAMPLES], f32_error[WEIGHTS], bf16_error[WEIGHTS];
    float losses[STEPS], f32_losses[STEPS], bf16_losses[STEPS], var[LAST], var_error;
} theirs;
static float x[BATCH * SIDE * SIDE * 3];
static const int32_t targets[BATCH] = {0, 3, 6, 9};
static const gs_batch batch = {.n = BATCH, .x = x, .targets = targets};

static void fill(const gs_model *m, size_t t)
{
    const gs_weight *w = &m->weights[t];
    const gs_layout *l = &m->layouts[t];
    const size_t count = w->rows * w->cols, n = strlen(w->name);
    const bool vector = w->rows == 1, gamma = vector && strcmp(w->name + n - 6, "weight") == 0;
    const double center = !gamma ? 0 : strcmp(w->name + n - 10, "bn3.weight") == 0 ? 0.2 : 1;
    const double spread = l->rank == 4 ? sqrt(6.0 / (double)(w->rows * l->kh * l->kw))
                          : !vector    ? 1 / sqrt((double)w->cols)
                          : gamma      ? 0.2 * center
                                       : 0.2;
    for (size_t i = 0; i < count; i++)
        ((float *)w->data)[place(m, t, i)] = (float)(center + spread * number(t, i));
}

static job job_new(gs_mode mode, gs_dtype half)
{
    job j = {0};
    const gs_resnet_config sizes = {sizeof sizes, SIDE, SIDE, 3, CLASSES, theirs.depth};
    CHECK(gs_context_create(&j.ctx, NULL, NULL) == GS_OK);
    CHECK(gs_resnet_create(&j.model, j.ctx, &sizes) == GS_OK);
    job_trainer(&j, mode, half, "lr=1e-4 beta2=0.95 weight_decay=0.1 eps=1e-3");
    for (size_t i = 0; i < j.model->n; i++)
        fill(j.model, i);
    CHECK(gs_trainer_sync(j.trainer) == GS_OK);
    return j;
}

static void read_vectors(size_t depth)
{
    char path[64];
    snprintf(path, sizeof path, "tests/data/resnet%zu.bin", depth);
    theirs.depth = depth;
    theirs.last = depth == 18 ? 512 : 2048;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = (float)(2 * number(1000, i));
    job j = job_new(GS_O0, GS_F16);
    const size_t n = j.model->n;
    CHECK(n <= WEIGHTS && n == (depth == 18 ? 62 : 161));
    FILE *f = fopen(path, "rb");
    read_floats(f, theirs.logits, BATCH * CLASSES);
    read_floats(f, &theirs.logits_error, 1);
    for (size_t i = 0; i < n; i++)
        read_floats(f, theirs.grads[i], sample(NULL, j.model, i, SAMPLES));
    read_floats(f, theirs.f32_error, n);
    read_floats(f, theirs.bf16_error, n);
    read_floats(f, theirs.losses, STEPS);
    read_floats(f, theirs.f32_losses, STEPS);
    read_floats(f, theirs.bf16_losses, STEPS);
    read_floats(f, theirs.var, theirs.last);
    read_floats(f, &theirs.var_error, 1);
    CHECK_MSG(f && fgetc(f) == EOF, "%s is not as its script writes it", path);
    if (f)
        fclose(f);
    job_free(&j);
}

static double largest(const float *list, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, (double)list[i]);
    return most;
}

static void check_grads(const job *j, const float *error, double factor, const char *name)
{
    const gs_model *m = j->model;
    const double least = largest(error, m->n) / 4;
    double worst = 0, ours = 0, pytorch = 0;
    for (size_t t = 0; t < m->n; t++) {
        size_t at[SAMPLES];
        const size_t n = sample(at, m, t, SAMPLES);
        const double distance = distance_of(m->weights[t].grad, at, theirs.grads[t], n);
        const double most = fmax((double)error[t], least);
        worst = fmax(worst, distance / most);
        ours += distance * distance;
        pytorch += (double)error[t] * (double)error[t];
        CHECK_MSG(error != theirs.f32_error || distance <= factor * most, "%s, %s: %g, PyTorch %g",
                  name, m->entries[t].name, distance, (double)error[t]);
    }
    CHECK_MSG(sqrt(ours / pytorch) <= factor, "%s: gradients are %.3f times as far", name,
              sqrt(ours / pytorch));
    show(name, "gradients", worst);
    show(name, "their root mean square", sqrt(ours / pytorch));
}

static void check_var(const job *j)
{
    const float *var = j->model->state + j->model->states - theirs.last;
    double worst = 0;
    for (size_t i = 0; i < theirs.last; i++)
        worst = fmax(worst, fabs((double)var[i] / (double)theirs.var[i] - 1));
    CHECK_MSG(worst <= 3 * (double)theirs.var_error,
              "the running variance is off by %g, PyTorch's %g", worst, (double)theirs.var_error);
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
    if (mode == GS_O0)
        check_var(&j);
    show(name, "losses", worst);
    job_free(&j);
}

static void check_logits_f32(void)
{
    job j = job_new(GS_O0, GS_F16);
    check_logits(&j, &batch, theirs.logits, BATCH * CLASSES, 3, (double)theirs.logits_error);
    job_free(&j);
}

static void test_18(void)
{
    read_vectors(18);
    check_logits_f32();
    check_run(GS_O0, GS_F16, theirs.f32_error, theirs.f32_losses, 3, "resnet18 f32");
}

static void test_18_half(void)
{
    read_vectors(18);
    check_run(GS_O1, GS_BF16, theirs.bf16_error, theirs.bf16_losses, 2, "resnet18 bf16 O1");
    check_run(GS_O1, GS_F16, theirs.bf16_error, theirs.bf16_losses, 1, "resnet18 f16 O1");
}

static void test_50(void)
{
    read_vectors(50);
    check_logits_f32();
    check_run(GS_O0, GS_F16, theirs.f32_error, theirs.f32_losses, 3, "resnet50 f32");
}

static void test_50_half(void)
{
    read_vectors(50);
    check_run(GS_O1, GS_BF16, theirs.bf16_error, theirs.bf16_losses, 2, "resnet50 bf16 O1");
    check_run(GS_O1, GS_F16, theirs.bf16_error, theirs.bf16_losses, 1, "resnet50 f16 O1");
}

/* Any size of images; threads and instruction sets change no bit of a step. */
static void test_sizes(void)
{
    static const size_t sizes[][3] = {{1, 1, 1}, {28, 28, 1}, {33, 70, 3}, {8, 64, 4}};
    static float image[2 * 33 * 70 * 3];
    for (size_t i = 0; i < sizeof image / sizeof image[0]; i++)
        image[i] = (float)number(7, i);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        double losses[2];
        for (int way = 0; way < 2; way++) {
            job j = {0};
            gs_train_row row;
            gs_trainer_config config = {
                .size = sizeof config,
                .optim.size = sizeof(gs_optim_config),
                .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16}};
            const gs_resnet_config c = {sizeof c, sizes[s][0], sizes[s][1], sizes[s][2], 3, 18};
            CHECK(gs_optim_config_init(&config.optim, "adamw", NULL) == GS_OK);
            CHECK(gs_scaler_init(&config.scaler, "pytorch", NULL) == GS_OK);
            CHECK(gs_context_create(&j.ctx,
                                    &(gs_config){.size = sizeof(gs_config),
                                                 .threads = way ? 1 : 3,
                                                 .without_cpu = way ? GS_CPU_AVX512 : 0},
                                    NULL) == GS_OK);
            CHECK(gs_resnet_create(&j.model, j.ctx, &c) == GS_OK);
            CHECK(gs_trainer_create(&j.trainer, j.ctx, j.model, &config) == GS_OK);
            const gs_batch two = {.n = 2, .x = image, .targets = (const int32_t[]){1, 2}};
            for (int i = 0; i < 2; i++)
                CHECK(gs_trainer_step(j.trainer, &two, 1, &row) == GS_OK);
            losses[way] = row.loss;
            job_free(&j);
        }
        CHECK_MSG(losses[0] == losses[1] && losses[0] > 0, "%zu: %.9g, and %.9g", s, losses[0],
                  losses[1]);
    }
}

static void test_bad(void)
{
    gs_context *ctx;
    gs_model *m;
    gs_resnet_config c = {sizeof c, 8, 8, 1, 2, 34};
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_resnet_create(&m, ctx, &c) == GS_ERANGE && !m);
    CHECK(strstr(gs_context_error(ctx)->text, "18 or 50 layers, not 34"));
    c.depth = 18;
    c.classes = 1;
    CHECK(gs_resnet_create(&m, ctx, &c) == GS_ERANGE);
    c.classes = 2;
    c.height = 0;
    CHECK(gs_resnet_create(&m, ctx, &c) == GS_ERANGE);
    c.size = 0;
    CHECK(gs_resnet_create(&m, ctx, &c) == GS_EVERSION);
    gs_context_free(ctx);
}

TESTS({"resnet18", test_18}, {"resnet18_half", test_18_half}, {"resnet50", test_50},
      {"resnet50_half", test_50_half}, {"sizes", test_sizes}, {"bad", test_bad})
