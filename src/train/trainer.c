/* The trainer: its parts, made together and freed together, and what surrounds a step. */
#include "engine/engine.h"
#include "scaler/scaler.h"
#include "train/ranks.h"

#include <string.h>

/* ---- life ---- */

/* ZeRO-1 in O2 keeps f32 weights elsewhere, each rank its own. */
static gs_store_types types_of(const gs_trainer_config *config, int ranks)
{
    const gs_tape_config *tape = &config->tape;
    const gs_dtype half = tape->mode == GS_O0 ? GS_F32 : tape->half;
    const bool apart = tape->mode == GS_O2 && config->ranks.zero && ranks > 1;
    const gs_dtype data = tape->mode == GS_O3 || apart ? half : GS_F32;
    return (gs_store_types){.data = data, .copy = half, .grad = GS_F32};
}

static gs_status check_model(gs_context *ctx, const gs_model *m)
{
    if (!m->forward || (m->n > 0 && (!m->entries || !m->inits)))
        return gsi_fail(&ctx->error, GS_ENULL, "the model has no forward pass or no weights");
    if (m->n_ranges > m->states)
        return gsi_fail(&ctx->error, GS_ERANGE, "the model has %zu states and %zu ranges",
                        m->states, m->n_ranges);
    if (m->states > 0 && !m->state)
        return gsi_fail(&ctx->error, GS_ENULL, "the model's %zu running statistics are NULL",
                        m->states);
    return GS_OK;
}

/* Values are drawn in f32 and stored in the type that is trained. */
static gs_status init_weights(gs_trainer *t)
{
    enum { BLOCK = 4096 };
    float block[BLOCK];
    for (size_t k = 0; k < t->model->n; k++) {
        const gs_weight *w = &gs_store_weights(t->store, NULL)[k];
        const size_t count = w->rows * w->cols, size = gsi_size_of(w->dtype);
        if (w->dtype == GS_F32) {
            gsi_init_fill(w->data, count, t->model->inits[k], t->seed, k, 0);
            continue;
        }
        for (size_t i = 0; i < count; i += BLOCK) {
            const size_t n = count - i < BLOCK ? count - i : BLOCK;
            gsi_init_fill(block, n, t->model->inits[k], t->seed, k, i);
            const gs_tensor from = {block, n, GS_F32, w->name, 0};
            const gs_tensor to = {(char *)w->data + i * size, n, w->dtype, w->name, 0};
            const gs_status status = gs_tensors_convert(t->ctx, &to, &from, 1, NULL);
            if (status != GS_OK)
                return status;
        }
    }
    return GS_OK;
}

static gs_status round_copies(gs_trainer *t)
{
    const gs_tensor data = gs_store_data(t->store), copies = gs_store_copies(t->store);
    return copies.count ? gs_tensors_convert(t->ctx, &copies, &data, 1, NULL) : GS_OK;
}

/* No rank waits for another in here. */
static gs_status make_parts(gs_trainer *t, const gs_trainer_config *config)
{
    gs_context *ctx = t->ctx;
    gs_model *m = t->model;
    const char *const half = config->tape.mode == GS_O0     ? "half=f32"
                             : config->tape.half == GS_BF16 ? "half=bf16"
                                                            : "half=f16";
    size_t bytes;
    gs_status status = check_model(ctx, m);
    if (t->loss_weight == 0)
        t->loss_weight = 1;
    if (!(t->loss_weight > 0 && t->loss_weight <= 0x1p60)) /* false for a NaN */
        return gsi_fail(&ctx->error, GS_ERANGE, "the loss cannot be weighted by %g",
                        t->loss_weight);
    if (status == GS_OK)
        status = gsi_check_ranges(ctx, m, config->tape.quantize);
    if (status == GS_OK)
        status = gs_tape_create(&t->tape, ctx, &config->tape);
    if (status == GS_OK)
        status = gs_scaler_set(&t->scaler, half, &ctx->error);
    if (status == GS_OK)
        status = gs_store_create(&t->store, ctx, m->entries, m->n, types_of(config, t->comm.size));
    if (status == GS_OK)
        status = gsi_ranks_create(t, config);
    if (status != GS_OK)
        return status;
    m->weights = gsi_model_weights(t);
    if (m->n_ranges > 0)
        gs_tape_set_ranges(t->tape, m->weights, m->n, gsi_model_ranges(m));
    if (m->states > 0) {
        if (!gsi_mul_size(&bytes, m->states, sizeof *t->kept) ||
            !(t->kept = gsi_new(&ctx->heap, bytes)))
            return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for %zu running statistics",
                            m->states);
    }
    status = gsi_tape_fresh(t->tape, m->weights, m->n);
    if (status == GS_OK)
        status = init_weights(t);
    if (status == GS_OK)
        gsi_shard_init(t);
    if (status == GS_OK)
        status = round_copies(t);
    size_t n;
    const gs_weight *stepped = gsi_optim_weights(t, &n);
    if (status == GS_OK)
        status = gs_optim_create(&t->optim, ctx, stepped, n, &config->optim);
    return status;
}

