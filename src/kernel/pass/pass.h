/* The kernels of passes over lists of tensors: one list of them, and their table by data type. */
#ifndef GSI_KERNEL_PASS_H
#define GSI_KERNEL_PASS_H

#include "kernel/kernel.h"

typedef uint32_t gsi_convert_fn(void *dst, const void *src, size_t n, bool stream);
typedef uint32_t gsi_stochastic_fn(void *dst, const void *src, size_t n, uint64_t seed,
                                   uint64_t first); /* src[0] is element `first` of the stream */
typedef uint32_t gsi_check_fn(const void *src, size_t n);
typedef uint32_t gsi_scan_fn(double *sumsq, const void *src, size_t n);
/* sumsq not NULL: scans as well, in the same pass over memory. */
typedef void gsi_count_fn(gsi_counts *out, double *sumsq, const void *src, size_t n,
                          gsi_limits limits);
typedef uint32_t gsi_scale_fn(void *dst, const void *src, size_t n, float factor, bool stream);
/* Scale and scan in one pass over memory: amax and sum of squares are those of src, and so is what
 * bad gets, if not all of src is finite: inf, nan, first_bad and the amax of the rest; it is zero
 * before. Block after block of GSI_BLOCK is scanned, then written, so that dst may be src. */
typedef uint32_t gsi_unscale_fn(gsi_counts *bad, double *sumsq, void *dst, const void *src,
                                size_t n, float factor, bool stream);
typedef uint32_t gsi_axpy_fn(void *dst, const void *src, size_t n, float factor);
typedef uint32_t gsi_exponents_fn(gs_exponents *sum, const void *src, size_t n);

/*    name              family      source  destination */
#define GS_KERNELS(X) GS_PASSES(X) GS_EXPONENTS(X) GS_DOUBLES(X)
#define GS_PASSES(X)                         \
    X(f32_to_f16, convert, F32, F16)         \
    X(f32_to_bf16, convert, F32, BF16)       \
    X(f16_to_f32, convert, F16, F32)         \
    X(bf16_to_f32, convert, BF16, F32)       \
    X(f16_to_bf16, convert, F16, BF16)       \
    X(bf16_to_f16, convert, BF16, F16)       \
    X(f32_to_f16_sr, stochastic, F32, F16)   \
    X(f32_to_bf16_sr, stochastic, F32, BF16) \
    X(f16_to_bf16_sr, stochastic, F16, BF16) \
    X(bf16_to_f16_sr, stochastic, BF16, F16) \
    X(check_f32, check, F32, F32)            \
    X(check_f16, check, F16, F16)            \
    X(check_bf16, check, BF16, BF16)         \
    X(scan_f32, scan, F32, F32)              \
    X(scan_f16, scan, F16, F16)              \
    X(scan_bf16, scan, BF16, BF16)           \
    X(count_f32, count, F32, F32)            \
    X(count_f16, count, F16, F16)            \
    X(count_bf16, count, BF16, BF16)         \
    X(scale_f32, scale, F32, F32)            \
    X(scale_f16, scale, F16, F16)            \
    X(scale_bf16, scale, BF16, BF16)         \
    X(scale_f16_f32, scale, F16, F32)        \
    X(scale_bf16_f32, scale, BF16, F32)      \
    X(unscale_f32, unscale, F32, F32)        \
    X(unscale_f16, unscale, F16, F16)        \
    X(unscale_bf16, unscale, BF16, BF16)     \
    X(unscale_f16_f32, unscale, F16, F32)    \
    X(unscale_bf16_f32, unscale, BF16, F32)  \
    X(axpy_f32, axpy, F32, F32)              \
    X(axpy_f16, axpy, F16, F32)              \
    X(axpy_bf16, axpy, BF16, F32)
#define GS_EXPONENTS(X)                   \
    X(exponents_f32, exponents, F32, F32) \
    X(exponents_f16, exponents, F16, F16) \
    X(exponents_bf16, exponents, BF16, BF16)
#define GS_DOUBLES(X) /* in plain C alone */ \
    X(check_f64, check, F64, F64)            \
    X(scan_f64, scan, F64, F64)              \
    X(count_f64, count, F64, F64)            \
    X(scale_f64, scale, F64, F64)            \
    X(unscale_f64, unscale, F64, F64)

