/* Whole training steps: the same bits with any instruction set and any number of threads, nothing
 * allocated when steady, all or nothing when a gradient overflows or memory ends. */
#include "levels.h"
#include "train_rig.h"

#include "gradscale/gemm.h"
#include "kernel/fpenv.h"

#include <fenv.h>
#include <math.h>

/* ---- the same bits everywhere ---- */

/* Those of the last step. */
static bool same_gradients(const job *a, const job *b)
{
    return same_tensor(gs_store_grads(gs_trainer_store(a->trainer)),
                       gs_store_grads(gs_trainer_store(b->trainer)));
}

/* loss_weight 0: 1; a tiny one makes gradients that a unit for bf16 may not multiply. */
static void check_everywhere(model_kind kind, gs_mode mode, gs_dtype half, double loss_weight)
{
    static const struct {
        unsigned without_cpu, threads;
    } ways[] = {{~0u, 1},
                {~0u, 4},
                {~(unsigned)GS_CPU_AVX2, 1},
                {~(unsigned)GS_CPU_AVX2, 4},
                {(unsigned)GS_CPU_AVX512BF16, 1},
                {0, 1},
                {0, 4}};
    enum { STEPS = 20 };
    gemm_levels();
    job first = {0};
    double loss = 0;
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        const how h = {.kind = kind,
                       .mode = mode,
                       .half = half,
                       .threads = ways[k].threads,
                       .without_cpu = ways[k].without_cpu,
                       .dropout = 0.1f,
                       .loss_weight = loss_weight};
        job j = job_new(&h);
        gs_unit_use use;
        CHECK(j.status == GS_OK);
        double last = 0;
        for (unsigned i = 0; i < STEPS; i++)
            last = step(&j, kind, i).loss;
        gs_context_unit_use(&use, j.ctx);
        CHECK((use.products > 0) ==
              (half == GS_BF16 && (gs_context_cpu(j.ctx) & GS_CPU_AVX512BF16)));
        CHECK((use.fallbacks > 0) == (use.products > 0 && loss_weight > 0));
        if (k == 0) {
            first = j;
            loss = last;
            continue;
        }
        CHECK_MSG(same_job(&first, &j) && same_gradients(&first, &j) && loss == last,
                  "model %d, O%d %s, %u threads, without %#x: loss %.9g, not %.9g", (int)kind,
                  (int)mode, gs_dtype_format(half)->name, ways[k].threads, ways[k].without_cpu,
                  last, loss);
        job_free(&j);
    }
    job_free(&first);
}

static void test_everywhere(void)
{
    check_everywhere(GPT, GS_O0, GS_F16, 0);
    check_everywhere(GPT, GS_O1, GS_F16, 0);
    check_everywhere(GPT, GS_O2, GS_F16, 0);
    check_everywhere(GPT, GS_O2, GS_BF16, 0);
    check_everywhere(GPT, GS_O3, GS_BF16, 0x1p-140);
    check_everywhere(CNN, GS_O1, GS_F16, 0);
    check_everywhere(CNN, GS_O2, GS_F16, 0);
    check_everywhere(CNN, GS_O1, GS_BF16, 0x1p-140);
    check_everywhere(RESNET, GS_O2, GS_BF16, 0);
    check_everywhere(MLP, GS_O3, GS_F16, 0);
}

/* The caller's floating-point mode is not the step's: rounding up, say, and subnormals flushed, as
 * in a program that is linked with -ffast-math. */
