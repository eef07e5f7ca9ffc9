/* gradscale bench kernels: every pass of gradscale/tensor.h, as a fraction of what the memory of
 * this machine does in the same run. Schema of --json: doc/json-bench.md.
 *
 * Machines are shared, and a busy neighbour halves any figure. So limits and passes take turns,
 * many rounds of them, a few milliseconds each, and the best of each counts: a noisy moment hits
 * both, and a quiet one is enough. */
#include "cli/bench/bench.h"
#include "cli/core/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the passes ---- */

/* Odd turns undo what even ones do, so that values neither grow nor vanish. */
typedef gs_status pass_fn(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                          unsigned turn);

static gs_stats stats; /* all passes are asked for their statistics; nobody reads them */

static float there_and_back(unsigned turn) { return turn % 2 ? 2.0f : 0.5f; }

static gs_status check(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, unsigned turn)
{
    (void)dst, (void)turn;
    return gs_tensors_check(ctx, src, 1, &stats);
}

static gs_status scan(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, unsigned turn)
{
    (void)dst, (void)turn;
    return gs_tensors_scan(ctx, src, 1, &stats);
}

static gs_status count(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, unsigned turn)
{
    (void)dst, (void)turn;
    return gs_tensors_count(ctx, src, 1, GS_F16, &stats);
}

static gs_status exponents(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                           unsigned turn)
{
    static gs_exponents sum;
    (void)dst, (void)turn;
    return gs_tensors_exponents(ctx, &sum, src, 1, &stats);
}

static gs_status scale(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, unsigned turn)
{
    (void)dst;
    return gs_tensors_scale(ctx, src, 1, there_and_back(turn), &stats);
}

static gs_status scale_to(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                          unsigned turn)
{
    return gs_tensors_scale_to(ctx, dst, src, 1, there_and_back(turn), &stats);
}

static gs_status unscale(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, unsigned turn)
{
    (void)dst;
    return gs_tensors_unscale(ctx, src, src, 1, there_and_back(turn), &stats);
}

static gs_status unscale_to(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                            unsigned turn)
{
    return gs_tensors_unscale(ctx, dst, src, 1, there_and_back(turn), &stats);
}

static gs_status convert(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, unsigned turn)
{
    (void)turn;
    return gs_tensors_convert(ctx, dst, src, 1, &stats);
}

static gs_status stochastic(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                            unsigned turn)
{
    return gs_tensors_convert_stochastic(ctx, dst, src, 1, turn, &stats);
}

static gs_status axpy(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src, unsigned turn)
{
    return gs_tensors_axpy(ctx, dst, src, 1, turn % 2 ? 0.5f : -0.5f, &stats);
}

typedef struct pass {
    const char *name;
    pass_fn *run;
    bench_limit limit; /* says, too, what is read and written */
    gs_dtype from, to;
} pass;

