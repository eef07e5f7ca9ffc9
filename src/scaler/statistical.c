/* The other policies that read statistics: logmax, adaptive, histogram. */
#include "scaler/scaler.h"

/* ---- logmax: OpenSeq2Seq ----
 *
 * log2(amax) is taken as normal; the scale puts its upper `sigmas` quantile at 2^16. Fast and slow
 * exponential means, bias-corrected. A non-finite step enters as 2^16 where log2 is meant: the slip
 * is OpenSeq2Seq's, and a recording of it is what this matches. */
enum { BETA1, BETA2, SIGMAS };
enum { FAST, SLOW, SQUARE }; /* of s->mean */

void gsi_logmax_init(gs_scaler *s)
{
    for (int i = 0; i < 3; i++)
        s->mean[i] = 0;
    s->seen = 0;
}

bool gsi_logmax_step(gs_scaler *s, const gs_finding *f)
{
    double *const m = s->mean;
    const double b1 = s->tune[BETA1], b2 = s->tune[BETA2];
    if (!f->found && !(f->amax > 0)) /* log2(0) would stay in the means for ever */
        return false;
    const double x = f->found ? 0x1p+16 : log2(f->amax);

    m[FAST] = b1 * m[FAST] + (1 - b1) * x;
    m[SLOW] = b2 * m[SLOW] + (1 - b2) * x;
    m[SQUARE] = b2 * m[SQUARE] + (1 - b2) * (x * x);
    s->seen += s->seen < UINT32_MAX;

    /* so many steps' weights add up to 1 - beta^n, not 1 */
    const double all1 = 1 - pow(b1, s->seen), all2 = 1 - pow(b2, s->seen);
    const double slow = m[SLOW] / all2;
    const double variance = m[SQUARE] / all2 - slow * slow;
    const double quantile = m[FAST] / all1 + s->tune[SIGMAS] * sqrt(fmax(variance, 0));
    gsi_go_to(s, exp2(16 - quantile));
    return false;
}

/* ---- adaptive: NVCaffe ----
 *
 * gain * 4 / amax of the step before, in f32; the first step has the scale 1. A step without a
 * finite, non-zero amax gives the gain alone. */
bool gsi_adaptive_step(gs_scaler *s, const gs_finding *f)
{
    const float gain = (float)s->tune[0], amax = (float)f->amax;
    const bool usable = !f->found && amax > 0 && isfinite(amax);
    gsi_go_to(s, (double)(usable ? gain * (4 / amax) : gain));
    return false;
}

/* ---- histogram: Graphcore ----
 *
 * Halve if more than `threshold` of the scaled gradients lie above an eighth of the maximum, else
 * double. As recorded this swings for ever around the edge; the dead band holds the scale when the
 * share above edge / 2^band, which a doubling would bring nearer to the edge, is too large already.
 * band 0 is Graphcore's rule. */
bool gsi_histogram_step(gs_scaler *s, const gs_finding *f)
{
    const float t = (float)s->tune[HISTOGRAM_THRESHOLD];
    const double limit = (double)(t / (1 - t)), edge = gsi_half_max(s) / 8;
    const double scaled = f->amax * s->machine.scale, band = exp2(s->tune[HISTOGRAM_BAND]);
    const bool counted = f->elements > 0;
    const uint64_t above = counted ? f->above : scaled > edge;
    const uint64_t above_band = counted ? f->above_band : scaled > edge / band;
    const uint64_t all = counted ? f->elements : 1;

    if (f->found || (double)above > limit * (double)(all - above))
        gsi_go_to(s, s->machine.scale / 2);
    else if (s->tune[HISTOGRAM_BAND] == 0 ||
             !((double)above_band > limit * (double)(all - above_band)))
        gsi_go_to(s, s->machine.scale * 2);
    return false;
}
