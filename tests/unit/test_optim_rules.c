/* The optimizers' rules: schedules, averages, decay, LAMB and Adafactor against f64, half weights
 * and moments. PyTorch's numbers: test_parity. */
#include "base/base.h"
#include "num/convert.h"
#include "optim_rig.h"

/* ---- schedules and averages ---- */

static void test_schedules(void)
{
    const gs_schedule constant = {.warmup = 3};
    const gs_schedule linear = {GS_SCHEDULE_LINEAR, 0, 10, 1, 0.1, 1};
    const gs_schedule cosine = {GS_SCHEDULE_COSINE, 2, 12, 1, 0, 1};
    const gs_schedule step = {GS_SCHEDULE_STEP, 0, 0, 30, 0, 0.1};
    const gs_schedule cycle = {GS_SCHEDULE_ONECYCLE, 4, 20, 1, 1e-4, 1};
    const struct {
        const gs_schedule *schedule;
        uint64_t t;
        double want;
    } table[] = {{&constant, 0, 0.25},    {&constant, 2, 0.75}, {&constant, 3, 1},
                 {&constant, 1000000, 1}, {&linear, 0, 1},      {&linear, 5, 0.55},
                 {&linear, 10, 0.1},      {&linear, 999, 0.1},  {&cosine, 0, 1.0 / 3},
                 {&cosine, 2, 1},         {&cosine, 7, 0.5},    {&cosine, 12, 0},
                 {&step, 29, 1},          {&step, 30, 0.1},     {&step, 90, 1e-3},
                 {&cycle, 4, 1},          {&cycle, 20, 1e-4},   {&cycle, 12, 0.50005}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const double f = gs_schedule_factor(table[i].schedule, table[i].t);
        CHECK_MSG(fabs(f - table[i].want) < 1e-12, "row %zu: %g, not %g", i, f, table[i].want);
    }
    CHECK(gs_schedule_factor(&cycle, 0) > 0.04 && gs_schedule_factor(&cycle, 0) < 0.3);
    const gs_schedule endless = {.warmup = UINT64_MAX};
    CHECK(gs_schedule_factor(&endless, 0) > 0 && gs_schedule_factor(&endless, 0) < 1e-18);
}

static void test_schedule_counts_applied(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "sgd",
                           .settings = "lr=2 schedule=linear total=10",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    CHECK(rig_step(&r, 0, 0).lr == 2);
    CHECK(fabs(rig_step(&r, 0, INFINITY).lr - 1.8) < 1e-12);
    CHECK(fabs(rig_step(&r, 0, 0).lr - 1.8) < 1e-12);
    CHECK(fabs(rig_step(&r, 0, 0).lr - 1.6) < 1e-12);
    rig_close(&r);
}

