/* Every sequence of outcomes, through the real scaler: all presets and policies, skipping, retrying
 * and attributing, with and without a probe. What must hold after each run of a batch:
 *
 *  (1) the scale is finite, > 0 and inside [lowest, highest];
 *  (2) attribute asks for at most 3 reruns of a batch, retry:N for at most N;
 *  (3) deciding twice gives one verdict;
 *  (4) whatever came before, good batches (finite at scales up to 2^10) are soon applied again,
 *      unless the scale is constant or the framework raises.
 *
 *     GS_LONG=1 build/tests/test_scaler_all      length 20, 10^9 random steps: some 4 minutes */
#include "test.h"

#include "gradscale/scaler.h"

#include <math.h>
#include <stdbool.h>

#define ROWS(array) (sizeof(array) / sizeof((array)[0]))

static const char *const policies[] = {"headroom",  "logmax", "adaptive",
                                       "histogram", "guard",  "static:4096"};
static const char *const modes[] = {
    "on_overflow=skip",      "on_overflow=retry:1",        "on_overflow=retry:4",
    "on_overflow=attribute", "probe=yes on_overflow=skip", "probe=yes on_overflow=attribute"};

/* What a run of the batch finds. */
typedef enum result { CLEAN, FOUND, LARGE, RESULTS } result;

typedef struct bounds {
    double lowest, highest;
    unsigned reruns;
    const char *spec, *mode;
    uint64_t runs, leaves, slowest;
} bounds;

static gs_verdict take(gs_scaler *s, result r, bounds *b)
{
    gs_step step;
    gs_step_begin(&step, s);
    CHECK_MSG(isfinite(step.scale) && step.scale >= b->lowest && step.scale <= b->highest,
              "%s %s: scale %g", b->spec, b->mode, step.scale);
    if (r == FOUND)
        gs_step_flag(&step, 1);
    else /* a large one leaves no room above */
        gs_step_amax(&step, r == LARGE ? 60000 : fmin(0x1p-10 * step.scale, 60000));
    const gs_verdict v = gs_step_decide(&step, s), again = gs_step_end(&step, s);
    CHECK(v.action == again.action && v.reason == again.reason && v.scale == again.scale);
    CHECK_MSG(s->event.reruns <= b->reruns, "%s %s: %u reruns", b->spec, b->mode, s->event.reruns);
    b->runs++;
    return v;
}

/* Good batches from here on: how many until one is applied. */
static void end_well(gs_scaler s, bounds *b)
{
    enum { PATIENCE = 4000 };
    const bool constant = s.policy == GS_POLICY_MACHINE && s.params.growth == 1;
    gs_verdict v = {.action = GS_SKIP};
    uint64_t n = 0;
    b->leaves++;
    if (constant && s.rules.on_overflow != GS_ON_ATTRIBUTE)
        return;
    for (; v.action != GS_APPLY && v.action != GS_FAIL && n < PATIENCE; n++) {
        gs_step step;
        gs_step_begin(&step, &s);
        v = take(&s, step.scale > 0x1p+10 ? FOUND : CLEAN, b);
    }
    b->slowest = n > b->slowest ? n : b->slowest;
    CHECK_MSG(v.action == GS_APPLY || v.action == GS_FAIL, "%s %s: a good batch starves", b->spec,
              b->mode);
}

static void all_sequences(const gs_scaler *s, int left, int results, bounds *b)
{
    if (left == 0) {
        if (b->runs % 61 == 0)
            end_well(*s, b);
        return;
    }
    for (int r = 0; r < results; r++) {
        gs_scaler next = *s;
        if (take(&next, (result)r, b).action != GS_FAIL)
            all_sequences(&next, left - 1, results, b);
    }
}

/* False: there is no such scaler. */
static bool begin(gs_scaler *s, bounds *b, const char *spec, const char *mode)
{
    if (gs_scaler_init(s, spec, NULL) != GS_OK || gs_scaler_set(s, mode, NULL) != GS_OK)
        return false;
    if (s->policy == GS_POLICY_MACHINE && s->params.growth > 1) /* growth comes into reach */
        gs_scaler_set(s, s->params.compare == GS_COMPARE_WRAP ? "interval=3" : "interval=2", NULL);
    *b = (bounds){.lowest = s->rules.lowest,
                  .highest = s->rules.highest,
                  .reruns = s->rules.on_overflow == GS_ON_ATTRIBUTE ? 3
                            : s->rules.on_overflow == GS_ON_RETRY   ? s->rules.retries
                                                                    : 0,
                  .spec = spec,
                  .mode = mode};
    return true;
}

static const char *spec_at(size_t i)
{
    size_t presets = 0;
    while (gs_preset_name(presets))
        presets++;
    return i < presets                    ? gs_preset_name(i)
           : i - presets < ROWS(policies) ? policies[i - presets]
                                          : NULL;
}

static void test_all_sequences(void)
{
    const int two = test_long() ? 20 : 11, three = test_long() ? 12 : 7;
    uint64_t runs = 0, leaves = 0, slowest = 0, scalers = 0;
    for (size_t i = 0; spec_at(i); i++)
        for (size_t m = 0; m < ROWS(modes); m++) {
            gs_scaler s;
            bounds b;
            if (!begin(&s, &b, spec_at(i), modes[m]))
                continue;
            all_sequences(&s, two, 2, &b);
            all_sequences(&s, three, RESULTS, &b);
            scalers++;
            runs += b.runs;
            leaves += b.leaves;
            slowest = b.slowest > slowest ? b.slowest : slowest;
        }
    printf("%llu scalers, all sequences of %d and %d: %llu runs; %llu were ended well, in at most "
           "%llu "
           "runs\n",
           (unsigned long long)scalers, two, three, (unsigned long long)runs,
           (unsigned long long)leaves, (unsigned long long)slowest);
    CHECK(scalers > 200 && leaves > 1000);
}

static void test_random_sequences(void)
{
    const uint64_t all = test_long() ? 1000000000 : 3000000;
    size_t specs = 0;
    uint64_t runs = 0;
    while (spec_at(specs))
        specs++;
    const uint64_t each = all / (specs * ROWS(modes));
    for (size_t i = 0; i < specs; i++)
        for (size_t m = 0; m < ROWS(modes); m++) {
            gs_scaler s;
            bounds b;
            uint64_t state = 88172645463325252u + i * 64 + m; /* xorshift */
            if (!begin(&s, &b, spec_at(i), modes[m]))
                continue;
            for (uint64_t k = 0; k < each; k++) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                const unsigned calm = (unsigned)(k >> 10 & 7); /* how rare an overflow is */
                const result r = state % 97 == 0                    ? LARGE
                                 : state >> 32 & ((1u << calm) - 1) ? CLEAN
                                                                    : FOUND;
                if (take(&s, r, &b).action == GS_FAIL)
                    begin(&s, &(bounds){0}, spec_at(i), modes[m]);
                if (k % 4096 == 4095)
                    end_well(s, &b);
            }
            runs += b.runs;
        }
    printf("%llu random runs\n", (unsigned long long)runs);
}

TESTS({"all_sequences", test_all_sequences}, {"random_sequences", test_random_sequences})
