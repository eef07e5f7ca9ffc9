/* The interpreter of tests/ptx, which the proofs of test_device_cuda stand on: its arithmetic
 * against other definitions of the same, and every wrong that it has to find, once. */
#include "test.h"

#include "gradscale/num.h"
#include "ptx.h"

#include <math.h>

/* ---- kernels by hand ---- */

enum { BYTES = 60 }; /* of global memory, at %rd1 */

static const char before[] =
    ".version 9.0\n.target sm_121\n.address_size 64\n"
    ".visible .entry k(.param .u64 a)\n.maxntid 256\n{\n"
    ".reg .pred %p<8>;\n.reg .b16 %h<8>;\n.reg .b32 %r<16>;\n.reg .f32 %f<8>;\n"
    ".reg .b64 %rd<8>;\n.reg .f64 %d<8>;\n"
    ".shared .align 8 .b8 s[64];\n.local .align 8 .b8 l[16];\n"
    "ld.param.u64 %rd1, [a];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\n"
    "setp.eq.u32 %p1, %r1, 0;\nsetp.eq.u32 %p2, %r2, 0;\n";

/* Whether it ran; said: why not. */
static int run(const char *body, unsigned blocks, unsigned threads, unsigned char *data,
               ptx_error said)
{
    char text[4096];
    ptx_memory memory = {.base = data, .bytes = BYTES};
    const uint64_t arguments[] = {(uintptr_t)data};
    said[0] = 0;
    snprintf(text, sizeof text, "%s%s\nret;\n}\n", before, body);
    ptx_module *module = ptx_load(text, said);
    const int ok =
        module && ptx_launch(ptx_find(module, "k"), blocks, threads, arguments, &memory, 1, said);
    ptx_memory_free(&memory);
    ptx_free(module);
    return ok;
}

typedef struct wrong {
    const char *body;
    unsigned blocks, threads;
    const char *says; /* NULL: nothing is wrong */
} wrong;

static void expect(const wrong *list, size_t n)
{
    static _Alignas(16) unsigned char data[BYTES + 4];
    for (size_t i = 0; i < n; i++) {
        ptx_error said;
        const int ok = run(list[i].body, list[i].blocks, list[i].threads, data, said);
        if (list[i].says)
            CHECK_MSG(!ok && strstr(said, list[i].says), "%s: %s", list[i].body, said);
        else
            CHECK_MSG(ok, "%s: %s", list[i].body, said);
    }
}
#define EXPECT(list) expect(list, sizeof list / sizeof list[0])

static void test_bounds(void)
{
    static const wrong list[] = {
        {"ld.global.u32 %r3, [%rd1+56];", 1, 1, NULL},
        {"ld.global.u32 %r3, [%rd1+60];", 1, 1, "outside of global"},
        {"ld.global.u64 %rd2, [%rd1+56];", 1, 1, "outside of global"}, /* its second half */
        {"ld.global.u32 %r3, [%rd1+-4];", 1, 1, "outside of global"},
        {"st.global.u32 [%rd1+60], %r1;", 1, 1, "outside of global"},
        {"mov.u64 %rd2, 0;\nst.global.u32 [%rd2], %r1;", 1, 1, "outside of global"},
        {"mad.wide.u32 %rd2, %r1, 4, %rd1;\nst.global.u32 [%rd2], %r1;", 1, 15, NULL},
        {"mad.wide.u32 %rd2, %r1, 4, %rd1;\nst.global.u32 [%rd2], %r1;", 1, 16,
         "outside of global"},
        {"atom.global.max.u32 %r3, [%rd1+60], %r1;", 1, 1, "outside of global"},
        {"st.shared.u32 [s+60], %r1;", 1, 1, NULL},
        {"st.shared.u32 [s+64], %r1;", 1, 1, "outside of shared"},
        {"ld.shared.u32 %r3, [s+-4];", 1, 1, "outside of shared"},
        {"st.local.u32 [l+12], %r1;", 1, 1, NULL},
        {"st.local.u32 [l+16], %r1;", 1, 1, "outside of local"},
        {"ld.local.u32 %r3, [l+-4];", 1, 1, "outside of local"},
    };
    EXPECT(list);
}