static void test_ema(void)
{
    rig r = {0};
    const rig_spec spec = {
        .kind = "sgd", .settings = "lr=0.5 ema=0.75", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    const float *w = r.list[1].data, *ema = gs_optim_slot(r.optim, 1, GS_SLOT_EMA).data;
    rig_step(&r, 0, 0);
    CHECK(memcmp(w, ema, 1000 * sizeof *w) == 0);
    float want = ema[3];
    for (unsigned t = 1; t < 5; t++) {
        rig_step(&r, t, 0);
        want = 0.75f * want + 0.25f * w[3];
        CHECK(ema[3] == want);
    }
    rig_close(&r);
}

static void test_no_decay(void)
{
    rig r = {0};
    const rig_spec spec = {
        .kind = "adamw", .settings = "lr=0.1 weight_decay=1", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    const gs_tensor grads = gs_store_grads(r.store);
    gs_step step;
    gs_step_begin(&step, &r.scaler);
    memset(grads.data, 0, grads.count * sizeof(float));
    CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_OK);
    CHECK(((float *)r.list[0].data)[9] == 0.9f * noise(7, 9));
    CHECK(((float *)r.list[1].data)[9] == noise(8, 9));
    rig_close(&r);
}

/* ---- against f64 ---- */

typedef struct oracle {
    double *w, *m, *v;
    size_t n;
} oracle;

static double worst_of(const rig *r, const oracle *o)
{
    double worst = 0;
    for (size_t t = 0; t < WEIGHTS; t++)
        for (size_t i = 0; i < o[t].n; i++)
            worst = fmax(worst, fabs(o[t].w[i] - (double)((float *)r->list[t].data)[i]));
    return worst;
}

static void oracle_open(oracle *o, const rig *r)
{
    for (size_t t = 0; t < WEIGHTS; t++) {
        o[t].n = r->list[t].rows * r->list[t].cols;
        o[t].w = calloc(o[t].n, sizeof(double));
        o[t].m = calloc(o[t].n, sizeof(double));
        o[t].v = calloc(o[t].n, sizeof(double));
        for (size_t i = 0; i < o[t].n; i++)
            o[t].w[i] = (double)((float *)r->list[t].data)[i];
    }
}

static void oracle_close(oracle *o)
{
    for (size_t t = 0; t < WEIGHTS; t++) {
        free(o[t].w);
        free(o[t].m);
        free(o[t].v);
    }
}

static double grad_of(size_t t, size_t i, unsigned turn)
{
    return (double)(0.01f * noise(100 + 10 * turn + t, i));
}

static void lamb_step(oracle *o, size_t t, unsigned turn, double lr, double decay)
{
    const double c1 = 1 - pow(0.9, turn + 1), c2 = 1 - pow(0.999, turn + 1);
    double ww = 0, uu = 0;
    double *u = malloc(o->n * sizeof *u);
    for (size_t i = 0; i < o->n; i++) {
        const double g = grad_of(t, i, turn);
        o->m[i] = 0.9 * o->m[i] + 0.1 * g;
        o->v[i] = 0.999 * o->v[i] + 0.001 * g * g;
        u[i] = o->m[i] / c1 / (sqrt(o->v[i] / c2) + 1e-6) + decay * o->w[i];
        ww += o->w[i] * o->w[i];
        uu += u[i] * u[i];
    }
    for (size_t i = 0; i < o->n; i++)
        o->w[i] -= lr * sqrt(ww / uu) * u[i];
    free(u);
}

static void test_lamb(void)
{
    rig r = {0};
    oracle o[WEIGHTS];
    const rig_spec spec = {.kind = "lamb",
                           .settings = "lr=0.01 weight_decay=0.1",
                           .scaler = "static:1024",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    oracle_open(o, &r);
    for (unsigned turn = 0; turn < 10; turn++) {
        rig_step(&r, turn, 0);
        for (size_t t = 0; t < WEIGHTS; t++)
            lamb_step(&o[t], t, turn, 0.01, t == 1 ? 0 : 0.1);
    }
    CHECK_MSG(worst_of(&r, o) < 2e-6, "%g", worst_of(&r, o));
    oracle_close(o);
    rig_close(&r);
}

/* m holds the row means, v the column means of a matrix; v the second moment of a vector. */
static void adafactor_step(oracle *o, size_t t, unsigned turn, size_t rows, size_t cols, double lr)
{
    const double rest = pow(turn + 1, -0.8), n = (double)o->n;
    double ww = 0, uu = 0, mean = 0;
    double *u = malloc(o->n * sizeof *u);
    if (rows > 1) {
        for (size_t i = 0; i < rows; i++) {
            double sum = 0;
            for (size_t j = 0; j < cols; j++)
                sum += pow(grad_of(t, i * cols + j, turn), 2) + 1e-30;
            o->m[i] = (1 - rest) * o->m[i] + rest * sum / (double)cols;
            mean += o->m[i] / (double)rows;
        }
        for (size_t j = 0; j < cols; j++) {
            double sum = 0;
            for (size_t i = 0; i < rows; i++)
                sum += pow(grad_of(t, i * cols + j, turn), 2) + 1e-30;
            o->v[j] = (1 - rest) * o->v[j] + rest * sum / (double)rows;
        }
    }
    for (size_t i = 0; i < o->n; i++) {
        const double g = grad_of(t, i, turn);
        if (rows == 1)
            o->v[i] = (1 - rest) * o->v[i] + rest * (g * g + 1e-30);
        u[i] = g / sqrt(rows > 1 ? o->m[i / cols] * o->v[i % cols] / mean : o->v[i]);
        ww += o->w[i] * o->w[i];
        uu += u[i] * u[i];
    }
    const double alpha = lr * fmax(1e-3, sqrt(ww / n)), shrink = fmax(1, sqrt(uu / n));
    for (size_t i = 0; i < o->n; i++)
        o->w[i] -= alpha * u[i] / shrink;
    free(u);
}

static void test_adafactor(void)
{
    rig r = {0};
    oracle o[WEIGHTS];
    const rig_spec spec = {
        .kind = "adafactor", .scaler = "static:1024", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    oracle_open(o, &r);
    CHECK(gs_optim_slot(r.optim, 0, GS_SLOT_ROW).count == 130);
    CHECK(gs_optim_slot(r.optim, 0, GS_SLOT_COL).count == 140);
    CHECK(gs_optim_slot(r.optim, 0, GS_SLOT_V).count == 0);
    CHECK(gs_optim_slot(r.optim, 1, GS_SLOT_V).count == 1000);
    for (unsigned turn = 0; turn < 10; turn++) {
        rig_step(&r, turn, 0);
        for (size_t t = 0; t < WEIGHTS; t++)
            adafactor_step(&o[t], t, turn, r.list[t].rows, r.list[t].cols, 0.01);
    }
    CHECK_MSG(worst_of(&r, o) < 2e-6, "%g", worst_of(&r, o));
    oracle_close(o);
    rig_close(&r);
}

/* More than one tile down and across: the means, and the same weights with any threads. */
static void test_adafactor_tiles(void)
{
    enum { ROWS = 1100, COLS = 1030 };
    static float w[ROWS * COLS], g[ROWS * COLS];
    uint64_t ends[2];
    for (int k = 0; k < 2; k++) {
        gs_context *ctx;
        gs_optim *optim;
        gs_scaler scaler;
        gs_step step;
        gs_optim_config config = {.size = sizeof config};
        CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = k ? 3 : 1},
                                NULL) == GS_OK);
        CHECK(gs_scaler_init(&scaler, "static:1", NULL) == GS_OK);
        CHECK(gs_optim_config_init(&config, "adafactor", NULL) == GS_OK);
        const gs_weight list[] = {{.name = "w", .rows = ROWS, .cols = COLS, .data = w, .grad = g}};
        for (size_t i = 0; i < ROWS * COLS; i++) {
            w[i] = 1;
            g[i] = noise(3, i) * (float)(1 + i / COLS) * (float)(1 + i % COLS);
        }
        CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_OK);
        gs_step_begin(&step, &scaler);
        CHECK(gs_optim_step(optim, &step, &scaler, NULL) == GS_OK);
        const float *row = gs_optim_slot(optim, 0, GS_SLOT_ROW).data;
        const float *col = gs_optim_slot(optim, 0, GS_SLOT_COL).data;
        for (size_t r = 0; r < ROWS; r += 13) {
            double sum = 0;
            for (size_t c = 0; c < COLS; c++)
                sum += (double)g[r * COLS + c] * (double)g[r * COLS + c];
            CHECK(fabs((double)row[r] / (sum / COLS) - 1) < 1e-6);
        }
        for (size_t c = 0; c < COLS; c += 13) {
            double sum = 0;
            for (size_t r = 0; r < ROWS; r++)
                sum += (double)g[r * COLS + c] * (double)g[r * COLS + c];
            CHECK(fabs((double)col[c] / (sum / ROWS) - 1) < 1e-6);
        }
        ends[k] = hash(0, w, sizeof w);
        gs_optim_free(optim);
        gs_context_free(ctx);
    }
    CHECK(ends[0] == ends[1]);
}

