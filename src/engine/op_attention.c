/* Attention, causal or to all tokens, a head at a time, ROWS queries at a time: of the T x T matrix
 * of weights only [ROWS][T] exists, in a core's cache, and backward computes it again, to the same
 * bits.
 *
 *     s = q k^T / sqrt(d)     f32
 *     p = softmax(s)          of what a query sees, its past or all; rounded to the type of q, k, v
 *     o = p v
 *
 *     dv += p^T do            f32 over all queries, then rounded
 *     dp = do v^T             f32
 *     ds = p (dp - sum of p dp) / sqrt(d), rounded
 *     dq = ds k;  dk += ds^T q
 *
 * Heads are shared out among the threads; the products inside run on one. Heads that share their
 * keys and values are one task of backward, which adds up their dk and dv. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

#include <math.h>
#include <stdatomic.h>

enum { ROWS = 64 };

typedef struct attention_op {
    gsi_op op; /* in: q, k, v; or q alone, which holds them all */
    size_t heads, kv_heads;
    bool causal;
} attention_op;

/* Floats of a worker's workspace. */
typedef struct layout {
    size_t s, p, dp, dk, dv, gemm, all;
} layout;

/* Queries, keys or values: columns of an array whose rows are tokens. */
typedef struct columns {
    const void *data;
    void *grad;           /* NULL: forward */
    size_t first, stride; /* elements: of the columns in a row, and of a row */
} columns;

typedef struct attention_loop {
    gs_tape *t;
    gs_value *out;
    gs_dtype type;
    bool backward, causal;
    columns part[3]; /* q, k, v */
    size_t heads, kv_heads, d, time, batch;
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
    const gs_dtype type = l->type;
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
    at.dk = at.dp + (l->backward ? tile : 0);
    at.dv = at.dk + (l->backward ? sums : 0);
    at.gemm = at.dv + (l->backward ? sums : 0);
    at.all = at.gemm + aligned(gemm);
    return at;
}

enum { Q, K, V };

/* Where row `row` of a head lies: of keys and values, of the head that it shares. */
static size_t offset(const attention_loop *l, size_t b, size_t h, size_t which, size_t row)
{
    const columns *c = &l->part[which];
    const size_t head = which == Q ? h : h / (l->heads / l->kv_heads);
    return ((b * l->time + row) * c->stride + c->first + head * l->d) * gsi_size_of(l->type);
}

/* A head's rows from `row` on. */
static gs_matrix part(const attention_loop *l, size_t b, size_t h, size_t which, size_t row,
                      int transposed)
{
    const columns *c = &l->part[which];
    return matrix((const char *)c->data + offset(l, b, h, which, row), l->type, c->stride,
                  transposed);
}

static void *grad_part(const attention_loop *l, size_t b, size_t h, size_t which, size_t row)
{
    return (char *)l->part[which].grad + offset(l, b, h, which, row);
}

/* How many keys the queries before `end` see, some of them. */
static size_t keys_of(const attention_loop *l, size_t end) { return l->causal ? end : l->time; }

/* The `first` of rows->attend: with it at the end, every query sees all. */
static size_t first_of(const attention_loop *l, size_t q0) { return l->causal ? q0 : l->time; }

/* p for queries [q0, q0 + rows), each over what it sees, zero after it. s and p are [rows][n]. */
static void weights(const attention_loop *l, size_t b, size_t h, size_t q0, size_t rows, float *f)
{
    const size_t n = keys_of(l, q0 + rows);
    float *s = f + l->at.s;
    gs_gemm g = product(l->type, rows, n, l->d);
    g.a = part(l, b, h, Q, q0, 0);
    g.b = part(l, b, h, K, 0, 1);
    g.c = result(s, GS_F32, n);
    gsi_gemm_serial(l->t->ctx, &g, f + l->at.gemm);
    l->t->rows->attend((gsi_out){f + l->at.p, l->type, NULL}, s, rows, n, first_of(l, q0),
                       l->scale);
}

static void forward_head(const attention_loop *l, size_t b, size_t h, float *f)
{
    const gs_dtype type = l->type;
    const size_t c = l->heads * l->d;
    for (size_t q0 = 0; q0 < l->time; q0 += ROWS) {
        const size_t rows = l->time - q0 < ROWS ? l->time - q0 : ROWS;
        const size_t n = keys_of(l, q0 + rows);
        weights(l, b, h, q0, rows, f);
        gs_gemm g = product(type, rows, l->d, n);
        g.a = matrix(f + l->at.p, type, n, 0);
        g.b = part(l, b, h, V, 0, 0);
        char *out = gsi_node_of(l->out)->data;
        g.c = result(out + ((b * l->time + q0) * c + h * l->d) * gsi_size_of(type), type, c);
        gsi_gemm_serial(l->t->ctx, &g, f + l->at.gemm);
    }
}

