/* Two experiments with made-up gradients.
 *
 * bad batches: a share p of the batches is NaN whatever the scale; the others overflow above 2^17.
 *   A machine that only hears "not finite" is driven to its floor by p > 1 - 2^(-1/2000);
 *   attribution tells the two apart.
 * random walk: log2 of the largest gradient wanders from -14 in normal steps of 0.05 inside
 *   [-24, -4] and jumps up by 6 for one step in 10,000; overflow above 65504. */
#include "cli/replay/replay.h"
#include "cli/core/json.h"

#include "gradscale/scaler.h"

#include <inttypes.h>
#include <math.h>

static const double F16_MAX = 65504;

/* Numbers from a stream of random bits: [0, 1), and normal with variance 1. */
typedef struct stream {
    uint64_t seed, at;
} stream;

static double uniform(stream *s) { return gs_random_u32(s->seed, s->at++) * 0x1p-32; }

static double normal(stream *s)
{
    const double u = uniform(s) + 0x1p-33, v = uniform(s);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* ---- bad batches ---- */

typedef struct outcome {
    uint64_t bad, skipped, reruns, growths, below, grown_steps;
    double log2_sum, log2_grown;
} outcome;

static outcome run_bad_batches(const char *preset, const char *mode, double p, int start,
                               const simulation *sim)
{
    enum { SETTLING = 100 };
    gs_scaler scaler;
    outcome o = {0};
    char set[64];
    stream random = {.seed = sim->seed};
    snprintf(set, sizeof set, "init=%.0f on_overflow=%s", ldexp(1, start), mode);
    gs_scaler_init(&scaler, preset, NULL);
    gs_scaler_set(&scaler, set, NULL);

    for (uint64_t i = 0; i < sim->steps; i++) {
        const bool bad = uniform(&random) < p;
        const double before = gs_scaler_scale(&scaler), log2_scale = log2(before);
        o.bad += bad;
        o.below += i >= SETTLING && before < 0x1p+8;
        o.log2_sum += log2_scale;
        if (o.grown_steps > 0 || before >= 0x1p+16) { /* from here on it has grown */
            o.grown_steps++;
            o.log2_grown += log2_scale;
        }
        gs_verdict v;
        do {
            gs_step step;
            gs_step_begin(&step, &scaler);
            gs_step_amax(&step, bad                    ? (double)NAN
                                : step.scale > 0x1p+17 ? (double)INFINITY
                                                       : F16_MAX * 0x1p-17 * step.scale);
            v = gs_step_end(&step, &scaler);
        } while (v.action == GS_RETRY);
        o.growths += gs_scaler_scale(&scaler) > before;
    }
    o.reruns = scaler.counters.retried;
    o.skipped = scaler.counters.attempted - scaler.counters.applied;
    return o;
}

static const char *const presets[] = {"pytorch", "megatron"};
static const char *const modes[] = {"skip", "attribute"};
static const double shares[] = {1e-4, 5e-4, 1e-3, 5e-3, 1e-2};
static const int starts[] = {32, 16, 4};

#define EACH(i, array)                  \
    size_t i = 0;                       \
    i < sizeof array / sizeof array[0]; \
    i++

static void bad_batches(const simulation *sim, json_writer *j)
{
    cli_table *t =
        j ? NULL
          : cli_table_new((const char *const[]){
                "<preset", ">bad share", ">start", "<on overflow", ">bad batches", ">skipped",
                ">S < 2^8", ">mean log2 S", ">once grown", ">reruns", ">growths", NULL});
    if (t)
        cli_table_keys(t, 4);
    const double n = (double)sim->steps;
    for (EACH(preset, presets))
        for (EACH(share, shares))
            for (EACH(start, starts))
                for (EACH(mode, modes)) {
                    const outcome o = run_bad_batches(presets[preset], modes[mode], shares[share],
                                                      starts[start], sim);
                    const double grown =
                        o.grown_steps ? o.log2_grown / (double)o.grown_steps : (double)NAN;
                    if (j) {
                        put_object(j, NULL);
                        put_string(j, "preset", presets[preset]);
                        put_double(j, "bad_share", shares[share]);
                        put_i64(j, "start_log2", starts[start]);
                        put_string(j, "on_overflow", modes[mode]);
                        put_u64(j, "bad_batches", o.bad);
                        put_u64(j, "skipped", o.skipped);
                        put_double(j, "below_2_8", (double)o.below / n);
                        put_double(j, "mean_log2_scale", o.log2_sum / n);
                        put_double(j, "mean_log2_scale_once_grown", grown);
                        put_u64(j, "reruns", o.reruns);
                        put_u64(j, "growths", o.growths);
                        put_end(j);
                        continue;
                    }
                    cli_table_cell(t, "%s", presets[preset]);
                    cli_table_cell(t, "%g", shares[share]);
                    cli_table_cell(t, "2^%d", starts[start]);
                    cli_table_cell(t, "%s", modes[mode]);
                    cli_table_cell(t, "%" PRIu64, o.bad);
                    cli_table_cell(t, "%" PRIu64, o.skipped);
                    cli_table_cell(t, "%.1f%%", 100 * (double)o.below / n);
                    cli_table_cell(t, "%.2f", o.log2_sum / n);
                    cli_table_cell(t, o.grown_steps ? "%.2f" : "-", grown);
                    cli_table_cell(t, "%" PRIu64, o.reruns);
                    cli_table_cell(t, "%" PRIu64, o.growths);
                }
    if (t)
        cli_table_print(t, stdout);
}

/* ---- random walk ---- */

typedef struct tally {
    uint64_t skipped;
    double log2_sum;
} tally;

static const char *const walkers[] = {"pytorch", "headroom"};

static void run_walk(tally tallies[2], const simulation *sim, uint64_t number)
{
    gs_scaler scalers[2];
    stream random = {.seed = sim->seed + number};
    double level = -14;
    for (EACH(k, walkers)) {
        tallies[k] = (tally){0};
        gs_scaler_init(&scalers[k], walkers[k], NULL);
    }
    gs_scaler_set(&scalers[1], sim->set, NULL);
    for (uint64_t i = 0; i < sim->walk; i++) {
        level = fmin(fmax(level + 0.05 * normal(&random), -24), -4);
        const double amax = exp2(level + (uniform(&random) < 1e-4 ? 6 : 0));
        for (EACH(k, walkers)) {
            gs_step step;
            gs_step_begin(&step, &scalers[k]);
            const double scaled = amax * step.scale;
            gs_step_amax(&step, scaled > F16_MAX ? (double)INFINITY : scaled);
            tallies[k].log2_sum += log2(step.scale);
            tallies[k].skipped += gs_step_end(&step, &scalers[k]).action != GS_APPLY;
        }
    }
}

static void random_walk(const simulation *sim, json_writer *j)
{
    cli_table *t =
        j ? NULL
          : cli_table_new((const char *const[]){"<seed", ">pytorch skipped", ">mean log2 S",
                                                ">headroom skipped", ">mean log2 S", NULL});
    tally total[2] = {{0}}, one[2];
    for (uint64_t s = 0; s <= sim->seeds; s++) {
        const bool last = s == sim->seeds;
        const double n = (double)sim->walk * (last ? (double)sim->seeds : 1);
        if (!last)
            run_walk(one, sim, s);
        const tally *show = last ? total : one;
        for (int k = 0; k < 2 && !last; k++) {
            total[k].skipped += one[k].skipped;
            total[k].log2_sum += one[k].log2_sum;
        }
        if (j) {
            put_object(j, NULL);
            if (last)
                put_string(j, "seed", "all");
            else
                put_u64(j, "seed", sim->seed + s);
            for (EACH(k, walkers)) {
                put_object(j, walkers[k]);
                put_u64(j, "skipped", show[k].skipped);
                put_double(j, "mean_log2_scale", show[k].log2_sum / n);
                put_end(j);
            }
            put_end(j);
            continue;
        }
        if (last)
            cli_table_cell(t, "all");
        else
            cli_table_cell(t, "%" PRIu64, sim->seed + s);
        for (EACH(k, walkers)) {
            cli_table_cell(t, "%" PRIu64, show[k].skipped);
            cli_table_cell(t, "%.2f", show[k].log2_sum / n);
        }
    }
    if (t)
        cli_table_print(t, stdout);
}

void simulate(const simulation *s, bool json)
{
    json_writer j;
    if (json) {
        put_begin(&j, stdout, true);
        put_object(&j, NULL);
        put_array(&j, "bad_batches");
        bad_batches(s, &j);
        put_end(&j);
        put_array(&j, "random_walk");
        random_walk(s, &j);
        put_end(&j);
        put_end(&j);
        return;
    }
    char text[300];
    snprintf(text, sizeof text,
             "Bad batches: %" PRIu64
             " steps, overflow above 2^17, and a share of batches that is NaN at every scale. S < "
             "2^8 is the share of steps after the first 100; once grown: from the first step at "
             "2^16 or more.",
             s->steps);
    cli_wrap(text, 0, 0);
    putchar('\n');
    bad_batches(s, NULL);
    snprintf(text, sizeof text,
             "Random walk: %" PRIu64 " steps per seed, log2(amax) from -14 in normal steps of 0.05 "
             "inside [-24, -4], +6 for one step with probability 1e-4.",
             s->walk);
    putchar('\n');
    cli_wrap(text, 0, 0);
    putchar('\n');
    random_walk(s, NULL);
}
