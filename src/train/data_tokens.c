/* Token files of llm.c or nanoGPT, one or a folder of shards. An item is a window of `time` tokens
 * of one shard and the token after it; windows do not overlap. Nothing is held in memory. */
#include "train/data.h"
#include "io/folder.h"
#include "io/tokens.h"

#include <errno.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { GPT2 = 50257, SHARDS = 512 /* each is an open file */ };

typedef struct shard {
    gsi_tokens tokens;
    uint64_t first; /* its first window, among those of all */
} shard;

/* Shards to train on stand first, those to validate with follow. */
typedef struct tokens {
    shard *shards; /* [n] */
    size_t n;
    uint64_t windows;
} tokens;

static bool is_bin(const char *path)
{
    const size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".bin") == 0;
}

/* Of a path below a folder. */
static bool is_valid(const char *path) { return strstr(strrchr(path, '/'), "val") != NULL; }

static gs_status add(gs_data *data, const char *path, gs_error *error)
{
    tokens *t = data->state;
    shard *s = &t->shards[t->n];
    const gs_status status = gsi_tokens_open(&s->tokens, path, error);
    if (status != GS_OK)
        return status;
    s->first = t->windows;
    t->n++;
    t->windows += s->tokens.count > 0 ? (s->tokens.count - 1) / data->info.time : 0;
    return GS_OK;
}

/* The one with val for train in its name belongs to it. */
static gs_status open_file(gs_data *data, const char *path, gs_error *error)
{
    char valid[GSI_PATH];
    gs_status status = add(data, path, error);
    data->info.items[GS_SPLIT_TRAIN] = ((tokens *)data->state)->windows;
    if (status == GS_OK && gsi_path_replace(valid, path, "train", "val") && gsi_may_be_there(valid))
        status = add(data, valid, error);
    return status;
}

static gs_status open_folder(gs_data *data, const char *folder, gs_error *error)
{
    const tokens *t = data->state;
    gsi_paths paths = {.heap = &data->heap};
    gs_status status = gsi_paths_walk(&paths, folder, error);
    for (int valid = 0; valid < 2 && status == GS_OK; valid++) {
        data->info.items[GS_SPLIT_TRAIN] = t->windows;
        for (size_t i = 0; i < paths.n && status == GS_OK; i++)
            if (is_bin(paths.list[i]) && is_valid(paths.list[i]) == valid)
                status = t->n < SHARDS
                             ? add(data, paths.list[i], error)
                             : gsi_fail(error, GS_ESIZE, "%s: has more than %d token files",
                                        data->name, SHARDS);
    }
    gsi_paths_free(&paths);
    return status;
}

static gs_status open_tokens(gs_data *data, const gs_data_config *config, gs_error *error)
{
    tokens *t = data->state;
    gs_data_info *info = &data->info;
    struct stat st;
    info->task = GS_TASK_TOKENS;
    info->classes = config->vocabulary ? config->vocabulary : GPT2;
    info->tokenizer = data->tokenizer_text;
    info->time = gsi_data_time(config);
    t->shards = gsi_new(&data->heap, SHARDS * sizeof *t->shards);
    if (!t->shards)
        return gsi_fail(error, GS_ENOMEM, "%s: there is no memory to open it", data->name);
    const bool folder = stat(config->name, &st) == 0 && S_ISDIR(st.st_mode);
    const gs_status status =
        folder ? open_folder(data, config->name, error) : open_file(data, config->name, error);
    if (status != GS_OK)
        return status;
    info->items[GS_SPLIT_VALID] = t->windows - info->items[GS_SPLIT_TRAIN];
    if (info->items[GS_SPLIT_VALID] == 0)
        gsi_data_split(data, config, t->windows);
    return GS_OK;
}

static bool begins_right(const char *path)
{
    gsi_file file;
    uint8_t start[4] = {0};
    if (gsi_file_open(&file, path, NULL) != GS_OK)
        return false;
    const bool right = file.size >= sizeof start &&
                       gsi_file_read(&file, start, sizeof start, 0, NULL) == GS_OK &&
                       gsi_tokens_begin(start);
    gsi_file_close(&file);
    return right;
}

/* A folder is one if a file in it is; a file, by its name or its content. */
static bool fits(gsi_place *place)
{
    if (!place->folder)
        return is_bin(place->path) || gsi_tokens_begin(place->start);
    DIR *dir = gsi_opendir(place->path);
    bool found = false;
    if (!dir) {
        place->why = errno;
        return false;
    }
    errno = 0;
    for (const struct dirent *e; !found && (e = readdir(dir)); errno = 0) {
        char path[GSI_PATH];
        found = is_bin(e->d_name) &&
                snprintf(path, sizeof path, "%s/%s", place->path, e->d_name) < GSI_PATH &&
                (strcmp(e->d_name, "train.bin") == 0 || begins_right(path));
    }
    if (errno)
        place->why = errno;
    closedir(dir);
    return found;
}

static const shard *shard_of(const tokens *t, uint64_t window)
{
    size_t low = 0, high = t->n; /* shards[low].first <= window < shards[high].first */
    while (high - low > 1) {
        const size_t middle = (low + high) / 2;
        *(t->shards[middle].first <= window ? &low : &high) = middle;
    }
    return &t->shards[low];
}

static gs_status read_item(const gs_data *data, gs_split split, uint64_t item, float *x,
                           int32_t *ids, int32_t *targets, gs_error *error)
{
    const size_t time = data->info.time;
    (void)x;
    if (split == GS_SPLIT_VALID)
        item += data->info.items[GS_SPLIT_TRAIN];
    const shard *s = shard_of(data->state, item);
    const uint64_t first = (item - s->first) * time;
    gs_status status = gsi_tokens_read(&s->tokens, targets, first + 1, time, error);
    if (status == GS_OK)
        status = gsi_tokens_read(&s->tokens, ids, first, 1, error);
    if (status != GS_OK)
        return status;
    memcpy(ids + 1, targets, (time - 1) * sizeof *ids);
    for (size_t i = 0; i <= time; i++) {
        const int32_t token = i ? targets[i - 1] : ids[0];
        if ((size_t)token >= data->info.classes)
            return gsi_file_fail(&s->tokens.file, error, GS_ERANGE,
                                 "token %llu is %d: the vocabulary has %zu",
                                 (unsigned long long)(first + i), (int)token, data->info.classes);
    }
    return GS_OK;
}

static void close_tokens(gs_data *data)
{
    tokens *t = data->state;
    for (size_t i = 0; i < t->n; i++)
        gsi_tokens_close(&t->shards[i].tokens);
    gsi_free(&data->heap, t->shards);
}

const gsi_kind gsi_token_set = {.fits = fits,
                                .state = sizeof(tokens),
                                .open = open_tokens,
                                .read = read_item,
                                .close = close_tokens};
