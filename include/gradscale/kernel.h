/* kernel.h: one pass over gradients, wherever they lie.
 *
 *     gs_context *ctx;
 *     gs_context_create(&ctx, NULL);
 *     gs_tensor grads[] = {{w, 4096, GS_F16, "fc.weight", 0}, {b, 64, GS_F32, "fc.bias", 0}};
 *     gs_stats stats;
 *     gs_tensors_scale(ctx, grads, 2, 1 / scale, &stats);       unscale in place, and check
 *     if (gs_stats_finite(&stats)) ...
 *
 * A call takes a list of tensors, checks all of it before it touches any, and runs over the
 * context's threads. Results do not depend on the number of threads, on the CPU's instruction set
 * or on the caller's floating-point mode, to the last bit. Zero tensors and zero counts are legal.
 */
#ifndef GRADSCALE_KERNEL_H
#define GRADSCALE_KERNEL_H

#include "gradscale/num.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the context: which kernels, which threads, which memory, and the last error ---- */

/* Instruction sets, lowest first. The C reference needs none of them. */
#define GS_CPUS(X)                              \
    X(AVX2, "avx2")     /* with FMA and F16C */ \
    X(AVX512, "avx512") /* F, BW, DQ, VL */     \
    X(NEON, "neon")     /* AArch64 */

enum gs_cpu_index {
#define X(id, name) GS_CPU_INDEX_##id,
    GS_CPUS(X)
#undef X
        GS_CPU_COUNT
};
enum gs_cpu {
#define X(id, name) GS_CPU_##id = 1 << GS_CPU_INDEX_##id,
    GS_CPUS(X)
#undef X
};

GS_API unsigned gs_cpu_detect(void);               /* what this machine and its kernel offer */
GS_API const char *gs_cpu_name(unsigned one_flag); /* NULL: no such flag */

typedef struct gs_context gs_context;

typedef struct gs_config {
    gs_alloc alloc;       /* .resize NULL: malloc */
    gs_parallel parallel; /* .run NULL: a pool of our own */
    unsigned threads;     /* of that pool, the caller counted, up to 4096; 0: one a CPU */
    unsigned without_cpu; /* instruction sets not to use, gs_cpu flags; ~0u: the C reference */
} gs_config;

/* config NULL: all defaults. A context serves one caller at a time. Without one (NULL) the passes
 * below return GS_ENULL. */
GS_API gs_status gs_context_create(gs_context **out, const gs_config *config);
GS_API void gs_context_free(gs_context *ctx);
GS_API unsigned gs_context_threads(const gs_context *ctx);      /* of our own pool */
GS_API unsigned gs_context_cpu(const gs_context *ctx);          /* the instruction sets in use */
GS_API const gs_error *gs_context_error(const gs_context *ctx); /* of the last failed call */

/* ---- statistics ---- */

/* Plain data: copy, send, merge. Merging in any order gives the same bits in everything but sumsq,
 * which is an f64 sum and is to be folded in a fixed order (chunk, tensor, micro-batch, rank).
 * amax is taken over the finite elements. */
typedef struct gs_stats {
    uint64_t elements;
    uint64_t inf, nan;                 /* elements */
    uint64_t zero, subnormal, flushed; /* see gs_tensors_count; 0 from the other calls */
    float amax;                        /* largest finite magnitude */
    double sumsq;                      /* of squares; Inf unless all are finite */
    uint64_t bad_tensor, bad_index;    /* the first Inf or NaN; GS_NONE if there is none */
} gs_stats;

#define GS_NONE UINT64_MAX

GS_API void gs_stats_init(gs_stats *stats);
GS_API void gs_stats_merge(gs_stats *into, const gs_stats *from);
GS_API int gs_stats_finite(const gs_stats *stats); /* no Inf and no NaN was seen */

/* ---- passes over a list of tensors ---- */

typedef struct gs_tensor {
    void *data;
    size_t count;
    gs_dtype dtype;   /* GS_F32, GS_F16 or GS_BF16 */
    const char *name; /* for sentences; NULL: its number is said */
    int group;        /* the caller's: the passes do not look at it */
} gs_tensor;

/* Every pass takes the statistics of what it read, or for a pass that writes, of what it wrote.
 * Any `stats` may be NULL; a pass that fails leaves it alone. Sources and destinations pair up by
 * position, equal in count. What is written may overlap nothing else of the call, except that a
 * destination may be its own source, in the same type. */

