/* From what was given to what is meant: opens the data, which decides the model that fits, and
 * fills in everything that was left open, so that --print-config can say it. */
#include "cli/train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the data ---- */

/* The sources of this project: where we are, where the program was built, or the text that was
 * installed with it. */
static const char *find_sources(char root[4096])
{
    static const char mark[] = "src/train/step.c"; /* headers are installed elsewhere too */
    static const struct place {                    /* from the folder of the program */
        const char *root, *mark;
    } places[] = {{"/..", "/src/train/step.c"}, {"/../share/gradscale/self.txt", ""}};
    char path[4096 + sizeof mark + 1];
    ssize_t n = readlink("/proc/self/exe", root, 4096 - 32);
    if (access(mark, R_OK) == 0)
        return ".";
    while (n > 0 && root[n - 1] != '/')
        n--;
    for (size_t i = 0; n > 1 && i < sizeof places / sizeof places[0]; i++) {
        snprintf(root + n - 1, 32, "%s", places[i].root);
        snprintf(path, sizeof path, "%s%s", root, places[i].mark);
        if (access(path, R_OK) == 0)
            return root;
    }
    return NULL;
}

int train_data_open(gs_data **out, gs_data_config *config)
{
    char root[4096];
    gs_error error = {0};
    const bool self = strcmp(config->name, "self") == 0;
    const char *sources = self ? find_sources(root) : NULL;
    if (self && !sources)
        return cli_fail(
            "--data self: the sources of gradscale are neither here nor with the program: "
            "go to their folder");
    config->root = sources;
    const gs_status status = gs_data_open(out, config, NULL, &error);
    config->root = NULL;
    return status == GS_OK ? CLI_GO : cli_fail_input("--data", status, &error);
}

/* What a checkpoint is to say of it. */
static int describe_data(train_job *j)
{
    size_t used = 0;
    gs_error error = {0};
    gs_status status = gs_data_describe(NULL, 0, &used, j->data, &error);
    if (status == GS_ESIZE) {
        j->about_data = cli_resize(NULL, used + 1);
        status = gs_data_describe(j->about_data, used + 1, NULL, j->data, &error);
    }
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

static int open_data(train_job *j, const char *checkpoint)
{
    char *tokenizer = NULL;
    if (!j->o.data)
        j->o.data = train_models[j->o.model > 0 ? j->o.model - 1 : 1].data;
    const uint64_t time = j->o.context == CLI_AUTO ? 0 : j->o.context;
    unsigned width = 0, height = 0;
    int used = 0;
    if (j->o.resize &&
        (sscanf(j->o.resize, "%5ux%5u%n", &width, &height, &used) != 2 || j->o.resize[used] ||
         width < 1 || height < 1 || width > 1 << 14 || height > 1 << 14))
        return cli_fail("--resize needs a size such as 64x64, not '%.40s'", j->o.resize);
    int code = train_tokenizer(&tokenizer, &j->o, checkpoint);
    if (code != CLI_GO)
        return code;
    gs_data_config config = {.size = sizeof config,
                             .name = j->o.data,
                             .labels = j->o.labels,
                             .time = (size_t)time,
                             .seed = j->o.seed,
                             .raw = j->o.normalize,
                             .height = height,
                             .width = width,
                             .tokenizer = tokenizer};
    code = train_data_open(&j->data, &config);
    free(tokenizer);
    if (code != CLI_GO)
        return code;
    j->info = gs_data_get_info(j->data);
    return describe_data(j);
}

/* ---- what was not given ---- */

static const char *const task_words[] = {"images with a class each", "tokens",
                                         "images with a class a pixel"};

static int check_model(const train_job *j)
{
    const train_options *o = &j->o;
    const train_model *m = j->kind;
    const struct {
        const char *name;
        bool given;
    } sizes[] = {{"hidden", o->hidden != NULL},
                 {"filters", o->filters != CLI_AUTO},
                 {"patch", o->patch != CLI_AUTO},
                 {"layers", o->layers != CLI_AUTO},
                 {"width", o->width != CLI_AUTO},
                 {"heads", o->heads != CLI_AUTO},
                 {"context", o->context != CLI_AUTO},
                 {"dropout", !isnan(o->dropout)},
                 {"positions", o->positions != NULL},
                 {"norm", o->norm != NULL},
                 {"mlp", o->mlp != NULL},
                 {"head", o->head != NULL},
                 {"kv-heads", o->kv_heads != CLI_AUTO},
                 {"mlp-width", o->mlp_width != CLI_AUTO},
                 {"rope-theta", !isnan(o->rope_theta)}};
    if (m->task != j->info->task)
        return cli_fail("--model %s learns %s, and %.100s is %s", m->name, task_words[m->task],
                        j->info->name,
                        j->info->task == GS_TASK_CLASSES && j->info->height == 1
                            ? "rows of numbers with a class each"
                            : task_words[j->info->task]);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char key[24];
        snprintf(key, sizeof key, "|%s|", sizes[i].name);
        if (sizes[i].given && !strstr(m->options, key))
            return cli_fail("--%s is not an option of --model %s", sizes[i].name, m->name);
    }
    const int code = train_check_parts(o);
    if (code != CLI_GO)
        return code;
    gs_augment augment;
    if (!train_augment(&augment, o->augment))
        return cli_fail(
            "--augment needs a list such as crop:4,flip,cutout:8,color:0.2, not '%.60s'",
            o->augment);
    if (o->augment && j->info->task == GS_TASK_TOKENS)
        return cli_fail("--augment is for images, and %.100s is tokens", j->info->name);
    if (o->augment && j->info->height == 1)
        return cli_fail("--augment is for images, and %.100s is rows of numbers", j->info->name);
    size_t widths[64];
    if (o->hidden && train_mlp_sizes(widths, 32, j->info, o->hidden) < 0)
        return cli_fail("--hidden needs widths such as 256,128, not '%.60s'", o->hidden);
    return CLI_GO;
}

