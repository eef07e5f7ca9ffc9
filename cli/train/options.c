/* The options of train: one table for the command line, --help and config files. */
#include "cli/train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDEST = 1 << 16, BATCH_MAX = 1 << 20 };

#define NOT_GIVEN                                                                                  \
    {                                                                                              \
        .layers = CLI_AUTO, .width = CLI_AUTO, .heads = CLI_AUTO, .context = CLI_AUTO,             \
        .kv_heads = CLI_AUTO, .mlp_width = CLI_AUTO, .rope_theta = (double)NAN,                    \
        .filters = CLI_AUTO, .patch = CLI_AUTO, .dropout = (double)NAN, .loss_weight = 1,          \
        .lr = (double)NAN, .clip = (double)NAN, .epochs = (double)NAN, .warmup = CLI_AUTO,         \
        .steps = CLI_AUTO, .batch = CLI_AUTO, .accumulate = 1, .seed = 1, .valid_every = CLI_AUTO, \
        .valid_items = CLI_AUTO, .checkpoint_every = CLI_AUTO, .keep = 3,                          \
        .telemetry_every = CLI_AUTO, .timeout = 300, .compare_every = 100                          \
    }

train_options train_given = NOT_GIVEN;
#define O (&train_given)

static const cli_option job_rows[] = {
    {"model", "auto|mlp|cnn|resnet|gpt|fcn|resnet18|resnet50|vit",
     "what is trained; auto: what fits the data", CLI_CHOICE(&O->model)},
    {"data", "NAME",
     "fashion-mnist, self (the sources of gradscale), shapes, a folder (PNG and JPEG by class, "
     "images and masks, CIFAR, tokens, text), or a file: IDX, npy, npz, CSV, tokens (.bin), text; "
     "not given: what shows the model",
     CLI_STRING(&O->data)},
    {"labels", "FILE", "the labels of IDX or npy, where they do not lie beside the images",
     CLI_STRING(&O->labels)},
    {"resize", "WxH",
     "the size of the images of a folder, such as 64x64: scaled to cover it and cut around the "
     "centre; not given: that of the first",
     CLI_STRING(&O->resize)},
    {"tokenizer", "FILE",
     "of text: a tokenizer.json, a vocab.json beside its merges.txt, or a folder with either "
     "(gradscale tokenize makes one); not given: that of --init, or else bytes",
     CLI_STRING(&O->tokenizer)},
    {"normalize", "yes|no",
     "images and rows less their mean, in deviations; no: as the file has them, for data that has "
     "been normalised before",
     CLI_CHOICE(&O->normalize)},
    {"augment", "LIST",
     "vary the images: crop:N (moved by up to N pixels), flip, cutout:N (a square of N), color:X "
     "(contrast and brightness by up to X), such as crop:4,flip",
     CLI_STRING(&O->augment)},
    {"init", "FILE",
     "weights to begin with: a checkpoint, safetensors of PyTorch or Hugging Face, or a folder "
     "of either; the model's sizes must be the file's",
     CLI_STRING(&O->init)},
    {"hidden", "A,B,..", "of mlp: the widths of the hidden layers", CLI_STRING(&O->hidden)},
    {"filters", "N", "of cnn, resnet: of the first block; of fcn: of every layer",
     CLI_UNSIGNED(&O->filters), .min = 1, .max = 4096},
    {"patch", "N", "of vit: the side of a patch, which divides the image's",
     CLI_UNSIGNED(&O->patch), .min = 1, .max = 1024},
    {"layers", "N", "of gpt, vit: blocks; of fcn: hidden convolutions", CLI_UNSIGNED(&O->layers),
     .min = 1, .max = 1024},
    {"width", "N", "of gpt, vit: channels", CLI_UNSIGNED(&O->width), .min = 1, .max = WIDEST},
    {"heads", "N", "of gpt, vit: heads of attention", CLI_UNSIGNED(&O->heads), .min = 1,
     .max = 1024},
    {"context", "N", "of gpt: tokens of an item", CLI_UNSIGNED(&O->context), .min = 1,
     .max = WIDEST},
    {"dropout", "P", "of gpt, vit", CLI_DOUBLE(&O->dropout), .max = 0.95},
    {"positions", "HOW", "of gpt: learned, or rotary as Llama has them; not given: learned",
     CLI_STRING(&O->positions)},
    {"norm", "HOW", "of gpt: layer, or rms (RMSNorm) as Llama has it; not given: layer",
     CLI_STRING(&O->norm)},
    {"mlp", "HOW", "of gpt: gelu, or swiglu as Llama has it; not given: gelu", CLI_STRING(&O->mlp)},
    {"head", "HOW", "of gpt: tied to the embedding, or untied; not given: tied",
     CLI_STRING(&O->head)},
    {"kv-heads", "N", "of gpt: heads of keys and values, which its heads share; not given: as many",
     CLI_UNSIGNED(&O->kv_heads), .min = 1, .max = 1024},
    {"mlp-width", "N", "of gpt, vit: hidden units; not given: 4 times the width, 8/3 with swiglu",
     CLI_UNSIGNED(&O->mlp_width), .min = 1, .max = 4 * WIDEST},
    {"rope-theta", "X", "of gpt: base of rotary positions; not given: 10000",
     CLI_DOUBLE(&O->rope_theta), .min = 1, .max = 1e12},
    {0}};

