/* Any bytes as a checkpoint, with a checksum that fits, through peek, verify and load: refused and
 * nothing has changed, or loaded and a step can be taken. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "gradscale/checkpoint.h"
#include "io/write.h"

#include <string.h>

static gs_context *ctx;
static gs_model *model;
static gs_trainer *trainer;

static void begin(void)
{
    const gs_config config = {.size = sizeof config, .threads = 1};
    const gs_mlp_config mlp = {.size = sizeof mlp, (const size_t[]){4, 3, 2}, 3};
    gs_trainer_config tc = {
        .size = sizeof tc,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16}};
    if (gs_optim_config_init(&tc.optim, "adamw", NULL) != GS_OK ||
        gs_scaler_init(&tc.scaler, "pytorch", NULL) != GS_OK ||
        gs_context_create(&ctx, &config, NULL) != GS_OK ||
        gs_mlp_create(&model, ctx, &mlp) != GS_OK ||
        gs_trainer_create(&trainer, ctx, model, &tc) != GS_OK)
        abort();
    const char *to = getenv("FUZZ_CORPUS"); /* writes one that fits, to begin with */
    gs_checkpoint about = {.step = 3, .config = "lr = 0.1\n", .model = "mlp", .best = 0.5};
    if (to && gs_checkpoint_save(to, trainer, &about, NULL) != GS_OK)
        abort();
}

static void end(void)
{
    gs_trainer_free(trainer);
    gs_model_free(model);
    gs_context_free(ctx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static uint8_t copy[1 << 16];
    static gs_checkpoint_text text;
    gs_error error = {0};
    gs_checkpoint about = {0};
    begin(); /* one for each input: what is left of the last one is not to matter */
    if (n < 16 || n > sizeof copy) {
        end();
        return 0;
    }
    memcpy(copy, data, n);
    gsi_hash hash;
    gsi_hash_init(&hash);
    gsi_hash_add(&hash, copy, n - 8);
    for (int i = 0; i < 8; i++)
        copy[n - 8 + (size_t)i] = (uint8_t)(gsi_hash_end(&hash) >> 8 * i);
    const char *const path = file_of(copy, n);
    const gs_status peeked = gs_checkpoint_peek(&text, path, &error);
    gs_checkpoint_verify(path, &error);
    const gs_status loaded = gs_checkpoint_load(path, trainer, &about, &error);
    if (loaded == GS_OK && peeked != GS_OK)
        abort();
    end();
    return 0;
}
