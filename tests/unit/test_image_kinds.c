/* Kinds of images that folders of people hold, and those that are no images or no masks: what a
 * file says of itself is believed where it can be shown, and refused by name where it cannot. */
#include "data_files.h"
#include "image_files.h"
#include "memory.h"

#include "io/image.h"

#include <zlib.h>

/* The file is refused with these words, and nothing of it is left. */
static void refuses(const char *name, bool exact, gs_status expected, const char *words)
{
    gsi_heap heap;
    gsi_image8 image;
    gs_error error = {0};
    gsi_heap_init(&heap, NULL);
    const gs_status status = gsi_image_read(&image, in_folder(name), 0, exact, &heap, &error);
    CHECK_MSG(status == expected && strstr(error.text, words) && strstr(error.text, name), "%s: %s",
              gs_status_name(status), error.text);
    CHECK(!image.data && heap.bytes == 0);
}

/* ---- sizes ---- */

static void big(uint8_t to[4], unsigned x)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(x >> (24 - 8 * i));
}

/* The limit that is passed is named, by the size that the file announces: it is not damaged. */
static void test_sizes(void)
{
    static const struct {
        unsigned width, height;
    } sizes[] = {{65535, 65535}, {16385, 1}, {1, 16385}, {16000, 16000}, {0x7FFFFFFF, 0x7FFFFFFF}};
    uint8_t pixels[4 * 4 * 3] = {0}, content[1024];
    write_png("a.png", 4, 4, PNG_COLOR_TYPE_RGB, pixels);
    FILE *f = fopen(in_folder("a.png"), "rb");
    const size_t n = fread(content, 1, sizeof content, f);
    fclose(f);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char words[128];
        big(content + 16, sizes[i].width);
        big(content + 20, sizes[i].height);
        big(content + 29, (unsigned)crc32(0, content + 12, 17));
        write_file("big.png", content, n);
        snprintf(words, sizeof words,
                 "is an image of %u x %u: at most 16384 a side and 67108864 pixels in all",
                 sizes[i].width, sizes[i].height);
        refuses("big.png", false, GS_ESIZE, words);
    }
    empty_folder();
}

/* Of a progressive image libjpeg holds all coefficients, 2 bytes each: where there is no room for
 * them, the file is not damaged. */
static void test_no_room(void)
{
    static uint8_t content[1 << 17];
    FILE *f = fopen("tests/fuzz/corpus/image/progressive.jpg", "rb");
    size_t n = f ? fread(content, 1, sizeof content, f) : 0, at = 0;
    if (f)
        fclose(f);
    while (at + 19 < n && (content[at] != 0xFF || content[at + 1] != 0xC2))
        at++;
    const uint8_t size[] = {4096 >> 8, 0, 16384 >> 8, 0};
    CHECK(at + 19 < n);
    memcpy(content + at + 5, size, sizeof size);
    content[at + 11] = 0x11; /* no component is subsampled */
    write_file("room.jpg", content, sizeof content);
    refuses("room.jpg", false, GS_ENOMEM, "there is no memory to decode it");
    empty_folder();
}

/* ---- small files that ask for much ---- */

/* A text of a chunk is a thousand times as long as its bytes in the file, and there may be many. */
static void test_texts(void)
{
    enum { LENGTH = 1 << 20, TEXTS = 40 };
    static char text[LENGTH + 1];
    uint8_t row[3] = {0};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_text part = {.compression = PNG_TEXT_COMPRESSION_zTXt, .key = "k", .text = text};
    FILE *f = fopen(in_folder("texts.png"), "wb");
    memset(text, 'a', LENGTH);
    if (!f)
        abort();
    png_init_io(png, f);
    png_set_IHDR(png, info, 1, 1, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    for (int i = 0; i < TEXTS; i++) {
        part.compression = i % 2 ? PNG_ITXT_COMPRESSION_zTXt : PNG_TEXT_COMPRESSION_zTXt;
        png_set_text(png, info, &part, 1);
    }
    png_write_info(png, info);
    png_write_row(png, row);
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    fclose(f);
    books b = {0};
    const gs_alloc hook = books_hook(&b);
    gsi_heap heap;
    gsi_image8 image;
    gs_error error = {0};
    gsi_heap_init(&heap, &hook);
    CHECK(gsi_image_read(&image, in_folder("texts.png"), 0, false, &heap, &error) == GS_OK);
    CHECK_MSG(b.most < 1 << 20, "%zu bytes", b.most);
    gsi_free(&heap, image.data);
    empty_folder();
}

/* Each scan is a pass over the whole image, and costs the file a few bytes. */
static void test_scans(void)
{
    static uint8_t content[1 << 16];
    static const jpeg_scan_info scans[] = {{1, {0}, 0, 0, 0, 0}, {1, {0}, 1, 63, 0, 0}};
    uint8_t pixels[64] = {0};
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *f = fopen(in_folder("scans.jpg"), "wb+");
    if (!f)
        abort();
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, f);
    jpeg.image_width = jpeg.image_height = 8;
    jpeg.input_components = 1;
    jpeg.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&jpeg);
    jpeg.scan_info = scans;
    jpeg.num_scans = 2;
    jpeg_start_compress(&jpeg, TRUE);
    for (unsigned y = 0; y < 8; y++)
        jpeg_write_scanlines(&jpeg, &(JSAMPROW){pixels + 8 * y}, 1);
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    rewind(f);
    size_t n = fread(content, 1, 4096, f) - 2, at = n; /* without the end of the image */
    fclose(f);
    while (at > 0 && (content[at] != 0xFF || content[at + 1] != 0xDA))
        at--;
    const size_t scan = n - at;
    CHECK(at > 0 && scan < 100);
    for (int i = 0; i < 98; i++, n += scan)
        memcpy(content + n, content + at, scan);
    memcpy(content + n, (const uint8_t[]){0xFF, 0xD9}, 2);
    write_file("scans.jpg", content, n + 2);
    gsi_heap heap;
    gsi_image8 image;
    gs_error error = {0};
    gsi_heap_init(&heap, NULL);
    CHECK(gsi_image_read(&image, in_folder("scans.jpg"), 0, false, &heap, &error) == GS_OK);
    gsi_free(&heap, image.data);
    memcpy(content + n, content + at, scan);
    memcpy(content + n + scan, (const uint8_t[]){0xFF, 0xD9}, 2);
    write_file("scans.jpg", content, n + scan + 2);
    refuses("scans.jpg", false, GS_EFORMAT, "is damaged: it has more than 100 scans");
    empty_folder();
}

