/* Tables: CSV with a column of steps, as gradscale train --csv, Lightning and many others write
 * them; and trainer_state.json of Hugging Face. */
#include "cli/logs/logs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- CSV ---- */

enum { COLUMNS = 256 };

/* What a column may be called; the first of a row that a file has is taken. */
typedef enum field {
    STEP,
    LOSS,
    SCALE,
    FOUND,
    VERDICT,
    AMAX,
    NORM,
    RATE,
    LR,
    UNDERFLOW,
    VALID_LOSS,
    VALID_ACCURACY,
    FIELDS
} field;

static const char *const names[FIELDS] = {
    [STEP] = "step|global_step|iteration",
    [LOSS] = "loss|train_loss|train_loss_step|train/loss|training_loss|train_loss_epoch",
    [SCALE] = "scale|loss_scale|grad_scale|amp_scale|loss-scale",
    [FOUND] = "found_inf|overflow|skipped",
    [VERDICT] = "verdict",
    [AMAX] = "amax",
    [NORM] = "grad_norm|gnorm|grad_norm_total",
    [RATE] = "items_per_s",
    [LR] = "lr|learning_rate",
    [UNDERFLOW] = "underflow",
    [VALID_LOSS] = "val_loss|valid_loss|validation_loss|val/loss|eval_loss",
    [VALID_ACCURACY] = "val_acc|val_accuracy|valid_accuracy|eval_accuracy",
};

typedef struct table {
    int column[FIELDS]; /* -1: the file has none */
} table;

/* Cuts the next cell off *line, quotes removed; NULL: no more. */
static char *next_cell(char **line)
{
    char *cell = *line, *to;
    if (!cell)
        return NULL;
    bool quoted = false;
    char *c = to = cell;
    for (; *c && (quoted || *c != ','); c++) {
        if (*c == '"')
            quoted = !quoted;
        else
            *to++ = *c;
    }
    *line = *c ? c + 1 : NULL;
    *to = 0;
    cell += strspn(cell, " \t");
    for (size_t n = strlen(cell); n > 0 && (cell[n - 1] == ' ' || cell[n - 1] == '\r');)
        cell[--n] = 0;
    return cell;
}

/* Its rank among the names of a field; -1: it is none. Lightning's LearningRateMonitor writes
 * lr-CLASS of the optimizer, and lr-CLASS-momentum. */
static int rank_of(field f, const char *cell)
{
    const bool monitor = f == LR && strncmp(cell, "lr-", 3) == 0 && !strstr(cell, "-momentum") &&
                         !strstr(cell, "-weight_decay");
    return monitor ? COLUMNS : cli_read_choice(names[f], cell);
}

static bool read_header(table *t, char *line)
{
    int rank[FIELDS], known = 0;
    if (strncmp(line, "\xEF\xBB\xBF", 3) == 0)
        line += 3;
    for (int f = 0; f < FIELDS; f++)
        t->column[f] = rank[f] = -1;
    char *cell;
    for (int c = 0; c < COLUMNS && (cell = next_cell(&line)); c++)
        for (int f = 0; f < FIELDS; f++) {
            const int at = rank_of((field)f, cell);
            if (at >= 0 && (rank[f] < 0 || at < rank[f])) {
                known += rank[f] < 0;
                rank[f] = at;
                t->column[f] = c;
            }
        }
    return t->column[STEP] >= 0 && known >= 2;
}

static bool csv_fits(const char *start)
{
    const size_t n = strcspn(start, "\n");
    table t;
    if (n > 65536 || start[0] == '{' || start[0] == '[' || !memchr(start, ',', n))
        return false;
    char *line = cli_resize(NULL, n + 1);
    memcpy(line, start, n);
    line[n] = 0;
    const bool fits = read_header(&t, line);
    free(line);
    return fits;
}

/* "true", "1.0", "skip": 1; "": -1. */
static int flag_of(const char *cell)
{
    double x;
    if (!*cell)
        return -1;
    if (cli_read_double(&x, cell))
        return x != 0;
    return cli_read_choice("true|True|skip|fail", cell) >= 0;
}

static void fill(double *to, double value)
{
    if (isnan(*to))
        *to = value;
}

