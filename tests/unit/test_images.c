/* Data that people have: folders of PNG and JPEG, images with masks, arrays of NumPy, CSV, CIFAR,
 * nanoGPT's tokens; images varied for training. From honest files and from lying ones. */
#include "array_files.h"
#include "image_files.h"

#include "io/image.h"
#include "train/data.h"

#include <math.h>
#include <sys/stat.h>

/* ---- folders ---- */

/* A folder of two classes: bright ones and dark ones, `n` of each. */
static void write_classes(const char *root, int n, bool jpeg)
{
    char name[128];
    uint8_t pixels[8 * 8 * 3];
    make_folder(root);
    for (int c = 0; c < 2; c++) {
        snprintf(name, sizeof name, "%s/%s", root, c ? "dark" : "bright");
        make_folder(name);
        for (int i = 0; i < n; i++) {
            memset(pixels, c ? 20 + i : 200 + i, sizeof pixels);
            snprintf(name, sizeof name, "%s/%s/%03d.%s", root, c ? "dark" : "bright", i,
                     jpeg ? "jpg" : "png");
            if (jpeg)
                write_jpeg(name, 8, 8, 3, pixels);
            else
                write_png(name, 8, 8, PNG_COLOR_TYPE_RGB, pixels);
        }
    }
}

static gs_data *open_it(gs_data_config config)
{
    gs_data *data = NULL;
    gs_error error = {0};
    config.size = sizeof config;
    CHECK_MSG(gs_data_open(&data, &config, NULL, &error) == GS_OK, "%s", error.text);
    return data;
}

static void refused(gs_data_config config, gs_status expected, const char *words)
{
    gs_data *data = NULL;
    gs_error error = {0};
    config.size = sizeof config;
    const gs_status status = gs_data_open(&data, &config, NULL, &error);
    CHECK_MSG(status == expected, "%s, not %s: %s", gs_status_name(status),
              gs_status_name(expected), error.text);
    CHECK_MSG(strstr(error.text, words) != NULL, "'%s' is not in: %s", words, error.text);
    gs_data_close(data);
}

static void check_classes(const char *root)
{
    gs_data *data = open_it((gs_data_config){.name = in_folder(root), .valid = 0.25});
    if (!data)
        return;
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->task == GS_TASK_CLASSES && info->height == 8 && info->channels == 3);
    CHECK(info->classes == 2 && strcmp(info->labels[0], "bright") == 0);
    CHECK(info->items[0] == 15 && info->items[1] == 5);
    double sum = 0;
    int seen[2] = {0};
    for (int split = 0; split < 2; split++)
        for (uint64_t i = 0; i < info->items[split]; i++) {
            float x[8 * 8 * 3];
            int32_t class;
            char name[256];
            CHECK(gs_data_read(x, NULL, &class, data, (gs_split)split, i, NULL) == GS_OK);
            gs_data_item_name(name, sizeof name, data, (gs_split)split, i);
            CHECK(strstr(name, class ? "/dark/" : "/bright/") != NULL);
            CHECK(class ? x[0] < 0 : x[0] > 0);
            sum += split == 0 ? (double)x[0] : 0;
            seen[class]++;
        }
    CHECK(seen[0] == 10 && seen[1] == 10);
    CHECK_MSG(fabs(sum / 15) < 0.6, "%g", sum / 15);
    gs_data_close(data);
}

static void test_folder(void)
{
    empty_folder();
    write_classes("png", 10, false);
    write_classes("jpeg", 10, true);
    check_classes("png");
    check_classes("jpeg");
    gs_data *data = open_it((gs_data_config){.name = in_folder("png"), .height = 4, .width = 6});
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->height == 4 && info->width == 6);
    gs_data_close(data);

    make_folder("apart");
    make_folder("apart/train");
    write_classes("apart/val", 2, false);
    rename(in_folder("png"), in_folder("apart/train/x"));
    CHECK(rename(in_folder("apart/train/x/bright"), in_folder("apart/train/bright")) == 0);
    CHECK(rename(in_folder("apart/train/x/dark"), in_folder("apart/train/dark")) == 0);
    rmdir(in_folder("apart/train/x"));
    data = open_it((gs_data_config){.name = in_folder("apart")});
    info = gs_data_get_info(data);
    CHECK(info->items[0] == 20 && info->items[1] == 4 && info->classes == 2);
    char about[2000];
    CHECK(gs_data_describe(about, sizeof about, NULL, data, NULL) == GS_OK);
    gs_data_close(data);

    /* others as these were: without labels, and with a class that is not known */
    data = open_it((gs_data_config){.name = in_folder("jpeg"), .like = about, .unlabelled = 1});
    info = gs_data_get_info(data);
    CHECK(info->items[0] == 20 && info->items[1] == 0 && info->labels);
    gs_data_close(data);
    data = open_it(
        (gs_data_config){.name = in_folder("jpeg/dark/003.jpg"), .like = about, .unlabelled = 1});
    float x[8 * 8 * 3];
    int32_t class;
    CHECK(gs_data_read(x, NULL, &class, data, GS_SPLIT_TRAIN, 0, NULL) == GS_OK && class == -1);
    CHECK(x[0] < 0);
    gs_data_close(data);
    CHECK(rename(in_folder("jpeg/dark"), in_folder("jpeg/cat")) == 0);
    refused((gs_data_config){.name = in_folder("jpeg"), .like = about}, GS_ENAME,
            "its class cat is none of the model's");
    refused((gs_data_config){.name = in_folder("jpeg/cat/003.jpg")}, GS_ERANGE, "without a class");
    CHECK(rename(in_folder("jpeg/cat"), in_folder("jpeg/c\xE9")) == 0); /* Latin-1 */
    refused((gs_data_config){.name = in_folder("jpeg")}, GS_EFORMAT, "is not UTF-8");
    CHECK(rename(in_folder("jpeg/c\xE9"), in_folder("jpeg/cat")) == 0);
    write_png("jpeg/alone.png", 8, 8, PNG_COLOR_TYPE_RGB, (const uint8_t[192]){0});
    refused((gs_data_config){.name = in_folder("jpeg")}, GS_EFORMAT,
            "lies in no folder of a class");
    refused((gs_data_config){.name = "shapes", .height = 8}, GS_ERANGE, "keeps its size");
}

