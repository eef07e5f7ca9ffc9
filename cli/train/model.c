/* The models: what each is made of, and the settings with which it does well. */
#include "cli/train/train.h"

#include <stdlib.h>
#include <string.h>

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

static gs_status make_gpt(gs_model **out, gs_context *ctx, const gs_data_info *data,
                          const train_options *o)
{
    const gs_gpt_config config = {.size = sizeof config,
                                  .vocabulary = data->classes,
                                  .context = data->time,
                                  .layers = (size_t)o->layers,
                                  .heads = (size_t)o->heads,
                                  .width = (size_t)o->width,
                                  .dropout = (float)o->dropout};
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
     "|layers|width|heads|context|dropout|",
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
    } sizes[] = {{"filters", o->filters},
                 {"layers", o->layers},
                 {"width", o->width},
                 {"heads", o->heads},
                 {"context", data->time}};
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
    if (strstr(m->options, "|hidden|"))
        n += (size_t)snprintf(text + n, size - n, " hidden=%.100s", o->hidden);
    snprintf(text + n, size - n, " %s=%zu", m->task == GS_TASK_TOKENS ? "vocabulary" : "classes",
             data->classes);
}
