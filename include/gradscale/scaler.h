/* scaler.h: the loss scaler. Five lines put it into a training loop of your own:
 *
 *     gs_scaler scaler;
 *     gs_scaler_init(&scaler, "pytorch", NULL);             or megatron, headroom, static:128, ...
 *     for each batch
 *         gs_step_begin(&step, &scaler);                    (1) which scale
 *         ... forward; backward of loss * step.scale ...
 *         gs_step_scan(&step, &stats);                      (2) what the gradients look like
 *         if (gs_step_end(&step, &scaler).action == GS_APPLY)          (3) what to do
 *             ... optimizer, with gradients * step.inverse ...
 *
 * A gs_scaler is plain data of 512 bytes: copy it, memcpy it, keep it on the stack. Nothing here
 * allocates, prints, reads the environment or needs a context; a scaler serves one thread at a
 * time. Errors come back as a gs_status and, where a gs_error is given (it may be NULL), as an
 * error message.
 *
 * gs_scaler and gs_step say their own size, and new members take the place of `reserved`. A call
 * that gets one that was not made by gs_scaler_init, a load or gs_step_begin of this version reads
 * nothing else of it: it returns GS_EVERSION, a verdict FAIL with GS_REASON_VERSION, or what its
 * comment says.
 *
 * Two levels. The raw machine, gs_scaler_update, follows each framework step by step, into zeros
 * and infinities where they go there. The step protocol above it keeps the scale inside bounds,
 * tells Inf from NaN from a broken forward pass, and can retry a batch.
 */
#ifndef GRADSCALE_SCALER_H
#define GRADSCALE_SCALER_H

#include "gradscale/exponents.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- parameters of the machine: 23 keys ---- */

/* The values of the keys that are words, in the order of their spelling in `GS_*_NAMES`. */
enum { GS_STATE_F16, GS_STATE_F32, GS_STATE_F64 };
enum { GS_ARITH_WIDE, GS_ARITH_STATE, GS_ARITH_DIV, GS_ARITH_RECIP };
enum { GS_COMPARE_EQ, GS_COMPARE_GE, GS_COMPARE_MOD, GS_COMPARE_WRAP };
enum { GS_REFILL_CLEAN = 1, GS_REFILL_GROWTH = 2, GS_REFILL_BACKOFF = 4 };
enum { GS_ERR_NONE, GS_ERR_EQ_BEFORE, GS_ERR_LE_AFTER, GS_ERR_RESTORE_LT };

/* A double parameter that is `none` is NaN, so that every comparison with it is false; a count
 * that is `none` is GS_NO_LIMIT. */
static const int64_t GS_NO_LIMIT = INT64_C(0x7FFFFFFFFFFFFFFF);
#define GS_NO_LIMIT INT64_C(0x7FFFFFFFFFFFFFFF)

/* S is the scale; T the type it is kept in; doc/scaler.md says more of each. */
typedef struct gs_params {
    double init;            /* S at the start, rounded to T */
    double growth, backoff; /* factors; backoff is a divisor for div and recip */
    double tolerance;       /* with track_rescale: the share of overflows that is due a backoff */
    double floor, max;      /* of a backoff's result, of a growth's result; or none */
    double err_min;         /* the scale `err` speaks of */
    double window_follows;  /* growth multiplies the interval by it, backoff divides; or none */
    double warm_growth;     /* the growth until the first overflow ever; or none */
    int64_t interval;       /* clean steps to a growth; or none: never */
    int64_t extra;          /* what the growth counter restarts from, and is compared beyond */
    int64_t credit;         /* the growth counter at the start */
    int64_t hyst;           /* overflows to a backoff; or none: never */
    int64_t bad_limit;      /* more overflows in a row than this are an error; or none */
    uint8_t state;          /* T: GS_STATE_ */
    uint8_t grow_op;        /* GS_ARITH_WIDE or GS_ARITH_STATE */
    uint8_t back_op;        /* GS_ARITH_ */
    uint8_t compare;        /* GS_COMPARE_ */
    uint8_t refill;         /* what refills the hysteresis: a mask of GS_REFILL_ */
    uint8_t track_rescale;  /* due by tolerance, not by hyst */
    uint8_t keep_nonfinite; /* a growth that is not finite is dropped */
    uint8_t err;            /* GS_ERR_ */
    uint8_t lag;            /* 1: the scale shown is one step old */
    uint8_t reserved[7];    /* not read */
} gs_params;