static void check_float_modes(model_kind kind, gs_mode mode)
{
    static const int rounding[] = {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO};
    const how h = {.kind = kind, .mode = mode, .half = GS_F16, .threads = 2, .dropout = 0.1f};
    const uint64_t usual = gsi_fpenv_read();
    job jobs[sizeof rounding / sizeof rounding[0]];
    for (size_t m = 0; m < sizeof rounding / sizeof rounding[0]; m++) {
        jobs[m] = job_new(&h);
        for (unsigned i = 0; i < 4; i++) {
            const gs_batch batch = batch_of(kind, i), thirds[] = {batch, batch, batch};
            double loss;
            gsi_fpenv_write(m ? GSI_FPENV_FLUSH : GSI_FPENV_DEFAULT);
            fesetround(rounding[m]);
            const uint64_t mine = gsi_fpenv_read();
            const gs_status status = gs_trainer_step(jobs[m].trainer, thirds, 3, NULL);
            const gs_status valued = gs_trainer_evaluate(&loss, NULL, jobs[m].trainer, &batch);
            const bool kept = ((gsi_fpenv_read() ^ mine) & ~(uint64_t)GSI_FPENV_FLAGS) == 0;
            fesetround(FE_TONEAREST);
            gsi_fpenv_write(usual);
            CHECK(status == GS_OK && valued == GS_OK && kept);
        }
        CHECK_MSG(same_job(&jobs[0], &jobs[m]), "model %d, O%d, rounding %d", (int)kind, (int)mode,
                  rounding[m]);
    }
    for (size_t m = 0; m < sizeof rounding / sizeof rounding[0]; m++)
        job_free(&jobs[m]);
}

static void test_float_modes(void)
{
    check_float_modes(GPT, GS_O2);
    check_float_modes(CNN, GS_O1);
    check_float_modes(RESNET, GS_O0);
}

/* ---- every mode trains ---- */

static void test_learns(void)
{
    static const struct {
        gs_mode mode;
        gs_dtype half;
    } modes[] = {{GS_O0, GS_F16},  {GS_O1, GS_F16}, {GS_O1, GS_BF16}, {GS_O2, GS_F16},
                 {GS_O2, GS_BF16}, {GS_O3, GS_F16}, {GS_O3, GS_BF16}};
    for (size_t k = 0; k < sizeof modes / sizeof modes[0]; k++)
        for (int kind = GPT; kind <= MLP; kind++) {
            const how h = {.kind = (model_kind)kind,
                           .mode = modes[k].mode,
                           .half = modes[k].half,
                           .threads = 1,
                           .optim = modes[k].mode == GS_O3 ? "lr=1e-2 clip_norm=1 rounding=kahan"
                                                           : "lr=1e-2 clip_norm=1"};
            job j = job_new(&h);
            CHECK_MSG(j.status == GS_OK, "%s", gs_context_error(j.ctx)->text);
            double first = 0, last = 0;
            const unsigned steps = kind == GPT ? 80 : 40;
            for (unsigned i = 0; i < steps; i++) {
                const double loss = step(&j, (model_kind)kind, i).loss;
                first += i < 3 ? loss / 3 : 0;
                last += i + 3 >= steps ? loss / 3 : 0;
            }
            CHECK_MSG(last < 0.5 * first, "model %d, O%d %s: the loss went from %g to %g", kind,
                      (int)modes[k].mode, gs_dtype_format(modes[k].half)->name, first, last);

            double loss = 0;
            size_t right = 0;
            const gs_batch unseen = batch_of((model_kind)kind, 5000);
            CHECK(gs_trainer_evaluate(&loss, &right, j.trainer, &unseen) == GS_OK);
            const size_t rows = unseen.n * (unseen.time ? unseen.time : 1);
            CHECK_MSG(right > rows / 2 && right <= rows && loss < first,
                      "model %d, O%d %s: %zu of %zu, loss %g", kind, (int)modes[k].mode,
                      gs_dtype_format(modes[k].half)->name, right, rows, loss);
            job_free(&j);
        }
}

/* ---- nothing is allocated ---- */

static void test_steady(void)
{
    for (int kind = GPT; kind <= MLP; kind++)
        for (int mode = GS_O0; mode <= GS_O3; mode++) {
            books b = {0};
            const how h = {.kind = (model_kind)kind,
                           .mode = (gs_mode)mode,
                           .half = GS_F16,
                           .threads = 2,
                           .telemetry = 1,
                           .dropout = 0.1f,
                           .books = &b};
            job j = job_new(&h);
            CHECK(j.status == GS_OK);
            for (unsigned i = 0; i < 3; i++)
                step(&j, (model_kind)kind, i);
            const size_t before = b.calls;
            for (unsigned i = 3; i < 8; i++)
                step(&j, (model_kind)kind, i);
            CHECK_MSG(b.calls == before, "model %d, O%d: %zu allocations in five steps", kind, mode,
                      b.calls - before);
            size_t layers;
            const gs_layer *list = gs_tape_layers(gs_trainer_tape(j.trainer), &layers);
            CHECK(list && layers > 1 && list[0].name);
            job_free(&j);
            CHECK(b.blocks == 0 && b.bytes == 0 && !b.wrong);
        }
}