static const cli_option precision_rows[] = {
    {"precision", "fp16|bf16|fp32", "of activations and products", CLI_CHOICE(&O->precision)},
    {"mode", "auto|O0|O1|O2|O3",
     "O0 fp32; O1 autocast, fp32 weights; O2 half weights, fp32 masters; O3 all half; auto: O0 "
     "in fp32, O2 else",
     CLI_CHOICE(&O->mode)},
    {"scaler", "NAME",
     "a preset (gradscale presets), static:S, headroom, logmax, adaptive, histogram, guard (scale "
     "1, checks), none (no scaling, no checks); not given: pytorch in fp16, guard else",
     CLI_STRING(&O->scaler)},
    {"on-overflow", "HOW", "skip, retry:N (retry the batch, lower), attribute (find out why)",
     CLI_STRING(&O->on_overflow)},
    {"set", "KEY=VALUE", "of the scaler or the optimizer; may be repeated", CLI_LIST(&O->set)},
    {"wgrad", "half|f32", "weight gradients: rounded to half, or the f32 sums",
     CLI_CHOICE(&O->wgrad)},
    {"quantize", "none|int8|ptq",
     "products of integers of 8 bits: int8 trains with them (QAT), ptq only validates with them",
     CLI_CHOICE(&O->quantize)},
    {"ranges", "RULE",
     "of --quantize: ema (moving average of the largest magnitude), max, percentile:P; not given: "
     "ema",
     CLI_STRING(&O->ranges)},
    {"recompute", NULL,
     "recompute the blocks of gpt and vit in backward: less memory, the same bits",
     CLI_FLAG(&O->recompute)},
    {"loss-weight", "W", "multiplies the gradients, not the loss that is shown",
     CLI_DOUBLE(&O->loss_weight), .min = 0x1p-60, .max = 0x1p60},
    {0}};

static const cli_option training_rows[] = {
    {"optimizer", "NAME", "sgd, adam, adamw, lamb or adafactor; not given: adamw",
     CLI_STRING(&O->optimizer)},
    {"lr", "R", "learning rate; not given: the model's own", CLI_DOUBLE(&O->lr), .max = 1e6,
     .alias = "learning-rate"},
    {"schedule", "NAME", "constant, linear, cosine, step or onecycle; not given: cosine",
     CLI_STRING(&O->schedule)},
    {"warmup", "N", "steps; not given: a twentieth of them", CLI_UNSIGNED(&O->warmup), .max = 1e12},
    {"steps", "N", "to take", CLI_UNSIGNED(&O->steps), .min = 1, .max = 1e12},
    {"epochs", "X", "the same in passes over the data", CLI_DOUBLE(&O->epochs), .min = 0.001,
     .max = 1e6},
    {"batch", "N", "items of a micro-batch", CLI_UNSIGNED(&O->batch), .min = 1, .max = BATCH_MAX,
     .alias = "batch-size"},
    {"accumulate", "N", "micro-batches of a step", CLI_UNSIGNED(&O->accumulate), .min = 1,
     .max = 1 << 16},
    {"clip", "NORM", "largest norm of the gradients; 0: none", CLI_DOUBLE(&O->clip), .max = 1e30},
    {"seed", "N", "of weights, order, dropout and shapes", CLI_UNSIGNED(&O->seed), .max = 0x1p53},
    {"valid-every", "N", "steps from one validation to the next; 0: none but at the end",
     CLI_UNSIGNED(&O->valid_every), .max = 1e12},
    {"valid-items", "N", "items of a validation, at most", CLI_UNSIGNED(&O->valid_items), .min = 1,
     .max = 1e12},
    {"patience", "N", "stop after so many validations without a better one; 0: never",
     CLI_UNSIGNED(&O->patience), .max = 1e12},
    {0}};