/* ---- IDX written out as folders ---- */

enum { WRITTEN = 200, SIDE = 28 };

/* Images to validate with of `name`, grey and of SIDE by SIDE, as a folder per class. */
static void write_out(const char *name, bool jpeg)
{
    gs_data *data = open_it((gs_data_config){.name = name, .raw = 1});
    for (uint64_t i = 0; data && i < WRITTEN; i++) {
        float x[SIDE * SIDE];
        uint8_t pixels[SIDE * SIDE];
        int32_t class;
        char file_name[64];
        struct stat about;
        CHECK(gs_data_read(x, NULL, &class, data, GS_SPLIT_VALID, i, NULL) == GS_OK);
        for (size_t k = 0; k < SIDE * SIDE; k++)
            pixels[k] = (uint8_t)x[k];
        snprintf(file_name, sizeof file_name, "%s/%d", jpeg ? "jpeg" : "png", (int)class);
        if (stat(in_folder(file_name), &about) != 0)
            make_folder(file_name);
        snprintf(file_name, sizeof file_name, "out.%s", jpeg ? "jpg" : "png");
        if (jpeg)
            write_jpeg(file_name, SIDE, SIDE, 1, pixels);
        else
            write_png(file_name, SIDE, SIDE, PNG_COLOR_TYPE_GRAY, pixels);
        char to[256];
        snprintf(to, sizeof to, "%.150s/%d/%03u.%s", in_folder(jpeg ? "jpeg" : "png"), (int)class,
                 (unsigned)i, jpeg ? "jpg" : "png");
        CHECK(rename(in_folder(file_name), to) == 0);
    }
    gs_data_close(data);
}

/* A folder of PNG has the bits of the set it was written from, one of JPEG nearly its values. */
static void check_written(const char *name)
{
    char about[4000];
    gs_data *data = open_it((gs_data_config){.name = name});
    CHECK(gs_data_describe(about, sizeof about, NULL, data, NULL) == GS_OK);
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        make_folder(jpeg ? "jpeg" : "png");
        write_out(name, jpeg);
        gs_data *folder_of =
            open_it((gs_data_config){.name = in_folder(jpeg ? "jpeg" : "png"), .like = about});
        const gs_data_info *info = gs_data_get_info(folder_of);
        CHECK(info->items[0] + info->items[1] == WRITTEN);
        double off = 0;
        for (uint64_t i = 0; i < WRITTEN; i++) {
            const gs_split split = i < info->items[0] ? GS_SPLIT_TRAIN : GS_SPLIT_VALID;
            const uint64_t item = i - (split == GS_SPLIT_VALID ? info->items[0] : 0);
            float x[SIDE * SIDE], want[SIDE * SIDE];
            int32_t class, wanted;
            char path[256];
            CHECK(gs_data_read(x, NULL, &class, folder_of, split, item, NULL) == GS_OK);
            gs_data_item_name(path, sizeof path, folder_of, split, item);
            const uint64_t from = strtoull(strrchr(path, '/') + 1, NULL, 10);
            CHECK(gs_data_read(want, NULL, &wanted, data, GS_SPLIT_VALID, from, NULL) == GS_OK);
            CHECK_MSG(class == wanted, "%s: %d, not %d", path, (int)class, (int)wanted);
            CHECK_MSG(jpeg || memcmp(x, want, sizeof x) == 0, "%s has other bits", path);
            for (size_t k = 0; k < SIDE * SIDE; k++)
                off += fabs((double)x[k] - (double)want[k]) / (SIDE * SIDE * WRITTEN);
        }
        CHECK_MSG(off < 0.05, "%s: off by %g deviations", info->name, off);
        gs_data_close(folder_of);
    }
    gs_data_close(data);
}

static void test_written(void)
{
    static const char *const names[][2] = {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
                                           {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}};
    static uint8_t images[16 + WRITTEN * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, WRITTEN,
                                                         0, 0, 0, SIDE, 0, 0, 0, SIDE};
    uint8_t labels[8 + WRITTEN] = {0, 0, 8, 1, 0, 0, 0, WRITTEN};
    empty_folder();
    for (size_t i = 0; i < WRITTEN; i++) { /* a bright square on a slope, its size by class */
        const size_t class = labels[8 + i] = (uint8_t)(i % 10), from = 2 + i % 7;
        for (size_t y = 0; y < SIDE; y++)
            for (size_t x = 0; x < SIDE; x++)
                images[16 + (i * SIDE + y) * SIDE + x] =
                    x >= from && x < from + 4 + class && y >= from && y < from + 4 + class
                        ? 220
                        : (uint8_t)(3 * x + y + i / 4);
    }
    for (size_t k = 0; k < 2; k++) {
        write_file(names[k][0], images, sizeof images);
        write_file(names[k][1], labels, sizeof labels);
    }
    check_written(in_folder("train-images-idx3-ubyte"));
}

static void test_fashion_mnist(void)
{
    if (access("/usr/share/datasets/fashion-mnist", R_OK) != 0)
        SKIP("the data set is not installed (scripts/deps.sh demo)");
    empty_folder();
    check_written("fashion-mnist");
}

