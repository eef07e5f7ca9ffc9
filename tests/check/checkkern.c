/* checkkern: every variant of every kernel against the reference, bit for bit.
 *
 *     checkkern [--seed N] [-b] [SUBSTRING]
 *
 * Lengths 0 to 130 and random ones; every alignment of an element; arrays that begin just after or
 * end just before an unmapped page, NaNs around them otherwise; hostile values; in place and out of
 * place; every other byte of source and destination must stay. A new row of GS_KERNELS is tested
 * with no line written here. -b times the variants in the same binary. GS_LONG=1 in the environment
 * asks for ten times the trials. */
#include "checkkern.h"

#include "kernel/fpenv.h"

/* `kept` is a copy of the source. want and got are equal before a trial and must be after it. */
static unsigned char *room_src, *room_kept, *room_want, *room_got;

typedef struct span {
    size_t start, bytes;
} span;

/* An array and what is near it, within the room. */
static span around(size_t at, size_t bytes)
{
    const size_t start = at < MARGIN ? 0 : at - MARGIN;
    const size_t end = at + bytes + MARGIN;
    return (span){start, (end < ROOM ? end : ROOM) - start};
}

static void fill_source(size_t at, size_t n, gs_dtype type, fill_kind kind)
{
    const span s = around(at, n * size_of(type));
    memset(room_src + s.start, 0xFF, s.bytes);
    fill(room_src + at, n, type, kind);
    memcpy(room_kept + s.start, room_src + s.start, s.bytes);
}

static void fill_destinations(size_t at, size_t bytes)
{
    const span s = around(at, bytes);
    for (size_t i = 0; i < s.bytes; i++)
        room_want[s.start + i] = (unsigned char)draw();
    memcpy(room_got + s.start, room_want + s.start, s.bytes);
}

static bool same_rooms(void)
{
    return memcmp(room_want, room_got, ROOM) == 0 && memcmp(room_src, room_kept, ROOM) == 0;
}

/* ---- one trial per family ---- */

typedef struct row row;
typedef void any_fn(void);
typedef bool trial_fn(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind);

struct row {
    const char *name;
    trial_fn *trial;
    size_t offset; /* in gsi_pass */
    gs_dtype from, to;
};

typedef struct layout {
    void *want, *got;
    const void *want_src, *got_src; /* the same, or in place want and got */
} layout;

static layout lay_out(const row *r, size_t n, fill_kind kind, bool in_place)
{
    const size_t at = place(n * size_of(r->to), size_of(r->to));
    const size_t from = place(n * size_of(r->from), size_of(r->from));
    void *want = room_want + at, *got = room_got + at, *src = room_src + from;
    fill_source(from, n, r->from, kind);
    fill_destinations(at, n * size_of(r->to));
    if (!in_place)
        return (layout){want, got, src, src};
    memcpy(want, src, n * size_of(r->to));
    memcpy(got, src, n * size_of(r->to));
    return (layout){want, got, want, got};
}

static bool maybe_in_place(const row *r) { return size_of(r->from) == size_of(r->to) && below(2); }

/* Any finite number. */
static float any_factor(void)
{
    static const float factors[] = {1,         0x1p-16f,  0x1p+16f, 0x1p-24f, 0.1f,      -3,      0,
                                    0x1p-126f, 0x1p+100f, 0x1p-60f, 0x1p+60f, 0x1p-110f, -0x1p-9f};
    if (below(2))
        return gsi_float(any_code(GS_F32, below(2) ? TAME : FINITE));
    return factors[below(GSI_COUNT(factors))];
}

static bool trial_convert(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, maybe_in_place(r));
    const bool stream = below(2);
    const uint32_t want = ((gsi_convert_fn *)ref)(l.want, l.want_src, n, stream);
    return ((gsi_convert_fn *)fn)(l.got, l.got_src, n, stream) == want && same_rooms();
}

