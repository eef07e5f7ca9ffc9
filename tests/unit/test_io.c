/* The readers against honest files, and against every kind of lie. */
#include "io_files.h"
#include "test.h"

#include "base/base.h"
#include "gradscale/io.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- reading them ---- */

static char folder[64], path[96];

static void use_folder(void)
{
    if (!folder[0]) {
        strcpy(folder, "/tmp/gs_test_io_XXXXXX");
        if (!mkdtemp(folder))
            abort();
        snprintf(path, sizeof path, "%s/file", folder);
    }
}

/* One file, written over and over: creating it anew each time costs more than the tests. */
static void write_file(const uint8_t *data, size_t n)
{
    static int fd = -1;
    use_folder();
    if (fd >= 0 && access(path, F_OK) != 0) {
        close(fd);
        fd = -1;
    }
    if (fd < 0)
        fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || pwrite(fd, data, n, 0) != (ssize_t)n || ftruncate(fd, (off_t)n) != 0)
        abort();
}

/* Refuses what no small file may ask for, and the `fail_at`-th request; counts what is held. */
typedef struct guard {
    size_t held, largest;
    long calls, fail_at; /* fail_at -1: none */
} guard;

static void *guard_resize(void *user, void *block, size_t old_size, size_t size)
{
    guard *g = user;
    if (size > 0) {
        if (g->calls++ == g->fail_at)
            return NULL;
        if (size > g->largest)
            g->largest = size;
    }
    g->held += size - old_size;
    if (size == 0) {
        free(block);
        return NULL;
    }
    return realloc(block, size);
}

enum { HUGE_REQUEST = 1 << 20 };

/* Opens `path` and reads all of it in small pieces. */
static gs_status drain(gs_error *error, guard *g)
{
    gs_source *s;
    uint8_t buffer[37 * 8];
    memset(error, 0, sizeof *error);
    const gs_alloc alloc = {guard_resize, g};
    gs_status status = gs_source_open(&s, path, &alloc, error);
    if (status != GS_OK) {
        CHECK(s == NULL);
        return status;
    }
    for (size_t t = 0; status == GS_OK && t < gs_source_count(s); t++) {
        const gs_entry *e = gs_source_entry(s, t);
        for (uint64_t at = 0; gs_entry_readable(e) && status == GS_OK && at < e->count;) {
            const size_t n = e->count - at < 37 ? (size_t)(e->count - at) : 37;
            status = gs_source_read(buffer, s, t, at, n, error);
            at += n;
        }
    }
    gs_source_close(s);
    return status;
}

static gs_status status_of(const bytes *b, gs_error *error)
{
    guard g = {.fail_at = -1};
    write_file(b->data, b->n);
    const gs_status status = drain(error, &g);
    CHECK(g.held == 0);
    CHECK_MSG(g.largest < HUGE_REQUEST, "asked for %zu bytes", g.largest);
    CHECK((status == GS_OK) == (error->text[0] == 0));
    if (status != GS_OK) {
        CHECK_MSG(strstr(error->text, "/file: ") != NULL, "%s", error->text);
        CHECK_MSG(error->status == status, "%s", error->text);
    }
    return status;
}

#define REFUSED(b, status, words)                                                              \
    do {                                                                                       \
        gs_error refused_error;                                                                \
        const gs_status refused = status_of(b, &refused_error);                                \
        CHECK_MSG(refused == (status), "%s: %s", gs_status_name(refused), refused_error.text); \
        CHECK_MSG(strstr(refused_error.text, words) != NULL, "%s", refused_error.text);        \
    } while (0)

static void accepted(const bytes *b)
{
    gs_error error;
    const gs_status status = status_of(b, &error);
    CHECK_MSG(status == GS_OK, "%s", error.text);
}

static bytes file;

/* ---- honest files ---- */

static const float golden[3] = {0x1.4a377ep-20f, 0x1.3941e6p-12f, -0x1.1f7452p-12f};

static gs_source *open_golden(const char *name)
{
    char at[128];
    gs_error error = {0};
    gs_source *s;
    snprintf(at, sizeof at, "tests/data/%s", name);
    const gs_status status = gs_source_open(&s, at, NULL, &error);
    CHECK_MSG(status == GS_OK, "%s", error.text);
    return s;
}

