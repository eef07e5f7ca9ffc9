/* Logs of runs, a line at a time.
 *
 * (1) steps are increasing: a step that comes again voids what was logged from it on, and a resume
 *     at N voids what came after N.
 * (2) A line that is not understood is counted and costs nothing else; only a file in which no line
 *     is understood is refused.
 * (3) Memory follows what the file holds, never what it says. */
#include "report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- lines ---- */

enum {
    LINE_BYTES = 8 << 20,   /* a longer one is not a line of a log, */
    TEXT_BYTES = 400,       /* or a name */
    FUTILE_BYTES = 64 << 20 /* after so many without a line of a log there will be none */
};

typedef struct reader {
    FILE *file;
    size_t at, filled; /* of the buffer */
    uint64_t read;     /* bytes */
    char *text;        /* the line */
    size_t length, room;
    bool is_whole; /* it ended with a newline */
    bool is_log;   /* a line has been understood */
    char buffer[1 << 16];
} reader;

static void append(reader *r, const char *text, size_t n)
{
    if (r->length + n > LINE_BYTES) /* what remains is no JSON any more */
        return;
    while (r->room < r->length + n) {
        r->room = r->room ? 2 * r->room : 1 << 12;
        r->text = cli_resize(r->text, r->room);
    }
    if (n > 0)
        memcpy(r->text + r->length, text, n);
    r->length += n;
}

/* False at the end. */
static bool next_line(reader *r)
{
    r->length = 0;
    r->is_whole = false;
    for (;;) {
        if (r->at == r->filled) {
            r->at = 0;
            r->filled = fread(r->buffer, 1, sizeof r->buffer, r->file);
            r->read += r->filled;
            if (r->filled == 0 || (!r->is_log && r->read > FUTILE_BYTES))
                return r->length > 0;
        }
        const char *from = r->buffer + r->at;
        const char *newline = memchr(from, '\n', r->filled - r->at);
        const size_t n = newline ? (size_t)(newline - from) : r->filled - r->at;
        append(r, from, n);
        r->at += n + (newline != NULL);
        r->is_whole = newline != NULL;
        if (newline)
            return true;
    }
}

/* Python and others write NaN and Infinity, which JSON has not: outside strings they become "",
 * which is no number either, and no longer than the word. */
static void replace_words(char *text, size_t length)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    for (size_t i = 0, in_string = 0; i < length; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        if (in_string) {
            i += text[i] == '\\';
            continue;
        }
        for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
            const size_t n = strlen(words[w]);
            if (length - i < n || memcmp(text + i, words[w], n) != 0)
                continue;
            memset(text + i, ' ', n);
            memset(text + i, '"', 2);
            i += n - 1;
            break;
        }
    }
}

static json_t *parse(reader *r)
{
    static const size_t flags = JSON_DECODE_INT_AS_REAL; /* no integer is too large */
    json_t *root = json_loadb(r->text, r->length, flags, NULL);
    if (!root && r->length > 0 && memchr(r->text, '{', r->length)) {
        replace_words(r->text, r->length);
        root = json_loadb(r->text, r->length, flags, NULL);
    }
    return root;
}

/* ---- members ---- */

/* NaN: it is none, or beyond anything that was measured, so that sums and ranges stay finite. */
static double to_number(const json_t *value)
{
    const double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    return fabs(number) <= 1e30 ? number : (double)NAN;
}

static double number(const json_t *object, const char *key)
{
    return to_number(json_object_get(object, key));
}

/* An integer from 0 to 2^53. */
static bool read_step(uint64_t *out, const json_t *object)
{
    const double value = number(object, "step");
    if (!(value >= 0 && value <= 0x1p53) || value != floor(value))
        return false;
    *out = (uint64_t)value;
    return true;
}

static char *copy(const char *text) { return strcpy(cli_resize(NULL, strlen(text) + 1), text); }

static void read_text(char **out, const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    if (!text)
        return;
    free(*out);
    *out = copy(text);
}

