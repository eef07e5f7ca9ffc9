/* The library's bits as one number: every conversion, pass, preset, optimizer and operation on
 * fixed inputs, with the best kernels of the machine and with the reference. It prints a hash
 * per part and one of all, the same on every system; exit status 1 if a call fails or kernels
 * disagree. Public headers only. Values are hashed, not bytes: a machine's byte order is no
 * part of them, and any NaN is one value. */
#include "gradscale/engine.h"
#include "gradscale/gemm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t hash;
static int failures;

#define MUST(call) ((call) == GS_OK ? (void)0 : (void)must_failed(#call, __LINE__))
static void must_failed(const char *call, int line)
{
    failures++;
    fprintf(stderr, "line %d failed: %s\n", line, call);
}

/* ---- FNV-1a ---- */

static void add_bits(uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        hash = (hash ^ (value >> (8 * i) & 0xFF)) * 0x100000001B3;
}

static void add_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_bits((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC00000 : bits, 4);
}

static void add_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_bits((bits & INT64_MAX) > 0x7FF0000000000000 ? 0x7FF8000000000000 : bits, 8);
}

static void add_half(uint16_t code, gs_dtype type)
{
    const unsigned inf = type == GS_F16 ? 0x7C00 : 0x7F80;
    add_bits((code & 0x7FFF) > inf ? 0x7FFF : code, 2);
}

static void add_array(const void *data, size_t count, gs_dtype type)
{
    for (size_t i = 0; i < count; i++)
        if (type == GS_F32)
            add_f32(((const float *)data)[i]);
        else
            add_half(((const uint16_t *)data)[i], type);
}

static void add_stats(const gs_stats *s)
{
    const uint64_t counts[] = {s->elements,  s->inf,       s->nan,        s->zero,
                               s->subnormal, s->underflow, s->bad_tensor, s->bad_index};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        add_bits(counts[i], 8);
    add_f32(s->amax);
    add_f64(s->sumsq);
}

/* ---- inputs ---- */

static float unit(uint64_t seed, uint64_t i) /* in -1..1 */
{
    return (float)((int32_t)gs_random_u32(seed, i) >> 8) * 0x1p-23f;
}

