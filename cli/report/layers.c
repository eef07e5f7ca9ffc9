#include "cli/report/layers.h"

#include "cli/core/html.h"

#include <string.h>

enum { SHOWN = 24, NAME = 24 };

size_t layers_start(const report_run *run)
{
    size_t n = run->layer_count > 1 ? strlen(run->layers[0].name) : 0;
    for (size_t i = 1; i < run->layer_count; i++) {
        size_t same = 0;
        while (same < n && run->layers[0].name[same] == run->layers[i].name[same])
            same++;
        n = same;
    }
    while (n > 0 && run->layers[0].name[n - 1] != '.')
        n--;
    return n;
}

void layers_name(FILE *f, const char *name, double y)
{
    const size_t n = strlen(name);
    const char *from = n > NAME ? name + n - NAME : name;
    while (((unsigned char)*from & 0xC0) == 0x80) /* not inside a character */
        from++;
    fprintf(f, "<text x=\"-8\" y=\"%.1f\" text-anchor=\"end\">%s", y, from > name ? "…" : "");
    html_escape(f, from);
    fputs("</text>\n", f);
}

double layers_underflow(const report_layer *l)
{
    return l->samples > 0 ? l->underflow / l->samples : 0;
}

void layers_choose(layers_choice *first, layers_choice *rest, const report_run *run,
                   bool (*has)(const report_layer *l))
{
    first->n = rest->n = 0;
    for (size_t i = 0; i < run->layer_count; i++) {
        size_t above = 0;
        if (!has(&run->layers[i]))
            continue;
        for (size_t k = 0; k < run->layer_count; k++)
            above +=
                has(&run->layers[k]) &&
                (layers_underflow(&run->layers[k]) > layers_underflow(&run->layers[i]) ||
                 (layers_underflow(&run->layers[k]) == layers_underflow(&run->layers[i]) && k < i));
        layers_choice *to = above < SHOWN ? first : rest;
        to->at[to->n++] = i;
    }
}

void layers_say_others(FILE *f, const report *r, bool (*is_other)(const report_run *run),
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
