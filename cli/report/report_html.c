/* The page: verdict, runs, charts, settings, and what the logs were like. */
#include "cli/report/report.h"

#include "cli/core/html.h"
#include "cli/report/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char page_style[] =
    "header p{margin:0}\n"
    ".verdict{background:var(--card);border:1px solid var(--line);border-radius:14px;"
    "padding:24px 28px 26px;margin:24px 0 0}\n"
    ".verdict h2{font-size:1.55rem;letter-spacing:-.01em;margin:0 0 16px}\n"
    ".verdict dl{display:grid;grid-template-columns:8.5em minmax(0,1fr);gap:12px 20px;margin:0}\n"
    ".verdict dt{color:var(--soft)}.verdict dd{margin:0;max-width:76ch}.verdict p{margin:0 0 "
    "4px}.verdict b{font-weight:600}\n"
    ".note{font-size:.9rem;margin:2px 0 0;max-width:80ch}h2+figure>h3,h2+.pair h3,.note+figure>h3{"
    "margin-top:10px}.scroll+.note{margin-top:8px}\n"
    ".pair{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:8px 36px}\n"
    "section>p{max-width:80ch}\n"
    "figure>svg.plot.named{margin-left:176px;width:calc(100% - 188px)}\n"
    ".range{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3}\n"
    ".h0{--c:var(--h0)}.h1{--c:var(--h1)}.h2{--c:var(--h2)}.h3{--c:var(--h3)}.h4{--c:var(--h4)}"
    ".h5{--c:var(--h5)}.h6{--c:var(--h6)}.h7{--c:var(--h7)}.heat{fill:var(--c);"
    "background:var(--c)}\n"
    ":root{--h0:#eef0f3;--h1:#fdebd8;--h2:#fbd3ab;--h3:#f8b078;--h4:#ec8147;--h5:#cc5426;"
    "--h6:#933216;--h7:#541a0e}\n"
    "@media(prefers-color-scheme:dark){:root{--h0:#1f2634;--h1:#362829;--h2:#57312b;--h3:#823f2c;"
    "--h4:#b3532c;--h5:#df763b;--h6:#f8a86c;--h7:#ffe0bd}}\n"
    "@media print{:root{--h0:#eef0f3;--h1:#fdebd8;--h2:#fbd3ab;--h3:#f8b078;--h4:#ec8147;"
    "--h5:#cc5426;--h6:#933216;--h7:#541a0e}}\n"
    "details.run{margin-top:16px;font-size:1rem}details.run>summary{color:var(--ink);"
    "font-weight:600}details.run>summary .soft{font-weight:400;font-size:.9rem}\n"
    ".runs th:first-child{position:sticky;left:0;background:var(--paper);z-index:1}"
    ".runs thead th:first-child{background:var(--card)}\n"
    ".runs tbody th{white-space:normal;min-width:10em;max-width:50vw}"
    ".runs td:nth-child(2){white-space:normal}.runs th,.runs td{padding:5px 9px}\n"
    ".runs "
    ".swatch{margin-right:8px}section>.scroll,details:not(.numbers)>.scroll{max-height:none}\n"
    ".differs th,.differs td{background:color-mix(in srgb,var(--subnormal) 14%,transparent)}"
    ".differs th{font-weight:650}\n"
    "footer{margin-top:64px;padding-top:16px;border-top:1px solid var(--line);font-size:.9rem;"
    "color:var(--soft)}footer ul{margin:6px 0;padding-left:20px}\n"
    "@media(max-width:720px){main{padding:20px 16px 48px}h2{margin-top:44px}"
    ".pair{grid-template-columns:minmax(0,1fr)}.verdict{padding:18px 18px 20px}"
    ".verdict h2{font-size:1.3rem}.verdict dl{grid-template-columns:minmax(0,1fr);gap:2px}"
    ".verdict dd{margin-bottom:12px}"
    "figure>svg.plot.named{margin-left:124px;width:calc(100% - 128px)}"
    ".named text{font-size:10px}figure>svg.plot{width:calc(100% - 52px);margin-left:44px}}\n";

/* ---- the top ---- */

