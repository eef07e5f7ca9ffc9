/* checkrows: every variant of every row kernel against the reference, bit for bit.
 *
 *     checkrows [--seed N] [-b] [SUBSTRING]
 *
 * Rows of 0 to 130 elements and random ones; every type for every argument; every alignment of an
 * element; arrays that begin just after or end just before an unmapped page; hostile values; in
 * place and out of place; with counts and without; all bytes around the arrays must stay. A new
 * row of GS_ROW_KERNELS of a family of rows_families.h is tested with no line written. -b times
 * the variants on arrays in the second-level cache. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "levels.h"
#include "reference.h"
#include "rows_families.h"
#include "test.h"

#include "kernel/fpenv.h"

typedef struct row {
    const char *name;
    void (*setup)(void);
    uint32_t (*call)(any_fn *fn, int side);
    size_t offset; /* in gsi_rows */
} row;

static const row list[] = {
#define X(name, family) {#name, setup_##family, call_##family, offsetof(gsi_rows, name)},
    GS_ROW_KERNELS(X)
#undef X
};

static any_fn *pick(const gsi_rows *k, const row *r)
{
    any_fn *fn;
    memcpy(&fn, (const char *)k + r->offset, sizeof fn);
    return fn;
}

/* ---- checking ---- */

/* Makes all NaN of an array one: which it is, is not defined. */
static void one_nan(int k, int side)
{
    const gs_dtype type = t.a[k].type;
    for (size_t i = 0; i < t.a[k].n; i++) {
        if (type == GS_F32) {
            uint32_t *u = (uint32_t *)at(k, side) + i;
            *u = gsi_magnitude(*u) > GSI_F32_INF ? 0x7FC00000 : *u;
        } else {
            uint16_t *u = (uint16_t *)at(k, side) + i;
            const uint16_t inf = type == GS_F16 ? 0x7C00 : 0x7F80;
            *u = (*u & 0x7FFF) > inf ? 0x7FFF : *u;
        }
    }
}

static bool same_counts(void)
{
    const gsi_counts *a = &t.counts[WANT], *b = &t.counts[GOT];
    return a->inf == b->inf && a->nan == b->nan && a->zero == b->zero &&
           a->subnormal == b->subnormal && a->underflow == b->underflow && a->amax == b->amax &&
           a->first_bad == b->first_bad;
}

static bool same(void)
{
    for (int k = 0; k < ARRAYS; k++) {
        if (!t.used[k])
            continue;
        one_nan(k, WANT);
        one_nan(k, GOT);
        size_t first, end;
        span(k, &first, &end);
        if (memcmp(rooms[k][WANT] + first, rooms[k][GOT] + first, end - first) != 0)
            return false;
        for (size_t i = first; i < end; i++) {
            const bool inside = i >= t.a[k].at && i < t.a[k].at + t.a[k].n * size_of(t.a[k].type);
            if (!inside && rooms[k][WANT][i] != (unsigned char)(i * 37 + 11))
                return false;
        }
    }
    return same_counts();
}

static bool check_row(const row *r, any_fn *ref, any_fn *fn, const char *isa)
{
    for (int trial = 0; trial < 131 * FILLS + 300; trial++) {
        const uint64_t start = drawn;
        memset(&t, 0, sizeof t);
        t.kind = (fill_kind)(trial % FILLS);
        t.n = trial < 131 * FILLS ? (size_t)(trial / FILLS) : below(LONGEST);
        t.rows = below(8) == 0 ? below(70) : below(6);
        t.cols = trial < 131 * FILLS ? t.n : below(LONGEST) / (t.rows + 1);
        t.stride = t.cols + below(3) * below(9);
        t.counted = below(2);
        r->setup();
        const uint32_t want = r->call(ref, WANT), got = r->call(fn, GOT);
        if (want != got || !same()) {
            fprintf(stderr,
                    "FAILED %s_%s: n %zu, %zu x %zu, fill %d, seed %llu, draw %llu: %08x %08x\n",
                    r->name, isa, t.n, t.rows, t.cols, (int)t.kind, (unsigned long long)seed,
                    (unsigned long long)start, want, got);
            return false;
        }
    }
    return true;
}

/* ---- timing ---- */

/* Nanoseconds for 16 elements, best of many, all arrays of one type. */
static double time_row(const row *r, any_fn *fn, gs_dtype type)
{
    double best = 1e9;
    memset(&t, 0, sizeof t);
    t.fixed = true;
    t.fixed_type = type;
    t.rows = 128;
    t.cols = t.stride = 768;
    t.n = t.rows * t.cols;
    r->setup();
    const double until = gs_clock() + 0.02;
    for (double start = gs_clock(); start < until;) {
        r->call(fn, GOT);
        const double end = gs_clock();
        best = end - start < best ? end - start : best;
        start = end;
    }
    return best * 1e9 / (double)(t.rows * t.cols) * 16;
}

static void print_times(const row *r, any_fn *fn, const char *isa)
{
    printf("%-24s %-7s", r->name, isa);
    for (gs_dtype type = GS_F32; type <= GS_BF16; type++)
        printf("  %s %6.2f", gs_dtype_format(type)->name, time_row(r, fn, type));
    printf("  ns/16\n");
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
    for (size_t i = 0; i < GSI_COUNT(list); i++)
        named += strstr(list[i].name, only) != NULL;
    if (named == 0) {
        fprintf(stderr, "FAILED %s: no kernel has it in its name\n", only);
        return test_end(0, 1);
    }
    for (int k = 0; k < ARRAYS; k++)
        for (int side = 0; side < SIDES; side++)
            rooms[k][side] = room_new(ROOM);

    const uint64_t env = gsi_fpenv_enter();
    const unsigned levels = cpu_levels();
    int passed = 0, failed = 0;
    for (unsigned cpu = 0; cpu < 1u << GS_CPU_COUNT; cpu = cpu ? cpu << 1 : 1) {
        const char *isa = cpu ? gs_cpu_name(cpu) : "ref";
        gsi_kernels k;
        if (cpu && !(levels & cpu))
            continue;
        gsi_kernels_init(&k, cpu);
        for (size_t i = 0; i < GSI_COUNT(list); i++) {
            const row *r = &list[i];
            any_fn *fn = pick(&k.rows, r), *ref = pick(&reference.rows, r);
            if (!strstr(r->name, only) || (cpu && fn == ref))
                continue;
            /* the reference against itself: what it must not touch, and that it ends the same */
            const bool ok = check_row(r, ref, fn, isa);
            passed += ok;
            failed += !ok;
            if (bench)
                print_times(r, fn, isa);
        }
    }
    gsi_fpenv_leave(env);
    printf("seed %llu\n", (unsigned long long)seed);
    return test_end(passed, failed);
}
