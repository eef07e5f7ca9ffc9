/* Files that are almost right: every cut of a header, lines that lie, images of every kind, paths
 * at their limits. Nothing is taken that is not whole, and every refusal says why. */
#include "gradscale/io.h"
#include "gradscale/trace.h"
#include "io/image.h"
#include "io/json.h"
#include "io/write.h"

#include "data_files.h"
#include "io_files.h"

/* ---- JSON and safetensors ---- */

static gs_status tree_of(const char *text, size_t n)
{
    gsi_heap heap;
    gsi_arena arena;
    const gsi_node *root;
    const char *wrong = NULL;
    gsi_heap_init(&heap, NULL);
    gsi_arena_init(&arena, &heap);
    gsi_json j = gsi_json_of(text, n);
    const gs_status status = gsi_json_tree(&root, &j, &arena, &wrong);
    CHECK_MSG(status == GS_OK || wrong || status != GS_EFORMAT, "%.*s", (int)n, text);
    gsi_arena_free(&arena);
    return status;
}

static gs_status tensors_of(const char *header, size_t data)
{
    static bytes b;
    gs_source *s;
    gs_error error = {0};
    safetensors(&b, header, data);
    write_file("header", b.data, b.n);
    const gs_status status = gs_source_open(&s, in_folder("header"), NULL, &error);
    CHECK_MSG((status == GS_OK) == !error.text[0], "%s", header);
    gs_source_close(s);
    return status;
}

static const char header[] =
    "{\"__metadata__\":{\"a\":\"b\",\"c\":\"d\"},\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],"
    "\"data_offsets\":[0,24]},\"v\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]}}";

static void test_every_cut(void)
{
    char text[sizeof header];
    CHECK(tree_of(header, strlen(header)) == GS_OK && tensors_of(header, 26) == GS_OK);
    for (size_t n = 0; n < strlen(header); n++) {
        memcpy(text, header, n);
        text[n] = 0;
        CHECK_MSG(tree_of(text, n) != GS_OK, "%s", text);
        CHECK_MSG(tensors_of(text, 26) != GS_OK, "%s", text);
    }
}

/* Each character replaced by each of these: taken or refused, but never without a reason. */
static void test_every_character(void)
{
    static const char others[] = "\"{}[],:0-x\\ \x01";
    char text[sizeof header];
    int taken = 0;
    for (size_t n = 0; n < strlen(header); n++)
        for (const char *p = others; *p; p++) {
            strcpy(text, header);
            text[n] = *p;
            const gs_status tree = tree_of(text, strlen(text)), tensors = tensors_of(text, 26);
            CHECK_MSG(tensors != GS_OK || tree == GS_OK, "%s", text);
            taken += tensors == GS_OK;
        }
    CHECK(taken > 50); /* letters of names */
}

static void test_headers_that_lie(void)
{
    static const char *const refused[] = {
        "[]",
        "{\"w\":3}",
        "{\"w\":{\"dtype\":3,\"shape\":[],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[\"1\"],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,0]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[],\"shape\":[],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"more\":1}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,2],\"data_offsets\":[0,4]}}",
        ("{\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
         "\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}"),
        "{\"__metadata__\":[]}",
        "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}} x"};
    for (size_t i = 0; i < GSI_COUNT(refused); i++)
        CHECK_MSG(tensors_of(refused[i], 4) != GS_OK, "%s", refused[i]);
}

/* ---- traces ---- */

/* 0: it is refused; 1: it differs; 2: it is as recorded */
static int trace_of(const char *text)
{
    gs_trace_file *f;
    const gs_trace *trace;
    gs_error error = {0};
    int same = 1, all = 1;
    write_text("trace", text);
    if (gs_trace_open(&f, in_folder("trace"), NULL, &error) != GS_OK)
        return 0;
    gs_status status;
    while ((status = gs_trace_next(&trace, f, &error)) == GS_OK && trace && all) {
        status = gs_trace_compare(&same, trace, &error);
        if (status != GS_OK)
            break;
        all &= same;
    }
    gs_trace_close(f);
    CHECK_MSG((status == GS_OK && all) || error.text[0], "%s", text);
    return status != GS_OK ? 0 : all ? 2 : 1;
}

