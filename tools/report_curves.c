/* What runs did over their steps, as charts. A chart has at most POINTS points a run, however long
 * it was. */
#include "report.h"

#include "report_chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 300, MARKS = 120 };

/* ---- series ---- */

typedef struct lines {
    chart_series *at;
    size_t n;
} lines;

static lines lines_new(const report *r)
{
    return (lines){cli_resize(NULL, (r->n + 1) * sizeof(chart_series)), 0};
}

static void lines_add(lines *l, const report *r, size_t run, chart_point *points, size_t n)
{
    bool any = false;
    for (size_t i = 0; i < n; i++)
        any |= isfinite(points[i].y);
    if (any)
        l->at[l->n++] = (chart_series){r->runs[run].name, run, points, n};
    else
        free(points);
}

static void lines_free(lines *l)
{
    for (size_t i = 0; i < l->n; i++)
        free((void *)(uintptr_t)l->at[i].at);
    free(l->at);
}

typedef float (*field)(const report_step *step);
static float loss_of(const report_step *s) { return s->loss; }
static float lost_of(const report_step *s) { return s->lost; }
static float rate_of(const report_step *s) { return s->rate; }

/* Steps on each side over which a line of n steps is a mean. */
static size_t window_of(size_t n) { return n / 50; }

/* Means of steps around each of at most POINTS places; low and high are of the steps at the place.
 */
static void add_means(lines *l, const report *r, size_t run, field of)
{
    const report_run *u = &r->runs[run];
    const size_t n = u->n < POINTS ? u->n : POINTS, w = window_of(u->n);
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
            if (i >= from && i < to) {
                low = fmin(low, value);
                high = fmax(high, value);
            }
        }
        points[k] = (chart_point){(double)u->steps[to - 1].step,
                                  count > 0 ? sum / count : (double)NAN, low, high};
    }
    lines_add(l, r, run, points, n);
}

static double valid_loss(const report_valid *v) { return v->loss; }
static double valid_accuracy(const report_valid *v) { return v->accuracy; }

/* Validations as they are, or every so many of them and the last. */
static void add_valid(lines *l, const report *r, size_t run, double (*of)(const report_valid *v))
{
    const report_run *u = &r->runs[run];
    const size_t n = u->valids < POINTS ? u->valids : POINTS;
    chart_point *points = cli_resize(NULL, n * sizeof *points);
    for (size_t k = 0; k < n; k++) {
        const report_valid *v = &u->valid[(k + 1) * u->valids / n - 1];
        const double y = of(v);
        points[k] = (chart_point){(double)v->step, isfinite(y) ? y : (double)NAN, y, y};
    }
    lines_add(l, r, run, points, n);
}

/* ---- losses ---- */

static void stretch(double *low, double *high, const lines *l)
{
    for (size_t s = 0; s < l->n; s++)
        for (size_t i = 0; i < l->at[s].n; i++) {
            const double y = l->at[s].at[i].y;
            *low = isfinite(y) ? fmin(*low, y) : *low;
            *high = isfinite(y) ? fmax(*high, y) : *high;
        }
}

void report_losses(FILE *f, const report *r)
{
    lines train = lines_new(r), valid = lines_new(r), accuracy = lines_new(r);
    size_t longest = 0;
    for (size_t i = 0; i < r->n; i++) {
        add_means(&train, r, i, loss_of);
        add_valid(&valid, r, i, valid_loss);
        add_valid(&accuracy, r, i, valid_accuracy);
        longest = r->runs[i].n > longest ? r->runs[i].n : longest;
    }
    double low = (double)INFINITY, high = -(double)INFINITY;
    stretch(&low, &high, &train);
    stretch(&low, &high, &valid);
    char about[160];
    const size_t around = 2 * window_of(longest) + 1 + (longest > POINTS ? longest / POINTS : 0);
    const int n = around > 1 ? snprintf(about, sizeof about, "Means over about %zu steps", around)
                             : snprintf(about, sizeof about, "As logged");
    snprintf(about + n, sizeof about - (size_t)n, "%s",
             train.n == 1 ? "; the band spans all of them." : ".");
    fputs("<div class=\"pair\">\n", f);
    chart_draw(f, &(chart){.id = "train",
                           .title = "Training loss",
                           .about = about,
                           .may_be_log = true,
                           .bands = train.n == 1,
                           .low = low,
                           .high = high,
                           .series = train.at,
                           .n = train.n});
    chart_draw(f, &(chart){.id = "valid",
                           .title = "Validation loss",
                           .about = "On data that is not trained on; the same axis.",
                           .may_be_log = true,
                           .points = true,
                           .low = low,
                           .high = high,
                           .series = valid.at,
                           .n = valid.n});
    if (accuracy.n > 0)
        chart_draw(f, &(chart){.id = "accuracy",
                               .title = "Validation accuracy",
                               .about = "Share of the targets that were right.",
                               .unit = CHART_SHARE,
                               .points = true,
                               .series = accuracy.at,
                               .n = accuracy.n});
    fputs("</div>\n", f);
    lines_free(&train);
    lines_free(&valid);
    lines_free(&accuracy);
}

