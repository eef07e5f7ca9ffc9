/* A real job, small: a neural language model of bytes (two bytes of context, embeddings, one hidden
 * layer) learns this project's own public headers, with weights in bf16.
 *
 * Rounded to nearest, weights stop where a step is less than half their spacing; with stochastic
 * rounding or a Kahan buffer they go where f32 masters go. GS_SHOW=1 prints the table of
 * doc/optim.md. */
#include "test.h"

#include "gradscale/optim.h"

#include <math.h>

enum { VOCAB = 96, CONTEXT = 2, EMBED = 12, HIDDEN = 32, BATCH = 32, STEPS = 1500, EVAL = 1000 };
enum { IN = CONTEXT * EMBED };

static unsigned char text[1 << 17];
static size_t length;

/* Printable bytes, and the newline as 95. */
static void read_text(void)
{
    static const char *const files[] = {"include/gradscale/base.h", "include/gradscale/num.h",
                                        "include/gradscale/tensor.h", "include/gradscale/gemm.h"};
    if (length)
        return;
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        FILE *in = fopen(files[k], "rb");
        CHECK_MSG(in, "%s is not there", files[k]);
        for (int c; in && (c = fgetc(in)) != EOF && length < sizeof text;)
            text[length++] = (unsigned char)(c >= 32 && c < 127 ? c - 32 : 95);
        if (in)
            fclose(in);
    }
    CHECK(length > 10000);
}

/* ---- the model: f32 arithmetic on the weights as the store has them ---- */

static const gs_store_entry shapes[] = {{"embed", VOCAB, EMBED, 0},
                                        {"hidden", HIDDEN, IN, 0},
                                        {"hidden.bias", 1, HIDDEN, GS_NO_DECAY},
                                        {"out", VOCAB, HIDDEN, 0},
                                        {"out.bias", 1, VOCAB, GS_NO_DECAY}};
enum { EMBEDDING, INNER, INNER_BIAS, OUTER, OUTER_BIAS, WEIGHTS };

typedef struct model {
    const gs_weight *list;
    float w[WEIGHTS][VOCAB * HIDDEN], g[WEIGHTS][VOCAB * HIDDEN];
} model;

static size_t count_of(const gs_weight *w) { return w->rows * w->cols; }

/* What the model computes with: the copy where there is one. */
static void load(model *m)
{
    for (size_t t = 0; t < WEIGHTS; t++) {
        const gs_weight *w = &m->list[t];
        const uint16_t *half = w->copy ? w->copy : w->data;
        for (size_t i = 0; i < count_of(w); i++)
            m->w[t][i] = gs_bf16_to_f32(half[i]);
        memset(m->g[t], 0, sizeof m->g[t]);
    }
}

/* -log p of the byte at `at`; its gradient, times `scale`, is added to m->g if that is not 0. */
static double one(model *m, size_t at, float scale)
{
    float x[IN], h[HIDDEN], p[VOCAB], dh[HIDDEN] = {0}, top = -INFINITY, sum = 0;
    for (size_t c = 0; c < CONTEXT; c++)
        memcpy(x + c * EMBED, m->w[EMBEDDING] + text[at - 1 - c] * EMBED, EMBED * sizeof *x);
    for (size_t j = 0; j < HIDDEN; j++) {
        float s = m->w[INNER_BIAS][j];
        for (size_t i = 0; i < IN; i++)
            s += m->w[INNER][j * IN + i] * x[i];
        h[j] = tanhf(s);
    }
    for (size_t k = 0; k < VOCAB; k++) {
        p[k] = m->w[OUTER_BIAS][k];
        for (size_t j = 0; j < HIDDEN; j++)
            p[k] += m->w[OUTER][k * HIDDEN + j] * h[j];
        top = fmaxf(top, p[k]);
    }
    for (size_t k = 0; k < VOCAB; k++)
        sum += p[k] = expf(p[k] - top);
    const double loss = -log((double)p[text[at]] / (double)sum);
    if (scale == 0)
        return loss;

    for (size_t k = 0; k < VOCAB; k++) {
        const float d = (p[k] / sum - (k == text[at] ? 1 : 0)) * scale;
        m->g[OUTER_BIAS][k] += d;
        for (size_t j = 0; j < HIDDEN; j++) {
            m->g[OUTER][k * HIDDEN + j] += d * h[j];
            dh[j] += d * m->w[OUTER][k * HIDDEN + j];
        }
    }
    for (size_t j = 0; j < HIDDEN; j++) {
        const float d = dh[j] * (1 - h[j] * h[j]);
        m->g[INNER_BIAS][j] += d;
        for (size_t i = 0; i < IN; i++) {
            m->g[INNER][j * IN + i] += d * x[i];
            m->g[EMBEDDING][text[at - 1 - i / EMBED] * EMBED + i % EMBED] +=
                d * m->w[INNER][j * IN + i];
        }
    }
    return loss;
}

