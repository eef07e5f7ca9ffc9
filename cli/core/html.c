#include "cli/core/html.h"

#include "cli/core/cli.h"
#include "cli/core/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Colours carry at least 4.5:1 as text and 3:1 as marks on --paper and on --card. */
static const char style_of_all[] =
    ":root{--paper:#fff;--card:#f6f7f9;--ink:#1c2230;--soft:#5a6375;--line:#dde1e8;"
    "--normal:#3b78d1;--subnormal:#b97f00;--underflow:#c8432b;--overflow:#8b4fb3;--focus:#1a5fd0}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#11151d;--card:#191f2a;--ink:#e6eaf2;"
    "--soft:#9aa4b8;--line:#2b3342;--normal:#6ea3f0;--subnormal:#e8b84a;--underflow:#f07a62;"
    "--overflow:#bd8ae0;--focus:#8db8ff}}\n"
    "*{box-sizing:border-box}\n"
    "html{-webkit-text-size-adjust:100%;text-size-adjust:100%}\n"
    "body{margin:0;background:var(--paper);color:var(--ink);overflow-wrap:anywhere;"
    "font:16px/1.55 system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,"
    "sans-serif}\n"
    "main{max-width:1100px;margin:0 auto;padding:32px 20px 64px}\n"
    "h1,h2,h3{line-height:1.25;text-wrap:balance}\n"
    "h1{font-size:1.7rem;font-weight:650;letter-spacing:-.01em;margin:0 0 6px}\n"
    "h2{font-size:1.2rem;font-weight:650;margin:56px 0 6px}\n"
    "h3{font-size:1rem;font-weight:600;margin:24px 0 4px}\n"
    "p{margin:6px 0}sup{font-size:.7em;line-height:0}.soft{color:var(--soft)}\n"
    ".skip{position:absolute;left:-999px}.skip:focus{left:12px;top:12px;padding:8px 14px;"
    "background:var(--paper);color:var(--ink);border-radius:8px;z-index:9}\n"
    ":focus-visible{outline:2px solid var(--focus);outline-offset:2px}\n"
    "figure{margin:0}figure>svg{display:block;width:100%;height:auto}svg text{fill:var(--soft)}\n"
    ".normal{fill:var(--normal)}.subnormal{fill:var(--subnormal)}.underflow{fill:var(--underflow)}"
    ".overflow{fill:var(--overflow)}\n"
    ".bad{border-left:4px solid var(--underflow);padding:4px 12px;margin:12px 0}\n"
    ".scroll{overflow:auto;max-height:420px;border:1px solid var(--line);border-radius:8px}\n"
    "table{border-collapse:separate;border-spacing:0;width:100%;font-size:.85rem;"
    "font-variant-numeric:tabular-nums}\n"
    "thead th{position:sticky;top:0;background:var(--card);font-weight:600}\n"
    "th,td{padding:5px 12px;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--line)}\n"
    "th:first-child,td:first-child{text-align:left}tbody th{font-weight:400}\n"
    "tbody tr:last-child>*{border-bottom:0}\n"
    "@media print{:root{--paper:#fff;--card:#f6f7f9;--ink:#000;--soft:#444;--line:#ccc;"
    "--normal:#3b78d1;--subnormal:#b97f00;--underflow:#c8432b;--overflow:#8b4fb3}\n"
    "body{font-size:11pt;print-color-adjust:exact;-webkit-print-color-adjust:exact}\n"
    "main{max-width:none;padding:0}h2,h3{break-after:avoid}figure,tr{break-inside:avoid}\n"
    ".scroll{max-height:none;overflow:visible}.skip{display:none}}\n";

void html_escape(FILE *f, const char *text)
{
    static const struct {
        char c;
        const char *entity;
    } entities[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    while (*text) {
        const int length = utf8_length(text);
        const char *entity = NULL;
        for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++)
            entity = *text == entities[i].c ? entities[i].entity : entity;
        if (entity)
            fputs(entity, f);
        else if (length == 0)
            fputs("\xEF\xBF\xBD", f); /* U+FFFD */
        else if (utf8_is_control(utf8_code(text, length)))
            fputc('?', f);
        else
            fwrite(text, 1, (size_t)length, f);
        text += length ? length : 1;
    }
}

void html_begin(FILE *f, const char *title, const char *const *styles, double refresh)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
          "<link rel=\"icon\" href=\"data:,\"/>\n",
          f);
    if (refresh > 0)
        fprintf(f, "<meta http-equiv=\"refresh\" content=\"%.0f\"/>\n", refresh < 1 ? 1 : refresh);
    fputs("<title>", f);
    html_escape(f, title);
    fprintf(f, "</title>\n<style>\n%s", style_of_all);
    for (; *styles; styles++)
        fputs(*styles, f);
    fputs("</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n"
          "<main id=\"main\">\n",
          f);
}

void html_end(FILE *f) { fputs("</main>\n</body>\n</html>\n", f); }

void html_table_begin(FILE *f, const char *label, const char *const *titles)
{
    if (!label)
        fputs("<details class=\"numbers\"><summary>The numbers</summary>", f);
    fprintf(f,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"%s\"><table><thead>"
            "<tr>",
            label ? label : "numbers");
    for (; *titles; titles++) {
        fputs("<th scope=\"col\">", f);
        html_escape(f, *titles);
        fputs("</th>", f);
    }
    fputs("</tr></thead><tbody>\n", f);
}

void html_cell(FILE *f, const char *text)
{
    fputs("<td>", f);
    html_escape(f, text);
    fputs("</td>", f);
}

void html_table_end(FILE *f, const char *label)
{
    fprintf(f, "</tbody></table></div>%s\n", label ? "" : "</details>");
}

int html_write(const char *option, const char *path, void (*page)(FILE *f, const void *what),
               const void *what)
{
    char *text;
    size_t length;
    bool opened;
    FILE *f = cli_text_begin(&text, &length);
    page(f, what);
    cli_text_end(f);
    const int why = cli_write_file(path, text, length, &opened);
    free(text);
    if (why == 0)
        return CLI_GO;
    const char *space = *option ? " " : "";
    return opened ? cli_failed("%s%s%s cannot be written: %s", option, space, path, strerror(why))
                  : cli_fail("%s%s%s cannot be written: %s", option, space, path, strerror(why));
}
