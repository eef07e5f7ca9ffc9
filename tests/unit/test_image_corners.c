/* Arrays, tables, folders of images and CIFAR at the edges of what is read: each lie has its
 * message, each odd but honest file its values. */
#include "array_files.h"
#include "image_files.h"

#include "train/data.h"

#include <math.h>

static gs_error error;

static gs_status open_it(gs_data **data, gs_data_config config)
{
    config.size = sizeof config;
    error = (gs_error){0};
    return gs_data_open(data, &config, NULL, &error);
}

static gs_data *fine(gs_data_config config)
{
    gs_data *data;
    const gs_status status = open_it(&data, config);
    CHECK_MSG(status == GS_OK, "%s", error.text);
    return data;
}

static void refused(gs_data_config config, gs_status expected, const char *words)
{
    gs_data *data;
    const gs_status status = open_it(&data, config);
    CHECK_MSG(status == expected, "%s, not %s: %s", gs_status_name(status),
              gs_status_name(expected), error.text);
    CHECK_MSG(strstr(error.text, words) != NULL, "'%s' is not in: %s", words, error.text);
    gs_data_close(data);
}

static void write_npy(const char *name, const char *type, const char *shape, const void *data,
                      size_t n)
{
    static uint8_t content[4096];
    write_file(name, content, npy(content, type, shape, data, n));
}

/* ---- arrays ---- */

/* The same numbers in both byte orders and in every type. */
static void test_byte_order(void)
{
    static const struct {
        const char *type;
        int bytes;
        bool big;
    } types[] = {{"<i4", 4, false}, {">i4", 4, true},  {"<i2", 2, false},
                 {">i2", 2, true},  {"|u1", 1, false}, {">u8", 8, true}};
    static const uint8_t y[4] = {0, 1, 0, 1};
    empty_folder();
    write_npy("y.npy", "|u1", "(4,)", y, sizeof y);
    for (size_t t = 0; t < GSI_COUNT(types); t++) {
        bytes *b = calloc(1, sizeof *b);
        for (uint64_t i = 0; i < 8; i++)
            (types[t].big ? add_big : add_little)(b, 3 * i, types[t].bytes);
        write_npy("x.npy", types[t].type, "(4, 2)", b->data, b->n);
        free(b);
        gs_data *data = fine((gs_data_config){.name = in_folder("x.npy"), .raw = 1});
        int seen = 0;
        for (int i = 0; data && i < 4; i++) {
            float x[2];
            int32_t class;
            CHECK(gs_data_read(x, NULL, &class, data, (gs_split)(i == 3), (uint64_t)i % 3, NULL) ==
                  GS_OK);
            CHECK_MSG(x[1] == x[0] + 3, "%s: %g %g", types[t].type, (double)x[0], (double)x[1]);
            seen |= 1 << (int)(x[0] / 6);
        }
        CHECK(seen == 15);
        gs_data_close(data);
    }
}