enum { GS_PARAM_COUNT = 23 };
GS_API const char *gs_param_key(size_t i); /* in the order of the presets' file; NULL: no more */

GS_API void gs_params_default(gs_params *params);
GS_API gs_status gs_params_preset(gs_params *params, const char *preset, gs_error *error);
GS_API const char *gs_preset_name(size_t i); /* sorted; NULL: no more */

/* list: "key=value key=value ...". Values are decimals, C hex floats, words, `none`, or words
 * joined with `+`. All or nothing; the result is not checked as a whole. */
GS_API gs_status gs_params_set(gs_params *params, const char *list, gs_error *error);

/* That the parameters make sense together. */
GS_API gs_status gs_params_check(const gs_params *params, gs_error *error);

/* The value of a key as text that gs_params_set reads back to the same bits. GS_ENAME: no such
 * key; GS_ESIZE: text[size] is too small. */
GS_API gs_status gs_params_get(char *text, size_t size, const gs_params *params, const char *key,
                               gs_error *error);

/* ---- the scaler ---- */

/* What the raw machine remembers. doc/scaler.md, "The machine". */
typedef struct gs_machine {
    double scale;                  /* S */
    double shown;                  /* the scale of the next step: S, or with lag the one before */
    double interval;               /* params.interval, moved by window_follows */
    double count;                  /* clean steps towards the next growth */
    int64_t clean;                 /* clean steps since the last overflow */
    int64_t bad, run;              /* overflows since the refill; in a row */
    int64_t it, last_rescale, ovf; /* for track_rescale */
    uint8_t ever;                  /* an overflow was seen */
    uint8_t reserved[7];           /* 0 */
} gs_machine;

typedef enum gs_policy {
    GS_POLICY_MACHINE,   /* every preset, static:S and guard */
    GS_POLICY_HEADROOM,  /* the largest power of two that keeps `margin` bits free */
    GS_POLICY_LOGMAX,    /* OpenSeq2Seq's statistics of log2(amax) */
    GS_POLICY_ADAPTIVE,  /* NVCaffe's 4 / amax */
    GS_POLICY_HISTOGRAM, /* Graphcore's count of large values, with a dead band */
    GS_POLICY_NONE,      /* disabled: scale 1, no checks, every step is applied */
    GS_POLICY_COUNT
} gs_policy;

/* Why a step was not applied. */
#define GS_REASONS(X)                                                                     \
    X(FINE, "fine")         /* it was */                                                  \
    X(INF, "inf")           /* an infinity, or a flag that does not tell */               \
    X(NAN, "nan")           /* NaN and no infinity */                                     \
    X(FORWARD, "forward")   /* the loss before scaling was not finite: the scale stays */ \
    X(NO_GRADS, "no_grads") /* nothing was reported */                                    \
    X(USER, "user")         /* gs_step_reject */

typedef enum gs_reason {
#define X(id, name) GS_REASON_##id,
    GS_REASONS(X)
#undef X
        GS_REASON_COUNT,
    GS_REASON_VERSION = 255 /* "version": FAIL; the scaler or the step is none of this version */
} gs_reason;
GS_API const char *gs_reason_name(gs_reason reason);

#define GS_ACTIONS(X)                                                             \
    X(APPLY, "apply") /* run the optimizer with gradients * inverse */            \
    X(SKIP, "skip")   /* leave weights, moments, schedules and EMA as they are */ \
    X(RETRY, "retry") /* as SKIP, then retry the same batch, at verdict.scale */  \
    X(FAIL, "fail")   /* as SKIP; the framework would raise here, or a limit is reached */

typedef enum gs_action {
#define X(id, name) GS_##id,
    GS_ACTIONS(X)
#undef X
        GS_ACTION_COUNT
} gs_action;
GS_API const char *gs_action_name(gs_action action);