static void fill(uint64_t *x, uint64_t value)
{
    if (*x == CLI_AUTO)
        *x = value;
}

static void fill_real(double *x, double value)
{
    if (isnan(*x))
        *x = value;
}

static bool has(const train_model *m, const char *option) { return strstr(m->options, option); }

static void fill_sizes(train_options *o, const train_model *m)
{
    const train_options *best = &m->best;
    if (has(m, "|hidden|") && !o->hidden)
        o->hidden = best->hidden;
    if (has(m, "|filters|"))
        fill(&o->filters, best->filters);
    if (has(m, "|patch|"))
        fill(&o->patch, best->patch);
    if (has(m, "|layers|"))
        fill(&o->layers, best->layers);
    if (has(m, "|width|"))
        fill(&o->width, best->width);
    if (has(m, "|heads|"))
        fill(&o->heads, best->heads);
    if (has(m, "|context|"))
        fill(&o->context, best->context);
    if (has(m, "|dropout|"))
        fill_real(&o->dropout, best->dropout);
}

static int check_heads(const train_options *o, const train_model *m)
{
    if (!has(m, "|heads|"))
        return CLI_GO;
    if (o->width % o->heads != 0)
        return cli_fail("--heads %llu cannot share --width %llu", (unsigned long long)o->heads,
                        (unsigned long long)o->width);
    if (o->kv_heads != CLI_AUTO && o->heads % o->kv_heads != 0)
        return cli_fail("--heads %llu cannot share --kv-heads %llu", (unsigned long long)o->heads,
                        (unsigned long long)o->kv_heads);
    return CLI_GO;
}

/* Epochs become steps: the last batch of an epoch is short. */
static int fill_steps(train_job *j)
{
    train_options *o = &j->o;
    const train_options *best = &j->kind->best;
    const uint64_t items = j->info->items[GS_SPLIT_TRAIN];
    const uint64_t step = o->batch * o->accumulate * (uint64_t)j->comm.size;
    j->epoch_steps = items == UINT64_MAX ? 0 : items / step + (items % step > 0);
    if (!isnan(o->epochs) && j->epoch_steps == 0)
        return cli_fail("--epochs: %.100s is endless, give --steps", j->info->name);
    if (o->steps == CLI_AUTO && isnan(o->epochs) && best->steps > 0)
        o->steps = best->steps;
    if (o->steps == CLI_AUTO) {
        fill_real(&o->epochs, best->epochs);
        const double steps = ceil(o->epochs * (double)j->epoch_steps);
        o->steps = steps < 1 ? 1 : (uint64_t)steps;
    }
    o->epochs = (double)NAN; /* said by the steps now */
    return CLI_GO;
}

