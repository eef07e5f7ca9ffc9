/* A job, from its options: data, model, trainer, loader; then logs and checkpoints, which come last
 * so that nothing is overwritten by a run that cannot begin. */
#include "train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the data ---- */

/* The sources of this project: where we are, or where the program was built. */
static const char *find_sources(char root[4096])
{
    static const char mark[] = "include/gradscale/train.h";
    char path[4096 + sizeof mark + 8];
    ssize_t n = readlink("/proc/self/exe", root, 4095);
    if (access(mark, R_OK) == 0)
        return ".";
    for (int up = 0; n > 0 && up < 2; up++) { /* off goes the name, then build/ */
        while (n > 0 && root[n - 1] != '/')
            n--;
        n -= n > 1;
        root[n] = 0;
    }
    snprintf(path, sizeof path, "%s/%s", root, mark);
    return n > 0 && access(path, R_OK) == 0 ? root : NULL;
}

static int open_data(train_job *j)
{
    char root[4096];
    gs_error error = {0};
    const char *name = j->o.data;
    if (!name)
        name = train_models[j->o.model > 0 ? j->o.model - 1 : 1].data;
    const bool self = strcmp(name, "self") == 0;
    const char *sources = self ? find_sources(root) : NULL;
    if (self && !sources)
        return cli_fail("--data self: the sources of gradscale are neither here nor where the "
                        "program was built: go to their folder");
    const uint64_t time = j->o.context == CLI_AUTO ? 0 : j->o.context;
    const gs_data_config config = {.name = name,
                                   .labels = j->o.labels,
                                   .root = sources,
                                   .time = (size_t)time,
                                   .seed = j->o.seed};
    j->o.data = name;
    const gs_status status = gs_data_open(&j->data, &config, NULL, &error);
    if (status != GS_OK)
        return cli_fail("--data: %s", error.text[0] ? error.text : gs_status_meaning(status));
    j->info = gs_data_about(j->data);
    return CLI_GO;
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
    } sizes[] = {{"hidden", o->hidden != NULL},     {"filters", o->filters != CLI_AUTO},
                 {"layers", o->layers != CLI_AUTO}, {"width", o->width != CLI_AUTO},
                 {"heads", o->heads != CLI_AUTO},   {"context", o->context != CLI_AUTO},
                 {"dropout", !isnan(o->dropout)}};
    if (m->task != j->info->task)
        return cli_fail("--model %s learns %s, and %.100s is %s", m->name, task_words[m->task],
                        j->info->name, task_words[j->info->task]);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char key[24];
        snprintf(key, sizeof key, "|%s|", sizes[i].name);
        if (sizes[i].given && !strstr(m->options, key))
            return cli_fail("--%s is not an option of --model %s", sizes[i].name, m->name);
    }
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

static char *log_beside(const char *report)
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
    j->kind = train_model_of(o, j->info->task);
    int code = check_model(j);
    if (code != CLI_GO)
        return code;
    const train_options *best = &j->kind->best;
    o->model = (int)(j->kind - train_models) + 1;
    fill_sizes(o, j->kind);
    if (o->mode == 0)
        o->mode = 1 + (o->precision == TRAIN_FP32 ? GS_O0 : GS_O2);
    if (!o->scaler)
        o->scaler = o->precision == TRAIN_FP16 ? "pytorch" : "guard";
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
        o->log = log_beside(o->report);
    if (!o->name) {
        snprintf(name, sizeof name, "%s %s", precisions[o->precision], o->scaler);
        o->name = name;
    }
    drop_repeated(&o->set);
    return CLI_GO;
}

/* The options in effect, as text; the rows point to train_given. */
static char *config_text(const train_job *j)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        return NULL;
    train_given = j->o;
    cli_config_write(to, train_rows);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

int train_job_open(train_job *j)
{
    j->comm = gs_comm_single();
    j->o.quiet |= j->comm.rank > 0;
    int code = train_check(&j->o);
    if (code == CLI_GO)
        code = open_data(j);
    if (code == CLI_GO)
        code = resolve(j);
    if (code != CLI_GO)
        return code;
    train_model_line(j->line, sizeof j->line, j->kind, j->info, &j->o);
    j->config = config_text(j);
    j->items_each = j->info->time ? j->info->time : 1;
    j->half = j->o.precision == TRAIN_BF16 ? GS_BF16 : GS_F16;
    return j->config ? CLI_GO : cli_failed("out of memory");
}

/* ---- scaler and optimizer ---- */

static bool is_optim_key(const char *item)
{
    const size_t length = strcspn(item, "=");
    for (size_t i = 0; gs_optim_key(i); i++)
        if (strlen(gs_optim_key(i)) == length && strncmp(item, gs_optim_key(i), length) == 0)
            return true;
    return false;
}

static int make_settings(train_job *j, gs_trainer_config *config)
{
    const train_options *o = &j->o;
    gs_error error = {0};
    char list[TRAIN_LINE];
    const char *option = "--optimizer";
    gs_status status = gs_optim_config_init(&config->optim, o->optimizer, &error);
    if (status == GS_OK) {
        option = "--schedule";
        snprintf(list, sizeof list,
                 "lr=%.17g clip_norm=%.17g seed=%llu warmup=%llu total=%llu schedule=%s", o->lr,
                 o->clip, (unsigned long long)o->seed, (unsigned long long)o->warmup,
                 (unsigned long long)o->steps, o->schedule);
        status = gs_optim_config_set(&config->optim, list, &error);
    }
    if (status == GS_OK) {
        option = "--scaler";
        status = gs_scaler_init(&config->scaler, o->scaler, &error);
    }
    if (status == GS_OK && o->on_overflow) {
        option = "--on-overflow";
        snprintf(list, sizeof list, "on_overflow=%.100s", o->on_overflow);
        status = gs_scaler_set(&config->scaler, list, &error);
    }
    for (size_t i = 0; status == GS_OK && i < o->set.count; i++) {
        option = "--set";
        status = is_optim_key(o->set.items[i])
                     ? gs_optim_config_set(&config->optim, o->set.items[i], &error)
                     : gs_scaler_set(&config->scaler, o->set.items[i], &error);
    }
    j->optim = config->optim;
    return status == GS_OK ? CLI_GO : cli_fail("%s: %s", option, error.text);
}

