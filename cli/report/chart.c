#include "cli/report/chart.h"

#include "cli/core/html.h"
#include "cli/report/report.h"

#include <math.h>
#include <stdlib.h>

enum { HEIGHT = 240, STYLES = CHART_STYLES, TICKS = 6, ROWS = 12 };

/* A run has a colour, and a dash with its shape. From the ninth on colours come again, each with
 * the dash after the one that it had: 64 runs differ. */
static size_t colour_of(size_t style) { return style % STYLES; }
static size_t dash_of(size_t style) { return (style + style / STYLES) % STYLES; }

/* Colours are told apart by people who see few of them (after Okabe and Ito), darker on white and
 * lighter on black; each run has its own dash besides. */
const char chart_style[] =
    ":root{--r0:#0067a8;--r1:#c24e00;--r2:#00805c;--r3:#a8397f;--r4:#8a6a00;--r5:#5a4fcf;"
    "--r6:#4d5563;--r7:#8a3b12}\n"
    "@media(prefers-color-scheme:dark){:root{--r0:#5bb4ea;--r1:#f08c4b;--r2:#2fc79b;--r3:#e493c4;"
    "--r4:#e6c24c;--r5:#a9a1ff;--r6:#c3cad6;--r7:#d6a283}}\n"
    "@media print{:root{--r0:#0067a8;--r1:#c24e00;--r2:#00805c;--r3:#a8397f;--r4:#8a6a00;"
    "--r5:#5a4fcf;--r6:#4d5563;--r7:#8a3b12}}\n"
    ".s0{--c:var(--r0)}.s1{--c:var(--r1)}.s2{--c:var(--r2)}.s3{--c:var(--r3)}"
    ".s4{--c:var(--r4)}.s5{--c:var(--r5)}.s6{--c:var(--r6)}.s7{--c:var(--r7)}\n"
    ".line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;"
    "vector-effect:non-scaling-stroke}\n"
    ".d1.line{stroke-dasharray:7 3}.d2.line{stroke-dasharray:2 3}.d3.line{stroke-dasharray:9 3 2 3}"
    ".d4.line{stroke-dasharray:14 4}.d5.line{stroke-dasharray:4 2}.d6.line{stroke-dasharray:1 2}"
    ".d7.line{stroke-dasharray:12 3 2 3 2 3}\n"
    ".band{fill:var(--c);fill-opacity:.16;stroke:none}\n"
    ".dot{fill:var(--c);stroke:var(--paper);stroke-width:1.5}\n"
    ".hollow{fill:var(--paper);stroke:var(--c);stroke-width:2}\n"
    ".limit{stroke:var(--underflow);stroke-width:1.5;stroke-dasharray:6 3}\n"
    ".hit{fill:var(--ink);fill-opacity:0}.hit:hover{fill-opacity:.07}\n"
    ".grid{stroke:var(--line);stroke-width:1;shape-rendering:crispEdges}\n"
    "figure>svg.plot{width:calc(100% - 64px);margin:10px 0 0 52px;overflow:visible}\n"
    ".plot text{font-size:12px;font-variant-numeric:tabular-nums;paint-order:stroke;"
    "stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}\n"
    ".legend{list-style:none;margin:8px 0 0;padding:0;display:flex;flex-wrap:wrap;gap:2px 18px;"
    "font-size:.85rem;color:var(--soft)}.legend li{display:flex;gap:7px;align-items:center}\n"
    ".swatch{flex:none;width:30px;height:12px;display:inline-block;vertical-align:-1px;"
    "overflow:visible}\n"
    ".legend i{flex:none;width:12px;height:12px;border-radius:3px}\n"
    "details{margin-top:10px;font-size:.9rem}summary{cursor:pointer;color:var(--soft);"
    "width:fit-content}summary:hover{color:var(--ink)}details>.scroll{margin-top:8px}\n"
    ".bars{margin-top:12px}.bars dt{display:flex;justify-content:space-between;gap:12px;"
    "font-size:.9rem;margin-top:10px}.bars dd{margin:4px 0 0}\n"
    ".bars svg{display:block;width:100%;height:16px;border-radius:4px}\n"
    ".p0{--c:var(--r0)}.p1{--c:var(--r4)}.p2{--c:var(--r2)}.p3{--c:var(--r3)}.p4{--c:var(--r6)}"
    ".p5{--c:var(--r1)}.p6{--c:var(--r5)}.p7{--c:var(--r7)}\n"
    ".part{fill:var(--c)}i.part{background:var(--c)}\n"
    "@media print{.numbers{display:none}}\n";

