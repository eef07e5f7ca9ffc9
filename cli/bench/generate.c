/* gradscale bench generate: tokens of a GPT, one at a time, against reading the memory that a token
 * needs: all weights that are multiplied, and the keys and values of the context. Loop and limit
 * take turns, and the best of each counts. */
#include "cli/bench/bench.h"
#include "cli/core/json.h"

#include "gradscale/infer.h"

#include <math.h>
#include <stdlib.h>

enum { CONTEXTS = 8, LIMIT_BYTES = 1 << 28 };

typedef struct options {
    uint64_t layers, width, heads, vocabulary, rounds;
    const char *contexts;
    int precision; /* bf16, fp16, fp32 */
    bool json;
    cli_machine machine;
} options;

typedef struct bench {
    const options *o;
    gs_context *ctx;
    gs_model *gpt;
    gs_infer *infer;
    gs_kv_cache *cache;
    bench_team *team;
    bench_memory memory;
    size_t contexts[CONTEXTS], n, longest;
    double read; /* bytes/s */
} bench;

static int read_contexts(bench *b)
{
    const char *list = b->o->contexts;
    char item[24];
    uint64_t x;
    for (int more; (more = cli_next_item(&list, item, sizeof item)) != 0;) {
        if (more < 0 || b->n == CONTEXTS || !cli_read_unsigned(&x, item) || x < 1 || x > 1 << 20)
            return cli_fail("--contexts needs up to %d numbers such as 1,1024", CONTEXTS);
        b->contexts[b->n++] = (size_t)x;
        b->longest = x > b->longest ? (size_t)x : b->longest;
    }
    return CLI_GO;
}

static int make(bench *b)
{
    static const gs_dtype halves[] = {GS_BF16, GS_F16, GS_F16};
    const options *o = b->o;
    const gs_gpt_config sizes = {.size = sizeof sizes,
                                 .vocabulary = (size_t)o->vocabulary,
                                 .context = b->longest < 2 ? 2 : b->longest,
                                 .layers = (size_t)o->layers,
                                 .heads = (size_t)o->heads,
                                 .width = (size_t)o->width};
    const gs_infer_config how = {.size = sizeof how,
                                 .mode = o->precision == 2 ? GS_O0 : GS_O2,
                                 .half = halves[o->precision]};
    const int code = cli_context(&b->ctx, &o->machine);
    if (code != CLI_GO)
        return code;
    gs_status status = gs_gpt_create(&b->gpt, b->ctx, &sizes);
    if (status == GS_OK)
        status = gs_infer_create(&b->infer, b->ctx, b->gpt, &how);
    if (status == GS_OK)
        status = gs_kv_cache_create(&b->cache, b->infer);
    if (status != GS_OK)
        return cli_fail_status(status, gs_context_error(b->ctx));
    b->team = bench_team_new(gs_context_threads(b->ctx));
    if (!b->team || !bench_memory_new(&b->memory, LIMIT_BYTES))
        return CLI_FAILED;
    return CLI_GO;
}

/* The best of all loops that read. */
static void measure_read(bench *b)
{
    const unsigned cpu = gs_context_cpu(b->ctx);
    for (const bench_loop *l = bench_loops; l->name; l++) {
        double traffic;
        if (l->limit != BENCH_READ || (l->needs & ~cpu) || (l->unless & cpu))
            continue;
        const double seconds = bench_team_run(b->team, l, &b->memory, 1, &traffic);
        b->read = fmax(b->read, traffic / seconds);
    }
}

/* Seconds of a token whose context is of `context` tokens, itself included; 0: an error. */
static double measure(bench *b, size_t context)
{
    const float *logits;
    int32_t *ids = cli_resize(NULL, context * sizeof *ids);
    double best = HUGE_VAL;
    gs_status status = GS_OK;
    for (size_t i = 0; i < context; i++)
        ids[i] = (int32_t)(gs_random_u32(1, i) % b->o->vocabulary);
    gs_kv_cache_truncate(b->cache, 0);
    if (context > 1)
        status = gs_infer_next(&logits, b->infer, b->cache, ids, context - 1);
    for (uint64_t r = 0; status == GS_OK && r < b->o->rounds; r++) {
        measure_read(b);
        gs_kv_cache_truncate(b->cache, context - 1);
        const double start = gs_clock();
        status = gs_infer_next(&logits, b->infer, b->cache, ids + context - 1, 1);
        best = fmin(best, gs_clock() - start);
    }
    free(ids);
    if (status != GS_OK)
        cli_fail_status(status, gs_context_error(b->ctx));
    return status == GS_OK ? best : 0;
}

