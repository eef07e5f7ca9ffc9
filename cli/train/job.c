/* A job, from its options: model, trainer, loader; then logs and checkpoints, which come last so
 * that nothing is overwritten by a run that cannot begin. */
#include "cli/train/ranks.h"
#include "cli/train/train.h"
#include "cli/core/utf8.h"

#include "gradscale/infer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- scaler and optimizer ---- */

static bool is_optim_key(const char *item)
{
    const size_t length = strcspn(item, "=");
    for (size_t i = 0; gs_optim_key(i); i++)
        if (strlen(gs_optim_key(i)) == length && strncmp(item, gs_optim_key(i), length) == 0)
            return true;
    return false;
}

/* A scale that moves comes down from where it cannot stand; a static one would skip every step. */
static int check_static(const train_options *o, const gs_scaler *s)
{
    const double scale = s->params.init;
    if (strncmp(o->scaler, "static:", 7) != 0)
        return CLI_GO;
    if (!(scale >= 0x1p-126 && scale <= 0x1p127)) /* with its inverse */
        return cli_fail("--scaler %.60s: gradients are scaled in f32, which holds scales from "
                        "2^-126 to 2^127",
                        o->scaler);
    if (scale < s->rules.lowest || scale > s->rules.highest)
        return cli_fail("--scaler %.60s: the bounds that --set gives it, %g to %g, do not hold it",
                        o->scaler, s->rules.lowest, s->rules.highest);
    return CLI_GO;
}

int train_job_settings(train_job *j, gs_trainer_config *config)
{
    const train_options *o = &j->o;
    gs_error error = {0};
    char list[TRAIN_LINE];
    const char *option = "--optimizer";
    if (o->warmup >= o->steps && o->warmup > 0 && strcmp(o->schedule, "constant") != 0 &&
        strcmp(o->schedule, "step") != 0)
        return cli_fail("--warmup %llu is no less than --steps %llu: nothing is left for the "
                        "schedule %.40s",
                        (unsigned long long)o->warmup, (unsigned long long)o->steps, o->schedule);
    gs_status status = gs_optim_config_init(&config->optim, o->optimizer, &error);
    if (status == GS_OK) {
        option = "--lr";
        snprintf(list, sizeof list, "lr=%.17g clip_norm=%.17g seed=%llu", o->lr, o->clip,
                 (unsigned long long)o->seed);
        status = gs_optim_config_set(&config->optim, list, &error);
    }
    if (status == GS_OK) {
        option = "--schedule";
        snprintf(list, sizeof list, "warmup=%llu total=%llu schedule=%.100s",
                 (unsigned long long)o->warmup, (unsigned long long)o->steps, o->schedule);
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
    if (status != GS_OK && strcmp(option, "--scaler") == 0)
        return cli_fail_scaler(option, o->scaler, &error);
    if (status != GS_OK && strcmp(option, "--set") == 0)
        return cli_fail_set(&config->scaler, true, &error);
    if (status != GS_OK && strcmp(option, "--on-overflow") == 0)
        return cli_fail("--on-overflow is skip, retry:N with N from 1 to 100, or attribute, not "
                        "'%.60s'",
                        o->on_overflow);
    return status == GS_OK ? check_static(o, &config->scaler)
                           : cli_fail("%s: %s", option, error.text);
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
    const double weights = (double)train_job_parameters(j), ranks = (double)ranks_here();
    const double each = j->o.zero ? 6 + 12.0 / j->comm.size : 18;
    const double bytes = each * weights * ranks, free = cli_memory_free();
    if (bytes <= free)
        return CLI_GO;
    return cli_fail("%s has %.3g weights and needs %.1f GB%s, and %.1f GB of memory are free",
                    j->line, weights, bytes / 1e9, ranks > 1 ? " for all ranks here" : "",
                    free / 1e9);
}

/* The scaler comes from the file with its settings: others that were asked for would be ignored. */
static int check_scaler(const train_job *j, const gs_scaler *here, const char *checkpoint)
{
    const gs_scaler *file = gs_trainer_scaler(j->trainer);
    char was[64], is[64], given[128];
    if (file->policy != here->policy) /* the file has no options to compare */
        return cli_fail("--scaler %.60s: %.120s has another one: begin a new run for that",
                        j->o.scaler, checkpoint);
    const char *key;
    for (size_t i = 0; (key = gs_scaler_key(here, i)); i++)
        if (gs_scaler_get(was, sizeof was, file, key, NULL) == GS_OK &&
            gs_scaler_get(is, sizeof is, here, key, NULL) == GS_OK && strcmp(was, is) != 0) {
            snprintf(given, sizeof given, "%s=%s of the scaler", key, is);
            return train_resume_refuse(given, checkpoint, was);
        }
    return CLI_GO;
}

/* Where it has gone, the newest instead; but ranks are not to go on from different ones. */
static int load(train_job *j, char *checkpoint, size_t room)
{
    gs_error error = {0};
    const gs_scaler scaler = *gs_trainer_scaler(j->trainer);
    const uint64_t epoch = j->about.epoch;
    j->about.model = j->line;
    gs_status status = gs_checkpoint_load(checkpoint, j->trainer, &j->about, &error);
    const int tries = j->comm.size == 1 ? TRAIN_TRIES : 0;
    for (int i = 0; status != GS_OK && i < tries && train_resume_again(checkpoint, room); i++)
        status = gs_checkpoint_load(checkpoint, j->trainer, &j->about, &error);
    if (status == GS_OK)
        status = gs_loader_seek(j->loader, j->about.items, NULL);
    if (status != GS_OK)
        return cli_fail_status(status, &error);
    j->about.config = j->config;
    j->about.model = j->line;
    if (j->about.epoch != epoch) { /* the order of its items is another one, too */
        const size_t used = strlen(j->changes);
        snprintf(j->changes + used, sizeof j->changes - used, "%s%llu items of data (was %llu)",
                 used ? ", " : "", (unsigned long long)epoch, (unsigned long long)j->about.epoch);
        j->about.epoch = epoch;
    }
    if (j->o.steps < j->about.step)
        return cli_fail("%.120s is at step %llu already: it cannot end at step %llu (--steps or "
                        "--epochs)",
                        checkpoint, (unsigned long long)j->about.step,
                        (unsigned long long)j->o.steps);
    const int code = train_resume_labels(checkpoint, j->info);
    return code == CLI_GO ? check_scaler(j, &scaler, checkpoint) : code;
}

/* Ranks of one machine share its CPUs, and a quota. A rank that is bound to some CPUs has those. */
static unsigned share_of_cpus(unsigned ranks)
{
    const char *limit;
    const unsigned usable = gs_cpus_usable(&limit), all = cli_cpus();
    const bool bound = strcmp(limit, "affinity") == 0;
    const unsigned share = (bound ? all : usable) / ranks;
    return share < 1 ? 1 : bound && usable < share ? usable : share;
}

int train_job_model(train_job *j)
{
    cli_machine machine = j->o.machine;
    if (machine.threads == 0 && ranks_here() > 1)
        machine.threads = share_of_cpus(ranks_here());
    const int code = cli_context(&j->ctx, &machine);
    if (code != CLI_GO)
        return code;
    gs_status status = j->kind->create(&j->model, j->ctx, j->info, &j->o);
    if (status == GS_OK && j->o.quantize)
        status = gs_model_quantize(j->model, j->ctx);
    return status == GS_OK ? check_memory(j) : cli_fail_status(status, gs_context_error(j->ctx));
}

static int make_loader(train_job *j)
{
    const train_options *o = &j->o;
    gs_error error = {0};
    gs_augment augment;
    train_augment(&augment, o->augment);
    const gs_loader_config order = {.size = sizeof order,
                                    .split = GS_SPLIT_TRAIN,
                                    .batch = (size_t)o->batch,
                                    .micro = (size_t)o->accumulate,
                                    .seed = o->seed,
                                    .shuffle = 1,
                                    .augment = augment,
                                    .rank = j->comm.rank,
                                    .ranks = j->comm.size};
    const gs_status status = gs_loader_create(&j->loader, j->data, &order, NULL, &error);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, &error);
}