/* Non-finite and amax only: the fastest question. sumsq stays 0. */
GS_API gs_status gs_tensors_check(gs_context *ctx, const gs_tensor *list, size_t n,
                                  gs_stats *stats);

/* The same and the sum of squares, which no finite input can make overflow. */
GS_API gs_status gs_tensors_scan(gs_context *ctx, const gs_tensor *list, size_t n, gs_stats *stats);

/* Everything, an entry a tensor (each[n], bad_tensor set). subnormal and flushed count the values
 * that would be so after rounding to `half`; zero those that are zero already. */
GS_API gs_status gs_tensors_count(gs_context *ctx, const gs_tensor *list, size_t n, gs_dtype half,
                                  gs_stats *each);

/* list *= factor, rounded to each tensor's type: scale, unscale (factor 1 / scale) and clipping
 * (factor min(1, limit / norm)) are this. factor must be finite. */
GS_API gs_status gs_tensors_scale(gs_context *ctx, const gs_tensor *list, size_t n, float factor,
                                  gs_stats *stats);

/* dst = src * factor, where dst is f32 or of the type of src. */
GS_API gs_status gs_tensors_scale_to(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                                     size_t n, float factor, gs_stats *stats);

/* dst = src, rounded to nearest even. */
GS_API gs_status gs_tensors_convert(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                                    size_t n, gs_stats *stats);

/* dst = src, rounded stochastically; the bits of element i of tensor k depend on seed, k, i only.
 */
GS_API gs_status gs_tensors_convert_stochastic(gs_context *ctx, const gs_tensor *dst,
                                               const gs_tensor *src, size_t n, uint64_t seed,
                                               gs_stats *stats);

/* dst += factor * src; dst is f32. Product and sum are rounded each. Where two NaN meet, either may
 * survive: the only bits of all the passes that are not defined. */
GS_API gs_status gs_tensors_axpy(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                                 size_t n, float factor, gs_stats *stats);

/* ---- where values lie ---- */

/* A histogram by powers of two, with what else it takes to say, exactly, what a scale of 2^k makes
 * of the values when they are rounded to f16 or bf16: see gs_exponents_at. Plain data; sums of it
 * are the same in any order.
 *
 * Binade i holds 2^(i-192) <= |x| < 2^(i-191), so 1.0 is in binade 192. The first binade also takes
 * all f64 below it, the last all above: both are far outside of what any format here can use.
 * `power` are the ties that become zero at some scale. `top` are the values whose distance to the
 * next power is no more than half a step of the format that ends there at some scale. */
enum { GS_BINADES = 320, GS_BINADE_OF_ONE = 192 };

typedef struct gs_exponents {
    uint64_t zero, inf, nan;
    uint64_t all[GS_BINADES];
    uint64_t power[GS_BINADES]; /* of these, exact powers of two; counted below 2^-24 only */
    uint64_t top[GS_BINADES];   /* of these, those that round up to the next power of two */
} gs_exponents;

/* Adds the list to *sum, which the caller has cleared. */
GS_API gs_status gs_tensors_exponents(gs_context *ctx, const gs_tensor *list, size_t n,
                                      gs_exponents *sum, gs_stats *stats);

/* The same for f64, which no other pass takes; on the caller's thread. bad_tensor becomes 0, amax
 * is rounded up to f32. stats may be NULL. */
GS_API void gs_exponents_add_f64(gs_exponents *sum, const double *src, size_t n, gs_stats *stats);

GS_API void gs_exponents_merge(gs_exponents *into, const gs_exponents *from);

/* What x * 2^k rounded to nearest even becomes, counted over the finite x. */
typedef struct gs_rounded {
    uint64_t zero;      /* was zero */
    uint64_t flushed;   /* becomes zero, and was not */
    uint64_t subnormal; /* becomes a subnormal: loses bits, or all but has */
    uint64_t overflow;  /* becomes an infinity */
} gs_rounded;

enum { GS_MAX_LOG2_SCALE = 24 };

/* half: GS_F16 or GS_BF16; log2_scale: 0 to 24. */
GS_API gs_status gs_exponents_at(const gs_exponents *x, gs_dtype half, int log2_scale,
                                 gs_rounded *out);

#ifdef __cplusplus
}
#endif

#endif
