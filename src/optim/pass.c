/* The passes of SGD, Adam and LAMB, and how a chunk gets to a kernel.
 *
 * Where weights and moments are f32, the kernel works on them in place, a chunk at a time. Where
 * they are not, a block of them is brought to f32 on the stack, stepped there and rounded back: a
 * block stays in the first cache, so the pass is as fused as the other. Adam has a kernel for f32
 * weights with half moments, which rounds them in registers. */
#include "kernel/fpenv.h"
#include "optim/optim.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1024 }; /* elements; a multiple of GSI_RANDOM_GROUP; three arrays are 12 KB */

/* ---- random bits ---- */

enum { ROUND_WEIGHT, ROUND_M, ROUND_V, ROUNDED };

/* A stream for every seed, step, weight and use; in it, element i has its own bits. */
static uint64_t key_of(const gsi_update *u, size_t t, unsigned use)
{
    uint32_t w[4];
    gsi_philox(w, u->optim->config.seed, u->t);
    gsi_philox(w, (uint64_t)w[1] << 32 | w[0], (uint64_t)t * ROUNDED + use);
    return (uint64_t)w[1] << 32 | w[0];
}

/* ---- to f32 and back ---- */

static void load_weights(const gsi_update *u, float *to, gsi_span at)
{
    const gs_optim *o = u->optim;
    const gsi_pass *k = &o->ctx->kernels.pass;
    const gs_tensor *data = &o->data[at.t], *rest = gsi_slot_of(o, at.t, GS_SLOT_REST);
    k->convert[GS_F32][data->dtype](to, gsi_tensor_at(data, at.first), at.count, false);
    if (rest->count)
        k->axpy[rest->dtype](to, gsi_tensor_at(rest, at.first), at.count, 1);
}

/* `from` is used up. */
static void save_weights(const gsi_update *u, float *from, gsi_span at)
{
    const gs_optim *o = u->optim;
    const gsi_pass *k = &o->ctx->kernels.pass;
    const gs_tensor *data = &o->data[at.t], *rest = gsi_slot_of(o, at.t, GS_SLOT_REST);
    void *const to = gsi_tensor_at(data, at.first);
    if (o->config.rounding == GS_ROUND_STOCHASTIC) {
        k->stochastic[data->dtype][GS_F32](to, from, at.count, key_of(u, at.t, ROUND_WEIGHT),
                                           at.first);
        return;
    }
    gsi_convert_fn *const round = k->convert[data->dtype][GS_F32];
    round(to, from, at.count, false);
    if (rest->count) { /* what was cut off */
        k->axpy[data->dtype](from, to, at.count, -1);
        round(gsi_tensor_at(rest, at.first), from, at.count, false);
    }
}

/* Where moment `which` (m, or v for 1) of a span is in f32: NULL, in place, or in `block`. */
static float *load_moment(const gsi_update *u, float *block, gsi_span at, int which)
{
    const gs_tensor *x = gsi_slot_of(u->optim, at.t, which ? GS_SLOT_V : GS_SLOT_M);
    if (x->count == 0)
        return NULL;
    if (x->dtype == GS_F32)
        return (float *)gsi_tensor_at(x, at.first);
    u->optim->ctx->kernels.pass.scale[GS_F32][x->dtype](block, gsi_tensor_at(x, at.first), at.count,
                                                        u->load[which], false);
    return block;
}

static uint32_t save_moment(const gsi_update *u, float *block, gsi_span at, int which)
{
    const gs_tensor *x = gsi_slot_of(u->optim, at.t, which ? GS_SLOT_V : GS_SLOT_M);
    const gsi_pass *k = &u->optim->ctx->kernels.pass;
    if (x->count == 0 || x->dtype == GS_F32)
        return 0;
    k->scale[GS_F32][GS_F32](block, block, at.count, u->save[which], false);
    return k->stochastic[x->dtype][GS_F32](gsi_tensor_at(x, at.first), block, at.count,
                                           key_of(u, at.t, which ? ROUND_V : ROUND_M), at.first);
}

/* ---- a chunk ---- */

static uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

static void add_result(gsi_result *into, const gsi_result *from)
{
    into->norms.weight += from->norms.weight;
    into->norms.direction += from->norms.direction;
    into->top = larger(into->top, from->top);
    for (int k = 0; k < 2; k++)
        into->moments[k] = larger(into->moments[k], from->moments[k]);
}

static void average(const gsi_update *u, const float *weight, gsi_span at)
{
    const gs_optim *o = u->optim;
    const gs_tensor *ema = gsi_slot_of(o, at.t, GS_SLOT_EMA);
    /* it starts from the first weights */
    const double decay = o->own[at.t].steps == 0 ? 0 : o->config.ema;
    if (ema->count)
        o->ctx->kernels.optim.ema((float *)gsi_tensor_at(ema, at.first), weight, at.count,
                                  gsi_setting(decay), gsi_setting(1 - decay));
}

