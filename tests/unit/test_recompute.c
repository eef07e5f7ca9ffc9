/* Recomputed activations: the same bits for less memory, whatever else a step does. */
#include "train_rig.h"

#include <math.h>

/* ---- whole steps of a GPT ---- */

static bool same_layers(const job *a, const job *b)
{
    size_t n, m;
    const gs_layer *x = gs_tape_layers(gs_trainer_tape(a->trainer), &n);
    const gs_layer *y = gs_tape_layers(gs_trainer_tape(b->trainer), &m);
    bool same = n == m && n > 0;
    for (size_t i = 0; same && i < n; i++)
        same = strcmp(x[i].name, y[i].name) == 0 &&
               memcmp(&x[i].stats, &y[i].stats, sizeof x[i].stats) == 0 &&
               memcmp(x[i].exponents, y[i].exponents, sizeof *x[i].exponents) == 0;
    return same;
}

static void check_gpt(gs_mode mode, gs_dtype half)
{
    how h = {
        .kind = GPT, .mode = mode, .half = half, .threads = 2, .telemetry = 1, .dropout = 0.1f};
    books b = {0};
    job kept = job_new(&h);
    h.recompute = 1;
    h.books = &b;
    job again = job_new(&h);
    CHECK(kept.status == GS_OK && again.status == GS_OK);
    gs_tape_set_exponents(gs_trainer_tape(kept.trainer), 1);
    gs_tape_set_exponents(gs_trainer_tape(again.trainer), 1);
    size_t calls = 0;
    for (unsigned i = 0; i < 6; i++) {
        const gs_train_row x = step(&kept, GPT, i), y = step(&again, GPT, i);
        CHECK(x.loss == y.loss && x.report.norm == y.report.norm);
        CHECK(memcmp(&x.stored, &y.stored, sizeof x.stored) == 0);
        CHECK_MSG(same_layers(&kept, &again) && same_job(&kept, &again), "O%d, step %u", mode, i);
        CHECK_MSG(y.memory.activations < x.memory.activations * 3 / 4 &&
                      y.memory.peak < x.memory.peak,
                  "O%d: %zu of %zu bytes, peak %zu of %zu", mode, y.memory.activations,
                  x.memory.activations, y.memory.peak, x.memory.peak);
        if (i == 2)
            calls = b.calls;
    }
    CHECK_MSG(b.calls == calls, "O%d: %zu allocations in three steps", mode, b.calls - calls);
    double losses[2];
    const gs_batch batch = batch_of(GPT, 77);
    CHECK(gs_trainer_evaluate(&losses[0], NULL, kept.trainer, &batch) == GS_OK);
    CHECK(gs_trainer_evaluate(&losses[1], NULL, again.trainer, &batch) == GS_OK);
    CHECK(losses[0] == losses[1]);
    job_free(&kept);
    job_free(&again);
}

static void test_gpt(void)
{
    check_gpt(GS_O0, GS_F16);
    for (int mode = GS_O1; mode <= GS_O3; mode++) {
        check_gpt((gs_mode)mode, GS_F16);
        check_gpt((gs_mode)mode, GS_BF16);
    }
}

/* ---- a segment with all there is to remember: batchnorm, dropout, x used outside too ---- */

enum { ROWS = 24, COLS = 6, SIZE = ROWS * COLS };

typedef struct parts {
    const gs_weight *w; /* matrix, gamma, beta */
    gs_running running;
} parts;

static gs_value *segment(const void *args, gs_tape *t, gs_value *x)
{
    const parts *p = args;
    gs_value *y = gs_linear(t, x, gs_param(t, &p->w[0]), NULL);
    y = gs_batchnorm(t, y, gs_param(t, &p->w[1]), gs_param(t, &p->w[2]), p->running);
    return gs_add(t, gs_relu(t, gs_dropout(t, y, 0.25f)), x);
}

static gs_value *two_segments(const void *args, gs_tape *t, gs_value *x)
{
    const parts *p = args;
    return gs_recompute(t, gs_recompute(t, x, segment, p, sizeof *p), segment, p, sizeof *p);
}

