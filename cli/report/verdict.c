/* The verdict in words. */
#include "cli/report/groups.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *loss_name(const verdict *v)
{
    return v->is_validated ? "validation loss" : "training loss";
}

void verdict_say_ratio(FILE *f, const verdict *v, double ratio)
{
    const double off = fabs(ratio - 1);
    char text[32];
    if (isnan(ratio)) /* not finite, or no measure: zero or below */
        fprintf(f, "a loss that cannot be compared with that of %s", v->reference->label);
    else if (ratio >= 2)
        fprintf(f, "%.3g times the loss of %s", ratio, v->reference->label);
    else if (off < 0.0005)
        fprintf(f, "the loss of %s", v->reference->label);
    else
        fprintf(f, "a loss %s %s that of %s", report_percent(text, off),
                ratio > 1 ? "above" : "below", v->reference->label);
}

/* "a, b and c": those of the groups that are picked. */
static size_t say_labels(FILE *f, const verdict *v, const bool *picked)
{
    size_t total = 0, said = 0;
    for (size_t i = 0; i < v->n; i++)
        total += picked[i];
    for (size_t i = 0; i < v->n; i++)
        if (picked[i]) {
            fprintf(f, "%s%s", said == 0 ? "" : said + 1 == total ? " and " : ", ", v->at[i].label);
            said++;
        }
    return total;
}

static const char *came_to(const group *g) { return g->running ? "stands" : "ended"; }

static const group *worst_of(const verdict *v)
{
    const group *worst = NULL;
    for (size_t i = 0; i < v->n; i++) {
        const group *g = &v->at[i];
        if (g == v->reference || g->steps == 0 || (!g->has_loss && !group_failed(g)))
            continue;
        if (!worst || (group_failed(g) && !group_failed(worst)) ||
            (group_failed(g) == group_failed(worst) && g->ratio > worst->ratio))
            worst = g;
    }
    return worst;
}

/* "fp16 none failed: its loss is not finite from step 17 on" */
static void say_failure(FILE *f, const group *g, const report_run *run)
{
    const size_t applied = run->n - (size_t)run->skipped;
    if (run->fate == REPORT_STUCK && applied == 0)
        fprintf(f, "%s failed: %s%zu step%s skipped, from step %" PRIu64 " on", g->label,
                run->n == 1 ? "its " : "all of its ", run->n, run->n == 1 ? " was" : "s were",
                run->first_bad);
    else if (run->fate == REPORT_STUCK)
        fprintf(f,
                "%s failed: %zu of its %zu steps %s applied, and step %" PRIu64
                " was the first to be skipped",
                g->label, applied, run->n, applied == 1 ? "was" : "were", run->first_bad);
    else if (run->first_bad == UINT64_MAX)
        fprintf(f, "%s failed: its validation loss is not finite at the end", g->label);
    else
        fprintf(f, "%s failed: its loss is not finite at the end, first at step %" PRIu64, g->label,
                run->first_bad);
}

/* "at most 0.003%", "less than 0.0001%" */
static void say_at_most(FILE *f, double share, bool is_bound)
{
    char text[32];
    report_percent(text, share);
    fprintf(f, "%s%s",
            text[0] == '<' ? "less than "
            : is_bound     ? "at most "
                           : "",
            text + (text[0] == '<'));
}

