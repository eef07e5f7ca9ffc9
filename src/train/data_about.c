/* What is to be known of data to use a model that was trained on them, as JSON:
 *
 *     {"task": "classes", "height": 28, "width": 28, "channels": 1, "classes": 10,
 *      "mean": [72.9], "inverse_std": [0.011], "labels": ["boot", "coat", ...]}
 *     {"task": "tokens", "time": 256, "classes": 256, "tokenizer": "bytes"}
 *     {"task": "tokens", "time": 256, "classes": 8192, "tokenizer": "{\"version\":\"1.0\",..}"}
 *
 * Numbers are written so that they read back to the same bits. */
#include "train/data.h"
#include "io/io.h"
#include "io/json.h"
#include "io/line.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const tasks[] = {
    [GS_TASK_CLASSES] = "classes", [GS_TASK_TOKENS] = "tokens", [GS_TASK_PIXELS] = "pixels"};

enum { MOST_CLASSES = 1 << 24, MOST_SIDE = 1 << 24 };

/* ---- writing ---- */

static void put_list(gsi_line *line, const char *name, const double *list, size_t n)
{
    gsi_add_open(line, name, "[");
    for (size_t i = 0; i < n; i++)
        gsi_add_real(line, NULL, list[i]);
    gsi_put(line, "]");
}

static void put_info(gsi_line *line, const gs_data_info *info)
{
    gsi_put(line, "{");
    gsi_add_string(line, "task", tasks[info->task]);
    if (info->task == GS_TASK_TOKENS) {
        gsi_add_count(line, "time", info->time);
    } else {
        gsi_add_count(line, "height", info->height);
        gsi_add_count(line, "width", info->width);
        gsi_add_count(line, "channels", info->channels);
    }
    gsi_add_count(line, "classes", info->classes);
    if (info->mean) {
        put_list(line, "mean", info->mean, info->channels);
        put_list(line, "inverse_std", info->inverse_std, info->channels);
    }
    if (info->labels) {
        gsi_add_open(line, "labels", "[");
        for (size_t i = 0; i < info->classes; i++)
            gsi_add_string(line, NULL, info->labels[i]);
        gsi_put(line, "]");
    }
    if (info->tokenizer)
        gsi_add_string(line, "tokenizer", info->tokenizer);
    gsi_put(line, "}");
}

gs_status gs_data_describe(char *text, size_t room, size_t *used, const gs_data *data,
                           gs_error *error)
{
    if (!data || (room > 0 && !text))
        return gsi_fail(error, GS_ENULL, "there are no data, or no place for what they are");
    gsi_heap heap = data->heap; /* its hook, and counts of its own: the set is only read */
    gsi_line line = {.heap = &heap};
    put_info(&line, &data->info);
    size_t n;
    const gs_status status = gsi_line_copy(&line, text, room, &n);
    if (used)
        *used = n;
    if (status == GS_ENOMEM)
        return gsi_fail(error, status, "%s: no memory to describe it", data->name);
    if (status == GS_ESIZE)
        return gsi_fail(error, status, "%s: its description has %zu bytes, more than %zu",
                        data->name, n, room);
    return status;
}

/* ---- reading ---- */

/* The struct that is handed out, and what frees it. */
typedef struct holder {
    gs_data_info info;
    gsi_heap heap;
    gsi_arena arena;
    bool no_memory; /* what is missing may have been legal */
} holder;

static gs_status no_memory(gs_error *error)
{
    return gsi_fail(error, GS_ENOMEM, "no memory to read a description of data");
}

static gs_status wrong(const holder *h, gs_error *error, const char *member)
{
    return h->no_memory
               ? no_memory(error)
               : gsi_fail(error, GS_EFORMAT, "the description of the data has no legal %s", member);
}

static void *new_list(holder *h, size_t n, size_t size)
{
    void *list = gsi_arena_new(&h->arena, n, size);
    h->no_memory |= !list;
    return list;
}

static bool read_count(size_t *out, const gsi_node *from, const char *key, size_t least,
                       size_t most)
{
    const gsi_node *x = gsi_node_get(from, key);
    *out = 0;
    if (!x || x->kind != GSI_JSON_NUMBER || x->number != floor(x->number) ||
        x->number < (double)least || x->number > (double)most)
        return false;
    *out = (size_t)x->number;
    return true;
}

static const double *read_list(holder *h, const gsi_node *from, const char *key, size_t n)
{
    const gsi_node *list = gsi_node_get(from, key);
    if (!list || list->kind != GSI_JSON_ARRAY || list->count != n)
        return NULL;
    double *out = new_list(h, n, sizeof *out), *to = out;
    for (const gsi_node *x = list->first; out && x; x = x->next) {
        if (x->kind != GSI_JSON_NUMBER)
            return NULL;
        *to++ = x->number;
    }
    return out;
}

static const char *keep(holder *h, const gsi_node *text)
{
    char *out = text->kind == GSI_JSON_STRING ? new_list(h, strlen(text->text) + 1, 1) : NULL;
    return out ? strcpy(out, text->text) : NULL;
}

