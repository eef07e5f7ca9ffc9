/* Data sets, from honest files and from lying ones. */
#include "data_files.h"
#include "memory.h"

#include "io/idx.h"

#include <math.h>

static bytes packed;

/* ---- opening ---- */

/* Refuses what no small file may ask for. */
enum { HUGE_REQUEST = 1 << 22 };

static size_t largest;

static void *modest(void *user, void *block, size_t old_size, size_t size)
{
    if (size > largest)
        largest = size;
    return books_resize(user, block, old_size, size);
}

static gs_status open_with(gs_data **data, const gs_data_config *config, gs_error *error)
{
    static books b;
    b = (books){0};
    largest = 0;
    memset(error, 0, sizeof *error);
    const gs_alloc alloc = {modest, &b};
    const gs_status status = gs_data_open(data, config, &alloc, error);
    CHECK((status == GS_OK) == (*data != NULL));
    CHECK((status == GS_OK) == (error->text[0] == 0));
    CHECK_MSG(status == error->status, "%s", error->text);
    CHECK_MSG(largest < HUGE_REQUEST, "asked for %zu bytes", largest);
    if (status != GS_OK)
        CHECK(b.blocks == 0 && !b.wrong);
    return status;
}

static void refused(const gs_data_config *config, gs_status expected, const char *words)
{
    gs_error error;
    gs_data *data;
    const gs_status status = open_with(&data, config, &error);
    CHECK_MSG(status == expected, "%s, not %s: %s", gs_status_name(status),
              gs_status_name(expected), error.text);
    CHECK_MSG(strstr(error.text, words) != NULL, "'%s' is not in: %s", words, error.text);
    gs_data_close(data);
}

static gs_status status_of(const gs_data_config *config)
{
    gs_error error;
    gs_data *data;
    const gs_status status = open_with(&data, config, &error);
    gs_data_close(data);
    return status;
}

/* ---- IDX ---- */

static void test_idx_types(void)
{
    static const uint8_t codes[] = {0x08, 0x09, 0x0B, 0x0C, 0x0D, 0x0E};
    for (size_t t = 0; t < sizeof codes; t++)
        for (int pack = 0; pack < 2; pack++) {
            gsi_heap heap;
            gsi_idx x;
            double values[12];
            gs_error error;
            gsi_heap_init(&heap, NULL);
            idx(&file, codes[t], SHAPE(3, 4), 120);
            if (pack)
                gz(&packed, &file);
            write_file("x", pack ? packed.data : file.data, pack ? packed.n : file.n);
            CHECK(gsi_idx_read(&x, in_folder("x"), &heap, &error) == GS_OK);
            CHECK(x.rank == 2 && x.shape[0] == 3 && x.shape[1] == 4 && x.count == 12);
            gsi_idx_values(values, &x, 0, 12);
            for (int i = 0; i < 12; i++) /* signed bytes wrap */
                CHECK(values[i] == 120 + i - (codes[t] == 0x09 && i > 7 ? 256 : 0));
            gsi_idx_values(values, &x, 5, 2);
            CHECK(values[0] == 125 && values[1] == 126);
            gsi_idx_free(&x, &heap);
            CHECK(heap.bytes == 0);
        }
    empty_folder();
}