static void *grow(void *block, size_t n, size_t *room, size_t size)
{
    if (n < *room)
        return block;
    *room = *room ? 2 * *room : 64;
    return cli_resize(block, *room * size);
}

static void free_pairs(report_pairs *pairs)
{
    for (size_t i = 0; i < pairs->n; i++) {
        free(pairs->at[i].key);
        free(pairs->at[i].value);
    }
    free(pairs->at);
    *pairs = (report_pairs){0};
}

/* An object of strings, numbers and booleans, in its order. */
static void read_pairs(report_pairs *out, json_t *object, const char *key)
{
    json_t *from = json_object_get(object, key), *value;
    const char *name;
    if (!json_is_object(from))
        return;
    free_pairs(out);
    out->at = cli_resize(NULL, REPORT_PAIRS * sizeof *out->at);
    json_object_foreach(from, name, value)
    {
        char text[32] = "";
        if (json_is_number(value))
            snprintf(text, sizeof text, "%.10g", json_number_value(value));
        else if (json_is_boolean(value))
            snprintf(text, sizeof text, "%s", json_is_true(value) ? "true" : "false");
        if (out->n < REPORT_PAIRS)
            out->at[out->n++] = (report_pair){
                copy(name), copy(json_is_string(value) ? json_string_value(value) : text),
                to_number(value)};
    }
}

const char *report_value(const report_pairs *pairs, const char *key)
{
    for (size_t i = 0; i < pairs->n; i++)
        if (strcmp(pairs->at[i].key, key) == 0)
            return pairs->at[i].value;
    return NULL;
}

/* ---- lines of each kind; false: not understood ---- */

/* Drops what was logged of steps above `step`. */
static void drop_after(report_run *run, double step)
{
    for (; run->n > 0 && (double)run->steps[run->n - 1].step > step; run->n--)
        run->void_steps++;
    while (run->valids > 0 && (double)run->valid[run->valids - 1].step > step)
        run->valids--;
    for (; run->cell_count > 0 && (double)run->cells[run->cell_count - 1].step > step;
         run->cell_count--) {
        const report_cell *c = &run->cells[run->cell_count - 1];
        run->layers[c->layer].lost -= (double)c->lost;
        run->layers[c->layer].samples--;
    }
    for (size_t i = 0; (double)run->exponents_step > step && i < run->layer_count; i++)
        run->layers[i].n = 0;
}

static bool add_step(report_run *run, const json_t *line)
{
    report_step s = {0};
    if (!read_step(&s.step, line))
        return false;
    const char *verdict = json_string_value(json_object_get(line, "verdict"));
    const double scale = number(line, "scale"), reruns = number(line, "reruns");
    const double lost = number(line, "underflow");
    s.loss = (float)number(line, "loss");
    s.log2_scale = scale > 0 ? (float)log2(scale) : NAN;
    s.lost = lost >= 0 && lost <= 1 ? (float)lost : NAN;
    s.rate = (float)number(line, "items_per_s");
    s.reruns = reruns >= 1 ? reruns < 255 ? (unsigned char)reruns : 255 : 0;
    s.skipped = verdict ? strcmp(verdict, "apply") != 0
                        : json_is_true(json_object_get(line, "found_inf")) != 0;
    if (run->n > 0 && s.step <= run->steps[run->n - 1].step)
        drop_after(run, (double)s.step - 1);
    run->steps = grow(run->steps, run->n, &run->steps_room, sizeof *run->steps);
    run->steps[run->n++] = s;
    return true;
}

static bool add_run(report_run *run, json_t *line)
{
    read_text(&run->name, line, "name");
    read_text(&run->model, line, "model");
    read_text(&run->data, line, "data");
    read_text(&run->version, line, "version");
    read_text(&run->time, line, "time");
    run->parameters = number(line, "parameters");
    read_pairs(&run->config, line, "config");
    read_pairs(&run->machine, line, "machine");
    read_pairs(&run->memory, line, "memory");
    free(run->status); /* it goes on */
    run->status = NULL;
    return true;
}