/* Telemetry now and then: a row tells whether it is of such a step. */
static void test_telemetry(void)
{
    for (int at_first = 0; at_first < 2; at_first++) {
        const how h = {
            .kind = MLP, .mode = GS_O2, .half = GS_F16, .threads = 1, .telemetry = at_first};
        job j = job_new(&h);
        for (unsigned i = 0; i < 4; i++) {
            const int on = at_first ^ (int)(i / 2);
            const gs_tape_config config = {
                .size = sizeof config, .mode = GS_O2, .half = GS_F16, .telemetry = on};
            CHECK(gs_tape_set_config(gs_trainer_tape(j.trainer), &config) == GS_OK);
            const gs_train_row row = step(&j, MLP, i);
            CHECK(row.telemetry == on);
            CHECK(!on || row.stored.zero > 0); /* of relu */
        }
        job_free(&j);
    }
}

/* A row has true units: neither the scale nor rounding by powers of two shows in it. The weight of
 * the loss is in the gradients, not in the loss. */
static void test_units(void)
{
    gs_train_row rows[3];
    for (int i = 0; i < 3; i++) {
        const how h = {.kind = MLP,
                       .mode = GS_O0,
                       .threads = 1,
                       .scaler = i == 1 ? "static:1024" : "static:1",
                       .optim = "lr=1e-3",
                       .loss_weight = i == 2 ? 4 : 0};
        job j = job_new(&h);
        rows[i] = step(&j, MLP, 0);
        job_free(&j);
    }
    CHECK(rows[0].amax > 0 && rows[0].amax == rows[1].amax && rows[2].amax == 4 * rows[0].amax);
    CHECK(rows[0].report.norm == rows[1].report.norm);
    CHECK(rows[2].report.norm == 4 * rows[0].report.norm);
    CHECK(rows[0].loss == rows[1].loss && rows[0].loss == rows[2].loss);
    CHECK(rows[0].scale == 1 && rows[1].scale == 1024);
}

/* ---- memory ends ---- */

/* Allocation `at` fails, or it and all after it. A step without memory changes nothing: run again
 * with memory, it gives what it would have given. Returns whether nothing failed. */
static bool check_no_memory(const how *clean, const job *want, size_t at, bool all)
{
    books b = {.fail_at = all ? 0 : at, .fail_from = all ? at : 0};
    how h = *clean;
    h.books = &b;
    job j = job_new(&h);
    const gs_batch batch = batch_of(h.kind, 0);
    gs_status first = j.status; /* failure */
    for (int i = 0; j.status == GS_OK && i < 3; i++) {
        gs_status status = gs_trainer_step(j.trainer, &batch, 1, NULL);
        first = first == GS_OK ? status : first;
        if (status != GS_OK) {
            CHECK(strstr(gs_context_error(j.ctx)->text, "memory"));
            b.fail_at = b.fail_from = 0;
            status = gs_trainer_step(j.trainer, &batch, 1, NULL);
        }
        CHECK(status == GS_OK);
    }
    const bool failed = b.calls >= at;
    CHECK_MSG(first == GS_OK || first == GS_ENOMEM, "allocation %zu: %s", at,
              gs_status_name(first));
    CHECK_MSG(failed || first == GS_OK, "allocation %zu was not reached", at);
    CHECK_MSG(!all || !failed || first == GS_ENOMEM, "from allocation %zu on: no error", at);
    CHECK_MSG(j.status != GS_OK || same_job(&j, want), "allocation %zu: not the same", at);
    job_free(&j);
    CHECK_MSG(b.blocks == 0 && !b.wrong, "allocation %zu: %zu blocks are left", at, b.blocks);
    return !failed;
}

static void test_no_memory(void)
{
    static const model_kind kinds[] = {GPT, CNN, MLP};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        const how h = {
            .kind = kinds[k], .mode = GS_O2, .half = GS_F16, .threads = 1, .telemetry = 1};
        job want = job_new(&h);
        for (unsigned i = 0; i < 3; i++)
            step(&want, kinds[k], 0);
        for (int all = 0; all < 2; all++) {
            size_t at = 1;
            while (at < 500 && !check_no_memory(&h, &want, at, all))
                at++;
            CHECK(at > 10 && at < 500);
        }
        job_free(&want);
    }
}

