/* Where gradients go: values with several users, weights in every type, what is rounded on the way
 * and what is counted. */
#include "memory.h"
#include "test.h"

#include "gradscale/engine.h"

#include <math.h>

typedef struct fixture {
    books books;
    gs_context *ctx;
    gs_tape *tape;
} fixture;

static void fixture_new(fixture *f, gs_tape_config config, unsigned without_cpu)
{
    *f = (fixture){0};
    const gs_config c = {
        .size = sizeof c, .alloc = books_hook(&f->books), .threads = 2, .without_cpu = without_cpu};
    CHECK(gs_context_create(&f->ctx, &c, NULL) == GS_OK);
    CHECK(gs_tape_create(&f->tape, f->ctx, &config) == GS_OK);
}

static void fixture_free(fixture *f)
{
    gs_tape_free(f->tape);
    gs_context_free(f->ctx);
    CHECK(f->books.blocks == 0 && !f->books.wrong);
}

static float noise(uint64_t stream, size_t i)
{
    return (float)gs_random_u32(stream, i) * 0x1p-31f - 1;
}

static uint16_t to_half(float x, gs_dtype type)
{
    return type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
}

static float as_stored(float x, gs_dtype type)
{
    return type == GS_F32   ? x
           : type == GS_F16 ? gs_f16_to_f32(gs_f32_to_f16(x))
                            : gs_bf16_to_f32(gs_f32_to_bf16(x));
}

static float at(const void *data, gs_dtype type, size_t i)
{
    return type == GS_F32   ? ((const float *)data)[i]
           : type == GS_F16 ? gs_f16_to_f32(((const uint16_t *)data)[i])
                            : gs_bf16_to_f32(((const uint16_t *)data)[i]);
}

/* ---- logits whose place may be taken ---- */

enum { ROWS = 3, CLASSES = 4, LOGITS = ROWS * CLASSES };
static const size_t logits_shape[] = {ROWS, CLASSES};
static const int32_t some_targets[] = {0, 1, 2}, other_targets[] = {3, 3, -1};

typedef struct logits_rig {
    float data[LOGITS], grad[LOGITS], ones[LOGITS];
    gs_weight w;
} logits_rig;

static void logits_rig_init(logits_rig *r)
{
    *r = (logits_rig){.w = {"w", ROWS, CLASSES, r->data, GS_F32, NULL, GS_F32, r->grad, GS_F32, 0}};
    for (size_t i = 0; i < LOGITS; i++) {
        r->data[i] = 2 * noise(1, i);
        r->ones[i] = 1;
    }
}

/* Made by the step, so that cross_entropy may write there. */
static gs_value *make_logits(gs_tape *t, logits_rig *r)
{
    return gs_mul(t, gs_param(t, &r->w), gs_input(t, GS_F32, 2, logits_shape, r->ones));
}

typedef gs_value *other_loss(gs_tape *t, gs_value *x, const logits_rig *r);

static gs_value *other_targets_of(gs_tape *t, gs_value *x, const logits_rig *r)
{
    (void)r;
    return gs_cross_entropy(t, x, other_targets);
}

static gs_value *reshaped(gs_tape *t, gs_value *x, const logits_rig *r)
{
    return other_targets_of(t, gs_reshape(t, x, 3, (const size_t[]){1, ROWS, CLASSES}), r);
}

static gs_value *as_filter(gs_tape *t, gs_value *x, const logits_rig *r)
{
    gs_value *in = gs_input(t, GS_F32, 2, logits_shape, r->ones);
    gs_value *y = gs_linear(t, in, x, NULL);
    return gs_mse(t, y, gs_mul(t, y, y));
}

static gs_value *as_gamma(gs_tape *t, gs_value *x, const logits_rig *r)
{
    const size_t n = LOGITS;
    gs_value *row = gs_reshape(t, x, 1, &n), *in = gs_input(t, GS_F32, 1, &n, r->data);
    return gs_mse(t, gs_layernorm(t, in, row, row), gs_input(t, GS_F32, 1, &n, r->ones));
}

/* How two losses are run back: their sum, or one after the other. */
typedef enum run { SUMMED, FIRST_FIRST, SECOND_FIRST, RUNS } run;