/* Ranks communicate in making the trainer and in loading: before, all must have come as far. */
int train_job_make(train_job *j, char *checkpoint, size_t room)
{
    static const gs_dtype wires[] = {GS_F32, GS_F16, GS_BF16};
    const train_options *o = &j->o;
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config),
                 .mode = (gs_mode)(o->mode - 1),
                 .half = j->half,
                 .wgrad_f32 = o->wgrad,
                 .recompute = o->recompute,
                 .telemetry = o->telemetry_every > 0,
                 .quantize = train_quantize(o)},
        .comm = &j->comm,
        .ranks = {.wire = wires[o->compress], .zero = o->zero, .compare = o->compare_every},
        .seed = o->seed,
        .loss_weight = o->loss_weight};
    train_ranges(&config.tape.range_rule, &config.tape.percentile, o->ranges);
    int code = train_job_settings(j, &config);
    if (code == CLI_GO)
        code = train_job_model(j);
    if (code == CLI_GO && *checkpoint)
        code = train_model_fits(j->model, checkpoint);
    code = ranks_first_error(code, NULL);
    if (code != CLI_GO)
        return code;
    if (o->dry_run && j->comm.rank == 0 && !*checkpoint) /* large weights take their time */
        train_show_job(j);
    const gs_status status = gs_trainer_create(&j->trainer, j->ctx, j->model, &config);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(j->ctx));
    code = ranks_first_error(make_loader(j), NULL);
    if (code != CLI_GO)
        return code;
    const uint64_t items = j->info->items[GS_SPLIT_TRAIN];
    j->about = (gs_checkpoint){.config = j->config,
                               .model = j->line,
                               .data = j->about_data,
                               .epoch = items == UINT64_MAX ? 0 : items,
                               .best = (double)NAN};
    if (*checkpoint)
        return load(j, checkpoint, room);
    gs_error error = {0};
    char init[4096];
    if (!o->init)
        return CLI_GO;
    if ((code = train_init_path(init, o->init)) != CLI_GO)
        return code;
    const gs_status begun = gs_trainer_load_weights(j->trainer, init, &error);
    return begun == GS_OK    ? train_init_check(init, o)
           : begun == GS_EIO ? cli_fail("--init: %s", error.text)
                             : cli_fail_status(begun, &error);
}

