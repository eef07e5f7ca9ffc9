/* The doors through which a scaler comes in: init, set, resume, load; other versions' structs. */
#include "scaler_steps.h"

#include "gradscale/optim.h"
#include "gradscale/trace.h"

/* ---- one answer about the scale ---- */

/* gs_scaler_scale, step.scale and verdict.scale agree, and an overflow leads down from there. */
static void agree(gs_scaler *s, double scale, const char *door)
{
    gs_step step;
    gs_step_begin(&step, s);
    gs_step_reject(&step);
    CHECK_MSG(gs_scaler_scale(s) == scale && step.scale == scale &&
                  gs_step_decide(&step, s).scale == scale,
              "%s: %a, %a, %a", door, gs_scaler_scale(s), step.scale,
              gs_step_decide(&step, s).scale);
    const double next = flag(s, 1).scale;
    const double lower = fmax(scale / 2, s->rules.lowest);
    CHECK_MSG(next == (s->params.growth == 1 ? scale : lower), "%s: %a", door, next);
    CHECK(gs_scaler_scale(s) == next);
}

static void test_every_door(void)
{
    static const struct {
        const char *set;
        double given, shown;
    } rows[] = {
        {"", 0x1p+60, 0x1p+40},
        {"", 0x1p+20, 0x1p+20},
        {"highest=0x1p+70", 0x1p+60, 0x1p+60},
        {"highest=off", 0x1p+60, 0x1p+60},
        {"highest=0x1p+10", 0x1p+60, 0x1p+10},
        {"lowest=0x1p-10", 0x1p-8, 0x1p-8},
        {"lowest=0x1p-3", 0x1p-8, 0x1p-3},
        {"lowest=off", 0x1p-30, 0x1p-30},
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        gs_scaler s = make("pytorch", rows[i].set), t;
        const double shown = rows[i].shown;
        CHECK(gs_scaler_set_scale(&s, rows[i].given, NULL) == GS_OK);
        agree(&s, shown, "set_scale");
        s = make("pytorch", rows[i].set);
        CHECK(gs_scaler_resume(&s, rows[i].given, 7, NULL) == GS_OK && s.machine.count == 7);
        agree(&s, shown, "resume");

        char list[128], text[GS_STATE_TEXT_MAX];
        snprintf(list, sizeof list, "%s init=%a", rows[i].set, rows[i].given);
        s = make("pytorch", list);
        agree(&s, shown, "set init");
        gs_params p;
        gs_params_preset(&p, "pytorch", NULL);
        p.init = rows[i].given;
        CHECK(gs_scaler_init_params(&s, &p, NULL) == GS_OK);
        CHECK(gs_scaler_set(&s, rows[i].set, NULL) == GS_OK);
        t = s;
        agree(&s, shown, "init_params");

        t.machine.scale = t.machine.shown = rows[i].given; /* as 0.1 saved after set_scale */
        size_t used;
        CHECK(gs_scaler_save_text(text, sizeof text, &used, &t, NULL) == GS_OK);
        CHECK(gs_scaler_load_text(&s, text, used, NULL) == GS_OK);
        agree(&s, shown, "load");
    }
    gs_scaler s = make("pytorch", "lowest=0x1p-3"); /* and below */
    CHECK(gs_scaler_set_scale(&s, 0x1p-8, NULL) == GS_OK && gs_scaler_scale(&s) == 0x1p-3);
    s = make("pytorch", "lowest=0x1p-3 init=0x1p-8");
    CHECK(gs_scaler_scale(&s) == 0x1p-3 && flag(&s, 0).scale == 0x1p-3);
    s = make("pytorch", ""); /* what was brought to a bound stays there without it */
    CHECK(gs_scaler_set_scale(&s, 0x1p+60, NULL) == GS_OK);
    CHECK(gs_scaler_set(&s, "highest=off", NULL) == GS_OK && gs_scaler_scale(&s) == 0x1p+40);
    /* a constant scale is what was asked for; its bounds make room */
    s = make("static:1152921504606846976", "");
    agree(&s, 0x1p+60, "static");
    /* bounds that close in on a scale */
    s = make("pytorch", "");
    flag(&s, 0);
    CHECK(gs_scaler_set(&s, "highest=256", NULL) == GS_OK);
    agree(&s, 256, "highest");
    /* raw updates are the framework's: shown inside the bounds, as they are without */
    s = make("pytorch", "");
    for (int i = 0; i < 60; i++)
        gs_scaler_update(&s, 1);
    CHECK(gs_scaler_scale(&s) == 0x1p-24 && s.machine.scale == 0x1p-44);
    CHECK(gs_scaler_set(&s, "lowest=off", NULL) == GS_OK && gs_scaler_scale(&s) == 0x1p-44);
    /* the disabled one is 1 whatever its bounds */
    s = make("none", "lowest=2");
    gs_step step;
    gs_step_begin(&step, &s);
    CHECK(gs_scaler_scale(&s) == 1 && step.scale == 1);
}

