/* A Llama of two layers, four heads that share two of keys and values, against transformers'
 * LlamaForCausalLM: its file is read as it is, then logits, gradients of all weights, losses of ten
 * steps of AdamW. tests/data/make_llama_vectors.py made the vectors; the bounds are those of
 * test_gpt.c: a multiple of PyTorch's own distance from its f64. Measured: GS_SHOW=1.
 *
 * Besides: every mixture of the parts of a GPT trains, and goes on with a text to the same bits. */
#include "against_torch.h"

#include "gradscale/checkpoint.h"
#include "gradscale/infer.h"
#include "gradscale/io.h"

#include <stdbool.h>
#include <unistd.h>

enum { VOCABULARY = 48, CONTEXT = 16, BATCH = 3, TIME = 12, ROWS = BATCH * TIME, STEPS = 10 };
static const char path[] = "tests/data/llama-hf.safetensors";
static const gs_gpt_config sizes = {.size = sizeof sizes,
                                    .vocabulary = VOCABULARY,
                                    .context = CONTEXT,
                                    .layers = 2,
                                    .heads = 4,
                                    .width = 32,
                                    .rotary = 1,
                                    .rms = 1,
                                    .swiglu = 1,
                                    .untied = 1,
                                    .kv_heads = 2,
                                    .mlp_width = 40};

/* An f32 tensor of the file, `count` of it. */
static void read_tensor(float *to, size_t count, const char *format, const char *name)
{
    char full[128];
    gs_source *s = NULL;
    int found = 0;
    snprintf(full, sizeof full, "%s%s", format, name);
    CHECK(gs_source_open(&s, path, NULL, NULL) == GS_OK);
    for (size_t i = 0; s && i < gs_source_count(s); i++)
        if (strcmp(gs_source_entry(s, i)->name, full) == 0 && gs_source_entry(s, i)->count == count)
            found = gs_source_read(to, s, i, 0, count, NULL) == GS_OK;
    gs_source_close(s);
    CHECK_MSG(found, "%s has no %s of %zu", path, full, count);
}

static int32_t ids[ROWS], targets[ROWS];
static float losses[3][STEPS];
static const gs_batch batch = {.n = BATCH, .time = TIME, .ids = ids, .targets = targets};

static void read_vectors(void)
{
    float x[ROWS], y[ROWS];
    read_tensor(x, ROWS, "test.", "ids");
    read_tensor(y, ROWS, "test.", "targets");
    for (size_t i = 0; i < ROWS; i++) {
        ids[i] = (int32_t)x[i];
        targets[i] = (int32_t)y[i];
    }
    read_tensor(losses[0], 3 * STEPS, "test.", "losses");
}

static job job_new(const gs_gpt_config *c, gs_mode mode, gs_dtype half, unsigned without,
                   unsigned threads)
{
    job j = {0};
    const gs_config machine = {.size = sizeof machine, .without_cpu = without, .threads = threads};
    CHECK(gs_context_create(&j.ctx, &machine, NULL) == GS_OK);
    CHECK(gs_gpt_create(&j.model, j.ctx, c) == GS_OK);
    job_trainer(&j, mode, half, "lr=3e-3 beta2=0.95 weight_decay=0.1");
    return j;
}

static job job_of_file(gs_mode mode, gs_dtype half)
{
    gs_error error = {0};
    job j = job_new(&sizes, mode, half, 0, 0);
    CHECK_MSG(gs_trainer_load_weights(j.trainer, path, &error) == GS_OK, "%s", error.text);
    return j;
}

static void check_grads(const job *j, int which, double factor, const char *name)
{
    static float truth[VOCABULARY * 32];
    double worst = 0;
    for (size_t i = 0; i < j->model->n; i++) {
        const gs_weight *w = &j->model->weights[i];
        const size_t n = w->rows * w->cols;
        float error[2];
        read_tensor(truth, n, "grad.", w->name);
        read_tensor(error, 2, "error.", w->name);
        const double distance = distance_of(w->grad, NULL, truth, n), most = (double)error[which];
        worst = fmax(worst, distance / most);
        CHECK_MSG(distance <= factor * most, "%s, %s: %g, PyTorch %g", name, w->name, distance,
                  most);
    }
    show(name, "gradients", worst);
}

static void check_run(gs_mode mode, gs_dtype half, double factor, const char *name)
{
    job j = job_of_file(mode, half);
    const int which = mode == GS_O0 ? 0 : 1;
    double worst = 0;
    for (size_t i = 0; i < STEPS; i++) {
        const torch_losses of_steps = {losses[0], losses[1 + which], STEPS};
        worst = fmax(worst, check_step(&j, &batch, of_steps, i, factor, name));
        if (i == 0)
            check_grads(&j, which, factor, name);
    }
    show(name, "losses", worst);
    job_free(&j);
}