static bool trial_stochastic(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, maybe_in_place(r));
    const uint64_t key = (uint64_t)draw() << 32 | draw();
    const uint64_t first = below(2) ? below(1000) : ((uint64_t)1 << 36) - below(300);
    const uint32_t want = ((gsi_stochastic_fn *)ref)(l.want, l.want_src, n, key, first);
    return ((gsi_stochastic_fn *)fn)(l.got, l.got_src, n, key, first) == want && same_rooms();
}

static bool trial_check(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    const uint32_t want = ((gsi_check_fn *)ref)(l.want_src, n);
    return ((gsi_check_fn *)fn)(l.got_src, n) == want && same_rooms();
}

static bool trial_scan(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    double want, got;
    const uint32_t top = ((gsi_scan_fn *)ref)(&want, l.want_src, n);
    return ((gsi_scan_fn *)fn)(&got, l.got_src, n) == top &&
           memcmp(&want, &got, sizeof want) == 0 && same_rooms();
}

/* None, those of a format, or two magnitudes that may well be among the elements. */
static gsi_limits any_limits(fill_kind kind)
{
    const uint32_t a = gsi_amax_bits(gsi_magnitude(any_code(GS_F32, kind)) + 1);
    const uint32_t b = gsi_amax_bits(gsi_magnitude(any_code(GS_F32, kind)) + 1);
    switch (below(4)) {
    case 0:
        return (gsi_limits){0, 0, GSI_F32_INF};
    case 1:
        return a < b ? (gsi_limits){a, b, GSI_F32_INF} : (gsi_limits){b, a, GSI_F32_INF};
    default:
        return gsi_limits_of(below(2) ? GS_F16 : GS_BF16);
    }
}

static bool trial_count(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    const gsi_limits limits = any_limits(kind);
    const bool sums = below(2);
    double want = -1, got = -1;
    gsi_counts a, b;
    memset(&a, 0x55, sizeof a);
    memset(&b, 0xAA, sizeof b);
    ((gsi_count_fn *)ref)(&a, sums ? &want : NULL, l.want_src, n, limits);
    ((gsi_count_fn *)fn)(&b, sums ? &got : NULL, l.got_src, n, limits);
    return memcmp(&want, &got, sizeof want) == 0 && a.inf == b.inf && a.nan == b.nan &&
           a.zero == b.zero && a.subnormal == b.subnormal && a.underflow == b.underflow &&
           a.amax == b.amax && a.first_bad == b.first_bad && same_rooms();
}

static bool trial_scale(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, maybe_in_place(r));
    const float factor = any_factor();
    const bool stream = below(2);
    const uint32_t want = ((gsi_scale_fn *)ref)(l.want, l.want_src, n, factor, stream);
    return ((gsi_scale_fn *)fn)(l.got, l.got_src, n, factor, stream) == want && same_rooms();
}

static bool trial_unscale(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, maybe_in_place(r));
    const float factor = any_factor();
    const bool stream = below(2);
    gsi_counts want = {.first_bad = n}, got = want;
    double sum = -1, sum_got = -2;
    const uint32_t amax =
        ((gsi_unscale_fn *)ref)(&want, &sum, l.want, l.want_src, n, factor, stream);
    return ((gsi_unscale_fn *)fn)(&got, &sum_got, l.got, l.got_src, n, factor, stream) == amax &&
           memcmp(&sum, &sum_got, sizeof sum) == 0 && want.inf == got.inf && want.nan == got.nan &&
           want.amax == got.amax && want.first_bad == got.first_bad && same_rooms();
}

static bool trial_axpy(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const bool in_place = maybe_in_place(r);
    const layout l = lay_out(r, n, kind, in_place);
    float *y = l.want;
    if (!in_place)
        fill(y, n, GS_F32, kind);
    for (size_t i = 0; i < n; i++) /* which of two NaNs survives a sum is not defined */
        if (gsi_magnitude(gsi_bits(y[i])) > GSI_F32_INF)
            y[i] = 1;
    memcpy(l.got, l.want, n * sizeof *y);
    const float factor = any_factor();
    const uint32_t want = ((gsi_axpy_fn *)ref)(l.want, l.want_src, n, factor);
    return ((gsi_axpy_fn *)fn)(l.got, l.got_src, n, factor) == want && same_rooms();
}

