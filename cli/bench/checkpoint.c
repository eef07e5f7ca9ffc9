/* gradscale bench checkpoint: how fast a checkpoint is written, against the same number of bytes
 * written and brought to the disk by a plain loop in the same folder, and how long training is held
 * for it. Schema of --json: doc/json-bench.md.
 *
 * The two take turns in going first, because a disk that was just written to is slower, and the
 * best of each counts. */
#include "cli/bench/bench.h"
#include "cli/core/json.h"

#include "gradscale/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    gs_gpt_config gpt;
} models[] = {{"gpt2", {.size = sizeof(gs_gpt_config), 50257, 1024, 12, 12, 768, 0}},
              {"gpt-mini", {.size = sizeof(gs_gpt_config), 128, 256, 6, 6, 384, 0}}};

typedef struct bench {
    int model;
    uint64_t rounds;
    char folder[4000]; /* of ours, to be removed */
    gs_context *ctx;
    gs_model *gpt;
    gs_trainer *trainer;
    gs_saver *saver;
    gs_saver_times best; /* the shortest of each */
    double disk, load;   /* seconds */
} bench;

static double least(double a, double b) { return a > 0 && a < b ? a : b; }

/* ---- what it is measured against ---- */

static bool write_plainly(const char *path, uint64_t bytes, double *seconds)
{
    static unsigned char block[1 << 20]; /* stays in the cache: a copy less than a checkpoint has */
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (unsigned char)gs_random_u32(1, i);
    const double start = gs_clock();
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    bool done = fd >= 0;
    for (uint64_t at = 0; done && at < bytes;) {
        const size_t n = bytes - at < sizeof block ? (size_t)(bytes - at) : sizeof block;
        const ssize_t put = write(fd, block, n);
        done = put > 0;
        at += done ? (uint64_t)put : 0;
    }
    done = done && fsync(fd) == 0;
    *seconds = least(*seconds, gs_clock() - start);
    if (!done)
        cli_failed("%s cannot be written: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    unlink(path);
    return done;
}

/* ---- measuring ---- */

static int make_parts(bench *b, gs_error *error)
{
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16},
        .seed = 1};
    gs_optim_config_init(&config.optim, "adamw", NULL);
    gs_scaler_init(&config.scaler, NULL, NULL);
    gs_status status = gs_gpt_create(&b->gpt, b->ctx, &models[b->model].gpt);
    if (status == GS_OK)
        status = gs_trainer_create(&b->trainer, b->ctx, b->gpt, &config);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(b->ctx));
    status = gs_saver_create(&b->saver, b->folder, 1, NULL, error);
    return status == GS_OK ? CLI_GO : cli_fail_status(status, error);
}

static gs_status save(bench *b, gs_checkpoint *about, gs_error *error)
{
    about->step++;
    gs_status status = gs_saver_save(b->saver, b->trainer, about, 0, error);
    if (status == GS_OK)
        status = gs_saver_wait(b->saver, error);
    const gs_saver_times times = gs_saver_get_times(b->saver);
    b->best.bytes = times.bytes;
    b->best.copied = least(b->best.copied, times.copied);
    b->best.wrote = least(b->best.wrote, times.wrote);
    return status;
}

static int measure(bench *b, gs_error *error)
{
    char path[4100];
    gs_checkpoint about = {.best = (double)NAN};
    snprintf(path, sizeof path, "%s/plain", b->folder);
    for (uint64_t i = 0; i < 2 * b->rounds; i++) {
        cli_progress((double)i, 2 * (double)b->rounds, "%s", models[b->model].name);
        if ((i + 1) / 2 % 2 == 0) { /* save, plain, plain, save, .. */
            const gs_status status = save(b, &about, error);
            if (status != GS_OK)
                return cli_fail_status(status, error);
        } else if (!write_plainly(path, b->best.bytes, &b->disk)) {
            return CLI_FAILED;
        }
    }
    gs_status status = gs_saver_newest(path, sizeof path, b->folder, error);
    const double start = gs_clock();
    if (status == GS_OK)
        status = gs_checkpoint_load(path, b->trainer, &about, error);
    b->load = gs_clock() - start;
    return status == GS_OK ? CLI_DONE : cli_fail_status(status, error);
}

static void remove_files(const bench *b)
{
    char path[4100];
    gs_error unread;
    while (gs_saver_newest(path, sizeof path, b->folder, &unread) == GS_OK && unlink(path) == 0)
        ;
    rmdir(b->folder);
}

