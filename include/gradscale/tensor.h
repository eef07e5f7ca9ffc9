/* tensor.h: one pass over gradients, wherever they lie.
 *
 *     gs_context *ctx;
 *     gs_context_create(&ctx, NULL, NULL);
 *     gs_tensor grads[] = {{w, 4096, GS_F16, "fc.weight", 0}, {b, 64, GS_F32, "fc.bias", 0}};
 *     gs_stats stats;
 *     gs_tensors_scale(ctx, grads, 2, 1 / scale, &stats);       unscale in place, and check
 *     if (gs_stats_finite(&stats)) ...
 *
 * A call takes a list of tensors, checks all of it before it touches any, and runs over the
 * context's threads. Results do not depend on the number of threads, on the CPU's instruction set
 * or on the caller's floating-point mode, to the last bit. Zero tensors and zero counts are legal.
 */
#ifndef GRADSCALE_TENSOR_H
#define GRADSCALE_TENSOR_H

#include "gradscale/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- statistics ---- */

/* No such number. */
static const uint64_t GS_NONE = UINT64_C(0xFFFFFFFFFFFFFFFF);
#define GS_NONE UINT64_C(0xFFFFFFFFFFFFFFFF)

/* Plain data: copy, send, merge. Merging in any order gives the same bits in everything but sumsq,
 * which is an f64 sum and is to be folded in a fixed order (chunk, tensor, micro-batch, rank).
 * amax is taken over the finite elements. */
typedef struct gs_stats {
    uint64_t elements;
    uint64_t inf, nan;                   /* elements */
    uint64_t zero, subnormal, underflow; /* see gs_tensors_count; 0 from the other calls */
    float amax;                          /* largest finite magnitude */
    double sumsq;                        /* of squares; Inf unless all are finite */
    uint64_t bad_tensor, bad_index;      /* the first Inf or NaN; GS_NONE if there is none */
} gs_stats;

GS_API void gs_stats_init(gs_stats *stats);
GS_API void gs_stats_merge(gs_stats *into, const gs_stats *from);
GS_API int gs_stats_finite(const gs_stats *stats); /* no Inf and no NaN was seen */

/* ---- passes over a list of tensors ---- */

/* Rows of `cols` elements that begin `stride` elements apart: a view of a larger matrix. */
typedef struct gs_strided {
    size_t cols, stride;
} gs_strided;

typedef struct gs_tensor {
    void *data;
    size_t count;     /* elements; of a view, rows * cols */
    gs_dtype dtype;   /* GS_F32, GS_F16 or GS_BF16; GS_F64 in check, scan, scale and unscale */
    const char *name; /* for error messages; NULL: its number is said */
    const gs_strided *strided; /* NULL: contiguous */
} gs_tensor;

/* A tensor of memory that is only read, for sources and for the passes that write nothing. */
GS_API gs_tensor gs_tensor_source(const void *data, size_t count, gs_dtype dtype, const char *name);

/* Every pass takes the statistics of what it read, or for a pass that writes, of what it wrote.
 * Any `stats` may be NULL; a pass that fails leaves it alone. Sources and destinations pair up by
 * position, equal in count. What is written may overlap nothing else of the call, except that a
 * destination may be its own source, in the same type. */

/* Non-finite and amax only: the fastest question. sumsq stays 0. */
GS_API gs_status gs_tensors_check(gs_context *ctx, const gs_tensor *list, size_t n,
                                  gs_stats *stats);

/* The same and the sum of squares, which no finite f32, f16 or bf16 can make overflow. Of f64 it is
 * Inf where the squares are beyond f64; the counts of inf and nan, not it, tell what was found. */
GS_API gs_status gs_tensors_scan(gs_context *ctx, const gs_tensor *list, size_t n, gs_stats *stats);

/* Everything, one entry per tensor (each[n], bad_tensor set). subnormal and underflow count the
 * values that would be subnormal, or zero, after rounding to `half`; zero those that are zero
 * already. */
GS_API gs_status gs_tensors_count(gs_context *ctx, const gs_tensor *list, size_t n, gs_dtype half,
                                  gs_stats *each);

/* list *= factor, rounded to each tensor's type: scale, unscale (factor 1 / scale) and clipping
 * (factor min(1, limit / norm)) are this. factor must be finite. */
GS_API gs_status gs_tensors_scale(gs_context *ctx, const gs_tensor *list, size_t n, float factor,
                                  gs_stats *stats);

/* dst = src * factor, where dst is f32 or of the type of src. */
GS_API gs_status gs_tensors_scale_to(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                                     size_t n, float factor, gs_stats *stats);

/* The same, with the statistics of src as gs_tensors_scan gives them: unscale, check and norm in
 * one pass over memory, where dst is src too. */
GS_API gs_status gs_tensors_unscale(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                                    size_t n, float factor, gs_stats *stats);

/* dst = src, rounded to nearest even. */
GS_API gs_status gs_tensors_convert(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                                    size_t n, gs_stats *stats);

/* dst = src, rounded stochastically; the bits of element i of tensor k depend on seed, k, i only.
 */
GS_API gs_status gs_tensors_convert_stochastic(gs_context *ctx, const gs_tensor *dst,
                                               const gs_tensor *src, size_t n, uint64_t seed,
                                               gs_stats *stats);

/* list = list rounded to `half` and back, in place: what f32 values become when they are stored in
 * half. An entry per tensor, as gs_tensors_count gives it for what was there, but that inf and amax
 * are of what is written: values that overflow are infinite now. f32 only. */
GS_API gs_status gs_tensors_round(gs_context *ctx, const gs_tensor *list, size_t n, gs_dtype half,
                                  gs_stats *each);

/* dst += factor * src; dst is f32. Product and sum are rounded each. Where two NaN meet, either may
 * survive: the only bits of all the passes that are not defined. */
GS_API gs_status gs_tensors_axpy(gs_context *ctx, const gs_tensor *dst, const gs_tensor *src,
                                 size_t n, float factor, gs_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