static bool trial_exponents(const row *r, any_fn *ref, any_fn *fn, size_t n, fill_kind kind)
{
    const layout l = lay_out(r, n, kind, false);
    static gs_exponents want, got;
    memset(&want, (int)below(256), sizeof want); /* it adds to what is there */
    got = want;
    const uint32_t top = ((gsi_exponents_fn *)ref)(&want, l.want_src, n);
    return ((gsi_exponents_fn *)fn)(&got, l.got_src, n) == top &&
           memcmp(&want, &got, sizeof want) == 0 && same_rooms();
}

static const row rows[] = {
#define X(name, family, from, to) \
    {#name, trial_##family, offsetof(gsi_pass, GSI_SLOT_##family(from, to)), GS_##from, GS_##to},
    GS_KERNELS(X)
#undef X
};

static any_fn *pick(const gsi_pass *k, const row *r)
{
    any_fn *fn;
    memcpy(&fn, (const char *)k + r->offset, sizeof fn);
    return fn;
}

static bool say(bool ok, const row *r, const char *isa, const char *how)
{
    if (!ok)
        fprintf(stderr, "FAILED %s_%s: %s (checkkern --seed %llu %s)\n", r->name, isa, how,
                (unsigned long long)seed, r->name);
    return ok;
}

/* Up to 130 as it is; above, random ones and the neighbours of whole blocks. */
static size_t any_length(size_t n)
{
    if (n <= 130)
        return n;
    return n % 2 ? below(LONGEST) : GSI_BLOCK * (1 + below(LONGEST / GSI_BLOCK)) + below(3) - 1;
}

static bool check_lengths(const row *r, any_fn *fn, const char *isa)
{
    const int trials = 170 * FILLS * (thorough ? 10 : 1);
    for (int trial = 0; trial < trials; trial++) {
        const fill_kind kind = (fill_kind)(trial % FILLS);
        const size_t n = any_length((size_t)(trial / FILLS % 170));
        char how[64];
        snprintf(how, sizeof how, "n %zu, fill %d", n, (int)kind);
        if (!say(r->trial(r, pick(&reference.pass, r), fn, n, kind), r, isa, how))
            return false;
    }
    return true;
}

/* Conversions of all halves; test_halves has all floats. */
static bool check_codes(const row *r, any_fn *fn, const char *isa)
{
    enum { BLOCK = 4096 };
    gsi_convert_fn *const ref = (gsi_convert_fn *)pick(&reference.pass, r);
    bool same = true;
    if (r->trial != trial_convert || r->from == GS_F32)
        return true;
    for (uint32_t code = 0; code < 1 << 16 && same; code += BLOCK) {
        for (uint32_t i = 0; i < BLOCK; i++)
            put(room_src, i, code + i, r->from);
        const uint32_t want = ref(room_want, room_src, BLOCK, false);
        same = ((gsi_convert_fn *)fn)(room_got, room_src, BLOCK, false) == want &&
               memcmp(room_want, room_got, ROOM) == 0;
    }
    memcpy(room_kept, room_src, ROOM);
    return say(same, r, isa, "not every half comes out right");
}

/* The same with the caller's modes set: what is integer work must not notice, nor leave others. */
static bool check_modes(const row *r, any_fn *fn, const char *isa)
{
    if (r->trial == trial_scan || r->trial == trial_count || r->trial == trial_scale ||
        r->trial == trial_axpy || r->trial == trial_unscale)
        return true; /* f32 or f64 arithmetic: the passes set the mode for these */
#if defined(__x86_64__)
    enum { FLAGS = 0x3F }; /* exceptions seen */
    static const uint64_t modes[] = {0x9FC0, 0x1F80 | 0x2000, 0x1F80 | 0x4000, 0xFFC0};
#elif defined(__aarch64__)
    enum { FLAGS = 0 };
    enum { FZ16 = 1 << 19, UP = 1 << 22, DOWN = 2 << 22, FZ = 1 << 24, DN = 1 << 25 };
    static const uint64_t modes[] = {UP, DOWN, UP | DOWN, FZ | FZ16, DN, 1 << 26 /* AHP */};
#else
    enum { FLAGS = 0 };
    static const uint64_t modes[] = {0};
#endif
    const uint64_t saved = gsi_fpenv_read();
    bool same = true, left = true;
    for (size_t m = 0; m < GSI_COUNT(modes) && same && left; m++) {
        gsi_fpenv_write(modes[m]);
        const uint64_t before = gsi_fpenv_read();
        for (int trial = 0; trial < 50 && same; trial++)
            same = r->trial(r, pick(&reference.pass, r), fn, below(LONGEST),
                            (fill_kind)(trial % FILLS));
        left = ((gsi_fpenv_read() ^ before) & ~(uint64_t)FLAGS) == 0;
        gsi_fpenv_write(saved);
    }
    return say(same, r, isa, "depends on the floating-point mode") &&
           say(left, r, isa, "changes the floating-point mode");
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
        static gs_exponents sum;
        const double start = gs_clock();
        if (r->trial == trial_convert)
            ((gsi_convert_fn *)fn)(room_got, room_src, N, false);
        else if (r->trial == trial_stochastic)
            ((gsi_stochastic_fn *)fn)(room_got, room_src, N, 1, 0);
        else if (r->trial == trial_check)
            ((gsi_check_fn *)fn)(room_src, N);
        else if (r->trial == trial_scan)
            ((gsi_scan_fn *)fn)(&sumsq, room_src, N);
        else if (r->trial == trial_count)
            ((gsi_count_fn *)fn)(&counts, &sumsq, room_src, N, gsi_limits_of(GS_F16));
        else if (r->trial == trial_unscale)
            ((gsi_unscale_fn *)fn)(&counts, &sumsq, room_got, room_src, N, 0.5f, false);
        else if (r->trial == trial_scale)
            ((gsi_scale_fn *)fn)(room_got, room_src, N, 0.5f, false);
        else if (r->trial == trial_axpy)
            ((gsi_axpy_fn *)fn)(room_got, room_src, N, 0.5f);
        else
            ((gsi_exponents_fn *)fn)(&sum, room_src, N);
        const double took = gs_clock() - start;
        best = took < best ? took : best;
    }
    return best * 1e9 / N * 1000;
}

