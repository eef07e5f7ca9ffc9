/* GEMM: every variant and every number of threads against the definition in plain loops, bit for
 * bit: all shapes up to 40 and random larger ones, all types, transposes, strides, bias, beta,
 * batches and im2col; hostile values; arrays that begin or end at an unmapped page; bytes between
 * rows untouched; counts. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "levels.h"
#include "pairs.h"
#include "test.h"

#include "kernel/fpenv.h"
#include "kernel/context.h"

#include <fenv.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- random numbers ---- */

static uint64_t state = 1;

static uint32_t draw(void)
{
    state = state * 6364136223846793005 + 1442695040888963407;
    return (uint32_t)(state >> 33 ^ state >> 21);
}

static size_t below(size_t n) { return draw() % n; }
static bool one_in(size_t n) { return below(n) == 0; }

/* ThreadSanitizer makes the plain loops thirty times slower and looks at threads only; an emulator
 * (RUN: tests/support/run.sh) is as slow, and runs a part of what the machine it runs on does. */
#if defined(__SANITIZE_THREAD__)
enum { CHECKED_THREADS = 1 };
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
enum { CHECKED_THREADS = 1 };
#else
enum { CHECKED_THREADS = 0 };
#endif
#else
enum { CHECKED_THREADS = 0 };
#endif

/* One case in how many is run. */
static size_t less(void)
{
    const char *run = getenv("RUN");
    return CHECKED_THREADS || (run != NULL && *run != '\0' && !test_long()) ? 20 : 1;
}

/* ---- arrays between unmapped pages ---- */

enum { ROOM = 1 << 25, ROOMS = 6 };
enum { A, B, C_WANT, C_GOT, BIAS, C_OLD };
static unsigned char *rooms[ROOMS];

static void open_rooms(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < ROOMS && !rooms[i]; i++) {
        unsigned char *p =
            mmap(NULL, ROOM + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || mprotect(p + page, ROOM, PROT_READ | PROT_WRITE) != 0) {
            perror("test_gemm: mmap");
            exit(1);
        }
        rooms[i] = p + page;
    }
}

static void *place(int room, size_t bytes, bool at_end)
{
    CHECK(bytes <= ROOM);
    return rooms[room] + (at_end ? ROOM - bytes : 0);
}

typedef enum values { MODEST, LARGE, HOSTILE, VALUE_KINDS } values;

static float draw_value(values kind)
{
    static const float odd[] = {0,          -0.0f,    INFINITY, -INFINITY, NAN,      65504,
                                -65504,     65520,    0x1p-24f, 0x1p-25f,  0x1p-14f, 0x1p-126f,
                                -0x1p-149f, 0x1p127f, 1,        -1};
    const float x = (float)((int)below(1 << 12) - (1 << 11)) * 0x1p-11f;
    if (kind == LARGE) /* f16 overflows and underflows, f32 does not */
        return ldexpf(x, (int)below(24) - 12);
    if (kind == HOSTILE && one_in(20))
        return odd[below(GSI_COUNT(odd))];
    return x;
}

static void put(void *data, gs_dtype type, size_t i, float x)
{
    if (type == GS_F32)
        ((float *)data)[i] = x;
    else
        ((uint16_t *)data)[i] = type == GS_F16 ? gs_f32_to_f16(x) : gs_f32_to_bf16(x);
}

static void fill(void *data, gs_dtype type, size_t n, values kind)
{
    for (size_t i = 0; i < n; i++)
        put(data, type, i, draw_value(kind));
}

/* ---- contexts: every instruction set, one to four threads ---- */

typedef struct machine {
    gs_context *ctx;
    unsigned cpu, threads;
} machine;

static machine machines[16];
static size_t machine_count;

