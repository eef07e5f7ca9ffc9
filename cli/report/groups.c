#include "cli/report/groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_same_job(const report_run *a, const report_run *b)
{
    static const char *const apart[] = {"seed",   "log",         "report", "checkpoint", "resume",
                                        "config", "tensorboard", "csv",    "name"};
    if (a->config.n == 0 || a->config.n != b->config.n)
        return false;
    for (size_t i = 0; i < a->config.n; i++) {
        bool matters = true;
        for (size_t k = 0; k < sizeof apart / sizeof apart[0]; k++)
            matters &= strcmp(a->config.at[i].key, apart[k]) != 0;
        const char *other = report_value(&b->config, a->config.at[i].key);
        if (matters && (!other || strcmp(other, a->config.at[i].value) != 0))
            return false;
    }
    return true;
}

static bool has_same_seed(const report_run *a, const report_run *b)
{
    const char *x = report_value(&a->config, "seed"), *y = report_value(&b->config, "seed");
    return x && y && strcmp(x, y) == 0;
}

size_t group_first(const report_run *runs, size_t run)
{
    for (size_t i = 0; i < run; i++)
        if (is_same_job(&runs[i], &runs[run]) && !has_same_seed(&runs[i], &runs[run]))
            return i;
    return run;
}

bool group_has_seeds(const report_run *runs, size_t n, size_t run)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (i == run || !is_same_job(&runs[i], &runs[run]))
            continue;
        if (has_same_seed(&runs[i], &runs[run]))
            return false;
        any = true;
    }
    return any && report_value(&runs[run].config, "seed");
}

void group_label(char label[GROUP_LABEL], const report_run *run)
{
    snprintf(label, GROUP_LABEL, "%s", run->name);
    char *seed = strstr(label, " seed ");
    if (seed)
        *seed = 0;
}

static void add_to_group(group *g, const report_run *run, bool is_validated)
{
    if (g->n == 0) {
        *g = (group){.first = run, .worst = run, .is_half = report_is_half(run), .has_loss = true};
        group_label(g->label, run);
    }
    g->n++;
    if (run->fate != REPORT_FINE && g->failed++ == 0)
        g->worst = run;
    g->running += report_is_running(run);
    g->steps += run->n;
    g->is_sample |= run->n > 1 && run->steps[run->n - 1].step - run->steps[0].step >= run->n;
    g->loss += report_loss_at(run, UINT64_MAX, is_validated);
    g->has_loss &= run->has_loss || run->n == 0;
    g->rate += run->rate;
    g->seconds += run->seconds;
    g->bytes += run->bytes;
    g->underflow += run->underflow;
    g->skipped += run->skipped;
    g->first_forward = g->forward ? g->first_forward : run->first_forward;
    g->forward += run->forward;
    g->retried += run->retried;
}

/* What losses are measured by: the first job in fp32, else the one with the least mean loss, of
 * those that have a finite one. v->n: there is none. */
static size_t reference_group(const verdict *v, const report_run *runs, const size_t *group_of,
                              size_t n)
{
    size_t best = v->n;
    for (size_t i = 0; i < n; i++) {
        const group *g = &v->at[group_of[i]];
        if (!g->is_half && isfinite(report_loss_at(&runs[i], UINT64_MAX, v->is_validated)))
            return group_of[i];
        if (isfinite(g->loss) && (best == v->n || g->loss < v->at[best].loss))
            best = group_of[i];
    }
    return best;
}

/* Of the reference's runs the one with the same seed, else the first, of those with a finite loss.
 */
static const report_run *reference_of(const report_run *run, size_t reference,
                                      const report_run *runs, const size_t *group_of, size_t n)
{
    const report_run *first = NULL;
    for (size_t i = 0; i < n; i++) {
        if (group_of[i] != reference || !isfinite(runs[i].loss))
            continue;
        if (has_same_seed(run, &runs[i]))
            return &runs[i];
        first = first ? first : &runs[i];
    }
    return first;
}

