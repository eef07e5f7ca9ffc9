/* Readers and writers where a limit is: lines, numbers, names, images and paths that are as long as
 * they may be and one longer; memory that ends at any place; a disk that is full. */
#include "gradscale/io.h"
#include "gradscale/trace.h"
#include "io/append.h"
#include "io/folder.h"
#include "io/idx.h"
#include "io/image.h"
#include "io/json.h"
#include "io/lines.h"
#include "io/tfevents.h"
#include "io/tokens.h"
#include "io/write.h"

#include "data_files.h"
#include "io_files.h"
#include "memory.h"

#include <math.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>

/* ---- JSON ---- */

static gs_status tree_of(const char *text, size_t n, bool lenient, const gs_alloc *alloc,
                         const char **wrong)
{
    gsi_heap heap;
    gsi_arena arena;
    const gsi_node *root;
    gsi_heap_init(&heap, alloc);
    gsi_arena_init(&arena, &heap);
    gsi_json j = gsi_json_of(text, n);
    j.lenient = lenient;
    const gs_status status = gsi_json_tree(&root, &j, &arena, wrong);
    CHECK((status == GS_EFORMAT) == (*wrong != NULL));
    CHECK(!j.wrong || !gsi_json_next(&j)); /* and stays so */
    gsi_arena_free(&arena);
    CHECK(heap.bytes == 0);
    return status;
}

static void test_json(void)
{
    static const struct {
        const char *text;
        size_t n;
        const char *wrong;
    } refused[] = {{"\"\\\0\"", 4, "an escape that is none"},
                   {"\"\\", 2, "an escape that is none"},
                   {"\"\\u12", 5, "an escape that is none"},
                   {"\"\xFF\"", 3, "not UTF-8"},
                   {"1e999", 5, "real number overflow"},
                   {"[-1e999]", 8, "real number overflow"},
                   {"1 2", 3, "something follows"},
                   {"{1:2}", 5, "a key in quotes"},
                   {"{\"a\" 1}", 7, "a colon"},
                   {"[1 2]", 5, "a comma or an end"},
                   {"-NaN", 4, "a number that is none"},
                   {"{\"a\":1,\"a\":2}", 13, "duplicate"}};
    static const char *const lenient[] = {"NaN", "Infinity", "-NaN", "-Infinity", "[-NaN,-1]"};
    char number[1202];
    const char *wrong = NULL;
    for (size_t i = 0; i < GSI_COUNT(refused); i++) {
        CHECK_MSG(tree_of(refused[i].text, refused[i].n, false, NULL, &wrong) == GS_EFORMAT &&
                      strstr(wrong, refused[i].wrong),
                  "%s: %s", refused[i].text, wrong ? wrong : "");
    }
    for (size_t i = 0; i < GSI_COUNT(lenient); i++)
        for (int as = 0; as < 2; as++)
            CHECK_MSG((tree_of(lenient[i], strlen(lenient[i]), as, NULL, &wrong) == GS_OK) == as,
                      "%s", lenient[i]);
    CHECK(tree_of("-", 1, true, NULL, &wrong) == GS_EFORMAT);
    CHECK(tree_of("-x", 2, true, NULL, &wrong) == GS_EFORMAT);
    memset(number, '1', sizeof number); /* 0.111..: as long as may be, and one longer */
    memcpy(number, "0.", 2);
    CHECK(tree_of(number, 1200, false, NULL, &wrong) == GS_OK);
    CHECK(tree_of(number, 1201, false, NULL, &wrong) == GS_EFORMAT && strstr(wrong, "too long"));
}

/* An arena takes blocks of 64 kB: a string before them makes the second block begin at any of the
 * values behind it. */
static void test_json_memory(void)
{
    enum { ROOM = 1 << 17, BLOCK = 1 << 16 };
    static char text[ROOM];
    int failed = 0;
    for (size_t pad = BLOCK - 6000; pad < BLOCK; pad += 16) {
        size_t n = (size_t)sprintf(text, "[\"");
        memset(text + n, 'x', pad);
        n += pad;
        n += (size_t)sprintf(text + n, "\",{\"key\":\"value\"},{");
        for (int i = 0; i < 20; i++)
            n += (size_t)sprintf(text + n, "%s\"k%d\":%d", i ? "," : "", i, i);
        n += (size_t)sprintf(text + n, "},\"end\"]");
        for (size_t at = 1; at <= 2; at++) {
            books b = {.fail_from = at};
            const gs_alloc hook = books_hook(&b);
            const char *wrong;
            const gs_status status = tree_of(text, n, false, &hook, &wrong);
            CHECK(status == (b.calls >= at ? GS_ENOMEM : GS_OK));
            CHECK(b.blocks == 0 && !b.wrong);
            failed += status == GS_ENOMEM;
        }
    }
    CHECK(failed > 400);
}

