/* Attention: its definition to the last bit, made of the definitions of products and of row
 * kernels, on every level; and its memory. */
#include "levels.h"
#include "memory.h"
#include "test.h"

#include "kernel/context.h"

#include "gradscale/engine.h"

#include <math.h>
#include <stdlib.h>

typedef struct fixture {
    books books;
    gs_context *ctx;
    gs_tape *tape;
} fixture;

static void fixture_new(fixture *f, gs_mode mode, gs_dtype half, unsigned without_cpu)
{
    const gs_tape_config tape = {.size = sizeof tape, .mode = mode, .half = half};
    *f = (fixture){0};
    const gs_config c = {
        .size = sizeof c, .alloc = books_hook(&f->books), .threads = 2, .without_cpu = without_cpu};
    CHECK(gs_context_create(&f->ctx, &c, NULL) == GS_OK);
    CHECK(gs_tape_create(&f->tape, f->ctx, &tape) == GS_OK);
}

static void fixture_free(fixture *f)
{
    gs_tape_free(f->tape);
    gs_context_free(f->ctx);
    CHECK(f->books.blocks == 0 && !f->books.wrong);
}

/* ---- the definition ---- */

/* Tiles of queries, of which the last is no whole one, and keys of two blocks of a product. */
enum { TILE = 64, TIME = GSI_KC + TILE + 9, D = 10, HEADS = 2 };
enum { WIDTH = (HEADS + 2) * D, OUT = HEADS * D }; /* heads share keys and values */
enum { K_AT = HEADS * D, V_AT = K_AT + D };

static float data[TIME * WIDTH], grad[TIME * WIDTH], target[TIME * OUT];
static uint16_t copy[TIME * WIDTH];

static struct {
    float y[TIME * OUT], dy[TIME * OUT], dqkv[TIME * WIDTH]; /* of any type */
    float s[TIME * TIME], p[TIME * TIME], dp[TIME * TIME], ds[TIME * TIME];
    float dk[TIME * D], dv[TIME * D];
} want;

static gs_matrix operand(const void *x, gs_dtype type, size_t at, size_t stride, int transposed)
{
    return (gs_matrix){
        .data = gsi_at(x, type, at), .dtype = type, .stride = stride, .transposed = transposed};
}

static void multiply(void *c, gs_dtype type, size_t at, size_t stride, size_t m, size_t n, size_t k,
                     gs_matrix a, gs_matrix b, float beta)
{
    const gs_gemm g = {.m = m,
                       .n = n,
                       .k = k,
                       .batch = 1,
                       .a = a,
                       .b = b,
                       .c = {(char *)c + at * gsi_size_of(type), type, stride, 0},
                       .beta = beta};
    gsi_gemm_ref(&g);
}

/* Tile by tile, the last one first: of its queries the keys that they see, some of them, are n.
 * dout NULL: y; else what dqkv is made of. */
static void attend_head(size_t head, const void *qkv, const void *dout, gs_dtype type, bool causal)
{
    const float scale = 1 / sqrtf((float)D);
    const size_t q_at = head * D;
    gsi_kernels ref;
    gsi_kernels_init(&ref, 0);
    for (size_t end = TIME, q0; end > 0; end = q0) {
        q0 = (end - 1) / TILE * TILE;
        const size_t rows = end - q0, n = causal ? end : TIME, first = causal ? q0 : TIME;
        const float beta = head > 0 || end < TIME;
        const gs_matrix q = operand(qkv, type, q0 * WIDTH + q_at, WIDTH, 0);
        multiply(want.s, GS_F32, 0, n, rows, n, D, q, operand(qkv, type, K_AT, WIDTH, 1), 0);
        ref.rows.attend((gsi_out){want.p, type, NULL}, want.s, rows, n, first, scale);
        const gs_matrix p = operand(want.p, type, 0, n, 0), ds = operand(want.ds, type, 0, n, 0);
        gs_matrix pt = p, dst = ds;
        pt.transposed = dst.transposed = 1;
        if (!dout) {
            multiply(want.y, type, q0 * OUT + q_at, OUT, rows, D, n, p,
                     operand(qkv, type, V_AT, WIDTH, 0), 0);
            continue;
        }
        const gs_matrix o = operand(dout, type, q0 * OUT + q_at, OUT, 0);
        multiply(want.dv, GS_F32, 0, D, n, D, rows, pt, o, beta);
        multiply(want.dp, GS_F32, 0, n, rows, n, D, o, operand(qkv, type, V_AT, WIDTH, 1), 0);
        ref.rows.attend_backward((gsi_out){want.ds, type, NULL}, want.dp, (gsi_in){want.p, type},
                                 rows, n, first, scale);
        multiply(want.dqkv, type, q0 * WIDTH + q_at, WIDTH, rows, D, n, ds,
                 operand(qkv, type, K_AT, WIDTH, 0), 0);
        multiply(want.dk, GS_F32, 0, D, n, D, rows, dst, q, beta);
    }
}

