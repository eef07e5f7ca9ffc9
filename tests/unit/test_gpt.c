/* A GPT of two layers against PyTorch: logits, gradients of all weights, losses of ten steps of
 * AdamW. tests/data/make_gpt_vectors.py made the vectors: the truth is PyTorch's f64, and a bound
 * is how far PyTorch itself is from it, so that no tolerance is invented here:
 *
 *     f32         3 times as far as PyTorch's f32: other orders of the same sums
 *     bf16, O1    2 times as far as PyTorch's bf16 autocast, which casts the same operations
 *     f16, O1     an eighth of that: f16 has 3 bits more, and with the scale nothing underflows
 *     O2          2 times O1's: the residual stream is rounded too, at each of its 2 x 2 additions,
 *                 and so are the results of norms
 *
 * The distance of a weight's gradient is the norm of the difference over the norm of the truth.
 * Measured (GS_SHOW=1): 2.1, 1.2, 0.16 and 1.8. */
#include "against_torch.h"

enum { VOCABULARY = 48, CONTEXT = 16, LAYERS = 2, HEADS = 2, WIDTH = 32 };
enum { BATCH = 3, TIME = 12, ROWS = BATCH * TIME, STEPS = 10, WEIGHTS = 2 + 12 * LAYERS + 2 };
enum { ELEMENTS = (VOCABULARY + CONTEXT + 2) * WIDTH + LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) };

static struct {
    int32_t ids[ROWS], targets[ROWS];
    float weights[ELEMENTS];
    float logits[ROWS * VOCABULARY], logits_error;
    float grads[ELEMENTS];
    float f32_error[WEIGHTS], bf16_error[WEIGHTS];
    float losses[STEPS], f32_losses[STEPS], bf16_losses[STEPS];
} theirs; /* 4 bytes each: no holes */

static void read_vectors(void)
{
    static int done;
    FILE *in = done ? NULL : fopen("tests/data/gpt.bin", "rb");
    if (in) {
        done = fread(&theirs, sizeof theirs, 1, in) == 1 && fgetc(in) == EOF;
        fclose(in);
    }
    CHECK_MSG(done, "tests/data/gpt.bin is not as its script writes it");
}

static job job_new(gs_mode mode, gs_dtype half)
{
    job j = {0};
    CHECK(gs_context_create(&j.ctx, NULL, NULL) == GS_OK);
    CHECK(gs_gpt_create(
              &j.model, j.ctx,
              &(gs_gpt_config){
                  .size = sizeof(gs_gpt_config), VOCABULARY, CONTEXT, LAYERS, HEADS, WIDTH, 0}) ==
          GS_OK);
    job_trainer(&j, mode, half, "lr=3e-3 beta2=0.95 weight_decay=0.1");
    CHECK(j.model->n == WEIGHTS);
    size_t at = 0;
    for (size_t i = 0; i < j.model->n; i++) {
        const gs_weight *w = &j.model->weights[i];
        memcpy(w->data, theirs.weights + at, w->rows * w->cols * sizeof(float));
        at += w->rows * w->cols;
    }
    CHECK(at == ELEMENTS && gs_trainer_sync(j.trainer) == GS_OK);
    return j;
}

static const gs_batch batch = {
    .n = BATCH, .time = TIME, .ids = theirs.ids, .targets = theirs.targets};

static void check_grads(const job *j, const float *error, double factor, const char *name)
{
    const float *truth = theirs.grads;
    double worst = 0;
    for (size_t i = 0; i < WEIGHTS; i++) {
        const gs_weight *w = &j->model->weights[i];
        const size_t n = w->rows * w->cols;
        const double distance = distance_of(w->grad, NULL, truth, n);
        worst = fmax(worst, distance / (double)error[i]);
        CHECK_MSG(distance <= factor * (double)error[i], "%s, %s: %g, PyTorch %g", name, w->name,
                  distance, (double)error[i]);
        truth += n;
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

static void test_logits(void)
{
    read_vectors();
    job j = job_new(GS_O0, GS_F16);
    check_logits(&j, &batch, theirs.logits, ROWS * VOCABULARY, 2, (double)theirs.logits_error);
    job_free(&j);
}

static void test_f32(void)
{
    read_vectors();
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

TESTS({"logits", test_logits}, {"f32", test_f32}, {"half", test_half})
