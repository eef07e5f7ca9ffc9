/* Operations on more than one chunk, against f64, and what they count. */
#include "train_rig.h"

#include <math.h>

enum { CHUNK = 1 << 14, ROWS = 5000, COLS = 23, N = ROWS * COLS }; /* 7 chunks and a bit */

static float noise(uint64_t stream, size_t i)
{
    return (float)gs_random_u32(stream, i) * 0x1p-31f - 1;
}

static gs_weight weight_of(size_t rows, size_t cols, float *data, float *grad)
{
    return (gs_weight){"w", rows, cols, data, GS_F32, NULL, GS_F32, grad, GS_F32, 0};
}

typedef struct fixture {
    books books; /* fills what is new: nobody reads zeros by luck */
    gs_context *ctx;
    gs_tape *tape;
} fixture;

static gs_tape *tape_of(fixture *f, gs_tape_config config, unsigned threads)
{
    *f = (fixture){0};
    const gs_config c = {.size = sizeof c, .alloc = books_hook(&f->books), .threads = threads};
    CHECK(gs_context_create(&f->ctx, &c, NULL) == GS_OK);
    CHECK(gs_tape_create(&f->tape, f->ctx, &config) == GS_OK);
    return f->tape;
}

/* d(y) = y - aim; the loss */
static float backward(gs_tape *t, gs_value *y, const float *aim)
{
    gs_value *loss = gs_mse(t, y, gs_input(t, GS_F32, y->rank, y->shape, aim));
    CHECK(!loss->needs_grad || gs_tape_backward(t, loss, (float)y->count / 2) == GS_OK);
    CHECK(gs_tape_status(t) == GS_OK);
    return *(const float *)loss->data;
}

static void end(fixture *f)
{
    gs_tape_free(f->tape);
    gs_context_free(f->ctx);
    CHECK(f->books.blocks == 0 && !f->books.wrong);
}

/* ---- norms, a row that is added, mse ---- */

typedef enum kind { LAYERNORM, BATCHNORM, EVALUATED, ROW, KINDS } kind;

/* What comes of it, one part after the other, and last the loss. */
enum { Y, DX = N, DGAMMA = 2 * N, DBETA = DGAMMA + COLS, MEAN = DBETA + COLS };
enum { VAR = MEAN + COLS, LOSS = VAR + COLS, ALL };

static float x[N], aims[N], factor[COLS], shift[COLS], old_mean[COLS], old_var[COLS];
static const float zeros[N];

static void run(float *r, kind k, unsigned threads)
{
    fixture f;
    const gs_weight in = weight_of(ROWS, COLS, x, r + DX);
    const gs_weight gamma = weight_of(1, COLS, factor, r + DGAMMA);
    const gs_weight beta = weight_of(1, COLS, shift, r + DBETA);
    memset(r, 0, ALL * sizeof *r);
    memcpy(r + MEAN, old_mean, sizeof old_mean);
    memcpy(r + VAR, old_var, sizeof old_var);
    gs_tape *t =
        tape_of(&f, (gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O0}, threads);
    gs_tape_begin(t, k != EVALUATED, 0);
    gs_value *v = gs_param(t, &in), *g = gs_param(t, &gamma), *b = gs_param(t, &beta);
    gs_value *y = k == LAYERNORM ? gs_layernorm(t, v, g, b)
                  : k == ROW     ? gs_add(t, v, b)
                                 : gs_batchnorm(t, v, g, b, (gs_running){r + MEAN, r + VAR, 0.5f});
    memcpy(r + Y, y->data, N * sizeof *r);
    r[LOSS] = backward(t, y, aims);
    end(&f);
}

/* Element i of group g, which is a row or a column. */
static size_t at(kind k, size_t g, size_t i)
{
    return k == LAYERNORM ? g * COLS + i : i * COLS + g;
}