/* Of runs that have ended, at their ends; while one of them goes on, at the last step of both. */
static double ratio_to(const report_run *run, const report_run *reference, bool is_validated)
{
    const uint64_t a = run->n > 0 ? run->steps[run->n - 1].step : 0;
    const uint64_t b = reference->n > 0 ? reference->steps[reference->n - 1].step : 0;
    const bool goes_on = report_is_running(run) || report_is_running(reference);
    const uint64_t at = !goes_on ? UINT64_MAX : a < b ? a : b;
    const double loss = report_loss_at(run, at, is_validated);
    const double other = report_loss_at(reference, at, is_validated);
    if (is_validated && at != UINT64_MAX && (isnan(loss) || isnan(other)))
        return ratio_to(run, reference, false); /* one of them has not come to a validation yet */
    return other > 0 ? loss / other : (double)NAN;
}

/* Twice the standard error of the difference of two means of ratios. The variance is pooled over
 * the groups whose loss is about that of the reference, which is the measure and has none of its
 * own; those that lost their way vary for other reasons. Too few seeds to tell: a percent. */
static void set_noise(verdict *v)
{
    double squares = 0, freedom = 0, seeds = 0;
    for (size_t i = 0; i < v->n; i++) {
        const group *g = &v->at[i];
        if (g == v->reference || g->n < 2 || !isfinite(g->variance) ||
            fabs(g->ratio - 1) > verdict_worse)
            continue;
        squares += g->variance * (double)(g->n - 1);
        freedom += (double)(g->n - 1);
        seeds = fmax(seeds, (double)g->n);
    }
    v->noise_is_own = freedom > 0;
    v->noise = freedom > 0 ? fmax(2 * sqrt(squares / freedom * 2 / seeds), 0.0005) : verdict_same;
}

void verdict_make(verdict *v, const report_run *runs, size_t n)
{
    size_t *group_of = cli_resize(NULL, n * sizeof *group_of);
    v->at = cli_resize(NULL, n * sizeof *v->at);
    v->n = 0;
    v->reference = NULL;
    v->runs = runs;
    v->run_count = n;
    v->group_of = group_of;
    v->is_validated = n > 0;
    size_t steps = 0, told = 0;
    for (size_t i = 0; i < n; i++) {
        const bool tells = runs[i].has_loss || runs[i].is_validated;
        v->is_validated &= runs[i].is_validated || runs[i].n == 0 || !tells;
        steps += runs[i].n > 0;
        told += runs[i].n > 0 && tells;
    }
    v->has_losses = told > 0 || steps == 0;
    for (size_t i = 0; i < n; i++) {
        size_t g = 0;
        while (g < v->n && !is_same_job(v->at[g].first, &runs[i]))
            g++;
        if (g == v->n)
            v->at[v->n++].n = 0;
        add_to_group(&v->at[g], &runs[i], v->is_validated);
        group_of[i] = g;
    }
    for (size_t i = 0; i < v->n; i++) {
        group *g = &v->at[i];
        double *const sums[] = {&g->loss, &g->rate, &g->bytes, &g->underflow};
        for (size_t k = 0; k < sizeof sums / sizeof sums[0]; k++)
            *sums[k] /= (double)g->n;
    }
    const size_t reference = reference_group(v, runs, group_of, n);
    double *ratios = cli_resize(NULL, (n + 1) * sizeof *ratios);
    for (size_t i = 0; i < n; i++) {
        const report_run *r = reference_of(&runs[i], reference, runs, group_of, n);
        group *g = &v->at[group_of[i]];
        ratios[i] = r ? ratio_to(&runs[i], r, v->is_validated) : (double)NAN;
        g->ratio += ratios[i] / (double)g->n;
    }
    for (size_t i = 0; i < n; i++) {
        group *g = &v->at[group_of[i]];
        const double off = ratios[i] - g->ratio;
        g->variance += g->n > 1 ? off * off / (double)(g->n - 1) : (double)NAN;
    }
    free(ratios);
    v->reference = v->n > 1 && reference < v->n ? &v->at[reference] : NULL;
    set_noise(v);
}

void verdict_free(verdict *v)
{
    free(v->at);
    free(v->group_of);
}
