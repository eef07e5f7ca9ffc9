/* Training loss, validation loss and accuracy, as charts. */
#include "cli/report/series.h"

#include <math.h>

static float loss_of(const report_step *s) { return s->loss; }
static double valid_loss(const report_valid *v) { return v->loss; }
static double valid_accuracy(const report_valid *v) { return v->accuracy; }

static void widen(double *low, double *high, const series_list *l, bool bands)
{
    for (size_t s = 0; s < l->n; s++)
        for (size_t i = 0; i < l->at[s].n; i++) {
            const chart_point *p = &l->at[s].at[i];
            if (!isfinite(p->y))
                continue;
            *low = fmin(*low, bands ? p->low : p->y);
            *high = fmax(*high, bands ? p->high : p->y);
        }
}

/* What series_add_means takes together in a run of so many. */
static size_t steps_of_a_mean(size_t n)
{
    return 2 * series_window(n) + 1 + (n > SERIES_POINTS ? n / SERIES_POINTS : 0);
}

void report_draw_loss(FILE *f, const report *r)
{
    series_list train = series_new(r), valid = series_new(r), accuracy = series_new(r);
    size_t longest = 0, shortest = SIZE_MAX, valids = 0;
    for (size_t i = 0; i < r->n; i++) {
        series_add_means(&train, r, i, loss_of, r->runs[i].kind ? SERIES_BRIDGED : SERIES_BROKEN);
        series_add_valid(&valid, r, i, valid_loss);
        series_add_valid(&accuracy, r, i, valid_accuracy);
        valids += r->runs[i].valids;
        longest = r->runs[i].n > longest ? r->runs[i].n : longest;
        shortest = r->runs[i].n < shortest ? r->runs[i].n : shortest;
    }
    const size_t runs = train.n; /* before seeds are one */
    const bool seeds = runs > 1 && series_merge_seeds(&train, r);
    const bool valid_seeds = runs > 1 && series_merge_seeds(&valid, r);
    const bool accuracy_seeds = runs > 1 && series_merge_seeds(&accuracy, r);
    double low = (double)INFINITY, high = -(double)INFINITY;
    widen(&low, &high, &train, seeds || runs == 1);
    widen(&low, &high, &valid, valid_seeds);
    char about[160];
    const size_t around = steps_of_a_mean(longest);
    const int n = around == 1 && seeds ? snprintf(about, sizeof about, "Means")
                  : around == 1
                      ? snprintf(about, sizeof about, "As logged")
                      : snprintf(about, sizeof about, "Means over %s %zu steps",
                                 steps_of_a_mean(shortest) < around ? "up to" : "about", around);
    snprintf(about + n, sizeof about - (size_t)n, "%s",
             runs == 1 && around > 1 ? "; the band spans all of them."
             : seeds && around == 1  ? " over seeds, which the bands span."
             : seeds                 ? ", and over seeds, which the bands span."
                                     : ".");
    fputs("<div class=\"pair\">\n", f);
    chart_draw(f, &(chart){.id = "train",
                           .title = "Training loss",
                           .about = about,
                           .may_be_log = true,
                           .bands = seeds || runs == 1,
                           .low = low,
                           .high = high,
                           .series = train.at,
                           .n = train.n});
    chart_draw(f, &(chart){.id = "valid",
                           .title = "Validation loss",
                           .about = valid_seeds ? "On data that is not trained on; the same axis. "
                                                  "Means over seeds, which the bands span."
                                                : "On data that is not trained on; the same axis.",
                           .none = valids > 0 ? "It was never finite." : NULL,
                           .may_be_log = true,
                           .bands = valid_seeds,
                           .points = true,
                           .low = low,
                           .high = high,
                           .series = valid.at,
                           .n = valid.n});
    if (accuracy.n > 0)
        chart_draw(f, &(chart){.id = "accuracy",
                               .title = "Validation accuracy",
                               .about = accuracy_seeds
                                            ? "Share of the targets that were right. Means over "
                                              "seeds, which the bands span."
                                            : "Share of the targets that were right.",
                               .unit = CHART_SHARE,
                               .points = true,
                               .bands = accuracy_seeds,
                               .series = accuracy.at,
                               .n = accuracy.n});
    fputs("</div>\n", f);
    series_free(&train);
    series_free(&valid);
    series_free(&accuracy);
}
