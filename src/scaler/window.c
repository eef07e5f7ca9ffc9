/* Gradient accumulation: the scale is frozen from the first micro-batch to the last.
 *
 *  (1) seen counts micro-batches, good those whose gradients are in the sum.
 *  (2) Under GS_DROP_MICROBATCH a bad one is left out and the mean is over the good ones: with a
 *      loss divided by the planned number, seen / good makes up for it. The policy still sees the
 *      overflow, for the scale was too high for that micro-batch.
 *  (3) What ranks merge is counts and flags: ranks with unequal numbers of micro-batches reach the
 *      same verdict and the same factor. */
#include "scaler/scaler.h"

void gs_window_begin(gs_window *window, const gs_scaler *scaler, gs_window_rule rule)
{
    gs_step_begin(&window->step, scaler);
    window->bad = window->step;
    window->seen = window->good = 0;
    window->rule = rule;
}

static bool is_bad(const gs_step *micro)
{
    return micro->forward || micro->rejected || micro->flagged || !gs_stats_finite(&micro->stats);
}

int gs_window_add(gs_window *window, const gs_step *micro)
{
    if (!gsi_step_made(&window->step))
        return 0;
    if (!gsi_step_made(micro)) { /* dropped or not: what it saw is not known */
        window->step.size = 0;
        return 0;
    }
    const bool drop = window->rule == GS_DROP_MICROBATCH && is_bad(micro);
    gs_step_merge(drop ? &window->bad : &window->step, micro);
    window->seen++;
    window->good += !drop;
    return !drop;
}

void gs_window_merge(gs_window *into, const gs_window *from)
{
    gs_step_merge(&into->step, &from->step);
    if (!gsi_step_made(&into->step))
        return;
    gs_step_merge(&into->bad, &from->bad);
    into->seen += from->seen;
    into->good += from->good;
}

static gs_verdict window_end_in_mode(gs_window *window, gs_scaler *scaler)
{
    gs_step *step = &window->step;
    if (!gsi_step_made(step))
        return gs_step_end(step, scaler);
    if (!step->ended && window->good == 0) /* nothing else is left to decide by */
        gs_step_merge(step, &window->bad);
    step->dropped = window->bad.flagged || !gs_stats_finite(&window->bad.stats);
    gs_verdict v = gs_step_end(step, scaler);
    if (v.action == GS_APPLY && window->good > 0)
        v.factor = (double)window->seen / (double)window->good;
    return v;
}

gs_verdict gs_window_end(gs_window *window, gs_scaler *scaler)
{
    GSI_RETURN_IN_MODE(gs_verdict, window_end_in_mode(window, scaler));
}