/* ---- overflow ---- */

/* A clean job and one whose scale is far too high see the same batch. */
static void check_skip(model_kind kind, gs_mode mode)
{
    const how h = {.kind = kind,
                   .mode = mode,
                   .half = GS_F16,
                   .threads = 2,
                   .scaler = "pytorch",
                   .rules = "init=0x1p+38"};
    job untouched = job_new(&h), j = job_new(&h);
    const gs_train_row row = step(&j, kind, 0);
    CHECK(row.report.verdict.action == GS_SKIP);
    CHECK(row.report.verdict.reason == GS_REASON_INF || row.report.verdict.reason == GS_REASON_NAN);
    CHECK(row.scale == 0x1p+38 && gs_scaler_scale(gs_trainer_scaler(j.trainer)) == 0x1p+37);
    CHECK_MSG(same_job(&untouched, &j), "model %d, O%d: a skipped step changed something", kind,
              (int)mode);
    CHECK(gs_optim_get_state(gs_trainer_optim(j.trainer)).applied == 0);
    job_free(&untouched);
    job_free(&j);
}

static void check_retry(model_kind kind, gs_mode mode)
{
    how h = {.kind = kind,
             .mode = mode,
             .half = GS_F16,
             .threads = 2,
             .dropout = 0.1f,
             .rules = "init=0x1p+38 on_overflow=retry:40 interval=none"};
    job high = job_new(&h);
    gs_train_row row = step(&high, kind, 0);
    CHECK(row.report.verdict.action == GS_APPLY && row.reruns > 5);
    char rules[80];
    snprintf(rules, sizeof rules, "init=%a on_overflow=retry:40 interval=none", row.scale);
    h.rules = rules;
    job low = job_new(&h);
    const gs_train_row same = step(&low, kind, 0);
    CHECK(same.report.verdict.action == GS_APPLY && same.reruns == 0);
    CHECK(row.loss == same.loss && row.report.norm == same.report.norm && row.amax == same.amax);
    for (unsigned i = 1; i < 4; i++) {
        row = step(&high, kind, i);
        CHECK(row.loss == step(&low, kind, i).loss);
    }
    CHECK_MSG(same_job(&high, &low), "model %d, O%d: a retried step is not the same", kind,
              (int)mode);
    job_free(&high);
    job_free(&low);
}

static void test_overflow(void)
{
    static const model_kind kinds[] = {GPT, CNN, RESNET, MLP};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (int mode = GS_O1; mode <= GS_O3; mode++) {
            check_skip(kinds[k], (gs_mode)mode);
            check_retry(kinds[k], (gs_mode)mode);
        }
}

/* A model whose gradient, or loss, is broken at will. */
typedef struct broken {
    gs_model base;
    gs_model *inner;
    float factor;
} broken;

static gs_value *broken_forward(void *model, gs_tape *t, const gs_batch *batch)
{
    const broken *b = model;
    b->inner->weights = b->base.weights;
    gs_value *loss = b->inner->forward(b->inner, t, batch);
    return gs_mul(t, loss, gs_input(t, GS_F32, 0, NULL, &b->factor));
}