/* ---- weights and moments in half types ---- */

/* The mean of the weights after many steps of +1e-4, of weights of 1 whose spacing is 2^-7. */
static double drift(const char *rounding, double *unmoved)
{
    enum { N = 1 << 16, STEPS = 100 };
    static uint16_t w[N];
    static float g[N];
    char settings[64];
    double mean = 0;
    gs_context *ctx;
    gs_optim *optim;
    gs_scaler scaler;
    gs_optim_config config = {.size = sizeof config};
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_scaler_init(&scaler, "static:1", NULL) == GS_OK);
    CHECK(gs_optim_config_init(&config, "sgd", NULL) == GS_OK);
    snprintf(settings, sizeof settings, "lr=1 rounding=%s", rounding);
    CHECK(gs_optim_config_set(&config, settings, NULL) == GS_OK);
    const gs_weight list[] = {
        {.name = "w", .rows = 1, .cols = N, .data = w, .dtype = GS_BF16, .grad = g}};
    for (size_t i = 0; i < N; i++) {
        w[i] = gs_f32_to_bf16(1);
        g[i] = -1e-4f;
    }
    CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_OK);
    for (int t = 0; t < STEPS; t++) {
        gs_step step;
        gs_step_begin(&step, &scaler);
        CHECK(gs_optim_step(optim, &step, &scaler, NULL) == GS_OK);
    }
    *unmoved = 0;
    for (size_t i = 0; i < N; i++) {
        mean += (double)gs_bf16_to_f32(w[i]) / N;
        *unmoved += (gs_bf16_to_f32(w[i]) == 1) / (double)N;
    }
    gs_optim_free(optim);
    gs_context_free(ctx);
    return mean;
}

