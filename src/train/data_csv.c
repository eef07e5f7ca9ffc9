/* CSV: a row per item, numbers and one column of classes: the one that the first line calls label,
 * class, target or y, or else the last. Classes are numbers from 0 on, or any words. Without labels
 * that column is not read, and need not be there. */
#include "io/json.h"
#include "io/lines.h"
#include "train/data_images.h"

#include <math.h>
#include <string.h>

enum { MOST_COLUMNS = 1 << 16 };
static const char MARK[] = "\xEF\xBB\xBF";

typedef struct table {
    gsi_heap *heap;
    char *text; /* a copy of the line, cut into fields */
    size_t text_room;
    char **fields; /* [n] of the line */
    size_t n, room;
    char separator;        /* of fields: , ; or a tab; 0: no line was read yet */
    bool open;             /* the last of them begins with a quote that does not end */
    size_t columns, label; /* of every line; label == columns: there is none */
    size_t alone;          /* so many columns are numbers alone; 0: there are labels */
    double *values;        /* [rows][columns without the label] */
    size_t rows, value_room, n_values;
    char **classes; /* [rows] */
    size_t class_room;
} table;

/* ---- lines ---- */

/* The first of them outside of quotes. */
static char separator_of(const char *line)
{
    bool quoted = false;
    for (; *line; line++) {
        quoted ^= *line == '"';
        if (!quoted && strchr(",;\t", *line))
            return *line;
    }
    return ',';
}

/* Cuts the line at its separators; "a ""b"", c" is one field. In the first line, a byte order mark
 * is no part of it. */
static bool cut(table *t, const gsi_lines *l)
{
    if (!gsi_grow(t->heap, &t->text, &t->text_room, l->length + 1, 1))
        return false;
    memcpy(t->text, l->text, l->length);
    t->text[l->length] = 0;
    t->n = 0;
    t->open = false;
    if (!t->separator)
        t->separator = separator_of(t->text);
    for (char *p = t->text + (l->number == 1 && strncmp(t->text, MARK, 3) == 0 ? 3 : 0);; p++) {
        char *to = p, *start = p;
        bool quoted = *p == '"';
        if (!gsi_grow(t->heap, &t->fields, &t->room, t->n + 1, sizeof *t->fields))
            return false;
        for (p += quoted; *p && (quoted || *p != t->separator); p++) {
            if (quoted && *p == '"') {
                if (p[1] != '"') {
                    quoted = false;
                    continue;
                }
                p++;
            }
            *to++ = *p;
        }
        const bool last = *p == 0;
        t->open |= quoted;
        while (to > start && (to[-1] == ' ' || to[-1] == '\r' || to[-1] == '\t'))
            to--;
        *to = 0;
        t->fields[t->n++] = start + strspn(start, " \t");
        if (last || t->n > MOST_COLUMNS)
            return true;
    }
}

static bool is_number(double *out, const char *text) { return gsi_number(out, text, strlen(text)); }

/* A field of a first line that makes it titles. Where a value is missing, it does not. */
static bool is_title(const char *text)
{
    double x;
    return *text && !is_number(&x, text) && strcmp(text, "?") != 0 && strcmp(text, "NA") != 0;
}

/* The first line: titles, if a field of it that is not the last is a word, or one names the column
 * of classes: pandas numbers the others. */
static bool take_titles(table *t)
{
    static const char *const names[] = {"label", "class", "target", "y",
                                        "Label", "Class", "Target", "Y"};
    bool titles = false;
    const size_t last = t->n == t->alone ? t->n : t->n - 1;
    t->columns = t->n;
    t->label = last;
    for (size_t i = 0; i < t->n; i++) {
        titles |= i < last && is_title(t->fields[i]);
        for (size_t k = 0; k < GSI_COUNT(names); k++)
            if (strcmp(t->fields[i], names[k]) == 0) {
                t->label = i;
                titles = true;
            }
    }
    return titles;
}

static gs_status add_row(table *t, const gsi_lines *l, gs_error *error)
{
    if (t->n != t->columns)
        return gsi_lines_fail(l, error, GS_EFORMAT, "has %zu field%s, and the first line %zu", t->n,
                              t->n == 1 ? "" : "s", t->columns);
    if (!gsi_grow(t->heap, &t->values, &t->value_room, t->n_values + t->columns, sizeof(double)) ||
        !gsi_grow(t->heap, &t->classes, &t->class_room, t->rows + 1, sizeof(char *)))
        return gsi_lines_fail(l, error, GS_ENOMEM, "there is no memory for its numbers");
    for (size_t i = 0; i < t->n; i++) {
        if (i == t->label)
            continue;
        if (!is_number(&t->values[t->n_values], t->fields[i]) || !isfinite(t->values[t->n_values]))
            return *t->fields[i]
                       ? gsi_lines_fail(l, error, GS_EFORMAT, "field %zu is no number: %.40s",
                                        i + 1, t->fields[i])
                       : gsi_lines_fail(l, error, GS_EFORMAT,
                                        "field %zu is empty, and must be a number", i + 1);
        t->n_values++;
    }
    const char *class = t->alone ? "" : t->fields[t->label];
    if (!*class && !t->alone)
        return gsi_lines_fail(l, error, GS_EFORMAT, "field %zu, the class, is empty", t->label + 1);
    t->classes[t->rows] = gsi_copy_text(t->heap, class, strlen(class));
    if (!t->classes[t->rows])
        return gsi_lines_fail(l, error, GS_ENOMEM, "there is no memory for its classes");
    t->rows++;
    return GS_OK;
}