static bool add_resume(report_run *run, json_t *line)
{
    uint64_t step;
    if (!read_step(&step, line))
        return false;
    drop_after(run, (double)step);
    run->resumes++;
    free(run->status);
    run->status = NULL;
    return true;
}

static bool add_valid(report_run *run, json_t *line)
{
    report_valid v = {.loss = number(line, "loss"), .accuracy = number(line, "accuracy")};
    if (!read_step(&v.step, line))
        return false;
    if (run->valids > 0 && v.step <= run->valid[run->valids - 1].step)
        while (run->valids > 0 && run->valid[run->valids - 1].step >= v.step)
            run->valids--;
    run->valid = grow(run->valid, run->valids, &run->valid_room, sizeof *run->valid);
    run->valid[run->valids++] = v;
    return true;
}

/* Its index, or REPORT_LAYERS if there are too many or it is no name. They come in the same order
 * every time: the one after the last is tried first. */
static size_t layer_of(report_run *run, const char *name, size_t guess)
{
    if (guess < run->layer_count && strcmp(run->layers[guess].name, name) == 0)
        return guess;
    for (size_t i = 0; i < run->layer_count; i++)
        if (strcmp(run->layers[i].name, name) == 0)
            return i;
    if (run->layer_count == REPORT_LAYERS || strlen(name) > TEXT_BYTES)
        return REPORT_LAYERS;
    run->layers = grow(run->layers, run->layer_count, &run->layer_room, sizeof *run->layers);
    run->layers[run->layer_count] = (report_layer){.name = copy(name)};
    return run->layer_count++;
}

static bool add_layers(report_run *run, json_t *line)
{
    const json_t *layers = json_object_get(line, "layers");
    report_cell c;
    if (!read_step(&c.step, line) || !json_is_array(layers) ||
        (run->cell_count > 0 && c.step < run->cells[run->cell_count - 1].step))
        return false;
    size_t at = 0;
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *l = json_array_get(layers, i);
        const char *name = json_string_value(json_object_get(l, "name"));
        const double lost = number(l, "flushed");
        if (!name || !(lost >= 0 && lost <= 1))
            continue;
        at = layer_of(run, name, at);
        if (at == REPORT_LAYERS)
            continue;
        c.layer = (uint32_t)at;
        c.lost = (float)lost;
        run->layers[at].lost += (double)c.lost;
        run->layers[at++].samples++;
        run->cells = grow(run->cells, run->cell_count, &run->cell_room, sizeof *run->cells);
        run->cells[run->cell_count++] = c;
    }
    return true;
}

static void read_histogram(report_layer *to, const json_t *l)
{
    const json_t *counts = json_object_get(l, "counts");
    const double first = number(l, "first"), zero = number(l, "zero"), bad = number(l, "bad");
    const size_t n = json_array_size(counts);
    to->n = 0;
    if (!(fabs(first) <= 2000) || n == 0 || n > REPORT_EXPONENTS)
        return;
    to->first = (int)first;
    to->counts = cli_resize(to->counts, n * sizeof *to->counts);
    for (size_t i = 0; i < n; i++) {
        const double count = json_number_value(json_array_get(counts, i));
        to->counts[i] = count > 0 && count <= 0x1p63 ? count : 0;
    }
    to->n = n;
    to->zero = zero > 0 ? zero : 0;
    to->bad = bad > 0 ? bad : 0;
}

static bool add_exponents(report_run *run, json_t *line)
{
    const json_t *layers = json_object_get(line, "layers");
    if (!read_step(&run->exponents_step, line) || !json_is_array(layers))
        return false;
    read_text(&run->half, line, "half");
    run->exponents_scale = number(line, "scale");
    for (size_t i = 0; i < run->layer_count; i++)
        run->layers[i].n = 0;
    size_t at = 0;
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *l = json_array_get(layers, i);
        const char *name = json_string_value(json_object_get(l, "name"));
        at = name ? layer_of(run, name, at) : REPORT_LAYERS;
        if (at < REPORT_LAYERS)
            read_histogram(&run->layers[at++], l);
    }
    return true;
}