static void run_back(gs_tape *t, gs_value *a, gs_value *b, run how)
{
    if (how == SUMMED) {
        CHECK(gs_tape_backward(t, gs_add(t, a, b), 1) == GS_OK);
        return;
    }
    CHECK(gs_tape_backward(t, how == FIRST_FIRST ? a : b, 1) == GS_OK);
    CHECK(gs_tape_backward(t, how == FIRST_FIRST ? b : a, 1) == GS_OK);
}

/* Logits with a second user, made before or after, have the gradient of logits computed twice. */
static void test_logits_shared(void)
{
    static other_loss *const others[] = {other_targets_of, reshaped, as_filter, as_gamma};
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        for (int n = 0; n < 2 * RUNS; n++) {
            const int after = n % 2;
            float want[LOGITS];
            for (int shared = 0; shared < 2; shared++) {
                fixture f;
                logits_rig r;
                logits_rig_init(&r);
                fixture_new(&f, (gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O0}, 0);
                gs_tape *t = f.tape;
                gs_tape_begin(t, 1, 0);
                gs_value *x = make_logits(t, &r), *y = shared ? x : make_logits(t, &r);
                gs_value *first = after ? NULL : others[k](t, y, &r);
                gs_value *loss = gs_cross_entropy(t, x, some_targets);
                run_back(t, loss, after ? others[k](t, y, &r) : first, (run)(n / 2));
                for (size_t i = 0; i < LOGITS; i++)
                    CHECK_MSG(!shared || fabsf(r.grad[i] - want[i]) <= 0x1p-20f,
                              "user %zu, element %zu: %g, not %g", k, i, (double)r.grad[i],
                              (double)want[i]);
                memcpy(want, r.grad, sizeof want);
                fixture_free(&f);
            }
        }
}

/* The second backward pass of one loss would read what the first left: it is refused. */
static void test_backward_twice(void)
{
    fixture f;
    logits_rig r;
    logits_rig_init(&r);
    fixture_new(&f, (gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O0}, 0);
    gs_tape_begin(f.tape, 1, 0);
    gs_value *a = gs_cross_entropy(f.tape, make_logits(f.tape, &r), some_targets);
    gs_value *b = gs_cross_entropy(f.tape, make_logits(f.tape, &r), some_targets);
    float once[LOGITS];
    CHECK(gs_tape_backward(f.tape, a, 1) == GS_OK);
    memcpy(once, r.grad, sizeof once);
    CHECK(gs_tape_backward(f.tape, b, 1) == GS_OK); /* another loss adds */
    for (size_t i = 0; i < LOGITS; i++)
        CHECK(r.grad[i] == 2 * once[i]);
    CHECK(gs_tape_backward(f.tape, a, 1) == GS_ESTATE);
    const char *said = gs_context_error(f.ctx)->text;
    CHECK_MSG(strstr(said, "cross_entropy"), "%s", said);
    for (size_t i = 0; i < LOGITS; i++)
        CHECK(r.grad[i] == 2 * once[i]);
    fixture_free(&f);
}

/* ---- weights of one row, values that are cast ---- */

/* A weight of one row is a vector, and a product's matrix all the same: as if it were the first of
 * two rows of which the second is not looked at. */
static void test_one_row(void)
{
    enum { ITEMS = 6, K = 18 };
    float x[ITEMS * K], w[2 * K], grad[2][2 * K], bias[2] = {3, 4}, dbias[2][2];
    for (size_t i = 0; i < ITEMS * K; i++)
        x[i] = noise(1, i);
    for (size_t i = 0; i < 2 * K; i++)
        w[i] = noise(2, i);
    for (int conv = 0; conv < 2; conv++) {
        float y[2][ITEMS];
        for (size_t rows = 1; rows <= 2; rows++) {
            fixture f;
            fixture_new(&f, (gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O0}, 0);
            gs_tape *t = f.tape;
            float *const dw = grad[rows - 1], *const db = dbias[rows - 1], zeros[ITEMS] = {0};
            memset(dw, 0, sizeof grad[0]);
            memset(db, 0, sizeof dbias[0]);
            const gs_weight weight = {"w", rows, K, w, GS_F32, NULL, GS_F32, dw, GS_F32, 0};
            const gs_weight vector = {"b", 1, rows, bias, GS_F32, NULL, GS_F32, db, GS_F32, 0};
            gs_tape_begin(t, 1, 0);
            gs_value *wv = gs_param(t, &weight), *bv = gs_param(t, &vector);
            gs_value *in = conv ? gs_input(t, GS_F32, 4, (const size_t[]){ITEMS, 3, 3, 2}, x)
                                : gs_input(t, GS_F32, 2, (const size_t[]){ITEMS, K}, x);
            gs_value *out = conv ? gs_conv2d(t, in, wv, bv, 3, 1, 0) : gs_linear(t, in, wv, bv);
            CHECK(out->count == ITEMS * rows);
            const float pick[2] = {1, 0};
            out = gs_reshape(t, out, 2, (const size_t[]){ITEMS, rows});
            out = gs_linear(t, out, gs_input(t, GS_F32, 1, &rows, pick), NULL);
            gs_value *loss =
                gs_mse(t, out, gs_input(t, GS_F32, 2, (const size_t[]){ITEMS, 1}, zeros));
            CHECK(gs_tape_backward(t, loss, 1) == GS_OK);
            memcpy(y[rows - 1], out->data, sizeof y[0]);
            fixture_free(&f);
        }
        CHECK(memcmp(y[0], y[1], sizeof y[0]) == 0);
        CHECK(memcmp(grad[0], grad[1], K * sizeof *w) == 0 && dbias[0][0] == dbias[1][0]);
        CHECK(grad[0][0] != 0 && dbias[0][0] != 0);
    }
}