/* Injected infinities: weights stay, whatever the mode; a broken forward pass moves no scale. */
static void test_injected(void)
{
    static const struct {
        float factor;
        gs_reason reason;
        double scale; /* afterwards */
    } cases[] = {{INFINITY, GS_REASON_FORWARD, 65536},
                 {NAN, GS_REASON_FORWARD, 65536},
                 {1e30f, GS_REASON_INF, 32768},
                 {1, GS_REASON_FINE, 65536}};
    for (int mode = GS_O0; mode <= GS_O3; mode++)
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            const how h = {.kind = CNN, .mode = (gs_mode)mode, .half = GS_F16, .threads = 1};
            job j = job_new(&h), untouched = job_new(&h);
            gs_model *inner = j.model;
            gs_trainer_config tc = {
                .size = sizeof tc,
                .optim.size = sizeof(gs_optim_config),
                .tape = {.size = sizeof(gs_tape_config), .mode = (gs_mode)mode, .half = GS_F16},
                .seed = 42};
            CHECK(gs_optim_config_init(&tc.optim, "adamw", NULL) == GS_OK);
            CHECK(gs_optim_config_set(&tc.optim, "lr=3e-3 clip_norm=1", NULL) == GS_OK);
            CHECK(gs_scaler_init(&tc.scaler, NULL, NULL) == GS_OK);
            broken b = {.base = *inner, .inner = inner, .factor = cases[k].factor};
            b.base.forward = broken_forward;
            b.base.release = NULL;
            gs_trainer_free(j.trainer);
            CHECK(gs_trainer_create(&j.trainer, j.ctx, &b.base, &tc) == GS_OK);
            const gs_train_row row = step(&j, CNN, 0);
            const bool fine = cases[k].reason == GS_REASON_FINE;
            const bool f32 = mode == GS_O0 && cases[k].reason == GS_REASON_INF; /* holds 1e30 */
            CHECK_MSG(row.report.verdict.reason == (f32 ? GS_REASON_FINE : cases[k].reason),
                      "O%d, factor %g: %s", mode, (double)cases[k].factor,
                      gs_reason_name(row.report.verdict.reason));
            CHECK(gs_scaler_scale(gs_trainer_scaler(j.trainer)) == (f32 ? 65536 : cases[k].scale));
            CHECK(same_job(&j, &untouched) == (!fine && !f32));
            job_free(&j);
            job_free(&untouched);
        }
}

/* ---- accumulation ---- */

static void test_accumulation(void)
{
    for (int mode = GS_O0; mode <= GS_O2; mode++) {
        const how h = {.kind = MLP, .mode = (gs_mode)mode, .half = GS_F16, .threads = 1};
        job whole = job_new(&h), parts = job_new(&h);
        const gs_batch all = batch_of(MLP, 3);
        gs_batch micro[3]; /* 1, 2 and 3 items: each counts by its items */
        size_t at = 0;
        for (size_t i = 0; i < 3; i++) {
            micro[i] = (gs_batch){
                .n = i + 1, .x = all.x + at * CNN_SIDE * CNN_SIDE * 2, .targets = all.targets + at};
            at += i + 1;
        }
        CHECK(at == all.n);
        gs_train_row a, b;
        CHECK(gs_trainer_step(whole.trainer, &all, 1, &a) == GS_OK);
        CHECK(gs_trainer_step(parts.trainer, micro, 3, &b) == GS_OK);
        const double eps = mode == GS_O0 ? 1e-6 : 2e-3;
        CHECK_MSG(fabs(a.loss - b.loss) <= eps * a.loss, "O%d: %g and %g", mode, a.loss, b.loss);
        CHECK_MSG(fabs(a.report.norm - b.report.norm) <= eps * a.report.norm, "O%d: %g and %g",
                  mode, a.report.norm, b.report.norm);
        const gs_tensor ga = gs_store_grads(gs_trainer_store(whole.trainer));
        const gs_tensor gb = gs_store_grads(gs_trainer_store(parts.trainer));
        double worst = 0, most = 0;
        for (size_t i = 0; i < ga.count; i++) {
            const double x = (double)((const float *)ga.data)[i];
            worst = fmax(worst, fabs(x - (double)((const float *)gb.data)[i]));
            most = fmax(most, fabs(x));
        }
        CHECK_MSG(most > 0 && worst <= eps * most, "O%d: off by %g of %g", mode, worst, most);
        job_free(&whole);
        job_free(&parts);
    }
}

/* ---- gradients are written before they are added to ---- */

/* loss = mse(a + b, 0), or mse(a, 0) where b is left out; of its weights it has copies. */
typedef struct sum_model {
    gs_model base;
    bool leave_out;
    gs_weight copies[2];
} sum_model;

static gs_value *pair_forward(void *model, gs_tape *t, const gs_batch *batch)
{
    static const float zeros[8];
    sum_model *p = model;
    (void)batch;
    memcpy(p->copies, p->base.weights, sizeof p->copies);
    gs_value *x = gs_param(t, &p->copies[0]);
    if (!p->leave_out)
        x = gs_add(t, x, gs_param(t, &p->copies[1]));
    return gs_mse(t, x, gs_input(t, GS_F32, 1, (const size_t[]){8}, zeros));
}

