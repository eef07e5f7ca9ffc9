/* What the counts mean: the largest safe scale, and the advice in words. */
#include "cli/advise/advise.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F16_MAX 65504.0

/* Shares of the non-zero values. A loss of one in ten thousand is below what anyone has measured to
 * matter (the zeros of a ReLU alone are thousands of times that); one in a hundred is not. */
static const double NEGLIGIBLE = 1e-4, SERIOUS = 1e-2;

double survey_share(const survey *s, uint64_t count)
{
    return s->nonzero ? (double)count / (double)s->nonzero : 0;
}

bool survey_has_safe(const survey *s) { return s->nonzero > 0 && isfinite(s->amax); }

/* The largest k with amax * 2^k <= 65504. */
static int safe_scale(float amax)
{
    int k = ilogb(F16_MAX / (double)amax);
    while (ldexp((double)amax, k) > F16_MAX)
        k--;
    while (ldexp((double)amax, k + 1) <= F16_MAX)
        k++;
    return k;
}

void survey_finish(survey *s, const gs_exponents *x, const gs_stats *stats)
{
    *s = (survey){.elements = stats->elements,
                  .zero = x->zero,
                  .inf = x->inf,
                  .nan = x->nan,
                  .amax = stats->amax,
                  .first_bad = stats->bad_index};
    s->nonzero = s->elements - s->zero - s->inf - s->nan;
    for (int k = 0; k < SCALES; k++) {
        gs_exponents_at(&s->f16[k], x, GS_F16, k, NULL);
        gs_exponents_at(&s->bf16[k], x, GS_BF16, k, NULL);
    }
    if (s->nonzero == 0)
        return;
    s->safe = survey_has_safe(s) ? safe_scale(s->amax) : -GS_BINADES;
    int low = 0, high = GS_BINADES - 1;
    while (x->all[low] == 0)
        low++;
    while (x->all[high] == 0)
        high--;
    const size_t n = (size_t)(high - low + 1);
    s->counts = cli_resize(NULL, n * sizeof *s->counts);
    memcpy(s->counts, x->all + low, n * sizeof *s->counts);
    s->low = low - GS_BINADE_OF_ONE;
    s->high = high - GS_BINADE_OF_ONE;
}

void survey_free(survey *s)
{
    free(s->counts);
    s->counts = NULL;
}

const char *advise_percent(char out[24], double share)
{
    const double p = 100 * share;
    if (p == 0 || p == 100)
        snprintf(out, 24, p == 0 ? "0" : "100%%");
    else if (p < 0.001)
        snprintf(out, 24, "<0.001%%");
    else if (p > 99.99 && p < 100)
        snprintf(out, 24, ">99.99%%");
    else
        snprintf(out, 24, p < 0.1 ? "%.3f%%" : p < 10 ? "%.2f%%" : "%.1f%%", p);
    return out;
}

const char *advise_amax(char out[24], const survey *s, int digits)
{
    if (isfinite(s->amax))
        snprintf(out, 24, "%.*g", digits, (double)s->amax);
    else
        snprintf(out, 24, ">3.4e38");
    return out;
}

const char *advise_scale(char out[48], int log2_scale, bool long_form)
{
    if (long_form && log2_scale >= -10 && log2_scale <= 40)
        snprintf(out, 48, "2^%d (%.10g)", log2_scale, ldexp(1, log2_scale));
    else
        snprintf(out, 48, "2^%d", log2_scale);
    return out;
}

char *advise_name(char out[256], const advise *a, const advise_file *f, const gs_entry *e)
{
    if (!e->name[0])
        snprintf(out, 256, "%s", f->path);
    else if (a->count > 1)
        snprintf(out, 256, "%s: %s", f->path, e->name);
    else
        snprintf(out, 256, "%s", e->name);
    cli_clean(out);
    return out;
}

static int by_loss(const void *pa, const void *pb)
{
    const advise_ref *a = pa, *b = pb;
    const survey *sa = &a->tensor->s, *sb = &b->tensor->s;
    const uint64_t bad_a = sa->inf + sa->nan, bad_b = sb->inf + sb->nan;
    if (!bad_a != !bad_b) /* what is broken comes first */
        return bad_a ? -1 : 1;
    const double x = survey_share(sa, sa->f16[0].underflow);
    const double y = survey_share(sb, sb->f16[0].underflow);
    return x != y ? (x > y ? -1 : 1) : a->index < b->index ? -1 : 1;
}

