/* Quantised products: INT8 arithmetic and floats give the same bits, gradients pass straight
 * through but where x was clipped, and ranges move as their rule says. */
#include "levels.h"
#include "ranks.h"
#include "test.h"

#include "gradscale/checkpoint.h"
#include "gradscale/infer.h"
#include "kernel/context.h"

#include <math.h>
#include <stdlib.h>

static uint64_t drawn;
static float draw(void) { return (float)(int32_t)gs_random_u32(3, drawn++) * 0x1p-31f; }

static float *numbers(size_t n, float scale)
{
    float *x = malloc((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = scale * draw();
    return x;
}

/* One product of a tape: x [m, k], or images, times a weight of n rows. */
typedef struct product {
    size_t m, n, k;
    size_t images, side, kernel, stride, pad; /* images > 0: a convolution */
    float *x, *w, *b;
    gs_quantize quantize;
    gs_range_rule rule;
    float percentile;
    gs_mode mode;
    gs_dtype half;
    int int8, training;
    float range; /* before; then after */
} product;

typedef struct found {
    float *y, *dx, *dw;
    size_t count;
    gs_status status;
    char text[256];
} found;

static float element(const gs_value *v, size_t i)
{
    return gsi_float(gsi_element(v->data, v->dtype, i));
}

static found run(product *p, unsigned cpus, unsigned threads)
{
    gs_context *ctx = NULL;
    gs_tape *t = NULL;
    const gs_config machine = {.size = sizeof machine, .threads = threads, .without_cpu = ~cpus};
    const gs_tape_config config = {.size = sizeof config,
                                   .mode = p->mode,
                                   .half = p->half,
                                   .quantize = p->quantize,
                                   .range_rule = p->rule,
                                   .percentile = p->percentile,
                                   .int8 = p->int8};
    CHECK(gs_context_create(&ctx, &machine, NULL) == GS_OK);
    CHECK(gs_tape_create(&t, ctx, &config) == GS_OK);
    const size_t nx =
        p->images ? p->images * p->side * p->side * (p->k / p->kernel / p->kernel) : p->m * p->k;
    found f = {.dx = calloc(nx, 4), .dw = calloc(p->n * p->k, 4)};
    float *db = calloc(p->n, 4);
    const gs_weight w[] = {{.name = "fc.weight",
                            .rows = p->n,
                            .cols = p->k,
                            .dtype = GS_F32,
                            .data = p->w,
                            .grad_dtype = GS_F32,
                            .grad = f.dw},
                           {.name = "fc.bias",
                            .rows = 1,
                            .cols = p->n,
                            .dtype = GS_F32,
                            .data = p->b,
                            .grad_dtype = GS_F32,
                            .grad = db}};
    /* x as a weight of one row has a gradient to look at */
    const gs_weight x = {.name = "x",
                         .rows = 1,
                         .cols = nx,
                         .dtype = GS_F32,
                         .data = p->x,
                         .grad_dtype = GS_F32,
                         .grad = f.dx};
    gs_tape_set_ranges(t, w, 2, &p->range);
    gs_tape_begin(t, p->training, 1);
    gs_value *in = gs_param(t, &x), *y;
    if (p->images) {
        const size_t c = p->k / p->kernel / p->kernel;
        in = gs_reshape(t, in, 4, (const size_t[]){p->images, p->side, p->side, c});
        y = gs_conv2d(t, in, gs_param(t, &w[0]), gs_param(t, &w[1]), p->kernel, p->stride, p->pad);
    } else {
        in = gs_reshape(t, in, 2, (const size_t[]){p->m, p->k});
        y = gs_linear(t, in, gs_param(t, &w[0]), gs_param(t, &w[1]));
    }
    f.status = gs_tape_status(t);
    snprintf(f.text, sizeof f.text, "%s", gs_context_error(ctx)->text);
    f.count = f.status == GS_OK ? y->count : 0;
    f.y = malloc((f.count + 1) * sizeof *f.y);
    for (size_t i = 0; i < f.count; i++)
        f.y[i] = element(y, i);
    if (p->training && f.status == GS_OK) {
        float *zero = calloc(f.count, 4); /* d(mean of y^2) = 2 y / count */
        size_t shape[4] = {f.count};
        gs_value *flat = gs_reshape(t, y, 1, shape);
        CHECK(gs_tape_backward(t, gs_mse(t, flat, gs_input(t, GS_F32, 1, shape, zero)),
                               (float)f.count) == GS_OK);
        free(zero);
    }
    free(db);
    gs_tape_free(t);
    gs_context_free(ctx);
    return f;
}

static void drop(found f)
{
    free(f.y);
    free(f.dx);
    free(f.dw);
}

static void fill(product *p)
{
    const size_t nx =
        p->images ? p->images * p->side * p->side * (p->k / p->kernel / p->kernel) : p->m * p->k;
    p->x = numbers(nx, 3);
    p->w = numbers(p->n * p->k, 0.5f);
    p->b = numbers(p->n, 1);
}

static void clear(product *p)
{
    free(p->x);
    free(p->w);
    free(p->b);
}

static int code_of(float x, float amax)
{
    const gsi_quant q = gsi_quant_of(amax, 8, false, true);
    const float t = x * q.multiplier;
    return (int)rintf(t < -127 ? -127 : t > 127 ? 127 : t);
}

/* ---- the value ---- */

/* In f32: exact sums of the integers, (float)sum * scale + bias. */
static void test_value(void)
{
    product p = {.m = 7, .n = 19, .k = 45, .quantize = GS_QUANTIZE_QAT, .range = 2.5f};
    fill(&p);
    const found f = run(&p, ~0u, 1);
    CHECK(p.range == 2.5f); /* no training: it stays */
    const gsi_quant of_x = gsi_quant_of(2.5f, 8, false, true);
    for (size_t i = 0; i < p.m; i++)
        for (size_t j = 0; j < p.n; j++) {
            float top = 0;
            for (size_t k = 0; k < p.k; k++)
                top = fmaxf(top, fabsf(p.w[j * p.k + k]));
            int sum = 0;
            for (size_t k = 0; k < p.k; k++)
                sum += code_of(p.x[i * p.k + k], 2.5f) * code_of(p.w[j * p.k + k], top);
            const float unit = 1 / of_x.divisor;
            volatile float y = unit * (1 / gsi_quant_of(top, 8, false, true).divisor);
            y = (float)sum * y;
            y = y + p.b[j];
            CHECK(f.y[i * p.n + j] == y);
        }
    drop(f);
    clear(&p);
}

/* Floats and INT8, on all levels, in all types and with any threads: one result. */
static void same_everywhere(product *p)
{
    const unsigned levels = int8_levels();
    const float range = p->range;
    p->int8 = 0;
    const found want = run(p, ~0u, 2);
    CHECK_MSG(want.status == GS_OK, "%s", want.text);
    for (unsigned cpu = 0; cpu <= levels; cpu = cpu ? cpu << 1 : 1) {
        if ((levels & cpu) != cpu)
            continue;
        for (int int8 = 0; int8 < 2; int8++) {
            const float after = p->range;
            p->int8 = int8;
            p->range = range;
            const found got = run(p, cpu ? level_cpus(cpu) : 0, 1 + 2 * (unsigned)int8);
            CHECK_MSG(got.count == want.count &&
                          memcmp(got.y, want.y, want.count * sizeof *got.y) == 0,
                      "%zu by %zu by %zu, %s, int8 %d", p->m, p->n, p->k,
                      cpu ? gs_cpu_name(cpu) : "ref", int8);
            CHECK(memcmp(got.dw, want.dw, p->n * p->k * sizeof *got.dw) == 0);
            CHECK(memcmp(&p->range, &after, sizeof after) == 0);
            drop(got);
        }
    }
    drop(want);
}

static void test_same(void)
{
    static const gs_dtype halves[] = {GS_F16, GS_BF16, GS_F16};
    static const gs_mode modes[] = {GS_O1, GS_O2, GS_O0};
    for (int i = 0; i < 3; i++)
        for (int training = 0; training < 2; training++) {
            product p = {.m = 33, .n = 37, .k = 50, .quantize = GS_QUANTIZE_QAT, .range = 2};
            p.mode = modes[i];
            p.half = halves[i];
            p.training = training;
            fill(&p);
            same_everywhere(&p);
            clear(&p);
            product c = {.n = 10, .k = 45, .images = 3, .side = 7, .kernel = 3, .stride = 2};
            c.pad = 1;
            c.mode = modes[i];
            c.half = halves[i];
            c.training = training;
            c.quantize = GS_QUANTIZE_QAT;
            c.range = 2;
            fill(&c);
            same_everywhere(&c);
            clear(&c);
        }
}

/* Long k: ordinary rows are below 2^24 whole; rows of the largest numbers alone are taken in parts,
 * and sums beyond 2^24 are still exact, of blocks that are even and of others. The longest k is
 * GS_INT8_K. */
static void test_long_k(void)
{
    static const size_t ks[] = {1040, 1041, 3000, 20001, GS_INT8_K};
    for (size_t i = 0; i < GSI_COUNT(ks); i++)
        for (int large = 0; large < 3; large++) {
            product p = {.m = 3, .n = 5, .k = ks[i], .quantize = GS_QUANTIZE_QAT, .range = 3};
            fill(&p);
            for (size_t k = 0; large && k < p.k; k++) {
                for (size_t r = 0; r < p.n; r++)
                    p.w[r * p.k + k] =
                        (r % 2 ? -1.0f : 1.0f) * (large == 2 && k % 5 == r ? 0.99f : 1);
                p.x[k] = 3; /* the first row: all 127 */
            }
            same_everywhere(&p);
            if (large == 1 && p.k == GS_INT8_K) {
                p.b[0] = 0;
                const found f = run(&p, ~0u, 1);
                CHECK(fabsf(f.y[0] / (3.0f * (float)p.k) - 1) < 1e-6f);
                drop(f);
            }
            clear(&p);
        }
    product c = {.n = 4, .k = 9 * 200, .images = 2, .side = 5, .kernel = 3, .stride = 1, .pad = 1};
    c.quantize = GS_QUANTIZE_QAT;
    c.range = 1; /* clips */
    fill(&c);
    for (size_t k = 0; k < c.n * c.k; k++)
        c.w[k] = 1;
    same_everywhere(&c);
    clear(&c);
    product p = {.m = 1, .n = 2, .k = GS_INT8_K + 1, .quantize = GS_QUANTIZE_QAT, .range = 3};
    fill(&p);
    const found f = run(&p, ~0u, 1);
    CHECK(f.status == GS_ERANGE && strstr(f.text, "131071"));
    drop(f);
    clear(&p);
}

/* ---- gradients ---- */

static void test_gradients(void)
{
    product p = {.m = 6, .n = 9, .k = 31, .quantize = GS_QUANTIZE_QAT, .training = 1, .range = 100};
    p.rule = GS_RANGE_MAX; /* the range stays: nothing is larger */
    fill(&p);
    p.range = 1.5f;
    p.rule = GS_RANGE_EMA;
    const found f = run(&p, ~0u, 1);
    CHECK(p.range > 1.5f && p.range < 1.7f);
    const gsi_quant of_x = gsi_quant_of(p.range, 8, false, true);
    size_t clipped = 0;
    for (size_t i = 0; i < p.m; i++)
        for (size_t k = 0; k < p.k; k++) {
            double d = 0; /* dy w, with dy = 2 y and w as its integers say */
            for (size_t j = 0; j < p.n; j++) {
                float top = 0;
                for (size_t c = 0; c < p.k; c++)
                    top = fmaxf(top, fabsf(p.w[j * p.k + c]));
                const gsi_quant q = gsi_quant_of(top, 8, false, true);
                d += 2.0 * (double)f.y[i * p.n + j] * (double)code_of(p.w[j * p.k + k], top) /
                     (double)q.divisor;
            }
            const float x = p.x[i * p.k + k];
            if (fabsf(x) > p.range) {
                clipped++;
                CHECK(f.dx[i * p.k + k] == 0);
            } else {
                CHECK(fabs((double)f.dx[i * p.k + k] - d) <= 1e-4 * (1 + fabs(d)));
            }
        }
    CHECK(clipped > 10 && clipped < p.m * p.k);
    for (size_t j = 0; j < p.n; j++)
        for (size_t k = 0; k < p.k; k++) {
            double d = 0; /* dy^T x, as x's integers say; no weight is clipped */
            for (size_t i = 0; i < p.m; i++)
                d += 2.0 * (double)f.y[i * p.n + j] * (double)code_of(p.x[i * p.k + k], p.range) /
                     (double)of_x.divisor;
            CHECK(fabs((double)f.dw[j * p.k + k] - d) <= 1e-4 * (1 + fabs(d)));
        }
    drop(f);
    clear(&p);
}

/* ---- ranges ---- */

static float moved(gs_range_rule rule, float percentile, float range, gs_quantize quantize)
{
    product p = {.m = 10, .n = 2, .k = 100, .quantize = quantize, .training = 1};
    p.rule = rule;
    p.percentile = percentile;
    p.range = range;
    fill(&p);
    for (size_t i = 0; i < 1000; i++)
        p.x[i] = (i % 2 ? -1.0f : 1.0f) * (float)(i + 1); /* 1 to 1000 */
    drop(run(&p, ~0u, 3));
    clear(&p);
    return p.range;
}

static void test_ranges(void)
{
    CHECK(moved(GS_RANGE_MAX, 0, 0, GS_QUANTIZE_QAT) == 1000);
    CHECK(moved(GS_RANGE_MAX, 0, 1200, GS_QUANTIZE_QAT) == 1200);
    CHECK(moved(GS_RANGE_EMA, 0, 0, GS_QUANTIZE_QAT) == 1000);
    CHECK(moved(GS_RANGE_EMA, 0, 500, GS_QUANTIZE_QAT) == 500 + 0.1f * 500);
    CHECK(moved(GS_RANGE_EMA, 0, 500, GS_QUANTIZE_PTQ) == 500 + 0.1f * 500);
    const float half = moved(GS_RANGE_PERCENTILE, 50, 0, GS_QUANTIZE_QAT);
    CHECK_MSG(half >= 500 && half < 500.5f, "%g", (double)half);
    const float most = moved(GS_RANGE_PERCENTILE, 99.9f, 0, GS_QUANTIZE_QAT);
    CHECK_MSG(most >= 999 && most < 1000, "%g", (double)most);
    CHECK(moved(GS_RANGE_PERCENTILE, 100, 0, GS_QUANTIZE_QAT) == 1000);
}

/* A zero range, weights of zeros, and what is not finite. */
static void test_hostile(void)
{
    product p = {.m = 4, .n = 3, .k = 8, .quantize = GS_QUANTIZE_QAT, .range = 0};
    fill(&p);
    for (int int8 = 0; int8 < 2; int8++) {
        p.int8 = int8;
        found f = run(&p, ~0u, 1);
        for (size_t i = 0; i < f.count; i++)
            CHECK(f.y[i] == p.b[i % p.n]); /* all integers are 0 */
        drop(f);
        p.range = 2;
        memset(p.w, 0, p.n * p.k * sizeof *p.w);
        f = run(&p, ~0u, 1);
        for (size_t i = 0; i < f.count; i++)
            CHECK(f.y[i] == p.b[i % p.n]);
        drop(f);
        p.range = 0;
        clear(&p);
        fill(&p);
    }
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 12; i++) {
        float *at = i / 6 ? &p.w[5] : &p.x[9], before = *at;
        *at = bad[i % 3];
        p.int8 = i / 3 % 2;
        p.training = !p.int8;
        p.range = 2;
        const found f = run(&p, ~0u, 1);
        for (size_t k = 0; k < f.count; k++)
            CHECK(isnan(f.y[k])); /* not clipped away */
        CHECK(i / 6 || p.range == 2);
        *at = before;
        drop(f);
    }
    p.training = 0;
    for (int i = 0; i < 3; i++) { /* a range that a file made up */
        p.range = bad[i];
        const found f = run(&p, ~0u, 1);
        CHECK(f.status == GS_OK && f.y[0] == p.b[0]);
        drop(f);
    }
    clear(&p);
}

/* ---- models ---- */

static gs_model *mlp(gs_context *ctx)
{
    gs_model *m = NULL;
    const size_t sizes[] = {12, 16, 4};
    CHECK(gs_mlp_create(&m, ctx, &(gs_mlp_config){sizeof(gs_mlp_config), sizes, 3}) == GS_OK);
    CHECK(gs_model_quantize(m, ctx) == GS_OK && m->n_ranges == 2);
    CHECK(strcmp(m->state_entries[0].name, "layers.0.input_amax") == 0);
    return m;
}

static gs_trainer_config job_config(gs_range_rule rule)
{
    gs_trainer_config c = {.size = sizeof c,
                           .tape = {.size = sizeof c.tape,
                                    .mode = GS_O2,
                                    .half = GS_F16,
                                    .quantize = GS_QUANTIZE_QAT,
                                    .range_rule = rule},
                           .optim.size = sizeof c.optim,
                           .seed = 1};
    gs_optim_config_init(&c.optim, "adamw", NULL);
    gs_scaler_init(&c.scaler, "pytorch", NULL);
    return c;
}

static gs_batch batch_of(float x[96], int32_t targets[8], uint64_t step)
{
    for (int i = 0; i < 96; i++)
        x[i] = (float)(int32_t)gs_random_u32(step, (uint64_t)i) * 0x1p-31f;
    for (int i = 0; i < 8; i++)
        targets[i] = (int32_t)(gs_random_u32(step, 1000 + (uint64_t)i) % 4);
    return (gs_batch){.n = 8, .x = x, .targets = targets};
}

/* A step that is not applied leaves the ranges; trainer and inference agree to the bit. */
static void test_training(void)
{
    gs_context *ctx = NULL;
    gs_trainer *t = NULL;
    float x[96];
    int32_t targets[8];
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    gs_model *m = mlp(ctx);
    gs_trainer_config c = job_config(GS_RANGE_EMA);
    CHECK(gs_trainer_create(&t, ctx, m, &c) == GS_OK);
    for (uint64_t step = 0; step < 20; step++) {
        const gs_batch b = batch_of(x, targets, step);
        CHECK(gs_trainer_step(t, &b, 1, NULL) == GS_OK);
    }
    const float before[] = {m->state[0], m->state[1]};
    CHECK(before[0] > 0.9f && before[0] <= 1 && before[1] > 0);
    gs_batch b = batch_of(x, targets, 99);
    x[3] = NAN;
    gs_train_row row;
    CHECK(gs_trainer_step(t, &b, 1, &row) == GS_OK && row.report.verdict.action == GS_SKIP);
    CHECK(memcmp(before, m->state, sizeof before) == 0);
    b = batch_of(x, targets, 99);
    double loss;
    CHECK(gs_trainer_evaluate(&loss, NULL, t, &b) == GS_OK);
    CHECK(gs_model_quantize(m, ctx) == GS_ESTATE); /* in use */

    gs_error error;
    char path[] = "/tmp/test_quantize.XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && gs_checkpoint_save(path, t, NULL, &error) == GS_OK);
    double other_loss;
    char other[] = "/tmp/test_quantize.XXXXXX";
    const int other_fd = mkstemp(other);
    CHECK(gs_trainer_step(t, &b, 1, NULL) == GS_OK);
    CHECK(gs_trainer_evaluate(&other_loss, NULL, t, &b) == GS_OK);
    CHECK(other_fd >= 0 && gs_checkpoint_save(other, t, NULL, &error) == GS_OK);
    gs_trainer_free(t);
    for (int int8 = 0; int8 < 2; int8++) {
        gs_infer *f = NULL;
        gs_infer_result result;
        const gs_infer_config as = {
            .size = sizeof as, .mode = GS_O2, .half = GS_F16, .quantize = 1, .int8 = int8};
        CHECK(gs_infer_create(&f, ctx, m, &as) == GS_OK);
        CHECK(gs_infer_load(f, path, &error) == GS_OK && gs_infer_calibrated(f));
        CHECK(gs_infer_run(&result, f, &b) == GS_OK && result.loss == loss);
        /* weights are quantised once: what they hold is not looked at again until others come */
        uint16_t *first = m->weights[0].data;
        first[0] = 0x7C00;
        CHECK(gs_infer_run(&result, f, &b) == GS_OK && result.loss == loss);
        CHECK(gs_infer_load(f, path, &error) == GS_OK && first[0] != 0x7C00);
        CHECK(gs_infer_run(&result, f, &b) == GS_OK && result.loss == loss);
        CHECK(gs_infer_load(f, other, &error) == GS_OK);
        CHECK(gs_infer_run(&result, f, &b) == GS_OK && result.loss == other_loss &&
              loss != other_loss);
        gs_infer_free(f);
    }
    c.tape.quantize = GS_QUANTIZE_NONE; /* another precision: refused by name */
    CHECK(gs_trainer_create(&t, ctx, m, &c) == GS_OK);
    CHECK(gs_checkpoint_load(path, t, NULL, &error) == GS_EDTYPE &&
          strstr(error.text, "quantize=int8 ranges=ema"));
    gs_trainer_free(t);
    remove(path);
    remove(other);
    gs_model_free(m);

    const size_t sizes[] = {12, 4}; /* without ranges */
    CHECK(gs_mlp_create(&m, ctx, &(gs_mlp_config){sizeof(gs_mlp_config), sizes, 2}) == GS_OK);
    c = job_config(GS_RANGE_EMA);
    CHECK(gs_trainer_create(&t, ctx, m, &c) == GS_ESTATE);
    CHECK(strstr(gs_context_error(ctx)->text, "gs_model_quantize"));
    gs_model_free(m);
    gs_context_free(ctx);
}

static float rank_ranges[2][4][2];

static void rank_body(const gs_comm *comm, void *arg)
{
    const gs_range_rule rule = *(const gs_range_rule *)arg;
    gs_context *ctx = NULL;
    gs_trainer *t = NULL;
    float x[96];
    int32_t targets[8];
    const gs_config machine = {.size = sizeof machine, .threads = 1};
    CHECK(gs_context_create(&ctx, &machine, NULL) == GS_OK);
    gs_model *m = mlp(ctx);
    gs_trainer_config c = job_config(rule);
    c.comm = comm;
    c.ranks.compare = 1; /* after every step */
    CHECK(gs_trainer_create(&t, ctx, m, &c) == GS_OK);
    for (uint64_t step = 0; step < 6; step++) {
        const gs_batch b = batch_of(x, targets, 10 * step + (uint64_t)comm->rank);
        x[0] *= 1 + (float)comm->rank; /* the ranks see different magnitudes */
        CHECK_MSG(gs_trainer_step(t, &b, 1, NULL) == GS_OK, "%s", gs_context_error(ctx)->text);
    }
    memcpy(rank_ranges[rule == GS_RANGE_MAX][comm->rank], m->state, 2 * sizeof(float));
    gs_trainer_free(t);
    gs_model_free(m);
    gs_context_free(ctx);
}

static void test_ranks(void)
{
    for (int i = 0; i < 2; i++) {
        gs_range_rule rule = i ? GS_RANGE_MAX : GS_RANGE_EMA;
        ranks_run(4, rank_body, &rule);
        for (int r = 1; r < 4; r++)
            CHECK(memcmp(rank_ranges[i][r], rank_ranges[i][0], 2 * sizeof(float)) == 0);
    }
    CHECK(rank_ranges[1][0][0] > rank_ranges[0][0][0]); /* the largest is above the mean */
}

TESTS({"value", test_value}, {"same", test_same}, {"long k", test_long_k},
      {"gradients", test_gradients}, {"ranges", test_ranges}, {"hostile", test_hostile},
      {"training", test_training}, {"ranks", test_ranks})