static void test_arrays(void)
{
    static const uint8_t x[64] = {1, 2, 3, 4}, y[8] = {0, 1, 1, 0, 1, 1};
    static const char like[] = "{\"task\":\"classes\",\"height\":1,\"width\":2,\"channels\":1,"
                               "\"classes\":2}";
    empty_folder();
    write_npy("y.npy", "|u1", "(4,)", y, 4);
    write_npy("x.npy", "|u1", "()", x, 1);
    refused((gs_data_config){.name = in_folder("x.npy")}, GS_ESIZE, "has 0 dimensions: 1 to 4");
    write_npy("x.npy", "|u1", "(4, 1, 1, 1, 2)", x, 8);
    refused((gs_data_config){.name = in_folder("x.npy")}, GS_ESIZE, "has 5 dimensions: 1 to 4");
    write_npy("x.npy", "|u1", "(4,)", x, 4);
    refused((gs_data_config){.name = in_folder("x.npy")}, GS_ESIZE, "is a list of numbers");
    refused((gs_data_config){.name = in_folder("x.npy"), .like = like, .unlabelled = 1}, GS_ESIZE,
            "is a list of numbers");
    uint8_t content[512];
    const size_t n = npy(content, "|u1", "(4, 2)", x, 8);
    char *order = NULL;
    for (size_t i = 0; i + 5 < n && !order; i++)
        order = memcmp(content + i, "False", 5) == 0 ? (char *)content + i : NULL;
    memcpy(order, "True ", 5);
    write_file("x.npy", content, n);
    refused((gs_data_config){.name = in_folder("x.npy")}, GS_EFORMAT, "is in Fortran order");
    /* of a vector there is one order only */
    const size_t m = npy(content, "|u1", "(4,)", y, 4);
    for (size_t i = 0; i + 5 < m; i++)
        if (memcmp(content + i, "False", 5) == 0)
            memcpy(content + i, "True ", 5);
    write_file("y.npy", content, m);
    write_npy("x.npy", "|u1", "(4, 2)", x, 8);
    gs_data_close(fine((gs_data_config){.name = in_folder("x.npy")}));

    /* names: images and labels, X and Y, and those that say nothing */
    CHECK(rename(in_folder("x.npy"), in_folder("images.npy")) == 0);
    CHECK(rename(in_folder("y.npy"), in_folder("labels.npy")) == 0);
    gs_data_close(fine((gs_data_config){.name = in_folder("images.npy")}));
    CHECK(rename(in_folder("labels.npy"), in_folder("Y.npy")) == 0);
    refused((gs_data_config){.name = in_folder("images.npy")}, GS_EIO, "its labels are not beside");
    CHECK(rename(in_folder("images.npy"), in_folder("X.npy")) == 0);
    gs_data_close(fine((gs_data_config){.name = in_folder("X.npy")}));
    CHECK(rename(in_folder("X.npy"), in_folder("q.npy")) == 0);
    refused((gs_data_config){.name = in_folder("q.npy")}, GS_EIO, "its labels are not beside it");
    gs_data_close(fine((gs_data_config){.name = in_folder("q.npy"), .labels = in_folder("Y.npy")}));
    refused((gs_data_config){.name = in_folder("q.npy"), .labels = in_folder("nothing")}, GS_EIO,
            "nothing");

    /* a set to validate with: without its labels, or one of the two is no array */
    write_npy("x_train.npy", "|u1", "(4, 2)", x, 8);
    write_npy("y_train.npy", "|u1", "(4,)", y, 4);
    write_npy("x_val.npy", "|u1", "(2, 2)", x, 4);
    refused((gs_data_config){.name = in_folder("x_train.npy")}, GS_EIO,
            "the labels of its validation set are missing");
    write_npy("y_val.npy", "|u1", "(2,)", y, 2);
    gs_data *data = fine((gs_data_config){.name = in_folder("x_train.npy")});
    CHECK(data && gs_data_get_info(data)->items[1] == 2);
    gs_data_close(data);
    write_text("x_val.npy", "no array");
    refused((gs_data_config){.name = in_folder("x_train.npy")}, GS_EFORMAT, "x_val.npy");
    write_npy("x_val.npy", "|u1", "(2, 3)", x, 6);
    refused((gs_data_config){.name = in_folder("x_train.npy")}, GS_ESIZE, "of another shape");
    write_npy("x_val.npy", "|u1", "(2, 2, 1)", x, 4);
    refused((gs_data_config){.name = in_folder("x_train.npy")}, GS_ESIZE, "of another shape");
    write_npy("x_val.npy", "|u1", "(2, 2)", x, 4);

    /* labels that are neither one per image nor one per pixel */
    static const char *const shapes[] = {"(2, 4)", "(2, 2, 3)", "(2, 3, 2)", "(2, 2, 2)"};
    write_npy("x_train.npy", "|u1", "(2, 2, 2)", x, 8);
    unlink(in_folder("x_val.npy"));
    for (size_t i = 0; i < GSI_COUNT(shapes); i++) {
        write_npy("y_train.npy", "|u1", shapes[i], (const uint8_t[12]){0, 1}, i % 3 ? 12 : 8);
        if (i < 3)
            refused((gs_data_config){.name = in_folder("x_train.npy")}, GS_ESIZE,
                    "neither one label per image nor one per pixel");
        else
            gs_data_close(fine((gs_data_config){.name = in_folder("x_train.npy")}));
    }
    /* as Keras has them: an axis of one */
    write_npy("y_train.npy", "|u1", "(2, 2, 2, 1)", (const uint8_t[8]){0, 1}, 8);
    data = fine((gs_data_config){.name = in_folder("x_train.npy")});
    CHECK(data && gs_data_get_info(data)->task == GS_TASK_PIXELS);
    gs_data_close(data);
    write_npy("y_train.npy", "|u1", "(2, 1)", (const uint8_t[2]){0, 1}, 2);
    data = fine((gs_data_config){.name = in_folder("x_train.npy")});
    CHECK(data && gs_data_get_info(data)->task == GS_TASK_CLASSES);
    gs_data_close(data);
    write_npy("y_train.npy", "|u1", "(2, 2, 2)", (const uint8_t[8]){0, 1}, 8);
    write_npy("x_train.npy", "|u1", "(2, 4)", x, 8);
    refused((gs_data_config){.name = in_folder("x_train.npy")}, GS_ESIZE, "neither one label");
    /* classes beyond all items are a column of something else */
    static const uint32_t many[] = {0, 70000, 1, 2};
    write_npy("x_train.npy", "|u1", "(4, 2)", x, 8);
    write_npy("y_train.npy", "<u4", "(4,)", many, sizeof many);
    refused((gs_data_config){.name = in_folder("x_train.npy")}, GS_ERANGE,
            "has a class 70000, and 4 items");
    enum { ITEMS = 70000 };
    uint8_t *large = calloc(2, (size_t)4 * ITEMS);
    uint8_t *labels = calloc(ITEMS, 4);
    labels[2] = 1; /* 65536 */
    write_file("x_train.npy", large, npy(large, "|u1", "(70000, 1)", labels, ITEMS));
    write_file("y_train.npy", large, npy(large, "<u4", "(70000,)", labels, (size_t)4 * ITEMS));
    data = fine((gs_data_config){.name = in_folder("x_train.npy")});
    CHECK(data && gs_data_get_info(data)->classes == 65537);
    gs_data_close(data);
    free(large);
    free(labels);
}

