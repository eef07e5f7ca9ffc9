/* What bench step trains on: numbers drawn once, or the batches of a loader. */
#include "cli/bench/bench.h"

#include <stdlib.h>

enum { SIDE = 28, CLASSES = 10 };

static void draw(bench_items *x, size_t n, size_t time, size_t words)
{
    const size_t rows = time ? n * time : n, pixels = time ? 0 : SIDE * SIDE;
    int32_t *ids = x->arrays[0] = cli_resize(NULL, rows * sizeof *ids);
    int32_t *targets = x->arrays[1] = cli_resize(NULL, rows * sizeof *targets);
    float *image = x->arrays[2] = cli_resize(NULL, (1 + rows * pixels) * sizeof *image);
    for (size_t i = 0; i < rows; i++) {
        ids[i] = (int32_t)(gs_random_u32(1, i) % (words ? words : 1));
        targets[i] = (int32_t)(gs_random_u32(2, i) % (words ? words : CLASSES));
    }
    for (size_t i = 0; i < rows * pixels; i++)
        image[i] = (float)gs_random_u32(3, i) * 0x1p-31f - 1;
    x->batch = (gs_batch){n, time, image, ids, targets};
}

static int open_set(bench_items *x, const char *name, size_t n, size_t time, size_t *words)
{
    gs_error error = {0};
    const gs_data_config config = {.size = sizeof config, .name = name, .root = ".", .time = time};
    gs_status status = gs_data_open(&x->data, &config, NULL, &error);
    if (status != GS_OK)
        return cli_fail("--data: %s", error.text[0] ? error.text : gs_status_meaning(status));
    const gs_data_info *info = gs_data_get_info(x->data);
    const bool images = info->task == GS_TASK_CLASSES && info->height == SIDE &&
                        info->width == SIDE && info->channels == 1 && info->classes == CLASSES;
    if (time ? info->task != GS_TASK_TOKENS : !images)
        return cli_fail("--data %.100s does not go with this model, which learns %s", name,
                        time ? "tokens" : "10 classes of images of 28 x 28 x 1");
    if (info->items[GS_SPLIT_TRAIN] < n)
        return cli_fail("--data %.100s has %llu items, and a batch is %zu", name,
                        (unsigned long long)info->items[GS_SPLIT_TRAIN], n);
    *words = info->classes;
    const gs_loader_config how = {.size = sizeof how, .batch = n, .seed = 1, .shuffle = 1};
    status = gs_loader_create(&x->loader, x->data, &how, NULL, &error);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

int bench_items_open(bench_items *x, const char *data, size_t n, size_t time, size_t *words)
{
    *x = (bench_items){.n = n};
    if (data)
        return open_set(x, data, n, time, words);
    draw(x, n, time, *words);
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
