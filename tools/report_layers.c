/* What happened in each layer: a map of what was lost over time, histograms of exponents. */
#include "report.h"

#include "html.h"
#include "report_chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 24, COLUMNS = 80, ROW = 18, RIDGE = 30, NAME = 24 };

/* Length of what all names of layers begin with, up to a dot: "transformer.". */
static size_t common_start(const report_run *run)
{
    size_t n = run->layer_count > 1 ? strlen(run->layers[0].name) : 0;
    for (size_t i = 1; i < run->layer_count; i++)
        while (n > 0 && strncmp(run->layers[0].name, run->layers[i].name, n) != 0)
            n--;
    while (n > 0 && run->layers[0].name[n - 1] != '.')
        n--;
    return n;
}

/* Without that; and the end of a long name tells more than its beginning. */
static void draw_name(FILE *f, const char *name, double y)
{
    const size_t n = strlen(name);
    const char *from = n > NAME ? name + n - NAME : name;
    while (((unsigned char)*from & 0xC0) == 0x80) /* not inside a character */
        from++;
    fprintf(f, "<text x=\"-8\" y=\"%.1f\" text-anchor=\"end\">%s", y, from > name ? "…" : "");
    html_escape(f, from);
    fputs("</text>\n", f);
}

/* Layers of a run in the order of the model; picked: those to draw. */
typedef struct choice {
    size_t at[REPORT_LAYERS], n;
} choice;

static double lost_by(const report_layer *l) { return l->samples > 0 ? l->lost / l->samples : 0; }

/* Parts them: the SHOWN that lost the most, and the rest; both in order. */
static void choose(choice *first, choice *rest, const report_run *run,
                   bool (*has)(const report_layer *l))
{
    first->n = rest->n = 0;
    for (size_t i = 0; i < run->layer_count; i++) {
        size_t above = 0;
        if (!has(&run->layers[i]))
            continue;
        for (size_t k = 0; k < run->layer_count; k++)
            above += has(&run->layers[k]) &&
                     (lost_by(&run->layers[k]) > lost_by(&run->layers[i]) ||
                      (lost_by(&run->layers[k]) == lost_by(&run->layers[i]) && k < i));
        choice *to = above < SHOWN ? first : rest;
        to->at[to->n++] = i;
    }
}

static bool has_cells(const report_layer *l) { return l->samples > 0; }
static bool has_counts(const report_layer *l) { return l->n > 0; }

/* ---- the map ---- */

/* Classes of shares, by their upper end: seven steps of one colour are as many as one can name. */
static const double edges[] = {0, 0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 1};
static const char *const edge_names[] = {"0",      "to 0.1%", "to 1%",  "to 5%",
                                         "to 20%", "to 50%",  "to 80%", "to 100%"};
enum { CLASSES = sizeof edges / sizeof edges[0] };

static int class_of(double share)
{
    int c = 0;
    while (c < CLASSES - 1 && share > edges[c])
        c++;
    return isnan(share) ? -1 : c;
}

typedef struct heat {
    uint64_t low, high; /* steps */
    size_t columns;
    double *sum, *count; /* [layers][columns] */
} heat;

static void heat_make(heat *h, const report_run *run)
{
    size_t times = 0;
    for (size_t i = 0; i < run->cell_count; i++)
        times += i == 0 || run->cells[i].step != run->cells[i - 1].step;
    const size_t cells = run->layer_count * COLUMNS;
    h->columns = times < COLUMNS ? times : COLUMNS;
    h->low = run->cells[0].step;
    h->high = run->cells[run->cell_count - 1].step;
    h->sum = cli_resize(NULL, 2 * cells * sizeof *h->sum);
    memset(h->sum, 0, 2 * cells * sizeof *h->sum);
    h->count = h->sum + cells;
    for (size_t i = 0, time = 0; i < run->cell_count; i++) {
        const report_cell *c = &run->cells[i];
        time += i > 0 && c->step != run->cells[i - 1].step;
        const size_t at = c->layer * COLUMNS + time * h->columns / times;
        h->sum[at] += (double)c->lost;
        h->count[at]++;
    }
}

