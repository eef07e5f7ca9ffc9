/* The binary files of CIFAR-10 (data_batch_1.bin ..., test_batch.bin) and CIFAR-100 (train.bin,
 * test.bin): a byte or two of labels, then 3 x 32 x 32 bytes, channels first. Names of classes are
 * in a text file beside them. */
#include "io/file.h"
#include "io/folder.h"
#include "io/lines.h"
#include "train/data_images.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = 32, CHANNELS = 3, PIXELS = SIDE * SIDE * CHANNELS, BATCHES = 5 };

typedef struct family {
    size_t labels;     /* bytes before an image; the last is the class */
    const char *valid; /* its file to validate with */
    const char *names;
    size_t classes;
} family;

static const family ten = {1, "test_batch.bin", "batches.meta.txt", 10};
static const family hundred = {2, "test.bin", "fine_label_names.txt", 100};

/* Bytes of a file of the folder; 0: it is not there. One that cannot be examined has another size
 * than it says here: opening it tells. */
static uint64_t size_of(char path[GSI_PATH], const char *folder, const char *name)
{
    struct stat st;
    if (snprintf(path, GSI_PATH, "%s/%s", folder, name) >= GSI_PATH)
        return 0;
    if (stat(path, &st) != 0)
        return gsi_may_be_there(path);
    return S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
}

static const family *family_of(const char *folder)
{
    char path[GSI_PATH];
    if (size_of(path, folder, "data_batch_1.bin") && size_of(path, folder, ten.valid))
        return &ten;
    const uint64_t a = size_of(path, folder, "train.bin"), b = size_of(path, folder, hundred.valid);
    return a && b && a % (PIXELS + 2) == 0 && b % (PIXELS + 2) == 0 ? &hundred : NULL;
}

/* Adds the images of a file behind the first *n. There is room for `bytes` of it. */
static gs_status add_file(gsi_images *m, gs_split split, const family *f, const char *path,
                          uint64_t bytes, size_t *n, gs_error *error)
{
    gsi_file file;
    uint8_t record[PIXELS + 2];
    gs_status status = gsi_file_open(&file, path, error);
    if (status != GS_OK)
        return status;
    const size_t size = PIXELS + f->labels;
    if (file.size != bytes)
        status = gsi_file_fail(&file, error, GS_EIO, "its size changed while it was read");
    else if (file.size % size != 0)
        status = gsi_file_fail(&file, error, GS_EFORMAT,
                               "has %llu bytes, and images of CIFAR have %zu each",
                               (unsigned long long)file.size, size);
    uint8_t *x = m->x[split].data, *y = m->y[split].data;
    for (uint64_t at = 0; status == GS_OK && at < file.size; at += size, ++*n) {
        status = gsi_file_read(&file, record, size, at, error);
        if (status != GS_OK)
            break;
        y[*n] = record[f->labels - 1];
        if (y[*n] >= f->classes)
            status = gsi_file_fail(&file, error, GS_ERANGE, "has a class %u, and there are %zu",
                                   y[*n], f->classes);
        for (size_t c = 0; c < CHANNELS; c++)
            for (size_t p = 0; p < SIDE * SIDE; p++)
                x[*n * PIXELS + p * CHANNELS + c] = record[f->labels + c * SIDE * SIDE + p];
    }
    gsi_file_close(&file);
    return status;
}

static gs_status read_split(gs_data *data, gs_split split, const family *f, const char *folder,
                            gs_error *error)
{
    gsi_images *m = data->state;
    char name[32], paths[BATCHES][GSI_PATH], shown[GSI_SHOWN_PATH];
    size_t files = 0, n = 0;
    uint64_t bytes = 0, sizes[BATCHES];
    for (int i = 1; i <= BATCHES; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        const char *which = split == GS_SPLIT_VALID ? f->valid : f == &ten ? name : "train.bin";
        const uint64_t size = size_of(paths[files], folder, which);
        sizes[files] = size;
        bytes += size;
        files += size > 0;
        if (which != name)
            break;
    }
    const size_t images = (size_t)(bytes / (PIXELS + f->labels));
    if (images == 0)
        return gsi_fail(error, GS_EFORMAT, "%s: has %llu bytes, and images of CIFAR have %zu each",
                        gsi_show_path(shown, paths[0]), (unsigned long long)bytes,
                        PIXELS + f->labels);
    gs_status status =
        gsi_idx_new(&m->x[split], folder, "u1", 4, (const size_t[]){images, SIDE, SIDE, CHANNELS},
                    &data->heap, error);
    if (status == GS_OK)
        status = gsi_idx_new(&m->y[split], folder, "u1", 1, &images, &data->heap, error);
    for (size_t i = 0; status == GS_OK && i < files; i++)
        status = add_file(m, split, f, paths[i], sizes[i], &n, error);
    return status;
}

static gs_status no_memory(const gs_data *data, gs_error *error)
{
    return gsi_fail(error, GS_ENOMEM, "%s: there is no memory for its classes", data->name);
}

static gs_status add_names(gs_data *data, gsi_lines *lines, const char **names, size_t most,
                           size_t *n, gs_error *error)
{
    bool more = true;
    gs_status status = GS_OK;
    while (*n < most && (status = gsi_lines_next(lines, &more, error)) == GS_OK && more) {
        if (lines->length == 0)
            continue;
        status = gsi_data_label(&names[*n], data, lines->text, lines->length, error);
        if (status != GS_OK)
            return status;
        ++*n;
    }
    return status;
}

/* Where the file of names is not there or not as it should be, classes have numbers; one that
 * cannot be read is an error: the number of classes is the model's. */
static gs_status read_names(gs_data *data, const family *f, const char *folder, gs_error *error)
{
    char path[GSI_PATH];
    gsi_lines lines;
    gs_error why;
    const gs_alloc hook = data->heap.hook;
    size_t n = 0;
    if (!size_of(path, folder, f->names))
        return GS_OK;
    const char **names = gsi_arena_new(&data->arena, f->classes, sizeof *names);
    if (!names)
        return no_memory(data, error);
    gs_status status = gsi_lines_open(&lines, path, &hook, error);
    if (status != GS_OK)
        return status;
    status = add_names(data, &lines, names, f->classes, &n, &why);
    gsi_lines_close(&lines);
    if (status == GS_EIO || status == GS_ENOMEM)
        return gsi_fail(error, status, "%s", why.text);
    if (n == f->classes) {
        data->info.labels = names;
        data->info.classes = n;
    }
    return GS_OK;
}

static gs_status open_cifar(gs_data *data, const gs_data_config *config, gs_error *error)
{
    const family *f = family_of(config->name);
    gs_status status = f ? GS_OK : gsi_fail(error, GS_EIO, "%s: its files are gone", data->name);
    for (int split = 0; status == GS_OK && split < GS_SPLIT_COUNT; split++)
        status = read_split(data, (gs_split)split, f, config->name, error);
    if (status != GS_OK)
        return status;
    if (config->unlabelled) {
        gsi_images *m = data->state;
        for (int split = 0; split < GS_SPLIT_COUNT; split++)
            gsi_idx_free(&m->y[split], &data->heap);
        return gsi_images_alone(data, error);
    }
    status = read_names(data, f, config->name, error);
    return status == GS_OK ? gsi_images_set(data, config, error) : status;
}

static bool fits(gsi_place *place) { return place->folder && family_of(place->path); }

const gsi_kind gsi_cifar_set = {.fits = fits,
                                .state = sizeof(gsi_images),
                                .unlabelled = true,
                                .open = open_cifar,
                                .read = gsi_images_read,
                                .close = gsi_images_close};
