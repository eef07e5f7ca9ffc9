/* log.h: what a run leaves behind to be read: JSON lines, CSV, TensorBoard; and the reader of the
 * JSON lines.
 *
 *     gs_logger *log;
 *     gs_logger_config files = {.size = sizeof files, .json = "run.jsonl", .tensorboard = "a"};
 *     gs_logger_open(&log, &files, NULL, &error);
 *     for each step
 *         gs_logger_step(log, &(gs_log_step){.step = n, .loss = row.loss, ...}, &error);
 *     gs_logger_close(log);
 *
 * A line of the log is one of the structs below. One table (src/train/log_schema.c) gives each
 * member its JSON key, type and meaning; the writer, the reader and doc/log.md follow it. A number
 * that is not finite is null in JSON, an empty field in CSV and left out of TensorBoard's files.
 *
 * Every line reaches the system in one write before the call returns: a process that is killed
 * leaves whole lines. A file that cannot be written is given up: the call that noticed returns
 * GS_EIO with an error message, and the calls after it write the others. Training can go on.
 */
#ifndef GRADSCALE_LOG_H
#define GRADSCALE_LOG_H

#include "gradscale/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the lines of a log ---- */

/* X(ID, event): a line without an event is a step. */
#define GS_LOG_KINDS(X)         \
    X(STEP, NULL)               \
    X(RUN, "run")               \
    X(RESUME, "resume")         \
    X(VALID, "valid")           \
    X(LAYERS, "layers")         \
    X(EXPONENTS, "exponents")   \
    X(CHECKPOINT, "checkpoint") \
    X(END, "end")

typedef enum gs_log_kind {
#define X(id, event) GS_LOG_##id,
    GS_LOG_KINDS(X)
#undef X
        GS_LOG_OTHER, /* an event of another version */
    GS_LOG_KIND_COUNT = GS_LOG_OTHER
} gs_log_kind;

/* In a line that was read, what the log does not have, or has as another type: NaN, NULL,
 * GS_LOG_NONE, and -1 of a flag. */
static const uint64_t GS_LOG_NONE = UINT64_C(0xFFFFFFFFFFFFFFFF);
#define GS_LOG_NONE UINT64_C(0xFFFFFFFFFFFFFFFF)

typedef struct gs_log_step {
    uint64_t step; /* from 1 */
    double loss, scale;
    int found_inf; /* in any run of the batch */
    double amax;   /* of the gradients, true units */
    const char *verdict, *reason;
    uint64_t reruns;
    double grad_norm, lr;
    double underflow; /* share of the non-zero gradients stored in half that underflowed to zero */
    double items_per_s, seconds;
    uint64_t items;
} gs_log_step;

typedef struct gs_log_pair {
    const char *key;
    const char *value; /* NULL: it is a number */
    double number;
} gs_log_pair;

typedef struct gs_log_pairs {
    const gs_log_pair *at; /* [n] */
    size_t n;
} gs_log_pairs;

typedef struct gs_log_run {
    const char *version, *time; /* gs_logger_run writes its own */
    const char *name, *model, *data;
    uint64_t parameters;
    gs_log_pairs config, machine, memory;
} gs_log_run;

typedef struct gs_log_resume {
    uint64_t step;
    const char *from;
} gs_log_resume;

typedef struct gs_log_valid {
    uint64_t step;
    double loss, accuracy; /* accuracy NaN: none */
    int best;
} gs_log_valid;

typedef struct gs_log_layer {
    const char *name;
    uint64_t elements;
    double underflow, subnormal; /* shares of the finite non-zero gradients */
    uint64_t inf;
    double amax;
} gs_log_layer;

typedef struct gs_log_layer_list {
    const gs_log_layer *at; /* [n]; NULL: the line has no such array */
    size_t n;
} gs_log_layer_list;

typedef struct gs_log_layers {
    uint64_t step;
    gs_log_layer_list layers;
} gs_log_layers;

typedef struct gs_log_counts {
    const uint64_t *at; /* [n] */
    size_t n;
} gs_log_counts;

typedef struct gs_log_histogram {
    const char *name;
    int first; /* exponent of counts.at[0]; INT_MIN: not in the log */
    gs_log_counts counts;
    uint64_t zero, bad;
} gs_log_histogram;