/* The same from the definitions. */
static void want(double *r, kind k)
{
    const size_t groups = k == LAYERNORM ? ROWS : COLS, n = N / groups;
    memset(r, 0, ALL * sizeof *r);
    for (size_t g = 0; g < groups; g++) {
        double mean = 0, var = 0, sum = 0, product = 0;
        for (size_t i = 0; i < n; i++)
            mean += (double)x[at(k, g, i)] / (double)n;
        for (size_t i = 0; i < n; i++)
            var += pow((double)x[at(k, g, i)] - mean, 2) / (double)n;
        if (k == EVALUATED)
            mean = (double)old_mean[g], var = (double)old_var[g];
        const double moved = k == BATCHNORM ? 0.5 : 0, unbiased = var * ROWS / (ROWS - 1);
        r[MEAN + g % COLS] = (1 - moved) * (double)old_mean[g % COLS] + moved * mean;
        r[VAR + g % COLS] = (1 - moved) * (double)old_var[g % COLS] + moved * unbiased;
        if (k == ROW)
            mean = 0, var = 1 - 1e-5;
        const double rstd = 1 / sqrt(var + 1e-5);
        for (size_t i = 0; i < n; i++) {
            const size_t place = at(k, g, i), c = place % COLS;
            const double h = ((double)x[place] - mean) * rstd, w = k == ROW ? 1 : (double)factor[c];
            const double y = h * w + (double)shift[c], d = y - (double)aims[place];
            r[Y + place] = y;
            r[LOSS] += d * d / N;
            if (k == EVALUATED)
                continue;
            r[DX + place] = d * w;
            r[DGAMMA + c] += k == ROW ? 0 : d * h;
            r[DBETA + c] += d;
            sum += d * w / (double)n;
            product += d * w * h / (double)n;
        }
        for (size_t i = 0; k <= BATCHNORM && i < n; i++) {
            const size_t place = at(k, g, i);
            const double h = ((double)x[place] - mean) * rstd;
            r[DX + place] = rstd * (r[DX + place] - sum - h * product);
        }
    }
}

static void test_norms(void)
{
    static float got[ALL], other[ALL];
    static double is[ALL];
    static const size_t parts[] = {Y, DX, DGAMMA, DBETA, MEAN, VAR, LOSS, ALL};
    for (size_t i = 0; i < N; i++) {
        x[i] = noise(1, i) + (float)(i / COLS) / ROWS; /* no chunk has the mean of another */
        aims[i] = noise(2, i);
    }
    for (size_t c = 0; c < COLS; c++) {
        factor[c] = noise(3, c);
        shift[c] = noise(4, c);
        old_mean[c] = noise(5, c);
        old_var[c] = 1e-5f * (float)(c + 1); /* as small as eps */
    }
    for (kind k = LAYERNORM; k < KINDS; k++) {
        run(got, k, 1);
        run(other, k, 4);
        CHECK_MSG(memcmp(got, other, sizeof got) == 0, "operation %d: threads", (int)k);
        want(is, k);
        for (size_t p = 0; parts[p] < ALL; p++) {
            double most = 0;
            for (size_t i = parts[p]; i < parts[p + 1]; i++)
                most = fmax(most, fabs(is[i]));
            for (size_t i = parts[p]; i < parts[p + 1]; i++)
                CHECK_MSG(fabs((double)got[i] - is[i]) <= 0x1p-19 * most,
                          "operation %d, part %zu, element %zu: %.9g, not %.9g", (int)k, p,
                          i - parts[p], (double)got[i], is[i]);
        }
    }
}

/* ---- dropout ---- */

/* Two of the same ones and twos: first[N], second[N], and what backward makes of the first[N]. */
static void drop(float *r, uint64_t seed, unsigned threads)
{
    fixture f;
    const gs_weight w = weight_of(ROWS, COLS, x, r + 2 * N);
    memset(r, 0, 3 * N * sizeof *r);
    gs_tape *t =
        tape_of(&f, (gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O0}, threads);
    gs_tape_begin(t, 1, seed);
    gs_value *in = gs_param(t, &w), *y = gs_dropout(t, in, 0.25f);
    memcpy(r, y->data, N * sizeof *r);
    memcpy(r + N, gs_dropout(t, in, 0.25f)->data, N * sizeof *r);
    backward(t, y, zeros);
    end(&f);
}

/* Masks that know nothing of each other agree in p^2 + (1 - p)^2 of their elements. */
static void check_independent(const char *of, const float *a, const float *b, size_t n)
{
    size_t same = 0;
    for (size_t i = 0; i < n; i++)
        same += (a[i] == 0) == (b[i] == 0);
    const double share = (double)same / (double)n;
    CHECK_MSG(fabs(share - 0.625) < 0.03, "%s: %g of %zu agree", of, share, n);
}

static void test_dropout(void)
{
    static float r[3 * N], other[3 * N];
    size_t dropped = 0;
    for (size_t i = 0; i < N; i++)
        x[i] = (float)(1 + i % 2);
    drop(r, 3, 1);
    drop(other, 3, 4);
    CHECK(memcmp(r, other, sizeof r) == 0);
    drop(other, 4, 1);
    check_independent("another step", r, other, N);
    check_independent("another dropout", r, r + N, N);
    for (size_t a = 0; a + CHUNK <= N; a += CHUNK)
        for (size_t b = a + CHUNK; b + CHUNK <= N; b += CHUNK)
            check_independent("another chunk", r + a, r + b, CHUNK);
    for (size_t i = 0; i < N; i++) {
        const double by = r[i] == 0 ? 0 : 1 / 0.75, y = by * (double)x[i];
        dropped += r[i] == 0;
        CHECK_MSG(fabs((double)r[i] - y) <= 0x1p-22 * y, "%zu: %g", i, (double)r[i]);
        CHECK_MSG(fabs((double)r[2 * N + i] - by * y) <= 0x1p-20 * y, "%zu: dx %g", i,
                  (double)r[2 * N + i]);
    }
    CHECK_MSG(fabs((double)dropped / N - 0.25) < 0.01, "%zu of %d", dropped, N);
}

