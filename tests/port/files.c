/* files DIR FROM TO: trains a small model from step FROM, whose files are in DIR unless it is 0, to
 * step TO, and leaves a checkpoint, the state of the scaler (text and bytes) and a log there. Files
 * of one machine must do on every other, to the last bit: suite_port.sh compares them.
 *
 * Of libgradscale_train nothing here unpacks anything: where there is no zlib for a machine, these
 * stand in for it. */
#include "gradscale/checkpoint.h"
#include "gradscale/log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef WITHOUT_ZLIB
#include <zlib.h>
int inflateInit2_(z_streamp s, int bits, const char *version, int size)
{
    (void)s, (void)bits, (void)version, (void)size;
    return Z_VERSION_ERROR;
}
int inflate(z_streamp s, int flush) { return (void)s, (void)flush, Z_STREAM_ERROR; }
int inflateReset(z_streamp s) { return (void)s, Z_STREAM_ERROR; }
int inflateEnd(z_streamp s) { return (void)s, Z_OK; }
uLong crc32(uLong crc, const Bytef *bytes, uInt n) { return (void)bytes, crc + n; }
#endif

enum { IN = 16, CLASSES = 3, BATCH = 8 };

static gs_error error;

static void must(gs_status status, const char *what)
{
    if (status == GS_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, error.text);
    exit(1);
}

static void make_batch(float x[BATCH * IN], int32_t targets[BATCH], uint64_t step)
{
    for (int i = 0; i < BATCH * IN; i++)
        x[i] = (float)(gs_random_u32(step + 1, (uint64_t)i) >> 16) * 0x1p-16f - 0.5f;
    for (int i = 0; i < BATCH; i++)
        targets[i] = (int32_t)(gs_random_u32(step + 7777, (uint64_t)i) % CLASSES);
}

static void write_file(const char *folder, const char *name, const void *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        exit(1);
}

static size_t read_file(const char *folder, const char *name, void *bytes, size_t room)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    const size_t n = f ? fread(bytes, 1, room, f) : 0;
    if (f)
        fclose(f);
    return n;
}

/* What the checkpoint has of the scaler is what its own files have. */
static void check_scaler(const char *folder, const gs_scaler *want)
{
    char text[GS_STATE_TEXT_MAX], other[GS_STATE_TEXT_MAX];
    unsigned char bytes[GS_STATE_BINARY_MAX];
    size_t n, m;
    gs_scaler s;
    must(gs_scaler_save_text(text, sizeof text, &n, want, &error), "save");
    m = read_file(folder, "scaler.txt", other, sizeof other);
    if (n != m || memcmp(text, other, n) != 0)
        must(GS_EFORMAT, "the text of the scaler differs");
    m = read_file(folder, "scaler.bin", bytes, sizeof bytes);
    must(gs_scaler_load(&s, bytes, m, &error), "scaler.bin");
    must(gs_scaler_save_text(other, sizeof other, &m, &s, &error), "save");
    if (n != m || memcmp(text, other, n) != 0)
        must(GS_EFORMAT, "the bytes of the scaler differ");
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    const char *folder = argv[1];
    const uint64_t from = strtoull(argv[2], NULL, 10), to = strtoull(argv[3], NULL, 10);
    char path[512], log_path[512], text[GS_STATE_TEXT_MAX];
    unsigned char bytes[GS_STATE_BINARY_MAX];
    size_t n;
    gs_context *ctx;
    gs_model *model;
    gs_trainer *trainer;
    gs_logger *log;
    const gs_config config = {.size = sizeof config, .threads = 1};
    const gs_mlp_config mlp = {.size = sizeof mlp, (const size_t[]){IN, 8, CLASSES}, 3};
    gs_trainer_config tc = {.size = sizeof tc,
                            .optim.size = sizeof(gs_optim_config),
                            .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16},
                            .seed = 3};
    must(gs_optim_config_init(&tc.optim, "adamw", &error), "optimizer");
    must(gs_optim_config_set(&tc.optim, "lr=0.01 moments=f16", &error), "optimizer");
    must(gs_scaler_init(&tc.scaler, "headroom", &error), "scaler");
    must(gs_context_create(&ctx, &config, &error), "context");
    must(gs_mlp_create(&model, ctx, &mlp), "model");
    must(gs_trainer_create(&trainer, ctx, model, &tc), "trainer");
    gs_checkpoint about = {.model = "mlp", .config = "seed = 3\n", .best = (double)NAN};
    if (from > 0) {
        must(gs_saver_newest(path, sizeof path, folder, &error), "newest");
        must(gs_checkpoint_load(path, trainer, &about, &error), "load");
        if (about.step != from)
            return 1;
        check_scaler(folder, gs_trainer_scaler(trainer));
        about.model = "mlp";
        about.config = "seed = 3\n";
    }
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    const gs_logger_config lc = {
        .size = sizeof lc, .json = log_path, .resume = from > 0, .step = from};
    must(gs_logger_open(&log, &lc, NULL, &error), "log");
    for (; about.step < to; about.step++) {
        float x[BATCH * IN];
        int32_t targets[BATCH];
        gs_train_row row;
        make_batch(x, targets, about.step);
        const gs_batch batch = {.n = BATCH, .x = x, .targets = targets};
        must(gs_trainer_step(trainer, &batch, 1, &row), "step");
        const gs_log_step line = gs_log_step_from(&row, BATCH, 0);
        must(gs_logger_step(log, &line, &error), "log");
        about.items += BATCH;
    }
    snprintf(path, sizeof path, "%s/step-%08llu.safetensors", folder, (unsigned long long)to);
    must(gs_checkpoint_save(path, trainer, &about, &error), "save");
    must(gs_scaler_save_text(text, sizeof text, &n, gs_trainer_scaler(trainer), &error), "save");
    write_file(folder, "scaler.txt", text, n);
    must(gs_scaler_save(bytes, sizeof bytes, &n, gs_trainer_scaler(trainer), &error), "save");
    write_file(folder, "scaler.bin", bytes, n);
    gs_logger_close(log);
    gs_trainer_free(trainer);
    gs_model_free(model);
    gs_context_free(ctx);
    return 0;
}