/* The same for a file of tensors. */
static void test_safetensors_memory(void)
{
    enum { BLOCK = 1 << 16 };
    static char header[BLOCK + 4096];
    static bytes b;
    int failed = 0;
    for (size_t pad = BLOCK - 4300; pad < BLOCK - 3000; pad += 16) {
        size_t n = (size_t)sprintf(header, "{\"__metadata__\":{\"a\":\"");
        memset(header + n, 'x', pad);
        n += pad;
        n += (size_t)sprintf(header + n, "\",\"b\":\"c\"}");
        for (int i = 0; i < 6; i++)
            n += (size_t)sprintf(header + n,
                                 ",\"t%d\":{\"dtype\":\"U8\",\"shape\":[1],"
                                 "\"data_offsets\":[%d,%d]}",
                                 i, i, i + 1);
        sprintf(header + n, "}");
        safetensors(&b, header, 6);
        write_file("memory", b.data, b.n);
        for (size_t at = 1, made = 0; !made; at++) {
            books k = {.fail_from = at};
            const gs_alloc hook = books_hook(&k);
            gs_source *s = NULL;
            gs_error error = {0};
            const gs_status status = gs_source_open(&s, in_folder("memory"), &hook, &error);
            made = k.calls < at;
            CHECK_MSG(status == (made ? GS_OK : GS_ENOMEM), "%zu: %s", pad, error.text);
            failed += status == GS_ENOMEM;
            gs_source_close(s);
            CHECK(k.blocks == 0 && !k.wrong);
        }
    }
    CHECK(failed > 200);
    empty_folder();
}

static void test_safetensors_corners(void)
{
    static const struct {
        const char *header, *wrong;
        size_t data;
    } files[] = {
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
         "", 2},
        {"{\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         "", 2},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[9,11]}}",
         "lies at 9 to 11, but the file has 2 bytes", 2},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         "lies at 1 to 3, but the file has 2 bytes", 2},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", "two __metadata__", 0},
        {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", "a key twice", 0},
        {"{\"__metadata__\":{}}", "", 0},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
         "overflows", 0},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[9223372036854775807],\"data_offsets\":[0,0]}}",
         "overflows", 0},
        {"{\"\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3"
         "\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3"
         "\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3"
         "\xA9\xC3\xA9\":7}",
         "\xA9... is not described", 0}};
    static bytes b;
    for (size_t i = 0; i < GSI_COUNT(files); i++) {
        gs_source *s = NULL;
        gs_error error = {0};
        safetensors(&b, files[i].header, files[i].data);
        write_file("t", b.data, b.n);
        const gs_status status = gs_source_open(&s, in_folder("t"), NULL, &error);
        CHECK_MSG((status == GS_OK) == !files[i].wrong[0] && strstr(error.text, files[i].wrong),
                  "%s: %s", files[i].header, error.text);
        gs_source_close(s);
    }
    empty_folder();
}

/* ---- lines ---- */