/* Each of equal micro-batches drops its own, and the same again in a step that is retried, but not
 * in the next one. Nothing is learnt, so that the losses differ by what is dropped alone. */
static void test_micro_batches(void)
{
    char rules[80] = "init=0x1p+30 on_overflow=retry:40 interval=none";
    how h = {.kind = GPT, .mode = GS_O2, .half = GS_F16, .threads = 1, .dropout = 0.1f};
    h.rules = rules;
    h.optim = "lr=0";
    const gs_batch batch = batch_of(GPT, 0), micro[] = {batch, batch};
    gs_train_row rows[3], next;
    for (size_t i = 0; i < 3; i++) { /* one of them; both; both, at the scale that was found */
        job j = job_new(&h);
        CHECK(gs_trainer_step(j.trainer, micro, i ? 2 : 1, &rows[i]) == GS_OK);
        CHECK_MSG((rows[i].reruns > 0) == (i < 2), "%zu: %u reruns", i, rows[i].reruns);
        if (i == 1)
            snprintf(rules, sizeof rules, "init=%a", rows[1].scale);
        CHECK(gs_trainer_step(j.trainer, micro, i ? 2 : 1, &next) == GS_OK);
        CHECK_MSG(fabs(rows[i].loss - next.loss) > 1e-6, "%.9g in two steps", next.loss);
        job_free(&j);
    }
    CHECK_MSG(fabs(rows[1].loss - rows[0].loss) > 1e-6, "%.9g twice", rows[0].loss);
    CHECK(rows[1].loss == rows[2].loss && rows[1].report.norm == rows[2].report.norm);
}

/* ---- what products and attention count ---- */

/* Of a product, dx = d(y) w of powers of two, so that it is known what becomes of each; w has a
 * second row, of zeros. Of attention with equal weights over the past d(v) of the first key alone,
 * 60000 (1 + 1/2 + ...), is too large, which is noticed where nothing is counted, too. */
static void test_counted(void)
{
    enum { M = 32, K = 50, TIME = 4, D = 4 };
    static float data[M * K], grad[M * K], by[2 * K], to[2 * M], steep[TIME * D];
    uint64_t inf = 0, subnormal = 0, underflow = 0;
    for (int i = 0; i < M * K; i++) {
        const int row = i / K % 21 - 10, col = i % K % 30 - 15;
        to[i / K * 2] = -ldexpf(1, row);
        to[i / K * 2 + 1] = 1;
        by[i % K] = ldexpf(1, col);
        inf += row + col >= 16;
        subnormal += row + col < -14 && row + col >= -24;
        underflow += row + col < -24;
    }
    for (size_t i = 0; i < TIME * D; i++)
        steep[i] = -60000;
    CHECK(inf > 0 && subnormal > 0 && underflow > 0);
    const gs_weight in = weight_of(M, K, data, grad), w = weight_of(2, K, by, NULL);
    const gs_weight qkv = weight_of(TIME, 3 * D, data, grad);
    for (int telemetry = 0; telemetry < 2; telemetry++) {
        fixture f;
        gs_tape *t = tape_of(
            &f, (gs_tape_config){.size = sizeof(gs_tape_config), GS_O2, GS_F16, 0, telemetry, 0},
            2);
        gs_tape_begin(t, 1, 0);
        const gs_stats *s = gs_tape_stats(t);
        backward(t, gs_linear(t, gs_param(t, &in), gs_param(t, &w), NULL), to);
        CHECK_MSG(s->inf == inf && s->elements == 2 * M + M * K && s->amax == 0x1p+15f,
                  "%d inf of %d, amax %g", (int)s->inf, (int)s->elements, (double)s->amax);
        CHECK_MSG(!telemetry ||
                      (s->zero == 0 && s->subnormal == subnormal && s->underflow == underflow),
                  "%d zero, %d subnormal, %d underflow", (int)s->zero, (int)s->subnormal,
                  (int)s->underflow);
        gs_tape_begin(t, 1, 0);
        gs_value *v = gs_reshape(t, gs_param(t, &qkv), 3, (const size_t[]){1, TIME, 3 * D});
        backward(t, gs_attention(t, v, 1), steep);
        CHECK_MSG(s->inf == (telemetry ? D : 1) && s->elements == 4 * TIME * D,
                  "attention, telemetry %d: %d inf of %d", telemetry, (int)s->inf,
                  (int)s->elements);
        end(&f);
    }
}

