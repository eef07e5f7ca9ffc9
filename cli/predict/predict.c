/* gradscale predict: what a trained model makes of images or texts, a row for each. */
#include "cli/core/commands.h"
#include "cli/core/json.h"
#include "cli/use/use.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    uint64_t top, batch;
    bool json;
    use_options use;
} options;

typedef struct output {
    const options *o;
    const use_model *u;
    json_writer j;
    double *p;     /* [classes] */
    size_t *order; /* [classes] */
    bool begun;    /* the titles are out: not before there is a row */
} output;

static void put_titles(output *out)
{
    static const char *const titles[] = {[GS_TASK_CLASSES] = "item,rank,class,label,probability",
                                         [GS_TASK_TOKENS] =
                                             "item,tokens,loss,perplexity,next,next_probability",
                                         [GS_TASK_PIXELS] = "item,class,label,share"};
    if (!out->begun && !out->o->json)
        puts(titles[out->u->info->task]);
    out->begun = true;
}

/* A field of CSV, quoted where it must be (RFC 4180). Names of classes are the file's: a terminal
 * is shown no controls. */
static void put_field(const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        use_print(text, strlen(text));
        return;
    }
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        use_print(text, 1);
    }
    putchar('"');
}

/* ---- classes ---- */

/* The likely classes first; of equals the smaller one. */
static void sort_top(output *out, size_t classes, size_t top)
{
    for (size_t c = 0; c < classes; c++)
        out->order[c] = c;
    for (size_t i = 0; i < top; i++) { /* few are wanted */
        size_t best = i;
        for (size_t k = i + 1; k < classes; k++) {
            const size_t a = out->order[k], b = out->order[best];
            if (out->p[a] > out->p[b] || (out->p[a] == out->p[b] && a < b))
                best = k;
        }
        const size_t c = out->order[best];
        out->order[best] = out->order[i];
        out->order[i] = c;
    }
}

static void put_classes(output *out, const char *item, const gs_value *logits, size_t row)
{
    const size_t classes = out->u->info->classes;
    const size_t top = out->o->top < classes ? (size_t)out->o->top : classes;
    char number[24];
    use_softmax(out->p, logits, row);
    sort_top(out, classes, top);
    if (out->o->json) {
        put_object(&out->j, NULL);
        put_string(&out->j, "item", item);
        put_array(&out->j, "classes");
    }
    for (size_t i = 0; i < top; i++) {
        const size_t c = out->order[i];
        const char *label = use_label(out->u, c, number);
        if (out->o->json) {
            put_object(&out->j, NULL);
            put_u64(&out->j, "class", c);
            put_string(&out->j, "label", label);
            put_double(&out->j, "probability", out->p[c]);
            put_end(&out->j);
            continue;
        }
        put_field(item);
        printf(",%zu,%zu,", i + 1, c);
        put_field(label);
        printf(",%.6f\n", out->p[c]);
    }
    if (out->o->json) {
        put_end(&out->j);
        put_end(&out->j);
    }
}

/* How many pixels of an image are of each class. */
static void put_pixels(output *out, const char *item, const gs_value *logits, size_t image)
{
    const size_t classes = out->u->info->classes, pixels = logits->shape[1] * logits->shape[2];
    char number[24];
    memset(out->order, 0, classes * sizeof *out->order);
    for (size_t i = 0; i < pixels; i++)
        out->order[use_answer(logits, image * pixels + i)]++;
    if (out->o->json) {
        put_object(&out->j, NULL);
        put_string(&out->j, "item", item);
        put_array(&out->j, "pixels");
        for (size_t i = 0; i < pixels; i++)
            put_u64(&out->j, NULL, use_answer(logits, image * pixels + i));
        put_end(&out->j);
        put_end(&out->j);
        return;
    }
    for (size_t c = 0; c < classes; c++) {
        put_field(item);
        printf(",%zu,", c);
        put_field(use_label(out->u, c, number));
        printf(",%.6f\n", (double)out->order[c] / (double)pixels);
    }
}

static int predict_images(output *out, const char *path, bool several)
{
    const use_model *u = out->u;
    gs_data *data = NULL;
    gs_error error = {0};
    int code = use_images(&data, u, path);
    if (code != CLI_GO)
        return code;
    const gs_data_info *info = gs_data_get_info(data);
    const uint64_t items = info->items[GS_SPLIT_TRAIN];
    const size_t pixels = info->height * info->width * info->channels,
                 batch = (size_t)out->o->batch;
    const size_t targets = info->task == GS_TASK_PIXELS ? info->height * info->width : 1;
    float *x = cli_resize(NULL, batch * pixels * sizeof *x);
    int32_t *none = cli_resize(NULL, targets * sizeof *none);
    for (uint64_t at = 0; code == CLI_GO && at < items; at += batch) {
        gs_batch b = {.n = items - at < batch ? (size_t)(items - at) : batch, .x = x};
        gs_infer_result found = {0};
        gs_status status = GS_OK;
        for (size_t i = 0; status == GS_OK && i < b.n; i++)
            status = gs_data_read(x + i * pixels, NULL, none, data, GS_SPLIT_TRAIN, at + i, &error);
        if (status == GS_OK && (status = gs_infer_run(&found, u->infer, &b)) != GS_OK)
            error = *gs_context_error(u->ctx);
        if (status != GS_OK) {
            code = cli_fail_status(status, &error);
            break;
        }
        put_titles(out);
        for (size_t i = 0; i < b.n; i++) {
            char name[4096], item[4200];
            gs_data_item_name(name, sizeof name, data, GS_SPLIT_TRAIN, at + i);
            const bool number = several && name[strspn(name, "0123456789")] == 0;
            snprintf(item, sizeof item, "%s%s%s", number ? path : "", number ? ":" : "", name);
            (info->task == GS_TASK_PIXELS ? put_pixels : put_classes)(out, item, found.logits, i);
        }
        if (!cli_flush())
            code = CLI_FAILED;
    }
    free(x);
    free(none);
    gs_data_close(data);
    return code;
}

