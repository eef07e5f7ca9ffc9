/* State in and out: as it is stored, for checkpoints; in true units, for another program's.
 *
 * Moments in f16 are stored times 2^exponent, one for all weights, and bound is the largest of them
 * in true units: both hold after every call here. */
#include "optim/optim.h"

#include <math.h>

enum { BLOCK = 1024 }; /* elements */

static gs_status check_steps(const gs_optim *o, uint64_t steps)
{
    if (steps > (uint64_t)1 << 53) /* t is a power and a double */
        return gsi_fail(&o->ctx->error, GS_ERANGE, "no run has applied %llu steps",
                        (unsigned long long)steps);
    return GS_OK;
}

const char *gs_slot_name(gs_slot slot)
{
    static const char *const names[] = {
#define X(id, name) name,
        GS_SLOTS(X)
#undef X
    };
    return (unsigned)slot < GS_SLOT_COUNT ? names[slot] : NULL;
}

gs_tensor gs_optim_slot(gs_optim *o, size_t t, gs_slot slot)
{
    if (t >= o->n || (unsigned)slot >= GS_SLOT_COUNT)
        return (gs_tensor){0};
    return *gsi_slot_of(o, t, slot);
}

/* ---- counters ---- */

gs_optim_state gs_optim_get_state(const gs_optim *optim) { return optim->state; }

gs_status gs_optim_set_state(gs_optim *o, const gs_optim_state *state)
{
    if (!state)
        return gsi_fail(&o->ctx->error, GS_ENULL, "the state is NULL");
    gs_status status = check_steps(o, state->applied);
    if (status == GS_OK && state->lr_set)
        status = gsi_check_lr(o, state->lr);
    for (int k = 0; status == GS_OK && k < 2; k++) {
        if (!(state->bound[k] >= 0 && state->bound[k] <= DBL_MAX))
            status =
                gsi_fail(&o->ctx->error, GS_ERANGE, "the bound of a moment is %g", state->bound[k]);
        else if (state->exponent[k] < -GSI_EXPONENT || state->exponent[k] > GSI_EXPONENT)
            status = gsi_fail(&o->ctx->error, GS_ERANGE, "the scale of a moment is 2^%d",
                              (int)state->exponent[k]);
    }
    if (status != GS_OK)
        return status;
    o->state = *state;
    return gs_optim_set_steps(o, state->applied);
}

uint64_t gs_optim_steps(const gs_optim *o) { return o->state.applied; }

gs_status gs_optim_set_steps(gs_optim *o, uint64_t steps)
{
    const gs_status status = check_steps(o, steps);
    if (status != GS_OK)
        return status;
    o->state.applied = steps;
    for (size_t t = 0; t < o->n; t++)
        o->own[t].steps = steps;
    return GS_OK;
}

uint64_t gs_optim_weight_steps(const gs_optim *o, size_t t)
{
    return t < o->n ? o->own[t].steps : 0;
}

gs_status gs_optim_set_weight_steps(gs_optim *o, size_t t, uint64_t steps)
{
    if (t >= o->n)
        return gsi_fail(&o->ctx->error, GS_ERANGE, "there is no weight %zu: there are %zu", t,
                        o->n);
    const gs_status status = check_steps(o, steps);
    if (status == GS_OK)
        o->own[t].steps = steps;
    return status;
}

/* ---- slots in true units ---- */

/* 0 or 1: m or v in a half type, scaled; -1: any other. */
static int half_moment(const gs_optim *o, gs_slot slot)
{
    return o->config.moments == GS_F32 ? -1 : slot == GS_SLOT_M ? 0 : slot == GS_SLOT_V ? 1 : -1;
}

static gs_status check_slot(const gs_optim *o, size_t t, gs_slot slot, const float *values,
                            size_t count)
{
    if (t >= o->n || (unsigned)slot >= GS_SLOT_COUNT)
        return gsi_fail(&o->ctx->error, GS_ERANGE, "there is no slot %d of a weight %zu", (int)slot,
                        t);
    const size_t held = gsi_slot_of(o, t, slot)->count;
    if (count != held)
        return gsi_fail(&o->ctx->error, GS_ESIZE, "slot %s of weight %s has %zu elements, not %zu",
                        gs_slot_name(slot), o->weights[t].name, held, count);
    if (count > 0 && !values)
        return gsi_fail(&o->ctx->error, GS_ENULL, "slot %s of weight %s: the values are NULL",
                        gs_slot_name(slot), o->weights[t].name);
    return GS_OK;
}

