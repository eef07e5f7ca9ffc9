/* exponents.h: where the values of gradients lie, by powers of two, and what a scale makes of them.
 *
 *     gs_exponents x = {0};
 *     gs_tensors_exponents(ctx, &x, grads, 2, NULL);
 *     gs_rounded at;
 *     gs_exponents_at(&at, &x, GS_F16, 10, NULL);      with a loss scale of 2^10:
 *     ... at.underflow, at.overflow ...
 */
#ifndef GRADSCALE_EXPONENTS_H
#define GRADSCALE_EXPONENTS_H

#include "gradscale/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

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
GS_API gs_status gs_tensors_exponents(gs_context *ctx, gs_exponents *sum, const gs_tensor *list,
                                      size_t n, gs_stats *stats);

/* The same for f64, which that call does not take; on the caller's thread. bad_tensor becomes 0,
 * amax is rounded up to f32. stats may be NULL. */
GS_API void gs_exponents_add_f64(gs_exponents *sum, const double *src, size_t n, gs_stats *stats);

GS_API void gs_exponents_merge(gs_exponents *into, const gs_exponents *from);

/* What x * 2^k rounded to nearest even becomes, counted over the finite x. */
typedef struct gs_rounded {
    uint64_t zero;      /* was zero */
    uint64_t underflow; /* becomes zero, and was not */
    uint64_t subnormal; /* becomes a subnormal: loses bits, or all but has */
    uint64_t overflow;  /* becomes an infinity */
} gs_rounded;

enum { GS_MAX_LOG2_SCALE = 24 };

/* half: GS_F16 or GS_BF16; log2_scale: 0 to 24. */
GS_API gs_status gs_exponents_at(gs_rounded *out, const gs_exponents *x, gs_dtype half,
                                 int log2_scale, gs_error *error);

#ifdef __cplusplus
}
#endif

#endif