/* Pixels without their classes, and rows without measure: as they are, and -1. */
static void test_unlabelled(void)
{
    static const char *const tasks[] = {"classes", "pixels"};
    static const uint8_t x[16] = {1, 2, 3, 4};
    empty_folder();
    write_npy("x.npy", "|u1", "(4, 2, 2)", x, 16);
    write_npy("y.npy", "|u1", "(4,)", x + 8, 4);
    idx(&file, 0x08, SHAPE(2, 2, 2), 1);
    write_file("a-images", file.data, file.n);
    for (size_t t = 0; t < 2; t++)
        for (int k = 0; k < 2; k++) {
            char like[200];
            snprintf(like, sizeof like,
                     "{\"task\":\"%s\",\"height\":2,\"width\":2,\"channels\":1,\"classes\":2}",
                     tasks[t]);
            gs_data *data = fine((gs_data_config){
                .name = in_folder(k ? "a-images" : "x.npy"), .like = like, .unlabelled = 1});
            float values[4];
            int32_t targets[4] = {7, 7, 7, 7};
            CHECK(gs_data_read(values, NULL, targets, data, GS_SPLIT_TRAIN, 0, NULL) == GS_OK);
            CHECK(values[0] == 1 && values[3] == 4); /* it has no mean */
            CHECK(targets[0] == -1 && targets[3] == (t ? -1 : 7));
            gs_data_close(data);
        }
    /* a folder of two parts: all of both; a file of them: its own */
    static const char like[] = "{\"task\":\"classes\",\"height\":2,\"width\":2,\"channels\":1,"
                               "\"classes\":2}";
    make_folder("idx");
    make_folder("npy");
    write_file("idx/t10k-images-idx3-ubyte", file.data, file.n);
    idx(&file, 0x08, SHAPE(4, 2, 2), 1);
    write_file("idx/train-images-idx3-ubyte", file.data, file.n);
    write_npy("npy/x_train.npy", "|u1", "(4, 2, 2)", x, 16);
    write_npy("npy/x_test.npy", "|u1", "(2, 2, 2)", x, 8);
    for (int k = 0; k < 2; k++) {
        float values[4];
        int32_t target = 7;
        gs_data *data = fine(
            (gs_data_config){.name = in_folder(k ? "npy" : "idx"), .like = like, .unlabelled = 1});
        CHECK(data && gs_data_get_info(data)->items[GS_SPLIT_TRAIN] == 6);
        CHECK(gs_data_read(values, NULL, &target, data, GS_SPLIT_TRAIN, 4, NULL) == GS_OK);
        CHECK(values[0] == 1 && values[3] == 4 && target == -1);
        gs_data_close(data);
        data = fine((gs_data_config){
            .name = in_folder(k ? "npy/x_train.npy" : "idx/train-images-idx3-ubyte"),
            .like = like,
            .unlabelled = 1});
        CHECK(data && gs_data_get_info(data)->items[GS_SPLIT_TRAIN] == 4);
        gs_data_close(data);
    }
    /* a folder of one part: all of it */
    unlink(in_folder("idx/t10k-images-idx3-ubyte"));
    unlink(in_folder("npy/x_test.npy"));
    for (int k = 0; k < 2; k++) {
        gs_data *data = fine(
            (gs_data_config){.name = in_folder(k ? "npy" : "idx"), .like = like, .unlabelled = 1});
        CHECK(data && gs_data_get_info(data)->items[GS_SPLIT_TRAIN] == 4);
        gs_data_close(data);
    }
    write_npy("npy/x_test.npy", "|u1", "(2, 3, 2)", x, 12);
    refused((gs_data_config){.name = in_folder("npy"), .like = like, .unlabelled = 1}, GS_ESIZE,
            "x_test.npy: is of another shape than");
    idx(&file, 0x08, SHAPE(2, 2, 2), 1);
    /* the same from files that end too soon */
    write_file("a-images", file.data, file.n - 1);
    refused((gs_data_config){.name = in_folder("a-images"),
                             .like = "{\"task\":\"classes\",\"height\":2,\"width\":2,"
                                     "\"channels\":1,\"classes\":2}",
                             .unlabelled = 1},
            GS_EFORMAT, "a-images");
    /* like one that has names for its classes: numbers are such names */
    write_npy("y.npy", "|u1", "(4,)", (const uint8_t[]){0, 1, 0, 5}, 4);
    refused((gs_data_config){.name = in_folder("x.npy"),
                             .like = "{\"task\":\"classes\",\"height\":2,\"width\":2,"
                                     "\"channels\":1,\"classes\":2}"},
            GS_ERANGE, "has 6 classes, and the model knows 2");
}

