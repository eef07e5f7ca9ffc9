/* Readers of text at their limits: JSON, the headers of safetensors, lines and traces, that are as
 * long as they may be and one longer, and memory that ends at any place. */
#include "gradscale/io.h"
#include "gradscale/trace.h"
#include "io/json.h"
#include "io/lines.h"
#include "io/write.h"

#include "data_files.h"
#include "io_files.h"
#include "memory.h"

#include <math.h>

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
TESTS({"json", test_json}, {"json_memory", test_json_memory},
      {"safetensors_memory", test_safetensors_memory},
      {"safetensors_corners", test_safetensors_corners}, {"long_lines", test_long_lines},
      {"odd_lines", test_odd_lines}, {"traces", test_traces})