static void say_headline_alone(FILE *f, const verdict *v)
{
    const group *g = &v->at[0];
    char share[32], loss[32];
    if (group_failed(g))
        say_failure(f, g, g->worst);
    else if (g->first->only_skips)
        fprintf(f, "%s skipped %" PRIu64 " step%s; how many it applied is not in the log", g->label,
                g->skipped, cli_s(g->skipped));
    else if (!g->has_loss && g->skipped > 0)
        fprintf(f, "%s skipped %" PRIu64 " of %s%zu step%s%s (%s)", g->label, g->skipped,
                g->is_sample ? "the " : "", g->steps, cli_s(g->steps),
                g->is_sample ? " in the log" : "",
                report_percent(share, (double)g->skipped / (double)g->steps));
    else if (!g->has_loss && !g->first->tells_skips)
        fprintf(f, "%s tells neither of its loss nor of skipped steps", g->label);
    else if (!g->has_loss)
        fprintf(f, "%s applied all of its %zu step%s", g->label, g->steps, cli_s(g->steps));
    else if (g->forward > 0 && !(g->underflow >= verdict_much))
        fprintf(f,
                "%s skipped %" PRIu64 " batch%s whose loss was not finite, first at step %" PRIu64,
                g->label, g->forward, g->forward == 1 ? "" : "es", g->first_forward);
    else if (!g->is_half)
        fprintf(f, "%s %s at a %s of %s", g->label, came_to(g), loss_name(v),
                report_number(loss, g->loss));
    else if (isnan(g->underflow))
        fprintf(f, "%s %s at a %s of %s; its underflow was not measured", g->label, came_to(g),
                loss_name(v), report_number(loss, g->loss));
    else if (!(g->underflow > 0))
        fprintf(f, "%s had no underflow: none of its non-zero gradients became zero", g->label);
    else if (g->underflow < verdict_some) {
        fprintf(f, "%s had next to no underflow: ", g->label);
        say_at_most(f, g->underflow, false);
        fputs(" of its non-zero gradients became zero", f);
    } else
        fprintf(f, "%s had %s of its non-zero gradients underflow to zero", g->label,
                report_percent(share, g->underflow));
}

/* None is much worse than the reference. No difference: none of them is ruled out by its loss. */
static void say_headline_close(FILE *f, const verdict *v)
{
    const group *best = v->reference;
    double most = 1, off = 0.0001;
    char share[32];
    for (size_t i = 0; i < v->n; i++) {
        const group *g = &v->at[i];
        best = g->steps > 0 && g->ratio < best->ratio ? g : best;
        most = fmax(most, g->ratio);
        off = fmax(off, fabs(g->ratio - 1));
    }
    if (off < verdict_worse) {
        fprintf(f, "%s came within %s of %s",
                most > best->ratio * (1 + v->noise) ? "All" : "It made no difference: all",
                report_percent(share, off), v->reference->label);
    } else {
        fprintf(f, "%s %s at ", best->label, came_to(best));
        verdict_say_ratio(f, v, best->ratio);
    }
}

static void say_headline(FILE *f, const verdict *v)
{
    size_t steps = 0;
    for (size_t i = 0; i < v->n; i++)
        steps += v->at[i].steps;
    const group *worst = worst_of(v);
    if (steps == 0) {
        fputs("No step has been logged yet", f);
    } else if (!v->reference || !worst) {
        say_headline_alone(f, v);
    } else if (group_failed(worst)) {
        say_failure(f, worst, worst->worst);
    } else if (worst->ratio < 1 + verdict_worse) {
        say_headline_close(f, v);
    } else {
        char share[32];
        if (worst->underflow >= verdict_much)
            fprintf(f, "%s had %s of its non-zero gradients underflow to zero and %s at ",
                    worst->label, report_percent(share, worst->underflow), came_to(worst));
        else
            fprintf(f, "%s %s at ", worst->label, came_to(worst));
        verdict_say_ratio(f, v, worst->ratio);
    }
}

/* The mean over the group's runs of what underflowed in a layer. */
static double layer_mean(const verdict *v, const group *g, const char *name)
{
    double sum = 0, n = 0;
    for (size_t i = 0; i < v->run_count; i++)
        for (size_t k = 0; &v->at[v->group_of[i]] == g && k < v->runs[i].layer_count; k++) {
            const report_layer *l = &v->runs[i].layers[k];
            if (l->samples == 0 || strcmp(l->name, name) != 0)
                continue;
            sum += l->underflow / l->samples;
            n++;
        }
    return n > 0 ? sum / n : 0;
}

/* "most in conv1 (98%), conv2 (90%)": the three with the most underflow. */
static void say_layers(FILE *f, const verdict *v, const group *g)
{
    struct {
        const char *name;
        double share;
    } top[4] = {0};
    char share[32];
    for (size_t i = 0; i < g->first->layer_count; i++) {
        const char *name = g->first->layers[i].name;
        const double mean = layer_mean(v, g, name);
        size_t k = 3;
        for (; k > 0 && mean > top[k - 1].share; k--)
            top[k] = top[k - 1];
        top[k].name = name;
        top[k].share = mean;
    }
    size_t n = 0;
    while (n < 3 && top[n].share > 0)
        n++;
    for (size_t k = 0; k < n; k++)
        fprintf(f, "%s%s (%s)",
                k == 0       ? ", most of all in "
                : k + 1 == n ? " and "
                             : ", ",
                top[k].name, report_percent(share, top[k].share));
}