static void test_masks(void)
{
    uint8_t image[6 * 4 * 3] = {0}, mask[6 * 4] = {0};
    empty_folder();
    make_folder("seg");
    make_folder("seg/images");
    make_folder("seg/masks");
    mask[0] = 2;
    mask[1] = 255;
    for (int i = 0; i < 4; i++) {
        char name[64];
        image[i] = 100;
        snprintf(name, sizeof name, "seg/images/%d.jpg", i);
        write_jpeg(name, 6, 4, 3, image);
        snprintf(name, sizeof name, "seg/masks/%d.png", i);
        write_png(name, 6, 4, i % 2 ? PNG_COLOR_TYPE_PALETTE : PNG_COLOR_TYPE_GRAY, mask);
    }
    gs_data *data = open_it((gs_data_config){.name = in_folder("seg")});
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->task == GS_TASK_PIXELS && info->classes == 3 && info->width == 6);
    for (uint64_t i = 0; i < info->items[0]; i++) {
        float x[6 * 4 * 3];
        int32_t targets[6 * 4];
        CHECK(gs_data_read(x, NULL, targets, data, GS_SPLIT_TRAIN, i, NULL) == GS_OK);
        CHECK(targets[0] == 2 && targets[1] == -1 && targets[2] == 0);
    }
    gs_data_close(data);
    write_png("seg/masks/9.png", 6, 4, PNG_COLOR_TYPE_GRAY, mask);
    refused((gs_data_config){.name = in_folder("seg")}, GS_EIO, "is a mask without an image");
    unlink(in_folder("seg/masks/9.png"));
    write_png("seg/masks/1.png", 4, 6, PNG_COLOR_TYPE_GRAY, mask);
    refused((gs_data_config){.name = in_folder("seg")}, GS_ESIZE, "is 4 x 6, and its image 6 x 4");
    write_png("seg/masks/1.png", 6, 4, PNG_COLOR_TYPE_RGB, image);
    refused((gs_data_config){.name = in_folder("seg")}, GS_EFORMAT, "is in colour");
    unlink(in_folder("seg/masks/1.png"));
    refused((gs_data_config){.name = in_folder("seg")}, GS_EIO, "1.jpg: has no mask");

    /* train and val below images and masks */
    static const char *const folders[] = {"deep",
                                          "deep/images",
                                          "deep/masks",
                                          "deep/images/train",
                                          "deep/masks/train",
                                          "deep/images/val",
                                          "deep/masks/val"};
    for (size_t i = 0; i < GSI_COUNT(folders); i++)
        make_folder(folders[i]);
    for (size_t i = 3; i < GSI_COUNT(folders); i++)
        for (char c = 'a'; c < (i < 5 ? 'b' : 'd'); c++) {
            char name[64];
            snprintf(name, sizeof name, "%s/%c.png", folders[i], c);
            write_png(name, 6, 4, i % 2 ? PNG_COLOR_TYPE_RGB : PNG_COLOR_TYPE_GRAY,
                      i % 2 ? image : mask);
        }
    data = open_it((gs_data_config){.name = in_folder("deep")});
    CHECK(gs_data_get_info(data)->items[0] == 1 && gs_data_get_info(data)->items[1] == 3);
    gs_data_close(data);
}

/* Every length of a file, and flipped bytes: refused or read, never worse. */
static void test_damaged(void)
{
    static uint8_t noise[24 * 20 * 3], content[1 << 16];
    empty_folder();
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)gs_random_u32(1, i);
    write_png("a.png", 24, 20, PNG_COLOR_TYPE_RGB, noise);
    write_jpeg("a.jpg", 24, 20, 3, noise);
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "a.jpg" : "a.png";
        FILE *f = fopen(in_folder(name), "rb");
        const size_t n = fread(content, 1, sizeof content, f);
        fclose(f);
        gsi_heap heap;
        gsi_image8 image;
        gs_error error;
        gsi_heap_init(&heap, NULL);
        CHECK(gsi_image_read(&image, in_folder(name), 0, false, &heap, &error) == GS_OK);
        CHECK(image.height == 20 && image.width == 24 && image.channels == 3);
        gsi_free(&heap, image.data);
        for (size_t cut = 1; cut < n - 2; cut += 1 + cut / 16) {
            write_file("b", content, cut);
            CHECK_MSG(gsi_image_read(&image, in_folder("b"), 0, false, &heap, &error) != GS_OK,
                      "%s of %zu bytes", name, cut);
            CHECK(!image.data && error.text[0]);
            CHECK_MSG(cut > 1 || strstr(error.text, "has 1 byte, and"), "%s", error.text);
        }
        for (size_t at = 0; at < n; at += 1 + at / 64) {
            content[at] ^= 0x55;
            write_file("b", content, n);
            if (gsi_image_read(&image, in_folder("b"), 1, false, &heap, &error) == GS_OK)
                CHECK(image.channels == 1);
            gsi_free(&heap, image.data);
            content[at] ^= 0x55;
        }
        CHECK(heap.bytes == 0);
    }
    /* a header that asks for 2 GB of pixels */
    write_png("a.png", 24, 20, PNG_COLOR_TYPE_RGB, noise);
    FILE *f = fopen(in_folder("a.png"), "rb");
    const size_t n = fread(content, 1, sizeof content, f);
    fclose(f);
    gsi_heap heap;
    gsi_image8 image;
    gs_error error;
    gsi_heap_init(&heap, NULL);
    for (int k = 0; k < 2; k++) { /* too large a side; and one that its bytes cannot fill */
        memcpy(content + 16, k ? "\0\0\x1F\0\0\0\x1F\0" : "\0\0\x60\0\0\0\x60\0", 8);
        const unsigned long crc = crc32(0, content + 12, 17);
        for (int i = 0; i < 4; i++)
            content[29 + i] = (uint8_t)(crc >> (24 - 8 * i));
        write_file("b", content, n);
        CHECK(gsi_image_read(&image, in_folder("b"), 0, false, &heap, &error) != GS_OK);
        CHECK_MSG(heap.peak < 1 << 20, "%zu bytes for: %s", heap.peak, error.text);
    }
    write_jpeg("a.jpg", 24, 20, 3, noise);
    f = fopen(in_folder("a.jpg"), "rb");
    const size_t jpeg = fread(content, 1, sizeof content, f);
    fclose(f);
    size_t frame = 0; /* marker, length, bits, height, width */
    while (frame + 9 < jpeg && memcmp(content + frame, "\xFF\xC0", 2) != 0)
        frame++;
    memcpy(content + frame + 5, "\x1F\0\x1F\0", 4);
    write_file("b", content, jpeg);
    CHECK(gsi_image_read(&image, in_folder("b"), 0, false, &heap, &error) == GS_EFORMAT);
    CHECK_MSG(heap.peak < 1 << 20, "%zu bytes for: %s", heap.peak, error.text);
}

