/* checkoptim: every variant of every optimizer kernel against the reference, bit for bit.
 *
 *     checkoptim [--seed N] [-b] [SUBSTRING]
 *
 * As checkkern, with more arrays at once, each between unmapped pages. The reference runs with
 * subnormals kept, the variants with and without flushing, and the reference against itself too:
 * the rules of kernel/optim/optim.h say that no bit changes. Where the reference has a NaN, a
 * variant may have another. GS_LONG=1 asks for more trials. */
#include "checkkern.h"

#include "kernel/fpenv.h"
#include "kernel/optim/optim.h"

#include <float.h>
#include <math.h>

/* Tiny numbers, from subnormal to above the thresholds, besides the fills of checkkern. */
enum { TINY = FILLS, KINDS };

static uint32_t any_tiny(void) { return (draw() & 0x807FFFFF) | below(80) << 23; }

static void fill_any(void *data, size_t n, gs_dtype type, int kind)
{
    if (kind != TINY) {
        fill(data, n, type, (fill_kind)kind);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = any_tiny();
        if (type == GS_F32)
            ((uint32_t *)data)[i] = u;
        else if (type == GS_BF16)
            ((uint16_t *)data)[i] = (uint16_t)(u >> 16);
        else
            ((uint16_t *)data)[i] = (uint16_t)(draw() & 0x83FF);
    }
}

/* ---- the arrays ---- */

/* What a kernel may write: HALF_M and HALF_V are moments in half types, COLS is of f64. */
enum { WEIGHT, M, V, COPY, HALF_M, HALF_V, COLS, WRITTEN };
static const size_t sizes[WRITTEN] = {4, 4, 4, 2, 2, 2, 8};

static unsigned char *want[WRITTEN], *got[WRITTEN], *room_grad, *room_col;

typedef struct arrays {
    void *want[WRITTEN], *got[WRITTEN];
    void *grad;
    float *col;
} arrays;

/* Any mixture of fills, except where every array shares one: `kind`. */
static arrays lay_out(size_t n, gs_dtype type, gs_dtype half, int kind)
{
    arrays a;
    for (int k = 0; k < WRITTEN; k++) {
        const size_t offset = place(n * sizes[k], sizes[k]);
        const uint32_t pattern = draw();
        for (size_t i = 0; i < ROOM; i += 4) {
            const uint32_t u = pattern + (uint32_t)i * 0x9E3779B9;
            memcpy(want[k] + i, &u, 4);
        }
        a.want[k] = want[k] + offset;
        a.got[k] = got[k] + offset;
    }
    const size_t bytes = type == GS_F32 ? 4 : 2;
    a.grad = room_grad + place(n * bytes, bytes);
    a.col = (float *)(void *)(room_col + place(n * 4, 4));
    fill_any(a.grad, n, type, kind);
    fill_any(a.col, n, GS_F32, below(2) ? TAME : TINY);
    fill_any(a.want[WEIGHT], n, GS_F32, below(2) ? kind : (int)below(KINDS));
    fill_any(a.want[M], n, GS_F32, below(2) ? kind : (int)below(KINDS));
    fill_any(a.want[V], n, GS_F32, below(2) ? kind : (int)below(KINDS));
    fill_any(a.want[HALF_M], n, half, below(2) ? kind : (int)below(KINDS));
    fill_any(a.want[HALF_V], n, half, below(2) ? kind : (int)below(KINDS));
    for (size_t i = 0; i < n; i++) {
        ((uint32_t *)a.want[V])[i] &= 0x7FFFFFFF; /* no second moment is negative */
        ((uint16_t *)a.want[HALF_V])[i] &= 0x7FFF;
        a.col[i] = fabsf(a.col[i]) + 0x1p-95f; /* a reciprocal root is never tiny */
        ((double *)a.want[COLS])[i] = below(1000);
    }
    for (int k = 0; k < WRITTEN; k++)
        memcpy(got[k], want[k], ROOM);
    return a;
}

static bool nan_f32(uint32_t u) { return gsi_magnitude(u) > GSI_F32_INF; }

static bool nan_half(uint16_t u, gs_dtype type)
{
    return (u & 0x7FFF) > (type == GS_F16 ? 0x7C00 : 0x7F80);
}

