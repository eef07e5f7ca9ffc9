/* report.h: logs of runs (doc/log.md) as one page: read, judged, drawn.
 *
 *     read.c             a log into a report_run
 *     judge.c            what a run came to, in numbers
 *     groups.c           runs that differ in their seed only
 *     verdict.c          the verdict in words
 *     pick.c, use.c      which run to use; the words about it
 *     report_html.c      the page: header, verdict, table of runs, settings
 *     loss_html.c        its sections, one report_draw_SECTION each (cost: speed and memory)
 *     scale_html.c
 *     headroom_html.c    (largest gradient against the format; norms and learning rate)
 *     underflow_html.c
 *     exponents_html.c
 *     cost_html.c
 *     series.c           steps as lines of a chart
 *     layers.c           what the sections about layers share
 *     chart.c            charts as SVG; chart_bars.c: bars
 */
#ifndef REPORT_H
#define REPORT_H

#include "cli/core/cli.h"

typedef struct report_options {
    const char *title;  /* NULL: one is made from the runs */
    double refresh;     /* s after which a browser is to read the page again; 0: never */
    const char *config; /* file of the options that the runs share; NULL: there is none */
    const char *option; /* by which the user named path, for errors; NULL: "--output" */
} report_options;

/* Reads logs[n] and writes the page. CLI_DONE, or the exit code after an error; then a report that
 * was there before is untouched. */
/* Whether every run has ended is left in *ended, which may be NULL. */
int report_write_live(const char *path, const char *const *logs, size_t n,
                      const report_options *options, bool *ended);
int report_write(const char *path, const char *const *logs, size_t n,
                 const report_options *options);

/* ---- what a log says ---- */

/* A run in memory is 40 bytes per step, so that a million steps are read in one pass, what a
 * resumed run repeated can be dropped, and drawing chooses its own resolution. Not told: NaN. */
typedef struct report_step {
    uint64_t step;
    float loss, log2_scale;
    float underflow; /* share of the non-zero gradients that underflowed to zero */
    float rate;      /* items/s */
    float grad_norm, lr;
    float log2_amax; /* of the largest gradient, true units */
    unsigned char skipped, reruns;
    unsigned char forward; /* skipped because the loss itself was not finite */
    unsigned char bad;     /* its gradients were not finite, applied or not */
} report_step;

typedef struct report_valid {
    uint64_t step;
    double loss, accuracy;
} report_valid;

/* The underflow of one layer in one step. */
typedef struct report_cell {
    uint64_t step;
    uint32_t layer;
    float underflow;
} report_cell;

enum { REPORT_LAYERS = 1024, REPORT_EXPONENTS = 640, REPORT_PAIRS = 256 }; /* more are left out */

typedef struct report_layer {
    char *name;
    double underflow, samples; /* summed over cells; how many */
    int first;                 /* exponent of counts[0] */
    size_t n;                  /* 0: no histogram */
    double *counts, zero, bad;
} report_layer;

typedef struct report_pair {
    char *key, *value;
    double number; /* if it is one, else NaN */
} report_pair;

typedef struct report_pairs {
    report_pair *at;
    size_t n;
} report_pairs;

/* Whether it came to something. A run may go on to its last step and come to nothing. */
typedef enum report_fate {
    REPORT_FINE,
    REPORT_STUCK,   /* less than a tenth of its steps were applied */
    REPORT_DIVERGED /* its loss, as far as it is logged, is not finite at the end */
} report_fate;