static gs_status read_lines(table *t, const char *path, const gs_alloc *hook, gs_error *error)
{
    gsi_lines l;
    bool more = true;
    gs_status status = gsi_lines_open(&l, path, hook, error);
    if (status != GS_OK)
        return status;
    while ((status = gsi_lines_next(&l, &more, error)) == GS_OK && more) {
        if (l.length == 0)
            continue;
        if (!cut(t, &l))
            status = gsi_lines_fail(&l, error, GS_ENOMEM, "there is no memory for its fields");
        else if (t->open)
            status =
                gsi_lines_fail(&l, error, GS_EFORMAT,
                               "field %zu begins with a quote that does not end in its line", t->n);
        else if (t->n > MOST_COLUMNS)
            status = gsi_lines_fail(&l, error, GS_ESIZE, "has more than %d fields", MOST_COLUMNS);
        else if (t->columns == 0 && t->n < 2 && t->alone != 1)
            status = gsi_lines_fail(
                &l, error, GS_EFORMAT,
                "has one column, and 2 are needed, with commas, semicolons or tabs between "
                "them");
        else if (t->columns > 0 || !take_titles(t))
            status = add_row(t, &l, error);
        if (status != GS_OK)
            break;
    }
    if (status == GS_OK && t->rows == 0)
        status = gsi_lines_fail(&l, error, GS_ESIZE, "there is no row of numbers");
    gsi_lines_close(&l);
    return status;
}

/* ---- classes ---- */

/* Whole numbers from 0 on stay numbers; else the words in order are the classes. Other numbers are
 * values to be predicted, of which each would be a class of its own. */
static gs_status set_classes(gs_data *data, table *t, int32_t *to, gs_error *error)
{
    bool numbers = true, words = false;
    const char *broken = NULL;
    for (size_t i = 0; i < t->rows; i++) {
        double x = -1;
        const bool is = is_number(&x, t->classes[i]);
        words |= !is;
        broken = is && x != floor(x) ? t->classes[i] : broken;
        numbers &= is && x >= 0 && x < 1 << 24 && x == floor(x);
        to[i] = numbers ? (int32_t)x : 0;
    }
    if (broken && !words)
        return gsi_fail(error, GS_EFORMAT,
                        "%s: column %zu has values such as %.40s, and classes are learnt: whole "
                        "numbers or words",
                        data->name, t->label + 1, broken);
    if (numbers && !(data->like && data->like->labels))
        return GS_OK;
    const char **names = gsi_new(&data->heap, t->rows * sizeof *names);
    if (!names)
        return gsi_fail(error, GS_ENOMEM, "%s: there is no memory for its classes", data->name);
    memcpy(names, t->classes, t->rows * sizeof *names);
    const gs_status status = gsi_data_labels(data, names, t->rows, error);
    gsi_free(&data->heap, names);
    for (size_t i = 0; status == GS_OK && i < t->rows; i++)
        to[i] = gsi_data_class(data, t->classes[i]);
    return status;
}

/* ---- the kind ---- */

static gs_status take(gs_data *data, const gs_data_config *config, table *t, gs_error *error)
{
    gsi_images *m = data->state;
    const size_t shape[] = {t->rows, t->columns - (t->label < t->columns)};
    gsi_idx *x = &m->x[GS_SPLIT_TRAIN], *y = &m->y[GS_SPLIT_TRAIN];
    gs_status status = gsi_idx_new(x, config->name, "f8", 2, shape, &data->heap, error);
    if (status != GS_OK)
        return status;
    memcpy(x->data, t->values, t->n_values * sizeof *t->values);
    if (t->alone)
        return gsi_images_alone(data, error);
    status = gsi_idx_new(y, config->name, "i4", 1, shape, &data->heap, error);
    if (status != GS_OK)
        return status;
    status = set_classes(data, t, y->data, error);
    return status == GS_OK ? gsi_images_set(data, config, error) : status;
}

static gs_status open_csv(gs_data *data, const gs_data_config *config, gs_error *error)
{
    table t = {.heap = &data->heap, .alone = config->unlabelled ? data->like->width : 0};
    const gs_alloc hook = data->heap.hook;
    gs_status status = read_lines(&t, config->name, &hook, error);
    if (status == GS_OK)
        status = take(data, config, &t, error);
    for (size_t i = 0; i < t.rows; i++)
        gsi_free(&data->heap, t.classes[i]);
    gsi_free(&data->heap, t.classes);
    gsi_free(&data->heap, t.values);
    gsi_free(&data->heap, t.fields);
    gsi_free(&data->heap, t.text);
    return status;
}

static bool fits(gsi_place *place)
{
    const size_t n = strlen(place->path);
    return !place->folder && n > 4 && strcmp(place->path + n - 4, ".csv") == 0;
}

const gsi_kind gsi_csv_set = {.fits = fits,
                              .state = sizeof(gsi_images),
                              .unlabelled = true,
                              .open = open_csv,
                              .read = gsi_images_read,
                              .close = gsi_images_close};