/* Every byte of the rooms; a NaN for a NaN inside the arrays. */
static bool same(const arrays *a, size_t n, gs_dtype copy, gs_dtype half)
{
    for (size_t i = 0; i < n; i++) {
        for (int k = WEIGHT; k <= V; k++) {
            uint32_t *x = (uint32_t *)a->want[k] + i, *y = (uint32_t *)a->got[k] + i;
            if (nan_f32(*x) && nan_f32(*y))
                *y = *x;
        }
        for (int k = COPY; k <= HALF_V; k++) {
            uint16_t *x = (uint16_t *)a->want[k] + i, *y = (uint16_t *)a->got[k] + i;
            const gs_dtype type = k == COPY ? copy : half;
            if (nan_half(*x, type) && nan_half(*y, type))
                *y = *x;
        }
        double *c = (double *)a->want[COLS] + i, *d = (double *)a->got[COLS] + i;
        if (*c != *c && *d != *d)
            *d = *c;
    }
    for (int k = 0; k < WRITTEN; k++)
        if (memcmp(want[k], got[k], ROOM) != 0)
            return false;
    return true;
}

static bool same_double(double x, double y)
{
    return (x != x && y != y) || memcmp(&x, &y, sizeof x) == 0;
}

/* ---- settings ---- */

static float one_of(const float *list, size_t n) { return list[below((uint32_t)n)]; }
#define ONE_OF(...) one_of((const float[]){__VA_ARGS__}, GSI_COUNT(((const float[]){__VA_ARGS__})))

static gsi_sgd any_sgd(void)
{
    return (gsi_sgd){.unscale = ONE_OF(1, 0x1p-16f, 0.3f, 0x1p+28f, 0x1p-40f),
                     .limit = ONE_OF(INFINITY, INFINITY, FLT_MAX, 1, 1e-3f, 1e-30f),
                     .lr = ONE_OF(0.1f, 1e-3f, 1e-30f, 0, 1e6f),
                     .momentum = ONE_OF(0.9f, 0, 0.5f, 0.999f),
                     .gain = ONE_OF(1, 0.5f, 0.1f),
                     .l2 = ONE_OF(0, 0, 1e-2f, 1),
                     .nesterov = below(2)};
}

static gsi_adam any_adam(void)
{
    return (gsi_adam){.unscale = ONE_OF(1, 0x1p-16f, 0.3f, 0x1p+28f, 0x1p-40f),
                      .limit = ONE_OF(INFINITY, INFINITY, FLT_MAX, 1, 1e-3f, 1e-30f),
                      .beta1 = ONE_OF(0.9f, 0, 0.5f),
                      .rest1 = ONE_OF(0.1f, 1, 0.5f),
                      .beta2 = ONE_OF(0.999f, 0, 0.95f),
                      .rest2 = ONE_OF(1e-3f, 1, 0.05f),
                      .root = ONE_OF(1, 1.5f, 31.6f),
                      .unbias = ONE_OF(1, 10),
                      .eps = ONE_OF(1e-8f, 0, 1e-30f, 1),
                      .lr = ONE_OF(1e-3f, 0.1f, 1e-30f, 0, 1e6f),
                      .retain = ONE_OF(1, 0.99f, 0),
                      .l2 = ONE_OF(0, 0, 1e-2f, 1),
                      .rooted = below(4) == 0};
}

static gsi_factor any_factor(void)
{
    return (gsi_factor){.unscale = ONE_OF(1, 0x1p-16f, 0.3f, 0x1p+28f),
                        .limit = ONE_OF(INFINITY, 1, 1e-3f),
                        .eps = (double)ONE_OF(1e-30f, 0, 1e-3f),
                        .lr = ONE_OF(1e-3f, 0.1f, 1e-30f, 0),
                        .retain = ONE_OF(1, 0.99f)};
}

typedef struct places {
    gsi_slice want, got;
} places;

static places slices(const arrays *a, gs_dtype copy_type)
{
    const bool copy = below(3), m = below(4), stream = below(2);
    return (places){{a->want[WEIGHT], copy ? a->want[COPY] : NULL, copy_type, m ? a->want[M] : NULL,
                     a->want[V], a->grad, stream},
                    {a->got[WEIGHT], copy ? a->got[COPY] : NULL, copy_type, m ? a->got[M] : NULL,
                     a->got[V], a->grad, stream}};
}

/* ---- one trial per family: the reference with subnormals kept, the other as `flush` says ---- */

typedef struct row row;
typedef void any_fn(void);
typedef bool trial_fn(const row *r, any_fn *ref, any_fn *fn, size_t n, int kind, bool flush);

struct row {
    const char *name;
    trial_fn *trial;
    size_t offset; /* in gsi_optim_kernels */
    gs_dtype from, to;
};

static void set_flush(bool flush) { gsi_fpenv_write(flush ? GSI_FPENV_FLUSH : GSI_FPENV_DEFAULT); }