static void open_machines(void)
{
    const unsigned have = gemm_levels();
    unsigned sets[GS_CPU_COUNT + 1] = {0}, n = 1;
    if (machine_count)
        return;
    open_rooms();
    for (unsigned flag = 1; flag < 1u << GS_CPU_COUNT; flag <<= 1)
        if (have & flag)
            sets[n++] = level_cpus(flag);
    for (unsigned i = 0; i < n; i++)
        for (unsigned threads = 1; threads <= 4; threads += i + 1 == n ? 1 : 2) {
            machine *x = &machines[machine_count++];
            const gs_config config = {
                .size = sizeof config, .threads = threads, .without_cpu = ~sets[i]};
            *x = (machine){.cpu = sets[i], .threads = threads};
            CHECK(gs_context_create(&x->ctx, &config, NULL) == GS_OK);
            CHECK((x->ctx->kernels.gemm[GS_BF16][GS_BF16]->cpu & sets[i]) || sets[i] == 0);
        }
    for (unsigned threads = 1; threads <= 2; threads++) { /* a unit for bf16, on any machine */
        machine *x = &machines[machine_count++];
        const gs_config config = {.size = sizeof config, .threads = threads, .without_cpu = ~0u};
        *x = (machine){.cpu = ~0u, .threads = threads};
        CHECK(gs_context_create(&x->ctx, &config, NULL) == GS_OK);
        pairs_use(x->ctx);
    }
}

/* ---- one product ---- */

static const gs_dtype types[] = {GS_F32, GS_F16, GS_BF16};
static gs_dtype draw_type(void) { return types[below(3)]; }

static size_t extent(size_t rows, size_t cols, size_t stride) { return (rows - 1) * stride + cols; }

typedef struct product {
    gs_gemm g;
    size_t c_bytes;
} product;

/* Lays the operand out in its room, with a stride of its own: at times one that keeps rows from
 * being read where they lie. */
static void lay_out(gs_matrix *x, int room, size_t rows, size_t cols, size_t batch, values kind)
{
    const size_t r = x->transposed ? cols : rows, c = x->transposed ? rows : cols;
    x->stride = c + (one_in(2) ? below(9) : one_in(16) && r < 1000 ? 600 : 0);
    const size_t one = r > 0 && c > 0 ? extent(r, c, x->stride) : 0;
    x->batch_stride = one_in(4) && batch > 1 ? 0 : one + below(3);
    const size_t n = (batch - 1) * x->batch_stride + one;
    void *data = place(room, n * gsi_size_of(x->dtype), one_in(2));
    fill(data, x->dtype, n, kind);
    x->data = data;
}

static product draw_product(size_t m, size_t n, size_t k, size_t batch, values kind)
{
    product p = {.g = {.m = m, .n = n, .k = k, .batch = batch}};
    gs_gemm *g = &p.g;
    g->a.dtype = draw_type();
    g->b.dtype = one_in(2) ? g->a.dtype : draw_type();
    g->c.dtype = draw_type();
    g->a.transposed = one_in(2);
    g->b.transposed = one_in(2);
    lay_out(&g->a, A, m, k, batch, kind);
    lay_out(&g->b, B, k, n, batch, kind);
    if (one_in(3)) {
        g->bias_dtype = draw_type();
        g->bias_per_row = one_in(2);
        const size_t length = g->bias_per_row ? m : n;
        void *bias = place(BIAS, length * gsi_size_of(g->bias_dtype), one_in(2));
        fill(bias, g->bias_dtype, length, kind);
        g->bias = bias;
    }
    static const float betas[] = {1, 0.5f, -1.25f};
    g->beta = one_in(2) ? 0 : betas[below(3)];

    const size_t size = gsi_size_of(g->c.dtype);
    if (batch > 1 && one_in(2)) { /* side by side */
        g->c.batch_stride = n + below(3);
        g->c.stride = batch * g->c.batch_stride + below(3);
        p.c_bytes = (extent(m, n, g->c.stride) + (batch - 1) * g->c.batch_stride) * size;
    } else {
        g->c.stride = n + (one_in(2) ? below(9) : 0);
        g->c.batch_stride = extent(m, n, g->c.stride) + below(3);
        p.c_bytes = ((batch - 1) * g->c.batch_stride + extent(m, n, g->c.stride)) * size;
    }
    return p;
}

