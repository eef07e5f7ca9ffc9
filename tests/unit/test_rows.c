/* The row kernels against naive f64 code. The reference only: checkrows holds the variants to it.
 * Every bound is the rounding of the stored type, and UNITS of 2^-24 of the sum of the magnitudes
 * that went into the element. */
#include "levels.h"
#include "test.h"

#include "kernel/fpenv.h"
#include "reference.h"

#include <math.h>

/* ---- arrays of any type ---- */

enum { ROOM = 70000 };
enum { UNITS = 48 };

static uint64_t drawn;

static uint32_t draw(void) { return gs_random_u32(7, drawn++); }
static size_t below(size_t n) { return (size_t)((uint64_t)draw() * n >> 32); }
static float uniform(void) { return (float)draw() * 0x1p-31f - 1; } /* [-1, 1) */

static const gsi_rows *const k = &reference.rows;

typedef struct array {
    gs_dtype type;
    size_t n;
    union {
        float f[ROOM];
        uint16_t h[ROOM];
    } at;
} array;

static array slots[8];

static double get(const array *a, size_t i)
{
    return (double)(a->type == GS_F32   ? a->at.f[i]
                    : a->type == GS_F16 ? gs_f16_to_f32(a->at.h[i])
                                        : gs_bf16_to_f32(a->at.h[i]));
}

static void set(array *a, size_t i, float x)
{
    if (a->type == GS_F32)
        a->at.f[i] = x;
    else
        a->at.h[i] = a->type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
}

static gsi_in in(const array *a) { return (gsi_in){&a->at, a->type}; }
static gsi_out out(array *a) { return (gsi_out){&a->at, a->type, NULL}; }

static gs_dtype any_type(void) { return (gs_dtype[]){GS_F32, GS_F16, GS_BF16}[below(3)]; }

static array *filled(int slot, size_t n, gs_dtype type, float size)
{
    array *a = &slots[slot];
    a->type = type;
    a->n = n;
    for (size_t i = 0; i < n; i++)
        set(a, i, uniform() * size);
    return a;
}

static array *some(int slot, size_t n, float size) { return filled(slot, n, any_type(), size); }

/* Stored right: the rounding of the type, and UNITS 2^-24 of `size`, what the sum was made of. */
static bool close_to(const array *a, size_t i, double want, double size)
{
    const gs_format *f = gs_dtype_format(a->type);
    const double bound = f->epsilon / 2 * fabs(want) + f->min_subnormal + UNITS * 0x1p-24 * size;
    return fabs(get(a, i) - want) <= bound;
}

#define NEAR(a, i, want, size)                                                              \
    CHECK_MSG(close_to(a, i, want, size), "element %zu of %s: %.9g, not %.9g", (size_t)(i), \
              gs_dtype_format((a)->type)->name, get(a, i), (double)(want))

static uint32_t largest(const array *a)
{
    uint32_t top = 0;
    for (size_t i = 0; i < a->n; i++) {
        const uint32_t mag = gsi_magnitude(gsi_bits((float)get(a, i)));
        top = mag > top ? mag : top;
    }
    return gsi_amax_bits(top);
}

typedef struct shape {
    size_t rows, cols;
} shape;

static shape any_shape(void)
{
    static const size_t widths[] = {1, 10, 31, 32, 33, 64, 100, 384, 513, 768, 1000};
    const size_t cols = widths[below(GSI_COUNT(widths))];
    return (shape){1 + below(30000 / cols < 90 ? 30000 / cols : 90), cols};
}

enum { TRIALS = 60 };

/* ---- elementwise ---- */

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static void test_elementwise(void)
{
    for (int trial = 0; trial < TRIALS; trial++) {
        const size_t n = 1 + below(2000);
        const array *x = some(0, n, 8), *z = some(1, n, 8);
        array *y = some(2, n, 1);
        CHECK(k->copy(out(y), in(x), n) == largest(y));
        for (size_t i = 0; i < n; i++)
            NEAR(y, i, get(x, i), 0);
        CHECK(k->relu(out(y), in(x), n) == largest(y));
        for (size_t i = 0; i < n; i++)
            NEAR(y, i, fmax(get(x, i), 0), 0);
        CHECK(k->gelu(out(y), in(x), n) == largest(y));
        for (size_t i = 0; i < n; i++)
            NEAR(y, i, gelu(get(x, i)), fabs(get(x, i)));
        CHECK(k->gelu_erf(out(y), in(x), n) == largest(y));
        for (size_t i = 0; i < n; i++)
            NEAR(y, i, get(x, i) * erfc(-get(x, i) / sqrt(2)) / 2, fabs(get(x, i)));
        CHECK(k->relu_backward(out(y), in(z), in(x), n) == largest(y));
        for (size_t i = 0; i < n; i++)
            NEAR(y, i, get(x, i) > 0 ? get(z, i) : 0, 0);
        CHECK(k->gelu_backward(out(y), in(z), in(x), n) == largest(y));
        for (size_t i = 0; i < n; i++) {
            const double h = 1e-5, slope = (gelu(get(x, i) + h) - gelu(get(x, i) - h)) / (2 * h);
            NEAR(y, i, get(z, i) * slope, fabs(get(z, i)) * 2);
        }
        CHECK(k->add(out(y), in(x), in(z), n) == largest(y));
        for (size_t i = 0; i < n; i++)
            NEAR(y, i, get(x, i) + get(z, i), fabs(get(x, i)));
        CHECK(k->mul(out(y), in(x), in(z), n) == largest(y));
        for (size_t i = 0; i < n; i++)
            NEAR(y, i, get(x, i) * get(z, i), fabs(get(x, i) * get(z, i)));
        CHECK(k->difference(out(y), in(x), in(z), n, 0.25f) == largest(y));
        for (size_t i = 0; i < n; i++)
            NEAR(y, i, (get(x, i) - get(z, i)) / 4, fabs(get(x, i)));
        double error = 0;
        for (size_t i = 0; i < n; i++)
            error += (get(x, i) - get(z, i)) * (get(x, i) - get(z, i));
        const double got = (double)k->square_error(in(x), in(z), n);
        CHECK_MSG(fabs(got - error) <= UNITS * 0x1p-24 * error, "%g, not %g", got, error);
    }
}

