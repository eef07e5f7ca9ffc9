/* One rank of a small training job over MPI, for suite_mpi.sh and for measuring:
 *
 *     mpirun -n 4 mpi_steps [KEY=VALUE]...
 *
 * Rank 0 prints one line per step and, at the end, a fingerprint of the weights; every rank the
 * error it ends with. */
#include "gradscale/mpi.h"
#include "gradscale/train.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { TINY_WORDS = 17, TINY_TIME = 10 };

static struct {
    long items, steps, mini, zero, compare, bucket, threads;
    long overflow, die, hang, differ; /* the rank on which it happens, at step 2 */
    double timeout;
    char wire[8], mode[4];
} set = {.items = 8,
         .steps = 6,
         .threads = 1,
         .overflow = -1,
         .die = -1,
         .hang = -1,
         .differ = -1,
         .wire = "f32",
         .mode = "O2"};

static void read_settings(int argc, char **argv)
{
    const struct {
        const char *key;
        long *value;
    } keys[] = {{"items", &set.items},     {"steps", &set.steps},      {"mini", &set.mini},
                {"zero", &set.zero},       {"compare", &set.compare},  {"bucket", &set.bucket},
                {"threads", &set.threads}, {"die", &set.die},          {"hang", &set.hang},
                {"differ", &set.differ},   {"overflow", &set.overflow}};
    for (int i = 1; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        if (!value)
            exit(2);
        const size_t length = (size_t)(value++ - argv[i]);
        int known = sscanf(argv[i], "wire=%7s", set.wire) == 1 ||
                    sscanf(argv[i], "mode=%3s", set.mode) == 1 ||
                    sscanf(argv[i], "timeout=%lf", &set.timeout) == 1;
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            if (strlen(keys[k].key) == length && memcmp(keys[k].key, argv[i], length) == 0) {
                *keys[k].value = atol(value);
                known = 1;
            }
        if (!known)
            exit(2);
    }
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Items [first, first + n) of a step, the same whoever has them. */
static void fill(int32_t *ids, int32_t *targets, long step, size_t first, size_t n, size_t time,
                 unsigned words)
{
    for (size_t i = 0; i < n * time; i++) {
        const uint64_t at = ((uint64_t)step * 4096 + first) * time + i;
        ids[i] = (int32_t)(gs_random_u32(7, at) % words);
        targets[i] = (ids[i] * 5 + 3) % (int32_t)words;
    }
}

static uint64_t hash(const gs_model *m)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t k = 0; k < m->n; k++) {
        const gs_weight *w = &m->weights[k];
        const int half = w->rows > 1 && w->copy && set.mode[1] == '2';
        const unsigned char *p = half ? w->copy : w->data;
        const size_t bytes = w->rows * w->cols * (half || w->dtype != GS_F32 ? 2 : 4);
        for (size_t i = 0; i < bytes; i++)
            h = (h ^ p[i]) * 0x100000001B3u;
    }
    return h;
}