/* Means over areas, and a cut around the centre. */
static void test_fit(void)
{
    uint8_t pixels[4 * 8];
    float out[16];
    for (int i = 0; i < 32; i++)
        pixels[i] = (uint8_t)(i % 8 * 10);
    const gsi_image8 wide = {4, 8, 1, pixels};
    gsi_image_fit(out, 4, 4, &wide, false); /* columns 2 to 5 as they are */
    for (int i = 0; i < 16; i++)
        CHECK(fabsf(out[i] - (float)(10 * (2 + i % 4))) < 1e-4f);
    gsi_image_fit(out, 2, 2, &wide, true);
    CHECK(out[0] == 30 || out[0] == 20);
    gsi_image_fit(out, 2, 2, &wide, false);
    CHECK_MSG(out[0] > 20 && out[0] < 30 && out[1] > 40 && out[1] < 50, "%g %g", (double)out[0],
              (double)out[1]);
}

/* ---- arrays ---- */

static void test_npy(void)
{
    uint8_t content[4096], x[10 * 4 * 4 * 2];
    int64_t y[10];
    empty_folder();
    for (size_t i = 0; i < sizeof x; i++)
        x[i] = (uint8_t)(i * 7);
    for (int i = 0; i < 10; i++)
        y[i] = i % 3;
    write_file("x.npy", content, npy(content, "|u1", "(10, 4, 4, 2)", x, sizeof x));
    refused((gs_data_config){.name = in_folder("x.npy")}, GS_EIO, "its labels are not beside it");
    write_file("y.npy", content, npy(content, "<i8", "(10,)", y, sizeof y));
    for (int k = 0; k < 2; k++) {
        gs_data *data = open_it((gs_data_config){.name = k ? folder : in_folder("x.npy")});
        const gs_data_info *info = gs_data_get_info(data);
        CHECK(info->height == 4 && info->channels == 2 && info->classes == 3);
        CHECK(info->items[0] == 9 && info->items[1] == 1);
        for (uint64_t i = 0; i < 9; i++) {
            float values[32];
            int32_t class;
            char name[32];
            CHECK(gs_data_read(values, NULL, &class, data, GS_SPLIT_TRAIN, i, NULL) == GS_OK);
            const double raw = (double)values[0] / info->inverse_std[0] + info->mean[0];
            bool found = false; /* the image with this label and first pixel */
            for (int m = 0; m < 10; m++)
                found |= y[m] == class && fabs(raw - x[32 * m]) < 1e-3;
            CHECK(found);
            gs_data_item_name(name, sizeof name, data, GS_SPLIT_TRAIN, i);
            CHECK(atoi(name) == (int)i);
        }
        gs_data_close(data);
    }
    y[4] = -1;
    write_file("y.npy", content, npy(content, "<i8", "(10,)", y, sizeof y));
    refused((gs_data_config){.name = folder}, GS_ERANGE, "label 4 is -1");
    write_file("y.npy", content, npy(content, "<i8", "(9,)", y, 72));
    refused((gs_data_config){.name = folder}, GS_ESIZE, "has 9 labels for 10 images");
    write_file("y.npy", content, npy(content, "<c8", "(10,)", y, sizeof y));
    refused((gs_data_config){.name = folder}, GS_EDTYPE, "elements of type c8");
}