static bool add_end(report_run *run, json_t *line)
{
    read_text(&run->status, line, "status");
    if (!run->status)
        run->status = copy("done");
    run->seconds = number(line, "seconds");
    read_pairs(&run->phases, line, "phases");
    return true;
}

static bool pass_over(report_run *run, json_t *line) { return run && line; }

static bool add_line(report_run *run, json_t *line)
{
    static const struct {
        const char *event;
        bool (*add)(report_run *run, json_t *line);
    } events[] = {{"run", add_run},         {"resume", add_resume}, {"valid", add_valid},
                  {"layers", add_layers},   {"end", add_end},       {"exponents", add_exponents},
                  {"checkpoint", pass_over}};
    if (!json_is_object(line))
        return false;
    const json_t *event = json_object_get(line, "event");
    if (!event)
        return add_step(run, line);
    for (size_t i = 0; json_is_string(event) && i < sizeof events / sizeof events[0]; i++)
        if (strcmp(json_string_value(event), events[i].event) == 0)
            return events[i].add(run, line);
    return json_is_string(event); /* a newer kind */
}

/* ---- files ---- */

static bool is_blank(const reader *r)
{
    for (size_t i = 0; i < r->length; i++)
        if (!strchr(" \t\r", r->text[i]) || r->text[i] == 0)
            return false;
    return true;
}

static void read_lines(report_run *run, reader *r)
{
    struct stat about;
    const double size = fstat(fileno(r->file), &about) == 0 ? (double)about.st_size : 0;
    while ((r->is_log || r->read <= FUTILE_BYTES) && next_line(r)) {
        if (run->lines % 4096 == 0)
            cli_progress((double)r->read, size, "reading %s", run->path);
        if (is_blank(r))
            continue;
        run->lines++;
        json_t *line = parse(r);
        const bool understood = line && add_line(run, line);
        r->is_log |= understood;
        if (!understood && !r->is_whole)
            run->is_cut = true;
        else if (!understood)
            run->damaged++;
        json_decref(line);
    }
}

int report_read(report_run *run, const char *path)
{
    *run = (report_run){.path = path, .parameters = (double)NAN, .seconds = (double)NAN};
    FILE *file = fopen(path, "r");
    if (!file)
        return cli_fail("%s: cannot be opened: %s", path, strerror(errno));
    reader *r = cli_resize(NULL, sizeof *r);
    *r = (reader){.file = file};
    errno = 0;
    read_lines(run, r);
    const int reason = ferror(file) ? errno : 0;
    fclose(file);
    free(r->text);
    free(r);
    if (reason)
        return cli_fail("%s: cannot be read: %s", path, strerror(reason));
    if (run->lines == 0)
        return cli_fail("%s: is empty: no line has been logged", path);
    if (run->damaged + run->is_cut == run->lines)
        return cli_fail("%s: is not a log of gradscale train: no line of it is a JSON object with "
                        "a step or an event",
                        path);
    if (!run->name) {
        const char *slash = strrchr(path, '/');
        run->name = copy(slash ? slash + 1 : path);
    }
    report_judge(run);
    return CLI_GO;
}

void report_free(report_run *run)
{
    char **const texts[] = {&run->name, &run->model,  &run->data, &run->version,
                            &run->time, &run->status, &run->half};
    report_pairs *const pairs[] = {&run->config, &run->machine, &run->memory, &run->phases};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(*texts[i]);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        free_pairs(pairs[i]);
    for (size_t i = 0; i < run->layer_count; i++) {
        free(run->layers[i].name);
        free(run->layers[i].counts);
    }
    free(run->layers);
    free(run->steps);
    free(run->valid);
    free(run->cells);
}
