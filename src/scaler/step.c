/* The step protocol: from statistics to a verdict.
 *
 *  (1) A step's scale is finite, > 0 and inside [lowest, highest], unless those are off.
 *  (2) APPLY iff everything merged into the step was finite, and is so after unscaling.
 *  (3) gs_step_decide is gs_step_end on a copy of the scaler: they cannot disagree.
 *  (4) The scaler changes in `settle` and nowhere else, and only from merged statistics: ranks that
 *      merge the same hold the same state.
 *  (5) FORWARD, NO_GRADS, USER and a batch that is to blame do not reach the policy: neither the
 *      scale nor any counter of its changes.
 *  (6) A batch is retried at most rules.retries or, with attribute, three times.
 *
 *   FIRST --- finite ---------------------------------------------> APPLY, policy sees it
 *     | non-finite
 *     +-- skip --------------------------------------------------> SKIP,  policy sees it
 *     +-- retry:N --> AGAIN, policy sees it --- finite ----------> APPLY, policy sees it
 *     |                 |  ^  non-finite, lower, while N lasts
 *     |                 +--+----------------------------- else --> SKIP
 *     +-- attribute -> HALVED --- finite ------------------------> APPLY, back off once
 *                       | non-finite
 *                       v
 *                     LOWEST --- non-finite ---------------------> SKIP, the batch is to blame
 *                       | finite: its amax gives the scale
 *                       v
 *                     FITTED --- finite -------------------------> APPLY
 *                       +------- non-finite ---------------------> SKIP, policy sees it
 */
#include "scaler/scaler.h"

/* ---- what it means ---- */

/* Finite gradients that overflow f32 when unscaled: the scale is too small, or they are too large
 * for any. */
static bool overflows_unscaled(const gs_step *step)
{
    return !gsi_inverse_fits_f32(step) ||
           !((double)step->stats.amax * step->inverse <= 0x1.fffffep+127);
}

static gs_reason reason_of(const gs_step *step)
{
    if (step->rejected)
        return GS_REASON_USER;
    if (step->forward)
        return GS_REASON_FORWARD;
    if (!step->looked) /* perhaps because nothing could be unscaled */
        return gsi_can_unscale(step) ? GS_REASON_NO_GRADS : GS_REASON_INF;
    if (step->stats.inf || (step->flagged && !step->stats.nan) || overflows_unscaled(step))
        return GS_REASON_INF;
    return step->stats.nan ? GS_REASON_NAN : GS_REASON_FINE;
}

static gs_finding finding_of(const gs_step *step, bool found)
{
    return (gs_finding){
        .found = found,
        .amax = step->amax_known && !found ? (double)step->stats.amax * step->inverse : (double)NAN,
        .elements = step->elements,
        .above = step->above,
        .above_band = step->above_band};
}

static void hold_in_bounds(gs_scaler *s)
{
    s->machine.scale = gsi_bounded(s, s->machine.scale);
    s->machine.shown = gsi_bounded(s, s->machine.shown);
}

/* Lets the policy see the step. It moves on from the scale that the step had, wherever an init or
 * raw updates left the machine. Returns true where the framework raises. */
static bool feed(gs_scaler *s, const gs_step *step, bool found)
{
    const gs_finding finding = finding_of(step, found);
    hold_in_bounds(s);
    const bool raises = gs_scaler_update_with(s, &finding);
    hold_in_bounds(s);
    return raises;
}

/* To a scale that is known better than by counting steps. A constant one stays. */
static void jump(gs_scaler *s, double scale)
{
    if (gsi_is_static(s))
        return;
    gsi_go_to(s, scale);
    hold_in_bounds(s);
}

/* The largest power of two that leaves a factor of two between the step's amax and the maximum.
 * What the format rounded away at this scale, half of its smallest number, is added: with it the
 * result is safe even if all gradients underflowed to zero. */