static void test_alignment(void)
{
    static const wrong list[] = {
        {"ld.global.u32 %r3, [%rd1+2];", 1, 1, "misaligned"},
        {"st.global.u16 [%rd1+1], %h1;", 1, 1, "misaligned"},
        {"ld.global.v2.u32 {%r3, %r4}, [%rd1+8];", 1, 1, NULL},
        {"ld.global.v2.u32 {%r3, %r4}, [%rd1+4];", 1, 1, "misaligned"},
        {"st.shared.u64 [s+4], %rd1;", 1, 1, "misaligned"},
        {"st.local.u64 [l+4], %rd1;", 1, 1, "misaligned"},
        {"atom.shared.add.u32 %r3, [s+2], %r1;", 1, 1, "misaligned"},
    };
    EXPECT(list);
}

static void test_barriers(void)
{
    static const wrong list[] = {
        {"bar.sync 0;\nbar.sync 0;", 2, 64, NULL},
        {"@%p1 bar.sync 0;", 1, 2, "others have ended"},
        {"@%p1 bra X;\nbar.sync 0;\nX:", 1, 2, "others have ended"},
        {"@%p1 bra X;\nbar.sync 0;\nbra Y;\nX:\nbar.sync 0;\nY:", 1, 2, "different barriers"},
    };
    EXPECT(list);
}

static void test_races(void)
{
    static const wrong list[] = {
        /* in shared memory */
        {"st.shared.u32 [s], %r1;", 1, 1, NULL},
        {"st.shared.u32 [s], %r1;", 1, 2, "race"},
        {"ld.shared.u32 %r3, [s];", 1, 64, NULL},
        {"@%p1 st.shared.u32 [s], %r1;\n@!%p1 ld.shared.u32 %r3, [s];", 1, 2, "race"},
        {"@%p1 ld.shared.u32 %r3, [s];\n@!%p1 st.shared.u32 [s], %r1;", 1, 2, "race"},
        {"ld.shared.u32 %r3, [s];\n@%p1 st.shared.u32 [s], %r1;", 1, 2, "race"},
        {"@%p1 st.shared.u32 [s], %r1;\nbar.sync 0;\nld.shared.u32 %r3, [s];", 1, 64, NULL},
        {"ld.shared.u32 %r3, [s];\nbar.sync 0;\n@%p1 st.shared.u32 [s], %r1;", 1, 64, NULL},
        {"@%p1 st.shared.u32 [s], %r1;\n@!%p1 st.shared.u16 [s+2], %h1;", 1, 2, "race"},
        {"@%p1 st.shared.u16 [s], %h1;\n@!%p1 st.shared.u16 [s+2], %h1;", 1, 2, NULL},
        {"atom.shared.add.u32 %r3, [s], %r1;", 1, 64, NULL},
        {"@%p1 atom.shared.add.u32 %r3, [s], %r1;\n@!%p1 st.shared.u32 [s], %r1;", 1, 2, "race"},
        {"@%p1 ld.shared.u32 %r3, [s];\n@!%p1 atom.shared.add.u32 %r3, [s], %r1;", 1, 2, "race"},
        {"st.shared.u32 [s], %r1;", 64, 1, NULL}, /* each block has its own */
        /* in global memory: blocks have no barrier */
        {"st.global.u32 [%rd1], %r1;", 2, 1, "race"},
        {"st.global.u32 [%rd1], %r1;", 1, 2, "race"},
        {"@%p2 st.global.u32 [%rd1], %r1;\n@!%p2 ld.global.u32 %r3, [%rd1];", 2, 1, "race"},
        {"@%p2 ld.global.u32 %r3, [%rd1];\n@!%p2 st.global.u32 [%rd1], %r1;", 2, 1, "race"},
        {"@%p2 st.global.u32 [%rd1], %r1;\nbar.sync 0;\n@!%p2 ld.global.u32 %r3, [%rd1];", 2, 1,
         "race"},
        {"mad.wide.u32 %rd2, %r2, 4, %rd1;\nst.global.u32 [%rd2], %r1;", 8, 1, NULL},
        {"atom.global.max.u32 %r3, [%rd1], %r1;", 8, 8, NULL},
    };
    EXPECT(list);
}

/* Loads from what nobody has written are not zero by chance. */
static void test_garbage(void)
{
    static const char *const bodies[] = {
        "st.global.u32 [%rd1], %r9;",
        "ld.shared.u32 %r3, [s];\nst.global.u32 [%rd1], %r3;",
        "ld.local.u32 %r3, [l];\nst.global.u32 [%rd1], %r3;",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        static _Alignas(16) unsigned char data[BYTES + 4];
        uint32_t x = 0;
        ptx_error said;
        memset(data, 0, sizeof data);
        CHECK_MSG(run(bodies[i], 1, 1, data, said), "%s", said);
        memcpy(&x, data, sizeof x);
        CHECK_MSG(x != 0, "%s", bodies[i]);
    }
}