/* What a weight got in the step before is gone, be it used in this one or not, in one micro-batch
 * or in two. */
static void test_fresh(void)
{
    const gs_store_entry entries[] = {{"a", 1, 8, 0}, {"b", 1, 8, 0}};
    const gs_init inits[] = {{1, 0}, {2, 0}};
    sum_model p = {.base = {.forward = pair_forward, .n = 2, .entries = entries, .inits = inits},
                   .leave_out = false};
    gs_trainer_config config = {.size = sizeof config,
                                .optim.size = sizeof(gs_optim_config),
                                .tape = {.size = sizeof(gs_tape_config), .mode = GS_O0}};
    gs_context *ctx;
    gs_trainer *trainer;
    const float x = 0;
    const gs_batch batch[] = {{.n = 1, .x = &x}, {.n = 1, .x = &x}};
    CHECK(gs_optim_config_init(&config.optim, "sgd", NULL) == GS_OK);
    CHECK(gs_optim_config_set(&config.optim, "lr=0", NULL) == GS_OK);
    CHECK(gs_scaler_init(&config.scaler, "none", NULL) == GS_OK);
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    CHECK(gs_trainer_create(&trainer, ctx, &p.base, &config) == GS_OK);
    for (size_t i = 0; i < 6; i++) {
        p.leave_out = i % 2;
        CHECK(gs_trainer_step(trainer, batch, 1 + i / 3, NULL) == GS_OK);
        const float *a = p.base.weights[0].grad, *b = p.base.weights[1].grad;
        const float sum = p.leave_out ? 1 : 3;
        for (int k = 0; k < 8; k++)
            CHECK_MSG(a[k] == 2 * sum / 8 && b[k] == (p.leave_out ? 0 : 2 * sum / 8),
                      "step %zu: %g and %g", i, (double)a[k], (double)b[k]);
    }
    gs_trainer_free(trainer);
    gs_context_free(ctx);
}

/* ---- models ---- */

static void test_names(void)
{
    const how h = {.kind = GPT, .mode = GS_O1, .half = GS_BF16, .threads = 1};
    job j = job_new(&h);
    static const struct {
        const char *name;
        size_t rows, cols;
        float mean, std;
    } want[] = {{"transformer.wte.weight", GPT_WORDS, 24, 0, 0.02f},
                {"transformer.wpe.weight", 16, 24, 0, 0.02f},
                {"transformer.h.1.ln_2.weight", 1, 24, 1, 0},
                {"transformer.h.0.attn.c_attn.weight", 72, 24, 0, 0.02f},
                {"transformer.h.0.attn.c_attn.bias", 1, 72, 0, 0},
                {"transformer.h.1.attn.c_proj.weight", 24, 24, 0, 0.01f},
                {"transformer.h.1.mlp.c_fc.weight", 96, 24, 0, 0.02f},
                {"transformer.h.0.mlp.c_proj.weight", 24, 96, 0, 0.01f},
                {"transformer.ln_f.bias", 1, 24, 0, 0}};
    CHECK(j.model->n == 2 + 2 * 12 + 2);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const gs_weight *w = gs_store_find(gs_trainer_store(j.trainer), want[i].name);
        CHECK_MSG(w && w->rows == want[i].rows && w->cols == want[i].cols, "%s", want[i].name);
        if (!w)
            continue;
        double sum = 0, square = 0;
        const size_t n = w->rows * w->cols;
        for (size_t k = 0; k < n; k++) {
            const double x = (double)((const float *)w->data)[k];
            CHECK(((const uint16_t *)w->copy)[k] == gs_f32_to_bf16((float)x));
            sum += x / (double)n;
            square += (x - (double)want[i].mean) * (x - (double)want[i].mean) / (double)n;
        }
        const double std = (double)want[i].std, five = 1e-12 + 5 * std / sqrt((double)n);
        CHECK_MSG(fabs(sum - (double)want[i].mean) <= five, "%s: mean %g", want[i].name, sum);
        CHECK_MSG(fabs(sqrt(square) - std) <= five, "%s: std %g", want[i].name, sqrt(square));
        CHECK((w->rows == 1) == ((w->flags & GS_NO_DECAY) != 0));
    }
    job_free(&j);
}

/* ---- autocast, as engine.h has it ---- */

