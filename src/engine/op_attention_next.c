/* Attention of the last tokens of a text, with the keys and values of those before at hand: no
 * gradient, no copy of the past. Sums are those of op_attention.c, element for element: a product's
 * element does not depend on how many rows there are, and a weight after a query's past is zero.
 *
 * Keys lie transposed, so that both products read memory in long runs: with one query there is
 * nothing that would pay for transposing them.
 *
 * Groups of heads that share keys and values are shared out among the threads. Of a single token
 * the heads of a group are the rows of one product, so that its keys and values are read once. */
#include "engine/engine.h"
#include "kernel/fpenv.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { ROWS = 64 };

typedef struct next_loop {
    gs_tape *t;
    const gs_value *part[3]; /* q, k, v: columns first[i] and on of rows of shape[2] */
    size_t first[3];
    gs_value *out;
    const gs_kv *kv;
    size_t heads, kv_heads, d, time;
    size_t p, gemm, all; /* floats of a worker: s before p before the products' workspace */
    float *workspace;
    atomic_size_t next;
} next_loop;

static size_t aligned(size_t floats) { return (floats + 15) / 16 * 16; }

/* Part 0, 1, 2 of a new token: q, k, v of a head. */
static const void *part(const next_loop *l, size_t row, size_t which, size_t h)
{
    const gs_value *x = l->part[which];
    return gsi_at(x->data, x->dtype, row * x->shape[2] + l->first[which] + h * l->d);
}

static void append(const next_loop *l, size_t group)
{
    const size_t size = gsi_size_of(l->kv->dtype), room = l->kv->room, d = l->d;
    for (size_t i = 0; i < l->time; i++) {
        const size_t at = l->kv->n + i;
        const char *const key = part(l, i, 1, group);
        for (size_t c = 0; c < d; c++)
            memcpy((char *)l->kv->k + ((group * d + c) * room + at) * size, key + c * size, size);
        memcpy((char *)l->kv->v + (group * room + at) * d * size, part(l, i, 2, group), d * size);
    }
}

/* Queries [rows, d] and their results, of rows `q_stride` and `out_stride` elements apart, with the
 * first n keys, of which row r sees past + r + 1. */
static void attend(const next_loop *l, size_t group, const void *q, size_t q_stride, void *out,
                   size_t out_stride, size_t rows, size_t past, size_t n, float *f)
{
    const gs_dtype type = l->kv->dtype;
    const size_t first = group * l->kv->room * l->d;
    gs_gemm g = {.m = rows, .n = n, .k = l->d, .batch = 1};
    g.a = (gs_matrix){.data = q, .dtype = type, .stride = q_stride};
    g.b = (gs_matrix){.data = gsi_at(l->kv->k, type, first), .dtype = type, .stride = l->kv->room};
    g.c = (gs_matrix_out){f, GS_F32, n, 0};
    gsi_gemm_serial(l->t->ctx, &g, f + l->gemm);
    l->t->rows->attend((gsi_out){f + l->p, type, NULL}, f, rows, n, past, 1 / sqrtf((float)l->d));
    g = (gs_gemm){.m = rows, .n = l->d, .k = n, .batch = 1};
    g.a = (gs_matrix){.data = f + l->p, .dtype = type, .stride = n};
    g.b = (gs_matrix){.data = gsi_at(l->kv->v, type, first), .dtype = type, .stride = l->d};
    g.c = (gs_matrix_out){out, type, out_stride, 0};
    gsi_gemm_serial(l->t->ctx, &g, f + l->gemm);
}

static void run_group(const next_loop *l, size_t group, float *f)
{
    const size_t each = l->heads / l->kv_heads, c = l->heads * l->d;
    const size_t size = gsi_size_of(l->kv->dtype), stride = l->part[0]->shape[2];
    char *out = gsi_node_of(l->out)->data;
    append(l, group);
    if (l->time == 1) {
        const size_t n = l->kv->n + 1, h = group * each;
        attend(l, group, part(l, 0, 0, h), l->d, out + h * l->d * size, l->d, each, n, n, f);
        return;
    }
    for (size_t h = group * each; h < (group + 1) * each; h++)
        for (size_t q0 = 0; q0 < l->time; q0 += ROWS) {
            const size_t rows = gsi_min_size(l->time - q0, ROWS), past = l->kv->n + q0;
            attend(l, group, part(l, q0, 0, h), stride, out + (q0 * c + h * l->d) * size, c, rows,
                   past, past + rows, f);
        }
}

static void work(void *arg, size_t worker)
{
    next_loop *l = arg;
    const uint64_t env = gsi_fpenv_enter();
    for (size_t i; (i = atomic_fetch_add(&l->next, 1)) < l->kv_heads;)
        run_group(l, i, l->workspace + worker * l->all);
    gsi_fpenv_leave(env);
}

gs_value *gs_attention_next(gs_tape *tape, gs_value *q, gs_value *k, gs_value *v, size_t heads,
                            size_t kv_heads, const gs_kv *kv)
{
    char shape[96];
    gs_context *ctx = tape->ctx;
    gs_value *in[3] = {q, k, v};
    const size_t c = gsi_attention_width(tape, in, heads, kv_heads, "attention_next");
    if (c == 0)
        return &tape->poison.value;
    q = in[0];
    if (tape->training || !kv || !kv->k || !kv->v)
        return gs_tape_fail(tape, GS_ESTATE, "attention_next: %s",
                            tape->training ? "it has no gradient" : "there are no keys and values");
    if (q->shape[0] != 1 || kv->n > kv->room || q->shape[1] > kv->room - kv->n)
        return gs_tape_fail(tape, GS_ESIZE, "attention_next: q is %s, after %zu of %zu",
                            gsi_shape(shape, q), kv->n, kv->room);
    if (kv->dtype != q->dtype)
        return gs_tape_fail(tape, GS_EDTYPE,
                            "attention_next: keys and values are not of the queries' type");
    const size_t time = q->shape[1], d = c / heads;
    gs_value *out = gsi_value(tape, q->dtype, 3, (const size_t[]){1, time, c});
    if (gsi_poisoned(out))
        return out;
    next_loop l = {.t = tape,
                   .part = {q, k ? in[1] : q, v ? in[2] : q},
                   .first = {0, k ? 0 : c, v ? 0 : c + kv_heads * d},
                   .out = out,
                   .kv = kv,
                   .heads = heads,
                   .kv_heads = kv_heads,
                   .d = d,
                   .time = time};
    const size_t rows = time == 1 ? heads / kv_heads : gsi_min_size(time, ROWS), n = kv->n + time;
    const gs_matrix of = {.dtype = q->dtype};
    const gs_gemm wide = {.m = rows, .n = n, .k = l.d, .batch = 1, .a = of, .b = of};
    const gs_gemm deep = {.m = rows, .n = l.d, .k = n, .batch = 1, .a = of, .b = of};
    const size_t workers = gsi_min_size(ctx->workers, kv_heads);
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
