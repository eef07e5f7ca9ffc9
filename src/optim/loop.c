/* What a caller with a loop of its own changes between steps: learning rates, decay, gradients.
 * Each call checks first, so that a step finds nothing to refuse. */
#include "optim/optim.h"

/* ---- learning rates and decay ---- */

static gs_status check_rate(const gs_optim *o, size_t t, double lr, double decay)
{
    gs_optim_config config = o->config;
    config.lr = lr;
    config.weight_decay = 0;
    const gs_status status = gs_optim_config_check(&config, &o->ctx->error);
    if (status == GS_OK && lr * decay > 1)
        return gsi_fail(&o->ctx->error, GS_ERANGE,
                        "lr times weight_decay of weight %s is %g: it would change its sign",
                        o->weights[t].name, lr * decay);
    return status;
}

gs_status gsi_check_lr(const gs_optim *o, double lr)
{
    gs_optim_config config = o->config;
    config.lr = lr;
    gs_status status = gs_optim_config_check(&config, &o->ctx->error);
    for (size_t t = 0; status == GS_OK && t < o->n; t++)
        status = check_rate(o, t, lr * o->own[t].lr_factor, o->own[t].decay);
    return status;
}

gs_status gs_optim_set_lr(gs_optim *o, double lr)
{
    const gs_status status = gsi_check_lr(o, lr);
    if (status != GS_OK)
        return status;
    o->state.lr_set = 1;
    o->state.lr = lr;
    return GS_OK;
}

double gs_optim_lr(const gs_optim *o) { return o->state.lr_set ? o->state.lr : o->config.lr; }

static gs_status check_index(const gs_optim *o, size_t t)
{
    if (t < o->n)
        return GS_OK;
    return gsi_fail(&o->ctx->error, GS_ERANGE, "there is no weight %zu: there are %zu", t, o->n);
}

gs_status gs_optim_set_lr_factor(gs_optim *o, size_t t, double factor)
{
    gs_status status = check_index(o, t);
    if (status == GS_OK && !(factor >= 0 && factor <= 1e6)) /* nor a NaN */
        status = gsi_fail(&o->ctx->error, GS_ERANGE,
                          "the factor on lr of weight %s is %g: it must be from 0 to 1e+06",
                          o->weights[t].name, factor);
    if (status == GS_OK)
        status = check_rate(o, t, gs_optim_lr(o) * factor, o->own[t].decay);
    if (status == GS_OK)
        o->own[t].lr_factor = factor;
    return status;
}

gs_status gs_optim_set_weight_decay(gs_optim *o, size_t t, double decay)
{
    gs_status status = check_index(o, t);
    if (status == GS_OK && !(decay >= 0 && decay <= 1))
        status = gsi_fail(&o->ctx->error, GS_ERANGE,
                          "the weight_decay of weight %s is %g: it must be from 0 to 1",
                          o->weights[t].name, decay);
    if (status == GS_OK)
        status = check_rate(o, t, gs_optim_lr(o) * o->own[t].lr_factor, decay);
    if (status != GS_OK)
        return status;
    o->own[t].decay = decay;
    o->most_decay = o->config.weight_decay;
    for (size_t i = 0; i < o->n; i++)
        if (o->own[i].decay > o->most_decay)
            o->most_decay = o->own[i].decay;
    return GS_OK;
}

/* ---- gradients ---- */

static gs_status check_grad(const gs_optim *o, size_t t, const gs_tensor *grad)
{
    if (!grad->data)
        return GS_OK;
    if (grad->count != o->data[t].count)
        return gsi_fail(&o->ctx->error, GS_ESIZE,
                        "the gradient of weight %s has %zu elements and the weight %zu",
                        o->weights[t].name, grad->count, o->data[t].count);
    if (grad->dtype != GS_F32 && !gsi_is_half(grad->dtype))
        return gsi_fail(&o->ctx->error, GS_EDTYPE,
                        "the gradient of weight %s is none of f32, f16, bf16", o->weights[t].name);
    return gsi_check_contiguous(o->ctx, grad, o->weights[t].name);
}

gs_status gs_optim_set_grads(gs_optim *o, const gs_tensor *grads, size_t n)
{
    gs_status status = GS_OK;
    if (n != o->n)
        return gsi_fail(&o->ctx->error, GS_ESIZE, "there are %zu gradients for %zu weights", n,
                        o->n);
    if (n > 0 && !grads)
        return gsi_fail(&o->ctx->error, GS_ENULL, "the list of %zu gradients is NULL", n);
    for (size_t t = 0; status == GS_OK && t < n; t++)
        status = check_grad(o, t, &grads[t]);
    if (status == GS_OK)
        status = gsi_check_arrays(o->ctx, o->weights, grads, n);
    if (status != GS_OK)
        return status;
    o->missing = false;
    for (size_t t = 0; t < n; t++) {
        gs_tensor *grad = &o->grads[t];
        grad->data = grads[t].data;
        grad->count = grads[t].data ? o->data[t].count : 0;
        grad->dtype = grads[t].data ? grads[t].dtype : grad->dtype;
        o->weights[t].grad = grad->data;
        o->weights[t].grad_dtype = grad->dtype;
        o->missing |= !gsi_has_grad(o, t);
    }
    return GS_OK;
}
