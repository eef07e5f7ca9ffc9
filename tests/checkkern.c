/* checkkern: every variant of every kernel against the reference, bit for bit.
 *
 *     checkkern [--seed N] [-b] [SUBSTRING]
 *
 * Lengths 0 to 130 and random ones; every alignment of an element; arrays that begin just after or
 * end just before an unmapped page; hostile values; in place and out of place; all bytes around the
 * destination must stay. A new row of GS_KERNELS is tested with no line written here. -b times the
 * variants in the same binary. */
#include "checkkern.h"

#include "kernel/fpenv.h"

static unsigned char *room_src, *room_want, *room_got;

/* Same random bytes in both rooms for destinations. */
static void fill_rooms(void)
{
    for (size_t i = 0; i < ROOM; i += 4) {
        const uint32_t u = draw();
        memcpy(room_want + i, &u, 4);
    }
    memcpy(room_got, room_want, ROOM);
}

/* ---- one trial a family ---- */

typedef struct row row;
typedef void any_fn(void);
typedef bool trial_fn(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind);

struct row {
    const char *name;
    trial_fn *trial;
    size_t offset; /* in gsi_kernels */
    gs_dtype from, to;
};

typedef struct layout {
    void *src, *want, *got; /* src is NULL in place */
} layout;

static layout lay_out(const row *r, size_t n, fill_kind kind, bool in_place)
{
    const size_t at = place(n * size_of(r->to), size_of(r->to));
    const size_t from = place(n * size_of(r->from), size_of(r->from));
    layout l = {room_src + from, room_want + at, room_got + at};
    fill(l.src, n, r->from, kind);
    fill_rooms();
    if (in_place) {
        memcpy(l.want, l.src, n * size_of(r->to));
        memcpy(l.got, l.src, n * size_of(r->to));
        l.src = NULL;
    }
    return l;
}

static bool same_rooms(void) { return memcmp(room_want, room_got, ROOM) == 0; }

static float any_factor(void)
{
    static const float factors[] = {1,  0x1p-16f, 0x1p+16f,  0x1p-24f, 0.1f,
                                    -3, 0,        0x1p-126f, 0x1p+100f};
    return factors[below(GSI_COUNT(factors))];
}

static bool trial_convert(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    const bool stream = below(2);
    const uint32_t want = ((gsi_convert_fn *)ref)(l.want, l.src, n, stream);
    return ((gsi_convert_fn *)fn)(l.got, l.src, n, stream) == want && same_rooms();
}

static bool trial_stochastic(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    const uint64_t key = (uint64_t)draw() << 32 | draw();
    const uint64_t first = below(2) ? below(1000) : ((uint64_t)1 << 36) - below(300);
    const uint32_t want = ((gsi_stochastic_fn *)ref)(l.want, l.src, n, key, first);
    return ((gsi_stochastic_fn *)fn)(l.got, l.src, n, key, first) == want && same_rooms();
}

static bool trial_check(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    return ((gsi_check_fn *)fn)(l.src, n) == ((gsi_check_fn *)ref)(l.src, n);
}

static bool trial_scan(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    double want, got;
    const uint32_t top = ((gsi_scan_fn *)ref)(&want, l.src, n);
    return ((gsi_scan_fn *)fn)(&got, l.src, n) == top && memcmp(&want, &got, sizeof want) == 0;
}

static bool trial_count(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    const gsi_limits none = {0, 0};
    const gsi_limits limits = below(4) == 0 ? none : gsi_limits_of(below(2) ? GS_F16 : GS_BF16);
    gsi_counts a, b;
    memset(&a, 0x55, sizeof a);
    memset(&b, 0xAA, sizeof b);
    ((gsi_count_fn *)ref)(&a, l.src, n, limits);
    ((gsi_count_fn *)fn)(&b, l.src, n, limits);
    return a.inf == b.inf && a.nan == b.nan && a.zero == b.zero && a.subnormal == b.subnormal &&
           a.flushed == b.flushed && a.amax == b.amax && a.first_bad == b.first_bad;
}

static bool trial_scale(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const bool in_place = r->from == r->to && below(2);
    const layout l = lay_out(r, n, kind, in_place);
    const float factor = any_factor();
    const bool stream = !in_place && below(2);
    const void *src = l.src;
    const uint32_t want = ((gsi_scale_fn *)ref)(l.want, src ? src : l.want, n, factor, stream);
    return ((gsi_scale_fn *)fn)(l.got, src ? src : l.got, n, factor, stream) == want &&
           same_rooms();
}

static bool trial_axpy(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    float *y = l.want;
    fill(y, n, GS_F32, kind);
    for (size_t i = 0; i < n; i++) /* which of two NaNs survives a sum is not defined */
        if (gsi_magnitude(gsi_bits(y[i])) > GSI_F32_INF)
            y[i] = 1;
    memcpy(l.got, l.want, n * sizeof *y);
    const float factor = any_factor();
    const uint32_t want = ((gsi_axpy_fn *)ref)(l.want, l.src, n, factor);
    return ((gsi_axpy_fn *)fn)(l.got, l.src, n, factor) == want && same_rooms();
}