advise_ref *advise_sorted(const advise *a)
{
    advise_ref *refs = cli_resize(NULL, a->tensors * sizeof *refs);
    size_t n = 0, index = 0;
    for (size_t f = 0; f < a->count; f++)
        for (size_t t = 0; t < a->files[f].count; t++, index++)
            if (gs_entry_readable(a->files[f].tensors[t].entry))
                refs[n++] = (advise_ref){&a->files[f], &a->files[f].tensors[t], index};
    if (n > 0)
        qsort(refs, n, sizeof *refs, by_loss);
    return refs;
}

/* ---- the advice in words ---- */

static const char *none(const char *percent) { return strcmp(percent, "0") ? percent : "none"; }

static void say_bad(advise *a)
{
    const survey *s = &a->total;
    char name[256];
    if (s->inf + s->nan == 0)
        return;
    snprintf(a->advice.bad, sizeof a->advice.bad,
             "%" PRIu64 " Inf and %" PRIu64
             " NaN are among the values, the first at %.150s[%" PRIu64
             "]: no scale mends them, and what is said here is of the finite rest.",
             s->inf, s->nan, advise_name(name, a, a->bad_file, a->bad_entry), a->bad_index);
}

/* A gradient that f16 could not hold is a zero in a dump of f16, like one that was zero. */
static void say_zeros(advise *a)
{
    uint64_t zeros = 0, all = 0;
    char share[24], below[48];
    for (size_t f = 0; f < a->count; f++)
        for (size_t t = 0; t < a->files[f].count; t++) {
            const advise_tensor *x = &a->files[f].tensors[t];
            if (x->entry->dtype == GS_F16 && gs_entry_readable(x->entry)) {
                zeros += x->s.zero;
                all += x->s.elements;
            }
        }
    if (zeros == 0)
        return;
    if (a->scale == 1)
        snprintf(below, sizeof below, "2^-25");
    else
        snprintf(below, sizeof below, "%.3g (2^-25 / %.6g)", 0x1p-25 / a->scale, a->scale);
    snprintf(a->advice.zeros, sizeof a->advice.zeros,
             "%s of the f16 values are zero, and some of them may be gradients that underflowed "
             "before they were written: f16 makes zeros of magnitudes below %s. What is said here "
             "cannot count them: dump in f32, or at a higher scale (--scale).",
             advise_percent(share, (double)zeros / (double)all), below);
}

/* The smallest scale at which next to nothing underflows or overflows in BF16, or -1. */
static int bf16_scale(const survey *s)
{
    for (int k = 0; k < SCALES; k++)
        if (survey_share(s, s->bf16[k].underflow + s->bf16[k].overflow) <= NEGLIGIBLE)
            return k;
    return -1;
}

static void say_bf16(advise *a)
{
    const survey *s = &a->total;
    advice *d = &a->advice;
    const gs_rounded *r = &s->bf16[0];
    const size_t n = sizeof d->bf16;
    const int k = bf16_scale(s);
    char under[24], over[24], scale[48];
    d->bf16_needed = k != 0;
    if (s->nonzero == 0) {
        snprintf(d->bf16, n, "BF16 needs no scaling either.");
    } else if (r->underflow + r->overflow == 0) {
        snprintf(d->bf16, n, "BF16 needs no scaling: it loses none of the values%s.",
                 r->subnormal ? ", though some become subnormal" : "");
    } else {
        const size_t used = (size_t)snprintf(
            d->bf16, n,
            "BF16 %s: without a scale, %s of the non-zero values become zero and %s infinite",
            k == 0                ? "needs no scaling"
            : !survey_has_safe(s) ? "does no better"
                                  : "would need it too",
            none(advise_percent(under, survey_share(s, r->underflow))),
            none(advise_percent(over, survey_share(s, r->overflow))));
        if (k > 0)
            snprintf(d->bf16 + used, n - used, "; from a scale of %s on, next to none.",
                     advise_scale(scale, k, false));
        else
            snprintf(d->bf16 + used, n - used, ".");
    }
}

