/* gradscale bench ranks: what the network between ranks costs, how much of it training hides, and
 * what a model made of these numbers says of more ranks (doc/scaling.md). Schema of --json:
 * doc/json-bench.md.
 *
 *     mpirun -n 2 gradscale bench ranks */
#include "cli/bench/bench.h"
#include "cli/core/json.h"
#include "cli/train/ranks.h"

#include "gradscale/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const gs_gpt_config gpt = {.size = sizeof gpt, 128, 256, 6, 6, 384, 0};

enum { WIRES = 2, MESSAGE = 1 << 24 };
static const char *const wire_names[WIRES] = {"f32", "f16"};

typedef struct bench {
    gs_comm comm;
    gs_error error; /* the network's */
    gs_context *ctx;
    uint64_t batch, threads;
    double seconds;
    uint64_t elements; /* gradients */
    double alpha;      /* seconds per message */
    double beta;       /* seconds per byte */
    double gamma;      /* seconds to add a gradient */
    double reduce[WIRES];
    uint64_t sent[WIRES];
    gs_train_row best[WIRES]; /* of the fastest step */
    double step[WIRES];
} bench;

static double least(double a, double b) { return a > 0 && a < b ? a : b; }

/* ---- measuring ---- */

static gs_status alltoall(bench *b, char *to, const char *from)
{
    const gs_comm *c = &b->comm;
    int request, ended;
    const gs_status status =
        c->alltoall(c->user, to, from, MESSAGE, MESSAGE / (size_t)c->size, &request, &b->error);
    return status == GS_OK ? c->done(c->user, request, 1, &ended, &b->error) : status;
}

static gs_status measure_network(bench *b)
{
    const double others = b->comm.size - 1;
    double small = 0, large = 0, add = 0;
    gs_status status = GS_OK;
    float *to = cli_resize(NULL, MESSAGE + 64), *from = cli_resize(NULL, MESSAGE);
    memset(from, 0, MESSAGE);
    memset(to, 0, MESSAGE + 64);
    uint64_t *words = cli_resize(NULL, (size_t)b->comm.size * sizeof *words);
    memset(words, 0, (size_t)b->comm.size * sizeof *words);
    for (int i = 0; status == GS_OK && i < 200; i++) {
        const double start = gs_clock();
        status = gs_comm_allgather(&b->comm, words, sizeof *words, &b->error);
        small = least(small, gs_clock() - start);
    }
    for (int i = 0; status == GS_OK && i < 20; i++) {
        double start = gs_clock();
        status = alltoall(b, (char *)to, (const char *)from);
        large = least(large, gs_clock() - start);
        const gs_tensor dst = {to, MESSAGE / 4, GS_F32, NULL, 0};
        const gs_tensor src = {from, MESSAGE / 4, GS_F32, NULL, 0};
        start = gs_clock();
        gs_tensors_axpy(b->ctx, &dst, &src, 1, 1, NULL);
        add = least(add, gs_clock() - start);
    }
    b->alpha = small / others;
    b->beta = fmax(large - small, 0) / (MESSAGE * others / b->comm.size);
    b->gamma = add / (MESSAGE / 4);
    free(to);
    free(from);
    free(words);
    return status;
}

/* All of it at once, with nothing to hide behind. */
static gs_status measure_reduce(bench *b, int wire)
{
    gs_reducer *r;
    float *data = calloc(b->elements, sizeof *data);
    const gs_reducer_config config = {.size = sizeof config, .wire = wire ? GS_F16 : GS_F32};
    gs_status status =
        data ? gs_reducer_create(&r, b->ctx, &b->comm, data, b->elements, &config) : GS_ENOMEM;
    if (status != GS_OK) {
        free(data);
        return status;
    }
    for (int i = 0; status == GS_OK && i < 10; i++) {
        const double start = gs_clock();
        gs_reducer_begin(r);
        status = gs_reducer_end(r);
        b->reduce[wire] = least(b->reduce[wire], gs_clock() - start);
    }
    b->sent[wire] = gs_reducer_sent(r) / 10;
    gs_reducer_free(r);
    free(data);
    return status;
}

