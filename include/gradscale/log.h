/* log.h: what a run leaves behind to be read: JSON lines, CSV, TensorBoard.
 *
 *     gs_logger *log;
 *     gs_logger_open(&log, &(gs_logger_config){.json = "run.jsonl", .tensorboard = "runs/a"},
 *                    NULL, &error);
 *     for each step
 *         gs_logger_step(log, &(gs_log_step){.step = n, .loss = row.loss, ...});
 *     gs_logger_close(log);
 *
 * Every line reaches the system in one write before the call returns: a process that is killed
 * leaves whole lines. doc/log.md has the schema. A number that is not finite is null in JSON, an
 * empty field in CSV and left out of TensorBoard's files.
 *
 * A file that cannot be written is given up: the call that noticed returns GS_EIO, with the
 * sentence in gs_logger_error, and the calls after it write the others. Training can go on.
 */
#ifndef GRADSCALE_LOG_H
#define GRADSCALE_LOG_H

#include "gradscale/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gs_logger gs_logger;

typedef struct gs_logger_config {
    const char *json, *csv;  /* files; NULL: none */
    const char *tensorboard; /* a folder, made if it is not there; NULL: none */
    int resume;              /* go on with the files that are there; 0: begin them anew */
    uint64_t step;           /* of resume: steps after it are cut from the CSV, and void in JSON */
    const char *from;        /* of resume: the checkpoint */
} gs_logger_config;

/* Going on, a last line that was cut short is removed. alloc and error may be NULL. */
GS_API gs_status gs_logger_open(gs_logger **out, const gs_logger_config *config,
                                const gs_alloc *alloc, gs_error *error);
GS_API void gs_logger_close(gs_logger *logger); /* NULL is legal */
/* Of the first call that failed; status GS_OK: none has. */
GS_API const gs_error *gs_logger_error(const gs_logger *logger);
/* The JSON log had no line when it was opened: it wants a "run" first. */
GS_API int gs_logger_fresh(const gs_logger *logger);

/* ---- a line a step ---- */

typedef struct gs_log_step {
    uint64_t step; /* from 1 */
    double loss, scale;
    int found_inf; /* in any run of the batch */
    double amax;   /* of the gradients, true units */
    const char *verdict, *reason;
    uint64_t reruns;
    double grad_norm, lr;
    double underflow; /* of the gradients stored in half and not zero, the share stored as 0 */
    double items_per_s, seconds;
    uint64_t items;
} gs_log_step;

/* What the row of a step says; seconds: of all of it, data included. */
GS_API gs_log_step gs_log_step_of(const gs_train_row *row, uint64_t items, double seconds);
GS_API gs_status gs_logger_step(gs_logger *logger, const gs_log_step *step);

/* ---- events ---- */

typedef struct gs_log_pair {
    const char *key, *value;
} gs_log_pair;

typedef struct gs_log_run {
    const char *name, *model, *data;
    uint64_t parameters;
    const gs_log_pair *config; /* [configs] */
    size_t configs;
    const char *cpu, *kernels;
    unsigned threads;
    int ranks;
    uint64_t weights, optimizer, activations, gradients; /* bytes */
} gs_log_run;
GS_API gs_status gs_logger_run(gs_logger *logger, const gs_log_run *run);

GS_API gs_status gs_logger_valid(gs_logger *logger, uint64_t step, double loss,
                                 double accuracy /* NaN: none */, int best);
GS_API gs_status gs_logger_layers(gs_logger *logger, uint64_t step, const gs_layer *layers,
                                  size_t n);
/* Of the layers that have a histogram; half: the type they were stored in, at this scale. */
GS_API gs_status gs_logger_exponents(gs_logger *logger, uint64_t step, gs_dtype half, double scale,
                                     const gs_layer *layers, size_t n);
GS_API gs_status gs_logger_checkpoint(gs_logger *logger, uint64_t step, const char *path,
                                      double seconds);

typedef struct gs_log_phase {
    const char *name;
    double seconds;
} gs_log_phase;

typedef struct gs_log_end {
    uint64_t step;
    double seconds, loss, accuracy;
    uint64_t applied, skipped, retried;
    const char *status;         /* "done", "interrupted", "early stop", "failed" */
    const gs_log_phase *phases; /* [n] */
    size_t n;
} gs_log_end;
GS_API gs_status gs_logger_end(gs_logger *logger, const gs_log_end *end);

#ifdef __cplusplus
}
#endif

#endif
