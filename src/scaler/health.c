/* How the scaler is doing, and in words why. */
#include "scaler/scaler.h"

#include <stdio.h>

const char *gs_health_name(gs_health health)
{
    static const char *const names[] = {
#define X(id, name) name,
        GS_HEALTHS(X)
#undef X
    };
    return (unsigned)health < GS_HEALTH_COUNT ? names[health] : "unknown";
}

/* The gravest first. A constant scale is at no floor and at no ceiling: it is where it was put. */
static gs_health scaler_health_in_mode(const gs_scaler *scaler)
{
    if (!gsi_scaler_made(scaler))
        return GS_HEALTH_COUNT;
    const double scale = gs_scaler_scale(scaler);
    if (scaler->rules.stuck && scaler->streak.steps >= scaler->rules.stuck)
        return GS_STUCK;
    if (!gsi_is_static(scaler) && scaler->policy != GS_POLICY_NONE) {
        if (scale <= gsi_lowest(scaler))
            return GS_AT_FLOOR;
        if (scale >= gsi_highest(scaler))
            return GS_AT_CEILING;
    }
    return scaler->counters.applied == 0 || scaler->probing ? GS_CALIBRATING : GS_HEALTHY;
}

gs_health gs_scaler_health(const gs_scaler *scaler)
{
    GSI_RETURN_IN_MODE(gs_health, scaler_health_in_mode(scaler));
}

/* "layer4.weight[1203]", "tensor 7[12]", "a gradient" */
static const char *offender(char text[80], const gs_scaler *s, const gs_tensor *list, size_t n)
{
    const uint64_t t = s->streak.tensor;
    if (t == GS_NONE && s->streak.index == GS_NONE)
        return "a gradient";
    if (list && t < n && list[t].name)
        snprintf(text, 80, "%.50s[%llu]", list[t].name, (unsigned long long)s->streak.index);
    else
        snprintf(text, 80, "tensor %llu[%llu]", (unsigned long long)t,
                 (unsigned long long)s->streak.index);
    return text;
}

static const char *times(char text[32], uint32_t n)
{
    snprintf(text, 32, "%u step%s in a row", n, n == 1 ? "" : "s");
    return text;
}

static void explain_overflow(char *text, size_t size, const gs_scaler *s, const char *who)
{
    const double from = (double)s->streak.from, to = (double)s->streak.to;
    const char *what = s->streak.reason == GS_REASON_NAN ? "NaN" : "infinite";
    const double now = gs_scaler_scale(s);
    char row[32];
    if (!(1 / now <= 0x1.fffffep+127) || !(1 / now >= 0x1p-126)) {
        const bool small = now < 1;
        snprintf(text, size,
                 "the scale is %g, too %s to be undone: 1 / scale %s f32, %s not applied; set a "
                 "%s scale, or %s",
                 now, small ? "small" : "large", small ? "overflows" : "underflows",
                 times(row, s->streak.steps), small ? "higher" : "lower",
                 small ? "lowest" : "highest");
        return;
    }
    /* Inf - Inf and 0 * Inf are NaN, so one NaN proves nothing; the same over many scales does. */
    if (s->streak.nan_only && from >= 16 * to)
        snprintf(text, size,
                 "%s is NaN at every scale from %g to %g: loss scaling is not the cause, look for "
                 "0/0, log(0) or bad input",
                 who, from, to);
    else if (from >= 16 * to && to <= gsi_lowest(s))
        snprintf(text, size,
                 "%s is not finite at any scale from %g to %g, the lowest allowed: the gradients "
                 "are too large, lower the learning rate or clip, or allow a lower scale",
                 who, from, to);
    else
        snprintf(text, size, "%s is %s at a scale of %g: %s not applied, the scale goes on at %g",
                 who, what, to, times(row, s->streak.steps), now);
}

static void explain_health(char *text, size_t size, const gs_scaler *s)
{
    const double scale = gs_scaler_scale(s);
    const gs_health health = gs_scaler_health(s);
    if (s->policy == GS_POLICY_NONE)
        snprintf(text, size, "the scaler is disabled: scale 1, nothing is checked");
    else if (health == GS_AT_FLOOR)
        snprintf(text, size,
                 "the scale is at its floor, %g: an overflow cannot lower it any more, and small "
                 "gradients underflow to zero",
                 scale);
    else if (health == GS_AT_CEILING)
        snprintf(text, size,
                 "the scale is at its ceiling, %g: gradients this small need no higher one", scale);
    else if (health == GS_CALIBRATING)
        snprintf(text, size, "the scale is %g and no step has confirmed it yet", scale);
    else
        snprintf(text, size, "the scale is %g; %llu of %llu steps were applied", scale,
                 (unsigned long long)s->counters.applied,
                 (unsigned long long)s->counters.attempted);
}

static char *scaler_explain_in_mode(char *text, size_t size, const gs_scaler *scaler,
                                    const gs_tensor *list, size_t n)
{
    char who[80], row[32];
    if (size == 0)
        return text;
    if (!gsi_scaler_made(scaler)) {
        gs_error error;
        gsi_scaler_version(scaler, &error);
        snprintf(text, size, "%s", error.text);
        return text;
    }
    const uint32_t steps = scaler->streak.steps;
    switch (scaler->streak.reason) {
    case GS_REASON_INF:
    case GS_REASON_NAN:
        explain_overflow(text, size, scaler, offender(who, scaler, list, n));
        break;
    case GS_REASON_FORWARD:
        snprintf(text, size,
                 "the loss was not finite before scaling, %s: the forward pass is at fault and the "
                 "scale stays at %g",
                 times(row, steps), gs_scaler_scale(scaler));
        break;
    case GS_REASON_NO_GRADS:
        snprintf(text, size, "no gradient was reported, %s: nothing was scanned before the end",
                 times(row, steps));
        break;
    case GS_REASON_USER:
        snprintf(text, size, "the caller rejected %s", times(row, steps));
        break;
    default:
        explain_health(text, size, scaler);
    }
    return text;
}

char *gs_scaler_explain(char *text, size_t size, const gs_scaler *scaler, const gs_tensor *list,
                        size_t n)
{
    GSI_RETURN_IN_MODE(char *, scaler_explain_in_mode(text, size, scaler, list, n));
}
