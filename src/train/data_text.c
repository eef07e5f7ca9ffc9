/* Text as bytes, or with a tokenizer as its tokens: a file, the files of a folder one after the
 * other, or this project's sources. An item is a window of `time` of them and the one after it;
 * windows do not overlap, so an epoch predicts every token once. */
#include "train/data.h"
#include "io/folder.h"
#include "io/lines.h"
#include "io/stream.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { BYTES = 256, LOOKED_AT = 8000 };
static const uint64_t MOST = (uint64_t)1 << 31; /* it is held in memory */

typedef enum origin { ALONE, IN_FOLDER, INSTALLED } origin;

/* With a tokenizer bytes become ids file by file. */
typedef struct text {
    uint8_t *bytes; /* [n] */
    size_t n, room;
    int32_t *ids; /* [n_ids]; NULL: bytes are tokens */
    size_t n_ids, ids_room;
    uint64_t total; /* bytes that have been read */
} text;

/* A 0, or a control that is neither white space nor a terminal's: in text of any encoding that is
 * made of bytes there is none. */
static bool is_binary(const uint8_t *start, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (start[i] < ' ' && !(start[i] >= '\a' && start[i] <= '\r') && start[i] != '\033')
            return true;
    return false;
}

/* The bytes become ids, and in a folder <|endoftext|> follows them. */
static gs_status encode(gs_data *data, const gsi_file *file, bool in_folder, gs_error *error)
{
    text *t = data->state;
    const int32_t end = gs_tokenizer_end(data->tokenizer);
    size_t n = 0, room = t->n + 1;
    gs_status status;
    if (in_folder && end < 0)
        t->bytes[t->n++] = 0;
    for (;;) {
        if (!gsi_grow(&data->heap, &t->ids, &t->ids_room, t->n_ids + room + 1, sizeof *t->ids))
            return gsi_file_fail(file, error, GS_ENOMEM, "there is no memory for its tokens");
        status = gs_tokenizer_encode(t->ids + t->n_ids, room, &n, data->tokenizer,
                                     (const char *)t->bytes, t->n, error);
        if (status != GS_ESIZE || n <= room) /* uncovered: it is 2 GB, too long as a whole */
            break;
        room = n;
    }
    if (status != GS_OK)
        return gsi_file_fail(file, error, status, "%s", error ? error->text : "");
    t->n_ids += n;
    if (in_folder && end >= 0)
        t->ids[t->n_ids++] = end;
    t->n = 0;
    return GS_OK;
}

/* Appends a file. In a folder a file with a 0 near its beginning is taken for binary and passed
 * over, as git does it, and a 0 marks the end of every other. Alone it is refused. The installed
 * sources are such a folder in one file. */
static gs_status add_file(gs_data *data, const char *path, origin from, gs_error *error)
{
    text *t = data->state;
    gsi_stream *s;
    uint8_t start[LOOKED_AT];
    size_t got = 0;
    uint64_t size = 0;
    const bool in_folder = from == IN_FOLDER;
    gs_status status = gsi_stream_open(&s, path, &data->heap, error);
    if (status == GS_OK)
        status = gsi_stream_some(s, start, sizeof start, &got, error);
    if (status == GS_OK && from == ALONE && is_binary(start, got))
        status =
            gsi_file_fail(gsi_stream_file(s), error, GS_EFORMAT,
                          "is binary, and of no format that is read: IDX or CIFAR images, .npy, "
                          ".npz, tokens of llm.c or nanoGPT (.bin), CSV, text, or a folder of "
                          "PNG, JPEG or text");
    if (status != GS_OK || (in_folder && memchr(start, 0, got))) {
        gsi_stream_close(s);
        return status;
    }
    gsi_stream_rewind(s);
    status = gsi_stream_measure(s, MOST - t->total, &size, error);
    if (status == GS_OK && size + in_folder > MOST - t->total)
        status = gsi_file_fail(gsi_stream_file(s), error, GS_ESIZE,
                               "the text is longer than the %llu bytes that are held in memory",
                               (unsigned long long)MOST);
    if (status == GS_OK &&
        !gsi_grow(&data->heap, &t->bytes, &t->room, t->n + (size_t)size + in_folder, 1))
        status = gsi_file_fail(gsi_stream_file(s), error, GS_ENOMEM,
                               "there is no memory for its %llu bytes", (unsigned long long)size);
    if (status == GS_OK) {
        gsi_stream_rewind(s);
        status = gsi_stream_read(s, t->bytes + t->n, (size_t)size, error);
    }
    if (status == GS_OK) {
        t->n += (size_t)size;
        t->total += size + in_folder;
        if (data->tokenizer)
            status = encode(data, gsi_stream_file(s), in_folder, error);
        else if (in_folder)
            t->bytes[t->n++] = 0;
    }
    gsi_stream_close(s);
    return status;
}

