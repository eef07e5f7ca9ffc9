/* What the files of the scaler share. */
#ifndef GSI_SCALER_H
#define GSI_SCALER_H

#include "base/base.h"
#include "gradscale/scaler.h"
#include "kernel/fpenv.h"

#include <math.h>

/* ---- the mode of floating-point arithmetic ---- */

/* What a public call computes, it computes in the default mode, whatever the caller's: its body is
 * NAME_in_mode. Setting a mode that is set already would cost more than most
 * of the calls. (No cleanup attribute: a C++ compiler would want its runtime for that.) */
typedef struct gsi_mode {
    uint64_t saved;
    bool foreign;
} gsi_mode;

static inline gsi_mode gsi_mode_enter(void)
{
    gsi_mode mode = {0, !gsi_fpenv_usual()};
    if (mode.foreign)
        mode.saved = gsi_fpenv_enter();
    return mode;
}

static inline void gsi_mode_leave(gsi_mode mode)
{
    if (mode.foreign)
        gsi_fpenv_leave(mode.saved);
}

#define GSI_IN_MODE(call)                          \
    do {                                           \
        const gsi_mode entered = gsi_mode_enter(); \
        call;                                      \
        gsi_mode_leave(entered);                   \
    } while (0)
#define GSI_RETURN_IN_MODE(type, call) \
    do {                               \
        type result;                   \
        GSI_IN_MODE(result = call);    \
        return result;                 \
    } while (0)
/* An argument that came in a register is not to be computed with before the mode is set. */
#define GSI_AFTER_MODE(x) __asm__ volatile("" : "+m"(x))

/* ---- layout.c ---- */

/* Whether it was made by this version; if not, nothing else of it may be read. */
bool gsi_scaler_made(const gs_scaler *s);
bool gsi_step_made(const gs_step *step);
gs_status gsi_scaler_version(const gs_scaler *s, gs_error *error); /* GS_OK or GS_EVERSION */
gs_status gsi_step_version(const gs_step *step, gs_error *error);

/* ---- machine.c ---- */

double gsi_round_state(const gs_params *p, double x); /* to nearest even in T */
double gsi_interval(const gs_params *p);              /* infinite if there is none */
void gsi_machine_init(gs_machine *m, const gs_params *p);

/* Counters of a machine stand still there, where no run gets: what is saved can be loaded. */
#define GSI_COUNT_MOST ((int64_t)1 << 62)
static inline int64_t gsi_one_more(int64_t n) { return n + (n < GSI_COUNT_MOST); }
/* Returns true where the framework raises. */
bool gsi_machine_step(gs_machine *m, const gs_params *p, bool found);

/* ---- params.c ---- */

enum { GSI_WORD = 48 }; /* the longest key or value, with its 0 */

/* Cuts the next "key=value" off *list. False at the end of the list; an item without '=' or with a
 * word too long has key[0] == 0 and is in value, cut to fit. */
bool gsi_next_pair(const char **list, char key[GSI_WORD], char value[GSI_WORD]);

/* GS_ENAME without an error message: not a key of the machine. */
gs_status gsi_params_set_one(gs_params *p, const char *key, const char *value, gs_error *error);

/* Text and numbers that do not depend on the locale. */
bool gsi_read_double(double *out, const char *text);   /* decimal, hex, inf, nan; the whole text */
bool gsi_read_count(int64_t *out, const char *text);   /* 0..2^53, or a hex float that is one */
char *gsi_write_double(char text[GSI_WORD], double x); /* as printf's %a in the C locale */

/* ---- policy.c and its files: one row of the table each ---- */

typedef struct gsi_policy {
    const char *name;
    const char *keys[GS_TUNE_COUNT]; /* names of scaler.tune[i], NULL: no more */
    struct {
        double value, min, max;
        bool whole;
    } tune[GS_TUNE_COUNT];
    double init, floor, max; /* defaults of those three parameters */
    void (*init_memory)(gs_scaler *s);
    bool (*step)(gs_scaler *s, const gs_finding *finding); /* true: the framework raises */
} gsi_policy;

extern const gsi_policy gsi_policies[GS_POLICY_COUNT];
extern const gs_dtype gsi_state_types[]; /* by params.state */

void gsi_headroom_init(gs_scaler *s);
bool gsi_headroom_step(gs_scaler *s, const gs_finding *f);
void gsi_logmax_init(gs_scaler *s);
bool gsi_logmax_step(gs_scaler *s, const gs_finding *f);
bool gsi_adaptive_step(gs_scaler *s, const gs_finding *f);
bool gsi_histogram_step(gs_scaler *s, const gs_finding *f);

/* A policy that reads statistics goes to x, inside [floor, max]. */
void gsi_go_to(gs_scaler *s, double x);
double gsi_half_max(const gs_scaler *s); /* the largest finite gradient */
double gsi_power_of_two_below(double x); /* the largest one <= x; x finite and > 0 */
bool gsi_is_static(const gs_scaler *s);  /* no overflow and no growth moves it */
double gsi_lowest(const gs_scaler *s);   /* the floor that is reached first */
double gsi_highest(const gs_scaler *s);  /* the ceiling that is reached first */
gs_status gsi_scaler_check(const gs_scaler *s, gs_error *error);
double gsi_bounded(const gs_scaler *s, double x);
void gsi_restart(gs_scaler *s); /* to before the first step */

/* ---- report.c ---- */

double gsi_next_scale(const gs_scaler *s);      /* of the rerun, or of the next batch */
bool gsi_inverse_fits_f32(const gs_step *step); /* else the scale is too small to be undone */
bool gsi_can_unscale(const gs_step *step);      /* it is not too large either */

/* ---- step.c ---- */

/* Where a batch that is retried stands: scaler.event.phase. */
typedef enum gsi_phase {
    GSI_FIRST,  /* not retried */
    GSI_AGAIN,  /* retry: at a lower scale */
    GSI_HALVED, /* attribute: at half the scale */
    GSI_LOWEST, /* attribute: at the floor */
    GSI_FITTED, /* attribute: at the scale that fits the amax found there */
    GSI_PHASES
} gsi_phase;

/* Where the probe stands: scaler.probing. */
typedef enum gsi_probe {
    GSI_PROBED,  /* done, or never asked for */
    GSI_PENDING, /* no step yet */
    GSI_FALLEN,  /* the first scale overflowed: at the floor */
    GSI_CLIMB,   /* clean, but too low to know how much too low */
    GSI_PROBES
} gsi_probe;

enum { HISTOGRAM_THRESHOLD, HISTOGRAM_BAND };

#endif
