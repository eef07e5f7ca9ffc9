/* What no run comes to by itself: text that is almost right, states by hand, groups in which one
 * has other faults than the rest. Every branch of src/scaler that a caller can reach. */
#include "test.h"

#include "gradscale/scaler.h"

#include <math.h>
#include <stdint.h>

#define ROWS(array) (sizeof(array) / sizeof((array)[0]))

static gs_scaler scaler_of(const char *spec, const char *settings)
{
    gs_scaler s;
    gs_error error = {0};
    CHECK_MSG(gs_scaler_init(&s, spec, &error) == GS_OK &&
                  gs_scaler_set(&s, settings, &error) == GS_OK,
              "%s %s: %s", spec, settings, error.text);
    return s;
}

static gs_verdict run(gs_scaler *s, double amax)
{
    gs_step step;
    gs_step_begin(&step, s);
    gs_step_amax(&step, amax);
    return gs_step_end(&step, s);
}

static gs_verdict run_flag(gs_scaler *s, int found)
{
    gs_step step;
    gs_step_begin(&step, s);
    gs_step_flag(&step, found);
    return gs_step_end(&step, s);
}

/* ---- text ---- */

static void test_values_that_are_refused(void)
{
    static const char *const refused[] = {"init=1.2.3",
                                          "init=",
                                          "init=1e400",
                                          "init=nan",
                                          "init=12z",
                                          "init=0000000000000000000000000000000000000000000000001",
                                          "growth=0.5",
                                          "interval=-1",
                                          "interval=1.5",
                                          "state=f8",
                                          "refill=clean+never",
                                          "lowest=0",
                                          "lowest=-3",
                                          "lowest=inf",
                                          "lowest=many",
                                          "stuck=0",
                                          "stuck=x",
                                          "stuck=5000000000",
                                          "on_overflow=retry:x",
                                          "on_overflow=retry:0",
                                          "on_overflow=retry:101",
                                          "on_overflow=stop",
                                          "probe=maybe",
                                          "half=f99",
                                          "half=f8e4m3",
                                          "init",
                                          "=3",
                                          "a_key_that_is_longer_than_any_key_that_there_could_be=1",
                                          "unknown=1"};
    static const char *const taken[] = {"init=+3",     "init=0x1.8p+4", "lowest=off",
                                        "stuck=none",  "probe=yes",     "probe=no",
                                        "half=bf16",   "half=f32",      "half=f16",
                                        "refill=none", "interval=none", "on_overflow=retry:100"};
    for (size_t i = 0; i < ROWS(refused); i++) {
        gs_scaler s = scaler_of("pytorch", ""), before = s;
        gs_params p = s.params;
        gs_error error = {0};
        CHECK_MSG(gs_scaler_set(&s, refused[i], &error) != GS_OK && error.text[0], "%s",
                  refused[i]);
        CHECK(memcmp(&s, &before, sizeof s) == 0);
        CHECK_MSG(gs_params_set(&p, refused[i], &error) != GS_OK, "%s", refused[i]);
    }
    for (size_t i = 0; i < ROWS(taken); i++)
        scaler_of("pytorch", taken[i]);
}

static void test_names_that_are_not_there(void)
{
    const gs_scaler s = scaler_of("headroom", "");
    gs_params p = s.params;
    gs_error error;
    char text[64], small[2];
    CHECK(gs_params_preset(&p, NULL, &error) == GS_ENAME);
    CHECK(gs_params_get(text, sizeof text, &p, NULL, &error) == GS_ENAME);
    CHECK(strstr(error.text, "without a name"));
    CHECK(gs_params_get(text, sizeof text, &p, "nothing", &error) == GS_ENAME);
    CHECK(gs_scaler_get(text, sizeof text, &s, NULL, &error) == GS_ENAME);
    CHECK(gs_scaler_get(small, sizeof small, &s, "margin", &error) == GS_ESIZE);
    CHECK(gs_scaler_get(small, sizeof small, &s, "half", &error) == GS_ESIZE);
    CHECK(gs_params_get(small, sizeof small, &p, "state", &error) == GS_ESIZE);
    CHECK(strcmp(gs_health_name((gs_health)99), "unknown") == 0);
    p.refill = 7;
    CHECK(gs_params_get(text, sizeof text, &p, "refill", &error) == GS_OK);
    p.state = 77;
    CHECK(gs_params_get(text, sizeof text, &p, "state", &error) == GS_ERANGE);
    CHECK(gs_params_check(&p, &error) == GS_ERANGE);
    const gs_scaler logmax = scaler_of("logmax", ""); /* all tunes are used */
    CHECK(strcmp(gs_scaler_key(&logmax, 2), "sigmas") == 0 && gs_scaler_key(&logmax, 3));
}

