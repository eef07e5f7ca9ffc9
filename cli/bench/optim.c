/* gradscale bench optim: the optimizers, as a fraction of what memory does with the same streams.
 * Schema of --json: doc/json-bench.md.
 *
 * Gradients are f16, weights f32 with an f16 copy. The streams of a pass are its arrays: the loops
 * that are its limit read, rewrite and write the same ones and do next to no arithmetic. Loops and
 * passes take turns, and the best of each counts; so machines that are shared give ratios, too. */
#include "cli/bench/bench.h"
#include "cli/core/json.h"

#include "gradscale/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- streams ---- */

enum { REWRITTEN_MAX = 3 };

/* What the loops run over; a team's threads each take a part of it. */
static struct {
    float *rewritten[REWRITTEN_MAX]; /* weights first, then moments */
    int count;
    const uint16_t *grad;
    uint16_t *copy;
} streams;

/* A factor that no compiler knows. */
static float one(void)
{
    static volatile float value = 1;
    return value;
}

static size_t first_of(const unsigned char *src)
{
    return (size_t)((const float *)(const void *)src - streams.rewritten[0]);
}

static void streams_c(unsigned char *dst, unsigned char *src, size_t bytes)
{
    const size_t first = first_of(src), end = first + bytes / 4;
    const float c = one();
    (void)dst;
    for (size_t i = first; i < end; i += 1024) {
        for (int k = 0; k < streams.count; k++) {
            float *const x = streams.rewritten[k] + i;
            for (size_t j = 0; j < 1024; j++)
                x[j] *= c;
        }
        memcpy(streams.copy + i, streams.grad + i, 1024 * sizeof *streams.copy);
    }
}

#if defined(__x86_64__)
enum { AHEAD = 4096 };

/* 32 elements per round: two lines of f32, one of halves. */
#define LOOP static inline __attribute__((always_inline))

LOOP void prefetch(const void *p) { _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0); }

LOOP __attribute__((target("avx512f"))) void loop_avx512(unsigned char *src, size_t bytes, bool nt,
                                                         bool ahead)
{
    const size_t first = first_of(src), end = first + bytes / 4;
    const __m512 c = _mm512_set1_ps(one());
    const int count = streams.count;
    float *const x[REWRITTEN_MAX] = {streams.rewritten[0], streams.rewritten[1],
                                     streams.rewritten[2]};
    for (size_t i = first; i < end; i += 32) {
        for (int k = 0; k < count; k++) {
            float *const p = x[k] + i;
            if (ahead) {
                prefetch(p);
                prefetch(p + 16);
            }
            _mm512_storeu_ps(p, _mm512_mul_ps(_mm512_loadu_ps(p), c));
            _mm512_storeu_ps(p + 16, _mm512_mul_ps(_mm512_loadu_ps(p + 16), c));
        }
        if (ahead)
            prefetch(streams.grad + i);
        const __m512i h = _mm512_loadu_si512(streams.grad + i);
        if (nt)
            _mm512_stream_si512((void *)(streams.copy + i), h);
        else
            _mm512_storeu_si512(streams.copy + i, h);
    }
    _mm_sfence();
}

LOOP __attribute__((target("avx2"))) void loop_avx2(unsigned char *src, size_t bytes, bool nt)
{
    const size_t first = first_of(src), end = first + bytes / 4;
    const __m256 c = _mm256_set1_ps(one());
    const int count = streams.count;
    float *const x[REWRITTEN_MAX] = {streams.rewritten[0], streams.rewritten[1],
                                     streams.rewritten[2]};
    for (size_t i = first; i < end; i += 16) {
        for (int k = 0; k < count; k++) {
            float *const p = x[k] + i;
            _mm256_storeu_ps(p, _mm256_mul_ps(_mm256_loadu_ps(p), c));
            _mm256_storeu_ps(p + 8, _mm256_mul_ps(_mm256_loadu_ps(p + 8), c));
        }
        const __m256i h = _mm256_loadu_si256((const void *)(streams.grad + i));
        if (nt)
            _mm256_stream_si256((void *)(streams.copy + i), h);
        else
            _mm256_storeu_si256((void *)(streams.copy + i), h);
    }
    _mm_sfence();
}