/* Any bits: all magnitudes, subnormals, Inf and NaN. */
static float any(uint64_t seed, uint64_t i)
{
    const uint32_t bits = gs_random_u32(seed, i);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void fill(void *data, size_t count, gs_dtype type, uint64_t seed, int wild)
{
    for (size_t i = 0; i < count; i++) {
        const float x = wild ? any(seed, i) : unit(seed, i);
        if (type == GS_F32)
            ((float *)data)[i] = x;
        else
            ((uint16_t *)data)[i] = type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
    }
}

/* ---- parts ---- */

static void numbers(gs_context *ctx)
{
    (void)ctx;
    for (unsigned code = 0; code < 65536; code++) {
        add_f32(gs_f16_to_f32((uint16_t)code));
        add_f32(gs_bf16_to_f32((uint16_t)code));
    }
    for (unsigned code = 0; code < 256; code++) {
        add_f32(gs_f8e4m3_to_f32((uint8_t)code));
        add_f32(gs_f8e5m2_to_f32((uint8_t)code));
    }
    for (uint64_t i = 0; i < 50000; i++) {
        const float x = i % 2 ? any(1, i) : unit(2, i) * 100;
        const uint16_t random = (uint16_t)gs_random_u32(3, i);
        add_half(gs_f32_to_f16(x), GS_F16);
        add_half(gs_f32_to_bf16(x), GS_BF16);
        add_half(gs_f32_to_f16_stochastic(x, random), GS_F16);
        add_half(gs_f32_to_bf16_stochastic(x, random), GS_BF16);
        add_bits(gs_f32_to_f8e4m3(x, i % 3 == 0), 1);
        add_bits(gs_f32_to_f8e5m2(x, i % 3 == 0), 1);
    }
}

enum { COUNT = 70001 }; /* two chunks, and a rest of every vector */
static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
static union array {
    float f32[COUNT];
    uint16_t half[COUNT];
} source, target;

static void passes(gs_context *ctx)
{
    gs_stats stats;
    for (int wild = 0; wild < 2; wild++)
        for (int s = 0; s < 3; s++) {
            const gs_tensor src = {&source, COUNT, types[s], "source", 0};
            fill(&source, COUNT, types[s], 4, wild);
            MUST(gs_tensors_check(ctx, &src, 1, &stats));
            add_stats(&stats);
            MUST(gs_tensors_scan(ctx, &src, 1, &stats));
            add_stats(&stats);
            for (int h = 1; h < 3; h++) {
                MUST(gs_tensors_count(ctx, &src, 1, types[h], &stats));
                add_stats(&stats);
            }
            gs_exponents sum = {0};
            gs_rounded rounded;
            MUST(gs_tensors_exponents(ctx, &sum, &src, 1, &stats));
            add_stats(&stats);
            MUST(gs_exponents_at(&rounded, &sum, GS_F16, 3, NULL));
            add_bits(rounded.underflow, 8);
            add_bits(rounded.subnormal, 8);
            for (int d = 0; d < 3; d++) {
                const gs_tensor dst = {&target, COUNT, types[d], "target", 0};
                MUST(gs_tensors_convert(ctx, &dst, &src, 1, &stats));
                add_stats(&stats);
                add_array(&target, COUNT, types[d]);
                MUST(gs_tensors_convert_stochastic(ctx, &dst, &src, 1, 5, &stats));
                add_array(&target, COUNT, types[d]);
                if (d == 0 || d == s) {
                    MUST(gs_tensors_scale_to(ctx, &dst, &src, 1, 0x1.8p-9f, &stats));
                    add_stats(&stats);
                    add_array(&target, COUNT, types[d]);
                    for (int exact = 0; exact < 2; exact++) {
                        const float factor = exact ? 0x1p-9f : 0x1.8p-9f;
                        MUST(gs_tensors_unscale(ctx, &dst, &src, 1, factor, &stats));
                        add_stats(&stats);
                        add_array(&target, COUNT, types[d]);
                    }
                }
                if (d == 0) {
                    fill(&target, COUNT, GS_F32, 6, 0);
                    MUST(gs_tensors_axpy(ctx, &dst, &src, 1, 0.3f, &stats));
                    add_stats(&stats);
                    add_array(&target, COUNT, GS_F32);
                }
            }
        }
}

/* f64, views, and rounding to a half type and back. */
static void further_passes(gs_context *ctx)
{
    enum { ROWS = 57, COLS = 70, STRIDE = 83 };
    static double f64[COUNT];
    static float f32[ROWS * STRIDE];
    static const gs_strided columns = {COLS, STRIDE};
    gs_stats stats;
    fill(&source, COUNT, GS_F32, 16, 0);
    for (size_t i = 0; i < COUNT; i++)
        f64[i] = (double)source.f32[i] * 0x1.123456789ABp-200;
    const gs_tensor doubles = {f64, COUNT, GS_F64, "f64", 0};
    MUST(gs_tensors_check(ctx, &doubles, 1, &stats));
    add_stats(&stats);
    MUST(gs_tensors_scan(ctx, &doubles, 1, &stats));
    add_stats(&stats);
    MUST(gs_tensors_unscale(ctx, &doubles, &doubles, 1, 0x1.8p+100f, &stats));
    add_stats(&stats);
    MUST(gs_tensors_scale(ctx, &doubles, 1, 3, &stats));
    add_stats(&stats);
    for (size_t i = 0; i < COUNT; i++)
        add_f64(f64[i]);
    for (int h = 1; h < 3; h++) {
        const gs_tensor view = {f32 + 5, ROWS * COLS, GS_F32, "view", &columns};
        fill(f32, ROWS * STRIDE, GS_F32, 17, h == 2);
        MUST(gs_tensors_round(ctx, &view, 1, types[h], &stats));
        add_stats(&stats);
        MUST(gs_tensors_unscale(ctx, &view, &view, 1, 0x1p-7f, &stats));
        add_stats(&stats);
        add_array(f32, ROWS * STRIDE, GS_F32);
    }
}

static void scalers(gs_context *ctx)
{
    static const char *const policies[] = {"static:128", "guard",     "headroom", "logmax",
                                           "adaptive",   "histogram", "none"};
    for (size_t p = 0;; p++) {
        const size_t own = sizeof policies / sizeof policies[0];
        const char *name = p < own ? policies[p] : gs_preset_name(p - own);
        if (!name)
            return;
        gs_scaler scaler;
        MUST(gs_scaler_init(&scaler, name, NULL));
        for (uint64_t i = 0; i < 3000; i++) {
            gs_step step;
            gs_step_begin(&step, &scaler);
            const double scaled = (double)(unit(7, i) * unit(7, i) + 0x1p-12f) * step.scale;
            gs_step_amax(&step,
                         scaled > 65504 || gs_random_u32(8, i) % 97 == 0 ? 1e300 * 1e300 : scaled);
            if (scaler.policy == GS_POLICY_HISTOGRAM && i < 300) { /* what it decides by */
                gs_exponents x = {0};
                const float g[2] = {(float)scaled, (float)scaled / 64};
                const gs_tensor list = gs_tensor_source(g, 2, GS_F32, "g");
                MUST(gs_tensors_exponents(ctx, &x, &list, 1, NULL));
                gs_step_exponents(&step, &scaler, &x);
            }
            const gs_verdict verdict = gs_step_end(&step, &scaler);
            add_bits((uint64_t)verdict.action, 1);
            add_bits((uint64_t)verdict.reason, 1);
            add_f64(verdict.scale);
        }
    }
}

static void optimizers(gs_context *ctx)
{
    static const char *const kinds[] = {"sgd", "adam", "adamw", "lamb", "adafactor"};
    static const char *const settings[] = {"lr=0.01 clip_norm=1",
                                           "lr=0.01 moments=bf16 ema=0.9 seed=3",
                                           "lr=0.03 clip_value=0.1 moments=f16 weight_decay=0.1"};
    enum { ROWS = 37, COLS = 61, SIZE = ROWS * COLS };
    static float data[SIZE], grad[SIZE];
    static uint16_t copy[SIZE];
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t s = 0; s < 3; s++) {
            const gs_weight list[] = {{.name = "w",
                                       .rows = ROWS,
                                       .cols = COLS,
                                       .data = data,
                                       .dtype = GS_F32,
                                       .copy = copy,
                                       .copy_dtype = s == 2 ? GS_F16 : GS_BF16,
                                       .grad = grad,
                                       .grad_dtype = GS_F32}};
            if (s > 0 && strcmp(kinds[k], "adafactor") == 0) /* has no moments */
                break;
            gs_optim_config config = {.size = sizeof config};
            gs_optim *optim = NULL;
            gs_scaler scaler;
            fill(data, SIZE, GS_F32, 9, 0);
            memset(copy, 0, sizeof copy);
            MUST(gs_scaler_init(&scaler, "pytorch", NULL));
            MUST(gs_optim_config_init(&config, kinds[k], NULL));
            MUST(gs_optim_config_set(&config, settings[s], NULL));
            MUST(gs_optim_create(&optim, ctx, list, 1, &config));
            for (uint64_t i = 0; optim && i < 7; i++) {
                gs_step step;
                gs_optim_report report;
                gs_step_begin(&step, &scaler);
                for (uint64_t j = 0; j < SIZE; j++)
                    grad[j] = unit(100 + i, j) * (float)step.scale;
                MUST(gs_optim_step(optim, &step, &scaler, &report));
                add_array(data, SIZE, GS_F32);
                add_array(copy, SIZE, list[0].copy_dtype);
            }
            gs_optim_free(optim);
        }
}

