/* What a tape is told and tells about itself: its config, histograms of its layers' gradients, the
 * time of its operations. */
#include "memory.h"
#include "test.h"

#include "gradscale/engine.h"

#include <math.h>

typedef struct fixture {
    books books;
    gs_context *ctx;
    gs_tape *tape;
} fixture;

static void fixture_new(fixture *f, gs_tape_config config)
{
    *f = (fixture){0};
    CHECK(gs_context_create(
              &f->ctx,
              &(gs_config){.size = sizeof(gs_config), .alloc = books_hook(&f->books), .threads = 2},
              NULL) == GS_OK);
    CHECK(gs_tape_create(&f->tape, f->ctx, &config) == GS_OK);
}

static void fixture_free(fixture *f)
{
    gs_tape_free(f->tape);
    gs_context_free(f->ctx);
    CHECK(f->books.blocks == 0 && !f->books.wrong);
}

/* ---- exponents ---- */

enum { N = 64 };

/* loss = mse(relu(w) c, t): in layer "scaled" d = 2 seed (y - t) / N, in "bent" it is c d. */
static void run_layers(gs_tape *t, const gs_weight *w, const float *c, const float *target)
{
    const size_t n = N;
    gs_tape_begin(t, 1, 0);
    gs_value *x = gs_param(t, w);
    gs_tape_set_layer(t, "bent");
    x = gs_relu(t, gs_cast(t, x, w->copy_dtype));
    gs_tape_set_layer(t, "scaled");
    x = gs_mul(t, x, gs_cast(t, gs_input(t, GS_F32, 1, &n, c), w->copy_dtype));
    gs_tape_set_layer(t, "loss");
    gs_value *loss = gs_mse(t, x, gs_input(t, GS_F32, 1, &n, target));
    CHECK(gs_tape_backward(t, loss, 64) == GS_OK);
}

static float as_stored(float x, gs_dtype type)
{
    return type == GS_F32   ? x
           : type == GS_F16 ? gs_f16_to_f32(gs_f32_to_f16(x))
                            : gs_bf16_to_f32(gs_f32_to_bf16(x));
}

static void check_exponents(gs_mode mode, gs_dtype half)
{
    float data[N], grad[N] = {0}, c[N], target[N];
    gs_exponents bent, scaled;
    const gs_dtype type = mode == GS_O0 ? GS_F32 : half;
    gs_weight w = {"w", 1, N, data, GS_F32, NULL, type, grad, GS_F32, 0};
    memset(&bent, 0, sizeof bent);
    memset(&scaled, 0, sizeof scaled);
    for (int i = 0; i < N; i++) {
        data[i] = 1 + (float)(i % 8) / 8;
        c[i] = ldexpf(1, -i / 4); /* 2^0 to 2^-15: d(y) times it underflows in f16 at the end */
        const float y = data[i] * c[i], d = as_stored(2 * ldexpf(1, -i / 4 - 3), type);
        target[i] = y - ldexpf(1, -i / 4 - 3);
        const double at[] = {(double)d, (double)as_stored(d * c[i], type)};
        gs_exponents_add_f64(&scaled, &at[0], 1, NULL);
        gs_exponents_add_f64(&bent, &at[1], 1, NULL); /* of relu's result */
        gs_exponents_add_f64(&bent, &at[1], 1, NULL); /* of the cast before it */
    }
    if (type == GS_F32) { /* no cast was made */
        for (int i = 0; i < GS_BINADES; i++)
            bent.all[i] /= 2, bent.power[i] /= 2, bent.top[i] /= 2;
        bent.zero /= 2;
    }
    CHECK((bent.zero > 0) == (type == GS_F16));

    fixture f;
    size_t n;
    fixture_new(&f, (gs_tape_config){.size = sizeof(gs_tape_config), .mode = mode, .half = half});
    run_layers(f.tape, &w, c, target);
    CHECK(gs_tape_layers(f.tape, &n) == NULL && n == 0);
    gs_tape_set_exponents(f.tape, 1);
    CHECK(gs_tape_layers(f.tape, &n) == NULL); /* not before the next step */
    run_layers(f.tape, &w, c, target);
    const gs_layer *layers = gs_tape_layers(f.tape, &n);
    CHECK(layers && n == 3);
    if (n == 3) {
        CHECK(strcmp(layers[0].name, "bent") == 0 && strcmp(layers[1].name, "scaled") == 0);
        CHECK(memcmp(layers[0].exponents, &bent, sizeof bent) == 0);
        CHECK(memcmp(layers[1].exponents, &scaled, sizeof scaled) == 0);
        const gs_exponents none = {0};
        CHECK(memcmp(layers[2].exponents, &none, sizeof none) == 0); /* not of the seed */
    }
    /* Now and then costs no allocation once the arena has seen both. */
    gs_tape_set_exponents(f.tape, 0);
    run_layers(f.tape, &w, c, target);
    CHECK(gs_tape_layers(f.tape, &n) == NULL && n == 0);
    const size_t calls = f.books.calls;
    for (int i = 0; i < 4; i++) {
        gs_tape_set_exponents(f.tape, i % 2);
        run_layers(f.tape, &w, c, target);
    }
    CHECK_MSG(f.books.calls == calls, "%zu allocations", f.books.calls - calls);
    fixture_free(&f);
}

