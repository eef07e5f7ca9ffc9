/* Saving and loading the scaler, anywhere; damaged states. */
#include "scaler_params.h"
#include "test.h"

#include "scaler/scaler.h"

#include <math.h>
#include <stdbool.h>

#define ROWS(array) (sizeof(array) / sizeof((array)[0]))

/* ---- state ---- */

/* Runs one made-up step of the protocol; the same stream makes the same steps. */
static gs_verdict made_up_step(gs_scaler *s, uint64_t seed, uint64_t i)
{
    const uint32_t r = gs_random_u32(seed, i);
    gs_step step;
    gs_step_begin(&step, s);
    if (r % 50 == 0)
        gs_step_loss(&step, (double)NAN);
    if (r % 31 == 1)
        gs_step_flag(&step, (int)(r >> 8 & 1));
    else
        gs_step_amax(&step, r % 9 == 0 ? (double)(r % 2 ? NAN : INFINITY)
                                       : ldexp(1, (int)(r % 20) - 30) * step.scale);
    return gs_step_end(&step, s);
}

static const char *const specs[] = {"pytorch", "megatron", "metaseq",  "mxnet",    "fairseq",
                                    "chainer", "headroom", "logmax",   "adaptive", "histogram",
                                    "none",    "guard",    "static:8", "jmp",      "deepspeed"};

static void test_accelerate4289_metaseq3_save_anywhere(void)
{
    static const char *const sets[] = {"", "on_overflow=retry:2", "on_overflow=attribute stuck=3",
                                       "lowest=off highest=off"};
    for (size_t k = 0; k < ROWS(specs); k++)
        for (size_t m = 0; m < ROWS(sets); m++) {
            gs_scaler a, b, c;
            CHECK(gs_scaler_init(&a, specs[k], NULL) == GS_OK);
            CHECK(gs_scaler_set(&a, sets[m], NULL) == GS_OK);
            if (a.policy == GS_POLICY_MACHINE && m < 2 && a.params.growth > 1)
                CHECK(gs_scaler_set(&a, "interval=3 probe=yes", NULL) == GS_OK);
            b = c = a;
            for (uint64_t i = 0; i < 120; i++) {
                char text[GS_STATE_TEXT_MAX];
                unsigned char bytes[GS_STATE_BINARY_MAX];
                size_t n;
                gs_error error = {0};
                CHECK(gs_scaler_save_text(text, sizeof text, &n, &b, NULL) == GS_OK &&
                      n == strlen(text));
                memset(&b, 0x55, sizeof b);
                CHECK_MSG(gs_scaler_load_text(&b, text, n, &error) == GS_OK, "%s %s", specs[k],
                          error.text);
                CHECK(gs_scaler_save(bytes, sizeof bytes, &n, &c, NULL) == GS_OK);
                memset(&c, 0x55, sizeof c);
                CHECK(gs_scaler_load(&c, bytes, n, &error) == GS_OK);
                const gs_verdict va = made_up_step(&a, k, i);
                made_up_step(&b, k, i);
                made_up_step(&c, k, i);
                char other[GS_STATE_TEXT_MAX];
                gs_scaler_save_text(text, sizeof text, &n, &a, NULL);
                gs_scaler_save_text(other, sizeof other, &n, &b, NULL);
                CHECK(strcmp(text, other) == 0);
                gs_scaler_save_text(other, sizeof other, &n, &c, NULL);
                CHECK(strcmp(text, other) == 0);
                if (m < 3)
                    CHECK(isfinite(va.scale) && va.scale > 0);
            }
        }
}

static void test_any_raw_state_is_saveable(void)
{
    for (int round = 0; round < 60; round++) {
        const gs_params p = random_params();
        gs_scaler s, t;
        gs_scaler_init_params(&s, &p, NULL);
        s.rules.lowest = s.rules.highest = (double)NAN;
        for (int i = 0; i < 200; i++) {
            unsigned char bytes[GS_STATE_BINARY_MAX];
            char text[GS_STATE_TEXT_MAX];
            size_t n;
            gs_error error = {0};
            gs_scaler_update(&s, below(2) == 0);
            CHECK(gs_scaler_save(bytes, sizeof bytes, &n, &s, NULL) == GS_OK);
            CHECK_MSG(gs_scaler_load(&t, bytes, n, &error) == GS_OK, "%s", error.text);
            CHECK(memcmp(&t.machine, &s.machine, sizeof t.machine) == 0);
            CHECK(gs_scaler_save_text(text, sizeof text, &n, &s, NULL) == GS_OK);
            CHECK_MSG(gs_scaler_load_text(&t, text, n, &error) == GS_OK, "%s", error.text);
        }
    }
}

