/* The raw machine, against a second opinion, and its parameters. */
#include "scaler_model.h"
#include "scaler_params.h"
#include "test.h"

#include "gradscale/scaler.h"

#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define ROWS(array) (sizeof(array) / sizeof((array)[0]))

/* ---- the machine against the model ---- */

static void test_against_the_model(void)
{
    const int rounds = test_long() ? 200000 : 4000;
    for (int round = 0; round < rounds; round++) {
        const uint64_t seed = random_at;
        const gs_params p = random_params();
        bool found[STEPS], raised[STEPS];
        double shown[STEPS];
        const uint32_t share = 1 + below(12);
        for (int i = 0; i < STEPS; i++)
            found[i] = below(share) == 0;
        model(&p, found, shown, raised);

        gs_scaler s;
        gs_error error = {0};
        CHECK_MSG(gs_scaler_init_params(&s, &p, &error) == GS_OK, "%s", error.text);
        CHECK(gs_scaler_set(&s, "lowest=off highest=off", NULL) == GS_OK); /* as it is */
        for (int i = 0; i < STEPS; i++) {
            const int r = gs_scaler_update(&s, found[i]);
            const double got = gs_scaler_scale(&s);
            const bool same = got == shown[i] || (isnan(got) && isnan(shown[i]));
            CHECK_MSG(same && r == raised[i], "seed %llu step %d: %a, model %a; raises %d, %d",
                      (unsigned long long)seed, i, got, shown[i], r, raised[i]);
            if (!same || r != raised[i])
                break;
        }
    }
}

/* Points of the description that no recording need contain. */
static void test_corners(void)
{
    gs_scaler s;
    gs_params p;
    gs_params_default(&p);
    p.interval = 0;
    gs_scaler_init_params(&s, &p, NULL);
    for (int i = 0; i < 10; i++)
        gs_scaler_update(&s, 0);
    CHECK(gs_scaler_scale(&s) == 65536); /* EQ with 0 never grows */
    p.compare = GS_COMPARE_GE;
    gs_scaler_init_params(&s, &p, NULL);
    for (int i = 0; i < 10; i++)
        gs_scaler_update(&s, 0);
    CHECK(gs_scaler_scale(&s) == 0x1p+26); /* GE with 0 always */

    /* 166 overflows take 65536 to 0, which absorbs */
    gs_scaler_init(&s, "pytorch", NULL);
    gs_scaler_set(&s, "lowest=off highest=off", NULL);
    for (int i = 0; i < 165; i++)
        gs_scaler_update(&s, 1);
    CHECK(gs_scaler_scale(&s) == 0x1p-149);
    gs_scaler_update(&s, 1);
    CHECK(gs_scaler_scale(&s) == 0);
    for (int i = 0; i < 2000; i++)
        gs_scaler_update(&s, 0);
    CHECK(gs_scaler_scale(&s) == 0);

    /* the second division by zero of fairseq: raised, and only ovf counts on */
    gs_scaler_init(&s, "fairseq", NULL);
    gs_scaler_set(&s, "init=0x1p-13 err_min=0x1p-13", NULL);
    CHECK(gs_scaler_update(&s, 1) == 1);
    const gs_machine before = s.machine;
    CHECK(gs_scaler_update(&s, 1) == 1);
    CHECK(s.machine.ovf == before.ovf + 1 && s.machine.it == before.it &&
          s.machine.bad == before.bad && s.machine.scale == before.scale);

    /* f64 -> f16 rounds once: just above a tie goes up, where f32 in between would lose that */
    gs_params_default(&p);
    p.state = GS_STATE_F16;
    p.init = 1 + 0x1p-11 + 0x1p-40;
    gs_scaler_init_params(&s, &p, NULL);
    CHECK(gs_scaler_scale(&s) == 1 + 0x1p-10);
    p.init = 1 + 0x1p-11;
    gs_scaler_init_params(&s, &p, NULL);
    CHECK(gs_scaler_scale(&s) == 1);
}