static void test_images(void)
{
    float x[6];
    int32_t target;
    write_images("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 5);
    gs_data *data = opened_path("train-images-idx3-ubyte");
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->task == GS_TASK_CLASSES && info->height == 2 && info->width == 3);
    CHECK(info->channels == 1 && info->classes == 5 && info->time == 0);
    CHECK(info->items[0] == 4 && info->items[1] == 1);
    double sum = 0, square = 0;
    unsigned seen = 0;
    for (uint64_t i = 0; i < 5; i++) {
        const gs_split split = i < 4 ? GS_SPLIT_TRAIN : GS_SPLIT_VALID;
        CHECK(gs_data_read(x, NULL, &target, data, split, i % 4, NULL) == GS_OK);
        seen |= 1u << target;
        for (int p = 0; p < 6; p++) {
            const double value = 6 * target + p; /* as it was written; the mean is 14.5 */
            CHECK(fabs((double)x[p] - (value - 14.5) / sqrt(899 / 12.0)) < 1e-6);
            sum += (double)x[p];
            square += (double)x[p] * (double)x[p];
        }
    }
    CHECK(seen == 31); /* each once, in one split or the other */
    CHECK(fabs(sum) < 1e-5 && fabs(square / 30 - 1) < 1e-6);
    CHECK(gs_data_read(x, NULL, &target, data, GS_SPLIT_TRAIN, 4, NULL) == GS_ERANGE);
    CHECK(gs_data_read(x, NULL, &target, data, GS_SPLIT_VALID, 1, NULL) == GS_ERANGE);
    CHECK(gs_data_read(x, NULL, &target, data, GS_SPLIT_COUNT, 0, NULL) == GS_ERANGE);
    CHECK(gs_data_read(NULL, NULL, &target, data, GS_SPLIT_TRAIN, 0, NULL) == GS_ENULL);
    CHECK(gs_data_read(x, NULL, NULL, data, GS_SPLIT_TRAIN, 0, NULL) == GS_ENULL);
    gs_data_close(data);

    /* with a set to validate with, by its name; the folder means the same */
    write_images("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 7);
    gs_data *both[] = {opened_path("train-images-idx3-ubyte"), opened_path("")};
    for (int i = 0; i < 2; i++) {
        info = gs_data_get_info(both[i]);
        CHECK(info->items[0] == 5 && info->items[1] == 7 && info->classes == 7);
        CHECK(gs_data_read(x, NULL, &target, both[i], GS_SPLIT_VALID, 6, NULL) == GS_OK);
        CHECK(target == 6 && fabs((double)x[0] - (36 - 14.5) / sqrt(899 / 12.0)) < 1e-6);
        gs_data_close(both[i]);
    }

    /* three channels, each with a mean of its own; labels given; one value only becomes 0 */
    idx(&file, 0x08, SHAPE(2, 1, 2, 3), 0);
    for (size_t i = 0; i < 12; i++)
        file.data[file.n - 12 + i] = (uint8_t)(i % 3 == 2 ? 9 : i % 3 == 1 ? 100 + i : i);
    write_file("colours", file.data, file.n);
    idx(&file, 0x08, SHAPE(2), 0);
    write_file("kinds", file.data, file.n);
    data = opened(&(gs_data_config){.size = sizeof(gs_data_config),
                                    .name = in_folder("colours"),
                                    .labels = in_folder("kinds"),
                                    .valid = 0.5});
    CHECK(gs_data_get_info(data)->channels == 3 && gs_data_get_info(data)->items[1] == 1);
    CHECK(gs_data_read(x, NULL, &target, data, GS_SPLIT_TRAIN, 0, NULL) == GS_OK);
    const double first = (6 * target - 4.5) / sqrt(11.25);
    CHECK(fabs((double)x[0] - first) < 1e-6 && fabs((double)x[1] - first) < 1e-6 && x[2] == 0);
    gs_data_close(data);

    /* one label per pixel */
    idx(&file, 0x08, SHAPE(2, 1, 3), 0);
    write_file("maps", file.data, file.n);
    idx(&file, 0x08, SHAPE(2, 1, 3), 0);
    write_file("pixels", file.data, file.n);
    data = opened(&(gs_data_config){
        .size = sizeof(gs_data_config), .name = in_folder("pixels"), .labels = in_folder("maps")});
    int32_t targets[3];
    CHECK(gs_data_get_info(data)->task == GS_TASK_PIXELS && gs_data_get_info(data)->classes == 6);
    CHECK(gs_data_read(x, NULL, targets, data, GS_SPLIT_VALID, 0, NULL) == GS_OK);
    CHECK(targets[1] == targets[0] + 1 && targets[2] == targets[0] + 2);
    gs_data_close(data);
    empty_folder();
}

static void lie(const uint32_t shape[5], uint8_t type, const uint8_t replace[20], size_t n,
                gs_status status, const char *words)
{
    idx(&file, type, shape, 0);
    memcpy(file.data, replace, n);
    write_file("train-images-idx3-ubyte", file.data, file.n);
    const gs_data_config config = {.size = sizeof config,
                                   .name = in_folder("train-images-idx3-ubyte")};
    refused(&config, status, words);
}

static void test_idx_lies(void)
{
    write_images("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 5);
    const gs_data_config config = {.size = sizeof config,
                                   .name = in_folder("train-images-idx3-ubyte")};
    const uint32_t *shape = SHAPE(5, 2, 3);
    const char *sizes = "announces";
#define LIE(status, words, ...)                                                                  \
    lie(shape, 0x08, (const uint8_t[20]){__VA_ARGS__}, sizeof((uint8_t[]){__VA_ARGS__}), status, \
        words)
    LIE(GS_EFORMAT, "begins with 00 00 07 03", 0, 0, 7, 3);
    LIE(GS_EFORMAT, "begins with 00 00 08 00", 0, 0, 8, 0);
    LIE(GS_EFORMAT, "begins with 01 00 08 03", 1, 0, 8, 3);
    LIE(GS_ESIZE, "5 dimensions", 0, 0, 8, 5);
    LIE(GS_EFORMAT, sizes, 0, 0, 8, 3, 0, 0, 0, 6);
    LIE(GS_EFORMAT, sizes, 0, 0, 8, 3, 0, 0, 0, 4);
    LIE(GS_EFORMAT, sizes, 0, 0, 8, 3, 255, 255, 255, 255);
    LIE(GS_EFORMAT, sizes, 0, 0, 8, 3, 128, 0, 0, 5);
    LIE(GS_EFORMAT, sizes, 0, 0, 14, 3);
    LIE(GS_EFORMAT, "more than any file", 0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255,
        255, 255, 255);
    LIE(GS_ESIZE, "is 0", 0, 0, 8, 3, 0, 0, 0, 0);
    LIE(GS_ESIZE, "is 0", 0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 0);
    shape = SHAPE(4, 2, 3);
    LIE(GS_ESIZE, "5 labels for 4 images", 0, 0, 8, 3);
#undef LIE

    /* every truncation, of images and of labels, plain and packed */
    for (int which = 0; which < 2; which++)
        for (int pack = 0; pack < 2; pack++) {
            static bytes whole;
            write_images("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 5);
            const char *name = which ? "train-labels-idx1-ubyte" : "train-images-idx3-ubyte";
            idx(&whole, 0x08, which ? SHAPE(5) : SHAPE(5, 2, 3), 0);
            if (pack) {
                memcpy(&file, &whole, sizeof file);
                gz(&whole, &file);
            }
            write_file(name, whole.data, whole.n);
            CHECK(status_of(&config) == GS_OK);
            for (size_t n = 0; n < whole.n; n++) {
                write_file(name, whole.data, n);
                refused(&config, GS_EFORMAT, name);
            }
            add(&whole, "", 1);
            write_file(name, whole.data, whole.n);
            refused(&config, GS_EFORMAT, name);
        }

    /* labels that are no classes */
    write_images("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 5);
    idx(&file, 0x09, SHAPE(5), 126);
    write_file("train-labels-idx1-ubyte", file.data, file.n);
    refused(&config, GS_ERANGE, "label 2 is -128");
    idx(&file, 0x0D, SHAPE(5), 0);
    file.data[file.n - 4] = 0x3F; /* 1.0 and a little */
    file.data[file.n - 3] = 0xC0;
    write_file("train-labels-idx1-ubyte", file.data, file.n);
    refused(&config, GS_ERANGE, "label 4 is 1.5");
    idx(&file, 0x0C, SHAPE(5, 2), 0);
    write_file("train-labels-idx1-ubyte", file.data, file.n);
    refused(&config, GS_ESIZE, "neither one label per image nor one per pixel");
    idx(&file, 0x0C, SHAPE(5), 1 << 24);
    write_file("train-labels-idx1-ubyte", file.data, file.n);
    refused(&config, GS_ERANGE, "label 0 is");
    unlink(in_folder("train-labels-idx1-ubyte"));
    refused(&config, GS_EIO, "labels are not beside it");

    /* pixels that are no numbers */
    write_images("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 5);
    idx(&file, 0x0D, SHAPE(5, 2, 3), 0);
    memset(file.data + file.n - 4, 0x7F, 4);
    file.data[file.n - 3] = 0xC0;
    write_file("train-images-idx3-ubyte", file.data, file.n);
    refused(&config, GS_ERANGE, "not finite");
    idx(&file, 0x0D, SHAPE(5), 0);
    write_file("train-images-idx3-ubyte", file.data, file.n);
    refused(&config, GS_ESIZE, "not of images");

    /* a set to validate with of another shape, or without labels */
    write_images("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 5);
    write_images("test-images-idx3-ubyte", "test-labels-idx1-ubyte", 5);
    CHECK(status_of(&config) == GS_OK);
    idx(&file, 0x08, SHAPE(5, 3, 2), 0);
    write_file("test-images-idx3-ubyte", file.data, file.n);
    refused(&config, GS_ESIZE, "test-images-idx3-ubyte: is of another shape");
    unlink(in_folder("test-labels-idx1-ubyte"));
    refused(&config, GS_EIO, "labels of its validation set");
    empty_folder();
}

/* ---- gzip ---- */

static void test_gzip(void)
{
    static bytes second;
    const gs_data_config config = {.size = sizeof config, .name = in_folder("text.gz"), .time = 4};
    int32_t ids[4], targets[4];
    file.n = packed.n = second.n = 0;
    add(&file, "first half ", 11);
    gz(&packed, &file);
    file.n = 0;
    add(&file, "second half", 11);
    gz(&second, &file);
    add(&packed, second.data, second.n);
    write_file("text.gz", packed.data, packed.n); /* two members, as cat makes them */
    gs_data *data = opened(&config);
    CHECK(gs_data_get_info(data)->items[0] + gs_data_get_info(data)->items[1] == 5);
    CHECK(gs_data_read(NULL, ids, targets, data, GS_SPLIT_TRAIN, 2, NULL) == GS_OK);
    CHECK(ids[0] == 'l' && ids[1] == 'f' && ids[3] == 's' && targets[3] == 'e');
    gs_data_close(data);

    for (size_t n = 3; n < packed.n; n++) { /* every truncation but between the members */
        if (n == packed.n - second.n)
            continue;
        write_file("text.gz", packed.data, n);
        refused(&config, GS_EFORMAT, n < 10 ? "text.gz: is cut short" : "text.gz: ");
    }
    for (size_t i = 0; i < 8 * packed.n; i++) { /* every bit */
        const bool later = i / 8 >= packed.n - second.n;
        const size_t length = later ? second.n : packed.n - second.n;
        const size_t at = later ? i / 8 - (packed.n - second.n) : i / 8;
        packed.data[i / 8] ^= (uint8_t)(1 << i % 8);
        write_file("text.gz", packed.data, packed.n);
        const gs_status status = status_of(&config);
        /* Without its magic it is text; time and system are nobody's business, nor is what fills up
         * the last byte before length and checksum. */
        if (at >= 10 && at != length - 9)
            CHECK_MSG(status == GS_EFORMAT, "bit %zu: %s", i, gs_status_name(status));
        packed.data[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    add(&packed, "garbage", 7);
    write_file("text.gz", packed.data, packed.n);
    refused(&config, GS_EFORMAT, "damaged");

    /* Zeros a thousand times as long as their packed form, which is all that is ever in memory. */
    gzFile bomb = gzopen(in_folder("train-images-idx3-ubyte.gz"), "wb9");
    static const uint8_t zeros[1 << 16];
    gzwrite(bomb, (const uint8_t[]){0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 3}, 16);
    for (int i = 0; i < 1 << 10; i++)
        gzwrite(bomb, zeros, sizeof zeros);
    gzclose(bomb);
    write_images("unused", "train-labels-idx1-ubyte", 5);
    refused(&(gs_data_config){.size = sizeof(gs_data_config),
                              .name = in_folder("train-images-idx3-ubyte.gz")},
            GS_EFORMAT, "longer than the 30 bytes");
    if (!test_long()) {
        test_skip_part("text that would not fit in memory", "it is for GS_LONG=1");
    } else {
        bomb = gzopen(in_folder("text.gz"), "wb9");
        static uint8_t letters[1 << 16];
        memset(letters, 'a', sizeof letters);
        for (int i = 0; i <= 1 << 15; i++)
            gzwrite(bomb, letters, sizeof letters);
        gzclose(bomb);
        refused(&config, GS_ESIZE, "longer than the 2147483648 bytes");
    }
    empty_folder();
}

/* ---- Fashion-MNIST ---- */

static void test_no_fashion_mnist(void)
{
    empty_folder();
    refused(&(gs_data_config){.size = sizeof(gs_data_config),
                              .name = "fashion-mnist",
                              .root = in_folder("")},
            GS_EIO, "install Debian's package dataset-fashion-mnist");
}

/* The options of images are its own, too, wherever its files are. */
static void test_raw_fashion_mnist(void)
{
    float x[6];
    int32_t target;
    empty_folder();
    write_images("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 6);
    write_images("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 3);
    for (int raw = 0; raw < 2; raw++) {
        gs_data *data = opened(&(gs_data_config){.size = sizeof(gs_data_config),
                                                 .name = "fashion-mnist",
                                                 .root = in_folder(""),
                                                 .raw = raw});
        CHECK((gs_data_get_info(data)->mean == NULL) == raw);
        CHECK(gs_data_read(x, NULL, &target, data, GS_SPLIT_TRAIN, 1, NULL) == GS_OK);
        CHECK((x[0] == 6 && x[5] == 11) == raw && target == 1);
        gs_data_close(data);
    }
}

static void test_fashion_mnist(void)
{
    if (access("/usr/share/datasets/fashion-mnist", R_OK) != 0)
        SKIP("the data set is not installed (scripts/deps.sh demo)");
    gs_data *data =
        opened(&(gs_data_config){.size = sizeof(gs_data_config), .name = "fashion-mnist"});
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->task == GS_TASK_CLASSES && info->height == 28 && info->width == 28);
    CHECK(info->channels == 1 && info->classes == 10 && strcmp(info->name, "fashion-mnist") == 0);
    CHECK(info->items[GS_SPLIT_TRAIN] == 60000 && info->items[GS_SPLIT_VALID] == 10000);
    float x[784];
    int32_t target, counts[10] = {0};
    CHECK(gs_data_read(x, NULL, &target, data, GS_SPLIT_TRAIN, 0, NULL) == GS_OK && target == 9);
    CHECK(fabs((double)x[0] + 72.9404 / 90.0212) < 1e-5); /* the known mean and deviation */
    for (uint64_t i = 0; i < 10000; i++) {
        CHECK(gs_data_read(x, NULL, &target, data, GS_SPLIT_VALID, i, NULL) == GS_OK);
        counts[target]++;
    }
    for (int c = 0; c < 10; c++)
        CHECK(counts[c] == 1000);
    gs_data_close(data);
}

/* ---- text ---- */

static void check_window(gs_data *data, gs_split split, uint64_t item, const char *expected)
{
    int32_t ids[64], targets[64];
    const size_t time = gs_data_get_info(data)->time;
    CHECK(gs_data_read(NULL, ids, targets, data, split, item, NULL) == GS_OK);
    for (size_t i = 0; i < time; i++) {
        CHECK_MSG(ids[i] == (uint8_t)expected[i], "byte %zu is %d", i, ids[i]);
        CHECK_MSG(targets[i] == (uint8_t)expected[i + 1], "target %zu is %d", i, targets[i]);
    }
}

static void test_text(void)
{
    write_text("a.txt", "abcdefghijklmnopqrstuvwxyz");
    gs_data *data = opened(&(gs_data_config){
        .size = sizeof(gs_data_config), .name = in_folder("a.txt"), .time = 5, .valid = 0.4});
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->task == GS_TASK_TOKENS && info->time == 5 && info->classes == 256);
    CHECK(info->height == 0 && info->items[0] == 3 && info->items[1] == 2);
    check_window(data, GS_SPLIT_TRAIN, 0, "abcdef");
    check_window(data, GS_SPLIT_TRAIN, 2, "klmnop");
    check_window(data, GS_SPLIT_VALID, 0, "pqrstu");
    check_window(data, GS_SPLIT_VALID, 1, "uvwxyz");
    gs_data_close(data);

    /* too short: for one item; then for one of each */
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("a.txt")}, GS_ESIZE,
            "a.txt: has 26 bytes of text");
    refused(
        &(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("a.txt"), .time = 26},
        GS_ESIZE, "needs 27");
    data = opened(
        &(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("a.txt"), .time = 25});
    CHECK(gs_data_get_info(data)->items[0] == 1 && gs_data_get_info(data)->items[1] == 0);
    gs_loader *loader;
    gs_error error;
    const gs_loader_config valid = {.size = sizeof valid, .split = GS_SPLIT_VALID, .batch = 1};
    CHECK(gs_loader_create(&loader, data, &valid, NULL, &error) == GS_ESIZE && !loader);
    CHECK(strstr(error.text, "too short to validate"));
    gs_data_close(data);

    /* a folder: sorted, deep, a 0 after each; no binary, hidden, empty files, no links to folders
     */
    make_folder("set");
    make_folder("set/sub");
    write_text("set/b", "BBBB");
    write_text("set/sub/a", "AAA");
    write_text("set/a", "aa");
    write_text("set/.hidden", "hidden");
    write_text("set/empty", "");
    write_file("set/binary", "xx\0xx", 5);
    if (symlink(in_folder("set"), in_folder("set/loop")) != 0 ||
        symlink(in_folder("a.txt"), in_folder("set/link")) != 0 ||
        symlink("nowhere", in_folder("set/broken")) != 0 ||
        mkfifo(in_folder("set/fifo"), 0600) != 0)
        abort();
    data = opened(
        &(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("set"), .time = 38});
    check_window(data, GS_SPLIT_TRAIN, 0, "aa\0BBBB\0abcdefghijklmnopqrstuvwxyz\0AAA");
    gs_data_close(data);
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("set"), .time = 39},
            GS_ESIZE, "39 bytes of text");

    make_folder("bare");
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("bare")}, GS_ESIZE,
            "bare: is empty, or holds no file");
    /* what is not text is not learnt as text, whatever its name */
    static const struct {
        const char *name, *bytes;
        size_t n;
        gs_status status;
        const char *words;
    } binaries[] = {
        {"x.npy", "\x93NUMPY\x01\0v\0{'descr': '<f4'}", 27, GS_EFORMAT, "ends within its header"},
        {"x.npz", "PK\3\4\x14\0\0\0\0\0\0\0!\0", 14, GS_EFORMAT, "is not a sound zip file"},
        {"x.safetensors", "\x10\0\0\0\0\0\0\0{\"a\":{}}       ", 24, GS_EFORMAT,
         "is binary, and of no format that is read: IDX or CIFAR images"},
        {"x.png", "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16, GS_ERANGE, "is one image, without a class"},
        {"x.txt", "no zero, but \x01 \x02", 17, GS_EFORMAT,
         "is binary, and of no format that is read: IDX or CIFAR images"},
    };
    for (size_t i = 0; i < sizeof binaries / sizeof binaries[0]; i++) {
        write_file(binaries[i].name, binaries[i].bytes, binaries[i].n);
        refused(&(gs_data_config){.size = sizeof(gs_data_config),
                                  .name = in_folder(binaries[i].name),
                                  .time = 4},
                binaries[i].status, binaries[i].words);
    }
    write_file("latin1.txt", "caf\xe9\t\f\033[1m caf\xe9\r\n", 17);
    gs_data_close(opened(&(gs_data_config){
        .size = sizeof(gs_data_config), .name = in_folder("latin1.txt"), .time = 4}));
    write_text("void", "");
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("void")},
            GS_EFORMAT, "void: is empty");
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("nothing")}, GS_EIO,
            "nothing: No such file");
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = "nothing"}, GS_ENAME,
            "no data set has this name");
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("set/fifo")},
            GS_EIO, "is a pipe");
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = "/dev/zero"}, GS_EIO,
            "a device");
    if (geteuid() == 0) {
        test_skip_part("files without the right to read", "root may read all");
    } else {
        chmod(in_folder("a.txt"), 0);
        refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("a.txt")},
                GS_EIO, "Permission denied");
        refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("set")}, GS_EIO,
                "Permission denied");
        chmod(in_folder("set/sub"), 0);
        refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("set")}, GS_EIO,
                "Permission denied");
        chmod(in_folder("set/sub"), 0700);
    }

    char deep[256] = "deep";
    make_folder(deep);
    for (int i = 0; i < 33; i++) {
        strcat(deep, "/d");
        make_folder(deep);
    }
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder("deep")}, GS_ESIZE,
            "too deep");
    empty_folder();
}