static void test_rounding(void)
{
    double unmoved;
    CHECK(drift("nearest", &unmoved) == 1 && unmoved == 1);
    const double mean = drift("stochastic", &unmoved);
    CHECK_MSG(fabs(mean - 1.01) < 1.5e-4, "%g", mean); /* 4 sigma */
    /* every step draws anew: each moves a weight with probability 1e-4 / 2^-7 */
    CHECK_MSG(fabs(unmoved - pow(1 - 1e-4 * 128, 100)) < 0.01, "%g", unmoved);
    /* the nearest to 1.01, and the rest is not lost */
    CHECK(drift("kahan", &unmoved) == 1.0078125 && unmoved == 0);
}

static void test_half_moments(void)
{
    const char *const types[] = {"f16", "bf16"};
    const double limits[] = {2e-4, 2e-3};
    for (int k = 0; k < 2; k++)
        for (size_t kind = 0; kind < 4; kind++) {
            rig exact = {0}, half = {0};
            char settings[128];
            snprintf(settings, sizeof settings, "lr=0.01 weight_decay=0 moments=%s %s", types[k],
                     kind == 0 ? "momentum=0.9" : "");
            const rig_spec a = {.kind = kinds[kind],
                                .settings =
                                    kind == 0 ? "lr=0.01 momentum=0.9" : "lr=0.01 weight_decay=0",
                                .types = {GS_F32, GS_F32, GS_F32}};
            const rig_spec b = {
                .kind = kinds[kind], .settings = settings, .types = {GS_F32, GS_F32, GS_F32}};
            CHECK(rig_open(&exact, &a) == GS_OK && rig_open(&half, &b) == GS_OK);
            for (unsigned turn = 0; turn < 30; turn++) {
                rig_step(&exact, turn, 0);
                rig_step(&half, turn, 0);
            }
            const gs_tensor m = gs_optim_slot(half.optim, 0, GS_SLOT_M);
            CHECK(gs_dtype_format(m.dtype)->bytes == 2);
            double square = 0;
            for (size_t i = 0; i < m.count; i++) {
                const double d = (double)((float *)exact.list[0].data)[i] -
                                 (double)((float *)half.list[0].data)[i];
                square += d * d;
                CHECK(isfinite(get(m.data, m.dtype, i)));
            }
            const double rms = sqrt(square / (double)m.count);
            CHECK_MSG(rms > 0 && rms < limits[k], "%s %s: %g", kinds[kind], types[k], rms);
            rig_close(&exact);
            rig_close(&half);
        }
}

/* The first step's m and root of v, element by element, rounded with bits of their own. */
static void check_moment_bits(gs_optim *optim, const gs_weight *w, uint32_t t, gs_dtype type)
{
    const gs_optim_state state = gs_optim_get_state(optim);
    for (uint32_t use = 1; use <= 2; use++) {
        uint32_t word[4];
        gsi_philox(word, 5, 1);
        gsi_philox(word, (uint64_t)word[1] << 32 | word[0], t * 3 + use);
        const uint64_t key = (uint64_t)word[1] << 32 | word[0];
        const gs_tensor slot = gs_optim_slot(optim, t, use == 1 ? GS_SLOT_M : GS_SLOT_V);
        const float scale = ldexpf(1, state.exponent[use - 1]);
        for (size_t i = 0; i < w->cols; i++) {
            const float g = ((const float *)w->grad)[i];
            const float x = use == 1 ? (float)(1 - 0.9) * g : sqrtf((float)(1 - 0.999) * g * g);
            const uint32_t want =
                gsi_narrow(gsi_bits(x * scale), gsi_row_of(type), gsi_random_u16(key, i), false);
            CHECK_MSG(((const uint16_t *)slot.data)[i] == want, "use %u, element %zu", use, i);
        }
    }
}

