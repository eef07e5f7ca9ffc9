/* What a run came to, in numbers. */
#include "cli/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* NaN if there is none. The first step warms caches and threads: it counts only if it is alone. */
static double median_rate(const report_run *run)
{
    float *rates = cli_resize(NULL, run->n * sizeof *rates);
    size_t n = 0;
    for (size_t i = run->n > 1; i < run->n; i++)
        if (run->steps[i].rate > 0)
            rates[n++] = run->steps[i].rate;
    if (n > 0)
        qsort(rates, n, sizeof *rates, by_value);
    const double median = n > 0 ? (double)rates[n / 2] : (double)NAN;
    free(rates);
    return median;
}

/* The mean of the last twentieth of n steps, 100 at most: NaN if one of them is not finite. A batch
 * that was skipped because it has no finite loss did the weights no harm: it counts only if all are
 * such. Other frameworks log no loss of a skipped step, whatever it was: the last that was told
 * counts. */
static double last_loss(const report_run *run, size_t n)
{
    const size_t want = n / 20 > 100 ? 100 : n / 20 > 0 ? n / 20 : 1;
    double sum = 0;
    size_t told = 0;
    for (size_t i = n; i-- > 0 && (n - i <= want || (run->kind && told == 0));) {
        const report_step *s = &run->steps[i];
        if (s->skipped && !isfinite(s->loss))
            continue;
        sum += (double)s->loss;
        told++;
    }
    return told > 0 ? sum / (double)told : (double)NAN;
}

double report_train_loss(const report_run *run) { return last_loss(run, run->n); }

double report_loss_at(const report_run *run, uint64_t step, bool is_validated)
{
    size_t n = run->n, v = run->valids;
    while (n > 0 && run->steps[n - 1].step > step)
        n--;
    while (v > 0 && run->valid[v - 1].step > step)
        v--;
    return !is_validated ? last_loss(run, n) : v > 0 ? run->valid[v - 1].loss : (double)NAN;
}

/* From which step on it was lost. */
static void judge_fate(report_run *run)
{
    run->first_bad = UINT64_MAX;
    if (run->n == 0)
        return;
    const bool stuck = !run->only_skips && run->skipped * 10 > run->n * 9;
    if (!stuck && (!run->has_loss || isfinite(run->loss)))
        return;
    run->fate = stuck ? REPORT_STUCK : REPORT_DIVERGED;
    for (size_t i = 0; i < run->n && run->first_bad == UINT64_MAX; i++)
        if (stuck ? run->steps[i].skipped : !isfinite(run->steps[i].loss))
            run->first_bad = run->steps[i].step;
}

void report_judge(report_run *run)
{
    double underflow = 0, told = 0;
    for (size_t i = 0; i < run->n; i++) {
        const report_step *s = &run->steps[i];
        run->skipped += s->skipped;
        run->retried += s->reruns > 0;
        if (s->forward && run->forward++ == 0)
            run->first_forward = s->step;
        run->bad_losses += run->has_loss && !run->kind && !isfinite(s->loss);
        if (isfinite(s->underflow)) {
            underflow += (double)s->underflow;
            told++;
        }
    }
    run->underflow = told > 0 ? underflow / told : (double)NAN;
    run->rate = median_rate(run);
    run->is_validated = run->valids > 0;
    run->loss = report_loss_at(run, UINT64_MAX, run->is_validated);
    run->accuracy = run->is_validated ? run->valid[run->valids - 1].accuracy : (double)NAN;
    run->bytes = run->memory.n > 0 ? 0 : (double)NAN;
    for (size_t i = 0; i < run->memory.n; i++)
        run->bytes += run->memory.at[i].number;
    judge_fate(run);
}

bool report_is_half(const report_run *run)
{
    const char *precision = report_value(&run->config, "precision");
    return precision ? strcmp(precision, "fp32") != 0 : !run->half || strcmp(run->half, "f32") != 0;
}

bool report_is_running(const report_run *run) { return !run->status && run->tells_end; }

bool report_has_fixed_scale(const report_run *run)
{
    const char *scaler = report_value(&run->config, "scaler");
    return scaler && (strcmp(scaler, "none") == 0 || strcmp(scaler, "guard") == 0 ||
                      strncmp(scaler, "static", 6) == 0);
}

/* ---- numbers as text ---- */

const char *report_percent(char out[32], double share)
{
    const double p = 100 * share;
    snprintf(out, 32,
             !isfinite(p)     ? "not known"
             : p == 0         ? "0"
             : fabs(p) < 1e-4 ? "<0.0001%%"
             : fabs(p) < 0.1  ? "%.1g%%"
             : fabs(p) < 10   ? "%.2g%%"
                              : "%.3g%%",
             p);
    return out;
}

const char *report_number(char out[32], double value)
{
    snprintf(out, 32, isfinite(value) ? "%#.4g" : "not finite", value);
    return out;
}

/* 3 digits and a prefix of 1000s. */
static const char *with_prefix(char out[32], double value, const char *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    size_t i = 0;
    for (; fabs(value) >= 999.5 && i < 5; i++)
        value /= 1000;
    snprintf(out, 32, "%.3g%s%s%s", value, *unit ? " " : "", prefixes[i], unit);
    return out;
}

const char *report_count(char out[32], double value) { return with_prefix(out, value, ""); }

const char *report_bytes(char out[32], double value)
{
    return isfinite(value) ? with_prefix(out, value, "B") : strcpy(out, "not known");
}
