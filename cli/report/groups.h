/* groups.h: what the verdict is about: jobs, each run with one or several seeds. */
#ifndef REPORT_GROUPS_H
#define REPORT_GROUPS_H

#include "cli/report/report.h"

/* Runs that differ in nothing but the seed. Means over them. */
typedef struct group {
    const report_run *first;
    char label[96];
    size_t n, steps, finite, running;
    double loss, rate, bytes, underflow, ratio; /* ratio: to the reference's loss */
    uint64_t skipped, retried;
    bool is_half;
} group;

typedef struct verdict {
    group *at;
    size_t n;
    const group *reference; /* NULL: nothing to compare with */
    bool is_validated;
} verdict;

/* Free v->at. */
void verdict_make(verdict *v, const report_run *runs, size_t n);

#endif
