/* gradscale device --test: the same steps on the device and by libgradscale, and all bits
 * compared. */
#include "cli/device/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 7, STEPS = 24, DATA = 0, COPY, GRAD, ARRAYS };
static const size_t counts[TENSORS] = {1, 31, 513, 65537, 4097, 140000, 7};

static const struct {
    const char *optim, *settings, *scaler;
    gs_dtype data, copy, grad;
} cases[] = {
    {"adamw", "lr=3e-3 weight_decay=0.1 clip_norm=1 schedule=cosine total=40", "pytorch", GS_F32,
     GS_F16, GS_F16},
    {"adamw", "lr=3e-3 weight_decay=0.1 clip_norm=1", "headroom", GS_F32, GS_BF16, GS_BF16},
    {"adam", "lr=3e-3 clip_value=0.01", "megatron", GS_F32, GS_F16, GS_F32},
    {"sgd", "lr=0.1 momentum=0.9 nesterov=yes weight_decay=0.01", "deepspeed", GS_F32, GS_F32,
     GS_F16},
    {"lamb", "lr=0.01 weight_decay=0.1 clip_norm=1", "apex", GS_F32, GS_F16, GS_F16},
    {"adamw", "lr=0.01 rounding=stochastic seed=5", "pytorch", GS_BF16, GS_F32, GS_BF16},
    {"adamw", "lr=0.01 rounding=stochastic seed=6", "pytorch", GS_F16, GS_F32, GS_F16},
};

typedef struct both {
    gs_device *device;
    gs_context *ctx;
    gs_optim *optim;
    gs_device_plan *plan;
    gs_scaler scaler;
    gs_weight weights[TENSORS];
    gs_device_weight list[TENSORS];
    char *host[ARRAYS], *back, names[TENSORS][8];
    gs_device_ptr memory[ARRAYS];
    size_t bytes[ARRAYS], at[ARRAYS][TENSORS];
    uint64_t random;
} both;

static size_t size_of(gs_dtype type) { return gs_dtype_format(type)->bytes; }

static double draw(both *b) { return (double)gs_random_u32(11, b->random++) / 0x1p+31 - 1; }

static void put(void *data, gs_dtype type, size_t i, float x)
{
    if (type == GS_F32)
        ((float *)data)[i] = x;
    else
        ((uint16_t *)data)[i] = type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
}

static gs_status make(both *b, size_t k, gs_error *error)
{
    const gs_dtype types[ARRAYS] = {cases[k].data, cases[k].copy, cases[k].grad};
    gs_optim_config optim = {.size = sizeof optim};
    gs_status status = GS_OK;
    for (int a = 0; a < ARRAYS && status == GS_OK; a++) {
        for (size_t t = 0; t < TENSORS; t++) { /* none begins at a cache line */
            b->at[a][t] = b->bytes[a] + size_of(types[a]);
            b->bytes[a] = b->at[a][t] + counts[t] * size_of(types[a]);
        }
        b->host[a] = cli_resize(NULL, b->bytes[a]);
        memset(b->host[a], 0, b->bytes[a]);
        status = gs_device_alloc(&b->memory[a], b->device, b->bytes[a], error);
    }
    b->back =
        cli_resize(NULL, b->bytes[DATA] > b->bytes[GRAD] ? 2 * b->bytes[DATA] : 2 * b->bytes[GRAD]);
    for (size_t t = 0; t < TENSORS && status == GS_OK; t++) {
        gs_device_ptr p[ARRAYS];
        for (int a = 0; a < ARRAYS; a++)
            p[a] = (gs_device_ptr){b->memory[a].base, b->memory[a].offset + b->at[a][t]};
        snprintf(b->names[t], sizeof b->names[t], "w%zu", t);
        b->weights[t] = (gs_weight){b->names[t], 1,
                                    counts[t],   b->host[DATA] + b->at[DATA][t],
                                    types[DATA], b->host[COPY] + b->at[COPY][t],
                                    types[COPY], b->host[GRAD] + b->at[GRAD][t],
                                    types[GRAD], t % 3 == 1 ? GS_NO_DECAY : 0};
        b->list[t] = (gs_device_weight){.name = b->names[t],
                                        .count = counts[t],
                                        .data = p[DATA],
                                        .dtype = types[DATA],
                                        .copy = p[COPY],
                                        .copy_dtype = types[COPY],
                                        .grad = p[GRAD],
                                        .grad_dtype = types[GRAD],
                                        .flags = b->weights[t].flags};
        for (size_t i = 0; i < counts[t]; i++)
            put(b->weights[t].data, types[DATA], i, (float)(0.1 * draw(b)));
    }
    for (int a = 0; a < ARRAYS && status == GS_OK; a++)
        status = gs_device_write(b->device, b->memory[a], b->host[a], b->bytes[a], NULL, error);
    if (status == GS_OK)
        status = gs_scaler_init(&b->scaler, cases[k].scaler, error);
    if (status == GS_OK)
        status = gs_optim_config_init(&optim, cases[k].optim, error);
    if (status == GS_OK)
        status = gs_optim_config_set(&optim, cases[k].settings, error);
    if (status == GS_OK)
        status = gs_context_create(&b->ctx, NULL, error);
    if (status == GS_OK &&
        gs_optim_create(&b->optim, b->ctx, b->weights, TENSORS, &optim) != GS_OK) {
        *error = *gs_context_error(b->ctx);
        status = error->status;
    }
    const gs_device_plan_config config = {
        .size = sizeof config, .optim = &optim, .scaler = &b->scaler, .steps = STEPS};
    if (status == GS_OK)
        status = gs_device_plan_create(&b->plan, b->device, b->list, TENSORS, &config, error);
    return status;
}