static void test_broadcast(void)
{
    for (int trial = 0; trial < TRIALS; trial++) {
        const shape s = any_shape();
        const size_t n = s.rows * s.cols;
        const array *x = some(0, n, 4), *row = some(1, s.cols, 4), *z = some(2, n, 1);
        array *y = some(3, n, 1);
        CHECK(k->add_row(out(y), in(x), in(row), s.rows, s.cols) == largest(y));
        for (size_t i = 0; i < n; i++)
            NEAR(y, i, get(x, i) + get(row, i % s.cols), 8);
        CHECK(k->mul_row(out(y), in(x), in(row), s.rows, s.cols) == largest(y));
        for (size_t i = 0; i < n; i++)
            NEAR(y, i, get(x, i) * get(row, i % s.cols), 16);

        array *sums = filled(4, s.cols, GS_F32, 1), *pairs = filled(5, s.cols, GS_F32, 1);
        k->colsum(sums->at.f, in(x), (gsi_in){NULL, GS_F32}, s.rows, s.cols, s.cols);
        k->colsum(pairs->at.f, in(x), in(z), s.rows, s.cols, s.cols);
        for (size_t c = 0; c < s.cols; c++) {
            double sum = 0, pair = 0, size = 0;
            for (size_t r = 0; r < s.rows; r++) {
                const double a = get(x, r * s.cols + c), b = get(z, r * s.cols + c);
                sum += a;
                pair += a * b;
                size += fabs(a);
            }
            NEAR(sums, c, sum, size);
            NEAR(pairs, c, pair, size);
        }
        /* columns cut anywhere give the same bits */
        array *parts = filled(6, s.cols, GS_F32, 1);
        for (size_t c = 0; c < s.cols;) {
            const size_t width = 1 + below(s.cols - c);
            k->colsum(parts->at.f + c, gsi_in_at(in(x), c), (gsi_in){NULL, GS_F32}, s.rows, width,
                      s.cols);
            c += width;
        }
        CHECK(memcmp(parts->at.f, sums->at.f, s.cols * sizeof(float)) == 0);
    }
}

/* ---- normalisation ---- */

typedef struct moments {
    double mean, rstd;
} moments;

static moments moments_of(const array *x, size_t first, size_t step, size_t n, double eps)
{
    double sum = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        sum += get(x, first + i * step);
    for (size_t i = 0; i < n; i++)
        square += pow(get(x, first + i * step) - sum / (double)n, 2);
    return (moments){sum / (double)n, 1 / sqrt(square / (double)n + eps)};
}