/* ---- masks ---- */

/* The high byte of 16 would make class 1 of 256, and 0 of 1. */
static void test_no_masks(void)
{
    uint8_t deep[4 * 4 * 2] = {0}, pixels[4 * 4 * 3] = {0};
    deep[1] = 1;
    write_png_bits("deep.png", 4, 4, 16, PNG_COLOR_TYPE_GRAY, deep);
    refuses("deep.png", true, GS_EFORMAT, "has 16 bits per pixel: a mask has 8 or fewer");
    write_jpeg("lossy.png", 4, 4, 1, pixels);
    refuses("lossy.png", true, GS_EFORMAT,
            "is a JPEG, whose values are not exact: a mask is a PNG");
    write_png_bits("bits.png", 4, 4, 1, PNG_COLOR_TYPE_GRAY, (const uint8_t *)"\x80\x40\x20\x10");
    gsi_heap heap;
    gsi_image8 image;
    gsi_heap_init(&heap, NULL);
    CHECK(gsi_image_read(&image, in_folder("bits.png"), 0, true, &heap, NULL) == GS_OK);
    for (int i = 0; image.data && i < 16; i++)
        CHECK(image.data[i] == (i % 5 == 0));
    gsi_free(&heap, image.data);
    empty_folder();
}

/* ---- CMYK ---- */

/* Without Adobe's marker, which says that values are 255 less the ink. */
static void cut_marker(const char *name)
{
    uint8_t content[4096];
    FILE *f = fopen(in_folder(name), "rb");
    const size_t n = fread(content, 1, sizeof content, f);
    size_t at = 0;
    fclose(f);
    while (at + 16 < n && memcmp(content + at,
                                 "\xFF\xEE\0\x0E"
                                 "Adobe",
                                 9) != 0)
        at++;
    CHECK(at + 16 < n);
    memmove(content + at, content + at + 16, n - at - 16);
    write_file(name, content, n - 16);
}

/* As Pillow shows them. */
static void test_cmyk(void)
{
    static const struct {
        uint8_t inks[4], rgb[3];
    } colors[] = {{{255, 255, 255, 255}, {255, 255, 255}},
                  {{255, 255, 255, 0}, {0, 0, 0}},
                  {{0, 255, 255, 255}, {0, 255, 255}},
                  {{255, 128, 64, 255}, {255, 128, 64}},
                  {{200, 100, 50, 128}, {100, 50, 25}}};
    uint8_t pixels[8 * 8 * 4];
    gsi_heap heap;
    gs_error error = {0};
    gsi_heap_init(&heap, NULL);
    for (size_t i = 0; i < sizeof colors / sizeof colors[0]; i++)
        for (int k = 0; k < 5; k++) { /* CMYK, YCCK; three channels, one; no marker */
            gsi_image8 image;
            for (size_t p = 0; p < sizeof pixels; p++)
                pixels[p] = k < 4 ? colors[i].inks[p % 4] : 255 - colors[i].inks[p % 4];
            write_jpeg_as("c.jpg", 8, 8, 4, k % 2 ? JCS_YCCK : JCS_CMYK, pixels);
            if (k == 4)
                cut_marker("c.jpg");
            const size_t channels = k < 2 || k == 4 ? 3 : 1;
            CHECK_MSG(gsi_image_read(&image, in_folder("c.jpg"), channels, false, &heap, &error) ==
                          GS_OK,
                      "%s", error.text);
            CHECK(image.channels == channels && image.width == 8);
            const uint8_t *c = colors[i].rgb;
            const double grey = 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2];
            for (size_t p = 0; image.data && p < 8 * 8 * channels; p++) {
                const double want = channels == 3 ? c[p % 3] : grey;
                CHECK_MSG(image.data[p] > want - 3 && image.data[p] < want + 3, "%zu: %d, not %g",
                          p, image.data[p], want);
            }
            gsi_free(&heap, image.data);
        }
    CHECK(heap.bytes == 0);
    empty_folder();
}

