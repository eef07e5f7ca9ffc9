/* fold and decide: from the chunks' statistics to a verdict, by one block.
 *
 * (1) Sums are folded as libgradscale does it: 4096 consecutive chunks in order, by one thread, so
 *     that groups run side by side; then the groups; then the ranks.
 * (2) The verdict is that of scaler/step.c with on_overflow=skip and no probe: `gsd_settle`
 *     follows it line by line. The machine is scaler/machine.c itself. The scaler and the
 *     statistics are in shared memory as they are read and changed: held in registers they would
 *     take more than 64.
 * (3) The host is not asked: what act needs is in `state`, what the host reads in `reports`. */
#include "device/kernels/number.h"
#include "device/kernels/report.h"

#define GSD_F32_MAX 0x1.fffffep+127
#define GSD_F64_MAX 0x1.fffffffffffffp+1023

/* ---- folding ---- */

DEVICE void gsd_stats_init(SHARED_PTR gs_stats *s)
{
    s->elements = s->inf = s->nan = s->zero = s->subnormal = s->underflow = 0;
    s->amax = 0;
    s->sumsq = 0;
    s->bad_tensor = s->bad_index = GS_NONE;
}

/* gs_stats_merge, but for sumsq. */
DEVICE void gsd_stats_merge(SHARED_PTR gs_stats *into, SHARED_PTR const gs_stats *from)
{
    into->elements += from->elements;
    into->inf += from->inf;
    into->nan += from->nan;
    into->zero += from->zero;
    into->subnormal += from->subnormal;
    into->underflow += from->underflow;
    into->amax = from->amax > into->amax ? from->amax : into->amax;
    if (from->bad_tensor < into->bad_tensor ||
        (from->bad_tensor == into->bad_tensor && from->bad_index < into->bad_index)) {
        into->bad_tensor = from->bad_tensor;
        into->bad_index = from->bad_index;
    }
}

/* values[0..n) in order; 8 at a time are on their way. */
DEVICE double gsd_sum(const GLOBAL double *values, uint32_t n)
{
    double sum = 0;
    uint32_t i = 0;
    ROLLED for (; i + 8u <= n; i += 8u)
    {
        double x[8];
        for (uint32_t k = 0; k < 8u; k++)
            x[k] = values[i + k];
        for (uint32_t k = 0; k < 8u; k++)
            sum += x[k];
    }
    ROLLED for (; i < n; i++) sum += values[i];
    return sum;
}

/* Chunk c, the next of those that a thread has, added to what it has of them. */
DEVICE void gsd_fold_chunk(SHARED_PTR gs_stats *into, const GLOBAL gsd_found *f,
                           const GLOBAL gsd_chunk *chunk)
{
    into->elements += f->elements;
    into->inf += f->inf;
    into->nan += f->nan;
    into->zero += f->zero;
    into->subnormal += f->subnormal;
    into->underflow += f->underflow;
    into->amax = gsd_float(gsd_max(gsd_bits(into->amax), f->amax));
    if (f->bad != GSD_NOWHERE && into->bad_tensor == GS_NONE) {
        into->bad_tensor = chunk->tensor;
        into->bad_index = chunk->first + f->bad;
    }
}