static double fitting_scale(const gs_scaler *s, const gs_step *step)
{
    const gs_format *f = gs_dtype_format((gs_dtype)s->rules.half);
    const double amax = ((double)step->stats.amax + f->min_subnormal / 2) * step->inverse;
    return gsi_bounded(s, gsi_power_of_two_below(fmin(f->max / 2 / amax, 0x1p+1000)));
}

/* The scale below which there is no use in trying: attribution needs one even if all are off. */
static double bottom(const gs_scaler *s)
{
    const double lowest = gsi_lowest(s);
    return lowest > 0 ? lowest : 0x1p-24;
}

/* ---- verdicts ---- */

static void clear_event(gs_scaler *s)
{
    s->event.phase = GSI_FIRST;
    s->event.reruns = 0;
    s->event.scale = 0;
}

static gs_verdict verdict(const gs_scaler *s, gs_action action, gs_reason reason)
{
    return (gs_verdict){action, reason, gsi_next_scale(s), 1};
}

static gs_verdict apply(gs_scaler *s)
{
    clear_event(s);
    s->counters.applied++;
    s->streak.steps = 0;
    s->streak.tensor = s->streak.index = GS_NONE;
    s->streak.reason = GS_REASON_FINE;
    s->streak.from = s->streak.to = 0;
    s->streak.nan_only = 0;
    return verdict(s, GS_APPLY, GS_REASON_FINE);
}

/* Notes what was seen at this try, for gs_scaler_explain. */
static void note(gs_scaler *s, const gs_step *step, gs_reason reason)
{
    const bool first = s->streak.from == 0;
    const float scale = (float)step->scale;
    s->streak.from = first || scale > s->streak.from ? scale : s->streak.from;
    s->streak.to = first || scale < s->streak.to ? scale : s->streak.to;
    s->streak.nan_only = (first || s->streak.nan_only) && reason == GS_REASON_NAN;
    s->streak.reason = (uint8_t)reason;
    if (step->stats.bad_index != GS_NONE) {
        s->streak.tensor = step->stats.bad_tensor;
        s->streak.index = step->stats.bad_index;
    }
}

static gs_verdict skip(gs_scaler *s, gs_reason reason, bool raises)
{
    clear_event(s);
    s->counters.skipped[reason]++;
    s->streak.steps += s->streak.steps < UINT32_MAX;
    const bool fails = raises || (s->rules.fail_after && s->streak.steps >= s->rules.fail_after);
    return verdict(s, fails ? GS_FAIL : GS_SKIP, reason);
}

static gs_verdict blame(gs_scaler *s, gs_reason reason)
{
    s->counters.blamed++;
    return skip(s, reason, false);
}

static gs_verdict rerun(gs_scaler *s, gs_reason reason, gsi_phase phase, double scale)
{
    s->event.phase = (uint8_t)phase;
    s->event.scale = scale;
    s->event.reruns++;
    s->counters.retried++;
    return verdict(s, GS_RETRY, reason);
}

/* ---- the probe ---- */

/* An amax among the format's last bits gives a safe scale, and the next step a good one; if that
 * overflows, this step was not like the others, and the search begins again at the bottom. With
 * only a flag, climb until it overflows, at the price of one skipped step. */
static void probe_clean(gs_scaler *s, const gs_step *step)
{
    const double exact = 64 * gs_dtype_format((gs_dtype)s->rules.half)->min_subnormal;
    const bool first = step->amax_known && s->probing == GSI_PENDING;
    jump(s, step->amax_known ? fitting_scale(s, step) : 2 * step->scale);
    const bool more =
        gs_scaler_scale(s) > step->scale || (first && step->stats.amax == 0); /* all zero */
    const bool tiny = (double)step->stats.amax < exact;
    s->probing = !(more && tiny) ? GSI_PROBED : first ? GSI_PENDING : GSI_CLIMB;
}

static void probe_overflow(gs_scaler *s, const gs_step *step)
{
    if (s->probing == GSI_CLIMB) {
        jump(s, step->scale / 2);
        s->probing = GSI_PROBED;
    } else { /* an overflow at the bottom is the batch's, and tells nothing */
        jump(s, bottom(s));
        s->probing = GSI_FALLEN;
    }
}

