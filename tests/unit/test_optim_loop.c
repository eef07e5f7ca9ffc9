/* An optimizer under another program's loop: its learning rates, its gradients, its parameter
 * groups, its f32 storage. */
#include "optim_rig.h"

/* Everything a step may move of weight t, as stored. */
static uint64_t weight_hash(const rig *r, size_t t)
{
    const gs_weight *w = &r->list[t];
    const size_t count = w->rows * w->cols;
    uint64_t h = hash_tensor(1, (gs_tensor){w->data, count, w->dtype, w->name, 0});
    if (w->copy)
        h = hash_tensor(h, (gs_tensor){w->copy, count, w->copy_dtype, w->name, 0});
    for (int k = 0; k < GS_SLOT_COUNT; k++)
        h = hash_tensor(h, gs_optim_slot(r->optim, t, (gs_slot)k));
    return h;
}

/* The rig's own gradients as a list; those of the weights in `without` (bits) are missing. */
static void grads_of(const rig *r, gs_tensor list[WEIGHTS], unsigned without)
{
    for (size_t t = 0; t < WEIGHTS; t++) {
        const gs_weight *w = &r->list[t];
        list[t] = (gs_tensor){without >> t & 1 ? NULL : w->grad, w->rows * w->cols, w->grad_dtype,
                              w->name, 0};
    }
}

static gs_optim_report step_without(rig *r, unsigned turn, unsigned without)
{
    gs_tensor list[WEIGHTS];
    grads_of(r, list, without);
    CHECK(gs_optim_set_grads(r->optim, list, WEIGHTS) == GS_OK);
    return rig_step(r, turn, 0);
}

/* ---- learning rates ---- */

static void test_set_lr(void)
{
    rig r = {0}, b = {0};
    const rig_spec spec = {.kind = "sgd",
                           .settings = "lr=0.125",
                           .scaler = "static:1024",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK && rig_open(&b, &spec) == GS_OK);
    const float *w = r.list[1].data;
    CHECK(gs_optim_lr(r.optim) == 0.125);
    CHECK(rig_step(&r, 0, 0).lr == 0.125);
    const float before = w[5];
    CHECK(gs_optim_set_lr(r.optim, 0.5) == GS_OK && gs_optim_lr(r.optim) == 0.5);
    CHECK(rig_step(&r, 1, INFINITY).lr == 0.5 && w[5] == before); /* the next applied one has it */
    CHECK(rig_step(&r, 1, 0).lr == 0.5);
    CHECK(w[5] == before - 0.5f * (0.01f * noise(111, 5)));
    CHECK(gs_optim_get_config(r.optim)->lr == 0.125); /* a setting stays what it was */

    gs_optim_state state = gs_optim_get_state(r.optim);
    CHECK(gs_optim_set_state(b.optim, &state) == GS_OK && gs_optim_lr(b.optim) == 0.5);
    CHECK(rig_step(&b, 1, 0).lr == 0.5);
    state.lr_set = 0;
    CHECK(gs_optim_set_state(b.optim, &state) == GS_OK && gs_optim_lr(b.optim) == 0.125);
    state.lr_set = 1;
    state.lr = (double)NAN;
    CHECK(gs_optim_set_state(b.optim, &state) == GS_ERANGE && gs_optim_lr(b.optim) == 0.125);
    CHECK(gs_optim_set_lr(b.optim, 0) == GS_OK && rig_step(&b, 2, 0).lr == 0);

    static const double bad[] = {-1, 2e6, (double)INFINITY, (double)NAN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK(gs_optim_set_lr(r.optim, bad[i]) == GS_ERANGE && gs_optim_lr(r.optim) == 0.5);
        CHECK(strstr(gs_context_error(r.ctx)->text, "lr must be from 0 to 1e+06"));
    }
    rig_close(&r);
    rig_close(&b);
}