/* ---- folders ---- */

static void refused(const char *name, gs_status expected, const char *words)
{
    gs_data *data = NULL;
    gs_error error = {0};
    const gs_data_config config = {.size = sizeof config, .name = in_folder(name)};
    const gs_status status = gs_data_open(&data, &config, NULL, &error);
    CHECK_MSG(status == expected && strstr(error.text, words), "%s: %s", gs_status_name(status),
              error.text);
    gs_data_close(data);
}

/* Four images of each class. */
static void write_class(const char *folder_name)
{
    uint8_t pixels[4 * 4 * 3];
    make_folder(folder_name);
    for (int i = 0; i < 4; i++) {
        char name[96];
        memset(pixels, 60 * i, sizeof pixels);
        snprintf(name, sizeof name, "%s/%d.png", folder_name, i);
        write_png(name, 4, 4, PNG_COLOR_TYPE_RGB, pixels);
    }
}

/* A file that is not there any more, or of which nothing has arrived, is no reason to learn from
 * the rest without a word. */
static void test_lost(void)
{
    make_folder("set");
    write_class("set/a");
    write_class("set/b");
    write_file("set/a/notes.txt", "", 0); /* no image, and nobody's matter */
    write_file("set/b/2.png", "", 0);
    refused("set", GS_EFORMAT, "set/b/2.png: is empty");
    unlink(in_folder("set/b/2.png"));
    if (symlink("elsewhere/2.png", in_folder("set/b/2.png")) != 0)
        abort();
    refused("set", GS_EIO, "set/b/2.png: cannot be opened: No such file or directory");
    empty_folder();
}

static void test_classes(void)
{
    make_folder("set");
    make_folder("set/train");
    make_folder("set/val");
    write_class("set/train/cat");
    write_class("set/train/dog");
    write_class("set/val/dogs");
    refused("set", GS_ENAME, "set/val/dogs/0.png: is of a class that no image to train on has");
    rename(in_folder("set/val/dogs"), in_folder("set/val/dog"));
    gs_data *data = NULL;
    const gs_data_config config = {.size = sizeof config, .name = in_folder("set")};
    CHECK(gs_data_open(&data, &config, NULL, NULL) == GS_OK); /* a class may lack in val */
    char about[4096];
    CHECK(gs_data_describe(about, sizeof about, NULL, data, NULL) == GS_OK);
    gs_data_close(data);
    /* what lies in val alone can be predicted, and cannot be trained on */
    make_folder("other");
    rename(in_folder("set/val"), in_folder("other/val"));
    refused("other", GS_ESIZE, "other: has no images to train on");
    const gs_data_config predict = {
        .size = sizeof predict, .name = in_folder("other"), .like = about, .unlabelled = 1};
    CHECK(gs_data_open(&data, &predict, NULL, NULL) == GS_OK);
    CHECK(data && gs_data_get_info(data)->items[GS_SPLIT_TRAIN] == 4);
    gs_data_close(data);
    empty_folder();
}

static void write_masks(uint8_t value)
{
    uint8_t image[4 * 4 * 3] = {0}, mask[4 * 4] = {0};
    mask[5] = value;
    make_folder("seg");
    make_folder("seg/images");
    make_folder("seg/masks");
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "seg/images/%d.jpg", i);
        write_jpeg(name, 4, 4, 3, image);
        snprintf(name, sizeof name, "seg/masks/%d.png", i);
        write_png(name, 4, 4, PNG_COLOR_TYPE_GRAY, mask);
    }
}

/* Black and white masks have 0 and 255, which counts for none: nothing would be learnt. */
static void test_one_class(void)
{
    write_masks(255);
    refused("seg", GS_ESIZE, "seg: its masks have no class above 0, and 255 counts for none");
    empty_folder();
    write_masks(1);
    gs_data *data = NULL;
    gs_data_config config = {.size = sizeof config, .name = in_folder("seg")};
    CHECK(gs_data_open(&data, &config, NULL, NULL) == GS_OK);
    char about[4096];
    CHECK(gs_data_describe(about, sizeof about, NULL, data, NULL) == GS_OK);
    gs_data_close(data);
    /* predict looks at the images, not at the masks beside them */
    config.like = about;
    config.unlabelled = 1;
    CHECK(gs_data_open(&data, &config, NULL, NULL) == GS_OK);
    CHECK(data && gs_data_get_info(data)->items[GS_SPLIT_TRAIN] == 4);
    gs_data_close(data);
    empty_folder();
}

TESTS({"sizes", test_sizes}, {"no room", test_no_room}, {"texts", test_texts},
      {"scans", test_scans}, {"no masks", test_no_masks}, {"cmyk", test_cmyk}, {"lost", test_lost},
      {"classes", test_classes}, {"one class", test_one_class})