/* Configs inside of a config must be today's: behind one of another size nothing is where we look.
 * So they are asked in the order in which they lie. */
static gs_status check_parts(const gs_trainer_config *config, gs_error *error)
{
    const struct {
        const char *name, *type;
        size_t size, today;
    } parts[] = {{"tape", "gs_tape_config", config->tape.size, sizeof(gs_tape_config)},
                 {"optim", "gs_optim_config", config->optim.size, sizeof(gs_optim_config)}};
    for (size_t i = 0; i < GSI_COUNT(parts); i++)
        if (parts[i].size != parts[i].today)
            return gsi_fail(
                error, GS_EVERSION,
                "gs_trainer_config.%s.size is %zu: set it to sizeof(%s), which is %zu in"
                " version %s of the library",
                parts[i].name, parts[i].size, parts[i].type, parts[i].today, gs_version());
    return gsi_scaler_version(&config->scaler, error);
}

gs_status gs_trainer_create(gs_trainer **out, gs_context *ctx, gs_model *model,
                            const gs_trainer_config *config)
{
    if (!out || !ctx || !model || !config)
        return gsi_missing(ctx, __func__);
    *out = NULL;
    gs_trainer_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_trainer_config", &ctx->error);
    if (status == GS_OK)
        status = check_parts(config, &ctx->error);
    if (status != GS_OK)
        return status;
    config = &today;
    const gs_comm *c = config->comm;
    if (c && (c->size < 1 || c->rank < 0 || c->rank >= c->size || !c->alltoall || !c->allgather ||
              !c->done || !c->bcast))
        return gsi_fail(&ctx->error, GS_ERANGE,
                        "rank %d of %d is out of range, or its transport has a NULL function",
                        c->rank, c->size);
    gs_trainer *t = gsi_new(&ctx->heap, sizeof *t);
    if (!t)
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for a trainer");
    *t = (gs_trainer){.ctx = ctx,
                      .model = model,
                      .scaler = config->scaler,
                      .comm = config->comm ? *config->comm : gs_comm_single(),
                      .seed = config->seed,
                      .loss_weight = config->loss_weight};
    const size_t each =
        sizeof(gsi_rank_report) > sizeof(gs_error) ? sizeof(gsi_rank_report) : sizeof(gs_error);
    t->gather_buffer = gsi_new(&ctx->heap, (size_t)t->comm.size * each);
    if (!t->gather_buffer) {
        gsi_free(&ctx->heap, t);
        return gsi_fail(&ctx->error, GS_ENOMEM, "no memory for a trainer");
    }
    status = gsi_ranks_first_error(t, make_parts(t, config), &ctx->error);
    if (status == GS_OK)
        status = gsi_ranks_compare_now(t);
    if (status != GS_OK) {
        gs_trainer_free(t);
        return status;
    }
    *out = t;
    return GS_OK;
}

void gs_trainer_free(gs_trainer *trainer)
{
    if (!trainer)
        return;
    if (trainer->ranks && trainer->model->weights == gsi_model_weights(trainer))
        trainer->model->weights = NULL;
    gsi_ranks_free(trainer);
    gs_optim_free(trainer->optim);
    gs_store_free(trainer->store);
    gs_tape_free(trainer->tape);
    gsi_free(&trainer->ctx->heap, trainer->kept);
    gsi_free(&trainer->ctx->heap, trainer->gather_buffer);
    gsi_free(&trainer->ctx->heap, trainer);
}

gs_tape *gs_trainer_tape(gs_trainer *trainer) { return trainer->tape; }
gs_store *gs_trainer_store(gs_trainer *trainer) { return trainer->store; }
gs_optim *gs_trainer_optim(gs_trainer *trainer) { return trainer->optim; }
gs_scaler *gs_trainer_scaler(gs_trainer *trainer) { return &trainer->scaler; }

gs_status gs_trainer_sync(gs_trainer *trainer)
{
    return trainer->ranks->zero ? gsi_shard_sync(trainer) : round_copies(trainer);
}

/* ---- around a step ---- */

gs_status gsi_check_batch(gs_trainer *t, const gs_batch *micro, size_t n)
{
    gs_error *error = &t->ctx->error;
    if (t->model->weights != gsi_model_weights(t))
        return gsi_fail(error, GS_ESTATE, "the model serves another trainer now");
    if (n == 0 && t->comm.size > 1)
        return GS_OK;
    if (n == 0 || !micro)
        return gsi_fail(error, GS_ESIZE, "the batch is empty: it has no micro-batches");
    for (size_t i = 0; i < n; i++)
        if (micro[i].n == 0)
            return gsi_fail(error, GS_ESIZE, "micro-batch %zu is empty", i);
    return GS_OK;
}