__attribute__((target("avx512f"))) static void plain_avx512(unsigned char *dst, unsigned char *src,
                                                            size_t bytes)
{
    (void)dst;
    loop_avx512(src, bytes, false, false);
}

__attribute__((target("avx512f"))) static void nt_avx512(unsigned char *dst, unsigned char *src,
                                                         size_t bytes)
{
    (void)dst;
    loop_avx512(src, bytes, true, false);
}

__attribute__((target("avx512f"))) static void
copy_prefetch_avx512(unsigned char *dst, unsigned char *src, size_t bytes)
{
    (void)dst;
    loop_avx512(src, bytes, true, true);
}

__attribute__((target("avx2"))) static void plain_avx2(unsigned char *dst, unsigned char *src,
                                                       size_t bytes)
{
    (void)dst;
    loop_avx2(src, bytes, false);
}

__attribute__((target("avx2"))) static void nt_avx2(unsigned char *dst, unsigned char *src,
                                                    size_t bytes)
{
    (void)dst;
    loop_avx2(src, bytes, true);
}
#endif

static const bench_loop loops[] = {
#if defined(__x86_64__)
    {BENCH_IN_PLACE, "avx512", GS_CPU_AVX512, 0, plain_avx512},
    {BENCH_IN_PLACE, "avx512, copy nt", GS_CPU_AVX512, 0, nt_avx512},
    {BENCH_IN_PLACE, "avx512, copy nt, prefetch", GS_CPU_AVX512, 0, copy_prefetch_avx512},
    {BENCH_IN_PLACE, "avx2", GS_CPU_AVX2, 0, plain_avx2},
    {BENCH_IN_PLACE, "avx2, copy nt", GS_CPU_AVX2, 0, nt_avx2},
#endif
    {BENCH_IN_PLACE, "c", 0, GS_CPU_AVX2, streams_c},
    {0}};

/* ---- optimizers ---- */

/* What one job times. */
typedef enum part {
    STREAMS, /* a loop: the limit */
    PASS,    /* gs_optim_act: unscale, clip, step, all in one */
    TINY,    /* the same with moments and gradients full of subnormals */
    STEP     /* gs_optim_step: scan, decide, clip, apply */
} part;

static const struct {
    const char *name, *kind, *settings;
    bool measure_all; /* TINY and STEP, too */
    int rewritten;    /* of streams, in f32; 0: it is not compared with any */
} optims[] = {
    {"adamw", "adamw", "clip_norm=1e9", true, 3},
    {"sgd, momentum", "sgd", "momentum=0.9 clip_norm=1e9", true, 2},
    {"sgd", "sgd", "clip_norm=1e9", false, 1},
    {"adamw, ema", "adamw", "ema=0.999", false, 0},
    {"adamw, moments f16", "adamw", "moments=f16", false, 0},
    {"lamb", "lamb", "lr=1e-3", false, 0},
    {"adafactor", "adafactor", "lr=1e-3", false, 0},
};
enum { OPTIMS = sizeof optims / sizeof optims[0] };

enum { JOBS_MAX = 16 };
typedef struct job {
    part what;
    const bench_loop *loop;
    const char *name;
    double best; /* seconds */
    unsigned rounds;
} job;

typedef struct bench {
    size_t params;
    gs_context *ctx;
    bench_team *team;
    float *weight;
    uint16_t *grad, *copy;
    gs_optim *optim;
    gs_scaler scaler;
    job jobs[JOBS_MAX];
    size_t count;
} bench;

enum {
    PATTERN = 1 << 14
}; /* elements that are repeated: filling is to take no longer than a pass */