static void test_layernorm(void)
{
    static float mean[ROOM], rstd[ROOM], dgamma[ROOM], dbeta[ROOM];
    for (int trial = 0; trial < TRIALS; trial++) {
        const shape s = any_shape();
        const size_t n = s.rows * s.cols;
        const float eps = 1e-2f; /* rows of one element too */
        array *x = some(0, n, 2);
        for (size_t i = 0; i < n; i++) /* off center, as real rows are */
            set(x, i, (float)get(x, i) + 1);
        const array *gamma = some(1, s.cols, 2), *beta = some(2, s.cols, 2), *dy = some(3, n, 1);
        array *y = some(4, n, 1), *dx = some(5, n, 1);
        CHECK(k->layernorm(out(y), mean, rstd, in(x), in(gamma), in(beta), s.rows, s.cols, eps) ==
              largest(y));
        memset(dgamma, 0, sizeof dgamma);
        memset(dbeta, 0, sizeof dbeta);
        CHECK(k->layernorm_backward(out(dx), dgamma, dbeta, in(dy), in(x), mean, rstd, in(gamma),
                                    s.rows, s.cols) == largest(dx));
        static double want_gamma[ROOM], want_beta[ROOM], size_gamma[ROOM];
        memset(want_gamma, 0, sizeof want_gamma);
        memset(want_beta, 0, sizeof want_beta);
        memset(size_gamma, 0, sizeof size_gamma);
        for (size_t r = 0; r < s.rows; r++) {
            const size_t at = r * s.cols;
            const moments m = moments_of(x, at, 1, s.cols, (double)eps);
            CHECK(fabs((double)mean[r] - m.mean) < 4e-6);
            CHECK(fabs((double)rstd[r] - m.rstd) < 1e-5 * m.rstd);
            double g = 0, gx = 0;
            for (size_t c = 0; c < s.cols; c++) {
                const double hat = (get(x, at + c) - m.mean) * m.rstd, d = get(dy, at + c);
                NEAR(y, at + c, hat * get(gamma, c) + get(beta, c), 4 * m.rstd + 4);
                g += d * get(gamma, c);
                gx += d * get(gamma, c) * hat;
                want_gamma[c] += d * hat;
                want_beta[c] += d;
                size_gamma[c] += 4 * m.rstd + 1;
            }
            for (size_t c = 0; c < s.cols; c++) {
                const double hat = (get(x, at + c) - m.mean) * m.rstd;
                const double want =
                    m.rstd * (get(dy, at + c) * get(gamma, c) - (g + hat * gx) / (double)s.cols);
                NEAR(dx, at + c, want, 16 * m.rstd + 4);
            }
        }
        for (size_t c = 0; c < s.cols; c++) {
            CHECK(fabs((double)dgamma[c] - want_gamma[c]) <= UNITS * 0x1p-24 * size_gamma[c]);
            CHECK(fabs((double)dbeta[c] - want_beta[c]) <= UNITS * 0x1p-24 * (double)s.rows);
        }
    }
}

static void test_batchnorm(void)
{
    static float mean[ROOM], m2[ROOM], rstd[ROOM], dgamma[ROOM], dbeta[ROOM];
    static double mean_all[ROOM], m2_all[ROOM];
    for (int trial = 0; trial < TRIALS; trial++) {
        const shape s = any_shape();
        const size_t n = s.rows * s.cols, chunk = 1 + below(s.rows);
        const double eps = 1e-2;
        array *x = some(0, n, 2);
        for (size_t i = 0; i < n; i++)
            set(x, i, (float)get(x, i) + 3);
        const array *gamma = some(1, s.cols, 2), *beta = some(2, s.cols, 2), *dy = some(3, n, 1);
        array *y = some(4, n, 1), *dx = some(5, n, 1);
        memset(mean_all, 0, sizeof mean_all);
        memset(m2_all, 0, sizeof m2_all);
        for (size_t r = 0; r < s.rows; r += chunk) { /* in chunks, joined in order */
            const size_t rows = s.rows - r < chunk ? s.rows - r : chunk;
            k->moments(mean, m2, gsi_in_at(in(x), r * s.cols), rows, s.cols);
            gsi_moments_merge(mean_all, m2_all, r, mean, m2, rows, s.cols);
        }
        for (size_t c = 0; c < s.cols; c++) {
            const moments m = moments_of(x, c, s.cols, s.rows, eps);
            mean[c] = (float)mean_all[c];
            rstd[c] = (float)(1 / sqrt(m2_all[c] / (double)s.rows + eps));
            CHECK(fabs((double)mean[c] - m.mean) < 4e-6);
            CHECK(fabs((double)rstd[c] - m.rstd) < 1e-5 * m.rstd);
        }
        CHECK(k->batchnorm(out(y), in(x), mean, rstd, in(gamma), in(beta), s.rows, s.cols) ==
              largest(y));
        k->batchnorm_sums(dgamma, dbeta, in(dy), in(x), mean, rstd, s.rows, s.cols);
        CHECK(k->batchnorm_backward(out(dx), in(dy), in(x), mean, rstd, in(gamma), dgamma, dbeta,
                                    s.rows, s.rows, s.cols) == largest(dx));
        for (size_t c = 0; c < s.cols; c++) {
            const moments m = moments_of(x, c, s.cols, s.rows, eps);
            double g = 0, gx = 0;
            for (size_t i = c; i < n; i += s.cols) {
                const double hat = (get(x, i) - m.mean) * m.rstd;
                NEAR(y, i, hat * get(gamma, c) + get(beta, c), 8 * m.rstd + 4);
                g += get(dy, i);
                gx += get(dy, i) * hat;
            }
            CHECK(fabs((double)dbeta[c] - g) <= UNITS * 0x1p-24 * (double)s.rows);
            CHECK(fabs((double)dgamma[c] - gx) <=
                  UNITS * 0x1p-24 * (8 * m.rstd + 1) * (double)s.rows);
            for (size_t i = c; i < n; i += s.cols) {
                const double hat = (get(x, i) - m.mean) * m.rstd;
                const double want =
                    m.rstd * get(gamma, c) * (get(dy, i) - (g + hat * gx) / (double)s.rows);
                NEAR(dx, i, want, 8 * m.rstd * m.rstd + 8);
            }
        }
    }
}

