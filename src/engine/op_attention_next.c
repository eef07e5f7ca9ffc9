/* Attention of the last tokens of a text, with the keys and values of those before at hand: no
 * gradient, no copy of the past. Sums are those of op_attention.c, element for element: a product's
 * element does not depend on how many rows there are, and a weight after a query's past is zero.
 *
 * Heads are shared out among the threads. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { ROWS = 64 };

typedef struct next_loop {
    gs_tape *t;
    const gs_value *qkv;
    gs_value *out;
    const gs_kv *kv;
    size_t heads, d, time;
    size_t p, gemm, all; /* floats of a worker: s before p before the products' workspace */
    float *workspace;
    atomic_size_t next;
} next_loop;

static size_t aligned(size_t floats) { return (floats + 15) / 16 * 16; }

/* Part 0, 1, 2 of a new token: q, k, v of a head. */
static const void *part(const next_loop *l, size_t row, size_t which, size_t h)
{
    const size_t c = l->heads * l->d;
    return gsi_at(l->qkv->data, l->qkv->dtype, row * 3 * c + which * c + h * l->d);
}

static void append(const next_loop *l, size_t h)
{
    const size_t row = l->d * gsi_size_of(l->kv->dtype);
    for (size_t i = 0; i < l->time; i++) {
        const size_t at = (h * l->kv->room + l->kv->n + i) * row;
        memcpy((char *)l->kv->k + at, part(l, i, 1, h), row);
        memcpy((char *)l->kv->v + at, part(l, i, 2, h), row);
    }
}

static void run_head(const next_loop *l, size_t h, float *f)
{
    const gs_dtype type = l->kv->dtype;
    const size_t c = l->heads * l->d, first = h * l->kv->room * l->d;
    char *out = gsi_node_of(l->out)->data;
    append(l, h);
    for (size_t q0 = 0; q0 < l->time; q0 += ROWS) {
        const size_t rows = gsi_min_size(l->time - q0, ROWS), past = l->kv->n + q0;
        const size_t n = past + rows;
        gs_gemm g = {.m = rows, .n = n, .k = l->d, .batch = 1};
        g.a = (gs_matrix){.data = part(l, q0, 0, h), .dtype = type, .stride = 3 * c};
        g.b = (gs_matrix){
            .data = gsi_at(l->kv->k, type, first), .dtype = type, .stride = l->d, .transposed = 1};
        g.c = (gs_matrix_out){f, GS_F32, n, 0};
        gsi_gemm_serial(l->t->ctx, &g, f + l->gemm);
        l->t->rows->attend((gsi_out){f + l->p, type, NULL}, f, rows, n, past,
                           1 / sqrtf((float)l->d));
        g = (gs_gemm){.m = rows, .n = l->d, .k = n, .batch = 1};
        g.a = (gs_matrix){.data = f + l->p, .dtype = type, .stride = n};
        g.b = (gs_matrix){.data = gsi_at(l->kv->v, type, first), .dtype = type, .stride = l->d};
        g.c = (gs_matrix_out){out + (q0 * c + h * l->d) * gsi_size_of(type), type, c, 0};
        gsi_gemm_serial(l->t->ctx, &g, f + l->gemm);
    }
}

static void work(void *arg, size_t worker)
{
    next_loop *l = arg;
    const uint64_t env = gsi_fpenv_enter();
    for (size_t h; (h = atomic_fetch_add(&l->next, 1)) < l->heads;)
        run_head(l, h, l->workspace + worker * l->all);
    gsi_fpenv_leave(env);
}

gs_value *gs_attention_next(gs_tape *tape, gs_value *qkv, size_t heads, const gs_kv *kv)
{
    char shape[96];
    gs_context *ctx = tape->ctx;
    qkv = gsi_operand(tape, GS_OP_attention, qkv);
    if (gsi_poisoned(qkv))
        return qkv;
    if (tape->training || !kv || !kv->k || !kv->v)
        return gs_tape_fail(tape, GS_ESTATE, "attention_next: %s",
                            tape->training ? "it has no gradient" : "there are no keys and values");
    if (qkv->rank != 3 || qkv->shape[0] != 1 || heads == 0 || qkv->shape[2] % (3 * heads) != 0 ||
        qkv->shape[2] == 0 || kv->n > kv->room || qkv->shape[1] > kv->room - kv->n)
        return gs_tape_fail(tape, GS_ESIZE,
                            "attention_next: qkv is %s, for %zu heads after %zu of %zu",
                            gsi_shape(shape, qkv), heads, kv->n, kv->room);
    if (kv->dtype != qkv->dtype)
        return gs_tape_fail(tape, GS_EDTYPE,
                            "attention_next: keys and values are not of qkv's type");
    const size_t time = qkv->shape[1], c = qkv->shape[2] / 3;
    gs_value *out = gsi_value(tape, qkv->dtype, 3, (const size_t[]){1, time, c});
    if (gsi_poisoned(out))
        return out;
    next_loop l = {
        .t = tape, .qkv = qkv, .out = out, .kv = kv, .heads = heads, .d = c / heads, .time = time};
    const size_t rows = gsi_min_size(time, ROWS), n = kv->n + time;
    const gs_gemm wide = {.m = rows, .n = n, .k = l.d, .batch = 1};
    const gs_gemm deep = {.m = rows, .n = l.d, .k = n, .batch = 1};
    const size_t workers = gsi_min_size(ctx->workers, heads);
    const gsi_mark mark = gsi_arena_mark(&ctx->scratch);
    l.p = aligned(rows * n);
    l.gemm = 2 * l.p;
    l.all = l.gemm +
            aligned(gsi_max_size(gsi_gemm_workspace(ctx, &wide), gsi_gemm_workspace(ctx, &deep)));
    l.workspace = gsi_arena_new(&ctx->scratch, workers, l.all * sizeof *l.workspace);
    if (l.workspace)
        ctx->parallel.run(ctx->parallel.user, workers, work, &l);
    else
        gs_tape_fail(tape, GS_ENOMEM, "attention_next: no memory for %zu rows of %zu", rows, n);
    gsi_arena_reset(&ctx->scratch, mark);
    return out;
}
