/* gradscale bench gemm: matrix products of the sizes of training against peak fma and, where
 * Debian's libdnnl2 is installed, against oneDNN's sgemm, in the same run. Schema:
 * doc/json-bench.md.
 *
 * Opponents take turns, and the best product of each counts. A turn is two at least, as the first
 * may have to wake the opponent's threads; and each finds the cores at work. Each has matrices of
 * its own: else one would find in the caches what the one before it has read. All shapes are
 * measured in several passes: a busy moment of the machine then spoils a part of each, not all of
 * one. */
#define _DEFAULT_SOURCE
#include "cli/bench/bench.h"
#include "gradscale/gemm.h"
#include "cli/core/json.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- shapes ---- */

/* y = x w^T and its gradients: dx = dy w, dw = dy^T x. */
typedef enum form { FORWARD, DX, DW } form;

typedef struct shape {
    const char *group, *name;
    size_t m, n, k;
    form form;
} shape;

/* A layer of 1024 rows, `in` by `out`, and its gradients. */
#define LAYER(group, name, in, out)                                                \
    {group, name, 1024, out, in, FORWARD}, {group, name " dx", 1024, in, out, DX}, \
    {                                                                              \
        group, name " dw", out, in, 1024, DW                                       \
    }

static const shape shapes[] = {
    LAYER("training", "gpt2 qkv", 768, 2304),
    LAYER("training", "gpt2 proj", 768, 768),
    LAYER("training", "gpt2 fc", 768, 3072),
    LAYER("training", "gpt2 fc2", 3072, 768),
    LAYER("training", "gpt2 head", 768, 50257),
    LAYER("training", "mini fc", 384, 1536),
    LAYER("training", "mini proj", 384, 384),
    LAYER("training", "mini fc2", 1536, 384),
    LAYER("training", "mini head", 384, 128),
    {"square", "square 1024", 1024, 1024, 1024, DX},
    {"square", "square 2048", 2048, 2048, 2048, DX},
    {"skinny", "skinny 1", 1, 4096, 4096, FORWARD},
    {"skinny", "skinny 4", 4, 4096, 4096, FORWARD},
    {"skinny", "skinny 8", 8, 4096, 4096, FORWARD},
    {"skinny", "skinny 16", 16, 4096, 4096, FORWARD},
    {"skinny", "skinny 1 dx", 1, 4096, 4096, DX},
    {"skinny", "skinny 4 dx", 4, 4096, 4096, DX},
    {"skinny", "skinny 8 dx", 8, 4096, 4096, DX},
    {"skinny", "skinny 16 dx", 16, 4096, 4096, DX},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], PASSES = 5 };

static double flops(const shape *s) { return 2.0 * (double)s->m * (double)s->n * (double)s->k; }

/* ---- opponents ---- */

typedef enum side { PEAK, BF16_PEAK, ONEDNN, F32, F16, BF16, INT8, SIDES } side;
static const char *const side_names[] = {"peak", "bf16_peak", "onednn", "f32",
                                         "f16",  "bf16",      "int8"};

/* Row-major, as BLAS has it otherwise; 0: done. */
typedef int sgemm_fn(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha,
                     const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                     int64_t ldc);

/* NULL: not installed. Its threads are OpenMP's. */
static sgemm_fn *find_onednn(unsigned threads)
{
    sgemm_fn *sgemm = NULL;
    void (*set_threads)(int) = NULL;
    void *const library = dlopen("libdnnl.so.2", RTLD_NOW);
    void *const entry = library ? dlsym(library, "dnnl_sgemm") : NULL;
    void *const setter = library ? dlsym(library, "omp_set_num_threads") : NULL;
    memcpy(&sgemm, &entry, sizeof sgemm); /* C has no cast for this */
    memcpy(&set_threads, &setter, sizeof set_threads);
    if (set_threads)
        set_threads((int)threads);
    return sgemm;
}

/* ---- one shape ---- */

static const double TURN = 0.005; /* seconds, at least */

typedef struct arena {
    gs_context *ctx;
    bench_team *team;
    const bench_peak *peak, *bf16_peak; /* NULL: there is none for this instruction set */
    sgemm_fn *onednn;                   /* NULL: not installed */
    unsigned threads;
} arena;

typedef struct matrices {
    void *a[SIDES], *b[SIDES]; /* the peak has none */
    float *c;
    float *scale; /* [n], of INT8 */
} matrices;

typedef struct result {
    const shape *shape;
    double best[SIDES]; /* seconds of a product, of the peak seconds of as many flops; 0: none */
    unsigned rounds;
} result;

static const gs_dtype types[] = {
    [ONEDNN] = GS_F32, [F32] = GS_F32, [F16] = GS_F16, [BF16] = GS_BF16};