/* ---- softmax and losses ---- */

static void test_softmax(void)
{
    static float lse[ROOM];
    for (int trial = 0; trial < TRIALS; trial++) {
        const shape s = any_shape();
        const size_t n = s.rows * s.cols;
        const array *x = some(0, n, trial % 2 ? 4 : 60), *dy = some(1, n, 1);
        array *y = some(2, n, 1), *dx = some(3, n, 1), *p = some(4, n, 1);
        CHECK(k->softmax(out(y), in(x), s.rows, s.cols) == largest(y));
        k->logsumexp(lse, in(x), s.rows, s.cols);
        for (size_t r = 0; r < s.rows; r++) {
            double top = -HUGE_VAL, sum = 0, dot = 0;
            for (size_t c = 0; c < s.cols; c++)
                top = fmax(top, get(x, r * s.cols + c));
            for (size_t c = 0; c < s.cols; c++)
                sum += exp(get(x, r * s.cols + c) - top);
            CHECK(fabs((double)lse[r] - top - log(sum)) < 1e-6 * (2 + fabs(top)));
            for (size_t c = 0; c < s.cols; c++) {
                const size_t i = r * s.cols + c;
                const double want = exp(get(x, i) - top) / sum;
                NEAR(y, i, want, want * 2 + 0x1p-104); /* exp flushes below 2^-126 */
                set(p, i, (float)want);
            }
            for (size_t c = 0; c < s.cols; c++)
                dot += get(p, r * s.cols + c) * get(dy, r * s.cols + c);
            k->softmax_backward(gsi_out_at(out(dx), r * s.cols), gsi_in_at(in(dy), r * s.cols),
                                gsi_in_at(in(p), r * s.cols), 1, s.cols);
            for (size_t c = 0; c < s.cols; c++) {
                const size_t i = r * s.cols + c;
                NEAR(dx, i, get(p, i) * (get(dy, i) - dot), get(p, i) * 2);
            }
        }
        CHECK(k->softmax_backward(out(dx), in(dy), in(p), s.rows, s.cols) == largest(dx));
    }
}

/* What softmax makes of every row's past, to the bit. */
static void test_attend(void)
{
    static float scores[ROOM], dp[ROOM];
    const float scale = 0.3f;
    for (int trial = 0; trial < TRIALS; trial++) {
        const shape s = any_shape();
        const size_t n = s.rows * s.cols, first = below(3) * below(s.cols);
        const array *x = some(0, n, 20), *d = some(1, n, 1);
        array *p = some(2, n, 1), *want = some(3, n, 1), *scaled = some(4, n, 1);
        want->type = p->type;
        scaled->type = GS_F32;
        for (size_t i = 0; i < n; i++) {
            scores[i] = (float)get(x, i);
            dp[i] = (float)get(d, i);
            set(scaled, i, scores[i] * scale);
            set(want, i, 0);
        }
        for (size_t r = 0; r < s.rows; r++)
            k->softmax(gsi_out_at(out(want), r * s.cols), gsi_in_at(in(scaled), r * s.cols), 1,
                       first + r + 1 < s.cols ? first + r + 1 : s.cols);
        CHECK(k->attend(out(p), scores, s.rows, s.cols, first, scale) == largest(p));
        for (size_t i = 0; i < n; i++)
            CHECK_MSG(get(p, i) == get(want, i), "element %zu of %zu x %zu, first %zu: %g, not %g",
                      i, s.rows, s.cols, first, get(p, i), get(want, i));

        for (size_t i = 0; i < n; i++)
            set(scaled, i, 0);
        for (size_t r = 0; r < s.rows; r++)
            k->softmax_backward(gsi_out_at(out(scaled), r * s.cols),
                                (gsi_in){dp + r * s.cols, GS_F32}, gsi_in_at(in(p), r * s.cols), 1,
                                first + r + 1 < s.cols ? first + r + 1 : s.cols);
        for (size_t i = 0; i < n; i++)
            set(want, i, (float)get(scaled, i) * scale);
        k->attend_backward(out(p), dp, in(p), s.rows, s.cols, first, scale);
        for (size_t i = 0; i < n; i++)
            CHECK(get(p, i) == get(want, i));
    }
}