/* What could not be opened is the user's path, and a disk that is full before anything began. A run
 * that goes on has had its files: then it is the disk. */
static int fail_opening(const train_job *j, gs_status status, const gs_error *error)
{
    return status == GS_EIO && !j->o.resume ? cli_fail("--checkpoint: %s", error->text)
                                            : cli_fail_status(status, error);
}

/* The line of the text that `at` is in. */
static const char *line_of(const char *text, const char *at, char line[4096])
{
    while (at > text && at[-1] != '\n')
        at--;
    snprintf(line, 4096, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

/* A folder with the checkpoints of another run is not to be mixed with this one's. */
static int open_saver(train_job *j, const char *checkpoint)
{
    char path[4096];
    gs_error error = {0};
    const char *folder = j->o.checkpoint;
    for (const char *c = j->config; *c; c += utf8_length(c))
        if (utf8_length(c) == 0) /* the files are JSON: the first one would fail */
            return cli_fail("--checkpoint: an option is not valid UTF-8 and cannot be saved: %.60s",
                            line_of(j->config, c, path));
    if (strlen(j->config) >= GS_CHECKPOINT_CONFIG)
        return cli_fail("--checkpoint: the options are longer than the %d bytes for them in a file",
                        GS_CHECKPOINT_CONFIG - 1);
    gs_status status = gs_saver_create(&j->saver, folder, (size_t)j->o.keep, NULL, &error);
    if (status != GS_OK)
        return fail_opening(j, status, &error);
    status = gs_saver_newest(path, sizeof path, folder, &error);
    if (!*checkpoint &&
        (status == GS_OK || status == GS_ECHECKSUM)) /* damaged ones are no less its */
        return cli_fail("--checkpoint: %.120s holds checkpoints of a run: add --resume to go on "
                        "with it, or name another folder",
                        folder);
    if (status != GS_OK && status != GS_ECHECKSUM && status != GS_ENAME) /* what is there? */
        return fail_opening(j, status, &error);
    if (*checkpoint && status == GS_OK && error.status == GS_EIO)
        return train_resume_unread(&error);
    if (*checkpoint && status == GS_OK && strcmp(path, checkpoint) != 0) /* before it was locked */
        return cli_fail("--checkpoint: another run has written %.120s meanwhile: try again", path);
    return CLI_GO;
}

static int open_log(train_job *j, const char *checkpoint)
{
    const train_options *o = &j->o;
    gs_error error = {0};
    const gs_logger_config config = {.size = sizeof config,
                                     .json = o->log,
                                     .csv = o->csv,
                                     .tensorboard = o->tensorboard,
                                     .resume = o->resume,
                                     .step = j->about.step,
                                     .from = *checkpoint ? checkpoint : NULL};
    const gs_status status = gs_logger_open(&j->log, &config, NULL, &error);
    return status == GS_OK ? CLI_GO : fail_opening(j, status, &error);
}

/* The options, before the first step: --resume finds them where there is no checkpoint yet. */
static int write_config(const train_job *j)
{
    char path[4096];
    bool opened;
    if (!train_config_path(path, sizeof path, j->o.checkpoint))
        return cli_fail("--checkpoint: the path is too long");
    const int why = cli_write_here(path, j->config, strlen(j->config), &opened);
    return why == 0 ? CLI_GO : cli_failed("%.120s cannot be written: %s", path, strerror(why));
}

int train_job_write(train_job *j, const char *checkpoint)
{
    const train_options *o = &j->o;
    if (j->comm.rank > 0) /* one rank speaks for all */
        return CLI_GO;
    int code = o->checkpoint ? train_folder_make(j) : CLI_GO;
    if (code == CLI_GO && o->checkpoint)
        code = open_saver(j, checkpoint);
    /* A new run: before its logs, which --resume is to find its way to. One that goes on: after
     * them, since a log that cannot be read ends it with nothing changed. */
    if (code == CLI_GO && o->checkpoint && !o->resume)
        code = write_config(j);
    if (code == CLI_GO && (o->log || o->csv || o->tensorboard))
        code = open_log(j, checkpoint);
    return code == CLI_GO && o->checkpoint && o->resume ? write_config(j) : code;
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
    free(j->about_data);
}

train_bytes train_job_bytes(const train_job *j, gs_memory tape)
{
    const gs_held held = gs_trainer_held(j->trainer);
    return (train_bytes){.weights = held.weights,
                         .optimizer = held.optimizer,
                         .gradients = held.gradients + tape.gradients,
                         .activations = tape.activations};
}