static void test_numpy_files(void)
{
    float x[12];
    double d[12];
    uint16_t h[1];
    gs_source *s = open_golden("f4.npy");
    const gs_entry *e = s ? gs_source_entry(s, 0) : NULL;
    if (!e)
        return;
    CHECK(gs_source_count(s) == 1 && strcmp(gs_source_format(s), "npy") == 0);
    CHECK(e->rank == 2 && e->shape[0] == 3 && e->shape[1] == 4 && e->count == 12);
    CHECK(e->dtype == GS_F32 && strcmp(e->type, "<f4") == 0 && !e->sequential);
    CHECK(e->offset == 128 && e->bytes == 48 && gs_source_size(s) == 176);
    CHECK(gs_source_read(x, s, 0, 0, 12, NULL) == GS_OK && memcmp(x, golden, 12) == 0);
    CHECK(gs_source_read(x, s, 0, 1, 2, NULL) == GS_OK && memcmp(x, golden + 1, 8) == 0);
    CHECK(gs_source_read(NULL, s, 0, 12, 0, NULL) == GS_OK);
    const float *map = gs_source_map(s, 0);
    CHECK(map && memcmp(map, golden, 12) == 0 && gs_source_map(s, 0) == map);
    CHECK(gs_source_map(s, 1) == NULL);
    CHECK(gs_source_read(x, s, 0, 12, 1, NULL) == GS_ERANGE);
    CHECK(gs_source_read(x, s, 0, UINT64_MAX, 2, NULL) == GS_ERANGE);
    CHECK(gs_source_read(NULL, s, 0, 0, 1, NULL) == GS_ENULL);
    CHECK(gs_source_read(x, s, 1, 0, 0, NULL) == GS_ERANGE && gs_source_entry(s, 1) == NULL);
    gs_source_close(s);

    s = open_golden("f4_fortran.npy"); /* stored column by column: the second is row 1 */
    CHECK(gs_source_read(x, s, 0, 0, 12, NULL) == GS_OK && x[0] == golden[0] && x[3] == golden[1]);
    gs_source_close(s);
    s = open_golden("f8_big_endian.npy");
    CHECK(gs_source_entry(s, 0)->dtype == GS_F64);
    CHECK(gs_source_read(d, s, 0, 0, 12, NULL) == GS_OK && d[2] == (double)golden[2]);
    CHECK(gs_source_map(s, 0) == NULL); /* it would be swapped */
    gs_source_close(s);
    s = open_golden("f2_scalar.npy");
    CHECK(gs_source_entry(s, 0)->rank == 0 && gs_source_entry(s, 0)->count == 1);
    CHECK(gs_source_read(h, s, 0, 0, 1, NULL) == GS_OK && h[0] == 0x3800);
    gs_source_close(s);
    s = open_golden("i8.npy");
    CHECK(!gs_entry_readable(gs_source_entry(s, 0)) && gs_source_entry(s, 0)->count == 6);
    CHECK(gs_source_read(d, s, 0, 0, 1, NULL) == GS_EDTYPE);
    gs_source_close(s);
}

static void test_npz_files(void)
{
    float x[5000];
    gs_source *s = open_golden("stored.npz");
    CHECK(gs_source_count(s) == 4 && strcmp(gs_source_format(s), "npz") == 0);
    static const char *const names[] = {"a", "b", "empty", "steps"};
    for (size_t t = 0; t < 4; t++)
        CHECK(strcmp(gs_source_entry(s, t)->name, names[t]) == 0);
    CHECK(gs_source_entry(s, 2)->count == 0 && gs_source_entry(s, 2)->rank == 2);
    CHECK(gs_source_read(x, s, 0, 0, 12, NULL) == GS_OK && memcmp(x, golden, 12) == 0);
    CHECK(gs_source_map(s, 0) == NULL);
    gs_source_close(s);

    s = open_golden("deflated.npz");
    CHECK(gs_source_count(s) == 2);
    CHECK(gs_source_read(x, s, 1, 0, 5000, NULL) == GS_OK && x[0] == 0 && x[4999] == 0);
    CHECK(gs_source_read(x, s, 0, 2, 10, NULL) == GS_OK && x[0] == golden[2]); /* skips */
    CHECK(gs_source_read(x, s, 0, 1, 1, NULL) == GS_OK && x[0] == golden[1]);  /* starts again */
    CHECK(gs_source_read(x, s, 0, 2, 1, NULL) == GS_OK && x[0] == golden[2]);  /* goes on */
    gs_source_close(s);
}

