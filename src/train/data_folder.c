/* Folders of PNG and JPEG files.
 *
 *     ROOT/CLASS/..                    a folder per class; its files may lie deeper
 *     ROOT/train/CLASS, ROOT/val/..    what to validate with apart: val, valid, validation or test
 *     ROOT/images/.., ROOT/masks/..    a class per pixel: the mask of images/a.jpg is masks/a.png,
 *                                      its grey values or palette indices the classes, 255 none;
 *                                      below train and val too, or with these below
 *
 * Nothing is held in memory but paths: an image is decoded when it is read, scaled to cover the
 * size of the set and cut around its centre. */
#include "io/folder.h"
#include "io/image.h"
#include "io/lines.h"
#include "train/data.h"

#include <errno.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MEASURED = 1000, LOOKED_AT = 1000, DEPTH = 4, IGNORED = 255 };

typedef struct item {
    const char *path;
    char *mask; /* NULL: it has a class */
    int32_t class;
} item;

typedef struct folder {
    gsi_paths paths;
    item *items; /* [n]: those to train on first, then those to validate with */
    size_t n, n_valid;
    bool apart; /* they lie in folders of their own */
    bool labelled;
    double *mean; /* [2 * channels] */
} folder;

/* ---- paths ---- */

static const char *const valid_names[] = {"val", "valid", "validation", "test"};

static bool is_part(const char *path, size_t n, const char *name)
{
    return strlen(name) == n && strncmp(path, name, n) == 0;
}

static bool is_valid(const char *path, size_t n)
{
    for (size_t i = 0; i < GSI_COUNT(valid_names); i++)
        if (is_part(path, n, valid_names[i]))
            return true;
    return false;
}

/* What the path says below the root: whether it is for validation, and the first part that is left:
 * a class, "images" or "masks". */
typedef struct place {
    bool split, valid;
    const char *part;
    size_t length; /* 0: the file lies above any */
} place;

static bool read_split(place *p, const char *part, size_t length)
{
    p->valid = is_valid(part, length);
    p->split = p->valid || is_part(part, length, "train");
    return p->split;
}

static size_t part_length(const char *part)
{
    const char *slash = strchr(part, '/');
    return slash ? (size_t)(slash - part) : 0;
}

static place place_of(const char *path, size_t root)
{
    place p = {.part = path + root + strspn(path + root, "/")};
    p.length = part_length(p.part);
    if (read_split(&p, p.part, p.length)) {
        p.part += p.length + 1;
        p.length = part_length(p.part);
    } else if (is_part(p.part, p.length, "images") || is_part(p.part, p.length, "masks")) {
        const char *below = p.part + p.length + 1;
        read_split(&p, below, part_length(below));
    }
    return p;
}

/* The mask of an image: the same path below masks, with any ending. */
static bool mask_of(char out[GSI_PATH], const char *path, const place *p)
{
    static const char *const ends[] = {".png", ".PNG"};
    const size_t before = (size_t)(p->part - path);
    const char *rest = p->part + p->length;
    const char *dot = strrchr(rest, '.');
    struct stat st;
    for (size_t i = 0; dot && i < GSI_COUNT(ends); i++) { /* never longer than the image's path */
        snprintf(out, GSI_PATH, "%.*smasks%.*s%s", (int)before, path, (int)(dot - rest), rest,
                 ends[i]);
        if (stat(out, &st) == 0)
            return true;
    }
    return false;
}

/* ---- the list ---- */

static gs_status no_memory(const gs_data *data, gs_error *error)
{
    return gsi_fail(error, GS_ENOMEM, "%s: there is no memory for its list of files", data->name);
}

/* Of which kind the folder is: pixels have masks. */
static bool has_masks(const folder *f, size_t root)
{
    for (size_t i = 0; i < f->paths.n; i++) {
        const place p = place_of(f->paths.list[i], root);
        if (is_part(p.part, p.length, "masks") && gsi_image_name(f->paths.list[i]))
            return true;
    }
    return false;
}

static gs_status add_pixels(gs_data *data, item *to, const char *path, const place *p,
                            gs_error *error)
{
    char mask[GSI_PATH], shown[GSI_SHOWN_PATH];
    if (!mask_of(mask, path, p))
        return gsi_fail(error, GS_EIO, "%s: has no mask: there is no PNG of its name in masks",
                        gsi_show_path(shown, path));
    to->mask = gsi_arena_new(&data->arena, strlen(mask) + 1, 1);
    if (!to->mask)
        return no_memory(data, error);
    strcpy(to->mask, mask);
    return GS_OK;
}