static bool same_stats(const gs_stats *a, const gs_stats *b)
{
    return a->elements == b->elements && a->inf == b->inf && a->nan == b->nan &&
           a->zero == b->zero && a->subnormal == b->subnormal && a->underflow == b->underflow &&
           gsi_bits(a->amax) == gsi_bits(b->amax);
}

static void say_product(char text[200], const gs_gemm *g)
{
    snprintf(text, 200, "%zu x (%zu by %zu by %zu), %s%s %s%s -> %s, beta %g, bias %s", g->batch,
             g->m, g->n, g->k, gs_dtype_format(g->a.dtype)->name, g->a.transposed ? "'" : "",
             gs_dtype_format(g->b.dtype)->name, g->b.transposed ? "'" : "",
             gs_dtype_format(g->c.dtype)->name, (double)g->beta,
             !g->bias          ? "none"
             : g->bias_per_row ? "a row"
                               : "a column");
}

/* Runs the product on the machines [first, end) and compares all bytes of c, those between rows
 * too. */
static void check_product(product p, size_t first, size_t end)
{
    const bool at_end = one_in(2), counted = one_in(2);
    unsigned char *old = place(C_OLD, p.c_bytes, at_end), *want = place(C_WANT, p.c_bytes, at_end);
    unsigned char *got = place(C_GOT, p.c_bytes, at_end);
    const uint64_t seed = state;
    gs_stats want_stats, got_stats;
    char text[200];
    fill(old, p.g.c.dtype, p.c_bytes / gsi_size_of(p.g.c.dtype), HOSTILE);
    memcpy(want, old, p.c_bytes);
    gs_stats_init(&want_stats);
    p.g.c.data = want;
    p.g.stats = counted ? &want_stats : NULL;
    gsi_gemm_ref(&p.g);
    for (size_t i = first; i < end; i++) {
        memcpy(got, old, p.c_bytes);
        gs_stats_init(&got_stats);
        p.g.c.data = got;
        p.g.stats = counted ? &got_stats : NULL;
        const gs_status status = gs_gemm_run(machines[i].ctx, &p.g);
        say_product(text, &p.g);
        CHECK_MSG(status == GS_OK, "%s: %s", text, gs_context_error(machines[i].ctx)->text);
        CHECK_MSG(memcmp(want, got, p.c_bytes) == 0, "%s: wrong with cpu %u, %u threads, seed %llu",
                  text, machines[i].cpu, machines[i].threads, (unsigned long long)seed);
        CHECK_MSG(!counted || same_stats(&want_stats, &got_stats),
                  "%s: miscounted with cpu %u, %u threads, seed %llu", text, machines[i].cpu,
                  machines[i].threads, (unsigned long long)seed);
    }
}

/* On one machine, any. */
static void check_on_one(product p)
{
    const size_t i = below(machine_count);
    check_product(p, i, i + 1);
}

/* Every shape, where products are slow some of them; with GS_LONG=1 each on every machine. */
static void test_small(void)
{
    open_machines();
    for (size_t m = 1; m <= 40; m++)
        for (size_t n = 1; n <= 40; n++)
            for (size_t k = 1; k <= 40; k++) {
                if (below(less()) > 0)
                    continue;
                const product p = draw_product(m, n, k, 1, (values)below(VALUE_KINDS));
                if (test_long())
                    check_product(p, 0, machine_count);
                else
                    check_on_one(p);
            }
}

