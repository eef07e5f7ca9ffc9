/* device_rig.h: the same steps by libgradscale and by a device, and a comparison of all bits:
 * weights, moments, copies, gradients, statistics, scaler and counters. The suites of all kinds of
 * devices run it; what differs is the device, and how much of it there is time for. */
#ifndef DEVICE_RIG_H
#define DEVICE_RIG_H

#include "test.h"

#include "gradscale/device.h"

#include <math.h>

typedef struct device_case {
    const char *optim, *settings, *scaler, *rules;
    gs_device_unscale unscale;
    int count;    /* zeros and underflow */
    int half;     /* weights are halves without a master */
    int steps;    /* of the run */
    int every;    /* arrays are compared every so many steps, and at the end */
    size_t most;  /* elements of the largest tensor */
    size_t small; /* so many tensors of a few elements besides */
    uint64_t seed;
} device_case;

typedef struct device_array {
    char *host, *copy; /* libgradscale's; what was read back */
    gs_device_ptr device;
    size_t bytes;
} device_array;

enum { RIG_DATA, RIG_COPY, RIG_GRAD, RIG_OUT, RIG_ARRAYS };

typedef struct device_rig {
    gs_device *device;
    gs_context *ctx;
    gs_device_plan *plan;
    gs_optim *optim;
    gs_scaler scaler;
    uint64_t random;
    size_t n, *at[RIG_ARRAYS]; /* bytes from the start of each array */
    gs_weight *weights;
    gs_device_weight *list;
    gs_tensor *grads, *outs;
    device_array arrays[RIG_ARRAYS];
    char *moments; /* read back */
    int cleared;   /* the outputs of the last step are not to be compared */
    /* how the device takes a step; NULL: gs_device_step */
    gs_status (*run)(struct device_rig *r, gs_error *error);
    void *user; /* run's */
} device_rig;

