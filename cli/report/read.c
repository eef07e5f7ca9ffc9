/* The log of a run (gradscale/log.h reads its lines) into a report_run.
 *
 * (1) steps are increasing: a step that comes again voids what was logged from it on, and a resume
 *     at N voids what came after N.
 * (2) A line that is not understood is counted and costs nothing else; only a file in which no line
 *     is understood is refused.
 * (3) Memory follows what the file holds, never what it says. */
#include "cli/logs/logs.h"
#include "cli/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    TEXT_BYTES = 400,       /* a longer name is none */
    FUTILE_BYTES = 64 << 20 /* after so many without a line of a log there will be none */
};

/* ---- members ---- */

/* NaN: it is none, or beyond anything that was measured, so that sums and ranges stay finite. */
static double sane(double number) { return fabs(number) <= 1e30 ? number : (double)NAN; }

static double sane_count(uint64_t n) { return n == GS_LOG_NONE ? (double)NAN : (double)n; }

/* The largest integer up to which a double holds them all. */
static bool is_step(uint64_t step) { return step <= (uint64_t)1 << 53; }

static char *copy(const char *text) { return strcpy(cli_resize(NULL, strlen(text) + 1), text); }

static void set_text(char **out, const char *text)
{
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

static void set_pairs(report_pairs *out, const gs_log_pairs *from)
{
    if (!from->at)
        return;
    free_pairs(out);
    out->at = cli_resize(NULL, REPORT_PAIRS * sizeof *out->at);
    for (size_t i = 0; i < from->n && out->n < REPORT_PAIRS; i++) {
        const gs_log_pair *p = &from->at[i];
        char text[32];
        snprintf(text, sizeof text, "%.10g", p->number);
        out->at[out->n++] =
            (report_pair){copy(p->key), copy(p->value ? p->value : text), sane(p->number)};
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
        run->layers[c->layer].underflow -= (double)c->underflow;
        run->layers[c->layer].samples--;
    }
    for (size_t i = 0; (double)run->exponents_step > step && i < run->layer_count; i++)
        run->layers[i].n = 0;
}

static bool add_step(report_run *run, const gs_log_line *line)
{
    gs_log_step told = line->u.step;
    const gs_log_step *from = &told;
    const double scale = sane(from->scale), underflow = from->underflow;
    const bool tells = logs_infer(&run->last_scale, &told);
    const uint64_t reruns = from->reruns == GS_LOG_NONE ? 0 : from->reruns;
    if (!is_step(from->step))
        return false;
    run->tells_skips |= tells;
    run->tells_retries |= from->reruns != GS_LOG_NONE;
    if (run->n > 0 && from->step <= run->steps[run->n - 1].step)
        drop_after(run, (double)from->step - 1);
    run->steps = grow(run->steps, run->n, &run->steps_room, sizeof *run->steps);
    run->steps[run->n++] = (report_step){
        .step = from->step,
        .loss = (float)sane(from->loss),
        .log2_scale = scale > 0 ? (float)log2(scale) : NAN,
        .underflow = underflow >= 0 && underflow <= 1 ? (float)underflow : NAN,
        .rate = (float)sane(from->items_per_s),
        .grad_norm = (float)sane(from->grad_norm),
        .lr = (float)sane(from->lr),
        .log2_amax = from->amax > 0 ? (float)log2(from->amax) : NAN,
        .reruns = (unsigned char)(reruns < 255 ? reruns : 255),
        .skipped = from->verdict ? strcmp(from->verdict, "apply") != 0 : from->found_inf == 1};
    report_step *s = &run->steps[run->n - 1];
    s->forward = s->skipped && from->reason && strcmp(from->reason, "forward") == 0;
    s->bad = from->found_inf == 1 && reruns == 0; /* else it was mended */
    return true;
}

static bool add_run(report_run *run, const gs_log_line *line)
{
    const gs_log_run *from = &line->u.run;
    set_text(&run->name, from->name);
    set_text(&run->model, from->model);
    set_text(&run->data, from->data);
    set_text(&run->version, from->version);
    set_text(&run->time, from->time);
    run->parameters = sane_count(from->parameters);
    set_pairs(&run->config, &from->config);
    set_pairs(&run->machine, &from->machine);
    set_pairs(&run->memory, &from->memory);
    free(run->status); /* it goes on */
    run->status = NULL;
    return true;
}

static bool add_resume(report_run *run, const gs_log_line *line)
{
    if (!is_step(line->u.resume.step))
        return false;
    drop_after(run, (double)line->u.resume.step);
    run->resumes++;
    free(run->status);
    run->status = NULL;
    return true;
}

static bool add_valid(report_run *run, const gs_log_line *line)
{
    const gs_log_valid *from = &line->u.valid;
    if (!is_step(from->step))
        return false;
    while (run->valids > 0 && run->valid[run->valids - 1].step >= from->step)
        run->valids--;
    run->valid = grow(run->valid, run->valids, &run->valid_room, sizeof *run->valid);
    run->valid[run->valids++] = (report_valid){from->step, sane(from->loss), sane(from->accuracy)};
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

/* Gradients that were thrown away, or are not finite, tell nothing of what training lost. */
static bool is_lost(const report_run *run, uint64_t step)
{
    const report_step *last = run->n > 0 ? &run->steps[run->n - 1] : NULL;
    return last && last->step == step && (last->skipped || last->bad);
}

static bool add_layers(report_run *run, const gs_log_line *line)
{
    const gs_log_layers *from = &line->u.layers;
    if (!is_step(from->step) || !from->layers.at ||
        (run->cell_count > 0 && from->step < run->cells[run->cell_count - 1].step))
        return false;
    const bool is_void = is_lost(run, from->step);
    size_t at = 0;
    for (size_t i = 0; i < from->layers.n; i++) {
        const gs_log_layer *l = &from->layers.at[i];
        if (!l->name || !(l->underflow >= 0 && l->underflow <= 1))
            continue;
        at = layer_of(run, l->name, at);
        if (at == REPORT_LAYERS || is_void)
            continue;
        const report_cell c = {from->step, (uint32_t)at, (float)l->underflow};
        run->layers[at].underflow += (double)c.underflow;
        run->layers[at++].samples++;
        run->cells = grow(run->cells, run->cell_count, &run->cell_room, sizeof *run->cells);
        run->cells[run->cell_count++] = c;
    }
    return true;
}

static void set_histogram(report_layer *to, const gs_log_histogram *from)
{
    const double zero = sane_count(from->zero), bad = sane_count(from->bad);
    to->n = 0;
    if (!(from->first >= -2000 && from->first <= 2000) || from->counts.n == 0 ||
        from->counts.n > REPORT_EXPONENTS)
        return;
    to->first = from->first;
    to->n = from->counts.n;
    to->counts = cli_resize(to->counts, to->n * sizeof *to->counts);
    for (size_t i = 0; i < to->n; i++)
        to->counts[i] = (double)from->counts.at[i];
    to->zero = zero > 0 ? zero : 0;
    to->bad = bad > 0 ? bad : 0;
}

static bool add_exponents(report_run *run, const gs_log_line *line)
{
    const gs_log_exponents *from = &line->u.exponents;
    if (!is_step(from->step) || !from->layers.at)
        return false;
    set_text(&run->half, from->half);
    bool any = false;
    for (size_t i = 0; i < from->layers.n; i++)
        any |= from->layers.at[i].counts.n > 0;
    if (!any) /* nothing finite: what was told before is the last to be shown */
        return true;
    run->exponents_step = from->step;
    run->exponents_scale = sane(from->scale);
    for (size_t i = 0; i < run->layer_count; i++)
        run->layers[i].n = 0;
    size_t at = 0;
    for (size_t i = 0; i < from->layers.n; i++) {
        const gs_log_histogram *h = &from->layers.at[i];
        at = h->name ? layer_of(run, h->name, at) : REPORT_LAYERS;
        if (at < REPORT_LAYERS)
            set_histogram(&run->layers[at++], h);
    }
    return true;
}

static bool add_end(report_run *run, const gs_log_line *line)
{
    set_text(&run->status, line->u.end.status);
    if (!run->status)
        run->status = copy("done");
    run->seconds = sane(line->u.end.seconds);
    set_pairs(&run->phases, &line->u.end.phases);
    return true;
}

static bool pass_over(report_run *run, const gs_log_line *line) { return run && line; }

static bool add_line(report_run *run, const gs_log_line *line)
{
    static bool (*const add[])(report_run * run, const gs_log_line *line) = {
        [GS_LOG_STEP] = add_step,        [GS_LOG_RUN] = add_run,
        [GS_LOG_RESUME] = add_resume,    [GS_LOG_VALID] = add_valid,
        [GS_LOG_LAYERS] = add_layers,    [GS_LOG_EXPONENTS] = add_exponents,
        [GS_LOG_CHECKPOINT] = pass_over, [GS_LOG_END] = add_end,
        [GS_LOG_OTHER] = pass_over,
    };
    return add[line->kind](run, line);
}

/* ---- files ---- */

static gs_status read_lines(report_run *run, gs_log_file *file, gs_error *error)
{
    struct stat about;
    const double size = stat(run->path, &about) == 0 ? (double)about.st_size : 0;
    bool is_log = false;
    uint64_t last = 0; /* line that was counted */
    while (is_log || gs_log_file_bytes(file) <= FUTILE_BYTES) {
        gs_log_line line;
        int more;
        if (run->lines % 4096 == 0)
            cli_progress((double)gs_log_file_bytes(file), size, "reading %s", run->path);
        const gs_status status = gs_log_next(&line, &more, file, error);
        if (status != GS_OK && status != GS_EFORMAT && status != GS_ESIZE)
            return status;
        if (!more)
            break;
        const bool understood = status == GS_OK && add_line(run, &line);
        run->tells_end |= understood && line.kind != GS_LOG_STEP;
        if (understood && !run->has_loss && (line.kind == GS_LOG_STEP || line.kind == GS_LOG_VALID))
            run->has_loss = gs_log_has(file, "loss", NULL) == GS_OK;
        const bool is_rest = line.number == last; /* of a line too long, counted already */
        last = line.number;
        is_log |= understood;
        run->lines += !is_rest;
        if (!understood && !line.is_whole && status != GS_ESIZE)
            run->is_cut = true;
        else if (!understood)
            run->damaged += !is_rest;
    }
    return GS_OK;
}

/* A line of another framework's log. */
static void add_foreign(void *user, const gs_log_line *line)
{
    report_run *run = user;
    const double loss = line->kind == GS_LOG_VALID ? line->u.valid.loss : line->u.step.loss;
    run->has_loss |= !isnan(loss);
    add_line(run, line);
}

static int read_foreign(report_run *run, const logs_kind *kind)
{
    logs_about about;
    const int code = logs_read(kind, run->path, add_foreign, run, &about);
    run->lines = about.lines;
    run->kind = about.kind;
    run->only_skips = about.only_skips;
    if (code == CLI_GO && run->n + run->valids == 0)
        return cli_fail("%s: looks like a log of %s, but no line of it tells of a step", run->path,
                        about.kind);
    run->status = copy("done"); /* such logs do not say; what is there is all there is */
    return code;
}

static int finish(report_run *run)
{
    if (!run->name) {
        const char *slash = strrchr(run->path, '/');
        run->name = copy(slash ? slash + 1 : run->path);
    }
    report_judge(run);
    return CLI_GO;
}

int report_read(report_run *run, const char *path)
{
    *run = (report_run){
        .path = path, .parameters = (double)NAN, .seconds = (double)NAN, .last_scale = (double)NAN};
    const int pickle = logs_refuse_pickle(path, "log with loss and scale of every step instead");
    if (pickle != CLI_GO)
        return pickle;
    const logs_kind *kind = logs_find(path);
    if (kind) {
        const int code = read_foreign(run, kind);
        return code == CLI_GO ? finish(run) : code;
    }
    gs_log_file *file;
    gs_error error;
    gs_status status = gs_log_open(&file, path, NULL, &error);
    if (status == GS_OK)
        status = read_lines(run, file, &error);
    gs_log_close(file);
    run->unread = status != GS_OK;
    if (run->unread)
        return cli_fail_input("", status, &error);
    if (run->lines == 0)
        return cli_fail("%s: is empty: no line has been logged", path);
    if (run->damaged + run->is_cut == run->lines)
        return cli_fail("%s: is not a log of gradscale train (no line of it is a JSON object with "
                        "a step or an event), nor of Megatron-LM, DeepSpeed, Apex, fairseq or "
                        "Hugging Face, nor a CSV file with a column 'step'",
                        path);
    return finish(run);
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