static void test_refuses(void)
{
    static const wrong list[] = {
        {"add.rn.f32 %f1, %f2, %f3;", 1, 1, NULL},
        {"add.f32 %f1, %f2, %f3;", 1, 1, "may be contracted"},
        {"mul.f64 %d1, %d2, %d3;", 1, 1, "may be contracted"},
        {"add.rz.f32 %f1, %f2, %f3;", 1, 1, "not executed exactly"},
        {"add.rn.ftz.f32 %f1, %f2, %f3;", 1, 1, "not executed exactly"},
        {"add.rn.sat.f32 %f1, %f2, %f3;", 1, 1, "not executed exactly"},
        {"fma.rn.ftz.f32 %f1, %f2, %f3, %f4;", 1, 1, "not executed exactly"},
        {"fma.f32 %f1, %f2, %f3, %f4;", 1, 1, "is not exact"},
        {"div.approx.f32 %f1, %f2, %f3;", 1, 1, "not executed exactly"},
        {"div.full.f32 %f1, %f2, %f3;", 1, 1, "not executed exactly"},
        {"sqrt.approx.f32 %f1, %f2;", 1, 1, "not executed exactly"},
        {"rsqrt.approx.f32 %f1, %f2;", 1, 1, "unknown instruction"},
        {"rcp.approx.ftz.f64 %d1, %d2;", 1, 1, "not executed exactly"},
        {"ex2.approx.f32 %f1, %f2;", 1, 1, "unknown instruction"},
        {"lg2.approx.f32 %f1, %f2;", 1, 1, "unknown instruction"},
        {"sin.approx.f32 %f1, %f2;", 1, 1, "unknown instruction"},
        {"tanh.approx.f32 %f1, %f2;", 1, 1, "unknown instruction"},
        {"shfl.sync.down.b32 %r3, %r4, 1, 31, -1;", 1, 1, "unknown instruction"},
        {"activemask.b32 %r3;", 1, 1, "unknown instruction"},
        {"cvt.rz.f16.f32 %h1, %f1;", 1, 1, "not executed exactly"},
        {"cvt.f16.f32 %h1, %f1;", 1, 1, "a conversion that is not known"},
        {"cvt.bf16.f32 %h1, %f1;", 1, 1, "a conversion that is not known"},
        {"fma.rn.f16 %h1, %h2, %h3, %h4;", 1, 1, "not known"},
        {"atom.shared.add.f32 %f1, [s], %f2;", 1, 1, "an atomic of a type"},
        {"div.u32 %r3, %r1, 0;", 1, 1, "division by zero"},
        {"mov.u32 %r77, 1;", 1, 1, "unknown operand"},
        {"bra Z;", 1, 1, "no label"},
    };
    EXPECT(list);
}

/* ---- integers, against C ---- */

static uint32_t of_u32(const char *body)
{
    static _Alignas(16) unsigned char data[BYTES + 4];
    uint32_t x = 0;
    ptx_error said;
    char text[512];
    snprintf(text, sizeof text, "%s\nst.global.u32 [%%rd1], %%r5;", body);
    CHECK_MSG(run(text, 1, 1, data, said), "%s: %s", body, said);
    memcpy(&x, data, sizeof x);
    return x;
}

