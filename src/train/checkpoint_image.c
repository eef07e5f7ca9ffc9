/* The image of a trainer in a file: which tensors, under which names, and the texts beside them.
 *
 *     fc1.weight, bn1.running_mean        weights and running statistics, as PyTorch names them
 *     state                               statistics to which the model gives no name
 *     optimizer.SLOT.fc1.weight           what the optimizer keeps for a weight
 *
 * doc/checkpoint.md has the texts. One table makes and reads the numbers among them. */
#include "engine/engine.h"
#include "optim/optim.h"
#include "scaler/scaler.h"
#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- tensors ---- */

static void add(gsi_image *image, const char *name, void *data, gs_dtype dtype, size_t rows,
                size_t cols, gsi_origin origin)
{
    const size_t count = rows * cols;
    if (count == 0)
        return;
    image->origins[image->n] = origin;
    image->bytes += count * gs_dtype_format(dtype)->bytes;
    image->list[image->n] = (gsi_tensor){.name = name,
                                         .data = data,
                                         .dtype = dtype,
                                         .rank = rows == 1 ? 1 : 2,
                                         .shape = {rows == 1 ? cols : rows, cols},
                                         .count = count,
                                         .tag = image->n};
    image->n++;
}

static const char *slot_name(gsi_image *image, gs_slot slot, const char *weight)
{
    const size_t room = strlen(weight) + 32;
    char *name = gsi_arena_new(&image->arena, room, 1);
    if (name)
        snprintf(name, room, "optimizer.%s.%s", gs_slot_name(slot), weight);
    return name;
}

/* Of weight k: itself (family 0) or a slot of the optimizer. data is NULL where it is sharded. */
static gs_tensor array_of(const gsi_image *image, gs_trainer *t, size_t k, int family)
{
    const gsi_unsharded *u = &image->unsharded;
    const gs_weight *w = &gs_store_weights(t->store, NULL)[k];
    const size_t count = w->rows * w->cols;
    if (u->there[family])
        return (gs_tensor){NULL, count, u->types[family], w->name, 0};
    if (family == 0)
        return (gs_tensor){w->data, count, w->dtype, w->name, 0};
    return u->sharded ? (gs_tensor){0} : gs_optim_slot(t->optim, k, (gs_slot)(family - 1));
}

static bool add_weight(gsi_image *image, gs_trainer *t, size_t k)
{
    const gs_weight *w = &gsi_model_weights(t)[k];
    const bool *sharded = image->unsharded.there;
    const gs_tensor data = array_of(image, t, k, 0);
    add(image, w->name, data.data, data.dtype, w->rows, w->cols, (gsi_origin){sharded[0], 0, k});
    for (int s = 0; s < GS_SLOT_COUNT; s++) {
        const gs_tensor x = array_of(image, t, k, 1 + s);
        const bool full = x.count == w->rows * w->cols; /* else a factor of it */
        if (x.count == 0)
            continue;
        const char *name = slot_name(image, (gs_slot)s, w->name);
        if (!name)
            return false;
        const size_t rows = full ? w->rows : 1;
        add(image, name, x.data, x.dtype, rows, x.count / rows,
            (gsi_origin){sharded[1 + s], 1 + s, k});
    }
    return true;
}

static void add_states(gsi_image *image, const gs_model *m)
{
    size_t at = 0;
    for (size_t i = 0; i < m->n_states && m->state_entries[i].count <= m->states - at; i++) {
        add(image, m->state_entries[i].name, m->state + at, GS_F32, 1, m->state_entries[i].count,
            (gsi_origin){0});
        at += m->state_entries[i].count;
    }
    if (at < m->states)
        add(image, "state", m->state + at, GS_F32, 1, m->states - at, (gsi_origin){0});
}

gs_status gsi_image_list(gsi_image *image, gsi_heap *heap, gs_trainer *t, gs_error *error)
{
    const gs_model *m = t->model;
    *image = (gsi_image){.heap = heap, .unsharded = gsi_unsharded_of(t)};
    gsi_arena_init(&image->arena, heap);
    const size_t most = m->n * (1 + GS_SLOT_COUNT) + m->n_states + 1;
    image->list = gsi_arena_new(&image->arena, most, sizeof *image->list);
    image->origins = gsi_arena_new(&image->arena, most, sizeof *image->origins);
    bool done = image->list && image->origins;
    for (size_t k = 0; done && k < m->n; k++)
        done = add_weight(image, t, k);
    if (!done)
        return gsi_fail(error, GS_ENOMEM, "no memory for the list of a checkpoint's tensors");
    add_states(image, m);
    gsi_sort_tensors(image->list, image->n);
    return GS_OK;
}

