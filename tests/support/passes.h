/* passes.h: every pass over a list of tensors on fixed data, and a digest of all that it wrote and
 * reported. Two runs that should not differ in a bit have equal digests. Included by test_pass*.c
 * and by fastmath.c, whose flags are those of a careless caller. */
#ifndef PASSES_H
#define PASSES_H

#include "gradscale/exponents.h"

#include <stdlib.h>
#include <string.h>

/* Around the chunk of 65536 elements, and none, and few. */
#define PASS_COUNTS                                       \
    {                                                     \
        0, 1, 65535, 65536, 65537, 131073, 100, 31, 0, 33 \
    }
enum { PASS_TENSORS = 10 };

#define PASSES(X)      \
    X(check)           \
    X(scan)            \
    X(count_f16)       \
    X(count_bf16)      \
    X(scale)           \
    X(scale_down)      \
    X(scale_to_f32)    \
    X(scale_to_same)   \
    X(convert_to_f32)  \
    X(convert_to_f16)  \
    X(convert_to_bf16) \
    X(stochastic_f32)  \
    X(stochastic_f16)  \
    X(stochastic_bf16) \
    X(axpy)            \
    X(exponents)       \
    X(merge)

enum {
#define X(name) PASS_##name,
    PASSES(X)
#undef X
        PASS_COUNT
};

typedef struct digests {
    uint64_t of[PASS_COUNT];
} digests;

typedef struct pass_data {
    gs_tensor src[PASS_TENSORS];
    uint32_t *memory;
} pass_data;

static inline uint64_t pass_mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

static inline uint64_t pass_random(uint64_t *state)
{
    *state = pass_mix(*state, 0xD6E8FEB86659FD93u);
    return *state;
}

/* Any bits. `finite`: no Inf and no NaN in any of the types. Every tensor starts one element into
 * its place, so that none is aligned to a vector. */
static inline void pass_data_make(pass_data *d, int finite, uint64_t seed)
{
    static const size_t counts[PASS_TENSORS] = PASS_COUNTS;
    static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
    size_t words = 0;
    for (int t = 0; t < PASS_TENSORS; t++)
        words += counts[t] + 2;
    d->memory = malloc(words * sizeof *d->memory);
    for (size_t i = 0; i < words; i++) {
        uint32_t u = (uint32_t)(pass_random(&seed) >> 16);
        switch (u % 16) { /* the rare made common */
        case 0:
            u &= 0x80008000; /* zeros */
            break;
        case 1:
            u &= 0x807F807F; /* subnormals of all types */
            break;
        case 2:
            u = finite   ? u /* infinities: of f16 and bf16, or of f32 and bf16 */
                : u & 16 ? (u & 0x80008000) | 0x7C007F80
                         : (u & 0x80000000) | 0x7F800000;
            break;
        default:
            break;
        }
        if (finite) /* an exponent bit off in both halves, for f16 and the wider ones */
            u &= ~0x08000800u;
        d->memory[i] = u;
    }
    uint32_t *place = d->memory;
    for (int t = 0; t < PASS_TENSORS; t++) {
        const gs_dtype type = types[t % 3];
        void *data = type == GS_F32 ? (void *)(place + 1) : (void *)((uint16_t *)place + 1);
        d->src[t] = (gs_tensor){counts[t] ? data : NULL, counts[t], type, NULL, NULL};
        place += counts[t] + 2;
    }
}

static inline void pass_data_free(pass_data *d) { free(d->memory); }

static inline uint64_t pass_bytes(uint64_t h, const void *data, size_t size)
{
    const unsigned char *p = data;
    uint64_t word = 0;
    for (; size >= sizeof word; size -= sizeof word, p += sizeof word) {
        memcpy(&word, p, sizeof word);
        h = pass_mix(h, word);
    }
    for (; size > 0; size--)
        h = pass_mix(h, *p++);
    return h;
}

static inline uint64_t pass_stats(uint64_t h, const gs_stats *s)
{
    h = pass_bytes(h, &s->elements, sizeof s->elements);
    h = pass_bytes(h, &s->inf, 5 * sizeof s->inf);
    h = pass_bytes(h, &s->amax, sizeof s->amax);
    h = pass_bytes(h, &s->sumsq, sizeof s->sumsq);
    return pass_bytes(h, &s->bad_tensor, 2 * sizeof s->bad_tensor);
}

static inline int same_stats(const gs_stats *a, const gs_stats *b)
{
    return pass_stats(0, a) == pass_stats(0, b);
}

static inline gs_context *context(const gs_config *config)
{
    gs_context *ctx = NULL;
    if (gs_context_create(&ctx, config, NULL) != GS_OK)
        exit(1);
    return ctx;
}

static inline size_t pass_size(const gs_tensor *x)
{
    return x->count * (x->dtype == GS_F32 ? 4 : 2);
}

/* Which of two NaN survives a sum is the compiler's choice: all are one. Bits, because this is
 * compiled with -ffast-math too. */
