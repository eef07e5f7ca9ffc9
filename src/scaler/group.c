/* Several scalers over one batch. The verdict of a group that holds together is the gravest one:
 * FAIL > RETRY > SKIP > APPLY. */
#include "scaler/scaler.h"

static int gravity(gs_action action)
{
    static const int of[] = {[GS_APPLY] = 0, [GS_SKIP] = 1, [GS_RETRY] = 2, [GS_FAIL] = 3};
    return of[action];
}

/* Takes the place of a clean step whose batch is skipped or run again because of another. */
static gs_verdict join(gs_scaler *s, gs_step *step, gs_verdict with)
{
    gs_verdict v = {with.action, with.reason, gsi_bounded(s, gs_scaler_scale(s)), 1};
    if (with.action == GS_RETRY) { /* its own scale holds, and the policy is fed after the rerun */
        gs_step_abandon(step, s);
        v.scale = step->scale;
    } else { /* its policy sees a clean step, but nothing was applied */
        gs_step_end(step, s);
        s->counters.applied--;
        s->counters.skipped[with.reason]++;
    }
    step->verdict[0] = (uint8_t)v.action;
    step->verdict[1] = (uint8_t)v.reason;
    return v;
}

void gs_group_end(gs_verdict *verdicts, gs_step *steps, gs_scaler *const *scalers, size_t n,
                  gs_coupling coupling)
{
    if (coupling == GS_SCALE_TOGETHER && n > 0) {
        gs_step all = steps[0];
        for (size_t i = 1; i < n; i++)
            gs_step_merge(&all, &steps[i]);
        for (size_t i = 0; i < n; i++) {
            const double scale = steps[i].scale, inverse = steps[i].inverse;
            steps[i] = all;
            steps[i].scale = scale;
            steps[i].inverse = inverse;
        }
    }
    gs_verdict worst = {GS_APPLY, GS_REASON_FINE, 0, 1};
    for (size_t i = 0; i < n; i++) {
        verdicts[i] = gs_step_decide(&steps[i], scalers[i]);
        if (gravity(verdicts[i].action) > gravity(worst.action))
            worst = verdicts[i];
    }
    for (size_t i = 0; i < n; i++)
        if (coupling == GS_SKIP_TOGETHER && verdicts[i].action == GS_APPLY &&
            worst.action != GS_APPLY)
            verdicts[i] = join(scalers[i], &steps[i], worst);
        else
            verdicts[i] = gs_step_end(&steps[i], scalers[i]);
}