static void test_autocast(void)
{
    static const struct {
        const char *op;
        gs_class class;
    } table[] = {{"linear", GS_CLASS_LOW},       {"matmul", GS_CLASS_LOW},
                 {"conv2d", GS_CLASS_LOW},       {"attention", GS_CLASS_LOW},
                 {"softmax", GS_CLASS_F32},      {"layernorm", GS_CLASS_F32},
                 {"batchnorm", GS_CLASS_F32},    {"cross_entropy", GS_CLASS_F32},
                 {"mse", GS_CLASS_F32},          {"add", GS_CLASS_WIDEST},
                 {"mul", GS_CLASS_WIDEST},       {"relu", GS_CLASS_AS_IS},
                 {"gelu", GS_CLASS_AS_IS},       {"silu", GS_CLASS_AS_IS},
                 {"gelu_erf", GS_CLASS_AS_IS},   {"select", GS_CLASS_AS_IS},
                 {"prepend", GS_CLASS_STORED},   {"rotary", GS_CLASS_AS_IS},
                 {"rmsnorm", GS_CLASS_F32},      {"dropout", GS_CLASS_AS_IS},
                 {"fake_quant", GS_CLASS_AS_IS}, {"max_pool", GS_CLASS_AS_IS},
                 {"avg_pool", GS_CLASS_AS_IS},   {"embedding", GS_CLASS_STORED},
                 {"cast", GS_CLASS_AS_IS},       {"reshape", GS_CLASS_AS_IS},
                 {"recompute", GS_CLASS_AS_IS}};
    CHECK(sizeof table / sizeof table[0] == GS_OP_COUNT);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        int found = 0;
        for (int op = 0; op < GS_OP_COUNT; op++)
            if (strcmp(gs_op_name((gs_op)op), table[i].op) == 0)
                found = 1 + (gs_op_class((gs_op)op) == table[i].class);
        CHECK_MSG(found == 2, "%s", table[i].op);
    }

    /* What really comes out of f32 and of half inputs. */
    gs_context *ctx;
    CHECK(gs_context_create(&ctx, &(gs_config){.size = sizeof(gs_config), .threads = 1}, NULL) ==
          GS_OK);
    static const float f[48];
    static const uint16_t g[48];
    static const size_t s[] = {4, 12}, image[] = {1, 2, 2, 12}, row[] = {12}, qkv[] = {1, 4, 12};
    for (int mode = GS_O0; mode <= GS_O3; mode++)
        for (int k = GS_F16; k <= GS_BF16; k++) {
            const gs_dtype half = (gs_dtype)k, low = mode == GS_O0 ? GS_F32 : half;
            const gs_dtype norm = mode <= GS_O1 ? GS_F32 : half; /* of a half input */
            gs_tape *t;
            CHECK(gs_tape_create(&t, ctx,
                                 &(gs_tape_config){.size = sizeof(gs_tape_config),
                                                   .mode = (gs_mode)mode,
                                                   .half = half}) == GS_OK);
            gs_tape_begin(t, 0, 0);
            gs_value *x = gs_input(t, GS_F32, 2, s, f), *h = gs_input(t, half, 2, s, g);
            gs_value *v = gs_input(t, GS_F32, 1, row, f);
            gs_value *xi = gs_input(t, GS_F32, 4, image, f), *hi = gs_input(t, half, 4, image, g);
            float mean[12] = {0}, var[12] = {1};
            const gs_running running = {mean, var, 0.1f};
            static const int32_t ids[] = {3, 0};
            CHECK(gs_linear(t, x, x, NULL)->dtype == low && gs_linear(t, h, x, NULL)->dtype == low);
            CHECK(gs_matmul(t, x, x, 1)->dtype == low && gs_matmul(t, h, h, 1)->dtype == low);
            CHECK(gs_conv2d(t, xi, x, NULL, 1, 1, 0)->dtype == low);
            CHECK(gs_conv2d(t, hi, x, NULL, 1, 1, 0)->dtype == low);
            CHECK(gs_attention(t, gs_input(t, GS_F32, 3, qkv, f), 2)->dtype == low);
            CHECK(gs_embedding(t, x, ids, 2)->dtype == norm); /* as weights are stored */
            CHECK(gs_prepend(t, gs_input(t, GS_F32, 3, qkv, f), v)->dtype == norm);
            CHECK(gs_prepend(t, gs_input(t, half, 3, qkv, g), v)->dtype == norm);
            CHECK(gs_select(t, gs_input(t, half, 3, qkv, g), 3)->dtype == half);
            CHECK(gs_softmax(t, x)->dtype == GS_F32 && gs_softmax(t, h)->dtype == norm);
            CHECK(gs_layernorm(t, x, v, v)->dtype == GS_F32);
            CHECK(gs_layernorm(t, h, v, v)->dtype == norm);
            CHECK(gs_batchnorm(t, x, v, v, running)->dtype == GS_F32);
            CHECK(gs_batchnorm(t, h, v, v, running)->dtype == norm);
            CHECK(gs_mse(t, h, h)->dtype == GS_F32);
            CHECK(gs_cross_entropy(t, h, (const int32_t[]){0, 1, 2, 3})->dtype == GS_F32);
            CHECK(gs_add(t, x, h)->dtype == GS_F32 && gs_add(t, h, h)->dtype == half);
            CHECK(gs_mul(t, h, x)->dtype == GS_F32 && gs_mul(t, h, h)->dtype == half);
            CHECK(gs_relu(t, h)->dtype == half && gs_gelu(t, x)->dtype == GS_F32);
            CHECK(gs_max_pool(t, hi, 2, 2, 0)->dtype == half &&
                  gs_avg_pool(t, xi, 2, 2)->dtype == 0);
            CHECK_MSG(gs_tape_status(t) == GS_OK, "%s", gs_context_error(ctx)->text);
            gs_tape_free(t);
        }
    gs_context_free(ctx);
}

