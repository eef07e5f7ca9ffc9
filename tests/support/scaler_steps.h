/* scaler_steps.h: steps of the scaler as a loop would drive it. */
#ifndef SCALER_STEPS_H
#define SCALER_STEPS_H

#include "test.h"

#include "gradscale/scaler.h"

#include <math.h>
#include <stdbool.h>

#define ROWS(array) (sizeof(array) / sizeof((array)[0]))
#define NOTHING     ((double)NAN) /* in place of an amax: the batch is NaN at every scale */

/* A batch whose largest gradient is `amax` in true units, in f16. Follows RETRY as a loop would;
 * the last verdict, and the number of runs if runs is given. */
static inline gs_verdict batch(gs_scaler *s, double amax, int *runs)
{
    gs_verdict v;
    int n = 0;
    do {
        gs_step step;
        gs_step_begin(&step, s);
        const double scaled = amax * step.scale;
        gs_step_amax(&step, isnan(amax) ? amax : scaled > 65504 ? (double)INFINITY : scaled);
        const gs_verdict plan = gs_step_decide(&step, s);
        v = gs_step_end(&step, s);
        CHECK(plan.action == v.action && plan.reason == v.reason && plan.scale == v.scale);
        n++;
    } while (v.action == GS_RETRY);
    if (runs)
        *runs = n;
    return v;
}

static inline gs_scaler make(const char *spec, const char *set)
{
    gs_scaler s;
    gs_error error = {0};
    CHECK_MSG(gs_scaler_init(&s, spec, &error) == GS_OK, "%s", error.text);
    CHECK_MSG(gs_scaler_set(&s, set, &error) == GS_OK, "%s", error.text);
    return s;
}

static inline gs_verdict flag(gs_scaler *s, int found)
{
    gs_step step;
    gs_step_begin(&step, s);
    gs_step_flag(&step, found);
    return gs_step_end(&step, s);
}

#endif