static void check_cross_entropy(shape s, float size)
{
    static float loss[ROOM], lse[ROOM];
    static int32_t target[ROOM];
    const size_t n = s.rows * s.cols;
    const float seed = 512;
    array *x = some(0, n, size), *d = some(1, n, 1);
    for (size_t r = 0; r < s.rows; r++)
        target[r] = below(8) == 0 ? -100 : (int32_t)below(s.cols);
    k->cross_entropy(loss, lse, in(x), target, s.rows, s.cols);
    CHECK(k->cross_entropy_backward(out(d), in(x), target, lse, seed, s.rows, s.cols) ==
          largest(d));
    for (size_t r = 0; r < s.rows; r++) {
        double top = -HUGE_VAL, sum = 0;
        for (size_t c = 0; c < s.cols; c++)
            top = fmax(top, get(x, r * s.cols + c));
        for (size_t c = 0; c < s.cols; c++)
            sum += exp(get(x, r * s.cols + c) - top);
        const bool ignored = target[r] < 0;
        const double want = ignored ? 0 : top + log(sum) - get(x, r * s.cols + (size_t)target[r]);
        CHECK_MSG(fabs((double)loss[r] - want) <= 1e-6 * (4 + 2 * (double)size), "%.9g, not %.9g",
                  (double)loss[r], want);
        for (size_t c = 0; c < s.cols; c++) {
            const double depth = top + log(sum) - get(x, r * s.cols + c), p = exp(-depth);
            const double hot = c == (size_t)target[r] ? 1 : 0;
            /* the rounding of lse and of the difference counts in e^(x - lse) */
            const double weight = p * (2 + (depth + fabs(top)) / 16) + hot + 0x1p-104;
            NEAR(d, r * s.cols + c, ignored ? 0 : (p - hot) * (double)seed, weight * (double)seed);
        }
    }
    /* in place over the logits: the same bits */
    d->type = x->type;
    k->cross_entropy_backward(out(d), in(x), target, lse, seed, s.rows, s.cols);
    k->cross_entropy_backward(out(x), in(x), target, lse, seed, s.rows, s.cols);
    CHECK(memcmp(&d->at, &x->at, n * gs_dtype_format(x->type)->bytes) == 0);
}

static void test_cross_entropy(void)
{
    for (int trial = 0; trial < TRIALS; trial++)
        check_cross_entropy(any_shape(), trial % 2 ? 4 : 40);
    check_cross_entropy((shape){1, 50304}, 10);
    check_cross_entropy((shape){1, 50257}, 10);
}

/* ---- embedding ---- */

static void test_embedding(void)
{
    static int32_t index[ROOM];
    for (int trial = 0; trial < TRIALS; trial++) {
        const size_t words = 1 + below(40), rows = 1 + below(100), cols = 1 + below(200);
        const array *table = some(0, words * cols, 2), *dy = some(1, rows * cols, 1);
        array *y = some(2, rows * cols, 1), *grad = filled(3, words * cols, GS_F32, 1);
        array *parts = &slots[4];
        *parts = *grad;
        for (size_t r = 0; r < rows; r++)
            index[r] = (int32_t)below(words);
        CHECK(k->gather(out(y), in(table), index, rows, cols) == largest(y));
        for (size_t i = 0; i < rows * cols; i++)
            NEAR(y, i, get(table, (size_t)index[i / cols] * cols + i % cols), 0);
        static float want[ROOM]; /* the order of the rows is the definition */
        memcpy(want, grad->at.f, sizeof want);
        for (size_t i = 0; i < rows * cols; i++)
            want[(size_t)index[i / cols] * cols + i % cols] += (float)get(dy, i);
        k->scatter(grad->at.f, in(dy), index, rows, cols, cols);
        CHECK(memcmp(want, grad->at.f, words * cols * sizeof(float)) == 0);
        for (size_t c = 0; c < cols;) { /* columns cut anywhere */
            const size_t width = 1 + below(cols - c);
            k->scatter(parts->at.f + c, gsi_in_at(in(dy), c), index, rows, width, cols);
            c += width;
        }
        CHECK(memcmp(want, parts->at.f, words * cols * sizeof(float)) == 0);
    }
    const int32_t targets[] = {0, 5, -1, 9, 10};
    CHECK(gsi_check_index(targets, 5, 10, true) == 4);
    CHECK(gsi_check_index(targets, 5, 10, false) == 2);
    CHECK(gsi_check_index(targets, 5, 11, true) == 5);
    CHECK(gsi_check_index(targets, 0, 0, true) == 0);
}

/* ---- dropout and fake quantisation ---- */

static void test_dropout(void)
{
    for (int trial = 0; trial < TRIALS; trial++) {
        const size_t n = 1 + below(30000);
        const float p = (float)below(11) / 10;
        const gsi_dropout how =
            gsi_dropout_of(p, draw(), (uint64_t)GSI_RANDOM_GROUP * below(1 << 20));
        const array *x = filled(0, n, any_type(), 1);
        array *y = some(1, n, 1);
        CHECK(k->dropout(out(y), in(x), n, &how) == largest(y));
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            const bool keep = gsi_random_u16(how.seed, how.first + i) >= how.threshold;
            NEAR(y, i, keep ? get(x, i) / (1 - (double)p) : 0, fabs(get(x, i)) / (1 - (double)p));
            kept += keep;
        }
        const double expected = (1 - (double)p) * (double)n;
        CHECK_MSG(fabs((double)kept - expected) < 5 * sqrt((double)n) + 1, "%zu of %zu kept, p %g",
                  kept, n, (double)p);
    }
    CHECK(gsi_dropout_of(0, 1, 0).threshold == 0 && gsi_dropout_of(1, 1, 0).threshold == 65536);
}