static void test_large(void)
{
    open_machines();
    for (size_t i = 0; i < (test_long() ? 2000 : 60) / less(); i++) {
        const size_t m = 1 + below(90), n = 1 + below(150), k = 1 + below(one_in(3) ? 2000 : 400);
        check_on_one(draw_product(m, n, k, 1, (values)below(VALUE_KINDS)));
    }
    /* several tiles, several blocks, few columns */
    check_product(draw_product(1100, 40, 40, 1, MODEST), 0, machine_count);
    check_product(draw_product(20, 900, 20, 1, LARGE), 0, machine_count);
    check_product(draw_product(600, 17, 385, 1, MODEST), 0, machine_count);
}

/* More blocks than a tile's rows have room for: the sums of a whole tile are kept. */
static void test_long_k(void)
{
    open_machines();
    for (size_t i = 0; i < 4 / (less() > 1 ? 4 : 1); i++) {
        const size_t m = 1 + below(60), n = 1 + below(70), k = 9000 + below(500);
        check_product(draw_product(m, n, k, 1, MODEST), 0, machine_count);
        check_product(draw_product(300, 33, 3 * GSI_KC + below(3), 1, LARGE), 0, machine_count);
    }
    for (size_t i = 0; i < 6; i++) { /* skinny, b of every type, both ways */
        product p;
        do {
            p = draw_product(1 + below(4), 30 + below(40), 21000 + below(500), 1, MODEST);
        } while (p.g.b.dtype != types[i / 2] || p.g.b.transposed != (i % 2 == 1));
        check_product(p, 0, machine_count);
    }
}

static void test_skinny(void)
{
    open_machines();
    for (size_t m = 1; m <= GSI_SKINNY_ROWS + 1; m++)
        for (size_t i = 0; i < machine_count; i++)
            check_product(draw_product(m, 1 + below(120), 1 + below(900), 1, MODEST), i, i + 1);
    for (size_t m = 1; m <= GSI_SKINNY_ROWS; m += 1 + m / 8) /* more than a tile is wide */
        check_product(draw_product(m, 2000 + below(3000), 1 + below(60), 1, MODEST), 0,
                      machine_count);
}

/* A c too small to be shared out: blocks of k are, in rounds. */
static void test_split(void)
{
    static const size_t sizes[][2] = {{1, 1}, {5, 9}, {14, 32}, {15, 33}, {40, 20}};
    open_machines();
    for (size_t i = 0; i < GSI_COUNT(sizes); i++) {
        const size_t k = (i % 2 ? 40u : 3u) * GSI_KC + below(3);
        check_product(draw_product(sizes[i][0], sizes[i][1], k, 1, (values)below(VALUE_KINDS)), 0,
                      machine_count);
    }
}

static void test_batch(void)
{
    open_machines();
    for (size_t i = 0; i < 150 / less(); i++)
        check_on_one(draw_product(1 + below(40), 1 + below(40), 1 + below(70), 2 + below(8),
                                  (values)below(VALUE_KINDS)));
}

/* Block boundaries of k, and no k at all. */
static void test_blocks(void)
{
    static const size_t ks[] = {0,          1,          GSI_KC - 1,     GSI_KC,
                                GSI_KC + 1, 2 * GSI_KC, 2 * GSI_KC + 1, 5 * GSI_KC - 1};
    open_machines();
    for (size_t i = 0; i < GSI_COUNT(ks); i++)
        check_product(draw_product(15, 33, ks[i], 1, MODEST), 0, machine_count);
    const gs_im2col nothing = {0}; /* of no k nothing is read, not even what a would be */
    product p = draw_product(15, 33, 0, 1, MODEST);
    p.g.a = (gs_matrix){.im2col = &nothing};
    check_product(p, 0, machine_count);
    gs_gemm none = {.m = 0, .n = 5, .k = 7, .batch = 1};
    CHECK(gs_gemm_run(machines[0].ctx, &none) == GS_OK);
    none.m = 5;
    none.n = 0;
    CHECK(gs_gemm_run(machines[0].ctx, &none) == GS_OK);
}