static void test_long_lines(void)
{
    static const struct {
        size_t n;
        int lines; /* that are refused, of this one */
        const char *behind;
    } files[] = {{GSI_LINE_MAX, 0, "\nb\n"},
                 {GSI_LINE_MAX + 1, 1, "\nb\n"},
                 {GSI_LINE_MAX + (1 << 17), 1, "\nb\n"},
                 {2 * (size_t)GSI_LINE_MAX + (1 << 18), 2, "\nb\n"},
                 {GSI_LINE_MAX + 1, 1, ""}};
    char *text = malloc(3 * (size_t)GSI_LINE_MAX);
    for (size_t i = 0; i < GSI_COUNT(files); i++) {
        gsi_lines l;
        gs_error error = {0};
        bool more = false;
        memset(text, 'x', files[i].n);
        strcpy(text + files[i].n, files[i].behind);
        write_file("long", text, files[i].n + strlen(files[i].behind));
        CHECK(gsi_lines_open(&l, in_folder("long"), NULL, &error) == GS_OK);
        for (int k = 0; k < files[i].lines; k++)
            CHECK(gsi_lines_next(&l, &more, &error) == GS_ESIZE && more &&
                  strstr(error.text, "is longer than 16777216 bytes"));
        if (files[i].lines == 0)
            CHECK(gsi_lines_next(&l, &more, &error) == GS_OK && l.length == files[i].n);
        if (files[i].behind[0])
            CHECK(gsi_lines_next(&l, &more, &error) == GS_OK && more && strcmp(l.text, "b") == 0);
        CHECK(gsi_lines_next(&l, &more, &error) == GS_OK && !more);
        gsi_lines_close(&l);
    }
    free(text);
    empty_folder();
}

static void test_odd_lines(void)
{
    static const struct {
        const char *text;
        size_t n, length;
        gs_status status;
    } files[] = {{"a\tb \t\r\n", 7, 3, GS_OK},  {" \t\r\n", 4, 0, GS_OK},
                 {"a\rb\n", 4, 3, GS_OK},       {"a\x7F\n", 3, 2, GS_EFORMAT},
                 {"a\x1F\n", 3, 2, GS_EFORMAT}, {"a\0\n", 3, 2, GS_EFORMAT},
                 {"\xC3\xA9\n", 3, 2, GS_OK},   {"end", 3, 3, GS_OK}};
    for (int as = 0; as < 2; as++)
        for (size_t i = 0; i < GSI_COUNT(files); i++) {
            gsi_lines l;
            gs_error error = {0};
            bool more = false;
            write_file("odd", files[i].text, files[i].n);
            const int fd = open(in_folder("odd"), O_RDONLY), before = dup(STDIN_FILENO);
            dup2(fd, STDIN_FILENO);
            CHECK(gsi_lines_open(&l, as ? "-" : in_folder("odd"), NULL, &error) == GS_OK);
            CHECK_MSG(gsi_lines_next(&l, &more, &error) == files[i].status && more &&
                          l.length == files[i].length,
                      "%zu: %s", i, error.text);
            gsi_lines_close(&l);
            dup2(before, STDIN_FILENO);
            close(before);
            close(fd);
        }
    size_t room = SIZE_MAX / 2 + 2; /* no room is that large */
    char *block = NULL;
    gsi_heap heap;
    gsi_heap_init(&heap, NULL);
    CHECK(!gsi_grow(&heap, &block, &room, SIZE_MAX, 1) && !block);
    room = 0;
    CHECK(!gsi_grow(&heap, &block, &room, SIZE_MAX / 4, 8) && !block);
    empty_folder();
}

/* ---- traces ---- */

static int compared(const char *text)
{
    gs_trace_file *f;
    const gs_trace *trace = NULL;
    gs_error error = {0};
    int same = 0;
    write_text("trace", text);
    CHECK(gs_trace_open(&f, in_folder("trace"), NULL, &error) == GS_OK);
    gs_status status = gs_trace_next(&trace, f, &error);
    if (status == GS_OK && trace)
        status = gs_trace_compare(&same, trace, &error);
    CHECK_MSG((status == GS_OK && same) || error.text[0], "%s", text);
    gs_trace_close(f);
    return status != GS_OK ? -1 : same;
}