/* fp32 has no underflow, and needs none. picked[v->n] is written to. */
static void say_unknown(FILE *f, const verdict *v, bool *picked)
{
    static const char *const why[2][2] = {
        {"its log has no telemetry", "their logs have no telemetry"},
        {"no step that it applied has telemetry", "no step that they applied has telemetry"}};
    for (size_t skips = 0; skips < 2; skips++) {
        size_t n = 0;
        for (size_t i = 0; i < v->n; i++) {
            const group *g = &v->at[i];
            picked[i] = g->is_half && g->steps > 0 && isnan(g->underflow) &&
                        (g->skipped > 0) == (skips > 0);
            n += picked[i];
        }
        if (n > 0 && say_labels(f, v, picked))
            fprintf(f, "\tnot known: %s.\n", why[skips][n > 1]);
    }
}

static void say_underflow(FILE *f, const verdict *v)
{
    size_t known = 0, above = 0, told = 0;
    double rest = 0;
    char share[32];
    for (size_t i = 0; i < v->n; i++) {
        known += isfinite(v->at[i].underflow) ? 1 : 0;
        above += v->at[i].underflow >= verdict_some;
    }
    if (known == 0) {
        bool looked = false, half = false;
        for (size_t i = 0; i < v->n; i++) {
            looked |= v->at[i].first->layer_count > 0;
            half |= v->at[i].is_half;
        }
        fputs(!half    ? "None: in fp32 no gradient is stored in half.\n"
              : looked ? "Not known: no step that was applied has telemetry of gradients.\n"
                       : "Not known: the logs hold no telemetry of gradients.\n",
              f);
        return;
    }
    bool *done = cli_resize(NULL, v->n * sizeof *done);
    memset(done, 0, v->n * sizeof *done);
    for (; told < 4 && told < above; told++) { /* the most underflow first */
        size_t at = v->n;
        for (size_t i = 0; i < v->n; i++)
            if (!done[i] && v->at[i].underflow >= verdict_some &&
                (at == v->n || v->at[i].underflow > v->at[at].underflow))
                at = i;
        done[at] = true;
        fprintf(f, "%s\t%s%s", v->at[at].label, report_percent(share, v->at[at].underflow),
                told ? "" : " of the non-zero gradients underflowed to zero when stored");
        if (told == 0 || v->at[at].underflow >= verdict_much)
            say_layers(f, v, &v->at[at]);
        fputs(".\n", f);
    }
    bool partly = false; /* one that has no underflow to tell is not one of "the others" */
    for (size_t i = 0; i < v->n; i++) {
        done[i] = !done[i] && isfinite(v->at[i].underflow); /* the rest */
        rest = done[i] ? fmax(rest, v->at[i].underflow) : rest;
        partly |= v->at[i].is_half && v->at[i].steps > 0 && isnan(v->at[i].underflow);
    }
    if (known > told) {
        if (partly && say_labels(f, v, done))
            fputs("\t", f);
        else if (told > 0)
            fprintf(f, "The other%s: ", known > told + 1 ? "s" : "");
        if (!(rest > 0))
            fputs(partly || told > 0 ? "none" : "None", f);
        else if (told == 0)
            fputs(partly ? "next to none: " : "Next to none: ", f);
        if (rest > 0)
            say_at_most(f, rest, known > 1);
        fputs(told > 0 ? ".\n" : " of the non-zero gradients underflowed to zero when stored.\n",
              f);
    }
    say_unknown(f, v, done);
    free(done);
}