static int heat_class(const heat *h, size_t layer, size_t column)
{
    const size_t at = layer * COLUMNS + column;
    return h->count[at] > 0 ? class_of(h->sum[at] / h->count[at]) : -1;
}

/* One path a class: cells of a row that are alike are one rectangle. */
static void draw_cells(FILE *f, const heat *h, const choice *layers)
{
    fprintf(f,
            "<svg width=\"100%%\" height=\"%zu\" viewBox=\"0 0 %zu %zu\" "
            "preserveAspectRatio=\"none\">\n",
            layers->n * ROW, h->columns, layers->n * ROW);
    for (int c = 0; c < CLASSES; c++) {
        fprintf(f, "<path class=\"heat h%d\" d=\"", c);
        for (size_t r = 0; r < layers->n; r++)
            for (size_t from = 0; from < h->columns;) {
                size_t to = from;
                while (to < h->columns && heat_class(h, layers->at[r], to) == c)
                    to++;
                if (to > from)
                    fprintf(f, "M%zu %zuh%zuv%dh-%zuz", from, r * ROW + 1, to - from, ROW - 2,
                            to - from);
                from = to > from ? to : from + 1;
            }
        fputs("\"/>\n", f);
    }
    fputs("</svg>\n", f);
}

static void draw_map(FILE *f, const heat *h, const report_run *run, const choice *layers,
                     const char *id)
{
    char text[32];
    const size_t height = layers->n * ROW, start = common_start(run);
    fprintf(f,
            "<figure><svg class=\"plot named\" style=\"height:%zupx\" role=\"img\" "
            "aria-labelledby=\"%s-t %s-d\"><title id=\"%s-t\">Share of gradients lost by layer and "
            "step, ",
            height + 28, id, id, id);
    html_escape(f, run->name);
    fprintf(
        f,
        "</title><desc id=\"%s-d\">A row a layer, %zu of them; steps %" PRIu64 " to %" PRIu64
        " from left to right; the stronger the colour, the more was lost. The numbers follow as a "
        "table.</desc>\n",
        id, layers->n, h->low, h->high);
    for (size_t r = 0; r < layers->n; r++)
        draw_name(f, run->layers[layers->at[r]].name + start, (double)(r * ROW + 13));
    draw_cells(f, h, layers);
    fprintf(f, "<text x=\"0\" y=\"%zu\">step %s</text>\n", height + 18,
            chart_step_text(text, (double)h->low));
    fprintf(f, "<text x=\"100%%\" y=\"%zu\" text-anchor=\"end\">%s</text>\n</svg></figure>\n",
            height + 18, chart_step_text(text, (double)h->high));
}

static void draw_map_table(FILE *f, const heat *h, const report_run *run)
{
    char text[32];
    fputs("<details><summary>The numbers</summary><div class=\"scroll\" tabindex=\"0\"><table>"
          "<thead><tr><th scope=\"col\">layer</th><th scope=\"col\">mean</th><th scope=\"col\">"
          "first</th><th scope=\"col\">last</th><th scope=\"col\">most</th></tr></thead><tbody>\n",
          f);
    for (size_t l = 0; l < run->layer_count; l++) {
        double ends[2] = {(double)NAN, (double)NAN}, most = 0;
        for (size_t c = 0; c < h->columns; c++) {
            const size_t at = l * COLUMNS + c;
            if (h->count[at] == 0)
                continue;
            ends[1] = h->sum[at] / h->count[at];
            ends[0] = isnan(ends[0]) ? ends[1] : ends[0];
            most = fmax(most, ends[1]);
        }
        if (isnan(ends[0]))
            continue;
        fputs("<tr><th scope=\"row\">", f);
        html_escape(f, run->layers[l].name);
        fprintf(f, "</th><td>%s</td>", report_percent(text, lost_by(&run->layers[l])));
        fprintf(f, "<td>%s</td>", report_percent(text, ends[0]));
        fprintf(f, "<td>%s</td>", report_percent(text, ends[1]));
        fprintf(f, "<td>%s</td></tr>\n", report_percent(text, most));
    }
    fputs("</tbody></table></div></details>\n", f);
}

static bool lost_anything(const report_run *run)
{
    for (size_t i = 0; i < run->layer_count; i++)
        if (run->layers[i].lost > 0)
            return true;
    return false;
}

