/* Edges of the scaler that deliberate errors in it (make mutants) showed to be unguarded. */
#include "test.h"

#include "gradscale/scaler.h"

#include <math.h>

static gs_scaler scaler_of(const char *spec, const char *settings)
{
    gs_scaler s;
    gs_error error = {0};
    CHECK_MSG(gs_scaler_init(&s, spec, &error) == GS_OK, "%s", error.text);
    if (settings)
        CHECK_MSG(gs_scaler_set(&s, settings, &error) == GS_OK, "%s", error.text);
    return s;
}

/* All hexadecimal digits, in both cases. */
static void test_hexadecimal(void)
{
    static const struct {
        const char *text;
        double value;
    } cases[] = {{"init=0X1.8FP+3", 0x1.8Fp+3},
                 {"init=0x1.abcdef09p+3", 0x1.abcdef09p+3},
                 {"init=0x1.ABCDEF09p+3", 0x1.ABCDEF09p+3},
                 {"init=1E5", 1e5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gs_params p;
        gs_params_default(&p);
        CHECK_MSG(gs_params_set(&p, cases[i].text, NULL) == GS_OK, "%s", cases[i].text);
        CHECK(p.init == cases[i].value);
    }
    gs_params p;
    gs_params_default(&p);
    CHECK(gs_params_set(&p, "init=0x1.Gp+3", NULL) != GS_OK);
    CHECK(gs_params_set(&p, "init=0x1.gp+3", NULL) != GS_OK);
}

/* A state with one impossible number is refused, whichever it is, as text and as bytes. */
static void refused(const gs_scaler *bad, const char *what)
{
    gs_scaler into = scaler_of("pytorch", NULL);
    const gs_scaler before = into;
    static char text[GS_STATE_TEXT_MAX];
    static unsigned char bytes[GS_STATE_BINARY_MAX];
    size_t used;
    gs_error error = {0};
    CHECK(gs_scaler_save_text(text, sizeof text, &used, bad, NULL) == GS_OK);
    CHECK_MSG(gs_scaler_load_text(&into, text, used, &error) == GS_ERANGE, "%s: %s", what,
              error.text);
    CHECK(gs_scaler_save(bytes, sizeof bytes, &used, bad, NULL) == GS_OK);
    CHECK_MSG(gs_scaler_load(&into, bytes, used, &error) == GS_ERANGE, "%s: %s", what, error.text);
    CHECK(memcmp(&into, &before, sizeof into) == 0);
}

static void test_impossible_states(void)
{
    const gs_scaler good = scaler_of("pytorch", NULL);
    gs_scaler s;
#define BAD(field, value)      \
    s = good;                  \
    s.machine.field = (value); \
    refused(&s, #field)
    BAD(scale, -1);
    BAD(shown, -1);
    BAD(interval, -1);
    BAD(interval, (double)NAN);
    BAD(count, -1);
    BAD(count, (double)NAN);
    BAD(clean, -1);
    BAD(bad, -1);
    BAD(run, -1);
    BAD(it, -1);
    BAD(ovf, -1);
    BAD(last_rescale, -2);
#undef BAD
    s = good;
    s.streak.reason = UINT8_MAX; /* not the first alone that is none */
    refused(&s, "streak.reason");
    for (int to = 0; to < 2; to++) {
        s = good;
        *(to ? &s.streak.to : &s.streak.from) = -1;
        refused(&s, to ? "streak.to" : "streak.from");
    }
    static const char *const tuned[] = {"headroom", "logmax", "adaptive", "histogram"};
    for (size_t i = 0; i < sizeof tuned / sizeof tuned[0]; i++) {
        s = scaler_of(tuned[i], NULL);
        s.tune[0] = -1000;
        refused(&s, tuned[i]);
    }
}

/* Every number of the state, each with a value of its own, comes back. */
static void test_complete_states(void)
{
    gs_scaler s = scaler_of("headroom", "on_overflow=attribute fail_after=77 stuck=66");
    gs_scaler t;
    double next = 9;
    s.machine = (gs_machine){.scale = 1024,
                             .shown = 512,
                             .interval = 1,
                             .count = 2,
                             .clean = 3,
                             .bad = 4,
                             .run = 5,
                             .it = 6,
                             .last_rescale = 7,
                             .ovf = 8,
                             .ever = 1};
    s.counters.attempted = (uint64_t)next++;
    s.counters.applied = (uint64_t)next++;
    for (int i = 1; i < GS_REASON_COUNT; i++)
        s.counters.skipped[i] = (uint64_t)next++;
    s.counters.retried = (uint64_t)next++;
    s.counters.blamed = (uint64_t)next++;
    for (int i = 0; i < GS_HISTORY_MAX; i++)
        s.history[i] = (float)next++;
    for (int i = 0; i < 3; i++)
        s.mean[i] = next++;
    s.seen = (uint32_t)next++;
    s.zeros = (uint32_t)next++;
    s.event.scale = 256;
    s.event.phase = 1;
    s.event.reruns = 2;
    s.streak.from = (float)(2 * next++);
    s.streak.to = (float)next++;
    s.streak.tensor = (uint64_t)next++;
    s.streak.index = (uint64_t)next++;
    s.streak.steps = (uint32_t)next++;
    s.streak.reason = GS_REASON_NAN;
    s.streak.nan_only = 1;

    static char text[2][GS_STATE_TEXT_MAX];
    size_t used[2];
    gs_error error = {0};
    memset(&t, 0x55, sizeof t);
    CHECK(gs_scaler_save_text(text[0], sizeof text[0], &used[0], &s, NULL) == GS_OK);
    CHECK_MSG(gs_scaler_load_text(&t, text[0], used[0], &error) == GS_OK, "%s", error.text);
#define SAME(field) CHECK(memcmp(&s.field, &t.field, sizeof s.field) == 0)
    SAME(machine);
    SAME(counters);
    SAME(tune);
    SAME(history);
    SAME(mean);
    SAME(seen);
    SAME(zeros);
    SAME(event.scale);
    SAME(event.phase);
    SAME(event.reruns);
    SAME(streak.from);
    SAME(streak.to);
    SAME(streak.tensor);
    SAME(streak.index);
    SAME(streak.steps);
    SAME(streak.reason);
    SAME(streak.nan_only);
    SAME(policy);
    SAME(probing);
    SAME(rules.lowest);
    SAME(rules.highest);
    SAME(rules.retries);
    SAME(rules.stuck);
    SAME(rules.fail_after);
    SAME(rules.on_overflow);
#undef SAME
    CHECK(gs_scaler_save_text(text[1], sizeof text[1], &used[1], &t, NULL) == GS_OK);
    CHECK(used[0] == used[1] && memcmp(text[0], text[1], used[0]) == 0);
}

/* Nothing of what lay there before is left in a scaler that is made or loaded, in the padding
 * neither, so that two of them can be compared as bytes. */
static void test_loaded_bytes(void)
{
    static char text[GS_STATE_TEXT_MAX];
    static unsigned char bytes[GS_STATE_BINARY_MAX];
    gs_scaler s, t;
    size_t used;
    memset(&s, 0xAA, sizeof s);
    memset(&t, 0x55, sizeof t);
    CHECK(gs_scaler_init(&s, "megatron", NULL) == GS_OK);
    CHECK(gs_scaler_save_text(text, sizeof text, &used, &s, NULL) == GS_OK);
    CHECK(gs_scaler_load_text(&t, text, used, NULL) == GS_OK);
    CHECK(memcmp(&s, &t, sizeof s) == 0);
    memset(&t, 0x55, sizeof t);
    CHECK(gs_scaler_save(bytes, sizeof bytes, &used, &s, NULL) == GS_OK);
    CHECK(gs_scaler_load(&t, bytes, used, NULL) == GS_OK);
    CHECK(memcmp(&s, &t, sizeof s) == 0);

    gs_params p; /* whatever lies between the caller's own numbers */
    memset(&p, 0x33, sizeof p);
    CHECK(gs_params_preset(&p, "megatron", NULL) == GS_OK);
    memset((char *)&p + offsetof(gs_params, lag) + 1, 0x33,
           sizeof p - offsetof(gs_params, lag) - 1);
    CHECK(gs_scaler_init_params(&t, &p, NULL) == GS_OK);
    CHECK(memcmp(&s, &t, sizeof s) == 0);
}

/* The smallest and largest that a limit may be. */
static void test_limits(void)
{
    gs_scaler s = scaler_of("pytorch", "stuck=1 fail_after=1");
    CHECK(s.rules.stuck == 1 && s.rules.fail_after == 1);
    CHECK(gs_scaler_set(&s, "stuck=4294967295", NULL) == GS_OK && s.rules.stuck == UINT32_MAX);
    CHECK(gs_scaler_set(&s, "fail_after=none", NULL) == GS_OK && s.rules.fail_after == 0);
    CHECK(gs_scaler_set(&s, "stuck=0", NULL) == GS_ERANGE);
    CHECK(gs_scaler_set(&s, "stuck=4294967296", NULL) == GS_ERANGE);
    CHECK(s.rules.stuck == UINT32_MAX);
}

/* A step that is given up, or skipped because of another, counts as what it was. */
static void test_abandoned_and_joined(void)
{
    gs_scaler a = scaler_of("pytorch", NULL), b = a;
    gs_step steps[2];
    gs_step_begin(&steps[0], &a);
    gs_step_abandon(&steps[0], &a);
    gs_verdict v[2] = {gs_step_end(&steps[0], &a)};
    CHECK(v[0].action == GS_SKIP && v[0].reason == GS_REASON_USER);

    gs_scaler *const both[] = {&a, &b};
    gs_step_begin(&steps[0], &a);
    gs_step_begin(&steps[1], &b);
    gs_step_flag(&steps[0], 0);
    gs_step_flag(&steps[1], 1);
    gs_group_end(v, steps, both, 2, GS_SKIP_TOGETHER);
    CHECK(v[0].action == GS_SKIP && v[1].action == GS_SKIP);
    CHECK(a.counters.applied == 0 && a.counters.skipped[GS_REASON_INF] == 1);
    CHECK(b.counters.applied == 0 && b.counters.skipped[GS_REASON_INF] == 1);
    CHECK(gs_scaler_scale(&a) == 65536 && gs_scaler_scale(&b) == 32768);
}

/* A struct filled by hand can hold a word that there is not. */
static void test_words_that_are_none(void)
{
    gs_params p;
    char text[64];
    gs_params_default(&p);
    for (p.compare = 0; p.compare <= GS_COMPARE_WRAP; p.compare++)
        CHECK(gs_params_get(text, sizeof text, &p, "compare", NULL) == GS_OK && text[0]);
    CHECK(gs_params_get(text, sizeof text, &p, "compare", NULL) == GS_ERANGE);
    p.compare = 255;
    CHECK(gs_params_get(text, sizeof text, &p, "compare", NULL) == GS_ERANGE);
    CHECK(gs_params_check(&p, NULL) == GS_ERANGE);
}

/* A constant scale stays; the rerun alone has exactly half, down to the lowest. */
static void test_retry_of_a_constant_scale(void)
{
    gs_scaler s = scaler_of("static:1024", "on_overflow=retry:3");
    double want = 1024;
    for (int again = 0; again <= 3; again++) {
        gs_step step;
        gs_step_begin(&step, &s);
        CHECK(step.scale == want && step.inverse == 1 / want);
        gs_step_flag(&step, 1);
        const gs_verdict v = gs_step_end(&step, &s);
        CHECK(v.action == (again < 3 ? GS_RETRY : GS_SKIP));
        want /= 2;
        if (again < 3)
            CHECK(v.scale == want);
    }
    CHECK(gs_scaler_scale(&s) == 1024 && s.counters.retried == 3 && s.counters.attempted == 1);
}

/* Without bounds a scale may lie below those of reruns: none is made, at a scale that is higher. */
static void test_retry_below_all_bounds(void)
{
    gs_scaler s = scaler_of("pytorch", "lowest=off on_overflow=retry:3");
    gs_step step;
    CHECK(gs_scaler_set_scale(&s, 0x1p-30, NULL) == GS_OK);
    gs_step_begin(&step, &s);
    CHECK(step.scale == 0x1p-30);
    gs_step_flag(&step, 1);
    CHECK(gs_step_end(&step, &s).action == GS_SKIP && s.counters.retried == 0);
}

/* In f16, 2^13 is over the edge and all below it is not; `band` bits below is near. */
static void test_edge_of_the_histogram(void)
{
    const gs_scaler s = scaler_of("histogram", "band=2");
    for (int i = -3; i < GS_BINADES; i++) { /* zero, Inf, NaN, and each binade */
        gs_exponents x = {0};
        gs_step step;
        *(i == -3 ? &x.zero : i == -2 ? &x.inf : i == -1 ? &x.nan : &x.all[i]) = 7;
        gs_step_begin(&step, &s);
        gs_step_exponents(&step, &s, &x);
        const int bad = i == -2 || i == -1;
        CHECK(step.looked && step.flagged == bad && step.elements == (bad ? 0 : 7));
        CHECK(step.above == (i >= GS_BINADE_OF_ONE + 13 ? 7 : 0));
        CHECK(step.above_band == (i >= GS_BINADE_OF_ONE + 11 ? 7 : 0));
    }
}

/* The factor of a window is 1 unless it is applied, and finite even if nothing was good. */
static void test_factor_of_a_window(void)
{
    gs_scaler s = scaler_of("pytorch", NULL);
    for (int rejected = 0; rejected < 2; rejected++) {
        gs_window w;
        gs_window_begin(&w, &s, GS_DROP_MICROBATCH);
        for (int i = 0; i < 4; i++) {
            gs_step micro;
            gs_step_begin(&micro, &s);
            gs_step_flag(&micro, i == 2);
            CHECK(gs_window_add(&w, &micro) == (i != 2));
        }
        if (rejected)
            gs_step_reject(&w.step);
        const gs_verdict v = gs_window_end(&w, &s);
        CHECK(v.action == (rejected ? GS_SKIP : GS_APPLY));
        CHECK(v.factor == (rejected ? 1 : 4 / 3.0));
    }
    gs_scaler none = scaler_of("none", NULL);
    gs_window w;
    gs_step micro;
    gs_window_begin(&w, &none, GS_DROP_MICROBATCH);
    gs_step_begin(&micro, &none);
    gs_step_flag(&micro, 1);
    gs_window_add(&w, &micro);
    const gs_verdict v = gs_window_end(&w, &none);
    CHECK(v.action == GS_APPLY && v.factor == 1); /* no checks were asked for */
}

static void test_names_that_are_none(void)
{
    CHECK(strcmp(gs_reason_name(GS_REASON_USER), "user") == 0);
    CHECK(strcmp(gs_reason_name(GS_REASON_COUNT), "unknown") == 0);
    CHECK(strcmp(gs_reason_name((gs_reason)-1), "unknown") == 0);
    CHECK(strcmp(gs_action_name(GS_FAIL), "fail") == 0);
    CHECK(strcmp(gs_action_name(GS_ACTION_COUNT), "unknown") == 0);
    CHECK(strcmp(gs_action_name((gs_action)-1), "unknown") == 0);
}

/* The policies' own parameters, first and last, at their bounds. */
static void test_tuning(void)
{
    char text[64];
    gs_scaler headroom = scaler_of("headroom", "margin=3 history=5");
    CHECK(gs_scaler_get(text, sizeof text, &headroom, "margin", NULL) == GS_OK &&
          strtod(text, NULL) == 3);
    CHECK(gs_scaler_get(text, sizeof text, &headroom, "history", NULL) == GS_OK &&
          strtod(text, NULL) == 5);
    CHECK(gs_scaler_get(text, sizeof text, &headroom, "band", NULL) == GS_ENAME);
    size_t keys = 0, params = 0, own = 0;
    while (gs_param_key(params))
        params++;
    for (const char *key; (key = gs_scaler_key(&headroom, keys)); keys++) {
        CHECK_MSG(gs_scaler_get(text, sizeof text, &headroom, key, NULL) == GS_OK, "%s", key);
        own += strcmp(key, "margin") == 0 || strcmp(key, "half") == 0;
    }
    CHECK(own == 2 && keys == 2 + 7 + params); /* the policy's, the rules, the machine's */
    CHECK(headroom.params.state == GS_STATE_F64);
    CHECK(scaler_of("logmax", NULL).params.state == GS_STATE_F32);
    gs_scaler histogram = scaler_of("histogram", "band=16 threshold=0.5");
    CHECK(gs_scaler_set(&histogram, "band=0 threshold=0", NULL) == GS_OK);
    CHECK(gs_scaler_set(&histogram, "band=17", NULL) == GS_ERANGE);
    CHECK(gs_scaler_set(&histogram, "threshold=0.51", NULL) == GS_ERANGE);
}

/* The checksum is the CRC-32 that every tool knows, over all that comes before it. */
static void test_checksum(void)
{
    static unsigned char bytes[GS_STATE_BINARY_MAX];
    const gs_scaler s = scaler_of("deepspeed", NULL);
    size_t used;
    CHECK(gs_scaler_save(bytes, sizeof bytes, &used, &s, NULL) == GS_OK && used > 4);
    uint32_t crc = ~0u;
    for (size_t i = 0; i < used - 4; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320 : crc >> 1;
    }
    const unsigned char *p = bytes + used - 4;
    CHECK(~crc ==
          ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24));
}

TESTS({"hexadecimal", test_hexadecimal}, {"impossible_states", test_impossible_states},
      {"complete_states", test_complete_states}, {"loaded_bytes", test_loaded_bytes},
      {"limits", test_limits}, {"abandoned_and_joined", test_abandoned_and_joined},
      {"words_that_are_none", test_words_that_are_none},
      {"retry_of_a_constant_scale", test_retry_of_a_constant_scale},
      {"retry_below_all_bounds", test_retry_below_all_bounds},
      {"edge_of_the_histogram", test_edge_of_the_histogram},
      {"factor_of_a_window", test_factor_of_a_window},
      {"names_that_are_none", test_names_that_are_none}, {"tuning", test_tuning},
      {"checksum", test_checksum})
