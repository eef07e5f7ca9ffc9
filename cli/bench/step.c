/* gradscale bench step: whole training steps against the machine's peak of fused multiply-adds, and
 * against the same steps without the scaler, with telemetry, without recomputation. Schema of
 * --json: doc/json-bench.md.
 *
 * One trainer runs them all. Its kinds of steps and the peak take turns, every other round the
 * other way round. The best of each counts as its speed; what one kind costs more than another is
 * the median of the ratios of the rounds, for what disturbs a machine disturbs neighbours alike.
 */
#include "cli/bench/bench.h"
#include "cli/core/json.h"

#include "gradscale/gemm.h"
#include "gradscale/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- models ---- */

typedef enum model_kind { MODEL_GPT, MODEL_MLP, MODEL_CNN, MODEL_RESNET } model_kind;

static const struct {
    const char *name;
    model_kind kind;
    gs_gpt_config gpt; /* context is the default of --time */
    bench_item image;
    size_t batch;
    const char *items;
} models[] = {
    {"gpt-mini",
     MODEL_GPT,
     {.size = sizeof(gs_gpt_config), 128, 256, 6, 6, 384, 0},
     {0},
     4,
     "tokens"},
    {"gpt2",
     MODEL_GPT,
     {.size = sizeof(gs_gpt_config), 50257, 256, 12, 12, 768, 0},
     {0},
     4,
     "tokens"},
    {"mlp", MODEL_MLP, {0}, {0, 28, 28, 1, 10, false}, 64, "images"},
    {"cnn", MODEL_CNN, {0}, {0, 28, 28, 1, 10, false}, 64, "images"},
    {"resnet18", MODEL_RESNET, {0}, {0, 64, 64, 3, 200, true}, 32, "images"},
};
static const size_t mlp_sizes[] = {784, 512, 512, 10};
static const gs_cnn_config cnn = {.size = sizeof cnn, 28, 28, 1, 10, 32, 0};

/* The step that was asked for, and what it is compared with: all clip, so that reading the
 * gradients for their norm is not the scaler's cost. */
typedef enum kind { ASKED, NO_SCALER, TELEMETRY, KEPT, KINDS } kind;
enum { LEAST_ROUNDS = 3, MOST_ROUNDS = 1000, WARM_ROUNDS = 2 /* they make the arena */ };
static const char *const scalers[KINDS] = {"static:1024", "none", "static:1024", "static:1024"};

typedef struct bench {
    size_t model; /* index */
    uint64_t n, time;
    gs_dtype half;
    gs_mode mode;
    bool telemetry, recompute;
    unsigned threads;
    gs_context *ctx;
    bench_team *team;
    const bench_peak *peak;
    gs_model *net;
    gs_trainer *trainer;
    gs_scaler scalers[KINDS]; /* as each step begins */
    const char *data;         /* NULL: drawn numbers */
    bench_item item;
    bench_items items;
    double waited, all; /* seconds for the loader, and of the steps as well */
    gs_train_row fastest[KINDS];
    double seconds[KINDS];               /* of it; 0: this kind was not run */
    gs_op_seconds ops[GS_OP_COUNT];      /* of fastest[ASKED] */
    double took[KINDS][MOST_ROUNDS];     /* of each step that counts */
    double least[KINDS][GS_PHASE_COUNT]; /* of a phase in any step */
    double peak_seconds;                 /* of as many flops; 0: not known */
    unsigned rounds;                     /* that count */
} bench;

static double flops_of(const bench *b) { return b->net->flops * (double)b->n; }