/* Runs of which there is nothing to draw, in a sentence. */
static void say_others(FILE *f, const report *r, bool (*is_other)(const report_run *run),
                       const char *before, const char *after)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++)
        if (is_other(&r->runs[i])) {
            fputs(n++ ? ", " : before, f);
            html_escape(f, r->runs[i].name);
        }
    fputs(n ? after : "", f);
}

static bool lost_nothing(const report_run *run)
{
    return run->cell_count > 0 && !lost_anything(run);
}
static bool has_no_cells(const report_run *run) { return run->cell_count == 0; }
static bool has_map(const report_run *run) { return run->cell_count > 0 && lost_anything(run); }

void report_map(FILE *f, const report *r)
{
    choice *first = cli_resize(NULL, sizeof *first), *rest = cli_resize(NULL, sizeof *rest);
    size_t n = 0;
    char id[32];
    fputs("<h3>By layer</h3>\n<ul class=\"legend\">", f);
    for (int c = 0; c < CLASSES; c++)
        fprintf(f, "<li><i class=\"heat h%d\"></i>%s</li>", c, edge_names[c]);
    fputs("</ul>\n", f);
    for (size_t i = 0; i < r->n; i++) {
        const report_run *run = &r->runs[i];
        if (!has_map(run))
            continue;
        heat h;
        heat_make(&h, run);
        choose(first, rest, run, has_cells);
        fprintf(f, "<details class=\"run\"%s><summary>", n < 4 ? " open=\"open\"" : "");
        html_escape(f, run->name);
        fputs("</summary>\n", f);
        snprintf(id, sizeof id, "map%zu", i);
        draw_map(f, &h, run, first, id);
        if (rest->n > 0) {
            fprintf(f, "<details><summary>%zu layers that lost less</summary>\n", rest->n);
            snprintf(id, sizeof id, "more%zu", i);
            draw_map(f, &h, run, rest, id);
            fputs("</details>\n", f);
        }
        draw_map_table(f, &h, run);
        fputs("</details>\n", f);
        free(h.sum);
        n++;
    }
    say_others(f, r, lost_nothing, "<p class=\"soft\">Nothing was lost in any layer by ",
               ".</p>\n");
    say_others(f, r, has_no_cells,
               "<p class=\"soft\">The log does not tell of layers: ", ".</p>\n");
    free(first);
    free(rest);
}

/* ---- exponents ---- */

/* FP16: 2^-24 is the smallest subnormal, 2^-14 the smallest normal number; from 2^16 on all is
 * infinite. */
static const char *fate(int e)
{
    return e > 15 ? "overflow" : e >= -14 ? "normal" : e >= -24 ? "subnormal" : "lost";
}

typedef struct span {
    int low, high; /* exponents that are drawn, both included */
} span;

/* What holds values, and FP16's range in any case. */
static span span_of(const report_run *run)
{
    span s = {-28, 17};
    for (size_t l = 0; l < run->layer_count; l++)
        for (size_t i = 0; i < run->layers[l].n; i++)
            if (run->layers[l].counts[i] > 0) {
                const int e = run->layers[l].first + (int)i;
                s.low = e < s.low ? e : s.low;
                s.high = e > s.high ? e : s.high;
            }
    return s;
}

static double percent_at(const span *s, double e)
{
    return 100 * (e - s->low) / (s->high + 1 - s->low);
}