static void test_self(void)
{
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = "self"}, GS_ENULL,
            "self: the folder");
    refused(
        &(gs_data_config){.size = sizeof(gs_data_config), .name = "self", .root = "/nonexistent"},
        GS_EIO, "/nonexistent/");
    gs_data *data = opened(
        &(gs_data_config){.size = sizeof(gs_data_config), .name = "self", .root = ".", .time = 63});
    CHECK(gs_data_get_info(data)->items[0] > 10000);
    char first[65] = ""; /* of the first file, in the order of their names */
    FILE *source = fopen("include/gradscale/base.h", "rb");
    CHECK(source && fread(first, 1, 64, source) == 64);
    if (source)
        fclose(source);
    check_window(data, GS_SPLIT_TRAIN, 0, first);
    gs_data_close(data);
    write_text("self.txt", "abcdefghijklmnopqrstuvwxyz"); /* as it is installed */
    data = opened(&(gs_data_config){
        .size = sizeof(gs_data_config), .name = "self", .root = in_folder("self.txt"), .time = 5});
    check_window(data, GS_SPLIT_TRAIN, 1, "fghijk");
    gs_data_close(data);
}

/* ---- tokens ---- */

static void check_tokens(gs_data *data, gs_split split, uint64_t item, int32_t first)
{
    int32_t ids[8], targets[8];
    CHECK(gs_data_read(NULL, ids, targets, data, split, item, NULL) == GS_OK);
    for (int32_t i = 0; i < (int32_t)gs_data_get_info(data)->time; i++)
        CHECK_MSG(ids[i] == first + i && targets[i] == first + i + 1, "%d, not %d", ids[i],
                  first + i);
}