/* ---- text ---- */

/* The mean loss of a text's tokens, each after those before it in its window of the context, and
 * what would come next. The first token has nothing before it and is not counted. */
static int predict_text(output *out, const char *path, bool several)
{
    const use_model *u = out->u;
    size_t length, n;
    (void)several;
    char *text = use_read_file("", path, USE_TEXT, &length);
    if (!text)
        return CLI_BAD;
    int32_t *ids;
    int code = use_tokens(&ids, &n, u, text, length);
    free(text);
    if (code == CLI_GO && n < 2)
        code = cli_fail("%.120s: a text needs 2 tokens, and it has %zu", path, n);
    if (code != CLI_GO) {
        free(ids);
        return code;
    }
    gs_infer_result found = {0};
    double sum = 0;
    size_t row = 0;
    gs_status status = GS_OK;
    for (size_t at = 0; status == GS_OK && at + 1 < n;) {
        const size_t most = u->model->context, left = n - 1 - at;
        const gs_batch b = {
            .n = 1, .time = left < most ? left : most, .ids = ids + at, .targets = ids + at + 1};
        status = gs_infer_run(&found, u->infer, &b);
        sum += found.loss * (double)b.time;
        at += b.time;
        row = b.time - 1;
    }
    if (status == GS_OK) { /* the token after the last: the last window, moved on by one */
        const size_t time = n < u->model->context ? n : u->model->context;
        const gs_batch b = {.n = 1, .time = time, .ids = ids + n - time};
        status = gs_infer_run(&found, u->infer, &b);
        row = time - 1;
    }
    free(ids);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(u->ctx));
    const double loss = sum / (double)(n - 1);
    const size_t next = use_answer(found.logits, row);
    use_softmax(out->p, found.logits, row);
    if (out->o->json) {
        size_t bytes;
        const char *token = use_token_text(u, (int32_t)next, &bytes);
        char *shown = cli_resize(NULL, bytes + 1);
        memcpy(shown, token, bytes);
        shown[bytes] = 0;
        put_object(&out->j, NULL);
        put_string(&out->j, "item", path);
        put_u64(&out->j, "tokens", n);
        put_double(&out->j, "loss", loss);
        put_double(&out->j, "perplexity", exp(loss));
        put_u64(&out->j, "next", next);
        put_string(&out->j, "next_text", shown);
        free(shown);
        put_double(&out->j, "next_probability", out->p[next]);
        put_end(&out->j);
        return CLI_GO;
    }
    put_titles(out);
    put_field(path);
    printf(",%zu,%.6f,%.4f,%zu,%.6f\n", n, loss, exp(loss), next, out->p[next]);
    return CLI_GO;
}

/* ---- the command ---- */

static int run(const use_model *u, const options *o, char **paths, int n)
{
    output out = {.o = o, .u = u};
    const bool text = u->info->task == GS_TASK_TOKENS;
    int code = text ? use_check_text(u) : CLI_GO;
    if (code != CLI_GO)
        return code;
    out.p = cli_resize(NULL, u->info->classes * sizeof *out.p);
    out.order = cli_resize(NULL, u->info->classes * sizeof *out.order);
    if (o->json) {
        put_begin(&out.j, stdout, true);
        put_array(&out.j, NULL);
    }
    for (int i = 0; code == CLI_GO && i < n; i++)
        code = (text ? predict_text : predict_images)(&out, paths[i], n > 1);
    if (o->json)
        put_end(&out.j);
    free(out.p);
    free(out.order);
    return code == CLI_GO ? CLI_DONE : code;
}

int cmd_predict(int argc, char **argv)
{
    options o = {.top = 1, .batch = 64};
    const cli_option rows[] = {
        {"top", "N", "classes of an image, the likely ones first", CLI_UNSIGNED(&o.top), .min = 1,
         .max = 1 << 24},
        {"batch", "N", "images at a time", CLI_UNSIGNED(&o.batch), .min = 1, .max = 1 << 16},
        {"json", NULL, "print JSON; doc/json-predict.md", CLI_FLAG(&o.json)},
        USE_ROWS(&o.use),
        {0}};
    const cli_spec spec = {
        .name = "gradscale predict",
        .operands = "CHECKPOINT FILE...",
        .about = "Prints what a trained model makes of each item, as CSV. Of images and rows "
                 "of numbers (PNG, JPEG, folders of them, IDX, CIFAR, NumPy, CSV; labels are not "
                 "needed): "
                 "the most likely classes with their probabilities, or of a model of pixels the "
                 "share of each "
                 "class. Of text files: the loss per token, the perplexity and the next token.",
        .options = rows,
        .min_operands = 2,
        .max_operands = CLI_ANY};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    use_model u;
    code = use_open(&u, argv[0], &o.use);
    if (code == CLI_GO)
        code = run(&u, &o, argv + 1, argc - 1);
    use_close(&u);
    return code;
}
