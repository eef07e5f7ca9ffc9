/* Images in IDX files, as MNIST has them, with one label per image or per pixel. */
#include "train/data_images.h"
#include "io/folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- names ---- */

/* The same file, packed or not, whichever is there. Its name has a word in it: it is not short. */
static bool packed_or_not(char path[GSI_PATH])
{
    const size_t n = strlen(path);
    if (gsi_may_be_there(path))
        return true;
    if (strcmp(path + n - 3, ".gz") == 0)
        path[n - 3] = 0;
    else if (n + 4 <= GSI_PATH)
        strcpy(path + n, ".gz");
    return gsi_may_be_there(path);
}

/* "train-images-idx3-ubyte" -> "train-labels-idx1-ubyte" */
static bool labels_of(char out[GSI_PATH], const char *images_path)
{
    char same[GSI_PATH]; /* labels of pixels have the same rank */
    if (!gsi_path_replace(same, images_path, "images", "labels"))
        return false;
    if (packed_or_not(strcpy(out, same)))
        return true;
    for (char rank[] = "idx3"; rank[3] <= '4'; rank[3]++)
        if (gsi_path_replace(out, same, rank, "idx1") && packed_or_not(out))
            return true;
    return false;
}

static bool validation_of(char out[GSI_PATH], const char *images_path)
{
    static const char *const names[] = {"t10k", "test", "valid", "val"};
    for (size_t i = 0; i < GSI_COUNT(names); i++)
        if (gsi_path_replace(out, images_path, "train", names[i]) && packed_or_not(out))
            return true;
    return false;
}

static bool images_in(char out[GSI_PATH], const char *folder)
{
    static const char *const names[] = {"train-images-idx3-ubyte", "train-images.idx3-ubyte",
                                        "train-images-idx4-ubyte", "train-images-idx2-ubyte"};
    for (size_t i = 0; i < GSI_COUNT(names); i++)
        if (snprintf(out, GSI_PATH, "%s/%s", folder, names[i]) < GSI_PATH && packed_or_not(out))
            return true;
    return false;
}

/* ---- reading and checking ---- */

/* The labels are whole numbers from 0 on; *most is the largest so far. */
static gs_status check_labels(const gsi_idx *y, double *most, gs_error *error)
{
    double block[1024];
    for (size_t at = 0; at < y->count; at += GSI_COUNT(block)) {
        const size_t n = y->count - at < GSI_COUNT(block) ? y->count - at : GSI_COUNT(block);
        gsi_idx_values(block, y, at, n);
        for (size_t i = 0; i < n; i++) {
            if (!(block[i] >= 0 && block[i] < 1 << 24) || block[i] != floor(block[i]))
                return gsi_fail(error, GS_ERANGE, "%s: label %zu is %g, not a class from 0 on",
                                y->path, at + i, block[i]);
            if (block[i] > *most)
                *most = block[i];
        }
    }
    return GS_OK;
}

static bool has_a_label_per_pixel(const gsi_idx *x, const gsi_idx *y)
{
    return y->rank == 3 && x->rank >= 3 && y->shape[1] == x->shape[1] && y->shape[2] == x->shape[2];
}

/* What was read into a split: images, and a label for each or for each pixel; y [n, 1] is y [n]. */
static gs_status check_pair(const gsi_idx *x, gsi_idx *y, gs_error *error)
{
    if (x->rank < 2)
        return gsi_fail(error, GS_ESIZE, "%s: is a list of numbers, not of images", x->path);
    if (x->shape[0] != y->shape[0])
        return gsi_fail(error, GS_ESIZE, "%s: has %zu labels for %zu images", y->path, y->shape[0],
                        x->shape[0]);
    while (y->rank > 1 && !has_a_label_per_pixel(x, y) && y->shape[y->rank - 1] == 1)
        y->rank--;
    if (y->rank != 1 && !has_a_label_per_pixel(x, y))
        return gsi_fail(error, GS_ESIZE, "%s: has neither one label per image nor one per pixel",
                        y->path);
    return GS_OK;
}