/* ---- states ---- */

static uint32_t crc(const char *p, size_t n)
{
    uint32_t c = ~0u;
    for (size_t i = 0; i < n; i++) {
        c ^= (unsigned char)p[i];
        for (int bit = 0; bit < 8; bit++)
            c = c >> 1 ^ (0xEDB88320 & -(c & 1));
    }
    return ~c;
}

/* The state as text, with the line of `key` replaced, and a checksum that fits. */
static gs_status load_with(const char *key, const char *line)
{
    char text[GS_STATE_TEXT_MAX], other[GS_STATE_TEXT_MAX + 256];
    size_t used;
    const gs_scaler s = scaler_of("pytorch", "");
    gs_scaler loaded = s;
    gs_error error;
    CHECK(gs_scaler_save_text(text, sizeof text, &used, &s, NULL) == GS_OK);
    char *at = strstr(text, key), *end = at ? strchr(at, '\n') : NULL;
    CHECK_MSG(end, "there is no line %s", key);
    if (!end)
        return GS_OK;
    *end = 0;
    end++;
    *at = 0;
    snprintf(other, sizeof other, "%s%s\n%s", text, line, end);
    char *sum = strstr(other, "checksum=");
    snprintf(sum, 32, "checksum=%08x\n", (unsigned)crc(other, (size_t)(sum - other)));
    const gs_status status = gs_scaler_load_text(&loaded, other, strlen(other), &error);
    CHECK(status == GS_OK || memcmp(&loaded, &s, sizeof s) == 0);
    return status;
}

static void test_lines_of_a_state(void)
{
    static const char *const bad[][2] = {{"machine.scale=", "machine.scale=big"},
                                         {"machine.scale=", "machine.scale"},
                                         {"machine.scale=", "machine_scale=0x1p+16"},
                                         {"machine.clean=", "machine.clean="},
                                         {"machine.clean=", "machine.clean=-"},
                                         {"machine.clean=", "machine.clean=1x"},
                                         {"machine.clean=", "machine.clean=9223372036854775808"},
                                         {"machine.clean=", "machine.clean=18446744073709551616"},
                                         {"machine.clean=", "machine.clean=-5"},
                                         {"event.reruns=", "event.reruns=300"},
                                         {"event.reruns=", "event.reruns=2"},
                                         {"event.scale=", "event.scale=0x1p+3"},
                                         {"event.phase=", "event.phase=1"},
                                         {"streak.steps=", "streak.steps=4294967296"}};
    CHECK(load_with("machine.clean=", "machine.clean=5") == GS_OK);
    for (size_t i = 0; i < ROWS(bad); i++)
        CHECK_MSG(load_with(bad[i][0], bad[i][1]) != GS_OK, "%s", bad[i][1]);
}

/* A rerun that a state speaks of has a scale, and was asked for. */
static void test_reruns_of_a_state(void)
{
    char text[GS_STATE_TEXT_MAX];
    size_t used;
    gs_error error;
    gs_scaler s = scaler_of("pytorch", "on_overflow=attribute"), again;
    CHECK(run_flag(&s, 1).action == GS_RETRY);
    CHECK(gs_scaler_save_text(text, sizeof text, &used, &s, NULL) == GS_OK &&
          gs_scaler_load_text(&again, text, used, &error) == GS_OK);
    for (int k = 0; k < 3; k++) {
        gs_scaler bad = s;
        if (k == 0)
            bad.event.scale = 0;
        else if (k == 1)
            bad.event.scale = (double)INFINITY;
        else
            bad.event.reruns = 0;
        if (gs_scaler_save_text(text, sizeof text, &used, &bad, NULL) == GS_OK)
            CHECK(gs_scaler_load_text(&again, text, used, &error) == GS_ERANGE);
    }
}

/* ---- words ---- */

