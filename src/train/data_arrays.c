/* Arrays of NumPy: x [n, height, width, channels], [n, height, width] or [n, features], channels
 * last, and y [n] or [n, height, width].
 *
 *     x.npy, y.npy                      or x_train.npy .. with x_test, x_val or x_valid beside it
 *     one.npz                           the same names inside; images and labels; arr_0, arr_1
 *     a folder with x.npy or x_train.npy */
#include "io/folder.h"
#include "io/io.h"
#include "train/data_images.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char *const pairs[][2] = {{"x_train", "y_train"},
                                       {"x", "y"},
                                       {"train_images", "train_labels"},
                                       {"images", "labels"},
                                       {"arr_0", "arr_1"}};
static const char *const held[] = {"test", "valid", "val"};

/* ---- one array ---- */

static gs_status read_entry(gs_data *data, gsi_idx *to, gs_source *s, size_t i, gs_error *error)
{
    const gsi_entry *e = &s->entries[i];
    size_t shape[GSI_IDX_RANK];
    char path[GSI_SHOWN_PATH];
    snprintf(path, sizeof path, "%.70s%s%.20s", s->file.path, *e->pub.name ? ":" : "", e->pub.name);
    if (e->pub.rank < 1 || e->pub.rank > GSI_IDX_RANK)
        return gsi_fail(error, GS_ESIZE, "%s: has %d dimensions: 1 to %d can be read", path,
                        e->pub.rank, GSI_IDX_RANK);
    if (e->fortran && e->pub.rank > 1)
        return gsi_fail(error, GS_EFORMAT,
                        "%s: is in Fortran order: save numpy.ascontiguousarray of it", path);
    if (e->pub.bytes > SIZE_MAX)
        return gsi_fail(error, GS_ESIZE, "%s: is larger than memory can be", path);
    for (int d = 0; d < e->pub.rank; d++)
        shape[d] = (size_t)e->pub.shape[d];
    gs_status status =
        gsi_idx_new(to, path, e->pub.type + 1, e->pub.rank, shape, &data->heap, error);
    if (status == GS_OK)
        status = gsi_source_raw(to->data, s, i, 0, to->count, error);
    if (status == GS_OK && (e->pub.type[0] == '>') != gsi_big_endian())
        gsi_swap_bytes(to->data, to->count, (size_t)e->item);
    return status;
}

static size_t find(const gs_source *s, const char *name)
{
    for (size_t i = 0; i < gs_source_count(s); i++)
        if (strcmp(gs_source_entry(s, i)->name, name) == 0)
            return i;
    return SIZE_MAX;
}

/* ---- .npz ---- */

static gs_status read_pair(gs_data *data, gs_split split, gs_source *s, const char *x,
                           const char *y, bool alone, gs_error *error)
{
    gsi_images *m = data->state;
    const size_t ix = find(s, x), iy = find(s, y);
    if (!alone && iy == SIZE_MAX)
        return gsi_bad_file(s, error, GS_ENAME, "has an array %s and none called %s", x, y);
    const gs_status status = read_entry(data, &m->x[split], s, ix, error);
    return status == GS_OK && !alone ? read_entry(data, &m->y[split], s, iy, error) : status;
}

static gs_status read_npz(gs_data *data, gs_source *s, bool alone, gs_error *error)
{
    size_t k = 0;
    while (k < GSI_COUNT(pairs) && find(s, pairs[k][0]) == SIZE_MAX)
        k++;
    if (k == GSI_COUNT(pairs))
        return gsi_bad_file(s, error, GS_ENAME,
                            "has no array called x_train, x, train_images, images or arr_0");
    gs_status status = read_pair(data, GS_SPLIT_TRAIN, s, pairs[k][0], pairs[k][1], alone, error);
    for (size_t h = 0; status == GS_OK && h < GSI_COUNT(held); h++) {
        char x[GSI_PATH], y[GSI_PATH];
        if (!gsi_path_replace(x, pairs[k][0], "train", held[h]) || find(s, x) == SIZE_MAX)
            continue;
        gsi_path_replace(y, pairs[k][1], "train", held[h]); /* both of a pair have it or none */
        return read_pair(data, GS_SPLIT_VALID, s, x, y, alone, error);
    }
    return status;
}

/* ---- .npy ---- */