gs_status gsi_image_gather(gsi_image *image, gs_trainer *t, gs_status mine, bool keep,
                           gs_error *error)
{
    const gsi_unsharded u = gsi_unsharded_of(t);
    const size_t bytes = u.at[GSI_FAMILIES];
    if (bytes == 0) /* not sharded */
        return mine;
    image->block = keep && mine == GS_OK ? gsi_new(image->heap, bytes) : NULL;
    if (image->block) /* what lies between weights is sent as well, and becomes others' gradients */
        memset(image->block, 0, bytes);
    const gs_status status = gsi_unsharded_allgather(t, &u, image->block);
    if (mine != GS_OK)
        return mine;
    if (status != GS_OK)
        return gsi_fail(error, status, "%s", t->ctx->error.text);
    if (keep && !image->block)
        return gsi_fail(error, GS_ENOMEM, "no memory for %zu bytes of all ranks' state", bytes);
    for (size_t i = 0; keep && i < image->n; i++) {
        const gsi_origin *o = &image->origins[image->list[i].tag];
        if (o->sharded)
            image->list[i].data = image->block + gsi_unsharded_offset(t, &u, o->family, o->weight);
    }
    return GS_OK;
}

void gsi_image_free(gsi_image *image)
{
    if (!image->heap)
        return;
    gsi_free(image->heap, image->block);
    gsi_arena_free(&image->arena);
    gsi_free(image->heap, image->header);
    *image = (gsi_image){0};
}

gs_status gsi_image_write(const gsi_image *image, const char *path, gs_error *error)
{
    return gsi_safetensors_write(path, image->header, image->length, image->list, image->n, error);
}

/* ---- what must be equal ---- */

void gsi_precision_text(char text[GS_CHECKPOINT_LINE], const gs_trainer *t)
{
    static const char *const rules[] = {"ema", "max", "percentile"};
    const gs_tape_config *c = &t->tape->config;
    const gs_dtype half = c->mode == GS_O0 ? GS_F32 : c->half;
    const int n =
        snprintf(text, GS_CHECKPOINT_LINE, "O%d %s%s", (int)c->mode, gs_dtype_format(half)->name,
                 c->mode != GS_O0 && c->wgrad_f32 ? " wgrad=f32" : "");
    if (c->quantize != GS_QUANTIZE_NONE)
        snprintf(text + n, GS_CHECKPOINT_LINE - (size_t)n, " quantize=%s ranges=%s",
                 c->quantize == GS_QUANTIZE_QAT ? "int8" : "ptq", rules[c->range_rule]);
    if (c->quantize != GS_QUANTIZE_NONE && c->range_rule == GS_RANGE_PERCENTILE) {
        const size_t used = strlen(text);
        snprintf(text + used, GS_CHECKPOINT_LINE - used, ":%g", (double)c->percentile);
    }
}

/* The settings without which its arrays mean nothing. Learning rates and decays may change. */
void gsi_optimizer_text(char text[GS_CHECKPOINT_LINE], const gs_trainer *t)
{
    const gs_optim_config *c = gs_optim_get_config(t->optim);
    const bool half = gsi_trained_type(t) != GS_F32;
    const bool random = c->moments != GS_F32 || (half && c->rounding == GS_ROUND_STOCHASTIC);
    char seed[32] = "";
    if (random)
        snprintf(seed, sizeof seed, " seed=%" PRIu64, c->seed);
    snprintf(text, GS_CHECKPOINT_LINE, "%s%s%s%s%s%s%s%s", gsi_optim_kinds[c->kind],
             c->kind == GS_SGD && c->momentum > 0 ? " momentum" : "",
             c->moments != GS_F32 ? " moments=" : "",
             c->moments != GS_F32 ? gs_dtype_format(c->moments)->name : "",
             half ? " rounding=" : "", half ? gsi_roundings[c->rounding] : "",
             c->ema > 0 ? " ema" : "", seed);
}

/* ---- numbers ---- */

typedef enum kind { U64, I32, F64 } kind;

static const struct {
    const char *key;
    size_t offset;
    kind kind;
} numbers[] = {
#define AT(member) offsetof(gsi_facts, member)
    {"step", AT(about.step), U64},
    {"items", AT(about.items), U64},
    {"epoch", AT(about.epoch), U64},
    {"best", AT(about.best), F64},
    {"best_step", AT(about.best_step), U64},
    {"waits", AT(about.waits), U64},
    {"seed", AT(seed), U64},
    {"batches", AT(batches), U64},
    {"optimizer_applied", AT(optim.applied), U64},
    {"optimizer_skipped", AT(optim.skipped), U64},
    {"optimizer_retried", AT(optim.retried), U64},
    {"optimizer_bound_m", AT(optim.bound[0]), F64},
    {"optimizer_bound_v", AT(optim.bound[1]), F64},
    {"optimizer_exponent_m", AT(optim.exponent[0]), I32},
    {"optimizer_exponent_v", AT(optim.exponent[1]), I32},
#undef AT
};

