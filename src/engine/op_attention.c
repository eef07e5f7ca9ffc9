/* Causal attention, a head at a time, ROWS queries at a time: of the T x T matrix of weights only
 * [ROWS][T] exists, in a core's cache, and backward computes it again, to the same bits.
 *
 *     s = q k^T / sqrt(d)     f32
 *     p = softmax(s)          of the queries' past; rounded to the type of q, k, v
 *     o = p v
 *
 *     dv += p^T do            f32 over all queries, then rounded
 *     dp = do v^T             f32
 *     ds = p (dp - sum of p dp) / sqrt(d), rounded
 *     dq = ds k;  dk += ds^T q
 *
 * Heads are shared out among the threads; the products inside run on one. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

#include <math.h>
#include <stdatomic.h>

enum { ROWS = 64 };

typedef struct attention_op {
    gsi_op op;
    size_t heads;
} attention_op;

/* Floats of a worker's workspace. */
typedef struct layout {
    size_t s, p, dp, dk, dv, gemm, all;
} layout;

typedef struct attention_loop {
    gs_tape *t;
    gs_value *qkv, *out;
    void *dqkv; /* NULL: forward */
    size_t heads, d, time, batch;
    float scale;
    layout at;
    float *workspace;
    atomic_size_t next;
    gs_stats *stats; /* [workers]: of what backward stores */
} attention_loop;

static size_t aligned(size_t floats) { return (floats + 15) / 16 * 16; }

static gs_gemm product(gs_dtype type, size_t m, size_t n, size_t k)
{
    return (gs_gemm){.m = m, .n = n, .k = k, .batch = 1, .a.dtype = type, .b.dtype = type};
}

static gs_matrix matrix(const void *data, gs_dtype dtype, size_t stride, int transposed)
{
    return (gs_matrix){.data = data, .dtype = dtype, .stride = stride, .transposed = transposed};
}

static gs_matrix_out result(void *data, gs_dtype dtype, size_t stride)
{
    return (gs_matrix_out){data, dtype, stride, 0};
}

static layout lay_out(const attention_loop *l)
{
    const size_t tile = aligned(ROWS * l->time), sums = aligned(l->time * l->d);
    const gs_dtype type = l->qkv->dtype;
    const gs_gemm wide = product(type, ROWS, l->time, l->d);
    const gs_gemm deep = product(type, l->time, l->d, ROWS);
    const gs_gemm thin = product(type, ROWS, l->d, l->time);
    size_t gemm = gsi_gemm_workspace(l->t->ctx, &wide);
    const size_t other[] = {gsi_gemm_workspace(l->t->ctx, &deep),
                            gsi_gemm_workspace(l->t->ctx, &thin)};
    for (int i = 0; i < 2; i++)
        gemm = other[i] > gemm ? other[i] : gemm;
    layout at = {.s = 0, .p = tile};
    at.dp = at.p + tile;
    at.dk = at.dp + (l->dqkv ? tile : 0);
    at.dv = at.dk + (l->dqkv ? sums : 0);
    at.gemm = at.dv + (l->dqkv ? sums : 0);
    at.all = at.gemm + aligned(gemm);
    return at;
}

/* Part 0, 1, 2 of row `row` of a head: q, k, v. */
static size_t offset(const attention_loop *l, size_t b, size_t h, size_t which, size_t row)
{
    const size_t c = l->heads * l->d;
    return ((b * l->time + row) * 3 * c + which * c + h * l->d) * gsi_size_of(l->qkv->dtype);
}

static const void *part(const attention_loop *l, size_t b, size_t h, size_t which, size_t row)
{
    return (const char *)l->qkv->data + offset(l, b, h, which, row);
}

static void *grad_part(const attention_loop *l, size_t b, size_t h, size_t which, size_t row)
{
    return (char *)l->dqkv + offset(l, b, h, which, row);
}

