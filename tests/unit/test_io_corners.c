/* Files that are almost right: every cut of a header, lines that lie, images of every kind, paths
 * at their limits. Nothing is taken that is not whole, and every refusal says why. */
#include "gradscale/io.h"
#include "gradscale/trace.h"
#include "io/idx.h"
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

/* ---- arrays ---- */

#define NPY(type) "{'descr': '" type "', 'fortran_order': False, 'shape': (2,), }"

static gs_status open_bytes(const char *name, const bytes *b, gs_source **s, gs_error *error)
{
    *error = (gs_error){0};
    write_file(name, b->data, b->n);
    return gs_source_open(s, in_folder(name), NULL, error);
}

static void test_types_that_lie(void)
{
    static const struct {
        const char *header, *wrong;
        size_t data;
    } arrays[] = {{NPY("<f4"), "", 8},
                  {NPY("<M8[ns]"), "", 16},
                  {NPY("<M8x"), "descr is not a type", 16},
                  {NPY("<m8"), "", 16},
                  {NPY("|S0"), "", 0}, /* strings without a letter */
                  {NPY("<U2"), "", 16},
                  {NPY("<U9999999999999"), "the shape and type ask for 79999999999992 bytes", 8},
                  {NPY("<U10000000000000"), "descr is not a type", 8},
                  {"{descr: '<f4', 'fortran_order': False, 'shape': (2,), }", "malformed", 8},
                  {"{\"descr\": '<f4', \"fortran_order\": False, 'shape': (2,), }", "", 8},
                  {"{'descr\": '<f4', 'fortran_order': False, 'shape': (2,), }", "malformed", 8}};
    static bytes b;
    for (size_t i = 0; i < GSI_COUNT(arrays); i++) {
        gs_source *s;
        gs_error error;
        npy(&b, 1, arrays[i].header, arrays[i].data);
        const gs_status status = open_bytes("a.npy", &b, &s, &error);
        CHECK_MSG((status == GS_OK) == !arrays[i].wrong[0] && strstr(error.text, arrays[i].wrong),
                  "%s: %s", arrays[i].header, error.text);
        if (status == GS_OK)
            CHECK(!gs_source_map(s, 1) && !gs_source_map(s, SIZE_MAX));
        gs_source_close(s);
    }
    safetensors(&b, "[]", 0);
    gs_source *s;
    gs_error error;
    CHECK(open_bytes("list.safetensors", &b, &s, &error) == GS_EFORMAT);
    CHECK_MSG(strstr(error.text, "does not start with {"), "%s", error.text);
}

/* What no file can say, and its readers must not rely on. */
static void test_numbers_and_names(void)
{
    gs_entry e = {.rank = 2, .shape = {UINT64_MAX, 1}};
    CHECK(!gsi_set_count(&e, 8));
    e.shape[0] = INT64_MAX;
    CHECK(!gsi_set_count(&e, 8) && gsi_set_count(&e, 0) && e.bytes == 0);
    CHECK(gsi_set_count(&e, 1) && e.count == INT64_MAX);

    char shown[GSI_SHOWN], name[100];
    memset(name, 0x80, sizeof name); /* it never begins */
    CHECK(strcmp(gsi_show(shown, name, sizeof name), "...") == 0);
    memset(name, 'a', sizeof name);
    memcpy(name + GSI_SHOWN - 6, "\xF0\x9F\x98\x80", 4); /* cut before it, not in it */
    gsi_show(shown, name, sizeof name);
    CHECK(strlen(shown) == GSI_SHOWN - 3 && strcmp(shown + GSI_SHOWN - 6, "...") == 0);

    const size_t shape[3] = {SIZE_MAX, 2, 2};
    gsi_heap heap;
    gsi_idx idx;
    gs_error error = {0};
    gsi_heap_init(&heap, NULL);
    CHECK(gsi_idx_new(&idx, "x", "u1", 3, shape, &heap, &error) == GS_ENOMEM && !idx.data);
    CHECK(gsi_idx_new(&idx, "x", "f8", 1, shape, &heap, &error) == GS_ENOMEM && !idx.data);
    CHECK(heap.bytes == 0);
}

/* ---- zip files ---- */

/* Opens it and reads its one array: "", or what is wrong. */
static const char *zip_says(const bytes *zip)
{
    static gs_error error;
    static float values[1 << 14];
    gs_source *s;
    if (open_bytes("z.npz", zip, &s, &error) == GS_OK)
        gs_source_read(values, s, 0, 0, (size_t)gs_source_entry(s, 0)->count, &error);
    gs_source_close(s);
    return error.text;
}

static void put_at(bytes *b, size_t at, uint64_t x, int size)
{
    const size_t n = b->n;
    b->n = at;
    add_little(b, x, size);
    b->n = n;
}