/* With a schedule it is what the factor multiplies. */
static void test_set_lr_and_schedule(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "adamw",
                           .settings = "lr=1 schedule=linear total=10 weight_decay=0.5",
                           .types = {GS_F32, GS_F16, GS_F16}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    CHECK(rig_step(&r, 0, 0).lr == 1);
    CHECK(gs_optim_set_lr(r.optim, 2) == GS_OK);
    CHECK(rig_step(&r, 1, 0).lr ==
          2 * gs_schedule_factor(&gs_optim_get_config(r.optim)->schedule, 1));
    CHECK(gs_optim_set_lr(r.optim, 2.5) == GS_ERANGE); /* 2.5 * 0.5 */
    CHECK(strstr(gs_context_error(r.ctx)->text, "change sign"));
    CHECK(gs_optim_lr(r.optim) == 2);
    rig_close(&r);
}

/* Set before the first step, it is the setting, bit for bit, whoever computes with it. */
static void test_lr_bits(void)
{
    for (size_t k = 0; k < KINDS; k++)
        for (size_t s = 0; s < STORAGES; s++)
            for (int factors = 0; factors < 2; factors++) {
                rig a = {0}, b = {0};
                rig_spec spec;
                char settings[128], half[160];
                if (!spec_of(&spec, settings, k, s))
                    continue;
                snprintf(half, sizeof half, "%s lr=0.005", settings);
                CHECK(rig_open(&a, &spec) == GS_OK);
                spec.settings = half;
                CHECK(rig_open(&b, &spec) == GS_OK);
                if (!factors)
                    CHECK(gs_optim_set_lr(a.optim, 0.005) == GS_OK);
                for (size_t t = 0; factors && t < WEIGHTS; t++)
                    CHECK(gs_optim_set_lr_factor(a.optim, t, 0.5) == GS_OK);
                for (unsigned turn = 0; turn < 3; turn++) {
                    rig_step(&a, turn, 0);
                    rig_step(&b, turn, 0);
                }
                CHECK_MSG(rig_hash(&a) == rig_hash(&b), "%s %s", spec.kind, settings);
                rig_close(&a);
                rig_close(&b);
            }
}

static void test_lr_factor(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "sgd",
                           .settings = "lr=1 weight_decay=0.25",
                           .scaler = "static:1024",
                           .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    CHECK(gs_optim_set_lr_factor(r.optim, 0, 0) == GS_OK); /* frozen */
    CHECK(gs_optim_set_lr_factor(r.optim, 1, 0.25) == GS_OK);
    CHECK(rig_step(&r, 0, 0).lr == 1);
    CHECK(((float *)r.list[0].data)[7] == noise(7, 7));
    CHECK(((float *)r.list[1].data)[7] == noise(8, 7) - 0.25f * (0.01f * noise(101, 7)));

    CHECK(gs_optim_set_lr_factor(r.optim, 3, 1) == GS_ERANGE);
    CHECK(strstr(gs_context_error(r.ctx)->text, "no weight 3"));
    CHECK(gs_optim_set_lr_factor(r.optim, 0, (double)NAN) == GS_ERANGE);
    CHECK(gs_optim_set_lr_factor(r.optim, 0, -1) == GS_ERANGE);
    CHECK(gs_optim_set_lr_factor(r.optim, 1, 2e6) == GS_ERANGE);
    CHECK(gs_optim_set_lr_factor(r.optim, 2, 5) == GS_ERANGE); /* 5 * 0.25 */
    CHECK(strstr(gs_context_error(r.ctx)->text, "of weight number is 1.25"));
    CHECK(gs_optim_set_lr_factor(r.optim, 2, 4) == GS_OK);
    CHECK(gs_optim_set_lr(r.optim, 1.5) == GS_ERANGE); /* 1.5 * 4 * 0.25 */
    CHECK(gs_optim_lr(r.optim) == 1);
    rig_close(&r);
}

/* ---- decay of a weight's own ---- */

