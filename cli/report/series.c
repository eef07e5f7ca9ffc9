#include "cli/report/series.h"

#include "cli/report/groups.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

series_list series_new(const report *r)
{
    return (series_list){cli_resize(NULL, (r->n + 1) * sizeof(chart_series)), 0,
                         cli_resize(NULL, (r->n + 1) * GROUP_LABEL)};
}

void series_add(series_list *l, const report *r, size_t run, chart_point *points, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= isfinite(points[i].y);
    if (any)
        l->at[l->n++] =
            (chart_series){.name = r->runs[run].name, .style = run, .at = points, .n = n};
    else
        free(points);
}

void series_free(series_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free((void *)(uintptr_t)l->at[i].at);
    free(l->at);
    free(l->labels);
}

static bool has_same_steps(const chart_series *a, const chart_series *b)
{
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = a->at[i].x == b->at[i].x;
    return same;
}

/* Adds the points of one more run to a mean over `runs` of them. */
static void add_to_mean(chart_point *mean, const chart_point *more, size_t n, double runs)
{
    for (size_t i = 0; i < n; i++) {
        mean[i].y += (more[i].y - mean[i].y) / (runs + 1);
        mean[i].low = fmin(mean[i].low, more[i].y);
        mean[i].high = fmax(mean[i].high, more[i].y);
    }
}

bool series_merge_seeds(series_list *l, const report *r)
{
    size_t kept = 0;
    bool any = false;
    for (size_t s = 0; s < l->n; s++) {
        const size_t first = group_first(r->runs, l->at[s].style);
        size_t k = 0;
        while (k < kept && !(l->at[k].style == first && has_same_steps(&l->at[k], &l->at[s])))
            k++;
        chart_point *points = (chart_point *)(uintptr_t)l->at[s].at;
        if (k == kept || first == l->at[s].style) {
            for (size_t i = 0; i < l->at[s].n; i++)
                points[i].low = points[i].high = points[i].y;
            l->at[s].merged = 1;
            l->at[kept++] = l->at[s];
            continue;
        }
        chart_series *to = &l->at[k];
        add_to_mean((chart_point *)(uintptr_t)to->at, points, to->n, (double)to->merged++);
        group_label(l->labels[k], &r->runs[first]);
        to->name = l->labels[k];
        free(points);
        any = true;
    }
    l->n = kept;
    return any;
}

size_t series_window(size_t n) { return n / 50; }

void series_add_means(series_list *l, const report *r, size_t run,
                      float (*of)(const report_step *step), series_gaps gaps)
{
    const report_run *u = &r->runs[run];
    const size_t n = u->n < SERIES_POINTS ? u->n : SERIES_POINTS, w = series_window(u->n);
    chart_point *points = cli_resize(NULL, n * sizeof *points);
    for (size_t k = 0; k < n; k++) {
        const size_t from = k * u->n / n, to = (k + 1) * u->n / n;
        const size_t first = from > w ? from - w : 0, last = to + w < u->n ? to + w : u->n;
        double sum = 0, count = 0, low = (double)INFINITY, high = -(double)INFINITY;
        bool own = gaps == SERIES_BRIDGED;
        for (size_t i = first; i < last; i++) {
            const double value = (double)of(&u->steps[i]);
            if (!isfinite(value))
                continue;
            own |= i >= from && i < to;
            sum += value;
            count++;
            low = fmin(low, value);
            high = fmax(high, value);
        }
        points[k] = (chart_point){(double)u->steps[to - 1].step,
                                  own && count > 0 ? sum / count : (double)NAN, low, high};
    }
    series_add(l, r, run, points, n);
}

void series_add_valid(series_list *l, const report *r, size_t run,
                      double (*of)(const report_valid *v))
{
    const report_run *u = &r->runs[run];
    const size_t n = u->valids < SERIES_POINTS ? u->valids : SERIES_POINTS;
    chart_point *points = cli_resize(NULL, n * sizeof *points);
    for (size_t k = 0; k < n; k++) {
        const report_valid *v = &u->valid[(k + 1) * u->valids / n - 1];
        const double y = of(v);
        points[k] = (chart_point){(double)v->step, isfinite(y) ? y : (double)NAN, y, y};
    }
    series_add(l, r, run, points, n);
}

void series_add_most(series_list *l, const report *r, size_t run,
                     float (*of)(const report_step *step))
{
    const report_run *u = &r->runs[run];
    const size_t n = u->n < SERIES_POINTS ? u->n : SERIES_POINTS;
    chart_point *points = cli_resize(NULL, n * sizeof *points);
    for (size_t k = 0; k < n; k++) {
        const size_t from = k * u->n / n, to = (k + 1) * u->n / n;
        double most = (double)NAN;
        for (size_t i = from; i < to; i++)
            most = fmax(most, (double)of(&u->steps[i]));
        points[k] = (chart_point){(double)u->steps[to - 1].step,
                                  isfinite(most) ? most : (double)NAN, most, most};
    }
    series_add(l, r, run, points, n);
}

size_t series_marks(chart_mark *to, const report_run *u, size_t run,
                    float (*of)(const report_step *step))
{
    const size_t places = u->n < SERIES_MARKS ? u->n : SERIES_MARKS;
    size_t n = 0;
    for (size_t k = 0; k < places; k++) {
        const size_t from = k * u->n / places, end = (k + 1) * u->n / places;
        size_t count[2] = {0, 0}, first[2] = {0, 0};
        for (size_t i = from; i < end; i++)
            for (int kind = 0; kind < 2; kind++)
                if ((kind ? u->steps[i].reruns > 0 && !u->steps[i].skipped : u->steps[i].skipped) &&
                    isfinite(of(&u->steps[i])) && count[kind]++ == 0)
                    first[kind] = i;
        for (int kind = 0; kind < 2; kind++) {
            const report_step *s = &u->steps[first[kind]];
            if (count[kind] == 0)
                continue;
            chart_mark *m = &to[n++];
            *m = (chart_mark){.x = (double)s->step,
                              .y = (double)of(s),
                              .style = run,
                              .shape = kind ? CHART_DIAMOND : CHART_DOWN};
            if (count[kind] == 1)
                snprintf(m->title, sizeof m->title, "step %" PRIu64 ", scale 2^%.4g: %s", s->step,
                         (double)s->log2_scale, kind ? "retried" : "skipped");
            else
                snprintf(m->title, sizeof m->title, "steps %" PRIu64 " to %" PRIu64 ": %zu %s",
                         u->steps[from].step, u->steps[end - 1].step, count[kind],
                         kind ? "retried" : "skipped");
        }
    }
    return n;
}
