/* The gradient of every operation: the engine's against differences of a naive f64 function.
 *
 * A row of GS_OPS without a case here does not link. In f32 the two agree to 2^-16 of the largest
 * gradient; in half types to what rounding the operation's inputs, result and gradients explains,
 * 8 units in the last place. Inputs are f32 in O0 and O1, the first is half in O2 and all are in
 * O3; their values are halves in any case, so that casting them loses nothing. Memory that ends is
 * tried at every allocation. */
#include "op_case.h"

#include <stdbool.h>

/* ---- cast and reshape ---- */

static void naive_same(double *y, double *const *in, const op_case *c)
{
    memcpy(y, in[0], count_of(&c->out) * sizeof *y);
}

static gs_value *run_cast(gs_tape *t, gs_value **in)
{
    return gs_cast(t, gs_cast(t, in[0], GS_BF16), GS_F32);
}

static gs_value *run_cast_f16(gs_tape *t, gs_value **in)
{
    return gs_cast(t, gs_cast(t, in[0], GS_F16), GS_F32);
}

static void check_cast(void)
{
    const op_case bf16 = {{SHAPE(5, 7)}, SHAPE(5, 7), run_cast, naive_same, 1};
    const op_case f16 = {{SHAPE(5, 7)}, SHAPE(5, 7), run_cast_f16, naive_same, 1};
    for (int mode = GS_O1; mode <= GS_O3; mode++) {
        check_case(&bf16, (gs_mode)mode, GS_BF16);
        check_case(&f16, (gs_mode)mode, GS_F16);
    }
}

static gs_value *run_reshape(gs_tape *t, gs_value **in)
{
    return gs_reshape(t, in[0], 3, (const size_t[]){7, 1, 5});
}

static void check_reshape(void)
{
    const op_case c = {{SHAPE(5, 7)}, SHAPE(7, 1, 5), run_reshape, naive_same, 1};
    check_op(&c);
}

/* ---- products ---- */

static gs_value *run_linear(gs_tape *t, gs_value **in) { return gs_linear(t, in[0], in[1], in[2]); }

static void naive_linear(double *y, double *const *in, const op_case *c)
{
    const size_t n = c->in[1].n[0], k = c->in[1].n[1], m = count_of(&c->in[0]) / k;
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            y[i * n + j] = c->in[2].rank ? in[2][j] : 0;
            for (size_t l = 0; l < k; l++)
                y[i * n + j] += in[0][i * k + l] * in[1][j * k + l];
        }
}

static void check_linear(void)
{
    const op_case with = {
        {SHAPE(2, 3, 9), SHAPE(5, 9), SHAPE(5)}, SHAPE(2, 3, 5), run_linear, naive_linear, 1};
    const op_case without = {
        {SHAPE(19, 4), SHAPE(3, 4)}, SHAPE(19, 3), run_linear, naive_linear, 1};
    check_op(&with);
    check_op(&without);
}

static gs_value *run_matmul(gs_tape *t, gs_value **in) { return gs_matmul(t, in[0], in[1], 0); }
static gs_value *run_matmul_t(gs_tape *t, gs_value **in) { return gs_matmul(t, in[0], in[1], 1); }

static void naive_matmul(double *y, double *const *in, const op_case *c)
{
    const bool transposed = c->run == run_matmul_t;
    const size_t m = c->in[0].n[1], k = c->in[0].n[2], n = c->out.n[2];
    for (size_t z = 0; z < c->out.n[0]; z++)
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++) {
                double sum = 0;
                for (size_t l = 0; l < k; l++)
                    sum += in[0][(z * m + i) * k + l] *
                           in[1][transposed ? (z * n + j) * k + l : (z * k + l) * n + j];
                y[(z * m + i) * n + j] = sum;
            }
}