/* Sums at every type's limits, over several tiles: a is 0 and the bias is what is stored. */
static void test_limits(void)
{
    static const uint32_t limits[] = {0x33000001, 0x387FE000, 0x477FF000, 0x00008001, 0x007F8000,
                                      0x7F7F8000, 0x00000001, 0x00800000, 0x7F7FFFFF};
    open_machines();
    for (size_t i = 0; i < 9; i++) {
        product p = draw_product(i < 3 ? 3 : i < 6 ? 40 : 700, 1100, 1, 1, MODEST);
        p.c_bytes = extent(p.g.m, p.g.n, p.g.c.stride) * gsi_size_of(types[i % 3]);
        p.g.c.dtype = types[i % 3];
        p.g.beta = 0;
        const size_t zeros =
            extent(p.g.a.transposed ? 1 : p.g.m, p.g.a.transposed ? p.g.m : 1, p.g.a.stride);
        p.g.a.data = memset(place(A, zeros * gsi_size_of(p.g.a.dtype), true), 0,
                            zeros * gsi_size_of(p.g.a.dtype));
        float *bias = place(BIAS, p.g.n * sizeof *bias, true);
        for (size_t j = 0; j < p.g.n; j++)
            bias[j] = gsi_float(limits[below(GSI_COUNT(limits))] + (uint32_t)below(3) - 1);
        p.g.bias = bias;
        p.g.bias_dtype = GS_F32;
        p.g.bias_per_row = 0;
        for (int turn = 0; turn < 3; turn++) /* every other one is counted */
            check_product(p, 0, machine_count);
    }
}

/* The definition itself: a sum that shows its order, and fma. */
static void test_definition(void)
{
    float a[GSI_KC + 2] = {0}, b[GSI_KC + 2], c;
    open_machines();
    for (size_t k = 0; k < GSI_COUNT(b); k++)
        b[k] = 1;
    const gs_gemm g = {.m = 1,
                       .n = 1,
                       .k = GSI_COUNT(a),
                       .batch = 1,
                       .a = {.data = a, .stride = GSI_COUNT(a)},
                       .b = {.data = b, .stride = 1},
                       .c = {.data = &c, .stride = 1}};
    for (size_t i = 0; i < machine_count; i++) {
        a[0] = 0x1p24f; /* in the first block 1 is lost, in the second 1 + 1 is summed first */
        a[1] = 1;
        a[GSI_KC] = 1;
        a[GSI_KC + 1] = 1;
        CHECK(gs_gemm_run(machines[i].ctx, &g) == GS_OK);
        CHECK(c == 0x1p24f + 2);

        memset(a, 0, sizeof a); /* x * x - 1 is exact before it is rounded */
        a[0] = -1;
        a[1] = 1 + 0x1p-12f;
        b[1] = 1 + 0x1p-12f;
        CHECK(gs_gemm_run(machines[i].ctx, &g) == GS_OK);
        CHECK(c == 0x1p-11f + 0x1p-24f);
        b[1] = 1;

        a[0] = INFINITY; /* a NaN is canonical, whatever made it */
        a[1] = -INFINITY;
        CHECK(gs_gemm_run(machines[i].ctx, &g) == GS_OK);
        CHECK(gsi_bits(c) == 0x7FC00000);
    }
}

/* ---- convolution ---- */

typedef struct conv {
    size_t images, h, w, ci, co, kh, kw, stride, pad, yh, yw;
} conv;

