/* The verdict in words. */
#include "cli/report/groups.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What differs by less is called the same; by more, a loss of quality. One seed moves the loss of a
 * small net by about a percent. */
static const double same = 0.01, worse = 0.05;
static const double some = 0.0001, much = 0.01; /* shares of gradients that underflowed */
static const double faster = 0.05;              /* timings of a shared machine are no better */

static const char *loss_name(const verdict *v)
{
    return v->is_validated ? "validation loss" : "training loss";
}

/* "11.2 times the loss of fp32", "0.3% above fp32", "the same as fp32" */
static void say_ratio(FILE *f, const verdict *v, double ratio)
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

static bool is_broken(const group *g) { return g->finite < g->n; }

static const group *worst_of(const verdict *v)
{
    const group *worst = NULL;
    for (size_t i = 0; i < v->n; i++) {
        const group *g = &v->at[i];
        if (g == v->reference || g->steps == 0)
            continue;
        if (!worst || (is_broken(g) && !is_broken(worst)) ||
            (is_broken(g) == is_broken(worst) && g->ratio > worst->ratio))
            worst = g;
    }
    return worst;
}

static void say_headline_alone(FILE *f, const verdict *v)
{
    const group *g = &v->at[0];
    char share[32], loss[32];
    if (is_broken(g))
        fprintf(f, "%s did not end with a finite loss", g->label);
    else if (!g->is_half)
        fprintf(f, "%s ended at a %s of %s", g->label, loss_name(v), report_number(loss, g->loss));
    else if (isnan(g->underflow))
        fprintf(f, "%s ended at a %s of %s; its underflow was not measured", g->label, loss_name(v),
                report_number(loss, g->loss));
    else if (g->underflow < some)
        fprintf(f, "%s had next to no underflow: %s of its non-zero gradients became zero",
                g->label, report_percent(share, g->underflow));
    else
        fprintf(f, "%s had %s of its non-zero gradients underflow to zero", g->label,
                report_percent(share, g->underflow));
}

static void say_headline(FILE *f, const verdict *v)
{
    size_t steps = 0;
    for (size_t i = 0; i < v->n; i++)
        steps += v->at[i].steps;
    const group *worst = worst_of(v);
    char share[32];
    if (steps == 0) {
        fputs("No step has been logged yet", f);
    } else if (!v->reference || !worst) {
        say_headline_alone(f, v);
    } else if (is_broken(worst)) {
        fprintf(f, "%s did not end with a finite loss", worst->label);
    } else if (worst->ratio < 1 + worse) {
        double most = 0;
        for (size_t i = 0; i < v->n; i++)
            most = fmax(most, fabs(v->at[i].ratio - 1));
        fprintf(f, "It made no difference: all came within %s of %s",
                report_percent(share, fmax(most, 0.0001)), v->reference->label);
    } else {
        if (worst->underflow >= much)
            fprintf(f, "%s had %s of its non-zero gradients underflow to zero and %s at ",
                    worst->label, report_percent(share, worst->underflow), came_to(worst));
        else
            fprintf(f, "%s %s at ", worst->label, came_to(worst));
        say_ratio(f, v, worst->ratio);
    }
}

/* "most in conv1 (98%), conv2 (90%)": the three with the most underflow, of the group's first run.
 */
static void say_layers(FILE *f, const report_run *run)
{
    const report_layer *top[3] = {0};
    char share[32];
    for (size_t i = 0; i < run->layer_count; i++) {
        const report_layer *l = &run->layers[i];
        for (size_t k = 0; k < 3 && l && l->samples > 0; k++)
            if (!top[k] || l->underflow / l->samples > top[k]->underflow / top[k]->samples) {
                const report_layer *swap = top[k];
                top[k] = l;
                l = swap;
            }
    }
    size_t n = 0;
    while (n < 3 && top[n] && top[n]->underflow > 0)
        n++;
    for (size_t k = 0; k < n; k++)
        fprintf(f, "%s%s (%s)",
                k == 0       ? ", most of all in "
                : k + 1 == n ? " and "
                             : ", ",
                top[k]->name, report_percent(share, top[k]->underflow / top[k]->samples));
}

