/* Data sets: which kind a name means, and what all kinds have to check. */
#include "train/data.h"
#include "io/file.h"
#include "io/stream.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The first that fits takes a path: text takes all that is left. */
static const gsi_kind *const kinds[] = {&gsi_fashion_mnist, &gsi_self,       &gsi_shapes,
                                        &gsi_idx_set,       &gsi_array_set,  &gsi_csv_set,
                                        &gsi_cifar_set,     &gsi_folder_set, &gsi_image_set,
                                        &gsi_token_set,     &gsi_text_set};

enum { TIME = 256, MOST_TIME = 1 << 24 };
static const double VALID = 0.1;

size_t gsi_data_time(const gs_data_config *config) { return config->time ? config->time : TIME; }

void gsi_data_split(gs_data *data, const gs_data_config *config, uint64_t all)
{
    const double share = config->valid > 0 ? config->valid : VALID;
    uint64_t held = (uint64_t)((double)all * share + 0.5);
    if (held == 0 && all > 1)
        held = 1;
    if (held >= all)
        held = all > 0 ? all - 1 : 0;
    data->info.items[GS_SPLIT_TRAIN] = all - held;
    data->info.items[GS_SPLIT_VALID] = held;
}

/* ---- which kind ---- */

static gs_status look(gsi_place *place, const char *path, gsi_heap *heap, gs_error *error)
{
    struct stat st;
    char shown[sizeof((gsi_file *)0)->path];
    *place = (gsi_place){.path = path};
    gsi_show_path(shown, path);
    if (stat(path, &st) != 0) {
        if (errno == ENOENT && !strchr(path, '/'))
            return gsi_fail(
                error, GS_ENAME,
                "%s: no data set has this name, and no file: there are fashion-mnist, "
                "self, shapes, and paths: images, IDX, npy, npz, CSV, tokens, text, and folders",
                shown);
        return gsi_fail(error, GS_EIO, "%s: %s", shown, strerror(errno));
    }
    place->folder = S_ISDIR(st.st_mode);
    if (place->folder)
        return GS_OK;
    gsi_stream *s;
    size_t got;
    gs_status status = gsi_stream_open(&s, path, heap, error);
    if (status == GS_OK)
        status = gsi_stream_some(s, place->start, sizeof place->start, &got, error);
    gsi_stream_close(s);
    return status;
}

static gs_status choose(gs_data *data, const char *name, gs_error *error)
{
    gsi_place place;
    for (size_t i = 0; i < GSI_COUNT(kinds) && !data->kind; i++)
        if (kinds[i]->name && strcmp(name, kinds[i]->name) == 0)
            data->kind = kinds[i];
    if (data->kind)
        return GS_OK;
    const gs_status status = look(&place, name, &data->heap, error);
    for (size_t i = 0; status == GS_OK && !data->kind; i++) {
        if (kinds[i]->fits && kinds[i]->fits(&place))
            data->kind = kinds[i];
        if (place.why)
            return gsi_fail(error, GS_EIO, "%s: cannot be looked at: %s", data->name,
                            strerror(place.why));
    }
    return status;
}

/* ---- the tokenizer ---- */

/* What a checkpoint has of it is JSON in JSON in a header of at most 100 MB. */
enum { MOST_TOKENIZER = 16 << 20 };

/* Its text is written anew: two that are equal have the same text. */
static gs_status open_tokenizer(gs_data *data, const char *from, const gs_alloc *alloc,
                                gs_error *error)
{
    size_t n = 0;
    gs_status status = gs_tokenizer_read(&data->tokenizer, from, strlen(from), alloc, error);
    if (status != GS_OK)
        return status;
    gs_tokenizer_text(NULL, 0, &n, data->tokenizer, GS_TOKENIZER_JSON, NULL);
    if (n > MOST_TOKENIZER)
        return gsi_fail(error, GS_ESIZE,
                        "the tokenizer has %zu bytes: a model holds at most %d of it", n,
                        MOST_TOKENIZER);
    char *text = n ? gsi_arena_new(&data->arena, n + 1, 1) : NULL;
    if (!text)
        return gsi_fail(error, GS_ENOMEM, "there is no memory for the tokenizer");
    data->tokenizer_text = text;
    return gs_tokenizer_text(text, n + 1, NULL, data->tokenizer, GS_TOKENIZER_JSON, error);
}

/* ---- life ---- */

static gs_status check_config(const gs_data_config *c, gs_error *error)
{
    if (!c->name || !*c->name)
        return gsi_fail(error, GS_ENULL, "the data set has no name");
    if (c->time > MOST_TIME)
        return gsi_fail(error, GS_ERANGE, "items of %zu tokens: at most %d", c->time, MOST_TIME);
    if (c->vocabulary > 1 << 16)
        return gsi_fail(error, GS_ERANGE, "a vocabulary of %zu: token files have at most %d",
                        c->vocabulary, 1 << 16);
    if (c->height > 1 << 14 || c->width > 1 << 14)
        return gsi_fail(error, GS_ERANGE, "images of %zu x %zu: at most %d a side", c->width,
                        c->height, 1 << 14);
    if (!(c->valid >= 0 && c->valid < 1))
        return gsi_fail(error, GS_ERANGE, "the share held out is %g: at least 0, below 1",
                        c->valid);
    return GS_OK;
}