typedef enum gs_on_overflow { GS_ON_SKIP, GS_ON_RETRY, GS_ON_ATTRIBUTE } gs_on_overflow;

/* The rules of the step protocol. Keys of gs_scaler_set, besides the 23 of the machine. */
typedef struct gs_rules {
    double lowest, highest; /* bounds of the scale, 2^-24 and 2^40; NaN: off */
    uint32_t stuck;         /* steps in a row not applied that make STUCK, 50 */
    uint32_t fail_after;    /* steps in a row not applied that make FAIL; 0: never */
    uint8_t retries;        /* of on_overflow=retry:N */
    uint8_t on_overflow;    /* gs_on_overflow */
    uint8_t probe;          /* find the scale in the first steps */
    uint8_t half;           /* gs_dtype of the gradients' format: its maximum is what overflows */
    uint8_t reserved[4];    /* 0 */
} gs_rules;

typedef struct gs_counters {
    uint64_t attempted, applied;
    uint64_t skipped[GS_REASON_COUNT]; /* [GS_REASON_FINE] is 0 */
    uint64_t retried;                  /* reruns asked for */
    uint64_t blamed;                   /* of the skipped: the batch was at fault, not the scale */
} gs_counters;

enum { GS_HISTORY_MAX = 16, GS_TUNE_COUNT = 3 };

typedef struct gs_scaler {
    uint32_t size; /* sizeof(gs_scaler), from gs_scaler_init or a load */
    uint8_t policy;
    uint8_t probing; /* where the probe stands; 0: done */
    uint8_t reserved[2];
    gs_params params;
    gs_machine machine;
    gs_rules rules;
    gs_counters counters;
    double tune[GS_TUNE_COUNT];    /* the policy's own parameters, see gs_scaler_set */
    float history[GS_HISTORY_MAX]; /* headroom: amax in true units, newest at seen % history */
    double mean[3];                /* logmax: fast and slow mean, mean square */
    uint32_t seen, zeros;          /* amax values noted; steps in a row with nothing but zeros,
                                      UINT32_MAX: clean steps tell no amax */

    struct { /* the batch that is being retried; all zero: none */
        double scale;
        uint8_t phase, reruns;
        uint8_t reserved[6];
    } event;

    struct {            /* steps in a row that were not applied, and what was seen at every try */
        float from, to; /* the highest and lowest scale tried */
        uint64_t tensor, index; /* the last offender, or GS_NONE */
        uint32_t steps;
        uint8_t reason;
        uint8_t nan_only; /* no Inf at any try */
        uint8_t reserved[2];
    } streak;

    uint64_t later[1]; /* reserved, 0 */
} gs_scaler;

/* spec: a preset; static:S; guard (static:1); headroom; logmax; adaptive; histogram; none.
 * NULL: pytorch. */
GS_API gs_status gs_scaler_init(gs_scaler *scaler, const char *spec, gs_error *error);
GS_API gs_status gs_scaler_init_params(gs_scaler *scaler, const gs_params *params, gs_error *error);

/* Changes parameters and rules: "key=value ...", all or nothing, checked as a whole. Keys:
 *   the 23 of gs_params; init, state and credit only before the first step
 *   on_overflow=skip|retry:N|attribute  probe=yes|no  lowest=S|off  highest=S|off
 *   stuck=N  fail_after=N|none  half=f16|bf16|f32
 *   headroom: margin (bits) history (steps)       logmax: beta1 beta2 sigmas
 *   adaptive: gain                                histogram: threshold band (bits)
 * and init, floor, max for those four. */
GS_API gs_status gs_scaler_set(gs_scaler *scaler, const char *list, gs_error *error);
GS_API gs_status gs_scaler_get(char *text, size_t size, const gs_scaler *scaler, const char *key,
                               gs_error *error);
/* The keys that gs_scaler_get knows of this scaler, its policy's first; NULL: no more. */
GS_API const char *gs_scaler_key(const gs_scaler *scaler, size_t i);