static void test_safetensors_files(void)
{
    gs_source *s = open_golden("grads.safetensors");
    static const struct {
        const char *name;
        gs_dtype dtype;
        uint64_t count;
    } want[] = {{"fc1.weight", GS_F32, 3000},
                {"fc1.bias", GS_F16, 60},
                {"fc2.weight", GS_BF16, 600},
                {"fc2.bias", GS_F64, 10},
                {"step", GS_DTYPE_COUNT, 1}};
    CHECK(gs_source_count(s) == 5);
    for (size_t t = 0; t < 5; t++) {
        const gs_entry *e = gs_source_entry(s, t);
        CHECK(strcmp(e->name, want[t].name) == 0 && e->dtype == want[t].dtype);
        CHECK(e->count == want[t].count);
    }
    gs_source_close(s);

    /* any order, empty tensors anywhere, spaces after the header, no tensors at all */
    accepted(safetensors(&file,
                         "{\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]},"
                         "\"z\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                         "\"y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]},"
                         "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}    ",
                         8));
    write_file(file.data, file.n);
    gs_source *t;
    CHECK(gs_source_open(&t, path, NULL, NULL) == GS_OK);
    uint32_t u = 0;
    CHECK(strcmp(gs_source_entry(t, 0)->name, "a") == 0 && gs_source_entry(t, 0)->rank == 0);
    CHECK(gs_source_read(&u, t, 0, 0, 1, NULL) == GS_OK && u == 0x03020100);
    const bool aligned = gs_source_entry(t, 0)->offset % 4 == 0;
    CHECK((gs_source_map(t, 0) != NULL) == aligned);
    gs_source_close(t);
    accepted(safetensors(&file, "{}", 0));
    accepted(safetensors(&file, "{\"__metadata__\":{\"a\":\"b\"}}", 0));
    accepted(
        safetensors(&file, "{\"x\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2));
}

/* ---- lies ---- */

#define ONE(type, shape, from, to) \
    "{\"x\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}}"

static void test_safetensors_lies(void)
{
    accepted(safetensors(&file, ONE("F32", "[2]", "0", "8"), 8));
    REFUSED(safetensors(&file, ONE("F32", "[2]", "0", "8"), 7), GS_EFORMAT, "7 bytes of data");
    safetensors(&file, "{}", 0)->data[0] += 1;
    REFUSED(&file, GS_EFORMAT, "ends within its header");
    REFUSED(safetensors(&file, ONE("F32", "[2]", "0", "8"), 9), GS_EFORMAT, "belong to no tensor");
    REFUSED(safetensors(&file, ONE("F32", "[2]", "0", "4"), 8), GS_EFORMAT, "ask for 8");
    REFUSED(safetensors(&file, ONE("F32", "[2]", "8", "0"), 8), GS_EFORMAT, "at 8 to 0");
    REFUSED(safetensors(&file, ONE("F32", "[2]", "4", "12"), 12), GS_EFORMAT, "a hole before");
    REFUSED(safetensors(&file, ONE("F32", "[2]", "-8", "0"), 8), GS_EFORMAT, "two whole numbers");
    REFUSED(safetensors(&file, ONE("F32", "[2]", "0.0", "8"), 8), GS_EFORMAT, "two whole");
    REFUSED(safetensors(&file, ONE("F32", "[-2]", "0", "8"), 8), GS_EFORMAT, "whole numbers");
    REFUSED(safetensors(&file, ONE("F32", "2", "0", "8"), 8), GS_EFORMAT, "not described");
    REFUSED(safetensors(&file, ONE("F31", "[2]", "0", "8"), 8), GS_EDTYPE, "unknown type, F31");
    REFUSED(safetensors(&file, ONE("F4", "[3]", "0", "2"), 2), GS_EFORMAT, "whole byte");
    REFUSED(safetensors(&file, ONE("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4"), 4), GS_ESIZE,
            "more than 8");
    REFUSED(safetensors(&file, ONE("F32", "[9223372036854775807]", "0", "8"), 8), GS_ESIZE,
            "overflows");
    REFUSED(safetensors(&file, ONE("F32", "[4294967296,4294967296]", "0", "0"), 0), GS_ESIZE,
            "overflows");
    REFUSED(safetensors(&file, ONE("F32", "[0,4294967296,4294967296]", "0", "0"), 0), GS_ESIZE,
            "overflows");
    REFUSED(safetensors(&file, ONE("F32", "[18446744073709551616]", "0", "0"), 0), GS_EFORMAT,
            "whole numbers");
    REFUSED(safetensors(&file, ONE("F32", "[2305843009213693951]", "0", "9223372036854775804"), 8),
            GS_ESIZE, "overflows");
    REFUSED(safetensors(&file, ONE("U8", "[1152921504606846975]", "0", "1152921504606846975"), 8),
            GS_EFORMAT, "8 bytes of data");
    REFUSED(safetensors(&file,
                        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                        "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
                        12),
            GS_EFORMAT, "b overlaps");
    REFUSED(safetensors(&file,
                        "{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]},"
                        "\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]}}",
                        8),
            GS_EFORMAT, "two tensors are named");
    REFUSED(safetensors(&file,
                        "{\"a\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4],"
                        "\"more\":1}}",
                        4),
            GS_EFORMAT, "not described");
    REFUSED(safetensors(&file, "{\"a\":[]}", 0), GS_EFORMAT, "not described");
    REFUSED(safetensors(&file, "{\"__metadata__\":[]}", 0), GS_EFORMAT, "__metadata__");
    REFUSED(safetensors(&file, "{\"__metadata__\":{\"a\":1}}", 0), GS_EFORMAT, "not a string");
    REFUSED(safetensors(&file, " {}", 0), GS_EFORMAT, "not a .npy");
    REFUSED(safetensors(&file, "{} x", 0), GS_EFORMAT, "wrong at byte");
    REFUSED(safetensors(&file, "{\"\xFF\":{}}", 0), GS_EFORMAT, "UTF-8");
    REFUSED(safetensors(&file, "{\"a\\u0000b\":{}}", 0), GS_EFORMAT, "escape");
    REFUSED(safetensors(&file, "{\"a\x1b[31m\":{}}", 0), GS_EFORMAT, "wrong at byte");
    REFUSED(safetensors(&file, "{\"a\\u001b[31m\":{}}", 0), GS_EFORMAT, "tensor a?[31m");

    /* nesting, as deep as the file allows */
    file.n = 0;
    add_little(&file, 40000, 8);
    add_text(&file, "{\"a\":");
    while (file.n < 40008)
        add_text(&file, "[");
    REFUSED(&file, GS_EFORMAT, "too deep");

    /* lengths of the header */
    static const uint64_t lengths[] = {
        0, 1, 100000000, 100000001, INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < GSI_COUNT(lengths); i++) {
        gs_error error;
        safetensors(&file, ONE("F32", "[2]", "0", "8"), 8);
        for (int k = 0; k < 8; k++)
            file.data[k] = (uint8_t)(lengths[i] >> 8 * k);
        CHECK(status_of(&file, &error) != GS_OK);
        CHECK(lengths[i] <= 100000000 || error.status == GS_ESIZE);
    }
}

static void test_npy_lies(void)
{
    const char *const good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
    for (int major = 1; major <= 3; major++)
        accepted(npy(&file, major, good, 8));
    REFUSED(npy(&file, 0, good, 8), GS_EVERSION, "version 0.0");
    REFUSED(npy(&file, 4, good, 8), GS_EVERSION, "version 4.0");
    npy(&file, 1, good, 8)->data[7] = 1;
    REFUSED(&file, GS_EVERSION, "version 1.1");
    REFUSED(npy(&file, 1, good, 7), GS_EFORMAT, "ask for 8 bytes of data, but there are 7");
    REFUSED(npy(&file, 1, good, 9), GS_EFORMAT, "there are 9");
    npy(&file, 2, good, 8)->data[11] = 0x7F;
    REFUSED(&file, GS_ESIZE, "says that its header has");

    static const struct {
        const char *text;
        size_t data;
        gs_status status;
        const char *words;
    } cases[] = {
        {"{\"descr\": \">f2\", \"shape\": (1, 3), \"fortran_order\": True}", 6, GS_OK, ""},
        {"{'descr':'|f8','fortran_order':False,'shape':()}", 8, GS_OK, ""},
        {"{'descr':'<f4','fortran_order':False,'shape':(2L,1L)}", 8, GS_OK, ""},
        {"{'descr':'<f4','fortran_order':False,'shape':(0, 3)}", 0, GS_OK, ""},
        {"{'descr':'<M8[ns]','fortran_order':False,'shape':(2,)}", 16, GS_OK, ""},
        {"{'descr':'<U3','fortran_order':False,'shape':(2,)}", 24, GS_OK, ""},
        {"{'descr':'<f16','fortran_order':False,'shape':(1,)}", 16, GS_OK, ""},
        {"{'descr':'|V2','fortran_order':False,'shape':(1,)}", 2, GS_OK, ""},
        {"", 8, GS_EFORMAT, "not a dictionary"},
        {"{", 8, GS_EFORMAT, "malformed"},
        {"{}", 8, GS_EFORMAT, "lacks"},
        {"{'descr':'<f4','fortran_order':False}", 8, GS_EFORMAT, "lacks"},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,),'x':1}", 8, GS_EFORMAT, "none of"},
        {"{'descr':'<f4','descr':'<f4','shape':(2,)}", 8, GS_EFORMAT, "twice"},
        {"{'descr':'<f4' 'fortran_order':False,'shape':(2,)}", 8, GS_EFORMAT, "malformed"},
        {"{,'descr':'<f4','fortran_order':False,'shape':(2,)}", 8, GS_EFORMAT, "malformed"},
        {"{'descr':'<f4','fortran_order':False,'shape':(2,)}x", 8, GS_EFORMAT, "follows"},
        {"{'descr':'<f4','fortran_order':False,'shape':(2)}", 8, GS_EFORMAT, "not a tuple"},
        {"{'descr':'<f4','fortran_order':False,'shape':(,)}", 8, GS_EFORMAT, "not a tuple"},
        {"{'descr':'<f4','fortran_order':False,'shape':(-2,)}", 8, GS_EFORMAT, "not a tuple"},
        {"{'descr':'<f4','fortran_order':False,'shape':(02,)}", 8, GS_EFORMAT, "not a tuple"},
        {"{'descr':'<f4','fortran_order':False,'shape':(2 1,)}", 8, GS_EFORMAT, "not a tuple"},
        {"{'descr':'<f4','fortran_order':False,'shape':[2]}", 8, GS_EFORMAT, "not a tuple"},
        {"{'descr':'<f4','fortran_order':False,'shape':(1,1,1,1,1,1,1,1,1)}", 4, GS_EFORMAT,
         "more than 8"},
        {"{'descr':'<f4','fortran_order':0,'shape':(2,)}", 8, GS_EFORMAT, "neither True"},
        {"{'descr':'f4','fortran_order':False,'shape':(2,)}", 8, GS_EFORMAT, "not a type"},
        {"{'descr':'<f','fortran_order':False,'shape':(2,)}", 8, GS_EFORMAT, "not a type"},
        {"{'descr':'<f0','fortran_order':False,'shape':(2,)}", 0, GS_EFORMAT, "not a type"},
        {"{'descr':'<q4','fortran_order':False,'shape':(2,)}", 8, GS_EFORMAT, "not a type"},
        {"{'descr':'<f4x','fortran_order':False,'shape':(2,)}", 8, GS_EFORMAT, "not a type"},
        {"{'descr':'','fortran_order':False,'shape':(2,)}", 8, GS_EFORMAT, "not a type"},
        {"{'descr':'<f4444444444444444444','fortran_order':False,'shape':()}", 8, GS_EFORMAT,
         "not a type"},
        {"{'descr':'|O','fortran_order':False,'shape':(2,)}", 8, GS_EFORMAT, "Python objects"},
        {"{'descr':[('a','<f4')],'fortran_order':False,'shape':(2,)}", 8, GS_EFORMAT, "structured"},
        {"{'descr':'<f4','fortran_order':False,'shape':(9223372036854775807,)}", 8, GS_ESIZE,
         "overflows"},
        {"{'descr':'<f4','fortran_order':False,'shape':(9223372036854775808,)}", 8, GS_EFORMAT,
         "not a tuple"},
        {"{'descr':'<f4','fortran_order':False,'shape':(4294967296,4294967296)}", 0, GS_ESIZE,
         "overflows"},
        {"{'descr':'|S999999999999','fortran_order':False,'shape':(9999999999,)}", 0, GS_ESIZE,
         "overflows"},
        {"{'descr':'<f4','fortran_order':False,'shape':(1000000000000,)}", 8, GS_EFORMAT,
         "4000000000000 bytes"},
    };
    for (size_t i = 0; i < GSI_COUNT(cases); i++) {
        npy(&file, 1, cases[i].text, cases[i].data);
        if (cases[i].status == GS_OK)
            accepted(&file);
        else
            REFUSED(&file, cases[i].status, cases[i].words);
    }
}