static void test_explanations(void)
{
    const gs_tensor list[] = {{NULL, 0, GS_F32, "first", NULL}, {NULL, 0, GS_F32, NULL, NULL}};
    char text[512] = "old", *none = text;
    gs_scaler s = scaler_of("pytorch", "stuck=3");
    CHECK(gs_scaler_explain(none, 0, &s, NULL, 0) == none && strcmp(text, "old") == 0);
    CHECK(gs_scaler_health(&s) == GS_CALIBRATING);
    run(&s, 1);
    CHECK(gs_scaler_health(&s) == GS_HEALTHY);
    gs_scaler probing = scaler_of("pytorch", "probe=yes");
    probing.counters.applied = 1;
    CHECK(gs_scaler_health(&probing) == GS_CALIBRATING);
    gs_scaler foreign = s;
    foreign.size = 3;
    CHECK(gs_scaler_health(&foreign) == GS_HEALTH_COUNT);
    CHECK(strstr(gs_scaler_explain(text, sizeof text, &foreign, NULL, 0), "version") ||
          text[0] != 0);

    /* who it was: a name, a number, an index without a tensor */
    for (int k = 0; k < 4; k++) {
        gs_step step;
        gs_stats stats;
        gs_stats_init(&stats);
        stats.elements = stats.inf = 1;
        stats.bad_tensor = k == 0 ? 0 : k == 1 ? 1 : k == 2 ? 9 : GS_NONE;
        stats.bad_index = 7;
        gs_step_begin(&step, &s);
        gs_step_scan(&step, &stats);
        gs_step_end(&step, &s);
        gs_scaler_explain(text, sizeof text, &s, list, 2);
        CHECK_MSG(strstr(text, k == 0 ? "first[7]" : "tensor"), "%s", text);
    }
    CHECK(gs_scaler_health(&s) == GS_STUCK);
    s.rules.stuck = 0;
    CHECK(gs_scaler_health(&s) != GS_STUCK);

    /* NaN at one scale, at many; Inf at many, and at all of them */
    s = scaler_of("pytorch", "");
    run(&s, (double)NAN);
    CHECK(strstr(gs_scaler_explain(text, sizeof text, &s, NULL, 0), "is NaN at a scale of"));
    for (int i = 0; i < 6; i++)
        run(&s, (double)NAN);
    CHECK(strstr(gs_scaler_explain(text, sizeof text, &s, NULL, 0), "is NaN at every scale"));
    s = scaler_of("pytorch", "lowest=1");
    for (int i = 0; i < 6; i++)
        run(&s, (double)INFINITY);
    CHECK(strstr(gs_scaler_explain(text, sizeof text, &s, NULL, 0), "is infinite at a scale of"));
    for (int i = 0; i < 30; i++)
        run(&s, (double)INFINITY);
    CHECK(strstr(gs_scaler_explain(text, sizeof text, &s, NULL, 0), "the lowest allowed"));
}

/* ---- policies ---- */

static void test_findings_that_policies_get(void)
{
    gs_scaler s = scaler_of("adaptive", "");
    const double gain = s.tune[0];
    static const double amax[] = {0, 1e300, (double)INFINITY, (double)NAN, 0.5};
    for (size_t i = 0; i < ROWS(amax); i++) {
        const gs_finding finding = {.amax = amax[i]};
        CHECK(gs_scaler_update_with(&s, &finding) == 0);
        CHECK_MSG((s.machine.scale == gain) == (i < 4), "amax %g: scale %g", amax[i],
                  s.machine.scale);
    }
    /* headroom: overflows, then flags alone, with a history shorter and longer than they are */
    static const char *const histories[] = {"history=1", "history=2", "history=16"};
    for (size_t k = 0; k < ROWS(histories); k++) {
        gs_scaler h = scaler_of("headroom", histories[k]);
        run_flag(&h, 0);
        CHECK(gs_scaler_scale(&h) > 0);
        h = scaler_of("headroom", histories[k]);
        for (int i = 0; i < 4; i++)
            run_flag(&h, 1);
        run_flag(&h, 0);
        CHECK(gs_scaler_scale(&h) > 0);
        h = scaler_of("headroom", histories[k]);
        run(&h, 100);
        for (int i = 0; i < 3; i++)
            run_flag(&h, 1);
        run_flag(&h, 0);
        for (int i = 0; i < 5; i++)
            run(&h, 0);
        run_flag(&h, 1);
        CHECK(isfinite(gs_scaler_scale(&h)));
        /* a history of zeros alone has nothing to follow */
        h = scaler_of("headroom", histories[k]);
        const double before = gs_scaler_scale(&h);
        const gs_finding tiny = {.amax = 1e-300}; /* 0 in the history's f32 */
        gs_scaler_update_with(&h, &tiny);
        CHECK(gs_scaler_scale(&h) == before);
        const gs_finding huge = {.amax = 1e300}; /* beyond f32 */
        gs_scaler_update_with(&h, &huge);
        CHECK(gs_scaler_scale(&h) > 0 && isfinite(h.history[0]) && isfinite(h.history[1]));
    }
}

