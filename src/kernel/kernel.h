/* The kernels: pure functions on arrays, one list of them, and the table a context holds.
 *
 * Contract of every kernel:
 * - n may be 0; pointers are aligned to their element size and to nothing more; bytes outside
 *   [0, n) are neither written nor needed.
 * - dst is src itself or does not overlap it.
 * - A kernel that writes returns the largest magnitude it wrote, one that reads the largest it
 *   read, as the bits of an f32, and GSI_F32_INF if there was an Inf or a NaN. This is how every
 *   pass checks for free.
 * - `stream`: the destination is larger than the caches: bypass them. Ignored in place.
 * - All variants return and write the same bits as the reference in ref.c. */
#ifndef GSI_KERNEL_H
#define GSI_KERNEL_H

#include "gradscale/kernel.h"
#include "num/convert.h"

/* Counts what full scans count. */
typedef struct gsi_counts {
    uint64_t inf, nan, zero, subnormal, flushed;
    uint32_t amax;    /* bits, finite elements */
    size_t first_bad; /* n if none */
} gsi_counts;

/* The magnitudes, as f32 bits, below which a value rounds to zero or to a subnormal of a format,
 * and from which on it rounds to Inf: 0 < flushed <= subnormal <= overflow <= GSI_F32_INF. Kernels
 * that count take flushed = subnormal = 0 too, to count neither. */
typedef struct gsi_limits {
    uint32_t flushed, subnormal; /* 0 < mag < flushed; flushed <= mag < subnormal */
    uint32_t overflow;
} gsi_limits;

typedef uint32_t gsi_convert_fn(void *dst, const void *src, size_t n, bool stream);
typedef uint32_t gsi_stochastic_fn(void *dst, const void *src, size_t n, uint64_t seed,
                                   uint64_t first); /* src[0] is element `first` of the stream */
typedef uint32_t gsi_check_fn(const void *src, size_t n);
typedef uint32_t gsi_scan_fn(double *sumsq, const void *src, size_t n);
typedef void gsi_count_fn(gsi_counts *out, const void *src, size_t n, gsi_limits limits);
typedef uint32_t gsi_scale_fn(void *dst, const void *src, size_t n, float factor, bool stream);
typedef uint32_t gsi_axpy_fn(void *dst, const void *src, size_t n, float factor);
typedef uint32_t gsi_exponents_fn(gs_exponents *sum, const void *src, size_t n);

/* Sums of squares. Elements are cut into blocks of GSI_BLOCK. In a block, element i goes to lane
 * i % GSI_LANES, and each lane adds its squares in f32, in order; the lanes of the block are then
 * added to f64 lanes. Where f32 could overflow, or lose more than the rounding does, because the
 * block's largest magnitude is outside [GSI_SUM_MIN, GSI_SUM_MAX], the squares are added to the
 * f64 lanes one by one. At the end lanes fold pairwise: l += l + 16, then + 8, + 4, + 2, + 1.
 * So no finite input overflows, the relative error is below 2^-20, and it runs at the speed of
 * memory: f64 throughout costs three times the instructions. */
enum { GSI_LANES = 32, GSI_BLOCK = 512 };
#define GSI_SUM_MIN 0x2B800000u /* 2^-40: a square below 2^-126 is then lost in rounding anyway */
#define GSI_SUM_MAX 0x5D800000u /* 2^60: 16 squares stay below 2^125 */

/* A block of zeros adds zeros either way; in f32 in a third of the time. */
static inline bool gsi_sums_in_f32(uint32_t top)
{
    return top == 0 || (top >= GSI_SUM_MIN && top <= GSI_SUM_MAX);
}

/*    name              family      source  destination */
#define GS_KERNELS(X) GS_PASSES(X) GS_EXPONENTS(X)
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
    X(axpy_f32, axpy, F32, F32)              \
    X(axpy_f16, axpy, F16, F32)              \
    X(axpy_bf16, axpy, BF16, F32)
#define GS_EXPONENTS(X)                   \
    X(exponents_f32, exponents, F32, F32) \
    X(exponents_f16, exponents, F16, F16) \
    X(exponents_bf16, exponents, BF16, BF16)

typedef struct gsi_kernels {
#define X(name, family, from, to) gsi_##family##_fn *name;
    GS_KERNELS(X)
#undef X
} gsi_kernels;

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
#define GSI_MAKE_count(as, name, family, from, to)                              \
    as void name(gsi_counts *out, const void *src, size_t n, gsi_limits limits) \
    {                                                                           \
        family(out, src, n, limits, from);                                      \
    }
#define GSI_MAKE_scale(as, name, family, from, to)                                    \
    as uint32_t name(void *dst, const void *src, size_t n, float factor, bool stream) \
    {                                                                                 \
        return family(dst, to, src, from, n, factor, stream);                         \
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

/* The reference: what a variant does not have, and what all are compared with. */
extern const gsi_kernels gsi_ref;

/* Starts from the reference, then overrides it up the ladder of the sets in `cpu`. */
void gsi_kernels_init(gsi_kernels *k, unsigned cpu);

/* Each overrides what it has; compiled to nothing on other architectures. */
void gsi_kernels_avx2(gsi_kernels *k);
void gsi_kernels_avx512(gsi_kernels *k);
void gsi_kernels_neon(gsi_kernels *k);
void gsi_exponents_avx2(gsi_kernels *k);
void gsi_exponents_avx512(gsi_kernels *k);

/* Rows of the table by data type; NULL where there is none. */
gsi_check_fn *gsi_check_for(const gsi_kernels *k, gs_dtype dtype);
gsi_scan_fn *gsi_scan_for(const gsi_kernels *k, gs_dtype dtype);
gsi_count_fn *gsi_count_for(const gsi_kernels *k, gs_dtype dtype);
gsi_exponents_fn *gsi_exponents_for(const gsi_kernels *k, gs_dtype dtype);
gsi_scale_fn *gsi_scale_for(const gsi_kernels *k, gs_dtype to, gs_dtype from);
gsi_axpy_fn *gsi_axpy_for(const gsi_kernels *k, gs_dtype from);
gsi_convert_fn *gsi_convert_for(const gsi_kernels *k, gs_dtype to, gs_dtype from);
gsi_stochastic_fn *gsi_stochastic_for(const gsi_kernels *k, gs_dtype to, gs_dtype from);

gsi_limits gsi_limits_of(gs_dtype type); /* f32, f16 or bf16 */

/* Pairwise fold of the lanes, shared by all variants; Inf if `top` says that not all was finite. */
double gsi_fold(double lanes[GSI_LANES], uint32_t top);

/* What a kernel returns for the largest magnitude it met. */
static inline uint32_t gsi_top(uint32_t magnitude)
{
    return magnitude < GSI_F32_INF ? magnitude : GSI_F32_INF;
}

#endif