static void test_npz_lies(void)
{
    static bytes array, wide;
    npy(&array, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (100,), }\n", 400);
    npy(&wide, 2, "{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }\n", 0);
    const member stored = member_of("a.npy", array.data, array.n, 0);
    member m[3] = {stored, stored, member_of("b.npy", wide.data, wide.n, 8)};
    m[1].name = "c.npy";
    m[1].method = 8;

    accepted(zip_of(&file, m, 3));
    accepted(zip_of(&file, m, 0));
    for (size_t at = 0; at < 5;
         at += 2) { /* another name in the local header than in the directory */
        zip_of(&file, m, 3);
        file.data[30 + at] ^= 1;
        REFUSED(&file, GS_EFORMAT, "differs from what the directory says of it");
    }
    m[0].zip64 = m[1].zip64 = m[2].zip64 = true;
    accepted(zip_of(&file, m, 3));
    m[0].zip64 = m[1].zip64 = m[2].zip64 = false;

    for (int method = 0; method <= 8; method += 8) {
        member bad[2] = {stored, stored};
        bad[0].method = bad[1].method = method;
        bad[1].name = "c.npy";
        bad[0].crc_xor = 1;
        REFUSED(zip_of(&file, bad, 2), GS_ECHECKSUM, "checksum does not match");
        bad[0].crc_xor = 0;
        bad[0].unpacked_add = 4;
        REFUSED(zip_of(&file, bad, 2), GS_EFORMAT, method ? "ask for 400" : "packed and");
        bad[0].unpacked_add = (uint64_t)-4;
        REFUSED(zip_of(&file, bad, 2), GS_EFORMAT, method ? "ask for 400" : "packed and");
        bad[0].unpacked_add = 0x70000000; /* a bomb */
        REFUSED(zip_of(&file, bad, 2), GS_EFORMAT, "cannot be");
        bad[0].unpacked_add = 0;
        bad[0].packed_add = 0x70000000;
        if (method == 0)
            bad[0].unpacked_add = 0x70000000;
        REFUSED(zip_of(&file, bad, 2), GS_EFORMAT, "overlaps");
        bad[0].packed_add = bad[0].unpacked_add = 0;
        bad[1].local_add = 1;
        REFUSED(zip_of(&file, bad, 2), GS_EFORMAT, "differs from");
        bad[1].local_add = 0x7000000;
        REFUSED(zip_of(&file, bad, 2), GS_EFORMAT, "overlaps");
        bad[1].local_add = 0;
        bad[1].name = "a.npy";
        REFUSED(zip_of(&file, bad, 2), GS_EFORMAT, "two tensors are named a");
        bad[0].flags = 1;
        REFUSED(zip_of(&file, bad, 2), GS_EFORMAT, "encrypted");
        bad[0].flags = 0;
        bad[1].name = "\xC0\x80.npy";
        REFUSED(zip_of(&file, bad, 2), GS_EFORMAT, "UTF-8");
        bad[1].name = "";
        REFUSED(zip_of(&file, bad, 2), GS_EFORMAT, "empty");
        bad[1].name = "notes.txt"; /* listed, and not read */
        accepted(zip_of(&file, bad, 2));
    }
    /* deflated data that is one byte shorter or longer than the directory says */
    m[1].packed_add = (uint64_t)-1;
    REFUSED(zip_of(&file, m, 3), GS_EFORMAT, "unpack");
    m[1].packed_add = 0;
    member odd = stored;
    odd.method = 12; /* bzip2 */
    REFUSED(zip_of(&file, &odd, 1), GS_EFORMAT, "method 12");
    member text = member_of("a.npy", "hello, this is text", 19, 0);
    REFUSED(zip_of(&file, &text, 1), GS_EFORMAT, "member a is not a NumPy array");
    text.n = 3;
    REFUSED(zip_of(&file, &text, 1), GS_EFORMAT, "is not a NumPy array");

    zip_of(&file, m, 3);
    add_little(&file, 0, 1); /* something after the end */
    REFUSED(&file, GS_EFORMAT, "no end record");
    static bytes shifted; /* something before the start */
    shifted.n = 0;
    add_text(&shifted, "PK\3\4");
    zip_of(&file, m, 3);
    add(&shifted, file.data, file.n);
    REFUSED(&shifted, GS_EFORMAT, "does not end where");
}