#define TRACE "trace t\npreset pytorch\n"
static void test_traces_that_lie(void)
{
    static const struct {
        int is;
        const char *text;
    } traces[] = {
        {2, TRACE "steps 3\nfound 1 1 1\nscale start:0x1p+16 1:0x1p+15\nend\n"},
        {2, "# a comment\n\n" TRACE "steps 0\nfound\nscale start:0x1p+16\nend\n"},
        {1, TRACE "steps 3\nfound 1 1 1\nscale start:0x1p+16\nend\n"},
        {1, TRACE "steps 3\nfound 1 1 1\nscale start:0x1p+17 1:0x1p+15\nend\n"},
        {1, TRACE "steps 3\nfound 1 1 1\nscale start:0x1p+16 1:0x1p+15 9:0x1p+14\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nscale 0:0x1p+16\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nscale start\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nscale start:many\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nscale :0x1p+16\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nscale start:0x1p+16 1:\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nscale start:0x1p+16 x:0x1p+15\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nscale start:0x1p+16 1:0x1p+15 1:0x1p+15\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nscale start:0x1p+16 1:0x1p+15 "
                  "2:0000000000000000000000000000000000000000000000000001\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nscale start:0x1p+16 99999999999999999999:1\nend\n"},
        {0, TRACE "steps 3\nfound 1 1\nscale start:0x1p+16\nend\n"},
        {0, TRACE "steps 3x\nfound 1 1 1\nscale start:0x1p+16\nend\n"},
        {0, TRACE "steps 3 3\nfound 1 1 1\nscale start:0x1p+16\nend\n"},
        {0, TRACE "steps 99999999999999\nfound 1\nscale start:0x1p+16\nend\n"},
        {0, TRACE "steps 3\nfound 1 -1 3\nscale start:0x1p+16\nend\n"},
        {0, TRACE "steps 3\nfound 1 1x 1\nscale start:0x1p+16\nend\n"},
        {0, TRACE "steps 3\nsteps 3\nfound 1 1 1\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nerror x\nend\n"},
        {0, TRACE "steps 3\nfound 1 1 1\nerror 1 1\nend\n"},
        {1, TRACE "steps 3\nfound 1 1 1\nerror 1\nend\n"},
        {1, TRACE "steps 3\nfound 1 1 1\nerror 7\nend\n"},
        {2, TRACE "steps 3\nfound 1 1 1\nend\n"},
        {0, TRACE "set nothing=3\nsteps 3\nfound 1 1 1\nend\n"},
        {2, TRACE "set interval=2\nsteps 3\nfound 1 1 1\nend\n"},
        {0, "trace t\npreset none-such\nsteps 0\nfound\nend\n"},
        {0, "trace t\nsteps 0\nfound\nend\n"},
        {0, "trace\n"},
        {0, "steps 3\n"},
        {0, "word 3\n"},
        {0, TRACE "word 3\n"},
        {0, "trace t\ntrace u\n"},
        {0, TRACE "steps 3\n"},
        {0, ""},
        {0, "# nothing\n"}};
    for (size_t i = 0; i < GSI_COUNT(traces); i++) {
        const int is = trace_of(traces[i].text);
        CHECK_MSG(is == traces[i].is, "%d: %s", is, traces[i].text);
    }
}

/* ---- images ---- */

