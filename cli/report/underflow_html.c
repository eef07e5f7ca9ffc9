/* Gradients that underflow to zero: a chart over the steps, and a heat map of each layer over time.
 */
#include "cli/report/layers.h"
#include "cli/report/series.h"

#include "cli/core/html.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 80, ROW = 18 };

static bool has_cells(const report_layer *l) { return l->samples > 0; }

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
        h->sum[at] += (double)c->underflow;
        h->count[at]++;
    }
}

static int heat_class(const heat *h, size_t layer, size_t column)
{
    const size_t at = layer * COLUMNS + column;
    return h->count[at] > 0 ? class_of(h->sum[at] / h->count[at]) : -1;
}

/* One path per class: cells of a row that are alike are one rectangle. */
static void draw_cells(FILE *f, const heat *h, const layers_choice *layers)
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

static void draw_map(FILE *f, const heat *h, const report_run *run, const layers_choice *layers,
                     const char *id)
{
    char text[32];
    const size_t height = layers->n * ROW, start = layers_start(run);
    fprintf(
        f,
        "<figure><svg class=\"plot named\" style=\"height:%zupx\" role=\"img\" "
        "aria-labelledby=\"%s-t %s-d\"><title id=\"%s-t\">Gradients that underflowed to zero, by "
        "layer and step, ",
        height + 28, id, id, id);
    html_escape(f, run->name);
    fprintf(f,
            "</title><desc id=\"%s-d\">One row per layer, %zu of them; steps %" PRIu64
            " to %" PRIu64 " from left to right; the stronger the colour, the larger the share. "
            "The numbers follow as a "
            "table.</desc>\n",
            id, layers->n, h->low, h->high);
    for (size_t r = 0; r < layers->n; r++)
        layers_name(f, run->layers[layers->at[r]].name + start, (double)(r * ROW + 13));
    draw_cells(f, h, layers);
    fprintf(f, "<text x=\"0\" y=\"%zu\">step %s</text>\n", height + 18,
            chart_step_text(text, (double)h->low));
    if (h->high > h->low)
        fprintf(f, "<text x=\"100%%\" y=\"%zu\" text-anchor=\"end\">%s</text>\n", height + 18,
                chart_step_text(text, (double)h->high));
    fputs("</svg></figure>\n", f);
}

/* Of the steps, not of the map's columns, which are means over steps where there are many. */
static void draw_map_table(FILE *f, const report_run *run)
{
    struct {
        double first, last, most;
    } *of = cli_resize(NULL, run->layer_count * sizeof *of);
    char text[32];
    memset(of, 0, run->layer_count * sizeof *of);
    for (size_t i = run->cell_count; i-- > 0;) {
        const report_cell *c = &run->cells[i];
        const double share = (double)c->underflow;
        of[c->layer].first = share;
        of[c->layer].most = fmax(of[c->layer].most, share);
    }
    for (size_t i = 0; i < run->cell_count; i++)
        of[run->cells[i].layer].last = (double)run->cells[i].underflow;
    html_table_begin(f, NULL,
                     (const char *const[]){"layer", "mean", "first", "last", "most", NULL});
    for (size_t l = 0; l < run->layer_count; l++) {
        if (!has_cells(&run->layers[l]))
            continue;
        fputs("<tr><th scope=\"row\">", f);
        html_escape(f, run->layers[l].name);
        fputs("</th>", f);
        html_cell(f, report_percent(text, layers_underflow(&run->layers[l])));
        html_cell(f, report_percent(text, of[l].first));
        html_cell(f, report_percent(text, of[l].last));
        html_cell(f, report_percent(text, of[l].most));
        fputs("</tr>\n", f);
    }
    html_table_end(f, NULL);
    free(of);
}

static bool has_underflow(const report_run *run)
{
    for (size_t i = 0; i < run->layer_count; i++)
        if (run->layers[i].underflow > 0)
            return true;
    return false;
}

static bool has_no_underflow(const report_run *run)
{
    return run->cell_count > 0 && !has_underflow(run);
}
static bool has_no_cells(const report_run *run)
{
    return run->cell_count == 0 && report_is_half(run);
}
static bool has_map(const report_run *run) { return run->cell_count > 0 && has_underflow(run); }

static float underflow_of(const report_step *s) { return s->underflow; }

static void draw_chart(FILE *f, const report *r)
{
    series_list l = series_new(r);
    for (size_t i = 0; i < r->n; i++)
        series_add_means(&l, r, i, underflow_of, SERIES_BRIDGED);
    const bool seeds = series_merge_seeds(&l, r);
    chart_draw(f, &(chart){.id = "underflow",
                           .title = "Gradients that underflowed to zero",
                           .about = seeds ? "Share of the non-zero gradients that underflowed to "
                                            "zero when they were stored. Means over steps and "
                                            "seeds, which the bands span."
                                          : "Share of the non-zero gradients that underflowed to "
                                            "zero when they were stored; means over steps.",
                           .unit = CHART_SHARE,
                           .from_zero = true,
                           .bands = seeds,
                           .series = l.at,
                           .n = l.n});
    series_free(&l);
}

static void draw_classes(FILE *f)
{
    fputs("<ul class=\"legend\">", f);
    for (int c = 0; c < CLASSES; c++)
        fprintf(f, "<li><i class=\"heat h%d\"></i>%s</li>", c, edge_names[c]);
    fputs("</ul>\n", f);
}

static void draw_maps(FILE *f, const report *r)
{
    layers_choice *first = cli_resize(NULL, sizeof *first), *rest = cli_resize(NULL, sizeof *rest);
    size_t n = 0;
    char id[32];
    fputs("<h3>By layer</h3>\n", f);
    for (size_t i = 0; i < r->n; i++) {
        const report_run *run = &r->runs[i];
        if (!has_map(run))
            continue;
        if (n == 0)
            draw_classes(f);
        heat h;
        heat_make(&h, run);
        layers_choose(first, rest, run, has_cells);
        fprintf(f, "<details class=\"run\"%s><summary>", n < 4 ? " open=\"open\"" : "");
        html_escape(f, run->name);
        fputs("</summary>\n", f);
        snprintf(id, sizeof id, "map%zu", i);
        draw_map(f, &h, run, first, id);
        if (rest->n > 0) {
            fprintf(f, "<details><summary>%zu layer%s with less underflow</summary>\n", rest->n,
                    cli_s(rest->n));
            snprintf(id, sizeof id, "more%zu", i);
            draw_map(f, &h, run, rest, id);
            fputs("</details>\n", f);
        }
        draw_map_table(f, run);
        fputs("</details>\n", f);
        free(h.sum);
        n++;
    }
    layers_say_others(f, r, has_no_underflow,
                      "<p class=\"soft\">No gradient underflowed in any layer of ", ".</p>\n");
    layers_say_others(
        f, r, has_no_cells,
        "<p class=\"soft\">No layers in the log, of steps that were applied: ", ".</p>\n");
    free(first);
    free(rest);
}

void report_draw_underflow(FILE *f, const report *r)
{
    draw_chart(f, r);
    draw_maps(f, r);
}