/* With the gradients of the sum of (y - target)^2. */
static void attend(const void *qkv, gs_dtype type, bool causal)
{
    gsi_kernels ref;
    gsi_kernels_init(&ref, 0);
    for (size_t head = 0; head < HEADS; head++)
        attend_head(head, qkv, NULL, type, causal);
    ref.rows.difference((gsi_out){want.dy, type, NULL}, (gsi_in){want.y, type},
                        (gsi_in){target, GS_F32}, (size_t)TIME * OUT, 2);
    for (size_t head = 0; head < HEADS; head++)
        attend_head(head, qkv, want.dy, type, causal);
    for (size_t i = 0; i < TIME; i++) {
        char *const row = (char *)want.dqkv + i * WIDTH * gsi_size_of(type);
        ref.rows.copy((gsi_out){row + K_AT * gsi_size_of(type), type, NULL},
                      (gsi_in){want.dk + i * D, GS_F32}, D);
        ref.rows.copy((gsi_out){row + V_AT * gsi_size_of(type), type, NULL},
                      (gsi_in){want.dv + i * D, GS_F32}, D);
    }
}

static float noise(uint64_t stream, size_t i)
{
    return (float)gs_random_u32(stream, i) * 0x1p-30f - 2;
}

/* Of a tape: y and the gradients are those of attend(). */
static void check_defined(gs_dtype type, bool causal, unsigned without_cpu)
{
    static const size_t shape[] = {1, TIME, WIDTH}, result[] = {1, TIME, OUT};
    const bool f32 = type == GS_F32;
    const gs_weight w = {"qkv", 1,    TIME * WIDTH, data, GS_F32, f32 ? NULL : copy,
                         type,  grad, GS_F32,       0};
    fixture f;
    fixture_new(&f, f32 ? GS_O0 : GS_O2, f32 ? GS_F16 : type, without_cpu);
    memset(grad, 0, sizeof grad);
    gs_tape_begin(f.tape, 1, 0);
    gs_value *x = gs_reshape(f.tape, gs_param(f.tape, &w), 3, shape);
    gs_value *y = causal ? gs_attention_grouped(f.tape, x, NULL, NULL, HEADS, 1)
                         : gs_attention_unmasked(f.tape, x, NULL, NULL, HEADS, 1);
    gs_value *loss = gs_mse(f.tape, y, gs_input(f.tape, GS_F32, 3, result, target));
    CHECK(gs_tape_backward(f.tape, loss, TIME * OUT) == GS_OK);
    CHECK(y->dtype == type);
    const char *const name = gs_dtype_format(type)->name;
    CHECK_MSG(memcmp(y->data, want.y, y->count * gsi_size_of(type)) == 0,
              "%s, causal %d, without %#x", name, causal, without_cpu);
    for (size_t i = 0; i < TIME * WIDTH; i++) {
        const float sum = gsi_float(gsi_element(want.dqkv, type, i));
        CHECK_MSG(grad[i] == sum, "%s, causal %d, without %#x: d(qkv) %zu is %g, not %g", name,
                  causal, without_cpu, i, (double)grad[i], (double)sum);
    }
    fixture_free(&f);
}

/* Tiles, whole rows of a softmax, blocks of keys and the order of queries: other bits would show.
 */
static void test_defined(void)
{
    const unsigned have = gemm_levels();
    for (gs_dtype type = GS_F32; type <= GS_BF16; type++) {
        for (size_t i = 0; i < TIME * WIDTH; i++) {
            data[i] = noise(1, i);
            copy[i] = type == GS_F16 ? gs_f32_to_f16(data[i]) : gs_f32_to_bf16(data[i]);
        }
        for (size_t i = 0; i < TIME * OUT; i++)
            target[i] = noise(2, i);
        for (int causal = 0; causal < 2; causal++) {
            attend(type == GS_F32 ? (const void *)data : copy, type, causal);
            check_defined(type, causal, ~0u);
            for (unsigned flag = 1; flag <= have; flag <<= 1)
                if (have & flag)
                    check_defined(type, causal, ~level_cpus(flag));
        }
    }
}

/* ---- memory ---- */

/* Bytes held at most in a step with `time` tokens. */
static size_t memory_of(size_t time, bool causal)
{
    enum { WIDE = 16 };
    const size_t shape[] = {1, time, 3 * WIDE}, result[] = {1, time, WIDE}, n = time * 3 * WIDE;
    float *const x = calloc(n, sizeof *x), *const dx = calloc(n, sizeof *dx);
    const gs_weight w = {"qkv", 1, n, x, GS_F32, NULL, GS_F32, dx, GS_F32, 0};
    fixture f;
    fixture_new(&f, GS_O1, GS_BF16, 0);
    gs_tape_begin(f.tape, 1, 0);
    gs_value *qkv = gs_reshape(f.tape, gs_param(f.tape, &w), 3, shape);
    gs_value *y = causal ? gs_attention(f.tape, qkv, 1)
                         : gs_attention_unmasked(f.tape, qkv, NULL, NULL, 1, 1);
    gs_value *loss = gs_mse(f.tape, y, gs_input(f.tape, GS_F32, 3, result, x));
    CHECK(gs_tape_backward(f.tape, loss, 1) == GS_OK);
    const size_t most = f.books.most;
    fixture_free(&f);
    free(x);
    free(dx);
    return most;
}

/* The matrix of weights, time by time, is never there: memory grows no faster than the tokens. */
static void test_long_context(void)
{
    for (int causal = 0; causal < 2; causal++) {
        const size_t some = memory_of(2048, causal), more = memory_of(4096, causal);
        CHECK_MSG(more <= 2 * some, "%zu bytes of 2048 tokens, %zu of 4096", some, more);
    }
}

TESTS({"defined", test_defined}, {"long_context", test_long_context})