static void test_decay_bits(void)
{
    for (size_t k = 0; k < KINDS; k++)
        for (size_t s = 0; s < STORAGES; s++) {
            rig a = {0}, b = {0};
            rig_spec spec;
            char settings[128], with[160], none[160];
            if (!spec_of(&spec, settings, k, s))
                continue;
            snprintf(with, sizeof with, "%s weight_decay=0.125", settings);
            snprintf(none, sizeof none, "%s weight_decay=0", settings);
            spec.settings = with;
            CHECK(rig_open(&a, &spec) == GS_OK);
            spec.settings = none;
            CHECK(rig_open(&b, &spec) == GS_OK);
            CHECK(gs_optim_set_weight_decay(b.optim, 0, 0.125) == GS_OK);
            CHECK(gs_optim_set_weight_decay(b.optim, 2, 0.125) == GS_OK); /* 1 is GS_NO_DECAY */
            for (unsigned turn = 0; turn < 3; turn++) {
                rig_step(&a, turn, 0);
                rig_step(&b, turn, 0);
            }
            CHECK_MSG(rig_hash(&a) == rig_hash(&b), "%s %s", spec.kind, settings);
            rig_close(&a);
            rig_close(&b);
        }
}

static void test_decay(void)
{
    rig r = {0};
    const rig_spec spec = {
        .kind = "adamw", .settings = "lr=0.5 weight_decay=1", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    CHECK(gs_optim_set_weight_decay(r.optim, 0, 0) == GS_OK);
    CHECK(gs_optim_set_weight_decay(r.optim, 1, 0.5) == GS_OK); /* in spite of the flag */
    const gs_tensor grads = gs_store_grads(r.store);
    gs_step step;
    gs_step_begin(&step, &r.scaler);
    memset(grads.data, 0, grads.count * sizeof(float));
    CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_OK);
    CHECK(((float *)r.list[0].data)[9] == noise(7, 9));
    CHECK(((float *)r.list[1].data)[9] == 0.75f * noise(8, 9));
    CHECK(((float *)r.list[2].data)[0] == 0.5f * noise(9, 0));
    CHECK(gs_optim_set_weight_decay(r.optim, 0, 1.5) == GS_ERANGE);
    CHECK(gs_optim_set_weight_decay(r.optim, 0, (double)NAN) == GS_ERANGE);
    CHECK(gs_optim_set_weight_decay(r.optim, 9, 0) == GS_ERANGE);
    rig_close(&r);
}

/* ---- gradients that move ---- */

/* Other addresses and types from step to step, the same values: the same bits. */
static void test_moving_grads(void)
{
    static const gs_dtype types[] = {GS_F32, GS_F16, GS_F32, GS_F16};
    for (size_t k = 0; k < KINDS; k++) {
        rig a = {0}, b = {0};
        const rig_spec spec = {.kind = kinds[k],
                               .settings = "clip_norm=0.1",
                               .scaler = "static:1024",
                               .types = {GS_F32, GS_F16, GS_F16}};
        CHECK(rig_open(&a, &spec) == GS_OK && rig_open(&b, &spec) == GS_OK);
        for (unsigned turn = 0; turn < 4; turn++) {
            const double norm = rig_step(&a, turn, 0).norm;
            gs_tensor list[WEIGHTS];
            for (size_t t = 0; t < WEIGHTS; t++) {
                const size_t count = b.list[t].rows * b.list[t].cols;
                list[t] = (gs_tensor){malloc(count * 4), count, types[turn], "g", 0};
                for (size_t i = 0; i < count; i++)
                    put(list[t].data, types[turn], i, get(a.list[t].grad, GS_F16, i));
            }
            CHECK(gs_optim_set_grads(b.optim, list, WEIGHTS) == GS_OK);
            gs_step step;
            gs_optim_report report;
            gs_step_begin(&step, &b.scaler);
            CHECK(gs_optim_step(b.optim, &step, &b.scaler, &report) == GS_OK);
            CHECK(fabs(report.norm - norm) <= 1e-6 * norm);
            gs_optim_clear_grads(b.optim);
            CHECK(get(list[0].data, types[turn], 3) == 0 && get(list[2].data, types[turn], 0) == 0);
            for (size_t t = 0; t < WEIGHTS; t++)
                free(list[t].data);
            CHECK_MSG(rig_hash(&a) == rig_hash(&b), "%s, step %u", kinds[k], turn);
        }
        rig_close(&a);
        rig_close(&b);
    }
}