static gs_status read_pair(gs_data *data, gs_split split, const char *x_path, const char *y_path,
                           gs_error *error)
{
    gsi_images *m = data->state;
    const gs_status status = gsi_idx_read(&m->x[split], x_path, &data->heap, error);
    return status == GS_OK ? gsi_idx_read(&m->y[split], y_path, &data->heap, error) : status;
}

/* Both sets must be of one shape, whatever their numbers of images. */
static gs_status check_alike(const gsi_idx *a, const gsi_idx *b, gs_error *error)
{
    bool alike = a->rank == b->rank;
    for (int i = 1; alike && i < a->rank; i++)
        alike = a->shape[i] == b->shape[i];
    return alike ? GS_OK
                 : gsi_fail(error, GS_ESIZE, "%s: is of another shape than %s", b->path, a->path);
}

/* Mean and deviation of each channel over the training set, by sums of d and d * d in the order of
 * the file: d is the distance from the first pixel, so that a large mean costs no digits. */
static gs_status measure(gs_data *data, gs_error *error)
{
    gsi_images *m = data->state;
    const gsi_idx *x = &m->x[GS_SPLIT_TRAIN];
    const size_t channels = data->info.channels;
    const double count = (double)(x->count / channels);
    m->mean = gsi_arena_new(&data->arena, channels, 2 * sizeof *m->mean);
    const gsi_mark mark = gsi_arena_mark(&data->arena);
    double *row = gsi_arena_new(&data->arena, m->pixels + channels, sizeof *row);
    if (!m->mean || !row)
        return gsi_fail(error, GS_ENOMEM, "%s: there is no memory for an image", x->path);
    double *sums = m->mean, *squares = m->inverse = sums + channels, *first = row + m->pixels;
    memset(sums, 0, 2 * channels * sizeof *sums);
    gsi_idx_values(first, x, 0, channels);
    for (size_t i = 0; i < x->shape[0]; i++) {
        gsi_idx_values(row, x, i * m->pixels, m->pixels);
        for (size_t p = 0; p < m->pixels; p += channels)
            for (size_t c = 0; c < channels; c++) {
                const double d = row[p + c] - first[c];
                sums[c] += d;
                squares[c] += d * d;
            }
    }
    gs_status status = GS_OK;
    for (size_t c = 0; c < channels && status == GS_OK; c++) {
        const double mean = sums[c] / count, variance = squares[c] / count - mean * mean;
        if (!isfinite(variance))
            status = gsi_fail(error, GS_ERANGE, "%s: has values that are not finite, or too large",
                              x->path);
        m->mean[c] = first[c] + mean;
        m->inverse[c] = variance > 0 ? 1 / sqrt(variance) : 1; /* one value only: it becomes 0 */
    }
    data->info.mean = m->mean;
    data->info.inverse_std = m->inverse;
    gsi_arena_reset(&data->arena, mark);
    return status;
}

/* ---- the kind ---- */

static void set_sizes(gs_data *data)
{
    gsi_images *m = data->state;
    gs_data_info *info = &data->info;
    const gsi_idx *x = &m->x[GS_SPLIT_TRAIN];
    m->pixels = x->count / x->shape[0];
    info->height = x->rank > 2 ? x->shape[1] : 1; /* rows of features are images of one row */
    info->width = x->rank > 2 ? x->shape[2] : x->shape[1];
    info->channels = x->rank > 3 ? x->shape[3] : 1;
}

gs_status gsi_images_alone(gs_data *data, gs_error *error)
{
    gsi_images *m = data->state;
    const gsi_idx *x = &m->x[GS_SPLIT_TRAIN];
    const gsi_idx *held = &m->x[GS_SPLIT_VALID];
    if (x->rank < 2)
        return gsi_fail(error, GS_ESIZE, "%s: is a list of numbers, not of images", x->path);
    const gs_status status = held->data ? check_alike(x, held, error) : GS_OK;
    if (status != GS_OK)
        return status;
    set_sizes(data);
    data->info.task = data->like->task;
    data->info.classes = data->like->classes;
    data->info.items[GS_SPLIT_TRAIN] = x->shape[0] + (held->data ? held->shape[0] : 0);
    m->labels = data->info.task == GS_TASK_PIXELS ? data->info.height * data->info.width : 1;
    return GS_OK;
}

