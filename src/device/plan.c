/* Making a plan: all is checked before anything is allocated, and all is allocated and written
 * before a step can be enqueued. Tables that the host's libm is needed for are made here. */
#include "device/device.h"

#include "kernel/pass/chunks.h"
#include "optim/optim.h"
#include "scaler/scaler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(GSD_CHUNK == GSI_CHUNK && GSD_BLOCK == GSI_BLOCK && GSD_LANES == GSI_LANES &&
                   GSD_GROUP == GSI_FOLD_GROUP,
               "the order of additions is that of libgradscale");
_Static_assert(sizeof(gs_stats) == 80 && sizeof(gsd_state) % 8 == 0,
               "as device compilers lay it out");

/* ---- checks ---- */

static gs_status check_optim(const gs_optim_config *c, gs_error *error)
{
    if (!c)
        return gsi_fail(error, GS_ENULL, "a plan needs the settings of an optimizer");
    const gs_status status = gs_optim_config_check(c, error);
    if (status != GS_OK)
        return status;
    if (c->kind > GS_LAMB)
        return gsi_fail(error, GS_ERANGE, "a device steps sgd, adam, adamw or lamb, not %s",
                        gsi_optim_kinds[c->kind]);
    if (c->moments != GS_F32)
        return gsi_fail(error, GS_EDTYPE, "moments on a device are f32");
    if (c->ema > 0)
        return gsi_fail(error, GS_ERANGE, "there is no average of weights on a device: ema=0");
    if (c->rounding == GS_ROUND_KAHAN)
        return gsi_fail(error, GS_ERANGE, "there is no rounding=kahan on a device");
    return GS_OK;
}

static gs_status check_scaler(const gs_scaler *s, gs_error *error)
{
    if (!s)
        return gsi_fail(error, GS_ENULL, "a plan needs a scaler");
    if (!gsi_scaler_made(s))
        return gsi_scaler_version(s, error);
    if (s->policy != GS_POLICY_MACHINE && s->policy != GS_POLICY_HEADROOM &&
        s->policy != GS_POLICY_NONE)
        return gsi_fail(error, GS_ENAME,
                        "policy %s needs the host: a device has the presets, static:S, guard, "
                        "headroom and none",
                        gsi_policies[s->policy].name);
    if (s->rules.on_overflow != GS_ON_SKIP || s->event.phase != GSI_FIRST)
        return gsi_fail(error, GS_ESTATE, "retry and attribute need the host: on_overflow=skip");
    if (s->probing)
        return gsi_fail(error, GS_ESTATE, "the probe needs the host: probe=no");
    if (!(s->rules.lowest >= 0x1p-28))
        return gsi_fail(error, GS_ERANGE,
                        "a scale below 2^-28 cannot be undone: set lowest to 2^-28 or more");
    if (!(fmax(gs_scaler_scale(s), gsi_is_static(s) ? 0 : gsi_highest(s)) <= 0x1.fffffep+127))
        return gsi_fail(error, GS_ERANGE,
                        "kernels read the scale as f32, which cannot hold it: set highest to 2^127 "
                        "or less");
    return GS_OK;
}

/* A rank may have no gradients, but not all of them. */
static gs_status check_empty(uint64_t chunks, unsigned ranks, const gs_optim_config *c,
                             const gs_scaler *s, gs_error *error)
{
    if (chunks > 0 || ranks > 1)
        return GS_OK;
    if (c->clip_norm > 0)
        return gsi_fail(error, GS_ESTATE, "clip_norm needs gradients, and there are none");
    if (s->policy == GS_POLICY_HEADROOM)
        return gsi_fail(error, GS_ESTATE, "headroom needs gradients, and there are none");
    return GS_OK;
}

typedef struct extent {
    const void *base;
    uint64_t begin, end;
    size_t weight;
    const char *what;
} extent;

static const char *name_of(char text[32], const gs_device_weight *list, size_t t)
{
    if (list[t].name)
        return list[t].name;
    snprintf(text, 32, "%zu", t);
    return text;
}

