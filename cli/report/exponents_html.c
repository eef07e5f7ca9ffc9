/* Histograms of the exponents of each layer's gradients. */
#include "cli/report/layers.h"

#include "cli/core/html.h"
#include "cli/report/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RIDGE = 30 };

static bool has_counts(const report_layer *l) { return l->n > 0; }

/* FP16: 2^-24 is the smallest subnormal, 2^-14 the smallest normal number; from 2^16 on all is
 * infinite. */
static const char *fate(int e)
{
    return e > 15 ? "overflow" : e >= -14 ? "normal" : e >= -24 ? "subnormal" : "underflow";
}

static double highest(const report_layer *l)
{
    double most = 0;
    for (size_t i = 0; i < l->n; i++)
        most = fmax(most, l->counts[i]);
    return most;
}

typedef struct span {
    int low, high; /* exponents that are drawn, both included */
} span;

/* FP16's range, and what of any run can be seen: the same for all, so that they can be compared. */
static span span_of(const report *r)
{
    static const double visible = 0.005; /* of the layer's highest bar */
    span s = {-28, 17};
    for (size_t k = 0; k < r->n; k++)
        for (size_t l = 0; l < r->runs[k].layer_count; l++) {
            const report_layer *x = &r->runs[k].layers[l];
            const double most = highest(x);
            for (size_t i = 0; i < x->n; i++)
                if (x->counts[i] > visible * most) {
                    const int e = x->first + (int)i;
                    s.low = e < s.low ? e : s.low;
                    s.high = e > s.high ? e : s.high;
                }
        }
    return s;
}

static double percent_at(const span *s, double e)
{
    return 100 * (e - s->low) / (s->high + 1 - s->low);
}

static void draw_ridge(FILE *f, const report_layer *l, const span *s, double base)
{
    const double most = fmax(highest(l), 1);
    for (size_t i = 0; i < l->n; i++) {
        const int e = l->first + (int)i;
        const double h = fmax((RIDGE - 6) * l->counts[i] / most, 0.8);
        if (l->counts[i] > 0 && e >= s->low && e <= s->high)
            fprintf(f, "<rect class=\"%s\" x=\"%.2f\" y=\"%.1f\" width=\".84\" height=\"%.1f\"/>",
                    fate(e), e - s->low + 0.08, base - h, h);
    }
    fputc('\n', f);
}

/* A format's range under the histograms. */
static void draw_range(FILE *f, const span *s, double y, const char *name, int tiny, int small,
                       int large)
{
    const struct {
        int from, to;
        const char *class;
    } parts[] = {{tiny, small, "subnormal"}, {small, large, "normal"}};
    fprintf(f, "<text x=\"-8\" y=\"%.1f\" text-anchor=\"end\">%s</text>", y + 9, name);
    for (size_t i = 0; i < 2; i++) {
        const double from = fmax(percent_at(s, parts[i].from), 0);
        const double to = fmin(percent_at(s, parts[i].to), 100);
        if (to > from)
            fprintf(f,
                    "<rect class=\"%s\" x=\"%.2f%%\" y=\"%.1f\" width=\"%.2f%%\" height=\"8\" "
                    "rx=\"2\"/>",
                    parts[i].class, from, y, to - from);
    }
    fputc('\n', f);
}

/* Share of all values, those that were zero before they were stored included. */
static double zeros_of(const report_layer *l)
{
    double all = l->zero + l->bad;
    for (size_t i = 0; i < l->n; i++)
        all += l->counts[i];
    return all > 0 ? l->zero / all : 0;
}

static void draw_ridges(FILE *f, const report_run *run, const layers_choice *layers, span s,
                        const char *id)
{
    const size_t start = layers_start(run);
    char text[32];
    const int height = (int)layers->n * RIDGE, every = s.high - s.low > 60 ? 20 : 10;
    static const int limits[] = {-24, -14, 16};
    fprintf(f,
            "<figure><svg class=\"plot named\" style=\"height:%dpx\" role=\"img\" "
            "aria-labelledby=\"%s-t %s-d\"><title id=\"%s-t\">Exponents of each layer's stored "
            "gradients, ",
            height + 72, id, id, id);
    html_escape(f, run->name);
    fprintf(
        f,
        "</title><desc id=\"%s-d\">One histogram per layer, %zu of them, from 2 to the power %d to "
        "2 to the power %d. FP16 has normal numbers from -14 to 15, subnormal ones from -24; "
        "BF16 reaches from -133 to 127. The numbers follow as a table.</desc>\n",
        id, layers->n, s.low, s.high);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        fprintf(f, "<line class=\"range\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"%d\"/>",
                percent_at(&s, limits[i]), percent_at(&s, limits[i]), height);
    fputc('\n', f);
    for (size_t r = 0; r < layers->n; r++) {
        const double base = (double)(r + 1) * RIDGE;
        layers_name(f, run->layers[layers->at[r]].name + start, base - 4);
        fprintf(f, "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>", base,
                base);
        fprintf(f, "<text x=\"100%%\" y=\"%.1f\" text-anchor=\"end\">", base - 4);
        html_escape(f, report_percent(text, zeros_of(&run->layers[layers->at[r]])));
        fputs(" zero</text>\n", f);
    }
    fprintf(f,
            "<svg width=\"100%%\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "preserveAspectRatio=\"none\">\n",
            height, s.high + 1 - s.low, height);
    for (size_t r = 0; r < layers->n; r++)
        draw_ridge(f, &run->layers[layers->at[r]], &s, (double)(r + 1) * RIDGE);
    fputs("</svg>\n", f);
    for (int e = s.low; e <= s.high; e++)
        if (e % every == 0)
            fprintf(f,
                    "<text x=\"%.2f%%\" y=\"%d\" text-anchor=\"middle\">2<tspan dy=\"-5\" "
                    "font-size=\"9\">%d</tspan></text>\n",
                    percent_at(&s, e + 0.5), height + 20, e);
    draw_range(f, &s, height + 32, "FP16", -24, -14, 16);
    draw_range(f, &s, height + 50, "BF16", -133, -126, 128);
    fputs("</svg></figure>\n", f);
}

