/* What the policies promise over long runs: attribution against bad batches, headroom against
 * pytorch, the probe. `gradscale replay --simulate` prints the first two. */
#include "test.h"

#include "gradscale/scaler.h"

#include <math.h>
#include <stdbool.h>
#include <time.h>

#define ROWS(array) (sizeof(array) / sizeof((array)[0]))

static double uniform(uint64_t seed, uint64_t i) { return gs_random_u32(seed, i) * 0x1p-32; }

/* ---- bad batches ---- */

typedef struct outcome {
    uint64_t bad, growths, reruns, below, grown;
    double log2_grown;
} outcome;

static outcome run(const char *preset, const char *mode, double p, double start, uint64_t steps)
{
    gs_scaler s;
    outcome o = {0};
    char set[64];
    snprintf(set, sizeof set, "init=%.0f on_overflow=%s", start, mode);
    CHECK(gs_scaler_init(&s, preset, NULL) == GS_OK && gs_scaler_set(&s, set, NULL) == GS_OK);
    for (uint64_t i = 0; i < steps; i++) {
        const bool bad = uniform(4, i) < p;
        const double before = gs_scaler_scale(&s);
        o.bad += bad;
        o.below += i >= 100 && before < 256;
        if (o.grown || before >= 0x1p+16) {
            o.grown++;
            o.log2_grown += log2(before);
        }
        gs_verdict v;
        int reruns = -1;
        do {
            gs_step step;
            gs_step_begin(&step, &s);
            gs_step_amax(&step, bad                    ? (double)NAN
                                : step.scale > 0x1p+17 ? (double)INFINITY
                                                       : step.scale * 0x1p-17 * 65504);
            v = gs_step_end(&step, &s);
            reruns++;
        } while (v.action == GS_RETRY);
        CHECK(reruns <= 3);
        o.growths += gs_scaler_scale(&s) > before;
    }
    o.reruns = s.counters.retried;
    return o;
}

static void test_attribution_against_bad_batches(void)
{
    static const char *const presets[] = {"pytorch", "megatron"};
    static const double shares[] = {1e-4, 5e-4, 1e-3, 5e-3, 1e-2};
    static const double starts[] = {0x1p+32, 0x1p+16, 0x1p+4};
    const uint64_t steps = 200000;
    for (size_t a = 0; a < ROWS(presets); a++)
        for (size_t b = 0; b < ROWS(shares); b++)
            for (size_t c = 0; c < ROWS(starts); c++) {
                const outcome o = run(presets[a], "attribute", shares[b], starts[c], steps);
                const double mean = o.log2_grown / (double)o.grown;
                CHECK(starts[c] < 256 || o.below == 0);
                CHECK_MSG(fabs(mean - 17) <= 1.5, "%s %g %g: %g", presets[a], shares[b], starts[c],
                          mean);
                CHECK((double)o.reruns <= 2.1 * (double)o.bad + 3 * (double)o.growths);
            }
    /* What it is for: one bad batch in 2,886 is where pytorch begins to drift. */
    CHECK(run("pytorch", "skip", 1e-4, 0x1p+16, steps).below == 0);
    CHECK(run("pytorch", "skip", 1e-3, 0x1p+16, steps).below > steps / 2);
}

/* ---- headroom ---- */