static void test_integers(void)
{
    static const struct {
        const char *body;
        uint32_t is;
    } list[] = {
        {"mov.u32 %r3, 0x80000001;\nmul.hi.u32 %r5, %r3, %r3;", 0x40000001},
        {"mov.u32 %r3, 0x80000001;\nmul.lo.u32 %r5, %r3, %r3;", 1},
        {"mov.u32 %r3, -3;\nmul.wide.s32 %rd2, %r3, 5;\nshr.s64 %rd2, %rd2, 32;\n"
         "cvt.u32.u64 %r5, %rd2;",
         0xFFFFFFFF},
        {"mov.u32 %r3, -3;\nmul.wide.u32 %rd2, %r3, 5;\nshr.u64 %rd2, %rd2, 32;\n"
         "cvt.u32.u64 %r5, %rd2;",
         4},
        {"mov.u32 %r3, 7;\nshl.b32 %r5, %r3, 40;", 0},
        {"mov.u32 %r3, -8;\nshr.s32 %r5, %r3, 40;", 0xFFFFFFFF},
        {"mov.u32 %r3, -8;\nshr.u32 %r5, %r3, 1;", 0x7FFFFFFC},
        {"mov.u32 %r3, -8;\nshr.s32 %r5, %r3, 1;", 0xFFFFFFFC},
        {"mov.u32 %r3, 0x12345678;\nbfe.u32 %r5, %r3, 8, 12;", 0x456},
        {"mov.u32 %r3, 0x12345678;\nmov.u32 %r4, -1;\nbfi.b32 %r5, %r4, %r3, 4, 8;", 0x12345FF8},
        {"mov.u32 %r3, -1;\nsetp.lt.s32 %p3, %r3, 1;\nselp.u32 %r5, 10, 20, %p3;", 10},
        {"mov.u32 %r3, -1;\nsetp.lt.u32 %p3, %r3, 1;\nselp.u32 %r5, 10, 20, %p3;", 20},
        {"mov.u32 %r3, -1;\nmin.s32 %r5, %r3, 1;", 0xFFFFFFFF},
        {"mov.u32 %r3, -1;\nmin.u32 %r5, %r3, 1;", 1},
        {"mov.u32 %r3, 0x80;\ncvt.s32.s8 %r5, %r3;", 0xFFFFFF80},
        {"mov.u32 %r3, 0x80;\ncvt.u32.u8 %r5, %r3;", 0x80},
        {"mov.f64 %d1, 0dC1E0000000200000;\ncvt.rzi.s32.f64 %r5, %d1;", 0x80000000},
        {"mov.f64 %d1, 0d41F0000000000000;\ncvt.rzi.u32.f64 %r5, %d1;", 0xFFFFFFFF},
        {"mov.f64 %d1, 0d7FF8000000000000;\ncvt.rzi.u32.f64 %r5, %d1;", 0},
        /* NaN: ordered comparisons are false, the others true */
        {"mov.f32 %f1, 0f7FC00000;\nsetp.ne.f32 %p3, %f1, %f1;\nselp.u32 %r5, 1, 0, %p3;", 0},
        {"mov.f32 %f1, 0f7FC00000;\nsetp.neu.f32 %p3, %f1, %f1;\nselp.u32 %r5, 1, 0, %p3;", 1},
        {"mov.f32 %f1, 0f7FC00000;\nsetp.gtu.f32 %p3, %f1, %f1;\nselp.u32 %r5, 1, 0, %p3;", 1},
        /* and the one that arithmetic makes is NVIDIA's */
        {"mov.f32 %f1, 0fFF800001;\nadd.rn.f32 %f2, %f1, %f1;\nmov.b32 %r5, %f2;", 0x7FFFFFFF},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const uint32_t x = of_u32(list[i].body);
        CHECK_MSG(x == list[i].is, "%s: %x, not %x", list[i].body, x, list[i].is);
    }
    static const wrong all[] = {{"atom.global.add.u32 %r3, [%rd1], 3;\n"
                                 "atom.global.max.u32 %r3, [%rd1+4], %r1;\n"
                                 "atom.global.min.u32 %r3, [%rd1+8], %r1;",
                                 2, 100, NULL}};
    _Alignas(16) unsigned char data[BYTES] = {0};
    uint32_t x[3];
    ptx_error said;
    memset(data + 8, 0xFF, 4);
    CHECK_MSG(run(all->body, all->blocks, all->threads, data, said), "%s", said);
    memcpy(x, data, sizeof x);
    CHECK(x[0] == 600 && x[1] == 99 && x[2] == 0);
}

/* ---- numbers, as nvcc emits them ---- */

typedef struct numbers {
    ptx_module *module;
    ptx_error said;
} numbers;