/* INT8 multiplies rows by rows: that is what a forward pass does. */
static bool has_side(const arena *r, const shape *product, side s)
{
    return s == INT8        ? product->form == FORWARD
           : s == PEAK      ? r->peak != NULL
           : s == BF16_PEAK ? r->bf16_peak != NULL
           : s == ONEDNN    ? r->onednn != NULL
                            : true;
}

/* +-1, rounded to each type; of INT8 any byte. */
static gs_status fill(const arena *r, const shape *product, void *by_side[SIDES], size_t n)
{
    float *const x = by_side[F32] = cli_resize(NULL, n * sizeof *x);
    uint32_t bits = 1;
    for (size_t i = 0; i < n; i++) {
        bits = bits * 1664525 + 1013904223;
        x[i] = (float)(bits >> 8) * 0x1p-23f - 1;
    }
    const gs_tensor src = {x, n, GS_F32, "x", 0};
    gs_status status = GS_OK;
    if (has_side(r, product, INT8)) {
        signed char *codes = by_side[INT8] = cli_resize(NULL, n);
        for (size_t i = 0; i < n; i++)
            codes[i] = (signed char)(x[i] * 127);
    }
    for (side s = ONEDNN; s <= BF16 && status == GS_OK; s++) {
        if (s == F32 || !has_side(r, product, s))
            continue;
        by_side[s] = cli_resize(NULL, n * gs_dtype_format(types[s])->bytes);
        const gs_tensor dst = {by_side[s], n, types[s], "x", 0};
        status = gs_tensors_convert(r->ctx, &dst, &src, 1, NULL);
    }
    return status;
}

static void free_matrices(matrices *x)
{
    for (side s = ONEDNN; s <= INT8; s++) {
        free(x->a[s]);
        free(x->b[s]);
    }
    free(x->c);
    free(x->scale);
}

/* Seconds of a product; -1: an error, which is said. */
static double multiply(const arena *r, const shape *s, const matrices *x, side of)
{
    const bool ta = s->form == DW, tb = s->form == FORWARD;
    const size_t lda = ta ? s->m : s->k, ldb = tb ? s->k : s->n;
    if (of == ONEDNN) {
        const double start = gs_clock();
        const int status =
            r->onednn(ta ? 'T' : 'N', tb ? 'T' : 'N', (int64_t)s->m, (int64_t)s->n, (int64_t)s->k,
                      1, x->a[of], (int64_t)lda, x->b[of], (int64_t)ldb, 0, x->c, (int64_t)s->n);
        const double seconds = gs_clock() - start;
        if (status != 0)
            cli_failed("oneDNN's sgemm failed with status %d", status);
        return status == 0 ? seconds : -1;
    }
    if (of == INT8) {
        const gs_gemm_int8 product = {.m = s->m,
                                      .n = s->n,
                                      .k = s->k,
                                      .a = x->a[of],
                                      .b = x->b[of],
                                      .y = x->c,
                                      .dtype = GS_F32,
                                      .scale = x->scale};
        const double start = gs_clock();
        const gs_status status = gs_gemm_int8_run(r->ctx, &product);
        if (status != GS_OK)
            cli_fail_status(status, gs_context_error(r->ctx));
        return status == GS_OK ? gs_clock() - start : -1;
    }
    const gs_gemm g = {.m = s->m,
                       .n = s->n,
                       .k = s->k,
                       .batch = 1,
                       .a = {.data = x->a[of], .dtype = types[of], .stride = lda, .transposed = ta},
                       .b = {.data = x->b[of], .dtype = types[of], .stride = ldb, .transposed = tb},
                       .c = {.data = x->c, .dtype = GS_F32, .stride = s->n}};
    const double start = gs_clock();
    const gs_status status = gs_gemm_run(r->ctx, &g);
    if (status != GS_OK)
        cli_fail_status(status, gs_context_error(r->ctx));
    return status == GS_OK ? gs_clock() - start : -1;
}

/* The same, or seconds of as many flops at the peak. */
static double once(const arena *r, const shape *s, const matrices *x, side of)
{
    return of <= BF16_PEAK
               ? bench_peak_run(of == PEAK ? r->peak : r->bf16_peak, r->team, r->threads, flops(s))
               : multiply(r, s, x, of);
}

