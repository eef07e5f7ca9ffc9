/* A GPT learns a text file, byte by byte, in f16 with loss scaling: data, model, trainer,
 * log, checkpoint. Then it writes some text itself.
 *
 *     cc 04_train_gpt.c $(pkg-config --cflags --libs gradscale_train) && ./a.out FILE
 *
 * Without a file it reads its own source.
 */
#include <gradscale/checkpoint.h>
#include <gradscale/data.h>
#include <gradscale/log.h>

#include <stdio.h>

enum { STEPS = 150, BATCH = 8, TIME = 64, WRITTEN = 160 };

/* The likeliest next byte, over and over; a window of the last TIME bytes is what it sees. */
static gs_status write_some(gs_model *gpt, gs_tape *tape, const char *prompt)
{
    int32_t ids[TIME + WRITTEN];
    size_t n = 0;
    for (; prompt[n]; n++)
        ids[n] = (unsigned char)prompt[n];
    fputs(prompt, stdout);
    for (int i = 0; i < WRITTEN; i++, n++) {
        const size_t from = n > TIME ? n - TIME : 0;
        const gs_batch batch = {.n = 1, .time = n - from, .ids = ids + from};
        gs_tape_begin(tape, 0, 0);
        gs_value *logits = gs_cast(tape, gpt->logits(gpt, tape, &batch), GS_F32);
        if (gs_tape_status(tape) != GS_OK) /* the message is in the context */
            return gs_tape_status(tape);
        const float *last = (const float *)logits->data + logits->count - 256;
        int best = 0;
        for (int c = 1; c < 256; c++)
            best = last[c] > last[best] ? c : best;
        ids[n] = best;
        putchar(best == '\n' || (best >= ' ' && best < 127) ? best : '?');
    }
    putchar('\n');
    return GS_OK;
}

int main(int argc, char **argv)
{
    gs_context *ctx;
    gs_data *data;
    gs_loader *loader;
    gs_model *gpt;
    gs_trainer *trainer;
    gs_logger *log;
    const gs_data_config text = {
        .size = sizeof text, .name = argc > 1 ? argv[1] : __FILE__, .time = TIME};
    const gs_loader_config order = {.size = sizeof order, .batch = BATCH, .seed = 1, .shuffle = 1};
    const gs_gpt_config sizes = {.size = sizeof sizes,
                                 .vocabulary = 256,
                                 .context = TIME,
                                 .layers = 2,
                                 .heads = 2,
                                 .width = 64};

    const gs_logger_config files = {.size = sizeof files, .json = "gpt.jsonl"};
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof config.optim,
        .tape = {.size = sizeof config.tape, .mode = GS_O2, .half = GS_F16, .telemetry = 1},
        .seed = 1};

    /* GS_OK is 0. What has no context takes a gs_error; the rest leaves its message there. */
    gs_error error;
    if (gs_context_create(&ctx, NULL, &error) || gs_data_open(&data, &text, NULL, &error) ||
        gs_loader_create(&loader, data, &order, NULL, &error) ||
        gs_logger_open(&log, &files, NULL, &error) ||
        gs_scaler_init(&config.scaler, "pytorch", &error) ||
        gs_optim_config_init(&config.optim, "adamw", &error) ||
        gs_optim_config_set(&config.optim,
                            "lr=4e-3 clip_norm=1 schedule=cosine warmup=10 total=150", &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    if (gs_gpt_create(&gpt, ctx, &sizes) || gs_trainer_create(&trainer, ctx, gpt, &config))
        return fprintf(stderr, "%s\n", gs_context_error(ctx)->text), 1;

    double first = 0, loss = 0;
    for (int i = 0; i < STEPS; i++) {
        const gs_batch *micro;
        size_t n;
        gs_train_row row;
        if (gs_loader_next(&micro, &n, loader, &error))
            return fprintf(stderr, "%s\n", error.text), 1;
        if (gs_trainer_step(trainer, micro, n, &row))
            return fprintf(stderr, "%s\n", gs_context_error(ctx)->text), 1;
        const gs_log_step step = gs_log_step_from(&row, micro->n * TIME, 0);
        if (gs_logger_step(log, &step, &error))
            return fprintf(stderr, "%s\n", error.text), 1;
        loss = row.loss;
        first = i == 0 ? loss : first;
        if (i % 30 == 0 || i == STEPS - 1)
            printf("step %3d: loss %.3f, scale %g, %s\n", i + 1, loss, row.scale, step.verdict);
    }
    const gs_checkpoint about = {
        .step = STEPS, .items = gs_loader_position(loader), .model = "gpt 2x64"};
    if (gs_checkpoint_save("gpt.safetensors", trainer, &about, &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    if (write_some(gpt, gs_trainer_tape(trainer), "#include "))
        return fprintf(stderr, "%s\n", gs_context_error(ctx)->text), 1;

    gs_logger_close(log);
    gs_trainer_free(trainer);
    gs_model_free(gpt);
    gs_context_free(ctx);
    gs_loader_free(loader);
    gs_data_close(data);
    return loss < first / 2 ? 0 : 1;
}