/* picked[v->n] is written to. */
static void say_skips(FILE *f, const verdict *v, bool *picked)
{
    enum { MOST = 12 };
    char share[32];
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) {
        const group *g = &v->at[i];
        picked[i] = g->skipped + g->retried > 0 && ++n > MOST;
        if (g->skipped + g->retried == 0 || picked[i])
            continue;
        fprintf(f, "%s\t", g->label);
        if (g->skipped && g->first->only_skips)
            fprintf(f, "skipped %" PRIu64 " step%s", g->skipped, cli_s(g->skipped));
        else if (g->skipped)
            fprintf(f, "skipped %" PRIu64 " of %s%zu step%s%s (%s)", g->skipped,
                    g->is_sample ? "the " : "", g->steps, cli_s(g->steps),
                    g->is_sample ? " in the log" : "",
                    report_percent(share, (double)g->skipped / (double)g->steps));
        if (g->forward == g->skipped && g->forward > 0)
            fprintf(f,
                    "%s because the loss of %s batch%s was not finite itself, first at step "
                    "%" PRIu64,
                    g->forward == 1 ? "" : ", all", g->forward == 1 ? "its" : "their",
                    g->forward == 1 ? "" : "es", g->first_forward);
        else if (g->forward > 0)
            fprintf(f,
                    ", %" PRIu64
                    " of them because the loss was not finite itself, first at step %" PRIu64,
                    g->forward, g->first_forward);
        if (g->retried)
            fprintf(f, "%sretried %" PRIu64 " %s",
                    g->forward   ? "; it "
                    : g->skipped ? " and "
                                 : "",
                    g->retried, g->retried == 1 ? "batch" : "batches");
        fputs(".\n", f);
    }
    if (n > MOST && say_labels(f, v, picked))
        fputs("\tskipped or retried steps as well.\n", f);
}

static void say_cost(FILE *f, const verdict *v)
{
    bool *picked = cli_resize(NULL, v->n * sizeof *picked);
    char a[32], b[32];
    size_t few = 0;
    double most = 0;
    for (size_t i = 0; i < v->n; i++) {
        const group *g = &v->at[i];
        picked[i] = v->reference && g != v->reference && fabs(g->ratio - 1) < verdict_worse;
        few += picked[i];
        most = picked[i] ? fmax(most, fabs(g->ratio - 1)) : most;
        if (g->steps == 0) {
            fprintf(f, "%s\thas no step yet.\n", g->label);
        } else if (group_failed(g)) {
            fprintf(f, "%s\t%s", g->label,
                    g->worst->fate != REPORT_STUCK     ? "ended with a loss that is not finite"
                    : g->worst->skipped == g->worst->n ? "applied no step"
                                                       : "applied next to no step");
            if (g->n > 1)
                fprintf(f, " in %zu of %zu runs", g->failed, g->n);
            fputs(".\n", f);
        } else if (v->reference && !g->has_loss) {
            fprintf(f, "%s\ttells nothing of its loss.\n", g->label);
        } else if (v->reference && g != v->reference && !picked[i]) {
            fprintf(f, "%s\t%s at a %s of %s, ", g->label, came_to(g), loss_name(v),
                    report_number(a, g->loss));
            verdict_say_ratio(f, v, g->ratio);
            if (g->running || v->reference->running)
                fputs(" after as many steps.\n", f);
            else
                fprintf(f, " (%s)%s.\n", report_number(b, v->reference->loss),
                        g->n > 1 ? ", seed by seed" : "");
        }
    }
    if (few > 0) {
        say_labels(f, v, picked);
        fprintf(f, "\tended within %s of %s (%s).\n", report_percent(a, fmax(most, 0.0001)),
                v->reference->label, report_number(b, v->reference->loss));
    }
    if (!v->has_losses)
        fputs("The loss is not in the logs.\n", f);
    else if (!v->reference && v->n > 0 && v->at[0].steps > 0 && !group_failed(&v->at[0]))
        fprintf(f, "%s a %s of %s; there is no other run to compare it with.\n",
                v->at[0].running ? "It has come to" : "It ended at", loss_name(v),
                report_number(a, v->at[0].loss));
    say_skips(f, v, picked);
    free(picked);
}

void report_verdict(report_words *words, const report_run *runs, size_t n, const char *config)
{
    static void (*const say[WORDS_COMMAND])(FILE *, const verdict *) = {say_headline, say_underflow,
                                                                        say_cost, verdict_say_use};
    verdict v = {0};
    verdict_make(&v, runs, n);
    for (int i = 0; i < WORDS_COUNT; i++) {
        size_t length;
        FILE *f = cli_text_begin(&words->text[i], &length);
        if (i == WORDS_COMMAND)
            verdict_say_command(f, &v, config);
        else
            say[i](f, &v);
        cli_text_end(f);
    }
    verdict_free(&v);
}