static void say_underflow(FILE *f, const verdict *v)
{
    size_t known = 0, above = 0, told = 0;
    double rest = 0;
    char share[32];
    for (size_t i = 0; i < v->n; i++) {
        known += isfinite(v->at[i].underflow) ? 1 : 0;
        above += v->at[i].underflow >= some;
    }
    if (known == 0) {
        fputs("Not known: the logs hold no telemetry of gradients.\n", f);
        return;
    }
    bool *done = cli_resize(NULL, v->n * sizeof *done);
    memset(done, 0, v->n * sizeof *done);
    for (; told < 4 && told < above; told++) { /* the most underflow first */
        size_t at = v->n;
        for (size_t i = 0; i < v->n; i++)
            if (!done[i] && v->at[i].underflow >= some &&
                (at == v->n || v->at[i].underflow > v->at[at].underflow))
                at = i;
        done[at] = true;
        fprintf(f, "%s\t%s%s", v->at[at].label, report_percent(share, v->at[at].underflow),
                told ? "" : " of the non-zero gradients underflowed to zero when stored");
        if (told == 0 || v->at[at].underflow >= much)
            say_layers(f, v->at[at].first);
        fputs(".\n", f);
    }
    for (size_t i = 0; i < v->n; i++)
        if (!done[i] && isfinite(v->at[i].underflow))
            rest = fmax(rest, v->at[i].underflow);
    if (told == 0)
        fprintf(f,
                "Next to none: %s%s of the non-zero gradients underflowed to zero when stored.\n",
                known > 1 && rest > 0 ? "at most " : "", report_percent(share, rest));
    else if (known > told)
        fprintf(f, "The other%s: %s%s.\n", known > told + 1 ? "s" : "",
                rest > 0 ? "at most " : "none", rest > 0 ? report_percent(share, rest) : "");
    for (size_t i = 0; i < v->n; i++) /* fp32 has none, and needs none */
        if (v->at[i].is_half && v->at[i].steps > 0 && isnan(v->at[i].underflow))
            fprintf(f, "%s\tnot known: it ran without telemetry.\n", v->at[i].label);
    free(done);
}

static void say_skips(FILE *f, const verdict *v)
{
    char share[32];
    for (size_t i = 0, n = 0; i < v->n && n < 6; i++) {
        const group *g = &v->at[i];
        if (g->skipped + g->retried == 0)
            continue;
        n++;
        fprintf(f, "%s\t", g->label);
        if (g->skipped)
            fprintf(f, "skipped %" PRIu64 " of %zu steps (%s)", g->skipped, g->steps,
                    report_percent(share, (double)g->skipped / (double)g->steps));
        if (g->retried)
            fprintf(f, "%sretried %" PRIu64 " %s", g->skipped ? " and " : "", g->retried,
                    g->retried == 1 ? "batch" : "batches");
        fputs(".\n", f);
    }
}

static void say_cost(FILE *f, const verdict *v)
{
    bool *picked = cli_resize(NULL, v->n * sizeof *picked);
    char a[32], b[32];
    size_t few = 0;
    double most = 0;
    for (size_t i = 0; i < v->n; i++) {
        const group *g = &v->at[i];
        picked[i] = v->reference && g != v->reference && fabs(g->ratio - 1) < worse;
        few += picked[i];
        most = picked[i] ? fmax(most, fabs(g->ratio - 1)) : most;
        if (g->steps == 0) {
            fprintf(f, "%s\thas no step yet.\n", g->label);
        } else if (is_broken(g)) {
            fprintf(f, "%s\tended with a loss that is not finite", g->label);
            if (g->n > 1)
                fprintf(f, " in %zu of %zu runs", g->n - g->finite, g->n);
            fputs(".\n", f);
        } else if (v->reference && g != v->reference && !picked[i]) {
            fprintf(f, "%s\t%s at a %s of %s, ", g->label, came_to(g), loss_name(v),
                    report_number(a, g->loss));
            say_ratio(f, v, g->ratio);
            if (g->running || v->reference->running)
                fputs(" after as many steps.\n", f);
            else
                fprintf(f, " (%s).\n", report_number(b, v->reference->loss));
        }
    }
    if (few > 0) {
        say_labels(f, v, picked);
        fprintf(f, "\tended within %s of %s (%s).\n", report_percent(a, fmax(most, 0.0001)),
                v->reference->label, report_number(b, v->reference->loss));
    }
    if (!v->reference && v->n > 0 && v->at[0].steps > 0 && !is_broken(&v->at[0]))
        fprintf(f, "%s a %s of %s; there is no other run to compare it with.\n",
                v->at[0].running ? "It has come to" : "It ended at", loss_name(v),
                report_number(a, v->at[0].loss));
    say_skips(f, v);
    free(picked);
}

static double wasted(const group *g)
{
    return g->steps > 0 ? (double)(g->skipped + g->retried) / (double)g->steps : 0;
}