/* ---- going on from another implementation's state ---- */

/* The scale after each step as PyTorch recorded it. */
static size_t recorded(double *scales, bool *found, const gs_trace *trace, size_t room)
{
    size_t n = 0, at = 0;
    for (size_t run = 0; run < trace->run_count; run++)
        for (uint64_t k = 0; k < trace->runs[run] && n < room; k++)
            found[n++] = run % 2 == 1;
    double now = 0;
    for (const char *p = trace->scale; p && *p;) {
        char *end;
        p += strspn(p, " ");
        const size_t i = strncmp(p, "start", 5) == 0 ? 0 : (size_t)strtoull(p, NULL, 10) + 1;
        for (; at < i && at <= n; at++)
            scales[at] = now;
        now = strtod(strchr(p, ':') + 1, &end);
        p = *end == ' ' ? end : NULL;
    }
    for (; at <= n; at++)
        scales[at] = now;
    return n;
}

static void test_resume_pytorch(void)
{
    enum { ROOM = 20000 };
    static double scales[ROOM + 1];
    static bool found[ROOM];
    gs_trace_file *file;
    const gs_trace *trace;
    size_t cuts = 0;
    CHECK(gs_trace_open(&file, "tests/traces/pytorch.trace", NULL, NULL) == GS_OK);
    while (gs_trace_next(&trace, file, NULL) == GS_OK && trace) {
        const size_t n = recorded(scales, found, trace, ROOM);
        int64_t tracker = 0; /* what state_dict()["_growth_tracker"] says */
        for (size_t cut = 0; cut < n; cut++) {
            if (cut > 0)
                tracker = found[cut - 1] || scales[cut] > scales[cut - 1] ? 0 : tracker + 1;
            if (cut % 37 || !(scales[cut] > 0) || !isfinite(scales[cut]))
                continue;
            gs_scaler s = make("pytorch", "lowest=off highest=off");
            CHECK(gs_scaler_set(&s, trace->set, NULL) == GS_OK);
            CHECK(gs_scaler_resume(&s, scales[cut], tracker, NULL) == GS_OK);
            bool same = gs_scaler_scale(&s) == scales[cut];
            for (size_t i = cut; i < n && same; i++) {
                gs_scaler_update(&s, found[i]);
                same = gs_scaler_scale(&s) == scales[i + 1];
            }
            CHECK_MSG(same, "%s from %zu", trace->name, cut);
            cuts++;
        }
    }
    gs_trace_close(file);
    CHECK_MSG(cuts > 50, "%zu", cuts);
}

static void test_resume(void)
{
    gs_error error;
    gs_scaler s = make("megatron", "on_overflow=retry:3 probe=yes");
    flag(&s, 1); /* a probe, an overflow of the two, a rerun */
    CHECK(gs_scaler_resume(&s, 4096, 999, &error) == GS_OK && !s.probing);
    CHECK(s.machine.bad == 0 && s.machine.clean == 999 && s.counters.attempted == 1);
    gs_step step;
    gs_step_begin(&step, &s);
    CHECK(step.scale == 4096);
    gs_step_flag(&step, 0);
    CHECK(gs_step_end(&step, &s).scale == 8192);
    const gs_scaler before = s;
    CHECK(gs_scaler_resume(&s, 4096, -1, &error) == GS_ERANGE &&
          strcmp(error.text, "-1 clean steps: the count must be 0 to 2^53") == 0);
    CHECK(gs_scaler_resume(&s, 4096, INT64_MAX, &error) == GS_ERANGE);
    CHECK(gs_scaler_resume(&s, 0, 5, &error) == GS_ERANGE &&
          strcmp(error.text, "a scale of 0: it must be finite and greater than 0 in f32") == 0);
    CHECK(gs_scaler_resume(&s, (double)NAN, 5, &error) == GS_ERANGE);
    CHECK(memcmp(&s, &before, sizeof s) == 0);
    CHECK(gs_scaler_resume(&s, 3, INT64_C(1) << 53, &error) == GS_OK);
}

/* ---- versions ---- */

static size_t slurp(char *bytes, size_t room, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "tests/data/%s", name);
    FILE *file = fopen(path, "rb");
    CHECK_MSG(file != NULL, "%s", path);
    const size_t n = file ? fread(bytes, 1, room, file) : 0;
    if (file)
        fclose(file);
    return n;
}

/* States that 0.1 wrote, in the middle of a rerun and with a history: they load, and are written
 * again to the same bytes. */
