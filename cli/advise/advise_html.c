/* `gradscale advise --report F.html`: one file, no network, light and dark, readable on a phone. */
#include "cli/advise/advise.h"
#include "cli/core/html.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ".answer{background:var(--card);border:1px solid var(--line);border-radius:12px;"
    "padding:20px;margin:20px 0;display:flex;gap:24px;align-items:center;flex-wrap:wrap}\n"
    ".answer .scale{font-size:2.6rem;font-weight:650;line-height:1;white-space:nowrap}\n"
    ".answer .scale small{display:block;font-size:.9rem;font-weight:400;color:var(--soft);"
    "margin-top:6px}\n"
    ".answer div+div{flex:1 1 300px}\n"
    ".beside{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:24px}\n"
    ".beside th,.beside td{padding:4px 9px}\n"
    "@media(max-width:800px){.beside{grid-template-columns:minmax(0,1fr)}}\n"
    "svg text{font-size:13px}\n"
    ".axis{stroke:var(--line);stroke-width:1}\n"
    ".s-subnormal{stroke:var(--subnormal)}.s-underflow{stroke:var(--underflow)}"
    ".s-overflow{stroke:var(--overflow)}\n"
    "polyline{fill:none;stroke-width:2.5;stroke-linejoin:round}\n"
    ".mark{stroke:var(--ink);stroke-width:1;stroke-dasharray:3 3}\n"
    ".key{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:.85rem;color:var(--soft);"
    "margin-top:8px}.key i{display:inline-block;width:10px;height:10px;border-radius:2px;"
    "margin-right:5px}\n"
    "tr.use td{background:color-mix(in srgb,var(--normal) 18%,transparent);font-weight:650}"
    "tr.use td:first-child{box-shadow:inset 4px 0 var(--normal)}tr.use td:first-child::after{"
    "content:\" \\2190  use\"}\n"
    ".tensors td:last-child{width:150px;padding:2px 10px}.tensors "
    "svg{display:block;width:130px;height:26px}\n";

/* What FP16 makes of magnitudes from 2^e to 2^(e+1), times 2^k: also the class of their colour. */
static const char *fate(int e, int k)
{
    return e + k > 15     ? "overflow"
           : e + k >= -14 ? "normal"
           : e + k >= -25 ? "subnormal"
                          : "underflow";
}

/* ---- the histogram ---- */

enum { W = 640, LEFT = 58, RIGHT = 10, TOP = 14, PLOT = 250, STRIP = 16 };

typedef struct axis {
    int low, high;
    double step; /* pixels an exponent */
} axis;

static double x_of(const axis *x, int e) { return LEFT + (e - x->low) * x->step; }

/* Which magnitudes are what at a scale, as a strip under the bars. */
static void strip(FILE *f, const axis *x, int k, double y)
{
    for (int from = x->low; from <= x->high;) {
        int to = from;
        while (to < x->high && strcmp(fate(to + 1, k), fate(from, k)) == 0)
            to++;
        fprintf(f,
                "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"3\">"
                "<title>%s at scale 2^%d</title></rect>\n",
                fate(from, k), x_of(x, from) + 1, y, (to - from + 1) * x->step - 2, (int)STRIP,
                fate(from, k), k);
        from = to + 1;
    }
}