static void drop(both *b)
{
    gs_device_plan_free(b->plan);
    gs_optim_free(b->optim);
    gs_context_free(b->ctx);
    for (int a = 0; a < ARRAYS; a++) {
        gs_device_release(b->device, b->memory[a]);
        free(b->host[a]);
    }
    free(b->back);
}

/* ---- steps ---- */

static void fill_grads(both *b, double scale, int step)
{
    const double size = exp2(-24 + 3 * (step % 5)) * scale;
    for (size_t t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < counts[t]; i++)
            put(b->weights[t].grad, b->weights[t].grad_dtype, i,
                (float)fmin(fmax(draw(b) * size, -65504), 65504));
    if (step % 6 == 4)
        put(b->weights[5].grad, b->weights[5].grad_dtype, 131072,
            (float)(step % 4 ? INFINITY : NAN));
}

static bool differs(const char *what, size_t t, int step, const void *want, const void *got,
                    size_t bytes)
{
    if (memcmp(want, got, bytes) == 0)
        return false;
    size_t i = 0;
    while (((const char *)want)[i] == ((const char *)got)[i])
        i++;
    printf("DIFFERENT: %s of weight %zu, byte %zu, after step %d\n", what, t, i, step);
    return true;
}

static bool compare(both *b, int step, gs_error *error)
{
    static const char *const names[] = {"the data", "the copy", "the gradient"};
    gs_scaler scaler = {0};
    bool bad = false;
    for (int a = 0; a < ARRAYS && !bad; a++) {
        if (gs_device_read(b->back, b->device, b->memory[a], b->bytes[a], NULL, error) != GS_OK)
            return true;
        for (size_t t = 0; t < TENSORS && !bad; t++) {
            const gs_weight *w = &b->weights[t];
            const gs_dtype type = a == DATA ? w->dtype : a == COPY ? w->copy_dtype : w->grad_dtype;
            bad = differs(names[a], t, step, b->host[a] + b->at[a][t], b->back + b->at[a][t],
                          counts[t] * size_of(type));
        }
    }
    for (size_t t = 0; t < TENSORS && !bad; t++)
        for (int s = GS_SLOT_M; s <= GS_SLOT_V && !bad; s++) {
            const gs_tensor slot = gs_optim_slot(b->optim, t, (gs_slot)s);
            if (slot.count == 0)
                continue;
            if (gs_device_read(b->back, b->device, gs_device_plan_slot(b->plan, t, (gs_slot)s),
                               slot.count * 4, NULL, error) != GS_OK)
                return true;
            bad = differs(gs_slot_name((gs_slot)s), t, step, slot.data, b->back, slot.count * 4);
        }
    if (!bad && gs_device_save(&scaler, NULL, b->plan, NULL, error) != GS_OK)
        return true;
    return bad || differs("the scaler", 0, step, &b->scaler, &scaler, sizeof scaler);
}

static bool run_step(both *b, int i, gs_error *error)
{
    gs_step step;
    gs_optim_report want;
    gs_device_report got = {0};
    gs_step_begin(&step, &b->scaler);
    fill_grads(b, step.scale, i);
    if (gs_device_write(b->device, b->memory[GRAD], b->host[GRAD], b->bytes[GRAD], NULL, error) !=
            GS_OK ||
        gs_device_step(b->plan, NULL, error) != GS_OK ||
        gs_device_wait(b->device, NULL, error) != GS_OK)
        return true;
    if (gs_optim_step(b->optim, &step, &b->scaler, &want) != GS_OK) {
        *error = *gs_context_error(b->ctx);
        return true;
    }
    if (!gs_device_poll(&got, b->plan)) {
        printf("DIFFERENT: no report of step %d\n", i);
        return true;
    }
    return differs("the sum of squares", 0, i, &step.stats.sumsq, &got.stats.sumsq,
                   sizeof(double)) ||
           differs("amax", 0, i, &step.stats.amax, &got.stats.amax, sizeof(float)) ||
           differs("the clip factor", 0, i, &want.clip, &got.optim.clip, sizeof(double)) ||
           differs("the action", 0, i, &want.verdict.action, &got.optim.verdict.action,
                   sizeof(gs_action)) ||
           (i % 8 == 7 && compare(b, i, error));
}

int device_test(gs_device *device)
{
    const gs_device_info info = gs_device_get_info(device);
    size_t bad = 0;
    char about[1024];
    snprintf(about, sizeof about, "gradscale %s, %s: %s (%s), kernels: %s", gs_version(),
             gs_device_kind_name(info.kind), info.name, info.driver, info.kernels);
    cli_wrap(about, 0, 4);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        both b = {.device = device};
        gs_error error = {0};
        bool wrong = make(&b, k, &error) != GS_OK;
        for (int i = 0; i < STEPS && !wrong; i++)
            wrong = run_step(&b, i, &error);
        if (error.text[0])
            printf("FAILED: %s\n", error.text);
        printf("%-6s %-5s weights, %-4s copies, %-4s gradients, scaler %-9s %s\n", cases[k].optim,
               gs_dtype_format(cases[k].data)->name, gs_dtype_format(cases[k].copy)->name,
               gs_dtype_format(cases[k].grad)->name, cases[k].scaler,
               wrong ? "DIFFERENT" : "equal bits");
        bad += wrong;
        drop(&b);
    }
    printf("%s: %zu of %zu cases, %d steps each\n",
           bad ? "DIFFERENT" : "equal bits with libgradscale",
           bad ? bad : sizeof cases / sizeof cases[0], sizeof cases / sizeof cases[0], STEPS);
    return bad ? CLI_FAILED : CLI_DONE;
}