/* The scale of the next step, inside rules.lowest..highest: whatever brought the machine beyond
 * them (init, gs_scaler_set_scale, gs_scaler_resume, a state that was loaded, raw updates), this,
 * step.scale and verdict.scale say the same, and a step moves on from there. "lowest=off
 * highest=off" shows the machine as it is. 1 if the scaler is disabled; NaN if it is none of this
 * version. */
GS_API double gs_scaler_scale(const gs_scaler *scaler);

/* Goes to this scale, or to the bound that is nearest; counters stay, as those of
 * GradScaler.update(new_scale). GS_ERANGE: not finite and > 0 in the type the scale is kept in. */
GS_API gs_status gs_scaler_set_scale(gs_scaler *scaler, double scale, gs_error *error);

/* Goes on from the state of another implementation: its scale, as gs_scaler_set_scale takes it, and
 * its count of clean steps towards the next growth, 0 to 2^53. Of torch's GradScaler.state_dict():
 *
 *     gs_scaler_init(&s, "pytorch", &e);
 *     gs_scaler_set(&s, "growth=<growth_factor> backoff=<backoff_factor> "
 *                       "interval=<growth_interval>", &e);
 *     gs_scaler_resume(&s, <scale>, <_growth_tracker>, &e);
 *
 * Overflows that count towards a backoff, a rerun and a probe are forgotten; counters stay. */
GS_API gs_status gs_scaler_resume(gs_scaler *scaler, double scale, int64_t clean_steps,
                                  gs_error *error);

/* ---- the raw machine ---- */

/* What a policy sees of a step. */
typedef struct gs_finding {
    int found;                            /* an Inf or a NaN */
    double amax;                          /* of the gradients in true units; NaN: not known */
    uint64_t elements, above, above_band; /* histogram: all; over the edge; over edge / 2^band */
} gs_finding;

/* One step of the policy alone: no bounds, no counters. Returns 1 where the framework raises, -1 if
 * the scaler is none of this version. */
GS_API int gs_scaler_update(gs_scaler *scaler, int found);
GS_API int gs_scaler_update_with(gs_scaler *scaler, const gs_finding *finding);

/* ---- the step protocol ---- */

/* Begin; any number of scans (buffers, micro-batches, ranks); decide; end. To give one up, begin
 * another, or call gs_step_abandon after a RETRY. Plain data: send it between ranks and merge. */
enum { GS_STEP_LISTS = 16, GS_STEP_SPANS = 16 };

typedef struct gs_step {
    uint32_t size;  /* sizeof(gs_step), from gs_step_begin */
    uint8_t looked; /* something was reported */
    uint8_t amax_known;
    uint8_t flagged;  /* by gs_step_flag, gs_step_sums or gs_step_exponents */
    uint8_t forward;  /* the loss was not finite */
    uint8_t rejected; /* by gs_step_reject */
    uint8_t unscaled; /* the gradients are in true units: gs_step_unscale, gs_step_scan_unscaled */
    uint8_t dropped;  /* of a window: an overflow was left out of it, and the policy sees it */
    uint8_t ended;
    uint8_t verdict[2]; /* action and reason, once ended */
    uint8_t reserved[2];
    double scale;                         /* multiply the loss by it */
    double inverse;                       /* multiply the gradients by it: 1 / scale */
    gs_stats stats;                       /* of the scaled gradients, merged */
    uint64_t elements, above, above_band; /* see gs_finding; from gs_step_exponents */

    struct { /* what gs_step_unscale was given */
        uint32_t lists, spans;
        uint64_t tensors;                                  /* in all lists */
        uint64_t list[GS_STEP_LISTS];                      /* hashes */
        uint64_t begin[GS_STEP_SPANS], end[GS_STEP_SPANS]; /* addresses: the largest spans */
    } given;

    uint64_t later[5]; /* reserved, 0 */
} gs_step;

typedef struct gs_verdict {
    gs_action action;
    gs_reason reason;
    double scale;  /* of the next run: of the rerun after RETRY, else of the next step */
    double factor; /* of a window: multiply the gradients by it too; else 1 */
} gs_verdict;