/* Of the weights as they are stored; the kernels write copies in half types themselves. */
static void copy_f32(const gs_optim *o, gsi_span at)
{
    const gs_weight *w = &o->weights[at.t];
    const void *from = gsi_tensor_at(&o->data[at.t], at.first);
    float *const to = (float *)w->copy + at.first;
    if (w->dtype == GS_F32)
        memcpy(to, from, at.count * sizeof *to);
    else
        o->ctx->kernels.pass.convert[GS_F32][w->dtype](to, from, at.count, false);
}

/* in_place: the kernel takes moments as they are stored, of any type. */
static gsi_result run_block(const gsi_update *u, gsi_span at, int writes, gsi_kernel_fn *kernel,
                            bool in_place)
{
    const gs_optim *o = u->optim;
    const gs_weight *w = &o->weights[at.t];
    float weight[BLOCK], m[BLOCK], v[BLOCK];
    const bool direct = w->dtype == GS_F32, half = w->copy && gsi_is_half(w->copy_dtype);
    gsi_slice s = {.weight = direct ? (float *)w->data + at.first : weight,
                   .copy = half ? (uint16_t *)w->copy + at.first : NULL,
                   .copy_type = w->copy_dtype,
                   .m = in_place ? NULL : load_moment(u, m, at, 0),
                   .v = in_place ? NULL : load_moment(u, v, at, 1),
                   .grad = gsi_tensor_at(&o->grads[at.t], at.first),
                   .stream = u->stream};
    if (!direct)
        load_weights(u, weight, at);
    gsi_result r = {0};
    kernel(u, &s, at, &r);
    if (!in_place && writes & GSI_MOMENTS) {
        r.moments[0] = save_moment(u, m, at, 0);
        r.moments[1] = save_moment(u, v, at, 1);
    }
    if (writes & GSI_WEIGHTS) {
        average(u, s.weight, at);
        if (!direct)
            save_weights(u, weight, at);
        if (w->copy && !half)
            copy_f32(o, at);
    }
    return r;
}

/* A weight without a gradient. Its moments in f16 follow the scale that all weights share. */
static gsi_result rest_block(const gsi_update *u, gsi_span at, int writes)
{
    const gs_tensor *data = &u->optim->data[at.t];
    float m[BLOCK], v[BLOCK];
    gsi_result r = {.top = u->optim->ctx->kernels.pass.check[data->dtype](
                        gsi_tensor_at(data, at.first), at.count)};
    if (u->optim->config.moments != GS_F16 || !(writes & GSI_MOMENTS))
        return r;
    load_moment(u, m, at, 0);
    load_moment(u, v, at, 1);
    r.moments[0] = save_moment(u, m, at, 0);
    r.moments[1] = save_moment(u, v, at, 1);
    return r;
}

static gsi_kernel_fn adam_kernel;

void gsi_run_chunk(void *update, size_t chunk, int writes, gsi_kernel_fn *kernel)
{
    gsi_update *u = update;
    const gs_optim *o = u->optim;
    const gsi_span all = gsi_cut_span(&o->cut, chunk);
    const bool f32 = o->weights[all.t].dtype == GS_F32, has_grad = gsi_has_grad(o, all.t);
    const size_t step = f32 && o->config.moments == GS_F32 ? all.count : BLOCK;
    const bool half = f32 && has_grad && kernel == adam_kernel && gsi_is_half(o->config.moments);
    const size_t whole = half ? all.count - all.count % GSI_RANDOM_GROUP : 0; /* in place */
    gsi_result sum = {0};

    const uint64_t env = gsi_fpenv_enter_flush();
    for (size_t i = 0, count; i < all.count; i += count) {
        count = i < whole ? whole : gsi_min_size(all.count - i, step);
        const gsi_span at = {all.t, all.first + i, count};
        const gsi_result r =
            has_grad ? run_block(u, at, writes, kernel, i < whole) : rest_block(u, at, writes);
        add_result(&sum, &r);
    }
    gsi_fpenv_leave(env);
    o->results[chunk] = sum;
}

void gsi_for_chunks(gsi_update *u, gs_body *body)
{
    const gs_parallel *parallel = &u->optim->ctx->parallel;
    parallel->run(parallel->user, gsi_cut_chunks(&u->optim->cut), body, u);
}