static void test_csv(void)
{
    empty_folder();
    write_text("a.csv",
               "len,\"wid,th\",label\n1,2,cat\n3.5,-4,dog\n5,6e0,\"a \"\"b\"\"\"\n7,8,cat\n");
    gs_data *data = open_it((gs_data_config){.name = in_folder("a.csv"), .valid = 0.25});
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->classes == 3 && info->width == 2 && info->height == 1 && info->items[0] == 3);
    CHECK(strcmp(info->labels[0], "a \"b\"") == 0 && strcmp(info->labels[2], "dog") == 0);
    char about[1000];
    CHECK(gs_data_describe(about, sizeof about, NULL, data, NULL) == GS_OK);
    gs_data_close(data);
    write_text("b.csv", "1,2,dog\n1,2,cat\n");
    data = open_it((gs_data_config){.name = in_folder("b.csv"), .like = about});
    int32_t class[2];
    float x[2];
    for (int i = 0; i < 2; i++)
        CHECK(gs_data_read(x, NULL, &class[i], data, (gs_split)i, 0, NULL) == GS_OK);
    CHECK(class[0] + class[1] == 3); /* cat 1, dog 2, as they were */
    gs_data_close(data);
    /* the first of , ; and tab outside of quotes is between fields */
    static const char *const others[] = {"\"a, b\";label\n0.5;\"x;y\"\n1.5;z\n",
                                         "a\tlabel\n0.5\tx;y\n1.5\tz\n"};
    for (size_t i = 0; i < GSI_COUNT(others); i++) {
        write_text("c.csv", others[i]);
        data = open_it((gs_data_config){.name = in_folder("c.csv")});
        info = gs_data_get_info(data);
        CHECK(info->width == 1 && info->classes == 2 && strcmp(info->labels[0], "x;y") == 0);
        gs_data_close(data);
    }
    write_text("c.csv", "a;label\n1,5;x\n");
    refused((gs_data_config){.name = in_folder("c.csv")}, GS_EFORMAT,
            "c.csv:2: field 1 is no number: 1,5");
    write_text("c.csv", "label,a\n1,0.5\n0,1.5\n1,2\n");
    data = open_it((gs_data_config){.name = in_folder("c.csv")});
    CHECK(gs_data_get_info(data)->classes == 2 && !gs_data_get_info(data)->labels);
    gs_data_close(data);
    /* titles that are numbers, as pandas numbers columns: the name of the last tells */
    static const char *const titled[] = {"0,1,label\n5,6,0\n7,8,1\n", "0,1,y\n5,6,0\n7,8,1\n",
                                         ",0,Target\n5,6,0\n7,8,1\n"};
    for (size_t i = 0; i < GSI_COUNT(titled); i++) {
        write_text("c.csv", titled[i]);
        data = open_it((gs_data_config){.name = in_folder("c.csv"), .valid = 0.5});
        info = gs_data_get_info(data);
        CHECK(info->width == 2 && info->classes == 2 && !info->labels);
        CHECK(info->items[0] == 1 && info->items[1] == 1);
        gs_data_close(data);
    }
    /* what is missing in the first line makes it no titles */
    static const char *const missing[] = {"1,,0\n2,3,1\n", "1,?,0\n2,3,1\n", "1,NA,0\n2,3,1\n"};
    static const char *const said[] = {"c.csv:1: field 2 is empty",
                                       "c.csv:1: field 2 is no number: ?",
                                       "c.csv:1: field 2 is no number: NA"};
    for (size_t i = 0; i < GSI_COUNT(missing); i++) {
        write_text("c.csv", missing[i]);
        refused((gs_data_config){.name = in_folder("c.csv")}, GS_EFORMAT, said[i]);
    }
    write_text("c.csv", "1,2,0\n1,x,0\n");
    refused((gs_data_config){.name = in_folder("c.csv")}, GS_EFORMAT,
            "c.csv:2: field 2 is no number: x");
    write_text("c.csv", "1,2,0\n1,0\n");
    refused((gs_data_config){.name = in_folder("c.csv")}, GS_EFORMAT,
            "has 2 fields, and the first line 3");
    write_text("c.csv", "a,b\n");
    refused((gs_data_config){.name = in_folder("c.csv")}, GS_ESIZE, "no row of numbers");
    write_text("c.csv", "1,inf,0\n");
    refused((gs_data_config){.name = in_folder("c.csv")}, GS_EFORMAT, "is no number: inf");
    write_text("c.csv", "a,label\n1,x\n2,\"y\n3,x\n");
    refused((gs_data_config){.name = in_folder("c.csv")}, GS_EFORMAT,
            "c.csv:3: field 2 begins with a quote that does not end in its line");
    write_text("c.csv", "1,0\n2,0\n");
    refused((gs_data_config){.name = in_folder("c.csv")}, GS_ESIZE,
            "c.csv: has 1 class, and 2 are needed");
    /* as Excel writes UTF-8: what stands before the first title is no part of it */
    write_text("c.csv", "\xEF\xBB\xBFlabel,a\nx,1\ny,2\n");
    data = open_it((gs_data_config){.name = in_folder("c.csv")});
    CHECK(data && gs_data_get_info(data)->width == 1 && gs_data_get_info(data)->classes == 2);
    gs_data_close(data);
    write_text("c.csv", "\xEF\xBB\xBF"
                        "1,0\n2,1\n");
    data = open_it((gs_data_config){.name = in_folder("c.csv"), .valid = 0.5});
    CHECK(data && gs_data_get_info(data)->items[0] + gs_data_get_info(data)->items[1] == 2);
    gs_data_close(data);
}