/* A weight's gradient has the precision in which the operation read the weight. */
static void test_wgrad(void)
{
    for (int mode = GS_O1; mode <= GS_O3; mode++)
        for (int wide = 0; wide < 2; wide++) {
            how h = {.kind = GPT, .mode = (gs_mode)mode, .half = GS_F16, .threads = 1};
            h.scaler = "static:1024";
            h.wgrad_f32 = wide;
            job j = job_new(&h);
            step(&j, GPT, 0);
            for (size_t i = 2; i < j.model->n; i++) { /* of embeddings: test_grads.c */
                const gs_weight *w = &j.model->weights[i];
                const bool norm = strstr(w->name, "ln_");
                size_t fit = 0, n = w->rows * w->cols;
                for (size_t k = 0; k < n; k++) {
                    const float g = ((const float *)w->grad)[k];
                    fit += gs_f16_to_f32(gs_f32_to_f16(g)) == g;
                }
                const bool rounded = !wide && (!norm || mode == GS_O3);
                CHECK_MSG((fit == n) == rounded, "O%d, %s: %zu of %zu fit in f16", mode, w->name,
                          fit, n);
            }
            job_free(&j);
        }
}

/* Half-stored activations take about half the bytes. */
static void test_half_memory(void)
{
    size_t bytes[4];
    for (int mode = GS_O0; mode <= GS_O3; mode++) {
        const how h = {.kind = GPT, .mode = (gs_mode)mode, .half = GS_F16, .threads = 1};
        job j = job_new(&h);
        const gs_train_row row = step(&j, GPT, 0);
        bytes[mode] = row.memory.activations;
        CHECK(row.memory.peak >= row.memory.activations && row.memory.gradients > 0);
        job_free(&j);
    }
    CHECK_MSG(bytes[2] * 100 < bytes[0] * 55 && bytes[3] * 100 < bytes[0] * 55,
              "%zu bytes in f32, %zu in O2, %zu in O3", bytes[0], bytes[2], bytes[3]);
    CHECK_MSG(bytes[1] < bytes[0], "%zu bytes in f32, %zu in O1", bytes[0], bytes[1]);
}

TESTS({"everywhere", test_everywhere}, {"float_modes", test_float_modes}, {"learns", test_learns},
      {"steady", test_steady}, {"telemetry", test_telemetry}, {"units", test_units},
      {"no_memory", test_no_memory}, {"overflow", test_overflow}, {"injected", test_injected},
      {"accumulation", test_accumulation}, {"fresh", test_fresh}, {"names", test_names},
      {"autocast", test_autocast}, {"wgrad", test_wgrad}, {"half_memory", test_half_memory})