typedef struct report_run {
    const char *path;
    char *name, *model, *data, *version, *time, *status, *half;
    double parameters, seconds; /* seconds, status: of the end; NULL: it did not end */
    report_pairs config, machine, memory, phases;

    report_step *steps; /* [n], step increasing */
    size_t n, steps_room;
    report_valid *valid; /* [valids], step increasing */
    size_t valids, valid_room;
    report_cell *cells; /* [cell_count], step not decreasing */
    size_t cell_count, cell_room;
    report_layer *layers; /* [layer_count] */
    size_t layer_count, layer_room;
    uint64_t exponents_step; /* of the histograms: the last that were logged */
    double exponents_scale;

    uint64_t lines, damaged, void_steps, resumes;
    const char *kind; /* of another framework's log; NULL: ours */
    bool only_skips;  /* logs_about */
    bool tells_skips, tells_retries;
    bool tells_end; /* it has lines of events, so that an end is told of */
    double last_scale;
    bool is_cut;   /* the last line has no end: the job is writing, or was killed */
    bool has_loss; /* a line has the member, be it null */
    bool unread;   /* the system could not read it: nothing is known of it */

    /* from all that, report_judge's */
    double loss;       /* at the end: of the last validation, else of the last training steps */
    bool is_validated; /* loss is of a validation */
    double accuracy;   /* of the last validation */
    double underflow;  /* mean over the steps */
    double rate;       /* median */
    double bytes;      /* of memory, summed */
    uint64_t skipped, retried, bad_losses;
    uint64_t forward, first_forward; /* skipped with a loss that was not finite; the first */
    report_fate fate;
    uint64_t first_bad; /* of DIVERGED and STUCK: the step from which on it was lost */
} report_run;

typedef struct report {
    const report_options *options;
    report_run *runs;
    size_t n;
} report;

/* CLI_GO, or the exit code after an error. Free the run in either case. */
int report_read(report_run *run, const char *path);
void report_free(report_run *run);
const char *report_value(const report_pairs *pairs, const char *key); /* NULL: not there */
bool report_is_half(const report_run *run);
/* It has not ended, or broke off; false where the log would not tell. */
bool report_is_running(const report_run *run);
bool report_has_fixed_scale(const report_run *run); /* none, guard, static:S */

/* ---- what it means ---- */

void report_judge(report_run *run);
/* The mean of the last twentieth, 100 steps at most: NaN if one of them is not finite. */
double report_train_loss(const report_run *run);

/* Of the last validation up to there, or of the last training steps up to there: NaN if there is
 * none. */
double report_loss_at(const report_run *run, uint64_t step, bool is_validated);

/* The verdict in words: sentences that are computed, never assumed. What cannot be told from the
 * logs is said to be missing. Several runs that differ in their seed only are judged together. One
 * statement per line; what stands before a tab is the name of a run. */
enum { WORDS_HEADLINE, WORDS_UNDERFLOW, WORDS_COST, WORDS_USE, WORDS_COMMAND, WORDS_COUNT };
typedef struct report_words {
    char *text[WORDS_COUNT]; /* the caller's to free */
} report_words;
/* WORDS_COMMAND is the command that trains with what WORDS_USE says, or "": nothing to compare.
 * config: of report_options. */
void report_verdict(report_words *words, const report_run *runs, size_t n, const char *config);

/* ---- drawing: the page (report_html.c) and its sections (SECTION_html.c) ---- */

void report_page(FILE *f, const void *report);
void report_draw_loss(FILE *f, const report *r);
void report_draw_scale(FILE *f, const report *r);
void report_draw_headroom(FILE *f, const report *r);
void report_draw_rates(FILE *f, const report *r); /* headroom_html.c */
void report_draw_underflow(FILE *f, const report *r);
void report_draw_exponents(FILE *f, const report *r);
void report_draw_speed(FILE *f, const report *r);  /* cost_html.c */
void report_draw_memory(FILE *f, const report *r); /* cost_html.c */

/* 12.3%, 0.004%, 0 */
const char *report_percent(char out[32], double share);
const char *report_number(char out[32], double value); /* 0.1123, 1.24e+08 */
const char *report_count(char out[32], double value);  /* 4.1 k, 1.2 M; ends in the prefix */
const char *report_bytes(char out[32], double value);  /* 1.5 MB */

#endif
