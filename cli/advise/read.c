/* Reading for `gradscale advise`: threads take blocks of the file in turn, each reads and counts
 * its own. Counts are whole numbers, so which thread took a block changes nothing. */
#include "cli/advise/advise.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 512 * 1024 }; /* bytes: what is read is still in L2 when it is counted */
enum { MAX_THREADS = 64 };   /* beyond, no machine's memory keeps up */

typedef struct job {
    advise_file *file;
    pthread_mutex_t lock; /* of all below */
    size_t tensor;        /* the next block */
    uint64_t first;
    gs_exponents *total;
    double scale;     /* values are divided by it */
    double done, all; /* bytes, for the progress line */
    gs_status status; /* the first failure */
    gs_error error;
} job;

typedef struct worker {
    job *job;
    gs_context *ctx;
    void *buffer; /* BLOCK bytes */
    double *wide; /* [BLOCK / 2] values in true units; NULL: they are in the file */
    bool shows_progress;
    pthread_t thread;
} worker;

typedef struct block {
    advise_tensor *tensor;
    size_t index;
    uint64_t first;
    size_t count;
} block;

static bool next_block(job *j, block *b)
{
    advise_file *f = j->file;
    pthread_mutex_lock(&j->lock);
    while (j->tensor < f->count && (!gs_entry_readable(f->tensors[j->tensor].entry) ||
                                    j->first == f->tensors[j->tensor].entry->count)) {
        j->tensor++;
        j->first = 0;
    }
    const bool more = j->status == GS_OK && j->tensor < f->count;
    if (more) {
        advise_tensor *t = &f->tensors[j->tensor];
        const uint64_t most = BLOCK / gs_dtype_format(t->entry->dtype)->bytes;
        const uint64_t left = t->entry->count - j->first;
        *b = (block){t, j->tensor, j->first, (size_t)(left < most ? left : most)};
        j->first += b->count;
    }
    pthread_mutex_unlock(&j->lock);
    return more;
}

/* In f64, which has room for all of them below and above. */
static void unscale(double *out, const void *data, size_t n, gs_dtype dtype, double scale)
{
    const uint16_t *half = data;
    for (size_t i = 0; i < n; i++) {
        const double x = dtype == GS_F16    ? (double)gs_f16_to_f32(half[i])
                         : dtype == GS_BF16 ? (double)gs_bf16_to_f32(half[i])
                         : dtype == GS_F32  ? (double)((const float *)data)[i]
                                            : ((const double *)data)[i];
        out[i] = x / scale;
    }
}

static gs_status count_block(worker *w, const block *b, gs_exponents *part, gs_stats *stats,
                             gs_error *error)
{
    const gs_entry *e = b->tensor->entry;
    const void *data = w->buffer;
    gs_status status = GS_OK;
    if (b->tensor->map)
        data = (const char *)b->tensor->map + b->first * gs_dtype_format(e->dtype)->bytes;
    else
        status =
            gs_source_read(w->buffer, w->job->file->source, b->index, b->first, b->count, error);
    if (status != GS_OK)
        return status;
    if (w->wide) {
        unscale(w->wide, data, b->count, e->dtype, w->job->scale);
        gs_exponents_add_f64(part, w->wide, b->count, stats);
        return GS_OK;
    }
    if (e->dtype == GS_F64) {
        gs_exponents_add_f64(part, data, b->count, stats);
        return GS_OK;
    }
    const gs_tensor tensor = gs_tensor_source(data, b->count, e->dtype, e->name);
    status = gs_tensors_exponents(w->ctx, part, &tensor, 1, stats);
    if (status != GS_OK)
        *error = *gs_context_error(w->ctx);
    return status;
}

/* Adds a block to its tensor; the last one finishes it. */
static void add_block(job *j, const block *b, const gs_exponents *part, const gs_stats *stats)
{
    advise_tensor *t = b->tensor;
    gs_stats s = *stats;
    if (s.bad_index != GS_NONE)
        s.bad_index += b->first;
    if (!t->sum) {
        t->sum = cli_resize(NULL, sizeof *t->sum);
        memset(t->sum, 0, sizeof *t->sum);
    }
    gs_exponents_merge(t->sum, part);
    gs_stats_merge(&t->stats, &s);
    t->left -= b->count;
    if (t->left == 0) {
        gs_exponents_merge(j->total, t->sum);
        survey_finish(&t->s, t->sum, &t->stats);
        free(t->sum);
        t->sum = NULL;
    }
}

