/* The tape: a list of operations, newest first, and the memory of a step.
 *
 * (1) A value's data, once made, is not written again before gs_tape_begin, with one exception:
 *     cross_entropy may leave d(logits) in the place of logits that nobody reads any more.
 * (2) A value's gradient is complete when the backward pass reaches the operation that made it:
 *     all that use the value are newer.
 * (3) A gradient that several values share is never written: adding to it makes a copy first.
 * (4) All arithmetic is done in the default floating-point environment, whatever the caller's:
 *     backward sets it once, and so do those that compute outside of gsi_over_rows on the way. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    gs_class class;
    gsi_backward_fn *backward;
} ops[] = {
#define X(name, class) {#name, GS_CLASS_##class, gsi_##name##_backward},
    GS_OPS(X)
#undef X
};

const char *gs_op_name(gs_op op) { return (unsigned)op < GS_OP_COUNT ? ops[op].name : "unknown"; }

gs_class gs_op_class(gs_op op)
{
    return (unsigned)op < GS_OP_COUNT ? ops[op].class : GS_CLASS_AS_IS;
}

/* ---- life ---- */

gs_status gs_tape_create(gs_tape **out, gs_context *ctx, const gs_tape_config *config)
{
    if (!out || !ctx || !config)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_tape_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_tape_config", &ctx->error);
    if (status != GS_OK)
        return status;
    config = &today;
    if ((unsigned)config->mode >= GS_MODE_COUNT)
        return gsi_fail(&ctx->error, GS_ERANGE, "there is no mode %d", (int)config->mode);
    if (config->mode != GS_O0 && config->half != GS_F16 && config->half != GS_BF16)
        return gsi_fail(&ctx->error, GS_EDTYPE, "the half type of a tape is f16 or bf16");
    if (config->quantize != GS_QUANTIZE_NONE && config->range_rule == GS_RANGE_PERCENTILE &&
        !(config->percentile > 0 && config->percentile <= 100))
        return gsi_fail(&ctx->error, GS_ERANGE, "a percentile is above 0 and at most 100, not %g",
                        (double)config->percentile);
    gs_tape *t = gsi_new(&ctx->heap, sizeof *t);
    if (!t)
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for a tape");
    *t = (gs_tape){.ctx = ctx, .config = *config, .next = *config, .layer = SIZE_MAX};
    t->rows = &ctx->kernels.rows;
    gsi_arena_init(&t->arena, &ctx->heap);
    gsi_arena_init(&t->segment, &ctx->heap);
    gs_stats_init(&t->stats);
    *out = t;
    return GS_OK;
}

void gs_tape_free(gs_tape *tape)
{
    if (!tape)
        return;
    gsi_tape_fix(tape, NULL, 0);
    gsi_arena_free(&tape->arena);
    gsi_arena_free(&tape->segment);
    gsi_free(&tape->ctx->heap, tape->layers);
    gsi_free(&tape->ctx->heap, tape->sums);
    gsi_free(&tape->ctx->heap, tape->fresh);
    gsi_free(&tape->ctx->heap, tape);
}

gs_status gs_tape_set_config(gs_tape *tape, const gs_tape_config *config)
{
    if (!config)
        return gsi_fail(&tape->ctx->error, GS_ENULL, "a tape's config is NULL");
    gs_tape_config today;
    const gs_status status =
        gsi_config(&today, sizeof today, config, "gs_tape_config", &tape->ctx->error);
    if (status != GS_OK)
        return status;
    config = &today;
    if (config->mode != tape->config.mode || config->half != tape->config.half)
        return gsi_fail(&tape->ctx->error, GS_ESTATE, "a tape keeps its mode and its half type");
    tape->next = *config;
    return GS_OK;
}

void gs_tape_begin(gs_tape *tape, int training, uint64_t seed)
{
    gsi_arena_reset(&tape->arena, (gsi_mark){0});
    tape->arena.peak = tape->segment.peak = 0;
    tape->training = training;
    tape->config = tape->next;
    tape->exponents = tape->ask_exponents;
    tape->calibrating = tape->ask_calibrating;
    tape->doing = "begin";
    tape->timed = GS_OP_COUNT;
    memset(tape->seconds, 0, sizeof tape->seconds);
    tape->last = NULL;
    tape->spares[0] = tape->spares[1] = NULL;
    tape->uses = NULL;
    tape->error = (gs_error){0};
    tape->layer = SIZE_MAX;
    tape->layer_count = 0;
    tape->memory = tape->inside = (gs_memory){0};
    tape->seed = seed;
    tape->dropouts = 0;
    gs_stats_init(&tape->stats);
}