/* A megabyte of zeros in a kilobyte: read in a window, whatever it unpacks to. */
static void test_bomb(void)
{
    static bytes big;
    static uint8_t packed[8192];
    const char *dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000,), }\n";
    npy(&big, 1, dictionary, 0);
    z_stream z = {0};
    deflateInit2(&z, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY);
    z.next_out = packed;
    z.avail_out = sizeof packed;
    z.next_in = big.data;
    z.avail_in = (unsigned)big.n;
    deflate(&z, Z_NO_FLUSH);
    static const uint8_t zeros[4000];
    uint32_t crc = (uint32_t)crc32(0, big.data, (unsigned)big.n);
    for (int i = 0; i < 1000; i++) {
        z.next_in = (uint8_t *)(uintptr_t)zeros;
        z.avail_in = sizeof zeros;
        deflate(&z, i < 999 ? Z_NO_FLUSH : Z_FINISH);
        crc = (uint32_t)crc32(crc, zeros, sizeof zeros);
    }
    const size_t np = sizeof packed - z.avail_out;
    deflateEnd(&z);
    /* as a stored member of np bytes, then the method and sizes are put right by hand */
    member m = member_of("a.npy", packed, np, 0);
    zip_of(&file, &m, 1);
    const uint64_t fix[] = {8, crc, np, big.n + 4000000};
    const size_t local[] = {8, 14, 18, 22}, central[] = {10, 16, 20, 24}, size[] = {2, 4, 4, 4};
    const size_t directory = 30 + 5 + np;
    for (int f = 0; f < 4; f++)
        for (size_t k = 0; k < size[f]; k++) {
            file.data[local[f] + k] = (uint8_t)(fix[f] >> 8 * k);
            file.data[directory + central[f] + k] = (uint8_t)(fix[f] >> 8 * k);
        }
    accepted(&file); /* status_of checks the largest request */
}