uint64_t gsi_dropout_seed(const gs_trainer *t, size_t i)
{
    uint32_t block[4];
    const uint64_t stream = t->seed ^ 0xD609 ^ (uint64_t)t->comm.rank << 40;
    gsi_philox(block, stream, t->steps << 20 | i);
    return (uint64_t)block[0] << 32 | block[1];
}

void gsi_phase_end(gs_trainer *t, gs_train_row *row, gs_phase phase)
{
    const double time = gs_clock();
    if (row)
        row->seconds[phase] += time - t->phase_start;
    t->phase_start = time;
}

void gsi_note_tape(const gs_trainer *t, gs_train_row *row)
{
    const gs_memory memory = gs_tape_memory(t->tape);
    gs_memory *most = &row->memory;
    gs_stats_merge(&row->stored, gs_tape_stats(t->tape));
    row->telemetry = t->tape->config.telemetry;
    most->activations = gsi_max_size(most->activations, memory.activations);
    most->gradients = gsi_max_size(most->gradients, memory.gradients);
    most->peak = gsi_max_size(most->peak, memory.peak);
}

gs_status gsi_grads_scan(gs_trainer *t, gs_stats *stats)
{
    const gsi_ranks *ranks = t->ranks;
    const gs_status status = gs_tensors_scan(t->ctx, ranks->grads, ranks->n_parts, stats);
    if (status == GS_OK && stats->bad_tensor != GS_NONE) {
        const gsi_part p = ranks->parts[stats->bad_tensor];
        stats->bad_tensor = p.weight;
        stats->bad_index += p.first;
    }
    return status;
}

gs_status gsi_grads_exponents(gs_trainer *t, gs_step *step)
{
    if (t->scaler.policy != GS_POLICY_HISTOGRAM)
        return GS_OK;
    gs_exponents found;
    memset(&found, 0, sizeof found);
    gs_status status =
        gs_tensors_exponents(t->ctx, &found, t->ranks->grads, t->ranks->n_parts, NULL);
    status = gsi_ranks_exponents(t, status, &found);
    if (status == GS_OK)
        gs_step_exponents(step, &t->scaler, &found);
    return status;
}

void gsi_keep_state(gs_trainer *t)
{
    if (t->kept)
        memcpy(t->kept, t->model->state, t->model->states * sizeof *t->kept);
}

void gsi_restore_state(gs_trainer *t)
{
    if (t->kept)
        memcpy(t->model->state, t->kept, t->model->states * sizeof *t->kept);
}

void gsi_give_up(gs_trainer *t, gs_step *step)
{
    gsi_restore_state(t);
    gs_step_abandon(step, &t->scaler);
    gs_optim_clear_grads(t->optim);
}

const char *gs_phase_name(gs_phase phase)
{
    static const char *const names[] = {
#define X(id, name) name,
        GS_PHASES(X)
#undef X
    };
    return (unsigned)phase < GS_PHASE_COUNT ? names[phase] : "unknown";
}

/* ---- evaluation ---- */

static float at(const gs_value *v, size_t i)
{
    return gsi_float(gsi_element(v->data, v->dtype, i));
}

/* Rows whose largest logit, the first of equals, is the target's. */
static size_t count_right(const gs_value *logits, const int32_t *targets)
{
    const size_t classes = logits->shape[logits->rank - 1];
    size_t right = 0;
    for (size_t row = 0; row < logits->count / classes; row++) {
        size_t best = 0;
        for (size_t c = 1; c < classes; c++)
            if (at(logits, row * classes + c) > at(logits, row * classes + best))
                best = c;
        right += targets[row] >= 0 && (size_t)targets[row] == best;
    }
    return right;
}

gs_status gs_trainer_evaluate(double *loss, size_t *right, gs_trainer *t, const gs_batch *batch)
{
    gs_status status = gsi_check_batch(t, batch, 1);
    if (status != GS_OK)
        return status;
    gs_tape_begin(t->tape, 0, 0);
    gs_value *logits =
        right && t->model->logits ? t->model->logits(t->model, t->tape, batch) : NULL;
    gs_value *value = logits ? gs_cross_entropy(t->tape, logits, batch->targets)
                             : t->model->forward(t->model, t->tape, batch);
    status = gs_tape_status(t->tape);
    if (status != GS_OK)
        return status;
    if (!value || value->dtype != GS_F32 || value->count != 1)
        return gsi_fail(&t->ctx->error, GS_ESTATE, "the model's loss is not an f32 scalar");
    if (loss)
        *loss = (double)*(const float *)value->data;
    if (right)
        *right = logits ? count_right(logits, batch->targets) : 0;
    return GS_OK;
}