/* False: there was no nvcc. */
static int open_numbers(numbers *x, int architecture)
{
    char path[512];
    const char *build = getenv("BUILD") ? getenv("BUILD") : "build";
    snprintf(path, sizeof path, "%s/tests/ptx/numbers_%d.ptx", build, architecture);
    FILE *f = fopen(path, "rb");
    if (!f)
        return 0;
    char *text = calloc(1, 1 << 20);
    CHECK(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    x->module = ptx_load(text, x->said);
    CHECK_MSG(x->module, "%s: %s", path, x->said);
    free(text);
    return 1;
}

static void apply(numbers *x, const char *kernel, void *to, size_t to_bytes, void *from,
                  size_t from_bytes, unsigned n)
{
    ptx_memory memory[] = {{.base = to, .bytes = to_bytes}, {.base = from, .bytes = from_bytes}};
    const uint64_t arguments[] = {(uintptr_t)to, (uintptr_t)from, n};
    const ptx_kernel *k = ptx_find(x->module, kernel);
    CHECK_MSG(k && ptx_launch(k, (n + 255) / 256, 256, arguments, memory, 2, x->said), "%s: %s",
              kernel, x->said);
    ptx_memory_free(&memory[0]);
    ptx_memory_free(&memory[1]);
}

static float to_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Every code of a half type; every number on or beside the middle of two; and many more. */
static unsigned make_floats(float *x)
{
    unsigned n = 0;
    for (uint32_t h = 0; h < 0x10000; h++)
        for (int type = 0; type < 2; type++) {
            const float low = type ? gs_bf16_to_f32((uint16_t)h) : gs_f16_to_f32((uint16_t)h);
            const float high =
                type ? gs_bf16_to_f32((uint16_t)(h + 1)) : gs_f16_to_f32((uint16_t)(h + 1));
            const float middle = (float)(((double)low + (double)high) / 2);
            x[n++] = low;
            x[n++] = middle;
            x[n++] = nextafterf(middle, INFINITY);
            x[n++] = nextafterf(middle, -INFINITY);
        }
    for (uint32_t u = 0; u < 0xFFFF0000u; u += 65537u)
        x[n++] = to_float(u);
    return n;
}
enum { MOST_FLOATS = 8 * 65536 + 65536 };

static int is_nan(uint16_t h, int bf16) { return (h & 0x7FFF) > (bf16 ? 0x7F80 : 0x7C00); }

static void check_halves(numbers *x, int bf16, const float *floats, unsigned n)
{
    uint16_t *halves = calloc(MOST_FLOATS, 2), *pairs = calloc(MOST_FLOATS, 2);
    float *from = calloc(MOST_FLOATS, 4);
    memcpy(from, floats, n * sizeof *from);
    apply(x, bf16 ? "to_bf16" : "to_f16", halves, n * 2, from, n * 4, n);
    apply(x, bf16 ? "to_bf16_pairs" : "to_f16_pairs", pairs, n * 2, from, n * 4, n / 2);
    for (unsigned i = 0; i < n; i++) {
        const uint16_t want = bf16 ? gs_f32_to_bf16(from[i]) : gs_f32_to_f16(from[i]);
        const int nan = isnan(from[i]);
        CHECK_MSG(nan ? halves[i] == 0x7FFF : halves[i] == want, "%a: %x, not %x", (double)from[i],
                  halves[i], want);
        CHECK_MSG(i >= n / 2 * 2 || pairs[i] == halves[i], "%a in a pair: %x", (double)from[i],
                  pairs[i]);
    }
    for (unsigned h = 0; h < 0x10000; h++)
        halves[h] = (uint16_t)h;
    apply(x, bf16 ? "from_bf16" : "from_f16", from, 4 * 0x10000, halves, 2 * 0x10000, 0x10000);
    for (unsigned h = 0; h < 0x10000; h++) {
        const float want = bf16 ? gs_bf16_to_f32((uint16_t)h) : gs_f16_to_f32((uint16_t)h);
        CHECK_MSG(is_nan((uint16_t)h, bf16) ? isnan(from[h]) : memcmp(&want, &from[h], 4) == 0,
                  "%x: %a, not %a", h, (double)from[h], (double)want);
    }
    free(halves);
    free(pairs);
    free(from);
}

static void test_halves(void)
{
    static const int architectures[] = {75, 121};
    float *floats = calloc(MOST_FLOATS, sizeof *floats);
    const unsigned n = make_floats(floats);
    CHECK(n <= MOST_FLOATS);
    for (int a = 0; a < 2; a++) {
        numbers x = {0};
        if (!open_numbers(&x, architectures[a])) {
            free(floats);
            SKIP("there is no nvcc");
        }
        if (x.module) {
            check_halves(&x, 0, floats, n);
            check_halves(&x, 1, floats, n);
        }
        ptx_free(x.module);
    }
    free(floats);
}

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* a b + c in f32 without fma: the product is exact in f64; the sum is rounded to odd there, so that
 * the rounding to f32 is the only one. */
static float fma_by_odd(float a, float b, float c)
{
    const double p = (double)a * (double)b, s = p + (double)c;
    const double t = s - p, error = (p - (s - t)) + ((double)c - t);
    uint64_t u;
    if (!isfinite(s) || error == 0)
        return (float)s;
    memcpy(&u, &s, sizeof u);
    if (!(u & 1)) {
        const double other = nextafter(s, error > 0 ? HUGE_VAL : -HUGE_VAL);
        memcpy(&u, &other, sizeof u);
    }
    double odd;
    memcpy(&odd, &u, sizeof odd);
    return (float)odd;
}

static void check_fma_f32(numbers *x)
{
    enum { N = 50000 };
    static const float special[][4] = {
        {0x1.fffffep+127f, 2, -0x1.fffffep+127f, 0x1.fffffep+127f}, /* overflows in between */
        {0x1p-100f, 0x1p-49f, 0, 0x1p-149f},                        /* the least subnormal */
        {0x1p-100f, 0x1p-50f, 0, 0},                                /* a tie, to even */
        {0x1.000002p0f, 0x1.000002p0f, -0x1.000004p0f, 0x1p-46f},   /* what the product loses */
        {-1, 0, 0, 0},
        {-1, 0, -0.0f, -0.0f},
    };
    enum { SPECIAL = sizeof special / sizeof special[0] };
    float *from = calloc(3 * N, sizeof *from), *to = calloc(N, sizeof *to);
    uint64_t random = 88172645463325252u;
    int differs = 0;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 3; k++) {
            uint32_t u = (uint32_t)next_random(&random);
            if (i % 2) /* near 1: they cancel */
                u = (u & 0x807FFFFFu) | (125u + (u >> 23) % 4u) << 23;
            from[3 * i + k] = i < SPECIAL ? special[i][k] : to_float(u);
        }
    apply(x, "fma_f32", to, N * 4, from, 3 * N * 4, N);
    for (int i = 0; i < N; i++) {
        const float a = from[3 * i], b = from[3 * i + 1], c = from[3 * i + 2];
        const float want = i < SPECIAL ? special[i][3] : fma_by_odd(a, b, c);
        volatile float product = a * b;
        differs += product + c != to[i];
        CHECK_MSG(memcmp(&want, &to[i], 4) == 0 || (isnan(want) && isnan(to[i])),
                  "fma(%a, %a, %a) is %a, not %a", (double)a, (double)b, (double)c, (double)to[i],
                  (double)want);
    }
    CHECK_MSG(differs > N / 20, "only %d differ from two roundings", differs);
    free(from);
    free(to);
}