static bool read_labels(holder *h, const gsi_node *list)
{
    if (list->kind != GSI_JSON_ARRAY || list->count != h->info.classes)
        return false;
    const char **out = new_list(h, h->info.classes, sizeof *out), **to = out;
    for (const gsi_node *x = list->first; out && x; x = x->next)
        if (!(*to++ = keep(h, x)))
            return false;
    h->info.labels = out;
    return out;
}

static gs_status read_info(holder *h, const gsi_node *from, gs_error *error)
{
    gs_data_info *info = &h->info;
    const gsi_node *named = gsi_node_get(from, "task");
    const char *task = named && named->kind == GSI_JSON_STRING ? named->text : NULL;
    size_t t = 0;
    while (t < GSI_COUNT(tasks) && (!task || strcmp(task, tasks[t]) != 0))
        t++;
    if (t == GSI_COUNT(tasks))
        return wrong(h, error, "task");
    info->task = (gs_task)t;
    if (!read_count(&info->classes, from, "classes", 2, MOST_CLASSES))
        return wrong(h, error, "number of classes");
    if (info->task == GS_TASK_TOKENS) {
        if (!read_count(&info->time, from, "time", 1, MOST_SIDE))
            return wrong(h, error, "time");
    } else if (!read_count(&info->height, from, "height", 1, MOST_SIDE) ||
               !read_count(&info->width, from, "width", 1, MOST_SIDE) ||
               !read_count(&info->channels, from, "channels", 1, MOST_SIDE)) {
        return wrong(h, error, "size of an image");
    }
    if (gsi_node_get(from, "mean")) {
        info->mean = read_list(h, from, "mean", info->channels);
        info->inverse_std = read_list(h, from, "inverse_std", info->channels);
        if (!info->mean || !info->inverse_std)
            return wrong(h, error, "mean and inverse_std");
    }
    const gsi_node *labels = gsi_node_get(from, "labels");
    if (labels && !read_labels(h, labels))
        return wrong(h, error, "list of labels");
    const gsi_node *tokenizer = gsi_node_get(from, "tokenizer");
    if (tokenizer && !(info->tokenizer = keep(h, tokenizer)))
        return wrong(h, error, "tokenizer");
    return GS_OK;
}

static gs_status read_text(holder *h, const char *text, gs_error *error)
{
    gsi_json j = gsi_json_of(text, strlen(text));
    gsi_arena tree;
    const gsi_node *root = NULL;
    const char *why;
    if (!*text)
        return gsi_fail(error, GS_EFORMAT, "the data are not described");
    gsi_arena_init(&tree, &h->heap);
    gs_status status = gsi_json_tree(&root, &j, &tree, &why);
    if (status == GS_OK && root->kind == GSI_JSON_OBJECT)
        status = read_info(h, root, error);
    else if (status == GS_ENOMEM)
        no_memory(error);
    else
        status = gsi_fail(error, GS_EFORMAT, "the description of the data is no JSON");
    gsi_arena_free(&tree);
    return status;
}

gs_status gs_data_info_read(gs_data_info **out, const char *text, const gs_alloc *alloc,
                            gs_error *error)
{
    if (!out || !text)
        return gsi_fail(error, GS_ENULL, "there is no description of data to read");
    *out = NULL;
    gsi_heap heap;
    gsi_heap_init(&heap, alloc);
    holder *h = gsi_new(&heap, sizeof *h);
    if (!h)
        return no_memory(error);
    *h = (holder){.heap = heap, .info.name = "like"};
    gsi_arena_init(&h->arena, &h->heap);
    const gs_status status = read_text(h, text, error);
    if (status == GS_OK)
        *out = &h->info;
    else
        gs_data_info_free(&h->info);
    return status;
}

void gs_data_info_free(gs_data_info *info)
{
    if (!info)
        return;
    holder *h = (holder *)info;
    gsi_arena_free(&h->arena);
    gsi_heap heap = h->heap; /* it lies in its own heap */
    gsi_free(&heap, h);
}

/* ---- data that are to be like others ---- */

enum { DIGITS = 9 }; /* of the number of a class, at most */

/* The number that a class has for a name, such as a folder 0, 1 or 10; -1: it is a word. */
static int64_t number_of(const char *name)
{
    const size_t n = strspn(name, "0123456789");
    return n > 0 && n <= DIGITS && !name[n] ? strtol(name, NULL, 10) : -1;
}

/* Classes that have a name in both have the same one; where those of the model are called by
 * numbers, a class that is a number is the one that is called so. */
static gs_status compare_classes(const gs_data *data, gs_error *error)
{
    const gs_data_info *info = &data->info, *like = data->like;
    for (size_t c = 0; like->labels && info->labels != like->labels && c < info->classes; c++) {
        const char *name = like->labels[c];
        const int64_t number = number_of(name);
        if (info->labels && strcmp(info->labels[c], name) != 0)
            return gsi_fail(error, GS_ENAME, "%s: its class %zu is %.60s, and the model's is %.60s",
                            data->name, c, info->labels[c], name);
        if (!info->labels && number >= 0 && number != (int64_t)c)
            return gsi_fail(error, GS_ENAME,
                            "%s: its classes are numbers, and the model's class %zu is called %s",
                            data->name, c, name);
    }
    return GS_OK;
}