static void test_npz(void)
{
    static const char *const names[][2] = {
        {"x.npy", "y.npy"}, {"images.npy", "labels.npy"}, {"arr_0.npy", "arr_1.npy"}};
    uint8_t content[2048], x[10 * 4 * 4];
    int64_t y[10];
    for (size_t i = 0; i < sizeof x; i++)
        x[i] = (uint8_t)(i / 16 * 20);
    for (int i = 0; i < 10; i++)
        y[i] = i % 3;
    for (int k = 0; k < 3; k++) {
        static zip z;
        z = (zip){.n = 0};
        empty_folder();
        zip_add(&z, names[k][0], content, npy(content, "|u1", "(10, 4, 4)", x, sizeof x));
        zip_add(&z, names[k][1], content, npy(content, "<i8", "(10,)", y, sizeof y));
        zip_write(&z, "d.npz");
        gs_data *data = open_it((gs_data_config){.name = in_folder("d.npz")});
        const gs_data_info *info = gs_data_get_info(data);
        CHECK(info->height == 4 && info->width == 4 && info->channels == 1 && info->classes == 3);
        CHECK(info->items[0] == 9 && info->items[1] == 1);
        float values[16];
        int32_t class;
        for (uint64_t i = 0; i < 9; i++) {
            CHECK(gs_data_read(values, NULL, &class, data, GS_SPLIT_TRAIN, i, NULL) == GS_OK);
            const double raw = (double)values[5] / info->inverse_std[0] + info->mean[0];
            CHECK_MSG((int32_t)(raw / 20 + 0.5) % 3 == class, "%g is of class %d", raw, (int)class);
        }
        gs_data_close(data);
    }
    static zip z;
    z = (zip){.n = 0};
    zip_add(&z, "x.npy", content, npy(content, "|u1", "(10, 4, 4)", x, sizeof x));
    zip_add(&z, "y.npy", content, npy(content, "<i8", "(9,)", y, 9 * sizeof *y));
    zip_write(&z, "d.npz");
    gs_data *data = NULL;
    gs_error error = {0};
    const gs_data_config config = {.size = sizeof config, .name = in_folder("d.npz")};
    CHECK(gs_data_open(&data, &config, NULL, &error) != GS_OK && !data && strstr(error.text, "9"));
    z.bytes[60]++; /* inside of x */
    write_file("d.npz", z.bytes, z.n);
    CHECK(gs_data_open(&data, &config, NULL, &error) != GS_OK && !data);
}

static void test_cifar(void)
{
    static uint8_t records[4][3073];
    empty_folder();
    for (int i = 0; i < 4; i++) {
        memset(records[i], 50 * i, sizeof records[i]);
        memset(records[i] + 1, 10 * i, 1024); /* red */
        records[i][0] = (uint8_t)(2 * i);
    }
    write_file("data_batch_1.bin", records, sizeof records);
    write_file("data_batch_2.bin", records, sizeof records);
    write_file("test_batch.bin", records, sizeof records[0]);
    write_text("batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
    gs_data *data = open_it((gs_data_config){.name = folder});
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->items[0] == 8 && info->items[1] == 1 && info->classes == 10);
    CHECK(info->height == 32 && info->channels == 3 && strcmp(info->labels[6], "g") == 0);
    static float x[3072];
    int32_t class;
    CHECK(gs_data_read(x, NULL, &class, data, GS_SPLIT_TRAIN, 5, NULL) == GS_OK && class == 2);
    for (int c = 0; c < 3; c++) {
        const double raw = (double)x[3 * 77 + c] / info->inverse_std[c] + info->mean[c];
        CHECK_MSG(fabs(raw - (c ? 50 : 10)) < 1e-3, "channel %d: %g", c, raw);
    }
    char about[2000];
    CHECK(gs_data_describe(about, sizeof about, NULL, data, NULL) == GS_OK);
    gs_data_close(data);
    data = open_it((gs_data_config){.name = folder, .like = about, .unlabelled = 1});
    info = gs_data_get_info(data);
    CHECK(info->items[0] == 9 && info->items[1] == 0 && strcmp(info->labels[6], "g") == 0);
    static float last[3072];
    CHECK(gs_data_read(x, NULL, &class, data, GS_SPLIT_TRAIN, 0, NULL) == GS_OK && class == -1);
    CHECK(gs_data_read(last, NULL, &class, data, GS_SPLIT_TRAIN, 8, NULL) == GS_OK && class == -1);
    CHECK(memcmp(x, last, sizeof x) == 0); /* the first record is the one to validate with */
    gs_data_close(data);
    gs_data_close(open_it((gs_data_config){.name = folder, .like = about}));
    write_text("batches.meta.txt", "a\nb\nd\nc\ne\nf\ng\nh\ni\nj\n");
    refused((gs_data_config){.name = folder, .like = about}, GS_ENAME,
            "its class 2 is d, and the model's is c");
    write_text("batches.meta.txt", "a\nb\nc\nd\xE9\ne\nf\ng\nh\ni\nj\n"); /* Latin-1 */
    data = open_it((gs_data_config){.name = folder});
    CHECK(!gs_data_get_info(data)->labels && gs_data_get_info(data)->classes == 3 + 4);
    gs_data_close(data);
    records[3][0] = 10;
    write_file("data_batch_2.bin", records, sizeof records);
    for (int named = 1; named >= 0; named--) { /* names or not, CIFAR-10 has ten classes */
        refused((gs_data_config){.name = folder}, GS_ERANGE, "has a class 10, and there are 10");
        remove(in_folder("batches.meta.txt"));
    }
    write_file("data_batch_2.bin", records, sizeof records - 1);
    refused((gs_data_config){.name = folder}, GS_EFORMAT, "images of CIFAR have 3073 each");
}

/* Folders behind links are read as those that are there; a link upwards holds nothing new. */
static void test_links(void)
{
    empty_folder();
    write_classes("far", 3, false);
    write_classes("near", 3, false);
    CHECK(rename(in_folder("far/dark"), in_folder("near/dim")) == 0);
    make_folder("far/bright/deep");
    CHECK(rename(in_folder("far/bright/002.png"), in_folder("far/bright/deep/002.png")) == 0);
    static const char *const links[][2] = {{"../far/bright", "near/linked"},
                                           {"..", "near/dark/up"},
                                           {".", "near/dark/here"},
                                           {"../../near/dark", "far/bright/back"},
                                           {"../bright", "far/bright/again"}};
    for (size_t i = 0; i < GSI_COUNT(links); i++)
        CHECK(symlink(links[i][0], in_folder(links[i][1])) == 0);
    gs_data *data = open_it((gs_data_config){.name = in_folder("near")});
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->classes == 4 && strcmp(info->labels[3], "linked") == 0);
    int found = 0;
    for (int split = 0; split < 2; split++)
        for (uint64_t i = 0; i < info->items[split]; i++) {
            char name[256];
            gs_data_item_name(name, sizeof name, data, (gs_split)split, i);
            found += strstr(name, "/linked/00") || strstr(name, "/linked/deep/002.png");
        }
    CHECK(found == 3);
    gs_data_close(data);
    make_folder("apart");
    CHECK(symlink("../near", in_folder("apart/train")) == 0);
    CHECK(symlink("../near", in_folder("apart/val")) == 0);
    data = open_it((gs_data_config){.name = in_folder("apart")});
    info = gs_data_get_info(data);
    CHECK(info->classes == 4 && info->items[0] == info->items[1]);
    gs_data_close(data);
}