/* A caller's rounding mode and flush-to-zero change no bit. */
static void test_callers_modes(void)
{
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
    for (int round = 0; round < 200; round++) {
        const gs_params p = random_params();
        gs_scaler plain, odd;
        gs_scaler_init_params(&plain, &p, NULL);
        odd = plain;
        for (int i = 0; i < 100; i++) {
            const int found = below(3) == 0;
            const int raises = gs_scaler_update(&plain, found);
            fesetround(modes[round % 4]);
#if defined(__x86_64__)
            _mm_setcsr(_mm_getcsr() | 0x8040); /* FTZ and DAZ */
#endif
            const int also = gs_scaler_update(&odd, found);
#if defined(__x86_64__)
            _mm_setcsr(_mm_getcsr() & ~0x8040u);
#endif
            fesetround(FE_TONEAREST);
            CHECK(raises == also && memcmp(&plain.machine, &odd.machine, sizeof odd.machine) == 0);
        }
    }
}

/* ---- parameters ---- */

static void refused(const char *spec, const char *set, gs_status status, const char *message)
{
    gs_scaler s, before;
    gs_error error = {0};
    CHECK(gs_scaler_init(&s, spec, &error) == GS_OK);
    before = s;
    const gs_status got = gs_scaler_set(&s, set, &error);
    CHECK_MSG(got == status && strcmp(error.text, message) == 0, "%s: %s: '%s'", set,
              gs_status_name(got), error.text);
    CHECK(memcmp(&s, &before, sizeof s) == 0);
}