static int run(bench *b)
{
    static const char *const names[] = {"bf16", "fp16", "fp32"};
    double seconds[CONTEXTS];
    const uint64_t row = b->o->width * (b->o->precision == 2 ? 4 : 2); /* of a token of a layer */
    const uint64_t weights = gs_infer_bytes(b->infer) - b->gpt->context * row; /* not positions */
    for (size_t i = 0; i < b->n; i++)
        if ((seconds[i] = measure(b, b->contexts[i])) == 0)
            return CLI_FAILED;
    json_writer j;
    cli_table *t = NULL;
    if (b->o->json) {
        put_begin(&j, stdout, true);
        put_object(&j, NULL);
        put_string(&j, "bench", "generate");
        put_string(&j, "version", gs_version());
        put_string(&j, "precision", names[b->o->precision]);
        put_u64(&j, "threads", gs_context_threads(b->ctx));
        put_double(&j, "load", cli_load());
        put_double(&j, "read_gb_per_s", b->read / 1e9);
        put_array(&j, "results");
    } else {
        printf("GPT of %llu layers, width %llu, %s: %.1f MB of weights; reading: %.1f GB/s\n\n",
               (unsigned long long)b->o->layers, (unsigned long long)b->o->width,
               names[b->o->precision], (double)weights / 1e6, b->read / 1e9);
        t = cli_table_new((const char *const[]){">context", ">ms", ">tokens/s", ">MB", ">GB/s",
                                                ">of reading", NULL});
    }
    for (size_t i = 0; i < b->n; i++) {
        const double bytes = (double)weights + 2.0 * (double)(b->o->layers * row * b->contexts[i]);
        const double speed = bytes / seconds[i];
        if (b->o->json) {
            put_object(&j, NULL);
            put_u64(&j, "context", b->contexts[i]);
            put_double(&j, "seconds", seconds[i]);
            put_double(&j, "tokens_per_s", 1 / seconds[i]);
            put_double(&j, "bytes", bytes);
            put_double(&j, "gb_per_s", speed / 1e9);
            put_double(&j, "of_read", speed / b->read);
            put_end(&j);
            continue;
        }
        cli_table_cell(t, "%zu", b->contexts[i]);
        cli_table_cell(t, "%.2f", 1e3 * seconds[i]);
        cli_table_cell(t, "%.1f", 1 / seconds[i]);
        cli_table_cell(t, "%.1f", bytes / 1e6);
        cli_table_cell(t, "%.1f", speed / 1e9);
        cli_table_cell(t, "%.2f", speed / b->read);
    }
    if (b->o->json) {
        put_end(&j);
        put_end(&j);
    } else {
        cli_table_print(t, stdout);
    }
    return CLI_DONE;
}

int bench_generate(int argc, char **argv)
{
    options o = {.layers = 12,
                 .width = 768,
                 .heads = 12,
                 .vocabulary = 50257,
                 .rounds = 20,
                 .contexts = "1,1024"};
    const cli_option rows[] = {
        {"layers", "N", "of the GPT", CLI_UNSIGNED(&o.layers), .min = 1, .max = 1024},
        {"width", "N", "its channels", CLI_UNSIGNED(&o.width), .min = 2, .max = 1 << 16},
        {"heads", "N", "of its attention", CLI_UNSIGNED(&o.heads), .min = 1, .max = 1024},
        {"vocabulary", "N", "tokens it knows", CLI_UNSIGNED(&o.vocabulary), .min = 2, .max = 1e7},
        {"contexts", "A,B,..", "tokens up to the one that is measured", CLI_STRING(&o.contexts)},
        {"precision", "bf16|fp16|fp32", "of weights and products", CLI_CHOICE(&o.precision)},
        {"rounds", "N", "tokens of each, the best counts", CLI_UNSIGNED(&o.rounds), .min = 1,
         .max = 1e6},
        {"json", NULL, "print JSON; doc/json-bench.md", CLI_FLAG(&o.json)},
        CLI_MACHINE_ROWS(&o.machine),
        {0}};
    const cli_spec spec = {.name = "gradscale bench generate",
                           .about = "Measures how fast a GPT generates, a token at a time, against "
                                    "reading the memory that a token needs. Without options it is "
                                    "GPT-2 of 124M weights.",
                           .options = rows};
    int code = cli_parse(&spec, &argc, argv);
    if (code != CLI_GO)
        return code;
    bench b = {.o = &o};
    code = read_contexts(&b);
    if (code == CLI_GO)
        code = make(&b);
    if (code == CLI_GO)
        code = run(&b);
    bench_memory_free(&b.memory);
    bench_team_free(b.team);
    gs_kv_cache_free(b.cache);
    gs_infer_free(b.infer);
    gs_model_free(b.gpt);
    gs_context_free(b.ctx);
    return code;
}