/* Of several settings of one key the last one counts. */
static void drop_repeated(cli_list *set)
{
    size_t n = 0;
    for (size_t i = 0; i < set->count; i++) {
        const size_t key = strcspn(set->items[i], "=");
        bool again = false;
        for (size_t k = i + 1; k < set->count; k++)
            again |= strcspn(set->items[k], "=") == key &&
                     strncmp(set->items[i], set->items[k], key) == 0;
        if (!again)
            set->items[n++] = set->items[i];
    }
    set->count = n;
}

char *train_log_beside(const char *report)
{
    const size_t n = strlen(report);
    char *path = cli_resize(NULL, n + 8);
    const bool html = n > 5 && strcmp(report + n - 5, ".html") == 0;
    sprintf(path, "%.*s.jsonl", (int)(html ? n - 5 : n), report);
    return path;
}

static int resolve(train_job *j)
{
    static char name[TRAIN_LINE];
    static const char *const precisions[] = {"fp16", "bf16", "fp32"};
    train_options *o = &j->o;
    j->kind = train_model_of(o, j->info);
    int code = check_model(j);
    if (code != CLI_GO)
        return code;
    const train_options *best = &j->kind->best;
    o->model = (int)(j->kind - train_models) + 1;
    fill_sizes(o, j->kind);
    code = check_heads(o, j->kind);
    if (code != CLI_GO)
        return code;
    if (o->mode == 0)
        o->mode = 1 + (o->precision == TRAIN_FP32 ? GS_O0 : GS_O2);
    if (!o->scaler)
        o->scaler = o->precision == TRAIN_FP16 ? "pytorch" : "guard";
    if (o->quantize && !o->ranges)
        o->ranges = "ema";
    if (!o->optimizer)
        o->optimizer = "adamw";
    if (!o->schedule)
        o->schedule = "cosine";
    fill(&o->batch, best->batch);
    fill_real(&o->lr, best->lr);
    fill_real(&o->clip, best->clip);
    code = fill_steps(j);
    if (code != CLI_GO)
        return code;
    fill(&o->warmup, o->steps / 20);
    fill(&o->valid_every,
         j->epoch_steps > 0 && j->epoch_steps < o->steps ? j->epoch_steps : (o->steps + 9) / 10);
    fill(&o->valid_items, best->valid_items);
    fill(&o->checkpoint_every, o->valid_every);
    fill(&o->telemetry_every, (o->steps + 99) / 100);
    if (o->report && !o->log)
        o->log = train_log_beside(o->report);
    j->own_name = !o->name;
    if (!o->name) {
        static const char *const quantized[] = {"", " int8", " ptq"};
        snprintf(name, sizeof name, "%s %s%s", precisions[o->precision], o->scaler,
                 quantized[o->quantize]);
        o->name = name;
    }
    drop_repeated(&o->set);
    return CLI_GO;
}

/* The options in effect, as text; the rows point to train_given. */
void train_job_config(train_job *j)
{
    char *text;
    size_t size;
    FILE *to = cli_text_begin(&text, &size);
    train_given = j->o;
    cli_config_write(to, train_rows);
    cli_text_end(to);
    free(j->config);
    j->config = text;
    j->about.config = text;
}

int train_job_open(train_job *j, const char *checkpoint)
{
    j->o.quiet |= j->comm.rank > 0;
    if (j->o.quiet)
        cli_progress_off();
    int code = train_check(&j->o);
    if (code == CLI_GO)
        code = open_data(j, checkpoint);
    if (code == CLI_GO)
        code = resolve(j);
    if (code != CLI_GO)
        return code;
    train_model_line(j->line, sizeof j->line, j->kind, j->info, &j->o);
    train_job_config(j);
    if (*checkpoint)
        train_resume_changes(j->changes, sizeof j->changes);
    j->items_each = j->info->time ? j->info->time : 1;
    j->half = j->o.precision == TRAIN_BF16 ? GS_BF16 : GS_F16;
    return CLI_GO;
}