static void draw_title(FILE *f, const report *r)
{
    if (r->options->title)
        html_escape(f, r->options->title);
    else if (r->n == 1)
        html_escape(f, r->runs[0].name);
    else
        fprintf(f, "%zu runs compared", r->n);
}

/* What all runs have in common, or nothing. */
static const char *common(const report *r, char *const *(*of)(const report_run *run))
{
    const char *first = *of(&r->runs[0]);
    for (size_t i = 1; first && i < r->n; i++)
        if (!*of(&r->runs[i]) || strcmp(*of(&r->runs[i]), first) != 0)
            return NULL;
    return first;
}

static char *const *model_of(const report_run *run) { return &run->model; }
static char *const *data_of(const report_run *run) { return &run->data; }
static char *const *time_of(const report_run *run) { return &run->time; }

static void draw_header(FILE *f, const report *r)
{
    const char *const parts[] = {common(r, model_of), common(r, data_of),
                                 r->n == 1 ? common(r, time_of) : NULL};
    char text[32];
    fputs("<header>\n<h1>", f);
    draw_title(f, r);
    fputs("</h1>\n<p class=\"soft\">", f);
    size_t n = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i]) {
            fputs(n++ ? " \xC2\xB7 " : "", f);
            html_escape(f, parts[i]);
        }
    if (r->n == 1 && r->runs[0].parameters > 0)
        fprintf(f, "%s%s parameters", n ? " \xC2\xB7 " : "",
                report_count(text, r->runs[0].parameters));
    fputs("</p>\n</header>\n", f);
}

/* Ends lines and names in place. */
static void draw_statements(FILE *f, char *text)
{
    for (char *line = text, *end; *line; line = end + 1) {
        end = line + strcspn(line, "\n");
        *end = 0;
        char *tab = strchr(line, '\t');
        fputs("<p>", f);
        if (tab) {
            *tab = 0;
            fputs("<b>", f);
            html_escape(f, line);
            fputs("</b> ", f);
            line = tab + 1;
        }
        html_escape(f, line);
        fputs("</p>", f);
    }
}

static void draw_verdict(FILE *f, const report *r)
{
    static const char *const names[WORDS_COUNT] = {"", "Underflow", "What it cost", "What to use",
                                                   "Command"};
    report_words words;
    report_verdict(&words, r->runs, r->n, r->options->config);
    fputs("<section class=\"verdict\" aria-labelledby=\"verdict\">\n<h2 id=\"verdict\">", f);
    html_escape(f, words.text[WORDS_HEADLINE]);
    fputs("</h2>\n<dl>\n", f);
    for (int i = WORDS_UNDERFLOW; i < WORDS_COUNT; i++)
        if (words.text[i][0]) {
            fprintf(f, "<dt>%s</dt><dd>%s", names[i], i == WORDS_COMMAND ? "<code>" : "");
            if (i == WORDS_COMMAND)
                html_escape(f, words.text[i]);
            else
                draw_statements(f, words.text[i]);
            fputs(i == WORDS_COMMAND ? "</code></dd>\n" : "</dd>\n", f);
        }
    fputs("</dl>\n</section>\n", f);
    for (int i = 0; i < WORDS_COUNT; i++)
        free(words.text[i]);
}

/* ---- runs ---- */

static void cell(FILE *f, bool known, const char *text)
{
    html_cell(f, known ? text : "\xE2\x80\x93");
}

static void draw_status(FILE *f, const report_run *run)
{
    const char *steps = report_value(&run->config, "steps");
    fputs("<td>", f);
    fprintf(f, "%" PRIu64 "%s", run->n > 0 ? run->steps[run->n - 1].step : 0,
            run->only_skips ? " or more" : "");
    if (run->status && strcmp(run->status, "done") != 0) {
        fputs(", ", f);
        html_escape(f, run->status);
    } else if (report_is_running(run)) {
        fputs(steps ? " of " : " so far", f);
        html_escape(f, steps ? steps : "");
    }
    fputs("</td>", f);
}