static void test_fake_quant(void)
{
    FILE *f = fopen("tests/traces/other/pytorch_quantization__fake_quant.csv", "r");
    CHECK(f != NULL);
    if (!f)
        return;
    char line[256];
    size_t cases = 0;
    CHECK(fgets(line, sizeof line, f) != NULL); /* names of columns */
    while (fgets(line, sizeof line, f)) {
        float v[9];
        char *p = line;
        for (int c = 0; c < 9; c++, p += *p == ',')
            v[c] = strtof(p, &p);
        const gsi_quant how = gsi_quant_of(v[0], (int)v[1], v[2] > 0, v[3] > 0);
        const float x = v[4], dy = 3;
        float y, dx;
        k->fake_quant((gsi_out){&y, GS_F32, NULL}, (gsi_in){&x, GS_F32}, 1, &how);
        k->fake_quant_backward((gsi_out){&dx, GS_F32, NULL}, (gsi_in){&dy, GS_F32},
                               (gsi_in){&x, GS_F32}, 1, &how);
        CHECK_MSG(how.divisor == v[5] && gsi_bits(y) == gsi_bits(v[7]) && dx == v[8],
                  "%a: %a, not %a; gradient %a, not %a", (double)x, (double)y, (double)v[7],
                  (double)dx, (double)v[8]);
        CHECK(y * how.divisor == v[6] || fabsf(y * how.divisor - v[6]) < 1e-4f);
        cases++;
    }
    fclose(f);
    CHECK_MSG(cases == 247, "%zu cases", cases);
}

/* ---- pooling ---- */

static void test_pooling(void)
{
    static uint8_t from[ROOM];
    for (int trial = 0; trial < 2 * TRIALS; trial++) {
        gsi_pool2d p = {.channels = 1 + below(70), .stride = 1 + below(3)};
        p.kh = 1 + below(3);
        p.kw = 1 + below(3);
        p.pad = below((p.kh < p.kw ? p.kh : p.kw) / 2 + 1);
        p.height = p.kh + below(5);
        p.width = p.kw + below(5);
        p.out_height = 1 + (p.height + 2 * p.pad - p.kh) / p.stride;
        p.out_width = 1 + (p.width + 2 * p.pad - p.kw) / p.stride;
        const size_t images = 1 + below(2), C = p.channels;
        const size_t n_in = images * p.height * p.width * C;
        const size_t n_out = images * p.out_height * p.out_width * C;
        array *x = some(0, n_in, 1), *dy = some(1, n_out, 1);
        for (size_t i = 0; i < n_in; i++) /* ties: few different values */
            set(x, i, (float)below(4));
        array *y = some(2, n_out, 1), *avg = some(3, n_out, 1);
        array *dx = some(4, n_in, 1), *davg = some(5, n_in, 1);
        const size_t lines = images * p.out_height, cut = below(lines + 1);
        const uint32_t top1 = k->maxpool(out(y), from, in(x), &p, 0, cut);
        const uint32_t top2 = k->maxpool(out(y), from, in(x), &p, cut, lines - cut);
        CHECK((top1 > top2 ? top1 : top2) == largest(y));
        CHECK(k->avgpool(out(avg), in(x), &p, 0, lines) == largest(avg));
        CHECK(k->maxpool_backward(out(dx), in(dy), from, &p, 0, images * p.height) == largest(dx));
        CHECK(k->avgpool_backward(out(davg), in(dy), &p, 0, images * p.height) == largest(davg));

        static double want_dx[ROOM], want_davg[ROOM];
        memset(want_dx, 0, sizeof want_dx);
        memset(want_davg, 0, sizeof want_davg);
        const double area = (double)(p.kh * p.kw);
        for (size_t o = 0; o < n_out; o++) {
            const size_t c = o % C, ow = o / C % p.out_width, line = o / C / p.out_width;
            const size_t image = line / p.out_height, oh = line % p.out_height;
            double top = -HUGE_VAL, sum = 0;
            size_t best = 0;
            for (size_t w = 0; w < p.kh * p.kw; w++) {
                const size_t row = oh * p.stride + w / p.kw - p.pad; /* wraps when outside */
                const size_t col = ow * p.stride + w % p.kw - p.pad;
                if (row >= p.height || col >= p.width)
                    continue;
                const size_t i = ((image * p.height + row) * p.width + col) * C + c;
                sum += get(x, i);
                want_davg[i] += get(dy, o) / area;
                if (get(x, i) > top) {
                    top = get(x, i);
                    best = i;
                }
            }
            want_dx[best] += get(dy, o);
            NEAR(y, o, top, 0);
            NEAR(avg, o, sum / area, 4);
        }
        for (size_t i = 0; i < n_in; i++) {
            NEAR(dx, i, want_dx[i], 9);
            NEAR(davg, i, want_davg[i], 9);
        }
    }
}