/* What products read in half is cast once per step, however many read it. */
static void test_cast_once(void)
{
    enum { N = 64 };
    static float x[N * N];
    const gs_weight w = {"w", N, N, x, GS_F32, NULL, GS_F32, NULL, GS_F32, 0};
    fixture f;
    fixture_new(&f, (gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O1, .half = GS_F16},
                0);
    gs_tape_begin(f.tape, 1, 0);
    gs_value *in = gs_input(f.tape, GS_F32, 2, (const size_t[]){N, N}, x);
    gs_value *wv = gs_param(f.tape, &w);
    for (size_t i = 0, want = 4 * N * N; i < 3; i++, want = 0) { /* two casts, then none */
        const size_t before = gs_tape_memory(f.tape).activations;
        CHECK(gs_linear(f.tape, in, wv, NULL)->dtype == GS_F16);
        const size_t more = gs_tape_memory(f.tape).activations - before - 2 * N * N;
        CHECK_MSG(more == want, "product %zu: %zu bytes of casts", i, more);
    }
    fixture_free(&f);
}

/* ---- weights of every type ---- */

enum { WIDTH = 40, ITEMS = 6 };

typedef struct typed_weight {
    float f[WIDTH * WIDTH];
    uint16_t half[WIDTH * WIDTH];
    float grad[WIDTH * WIDTH]; /* or halves */
    gs_weight w;
} typed_weight;

static void typed_init(typed_weight *x, size_t rows, gs_dtype type, gs_dtype grad, uint64_t stream)
{
    const size_t n = rows * WIDTH;
    for (size_t i = 0; i < n; i++) {
        x->half[i] = to_half(0.5f * noise(stream, i), type == GS_BF16 ? GS_BF16 : GS_F16);
        x->f[i] = at(x->half, type == GS_BF16 ? GS_BF16 : GS_F16, i);
    }
    memset(x->grad, 0, sizeof x->grad);
    x->w = (gs_weight){.name = "w",
                       .rows = rows,
                       .cols = WIDTH,
                       .data = type == GS_F32 ? (void *)x->f : x->half,
                       .dtype = type,
                       .grad = x->grad,
                       .grad_dtype = grad};
}

/* Weights where operations take them: a table, a matrix, a norm's, a row that is added. */
static gs_value *use_weights(gs_tape *t, typed_weight *w)
{
    static const int32_t ids[ITEMS] = {3, 1, 3, 3, 0, 39};
    static float target[ITEMS * WIDTH];
    for (size_t i = 0; i < ITEMS * WIDTH; i++)
        target[i] = noise(9, i);
    gs_value *x = gs_embedding(t, gs_param(t, &w[0].w), ids, ITEMS);
    x = gs_linear(t, x, gs_param(t, &w[1].w), gs_param(t, &w[2].w));
    x = gs_layernorm(t, x, gs_param(t, &w[3].w), gs_param(t, &w[4].w));
    x = gs_add(t, x, gs_param(t, &w[5].w));
    return gs_mse(t, x, gs_input(t, GS_F32, 2, (const size_t[]){ITEMS, WIDTH}, target));
}

