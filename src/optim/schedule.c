#include "base/rounding.h"
#include "gradscale/optim.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* From 1 at x = 0 to 0 at x = 1. */
static double half_cosine(double x) { return 0.5 * (1 + cos(pi * x)); }

/* x in 0..1 is how far the part after the warm-up has come; after is its steps so far. */
typedef double after_fn(const gs_schedule *s, double x, uint64_t after);

static double constant(const gs_schedule *s, double x, uint64_t after)
{
    (void)s, (void)x, (void)after;
    return 1;
}

static double linear(const gs_schedule *s, double x, uint64_t after)
{
    (void)after;
    return 1 - x * (1 - s->final);
}

static double cosine(const gs_schedule *s, double x, uint64_t after)
{
    (void)after;
    return s->final + (1 - s->final) * half_cosine(x);
}

static double step(const gs_schedule *s, double x, uint64_t after)
{
    (void)x;
    return pow(s->gamma, (double)(after / (s->every > 0 ? s->every : 1)));
}

static double linear_rise(double x) { return x; }
static double cosine_rise(double x) { return 1 - (1 - 1.0 / 25) * half_cosine(x); }

static const struct {
    double (*rise)(double x); /* the warm-up */
    after_fn *after;
} schedules[] = {
    [GS_SCHEDULE_CONSTANT] = {linear_rise, constant}, [GS_SCHEDULE_LINEAR] = {linear_rise, linear},
    [GS_SCHEDULE_COSINE] = {linear_rise, cosine},     [GS_SCHEDULE_STEP] = {linear_rise, step},
    [GS_SCHEDULE_ONECYCLE] = {cosine_rise, cosine},
};

double gs_schedule_factor(const gs_schedule *s, uint64_t t)
{
    if ((unsigned)s->kind >= GS_SCHEDULE_COUNT)
        return 1;
    if (t < s->warmup) /* the first step already moves */
        return schedules[s->kind].rise(((double)t + 1) / ((double)s->warmup + 1));
    const uint64_t after = t - s->warmup, length = s->total > s->warmup ? s->total - s->warmup : 0;
    const double x = length == 0 || after >= length ? 1 : (double)after / (double)length;
    return schedules[s->kind].after(s, x, after);
}