/* Which scale to recommend: sets it and the verdict. */
static void choose_scale(advise *a)
{
    const survey *s = &a->total;
    advice *d = &a->advice;
    const int wanted = s->safe - a->margin;
    if (s->nonzero == 0) {
        d->verdict = ADVISE_EMPTY;
        return;
    }
    d->log2_scale = wanted < GS_MAX_LOG2_SCALE ? wanted : GS_MAX_LOG2_SCALE;
    if (wanted < 0) {
        d->verdict = ADVISE_TOO_LARGE;
    } else if (survey_share(s, s->f16[0].underflow) <= NEGLIGIBLE &&
               survey_share(s, s->f16[0].subnormal) <= SERIOUS) {
        d->verdict = ADVISE_NO_NEED;
        d->log2_scale = 0;
    } else if (survey_share(s, s->f16[d->log2_scale].underflow) <= SERIOUS) {
        d->verdict = ADVISE_SCALE;
    } else {
        d->verdict = wanted > GS_MAX_LOG2_SCALE ? ADVISE_TOO_SMALL : ADVISE_TOO_WIDE;
    }
}

/* What a share was without the scale, if it was another. */
static const char *instead(char text[48], const char *then, const char *now)
{
    if (strcmp(then, now) == 0)
        return " as without it";
    snprintf(text, 48, " instead of %s", now);
    return text;
}

static void say_f16(advise *a)
{
    const survey *s = &a->total;
    advice *d = &a->advice;
    const size_t n = sizeof d->f16;
    const gs_rounded *one = &s->f16[0], *then = &s->f16[d->log2_scale > 0 ? d->log2_scale : 0];
    char scale[48], safe[48], largest[24], buffers[4][24], were[2][48];
    const char *zero = none(advise_percent(buffers[0], survey_share(s, then->underflow)));
    const char *zero_now = none(advise_percent(buffers[1], survey_share(s, one->underflow)));
    const char *subnormal = none(advise_percent(buffers[2], survey_share(s, then->subnormal)));
    const char *subnormal_now = none(advise_percent(buffers[3], survey_share(s, one->subnormal)));
    const int left = s->safe - d->log2_scale;
    advise_scale(scale, d->log2_scale, true);
    advise_scale(safe, s->safe, false);
    advise_amax(largest, s, 4);
    switch (d->verdict) {
    case ADVISE_EMPTY:
        snprintf(d->f16, n, "There is no finite value but zero: no scale can be advised.");
        break;
    case ADVISE_NO_NEED:
        snprintf(
            d->f16, n,
            "FP16 needs no scaling here: without it %s of the non-zero values become zero and %s"
            " subnormal; scales up to %s are safe.",
            zero_now, subnormal_now, safe);
        break;
    case ADVISE_SCALE:
        snprintf(d->f16, n,
                 "For FP16 use a scale of %s: of the non-zero values %s become zero%s, and %s"
                 " subnormal%s; %d bit%s left below 65504.",
                 scale, zero, instead(were[0], zero, zero_now), subnormal,
                 instead(were[1], subnormal, subnormal_now), left, left == 1 ? " is" : "s are");
        break;
    case ADVISE_TOO_WIDE:
        snprintf(
            d->f16, n,
            "These values are too far apart for FP16: a scale of %s leaves %d bit%s below 65504,"
            " and still %s of the non-zero values become zero (without it, %s). Prefer BF16, or a"
            " scale for each layer.",
            scale, left, cli_s((uint64_t)left), zero, zero_now);
        break;
    case ADVISE_TOO_SMALL:
        snprintf(
            d->f16, n,
            "These values are too small for FP16: with a scale of %s still %s of the non-zero"
            " values become zero. Scales up to %s are safe, but ask first why the gradients are"
            " so small.",
            scale, zero, safe);
        break;
    case ADVISE_TOO_LARGE:
        if (!survey_has_safe(s)) {
            snprintf(d->f16, n, "The largest of these values is beyond even FP32: no scale helps.");
            break;
        }
        snprintf(
            d->f16, n,
            "These values are too large for FP16: the largest is %s, and only a scale of %s"
            " leaves %d bit%s below 65504; without one, %s of the non-zero values become infinite"
            " and %s zero. Prefer BF16, or clip.",
            largest, scale, a->margin, cli_s((uint64_t)a->margin),
            none(advise_percent(buffers[0], survey_share(s, one->overflow))), zero_now);
        break;
    }
}

void advise_decide(advise *a)
{
    a->advice = (advice){0};
    choose_scale(a);
    say_bad(a);
    say_zeros(a);
    say_f16(a);
    say_bf16(a);
}