/* A weight without a gradient stays as it is, and goes on later as if the steps had not been. */
static void test_missing(void)
{
    for (size_t k = 0; k < KINDS; k++)
        for (size_t s = 0; s < STORAGES; s++)
            for (size_t t = 0; t < 2; t++) { /* a matrix, a vector */
                rig a = {0}, b = {0};
                rig_spec spec;
                char settings[128];
                if (!spec_of(&spec, settings, k, s))
                    continue;
                const int f16 = strstr(settings, "moments=f16") != NULL;
                CHECK(rig_open(&a, &spec) == GS_OK && rig_open(&b, &spec) == GS_OK);
                step_without(&a, 0, 0);
                const uint64_t whole = rig_hash(&a), mine = weight_hash(&a, t);
                CHECK(step_without(&a, 1, 1u << t).verdict.action == GS_APPLY);
                step_without(&a, 2, 1u << t);
                CHECK_MSG(f16 || weight_hash(&a, t) == mine, "%s %s", spec.kind, settings);
                CHECK(rig_hash(&a) != whole);
                CHECK(gs_optim_steps(a.optim) == 3 && gs_optim_weight_steps(a.optim, t) == 1);
                CHECK(gs_optim_weight_steps(a.optim, 2) == 3);
                step_without(&a, 3, 0);
                step_without(&b, 0, 0);
                step_without(&b, 3, 0);
                /* clipping sees other norms, random bits and schedules count all steps */
                if (!f16 && !strstr(settings, "clip_norm") && !strstr(settings, "stochastic") &&
                    !strstr(settings, "schedule") && !strstr(settings, "moments"))
                    CHECK_MSG(weight_hash(&a, t) == weight_hash(&b, t), "%s %s", spec.kind,
                              settings);
                rig_close(&a);
                rig_close(&b);
            }
}