/* Every prefix of a sound file is refused; every damaged byte is refused or reads as something
 * legal; nothing crashes, hangs or asks for much. */
static void damage(const bytes *sound)
{
    static bytes copy;
    gs_error error;
    accepted(sound);
    for (size_t n = 0; n < sound->n; n++) {
        copy = *sound;
        copy.n = n;
        CHECK_MSG(status_of(&copy, &error) != GS_OK, "cut to %zu bytes", n);
    }
    static const uint8_t put[] = {0, 0xFF, ' ', '9', '{', '}', '"', '\'', '(', ',', '\n', '-'};
    for (size_t i = 0; i < sound->n; i++)
        for (size_t k = 0; k < 8 + GSI_COUNT(put); k++) {
            copy = *sound;
            const uint8_t flipped = (uint8_t)(sound->data[i] ^ (1u << (k % 8)));
            copy.data[i] = k < 8 ? flipped : put[k - 8];
            status_of(&copy, &error);
        }
}

static void test_damage_safetensors(void)
{
    static bytes b;
    damage(safetensors(&b,
                       "{\"__metadata__\":{\"k\":\"v\"},"
                       "\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
                       "\"b\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[8,16]}}",
                       16));
}

static void test_damage_npy(void)
{
    static bytes b;
    damage(npy(&b, 2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24));
}