static void draw_ridge(FILE *f, const report_layer *l, const span *s, double base)
{
    double most = 1;
    for (size_t i = 0; i < l->n; i++)
        most = fmax(most, l->counts[i]);
    for (size_t i = 0; i < l->n; i++) {
        const int e = l->first + (int)i;
        const double h = fmax((RIDGE - 6) * l->counts[i] / most, 0.8);
        if (l->counts[i] > 0)
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

static void draw_ridges(FILE *f, const report_run *run, const choice *layers, const char *id)
{
    const span s = span_of(run);
    const size_t start = common_start(run);
    const int height = (int)layers->n * RIDGE, every = s.high - s.low > 60 ? 20 : 10;
    static const int limits[] = {-24, -14, 16};
    fprintf(f,
            "<figure><svg class=\"plot named\" style=\"height:%dpx\" role=\"img\" "
            "aria-labelledby=\"%s-t %s-d\"><title id=\"%s-t\">Exponents of each layer's stored "
            "gradients, ",
            height + 72, id, id, id);
    html_escape(f, run->name);
    fprintf(f,
            "</title><desc id=\"%s-d\">A histogram a layer, %zu of them, from 2 to the power %d to "
            "2 to the power %d. FP16 has normal numbers from -14 to 15, subnormal ones from -24; "
            "BF16 reaches from -133 to 127. The numbers follow as a table.</desc>\n",
            id, layers->n, s.low, s.high);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        fprintf(f, "<line class=\"limit\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"%d\"/>",
                percent_at(&s, limits[i]), percent_at(&s, limits[i]), height);
    fputc('\n', f);
    for (size_t r = 0; r < layers->n; r++) {
        const double base = (double)(r + 1) * RIDGE;
        draw_name(f, run->layers[layers->at[r]].name + start, base - 4);
        fprintf(f, "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>\n", base,
                base);
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
    fputs("<details><summary>The numbers</summary><div class=\"scroll\" tabindex=\"0\"><table>"
          "<thead><tr><th scope=\"col\">layer</th><th scope=\"col\">values</th><th scope=\"col\">"
          "zero</th><th scope=\"col\">below 2<sup>-24</sup></th><th scope=\"col\">subnormal in "
          "FP16</th><th scope=\"col\">normal</th><th scope=\"col\">above</th><th scope=\"col\">"
          "Inf, NaN</th></tr></thead><tbody>\n",
          f);
    for (size_t l = 0; l < run->layer_count; l++) {
        static const char *const fates[] = {"lost", "subnormal", "normal", "overflow"};
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
        fprintf(f, "</th><td>%s</td>", report_count(text, all));
        fprintf(f, "<td>%s</td>", report_percent(text, all > 0 ? x->zero / all : 0));
        for (size_t k = 0; k < 4; k++)
            fprintf(f, "<td>%s</td>", report_percent(text, all > 0 ? sums[k] / all : 0));
        fprintf(f, "<td>%s</td></tr>\n", report_count(text, x->bad));
    }
    fputs("</tbody></table></div></details>\n", f);
}

static bool has_ridges(const report_run *run)
{
    for (size_t i = 0; i < run->layer_count; i++)
        if (run->layers[i].n > 0)
            return true;
    return false;
}
static bool has_no_ridges(const report_run *run) { return !has_ridges(run); }

void report_exponents(FILE *f, const report *r)
{
    choice *first = cli_resize(NULL, sizeof *first), *rest = cli_resize(NULL, sizeof *rest);
    size_t worst = r->n;
    char id[32];
    for (size_t i = 0; i < r->n; i++)
        if (has_ridges(&r->runs[i]) && (worst == r->n || r->runs[i].lost > r->runs[worst].lost))
            worst = i;
    if (worst < r->n)
        fputs("<ul class=\"legend\"><li><i style=\"background:var(--lost)\"></i>zero in FP16</li>"
              "<li><i style=\"background:var(--subnormal)\"></i>subnormal</li><li><i "
              "style=\"background:var(--normal)\"></i>normal</li><li><i "
              "style=\"background:var(--overflow)\"></i>infinite</li></ul>\n",
              f);
    for (size_t i = 0; i < r->n; i++) {
        const report_run *run = &r->runs[i];
        if (!has_ridges(run))
            continue;
        choose(first, rest, run, has_counts);
        fprintf(f, "<details class=\"run\"%s><summary>", i == worst ? " open=\"open\"" : "");
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
        draw_ridges(f, run, first, id);
        if (rest->n > 0) {
            fprintf(f, "<details><summary>%zu more layers</summary>\n", rest->n);
            snprintf(id, sizeof id, "expmore%zu", i);
            draw_ridges(f, run, rest, id);
            fputs("</details>\n", f);
        }
        draw_ridge_table(f, run);
        fputs("</details>\n", f);
    }
    say_others(f, r, has_no_ridges, "<p class=\"soft\">No histograms in the log: ", ".</p>\n");
    free(first);
    free(rest);
}