static gs_status measure_steps(bench *b, int wire)
{
    gs_model *m;
    gs_trainer *t;
    gs_trainer_config config = {
        .size = sizeof config,
        .optim.size = sizeof(gs_optim_config),
        .tape = {.size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16},
        .comm = &b->comm,
        .ranks.wire = wire ? GS_F16 : GS_F32,
        .seed = 1};
    gs_optim_config_init(&config.optim, "adamw", NULL);
    gs_scaler_init(&config.scaler, NULL, NULL);
    const size_t rows = (size_t)b->batch * gpt.context;
    int32_t *ids = cli_resize(NULL, rows * sizeof *ids);
    for (size_t i = 0; i < rows; i++)
        ids[i] = (int32_t)(gs_random_u32((uint64_t)b->comm.rank, i) % gpt.vocabulary);
    const gs_batch batch = {.n = (size_t)b->batch, .time = gpt.context, .ids = ids, .targets = ids};
    gs_status status = gs_gpt_create(&m, b->ctx, &gpt);
    if (status == GS_OK)
        status = gs_trainer_create(&t, b->ctx, m, &config);
    const double end = gs_clock() + b->seconds / WIRES;
    for (int i = 0; status == GS_OK; i++) {
        double over = gs_clock() > end && i >= 4;
        status = gs_comm_max(&b->comm, b->ctx, &over, 1); /* all stop after the same step */
        if (status != GS_OK || over > 0)
            break;
        gs_train_row row;
        const double start = gs_clock();
        status = gs_trainer_step(t, &batch, 1, &row);
        const double took = gs_clock() - start;
        if (i < 2 || (b->step[wire] > 0 && took >= b->step[wire]))
            continue;
        b->step[wire] = took;
        b->best[wire] = row;
    }
    free(ids);
    if (status == GS_OK) {
        gs_trainer_free(t);
        gs_model_free(m);
    }
    return status;
}

/* ---- the model ---- */

/* As doc/scaling.md has it. */
static double predict(const bench *b, double ranks, double alpha, double beta, double *exposed)
{
    const double n = (double)b->elements;
    const double bucket = fmax(0x1p20, 0x1p14 * ranks), buckets = ceil(n / bucket);
    const double reduce =
        2 * buckets * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * n * 4 * beta + n * b->gamma;
    const gs_train_row *row = &b->best[0];
    const double backward = row->seconds[GS_PHASE_BACKWARD];
    const double compute = b->step[0] - row->seconds[GS_PHASE_COMM];
    *exposed = fmax(reduce / buckets, reduce - backward) + 2 * (ranks - 1) * alpha;
    return compute / (compute + *exposed);
}

static const struct {
    const char *name;
    double alpha, beta; /* 0: as measured */
} networks[] = {{"as measured here", 0, 0},
                {"10 Gb/s, 30 us", 30e-6, 1 / 1.1e9},
                {"100 Gb/s, 2 us", 2e-6, 1 / 11e9}};
static const int counts[] = {8, 64, 1024};

enum { NETWORKS = sizeof networks / sizeof networks[0], COUNTS = sizeof counts / sizeof counts[0] };

/* ---- what is said ---- */

static double hidden(const bench *b, int wire)
{
    return 1 - b->best[wire].seconds[GS_PHASE_COMM] / b->reduce[wire];
}

static void print_text(const bench *b)
{
    char cpu[128];
    printf("gradscale %s, %s, %d rank%s of %u thread%s\n%s, load %.1f\n\n", gs_version(),
           cli_compiler(), b->comm.size, cli_s((uint64_t)b->comm.size), gs_context_threads(b->ctx),
           cli_s(gs_context_threads(b->ctx)), cli_cpu_model(cpu), cli_load());
    printf("a message %.1f us, %.2f GB/s each way; a gradient is added in %.2f ns\n\n",
           1e6 * b->alpha, 1e-9 / b->beta, 1e9 * b->gamma);
    cli_table *t =
        cli_table_new((const char *const[]){"<gradients sent as", ">MB per rank", ">ms alone",
                                            ">step ms", ">waiting ms", ">hidden", NULL});
    for (int w = 0; w < WIRES; w++) {
        cli_table_cell(t, "%s", wire_names[w]);
        cli_table_cell(t, "%.2f", (double)b->sent[w] / 1e6);
        cli_table_cell(t, "%.2f", 1e3 * b->reduce[w]);
        cli_table_cell(t, "%.1f", 1e3 * b->step[w]);
        cli_table_cell(t, "%.2f", 1e3 * b->best[w].seconds[GS_PHASE_COMM]);
        cli_table_cell(t, "%.0f%%", 100 * hidden(b, w));
    }
    cli_table_print(t, stdout);
    printf(
        "\nThe model of doc/scaling.md, for this step of %llu weights: efficiency, ms waiting\n\n",
        (unsigned long long)b->elements);
    t = cli_table_new((const char *const[]){"<network", ">8 ranks", ">", ">64 ranks", ">",
                                            ">1024 ranks", ">", NULL});
    for (int i = 0; i < NETWORKS; i++) {
        cli_table_cell(t, "%s", networks[i].name);
        for (int k = 0; k < COUNTS; k++) {
            double exposed;
            const double share =
                predict(b, counts[k], networks[i].alpha > 0 ? networks[i].alpha : b->alpha,
                        networks[i].beta > 0 ? networks[i].beta : b->beta, &exposed);
            cli_table_cell(t, "%.1f%%", 100 * share);
            cli_table_cell(t, "%.1f", 1e3 * exposed);
        }
    }
    cli_table_print(t, stdout);
}