/* ---- fake quantisation ---- */

/* As traces/other/pytorch_quantization__fake_quant.csv has it; unsigned integers have no negative
 * ones. The gradient passes up to amax. */
static void test_fake_quant(void)
{
    static const struct {
        float amax;
        int bits, is_unsigned, narrow;
        float x, y;
    } cases[] = {{1, 8, 0, 1, -0x1.41e3bp+0f, -1},
                 {1, 8, 0, 1, -0x1.2c4572p-1f, -0x1.2a54aap-1f},
                 {1, 8, 0, 0, -0x1.49a658p+0f, -0x1.020408p+0f},
                 {1, 8, 0, 0, 0x1.66de98p-2f, 0x1.6ad5acp-2f},
                 {0x1.333334p-2f, 4, 0, 1, -0x1.dea1dcp-3f, -0x1.b6db7p-3f},
                 {2.5f, 8, 1, 1, 0x1.283b04p+0f, 0x1.282828p+0f},
                 {2.5f, 8, 1, 1, 0x1.45be7ap+2f, 2.5f},
                 {2.5f, 8, 1, 0, -1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fixture f;
        float data = cases[i].x, grad = 0;
        const gs_weight w = weight_of(1, 1, &data, &grad);
        gs_tape *t =
            tape_of(&f, (gs_tape_config){.size = sizeof(gs_tape_config), .mode = GS_O0}, 1);
        gs_tape_begin(t, 1, 0);
        gs_value *y = gs_fake_quant(t, gs_param(t, &w), cases[i].amax, cases[i].bits,
                                    cases[i].is_unsigned, cases[i].narrow);
        const float got = *(const float *)y->data;
        backward(t, y, zeros);
        CHECK_MSG(got == cases[i].y, "case %zu: %a", i, (double)got);
        CHECK_MSG(grad == (fabsf(data) <= cases[i].amax ? got : 0), "case %zu: d %a", i,
                  (double)grad);
        end(&f);
    }
}

/* ---- layers of a segment ---- */

enum { FEW = 64 };

static gs_value *two_layers(const void *args, gs_tape *t, gs_value *v)
{
    (void)args;
    v = gs_dropout(t, gs_relu(t, v), 0.5f); /* of the layer outside */
    gs_tape_set_layer(t, "inside");
    return gs_gelu(t, gs_reshape(t, v, 2, (const size_t[]){FEW / 4, 4}));
}

/* What a layer stores, and the gradients of its results, of which a reshaped value has none of its
 * own, are the same where it is run again; so is the dropout that follows. */
static void test_layers(void)
{
    static const char *const names[] = {"cast", "outside", "inside", "loss"};
    static const uint64_t stored[] = {0, 2, 1, 2}, results[] = {1, 2, 1, 1}; /* times FEW */
    static float data[FEW], grad[FEW];
    uint16_t after[2][FEW];
    for (size_t i = 0; i < FEW; i++)
        data[i] = 2 + noise(1, i);
    const gs_weight w = weight_of(1, FEW, data, grad);
    for (int again = 0; again < 2; again++) {
        fixture f;
        size_t n;
        gs_tape *t = tape_of(
            &f, (gs_tape_config){.size = sizeof(gs_tape_config), GS_O2, GS_F16, 0, 1, again}, 2);
        gs_tape_set_exponents(t, 1);
        gs_tape_begin(t, 1, 5);
        gs_tape_set_layer(t, names[0]);
        gs_value *v = gs_cast(t, gs_param(t, &w), GS_F16);
        gs_tape_set_layer(t, names[1]);
        gs_value *y = gs_recompute(t, v, two_layers, NULL, 0);
        gs_tape_set_layer(t, names[3]);
        backward(t, gs_dropout(t, y, 0.5f), zeros);
        const gs_layer *got = gs_tape_layers(t, &n);
        CHECK(n == 4);
        for (size_t i = 0; i < n && n == 4; i++) {
            uint64_t all = got[i].exponents->zero;
            for (int k = 0; k < GS_BINADES; k++)
                all += got[i].exponents->all[k];
            CHECK_MSG(strcmp(got[i].name, names[i]) == 0 &&
                          got[i].stats.elements == stored[i] * FEW && all == results[i] * FEW,
                      "%s, again %d: %d stored, %d of results", got[i].name, again,
                      (int)got[i].stats.elements, (int)all);
        }
        memcpy(after[again], gs_dropout(t, v, 0.5f)->data, sizeof after[again]);
        end(&f);
    }
    CHECK(memcmp(after[0], after[1], sizeof after[0]) == 0);
}

TESTS({"norms", test_norms}, {"dropout", test_dropout}, {"micro_batches", test_micro_batches},
      {"counted", test_counted}, {"fake_quant", test_fake_quant}, {"layers", test_layers})