static gs_status check_array(extent *x, gs_device *d, const gs_device_weight *list, size_t t,
                             gs_device_ptr at, gs_dtype type, const char *what, gs_error *error)
{
    char number[32], all[160];
    const char *name = name_of(number, list, t);
    snprintf(all, sizeof all, "the %s of weight %.100s", what, name);
    if (type != GS_F32 && !gsi_is_half(type))
        return gsi_fail(error, GS_EDTYPE, "%s is none of f32, f16, bf16", all);
    const size_t size = gsi_size_of(type);
    *x = (extent){at.base, at.offset, at.offset, t, what};
    if (list[t].count == 0)
        return GS_OK;
    if (!at.base && !at.offset)
        return gsi_fail(error, GS_ENULL, "%s is missing", all);
    if (at.offset % size != 0)
        return gsi_fail(error, GS_EALIGN, "%s is not aligned to its elements", all);
    if (list[t].count > (UINT64_MAX - at.offset) / size)
        return gsi_fail(error, GS_ESIZE, "%s is too large", all);
    x->end += list[t].count * size;
    return d->backend->check(d, at, list[t].count * size, all, error);
}

static int by_place(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->base != y->base)
        return (uintptr_t)x->base < (uintptr_t)y->base ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static gs_status check_weight(extent *x, size_t *used, gs_device *d, const gs_device_weight *list,
                              size_t t, bool out, gs_error *error)
{
    const gs_device_weight *w = &list[t];
    const bool copied = w->copy.base || w->copy.offset;
    char number[32];
    if (!(w->lr_factor >= 0 && w->lr_factor <= 1e6))
        return gsi_fail(error, GS_ERANGE,
                        "the factor on lr of weight %.100s is %g: it must be from "
                        "0 to 1e+06",
                        name_of(number, list, t), w->lr_factor);
    if (copied && w->dtype != GS_F32 && w->copy_dtype != GS_F32)
        return gsi_fail(error, GS_EDTYPE,
                        "weight %.100s has a copy: only f32 weights are copied to a half type",
                        name_of(number, list, t));
    gs_status status = check_array(&x[(*used)++], d, list, t, w->data, w->dtype, "data", error);
    if (status == GS_OK)
        status = check_array(&x[(*used)++], d, list, t, w->grad, w->grad_dtype, "gradient", error);
    if (status == GS_OK && copied)
        status = check_array(&x[(*used)++], d, list, t, w->copy, w->copy_dtype, "copy", error);
    if (status == GS_OK && out)
        status = check_array(&x[(*used)++], d, list, t, w->out, GS_F32, "output", error);
    return status;
}

static gs_status check_list(gs_device *d, const gs_device_weight *list, size_t n, bool out,
                            gs_error *error)
{
    gs_status status = GS_OK;
    size_t used = 0, bytes;
    char one[32], other[32];
    if (n > 0 && !list)
        return gsi_fail(error, GS_ENULL, "the list of %zu weights is NULL", n);
    if (!gsi_mul_size(&bytes, n, 4 * sizeof(extent)) || n > UINT32_MAX)
        return gsi_fail(error, GS_ESIZE, "there are too many weights");
    extent *x = gsi_device_new(d, bytes);
    if (!x)
        return gsi_fail(error, GS_ENOMEM, "no memory to check a list of %zu weights", n);
    for (size_t t = 0; status == GS_OK && t < n; t++)
        status = check_weight(x, &used, d, list, t, out, error);
    if (status == GS_OK)
        qsort(x, used, sizeof *x, by_place);
    uint64_t end = 0;
    for (size_t i = 0, last = 0; status == GS_OK && i < used; i++) {
        const bool same = i > 0 && x[i].base == x[last].base;
        if (same && x[i].begin < end && x[i].end > x[i].begin)
            status =
                gsi_fail(error, GS_ESTATE, "the %s of weight %.60s overlaps the %s of weight %.60s",
                         x[i].what, name_of(one, list, x[i].weight), x[last].what,
                         name_of(other, list, x[last].weight));
        if (!same || x[i].end > end) {
            end = x[i].end;
            last = i;
        }
    }
    gsi_free(&d->heap, x);
    return status;
}

/* With offsets, one base for all arrays of a column. */
static gs_status base_of(gs_device_ptr *base, const gs_device *d, gs_device_ptr at, size_t count,
                         const char *what, gs_error *error)
{
    if (!d->offsets || count == 0 || !at.base)
        return GS_OK;
    if (base->base && base->base != at.base)
        return gsi_fail(error, GS_ESTATE, "all %s of a plan must lie in one cl_mem", what);
    base->base = at.base;
    return GS_OK;
}

