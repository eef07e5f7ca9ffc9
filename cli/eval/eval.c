/* gradscale eval: what a trained model is worth on data: loss, accuracy, confusion matrix of
 * classes, perplexity of text. */
#include "cli/core/commands.h"
#include "cli/core/json.h"
#include "cli/use/use.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *data, *labels;
    int split; /* auto, valid, train, all */
    uint64_t items, batch, calibrate;
    bool json;
    use_options use;
} options;

enum { AUTO, VALID, TRAIN, ALL };
enum { SHOWN_CLASSES = 20, COUNTED_CLASSES = 4096 };

typedef struct result {
    const char *split;
    uint64_t items, targets, right;
    uint64_t bytes; /* of text, that the targets are */
    double loss;
    double seconds;
    uint64_t calibrated; /* batches that set the ranges; 0: training did, or there are none */
    uint64_t *confusion; /* [classes][classes]: of a class, taken for another; NULL: too many */
} result;

/* ---- measuring ---- */

static void count(result *r, const use_model *u, const gs_infer_result *found,
                  const gs_batch *batch)
{
    const bool text = u->info->task == GS_TASK_TOKENS && u->info->tokenizer;
    const size_t classes = found->logits->shape[found->logits->rank - 1];
    for (size_t row = 0; row < found->logits->count / classes; row++) {
        const int32_t target = batch->targets[row];
        if (target < 0)
            continue;
        const size_t is = use_answer(found->logits, row);
        r->targets++;
        r->right += is == (size_t)target;
        size_t bytes = 0;
        if (text && use_token_text(u, target, &bytes))
            r->bytes += bytes;
        if (r->confusion)
            r->confusion[(size_t)target * classes + is]++;
    }
}