static const cli_option output_rows[] = {
    {"log", "FILE", "JSON lines, one per step; doc/log.md", CLI_STRING(&O->log)},
    {"csv", "FILE", "the steps as a table", CLI_STRING(&O->csv)},
    {"tensorboard", "DIR", "event files for TensorBoard", CLI_STRING(&O->tensorboard)},
    {"report", "FILE", "an HTML report at the end; makes a log beside it if there is none",
     CLI_STRING(&O->report)},
    {"checkpoint", "DIR",
     "where checkpoints go; not given: a new folder runs/NAME-DATE, with log and report unless "
     "they are named",
     CLI_STRING(&O->checkpoint)},
    {"checkpoint-every", "N", "steps; 0: at the end only; not given: with every validation",
     CLI_UNSIGNED(&O->checkpoint_every), .max = 1e12},
    {"keep", "N", "newest checkpoints to keep, besides the best; 0: all", CLI_UNSIGNED(&O->keep),
     .max = 1e6},
    {"telemetry-every", "N",
     "steps from one look at each layer's gradients to the next; 0: no telemetry; not given: 100 "
     "looks",
     CLI_UNSIGNED(&O->telemetry_every), .max = 1e12},
    {"name", "TEXT", "of the run, in logs and reports", CLI_STRING(&O->name)},
    CLI_MACHINE_ROWS(&O->machine),
    {0}};

static const cli_option rank_rows[] = {
    {"compress", "none|fp16|bf16",
     "what gradients are sent as: fp32, or scaled halves, which are half the bytes",
     CLI_CHOICE(&O->compress)},
    {"zero", NULL,
     "ZeRO-1: each rank keeps its part of the optimizer's state and of the fp32 weights",
     CLI_FLAG(&O->zero)},
    {"timeout", "S", "seconds after which a rank that does not answer ends the run",
     CLI_DOUBLE(&O->timeout), .min = 0.1, .max = 1e6},
    {"compare-every", "N", "steps after which the ranks compare weights and scaler",
     CLI_UNSIGNED(&O->compare_every), .min = 1, .max = 1e12},
    {0}};

static const cli_option now_rows[] = {
    {"config", "FILE", "options as lines `name = value`; the command line wins",
     CLI_STRING(&O->config), .now = true},
    {"print-config", NULL, "print the options in effect as such a file, and end",
     CLI_FLAG(&O->print_config), .now = true},
    {"dry-run", NULL, "show model, memory and expected time, and end", CLI_FLAG(&O->dry_run),
     .now = true},
    {"resume", NULL,
     "go on from the newest checkpoint of DIR, or of --checkpoint, with its options unless others "
     "are given",
     CLI_FLAG(&O->resume), .now = true},
    {"no-save", NULL, "make no folder for the run: nothing is kept but what other options name",
     CLI_FLAG(&O->no_save), .now = true},
    {"overwrite", NULL, "begin files of --log and --csv anew that an earlier run has left",
     CLI_FLAG(&O->overwrite), .now = true},
    {"quiet", NULL, "print nothing but errors", CLI_FLAG(&O->quiet), .now = true, .letter = 'q'},
    {0}};

const cli_option train_rows[] = {
    {"what", NULL, NULL, CLI_SECTION(job_rows)},
    {"precision", NULL, NULL, CLI_SECTION(precision_rows)},
    {"training", NULL, NULL, CLI_SECTION(training_rows)},
    {"output", NULL, NULL, CLI_SECTION(output_rows)},
    {"ranks (mpirun -n N gradscale train ...)", NULL, NULL, CLI_SECTION(rank_rows)},
    {"this run", NULL, NULL, CLI_SECTION(now_rows)},
    {0}};

/* ---- reading ---- */

static const cli_spec spec = {
    .name = "gradscale train",
    .operands = "[--resume DIR]",
    .max_operands = 1,
    .about =
        "Trains a model in mixed precision with loss scaling. Without options a small "
        "convolutional network learns Fashion-MNIST in fp16.\n\n"
        "Progress goes to standard error. SIGINT, SIGTERM and SIGHUP end the run after the "
        "step that is being taken, with a checkpoint unless --no-save is given, and the "
        "exit code is 130, 143 or 129; a second one ends it at once. A run that came to nothing, "
        "because next to no step was applied or because its loss is not finite at the end, has "
        "the exit code 1.",
    .options = train_rows};