GS_API void gs_step_begin(gs_step *step, const gs_scaler *scaler);

/* The loss before scaling. Not finite: FORWARD. */
GS_API void gs_step_loss(gs_step *step, double loss);
/* Statistics of scaled gradients: from gs_tensors_check, _scan or your own. Statistics of zero
 * elements are a report too: a step whose gradients are all empty is applied, as GradScaler does,
 * and the policy learns no amax from it. A step without any report is skipped, NO_GRADS. */
GS_API void gs_step_scan(gs_step *step, const gs_stats *stats);
/* Statistics of gradients that are in true units already, such as gs_tensors_scale(ctx, list, n,
 * step.inverse, &stats) gives (without sumsq); step.stats has them in scaled units. From here on
 * the gradients count as unscaled (step.unscaled). */
GS_API void gs_step_scan_unscaled(gs_step *step, const gs_stats *stats);
/* Plain sums over scaled gradients, from a device or a framework. nonfinite: how many are Inf or
 * NaN, not told apart; amax and sumsq (of squares) that are not finite count as one. */
GS_API void gs_step_sums(gs_step *step, uint64_t elements, uint64_t nonfinite, double amax,
                         double sumsq);
/* What a device reports: only whether there was an Inf or NaN; or the largest |scaled gradient|,
 * itself Inf or NaN if there was one. */
GS_API void gs_step_flag(gs_step *step, int found);
GS_API void gs_step_amax(gs_step *step, double amax);
/* gs_tensors_exponents of the scaled gradients, for `histogram`. */
GS_API void gs_step_exponents(gs_step *step, const gs_scaler *scaler, const gs_exponents *x);
/* The caller has a reason of its own not to apply the step. */
GS_API void gs_step_reject(gs_step *step);
/* What another rank, micro-batch or buffer saw. The scales must be equal, and the gradients of both
 * be unscaled or neither's: `into` is unscaled if `from` is. If `from` is none of this version,
 * `into` is to FAIL. */
GS_API void gs_step_merge(gs_step *into, const gs_step *from);

/* Scans the gradients, then multiplies them by step->inverse into to[n], of f32 or of the same
 * types; NULL: in place. Call it for all gradients, or for each parameter group, device or dtype:
 * the lists add up, and stats.bad_tensor counts through them in the order of the calls.
 *
 *   the same list again    GS_OK, nothing is done: the same data, counts, types and destinations
 *   an overlap             GS_ESTATE, names the tensor: it would be scanned or unscaled twice. Seen
 *                          if it meets one of the GS_STEP_SPANS largest spans of memory that were
 *                          given before, where tensors side by side are one span and each row of a
 *                          strided view is one
 *   too many lists         GS_ESTATE: more than GS_STEP_LISTS different ones
 *   after gs_step_end      GS_ESTATE: these are gradients of another batch, begin its step
 *   a scale too small      GS_ERANGE: 1 / scale is Inf or 0 in f32. If nothing else is reported,
 *   or too large           the step's reason is INF
 *
 * So a buffer serves one list per step. To use it for several, unscale with gs_tensors_scale and
 * report to gs_step_scan_unscaled. A call that fails changes neither the step nor the gradients;
 * its message is in the context. */
GS_API gs_status gs_step_unscale(gs_step *step, gs_context *ctx, const gs_tensor *to,
                                 const gs_tensor *list, size_t n);

/* What will be done: gs_step_end on a copy. A pure function, the same on every rank. */
GS_API gs_verdict gs_step_decide(const gs_step *step, const gs_scaler *scaler);
/* Feeds the scaler and returns the verdict. A second call changes nothing and returns it again. */
GS_API gs_verdict gs_step_end(gs_step *step, gs_scaler *scaler);
/* Forgets a batch that was to be retried. Legal at any time. */
GS_API void gs_step_abandon(gs_step *step, gs_scaler *scaler);

/* Several optimizers and one update, as GradScaler has it: a step each, all begun at the same
 * scale, each with its own gs_step_decide; then this in place of gs_step_end. The scale backs off
 * once if any overflowed, whatever kept another from being applied. GS_ESTATE unless on_overflow
 * is skip. */