static void test_messages(void)
{
    static const struct {
        const char *set;
        gs_status status;
        const char *message;
    } rows[] = {
        {"init=0", GS_ERANGE, "init=0: init must be greater than 0"},
        {"init=-1", GS_ERANGE, "init=-1: init must be greater than 0"},
        {"init=inf", GS_ERANGE, "init=inf: init must be a finite number"},
        {"init=nan", GS_ERANGE, "init=nan: init must be a finite number"},
        {"init=", GS_ERANGE, "init=: init must be a finite number"},
        {"init=1x", GS_ERANGE, "init=1x: init must be a finite number"},
        {"init=1e999", GS_ERANGE, "init=1e999: init must be a finite number"},
        {"growth=0.5", GS_ERANGE, "growth=0.5: growth must be at least 1"},
        {"growth=1", GS_ERANGE,
         "growth=1 makes a constant scale, which needs backoff=1 too, not 0.5"},
        {"backoff=1", GS_ERANGE,
         "backoff=1: with back_op=wide it is a factor and must be less than 1"},
        {"backoff=0", GS_ERANGE, "backoff=0: backoff must be greater than 0"},
        {"back_op=div", GS_ERANGE,
         "backoff=0.5: with back_op=div it is a divisor and must be greater than 1"},
        {"back_op=sub", GS_ERANGE, "back_op=sub: back_op must be wide, state, div or recip"},
        {"grow_op=div", GS_ERANGE, "grow_op=div: grow_op must be wide or state"},
        {"state=f8", GS_ERANGE, "state=f8: state must be f16, f32 or f64"},
        {"interval=-1", GS_ERANGE,
         "interval=-1: interval must be a whole number from 0 to 2^53, or none"},
        {"interval=1.5", GS_ERANGE,
         "interval=1.5: interval must be a whole number from 0 to 2^53, or none"},
        {"interval=1e30", GS_ERANGE,
         "interval=1e30: interval must be a whole number from 0 to 2^53, or none"},
        {"interval=0 compare=wrap", GS_ERANGE,
         "interval=0: with compare=wrap it must be at least 1"},
        {"bad_limit=x", GS_ERANGE,
         "bad_limit=x: bad_limit must be a whole number from 0 to 2^53, or none"},
        {"refill=clean+always", GS_ERANGE,
         "refill=clean+always: refill must be none, or a list joined with + of clean, growth or "
         "backoff"},
        {"refill=", GS_ERANGE,
         "refill=: refill must be none, or a list joined with + of clean, growth or backoff"},
        {"tolerance=-0.1", GS_ERANGE, "tolerance=-0.1: tolerance must be at least 0"},
        {"floor=-1", GS_ERANGE, "floor=-1: floor must be at least 0, or none"},
        {"max=0", GS_ERANGE, "max=0: max must be greater than 0, or none"},
        {"floor=4 max=2", GS_ERANGE, "floor=4 is greater than max=2"},
        {"err=le-after", GS_ERANGE, "err=le-after needs err_min"},
        {"lag=2", GS_ERANGE, "lag=2: lag must be 0 or 1"},
        {"window_follows=0.5", GS_ERANGE,
         "window_follows=0.5: window_follows must be at least 1, or none"},
        {"warm_growth=1", GS_ERANGE, "warm_growth=1: warm_growth must be greater than 1, or none"},
        {"groth=2", GS_ENAME, "unknown key 'groth'"},
        {"growth", GS_EFORMAT, "'growth' is not key=value"},
        {"=2", GS_EFORMAT, "'=2' is not key=value"},
        {"lowest=0", GS_ERANGE, "lowest=0: lowest must be a finite number greater than 0, or off"},
        {"lowest=4 highest=2", GS_ERANGE, "lowest=4 is greater than highest=2"},
        {"max=0x1p-30", GS_ERANGE,
         "the bounds 5.96046e-08..1.09951e+12 (lowest, highest) and nan..9.31323e-10 (floor, max) "
         "do not meet"},
        {"stuck=0", GS_ERANGE,
         "stuck=0: stuck must be a whole number from 1 to 4294967295, or none"},
        {"on_overflow=retry:0", GS_ERANGE,
         "on_overflow=retry:0: on_overflow must be skip, retry:N with N from 1 to 100, or "
         "attribute"},
        {"probe=maybe", GS_ERANGE, "probe=maybe: probe must be yes or no"},
        {"half=f64", GS_ERANGE, "half=f64: half must be f16, bf16 or f32"},
        {"margin=2", GS_ENAME, "unknown key 'margin'"},
    };
    for (size_t i = 0; i < ROWS(rows); i++)
        refused("pytorch", rows[i].set, rows[i].status, rows[i].message);
    refused("headroom", "history=17", GS_ERANGE,
            "history=17: history must be a whole number from 1 to 16");
    refused("headroom", "margin=x", GS_ERANGE, "margin=x: margin must be a number");
    refused("headroom", "growth=2", GS_ENAME, "growth is not a key of the policy headroom");
    refused("logmax", "probe=yes", GS_ERANGE,
            "probe=yes: the policy logmax finds its scale by itself");

    gs_scaler s;
    gs_error error;
    static const struct {
        const char *spec, *message;
    } specs[] = {
        {"pytroch",
         "unknown scaler 'pytroch': not a preset, nor static:S, guard, headroom, logmax, "
         "adaptive, histogram or none"},
        {"static", "'static' needs a scale: static:128"},
        {"static:0", "static:0: the scale must be a finite number greater than 0"},
        {"static:inf", "static:inf: the scale must be a finite number greater than 0"},
        {"static:", "static:: the scale must be a finite number greater than 0"},
    };
    for (size_t i = 0; i < ROWS(specs); i++) {
        CHECK(gs_scaler_init(&s, specs[i].spec, &error) != GS_OK);
        CHECK_MSG(strcmp(error.text, specs[i].message) == 0, "%s", error.text);
    }
    gs_params p;
    CHECK(gs_params_preset(&p, "no", &error) == GS_ENAME &&
          strcmp(error.text, "unknown preset 'no'") == 0);
    gs_params_default(&p);
    p.compare = 9;
    CHECK(gs_scaler_init_params(&s, &p, &error) == GS_ERANGE &&
          strcmp(error.text, "compare holds 9, which means nothing") == 0);
    CHECK(gs_scaler_init(&s, "pytorch", NULL) == GS_OK &&
          gs_scaler_set_scale(&s, 0, &error) == GS_ERANGE &&
          strcmp(error.text, "a scale of 0: it must be finite and greater than 0 in f32") == 0);
    gs_step step;
    gs_step_begin(&step, &s);
    gs_step_flag(&step, 0);
    gs_step_end(&step, &s);
    CHECK(gs_scaler_set(&s, "init=2", &error) == GS_ESTATE &&
          strcmp(error.text, "init can only be set before the first step") == 0);
}