/* ---- the rest ---- */

uint64_t train_job_parameters(const train_job *j)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < j->model->n; i++)
        sum += j->model->entries[i].rows * j->model->entries[i].cols;
    return sum;
}

/* Master, copy, gradient, two moments: what the weights take, before anything is allocated. */
static int check_memory(const train_job *j)
{
    const double bytes = 18 * (double)train_job_parameters(j), free = cli_memory_free();
    if (bytes <= free)
        return CLI_GO;
    return cli_fail("%s has %.3g weights and needs %.1f GB, and %.1f GB of memory are free",
                    j->line, bytes / 18, bytes / 1e9, free / 1e9);
}

static int load(train_job *j, const char *checkpoint)
{
    gs_error error = {0};
    j->about.model = j->line;
    gs_status status = gs_checkpoint_load(checkpoint, j->trainer, &j->about, &error);
    if (status == GS_OK)
        status = gs_loader_seek(j->loader, j->about.items);
    j->about.config = j->config;
    j->about.model = j->line;
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

int train_job_make(train_job *j, const char *checkpoint)
{
    const train_options *o = &j->o;
    gs_error error = {0};
    gs_trainer_config config = {.tape = {.mode = (gs_mode)(o->mode - 1),
                                         .half = j->half,
                                         .wgrad_f32 = o->wgrad,
                                         .telemetry = o->telemetry_every > 0},
                                .comm = &j->comm,
                                .seed = o->seed,
                                .loss_weight = o->loss_weight};
    int code = make_settings(j, &config);
    if (code == CLI_GO)
        code = cli_context(&j->ctx, &o->machine);
    if (code != CLI_GO)
        return code;
    gs_status status = j->kind->create(&j->model, j->ctx, j->info, o);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(j->ctx));
    code = check_memory(j);
    if (code != CLI_GO)
        return code;
    status = gs_trainer_create(&j->trainer, j->ctx, j->model, &config);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(j->ctx));
    const gs_loader_config order = {.split = GS_SPLIT_TRAIN,
                                    .batch = (size_t)o->batch,
                                    .micro = (size_t)o->accumulate,
                                    .seed = o->seed,
                                    .shuffle = 1,
                                    .rank = j->comm.rank,
                                    .size = j->comm.size};
    status = gs_loader_create(&j->loader, j->data, &order, NULL, &error);
    if (status != GS_OK)
        return cli_fail_status(status, &error);
    j->about = (gs_checkpoint){.config = j->config, .model = j->line, .best = (double)NAN};
    return *checkpoint ? load(j, checkpoint) : CLI_GO;
}

/* A folder with the checkpoints of another run is not to be mixed with this one's. */
static int open_saver(train_job *j, const char *checkpoint)
{
    char path[4096];
    gs_error error = {0};
    const char *folder = j->o.checkpoint;
    if (!*checkpoint && gs_saver_newest(folder, path, sizeof path, &error) == GS_OK)
        return cli_fail("--checkpoint: %.120s holds checkpoints of a run: add --resume to go on "
                        "with it, or name another folder",
                        folder);
    const gs_status status = gs_saver_create(&j->saver, folder, (size_t)j->o.keep, NULL, &error);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

int train_job_write(train_job *j, const char *checkpoint)
{
    const train_options *o = &j->o;
    gs_error error = {0};
    const bool resume = *checkpoint;
    if (j->comm.rank > 0) /* one rank speaks for all */
        return CLI_GO;
    int code = o->checkpoint ? open_saver(j, checkpoint) : CLI_GO;
    if (code != CLI_GO || !(o->log || o->csv || o->tensorboard))
        return code;
    const gs_logger_config config = {.json = o->log,
                                     .csv = o->csv,
                                     .tensorboard = o->tensorboard,
                                     .resume = resume,
                                     .step = j->about.step,
                                     .from = resume ? checkpoint : NULL};
    const gs_status status = gs_logger_open(&j->log, &config, NULL, &error);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

void train_job_close(train_job *j)
{
    gs_logger_close(j->log);
    gs_saver_free(j->saver);
    gs_loader_free(j->loader);
    gs_trainer_free(j->trainer);
    gs_model_free(j->model);
    gs_data_close(j->data);
    gs_context_free(j->ctx);
    free(j->config);
}

static uint64_t bytes_of(gs_tensor x)
{
    return x.count ? x.count * gs_format_of(x.dtype)->bytes : 0;
}

train_bytes train_job_bytes(const train_job *j, gs_memory tape)
{
    const gs_store *store = gs_trainer_store(j->trainer);
    gs_optim *optim = gs_trainer_optim(j->trainer);
    train_bytes b = {.weights = bytes_of(gs_store_data(store)) + bytes_of(gs_store_copies(store)),
                     .gradients = bytes_of(gs_store_grads(store)) + tape.gradients,
                     .activations = tape.activations};
    for (size_t t = 0; t < j->model->n; t++)
        for (int s = 0; s < GS_SLOT_COUNT; s++)
            b.optimizer += bytes_of(gs_optim_slot(optim, t, (gs_slot)s));
    return b;
}
