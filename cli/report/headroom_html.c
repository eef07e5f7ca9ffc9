/* The largest gradient as it is stored, amax times scale, against the largest number of FP16: the
 * distance is what a scaler is to keep, neither too small nor wasted. And norms and learning
 * rate. */
#include "cli/report/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double LOG2_F16_MAX = 15.99929; /* of 65504 */

static float stored_of(const report_step *s) { return s->log2_amax + s->log2_scale; }
static float limit_of(const report_step *s) { return s->skipped ? (float)LOG2_F16_MAX : NAN; }
static float norm_of(const report_step *s) { return s->grad_norm; }
static float lr_of(const report_step *s) { return s->lr; }

/* Whether its gradients are stored in FP16: where nothing says otherwise. */
static bool is_fp16(const report_run *run)
{
    const char *precision = report_value(&run->config, "precision");
    return !precision || strcmp(precision, "fp16") == 0;
}

void report_draw_headroom(FILE *f, const report *r)
{
    series_list l = series_new(r);
    chart_mark *marks = cli_resize(NULL, r->n * 2 * SERIES_MARKS * sizeof *marks);
    size_t n = 0, fp16 = 0;
    for (size_t i = 0; i < r->n; i++)
        if (is_fp16(&r->runs[i])) {
            fp16++;
            const size_t before = l.n;
            series_add_most(&l, r, i, stored_of);
            if (l.n > before) /* not of a run that has no line here */
                n += series_marks(marks + n, &r->runs[i], i, limit_of);
        }
    chart_draw(f, &(chart){.id = "stored",
                           .title = "Largest gradient times scale",
                           .about = "The largest of the steps at each place, in powers of two: "
                                    "above the line FP16 overflows. A mark stands where steps "
                                    "were skipped.",
                           .none = fp16 ? NULL : "No run here stores gradients in FP16.",
                           .unit = CHART_POWER,
                           .limit_name = "FP16: 65504",
                           .limit = LOG2_F16_MAX,
                           .series = l.at,
                           .n = l.n,
                           .marks = marks,
                           .mark_count = n});
    free(marks);
    series_free(&l);
}

void report_draw_rates(FILE *f, const report *r)
{
    series_list norms = series_new(r), rates = series_new(r);
    for (size_t i = 0; i < r->n; i++) {
        series_add_means(&norms, r, i, norm_of, SERIES_BRIDGED);
        series_add_most(&rates, r, i, lr_of); /* as it is: a mean would bend the warm-up */
    }
    const bool seeds = series_merge_seeds(&norms, r);
    series_merge_seeds(&rates, r);
    fputs("<div class=\"pair\">\n", f);
    chart_draw(f, &(chart){.id = "norm",
                           .title = "Norm of the gradients",
                           .about = seeds ? "Of all weights, in true units, before clipping; means "
                                            "over steps and seeds, which the bands span."
                                          : "Of all weights, in true units, before clipping; means "
                                            "over steps.",
                           .may_be_log = true,
                           .bands = seeds,
                           .series = norms.at,
                           .n = norms.n});
    chart_draw(f, &(chart){.id = "lr",
                           .title = "Learning rate",
                           .about = "As the schedule has it.",
                           .from_zero = true,
                           .series = rates.at,
                           .n = rates.n});
    fputs("</div>\n", f);
    series_free(&norms);
    series_free(&rates);
}