/* ---- what is said ---- */

static double of_disk(const bench *b) { return b->disk / b->best.wrote; }
static double of_disk_with_copy(const bench *b)
{
    return b->disk / (b->best.copied + b->best.wrote);
}

static void print_text(const bench *b)
{
    char cpu[128];
    const double gb = (double)b->best.bytes / 1e9;
    printf("gradscale %s, %s, %u thread%s\n%s, load %.1f\n\n", gs_version(), cli_compiler(),
           gs_context_threads(b->ctx), cli_s(gs_context_threads(b->ctx)), cli_cpu_model(cpu),
           cli_load());
    printf("%s with AdamW: %.3f GB, best of %llu\n\n", models[b->model].name, gb,
           (unsigned long long)b->rounds);
    cli_table *t = cli_table_new((const char *const[]){"<what", ">seconds", ">GB/s", NULL});
    const struct {
        const char *what;
        double seconds;
    } rows[] = {{"disk: plain write and fsync", b->disk},
                {"checkpoint, by its thread", b->best.wrote},
                {"training held, to copy", b->best.copied},
                {"loaded and verified", b->load}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        cli_table_cell(t, "%s", rows[i].what);
        cli_table_cell(t, "%.3f", rows[i].seconds);
        cli_table_cell(t, "%.2f", gb / rows[i].seconds);
    }
    cli_table_print(t, stdout);
    printf("\n%.2f of the disk's bandwidth; %.2f with the time to copy\n", of_disk(b),
           of_disk_with_copy(b));
}

static void print_json(const bench *b)
{
    char cpu[128];
    json_writer j;
    put_begin(&j, stdout, true);
    put_object(&j, NULL);
    put_string(&j, "bench", "checkpoint");
    put_string(&j, "version", gs_version());
    put_string(&j, "compiler", cli_compiler());
    put_string(&j, "cpu", cli_cpu_model(cpu));
    put_u64(&j, "threads", gs_context_threads(b->ctx));
    put_double(&j, "load", cli_load());
    put_string(&j, "model", models[b->model].name);
    put_u64(&j, "bytes", b->best.bytes);
    put_u64(&j, "rounds", b->rounds);
    put_double(&j, "disk_seconds", b->disk);
    put_double(&j, "seconds", b->best.wrote);
    put_double(&j, "held_seconds", b->best.copied);
    put_double(&j, "load_seconds", b->load);
    put_double(&j, "of_disk", of_disk(b));
    put_double(&j, "of_disk_with_copy", of_disk_with_copy(b));
    put_end(&j);
}

/* ---- the command ---- */

int bench_checkpoint(int argc, char **argv)
{
    bench b = {.rounds = 3,
               .best = {.copied = (double)INFINITY, .wrote = (double)INFINITY},
               .disk = (double)INFINITY};
    const char *folder = ".";
    bool json = false;
    cli_machine machine = {0};
    gs_error error = {0};
    const cli_option options[] = {
        {"model", "gpt2|gpt-mini", "what is saved, with AdamW's state", CLI_CHOICE(&b.model)},
        {"folder", "DIR", "where to write: a disk with room for three files", CLI_STRING(&folder)},
        {"rounds", "N", "how many times", CLI_UNSIGNED(&b.rounds), .min = 1, .max = 1000},
        CLI_MACHINE_ROWS(&machine),
        {"json", NULL, "print JSON; its schema is in doc/json-bench.md", CLI_FLAG(&json)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale bench checkpoint",
        .about = "Measures how fast checkpoints are written while training could go on, against "
                 "plain writing in the same folder, and how long training is held for them.",
        .options = options};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    const int length =
        snprintf(b.folder, sizeof b.folder, "%s/gradscale-bench-%ld", folder, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof b.folder)
        return cli_fail("--folder is too long");
    code = cli_context(&b.ctx, &machine);
    if (code != CLI_GO)
        return code;
    code = make_parts(&b, &error);
    if (code == CLI_GO)
        code = measure(&b, &error);
    gs_saver_free(b.saver);
    cli_progress_end();
    remove_files(&b);
    if (code == CLI_DONE && json)
        print_json(&b);
    else if (code == CLI_DONE)
        print_text(&b);
    gs_trainer_free(b.trainer);
    gs_model_free(b.gpt);
    gs_context_free(b.ctx);
    return code;
}
