/* html.h: what the program's reports share. A report is one file without scripts and without a
 * network: light and dark, for a phone, a screen reader, a printer. */
#ifndef HTML_H
#define HTML_H

#include <stdio.h>

/* Text from files and users, for elements and for attributes in double quotes. */
void html_escape(FILE *f, const char *text);

/* Everything up to the first heading; styles: the page's own rules, in CSS, up to NULL. html_end
 * closes it. refresh: seconds after which a browser reads the page again; 0: never. */
void html_begin(FILE *f, const char *title, const char *const *styles, double refresh);
void html_end(FILE *f);

/* A table that scrolls by itself where it is too wide; rows follow. Titles are escaped, up to NULL.
 * label is what a screen reader calls it. With NULL it is folded away: the numbers of a chart. */
void html_table_begin(FILE *f, const char *label, const char *const *titles);
void html_cell(FILE *f, const char *text); /* <td>, escaped */
void html_table_end(FILE *f, const char *label);

/* Writes page(f, what) to path, as a whole or not at all: a report that was there stays until the
 * new one is complete. CLI_GO, or the exit code after an error, which names the option. */
int html_write(const char *option, const char *path, void (*page)(FILE *f, const void *what),
               const void *what);

#endif