/* First the loss, then the speed, then the steps skipped or retried; each only where it differs
 * by more than chance. */
static bool is_better(const group *a, const group *b)
{
    if (fabs(a->ratio - b->ratio) > same)
        return a->ratio < b->ratio;
    if (fabs(a->rate / b->rate - 1) > faster)
        return a->rate > b->rate;
    return wasted(a) < wasted(b);
}

/* Of those in half precision that kept the reference's loss. */
static const group *pick(const verdict *v)
{
    const group *best = NULL;
    for (size_t i = 0; i < v->n; i++) {
        const group *g = &v->at[i];
        if (g->is_half && g->steps > 0 && !is_broken(g) && g->ratio < 1 + 2 * same &&
            (!best || is_better(g, best)))
            best = g;
    }
    return best;
}

static void say_gain(FILE *f, const group *g, const group *to)
{
    char text[32];
    const double speed = g->rate / to->rate, bytes = g->bytes / to->bytes;
    if (isfinite(speed) && fabs(speed - 1) >= faster)
        fprintf(f, ", at %.2g times its speed", speed);
    else if (isfinite(speed))
        fputs(", as fast", f);
    if (isfinite(bytes) && bytes < 0.95)
        fprintf(f, ", in %s of its memory", report_percent(text, bytes));
}

static bool has_fixed_scale(const report_run *run)
{
    const char *scaler = report_value(&run->config, "scaler");
    return scaler && (strcmp(scaler, "none") == 0 || strcmp(scaler, "guard") == 0 ||
                      strncmp(scaler, "static", 6) == 0);
}

static void say_use_alone(FILE *f, const group *g)
{
    if (g->steps == 0)
        return;
    if (is_broken(g))
        fputs("Look for the first step whose loss is not finite: no scale mends a loss that is not "
              "finite before it is scaled.\n",
              f);
    else if (g->is_half && g->underflow >= much && has_fixed_scale(g->first))
        fputs("A larger scale; a dynamic one finds it: --scaler pytorch or headroom.\n", f);
    else if (g->is_half && g->underflow >= much)
        fputs(
            "The scale already follows the gradients; what underflows all the same may not matter. "
            "gradscale compare would tell, and whether bf16 does better.\n",
            f);
    else if (wasted(g) >= 0.05)
        fputs("A scale that overflows less often: --scaler headroom keeps its distance.\n", f);
    else
        fputs("Nothing here asks for a change. gradscale compare would tell what fp32 makes of "
              "the same job.\n",
              f);
}

static void say_caveats(FILE *f, const verdict *v)
{
    size_t seeds = 0, running = 0, steps = 0;
    for (size_t i = 0; i < v->n; i++) {
        seeds = v->at[i].n > seeds ? v->at[i].n : seeds;
        running += v->at[i].running;
        steps += v->at[i].steps;
    }
    if (steps == 0)
        return;
    if (v->reference && seeds == 1)
        fputs("With one seed each, a difference of a percent may be chance.\n", f);
    if (!v->is_validated)
        fputs("There was no validation: this goes by the training loss.\n", f);
    if (running && v->n == 1 && v->at[0].n == 1)
        fputs("It has not ended: this is how things stand.\n", f);
    else if (running)
        fprintf(f, "%zu of the runs %s not ended: this is how things stand.\n", running,
                running == 1 ? "has" : "have");
}

static void say_use(FILE *f, const verdict *v)
{
    const group *best = v->reference ? pick(v) : NULL;
    if (!v->reference) {
        say_use_alone(f, &v->at[0]);
    } else if (best == v->reference) {
        fprintf(f, "%s\tended best of these; there is no fp32 run to compare them with.\n",
                best->label);
    } else if (best) {
        fprintf(f, "%s\t%s at ", best->label, came_to(best));
        say_ratio(f, v, best->ratio);
        say_gain(f, best, v->reference);
        fputs(".\n", f);
    } else {
        fprintf(f, "%s\tNone of the others came within %g%% of its loss.\n", v->reference->label,
                200 * same);
    }
    say_caveats(f, v);
}

void report_verdict(report_words *words, const report_run *runs, size_t n)
{
    static void (*const say[WORDS_COUNT])(FILE *, const verdict *) = {say_headline, say_underflow,
                                                                      say_cost, say_use};
    verdict v = {0};
    verdict_make(&v, runs, n);
    for (int i = 0; i < WORDS_COUNT; i++) {
        size_t length;
        FILE *f = cli_text_begin(&words->text[i], &length);
        say[i](f, &v);
        cli_text_end(f, &words->text[i]);
    }
    free(v.at);
}