/* All chunks of this device, to parts[0]. */
DEVICE void gsd_fold_chunks(const GLOBAL gsd_chunk *chunks, const GLOBAL gsd_found *found,
                            const GLOBAL double *sums, uint32_t n, SHARED_PTR gs_stats *parts,
                            SHARED_PTR double *groups)
{
    const uint32_t all = (n + GSD_GROUP - 1u) / GSD_GROUP;
    double sum = 0;
    EACH_THREAD (t) {
        gsd_stats_init(&parts[t]);
        ROLLED for (uint32_t c = t; c < n; c += GSD_THREADS)
            gsd_fold_chunk(&parts[t], &found[c], &chunks[c]);
    }
    BARRIER; /* every thread has its part */
    ROLLED for (uint32_t width = GSD_THREADS / 2u; width > 0; width /= 2u)
    {
        EACH_THREAD (t) {
            if (t < width)
                gsd_stats_merge(&parts[t], &parts[t + width]);
        }
        BARRIER;
    }
    ROLLED for (uint32_t begin = 0; begin < all; begin += GSD_THREADS)
    {
        EACH_THREAD (t) {
            const uint32_t first = (begin + t) * GSD_GROUP;
            if (begin + t < all)
                groups[t] = gsd_sum(sums + first, n - first < GSD_GROUP ? n - first : GSD_GROUP);
        }
        BARRIER; /* the groups are summed */
        ROLLED for (uint32_t g = 0; g < GSD_THREADS && begin + g < all; g++) sum += groups[g];
        BARRIER;
    }
    EACH_THREAD (t) {
        if (t == 0)
            parts[0].sumsq = sum;
    }
}

/* For several ranks: this rank's statistics to its place among the gathered. */
KERNEL gsd_fold(ARGUMENTS)
{
    SHARED gs_stats parts[GSD_THREADS];
    SHARED double groups[GSD_THREADS];
    gsd_fold_chunks(chunks, found, sums, set->chunks, parts, groups);
    EACH_THREAD (t) {
        if (t == 0)
            gathered[set->rank] = parts[0];
    }
}

/* ---- the scaler: scaler/policy.c, headroom.c, step.c ---- */

DEVICE double gsd_state_max(SHARED_PTR const gs_scaler *s)
{
    return s->params.state == GS_STATE_F64   ? GSD_F64_MAX
           : s->params.state == GS_STATE_F32 ? GSD_F32_MAX
                                             : 65504.0;
}

DEVICE double gsd_half_max(SHARED_PTR const gs_scaler *s)
{
    return s->rules.half == GS_F16 ? 65504.0 : s->rules.half == GS_BF16 ? 0x1.fep+127 : GSD_F32_MAX;
}

DEVICE double gsd_bounded(SHARED_PTR const gs_scaler *s, double x)
{
    const double top = fmin(s->rules.highest, gsd_state_max(s));
    if (!isnan(s->rules.lowest) && !(x >= s->rules.lowest))
        return s->rules.lowest;
    return !isnan(s->rules.highest) && x > top ? top : x;
}

DEVICE void gsd_hold_in_bounds(SHARED_PTR gs_scaler *s)
{
    s->machine.scale = gsd_bounded(s, s->machine.scale);
    s->machine.shown = gsd_bounded(s, s->machine.shown);
}

DEVICE double gsd_scale_of(SHARED_PTR const gs_scaler *s)
{
    return s->policy == GS_POLICY_NONE ? 1.0 : gsd_bounded(s, s->machine.shown);
}

DEVICE void gsd_go_to(SHARED_PTR gs_scaler *s, double x)
{
    const double floor_ = gsi_round_state(&s->params, s->params.floor);
    const double max_ = gsi_round_state(&s->params, s->params.max);
    x = gsi_round_state(&s->params, x);
    x = x > max_ ? max_ : x < floor_ ? floor_ : x;
    s->machine.scale = s->machine.shown = x;
    s->machine.clean = 0;
    s->machine.count = 0;
}

DEVICE void gsd_headroom_note(SHARED_PTR gs_scaler *s, double amax)
{
    const float most = 0x1.fffffep+127f;
    const uint32_t history = (uint32_t)s->tune[1];
    s->history[s->seen++ % history] = amax < (double)most ? (float)amax : most;
}

/* The largest power of two below, by the exponent alone; 0: nothing was noted. */
DEVICE double gsd_headroom_follow(SHARED_PTR const gs_scaler *s, double most)
{
    float amax = 0;
    for (int i = 0; i < (int)s->tune[1]; i++)
        amax = s->history[i] > amax ? s->history[i] : amax;
    return amax > 0 ? gsd_double(gsd_bits64(most / (double)amax) & UINT64_C(0x7FF0000000000000))
                    : 0;
}

