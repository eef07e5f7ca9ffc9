/* What the writer and the reader of logs share. */
#ifndef GSI_TRAIN_LOG_H
#define GSI_TRAIN_LOG_H

#include "gradscale/log.h"
#include "io/line.h"
#include "io/tfevents.h"

struct gs_logger {
    gsi_heap heap;
    gsi_append json, csv, board;
    gsi_line line;
    bool fresh;
    gs_error error; /* the first of the call that runs */
};

/* ---- log_schema.c: the schema of a line, for the writer, the reader and doc/log.md ---- */

/* clang-format off */
/* X(ID, as JSON, what a value of another type is)        in C */
#define GSI_LOG_TYPES(X)                                                                       \
    X(COUNT,      "integer", "not an integer >= 0")               /* uint64_t */               \
    X(INTEGER,    "integer", "not an integer")                    /* int */                    \
    X(REAL,       "number",  "neither a number nor null")         /* double, all its digits */ \
    X(ROUGH,      "number",  "neither a number nor null")         /* double, 6 digits */       \
    X(MAGNITUDE,  "number",  "neither a number >= 0 nor null")    /* double, all its digits */ \
    X(FLAG,       "boolean", "neither true, false nor a number")  /* int */                    \
    X(TEXT,       "string",  "neither a string nor null")         /* const char * */           \
    X(PAIRS,      "object",  "not an object")                     /* gs_log_pairs */           \
    X(COUNTS,     "array",   "not an array")                      /* gs_log_counts */          \
    X(LAYERS,     "array",   "not an array")                      /* gs_log_layer_list */      \
    X(HISTOGRAMS, "array",   "not an array")                      /* gs_log_histogram_list */
/* clang-format on */

typedef enum gsi_log_type {
#define X(id, json, wrong) GSI_LOG_##id,
    GSI_LOG_TYPES(X)
#undef X
        GSI_LOG_TYPE_COUNT
} gsi_log_type;

typedef struct gsi_log_member {
    const char *key;
    gsi_log_type type;
    bool plotted; /* by TensorBoard */
    size_t at;    /* in the struct of the line */
    const char *meaning;
} gsi_log_member;

typedef struct gsi_log_schema {
    const gsi_log_member *members; /* [n], in the order of the line */
    size_t n;
} gsi_log_schema;

enum { GSI_LOG_MEMBERS = 16 }; /* of a line that is plotted, at most */
enum { GSI_LOG_LAYER = GS_LOG_KIND_COUNT, GSI_LOG_HISTOGRAM, GSI_LOG_SCHEMAS };
extern const gsi_log_schema gsi_log_schemas[]; /* by gs_log_kind, then the items of lists */
extern const char *const gsi_log_events[];     /* by gs_log_kind */
extern const char *const gsi_log_json_types[]; /* by gsi_log_type */

/* ---- log_lines.c ---- */

/* Writes the line that was built, and begins another. */
gs_status gsi_log_write(gs_logger *logger, gsi_append *file);
/* Writes one line by its schema, if there is a JSON log. */
gs_status gsi_log_line(gs_logger *logger, gs_log_kind kind, const void *line);
/* The names of the columns, as the first line of a CSV. */
void gsi_log_header(gs_logger *logger);

#endif