typedef struct counts {
    int passed, failed;
} counts;

static void check_table(const gsi_pass *k, const char *isa, const char *only, bool bench,
                        counts *sum)
{
    for (size_t i = 0; i < GSI_COUNT(rows); i++) {
        const row *r = &rows[i];
        any_fn *fn = pick(k, r), *ref = pick(&reference.pass, r);
        if (!strstr(r->name, only))
            continue;
        if (fn == ref) {
            printf("%s has no %s\n", isa, r->name);
            continue;
        }
        drawn = (uint64_t)i << 40; /* a row alone draws the same */
        memcpy(room_got, room_want, ROOM);
        memcpy(room_kept, room_src, ROOM);
        const bool ok =
            check_lengths(r, fn, isa) && check_codes(r, fn, isa) && check_modes(r, fn, isa);
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
    room_src = room_new(ROOM);
    room_kept = room_new(ROOM);
    room_want = room_new(ROOM);
    room_got = room_new(ROOM);

    const unsigned levels = cpu_levels();
    counts sum = {0};
    for (unsigned cpu = 1; cpu < 1u << GS_CPU_COUNT; cpu <<= 1) {
        if (!(levels & cpu))
            continue;
        gsi_kernels k;
        gsi_kernels_init(&k, cpu);
        check_table(&k.pass, gs_cpu_name(cpu), only, bench, &sum);
#if defined(__x86_64__)
        if (cpu == GS_CPU_AVX512) { /* the cores of the other maker */
            gsi_cpu_is_amd() ? gsi_pass_avx512(&k) : gsi_pass_avx512_amd(&k);
            check_table(&k.pass, "avx512 tuned otherwise", only, bench, &sum);
        }
#endif
    }
    printf("seed %llu\n", (unsigned long long)seed);
    return test_end(sum.passed, sum.failed);
}