static void test_damage(void)
{
    gs_scaler s, t;
    gs_error error;
    unsigned char bytes[GS_STATE_BINARY_MAX + 1];
    char text[GS_STATE_TEXT_MAX];
    size_t n, m;
    gs_scaler_init(&s, "pytorch", NULL);
    gs_scaler_init(&t, "megatron", NULL);
    const gs_scaler before = t;
    CHECK(gs_scaler_save(bytes, 10, &n, &s, NULL) == GS_ESIZE);
    CHECK(gs_scaler_save_text(text, 100, &n, &s, NULL) == GS_ESIZE);
    CHECK(gs_scaler_save(bytes, sizeof bytes, &n, &s, NULL) == GS_OK);
    CHECK(gs_scaler_save_text(text, sizeof text, &m, &s, NULL) == GS_OK);

    for (size_t cut = 0; cut < n; cut++)
        CHECK(gs_scaler_load(&t, bytes, cut, &error) == GS_EFORMAT);
    CHECK(gs_scaler_load(&t, bytes, n + 1, &error) == GS_EFORMAT);
    for (size_t cut = 0; cut < m; cut++)
        CHECK(gs_scaler_load_text(&t, text, cut, &error) == GS_EFORMAT ||
              error.status == GS_EVERSION || error.status == GS_ECHECKSUM);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        CHECK(gs_scaler_load(&t, bytes, n, &error) != GS_OK);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t bit = 0; bit < 8 * m; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        CHECK_MSG(gs_scaler_load_text(&t, text, m, &error) != GS_OK, "bit %zu", bit);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
    }
    CHECK(memcmp(&t, &before, sizeof t) == 0);

    /* Each with its own error message. */
    CHECK(gs_scaler_load(&t, "nonsense", 8, &error) == GS_EFORMAT &&
          strcmp(error.text, "the state is cut off in its header") != 0);
    CHECK(strcmp(error.text, "this is not the state of a scaler") == 0);
    for (size_t cut = 8; cut < 16; cut++)
        CHECK(gs_scaler_load(&t, bytes, cut, &error) == GS_EFORMAT &&
              strcmp(error.text, "the state is cut off in its header") == 0);
    bytes[8] = 2;
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_EVERSION &&
          strcmp(error.text, "the state has version 2; this library knows version 1") == 0);
    bytes[8] = 1;
    bytes[100] ^= 4;
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_ECHECKSUM &&
          strcmp(error.text, "the state is damaged: its checksum does not match") == 0);
    bytes[100] ^= 4;
    CHECK(gs_scaler_load(&t, bytes, n - 1, &error) == GS_EFORMAT &&
          strstr(error.text, "the state is cut off or too long: ") == error.text);
    CHECK(gs_scaler_load_text(&t, "gradscale scaler 9\n", 19, &error) == GS_EVERSION &&
          strcmp(error.text, "the state has version 9; this library knows version 1") == 0);
    CHECK(gs_scaler_load_text(&t, text, 40, &error) == GS_EFORMAT &&
          strcmp(error.text, "the state is cut off before params.init") == 0);

    /* Senseless parameters with a checksum that fits. */
    gs_scaler bad = s;
    bad.params.growth = 0.5;
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE &&
          strstr(error.text, "growth must be at least 1"));
    bad = s;
    bad.policy = 77;
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE &&
          strcmp(error.text, "the state has policy 77, of which there is none") == 0);
    bad = s;
    bad.machine.clean = -4;
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE &&
          strcmp(error.text, "the state has a negative counter or scale") == 0);
    bad = s;
    for (int i = 0; i < 6; i++) { /* the first number of each that has no meaning */
        bad = s;
        bad.rules.on_overflow = i == 0 ? GS_ON_ATTRIBUTE + 1 : s.rules.on_overflow;
        bad.rules.probe = i == 1 ? 2 : s.rules.probe;
        bad.streak.nan_only = i == 2 ? 2 : s.streak.nan_only;
        bad.streak.reason = i == 3 ? GS_REASON_COUNT : s.streak.reason;
        bad.probing = i == 4 ? GSI_PROBES : s.probing;
        bad.event.phase = i == 5 ? GSI_PHASES : s.event.phase;
        gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
        CHECK_MSG(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE &&
                      strcmp(error.text, "the state has a rule or phase that does not exist") == 0,
                  "%d: %s", i, error.text);
    }
    bad = s;
    bad.event.phase = 1;
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE &&
          strstr(error.text, "the state has a rerun without a scale"));
    bad = s;
    bad.rules.half = 4;
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE &&
          strcmp(error.text, "the state has half format 4, of which there is none") == 0);
    bad = s;
    bad.history[3] = -1;
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE &&
          strcmp(error.text, "the state has an amax in its history that is none") == 0);
    bad = s;
    bad.machine.it = INT64_MAX; /* the next step would overflow it */
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE &&
          strcmp(error.text, "the state has a counter beyond 2^62") == 0);
    bad = s; /* a streak where an unbounded machine's scale is NaN: steps make it */
    CHECK(gs_scaler_set(&bad, "lowest=off highest=off", NULL) == GS_OK);
    bad.machine.scale = bad.machine.shown = (double)NAN;
    for (int i = 0; i < 3; i++) {
        gs_step step;
        gs_step_begin(&step, &bad);
        gs_step_flag(&step, 1);
        gs_step_end(&step, &bad);
    }
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    gs_scaler nan;
    CHECK_MSG(gs_scaler_load(&nan, bytes, n, &error) == GS_OK, "%s", error.text);
    bad = s;
    bad.machine.interval = 0; /* a count modulo that is NaN */
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE &&
          strcmp(error.text, "the state has no interval, and its parameters have one") == 0);
    static const double bounds[][2] = {
        {0, 1}, {-1, 1}, {(double)INFINITY, (double)INFINITY}, {(double)NAN, 0}, {(double)NAN, -1}};
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        bad = s;
        bad.rules.lowest = bounds[i][0];
        bad.rules.highest = bounds[i][1];
        gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
        CHECK_MSG(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE &&
                      strstr(error.text, "must be a finite number greater than 0, or off"),
                  "%zu: %s", i, error.text);
    }
    /* A rerun begins inside the bounds too. */
    bad = s;
    bad.event.phase = 2;
    bad.event.reruns = 1;
    bad.event.scale = (double)INFINITY;
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    CHECK(gs_scaler_load(&t, bytes, n, &error) == GS_ERANGE);
    bad.event.scale = 0x1p+100;
    gs_scaler_save(bytes, sizeof bytes, &n, &bad, NULL);
    CHECK(gs_scaler_load(&bad, bytes, n, &error) == GS_OK);
    gs_step step;
    gs_step_begin(&step, &bad);
    CHECK(step.scale == 0x1p+40);
    char longer[GS_STATE_TEXT_MAX + 8];
    snprintf(longer, sizeof longer, "%s\n", text);
    CHECK(gs_scaler_load_text(&t, longer, m + 1, &error) == GS_EFORMAT &&
          strcmp(error.text, "the state goes on behind its checksum") == 0);
    CHECK(gs_scaler_load_text(&t, text, m - 1, &error) == GS_EFORMAT &&
          strcmp(error.text, "the state is cut off before its checksum") == 0);
    CHECK(gs_scaler_load_text(&t, "gradscale scaler_1\n", 19, &error) == GS_EFORMAT &&
          strcmp(error.text, "this is not the state of a scaler") == 0);
    CHECK(gs_scaler_load_text(&t, "hello\n", 6, &error) == GS_EFORMAT &&
          strcmp(error.text, "this is not the state of a scaler") == 0);
    for (int width = 60; width < 130; width++) { /* a line as long as any buffer for it */
        const int length = snprintf(longer, sizeof longer, "gradscale scaler %0*d\n", width, 1);
        CHECK(gs_scaler_load_text(&t, longer, (size_t)length, &error) == GS_EVERSION);
    }
    CHECK(memcmp(&t, &before, sizeof t) == 0);
}