/* What is written is read back to the same bits, whatever the locale. */
static void test_text_of_values(void)
{
    for (int round = 0; round < 2000; round++) {
        const gs_params p = random_params();
        gs_params q;
        gs_params_default(&q);
        for (size_t k = 0; gs_param_key(k); k++) {
            char value[64], pair[128];
            CHECK(gs_params_get(value, sizeof value, &p, gs_param_key(k), NULL) == GS_OK);
            snprintf(pair, sizeof pair, "%s=%s", gs_param_key(k), value);
            CHECK(gs_params_set(&q, pair, NULL) == GS_OK);
            CHECK(gs_params_get(pair, sizeof pair, &q, gs_param_key(k), NULL) == GS_OK);
            CHECK(strcmp(value, pair) == 0);
        }
    }
    gs_scaler meet;
    gs_scaler_init(&meet, NULL, NULL);
    CHECK(gs_scaler_set(&meet, "lowest=2 max=2", NULL) == GS_OK); /* equal is no contradiction */
    CHECK(gs_scaler_set(&meet, "max=none highest=2 floor=2", NULL) == GS_OK);
    CHECK(gs_scaler_set(&meet, "max=2", NULL) == GS_OK);
    gs_params p;
    char value[64];
    gs_params_default(&p);
    CHECK(gs_params_set(&p, "growth=2.5 init=0x1.8P3 interval=0x1p+3 refill=growth+clean", NULL) ==
          GS_OK);
    CHECK(p.growth == 2.5 && p.init == 12 && p.interval == 8 && p.refill == 3);
    CHECK(gs_params_get(value, 4, &p, "growth", NULL) == GS_ESIZE);
    CHECK(gs_params_get(value, sizeof value, &p, "nothing", NULL) == GS_ENAME);
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") || setlocale(LC_NUMERIC, "fr_FR.UTF-8")) {
        CHECK(gs_params_set(&p, "growth=2.5", NULL) == GS_OK && p.growth == 2.5);
        CHECK(gs_params_set(&p, "growth=2,5", NULL) == GS_ERANGE);
        setlocale(LC_NUMERIC, "C");
    }

    gs_scaler s;
    static const char *const pairs[] = {"on_overflow=retry:7", "on_overflow=attribute",
                                        "probe=yes",           "lowest=off",
                                        "highest=0x1p+20",     "stuck=none",
                                        "fail_after=9",        "half=bf16",
                                        "highest=0x1p+10",     "highest=0x1p+100",
                                        "highest=0x1p+1000"};
    for (size_t i = 0; i < ROWS(pairs); i++) {
        char key[64];
        gs_scaler_init(&s, NULL, NULL);
        CHECK(gs_scaler_set(&s, pairs[i], NULL) == GS_OK);
        snprintf(key, sizeof key, "%s", pairs[i]);
        *strchr(key, '=') = 0;
        CHECK(gs_scaler_get(value, sizeof value, &s, key, NULL) == GS_OK);
        CHECK_MSG(strcmp(value, strchr(pairs[i], '=') + 1) == 0, "%s: %s", pairs[i], value);
    }
}

TESTS({"against_the_model", test_against_the_model}, {"corners", test_corners},
      {"callers_modes", test_callers_modes}, {"messages", test_messages},
      {"text_of_values", test_text_of_values})