static void test_exponents(void)
{
    check_exponents(GS_O0, GS_F16);
    check_exponents(GS_O2, GS_F16);
    check_exponents(GS_O2, GS_BF16);
}

/* ---- another config ---- */

static void test_configure(void)
{
    fixture f;
    float data[N] = {0}, grad[N] = {0}, c[N] = {0};
    const gs_weight w = {"w", 1, N, data, GS_F32, NULL, GS_F16, grad, GS_F32, 0};
    gs_tape_config config = {.size = sizeof config, .mode = GS_O2, .half = GS_F16};
    size_t n;
    fixture_new(&f, config);
    config.telemetry = 1;
    CHECK(gs_tape_set_config(f.tape, &config) == GS_OK);
    run_layers(f.tape, &w, c, c);
    CHECK(gs_tape_layers(f.tape, &n) && n == 3);
    config.telemetry = 0;
    CHECK(gs_tape_set_config(f.tape, &config) == GS_OK);
    CHECK(gs_tape_layers(f.tape, &n) && n == 3); /* not before the next step */
    run_layers(f.tape, &w, c, c);
    CHECK(!gs_tape_layers(f.tape, &n) && n == 0);
    config.half = GS_BF16;
    CHECK(gs_tape_set_config(f.tape, &config) == GS_ESTATE);
    config = (gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O1, .half = GS_F16};
    CHECK(gs_tape_set_config(f.tape, &config) == GS_ESTATE);
    CHECK(gs_tape_set_config(f.tape, NULL) == GS_ENULL);
    fixture_free(&f);
}

/* ---- seconds ---- */

static gs_value *bend_twice(const void *args, gs_tape *t, gs_value *x)
{
    (void)args;
    return gs_gelu(t, gs_relu(t, x));
}

/* Which operations took time forward and backward, as sets of bits. */
static void timed(const gs_tape *t, unsigned *forward, unsigned *backward, double *sum)
{
    const gs_op_seconds *s = gs_tape_op_seconds(t);
    *forward = *backward = 0;
    *sum = 0;
    for (int i = 0; i < GS_OP_COUNT; i++) {
        CHECK(s[i].forward >= 0 && s[i].backward >= 0);
        *forward |= (unsigned)(s[i].forward > 0) << i;
        *backward |= (unsigned)(s[i].backward > 0) << i;
        *sum += s[i].forward + s[i].backward;
    }
}

#define BIT(op) (1u << GS_OP_##op)