static bool trial_sgd(const row *r, any_fn *ref, any_fn *fn, size_t n, int kind, bool flush)
{
    const arrays a = lay_out(n, r->from, GS_F16, kind);
    const gs_dtype copy = below(2) ? GS_F16 : GS_BF16;
    const places p = slices(&a, copy);
    const gsi_sgd set = any_sgd();
    const uint32_t top = ((gsi_sgd_fn *)ref)(&p.want, n, &set);
    set_flush(flush);
    const uint32_t other = ((gsi_sgd_fn *)fn)(&p.got, n, &set);
    set_flush(false);
    return top == other && same(&a, n, copy, GS_F16);
}

static bool trial_adam(const row *r, any_fn *ref, any_fn *fn, size_t n, int kind, bool flush)
{
    const arrays a = lay_out(n, r->from, GS_F16, kind);
    const gs_dtype copy = below(2) ? GS_F16 : GS_BF16;
    places p = slices(&a, copy);
    p.want.m = a.want[M];
    p.got.m = a.got[M];
    const gsi_adam set = any_adam();
    const uint32_t top = ((gsi_adam_fn *)ref)(&p.want, n, &set);
    set_flush(flush);
    const uint32_t other = ((gsi_adam_fn *)fn)(&p.got, n, &set);
    set_flush(false);
    return top == other && same(&a, n, copy, GS_F16);
}

/* Whole groups; moments and their random bits anywhere in their weight. */
static bool trial_adam_half(const row *r, any_fn *ref, any_fn *fn, size_t n, int kind, bool flush)
{
    n -= n % GSI_RANDOM_GROUP;
    const arrays a = lay_out(n, r->from, r->to, kind);
    const gs_dtype copy = below(2) ? GS_F16 : GS_BF16;
    places p = slices(&a, copy);
    p.want.m = p.want.v = p.got.m = p.got.v = NULL;
    gsi_half_moments x = {.at = {a.want[HALF_M], a.want[HALF_V]},
                          .load = {1, 1},
                          .save = {1, 1},
                          .key = {draw(), (uint64_t)draw() << 32 | draw()},
                          .first = (uint64_t)draw() << below(20) << 7,
                          .top = {1, 2}};
    for (int k = 0; r->to == GS_F16 && k < 2; k++) {
        x.load[k] = ONE_OF(1, 0x1p-14f, 0x1p+20f, 0x1p-40f);
        x.save[k] = ONE_OF(1, 0x1p+13f, 0x1p-20f, 0x1p+40f);
    }
    gsi_half_moments y = x;
    y.at[0] = a.got[HALF_M];
    y.at[1] = a.got[HALF_V];
    const gsi_adam set = any_adam();
    const uint32_t top = ((gsi_adam_half_fn *)ref)(&p.want, &x, n, &set);
    set_flush(flush);
    const uint32_t other = ((gsi_adam_half_fn *)fn)(&p.got, &y, n, &set);
    set_flush(false);
    return top == other && memcmp(x.top, y.top, sizeof x.top) == 0 && same(&a, n, copy, r->to);
}

static bool trial_lamb(const row *r, any_fn *ref, any_fn *fn, size_t n, int kind, bool flush)
{
    const arrays a = lay_out(n, r->from, GS_F16, kind);
    places p = slices(&a, GS_F16);
    p.want.m = a.want[M];
    p.got.m = a.got[M];
    const gsi_adam set = any_adam();
    gsi_norms x, y;
    ((gsi_lamb_fn *)ref)(&x, &p.want, n, &set);
    set_flush(flush);
    ((gsi_lamb_fn *)fn)(&y, &p.got, n, &set);
    set_flush(false);
    return same_double(x.weight, y.weight) && same_double(x.direction, y.direction) &&
           same(&a, n, GS_F16, GS_F16);
}

static bool trial_lamb_step(const row *r, any_fn *ref, any_fn *fn, size_t n, int kind, bool flush)
{
    const arrays a = lay_out(n, r->from, GS_F16, kind);
    const gs_dtype copy = below(2) ? GS_F16 : GS_BF16;
    places p = slices(&a, copy);
    p.want.m = a.want[M];
    p.got.m = a.got[M];
    p.want.grad = p.got.grad = NULL;
    const gsi_adam set = any_adam();
    const float step = ONE_OF(1e-3f, 1, 1e-30f, 1e3f);
    const uint32_t top = ((gsi_lamb_step_fn *)ref)(&p.want, n, &set, step);
    set_flush(flush);
    const uint32_t other = ((gsi_lamb_step_fn *)fn)(&p.got, n, &set, step);
    set_flush(false);
    return top == other && same(&a, n, copy, GS_F16);
}