/* ---- tables ---- */

static gs_status upload(gs_device_plan *p, gsi_device_argument which, const void *data,
                        size_t bytes, gs_error *error)
{
    gs_device *d = p->device;
    gs_device_ptr *at = &p->arguments[which];
    gs_status status = d->backend->alloc(d, at, bytes, error);
    if (status == GS_OK)
        status = d->backend->write(d, *at, data, bytes, NULL, error);
    return status == GS_OK ? d->backend->wait(d, NULL, error) : status; /* data may go */
}

/* A piece is written, and copied on the device until it is all: the host may have less memory. */
static gs_status zeros(gs_device_plan *p, gsi_device_argument which, size_t bytes, gs_error *error)
{
    enum { PIECE = 1 << 16 };
    gs_device *d = p->device;
    size_t done = bytes < PIECE ? bytes : PIECE;
    void *data = gsi_device_new(d, done);
    if (!data)
        return gsi_fail(error, GS_ENOMEM, "no memory for %zu bytes of a plan", done);
    gs_status status = d->backend->alloc(d, &p->arguments[which], bytes, error);
    const gs_device_ptr from = p->arguments[which];
    if (status == GS_OK)
        status = d->backend->write(d, from, data, done, NULL, error);
    for (size_t n; status == GS_OK && done < bytes; done += n) {
        const gs_device_ptr to = {from.base, from.offset + done};
        n = bytes - done < done ? bytes - done : done;
        status = d->backend->copy(d, to, from, n, NULL, error);
    }
    if (status == GS_OK)
        status = d->backend->wait(d, NULL, error);
    gsi_free(&d->heap, data);
    return status;
}

/* Rows of settings from `applied` on. */
static gs_status set_rows(gs_device_plan *p, uint64_t applied, double lr, void *queue,
                          gs_error *error)
{
    const gs_optim_config *c = &p->optim;
    gs_device *d = p->device;
    gsd_row *rows = gsi_device_new(d, p->settings.rows * sizeof *rows);
    if (!rows)
        return gsi_fail(error, GS_ENOMEM, "no memory for the settings of %u steps",
                        p->settings.rows);
    for (uint32_t i = 0; i < p->settings.rows; i++) {
        const uint64_t t = applied + i;
        const double steps = (double)t + 1;
        rows[i] = (gsd_row){.lr = lr * gs_schedule_factor(&c->schedule, t),
                            .unbias = 1 / (1 - pow(c->beta1, steps)),
                            .root = gsi_setting(1 / sqrt(1 - pow(c->beta2, steps))),
                            .gain = gsi_setting(t == 0 ? 1 : 1 - c->dampening)};
    }
    gs_status status = d->backend->write(d, p->arguments[GSD_ARG_ROWS], rows,
                                         p->settings.rows * sizeof *rows, queue, error);
    p->settings.first_row = applied;
    if (status == GS_OK)
        status = d->backend->write(d, p->arguments[GSD_ARG_SETTINGS], &p->settings,
                                   sizeof p->settings, queue, error);
    if (status == GS_OK)
        status = d->backend->wait(d, queue, error);
    gsi_free(&d->heap, rows);
    return status;
}

static void set_settings(gs_device_plan *p, const gs_device_plan_config *config)
{
    const gs_optim_config *c = &p->optim;
    const gs_scaler *s = config->scaler;
    const gsi_limits limits = config->count ? gsi_limits_of(config->count_half) : (gsi_limits){0};
    p->settings = (gsd_settings){
        .clip_norm = c->clip_norm,
        .headroom = s->policy == GS_POLICY_HEADROOM ? gsi_half_max(s) / exp2(s->tune[0]) : 0,
        .seed = c->seed,
        .rows = (uint32_t)(config->steps ? config->steps : 100000),
        .chunks = p->chunks,
        .ranks = p->ranks,
        .rank = config->rank,
        .beta1 = gsi_setting(c->beta1),
        .rest1 = gsi_setting(1 - c->beta1),
        .beta2 = gsi_setting(c->beta2),
        .rest2 = gsi_setting(1 - c->beta2),
        .eps = gsi_setting(c->eps),
        .momentum = gsi_setting(c->momentum),
        .limit = c->clip_value > 0 ? (float)c->clip_value : INFINITY,
        .kind = (uint32_t)c->kind,
        .momentum_on = c->momentum != 0,
        .nesterov = c->nesterov != 0,
        .stochastic = c->rounding == GS_ROUND_STOCHASTIC,
        .clear = c->clear_grads != 0,
        .unscale = (uint32_t)config->unscale,
        .underflow = limits.underflow,
        .subnormal = limits.subnormal};
}