static void draw_ridge_table(FILE *f, const report_run *run)
{
    char text[32];
    html_table_begin(f, NULL,
                     (const char *const[]){"layer", "values", "zero", "below 2^-24",
                                           "subnormal in FP16", "normal", "above", "Inf, NaN",
                                           NULL});
    for (size_t l = 0; l < run->layer_count; l++) {
        static const char *const fates[] = {"underflow", "subnormal", "normal", "overflow"};
        const report_layer *x = &run->layers[l];
        double sums[4] = {0}, all = x->zero + x->bad;
        for (size_t i = 0; i < x->n; i++) {
            size_t k = 0;
            while (strcmp(fates[k], fate(x->first + (int)i)) != 0)
                k++;
            sums[k] += x->counts[i];
            all += x->counts[i];
        }
        if (x->n == 0)
            continue;
        fputs("<tr><th scope=\"row\">", f);
        html_escape(f, x->name);
        fputs("</th>", f);
        html_cell(f, report_count(text, all));
        html_cell(f, report_percent(text, all > 0 ? x->zero / all : 0));
        for (size_t k = 0; k < 4; k++)
            html_cell(f, report_percent(text, all > 0 ? sums[k] / all : 0));
        html_cell(f, report_count(text, x->bad));
        fputs("</tr>\n", f);
    }
    html_table_end(f, NULL);
}

static bool has_ridges(const report_run *run)
{
    for (size_t i = 0; i < run->layer_count; i++)
        if (run->layers[i].n > 0)
            return true;
    return false;
}
static bool has_no_ridges(const report_run *run) { return !has_ridges(run); }

void report_draw_exponents(FILE *f, const report *r)
{
    layers_choice *first = cli_resize(NULL, sizeof *first), *rest = cli_resize(NULL, sizeof *rest);
    size_t worst = r->n, plain = r->n; /* are shown: the most underflow, and none */
    const span s = span_of(r);
    char id[32];
    for (size_t i = r->n; i-- > 0;) {
        const report_run *run = &r->runs[i];
        if (!has_ridges(run))
            continue;
        if (!report_is_half(run))
            plain = i;
        else if (worst == r->n || !(run->underflow < r->runs[worst].underflow))
            worst = i;
    }
    if (worst < r->n || plain < r->n)
        fputs("<ul class=\"legend\"><li><i style=\"background:var(--underflow)\"></i>zero in "
              "FP16</li>"
              "<li><i style=\"background:var(--subnormal)\"></i>subnormal</li><li><i "
              "style=\"background:var(--normal)\"></i>normal</li><li><i "
              "style=\"background:var(--overflow)\"></i>infinite</li></ul>\n",
              f);
    for (size_t i = 0; i < r->n; i++) {
        const report_run *run = &r->runs[i];
        if (!has_ridges(run))
            continue;
        layers_choose(first, rest, run, has_counts);
        fprintf(f, "<details class=\"run\"%s><summary>",
                r->n <= 3 || i == worst || i == plain ? " open=\"open\"" : "");
        html_escape(f, run->name);
        fprintf(f, " <span class=\"soft\">step %" PRIu64, run->exponents_step);
        if (run->exponents_scale > 0)
            fprintf(f, ", scale 2<sup>%.3g</sup>", log2(run->exponents_scale));
        if (run->half) {
            fputs(", stored as ", f);
            html_escape(f, run->half);
        }
        fputs("</span></summary>\n", f);
        snprintf(id, sizeof id, "exp%zu", i);
        draw_ridges(f, run, first, s, id);
        if (rest->n > 0) {
            fprintf(f, "<details><summary>%zu more layers</summary>\n", rest->n);
            snprintf(id, sizeof id, "expmore%zu", i);
            draw_ridges(f, run, rest, s, id);
            fputs("</details>\n", f);
        }
        draw_ridge_table(f, run);
        fputs("</details>\n", f);
    }
    layers_say_others(f, r, has_no_ridges,
                      "<p class=\"soft\">No histogram of finite gradients in the log: ", ".</p>\n");
    free(first);
    free(rest);
}