gs_status gsi_images_set(gs_data *data, const gs_data_config *config, gs_error *error)
{
    gsi_images *m = data->state;
    gs_data_info *info = &data->info;
    const gsi_idx *x = &m->x[GS_SPLIT_TRAIN], *y = &m->y[GS_SPLIT_TRAIN];
    const bool valid = m->x[GS_SPLIT_VALID].data;
    double most = 0;
    gs_status status = GS_OK;
    for (int split = 0; status == GS_OK && split <= valid; split++) {
        status = check_pair(&m->x[split], &m->y[split], error);
        if (status == GS_OK)
            status = check_labels(&m->y[split], &most, error);
    }
    if (status == GS_OK && valid)
        status = check_alike(x, &m->x[GS_SPLIT_VALID], error);
    if (status == GS_OK && valid)
        status = check_alike(y, &m->y[GS_SPLIT_VALID], error);
    if (status != GS_OK)
        return status;
    set_sizes(data);
    m->labels = y->count / y->shape[0];
    info->task = y->rank == 1 ? GS_TASK_CLASSES : GS_TASK_PIXELS;
    if (!info->labels && most >= 1 << 16 && most >= (double)x->shape[0])
        return gsi_fail(error, GS_ERANGE, "%s: has a class %.0f, and %zu items", y->path, most,
                        x->shape[0]);
    if (!info->labels && !data->like && most < 1)
        return gsi_fail(error, GS_ESIZE, "%s: has 1 class, and 2 are needed", y->path);
    if (!info->labels) /* else those that have names know that each label has one */
        info->classes = (size_t)most + 1;
    if (valid) {
        info->items[GS_SPLIT_TRAIN] = x->shape[0];
        info->items[GS_SPLIT_VALID] = m->x[GS_SPLIT_VALID].shape[0];
    } else {
        gsi_data_split(data, config, x->shape[0]);
    }
    return data->like || config->raw ? GS_OK : measure(data, error);
}

static gs_status open_paths(gs_data *data, const gs_data_config *config, const char *x_path,
                            gs_error *error)
{
    char labels[GSI_PATH], valid_x[GSI_PATH], valid_y[GSI_PATH];
    if (!config->labels && !labels_of(labels, x_path))
        return gsi_fail(error, GS_EIO,
                        "%s: its labels are not beside it, under a name with labels for images",
                        data->name);
    const bool valid = !config->labels && validation_of(valid_x, x_path);
    gs_status status =
        read_pair(data, GS_SPLIT_TRAIN, x_path, config->labels ? config->labels : labels, error);
    if (status == GS_OK && valid && !labels_of(valid_y, valid_x))
        return gsi_fail(error, GS_EIO, "%s: the labels of its validation set are missing",
                        data->name);
    if (status == GS_OK && valid)
        status = read_pair(data, GS_SPLIT_VALID, valid_x, valid_y, error);
    return status == GS_OK ? gsi_images_set(data, config, error) : status;
}

static gs_status open_idx(gs_data *data, const gs_data_config *config, gs_error *error)
{
    char path[GSI_PATH], valid[GSI_PATH];
    struct stat st;
    const char *images_path = config->name;
    if (stat(config->name, &st) == 0 && S_ISDIR(st.st_mode) && images_in(path, config->name))
        images_path = path;
    if (!config->unlabelled)
        return open_paths(data, config, images_path, error);
    gsi_images *m = data->state;
    gs_status status = gsi_idx_read(&m->x[GS_SPLIT_TRAIN], images_path, &data->heap, error);
    if (status == GS_OK && images_path == path && validation_of(valid, path))
        status = gsi_idx_read(&m->x[GS_SPLIT_VALID], valid, &data->heap, error);
    return status == GS_OK ? gsi_images_alone(data, error) : status;
}

