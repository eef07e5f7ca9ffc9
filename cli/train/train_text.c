/* What people see of a run: heading, progress, summary. */
#include "cli/train/ranks.h"
#include "cli/train/train.h"

#include <math.h>
#include <string.h>

/* What is counted, in words. */
static const char *unit_of(const train_job *j)
{
    return j->info->task == GS_TASK_TOKENS ? "tokens" : j->info->height == 1 ? "rows" : "images";
}

/* What is trained on: n of them. */
static const char *items_of(const train_job *j, uint64_t n)
{
    const bool rows = j->info->height == 1;
    return j->info->time ? (n == 1 ? "piece of text" : "pieces of text")
           : rows        ? (n == 1 ? "row" : "rows")
                         : (n == 1 ? "image" : "images");
}

/* No more than there are: a step sees none of them twice. */
static uint64_t items_of_a_step(const train_job *j)
{
    const uint64_t n = j->o.batch * j->o.accumulate * (uint64_t)j->comm.size;
    const uint64_t all = j->info->items[GS_SPLIT_TRAIN];
    return n < all ? n : all;
}

const char *train_time_text(char text[48], double seconds)
{
    const unsigned long long s = (unsigned long long)(seconds < 1e15 ? seconds + 0.5 : 1e15);
    if (seconds < 10)
        snprintf(text, 48, "%.1f s", seconds);
    else if (s < 100)
        snprintf(text, 48, "%llu s", s);
    else if (s < 6000)
        snprintf(text, 48, "%llu min %llu s", s / 60, s % 60);
    else
        snprintf(text, 48, "%llu h %llu min", s / 3600, s / 60 % 60);
    return text;
}

/* Scales are powers of two, as a rule. */
static const char *scale_text(char text[48], double scale)
{
    int exponent;
    if (frexp(scale, &exponent) == 0.5 && fabs((double)exponent) > 4)
        snprintf(text, 48, "2^%d", exponent - 1);
    else
        snprintf(text, 48, "%.6g", scale);
    return text;
}

void train_show_job(const train_job *j)
{
    static const char *const precisions[] = {"fp16", "bf16", "fp32"};
    const train_options *o = &j->o;
    char train[32] = "endless", epochs[48] = "";
    if (j->info->items[GS_SPLIT_TRAIN] != UINT64_MAX)
        snprintf(train, sizeof train, "%llu", (unsigned long long)j->info->items[GS_SPLIT_TRAIN]);
    if (j->epoch_steps > 0)
        snprintf(epochs, sizeof epochs, ", %.3g epoch%s", (double)o->steps / (double)j->epoch_steps,
                 o->steps == j->epoch_steps ? "" : "s");
    char model[sizeof j->line + 32];
    snprintf(model, sizeof model, "%s, %llu weights", j->line,
             (unsigned long long)train_job_parameters(j));
    cli_clean(model);
    printf("model      ");
    cli_wrap(model, 11, 11);
    const uint64_t held = j->info->items[GS_SPLIT_VALID];
    const uint64_t checked = o->valid_items < held ? o->valid_items : held;
    char data[512], valid[48] = "";
    if (checked > 0)
        snprintf(valid, sizeof valid, ", %llu to validate with", (unsigned long long)checked);
    snprintf(data, sizeof data, "%.200s: %s %s to train on%s", j->info->name, train,
             items_of(j, j->info->items[GS_SPLIT_TRAIN]), valid);
    cli_clean(data);
    printf("data       ");
    cli_wrap(data, 11, 11);
    cli_print("precision  %s in mode O%d, scaler %s%s%s\n", precisions[o->precision], o->mode - 1,
              o->scaler, o->on_overflow ? ", on overflow " : "",
              o->on_overflow ? o->on_overflow : "");
    if (o->quantize)
        cli_print("quantised  products of INT8 %s, ranges by %s\n",
                  train_quantize(o) == GS_QUANTIZE_QAT ? "in training and validation"
                                                       : "in validation",
                  o->ranges);
    cli_print("training   %llu step%s of %llu%s, %s at %g, %s\n", (unsigned long long)o->steps,
              cli_s(o->steps), (unsigned long long)items_of_a_step(j), epochs, o->optimizer, o->lr,
              o->schedule);
    cli_flush();
}

void train_show_folder(const train_job *j)
{
    char all[48], one[48];
    if (!j->o.checkpoint)
        return;
    const train_disk d = train_disk_of(j);
    cli_print("folder     %s\n", j->o.checkpoint);
    printf("disk       up to %s: %llu checkpoint%s of %s%s\n", cli_bytes_text(all, d.all),
           (unsigned long long)d.files, cli_s(d.files), cli_bytes_text(one, d.one),
           j->o.keep > 0 && d.files > j->o.keep ? ", the newest and the best" : "");
}

/* Of several ranks, what one of them holds. */
static void print_ranks(const train_job *j)
{
    static const char *const wires[] = {"fp32", "fp16", "bf16"};
    const gs_held held = gs_trainer_held(j->trainer);
    char sums[4][48];
    printf("ranks      %d of %u thread%s%s, gradients are sent in %s\n", j->comm.size,
           gs_context_threads(j->ctx), cli_s(gs_context_threads(j->ctx)),
           j->o.zero ? ", ZeRO-1" : "", wires[j->o.compress]);
    printf("memory     %s per rank: weights %s, optimizer %s, gradients %s\n",
           cli_bytes_text(sums[0], held.weights + held.optimizer + held.gradients),
           cli_bytes_text(sums[1], held.weights), cli_bytes_text(sums[2], held.optimizer),
           cli_bytes_text(sums[3], held.gradients));
}

