/* The optimizers' kernels: a span of one parameter, stepped in f32.
 *
 * What is tiny is zero, by rule, so that no subnormal number is ever computed with:
 *
 *   keep(x)    0 where |x| < 2^-95     everything stored, the unscaled gradient, and whatever is
 *                                      multiplied by a setting that may exceed 1
 *   term(x)    0 where |x| < 2^-125    the two products that make v: 2^-95 would cut it too early
 *
 * The passes run with flush-to-zero and subnormals-are-zero set, where an operation costs the same
 * whatever its operands are. That flushing is not the same everywhere (x86 decides after rounding,
 * Arm before), but it touches only results below 2^-125. Such a result is dropped by term(); or it
 * is one of two addends, and a sum is the other addend, if that reaches 2^-95, or is dropped by
 * keep(). So every instruction set gives the same bits, with flushing and without.
 *
 * The contract is that of kernel/kernel.h, NaN excepted: where the reference has one, so has every
 * variant, but the sign and payload are not defined. Kernels that write weights return the largest
 * magnitude of those, as bits, at most GSI_F32_INF. */
#ifndef GSI_KERNEL_OPTIM_H
#define GSI_KERNEL_OPTIM_H

#include "kernel/kernel.h"

/* Bits of the exponent: none of them is set where |x| < 2^-95, 2.5e-29, or < 2^-125, 2.4e-38. */
#define GSI_KEEP 0x70000000u
#define GSI_TERM 0x7F000000u

/* Where a span lies. All arrays have the same length. */
typedef struct gsi_slice {
    float *weight;
    uint16_t *copy; /* the weights, rounded to nearest; NULL: none */
    gs_dtype copy_type;
    float *m, *v;     /* SGD without momentum: m is NULL */
    const void *grad; /* scaled; its type is the kernel's */
    bool stream;      /* copy bypasses the caches */
} gsi_slice;

/* Every gradient becomes g = keep(clamp(grad * unscale, -limit, limit)) first. */
typedef struct gsi_sgd {
    float unscale; /* clip / scale, at most 2^28 */
    float limit;   /* clipping by value; infinite: none */
    float lr, momentum;
    float gain; /* 1 - dampening; 1 in the first step */
    float l2;
    bool nesterov;
} gsi_sgd;

typedef struct gsi_adam {
    float unscale, limit;
    float beta1, rest1; /* rest is 1 - beta, rounded once */
    float beta2, rest2;
    float root;   /* 1 / sqrt(1 - beta2^t) */
    float unbias; /* 1 / (1 - beta1^t); Adam has it in lr */
    float eps;
    float lr;
    float retain; /* what decoupled decay leaves of a weight, 1 - lr * decay */
    float l2;     /* Adam: decay added to the gradient. LAMB: to the direction */
    bool rooted;  /* v holds its square root, before and after */
} gsi_adam;

typedef struct gsi_factor {
    float unscale, limit;
    double eps; /* added to every square */
    float lr, retain;
} gsi_factor;

typedef uint32_t gsi_sgd_fn(const gsi_slice *s, size_t n, const gsi_sgd *set);
typedef uint32_t gsi_adam_fn(const gsi_slice *s, size_t n, const gsi_adam *set);

/* Adam with moments in half types, which are rounded stochastically, m and the root of v: in one
 * pass, for n a multiple of GSI_RANDOM_GROUP. The slice has no m and v. */
typedef struct gsi_half_moments {
    uint16_t *at[2];
    float load[2], save[2]; /* what they are multiplied by, to f32 and back; 1 for bf16 */
    uint64_t key[2];        /* of the random bits */
    uint64_t first;         /* their index; a multiple of GSI_RANDOM_GROUP */
    uint32_t top[2];        /* out: the largest magnitude stored, as bits, at most GSI_F32_INF */
} gsi_half_moments;
typedef uint32_t gsi_adam_half_fn(const gsi_slice *s, gsi_half_moments *h, size_t n,
                                  const gsi_adam *set);

/* LAMB in two passes: moments, and the norms its trust ratio needs; then the direction again, from
 * the moments, times `step`; the gradient is not read. */
typedef struct gsi_norms {
    double weight, direction; /* sums of squares */
} gsi_norms;
typedef void gsi_lamb_fn(gsi_norms *norms, const gsi_slice *s, size_t n, const gsi_adam *set);
typedef uint32_t gsi_lamb_step_fn(const gsi_slice *s, size_t n, const gsi_adam *set, float step);

/* Adafactor, a span of one row: cols[j] += g^2 + eps, and their sum is returned; then with
 * direction = keep(keep(g * row) * col[j]) its sum of squares; then the step. */
typedef double gsi_squares_fn(double *cols, const void *grad, size_t n, const gsi_factor *set);
typedef double gsi_factored_fn(const float *col, float row, const void *grad, size_t n,
                               const gsi_factor *set);
typedef uint32_t gsi_factor_step_fn(const gsi_slice *s, const float *col, float row, size_t n,
                                    const gsi_factor *set);

/* ema = keep(decay * ema + rest * weight) */
typedef void gsi_ema_fn(float *ema, const float *weight, size_t n, float decay, float rest);

