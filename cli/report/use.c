/* What to use, in words: the pick, why not the others, and the command. */
#include "cli/report/groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void say_gain(FILE *f, const group *g, const group *to)
{
    char text[32];
    const double speed = g->rate / to->rate, bytes = g->bytes / to->bytes;
    if (isfinite(bytes) && fabs(bytes - 1) >= 0.05)
        fprintf(f, ", in %s of its memory", report_percent(text, bytes));
    if (!group_is_timed(g) || !group_is_timed(to))
        fputs(", after too short a time to tell its speed", f);
    else if (isfinite(speed) && fabs(speed - 1) >= verdict_faster)
        fprintf(f, ", at %.2g times its speed", speed);
    else if (isfinite(speed))
        fputs(", as fast", f);
    if (g->is_half && g->underflow >= verdict_much)
        fprintf(f, ", though %s of its gradients underflowed", report_percent(text, g->underflow));
}

/* Its log2; infinite: the log does not tell. */
static double lowest_scale(const report_run *run)
{
    double lowest = (double)INFINITY;
    for (size_t i = 0; i < run->n; i++)
        lowest = fmin(lowest, (double)run->steps[i].log2_scale);
    return lowest;
}

/* A log without settings may be of a job that gradscale cannot run. */
static bool is_ours(const report_run *run) { return run->config.n > 0; }

static void say_use_alone(FILE *f, const verdict *v)
{
    const group *g = &v->at[0];
    if (g->steps == 0)
        return;
    const bool stuck = g->first->fate == REPORT_STUCK;
    if (stuck && g->forward * 2 > g->skipped)
        fprintf(f,
                "No other scale: none mends a loss that is not finite before it is scaled, as "
                "it first was at step %llu. Try a lower learning rate, and look at the data.\n",
                (unsigned long long)g->first_forward);
    else if (stuck && report_has_fixed_scale(g->first))
        fputs("A scale that moves: at this one the gradients overflow. --scaler pytorch or "
              "headroom.\n",
              f);
    else if (stuck && isfinite(lowest_scale(g->first)))
        fprintf(f,
                "Look at the loss and the data of the first steps: the scale fell to 2^%.4g, and "
                "that was not low enough for these gradients.\n",
                lowest_scale(g->first) + 0.0);
    else if (stuck)
        fputs("Look at the loss and the data of the first steps.\n", f);
    else if (group_failed(g))
        fputs("Look for the cause at the first step whose loss is not finite: no scale mends a "
              "loss that is not finite before it is scaled.\n",
              f);
    else if (g->is_half && g->underflow >= verdict_much && report_has_fixed_scale(g->first))
        fputs("A larger scale; a dynamic one finds it: --scaler pytorch or headroom.\n", f);
    else if (g->is_half && g->underflow >= verdict_much)
        fputs(
            "The scale already follows the gradients; what underflows all the same may not matter. "
            "gradscale compare would tell, and whether bf16 does better.\n",
            f);
    else if (!g->first->only_skips && !g->is_sample && group_wasted(g) >= 0.05)
        fprintf(f, "A scale that overflows less often: %s headroom keeps its distance.\n",
                is_ours(g->first) ? "--scaler" : "the policy");
    else if (g->forward > 0)
        fprintf(f,
                "No other scale: none mends a loss that is not finite before it is scaled. Look at "
                "the data of the batch%s that %s skipped for it, first that of step %llu.\n",
                g->forward == 1 ? "" : "es", g->forward == 1 ? "was" : "were",
                (unsigned long long)g->first_forward);
    else if (!g->has_loss && !g->first->tells_skips)
        fputs("The log gives no reason for a change: it tells neither of loss nor of scale.\n", f);
    else if (!g->has_loss)
        fputs("The scale gives no reason for a change; the log says nothing of the loss.\n", f);
    else
        fprintf(f, "Nothing here asks for a change.%s\n",
                !is_ours(g->first) ? ""
                : g->is_half ? " gradscale compare would tell what fp32 makes of the same job."
                             : " gradscale compare would tell what fp16 and bf16 make of it.");
}

/* "The runs differ in data and steps as well": then precision and scaler are not alone to blame. */
static void say_differences(FILE *f, const verdict *v)
{
    static const char *const keys[] = {"model", "data", "steps", "batch", "lr", "optimizer"};
    const char *differ[sizeof keys / sizeof keys[0]];
    size_t n = 0;
    for (size_t k = 0; v->reference && k < sizeof keys / sizeof keys[0]; k++) {
        const char *want = report_value(&v->reference->first->config, keys[k]);
        bool same = true;
        for (size_t i = 0; i < v->n && want; i++) {
            const char *has = report_value(&v->at[i].first->config, keys[k]);
            same = same && (!has || strcmp(has, want) == 0);
        }
        if (!same)
            differ[n++] = keys[k];
    }
    for (size_t k = 0; k < n; k++)
        fprintf(f, "%s%s",
                k == 0       ? "The runs differ in more than precision and scaler: "
                : k + 1 == n ? " and "
                             : ", ",
                differ[k]);
    fputs(n > 0 ? ". Their losses may differ for that.\n" : "", f);
    bool told = true;
    for (size_t i = 0; i < v->n; i++)
        told &= is_ours(v->at[i].first);
    if (v->reference && !told)
        fputs(
            "Not every log tells what was trained: losses compare only between runs of one job.\n",
            f);
}