static const pass passes[] = {
    {"check f32", check, BENCH_READ, GS_F32, GS_F32},
    {"check f16", check, BENCH_READ, GS_F16, GS_F16},
    {"check bf16", check, BENCH_READ, GS_BF16, GS_BF16},
    {"scan f32", scan, BENCH_READ, GS_F32, GS_F32},
    {"scan f16", scan, BENCH_READ, GS_F16, GS_F16},
    {"scan bf16", scan, BENCH_READ, GS_BF16, GS_BF16},
    {"count f32", count, BENCH_READ, GS_F32, GS_F32},
    {"count f16", count, BENCH_READ, GS_F16, GS_F16},
    {"count bf16", count, BENCH_READ, GS_BF16, GS_BF16},
    {"exponents f32", exponents, BENCH_READ, GS_F32, GS_F32},
    {"exponents f16", exponents, BENCH_READ, GS_F16, GS_F16},
    {"exponents bf16", exponents, BENCH_READ, GS_BF16, GS_BF16},
    {"scale f32", scale, BENCH_IN_PLACE, GS_F32, GS_F32},
    {"scale f16", scale, BENCH_IN_PLACE, GS_F16, GS_F16},
    {"scale bf16", scale, BENCH_IN_PLACE, GS_BF16, GS_BF16},
    {"unscale f32", unscale, BENCH_IN_PLACE, GS_F32, GS_F32},
    {"unscale f16", unscale, BENCH_IN_PLACE, GS_F16, GS_F16},
    {"unscale bf16", unscale, BENCH_IN_PLACE, GS_BF16, GS_BF16},
    {"unscale_to f16 f32", unscale_to, BENCH_MEMCPY, GS_F16, GS_F32},
    {"unscale_to bf16 f32", unscale_to, BENCH_MEMCPY, GS_BF16, GS_F32},
    {"scale_to f16 f32", scale_to, BENCH_MEMCPY, GS_F16, GS_F32},
    {"scale_to bf16 f32", scale_to, BENCH_MEMCPY, GS_BF16, GS_F32},
    {"scale_to f32 f32", scale_to, BENCH_MEMCPY, GS_F32, GS_F32},
    {"convert f16 f32", convert, BENCH_MEMCPY, GS_F16, GS_F32},
    {"convert bf16 f32", convert, BENCH_MEMCPY, GS_BF16, GS_F32},
    {"convert f32 f16", convert, BENCH_MEMCPY, GS_F32, GS_F16},
    {"convert f32 bf16", convert, BENCH_MEMCPY, GS_F32, GS_BF16},
    {"convert f16 bf16", convert, BENCH_MEMCPY, GS_F16, GS_BF16},
    {"convert bf16 f16", convert, BENCH_MEMCPY, GS_BF16, GS_F16},
    {"stochastic f32 f16", stochastic, BENCH_PHILOX, GS_F32, GS_F16},
    {"stochastic f32 bf16", stochastic, BENCH_PHILOX, GS_F32, GS_BF16},
    {"stochastic f16 bf16", stochastic, BENCH_PHILOX, GS_F16, GS_BF16},
    {"stochastic bf16 f16", stochastic, BENCH_PHILOX, GS_BF16, GS_F16},
    {"axpy f32 f32", axpy, BENCH_ADD, GS_F32, GS_F32},
    {"axpy f16 f32", axpy, BENCH_ADD, GS_F16, GS_F32},
    {"axpy bf16 f32", axpy, BENCH_ADD, GS_BF16, GS_F32},
};
enum { PASSES = sizeof passes / sizeof passes[0] };

/* ---- one size and one number of threads ---- */

/* A job is a loop of a limit or a pass. */
enum { JOBS_MAX = PASSES + 32, LARGE = 256 << 20 };
typedef struct job {
    const bench_loop *loop;
    const pass *pass;
    const char *name;
    bench_limit limit;
    double part;        /* of the working set that is measured, see choose_part */
    double traffic;     /* bytes per pass */
    double best, spent; /* seconds: of one pass; of all */
    unsigned turn, rounds;
} job;

typedef struct cell {
    const bench_memory *memory;
    unsigned threads;
    bench_team *team;
    gs_context *ctx;
    job jobs[JOBS_MAX];
    size_t count;
    const job *limits[BENCH_LIMIT_COUNT]; /* the best loop of each; NULL: not measured */
} cell;

enum { CELLS_MAX = 16 }; /* sizes, and numbers of threads */
typedef struct plan {
    bool json;
    int cpu;             /* index in CLI_CPUS */
    const char *kernels; /* their name */
    const char *only;    /* NULL: all */
    size_t sizes[CELLS_MAX];
    unsigned threads[CELLS_MAX];
    size_t size_count, thread_count;
    double end;         /* when all should be over, seconds */
    double weight_left; /* of the cells not measured yet */
} plan;

/* One pass over a large working set lasts as long as many over one in a cache. */
static double weight(size_t size) { return size < LARGE ? 1 : 3; }

static bool is_wanted(const plan *p, const pass *x) { return !p->only || strstr(x->name, p->only); }