/* ---- the engine: a small network of images, one of tokens ---- */

enum { CONV, CONV_B, GAMMA, BETA, HEAD, TABLE, NORM, NORM_B, QKV, MIX, WEIGHTS };
static const gs_store_entry entries[WEIGHTS] = {
    {"conv", 5, 27, 0},  {"conv.b", 1, 5, 0},  {"gamma", 1, 5, 0}, {"beta", 1, 5, 0},
    {"head", 10, 20, 0}, {"table", 11, 16, 0}, {"norm", 1, 16, 0}, {"norm.b", 1, 16, 0},
    {"qkv", 48, 16, 0},  {"mix", 16, 16, 0}};

static gs_value *images(gs_tape *tape, const gs_weight *w, const float *pixels)
{
    static const int32_t labels[3] = {1, 7, 4};
    static float mean[5], var[5];
    memset(mean, 0, sizeof mean);
    memset(var, 0, sizeof var);
    const size_t shape[] = {3, 8, 8, 3}, flat[] = {3, 20};
    gs_value *x = gs_input(tape, GS_F32, 4, shape, pixels);
    x = gs_conv2d(tape, x, gs_param(tape, &w[CONV]), gs_param(tape, &w[CONV_B]), 3, 1, 1);
    x = gs_batchnorm(tape, x, gs_param(tape, &w[GAMMA]), gs_param(tape, &w[BETA]),
                     (gs_running){.mean = mean, .var = var, .momentum = 0.1f});
    x = gs_max_pool(tape, gs_relu(tape, x), 2, 2, 0);
    x = gs_avg_pool(tape, x, 2, 2);
    x = gs_dropout(tape, gs_reshape(tape, x, 2, flat), 0.25f);
    return gs_cross_entropy(tape, gs_linear(tape, x, gs_param(tape, &w[HEAD]), NULL), labels);
}