static gs_status make_model(gs_model **out, const bench *b)
{
    gs_gpt_config gpt = models[b->model].gpt;
    gpt.context = (size_t)b->time;
    gpt.vocabulary = b->item.classes;
    const gs_mlp_config mlp = {
        .size = sizeof mlp, mlp_sizes, sizeof mlp_sizes / sizeof mlp_sizes[0]};
    const gs_resnet_config resnet = {.size = sizeof resnet,
                                     b->item.height,
                                     b->item.width,
                                     b->item.channels,
                                     b->item.classes,
                                     18};
    switch (models[b->model].kind) {
    case MODEL_GPT:
        return gs_gpt_create(out, b->ctx, &gpt);
    case MODEL_MLP:
        return gs_mlp_create(out, b->ctx, &mlp);
    case MODEL_RESNET:
        return gs_resnet_create(out, b->ctx, &resnet);
    default:
        return gs_cnn_create(out, b->ctx, &cnn);
    }
}

static gs_tape_config tape_of(const bench *b, kind k)
{
    return (gs_tape_config){.size = sizeof(gs_tape_config),
                            .mode = b->mode,
                            .half = b->half,
                            .telemetry = b->telemetry || k == TELEMETRY,
                            .recompute = b->recompute && k != KEPT};
}

static gs_status make_trainer(bench *b)
{
    static const char *const half[] = {
        [GS_F32] = "half=f32", [GS_F16] = "half=f16", [GS_BF16] = "half=bf16"};
    gs_trainer_config config = {.size = sizeof config,
                                .optim.size = sizeof(gs_optim_config),
                                .tape = tape_of(b, ASKED),
                                .seed = 1};
    gs_optim_config_init(&config.optim, "adamw", NULL);
    gs_optim_config_set(&config.optim, "lr=1e-4 clip_norm=1", NULL);
    for (int k = 0; k < KINDS; k++) {
        gs_scaler_init(&b->scalers[k], scalers[k], NULL);
        gs_scaler_set(&b->scalers[k], half[b->mode == GS_O0 ? GS_F32 : b->half], NULL);
    }
    config.scaler = b->scalers[ASKED];
    const gs_status status = make_model(&b->net, b);
    return status == GS_OK ? gs_trainer_create(&b->trainer, b->ctx, b->net, &config) : status;
}

/* ---- measuring ---- */

static bool is_run(const bench *b, kind k)
{
    return k == TELEMETRY ? !b->telemetry : k == KEPT ? b->recompute : true;
}

static gs_status run_step(bench *b, kind k, bool counts, gs_error *error)
{
    gs_train_row row;
    const gs_tape_config tape = tape_of(b, k);
    *gs_trainer_scaler(b->trainer) = b->scalers[k];
    gs_status status = gs_tape_set_config(gs_trainer_tape(b->trainer), &tape);
    if (status == GS_OK)
        status = bench_items_next(&b->items, error);
    const double start = gs_clock();
    if (status == GS_OK)
        status = gs_trainer_step(b->trainer, &b->items.batch, 1, &row);
    const double took = gs_clock() - start;
    if (status != GS_OK || !counts)
        return status;
    b->waited += b->items.waited;
    b->all += b->items.waited + took;
    const bool first = b->seconds[k] == 0;
    b->took[k][b->rounds] = took;
    for (int i = 0; i < GS_PHASE_COUNT; i++)
        if (first || row.seconds[i] < b->least[k][i])
            b->least[k][i] = row.seconds[i];
    if (first || took < b->seconds[k]) {
        b->seconds[k] = took;
        b->fastest[k] = row;
        if (k == ASKED)
            memcpy(b->ops, gs_tape_op_seconds(gs_trainer_tape(b->trainer)), sizeof b->ops);
    }
    return GS_OK;
}

static bool run_kinds(bench *b, unsigned round)
{
    for (int i = 0; i < KINDS; i++) {
        const kind k = (kind)(round % 2 ? KINDS - 1 - i : i);
        gs_error error = {0};
        const gs_status status =
            is_run(b, k) ? run_step(b, k, round >= WARM_ROUNDS, &error) : GS_OK;
        if (status != GS_OK) {
            cli_fail_status(status, error.text[0] ? &error : gs_context_error(b->ctx));
            return false;
        }
    }
    return true;
}