static gs_status train(gs_context *ctx, gs_mpi *mpi, gs_trainer *t, const gs_model *m)
{
    const gs_comm *comm = gs_mpi_comm(mpi);
    const size_t time = set.mini ? 256 : TINY_TIME, all = (size_t)set.items;
    const size_t ranks = (size_t)comm->size, me = (size_t)comm->rank;
    const size_t first = all * me / ranks, n = all * (me + 1) / ranks - first;
    int32_t *ids = malloc((n + 1) * time * sizeof *ids);
    int32_t *targets = malloc((n + 1) * time * sizeof *targets);
    double best = HUGE_VAL, phases[GS_PHASE_COUNT] = {0};
    uint64_t sent = 0;
    gs_status status = GS_OK;
    for (long step = 0; status == GS_OK && step < set.steps; step++) {
        gs_train_row row;
        fill(ids, targets, step, first, n, time, set.mini ? 128 : TINY_WORDS);
        const long who = step == 2 ? comm->rank : -1;
        if (who >= 0 && who == set.die)
            raise(SIGKILL);
        if (who >= 0 && who == set.hang)
            raise(SIGSTOP);
        if (who >= 0 && who == set.overflow) /* half weights that are infinite, for one step */
            ((float *)m->weights[m->n - 2].data)[0] = INFINITY;
        if (who >= 0 && who == set.differ)
            gs_scaler_set(gs_trainer_scaler(t), "interval=9", NULL);
        const gs_batch batch = {.n = n, .time = time, .ids = ids, .targets = targets};
        const double start = gs_clock();
        status = gs_trainer_step(t, &batch, n > 0, &row);
        const double took = gs_clock() - start;
        if (who >= 0 && who == set.overflow)
            ((float *)m->weights[m->n - 2].data)[0] = 1;
        if (status != GS_OK)
            break;
        sent = row.sent;
        if (step >= 2 && took < best) {
            best = took;
            memcpy(phases, row.seconds, sizeof phases);
        }
        if (comm->rank == 0 && !set.mini)
            printf("step %ld loss %.9g scale %g action %d norm %.9g sent %llu items %llu\n", step,
                   row.loss, row.scale, (int)row.report.verdict.action, row.report.norm,
                   (unsigned long long)row.sent, (unsigned long long)row.items);
    }
    if (status != GS_OK)
        fprintf(stderr, "rank %d: %s\n", comm->rank, gs_context_error(ctx)->text);
    else if (comm->rank == 0)
        printf("weights %016llx\n", (unsigned long long)hash(m));
    if (status == GS_OK && comm->rank == 0 && set.mini) {
        printf("best %.1f ms, %.0f items/s, backward %.1f, comm %.1f, apply %.1f ms, sent %.2f MB, "
               "cpu %.2f s\n",
               1e3 * best, (double)(all * time) / best, 1e3 * phases[GS_PHASE_BACKWARD],
               1e3 * phases[GS_PHASE_COMM], 1e3 * phases[GS_PHASE_APPLY], (double)sent / 1e6,
               cpu_seconds());
    }
    free(ids);
    free(targets);
    return status;
}

int main(int argc, char **argv)
{
    gs_mpi *mpi;
    gs_error error = {0};
    gs_context *ctx;
    gs_model *m = NULL;
    gs_trainer *t = NULL;
    read_settings(argc, argv);
    if (gs_mpi_open(&mpi, &(gs_mpi_config){.size = sizeof(gs_mpi_config), .timeout = set.timeout},
                    &error) != GS_OK) {
        fprintf(stderr, "%s\n", error.text);
        return 1;
    }
    const gs_gpt_config tiny = {.size = sizeof tiny, TINY_WORDS, TINY_TIME, 2, 2, 24, 0},
                        mini = {.size = sizeof(gs_gpt_config), 128, 256, 6, 6, 384, 0};
    gs_trainer_config config = {.size = sizeof config,
                                .optim.size = sizeof(gs_optim_config),
                                .tape = {.size = sizeof(gs_tape_config),
                                         .mode = (gs_mode)(set.mode[1] - '0'),
                                         .half = GS_F16},
                                .comm = gs_mpi_comm(mpi),
                                .ranks = {.zero = (int)set.zero,
                                          .bucket = (size_t)set.bucket,
                                          .compare = (uint64_t)set.compare},
                                .seed = 42};
    gs_optim_config_init(&config.optim, "adamw", NULL);
    gs_optim_config_set(&config.optim, "lr=1e-3 clip_norm=1", NULL);
    gs_scaler_init(&config.scaler, "pytorch", NULL);
    if (gs_dtype_parse(&config.ranks.wire, set.wire, NULL) != GS_OK)
        return 2;
    gs_status status = gs_context_create(
        &ctx, &(gs_config){.size = sizeof(gs_config), .threads = (unsigned)set.threads}, NULL);
    if (status == GS_OK)
        status = gs_gpt_create(&m, ctx, set.mini ? &mini : &tiny);
    if (status == GS_OK)
        status = gs_trainer_create(&t, ctx, m, &config);
    if (status != GS_OK)
        fprintf(stderr, "%s\n", gs_context_error(ctx)->text);
    else
        status = train(ctx, mpi, t, m);
    if (status != GS_OK)
        gs_mpi_abort(mpi, 1);
    gs_trainer_free(t);
    gs_model_free(m);
    gs_context_free(ctx);
    gs_mpi_close(mpi);
    return 0;
}