/* A turn of each; false: one failed. */
static bool measure_round(const arena *r, result *x, const matrices *data)
{
    static const side order[] = {ONEDNN, PEAK, F32, F16, BF16_PEAK, BF16, INT8};
    for (size_t i = 0; i < SIDES; i++) {
        const side of = order[i];
        const double end = gs_clock() + TURN;
        for (int n = 0; has_side(r, x->shape, of) && (n < 2 || gs_clock() < end); n++) {
            const double t = once(r, x->shape, data, of);
            if (t < 0)
                return false;
            if (x->best[of] == 0 || t < x->best[of])
                x->best[of] = fmax(t, 1e-9);
        }
        if (of == ONEDNN && r->onednn) /* its threads spin on for a while */
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    x->rounds++;
    return true;
}

static bool measure(const arena *r, result *x, double seconds)
{
    const shape *s = x->shape;
    matrices data = {0};
    const double end = gs_clock() + seconds;
    bool ok = fill(r, s, data.a, s->m * s->k) == GS_OK && fill(r, s, data.b, s->k * s->n) == GS_OK;
    data.c = cli_resize(NULL, s->m * s->n * sizeof *data.c);
    memset(data.c, 0, s->m * s->n * sizeof *data.c);
    data.scale = cli_resize(NULL, s->n * sizeof *data.scale);
    for (size_t i = 0; i < s->n; i++)
        data.scale[i] = 1;
    do
        ok = ok && measure_round(r, x, &data);
    while (ok && gs_clock() < end);
    free_matrices(&data);
    return ok;
}

/* ---- what is said ---- */

static double ratio(const result *x, side of, side to)
{
    return x->best[of] > 0 && x->best[to] > 0 ? x->best[to] / x->best[of] : 0;
}

static double geometric_mean(const result *results, size_t n, const char *group, side of, side to)
{
    double sum = 0, count = 0;
    for (const result *x = results; x < results + n; x++)
        if (strcmp(x->shape->group, group) == 0 && ratio(x, of, to) > 0) {
            sum += log(ratio(x, of, to));
            count++;
        }
    return count > 0 ? exp(sum / count) : 0;
}

static const struct {
    const char *title, *key;
    side of, to;
} ratios[] = {
    {">f32/oneDNN", "f32_of_onednn", F32, ONEDNN},   {">f16/f32", "f16_of_f32", F16, F32},
    {">bf16/f32", "bf16_of_f32", BF16, F32},         {">f32/peak", "f32_of_peak", F32, PEAK},
    {">bf16/peak", "bf16_of_peak", BF16, BF16_PEAK}, {">int8/f32", "int8_of_f32", INT8, F32}};
enum { RATIOS = sizeof ratios / sizeof ratios[0] };

static void ratio_cell(cli_table *t, double value)
{
    if (value > 0)
        cli_table_cell(t, "%.3f", value);
    else
        cli_table_cell(t, "-");
}

static void print_text(const result *results, size_t n)
{
    cli_table *t = cli_table_new((const char *const[]){
        "<shape", ">m", ">n", ">k", ">peak", ">bf16 peak", ">oneDNN", ">f32", ">f16", ">bf16",
        ">int8", ratios[0].title, ratios[1].title, ratios[2].title, ratios[3].title,
        ratios[4].title, ratios[5].title, NULL});
    for (const result *x = results; x < results + n; x++) {
        const shape *s = x->shape;
        if (x > results && strcmp(s->group, x[-1].shape->group) != 0)
            cli_table_line(t);
        cli_table_cell(t, "%s", s->name);
        cli_table_cell(t, "%zu", s->m);
        cli_table_cell(t, "%zu", s->n);
        cli_table_cell(t, "%zu", s->k);
        for (side k = PEAK; k < SIDES; k++)
            if (x->best[k] > 0)
                cli_table_cell(t, "%.1f", flops(s) / x->best[k] / 1e9);
            else
                cli_table_cell(t, "-");
        for (size_t i = 0; i < RATIOS; i++)
            ratio_cell(t, ratio(x, ratios[i].of, ratios[i].to));
    }
    cli_table_line(t);
    static const char *const groups[] = {"training", "square", "skinny"};
    for (size_t g = 0; g < 3; g++) {
        if (geometric_mean(results, n, groups[g], F16, F32) <= 0)
            continue;
        cli_table_cell(t, "mean of %s", groups[g]);
        for (int i = 0; i < 3 + SIDES; i++)
            cli_table_cell(t, "%s", "");
        for (size_t i = 0; i < RATIOS; i++)
            ratio_cell(t, geometric_mean(results, n, groups[g], ratios[i].of, ratios[i].to));
    }
    cli_progress_end();
    printf("\nGFLOP/s (of INT8 GOP/s), and ratios of speeds; means are geometric\n");
    cli_table_print(t, stdout);
}

static void json_ratio(json_writer *j, const char *key, double value)
{
    if (value > 0)
        put_double(j, key, value);
    else
        put_null(j, key);
}

static void json_result(json_writer *j, const result *x)
{
    const shape *s = x->shape;
    put_object(j, NULL);
    put_string(j, "name", s->name);
    put_string(j, "group", s->group);
    put_u64(j, "m", s->m);
    put_u64(j, "n", s->n);
    put_u64(j, "k", s->k);
    put_bool(j, "a_transposed", s->form == DW);
    put_bool(j, "b_transposed", s->form == FORWARD);
    put_object(j, "gflop_per_s");
    for (side k = PEAK; k < SIDES; k++)
        json_ratio(j, side_names[k], x->best[k] > 0 ? flops(s) / x->best[k] / 1e9 : 0);
    put_end(j);
    for (size_t i = 0; i < RATIOS; i++)
        json_ratio(j, ratios[i].key, ratio(x, ratios[i].of, ratios[i].to));
    put_u64(j, "rounds", x->rounds);
    put_end(j);
}

static void print_json(const arena *r, const char *kernels, const result *results, size_t n)
{
    char model[128];
    json_writer j;
    put_begin(&j, stdout, true);
    put_object(&j, NULL);
    put_string(&j, "bench", "gemm");
    put_string(&j, "version", gs_version());
    put_string(&j, "compiler", cli_compiler());
    put_string(&j, "cpu", cli_cpu_model(model));
    put_string(&j, "kernels", kernels);
    put_double(&j, "load", cli_load());
    put_u64(&j, "threads", r->threads);
    put_bool(&j, "onednn", r->onednn != NULL);
    put_array(&j, "results");
    for (const result *x = results; x < results + n; x++)
        json_result(&j, x);
    put_end(&j);
    put_object(&j, "training_means");
    for (size_t i = 0; i < RATIOS; i++)
        json_ratio(&j, ratios[i].key,
                   geometric_mean(results, n, "training", ratios[i].of, ratios[i].to));
    put_end(&j);
    put_end(&j);
}

/* ---- the command ---- */

static int open_arena(arena *r, const cli_machine *machine)
{
    const int code = cli_context(&r->ctx, machine);
    if (code != CLI_GO)
        return code;
    r->threads = gs_context_threads(r->ctx);
    r->peak = bench_peak_of(gs_context_cpu(r->ctx), GS_F32);
    r->bf16_peak = bench_peak_of(gs_context_cpu(r->ctx), GS_BF16);
    r->onednn = find_onednn(r->threads);
    r->team = bench_team_new(r->threads);
    return r->team ? CLI_GO : cli_failed("%u threads could not be started", r->threads);
}

int bench_gemm(int argc, char **argv)
{
    double seconds = 60;
    bool json = false;
    const char *only = NULL;
    cli_machine machine = {0};
    const cli_option options[] = {
        CLI_MACHINE_ROWS(&machine),
        {"seconds", "S", "about how long to measure", CLI_DOUBLE(&seconds), .max = 86400},
        {"only", "TEXT", "measure only shapes with this in their name", CLI_STRING(&only)},
        {"json", NULL, "print JSON; its schema is in doc/json-bench.md", CLI_FLAG(&json)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale bench gemm",
        .about = "Measures matrix products (GEMM) of the sizes of training, with f32, f16 and bf16 "
                 "inputs, forward with INT8 too, against the peak of fused multiply-adds and, "
                 "where Debian's libdnnl2 is "
                 "installed, against oneDNN's sgemm, by turns in the same run.",
        .options = options};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;

    result results[SHAPES];
    size_t n = 0;
    double work = 0;
    for (const shape *s = shapes; s < shapes + SHAPES; s++)
        if (!only || strstr(s->name, only)) {
            results[n++] = (result){.shape = s};
            work += sqrt(flops(s));
        }
    if (n == 0)
        return cli_fail("--only %.60s: no shape has this in its name", only);

    arena r = {0};
    code = open_arena(&r, &machine);
    const char *const kernels = code == CLI_GO ? cli_kernels(gs_context_cpu(r.ctx)) : NULL;
    char model[128];
    if (code == CLI_GO && !json)
        printf("gradscale %s, %s, kernels %s, %u thread%s\n%s, %u online, load %.1f\n%s",
               gs_version(), cli_compiler(), kernels, r.threads, cli_s(r.threads),
               cli_cpu_model(model), cli_cpus(), cli_load(),
               r.onednn ? "" : "oneDNN is not installed (Debian: libdnnl2)\n");
    const double end = gs_clock() + seconds;
    for (size_t i = 0; i < PASSES * n && (i < n || gs_clock() < end) && code == CLI_GO; i++) {
        const shape *s = results[i % n].shape;
        cli_progress((double)i, (double)(PASSES * n), "%s", s->name);
        if (!measure(&r, &results[i % n], seconds / PASSES * sqrt(flops(s)) / work))
            code = CLI_FAILED;
    }
    if (code == CLI_GO && json)
        print_json(&r, kernels, results, n);
    else if (code == CLI_GO)
        print_text(results, n);
    bench_team_free(r.team);
    gs_context_free(r.ctx);
    return code == CLI_GO ? CLI_DONE : code;
}
