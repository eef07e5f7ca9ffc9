/* What trainers print. Each line that is known tells of one step or of those since the line before;
 * the rest is passed over. */
#include "cli/logs/logs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t count_of(double x) { return x > 0 && x < 0x1p53 ? (uint64_t)x : 0; }

static uint64_t applied(const logs_reader *r) { return r->step - r->skipped; }

/* A log may begin in the middle of a run: what came before is not made up. */
static void begin_at(logs_reader *r, uint64_t step)
{
    enum { FRESH = 1000 };
    if (r->step == 0 && step > FRESH)
        r->step = step - 1;
}

/* ---- Megatron-LM ----
 *
 *  iteration       20/  1000 | ... | lm loss: 1.01E+01 | loss scale: 4096.0 | grad norm: 13.038 |
 *  number of skipped iterations:   0 | number of nan iterations:   0 |
 *  validation loss at iteration 1000 on validation set | lm loss value: 8.5E+00 | ...
 *
 * Loss and skips are those since the line before; nan iterations are some of the skipped ones. The
 * loss on the test set, at the end, is no validation. GPT-NeoX writes lm_loss. */

static bool megatron_fits(const char *start)
{
    return strstr(start, "number of skipped iterations:") != NULL;
}

static void megatron_line(logs_reader *r)
{
    const double valid = logs_number(r->line, "validation loss at iteration");
    if (valid > 0) {
        if (!strstr(r->line, "on test set"))
            logs_tell_valid(r, count_of(valid), logs_number(r->line, "loss value:"), (double)NAN);
        return;
    }
    const uint64_t step = count_of(logs_number(r->line, "iteration "));
    if (step == 0 || !strstr(r->line, "number of skipped iterations:"))
        return;
    begin_at(r, step);
    if (step <= r->step) /* went on from an earlier checkpoint: the later lines count */
        r->step = step - 1;
    const uint64_t all = step - r->step;
    const uint64_t skipped = count_of(logs_number(r->line, "number of skipped iterations:"));
    static const char *const losses[] = {"lm loss:", "lm_loss:", " loss:"};
    r->loss = (double)NAN;
    for (size_t i = 0; i < sizeof losses / sizeof losses[0] && isnan(r->loss); i++)
        r->loss = logs_number(r->line, losses[i]);
    r->scale = logs_number(r->line, "loss scale:");
    logs_tell_steps(r, skipped < all ? skipped : all, true);
    logs_tell_steps(r, step - r->step - (step > r->step), false);
    if (step > r->step) {
        gs_log_step last = logs_new_step(r, step);
        last.found_inf = 0;
        last.verdict = "apply";
        last.grad_norm = logs_number(r->line, "grad norm:");
        last.lr = logs_number(r->line, "learning rate:");
        logs_tell(r, &last);
    }
}

static int megatron_read(logs_reader *r, const char *path)
{
    (void)path;
    while (logs_next(r))
        megatron_line(r);
    return CLI_GO;
}

const logs_kind logs_megatron = {"Megatron-LM", megatron_fits, megatron_read};

/* ---- DeepSpeed ----
 *
 * ZeRO and its scaler, dynamic or static:
 *  [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
 *  ... Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1
 *  [Rank 0] [deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, ..
 * the fp16 optimizers without ZeRO, which count iterations from 0 (older ones say both):
 *  Grad overflow on iteration 7
 *  Reducing dynamic loss scale from 65536.0 to 32768.0     or: Using static loss scale of: 128.0
 *  Increasing dynamic loss scale from 32768.0 to 65536.0
 * progress, and that of the pipeline engine, which has the loss:
 *  [Rank 0] step=10, skipped=3, lr=[...], mom=[...]
 *  steps: 10 loss: 2.3026 iter time (s): 0.120 samples/sec: 66.700
 *
 * Without lines of progress nobody knows how many steps were applied after the last overflow. */

static const char on_iteration[] = "Grad overflow on iteration";

typedef struct deepspeed {
    logs_reader *r;
    uint64_t until;      /* steps that have been taken; those not told yet were applied */
    uint64_t iterations; /* up to that of the last "Grad overflow"; 0: there is no such line */
    bool pending;        /* that one has not been told: a line with its scale may follow */
} deepspeed;