#define TRACE  "trace t\npreset pytorch\n"
#define RAISES "trace t\npreset deepspeed-0.17.0\nsteps 18\nfound 0 18\n" /* in step 17 */
static void test_traces(void)
{
    static const struct {
        int is;
        const char *text;
    } traces[] = {{1, TRACE "steps 3\nfound 1\t1\t1\nscale start:0x1p+16 1:0x1p+15\nend\n"},
                  {-1, TRACE "steps 1000000001\nfound 1000000001\nend\n"},
                  {-1, TRACE "steps 3\nfound 1 1 1\nscale stars:0x1p+16\nend\n"},
                  {-1, TRACE "steps 3\nfound 1 1 1\nscale\nend\n"},
                  {-1, TRACE "steps 3\nfound 1 1 1\nscale 1:0x1p+15\nend\n"},
                  {0, TRACE "steps 3\nfound 1 1 1\nscale start:0x1p+16 start:0x1p+16\nend\n"},
                  {1, RAISES "error 17\nend\n"},
                  {0, RAISES "error 16\nend\n"},
                  {0, RAISES "error 99\nend\n"},
                  {0, RAISES "error 17 99\nend\n"},
                  {-1, RAISES "error 17 17\nend\n"},
                  {-1, RAISES "error 17 x\nend\n"}};
    for (size_t i = 0; i < GSI_COUNT(traces); i++)
        CHECK_MSG(compared(traces[i].text) == traces[i].is, "%s", traces[i].text);
    gs_trace_file *f;
    const gs_trace *trace;
    gs_error error = {0};
    FILE *full = fopen("/dev/full", "w");
    write_text("trace", TRACE "steps 0\nfound\nend\n");
    CHECK(gs_trace_open(&f, in_folder("trace"), NULL, &error) == GS_OK);
    CHECK(gs_trace_next(&trace, f, &error) == GS_OK && trace);
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        CHECK(gs_trace_write(full, trace, &error) == GS_EIO);
        CHECK(strstr(error.text, "trace t could not be written"));
        fclose(full);
    }
    gs_trace_close(f);
    empty_folder();
}

/* ---- arrays ---- */

static void test_types(void)
{
    static const struct {
        const char *name;
        uint64_t bits;
        double value;
        size_t item;
    } types[] = {{"u1", 200, 200, 1},
                 {"i1", 0xFE, -2, 1},
                 {"i2", 0xFFFE, -2, 2},
                 {"u2", 0xFFFE, 65534, 2},
                 {"f2", 0x3E00, 1.5, 2},
                 {"u4", 0xFFFFFFFE, 4294967294.0, 4},
                 {"i4", 0xFFFFFFFE, -2, 4},
                 {"f4", 0x3FC00000, 1.5, 4},
                 {"i8", (uint64_t)-2, -2, 8},
                 {"u8", 1ull << 52, 4503599627370496.0, 8},
                 {"f8", 0x3FF8000000000000, 1.5, 8}};
    gsi_heap heap;
    gs_error error = {0};
    gsi_idx idx;
    gsi_heap_init(&heap, NULL);
    for (size_t i = 0; i < GSI_COUNT(types); i++) {
        const size_t shape[1] = {3};
        double values[2] = {0};
        CHECK_MSG(gsi_idx_new(&idx, "x", types[i].name, 1, shape, &heap, &error) == GS_OK, "%s",
                  error.text);
        memset(idx.data, 0, 3 * types[i].item);
        const uint8_t one = (uint8_t)types[i].bits;
        const uint16_t two = (uint16_t)types[i].bits;
        const uint32_t four = (uint32_t)types[i].bits;
        const void *const from = types[i].item == 1   ? (const void *)&one
                                 : types[i].item == 2 ? (const void *)&two
                                 : types[i].item == 4 ? (const void *)&four
                                                      : (const void *)&types[i].bits;
        memcpy((char *)idx.data + types[i].item, from, types[i].item);
        gsi_idx_values(values, &idx, 1, 2);
        CHECK_MSG(values[0] == types[i].value && values[1] == 0, "%s: %g", types[i].name,
                  values[0]);
        gsi_idx_free(&idx, &heap);
    }
    const size_t large[3] = {(size_t)1 << 31, (size_t)1 << 31, (size_t)1 << 31},
                 wide[1] = {SIZE_MAX / 4}, none[1] = {0};
    CHECK(gsi_idx_new(&idx, "x", "u1", 3, large, &heap, &error) == GS_ENOMEM && !idx.data);
    CHECK(gsi_idx_new(&idx, "x", "f8", 1, wide, &heap, &error) == GS_ENOMEM && !idx.data);
    CHECK(gsi_idx_new(&idx, "x", "u1", 1, none, &heap, &error) == GS_ESIZE && !idx.data);
    CHECK(gsi_idx_new(&idx, "x", "c8", 1, none, &heap, &error) == GS_EDTYPE && !idx.data);
    CHECK(heap.bytes == 0);
}