static bool measure(bench *b, double seconds)
{
    const double end = gs_clock() + seconds;
    for (unsigned round = 0; b->rounds < LEAST_ROUNDS || gs_clock() < end; round++) {
        cli_progress(seconds - (end - gs_clock()), seconds, "%s", models[b->model].name);
        if (!run_kinds(b, round))
            return false;
        for (int i = 0; b->peak && round >= WARM_ROUNDS && i < 2; i++) {
            const double took = bench_peak_run(b->peak, b->team, b->threads, flops_of(b));
            if (b->peak_seconds == 0 || took < b->peak_seconds)
                b->peak_seconds = took;
        }
        if (round >= WARM_ROUNDS && ++b->rounds == MOST_ROUNDS)
            break;
    }
    return true;
}

/* What is there for the scaler alone, of the step: deciding and updating, and what scanning and
 * agreeing take longer than they do for clipping. The seed is a factor that is there anyway. */
static double scaler_share(const bench *b)
{
    const double *with = b->least[ASKED], *without = b->least[NO_SCALER];
    const double scan =
        with[GS_PHASE_SCAN] + with[GS_PHASE_COMM] - without[GS_PHASE_SCAN] - without[GS_PHASE_COMM];
    return (with[GS_PHASE_DECIDE] + fmax(scan, 0)) / b->seconds[ASKED];
}

/* What telemetry takes, phase by phase: a phase, being shorter than a step, is more often left in
 * peace by neighbours. NaN: all steps have it. */