/*    name               family       gradient  weight; of adam_half moments */
#define GS_OPTIM_KERNELS(X)                     \
    X(sgd_f32, sgd, F32, F32)                   \
    X(sgd_f16, sgd, F16, F32)                   \
    X(sgd_bf16, sgd, BF16, F32)                 \
    X(adam_f32, adam, F32, F32)                 \
    X(adam_f16, adam, F16, F32)                 \
    X(adam_bf16, adam, BF16, F32)               \
    X(adam_f32_f16, adam_half, F32, F16)        \
    X(adam_f16_f16, adam_half, F16, F16)        \
    X(adam_bf16_f16, adam_half, BF16, F16)      \
    X(adam_f32_bf16, adam_half, F32, BF16)      \
    X(adam_f16_bf16, adam_half, F16, BF16)      \
    X(adam_bf16_bf16, adam_half, BF16, BF16)    \
    X(lamb_f32, lamb, F32, F32)                 \
    X(lamb_f16, lamb, F16, F32)                 \
    X(lamb_bf16, lamb, BF16, F32)               \
    X(lamb_step, lamb_step, F32, F32)           \
    X(squares_f32, squares, F32, F32)           \
    X(squares_f16, squares, F16, F32)           \
    X(squares_bf16, squares, BF16, F32)         \
    X(factored_f32, factored, F32, F32)         \
    X(factored_f16, factored, F16, F32)         \
    X(factored_bf16, factored, BF16, F32)       \
    X(factor_step_f32, factor_step, F32, F32)   \
    X(factor_step_f16, factor_step, F16, F32)   \
    X(factor_step_bf16, factor_step, BF16, F32) \
    X(ema_f32, ema, F32, F32)

/* By the type of the gradient, where one is read, and then of the moments. */
typedef struct gsi_optim_kernels {
    gsi_sgd_fn *sgd[GSI_TYPES];
    gsi_adam_fn *adam[GSI_TYPES];
    gsi_adam_half_fn *adam_half[GSI_TYPES][GSI_TYPES];
    gsi_lamb_fn *lamb[GSI_TYPES];
    gsi_lamb_step_fn *lamb_step;
    gsi_squares_fn *squares[GSI_TYPES];
    gsi_factored_fn *factored[GSI_TYPES];
    gsi_factor_step_fn *factor_step[GSI_TYPES];
    gsi_ema_fn *ema;
} gsi_optim_kernels;

#define GSI_SLOT_sgd(from, to)         sgd[GS_##from]
#define GSI_SLOT_adam(from, to)        adam[GS_##from]
#define GSI_SLOT_adam_half(from, to)   adam_half[GS_##from][GS_##to]
#define GSI_SLOT_lamb(from, to)        lamb[GS_##from]
#define GSI_SLOT_lamb_step(from, to)   lamb_step
#define GSI_SLOT_squares(from, to)     squares[GS_##from]
#define GSI_SLOT_factored(from, to)    factored[GS_##from]
#define GSI_SLOT_factor_step(from, to) factor_step[GS_##from]
#define GSI_SLOT_ema(from, to)         ema

/* Kernels of a variant from the function of their family, as in kernel/pass/pass.h; lamb_step and
 * ema read no gradient. */
#define GSI_MAKE_sgd(as, name, family, grad, to)                       \
    as uint32_t name(const gsi_slice *s, size_t n, const gsi_sgd *set) \
    {                                                                  \
        return family(s, n, set, grad);                                \
    }
#define GSI_MAKE_adam(as, name, family, grad, to)                       \
    as uint32_t name(const gsi_slice *s, size_t n, const gsi_adam *set) \
    {                                                                   \
        return family(s, n, set, grad);                                 \
    }
#define GSI_MAKE_adam_half(as, name, family, grad, to)                                       \
    as uint32_t name(const gsi_slice *s, gsi_half_moments *h, size_t n, const gsi_adam *set) \
    {                                                                                        \
        return family(s, h, n, set, grad, to);                                               \
    }
#define GSI_MAKE_lamb(as, name, family, grad, to)                                     \
    as void name(gsi_norms *norms, const gsi_slice *s, size_t n, const gsi_adam *set) \
    {                                                                                 \
        family(norms, s, n, set, grad);                                               \
    }
#define GSI_MAKE_lamb_step(as, name, family, grad, to)                              \
    as uint32_t name(const gsi_slice *s, size_t n, const gsi_adam *set, float step) \
    {                                                                               \
        return family(s, n, set, step);                                             \
    }
#define GSI_MAKE_squares(as, name, family, grad, to)                               \
    as double name(double *cols, const void *src, size_t n, const gsi_factor *set) \
    {                                                                              \
        return family(cols, src, n, set, grad);                                    \
    }
#define GSI_MAKE_factored(as, name, family, grad, to)                                             \
    as double name(const float *col, float row, const void *src, size_t n, const gsi_factor *set) \
    {                                                                                             \
        return family(col, row, src, n, set, grad);                                               \
    }
#define GSI_MAKE_factor_step(as, name, family, grad, to)                        \
    as uint32_t name(const gsi_slice *s, const float *col, float row, size_t n, \
                     const gsi_factor *set)                                     \
    {                                                                           \
        return family(s, col, row, n, set, grad);                               \
    }
#define GSI_MAKE_ema(as, name, family, grad, to)                                     \
    as void name(float *ema, const float *weight, size_t n, float decay, float rest) \
    {                                                                                \
        family(ema, weight, n, decay, rest);                                         \
    }

#endif