static void test_idx_header(void)
{
    bytes b = {.n = 0};
    gsi_heap heap;
    gs_error error = {0};
    gsi_idx idx;
    gsi_heap_init(&heap, NULL);
    for (int rank = 2; rank <= 4; rank += 2) { /* elements that 64 bits can count, and not */
        b.n = 0;
        add_big(&b, 0x0E00u | (unsigned)rank, 4); /* f64 */
        for (int i = 0; i < rank; i++)
            add_big(&b, 0xFFFFFFFF, 4);
        write_file("idx", b.data, b.n);
        CHECK(gsi_idx_read(&idx, in_folder("idx"), &heap, &error) == GS_EFORMAT);
        CHECK_MSG(strstr(error.text, "its header announces more than any file can hold"), "%s",
                  error.text);
    }
    CHECK(heap.bytes == 0);
    empty_folder();
}

/* Without a header they are known by their names alone: these, and no others. */
static void test_bare_tokens(void)
{
    static const struct {
        const char *name, *data;
        size_t n;
        int tokens; /* -1: it is refused */
    } files[] = {{"train.bin", "\1\0\2\0\3\0", 6, 3},
                 {"val.bin", "\1\0", 2, 1},
                 {"train.bin", "\1\0\2", 3, -1},
                 {"xtrain.bin", "\1\0\2\0", 4, -1},
                 {"n.bin", "\1\0\2\0", 4, -1},
                 {"val.bin", "\x88\xD8\x34\x01", 4, -1},  /* llm.c's magic, and no more */
                 {"val.bin", "\xA1\xD9\x34\x01", 4, -1}}; /* that of wide tokens */
    for (size_t i = 0; i < GSI_COUNT(files); i++) {
        gsi_tokens t = {0};
        gs_error error = {0};
        write_file(files[i].name, files[i].data, files[i].n);
        const gs_status status = gsi_tokens_open(&t, in_folder(files[i].name), &error);
        CHECK_MSG((status == GS_OK ? (int)t.count : -1) == files[i].tokens, "%zu: %s", i,
                  error.text);
        if (status == GS_OK)
            gsi_tokens_close(&t);
    }
    empty_folder();
}

/* ---- images ---- */

/* The sizes of a JPEG are two big-endian numbers behind its marker. */
static void test_image_sizes(void)
{
    static const struct {
        unsigned height, width;
    } sizes[] = {{16385, 8}, {8, 16385}, {16384, 16384}, {65500, 1}};
    uint8_t jpeg[512];
    gsi_heap heap;
    gsi_image8 image;
    gs_error error = {0};
    gsi_heap_init(&heap, NULL);
    FILE *f = fopen("tests/fuzz/corpus/image/grey.jpg", "rb");
    const size_t n = f ? fread(jpeg, 1, sizeof jpeg, f) : 0;
    CHECK(n > 100 && n < sizeof jpeg);
    if (f)
        fclose(f);
    size_t at = 0;
    while (at + 9 < n && !(jpeg[at] == 0xFF && jpeg[at + 1] == 0xC0))
        at++;
    CHECK(at + 9 < n);
    for (size_t i = 0; i < GSI_COUNT(sizes); i++) {
        jpeg[at + 5] = (uint8_t)(sizes[i].height >> 8);
        jpeg[at + 6] = (uint8_t)sizes[i].height;
        jpeg[at + 7] = (uint8_t)(sizes[i].width >> 8);
        jpeg[at + 8] = (uint8_t)sizes[i].width;
        write_file("size.jpg", jpeg, n);
        CHECK_MSG(gsi_image_look(&image, in_folder("size.jpg"), &heap, &error) == GS_ESIZE &&
                      strstr(error.text, "at most 16384 a side"),
                  "%u x %u: %s", sizes[i].height, sizes[i].width, error.text);
    }
    CHECK(heap.bytes == 0);
    empty_folder();
}

/* ---- writing ---- */

static void test_append(void)
{
    gsi_append log;
    gs_error error = {0};
    struct stat about;
    struct rlimit before, small;
    CHECK(gsi_append_open(&log, "/dev/null", &error) == GS_OK);
    CHECK(gsi_append_sync(&log, &error) == GS_OK); /* it has nothing to bring to a disk */
    gsi_append_close(&log);
    CHECK(gsi_append_write(&log, "x", 1, &error) == GS_OK); /* of one that failed: passed over */
    CHECK(gsi_append_sync(&log, &error) == GS_OK && gsi_append_cut(&log, 0, &error) == GS_OK);

    /* a disk that is full in the middle of a line: the line is taken back */
    CHECK(gsi_append_open(&log, in_folder("log"), &error) == GS_OK);
    CHECK(gsi_append_write(&log, "whole\n", 6, &error) == GS_OK);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 10;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const gs_status status = gsi_append_write(&log, "too long\n", 9, &error);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(status == GS_EIO && strstr(error.text, "writing failed") && log.fd < 0);
    CHECK(stat(in_folder("log"), &about) == 0 && about.st_size == 6);
    empty_folder();
}