static void test_attribution_of_policies(void)
{
    static const char *const specs[] = {"headroom", "histogram", "pytorch", "megatron"};
    for (size_t k = 0; k < ROWS(specs); k++)
        for (int flags = 0; flags < 2; flags++) {
            gs_scaler s = scaler_of(specs[k], "on_overflow=attribute");
            const gs_verdict v = flags ? run_flag(&s, 1) : run(&s, (double)INFINITY);
            CHECK(v.action == GS_RETRY && v.scale > 0);
            /* cured at half of the scale */
            const gs_verdict cured = flags ? run_flag(&s, 0) : run(&s, 20000);
            CHECK_MSG(cured.action == GS_APPLY && cured.scale <= 0x1p+40, "%s", specs[k]);
        }
}

/* A window, a good micro-batch for it, and one that nothing has been said of. */
static gs_window window_of(gs_scaler *s, gs_step *good, gs_step *bad)
{
    gs_window w;
    gs_window_begin(&w, s, GS_DROP_MICROBATCH);
    gs_step_begin(good, s);
    *bad = *good;
    gs_step_amax(good, 3);
    return w;
}

static void test_probe_and_windows(void)
{
    for (int probing = 0; probing < 2; probing++) {
        gs_scaler s = scaler_of("pytorch", probing ? "probe=yes" : "");
        const double before = gs_scaler_scale(&s);
        gs_step good, bad;
        gs_window w = window_of(&s, &good, &bad);
        gs_step_flag(&bad, 1);
        gs_window_add(&w, &good);
        gs_window_add(&w, &bad);
        gs_window_add(&w, &good);
        const gs_verdict v = gs_window_end(&w, &s);
        CHECK(v.action == GS_APPLY && v.factor == 1.5 && gs_scaler_scale(&s) < before);
    }
    gs_scaler high = scaler_of("pytorch", "probe=yes"); /* the first scale is too high already */
    const double first = gs_scaler_scale(&high);
    CHECK(run(&high, 60000).action == GS_APPLY && gs_scaler_scale(&high) < first);
    CHECK(high.probing == 0);
    high = scaler_of("pytorch", "probe=yes highest=65536"); /* zeros tell nothing: probe on */
    CHECK(run(&high, 0).action == GS_APPLY && gs_scaler_scale(&high) == 65536 && high.probing);
    /* what makes a micro-batch bad: rejected, the loss, a flag, an infinity */
    for (int k = 0; k < 4; k++) {
        gs_scaler s = scaler_of("pytorch", "");
        gs_step good, bad;
        gs_window w = window_of(&s, &good, &bad);
        if (k == 0)
            gs_step_reject(&bad);
        else if (k == 1)
            gs_step_loss(&bad, (double)NAN);
        else if (k == 2)
            gs_step_flag(&bad, 1);
        else
            gs_step_amax(&bad, (double)INFINITY);
        CHECK(gs_window_add(&w, &good) && !gs_window_add(&w, &bad));
        CHECK(gs_window_end(&w, &s).action == GS_APPLY);
    }
}

/* ---- steps ---- */