static void test_tokens(void)
{
    int32_t ids[4], targets[4];
    gs_error error;
    const gs_data_config config = {
        .size = sizeof config, .name = in_folder("x_train.bin"), .time = 4};
    write_tokens("x_train.bin", 42, 1000);
    gs_data *data = opened(&config);
    CHECK(gs_data_get_info(data)->task == GS_TASK_TOKENS &&
          gs_data_get_info(data)->classes == 50257);
    CHECK(gs_data_get_info(data)->items[0] == 9 && gs_data_get_info(data)->items[1] == 1);
    check_tokens(data, GS_SPLIT_TRAIN, 0, 1000);
    check_tokens(data, GS_SPLIT_TRAIN, 8, 1032);
    check_tokens(data, GS_SPLIT_VALID, 0, 1036);
    gs_data_close(data);

    write_tokens("x_val.bin", 13, 2000);
    data = opened(&config);
    CHECK(gs_data_get_info(data)->items[0] == 10 && gs_data_get_info(data)->items[1] == 3);
    check_tokens(data, GS_SPLIT_TRAIN, 9, 1036);
    check_tokens(data, GS_SPLIT_VALID, 2, 2008);
    gs_data_close(data);

    write_tokens("y_train_2.bin", 9, 3000); /* shards in order; one is too short for an item */
    write_tokens("y_train_1.bin", 4, 4000);
    data =
        opened(&(gs_data_config){.size = sizeof(gs_data_config), .name = in_folder(""), .time = 4});
    CHECK(gs_data_get_info(data)->items[0] == 12 && gs_data_get_info(data)->items[1] == 3);
    check_tokens(data, GS_SPLIT_TRAIN, 9, 1036);
    check_tokens(data, GS_SPLIT_TRAIN, 10, 3000);
    check_tokens(data, GS_SPLIT_TRAIN, 11, 3004);
    check_tokens(data, GS_SPLIT_VALID, 0, 2000);
    gs_data_close(data);
    empty_folder();

    /* a vocabulary that its tokens do not keep to; the file is cut while it is read */
    write_tokens("x_train.bin", 42, 1000);
    data = opened(&(gs_data_config){
        .size = sizeof(gs_data_config), .name = config.name, .time = 4, .vocabulary = 1006});
    CHECK(gs_data_read(NULL, ids, targets, data, GS_SPLIT_TRAIN, 0, NULL) == GS_OK);
    CHECK(gs_data_read(NULL, ids, targets, data, GS_SPLIT_TRAIN, 1, &error) == GS_ERANGE);
    CHECK_MSG(strstr(error.text, "x_train.bin: token 6 is 1006"), "%s", error.text);
    CHECK(truncate(config.name, 1030) == 0);
    CHECK(gs_data_read(NULL, ids, targets, data, GS_SPLIT_TRAIN, 8, &error) == GS_EIO);
    gs_data_close(data);

    /* every truncation, lying counts, others' formats */
    tokens(&file, 42, 0);
    for (size_t n = 0; n < file.n; n += n < 1000 ? 37 : 1) {
        write_file("x_train.bin", file.data, n);
        refused(&config, GS_EFORMAT, "x_train.bin: ");
    }
    add(&file, "x", 1);
    write_file("x_train.bin", file.data, file.n--);
    refused(&config, GS_EFORMAT, "announces 42 tokens");
    static const struct {
        size_t at;
        uint8_t value;
        gs_status status;
        const char *words;
    } lies[] = {
        {8, 43, GS_EFORMAT, "announces 43 tokens, but it has 84 bytes"},
        {11, 0xFF, GS_EFORMAT, "announces"},
        {11, 0x80, GS_EFORMAT, "announces"},
        {4, 2, GS_EVERSION, "version 2"},
        {0, 0, GS_EFORMAT, "not 20240520; nanoGPT's, which have none, must be called train.bin"}};
    for (size_t i = 0; i < GSI_COUNT(lies); i++) {
        tokens(&file, 42, 0);
        file.data[lies[i].at] = lies[i].value;
        write_file("x_train.bin", file.data, file.n);
        refused(&config, lies[i].status, lies[i].words);
    }
    tokens(&file, 42, 0);
    for (int i = 0; i < 4; i++)
        file.data[i] = (uint8_t)(20240801 >> 8 * i);
    write_file("x_train.bin", file.data, file.n);
    refused(&config, GS_EVERSION, "32 bits");
    write_tokens("x_train.bin", 4, 0);
    refused(&config, GS_ESIZE, "too short for one item");
    write_tokens("x_train.bin", 0, 0);
    refused(&config, GS_ESIZE, "too short for one item");
    empty_folder();
}