/* Classes that are names in one place and numbers in the other: a name that is a number is that. */
static void test_numbers_as_names(void)
{
#define LIKE(n, more) \
    "{\"task\":\"classes\",\"height\":8,\"width\":8,\"channels\":3,\"classes\":" #n more "}"
    empty_folder();
    write_classes("set", 3, false);
    CHECK(rename(in_folder("set/bright"), in_folder("set/2")) == 0);
    CHECK(rename(in_folder("set/dark"), in_folder("set/10")) == 0);
    gs_data *data =
        open_it((gs_data_config){.name = in_folder("set"), .like = LIKE(11, ""), .valid = 0.3});
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->classes == 11 && !info->labels);
    for (int split = 0; split < 2; split++)
        for (uint64_t i = 0; i < info->items[split]; i++) {
            float x[8 * 8 * 3];
            int32_t class;
            CHECK(gs_data_read(x, NULL, &class, data, (gs_split)split, i, NULL) == GS_OK);
            CHECK_MSG(class == (x[0] > 150 ? 2 : 10), "%g is of class %d", (double)x[0], class);
        }
    gs_data_close(data);
    refused((gs_data_config){.name = in_folder("set"), .like = LIKE(10, "")}, GS_ENAME,
            "its class 10 is none of the model's");
    CHECK(rename(in_folder("set/10"), in_folder("set/dark")) == 0);
    refused((gs_data_config){.name = in_folder("set"), .like = LIKE(11, "")}, GS_ENAME,
            "its class dark is none of the model's");
    /* words are not numbers: in their order, where there are as many of them */
    CHECK(rename(in_folder("set/2"), in_folder("set/bright")) == 0);
    refused((gs_data_config){.name = in_folder("set"), .like = LIKE(11, "")}, GS_ENAME,
            "names do not say which of the model's 11 numbers");
    gs_data_close(open_it((gs_data_config){.name = in_folder("set"), .like = LIKE(2, "")}));

    /* numbers for a model that has names */
    const uint8_t x[2 * 192] = {1}, y[] = {0, 2};
    uint8_t content[1024];
    make_folder("arrays");
    write_file("arrays/x.npy", content, npy(content, "|u1", "(2, 8, 8, 3)", x, sizeof x));
    write_file("arrays/y.npy", content, npy(content, "|u1", "(2,)", y, sizeof y));
    static const char *const like[] = {LIKE(3, ",\"labels\":[\"0\",\"1\",\"10\"]"),
                                       LIKE(3, ",\"labels\":[\"0\",\"b\",\"2\"]"),
                                       LIKE(4, ",\"labels\":[\"0\",\"1\",\"2\",\"10\"]")};
    refused((gs_data_config){.name = in_folder("arrays"), .like = like[0]}, GS_ENAME,
            "its classes are numbers, and the model's class 2 is called 10");
    for (int i = 1; i < 3; i++)
        gs_data_close(open_it((gs_data_config){.name = in_folder("arrays"), .like = like[i]}));
    gs_data_close(open_it(
        (gs_data_config){.name = in_folder("arrays/x.npy"), .like = like[0], .unlabelled = 1}));
#undef LIKE
}

/* The fine class is the second byte; names are beside the files. */
static void test_cifar100(void)
{
    static uint8_t records[3][3074];
    char names[400] = "";
    empty_folder();
    for (int i = 0; i < 3; i++) {
        memset(records[i], 20 * i + 10, sizeof records[i]);
        records[i][0] = 7;
        records[i][1] = (uint8_t)(40 * i);
    }
    for (int i = 0; i < 100; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "n%d\n", i);
    write_file("train.bin", records, sizeof records);
    write_file("test.bin", records, sizeof records[0]);
    write_text("fine_label_names.txt", names);
    gs_data *data = open_it((gs_data_config){.name = folder});
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->items[0] == 3 && info->items[1] == 1 && info->classes == 100);
    CHECK(info->labels && strcmp(info->labels[80], "n80") == 0);
    static float x[3072];
    int32_t class;
    for (uint64_t i = 0; i < 3; i++) {
        CHECK(gs_data_read(x, NULL, &class, data, GS_SPLIT_TRAIN, i, NULL) == GS_OK);
        CHECK(class == (int32_t)(40 * i));
        const double raw = (double)x[100] / info->inverse_std[1] + info->mean[1];
        CHECK_MSG(fabs(raw - (double)(20 * i + 10)) < 1e-3, "%g", raw);
    }
    gs_data_close(data);
    records[2][1] = 100;
    write_file("train.bin", records, sizeof records);
    refused((gs_data_config){.name = folder}, GS_ERANGE, "has a class 100, and there are 100");
}

