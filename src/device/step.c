/* A plan at work: launches, reports, state.
 *
 * (1) A call with a queue enqueues launches and copies, and waits for nothing, so that it can be
 *     captured. What it needs of the host is in the plan.
 * (2) The ring of reports comes back after every act, whole, to the same pinned memory. A report is
 *     there when its hash fits: one that is half written, or half copied, is not. */
#include "device/device.h"

#include <math.h>
#include <string.h>

static gs_status launch(gs_device_plan *p, gsi_device_kernel kernel, uint32_t blocks, uint64_t seed,
                        uint32_t option, void *queue, gs_error *error)
{
    const gsi_launch l = {kernel, blocks, p->arguments, seed, option};
    const gs_status status =
        blocks == 0 ? GS_OK : p->device->backend->launch(p->device, &l, queue, error);
    if (status == GS_OK)
        p->queue = queue;
    return status;
}

gs_status gs_device_scan(gs_device_plan *p, void *queue, gs_error *error)
{
    return launch(p, GSD_scan, p->chunks, 0, 0, queue, error);
}

gs_status gs_device_fold(gs_device_plan *p, void *queue, gs_error *error)
{
    return launch(p, GSD_fold, 1, 0, 0, queue, error);
}

gs_status gs_device_decide(gs_device_plan *p, void *queue, gs_error *error)
{
    return launch(p, GSD_decide, 1, 0, 0, queue, error);
}

gs_status gs_device_act(gs_device_plan *p, void *queue, gs_error *error)
{
    static const gsi_device_kernel first[] = {
        [GS_SGD] = GSD_sgd, [GS_ADAM] = GSD_adam, [GS_ADAMW] = GSD_adam, [GS_LAMB] = GSD_lamb};
    gs_status status = launch(p, first[p->optim.kind], p->chunks, 0, 0, queue, error);
    if (status == GS_OK && p->optim.kind == GS_LAMB)
        status = launch(p, GSD_lamb_step, p->chunks, 0, 0, queue, error);
    if (status == GS_OK)
        status = p->device->backend->read(p->device, p->arrived, p->arguments[GSD_ARG_REPORTS],
                                          GSD_REPORTS * sizeof(gsd_report), false, queue, error);
    return status;
}

gs_status gs_device_step(gs_device_plan *p, void *queue, gs_error *error)
{
    if (p->ranks > 1)
        return gsi_fail(
            error, GS_ESTATE,
            "with %u ranks a step is scan, fold, a gather by the caller, decide and act", p->ranks);
    gs_status status = gs_device_scan(p, queue, error);
    if (status == GS_OK)
        status = gs_device_decide(p, queue, error);
    return status == GS_OK ? gs_device_act(p, queue, error) : status;
}

gs_status gs_device_cast(gs_device_plan *p, void *queue, gs_error *error)
{
    return launch(p, GSD_cast, p->chunks, 0, 0, queue, error);
}

gs_status gs_device_cast_stochastic(gs_device_plan *p, uint64_t seed, void *queue, gs_error *error)
{
    return launch(p, GSD_cast, p->chunks, seed, 1, queue, error);
}

/* ---- what is where ---- */

gs_device_ptr gs_device_plan_words(const gs_device_plan *p) { return p->arguments[GSD_ARG_STATE]; }
gs_device_ptr gs_device_plan_gathered(const gs_device_plan *p)
{
    return p->arguments[GSD_ARG_GATHERED];
}

gs_device_ptr gs_device_plan_slot(const gs_device_plan *p, size_t t, gs_slot slot)
{
    if (t >= p->n || (slot != GS_SLOT_M && slot != GS_SLOT_V))
        return (gs_device_ptr){0};
    return p->slots[2 * t + (slot == GS_SLOT_V)];
}

/* ---- reports ---- */

/* The ring holds 64; a reader who comes later than that goes on with the oldest that is there. */
int gs_device_poll(gs_device_report *report, gs_device_plan *p)
{
    gsd_report best = {0};
    for (uint32_t i = 0; i < GSD_REPORTS; i++) {
        gsd_report r;
        memcpy(&r, &p->arrived[i], sizeof r);
        if (r.step > p->polled && (best.step == 0 || r.step < best.step) &&
            r.check == gsd_report_hash(&r))
            best = r;
    }
    if (best.step == 0)
        return 0;
    p->polled = best.step;
    *report = (gs_device_report){
        .step = best.step,
        .scale = best.scale,
        .stats = best.stats,
        .optim = {.verdict = {(gs_action)best.action, (gs_reason)best.reason, best.next_scale, 1},
                  .norm = best.norm,
                  .clip = best.clip,
                  .lr = best.lr,
                  .weight_amax = (double)gsd_float(best.weight_top)},
        .exhausted = best.exhausted != 0};
    return 1;
}

/* ---- state ---- */

gs_status gs_device_save(gs_scaler *scaler, gs_optim_state *state, gs_device_plan *p, void *queue,
                         gs_error *error)
{
    gsd_state s;
    const gs_status status = p->device->backend->read(p->device, &s, p->arguments[GSD_ARG_STATE],
                                                      sizeof s, true, queue, error);
    if (status != GS_OK)
        return status;
    if (scaler)
        *scaler = s.scaler;
    if (state)
        *state = (gs_optim_state){.applied = s.applied,
                                  .skipped = s.skipped,
                                  .lr_set = p->lr_set,
                                  .lr = p->lr_set ? p->lr : 0};
    return GS_OK;
}