static gs_value *gelu_segment(const void *args, gs_tape *t, gs_value *x)
{
    return gs_dropout(t, gs_gelu(t, x), *(const float *)args);
}

static gs_value *nothing(const void *args, gs_tape *t, gs_value *x)
{
    (void)args, (void)t;
    return x;
}

typedef struct result {
    float loss, grads[COLS * COLS + 2 * COLS + SIZE], mean[COLS], var[COLS];
} result;

/* The input is a weight too, or else it needs no gradient. */
static void run_segments(result *r, gs_mode mode, int recompute, int input_needs, int nested)
{
    static float data[COLS * COLS + 2 * COLS + SIZE], target[SIZE];
    const size_t shape[] = {ROWS, COLS};
    float *const g = r->grads;
    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++)
        data[i] = (float)gs_random_u32(1, i) * 0x1p-31f - 1;
    const gs_weight w[] = {
        {"w", COLS, COLS, data, GS_F32, NULL, 0, g, GS_F32, 0},
        {"gamma", 1, COLS, data + COLS * COLS, GS_F32, NULL, 0, g + COLS * COLS, GS_F32, 0},
        {"beta", 1, COLS, data + COLS * COLS + COLS, GS_F32, NULL, 0, g + COLS * COLS + COLS,
         GS_F32, 0},
        {"x", ROWS, COLS, data + COLS * COLS + 2 * COLS, GS_F32, NULL, 0,
         g + COLS * COLS + 2 * COLS, GS_F32, 0}};
    gs_context *ctx;
    gs_tape *t;
    memset(r, 0, sizeof *r);
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 2}, NULL) ==
          GS_OK);
    CHECK(gs_tape_create(&t, ctx,
                         &(gs_tape_config){.size = sizeof(gs_tape_config),
                                           .mode = mode,
                                           .half = GS_F16,
                                           .recompute = recompute}) == GS_OK);
    const parts p = {w, {r->mean, r->var, 0.1f}};
    gs_tape_begin(t, 1, 5);
    gs_value *x = input_needs ? gs_param(t, &w[3]) : gs_input(t, GS_F32, 2, shape, w[3].data);
    gs_value *y = x;
    if (nested)
        y = gs_recompute(t, y, two_segments, &p, sizeof p);
    else
        y = two_segments(&p, t, y);
    y = gs_recompute(t, y, nothing, NULL, 0);
    y = gs_add(t, gs_dropout(t, y, 0.5f), x);
    gs_value *loss = gs_mse(t, y, gs_input(t, GS_F32, 2, shape, target));
    CHECK(gs_tape_backward(t, loss, 256) == GS_OK);
    r->loss = *(const float *)loss->data;
    gs_tape_free(t);
    gs_context_free(ctx);
}

static void test_segments(void)
{
    for (int mode = GS_O0; mode <= GS_O2; mode++)
        for (int input_needs = 0; input_needs < 2; input_needs++)
            for (int nested = 0; nested < 2; nested++) {
                result kept, again;
                run_segments(&kept, (gs_mode)mode, 0, input_needs, nested);
                run_segments(&again, (gs_mode)mode, 1, input_needs, nested);
                CHECK_MSG(memcmp(&kept, &again, sizeof kept) == 0,
                          "O%d, input %s, %s: loss %g, %g; mean %g, %g; gradient %g, %g", mode,
                          input_needs ? "trained" : "given", nested ? "nested" : "flat",
                          (double)kept.loss, (double)again.loss, (double)kept.mean[0],
                          (double)again.mean[0], (double)kept.grads[0], (double)again.grads[0]);
                CHECK(kept.grads[0] != 0 && kept.mean[0] != 0);
                CHECK((kept.grads[COLS * COLS + 2 * COLS] != 0) == input_needs);
            }
}

