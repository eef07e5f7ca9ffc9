/* Any bytes as gradients: every pass of every instruction set against the reference. What it
 * writes, amax, counts and the sum of squares are the same bits. The first bytes choose the pass,
 * the types, the factor, and where the arrays begin and end. */
#define _GNU_SOURCE
#include "fuzz.h"

#include "gradscale/exponents.h"
#include "gradscale/tensor.h"

#include <math.h>
#include <string.h>

enum { ROOM = 1 << 14, HEAD = 16, LEVELS = 3 };

typedef struct result {
    gs_stats stats;
    gs_exponents exponents;
    _Alignas(64) uint8_t bytes[ROOM];
} result;

typedef struct order { /* what is done to what */
    int pass;
    gs_dtype from, to;
    size_t offset, count;
    float factor;
    uint64_t seed;
} order;

static gs_context *contexts[LEVELS]; /* the reference first */
static int levels;

static void add_level(unsigned without)
{
    const gs_config config = {.size = sizeof config, .threads = 1, .without_cpu = without};
    gs_context *ctx;
    if (gs_context_create(&ctx, &config, NULL) != GS_OK)
        abort();
    contexts[levels++] = ctx;
}

static gs_status run(result *out, gs_context *ctx, const order *o, const uint8_t *source)
{
    const size_t size = o->from == GS_F32 ? 4 : 2;
    gs_tensor src = {(void *)(uintptr_t)source, o->count, o->from, "src", NULL};
    gs_tensor own = {out->bytes + o->offset * size, o->count, o->from, "own", NULL};
    gs_tensor dst = {out->bytes + o->offset * (o->to == GS_F32 ? 4 : 2), o->count, o->to, "dst",
                     NULL};
    memset(out, 0, sizeof *out);
    memcpy(own.data, source, o->count * size);
    switch (o->pass) {
    case 0:
        return gs_tensors_check(ctx, &own, 1, &out->stats);
    case 1:
        return gs_tensors_scan(ctx, &own, 1, &out->stats);
    case 2:
        return gs_tensors_count(ctx, &own, 1, o->to, &out->stats);
    case 3:
        return gs_tensors_scale(ctx, &own, 1, o->factor, &out->stats);
    case 4:
        return gs_tensors_unscale(ctx, &own, &own, 1, o->factor, &out->stats);
    case 5:
        return gs_tensors_exponents(ctx, &out->exponents, &own, 1, &out->stats);
    case 6:
        return gs_tensors_round(ctx, &own, 1, o->to, &out->stats);
    case 7:
        return gs_tensors_scale_to(ctx, &dst, &src, 1, o->factor, &out->stats);
    case 8:
        return gs_tensors_convert_stochastic(ctx, &dst, &src, 1, o->seed, &out->stats);
    default:
        return gs_tensors_convert(ctx, &dst, &src, 1, &out->stats);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
    static result want, got;
    static _Alignas(64) uint8_t source[ROOM];
    if (levels == 0) {
        const unsigned have = gs_cpu_detect();
        add_level(~0u);
        if (have & GS_CPU_AVX2)
            add_level(~(unsigned)GS_CPU_AVX2);
        if (have & (GS_CPU_AVX512 | GS_CPU_NEON))
            add_level(0);
    }
    if (n <= HEAD || n > ROOM / 4)
        return 0;
    order o = {.pass = data[0] % 10,
               .from = types[data[1] % 3],
               .to = types[data[2] % 3],
               .offset = data[3] % 32};
    memcpy(&o.factor, data + 4, sizeof o.factor);
    memcpy(&o.seed, data + 8, sizeof o.seed);
    if (!isfinite(o.factor))
        o.factor = 0.5f;
    const size_t size = o.from == GS_F32 ? 4 : 2, start = o.offset * size;
    o.count = (n - HEAD) / size;
    memcpy(source + start, data + HEAD, o.count * size);
    const gs_status status = run(&want, contexts[0], &o, source + start);
    for (int i = 1; i < levels; i++)
        if (run(&got, contexts[i], &o, source + start) != status ||
            (status == GS_OK && memcmp(&want, &got, sizeof want) != 0))
            abort();
    return 0;
}