static void draw_runs(FILE *f, const report *r)
{
    char text[32];
    static const char *const titles[] = {"run",       "steps",   "loss",    "accuracy",
                                         "underflow", "skipped", "retried", "last scale",
                                         "items/s",   "memory",  NULL};
    fputs("<section class=\"runs\" aria-labelledby=\"runs\">\n<h2 id=\"runs\">Runs</h2>\n", f);
    html_table_begin(f, "runs", titles);
    for (size_t i = 0; i < r->n; i++) {
        const report_run *run = &r->runs[i];
        const double scale = run->n > 0 ? (double)run->steps[run->n - 1].log2_scale : (double)NAN;
        fputs("<tr><th scope=\"row\">", f);
        chart_swatch(f, i);
        html_escape(f, run->name);
        fputs("</th>", f);
        draw_status(f, run);
        cell(f, run->n > 0 && (run->has_loss || run->is_validated), report_number(text, run->loss));
        cell(f, isfinite(run->accuracy), report_percent(text, run->accuracy));
        cell(f, isfinite(run->underflow), report_percent(text, run->underflow));
        snprintf(text, sizeof text, "%" PRIu64, run->skipped);
        cell(f, run->tells_skips, text);
        snprintf(text, sizeof text, "%" PRIu64, run->retried);
        cell(f, run->tells_retries, text);
        if (isfinite(scale))
            fprintf(f, "<td>2<sup>%.4g</sup></td>", scale + 0.0);
        else
            cell(f, false, "");
        cell(f, isfinite(run->rate), report_count(text, run->rate));
        cell(f, isfinite(run->bytes), report_bytes(text, run->bytes));
        fputs("</tr>\n", f);
    }
    html_table_end(f, "runs");
    size_t validated = 0;
    for (size_t i = 0; i < r->n; i++)
        validated += r->runs[i].is_validated;
    fprintf(f,
            "<p class=\"soft note\">Loss: %s. Underflow: mean share of the non-zero "
            "gradients that underflowed to zero when they were stored. Items/s: the "
            "median.</p>\n</section>\n",
            validated == r->n ? "of the last validation"
            : validated == 0  ? "mean of the last training steps"
                              : "of the last validation, or of the last training steps where there "
                                "was none");
}

/* ---- settings ---- */

static bool has_differences(const report *r, const char *key)
{
    const char *first = report_value(&r->runs[0].config, key);
    for (size_t i = 1; i < r->n; i++) {
        const char *other = report_value(&r->runs[i].config, key);
        if (!first != !other || (first && strcmp(first, other) != 0))
            return true;
    }
    return false;
}

/* Keys of run i that no earlier run has. */
static bool is_new_key(const report *r, size_t i, const char *key)
{
    for (size_t k = 0; k < i; k++)
        if (report_value(&r->runs[k].config, key))
            return false;
    return true;
}

/* Rows of the keys that differ, or of those that do not. */
static size_t draw_settings(FILE *f, const report *r, bool differing)
{
    const size_t columns = differing ? r->n : 1;
    const char **titles = cli_resize(NULL, (columns + 2) * sizeof *titles);
    size_t rows = 0;
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->runs[i].config.n; k++) {
            const char *key = r->runs[i].config.at[k].key;
            if (!is_new_key(r, i, key) || has_differences(r, key) != differing)
                continue;
            if (rows++ == 0) {
                titles[0] = "option";
                for (size_t c = 0; c < columns; c++)
                    titles[c + 1] = differing || r->n == 1 ? r->runs[c].name : "all runs";
                titles[columns + 1] = NULL;
                html_table_begin(f, "settings", titles);
            }
            fprintf(f, "<tr%s><th scope=\"row\">", differing ? " class=\"differs\"" : "");
            html_escape(f, key);
            fputs("</th>", f);
            for (size_t c = 0; c < columns; c++) {
                const char *value = report_value(&r->runs[differing ? c : i].config, key);
                fputs("<td>", f);
                html_escape(f, value ? value : "\xE2\x80\x93");
                fputs("</td>", f);
            }
            fputs("</tr>\n", f);
        }
    if (rows > 0)
        html_table_end(f, "settings");
    free(titles);
    return rows;
}