/* Any mode takes weights and gradients of any type, at any instruction set, and twice adds. */
static void check_types(gs_mode mode, gs_dtype half, gs_dtype type, gs_dtype grad)
{
    static typed_weight w[6], wide[6];
    fixture f;
    for (int reference = 0; reference < 2; reference++) {
        typed_weight *const x = reference ? wide : w;
        for (size_t k = 0; k < 6; k++)
            typed_init(&x[k], k < 2 ? WIDTH : 1, reference ? GS_F32 : type,
                       reference ? GS_F32 : grad, k);
        if (reference) /* of the same values */
            for (size_t k = 0; k < 6; k++)
                memcpy(wide[k].f, w[k].f, sizeof w[k].f);
        fixture_new(&f,
                    (gs_tape_config){.size = sizeof(gs_tape_config),
                                     .mode = reference ? GS_O0 : mode,
                                     .half = half},
                    reference ? 0 : ~0u);
        for (int pass = 0; pass < 2; pass++) {
            gs_tape_begin(f.tape, 1, 0);
            const gs_status status = gs_tape_backward(f.tape, use_weights(f.tape, x), 64);
            CHECK_MSG(status == GS_OK, "O%d, weights %s, gradients %s: %s", (int)mode,
                      gs_dtype_format(type)->name, gs_dtype_format(grad)->name,
                      gs_context_error(f.ctx)->text);
        }
        fixture_free(&f);
    }
    for (size_t k = 0; k < 6; k++) {
        double most = 0, worst = 0;
        for (size_t i = 0; i < w[k].w.rows * WIDTH; i++) {
            most = fmax(most, fabs((double)wide[k].grad[i]));
            worst = fmax(worst, fabs((double)at(w[k].grad, grad, i) - (double)wide[k].grad[i]));
        }
        CHECK_MSG(worst <= 0x1p-4 * most,
                  "O%d, weights %s, gradients %s, weight %zu: off by %g of"
                  " %g",
                  (int)mode, gs_dtype_format(type)->name, gs_dtype_format(grad)->name, k, worst,
                  most);
    }
}

static void test_types(void)
{
    for (int mode = GS_O0; mode <= GS_O3; mode++)
        for (int type = GS_F32; type <= GS_BF16; type++)
            for (int grad = GS_F32; grad <= GS_BF16; grad++)
                check_types((gs_mode)mode, mode == GS_O0 ? GS_F32 : GS_F16, (gs_dtype)type,
                            (gs_dtype)grad);
}

/* ---- what is rounded to half is counted ---- */

/* y = f32 + half: the half's gradient is rounded from f32, as in a residual stream in O1. */
static void test_counted(void)
{
    enum { N = 8 };
    /* Of d(y) = 2 seed (y - t) / N: zero, underflow, subnormal, fine, overflow. */
    static const float want[N] = {0, 0x1p-26f, 0x1p-20f, 0x1p-16f, 1, 2, 1024, 0x1p+16f};
    const size_t n = N;
    float target[N], data[N] = {0}, grad[N] = {0};
    for (size_t i = 0; i < N; i++)
        target[i] = -want[i];
    const gs_weight w = {"w", 1, N, data, GS_F32, NULL, GS_F32, grad, GS_F32, 0};
    const float zeros[N] = {0};
    for (int telemetry = 0; telemetry < 2; telemetry++) {
        fixture f;
        fixture_new(
            &f, (gs_tape_config){.size = sizeof(gs_tape_config), GS_O1, GS_F16, 0, telemetry, 0},
            0);
        gs_tape *t = f.tape;
        gs_tape_begin(t, 1, 0);
        gs_tape_set_layer(t, "branch");
        gs_value *x = gs_cast(t, gs_param(t, &w), GS_F16);
        gs_value *y = gs_add(t, gs_input(t, GS_F32, 1, &n, zeros), x);
        CHECK(gs_tape_backward(t, gs_mse(t, y, gs_input(t, GS_F32, 1, &n, target)), N / 2) ==
              GS_OK);
        const gs_stats *s = gs_tape_stats(t);
        CHECK_MSG(s->inf == 1 && s->elements == N, "%d inf of %d", (int)s->inf, (int)s->elements);
        CHECK_MSG(!telemetry || s->amax == 1024, "amax %g", (double)s->amax);
        CHECK_MSG(s->zero == (telemetry ? 1 : 0) && s->underflow == (telemetry ? 1 : 0) &&
                      s->subnormal == (telemetry ? 2 : 0),
                  "%d zero, %d underflow, %d subnormal", (int)s->zero, (int)s->underflow,
                  (int)s->subnormal);
        fixture_free(&f);
    }
}