/* ---- a finite step ---- */

static gs_verdict clean(gs_scaler *s, const gs_step *step)
{
    const double start = gs_scaler_scale(s); /* attribution has fed nothing yet */
    switch (s->event.phase) {
    case GSI_HALVED: /* cured: the scale was too high, hysteresis or not */
        s->probing = GSI_PROBED;
        feed(s, step, s->policy == GS_POLICY_MACHINE || !step->amax_known);
        if (gs_scaler_scale(s) >= start)
            jump(s, step->scale);
        return apply(s);
    case GSI_LOWEST: {
        const double middle = sqrt(bottom(s)) * sqrt(start / 2); /* no amax: halve the exponents */
        const double fits = step->amax_known ? fitting_scale(s, step) : middle;
        const double scale = fmin(gsi_power_of_two_below(fits), start / 4);
        jump(s, scale);
        return rerun(s, GS_REASON_INF, GSI_FITTED, gsi_bounded(s, scale));
    }
    case GSI_FITTED:
        s->probing = GSI_PROBED;
        if (s->policy != GS_POLICY_MACHINE)
            feed(s, step, false);
        return apply(s);
    default:
        if (s->probing)
            step->dropped ? probe_overflow(s, step) : probe_clean(s, step);
        else
            feed(s, step, step->dropped);
        return apply(s);
    }
}

/* ---- an overflow ---- */

static gs_verdict attribute(gs_scaler *s, const gs_step *step, gs_reason reason)
{
    const double lowest = bottom(s);
    switch (s->event.phase) {
    case GSI_FIRST:
        if (step->scale <= lowest)
            return blame(s, reason);
        return rerun(s, reason, GSI_HALVED, fmax(step->scale / 2, lowest));
    case GSI_HALVED:
        return step->scale <= lowest ? blame(s, reason) : rerun(s, reason, GSI_LOWEST, lowest);
    case GSI_LOWEST:
        return blame(s, reason);
    default:
        return skip(s, reason, feed(s, step, true));
    }
}

/* The policy backs off; where hysteresis or a constant scale keeps it from that, the rerun alone
 * has half the scale, since at the same one it would overflow again. */
static gs_verdict retry(gs_scaler *s, const gs_step *step, gs_reason reason)
{
    const double lowest = bottom(s), half = fmax(step->scale / 2, lowest);
    bool raises = false;
    if (s->probing)
        probe_overflow(s, step);
    else
        raises = feed(s, step, true);
    const double next = gs_scaler_scale(s);
    if (raises || s->event.reruns >= s->rules.retries || step->scale <= lowest)
        return skip(s, reason, raises);
    return rerun(s, reason, GSI_AGAIN, next < step->scale ? next : half);
}

static gs_verdict overflow(gs_scaler *s, const gs_step *step, gs_reason reason)
{
    if (overflows_unscaled(step)) /* a lower scale would make it worse */
        return blame(s, reason);
    if (s->rules.on_overflow == GS_ON_ATTRIBUTE)
        return attribute(s, step, reason);
    if (s->rules.on_overflow == GS_ON_RETRY)
        return retry(s, step, reason);
    if (s->probing) {
        probe_overflow(s, step);
        return skip(s, reason, false);
    }
    return skip(s, reason, feed(s, step, true));
}

/* ---- deciding ---- */

static gs_verdict settle(gs_scaler *s, const gs_step *step)
{
    const gs_reason reason = reason_of(step);
    s->counters.attempted += s->event.phase == GSI_FIRST;
    if (s->policy == GS_POLICY_NONE || reason == GS_REASON_FINE)
        return clean(s, step);
    note(s, step, reason);
    if (reason == GS_REASON_INF || reason == GS_REASON_NAN)
        return overflow(s, step, reason);
    return skip(s, reason, false);
}