static int run_split(result *r, const use_model *u, gs_data *data, gs_split split, const options *o)
{
    const uint64_t there = gs_data_get_info(data)->items[split];
    const uint64_t most = o->items > r->items ? o->items - r->items : 0;
    const uint64_t items = there < most ? there : most;
    gs_loader_config order = {.size = sizeof order, .split = split};
    gs_loader *loader = NULL;
    gs_error error = {0};
    order.batch = (size_t)(o->batch < items ? o->batch : items);
    gs_status status = items ? gs_loader_create(&loader, data, &order, NULL, &error) : GS_OK;
    for (uint64_t seen = 0; status == GS_OK && seen < items;) {
        const gs_batch *micro;
        size_t n;
        gs_infer_result found;
        status = gs_loader_next(&micro, &n, loader, &error);
        if (status != GS_OK)
            break;
        gs_batch batch = micro[0];
        batch.n = batch.n < items - seen ? batch.n : (size_t)(items - seen);
        status = gs_infer_run(&found, u->infer, &batch);
        if (status != GS_OK) {
            error = *gs_context_error(u->ctx);
            break;
        }
        r->loss += found.loss * (double)batch.n;
        count(r, u, &found, &batch);
        seen += batch.n;
        r->items += batch.n;
        cli_progress((double)seen, (double)items, "%s", r->split);
    }
    cli_progress_end();
    gs_loader_free(loader);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

/* Post-training quantisation: ranges of the first batches, in a random order, of what a model may
 * learn from. */
static int calibrate(uint64_t *batches, const use_model *u, gs_data *data, const options *o)
{
    const gs_data_info *info = gs_data_get_info(data);
    gs_loader_config order = {.size = sizeof order,
                              .split =
                                  info->items[GS_SPLIT_TRAIN] > 0 ? GS_SPLIT_TRAIN : GS_SPLIT_VALID,
                              .seed = u->o.seed,
                              .shuffle = 1};
    const uint64_t there = info->items[order.split];
    if (there == 0)
        return cli_fail("--int8: %.100s has no items to calibrate with", info->name);
    gs_loader *loader = NULL;
    gs_error error = {0};
    order.batch = (size_t)(o->batch < there ? o->batch : there);
    const uint64_t most = there / order.batch;
    *batches = o->calibrate < most ? o->calibrate : most;
    gs_status status = gs_loader_create(&loader, data, &order, NULL, &error);
    for (uint64_t i = 0; status == GS_OK && i < *batches; i++) {
        const gs_batch *micro;
        size_t n;
        status = gs_loader_next(&micro, &n, loader, &error);
        if (status == GS_OK && (status = gs_infer_calibrate(u->infer, &micro[0])) != GS_OK)
            error = *gs_context_error(u->ctx);
        cli_progress((double)i, (double)*batches, "calibration");
    }
    cli_progress_end();
    gs_loader_free(loader);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

/* Data of training: what was held out; other data: all of them. */
static int measure(result *r, const use_model *u, gs_data *data, const options *o)
{
    static const char *const names[] = {NULL, "valid", "train", "all"};
    const gs_data_info *info = gs_data_get_info(data);
    int split = o->split != AUTO ? o->split : o->data ? ALL : VALID;
    if (split == ALL && info->items[GS_SPLIT_TRAIN] == UINT64_MAX)
        split = VALID; /* endless: what is held out is not */
    const size_t classes = u->info->classes;
    *r = (result){.split = names[split]};
    if (u->quantized && !gs_infer_calibrated(u->infer)) {
        const int code = calibrate(&r->calibrated, u, data, o);
        if (code != CLI_GO)
            return code;
    }
    const double start = gs_clock();
    if (u->info->task != GS_TASK_TOKENS && classes <= COUNTED_CLASSES) {
        r->confusion = cli_resize(NULL, classes * classes * sizeof *r->confusion);
        memset(r->confusion, 0, classes * classes * sizeof *r->confusion);
    }
    int code = CLI_GO;
    if (split != TRAIN)
        code = run_split(r, u, data, GS_SPLIT_VALID, o);
    if (code == CLI_GO && split != VALID)
        code = run_split(r, u, data, GS_SPLIT_TRAIN, o);
    if (code == CLI_GO && r->items == 0)
        code = cli_fail("--split %s: %.100s has no such items", r->split, info->name);
    r->loss /= (double)r->items;
    r->seconds = gs_clock() - start;
    return code;
}

/* ---- numbers made of it ---- */

/* Of a class: how often it is there, was answered, and both. */
typedef struct tally {
    uint64_t there, answered, both;
} tally;

static tally tally_of(const result *r, size_t classes, size_t c)
{
    tally t = {.both = r->confusion[c * classes + c]};
    for (size_t k = 0; k < classes; k++) {
        t.there += r->confusion[c * classes + k];
        t.answered += r->confusion[k * classes + c];
    }
    return t;
}

static double share(uint64_t a, uint64_t b) { return b ? (double)a / (double)b : (double)NAN; }

/* The mean over classes that occur of intersection over union. */
static double mean_iou(const result *r, size_t classes)
{
    double sum = 0;
    size_t n = 0;
    for (size_t c = 0; c < classes; c++) {
        const tally t = tally_of(r, classes, c);
        const uint64_t either = t.there + t.answered - t.both;
        sum += either ? share(t.both, either) : 0;
        n += either > 0;
    }
    return n ? sum / (double)n : (double)NAN;
}

/* What is comparable between tokenizers. */
static double bits_per_byte(const result *r)
{
    return r->loss / log(2) * (double)r->targets / (double)r->bytes;
}

/* ---- showing ---- */

static void show_confusion(const result *r, const use_model *u)
{
    const size_t classes = u->info->classes;
    char number[24];
    const char *titles[SHOWN_CLASSES + 5] = {"<class"};
    static char names[SHOWN_CLASSES][12];
    if (classes > SHOWN_CLASSES) {
        printf("\n%zu classes: the confusion matrix is in --json\n", classes);
        return;
    }
    for (size_t c = 0; c < classes; c++) {
        snprintf(names[c], sizeof names[c], ">%.8s", use_label_shown(u, c, number));
        titles[1 + c] = names[c];
    }
    titles[1 + classes] = ">recall";
    titles[2 + classes] = ">precision";
    printf("\nconfusion: a row per true class, a column per answer\n");
    cli_table *t = cli_table_new(titles);
    for (size_t c = 0; c < classes; c++) {
        const tally sums = tally_of(r, classes, c);
        cli_table_cell(t, "%.20s", use_label_shown(u, c, number));
        for (size_t k = 0; k < classes; k++)
            cli_table_cell(t, "%llu", (unsigned long long)r->confusion[c * classes + k]);
        for (int i = 0; i < 2; i++) {
            const double x = share(sums.both, i ? sums.answered : sums.there);
            cli_table_cell(t, isnan(x) ? "-" : "%.1f%%", 100 * x);
        }
    }
    cli_table_print(t, stdout);
}

static void show_quantized(const result *r, const use_model *u)
{
    printf("quantised  products of INT8 %s, ", u->int8 ? "in INT8 arithmetic" : "in floats");
    if (r->calibrated > 0)
        printf("ranges of %llu batch%s\n", (unsigned long long)r->calibrated,
               r->calibrated == 1 ? "" : "es");
    else
        printf("ranges of training (%s)\n", u->o.ranges ? u->o.ranges : "ema");
}

static void show(const result *r, const use_model *u, const gs_data_info *data)
{
    const bool text = u->info->task == GS_TASK_TOKENS;
    printf("model      %s, %s\n", u->line, u->precision);
    if (u->quantized)
        show_quantized(r, u);
    printf("data       %s, %llu item%s (%s)\n", data->name, (unsigned long long)r->items,
           cli_s(r->items), r->split);
    printf("loss       %.4f\n", r->loss);
    printf("accuracy   %.2f%%%s\n", 100 * share(r->right, r->targets),
           text ? " of the next tokens" : "");
    if (text)
        printf("perplexity %.3f\n", exp(r->loss));
    if (r->bytes > 0)
        printf("bits/byte  %.4f\n", bits_per_byte(r));
    if (u->info->task == GS_TASK_PIXELS && r->confusion)
        printf("mean IoU   %.4f\n", mean_iou(r, u->info->classes));
    printf("speed      %.0f items/s\n", (double)r->items / r->seconds);
    if (r->confusion)
        show_confusion(r, u);
}

static void show_json(const result *r, const use_model *u, const gs_data_info *data)
{
    const size_t classes = u->info->classes;
    json_writer j;
    char number[24];
    put_begin(&j, stdout, true);
    put_object(&j, NULL);
    put_string(&j, "checkpoint", u->path);
    put_string(&j, "model", u->line);
    put_string(&j, "precision", u->precision);
    put_string(&j, "quantized", !u->quantized ? NULL : u->int8 ? "int8" : "floats");
    put_u64(&j, "calibrated", r->calibrated);
    put_string(&j, "data", data->name);
    put_string(&j, "split", r->split);
    put_u64(&j, "items", r->items);
    put_double(&j, "loss", r->loss);
    put_double(&j, "accuracy", share(r->right, r->targets));
    if (u->info->task == GS_TASK_TOKENS)
        put_double(&j, "perplexity", exp(r->loss));
    if (r->bytes > 0)
        put_double(&j, "bits_per_byte", bits_per_byte(r));
    if (u->info->task == GS_TASK_PIXELS && r->confusion)
        put_double(&j, "mean_iou", mean_iou(r, classes));
    put_double(&j, "seconds", r->seconds);
    if (r->confusion) {
        put_array(&j, "classes");
        for (size_t c = 0; c < classes; c++) {
            const tally t = tally_of(r, classes, c);
            put_object(&j, NULL);
            put_string(&j, "label", use_label(u, c, number));
            put_u64(&j, "items", t.there);
            put_double(&j, "recall", share(t.both, t.there));
            put_double(&j, "precision", share(t.both, t.answered));
            put_array(&j, "answers");
            for (size_t k = 0; k < classes; k++)
                put_u64(&j, NULL, r->confusion[c * classes + k]);
            put_end(&j);
            put_end(&j);
        }
        put_end(&j);
    }
    put_end(&j);
}

int cmd_eval(int argc, char **argv)
{
    options o = {.items = CLI_AUTO, .batch = 64, .calibrate = CLI_AUTO};
    const cli_option rows[] = {
        {"data", "NAME", "as of train; not given: those the model was trained on",
         CLI_STRING(&o.data)},
        {"labels", "FILE", "the labels of IDX or npy, where they do not lie beside the images",
         CLI_STRING(&o.labels)},
        {"split", "auto|valid|train|all",
         "auto: of the data of training what was held out, of others all", CLI_CHOICE(&o.split)},
        {"items", "N", "at most", CLI_UNSIGNED(&o.items), .min = 1, .max = 1e12},
        {"batch", "N", "items at a time; no digit depends on it but the loss's last",
         CLI_UNSIGNED(&o.batch), .min = 1, .max = 1 << 20},
        {"int8", NULL,
         "run the forward pass in INT8 arithmetic: doc/quantize.md; a model that was not trained "
         "with --quantize is calibrated first",
         CLI_FLAG(&o.use.int8)},
        {"calibrate", "N", "of --int8: batches that set the ranges; not given: 16",
         CLI_UNSIGNED(&o.calibrate), .min = 1, .max = 1e9},
        {"ranges", "RULE", "of --calibrate: ema, max or percentile:P; not given: max",
         CLI_STRING(&o.use.ranges)},
        {"json", NULL, "print JSON; doc/json-eval.md", CLI_FLAG(&o.json)},
        USE_ROWS(&o.use),
        {0}};
    const cli_spec spec = {.name = "gradscale eval",
                           .operands = "CHECKPOINT",
                           .about = "Measures a trained model on data: loss, accuracy, and the "
                                    "confusion matrix of classes or the perplexity of text. "
                                    "CHECKPOINT is a file that train wrote, or a folder of them: "
                                    "its best. Data get the sizes, the normalisation and the "
                                    "classes of those that the model was trained on.",
                           .options = rows,
                           .min_operands = 1,
                           .max_operands = 1};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    if (!train_check_ranges(o.use.ranges))
        return CLI_BAD;
    if (o.labels && !o.data)
        return cli_fail("--labels is of --data");
    const bool asked = o.use.ranges || o.calibrate != CLI_AUTO;
    if (asked && !o.use.int8)
        return cli_fail("--%s is of --int8", o.use.ranges ? "ranges" : "calibrate");
    o.use.ranges = o.use.ranges ? o.use.ranges : "max";
    o.calibrate = o.calibrate == CLI_AUTO ? 16 : o.calibrate;
    use_model u;
    gs_data *data = NULL;
    result r = {0};
    code = use_open(&u, argv[0], &o.use);
    if (code == CLI_GO && asked && u.o.quantize)
        code = cli_fail(
            "%.120s: its ranges are those of training: --calibrate and --ranges are for others",
            u.path);
    if (code == CLI_GO)
        code = use_data(&data, &u, o.data, o.labels);
    if (code == CLI_GO)
        code = measure(&r, &u, data, &o);
    if (code == CLI_GO) {
        (o.json ? show_json : show)(&r, &u, gs_data_get_info(data));
        code = CLI_DONE;
    }
    free(r.confusion);
    gs_data_close(data);
    use_close(&u);
    return code;
}