static void test_archives(void)
{
    static zip z;
    uint8_t content[512];
    static const uint8_t x[12] = {1, 2, 3}, y[6] = {0, 1};
    static const char like[] = "{\"task\":\"classes\",\"height\":1,\"width\":2,\"channels\":1,"
                               "\"classes\":2}";
    static const struct {
        const char *names[5];
        gs_status status;
        const char *words;
    } cases[] = {
        {{"a.npy", "b.npy"}, GS_ENAME, "has no array called x_train"},
        {{"x.npy", "z.npy"}, GS_ENAME, "has an array x and none called y"},
        {{"x_train.npy", "y_train.npy", "x_valid.npy"}, GS_ENAME, "none called y_valid"},
        {{"train_images.npy", "train_labels.npy", "test_images.npy", "test_labels.npy"}, GS_OK, ""},
        {{"x_train.npy", "y_train.npy", "x_val.npy", "y_val.npy"}, GS_OK, ""},
    };
    empty_folder();
    for (size_t i = 0; i < GSI_COUNT(cases); i++) {
        z = (zip){.n = 0};
        for (size_t k = 0; cases[i].names[k]; k++) {
            const size_t n =
                k % 2 ? npy(content, "|u1", "(6,)", y, 6) : npy(content, "|u1", "(6, 2)", x, 12);
            zip_add(&z, cases[i].names[k], content, n);
        }
        zip_write(&z, "a.npz");
        gs_data *data;
        const gs_status status = open_it(&data, (gs_data_config){.name = in_folder("a.npz")});
        CHECK_MSG(status == cases[i].status && strstr(error.text, cases[i].words), "%zu: %s", i,
                  error.text);
        CHECK(!data || gs_data_get_info(data)->items[1] == 6);
        gs_data_close(data);
    }
    /* labels in an archive are not one array; an archive alone needs none */
    write_npy("q.npy", "|u1", "(6, 2)", x, 12);
    refused((gs_data_config){.name = in_folder("q.npy"), .labels = in_folder("a.npz")}, GS_EFORMAT,
            "is not one array");
    gs_data *data =
        fine((gs_data_config){.name = in_folder("a.npz"), .like = like, .unlabelled = 1});
    CHECK(data && gs_data_get_info(data)->items[0] == 12); /* x_train and x_val */
    gs_data_close(data);
}

/* ---- tables ---- */