static double telemetry_share(const bench *b)
{
    double more = 0;
    if (!is_run(b, TELEMETRY))
        return (double)NAN;
    for (int i = 0; i < GS_PHASE_COUNT; i++)
        more += b->least[TELEMETRY][i] - b->least[ASKED][i];
    return more / b->seconds[ASKED];
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *x, unsigned n)
{
    qsort(x, n, sizeof *x, by_size);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

/* How much longer a kind of step takes than another; NaN: one of them was not run. */
static double longer(const bench *b, kind slow, kind fast)
{
    double ratio[MOST_ROUNDS];
    if (!is_run(b, slow) || !is_run(b, fast))
        return (double)NAN;
    for (unsigned i = 0; i < b->rounds; i++)
        ratio[i] = b->took[slow][i] / b->took[fast][i];
    return median(ratio, b->rounds) - 1;
}

static double median_seconds(const bench *b)
{
    double took[MOST_ROUNDS];
    memcpy(took, b->took[ASKED], sizeof took);
    return median(took, b->rounds);
}

/* Of what a unit for bf16 was to multiply in all steps, what fell back to fma; NaN: there is
 * none. */
static double fallback_share(const bench *b)
{
    gs_unit_use use;
    gs_context_unit_use(&use, b->ctx);
    return use.products ? (double)use.fallbacks / (double)use.products : (double)NAN;
}

/* ---- what is said ---- */

static double op_sum(const bench *b, gs_op op) { return b->ops[op].forward + b->ops[op].backward; }

/* The operations that took time, the longest first; returns how many. */
static size_t sort_ops(gs_op out[GS_OP_COUNT], const bench *b)
{
    size_t n = 0;
    for (int i = 0; i < GS_OP_COUNT; i++) {
        const double sum = op_sum(b, (gs_op)i);
        size_t at = n;
        if (sum == 0)
            continue;
        for (; at > 0 && op_sum(b, out[at - 1]) < sum; at--)
            out[at] = out[at - 1];
        out[at] = (gs_op)i;
        n++;
    }
    return n;
}

typedef struct bytes {
    const char *name;
    size_t count;
} bytes;

static size_t bytes_of(gs_tensor x) { return x.count * gs_dtype_format(x.dtype)->bytes; }

enum { BYTES = 9 };
static void split_memory(bytes out[BYTES], const bench *b)
{
    const gs_store *store = gs_trainer_store(b->trainer);
    const gs_memory tape = b->fastest[ASKED].memory, kept = b->fastest[KEPT].memory;
    size_t moments = 0;
    for (size_t t = 0; t < b->net->n; t++)
        for (int s = 0; s < GS_SLOT_COUNT; s++)
            moments += bytes_of(gs_optim_slot(gs_trainer_optim(b->trainer), t, (gs_slot)s));
    const size_t copies = gs_store_copies(store).count ? bytes_of(gs_store_copies(store)) : 0;
    const bytes rows[BYTES] = {{"weights", bytes_of(gs_store_data(store))},
                               {"half_copies", copies},
                               {"weight_gradients", bytes_of(gs_store_grads(store))},
                               {"moments", moments},
                               {"activations", tape.activations},
                               {"activation_gradients", tape.gradients},
                               {"peak_of_step", tape.peak},
                               {"activations_if_kept", kept.activations},
                               {"peak_if_kept", kept.peak}};
    memcpy(out, rows, sizeof rows);
}

static double items_of(const bench *b)
{
    return (double)b->items.batch.n * (double)(b->items.batch.time ? b->items.batch.time : 1);
}

static size_t params_of(const bench *b)
{
    size_t sum = 0;
    for (size_t i = 0; i < b->net->n; i++)
        sum += b->net->entries[i].rows * b->net->entries[i].cols;
    return sum;
}

static const char *precision_of(const bench *b)
{
    return b->mode == GS_O0 ? "fp32" : b->half == GS_F16 ? "fp16" : "bf16";
}

static void add_cost(cli_table *t, const char *name, double share)
{
    if (isnan(share))
        return;
    cli_table_cell(t, "%s", name);
    cli_table_cell(t, "%+.3f", 100 * share);
}

static void print_ops(const bench *b)
{
    gs_op order[GS_OP_COUNT];
    const size_t n = sort_ops(order, b);
    cli_table *t = cli_table_new(
        (const char *const[]){"<operation", ">forward ms", ">backward ms", ">%", NULL});
    for (size_t i = 0; i < n; i++) {
        cli_table_cell(t, "%s", gs_op_name(order[i]));
        cli_table_cell(t, "%.3f", b->ops[order[i]].forward * 1e3);
        cli_table_cell(t, "%.3f", b->ops[order[i]].backward * 1e3);
        cli_table_cell(t, "%.3f", 100 * op_sum(b, order[i]) / b->seconds[ASKED]);
    }
    cli_table_print(t, stdout);
}

static void print_text(const bench *b)
{
    char cpu[128];
    const double seconds = b->seconds[ASKED], flops = flops_of(b);
    bytes split[BYTES];
    split_memory(split, b);
    printf("gradscale %s, %s, kernels %s, %u thread%s\n%s, load %.1f\n\n", gs_version(),
           cli_compiler(), cli_kernels(gs_context_cpu(b->ctx)), b->threads, cli_s(b->threads),
           cli_cpu_model(cpu), cli_load());
    printf("%s in %s, O%d: %zu weights, %llu %s per step of %.1f GFLOP, best of %u\n\n",
           models[b->model].name, precision_of(b), (int)b->mode, params_of(b),
           (unsigned long long)items_of(b), models[b->model].items, flops / 1e9, b->rounds);
    printf("%.1f ms per step, median %.1f, %.0f %s/s, %.1f GFLOP/s", seconds * 1e3,
           median_seconds(b) * 1e3, items_of(b) / seconds, models[b->model].items,
           flops / seconds / 1e9);
    if (b->peak)
        printf(", %.3f of the peak, %.1f", b->peak_seconds / seconds,
               flops / b->peak_seconds / 1e9);
    printf("\n\n");

    cli_table *t = cli_table_new((const char *const[]){"<phase", ">ms", ">%", NULL});
    for (int i = 0; i < GS_PHASE_COUNT; i++) {
        cli_table_cell(t, "%s", gs_phase_name((gs_phase)i));
        cli_table_cell(t, "%.3f", b->fastest[ASKED].seconds[i] * 1e3);
        cli_table_cell(t, "%.3f", 100 * b->fastest[ASKED].seconds[i] / seconds);
    }
    cli_table_print(t, stdout);
    printf("\n");
    print_ops(b);
    printf("\n");
    t = cli_table_new((const char *const[]){"<what it costs", ">%", NULL});
    add_cost(t, "loss scaling, by phases", scaler_share(b));
    add_cost(t, "loss scaling, whole steps", longer(b, ASKED, NO_SCALER));
    add_cost(t, "telemetry, by phases", telemetry_share(b));
    add_cost(t, "telemetry, whole steps", longer(b, TELEMETRY, ASKED));
    add_cost(t, "recomputation, whole steps", longer(b, ASKED, KEPT));
    add_cost(t, "waiting for the loader", b->data ? b->waited / b->all : (double)NAN);
    add_cost(t, "bf16 products on fma, of all", fallback_share(b));
    cli_table_print(t, stdout);
    printf("\n");
    t = cli_table_new((const char *const[]){"<memory", ">MB", NULL});
    for (int i = 0; i < BYTES; i++) {
        if (split[i].count == 0)
            continue;
        cli_table_cell(t, "%s", split[i].name);
        cli_table_cell(t, "%.2f", (double)split[i].count / 1e6);
    }
    cli_table_print(t, stdout);
}

static void print_json(const bench *b)
{
    char cpu[128];
    json_writer j;
    bytes split[BYTES];
    gs_op order[GS_OP_COUNT];
    const size_t ops = sort_ops(order, b);
    const double seconds = b->seconds[ASKED], flops = flops_of(b);
    split_memory(split, b);
    put_begin(&j, stdout, true);
    put_object(&j, NULL);
    put_string(&j, "bench", "step");
    put_string(&j, "version", gs_version());
    put_string(&j, "compiler", cli_compiler());
    put_string(&j, "cpu", cli_cpu_model(cpu));
    put_string(&j, "kernels", cli_kernels(gs_context_cpu(b->ctx)));
    put_u64(&j, "threads", b->threads);
    put_double(&j, "load", cli_load());
    put_string(&j, "model", models[b->model].name);
    put_string(&j, "precision", precision_of(b));
    put_u64(&j, "mode", (uint64_t)b->mode);
    put_u64(&j, "weights", params_of(b));
    put_u64(&j, "batch", b->items.batch.n);
    put_u64(&j, "time", b->items.batch.time);
    put_u64(&j, "rounds", b->rounds);
    put_double(&j, "flops", flops);
    put_double(&j, "seconds", seconds);
    put_double(&j, "median_seconds", median_seconds(b));
    put_double(&j, "items_per_s", items_of(b) / seconds);
    put_double(&j, "gflops", flops / seconds / 1e9);
    put_double(&j, "peak_gflops", b->peak ? flops / b->peak_seconds / 1e9 : (double)NAN);
    put_double(&j, "of_peak", b->peak ? b->peak_seconds / seconds : (double)NAN);
    put_double(&j, "fallback_share", fallback_share(b));
    put_double(&j, "scaler_share", scaler_share(b));
    put_double(&j, "scaler_longer", longer(b, ASKED, NO_SCALER));
    put_double(&j, "telemetry_share", telemetry_share(b));
    put_double(&j, "telemetry_longer", longer(b, TELEMETRY, ASKED));
    put_double(&j, "recompute_longer", longer(b, ASKED, KEPT));
    put_double(&j, "loader_share", b->data ? b->waited / b->all : (double)NAN);
    put_object(&j, "phases");
    for (int i = 0; i < GS_PHASE_COUNT; i++)
        put_double(&j, gs_phase_name((gs_phase)i), b->fastest[ASKED].seconds[i]);
    put_end(&j);
    put_object(&j, "operations");
    for (size_t i = 0; i < ops; i++) {
        put_object(&j, gs_op_name(order[i]));
        put_double(&j, "forward", b->ops[order[i]].forward);
        put_double(&j, "backward", b->ops[order[i]].backward);
        put_end(&j);
    }
    put_end(&j);
    put_double(&j, "resident_bytes", cli_memory_peak());
    put_object(&j, "bytes");
    for (int i = 0; i < BYTES; i++)
        put_u64(&j, split[i].name, split[i].count);
    put_end(&j);
    put_end(&j);
}

/* ---- the command ---- */

static int run(bench *b, double seconds, bool json)
{
    const bool gpt = models[b->model].kind == MODEL_GPT;
    b->item = models[b->model].image;
    if (gpt)
        b->item = (bench_item){.time = (size_t)b->time,
                               .classes = models[b->model].gpt.vocabulary,
                               .any_classes = true};
    const int code = bench_items_open(&b->items, b->data, (size_t)b->n, &b->item);
    if (code != CLI_GO)
        return code;
    const gs_status status = make_trainer(b);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(b->ctx));
    b->threads = gs_context_threads(b->ctx);
    b->peak = bench_peak_of(gs_context_cpu(b->ctx), b->mode == GS_O0 ? GS_F32 : b->half);
    b->team = bench_team_new(b->threads);
    if (!b->team)
        return cli_failed("%u threads could not be started", b->threads);
    if (!measure(b, seconds))
        return CLI_FAILED;
    cli_progress_end();
    if (json)
        print_json(b);
    else
        print_text(b);
    return CLI_DONE;
}