/* Rows of one step are one step: Lightning writes its training and its validation apart. */
static int csv_read(logs_reader *r, const char *path)
{
    table t;
    bool any = false;
    gs_log_step step = logs_new_step(r, 0);
    if (!logs_next(r) || !read_header(&t, r->line))
        return cli_fail("%.120s: its first line has no column 'step'", path);
    while (logs_next(r)) {
        char *cells[COLUMNS], *line = r->line;
        double value[FIELDS];
        size_t n = 0;
        while (n < COLUMNS && (cells[n] = next_cell(&line)))
            n++;
        for (int f = 0; f < FIELDS; f++) {
            const bool has = t.column[f] >= 0 && (size_t)t.column[f] < n;
            if (!has || !cli_read_double(&value[f], cells[t.column[f]]))
                value[f] = (double)NAN;
        }
        if (!(value[STEP] >= 0 && value[STEP] < 0x1p53))
            continue;
        const uint64_t number = (uint64_t)value[STEP];
        if (any && number != step.step) {
            logs_tell(r, &step);
            any = false;
        }
        if (!any)
            step = logs_new_step(r, number);
        if (!isnan(value[VALID_LOSS]))
            logs_tell_valid(r, number, value[VALID_LOSS], value[VALID_ACCURACY]);
        any |= isnan(value[VALID_LOSS]) || !isnan(value[LOSS]);
        fill(&step.loss, value[LOSS]);
        fill(&step.scale, value[SCALE]);
        fill(&step.amax, value[AMAX]);
        fill(&step.grad_norm, value[NORM]);
        fill(&step.lr, value[LR]);
        fill(&step.underflow, value[UNDERFLOW]);
        fill(&step.items_per_s, value[RATE]);
        const int column = t.column[FOUND] >= 0 ? t.column[FOUND] : t.column[VERDICT];
        if (step.found_inf < 0 && column >= 0 && (size_t)column < n)
            step.found_inf = flag_of(cells[column]);
        if (t.column[VERDICT] >= 0 && (size_t)t.column[VERDICT] < n)
            step.verdict = strcmp(cells[t.column[VERDICT]], "apply") == 0 ? "apply" : "skip";
    }
    if (any)
        logs_tell(r, &step);
    return CLI_GO;
}

const logs_kind logs_csv = {"CSV", csv_fits, csv_read};

/* ---- trainer_state.json ---- */

static bool state_fits(const char *start)
{
    start += strspn(start, " \t\r\n");
    return *start == '{' && strstr(start, "\"log_history\"");
}

/* Its rows are means over steps. A gradient norm that is not finite is of a step that fp16's scaler
 * has skipped. */
static int state_read(logs_reader *r, const char *path)
{
    enum { MOST = 256 << 20 };
    size_t room = 1 << 20, n = 0;
    char *text = cli_resize(NULL, room + 1);
    for (size_t got; n <= MOST && (got = fread(text + n, 1, room - n, r->file)) > 0;) {
        n += got;
        if (n == room)
            text = cli_resize(text, (room *= 2) + 1);
    }
    text[n] = 0;
    json_t *root = n <= MOST && strlen(text) == n ? logs_json(text) : NULL;
    free(text);
    const json_t *history = json_object_get(root, "log_history");
    size_t i;
    json_t *row;
    if (!json_is_array(history)) {
        json_decref(root);
        return cli_fail("%.120s: is not JSON with an array log_history", path);
    }
    r->about->lines = json_array_size(history);
    json_array_foreach(history, i, row)
    {
        const double number = logs_member(row, "step");
        if (!(number >= 0 && number < 0x1p53))
            continue;
        if (json_object_get(row, "eval_loss"))
            logs_tell_valid(r, (uint64_t)number, logs_member(row, "eval_loss"),
                            logs_member(row, "eval_accuracy"));
        if (!json_object_get(row, "loss"))
            continue;
        const json_t *norm = json_object_get(row, "grad_norm");
        gs_log_step step = logs_new_step(r, (uint64_t)number);
        step.loss = logs_member(row, "loss");
        step.lr = logs_member(row, "learning_rate");
        step.grad_norm = logs_member(row, "grad_norm");
        step.found_inf = norm ? isnan(step.grad_norm) : -1;
        logs_tell(r, &step);
    }
    json_decref(root);
    return CLI_GO;
}

const logs_kind logs_trainer_state = {"Hugging Face trainer_state.json", state_fits, state_read};