/* ---- axes ---- */

typedef struct axis {
    double low, high;
    bool is_log;
    double ticks[TICKS + 2];
    size_t n;
    double unit;  /* labels are of ticks / unit, with `decimals` and `suffix` */
    int decimals; /* -1: too many for a label, which has an exponent then */
    const char *suffix;
} axis;

size_t chart_ticks(double *ticks, size_t n, double low, double high)
{
    if (!(high > low) || n < 2)
        return 0;
    const double raw = (high - low) / (double)(n - 1), unit = pow(10, floor(log10(raw)));
    const double step = unit * (raw <= unit ? 1 : raw <= 2 * unit ? 2 : raw <= 5 * unit ? 5 : 10);
    size_t count = 0;
    for (double k = ceil(low / step - 1e-9); k * step <= high + 1e-9 * step && count < n; k++)
        ticks[count++] = k * step + 0.0; /* no -0 */
    return count;
}

/* 1, 2 and 5 times powers of ten while they fit, else powers of ten. */
static size_t log_ticks(double *ticks, size_t n, double low, double high)
{
    static const int leads[][4] = {{1, 2, 5, 0}, {1, 3, 0, 0}, {1, 0, 0, 0}};
    for (size_t l = 0; l < 3; l++) {
        size_t count = 0;
        for (double e = floor(log10(low)); e <= ceil(log10(high)); e++)
            for (const int *lead = leads[l]; *lead; lead++) {
                const double t = *lead * pow(10, e);
                if (t < low * 0.999 || t > high * 1.001)
                    continue;
                if (count < n)
                    ticks[count] = t;
                count++;
            }
        if (count <= n && count >= 2)
            return count;
    }
    const double first = ceil(log10(low)), last = floor(log10(high));
    const double every = fmax(1, ceil((last - first + 1) / (double)n));
    size_t count = 0;
    for (double e = first; e <= last && count < n; e += every)
        ticks[count++] = pow(10, e);
    return count;
}

static double place(const axis *a, double value)
{
    const double part = a->is_log ? log(value / a->low) / log(a->high / a->low)
                                  : (value - a->low) / (a->high - a->low);
    return fmin(fmax(part, 0), 1);
}

static void range_of(double *low, double *high, const chart *c, bool of_x)
{
    *low = (double)INFINITY;
    *high = -(double)INFINITY;
    for (size_t s = 0; s < c->n; s++)
        for (size_t i = 0; i < c->series[s].n; i++) {
            const chart_point *p = &c->series[s].at[i];
            if (!isfinite(p->y))
                continue;
            *low = fmin(*low, of_x ? p->x : c->bands ? fmin(p->low, p->y) : p->y);
            *high = fmax(*high, of_x ? p->x : c->bands ? fmax(p->high, p->y) : p->y);
        }
    for (size_t i = 0; of_x && i < c->mark_count && *low <= *high; i++) {
        *low = fmin(*low, c->marks[i].x);
        *high = fmax(*high, c->marks[i].x);
    }
}