static void test_size(void)
{
    CHECK_MSG(sizeof(gs_scaler) <= 512, "%zu", sizeof(gs_scaler));
    CHECK(gs_param_key(GS_PARAM_COUNT - 1) && !gs_param_key(GS_PARAM_COUNT));
}

/* At the last count a scaler goes on, and stays one that can be loaded. */
static void test_last_count(void)
{
    unsigned char bytes[GS_STATE_BINARY_MAX];
    gs_scaler s, t;
    gs_error error = {0};
    size_t n;
    CHECK(gs_scaler_init(&s, "pytorch", NULL) == GS_OK);
    s.machine.it = s.machine.clean = s.machine.bad = s.machine.run = INT64_C(1) << 62;
    for (int i = 0; i < 5; i++) {
        CHECK(gs_scaler_save(bytes, sizeof bytes, &n, &s, NULL) == GS_OK);
        CHECK_MSG(gs_scaler_load(&t, bytes, n, &error) == GS_OK, "step %d: %s", i, error.text);
        gs_scaler_update(&s, i % 2);
    }
}

TESTS({"last_count", test_last_count},
      {"accelerate4289_metaseq3_save_anywhere", test_accelerate4289_metaseq3_save_anywhere},
      {"any_raw_state_is_saveable", test_any_raw_state_is_saveable}, {"damage", test_damage},
      {"size", test_size})