/* fma(a, b, -a b) is what the product of a and b loses: Dekker's. */
static void check_fma_f64(numbers *x)
{
    enum { N = 20000 };
    double *from = calloc(3 * N, sizeof *from), *to = calloc(N, sizeof *to);
    uint64_t random = 362436069;
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 2; k++)
            from[3 * i + k] = ldexp((double)(int64_t)next_random(&random), (int)(i % 90) - 45);
        volatile double product = from[3 * i] * from[3 * i + 1];
        from[3 * i + 2] = -product;
    }
    apply(x, "fma_f64", to, N * 8, from, 3 * N * 8, N);
    for (int i = 0; i < N; i++) {
        const double a = from[3 * i], b = from[3 * i + 1], p = -from[3 * i + 2];
        const volatile double ca = a * 134217729.0, cb = b * 134217729.0;
        const double a1 = ca - (ca - a), b1 = cb - (cb - b), a2 = a - a1, b2 = b - b1;
        const double lost = ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2;
        CHECK_MSG(to[i] == lost, "fma(%a, %a, %a) is %a, not %a", a, b, -p, to[i], lost);
    }
    free(from);
    free(to);
}

static void test_fma(void)
{
    static const int architectures[] = {75, 121};
    for (int a = 0; a < 2; a++) {
        numbers x = {0};
        if (!open_numbers(&x, architectures[a]))
            SKIP("there is no nvcc");
        CHECK(x.module && x.module->fma > 0);
        if (x.module) {
            check_fma_f32(&x);
            check_fma_f64(&x);
        }
        ptx_free(x.module);
    }
}

TESTS({"bounds", test_bounds}, {"alignment", test_alignment}, {"barriers", test_barriers},
      {"races", test_races}, {"garbage", test_garbage}, {"refuses", test_refuses},
      {"integers", test_integers}, {"halves", test_halves}, {"fma", test_fma})