static void check_matmul(void)
{
    const op_case plain = {
        {SHAPE(2, 3, 4), SHAPE(2, 4, 5)}, SHAPE(2, 3, 5), run_matmul, naive_matmul, 1};
    const op_case transposed = {
        {SHAPE(2, 3, 4), SHAPE(2, 5, 4)}, SHAPE(2, 3, 5), run_matmul_t, naive_matmul, 1};
    check_op(&plain);
    check_op(&transposed);
}

static gs_value *run_conv(gs_tape *t, gs_value **in)
{
    return gs_conv2d(t, in[0], in[1], in[2], 3, 1, 1);
}

static gs_value *run_conv_stride(gs_tape *t, gs_value **in)
{
    return gs_conv2d(t, in[0], in[1], in[2], 3, 2, 0);
}

static void naive_conv(double *y, double *const *in, const op_case *c)
{
    const bool strided = c->run == run_conv_stride;
    const size_t stride = strided ? 2 : 1, pad = strided ? 0 : 1;
    const size_t h = c->in[0].n[1], w = c->in[0].n[2], ci = c->in[0].n[3], co = c->out.n[3];
    for (size_t i = 0; i < count_of(&c->out); i++) {
        const size_t o = i % co, x = i / co % c->out.n[2], r = i / co / c->out.n[2] % c->out.n[1];
        const size_t image = i / co / c->out.n[2] / c->out.n[1];
        y[i] = in[2][o];
        for (size_t ky = 0; ky < 3; ky++)
            for (size_t kx = 0; kx < 3; kx++)
                for (size_t l = 0; l < ci; l++) {
                    const size_t sy = r * stride + ky - pad, sx = x * stride + kx - pad;
                    if (sy < h && sx < w) /* below 0 wraps around */
                        y[i] += in[0][((image * h + sy) * w + sx) * ci + l] *
                                in[1][((o * 3 + ky) * 3 + kx) * ci + l];
                }
    }
}

static void check_conv2d(void)
{
    const op_case same = {
        {SHAPE(2, 4, 5, 3), SHAPE(4, 27), SHAPE(4)}, SHAPE(2, 4, 5, 4), run_conv, naive_conv, 1};
    const op_case strided = {{SHAPE(2, 5, 7, 2), SHAPE(3, 18), SHAPE(3)},
                             SHAPE(2, 2, 3, 3),
                             run_conv_stride,
                             naive_conv,
                             1};
    check_op(&same);
    check_op(&strided);
}

/* ---- attention: past queries see no future, but where there is no mask ---- */

enum { HEADS = 2 };

static gs_value *run_attention(gs_tape *t, gs_value **in) { return gs_attention(t, in[0], HEADS); }

/* Four heads that share two of keys and values. */
enum { GROUPED = 4, SHARED = 2 };

static gs_value *run_grouped(gs_tape *t, gs_value **in)
{
    return gs_attention_grouped(t, in[0], in[1], in[2], GROUPED, SHARED);
}

static gs_value *run_grouped_fused(gs_tape *t, gs_value **in)
{
    return gs_attention_grouped(t, in[0], NULL, NULL, GROUPED, SHARED);
}

static gs_value *run_unmasked(gs_tape *t, gs_value **in)
{
    return gs_attention_unmasked(t, in[0], NULL, NULL, HEADS, HEADS);
}

static gs_value *run_unmasked_grouped(gs_tape *t, gs_value **in)
{
    return gs_attention_unmasked(t, in[0], in[1], in[2], GROUPED, SHARED);
}