static void test_logits(void)
{
    static float want[ROWS * VOCABULARY];
    float error;
    read_vectors();
    read_tensor(want, ROWS * VOCABULARY, "test.", "logits");
    read_tensor(&error, 1, "test.", "logits_error");
    job j = job_of_file(GS_O0, GS_F16);
    check_logits(&j, &batch, want, ROWS * VOCABULARY, 3, (double)error);
    job_free(&j);
}

static void test_f32(void)
{
    read_vectors();
    check_run(GS_O0, GS_F16, 3, "f32");
}

static void test_half(void)
{
    read_vectors();
    check_run(GS_O1, GS_BF16, 2, "bf16 O1");
    check_run(GS_O2, GS_BF16, 4, "bf16 O2");
    check_run(GS_O1, GS_F16, 2.0 / 8, "f16 O1");
    check_run(GS_O2, GS_F16, 4.0 / 8, "f16 O2");
}

/* ---- mixtures ---- */

static gs_gpt_config mixture(unsigned parts)
{
    gs_gpt_config c = sizes;
    c.rotary = parts & 1;
    c.rms = parts >> 1 & 1;
    c.swiglu = parts >> 2 & 1;
    c.untied = parts >> 3 & 1;
    c.kv_heads = parts >> 4 & 1 ? 1 : 0;
    c.mlp_width = 0;
    return c;
}

/* A step is the same with other kernels and other threads, and names say what a model is. */
static void test_mixtures(void)
{
    read_vectors();
    for (unsigned parts = 0; parts < 32; parts++) {
        const gs_gpt_config c = mixture(parts);
        double loss[2];
        for (unsigned way = 0; way < 2; way++) {
            gs_train_row row;
            job j = job_new(&c, GS_O2, GS_F16, way ? GS_CPU_AVX512 : 0, 1 + 2 * way);
            for (int i = 0; i < 3; i++)
                CHECK(gs_trainer_step(j.trainer, &batch, 1, &row) == GS_OK);
            loss[way] = row.loss;
            const bool llama = (parts & 7) == 7;
            CHECK(llama == (strncmp(j.model->entries[0].name, "model.", 6) == 0));
            job_free(&j);
        }
        CHECK_MSG(loss[0] == loss[1] && loss[0] > 0 && loss[0] < 5, "parts %u: %.9g and %.9g",
                  parts, loss[0], loss[1]);
    }
}

static float logit(const gs_value *v, size_t i)
{
    return v->dtype == GS_F32 ? ((const float *)v->data)[i]
                              : gs_bf16_to_f32(((const uint16_t *)v->data)[i]);
}

/* In pieces or whole: the logits of the last token are the same. */
static void test_next(void)
{
    static const size_t pieces[] = {5, 1, 1, 4, 1};
    read_vectors();
    for (unsigned parts = 0; parts < 32; parts++)
        for (int half = 0; half < 2; half++) {
            const gs_gpt_config c = mixture(parts);
            const gs_infer_config how = {
                .size = sizeof how, .mode = half ? GS_O2 : GS_O0, .half = GS_BF16};
            job j = job_new(&c, GS_O0, GS_F16, 0, 2);
            gs_infer *infer = NULL;
            gs_kv_cache *cache = NULL;
            size_t n = 0;
            char file[64];
            snprintf(file, sizeof file, "/tmp/gs_test_llama_%ld.safetensors", (long)getpid());
            CHECK(gs_checkpoint_save(file, j.trainer, NULL, NULL) == GS_OK);
            gs_trainer_free(j.trainer);
            j.trainer = NULL;
            CHECK(gs_infer_create(&infer, j.ctx, j.model, &how) == GS_OK);
            CHECK(gs_infer_load(infer, file, NULL) == GS_OK);
            unlink(file);
            CHECK(gs_kv_cache_create(&cache, infer) == GS_OK);
            for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
                const float *found = NULL;
                float kept[VOCABULARY];
                gs_infer_result whole;
                bool same = true;
                CHECK(gs_infer_next(&found, infer, cache, ids + n, pieces[p]) == GS_OK);
                memcpy(kept, found, sizeof kept);
                n += pieces[p];
                CHECK(gs_infer_run(&whole, infer, &(gs_batch){.n = 1, .time = n, .ids = ids}) ==
                      GS_OK);
                for (size_t i = 0; i < VOCABULARY; i++)
                    same &= kept[i] == logit(whole.logits, (n - 1) * VOCABULARY + i);
                CHECK_MSG(same, "parts %u, half %d, token %zu", parts, half, n);
            }
            CHECK(gs_kv_cache_bytes(cache) ==
                  n * 2 * 2 * (parts >> 4 & 1 ? 8 : 32) * (half ? 2u : 4u));
            gs_kv_cache_free(cache);
            gs_infer_free(infer);
            job_free(&j);
        }
}

TESTS({"logits", test_logits}, {"f32", test_f32}, {"half", test_half}, {"mixtures", test_mixtures},
      {"next", test_next})