static void test_directories_that_lie(void)
{
    enum { END = 22, CENTRAL = 46 + 5 }; /* from the end; with the name a.npy */
    static const struct {
        size_t back; /* from the end of the file */
        uint64_t value;
        int size;
        const char *wrong;
    } lies[] = {{0, 0, 0, ""},
                {END - 8, 5 | 5 << 16, 4, "too short for its members"},
                {END - 12, UINT32_MAX, 4, "does not end where its end record starts"},
                {END - 16, UINT32_MAX, 4, "does not end where its end record starts"},
                {END + CENTRAL - 20, UINT32_MAX, 4, "the zip64 sizes of member a.npy"},
                {END + CENTRAL - 24, UINT32_MAX, 4, "the zip64 sizes of member a.npy"},
                {END + CENTRAL - 42, UINT32_MAX, 4, "the zip64 sizes of member a.npy"}};
    static bytes array, zip;
    npy(&array, 1, NPY("<f4"), 8);
    member m = member_of("a.npy", array.data, array.n, 0);
    for (size_t i = 0; i < GSI_COUNT(lies); i++) {
        zip_of(&zip, &m, 1);
        put_at(&zip, zip.n - lies[i].back, lies[i].value, lies[i].size);
        const char *says = zip_says(&zip);
        CHECK_MSG(lies[i].wrong[0] ? strstr(says, lies[i].wrong) != NULL : !says[0], "%zu: %s", i,
                  says);
    }
    /* Two of the three sizes; what would be the third, and right, are other fields, both empty. */
    enum { END64 = END + 20 + 56 };
    m.zip64 = true;
    zip_of(&zip, &m, 1);
    CHECK(!zip_says(&zip)[0]);
    put_at(&zip, zip.n - (END64 + 24 + 2), 16, 2);
    CHECK(strstr(zip_says(&zip), "the zip64 sizes of member a.npy"));
}

/* Deflate by hand, in stored blocks: one with all bytes, which is one piece of what is read at a
 * time, then an empty one that ends it. Then with bytes behind the end, and with bytes too many. */