static inline uint64_t rig_random(uint64_t *s)
{
    *s += 0x9E3779B97F4A7C15;
    uint64_t z = *s;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

static inline double rig_uniform(uint64_t *s) { return (double)(rig_random(s) >> 11) * 0x1p-53; }
/* Near enough to normal. */
static inline double rig_normal(uint64_t *s)
{
    return (rig_uniform(s) + rig_uniform(s) + rig_uniform(s) + rig_uniform(s) - 2) * 1.7;
}

static inline size_t rig_size(gs_dtype type) { return type == GS_F32 ? 4 : 2; }

static inline void rig_put(void *data, gs_dtype type, size_t i, float x)
{
    uint16_t half = 0;
    if (type == GS_F32) {
        memcpy((char *)data + 4 * i, &x, 4);
        return;
    }
    half = type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
    memcpy((char *)data + 2 * i, &half, 2);
}

/* ---- making one ---- */

static inline size_t rig_count(const device_case *c, size_t t, uint64_t *random)
{
    static const size_t around[] = {0, 1, 31, 512, 513, 65536, 65537, 4097, 32, 1000};
    if (t < sizeof around / sizeof around[0] && around[t] <= c->most)
        return around[t];
    if (t < 12)
        return 1 + rig_random(random) % c->most;
    return rig_random(random) % 7;
}

static inline void rig_layout(device_rig *r, const device_case *c)
{
    static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
    size_t ends[RIG_ARRAYS] = {0};
    char(*names)[24] = calloc(r->n, sizeof *names);
    for (size_t t = 0; t < r->n; t++) {
        const size_t count = rig_count(c, t, &r->random);
        const gs_dtype data = c->half ? types[1 + rig_random(&r->random) % 2] : GS_F32;
        const gs_dtype grad = types[rig_random(&r->random) % 3];
        const gs_dtype copy = c->half ? GS_F32 : types[rig_random(&r->random) % 3];
        const int copied = rig_random(&r->random) % 4 != 0;
        snprintf(names[t], sizeof names[t], "w%zu", t);
        const gs_dtype of[RIG_ARRAYS] = {data, copy, grad, GS_F32};
        for (int k = 0; k < RIG_ARRAYS; k++) { /* aligned to its elements and to nothing more */
            const size_t size = rig_size(of[k]);
            r->at[k][t] = (ends[k] + size - 1) / size * size + size * (rig_random(&r->random) % 3);
            ends[k] = r->at[k][t] + count * size;
        }
        r->weights[t] = (gs_weight){.name = names[t],
                                    .rows = 1,
                                    .cols = count,
                                    .dtype = data,
                                    .copy_dtype = copy,
                                    .grad_dtype = grad,
                                    .flags = t % 3 == 1 ? GS_NO_DECAY : 0};
        r->list[t] = (gs_device_weight){.name = names[t],
                                        .count = count,
                                        .dtype = data,
                                        .copy_dtype = copy,
                                        .grad_dtype = grad,
                                        .flags = r->weights[t].flags,
                                        .lr_factor = t % 5 == 2 ? 0.5 : 0,
                                        .copy = {NULL, (uint64_t)copied}};
    }
    for (int k = 0; k < RIG_ARRAYS; k++) {
        device_array *a = &r->arrays[k];
        a->bytes = ends[k] + 64;
        a->host = calloc(1, a->bytes);
        a->copy = calloc(1, a->bytes);
        CHECK(gs_device_alloc(&a->device, r->device, a->bytes, NULL) == GS_OK);
    }
}

static inline gs_device_ptr rig_place(const device_rig *r, int k, size_t t)
{
    gs_device_ptr p = r->arrays[k].device;
    p.offset += r->at[k][t];
    return p;
}

static inline void rig_write(device_rig *r, int k)
{
    gs_error error = {0};
    CHECK_MSG(gs_device_write(r->device, r->arrays[k].device, r->arrays[k].host, r->arrays[k].bytes,
                              NULL, &error) == GS_OK,
              "%s", error.text);
}

static inline gs_optim_config rig_optim(const device_case *c)
{
    gs_optim_config config = {.size = sizeof config};
    gs_error error = {0};
    CHECK_MSG(gs_optim_config_init(&config, c->optim, &error) == GS_OK &&
                  gs_optim_config_set(&config, c->settings, &error) == GS_OK,
              "%s", error.text);
    return config;
}

static inline int device_rig_open(device_rig *r, gs_device *device, const device_case *c)
{
    *r = (device_rig){.device = device, .random = c->seed, .n = 12 + c->small};
    gs_error error = {0};
    for (int k = 0; k < RIG_ARRAYS; k++)
        r->at[k] = calloc(r->n, sizeof *r->at[k]);
    r->weights = calloc(r->n, sizeof *r->weights);
    r->list = calloc(r->n, sizeof *r->list);
    r->grads = calloc(r->n, sizeof *r->grads);
    r->outs = calloc(r->n, sizeof *r->outs);
    rig_layout(r, c);
    size_t most = 0;
    for (size_t t = 0; t < r->n; t++) {
        gs_weight *w = &r->weights[t];
        const int copied = r->list[t].copy.offset != 0;
        w->data = r->arrays[RIG_DATA].host + r->at[RIG_DATA][t];
        w->copy = copied ? r->arrays[RIG_COPY].host + r->at[RIG_COPY][t] : NULL;
        r->grads[t] = (gs_tensor){r->arrays[RIG_GRAD].host + r->at[RIG_GRAD][t], w->cols,
                                  w->grad_dtype, w->name, 0};
        r->outs[t] =
            (gs_tensor){r->arrays[RIG_OUT].host + r->at[RIG_OUT][t], w->cols, GS_F32, w->name, 0};
        const gs_tensor *grad = c->unscale == GS_UNSCALE_TO_F32 ? &r->outs[t] : &r->grads[t];
        w->grad = grad->data;
        w->grad_dtype = grad->dtype;
        r->list[t].data = rig_place(r, RIG_DATA, t);
        r->list[t].copy = copied ? rig_place(r, RIG_COPY, t) : (gs_device_ptr){0};
        r->list[t].grad = rig_place(r, RIG_GRAD, t);
        r->list[t].out = rig_place(r, RIG_OUT, t);
        for (size_t i = 0; i < w->cols; i++)
            rig_put(w->data, w->dtype, i, (float)(rig_normal(&r->random) * 0.1));
        most = w->cols > most ? w->cols : most;
    }
    r->moments = calloc(most + 1, sizeof(float));
    for (int k = 0; k < RIG_ARRAYS; k++)
        rig_write(r, k);
    const gs_optim_config config = rig_optim(c);
    CHECK_MSG(gs_scaler_init(&r->scaler, c->scaler, &error) == GS_OK &&
                  (!c->rules || gs_scaler_set(&r->scaler, c->rules, &error) == GS_OK),
              "%s", error.text);
    CHECK(gs_context_create(&r->ctx, NULL, NULL) == GS_OK);
    CHECK_MSG(gs_optim_create(&r->optim, r->ctx, r->weights, r->n, &config) == GS_OK, "%s",
              gs_context_error(r->ctx)->text);
    for (size_t t = 0; t < r->n; t++)
        if (r->list[t].lr_factor != 0)
            CHECK(gs_optim_set_lr_factor(r->optim, t, r->list[t].lr_factor) == GS_OK);
    const gs_device_plan_config plan = {.size = sizeof plan,
                                        .optim = &config,
                                        .scaler = &r->scaler,
                                        .steps = 2000,
                                        .unscale = c->unscale,
                                        .count = c->count,
                                        .count_half = GS_F16};
    const gs_status status = gs_device_plan_create(&r->plan, device, r->list, r->n, &plan, &error);
    CHECK_MSG(status == GS_OK, "%s", error.text);
    return status == GS_OK && r->optim != NULL;
}

static inline void device_rig_close(device_rig *r)
{
    gs_device_plan_free(r->plan);
    gs_optim_free(r->optim);
    gs_context_free(r->ctx);
    for (int k = 0; k < RIG_ARRAYS; k++) {
        gs_device_release(r->device, r->arrays[k].device);
        free(r->arrays[k].host);
        free(r->arrays[k].copy);
        free(r->at[k]);
    }
    if (r->n)
        free((void *)(uintptr_t)r->weights[0].name); /* the block of all names */
    free(r->weights);
    free(r->list);
    free(r->grads);
    free(r->outs);
    free(r->moments);
}

/* ---- comparing ---- */

/* A NaN is a NaN: which one is up to the processor. */
static inline int rig_nan(const char *p, gs_dtype type)
{
    uint32_t u = 0;
    memcpy(&u, p, rig_size(type));
    return type == GS_F32   ? (u & 0x7FFFFFFF) > 0x7F800000
           : type == GS_F16 ? (u & 0x7FFF) > 0x7C00
                            : (u & 0x7FFF) > 0x7F80;
}

static inline void rig_same(int step, const char *what, size_t t, const void *want, const void *got,
                            size_t count, gs_dtype type)
{
    const size_t size = rig_size(type);
    const char *a = want, *b = got;
    if (memcmp(a, b, count * size) == 0)
        return;
    for (size_t i = 0; i < count; i++)
        if (memcmp(a + i * size, b + i * size, size) != 0 &&
            !(rig_nan(a + i * size, type) && rig_nan(b + i * size, type))) {
            uint32_t x = 0, y = 0;
            memcpy(&x, a + i * size, size);
            memcpy(&y, b + i * size, size);
            CHECK_MSG(0, "step %d: %s of weight %zu, element %zu: %x, not %x", step, what, t, i, y,
                      x);
            return;
        }
}

static inline void rig_compare_arrays(device_rig *r, int step, const device_case *c)
{
    for (int k = 0; k < RIG_ARRAYS; k++)
        CHECK(gs_device_read(r->arrays[k].copy, r->device, r->arrays[k].device, r->arrays[k].bytes,
                             NULL, NULL) == GS_OK);
    for (size_t t = 0; t < r->n; t++) {
        const gs_weight *w = &r->weights[t];
        const size_t n = w->cols;
        rig_same(step, "data", t, w->data, r->arrays[RIG_DATA].copy + r->at[RIG_DATA][t], n,
                 w->dtype);
        if (w->copy)
            rig_same(step, "copy", t, w->copy, r->arrays[RIG_COPY].copy + r->at[RIG_COPY][t], n,
                     w->copy_dtype);
        rig_same(step, "gradient", t, r->grads[t].data,
                 r->arrays[RIG_GRAD].copy + r->at[RIG_GRAD][t], n, r->grads[t].dtype);
        if (c->unscale == GS_UNSCALE_TO_F32 && !r->cleared)
            rig_same(step, "output", t, r->outs[t].data,
                     r->arrays[RIG_OUT].copy + r->at[RIG_OUT][t], n, GS_F32);
        for (int s = GS_SLOT_M; s <= GS_SLOT_V; s++) {
            const gs_tensor slot = gs_optim_slot(r->optim, t, (gs_slot)s);
            if (slot.count == 0)
                continue;
            CHECK(gs_device_read(r->moments, r->device, gs_device_plan_slot(r->plan, t, (gs_slot)s),
                                 slot.count * 4, NULL, NULL) == GS_OK);
            rig_same(step, s == GS_SLOT_M ? "m" : "v", t, slot.data, r->moments, slot.count,
                     GS_F32);
        }
    }
}

static inline int rig_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static inline void rig_compare_report(const gs_device_report *got, const gs_optim_report *want,
                                      const gs_stats *stats, double scale, int step)
{
    const gs_stats *s = &got->stats;
    CHECK_MSG(got->step == (uint64_t)step + 1 && rig_bits(got->scale, scale),
              "step %d: scale %a, not %a", step, got->scale, scale);
    CHECK_MSG(s->elements == stats->elements && s->inf == stats->inf && s->nan == stats->nan &&
                  s->amax == stats->amax && s->bad_tensor == stats->bad_tensor &&
                  s->bad_index == stats->bad_index,
              "step %d: statistics", step);
    CHECK_MSG(s->zero == stats->zero && s->subnormal == stats->subnormal &&
                  s->underflow == stats->underflow,
              "step %d: counts %llu %llu %llu, not %llu %llu %llu", step,
              (unsigned long long)s->zero, (unsigned long long)s->subnormal,
              (unsigned long long)s->underflow, (unsigned long long)stats->zero,
              (unsigned long long)stats->subnormal, (unsigned long long)stats->underflow);
    CHECK_MSG(rig_bits(s->sumsq, stats->sumsq), "step %d: sumsq %a, not %a", step, s->sumsq,
              stats->sumsq);
    CHECK_MSG(got->optim.verdict.action == want->verdict.action &&
                  got->optim.verdict.reason == want->verdict.reason &&
                  rig_bits(got->optim.verdict.scale, want->verdict.scale),
              "step %d: verdict %d %d %a, not %d %d %a", step, (int)got->optim.verdict.action,
              (int)got->optim.verdict.reason, got->optim.verdict.scale, (int)want->verdict.action,
              (int)want->verdict.reason, want->verdict.scale);
    CHECK_MSG(rig_bits(got->optim.norm, want->norm) && rig_bits(got->optim.clip, want->clip) &&
                  rig_bits(got->optim.lr, want->lr),
              "step %d: norm %a clip %a lr %a, not %a %a %a", step, got->optim.norm,
              got->optim.clip, got->optim.lr, want->norm, want->clip, want->lr);
    CHECK_MSG(rig_bits(got->optim.weight_amax, want->weight_amax),
              "step %d: weight_amax %a, not %a", step, got->optim.weight_amax, want->weight_amax);
}

/* ---- steps ---- */

/* Scaled gradients of one step: of many sizes, with zeros, subnormals and now and then Inf or NaN.
 * A storm is a run of bad steps. */
static inline void rig_gradients(device_rig *r, double scale, int step)
{
    const double size = exp2(-30 + 3 * (step % 7)) * scale;
    for (size_t t = 0; t < r->n; t++) {
        const gs_tensor *g = &r->grads[t];
        for (size_t i = 0; i < g->count; i++) {
            const uint64_t kind = rig_random(&r->random) % 64;
            double x = rig_normal(&r->random) * size;
            x = kind == 0 ? 0 : kind == 1 ? ldexp(x, -24) : kind == 2 ? x * 1000 : x;
            x = x > 65504 ? 65504 : x < -65504 ? -65504 : x;
            rig_put(g->data, g->dtype, i, (float)x);
        }
        if (step % 5 == 3 && t % 4 == 1 && g->dtype == GS_F32) /* what must be summed in f64 */
            for (size_t i = 512; i < 1024 && i < g->count; i++)
                rig_put(g->data, GS_F32, i,
                        ldexpf((float)rig_normal(&r->random), step % 2 ? 65 : -60));
    }
    const int storm = step / 25 % 4 == 2;
    if (step % 8 == 5 || (storm && step % 3 != 0)) {
        const size_t bad = 1 + rig_random(&r->random) % 3;
        for (size_t k = 0; k < bad; k++) {
            const gs_tensor *g = &r->grads[rig_random(&r->random) % r->n];
            if (g->count > 0)
                rig_put(g->data, g->dtype, rig_random(&r->random) % g->count,
                        step % 2 ? (k ? -INFINITY : INFINITY) : NAN);
        }
    }
}

static inline void rig_count_all(device_rig *r, gs_stats *stats)
{
    gs_stats *each = calloc(r->n, sizeof *each);
    CHECK(gs_tensors_count(r->ctx, r->grads, r->n, GS_F16, each) == GS_OK);
    for (size_t t = 0; t < r->n; t++) {
        stats->zero += each[t].zero;
        stats->subnormal += each[t].subnormal;
        stats->underflow += each[t].underflow;
    }
    free(each);
}

static inline void rig_step_both(device_rig *r, const device_case *c, int i)
{
    gs_step step;
    gs_optim_report want = {0};
    gs_device_report got = {0};
    gs_error error = {0};
    gs_step_begin(&step, &r->scaler);
    rig_gradients(r, step.scale, i);
    rig_write(r, RIG_GRAD);
    gs_stats counts = {0};
    if (c->count)
        rig_count_all(r, &counts);
    gs_status status = GS_OK;
    if (c->unscale != GS_UNSCALE_FUSED)
        status = gs_step_unscale(&step, r->ctx, c->unscale == GS_UNSCALE_TO_F32 ? r->outs : NULL,
                                 r->grads, r->n);
    if (status == GS_OK)
        status = gs_optim_step(r->optim, &step, &r->scaler, &want);
    CHECK_MSG(status == GS_OK, "step %d: %s", i, gs_context_error(r->ctx)->text);
    /* libgradscale clears what its optimizer reads, the outputs; the device what it scans */
    r->cleared = c->unscale == GS_UNSCALE_TO_F32 && want.verdict.action != GS_APPLY &&
                 gs_optim_get_config(r->optim)->clear_grads;
    if (r->cleared)
        memset(r->arrays[RIG_GRAD].host, 0, r->arrays[RIG_GRAD].bytes);
    status = r->run ? r->run(r, &error) : gs_device_step(r->plan, NULL, &error);
    if (status == GS_OK)
        status = gs_device_wait(r->device, NULL, &error);
    CHECK_MSG(status == GS_OK, "step %d: %s", i, error.text);
    CHECK_MSG(gs_device_poll(&got, r->plan) == 1, "step %d: no report", i);
    step.stats.zero = counts.zero;
    step.stats.subnormal = counts.subnormal;
    step.stats.underflow = counts.underflow;
    rig_compare_report(&got, &want, &step.stats, step.scale, i);
}

/* Arrays, scaler, counters. Returns the steps skipped. */
static inline uint64_t rig_compare_all(device_rig *r, int i, const device_case *c)
{
    gs_scaler scaler = {0};
    gs_optim_state state = {0};
    const gs_optim_state want = gs_optim_get_state(r->optim);
    rig_compare_arrays(r, i, c);
    CHECK(gs_device_save(&scaler, &state, r->plan, NULL, NULL) == GS_OK);
    CHECK_MSG(memcmp(&scaler, &r->scaler, sizeof scaler) == 0, "step %d: the scaler", i);
    CHECK(state.applied == want.applied && state.skipped == want.skipped);
    return state.skipped;
}

static inline void device_compare(gs_device *device, const device_case *c)
{
    device_rig r;
    uint64_t skipped = 0;
    if (!device_rig_open(&r, device, c)) {
        device_rig_close(&r);
        return;
    }
    for (int i = 0; i < c->steps && !test_failures; i++) {
        rig_step_both(&r, c, i);
        if (i % c->every == 0 || i == c->steps - 1)
            skipped = rig_compare_all(&r, i, c);
    }
    CHECK_MSG(skipped > 0 || c->steps < 9, "no step was skipped: nothing is proven of it");
    if (test_failures)
        fprintf(stderr, "    %s, %s, scaler %s, seed %llu\n", c->optim, c->settings, c->scaler,
                (unsigned long long)c->seed);
    device_rig_close(&r);
}

/* ---- what fails ---- */

/* The calls of a device's life, up to the first that fails. before_end, unless it is NULL: what is
 * given back comes after it. */
static inline gs_status rig_every_call(const gs_device_config *config, const device_case *c,
                                       void (*before_end)(void), gs_error *error)
{
    const gs_optim_config optim = rig_optim(c);
    gs_device_info info;
    gs_device *device = NULL;
    gs_device_plan *plan = NULL;
    gs_scaler scaler, saved;
    gs_optim_state state;
    gs_device_ptr a = {0}, b = {0};
    const float x[8] = {0};
    size_t n;
    CHECK(gs_scaler_init(&scaler, NULL, NULL) == GS_OK);
    gs_status status = gs_device_list(&info, 1, &n, config, error);
    if (status == GS_OK)
        status = gs_device_create(&device, config, error);
    if (status == GS_OK)
        status = gs_device_alloc(&a, device, sizeof x, error);
    if (status == GS_OK)
        status = gs_device_alloc(&b, device, sizeof x, error);
    if (status == GS_OK)
        status = gs_device_write(device, a, x, sizeof x, NULL, error);
    if (status == GS_OK)
        status = gs_device_copy(device, b, a, sizeof x, NULL, error);
    const gs_device_weight w = {.count = 8, .data = a, .grad = b};
    const gs_device_plan_config settings = {
        .size = sizeof settings, .optim = &optim, .scaler = &scaler, .steps = 10};
    if (status == GS_OK)
        status = gs_device_plan_create(&plan, device, &w, 1, &settings, error);
    if (status == GS_OK)
        status = gs_device_step(plan, NULL, error);
    if (status == GS_OK)
        status = gs_device_save(&saved, &state, plan, NULL, error);
    if (status == GS_OK)
        status = gs_device_load(plan, &saved, &state, NULL, error);
    if (before_end)
        before_end();
    gs_device_plan_free(plan);
    if (device) {
        gs_device_release(device, a);
        gs_device_release(device, b);
    }
    gs_device_free(device);
    return status;
}

/* The one file of a cache of kernels, in path. */
static inline void rig_cached(char *path, size_t size, const char *folder)
{
    char command[256];
    snprintf(command, sizeof command, "ls %s/*.bin", folder);
    FILE *list = popen(command, "r");
    CHECK(list && fgets(path, (int)size, list));
    if (list)
        pclose(list);
    path[strcspn(path, "\n")] = 0;
}

/* ---- the cases ---- */

/* Every optimizer, each way to store weights, each way to unscale. */
static const device_case device_cases[] = {
    {"adamw", "lr=3e-3 weight_decay=0.1 clip_norm=1 schedule=cosine warmup=5 total=100", "pytorch",
     "interval=4", GS_UNSCALE_FUSED, 1, 0, 0, 0, 0, 0, 1},
    {"adam", "lr=3e-3 weight_decay=0.1 clip_value=0.01", "megatron", "interval=7", GS_UNSCALE_FUSED,
     0, 0, 0, 0, 0, 0, 2},
    {"sgd", "lr=0.1 momentum=0.9 dampening=0.1 weight_decay=0.01 clip_norm=0.5", "headroom", NULL,
     GS_UNSCALE_FUSED, 0, 0, 0, 0, 0, 0, 3},
    {"sgd", "lr=0.1 schedule=step every=10 gamma=0.5", "static:1024", NULL, GS_UNSCALE_IN_PLACE, 1,
     0, 0, 0, 0, 0, 4},
    {"sgd", "lr=0.1 momentum=0.9 nesterov=yes clear_grads=no", "apex", NULL, GS_UNSCALE_TO_F32, 0,
     0, 0, 0, 0, 0, 5},
    {"lamb", "lr=0.01 weight_decay=0.1 clip_norm=1", "deepspeed", NULL, GS_UNSCALE_FUSED, 0, 0, 0,
     0, 0, 0, 6},
    {"adamw", "lr=0.01 rounding=stochastic seed=5", "pytorch", "interval=3", GS_UNSCALE_IN_PLACE, 0,
     1, 0, 0, 0, 0, 7},
    {"lamb", "lr=0.01 rounding=stochastic seed=9 weight_decay=0.1", "headroom",
     "margin=2.5 history=3", GS_UNSCALE_FUSED, 0, 1, 0, 0, 0, 0, 8},
    {"adam", "lr=0.01 rounding=nearest clip_norm=1", "tensorflow", NULL, GS_UNSCALE_TO_F32, 1, 1, 0,
     0, 0, 0, 9},
};
enum { DEVICE_CASES = sizeof device_cases / sizeof device_cases[0] };

/* 1,000 steps with storms of Inf and NaN: every preset, every optimizer. */
static inline void device_presets(gs_device *device, size_t most, uint64_t seed)
{
    const char *name;
    for (size_t i = 0; (name = gs_preset_name(i)); i++) {
        device_case c = device_cases[i % DEVICE_CASES];
        c.scaler = name;
        c.rules = NULL;
        c.steps = 1000;
        c.every = 250;
        c.most = most;
        c.seed = seed + i;
        device_compare(device, &c);
    }
}

/* A list of ten thousand: more chunks than a group has. */
static inline void device_many_small(gs_device *device, int steps, int every)
{
    for (int k = 0; k < DEVICE_CASES; k += 5) {
        device_case c = device_cases[k];
        c.steps = steps;
        c.every = every;
        c.most = 600;
        c.small = 10000;
        device_compare(device, &c);
    }
}

#endif