/* Where weight t's moments are: m and v have the same layout. */
static size_t padded(size_t count) { return gsi_ceil_div(count, 32) * 32; }

static gs_status set_tensors(gs_device_plan *p, const gs_device_weight *list, bool out,
                             gs_error *error)
{
    const gs_device *d = p->device;
    const gs_device_ptr m = p->arguments[GSD_ARG_M], v = p->arguments[GSD_ARG_V];
    gsd_tensor *tensors = gsi_device_new(p->device, (p->n + 1) * sizeof *tensors);
    gsd_chunk *chunks = gsi_device_new(p->device, ((size_t)p->chunks + 1) * sizeof *chunks);
    gs_status status = GS_OK;
    uint64_t moment = 0;
    uint32_t c = 0;
    if (!tensors || !chunks)
        status = gsi_fail(error, GS_ENOMEM, "no memory for the tables of %zu weights", p->n);
    for (size_t t = 0; status == GS_OK && t < p->n; t++) {
        const gs_device_weight *w = &list[t];
        const bool copied = w->copy.base || w->copy.offset;
        tensors[t] = (gsd_tensor){
            .grad = w->grad.offset,
            .out = out ? w->out.offset : 0,
            .weight = w->data.offset,
            .copy = copied ? w->copy.offset : 0,
            .m = (d->offsets ? 0 : m.offset) + moment,
            .v = (d->offsets ? 0 : v.offset) + moment,
            .count = w->count,
            .lr_factor = w->lr_factor == 0 ? 1 : w->lr_factor,
            .decay = w->flags & GS_NO_DECAY ? 0 : p->optim.weight_decay,
            .first_chunk = c,
            .chunks = (uint32_t)gsi_ceil_div(w->count, GSD_CHUNK),
            .grad_type = (uint32_t)w->grad_dtype,
            .weight_type = (uint32_t)w->dtype,
            .copy_type = copied ? (uint32_t)w->copy_dtype : GSD_NO_COPY,
        };
        p->slots[2 * t] = m.base || m.offset ? (gs_device_ptr){m.base, m.offset + moment} : m;
        p->slots[2 * t + 1] = v.base || v.offset ? (gs_device_ptr){v.base, v.offset + moment} : v;
        moment += padded(w->count) * sizeof(float);
        for (uint64_t first = 0; first < w->count; first += GSD_CHUNK)
            chunks[c++] = (gsd_chunk){.first = first, .tensor = (uint32_t)t};
    }
    if (status == GS_OK)
        status = upload(p, GSD_ARG_TENSORS, tensors, (p->n + 1) * sizeof *tensors, error);
    if (status == GS_OK)
        status = upload(p, GSD_ARG_CHUNKS, chunks, ((size_t)p->chunks + 1) * sizeof *chunks, error);
    gsi_free(&p->device->heap, tensors);
    gsi_free(&p->device->heap, chunks);
    return status;
}

static gsd_state first_state(const gs_scaler *s)
{
    gsd_state state = {.scaler = *s, .scale = gs_scaler_scale(s)};
    state.inverse = 1 / state.scale;
    state.words = (gsd_words){(float)state.scale, (float)state.inverse, 0, 0};
    return state;
}