static void histogram(FILE *f, const survey *s, int scale)
{
    axis x = {s->low < -26 ? s->low : -26, s->high > 16 ? s->high : 16, 0};
    x.step = (double)(W - LEFT - RIGHT) / (x.high - x.low + 1);
    uint64_t most = 1;
    for (int e = s->low; e <= s->high; e++)
        most = s->counts[e - s->low] > most ? s->counts[e - s->low] : most;
    const int base = TOP + PLOT, strips = scale > 0 ? 2 : 1;
    const int height = base + 30 + strips * (STRIP + 22);
    char share[24];

    fprintf(f,
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"ht hd\">\n"
            "<title id=\"ht\">Histogram of magnitudes by power of two</title>\n"
            "<desc id=\"hd\">Values from 2^%d to 2^%d. Bars are coloured by what FP16 makes of them"
            " without a scale; the strips below show its ranges without and with the scale. The"
            " table holds the same numbers.</desc>\n",
            (int)W, height, s->low, s->high + 1);
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", LEFT - 6, TOP + 10,
            advise_percent(share, survey_share(s, most)));
    fprintf(f, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", (int)LEFT,
            W - RIGHT, (int)TOP, (int)TOP);
    fprintf(f, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", (int)LEFT,
            W - RIGHT, base, base);
    for (int e = s->low; e <= s->high; e++) {
        const uint64_t n = s->counts[e - s->low];
        const double h = n ? fmax((double)n / (double)most * PLOT, 1.5) : 0;
        if (n)
            fprintf(f,
                    "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">"
                    "<title>2^%d: %" PRIu64 " value%s, %s, %s</title></rect>\n",
                    fate(e, 0), x_of(&x, e) + 0.08 * x.step, base - h, 0.84 * x.step, h, e, n,
                    cli_s(n), advise_percent(share, survey_share(s, n)), fate(e, 0));
    }
    const int every = x.high - x.low > 120 ? 20 : x.high - x.low > 60 ? 10 : 5;
    for (int e = x.low; e <= x.high; e++)
        if (e % every == 0)
            fprintf(f,
                    "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">2<tspan dy=\"-5\""
                    " font-size=\"10\">%d</tspan></text>\n",
                    x_of(&x, e) + x.step / 2, base + 20, e);
    for (int i = 0; i < strips; i++) {
        const double y = base + 30 + i * (STRIP + 22);
        if (i == 0)
            fprintf(f, "<text x=\"%d\" y=\"%.1f\">FP16 without a scale</text>\n", (int)LEFT,
                    y + 13);
        else
            fprintf(f,
                    "<text x=\"%d\" y=\"%.1f\">FP16 with 2<tspan dy=\"-5\" font-size=\"10\">%d"
                    "</tspan></text>\n",
                    (int)LEFT, y + 13, scale);
        strip(f, &x, i ? scale : 0, y + 18);
    }
    fputs("</svg>\n", f);
}

static void key(FILE *f, const char *const *names)
{
    fputs("<div class=\"key\">", f);
    for (; *names; names++)
        fprintf(f, "<span><i style=\"background:var(--%s)\"></i>%s</span>", *names, *names);
    fputs("</div>\n", f);
}

static void histogram_section(FILE *f, const advise *a)
{
    const survey *s = &a->total;
    char share[24];
    fputs("<h2>Where the values lie</h2>\n<div class=\"beside\"><figure>\n", f);
    histogram(f, s, a->advice.log2_scale);
    key(f, (const char *const[]){"underflow", "subnormal", "normal", "overflow", NULL});
    fputs("</figure>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
          "aria-label=\"table\"><table><thead><tr><th>magnitude</th>"
          "<th>values</th><th>share</th><th>in FP16</th></tr></thead><tbody>\n",
          f);
    for (int e = s->high; e >= s->low; e--)
        fprintf(f, "<tr><td>2<sup>%d</sup></td><td>%" PRIu64 "</td><td>%s</td><td>%s</td></tr>\n",
                e, s->counts[e - s->low],
                advise_percent(share, survey_share(s, s->counts[e - s->low])), fate(e, 0));
    fputs("</tbody></table></div></div>\n", f);
}

/* ---- shares by scale ---- */

static double share_of(const survey *s, int k, int which)
{
    const gs_rounded *r = &s->f16[k];
    return survey_share(s, which == 0 ? r->underflow : which == 1 ? r->subnormal : r->overflow);
}