static void draw_config(FILE *f, const report *r)
{
    size_t keys = 0;
    for (size_t i = 0; i < r->n; i++)
        keys += r->runs[i].config.n;
    fputs("<section aria-labelledby=\"settings\">\n<h2 id=\"settings\">Settings</h2>\n", f);
    if (keys == 0) {
        fputs("<p class=\"soft\">Not in the logs.</p>\n</section>\n", f);
        return;
    }
    if (r->n > 1 && draw_settings(f, r, true) == 0)
        fputs("<p>The runs have the same settings.</p>\n", f);
    fprintf(f, "<details%s><summary>%s</summary>\n", r->n == 1 ? " open=\"open\"" : "",
            r->n == 1 ? "All settings" : "What is the same in all runs");
    if (draw_settings(f, r, false) == 0)
        fputs("<p class=\"soft\">Nothing.</p>\n", f);
    fputs("</details>\n</section>\n", f);
}

/* ---- what the logs were like ---- */

static void draw_footer(FILE *f, const report *r)
{
    fputs("<footer>\n<p>From:</p>\n<ul>\n", f);
    for (size_t i = 0; i < r->n; i++) {
        const report_run *run = &r->runs[i];
        fputs("<li>", f);
        html_escape(f, run->path);
        fprintf(f, ": %" PRIu64 " line%s", run->lines, cli_s(run->lines));
        if (run->kind)
            fprintf(f, ", read as %s", run->kind);
        if (run->only_skips)
            fputs("; it tells of steps that were skipped, not how many were applied between and "
                  "after them",
                  f);
        if (run->damaged)
            fprintf(f, "; <strong>%" PRIu64 " could not be read and %s left out</strong>",
                    run->damaged, run->damaged == 1 ? "is" : "are");
        if (run->is_cut)
            fputs("; the last line is not finished", f);
        if (run->resumes)
            fprintf(f, "; resumed %" PRIu64 " time%s", run->resumes, cli_s(run->resumes));
        if (run->void_steps)
            fprintf(f,
                    run->void_steps == 1 ? "; %" PRIu64 " step was repeated, the later one counts"
                                         : "; %" PRIu64
                                           " steps were repeated, the later ones count",
                    run->void_steps);
        if (run->bad_losses)
            fprintf(f, "; %" PRIu64 " step%s no finite loss", run->bad_losses,
                    run->bad_losses == 1 ? " has" : "s have");
        for (size_t k = 0; k < run->machine.n; k++) {
            fputs(k ? ", " : "; ", f);
            html_escape(f, run->machine.at[k].key);
            fputs(" ", f);
            html_escape(f, run->machine.at[k].value);
        }
        fputs("</li>\n", f);
    }
    fprintf(f, "</ul>\n<p>Written by gradscale %s.</p>\n</footer>\n", gs_version());
}

/* ---- all of it ---- */

typedef struct section {
    const char *id, *title, *about;
    void (*draw)(FILE *f, const report *r);
} section;

void report_page(FILE *f, const void *what)
{
    static const section sections[] = {
        {"loss", "Loss", NULL, report_draw_loss},
        {"scale", "Scale", NULL, report_draw_scale},
        {"headroom", "Headroom", NULL, report_draw_headroom},
        {"underflow", "Underflow", NULL, report_draw_underflow},
        {"exponents", "Where the gradients lie",
         "Magnitudes of the gradients as they were stored, that is times the scale, by power of "
         "two; on the right the share that is zero. The colour tells what FP16 makes of them; its "
         "range and that of BF16 are drawn below. Tails too thin to see are cut.",
         report_draw_exponents},
        {"rates", "Gradients and learning rate", NULL, report_draw_rates},
        {"speed", "Speed", NULL, report_draw_speed},
        {"memory", "Memory", NULL, report_draw_memory}};
    const report *r = what;
    html_begin(f,
               r->options->title ? r->options->title
               : r->n == 1       ? r->runs[0].name
                                 : "Runs compared",
               (const char *const[]){chart_style, page_style, NULL}, r->options->refresh);
    draw_header(f, r);
    draw_verdict(f, r);
    draw_runs(f, r);
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        const section *s = &sections[i];
        fprintf(f, "<section aria-labelledby=\"s-%s\">\n<h2 id=\"s-%s\">%s</h2>\n", s->id, s->id,
                s->title);
        if (s->about)
            fprintf(f, "<p class=\"soft note\">%s</p>\n", s->about);
        s->draw(f, r);
        fputs("</section>\n", f);
    }
    draw_config(f, r);
    draw_footer(f, r);
    html_end(f);
}