static void test_damage_npz(void)
{
    static bytes b, array;
    npy(&array, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }\n", 20);
    member m[2] = {member_of("a.npy", array.data, array.n, 0),
                   member_of("b.npy", array.data, array.n, 8)};
    damage(zip_of(&b, m, 2));
    m[0].zip64 = true;
    damage(zip_of(&b, m, 2));
}

static void test_not_files(void)
{
    gs_source *s = (gs_source *)&file;
    gs_error error = {0};
    use_folder();
    file.n = 0;
    REFUSED(&file, GS_EFORMAT, "is empty");
    add_text(&file, "hello");
    REFUSED(&file, GS_EFORMAT, "is not a .npy");
    CHECK(gs_source_open(&s, folder, NULL, &error) == GS_EIO && !s);
    CHECK(strstr(error.text, "a directory") != NULL);
    char other[128];
    snprintf(other, sizeof other, "%s/missing.npy", folder);
    CHECK(gs_source_open(&s, other, NULL, &error) == GS_EIO);
    CHECK(strstr(error.text, "missing.npy: cannot be opened") != NULL);
    snprintf(other, sizeof other, "%s/pipe.npy", folder);
    CHECK(mkfifo(other, 0600) == 0);
    CHECK(gs_source_open(&s, other, NULL, &error) == GS_EIO && strstr(error.text, "a pipe"));
    unlink(other);
    CHECK(gs_source_open(&s, "/dev/null", NULL, &error) == GS_EIO && strstr(error.text, "device"));
    CHECK(gs_source_open(&s, NULL, NULL, &error) == GS_ENULL);
    CHECK(gs_source_open(NULL, path, NULL, &error) == GS_ENULL);
    if (geteuid() == 0) {
        test_skip_part("a file without the right to read", "root may read all");
    } else {
        chmod(path, 0);
        CHECK(gs_source_open(&s, path, NULL, &error) == GS_EIO && strstr(error.text, "denied"));
        chmod(path, 0600);
    }
    /* a file whose name says what its content does not */
    snprintf(other, sizeof other, "%s/x.safetensors", folder);
    CHECK(rename(path, other) == 0);
    CHECK(gs_source_open(&s, other, NULL, &error) == GS_EFORMAT);
    CHECK(strstr(error.text, "length of its header") != NULL);
    unlink(other);
    /* a long path and one with an escape sequence: the error message stays whole and clean */
    char deep[400];
    memset(deep, 'd', sizeof deep);
    strcpy(deep + 390, "\x1b[2J");
    CHECK(gs_source_open(&s, deep, NULL, &error) == GS_EIO);
    CHECK(strstr(error.text, "?[2J: cannot be opened") && error.text[0] == '.');
}