/* p for queries [q0, q0 + rows), each over its past, zero after it. s and p are [rows][n]. */
static void weights(const attention_loop *l, size_t b, size_t h, size_t q0, size_t rows, float *f)
{
    gs_context *ctx = l->t->ctx;
    const gs_dtype type = l->qkv->dtype;
    const size_t n = q0 + rows, stride = 3 * l->heads * l->d;
    float *s = f + l->at.s;
    gs_gemm g = product(type, rows, n, l->d);
    g.a = matrix(part(l, b, h, 0, q0), type, stride, 0);
    g.b = matrix(part(l, b, h, 1, 0), type, stride, 1);
    g.c = result(s, GS_F32, n);
    gsi_gemm_serial(ctx, &g, f + l->at.gemm);
    l->t->rows->attend((gsi_out){f + l->at.p, type, NULL}, s, rows, n, q0, l->scale);
}

static void forward_head(const attention_loop *l, size_t b, size_t h, float *f)
{
    const gs_dtype type = l->qkv->dtype;
    const size_t c = l->heads * l->d;
    for (size_t q0 = 0; q0 < l->time; q0 += ROWS) {
        const size_t rows = l->time - q0 < ROWS ? l->time - q0 : ROWS, n = q0 + rows;
        weights(l, b, h, q0, rows, f);
        gs_gemm g = product(type, rows, l->d, n);
        g.a = matrix(f + l->at.p, type, n, 0);
        g.b = matrix(part(l, b, h, 2, 0), type, 3 * c, 0);
        char *out = gsi_node_of(l->out)->data;
        g.c = result(out + ((b * l->time + q0) * c + h * l->d) * gsi_size_of(type), type, c);
        gsi_gemm_serial(l->t->ctx, &g, f + l->at.gemm);
    }
}

/* Rounds sums [time][d] into part `which` of d(qkv). */
static void store_sums(const attention_loop *l, const float *sums, size_t b, size_t h, size_t which,
                       gs_stats *stats)
{
    const gs_dtype type = l->qkv->dtype;
    const bool counted = l->t->config.telemetry;
    gsi_counts c = {0};
    uint32_t top = 0;
    for (size_t i = 0; i < l->time; i++) {
        void *to = grad_part(l, b, h, which, i);
        const uint32_t row = l->t->rows->copy((gsi_out){to, type, counted ? &c : NULL},
                                              (gsi_in){sums + i * l->d, GS_F32}, l->d);
        top = row > top ? row : top;
    }
    gs_stats one = gsi_stats_of(&c, top, counted);
    one.elements = l->time * l->d;
    gs_stats_merge(stats, &one);
}

static void backward_head(const attention_loop *l, size_t b, size_t h, float *f, gs_stats *stats)
{
    gs_context *ctx = l->t->ctx;
    const gs_dtype type = l->qkv->dtype;
    const size_t c = l->heads * l->d, stride = 3 * c;
    float *dk = f + l->at.dk, *dv = f + l->at.dv, *gemm = f + l->at.gemm;
    for (size_t tile = gsi_ceil_div(l->time, ROWS); tile-- > 0;) {
        const size_t q0 = tile * ROWS, rows = l->time - q0 < ROWS ? l->time - q0 : ROWS;
        const size_t n = q0 + rows;
        const float beta = n < l->time; /* the last queries come first: they see all keys */
        const void *dout = gsi_at(l->out->grad, type, (b * l->time + q0) * c + h * l->d);
        weights(l, b, h, q0, rows, f);

        gs_gemm g = product(type, n, l->d, rows); /* dv += p^T do */
        g.a = matrix(f + l->at.p, type, n, 1);
        g.b = matrix(dout, type, c, 0);
        g.c = result(dv, GS_F32, l->d);
        g.beta = beta;
        gsi_gemm_serial(ctx, &g, gemm);

        g = product(type, rows, n, l->d); /* dp = do v^T */
        g.a = matrix(dout, type, c, 0);
        g.b = matrix(part(l, b, h, 2, 0), type, stride, 1);
        g.c = result(f + l->at.dp, GS_F32, n);
        gsi_gemm_serial(ctx, &g, gemm);
        l->t->rows->attend_backward((gsi_out){f + l->at.p, type, NULL}, f + l->at.dp,
                                    (gsi_in){f + l->at.p, type}, rows, n, q0, l->scale);

        g = product(type, rows, l->d, n); /* dq = ds k */
        g.a = matrix(f + l->at.p, type, n, 0);
        g.b = matrix(part(l, b, h, 1, 0), type, stride, 0);
        g.c = result(grad_part(l, b, h, 0, q0), type, stride);
        g.stats = stats;
        gsi_gemm_serial(ctx, &g, gemm);

        g = product(type, n, l->d, rows); /* dk += ds^T q */
        g.a = matrix(f + l->at.p, type, n, 1);
        g.b = matrix(part(l, b, h, 0, q0), type, stride, 0);
        g.c = result(dk, GS_F32, l->d);
        g.beta = beta;
        gsi_gemm_serial(ctx, &g, gemm);
    }
    store_sums(l, dk, b, h, 1, stats);
    store_sums(l, dv, b, h, 2, stats);
}