gsi_norms gsi_fold_norms(const gs_optim *o, size_t t)
{
    gsi_result sum = {0};
    const size_t end = o->cut.starts[t + 1];
    for (size_t i = o->cut.starts[t], next; i < end; i = next) {
        gsi_result group = {0};
        for (next = gsi_min_size(i + GSI_FOLD_GROUP, end); i < next; i++)
            add_result(&group, &o->results[i]);
        add_result(&sum, &group);
    }
    return sum.norms;
}

/* ---- SGD ---- */

static void sgd_kernel(const gsi_update *u, const gsi_slice *s, gsi_span at, gsi_result *r)
{
    const gsi_weight_own *own = &u->optim->own[at.t];
    gsi_sgd set = u->sgd;
    set.lr = gsi_setting(gsi_lr_of(u, at.t));
    set.gain = gsi_setting(own->steps == 0 ? 1 : 1 - u->optim->config.dampening);
    set.l2 = gsi_setting(own->decay);
    r->top = u->optim->ctx->kernels.optim.sgd[u->optim->grads[at.t].dtype](s, at.count, &set);
}

static void sgd_chunk(void *u, size_t i)
{
    gsi_run_chunk(u, i, GSI_MOMENTS | GSI_WEIGHTS, sgd_kernel);
}

static void sgd(gsi_update *u)
{
    const gs_optim_config *c = &u->optim->config;
    u->sgd = (gsi_sgd){.unscale = gsi_setting(u->unscale),
                       .limit = u->limit,
                       .momentum = gsi_setting(c->momentum),
                       .nesterov = c->nesterov != 0};
    gsi_for_chunks(u, sgd_chunk);
}

/* ---- Adam, AdamW ---- */

/* By the t of each weight; nearly always one for all. */
static void unbias_moments(gs_optim *o)
{
    for (size_t t = 0; t < o->n; t++) {
        gsi_weight_own *own = &o->own[t];
        const double steps = (double)own->steps + 1;
        if (t > 0 && own->steps == own[-1].steps) {
            own->unbias = own[-1].unbias;
            own->root = own[-1].root;
            continue;
        }
        own->unbias = 1 / (1 - pow(o->config.beta1, steps));
        own->root = gsi_setting(1 / sqrt(1 - pow(o->config.beta2, steps)));
    }
}

static gsi_adam adam_settings(const gsi_update *u)
{
    const gs_optim_config *c = &u->optim->config;
    unbias_moments(u->optim);
    return (gsi_adam){.unscale = gsi_setting(u->unscale),
                      .limit = u->limit,
                      .beta1 = gsi_setting(c->beta1),
                      .rest1 = gsi_setting(1 - c->beta1),
                      .beta2 = gsi_setting(c->beta2),
                      .rest2 = gsi_setting(1 - c->beta2),
                      .eps = gsi_setting(c->eps),
                      .retain = 1,
                      .rooted = c->moments != GS_F32};
}

static void adam_kernel(const gsi_update *u, const gsi_slice *s, gsi_span at, gsi_result *r)
{
    const gsi_weight_own *own = &u->optim->own[at.t];
    const double lr = gsi_lr_of(u, at.t);
    gsi_adam set = u->adam;
    set.root = own->root;
    set.lr = gsi_setting(lr * own->unbias);
    if (u->optim->config.kind == GS_ADAMW)
        set.retain = gsi_setting(1 - lr * own->decay);
    else
        set.l2 = gsi_setting(own->decay);
    const gs_dtype grad = u->optim->grads[at.t].dtype;
    const gs_tensor *moment[2] = {gsi_slot_of(u->optim, at.t, GS_SLOT_M),
                                  gsi_slot_of(u->optim, at.t, GS_SLOT_V)};
    const gsi_optim_kernels *k = &u->optim->ctx->kernels.optim;
    if (s->m) { /* f32, or a block in f32 */
        r->top = k->adam[grad](s, at.count, &set);
        return;
    }
    gsi_half_moments h = {.first = at.first};
    for (unsigned i = 0; i < 2; i++) {
        uint16_t *const halves = gsi_tensor_at(moment[i], at.first);
        h.at[i] = halves;
        h.load[i] = u->load[i];
        h.save[i] = u->save[i];
        h.key[i] = key_of(u, at.t, i ? ROUND_V : ROUND_M);
    }
    r->top = k->adam_half[grad][moment[0]->dtype](s, &h, at.count, &set);
    memcpy(r->moments, h.top, sizeof h.top);
}

static void adam_chunk(void *u, size_t i)
{
    gsi_run_chunk(u, i, GSI_MOMENTS | GSI_WEIGHTS, adam_kernel);
}

static void adam(gsi_update *u)
{
    u->adam = adam_settings(u);
    gsi_for_chunks(u, adam_chunk);
}

/* ---- LAMB ---- */