static void test_images_of_all_kinds(void)
{
    static const struct {
        const char *name;
        size_t width, height, channels;
    } files[] = {{"rgb.png", 4, 3, 3},   {"palette.png", 5, 2, 3}, {"grey16.png", 2, 2, 1},
                 {"grey1.png", 9, 2, 1}, {"grey.png", 3, 2, 1},    {"rgba.png", 2, 2, 3},
                 {"grey.jpg", 16, 9, 1}, {"rgb.jpg", 7, 9, 3},     {"progressive.jpg", 16, 9, 3}};
    gsi_heap heap;
    gsi_heap_init(&heap, NULL);
    for (size_t i = 0; i < GSI_COUNT(files); i++)
        for (size_t channels = 0; channels <= 3; channels += channels == 1 ? 2 : 1)
            for (int exact = 0; exact < 2; exact++) {
                char path[128];
                gs_error error = {0};
                gsi_image8 image;
                snprintf(path, sizeof path, "tests/fuzz/corpus/image/%s", files[i].name);
                const gs_status status =
                    gsi_image_read(&image, path, channels, exact, &heap, &error);
                if (status != GS_OK) { /* exact: what has three channels is no mask */
                    CHECK_MSG(exact && error.text[0], "%s: %s", files[i].name, error.text);
                    continue;
                }
                CHECK_MSG(image.width == files[i].width && image.height == files[i].height, "%s",
                          files[i].name);
                CHECK_MSG(exact || image.channels == (channels ? channels : files[i].channels),
                          "%s: %zu channels of %zu", files[i].name, image.channels, channels);
                float to[2 * 2 * 3], wide[5 * 3 * 3];
                gsi_image_fit(to, 2, 2, &image, false);
                gsi_image_fit(wide, 5, 3, &image, true);
                CHECK(to[0] >= 0 && to[0] <= 255 && wide[0] >= 0 && wide[0] <= 255);
                gsi_free(&heap, image.data);
            }
    CHECK(heap.bytes == 0);
    static const char *const names[] = {"a.png", "b.jpeg", "c.JPG", ".png", "d.gif", ""};
    for (size_t i = 0; i < GSI_COUNT(names); i++)
        CHECK_MSG(gsi_image_name(names[i]) == (i < 3), "%s", names[i]);
}

/* ---- paths and large files ---- */

static void test_paths(void)
{
    static char longest[GSI_PATH + 64], path[GSI_PATH];
    gsi_replace r;
    gs_error error;
    memset(longest, 'a', sizeof longest - 1);
    static const char *const folders[][2] = {{"/x", "/"}, {"x", "."}, {"a/b/x", "a/b"}};
    for (size_t i = 0; i < GSI_COUNT(folders); i++) {
        gsi_folder_of(path, folders[i][0]);
        CHECK_MSG(strcmp(path, folders[i][1]) == 0, "%s: %s", folders[i][0], path);
    }
    CHECK(gsi_replace_begin(&r, longest, &error) != GS_OK && error.text[0]);
    CHECK(!gsi_replace_by_link(longest, "x"));
    CHECK(!gsi_path_replace(path, "a/b", "images", "labels"));
    CHECK(gsi_path_replace(path, "images/images-images", "images", "labels") &&
          strcmp(path, "images/images-labels") == 0);
    longest[GSI_PATH - 3] = 0;
    CHECK(!gsi_path_replace(path, longest, "aa", "longer"));
    longest[GSI_PATH - 1] = 0;
    memset(longest, 'b', GSI_PATH - 2);
    longest[0] = '/'; /* a folder of one letter, and a name that no file system takes */
    CHECK(gsi_replace_begin(&r, longest, &error) != GS_OK && error.text[0]);
    CHECK(gsi_make_folder(longest, &error) != GS_OK && error.text[0]);
}

static void test_a_large_file(void)
{
    static uint8_t piece[3 << 20];
    struct stat st;
    gsi_replace r;
    gs_error error = {0};
    CHECK(gsi_replace_begin(&r, in_folder("large"), &error) == GS_OK);
    for (int i = 0; i < 4; i++) /* more than is sent to the disk at once */
        CHECK(gsi_replace_write(&r, piece, sizeof piece, &error) == GS_OK);
    CHECK_MSG(gsi_replace_end(&r, &error) == GS_OK, "%s", error.text);
    CHECK(stat(in_folder("large"), &st) == 0 && (size_t)st.st_size == 4 * sizeof piece);
    empty_folder();
}

TESTS({"every_cut", test_every_cut}, {"every_character", test_every_character},
      {"headers_that_lie", test_headers_that_lie}, {"traces_that_lie", test_traces_that_lie},
      {"images_of_all_kinds", test_images_of_all_kinds}, {"paths", test_paths},
      {"a_large_file", test_a_large_file})