static inline void pass_same_nans(const gs_tensor *list)
{
    for (int t = 0; t < PASS_TENSORS; t++)
        for (size_t i = 0; i < list[t].count; i++) {
            uint32_t u, *place = (uint32_t *)list[t].data + i;
            memcpy(&u, place, sizeof u);
            u = (u & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC00000 : u;
            memcpy(place, &u, sizeof u);
        }
}

static inline uint64_t pass_list(uint64_t h, const gs_tensor *list)
{
    for (int t = 0; t < PASS_TENSORS; t++)
        h = pass_bytes(h, list[t].data, pass_size(&list[t]));
    return h;
}

/* Destinations of one type (GS_DTYPE_COUNT: that of each source), filled with the sources' bytes.
 */
static inline void *pass_copies(gs_tensor *dst, const gs_tensor *src, gs_dtype type)
{
    size_t total = 0;
    for (int t = 0; t < PASS_TENSORS; t++)
        total += 4 * src[t].count + 4;
    char *memory = calloc(total, 1), *place = memory;
    for (int t = 0; t < PASS_TENSORS; t++) {
        dst[t] = src[t];
        if (type != GS_DTYPE_COUNT)
            dst[t].dtype = type;
        dst[t].data = place;
        if (src[t].count > 0)
            memcpy(place, src[t].data, pass_size(&src[t]));
        place += 4 * src[t].count + 4;
    }
    return memory;
}

/* Runs all; false if one of them fails. */
static inline int pass_run_all(gs_context *ctx, const pass_data *d, digests *out)
{
    enum { N = PASS_TENSORS };
    gs_tensor dst[N];
    gs_stats stats, each[N], merged;
    int good = 1;
    memset(out, 0, sizeof *out);

    good &= gs_tensors_check(ctx, d->src, N, &stats) == GS_OK;
    out->of[PASS_check] = pass_stats(0, &stats);
    good &= gs_tensors_scan(ctx, d->src, N, &stats) == GS_OK;
    out->of[PASS_scan] = pass_stats(0, &stats);
    for (int k = 0; k < 2; k++) {
        uint64_t *h = &out->of[k ? PASS_count_bf16 : PASS_count_f16];
        good &= gs_tensors_count(ctx, d->src, N, k ? GS_BF16 : GS_F16, each) == GS_OK;
        for (int t = 0; t < N; t++)
            *h = pass_stats(*h, &each[t]);
    }
    gs_stats_init(&merged);
    for (int t = 0; t < N; t++)
        gs_stats_merge(&merged, &each[t]);
    out->of[PASS_merge] = pass_stats(0, &merged);

    const struct {
        int pass;
        gs_dtype type;
        float factor;
        int how; /* 0 in place, 1 scale_to, 2 convert, 3 stochastic, 4 axpy */
    } writing[] = {
        {PASS_scale, GS_DTYPE_COUNT, 0x1.8p-3f, 0},
        {PASS_scale_down, GS_DTYPE_COUNT, 0x1.234p-101f, 0},
        {PASS_scale_to_f32, GS_F32, 0x1.fp-16f, 1},
        {PASS_scale_to_same, GS_DTYPE_COUNT, 3, 1},
        {PASS_convert_to_f32, GS_F32, 0, 2},
        {PASS_convert_to_f16, GS_F16, 0, 2},
        {PASS_convert_to_bf16, GS_BF16, 0, 2},
        {PASS_stochastic_f32, GS_F32, 0, 3},
        {PASS_stochastic_f16, GS_F16, 0, 3},
        {PASS_stochastic_bf16, GS_BF16, 0, 3},
        {PASS_axpy, GS_F32, -0x1.99p-2f, 4},
    };
    for (size_t k = 0; k < sizeof writing / sizeof writing[0]; k++) {
        void *memory = pass_copies(dst, d->src, writing[k].type);
        const float factor = writing[k].factor;
        gs_status status = GS_EOK;
        switch (writing[k].how) {
        case 0:
            status = gs_tensors_scale(ctx, dst, N, factor, &stats);
            break;
        case 1:
            status = gs_tensors_scale_to(ctx, dst, d->src, N, factor, &stats);
            break;
        case 2:
            status = gs_tensors_convert(ctx, dst, d->src, N, &stats);
            break;
        case 3:
            status = gs_tensors_convert_stochastic(ctx, dst, d->src, N, 12345, &stats);
            break;
        default:
            status = gs_tensors_axpy(ctx, dst, d->src, N, factor, &stats);
            pass_same_nans(dst);
            break;
        }
        good &= status == GS_OK;
        out->of[writing[k].pass] = pass_list(pass_stats(0, &stats), dst);
        free(memory);
    }

    gs_exponents sum = {0};
    good &= gs_tensors_exponents(ctx, &sum, d->src, N, &stats) == GS_OK;
    out->of[PASS_exponents] = pass_bytes(pass_stats(0, &stats), &sum, sizeof sum);
    return good;
}

#endif