static void test_headroom_against_pytorch(void)
{
    static const char *const specs[] = {"pytorch", "headroom"};
    uint64_t skipped[2] = {0};
    double log2_sum[2] = {0};
    const uint64_t seeds = 20, steps = 50000;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        gs_scaler s[2];
        double level = -14;
        for (int k = 0; k < 2; k++)
            gs_scaler_init(&s[k], specs[k], NULL);
        for (uint64_t i = 0; i < steps; i++) {
            const double u = uniform(100 + seed, 3 * i) + 0x1p-33;
            const double v = uniform(100 + seed, 3 * i + 1);
            level += 0.05 * sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
            level = level > -4 ? -4 : level < -24 ? -24 : level;
            const double amax = exp2(level + (uniform(100 + seed, 3 * i + 2) < 1e-4 ? 6 : 0));
            for (int k = 0; k < 2; k++) {
                gs_step step;
                gs_step_begin(&step, &s[k]);
                const double scaled = amax * step.scale;
                gs_step_amax(&step, scaled > 65504 ? (double)INFINITY : scaled);
                log2_sum[k] += log2(step.scale);
                skipped[k] += gs_step_end(&step, &s[k]).action == GS_SKIP;
            }
        }
    }
    const double n = (double)(seeds * steps);
    CHECK_MSG(skipped[0] >= 10 * skipped[1] && skipped[0] > 100, "%llu against %llu",
              (unsigned long long)skipped[0], (unsigned long long)skipped[1]);
    CHECK_MSG(log2_sum[1] / n >= log2_sum[0] / n - 1, "%g against %g", log2_sum[1] / n,
              log2_sum[0] / n);
}

/* A batch that is NaN at every scale lowers headroom for a while only. */
static void test_headroom_does_not_drift(void)
{
    gs_scaler s;
    uint64_t low = 0, in_a_row = 0;
    gs_scaler_init(&s, "headroom", NULL);
    for (uint64_t i = 0; i < 100000; i++) {
        gs_step step;
        gs_step_begin(&step, &s);
        low += step.scale < 16;
        in_a_row = step.scale < 16 ? in_a_row + 1 : 0;
        CHECK(in_a_row < 100);
        gs_step_amax(&step, uniform(8, i) < 1e-2 ? (double)NAN : 0.5 * step.scale);
        gs_step_end(&step, &s);
    }
    CHECK_MSG(low < 20000, "%llu", (unsigned long long)low);
}

/* ---- probe ---- */

/* From any start to a scale that fits: overflow above 2^fit, amax known or only a flag. */
static void test_probe(void)
{
    static const char *const presets[] = {"pytorch", "megatron", "apex", "deepspeed", "mxnet"};
    for (size_t k = 0; k < ROWS(presets); k++)
        for (int start = -10; start <= 40; start++)
            for (int fit = -10; fit <= 36; fit += 2)
                for (int known = 0; known < 2; known++) {
                    gs_scaler s;
                    char set[64];
                    int skipped = 0, last = 0;
                    snprintf(set, sizeof set, "init=0x1p%+d floor=none max=none probe=yes", start);
                    CHECK(gs_scaler_init(&s, presets[k], NULL) == GS_OK);
                    CHECK(gs_scaler_set(&s, set, NULL) == GS_OK);
                    for (int i = 0; i < 70; i++) {
                        gs_step step;
                        gs_step_begin(&step, &s);
                        const bool over = step.scale > ldexp(1, fit);
                        const double scaled = step.scale * ldexp(65504, -fit);
                        if (known)
                            gs_step_amax(&step, over               ? (double)INFINITY
                                                : scaled < 0x1p-25 ? 0
                                                                   : scaled);
                        else
                            gs_step_flag(&step, over);
                        if (gs_step_end(&step, &s).action == GS_SKIP) {
                            skipped++;
                            last = i;
                        }
                    }
                    const double found = log2(gs_scaler_scale(&s));
                    CHECK_MSG(
                        skipped <= 2 && found <= fit && found >= fit - 2 && (!known || last <= 1),
                        "%s from 2^%d to 2^%d, %s: %d skipped, the last at %d, 2^%g", presets[k],
                        start, fit, known ? "amax" : "flag", skipped, last, found);
                }
}

/* Gradients that are all zero at first (a last layer that begins at 0) tell nothing of the others.
 */