/* Channels around whole vectors, too, and 8 taps: the most that are few. */
static conv draw_conv(void)
{
    static const size_t channels[] = {1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 65};
    const size_t most = one_in(4) ? 5 : 3;
    conv v = {.images = 1 + below(5), .h = 1 + below(11), .w = 1 + below(11)};
    v.ci = one_in(4) ? channels[below(GSI_COUNT(channels))] : 1 + below(7);
    v.co = one_in(4) ? channels[below(GSI_COUNT(channels))] : 1 + below(7);
    v.kh = 1 + below(most);
    v.kw = 1 + below(most);
    v.stride = 1 + below(4);
    v.pad = below(3);
    if (one_in(10)) {
        v.images = v.kh = v.kw = v.stride = 1;
        v.h = 2;
        v.w = 4;
        v.pad = 0;
    }
    v.h = gsi_max_size(v.h + 2 * v.pad, v.kh) - 2 * v.pad; /* it may be smaller than the filter */
    v.w = gsi_max_size(v.w + 2 * v.pad, v.kw) - 2 * v.pad;
    v.yh = (v.h + 2 * v.pad - v.kh) / v.stride + 1;
    v.yw = (v.w + 2 * v.pad - v.kw) / v.stride + 1;
    return v;
}

/* For every product of an element of x, of the filter and of y: visit(x index, w index, y index) */
typedef void visit_fn(double *x, double *w, double *y);

static void convolve(const conv *v, double *x, double *w, double *y, visit_fn *visit)
{
    for (size_t n = 0; n < v->images; n++)
        for (size_t i = 0; i < v->yh; i++)
            for (size_t j = 0; j < v->yw; j++)
                for (size_t ky = 0; ky < v->kh; ky++)
                    for (size_t kx = 0; kx < v->kw; kx++) {
                        const size_t iy = i * v->stride + ky, ix = j * v->stride + kx;
                        if (iy < v->pad || iy >= v->h + v->pad || ix < v->pad ||
                            ix >= v->w + v->pad)
                            continue;
                        for (size_t co = 0; co < v->co; co++)
                            for (size_t ci = 0; ci < v->ci; ci++)
                                visit(&x[((n * v->h + iy - v->pad) * v->w + ix - v->pad) * v->ci +
                                         ci],
                                      &w[((co * v->kh + ky) * v->kw + kx) * v->ci + ci],
                                      &y[((n * v->yh + i) * v->yw + j) * v->co + co]);
                    }
}

static void visit_y(double *x, double *w, double *y) { *y += *x * *w; }
static void visit_x(double *x, double *w, double *y) { *x += *y * *w; }
static void visit_w(double *x, double *w, double *y) { *w += *y * *x; }

static double *widened(const void *data, gs_dtype type, size_t n)
{
    double *out = calloc(n ? n : 1, sizeof *out);
    for (size_t i = 0; data && i < n; i++)
        out[i] = (double)(type == GS_F32   ? ((const float *)data)[i]
                          : type == GS_F16 ? gs_f16_to_f32(((const uint16_t *)data)[i])
                                           : gs_bf16_to_f32(((const uint16_t *)data)[i]));
    return out;
}

/* Bit for bit against the definition, and within rounding against direct convolution. */
static void check_conv_product(product p, const double *direct, size_t n)
{
    p.g.c.stride = p.g.n;
    p.c_bytes = n * sizeof(float);
    check_on_one(p);
    float *mine = calloc(n, sizeof *mine);
    p.g.c.data = mine;
    CHECK(gs_gemm_run(machines[below(machine_count)].ctx, &p.g) == GS_OK);
    for (size_t i = 0; i < n; i++)
        CHECK_MSG(fabs((double)mine[i] - direct[i]) < 1e-3, "element %zu: %g is not %g", i,
                  (double)mine[i], direct[i]);
    free(mine);
}