static void work(void *arg, size_t worker)
{
    attention_loop *l = arg;
    float *f = l->workspace + worker * l->at.all;
    const uint64_t env = gsi_fpenv_enter();
    for (;;) {
        const size_t i = atomic_fetch_add(&l->next, 1);
        if (i >= l->batch * l->heads)
            break;
        if (l->dqkv)
            backward_head(l, i / l->heads, i % l->heads, f, &l->stats[worker]);
        else
            forward_head(l, i / l->heads, i % l->heads, f);
    }
    gsi_fpenv_leave(env);
}

static void run(attention_loop *l)
{
    gs_context *ctx = l->t->ctx;
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    const uint64_t env = gsi_fpenv_enter();
    const size_t tasks = l->batch * l->heads, workers = ctx->workers < tasks ? ctx->workers : tasks;
    l->d = l->out->shape[2] / l->heads;
    l->time = l->out->shape[1];
    l->scale = 1 / sqrtf((float)l->d);
    l->at = lay_out(l);
    l->workspace = gsi_arena_new(&ctx->scratch, workers, l->at.all * sizeof *l->workspace);
    l->stats = gsi_arena_new(&ctx->scratch, workers, sizeof *l->stats);
    if (!l->workspace || !l->stats) {
        gs_tape_fail(l->t, GS_ENOMEM, "attention: no memory for %zu rows of %zu", (size_t)ROWS,
                     l->time);
    } else {
        for (size_t i = 0; i < workers; i++)
            gs_stats_init(&l->stats[i]);
        ctx->parallel.run(ctx->parallel.user, workers, work, l);
        for (size_t i = 0; l->dqkv && l->qkv->dtype != GS_F32 && i < workers; i++)
            gsi_note(l->t, &l->stats[i]);
    }
    gsi_fpenv_leave(env);
    gsi_arena_reset(&ctx->scratch, mark);
}

gs_value *gs_attention(gs_tape *tape, gs_value *qkv, size_t heads)
{
    char shape[96];
    qkv = gsi_operand(tape, GS_OP_attention, qkv);
    if (gsi_poisoned(qkv))
        return qkv;
    if (qkv->rank != 3 || heads == 0 || heads > qkv->shape[2] || qkv->shape[2] % (3 * heads) != 0)
        return gs_tape_fail(tape, GS_ESIZE, "attention: qkv is %s, for %zu heads",
                            gsi_shape(shape, qkv), heads);
    gs_value *out = gsi_value(tape, qkv->dtype, 3,
                              (const size_t[]){qkv->shape[0], qkv->shape[1], qkv->shape[2] / 3});
    if (gsi_poisoned(out))
        return out;
    attention_loop l = {.t = tape, .qkv = qkv, .out = out, .heads = heads, .batch = qkv->shape[0]};
    run(&l);
    attention_op *op = gsi_record(tape, GS_OP_attention, sizeof *op, out, qkv, NULL, NULL);
    if (op) {
        op->heads = heads;
        gsi_keep(qkv);
    }
    return out;
}

void gsi_attention_backward(gs_tape *t, gsi_op *record)
{
    const attention_op *op = (const attention_op *)record;
    gs_value *qkv = record->in[0];
    gsi_stage to;
    if (!gsi_stage_begin(t, qkv, &to))
        return;
    attention_loop l = {.t = t,
                        .qkv = qkv,
                        .out = record->out,
                        .dqkv = to.out.data,
                        .heads = op->heads,
                        .batch = qkv->shape[0]};
    run(&l);
    gsi_stage_end(t, qkv, &to);
}