gs_status gs_tape_status(const gs_tape *tape)
{
    if (tape->error.status != GS_OK)
        tape->ctx->error = tape->error;
    return tape->error.status;
}

const gs_stats *gs_tape_stats(const gs_tape *tape) { return &tape->stats; }

gs_memory gs_tape_memory(const gs_tape *tape)
{
    return (gs_memory){.activations = tape->memory.activations + tape->inside.activations,
                       .gradients = tape->memory.gradients + tape->inside.gradients,
                       .peak = tape->arena.peak + tape->segment.peak};
}

const gs_op_seconds *gs_tape_op_seconds(const gs_tape *tape) { return tape->seconds; }

void gsi_run_op(gs_tape *t, gs_op op)
{
    if (op < GS_OP_COUNT)
        t->doing = ops[op].name;
    if (op == t->timed)
        return;
    const double now = gs_clock();
    if (t->timed < GS_OP_COUNT) {
        gs_op_seconds *const s = &t->seconds[t->timed];
        *(t->backward ? &s->backward : &s->forward) += now - t->timed_since;
    }
    t->timed = op;
    t->timed_since = now;
}

void gs_tape_set_layer(gs_tape *tape, const char *name)
{
    if (!tape->config.telemetry && !tape->exponents)
        return;
    if (tape->where == GSI_SECOND_RUN) { /* the first has made it */
        tape->layer = tape->layer_count++;
        return;
    }
    if (tape->layer_count == tape->layer_room) {
        const size_t room = tape->layer_room ? 2 * tape->layer_room : 64;
        gs_layer *layers = gsi_new(&tape->ctx->heap, room * sizeof *layers);
        gs_exponents **sums = gsi_new(&tape->ctx->heap, room * sizeof *sums);
        if (!layers || !sums) {
            gsi_free(&tape->ctx->heap, layers);
            gsi_free(&tape->ctx->heap, sums);
            gs_tape_fail(tape, GS_ENOMEM, "no memory for the statistics of layer %s", name);
            return;
        }
        if (tape->layers) {
            memcpy(layers, tape->layers, tape->layer_count * sizeof *layers);
            memcpy(sums, tape->sums, tape->layer_count * sizeof *sums);
        }
        gsi_free(&tape->ctx->heap, tape->layers);
        gsi_free(&tape->ctx->heap, tape->sums);
        tape->layers = layers;
        tape->sums = sums;
        tape->layer_room = room;
    }
    gs_exponents *exponents = NULL;
    if (tape->exponents) {
        exponents = gsi_arena_new(&tape->arena, 1, sizeof *exponents);
        if (!exponents) {
            gs_tape_fail(tape, GS_ENOMEM, "no memory for the exponents of layer %s", name);
            return;
        }
        memset(exponents, 0, sizeof *exponents);
    }
    tape->layer = tape->layer_count++;
    tape->sums[tape->layer] = exponents;
    gs_layer *layer = &tape->layers[tape->layer];
    *layer = (gs_layer){.name = name, .exponents = exponents};
    gs_stats_init(&layer->stats);
}

const gs_layer *gs_tape_layers(const gs_tape *tape, size_t *n)
{
    if (n)
        *n = tape->layer_count;
    return tape->layer_count ? tape->layers : NULL;
}

void gs_tape_set_exponents(gs_tape *tape, int on) { tape->ask_exponents = on; }

void gs_tape_set_calibrating(gs_tape *tape, int on) { tape->ask_calibrating = on; }

void gs_tape_set_ranges(gs_tape *tape, const gs_weight *weights, size_t n, float *ranges)
{
    tape->ranged = weights;
    tape->ranged_count = n;
    tape->ranges = ranges;
}

/* ---- making values ---- */

gs_value *gs_tape_fail(gs_tape *t, gs_status status, const char *format, ...)
{
    if (t->error.status == GS_OK) {
        va_list args;
        va_start(args, format);
        t->error.status = status;
        vsnprintf(t->error.text, sizeof t->error.text, format, args);
        va_end(args);
    }
    return &t->poison.value;
}

