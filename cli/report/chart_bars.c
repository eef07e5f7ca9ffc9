/* Bars that are cut into parts. */
#include "cli/report/chart.h"

#include "cli/core/html.h"

#include <math.h>

static double row_sum(const chart_bars *b, size_t row)
{
    double sum = 0;
    for (size_t p = 0; p < b->m; p++)
        sum += b->values[row * b->m + p] > 0 ? b->values[row * b->m + p] : 0;
    return sum;
}

static void draw_bar(FILE *f, const chart_bars *b, size_t row, double full)
{
    char text[32];
    double at = 0;
    fprintf(f,
            "<svg viewBox=\"0 0 1000 16\" preserveAspectRatio=\"none\" role=\"img\" "
            "aria-labelledby=\"%s-%zu-t %s-%zu-d\"><title id=\"%s-%zu-t\">",
            b->id, row, b->id, row, b->id, row);
    html_escape(f, b->rows[row]);
    fprintf(f, "</title><desc id=\"%s-%zu-d\">", b->id, row);
    for (size_t p = 0; p < b->m; p++)
        if (b->values[row * b->m + p] > 0) {
            html_escape(f, b->parts[p]);
            fprintf(f, " %s. ", b->text(text, b->values[row * b->m + p]));
        }
    fputs("</desc>", f);
    for (size_t p = 0; p < b->m; p++) {
        const double value = b->values[row * b->m + p], width = 1000 * value / full;
        if (!(value > 0))
            continue;
        fprintf(f, "<rect class=\"part p%zu\" x=\"%.1f\" y=\"0\" width=\"%.1f\" height=\"16\"/>",
                p % CHART_STYLES, at, fmax(width - 1.5, 0.5));
        at += width;
    }
    fputs("</svg>", f);
}

void chart_draw_bars(FILE *f, const chart_bars *b)
{
    char text[32];
    double most = 0;
    for (size_t r = 0; r < b->n; r++)
        most = fmax(most, row_sum(b, r));
    fprintf(f, "<figure>\n<h3>%s</h3>\n", b->title);
    if (!(most > 0)) {
        fputs("<p class=\"soft\">Not in the logs.</p>\n</figure>\n", f);
        return;
    }
    fprintf(f, "<p class=\"soft note\">%s</p>\n<ul class=\"legend\">", b->about);
    for (size_t p = 0; p < b->m; p++) {
        fprintf(f, "<li><i class=\"part p%zu\"></i>", p % CHART_STYLES);
        html_escape(f, b->parts[p]);
        fputs("</li>", f);
    }
    fputs("</ul>\n<dl class=\"bars\">\n", f);
    for (size_t r = 0; r < b->n; r++) {
        const double sum = row_sum(b, r);
        fputs("<dt><span>", f);
        html_escape(f, b->rows[r]);
        fprintf(f, "</span><span>%s</span></dt><dd>",
                sum > 0 ? b->text(text, sum) : "not in the log");
        if (sum > 0)
            draw_bar(f, b, r, b->as_shares ? sum : most);
        fputs("</dd>\n", f);
    }
    fputs("</dl>\n", f);
    const char *titles[CHART_STYLES + 2] = {"run"}; /* NULL after the parts */
    for (size_t p = 0; p < b->m; p++)
        titles[p + 1] = b->parts[p];
    html_table_begin(f, NULL, titles);
    for (size_t r = 0; r < b->n; r++) {
        fputs("<tr><th scope=\"row\">", f);
        html_escape(f, b->rows[r]);
        fputs("</th>", f);
        for (size_t p = 0; p < b->m; p++)
            fprintf(f, "<td>%s</td>", b->text(text, b->values[r * b->m + p]));
        fputs("</tr>\n", f);
    }
    html_table_end(f, NULL);
    fputs("</figure>\n", f);
}
