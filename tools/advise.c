/* What the counts mean: the largest safe scale, and the sentences. */
#include "advise.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F16_MAX 65504.0

/* Shares of the nonzero values. A loss of one in ten thousand is below what anyone has measured to
 * matter (the zeros of a ReLU alone are thousands of times that); one in a hundred is not. */
static const double NEGLIGIBLE = 1e-4, SERIOUS = 1e-2;

double survey_share(const survey *s, uint64_t count)
{
    return s->nonzero ? (double)count / (double)s->nonzero : 0;
}

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
        gs_exponents_at(x, GS_F16, k, &s->f16[k]);
        gs_exponents_at(x, GS_BF16, k, &s->bf16[k]);
    }
    if (s->nonzero == 0)
        return;
    s->safe = isfinite(s->amax) ? safe_scale(s->amax) : -GS_BINADES;
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
    const double x = survey_share(sa, sa->f16[0].flushed);
    const double y = survey_share(sb, sb->f16[0].flushed);
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

/* ---- sentences ---- */

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

static void say_bf16(advise *a)
{
    const survey *s = &a->total;
    char lost[24], over[24];
    advice *d = &a->advice;
    const gs_rounding *r = &s->bf16[0];
    const double share = survey_share(s, r->flushed + r->overflow);
    d->bf16_needed = share > NEGLIGIBLE;
    if (s->nonzero == 0)
        snprintf(d->bf16, sizeof d->bf16, "BF16 needs no scaling either.");
    else if (r->flushed + r->overflow == 0)
        snprintf(d->bf16, sizeof d->bf16, "BF16 needs no scaling: it loses none of the values%s.",
                 r->subnormal ? ", though some become subnormal" : "");
    else
        snprintf(
            d->bf16, sizeof d->bf16,
            "BF16 %s: as they are, %s of the nonzero values become zero in it and %s infinite.",
            d->bf16_needed ? "would need a scale too" : "needs no scaling",
            none(advise_percent(lost, survey_share(s, r->flushed))),
            none(advise_percent(over, survey_share(s, r->overflow))));
}

void advise_decide(advise *a)
{
    const survey *s = &a->total;
    advice *d = &a->advice;
    const size_t n = sizeof d->f16;
    char scale[48], safe[48], before[24], after[24], sub[24];
    *d = (advice){0};
    say_bad(a);
    say_bf16(a);
    if (s->nonzero == 0) {
        d->verdict = ADVISE_EMPTY;
        snprintf(d->f16, n,
                 "There is no finite value but zero: nothing can be said about a scale.");
        return;
    }
    /* What is above 2^24 gains nothing that the table could show. */
    const int wanted = s->safe - a->margin;
    d->log2_scale = wanted < GS_MAX_LOG2_SCALE ? wanted : GS_MAX_LOG2_SCALE;
    advise_scale(scale, d->log2_scale, true);
    advise_scale(safe, s->safe, false);
    const double at_one = survey_share(s, s->f16[0].flushed);
    const double sub_one = survey_share(s, s->f16[0].subnormal);
    advise_percent(before, at_one);
    advise_percent(sub, sub_one);
    if (!isfinite(s->amax)) {
        d->verdict = ADVISE_TOO_LARGE;
        snprintf(d->f16, n,
                 "The largest value is beyond even FP32: FP16 cannot hold these values.");
        return;
    }
    if (d->log2_scale < 0) {
        d->verdict = ADVISE_TOO_LARGE;
        snprintf(
            d->f16, n,
            "For FP16 use a scale of %s: the largest value, %.4g, %s. Without a scale %s of the"
            " nonzero values become zero already, so BF16 or clipping may serve better.",
            scale, (double)s->amax,
            s->safe < 0 ? "overflows it at scale 1" : "leaves too little room at scale 1", before);
        return;
    }
    const double left = survey_share(s, s->f16[d->log2_scale].flushed);
    advise_percent(after, left);
    if (at_one <= NEGLIGIBLE && sub_one <= SERIOUS) {
        d->verdict = ADVISE_NO_NEED;
        d->log2_scale = 0;
        snprintf(d->f16, n,
                 "FP16 needs no scaling here: %s of the nonzero values become zero and %s subnormal"
                 " without it; scales up to %s are safe.",
                 none(before), none(sub), safe);
        return;
    }
    char sub_after[24];
    advise_percent(sub_after, survey_share(s, s->f16[d->log2_scale].subnormal));
    d->verdict = left > SERIOUS ? ADVISE_TOO_WIDE : ADVISE_SCALE;
    snprintf(
        d->f16, n,
        "For FP16 use a scale of %s: of the nonzero values %s become zero instead of %s, and %s"
        " subnormal instead of %s; %d bits are left below 65504%s.",
        scale, none(after), none(before), none(sub_after), none(sub), s->safe - d->log2_scale,
        d->verdict == ADVISE_TOO_WIDE
            ? ". That is still a serious loss: prefer BF16, or a scale for each layer"
            : "");
}
