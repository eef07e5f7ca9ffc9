/* headroom: the largest power of two that keeps `margin` bits between the largest gradient of the
 * last `history` clean steps and the format's maximum.
 *
 *  (1) history holds amax in true units, so that it outlives changes of the scale.
 *  (2) After an overflow at S the true amax is not known, only that it exceeded max / S: twice that
 *      is noted. The scale falls by margin + 1 bits at once and is forgiven `history` steps later:
 *      a batch that is bad at any scale cannot drive it to the floor for good.
 *  (3) All gradients zero: nothing is noted, but every `history` such steps in a row double the
 *      scale, in case they underflowed.
 *  (4) Fed by flags alone there is no amax to follow, and it does as dynamic scalers do: half the
 *      scale after an overflow, twice the scale after FLAGS_INTERVAL clean steps. `zeros` is
 *      NO_AMAX from the first clean step without an amax to the next one with it; machine.clean
 *      counts the clean steps. Overflows right before that step fell by (2): they are taken for
 *      halvings then.
 *
 * margin 6 and history 16 are measured: see doc/scaler.md. With a wider margin small gradients
 * underflow, a smaller one skips at every jump of the loss; a longer history is slower to rise. */
#include "scaler/scaler.h"

enum { MARGIN, HISTORY };
enum { FLAGS_INTERVAL = 2000 }; /* as most frameworks have it */

static const uint32_t NO_AMAX = UINT32_MAX;

void gsi_headroom_init(gs_scaler *s)
{
    for (int i = 0; i < GS_HISTORY_MAX; i++)
        s->history[i] = 0;
    s->seen = 0;
    s->zeros = 0;
}

/* A true amax may exceed f32 at a small scale; its largest number will do. */
static float as_noted(double amax)
{
    const float most = 0x1.fffffep+127f;
    return amax < (double)most ? (float)amax : most;
}

static void note(gs_scaler *s, double amax)
{
    s->history[s->seen++ % (uint32_t)s->tune[HISTORY]] = as_noted(amax);
}

static void follow(gs_scaler *s)
{
    float amax = 0;
    for (int i = 0; i < (int)s->tune[HISTORY]; i++)
        amax = s->history[i] > amax ? s->history[i] : amax;
    if (amax > 0) {
        const double most = gsi_half_max(s) / exp2(s->tune[MARGIN]);
        gsi_go_to(s, gsi_power_of_two_below(most / (double)amax));
    }
}

/* The note that was made k notes ago, and the scale of which an overflow would leave it. */
static float noted(const gs_scaler *s, uint32_t k)
{
    return s->history[(s->seen - 1 - k) % (uint32_t)s->tune[HISTORY]];
}
static double scale_of(const gs_scaler *s, uint32_t k)
{
    return 2 * gsi_half_max(s) / (double)noted(s, k);
}

/* Whether an overflow that was noted k notes ago let the scale fall to where the next, with this
 * note, found it: margin + 1 bits lower, or at a bound. */
static bool fell_to(const gs_scaler *s, uint32_t k, float next)
{
    const double fell = scale_of(s, k) / exp2(s->tune[MARGIN] + 1), twice = 2 * gsi_half_max(s);
    return next == as_noted(twice / fell) || next == as_noted(twice / gsi_bounded(s, fell));
}

/* Where halving would be now, after the overflows in a row that were noted last. More of them than
 * the history holds are taken for all that there was. */
static double if_halved(const gs_scaler *s)
{
    const uint32_t history = (uint32_t)s->tune[HISTORY];
    const uint32_t kept = s->seen < history ? s->seen : history;
    uint32_t falls = 0;
    float next = as_noted(2 * gsi_half_max(s) / s->machine.scale);
    for (; falls < kept && fell_to(s, falls, next); falls++)
        next = noted(s, falls);
    if (falls == 0)
        return s->machine.scale;
    if (falls < kept || s->seen == kept)
        return scale_of(s, falls - 1) / exp2(falls);
    return fmax(s->params.init / exp2(s->seen), s->machine.scale);
}

/* A clean step that told no amax. */
static void step_without_amax(gs_scaler *s)
{
    if (s->zeros != NO_AMAX)
        gsi_go_to(s, if_halved(s));
    s->zeros = NO_AMAX;
    s->machine.clean = gsi_one_more(s->machine.clean);
    if (s->machine.clean % FLAGS_INTERVAL == 0)
        gsi_go_to(s, 2 * s->machine.scale);
}

bool gsi_headroom_step(gs_scaler *s, const gs_finding *f)
{
    if (s->zeros == NO_AMAX && !f->found && !isnan(f->amax))
        s->zeros = 0;
    if (f->found && s->zeros == NO_AMAX) {
        gsi_go_to(s, s->machine.scale / 2);
    } else if (f->found) {
        note(s, 2 * gsi_half_max(s) / s->machine.scale);
        follow(s);
    } else if (f->amax > 0) {
        s->zeros = 0;
        note(s, f->amax);
        follow(s);
    } else if (f->amax == 0 && ++s->zeros % (uint32_t)s->tune[HISTORY] == 0) {
        for (int i = 0; i < GS_HISTORY_MAX; i++)
            s->history[i] /= 2;
        gsi_go_to(s, 2 * s->machine.scale);
    } else if (isnan(f->amax)) {
        step_without_amax(s);
    }
    return false;
}