static void test_tables(void)
{
    static const struct {
        const char *text;
        gs_status status;
        const char *words;
    } cases[] = {
        {"", GS_ESIZE, "is empty"},
        {"\n\n1,2,0\n\n3,4,1\n", GS_OK, ""},
        {"1\n2\n", GS_EFORMAT, "has one column, and 2 are needed"},
        {"1,2,0\n1\n", GS_EFORMAT, "has 1 field, and the first line 3"},
        {"1,2,\n", GS_EFORMAT, "field 3, the class, is empty"},
        {"1,,0\n", GS_EFORMAT, "field 2 is empty, and must be a number"}, /* no titles */
        {"1,2,0\n1,,0\n", GS_EFORMAT, "field 2 is empty, and must be a number"},
        {"1,2,0\n1,4x,0\n", GS_EFORMAT, "field 2 is no number: 4x"},
        {"1,2,0.5\n1,2,1.5\n", GS_EFORMAT, "column 3 has values such as 1.5"},
        {"1,2,0.5\n1,2,cat\n", GS_OK, ""},
        {"1,2,-1\n1,2,0\n", GS_OK, ""},
        {"1,2,99999999\n1,2,0\n", GS_OK, ""},
        {"1,2,cat\n1,2,cat\n", GS_ESIZE, "has 1 class, and 2 are needed"},
        {" 1 ,\t2\t, cat \r\n\"3\",\"4\" ,\"do\"\"g\"\r\n", GS_OK, ""},
        {"1,2,\"open\n3,4,b\n", GS_EFORMAT, "field 3 begins with a quote that does not end"},
        {"1,2,\"\"\"\"\n3,4,b\n", GS_OK, ""},
        {"y,a\n0,1\n1,2\n", GS_OK, ""},
        {"1,2,0\n\x01,2,1\n", GS_EFORMAT, "not a text file"},
    };
    empty_folder();
    for (size_t i = 0; i < GSI_COUNT(cases); i++) {
        gs_data *data;
        write_text("a.csv", cases[i].text);
        const gs_status status = open_it(&data, (gs_data_config){.name = in_folder("a.csv")});
        CHECK_MSG((cases[i].status == GS_OK) == (status == GS_OK) &&
                      strstr(error.text, cases[i].words),
                  "%zu: %s %s", i, cases[i].text, error.text);
        CHECK(!data || (gs_data_get_info(data)->items[0] == 1 && gs_data_get_info(data)->classes));
        gs_data_close(data);
    }
    /* of the quoted ones the words are what was meant */
    write_text("a.csv", cases[13].text);
    gs_data *data = fine((gs_data_config){.name = in_folder("a.csv")});
    const gs_data_info *info = data ? gs_data_get_info(data) : NULL;
    CHECK(info && strcmp(info->labels[0], "cat") == 0 && strcmp(info->labels[1], "do\"g") == 0);
    gs_data_close(data);

    /* more columns than there may be, and names that are too short to end in .csv */
    const size_t n = 200000;
    char *line = malloc(n + 2);
    for (size_t i = 0; i < n; i++)
        line[i] = i % 2 ? ',' : '1';
    strcpy(line + n - 1, "\n");
    write_text("a.csv", line);
    refused((gs_data_config){.name = in_folder("a.csv")}, GS_ESIZE, "more than 65536 fields");
    free(line);
    gs_data_close(NULL);
    char back[1000];
    CHECK(getcwd(back, sizeof back) && chdir(folder) == 0);
    write_text("csv", "text that is long enough for an item");
    data = fine((gs_data_config){.name = "csv", .time = 8});
    CHECK(data && gs_data_get_info(data)->task == GS_TASK_TOKENS);
    gs_data_close(data);
    CHECK(chdir(back) == 0);

    /* rows without classes: one column that may be one, or a column of classes that is not read */
    static const char one[] = "{\"task\":\"classes\",\"height\":1,\"width\":1,\"channels\":1,"
                              "\"classes\":2}";
    write_text("a.csv", "1\n2\n3\n");
    data = fine((gs_data_config){.name = in_folder("a.csv"), .like = one, .unlabelled = 1});
    CHECK(data && gs_data_get_info(data)->items[0] == 3);
    gs_data_close(data);
    write_text("a.csv", "x,label\n1,\n2,cat\n");
    data = fine((gs_data_config){.name = in_folder("a.csv"), .like = one, .unlabelled = 1});
    CHECK(data && gs_data_get_info(data)->items[0] == 2);
    gs_data_close(data);
    write_text("a.csv", "1,2,3\n");
    refused((gs_data_config){.name = in_folder("a.csv"), .like = one, .unlabelled = 1}, GS_ESIZE,
            "rows are 1 x 2 x 1");

    /* a model that has its classes in another order than the alphabet's, or one of them twice */
    static const char *const orders[] = {"[\"dog\",\"cat\"]", "[\"cat\",\"cat\",\"dog\"]"};
    for (int k = 0; k < 2; k++) {
        char like[200];
        snprintf(like, sizeof like,
                 "{\"task\":\"classes\",\"height\":1,\"width\":1,\"channels\":1,\"classes\":%d,"
                 "\"labels\":%s}",
                 2 + k, orders[k]);
        write_text("a.csv", "1,cat\n2,dog\n1,cat\n2,dog\n");
        data = fine((gs_data_config){.name = in_folder("a.csv"), .like = like, .valid = 0.5});
        for (int split = 0; data && split < GS_SPLIT_COUNT; split++)
            for (uint64_t i = 0; i < 2; i++) {
                float x;
                int32_t class;
                CHECK(gs_data_read(&x, NULL, &class, data, (gs_split)split, i, NULL) == GS_OK);
                CHECK_MSG(class == (x == 2 ? 2 * k : 1 - k), "%g is %d", (double)x, (int)class);
            }
        gs_data_close(data);
        write_text("a.csv", "1,cat\n2,cow\n");
        refused((gs_data_config){.name = in_folder("a.csv"), .like = like}, GS_ENAME,
                "its class cow is none of the model's");
    }
}