static void test_pooling_nan(void)
{
    const gsi_pool2d p = {2, 2, 1, 1, 1, 2, 2, 2, 0};
    const float nan = gsi_float(0x7FC00000), x[] = {1, nan, 5, 2};
    float y;
    uint8_t from = 9;
    CHECK(k->maxpool((gsi_out){&y, GS_F32, NULL}, &from, (gsi_in){x, GS_F32}, &p, 0, 1) ==
          GSI_F32_INF);
    CHECK(y != y && from == 1);
    const float low = -gsi_float(GSI_F32_INF), all_low[] = {low, low, low, low};
    k->maxpool((gsi_out){&y, GS_F32, NULL}, &from, (gsi_in){all_low, GS_F32}, &p, 0, 1);
    CHECK(y == low && from == 0);
}

/* ---- the order of sums, counts, conversions, hostile rows ---- */

/* rows.h, word by word: a sum over a row, and one over a column. */
static float row_order(const float *x, size_t n)
{
    float total[GSI_LANES] = {0}, part[GSI_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        part[i % GSI_LANES] += x[i];
        if (i % GSI_BLOCK == GSI_BLOCK - 1 || i == n - 1)
            for (size_t l = 0; l < GSI_LANES; l++) {
                total[l] += part[l];
                part[l] = 0;
            }
    }
    for (size_t half = GSI_LANES / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            total[l] += total[l + half];
    return total[0];
}

static float column_order(const float *x, size_t rows, size_t stride)
{
    float total = 0;
    for (size_t block = 0; block < rows; block += 64) {
        const size_t end = rows - block < 64 ? rows : block + 64;
        float part = 0;
        size_t r = block;
        for (; r + 4 <= end; r += 4)
            part +=
                (x[r * stride] + x[(r + 1) * stride]) + (x[(r + 2) * stride] + x[(r + 3) * stride]);
        for (; r < end; r++)
            part += x[r * stride];
        total += part;
    }
    return total;
}

static void test_order(void)
{
    static float squares[ROOM], sums[ROOM], mean[ROOM], m2[ROOM];
    for (int trial = 0; trial < TRIALS; trial++) {
        const size_t n = 1 + below(5000), cols = 1 + below(70), rows = 1 + below(400);
        array *x = filled(0, n, GS_F32, 1);
        const array *none = filled(1, n, GS_F32, 0);
        for (size_t i = 0; i < n; i++)
            squares[i] = x->at.f[i] * x->at.f[i];
        CHECK(gsi_bits(k->square_error(in(x), in(none), n)) == gsi_bits(row_order(squares, n)));

        x = filled(0, rows * cols, GS_F32, 1);
        k->colsum(sums, in(x), (gsi_in){NULL, GS_F32}, rows, cols, cols);
        k->moments(mean, m2, in(x), rows, cols);
        for (size_t c = 0; c < cols; c++) {
            CHECK(gsi_bits(sums[c]) == gsi_bits(column_order(x->at.f + c, rows, cols)));
            for (size_t r = 0; r < rows; r++) {
                const float off = x->at.f[r * cols + c] - mean[c];
                squares[r] = off * off;
            }
            CHECK(gsi_bits(m2[c]) == gsi_bits(column_order(squares, rows, 1)));
        }
    }
}

/* What is counted is what narrowing the f32 result does. */
static void test_counts(void)
{
    /* underflow, subnormal, overflow: f16, bf16, f32 */
    static const uint32_t limits[] = {0x33000001, 0x387FE000, 0x38800000, 0x477FF000, 0x00008001,
                                      0x007F8000, 0x7F7F8000, 0x00000001, 0x00800000, 0x7F7FFFFF};
    static float exact[ROOM];
    for (int trial = 0; trial < TRIALS; trial++) {
        const size_t n = 1 + below(3000);
        array *x = filled(0, n, GS_F32, 1), *z = filled(1, n, GS_F32, 1);
        for (size_t i = 0; i < n; i++)
            x->at.f[i] *= (float)ldexp(1, (int)below(60) - 40) * (float)(below(8) > 0);
        if (below(2))
            x->at.f[below(n)] = gsi_float(0x7FC00000);
        for (size_t i = 0; i < n; i++) /* around every limit */
            if (below(4) == 0) {
                x->at.f[i] = gsi_float(limits[below(GSI_COUNT(limits))] + (uint32_t)below(3) - 1);
                z->at.f[i] = below(2) ? 1 : -1;
            }
        array *y = some(2, n, 1);
        gsi_counts c = {.zero = 3,
                        .inf = 5,
                        .nan = 7,
                        .subnormal = 9,
                        .underflow = 11,
                        .amax = below(2) ? 0 : gsi_bits(60000),
                        .first_bad = 77},
                   want = c;
        k->mul((gsi_out){exact, GS_F32, NULL}, in(x), in(z), n);
        const uint32_t top = k->mul((gsi_out){&y->at, y->type, &c}, in(x), in(z), n);
        CHECK(top == largest(y));
        const gs_format *f = gs_dtype_format(y->type);
        for (size_t i = 0; i < n; i++) {
            const double stored = fabs(get(y, i));
            want.nan += stored != stored;
            want.inf += isinf(stored) != 0;
            want.zero += exact[i] == 0;
            want.underflow += exact[i] != 0 && stored == 0;
            want.subnormal += stored > 0 && stored < f->min_normal;
            if (stored <= f->max && gsi_bits((float)stored) > want.amax)
                want.amax = gsi_bits((float)stored);
        }
        CHECK(c.nan == want.nan && c.inf == want.inf && c.zero == want.zero);
        CHECK(c.underflow == want.underflow && c.subnormal == want.subnormal);
        CHECK(c.amax == want.amax && c.first_bad == 77);
    }
}

/* Loads and stores are those of num/convert.h, in every instruction set. */
static void test_conversions(void)
{
    static uint16_t codes[65536], back[65536];
    static float wide[65536];
    const int32_t row = 0;
    for (unsigned cpu = 0; cpu < 1u << GS_CPU_COUNT; cpu = cpu ? cpu << 1 : 1) {
        gsi_kernels table;
        if (cpu && !(cpu_levels() & cpu))
            continue;
        gsi_kernels_init(&table, cpu);
        for (gs_dtype type = GS_F16; type <= GS_BF16; type++) {
            const gsi_row format = type == GS_F16 ? GSI_ROW_F16 : GSI_ROW_BF16;
            for (size_t i = 0; i < 65536; i++)
                codes[i] = (uint16_t)i;
            table.rows.gather((gsi_out){wide, GS_F32, NULL}, (gsi_in){codes, type}, &row, 1, 65536);
            for (uint32_t i = 0; i < 65536; i++) {
                const uint32_t want = gsi_widen(i, format);
                CHECK(gsi_magnitude(want) > GSI_F32_INF ? wide[i] != wide[i]
                                                        : gsi_bits(wide[i]) == want);
            }
            for (int part = 0; part < 24; part++) {
                for (size_t i = 0; i < 65536; i++) /* around what rounds, and anywhere */
                    wide[i] = gsi_float(
                        part % 2 ? draw() : gsi_widen((uint32_t)i, format) + draw() % 0x4000);
                table.rows.gather((gsi_out){back, type, NULL}, (gsi_in){wide, GS_F32}, &row, 1,
                                  65536);
                size_t wrong = 0;
                for (size_t i = 0; i < 65536; i++)
                    wrong += back[i] != gsi_narrow(gsi_bits(wide[i]), format, GSI_NEAREST, false);
                CHECK_MSG(wrong == 0, "%s: %zu wrong", gs_dtype_format(type)->name, wrong);
            }
        }
    }
}

static void test_hostile_rows(void)
{
    const float inf = gsi_float(GSI_F32_INF), nan = gsi_float(0x7FC00000);
    const float rows[][4] = {{1, nan, 2, 3}, {1, inf, 2, 3}, {-inf, -inf, -inf, -inf}};
    for (size_t i = 0; i < GSI_COUNT(rows); i++) {
        float y[4];
        const uint32_t top =
            k->softmax((gsi_out){y, GS_F32, NULL}, (gsi_in){rows[i], GS_F32}, 1, 4);
        CHECK(top == GSI_F32_INF && y[0] != y[0] && y[3] != y[3]);
    }
    const float masked[] = {-inf, 1, -inf, 1};
    float y[4], loss, lse;
    k->softmax((gsi_out){y, GS_F32, NULL}, (gsi_in){masked, GS_F32}, 1, 4);
    CHECK(y[0] == 0 && y[1] == 0.5f && y[2] == 0 && y[3] == 0.5f);
    const int32_t target = 1;
    k->cross_entropy(&loss, &lse, (gsi_in){masked, GS_F32}, &target, 1, 4);
    CHECK(fabsf(loss - 0.6931472f) < 1e-6f);
    /* a loss that overflows the half it is stored in is found by what backward returns */
    uint16_t d[4];
    CHECK(k->cross_entropy_backward((gsi_out){d, GS_F16, NULL}, (gsi_in){masked, GS_F32}, &target,
                                    &lse, 0x1p+18f, 1, 4) == GSI_F32_INF);
    CHECK(k->cross_entropy_backward((gsi_out){d, GS_BF16, NULL}, (gsi_in){masked, GS_F32}, &target,
                                    &lse, 0x1p+18f, 1, 4) == gsi_bits(0x1p+17f));
}

TESTS({"elementwise", test_elementwise}, {"broadcast", test_broadcast},
      {"layernorm", test_layernorm}, {"batchnorm", test_batchnorm}, {"softmax", test_softmax},
      {"attend", test_attend}, {"cross_entropy", test_cross_entropy}, {"embedding", test_embedding},
      {"dropout", test_dropout}, {"fake_quant", test_fake_quant}, {"pooling", test_pooling},
      {"pooling_nan", test_pooling_nan}, {"order", test_order}, {"counts", test_counts},
      {"conversions", test_conversions}, {"hostile_rows", test_hostile_rows})