/* The copies beside memcpy are shown for comparison. */
static bool is_limit_wanted(const plan *p, bench_limit limit)
{
    const bool is_copy = limit == BENCH_COPY || limit == BENCH_STREAM;
    for (size_t i = 0; i < PASSES; i++)
        if (is_wanted(p, &passes[i]) && passes[i].limit == (is_copy ? BENCH_MEMCPY : limit))
            return true;
    return false;
}

/* The loops of a limit come right before the passes that are compared with it. */
static void add_jobs(cell *c, const plan *p)
{
    const unsigned cpu = gs_cpu_detect();
    for (int l = 0; l < BENCH_LIMIT_COUNT; l++) {
        if (!is_limit_wanted(p, (bench_limit)l))
            continue;
        for (const bench_loop *x = bench_loops; x->name; x++)
            if ((int)x->limit == l && (cpu & x->needs) == x->needs && !(cpu & x->unless))
                c->jobs[c->count++] =
                    (job){.loop = x, .name = x->name, .limit = x->limit, .part = 1};
        for (const pass *x = passes; x < passes + PASSES; x++)
            if ((int)x->limit == l && is_wanted(p, x))
                c->jobs[c->count++] =
                    (job){.pass = x, .name = x->name, .limit = x->limit, .part = 1};
    }
}

/* Seconds for n passes, or -1 after an error. */
static double run_pass(const cell *c, job *x, unsigned n)
{
    const size_t from = gs_dtype_format(x->pass->from)->bytes,
                 to = gs_dtype_format(x->pass->to)->bytes;
    const bool apart = x->limit != BENCH_READ && x->limit != BENCH_IN_PLACE;
    const size_t elements =
        (size_t)((double)c->memory->size * x->part) / (apart ? from + to : from);
    const size_t traffic[] = {[BENCH_READ] = from,
                              [BENCH_IN_PLACE] = 2 * from,
                              [BENCH_MEMCPY] = from + to,
                              [BENCH_ADD] = from + 2 * to,
                              [BENCH_PHILOX] = sizeof(uint16_t)};
    const gs_tensor src = {c->memory->src, elements, x->pass->from, "src", 0};
    const gs_tensor dst = {c->memory->dst, elements, x->pass->to, "dst", 0};
    x->traffic = (double)(elements * traffic[x->limit]);

    const double start = gs_clock();
    for (unsigned i = 0; i < n; i++) {
        const gs_status status = x->pass->run(c->ctx, &dst, &src, x->turn++);
        if (status != GS_OK) {
            cli_fail_status(status, gs_context_error(c->ctx));
            return -1;
        }
    }
    return gs_clock() - start;
}

static double run_passes(const cell *c, job *x, unsigned n)
{
    return x->pass ? run_pass(c, x, n)
                   : bench_team_run(c->team, x->loop, c->memory, n, &x->traffic);
}

/* A pass bound by arithmetic is as fast on a part of a large working set: where all of it would
 * take longer than the time there is, only that part is measured. What memory bounds is faster. */
static bool choose_part(const cell *c, job *x, double share)
{
    static const double PROBE = 1.0 / 32, LONG = 0.25; /* s */
    if (!x->pass || c->memory->size < LARGE)
        return true;
    x->part = PROBE;
    const double seconds = run_passes(c, x, 2) / 2 / PROBE; /* two: there and back */
    x->part = fmin(fmax(fmax(share, LONG) / fmax(seconds, 1e-9), PROBE), 1);
    return seconds >= 0;
}

/* A turn of a job: as many passes as fill TURN, after one that brings the data into the caches
 * where they fit. The first turn is one pass, to learn how long it takes. */