static gs_status add_folder(gs_data *data, const char *folder, gs_error *error)
{
    gsi_paths paths = {.heap = &data->heap};
    gs_status status = gsi_paths_walk(&paths, folder, error);
    for (size_t i = 0; i < paths.n && status == GS_OK; i++)
        status = add_file(data, paths.list[i], IN_FOLDER, error);
    gsi_paths_free(&paths);
    return status;
}

static gs_status divide(gs_data *data, const gs_data_config *config, gs_error *error)
{
    const text *t = data->state;
    const bool bytes = !data->tokenizer;
    const size_t time = gsi_data_time(config), n = bytes ? t->n : t->n_ids;
    data->info.task = GS_TASK_TOKENS;
    data->info.classes = bytes ? BYTES : gs_tokenizer_size(data->tokenizer);
    data->info.tokenizer = bytes ? "bytes" : data->tokenizer_text;
    data->info.time = time;
    if (n == 0)
        return gsi_fail(error, GS_ESIZE, "%s: is empty, or holds no file that is read", data->name);
    if (n <= time)
        return gsi_fail(error, GS_ESIZE, "%s: has %zu %s of text, and an item of %zu needs %zu",
                        data->name, n, bytes ? "bytes" : "tokens", time, time + 1);
    gsi_data_split(data, config, (n - 1) / time);
    return GS_OK;
}

static gs_status open_text(gs_data *data, const gs_data_config *config, gs_error *error)
{
    struct stat st;
    const bool folder = stat(config->name, &st) == 0 && S_ISDIR(st.st_mode);
    const gs_status status =
        folder ? add_folder(data, config->name, error) : add_file(data, config->name, ALONE, error);
    return status == GS_OK ? divide(data, config, error) : status;
}

static gs_status open_self(gs_data *data, const gs_data_config *config, gs_error *error)
{
    static const char *const parts[] = {"include", "src", "cli"};
    char path[GSI_PATH];
    struct stat st;
    if (!config->root)
        return gsi_fail(error, GS_ENULL, "self: the folder of the sources is not given");
    gs_status status = GS_OK;
    if (stat(config->root, &st) == 0 && S_ISREG(st.st_mode))
        status = add_file(data, config->root, INSTALLED, error);
    else
        for (size_t i = 0; i < GSI_COUNT(parts) && status == GS_OK; i++)
            status = snprintf(path, sizeof path, "%s/%s", config->root, parts[i]) < GSI_PATH
                         ? add_folder(data, path, error)
                         : gsi_fail(error, GS_ESIZE, "self: the path of the sources is too long");
    return status == GS_OK ? divide(data, config, error) : status;
}

static bool fits(gsi_place *place)
{
    (void)place;
    return true;
}

static gs_status read_item(const gs_data *data, gs_split split, uint64_t item, float *x,
                           int32_t *ids, int32_t *targets, gs_error *error)
{
    const text *t = data->state;
    const size_t time = data->info.time;
    (void)x;
    (void)error;
    if (split == GS_SPLIT_VALID)
        item += data->info.items[GS_SPLIT_TRAIN];
    if (t->ids) {
        memcpy(ids, t->ids + item * time, time * sizeof *ids);
        memcpy(targets, t->ids + item * time + 1, time * sizeof *targets);
        return GS_OK;
    }
    const uint8_t *from = t->bytes + item * time;
    for (size_t i = 0; i < time; i++) {
        ids[i] = from[i];
        targets[i] = from[i + 1];
    }
    return GS_OK;
}

static void close_text(gs_data *data)
{
    text *t = data->state;
    gsi_free(&data->heap, t->bytes);
    gsi_free(&data->heap, t->ids);
}

const gsi_kind gsi_text_set = {
    .fits = fits, .state = sizeof(text), .open = open_text, .read = read_item, .close = close_text};
const gsi_kind gsi_self = {.name = "self",
                           .state = sizeof(text),
                           .open = open_self,
                           .read = read_item,
                           .close = close_text};