static void repeat(void *to, const void *pattern, size_t bytes, size_t all)
{
    for (size_t i = 0; i < all; i += bytes)
        memcpy((char *)to + i, pattern, all - i < bytes ? all - i : bytes);
}

/* Small gradients of f16, or its subnormals. */
static void fill_grads(bench *b, bool tiny)
{
    uint16_t pattern[PATTERN];
    uint64_t state = 0x9E3779B97F4A7C15;
    for (size_t i = 0; i < PATTERN; i++) {
        state = state * 6364136223846793005 + 1442695040888963407;
        const unsigned bits = (unsigned)(state >> 40);
        pattern[i] = (uint16_t)(tiny ? (bits & 0x83FF) | 1 : (bits & 0x83FF) | 0x3000);
    }
    repeat(b->grad, pattern, sizeof pattern, b->params * sizeof *b->grad);
}

static void fill_moments(bench *b, uint32_t code)
{
    uint32_t pattern[PATTERN];
    for (size_t i = 0; i < PATTERN; i++)
        pattern[i] = code | (uint32_t)(i & 0xFF);
    for (int slot = GS_SLOT_M; slot <= GS_SLOT_V; slot++) {
        const gs_tensor x = gs_optim_slot(b->optim, 0, (gs_slot)slot);
        if (x.dtype == GS_F32)
            repeat(x.data, pattern, sizeof pattern, x.count * sizeof *pattern);
    }
}

/* Seconds, or -1 after an error. */
static double run_step(bench *b, part what)
{
    gs_step step;
    gs_status status = GS_OK;
    gs_step_begin(&step, &b->scaler);
    const gs_verdict apply = {GS_APPLY, GS_REASON_FINE, step.scale, 1};
    if (what != STEP) /* what a scan would have said */
        step.stats.amax = 1, step.stats.sumsq = 1, step.amax_known = 1;
    const double start = gs_clock();
    status = what == STEP ? gs_optim_step(b->optim, &step, &b->scaler, NULL)
                          : gs_optim_act(b->optim, &step, apply, NULL);
    const double seconds = gs_clock() - start;
    if (status == GS_OK)
        return seconds;
    cli_fail_status(status, gs_context_error(b->ctx));
    return -1;
}

static double run_job(bench *b, const job *x)
{
    double traffic, seconds;
    const bench_memory memory = {.size = b->params * 4, .src = (unsigned char *)b->weight};
    switch (x->what) {
    case STREAMS:
        return bench_team_run(b->team, x->loop, &memory, 1, &traffic);
    case TINY:
        fill_grads(b, true);
        fill_moments(b, 0x00012300); /* 2^-133 and more */
        seconds = run_step(b, TINY);
        fill_grads(b, false);
        fill_moments(b, 0x38000000);
        return seconds;
    default:
        return run_step(b, x->what);
    }
}

static void add_jobs(bench *b, size_t k)
{
    const unsigned cpu = gs_cpu_detect();
    b->count = 0;
    streams.count = optims[k].rewritten;
    streams.rewritten[0] = b->weight;
    streams.rewritten[1] = gs_optim_slot(b->optim, 0, GS_SLOT_M).data;
    streams.rewritten[2] = gs_optim_slot(b->optim, 0, GS_SLOT_V).data;
    streams.grad = b->grad;
    streams.copy = b->copy;
    for (const bench_loop *x = loops; optims[k].rewritten && x->name; x++)
        if ((cpu & x->needs) == x->needs && !(cpu & x->unless))
            b->jobs[b->count++] = (job){.what = STREAMS, .loop = x, .name = x->name};
    b->jobs[b->count++] = (job){.what = PASS, .name = "pass"};
    if (optims[k].measure_all) {
        b->jobs[b->count++] = (job){.what = STEP, .name = "scan, decide, clip, apply"};
        b->jobs[b->count++] = (job){.what = TINY, .name = "pass, subnormals"};
    }
}