static bool take_turn(const cell *c, job *x)
{
    static const double TURN = 3e-3; /* s: far above the cost of waking a thread */
    const double start = gs_clock();
    const unsigned n = x->rounds == 0 ? 1 : (unsigned)fmin(fmax(ceil(TURN / x->best), 1), 1e6);
    if (n > 1 && run_passes(c, x, 1) < 0)
        return false;
    const double seconds = run_passes(c, x, n) / n;
    if (seconds < 0)
        return false;
    x->best = x->rounds == 0 || seconds < x->best ? fmax(seconds, 1e-9) : x->best;
    x->rounds++;
    x->spent += gs_clock() - start;
    return true;
}

static double rate(const job *x) { return x->traffic / x->best / 1e9; }

/* Limits take part in every round, so that each pass meets them at its best moment. A pass that
 * has had its share of the time leaves; when all have, or the time is over, so does the cell. */
static bool measure(cell *c, const plan *p)
{
    enum { ROUNDS = 40 };
    char size[32];
    const double start = gs_clock(),
                 length = (p->end - start) * weight(c->memory->size) / p->weight_left;
    const double share = length / (double)c->count;
    bool is_going = true;
    for (unsigned round = 0; round < ROUNDS && is_going; round++) {
        is_going = false;
        for (size_t i = 0; i < c->count; i++) {
            job *x = &c->jobs[i];
            const double now = gs_clock() - start;
            if (round > 0 && now > length)
                return true;
            if (round > 0 && x->pass && x->spent > share)
                continue;
            cli_progress(fmax(round / (double)ROUNDS, now / length), 1, "%s, %u thread%s: %s",
                         cli_size_text(size, c->memory->size), c->threads, cli_s(c->threads),
                         x->name);
            if (round == 0 && !choose_part(c, x, share))
                return false;
            if (!take_turn(c, x))
                return false;
            is_going |= x->pass != NULL;
        }
    }
    return true;
}

static void find_limits(cell *c)
{
    for (const job *x = c->jobs; x < c->jobs + c->count; x++)
        if (x->loop && (!c->limits[x->limit] || rate(x) > rate(c->limits[x->limit])))
            c->limits[x->limit] = x;
}

static double of_limit(const cell *c, const job *x) { return rate(x) / rate(c->limits[x->limit]); }

/* What was changed in place and not yet changed back would add up from cell to cell. */
static void restore(cell *c)
{
    for (job *x = c->jobs; x < c->jobs + c->count; x++)
        if (x->pass && x->limit == BENCH_IN_PLACE && x->turn % 2)
            run_pass(c, x, 1);
}

static int fill_cell(cell *c, const plan *p, const bench_memory *memory, unsigned threads)
{
    *c = (cell){.memory = memory, .threads = threads};
    const cli_machine machine = {.threads = threads, .cpu = p->cpu};
    const int code = cli_context(&c->ctx, &machine);
    if (code != CLI_GO)
        return code;
    c->team = bench_team_new(threads);
    add_jobs(c, p);
    const bool done = c->team && measure(c, p);
    restore(c);
    if (done)
        find_limits(c);
    else if (!c->team)
        cli_failed("%u threads could not be started", threads);
    bench_team_free(c->team);
    gs_context_free(c->ctx);
    return done ? CLI_GO : CLI_FAILED;
}

/* ---- what is said ---- */