static void test_reasons(void)
{
    gs_scaler s = scaler_of("pytorch", "");
    gs_step step;
    gs_stats stats;
    gs_stats_init(&stats);
    stats.elements = stats.nan = 1;
    gs_step_begin(&step, &s);
    gs_step_scan(&step, &stats);
    gs_step_flag(&step, 1); /* the flag says no more than the count of NaN */
    CHECK(gs_step_end(&step, &s).reason == GS_REASON_NAN);

    /* steps of which none reaches the policy */
    gs_step steps[2];
    const double before = gs_scaler_scale(&s);
    for (int i = 0; i < 2; i++) {
        gs_step_begin(&steps[i], &s);
        gs_step_reject(&steps[i]);
    }
    CHECK(gs_steps_end(steps, 2, &s, NULL) == GS_OK && gs_scaler_scale(&s) == before);
    CHECK(s.counters.skipped[GS_REASON_USER] == 1);
    CHECK(gs_steps_end(steps, 2, &s, NULL) == GS_OK); /* they have ended */
    CHECK(s.counters.skipped[GS_REASON_USER] == 1);

    /* exponents for a scaler of another version */
    const gs_exponents x = {.zero = 3};
    gs_scaler foreign = s;
    foreign.size = 1;
    gs_step_begin(&step, &s);
    gs_step_exponents(&step, &foreign, &x);
    CHECK(gs_step_end(&step, &s).reason == GS_REASON_VERSION);
}

/* ---- groups ---- */

/* One scaler of the group wants this, another that: what becomes of both. */
static void test_groups_with_different_faults(void)
{
    static const char *const modes[] = {"on_overflow=skip", "on_overflow=retry:2",
                                        "on_overflow=attribute"};
    for (size_t a = 0; a < ROWS(modes); a++)
        for (size_t b = 0; b < ROWS(modes); b++)
            for (int outcomes = 0; outcomes < 81; outcomes++)
                for (int coupling = 0; coupling < 3; coupling++) {
                    gs_scaler one = scaler_of("pytorch", modes[a]),
                              two = scaler_of("pytorch", modes[b]);
                    gs_scaler *const scalers[] = {&one, &two, &one};
                    gs_verdict v[3] = {{0}};
                    int rest = outcomes;
                    for (int round = 0; round < 4; round++) {
                        gs_step steps[3];
                        for (int i = 0; i < 3; i++) {
                            gs_step_begin(&steps[i], scalers[i]);
                            const int what = i == 2 ? 0 : rest % 3;
                            rest = i == 2 ? rest : rest / 3;
                            if (what == 0)
                                gs_step_amax(&steps[i], 5);
                            else if (what == 1)
                                gs_step_flag(&steps[i], 1);
                            else
                                gs_step_reject(&steps[i]);
                        }
                        gs_group_end(v, steps, scalers, 3, (gs_coupling)coupling);
                        if (coupling != GS_INDEPENDENT)
                            CHECK(v[0].action == v[1].action && v[1].action == v[2].action);
                    }
                    CHECK(one.streak.steps < 100 && two.counters.retried < 100);
                    CHECK(one.counters.applied <= one.counters.attempted);
                }
    /* one fails, and the other would only skip */
    gs_scaler fails = scaler_of("pytorch", "fail_after=1"), skips = scaler_of("pytorch", "");
    gs_scaler *const both[] = {&fails, &skips};
    gs_step two[2];
    gs_verdict end[2];
    for (int i = 0; i < 2; i++) {
        gs_step_begin(&two[i], both[i]);
        gs_step_flag(&two[i], 1);
    }
    gs_group_end(end, two, both, 2, GS_SKIP_TOGETHER);
    CHECK(end[0].action == GS_FAIL && end[1].action == GS_SKIP);
    CHECK(skips.counters.skipped[GS_REASON_INF] == 1);

    gs_scaler made = scaler_of("pytorch", ""), foreign = made;
    foreign.size = 1;
    gs_scaler *const scalers[] = {&made, &foreign};
    gs_step steps[2];
    gs_verdict v[2];
    gs_step_begin(&steps[0], &made);
    gs_step_begin(&steps[1], &made);
    gs_group_end(v, steps, scalers, 2, GS_SKIP_TOGETHER);
    CHECK(v[0].reason == GS_REASON_VERSION && v[1].reason == GS_REASON_VERSION);
}

TESTS({"values_that_are_refused", test_values_that_are_refused},
      {"names_that_are_not_there", test_names_that_are_not_there},
      {"lines_of_a_state", test_lines_of_a_state}, {"reruns_of_a_state", test_reruns_of_a_state},
      {"explanations", test_explanations},
      {"findings_that_policies_get", test_findings_that_policies_get},
      {"attribution_of_policies", test_attribution_of_policies},
      {"probe_and_windows", test_probe_and_windows}, {"reasons", test_reasons},
      {"groups_with_different_faults", test_groups_with_different_faults})