static bool measure(bench *b, size_t k, double seconds)
{
    enum { ROUNDS = 40, LEAST = 3 };
    const double end = gs_clock() + seconds;
    for (unsigned round = 0; round < ROUNDS && (round < LEAST || gs_clock() < end); round++)
        for (size_t i = 0; i < b->count; i++) {
            job *x = &b->jobs[i];
            cli_progress((double)k + round / (double)ROUNDS, OPTIMS, "%s: %s", optims[k].name,
                         x->name);
            const double took = run_job(b, x);
            if (took < 0)
                return false;
            if (round > 0) /* the first brings the pages in */
                x->best = x->rounds++ == 0 || took < x->best ? took : x->best;
        }
    return true;
}

static const job *best_of(const bench *b, part what)
{
    const job *best = NULL;
    for (const job *x = b->jobs; x < b->jobs + b->count; x++)
        if (x->what == what && (!best || x->best < best->best))
            best = x;
    return best;
}

/* ---- what is said ---- */

static void number_cell(cli_table *t, bool there, double x)
{
    char text[32] = "";
    if (there)
        snprintf(text, sizeof text, "%.2f", x);
    cli_table_cell(t, "%s", text);
}

static void show(cli_table *t, json_writer *j, const bench *b, size_t k)
{
    const job *limit = best_of(b, STREAMS), *pass = best_of(b, PASS);
    const double bytes = 8.0 * optims[k].rewritten + 4; /* a weight */
    for (const job *x = b->jobs; x < b->jobs + b->count; x++) {
        if (x->what == STREAMS && x != limit)
            continue;
        const double rate = bytes * (double)b->params / x->best / 1e9;
        const bool streaming = limit && x->what <= PASS;
        if (j) {
            put_object(j, NULL);
            put_string(j, "optimizer", optims[k].name);
            put_string(j, "what", x->what == STREAMS ? "streams" : x->name);
            if (x->what == STREAMS)
                put_string(j, "loop", x->name);
            put_double(j, "seconds", x->best);
            put_double(j, "ns_per_weight", x->best * 1e9 / (double)b->params);
            put_double(j, "gb_per_s", streaming ? rate : (double)NAN);
            put_double(j, "of_streams", limit ? limit->best / x->best : (double)NAN);
            put_double(j, "of_pass", x->best / pass->best);
            put_u64(j, "rounds", x->rounds);
            put_end(j);
            continue;
        }
        cli_table_cell(t, "%s", optims[k].name);
        cli_table_cell(t, "%s%s", x->what == STREAMS ? "streams: " : "", x->name);
        cli_table_cell(t, "%.1f", x->best * 1e3);
        cli_table_cell(t, "%.2f", x->best * 1e9 / (double)b->params);
        number_cell(t, streaming, rate);
        number_cell(t, limit && x->what == PASS, limit ? limit->best / x->best : 0);
        number_cell(t, x->what > PASS, x->best / pass->best);
    }
}

/* ---- the command ---- */

static int run_optim(bench *b, size_t k, double seconds)
{
    gs_optim_config config = {.size = sizeof config};
    gs_error error;
    gs_status status = gs_optim_config_init(&config, optims[k].kind, &error);
    if (status == GS_OK)
        status = gs_optim_config_set(&config, optims[k].settings, &error);
    if (status != GS_OK)
        return cli_fail_status(status, &error);
    const gs_weight list[] = {{.name = "weights",
                               .rows = b->params / 4096,
                               .cols = 4096,
                               .data = b->weight,
                               .dtype = GS_F32,
                               .copy = b->copy,
                               .copy_dtype = GS_F16,
                               .grad = b->grad,
                               .grad_dtype = GS_F16}};
    status = gs_optim_create(&b->optim, b->ctx, list, 1, &config);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(b->ctx));
    add_jobs(b, k);
    return measure(b, k, seconds) ? CLI_GO : CLI_FAILED;
}