gs_status gs_optim_read_slot(float *out, const gs_optim *o, size_t t, gs_slot slot, size_t count)
{
    const gs_status status = check_slot(o, t, slot, out, count);
    if (status != GS_OK)
        return status;
    const gs_tensor *x = gsi_slot_of(o, t, slot);
    const int half = half_moment(o, slot);
    const float scale = half < 0 ? 1 : (float)ldexp(1, -o->state.exponent[half]);
    for (size_t i = 0; i < count; i++) {
        const float value = gsi_float(gsi_element(x->data, x->dtype, i)) * scale;
        out[i] = half == 1 ? value * value : value;
    }
    return GS_OK;
}

/* As the slot holds it, before its scale: what is tiny is zero, v perhaps its root. */
static float stored(float x, gs_slot slot, int half)
{
    if (slot == GS_SLOT_M)
        return gsi_bits(x) & GSI_KEEP ? x : 0;
    if (slot != GS_SLOT_V)
        return x;
    x = gsi_bits(x) & GSI_TERM ? x : 0;
    return half == 1 ? sqrtf(x) : x;
}

/* The largest magnitude the slot can hold, in true units; of v in half types, its root. */
static float limit_of(const gs_tensor *x, int half)
{
    static const float limits[] = {[GS_F32] = FLT_MAX, [GS_F16] = 65504, [GS_BF16] = 0x1.FEp+127f};
    return half >= 0 && x->dtype == GS_F16 ? 0x1p+74f /* at 2^-GSI_EXPONENT */ : limits[x->dtype];
}

/* The scale of moments in f16 follows `most`, the largest of what will be written. */
static void follow_scale(gs_optim *o, int which, gs_slot slot, float most)
{
    const double old = o->state.bound[which];
    const int before = o->state.exponent[which];
    if (o->config.moments != GS_F16 || (double)most <= old)
        return;
    const int fits = gsi_moment_exponent((double)most);
    o->state.bound[which] = (double)most;
    if (old > 0 && fits >= before)
        return;
    o->state.exponent[which] = fits;
    for (size_t t = 0; old > 0 && t < o->n; t++) {
        const gs_tensor *x = gsi_slot_of(o, t, slot);
        if (x->count)
            o->ctx->kernels.pass.scale[GS_F16][GS_F16](x->data, x->data, x->count,
                                                       (float)ldexp(1, fits - before), false);
    }
}

gs_status gs_optim_write_slot(gs_optim *o, size_t t, gs_slot slot, const float *values,
                              size_t count)
{
    const gs_status status = check_slot(o, t, slot, values, count);
    if (status != GS_OK)
        return status;
    const gs_tensor *x = gsi_slot_of(o, t, slot);
    const int half = half_moment(o, slot);
    const bool squares = slot == GS_SLOT_V || slot == GS_SLOT_ROW || slot == GS_SLOT_COL;
    const float limit = limit_of(x, half);
    float most = 0;
    for (size_t i = 0; i < count; i++) {
        const float size = fabsf(stored(values[i], slot, half));
        if (!(size <= limit) || (squares && values[i] < 0)) /* nor a NaN */
            return gsi_fail(&o->ctx->error, GS_ERANGE, "element %zu of slot %s of weight %s is %g",
                            i, gs_slot_name(slot), o->weights[t].name, (double)values[i]);
        most = size > most ? size : most;
    }
    if (half >= 0)
        follow_scale(o, half, slot, most);
    const float scale = half < 0 ? 1 : (float)ldexp(1, o->state.exponent[half]);
    for (size_t i = 0; i < count; i += BLOCK) {
        float block[BLOCK];
        const size_t n = count - i < BLOCK ? count - i : BLOCK;
        float *const to = x->dtype == GS_F32 ? (float *)x->data + i : block;
        for (size_t k = 0; k < n; k++)
            to[k] = stored(values[i + k], slot, half) * scale;
        if (to == block)
            o->ctx->kernels.pass.convert[x->dtype][GS_F32](gsi_tensor_at(x, i), block, n, false);
    }
    return GS_OK;
}