static gs_status open_kind(gs_data *data, const gs_data_config *config, gs_error *error)
{
    gs_status status = choose(data, config->name, error);
    if (status != GS_OK)
        return status;
    if (config->labels && data->kind != &gsi_idx_set && data->kind != &gsi_array_set)
        return gsi_fail(error, GS_ERANGE,
                        "%s: has no use for labels: it is not a file of IDX or NumPy images",
                        data->name);
    const bool folder = data->kind == &gsi_folder_set || data->kind == &gsi_image_set;
    if ((config->height || config->width) && !folder)
        return gsi_fail(error, GS_ERANGE, "%s: keeps its size: only images of a folder are scaled",
                        data->name);
    if (config->unlabelled && (!config->like || !data->kind->unlabelled))
        return gsi_fail(error, GS_ERANGE,
                        "%s: is not a file or folder of images, CIFAR, NumPy or CSV", data->name);
    data->state = gsi_new(&data->heap, data->kind->state);
    if (!data->state)
        return gsi_fail(error, GS_ENOMEM, "%s: there is no memory to open it", data->name);
    memset(data->state, 0, data->kind->state);
    status = data->kind->open(data, config, error);
    if (status == GS_OK && config->tokenizer && data->info.task != GS_TASK_TOKENS)
        status = gsi_fail(error, GS_ERANGE, "%s: has no use for a tokenizer: it is not text",
                          data->name);
    if (status == GS_OK)
        status = gsi_data_alike(data, !config->unlabelled, error);
    if (status == GS_OK && data->info.items[GS_SPLIT_TRAIN] == 0)
        status = gsi_fail(error, GS_ESIZE, "%s: is too short for one item", data->name);
    return status;
}

gs_status gs_data_open(gs_data **out, const gs_data_config *config, const gs_alloc *alloc,
                       gs_error *error)
{
    if (!out || !config)
        return gsi_fail(error, GS_ENULL, "what to open is missing");
    *out = NULL;
    gs_data_config today;
    gs_status status = gsi_config(&today, sizeof today, config, "gs_data_config", error);
    if (status != GS_OK)
        return status;
    config = &today;
    status = check_config(config, error);
    if (status != GS_OK)
        return status;
    gsi_heap heap;
    gsi_heap_init(&heap, alloc);
    gs_data *data = gsi_new(&heap, sizeof *data);
    if (!data)
        return gsi_fail(error, GS_ENOMEM, "there is no memory to open a data set");
    *data = (gs_data){.heap = heap};
    gsi_arena_init(&data->arena, &data->heap);
    gsi_show_path(data->name, config->name);
    data->info.name = data->name;
    if (config->like)
        status = gs_data_info_read(&data->like, config->like, alloc, error);
    if (status == GS_OK && data->like) {
        today.time = today.time ? today.time : data->like->time;
        if (data->like->task == GS_TASK_TOKENS && today.vocabulary == 0)
            today.vocabulary = data->like->classes;
    }
    const char *tokenizer = data->like ? data->like->tokenizer : today.tokenizer;
    if (status == GS_OK && tokenizer && strcmp(tokenizer, "bytes") != 0)
        status = open_tokenizer(data, tokenizer, alloc, error);
    if (status == GS_OK && data->tokenizer && today.vocabulary == 0)
        today.vocabulary = gs_tokenizer_size(data->tokenizer);
    if (status == GS_OK)
        status = open_kind(data, config, error);
    if (status == GS_OK)
        *out = data;
    else
        gs_data_close(data);
    return status;
}

void gs_data_close(gs_data *data)
{
    if (!data)
        return;
    if (data->state)
        data->kind->close(data);
    gs_data_info_free(data->like);
    gs_tokenizer_free(data->tokenizer);
    gsi_arena_free(&data->arena);
    gsi_free(&data->heap, data->state);
    gsi_heap heap = data->heap; /* the set lies in its own heap */
    gsi_free(&heap, data);
}

const gs_data_info *gs_data_get_info(const gs_data *data) { return &data->info; }

void gs_data_item_name(char *text, size_t room, const gs_data *data, gs_split split, uint64_t item)
{
    if (room == 0)
        return;
    if (data->kind->item_name && (unsigned)split < GS_SPLIT_COUNT && item < data->info.items[split])
        snprintf(text, room, "%s", data->kind->item_name(data, split, item));
    else
        snprintf(text, room, "%llu", (unsigned long long)item);
}

gs_status gs_data_read(float *x, int32_t *ids, int32_t *targets, const gs_data *data,
                       gs_split split, uint64_t item, gs_error *error)
{
    if (!data || !targets || !(data->info.task == GS_TASK_TOKENS ? (void *)ids : (void *)x))
        return gsi_fail(error, GS_ENULL, "there is no array to read into");
    if ((unsigned)split >= GS_SPLIT_COUNT || item >= data->info.items[split])
        return gsi_fail(error, GS_ERANGE, "%s: has no item %llu", data->name,
                        (unsigned long long)item);
    return data->kind->read(data, split, item, x, ids, targets, error);
}