/* Four queries of equal weights over their past: d(v) of the first key is 60000 (1 + 1/2 + 1/3 +
 * 1/4), too large in all of its columns, and that of the second, 65000, is not. */
static void test_attention_counted(void)
{
    enum { TIME = 4, D = 4, N = TIME * D };
    static const size_t shape[] = {1, TIME, 3 * D}, result[] = {1, TIME, D};
    static float data[3 * N], grad[3 * N], target[N];
    for (size_t i = 0; i < N; i++)
        target[i] = -60000;
    const gs_weight w = {"qkv", 1, 3 * N, data, GS_F32, NULL, GS_F32, grad, GS_F32, 0};
    fixture f;
    fixture_new(&f, (gs_tape_config){.size = sizeof(gs_tape_config), GS_O2, GS_F16, 0, 1, 0}, 0);
    gs_tape *t = f.tape;
    gs_tape_begin(t, 1, 0);
    gs_value *y = gs_attention(t, gs_reshape(t, gs_param(t, &w), 3, shape), 1);
    gs_value *loss = gs_mse(t, y, gs_input(t, GS_F32, 3, result, target));
    CHECK(gs_tape_backward(t, loss, N / 2) == GS_OK);
    const gs_stats *s = gs_tape_stats(t);
    CHECK_MSG(s->elements == N + 3 * N && s->inf == D && s->nan == 0 && s->zero == 2 * N,
              "of %d: %d inf, %d nan, %d zero", (int)s->elements, (int)s->inf, (int)s->nan,
              (int)s->zero);
    CHECK_MSG(s->amax > 64900 && s->amax <= 65504, "amax %g", (double)s->amax);
    fixture_free(&f);
}

/* ---- embeddings ---- */

/* A row's gradient is summed in f32, then rounded to the type that the table was read in. */
static void test_embedding_rounded(void)
{
    enum { WORDS = 5, COLS = 70, IDS = 9 };
    static const int32_t ids[IDS] = {4, 1, 4, 4, 0, 4, 1, 4, 3};
    static float data[WORDS * COLS], grad[WORDS * COLS], target[IDS * COLS];
    static uint16_t copy[WORDS * COLS];
    for (int wide = 0; wide < 2; wide++)
        for (int type = GS_F16; type <= GS_BF16; type++) {
            const gs_dtype half = (gs_dtype)type;
            const gs_weight w = {"table", WORDS, COLS, data, GS_F32, copy, half, grad, GS_F32, 0};
            float sums[WORDS * COLS] = {0};
            for (size_t i = 0; i < IDS * COLS; i++) {
                target[i] = as_stored(noise(3, i), half); /* d(y), seeded with half the count */
                sums[(size_t)ids[i / COLS] * COLS + i % COLS] -= target[i];
            }
            memset(copy, 0, sizeof copy);
            for (size_t i = 0; i < WORDS * COLS; i++)
                grad[i] = 1; /* what is there is added to */
            fixture f;
            fixture_new(
                &f, (gs_tape_config){.size = sizeof(gs_tape_config), GS_O2, half, wide, 1, 0}, 0);
            gs_tape_begin(f.tape, 1, 0);
            gs_value *y = gs_embedding(f.tape, gs_param(f.tape, &w), ids, IDS);
            gs_value *aim = gs_input(f.tape, GS_F32, 2, (const size_t[]){IDS, COLS}, target);
            CHECK(gs_tape_backward(f.tape, gs_mse(f.tape, y, aim), IDS * COLS / 2.0f) == GS_OK);
            for (size_t i = 0; i < WORDS * COLS; i++) {
                const float want = 1 + (wide ? sums[i] : as_stored(sums[i], half));
                CHECK_MSG(grad[i] == want, "%s, element %zu: %g, not %g",
                          gs_dtype_format(half)->name, i, (double)grad[i], (double)want);
            }
            fixture_free(&f);
        }
}

TESTS({"logits_shared", test_logits_shared}, {"backward_twice", test_backward_twice},
      {"one_row", test_one_row}, {"cast_once", test_cast_once}, {"types", test_types},
      {"counted", test_counted}, {"attention_counted", test_attention_counted},
      {"embedding_rounded", test_embedding_rounded})