bool gsi_readable(gs_tape *t, gs_op op, const gs_value *v)
{
    gsi_run_op(t, op);
    if (!v)
        gs_tape_fail(t, GS_ENULL, "%s: a value is NULL", t->doing);
    else if (!v->data) /* notes nothing where this step made it */
        gs_tape_fail(t, GS_ESTATE, "%s: a value is one that another step could not make", t->doing);
    return v && v->data;
}

const char *gsi_shape(char text[96], const gs_value *v)
{
    int used = snprintf(text, 96, "[");
    for (int i = 0; i < v->rank; i++)
        used += snprintf(text + used, 96 - (size_t)used, i ? " %zu" : "%zu", v->shape[i]);
    snprintf(text + used, 96 - (size_t)used, "]");
    return text;
}

void *gsi_step_new(gs_tape *t, size_t count, size_t size)
{
    void *p = gsi_arena_new(t->where == GSI_OUTSIDE ? &t->arena : &t->segment, count, size);
    if (!p)
        gs_tape_fail(t, GS_ENOMEM, "%s: no memory for %zu elements of %zu bytes", t->doing, count,
                     size);
    return p;
}

/* A value without data. */
static gs_value *bare_value(gs_tape *t, gs_dtype dtype, int rank, const size_t *shape)
{
    char text[96];
    gsi_node *node = gsi_step_new(t, 1, sizeof *node);
    if (!node)
        return &t->poison.value;
    *node = (gsi_node){.value = {.dtype = dtype, .rank = rank, .count = 1}};
    gs_value *v = &node->value;
    bool fits = true;
    for (int i = 0; i < rank; i++) {
        v->shape[i] = shape[i];
        fits &= gsi_mul_size(&v->count, v->count, shape[i]);
    }
    return fits ? v
                : gs_tape_fail(t, GS_ESIZE, "%s: a shape of %s is too large", t->doing,
                               gsi_shape(text, v));
}

gs_value *gsi_value(gs_tape *t, gs_dtype dtype, int rank, const size_t *shape)
{
    gs_value *v = bare_value(t, dtype, rank, shape);
    if (v == &t->poison.value)
        return v;
    v->data = gsi_node_of(v)->data = gsi_step_new(t, v->count, gsi_size_of(dtype));
    t->memory.activations += v->count * gsi_size_of(dtype);
    return v->data ? v : &t->poison.value;
}

/* Whether the caller's array can be used; NULL can. */
static bool usable(gs_tape *t, const char *what, const void *data, gs_dtype dtype)
{
    if (dtype != GS_F32 && dtype != GS_F16 && dtype != GS_BF16)
        gs_tape_fail(t, GS_EDTYPE, "%s must be f32, f16 or bf16", what);
    else if ((uintptr_t)data % gsi_size_of(dtype) != 0)
        gs_tape_fail(t, GS_EALIGN, "%s is not aligned to its element size", what);
    else
        return true;
    return false;
}

gs_value *gs_input(gs_tape *tape, gs_dtype dtype, int rank, const size_t *shape, const void *data)
{
    char text[96];
    gsi_run_op(tape, GS_OP_COUNT);
    tape->doing = "input";
    if (!usable(tape, "an input", data, dtype))
        return &tape->poison.value;
    if (rank < 0 || rank > 4 || (rank > 0 && !shape))
        return gs_tape_fail(tape, GS_ERANGE, "input: %d dimensions%s: 0 to 4 are possible", rank,
                            shape ? "" : " without sizes");
    gs_value *v = bare_value(tape, dtype, rank, shape);
    if (v == &tape->poison.value)
        return v;
    if (v->count == 0)
        return gs_tape_fail(tape, GS_ESIZE, "input: %s is empty", gsi_shape(text, v));
    if (!data)
        return gs_tape_fail(tape, GS_ENULL, "input: %s has no data", gsi_shape(text, v));
    v->data = data;
    return v;
}

/* Notes the first use of a weight. It outlives the segment that it may be in. */
static void note_use(gs_tape *t, const gs_weight *weight)
{
    for (const struct gsi_use *u = t->uses; u; u = u->before)
        if (u->weight == weight)
            return;
    struct gsi_use *use = gsi_arena_new(&t->arena, 1, sizeof *use);
    if (!use) {
        gs_tape_fail(t, GS_ENOMEM, "no memory to note a use of %s", weight->name);
        return;
    }
    *use = (struct gsi_use){t->uses, weight, t->last};
    t->uses = use;
}