static bool trial_exponents(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    uint64_t want[256], got[256];
    for (int e = 0; e < 256; e++)
        want[e] = got[e] = draw();
    ((gsi_exponents_fn *)ref)(want, l.src, n);
    ((gsi_exponents_fn *)fn)(got, l.src, n);
    return memcmp(want, got, sizeof want) == 0;
}

static const row rows[] = {
#define X(name, family, from, to) \
    {#name, trial_##family, offsetof(gsi_kernels, name), GS_##from, GS_##to},
    GS_KERNELS(X)
#undef X
};

static any_fn *pick(const gsi_kernels *k, const row *r)
{
    any_fn *fn;
    memcpy(&fn, (const char *)k + r->offset, sizeof fn);
    return fn;
}

static bool check_row(const row *r, any_fn *fn, const char *isa)
{
    for (int trial = 0; trial < 131 * FILLS + 200; trial++) {
        const fill_kind kind = (fill_kind)(trial % FILLS);
        const size_t n = trial < 131 * FILLS ? (size_t)(trial / FILLS) : below(LONGEST);
        const uint64_t start = drawn;
        if (!r->trial(r, pick(&gsi_ref, r), fn, n, kind)) {
            fprintf(stderr, "FAILED %s_%s: n %zu, fill %d, seed %llu, draw %llu\n", r->name, isa, n,
                    (int)kind, (unsigned long long)seed, (unsigned long long)start);
            return false;
        }
    }
    return true;
}

/* The same once more with the caller's modes set: what is integer work must not notice. */
static bool check_modes(const row *r, any_fn *fn)
{
    if (r->trial == trial_scan || r->trial == trial_count || r->trial == trial_scale ||
        r->trial == trial_axpy)
        return true; /* f32 or f64 arithmetic: the passes set the mode for these */
#if defined(__x86_64__)
    static const uint64_t modes[] = {0x9FC0, 0x1F80 | 0x2000, 0x1F80 | 0x4000, 0xFFC0};
#elif defined(__aarch64__)
    static const uint64_t modes[] = {1 << 24, 1 << 22, 2 << 22, 3 << 22};
#else
    static const uint64_t modes[] = {0};
#endif
    bool same = true;
    for (size_t m = 0; m < GSI_COUNT(modes) && same; m++)
        for (int trial = 0; trial < 50 && same; trial++) {
            const uint64_t saved = gsi_fpenv_enter();
            gsi_fpenv_write(modes[m]);
            same = r->trial(r, pick(&gsi_ref, r), fn, below(LONGEST), (fill_kind)(trial % FILLS));
            gsi_fpenv_write(saved);
        }
    if (!same)
        fprintf(stderr, "FAILED %s: depends on the floating-point mode\n", r->name);
    return same;
}

/* ---- timing ---- */

/* Nanoseconds for 1000 elements, best of many, on tame numbers in L1. */
static double time_row(const row *r, any_fn *fn)
{
    enum { N = 4096 };
    double best = 1e9;
    fill(room_src, N, r->from, TAME);
    for (int round = 0; round < 200; round++) {
        static gsi_counts counts;
        static double sumsq;
        static uint64_t bins[256];
        const double start = now();
        if (r->trial == trial_convert)
            ((gsi_convert_fn *)fn)(room_got, room_src, N, false);
        else if (r->trial == trial_stochastic)
            ((gsi_stochastic_fn *)fn)(room_got, room_src, N, 1, 0);
        else if (r->trial == trial_check)
            ((gsi_check_fn *)fn)(room_src, N);
        else if (r->trial == trial_scan)
            ((gsi_scan_fn *)fn)(&sumsq, room_src, N);
        else if (r->trial == trial_count)
            ((gsi_count_fn *)fn)(&counts, room_src, N, gsi_limits_of(GS_F16));
        else if (r->trial == trial_scale)
            ((gsi_scale_fn *)fn)(room_got, room_src, N, 0.5f, false);
        else if (r->trial == trial_axpy)
            ((gsi_axpy_fn *)fn)(room_got, room_src, N, 0.5f);
        else
            ((gsi_exponents_fn *)fn)(bins, room_src, N);
        const double took = now() - start;
        best = took < best ? took : best;
    }
    return best * 1e9 / N * 1000;
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
    room_src = new_room();
    room_want = new_room();
    room_got = new_room();

    int passed = 0, failed = 0;
    for (unsigned cpu = 1; cpu < 1u << GS_CPU_COUNT; cpu <<= 1) {
        if (!(gs_cpu_detect() & cpu))
            continue;
        gsi_kernels k;
        gsi_kernels_init(&k, cpu);
        for (size_t i = 0; i < GSI_COUNT(rows); i++) {
            const row *r = &rows[i];
            any_fn *fn = pick(&k, r), *ref = pick(&gsi_ref, r);
            if (fn == ref || !strstr(r->name, only))
                continue;
            const bool ok = check_row(r, fn, gs_cpu_name(cpu)) && check_modes(r, fn);
            passed += ok;
            failed += !ok;
            if (bench)
                printf("%-16s %-7s %8.1f ns/1000  %5.1fx the reference\n", r->name,
                       gs_cpu_name(cpu), time_row(r, fn), time_row(r, ref) / time_row(r, fn));
        }
    }
    printf("seed %llu\n%d passed, %d failed\n", (unsigned long long)seed, passed, failed);
    return failed != 0;
}
