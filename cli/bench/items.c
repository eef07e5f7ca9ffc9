/* What bench step trains on: numbers drawn once, or the batches of a loader. */
#include "cli/bench/bench.h"
#include "cli/train/train.h"

#include <stdlib.h>

static void draw(bench_items *x, size_t n, const bench_item *item)
{
    const size_t time = item->time, rows = time ? n * time : n;
    const size_t pixels = time ? 0 : item->height * item->width * item->channels;
    int32_t *ids = x->arrays[0] = cli_resize(NULL, rows * sizeof *ids);
    int32_t *targets = x->arrays[1] = cli_resize(NULL, rows * sizeof *targets);
    float *image = x->arrays[2] = cli_resize(NULL, (1 + rows * pixels) * sizeof *image);
    for (size_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)(gs_random_u32(1, i) % item->classes);
        targets[i] = (int32_t)(gs_random_u32(2, i) % item->classes);
    }
    for (size_t i = 0; i < rows * pixels; i++)
        image[i] = (float)gs_random_u32(3, i) * 0x1p-31f - 1;
    x->batch = (gs_batch){n, time, image, ids, targets};
}

static bool fits(const gs_data_info *info, const bench_item *item)
{
    if (item->time)
        return info->task == GS_TASK_TOKENS;
    return info->task == GS_TASK_CLASSES && info->height == item->height &&
           info->width == item->width && info->channels == item->channels &&
           (item->any_classes || info->classes == item->classes);
}

static int open_set(bench_items *x, const char *name, size_t n, bench_item *item)
{
    gs_error error = {0};
    const bool scaled = item->any_classes; /* a folder of pictures, of any size */
    gs_data_config config = {.size = sizeof config,
                             .name = name,
                             .time = item->time,
                             .height = scaled ? item->height : 0,
                             .width = scaled ? item->width : 0};
    char what[96] = "tokens";
    const int code = train_data_open(&x->data, &config);
    if (code != CLI_GO)
        return code;
    const gs_data_info *info = gs_data_get_info(x->data);
    if (!item->time && item->any_classes)
        snprintf(what, sizeof what, "classes of images of %zu x %zu x %zu", item->height,
                 item->width, item->channels);
    else if (!item->time)
        snprintf(what, sizeof what, "%zu classes of images of %zu x %zu x %zu", item->classes,
                 item->height, item->width, item->channels);
    if (!fits(info, item))
        return cli_fail("--data %.100s does not go with this model, which learns %s", name, what);
    if (info->items[GS_SPLIT_TRAIN] < n)
        return cli_fail("--data %.100s has %llu items, and a batch is %zu", name,
                        (unsigned long long)info->items[GS_SPLIT_TRAIN], n);
    item->classes = info->classes;
    const gs_loader_config how = {.size = sizeof how, .batch = n, .seed = 1, .shuffle = 1};
    const gs_status status = gs_loader_create(&x->loader, x->data, &how, NULL, &error);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

int bench_items_open(bench_items *x, const char *data, size_t n, bench_item *item)
{
    *x = (bench_items){.n = n};
    if (data)
        return open_set(x, data, n, item);
    draw(x, n, item);
    return CLI_GO;
}

gs_status bench_items_next(bench_items *x, gs_error *error)
{
    gs_status status = GS_OK;
    while (x->loader && status == GS_OK) {
        const gs_batch *micro;
        size_t count;
        status = gs_loader_next(&micro, &count, x->loader, error);
        if (status != GS_OK || count != 1 || micro->n != x->n)
            continue; /* the short end of an epoch is not measured */
        x->batch = *micro;
        x->waited = gs_loader_waited(x->loader);
        break;
    }
    return status;
}

void bench_items_free(bench_items *x)
{
    gs_loader_free(x->loader);
    gs_data_close(x->data);
    for (int i = 0; i < 3; i++)
        free(x->arrays[i]);
}
