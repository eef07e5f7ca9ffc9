/* The models: what each is made of, and the settings with which it does well. */
#include "cli/train/train.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SIZES_MAX = 32 };

int train_mlp_sizes(size_t *sizes, size_t room, const gs_data_info *data, const char *hidden)
{
    char item[24];
    uint64_t width;
    size_t n = 0;
    int more;
    sizes[n++] = data->height * data->width * data->channels;
    while ((more = cli_next_item(&hidden, item, sizeof item)) > 0) {
        if (n + 1 >= room || !cli_read_unsigned(&width, item) || width < 1 || width > 1 << 20)
            return -1;
        sizes[n++] = (size_t)width;
    }
    sizes[n++] = data->classes;
    return more < 0 ? -1 : (int)n;
}

bool train_augment(gs_augment *out, const char *list)
{
    char item[32];
    int more;
    *out = (gs_augment){0};
    while (list && (more = cli_next_item(&list, item, sizeof item)) != 0) {
        char *colon = more > 0 ? strchr(item, ':') : NULL;
        uint64_t n = 0;
        double x = 0;
        if (colon)
            *colon = 0;
        const bool count = colon && cli_read_unsigned(&n, colon + 1) && n > 0 && n < 1 << 16;
        if (more > 0 && !colon && strcmp(item, "flip") == 0)
            out->flip = 1;
        else if (count && strcmp(item, "crop") == 0)
            out->crop = (size_t)n;
        else if (count && strcmp(item, "cutout") == 0)
            out->cutout = (size_t)n;
        else if (colon && strcmp(item, "color") == 0 && cli_read_double(&x, colon + 1) && x > 0 &&
                 x <= 1)
            out->color = (float)x;
        else
            return false;
    }
    return true;
}

gs_quantize train_quantize(const train_options *o)
{
    static const gs_quantize all[] = {GS_QUANTIZE_NONE, GS_QUANTIZE_QAT, GS_QUANTIZE_PTQ};
    return all[o->quantize];
}

bool train_ranges(gs_range_rule *rule, float *percentile, const char *text)
{
    static const char prefix[] = "percentile:";
    double percent = 0;
    *rule = GS_RANGE_EMA;
    *percentile = 0;
    if (!text || strcmp(text, "ema") == 0)
        return true;
    if (strcmp(text, "max") == 0) {
        *rule = GS_RANGE_MAX;
        return true;
    }
    *rule = GS_RANGE_PERCENTILE;
    if (strncmp(text, prefix, sizeof prefix - 1) != 0 ||
        !cli_read_double(&percent, text + sizeof prefix - 1) || !(percent > 0 && percent <= 100))
        return false;
    *percentile = (float)percent;
    return *percentile > 0;
}

bool train_check_ranges(const char *text)
{
    gs_range_rule rule;
    float percentile;
    if (train_ranges(&rule, &percentile, text))
        return true;
    cli_fail("--ranges is ema, max or percentile:P with P above 0 and at most 100, not '%.60s'",
             text);
    return false;
}

static gs_status make_mlp(gs_model **out, gs_context *ctx, const gs_data_info *data,
                          const train_options *o)
{
    size_t sizes[SIZES_MAX];
    const int n = train_mlp_sizes(sizes, SIZES_MAX, data, o->hidden);
    if (n < 0)
        return GS_ERANGE;
    return gs_mlp_create(out, ctx,
                         &(gs_mlp_config){.size = sizeof(gs_mlp_config), sizes, (size_t)n});
}

static gs_cnn_config cnn_of(const gs_data_info *data, const train_options *o, int residual)
{
    return (gs_cnn_config){.size = sizeof(gs_cnn_config),
                           data->height,
                           data->width,
                           data->channels,
                           data->classes,
                           (size_t)o->filters,
                           residual};
}

static gs_status make_cnn(gs_model **out, gs_context *ctx, const gs_data_info *data,
                          const train_options *o)
{
    const gs_cnn_config config = cnn_of(data, o, 0);
    return gs_cnn_create(out, ctx, &config);
}

static gs_status make_resnet(gs_model **out, gs_context *ctx, const gs_data_info *data,
                             const train_options *o)
{
    const gs_cnn_config config = cnn_of(data, o, 1);
    return gs_cnn_create(out, ctx, &config);
}

static gs_status make_torch_resnet(gs_model **out, gs_context *ctx, const gs_data_info *data,
                                   size_t depth)
{
    const gs_resnet_config config = {
        .size = sizeof config, data->height, data->width, data->channels, data->classes, depth};
    return gs_resnet_create(out, ctx, &config);
}

static gs_status make_resnet18(gs_model **out, gs_context *ctx, const gs_data_info *data,
                               const train_options *o)
{
    (void)o;
    return make_torch_resnet(out, ctx, data, 18);
}