static bool deepspeed_fits(const char *start)
{
    const char *step = strstr(start, "step=");
    const char *overflow = strstr(start, "verflow! Skipping step. Attempted loss scale:");
    return overflow || strstr(start, "OVERFLOW! Rank ") || strstr(start, "OVERFLOW! Skipping") ||
           strstr(start, on_iteration) || (step && strstr(step, ", skipped="));
}

static void deepspeed_settle(deepspeed *d)
{
    if (d->until > d->r->step)
        logs_tell_steps(d->r, d->until - d->r->step, false);
    d->until = 0;
}

/* At `scale`, which becomes `next`; NaN: as it was. */
static void deepspeed_skip(deepspeed *d, double scale, double next)
{
    deepspeed_settle(d);
    d->pending = false;
    d->r->scale = scale > 0 ? scale : d->r->scale;
    logs_tell_steps(d->r, 1, true);
    d->r->scale = next > 0 ? next : d->r->scale;
}

static void deepspeed_flush(deepspeed *d)
{
    if (d->pending)
        deepspeed_skip(d, (double)NAN, (double)NAN);
    deepspeed_settle(d);
}

/* "Grad overflow on iteration 7", "... iteration: 7", from every rank. */
static void deepspeed_iteration(deepspeed *d)
{
    const char *number = strstr(d->r->line, on_iteration) + strlen(on_iteration);
    const double at = logs_number(number, *number == ':' ? ": " : " ");
    const uint64_t iteration = count_of(at);
    if (isnan(at) || iteration < d->iterations)
        return;
    deepspeed_flush(d);
    begin_at(d->r, iteration + 1);
    d->until = iteration;
    d->iterations = iteration + 1;
    d->pending = true;
}

static void deepspeed_progress(deepspeed *d)
{
    logs_reader *r = d->r;
    const uint64_t step = count_of(logs_number(r->line, "step="));
    const uint64_t skipped = count_of(logs_number(r->line, ", skipped="));
    const uint64_t done = step > skipped ? step - skipped : 0;
    deepspeed_flush(d);
    begin_at(r, step);
    d->until = r->step + (done > applied(r) ? done - applied(r) : 0);
    r->about->only_skips = false;
}

static void deepspeed_pipeline(deepspeed *d, const char *text)
{
    const uint64_t step = count_of(logs_number(text, "steps: "));
    if (d->pending)
        deepspeed_skip(d, (double)NAN, (double)NAN);
    begin_at(d->r, step);
    d->r->loss = logs_number(text, " loss: ");
    d->until = d->until > d->r->step ? d->until : step;
    d->r->about->only_skips = false;
    deepspeed_settle(d);
}

static void deepspeed_line(deepspeed *d)
{
    logs_reader *r = d->r;
    const char *pipeline = strstr(r->line, "steps: ");
    const char *scale = strstr(r->line, "dynamic loss scale from ");
    const double colon = logs_number(r->line, "Using static loss scale of: ");
    const double fixed = isnan(colon) ? logs_number(r->line, "static loss scale of ") : colon;
    if (strstr(r->line, on_iteration)) {
        deepspeed_iteration(d);
    } else if (strstr(r->line, "Skipping step.")) {
        if (d->pending || d->iterations == 0)
            deepspeed_skip(d, logs_number(r->line, "Attempted loss scale: "),
                           logs_number(r->line, ", reducing to "));
    } else if (d->pending && (scale || !isnan(fixed))) {
        deepspeed_skip(d, scale ? logs_number(scale, " from ") : fixed,
                       scale ? logs_number(scale, " to ") : fixed);
    } else if (scale) {
        const double next = logs_number(scale, " to ");
        r->scale = next > 0 ? next : r->scale;
    } else if (strstr(r->line, ", skipped=")) {
        deepspeed_progress(d);
    } else if (pipeline && strstr(pipeline, " iter time (s): ")) {
        deepspeed_pipeline(d, pipeline);
    }
}