static void test_nanogpt(void)
{
    uint16_t tokens[100];
    empty_folder();
    for (int i = 0; i < 100; i++)
        tokens[i] = (uint16_t)(3 * i);
    write_file("train.bin", tokens, sizeof tokens);
    write_file("val.bin", tokens, 40);
    gs_data *data = open_it((gs_data_config){.name = folder, .time = 8});
    const gs_data_info *info = gs_data_get_info(data);
    int32_t ids[8], targets[8];
    CHECK(info->items[0] == 12 && info->items[1] == 2 && info->classes == 50257);
    CHECK(gs_data_read(NULL, ids, targets, data, GS_SPLIT_TRAIN, 2, NULL) == GS_OK);
    CHECK(ids[0] == 48 && targets[0] == 51 && targets[7] == 72);
    gs_data_close(data);
}

/* ---- varied images ---- */

static void test_augment(void)
{
    const gs_data_info info = {.height = 5, .width = 4, .channels = 2, .task = GS_TASK_PIXELS};
    float base[40], x[40], again[40], work[60];
    int32_t targets[20];
    int flipped = 0, moved = 0;
    for (uint64_t position = 0; position < 200; position++) {
        for (int i = 0; i < 40; i++)
            base[i] = x[i] = again[i] = (float)(i + 1);
        for (int i = 0; i < 20; i++)
            targets[i] = i;
        const gs_augment all = {.crop = 2, .flip = 1, .cutout = 2, .color = 0.25f};
        gsi_augment(x, targets, &info, &all, 9, position, work);
        gsi_augment(again, NULL, &info, &all, 9, position, work);
        CHECK(memcmp(x, again, sizeof x) == 0); /* a function of seed and position */
        const gs_augment places = {.crop = 2, .flip = 1};
        for (int i = 0; i < 20; i++)
            targets[i] = i;
        memcpy(x, base, sizeof x);
        gsi_augment(x, targets, &info, &places, 9, position, work);
        for (int i = 0; i < 20; i++) { /* a pixel's class goes with it */
            if (targets[i] < 0)
                CHECK(x[2 * i] == 0 && x[2 * i + 1] == 0);
            else
                CHECK(x[2 * i] == base[2 * targets[i]]);
            moved += targets[i] < 0;
        }
        const gs_augment flip = {.flip = 1};
        memcpy(x, base, sizeof x);
        gsi_augment(x, NULL, &info, &flip, 9, position, work);
        flipped += x[0] == base[6];
        CHECK(x[0] == base[0] || x[0] == base[6]);
        const gs_augment cut = {.cutout = 2};
        memcpy(x, base, sizeof x);
        gsi_augment(x, NULL, &info, &cut, 9, position, work);
        int zeros = 0;
        for (int i = 0; i < 40; i++)
            zeros += x[i] == 0;
        CHECK(zeros >= 2 && zeros <= 8);
        const gs_augment color = {.color = 0.25f};
        memcpy(x, base, sizeof x);
        gsi_augment(x, NULL, &info, &color, 9, position, work);
        const float gain = (x[2] - x[0]) / 2, offset = x[0] - gain;
        CHECK(gain >= 0.75f && gain <= 1.25f && offset >= -0.2501f && offset <= 0.2501f);
    }
    CHECK_MSG(flipped > 70 && flipped < 130, "%d of 200 flipped", flipped);
    CHECK(moved > 200);
}

/* A loader that goes to a position gives what one that came there gives. */
static void test_loader(void)
{
    gs_data *data = open_it((gs_data_config){.name = "shapes"});
    const gs_loader_config config = {.size = sizeof config,
                                     .batch = 3,
                                     .seed = 4,
                                     .shuffle = 1,
                                     .augment = {.crop = 3, .flip = 1, .cutout = 5}};
    gs_loader *a, *b;
    const gs_batch *x = NULL, *y = NULL;
    size_t n;
    CHECK(gs_loader_create(&a, data, &config, NULL, NULL) == GS_OK);
    CHECK(gs_loader_create(&b, data, &config, NULL, NULL) == GS_OK);
    for (int i = 0; i < 4; i++)
        CHECK(gs_loader_next(&x, &n, a, NULL) == GS_OK);
    CHECK(gs_loader_seek(b, 9, NULL) == GS_OK && gs_loader_next(&y, &n, b, NULL) == GS_OK);
    CHECK(memcmp(x->x, y->x, 3 * 32 * 32 * sizeof(float)) == 0);
    CHECK(memcmp(x->targets, y->targets, 3 * 32 * 32 * sizeof(int32_t)) == 0);
    gs_loader_free(b);
    gs_loader_config plain = config;
    plain.augment = (gs_augment){0};
    CHECK(gs_loader_create(&b, data, &plain, NULL, NULL) == GS_OK);
    CHECK(gs_loader_seek(b, 9, NULL) == GS_OK && gs_loader_next(&y, &n, b, NULL) == GS_OK);
    CHECK(memcmp(x->x, y->x, 3 * 32 * 32 * sizeof(float)) != 0);
    gs_loader_free(a);
    gs_loader_free(b);
    plain.augment.crop = 32;
    CHECK(gs_loader_create(&b, data, &plain, NULL, NULL) == GS_ERANGE && !b);
    gs_data_close(data);
    empty_folder();
}

TESTS({"folder", test_folder}, {"written", test_written}, {"fashion-mnist", test_fashion_mnist},
      {"masks", test_masks}, {"damaged", test_damaged}, {"fit", test_fit}, {"npy", test_npy},
      {"csv", test_csv}, {"npz", test_npz}, {"cifar", test_cifar}, {"cifar100", test_cifar100},
      {"links", test_links}, {"numbers as names", test_numbers_as_names}, {"nanogpt", test_nanogpt},
      {"augment", test_augment}, {"loader", test_loader})
