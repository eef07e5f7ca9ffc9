#include "cli/use/use.h"
#include "cli/logs/logs.h"

#include "gradscale/io.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the checkpoint ---- */

static int find(use_model *u, const char *path)
{
    struct stat about;
    gs_error error = {0};
    if (stat(path, &about) != 0)
        return cli_fail("%.120s: %s", path, strerror(errno));
    if (!S_ISDIR(about.st_mode) && !S_ISREG(about.st_mode)) /* a pipe would hang */
        return cli_fail("%.120s: is neither a file nor a folder", path);
    snprintf(u->path, sizeof u->path, "%s", path);
    if (!S_ISDIR(about.st_mode))
        return logs_refuse_pickle(path, "give a checkpoint of gradscale train instead");
    const gs_status status = train_best_path(u->path, path, &error);
    if (status == GS_OK && error.status != GS_OK)
        cli_warn("%s", error.text); /* a newer one is damaged */
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

static char *copy_of(const char *text) { return strcpy(cli_resize(NULL, strlen(text) + 1), text); }

/* What makes tokens of text. Ids of another vocabulary would be none of the model's. */
static int read_tokenizer(use_model *u)
{
    gs_error error = {0};
    const char *text = u->info->tokenizer;
    if (!text || strcmp(text, "bytes") == 0)
        return CLI_GO;
    const gs_status status = gs_tokenizer_read(&u->tokenizer, text, strlen(text), NULL, &error);
    if (status != GS_OK)
        return cli_fail_input(u->path, status, &error);
    if (gs_tokenizer_size(u->tokenizer) != u->info->classes)
        return cli_fail("%.120s: its tokenizer has %zu tokens, and its model %zu", u->path,
                        gs_tokenizer_size(u->tokenizer), u->info->classes);
    return CLI_GO;
}

/* What the file says of its model and its data. */
static int read_texts(use_model *u)
{
    static gs_checkpoint_text text;
    gs_error error = {0};
    gs_source *file = NULL;
    gs_status status = gs_checkpoint_peek(&text, u->path, &error);
    if (status == GS_OK)
        status = gs_checkpoint_verify(u->path, &error);
    if (status == GS_OK)
        status = gs_source_open(&file, u->path, NULL, &error);
    if (status != GS_OK)
        return cli_fail_status(status, &error);
    const char *about = gs_source_metadata(file, "data");
    u->about = copy_of(about ? about : "");
    gs_source_close(file);
    snprintf(u->line, sizeof u->line, "%s", text.model);
    status = gs_data_info_read(&u->info, u->about, NULL, &error);
    if (status != GS_OK)
        return cli_fail_input(u->path, status, &error);
    const int code = cli_config_read_text(train_rows, text.config, u->path);
    u->o = train_given;
    return code == CLI_GO ? read_tokenizer(u) : code;
}

/* ---- the model ---- */

/* The line is made anew from what was read: a file that contradicts itself is found out here. */
static int make_model(use_model *u)
{
    char line[TRAIN_LINE];
    const train_options *o = &u->o;
    if (o->model < 1)
        return cli_fail("%.120s: does not say what its model is", u->path);
    u->kind = &train_models[o->model - 1];
    if (u->kind->task != u->info->task)
        return cli_fail("%.120s: its model and its data are of two kinds", u->path);
    train_model_line(line, sizeof line, u->kind, u->info, o);
    if (strcmp(line, u->line) != 0)
        return cli_fail("%.120s: its model is %.100s, and its options say %.100s", u->path, u->line,
                        line);
    gs_status status = u->kind->create(&u->model, u->ctx, u->info, o);
    if (status == GS_OK && u->quantized)
        status = gs_model_quantize(u->model, u->ctx);
    return status == GS_OK ? train_model_fits(u->model, u->path)
                           : cli_fail_status(status, gs_context_error(u->ctx));
}

static int load(use_model *u, const use_options *options)
{
    static const char *const names[] = {"fp16", "bf16", "fp32"};
    gs_error error = {0};
    const int precision = options->precision ? options->precision - 1 : u->o.precision;
    gs_mode mode = precision == TRAIN_FP32 ? GS_O0 : GS_O2;
    if (!options->precision && u->o.mode > 0)
        mode = (gs_mode)(u->o.mode - 1);
    gs_infer_config config = {.size = sizeof config,
                              .mode = mode,
                              .half = precision == TRAIN_BF16 ? GS_BF16 : GS_F16,
                              .quantize = u->quantized,
                              .int8 = options->int8};
    train_ranges(&config.range_rule, &config.percentile, options->ranges);
    u->precision = mode == GS_O0 ? "fp32" : names[precision];
    gs_status status = gs_infer_create(&u->infer, u->ctx, u->model, &config);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(u->ctx));
    status = gs_infer_load(u->infer, u->path, &error);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

int use_open(use_model *u, const char *path, const use_options *options)
{
    *u = (use_model){.ctx = NULL};
    int code = find(u, path);
    if (code == CLI_GO)
        code = read_texts(u);
    if (code == CLI_GO)
        code = cli_context(&u->ctx, &options->machine);
    u->int8 = options->int8;
    u->quantized = u->o.quantize || u->int8;
    if (code == CLI_GO)
        code = make_model(u);
    return code == CLI_GO ? load(u, options) : code;
}

void use_close(use_model *u)
{
    gs_infer_free(u->infer);
    gs_model_free(u->model);
    gs_context_free(u->ctx);
    gs_data_info_free(u->info);
    gs_tokenizer_free(u->tokenizer);
    free(u->about);
}

/* ---- data ---- */

int use_data(gs_data **out, const use_model *u, const char *name, const char *labels)
{
    gs_data_config config = {.size = sizeof config,
                             .name = name ? name : u->o.data,
                             .labels = name ? labels : u->o.labels,
                             .seed = u->o.seed,
                             .like = u->about};
    if (!config.name)
        return cli_fail("%.120s: does not say on what data it was trained: name them with --data",
                        u->path);
    return train_data_open(out, &config);
}

int use_images(gs_data **out, const use_model *u, const char *name)
{
    gs_data_config config = {
        .size = sizeof config, .name = name, .like = u->about, .unlabelled = 1};
    gs_error error = {0};
    const gs_status status = gs_data_open(out, &config, NULL, &error);
    return status == GS_OK ? CLI_GO : cli_fail_input("", status, &error);
}

const char *use_label(const use_model *u, size_t class, char number[24])
{
    if (u->info->labels && class < u->info->classes)
        return u->info->labels[class];
    snprintf(number, 24, "%zu", class);
    return number;
}

const char *use_label_shown(const use_model *u, size_t class, char shown[24])
{
    char number[24];
    snprintf(shown, 24, "%s", use_label(u, class, number));
    cli_clean(shown);
    return shown;
}

/* /dev/zero has no end. */
char *use_read_file(const char *option, const char *path, size_t most, size_t *length)
{
    const bool standard = strcmp(path, "-") == 0;
    size_t room = 1 << 16, n = 0;
    FILE *f = standard ? stdin : cli_read_begin(path);
    if (!f) {
        cli_fail("%s%.120s cannot be opened: %s", option, path, strerror(errno));
        return NULL;
    }
    char *text = cli_resize(NULL, room);
    errno = 0;
    for (size_t got; n <= most && (got = fread(text + n, 1, room - n - 1, f)) > 0;)
        if ((n += got) + 1 == room)
            text = cli_resize(text, room *= 2);
    const int why = ferror(f) ? errno : 0;
    if (!standard)
        fclose(f);
    if (why || n > most) {
        if (why)
            cli_fail("%.120s cannot be read: %s", path, strerror(why));
        else
            cli_fail("%.120s is longer than %zu bytes, the most that is read as one text", path,
                     most);
        free(text);
        return NULL;
    }
    text[n] = 0;
    *length = n;
    return text;
}

/* A control of C1 is 0xC2 and 0x80 to 0x9F: the first waits for what follows it. */
void use_print(const char *text, size_t n)
{
    static bool waits;
    const bool terminal = isatty(STDOUT_FILENO);
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool is_c1 = waits && c >= 0x80 && c < 0xA0;
        const bool is_c0 = (c < 0x20 || c == 0x7F) && c != '\n' && c != '\t';
        if (waits && !is_c1)
            putchar(0xC2);
        waits = terminal && c == 0xC2;
        if (!waits)
            putchar(is_c1 || (terminal && is_c0) ? '?' : c);
    }
}