static void *work(void *arg)
{
    worker *w = arg;
    job *j = w->job;
    block b;
    while (next_block(j, &b)) {
        gs_exponents part = {0};
        gs_stats stats;
        gs_error error = {0};
        const gs_status status = count_block(w, &b, &part, &stats, &error);
        pthread_mutex_lock(&j->lock);
        if (status == GS_OK)
            add_block(j, &b, &part, &stats);
        else if (j->status == GS_OK) {
            j->status = status;
            j->error = error;
        }
        j->done += (double)(b.count * gs_dtype_format(b.tensor->entry->dtype)->bytes);
        const double done = j->done;
        pthread_mutex_unlock(&j->lock);
        if (w->shows_progress)
            cli_progress(done, j->all, "%.1f of %.1f MB  %s", done / 1e6, j->all / 1e6,
                         j->file->path);
    }
    return NULL;
}

/* A mapped file that is cut meanwhile. Only this may be called in a handler. */
static void on_cut(int signal)
{
    static const char text[] = "\ngradscale: a file became shorter while it was read\n";
    (void)signal;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
        _exit(CLI_FAILED);
    _exit(CLI_FAILED);
}

static int run_workers(job *j, const cli_machine *machine, size_t threads)
{
    worker *workers = cli_resize(NULL, threads * sizeof *workers);
    memset(workers, 0, threads * sizeof *workers);
    int code = CLI_GO;
    size_t ready = 0, started = 1;
    for (; ready < threads && code == CLI_GO; ready++) {
        worker *w = &workers[ready];
        const cli_machine one = {.threads = 1, .cpu = machine->cpu};
        *w = (worker){.job = j, .shows_progress = ready == 0};
        code = cli_context(&w->ctx, &one);
        w->buffer = cli_resize(NULL, BLOCK);
        w->wide = j->scale != 1 ? cli_resize(NULL, BLOCK / 2 * sizeof *w->wide) : NULL;
    }
    if (code == CLI_GO) {
        /* A thread that cannot be started is one less, no failure. */
        while (started < threads &&
               pthread_create(&workers[started].thread, NULL, work, &workers[started]) == 0)
            started++;
        work(&workers[0]);
        for (size_t i = 1; i < started; i++)
            pthread_join(workers[i].thread, NULL);
        if (j->status != GS_OK)
            code = cli_fail_status(j->status, &j->error);
    }
    for (size_t i = 0; i < ready; i++) {
        gs_context_free(workers[i].ctx);
        free(workers[i].buffer);
        free(workers[i].wide);
    }
    free(workers);
    return code;
}

int advise_read(advise_file *f, gs_exponents *total, double scale, const cli_machine *machine,
                double done, double all)
{
    uint64_t bytes = 0;
    bool sequential = false;
    for (size_t t = 0; t < f->count; t++) {
        advise_tensor *x = &f->tensors[t];
        sequential |= x->entry->sequential;
        gs_stats_init(&x->stats);
        x->map = gs_source_map(f->source, t);
        x->left = x->entry->count;
        if (!gs_entry_readable(x->entry))
            f->skipped++;
        else if (x->left == 0)
            survey_finish(&x->s, &(gs_exponents){0}, &x->stats);
        else
            bytes += x->entry->bytes;
    }
    size_t threads = machine->threads ? (size_t)machine->threads : gs_cpus_usable(NULL);
    threads = sequential || bytes <= BLOCK ? 1 : threads < MAX_THREADS ? threads : MAX_THREADS;
    job j = {.file = f, .total = total, .scale = scale, .done = done, .all = all};
    pthread_mutex_init(&j.lock, NULL);
    struct sigaction old, cut = {.sa_handler = on_cut};
    sigaction(SIGBUS, &cut, &old);
    const int code = run_workers(&j, machine, threads);
    sigaction(SIGBUS, &old, NULL);
    pthread_mutex_destroy(&j.lock);
    return code;
}