static void print_size(const cell *cells, size_t n, size_t size)
{
    char text[32], titles[CELLS_MAX][32];
    const char *columns[2 + 2 * CELLS_MAX + 1] = {"<pass", "<limit"};
    cli_progress_end();
    printf("\nworking set %s: GB/s, and as a fraction of the limit\n", cli_size_text(text, size));
    for (size_t k = 0; k < n; k++) {
        snprintf(titles[k], sizeof titles[k], ">%u thread%s", cells[k].threads,
                 cli_s(cells[k].threads));
        columns[2 + 2 * k] = titles[k];
        columns[3 + 2 * k] = ">fraction";
    }
    cli_table *t = cli_table_new(columns);
    for (int l = 0; l < BENCH_LIMIT_COUNT; l++) {
        if (!cells[0].limits[l])
            continue;
        cli_table_cell(t, "%s", bench_limit_name((bench_limit)l));
        cli_table_cell(t, "%s", "");
        for (size_t k = 0; k < n; k++) {
            cli_table_cell(t, "%.1f", rate(cells[k].limits[l]));
            cli_table_cell(t, "%s", "");
        }
    }
    cli_table_line(t);
    for (size_t i = 0; i < cells[0].count; i++) {
        if (!cells[0].jobs[i].pass)
            continue;
        cli_table_cell(t, "%s", cells[0].jobs[i].name);
        cli_table_cell(t, "%s", bench_limit_name(cells[0].jobs[i].limit));
        for (size_t k = 0; k < n; k++) {
            cli_table_cell(t, "%.1f", rate(&cells[k].jobs[i]));
            cli_table_cell(t, "%.2f", of_limit(&cells[k], &cells[k].jobs[i]));
        }
    }
    cli_table_print(t, stdout);
}

static void json_job(json_writer *j, const cell *c, const job *x)
{
    put_object(j, NULL);
    put_string(j, "name", x->pass ? x->name : bench_limit_name(x->limit));
    if (x->pass)
        put_string(j, "limit", bench_limit_name(x->limit));
    else
        put_string(j, "loop", x->name);
    put_u64(j, "bytes", (uint64_t)x->traffic);
    put_double(j, "seconds", x->best);
    put_double(j, "gb_per_s", rate(x));
    if (x->pass)
        put_double(j, "of_limit", of_limit(c, x));
    put_u64(j, "rounds", x->rounds);
    put_end(j);
}

static void json_cell(json_writer *j, const cell *c)
{
    put_object(j, NULL);
    put_u64(j, "size", c->memory->size);
    put_u64(j, "threads", c->threads);
    put_array(j, "limits");
    for (int l = 0; l < BENCH_LIMIT_COUNT; l++)
        if (c->limits[l])
            json_job(j, c, c->limits[l]);
    put_end(j);
    put_array(j, "passes");
    for (const job *x = c->jobs; x < c->jobs + c->count; x++)
        if (x->pass)
            json_job(j, c, x);
    put_end(j);
    put_end(j);
}

static void print_head(json_writer *j, const plan *p)
{
    char model[128];
    if (!p->json) {
        printf("gradscale %s, %s, kernels %s\n%s, %u online, load %.1f\n", gs_version(),
               cli_compiler(), p->kernels, cli_cpu_model(model), cli_cpus(), cli_load());
        return;
    }
    put_object(j, NULL);
    put_string(j, "bench", "kernels");
    put_string(j, "version", gs_version());
    put_string(j, "compiler", cli_compiler());
    put_string(j, "cpu", cli_cpu_model(model));
    put_string(j, "kernels", p->kernels);
    put_double(j, "load", cli_load());
    put_array(j, "results");
}

/* ---- the command ---- */

static int read_plan(plan *p, const char *sizes, const char *threads)
{
    char item[32];
    for (int more; (more = cli_next_item(&sizes, item, sizeof item)) != 0;) {
        if (p->size_count == CELLS_MAX)
            return cli_fail("--sizes takes at most %zu sizes", p->size_count);
        size_t size;
        if (more < 0 || !cli_read_size(&size, item) || size < 64 << 10 || (double)size > 0x1p40)
            return cli_fail("--sizes needs sizes from 64K to 1T such as 1M,32M,1G, not '%.60s'",
                            more < 0 ? sizes : item);
        p->sizes[p->size_count++] = size;
    }
    for (int more; threads && (more = cli_next_item(&threads, item, sizeof item)) != 0;) {
        if (p->thread_count == CELLS_MAX)
            return cli_fail("--threads takes at most %zu numbers", p->thread_count);
        uint64_t n;
        if (more < 0 || !cli_read_unsigned(&n, item) || n < 1 || n > 1024)
            return cli_fail("--threads needs numbers from 1 to 1024 such as 1,2, not '%.60s'",
                            more < 0 ? threads : item);
        p->threads[p->thread_count++] = (unsigned)n;
    }
    if (p->thread_count == 0) {
        p->threads[p->thread_count++] = 1;
        if (gs_cpus_usable(NULL) > 1)
            p->threads[p->thread_count++] = gs_cpus_usable(NULL);
    }
    for (size_t i = 0; i < p->size_count; i++)
        p->weight_left += weight(p->sizes[i]) * (double)p->thread_count;
    for (size_t i = 0; i < PASSES; i++)
        if (is_wanted(p, &passes[i]))
            return CLI_GO;
    return cli_fail("--only %.60s: no pass has this in its name", p->only);
}