int bench_step(int argc, char **argv)
{
    enum { FP32, FP16, BF16 };
    bench b = {0};
    int model = 0, precision = FP16, mode = 0;
    double seconds = 10;
    bool json = false;
    cli_machine machine = {0};
    const cli_option options[] = {
        {"model", "gpt-mini|gpt2|mlp|cnn|resnet18", "what is trained", CLI_CHOICE(&model)},
        {"precision", "fp32|fp16|bf16", "of activations and products", CLI_CHOICE(&precision)},
        {"mode", "auto|O0|O1|O2|O3", "auto: O0 in fp32, O2 else", CLI_CHOICE(&mode)},
        {"batch", "N", "items of a step; 0: the model's own", CLI_UNSIGNED(&b.n), .max = 1 << 20},
        {"time", "N", "tokens of an item; 0: the model's own", CLI_UNSIGNED(&b.time),
         .max = 1 << 20},
        {"data", "NAME", "batches of this data set, see gradscale train --help; else drawn numbers",
         CLI_STRING(&b.data)},
        {"telemetry", NULL, "count the underflow of every layer's gradients",
         CLI_FLAG(&b.telemetry)},
        {"recompute", NULL, "keep a block's ends only and recompute it in backward",
         CLI_FLAG(&b.recompute)},
        {"seconds", "S", "about how long to measure", CLI_DOUBLE(&seconds), .max = 86400},
        CLI_MACHINE_ROWS(&machine),
        {"json", NULL, "print JSON; its schema is in doc/json-bench.md", CLI_FLAG(&json)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale bench step",
        .about = "Measures whole training steps, forward to optimizer, against the peak of fused "
                 "multiply-adds and against the same steps without the scaler, with telemetry and, "
                 "with --recompute, without it, all in one run.",
        .options = options};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    b.model = (size_t)model;
    b.half = precision == BF16 ? GS_BF16 : GS_F16;
    b.mode = mode > 0 ? (gs_mode)(mode - 1) : precision == FP32 ? GS_O0 : GS_O2;
    if ((b.mode == GS_O0) != (precision == FP32))
        return cli_fail("--mode O%d does not go with --precision %s", (int)b.mode,
                        ((const char *const[]){"fp32", "fp16", "bf16"})[precision]);
    b.n = b.n ? b.n : models[b.model].batch;
    b.time = b.time ? b.time : models[b.model].gpt.context;
    code = cli_context(&b.ctx, &machine);
    if (code != CLI_GO)
        return code;
    code = run(&b, seconds, json);
    gs_trainer_free(b.trainer);
    gs_model_free(b.net);
    bench_items_free(&b.items);
    if (b.team)
        bench_team_free(b.team);
    gs_context_free(b.ctx);
    return code;
}
