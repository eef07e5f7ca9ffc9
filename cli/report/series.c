#include "cli/report/series.h"

#include <math.h>
#include <stdlib.h>

series_list series_new(const report *r)
{
    return (series_list){cli_resize(NULL, (r->n + 1) * sizeof(chart_series)), 0};
}

void series_add(series_list *l, const report *r, size_t run, chart_point *points, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= isfinite(points[i].y);
    if (any)
        l->at[l->n++] = (chart_series){r->runs[run].name, run, points, n};
    else
        free(points);
}

void series_free(series_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free((void *)(uintptr_t)l->at[i].at);
    free(l->at);
}

size_t series_window(size_t n) { return n / 50; }

void series_add_means(series_list *l, const report *r, size_t run,
                      float (*of)(const report_step *step))
{
    const report_run *u = &r->runs[run];
    const size_t n = u->n < SERIES_POINTS ? u->n : SERIES_POINTS, w = series_window(u->n);
    chart_point *points = cli_resize(NULL, n * sizeof *points);
    for (size_t k = 0; k < n; k++) {
        const size_t from = k * u->n / n, to = (k + 1) * u->n / n;
        const size_t first = from > w ? from - w : 0, last = to + w < u->n ? to + w : u->n;
        double sum = 0, count = 0, low = (double)INFINITY, high = -(double)INFINITY;
        for (size_t i = first; i < last; i++) {
            const double value = (double)of(&u->steps[i]);
            if (!isfinite(value))
                continue;
            sum += value;
            count++;
            low = fmin(low, value);
            high = fmax(high, value);
        }
        points[k] = (chart_point){(double)u->steps[to - 1].step,
                                  count > 0 ? sum / count : (double)NAN, low, high};
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