static void naive_attention(double *y, double *const *in, const op_case *c)
{
    const bool fused = c->run != run_grouped && c->run != run_unmasked_grouped;
    const bool alone = c->run == run_attention || c->run == run_unmasked;
    const bool causal = c->run != run_unmasked && c->run != run_unmasked_grouped;
    const size_t heads = alone ? HEADS : GROUPED, shared = alone ? HEADS : SHARED;
    const size_t time = c->out.n[1], width = c->out.n[2], d = width / heads, kv = shared * d;
    const size_t all = fused ? width + 2 * kv : 0;
    for (size_t b = 0; b < c->out.n[0]; b++)
        for (size_t h = 0; h < heads; h++)
            for (size_t i = 0; i < time; i++) {
                const size_t g = h / (heads / shared), t0 = b * time;
                const double *q = in[0] + (t0 + i) * (fused ? all : width) + h * d;
                double p[256], sum = 0, *row = y + (t0 + i) * width + h * d;
                for (size_t l = 0; l < d; l++)
                    row[l] = 0;
                for (size_t j = 0; j < (causal ? i + 1 : time); j++) {
                    const double *k = fused ? in[0] + (t0 + j) * all + width + g * d
                                            : in[1] + (t0 + j) * kv + g * d;
                    p[j] = 0;
                    for (size_t l = 0; l < d; l++)
                        p[j] += q[l] * k[l];
                    sum += p[j] = exp(p[j] / sqrt((double)d));
                }
                for (size_t j = 0; j < (causal ? i + 1 : time); j++) {
                    const double *v = fused ? in[0] + (t0 + j) * all + width + kv + g * d
                                            : in[2] + (t0 + j) * kv + g * d;
                    for (size_t l = 0; l < d; l++)
                        row[l] += p[j] / sum * v[l];
                }
            }
}