static bool trial_squares(const row *r, any_fn *ref, any_fn *fn, size_t n, int kind, bool flush)
{
    const arrays a = lay_out(n, r->from, GS_F16, kind);
    const gsi_factor set = any_factor();
    const double x = ((gsi_squares_fn *)ref)(a.want[COLS], a.grad, n, &set);
    set_flush(flush);
    const double y = ((gsi_squares_fn *)fn)(a.got[COLS], a.grad, n, &set);
    set_flush(false);
    return same_double(x, y) && same(&a, n, GS_F16, GS_F16);
}

static bool trial_factored(const row *r, any_fn *ref, any_fn *fn, size_t n, int kind, bool flush)
{
    const arrays a = lay_out(n, r->from, GS_F16, kind);
    const gsi_factor set = any_factor();
    const float by = ONE_OF(1, 1e-10f, 1e15f, 0.3f);
    const double x = ((gsi_factored_fn *)ref)(a.col, by, a.grad, n, &set);
    set_flush(flush);
    const double y = ((gsi_factored_fn *)fn)(a.col, by, a.grad, n, &set);
    set_flush(false);
    return same_double(x, y) && same(&a, n, GS_F16, GS_F16);
}

static bool trial_factor_step(const row *r, any_fn *ref, any_fn *fn, size_t n, int kind, bool flush)
{
    const arrays a = lay_out(n, r->from, GS_F16, kind);
    const gs_dtype copy = below(2) ? GS_F16 : GS_BF16;
    const places p = slices(&a, copy);
    const gsi_factor set = any_factor();
    const float by = ONE_OF(1, 1e-10f, 1e15f, 0.3f);
    const uint32_t top = ((gsi_factor_step_fn *)ref)(&p.want, a.col, by, n, &set);
    set_flush(flush);
    const uint32_t other = ((gsi_factor_step_fn *)fn)(&p.got, a.col, by, n, &set);
    set_flush(false);
    return top == other && same(&a, n, copy, GS_F16);
}

static bool trial_ema(const row *r, any_fn *ref, any_fn *fn, size_t n, int kind, bool flush)
{
    const arrays a = lay_out(n, r->from, GS_F16, kind);
    const float decay = ONE_OF(0.9999f, 0.5f, 0), rest = ONE_OF(1e-4f, 0.5f, 1);
    ((gsi_ema_fn *)ref)(a.want[M], a.want[WEIGHT], n, decay, rest);
    set_flush(flush);
    ((gsi_ema_fn *)fn)(a.got[M], a.got[WEIGHT], n, decay, rest);
    set_flush(false);
    return same(&a, n, GS_F16, GS_F16);
}

