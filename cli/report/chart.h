/* chart.h: charts as inline SVG that follow the width of the page.
 *
 * Lines lie in a nested <svg> that is stretched, with strokes that are not; text and marks are
 * placed in percent, so they keep their size on a phone as on a screen. Each chart has a title and
 * a description for those who do not see it, a legend whose entries differ in dash and shape as
 * well as in colour, and the numbers as a table. */
#ifndef REPORT_CHART_H
#define REPORT_CHART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { CHART_STYLES = 8 }; /* colours, and dashes: 64 runs differ in one of the two */

/* y NaN: a gap. low and high: the spread around it, drawn where the chart has bands. */
typedef struct chart_point {
    double x, y, low, high;
} chart_point;

typedef struct chart_series {
    const char *name;
    size_t style; /* which colour, dash and shape: the number of the run */
    const chart_point *at;
    size_t n;
    size_t merged; /* runs of which it is the mean */
} chart_series;

typedef enum chart_shape { CHART_DOWN, CHART_DIAMOND } chart_shape;

typedef struct chart_mark {
    double x, y;
    size_t style;
    chart_shape shape;
    char title[96]; /* ASCII that needs no escape */
} chart_mark;

typedef enum chart_unit { CHART_NUMBER, CHART_SHARE, CHART_POWER, CHART_COUNT } chart_unit;

typedef struct chart {
    const char *id; /* a letter, then letters and digits */
    const char *title, *about;
    const char *none; /* said in place of an empty chart; NULL: that it is not in the logs */
    chart_unit unit;  /* of y; CHART_POWER: y is its log2 */
    bool may_be_log, from_zero, bands, points;
    bool holds;             /* a staircase: between two points the value is that of the first */
    const char *limit_name; /* NULL: no line; else drawn across at `limit` */
    double limit;
    double low, high; /* of y, to share an axis; low == high: from the data */
    const chart_series *series;
    size_t n;
    const chart_mark *marks;
    size_t mark_count;
} chart;

void chart_draw(FILE *f, const chart *c);

/* One bar per row, cut into parts; NaN parts are left out. */
typedef struct chart_bars {
    const char *id, *title, *about;
    const char *const *rows;  /* [n] names */
    const char *const *parts; /* [m] names, CHART_STYLES at most */
    const double *values;     /* [n][m] */
    size_t n, m;
    bool as_shares; /* every bar has full length */
    const char *(*text)(char out[32], double value);
} chart_bars;

void chart_draw_bars(FILE *f, const chart_bars *b);

/* The rules, for html_begin. */
extern const char chart_style[];

/* A sample of a series' line, for tables and legends. */
void chart_swatch(FILE *f, size_t style);

/* "12000" -> "12k", exact or with 3 digits. */
const char *chart_step_text(char out[32], double step);

/* At most n steps from low to high that are round numbers; returns how many, ticks[] in order. */
size_t chart_ticks(double *ticks, size_t n, double low, double high);

#endif