/* Nor does the norm hold it, nor a skip clear it; the report knows its weights. */
static void test_missing_report(void)
{
    rig r = {0};
    const rig_spec spec = {
        .kind = "sgd", .settings = "lr=0.001", .types = {GS_F32, GS_F32, GS_F32}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    ((float *)r.list[0].data)[18199] = -77;
    const gs_optim_report report = step_without(&r, 0, 1);
    CHECK(fabs(report.norm - 0.01 * sqrt(1001 / 3.0)) < 0.02 && report.weight_amax == 77);
    rig_grads(&r, 1, 0);
    gs_optim_clear_grads(r.optim);
    CHECK(get(r.list[0].grad, GS_F32, 3) != 0 && get(r.list[1].grad, GS_F32, 3) == 0);
    const uint64_t before = rig_hash(&r);
    step_without(&r, 1, 7); /* whatever the verdict on none at all */
    CHECK(rig_hash(&r) == before);
    rig_close(&r);
}

/* One scale serves the f16 moments of all weights: large ones without a gradient stay, in true
 * units, while the others' shrink, and while they grow. */
static void test_missing_f16_moments(void)
{
    for (int grow = 0; grow < 2; grow++) {
        rig r = {0};
        const rig_spec spec = {.kind = "adam",
                               .settings = "moments=f16 beta1=0 beta2=0.5 lr=1e-4",
                               .scaler = "static:1",
                               .types = {GS_F32, GS_F32, GS_F32}};
        CHECK(rig_open(&r, &spec) == GS_OK);
        float m[2][1000], v[2][1000];
        for (unsigned turn = 0; turn < 6; turn++) {
            gs_tensor list[WEIGHTS];
            gs_step step;
            grads_of(&r, list, turn ? 2 : 0);
            CHECK(gs_optim_set_grads(r.optim, list, WEIGHTS) == GS_OK);
            gs_step_begin(&step, &r.scaler);
            rig_grads(&r, 1, turn);
            for (size_t t = 0; t < WEIGHTS; t += 2)
                for (size_t i = 0; i < r.list[t].rows * r.list[t].cols; i++)
                    ((float *)r.list[t].grad)[i] *= turn == 0 ? 1 : grow ? 16 : 1e-6f;
            CHECK(gs_optim_step(r.optim, &step, &r.scaler, NULL) == GS_OK);
            const int at = turn > 0;
            CHECK(gs_optim_read_slot(m[at], r.optim, 1, GS_SLOT_M, 1000) == GS_OK);
            CHECK(gs_optim_read_slot(v[at], r.optim, 1, GS_SLOT_V, 1000) == GS_OK);
            for (size_t i = 0; at && i < 1000; i++) {
                CHECK(isfinite(m[1][i]) && fabsf(m[1][i] - m[0][i]) <= (grow ? 1e-7f : 0));
                CHECK(fabsf(v[1][i] - v[0][i]) <= (grow ? 1e-8f : 0));
            }
        }
        rig_close(&r);
    }
}

static void test_bad_grads(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "adamw", .types = {GS_F32, GS_F16, GS_F16}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    gs_tensor good[WEIGHTS], bad[7][WEIGHTS];
    grads_of(&r, good, 0);
    for (int i = 0; i < 7; i++)
        memcpy(bad[i], good, sizeof good);
    bad[0][1].count = 999;
    bad[1][1].dtype = GS_F64;
    bad[2][1].data = (char *)good[1].data + 1;
    bad[3][1].data = r.list[0].data;                  /* a master */
    bad[4][1].data = (uint16_t *)r.list[0].copy + 64; /* a copy */
    bad[5][1].data = (uint16_t *)good[0].data + 2;    /* another gradient */
    const gs_strided apart = {10, 20}, together = {10, 10};
    bad[6][1].strided = &apart; /* would be read as if it were contiguous */
    static const gs_status want[] = {GS_ESIZE,  GS_EDTYPE, GS_EALIGN, GS_ERANGE,
                                     GS_ERANGE, GS_ERANGE, GS_ESIZE};
    for (int i = 0; i < 7; i++) {
        CHECK_MSG(gs_optim_set_grads(r.optim, bad[i], WEIGHTS) == want[i], "row %d: %s", i,
                  gs_context_error(r.ctx)->text);
        CHECK(strstr(gs_context_error(r.ctx)->text, "bias"));
    }
    CHECK(gs_optim_set_grads(r.optim, good, WEIGHTS - 1) == GS_ESIZE);
    CHECK(gs_optim_set_grads(r.optim, NULL, WEIGHTS) == GS_ENULL);
    CHECK(rig_step(&r, 0, 0).verdict.action == GS_APPLY); /* with the old ones */
    good[1].strided = &together;                          /* a view without gaps is none */
    CHECK(gs_optim_set_grads(r.optim, good, WEIGHTS) == GS_OK);
    CHECK(rig_step(&r, 1, 0).verdict.action == GS_APPLY);
    rig_close(&r);
}

/* What lies between the rows of a view is not ours to clear. */
static void test_clear_view(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "sgd", .types = {GS_F32, GS_F16, GS_F16}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    float rows[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const gs_strided apart = {2, 4}, together = {2, 2};
    gs_tensor view = {rows, 4, GS_F32, "sums", &apart};
    CHECK(gs_optim_also_clear(r.optim, &view, 1) == GS_ESIZE);
    CHECK(strstr(gs_context_error(r.ctx)->text, "sums"));
    gs_optim_clear_grads(r.optim);
    for (int i = 0; i < 8; i++)
        CHECK(rows[i] == 1);
    view.strided = &together;
    CHECK(gs_optim_also_clear(r.optim, &view, 1) == GS_OK);
    gs_optim_clear_grads(r.optim);
    for (int i = 0; i < 8; i++)
        CHECK(rows[i] == (i >= 4));
    rig_close(&r);
}

/* Weights that have no gradient yet. */
static void test_late_grads(void)
{
    gs_context *ctx;
    gs_optim *optim;
    gs_optim_config config = {.size = sizeof config};
    gs_scaler scaler;
    gs_step step;
    float w[4] = {1, 2, 3, 4}, g[4] = {8, 8, 8, 8};
    gs_weight list[] = {{.name = "w", .rows = 1, .cols = 4, .data = w}};
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_scaler_init(&scaler, "static:8", NULL) == GS_OK);
    CHECK(gs_optim_config_init(&config, "sgd", NULL) == GS_OK);
    CHECK(gs_optim_config_set(&config, "lr=1", NULL) == GS_OK);
    CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_ENULL); /* forgotten */
    CHECK(strstr(gs_context_error(ctx)->text, "GS_LATE_GRAD"));
    list[0].flags = GS_LATE_GRAD;
    CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_OK);
    const gs_tensor grads[] = {{g, 4, GS_F32, "w", 0}};
    CHECK(gs_optim_set_grads(optim, grads, 1) == GS_OK);
    gs_step_begin(&step, &scaler);
    CHECK(gs_optim_step(optim, &step, &scaler, NULL) == GS_OK);
    CHECK(w[0] == 0 && w[3] == 3);
    gs_optim_free(optim);
    gs_context_free(ctx);
}