static gs_status read_file(gs_data *data, gsi_idx *to, const char *path, gs_error *error)
{
    const gs_alloc hook = data->heap.hook;
    gs_source *s;
    gs_status status = gs_source_open(&s, path, &hook, error);
    if (status != GS_OK)
        return status;
    status = gs_source_count(s) == 1 ? read_entry(data, to, s, 0, error)
                                     : gsi_bad_file(s, error, GS_EFORMAT, "is not one array");
    gs_source_close(s);
    return status;
}

/* "x_train.npy" -> "y_train.npy"; "images.npy" -> "labels.npy" */
static bool labels_of(char out[GSI_PATH], const char *path)
{
    if (gsi_path_replace(out, path, "images", "labels") && gsi_may_be_there(out))
        return true;
    snprintf(out, GSI_PATH, "%s", path); /* a path that was opened fits */
    char *slash = strrchr(out, '/'), *name = slash ? slash + 1 : out;
    if (*name != 'x' && *name != 'X')
        return false;
    *name = *name == 'x' ? 'y' : 'Y';
    return gsi_may_be_there(out);
}

/* "x_train.npy" -> "x_test.npy" */
static bool held_of(char out[GSI_PATH], const char *path)
{
    for (size_t h = 0; h < GSI_COUNT(held); h++)
        if (gsi_path_replace(out, path, "train", held[h]) && gsi_may_be_there(out))
            return true;
    return false;
}

static gs_status read_npy(gs_data *data, const gs_data_config *config, const char *path,
                          gs_error *error)
{
    gsi_images *m = data->state;
    char labels[GSI_PATH], valid[GSI_PATH];
    const bool in_folder = path != config->name, apart = !config->labels && held_of(valid, path);
    gs_status status = read_file(data, &m->x[GS_SPLIT_TRAIN], path, error);
    if (status != GS_OK)
        return status;
    if (config->unlabelled)
        return in_folder && apart ? read_file(data, &m->x[GS_SPLIT_VALID], valid, error) : GS_OK;
    if (!config->labels && !labels_of(labels, path))
        return gsi_fail(error, GS_EIO,
                        "%s: its labels are not beside it, under a name with y for x or labels for "
                        "images",
                        data->name);
    status =
        read_file(data, &m->y[GS_SPLIT_TRAIN], config->labels ? config->labels : labels, error);
    if (status != GS_OK || !apart)
        return status;
    if (!labels_of(labels, valid))
        return gsi_fail(error, GS_EIO, "%s: the labels of its validation set are missing",
                        data->name);
    status = read_file(data, &m->x[GS_SPLIT_VALID], valid, error);
    return status == GS_OK ? read_file(data, &m->y[GS_SPLIT_VALID], labels, error) : status;
}

/* ---- the kind ---- */

static bool in_folder(char out[GSI_PATH], const char *folder)
{
    static const char *const names[] = {"x_train.npy", "x.npy", "train_images.npy", "images.npy"};
    for (size_t i = 0; i < GSI_COUNT(names); i++)
        if (snprintf(out, GSI_PATH, "%s/%s", folder, names[i]) < GSI_PATH && gsi_may_be_there(out))
            return true;
    return false;
}

static gs_status open_arrays(gs_data *data, const gs_data_config *config, gs_error *error)
{
    char path[GSI_PATH];
    struct stat st;
    gs_source *s;
    const gs_alloc hook = data->heap.hook;
    const bool folder = stat(config->name, &st) == 0 && S_ISDIR(st.st_mode);
    const char *name = folder && in_folder(path, config->name) ? path : config->name;
    gs_status status = gs_source_open(&s, name, &hook, error);
    if (status != GS_OK)
        return status;
    if (strcmp(gs_source_format(s), "npz") == 0)
        status = read_npz(data, s, config->unlabelled, error);
    else
        status = read_npy(data, config, name, error);
    gs_source_close(s);
    if (status != GS_OK)
        return status;
    return config->unlabelled ? gsi_images_alone(data, error) : gsi_images_set(data, config, error);
}

static bool fits(gsi_place *place)
{
    char path[GSI_PATH];
    return place->folder
               ? in_folder(path, place->path)
               : memcmp(place->start, "\x93NUM", 4) == 0 || memcmp(place->start, "PK\3\4", 4) == 0;
}

const gsi_kind gsi_array_set = {.fits = fits,
                                .state = sizeof(gsi_images),
                                .unlabelled = true,
                                .open = open_arrays,
                                .read = gsi_images_read,
                                .close = gsi_images_close};
