/* The loss scale over the steps, as a staircase with marks where steps were skipped or retried. */
#include "cli/report/series.h"

#include <math.h>
#include <stdlib.h>

static float scale_of(const report_step *s) { return s->log2_scale; }

/* A staircase. Of steps that share a place the first, the lowest, the highest and the last. */
static void add_stairs(series_list *l, const report *r, size_t run)
{
    const report_run *u = &r->runs[run];
    const size_t places = u->n < SERIES_POINTS ? u->n : SERIES_POINTS;
    chart_point *points = cli_resize(NULL, (5 * places + 1) * sizeof *points);
    size_t n = 0;
    double level = (double)NAN;
    for (size_t k = 0; k < places; k++) {
        const size_t from = k * u->n / places, to = (k + 1) * u->n / places;
        const double x = (double)u->steps[from].step;
        double low = (double)INFINITY, high = -(double)INFINITY;
        for (size_t i = from; i < to; i++) {
            const double y = (double)u->steps[i].log2_scale;
            low = isnan(y) ? low : fmin(low, y);
            high = isnan(y) ? high : fmax(high, y);
        }
        const double ys[] = {level, (double)u->steps[from].log2_scale, low, high,
                             (double)u->steps[to - 1].log2_scale};
        for (size_t i = 0; i < 5 && (low < high || high != level); i++)
            points[n++] = (chart_point){.x = x, .y = isfinite(ys[i]) ? ys[i] : (double)NAN};
        level = ys[4];
    }
    if (u->n > 0)
        points[n++] = (chart_point){.x = (double)u->steps[u->n - 1].step, .y = level};
    series_add(l, r, run, points, n);
}

void report_draw_scale(FILE *f, const report *r)
{
    series_list l = series_new(r);
    chart_mark *marks = cli_resize(NULL, r->n * 2 * SERIES_MARKS * sizeof *marks);
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        add_stairs(&l, r, i);
        n += series_marks(marks + n, &r->runs[i], i, scale_of);
    }
    chart_draw(
        f, &(chart){.id = "scale",
                    .title = "Scale of the loss",
                    .about = "Powers of two. A mark stands where steps were skipped or retried.",
                    .unit = CHART_POWER,
                    .holds = true,
                    .series = l.at,
                    .n = l.n,
                    .marks = marks,
                    .mark_count = n});
    free(marks);
    series_free(&l);
}
