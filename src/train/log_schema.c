/* The schema of a log: what each line has, by which key, of which type, and what it means. The
 * writer (log_lines.c), the reader (log_read.c) and doc/log.md follow this table; a test holds the
 * document to it. A member is added here, in its struct (gradscale/log.h) and in the document. */
#include "train/log.h"

#define AT(member) offsetof(LINE, member)

/* clang-format off */
#define LINE gs_log_step
static const gsi_log_member step[] = {
    {"step",        GSI_LOG_COUNT,     false, AT(step),        "from 1"},
    {"loss",        GSI_LOG_REAL,      true,  AT(loss),        "of the batch, before scaling and before `--loss-weight`"},
    {"scale",       GSI_LOG_REAL,      true,  AT(scale),       "of the last run of the batch"},
    {"found_inf",   GSI_LOG_FLAG,      false, AT(found_inf),   "an Inf or NaN in any run of the batch"},
    {"amax",        GSI_LOG_MAGNITUDE, false, AT(amax),        "largest finite magnitude of all gradients of the last run, in true units"},
    {"verdict",     GSI_LOG_TEXT,      false, AT(verdict),     "\"apply\", \"skip\" or \"fail\""},
    {"reason",      GSI_LOG_TEXT,      false, AT(reason),      "\"fine\", \"inf\", \"nan\", \"forward\" (the loss itself was not finite), \"no_grads\", \"user\""},
    {"reruns",      GSI_LOG_COUNT,     false, AT(reruns),      "times the batch was retried"},
    {"grad_norm",   GSI_LOG_REAL,      true,  AT(grad_norm),   "of the weights' gradients, in true units, before clipping"},
    {"lr",          GSI_LOG_REAL,      true,  AT(lr),          "learning rate of the step"},
    {"underflow",   GSI_LOG_REAL,      true,  AT(underflow),   "share of the non-zero gradients stored in half, of activations and weights, that underflowed to zero; null without telemetry, and in fp32"},
    {"items_per_s", GSI_LOG_ROUGH,     true,  AT(items_per_s), "images or tokens per second"},
    {"seconds",     GSI_LOG_ROUGH,     false, AT(seconds),     "of the step, data included"},
    {"items",       GSI_LOG_COUNT,     false, AT(items),       "images or tokens of the step"},
};
#undef LINE
#define LINE gs_log_run
static const gsi_log_member run[] = {
    {"version",     GSI_LOG_TEXT,      false, AT(version),     "of gradscale"},
    {"time",        GSI_LOG_TEXT,      false, AT(time),        "UTC"},
    {"name",        GSI_LOG_TEXT,      false, AT(name),        "`--name`"},
    {"model",       GSI_LOG_TEXT,      false, AT(model),       "the model and its sizes"},
    {"data",        GSI_LOG_TEXT,      false, AT(data),        "the data set"},
    {"parameters",  GSI_LOG_COUNT,     false, AT(parameters),  "weights"},
    {"config",      GSI_LOG_PAIRS,     false, AT(config),      "strings: every option in effect; items of `set` are joined by spaces"},
    {"machine",     GSI_LOG_PAIRS,     false, AT(machine),     "`cpu`, `kernels`: strings; `threads`, `ranks`: integers"},
    {"memory",      GSI_LOG_PAIRS,     false, AT(memory),      "bytes: `weights` with their half copies, `optimizer`, `activations`, `gradients` of weights and activations"},
};
#undef LINE
#define LINE gs_log_resume
static const gsi_log_member resume[] = {
    {"step",        GSI_LOG_COUNT,     false, AT(step),        "the run went on after this step: steps above it, further up in the log, are void"},
    {"from",        GSI_LOG_TEXT,      false, AT(from),        "the checkpoint"},
};
#undef LINE
#define LINE gs_log_valid
static const gsi_log_member valid[] = {
    {"step",        GSI_LOG_COUNT,     false, AT(step),        "after which it was made"},
    {"loss",        GSI_LOG_REAL,      true,  AT(loss),        "mean over the validation set"},
    {"accuracy",    GSI_LOG_REAL,      true,  AT(accuracy),    "share of the items; null for text"},
    {"best",        GSI_LOG_FLAG,      false, AT(best),        "it was the best so far"},
};
#undef LINE
#define LINE gs_log_layers
static const gsi_log_member layers[] = {
    {"step",        GSI_LOG_COUNT,     false, AT(step),        "in which they were stored"},
    {"layers",      GSI_LOG_LAYERS,    false, AT(layers),      "one object per layer"},
};
#undef LINE
#define LINE gs_log_layer
static const gsi_log_member layer[] = {
    {"name",        GSI_LOG_TEXT,      false, AT(name),        "of the layer's weight"},
    {"elements",    GSI_LOG_COUNT,     false, AT(elements),    "gradients stored"},
    {"flushed",     GSI_LOG_ROUGH,     false, AT(underflow),   "share of the finite non-zero gradients that underflowed to zero"},
    {"subnormal",   GSI_LOG_ROUGH,     false, AT(subnormal),   "share of the finite non-zero gradients that became subnormal"},
    {"inf",         GSI_LOG_COUNT,     false, AT(inf),         "Inf and NaN"},
    {"amax",        GSI_LOG_MAGNITUDE, false, AT(amax),        "the largest finite magnitude, in scaled units"},
};
#undef LINE
#define LINE gs_log_exponents
static const gsi_log_member exponents[] = {
    {"step",        GSI_LOG_COUNT,     false, AT(step),        "in which they were stored"},
    {"half",        GSI_LOG_TEXT,      false, AT(half),        "\"f16\", \"bf16\" or \"f32\", the type they were stored in"},
    {"scale",       GSI_LOG_REAL,      false, AT(scale),       "at which they were stored"},
    {"layers",      GSI_LOG_HISTOGRAMS, false, AT(layers),     "one object per layer"},
};
#undef LINE
#define LINE gs_log_histogram
static const gsi_log_member histogram[] = {
    {"name",        GSI_LOG_TEXT,      false, AT(name),        "of the layer's weight"},
    {"first",       GSI_LOG_INTEGER,   false, AT(first),       "exponent of the first count"},
    {"counts",      GSI_LOG_COUNTS,    false, AT(counts),      "integers: `counts[i]` activation gradients have floor(log2 of the scaled magnitude) = `first` + i"},
    {"zero",        GSI_LOG_COUNT,     false, AT(zero),        "gradients that are zero"},
    {"bad",         GSI_LOG_COUNT,     false, AT(bad),         "gradients that are Inf or NaN"},
};
#undef LINE
#define LINE gs_log_checkpoint
static const gsi_log_member checkpoint[] = {
    {"step",        GSI_LOG_COUNT,     false, AT(step),        "after which it was saved"},
    {"path",        GSI_LOG_TEXT,      false, AT(path),        "of the file"},
    {"seconds",     GSI_LOG_ROUGH,     false, AT(seconds),     "the step loop waited for it; the file itself is written beside training"},
};
#undef LINE
#define LINE gs_log_end
static const gsi_log_member end[] = {
    {"step",        GSI_LOG_COUNT,     false, AT(step),        "the last one"},
    {"seconds",     GSI_LOG_ROUGH,     false, AT(seconds),     "of the run"},
    {"loss",        GSI_LOG_REAL,      false, AT(loss),        "of the last validation, or without one the last loss"},
    {"accuracy",    GSI_LOG_REAL,      false, AT(accuracy),    "of the last validation; null without one"},
    {"applied",     GSI_LOG_COUNT,     false, AT(applied),     "steps applied, over all of the run"},
    {"skipped",     GSI_LOG_COUNT,     false, AT(skipped),     "steps skipped"},
    {"retried",     GSI_LOG_COUNT,     false, AT(retried),     "retries of batches"},
    {"status",      GSI_LOG_TEXT,      false, AT(status),      "\"done\", \"interrupted\", \"early stop\", \"failed\", \"stuck\" (it came to its end with less than a tenth of its steps applied) or \"diverged\" (with a loss that is not finite)"},
    {"phases",      GSI_LOG_PAIRS,     false, AT(phases),      "seconds of this process by what they were spent on: those of a step (`gs_phase`), then `data` (waiting for a batch), `log` (logs and progress), `valid`, `save`"},
};
#undef LINE