static const gs_verdict of_no_version = {GS_FAIL, GS_REASON_VERSION, (double)NAN, 1};

static gs_verdict step_decide_in_mode(const gs_step *step, const gs_scaler *scaler)
{
    if (!gsi_step_made(step) || !gsi_scaler_made(scaler))
        return of_no_version;
    gs_scaler copy = *scaler;
    return settle(&copy, step);
}

gs_verdict gs_step_decide(const gs_step *step, const gs_scaler *scaler)
{
    GSI_RETURN_IN_MODE(gs_verdict, step_decide_in_mode(step, scaler));
}

static gs_verdict step_end_in_mode(gs_step *step, gs_scaler *scaler)
{
    if (!gsi_step_made(step) || !gsi_scaler_made(scaler))
        return of_no_version;
    if (step->ended)
        return verdict(scaler, (gs_action)step->verdict[0], (gs_reason)step->verdict[1]);
    const gs_verdict v = settle(scaler, step);
    step->ended = 1;
    step->verdict[0] = (uint8_t)v.action;
    step->verdict[1] = (uint8_t)v.reason;
    return v;
}

gs_verdict gs_step_end(gs_step *step, gs_scaler *scaler)
{
    GSI_RETURN_IN_MODE(gs_verdict, step_end_in_mode(step, scaler));
}

void gs_step_abandon(gs_step *step, gs_scaler *scaler)
{
    if (!gsi_step_made(step) || !gsi_scaler_made(scaler))
        return;
    clear_event(scaler);
    step->ended = 1;
    step->verdict[0] = GS_SKIP;
    step->verdict[1] = GS_REASON_USER;
}

static gs_status steps_end_in_mode(gs_step *steps, size_t n, gs_scaler *scaler, gs_error *error)
{
    gs_status status = gsi_scaler_version(scaler, error);
    for (size_t i = 0; i < n && status == GS_OK; i++)
        status = gsi_step_version(&steps[i], error);
    if (status != GS_OK)
        return status;
    if (scaler->rules.on_overflow != GS_ON_SKIP)
        return gsi_fail(error, GS_ESTATE,
                        "several steps can be ended together only with on_overflow=skip: a batch "
                        "that is retried would be applied twice by some");
    /* A step that does not reach the policy must not keep the others from it. */
    gs_step seen, unseen;
    size_t seen_count = 0, unseen_count = 0;
    gs_step_begin(&seen, scaler);
    gs_step_begin(&unseen, scaler);
    for (size_t i = 0; i < n; i++) {
        if (steps[i].ended)
            continue;
        const gs_verdict v = gs_step_decide(&steps[i], scaler);
        const bool reaches = v.reason <= GS_REASON_NAN; /* FINE, INF, NAN */
        gs_step_merge(reaches ? &seen : &unseen, &steps[i]);
        seen_count += reaches;
        unseen_count += !reaches;
        steps[i].ended = 1;
        steps[i].verdict[0] = (uint8_t)v.action;
        steps[i].verdict[1] = (uint8_t)v.reason;
    }
    if (seen_count + unseen_count > 0)
        gs_step_end(seen_count > 0 ? &seen : &unseen, scaler);
    return GS_OK;
}

gs_status gs_steps_end(gs_step *steps, size_t n, gs_scaler *scaler, gs_error *error)
{
    GSI_RETURN_IN_MODE(gs_status, steps_end_in_mode(steps, n, scaler, error));
}

/* ---- names ---- */

const char *gs_reason_name(gs_reason reason)
{
    static const char *const names[] = {
#define X(id, name) name,
        GS_REASONS(X)
#undef X
    };
    return (unsigned)reason < GS_REASON_COUNT ? names[reason]
           : reason == GS_REASON_VERSION      ? "version"
                                              : "unknown";
}

const char *gs_action_name(gs_action action)
{
    static const char *const names[] = {
#define X(id, name) name,
        GS_ACTIONS(X)
#undef X
    };
    return (unsigned)action < GS_ACTION_COUNT ? names[action] : "unknown";
}