/* What TensorBoard cannot show is passed over. */
static void test_events(void)
{
    static char path[5000];
    const char tag[] = "a tag that is longer than the forty-eight bytes of one";
    const gsi_scalar none[] = {{"x", (double)NAN}, {tag, 1}},
                     some[] = {{"x", 1}, {"y", (double)INFINITY}};
    gsi_append log;
    gs_error error = {0};
    struct stat before, after;
    CHECK(gsi_tfevents_open(&log, in_folder("events"), &error) == GS_OK);
    CHECK(fstat(log.fd, &before) == 0);
    CHECK(gsi_tfevents_scalars(&log, 1, none, 2, &error) == GS_OK);
    CHECK(fstat(log.fd, &after) == 0 && after.st_size == before.st_size);
    CHECK(gsi_tfevents_scalars(&log, 1, some, 2, &error) == GS_OK);
    CHECK(fstat(log.fd, &after) == 0 && after.st_size > before.st_size);
    gsi_append_close(&log);
    CHECK(gsi_tfevents_scalars(&log, 1, some, 2, &error) == GS_OK);
    size_t n = (size_t)snprintf(path, sizeof path, "%s", in_folder("events"));
    while (n + 2 < 4080) /* a folder that is there, by a name that leaves no room for a file's */
        n += (size_t)snprintf(path + n, sizeof path - n, "/.");
    CHECK(gsi_tfevents_open(&log, path, &error) == GS_ESIZE && log.fd < 0);
    CHECK(strstr(error.text, "the path is too long"));
    gsi_heap heap;
    gsi_heap_init(&heap, NULL);
    gsi_paths paths = {.heap = &heap};
    CHECK(gsi_paths_walk(&paths, in_folder("events/"), &error) == GS_OK && paths.n == 1);
    CHECK(!strstr(paths.list[0], "//"));
    gsi_paths_free(&paths);
    CHECK(heap.bytes == 0);
    empty_folder();
}

static void test_temporaries(void)
{
    static const char *const stay[] = {"x.tmp",      ".tmp",      "x.1-.tmp",  "x.-1.tmp",
                                       "x.1-1.tmp2", "x1-1.tmp",  "1-1.tmp",   ".1-1.tmp",
                                       "x.1-1x.tmp", "y.1-1.tmp", "xx.1-1.tmp"};
    char name[64];
    struct stat st;
    gsi_replace r;
    gs_error error = {0};
    for (size_t i = 0; i < GSI_COUNT(stay); i++)
        write_text(stay[i], "");
    write_text("x.1-1.tmp", "");
    write_text("x.123-45.tmp", "");
    CHECK(symlink("/nowhere", in_folder("x.7-7.tmp")) == 0);
    gsi_remove_temporaries(folder, "x");
    CHECK(stat(in_folder("x.1-1.tmp"), &st) != 0 && stat(in_folder("x.123-45.tmp"), &st) != 0);
    CHECK(lstat(in_folder("x.7-7.tmp"), &st) == 0); /* links are not followed, nor removed */
    for (size_t i = 0; i < GSI_COUNT(stay); i++)
        CHECK_MSG(stat(in_folder(stay[i]), &st) == 0, "%s", stay[i]);
    write_text("a.safetensors.1-1.tmp", "");
    write_text("safetensors.1-1.tmp", "");
    gsi_remove_temporaries(folder, NULL);
    CHECK(stat(in_folder("a.safetensors.1-1.tmp"), &st) != 0);
    CHECK(stat(in_folder("safetensors.1-1.tmp"), &st) == 0 && stat(in_folder("x.tmp"), &st) == 0);
    gsi_remove_temporaries("/nowhere", NULL);

    /* one that another process is writing stays, and the next name is taken */
    snprintf(name, sizeof name, "f.%ld-0.tmp", (long)getpid());
    write_text(name, "");
    const int fd = open(in_folder(name), O_RDONLY);
    CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
    CHECK(gsi_replace_begin(&r, in_folder("f"), &error) == GS_OK);
    CHECK(strstr(r.temporary, "-1.tmp") && stat(in_folder(name), &st) == 0);
    CHECK(gsi_replace_end(&r, &error) == GS_OK && stat(in_folder("f"), &st) == 0);
    close(fd);
    unlink(in_folder(name));
    for (int i = 0; i < 1000; i++) { /* no name is free */
        char path[160];
        snprintf(path, sizeof path, "%s/g.%ld-%d.tmp", folder, (long)getpid(), i);
        CHECK(mkdir(path, 0700) == 0);
    }
    CHECK(gsi_replace_begin(&r, in_folder("g"), &error) == GS_EIO);
    CHECK(strstr(error.text, "cannot be written: File exists"));
    empty_folder();
}