static void test_ends_of_members(void)
{
    enum { PIECE = 1 << 16, ALL = PIECE - 5, COUNT = (ALL - 128) / 4 };
    static bytes array, packed, zip;
    char text[128 - 10 + 4];
    const int n = snprintf(text, sizeof text, "%-*s", (ALL - 4 * COUNT) - 10,
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (16350,), }");
    CHECK(COUNT == 16350 && n < (int)sizeof text);
    npy(&array, 1, text, 4 * COUNT);
    CHECK(array.n == ALL);
    packed.n = 0;
    add_little(&packed, 0, 1);
    add_little(&packed, ALL | (uint64_t)(ALL ^ 0xFFFF) << 16, 4);
    add(&packed, array.data, ALL);
    add_text(&packed, "\x01");
    add_little(&packed, 0xFFFF0000, 4);
    member m = member_of("a.npy", array.data, ALL, 8);
    m.packed = packed.data;
    m.n_packed = packed.n;
    CHECK_MSG(!zip_says(zip_of(&zip, &m, 1))[0], "%s", zip_says(&zip));
    add_text(&packed, "more");
    m.n_packed = packed.n;
    CHECK_MSG(strstr(zip_says(zip_of(&zip, &m, 1)), "bytes after the end of its packed data"), "%s",
              zip_says(&zip));

    npy(&array, 1, NPY("<f4"), 12);
    m = member_of("a.npy", array.data, array.n, 8);
    m.unpacked_add = (uint64_t)-4;
    CHECK_MSG(strstr(zip_says(zip_of(&zip, &m, 1)), "unpacks to more than it says"), "%s",
              zip_says(&zip));
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
        {2, TRACE "set state=f16 init=1e6 back_op=div backoff=1e6\nsteps 3\nfound 1 1 1\n"
                  "scale start:inf 1:nan\nend\n"}, /* infinite by infinite */
        {1, TRACE "set state=f16 init=1e6 back_op=div backoff=1e6\nsteps 3\nfound 1 1 1\n"
                  "scale start:inf 1:1\nend\n"},
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

static void add_chunk(bytes *b, const char *kind, const void *data, size_t n)
{
    add_big(b, n, 4);
    const size_t from = b->n;
    add_text(b, kind);
    add(b, data, n);
    add_big(b, crc32(0, b->data + from, (unsigned)(b->n - from)), 4);
}

/* A PNG with what belongs to its colours; its pixels are zeros, enough for 2 x 2. */
static void write_png(unsigned width, unsigned height, int color, const char *kind,
                      const char *more, size_t n)
{
    static bytes b, head;
    uint8_t rows[64] = {0}, packed[128];
    unsigned long room = sizeof packed;
    b.n = head.n = 0;
    add(&b, "\x89PNG\r\n\x1A\n", 8);
    add_big(&head, width, 4);
    add_big(&head, height, 4);
    add_big(&head, (uint64_t)8 << 32 | (uint64_t)color << 24, 5);
    add_chunk(&b, "IHDR", head.data, head.n);
    if (color == 3)
        add_chunk(&b, "PLTE", "\x0A\x14\x1E\x28\x32\x3C", 6);
    if (kind)
        add_chunk(&b, kind, more, n);
    compress2(packed, &room, rows, (1 + 2 * (color == 2 ? 3 : 1)) * 2, 9);
    add_chunk(&b, "IDAT", packed, room);
    add_chunk(&b, "IEND", "", 0);
    write_file("made.png", b.data, b.n);
}

/* Transparency is left out, wherever a file has it. */
static void test_transparent_palette(void)
{
    static const struct {
        int color;
        const char *alpha;
        size_t n, channels;
    } files[] = {{3, "\x00\x80", 2, 3}, {2, "\0\0\0\0\0\0", 6, 3}, {0, "\0\0", 2, 1}};
    gsi_heap heap;
    gsi_image8 image;
    gs_error error = {0};
    gsi_heap_init(&heap, NULL);
    for (size_t i = 0; i < GSI_COUNT(files); i++)
        for (int exact = 0; exact < 2; exact++) {
            const bool index = exact && files[i].color == 3;
            write_png(2, 2, files[i].color, "tRNS", files[i].alpha, files[i].n);
            const gs_status status =
                gsi_image_read(&image, in_folder("made.png"), 0, exact, &heap, &error);
            CHECK_MSG(status == GS_OK, "%zu: %s", i, error.text);
            CHECK_MSG(image.channels == (index ? 1 : files[i].channels), "%zu: %zu", i,
                      image.channels);
            CHECK(image.data && image.data[0] == (files[i].color == 3 && !exact ? 10 : 0));
            gsi_free(&heap, image.data);
        }
    write_png(16384, 16384, 2, NULL, "", 0); /* each side may be so long, but not both */
    CHECK(gsi_image_read(&image, in_folder("made.png"), 0, false, &heap, &error) == GS_ESIZE);
    CHECK_MSG(strstr(error.text, "is an image of 16384 x 16384"), "%s", error.text);
    CHECK(heap.bytes == 0);
}

/* From each size to each other: what is of one colour stays so, and no pixel is far from where it
 * was. */
static void test_fit(void)
{
    enum { MOST = 18 };
    static float to[4 * MOST * 4 * MOST];
    static uint8_t one[MOST * MOST], ramp[MOST * MOST];
    memset(one, 77, sizeof one);
    for (size_t h = 1; h <= MOST; h++)
        for (size_t w = 1; w <= MOST; w++)
            for (size_t i = 0; i < 4 * MOST; i++)
                for (int nearest = 0; nearest < 2; nearest++) {
                    const size_t th = 1 + i, tw = 1 + (7 * i + h + w) % (4 * MOST);
                    gsi_image8 image = {.height = h, .width = w, .channels = 1, .data = one};
                    gsi_image_fit(to, th, tw, &image, nearest);
                    bool same = true;
                    for (size_t k = 0; k < th * tw; k++)
                        same &= to[k] > 76.999f && to[k] < 77.001f;
                    CHECK_MSG(same, "%zu x %zu to %zu x %zu", h, w, th, tw);
                    for (size_t k = 0; k < h * w; k++)
                        ramp[k] = (uint8_t)(10 * (k / w));
                    image.data = ramp;
                    gsi_image_fit(to, th, tw, &image, nearest);
                    bool rises = to[0] >= 0 && to[th * tw - 1] <= (float)(10 * (h - 1)) + 0.001f;
                    for (size_t k = tw; k < th * tw; k++)
                        rises &= to[k] >= to[k - tw] - 0.001f;
                    CHECK_MSG(rises, "%zu x %zu to %zu x %zu", h, w, th, tw);
                }
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

/* What was not for everybody stays so, under a link too. */
static void test_permissions(void)
{
    static const mode_t modes[] = {0600, 0640, 0444, 0666};
    struct stat st;
    gsi_replace r;
    gs_error error = {0};
    for (size_t i = 0; i < GSI_COUNT(modes); i++)
        for (int linked = 0; linked <= 1; linked++) {
            write_text("old", "old");
            CHECK(chmod(in_folder("old"), modes[i]) == 0);
            CHECK(!linked || symlink(in_folder("old"), in_folder("link")) == 0);
            const char *path = in_folder(linked ? "link" : "old");
            CHECK(gsi_replace_begin(&r, path, &error) == GS_OK);
            CHECK(stat(r.temporary, &st) == 0 && (st.st_mode & 07777) == modes[i]);
            CHECK(gsi_replace_write(&r, "new", 3, &error) == GS_OK);
            CHECK(gsi_replace_end(&r, &error) == GS_OK);
            CHECK_MSG(stat(path, &st) == 0 && (st.st_mode & 07777) == modes[i], "%o, not %o",
                      (unsigned)st.st_mode, (unsigned)modes[i]);
            empty_folder();
        }
}

TESTS({"every_cut", test_every_cut}, {"every_character", test_every_character},
      {"headers_that_lie", test_headers_that_lie}, {"traces_that_lie", test_traces_that_lie},
      {"types_that_lie", test_types_that_lie}, {"numbers_and_names", test_numbers_and_names},
      {"directories_that_lie", test_directories_that_lie},
      {"ends_of_members", test_ends_of_members}, {"transparent_palette", test_transparent_palette},
      {"fit", test_fit}, {"images_of_all_kinds", test_images_of_all_kinds}, {"paths", test_paths},
      {"a_large_file", test_a_large_file}, {"permissions", test_permissions})
