/* op_case.h: an operation beside a naive f64 function: its result, its gradients against
 * differences of that function, and memory that ends at every allocation. */
#ifndef OP_CASE_H
#define OP_CASE_H

#include "memory.h"
#include "test.h"

#include "gradscale/engine.h"

#include <math.h>

enum { MAX_INPUTS = 3, MAX_COUNT = 4096 };

typedef struct shape {
    int rank;
    size_t n[4];
} shape;

typedef struct op_case op_case;
struct op_case {
    shape in[MAX_INPUTS]; /* rank 0: no such input */
    shape out;
    gs_value *(*run)(gs_tape *t, gs_value **in);
    void (*naive)(double *y, double *const *in, const op_case *c); /* NULL: y is a scalar loss */
    double spread;                                                 /* inputs are about this large */
};

static size_t count_of(const shape *s)
{
    size_t n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= s->n[i];
    return n;
}

static double uniform(uint64_t stream, size_t i) /* -1 to 1 */
{
    return (double)gs_random_u32(stream, i) * 0x1p-31 - 1;
}

static double rounded(double x, gs_mode mode, gs_dtype half)
{
    const float f = (float)x;
    if (mode == GS_O0)
        return (double)f;
    return (double)(half == GS_F16 ? gs_f16_to_f32(gs_f32_to_f16(f))
                                   : gs_bf16_to_f32(gs_f32_to_bf16(f)));
}

static double naive_loss(double *const *in, const double *target, const op_case *c)
{
    static double y[MAX_COUNT];
    const size_t n = count_of(&c->out);
    c->naive(y, in, c);
    if (c->out.rank == 0)
        return y[0];
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (y[i] - target[i]) * (y[i] - target[i]);
    return sum / (double)n;
}

/* The loss of the engine, and its gradients in w[].grad. */
static gs_status run_engine(gs_value **loss, gs_tape *t, gs_weight *w, const float *target,
                            const op_case *c, gs_mode mode, gs_dtype half)
{
    gs_value *in[MAX_INPUTS] = {NULL};
    gs_tape_begin(t, 1, 7);
    for (int k = 0; k < MAX_INPUTS && c->in[k].rank; k++) {
        memset(w[k].grad, 0, w[k].cols * sizeof(float));
        in[k] = gs_reshape(t, gs_param(t, &w[k]), c->in[k].rank, c->in[k].n);
        if (mode == GS_O3 || (mode == GS_O2 && k == 0))
            in[k] = gs_cast(t, in[k], half);
    }
    gs_value *y = c->run(t, in);
    *loss = y;
    if (c->out.rank)
        *loss = gs_mse(t, y, gs_input(t, GS_F32, c->out.rank, c->out.n, target));
    return gs_tape_backward(t, *loss, 1);
}

/* Allocation k = 1, 2, 3... fails: always NOMEM, never a leak. */
static void check_no_memory(const op_case *c, gs_weight *w, const float *target)
{
    gs_status status = GS_ENOMEM;
    size_t k = 0;
    while (status == GS_ENOMEM && ++k < 100) {
        books b = {.fail_at = k};
        gs_context *ctx = NULL;
        gs_tape *t = NULL;
        gs_value *loss;
        status = gs_context_create(
            &ctx, &(gs_config){.size = sizeof(gs_config), .alloc = books_hook(&b), .threads = 1},
            NULL);
        if (status == GS_OK)
            status = gs_tape_create(
                &t, ctx,
                &(gs_tape_config){
                    .size = sizeof(gs_tape_config), .mode = GS_O2, .half = GS_F16, .recompute = 1});
        if (status == GS_OK)
            status = run_engine(&loss, t, w, target, c, GS_O2, GS_F16);
        gs_tape_free(t);
        gs_context_free(ctx);
        CHECK_MSG(b.blocks == 0 && !b.wrong, "allocation %zu: %zu blocks are left", k, b.blocks);
    }
    CHECK_MSG(status == GS_OK && k > 3, "allocation %zu: %s", k, gs_status_name(status));
}