/* ---- folders ---- */

static void write_image(const char *name, unsigned w, unsigned h, int color, int value)
{
    uint8_t pixels[300];
    memset(pixels, value, sizeof pixels);
    write_png(name, w, h, color, pixels);
}

static void test_folders(void)
{
    enum { GREY = PNG_COLOR_TYPE_GRAY, RGB = PNG_COLOR_TYPE_RGB };
    float x[300];
    int32_t targets[100];
    empty_folder();
    make_folder("a");
    make_folder("a/val");
    make_folder("a/val/one");
    make_folder("a/val/two");
    write_image("a/val/one/0.png", 4, 4, GREY, 3);
    write_image("a/val/two/0.png", 4, 4, GREY, 9);
    refused((gs_data_config){.name = in_folder("a")}, GS_ESIZE, "has no images to train on");
    /* one value only: its deviation is none, and 0 is what becomes of it */
    make_folder("a/train");
    make_folder("a/train/one");
    make_folder("a/train/two");
    write_image("a/train/one/0.png", 4, 4, GREY, 100);
    write_image("a/train/two/0.png", 4, 4, GREY, 100);
    gs_data *data = fine((gs_data_config){.name = in_folder("a")});
    CHECK(gs_data_read(x, NULL, targets, data, GS_SPLIT_TRAIN, 0, NULL) == GS_OK && x[0] == 0);
    CHECK(gs_data_get_info(data)->channels == 1 && gs_data_get_info(data)->inverse_std[0] == 1);
    char about[1000];
    CHECK(gs_data_describe(about, sizeof about, NULL, data, NULL) == GS_OK);
    gs_data_close(data);
    data = fine((gs_data_config){.name = in_folder("a"), .raw = 1});
    CHECK(gs_data_read(x, NULL, targets, data, GS_SPLIT_VALID, 1, NULL) == GS_OK && x[0] == 9);
    CHECK(targets[0] == 1 && !gs_data_get_info(data)->mean);
    gs_data_close(data);
    /* a text among images is passed over, also where the masks are */
    write_text("a/train/one/notes.txt", "x");
    gs_data_close(fine((gs_data_config){.name = in_folder("a")}));

    make_folder("b");
    make_folder("b/images");
    make_folder("b/masks");
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "b/images/%d.png", i);
        write_image(name, 4, 4, RGB, 20 * i);
        snprintf(name, sizeof name, "b/masks/%d.%s", i, i ? "png" : "PNG");
        write_image(name, 4, 4, GREY, i);
    }
    write_text("b/masks/!notes.txt", "x"); /* the first of them */
    data = fine((gs_data_config){.name = in_folder("b")});
    CHECK(data && gs_data_get_info(data)->classes == 4);
    gs_data_close(data);
    static const char like[] = "{\"task\":\"pixels\",\"height\":4,\"width\":4,\"channels\":3,"
                               "\"classes\":3}";
    refused((gs_data_config){.name = in_folder("b"), .like = like}, GS_ERANGE,
            "has class 3, and the model knows 3");
    refused((gs_data_config){.name = in_folder("b"),
                             .like = "{\"task\":\"classes\",\"height\":4,\"width\":4,"
                                     "\"channels\":3,\"classes\":2}"},
            GS_ESIZE, "has pixels, and the model was trained on classes");
    /* pixels without their classes are -1, each */
    data = fine((gs_data_config){.name = in_folder("b/images"), .like = like, .unlabelled = 1});
    memset(targets, 7, sizeof targets);
    CHECK(gs_data_read(x, NULL, targets, data, GS_SPLIT_TRAIN, 0, NULL) == GS_OK);
    CHECK(targets[0] == -1 && targets[15] == -1 && targets[16] != -1);
    gs_data_close(data);
    /* masks alone are no images; and some may lie behind a link */
    make_folder("alone");
    make_folder("alone/masks");
    write_image("alone/masks/0.png", 4, 4, GREY, 1);
    refused((gs_data_config){.name = in_folder("alone"), .like = like, .unlabelled = 1}, GS_ESIZE,
            "alone: has no images");
    make_folder("b/images/more");
    write_image("b/images/more/0.png", 4, 4, RGB, 9);
    CHECK(symlink(in_folder("alone/masks"), in_folder("b/masks/more")) == 0);
    data = fine((gs_data_config){.name = in_folder("b")});
    CHECK(data && gs_data_get_info(data)->items[0] + gs_data_get_info(data)->items[1] == 5);
    gs_data_close(data);
    unlink(in_folder("b/images/more/0.png"));
    unlink(in_folder("b/masks/more"));
    /* a mask that is damaged, gone, or of another size the one way or the other */
    write_image("b/masks/1.png", 4, 5, GREY, 1);
    refused((gs_data_config){.name = in_folder("b")}, GS_ESIZE, "is 4 x 5, and its image 4 x 4");
    write_image("b/masks/1.png", 5, 4, GREY, 1);
    refused((gs_data_config){.name = in_folder("b")}, GS_ESIZE, "is 5 x 4, and its image 4 x 4");
    write_text("b/masks/1.png", "no image");
    refused((gs_data_config){.name = in_folder("b")}, GS_EFORMAT, "masks/1.png");
    write_image("b/masks/1.png", 4, 4, GREY, 1);
    write_text("b/images/0.png", "no image");
    refused((gs_data_config){.name = in_folder("b")}, GS_EFORMAT, "images/0.png");
    write_image("b/images/0.png", 4, 4, RGB, 1);
    data = fine((gs_data_config){.name = in_folder("b"), .valid = 0.5});
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "b/images/%d.png", i);
        write_text(name, "gone since");
    }
    CHECK(gs_data_read(x, NULL, targets, data, GS_SPLIT_TRAIN, 0, &error) == GS_EFORMAT);
    gs_data_close(data);
    /* one class is none to learn */
    make_folder("c");
    make_folder("c/one");
    write_image("c/one/0.png", 4, 4, GREY, 3);
    write_image("c/one/1.png", 4, 4, GREY, 3);
    refused((gs_data_config){.name = in_folder("c")}, GS_ESIZE, "has 1 class, and 2 are needed");
    /* a damaged one is found when they are measured */
    make_folder("c/two");
    write_text("c/two/0.png", "no image");
    refused((gs_data_config){.name = in_folder("c")}, GS_EFORMAT, "two/0.png");
    /* a link to nothing in a folder is not counted, nor what lies too deep */
    make_folder("d");
    CHECK(symlink("nothing", in_folder("d/a.png")) == 0);
    write_text("d/a.txt", "text that is long enough for an item");
    data = fine((gs_data_config){.name = in_folder("d"), .time = 8});
    CHECK(data && gs_data_get_info(data)->task == GS_TASK_TOKENS);
    gs_data_close(data);
}