static gs_status add_class(gs_data *data, const char **name, const char *path, const place *p,
                           gs_error *error)
{
    char shown[GSI_SHOWN_PATH];
    char *copy = p->length ? gsi_arena_new(&data->arena, p->length + 1, 1) : NULL;
    if (p->length == 0)
        return gsi_fail(error, GS_EFORMAT, "%s: lies in no folder of a class",
                        gsi_show_path(shown, path));
    if (!copy)
        return no_memory(data, error);
    memcpy(copy, p->part, p->length);
    copy[p->length] = 0;
    *name = copy;
    return GS_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The paths are sorted; a mask's is among them. */
static gs_status count_masks(gs_data *data, size_t root, gs_error *error)
{
    const folder *f = data->state;
    char shown[GSI_SHOWN_PATH];
    gs_status status = GS_OK;
    bool *used = gsi_new(&data->heap, f->paths.n * sizeof *used);
    if (!used)
        return no_memory(data, error);
    memset(used, 0, f->paths.n * sizeof *used);
    for (size_t i = 0; i < f->n; i++) {
        char **at = bsearch(&f->items[i].mask, f->paths.list, f->paths.n, sizeof *at, by_bytes);
        if (at)
            used[at - f->paths.list] = true;
    }
    for (size_t i = 0; status == GS_OK && i < f->paths.n; i++) {
        const place p = place_of(f->paths.list[i], root);
        if (!used[i] && is_part(p.part, p.length, "masks") && gsi_image_name(f->paths.list[i]))
            status = gsi_fail(error, GS_EIO, "%s: is a mask without an image",
                              gsi_show_path(shown, f->paths.list[i]));
    }
    gsi_free(&data->heap, used);
    return status;
}

/* Fills the list, those to train on first; names[i] is the class of items[i]. pixels: of what lies
 * in images. */
static gs_status list_items(gs_data *data, size_t root, bool pixels, const char **names,
                            gs_error *error)
{
    folder *f = data->state;
    gs_status status = GS_OK;
    for (int valid = 0; valid < 2; valid++)
        for (size_t i = 0; status == GS_OK && i < f->paths.n; i++) {
            const char *path = f->paths.list[i];
            const place p = place_of(path, root);
            if (!gsi_image_name(path) || p.valid != valid ||
                (pixels && !is_part(p.part, p.length, "images")))
                continue;
            item *to = &f->items[f->n];
            *to = (item){.path = path};
            if (pixels && f->labelled)
                status = add_pixels(data, to, path, &p, error);
            else if (f->labelled)
                status = add_class(data, &names[f->n], path, &p, error);
            f->n++;
            f->n_valid += (size_t)valid;
            f->apart |= p.split && p.valid;
        }
    if (status == GS_OK && (f->labelled ? f->n == f->n_valid : f->n == 0))
        status = gsi_fail(error, GS_ESIZE, "%s: has no images%s", data->name,
                          f->labelled ? " to train on" : "");
    return status == GS_OK && pixels && f->labelled ? count_masks(data, root, error) : status;
}

/* Of a folder that says what to validate with: a class that is only there could not be learnt. */
static gs_status check_classes(gs_data *data, gs_error *error)
{
    const folder *f = data->state;
    const size_t n = f->n - f->n_valid;
    char shown[GSI_SHOWN_PATH];
    gs_status status = GS_OK;
    bool *known = gsi_new(&data->heap, data->info.classes * sizeof *known);
    if (!known)
        return no_memory(data, error);
    memset(known, 0, data->info.classes * sizeof *known);
    for (size_t i = 0; status == GS_OK && i < f->n; i++)
        if (i < n)
            known[f->items[i].class] = true;
        else if (!known[f->items[i].class])
            status = gsi_fail(error, GS_ENAME, "%s: is of a class that no image to train on has",
                              gsi_show_path(shown, f->items[i].path));
    gsi_free(&data->heap, known);
    return status;
}

static gs_status set_classes(gs_data *data, const char **names, gs_error *error)
{
    folder *f = data->state;
    const char **sorted = gsi_new(&data->heap, f->n * sizeof *sorted);
    if (!sorted)
        return no_memory(data, error);
    memcpy(sorted, names, f->n * sizeof *sorted);
    const gs_status status = gsi_data_labels(data, sorted, f->n, error);
    gsi_free(&data->heap, sorted);
    for (size_t i = 0; status == GS_OK && i < f->n; i++)
        f->items[i].class = gsi_data_class(data, names[i]);
    return status == GS_OK && !data->like ? check_classes(data, error) : status;
}

/* ---- images ---- */

/* The hook is the caller's alone, and readers may be other threads: this heap is malloc's. */
static gs_status read_pixels(const gs_data *data, const item *it, float *x, gs_error *error)
{
    const gs_data_info *info = &data->info;
    gsi_heap heap;
    gsi_image8 image;
    gsi_heap_init(&heap, NULL);
    const gs_status status = gsi_image_read(&image, it->path, info->channels, false, &heap, error);
    if (status == GS_OK)
        gsi_image_fit(x, info->height, info->width, &image, false);
    gsi_free(&heap, image.data);
    return status;
}

static gs_status read_mask(const gs_data *data, const item *it, int32_t *targets, gs_error *error)
{
    const gs_data_info *info = &data->info;
    const size_t pixels = info->height * info->width;
    char shown[GSI_SHOWN_PATH];
    gsi_heap heap;
    gsi_image8 image, mask;
    gsi_heap_init(&heap, NULL);
    gs_status status = gsi_image_look(&image, it->path, &heap, error);
    if (status == GS_OK)
        status = gsi_image_read(&mask, it->mask, 0, true, &heap, error);
    if (status != GS_OK)
        return status;
    gsi_show_path(shown, it->mask);
    if (mask.channels != 1)
        status = gsi_fail(error, GS_EFORMAT,
                          "%s: is in colour: a mask has grey values or a palette", shown);
    else if (mask.height != image.height || mask.width != image.width)
        status = gsi_fail(error, GS_ESIZE, "%s: is %zu x %zu, and its image %zu x %zu", shown,
                          mask.width, mask.height, image.width, image.height);
    float *values = status == GS_OK ? gsi_new(&heap, pixels * sizeof *values) : NULL;
    if (status == GS_OK && !values) /* uncovered: malloc's own memory ends */
        status = gsi_fail(error, GS_ENOMEM, "%s: there is no memory for its pixels", shown);
    if (status == GS_OK)
        gsi_image_fit(values, info->height, info->width, &mask, true);
    for (size_t i = 0; status == GS_OK && i < pixels; i++) {
        targets[i] = values[i] == IGNORED ? -1 : (int32_t)values[i];
        if (info->classes > 0 && targets[i] >= (int32_t)info->classes)
            status = gsi_fail(error, GS_ERANGE, "%s: has class %d, and the model knows %zu", shown,
                              targets[i], info->classes);
    }
    gsi_free(&heap, values);
    gsi_free(&heap, mask.data);
    return status;
}

/* ---- sizes, classes and means ---- */

static gs_status set_size(gs_data *data, const gs_data_config *config, gs_error *error)
{
    const folder *f = data->state;
    gs_data_info *info = &data->info;
    gsi_image8 first;
    const gs_status status = gsi_image_look(&first, f->items[0].path, &data->heap, error);
    if (status != GS_OK)
        return status;
    info->height = config->height ? config->height : first.height;
    info->width = config->width ? config->width : first.width;
    info->channels = first.channels == 1 ? 1 : 3;
    const bool tokens = data->like && data->like->task == GS_TASK_TOKENS;
    if (tokens || (data->like && data->like->height == 1)) /* pixels would be scaled to features */
        return gsi_fail(error, GS_ESIZE, "%s: has images, and the model was trained on %s",
                        data->name, tokens ? "tokens" : "rows of numbers");
    if (data->like) {
        info->height = data->like->height;
        info->width = data->like->width;
        info->channels = data->like->channels;
    }
    if (info->channels != 1 && info->channels != 3)
        return gsi_fail(error, GS_ESIZE, "%s: its images have 1 or 3 channels, and the model's %zu",
                        data->name, info->channels);
    return GS_OK;
}

/* All masks are read once: the largest class is in one of them, and a bad one is found now. */
static gs_status count_classes(gs_data *data, gs_error *error)
{
    const folder *f = data->state;
    const size_t pixels = data->info.height * data->info.width;
    int32_t most = 0, *targets = gsi_new(&data->heap, pixels * sizeof *targets);
    gs_status status = targets ? GS_OK : no_memory(data, error);
    data->info.classes = data->like ? data->like->classes : 0;
    for (size_t i = 0; status == GS_OK && i < f->n; i++) {
        status = read_mask(data, &f->items[i], targets, error);
        for (size_t k = 0; status == GS_OK && k < pixels; k++)
            most = targets[k] > most ? targets[k] : most;
    }
    if (status == GS_OK && !data->like && most == 0)
        status =
            gsi_fail(error, GS_ESIZE,
                     "%s: its masks have no class above 0, and 255 counts for none", data->name);
    if (!data->like)
        data->info.classes = (size_t)most + 1;
    gsi_free(&data->heap, targets);
    return status;
}

static const uint64_t SPLIT_KEY = 0x5EED, MEASURE_KEY = 0x3EA5; /* arbitrary but fixed */

/* Of a fixed choice of the images to train on; the values are 0 to 255. */
static gs_status measure(gs_data *data, gs_error *error)
{
    folder *f = data->state;
    gs_data_info *info = &data->info;
    const size_t channels = info->channels, values = info->height * info->width * channels;
    const size_t all = f->n - f->n_valid, n = all < MEASURED ? all : MEASURED;
    double sums[3] = {0}, squares[3] = {0};
    float *x = gsi_new(&data->heap, values * sizeof *x);
    f->mean = gsi_new(&data->heap, 2 * channels * sizeof *f->mean);
    gs_status status = x && f->mean ? GS_OK : no_memory(data, error);
    for (size_t i = 0; status == GS_OK && i < n; i++) {
        status = read_pixels(data, &f->items[gsi_permute(i, all, MEASURE_KEY, 0)], x, error);
        for (size_t k = 0; status == GS_OK && k < values; k++) {
            sums[k % channels] += (double)x[k];
            squares[k % channels] += (double)x[k] * (double)x[k];
        }
    }
    const double count = (double)n * (double)(values / channels);
    for (size_t c = 0; status == GS_OK && c < channels; c++) {
        const double mean = sums[c] / count, variance = squares[c] / count - mean * mean;
        f->mean[c] = mean;
        f->mean[channels + c] = variance > 1e-9 ? 1 / sqrt(variance) : 1;
    }
    gsi_free(&data->heap, x);
    info->mean = f->mean;
    info->inverse_std = f->mean ? f->mean + channels : NULL;
    return status;
}

/* ---- the kinds ---- */

static gs_status finish(gs_data *data, const gs_data_config *config, bool pixels,
                        const char **names, gs_error *error)
{
    folder *f = data->state;
    gs_data_info *info = &data->info;
    gs_status status = set_size(data, config, error);
    info->task = pixels ? GS_TASK_PIXELS : GS_TASK_CLASSES;
    if (status == GS_OK && !f->labelled) {
        info->task = data->like->task;
        info->classes = data->like->classes;
        info->items[GS_SPLIT_TRAIN] = f->n;
        return GS_OK;
    }
    if (status == GS_OK && (!data->like || data->like->task == info->task)) /* else refused */
        status = pixels ? count_classes(data, error) : set_classes(data, names, error);
    if (f->apart) {
        info->items[GS_SPLIT_TRAIN] = f->n - f->n_valid;
        info->items[GS_SPLIT_VALID] = f->n_valid;
    } else {
        gsi_data_split(data, config, f->n);
    }
    return status == GS_OK && !data->like && !config->raw ? measure(data, error) : status;
}

static gs_status open_folder(gs_data *data, const gs_data_config *config, gs_error *error)
{
    folder *f = data->state;
    f->paths = (gsi_paths){.heap = &data->heap, .all = true};
    f->labelled = !config->unlabelled;
    gs_status status = gsi_paths_walk(&f->paths, config->name, error);
    if (status != GS_OK)
        return status;
    const size_t root = strlen(config->name);
    const bool pixels = (f->labelled || data->like->task == GS_TASK_PIXELS) && has_masks(f, root);
    const char **names = gsi_new(&data->heap, f->paths.n * sizeof *names + 1);
    f->items = gsi_new(&data->heap, f->paths.n * sizeof *f->items + 1);
    status =
        names && f->items ? list_items(data, root, pixels, names, error) : no_memory(data, error);
    if (status == GS_OK)
        status = finish(data, config, pixels, names, error);
    gsi_free(&data->heap, names);
    return status;
}

static gs_status open_image(gs_data *data, const gs_data_config *config, gs_error *error)
{
    folder *f = data->state;
    f->paths.heap = &data->heap;
    if (!config->unlabelled)
        return gsi_fail(error, GS_ERANGE, "%s: is one image, without a class", data->name);
    f->items = gsi_new(&data->heap, sizeof *f->items);
    char *path = gsi_arena_new(&data->arena, strlen(config->name) + 1, 1);
    if (!f->items || !path)
        return no_memory(data, error);
    f->items[0] = (item){.path = strcpy(path, config->name)};
    f->n = 1;
    return finish(data, config, false, NULL, error);
}

static const item *item_of(const gs_data *data, gs_split split, uint64_t i)
{
    const folder *f = data->state;
    if (split == GS_SPLIT_VALID)
        i += data->info.items[GS_SPLIT_TRAIN];
    return &f->items[f->apart || !f->labelled ? i : gsi_permute(i, f->n, SPLIT_KEY, 0)];
}

static gs_status read_item(const gs_data *data, gs_split split, uint64_t i, float *x, int32_t *ids,
                           int32_t *targets, gs_error *error)
{
    const folder *f = data->state;
    const gs_data_info *info = &data->info;
    const item *it = item_of(data, split, i);
    const size_t pixels = info->height * info->width, channels = info->channels;
    (void)ids;
    const gs_status status = read_pixels(data, it, x, error);
    if (status != GS_OK)
        return status;
    for (size_t k = 0; info->mean && k < pixels * channels; k++)
        x[k] = (float)(((double)x[k] - info->mean[k % channels]) * info->inverse_std[k % channels]);
    if (f->labelled && info->task == GS_TASK_PIXELS)
        return read_mask(data, it, targets, error);
    for (size_t k = 0; k < (info->task == GS_TASK_PIXELS ? pixels : 1); k++)
        targets[k] = f->labelled ? it->class : -1;
    return GS_OK;
}

static const char *item_name(const gs_data *data, gs_split split, uint64_t i)
{
    return item_of(data, split, i)->path;
}

static void close_folder(gs_data *data)
{
    folder *f = data->state;
    gsi_paths_free(&f->paths);
    gsi_free(&data->heap, f->items);
    gsi_free(&data->heap, f->mean);
}

/* Counts files, images among them, until there are enough to judge by. */
static void look(gsi_place *at, const char *path, int depth, size_t *files, size_t *images)
{
    DIR *dir = gsi_opendir(path);
    if (!dir)
        at->why = errno;
    errno = 0;
    for (const struct dirent *e; dir && *files < LOOKED_AT && (e = readdir(dir)); errno = 0) {
        char below[GSI_PATH];
        struct stat st;
        if (e->d_name[0] == '.' ||
            snprintf(below, sizeof below, "%s/%s", path, e->d_name) >= GSI_PATH)
            continue;
        if (stat(below, &st) != 0) { /* a link to nothing */
            at->why = gsi_is_nothing(errno) ? at->why : errno;
            continue;
        }
        if (S_ISDIR(st.st_mode) && depth > 0)
            look(at, below, depth - 1, files, images);
        *files += S_ISREG(st.st_mode);
        *images += S_ISREG(st.st_mode) && gsi_image_name(below);
    }
    if (dir && errno)
        at->why = errno;
    if (dir)
        closedir(dir);
}

/* A folder of sources may have a picture in it: most of the files must be images. */
static bool folder_fits(gsi_place *at)
{
    size_t files = 0, images = 0;
    if (at->folder)
        look(at, at->path, DEPTH, &files, &images);
    return images > files / 2;
}

static bool image_fits(gsi_place *at) { return !at->folder && gsi_image_begins(at->start); }

const gsi_kind gsi_folder_set = {.fits = folder_fits,
                                 .state = sizeof(folder),
                                 .unlabelled = true,
                                 .open = open_folder,
                                 .read = read_item,
                                 .item_name = item_name,
                                 .close = close_folder};
const gsi_kind gsi_image_set = {.fits = image_fits,
                                .state = sizeof(folder),
                                .unlabelled = true,
                                .open = open_image,
                                .read = read_item,
                                .item_name = item_name,
                                .close = close_folder};