/* ---- shapes ---- */

static void test_shapes(void)
{
    enum { PIXELS = 32 * 32, N = 200 };
    static float x[3][PIXELS];
    static int32_t y[3][PIXELS];
    gs_data *data =
        opened(&(gs_data_config){.size = sizeof(gs_data_config), .name = "shapes", .seed = 5});
    gs_data *other =
        opened(&(gs_data_config){.size = sizeof(gs_data_config), .name = "shapes", .seed = 6});
    const gs_data_info *info = gs_data_get_info(data);
    CHECK(info->task == GS_TASK_PIXELS && info->height == 32 && info->width == 32);
    CHECK(info->channels == 1 && info->classes == 4 && info->items[0] == UINT64_MAX);
    CHECK(gs_data_read(x[0], NULL, y[0], data, GS_SPLIT_TRAIN, UINT64_MAX, NULL) == GS_ERANGE);
    double counts[4] = {0}, sum = 0, square = 0;
    for (uint64_t i = 0; i < N; i++) {
        const uint64_t item = i == N - 1 ? UINT64_MAX - 1 : i;
        CHECK(gs_data_read(x[0], NULL, y[0], data, GS_SPLIT_TRAIN, item, NULL) == GS_OK);
        CHECK(gs_data_read(x[1], NULL, y[1], data, GS_SPLIT_TRAIN, item, NULL) == GS_OK);
        CHECK(memcmp(x[0], x[1], sizeof x[0]) == 0 && memcmp(y[0], y[1], sizeof y[0]) == 0);
        CHECK(gs_data_read(x[1], NULL, y[1], data, GS_SPLIT_VALID, i, NULL) == GS_OK);
        CHECK(gs_data_read(x[2], NULL, y[2], other, GS_SPLIT_TRAIN, item, NULL) == GS_OK);
        CHECK(memcmp(x[0], x[1], sizeof x[0]) != 0 && memcmp(x[0], x[2], sizeof x[0]) != 0);
        unsigned classes = 0;
        for (int p = 0; p < PIXELS; p++) {
            CHECK(y[0][p] >= 0 && y[0][p] < 4);
            counts[y[0][p]]++;
            classes |= 1u << y[0][p];
            sum += (double)x[0][p];
            square += (double)x[0][p] * (double)x[0][p];
        }
        CHECK(classes > 1); /* background and a shape, or shapes alone */
    }
    for (int c = 1; c < 4; c++)
        CHECK(counts[c] > 0.01 * N * PIXELS && counts[c] < 0.3 * N * PIXELS);
    CHECK(counts[0] > 0.7 * N * PIXELS);
    CHECK(fabs(sum / (N * PIXELS)) < 1 && square / (N * PIXELS) < 2);
    gs_data_close(data);
    gs_data_close(other);
}