/* Of many files the first thousand decide what the folder is. */
static void test_many(void)
{
    empty_folder();
    make_folder("a");
    char path[200];
    for (int i = 0; i < 1100; i++) {
        if (snprintf(path, sizeof path, "%s/%d.txt", in_folder("a"), i) >= (int)sizeof path)
            abort();
        FILE *f = fopen(path, "w");
        fputs("some text, ", f);
        fclose(f);
    }
    gs_data *data = fine((gs_data_config){.name = in_folder("a"), .time = 8});
    CHECK(data && gs_data_get_info(data)->task == GS_TASK_TOKENS);
    gs_data_close(data);
    /* token files: more than are held open at once */
    empty_folder();
    make_folder("b");
    tokens(&file, 20, 0);
    for (int i = 0; i < 513; i++) {
        if (snprintf(path, sizeof path, "%s/%d.bin", in_folder("b"), i) >= (int)sizeof path)
            abort();
        FILE *f = fopen(path, "w");
        fwrite(file.data, 1, file.n, f);
        fclose(f);
    }
    refused((gs_data_config){.name = in_folder("b"), .time = 8}, GS_ESIZE,
            "has more than 512 token files");
}

/* ---- CIFAR and tokens ---- */

static void test_cifar(void)
{
    static uint8_t records[2][3074];
    empty_folder();
    /* a folder where a file should be; files whose sizes are no images */
    make_folder("a");
    make_folder("a/data_batch_1.bin");
    write_text("a/test_batch.bin", "x");
    write_text("a/a.txt", "text that is long enough for an item");
    gs_data *data = fine((gs_data_config){.name = in_folder("a"), .time = 8});
    CHECK(data && gs_data_get_info(data)->task == GS_TASK_TOKENS);
    gs_data_close(data);
    records[1][1] = 1;
    make_folder("b");
    static const size_t sizes[][2] = {{3074, 0}, {3073, 3074}, {3074, 3000}, {6148, 3074}};
    for (size_t i = 0; i < GSI_COUNT(sizes); i++) {
        write_file("b/train.bin", records, sizes[i][0]);
        write_file("b/test.bin", records, sizes[i][1]);
        const gs_status status =
            open_it(&data, (gs_data_config){.name = in_folder("b"), .time = 8});
        CHECK((i < 3) == (status != GS_OK || gs_data_get_info(data)->task == GS_TASK_TOKENS));
        gs_data_close(data);
    }
    /* less than an image in all: the file is named */
    make_folder("c");
    write_file("c/data_batch_1.bin", records, 3073);
    write_file("c/test_batch.bin", records, 3000);
    refused((gs_data_config){.name = in_folder("c")}, GS_EFORMAT,
            "c/test_batch.bin: has 3000 bytes, and images of CIFAR have 3073 each");
    /* names: too few, with gaps, and no text: numbers then */
    static const char *const names[] = {"a\nb\n", "a\n\n\nb\n", "a\x01\n"};
    for (size_t i = 0; i < GSI_COUNT(names); i++) {
        write_text("b/fine_label_names.txt", names[i]);
        data = fine((gs_data_config){.name = in_folder("b")});
        CHECK(data && !gs_data_get_info(data)->labels && gs_data_get_info(data)->classes == 2);
        gs_data_close(data);
    }
}