void train_show_heading(const train_job *j)
{
    train_show_job(j);
    train_show_folder(j);
    if (j->comm.size > 1)
        print_ranks(j);
    if (j->about.step > 0)
        cli_print("resumed    after step %llu%s%s\n", (unsigned long long)j->about.step,
                  j->changes[0] ? ", with " : "", j->changes);
    else if (j->o.resume)
        cli_print("resumed    at the beginning: %.200s has no checkpoint yet\n", j->o.checkpoint);
    cli_flush();
}

/* ---- progress ---- */

uint64_t train_skipped(const train_job *j)
{
    const gs_counters *c = &gs_trainer_scaler(j->trainer)->counters;
    uint64_t sum = 0;
    for (int i = 0; i < GS_REASON_COUNT; i++)
        sum += c->skipped[i];
    return sum;
}

void train_show_progress(const train_job *j, const train_result *r, const gs_log_step *step)
{
    static const double interval = 5; /* s between plain lines */
    static double last;
    char scale[48];
    const double time = gs_clock();
    const bool bar = cli_has_progress();
    if (last == 0)
        last = time;
    if (!bar && time - last < interval)
        return;
    last = time;
    const unsigned long long n = step->step, all = j->o.steps, skipped = train_skipped(j);
    scale_text(scale, step->scale);
    if (bar)
        cli_progress((double)(n - r->first), (double)(all - r->first),
                     "%llu/%llu  loss %.4f  scale %s  skip %llu  %.0f/s", n, all, r->shown, scale,
                     skipped, 1 / r->pace);
    else
        fprintf(stderr, "step %llu of %llu: loss %.4f, scale %s, %llu skipped, %.0f %s/s\n", n, all,
                r->shown, scale, skipped, 1 / r->pace, unit_of(j));
}

void train_show_valid(const train_job *j, double loss, double accuracy, bool best)
{
    char right[48] = "", number[48] = "not finite";
    cli_progress_end();
    if (!isnan(accuracy))
        snprintf(right, sizeof right, ", %.2f%% right", 100 * accuracy);
    if (isfinite(loss))
        snprintf(number, sizeof number, "%.4f", loss);
    fprintf(stderr, "step %llu: validation loss %s%s%s\n", (unsigned long long)j->about.step,
            number, right, best ? ", the best so far" : "");
}

/* ---- the end ---- */

void train_show_summary(const train_job *j, const train_result *r)
{
    const gs_counters *c = &gs_trainer_scaler(j->trainer)->counters;
    const train_options *o = &j->o;
    const uint64_t steps = j->about.step - r->first;
    char took[48], scale[48];
    cli_progress_end();
    printf("%-10s at step %llu of %llu", train_ending_name(r->ending),
           (unsigned long long)j->about.step, (unsigned long long)o->steps);
    if (!isnan(r->loss))
        printf(", loss %.4f", r->loss);
    if (!isnan(r->accuracy))
        printf(", %.2f%% right", 100 * r->accuracy);
    if (!isnan(j->about.best) && j->about.best_step != j->about.step)
        printf(j->info->task == GS_TASK_CLASSES ? "\nbest       %.2f%% right at step %llu"
                                                : "\nbest       loss %.4f at step %llu",
               j->info->task == GS_TASK_CLASSES ? 100 * j->about.best : j->about.best,
               (unsigned long long)j->about.best_step);
    printf("\nsteps      %llu applied, %llu skipped, %llu retr%s; the scale is %s\n",
           (unsigned long long)c->applied, (unsigned long long)train_skipped(j),
           (unsigned long long)c->retried, c->retried == 1 ? "y" : "ies",
           scale_text(scale, gs_scaler_scale(gs_trainer_scaler(j->trainer))));
    const unsigned long long forward = c->skipped[GS_REASON_FORWARD];
    if (forward > 0) {
        char text[160];
        const int n = snprintf(text, sizeof text,
                               "%llu step%s skipped: the loss was not finite before scaling",
                               forward, forward == 1 ? " was" : "s were");
        if (r->first == 0)
            snprintf(text + n, sizeof text - (size_t)n, ", first at step %llu",
                     (unsigned long long)r->first_bad);
        printf("bad loss   ");
        cli_wrap(text, 11, 11);
    }
    const double stepping = r->seconds - r->phases[TRAIN_VALID];
    if (steps > 0)
        printf("speed      %.0f %s/s, %.2f ms per step; %s in all\n", (double)r->items / stepping,
               unit_of(j), 1e3 * stepping / (double)steps, train_time_text(took, r->seconds));
    if (j->comm.size > 1 && steps > 0)
        printf("network    each rank sent %s per step; %.1f%% of the time it waited for others\n",
               cli_bytes_text(took, r->sent / steps), 100 * r->phases[GS_PHASE_COMM] / stepping);
    const struct {
        const char *what, *path;
    } files[] = {{"log", r->lost_logs & GS_LOGGER_JSON ? NULL : o->log},
                 {"csv", r->lost_logs & GS_LOGGER_CSV ? NULL : o->csv},
                 {"events", r->lost_logs & GS_LOGGER_TENSORBOARD ? NULL : o->tensorboard},
                 {"report", r->reported ? o->report : NULL}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (files[i].path)
            cli_print("%-10s %s\n", files[i].what, files[i].path);
    if (r->saved > 0)
        cli_print("saved      %s/step-%08llu.safetensors\n", o->checkpoint,
                  (unsigned long long)r->saved);
    if (o->checkpoint)
        cli_print("disk       %s in %s\n", cli_bytes_text(took, train_folder_bytes(o->checkpoint)),
                  o->checkpoint);
    if (r->ending == TRAIN_STOPPED && o->checkpoint)
        cli_print("go on      gradscale train --resume %s\n", o->checkpoint);
    else if (r->ending == TRAIN_STOPPED)
        printf("saved      nothing: --no-save was given\n");
}