/* Rounds sums [time][d] into part `which` of the gradient. */
static void store_sums(const attention_loop *l, const float *sums, size_t b, size_t h, size_t which,
                       gs_stats *stats)
{
    const bool counted = l->t->config.telemetry;
    gsi_counts c = {0};
    uint32_t top = 0;
    for (size_t i = 0; i < l->time; i++) {
        void *to = grad_part(l, b, h, which, i);
        const uint32_t row = l->t->rows->copy((gsi_out){to, l->type, counted ? &c : NULL},
                                              (gsi_in){sums + i * l->d, GS_F32}, l->d);
        top = row > top ? row : top;
    }
    gs_stats one = gsi_stats_of(&c, top, counted);
    one.elements = l->time * l->d;
    gs_stats_merge(stats, &one);
}

/* first: nothing has been added to dk and dv yet. */
static void backward_head(const attention_loop *l, size_t b, size_t h, bool first, float *f,
                          gs_stats *stats)
{
    gs_context *ctx = l->t->ctx;
    const gs_dtype type = l->type;
    const size_t c = l->heads * l->d;
    float *dk = f + l->at.dk, *dv = f + l->at.dv, *gemm = f + l->at.gemm;
    const size_t tiles = gsi_ceil_div(l->time, ROWS);
    for (size_t tile = tiles; tile-- > 0;) {
        const size_t q0 = tile * ROWS, rows = l->time - q0 < ROWS ? l->time - q0 : ROWS;
        const size_t n = keys_of(l, q0 + rows);
        /* the last queries come first: they see all keys */
        const float beta = !first || tile + 1 < tiles;
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
        g.b = part(l, b, h, V, 0, 1);
        g.c = result(f + l->at.dp, GS_F32, n);
        gsi_gemm_serial(ctx, &g, gemm);
        l->t->rows->attend_backward((gsi_out){f + l->at.p, type, NULL}, f + l->at.dp,
                                    (gsi_in){f + l->at.p, type}, rows, n, first_of(l, q0),
                                    l->scale);

        g = product(type, rows, l->d, n); /* dq = ds k */
        g.a = matrix(f + l->at.p, type, n, 0);
        g.b = part(l, b, h, K, 0, 0);
        g.c = result(grad_part(l, b, h, Q, q0), type, l->part[Q].stride);
        g.stats = stats;
        gsi_gemm_serial(ctx, &g, gemm);

        g = product(type, n, l->d, rows); /* dk += ds^T q */
        g.a = matrix(f + l->at.p, type, n, 1);
        g.b = part(l, b, h, Q, q0, 0);
        g.c = result(dk, GS_F32, l->d);
        g.beta = beta;
        gsi_gemm_serial(ctx, &g, gemm);
    }
}

/* All heads that share keys and values. */
static void backward_group(const attention_loop *l, size_t b, size_t group, float *f,
                           gs_stats *stats)
{
    const size_t each = l->heads / l->kv_heads, h = group * each;
    for (size_t i = 0; i < each; i++)
        backward_head(l, b, h + i, i == 0, f, stats);
    store_sums(l, f + l->at.dk, b, h, K, stats);
    store_sums(l, f + l->at.dv, b, h, V, stats);
}

static size_t tasks_of(const attention_loop *l)
{
    return l->batch * (l->backward ? l->kv_heads : l->heads);
}

static void work(void *arg, size_t worker)
{
    attention_loop *l = arg;
    float *f = l->workspace + worker * l->at.all;
    const uint64_t env = gsi_fpenv_enter();
    for (size_t i; (i = atomic_fetch_add(&l->next, 1)) < tasks_of(l);)
        if (l->backward)
            backward_group(l, i / l->kv_heads, i % l->kv_heads, f, &l->stats[worker]);
        else
            forward_head(l, i / l->heads, i % l->heads, f);
    gsi_fpenv_leave(env);
}

static void run(attention_loop *l)
{
    gs_context *ctx = l->t->ctx;
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    const uint64_t env = gsi_fpenv_enter();
    const size_t workers = gsi_min_size(ctx->workers, tasks_of(l));
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
        for (size_t i = 0; l->backward && l->type != GS_F32 && i < workers; i++)
            gsi_note(l->t, &l->stats[i]);
    }
    gsi_fpenv_leave(env);
    gsi_arena_reset(&ctx->scratch, mark);
}

/* The loop over q, k and v, or q that holds them all. */
static attention_loop loop_of(gs_tape *t, gs_value *const in[3], gs_value *out, size_t heads,
                              size_t kv_heads, bool causal)
{
    const size_t d = out->shape[2] / heads;
    attention_loop l = {.t = t,
                        .out = out,
                        .type = out->dtype,
                        .causal = causal,
                        .heads = heads,
                        .kv_heads = kv_heads,
                        .d = d,
                        .time = out->shape[1],
                        .batch = out->shape[0]};
    for (size_t i = 0; i < 3; i++) {
        const gs_value *x = in[1] ? in[i] : in[0];
        const size_t first[] = {0, heads * d, (heads + kv_heads) * d};
        l.part[i] = (columns){x->data, NULL, in[1] ? 0 : first[i], x->shape[2]};
    }
    return l;
}

