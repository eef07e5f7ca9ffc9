/* series.h: the steps of runs as lines of a chart, SERIES_POINTS points per run at most, however
 * long it was. */
#ifndef REPORT_SERIES_H
#define REPORT_SERIES_H

#include "cli/report/chart.h"
#include "cli/report/report.h"

enum { SERIES_POINTS = 300, SERIES_MARKS = 120 /* places per run at which marks are drawn */ };

typedef struct series_list {
    chart_series *at; /* [n], one per run that has anything to draw */
    size_t n;
    char (*labels)[96]; /* names of lines that stand for several runs */
} series_list;

series_list series_new(const report *r);
void series_free(series_list *l);

/* Takes points[n]. */
void series_add(series_list *l, const report *r, size_t run, chart_point *points, size_t n);

/* Where no step of a place has a value: those around it stand in for what was not told, but not for
 * a loss that was not finite. */
typedef enum series_gaps { SERIES_BRIDGED, SERIES_BROKEN } series_gaps;

/* Means of steps around each place; low and high are of the same steps. */
void series_add_means(series_list *l, const report *r, size_t run,
                      float (*of)(const report_step *step), series_gaps gaps);
/* Steps on each side over which a line of n steps is a mean. */
size_t series_window(size_t n);

/* Runs that differ in their seed only become one line, their mean, with low and high around it;
 * true if there are any. Those that were not logged at the same steps stay as they are. */
bool series_merge_seeds(series_list *l, const report *r);

/* Validations as they are, or every so many of them and the last. */
void series_add_valid(series_list *l, const report *r, size_t run,
                      double (*of)(const report_valid *v));

/* The largest of the steps at each place. */
void series_add_most(series_list *l, const report *r, size_t run,
                     float (*of)(const report_step *step));

/* A mark for the skipped and one for the retried steps of a place, at the height of the first; `to`
 * has room for 2 * SERIES_MARKS. Returns how many. */
size_t series_marks(chart_mark *to, const report_run *u, size_t run,
                    float (*of)(const report_step *step));

#endif