gs_value *gs_param(gs_tape *tape, const gs_weight *weight)
{
    gsi_run_op(tape, GS_OP_COUNT);
    tape->doing = "param";
    if (!weight)
        return gs_tape_fail(tape, GS_ENULL, "a weight is missing");
    const char *const name = weight->name ? weight->name : "(unnamed)";
    if (!usable(tape, name, weight->data, weight->dtype) ||
        (weight->copy && !usable(tape, name, weight->copy, weight->copy_dtype)) ||
        (weight->grad && !usable(tape, name, weight->grad, weight->grad_dtype)))
        return &tape->poison.value;
    const size_t shape[] = {weight->rows, weight->cols};
    const int vector = weight->rows == 1;
    gs_value *v = bare_value(tape, weight->dtype, 2 - vector, shape + vector);
    if (v == &tape->poison.value)
        return v;
    if (v->count == 0 || !weight->data)
        return gs_tape_fail(tape, GS_ESIZE, "weight %s is empty", name);
    v->data = weight->data;
    v->weight = weight;
    v->needs_grad = tape->training && weight->grad;
    if (tape->ready && v->needs_grad && tape->where != GSI_SECOND_RUN)
        note_use(tape, weight);
    return v;
}

void *gsi_record(gs_tape *t, gs_op op, size_t size, gs_value *out, gs_value *a, gs_value *b,
                 gs_value *c)
{
    if (!t->training || gsi_poisoned(out) ||
        !((a && a->needs_grad) || (b && b->needs_grad) || (c && c->needs_grad)))
        return NULL;
    out->needs_grad = 1;
    if (t->where == GSI_FIRST_RUN)
        return NULL;
    gsi_op *record = gsi_step_new(t, 1, size);
    if (!record)
        return NULL;
    memset(record, 0, size);
    *record = (gsi_op){t->last, out, {a, b, c}, t->layer, op};
    t->last = record;
    return record;
}

/* ---- backward ---- */

void gsi_tape_watch(gs_tape *t, gsi_ready_fn *ready, void *user)
{
    t->ready = ready;
    t->ready_user = user;
}

/* Everything newer than `op` has run backward. */
static void report_ready(gs_tape *t, const gsi_op *op)
{
    if (!t->ready || t->error.status != GS_OK)
        return;
    for (; t->uses && t->uses->since == op; t->uses = t->uses->before)
        t->ready(t->ready_user, t->uses->weight);
    t->ready(t->ready_user, NULL);
}

/* The histogram of d(out), which is complete now and will be gone soon. */
static void add_exponents(gs_tape *t, const gsi_op *op)
{
    gs_value *out = op->out;
    const gs_dtype stored = t->config.mode == GS_O0 ? GS_F32 : t->config.half;
    if (op->layer == SIZE_MAX || out->dtype != stored || out->rank == 0 ||
        gsi_node_of(out)->alias || op->op == GS_OP_recompute)
        return; /* the loss has the seed; what shows another's value has the other's gradient */
    const gs_tensor grad = gs_tensor_source(out->grad, out->count, out->dtype, NULL);
    gsi_demand(t, gs_tensors_exponents(t->ctx, t->sums[op->layer], &grad, 1, NULL));
}

void gsi_backward(gs_tape *t, gsi_op *op)
{
    for (; op && t->error.status == GS_OK; op = op->before) {
        gs_value *out = op->out;
        report_ready(t, op);
        if (!out->grad) /* nothing that leads to the loss */
            continue;
        t->layer = op->layer;
        gsi_run_op(t, op->op);
        if (t->exponents)
            add_exponents(t, op);
        ops[op->op].backward(t, op);
        gsi_release(t, out);
    }
}

gs_status gs_tape_backward(gs_tape *tape, gs_value *loss, float seed)
{
    if (tape->error.status != GS_OK)
        return gs_tape_status(tape);
    if (!loss || loss->count != 1 || loss->dtype != GS_F32 || !loss->needs_grad) {
        gs_tape_fail(tape, GS_ESTATE, "backward begins at an f32 scalar that depends on a weight");
        return gs_tape_status(tape);
    }
    const uint64_t env = gsi_fpenv_enter();
    gsi_run_op(tape, GS_OP_COUNT);
    tape->backward = true;
    gsi_accumulate(tape, loss, &seed, GS_F32);
    gsi_backward(tape, tape->last);
    gsi_run_op(tape, GS_OP_COUNT);
    tape->backward = false;
    gsi_fpenv_leave(env);
    report_ready(tape, NULL);
    return gs_tape_status(tape);
}