static void curves(FILE *f, const advise *a)
{
    static const char *const names[] = {"underflow", "subnormal", "overflow"};
    const survey *s = &a->total;
    const double step = (double)(W - LEFT - RIGHT) / (SCALES - 1);
    const int base = TOP + PLOT;
    static const double tops[] = {0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1};
    double most = 0;
    char share[24];
    for (int k = 0; k < SCALES; k++)
        for (int c = 0; c < 3; c++)
            most = fmax(most, share_of(s, k, c));
    int top = 0;
    while (tops[top] < most)
        top++;
    most = tops[top];
    fprintf(f,
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"ct cd\">\n"
            "<title id=\"ct\">Share of values that underflow, are subnormal and overflow in FP16 by"
            " scale</title>\n<desc id=\"cd\">One curve each over scales from 2^0 to 2^24. The table"
            " holds the same numbers.</desc>\n",
            (int)W, base + 30);
    for (int i = 0; i <= 2; i++) {
        const double y = base - PLOT * i / 2.0;
        fprintf(f,
                "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                (int)LEFT, W - RIGHT, y, y, LEFT - 6, y + 4, advise_percent(share, most * i / 2));
    }
    for (int k = 0; k < SCALES; k += 4)
        fprintf(f,
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">2<tspan dy=\"-5\""
                " font-size=\"10\">%d</tspan></text>\n",
                LEFT + k * step, base + 20, k);
    if (a->advice.log2_scale >= 0)
        fprintf(f, "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n",
                LEFT + a->advice.log2_scale * step, LEFT + a->advice.log2_scale * step, (int)TOP,
                base);
    for (int c = 0; c < 3; c++) {
        fprintf(f, "<polyline class=\"s-%s\" points=\"", names[c]);
        for (int k = 0; k < SCALES; k++)
            fprintf(f, "%.1f,%.1f ", LEFT + k * step, base - PLOT * share_of(s, k, c) / most);
        fputs("\"/>\n", f);
    }
    fputs("</svg>\n", f);
    key(f, (const char *const[]){"underflow", "subnormal", "overflow", NULL});
}

static void scales_section(FILE *f, const advise *a)
{
    const survey *s = &a->total;
    char text[24];
    fputs("<h2>What each scale does</h2>\n<div class=\"beside\"><figure>\n", f);
    curves(f, a);
    fputs("</figure>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
          "aria-label=\"table\"><table><thead><tr><th>scale</th>"
          "<th>underflow</th><th>subnormal</th><th>overflow</th><th>BF16 underflow</th>"
          "</tr></thead><tbody>\n",
          f);
    for (int k = 0; k < SCALES; k++) {
        fprintf(f, "<tr%s><td>2<sup>%d</sup></td>",
                k == a->advice.log2_scale ? " class=\"use\"" : "", k);
        for (int c = 0; c < 3; c++)
            fprintf(f, "<td>%s</td>", advise_percent(text, share_of(s, k, c)));
        fprintf(f, "<td>%s</td></tr>\n",
                advise_percent(text, survey_share(s, s->bf16[k].underflow)));
    }
    fprintf(f,
            "</tbody></table></div></div>\n<p class=\"soft\">In percent of the %" PRIu64
            " finite non-zero values, after rounding to nearest even. Underflow: becomes"
            " zero.</p>\n",
            s->nonzero);
}

/* ---- tensors ---- */

static void small_histogram(FILE *f, const survey *s, const survey *all)
{
    uint64_t most = 1;
    for (int e = s->low; s->counts && e <= s->high; e++)
        most = s->counts[e - s->low] > most ? s->counts[e - s->low] : most;
    fprintf(f, "<svg viewBox=\"0 0 %d 26\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
            all->high - all->low + 1);
    for (int e = s->low; s->counts && e <= s->high; e++) {
        const uint64_t n = s->counts[e - s->low];
        const double h = n ? fmax(25.0 * (double)n / (double)most, 1) : 0;
        if (n)
            fprintf(f, "<rect class=\"%s\" x=\"%d\" y=\"%.1f\" width=\".9\" height=\"%.1f\"/>",
                    fate(e, 0), e - all->low, 26 - h, h);
    }
    fputs("</svg>", f);
}

static void tensors_section(FILE *f, const advise *a)
{
    char text[48], name[256];
    const int scale = a->advice.log2_scale;
    advise_ref *refs = advise_sorted(a);
    fputs("<h2>Tensors</h2>\n<div class=\"scroll tensors\" style=\"max-height:none\" "
          "tabindex=\"0\" role=\"region\" aria-label=\"tensors\">"
          "<table><thead><tr><th>tensor</th><th>type</th><th>values</th><th>zero</th>"
          "<th>Inf, NaN</th><th>largest</th><th>safe scale</th><th>underflow</th>",
          f);
    if (scale > 0)
        fprintf(f, "<th>at 2<sup>%d</sup></th>", scale);
    if (a->total.nonzero)
        fprintf(f, "<th>2<sup>%d</sup> to 2<sup>%d</sup></th>", a->total.low, a->total.high);
    fputs("</tr></thead><tbody>\n", f);
    for (size_t i = 0; i < a->tensors; i++) {
        const survey *s = &refs[i].tensor->s;
        fputs("<tr><td>", f);
        html_escape(f, advise_name(name, a, refs[i].file, refs[i].tensor->entry));
        fprintf(f, "</td><td>%s</td><td>%" PRIu64 "</td><td>%s</td><td>%" PRIu64 "</td>",
                gs_dtype_format(refs[i].tensor->entry->dtype)->name, s->elements,
                advise_percent(text, s->elements ? (double)s->zero / (double)s->elements : 0),
                s->inf + s->nan);
        fprintf(f, "<td>%s</td>", advise_amax(text, s, 3));
        if (survey_has_safe(s))
            fprintf(f, "<td>2<sup>%d</sup></td>", s->safe);
        else
            fprintf(f, "<td>%s</td>", s->nonzero ? "none" : "any");
        fprintf(f, "<td>%s</td>", advise_percent(text, survey_share(s, s->f16[0].underflow)));
        if (scale > 0)
            fprintf(f, "<td>%s</td>",
                    advise_percent(text, survey_share(s, s->f16[scale].underflow)));
        if (a->total.nonzero) {
            fputs("<td>", f);
            small_histogram(f, s, &a->total);
            fputs("</td>", f);
        }
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
    free(refs);
}

/* ---- the page ---- */

static void answer(FILE *f, const advise *a)
{
    const advice *d = &a->advice;
    char text[48];
    fputs("<section class=\"answer\"><div class=\"scale\">", f);
    if (!survey_has_safe(&a->total))
        fputs("no advice", f);
    else if (d->verdict == ADVISE_NO_NEED)
        fputs("no scale<small>needed for FP16</small>", f);
    else
        fprintf(f, "2<sup>%d</sup><small>loss scale for FP16, %.10g</small>", d->log2_scale,
                ldexp(1, d->log2_scale));
    fputs("</div><div>", f);
    if (d->bad[0]) {
        fputs("<p class=\"bad\">", f);
        html_escape(f, d->bad);
        fputs("</p>", f);
    }
    fputs("<p>", f);
    html_escape(f, d->f16);
    fputs("</p><p>", f);
    html_escape(f, d->bf16);
    if (d->zeros[0]) {
        fputs("</p><p>", f);
        html_escape(f, d->zeros);
    }
    fprintf(f, "</p><p class=\"soft\">%s of all values are zero",
            advise_percent(
                text, a->total.elements ? (double)a->total.zero / (double)a->total.elements : 0));
    if (a->max_entry) {
        char name[256];
        fprintf(f, "; the largest magnitude is %s, in ", advise_amax(text, &a->total, 6));
        html_escape(f, advise_name(name, a, a->max_file, a->max_entry));
    }
    fputs(".</p></div></section>\n", f);
}

static void page(FILE *f, const void *what)
{
    const advise *a = what;
    html_begin(f, "gradscale advise", (const char *const[]){style, NULL}, 0);
    fputs("<h1>Loss scale for these gradients</h1>\n<p class=\"soft\">", f);
    for (size_t i = 0; i < a->count; i++) {
        fputs(i ? ", " : "", f);
        html_escape(f, a->files[i].path);
    }
    fprintf(f, "<br/>%zu tensor%s, %" PRIu64 " value%s", a->tensors, cli_s(a->tensors),
            a->total.elements, cli_s(a->total.elements));
    if (a->skipped)
        fprintf(f, "; %zu of other types skipped", a->skipped);
    fputs("</p>\n", f);
    answer(f, a);
    if (a->total.nonzero) {
        histogram_section(f, a);
        scales_section(f, a);
    }
    tensors_section(f, a);
    fprintf(f, "<p class=\"soft\">gradscale %s, advise --margin %d", gs_version(), a->margin);
    if (a->scale != 1)
        fprintf(f, " --scale %.10g", a->scale);
    fputs("</p>\n", f);
    html_end(f);
}

int advise_html(const advise *a, const char *path) { return html_write("--report", path, page, a); }