/* Everything in device memory. */
static gs_status fill(gs_device_plan *p, const gs_device_weight *list,
                      const gs_device_plan_config *config, gs_error *error)
{
    const gs_optim_config *c = &p->optim;
    const bool has_m = c->kind != GS_SGD || c->momentum != 0, has_v = c->kind != GS_SGD;
    const gsd_state state = first_state(config->scaler);
    size_t moments = 0, chunks = (size_t)p->chunks + 1;
    for (size_t t = 0; t < p->n; t++)
        moments += padded(list[t].count) * sizeof(float);
    const struct {
        gsi_device_argument which;
        size_t bytes;
    } arrays[] = {{GSD_ARG_M, has_m ? moments : 0},
                  {GSD_ARG_V, has_v ? moments : 0},
                  {GSD_ARG_SETTINGS, sizeof(gsd_settings)},
                  {GSD_ARG_ROWS, p->settings.rows * sizeof(gsd_row)},
                  {GSD_ARG_SUMS, chunks * sizeof(double)},
                  {GSD_ARG_FOUND, chunks * sizeof(gsd_found)},
                  {GSD_ARG_NORMS, c->kind == GS_LAMB ? chunks * sizeof(gsd_norms) : 0},
                  {GSD_ARG_GATHERED, p->ranks * sizeof(gs_stats)},
                  {GSD_ARG_REPORTS, GSD_REPORTS * sizeof(gsd_report)}};
    gs_status status = GS_OK;
    for (size_t i = 0; status == GS_OK && i < GSI_COUNT(arrays); i++)
        if (arrays[i].bytes > 0)
            status = zeros(p, arrays[i].which, arrays[i].bytes, error);
    if (status == GS_OK)
        status = upload(p, GSD_ARG_STATE, &state, sizeof state, error);
    if (status == GS_OK)
        status = set_tensors(p, list, config->unscale == GS_UNSCALE_TO_F32, error);
    if (status == GS_OK)
        status = set_rows(p, 0, c->lr, NULL, error);
    if (status == GS_OK)
        status = p->device->backend->pin(p->device, (void **)&p->arrived,
                                         GSD_REPORTS * sizeof *p->arrived, error);
    if (status == GS_OK)
        memset(p->arrived, 0, GSD_REPORTS * sizeof *p->arrived);
    return status;
}

/* ---- a plan ---- */

static gs_status check_all(gs_device *d, const gs_device_weight *list, size_t n,
                           const gs_device_plan_config *c, gs_error *error)
{
    gs_status status = check_optim(c->optim, error);
    if (status == GS_OK)
        status = check_scaler(c->scaler, error);
    if (status != GS_OK)
        return status;
    if ((unsigned)c->unscale >= GS_UNSCALE_COUNT)
        return gsi_fail(error, GS_ERANGE, "there is no way %d to unscale", (int)c->unscale);
    if (c->count && !gsi_is_half(c->count_half))
        return gsi_fail(error, GS_EDTYPE, "values are counted with respect to f16 or bf16");
    if (c->steps > UINT32_MAX / sizeof(gsd_row))
        return gsi_fail(error, GS_ESIZE, "a plan of %llu steps is too long",
                        (unsigned long long)c->steps);
    if (c->ranks > 0 ? c->rank >= c->ranks : c->rank > 0)
        return gsi_fail(error, GS_ERANGE, "there is no rank %u of %u", c->rank, c->ranks);
    status = check_list(d, list, n, c->unscale == GS_UNSCALE_TO_F32, error);
    uint64_t chunks = 0;
    for (size_t t = 0; status == GS_OK && t < n; t++)
        chunks += gsi_ceil_div(list[t].count, GSD_CHUNK);
    if (status == GS_OK && chunks >= INT32_MAX)
        return gsi_fail(error, GS_ESIZE, "the weights are too many for one launch");
    return status == GS_OK ? check_empty(chunks, c->ranks, c->optim, c->scaler, error) : status;
}

static gs_status set_bases(gs_device_plan *p, const gs_device_weight *list, bool out,
                           gs_error *error)
{
    gs_status status = GS_OK;
    const gs_device *d = p->device;
    for (size_t t = 0; status == GS_OK && t < p->n; t++) {
        const gs_device_weight *w = &list[t];
        status = base_of(&p->arguments[GSD_ARG_GRAD], d, w->grad, w->count, "gradients", error);
        if (status == GS_OK)
            status = base_of(&p->arguments[GSD_ARG_WEIGHT], d, w->data, w->count, "weights", error);
        if (status == GS_OK)
            status = base_of(&p->arguments[GSD_ARG_COPY], d, w->copy, w->count, "copies", error);
        if (status == GS_OK && out)
            status = base_of(&p->arguments[GSD_ARG_OUT], d, w->out, w->count, "outputs", error);
    }
    return status;
}