/* The name of the kernels that --cpu leaves, if this CPU has them. */
static int find_kernels(plan *p)
{
    gs_context *ctx;
    const int code = cli_context(&ctx, &(cli_machine){.threads = 1, .cpu = p->cpu});
    if (code != CLI_GO)
        return code;
    p->kernels = cli_kernels(gs_context_cpu(ctx));
    gs_context_free(ctx);
    return CLI_GO;
}

static int measure_size(plan *p, json_writer *j, size_t size, size_t *measured)
{
    int code = CLI_GO;
    bench_memory memory;
    if (!bench_memory_new(&memory, size)) {
        p->weight_left -= weight(size) * (double)p->thread_count;
        return CLI_GO;
    }
    cell *const cells = cli_resize(NULL, p->thread_count * sizeof *cells);
    for (size_t t = 0; t < p->thread_count && code == CLI_GO; t++) {
        code = fill_cell(&cells[t], p, &memory, p->threads[t]);
        p->weight_left -= weight(size);
        *measured += code == CLI_GO;
        if (p->json && code == CLI_GO)
            json_cell(j, &cells[t]);
    }
    if (!p->json && code == CLI_GO)
        print_size(cells, p->thread_count, size);
    free(cells);
    bench_memory_free(&memory);
    return code == CLI_GO && !cli_flush() ? CLI_FAILED : code;
}

int bench_kernels(int argc, char **argv)
{
    double seconds = 50;
    const char *sizes = "1M,32M,1G", *threads = NULL;
    plan p = {0};
    const cli_option options[] = {
        {"sizes", "LIST", "working sets, all bytes that a pass touches", CLI_STRING(&sizes)},
        {"threads", "LIST", "numbers of threads (default 1 and one per CPU)", CLI_STRING(&threads)},
        {"cpu", CLI_CPUS, "the highest instruction set of the passes; the limits use the best",
         CLI_CHOICE(&p.cpu)},
        {"seconds", "S", "about how long to measure", CLI_DOUBLE(&seconds), .max = 86400},
        {"only", "TEXT", "measure only passes with this in their name", CLI_STRING(&p.only)},
        {"json", NULL, "print JSON; its schema is in doc/json-bench.md", CLI_FLAG(&p.json)},
        {0}};
    const cli_spec spec = {
        .name = "gradscale bench kernels",
        .about = "Measures every pass over gradients against the memory of this machine. "
                 "Reading, copying and changing in place are measured in the same run, by turns, "
                 "and the best of each counts.",
        .options = options};
    int code = cli_parse(&spec, &argc, argv);
    if (code == CLI_GO)
        code = read_plan(&p, sizes, threads);
    if (code == CLI_GO)
        code = find_kernels(&p);
    if (code != CLI_GO)
        return code;
    p.end = gs_clock() + seconds;

    json_writer j;
    put_begin(&j, stdout, true);
    print_head(&j, &p);
    size_t measured = 0;
    for (size_t i = 0; i < p.size_count && code == CLI_GO; i++)
        code = measure_size(&p, &j, p.sizes[i], &measured);
    if (p.json) {
        put_end(&j);
        put_end(&j);
    }
    if (code != CLI_GO)
        return code;
    return measured > 0 ? CLI_DONE : CLI_FAILED;
}