static gs_status make_resnet50(gs_model **out, gs_context *ctx, const gs_data_info *data,
                               const train_options *o)
{
    (void)o;
    return make_torch_resnet(out, ctx, data, 50);
}

/* ---- the parts of a gpt: the first is GPT-2's, the second Llama's ---- */

static const struct part {
    const char *option, *words[2];
    size_t at; /* in train_options */
} parts[] = {{"positions", {"learned", "rotary"}, offsetof(train_options, positions)},
             {"norm", {"layer", "rms"}, offsetof(train_options, norm)},
             {"mlp", {"gelu", "swiglu"}, offsetof(train_options, mlp)},
             {"head", {"tied", "untied"}, offsetof(train_options, head)}};
enum { POSITIONS, NORM, MLP, HEAD, PARTS };

static const char *word_of(const train_options *o, int i)
{
    const char *word;
    memcpy(&word, (const char *)o + parts[i].at, sizeof word);
    return word;
}

static bool second(const train_options *o, int i)
{
    return word_of(o, i) && strcmp(word_of(o, i), parts[i].words[1]) == 0;
}

int train_check_parts(const train_options *o)
{
    for (int i = 0; i < PARTS; i++) {
        const char *word = word_of(o, i), *const *words = parts[i].words;
        if (word && strcmp(word, words[0]) != 0 && strcmp(word, words[1]) != 0)
            return cli_fail("--%s is %s or %s, not '%.40s'", parts[i].option, words[0], words[1],
                            word);
    }
    if (!isnan(o->rope_theta) && !second(o, POSITIONS))
        return cli_fail("--rope-theta is for --positions rotary");
    return CLI_GO;
}

bool train_is_gpt2(const train_options *o)
{
    return !second(o, POSITIONS) && !second(o, NORM) && !second(o, MLP) &&
           (o->kv_heads == CLI_AUTO || o->kv_heads == o->heads);
}

bool train_is_llama(const train_options *o)
{
    return second(o, POSITIONS) && second(o, NORM) && second(o, MLP);
}

static gs_status make_gpt(gs_model **out, gs_context *ctx, const gs_data_info *data,
                          const train_options *o)
{
    const gs_gpt_config config = {.size = sizeof config,
                                  .vocabulary = data->classes,
                                  .context = data->time,
                                  .layers = (size_t)o->layers,
                                  .heads = (size_t)o->heads,
                                  .width = (size_t)o->width,
                                  .dropout = (float)o->dropout,
                                  .rotary = second(o, POSITIONS),
                                  .rms = second(o, NORM),
                                  .swiglu = second(o, MLP),
                                  .untied = second(o, HEAD),
                                  .kv_heads = o->kv_heads == CLI_AUTO ? 0 : (size_t)o->kv_heads,
                                  .mlp_width = o->mlp_width == CLI_AUTO ? 0 : (size_t)o->mlp_width,
                                  .theta = isnan(o->rope_theta) ? 0 : o->rope_theta};
    return gs_gpt_create(out, ctx, &config);
}

static gs_status make_fcn(gs_model **out, gs_context *ctx, const gs_data_info *data,
                          const train_options *o)
{
    const gs_fcn_config config = {.size = sizeof config,
                                  data->height,
                                  data->width,
                                  data->channels,
                                  data->classes,
                                  (size_t)o->filters,
                                  (size_t)o->layers};
    return gs_fcn_create(out, ctx, &config);
}

static gs_status make_vit(gs_model **out, gs_context *ctx, const gs_data_info *data,
                          const train_options *o)
{
    const gs_vit_config config = {.size = sizeof config,
                                  .height = data->height,
                                  .width = data->width,
                                  .channels = data->channels,
                                  .classes = data->classes,
                                  .patch = (size_t)o->patch,
                                  .layers = (size_t)o->layers,
                                  .heads = (size_t)o->heads,
                                  .hidden = (size_t)o->width,
                                  .mlp_width = o->mlp_width == CLI_AUTO ? 0 : (size_t)o->mlp_width,
                                  .dropout = (float)o->dropout};
    return gs_vit_create(out, ctx, &config);
}

