/* logs.h: logs of other frameworks as lines of ours (gradscale/log.h).
 *
 *     logs.c        which kind a file is, and the reader of lines
 *     logs_text.c   what trainers print: Megatron-LM, DeepSpeed, Apex, fairseq
 *     logs_table.c  CSV (ours, Lightning's, others') and Hugging Face's trainer_state.json
 *
 * A kind is found by content, never by the name of the file. What is not found here is left to the
 * reader of our own logs. */
#ifndef LOGS_H
#define LOGS_H

#include "cli/core/cli.h"

#include "gradscale/log.h"

#include <jansson.h>

/* Called for every step and validation, steps increasing. */
typedef void logs_fn(void *user, const gs_log_line *line);

typedef struct logs_about {
    const char *kind; /* "Megatron-LM" */
    uint64_t lines;   /* of the file */
    bool only_skips;  /* it tells of steps that were skipped, not how many were applied */
} logs_about;

typedef struct logs_kind logs_kind;

/* NULL: none of these. A file that cannot be read is none. */
const logs_kind *logs_find(const char *path);
/* CLI_GO, or the exit code after an error. */
int logs_read(const logs_kind *kind, const char *path, logs_fn *each, void *user,
              logs_about *about);

/* A file of torch.save, for which there is an error message: CLI_GO, or the exit code after it. */
int logs_refuse_pickle(const char *path, const char *instead);

/* Where a step does not say whether it overflowed, its scale does: it fell since *last, which
 * becomes the step's. False: it tells nothing either. */
bool logs_infer(double *last, gs_log_step *step);

/* ---- for the kinds ---- */

typedef struct logs_reader {
    FILE *file;
    logs_fn *each;
    void *user;
    logs_about *about;
    char *line;             /* [LOGS_LINE]: the line, without its end; longer ones are cut */
    uint64_t step, skipped; /* told so far */
    uint64_t implied;       /* of them without a line of their own */
    double scale, loss;     /* as last told; NaN: not yet */
} logs_reader;

/* A line tells of the steps since the one before. A few bytes must not become millions of them: at
 * most LOGS_GAP in all, and LOGS_PER_LINE more for every line. */
enum { LOGS_LINE = 1 << 20, LOGS_GAP = 1000000, LOGS_PER_LINE = 10000 };

struct logs_kind {
    const char *name;
    bool (*fits)(const char *start); /* the first bytes of the file */
    int (*read)(logs_reader *r, const char *path);
};

extern const logs_kind logs_megatron, logs_deepspeed, logs_apex, logs_fairseq, logs_csv,
    logs_trainer_state;

bool logs_next(logs_reader *r); /* false: the end */
gs_log_step logs_new_step(const logs_reader *r, uint64_t step);
void logs_tell(logs_reader *r, const gs_log_step *step);
/* n more steps that were applied, or skipped, at r->scale and with r->loss. */
void logs_tell_steps(logs_reader *r, uint64_t n, bool skipped);
void logs_tell_valid(logs_reader *r, uint64_t step, double loss, double accuracy);

/* The number behind `key` in text; NaN: it is not there. */
double logs_number(const char *text, const char *key);
/* NaN and Infinity, which JSON does not have, become null. NULL: it is no JSON. */
json_t *logs_json(const char *text);
/* A number, or a string that is one; NaN: neither. */
double logs_member(const json_t *object, const char *key);

#endif
