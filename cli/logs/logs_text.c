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
 *
 * Loss and skips are those since the line before. */

static bool megatron_fits(const char *start)
{
    return strstr(start, "number of skipped iterations:") != NULL;
}

static void megatron_line(logs_reader *r)
{
    const double valid = logs_number(r->line, "validation loss at iteration");
    if (valid > 0) {
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
    const uint64_t skipped = count_of(logs_number(r->line, "number of skipped iterations:")) +
                             count_of(logs_number(r->line, "number of nan iterations:"));
    const double loss = logs_number(r->line, "lm loss:");
    r->loss = isnan(loss) ? logs_number(r->line, " loss:") : loss;
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
 *  [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
 *  ... Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1
 *  [Rank 0] step=10, skipped=3, lr=[...], mom=[...]
 *
 * Without lines of the third kind nobody knows how many steps were applied. */

static const char attempted[] = "Skipping step. Attempted loss scale: ";

static bool deepspeed_fits(const char *start)
{
    const char *step = strstr(start, "step=");
    return strstr(start, attempted) || (step && strstr(step, ", skipped="));
}

static int deepspeed_read(logs_reader *r, const char *path)
{
    (void)path;
    r->about->only_skips = true;
    while (logs_next(r)) {
        const double rank = logs_number(r->line, "Rank ");
        const double scale = logs_number(r->line, attempted);
        const double next = logs_number(r->line, ", reducing to ");
        if (rank > 0) /* every rank says it */
            continue;
        if (scale > 0) {
            r->scale = scale;
            logs_tell_steps(r, 1, true);
            r->scale = next > 0 ? next : scale;
        } else if (strstr(r->line, ", skipped=")) {
            const uint64_t step = count_of(logs_number(r->line, "step="));
            const uint64_t skipped = count_of(logs_number(r->line, ", skipped="));
            const uint64_t done = step > skipped ? step - skipped : 0;
            begin_at(r, step);
            logs_tell_steps(r, done > applied(r) ? done - applied(r) : 0, false);
            r->about->only_skips = false;
        }
    }
    return CLI_GO;
}

const logs_kind logs_deepspeed = {"DeepSpeed", deepspeed_fits, deepspeed_read};

/* ---- Apex ----
 *
 *  Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0
 *
 * A scale that is higher than it was left at has been doubled meanwhile, after 2000 clean steps
 * each time. How many there were after the last line nobody knows. */

static const char overflow[] = "Gradient overflow.  Skipping step, loss scaler ";

static bool apex_fits(const char *start) { return strstr(start, overflow) != NULL; }

static int apex_read(logs_reader *r, const char *path)
{
    enum { WINDOW = 2000 };
    (void)path;
    r->about->only_skips = true;
    while (logs_next(r)) {
        const double next = logs_number(r->line, "reducing loss scale to ");
        if (!strstr(r->line, overflow) || !(next > 0) || logs_number(r->line, overflow) > 0)
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
 * num_updates counts steps that were applied. */

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
    r->scale = logs_member(row, "loss_scale");
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