/* A plan with headroom has gradients, so that amax is known; flags may have fed its scaler before.
 */
DEVICE void gsd_headroom(SHARED_PTR gs_scaler *s, int found, double amax, double most)
{
    const uint32_t no_amax = 0xFFFFFFFFu;
    double to = 0; /* stay */
    if (s->zeros == no_amax && !found)
        s->zeros = 0;
    if (found && s->zeros == no_amax) {
        to = s->machine.scale / 2;
    } else if (found || amax > 0) {
        s->zeros = found ? s->zeros : 0;
        gsd_headroom_note(s, found ? 2 * gsd_half_max(s) / s->machine.scale : amax);
        to = gsd_headroom_follow(s, most);
    } else if (amax == 0 && ++s->zeros % (uint32_t)s->tune[1] == 0) {
        for (int i = 0; i < GS_HISTORY_MAX; i++)
            s->history[i] /= 2;
        to = 2 * s->machine.scale;
    }
    if (to > 0)
        gsd_go_to(s, to);
}

/* amax in true units; NaN: not known. */
DEVICE int gsd_feed(SHARED_PTR gs_scaler *s, int found, double amax, double most)
{
    int raises = 0;
    gsd_hold_in_bounds(s);
    if (s->policy == GS_POLICY_MACHINE)
        raises = gsi_machine_step(&s->machine, &s->params, found != 0);
    else if (s->policy == GS_POLICY_HEADROOM)
        gsd_headroom(s, found, amax, most);
    gsd_hold_in_bounds(s);
    return raises;
}

DEVICE void gsd_note(SHARED_PTR gs_scaler *s, SHARED_PTR const gs_stats *stats, double scale_,
                     uint32_t reason)
{
    const int first = s->streak.from == 0;
    const float scale = (float)scale_;
    s->streak.from = first || scale > s->streak.from ? scale : s->streak.from;
    s->streak.to = first || scale < s->streak.to ? scale : s->streak.to;
    s->streak.nan_only = (first || s->streak.nan_only) && reason == GS_REASON_NAN;
    s->streak.reason = (uint8_t)reason;
    if (stats->bad_index != GS_NONE) {
        s->streak.tensor = stats->bad_tensor;
        s->streak.index = stats->bad_index;
    }
}

DEVICE uint32_t gsd_skip(SHARED_PTR gs_scaler *s, uint32_t reason, int raises)
{
    s->counters.skipped[reason]++;
    s->streak.steps += s->streak.steps < 0xFFFFFFFFu;
    return raises || (s->rules.fail_after && s->streak.steps >= s->rules.fail_after) ? GS_FAIL
                                                                                     : GS_SKIP;
}

/* Returns the action. */
DEVICE uint32_t gsd_settle(SHARED_PTR gs_scaler *s, SHARED_PTR const gs_stats *stats, double scale,
                           double inverse, double most, uint32_t *reason)
{
    const double unscaled = (double)stats->amax * inverse;
    const int beyond = !(inverse <= GSD_F32_MAX) || !(unscaled <= GSD_F32_MAX);
    const int found = stats->inf || stats->nan || beyond;
    const double unknown = gsd_double(UINT64_C(0x7FF8000000000000));
    *reason = stats->inf || beyond ? GS_REASON_INF : stats->nan ? GS_REASON_NAN : GS_REASON_FINE;
    s->counters.attempted++;
    if (s->policy == GS_POLICY_NONE || !found) {
        gsd_feed(s, 0, stats->elements > 0 ? unscaled : unknown, most);
        s->counters.applied++;
        s->streak.steps = 0;
        s->streak.tensor = s->streak.index = GS_NONE;
        s->streak.reason = GS_REASON_FINE;
        s->streak.from = s->streak.to = 0;
        s->streak.nan_only = 0;
        *reason = GS_REASON_FINE;
        return GS_APPLY;
    }
    gsd_note(s, stats, scale, *reason);
    if (beyond) { /* a lower scale would make it worse: the batch is to blame */
        s->counters.blamed++;
        return gsd_skip(s, *reason, 0);
    }
    return gsd_skip(s, *reason, gsd_feed(s, 1, unknown, most));
}