static void test_probe_after_zeros(void)
{
    for (int zeros = 1; zeros < 4; zeros++)
        for (int start = -10; start <= 40; start += 5) {
            gs_scaler s;
            char set[64];
            int skipped = 0;
            snprintf(set, sizeof set, "init=0x1p%+d probe=yes", start);
            gs_scaler_init(&s, "pytorch", NULL);
            CHECK(gs_scaler_set(&s, set, NULL) == GS_OK);
            for (int i = 0; i < 40; i++) {
                gs_step step;
                gs_step_begin(&step, &s);
                const double amax = i < zeros ? 0 : 0.01 * step.scale;
                gs_step_amax(&step, amax > 65504 ? (double)INFINITY : amax < 0x1p-25 ? 0 : amax);
                skipped += gs_step_end(&step, &s).action == GS_SKIP;
            }
            CHECK_MSG(skipped <= 2 && gs_scaler_scale(&s) == 0x1p+21,
                      "%d zeros from 2^%d: %d skipped, 2^%g", zeros, start, skipped,
                      log2(gs_scaler_scale(&s)));
        }
}

/* A growth comes a whole interval after the probe. */
static void test_probe_then_growth(void)
{
    gs_scaler s;
    gs_scaler_init(&s, "pytorch", NULL);
    CHECK(gs_scaler_set(&s, "init=4 interval=5 probe=yes", NULL) == GS_OK);
    CHECK(gs_scaler_health(&s) == GS_CALIBRATING);
    for (int i = 0; i < 6; i++) {
        gs_step step;
        gs_step_begin(&step, &s);
        CHECK(step.scale == (i == 0 ? 4 : 0x1p+14)); /* 65504 / 2 / 1.9, down to a power of two */
        gs_step_amax(&step, 1.9 * step.scale);
        gs_step_end(&step, &s);
    }
    CHECK(gs_scaler_scale(&s) == 0x1p+15 && gs_scaler_health(&s) == GS_HEALTHY);

    gs_scaler_init(&s, "pytorch", NULL);
    CHECK(gs_scaler_set(&s, "init=4 highest=0x1p+10 probe=yes", NULL) == GS_OK);
    for (int i = 0; i < 40; i++) {
        gs_step step;
        gs_step_begin(&step, &s);
        gs_step_flag(&step, 0);
        gs_step_end(&step, &s);
    }
    CHECK(gs_scaler_scale(&s) == 0x1p+10 && gs_scaler_health(&s) == GS_AT_CEILING);
    CHECK(s.machine.clean == 31); /* 4 to 2^10, and once more to find that it is the ceiling */
}

/* ---- cost: printed, not asserted ---- */

static void test_cost(void)
{
    enum { UPDATES = 2000000 };
    static const char *const specs[] = {"pytorch", "deepspeed", "headroom"};
    for (size_t k = 0; k < ROWS(specs); k++) {
        gs_scaler s;
        struct timespec a, b, c;
        gs_scaler_init(&s, specs[k], NULL);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        for (int i = 0; i < UPDATES; i++)
            gs_scaler_update_with(&s, &(gs_finding){.found = i % 1000 == 999, .amax = 0.01});
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        for (int i = 0; i < UPDATES; i++) {
            gs_step step;
            gs_step_begin(&step, &s);
            gs_step_amax(&step, i % 1000 == 999 ? (double)INFINITY : 1);
            gs_step_end(&step, &s);
        }
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &c);
        const double ns = 1e9 / UPDATES;
        printf("%-9s an update %.1f ns, a step %.1f ns\n", specs[k],
               ns * ((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec)),
               ns * ((double)(c.tv_sec - b.tv_sec) + 1e-9 * (double)(c.tv_nsec - b.tv_nsec)));
        CHECK(s.counters.attempted == UPDATES);
    }
}

TESTS({"attribution_against_bad_batches", test_attribution_against_bad_batches},
      {"headroom_against_pytorch", test_headroom_against_pytorch},
      {"headroom_does_not_drift", test_headroom_does_not_drift}, {"probe", test_probe},
      {"probe_after_zeros", test_probe_after_zeros}, {"probe_then_growth", test_probe_then_growth},
      {"cost", test_cost})