static gsi_adam lamb_settings(const gsi_update *u, size_t t)
{
    const gsi_weight_own *own = &u->optim->own[t];
    gsi_adam set = u->adam;
    set.root = own->root;
    set.unbias = gsi_setting(own->unbias);
    set.l2 = gsi_setting(own->decay);
    return set;
}

static void lamb_norms_kernel(const gsi_update *u, const gsi_slice *s, gsi_span at, gsi_result *r)
{
    const gsi_adam set = lamb_settings(u, at.t);
    u->optim->ctx->kernels.optim.lamb[u->optim->grads[at.t].dtype](&r->norms, s, at.count, &set);
}

static void lamb_step_kernel(const gsi_update *u, const gsi_slice *s, gsi_span at, gsi_result *r)
{
    const gsi_adam set = lamb_settings(u, at.t);
    r->top = u->optim->ctx->kernels.optim.lamb_step(s, at.count, &set, u->optim->alpha[at.t]);
}

static void lamb_norms_chunk(void *u, size_t i)
{
    gsi_run_chunk(u, i, GSI_MOMENTS, lamb_norms_kernel);
}
static void lamb_step_chunk(void *u, size_t i)
{
    gsi_run_chunk(u, i, GSI_WEIGHTS, lamb_step_kernel);
}

static uint32_t top_moment(const gs_optim *o, int which)
{
    uint32_t top = 0;
    for (size_t i = 0; i < gsi_cut_chunks(&o->cut); i++)
        top = larger(top, o->results[i].moments[which]);
    return top;
}

static void lamb(gsi_update *u)
{
    gs_optim *o = u->optim;
    u->adam = adam_settings(u);
    gsi_for_chunks(u, lamb_norms_chunk);
    for (size_t t = 0; t < o->n; t++) {
        const gsi_norms norms = gsi_fold_norms(o, t);
        const bool both = norms.weight > 0 && norms.direction > 0;
        o->alpha[t] =
            gsi_setting(gsi_lr_of(u, t) * (both ? sqrt(norms.weight / norms.direction) : 1));
    }
    const uint32_t tops[2] = {top_moment(o, 0), top_moment(o, 1)};
    for (int k = 0; k < 2; k++) /* what the first pass stored */
        u->load[k] = 1 / u->save[k];
    gsi_for_chunks(u, lamb_step_chunk);
    if (gsi_cut_chunks(&o->cut) > 0)
        for (int k = 0; k < 2; k++)
            o->results[0].moments[k] = tops[k];
}

/* ---- all of them ---- */

int gsi_moment_exponent(double most)
{
    const int highest = 13 - ilogb(most);
    return highest < -GSI_EXPONENT  ? -GSI_EXPONENT
           : highest > GSI_EXPONENT ? GSI_EXPONENT
                                    : highest;
}

/* A power of two that keeps moments in f16 below 2^15: |m| never exceeds beta1 of the largest m and
 * the rest of the largest gradient, and so for v. bf16 reaches as far as f32 and needs none. */
static void choose_scales(gsi_update *u)
{
    gs_optim *o = u->optim;
    const gs_optim_config *c = &o->config;
    const double beta[2] = {c->kind == GS_SGD ? c->momentum : c->beta1, c->beta2};
    const double rest = c->kind == GS_SGD ? 1 : 1 - c->beta1;
    for (int k = 0; k < 2; k++) {
        const double old = o->state.bound[k];
        double most = k == 0 ? beta[0] * old + rest * u->amax
                             : sqrt(beta[1] * old * old + (1 - beta[1]) * u->amax * u->amax);
        if (o->missing && most < old) /* what has no gradient keeps its moments */
            most = old;
        int e = o->state.exponent[k];
        u->load[k] = (float)ldexp(1, -e);
        if (c->moments == GS_F16 && most > 0 && most <= (double)FLT_MAX)
            e = gsi_moment_exponent(most);
        o->state.exponent[k] = e;
        u->save[k] = (float)ldexp(1, e);
    }
}

void gsi_apply(gsi_update *u)
{
    static void (*const passes[])(gsi_update *) = {
        [GS_SGD] = sgd,
        [GS_ADAM] = adam,
        [GS_ADAMW] = adam,
        [GS_LAMB] = lamb,
        [GS_ADAFACTOR] = gsi_adafactor_apply,
    };
    gs_optim *o = u->optim;
    size_t copied = 0;
    for (size_t t = 0; t < o->n; t++)
        copied +=
            o->weights[t].copy && gsi_is_half(o->weights[t].copy_dtype) ? o->data[t].count * 2 : 0;
    u->stream = copied >= GSI_STREAM_FROM;
    choose_scales(u);
    passes[o->config.kind](u);
    for (int k = 0; k < 2; k++)
        o->state.bound[k] = (double)gsi_float(top_moment(o, k)) / (double)u->save[k];
}