static void say_caveats(FILE *f, const verdict *v)
{
    size_t running = 0, steps = 0, seeds = 0;
    char text[32];
    for (size_t i = 0; i < v->n; i++) {
        seeds = v->at[i].n > seeds ? v->at[i].n : seeds;
        running += v->at[i].running;
        steps += v->at[i].steps;
    }
    if (steps == 0)
        return;
    if (v->reference && v->noise_is_own)
        fprintf(f,
                "Between the %zu seeds the losses vary: what differs by less than %s counts as "
                "equal.\n",
                seeds, report_percent(text, v->noise));
    else if (v->reference && seeds > 1)
        fputs("How much seeds move the loss cannot be told from these: a difference of a percent "
              "may be chance, and counts as equal.\n",
              f);
    else if (v->reference)
        fputs("With one seed each, a difference of a percent may be chance, and counts as "
              "equal.\n",
              f);
    say_differences(f, v);
    bool validated = false;
    for (size_t i = 0; i < v->run_count; i++)
        validated |= v->runs[i].is_validated;
    if (!v->is_validated && v->has_losses)
        fprintf(f, "%s: this goes by the training loss.\n",
                validated ? "Not every run was validated" : "There was no validation");
    if (running && v->n == 1 && v->at[0].n == 1)
        fputs("It has not ended: this is how things stand.\n", f);
    else if (running)
        fprintf(f, "%zu of the runs %s not ended: this is how things stand.\n", running,
                running == 1 ? "has" : "have");
}

/* "Ruled out by underflow: a and b; by speed: c." */
static void say_others(FILE *f, const verdict *v, const pick_rule *out)
{
    static const char *const words[] = {
#define X(id, words) words,
        PICK_RULES(X)
#undef X
    };
    bool any = false;
    for (int rule = 0; rule < PICK_RULE_COUNT; rule++) {
        size_t n = 0, said = 0;
        for (size_t i = 0; i < v->n; i++)
            n += out[i] == (pick_rule)rule && v->at[i].steps > 0;
        if (n == 0)
            continue;
        fprintf(f, "%s by %s: ", any ? ";" : "Ruled out", words[rule]);
        any = true;
        for (size_t i = 0; i < v->n; i++)
            if (out[i] == (pick_rule)rule && v->at[i].steps > 0) {
                fprintf(f, "%s%s", said == 0 ? "" : said + 1 == n ? " and " : ", ", v->at[i].label);
                said++;
            }
    }
    fputs(any ? ".\n" : "", f);
}

void verdict_say_use(FILE *f, const verdict *v)
{
    if (!v->reference) {
        say_use_alone(f, v);
        say_caveats(f, v);
        return;
    }
    pick_rule *out = cli_resize(NULL, v->n * sizeof *out);
    const group *best = pick_group(v, out);
    if (!best) {
        fputs("None of these: no run ended with a loss that can be compared.\n", f);
    } else if (best == v->reference && best->is_half) {
        fprintf(f, "%s\t%s best of these; there is no fp32 run to compare them with.\n",
                best->label, best->running ? "stands" : "ended");
    } else if (best == v->reference) {
        fprintf(f, "%s\tnone of the others gains enough to give it up.\n", best->label);
    } else {
        fprintf(f, "%s\t%s at ", best->label, best->running ? "stands" : "ended");
        verdict_say_ratio(f, v, best->ratio);
        say_gain(f, best, v->reference);
        fputs(".\n", f);
    }
    if (best)
        say_others(f, v, out);
    free(out);
    say_caveats(f, v);
}

/* ---- the command ---- */

/* As a shell takes it. */
static void say_word(FILE *f, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "%+,-./:=@_";
    if (*word && !word[strspn(word, plain)]) {
        fputs(word, f);
        return;
    }
    fputc('\'', f);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (const char[]){*word, 0}, f);
    fputc('\'', f);
}

void verdict_say_command(FILE *f, const verdict *v, const char *config)
{
    static const char *const keys[] = {"precision", "scaler", "mode", "on-overflow", "quantize"};
    pick_rule *out = cli_resize(NULL, (v->n + 1) * sizeof *out);
    const group *best = v->reference ? pick_group(v, out) : NULL;
    free(out);
    if (!best || !report_value(&best->first->config, "precision"))
        return;
    fputs("gradscale train", f);
    if (config) {
        fputs(" --config ", f);
        say_word(f, config);
    } else {
        fputs(" ...", f); /* the job's other options, without which it is another job */
    }
    const bool is_fp32 = strcmp(report_value(&best->first->config, "precision"), "fp32") == 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *value = report_value(&best->first->config, keys[i]);
        const bool is_default =
            value && ((strcmp(keys[i], "mode") == 0 && strcmp(value, is_fp32 ? "O0" : "O2") == 0) ||
                      (strcmp(keys[i], "quantize") == 0 && strcmp(value, "none") == 0));
        if (!value || is_default)
            continue;
        fprintf(f, " --%s ", keys[i]);
        say_word(f, value);
    }
}