/* By source, or by destination and source; NULL: there is none. */
typedef struct gsi_pass {
    gsi_convert_fn *convert[GS_DTYPE_COUNT][GS_DTYPE_COUNT];
    gsi_stochastic_fn *stochastic[GS_DTYPE_COUNT][GS_DTYPE_COUNT];
    gsi_check_fn *check[GS_DTYPE_COUNT];
    gsi_scan_fn *scan[GS_DTYPE_COUNT];
    gsi_count_fn *count[GS_DTYPE_COUNT];
    gsi_scale_fn *scale[GS_DTYPE_COUNT][GS_DTYPE_COUNT];
    gsi_unscale_fn *unscale[GS_DTYPE_COUNT][GS_DTYPE_COUNT];
    gsi_axpy_fn *axpy[GS_DTYPE_COUNT];
    gsi_exponents_fn *exponents[GS_DTYPE_COUNT];
} gsi_pass;

/* Where a row of the list is in the table. */
#define GSI_SLOT_convert(from, to)    convert[GS_##to][GS_##from]
#define GSI_SLOT_stochastic(from, to) stochastic[GS_##to][GS_##from]
#define GSI_SLOT_check(from, to)      check[GS_##from]
#define GSI_SLOT_scan(from, to)       scan[GS_##from]
#define GSI_SLOT_count(from, to)      count[GS_##from]
#define GSI_SLOT_scale(from, to)      scale[GS_##to][GS_##from]
#define GSI_SLOT_unscale(from, to)    unscale[GS_##to][GS_##from]
#define GSI_SLOT_axpy(from, to)       axpy[GS_##from]
#define GSI_SLOT_exponents(from, to)  exponents[GS_##from]

/* Adds a part, from element `first` on, in which something is not finite. */
static inline void gsi_add_bad(gsi_counts *bad, const gsi_counts *part, size_t first)
{
    if (bad->inf + bad->nan == 0)
        bad->first_bad = first + part->first_bad;
    bad->amax = part->amax > bad->amax ? part->amax : bad->amax;
    bad->inf += part->inf;
    bad->nan += part->nan;
}

/* Kernels of a variant from the function of their family, which takes types as constants:
 *
 *     #define X(name, family, from, to) \
 *         GSI_MAKE_##family(static TARGET, name##_avx2, avx2_##family, GS_##from, GS_##to)
 *     GS_PASSES(X) */
#define GSI_MAKE_convert(as, name, family, from, to)                    \
    as uint32_t name(void *dst, const void *src, size_t n, bool stream) \
    {                                                                   \
        return family(dst, to, src, from, n, stream);                   \
    }
#define GSI_MAKE_stochastic(as, name, family, from, to)                                   \
    as uint32_t name(void *dst, const void *src, size_t n, uint64_t seed, uint64_t first) \
    {                                                                                     \
        return family(dst, to, src, from, n, seed, first);                                \
    }
#define GSI_MAKE_check(as, name, family, from, to) \
    as uint32_t name(const void *src, size_t n) { return family(src, n, from); }
#define GSI_MAKE_scan(as, name, family, from, to)              \
    as uint32_t name(double *sumsq, const void *src, size_t n) \
    {                                                          \
        return family(sumsq, src, n, from);                    \
    }
#define GSI_MAKE_count(as, name, family, from, to)                                             \
    as void name(gsi_counts *out, double *sumsq, const void *src, size_t n, gsi_limits limits) \
    {                                                                                          \
        family(out, sumsq, src, n, limits, from);                                              \
    }
#define GSI_MAKE_scale(as, name, family, from, to)                                    \
    as uint32_t name(void *dst, const void *src, size_t n, float factor, bool stream) \
    {                                                                                 \
        return family(dst, to, src, from, n, factor, stream);                         \
    }
#define GSI_MAKE_unscale(as, name, family, from, to)                                       \
    as uint32_t name(gsi_counts *bad, double *sumsq, void *dst, const void *src, size_t n, \
                     float factor, bool stream)                                            \
    {                                                                                      \
        return family(bad, sumsq, dst, to, src, from, n, factor, stream);                  \
    }
#define GSI_MAKE_axpy(as, name, family, from, to)                        \
    as uint32_t name(void *dst, const void *src, size_t n, float factor) \
    {                                                                    \
        return family(dst, src, from, n, factor);                        \
    }
#define GSI_MAKE_exponents(as, name, family, from, to)             \
    as uint32_t name(gs_exponents *sum, const void *src, size_t n) \
    {                                                              \
        return family(sum, src, n, from);                          \
    }

#endif