static gs_status open_fashion_mnist(gs_data *data, const gs_data_config *config, gs_error *error)
{
    static const char folder[] = "/usr/share/datasets/fashion-mnist";
    const gs_data_config plain = {.size = sizeof plain, .name = config->name, .raw = config->raw};
    char path[GSI_PATH];
    const char *root = config->root ? config->root : folder;
    if (!images_in(path, root))
        return gsi_fail(error, GS_EIO,
                        "fashion-mnist: its files are not in %s: install Debian's package "
                        "dataset-fashion-mnist",
                        root);
    return open_paths(data, &plain, path, error);
}

static bool fits(gsi_place *place)
{
    char path[GSI_PATH];
    return place->folder ? images_in(path, place->path)
                         : gsi_idx_begins(place->start) || strstr(place->path, "-ubyte");
}

/* An arbitrary but fixed choice of what is held out: sets are often sorted by class. */
static const uint64_t SPLIT_KEY = 0x5EED;

gs_status gsi_images_read(const gs_data *data, gs_split split, uint64_t item, float *x,
                          int32_t *ids, int32_t *targets, gs_error *error)
{
    const gsi_images *m = data->state;
    const size_t channels = data->info.channels;
    const double *mean = data->info.mean, *inverse = data->info.inverse_std; /* NULL: like so */
    (void)ids;
    (void)error;
    const bool labelled = m->y[GS_SPLIT_TRAIN].data != NULL;
    if (labelled && !m->x[GS_SPLIT_VALID].data) {
        if (split == GS_SPLIT_VALID)
            item += data->info.items[GS_SPLIT_TRAIN];
        item = gsi_permute(item, m->x[GS_SPLIT_TRAIN].shape[0], SPLIT_KEY, 0);
        split = GS_SPLIT_TRAIN;
    }
    if (!labelled && item >= m->x[GS_SPLIT_TRAIN].shape[0]) { /* see gsi_images_alone */
        item -= m->x[GS_SPLIT_TRAIN].shape[0];
        split = GS_SPLIT_VALID;
    }
    double block[1024];
    const size_t first = (size_t)item * m->pixels;
    for (size_t at = 0, c = 0; at < m->pixels; at += GSI_COUNT(block)) {
        const size_t n = m->pixels - at < GSI_COUNT(block) ? m->pixels - at : GSI_COUNT(block);
        gsi_idx_values(block, &m->x[split], first + at, n);
        for (size_t i = 0; i < n; i++) {
            x[at + i] = (float)(mean ? (block[i] - mean[c]) * inverse[c] : block[i]);
            c = c + 1 < channels ? c + 1 : 0;
        }
    }
    for (size_t i = 0; !labelled && i < m->labels; i++)
        targets[i] = -1;
    for (size_t at = 0; labelled && at < m->labels; at += GSI_COUNT(block)) {
        const size_t n = m->labels - at < GSI_COUNT(block) ? m->labels - at : GSI_COUNT(block);
        gsi_idx_values(block, &m->y[split], (size_t)item * m->labels + at, n);
        for (size_t i = 0; i < n; i++)
            targets[at + i] = (int32_t)block[i];
    }
    return GS_OK;
}

void gsi_images_close(gs_data *data)
{
    gsi_images *m = data->state;
    for (int split = 0; split < GS_SPLIT_COUNT; split++) {
        gsi_idx_free(&m->x[split], &data->heap);
        gsi_idx_free(&m->y[split], &data->heap);
    }
}

const gsi_kind gsi_fashion_mnist = {.name = "fashion-mnist",
                                    .state = sizeof(gsi_images),
                                    .open = open_fashion_mnist,
                                    .read = gsi_images_read,
                                    .close = gsi_images_close};
const gsi_kind gsi_idx_set = {.fits = fits,
                              .state = sizeof(gsi_images),
                              .unlabelled = true,
                              .open = open_idx,
                              .read = gsi_images_read,
                              .close = gsi_images_close};