/* ---- the scale ---- */

/* A staircase. Of steps that share a place the first, the lowest, the highest and the last. */
static void add_stairs(lines *l, const report *r, size_t run)
{
    const report_run *u = &r->runs[run];
    const size_t places = u->n < POINTS ? u->n : POINTS;
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
    lines_add(l, r, run, points, n);
}

/* A mark for the skipped and one for the retried steps of a place, at the scale of the first. */
static size_t add_marks(chart_mark *to, const report_run *u, size_t run)
{
    const size_t places = u->n < MARKS ? u->n : MARKS;
    size_t n = 0;
    for (size_t k = 0; k < places; k++) {
        const size_t from = k * u->n / places, end = (k + 1) * u->n / places;
        size_t count[2] = {0, 0}, first[2] = {0, 0};
        for (size_t i = from; i < end; i++)
            for (int kind = 0; kind < 2; kind++)
                if ((kind ? u->steps[i].reruns > 0 && !u->steps[i].skipped : u->steps[i].skipped) &&
                    isfinite(u->steps[i].log2_scale) && count[kind]++ == 0)
                    first[kind] = i;
        for (int kind = 0; kind < 2; kind++) {
            const report_step *s = &u->steps[first[kind]];
            if (count[kind] == 0)
                continue;
            chart_mark *m = &to[n++];
            *m = (chart_mark){.x = (double)s->step,
                              .y = (double)s->log2_scale,
                              .style = run,
                              .shape = kind ? CHART_DIAMOND : CHART_DOWN};
            if (count[kind] == 1)
                snprintf(m->title, sizeof m->title, "step %" PRIu64 ", scale 2^%.4g: %s", s->step,
                         m->y, kind ? "run again" : "skipped");
            else
                snprintf(m->title, sizeof m->title, "steps %" PRIu64 " to %" PRIu64 ": %zu %s",
                         u->steps[from].step, u->steps[end - 1].step, count[kind],
                         kind ? "run again" : "skipped");
        }
    }
    return n;
}

void report_scales(FILE *f, const report *r)
{
    lines l = lines_new(r);
    chart_mark *marks = cli_resize(NULL, r->n * 2 * MARKS * sizeof *marks);
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        add_stairs(&l, r, i);
        n += add_marks(marks + n, &r->runs[i], i);
    }
    chart_draw(f, &(chart){.id = "scale",
                           .title = "Scale of the loss",
                           .about = "Powers of two. A mark stands where steps were skipped or run "
                                    "again.",
                           .unit = CHART_POWER,
                           .series = l.at,
                           .n = l.n,
                           .marks = marks,
                           .mark_count = n});
    free(marks);
    lines_free(&l);
}

/* ---- others ---- */

void report_flushed(FILE *f, const report *r)
{
    lines l = lines_new(r);
    for (size_t i = 0; i < r->n; i++)
        add_means(&l, r, i, lost_of);
    chart_draw(f, &(chart){.id = "lost",
                           .title = "Share of gradients lost",
                           .about = "Of the gradients that were not zero, the share "
                                    "that became zero when they were stored.",
                           .unit = CHART_SHARE,
                           .from_zero = true,
                           .series = l.at,
                           .n = l.n});
    lines_free(&l);
}