#define SCHEMA(members) {members, GSI_COUNT(members)}
const gsi_log_schema gsi_log_schemas[] = {
    [GS_LOG_STEP]       = SCHEMA(step),
    [GS_LOG_RUN]        = SCHEMA(run),
    [GS_LOG_RESUME]     = SCHEMA(resume),
    [GS_LOG_VALID]      = SCHEMA(valid),
    [GS_LOG_LAYERS]     = SCHEMA(layers),
    [GS_LOG_EXPONENTS]  = SCHEMA(exponents),
    [GS_LOG_CHECKPOINT] = SCHEMA(checkpoint),
    [GS_LOG_END]        = SCHEMA(end),
    [GSI_LOG_LAYER]     = SCHEMA(layer),
    [GSI_LOG_HISTOGRAM] = SCHEMA(histogram),
};
/* clang-format on */

_Static_assert(GSI_COUNT(step) <= GSI_LOG_MEMBERS && GSI_COUNT(valid) <= GSI_LOG_MEMBERS,
               "a line has more members than are plotted");
_Static_assert(GSI_COUNT(gsi_log_schemas) == GSI_LOG_SCHEMAS, "a kind of lines has no schema");

const char *const gsi_log_events[] = {
#define X(id, event) event,
    GS_LOG_KINDS(X)
#undef X
};

const char *const gsi_log_json_types[] = {
#define X(id, json, wrong) json,
    GSI_LOG_TYPES(X)
#undef X
};