static void test_token_files(void)
{
    empty_folder();
    make_folder("a");
    /* what only looks like tokens by its name: not there, too short, of another content */
    CHECK(symlink("nothing", in_folder("a/a.bin")) == 0);
    write_text("a/b.bin", "ab");
    write_text("a/c.bin", "text that is long enough for an item");
    write_text("a/d.txt", "text that is long enough for an item");
    gs_data *data = fine((gs_data_config){.name = in_folder("a"), .time = 8});
    CHECK(data && gs_data_get_info(data)->classes == 256);
    gs_data_close(data);
    /* by its content alone */
    write_tokens("tokens", 40, 0);
    data = fine((gs_data_config){.name = in_folder("tokens"), .time = 8, .vocabulary = 39});
    int32_t ids[8], targets[8];
    const uint64_t n = data ? gs_data_get_info(data)->items[0] : 0;
    CHECK(n == 3);
    CHECK(gs_data_read(NULL, ids, targets, data, GS_SPLIT_TRAIN, 0, &error) == GS_OK);
    gs_data_close(data);
    data = fine((gs_data_config){.name = in_folder("tokens"), .time = 8, .vocabulary = 5});
    CHECK(gs_data_read(NULL, ids, targets, data, GS_SPLIT_TRAIN, 0, &error) == GS_ERANGE);
    CHECK_MSG(strstr(error.text, "token 5 is 5: the vocabulary has 5"), "%s", error.text);
    gs_data_close(data);
    /* the second shard lies */
    make_folder("b");
    write_tokens("b/a.bin", 40, 0);
    write_tokens("b/b.bin", 40, 0);
    CHECK(truncate(in_folder("b/b.bin"), 1030) == 0);
    refused((gs_data_config){.name = in_folder("b"), .time = 8}, GS_EFORMAT, "b.bin");
}

static void test_clean_up(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(system(command) == 0);
}

TESTS({"byte order", test_byte_order}, {"arrays", test_arrays}, {"unlabelled", test_unlabelled},
      {"archives", test_archives}, {"tables", test_tables}, {"folders", test_folders},
      {"many", test_many}, {"cifar", test_cifar}, {"token files", test_token_files},
      {"clean up", test_clean_up})
