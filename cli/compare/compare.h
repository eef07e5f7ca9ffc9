/* compare.h: `gradscale compare`: one job in several precisions and policies.
 *
 *     runs.c           the runs that were asked for
 *     child.c          one `gradscale train`: started, watched, ended
 *     compare_text.c   the table, the words
 *     compare_json.c   the same for programs
 *
 * A run is a column of the comparison: a precision and a policy. It is taken once per seed, and
 * each of these is a trial: a process and a log of its own. */
#ifndef COMPARE_H
#define COMPARE_H

#include "cli/report/report.h"

enum { COMPARE_RUNS = 32, COMPARE_TEXT = 1024, COMPARE_WORD = 32, COMPARE_PAIR = 2 * COMPARE_WORD };

typedef struct compare_run {
    char name[4 * COMPARE_WORD];                      /* "fp16 static:1024 O1 int8" */
    char precision[COMPARE_WORD], mode[COMPARE_WORD]; /* all as train takes them; "": not given */
    char scaler[COMPARE_PAIR], how[COMPARE_PAIR];
    char quantize[COMPARE_WORD];
} compare_run;

typedef enum compare_ending {
    COMPARE_WAITING, /* not begun */
    COMPARE_DONE,
    COMPARE_FAILED, /* ended with an error, or was killed */
    COMPARE_STOPPED /* with all of it, by the user */
} compare_ending;

typedef struct compare_trial {
    const compare_run *run;
    uint64_t seed;
    char name[160], log[COMPARE_TEXT], out[COMPARE_TEXT]; /* files: the log, what it printed */
    compare_ending ending;
    char reason[COMPARE_TEXT]; /* of FAILED */
    double seconds;
    bool is_read;   /* what follows is there */
    report_run has; /* what its log says */
} compare_trial;

typedef struct compare_all {
    const char *output, *config; /* folder; the file with the options of all */
    char report[COMPARE_TEXT];   /* "": none was written */
    compare_run runs[COMPARE_RUNS];
    size_t n;
    uint64_t first, seeds;
    compare_trial *trials; /* [seeds * n], a seed after the other */
    bool quiet;
} compare_all;

/* ---- set ---- */

extern const char COMPARE_DEFAULT[];
/* "fp32,fp16:none,fp16:pytorch:O1": CLI_GO, or the exit code after an error. */
int compare_set_read(compare_all *c, const char *list);

/* ---- child ---- */

/* Takes the trials that are not done, one after the other, and calls back at the end of each.
 * False: a signal ended it; what has not been begun is WAITING. */
bool compare_children(compare_all *c, void (*ended)(const compare_all *, compare_trial *));

/* ---- show ---- */

/* Means over the trials of a run that ended; NaN: not known. */
typedef struct compare_mean {
    size_t done;
    double train, valid, accuracy, underflow, rate, bytes;
    double least, most;                    /* of valid */
    double ratio, ratio_least, ratio_most; /* of valid to that of the reference, seed by seed */
    uint64_t skipped, retried;             /* sums */
} compare_mean;

const compare_run *compare_reference(const compare_all *c); /* the first in fp32, or the first */
compare_mean compare_mean_of(const compare_all *c, const compare_run *run);
/* False: fewer than two runs are done, and there is nothing to say. */
bool compare_words(const compare_all *c, report_words *words);
void compare_show(const compare_all *c);
void compare_json(const compare_all *c, FILE *to);

#endif