/* One unit and as many digits for all labels of an axis as tell its ticks apart. */
static void make_labels(axis *a, chart_unit unit)
{
    static const struct {
        double unit;
        const char *letter;
    } rows[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    double most = 0, step = 0;
    for (size_t i = 0; i < a->n; i++)
        most = fmax(most, fabs(a->ticks[i]));
    for (size_t i = 1; i < a->n; i++)
        step = i == 1 ? a->ticks[1] - a->ticks[0] : fmin(step, a->ticks[i] - a->ticks[i - 1]);
    a->unit = unit == CHART_SHARE ? 0.01 : 1;
    a->suffix = unit == CHART_SHARE ? "%" : "";
    for (size_t i = 0; unit == CHART_COUNT && i < sizeof rows / sizeof rows[0]; i++)
        if (most >= 10 * rows[i].unit && a->unit == 1) {
            a->unit = rows[i].unit;
            a->suffix = rows[i].letter;
        }
    /* 0.25 needs two digits, though it is above a tenth */
    a->decimals = 0;
    const double in_units = step / a->unit;
    while (in_units > 0 && a->decimals < 9 &&
           fabs(in_units * pow(10, a->decimals) - round(in_units * pow(10, a->decimals))) > 1e-6)
        a->decimals++;
    if (a->is_log || a->decimals > 6 || most / a->unit >= 1e6)
        a->decimals = -1;
}

static const char *tick_text(char out[32], const axis *a, double tick)
{
    const double value = tick / a->unit + 0.0;
    if (a->decimals < 0)
        snprintf(out, 32, "%.6g%s", value, a->suffix);
    else
        snprintf(out, 32, "%.*f%s", a->decimals, value, a->suffix);
    return out;
}

/* Steps are whole. */
static void make_steps(axis *x)
{
    x->n = chart_ticks(x->ticks, TICKS, x->low, x->high);
    size_t n = 0;
    for (size_t i = 0; i < x->n; i++)
        if (x->ticks[i] == floor(x->ticks[i]))
            x->ticks[n++] = x->ticks[i];
    x->n = n;
    make_labels(x, CHART_COUNT);
}

/* False: there is nothing to draw. */
static bool make_axes(axis *x, axis *y, const chart *c)
{
    *x = *y = (axis){0};
    range_of(&x->low, &x->high, c, true);
    range_of(&y->low, &y->high, c, false);
    if (c->low < c->high) {
        y->low = c->low;
        y->high = c->high;
    }
    if (c->limit_name && y->low <= y->high) {
        y->low = fmin(y->low, c->limit);
        y->high = fmax(y->high, c->limit);
    }
    if (!(x->low <= x->high) || !(y->low <= y->high))
        return false;
    if (x->low == x->high) {
        x->low -= 1;
        x->high += 1;
    }
    if (x->low > 0 && x->low < 0.2 * x->high)
        x->low = 0;
    make_steps(x);
    y->is_log = c->may_be_log && y->low > 0 && y->high / y->low >= 8;
    if (y->is_log) {
        const double room = pow(y->high / y->low, 0.04);
        y->low /= room;
        y->high *= room;
        y->n = log_ticks(y->ticks, TICKS, y->low, y->high);
        make_labels(y, c->unit);
        return true;
    }
    if (c->from_zero)
        y->low = fmin(y->low, 0);
    double room = 0.05 * (y->high - y->low);
    if (c->unit == CHART_POWER)
        room = fmax(room, 1); /* whole powers */
    else if (room == 0)
        room = fmax(fabs(y->high), c->unit == CHART_SHARE ? 0.01 : 1e-3) * 0.1;
    y->high += room;
    y->low -= c->from_zero && y->low == 0 ? 0 : room;
    y->n = chart_ticks(y->ticks, TICKS, y->low, y->high);
    if (c->unit == CHART_POWER) { /* no half powers */
        size_t n = 0;
        for (size_t i = 0; i < y->n; i++)
            if (y->ticks[i] == floor(y->ticks[i]))
                y->ticks[n++] = y->ticks[i];
        y->n = n;
    }
    make_labels(y, c->unit);
    return true;
}

const char *chart_step_text(char out[32], double step)
{
    static const struct {
        double unit;
        const char *letter;
    } rows[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    for (size_t i = 0; i < 3; i++)
        if (fabs(step) >= rows[i].unit && fabs(step) >= 1e4) {
            snprintf(out, 32, "%.4g%s", step / rows[i].unit, rows[i].letter);
            return out;
        }
    snprintf(out, 32, "%.6g", step);
    return out;
}

static const char *y_text(char out[32], const chart *c, double y)
{
    if (isnan(y))
        snprintf(out, 32, "\xE2\x80\x93"); /* a dash */
    else if (c->unit == CHART_SHARE)
        report_percent(out, y);
    else if (c->unit == CHART_COUNT)
        report_count(out, y);
    else if (c->unit == CHART_POWER)
        snprintf(out, 32, "2^%.4g", y);
    else
        snprintf(out, 32, "%.4g", y);
    return out;
}

static void draw_grid(FILE *f, const chart *c, const axis *x, const axis *y)
{
    char text[32];
    for (size_t i = 0; i < y->n; i++) {
        const double at = HEIGHT * (1 - place(y, y->ticks[i]));
        fprintf(f, "<line class=\"grid\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/>", at, at);
        if (c->unit == CHART_POWER)
            fprintf(f,
                    "<text x=\"-8\" y=\"%.1f\" dy=\".35em\" text-anchor=\"end\">2<tspan dy=\"-5\" "
                    "font-size=\"9\">%.0f</tspan></text>\n",
                    at, y->ticks[i] + 0.0);
        else
            fprintf(f, "<text x=\"-8\" y=\"%.1f\" dy=\".35em\" text-anchor=\"end\">%s</text>\n", at,
                    tick_text(text, y, y->ticks[i]));
    }
    fprintf(f, "<text x=\"50%%\" y=\"%d\" text-anchor=\"middle\">step</text>\n", HEIGHT + 40);
    for (size_t i = 0; i < x->n; i++) {
        const double at = 100 * place(x, x->ticks[i]);
        fprintf(f, "<text x=\"%.2f%%\" y=\"%d\" text-anchor=\"%s\">%s</text>\n", at, HEIGHT + 20,
                at > 97 ? "end" : "middle", tick_text(text, x, x->ticks[i]));
    }
}

static void draw_limit(FILE *f, const chart *c, const axis *y)
{
    if (!c->limit_name)
        return;
    const double at = HEIGHT * (1 - place(y, c->limit));
    fprintf(
        f,
        "<line class=\"limit\" x1=\"0\" x2=\"100%%\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"100%%\" "
        "y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
        at, at, at < 24 ? at + 18 : at - 16, c->limit_name); /* above it may be the legend */
}

/* ---- what a pointer shows ---- */

static double value_at(const chart_series *s, double x);

/* Of a staircase x itself; of other lines the step nearest to it that a line has a value at. */
static double step_near(const chart *c, double x)
{
    double best = x, least = c->holds ? 0 : (double)INFINITY;
    for (size_t s = 0; s < c->n; s++)
        for (size_t i = 0; i < c->series[s].n; i++) {
            const double off = fabs(c->series[s].at[i].x - x);
            if (off < least && isfinite(c->series[s].at[i].y)) {
                least = off;
                best = c->series[s].at[i].x;
            }
        }
    return best;
}

/* Strips across the plot whose titles are the values of all lines there: browsers show a title
 * where the pointer rests, without a script. */
static void draw_hits(FILE *f, const chart *c, const axis *x)
{
    enum { HITS = 60, TEXTS = 600 };
    const size_t strips = c->n * HITS <= TEXTS ? HITS : TEXTS / c->n;
    char text[32];
    for (size_t i = 0; i < strips; i++) {
        const double middle =
            floor(x->low + (x->high - x->low) * ((double)i + 0.5) / (double)strips + 0.5);
        const double at = step_near(c, middle);
        size_t told = 0;
        for (size_t s = 0; s < c->n; s++)
            told += isnan(value_at(&c->series[s], at)) ? 0 : 1;
        if (told == 0)
            continue;
        fprintf(f,
                "<rect class=\"hit\" x=\"%.2f%%\" y=\"0\" width=\"%.2f%%\" "
                "height=\"%d\"><title>step %.0f",
                100.0 * (double)i / (double)strips, 100.0 / (double)strips, HEIGHT, at);
        for (size_t s = 0; s < c->n; s++) {
            const double value = value_at(&c->series[s], at);
            if (isnan(value))
                continue;
            fputs(": ", f);
            html_escape(f, c->series[s].name);
            fputc(' ', f);
            html_escape(f, y_text(text, c, value));
        }
        fputs("</title></rect>\n", f);
    }
}

/* ---- lines ---- */

static void draw_band(FILE *f, const chart_series *s, const axis *x, const axis *y)
{
    for (size_t from = 0; from < s->n;) {
        size_t to = from;
        while (to < s->n && isfinite(s->at[to].y) && isfinite(s->at[to].low))
            to++;
        if (to > from + 1) {
            fprintf(f, "<path class=\"band s%zu\" d=\"", colour_of(s->style));
            for (size_t i = from; i < to; i++)
                fprintf(f, "%c%.1f %.1f", i == from ? 'M' : 'L', 1000 * place(x, s->at[i].x),
                        HEIGHT * (1 - place(y, s->at[i].high)));
            for (size_t i = to; i-- > from;)
                fprintf(f, "L%.1f %.1f", 1000 * place(x, s->at[i].x),
                        HEIGHT * (1 - place(y, s->at[i].low)));
            fputs("z\"/>\n", f);
        }
        from = to + 1;
    }
}

static void draw_line(FILE *f, const chart_series *s, const axis *x, const axis *y)
{
    bool down = false; /* the pen */
    fprintf(f, "<path class=\"line s%zu d%zu\" d=\"", colour_of(s->style), dash_of(s->style));
    for (size_t i = 0; i < s->n; i++) {
        if (isfinite(s->at[i].y))
            fprintf(f, "%c%.1f %.1f", down ? 'L' : 'M', 1000 * place(x, s->at[i].x),
                    HEIGHT * (1 - place(y, s->at[i].y)));
        down = isfinite(s->at[i].y);
    }
    fputs("\"/>\n", f);
}

/* Paths around 0, 0: what tells runs apart besides colour and dash. */
static const char *const shapes[STYLES] = {
    "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",                          /* disc */
    "M-3.3-3.3h6.6v6.6h-6.6z",                                               /* square */
    "M0-4.5l4.4 7.7h-8.8z",                                                  /* triangle */
    "M0-4.8l4.8 4.8l-4.8 4.8l-4.8-4.8z",                                     /* diamond */
    "M-4.6-4.6l4.6 2.2l4.6-2.2l-2.2 4.6l2.2 4.6l-4.6-2.2l-4.6 2.2l2.2-4.6z", /* star */
    "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",                                 /* cross */
    "M0-4.6l4.4 3.2l-1.7 5.2h-5.4l-1.7-5.2z",                                /* pentagon */
    "M-4.5-2h9v4h-9z",                                                       /* bar */
};

static void draw_dot(FILE *f, size_t style, double x, double y)
{
    fprintf(f,
            "<svg x=\"%.2f%%\" y=\"%.1f\" width=\"1\" height=\"1\" overflow=\"visible\">"
            "<path class=\"dot s%zu\" d=\"%s\"/></svg>\n",
            100 * x, y, colour_of(style), shapes[dash_of(style)]);
}

/* It has no line to be seen by. */
static bool is_alone(const chart_series *s, size_t i)
{
    return isfinite(s->at[i].y) && (i == 0 || !isfinite(s->at[i - 1].y)) &&
           (i + 1 == s->n || !isfinite(s->at[i + 1].y));
}

static void draw_lone_dots(FILE *f, const chart_series *s, const axis *x, const axis *y)
{
    for (size_t i = 0; i < s->n; i++)
        if (is_alone(s, i))
            draw_dot(f, s->style, place(x, s->at[i].x), HEIGHT * (1 - place(y, s->at[i].y)));
}

/* Every point, or a few on the way and the last one. */
static void draw_dots(FILE *f, const chart *c, const chart_series *s, const axis *x, const axis *y)
{
    enum { FEW = 4, MANY = 40 };
    const size_t every = c->points && s->n <= MANY ? 1 : s->n / FEW + 1;
    const size_t shift = every > 1 ? every * colour_of(s->style) / STYLES : 0;
    for (size_t i = 0; i < s->n; i++)
        if (isfinite(s->at[i].y) && !is_alone(s, i) &&
            ((i + shift) % every == every - 1 || i + 1 == s->n))
            draw_dot(f, s->style, place(x, s->at[i].x), HEIGHT * (1 - place(y, s->at[i].y)));
}

static void draw_marks(FILE *f, const chart *c, const axis *x, const axis *y)
{
    static const char *const paths[] = {
        [CHART_DOWN] = "M0 0l5.5-10h-11z", [CHART_DIAMOND] = "M0-5l5 5l-5 5l-5-5z"};
    for (size_t i = 0; i < c->mark_count; i++) {
        const chart_mark *m = &c->marks[i];
        fprintf(f,
                "<svg x=\"%.2f%%\" y=\"%.1f\" width=\"1\" height=\"1\" overflow=\"visible\"><path "
                "class=\"%s s%zu\" d=\"%s\"><title>%s</title></path></svg>\n",
                100 * place(x, m->x), HEIGHT * (1 - place(y, m->y)),
                m->shape == CHART_DOWN ? "dot" : "hollow", colour_of(m->style), paths[m->shape],
                m->title);
    }
}

void chart_swatch(FILE *f, size_t style)
{
    fprintf(f,
            "<svg class=\"swatch\" aria-hidden=\"true\" viewBox=\"0 0 30 12\"><path class=\"line "
            "s%zu d%zu\" d=\"M0 6h30\"/><path class=\"dot s%zu\" transform=\"translate(15 6)\" "
            "d=\"%s\"/></svg>",
            colour_of(style), dash_of(style), colour_of(style), shapes[dash_of(style)]);
}

static void draw_legend(FILE *f, const chart *c)
{
    bool has[2] = {false, false};
    for (size_t i = 0; i < c->mark_count; i++)
        has[c->marks[i].shape] = true;
    if (c->n < 2 && !has[0] && !has[1])
        return;
    fputs("<ul class=\"legend\">", f);
    for (size_t s = 0; s < c->n; s++) {
        fputs("<li>", f);
        chart_swatch(f, c->series[s].style);
        fputs("<span>", f);
        html_escape(f, c->series[s].name);
        fputs("</span></li>", f);
    }
    if (has[CHART_DOWN])
        fputs("<li><span aria-hidden=\"true\">\xE2\x96\xBC</span>skipped</li>", f);
    if (has[CHART_DIAMOND])
        fputs("<li><span aria-hidden=\"true\">\xE2\x97\x87</span>retried</li>", f);
    fputs("</ul>\n", f);
}

/* ---- the numbers ---- */

/* The last point at or before x that has a value. */
static double value_at(const chart_series *s, double x)
{
    double y = (double)NAN;
    for (size_t i = 0; i < s->n && s->at[i].x <= x; i++)
        y = isfinite(s->at[i].y) ? s->at[i].y : y;
    return s->n > 0 && s->at[s->n - 1].x < x ? (double)NAN : y;
}

static void draw_table(FILE *f, const chart *c, const axis *x)
{
    char text[32];
    const chart_series *longest = &c->series[0];
    for (size_t s = 1; s < c->n; s++)
        if (c->series[s].n > 0 && (longest->n == 0 || c->series[s].at[c->series[s].n - 1].x >
                                                          longest->at[longest->n - 1].x))
            longest = &c->series[s];
    const char **titles = cli_resize(NULL, (c->n + 2) * sizeof *titles);
    titles[0] = "step";
    for (size_t s = 0; s < c->n; s++)
        titles[s + 1] = c->series[s].name;
    titles[c->n + 1] = NULL;
    html_table_begin(f, NULL, titles);
    free(titles);
    const double first = longest->at[0].x, last = longest->at[longest->n - 1].x;
    const size_t n = c->holds ? (size_t)fmin(last - first, ROWS) + 1 : longest->n;
    const size_t rows = n < ROWS ? n : ROWS;
    for (size_t r = 0; r < rows; r++) {
        const double part = rows > 1 ? (double)r / (double)(rows - 1) : 0;
        const double at = c->holds ? floor(first + part * (last - first) + 0.5)
                                   : longest->at[(size_t)(part * (double)(n - 1))].x;
        if (at < x->low || at > x->high)
            continue;
        fprintf(f, "<tr><th scope=\"row\">%.0f</th>", at);
        for (size_t s = 0; s < c->n; s++)
            html_cell(f, y_text(text, c, value_at(&c->series[s], at)));
        fputs("</tr>\n", f);
    }
    html_table_end(f, NULL);
}

void chart_draw(FILE *f, const chart *c)
{
    axis x, y;
    fputs("<figure>\n<h3>", f);
    html_escape(f, c->title);
    fputs("</h3>\n", f);
    if (!make_axes(&x, &y, c)) {
        fprintf(f, "<p class=\"soft\">%s</p>\n</figure>\n", c->none ? c->none : "Not in the logs.");
        return;
    }
    fprintf(f, "<p class=\"soft note\">%s%s</p>\n", c->about, y.is_log ? " Logarithmic axis." : "");
    draw_legend(f, c);
    fprintf(f,
            "<svg class=\"plot\" style=\"height:%dpx\" role=\"img\" aria-labelledby=\"%s-t %s-d\">"
            "<title id=\"%s-t\">",
            HEIGHT + 46, c->id, c->id, c->id);
    html_escape(f, c->title);
    fprintf(f,
            "</title><desc id=\"%s-d\">%s Steps %.0f to %.0f, %zu line%s; the numbers follow as a "
            "table.</desc>\n",
            c->id, c->about, x.low, x.high, c->n, cli_s(c->n));
    draw_grid(f, c, &x, &y);
    draw_limit(f, c, &y);
    fprintf(f,
            "<svg width=\"100%%\" height=\"%d\" viewBox=\"0 0 1000 %d\" "
            "preserveAspectRatio=\"none\" overflow=\"visible\">\n",
            HEIGHT, HEIGHT);
    for (size_t s = 0; c->bands && s < c->n; s++)
        draw_band(f, &c->series[s], &x, &y);
    for (size_t s = c->n; s-- > 0;) /* the first on top */
        draw_line(f, &c->series[s], &x, &y);
    fputs("</svg>\n", f);
    for (size_t s = c->n; s-- > 0;)
        draw_lone_dots(f, &c->series[s], &x, &y);
    for (size_t s = c->n; s-- > 0 && (c->points || (c->n > 1 && !c->marks));)
        draw_dots(f, c, &c->series[s], &x, &y);
    draw_hits(f, c, &x);
    draw_marks(f, c, &x, &y);
    fputs("</svg>\n", f);
    draw_table(f, c, &x);
    fputs("</figure>\n", f);
}