/* ---- deciding ---- */

/* As torch.nn.utils.clip_grad_norm_ does it: optim/step.c. */
DEVICE double gsd_clip(double limit, double norm)
{
    const double clip = limit / (norm + 1e-6);
    return limit > 0 && clip < 1 ? clip : 1;
}

DEVICE void gsd_decide_step(const GLOBAL gsd_settings *set, const GLOBAL gsd_row *rows,
                            GLOBAL gsd_state *state, GLOBAL gsd_report *reports,
                            SHARED_PTR gs_scaler *s, SHARED_PTR const gs_stats *stats)
{
    const int exhausted = gsd_exhausted(set, state);
    const uint32_t row = exhausted ? set->rows - 1u : (uint32_t)(state->applied - set->first_row);
    const double scale = state->scale, inverse = state->inverse;
    double norm = gsd_sqrt(stats->sumsq) * inverse;
    const double clip = gsd_clip(set->clip_norm, norm);
    const uint32_t slot = (uint32_t)(state->attempted % GSD_REPORTS);
    GLOBAL gsd_report *r = &reports[slot];
    uint32_t action = GS_FAIL, reason = GS_REASON_USER;

    if (!exhausted) {
        *s = state->scaler;
        action = gsd_settle(s, stats, scale, inverse, set->headroom, &reason);
        state->scaler = *s;
        state->scale = gsd_scale_of(s);
        state->inverse = 1 / state->scale;
    }
    if (stats->inf || stats->nan)
        norm = gsd_double(stats->nan ? UINT64_C(0x7FF8000000000000) : UINT64_C(0x7FF0000000000000));
    state->attempted++;
    state->apply = action == GS_APPLY;
    state->clear = action != GS_APPLY && set->clear && !exhausted;
    state->applied += action == GS_APPLY;
    state->skipped += action != GS_APPLY && !exhausted;
    state->t = state->applied;
    state->row = row;
    state->slot = slot;
    state->unscale = gsd_setting(clip * (set->unscale == GSD_FUSED ? inverse : 1.0));
    state->words.scale = (float)state->scale;
    state->words.inverse = (float)state->inverse;
    state->words.found_inf = stats->inf || stats->nan || action != GS_APPLY ? 1.0f : 0.0f;
    state->words.apply = action == GS_APPLY ? 1.0f : 0.0f;

    r->step = state->attempted;
    r->scale = scale;
    r->next_scale = state->scale;
    r->norm = norm;
    r->clip = clip;
    r->lr = rows[row].lr;
    r->stats = *stats;
    r->action = action;
    r->reason = reason;
    r->exhausted = (uint32_t)exhausted;
    r->reserved = 0;
    r->weight_top = 0;
    r->check = gsd_report_hash(r);
}

KERNEL gsd_decide(ARGUMENTS)
{
    SHARED gs_stats parts[GSD_THREADS]; /* 20 KB */
    SHARED double groups[GSD_THREADS];
    SHARED gs_scaler scaler[1];
    if (set->ranks == 1u)
        gsd_fold_chunks(chunks, found, sums, set->chunks, parts, groups);
    EACH_THREAD (t) {
        if (t == 0) {
            if (set->ranks > 1u) {
                parts[0] = gathered[0];
                ROLLED for (uint32_t r = 1; r < set->ranks; r++)
                {
                    parts[1] = gathered[r];
                    gsd_stats_merge(&parts[0], &parts[1]);
                    parts[0].sumsq += parts[1].sumsq;
                }
            }
            gsd_decide_step(set, rows, state, reports, scaler, &parts[0]);
        }
    }
}