gs_status gs_device_plan_create(gs_device_plan **out, gs_device *device,
                                const gs_device_weight *list, size_t n,
                                const gs_device_plan_config *config, gs_error *error)
{
    gs_device_plan_config today;
    if (!out || !device || !config)
        return gsi_fail(error, GS_ENULL, "a plan needs a device and a config");
    *out = NULL;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_device_plan_config", error);
    if (status == GS_OK)
        status = check_all(device, list, n, &today, error);
    if (status != GS_OK)
        return status;
    gs_device_plan *p = gsi_device_new(device, sizeof *p);
    gs_device_ptr *slots = gsi_device_new(device, (2 * n + 1) * sizeof *slots);
    if (!p || !slots) {
        gsi_free(&device->heap, p);
        gsi_free(&device->heap, slots);
        return gsi_fail(error, GS_ENOMEM, "no memory for a plan of %zu weights", n);
    }
    p->device = device;
    p->n = n;
    p->slots = slots;
    p->ranks = today.ranks ? today.ranks : 1;
    gsi_config(&p->optim, sizeof p->optim, today.optim, "gs_optim_config", NULL); /* was checked */
    p->lr = p->optim.lr;
    for (size_t t = 0; t < n; t++)
        p->chunks += (uint32_t)gsi_ceil_div(list[t].count, GSD_CHUNK);
    set_settings(p, &today);
    status = set_bases(p, list, today.unscale == GS_UNSCALE_TO_F32, error);
    if (status == GS_OK)
        status = fill(p, list, &today, error);
    if (status != GS_OK) {
        gs_device_plan_free(p);
        return status;
    }
    *out = p;
    return GS_OK;
}

void gs_device_plan_free(gs_device_plan *p)
{
    if (!p)
        return;
    gs_device *d = p->device;
    (void)d->backend->wait(d, p->queue, NULL);
    for (int i = GSD_ARG_M; i < GSD_ARG_COUNT; i++) /* the others are the caller's */
        gs_device_release(d, p->arguments[i]);
    if (p->arrived)
        d->backend->unpin(d, p->arrived);
    gsi_free(&d->heap, p->slots);
    gsi_free(&d->heap, p);
}

gs_status gs_device_load(gs_device_plan *p, const gs_scaler *scaler, const gs_optim_state *state,
                         void *queue, gs_error *error)
{
    gs_device *d = p->device;
    gsd_state s;
    if (!scaler || !state)
        return gsi_fail(error, GS_ENULL, "a load needs a scaler and a state");
    gs_status status = check_scaler(scaler, error);
    if (status == GS_OK)
        status = check_empty(p->chunks, p->ranks, &p->optim, scaler, error);
    if (status != GS_OK)
        return status;
    if (state->applied > (uint64_t)1 << 53)
        return gsi_fail(error, GS_ERANGE, "no run has applied %llu steps",
                        (unsigned long long)state->applied);
    gs_optim_config c = p->optim;
    c.lr = state->lr_set ? state->lr : p->optim.lr;
    status = gs_optim_config_check(&c, error);
    if (status == GS_OK)
        status = d->backend->read(d, &s, p->arguments[GSD_ARG_STATE], sizeof s, true, queue, error);
    if (status != GS_OK)
        return status;
    gsd_state next = first_state(scaler);
    next.attempted = s.attempted; /* numbers of reports go on */
    next.applied = state->applied;
    next.skipped = state->skipped;
    const double headroom = p->settings.headroom;
    p->settings.headroom =
        scaler->policy == GS_POLICY_HEADROOM ? gsi_half_max(scaler) / exp2(scaler->tune[0]) : 0;
    status = set_rows(p, state->applied, c.lr, queue, error); /* may lack memory: first */
    if (status != GS_OK) {
        p->settings.headroom = headroom;
        return status;
    }
    p->lr_set = state->lr_set != 0;
    p->lr = c.lr;
    status = d->backend->write(d, p->arguments[GSD_ARG_STATE], &next, sizeof next, queue, error);
    return status == GS_OK ? d->backend->wait(d, queue, error) : status;
}
