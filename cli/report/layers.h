/* layers.h: what the drawings of layers share. */
#ifndef REPORT_LAYERS_H
#define REPORT_LAYERS_H

#include "cli/report/report.h"

/* Layers of a run, in the order of the model. */
typedef struct layers_choice {
    size_t at[REPORT_LAYERS], n;
} layers_choice;

/* Parts those that have it: the 24 with the most underflow, which are drawn, and the rest, which
 * are folded away. */
void layers_choose(layers_choice *first, layers_choice *rest, const report_run *run,
                   bool (*has)(const report_layer *layer));

double layers_underflow(const report_layer *layer); /* mean share */

/* Length of what all names of layers begin with, up to a dot: "transformer.". */
size_t layers_start(const report_run *run);

/* To the left of a chart, that much cut off; and the end of a long name tells more than its
 * beginning. */
void layers_name(FILE *f, const char *name, double y);

/* One line of text with the runs of which there is nothing to draw. */
void layers_say_others(FILE *f, const report *r, bool (*is_other)(const report_run *run),
                       const char *before, const char *after);

#endif