static gs_value *tokens(gs_tape *tape, const gs_weight *w, const float *wanted)
{
    static const int32_t ids[12] = {0, 3, 10, 2, 2, 7, 1, 9, 4, 5, 6, 8};
    const size_t shape[] = {2, 6, 16};
    gs_value *x = gs_embedding(tape, gs_param(tape, &w[TABLE]), ids, 12);
    x = gs_reshape(tape, x, 3, shape);
    gs_value *h = gs_layernorm(tape, x, gs_param(tape, &w[NORM]), gs_param(tape, &w[NORM_B]));
    h = gs_attention(tape, gs_linear(tape, h, gs_param(tape, &w[QKV]), NULL), 2);
    h = gs_gelu(tape, gs_add(tape, x, h));
    h = gs_fake_quant(tape, h, 4, 8, 0, 1);
    h = gs_mul(tape, h, gs_linear(tape, h, gs_param(tape, &w[MIX]), NULL));
    return gs_mse(tape, gs_softmax(tape, h), gs_input(tape, GS_F32, 3, shape, wanted));
}

static void engine(gs_context *ctx)
{
    static float pixels[3 * 8 * 8 * 3], wanted[2 * 6 * 16];
    fill(pixels, sizeof pixels / sizeof pixels[0], GS_F32, 10, 0);
    fill(wanted, sizeof wanted / sizeof wanted[0], GS_F32, 11, 0);
    for (int mode = GS_O0; mode <= GS_O1; mode++)
        for (int h = 1; h < 3; h++) {
            gs_tape *tape = NULL;
            gs_store *store = NULL;
            const gs_tape_config config = {
                .size = sizeof config, .mode = (gs_mode)mode, .half = types[h]};
            MUST(gs_tape_create(&tape, ctx, &config));
            MUST(gs_store_create(&store, ctx, entries, WEIGHTS,
                                 (gs_store_types){GS_F32, GS_F32, GS_F32}));
            if (!tape || !store)
                return;
            const gs_tensor data = gs_store_data(store), grads = gs_store_grads(store);
            size_t n;
            const gs_weight *w = gs_store_weights(store, &n);
            fill(data.data, data.count, GS_F32, 12, 0);
            for (uint64_t step = 0; step < 2; step++) {
                gs_tape_begin(tape, 1, step);
                gs_value *a = images(tape, w, pixels), *b = tokens(tape, w, wanted);
                MUST(gs_tape_backward(tape, a, 256));
                MUST(gs_tape_backward(tape, b, 256));
                MUST(gs_tape_status(tape));
                add_array(grads.data, grads.count, GS_F32);
            }
            gs_tape_free(tape);
            gs_store_free(store);
        }
}

static void products(gs_context *ctx)
{
    static const size_t sizes[][3] = {
        {1, 70, 400}, {7, 33, 390}, {50, 40, 70}, {13, 1, 800}}; /* m, n, k */
    static float a[50 * 800], b[70 * 800], c[50 * 70];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int s = 0; s < 3; s++)
            for (int t = 0; t < 2; t++) {
                const size_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
                fill(a, m * k, types[s], 13, 0);
                fill(b, n * k, types[s], 14, 0);
                fill(c, m * n, GS_F32, 15, 0);
                const gs_gemm gemm = {
                    .m = m,
                    .n = n,
                    .k = k,
                    .batch = 1,
                    .a = {.data = a, .dtype = types[s], .stride = k},
                    .b = {.data = b, .dtype = types[s], .stride = t ? k : n, .transposed = t},
                    .c = {.data = c, .dtype = GS_F32, .stride = n},
                    .beta = 0.5f};
                MUST(gs_gemm_run(ctx, &gemm));
                add_array(c, m * n, GS_F32);
            }
}

int main(void)
{
    static const struct {
        const char *name;
        void (*run)(gs_context *ctx);
    } parts[] = {{"numbers", numbers},  {"passes", passes},         {"further", further_passes},
                 {"scalers", scalers},  {"optimizers", optimizers}, {"engine", engine},
                 {"products", products}};
    gs_context *best = NULL, *reference = NULL;
    MUST(gs_context_create(&best, &(gs_config){.size = sizeof(gs_config), .threads = 2}, NULL));
    MUST(gs_context_create(
        &reference, &(gs_config){.size = sizeof(gs_config), .threads = 1, .without_cpu = ~0u},
        NULL));
    uint64_t all = 0xCBF29CE484222325;
    for (size_t p = 0; best && reference && p < sizeof parts / sizeof parts[0]; p++) {
        hash = 0xCBF29CE484222325;
        parts[p].run(reference);
        const uint64_t expected = hash;
        hash = 0xCBF29CE484222325;
        parts[p].run(best);
        if (hash != expected) {
            failures++;
            fprintf(stderr, "%s: kernels disagree with the reference\n", parts[p].name);
        }
        printf("%-10s %016" PRIx64 "\n", parts[p].name, expected);
        all = (all ^ expected) * 0x100000001B3;
    }
    gs_context_free(best);
    gs_context_free(reference);
    printf("%-10s %016" PRIx64 "\n", "all", all);
    return failures > 0;
}