GS_API gs_status gs_steps_end(gs_step *steps, size_t n, gs_scaler *scaler, gs_error *error);

/* ---- groups: several scalers, one batch ---- */

typedef enum gs_coupling {
    GS_INDEPENDENT,   /* each for itself */
    GS_SKIP_TOGETHER, /* one overflow skips all; each scale follows its own (apex num_losses) */
    GS_SCALE_TOGETHER /* all see the merged statistics; begin them at one scale */
} gs_coupling;

/* The n steps of n scalers, of which some may be the same scaler: it is then fed in this order. */
GS_API void gs_group_end(gs_verdict *verdicts, gs_step *steps, gs_scaler *const *scalers, size_t n,
                         gs_coupling coupling);

/* ---- windows: gradient accumulation with a frozen scale ---- */

typedef enum gs_window_rule {
    GS_SKIP_WINDOW,     /* one bad micro-batch and the window is skipped */
    GS_DROP_MICROBATCH, /* leave it out and renormalise by the number of good ones */
} gs_window_rule;

typedef struct gs_window {
    gs_step step;        /* the good ones, merged; step.scale holds for the whole window */
    gs_step bad;         /* the dropped ones, merged */
    uint64_t seen, good; /* micro-batches */
    gs_window_rule rule;
} gs_window;

GS_API void gs_window_begin(gs_window *window, const gs_scaler *scaler, gs_window_rule rule);
/* One micro-batch, reported to a step of its own that gs_step_begin made from the same scaler.
 * Returns 1: accumulate its gradients; 0: leave them out. */
GS_API int gs_window_add(gs_window *window, const gs_step *micro);
GS_API void gs_window_merge(gs_window *into, const gs_window *from); /* ranks */
/* verdict.factor is seen / good. With no good one left the window is skipped. */
GS_API gs_verdict gs_window_end(gs_window *window, gs_scaler *scaler);

/* ---- health ---- */

#define GS_HEALTHS(X)                                                \
    X(CALIBRATING, "CALIBRATING") /* no step has been applied yet */ \
    X(HEALTHY, "HEALTHY")                                            \
    X(AT_FLOOR, "AT_FLOOR")                                          \
    X(AT_CEILING, "AT_CEILING")                                      \
    X(STUCK, "STUCK") /* rules.stuck steps in a row were not applied */

typedef enum gs_health {
#define X(id, name) GS_##id,
    GS_HEALTHS(X)
#undef X
        GS_HEALTH_COUNT
} gs_health;
GS_API const char *gs_health_name(gs_health health);
/* GS_HEALTH_COUNT: the scaler is none of this version. */
GS_API gs_health gs_scaler_health(const gs_scaler *scaler);

/* What a user needs to be told, without a full stop; always ended by 0. list[n] are the tensors
 * that were scanned, for their names; NULL: their numbers are said. Returns text. */
GS_API char *gs_scaler_explain(char *text, size_t size, const gs_scaler *scaler,
                               const gs_tensor *list, size_t n);

/* ---- state ---- */

/* The whole of it: save, load, continue is bit for bit never having stopped, in the middle of a
 * retry too. States of 0.1 load. *used is the length, for text without its final 0. */
enum { GS_STATE_TEXT_MAX = 4096, GS_STATE_BINARY_MAX = 1024 };
GS_API gs_status gs_scaler_save_text(char *text, size_t size, size_t *used, const gs_scaler *scaler,
                                     gs_error *error);
GS_API gs_status gs_scaler_save(void *bytes, size_t size, size_t *used, const gs_scaler *scaler,
                                gs_error *error);
/* scaler is untouched unless GS_OK is returned. */
GS_API gs_status gs_scaler_load_text(gs_scaler *scaler, const char *text, size_t length,
                                     gs_error *error);
GS_API gs_status gs_scaler_load(gs_scaler *scaler, const void *bytes, size_t length,
                                gs_error *error);

#ifdef __cplusplus
}
#endif

#endif