static void check_case(const op_case *c, gs_mode mode, gs_dtype half)
{
    static float data[MAX_INPUTS][MAX_COUNT], grad[MAX_INPUTS][MAX_COUNT], target[MAX_COUNT];
    static double x[MAX_INPUTS][MAX_COUNT], aim[MAX_COUNT];
    double *in[MAX_INPUTS] = {x[0], x[1], x[2]};
    gs_weight w[MAX_INPUTS] = {{0}};
    const double eps = mode == GS_O0 ? 0x1p-16 : half == GS_F16 ? 0x1p-8 : 0x1p-5;

    for (int k = 0; k < MAX_INPUTS && c->in[k].rank; k++) {
        const size_t n = count_of(&c->in[k]);
        for (size_t i = 0; i < n; i++) {
            x[k][i] = rounded(c->spread * uniform(100 + (uint64_t)k, i), mode, half);
            data[k][i] = (float)x[k][i];
        }
        w[k] = (gs_weight){.name = "w",
                           .rows = 1,
                           .cols = n,
                           .data = data[k],
                           .dtype = GS_F32,
                           .grad = grad[k],
                           .grad_dtype = GS_F32};
    }
    for (size_t i = 0; i < count_of(&c->out); i++) {
        aim[i] = rounded(uniform(99, i), mode, half);
        target[i] = (float)aim[i];
    }
    gs_context *ctx;
    gs_tape *t;
    const gs_tape_config config = {
        .size = sizeof config, .mode = mode, .half = half, .telemetry = 1, .recompute = 1};
    CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
    CHECK(gs_tape_create(&t, ctx, &config) == GS_OK);
    const double loss = naive_loss(in, aim, c);
    gs_value *value;
    const gs_status status = run_engine(&value, t, w, target, c, mode, half);
    CHECK_MSG(status == GS_OK, "%s", gs_context_error(ctx)->text);
    const double got = status == GS_OK ? (double)*(const float *)value->data : (double)NAN;
    CHECK_MSG(fabs(got - loss) <= eps * (1 + fabs(loss)), "O%d: loss %g, not %g", (int)mode, got,
              loss);

    for (int k = 0; k < MAX_INPUTS && c->in[k].rank; k++) {
        static double want[MAX_COUNT];
        const size_t n = count_of(&c->in[k]);
        double largest = 0;
        for (size_t i = 0; i < n; i++) {
            const double h = 1e-5, keep = x[k][i];
            x[k][i] = keep + h;
            const double up = naive_loss(in, aim, c);
            x[k][i] = keep - h;
            const double down = naive_loss(in, aim, c);
            x[k][i] = keep;
            want[i] = (up - down) / (2 * h);
            largest = fmax(largest, fabs(want[i]));
        }
        CHECK(largest > 0);
        for (size_t i = 0; i < n; i++)
            CHECK_MSG(fabs((double)grad[k][i] - want[i]) <= eps * largest + 1e-9,
                      "O%d %s, input %d, element %zu: %g, not %g; the largest is %g", (int)mode,
                      gs_dtype_format(half)->name, k, i, (double)grad[k][i], want[i], largest);
    }
    gs_tape_free(t);
    gs_context_free(ctx);
    if (mode == GS_O2)
        check_no_memory(c, w, target);
}

static void check_halves(const op_case *c)
{
    for (int mode = GS_O1; mode <= GS_O3; mode++) {
        check_case(c, (gs_mode)mode, GS_F16);
        check_case(c, (gs_mode)mode, GS_BF16);
    }
}

static void check_op(const op_case *c)
{
    check_case(c, GS_O0, GS_F16);
    check_halves(c);
}

#define SHAPE(...)                                                        \
    {                                                                     \
        sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), { __VA_ARGS__ } \
    }

#endif
