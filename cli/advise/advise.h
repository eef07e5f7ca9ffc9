/* advise.h: what `gradscale advise` finds out, and the three ways it tells it. */
#ifndef ADVISE_H
#define ADVISE_H

#include "cli/core/cli.h"
#include "gradscale/io.h"
#include "gradscale/exponents.h"

enum { SCALES = GS_MAX_LOG2_SCALE + 1 };

/* Of a tensor, or of all. Shares are of `nonzero`, the finite values that are not zero. */
typedef struct survey {
    uint64_t elements, zero, inf, nan, nonzero;
    float amax;                           /* finite values */
    uint64_t first_bad;                   /* index of the first Inf or NaN, GS_NONE */
    int low, high;                        /* exponents: 2^low <= |x| < 2^(high+1); if nonzero */
    uint64_t *counts;                     /* [high - low + 1], by exponent; NULL if nonzero is 0 */
    gs_rounded f16[SCALES], bf16[SCALES]; /* by log2 of the scale */
    int safe; /* log2 of the largest scale with amax * scale <= 65504; if nonzero */
} survey;

typedef struct advise_tensor {
    const gs_entry *entry; /* the file's: lives as long as it is open */
    const void *map;       /* its elements in the file; NULL: they are to be read */
    gs_exponents *sum;     /* while it is being read */
    uint64_t left;         /* elements still to be read */
    gs_stats stats;
    survey s;
} advise_tensor;

typedef struct advise_file {
    const char *path;
    gs_source *source;
    size_t count, skipped;  /* entries; those of other types */
    advise_tensor *tensors; /* [count] */
} advise_file;

typedef enum advise_verdict {
    ADVISE_EMPTY,     /* nothing but zeros: nothing to say */
    ADVISE_NO_NEED,   /* f16 holds them as they are */
    ADVISE_SCALE,     /* a scale helps */
    ADVISE_TOO_WIDE,  /* a scale helps, and still values that matter underflow */
    ADVISE_TOO_SMALL, /* they would need a scale above the table */
    ADVISE_TOO_LARGE  /* they would need a scale below 1 */
} advise_verdict;

typedef struct advice {
    advise_verdict verdict;
    int log2_scale;  /* to use: largest safe, less the margin, within the table */
    int bf16_needed; /* without a scale bf16 would underflow or overflow */
    char f16[400], bf16[300], bad[300]; /* advice; bad is "" if all values are finite */
    char zeros[300];                    /* "" unless zeros of f16 tensors may have been gradients */
} advice;

typedef struct advise {
    advise_file *files;
    size_t count;
    size_t tensors, skipped;
    uint64_t bytes; /* of the files */
    int margin;     /* bits between amax and 65504 */
    double scale;   /* by which the values in the files are multiplied */
    survey total;
    const advise_file *max_file; /* where amax was found */
    const gs_entry *max_entry;
    const advise_file *bad_file; /* where the first Inf or NaN was found */
    const gs_entry *bad_entry;
    uint64_t bad_index;
    advice advice;
} advise;

/* Reads one file into f->tensors, its values divided by `scale`, and adds it to *total. CLI_GO, or
 * the exit code after an error. */
int advise_read(advise_file *f, gs_exponents *total, double scale, const cli_machine *machine,
                double done, double all);

void survey_finish(survey *s, const gs_exponents *x, const gs_stats *stats);
void survey_free(survey *s);
bool survey_has_safe(const survey *s); /* there is a largest safe scale that f32 can tell */
double survey_share(const survey *s, uint64_t count); /* of the non-zero values */

void advise_decide(advise *a);

/* "file: tensor" where there are several files, else "tensor", else the file; for display. */
char *advise_name(char out[256], const advise *a, const advise_file *f, const gs_entry *e);

typedef struct advise_style {
    bool ascii, each; /* each: a histogram for every tensor */
    uint64_t top;     /* rows of the table of tensors */
} advise_style;

void advise_print(const advise *a, const advise_style *style);
void advise_json(const advise *a);
int advise_html(const advise *a, const char *path); /* CLI_GO, or the exit code after an error */

/* Tensors in the order of the table: most underflow at scale 1 first. Free the result. */
typedef struct advise_ref {
    const advise_file *file;
    const advise_tensor *tensor;
    size_t index; /* as read */
} advise_ref;
advise_ref *advise_sorted(const advise *a);

/* 12.3%, 0.004%, 0 */
const char *advise_percent(char out[24], double share);
/* 0.0122; an f64 beyond f32: >3.4e38 */
const char *advise_amax(char out[24], const survey *s, int digits);
/* 2^12, or 2^12 (4096) */
const char *advise_scale(char out[48], int log2_scale, bool long_form);

#endif