static void check_conv(void)
{
    const conv v = draw_conv();
    const size_t nx = v.images * v.h * v.w * v.ci, ny = v.images * v.yh * v.yw * v.co;
    const size_t taps = v.kh * v.kw, nw = v.co * taps * v.ci;
    const gs_dtype type = draw_type();
    const size_t size = gsi_size_of(type);
    void *x, *w, *y;
    double *dx, *dw, *dy;

    const gs_im2col of_x = {.h = v.h,
                            .w = v.w,
                            .c = v.ci,
                            .rows_h = v.yh,
                            .rows_w = v.yw,
                            .kh = v.kh,
                            .kw = v.kw,
                            .stride = v.stride,
                            .pad = v.pad};
    gs_im2col of_y = of_x;
    of_y.h = v.yh;
    of_y.w = v.yw;
    of_y.c = v.co;
    of_y.rows_h = v.h;
    of_y.rows_w = v.w;
    of_y.dgrad = 1;

    /* forward: im2col(x) w^T */
    fill(x = place(A, nx * size, one_in(2)), type, nx, MODEST);
    fill(w = place(B, nw * size, one_in(2)), type, nw, MODEST);
    product p = {.g = {.m = v.images * v.yh * v.yw, .n = v.co, .k = taps * v.ci, .batch = 1}};
    p.g.a = (gs_matrix){.data = x, .dtype = type, .im2col = &of_x};
    p.g.b = (gs_matrix){.data = w, .dtype = type, .stride = taps * v.ci, .transposed = 1};
    dx = widened(x, type, nx);
    dw = widened(w, type, nw);
    dy = widened(NULL, type, ny);
    convolve(&v, dx, dw, dy, visit_y);
    check_conv_product(p, dy, ny);
    free(dx);
    free(dy);

    /* dgrad, the gradient of x: im2col(dy) w' */
    fill(y = place(A, ny * size, one_in(2)), type, ny, MODEST);
    p.g.m = v.images * v.h * v.w;
    p.g.n = v.ci;
    p.g.k = taps * v.co;
    p.g.a = (gs_matrix){.data = y, .dtype = type, .im2col = &of_y};
    p.g.b = (gs_matrix){
        .data = w, .dtype = type, .stride = taps * v.ci, .group = v.co, .group_stride = v.ci};
    dx = widened(NULL, type, nx);
    dy = widened(y, type, ny);
    convolve(&v, dx, dw, dy, visit_x);
    check_conv_product(p, dx, nx);
    free(dx);
    free(dw);

    /* the gradient of w: dy^T im2col(x) */
    fill(x = place(B, nx * size, one_in(2)), type, nx, MODEST);
    p.g.m = v.co;
    p.g.n = taps * v.ci;
    p.g.k = v.images * v.yh * v.yw;
    p.g.a = (gs_matrix){.data = y, .dtype = type, .stride = v.co, .transposed = 1};
    p.g.b = (gs_matrix){.data = x, .dtype = type, .im2col = &of_x};
    dx = widened(x, type, nx);
    dw = widened(NULL, type, nw);
    convolve(&v, dx, dw, dy, visit_w);
    check_conv_product(p, dw, nw);
    free(dx);
    free(dw);
    free(dy);
}

/* The gradient of a small filter over many pixels: b is im2col, blocks of k over threads. */
static void test_long_convolution(void)
{
    const gs_im2col of_x = {.h = 30,
                            .w = 29,
                            .c = 2,
                            .rows_h = 30,
                            .rows_w = 29,
                            .kh = 3,
                            .kw = 3,
                            .stride = 1,
                            .pad = 1};
    const size_t places = 3 * of_x.rows_h * of_x.rows_w, co = 4;
    open_machines();
    product p = {.g = {.m = co, .n = 9 * of_x.c, .k = places, .batch = 1}, .c_bytes = co * 18 * 4};
    float *y = place(A, places * co * 4, true), *x = place(B, places * of_x.c * 4, true);
    fill(y, GS_F32, places * co, MODEST);
    fill(x, GS_F32, places * of_x.c, MODEST);
    p.g.a = (gs_matrix){.data = y, .stride = co, .transposed = 1};
    p.g.b = (gs_matrix){.data = x, .im2col = &of_x};
    p.g.c.stride = p.g.n;
    check_product(p, 0, machine_count);
}

static void test_convolution(void)
{
    open_machines();
    for (size_t i = 0; i < (test_long() ? 2000 : 100) / less(); i++)
        check_conv();
}

/* ---- the caller's world ---- */