typedef struct gs_log_histogram_list {
    const gs_log_histogram *at; /* [n]; NULL: the line has no such array */
    size_t n;
} gs_log_histogram_list;

typedef struct gs_log_exponents {
    uint64_t step;
    const char *half;
    double scale;
    gs_log_histogram_list layers;
} gs_log_exponents;

typedef struct gs_log_checkpoint {
    uint64_t step;
    const char *path;
    double seconds;
} gs_log_checkpoint;

typedef struct gs_log_end {
    uint64_t step;
    double seconds, loss, accuracy;
    uint64_t applied, skipped, retried;
    const char *status; /* "done", "interrupted", "early stop", "failed", "stuck", "diverged" */
    gs_log_pairs phases;
} gs_log_end;

/* ---- writing ---- */

typedef struct gs_logger gs_logger;

typedef struct gs_logger_config {
    size_t size;             /* sizeof(gs_logger_config) */
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
/* The files that were given up because writing to them failed, whichever call told of it. */
enum { GS_LOGGER_JSON = 1, GS_LOGGER_CSV = 2, GS_LOGGER_TENSORBOARD = 4 };
GS_API unsigned gs_logger_lost(const gs_logger *logger);
/* The JSON log had no line when it was opened: it wants a "run" first. */
GS_API int gs_logger_fresh(const gs_logger *logger);

/* What the row of a step says; seconds: of all of it, data included. */
GS_API gs_log_step gs_log_step_from(const gs_train_row *row, uint64_t items, double seconds);
GS_API gs_status gs_logger_step(gs_logger *logger, const gs_log_step *step, gs_error *error);

GS_API gs_status gs_logger_run(gs_logger *logger, const gs_log_run *run, gs_error *error);
GS_API gs_status gs_logger_valid(gs_logger *logger, uint64_t step, double loss,
                                 double accuracy /* NaN: none */, int best, gs_error *error);
GS_API gs_status gs_logger_layers(gs_logger *logger, uint64_t step, const gs_layer *layers,
                                  size_t n, gs_error *error);
/* Of the layers that have a histogram; half: the type they were stored in, at this scale. */
GS_API gs_status gs_logger_exponents(gs_logger *logger, uint64_t step, gs_dtype half, double scale,
                                     const gs_layer *layers, size_t n, gs_error *error);
GS_API gs_status gs_logger_checkpoint(gs_logger *logger, uint64_t step, const char *path,
                                      double seconds, gs_error *error);
/* Also brings all files to the disk. */
GS_API gs_status gs_logger_end(gs_logger *logger, const gs_log_end *end, gs_error *error);

/* ---- reading ---- */

typedef struct gs_log_file gs_log_file;

typedef struct gs_log_line {
    uint64_t number; /* in the file, from 1 */
    int is_whole;    /* it ended with a newline: no writer was killed in it, or is writing it */
    gs_log_kind kind;
    union {
        gs_log_step step;
        gs_log_run run;
        gs_log_resume resume;
        gs_log_valid valid;
        gs_log_layers layers;
        gs_log_exponents exponents;
        gs_log_checkpoint checkpoint;
        gs_log_end end;
    } u;
} gs_log_line;

/* path "-" is standard input. alloc and error may be NULL. */
GS_API gs_status gs_log_open(gs_log_file **out, const char *path, const gs_alloc *alloc,
                             gs_error *error);
GS_API void gs_log_close(gs_log_file *file); /* NULL is legal */

/* The next line that is not blank; *more is 0 at the end of the file. What the line points to lives
 * until the next call. NaN and Infinity, which JSON does not have, are read as null.
 *
 * GS_EFORMAT, GS_ESIZE: the line is not a JSON object, its event is not a string, or it is longer
 * than 16 MB; number and is_whole are set, and the next call goes on behind it. (The number of a
 * line without end comes again and again.) Error messages begin with file and line. */
GS_API gs_status gs_log_next(gs_log_line *line, int *more, gs_log_file *file, gs_error *error);

/* Of the line that was read last. GS_OK: it has the member; GS_ENAME: it does not; GS_EFORMAT: as
 * another type than the schema says. */
GS_API gs_status gs_log_has(gs_log_file *file, const char *key, gs_error *error);

GS_API uint64_t gs_log_file_bytes(const gs_log_file *file); /* read so far */

#ifdef __cplusplus
}
#endif

#endif