static void write_number(char text[GSI_WORD], const gsi_facts *facts, size_t i)
{
    const char *field = (const char *)facts + numbers[i].offset;
    uint64_t u;
    int32_t s;
    double x;
    switch (numbers[i].kind) {
    case U64:
        memcpy(&u, field, sizeof u);
        snprintf(text, GSI_WORD, "%" PRIu64, u);
        break;
    case I32:
        memcpy(&s, field, sizeof s);
        snprintf(text, GSI_WORD, "%" PRId32, s);
        break;
    default:
        memcpy(&x, field, sizeof x);
        gsi_write_double(text, x);
    }
}

static bool read_u64(uint64_t *out, const char *text)
{
    uint64_t x = 0;
    for (const char *p = text; *p; p++) {
        const unsigned digit = (unsigned)*p - '0';
        if (digit > 9 || x > (UINT64_MAX - digit) / 10)
            return false;
        x = 10 * x + digit;
    }
    *out = x;
    return text[0] != 0;
}

static bool read_number(gsi_facts *facts, size_t i, const char *text)
{
    char *field = (char *)facts + numbers[i].offset;
    uint64_t u;
    double x;
    if (numbers[i].kind == U64) {
        if (!read_u64(&u, text))
            return false;
        memcpy(field, &u, sizeof u);
        return true;
    }
    if (!gsi_read_double(&x, text))
        return false;
    if (numbers[i].kind == F64) {
        memcpy(field, &x, sizeof x);
        return true;
    }
    if (!(x >= INT32_MIN && x <= INT32_MAX) || x != (double)(int32_t)x)
        return false;
    const int32_t s = (int32_t)x;
    memcpy(field, &s, sizeof s);
    return true;
}

gs_status gsi_read_facts(gsi_facts *facts, const gs_source *file, gs_error *error)
{
    *facts = (gsi_facts){0};
    for (size_t i = 0; i < GSI_COUNT(numbers); i++) {
        const char *text = gs_source_metadata(file, numbers[i].key);
        if (!text || !read_number(facts, i, text))
            return gsi_bad_file(file, error, GS_EFORMAT, "its %s is not a number", numbers[i].key);
    }
    return GS_OK;
}

/* ---- the header ---- */

gs_status gsi_image_describe(gsi_image *image, gs_trainer *t, const gs_checkpoint *about,
                             gs_error *error)
{
    const gs_checkpoint none = {.best = (double)NAN};
    gsi_facts facts = {.about = about ? *about : none,
                       .seed = t->seed,
                       .batches = t->steps,
                       .optim = gs_optim_get_state(t->optim)};
    const char *config = facts.about.config ? facts.about.config : "";
    const char *model = facts.about.model ? facts.about.model : "";
    char number[GSI_COUNT(numbers)][GSI_WORD], version[16];
    char precision[GS_CHECKPOINT_LINE], optimizer[GS_CHECKPOINT_LINE];
    char scaler[GS_STATE_TEXT_MAX];
    size_t used;
    if (strlen(config) >= GS_CHECKPOINT_CONFIG || strlen(model) >= GS_CHECKPOINT_LINE)
        return gsi_fail(error, GS_ESIZE, "the %s of a checkpoint is longer than %d bytes",
                        strlen(model) >= GS_CHECKPOINT_LINE ? "model" : "config",
                        strlen(model) >= GS_CHECKPOINT_LINE ? GS_CHECKPOINT_LINE - 1
                                                            : GS_CHECKPOINT_CONFIG - 1);
    const gs_status status = gs_scaler_save_text(scaler, sizeof scaler, &used, &t->scaler, NULL);
    if (status != GS_OK)
        return gsi_fail(error, status, "the scaler cannot be saved: %s", gs_status_meaning(status));
    snprintf(version, sizeof version, "%d", (int)GSI_CHECKPOINT_VERSION);
    gsi_precision_text(precision, t);
    gsi_optimizer_text(optimizer, t);

    enum { WORDS = 9 };
    gsi_text texts[WORDS + GSI_COUNT(numbers)] = {
        {"format", "pt"}, /* as PyTorch's tools ask for */
        {"gradscale_checkpoint", version},
        {"gradscale_version", gs_version()},
        {"model", model},
        {"precision", precision},
        {"optimizer", optimizer},
        {"config", config},
        {"scaler", scaler},
        {"data", facts.about.data ? facts.about.data : ""},
    };
    for (size_t i = 0; i < GSI_COUNT(numbers); i++) {
        write_number(number[i], &facts, i);
        texts[WORDS + i] = (gsi_text){numbers[i].key, number[i]};
    }
    return gsi_safetensors_header(&image->header, &image->length, image->list, image->n, texts,
                                  GSI_COUNT(texts), image->heap, error);
}