static void test_shrinking_file(void)
{
    float x[2];
    gs_source *s;
    gs_error error;
    safetensors(&file, ONE("F32", "[2]", "0", "8"), 8);
    write_file(file.data, file.n);
    CHECK(gs_source_open(&s, path, NULL, &error) == GS_OK);
    CHECK(truncate(path, (off_t)file.n - 1) == 0);
    CHECK(gs_source_read(x, s, 0, 0, 1, &error) == GS_OK);
    CHECK(gs_source_read(x, s, 0, 0, 2, &error) == GS_EIO && strstr(error.text, "shorter"));
    gs_source_close(s);
}

/* The k-th request fails, for every k until none does: always NOMEM, never a leak. */
static void test_no_memory(void)
{
    static bytes array;
    npy(&array, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (100,), }\n", 400);
    member m[2] = {member_of("a.npy", array.data, array.n, 0),
                   member_of("b.npy", array.data, array.n, 8)};
    for (int kind = 0; kind < 3; kind++) {
        const bytes *made = kind == 0   ? &array
                            : kind == 1 ? zip_of(&file, m, 2)
                                        : safetensors(&file, ONE("F32", "[2]", "0", "8"), 8);
        write_file(made->data, made->n);
        gs_status status = GS_ENOMEM;
        for (long k = 0; status != GS_OK && k < 100; k++) {
            gs_error error;
            guard g = {.fail_at = k};
            status = drain(&error, &g);
            CHECK_MSG(status == GS_OK || status == GS_ENOMEM, "%s", error.text);
            CHECK(g.held == 0);
        }
        CHECK(status == GS_OK);
    }
}

/* The last: removes the folder. */
static void test_clean_up(void)
{
    use_folder();
    unlink(path);
    CHECK(rmdir(folder) == 0);
}

TESTS({"numpy_files", test_numpy_files}, {"npz_files", test_npz_files},
      {"safetensors_files", test_safetensors_files}, {"safetensors_lies", test_safetensors_lies},
      {"npy_lies", test_npy_lies}, {"npz_lies", test_npz_lies}, {"bomb", test_bomb},
      {"damage_safetensors", test_damage_safetensors}, {"damage_npy", test_damage_npy},
      {"damage_npz", test_damage_npz}, {"not_files", test_not_files},
      {"shrinking_file", test_shrinking_file}, {"no_memory", test_no_memory},
      {"clean_up", test_clean_up})
