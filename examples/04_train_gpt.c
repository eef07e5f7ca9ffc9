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
#include <stdlib.h>

enum { STEPS = 150, BATCH = 8, TIME = 64, WRITTEN = 160 };

static gs_error error;

/* Every call that can fail goes through here: the sentence says what and where. */
static void must(gs_status status, const gs_error *why)
{
    if (status == GS_OK)
        return;
    fprintf(stderr, "%s\n", why && why->text[0] ? why->text : gs_status_meaning(status));
    exit(1);
}

/* The likeliest next byte, over and over; a window of the last TIME bytes is what it sees. */
static void write_some(gs_model *gpt, gs_tape *tape, const char *prompt)
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
        must(gs_tape_status(tape, &error), &error);
        const float *last = (const float *)logits->data + logits->count - 256;
        int best = 0;
        for (int c = 1; c < 256; c++)
            best = last[c] > last[best] ? c : best;
        ids[n] = best;
        putchar(best == '\n' || (best >= ' ' && best < 127) ? best : '?');
    }
    putchar('\n');
}

int main(int argc, char **argv)
{
    gs_context *ctx;
    gs_data *data;
    gs_loader *loader;
    gs_model *gpt;
    gs_trainer *trainer;
    gs_logger *log;
    const gs_data_config text = {.name = argc > 1 ? argv[1] : __FILE__, .time = TIME};
    const gs_loader_config order = {.batch = BATCH, .seed = 1, .shuffle = 1};
    const gs_gpt_config sizes = {
        .vocabulary = 256, .context = TIME, .layers = 2, .heads = 2, .width = 64};

    must(gs_data_open(&data, &text, NULL, &error), &error);
    must(gs_loader_create(&loader, data, &order, NULL, &error), &error);
    must(gs_context_create(&ctx, NULL), NULL);
    must(gs_gpt_create(&gpt, ctx, &sizes), gs_context_error(ctx));
    must(gs_logger_open(&log, &(gs_logger_config){.json = "gpt.jsonl"}, NULL, &error), &error);

    gs_trainer_config config = {.tape = {.mode = GS_O2, .half = GS_F16, .telemetry = 1}, .seed = 1};
    must(gs_scaler_init(&config.scaler, "pytorch", &error), &error);
    must(gs_optim_config_init(&config.optim, "adamw", &error), &error);
    must(gs_optim_config_set(&config.optim,
                             "lr=4e-3 clip_norm=1 schedule=cosine warmup=10 total=150", &error),
         &error);
    must(gs_trainer_create(&trainer, ctx, gpt, &config), gs_context_error(ctx));

    double first = 0, loss = 0;
    for (int i = 0; i < STEPS; i++) {
        const gs_batch *micro;
        size_t n;
        gs_train_row row;
        must(gs_loader_next(loader, &micro, &n, &error), &error);
        must(gs_trainer_step(trainer, micro, n, &row), gs_context_error(ctx));
        const gs_log_step step = gs_log_step_of(&row, micro->n * TIME, 0);
        must(gs_logger_step(log, &step), gs_logger_error(log));
        loss = row.loss;
        first = i == 0 ? loss : first;
        if (i % 30 == 0 || i == STEPS - 1)
            printf("step %3d: loss %.3f, scale %g, %s\n", i + 1, loss, row.scale, step.verdict);
    }
    const gs_checkpoint about = {
        .step = STEPS, .items = gs_loader_position(loader), .model = "gpt 2x64"};
    must(gs_checkpoint_save("gpt.safetensors", trainer, &about, &error), &error);
    write_some(gpt, gs_trainer_tape(trainer), "#include ");

    gs_logger_close(log);
    gs_trainer_free(trainer);
    gs_model_free(gpt);
    gs_context_free(ctx);
    gs_loader_free(loader);
    gs_data_close(data);
    return loss < first / 2 ? 0 : 1;
}
