/* groups.h: what the verdict is about: jobs, each run with one or several seeds. */
#ifndef REPORT_GROUPS_H
#define REPORT_GROUPS_H

#include "cli/report/report.h"

enum { GROUP_LABEL = 96 };

/* The first of runs[] that is the same job with another seed, or `run` itself. */
size_t group_first(const report_run *runs, size_t run);
/* Whether others are the same job, each with a seed of its own. */
bool group_has_seeds(const report_run *runs, size_t n, size_t run);
/* Its name without the seed. */
void group_label(char label[GROUP_LABEL], const report_run *run);

/* Runs that differ in nothing but the seed. Means over them. */
typedef struct group {
    const report_run *first, *worst; /* worst: the first that failed, else the first */
    char label[GROUP_LABEL];
    size_t n, steps, running;
    size_t failed;                              /* runs that came to nothing: report_fate */
    double loss, rate, bytes, underflow, ratio; /* ratio: to the reference's loss */
    double variance;                            /* of the ratios, around their mean */
    double seconds;                             /* of its runs together; NaN: not known */
    uint64_t skipped, retried;
    uint64_t forward; /* of the skipped: the loss itself was not finite, which no scale mends */
    uint64_t first_forward; /* of its first run that has such a step */
    bool is_half;
    bool is_sample; /* not every step is in the log */
    bool has_loss;  /* as far as there are steps */
} group;

typedef struct verdict {
    group *at;
    size_t n;
    const report_run *runs; /* [run_count] */
    size_t *group_of;       /* of each run, which of at[] it is in */
    size_t run_count;
    const group *reference; /* NULL: nothing to compare with */
    bool is_validated;      /* every run that tells of losses: then these are compared, else those
                               of training */
    bool has_losses;        /* one of the runs that have steps, or there is no step */
    double noise;           /* ratios that differ by less are the same */
    bool noise_is_own;      /* measured between seeds; else it is assumed */
} verdict;

void verdict_make(verdict *v, const report_run *runs, size_t n);
void verdict_free(verdict *v);

static inline bool group_failed(const group *g) { return g->failed > 0; }
/* The speed of runs that are over in a moment is that of whatever else went on. */
static inline bool group_is_timed(const group *g) { return !(g->seconds < 1); }
/* Share of the steps that were skipped or retried because of the scale. */
static inline double group_wasted(const group *g)
{
    return g->steps > 0 ? (double)(g->skipped - g->forward + g->retried) / (double)g->steps : 0;
}

/* ---- which one to use (pick.c) ---- */

/* X(ID, words): "ruled out by ...", in this order. */
#define PICK_RULES(X)                                 \
    X(FAILED, "failure")                              \
    X(UNTOLD, "a loss that is not in the log")        \
    X(LOSS, "loss")                                   \
    X(UNDERFLOW, "underflow")                         \
    X(ROBUST, "a scale that is fixed or not checked") \
    X(MEMORY, "memory")                               \
    X(SPEED, "speed")                                 \
    X(WASTE, "skipped steps")                         \
    X(LEAST, "a loss that is higher within the noise")

typedef enum pick_rule {
#define X(id, words) PICK_##id,
    PICK_RULES(X)
#undef X
        PICK_RULE_COUNT,
    PICK_LEFT = PICK_RULE_COUNT /* not ruled out */
} pick_rule;

/* The group to use, or NULL: none can be told. out[v->n] becomes the rule that put out each. */
const group *pick_group(const verdict *v, pick_rule *out);
/* The words of WORDS_USE and of WORDS_COMMAND (use.c). */
void verdict_say_use(FILE *f, const verdict *v);
void verdict_say_command(FILE *f, const verdict *v, const char *config);
/* "11.2 times the loss of fp32", "a loss 0.3% above that of fp32", "the loss of fp32" */
void verdict_say_ratio(FILE *f, const verdict *v, double ratio);

/* What differs by less is called the same; by more, a loss of quality. One seed moves the loss of a
 * small net by about a percent. */
static const double verdict_same = 0.01, verdict_worse = 0.05;
static const double verdict_some = 0.0001, verdict_much = 0.01; /* shares that underflowed */
static const double verdict_faster = 0.05; /* timings of a shared machine are no better */

#endif