/* ---- answers ---- */

static float logit(const gs_value *v, size_t i)
{
    const uint16_t half = v->dtype == GS_F32 ? 0 : ((const uint16_t *)v->data)[i];
    return v->dtype == GS_F32    ? ((const float *)v->data)[i]
           : v->dtype == GS_BF16 ? gs_bf16_to_f32(half)
                                 : gs_f16_to_f32(half);
}

size_t use_answer(const gs_value *logits, size_t row)
{
    const size_t classes = logits->shape[logits->rank - 1];
    size_t best = 0;
    float most = logit(logits, row * classes);
    for (size_t c = 1; c < classes; c++) {
        const float x = logit(logits, row * classes + c);
        if (x > most) {
            most = x;
            best = c;
        }
    }
    return best;
}

void use_softmax(double *p, const gs_value *logits, size_t row)
{
    const size_t classes = logits->shape[logits->rank - 1];
    const double top = (double)logit(logits, row * classes + use_answer(logits, row));
    double sum = 0;
    for (size_t c = 0; c < classes; c++)
        sum += p[c] = exp((double)logit(logits, row * classes + c) - top);
    for (size_t c = 0; c < classes; c++)
        p[c] /= sum;
}

/* ---- tokens ---- */

int use_check_text(const use_model *u)
{
    if (u->info->task != GS_TASK_TOKENS)
        return cli_fail("%.120s: %s is no model of text", u->path, u->kind->name);
    if (!u->info->tokenizer)
        return cli_fail("%.120s: does not say how text becomes tokens: it was trained on files of "
                        "tokens",
                        u->path);
    return CLI_GO;
}

gs_status use_encode(int32_t **ids, size_t *n, gs_tokenizer *t, const char *text, size_t length,
                     gs_error *error)
{
    size_t room = length + 1, more = 0;
    for (;;) {
        *ids = cli_resize(*ids, (*n + room + 1) * sizeof **ids);
        const gs_status status =
            gs_tokenizer_encode(*ids + *n, room, &more, t, text, length, error);
        if (status == GS_OK)
            *n += more;
        if (status != GS_ESIZE || more <= room)
            return status;
        room = more;
    }
}

int use_tokens(int32_t **ids, size_t *n, const use_model *u, const char *text, size_t length)
{
    gs_error error = {0};
    *ids = NULL;
    *n = 0;
    if (!u->tokenizer) {
        *ids = cli_resize(NULL, (length + 1) * sizeof **ids);
        for (; *n < length; ++*n)
            (*ids)[*n] = (unsigned char)text[*n];
        return CLI_GO;
    }
    const gs_status status = use_encode(ids, n, u->tokenizer, text, length, &error);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

const char *use_token_text(const use_model *u, int32_t token, size_t *n)
{
    static char byte;
    if (u->tokenizer)
        return gs_tokenizer_token(u->tokenizer, token, n);
    byte = (char)token;
    *n = 1;
    return &byte;
}