static void test_long_paths(void)
{
    static char path[2 * GSI_PATH], of[GSI_PATH];
    gs_error error = {0};
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 3] = '/';
    CHECK(!gsi_folder_of(of, path));
    for (int twice = 0; twice < 2; twice++)
        CHECK(gsi_make_folder(in_folder("a/b/c"), &error) == GS_OK);
    CHECK(gsi_make_folder("", &error) == GS_ESIZE);
    empty_folder();
}

static void test_names_of_tensors(void)
{
    static const struct {
        const char *first, *second, *wrong;
    } names[] = {{"a", "b", ""},
                 {"", "b", "no file can hold a tensor with the name"},
                 {"a", "__metadata__", "no file can hold a tensor with the name __metadata__"},
                 {"a", "\xFF", "no file can hold"},
                 {"a", "a", "two tensors of the file would be called a"},
                 {"a", GSI_CHECKSUM_NAME, "two tensors of the file would be called"}};
    float value = 1;
    gsi_heap heap;
    gsi_heap_init(&heap, NULL);
    for (size_t i = 0; i < GSI_COUNT(names); i++) {
        gsi_tensor list[2] = {
            {.name = names[i].first, .data = &value, .dtype = GS_F32, .count = 1},
            {.name = names[i].second, .data = &value, .dtype = GS_F32, .count = 1}};
        gs_error error = {0};
        gs_source *s = NULL;
        const gs_status status =
            gsi_safetensors_export(in_folder("t"), list, 2, NULL, 0, &heap, &error);
        CHECK_MSG((status == GS_OK) == !names[i].wrong[0] && strstr(error.text, names[i].wrong),
                  "%zu: %s", i, error.text);
        if (status != GS_OK)
            continue;
        CHECK(gs_source_open(&s, in_folder("t"), NULL, &error) == GS_OK && gs_source_count(s) == 2);
        gs_source_close(s);
        CHECK(gsi_safetensors_export(in_folder("none/t"), list, 2, NULL, 0, &heap, &error) ==
              GS_EIO);
        CHECK(gsi_safetensors_export(in_folder("t"), list, 0, NULL, 0, &heap, &error) == GS_OK);
    }
    enum { LONG = 100 << 20 };
    char *name = malloc(LONG + 1);
    memset(name, 'n', LONG);
    name[LONG] = 0;
    gsi_tensor list[1] = {{.name = name, .data = &value, .dtype = GS_F32, .count = 1}};
    gs_error error = {0};
    CHECK(gsi_safetensors_export(in_folder("t"), list, 1, NULL, 0, &heap, &error) == GS_ESIZE);
    CHECK(strstr(error.text, "are too long for one file"));
    free(name);
    CHECK(heap.bytes == 0);
    empty_folder();
}

TESTS({"json", test_json}, {"json_memory", test_json_memory},
      {"safetensors_memory", test_safetensors_memory},
      {"safetensors_corners", test_safetensors_corners}, {"long_lines", test_long_lines},
      {"odd_lines", test_odd_lines}, {"traces", test_traces}, {"types", test_types},
      {"idx_header", test_idx_header}, {"bare_tokens", test_bare_tokens}, {"events", test_events},
      {"image_sizes", test_image_sizes}, {"append", test_append}, {"temporaries", test_temporaries},
      {"long_paths", test_long_paths}, {"names_of_tensors", test_names_of_tensors})
