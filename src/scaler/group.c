/* Several scalers over one batch.
 *
 *  (1) A group that holds together does one thing with the batch: the gravest of what its scalers
 *      want, FAIL > SKIP > RETRY > APPLY. A batch that one has given up is not retried.
 *  (2) A scaler with no fault of its own waits while others have the batch retried: it keeps its
 *      scale and its phase, and its policy is fed after the last run.
 *  (3) A scaler that stands for several losses is fed once for each; with reruns, once for all. */
#include "scaler/scaler.h"

static int gravity(gs_action action)
{
    static const int of[] = {[GS_APPLY] = 0, [GS_SKIP] = 2, [GS_RETRY] = 1, [GS_FAIL] = 3};
    return of[action];
}

static void conclude(gs_step *step, gs_action action, gs_reason reason)
{
    step->ended = 1;
    step->verdict[0] = (uint8_t)action;
    step->verdict[1] = (uint8_t)reason;
}

/* A clean step is seen by its policy as one, but was not applied. A rerun that is wanted for
 * attribution is dropped: the cause stays unknown, and nothing is fed. */
static void give_up(gs_step *step, gs_scaler *s, gs_action own, gs_reason reason)
{
    const uint32_t streak = s->streak.steps;
    if (own == GS_RETRY && s->rules.on_overflow == GS_ON_ATTRIBUTE)
        s->counters.attempted += s->event.phase == GSI_FIRST;
    else if (gs_step_end(step, s).action == GS_APPLY)
        s->counters.applied--;
    else
        s->counters.retried--;
    gs_step_abandon(step, s);
    s->counters.skipped[reason]++;
    s->streak.steps = streak + (streak < UINT32_MAX);
}

/* The first step that is open, and with reruns all others of its scaler. */
static void end_one(gs_step *steps, gs_scaler *const *scalers, size_t n, gs_verdict group)
{
    gs_scaler *s = scalers[0];
    const size_t last = s->rules.on_overflow == GS_ON_SKIP ? 1 : n;
    gs_step all = steps[0];
    for (size_t i = 1; i < last; i++)
        if (scalers[i] == s)
            gs_step_merge(&all, &steps[i]);

    gs_verdict v = gs_step_decide(&all, s);
    if (v.action == group.action || gravity(v.action) >= gravity(GS_SKIP)) {
        v = gs_step_end(&all, s);
    } else {
        if (group.action != GS_RETRY)
            give_up(&all, s, v.action, group.reason);
        v = group;
    }
    for (size_t i = 0; i < last; i++)
        if (scalers[i] == s)
            conclude(&steps[i], v.action, v.reason);
}

static void end_together(gs_step *steps, gs_scaler *const *scalers, size_t n)
{
    gs_verdict group = {GS_APPLY, GS_REASON_FINE, 0, 1};
    for (size_t i = 0; i < n; i++) {
        const gs_verdict v = gs_step_decide(&steps[i], scalers[i]);
        if (gravity(v.action) > gravity(group.action))
            group = v;
    }
    for (size_t i = 0; i < n; i++)
        if (group.action == GS_APPLY)
            gs_step_end(&steps[i], scalers[i]);
        else if (!steps[i].ended)
            end_one(steps + i, scalers + i, n - i, group);
}

static void group_end_in_mode(gs_verdict *verdicts, gs_step *steps, gs_scaler *const *scalers,
                              size_t n, gs_coupling coupling)
{
    bool made = true; /* apart, gs_step_end sees to it */
    for (size_t i = 0; coupling != GS_INDEPENDENT && i < n; i++)
        made &= gsi_step_made(&steps[i]) && gsi_scaler_made(scalers[i]);
    for (size_t i = 0; !made && i < n; i++) /* together they do one thing, and that is FAIL */
        verdicts[i] = (gs_verdict){GS_FAIL, GS_REASON_VERSION, (double)NAN, 1};
    if (!made)
        return;
    if (coupling == GS_SCALE_TOGETHER && n > 0) {
        gs_step all = steps[0];
        for (size_t i = 1; i < n; i++)
            gs_step_merge(&all, &steps[i]);
        for (size_t i = 0; i < n; i++) { /* what was seen is of all, what was done of each */
            const gs_step own = steps[i];
            steps[i] = all;
            steps[i].scale = own.scale;
            steps[i].inverse = own.inverse;
            steps[i].unscaled = own.unscaled;
            steps[i].given = own.given;
        }
    }
    if (coupling != GS_INDEPENDENT)
        end_together(steps, scalers, n);
    for (size_t i = 0; i < n; i++) /* of those that have ended: the verdict again */
        verdicts[i] = gs_step_end(&steps[i], scalers[i]);
}

void gs_group_end(gs_verdict *verdicts, gs_step *steps, gs_scaler *const *scalers, size_t n,
                  gs_coupling coupling)
{
    GSI_IN_MODE(group_end_in_mode(verdicts, steps, scalers, n, coupling));
}
