/* scaler_model.h: a second opinion of the machine, written from doc/scaler.md.
 *
 * Keeps no counters: a list of what happened at each step, and every question is answered by
 * looking back through it. Numbers are rounded by the type itself, halves by search. */
#ifndef SCALER_MODEL_H
#define SCALER_MODEL_H

#include "gradscale/num.h"
#include "gradscale/scaler.h"

#include <math.h>
#include <stdbool.h>

typedef struct event {
    bool found, grew, reduced, raised, void_step; /* void: the step raised before it counted */
    double interval;                              /* after it */
} event;

enum { STEPS = 160 };

static inline double half_nearest(double x)
{
    if (isnan(x) || x >= 65520)
        return isnan(x) ? x : (double)INFINITY;
    uint32_t lo = 0, hi = 0x7BFF; /* the largest code whose value is <= x */
    while (lo < hi) {
        const uint32_t mid = (lo + hi + 1) / 2;
        if ((double)gs_f16_to_f32((uint16_t)mid) <= x)
            lo = mid;
        else
            hi = mid - 1;
    }
    if (lo == 0x7BFF)
        return 65504;
    const double a = (double)gs_f16_to_f32((uint16_t)lo);
    const double b = (double)gs_f16_to_f32((uint16_t)(lo + 1));
    return x - a < b - x || (x - a == b - x && lo % 2 == 0) ? a : b;
}

static inline double as(int type, double x)
{
    if (type == GS_STATE_F64)
        return x;
    if (type == GS_STATE_F16)
        return half_nearest(x);
    volatile float f = (float)x;
    return (double)f;
}

static inline double moved(int type, int op, double s, double factor)
{
    const float fs = (float)s, ff = (float)factor;
    if (op == GS_ARITH_WIDE)
        return as(type, s * factor);
    if (type == GS_STATE_F32) { /* in the type's own arithmetic */
        volatile float r = op == GS_ARITH_STATE ? fs * ff : op == GS_ARITH_DIV ? fs / ff : 1 / ff;
        if (op == GS_ARITH_RECIP)
            r = fs * r;
        return (double)r;
    }
    const double f = as(type, factor);
    if (op == GS_ARITH_RECIP)
        return as(type, s * as(type, 1 / f));
    return as(type, op == GS_ARITH_DIV ? s / f : s * f);
}

/* How often `what` since the last step at which `until` held; void steps do not exist. */
static inline int64_t clean_before(const event *e, int i, int64_t credit)
{
    int64_t n = 0;
    for (int k = i - 1; k >= 0; k--) {
        if (e[k].void_step)
            continue;
        if (e[k].found)
            return n;
        n++;
    }
    return n + credit;
}

static inline double count_before(const gs_params *p, const event *e, int i)
{
    double count = (double)p->credit;
    for (int k = 0; k < i; k++) {
        if (e[k].void_step)
            continue;
        const double interval = e[k].interval;
        count = e[k].found ? 0 : e[k].grew ? (double)p->extra : count + 1;
        if (!e[k].found && p->compare == GS_COMPARE_WRAP)
            while (count >= interval)
                count -= interval;
    }
    return count;
}

static inline int64_t bad_before(const gs_params *p, const event *e, int i)
{
    int64_t n = 0;
    for (int k = i - 1; k >= 0; k--) {
        if (e[k].void_step)
            continue;
        if ((!e[k].found && p->refill & GS_REFILL_CLEAN) ||
            (e[k].grew && p->refill & GS_REFILL_GROWTH))
            return n;
        if (e[k].found && e[k].reduced && p->refill & GS_REFILL_BACKOFF)
            return n;
        n += e[k].found;
    }
    return n;
}

static inline void model(const gs_params *p, const bool *found, double *shown, bool *raised)
{
    event e[STEPS] = {{0}};
    double s = as(p->state, p->init), visible = s,
           interval = p->interval == GS_NO_LIMIT ? (double)INFINITY : (double)p->interval;
    int64_t it = 0, rescaled = -1, overflows = 0;
    for (int i = 0; i < STEPS; i++) {
        const double cur = s;
        double next = s;
        e[i].found = found[i];
        e[i].interval = interval;
        if (found[i]) {
            bool due = bad_before(p, e, i) + 1 >= p->hyst;
            if (p->track_rescale) {
                overflows++;
                if (it == rescaled) {
                    e[i].void_step = e[i].raised = true;
                    goto row;
                }
                due = (double)overflows / (double)(it - rescaled) >= p->tolerance;
            }
            if (due && p->err == GS_ERR_EQ_BEFORE && s == p->err_min) {
                e[i].void_step = e[i].raised = true;
                goto row;
            }
            e[i].reduced = due;
            if (due) {
                next = moved(p->state, p->back_op, s, p->backoff);
                if (!isnan(p->floor) && next < as(p->state, p->floor))
                    next = as(p->state, p->floor);
                if (!isnan(p->window_follows)) {
                    if (isfinite(interval))
                        interval = (double)(int64_t)(interval / p->window_follows);
                    interval = interval < 1 ? 1 : interval;
                }
                rescaled = it;
                overflows = 0;
            }
            e[i].interval = interval;
            if (p->err == GS_ERR_LE_AFTER && next <= p->err_min) {
                e[i].raised = true;
                goto row; /* neither it nor the scale moves */
            }
            if (!(p->err == GS_ERR_RESTORE_LT && next < p->err_min))
                s = next;
            int64_t run = 1;
            for (int k = i - 1; k >= 0 && (e[k].found || e[k].void_step); k--)
                run += !e[k].void_step;
            e[i].raised = p->bad_limit != GS_NO_LIMIT && run > p->bad_limit;
        } else {
            const double count = count_before(p, e, i) + 1, limit = interval + (double)p->extra;
            const double beyond = (double)(clean_before(e, i, p->credit) + 1 - p->extra);
            double rest = beyond;
            while (interval > 0 && rest >= interval)
                rest -= interval;
            e[i].grew = p->compare == GS_COMPARE_GE    ? count >= limit
                        : p->compare == GS_COMPARE_MOD ? interval > 0 && beyond > 0 && rest == 0
                                                       : count == limit;
            bool ever = false;
            for (int k = 0; k < i; k++)
                ever |= e[k].found && !e[k].void_step;
            if (e[i].grew) {
                next = moved(p->state, p->grow_op, s,
                             ever || isnan(p->warm_growth) ? p->growth : p->warm_growth);
                const double max = as(p->state, p->max);
                if (!p->keep_nonfinite || isfinite(next))
                    s = !isnan(p->max) && next > max ? max : next;
                if (!isnan(p->window_follows))
                    interval *= p->window_follows;
                rescaled = it;
            }
            e[i].interval = interval;
        }
        it++;
        visible = p->lag ? cur : s;
    row:
        shown[i] = visible;
        raised[i] = e[i].raised;
    }
}

#endif