/* ---- f32 copies ---- */

/* The weights as they are stored, and nothing else about the step is another. */
static void test_f32_copies(void)
{
    enum { N = 70000 };
    static float copy[N], grad[N];
    static uint32_t data[2][N];
    for (size_t k = 0; k < KINDS; k++)
        for (int type = 0; type < 3; type++)
            for (int moments = 0; moments < 2; moments++) {
                char settings[80];
                if (moments && strcmp(kinds[k], "adafactor") == 0)
                    continue;
                snprintf(settings, sizeof settings, "lr=0.01 rounding=%s moments=%s",
                         type == GS_BF16 ? "kahan" : "stochastic", moments ? "f16" : "f32");
                for (int copied = 0; copied < 2; copied++) {
                    gs_context *ctx;
                    gs_optim *optim;
                    gs_optim_config config = {.size = sizeof config};
                    gs_scaler scaler;
                    const gs_weight list[] = {{.name = "w",
                                               .rows = 250,
                                               .cols = N / 250,
                                               .data = data[copied],
                                               .dtype = (gs_dtype)type,
                                               .copy = copied ? copy : NULL,
                                               .copy_dtype = GS_F32,
                                               .grad = grad}};
                    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
                    CHECK(gs_scaler_init(&scaler, "static:1", NULL) == GS_OK);
                    CHECK(gs_optim_config_init(&config, kinds[k], NULL) == GS_OK);
                    CHECK(gs_optim_config_set(&config, settings, NULL) == GS_OK);
                    CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_OK);
                    for (size_t i = 0; i < N; i++) {
                        put(data[copied], (gs_dtype)type, i, noise(1, i));
                        grad[i] = noise(2, i);
                    }
                    for (int t = 0; t < 2; t++) {
                        gs_step step;
                        gs_step_begin(&step, &scaler);
                        CHECK(gs_optim_step(optim, &step, &scaler, NULL) == GS_OK);
                    }
                    gs_optim_free(optim);
                    gs_context_free(ctx);
                }
                CHECK(memcmp(data[0], data[1], N * (type == GS_F32 ? 4u : 2u)) == 0);
                size_t wrong = 0;
                for (size_t i = 0; i < N; i++)
                    wrong += copy[i] != get(data[1], (gs_dtype)type, i);
                CHECK_MSG(wrong == 0, "%s %s: %zu", kinds[k], settings, wrong);
            }
}

static void test_f32_copies_in_a_store(void)
{
    rig r = {0};
    const rig_spec spec = {.kind = "adamw", .types = {GS_BF16, GS_F32, GS_BF16}};
    CHECK(rig_open(&r, &spec) == GS_OK);
    rig_step(&r, 0, 0);
    const gs_tensor data = gs_store_data(r.store), copies = gs_store_copies(r.store);
    CHECK(copies.dtype == GS_F32 && copies.count == data.count);
    for (size_t i = 0; i < data.count; i++)
        CHECK(((float *)copies.data)[i] == get(data.data, GS_BF16, i));
    CHECK((float *)r.list[2].copy == (float *)copies.data + 18208 + 1024);
    rig_close(&r);
}

TESTS({"set_lr", test_set_lr}, {"set_lr_and_schedule", test_set_lr_and_schedule},
      {"lr_bits", test_lr_bits}, {"lr_factor", test_lr_factor}, {"decay_bits", test_decay_bits},
      {"decay", test_decay}, {"moving_grads", test_moving_grads}, {"missing", test_missing},
      {"missing_report", test_missing_report}, {"missing_f16_moments", test_missing_f16_moments},
      {"bad_grads", test_bad_grads}, {"clear_view", test_clear_view},
      {"late_grads", test_late_grads}, {"f32_copies", test_f32_copies},
      {"f32_copies_in_a_store", test_f32_copies_in_a_store})
