/* clang-format off */
/* The raw machine: one step of any framework's scaler, to the last bit.
 *
 *  (1) scale is a number of type T, params.state. It may be 0, infinite or NaN where that of the
 *      framework is: that is parity, and the step protocol above (step.c) keeps users out of it.
 *  (2) clean counts steps since the last overflow, count those towards the next growth. Both start
 *      at `credit`; an overflow clears both, a growth only count, to `extra`.
 *  (3) bad counts overflows since the last refill. A backoff is due at the hyst-th and at every
 *      further one until something refills it.
 *  (4) An overflow resets clean and count even if no backoff is due.
 *  (5) A step that raises changes what the framework has changed by then, no more: see `return`.
 *  (6) interval is params.interval but under window_follows: not whole after a growth by a factor
 *      that is not, whole after a backoff.
 *  (7) `none` is NaN: `next < floor` is false, as it must be.
 *
 *          +---- clean, not due: clean++, count++ ----+
 *          v                                          |
 *        STEADY --------------------------------------+
 *          |
 *          +---- clean, due (compare) --------------> grow:     scale = move(scale) <= max,
 *          |                                                    count = extra
 *          |                                                    refill growth: bad = 0   [grow]
 *          |
 *          +---- found, not due (hyst, tolerance) --> hold:     bad++, clean = count = 0
 *          |
 *          +---- found, due ------------------------> back off: scale = move(scale) >= floor,
 *          |                                                    bad++, clean = count = 0
 *          |                                                    refill backoff: bad = 0  [back_off]
 *          |
 *          +---- found, at the limit (err, bad_limit) -> the step raises */
/* clang-format on */
#include "scaler/scaler.h"

#include "gradscale/num.h"

#include <string.h>

/* f64 -> f32 to odd keeps what decides a tie, so that f32 -> f16 rounds once. x >= 0 or NaN. */
static double round_f16(double x)
{
    float y = (float)x;
    if (isfinite(y) && (double)y != x) {
        uint32_t u;
        memcpy(&u, &y, sizeof u);
        u = ((double)y > x ? u - 1 : u) | 1;
        memcpy(&y, &u, sizeof y);
    }
    return (double)gs_f16_to_f32(gs_f32_to_f16(y));
}

double gsi_round_state(const gs_params *p, double x)
{
    return p->state == GS_STATE_F64   ? x
           : p->state == GS_STATE_F32 ? (double)(float)x
                                      : round_f16(x);
}

/* One f64 operation, then one rounding to T, is the operation in T: products of two f32 are exact
 * in f64, and 53 bits are enough for quotients (2 * 24 + 2). */
static double move(const gs_params *p, uint8_t op, double s, double factor)
{
    const double f = op == GS_ARITH_WIDE ? factor : gsi_round_state(p, factor);
    if (op == GS_ARITH_DIV)
        return gsi_round_state(p, s / f);
    return gsi_round_state(p, s * (op == GS_ARITH_RECIP ? gsi_round_state(p, 1 / f) : f));
}

double gsi_interval(const gs_params *p)
{
    return p->interval == GS_NO_LIMIT ? (double)INFINITY : (double)p->interval;
}

void gsi_machine_init(gs_machine *m, const gs_params *p)
{
    *m = (gs_machine){.scale = gsi_round_state(p, p->init),
                      .interval = gsi_interval(p),
                      .count = (double)p->credit,
                      .clean = p->credit,
                      .last_rescale = -1};
    m->shown = m->scale;
}

static bool growth_is_due(const gs_machine *m, const gs_params *p)
{
    const double limit = m->interval + (double)p->extra;
    const int64_t beyond = m->clean - p->extra;
    switch (p->compare) {
    case GS_COMPARE_GE:
        return m->count >= limit;
    case GS_COMPARE_MOD: /* fmod is exact */
        return beyond > 0 && m->interval > 0 && fmod((double)beyond, m->interval) == 0;
    default: /* EQ, WRAP */
        return m->count == limit;
    }
}

static void grow(gs_machine *m, const gs_params *p)
{
    const bool warm = !m->ever && !isnan(p->warm_growth);
    const double next = move(p, p->grow_op, m->scale, warm ? p->warm_growth : p->growth);
    const double max = gsi_round_state(p, p->max);
    m->count = (double)p->extra;
    if (isfinite(next) || !p->keep_nonfinite)
        m->scale = next > max ? max : next;
    if (p->refill & GS_REFILL_GROWTH)
        m->bad = 0;
    if (!isnan(p->window_follows))
        m->interval *= p->window_follows;
    m->last_rescale = m->it;
}

/* Returns the lower scale: whether it is taken is up to params.err. */
static double back_off(gs_machine *m, const gs_params *p)
{
    const double floor = gsi_round_state(p, p->floor);
    double next = move(p, p->back_op, m->scale, p->backoff);
    if (next < floor)
        next = floor;
    if (p->refill & GS_REFILL_BACKOFF)
        m->bad = 0;
    if (!isnan(p->window_follows))
        m->interval = fmax(trunc(m->interval / p->window_follows), 1);
    m->last_rescale = m->it;
    m->ovf = 0;
    return next;
}

static void step_clean(gs_machine *m, const gs_params *p)
{
    m->run = 0;
    if (p->refill & GS_REFILL_CLEAN)
        m->bad = 0;
    m->clean = gsi_one_more(m->clean);
    m->count++;
    if (growth_is_due(m, p))
        grow(m, p);
    if (p->compare == GS_COMPARE_WRAP)
        m->count = fmod(m->count, m->interval);
}

/* Returns true if the step raises; *stops tells whether it stops there and then. */
static bool step_found(gs_machine *m, const gs_params *p, bool *stops)
{
    double next = m->scale;
    bool due = m->bad + 1 >= p->hyst;

    *stops = true;
    if (p->track_rescale) {
        const int64_t since = m->it - m->last_rescale;
        m->ovf = gsi_one_more(m->ovf);
        if (since == 0) /* the framework divides by it */
            return true;
        due = (double)m->ovf / (double)since >= p->tolerance;
    }
    if (due && p->err == GS_ERR_EQ_BEFORE && m->scale == p->err_min)
        return true;
    m->bad = gsi_one_more(m->bad);
    m->run = gsi_one_more(m->run);
    m->ever = 1;
    if (due)
        next = back_off(m, p);
    m->clean = 0;
    m->count = 0;
    if (p->err == GS_ERR_LE_AFTER && next <= p->err_min)
        return true;
    if (p->err == GS_ERR_RESTORE_LT && next < p->err_min)
        next = m->scale;
    m->scale = next;
    *stops = false;
    return m->run > p->bad_limit;
}

bool gsi_machine_step(gs_machine *m, const gs_params *p, bool found)
{
    const double before = m->scale;
    bool raises = false, stops = false;
    if (found)
        raises = step_found(m, p, &stops);
    else
        step_clean(m, p);
    if (stops)
        return raises;
    m->it = gsi_one_more(m->it);
    m->shown = p->lag ? before : m->scale;
    return raises;
}