static void check_attention(void)
{
    const op_case cases[] = {
        {{SHAPE(2, 5, 36)}, SHAPE(2, 5, 12), run_attention, naive_attention, 1},
        /* more queries than a tile has */
        {{SHAPE(1, 70, 12)}, SHAPE(1, 70, 4), run_attention, naive_attention, 1.5},
        {{SHAPE(2, 5, 24), SHAPE(2, 5, 12), SHAPE(2, 5, 12)},
         SHAPE(2, 5, 24),
         run_grouped,
         naive_attention,
         1},
        {{SHAPE(1, 70, 8), SHAPE(1, 70, 4), SHAPE(1, 70, 4)},
         SHAPE(1, 70, 8),
         run_grouped,
         naive_attention,
         1.5},
        {{SHAPE(2, 5, 32)}, SHAPE(2, 5, 16), run_grouped_fused, naive_attention, 1},
        {{SHAPE(2, 5, 36)}, SHAPE(2, 5, 12), run_unmasked, naive_attention, 1},
        {{SHAPE(1, 1, 12)}, SHAPE(1, 1, 4), run_unmasked, naive_attention, 1},
        {{SHAPE(1, 130, 12)}, SHAPE(1, 130, 4), run_unmasked, naive_attention, 1.5},
        {{SHAPE(1, 70, 8), SHAPE(1, 70, 4), SHAPE(1, 70, 4)},
         SHAPE(1, 70, 8),
         run_unmasked_grouped,
         naive_attention,
         1.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_op(&cases[i]);
}

/* ---- rotary: two heads of 6 columns, and 5 columns that are left alone ---- */

enum { TURNED = 2, WIDE = 6, BEFORE = 3 };

static gs_value *run_rotary(gs_tape *t, gs_value **in)
{
    static float table[16 * WIDE];
    gs_rotary_fill(table, 16, WIDE, 100);
    return gs_rotary(t, in[0], TURNED, WIDE, table, BEFORE);
}

static void naive_rotary(double *y, double *const *in, const op_case *c)
{
    const size_t time = c->out.n[1], cols = c->out.n[2], half = WIDE / 2;
    memcpy(y, in[0], count_of(&c->out) * sizeof *y);
    for (size_t r = 0; r < c->out.n[0] * time; r++)
        for (size_t h = 0; h < TURNED; h++)
            for (size_t i = 0; i < half; i++) {
                const double angle =
                    (double)(BEFORE + r % time) * pow(100, -(double)i / (double)half);
                const size_t a = r * cols + h * WIDE + i, b = a + half;
                y[a] = in[0][a] * cos(angle) - in[0][b] * sin(angle);
                y[b] = in[0][b] * cos(angle) + in[0][a] * sin(angle);
            }
}

static void check_rotary(void)
{
    const op_case c = {{SHAPE(2, 7, 17)}, SHAPE(2, 7, 17), run_rotary, naive_rotary, 1};
    check_op(&c);
}

static const int32_t ids[] = {3, 0, 3, 5, 1, 3};

static gs_value *run_embedding(gs_tape *t, gs_value **in) { return gs_embedding(t, in[0], ids, 6); }

static void naive_embedding(double *y, double *const *in, const op_case *c)
{
    const size_t cols = c->out.n[1];
    for (size_t i = 0; i < count_of(&c->out); i++)
        y[i] = in[0][(size_t)ids[i / cols] * cols + i % cols];
}

static void check_embedding(void)
{
    const op_case c = {{SHAPE(6, 70)}, SHAPE(6, 70), run_embedding, naive_embedding, 1};
    check_op(&c);
}

/* ---- element by element ---- */

static gs_value *run_add(gs_tape *t, gs_value **in) { return gs_add(t, in[0], in[1]); }
static gs_value *run_mul(gs_tape *t, gs_value **in) { return gs_mul(t, in[0], in[1]); }
static gs_value *run_twice(gs_tape *t, gs_value **in)
{
    return gs_add(t, in[0], gs_mul(t, in[0], in[0]));
}

static void naive_binary(double *y, double *const *in, const op_case *c)
{
    const size_t repeat = c->in[1].rank ? count_of(&c->in[1]) : 1;
    for (size_t i = 0; i < count_of(&c->out); i++) {
        const double a = in[0][i], b = c->in[1].rank ? in[1][i % repeat] : 0;
        y[i] = c->run == run_add ? a + b : c->run == run_mul ? a * b : a + a * a;
    }
}

static void check_binary(gs_value *(*run)(gs_tape *, gs_value **))
{
    const op_case full = {{SHAPE(4, 9), SHAPE(4, 9)}, SHAPE(4, 9), run, naive_binary, 1};
    const op_case repeated = {{SHAPE(3, 5, 7), SHAPE(5, 7)}, SHAPE(3, 5, 7), run, naive_binary, 1};
    check_op(&full);
    check_op(&repeated);
}

static void check_add(void)
{
    check_binary(run_add);
    /* A value with several uses: shared gradients are copied before they are added to. */
    const op_case twice = {{SHAPE(5, 9)}, SHAPE(5, 9), run_twice, naive_binary, 1};
    check_op(&twice);
}

static void check_mul(void) { check_binary(run_mul); }

static gs_value *run_relu(gs_tape *t, gs_value **in) { return gs_relu(t, in[0]); }

static void naive_relu(double *y, double *const *in, const op_case *c)
{
    for (size_t i = 0; i < count_of(&c->out); i++)
        y[i] = in[0][i] > 0 ? in[0][i] : 0;
}

static void check_relu(void)
{
    const op_case c = {{SHAPE(9, 11)}, SHAPE(9, 11), run_relu, naive_relu, 1};
    check_op(&c);
}

static gs_value *run_gelu(gs_tape *t, gs_value **in) { return gs_gelu(t, in[0]); }

static void naive_gelu(double *y, double *const *in, const op_case *c)
{
    for (size_t i = 0; i < count_of(&c->out); i++) {
        const double x = in[0][i];
        y[i] = 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    }
}

static void check_gelu(void)
{
    const op_case c = {{SHAPE(9, 11)}, SHAPE(9, 11), run_gelu, naive_gelu, 3};
    check_op(&c);
}

static gs_value *run_gelu_erf(gs_tape *t, gs_value **in) { return gs_gelu_erf(t, in[0]); }

static void naive_gelu_erf(double *y, double *const *in, const op_case *c)
{
    for (size_t i = 0; i < count_of(&c->out); i++)
        y[i] = 0.5 * in[0][i] * (1 + erf(in[0][i] / sqrt(2)));
}

static void check_gelu_erf(void)
{
    const op_case c = {{SHAPE(9, 11)}, SHAPE(9, 11), run_gelu_erf, naive_gelu_erf, 3};
    check_op(&c);
}

static gs_value *run_silu(gs_tape *t, gs_value **in) { return gs_silu(t, in[0]); }

static void naive_silu(double *y, double *const *in, const op_case *c)
{
    for (size_t i = 0; i < count_of(&c->out); i++)
        y[i] = in[0][i] / (1 + exp(-in[0][i]));
}

static void check_silu(void)
{
    const op_case c = {{SHAPE(9, 11)}, SHAPE(9, 11), run_silu, naive_silu, 3};
    check_op(&c);
}

static gs_value *run_dropout(gs_tape *t, gs_value **in) { return gs_dropout(t, in[0], 0.25f); }

/* The mask is what the same step makes of ones. */
static void naive_dropout(double *y, double *const *in, const op_case *c)
{
    static float mask[MAX_COUNT];
    static bool known;
    const size_t n = count_of(&c->out);
    if (!known) {
        float ones[MAX_COUNT];
        gs_context *ctx;
        gs_tape *t;
        const gs_tape_config config = {.size = sizeof config, .mode = GS_O0};
        for (size_t i = 0; i < n; i++)
            ones[i] = 1;
        CHECK(gs_context_create(&ctx, NULL, NULL) == GS_OK);
        CHECK(gs_tape_create(&t, ctx, &config) == GS_OK);
        gs_tape_begin(t, 1, 7);
        memcpy(mask, gs_dropout(t, gs_input(t, GS_F32, 1, &n, ones), 0.25f)->data,
               n * sizeof *mask);
        gs_tape_free(t);
        gs_context_free(ctx);
        size_t dropped = 0;
        for (size_t i = 0; i < n; i++) {
            CHECK(mask[i] == 0 || mask[i] == 4 / 3.0f);
            dropped += mask[i] == 0;
        }
        CHECK_MSG(dropped > n / 5 && dropped < n / 3, "%zu of %zu dropped", dropped, n);
        known = true;
    }
    for (size_t i = 0; i < n; i++)
        y[i] = in[0][i] * (double)mask[i];
}

static void check_dropout(void)
{
    const op_case c = {{SHAPE(20, 50)}, SHAPE(20, 50), run_dropout, naive_dropout, 1};
    check_op(&c);
}

/* Quantisation has no gradient of its own: the straight-through one is 1 up to amax, else 0. With
 * 16 bits the steps are fine enough for x clipped to amax to be the naive function. */
static gs_value *run_fake_quant(gs_tape *t, gs_value **in)
{
    return gs_fake_quant(t, in[0], 0.7f, 16, 0, 1);
}

static void naive_fake_quant(double *y, double *const *in, const op_case *c)
{
    for (size_t i = 0; i < count_of(&c->out); i++)
        y[i] = fmin(fmax(in[0][i], -0.7), 0.7);
}

static void check_fake_quant(void)
{
    const op_case c = {{SHAPE(9, 11)}, SHAPE(9, 11), run_fake_quant, naive_fake_quant, 1};
    check_op(&c);
}

/* ---- recomputation of a segment that uses its x twice, and its gradient with it ---- */

static gs_value *segment(const void *args, gs_tape *t, gs_value *x)
{
    const float p = *(const float *)args;
    return gs_dropout(t, gs_add(t, x, gs_gelu(t, gs_gelu(t, x))), p);
}

static gs_value *run_recompute(gs_tape *t, gs_value **in)
{
    const float p = 0;
    return gs_add(t, gs_recompute(t, in[0], segment, &p, sizeof p), in[0]);
}

static void naive_recompute(double *y, double *const *in, const op_case *c)
{
    double inner[MAX_COUNT], *const through[] = {inner};
    naive_gelu(inner, in, c);
    naive_gelu(y, through, c);
    for (size_t i = 0; i < count_of(&c->out); i++)
        y[i] += 2 * in[0][i];
}

static void check_recompute(void)
{
    const op_case c = {{SHAPE(9, 11)}, SHAPE(9, 11), run_recompute, naive_recompute, 2};
    check_op(&c);
}

/* ---- pooling ---- */

static gs_value *run_max_pool(gs_tape *t, gs_value **in) { return gs_max_pool(t, in[0], 2, 2, 0); }
static gs_value *run_max_padded(gs_tape *t, gs_value **in)
{
    return gs_max_pool(t, in[0], 3, 2, 1);
}
static gs_value *run_avg_pool(gs_tape *t, gs_value **in) { return gs_avg_pool(t, in[0], 3, 2); }
static gs_value *run_global(gs_tape *t, gs_value **in) { return gs_global_avg_pool(t, in[0]); }

static void naive_pool(double *y, double *const *in, const op_case *c)
{
    const bool padded = c->run == run_max_padded, is_max = padded || c->run == run_max_pool;
    const size_t h = c->in[0].n[1], w = c->in[0].n[2], ch = c->in[0].n[3], pad = padded;
    const bool global = c->run == run_global;
    const size_t kh = global ? h : c->run == run_max_pool ? 2u : 3u, kw = global ? w : kh;
    for (size_t i = 0; i < count_of(&c->out); i++) {
        const size_t k = i % ch, x = i / ch % c->out.n[2], r = i / ch / c->out.n[2] % c->out.n[1];
        const size_t image = i / ch / c->out.n[2] / c->out.n[1];
        double top = -HUGE_VAL, sum = 0;
        for (size_t ky = 0; ky < kh; ky++)
            for (size_t kx = 0; kx < kw; kx++) {
                const size_t sy = 2 * r + ky - pad, sx = 2 * x + kx - pad; /* below 0 wraps */
                if (sy >= h || sx >= w)
                    continue;
                const double v = in[0][((image * h + sy) * w + sx) * ch + k];
                top = fmax(top, v);
                sum += v;
            }
        y[i] = is_max ? top : sum / (double)(kh * kw);
    }
}

static void check_max_pool(void)
{
    const op_case c = {{SHAPE(2, 5, 6, 3)}, SHAPE(2, 2, 3, 3), run_max_pool, naive_pool, 1};
    const op_case padded = {{SHAPE(2, 5, 6, 3)}, SHAPE(2, 3, 3, 3), run_max_padded, naive_pool, 1};
    check_op(&c);
    check_op(&padded);
}

static void check_avg_pool(void)
{
    const op_case c = {{SHAPE(2, 7, 5, 3)}, SHAPE(2, 3, 2, 3), run_avg_pool, naive_pool, 1};
    const op_case global = {{SHAPE(2, 7, 4, 3)}, SHAPE(2, 1, 1, 3), run_global, naive_pool, 1};
    check_op(&c);
    check_op(&global);
}

/* ---- norms ---- */

static gs_value *run_layernorm(gs_tape *t, gs_value **in)
{
    return gs_layernorm(t, in[0], in[1], in[2]);
}

static void normalise(double *y, const double *x, size_t n, size_t step, double gamma, double beta)
{
    double mean = 0, var = 0;
    for (size_t i = 0; i < n; i++)
        mean += x[i * step] / (double)n;
    for (size_t i = 0; i < n; i++)
        var += (x[i * step] - mean) * (x[i * step] - mean) / (double)n;
    for (size_t i = 0; i < n; i++)
        y[i * step] = (x[i * step] - mean) / sqrt(var + 1e-5) * gamma + beta;
}

static void naive_layernorm(double *y, double *const *in, const op_case *c)
{
    const size_t cols = c->in[1].n[0];
    for (size_t r = 0; r < count_of(&c->out) / cols; r++) {
        normalise(y + r * cols, in[0] + r * cols, cols, 1, 1, 0);
        for (size_t j = 0; j < cols; j++)
            y[r * cols + j] = y[r * cols + j] * in[1][j] + in[2][j];
    }
}

/* With an eps that matters. */
static gs_value *run_layernorm_eps(gs_tape *t, gs_value **in)
{
    return gs_layernorm_eps(t, in[0], in[1], in[2], 0.5f);
}

static void naive_layernorm_eps(double *y, double *const *in, const op_case *c)
{
    const size_t cols = c->in[1].n[0];
    for (size_t r = 0; r < count_of(&c->out) / cols; r++) {
        const double *x = in[0] + r * cols;
        double mean = 0, var = 0;
        for (size_t j = 0; j < cols; j++)
            mean += x[j] / (double)cols;
        for (size_t j = 0; j < cols; j++)
            var += (x[j] - mean) * (x[j] - mean) / (double)cols;
        for (size_t j = 0; j < cols; j++)
            y[r * cols + j] = (x[j] - mean) / sqrt(var + 0.5) * in[1][j] + in[2][j];
    }
}

static void check_layernorm(void)
{
    const op_case c = {{SHAPE(2, 4, 35), SHAPE(35), SHAPE(35)},
                       SHAPE(2, 4, 35),
                       run_layernorm,
                       naive_layernorm,
                       1};
    check_op(&c);
    const op_case other = {
        {SHAPE(3, 8), SHAPE(8), SHAPE(8)}, SHAPE(3, 8), run_layernorm_eps, naive_layernorm_eps, 1};
    check_op(&other);
}

static gs_value *run_rmsnorm(gs_tape *t, gs_value **in) { return gs_rmsnorm(t, in[0], in[1]); }

static void naive_rmsnorm(double *y, double *const *in, const op_case *c)
{
    const size_t cols = c->in[1].n[0];
    for (size_t r = 0; r < count_of(&c->out) / cols; r++) {
        double sum = 0;
        for (size_t j = 0; j < cols; j++)
            sum += in[0][r * cols + j] * in[0][r * cols + j];
        for (size_t j = 0; j < cols; j++)
            y[r * cols + j] = in[0][r * cols + j] / sqrt(sum / (double)cols + 1e-5) * in[1][j];
    }
}

static void check_rmsnorm(void)
{
    const op_case c = {
        {SHAPE(2, 4, 35), SHAPE(35)}, SHAPE(2, 4, 35), run_rmsnorm, naive_rmsnorm, 1};
    check_op(&c);
}

static gs_value *run_batchnorm(gs_tape *t, gs_value **in)
{
    static float mean[8], var[8];
    return gs_batchnorm(t, in[0], in[1], in[2], (gs_running){mean, var, 0.1f});
}

static void naive_batchnorm(double *y, double *const *in, const op_case *c)
{
    const size_t cols = c->in[1].n[0], rows = count_of(&c->out) / cols;
    for (size_t j = 0; j < cols; j++)
        normalise(y + j, in[0] + j, rows, cols, in[1][j], in[2][j]);
}

static void check_batchnorm(void)
{
    const op_case c = {{SHAPE(3, 4, 4, 5), SHAPE(5), SHAPE(5)},
                       SHAPE(3, 4, 4, 5),
                       run_batchnorm,
                       naive_batchnorm,
                       1};
    check_op(&c);
}

/* ---- tokens ---- */

static gs_value *run_prepend(gs_tape *t, gs_value **in) { return gs_prepend(t, in[0], in[1]); }

static void naive_prepend(double *y, double *const *in, const op_case *c)
{
    const size_t tokens = c->out.n[1], cols = c->out.n[2];
    for (size_t r = 0; r < c->out.n[0] * tokens; r++)
        memcpy(y + r * cols, r % tokens ? in[0] + (r - r / tokens - 1) * cols : in[1],
               cols * sizeof *y);
}

static void check_prepend(void)
{
    const op_case cases[] = {
        {{SHAPE(3, 4, 35), SHAPE(35)}, SHAPE(3, 5, 35), run_prepend, naive_prepend, 1},
        {{SHAPE(2, 1, 3), SHAPE(3)}, SHAPE(2, 2, 3), run_prepend, naive_prepend, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_op(&cases[i]);
}

/* x has another use, so that its gradient is added to. */
static gs_value *run_select(gs_tape *t, gs_value **in)
{
    const size_t last = in[0]->shape[1] - 1;
    return gs_add(t, gs_select(t, in[0], 0), gs_select(t, in[0], last));
}

static void naive_select(double *y, double *const *in, const op_case *c)
{
    const size_t tokens = c->in[0].n[1], cols = c->out.n[1];
    for (size_t b = 0; b < c->out.n[0]; b++)
        for (size_t i = 0; i < cols; i++)
            y[b * cols + i] =
                in[0][b * tokens * cols + i] + in[0][(b * tokens + tokens - 1) * cols + i];
}

static void check_select(void)
{
    const op_case cases[] = {{{SHAPE(3, 4, 35)}, SHAPE(3, 35), run_select, naive_select, 1},
                             {{SHAPE(2, 1, 3)}, SHAPE(2, 3), run_select, naive_select, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_op(&cases[i]);
}

/* ---- softmax and losses ---- */

static gs_value *run_softmax(gs_tape *t, gs_value **in) { return gs_softmax(t, in[0]); }

static void naive_softmax(double *y, double *const *in, const op_case *c)
{
    const size_t cols = c->out.n[1];
    for (size_t r = 0; r < c->out.n[0]; r++) {
        double sum = 0;
        for (size_t j = 0; j < cols; j++)
            sum += exp(in[0][r * cols + j]);
        for (size_t j = 0; j < cols; j++)
            y[r * cols + j] = exp(in[0][r * cols + j]) / sum;
    }
}

static void check_softmax(void)
{
    const op_case c = {{SHAPE(4, 13)}, SHAPE(4, 13), run_softmax, naive_softmax, 3};
    check_op(&c);
}

static const int32_t targets[] = {3, -1, 0, 12};

static gs_value *run_cross_entropy(gs_tape *t, gs_value **in)
{
    return gs_cross_entropy(t, in[0], targets);
}

static void naive_cross_entropy(double *y, double *const *in, const op_case *c)
{
    const size_t cols = c->in[0].n[1];
    y[0] = 0;
    for (size_t r = 0; r < 4; r++) {
        double sum = 0;
        for (size_t j = 0; j < cols; j++)
            sum += exp(in[0][r * cols + j]);
        if (targets[r] >= 0)
            y[0] += (log(sum) - in[0][r * cols + (size_t)targets[r]]) / 3;
    }
}

/* The logits are another operation's result, so that their place can be taken. */
static gs_value *run_head(gs_tape *t, gs_value **in)
{
    return gs_cross_entropy(t, gs_linear(t, in[0], in[1], NULL), targets);
}

static void naive_head(double *y, double *const *in, const op_case *c)
{
    static double logits[MAX_COUNT];
    const op_case product = {{c->in[0], c->in[1]}, SHAPE(4, 13), NULL, NULL, 1};
    const op_case loss = {{SHAPE(4, 13)}, {0}, NULL, NULL, 1};
    double *const through[] = {logits};
    naive_linear(logits, in, &product);
    naive_cross_entropy(y, through, &loss);
}

static void check_cross_entropy(void)
{
    const op_case c = {{SHAPE(4, 13)}, {0}, run_cross_entropy, naive_cross_entropy, 3};
    const op_case head = {{SHAPE(4, 9), SHAPE(13, 9)}, {0}, run_head, naive_head, 1};
    check_op(&c);
    check_op(&head);
}

static gs_value *run_mse(gs_tape *t, gs_value **in) { return gs_mse(t, in[0], in[1]); }

static void naive_mse(double *y, double *const *in, const op_case *c)
{
    const size_t n = count_of(&c->in[0]);
    y[0] = 0;
    for (size_t i = 0; i < n; i++)
        y[0] += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]) / (double)n;
}

static void check_mse(void)
{
    const op_case c = {{SHAPE(4, 13), SHAPE(4, 13)}, {0}, run_mse, naive_mse, 1};
    check_op(&c);
}

int main(int argc, char **argv)
{
    static const test_case cases[] = {
#define X(name, class) {#name, check_##name},
        GS_OPS(X)
#undef X
    };
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