static void test_states_of_0_1(void)
{
    static const char *const stems[] = {"retry", "headroom"};
    for (size_t i = 0; i < ROWS(stems); i++) {
        char name[64], was[GS_STATE_TEXT_MAX], is[GS_STATE_TEXT_MAX];
        gs_scaler from_text, from_bytes;
        gs_error error = {0};
        size_t used;
        snprintf(name, sizeof name, "scaler-0.1-%s.txt", stems[i]);
        size_t n = slurp(was, sizeof was, name);
        CHECK_MSG(gs_scaler_load_text(&from_text, was, n, &error) == GS_OK, "%s", error.text);
        CHECK(gs_scaler_save_text(is, sizeof is, &used, &from_text, NULL) == GS_OK);
        CHECK(used == n && memcmp(was, is, n) == 0);
        snprintf(name, sizeof name, "scaler-0.1-%s.bin", stems[i]);
        n = slurp(was, sizeof was, name);
        CHECK_MSG(gs_scaler_load(&from_bytes, was, n, &error) == GS_OK, "%s", error.text);
        CHECK(gs_scaler_save(is, sizeof is, &used, &from_bytes, NULL) == GS_OK);
        CHECK(used == n && memcmp(was, is, n) == 0);
        CHECK(memcmp(&from_text, &from_bytes, sizeof from_text) == 0);
    }
}

static bool is_version(gs_verdict v)
{
    return v.action == GS_FAIL && v.reason == GS_REASON_VERSION && isnan(v.scale) && v.factor == 1;
}

static void test_scaler_of_another_version(void)
{
    const uint32_t sizes[] = {0, sizeof(gs_scaler) - 8, sizeof(gs_scaler) + 8, UINT32_MAX};
    for (size_t i = 0; i < ROWS(sizes); i++) {
        gs_scaler s = make("pytorch", "");
        gs_step step, good;
        gs_error error = {0};
        char text[GS_STATE_TEXT_MAX];
        size_t used;
        gs_step_begin(&good, &s);
        gs_step_flag(&good, 0);
        s.size = sizes[i];
        const gs_scaler before = s;
        CHECK(gs_scaler_set(&s, "growth=3", &error) == GS_EVERSION);
        CHECK(strstr(error.text, "it was not made by gs_scaler_init, or by another version"));
        gs_error of[3] = {{0}};
        CHECK(gs_scaler_get(text, sizeof text, &s, "growth", &of[0]) == GS_EVERSION);
        CHECK(gs_scaler_key(&s, 0) == NULL && isnan(gs_scaler_scale(&s)));
        CHECK(gs_scaler_set_scale(&s, 2, &error) == GS_EVERSION);
        CHECK(gs_scaler_resume(&s, 2, 2, NULL) == GS_EVERSION);
        CHECK(gs_scaler_update(&s, 1) == -1);
        CHECK(gs_scaler_save(text, sizeof text, &used, &s, &of[1]) == GS_EVERSION);
        CHECK(gs_scaler_save_text(text, sizeof text, &used, &s, &of[2]) == GS_EVERSION);
        for (size_t k = 0; k < ROWS(of); k++)
            CHECK(of[k].status == GS_EVERSION && strcmp(of[k].text, error.text) == 0);
        CHECK(gs_scaler_health(&s) == GS_HEALTH_COUNT);
        CHECK(strcmp(gs_scaler_explain(text, sizeof text, &s, NULL, 0), error.text) == 0);
        CHECK(is_version(gs_step_decide(&good, &s)) && is_version(gs_step_end(&good, &s)));
        gs_step_abandon(&good, &s);
        CHECK(!good.ended && gs_steps_end(&good, 1, &s, &error) == GS_EVERSION);
        gs_step_begin(&step, &s);
        gs_step_flag(&step, 0);
        CHECK(isnan(step.scale) && is_version(gs_step_end(&step, &s)));
        CHECK(memcmp(&s, &before, sizeof s) == 0);

        gs_scaler ok = make("pytorch", ""), *const two[] = {&ok, &s};
        for (int coupling = GS_INDEPENDENT; coupling <= GS_SCALE_TOGETHER; coupling++) {
            gs_step steps[2];
            gs_verdict v[2];
            gs_step_begin(&steps[0], &ok);
            gs_step_begin(&steps[1], &s);
            gs_step_flag(&steps[0], 0);
            gs_group_end(v, steps, two, 2, (gs_coupling)coupling);
            CHECK(is_version(v[1]));
            CHECK(coupling == GS_INDEPENDENT ? v[0].action == GS_APPLY : is_version(v[0]));
        }
        gs_window w;
        gs_window_begin(&w, &s, GS_SKIP_WINDOW);
        CHECK(gs_window_add(&w, &good) == 0 && is_version(gs_window_end(&w, &s)));
    }
    CHECK(strcmp(gs_reason_name(GS_REASON_VERSION), "version") == 0);
}