/* In whole groups of random bits and behind them, and behind the first chunk. */
static void test_half_moment_bits(void)
{
    enum { LONG = 70000 };
    static const gs_dtype types[] = {GS_F16, GS_BF16};
    static const gs_store_entry one[] = {{"long", 1, LONG, 0}};
    for (int k = 0; k < 2; k++) {
        rig r = {0};
        const rig_spec spec = {.kind = "adamw",
                               .settings = k ? "moments=bf16 seed=5" : "moments=f16 seed=5",
                               .scaler = "static:1",
                               .types = {GS_F32, GS_F16, GS_F32}};
        CHECK(rig_open(&r, &spec) == GS_OK);
        CHECK(r.list[1].cols == 1000 && r.list[1].cols % GSI_RANDOM_GROUP != 0);
        rig_step(&r, 0, 0);
        check_moment_bits(r.optim, &r.list[1], 1, types[k]);

        gs_store *store;
        gs_optim *optim;
        gs_step step;
        gs_optim_config config = {.size = sizeof config};
        CHECK(gs_optim_config_init(&config, "adamw", NULL) == GS_OK &&
              gs_optim_config_set(&config, spec.settings, NULL) == GS_OK &&
              gs_store_create(&store, r.ctx, one, 1, spec.types) == GS_OK);
        const gs_weight *w = gs_store_weights(store, NULL);
        CHECK(gs_optim_create(&optim, r.ctx, w, 1, &config) == GS_OK);
        for (size_t i = 0; i < LONG; i++)
            put(w->grad, GS_F32, i, noise(9, i));
        gs_step_begin(&step, &r.scaler);
        CHECK(gs_optim_step(optim, &step, &r.scaler, NULL) == GS_OK);
        check_moment_bits(optim, w, 0, types[k]);
        gs_optim_free(optim);
        gs_store_free(store);
        rig_close(&r);
    }
}

/* Gradients that grow and shrink by 2^50 do not overflow moments in f16. The largest, by far, is in
 * the first group of random bits: the bound of the next step comes from there. */
static void test_moment_scale(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "adamw",
                           .settings = "moments=f16",
                           .scaler = "static:1",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    static const float sizes[] = {1e-6f, 1e-3f, 1, 1e9f, 1, 1e-4f, 1e-12f};
    for (size_t t = 0; t < sizeof sizes / sizeof sizes[0]; t++) {
        gs_step step;
        gs_step_begin(&step, &r.scaler);
        rig_grads(&r, (double)sizes[t], (unsigned)t);
        put(r.list[0].grad, GS_F32, 0, 1e3f * sizes[t]);
        CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_OK);
        for (int slot = GS_SLOT_M; slot <= GS_SLOT_V; slot++) {
            const gs_tensor x = gs_optim_slot(r.optim, 0, (gs_slot)slot);
            float most = 0;
            for (size_t i = 0; i < x.count; i++)
                most = fmaxf(most, fabsf(get(x.data, x.dtype, i)));
            CHECK_MSG(most > 256 && most <= 65504, "step %zu: %g", t, (double)most);
        }
    }
    for (size_t i = 0; i < 130 * 140; i++)
        CHECK(isfinite(((float *)r.list[0].data)[i]));
    rig_close(&r);
}

/* ---- what is tiny ---- */

static void test_tiny(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "adamw",
                           .settings = "weight_decay=0 eps=0",
                           .scaler = "static:1",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    float *w = r.list[1].data, *g = r.list[1].grad;
    float *m = gs_optim_slot(r.optim, 1, GS_SLOT_M).data;
    float *v = gs_optim_slot(r.optim, 1, GS_SLOT_V).data;
    gs_step step;
    gs_step_begin(&step, &r.scaler);
    rig_grads(&r, 1, 0);
    m[0] = 0x1p-149f; /* subnormal moments */
    v[0] = 0x1p-130f;
    g[0] = 0;
    g[1] = 0;         /* no gradient and no eps */
    g[2] = 0x1p-100f; /* a gradient below the threshold */
    g[3] = 0x1p-70f;  /* one whose square is nothing */
    w[4] = 0x1p-149f;
    g[4] = 0;
    CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_OK);
    CHECK(m[0] == 0 && v[0] == 0 && w[0] == noise(8, 0));
    CHECK(w[1] == noise(8, 1) && w[2] == noise(8, 2) && m[2] == 0);
    CHECK(w[3] == noise(8, 3) && m[3] != 0 && v[3] == 0);
    CHECK(w[4] == 0);
    rig_close(&r);
}

TESTS({"schedules", test_schedules}, {"schedule_counts_applied", test_schedule_counts_applied},
      {"ema", test_ema}, {"no_decay", test_no_decay}, {"lamb", test_lamb},
      {"adafactor", test_adafactor}, {"adafactor_tiles", test_adafactor_tiles},
      {"rounding", test_rounding}, {"half_moments", test_half_moments},
      {"half_moment_bits", test_half_moment_bits}, {"moment_scale", test_moment_scale},
      {"tiny", test_tiny})