static void test_modes(void)
{
    open_machines();
    const int rounding = fegetround();
    for (size_t i = 0; i < 12; i++) {
        product p = draw_product(1 + below(40), 1 + below(40), 1 + below(500), 1, HOSTILE);
        const uint64_t env = gsi_fpenv_read();
        gs_stats stats;
        unsigned char *c[2] = {place(C_WANT, p.c_bytes, true), place(C_GOT, p.c_bytes, true)};
        memset(c[0], 1, p.c_bytes);
        memset(c[1], 1, p.c_bytes);
        gs_stats_init(&stats);
        p.g.stats = &stats;
        p.g.c.data = c[0];
        gsi_gemm_ref(&p.g);
        p.g.c.data = c[1];
        fesetround(i % 2 ? FE_UPWARD : FE_TOWARDZERO);
#if defined(__x86_64__)
        gsi_fpenv_write(gsi_fpenv_read() | 0x8040); /* flush to zero, both ways */
#endif
        const uint64_t mode = gsi_fpenv_read();
        CHECK(gs_gemm_run(machines[i % machine_count].ctx, &p.g) == GS_OK);
        CHECK(gsi_fpenv_read() == mode);
        fesetround(rounding);
        gsi_fpenv_write(env);
        CHECK(memcmp(c[0], c[1], p.c_bytes) == 0);
    }
}

/* A parallel-for of the caller's: backwards, all on one thread. */
static void run_backwards(void *user, size_t count, gs_body *body, void *arg)
{
    *(size_t *)user += count;
    while (count-- > 0)
        body(arg, count);
}

static void test_callers_threads(void)
{
    open_machines();
    size_t calls = 0;
    const machine own = {.threads = 99};
    const gs_config config = {.size = sizeof config, .parallel = {run_backwards, &calls}};
    const size_t last = machine_count;
    machines[last] = own;
    CHECK(gs_context_create(&machines[last].ctx, &config, NULL) == GS_OK);
    check_product(draw_product(200, 200, 200, 1, MODEST), last, last + 1);
    CHECK(calls > 1);
    gs_context_free(machines[last].ctx);
}

/* A workspace for a larger product does, and for one that is not transposed; it ends at an unmapped
 * page. */
static void test_serial(void)
{
    open_machines();
    for (size_t i = 0; i < 60 / less(); i++) {
        const bool wide = one_in(4);
        const size_t tall = one_in(4) ? 400 : 60;
        const size_t m = 1 + below(wide ? GSI_SKINNY_ROWS + 1 : tall),
                     n = 1 + below(wide ? 5000 : 60);
        product p = draw_product(m, n, 1 + below(500), 1 + below(3), LARGE);
        gs_context *const ctx = machines[i % machine_count].ctx;
        gs_gemm larger = p.g;
        larger.m += below(60);
        larger.n += below(60);
        larger.k += below(900);
        if (one_in(2))
            larger.a.transposed = larger.b.transposed = false;
        float *workspace = place(C_OLD, gsi_gemm_workspace(ctx, &larger) * sizeof *workspace, true);
        unsigned char *c[2] = {place(C_WANT, p.c_bytes, true), place(C_GOT, p.c_bytes, true)};
        memset(c[0], 0, p.c_bytes);
        memset(c[1], 0, p.c_bytes);
        p.g.c.data = c[0];
        gsi_gemm_ref(&p.g);
        p.g.c.data = c[1];
        gsi_gemm_serial(ctx, &p.g, workspace);
        CHECK(memcmp(c[0], c[1], p.c_bytes) == 0);
    }
}

TESTS({"definition", test_definition}, {"limits", test_limits}, {"blocks", test_blocks},
      {"small", test_small}, {"large", test_large}, {"long-k", test_long_k},
      {"skinny", test_skinny}, {"split", test_split}, {"batch", test_batch},
      {"convolution", test_convolution}, {"long-convolution", test_long_convolution},
      {"modes", test_modes}, {"callers-threads", test_callers_threads}, {"serial", test_serial})