/* ---- a run ---- */

static double train(gs_dtype data, const char *settings)
{
    static model m;
    char all[128];
    double loss = 0;
    gs_context *ctx;
    gs_store *store;
    gs_optim *optim;
    gs_scaler scaler;
    gs_optim_config config = {.size = sizeof config};
    snprintf(all, sizeof all, "lr=1e-3 weight_decay=0 beta2=0.99 %s", settings);
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    CHECK(gs_scaler_init(&scaler, "guard", NULL) == GS_OK);
    CHECK(gs_optim_config_init(&config, "adamw", NULL) == GS_OK);
    CHECK(gs_optim_config_set(&config, all, NULL) == GS_OK);
    CHECK(gs_store_create(&store, ctx, shapes, WEIGHTS, (gs_store_types){data, GS_BF16, GS_BF16}) ==
          GS_OK);
    m.list = gs_store_weights(store, NULL);
    CHECK(gs_optim_create(&optim, ctx, m.list, WEIGHTS, &config) == GS_OK);
    for (size_t t = 0; t < WEIGHTS; t++)
        for (size_t i = 0; m.list[t].rows > 1 && i < count_of(&m.list[t]); i++) {
            const double x = ((double)gs_random_u32(t, i) / 0x1p+31 - 1) *
                             (t == EMBEDDING ? 1 : sqrt(3.0 / (double)m.list[t].cols));
            const uint16_t half = gs_f32_to_bf16((float)x); /* the same start for all */
            if (data == GS_F32)
                ((float *)m.list[t].data)[i] = gs_bf16_to_f32(half);
            else
                ((uint16_t *)m.list[t].data)[i] = half;
            if (m.list[t].copy)
                ((uint16_t *)m.list[t].copy)[i] = half;
        }
    for (unsigned step_number = 0; step_number < STEPS; step_number++) {
        gs_step step;
        gs_step_begin(&step, &scaler);
        load(&m);
        for (unsigned b = 0; b < BATCH; b++) {
            const uint32_t r = gs_random_u32(99, (uint64_t)step_number * BATCH + b);
            one(&m, CONTEXT + r % (length - CONTEXT), (float)step.scale / BATCH);
        }
        for (size_t t = 0; t < WEIGHTS; t++)
            for (size_t i = 0; i < count_of(&m.list[t]); i++)
                ((uint16_t *)m.list[t].grad)[i] = gs_f32_to_bf16(m.g[t][i]);
        CHECK(gs_optim_step(optim, &step, &scaler, NULL) == GS_OK);
    }
    load(&m);
    for (unsigned i = 0; i < EVAL; i++)
        loss += one(&m, CONTEXT + i * (length - CONTEXT) / EVAL, 0) / EVAL;
    gs_optim_free(optim);
    gs_store_free(store);
    gs_context_free(ctx);
    if (getenv("GS_SHOW"))
        printf("%-5s %-40s loss %.4f\n", gs_dtype_format(data)->name, settings, loss);
    return loss;
}

static void test_weights(void)
{
    read_text();
    const double master = train(GS_F32, ""), nearest = train(GS_BF16, "rounding=nearest");
    const double random = train(GS_BF16, "rounding=stochastic seed=1");
    const double kahan = train(GS_BF16, "rounding=kahan");
    CHECK_MSG(nearest > 1.05 * master, "nearest %g, master %g", nearest, master);
    CHECK_MSG(fabs(random / master - 1) < 0.01, "stochastic %g, master %g", random, master);
    CHECK_MSG(fabs(kahan / master - 1) < 0.01, "kahan %g, master %g", kahan, master);
}

static void test_moments(void)
{
    read_text();
    const double f32 = train(GS_F32, ""), f16 = train(GS_F32, "moments=f16 seed=1");
    const double bf16 = train(GS_F32, "moments=bf16 seed=1");
    CHECK_MSG(fabs(f16 / f32 - 1) < 0.01, "f16 %g, f32 %g", f16, f32);
    CHECK_MSG(fabs(bf16 / f32 - 1) < 0.01, "bf16 %g, f32 %g", bf16, f32);
}

TESTS({"weights", test_weights}, {"moments", test_moments})