static void print_json(const bench *b)
{
    char cpu[128];
    json_writer j;
    put_begin(&j, stdout, true);
    put_object(&j, NULL);
    put_string(&j, "bench", "ranks");
    put_string(&j, "version", gs_version());
    put_string(&j, "compiler", cli_compiler());
    put_string(&j, "cpu", cli_cpu_model(cpu));
    put_u64(&j, "threads", gs_context_threads(b->ctx));
    put_double(&j, "load", cli_load());
    put_i64(&j, "ranks", b->comm.size);
    put_u64(&j, "elements", b->elements);
    put_double(&j, "alpha", b->alpha);
    put_double(&j, "beta", b->beta);
    put_double(&j, "gamma", b->gamma);
    put_array(&j, "wires");
    for (int w = 0; w < WIRES; w++) {
        put_object(&j, NULL);
        put_string(&j, "wire", wire_names[w]);
        put_u64(&j, "sent", b->sent[w]);
        put_double(&j, "reduce_seconds", b->reduce[w]);
        put_double(&j, "step_seconds", b->step[w]);
        put_double(&j, "waiting_seconds", b->best[w].seconds[GS_PHASE_COMM]);
        put_double(&j, "hidden", hidden(b, w));
        put_end(&j);
    }
    put_end(&j);
    put_end(&j);
}

/* ---- the command ---- */

static int measure(bench *b)
{
    gs_status status = GS_OK;
    gs_model *m;
    status = gs_gpt_create(&m, b->ctx, &gpt);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(b->ctx));
    for (size_t i = 0; i < m->n; i++)
        b->elements += m->entries[i].rows * m->entries[i].cols;
    gs_model_free(m);
    status = measure_network(b);
    for (int w = 0; w < WIRES && status == GS_OK; w++)
        status = measure_reduce(b, w);
    for (int w = 0; w < WIRES && status == GS_OK; w++)
        status = measure_steps(b, w);
    const gs_error *why = b->error.status == status ? &b->error : gs_context_error(b->ctx);
    return status == GS_OK ? CLI_DONE : cli_fail_status(status, why);
}

int bench_ranks(int argc, char **argv)
{
    bench b = {.batch = 4, .threads = 1, .seconds = 20};
    bool json = false;
    const cli_option options[] = {
        {"batch", "N", "items of a step, on each rank", CLI_UNSIGNED(&b.batch), .min = 1,
         .max = 1024},
        {"threads", "N", "of each rank", CLI_UNSIGNED(&b.threads), .min = 1, .max = 1024},
        {"seconds", "S", "about how long to run steps", CLI_DOUBLE(&b.seconds), .max = 86400},
        {"json", NULL, "print JSON; its schema is in doc/json-bench.md", CLI_FLAG(&json)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale bench ranks",
        .about = "Measures messages between ranks, the sum of GPT mini's gradients over them alone "
                 "and in training steps, and says what that means for more ranks. Run it under "
                 "mpirun.",
        .options = options};
    ranks_begin();
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return ranks_end(code);
    code = ranks_open(&b.comm, 60);
    if (code == CLI_GO && b.comm.size == 1)
        code = cli_fail("a rank alone sends nothing: mpirun -n 2 gradscale bench ranks");
    if (code == CLI_GO)
        code = ranks_first_error(cli_context(&b.ctx, &(cli_machine){.threads = b.threads}), NULL);
    if (code == CLI_GO)
        code = measure(&b);
    if (code == CLI_DONE && b.comm.rank == 0 && json)
        print_json(&b);
    else if (code == CLI_DONE && b.comm.rank == 0)
        print_text(&b);
    gs_context_free(b.ctx);
    return ranks_end(code);
}
