/* What is reported to a step: statistics, flags, amax, what another rank saw.
 *
 *  (1) step.stats is in scaled units, whatever the units of the report.
 *  (2) A report only adds: merging in any order gives the same bits, but for sumsq.
 *  (3) A step that is none of this version stays as it is; size 0 makes its verdict FAIL. */
#include "scaler/scaler.h"

#include <string.h>

#define F32_MAX  0x1.fffffep+127
#define F32_ZERO 0x1p-150 /* rounds to 0, and so would all gradients */

double gsi_next_scale(const gs_scaler *s)
{
    return s->event.phase ? gsi_bounded(s, s->event.scale) : gs_scaler_scale(s);
}

static void step_begin_in_mode(gs_step *step, const gs_scaler *scaler)
{
    const bool made = gsi_scaler_made(scaler);
    memset(step, 0, sizeof *step);
    step->size = made ? (uint32_t)sizeof *step : 0;
    step->scale = made ? gsi_next_scale(scaler) : (double)NAN;
    step->inverse = 1 / step->scale;
    gs_stats_init(&step->stats);
}

void gs_step_begin(gs_step *step, const gs_scaler *scaler)
{
    GSI_IN_MODE(step_begin_in_mode(step, scaler));
}

bool gsi_inverse_fits_f32(const gs_step *step) { return step->inverse <= F32_MAX; }

bool gsi_can_unscale(const gs_step *step)
{
    return gsi_inverse_fits_f32(step) && step->inverse > F32_ZERO;
}

void gs_step_loss(gs_step *step, double loss)
{
    if (gsi_step_made(step) && !isfinite(loss))
        step->forward = 1;
}

static void step_scan_in_mode(gs_step *step, const gs_stats *stats)
{
    if (!gsi_step_made(step))
        return;
    gs_stats_merge(&step->stats, stats);
    step->looked = 1;
    step->amax_known |= stats->elements > 0;
}

void gs_step_scan(gs_step *step, const gs_stats *stats)
{
    GSI_IN_MODE(step_scan_in_mode(step, stats));
}

/* The largest finite magnitude as the f32 of gs_stats: a finite f64 beyond it is no infinity. */
static float finite_f32(double x) { return fabs(x) < F32_MAX ? (float)fabs(x) : (float)F32_MAX; }

static void step_scan_unscaled_in_mode(gs_step *step, const gs_stats *stats)
{
    if (!gsi_step_made(step))
        return;
    gs_stats scaled = *stats;
    scaled.amax = finite_f32((double)stats->amax * step->scale);
    scaled.sumsq = stats->sumsq * step->scale * step->scale;
    gs_step_scan(step, &scaled);
    step->unscaled = 1;
}

void gs_step_scan_unscaled(gs_step *step, const gs_stats *stats)
{
    GSI_IN_MODE(step_scan_unscaled_in_mode(step, stats));
}

static void step_sums_in_mode(gs_step *step, uint64_t elements, uint64_t nonfinite, double amax,
                              double sumsq)
{
    GSI_AFTER_MODE(amax);
    GSI_AFTER_MODE(sumsq);
    const bool found = nonfinite > 0 || !isfinite(amax) || !isfinite(sumsq);
    gs_stats stats;
    gs_stats_init(&stats);
    stats.elements = elements;
    stats.amax = isfinite(amax) ? finite_f32(amax) : 0;
    stats.sumsq = found ? (double)INFINITY : sumsq;
    gs_step_scan(step, &stats);
    gs_step_flag(step, found);
}

void gs_step_sums(gs_step *step, uint64_t elements, uint64_t nonfinite, double amax, double sumsq)
{
    GSI_IN_MODE(step_sums_in_mode(step, elements, nonfinite, amax, sumsq));
}

void gs_step_flag(gs_step *step, int found)
{
    if (!gsi_step_made(step))
        return;
    step->looked = 1;
    step->flagged |= found != 0;
}

static void step_amax_in_mode(gs_step *step, double amax)
{
    GSI_AFTER_MODE(amax);
    gs_stats stats;
    gs_stats_init(&stats);
    stats.elements = 1;
    if (isnan(amax))
        stats.nan = 1;
    else if (isinf(amax))
        stats.inf = 1;
    else
        stats.amax = finite_f32(amax);
    gs_step_scan(step, &stats);
}

void gs_step_amax(gs_step *step, double amax) { GSI_IN_MODE(step_amax_in_mode(step, amax)); }

/* The edge is an eighth of 2^16: the binades from there hold |g| >= 2^13, where Graphcore's edge is
 * 65504 / 8. Gradients of exactly 8188..8191 are the difference. */
static void step_exponents_in_mode(gs_step *step, const gs_scaler *scaler, const gs_exponents *x)
{
    if (!gsi_step_made(step))
        return;
    if (!gsi_scaler_made(scaler)) {
        step->size = 0;
        return;
    }
    int top;
    frexp(gsi_half_max(scaler) / 8, &top); /* max / 8 < 2^top */
    const int edge = GS_BINADE_OF_ONE + top;
    const int band = edge - (int)scaler->tune[HISTOGRAM_BAND];
    step->elements += x->zero;
    for (int i = 0; i < GS_BINADES; i++) {
        step->elements += x->all[i];
        step->above += i >= edge ? x->all[i] : 0;
        step->above_band += i >= band ? x->all[i] : 0;
    }
    step->looked = 1;
    step->flagged |= x->inf > 0 || x->nan > 0;
}

void gs_step_exponents(gs_step *step, const gs_scaler *scaler, const gs_exponents *x)
{
    GSI_IN_MODE(step_exponents_in_mode(step, scaler, x));
}

void gs_step_reject(gs_step *step)
{
    if (gsi_step_made(step))
        step->rejected = 1;
}

static void step_merge_in_mode(gs_step *into, const gs_step *from)
{
    if (!gsi_step_made(into))
        return;
    if (!gsi_step_made(from)) { /* what it saw is not known: to be applied by nobody */
        into->size = 0;
        return;
    }
    gs_stats_merge(&into->stats, &from->stats);
    into->elements += from->elements;
    into->above += from->above;
    into->above_band += from->above_band;
    into->looked |= from->looked;
    into->amax_known |= from->amax_known;
    into->flagged |= from->flagged;
    into->forward |= from->forward;
    into->rejected |= from->rejected;
    into->unscaled |= from->unscaled;
}

void gs_step_merge(gs_step *into, const gs_step *from)
{
    GSI_IN_MODE(step_merge_in_mode(into, from));
}