static int deepspeed_read(logs_reader *r, const char *path)
{
    (void)path;
    deepspeed d = {.r = r};
    r->about->only_skips = true;
    while (logs_next(r))
        if (!(logs_number(r->line, "Rank ") > 0)) /* every rank says it */
            deepspeed_line(&d);
    deepspeed_flush(&d);
    return CLI_GO;
}

const logs_kind logs_deepspeed = {"DeepSpeed", deepspeed_fits, deepspeed_read};

/* ---- Apex ----
 *
 *  Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0
 *  Gradient overflow.  Skipping step, reducing loss scale to 32768.0      (its FP16_Optimizer)
 *
 * A scale that is higher than it was left at has been doubled meanwhile, after 2000 clean steps
 * each time. How many there were after the last line nobody knows. */

static const char overflow[] = "Gradient overflow.  Skipping step, ";

static bool apex_fits(const char *start) { return strstr(start, overflow) != NULL; }

static int apex_read(logs_reader *r, const char *path)
{
    enum { WINDOW = 2000 };
    (void)path;
    r->about->only_skips = true;
    while (logs_next(r)) {
        const double next = logs_number(r->line, "reducing loss scale to ");
        if (!strstr(r->line, overflow) || !(next > 0) || logs_number(r->line, "loss scaler ") > 0)
            continue; /* of one scaler, the first */
        const double doublings = isnan(r->scale) ? 0 : round(log2(2 * next / r->scale));
        for (double i = 0; i < fmin(doublings, 64); i++) {
            logs_tell_steps(r, WINDOW, false);
            r->scale *= 2;
        }
        r->scale = isnan(r->scale) ? 2 * next : r->scale;
        logs_tell_steps(r, 1, true);
        r->scale = next;
    }
    return CLI_GO;
}

const logs_kind logs_apex = {"Apex", apex_fits, apex_read};

/* ---- fairseq ----
 *
 *  ... | INFO | train_inner | {"loss": "16.446", "num_updates": "2", "gnorm": "19.8", ...}
 *  ... NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 2.0
 *
 * num_updates counts steps that were applied. A log without the notes tells of overflows by a scale
 * that is lower than in the line before. */

static const char ignored[] = "gradient overflow detected, ignoring gradient";

static bool fairseq_fits(const char *start)
{
    return strstr(start, ignored) || strstr(start, "\"num_updates\": \"");
}

static void fairseq_numbers(logs_reader *r, const json_t *row)
{
    const double valid = logs_member(row, "valid_loss"), loss = logs_member(row, "loss");
    const uint64_t updates = count_of(logs_member(row, "num_updates"));
    if (!isnan(valid))
        logs_tell_valid(r, r->step, valid, (double)NAN);
    if (updates == 0 || isnan(loss))
        return;
    begin_at(r, updates);
    r->loss = loss;
    const double scale = logs_member(row, "loss_scale");
    for (int i = 0; updates > applied(r) && scale > 0 && r->scale > scale && i < 64; i++) {
        logs_tell_steps(r, 1, true);
        r->scale /= 2;
    }
    r->scale = scale;
    if (updates <= applied(r))
        return;
    logs_tell_steps(r, updates - applied(r) - 1, false);
    gs_log_step last = logs_new_step(r, r->step + 1);
    last.found_inf = 0;
    last.verdict = "apply";
    last.grad_norm = logs_member(row, "gnorm");
    last.lr = logs_member(row, "lr");
    logs_tell(r, &last);
}

static int fairseq_read(logs_reader *r, const char *path)
{
    (void)path;
    r->about->only_skips = true;
    while (logs_next(r)) {
        const char *object = strchr(r->line, '{');
        if (strstr(r->line, ignored)) {
            const double next = logs_number(r->line, "setting loss scale to: ");
            r->scale = 2 * next;
            logs_tell_steps(r, 1, true);
            r->scale = next;
        } else if (object) {
            json_t *row = logs_json(object);
            fairseq_numbers(r, row);
            r->about->only_skips &= isnan(logs_member(row, "num_updates"));
            json_decref(row);
        }
    }
    return CLI_GO;
}

const logs_kind logs_fairseq = {"fairseq", fairseq_fits, fairseq_read};