size_t gsi_attention_width(gs_tape *t, gs_value *in[3], size_t heads, size_t kv_heads,
                           const char *name)
{
    char sq[96], sk[96];
    const int parts = in[1] || in[2] ? 3 : 1;
    for (int i = 0; i < parts; i++) {
        in[i] = gsi_operand(t, GS_OP_attention, in[i]);
        if (gsi_poisoned(in[i]))
            return 0;
    }
    const gs_value *q = in[0], *k = in[1], *v = in[2];
    const size_t most = (size_t)1 << 24, shares = parts == 3 ? heads : heads + 2 * kv_heads;
    bool fits = q->rank == 3 && heads > 0 && heads < most && kv_heads > 0 && kv_heads < most &&
                heads % kv_heads == 0 && q->shape[2] > 0 && q->shape[2] % shares == 0;
    const size_t d = fits ? q->shape[2] / shares : 0;
    for (int i = 1; fits && i < parts; i++)
        fits = in[i]->rank == 3 && in[i]->dtype == q->dtype && in[i]->shape[0] == q->shape[0] &&
               in[i]->shape[1] == q->shape[1] && in[i]->shape[2] == kv_heads * d;
    if (fits)
        return heads * d;
    if (parts == 1)
        gs_tape_fail(t, GS_ESIZE, "%s: qkv is %s, for %zu heads and %zu of keys", name,
                     gsi_shape(sq, q), heads, kv_heads);
    else
        gs_tape_fail(t, GS_ESIZE, "%s: q is %s, k or v is %s, for %zu heads and %zu of keys", name,
                     gsi_shape(sq, q), gsi_shape(sk, k->shape[2] == kv_heads * d ? v : k), heads,
                     kv_heads);
    return 0;
}

static gs_value *attention(gs_tape *tape, gs_value *q, gs_value *k, gs_value *v, size_t heads,
                           size_t kv_heads, bool causal)
{
    gs_value *in[3] = {q, k, v};
    const size_t width = gsi_attention_width(tape, in, heads, kv_heads, "attention");
    if (width == 0)
        return &tape->poison.value;
    gs_value *out =
        gsi_value(tape, in[0]->dtype, 3, (const size_t[]){in[0]->shape[0], in[0]->shape[1], width});
    if (gsi_poisoned(out))
        return out;
    attention_loop l = loop_of(tape, in, out, heads, kv_heads, causal);
    run(&l);
    attention_op *op = gsi_record(tape, GS_OP_attention, sizeof *op, out, in[0], in[1], in[2]);
    if (op) {
        op->heads = heads;
        op->kv_heads = kv_heads;
        op->causal = causal;
        for (int i = 0; i < 3; i++)
            if (in[i])
                gsi_keep(in[i]);
    }
    return out;
}

gs_value *gs_attention_grouped(gs_tape *tape, gs_value *q, gs_value *k, gs_value *v, size_t heads,
                               size_t kv_heads)
{
    return attention(tape, q, k, v, heads, kv_heads, true);
}

gs_value *gs_attention_unmasked(gs_tape *tape, gs_value *q, gs_value *k, gs_value *v, size_t heads,
                                size_t kv_heads)
{
    return attention(tape, q, k, v, heads, kv_heads, false);
}

gs_value *gs_attention(gs_tape *tape, gs_value *qkv, size_t heads)
{
    return gs_attention_grouped(tape, qkv, NULL, NULL, heads, heads);
}

void gsi_attention_backward(gs_tape *t, gsi_op *record)
{
    const attention_op *op = (const attention_op *)record;
    gs_value *const *in = record->in;
    const size_t parts = in[1] ? 3 : 1;
    gsi_stage to[3] = {0};
    bool wanted[3] = {false};
    attention_loop l = loop_of(t, in, record->out, op->heads, op->kv_heads, op->causal);
    l.backward = true;
    for (size_t i = 0; i < parts; i++) {
        wanted[i] = gsi_stage_begin(t, in[i], &to[i]);
        if (!wanted[i]) /* it is computed even where nobody needs it */
            to[i].out.data = gsi_step_new(t, in[i]->count, gsi_size_of(in[i]->dtype));
        if (!to[i].out.data)
            return;
    }
    for (size_t i = 0; i < 3; i++)
        l.part[i].grad = to[parts == 3 ? i : 0].out.data;
    run(&l);
    for (size_t i = 0; i < parts; i++)
        if (wanted[i])
            gsi_stage_end(t, in[i], &to[i]);
}