static const char *seconds_text(char out[32], double value)
{
    if (!(value >= 0))
        snprintf(out, 32, "\xE2\x80\x93");
    else if (value < 60)
        snprintf(out, 32, "%.3g s", value);
    else
        snprintf(out, 32, "%.0f min %.0f s", floor(value / 60), floor(fmod(value, 60)));
    return out;
}

static const report_pairs *phases_of(const report_run *run) { return &run->phases; }
static const report_pairs *memory_of(const report_run *run) { return &run->memory; }

/* Names in the order in which they come up, and their sums over the runs. */
typedef struct parts {
    const char *names[REPORT_PAIRS];
    double sums[REPORT_PAIRS];
    size_t n;
} parts;

static size_t part_of(parts *p, const char *name)
{
    size_t at = 0;
    while (at < p->n && strcmp(p->names[at], name) != 0)
        at++;
    if (at == p->n && at < REPORT_PAIRS) {
        p->names[p->n] = name;
        p->sums[p->n++] = 0;
    }
    return at;
}

/* Where each part is drawn: the largest on their own, in order, the rest as the last. */
static size_t place_parts(size_t *places, const parts *p, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++) {
        size_t above = 0;
        for (size_t k = 0; k < p->n; k++)
            above += p->sums[k] > p->sums[i] || (p->sums[k] == p->sums[i] && k < i);
        places[i] = p->n <= most || above < most - 1 ? n++ : most - 1;
    }
    return p->n <= most ? n : most;
}

static void draw_parts(FILE *f, const report *r, chart_bars *b,
                       const report_pairs *(*pairs_of)(const report_run *run))
{
    parts *p = cli_resize(NULL, sizeof *p);
    size_t places[REPORT_PAIRS];
    const char *names[CHART_STYLES];
    p->n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const report_pairs *from = pairs_of(&r->runs[i]);
        for (size_t k = 0; k < from->n; k++)
            if (from->at[k].number > 0) {
                const size_t at = part_of(p, from->at[k].key);
                if (at < REPORT_PAIRS)
                    p->sums[at] += from->at[k].number;
            }
    }
    const size_t m = place_parts(places, p, CHART_STYLES);
    const char **rows = cli_resize(NULL, r->n * sizeof *rows);
    double *values = cli_resize(NULL, r->n * m * sizeof *values);
    for (size_t i = 0; i < p->n; i++)
        names[places[i]] = p->n > m && places[i] == m - 1 ? "other" : p->names[i];
    memset(values, 0, r->n * m * sizeof *values);
    for (size_t i = 0; i < r->n; i++) {
        const report_pairs *from = pairs_of(&r->runs[i]);
        rows[i] = r->runs[i].name;
        for (size_t k = 0; k < from->n; k++)
            for (size_t at = 0; from->at[k].number > 0 && at < p->n; at++)
                if (strcmp(p->names[at], from->at[k].key) == 0)
                    values[i * m + places[at]] += from->at[k].number;
    }
    b->rows = rows;
    b->parts = names;
    b->values = values;
    b->n = r->n;
    b->m = m;
    chart_draw_bars(f, b);
    free(rows);
    free(values);
    free(p);
}

void report_speed(FILE *f, const report *r)
{
    lines l = lines_new(r);
    for (size_t i = 0; i < r->n; i++)
        add_means(&l, r, i, rate_of);
    fputs("<div class=\"pair\">\n", f);
    chart_draw(f, &(chart){.id = "rate",
                           .title = "Items a second",
                           .about = "Of training steps, without validation.",
                           .unit = CHART_COUNT,
                           .from_zero = true,
                           .series = l.at,
                           .n = l.n});
    draw_parts(f, r,
               &(chart_bars){.id = "phase",
                             .title = "Where the time went",
                             .about = "By phase of the step, over the whole run.",
                             .as_shares = true,
                             .text = seconds_text},
               phases_of);
    fputs("</div>\n", f);
    lines_free(&l);
}

void report_memory(FILE *f, const report *r)
{
    draw_parts(f, r,
               &(chart_bars){.id = "memory",
                             .title = "Bytes by use",
                             .about = "When the run began.",
                             .text = report_bytes},
               memory_of);
}