static int run_all(bench *b, double seconds, bool json)
{
    json_writer j;
    char model[128], size[32];
    cli_table *t = cli_table_new((const char *const[]){"<optimizer", "<what", ">ms", ">ns/weight",
                                                       ">GB/s", ">of streams", ">of pass", NULL});
    put_begin(&j, stdout, true);
    if (json) {
        put_object(&j, NULL);
        put_string(&j, "bench", "optim");
        put_string(&j, "version", gs_version());
        put_string(&j, "compiler", cli_compiler());
        put_string(&j, "cpu", cli_cpu_model(model));
        put_string(&j, "kernels", cli_kernels(gs_context_cpu(b->ctx)));
        put_u64(&j, "threads", gs_context_threads(b->ctx));
        put_u64(&j, "weights", b->params);
        put_double(&j, "load", cli_load());
        put_array(&j, "results");
    } else {
        printf(
            "gradscale %s, %s, kernels %s, %u thread%s\n%s, load %.1f\n%zu weights, %s of AdamW's "
            "state\n\n",
            gs_version(), cli_compiler(), cli_kernels(gs_context_cpu(b->ctx)),
            gs_context_threads(b->ctx), cli_s(gs_context_threads(b->ctx)), cli_cpu_model(model),
            cli_load(), b->params, cli_size_text(size, b->params * 16));
    }
    int code = CLI_GO;
    for (size_t k = 0; k < OPTIMS && code == CLI_GO; k++) {
        code = run_optim(b, k, seconds / OPTIMS);
        if (code == CLI_GO)
            show(t, json ? &j : NULL, b, k);
        gs_optim_free(b->optim);
        b->optim = NULL;
    }
    cli_progress_end();
    if (json) {
        put_end(&j);
        put_end(&j);
    } else {
        cli_table_print(t, stdout);
    }
    return code == CLI_GO ? CLI_DONE : code;
}

int bench_optim(int argc, char **argv)
{
    uint64_t params = 100000000;
    double seconds = 60;
    bool json = false;
    cli_machine machine = {0};
    const cli_option options[] = {
        {"weights", "N", "how many; 16 bytes each for AdamW", CLI_UNSIGNED(&params), .min = 1 << 20,
         .max = 1e11},
        {"seconds", "S", "about how long to measure", CLI_DOUBLE(&seconds), .max = 86400},
        CLI_MACHINE_ROWS(&machine),
        {"json", NULL, "print JSON; its schema is in doc/json-bench.md", CLI_FLAG(&json)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale bench optim",
        .about = "Measures the optimizers against the memory of this machine: loops over the same "
                 "arrays in the same run. Then a whole step against its pass, and a pass over "
                 "subnormal numbers against one over normal ones.",
        .options = options};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    bench b = {.params = (size_t)params / (1 << 20) * (1 << 20)};
    if ((double)b.params * 21 > cli_memory_free()) /* with an average of the weights */
        return cli_failed("%zu weights need %.1f GB of memory, and %.1f GB are free", b.params,
                          (double)b.params * 21e-9, cli_memory_free() / 1e9);
    code = cli_context(&b.ctx, &machine);
    if (code != CLI_GO)
        return code;
    b.team = bench_team_new(gs_context_threads(b.ctx));
    /* Arrays that are equal modulo 4096 wait for each other: each its own line of a page. */
    bench_memory memory;
    if (!b.team || !bench_memory_new(&memory, b.params * 8)) {
        gs_context_free(b.ctx);
        return CLI_FAILED;
    }
    b.weight = (float *)(void *)memory.src;
    b.grad = (uint16_t *)(void *)(memory.src + b.params * 4 + 1024);
    b.copy = (uint16_t *)(void *)memory.dst;
    for (size_t i = 0; i < b.params; i++)
        b.weight[i] = (float)(i % 1000) * 1e-3f - 0.5f;
    fill_grads(&b, false);
    gs_scaler_init(&b.scaler, "static:65536", NULL);
    code = run_all(&b, seconds, json);
    bench_memory_free(&memory);
    bench_team_free(b.team);
    gs_context_free(b.ctx);
    return code;
}
