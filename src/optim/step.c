/* A step: scan, decide, then all or nothing.
 *
 * (1) The gradients are read once to be judged, before anything is written.
 * (2) Weights, copies, moments, averages, `applied` and with it Adam's t, the schedule and the
 *     random bits move in act(APPLY) and nowhere else.
 * (3) act() can fail only before it writes: all memory was allocated with the optimizer. */
#include "kernel/fpenv.h"
#include "optim/optim.h"

#include "scaler/scaler.h"

#include <math.h>

/* With a list left out, gradients in two units would be taken for one, an Inf among them for none.
 */
static gs_status check_all_unscaled(const gs_optim *o, const gs_step *step)
{
    uint64_t held = 0;
    for (size_t t = 0; t < o->n; t++)
        held += o->grads[t].count;
    if (step->given.lists > 0 && step->stats.elements < held)
        return gsi_fail(&o->ctx->error, GS_ESTATE,
                        "the step has unscaled %llu elements of gradients, and the optimizer has "
                        "%llu: unscale all of them or none",
                        (unsigned long long)step->stats.elements, (unsigned long long)held);
    return GS_OK;
}

gs_status gs_optim_scan(gs_optim *o, gs_step *step)
{
    gs_stats stats;
    if (!step)
        return gsi_fail(&o->ctx->error, GS_ENULL, "the step is NULL");
    if (!gsi_step_made(step))
        return gsi_step_version(step, &o->ctx->error);
    if (step->unscaled) /* gs_step_unscale has scanned them; now they are in other units */
        return check_all_unscaled(o, step);
    const gs_status status = gs_tensors_scan(o->ctx, o->grads, o->n, &stats);
    if (status == GS_OK)
        gs_step_scan(step, &stats);
    return status;
}

/* As torch.nn.utils.clip_grad_norm_ does it. */
static double clip_of(const gs_optim_config *c, double norm)
{
    const double clip = c->clip_norm / (norm + 1e-6);
    return c->clip_norm > 0 && clip < 1 ? clip : 1;
}

/* The largest |weight| before the step; only Adam's and SGD's decay of half moments asks. */
static gs_status largest_weight(double *out, gs_optim *o)
{
    gs_stats stats;
    const gs_optim_config *c = &o->config;
    const bool added = c->kind == GS_SGD || c->kind == GS_ADAM;
    *out = 0;
    if (c->moments != GS_F16 || o->most_decay == 0 || !added)
        return GS_OK;
    const gs_status status = gs_tensors_check(o->ctx, o->data, o->n, &stats);
    *out = (double)stats.amax;
    return status;
}

static gs_status apply(gs_optim *o, const gs_step *step, double factor, gs_optim_report *report)
{
    const gs_optim_config *c = &o->config;
    const double inverse = step->inverse * factor;
    const double unscale = report->clip * (step->unscaled ? factor : inverse);
    double weight;
    if (c->moments == GS_F16 && !step->amax_known)
        return gsi_fail(&o->ctx->error, GS_ESTATE,
                        "moments in f16 need the largest gradient, and nothing was scanned for it");
    if (c->clip_norm > 0 && step->stats.sumsq == 0 && (step->stats.amax > 0 || !step->amax_known))
        return gsi_fail(&o->ctx->error, GS_ESTATE,
                        "clip_norm needs the sum of squares, and nothing was scanned for it");
    if (!(unscale >= 0 && unscale <= 0x1p+28))
        return gsi_fail(&o->ctx->error, GS_ERANGE,
                        "gradients would be multiplied by %g: a scale below 2^-28 cannot be undone",
                        unscale);
    const gs_status status = largest_weight(&weight, o);
    if (status != GS_OK)
        return status;

    gsi_update u = {.optim = o,
                    .unscale = unscale,
                    .lr = report->lr,
                    .amax = (double)step->stats.amax * inverse * report->clip,
                    .t = o->state.applied + 1,
                    .limit = c->clip_value > 0 ? (float)c->clip_value : INFINITY};
    if (u.amax > (double)u.limit)
        u.amax = (double)u.limit;
    u.amax += o->most_decay * weight;
    gsi_apply(&u);
    o->state.applied++;
    for (size_t t = 0; t < o->n; t++)
        o->own[t].steps += gsi_has_grad(o, t);
    uint32_t top = 0;
    for (size_t i = 0; i < gsi_cut_chunks(&o->cut); i++)
        top = o->results[i].top > top ? o->results[i].top : top;
    report->weight_amax = (double)gsi_float(top);
    return GS_OK;
}

static gs_status act(gs_optim *o, const gs_step *step, gs_verdict verdict, gs_optim_report *report)
{
    const double norm = sqrt(step->stats.sumsq) * step->inverse * verdict.factor;
    const double lr = gs_optim_lr(o) * gs_schedule_factor(&o->config.schedule, o->state.applied);
    *report = (gs_optim_report){
        .verdict = verdict, .norm = norm, .clip = clip_of(&o->config, norm), .lr = lr};
    if (!gs_stats_finite(&step->stats))
        report->norm = (double)(step->stats.nan ? NAN : INFINITY);
    if (verdict.action == GS_APPLY)
        return apply(o, step, verdict.factor, report);
    o->state.skipped += verdict.action != GS_RETRY;
    o->state.retried += verdict.action == GS_RETRY;
    if (o->config.clear_grads)
        gs_optim_clear_grads(o);
    return GS_OK;
}

gs_status gs_optim_act(gs_optim *o, const gs_step *step, gs_verdict verdict,
                       gs_optim_report *report)
{
    gs_optim_report unread;
    if (!step)
        return gsi_fail(&o->ctx->error, GS_ENULL, "the step is NULL");
    if (!gsi_step_made(step))
        return gsi_step_version(step, &o->ctx->error);
    const uint64_t env = gsi_fpenv_enter(); /* settings are rounded, too, by our mode */
    const gs_status status = act(o, step, verdict, report ? report : &unread);
    gsi_fpenv_leave(env);
    return status;
}

gs_status gs_optim_step(gs_optim *o, gs_step *step, gs_scaler *scaler, gs_optim_report *report)
{
    if (!scaler)
        return gsi_fail(&o->ctx->error, GS_ENULL, "the scaler is NULL");
    if (!step)
        return gsi_fail(&o->ctx->error, GS_ENULL, "the step is NULL");
    if (!gsi_step_made(step))
        return gsi_step_version(step, &o->ctx->error);
    if (!gsi_scaler_made(scaler))
        return gsi_scaler_version(scaler, &o->ctx->error);
    if (step->ended)
        return gsi_fail(&o->ctx->error, GS_ESTATE, "the step has ended: begin another");
    const gs_step before = *step;
    gs_status status = gs_optim_scan(o, step);
    if (status == GS_OK)
        status = gs_optim_act(o, step, gs_step_decide(step, scaler), report);
    if (status == GS_OK)
        gs_step_end(step, scaler);
    else
        *step = before;
    return status;
}