static const train_options not_given = NOT_GIVEN;

/* Steps and epochs are two ways to say one thing: what lies above says it anew, either way. */
typedef struct length {
    uint64_t steps;
    double epochs;
} length;

static length take_length(void)
{
    const length below = {train_given.steps, train_given.epochs};
    train_given.steps = not_given.steps;
    train_given.epochs = not_given.epochs;
    return below;
}

static void keep_length(length below)
{
    if (train_given.steps != CLI_AUTO || !isnan(train_given.epochs))
        return;
    train_given.steps = below.steps;
    train_given.epochs = below.epochs;
}

/* --resume DIR is short for --resume --checkpoint DIR. */
static int take_folder(const char *folder)
{
    if (!train_given.resume)
        return cli_fail("'%.60s' is one argument too many: gradscale train --help shows the usage",
                        folder);
    train_given.checkpoint = folder;
    return CLI_GO;
}

static int parse(const cli_spec *with, int argc, char **argv)
{
    char **words = cli_resize(NULL, ((size_t)argc + 1) * sizeof *words);
    memcpy(words, argv, (size_t)argc * sizeof *words); /* parsing moves them */
    const length below = take_length();
    int code = cli_parse(with, &argc, words);
    keep_length(below);
    if (code == CLI_GO && argc == 1)
        code = take_folder(words[0]);
    free(words);
    return code;
}

static int read_config(const char *file)
{
    const length below = take_length();
    const int code = cli_config_read(train_rows, file, "--config");
    keep_length(below);
    return code;
}

/* Twice: the first reading finds the files that lie below what it says. */
int train_parse_as(const cli_spec *with, int argc, char **argv, char *checkpoint, size_t room)
{
    static gs_checkpoint_text text;
    *checkpoint = 0;
    int code = parse(with, argc, argv);
    if (code != CLI_GO)
        return code;
    const char *file = train_given.config;
    if (file) { /* it may name the folder of the checkpoints */
        train_given = not_given;
        code = read_config(file);
        if (code == CLI_GO)
            code = parse(with, argc, argv);
    }
    if (code == CLI_GO && train_given.resume)
        code = train_resume_find(checkpoint, room, &text);
    if (code == CLI_GO && train_given.resume) {
        const char *const folder = train_given.checkpoint;
        const train_options given = train_given;
        train_given = not_given;
        code = train_resume_read(&text, checkpoint, folder, &given);
        if (code == CLI_GO && file)
            code = read_config(file);
        if (code == CLI_GO)
            code = parse(with, argc, argv);
        if (code == CLI_GO && *checkpoint)
            code = train_resume_check(checkpoint);
    }
    return code;
}

int train_parse(int argc, char **argv, char *checkpoint, size_t room)
{
    return train_parse_as(&spec, argc, argv, checkpoint, room);
}

/* ---- what does not go together ---- */

int train_check(const train_options *o)
{
    static const char *const precisions[] = {"fp16", "bf16", "fp32"};
    const gs_mode mode = (gs_mode)(o->mode - 1);
    if (o->mode > 0 && (mode == GS_O0) != (o->precision == TRAIN_FP32))
        return cli_fail("--mode O%d is %s: it does not go with --precision %s", (int)mode,
                        mode == GS_O0 ? "all fp32" : "mixed precision", precisions[o->precision]);
    if (!train_check_ranges(o->ranges))
        return CLI_BAD;
    if (o->steps != CLI_AUTO && !isnan(o->epochs))
        return cli_fail("--steps and --epochs exclude one another");
    if (o->no_save && o->checkpoint)
        return cli_fail("--no-save and --checkpoint exclude one another");
    if (o->patience > 0 && o->valid_every == 0)
        return cli_fail("--patience needs validations: --valid-every is 0");
    if (o->mode > 0 && mode == GS_O3 && o->scaler && strcmp(o->scaler, "none") == 0 && !o->quiet)
        cli_warn("--mode O3 with --scaler none: weights and gradients are half and nothing checks "
                 "them: small gradients vanish, and the first overflow makes the weights NaN");
    return CLI_GO;
}