static const row rows[] = {
#define X(name, family, from, to)                                                                \
    {#name, trial_##family, offsetof(gsi_optim_kernels, GSI_SLOT_##family(from, to)), GS_##from, \
     GS_##to},
    GS_OPTIM_KERNELS(X)
#undef X
};

static any_fn *pick(const gsi_optim_kernels *k, const row *r)
{
    any_fn *fn;
    memcpy(&fn, (const char *)k + r->offset, sizeof fn);
    return fn;
}

static bool check_row(const row *r, any_fn *fn, const char *isa)
{
    const int trials = 131 * KINDS + (thorough ? 5000 : 200);
    for (int trial = 0; trial < trials; trial++) {
        const int kind = trial % KINDS;
        const size_t n = trial < 131 * KINDS ? (size_t)(trial / KINDS) : below(LONGEST);
        const uint64_t start = drawn;
        const bool flush = below(3) > 0;
        if (!r->trial(r, pick(&reference.optim, r), fn, n, kind, flush)) {
            fprintf(stderr, "FAILED %s_%s: n %zu, fill %d, %s, seed %llu, draw %llu\n", r->name,
                    isa, n, kind, flush ? "flushing" : "subnormals kept", (unsigned long long)seed,
                    (unsigned long long)start);
            return false;
        }
    }
    return true;
}

/* ---- timing: nanoseconds for 1000 elements, best of many, in L1 and L2 ---- */

static double time_row(const row *r, any_fn *fn)
{
    enum { N = 4096 };
    const gsi_sgd sgd = {1, INFINITY, 1e-3f, 0.9f, 1, 0, false};
    const gsi_adam adam = {.unscale = 1,
                           .limit = INFINITY,
                           .beta1 = 0.9f,
                           .rest1 = 0.1f,
                           .beta2 = 0.999f,
                           .rest2 = 1e-3f,
                           .root = 1,
                           .unbias = 1,
                           .eps = 1e-8f,
                           .lr = 1e-3f,
                           .retain = 1};
    const gsi_factor factor = {1, INFINITY, 1e-30, 1e-3f, 1};
    double best = 1e9;
    arrays a = lay_out(N, r->from, r->to == GS_F32 ? GS_F16 : r->to, TAME);
    const gsi_slice s = {a.got[WEIGHT], a.got[COPY], GS_F16, a.got[M], a.got[V], a.grad, false};
    gsi_half_moments half = {{a.got[HALF_M], a.got[HALF_V]}, {1, 1}, {1, 1}, {1, 2}, 0, {0}};
    set_flush(true);
    for (int round = 0; round < 200; round++) {
        static gsi_norms norms;
        const double start = gs_clock();
        if (r->trial == trial_sgd)
            ((gsi_sgd_fn *)fn)(&s, N, &sgd);
        else if (r->trial == trial_adam)
            ((gsi_adam_fn *)fn)(&s, N, &adam);
        else if (r->trial == trial_adam_half)
            ((gsi_adam_half_fn *)fn)(&s, &half, N, &adam);
        else if (r->trial == trial_lamb)
            ((gsi_lamb_fn *)fn)(&norms, &s, N, &adam);
        else if (r->trial == trial_lamb_step)
            ((gsi_lamb_step_fn *)fn)(&s, N, &adam, 1e-3f);
        else if (r->trial == trial_squares)
            ((gsi_squares_fn *)fn)(a.got[COLS], a.grad, N, &factor);
        else if (r->trial == trial_factored)
            ((gsi_factored_fn *)fn)(a.col, 1, a.grad, N, &factor);
        else if (r->trial == trial_factor_step)
            ((gsi_factor_step_fn *)fn)(&s, a.col, 1, N, &factor);
        else
            ((gsi_ema_fn *)fn)(a.got[M], a.got[WEIGHT], N, 0.9f, 0.1f);
        const double took = gs_clock() - start;
        best = took < best ? took : best;
    }
    set_flush(false);
    return best * 1e9 / N * 1000;
}

typedef struct counts {
    int passed, failed;
} counts;

static void check_table(const gsi_optim_kernels *k, const char *isa, const char *only, bool bench,
                        counts *sum)
{
    for (size_t i = 0; i < GSI_COUNT(rows); i++) {
        const row *r = &rows[i];
        any_fn *fn = pick(k, r), *ref = pick(&reference.optim, r);
        if ((fn == ref && strcmp(isa, "ref") != 0) || !strstr(r->name, only))
            continue;
        const bool ok = check_row(r, fn, isa);
        sum->passed += ok;
        sum->failed += !ok;
        if (bench)
            printf("%-16s %-7s %8.1f ns/1000  %5.1fx the reference\n", r->name, isa,
                   time_row(r, fn), time_row(r, ref) / time_row(r, fn));
    }
}

int main(int argc, char **argv)
{
    bool bench = false;
    const char *only = "";
    for (int a = 1; a < argc; a++) {
        if (strcmp(argv[a], "-b") == 0)
            bench = true;
        else if (strcmp(argv[a], "--seed") == 0 && a + 1 < argc)
            seed = strtoull(argv[++a], NULL, 0);
        else
            only = argv[a];
    }
    size_t named = 0;
    for (size_t i = 0; i < GSI_COUNT(rows); i++)
        named += strstr(rows[i].name, only) != NULL;
    if (named == 0) {
        fprintf(stderr, "FAILED %s: no kernel has it in its name\n", only);
        return test_end(0, 1);
    }
    thorough = test_long();
    for (int k = 0; k < WRITTEN; k++) {
        want[k] = room_new(ROOM);
        got[k] = room_new(ROOM);
    }
    room_grad = room_new(ROOM);
    room_col = room_new(ROOM);

    const unsigned levels = cpu_levels();
    counts sum = {0};
    for (unsigned cpu = 0; cpu < 1u << GS_CPU_COUNT; cpu = cpu ? cpu << 1 : 1) {
        if ((levels & cpu) != cpu)
            continue;
        gsi_kernels k;
        gsi_kernels_init(&k, cpu);
        check_table(&k.optim, cpu ? gs_cpu_name(cpu) : "ref", only, bench, &sum);
#if defined(__x86_64__)
        if (cpu == GS_CPU_AVX512) { /* the cores of the other maker */
            gsi_cpu_is_amd() ? gsi_optim_avx512(&k) : gsi_optim_avx512_amd(&k);
            check_table(&k.optim, "avx512 tuned otherwise", only, bench, &sum);
        }
#endif
    }
    printf("seed %llu\n", (unsigned long long)seed);
    return test_end(sum.passed, sum.failed);
}