/* In the order of --model. */
const train_model train_models[] = {
    {"mlp",
     GS_TASK_CLASSES,
     "fashion-mnist",
     "|hidden|",
     {.hidden = "256,128", .batch = 128, .lr = 2e-3, .epochs = 10, .valid_items = 10000},
     make_mlp},
    {"cnn",
     GS_TASK_CLASSES,
     "fashion-mnist",
     "|filters|",
     {.filters = 16, .batch = 128, .lr = 4e-3, .epochs = 4, .valid_items = 10000},
     make_cnn},
    {"resnet",
     GS_TASK_CLASSES,
     "fashion-mnist",
     "|filters|",
     {.filters = 16, .batch = 128, .lr = 4e-3, .epochs = 4, .valid_items = 10000},
     make_resnet},
    {"gpt",
     GS_TASK_TOKENS,
     "self",
     "|layers|width|heads|context|dropout|positions|norm|mlp|head|kv-heads|mlp-width|rope-theta|",
     {.layers = 4,
      .width = 128,
      .heads = 4,
      .context = 256,
      .batch = 8,
      .lr = 2e-3,
      .clip = 1,
      .steps = 1200,
      .valid_items = 64},
     make_gpt},
    {"fcn",
     GS_TASK_PIXELS,
     "shapes",
     "|filters|layers|",
     {.filters = 16, .layers = 3, .batch = 64, .lr = 5e-3, .steps = 150, .valid_items = 512},
     make_fcn},
    {"resnet18",
     GS_TASK_CLASSES,
     "fashion-mnist",
     "",
     {.batch = 64, .lr = 1e-3, .epochs = 4, .valid_items = 10000},
     make_resnet18},
    {"resnet50",
     GS_TASK_CLASSES,
     "fashion-mnist",
     "",
     {.batch = 64, .lr = 1e-3, .epochs = 4, .valid_items = 10000},
     make_resnet50},
    {"vit",
     GS_TASK_CLASSES,
     "fashion-mnist",
     "|patch|layers|width|heads|dropout|mlp-width|",
     {.patch = 4,
      .layers = 4,
      .width = 64,
      .heads = 4,
      .batch = 128,
      .lr = 2e-3,
      .clip = 1,
      .epochs = 4,
      .valid_items = 10000},
     make_vit},
    {0}};

const train_model *train_model_of(const train_options *o, const gs_data_info *data)
{
    const train_model *m = &train_models[o->model > 0 ? o->model - 1 : 0];
    while (o->model == 0 && m->task != data->task)
        m++;
    /* images are seen as such; what is smaller than a cnn takes, or rows of features, are not */
    const bool image = data->task == GS_TASK_CLASSES && data->height >= 8 && data->width >= 8;
    return o->model == 0 && image ? &train_models[1] : m;
}

void train_model_line(char *text, size_t size, const train_model *m, const gs_data_info *data,
                      const train_options *o)
{
    const struct {
        const char *name;
        uint64_t value;
    } sizes[] = {{"filters", o->filters}, {"patch", o->patch}, {"layers", o->layers},
                 {"width", o->width},     {"heads", o->heads}, {"context", data->time}};
    size_t n = (size_t)snprintf(text, size, "%s", m->name);
    if (data->height > 0)
        n += (size_t)snprintf(text + n, size - n, " %zux%zux%zu", data->height, data->width,
                              data->channels);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char key[24];
        snprintf(key, sizeof key, "|%s|", sizes[i].name);
        if (strstr(m->options, key))
            n += (size_t)snprintf(text + n, size - n, " %s=%llu", sizes[i].name,
                                  (unsigned long long)sizes[i].value);
    }
    for (int i = 0; i < PARTS; i++)
        if (second(o, i))
            n += (size_t)snprintf(text + n, size - n, " %s=%s", parts[i].option, parts[i].words[1]);
    if (o->kv_heads != CLI_AUTO && o->kv_heads != o->heads)
        n +=
            (size_t)snprintf(text + n, size - n, " kv-heads=%llu", (unsigned long long)o->kv_heads);
    if (o->mlp_width != CLI_AUTO)
        n += (size_t)snprintf(text + n, size - n, " mlp-width=%llu",
                              (unsigned long long)o->mlp_width);
    if (!isnan(o->rope_theta))
        n += (size_t)snprintf(text + n, size - n, " rope-theta=%.17g", o->rope_theta);
    if (strstr(m->options, "|hidden|"))
        n += (size_t)snprintf(text + n, size - n, " hidden=%.100s", o->hidden);
    snprintf(text + n, size - n, " %s=%zu", m->task == GS_TASK_TOKENS ? "vocabulary" : "classes",
             data->classes);
}

int train_model_fits(const gs_model *model, const char *checkpoint)
{
    enum { LEAST = 2 }; /* bytes of a weight: halves, in O3 */
    struct stat about;
    double weights = 0;
    for (size_t i = 0; i < model->n; i++)
        weights += (double)model->entries[i].rows * (double)model->entries[i].cols;
    if (stat(checkpoint, &about) == 0 && (double)about.st_size < LEAST * weights)
        return cli_fail("%.120s: its options speak of %.3g weights, and it has %.3g bytes",
                        checkpoint, weights, (double)about.st_size);
    return CLI_GO;
}