gs_status gsi_data_alike(gs_data *data, bool labelled, gs_error *error)
{
    gs_data_info *info = &data->info;
    const gs_data_info *like = data->like;
    if (!like)
        return GS_OK;
    if (like->task != info->task)
        return gsi_fail(error, GS_ESIZE, "%s: has %s, and the model was trained on %s", data->name,
                        tasks[info->task], tasks[like->task]);
    if (info->height != like->height || info->width != like->width ||
        info->channels != like->channels)
        return gsi_fail(error, GS_ESIZE,
                        "%s: its %s are %zu x %zu x %zu, and the model was trained on %zu x "
                        "%zu x %zu",
                        data->name, info->height == 1 ? "rows" : "images", info->height,
                        info->width, info->channels, like->height, like->width, like->channels);
    if (info->classes > like->classes)
        return gsi_fail(error, GS_ERANGE, "%s: has %zu classes, and the model knows %zu",
                        data->name, info->classes, like->classes);
    if (info->tokenizer && !like->tokenizer)
        return gsi_fail(error, GS_ERANGE,
                        "%s: the model does not say how text becomes tokens: it was trained on "
                        "files of tokens",
                        data->name);
    if (info->tokenizer && strcmp(info->tokenizer, like->tokenizer) != 0)
        return gsi_fail(error, GS_ERANGE, "%s: its tokens are not those of the model", data->name);
    const gs_status status = labelled ? compare_classes(data, error) : GS_OK;
    info->classes = like->classes;
    info->mean = like->mean;
    info->inverse_std = like->inverse_std;
    info->labels = like->labels;
    return status;
}

/* ---- names of classes ---- */

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Most sets have them sorted; CIFAR's few have an order of their own; a model's may be numbers. */
int32_t gsi_data_class(const gs_data *data, const char *name)
{
    const gs_data_info *info = &data->info;
    const char *const *labels = info->labels, *const * at;
    if (!labels) {
        const int64_t number = number_of(name);
        return number < (int64_t)info->classes ? (int32_t)number : -1;
    }
    if (data->sorted) {
        at = bsearch(&name, labels, info->classes, sizeof *labels, by_text);
        return at ? (int32_t)(at - labels) : -1;
    }
    for (size_t c = 0; c < info->classes; c++)
        if (strcmp(labels[c], name) == 0)
            return (int32_t)c;
    return -1;
}

static bool are_sorted(const char *const *labels, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (strcmp(labels[i - 1], labels[i]) >= 0)
            return false;
    return true;
}

gs_status gsi_data_label(const char **out, gs_data *data, const char *name, size_t length,
                         gs_error *error)
{
    char shown[GSI_SHOWN];
    if (!gsi_utf8(name, length)) /* a checkpoint, which is JSON, would change it */
        return gsi_fail(error, GS_EFORMAT, "%s: the name of its class %s is not UTF-8", data->name,
                        gsi_show(shown, name, length));
    char *copy = gsi_arena_new(&data->arena, length + 1, 1);
    if (!copy)
        return gsi_fail(error, GS_ENOMEM, "%s: there is no memory for its classes", data->name);
    memcpy(copy, name, length);
    copy[length] = 0;
    *out = copy;
    return GS_OK;
}

static bool has_number(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (number_of(names[i]) >= 0)
            return true;
    return false;
}

gs_status gsi_data_labels(gs_data *data, const char **names, size_t n, gs_error *error)
{
    const gs_data_info *like = data->like;
    size_t classes = 0;
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(names[i], names[i - 1]) != 0)
            names[classes++] = names[i];
    if (like && (like->labels || has_number(names, classes))) {
        data->info.labels = like->labels;
        data->info.classes = like->classes;
        data->sorted = like->labels && are_sorted(like->labels, like->classes);
        for (size_t i = 0; i < classes; i++)
            if (gsi_data_class(data, names[i]) < 0)
                return gsi_fail(error, GS_ENAME, "%s: its class %.60s is none of the model's",
                                data->name, names[i]);
        return GS_OK;
    }
    if (like && classes < like->classes)
        return gsi_fail(error, GS_ENAME,
                        "%s: its %zu class%s names, and names do not say which of the model's %zu "
                        "numbers they are",
                        data->name, classes, classes == 1 ? " has" : "es have", like->classes);
    if (classes < 2)
        return gsi_fail(error, GS_ESIZE, "%s: has 1 class, and 2 are needed", data->name);
    const char **labels = gsi_arena_new(&data->arena, classes, sizeof *labels);
    for (size_t i = 0; labels && i < classes; i++) {
        const gs_status status =
            gsi_data_label(&labels[i], data, names[i], strlen(names[i]), error);
        if (status != GS_OK)
            return status;
    }
    data->info.labels = labels;
    data->info.classes = classes;
    data->sorted = true;
    return labels ? GS_OK : gsi_fail(error, GS_ENOMEM, "%s: no memory for its classes", data->name);
}