static void test_step_of_another_version(void)
{
    gs_scaler s = make("pytorch", "");
    const gs_scaler before = s;
    gs_context *ctx;
    gs_error error;
    float g[1] = {1};
    const gs_tensor list[] = {{g, 1, GS_F32, "g", 0}};
    gs_step old, good;
    gs_exponents x = {0};
    gs_stats stats;
    gs_stats_init(&stats);
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    memset(&old, 0x55, sizeof old); /* not begun */
    const gs_step was = old;
    gs_step_loss(&old, (double)NAN);
    gs_step_scan(&old, &stats);
    gs_step_scan_unscaled(&old, &stats);
    gs_step_sums(&old, 1, 1, 1, 1);
    gs_step_flag(&old, 1);
    gs_step_amax(&old, 1);
    gs_step_exponents(&old, &s, &x);
    gs_step_reject(&old);
    gs_step_abandon(&old, &s);
    CHECK(gs_step_unscale(&old, ctx, NULL, list, 1) == GS_EVERSION && g[0] == 1);
    CHECK(strstr(gs_context_error(ctx)->text, "it was not made by gs_step_begin"));
    CHECK(is_version(gs_step_decide(&old, &s)) && is_version(gs_step_end(&old, &s)));
    CHECK(gs_steps_end(&old, 1, &s, &error) == GS_EVERSION);
    gs_step_begin(&good, &s);
    gs_step_merge(&old, &good);
    CHECK(memcmp(&old, &was, sizeof old) == 0 && memcmp(&s, &before, sizeof s) == 0);

    /* what it saw is not known: neither the sum nor the window is applied */
    gs_step_flag(&good, 0);
    gs_step_merge(&good, &old);
    CHECK(is_version(gs_step_end(&good, &s)));
    for (int rule = GS_SKIP_WINDOW; rule <= GS_DROP_MICROBATCH; rule++) {
        gs_window w, all;
        gs_window_begin(&w, &s, (gs_window_rule)rule);
        gs_window_begin(&all, &s, (gs_window_rule)rule);
        gs_step_begin(&good, &s);
        gs_step_flag(&good, 0);
        CHECK(gs_window_add(&w, &good) == 1);
        gs_window_add(&w, &old);
        gs_window_merge(&all, &w);
        CHECK(is_version(gs_window_end(&w, &s)));
        CHECK(is_version(gs_window_end(&all, &s)));
    }
    CHECK(memcmp(&s, &before, sizeof s) == 0);
    gs_context_free(ctx);
}

static void test_optimizer_and_versions(void)
{
    gs_context *ctx;
    gs_optim *optim;
    gs_optim_config config = {.size = sizeof config};
    gs_scaler s = make("pytorch", ""), old = s;
    gs_step step, unmade = {0};
    float weight = 1, grad = 65536;
    const gs_weight list[] = {{.name = "w",
                               .rows = 1,
                               .cols = 1,
                               .data = &weight,
                               .dtype = GS_F32,
                               .grad = &grad,
                               .grad_dtype = GS_F32}};
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_optim_config_init(&config, "sgd", NULL) == GS_OK);
    CHECK(gs_optim_config_set(&config, "lr=0.5", NULL) == GS_OK);
    CHECK(gs_optim_create(&optim, ctx, list, 1, &config) == GS_OK);
    old.size = 0;
    gs_step_begin(&step, &s);
    CHECK(gs_optim_step(optim, &step, &old, NULL) == GS_EVERSION);
    CHECK(gs_optim_step(optim, &unmade, &s, NULL) == GS_EVERSION);
    CHECK(gs_optim_scan(optim, &unmade) == GS_EVERSION);
    CHECK(gs_optim_act(optim, &unmade, gs_step_decide(&step, &s), NULL) == GS_EVERSION);
    CHECK(weight == 1 && gs_optim_step(optim, &step, &s, NULL) == GS_OK && weight == 0.5f);
    /* gradients that the caller has unscaled are not unscaled again */
    const gs_tensor grads[] = {{&grad, 1, GS_F32, "w", 0}};
    gs_stats stats;
    gs_step_begin(&step, &s);
    CHECK(gs_tensors_scale(ctx, grads, 1, (float)step.inverse, &stats) == GS_OK && grad == 1);
    gs_step_scan_unscaled(&step, &stats);
    CHECK(gs_optim_step(optim, &step, &s, NULL) == GS_OK && weight == 0);
    gs_optim_free(optim);
    gs_context_free(ctx);
}

TESTS({"every_door", test_every_door}, {"resume_pytorch", test_resume_pytorch},
      {"resume", test_resume}, {"states_of_0_1", test_states_of_0_1},
      {"scaler_of_another_version", test_scaler_of_another_version},
      {"step_of_another_version", test_step_of_another_version},
      {"optimizer_and_versions", test_optimizer_and_versions})
