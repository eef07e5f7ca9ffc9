/* What a run costs: items per second, seconds by phase, bytes by use. */
#include "cli/report/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float rate_of(const report_step *s) { return s->rate; }

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

void report_draw_speed(FILE *f, const report *r)
{
    series_list l = series_new(r);
    bool resumed = false;
    for (size_t i = 0; i < r->n; i++) {
        series_add_means(&l, r, i, rate_of, SERIES_BRIDGED);
        resumed |= r->runs[i].resumes > 0;
    }
    const bool seeds = series_merge_seeds(&l, r);
    fputs("<div class=\"pair\">\n", f);
    chart_draw(f, &(chart){.id = "rate",
                           .title = "Items per second",
                           .about = seeds ? "Of training steps, without validation; means over "
                                            "steps and seeds, which the bands span."
                                          : "Of training steps, without validation; means over "
                                            "steps.",
                           .bands = seeds,
                           .unit = CHART_COUNT,
                           .from_zero = true,
                           .series = l.at,
                           .n = l.n});
    draw_parts(f, r,
               &(chart_bars){.id = "phase",
                             .title = "Where the time went",
                             .about = resumed ? "By phase of the step; of a run that was resumed, "
                                                "since it last was."
                                              : "By phase of the step, over the whole run.",
                             .as_shares = true,
                             .text = seconds_text},
               phases_of);
    fputs("</div>\n", f);
    series_free(&l);
}

void report_draw_memory(FILE *f, const report *r)
{
    draw_parts(f, r,
               &(chart_bars){.id = "memory",
                             .title = "Bytes by use",
                             .about = "When the run began.",
                             .text = report_bytes},
               memory_of);
}