static void check_seconds(int recompute)
{
    const size_t n = 4096;
    static float data[4096], copy[4096], grad[4096], target[4096];
    const gs_weight w = {"w", 1, n, data, GS_F32, copy, GS_F32, grad, GS_F32, 0};
    unsigned forward, backward;
    double sum;
    fixture f;
    fixture_new(&f, (gs_tape_config){.size = sizeof(gs_tape_config), .recompute = recompute});
    const double start = gs_clock();
    gs_tape_begin(f.tape, 1, 0);
    timed(f.tape, &forward, &backward, &sum);
    CHECK(forward == 0 && backward == 0);
    gs_value *x = gs_recompute(f.tape, gs_param(f.tape, &w), bend_twice, NULL, 0);
    gs_value *y = gs_input(f.tape, GS_F32, 1, &n, target);
    timed(f.tape, &forward, &backward, &sum);
    const unsigned bends = BIT(relu) | BIT(gelu);
    CHECK((forward & ~BIT(recompute)) == bends && backward == 0);
    gs_value *loss = gs_mse(f.tape, x, y);
    CHECK(gs_tape_backward(f.tape, loss, 1) == GS_OK);
    const double all = gs_clock() - start;
    timed(f.tape, &forward, &backward, &sum);
    CHECK((forward & ~BIT(recompute)) == (bends | BIT(mse)));
    CHECK((backward & ~BIT(recompute)) == (bends | BIT(mse)));
    CHECK_MSG(sum <= all, "%g of %g seconds", sum, all);
    gs_tape_begin(f.tape, 1, 0);
    timed(f.tape, &forward, &backward, &sum);
    CHECK(forward == 0 && backward == 0);
    fixture_free(&f);
}

static void test_seconds(void)
{
    check_seconds(0);
    check_seconds(1);
}

/* ---- a vocabulary ---- */

/* The logits of 50,304 words stay in half, and their gradient takes their place: an f32 copy of
 * them would be twice what the whole step takes. */
static void test_vocabulary(void)
{
    enum { WORDS = 50304, ROWS = 16, COLS = 2 };
    static float data[WORDS * COLS], grad[WORDS * COLS], x[ROWS * COLS];
    static uint16_t copy[WORDS * COLS];
    int32_t targets[ROWS];
    const gs_weight w = {"head", WORDS, COLS, data, GS_F32, copy, GS_F16, grad, GS_F32, 0};
    for (size_t i = 0; i < WORDS * COLS; i++) {
        copy[i] = gs_f32_to_f16((float)gs_random_u32(1, i) * 0x1p-31f - 1);
        data[i] = gs_f16_to_f32(copy[i]);
    }
    for (size_t i = 0; i < ROWS * COLS; i++)
        x[i] = as_stored((float)gs_random_u32(2, i) * 0x1p-30f, GS_F16);
    double want = 0; /* of logits as they are stored */
    for (size_t r = 0; r < ROWS; r++) {
        double sum = 0;
        targets[r] = (int32_t)(gs_random_u32(3, r) % WORDS);
        for (size_t k = 0; k < WORDS; k++) {
            const float *a = &x[r * COLS], *b = &data[k * COLS];
            const double z = (double)as_stored(a[0] * b[0] + a[1] * b[1], GS_F16);
            sum += exp(z);
            want -= k == (size_t)targets[r] ? z / ROWS : 0;
        }
        want += log(sum) / ROWS;
    }
    fixture f;
    fixture_new(&f,
                (gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16});
    gs_tape_begin(f.tape, 1, 0);
    gs_value *in = gs_input(f.tape, GS_F32, 2, (const size_t[]){ROWS, COLS}, x);
    gs_value *loss =
        gs_cross_entropy(f.tape, gs_linear(f.tape, in, gs_param(f.tape, &w), NULL), targets);
    CHECK(gs_tape_backward(f.tape, loss, 1024) == GS_OK);
    const double got = (double)*(const float *)loss->data;
    /* fma rounds a product less: now and then a logit is the next half, of 2^-11 its size */
    CHECK_MSG(fabs(got - want) <= 0x1p-11, "%.9g, not %.9g", got, want);
    const size_t logits = 2 * (size_t)ROWS * WORDS, dw = sizeof copy;
    const gs_memory memory = gs_tape_memory(f.tape);
    CHECK_MSG(memory.peak < logits + dw + (1 << 16), "%zu bytes, and the logits are %zu",
              memory.peak, logits);
    double sum = 0; /* of the rows' gradients, softmax less one: each has sum 0 */
    for (size_t i = 0; i < WORDS * COLS; i++)
        sum += (double)grad[i] / 1024;
    CHECK_MSG(fabs(sum) <= 0x1p-7, "%g", sum);
    fixture_free(&f);
}

TESTS({"exponents", test_exponents}, {"configure", test_configure}, {"seconds", test_seconds},
      {"vocabulary", test_vocabulary})