/* Logits that a segment will read again do not give up their place to their gradient. */
static void test_logits(void)
{
    enum { WORDS = 5 };
    static const int32_t targets[ROWS];
    static const float zeros[ROWS * COLS];
    float data[WORDS * COLS], grads[2][WORDS * COLS] = {{0}}, x[SIZE];
    const float p = 0;
    for (size_t i = 0; i < WORDS * COLS; i++)
        data[i] = (float)gs_random_u32(1, i) * 0x1p-31f - 1;
    for (size_t i = 0; i < SIZE; i++)
        x[i] = (float)gs_random_u32(2, i) * 0x1p-31f - 1;
    for (int again = 0; again < 2; again++) {
        const gs_weight w = {"w", WORDS, COLS, data, GS_F32, NULL, 0, grads[again], GS_F32, 0};
        gs_context *ctx;
        gs_tape *t;
        CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1},
                                NULL) == GS_OK);
        CHECK(gs_tape_create(
                  &t, ctx, &(gs_tape_config){.size = sizeof(gs_tape_config), .recompute = again}) ==
              GS_OK);
        gs_tape_begin(t, 1, 0);
        gs_value *in = gs_input(t, GS_F32, 2, (const size_t[]){ROWS, COLS}, x);
        gs_value *logits = gs_linear(t, in, gs_param(t, &w), NULL);
        gs_value *bent = gs_recompute(t, logits, gelu_segment, &p, sizeof p);
        gs_value *aim = gs_input(t, GS_F32, 2, (const size_t[]){ROWS, WORDS}, zeros);
        gs_value *loss = gs_mse(t, bent, aim);
        loss = gs_add(t, loss, gs_cross_entropy(t, logits, targets));
        CHECK(gs_tape_backward(t, loss, 1) == GS_OK);
        gs_tape_free(t);
        gs_context_free(ctx);
    }
    CHECK(grads[0][0] != 0 && memcmp(grads[0], grads[1], sizeof grads[0]) == 0);
}

/* ---- errors inside ---- */

static gs_value *bad_segment(const void *args, gs_tape *t, gs_value *x)
{
    (void)args;
    return gs_relu(t, gs_linear(t, x, x, x));
}

static void test_errors(void)
{
    static const float zeros[12];
    gs_context *ctx;
    gs_tape *t;
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    CHECK(gs_tape_create(
              &t, ctx,
              &(gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O0, .recompute = 1}) ==
          GS_OK);
    for (int i = 0; i < 2; i++) {
        gs_tape_begin(t, 1, 0);
        gs_value *x = gs_input(t, GS_F32, 2, (const size_t[]){3, 4}, zeros);
        gs_value *y = gs_recompute(t, x, bad_segment, NULL, 0);
        y = gs_recompute(t, y, bad_segment, NULL, 0);
        CHECK(gs_tape_status(t) == GS_ESIZE);
        CHECK(strstr(gs_context_error(ctx)->text, "linear: w is [3 4]"));
        CHECK(gs_tape_backward(t, y, 1) == GS_ESIZE);
    }
    gs_tape_free(t);
    gs_context_free(ctx);
}

static void test_no_memory(void)
{
    const how clean = {
        .kind = GPT, .mode = GS_O2, .half = GS_F16, .threads = 1, .recompute = 1, .dropout = 0.1f};
    job want = job_new(&clean);
    step(&want, GPT, 0);
    bool failed = true;
    size_t at = 1;
    for (; failed && at < 500; at++) {
        books b = {.fail_at = at};
        how h = clean;
        h.books = &b;
        job j = job_new(&h);
        const gs_batch batch = batch_of(GPT, 0);
        failed = b.calls >= at;
        if (j.status == GS_OK) {
            const gs_status status = gs_trainer_step(j.trainer, &batch, 1, NULL);
            failed = b.calls >= at;
            CHECK(status == GS_OK || (status == GS_ENOMEM && failed));
            if (status != GS_OK)
                CHECK(gs_trainer_step(j.trainer, &batch, 1, NULL) == GS_OK);
            CHECK_MSG(same_job(&j, &want), "allocation %zu: not the same", at);
        }
        job_free(&j);
        CHECK_MSG(b.blocks == 0 && !b.wrong, "allocation %zu: %zu blocks are left", at, b.blocks);
    }
    CHECK(at > 10 && !failed);
    job_free(&want);
}

TESTS({"gpt", test_gpt}, {"segments", test_segments}, {"logits", test_logits},
      {"errors", test_errors}, {"no_memory", test_no_memory})