static void test_config(void)
{
    gs_data *data;
    gs_error error;
    CHECK(gs_data_open(NULL, NULL, NULL, NULL) == GS_ENULL);
    CHECK(gs_data_open(&data, NULL, NULL, &error) == GS_ENULL);
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = NULL}, GS_ENULL, "no name");
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = ""}, GS_ENULL, "no name");
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = "shapes", .valid = 1},
            GS_ERANGE, "share held out is 1");
    refused(&(gs_data_config){.size = sizeof(gs_data_config), .name = "shapes", .valid = -0.1},
            GS_ERANGE, "share held out");
    refused(
        &(gs_data_config){.size = sizeof(gs_data_config), .name = "shapes", .valid = (double)NAN},
        GS_ERANGE, "share held out");
    refused(&(gs_data_config){.size = sizeof(gs_data_config),
                              .name = "shapes",
                              .time = (size_t)1 << 25},
            GS_ERANGE, "tokens");
    refused(
        &(gs_data_config){.size = sizeof(gs_data_config), .name = "shapes", .vocabulary = 1 << 17},
        GS_ERANGE, "vocabulary");
    if (folder[0])
        rmdir(folder);
}

TESTS({"idx types", test_idx_types}, {"images", test_images}, {"idx lies", test_idx_lies},
      {"gzip", test_gzip}, {"no fashion-mnist", test_no_fashion_mnist},
      {"raw fashion-mnist", test_raw_fashion_mnist}, {"fashion-mnist", test_fashion_mnist},
      {"text", test_text}, {"self", test_self}, {"tokens", test_tokens}, {"shapes", test_shapes},
      {"config", test_config})
